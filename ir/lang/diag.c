/* Diagnostics as text:
 *
 *     scenarios/mlp.dir:12:8: error: unknown op 'matmull'; did you mean 'matmul'?
 *       12 |   %z = matmull(%h, %w)
 *          |        ^^^^^^^
 *
 * Tabs become four blanks, control bytes and bytes that are no UTF-8 become '?', and of a long line
 * only a window around the place is shown. */
#include "ir/lang/lang.h"

#include <string.h>

#define LINE_SHOWN 160u /* bytes of a long line that are shown */
#define TAB_SHOWN  "    "

static const ds_module *find_module(const ds_unit *unit, const char *file) {
    for (uint32_t k = 0; unit && file && k < unit->modules.n; k++)
        if (strcmp(unit->modules.at[k]->path, file) == 0) return unit->modules.at[k];
    return NULL;
}

/* The bytes of a line, without its end; false if the text has no such line. O(text). */
static bool find_line(const ds_module *module, uint32_t line, const char **start, size_t *n) {
    if (!module->text) return false;
    const char *at = module->text, *end = at + module->text_n;
    for (uint32_t k = 1; k < line; k++) {
        at = at < end ? memchr(at, '\n', (size_t)(end - at)) : NULL;
        if (!at) return false;
        at++;
    }
    const char *stop = at < end ? memchr(at, '\n', (size_t)(end - at)) : NULL;
    if (!stop) stop = end;
    if (stop > at && stop[-1] == '\r') stop--;
    *start = at;
    *n = (size_t)(stop - at);
    return true;
}

static bool is_continuation(char c) {
    return ((unsigned char)c & 0xC0) == 0x80;
}

/* Bytes of the UTF-8 sequence at `text`, or 0 if it is none. */
static size_t utf8_length(const char *text, size_t n) {
    unsigned char c = (unsigned char)text[0];
    size_t length = c < 0x80                ? 1
                    : c >= 0xC2 && c < 0xE0 ? 2
                    : c >= 0xE0 && c < 0xF0 ? 3
                    : c >= 0xF0 && c < 0xF5 ? 4
                                            : 0;
    if (length > n) return 0;
    for (size_t k = 1; k < length; k++)
        if (!is_continuation(text[k])) return 0;
    return length;
}

/* Copies one character in its printable form; returns the bytes read, adds its columns. */
static size_t put_clean(const char *text, size_t n, ds_buf *out, size_t *columns) {
    size_t length = utf8_length(text, n);
    if (text[0] == '\t') {
        ds_buf_put(out, TAB_SHOWN);
        *columns += sizeof TAB_SHOWN - 1;
        return 1;
    }
    *columns += 1;
    bool control = (unsigned char)text[0] < ' ' || text[0] == 0x7f;
    if (length == 0 || control) {
        ds_buf_putc(out, '?');
        return 1;
    }
    ds_buf_put_n(out, text, length);
    return length;
}

static void put_repeated(ds_buf *out, char c, size_t n) {
    while (n--) ds_buf_putc(out, c);
}

/* The part of a line that is shown: [from, to). */
static void choose_window(const char *line, size_t n, size_t col, size_t *from, size_t *to) {
    *from = 0;
    *to = n;
    if (n <= LINE_SHOWN) return;
    *from = col > LINE_SHOWN / 2 ? col - LINE_SHOWN / 2 : 0;
    if (*from > n - LINE_SHOWN) *from = n - LINE_SHOWN;
    *to = *from + LINE_SHOWN;
    while (*from > 0 && *from < n && is_continuation(line[*from])) (*from)--;
}

static void put_source(const char *line, size_t n, ds_loc loc, ds_buf *out) {
    size_t from, to, col = loc.col ? loc.col - 1 : 0, before = 0, under = 0, after = 0;
    choose_window(line, n, col, &from, &to);
    size_t stop = col + (loc.len ? loc.len : 1);
    ds_buf_printf(out, "%4u | ", loc.line);
    if (from > 0) {
        ds_buf_put(out, "...");
        before += 3;
    }
    for (size_t at = from; at < to;)
        at += put_clean(line + at, to - at, out, at < col ? &before : at < stop ? &under : &after);
    if (to < n) ds_buf_put(out, "...");
    ds_buf_put(out, "\n     | ");
    put_repeated(out, ' ', before);
    put_repeated(out, '^', under ? under : 1);
    ds_buf_putc(out, '\n');
}

/* Messages quote source text, which may hold anything. */
static void put_message(const char *text, ds_buf *out) {
    size_t n = strlen(text), columns = 0;
    for (size_t at = 0; at < n;) {
        if (text[at] == '\n') {
            ds_buf_putc(out, text[at++]);
            continue;
        }
        at += put_clean(text + at, n - at, out, &columns);
    }
}

static void print(const ds_unit *unit, const char *severity, ds_loc loc, const char *message,
                  const char *hint, ds_buf *out) {
    if (loc.file && loc.line)
        ds_buf_printf(out, "%s:%u:%u: ", loc.file, loc.line, loc.col);
    else if (loc.file)
        ds_buf_printf(out, "%s: ", loc.file);
    ds_buf_printf(out, "%s: ", severity);
    put_message(message, out);
    ds_buf_putc(out, '\n');
    const ds_module *module = find_module(unit, loc.file);
    const char *line;
    size_t n;
    if (module && loc.line && find_line(module, loc.line, &line, &n)) put_source(line, n, loc, out);
    if (!hint) return;
    ds_buf_put(out, "     = hint: ");
    put_message(hint, out);
    ds_buf_putc(out, '\n');
}

void ds_diag_print(const ds_unit *unit, const ds_diag *diag, ds_buf *out) {
    print(unit, diag->severity == DS_SEV_WARNING ? "warning" : "error", diag->loc, diag->message,
          diag->hint, out);
}

void ds_error_print(const ds_unit *unit, const ds_error *err, ds_buf *out) {
    print(unit, "error", ds_error_loc(err), err->message, NULL, out);
}
