/* Factor rules: text to data and back, and the expansion of `...`.
 *
 *   rule  = terms "->" terms [";" kind {"," kind}]
 *   terms = [term {"," term}]                         one a value; an empty term is a scalar
 *   term  = ["..."] {dim}
 *   dim   = NAME | "(" NAME NAME … ")" | "1" | "*"    a factor, a product, size 1, any size
 *   kind  = (NAME | "...") ":" ("par" | "sum" | "max" | "window" | "scan" | "lookup" | "whole")
 */
#include "ir/ops/internal.h"
#include "ir/ops/memo.h"

#include <ctype.h>
#include <string.h>

static const char *const kind_names[] = {
    [DS_FACTOR_PAR] = "par",   [DS_FACTOR_SUM] = "sum",       [DS_FACTOR_WINDOW] = "window",
    [DS_FACTOR_SCAN] = "scan", [DS_FACTOR_LOOKUP] = "lookup", [DS_FACTOR_WHOLE] = "whole",
    [DS_FACTOR_MAX] = "max",
};
#define N_KINDS (sizeof kind_names / sizeof *kind_names)

typedef struct reader {
    const char *at;
    const char *text;
    ds_loc loc;
    ds_rule *rule;
    bool kind_given[DS_MAX_FACTORS];
} reader;

static void skip_blanks(reader *r) {
    while (*r->at == ' ' || *r->at == '\t') r->at++;
}

static bool take_token(reader *r, const char *token) {
    skip_blanks(r);
    const char *at = r->at;
    for (; *token; at++, token++)
        if (*at != *token) return false;
    r->at = at;
    return true;
}

static ds_status bad(const reader *r, const char *wanted, ds_error *err) {
    size_t column = (size_t)(r->at - r->text) + 1;
    if (!*r->at)
        return ds_error_set(err, DS_ERR_SYNTAX, r->loc, "rule \"%s\" ends where %s was expected",
                            r->text, wanted);
    return ds_error_set(err, DS_ERR_SYNTAX, r->loc,
                        "rule \"%s\", column %zu: expected %s, not '%c'", r->text, column, wanted,
                        *r->at);
}

static bool at_name(const reader *r) {
    return isalpha((unsigned char)*r->at) || *r->at == '_';
}

static ds_status read_name(reader *r, char name[DS_FACTOR_NAME_MAX], ds_error *err) {
    skip_blanks(r);
    if (!at_name(r)) return bad(r, "a factor name", err);
    size_t n = 0;
    while (isalnum((unsigned char)r->at[n]) || r->at[n] == '_') n++;
    if (n >= DS_FACTOR_NAME_MAX)
        return ds_error_set(err, DS_ERR_LIMIT, r->loc,
                            "rule \"%s\": the factor name '%.*s' is longer than %d letters",
                            r->text, (int)(n > 40 ? 40 : n), r->at, DS_FACTOR_NAME_MAX - 1);
    memset(name, 0, DS_FACTOR_NAME_MAX);
    memcpy(name, r->at, n);
    r->at += n;
    return DS_OK;
}

static ds_status read_factor(reader *r, ds_rule_term *term, ds_rule_dim *dim, ds_error *err) {
    char name[DS_FACTOR_NAME_MAX];
    DS_TRY(read_name(r, name, err));
    uint32_t f = ds_ops__factor_named(r->rule, name);
    if (f == DS_MAX_FACTORS) {
        if (r->rule->n_factors == DS_MAX_FACTORS)
            return ds_error_set(err, DS_ERR_LIMIT, r->loc, "rule \"%s\" has more than %d factors",
                                r->text, DS_MAX_FACTORS);
        f = ds_ops__factor(r->rule, name, DS_FACTOR_PAR);
    }
    for (uint32_t d = 0; d < term->n; d++)
        for (uint32_t i = 0; i < term->dims[d].n; i++)
            if (term->dims[d].factors[i] == f)
                return ds_error_set(err, DS_ERR_SYNTAX, r->loc,
                                    "rule \"%s\": factor '%s' occurs twice in one term", r->text,
                                    name);
    for (uint32_t i = 0; i < dim->n; i++)
        if (dim->factors[i] == f)
            return ds_error_set(err, DS_ERR_SYNTAX, r->loc,
                                "rule \"%s\": factor '%s' occurs twice in one dim", r->text, name);
    if (dim->n == sizeof dim->factors)
        return ds_error_set(err, DS_ERR_LIMIT, r->loc,
                            "rule \"%s\": a dim of more than %zu factors", r->text,
                            sizeof dim->factors);
    dim->factors[dim->n++] = (uint8_t)f;
    return DS_OK;
}

