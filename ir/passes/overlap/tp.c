/* Tensor parallelism's communication under the products that it feeds.
 *
 * With sequence parallelism a layer gathers activations in front of products whose weights are
 * split by columns, and scatters the sums behind those whose weights are split by rows. As `shard`
 * writes them, they stand between the products, which wait. What Transformer Engine's user buffers
 * do about it (Megatron-Core's tp_comm_overlap; transformer_engine/pytorch/module/base.py,
 * initialize_ub, which has these as defaults):
 *
 *   bulk   Products that have nothing to do with a collective run beside the collective.
 *            gather    The backward pass gathers a product's input, for the weight's gradient,
 *                      beside the gradients of inputs: streams do that by themselves.
 *            scatter   The backward pass scatters the gradient of the input beside the gradients of
 *                      weights: those go behind the scatter in the text.
 *          (qkv, fc1: dgrad, wgrad)
 *   ring   A collective becomes tp - 1 exchanges.
 *            gather    Each exchange brings a part further. Products are done part by part, one's
 *                      own first, each while the next part is on its way.
 *                      (qkv, fc1: fprop; proj, fc2: dgrad)
 *            scatter   Part by part, each sent to where it belongs while the next part is made,
 *                      one's own last; then the sum. (CommOverlapP2PBase::split_overlap_rs)
 *   pipe   A product is cut into DS_TP_PIPE_CHUNKS parts of its columns.
 *            gather    As ring.
 *            scatter   Each part is scattered while the next part is made.
 *                      (proj, fc2: fprop; CommOverlapBase::split_overlap_rs)
 *
 * A part of a product has fewer rows or columns than all of it, and is less efficient: the cost
 * model says how much. What has been made part by part is put in order by a `concat` that costs
 * nothing, since products write to, and transfers arrive in, the place where a part belongs.
 *
 * Chunks are made inside of loops, the layers: the head's product is none of Transformer Engine's.
 * A collective in another neighbourhood stays as it is. */
#include "ir/core/devices.h"
#include "ir/passes/build/path.h"
#include "ir/passes/overlap/internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct tp_overlap {
    ds_model_step *step;
    ds_unit *unit;
    ds_func *func;
    ds_builder b;
    const char *axis; /* tp */
    uint32_t *reads;  /* by value: how many operands it is */
} tp_overlap;

/* A product of rows x and a weight w, and where the rows are. */
typedef struct product {
    ds_op *op;
    uint32_t x, w;       /* operands */
    uint32_t x_dim, dim; /* of the rows, in x and in the result */
    ds_rule rule;
} product;

#define MAX_TOGETHER 8u /* products that read one gather */

static ds_exprs *exprs_of(const tp_overlap *t) {
    return &t->unit->exprs;
}

static ds_arena *arena_of(const tp_overlap *t) {
    return &t->unit->arena;
}

static ds_expr number(const tp_overlap *t, int64_t value) {
    return ds_expr_int(exprs_of(t), value);
}

static ds_expr fold(const tp_overlap *t, ds_expr_kind kind, ds_expr a, ds_expr b) {
    return ds_expr_fold(exprs_of(t), kind, a, b);
}

static const ds_type *type_of(const tp_overlap *t, const ds_use *use) {
    return ds_use_type(t->unit, t->func, use);
}

static const char *name_of(const tp_overlap *t, ds_value value) {
    return ds_value_at(t->func, value)->name;
}

/* ---- questions ---- */

static void count_reads(tp_overlap *t, const ds_block *block) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        for (uint32_t k = 0; k < op->n_in; k++) t->reads[op->in[k].value.i]++;
        if (op->body) count_reads(t, op->body);
    }
}

static bool reads(const ds_op *op, ds_value value) {
    for (uint32_t k = 0; k < op->n_in; k++)
        if (op->in[k].value.i == value.i) return true;
    for (uint32_t i = 0; op->body && i < op->body->n_ops; i++)
        if (reads(op->body->ops[i], value)) return true;
    return false;
}

/* Sizes of mesh axes, for the builder. */
static bool axis_size(void *context, const ds_place *on, const char *axis, int64_t *size) {
    const tp_overlap *t = context;
    const ds_mesh *mesh = ds_overlap__mesh(t->step, t->func, on);
    int64_t *sizes = mesh ? DS_NEW_N(arena_of(t), int64_t, mesh->n_axes + 1) : NULL;
    *size = 1;
    if (!mesh || ds_mesh_axis_sizes(&t->step->binding, mesh, sizes, NULL) != DS_OK) return false;
    for (uint32_t a = 0; a < mesh->n_axes; a++)
        if (mesh->axes[a].name == axis) *size = sizes[a];
    return true;
}

