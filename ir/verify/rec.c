/* Regions `rec`: dims, then types, of equations in any order.
 *
 * The dims of an equation are the least fixed point of all that it mentions: dims of values that
 * are read bare, and the header's names in indices, range bounds, attributes, conditions and
 * written types. Once the dims are known, a bare %k gets its indices, so that everything above
 * reads a family at a point.
 *
 * Types are found in the order of reads. A `case` takes the type of the first branch that has one;
 * so recursion through a case needs no written type. */
#include "ir/core/rec.h"
#include "ir/verify/internal.h"

#include <stdlib.h>

typedef struct rec_walk {
    ds_walker *w;
    ds_op *rec;
    const ds_exprs *exprs;
    uint32_t *dims; /* per value of the function: the dims that it has, as a set */
} rec_walk;

/* ---- dims ---- */

static uint32_t dims_in(const rec_walk *r, ds_expr e) {
    uint32_t set = 0;
    for (uint32_t d = 0; DS_HAS_EXPR(e) && d < r->rec->n_dims; d++)
        if (ds_expr_mentions(r->exprs, e, r->rec->dims[d].name)) set |= 1u << d;
    return set;
}

/* The dims that all hold of a thing that may mention names. */
#define DIMS_THAT(r, set, mentions)                                                                \
    for (uint32_t d = 0; d < (r)->rec->n_dims; d++) {                                              \
        const char *name = (r)->rec->dims[d].name;                                                 \
        if (mentions) (set) |= 1u << d;                                                            \
    }

static uint32_t dims_of_use(const rec_walk *r, const ds_use *use) {
    if (!use->n_index) return r->dims[use->value.i];
    uint32_t set = 0;
    for (uint32_t i = 0; i < use->n_index; i++) {
        set |= dims_in(r, use->index[i]);
        if (ds_use_is_range(use, i)) set |= dims_in(r, use->index_hi[i]);
    }
    return set;
}

static uint32_t dims_of_types(const rec_walk *r, const ds_value *values, uint32_t n) {
    uint32_t set = 0;
    for (uint32_t i = 0; i < n; i++) {
        const ds_value_info *info = ds_value_at(r->w->func, values[i]);
        if (info->type_written) DIMS_THAT(r, set, ds_type_mentions(r->exprs, info->type, name));
    }
    return set;
}

/* What the op mentions, with what is read bare as far as it is known. */
static uint32_t dims_of_op(const rec_walk *r, const ds_op *op) {
    uint32_t set = dims_of_types(r, op->out, op->n_out) | dims_of_types(r, op->args, op->n_args);
    const ds_expr own[] = {op->dim, op->dim_to, op->to_rank, op->from_rank,
                           op->tag, op->lo,     op->hi,      op->index_arg};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) set |= dims_in(r, own[i]);
    for (uint32_t i = 0; i < op->n_in; i++) set |= dims_of_use(r, &op->in[i]);
    for (uint32_t i = 0; i < op->n_conds; i++) set |= dims_in(r, op->conds[i]);
    for (uint32_t i = 0; i < op->n_group; i++) set |= dims_in(r, op->group[i]);
    DIMS_THAT(r, set, ds_attrs_mention(r->exprs, op->attrs, op->n_attrs, name));
    for (uint32_t i = 0; i < op->n_to; i++)
        DIMS_THAT(r, set, ds_place_mentions(r->exprs, &op->to[i], name));
    for (uint32_t i = 0; i < op->n_mesh_args; i++)
        DIMS_THAT(r, set, ds_place_mentions(r->exprs, &op->mesh_args[i], name));
    for (uint32_t i = 0; op->body && i < op->body->n_ops; i++)
        set |= dims_of_op(r, op->body->ops[i]);
    return set;
}

/* The dims that the text states, in the header's order; false: they are written otherwise. */
static bool stated_dims(const rec_walk *r, const ds_op *op, uint32_t *set) {
    uint32_t at = 0;
    *set = 0;
    for (uint32_t i = 0; i < op->n_dims; i++) {
        while (at < r->rec->n_dims && r->rec->dims[at].name != op->dims[i].name) at++;
        if (at == r->rec->n_dims) return false;
        *set |= 1u << at++;
    }
    return true;
}

