/* Attributes: the spec "name:type{choices}=default name:type! …" of the table against what an op
 * carries. */
#include "ir/ops/internal.h"

#include <stdlib.h>
#include <string.h>

#define ROLE "role:str{weight,gradient,optimizer,activation,input,buffer}"

const char ds_op_role_attr[] = ROLE;
const char ds_op_input_attrs[] = "range:int input:str of:ints at:ints";
const char ds_op_common_attrs[] = "name:str stream:str cost:time " ROLE;
const char ds_op_collective_attrs[] = "route:str{single} chunks:int";

/* One entry of a spec; the texts point into it. */
typedef struct entry {
    const char *name, *type, *choices, *value; /* value: the default, or NULL; choices likewise */
    size_t name_n, type_n, choices_n, value_n;
    bool required;
} entry;

/* Reads the next entry at *at and moves on; false at the end. */
static bool next_entry(const char **at, entry *out) {
    const char *p = *at + strspn(*at, " ");
    if (!*p) return false;
    *out = (entry){.name = p, .name_n = strcspn(p, ":")};
    p += out->name_n + 1;
    out->type = p;
    out->type_n = strcspn(p, "{=! ");
    p += out->type_n;
    if (*p == '{') {
        out->choices = ++p;
        out->choices_n = strcspn(p, "}");
        p += out->choices_n + 1;
    }
    if (*p == '!') {
        out->required = true;
        p++;
    } else if (*p == '=') {
        out->value = ++p;
        out->value_n = strcspn(p, " ");
        p += out->value_n;
    }
    *at = p;
    return true;
}

static bool entry_is(const entry *e, const char *name) {
    return strlen(name) == e->name_n && strncmp(name, e->name, e->name_n) == 0;
}

static bool type_is(const entry *e, const char *type) {
    return strlen(type) == e->type_n && strncmp(type, e->type, e->type_n) == 0;
}

static const ds_attr *attr_of(const ds_op *op, const char *name) {
    return ds_attr_find(op->attrs, op->n_attrs, name);
}

static bool find_in(const char *const *specs, uint32_t n, const char *name, entry *out) {
    for (uint32_t s = 0; s < n; s++)
        for (const char *at = specs[s]; next_entry(&at, out);)
            if (entry_is(out, name)) return true;
    return false;
}

#define N_SPECS 3
static void specs_of(const ds_op_desc *desc, const char *specs[N_SPECS]) {
    specs[0] = desc->attrs ? desc->attrs : "";
    specs[1] = ds_op_common_attrs;
    specs[2] = (desc->flags & DS_OPF_COLLECTIVE) ? ds_op_collective_attrs : "";
}

static bool find_entry(const ds_op_desc *desc, const char *name, entry *out) {
    const char *specs[N_SPECS];
    specs_of(desc, specs);
    return find_in(specs, N_SPECS, name, out);
}

/* ---- checking ---- */

/* Names for a message: the nearest one, else all of them. */
typedef struct names {
    const char *at[32];
    uint32_t n;
} names;

static void add_name(const ds_infer *ctx, names *list, const char *text, size_t n) {
    if (list->n < 32) list->at[list->n++] = ds_arena_strndup(&ctx->unit->arena, text, n);
}

static const char *joined(const ds_infer *ctx, const names *list) {
    ds_buf buf = {0};
    for (uint32_t i = 0; i < list->n; i++) ds_buf_printf(&buf, "%s%s", i ? ", " : "", list->at[i]);
    const char *text = ds_arena_strdup(&ctx->unit->arena, buf.text ? buf.text : "");
    ds_buf_deinit(&buf);
    return text;
}

static ds_status unknown_attr(const ds_infer *ctx, const ds_attr *attr, const char *const *specs,
                              uint32_t n_specs, const char *who, ds_error *err) {
    names known = {0};
    entry e;
    for (uint32_t s = 0; s < n_specs; s++)
        for (const char *at = specs[s]; next_entry(&at, &e);)
            add_name(ctx, &known, e.name, e.name_n);
    const char *near = ds_suggest(attr->name, known.at, known.n);
    if (near)
        return ds_error_set(err, DS_ERR_NAME, attr->loc,
                            "%s has no attribute '%s'; did you mean '%s'?", who, attr->name, near);
    return ds_error_set(err, DS_ERR_NAME, attr->loc, "%s has no attribute '%s'; it takes %s", who,
                        attr->name, joined(ctx, &known));
}