static bool int_of(const tp_overlap *t, ds_expr e, int64_t *out) {
    ds_env env = ds_binding_env(&t->step->binding, NULL);
    return ds_expr_eval_int(&env, e, DS_NOWHERE, out, NULL) == DS_OK;
}

static bool is_split(const tp_overlap *t, const ds_dim *dim) {
    for (uint32_t s = 0; s < dim->n_splits; s++)
        if (dim->splits[s].axis == t->axis) return true;
    return false;
}

static bool any_split(const tp_overlap *t, const ds_type *type) {
    for (uint32_t d = 0; d < type->rank; d++)
        if (is_split(t, &type->dims[d])) return true;
    return false;
}

static bool is_uneven(const ds_type *type) {
    for (uint32_t d = 0; d < type->rank; d++)
        for (uint32_t s = 0; s < type->dims[d].n_splits; s++)
            if (type->dims[d].splits[s].n_sizes) return true;
    return false;
}

/* A collective of one value over tp alone; the dim that it gathers or scatters. */
static bool is_over_tp(const tp_overlap *t, const ds_op *op, ds_opcode code, uint32_t *dim) {
    int64_t at;
    if (op->code != code || op->n_over != 1 || op->over[0] != t->axis || op->n_in != 1 ||
        op->across || op->has_group || !int_of(t, op->dim, &at))
        return false;
    *dim = (uint32_t)at;
    return true;
}

/* A term of a sum over tp, and nothing else. */
static bool is_term(const tp_overlap *t, const ds_type *type) {
    return type->n_partials == 1 && type->partials[0].axis == t->axis;
}

/* The dim of a term that is this factor alone; -1: none. */
static int dim_of(const ds_rule_term *term, uint32_t factor) {
    for (uint32_t d = 0; d < term->n; d++)
        if (!term->dims[d].any && term->dims[d].n == 1 && term->dims[d].factors[0] == factor)
            return (int)d;
    return -1;
}

static bool has_rule(tp_overlap *t, ds_op *op, ds_rule *rule) {
    ds_error ignored;
    const ds_type *in[2];
    ds_type *out[1] = {ds_type_plain(arena_of(t), ds_value_at(t->func, op->out[0])->type)};
    for (uint32_t i = 0; i < 2; i++) in[i] = ds_type_plain(arena_of(t), type_of(t, &op->in[i]));
    ds_infer ctx = {.unit = t->unit, .func = t->func, .op = op, .in = in, .out = out};
    return ds_op_rule(&ctx, rule, &ignored) == DS_OK;
}

static bool is_product(const ds_op *op) {
    return (op->code == DS_OP_MATMUL || op->code == DS_OP_EINSUM) && op->n_in == 2 &&
           op->n_out == 1;
}

/* Is it a product with a weight that tp splits, whose result has rows on `dim`? */
static bool has_rows(tp_overlap *t, ds_op *op, uint32_t dim, product *out) {
    if (!is_product(op)) return false;
    *out = (product){.op = op, .dim = dim};
    if (!has_rule(t, op, &out->rule) || dim >= out->rule.out[0].n ||
        out->rule.out[0].dims[dim].n != 1)
        return false;
    uint32_t rows = out->rule.out[0].dims[dim].factors[0];
    int first = dim_of(&out->rule.in[0], rows), second = dim_of(&out->rule.in[1], rows);
    if ((first < 0) == (second < 0)) return false;
    out->x = first < 0;
    out->w = !out->x;
    out->x_dim = (uint32_t)(first < 0 ? second : first);
    const ds_type *w = type_of(t, &op->in[out->w]);
    return any_split(t, w) && !is_uneven(w) && !w->n_partials &&
           !is_uneven(ds_value_at(t->func, op->out[0])->type);
}

/* The same, by where the rows are in what it reads. */
static bool has_rows_of(tp_overlap *t, ds_op *op, ds_value x, uint32_t x_dim, product *out) {
    if (op->n_out != 1) return false;
    for (uint32_t d = 0; d < ds_value_at(t->func, op->out[0])->type->rank; d++)
        if (has_rows(t, op, d, out) && out->x_dim == x_dim && !op->in[out->x].n_index &&
            op->in[out->x].value.i == x.i)
            return true;
    return false;
}