static const char *dims_text(const rec_walk *r, uint32_t set) {
    ds_buf text = {0};
    ds_buf_putc(&text, '{');
    for (uint32_t d = 0; d < r->rec->n_dims; d++)
        if (set >> d & 1)
            ds_buf_printf(&text, "%s%s", text.n > 1 ? ", " : "", r->rec->dims[d].name);
    ds_buf_putc(&text, '}');
    const char *kept = ds_arena_strdup(&r->w->ck->diags->arena, text.text);
    ds_buf_deinit(&text);
    return kept;
}

static void check_stated(const rec_walk *r, const ds_op *op) {
    uint32_t set;
    if (!op->n_dims) return;
    const char *name = ds_value_at(r->w->func, op->out[0])->name;
    if (!stated_dims(r, op, &set)) {
        ds_verify__error(r->w->ck, DS_ERR_NAME, op->dims[0].loc, NULL,
                         "the dims of %%%s are names of the header, each once and in the header's "
                         "order, %s",
                         name, dims_text(r, (1u << r->rec->n_dims) - 1));
        return;
    }
    uint32_t found = dims_of_op(r, op) & ~set;
    if (found)
        ds_verify__error(r->w->ck, DS_ERR_TYPE, op->dims[0].loc, NULL,
                         "%%%s is stated over %s, but its equation reads or mentions %s too", name,
                         dims_text(r, set), dims_text(r, found));
}

static void find_dims(const rec_walk *r) {
    const ds_block *body = r->rec->body;
    for (uint32_t i = 0; i < body->n_ops; i++) {
        uint32_t set = 0;
        stated_dims(r, body->ops[i], &set);
        for (uint32_t k = 0; k < body->ops[i]->n_out; k++) r->dims[body->ops[i]->out[k].i] = set;
    }
    for (bool more = true; more;) {
        more = false;
        for (uint32_t i = 0; i < body->n_ops; i++) {
            const ds_op *op = body->ops[i];
            uint32_t before = op->n_out ? r->dims[op->out[0].i] : 0;
            uint32_t set = before | (op->n_out ? dims_of_op(r, op) : 0);
            for (uint32_t k = 0; k < op->n_out; k++) r->dims[op->out[k].i] = set;
            more = more || set != before;
        }
    }
    for (uint32_t i = 0; i < body->n_ops; i++) check_stated(r, body->ops[i]);
}

/* The header's dims in the set, as binders. */
static uint32_t binders_of(const rec_walk *r, uint32_t set, ds_binder **out) {
    uint32_t n = 0;
    *out = DS_NEW_N(&r->w->ck->unit->arena, ds_binder, r->rec->n_dims);
    for (uint32_t d = 0; d < r->rec->n_dims; d++)
        if (set >> d & 1) (*out)[n++] = r->rec->dims[d];
    return n;
}

static void set_binders(const rec_walk *r) {
    const ds_block *body = r->rec->body;
    for (uint32_t i = 0; i < body->n_ops; i++)
        for (uint32_t k = 0; k < body->ops[i]->n_out; k++) {
            ds_value_info *info = ds_value_at(r->w->func, body->ops[i]->out[k]);
            info->in_rec = true;
            info->n_binders = binders_of(r, r->dims[body->ops[i]->out[k].i], &info->binders);
        }
}

/* ---- the current point ---- */

static void forget_points(const ds_op *op) {
    for (uint32_t i = 0; i < op->n_in; i++)
        if (op->in[i].bare) {
            op->in[i].index = op->in[i].index_hi = NULL;
            op->in[i].n_index = 0;
            op->in[i].bare = false;
        }
    for (uint32_t i = 0; op->body && i < op->body->n_ops; i++) forget_points(op->body->ops[i]);
}

static void put_points(const rec_walk *r, const ds_op *op) {
    ds_unit *unit = r->w->ck->unit;
    for (uint32_t i = 0; i < op->n_in; i++) {
        ds_use *use = &op->in[i];
        const ds_value_info *info = ds_value_at(r->w->func, use->value);
        if (use->n_index || !info->in_rec || !info->n_binders) continue;
        use->bare = true;
        use->n_index = info->n_binders;
        use->index = DS_NEW_N(&unit->arena, ds_expr, use->n_index);
        for (uint32_t k = 0; k < use->n_index; k++)
            use->index[k] = ds_expr_index(&unit->exprs, info->binders[k].name);
    }
    for (uint32_t i = 0; op->body && i < op->body->n_ops; i++) put_points(r, op->body->ops[i]);
}

