/* Ops: results, mnemonic, operands, clauses, attributes, types; for, local, call, yield, weight. */
#include "ir/lang/parse.h"

#include "ir/ops/ops.h"

#include <stdlib.h>
#include <string.h>

/* ---- values ---- */

/* Is the value what its name stands for now, and not hidden by a local region? */
static bool is_visible(const ds_parser *p, uint32_t i) {
    const uint64_t *at = ds_map_find(&p->values, DS_KEY(p->func->values.at[i].name));
    return i >= p->visible_from && at && *at == (uint64_t)i + 1;
}

const char *ds_parser_suggest_value(const ds_parser *p, const char *name) {
    DS_VEC(const char *) visible = {0};
    for (uint32_t i = p->visible_from; i < p->func->values.n; i++)
        if (is_visible(p, i)) DS_HPUSH(&visible, p->func->values.at[i].name);
    const char *near = ds_parser_suggest(name, visible.at, visible.n);
    free(visible.at);
    return near;
}

/* The last value of that name that is out of sight, or NULL. */
static const ds_value_info *hidden_value(const ds_parser *p, const char *name, bool *outside) {
    for (uint32_t i = p->func->values.n; i-- > 0;) {
        if (p->func->values.at[i].name != name) continue;
        *outside = i < p->visible_from;
        return &p->func->values.at[i];
    }
    return NULL;
}

static void undefined_value(ds_parser *p, const char *name, ds_loc loc) {
    bool outside = false;
    const ds_value_info *hidden = hidden_value(p, name, &outside);
    const char *near = ds_parser_suggest_value(p, name);
    if (hidden && outside)
        ds_parser_fail(p, DS_ERR_NAME, loc,
                       "%%%s is defined outside, on line %u; a local region sees only the operands "
                       "that it lists",
                       name, hidden->loc.line);
    else if (hidden)
        ds_parser_fail(
            p, DS_ERR_NAME, loc,
            "%%%s is defined inside a region, on line %u, and ends with it; yield or keep "
            "it there",
            name, hidden->loc.line);
    else if (near)
        ds_parser_fail(p, DS_ERR_NAME, loc, "%%%s is not defined here; did you mean %%%s?", name,
                       near);
    else
        ds_parser_fail(p, DS_ERR_NAME, loc, "%%%s is not defined here", name);
}

static void parse_use_indices(ds_parser *p, ds_use *use) {
    DS_VEC(ds_expr) lo = {0}, hi = {0};
    bool any_range = false;
    ds_parser_advance(p);
    do {
        DS_PUSH(p->arena, &lo, ds_parse_expr(p));
        bool is_range = ds_parser_accept(p, DS_TOK_COLON);
        DS_PUSH(p->arena, &hi, is_range ? ds_parse_expr(p) : DS_NO_EXPR);
        any_range = any_range || is_range;
    } while (ds_parser_accept(p, DS_TOK_COMMA));
    ds_parser_expect(p, DS_TOK_RBRACE, "after the family's index");
    use->index = lo.at;
    use->index_hi = any_range ? hi.at : NULL;
    use->n_index = lo.n;
}

typedef DS_VEC(ds_use) uses;

/* A loop whose body is read: the body may name the families that the loop keeps. */
typedef struct ds_open_loop {
    const ds_targets *left;
    uint32_t n_carried;    /* the names after those are kept */
    uint32_t visible_from; /* a local region in the loop names its operands alone */
    ds_value *own;         /* one a name of the left: made by its first use, else UINT32_MAX */
    struct ds_open_loop *up;
} ds_open_loop;

static bool own_family(ds_parser *p, const ds_token *name, ds_value *out) {
    for (ds_open_loop *loop = p->loop; loop && loop->visible_from == p->visible_from && !p->status;
         loop = loop->up)
        for (uint32_t k = loop->n_carried; k < loop->left->names.n; k++) {
            const ds_token *left = &loop->left->names.at[k];
            if (left->name != name->name) continue;
            if (loop->own[k].i == UINT32_MAX) {
                loop->own[k].i = p->func->values.n;
                DS_PUSH(p->arena, &p->func->values,
                        ((ds_value_info){.name = left->name, .loc = left->loc}));
            }
            *out = loop->own[k];
            return true;
        }
    return false;
}