/* Is the operand there before the op at `at`? */
static bool is_there(const tp_overlap *t, const ds_block *block, const ds_use *use, uint32_t at) {
    uint32_t made = ds_block_find(t->func, block, use->value);
    return made < at || made == block->n_ops;
}

/* ---- writing ---- */

static void set_dim(tp_overlap *t, ds_op *op, uint32_t dim) {
    ds_build_attr_int(&t->b, op, "dim", dim);
}

/* A copy of the product on other operands, under its name. */
static ds_status multiply(tp_overlap *t, const product *p, ds_use x, ds_use w, ds_value *out,
                          ds_error *err) {
    const char *name = name_of(t, p->op->out[0]);
    ds_op *op = ds_build_op(&t->b, p->op->code);
    op->loc = p->op->loc;
    op->attrs = p->op->attrs;
    op->n_attrs = p->op->n_attrs;
    if (!ds_attr_find(op->attrs, op->n_attrs, "name")) ds_build_attr_text(&t->b, op, "name", name);
    ds_build_in(&t->b, op, p->x ? w : x);
    ds_build_in(&t->b, op, p->x ? x : w);
    *out = ds_build_out(&t->b, op, ds_arena_printf(arena_of(t), "%s.chunk", name), NULL);
    return ds_build_put(&t->b, op, err);
}

/* lo to hi of a dim. */
typedef struct dim_range {
    uint32_t dim;
    ds_expr lo, hi;
} dim_range;

static ds_status put_slice(tp_overlap *t, const char *name, ds_use x, dim_range of, ds_value *out,
                           ds_error *err) {
    ds_op *op = ds_build_op(&t->b, DS_OP_SLICE);
    ds_build_in(&t->b, op, x);
    set_dim(t, op, of.dim);
    ds_build_attr_expr(&t->b, op, "lo", of.lo);
    ds_build_attr_expr(&t->b, op, "hi", of.hi);
    *out = ds_build_out(&t->b, op, name, NULL);
    return ds_build_put(&t->b, op, err);
}

/* What was made in the place of the whole is the whole: it takes no time. */
static ds_op *whole(tp_overlap *t, const ds_value *parts, uint32_t n, uint32_t dim) {
    ds_op *op = ds_build_op(&t->b, DS_OP_CONCAT);
    for (uint32_t i = 0; i < n; i++) ds_build_in(&t->b, op, ds_use_of(parts[i]));
    set_dim(t, op, dim);
    ds_attr cost = {.name = ds_intern(&t->unit->strings, "cost"),
                    .kind = DS_ATTR_QUANTITY,
                    .expr = number(t, 0)};
    ds_unit_parse("us", 2, &cost.unit);
    ds_build_attr(&t->b, op, cost);
    return op;
}

static ds_status put_whole(tp_overlap *t, const ds_value *parts, uint32_t n, uint32_t dim,
                           const char *name, ds_value *out, ds_error *err) {
    ds_op *op = whole(t, parts, n, dim);
    *out = ds_build_out(&t->b, op, name, NULL);
    return ds_build_put(&t->b, op, err);
}

/* A region's operands are plain values: an element of a family is given a name. */
static ds_status plain(tp_overlap *t, ds_use *use, ds_error *err) {
    ds_value made;
    if (!use->n_index) return DS_OK;
    DS_TRY(ds_build_unary(&t->b, DS_OP_AFTER, name_of(t, use->value), *use, &made, err));
    *use = ds_use_of(made);
    return DS_OK;
}

/* A region in which tp is manual, and the other axes that split the rows. */
typedef struct region {
    tp_overlap *t;
    int64_t n;    /* devices */
    ds_expr rank; /* of a device */
    ds_value args[MAX_TOGETHER + 1];
} region;