/* ---- types ---- */

static bool is_known(const rec_walk *r, const ds_use *use) {
    return r->w->defined[use->value.i] || !ds_value_at(r->w->func, use->value)->in_rec;
}

static bool reads_known(const rec_walk *r, const ds_op *op) {
    bool any = op->code == DS_OP_CASE && ds_value_at(r->w->func, op->out[0])->type_written;
    for (uint32_t i = 0; i < op->n_in; i++) {
        bool known = is_known(r, &op->in[i]);
        if (!known && op->code != DS_OP_CASE) return false;
        any = any || known;
    }
    if (op->code == DS_OP_CASE) return any;
    for (uint32_t i = 0; op->body && i < op->body->n_ops; i++)
        if (!reads_known(r, op->body->ops[i])) return false;
    return true;
}

/* The first branch that has a type says the case's. */
static void type_case(const rec_walk *r, const ds_op *op) {
    const ds_type *found = NULL;
    ds_value_info *info = ds_value_at(r->w->func, op->out[0]);
    for (uint32_t i = 0; i < op->n_in && !found && !info->type_written; i++)
        if (is_known(r, &op->in[i])) found = ds_verify__read(r->w, &op->in[i], NULL);
    if (!found && !info->type_written)
        r->w->defined[op->out[0].i] = DS_WRONG; /* reported at the branch */
    else
        ds_verify__set_type(r->w, op->out[0], found, info->loc, "its branch", "is");
}

static const char *branch_text(const rec_walk *r, const ds_op *op, uint32_t i) {
    ds_checker *ck = r->w->ck;
    return i < op->n_conds
               ? ds_arena_printf(&ck->diags->arena, "'%s'", ds_verify__expr_text(ck, op->conds[i]))
               : "'else'";
}

static void check_case(const rec_walk *r, const ds_op *op) {
    ds_checker *ck = r->w->ck;
    const ds_value_info *info = ds_value_at(r->w->func, op->out[0]);
    const ds_type *first = info->type && r->w->defined[op->out[0].i] != DS_WRONG
                               ? ds_verify__seen(ck, r->w->func, info->type)
                               : NULL;
    uint32_t said = UINT32_MAX; /* the branch whose type the case has */
    for (uint32_t i = 0; i < op->n_in; i++) {
        const ds_type *found = ds_verify__read(r->w, &op->in[i], NULL);
        if (!first || !found) continue;
        if (ds_verify__same_type(ck, r->w->func, NULL, first, found) != DS_NO) {
            if (said == UINT32_MAX) said = i;
            continue;
        }
        const char *other =
            said == UINT32_MAX
                ? ds_arena_printf(&ck->diags->arena, "%%%s is written as", info->name)
                : ds_arena_printf(&ck->diags->arena, "%s gives", branch_text(r, op, said));
        ds_verify__error(ck, DS_ERR_TYPE, op->in[i].loc, NULL,
                         "the branches of %%%s have different types: %s %s, but %s gives %s",
                         info->name, other, ds_verify__type_text(ck, first), branch_text(r, op, i),
                         ds_verify__type_text(ck, found));
    }
}

static void type_op(const rec_walk *r, ds_op *op) {
    if (op->code == DS_OP_CASE) {
        ds_verify__op_attrs(r->w->ck, NULL, op);
        type_case(r, op);
    } else {
        ds_verify__op(r->w, op);
    }
}

static bool all_written(const rec_walk *r, const ds_op *op) {
    for (uint32_t k = 0; k < op->n_out; k++)
        if (!ds_value_at(r->w->func, op->out[k])->type_written) return false;
    return op->n_out > 0;
}

/* Where equations wait for each other, the first whose types are written is believed; else the
 * first is reported. */
static void break_circle(const rec_walk *r, const bool *done) {
    const ds_block *body = r->rec->body;
    const ds_op *first = NULL, *written = NULL;
    for (uint32_t i = 0; i < body->n_ops; i++) {
        const ds_op *op = body->ops[i];
        if (done[i] || !op->n_out || r->w->defined[op->out[0].i]) continue;
        if (!first) first = op;
        if (!written && all_written(r, op)) written = op;
    }
    const ds_op *op = written ? written : first;
    for (uint32_t k = 0; op && k < op->n_out; k++)
        r->w->defined[op->out[k].i] = written ? DS_DEFINED : DS_WRONG;
    if (!first || written) return;
    const ds_value_info *info = ds_value_at(r->w->func, first->out[0]);
    ds_verify__error(r->w->ck, DS_ERR_TYPE, info->loc, NULL,
                     "the type of %%%s follows from its own: write it, as in '%%%s = … : f32[8]'",
                     info->name, info->name);
}