static ds_status read_dim(reader *r, ds_rule_term *term, ds_error *err) {
    ds_rule_dim dim = {0};
    if (take_token(r, "*"))
        dim.any = true;
    else if (take_token(r, "(")) {
        do {
            DS_TRY(read_factor(r, term, &dim, err));
            skip_blanks(r);
        } while (at_name(r));
        if (!take_token(r, ")")) return bad(r, "a factor name or ')'", err);
    } else if (!take_token(r, "1"))
        DS_TRY(read_factor(r, term, &dim, err));
    if (term->n == DS_MAX_RANK)
        return ds_error_set(err, DS_ERR_LIMIT, r->loc, "rule \"%s\": a term of more than %d dims",
                            r->text, DS_MAX_RANK);
    term->dims[term->n++] = dim;
    return DS_OK;
}

static bool at_end_of_term(reader *r) {
    skip_blanks(r);
    return !*r->at || *r->at == ',' || *r->at == ';' || *r->at == '-';
}

static ds_status read_terms(reader *r, ds_rule_term *terms, uint32_t *n, ds_error *err) {
    if (at_end_of_term(r) && *r->at == '-') return DS_OK; /* no operands */
    do {
        if (*n == DS_MAX_OPERANDS)
            return ds_error_set(err, DS_ERR_LIMIT, r->loc,
                                "rule \"%s\" has more than %d terms a side", r->text,
                                DS_MAX_OPERANDS);
        ds_rule_term *term = &terms[(*n)++];
        term->leading = take_token(r, "...");
        while (!at_end_of_term(r)) DS_TRY(read_dim(r, term, err));
    } while (take_token(r, ","));
    return DS_OK;
}

static ds_status read_kind(reader *r, ds_error *err) {
    bool leading = take_token(r, "...");
    uint32_t f = 0;
    if (!leading) {
        char name[DS_FACTOR_NAME_MAX];
        DS_TRY(read_name(r, name, err));
        f = ds_ops__factor_named(r->rule, name);
        if (f == DS_MAX_FACTORS)
            return ds_error_set(err, DS_ERR_NAME, r->loc,
                                "rule \"%s\": no term has the factor '%s'", r->text, name);
    }
    if (!take_token(r, ":")) return bad(r, "':'", err);
    char kind[DS_FACTOR_NAME_MAX];
    DS_TRY(read_name(r, kind, err));
    for (uint32_t k = 0; k < N_KINDS; k++) {
        if (strcmp(kind, kind_names[k]) != 0) continue;
        if (leading) {
            r->rule->leading_kind = (ds_factor_kind)k;
        } else {
            r->rule->kinds[f] = (ds_factor_kind)k;
            r->kind_given[f] = true;
        }
        return DS_OK;
    }
    const char *near = ds_suggest(kind, kind_names, N_KINDS);
    return ds_error_set(err, DS_ERR_NAME, r->loc, "rule \"%s\": unknown factor kind '%s'%s%s%s",
                        r->text, kind, near ? "; did you mean '" : "", near ? near : "",
                        near ? "'?" : "");
}

static bool term_has(const ds_rule_term *term, uint32_t f) {
    for (uint32_t d = 0; d < term->n; d++)
        for (uint32_t i = 0; i < term->dims[d].n; i++)
            if (term->dims[d].factors[i] == f) return true;
    return false;
}

/* The einsum convention: what no result has is summed. */
static void default_kinds(reader *r) {
    ds_rule *rule = r->rule;
    for (uint32_t f = 0; f < rule->n_factors; f++) {
        bool in_result = false;
        for (uint32_t i = 0; i < rule->n_out; i++) in_result |= term_has(&rule->out[i], f);
        if (!in_result && !r->kind_given[f]) rule->kinds[f] = DS_FACTOR_SUM;
    }
}