/* `rows`: the dim with all the axes that split the rows. Operands are listed once each. */
static ds_status open_region(region *r, const ds_type *type, const ds_dim *rows, ds_use *in,
                             uint32_t n_in, ds_loc loc, ds_error *err) {
    tp_overlap *t = r->t;
    const char *axes[DS_MAX_RANK + 1] = {t->axis};
    ds_use listed[MAX_TOGETHER + 1];
    uint32_t at[MAX_TOGETHER + 1], n = 0, n_axes = 1;
    for (uint32_t s = 0; s < rows->n_splits && n_axes <= DS_MAX_RANK; s++)
        if (rows->splits[s].axis != t->axis) axes[n_axes++] = rows->splits[s].axis;
    if (!axis_size(t, &type->on, t->axis, &r->n))
        return ds_error_set(err, DS_ERR_INTERNAL, loc, "overlap: no size of axis %s", t->axis);
    ds_expr_node node = {.kind = DS_EXPR_AXIS_INDEX, .name = t->axis};
    r->rank = ds_expr_make(exprs_of(t), node);
    for (uint32_t i = 0; i < n_in; i++) {
        for (at[i] = 0; at[i] < i && !ds_use_same(&in[at[i]], &in[i]);) at[i]++;
        at[i] = at[i] < i ? at[at[i]] : n;
        if (at[i] == n) {
            listed[n] = in[i];
            DS_TRY(plain(t, &listed[n++], err));
        }
    }
    ds_op *op;
    DS_TRY(ds_build_local(&t->b, axes, n_axes, listed, n, &op, err));
    op->loc = loc;
    for (uint32_t i = 0; i < n_in; i++) r->args[i] = op->args[at[i]];
    return DS_OK;
}

/* To the device `shift` further. */
static ds_status pass_on(region *r, ds_value from, int64_t shift, const char *name, ds_value *to,
                         ds_error *err) {
    ds_op *op = ds_build_op(&r->t->b, DS_OP_PERMUTE);
    op->over = DS_NEW_N(arena_of(r->t), const char *, 1);
    op->over[op->n_over++] = r->t->axis;
    ds_build_in(&r->t->b, op, ds_use_of(from));
    if (shift != 1) ds_build_attr_int(&r->t->b, op, "shift", shift);
    *to = ds_build_out(&r->t->b, op, name, NULL);
    return ds_build_put(&r->t->b, op, err);
}

/* Where part (rank + shift) mod n begins. */
static ds_expr begin_of(const region *r, int64_t shift, ds_expr length) {
    const tp_overlap *t = r->t;
    ds_expr part = fold(t, DS_EXPR_ADD, r->rank, number(t, shift));
    part = fold(t, DS_EXPR_MOD, part, number(t, r->n));
    return fold(t, DS_EXPR_MUL, part, length);
}

/* parts[i] is that of device rank - i: the whole, in order. */
static ds_status in_order(region *r, const ds_value *parts, uint32_t dim, const char *name,
                          ds_value *out, ds_error *err) {
    tp_overlap *t = r->t;
    uint32_t n = (uint32_t)r->n;
    ds_value *sorted = DS_NEW_N(arena_of(t), ds_value, n), come;
    ds_expr length = ds_value_at(t->func, parts[0])->type->dims[dim].size;
    DS_TRY(put_whole(t, parts, n, dim, ds_arena_printf(arena_of(t), "%s.come", name), &come, err));
    for (uint32_t i = 0; i < n; i++) { /* part i is at place (rank - i) mod n */
        ds_expr lo = begin_of(r, (r->n - i) % r->n, length);
        dim_range part = {dim, lo, fold(t, DS_EXPR_ADD, lo, length)};
        DS_TRY(put_slice(t, ds_arena_printf(arena_of(t), "%s.part", name), ds_use_of(come), part,
                         &sorted[i], err));
    }
    return put_whole(t, sorted, n, dim, name, out, err);
}

/* ---- a gather in front of products ---- */

typedef struct gather {
    ds_op *op;
    uint32_t dim, at; /* of the gather in its block */
    product by[MAX_TOGETHER];
    uint32_t n;
    uint32_t to; /* where the first of those that read it stands */
} gather;

/* Products that can be done part by part, at the first op that reads what is gathered. */
static bool find_readers(tp_overlap *t, const ds_block *block, gather *g) {
    ds_value x = g->op->out[0];
    g->n = 0;
    for (g->to = g->at + 1; g->to < block->n_ops && !reads(block->ops[g->to], x);) g->to++;
    for (uint32_t i = g->to; i < block->n_ops && g->n < MAX_TOGETHER; i++) {
        product *p = &g->by[g->n];
        if (has_rows_of(t, block->ops[i], x, g->dim, p) &&
            is_there(t, block, &p->op->in[p->w], g->to))
            g->n++;
    }
    return g->n > 0;
}

