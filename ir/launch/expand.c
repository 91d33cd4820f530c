/* Words of a shell script: quotes, variables, arrays, defaults, integer arithmetic.
 *
 * A word becomes fields, as in bash: an expansion outside of quotes is split at blanks, "${A[@]}"
 * gives a field an item. A part that only a running script knows ($1, $(date), a variable that the
 * environment gives) stands between the bytes DS_UNKNOWN and DS_UNKNOWN_END. */
#include "ir/launch/shell_internal.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The word that is built. */
typedef struct word {
    sh *s;
    sh_fields *fields;
    ds_buf text;
    bool is_open; /* a field has begun, "" included */
} word;

static const char *kept(sh *s, const ds_buf *buf) {
    return ds_arena_strndup(s->arena, buf->text ? buf->text : "", buf->n);
}

static void close_field(sh *s, word *w) {
    if (!w->is_open) return;
    DS_PUSH(s->arena, w->fields, kept(s, &w->text));
    w->text.n = 0;
    if (w->text.text) w->text.text[0] = 0;
    w->is_open = false;
}

/* A variable of itself twice doubles with each line: beyond the limit nothing is put. */
static void put(word *w, const char *text, size_t n) {
    w->s->bytes += n + 1;
    if (n && w->s->bytes <= SH_MAX_BYTES) ds_buf_put_n(&w->text, text, n);
    w->is_open = true;
}

static bool is_name(int c) {
    return c == '_' || isalnum(c);
}

bool ds_sh__ends_word(int c) {
    return c < 0 || strchr(" \t\r\n;&|()<>", c);
}

/* ---- variables ---- */

sh_var *ds_sh__find(sh *s, const char *name) {
    for (uint32_t i = 0; i < s->vars.n; i++)
        if (strcmp(s->vars.at[i].name, name) == 0) return &s->vars.at[i];
    return NULL;
}

void ds_sh__set(sh *s, const char *name, const char *const *items, uint32_t n, bool append,
                bool is_array) {
    sh_var *var = ds_sh__find(s, name);
    if (!var) {
        sh_var new = {.name = name};
        DS_PUSH(s->arena, &s->vars, new);
        var = &s->vars.at[s->vars.n - 1];
    }
    if (append && !is_array && var->n) {
        var->items[0] = ds_arena_join(s->arena, var->items[0], n ? items[0] : "");
        return;
    }
    uint32_t old = append ? var->n : 0;
    const char **all = DS_NEW_N(s->arena, const char *, old + n + 1);
    for (uint32_t i = 0; i < old; i++) all[i] = var->items[i];
    for (uint32_t i = 0; i < n; i++) all[old + i] = items[i];
    var->items = all;
    var->n = old + n;
}

/* `$NAME` as an unknown part; nothing in a test, where an unset variable is empty. Arguments of the
 * script ($1) are given when the script runs. */
static const char *unknown(sh *s, const char *text) {
    bool is_argument = text[0] == '$' && (isdigit((unsigned char)text[1]) || text[1] == '{' ||
                                          text[1] == '@' || text[1] == '*' || text[1] == '(');
    if (s->in_test && !is_argument) return "";
    return ds_arena_printf(s->arena, "%c%s%c", DS_UNKNOWN, text, DS_UNKNOWN_END);
}

static const char *value_of(sh *s, const char *name) {
    const sh_var *var = ds_sh__find(s, name);
    if (var) return var->n ? var->items[0] : "";
    return unknown(s, ds_arena_join(s->arena, "$", name));
}

/* ---- $… ---- */

/* The text up to the bracket that closes the one that was read; quotes hide brackets. */
static ds_status take_until(sh *s, char open, char close, const char **out) {
    size_t from = s->at;
    uint32_t depth = 1, line = s->line;
    char quote = 0;
    for (; s->at < s->n; s->at++) {
        char c = s->text[s->at];
        if (c == '\n') s->line++;
        if (c == '\\' && s->at + 1 < s->n) {
            s->at++;
            if (s->text[s->at] == '\n') s->line++;
        } else if (quote) {
            if (c == quote) quote = 0;
        } else if (c == '\'' || c == '"') {
            quote = c;
        } else if (c == close && --depth == 0) {
            *out = ds_arena_strndup(s->arena, s->text + from, s->at - from);
            s->at++;
            return DS_OK;
        } else if (c == open) {
            depth++;
        }
    }
    s->line = line;
    return ds_sh__error(s, DS_ERR_SYNTAX, "nothing closes '%c'", open);
}

