/* Expressions, ranges, units, and the indices in scope. */
#include "ir/lang/parse.h"

#include <stdlib.h>
#include <string.h>

/* ---- indices ---- */

bool ds_parser_has_index(const ds_parser *p, const char *name) {
    for (uint32_t k = p->indices.n; k-- > 0;)
        if (p->indices.at[k] == name) return true;
    return false;
}

uint32_t ds_parser_push_index(ds_parser *p, const char *name, ds_loc loc) {
    if (ds_parser_has_index(p, name))
        ds_parser_fail(p, DS_ERR_NAME, loc, "index '%s' is already in scope; take another name",
                       name);
    DS_HPUSH(&p->indices, name);
    return p->indices.n - 1;
}

void ds_parser_pop_indices(ds_parser *p, uint32_t mark) {
    p->indices.n = mark;
}

/* ---- names ---- */

/* The nearest index or param, or NULL. */
static const char *suggest_name(const ds_parser *p, const char *name) {
    DS_VEC(const char *) known = {0};
    for (uint32_t k = 0; k < p->indices.n; k++) DS_HPUSH(&known, p->indices.at[k]);
    for (uint32_t k = 0; k < p->module->params.n; k++)
        DS_HPUSH(&known, p->module->params.at[k].name);
    const char *near = ds_parser_suggest(name, known.at, known.n);
    free(known.at);
    return near;
}

static void unknown_name(ds_parser *p, const char *name, ds_loc loc) {
    const char *near = suggest_name(p, name), *advice = ds_word_fix(name);
    if (ds_parser_at(p, DS_TOK_DOT) && ds_parser_peek(p, 1)->kind == DS_TOK_NAME)
        ds_parser_fail(p, DS_ERR_NAME, loc,
                       "unknown name '%s'; an expression has keys by their bare name: write %s",
                       name, ds_parser_peek(p, 1)->name);
    if (advice)
        ds_parser_fail(p, DS_ERR_NAME, loc, "unknown name '%s'; %s", name, advice);
    else if (near)
        ds_parser_fail(p, DS_ERR_NAME, loc, "unknown name '%s'; did you mean '%s'?", name, near);
    else
        ds_parser_fail(p, DS_ERR_NAME, loc,
                       "unknown name '%s': neither a loop index nor a param declared above", name);
}

static ds_expr make_param(ds_parser *p, uint64_t index) {
    ds_expr_node node = {.kind = DS_EXPR_PARAM,
                         .name = p->module->params.at[index].name,
                         .i = (int64_t)p->module->id << 32 | (int64_t)index};
    return ds_expr_make(p->exprs, node);
}

static ds_expr parse_name(ds_parser *p) {
    ds_token token = p->tok;
    ds_parser_advance(p);
    const uint64_t *param = ds_map_find(&p->params, DS_KEY(token.name));
    if (ds_parser_has_index(p, token.name)) return ds_expr_index(p->exprs, token.name);
    if (p->in_link)
        DS_HPUSH(&p->open_names, ((ds_open_name){token.name, token.loc, param != NULL}));
    if (param) return make_param(p, *param);
    if (!p->in_link) unknown_name(p, token.name, token.loc);
    return ds_expr_index(p->exprs, token.name);
}

/* ---- operators ---- */

bool ds_expr_operator_of(const ds_token *token, ds_expr_kind *kind, uint32_t *precedence) {
    static const struct {
        const char *text;
        ds_expr_kind kind;
        uint32_t precedence;
    } map[] = {
#define DS_X(name, text, prec) {text, DS_EXPR_##name, prec},
        DS_EXPR_BINARY_MAP(DS_X)
#undef DS_X
    };
    if (token->kind == DS_TOK_EOF || token->kind == DS_TOK_STRING || token->loc.len > 3)
        return false;
    for (size_t k = 0; k < sizeof map / sizeof map[0]; k++) {
        if (strlen(map[k].text) != token->loc.len) continue;
        if (memcmp(map[k].text, token->text, token->loc.len) != 0) continue;
        *kind = map[k].kind;
        *precedence = map[k].precedence;
        return true;
    }
    return false;
}

enum { PREC_LOWEST = 1, PREC_COMPARE = 3, PREC_SUM = 4 };

static ds_expr parse_binary(ds_parser *p, uint32_t least);

