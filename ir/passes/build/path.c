/* Patterns against paths. */
#include "ir/passes/build/path.h"

#include "ir/ops/ops.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

typedef struct part {
    const char *text;
    size_t n; /* without brackets */
    bool loop;
    int64_t turn; /* DS_ANY_TURN: [*] */
} part;

enum { MAX_PARTS = 64 };

typedef struct parts {
    part names[MAX_PARTS], loops[MAX_PARTS];
    uint32_t n_names, n_loops;
} parts;

static void add_part(parts *p, const char *text, size_t n) {
    part one = {.text = text, .n = n};
    const char *bracket = memchr(text, '[', n);
    if (bracket) {
        one.loop = true;
        one.n = (size_t)(bracket - text);
        one.turn = bracket[1] == '*' ? DS_ANY_TURN : strtoll(bracket + 1, NULL, 10);
    }
    if (one.loop && p->n_loops < MAX_PARTS) p->loops[p->n_loops++] = one;
    if (!one.loop && p->n_names < MAX_PARTS) p->names[p->n_names++] = one;
}

static void split_path(const char *text, parts *out) {
    while (*text) {
        size_t n = strcspn(text, "./");
        if (n) add_part(out, text, n);
        text += n + (text[n] != '\0');
    }
}

/* `*` any text, `?` any character. Returning to the last star alone is enough. O(n m). */
static bool glob(const char *pattern, size_t n, const char *text, size_t m) {
    size_t p = 0, t = 0, star = n, after = 0;
    while (t < m) {
        if (p < n && pattern[p] == '*') {
            star = p++;
            after = t;
        } else if (p < n && (pattern[p] == '?' || pattern[p] == text[t])) {
            p++, t++;
        } else if (star < n) {
            p = star + 1;
            t = ++after;
        } else {
            return false;
        }
    }
    while (p < n && pattern[p] == '*') p++;
    return p == n;
}

static bool same_text(const part *a, const part *b) {
    return glob(a->text, a->n, b->text, b->n);
}

/* Are the first n names of the pattern those of the path from `skip` on? */
static bool match_from(const parts *pattern, uint32_t n, const parts *path, uint32_t skip) {
    for (uint32_t i = 0; i < n; i++)
        if (!same_text(&pattern->names[i], &path->names[skip + i])) return false;
    return true;
}

static bool match_names(const parts *pattern, const parts *path) {
    uint32_t n = pattern->n_names;
    if (n > path->n_names) return false;
    const part *last = n ? &pattern->names[n - 1] : NULL;
    bool below = last && last->n == 2 && memcmp(last->text, "**", 2) == 0;
    if (!below) return match_from(pattern, n, path, path->n_names - n);
    for (uint32_t skip = 0; skip + n <= path->n_names; skip++)
        if (match_from(pattern, n - 1, path, skip)) return true;
    return false;
}

static bool match_turn(const part *pattern, const part *path, bool any) {
    if (!same_text(pattern, path)) return false;
    return pattern->turn == DS_ANY_TURN || pattern->turn == path->turn ||
           (any && path->turn == DS_ANY_TURN);
}

/* Matches the pattern's loops from the inside out, each to the innermost loop that remains. */
static bool match_loops(const parts *pattern, const parts *path, const ds_path_loop *const *kept,
                        const ds_path_loop **innermost) {
    uint32_t at = path->n_loops;
    for (uint32_t i = pattern->n_loops; i-- > 0;) {
        const part *wanted = &pattern->loops[i];
        while (at && !match_turn(wanted, &path->loops[at - 1], innermost != NULL)) at--;
        if (!at) return false;
        at--;
        if (innermost && !*innermost && wanted->turn != DS_ANY_TURN) *innermost = kept[at];
    }
    return true;
}

static bool is_end(char c) {
    return c == '.' || c == '/';
}

/* Plain characters at the end are the same: most patterns of a list end otherwise than the name. */
static bool ends_alike(const char *pattern, const char *name) {
    size_t p = strlen(pattern), n = strlen(name);
    if (p && is_end(pattern[p - 1])) return true;
    while (p && n) {
        char a = pattern[--p], b = name[--n];
        if (strchr("*?]", a) || b == ']' || (is_end(a) && p && is_end(pattern[p - 1]))) return true;
        if (is_end(a) != is_end(b) || (!is_end(a) && a != b)) return false;
    }
    return true;
}

bool ds_path_match(const char *pattern, const char *func, const ds_path_loop *loops,
                   const char *name, const ds_path_loop **innermost) {
    parts wanted, path;
    const ds_path_loop *kept[MAX_PARTS];
    uint32_t n = 0;
    wanted.n_names = wanted.n_loops = path.n_names = path.n_loops = 0;
    if (innermost) *innermost = NULL;
    if (!ends_alike(pattern, name)) return false;
    split_path(pattern, &wanted);
    add_part(&path, func, strlen(func));
    for (const ds_path_loop *at = loops; at && n < MAX_PARTS; at = at->up) n++;
    path.n_loops = n;
    for (const ds_path_loop *at = loops; n; at = at->up) {
        kept[--n] = at;
        path.loops[n] =
            (part){.text = at->name, .n = strlen(at->name), .loop = true, .turn = at->turn};
    }
    /* Turns in the name belong to unrolled loops, which are outside of every kept loop. */
    parts own;
    own.n_names = own.n_loops = 0;
    split_path(name, &own);
    if (own.n_loops + path.n_loops > MAX_PARTS || own.n_names + 1 > MAX_PARTS) return false;
    memmove(path.loops + own.n_loops, path.loops, path.n_loops * sizeof *path.loops);
    memmove(kept + own.n_loops, kept, path.n_loops * sizeof *kept);
    memcpy(path.loops, own.loops, own.n_loops * sizeof *own.loops);
    for (uint32_t i = 0; i < own.n_loops; i++) kept[i] = NULL;
    path.n_loops += own.n_loops;
    memcpy(path.names + 1, own.names, own.n_names * sizeof *own.names);
    path.n_names = own.n_names + 1;
    return match_names(&wanted, &path) && match_loops(&wanted, &path, kept, innermost);
}

static const char *name_attr(const ds_func *func, const ds_op *op) {
    return ds_attr_text(&func->module->unit->exprs, ds_attr_find(op->attrs, op->n_attrs, "name"));
}

const char *ds_path_op_name(const ds_func *func, const ds_op *op) {
    const char *name = name_attr(func, op);
    if (name) return name;
    return op->n_out ? ds_value_at(func, op->out[0])->name : ds_op_name(op->code);
}

/* The ends of names that backward rules give (grad/vjp*.c). */
bool ds_path_is_gradient(const char *end) {
    static const char *const ends[] = {"dx", "dw",  "da",  "db",  "dy",  "dq",     "dk",
                                       "dv", "dh0", "dc0", "dwx", "dwh", "dscale", "dshift"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (strcmp(end, ends[i]) == 0) return true;
    return end[0] == 'd' && end[1] && strspn(end + 1, "0123456789") == strlen(end + 1);
}

bool ds_path_names_gradient(const char *pattern) {
    size_t n = strlen(pattern);
    while (n && !strchr("./", pattern[n - 1])) n--;
    return ds_path_is_gradient(pattern + n);
}

const char *ds_path_loop_name(const ds_func *func, const ds_op *loop) {
    const char *name = name_attr(func, loop);
    return name ? name : loop->index;
}