ds_use ds_parse_use(ds_parser *p) {
    ds_token name = ds_parser_expect(p, DS_TOK_VALUE, "as an operand");
    ds_use use = {.loc = name.loc};
    const uint64_t *at = ds_map_find(&p->values, DS_KEY(name.name));
    if (at && *at > p->visible_from)
        use.value.i = (uint32_t)(*at - 1);
    else if (!own_family(p, &name, &use.value) && !ds_parser_ahead(p, &name, &use.value))
        undefined_value(p, name.name, name.loc);
    if (ds_parser_at(p, DS_TOK_LBRACE) && p->tok.glued) parse_use_indices(p, &use);
    return use;
}

static void parse_operands(ds_parser *p, uses *list) {
    while (ds_parser_more(p, DS_TOK_RPAREN)) {
        DS_PUSH(p->arena, list, ds_parse_use(p));
        if (!ds_parser_accept(p, DS_TOK_COMMA)) break;
    }
    ds_parser_expect(p, DS_TOK_RPAREN, "after the operands");
}

static void set_operands(ds_op *op, const uses *list) {
    op->in = list->at;
    op->n_in = list->n;
}

/* %a, %b after yield, keep and return, where nothing closes the list. */
static void parse_open_operands(ds_parser *p, uses *list) {
    if (!ds_parser_at(p, DS_TOK_VALUE)) return;
    do DS_PUSH(p->arena, list, ds_parse_use(p));
    while (ds_parser_accept(p, DS_TOK_COMMA));
}

void ds_parser_define_results(ds_parser *p, ds_op *op, const ds_targets *left) {
    op->n_out = left->names.n;
    op->out = DS_NEW_N(p->arena, ds_value, op->n_out);
    for (uint32_t k = 0; k < op->n_out; k++) {
        op->out[k] = ds_parser_define_result(p, left->names.at[k].name, left->names.at[k].loc);
        ds_value_at(p->func, op->out[k])->def = op;
    }
}

/* A family's type may spell its index: `{l: 0..n} f32[…]`. */
void ds_parse_result_types(ds_parser *p, ds_op *op) {
    if (!ds_parser_accept(p, DS_TOK_COLON)) return;
    for (uint32_t k = 0; k < op->n_out; k++) {
        if (k > 0) ds_parser_expect(p, DS_TOK_COMMA, "before the type of the next result");
        ds_value_info *info = ds_value_at(p->func, op->out[k]);
        uint32_t mark = p->indices.n;
        if (ds_parser_at(p, DS_TOK_LBRACE) && !info->n_binders)
            ds_parse_binders(p, &info->binders, &info->n_binders);
        info->type = ds_parse_type(p);
        info->type_written = true;
        ds_parser_pop_indices(p, mark);
    }
    if (op->n_out == 0)
        ds_parser_fail(p, DS_ERR_TYPE, p->tok.loc, "a type needs a result: %%x = … : type");
}

/* ---- clauses ---- */

static void refuse_twice(ds_parser *p, bool given, const char *clause) {
    if (given) ds_parser_fail(p, DS_ERR_SYNTAX, p->tok.loc, "'%s' is given twice", clause);
}

/* `over dp` or `over (dp, tp)` */
static void parse_over(ds_parser *p, ds_op *op) {
    DS_VEC(const char *) axes = {0};
    refuse_twice(p, op->n_over > 0, "over");
    if (ds_parser_accept(p, DS_TOK_LPAREN)) {
        do DS_PUSH(p->arena, &axes, ds_parser_expect(p, DS_TOK_NAME, "of a mesh axis").name);
        while (ds_parser_accept(p, DS_TOK_COMMA));
        ds_parser_expect(p, DS_TOK_RPAREN, "after the axes");
    } else {
        DS_PUSH(p->arena, &axes, ds_parser_expect(p, DS_TOK_NAME, "of a mesh axis").name);
    }
    op->over = axes.at;
    op->n_over = axes.n;
}