/* Whether an expression can be an integer or a real. A param is decided when it is bound. */
static bool expr_may_be(const ds_infer *ctx, ds_expr e, ds_num_kind kind, ds_loc loc) {
    const ds_expr_node *node = ds_expr_at(&ctx->unit->exprs, e);
    if (node->kind == DS_EXPR_STR) return false;
    if (node->kind == DS_EXPR_INT) return true;
    if (node->kind == DS_EXPR_REAL) return kind == DS_NUM_REAL;
    ds_num value;
    if (!ctx->env || ds_expr_eval(ctx->env, e, loc, &value, NULL) != DS_OK) return true;
    return value.kind == kind || (value.kind == DS_NUM_INT && kind == DS_NUM_REAL);
}

static bool attr_fits(const ds_infer *ctx, const ds_attr *attr, const entry *e) {
    bool is_expr = attr->kind == DS_ATTR_EXPR;
    if (type_is(e, "bool")) return attr->kind == DS_ATTR_BOOL;
    if (type_is(e, "int")) return is_expr && expr_may_be(ctx, attr->expr, DS_NUM_INT, attr->loc);
    if (type_is(e, "real")) return is_expr && expr_may_be(ctx, attr->expr, DS_NUM_REAL, attr->loc);
    if (type_is(e, "str")) return ds_attr_text(&ctx->unit->exprs, attr) != NULL;
    if (type_is(e, "dtype")) {
        ds_dtype dtype;
        return attr->kind == DS_ATTR_WORD && ds_dtype_parse(attr->word, &dtype);
    }
    if (type_is(e, "time"))
        return attr->kind == DS_ATTR_QUANTITY && ds_unit_dimension(attr->unit) == 'T';
    if (is_expr) return expr_may_be(ctx, attr->expr, DS_NUM_INT, attr->loc);
    if (attr->kind != DS_ATTR_LIST) return false;
    for (uint32_t i = 0; i < attr->n_items; i++)
        if (attr->items[i].kind != DS_ATTR_EXPR ||
            !expr_may_be(ctx, attr->items[i].expr, DS_NUM_INT, attr->loc))
            return false;
    return true;
}

static const char *type_phrase(const entry *e) {
    static const struct {
        const char *type, *phrase;
    } phrases[] = {
        {"bool", "true or false"},
        {"int", "an integer"},
        {"real", "a number"},
        {"str", "a word or a string"},
        {"dtype", "a dtype"},
        {"time", "a time, such as 3 us"},
        {"ints", "an integer or a list of integers"},
    };
    for (size_t i = 0; i < sizeof phrases / sizeof *phrases; i++)
        if (type_is(e, phrases[i].type)) return phrases[i].phrase;
    return "something else";
}

/* A str attribute is a word or a string as written; a param of that name hides the word. */
static ds_status wrong_type(const ds_infer *ctx, const ds_attr *attr, const entry *e,
                            const char *who, ds_error *err) {
    const ds_expr_node *node =
        attr->kind == DS_ATTR_EXPR ? ds_expr_at(&ctx->unit->exprs, attr->expr) : NULL;
    if (type_is(e, "str") && node && node->kind == DS_EXPR_PARAM)
        return ds_error_set(err, DS_ERR_TYPE, attr->loc,
                            "%s: attribute '%s' must be a word or a string, but '%s' is a param; "
                            "write %s = \"%s\"",
                            who, attr->name, node->name, attr->name, node->name);
    return ds_error_set(err, DS_ERR_TYPE, attr->loc, "%s: attribute '%s' must be %s", who,
                        attr->name, type_phrase(e));
}

static ds_status check_choice(const ds_infer *ctx, const ds_attr *attr, const entry *e,
                              const char *who, ds_error *err) {
    names choices = {0};
    const char *text = ds_attr_text(&ctx->unit->exprs, attr);
    for (const char *at = e->choices, *end = at + e->choices_n; at < end;) {
        size_t n = strcspn(at, ",}");
        if (strlen(text) == n && strncmp(at, text, n) == 0) return DS_OK;
        add_name(ctx, &choices, at, n);
        at += n + 1;
    }
    if (choices.n == 1)
        return ds_error_set(err, DS_ERR_VALUE, attr->loc,
                            "%s: %s \"%.40s\" is unknown; the only choice is \"%s\"", who,
                            attr->name, text, choices.at[0]);
    const char *near = ds_suggest(text, choices.at, choices.n);
    return ds_error_set(err, DS_ERR_VALUE, attr->loc, "%s: %s \"%.40s\" is none of %s%s%s%s", who,
                        attr->name, text, joined(ctx, &choices), near ? "; did you mean '" : "",
                        near ? near : "", near ? "'?" : "");
}