static ds_status put_gather(tp_overlap *t, const gather *g, ds_error *err) {
    region r = {.t = t};
    ds_use in[MAX_TOGETHER + 1] = {g->op->in[0]}, results[MAX_TOGETHER + 1];
    ds_value out[MAX_TOGETHER + 1], made;
    const ds_type *type = type_of(t, &in[0]);
    const char *name = name_of(t, in[0].value);
    uint32_t n_read = 0;
    for (uint32_t i = 0; i < g->n; i++) in[i + 1] = g->by[i].op->in[g->by[i].w];
    DS_TRY(open_region(&r, type, &type->dims[g->dim], in, g->n + 1, g->op->loc, err));
    uint32_t n = (uint32_t)r.n;
    ds_value *here = DS_NEW_N(arena_of(t), ds_value, n * (g->n + 1u));
    here[0] = r.args[0];
    for (uint32_t turn = 0; turn < n; turn++) {
        if (turn + 1 < n)
            DS_TRY(pass_on(&r, here[turn], 1, ds_arena_printf(arena_of(t), "%s.next", name),
                           &here[turn + 1], err));
        for (uint32_t i = 0; i < g->n; i++)
            DS_TRY(multiply(t, &g->by[i], ds_use_of(here[turn]), ds_use_of(r.args[i + 1]),
                            &here[(i + 1) * n + turn], err));
    }
    for (uint32_t i = 0; i < g->n; i++) {
        const product *p = &g->by[i];
        out[i] = p->op->out[0];
        n_read++;
        DS_TRY(in_order(&r, here + (i + 1) * n, p->dim, name_of(t, out[i]), &made, err));
        results[i] = ds_use_of(made);
    }
    if (t->reads[g->op->out[0].i] > n_read) { /* others want all of it, too */
        out[g->n] = g->op->out[0];
        DS_TRY(in_order(&r, here, g->dim, name_of(t, out[g->n]), &made, err));
        results[g->n] = ds_use_of(made);
        ds_build_end_local(&t->b, results, out, g->n + 1);
        return DS_OK;
    }
    ds_build_end_local(&t->b, results, out, g->n);
    return DS_OK;
}

/* ---- a scatter behind a product ---- */

typedef struct scatter {
    ds_op *op;
    product of;
} scatter;

/* Is it the gradient of a product's input? Its scatter is left to run beside weights' gradients,
 * be they elsewhere (schedules that split them off). */
static bool is_dx(const tp_overlap *t, const ds_op *op) {
    const char *name = ds_path_op_name(t->func, op);
    size_t n = strlen(name);
    return n > 3 && strcmp(name + n - 3, ".dx") == 0;
}

static bool find_product(tp_overlap *t, const ds_block *block, uint32_t at, scatter *s) {
    uint32_t dim;
    s->op = block->ops[at];
    if (!is_over_tp(t, s->op, DS_OP_REDUCE_SCATTER, &dim) || s->op->in[0].n_index) return false;
    ds_value sum = s->op->in[0].value;
    uint32_t made = ds_block_find(t->func, block, sum);
    return made < at && t->reads[sum.i] == 1 && is_term(t, ds_value_at(t->func, sum)->type) &&
           !is_uneven(ds_value_at(t->func, s->op->out[0])->type) &&
           has_rows(t, block->ops[made], dim, &s->of) && !is_dx(t, block->ops[made]);
}

/* [1, …] of a part, to be summed up with others. */
static ds_status stack(tp_overlap *t, ds_value *part, ds_error *err) {
    const ds_type *type = ds_value_at(t->func, *part)->type;
    ds_expr shape[DS_MAX_RANK + 1] = {number(t, 1)};
    for (uint32_t d = 0; d < type->rank; d++) shape[d + 1] = type->dims[d].size;
    ds_op *op = ds_build_op(&t->b, DS_OP_RESHAPE);
    ds_build_in(&t->b, op, ds_use_of(*part));
    ds_build_attr_exprs(&t->b, op, "shape", shape, type->rank + 1);
    *part = ds_build_out(&t->b, op, name_of(t, *part), NULL);
    return ds_build_put(&t->b, op, err);
}

