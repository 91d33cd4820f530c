/* Lessons: their folders, and the file `check`. */
#include "ir/base/file.h"
#include "ir/lang/library.h"
#include "tools/cli/lesson/lesson.h"

#include <ctype.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 1 << 20 }; /* of a page or a check; assumed: none is longer */

/* ---- folders ---- */

typedef struct finding {
    ds_arena *arena;
    lesson_folders *out;
} finding;

static int has_number(const struct dirent *entry) {
    return isdigit((unsigned char)entry->d_name[0]) && strchr(entry->d_name, '-');
}

const char *lesson_name(const char *folder) {
    const char *slash = strrchr(folder, '/');
    return slash ? slash + 1 : folder;
}

/* The first folder of a name counts, as with imports. */
static bool visit(void *context, const char *root, size_t n) {
    finding *f = context;
    struct dirent **entries;
    const char *folder = ds_arena_printf(f->arena, "%.*s/lessons", (int)n, root);
    int found = scandir(folder, &entries, has_number, alphasort);
    for (int i = 0; i < found; i++) {
        bool known = false;
        for (uint32_t k = 0; k < f->out->n; k++)
            known = known || strcmp(lesson_name(f->out->at[k]), entries[i]->d_name) == 0;
        if (!known)
            DS_PUSH(f->arena, f->out,
                    ds_arena_printf(f->arena, "%s/%s", folder, entries[i]->d_name));
        free(entries[i]);
    }
    if (found >= 0) free(entries);
    return false;
}

static int by_name(const void *a, const void *b) {
    return strcmp(lesson_name(*(const char *const *)a), lesson_name(*(const char *const *)b));
}

void lesson_list(const cli_options *options, ds_arena *arena, lesson_folders *out) {
    finding f = {arena, out};
    ds_load_options where = cli_load_options(options);
    ds_library_folders(&where, visit, &f);
    if (out->n) qsort(out->at, out->n, sizeof *out->at, by_name);
}

const char *lesson_find(const lesson_folders *folders, const char *name) {
    char *end;
    unsigned long number = strtoul(name, &end, 10);
    bool is_number = end != name && !*end;
    for (uint32_t i = 0; i < folders->n; i++) {
        const char *own = lesson_name(folders->at[i]), *dash = strchr(own, '-');
        if (is_number && strtoul(own, NULL, 10) == number) return folders->at[i];
        if (strcmp(own, name) == 0 || strcmp(dash + 1, name) == 0) return folders->at[i];
    }
    return NULL;
}

const char *lesson_file(lesson *l, const char *name) {
    return ds_arena_printf(&l->arena, "%s/%s", l->folder, name);
}

/* ---- check ---- */

typedef struct reader {
    lesson *l;
    const char *path;
    uint32_t line;
    lesson_entry *entry; /* that indented lines belong to; NULL: none */
    ds_error *err;
} reader;

static ds_status refuse(const reader *r, const char *why, const char *what) {
    return ds_error_set(r->err, DS_ERR_SYNTAX, DS_NOWHERE, "%s:%u: %s: '%s'", r->path, r->line, why,
                        what);
}

/* `old` => `new` */
static ds_status read_edit(reader *r, const char *text, lesson_change *change) {
    const char *ends[3], *at = text;
    for (int i = 0; i < 3; i++) {
        ends[i] = strchr(at + 1, '`');
        if (!ends[i]) return refuse(r, "a change is `old` => `new`", text);
        at = ends[i];
    }
    lesson_edit edit = {
        ds_arena_strndup(&r->l->arena, text + 1, (size_t)(ends[0] - text - 1)),
        ds_arena_strndup(&r->l->arena, ends[1] + 1, (size_t)(ends[2] - ends[1] - 1))};
    if (!*edit.old || strncmp(ends[0], "` => `", 6) != 0 || ends[2][1])
        return refuse(r, "a change is `old` => `new`", text);
    DS_PUSH(&r->l->arena, &change->edits, edit);
    return DS_OK;
}

/* PATH=VALUE PATH=VALUE */
static ds_status read_settings(reader *r, const char *text, lesson_change *change) {
    for (const char *at = text; *at; at += strspn(at, " ")) {
        size_t n = strcspn(at, " "), path = strcspn(at, "= ");
        if (path >= n || !path)
            return refuse(r, "a change is PARAM=VALUE, or `old` => `new`", text);
        ds_setting setting = {ds_arena_strndup(&r->l->arena, at, path),
                              ds_arena_strndup(&r->l->arena, at + path + 1, n - path - 1)};
        DS_PUSH(&r->l->arena, &change->settings, setting);
        at += n;
    }
    return DS_OK;
}