ds_status ds_rule_parse(const char *text, ds_loc loc, ds_rule *out, ds_error *err) {
    *out = (ds_rule){0};
    reader r = {.at = text, .text = text, .loc = loc, .rule = out};
    DS_TRY(read_terms(&r, out->in, &out->n_in, err));
    if (!take_token(&r, "->")) return bad(&r, "',' or '->'", err);
    DS_TRY(read_terms(&r, out->out, &out->n_out, err));
    if (take_token(&r, ";")) {
        do DS_TRY(read_kind(&r, err));
        while (take_token(&r, ","));
    }
    skip_blanks(&r);
    if (*r.at) return bad(&r, "the end", err);
    default_kinds(&r);
    return DS_OK;
}

/* ---- printing ---- */

static void print_term(const ds_rule *rule, const ds_rule_term *term, ds_buf *out) {
    const char *gap = "";
    if (term->leading) {
        ds_buf_put(out, "...");
        gap = " ";
    }
    for (uint32_t d = 0; d < term->n; d++) {
        const ds_rule_dim *dim = &term->dims[d];
        ds_buf_put(out, gap);
        gap = " ";
        if (dim->any)
            ds_buf_putc(out, '*');
        else if (dim->n == 0)
            ds_buf_putc(out, '1');
        else if (dim->n == 1)
            ds_buf_put(out, rule->names[dim->factors[0]]);
        else {
            for (uint32_t i = 0; i < dim->n; i++)
                ds_buf_printf(out, "%c%s", i ? ' ' : '(', rule->names[dim->factors[i]]);
            ds_buf_putc(out, ')');
        }
    }
}

static void print_terms(const ds_rule *rule, const ds_rule_term *terms, uint32_t n, ds_buf *out) {
    for (uint32_t i = 0; i < n; i++) {
        if (i) ds_buf_put(out, ", ");
        print_term(rule, &terms[i], out);
    }
}

void ds_rule_print(const ds_rule *rule, ds_buf *out) {
    print_terms(rule, rule->in, rule->n_in, out);
    ds_buf_put(out, " -> ");
    print_terms(rule, rule->out, rule->n_out, out);
    const char *gap = "; ";
    for (uint32_t f = 0; f < rule->n_factors; f++) {
        if (rule->kinds[f] == DS_FACTOR_PAR) continue;
        ds_buf_printf(out, "%s%s: %s", gap, rule->names[f], kind_names[rule->kinds[f]]);
        gap = ", ";
    }
    if (rule->leading_kind != DS_FACTOR_PAR)
        ds_buf_printf(out, "%s...: %s", gap, kind_names[rule->leading_kind]);
}

/* ---- building ---- */

uint32_t ds_ops__factor_named(const ds_rule *rule, const char *name) {
    for (uint32_t f = 0; f < rule->n_factors; f++)
        if (strcmp(rule->names[f], name) == 0) return f;
    return DS_MAX_FACTORS;
}

uint8_t ds_ops__factor(ds_rule *rule, const char *name, ds_factor_kind kind) {
    uint32_t f = rule->n_factors++;
    memset(rule->names[f], 0, DS_FACTOR_NAME_MAX);
    memcpy(rule->names[f], name, strlen(name));
    rule->kinds[f] = kind;
    return (uint8_t)f;
}

void ds_ops__dim(ds_rule_term *term, uint8_t factor) {
    term->dims[term->n++] = (ds_rule_dim){.factors = {factor}, .n = 1};
}

void ds_ops__dim_one(ds_rule_term *term) {
    term->dims[term->n++] = (ds_rule_dim){0};
}

void ds_ops__dim_any(ds_rule_term *term) {
    term->dims[term->n++] = (ds_rule_dim){.any = true};
}

void ds_ops__rule_identity(ds_rule *rule, uint32_t rank) {
    *rule = (ds_rule){.n_in = 1, .n_out = 1};
    for (uint32_t d = 0; d < rank; d++) {
        const char name[2] = {(char)('a' + d), '\0'};
        uint8_t f = ds_ops__factor(rule, name, DS_FACTOR_PAR);
        ds_ops__dim(&rule->in[0], f);
        ds_ops__dim(&rule->out[0], f);
    }
}

/* ---- expansion ---- */