/* The sum of what has come: terms lie behind each other in one buffer. */
static ds_status sum_up(region *r, ds_value *terms, const char *name, ds_value *out,
                        ds_error *err) {
    tp_overlap *t = r->t;
    ds_value all;
    for (uint32_t i = 0; i < r->n; i++) DS_TRY(stack(t, &terms[i], err));
    DS_TRY(put_whole(t, terms, (uint32_t)r->n, 0, ds_arena_printf(arena_of(t), "%s.terms", name),
                     &all, err));
    ds_op *op = ds_build_op(&t->b, DS_OP_REDUCE_SUM);
    ds_expr zero = number(t, 0);
    ds_build_in(&t->b, op, ds_use_of(all));
    ds_build_attr_exprs(&t->b, op, "dims", &zero, 1);
    *out = ds_build_out(&t->b, op, name, NULL);
    return ds_build_put(&t->b, op, err);
}

static ds_status put_ring(tp_overlap *t, const scatter *s, ds_error *err) {
    region r = {.t = t};
    const product *p = &s->of;
    ds_use in[2] = {p->op->in[p->x], p->op->in[p->w]};
    const ds_type *type = ds_value_at(t->func, s->op->out[0])->type;
    const char *name = name_of(t, s->op->out[0]);
    DS_TRY(open_region(&r, type, &type->dims[p->dim], in, 2, p->op->loc, err));
    uint32_t n = (uint32_t)r.n;
    ds_value *terms = DS_NEW_N(arena_of(t), ds_value, n), rows, made;
    ds_expr length = fold(
        t, DS_EXPR_DIV, ds_value_at(t->func, r.args[0])->type->dims[p->x_dim].size, number(t, r.n));
    for (uint32_t turn = 1; turn <= n; turn++) { /* the last one is the device's own */
        ds_expr lo = begin_of(&r, turn % r.n, length);
        dim_range some = {p->x_dim, lo, fold(t, DS_EXPR_ADD, lo, length)};
        DS_TRY(put_slice(t, ds_arena_printf(arena_of(t), "%s.rows", name), ds_use_of(r.args[0]),
                         some, &rows, err));
        DS_TRY(multiply(t, p, ds_use_of(rows), ds_use_of(r.args[1]), &made, err));
        terms[turn - 1] = made;
        if (turn < n)
            DS_TRY(pass_on(&r, made, turn, ds_arena_printf(arena_of(t), "%s.come", name),
                           &terms[turn - 1], err));
    }
    DS_TRY(sum_up(&r, terms, name, &made, err));
    ds_use result = ds_use_of(made);
    ds_build_end_local(&t->b, &result, &s->op->out[0], 1);
    return DS_OK;
}

/* The last dim of the result that is the weight's alone, and that parts divide; -1: none. */
static int columns(const tp_overlap *t, const product *p, uint32_t *w_dim) {
    const ds_type *type = ds_value_at(t->func, p->op->out[0])->type;
    for (uint32_t d = type->rank; d-- > 0;) {
        int64_t size;
        const ds_rule_dim *dim = &p->rule.out[0].dims[d];
        int from = dim->n == 1 ? dim_of(&p->rule.in[p->w], dim->factors[0]) : -1;
        if (from < 0 || dim_of(&p->rule.in[p->x], dim->factors[0]) >= 0 || type->dims[d].n_splits ||
            !int_of(t, type->dims[d].size, &size) || size % DS_TP_PIPE_CHUNKS)
            continue;
        *w_dim = (uint32_t)from;
        return (int)d;
    }
    return -1;
}

static ds_status put_pipe(tp_overlap *t, const scatter *s, uint32_t dim, uint32_t w_dim,
                          ds_error *err) {
    const product *p = &s->of;
    ds_value parts[DS_TP_PIPE_CHUNKS], w, made;
    const char *name = name_of(t, s->op->out[0]);
    ds_expr size = ds_value_at(t->func, p->op->out[0])->type->dims[dim].size;
    ds_expr length = fold(t, DS_EXPR_DIV, size, number(t, DS_TP_PIPE_CHUNKS));
    for (int64_t i = 0; i < DS_TP_PIPE_CHUNKS; i++) {
        ds_expr lo = fold(t, DS_EXPR_MUL, number(t, i), length), hi;
        /* the last one ends where all do, so that they are seen to be all again */
        hi = i + 1 < DS_TP_PIPE_CHUNKS ? fold(t, DS_EXPR_ADD, lo, length) : size;
        DS_TRY(put_slice(t, ds_arena_printf(arena_of(t), "%s.columns", name), p->op->in[p->w],
                         (dim_range){w_dim, lo, hi}, &w, err));
        DS_TRY(multiply(t, p, p->op->in[p->x], ds_use_of(w), &made, err));
        ds_op *op = ds_build_op(&t->b, DS_OP_REDUCE_SCATTER);
        ds_build_in(&t->b, op, ds_use_of(made));
        op->loc = s->op->loc;
        op->attrs = s->op->attrs;
        op->n_attrs = s->op->n_attrs;
        op->over = s->op->over;
        op->n_over = s->op->n_over;
        op->dim = s->op->dim;
        parts[i] = ds_build_out(&t->b, op, ds_arena_printf(arena_of(t), "%s.part", name), NULL);
        DS_TRY(ds_build_put(&t->b, op, err));
    }
    ds_op *op = whole(t, parts, DS_TP_PIPE_CHUNKS, dim);
    op->out = s->op->out;
    op->n_out = 1;
    ds_value_at(t->func, op->out[0])->def = op;
    ds_build_append(&t->b, op);
    return DS_OK;
}