/* Expands another text with the same variables, as one text. */
static ds_status expand_text(sh *s, const char *text, const char **out) {
    if (++s->depth > SH_MAX_DEPTH)
        return ds_sh__error(s, DS_ERR_LIMIT, "expansions more than %d deep", SH_MAX_DEPTH);
    sh inner = *s;
    ds_buf all = {0};
    inner.text = text;
    inner.n = strlen(text);
    inner.at = 0;
    ds_status status = DS_OK;
    while (inner.at < inner.n && status == DS_OK) {
        const char *part = "";
        size_t before = inner.at;
        if (ds_sh__ends_word((unsigned char)inner.text[inner.at]))
            ds_buf_putc(&all, inner.text[inner.at++]);
        else
            status = ds_sh__text(&inner, true, &part);
        ds_buf_put(&all, part);
        if (inner.at == before) inner.at++;
    }
    *out = kept(s, &all);
    ds_buf_deinit(&all);
    s->vars.at = inner.vars.at; /* ${X:=…} */
    s->vars.n = inner.vars.n;
    s->vars.cap = inner.vars.cap;
    s->steps = inner.steps;
    s->depth--;
    return status;
}

/* ${NAME:-word} and its like: `rest` is all behind the name. */
static ds_status with_operator(sh *s, const char *name, const char *rest, const char *whole,
                               const char **out) {
    const sh_var *var = ds_sh__find(s, name);
    bool colon = rest[0] == ':';
    char op = rest[colon];
    bool is_set = var && (!colon || (var->n && *var->items[0]));
    const char *other = "";
    if (!op || !strchr("-=+?", op)) {
        *out = unknown(s, whole);
        return DS_OK;
    }
    if (op == '+' ? is_set : !is_set) DS_TRY(expand_text(s, rest + colon + 1, &other));
    if (op == '+')
        *out = other;
    else if (is_set)
        *out = value_of(s, name);
    else
        *out = op == '?' ? unknown(s, whole) : other;
    if (op == '=' && !is_set) ds_sh__set(s, name, &other, 1, false, false);
    return DS_OK;
}

/* An array's items, each a field of its own. */
static void put_items(sh *s, word *w, const sh_var *var, bool quoted);

static void put_split(sh *s, word *w, const char *text) {
    bool hidden = false;
    for (const char *c = text; *c; c++) {
        if (*c == DS_UNKNOWN) hidden = true;
        if (*c == DS_UNKNOWN_END) hidden = false;
        if (!hidden && (*c == ' ' || *c == '\t' || *c == '\n'))
            close_field(s, w);
        else
            put(w, c, 1);
    }
}

static void put_items(sh *s, word *w, const sh_var *var, bool quoted) {
    for (uint32_t i = 0; i < var->n; i++) {
        if (i) close_field(s, w);
        if (quoted)
            put(w, var->items[i], strlen(var->items[i]));
        else
            put_split(s, w, var->items[i]);
    }
}