static bool is_literal(const ds_exprs *exprs, ds_expr e) {
    const ds_expr_node *node = ds_expr_at(exprs, e);
    if (node->kind == DS_EXPR_NEG) node = ds_expr_at(exprs, node->a);
    return node->kind == DS_EXPR_INT || node->kind == DS_EXPR_REAL;
}

/* A time is 0, or at least a picosecond: one that rounds to 0 is a mistake in its unit. Without an
 * env, one that is no literal passes. */
static ds_status check_time(const ds_infer *ctx, const ds_attr *attr, const char *who,
                            ds_error *err) {
    const ds_env literals = {.exprs = &ctx->unit->exprs};
    if (!ctx->env && !is_literal(literals.exprs, attr->expr)) return DS_OK;
    const ds_env *env = ctx->env ? ctx->env : &literals;
    int64_t ps;
    ds_num number;
    ds_error why = {0};
    if (ds_quantity_eval(env, (ds_quantity){attr->expr, attr->unit}, 'T', 1e12, attr->loc, &ps,
                         &why) != DS_OK)
        return ds_error_set(err, why.code, attr->loc, "%s: '%s': %s", who, attr->name, why.message);
    if (ps > 0) return DS_OK;
    DS_TRY(ds_expr_eval(env, attr->expr, attr->loc, &number, err));
    if (number.kind == DS_NUM_INT ? number.i == 0 : number.r == 0) return DS_OK;
    return ds_error_set(err, DS_ERR_VALUE, attr->loc,
                        "%s: '%s' is less than 1 ps, the shortest time but 0", who, attr->name);
}

ds_status ds_op_check_attr(const ds_infer *ctx, const ds_attr *attr, const char *const *specs,
                           uint32_t n_specs, const char *who, ds_error *err) {
    entry e;
    if (attr->quoted_name || !find_in(specs, n_specs, attr->name, &e))
        return unknown_attr(ctx, attr, specs, n_specs, who, err);
    if (!attr_fits(ctx, attr, &e)) return wrong_type(ctx, attr, &e, who, err);
    if (e.choices) return check_choice(ctx, attr, &e, who, err);
    return type_is(&e, "time") ? check_time(ctx, attr, who, err) : DS_OK;
}

#define DS_OPS_MOST_CHUNKS 65536

static ds_status check_chunks(const ds_infer *ctx, const ds_attr *attr, ds_error *err) {
    int64_t chunks = 1;
    bool known;
    if (!attr) return DS_OK;
    DS_TRY(ds_ops__int(&ctx->unit->exprs, ctx->env, attr->expr, attr->loc, &chunks, &known, err));
    if (!known || (chunks >= 1 && chunks <= DS_OPS_MOST_CHUNKS)) return DS_OK;
    return ds_error_set(err, DS_ERR_VALUE, attr->loc, "%s: chunks = %lld: 1 to %d are possible",
                        ds_op_name(ctx->op->code), (long long)chunks, DS_OPS_MOST_CHUNKS);
}

ds_status ds_ops__check_attrs(const ds_infer *ctx, const ds_op_desc *desc, ds_error *err) {
    const ds_op *op = ctx->op;
    const char *specs[N_SPECS];
    specs_of(desc, specs);
    for (uint32_t i = 0; i < op->n_attrs; i++)
        DS_TRY(ds_op_check_attr(ctx, &op->attrs[i], specs, N_SPECS, desc->name, err));
    if (desc->flags & DS_OPF_COLLECTIVE) DS_TRY(check_chunks(ctx, attr_of(op, "chunks"), err));
    entry e;
    for (const char *at = desc->attrs ? desc->attrs : ""; next_entry(&at, &e);) {
        bool given = false;
        for (uint32_t i = 0; i < op->n_attrs; i++) given |= entry_is(&e, op->attrs[i].name);
        if (e.required && !given)
            return ds_error_set(err, DS_ERR_TYPE, op->loc, "%s needs the attribute '%.*s' (%s)",
                                desc->name, (int)e.name_n, e.name, type_phrase(&e));
    }
    return DS_OK;
}

