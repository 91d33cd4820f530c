/* Ops that compute, on shards, with attributes for the shard's position.
 *
 * In a mesh program types say which part of a tensor a shard is; a rank's op has only the shard's
 * shape. So a mean gets the `count` of the whole, a look-up its `start`, a mask `full` and `start`,
 * and attributes that count elements (a shape, groups) get the shard's numbers. */
#include "ir/passes/project/internal.h"

#include <string.h>

/* ---- attributes ---- */

typedef struct attr_context {
    ds_projector *p;
    const ds_pj_frame *f;
    ds_loc loc;
    ds_status status;
    ds_error *err;
} attr_context;

static ds_expr attr_expr(void *context, ds_expr e) {
    attr_context *c = context;
    ds_expr out = DS_NO_EXPR;
    if (c->status == DS_OK) c->status = ds_project__expr(c->p, c->f, e, c->loc, &out, c->err);
    return out;
}

ds_status ds_project__attrs(ds_projector *p, const ds_pj_frame *f, const ds_attr *attrs, uint32_t n,
                            ds_attr **out, ds_error *err) {
    *out = DS_NEW_N(&p->unit->arena, ds_attr, n + 1);
    for (uint32_t i = 0; i < n; i++) {
        attr_context c = {p, f, attrs[i].loc, DS_OK, err};
        ds_clone_attr(&p->clone, f->scope.func->module, &attrs[i], attr_expr, &c, &(*out)[i]);
        DS_TRY(c.status);
    }
    return DS_OK;
}

void ds_project__drop_attr(ds_op *op, const char *name) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < op->n_attrs; i++)
        if (strcmp(op->attrs[i].name, name) != 0) op->attrs[n++] = op->attrs[i];
    op->n_attrs = n;
}

ds_status ds_project__new_op(ds_projector *p, const ds_pj_frame *f, const ds_op *like,
                             ds_opcode code, ds_op **out, ds_error *err) {
    *out = ds_build_op(&p->b, code);
    DS_TRY(ds_project__attrs(p, f, like->attrs, like->n_attrs, &(*out)->attrs, err));
    (*out)->n_attrs = like->n_attrs;
    if (like->code == DS_OP_RESHARD) { /* hints for the reshard do not apply to its steps */
        ds_project__drop_attr(*out, "algorithm");
        ds_project__drop_attr(*out, "balance");
    }
    return DS_OK;
}

const char *ds_project__own_name(const ds_projector *p, const ds_func *func, const ds_op *op) {
    const char *name = ds_op_attr_str(op, p->source->unit, "name");
    if (name) return name;
    return op->n_out ? ds_value_at(func, op->out[0])->name : ds_op_name(op->code);
}

static bool has_attr(const ds_op *op, const char *name) {
    return ds_attr_find(op->attrs, op->n_attrs, name) != NULL;
}

/* The attribute's number in the new op, or `otherwise`. */
static ds_expr number_or(ds_projector *p, const ds_op *op, const char *name, int64_t otherwise) {
    const ds_attr *attr = ds_attr_find(op->attrs, op->n_attrs, name);
    return attr && attr->kind == DS_ATTR_EXPR ? attr->expr : ds_project__number(p, otherwise);
}

static bool same(ds_expr a, ds_expr b) {
    return a.i == b.i;
}

static bool is_zero(const ds_projector *p, ds_expr e) {
    int64_t value;
    return ds_expr_is_int(&p->unit->exprs, e, &value) && value == 0;
}

/* ---- the op being made ---- */

typedef struct making {
    ds_projector *p;
    ds_pj_frame *f;
    const ds_op *from;
    ds_op *op;
    ds_pj_box in[DS_MAX_OPERANDS], out[DS_MAX_OPERANDS]; /* of the first operands and results */
} making;

/* {name = old + by}, unless nothing is added. */
static void add_to(making *m, const char *name, ds_expr by) {
    if (is_zero(m->p, by)) return;
    ds_expr old = number_or(m->p, m->op, name, 0);
    ds_build_attr_expr(&m->p->b, m->op, name, ds_project__fold(m->p, DS_EXPR_ADD, old, by));
}

/* The dims that a reduction's `dims` names; all without it. */
static ds_status named_dims(making *m, const char *name, uint32_t rank, bool out[DS_MAX_RANK],
                            ds_error *err) {
    const ds_attr *attr = ds_attr_find(m->op->attrs, m->op->n_attrs, name);
    bool list = attr && attr->kind == DS_ATTR_LIST;
    uint32_t n = !attr ? 0 : list ? attr->n_items : 1;
    for (uint32_t d = 0; d < DS_MAX_RANK; d++) out[d] = !attr;
    for (uint32_t i = 0; i < n; i++) {
        int64_t d;
        DS_TRY(
            ds_project__literal(m->p, list ? attr->items[i].expr : attr->expr, attr->loc, &d, err));
        if (d < 0) d += rank;
        if (d >= 0 && d < DS_MAX_RANK) out[d] = true;
    }
    return DS_OK;
}