/* ${…}; the brace has been read. */
static ds_status braced(sh *s, word *w, bool quoted) {
    const char *inside, *value;
    DS_TRY(take_until(s, '{', '}', &inside));
    const char *whole = ds_arena_printf(s->arena, "${%.60s}", inside);
    bool counts = inside[0] == '#';
    size_t n = counts;
    while (is_name((unsigned char)inside[n])) n++;
    const char *name = ds_arena_strndup(s->arena, inside + counts, n - counts), *rest = inside + n;
    const sh_var *var = ds_sh__find(s, name);
    bool all = strcmp(rest, "[@]") == 0 || strcmp(rest, "[*]") == 0;
    if (all && !counts) {
        if (var) put_items(s, w, var, quoted);
        return DS_OK;
    }
    if (counts)
        value = all ? ds_arena_printf(s->arena, "%" PRIu32, var ? var->n : 0) : unknown(s, whole);
    else if (!*rest)
        value = value_of(s, name);
    else if (rest[0] == '[' && isdigit((unsigned char)rest[1]) && var &&
             (uint32_t)atoi(rest + 1) < var->n)
        value = var->items[atoi(rest + 1)];
    else
        DS_TRY(with_operator(s, name, rest, whole, &value));
    if (quoted)
        put(w, value, strlen(value));
    else
        put_split(s, w, value);
    return DS_OK;
}

/* $NAME, $1, $#; the dollar has been read. */
static const char *plain_variable(sh *s) {
    size_t from = s->at;
    int c = ds_sh__peek(s, 0);
    if (isdigit(c) || (c >= 0 && strchr("@*#?$!-", c))) {
        s->at++;
        const char *name = ds_arena_printf(s->arena, "$%c", c);
        return isdigit(c) || c == '@' || c == '*' || c == '#'
                   ? ds_arena_printf(s->arena, "%c%s%c", DS_UNKNOWN, name, DS_UNKNOWN_END)
                   : unknown(s, name);
    }
    while (is_name(ds_sh__peek(s, 0))) s->at++;
    if (s->at == from) return "$";
    return value_of(s, ds_arena_strndup(s->arena, s->text + from, s->at - from));
}

static ds_status dollar(sh *s, word *w, bool quoted) {
    const char *inside, *value;
    s->at++;
    if (ds_sh__peek(s, 0) == '{') {
        s->at++;
        return braced(s, w, quoted);
    }
    if (ds_sh__peek(s, 0) == '(') {
        bool counts = ds_sh__peek(s, 1) == '(';
        s->at++;
        DS_TRY(take_until(s, '(', ')', &inside));
        size_t n = strlen(inside);
        if (counts && n >= 2 && inside[n - 1] == ')')
            DS_TRY(ds_sh__arithmetic(s, ds_arena_strndup(s->arena, inside + 1, n - 2), &value));
        else
            value = ds_arena_printf(s->arena, "%c$(%.60s)%c", DS_UNKNOWN, inside, DS_UNKNOWN_END);
        quoted = quoted || value[0] == DS_UNKNOWN;
    } else {
        value = plain_variable(s);
    }
    if (quoted)
        put(w, value, strlen(value));
    else
        put_split(s, w, value);
    return DS_OK;
}

static ds_status backquoted(sh *s, word *w) {
    size_t from = ++s->at;
    while (s->at < s->n && s->text[s->at] != '`') {
        if (s->text[s->at] == '\n') s->line++;
        s->at++;
    }
    if (s->at == s->n) return ds_sh__error(s, DS_ERR_SYNTAX, "nothing closes '`'");
    const char *text = ds_arena_strndup(s->arena, s->text + from, s->at++ - from);
    const char *value = ds_arena_printf(s->arena, "%c`%.60s`%c", DS_UNKNOWN, text, DS_UNKNOWN_END);
    put(w, value, strlen(value));
    return DS_OK;
}

/* ---- words ---- */

static ds_status double_quoted(sh *s, word *w) {
    uint32_t line = s->line;
    s->at++;
    w->is_open = w->is_open || !(ds_sh__peek(s, 0) == '$' && ds_sh__peek(s, 1) == '{');
    for (int c; (c = ds_sh__peek(s, 0)) != '"';) {
        if (c < 0) {
            s->line = line;
            return ds_sh__error(s, DS_ERR_SYNTAX, "nothing closes '\"'");
        }
        if (c == '$') {
            DS_TRY(dollar(s, w, true));
        } else if (c == '`') {
            DS_TRY(backquoted(s, w));
        } else {
            if (c == '\\' && ds_sh__peek(s, 1) >= 0 && strchr("$`\"\\\n", ds_sh__peek(s, 1)))
                s->at++;
            c = ds_sh__peek(s, 0);
            if (c == '\n') s->line++;
            if (c != '\n' || s->text[s->at - 1] != '\\') put(w, s->text + s->at, 1);
            s->at++;
        }
    }
    s->at++;
    return DS_OK;
}