static void parse_across(ds_parser *p, ds_op *op) {
    refuse_twice(p, op->across, "across");
    op->across = true;
}

static void parse_group(ds_parser *p, ds_op *op) {
    DS_VEC(ds_expr) ranks = {0};
    refuse_twice(p, op->has_group, "group");
    ds_parser_expect(p, DS_TOK_LPAREN, "before the ranks of the group");
    while (ds_parser_more(p, DS_TOK_RPAREN)) {
        DS_PUSH(p->arena, &ranks, ds_parse_expr(p));
        if (!ds_parser_accept(p, DS_TOK_COMMA)) break;
    }
    ds_parser_expect(p, DS_TOK_RPAREN, "after the ranks of the group");
    op->has_group = true;
    op->group = ranks.at;
    op->n_group = ranks.n;
}

static void parse_dim(ds_parser *p, ds_op *op) {
    refuse_twice(p, DS_HAS_EXPR(op->dim), "dim");
    op->dim = ds_parse_expr(p);
    if (ds_parser_accept(p, DS_TOK_ARROW)) op->dim_to = ds_parse_expr(p);
}

/* `to @m`, `to (@a, @b)`, `to 1` */
static void parse_to(ds_parser *p, ds_op *op) {
    DS_VEC(ds_place) places = {0};
    refuse_twice(p, op->n_to > 0 || DS_HAS_EXPR(op->to_rank), "to");
    if (ds_parser_at(p, DS_TOK_SYMBOL)) {
        DS_PUSH(p->arena, &places, ds_parse_place(p));
    } else if (ds_parser_at(p, DS_TOK_LPAREN) && ds_parser_peek(p, 1)->kind == DS_TOK_SYMBOL) {
        ds_parser_advance(p);
        do DS_PUSH(p->arena, &places, ds_parse_place(p));
        while (ds_parser_accept(p, DS_TOK_COMMA));
        ds_parser_expect(p, DS_TOK_RPAREN, "after the places");
    } else {
        op->to_rank = ds_parse_expr(p);
    }
    op->to = places.at;
    op->n_to = places.n;
}

static void parse_from(ds_parser *p, ds_op *op) {
    refuse_twice(p, DS_HAS_EXPR(op->from_rank), "from");
    if (ds_parser_at(p, DS_TOK_SYMBOL))
        ds_parser_fail(p, DS_ERR_SYNTAX, p->tok.loc,
                       "'from' takes a rank; a value knows the place it comes from");
    op->from_rank = ds_parse_expr(p);
}

static void parse_tag(ds_parser *p, ds_op *op) {
    refuse_twice(p, DS_HAS_EXPR(op->tag), "tag");
    op->tag = ds_parse_expr(p);
}

static void parse_clauses(ds_parser *p, ds_op *op) {
    static const struct {
        const char *word;
        void (*parse)(ds_parser *p, ds_op *op);
    } clauses[] = {{"over", parse_over}, {"across", parse_across}, {"group", parse_group},
                   {"dim", parse_dim},   {"to", parse_to},         {"from", parse_from},
                   {"tag", parse_tag}};
    const size_t n = sizeof clauses / sizeof clauses[0];
    for (size_t k = 0; k < n;) {
        if (ds_parser_accept_word(p, clauses[k].word)) {
            clauses[k].parse(p, op);
            k = 0;
        } else {
            k++;
        }
    }
}

/* ---- structural ops ---- */

/* %h: T = %x, …: the initial values are read outside, the names live inside. */
typedef struct carry {
    ds_token name;
    ds_binder *binders; /* %h{l: 0..n}: a family */
    uint32_t n_binders;
    ds_type *type;
} carry;