static void find_types(const rec_walk *r) {
    const ds_block *body = r->rec->body;
    bool *done = ds_xcalloc(body->n_ops + 1, sizeof *done);
    for (uint32_t left = body->n_ops; left;) {
        bool progress = false;
        for (uint32_t i = 0; i < body->n_ops; i++) {
            ds_op *op = body->ops[i];
            if (done[i]) continue;
            if (op->n_out && !reads_known(r, op)) continue;
            if (op->n_out) type_op(r, op);
            for (uint32_t k = 0; k < op->n_out; k++)
                if (!r->w->defined[op->out[k].i]) r->w->defined[op->out[k].i] = DS_WRONG;
            done[i] = progress = true;
            left--;
        }
        if (!progress) break_circle(r, done);
    }
    free(done);
    for (uint32_t i = 0; i < body->n_ops; i++)
        if (body->ops[i]->code == DS_OP_CASE) check_case(r, body->ops[i]);
}

/* ---- what may stand in a rec ---- */

static void check_call(const rec_walk *r, const ds_op *op) {
    ds_checker *ck = r->w->ck;
    const ds_func *callee = op->callee;
    if (!callee) return;
    if (ds_rec_in(callee, true))
        ds_verify__error(ck, DS_ERR_UNSUPPORTED, op->loc, NULL,
                         "@%s holds a rec, and no rec stands inside a rec: put its dims into this "
                         "header",
                         op->callee_name);
    for (uint32_t k = 0; k < callee->n_results; k++)
        if (callee->result_binders && callee->n_result_binders[k])
            ds_verify__error(ck, DS_ERR_UNSUPPORTED, op->loc, NULL,
                             "result %u of @%s is a family; inside a rec the family's index is a "
                             "dim of the rec",
                             k + 1, op->callee_name);
}

static void check_weights(const rec_walk *r, const ds_op *op) {
    const ds_attr *attr = ds_attr_find(op->attrs, op->n_attrs, "weights");
    for (uint32_t i = 0; attr && i < attr->n_items; i++) {
        const ds_expr_node *node = ds_expr_at(r->exprs, attr->items[i].expr);
        bool is_dim = false;
        for (uint32_t d = 0; node->kind == DS_EXPR_INDEX && d < r->rec->n_dims; d++)
            is_dim = is_dim || node->name == r->rec->dims[d].name;
        if (!is_dim)
            ds_verify__error(r->w->ck, DS_ERR_NAME, attr->items[i].loc, NULL,
                             "'weights' lists dims of the rec, as in {weights = [%s]}: the callee "
                             "has weights of its own for each",
                             r->rec->dims[r->rec->n_dims - 1].name);
    }
}

static void check_op(const rec_walk *r, const ds_op *op, bool last) {
    ds_checker *ck = r->w->ck;
    const ds_op *end = op->body && op->body->n_ops ? op->body->ops[op->body->n_ops - 1] : NULL;
    if (op->code == DS_OP_FOR && end && end->n_keep)
        ds_verify__error(ck, DS_ERR_UNSUPPORTED, end->loc, NULL,
                         "a loop inside a rec is one op and keeps nothing: make '%s' a dim of the "
                         "rec",
                         op->index);
    if (op->code == DS_OP_CALL) {
        check_call(r, op);
        check_weights(r, op);
    }
    if (op->code == DS_OP_RETURN || (op->code == DS_OP_YIELD && !last))
        ds_verify__error(ck, DS_ERR_TYPE, op->loc, NULL,
                         op->code == DS_OP_RETURN ? "'return' inside a rec: a rec ends in 'yield'"
                                                  : "'yield' must be the last line of a rec");
    else if (!op->n_out && op->code != DS_OP_YIELD)
        ds_verify__error(ck, DS_ERR_TYPE, op->loc, NULL,
                         "an equation of a rec has a value on its left, as in '%%x = %s(…)'",
                         ds_op_name(op->code));
}

