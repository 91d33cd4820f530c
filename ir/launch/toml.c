/* TOML as configuration files of training frameworks use it: tables, dotted keys, strings, numbers,
 * flags, lists. No C library of Debian reads TOML. Dates, inline tables, lists of tables and
 * multi-line strings are refused with their line. */
#include "ir/launch/internal.h"

#include <ctype.h>
#include <string.h>

typedef struct toml {
    const char *at;
    uint32_t line;
    const char *table; /* "parallelism." */
    ds_args *args;
    ds_arena *arena;
    ds_error *err;
} toml;

static ds_status wrong(const toml *t, const char *what) {
    return ds_error_set(t->err, DS_ERR_SYNTAX, (ds_loc){.line = t->line, .col = 1, .len = 1}, "%s",
                        what);
}

/* Blanks and comments; with `lines`, ends of lines too. */
static void blanks(toml *t, bool lines) {
    for (;; t->at++) {
        if (*t->at == '#')
            while (t->at[1] && t->at[1] != '\n') t->at++;
        else if (*t->at == '\n' && lines)
            t->line++;
        else if (*t->at != ' ' && *t->at != '\t' && *t->at != '\r')
            return;
    }
}

static ds_status quoted(toml *t, ds_buf *out) {
    char quote = *t->at++;
    if (t->at[0] == quote && t->at[1] == quote) return wrong(t, "a string of several lines");
    for (; *t->at != quote; t->at++) {
        if (!*t->at || *t->at == '\n') return wrong(t, "a string without an end");
        if (quote == '"' && *t->at == '\\') {
            t->at++;
            if (!*t->at || !strchr("\"\\", *t->at)) return wrong(t, "an escape in a string");
        }
        ds_buf_putc(out, *t->at);
    }
    t->at++;
    return DS_OK;
}

static bool is_bare(char c) {
    return c == '_' || c == '-' || isalnum((unsigned char)c);
}

/* `a."b".c`, appended with points between. */
static ds_status key(toml *t, ds_buf *out) {
    for (;;) {
        blanks(t, false);
        if (*t->at == '"' || *t->at == '\'') {
            DS_TRY(quoted(t, out));
        } else {
            if (!is_bare(*t->at)) return wrong(t, "a key is missing");
            while (is_bare(*t->at)) ds_buf_putc(out, *t->at++);
        }
        blanks(t, false);
        if (*t->at != '.') return DS_OK;
        ds_buf_putc(out, *t->at++);
    }
}

static ds_status value(toml *t, ds_buf *out, uint32_t depth);

/* Items with commas between, without brackets. */
static ds_status items(toml *t, ds_buf *out, uint32_t depth) {
    t->at++;
    for (bool first = true;; first = false) {
        blanks(t, true);
        if (*t->at == ']') break;
        if (!first) ds_buf_putc(out, ',');
        DS_TRY(value(t, out, depth + 1));
        blanks(t, true);
        if (*t->at == ',')
            t->at++;
        else if (*t->at != ']')
            return wrong(t, "a list without an end");
    }
    t->at++;
    return DS_OK;
}

static ds_status value(toml *t, ds_buf *out, uint32_t depth) {
    if (depth > 8) return wrong(t, "lists more than 8 deep");
    if (*t->at == '"' || *t->at == '\'') return quoted(t, out);
    if (*t->at == '[') return items(t, out, depth);
    const char *from = t->at;
    while (is_bare(*t->at) || *t->at == '+' || *t->at == '.') {
        if (*t->at != '_') ds_buf_putc(out, *t->at);
        t->at++;
    }
    return t->at == from ? wrong(t, "a value is missing, or of a kind that is not read") : DS_OK;
}

static ds_status end_of_line(toml *t) {
    blanks(t, false);
    return *t->at && *t->at != '\n' ? wrong(t, "more than a key and a value") : DS_OK;
}

static const char *kept(toml *t, const char *prefix, const ds_buf *buf, const char *suffix) {
    return ds_arena_printf(t->arena, "%s%s%s", prefix, buf->text ? buf->text : "", suffix);
}

static ds_status read_line(toml *t, ds_buf *name, ds_buf *text) {
    if (*t->at == '[') {
        t->at++;
        if (*t->at == '[') return wrong(t, "a list of tables");
        DS_TRY(key(t, name));
        if (*t->at++ != ']') return wrong(t, "']' is missing");
        t->table = kept(t, "", name, ".");
        return end_of_line(t);
    }
    uint32_t line = t->line;
    DS_TRY(key(t, name));
    if (*t->at++ != '=') return wrong(t, "'=' is missing");
    blanks(t, false);
    DS_TRY(value(t, text, 0));
    DS_TRY(end_of_line(t));
    return ds_args__say(t->args, kept(t, t->table, name, ""), kept(t, "", text, ""), line, t->err);
}

ds_status ds_launch__toml(ds_args *args, const char *text, ds_error *err) {
    toml t = {
        .at = text, .line = 1, .table = "", .args = args, .arena = args->launch->arena, .err = err};
    for (blanks(&t, true); *t.at; blanks(&t, true)) {
        ds_buf name = {0}, item = {0};
        ds_status status = read_line(&t, &name, &item);
        ds_buf_deinit(&name);
        ds_buf_deinit(&item);
        DS_TRY(status);
    }
    return DS_OK;
}