static ds_status read_try(reader *r, const char *text) {
    if (strcmp(text, "start") == 0) {
        r->entry->is_start = true;
        return DS_OK;
    }
    if (!r->entry->change) r->entry->change = DS_NEW(&r->l->arena, lesson_change);
    return *text == '`' ? read_edit(r, text, r->entry->change)
                        : read_settings(r, text, r->entry->change);
}

static ds_status read_indented(reader *r, const char *text) {
    if (!r->entry) return refuse(r, "an indented line belongs to an entry above", text);
    if (strncmp(text, "try ", 4) == 0) return read_try(r, text + 4);
    if (strncmp(text, "show ", 5) == 0) {
        r->entry->show = text + 5;
        return DS_OK;
    }
    const char *before = r->entry->text;
    r->entry->text = *before ? ds_arena_printf(&r->l->arena, "%s\n%s", before, text) : text;
    return DS_OK;
}

static ds_status read_entry(reader *r, const char *line) {
    static const char *const words[] = {"require", "law", "when", "equal",
                                        "hint"}; /* lesson_kind */
    size_t n = strcspn(line, " ");
    const char *rest = line + n + strspn(line + n, " ");
    r->entry = NULL;
    for (size_t k = 0; k < sizeof words / sizeof *words; k++) {
        if (strlen(words[k]) != n || strncmp(line, words[k], n) != 0) continue;
        if (k == LESSON_HINT && *rest) return refuse(r, "a hint's text is indented below", line);
        if (k != LESSON_HINT && !*rest) return refuse(r, "the entry says nothing", line);
        lesson_entry entry = {.kind = (lesson_kind)k, .head = rest, .text = ""};
        entry.place = ds_arena_printf(&r->l->arena, "%s:%u", r->path, r->line);
        DS_PUSH(&r->l->arena, &r->l->entries, entry);
        r->entry = &r->l->entries.at[r->l->entries.n - 1];
        return DS_OK;
    }
    if (*rest && strncmp(line, "open ", 5) == 0)
        DS_PUSH(&r->l->arena, &r->l->open, rest);
    else if (*rest && strncmp(line, "best ", 5) == 0)
        r->l->best = rest;
    else
        return refuse(r, "neither open, best, require, law, when, equal nor hint", line);
    return DS_OK;
}

static ds_status read_line(reader *r, const char *line) {
    const char *text = line + strspn(line, " ");
    if (!*text || strncmp(line, "//", 2) == 0) return DS_OK;
    return text > line ? read_indented(r, text) : read_entry(r, line);
}

static ds_status read_text(lesson *l, const char *path, const char **out, ds_error *err) {
    ds_buf text = {0};
    ds_status status = ds_file_read(path, DS_NOWHERE, MOST_BYTES, &text, err);
    *out = ds_arena_strndup(&l->arena, text.text ? text.text : "", text.n);
    ds_buf_deinit(&text);
    return status;
}

static ds_status read_check(lesson *l, ds_error *err) {
    reader r = {.l = l, .path = lesson_file(l, "check"), .err = err};
    const char *text;
    DS_TRY(read_text(l, r.path, &text, err));
    while (*text) {
        size_t n = strcspn(text, "\n"), end = n;
        while (end && isspace((unsigned char)text[end - 1])) end--;
        r.line++;
        DS_TRY(read_line(&r, ds_arena_strndup(&l->arena, text, end)));
        text += n + (text[n] == '\n');
    }
    return DS_OK;
}

ds_status lesson_read(const char *folder, lesson *out, ds_error *err) {
    *out = (lesson){.best = "step_time"};
    ds_arena_init(&out->arena);
    out->folder = ds_arena_strdup(&out->arena, folder);
    out->name = lesson_name(out->folder);
    out->number = (uint32_t)strtoul(out->name, NULL, 10);
    DS_TRY(read_text(out, lesson_file(out, "lesson.md"), &out->page, err));
    const char *title = out->page + strspn(out->page, "# ");
    out->title = ds_arena_strndup(&out->arena, title, strcspn(title, "\n"));
    return read_check(out, err);
}

void lesson_deinit(lesson *l) {
    ds_arena_deinit(&l->arena);
}