static ds_expr parse_function(ds_parser *p, ds_expr_kind kind) {
    ds_parser_advance(p);
    ds_parser_expect(p, DS_TOK_LPAREN, "after the function's name");
    ds_expr a = parse_binary(p, PREC_LOWEST);
    ds_parser_expect(p, DS_TOK_COMMA, "between the two arguments");
    ds_expr b = parse_binary(p, PREC_LOWEST);
    ds_parser_expect(p, DS_TOK_RPAREN, "after the two arguments");
    return ds_expr_binary(p->exprs, kind, a, b);
}

static ds_expr parse_axis_index(ds_parser *p) {
    ds_parser_advance(p);
    ds_parser_expect(p, DS_TOK_LPAREN, "after axis_index");
    ds_token axis = ds_parser_expect(p, DS_TOK_NAME, "of a mesh axis");
    ds_parser_expect(p, DS_TOK_RPAREN, "after the axis");
    return ds_expr_make(p->exprs, (ds_expr_node){.kind = DS_EXPR_AXIS_INDEX, .name = axis.name});
}

static ds_expr parse_literal(ds_parser *p, ds_expr_kind kind) {
    ds_token token = p->tok;
    ds_parser_advance(p);
    return ds_expr_make(
        p->exprs, (ds_expr_node){.kind = kind, .name = token.name, .i = token.i, .r = token.r});
}

static ds_expr parse_bool(ds_parser *p) {
    ds_expr_node node = {.kind = DS_EXPR_BOOL, .i = ds_parser_at_word(p, "true")};
    ds_parser_advance(p);
    return ds_expr_make(p->exprs, node);
}

static ds_expr parse_atom(ds_parser *p) {
    switch (p->tok.kind) {
    case DS_TOK_INT:
        return parse_literal(p, DS_EXPR_INT);
    case DS_TOK_REAL:
        return parse_literal(p, DS_EXPR_REAL);
    case DS_TOK_STRING:
        return parse_literal(p, DS_EXPR_STR);
    case DS_TOK_NAME:
        if (ds_parser_at_word(p, "min")) return parse_function(p, DS_EXPR_MIN);
        if (ds_parser_at_word(p, "max")) return parse_function(p, DS_EXPR_MAX);
        if (ds_parser_at_word(p, "ceildiv")) return parse_function(p, DS_EXPR_CEILDIV);
        if (ds_parser_at_word(p, "axis_index")) return parse_axis_index(p);
        if (ds_parser_at_word(p, "true") || ds_parser_at_word(p, "false")) return parse_bool(p);
        return parse_name(p);
    case DS_TOK_LPAREN: {
        ds_parser_advance(p);
        ds_expr e = parse_binary(p, PREC_LOWEST);
        ds_parser_expect(p, DS_TOK_RPAREN, "to close the parenthesis");
        return e;
    }
    default:
        ds_parser_expected(p, "an expression");
        return ds_expr_int(p->exprs, 0);
    }
}

/* `not` takes a whole comparison, `-` an atom. */
static ds_expr parse_unary(ds_parser *p) {
    if (!ds_parser_enter(p)) return ds_expr_int(p->exprs, 0);
    ds_expr e;
    if (ds_parser_accept_word(p, "not")) {
        ds_expr a = parse_binary(p, PREC_COMPARE);
        e = ds_expr_make(p->exprs, (ds_expr_node){.kind = DS_EXPR_NOT, .a = a});
    } else if (ds_parser_accept(p, DS_TOK_MINUS)) {
        ds_expr a = parse_unary(p);
        e = ds_expr_make(p->exprs, (ds_expr_node){.kind = DS_EXPR_NEG, .a = a});
    } else {
        e = parse_atom(p);
    }
    ds_parser_leave(p);
    return e;
}

static ds_expr parse_binary(ds_parser *p, uint32_t least) {
    ds_expr left = parse_unary(p);
    bool compared = false;
    ds_expr_kind kind;
    uint32_t precedence;
    while (ds_expr_operator_of(&p->tok, &kind, &precedence) && precedence >= least) {
        if (precedence == PREC_COMPARE && compared)
            ds_parser_fail(p, DS_ERR_SYNTAX, p->tok.loc,
                           "comparisons do not chain; write a < b and b < c");
        compared = precedence == PREC_COMPARE;
        ds_parser_advance(p);
        ds_expr right = parse_binary(p, precedence + 1);
        left = ds_expr_binary(p->exprs, kind, left, right);
    }
    return left;
}