/* A mean over the marked dims divides by the whole tensor's count. */
static void set_count(making *m, const bool dims[DS_MAX_RANK]) {
    const ds_pj_box *x = &m->in[0];
    ds_expr count = ds_project__number(m->p, 1);
    bool differs = false;
    for (uint32_t d = 0; d < x->rank; d++) {
        if (!dims[d]) continue;
        count = ds_project__fold(m->p, DS_EXPR_MUL, count, x->full[d]);
        differs = differs || !same(x->full[d], x->size[d]);
    }
    if (differs && !has_attr(m->op, "count")) ds_build_attr_expr(&m->p->b, m->op, "count", count);
}

/* Sets a loss's count over all dims but the last `n_kept`, if the loss is a mean. */
static void count_rows(making *m, uint32_t n_kept) {
    const char *reduction = ds_op_attr_str(m->from, m->p->source->unit, "reduction");
    bool dims[DS_MAX_RANK] = {0};
    if (reduction && strcmp(reduction, "mean") != 0) return;
    for (uint32_t d = 0; d + n_kept < m->in[0].rank; d++) dims[d] = true;
    set_count(m, dims);
}

/* Equal groups of a dim: a shard has its share of them. */
static void share_groups(making *m, uint32_t d) {
    const ds_pj_box *x = &m->in[0];
    if (same(x->full[d], x->size[d])) return;
    ds_expr groups = number_or(m->p, m->op, "groups", 1);
    if (m->from->code != DS_OP_BATCH_NORM && m->from->code != DS_OP_BATCH_NORM_GRAD &&
        !has_attr(m->op, "groups"))
        return; /* one group over all channels, which devices share: a sum, not a share of groups */
    ds_expr share = ds_project__fold(m->p, DS_EXPR_MUL, groups, x->size[d]);
    share = ds_project__fold(m->p, DS_EXPR_DIV, share, x->full[d]);
    ds_build_attr_expr(&m->p->b, m->op, "groups", share);
}

static void share_channels(making *m) {
    int64_t groups;
    if (ds_expr_is_int(&m->p->unit->exprs, number_or(m->p, m->op, "groups", 1), &groups) &&
        groups > 1)
        share_groups(m, 1);
}

/* Adds the shard's offsets to the positions of queries and keys. Without q_start and k_start the
 * last query sees all keys. */
static void set_positions(making *m, uint32_t q) {
    const ds_pj_box *queries = &m->in[q], *keys = &m->in[q + 1];
    bool placed = has_attr(m->op, "q_start") || has_attr(m->op, "k_start");
    bool split = !same(queries->full[1], queries->size[1]) || !same(keys->full[1], keys->size[1]);
    if (!ds_op_attr_bool(m->from, "causal") || !split) return;
    ds_expr longer = ds_project__fold(m->p, DS_EXPR_SUB, keys->full[1], queries->full[1]);
    ds_expr start = placed ? number_or(m->p, m->op, "q_start", 0) : longer;
    start = ds_project__fold(m->p, DS_EXPR_ADD, start, queries->lo[1]);
    ds_build_attr_expr(&m->p->b, m->op, "q_start", start);
    add_to(m, "k_start", keys->lo[1]);
}

/* ---- masks ---- */

/* The names of the loops and calls around the op, and the loops' indices, outermost first. */
static void path_names(const ds_pj_path *at, ds_buf *names, ds_expr *turns, uint32_t *n) {
    if (!at) return;
    path_names(at->up, names, turns, n);
    ds_buf_printf(names, "%s.", at->name);
    if (DS_HAS_EXPR(at->turn)) turns[(*n)++] = at->turn;
}

/* Appends the microbatches of the calls around the op to the key's turns. */
static void add_microbatches(making *m) {
    const ds_attr *turn = ds_attr_find(m->op->attrs, m->op->n_attrs, "turn");
    uint32_t n = !turn ? 0 : turn->kind == DS_ATTR_LIST ? turn->n_items : 1, more = 0;
    for (const ds_pj_path *at = m->f->path; at; at = at->up) more += DS_HAS_EXPR(at->microbatch);
    if (!more) return;
    ds_expr *turns = DS_NEW_N(&m->p->unit->arena, ds_expr, n + more);
    for (uint32_t i = 0; i < n; i++)
        turns[i] = turn->kind == DS_ATTR_LIST ? turn->items[i].expr : turn->expr;
    uint32_t last = n + more;
    for (const ds_pj_path *at = m->f->path; at; at = at->up)
        if (DS_HAS_EXPR(at->microbatch)) turns[--last] = at->microbatch;
    ds_build_attr_exprs(&m->p->b, m->op, "turn", turns, n + more);
}

