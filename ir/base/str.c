#include "ir/base/str.h"

#include "ir/base/map.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

void ds_strtab_init(ds_strtab *tab) {
    *tab = (ds_strtab){0};
    ds_arena_init(&tab->arena);
}

void ds_strtab_deinit(ds_strtab *tab) {
    ds_arena_deinit(&tab->arena);
    free(tab->slots);
    free(tab->hashes);
    *tab = (ds_strtab){0};
}

static bool is_text(const char *string, const char *text, size_t n) {
    return strncmp(string, text, n) == 0 && string[n] == '\0';
}

/* The slot of the text, or the free one where it belongs. */
static uint32_t find_slot(const ds_strtab *tab, const char *text, size_t n, uint32_t hash) {
    uint32_t mask = tab->cap - 1, at = hash & mask;
    while (tab->slots[at] && (tab->hashes[at] != hash || !is_text(tab->slots[at], text, n)))
        at = (at + 1) & mask;
    return at;
}

static void grow(ds_strtab *tab) {
    ds_strtab old = *tab;
    tab->cap = old.cap ? old.cap * 2 : 64;
    tab->slots = ds_xcalloc(tab->cap, sizeof *tab->slots);
    tab->hashes = ds_xcalloc(tab->cap, sizeof *tab->hashes);
    for (uint32_t i = 0; i < old.cap; i++) {
        if (!old.slots[i]) continue;
        uint32_t mask = tab->cap - 1, at = old.hashes[i] & mask;
        while (tab->slots[at]) at = (at + 1) & mask;
        tab->slots[at] = old.slots[i];
        tab->hashes[at] = old.hashes[i];
    }
    free(old.slots);
    free(old.hashes);
}

/* Eight bytes at a time; no such hash leaves the process. */
static uint32_t hash_text(const char *text, size_t n) {
    uint64_t hash = n, word;
    for (; n >= sizeof word; n -= sizeof word, text += sizeof word) {
        memcpy(&word, text, sizeof word);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 32;
    }
    for (word = 0; n; n--) word = word << 8 | (unsigned char)text[n - 1];
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(hash >> 32);
}

static const char *intern(ds_strtab *tab, const char *text, size_t n) {
    if ((tab->n + 1) * 4 > tab->cap * 3) grow(tab);
    uint32_t hash = hash_text(text, n), at = find_slot(tab, text, n, hash);
    if (!tab->slots[at]) {
        tab->slots[at] = ds_arena_strndup(&tab->arena, text, n);
        tab->hashes[at] = hash;
        tab->n++;
    }
    return tab->slots[at];
}

const char *ds_intern_n(ds_strtab *tab, const char *text, size_t n) {
    /* A NUL inside the text would break pointer equality: the string ends there. */
    const char *nul = n ? memchr(text, '\0', n) : NULL;
    return intern(tab, text, nul ? (size_t)(nul - text) : n);
}

const char *ds_intern(ds_strtab *tab, const char *text) {
    return intern(tab, text, strlen(text));
}

void ds_buf_deinit(ds_buf *buf) {
    free(buf->text);
    *buf = (ds_buf){0};
}

static void reserve(ds_buf *buf, size_t more) {
    if (buf->cap - buf->n > more) return;
    size_t cap = buf->cap ? buf->cap : 64;
    while (cap - buf->n <= more) cap *= 2;
    buf->text = ds_xrealloc(buf->text, cap);
    buf->cap = cap;
}

void ds_buf_put_n(ds_buf *buf, const char *text, size_t n) {
    reserve(buf, n);
    if (n) memcpy(buf->text + buf->n, text, n);
    buf->n += n;
    buf->text[buf->n] = '\0';
}

void ds_buf_put(ds_buf *buf, const char *text) {
    ds_buf_put_n(buf, text, strlen(text));
}

void ds_buf_putc(ds_buf *buf, char c) {
    ds_buf_put_n(buf, &c, 1);
}