/* `i--1` is the token of links, and `i %n` reads as i and then the value %n: say so where that
 * cannot be meant. */
static void refuse_lookalikes(ds_parser *p) {
    if (ds_parser_at(p, DS_TOK_DASHDASH) && !p->in_link)
        ds_parser_fail(p, DS_ERR_SYNTAX, p->tok.loc,
                       "'--' connects the ends of a link; a double minus is written a - -b");
    if (!ds_parser_at(p, DS_TOK_VALUE) || p->tok.starts_line) return;
    ds_token_kind next = ds_parser_peek(p, 1)->kind;
    if (next == DS_TOK_ASSIGN || next == DS_TOK_COMMA) return; /* the results of another op */
    ds_parser_fail(p, DS_ERR_SYNTAX, p->tok.loc,
                   "expected an operator, found the value '%%%s'; for the remainder write a %% %s",
                   p->tok.name, p->tok.name);
}

static ds_expr parse_from(ds_parser *p, uint32_t least) {
    ds_loc loc = p->tok.loc;
    ds_expr e = parse_binary(p, least);
    refuse_lookalikes(p);
    if (ds_expr_at(p->exprs, e)->size > DS_EXPR_MAX_SIZE)
        ds_parser_fail(p, DS_ERR_LIMIT, loc, "this expression has more than %u terms",
                       DS_EXPR_MAX_SIZE);
    return e;
}

ds_expr ds_parse_expr(ds_parser *p) {
    return parse_from(p, PREC_LOWEST);
}

ds_expr ds_parse_sum(ds_parser *p) {
    return parse_from(p, PREC_SUM);
}

void ds_parse_range(ds_parser *p, ds_expr *lo, ds_expr *hi) {
    *lo = ds_parse_expr(p);
    ds_parser_expect(p, DS_TOK_DOTDOT, "between the ends of the range");
    *hi = ds_parse_expr(p);
}

/* ---- units ---- */

static const char *const units[] = {
#define DS_X(name, text, dimension, scale) text,
    DS_UNIT_MAP(DS_X)
#undef DS_X
};

const char *ds_unit_suggest(const ds_token *name) {
    return ds_parser_suggest(name->name, units, sizeof units / sizeof units[0]);
}

/* Bytes of a unit at the current name: `GB/s` is three tokens without anything between. */
static uint32_t unit_tokens(ds_parser *p, size_t *n) {
    *n = p->tok.loc.len;
    const ds_token *slash = ds_parser_peek(p, 1);
    if (slash->kind != DS_TOK_SLASH || !slash->glued) return 1;
    const ds_token *per = ds_parser_peek(p, 2);
    if (per->kind != DS_TOK_NAME || !per->glued) return 1;
    *n += 1 + per->loc.len;
    return 3;
}

ds_unit_id ds_parse_unit(ds_parser *p) {
    if (!ds_parser_at(p, DS_TOK_NAME) || p->tok.starts_line) return DS_UNIT_NONE;
    if (ds_parser_peek(p, 1)->kind == DS_TOK_ASSIGN) return DS_UNIT_NONE; /* the next key */
    size_t n;
    uint32_t n_tokens = unit_tokens(p, &n);
    ds_unit_id unit = DS_UNIT_NONE;
    if (ds_unit_parse(p->tok.text, n, &unit)) {
        while (n_tokens--) ds_parser_advance(p);
        return unit;
    }
    ds_loc loc = p->tok.loc;
    loc.len = (uint32_t)n;
    const char *text = ds_intern_n(&p->unit->strings, p->tok.text, n);
    const char *near = ds_parser_suggest(text, units, sizeof units / sizeof units[0]);
    const char *habit = p->tok.glued ? ds_parser_number_habit(text) : NULL;
    if (habit) ds_parser_fail(p, DS_ERR_NAME, loc, "'%.40s' after a number; %s", text, habit);
    ds_parser_fail(p, DS_ERR_NAME, loc, "unknown unit '%.40s'; %s%s%s", text,
                   near ? "did you mean '" : "known are ps ns us ms s, B KB MB GB TB KiB … TiB, ",
                   near ? near : "GB/s GiB/s Gb/s … and TFLOP/s", near ? "'?" : "");
    return DS_UNIT_NONE;
}