static void set_key(making *m) {
    if (has_attr(m->op, "key")) add_microbatches(m);
    if (has_attr(m->op, "key") || has_attr(m->op, "seed")) return;
    uint32_t depth = 0, n = 0;
    for (const ds_pj_path *at = m->f->path; at; at = at->up) depth++;
    ds_expr *turns = DS_NEW_N(&m->p->unit->arena, ds_expr, depth + 1);
    ds_buf names = {0};
    path_names(m->f->path, &names, turns, &n);
    ds_buf_put(&names, ds_project__own_name(m->p, m->f->scope.func, m->from));
    ds_build_attr_text(&m->p->b, m->op, "key", names.text);
    if (n) ds_build_attr_exprs(&m->p->b, m->op, "turn", turns, n);
    ds_buf_deinit(&names);
}

static ds_expr item_or(const ds_op *op, const char *name, uint32_t i, ds_expr otherwise) {
    const ds_attr *attr = ds_attr_find(op->attrs, op->n_attrs, name);
    if (!attr) return otherwise;
    return attr->kind == DS_ATTR_LIST ? attr->items[i].expr : attr->expr;
}

static ds_status set_mask(making *m, ds_error *err) {
    const ds_pj_box *x = &m->in[0];
    ds_expr full[DS_MAX_RANK], start[DS_MAX_RANK], zero = ds_project__number(m->p, 0);
    bool placed = has_attr(m->op, "full");
    if (m->f->n_manual && !placed)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, m->from->loc,
                            "the mask of a dropout in a local region depends on the device's place "
                            "there; say `full` and `start`");
    set_key(m);
    for (uint32_t d = 0; d < x->rank; d++) {
        full[d] = item_or(m->op, "full", d, x->full[d]);
        start[d] = ds_project__fold(m->p, DS_EXPR_ADD, item_or(m->op, "start", d, zero), x->lo[d]);
    }
    ds_build_attr_exprs(&m->p->b, m->op, "full", full, x->rank);
    ds_build_attr_exprs(&m->p->b, m->op, "start", start, x->rank);
    return DS_OK;
}

/* ---- op by op ---- */

static ds_status set_sizes(making *m, ds_error *err) {
    bool fresh[DS_MAX_RANK];
    const ds_attr *attr = ds_attr_find(m->op->attrs, m->op->n_attrs, "dims");
    uint32_t n = attr && attr->kind == DS_ATTR_LIST ? attr->n_items : 1;
    ds_expr sizes[DS_MAX_RANK];
    DS_TRY(named_dims(m, "dims", m->out[0].rank, fresh, err));
    for (uint32_t i = 0; i < n && i < DS_MAX_RANK; i++) { /* in the order of `dims` */
        int64_t d;
        ds_expr e = attr->kind == DS_ATTR_LIST ? attr->items[i].expr : attr->expr;
        DS_TRY(ds_project__literal(m->p, e, attr->loc, &d, err));
        if (d < 0) d += m->out[0].rank;
        sizes[i] = m->out[0].size[d];
    }
    ds_build_attr_exprs(&m->p->b, m->op, "sizes", sizes, n);
    return DS_OK;
}

static ds_status set_shape(making *m, ds_error *err) {
    (void)err;
    if (has_attr(m->op, "shape"))
        ds_build_attr_exprs(&m->p->b, m->op, "shape", m->out[0].size, m->out[0].rank);
    return DS_OK;
}

static ds_status set_table_start(making *m, ds_error *err) {
    (void)err;
    add_to(m, "start", m->in[1].lo[0]);
    return DS_OK;
}

static ds_status set_table_rows(making *m, ds_error *err) {
    (void)err;
    ds_build_attr_expr(&m->p->b, m->op, "rows", m->out[0].size[0]);
    add_to(m, "start", m->out[0].lo[0]);
    return DS_OK;
}

static ds_status set_row_start(making *m, ds_error *err) {
    (void)err;
    add_to(m, "start", m->in[0].lo[m->in[0].rank - 1]);
    return DS_OK;
}

static ds_status set_row_count(making *m, ds_error *err) {
    (void)err;
    count_rows(m, 1);
    return DS_OK;
}

static ds_status set_row_slopes(making *m, ds_error *err) {
    DS_TRY(set_row_start(m, err));
    return set_row_count(m, err);
}