static ds_status single_quoted(sh *s, word *w) {
    size_t from = ++s->at;
    uint32_t line = s->line;
    while (s->at < s->n && s->text[s->at] != '\'') {
        if (s->text[s->at] == '\n') s->line++;
        s->at++;
    }
    if (s->at == s->n) {
        s->line = line;
        return ds_sh__error(s, DS_ERR_SYNTAX, "nothing closes \"'\"");
    }
    put(w, s->text + from, s->at++ - from);
    return DS_OK;
}

static ds_status word_parts(sh *s, word *w) {
    for (int c; !ds_sh__ends_word(c = ds_sh__peek(s, 0));) {
        if (c == '\'') {
            DS_TRY(single_quoted(s, w));
        } else if (c == '"') {
            DS_TRY(double_quoted(s, w));
        } else if (c == '$') {
            DS_TRY(dollar(s, w, false));
        } else if (c == '`') {
            DS_TRY(backquoted(s, w));
        } else if (c == '\\') {
            s->at++;
            if (ds_sh__peek(s, 0) == '\n')
                s->line++;
            else if (s->at < s->n)
                put(w, s->text + s->at, 1);
            if (s->at < s->n) s->at++;
        } else {
            if (c != DS_UNKNOWN && c != DS_UNKNOWN_END) put(w, s->text + s->at, 1);
            s->at++;
        }
    }
    return DS_OK;
}

ds_status ds_sh__word(sh *s, bool run, sh_fields *fields) {
    sh_fields none = {0};
    word w = {.s = s, .fields = run ? fields : &none};
    if (++s->steps > SH_MAX_STEPS)
        return ds_sh__error(s, DS_ERR_LIMIT, "a script of more than %d words", SH_MAX_STEPS);
    ds_status status = word_parts(s, &w);
    if (status == DS_OK && s->bytes > SH_MAX_BYTES)
        status = ds_sh__error(s, DS_ERR_LIMIT, "words of more than %d MiB", SH_MAX_BYTES >> 20);
    if (status == DS_OK) close_field(s, &w);
    ds_buf_deinit(&w.text);
    return status;
}

ds_status ds_sh__text(sh *s, bool run, const char **out) {
    sh_fields fields = {0};
    ds_buf all = {0};
    ds_status status = ds_sh__word(s, run, &fields);
    for (uint32_t i = 0; i < fields.n; i++) {
        if (i) ds_buf_putc(&all, ' ');
        ds_buf_put(&all, fields.at[i]);
    }
    *out = kept(s, &all);
    ds_buf_deinit(&all);
    return status;
}

/* ---- $((…)) ---- */

typedef struct sum {
    sh *s;
    const char *at;
    uint32_t depth;
    bool is_unknown, is_wrong;
} sum;

static int64_t ternary(sum *e);

static void blanks(sum *e) {
    while (isspace((unsigned char)*e->at)) e->at++;
}

static bool take(sum *e, const char *op) {
    size_t n = strlen(op);
    blanks(e);
    if (strncmp(e->at, op, n) != 0) return false;
    if (n == 1 && strchr("<>=&|!", *op) && strchr("=&|", e->at[1]) && e->at[1]) return false;
    e->at += n;
    return true;
}

static int64_t variable(sum *e) {
    const char *from = e->at;
    char *end;
    while (is_name((unsigned char)*e->at)) e->at++;
    const sh_var *var =
        ds_sh__find(e->s, ds_arena_strndup(e->s->arena, from, (size_t)(e->at - from)));
    if (!var || !var->n) {
        e->is_unknown = true;
        return 0;
    }
    int64_t value = strtoll(var->items[0], &end, 10);
    if (*end) e->is_unknown = true;
    return value;
}