static void parse_carries(ds_parser *p, ds_op *op) {
    DS_VEC(carry) carries = {0};
    uses initial = {0};
    ds_parser_expect(p, DS_TOK_LPAREN, "after 'carry'");
    while (ds_parser_more(p, DS_TOK_RPAREN)) {
        carry c = {.name = ds_parser_expect(p, DS_TOK_VALUE, "as a carried value")};
        uint32_t mark = p->indices.n;
        if (ds_parser_at(p, DS_TOK_LBRACE) && p->tok.glued)
            ds_parse_binders(p, &c.binders, &c.n_binders);
        if (ds_parser_accept(p, DS_TOK_COLON)) c.type = ds_parse_type(p);
        ds_parser_pop_indices(p, mark);
        ds_parser_expect(p, DS_TOK_ASSIGN, "before the initial value");
        DS_PUSH(p->arena, &initial, ds_parse_use(p));
        DS_PUSH(p->arena, &carries, c);
        if (!ds_parser_accept(p, DS_TOK_COMMA)) break;
    }
    ds_parser_expect(p, DS_TOK_RPAREN, "after the carried values");
    set_operands(op, &initial);
    op->n_args = carries.n;
    op->args = DS_NEW_N(p->arena, ds_value, carries.n);
    for (uint32_t k = 0; k < carries.n; k++) {
        op->args[k] = ds_parser_define(p, carries.at[k].name.name, carries.at[k].name.loc);
        ds_value_info *info = ds_value_at(p->func, op->args[k]);
        info->is_arg = true;
        info->def = op;
        info->type = carries.at[k].type;
        info->type_written = info->type != NULL;
        info->binders = carries.at[k].binders;
        info->n_binders = carries.at[k].n_binders;
        const ds_value_info *init = ds_value_at(p->func, op->in[k].value);
        if (info->n_binders || op->in[k].n_index) continue;
        info->binders = init->binders;
        info->n_binders = init->n_binders;
    }
}

/* The kept values of a loop are families over its index, and over their own if they are kept whole.
 */
static void set_family(ds_parser *p, const ds_op *loop, const ds_use *kept, ds_value_info *info) {
    const ds_value_info *inner =
        kept && kept->n_index == 0 ? ds_value_at(p->func, kept->value) : NULL;
    uint32_t n_inner = inner ? inner->n_binders : 0;
    info->n_binders = 1 + n_inner;
    info->binders = DS_NEW_N(p->arena, ds_binder, info->n_binders);
    info->binders[0] = (ds_binder){loop->index, loop->lo, loop->hi, loop->loc};
    if (n_inner) memcpy(info->binders + 1, inner->binders, n_inner * sizeof *info->binders);
}

static void set_families(ds_parser *p, ds_op *loop) {
    const ds_block *body = loop->body;
    const ds_op *yield = body->n_ops ? body->ops[body->n_ops - 1] : NULL;
    if (yield && yield->code != DS_OP_YIELD) yield = NULL;
    for (uint32_t k = 0; k < loop->n_args && k < loop->n_out; k++) {
        ds_value_info *out = ds_value_at(p->func, loop->out[k]);
        out->binders = ds_value_at(p->func, loop->args[k])->binders;
        out->n_binders = ds_value_at(p->func, loop->args[k])->n_binders;
    }
    for (uint32_t k = loop->n_args; k < loop->n_out; k++) {
        const ds_use *kept = NULL;
        if (yield && k - loop->n_args < yield->n_keep)
            kept = &yield->in[yield->n_in - yield->n_keep + (k - loop->n_args)];
        set_family(p, loop, kept, ds_value_at(p->func, loop->out[k]));
    }
}

/* Names that the types after the loop's `}` may mention: its index and the inner families'. */
static void push_family_indices(ds_parser *p, const ds_op *loop) {
    for (uint32_t k = 0; k < loop->n_out; k++) {
        const ds_value_info *info = ds_value_at(p->func, loop->out[k]);
        for (uint32_t b = 0; b < info->n_binders; b++)
            if (!ds_parser_has_index(p, info->binders[b].name))
                ds_parser_push_index(p, info->binders[b].name, info->binders[b].loc);
    }
}

ds_block *ds_parse_region(ds_parser *p, ds_op *op) {
    ds_block *body = DS_NEW(p->arena, ds_block);
    if (ds_parser_enter(p)) {
        ds_parse_block(p, body, &op->trivia);
        ds_parser_leave(p);
    }
    return body;
}