static ds_status wrong_rank(const ds_rule_args *args, uint32_t i, uint32_t want, bool at_least,
                            ds_error *err) {
    return ds_error_set(
        err, DS_ERR_SHAPE, args->op->loc, "%s: operand %u has %u dim%s, but %s%u %s needed here",
        ds_op_name(args->op->code), i, args->in_rank[i], args->in_rank[i] == 1 ? "" : "s",
        at_least ? "at least " : "", want, want == 1 ? "is" : "are");
}

static void expand_term(ds_rule_term *term, uint32_t first, uint32_t n) {
    if (!term->leading) return;
    memmove(&term->dims[n], &term->dims[0], term->n * sizeof *term->dims);
    for (uint32_t i = 0; i < n; i++)
        term->dims[i] = (ds_rule_dim){.factors = {(uint8_t)(first + i)}, .n = 1};
    term->n = (uint8_t)(term->n + n);
    term->leading = false;
}

ds_status ds_ops__rule_expand(const ds_rule_args *args, ds_rule *rule, ds_error *err) {
    uint32_t n_in = args->n_in < DS_MAX_OPERANDS ? args->n_in : DS_MAX_OPERANDS;
    uint32_t n_leading = 0, longest = 0;
    bool known = false;
    for (uint32_t i = 0; i < n_in && rule->n_in; i++) {
        const ds_rule_term *term = ds_ops__term(rule->in, rule->n_in, i);
        if (!term->leading) {
            if (args->in_rank[i] != term->n) return wrong_rank(args, i, term->n, false, err);
            continue;
        }
        if (args->in_rank[i] < term->n) return wrong_rank(args, i, term->n, true, err);
        if (!known) n_leading = args->in_rank[i] - term->n;
        known = true;
        if (args->in_rank[i] != term->n + n_leading)
            return wrong_rank(args, i, term->n + n_leading, false, err);
    }
    for (uint32_t i = 0; i < rule->n_out; i++)
        if (rule->out[i].leading && rule->out[i].n > longest) longest = rule->out[i].n;
    for (uint32_t i = 0; i < rule->n_in; i++)
        if (rule->in[i].leading && rule->in[i].n > longest) longest = rule->in[i].n;
    if (longest + n_leading > DS_MAX_RANK || rule->n_factors + n_leading > DS_MAX_FACTORS)
        return ds_error_set(err, DS_ERR_LIMIT, args->op->loc, "%s: more than %d dims or %d factors",
                            ds_op_name(args->op->code), DS_MAX_RANK, DS_MAX_FACTORS);
    uint32_t first = rule->n_factors;
    for (uint32_t i = 0; i < n_leading; i++) {
        const char name[3] = {'_', (char)('0' + i), '\0'};
        ds_ops__factor(rule, name, rule->leading_kind);
    }
    for (uint32_t i = 0; i < rule->n_in; i++) expand_term(&rule->in[i], first, n_leading);
    for (uint32_t i = 0; i < rule->n_out; i++) expand_term(&rule->out[i], first, n_leading);
    return DS_OK;
}

ds_status ds_ops__rule_text(const ds_rule_args *args, const char *text, ds_loc loc, ds_rule *out,
                            ds_error *err) {
    ds_unit *unit = args->unit;
    if (!unit) return ds_rule_parse(text, loc, out, err);
    ds_memo_key key; /* large: not zeroed */
    key.n = 0;
    key.other = false;
    ds_memo_put(&key, DS_KEY(text)); /* no op's key is of one word */
    const ds_rule *known = ds_memo_find(&unit->inferred, &key);
    if (known) {
        *out = *known;
        return DS_OK;
    }
    DS_TRY(ds_rule_parse(text, loc, out, err));
    ds_rule *kept = DS_NEW(&unit->arena, ds_rule);
    *kept = *out;
    ds_memo_keep(&unit->inferred, &unit->arena, &key, kept);
    return DS_OK;
}

ds_status ds_ops__rule(const ds_rule_args *args, ds_rule *out, ds_error *err) {
    const ds_op_desc *desc = ds_op_desc_of(args->op->code);
    if (desc->rule_of)
        DS_TRY(desc->rule_of(args, out, err));
    else if (desc->rule)
        DS_TRY(ds_ops__rule_text(args, desc->rule, args->op->loc, out, err));
    else
        return ds_error_set(err, DS_ERR_UNSUPPORTED, args->op->loc, "%s has no factor rule",
                            desc->name);
    return ds_ops__rule_expand(args, out, err);
}
