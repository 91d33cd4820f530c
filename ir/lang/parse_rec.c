/* Regions `rec`: equations in any order over temporal dims.
 *
 * A name may be used before the equation that defines it. Such a use makes the value at once; the
 * equation, once it comes, takes the value over. What no equation took over at the region's end is
 * not defined. */
#include "ir/lang/parse.h"

typedef struct ds_open_rec {
    ds_loc loc;
    uint32_t block;        /* ds_parser.blocks inside the region, outside of the regions in it */
    uint32_t visible_from; /* a local region in the rec names its operands alone */
    DS_VEC(ds_value) ahead;
} ds_open_rec;

/* ---- names ---- */

static bool at_equations(const ds_parser *p) {
    return p->rec && p->blocks == p->rec->block;
}

bool ds_parser_ahead(ds_parser *p, const ds_token *name, ds_value *out) {
    ds_open_rec *rec = p->rec;
    if (!rec || p->visible_from != rec->visible_from || p->status) return false;
    for (uint32_t i = 0; i < rec->ahead.n; i++) {
        *out = rec->ahead.at[i];
        if (ds_value_at(p->func, *out)->name == name->name) return true;
    }
    out->i = p->func->values.n;
    DS_PUSH(p->arena, &p->func->values, ((ds_value_info){.name = name->name, .loc = name->loc}));
    DS_PUSH(p->arena, &rec->ahead, *out);
    return true;
}

ds_value ds_parser_define_result(ds_parser *p, const char *name, ds_loc loc) {
    if (!at_equations(p)) return ds_parser_define(p, name, loc);
    ds_open_rec *rec = p->rec;
    ds_value value = {UINT32_MAX};
    for (uint32_t i = 0; i < rec->ahead.n; i++) {
        if (ds_value_at(p->func, rec->ahead.at[i])->name != name) continue;
        value = rec->ahead.at[i];
        rec->ahead.at[i] = rec->ahead.at[--rec->ahead.n];
        break;
    }
    if (value.i == UINT32_MAX)
        value = ds_parser_define(p, name, loc);
    else
        ds_parser_bind(p, value);
    ds_value_at(p->func, value)->loc = loc;
    ds_value_at(p->func, value)->in_rec = true;
    return value;
}

/* Reports the first name that has no equation. */
static void check_ahead(ds_parser *p) {
    const ds_value_info *first = NULL;
    for (uint32_t i = 0; i < p->rec->ahead.n; i++) {
        const ds_value_info *info = ds_value_at(p->func, p->rec->ahead.at[i]);
        if (!first || info->loc.line < first->loc.line ||
            (info->loc.line == first->loc.line && info->loc.col < first->loc.col))
            first = info;
    }
    if (!first) return;
    const char *near = ds_parser_suggest_value(p, first->name);
    ds_parser_fail(p, DS_ERR_NAME, first->loc,
                   near ? "%%%s has no equation in this rec; did you mean %%%s?"
                        : "%%%s has no equation in this rec, and is not defined before it",
                   first->name, near);
}

/* ---- %k{l} = ---- */

static bool states(const ds_targets *left, const char *name) {
    for (uint32_t i = 0; i < left->n_dims; i++)
        if (left->dims[i].name == name) return true;
    return false;
}

void ds_parse_stated_dims(ds_parser *p, ds_targets *left) {
    DS_VEC(ds_binder) dims = {0};
    if (!at_equations(p))
        ds_parser_fail(p, DS_ERR_SYNTAX, p->tok.loc,
                       "a value has dims on the left of '=' in a rec alone; a loop makes a family "
                       "by 'keep'");
    ds_parser_advance(p);
    do {
        ds_token name = ds_parser_expect(p, DS_TOK_NAME, "of a dim of the rec");
        if (p->status) return;
        if (!ds_parser_has_index(p, name.name))
            ds_parser_fail(p, DS_ERR_NAME, name.loc, "'%s' is no dim of this rec", name.name);
        DS_PUSH(p->arena, &dims, ((ds_binder){.name = name.name, .loc = name.loc}));
    } while (ds_parser_accept(p, DS_TOK_COMMA));
    ds_parser_expect(p, DS_TOK_RBRACE, "after the dims");
    /* One op has one set of dims, whichever of its results says so. */
    for (uint32_t i = 0; left->n_dims && i < dims.n; i++)
        if (left->n_dims != dims.n || !states(left, dims.at[i].name))
            ds_parser_fail(p, DS_ERR_SYNTAX, dims.at[i].loc,
                           "the results of one op have the same dims");
    left->dims = dims.at;
    left->n_dims = dims.n;
}