/* A result that the body has read is there already. */
static void define_loop_results(ds_parser *p, ds_op *op, const ds_open_loop *open) {
    op->n_out = open->left->names.n;
    op->out = DS_NEW_N(p->arena, ds_value, op->n_out);
    for (uint32_t k = 0; k < op->n_out; k++) {
        const ds_token *name = &open->left->names.at[k];
        op->out[k] = open->own[k];
        if (op->out[k].i == UINT32_MAX)
            op->out[k] = ds_parser_define_result(p, name->name, name->loc);
        else
            ds_parser_bind(p, op->out[k]);
        ds_value_at(p->func, op->out[k])->def = op;
    }
}

static void parse_for(ds_parser *p, ds_op *op, const ds_targets *left) {
    uint32_t scope = p->undo.n, mark = p->indices.n;
    ds_token index = ds_parser_expect_new_name(p, "for the loop's index");
    op->index = index.name;
    ds_parser_expect_word(p, "in", "after the loop's index");
    ds_parse_range(p, &op->lo, &op->hi);
    ds_parser_push_index(p, index.name, index.loc);
    if (ds_parser_accept_word(p, "carry")) parse_carries(p, op);
    ds_open_loop open = {left, op->n_args, p->visible_from, NULL, p->loop};
    open.own = DS_NEW_N(p->arena, ds_value, left->names.n);
    for (uint32_t k = 0; k < left->names.n; k++) open.own[k].i = UINT32_MAX;
    p->loop = &open;
    op->body = ds_parse_region(p, op);
    p->loop = open.up;
    ds_parser_close_scope(p, scope);
    define_loop_results(p, op, &open);
    set_families(p, op);
    if (ds_parser_at(p, DS_TOK_LBRACE)) ds_parse_attrs(p, &op->attrs, &op->n_attrs);
    push_family_indices(p, op);
    ds_parse_result_types(p, op);
    ds_parser_pop_indices(p, mark);
}

static void parse_local_args(ds_parser *p, ds_op *op) {
    op->n_args = op->n_in;
    op->args = DS_NEW_N(p->arena, ds_value, op->n_in);
    p->visible_from = p->func->values.n;
    for (uint32_t k = 0; k < op->n_in && !p->status; k++) {
        const char *name = ds_value_at(p->func, op->in[k].value)->name;
        op->args[k] = ds_parser_define(p, name, op->in[k].loc);
        ds_value_at(p->func, op->args[k])->is_arg = true;
        ds_value_at(p->func, op->args[k])->def = op;
    }
}

static void parse_local_types(ds_parser *p, ds_op *op, const ds_targets *left) {
    DS_VEC(ds_type *) types = {0};
    ds_loc loc = p->tok.loc;
    if (ds_parser_accept(p, DS_TOK_ARROW)) {
        if (ds_parser_accept(p, DS_TOK_LPAREN)) {
            while (ds_parser_more(p, DS_TOK_RPAREN)) {
                DS_PUSH(p->arena, &types, ds_parse_type(p));
                if (!ds_parser_accept(p, DS_TOK_COMMA)) break;
            }
            ds_parser_expect(p, DS_TOK_RPAREN, "after the result types");
        } else {
            DS_PUSH(p->arena, &types, ds_parse_type(p));
        }
    }
    if (types.n != left->names.n)
        ds_parser_fail(
            p, DS_ERR_TYPE, loc,
            "a local region gives the type of each result after '->': %u results, %u types",
            left->names.n, types.n);
    op->result_types = types.at;
}

