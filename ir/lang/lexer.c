/* Text to tokens; see lexer.h. Every byte is looked at once or twice; any bytes are accepted inside
 * comments and strings except NUL and, in strings, line ends. */
#include "ir/lang/lexer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ds_lexer_init(ds_lexer *lexer, ds_unit *unit, const char *file, const char *text, size_t n) {
    *lexer = (ds_lexer){.unit = unit, .file = file, .line = 1};
    lexer->at = lexer->line_start = n ? text : "";
    lexer->end = lexer->at + n;
}

void ds_lexer_deinit(ds_lexer *lexer) {
    ds_buf_deinit(&lexer->scratch);
    free(lexer->comments.at);
    *lexer = (ds_lexer){0};
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}
static bool is_name_start(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
static bool is_name_char(char c) {
    return is_name_start(c) || is_digit(c);
}

static char peek(const ds_lexer *lexer, size_t ahead) {
    return (size_t)(lexer->end - lexer->at) > ahead ? lexer->at[ahead] : '\0';
}

/* Reads a comment up to the end of its line; the caller has seen "//". */
static void read_comment(ds_lexer *lexer, bool blank_before, bool same_line) {
    const char *start = lexer->at + 2;
    const char *stop = memchr(start, '\n', (size_t)(lexer->end - start));
    if (!stop) stop = lexer->end;
    lexer->at = stop;
    while (stop > start && (stop[-1] == ' ' || stop[-1] == '\t' || stop[-1] == '\r')) stop--;
    ds_comment comment = {
        .seq = lexer->seq + 1, .blank_before = blank_before, .same_line = same_line, .text = " "};
    if (stop > start)
        comment.text = ds_arena_strndup(&lexer->unit->arena, start, (size_t)(stop - start));
    DS_HPUSH(&lexer->comments, comment);
}

/* Skips blanks, line ends and comments; says what it skipped in the coming token. */
static void skip_trivia(ds_lexer *lexer, ds_token *token) {
    const char *start = lexer->at;
    uint32_t newlines = 0;
    for (;;) {
        char c = peek(lexer, 0);
        if (c == '\n') {
            lexer->at++;
            lexer->line++;
            lexer->line_start = lexer->at;
            newlines++;
            token->starts_line = true;
        } else if (c == ' ' || c == '\t' || c == '\r') {
            lexer->at++;
        } else if (c == '/' && peek(lexer, 1) == '/') {
            read_comment(lexer, newlines > 1, !token->starts_line && lexer->seq > 0);
            newlines = 0;
        } else {
            break;
        }
    }
    token->blank_before = newlines > 1;
    token->glued = lexer->at == start;
}

static ds_token finish_token(ds_lexer *lexer, ds_token token, ds_token_kind kind, size_t n) {
    token.kind = kind;
    token.text = lexer->at;
    token.loc.len = n ? (uint32_t)n : 1;
    lexer->at += n;
    return token;
}

/* An ERROR token over n bytes; whatever follows is not read. */
static ds_token refuse(ds_lexer *lexer, ds_token token, size_t n, const char *format, int value) {
    if (!lexer->code) lexer->code = DS_ERR_SYNTAX;
    snprintf(lexer->message, sizeof lexer->message, format, value);
    token = finish_token(lexer, token, DS_TOK_ERROR, n);
    lexer->at = lexer->end;
    return token;
}

static size_t name_length(const ds_lexer *lexer, size_t from) {
    while (is_name_char(peek(lexer, from))) from++;
    return from;
}

/* Value names may hold dots, as passes derive them: %w.grad. */
static size_t value_length(const ds_lexer *lexer) {
    size_t n = name_length(lexer, 1);
    while (peek(lexer, n) == '.' && is_name_char(peek(lexer, n + 1))) n = name_length(lexer, n + 1);
    return n;
}

static ds_token named(ds_lexer *lexer, ds_token token, ds_token_kind kind, size_t skip, size_t n) {
    token.name = ds_intern_n(&lexer->unit->strings, lexer->at + skip, n - skip);
    return finish_token(lexer, token, kind, n);
}

static ds_token read_real(ds_lexer *lexer, ds_token token, size_t n) {
    token.name = ds_intern_n(&lexer->unit->strings, lexer->at, n);
    token.r = strtod(token.name, NULL);
    if (!isfinite(token.r))
        return refuse(lexer, token, n, "this number is beyond the range of a double", 0);
    return finish_token(lexer, token, DS_TOK_REAL, n);
}

static size_t digits(const ds_lexer *lexer, size_t from) {
    while (is_digit(peek(lexer, from))) from++;
    return from;
}

/* 12, 1.5, 1e-5; in `0..8` the dots are a range. */
static ds_token read_number(ds_lexer *lexer, ds_token token) {
    size_t n = digits(lexer, 0), whole = n;
    if (peek(lexer, n) == '.' && is_digit(peek(lexer, n + 1))) n = digits(lexer, n + 1);
    if (peek(lexer, n) == 'e' || peek(lexer, n) == 'E') {
        size_t sign = peek(lexer, n + 1) == '-' || peek(lexer, n + 1) == '+' ? 1 : 0;
        if (is_digit(peek(lexer, n + 1 + sign))) n = digits(lexer, n + 1 + sign);
    }
    if (n > whole) return read_real(lexer, token, n);
    for (size_t k = 0; k < n; k++) {
        int64_t digit = lexer->at[k] - '0';
        if (token.i > (INT64_MAX - digit) / 10) {
            lexer->code = DS_ERR_OVERFLOW;
            return refuse(lexer, token, n, "this integer is beyond 64 bits (at most 2^63 - 1)", 0);
        }
        token.i = token.i * 10 + digit;
    }
    return finish_token(lexer, token, DS_TOK_INT, n);
}

static ds_token read_string(ds_lexer *lexer, ds_token token) {
    lexer->scratch.n = 0;
    for (size_t n = 1;; n++) {
        char c = peek(lexer, n);
        if (lexer->at + n >= lexer->end || c == '\n')
            return refuse(lexer, token, n, "this string has no closing '\"' on its line", 0);
        if (c == '"') {
            token.name = ds_intern_n(&lexer->unit->strings,
                                     lexer->scratch.n ? lexer->scratch.text : "", lexer->scratch.n);
            return finish_token(lexer, token, DS_TOK_STRING, n + 1);
        }
        if (c == '\\') {
            c = peek(lexer, ++n);
            if (c == 'n')
                c = '\n';
            else if (c == 't')
                c = '\t';
            else if (c != '"' && c != '\\')
                return refuse(lexer, token, n,
                              "unknown escape in a string: \\\\, \\\", \\n and \\t are known", 0);
        }
        ds_buf_putc(&lexer->scratch, c);
    }
}

static ds_token read_punctuation(ds_lexer *lexer, ds_token token) {
    static const struct {
        ds_token_kind kind;
        const char *text;
    } map[] = {
#define DS_X(name, text) {DS_TOK_##name, text},
        DS_PUNCT_MAP(DS_X)
#undef DS_X
    };
    for (size_t k = 0; k < sizeof map / sizeof map[0]; k++) {
        const char *text = map[k].text;
        if (text[0] != peek(lexer, 0) || (text[1] && text[1] != peek(lexer, 1))) continue;
        return finish_token(lexer, token, map[k].kind, text[1] ? 2 : 1);
    }
    static const struct {
        char c;
        const char *fix;
    } habits[] = {{'#', "'#' begins no comment; write '//'"},
                  {'\'', "a text needs double quotes; write \"...\""},
                  {'`', "a text needs double quotes; write \"...\""},
                  {'$', "a param is written without '$'"},
                  {'^', "a power is written as a product; write a * a"},
                  {'|', "write 'or'"}};
    char c = lexer->at[0];
    for (size_t k = 0; k < sizeof habits / sizeof *habits; k++)
        if (c == habits[k].c) return refuse(lexer, token, 1, habits[k].fix, 0);
    if (c > ' ' && c < 0x7f) return refuse(lexer, token, 1, "unexpected character '%c'", c);
    return refuse(lexer, token, 1, "unexpected byte 0x%02x", (unsigned char)c);
}

/* Is the `%` at the cursor the remainder operator, being glued to an operand's end? */
static bool is_remainder(const ds_lexer *lexer, const ds_token *token) {
    if (!token->glued || lexer->seq == 1) return false;
    return is_name_char(lexer->at[-1]) || lexer->at[-1] == ')';
}

ds_token ds_lexer_next(ds_lexer *lexer) {
    ds_token token = {0};
    skip_trivia(lexer, &token);
    token.seq = ++lexer->seq;
    token.loc = (ds_loc){.file = lexer->file,
                         .line = lexer->line,
                         .col = (uint32_t)(lexer->at - lexer->line_start) + 1};
    if (lexer->code) return finish_token(lexer, token, DS_TOK_ERROR, 0);
    if (lexer->at == lexer->end) return finish_token(lexer, token, DS_TOK_EOF, 0);

    char c = lexer->at[0];
    if (is_name_start(c)) return named(lexer, token, DS_TOK_NAME, 0, name_length(lexer, 1));
    if (is_digit(c)) return read_number(lexer, token);
    if (c == '"') return read_string(lexer, token);
    if (c == '/' && peek(lexer, 1) == '*')
        return refuse(lexer, token, 2, "a comment begins with '//' and ends with its line", 0);
    if (c == '@' && is_name_start(peek(lexer, 1)))
        return named(lexer, token, DS_TOK_SYMBOL, 1, name_length(lexer, 1));
    if (c == '%' && is_name_char(peek(lexer, 1)) && !is_remainder(lexer, &token))
        return named(lexer, token, DS_TOK_VALUE, 1, value_length(lexer));
    return read_punctuation(lexer, token);
}

const char *ds_token_kind_text(ds_token_kind kind) {
    switch (kind) {
    case DS_TOK_EOF:
        return "the end of the file";
    case DS_TOK_ERROR:
        return "an error";
    case DS_TOK_NAME:
        return "a name";
    case DS_TOK_VALUE:
        return "a value like %x";
    case DS_TOK_SYMBOL:
        return "a name like @main";
    case DS_TOK_INT:
        return "an integer";
    case DS_TOK_REAL:
        return "a number";
    case DS_TOK_STRING:
        return "a string";
#define DS_X(name, text)                                                                           \
    case DS_TOK_##name:                                                                            \
        return "'" text "'";
        DS_PUNCT_MAP(DS_X)
#undef DS_X
    }
    return "?";
}