static ds_status put_scatter(tp_overlap *t, const scatter *s, bool *done, ds_error *err) {
    uint32_t w_dim = 0;
    *done = true;
    if (t->step->strategy.tp_overlap == DS_TP_OVERLAP_RING) return put_ring(t, s, err);
    int dim = columns(t, &s->of, &w_dim);
    *done = dim >= 0;
    return *done ? put_pipe(t, s, (uint32_t)dim, w_dim, err) : DS_OK;
}

/* ---- weights' gradients behind the scatter ---- */

static bool is_in(ds_op *const *ops, uint32_t n, const ds_op *op) {
    for (uint32_t i = 0; i < n; i++)
        if (ops[i] == op) return true;
    return false;
}

static bool reads_any(const ds_op *op, ds_op *const *ops, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < ops[i]->n_out; k++)
            if (reads(op, ops[i]->out[k])) return true;
    return false;
}

/* The ops of the block that make terms of what the op at `at` scatters. */
static uint32_t find_terms(const tp_overlap *t, const ds_block *block, uint32_t at, ds_op **terms) {
    uint32_t n = 0;
    for (uint32_t i = at; i-- > 0;) {
        ds_op *op = block->ops[i];
        if (op->n_out != 1 || !is_term(t, ds_value_at(t->func, op->out[0])->type)) continue;
        bool wanted = reads(block->ops[at], op->out[0]);
        for (uint32_t k = 0; k < n && !wanted; k++) wanted = reads(terms[k], op->out[0]);
        if (wanted) terms[n++] = op;
    }
    return n;
}

/* What flows to the terms that are products: an input's gradient is one of it and a weight. */
static uint32_t find_flows(tp_overlap *t, ds_op *const *terms, uint32_t n_terms, uint32_t dim,
                           ds_use *flows) {
    uint32_t n = 0;
    product term;
    for (uint32_t i = 0; i < n_terms; i++)
        if (has_rows(t, terms[i], dim, &term)) flows[n++] = terms[i]->in[term.x];
    return n;
}

/* Is it another product of what flows to a term: a weight's gradient? */
static bool has_flow(const ds_op *op, const ds_use *flows, uint32_t n) {
    for (uint32_t i = 0; i < n && is_product(op); i++)
        if (ds_use_same(&op->in[0], &flows[i]) || ds_use_same(&op->in[1], &flows[i])) return true;
    return false;
}

/* Gradients of weights by what flows to the terms, and what is made of them, go behind the scatter.
 * Returns how many ops did. */
static uint32_t make_way(tp_overlap *t, ds_block *block, uint32_t at, uint32_t dim) {
    ds_op **terms = DS_NEW_N(arena_of(t), ds_op *, at + 1), **late;
    uint32_t n_terms = find_terms(t, block, at, terms), n_late = 0, n = 0;
    ds_use *flows = DS_NEW_N(arena_of(t), ds_use, n_terms + 1);
    uint32_t n_flows = find_flows(t, terms, n_terms, dim, flows);
    if (!n_flows) return 0;
    late = DS_NEW_N(arena_of(t), ds_op *, at + 1);
    for (uint32_t i = 0; i < at; i++) {
        ds_op *op = block->ops[i];
        bool term = is_in(terms, n_terms, op);
        if (!(has_flow(op, flows, n_flows) && !term) && !reads_any(op, late, n_late)) continue;
        if (term) return 0;
        late[n_late++] = op;
    }
    if (!n_late || reads_any(block->ops[at], late, n_late)) return 0;
    ds_op **ops = DS_NEW_N(arena_of(t), ds_op *, block->n_ops + 1); /* the old one may be shared */
    for (uint32_t i = 0; i <= at; i++)
        if (!is_in(late, n_late, block->ops[i])) ops[n++] = block->ops[i];
    memcpy(ops + n, late, n_late * sizeof *late);
    memcpy(ops + at + 1, block->ops + at + 1, (block->n_ops - at - 1) * sizeof *ops);
    block->ops = ops;
    return n_late;
}