void ds_buf_printf(ds_buf *buf, const char *format, ...) {
    va_list ap, again;
    va_start(ap, format);
    va_copy(again, ap);
    reserve(buf, 64); /* more than most need: one pass */
    int n = vsnprintf(buf->text + buf->n, buf->cap - buf->n, format, ap);
    va_end(ap);
    if (n < 0) ds_out_of_memory(0); /* or a text of 2 GiB */
    if ((size_t)n >= buf->cap - buf->n) {
        reserve(buf, (size_t)n);
        vsnprintf(buf->text + buf->n, (size_t)n + 1, format, again);
    }
    buf->n += (size_t)n;
    buf->text[buf->n] = '\0';
    va_end(again);
}

void ds_buf_put_int(ds_buf *buf, int64_t value) {
    char text[20]; /* the digits of 2^63 and a sign */
    size_t at = sizeof text;
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    do text[--at] = (char)('0' + rest % 10);
    while (rest /= 10);
    if (value < 0) text[--at] = '-';
    ds_buf_put_n(buf, text + at, sizeof text - at);
}

void ds_buf_put_quoted(ds_buf *buf, const char *text) {
    ds_buf_putc(buf, '"');
    for (const char *p = text; *p; p++) {
        switch (*p) {
        case '"':
            ds_buf_put(buf, "\\\"");
            break;
        case '\\':
            ds_buf_put(buf, "\\\\");
            break;
        case '\n':
            ds_buf_put(buf, "\\n");
            break;
        case '\t':
            ds_buf_put(buf, "\\t");
            break;
        default:
            ds_buf_putc(buf, *p);
        }
    }
    ds_buf_putc(buf, '"');
}

#define LONGEST 63u

uint32_t ds_edit_distance(const char *a, const char *b) {
    size_t na = strlen(a), nb = strlen(b);
    if (na > LONGEST || nb > LONGEST) return UINT32_MAX;
    uint32_t rows[3][LONGEST + 1];
    for (size_t j = 0; j <= nb; j++) rows[0][j] = (uint32_t)j;
    for (size_t i = 1; i <= na; i++) {
        uint32_t *now = rows[i % 3], *up = rows[(i + 2) % 3], *up2 = rows[(i + 1) % 3];
        now[0] = (uint32_t)i;
        for (size_t j = 1; j <= nb; j++) {
            uint32_t best = up[j - 1] + (a[i - 1] != b[j - 1]);
            if (up[j] + 1 < best) best = up[j] + 1;
            if (now[j - 1] + 1 < best) best = now[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                up2[j - 2] + 1 < best)
                best = up2[j - 2] + 1;
            now[j] = best;
        }
    }
    return rows[na % 3][nb];
}

typedef struct word {
    const char *wrong, *right;
} word;

static const word words[] = {
#define WORD(wrong, right) {wrong, right},
#include "ir/base/words.def"
};
static const word advice[] = {
#define ADVICE(wrong, fix) {wrong, fix},
#include "ir/base/words.def"
};

typedef int compare(const char *a, const char *b);

static const char *find(const char *text, const char *const *candidates, uint32_t n,
                        compare *same) {
    for (uint32_t i = 0; i < n; i++)
        if (same(text, candidates[i]) == 0) return candidates[i];
    return NULL;
}

static const char *find_meant(const char *name, const char *const *candidates, uint32_t n,
                              compare *same) {
    const char *meant = NULL;
    for (size_t i = 0; i < sizeof words / sizeof *words && !meant; i++)
        if (same(words[i].wrong, name) == 0) meant = find(words[i].right, candidates, n, strcmp);
    return meant;
}

const char *ds_word_fix(const char *name) {
    for (size_t i = 0; i < sizeof advice / sizeof *advice; i++)
        if (strcasecmp(advice[i].wrong, name) == 0) return advice[i].right;
    return NULL;
}

const char *ds_suggest(const char *name, const char *const *candidates, uint32_t n) {
    size_t length = strlen(name);
    uint32_t limit = length / 3 > 1 ? (uint32_t)(length / 3) : 1;
    const char *best = find_meant(name, candidates, n, strcmp);
    if (!best) best = find_meant(name, candidates, n, strcasecmp);
    if (!best && !find(name, candidates, n, strcmp)) best = find(name, candidates, n, strcasecmp);
    if (best) return best;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t d = ds_edit_distance(name, candidates[i]);
        if (d <= limit && d > 0) {
            best = candidates[i];
            limit = d - 1;
        }
    }
    return best;
}