static ds_status set_element_count(making *m, ds_error *err) {
    (void)err;
    count_rows(m, 0);
    return DS_OK;
}

static ds_status set_mean_count(making *m, ds_error *err) {
    bool dims[DS_MAX_RANK];
    DS_TRY(named_dims(m, "dims", m->in[0].rank, dims, err));
    set_count(m, dims);
    return DS_OK;
}

static ds_status set_batch_groups(making *m, ds_error *err) {
    (void)err;
    share_groups(m, 0);
    return DS_OK;
}

static ds_status set_channel_groups(making *m, ds_error *err) {
    (void)err;
    share_channels(m);
    return DS_OK;
}

/* dy comes before the queries. */
static ds_status set_block(making *m, ds_error *err) {
    (void)err;
    set_positions(m, ds_op_desc_of(m->from->code)->flags & DS_OPF_BACKWARD ? 1 : 0);
    return DS_OK;
}

static ds_status set_position(making *m, ds_error *err) {
    (void)err;
    add_to(m, "start", m->in[0].lo[1]);
    return DS_OK;
}

/* What the op table names by PROJECT. */
#define PROJECT(f)                   .set = set_##f,
#define OP(ID, MNEMONIC, ROOMS, ...) [DS_OP_##ID] = {.code = DS_OP_##ID, ROOMS},
static const struct {
    ds_opcode code;
    ds_status (*set)(making *m, ds_error *err);
} setters[DS_OP_COUNT] = {
#include "ir/ops/ops.def"
};

/* Boxes are asked for where attributes depend on them. */
static ds_status read_boxes(making *m, ds_error *err) {
    for (uint32_t i = 0; i < m->from->n_in && i < DS_MAX_OPERANDS; i++) {
        const ds_type *type = ds_project__use_type(m->p, m->f, &m->from->in[i]);
        const ds_exec_place *place;
        uint32_t at;
        ds_loc loc = m->from->in[i].loc;
        DS_TRY(ds_project__position(m->p, m->f, type, loc, &place, &at, err));
        if (at == UINT32_MAX)
            return ds_error_set(err, DS_ERR_SHARDING, loc, "an operand lives on other devices");
        DS_TRY(ds_project__box(m->p, m->f, type, (ds_pj_member){place, at}, loc, &m->in[i], err));
    }
    return DS_OK;
}

static ds_status add_results(making *m, const ds_exec_place *place, uint32_t at, ds_error *err) {
    ds_pj_box extra;
    for (uint32_t i = 0; i < m->from->n_out; i++) {
        const ds_value_info *info = ds_value_at(m->f->scope.func, m->from->out[i]);
        ds_pj_box *box = i < DS_MAX_OPERANDS ? &m->out[i] : &extra;
        DS_TRY(ds_project__box(m->p, m->f, info->type, (ds_pj_member){place, at}, m->from->loc, box,
                               err));
        ds_build_out(&m->p->b, m->op, info->name, ds_project__type_of_box(m->p, box));
    }
    return DS_OK;
}

ds_status ds_project__table_op(ds_projector *p, ds_pj_frame *f, const ds_op *op, ds_error *err) {
    if (ds_op_desc_of(op->code)->flags & DS_OPF_COLLECTIVE) return ds_project__comm(p, f, op, err);
    const ds_type *type = op->n_out ? ds_value_at(f->scope.func, op->out[0])->type
                                    : ds_project__use_type(p, f, &op->in[0]);
    const ds_exec_place *place;
    uint32_t at;
    DS_TRY(ds_project__position(p, f, type, op->loc, &place, &at, err));
    for (uint32_t i = 0; i < op->n_out; i++) f->slots[op->out[i].i] = (ds_pj_slot){0};
    if (at == UINT32_MAX) return DS_OK;
    making m = {.p = p, .f = f, .from = op};
    DS_TRY(ds_project__new_op(p, f, op, op->code, &m.op, err));
    for (uint32_t i = 0; i < op->n_in; i++) {
        ds_use use;
        DS_TRY(ds_project__read_one(p, f, &op->in[i], &use, err));
        ds_build_in(&p->b, m.op, use);
    }
    DS_TRY(add_results(&m, place, at, err));
    if (setters[op->code].set) {
        DS_TRY(read_boxes(&m, err));
        DS_TRY(setters[op->code].set(&m, err));
    }
    DS_TRY(ds_build_put(&p->b, m.op, err));
    for (uint32_t i = 0; i < op->n_out; i++)
        f->slots[op->out[i].i] = (ds_pj_slot){.kind = DS_PJ_ONE, .use = ds_use_of(m.op->out[i])};
    return DS_OK;
}