/* ---- reading ---- */

/* The default's text, NULL if there is none. It ends at a blank or the end of the spec. */
static const char *default_of(const ds_op *op, const char *name, size_t *n) {
    const ds_op_desc *desc = ds_op_desc_of(op->code);
    entry e;
    if (!desc || !find_entry(desc, name, &e)) return NULL;
    if (n) *n = e.value_n;
    return e.value;
}

static ds_status wrong_kind(const ds_op *op, const ds_attr *attr, const char *wanted,
                            ds_error *err) {
    return ds_error_set(err, DS_ERR_TYPE, attr->loc, "%s: attribute '%s' must be %s",
                        ds_op_name(op->code), attr->name, wanted);
}

ds_status ds_ops__int(const ds_exprs *exprs, const ds_env *env, ds_expr e, ds_loc loc, int64_t *out,
                      bool *known, ds_error *err) {
    *known = true;
    if (ds_expr_is_int(exprs, e, out)) return DS_OK;
    const ds_expr_node *node = ds_expr_at(exprs, e);
    if (node->kind == DS_EXPR_NEG && ds_expr_is_int(exprs, node->a, out) && *out != INT64_MIN) {
        *out = -*out;
        return DS_OK;
    }
    *known = env != NULL;
    return env ? ds_expr_eval_int(env, e, loc, out, err) : DS_OK;
}

ds_status ds_ops__at_least(const ds_infer *ctx, const char *name, ds_expr e, int64_t least,
                           ds_error *err) {
    int64_t value = 0;
    bool known;
    DS_TRY(ds_ops__int(&ctx->unit->exprs, ctx->env, e, ctx->op->loc, &value, &known, err));
    if (!known || value >= least) return DS_OK;
    return ds_error_set(err, DS_ERR_VALUE, ctx->op->loc,
                        "%s: '%s' is %lld, but must be at least %lld", ds_op_name(ctx->op->code),
                        name, (long long)value, (long long)least);
}

ds_status ds_op_attr_int(const ds_op *op, const ds_env *env, const char *name, int64_t *out,
                         ds_error *err) {
    const ds_attr *attr = attr_of(op, name);
    if (attr) {
        if (attr->kind != DS_ATTR_EXPR) return wrong_kind(op, attr, "an integer", err);
        return ds_expr_eval_int(env, attr->expr, attr->loc, out, err);
    }
    const char *value = default_of(op, name, NULL);
    if (value) *out = strtoll(value, NULL, 10);
    return DS_OK;
}

ds_status ds_op_attr_real(const ds_op *op, const ds_env *env, const char *name, double *out,
                          ds_error *err) {
    const ds_attr *attr = attr_of(op, name);
    if (attr) {
        if (attr->kind != DS_ATTR_EXPR) return wrong_kind(op, attr, "a number", err);
        return ds_expr_eval_real(env, attr->expr, attr->loc, out, err);
    }
    const char *value = default_of(op, name, NULL);
    if (value) *out = strtod(value, NULL);
    return DS_OK;
}

bool ds_op_attr_bool(const ds_op *op, const char *name) {
    const ds_attr *attr = attr_of(op, name);
    if (attr) return attr->kind == DS_ATTR_BOOL && attr->flag;
    const char *value = default_of(op, name, NULL);
    return value && strncmp(value, "true", 4) == 0;
}

const char *ds_ops__attr_text(const ds_op *op, const ds_exprs *exprs, const char *name) {
    return ds_attr_text(exprs, attr_of(op, name));
}

const char *ds_op_attr_str(const ds_op *op, const ds_unit *unit, const char *name) {
    return ds_ops__attr_text(op, &unit->exprs, name);
}

ds_status ds_ops__attr_literal(const ds_rule_args *args, const char *name, int64_t *out,
                               ds_error *err) {
    const ds_attr *attr = attr_of(args->op, name);
    if (!attr) return ds_op_attr_int(args->op, args->env, name, out, err);
    if (attr->kind != DS_ATTR_EXPR) return wrong_kind(args->op, attr, "an integer", err);
    bool known;
    DS_TRY(ds_ops__int(args->exprs, NULL, attr->expr, attr->loc, out, &known, err));
    if (known) return DS_OK;
    return ds_error_set(
        err, DS_ERR_TYPE, attr->loc,
        "%s: attribute '%s' must be a literal integer, since the types depend on it",
        ds_op_name(args->op->code), name);
}