static int64_t atom(sum *e) {
    blanks(e);
    if (++e->depth > SH_MAX_DEPTH) e->is_wrong = true;
    if (e->is_wrong) return 0;
    int64_t value = 0;
    if (take(e, "(")) {
        value = ternary(e);
        if (!take(e, ")")) e->is_wrong = true;
    } else if (take(e, "-")) {
        value = (int64_t)(0 - (uint64_t)atom(e));
    } else if (take(e, "+")) {
        value = atom(e);
    } else if (take(e, "!")) {
        value = !atom(e);
    } else if (isdigit((unsigned char)*e->at)) {
        char *end;
        value = strtoll(e->at, &end, 10);
        e->at = end;
    } else if (is_name((unsigned char)*e->at)) {
        value = variable(e);
    } else if (*e->at == DS_UNKNOWN) {
        e->is_unknown = true;
        while (*e->at && *e->at != DS_UNKNOWN_END) e->at++;
        if (*e->at) e->at++;
    } else {
        e->is_wrong = true;
    }
    e->depth--;
    return value;
}

static int64_t combine(sum *e, char op, int64_t a, int64_t b) {
    int64_t value = 0;
    if ((op == '/' || op == '%') && (b == 0 || b == -1)) {
        if (b == 0 && !e->is_unknown) e->is_wrong = true;
        return op == '/' && b ? (int64_t)(0 - (uint64_t)a) : 0;
    }
    bool over = op == '+'   ? __builtin_add_overflow(a, b, &value)
                : op == '-' ? __builtin_sub_overflow(a, b, &value)
                : op == '*' ? __builtin_mul_overflow(a, b, &value)
                            : false;
    if (over) e->is_wrong = true;
    return op == '/' ? a / b : op == '%' ? a % b : value;
}

static int64_t product(sum *e) {
    int64_t value = atom(e);
    for (;;) {
        char op = take(e, "*") ? '*' : take(e, "/") ? '/' : take(e, "%") ? '%' : 0;
        if (!op || e->is_wrong) return value;
        value = combine(e, op, value, atom(e));
    }
}

static int64_t total(sum *e) {
    int64_t value = product(e);
    for (;;) {
        char op = take(e, "+") ? '+' : take(e, "-") ? '-' : 0;
        if (!op || e->is_wrong) return value;
        value = combine(e, op, value, product(e));
    }
}

static int64_t comparison(sum *e) {
    int64_t a = total(e);
    if (take(e, "==")) return a == total(e);
    if (take(e, "!=")) return a != total(e);
    if (take(e, "<=")) return a <= total(e);
    if (take(e, ">=")) return a >= total(e);
    if (take(e, "<")) return a < total(e);
    if (take(e, ">")) return a > total(e);
    return a;
}

static int64_t logic(sum *e) {
    int64_t a = comparison(e);
    for (;;) {
        bool both = take(e, "&&");
        if (!both && !take(e, "||")) return a;
        if (e->is_wrong) return 0;
        int64_t b = comparison(e);
        a = both ? a && b : a || b;
    }
}

static int64_t ternary(sum *e) {
    int64_t condition = logic(e);
    if (!take(e, "?") || e->is_wrong) return condition;
    int64_t yes = ternary(e);
    if (!take(e, ":")) e->is_wrong = true;
    int64_t no = ternary(e);
    return condition ? yes : no;
}

ds_status ds_sh__arithmetic(sh *s, const char *text, const char **out) {
    const char *expanded;
    DS_TRY(expand_text(s, text, &expanded));
    sum e = {.s = s, .at = expanded};
    int64_t value = ternary(&e);
    blanks(&e);
    if (e.is_wrong || (*e.at && !e.is_unknown))
        return ds_sh__error(s, DS_ERR_UNSUPPORTED, "the arithmetic $((%.60s)) is not understood",
                            text);
    *out = e.is_unknown
               ? ds_arena_printf(s->arena, "%c$((%.60s))%c", DS_UNKNOWN, text, DS_UNKNOWN_END)
               : ds_arena_printf(s->arena, "%" PRId64, value);
    return DS_OK;
}