/* ---- the pass ---- */

/* The op at `at` and the products that it was with go, and what has been built comes to `to`.
 * Returns the index behind that. */
static uint32_t put_in_place(tp_overlap *t, ds_block *block, ds_op *const *gone, uint32_t n_gone,
                             uint32_t to) {
    ds_block made = ds_build_take(&t->b);
    ds_op **ops = DS_NEW_N(arena_of(t), ds_op *, block->n_ops + made.n_ops + 1);
    uint32_t n = 0, end = 0;
    for (uint32_t i = 0; i < block->n_ops; i++) {
        if (i == to) {
            memcpy(ops + n, made.ops, made.n_ops * sizeof *ops);
            n += made.n_ops;
            end = n;
        }
        if (!is_in(gone, n_gone, block->ops[i])) ops[n++] = block->ops[i];
    }
    block->ops = ops;
    block->n_ops = n;
    return end;
}

static ds_status cut_gather(tp_overlap *t, ds_block *block, uint32_t *at, ds_error *err) {
    gather g = {.op = block->ops[*at], .at = *at};
    ds_op *gone[MAX_TOGETHER + 1] = {g.op};
    if (!is_over_tp(t, g.op, DS_OP_ALL_GATHER, &g.dim) || is_uneven(type_of(t, &g.op->in[0])) ||
        type_of(t, &g.op->in[0])->n_partials || !find_readers(t, block, &g))
        return DS_OK;
    DS_TRY(put_gather(t, &g, err));
    for (uint32_t i = 0; i < g.n; i++) gone[i + 1] = g.by[i].op;
    put_in_place(t, block, gone, g.n + 1, g.to);
    --*at; /* what stood behind the gather is in its place */
    return DS_OK;
}

static ds_status cut_scatter(tp_overlap *t, ds_block *block, uint32_t *at, ds_error *err) {
    scatter s;
    bool done;
    if (!find_product(t, block, *at, &s)) return DS_OK;
    DS_TRY(put_scatter(t, &s, &done, err));
    if (!done) return DS_OK;
    ds_op *gone[2] = {s.op, s.of.op};
    *at = put_in_place(t, block, gone, 2, *at) - 1;
    return DS_OK;
}

static ds_status overlap_block(tp_overlap *t, ds_block *block, bool in_loop, ds_error *err) {
    bool chunks = in_loop && t->step->strategy.tp_overlap > DS_TP_OVERLAP_BULK;
    for (uint32_t i = 0; i < block->n_ops; i++) {
        ds_op *op = block->ops[i];
        uint32_t dim, n_late = 0;
        if (op->code == DS_OP_FOR) DS_TRY(overlap_block(t, op->body, true, err));
        if (is_over_tp(t, op, DS_OP_REDUCE_SCATTER, &dim)) n_late = make_way(t, block, i, dim);
        if (n_late) {
            i -= n_late; /* where the scatter is now */
            continue;
        }
        if (chunks && op->code == DS_OP_ALL_GATHER) DS_TRY(cut_gather(t, block, &i, err));
        if (chunks && op->code == DS_OP_REDUCE_SCATTER) DS_TRY(cut_scatter(t, block, &i, err));
    }
    return DS_OK;
}

ds_status ds_overlap__tp(ds_model_step *step, ds_func *func, ds_error *err) {
    tp_overlap t = {.step = step, .unit = step->unit, .func = func};
    t.axis = ds_intern(&step->unit->strings, "tp");
    t.reads = ds_xcalloc(func->values.n + 1, sizeof *t.reads);
    count_reads(&t, &func->body);
    ds_build_resume(&t.b, func);
    t.b.axis_size = axis_size;
    t.b.context = &t;
    ds_status status = overlap_block(&t, &func->body, false, err);
    ds_build_end(&t.b);
    free(t.reads);
    return status;
}