static ds_status in_rank(const ds_op *op, const char *name, int64_t dim, uint32_t rank, ds_loc loc,
                         uint32_t *out, ds_error *err) {
    int64_t at = dim < 0 ? dim + rank : dim;
    if (at < 0 || at >= rank)
        return ds_error_set(err, DS_ERR_VALUE, loc,
                            "%s: '%s' is %lld, but the operand has %u dim%s", ds_op_name(op->code),
                            name, (long long)dim, rank, rank == 1 ? "" : "s");
    *out = (uint32_t)at;
    return DS_OK;
}

ds_status ds_ops__attr_dim(const ds_rule_args *args, const char *name, uint32_t rank, uint32_t *out,
                           ds_error *err) {
    int64_t dim = 0;
    DS_TRY(ds_ops__attr_literal(args, name, &dim, err));
    const ds_attr *attr = attr_of(args->op, name);
    return in_rank(args->op, name, dim, rank, attr ? attr->loc : args->op->loc, out, err);
}

ds_status ds_ops__attr_dims(const ds_rule_args *args, const char *name, uint32_t rank,
                            uint32_t out[DS_MAX_RANK], uint32_t *n, ds_error *err) {
    const ds_attr *attr = attr_of(args->op, name);
    *n = ds_ops__attr_n(args->op, name);
    if (*n > rank)
        return ds_error_set(err, DS_ERR_VALUE, attr->loc, "%s: '%s' has %u entries for %u dim%s",
                            ds_op_name(args->op->code), name, *n, rank, rank == 1 ? "" : "s");
    for (uint32_t i = 0; i < *n; i++) {
        bool known;
        int64_t dim = 0;
        ds_expr e = attr->kind == DS_ATTR_LIST ? attr->items[i].expr : attr->expr;
        DS_TRY(ds_ops__int(args->exprs, NULL, e, attr->loc, &dim, &known, err));
        if (!known) return wrong_kind(args->op, attr, "literal integers", err);
        DS_TRY(in_rank(args->op, name, dim, rank, attr->loc, &out[i], err));
        for (uint32_t j = 0; j < i; j++)
            if (out[j] == out[i])
                return ds_error_set(err, DS_ERR_VALUE, attr->loc, "%s: '%s' names dim %u twice",
                                    ds_op_name(args->op->code), name, out[i]);
    }
    return DS_OK;
}

uint32_t ds_ops__attr_n(const ds_op *op, const char *name) {
    const ds_attr *attr = attr_of(op, name);
    if (!attr) return 0;
    return attr->kind == DS_ATTR_LIST ? attr->n_items : 1;
}

static const ds_attr *item_of(const ds_attr *attr, uint32_t i) {
    if (attr->kind != DS_ATTR_LIST) return attr;
    if (attr->n_items == 0) return NULL;
    return &attr->items[i < attr->n_items ? i : attr->n_items - 1];
}

ds_expr ds_ops__attr_item(ds_exprs *exprs, const ds_op *op, const char *name, uint32_t i) {
    const ds_attr *attr = attr_of(op, name);
    if (attr) {
        const ds_attr *item = item_of(attr, i);
        return item && item->kind == DS_ATTR_EXPR ? item->expr : DS_NO_EXPR;
    }
    const char *value = default_of(op, name, NULL);
    return value ? ds_expr_int(exprs, strtoll(value, NULL, 10)) : DS_NO_EXPR;
}

ds_status ds_ops__attr_item_int(const ds_op *op, const ds_env *env, const char *name, uint32_t i,
                                int64_t *out, ds_error *err) {
    const ds_attr *attr = attr_of(op, name);
    if (!attr || attr->kind != DS_ATTR_LIST) return ds_op_attr_int(op, env, name, out, err);
    const ds_attr *item = item_of(attr, i);
    if (!item || item->kind != DS_ATTR_EXPR)
        return wrong_kind(op, attr, "an integer or a list of integers", err);
    return ds_expr_eval_int(env, item->expr, attr->loc, out, err);
}