static void parse_local(ds_parser *p, ds_op *op, const ds_targets *left) {
    uint32_t scope = p->undo.n, visible_from = p->visible_from;
    uses operands = {0};
    ds_parser_expect_word(p, "over", "and the region's axes after 'local'");
    parse_over(p, op);
    ds_parser_expect(p, DS_TOK_LPAREN, "before the operands");
    parse_operands(p, &operands);
    set_operands(op, &operands);
    parse_local_types(p, op, left);
    parse_local_args(p, op);
    op->body = ds_parse_region(p, op);
    p->visible_from = visible_from;
    ds_parser_close_scope(p, scope);
    ds_parser_define_results(p, op, left);
    if (ds_parser_at(p, DS_TOK_LBRACE)) ds_parse_attrs(p, &op->attrs, &op->n_attrs);
    for (uint32_t k = 0; k < op->n_out && !p->status; k++) {
        ds_value_info *info = ds_value_at(p->func, op->out[k]);
        info->type = op->result_types[k];
        info->type_written = true;
    }
}

/* @m{pp=1}, 12> */
static void parse_call_params(ds_parser *p, ds_op *op) {
    DS_VEC(ds_place) meshes = {0};
    do {
        if (!ds_parser_at(p, DS_TOK_SYMBOL)) {
            op->index_arg = ds_parse_sum(p);
            break;
        }
        DS_PUSH(p->arena, &meshes, ds_parse_place(p));
    } while (ds_parser_accept(p, DS_TOK_COMMA));
    ds_parser_expect(p, DS_TOK_GT, "after the meshes and the index");
    op->mesh_args = meshes.at;
    op->n_mesh_args = meshes.n;
}

static void parse_call(ds_parser *p, ds_op *op, const ds_targets *left) {
    uses operands = {0};
    op->callee_name = ds_parse_qualified(p, "of a function after 'call'");
    if (ds_parser_accept(p, DS_TOK_LT)) parse_call_params(p, op);
    ds_parser_expect(p, DS_TOK_LPAREN, "before the operands");
    parse_operands(p, &operands);
    set_operands(op, &operands);
    if (ds_parser_at(p, DS_TOK_LBRACE)) ds_parse_attrs(p, &op->attrs, &op->n_attrs);
    ds_parser_define_results(p, op, left);
    ds_parse_result_types(p, op);
}

static void parse_yield(ds_parser *p, ds_op *op, const ds_targets *left) {
    uses operands = {0};
    (void)left;
    parse_open_operands(p, &operands);
    uint32_t yielded = operands.n;
    if (ds_parser_accept_word(p, "keep")) {
        parse_open_operands(p, &operands);
        if (operands.n == yielded) ds_parser_expected(p, "a value to keep");
    }
    set_operands(op, &operands);
    op->n_keep = operands.n - yielded;
}

static void parse_return(ds_parser *p, ds_op *op, const ds_targets *left) {
    uses operands = {0};
    (void)left;
    parse_open_operands(p, &operands);
    set_operands(op, &operands);
}

static void parse_weight(ds_parser *p, ds_op *op, const ds_targets *left) {
    (void)left;
    ds_token name = ds_parser_expect(p, DS_TOK_VALUE, "for the weight");
    ds_targets self = {0};
    DS_PUSH(p->arena, &self.names, name);
    if (ds_parser_at(p, DS_TOK_LBRACE) && p->tok.glued) ds_parse_stated_dims(p, &self);
    op->dims = self.dims;
    op->n_dims = self.n_dims;
    ds_parser_expect(p, DS_TOK_COLON, "before the weight's type");
    ds_type *type = ds_parse_type(p);
    if (ds_parser_at(p, DS_TOK_LBRACE)) ds_parse_attrs(p, &op->attrs, &op->n_attrs);
    ds_parser_define_results(p, op, &self);
    ds_value_at(p->func, op->out[0])->type = type;
    ds_value_at(p->func, op->out[0])->type_written = true;
}

/* ---- table ops ---- */

static void parse_table_op(ds_parser *p, ds_op *op, const ds_targets *left) {
    uses operands = {0};
    if (ds_parser_accept(p, DS_TOK_LPAREN)) parse_operands(p, &operands);
    set_operands(op, &operands);
    parse_clauses(p, op);
    if (ds_parser_at(p, DS_TOK_LBRACE)) ds_parse_attrs(p, &op->attrs, &op->n_attrs);
    ds_parser_define_results(p, op, left);
    ds_parse_result_types(p, op);
}