/* ---- rec ---- */

static void parse_header(ds_parser *p, ds_op *op) {
    DS_VEC(ds_binder) dims = {0};
    ds_parser_expect(p, DS_TOK_LPAREN, "before the dims, as in 'rec (t in 0..T)'");
    do {
        ds_token name = ds_parser_expect_new_name(p, "for a dim");
        ds_binder dim = {.name = name.name, .loc = name.loc};
        ds_parser_expect_word(p, "in", "after the dim's name");
        ds_parse_range(p, &dim.lo, &dim.hi);
        DS_PUSH(p->arena, &dims, dim);
    } while (ds_parser_accept(p, DS_TOK_COMMA) && dims.n < DS_MAX_REC_DIMS);
    if (dims.n == DS_MAX_REC_DIMS && !ds_parser_at(p, DS_TOK_RPAREN))
        ds_parser_fail(p, DS_ERR_LIMIT, p->tok.loc, "a rec has at most %d dims", DS_MAX_REC_DIMS);
    ds_parser_expect(p, DS_TOK_RPAREN, "after the dims");
    op->dims = dims.at;
    op->n_dims = dims.n;
    if (ds_parser_at(p, DS_TOK_LBRACE) && ds_parser_peek(p, 1)->kind == DS_TOK_NAME &&
        ds_parser_peek(p, 2)->kind == DS_TOK_ASSIGN)
        ds_parse_attrs(p, &op->attrs, &op->n_attrs);
}

void ds_parse_rec(ds_parser *p, ds_op *op, const ds_targets *left) {
    uint32_t scope = p->undo.n, mark = p->indices.n;
    ds_open_rec *around = p->rec;
    if (around)
        ds_parser_fail(p, DS_ERR_SYNTAX, op->loc,
                       "a rec inside the rec of line %u: put its dims into the header there",
                       around->loc.line);
    ds_open_rec rec = {.loc = op->loc, .block = p->blocks + 1, .visible_from = p->visible_from};
    if (left->n_dims)
        ds_parser_fail(p, DS_ERR_SYNTAX, left->dims[0].loc,
                       "a rec gives each result the dims of what it yields");
    parse_header(p, op);
    for (uint32_t i = 0; i < op->n_dims; i++)
        ds_parser_push_index(p, op->dims[i].name, op->dims[i].loc);
    p->rec = &rec;
    op->body = ds_parse_region(p, op);
    check_ahead(p);
    p->rec = around;
    ds_parser_close_scope(p, scope);
    ds_parser_define_results(p, op, left);
    ds_parse_result_types(p, op);
    ds_parser_pop_indices(p, mark);
}

/* ---- case ---- */

void ds_parse_case(ds_parser *p, ds_op *op, const ds_targets *left) {
    DS_VEC(ds_expr) conds = {0};
    DS_VEC(ds_use) uses = {0};
    if (!at_equations(p))
        ds_parser_fail(p, DS_ERR_SYNTAX, op->loc, "'case' is an equation of a rec");
    if (left->names.n != 1)
        ds_parser_fail(p, DS_ERR_SYNTAX, op->loc, "'case' has one result, as in %%x = case …");
    bool last = false;
    while (!last && !p->status) {
        last = ds_parser_accept_word(p, "else");
        if (!last) DS_PUSH(p->arena, &conds, ds_parse_expr(p));
        ds_parser_expect(p, DS_TOK_COLON, last ? "after 'else'" : "after the condition");
        DS_PUSH(p->arena, &uses, ds_parse_use(p));
        if (!last) ds_parser_expect(p, DS_TOK_COMMA, "and 'else: %…' after the branch");
    }
    op->conds = conds.at;
    op->n_conds = conds.n;
    op->in = uses.at;
    op->n_in = uses.n;
    if (ds_parser_at(p, DS_TOK_LBRACE)) ds_parse_attrs(p, &op->attrs, &op->n_attrs);
    ds_parser_define_results(p, op, left);
    ds_parse_result_types(p, op);
}