static void check_header(const rec_walk *r) {
    ds_walker *w = r->w;
    ds_verify__binders(w->ck, w->func, r->rec->dims, r->rec->n_dims);
    for (uint32_t d = 0; d < r->rec->n_dims; d++) {
        const ds_binder *dim = &r->rec->dims[d];
        if (ds_expr_mentions(r->exprs, dim->lo, NULL) || ds_expr_mentions(r->exprs, dim->hi, NULL))
            ds_verify__error(w->ck, DS_ERR_NAME, dim->loc, NULL,
                             "the range of the dim '%s' is made of params alone", dim->name);
        for (const ds_index_scope *at = w->indices; at; at = at->up)
            if (at->name == dim->name)
                ds_verify__error(w->ck, DS_ERR_NAME, dim->loc, NULL,
                                 "the dim '%s' has the name of an enclosing loop's index",
                                 dim->name);
    }
    if (w->program)
        ds_verify__error(
            w->ck, DS_ERR_UNSUPPORTED, r->rec->loc, NULL,
            "a rec in a rank's body: a per-rank program is made from a rec's schedule");
}

/* ---- results ---- */

static void set_result(const rec_walk *r, const ds_use *use, ds_value result) {
    ds_walker *w = r->w;
    ds_value_info *info = ds_value_at(w->func, result);
    ds_binder *binders;
    uint32_t n = binders_of(r, dims_of_use(r, use), &binders);
    const ds_type *type = ds_verify__read(w, use, NULL);
    if (info->n_binders &&
        ds_verify__same_binders(w->ck, NULL, info->binders, info->n_binders, binders, n) == DS_NO) {
        ds_verify__error(w->ck, DS_ERR_TYPE, info->loc, NULL,
                         "%%%s is written over other dims than those of %s, %s", info->name,
                         ds_verify__value_text(w, use->value), dims_text(r, dims_of_use(r, use)));
        type = NULL;
    }
    info->binders = binders;
    info->n_binders = n;
    if (type)
        ds_verify__set_type(w, result, type, info->loc, "the rec", "yields");
    else
        w->defined[result.i] = DS_WRONG;
}

static void set_results(const rec_walk *r, const ds_op *yield) {
    ds_checker *ck = r->w->ck;
    const ds_op *rec = r->rec;
    if (!yield || yield->code != DS_OP_YIELD) {
        ds_verify__error(ck, DS_ERR_TYPE, rec->loc, NULL, "the rec does not end in 'yield'");
    } else if (yield->n_keep) {
        ds_verify__error(ck, DS_ERR_TYPE, yield->loc, NULL,
                         "a rec keeps nothing: what it yields is a family already");
    } else if (yield->n_in != rec->n_out) {
        ds_verify__error(ck, DS_ERR_TYPE, yield->loc, NULL,
                         "the rec yields %u value%s, and %u name%s on its left", yield->n_in,
                         yield->n_in == 1 ? "" : "s", rec->n_out,
                         rec->n_out == 1 ? " is" : "s are");
    } else {
        for (uint32_t i = 0; i < rec->n_out; i++) set_result(r, &yield->in[i], rec->out[i]);
        return;
    }
    for (uint32_t i = 0; i < rec->n_out; i++) r->w->defined[rec->out[i].i] = DS_WRONG;
}

void ds_verify__rec(ds_walker *w, ds_op *rec) {
    rec_walk r = {.w = w, .rec = rec, .exprs = &w->ck->unit->exprs};
    const ds_block *body = rec->body;
    const ds_op *yield = body->n_ops ? body->ops[body->n_ops - 1] : NULL;
    uint32_t errors = w->ck->diags->n_errors;
    r.dims = ds_xcalloc(w->func->values.n + 1, sizeof *r.dims);
    check_header(&r);
    for (uint32_t i = 0; i < body->n_ops; i++) {
        forget_points(body->ops[i]);
        check_op(&r, body->ops[i], i + 1 == body->n_ops);
    }
    find_dims(&r);
    set_binders(&r);
    for (uint32_t i = 0; i < body->n_ops; i++) put_points(&r, body->ops[i]);
    if (w->ck->diags->n_errors == errors) {
        find_types(&r);
        set_results(&r, yield);
    } else {
        for (uint32_t i = 0; i < rec->n_out; i++) w->defined[rec->out[i].i] = DS_WRONG;
    }
    ds_verify__leave(w, rec);
    free(r.dims);
}