static const struct {
    const char *word;
    ds_structural code;
    bool has_results; /* may stand after `%x =` */
    void (*parse)(ds_parser *p, ds_op *op, const ds_targets *left);
} structural[] = {
    {"for", DS_OP_FOR, true, parse_for},           {"local", DS_OP_LOCAL, true, parse_local},
    {"call", DS_OP_CALL, true, parse_call},        {"yield", DS_OP_YIELD, false, parse_yield},
    {"return", DS_OP_RETURN, false, parse_return}, {"weight", DS_OP_WEIGHT, false, parse_weight},
    {"rec", DS_OP_REC, true, ds_parse_rec},        {"case", DS_OP_CASE, true, ds_parse_case}};

enum { N_STRUCTURAL = sizeof structural / sizeof structural[0] };

/* `stray`: no result is on the op's left, and the op does not begin its line. */
static void unknown_op(ds_parser *p, const ds_token *name, bool stray) {
    const char *known[N_STRUCTURAL + DS_OP_COUNT];
    uint32_t n = 0;
    for (; n < N_STRUCTURAL; n++) known[n] = structural[n].word;
    for (ds_opcode code = DS_OP_FIRST_TABLE_OP; code < DS_OP_COUNT; code++)
        known[n++] = ds_op_name(code);
    const char *near = ds_parser_suggest(name->name, known, n);
    if (ds_parser_unclosed(p, name)) return;
    if (stray || ds_parser_at(p, DS_TOK_ASSIGN))
        ds_parser_fail(p, DS_ERR_NAME, name->loc, "unknown op '%.80s'; a value is written %%%.80s",
                       name->name, name->name);
    else if (near)
        ds_parser_fail(p, DS_ERR_NAME, name->loc, "unknown op '%.80s'; did you mean '%s'?",
                       name->name, near);
    else
        ds_parser_fail(p, DS_ERR_NAME, name->loc, "unknown op '%.80s'", name->name);
}

static ds_opcode table_opcode(ds_parser *p, const ds_token *name, bool stray) {
    const uint64_t *known = ds_map_find(&p->opcodes, DS_KEY(name->name));
    if (known) return (ds_opcode)*known;
    ds_opcode code = ds_op_by_name(name->name);
    if (code < DS_OP_FIRST_TABLE_OP) unknown_op(p, name, stray);
    ds_map_put(&p->opcodes, DS_KEY(name->name), code);
    return code;
}

static void parse_op_body(ds_parser *p, ds_op *op, const ds_targets *left) {
    ds_token name = ds_parser_expect(p, DS_TOK_NAME, "of an op");
    op->loc = name.loc;
    for (uint32_t k = 0; k < N_STRUCTURAL; k++) {
        if (strcmp(name.name, structural[k].word) != 0) continue;
        op->code = structural[k].code;
        if (left->names.n && !structural[k].has_results)
            ds_parser_fail(p, DS_ERR_SYNTAX, name.loc, "'%s' has no results on its left",
                           name.name);
        structural[k].parse(p, op, left);
        return;
    }
    if (p->status) return;
    op->code = table_opcode(p, &name, !left->names.n && !name.starts_line);
    parse_table_op(p, op, left);
}

ds_op *ds_parse_op(ds_parser *p) {
    ds_op *op = DS_NEW(p->arena, ds_op);
    ds_targets left = {0};
    ds_parser_begin(p, &op->trivia, false);
    if (ds_parser_at(p, DS_TOK_VALUE)) {
        do {
            DS_PUSH(p->arena, &left.names, ds_parser_expect(p, DS_TOK_VALUE, "as a result"));
            if (ds_parser_at(p, DS_TOK_LBRACE) && p->tok.glued) ds_parse_stated_dims(p, &left);
        } while (ds_parser_accept(p, DS_TOK_COMMA));
        ds_parser_expect(p, DS_TOK_ASSIGN, "after the results");
        op->dims = left.dims;
        op->n_dims = left.n_dims;
    }
    parse_op_body(p, op, &left);
    ds_parser_end(p, &op->trivia);
    return op;
}
