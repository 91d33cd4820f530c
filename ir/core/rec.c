/* Reads of equations at points, and the check of a whole rec.
 *
 * The check makes one node of every op at every point, numbered op by op in row-major order, and
 * walks the graph of reads depth first: a read of a node that is still open closes a cycle, and the
 * open nodes spell it out. */
#include "ir/core/rec.h"

#include "ir/base/map.h"

#include <stdlib.h>

/* ---- which functions have one ---- */

static const ds_op *rec_in_block(const ds_block *block, bool calls, ds_map *seen);

static const ds_op *rec_in_func(const ds_func *func, bool calls, ds_map *seen) {
    if (ds_map_find(seen, DS_KEY(func))) return NULL;
    ds_map_put(seen, DS_KEY(func), 1);
    return rec_in_block(&func->body, calls, seen);
}

static const ds_op *rec_in_block(const ds_block *block, bool calls, ds_map *seen) {
    const ds_op *found = NULL;
    for (uint32_t i = 0; i < block->n_ops && !found; i++) {
        const ds_op *op = block->ops[i];
        if (op->code == DS_OP_REC) return op;
        if (op->body) found = rec_in_block(op->body, calls, seen);
        if (!found && calls && op->code == DS_OP_CALL && op->callee)
            found = rec_in_func(op->callee, calls, seen);
    }
    return found;
}

const ds_op *ds_rec_in(const ds_func *func, bool calls) {
    ds_map seen;
    ds_map_init(&seen);
    const ds_op *found = rec_in_func(func, calls, &seen);
    ds_map_deinit(&seen);
    return found;
}

/* The first use of the loop's results in a block. */
static const ds_use *use_of_results(const ds_op *loop, const ds_block *block) {
    const ds_use *found = NULL;
    for (uint32_t i = 0; i < block->n_ops && !found; i++) {
        const ds_op *op = block->ops[i];
        for (uint32_t k = 0; k < op->n_in && !found; k++)
            for (uint32_t r = loop->n_args; r < loop->n_out; r++)
                if (op->in[k].value.i == loop->out[r].i) found = &op->in[k];
        if (!found && op->body) found = use_of_results(loop, op->body);
    }
    return found;
}

static const ds_use *own_read_in(const ds_func *func, const ds_block *block, ds_map *seen,
                                 const ds_func **where) {
    const ds_use *found = NULL;
    for (uint32_t i = 0; i < block->n_ops && !found; i++) {
        const ds_op *op = block->ops[i];
        if (op->code == DS_OP_FOR) found = use_of_results(op, op->body);
        if (found) *where = func;
        if (!found && op->body) found = own_read_in(func, op->body, seen, where);
        if (found || op->code != DS_OP_CALL || !op->callee) continue;
        if (ds_map_find(seen, DS_KEY(op->callee))) continue;
        ds_map_put(seen, DS_KEY(op->callee), 1);
        found = own_read_in(op->callee, &op->callee->body, seen, where);
    }
    return found;
}

ds_status ds_rec_refuse_own_reads(const ds_func *func, const char *who, ds_error *err) {
    ds_map seen;
    ds_map_init(&seen);
    const ds_func *where = func;
    const ds_use *use = own_read_in(func, &func->body, &seen, &where);
    ds_map_deinit(&seen);
    if (!use) return DS_OK;
    return ds_error_set(err, DS_ERR_UNSUPPORTED, use->loc,
                        "%%%s is read by the loop that keeps it, and %s takes no such loop",
                        ds_value_at(where, use->value)->name, who);
}

/* ---- reads ---- */

typedef struct reader {
    const ds_func *func;
    const ds_exprs *exprs;
    ds_rec_visit *visit;
    void *context;
} reader;

static ds_status read_use(const reader *r, const ds_env *env, const ds_use *use, ds_error *err) {
    ds_rec_read read = {.use = use, .at = env->indices, .n = use->n_index};
    if (read.n > DS_MAX_REC_DIMS)
        return ds_error_set(err, DS_ERR_LIMIT, use->loc, "%%%s has %u indices; at most %d",
                            ds_value_at(r->func, use->value)->name, read.n, DS_MAX_REC_DIMS);
    for (uint32_t i = 0; i < read.n; i++) {
        DS_TRY(ds_expr_eval_int(env, use->index[i], use->loc, &read.lo[i], err));
        read.hi[i] = read.lo[i] + (read.lo[i] < INT64_MAX);
        if (ds_use_is_range(use, i))
            DS_TRY(ds_expr_eval_int(env, use->index_hi[i], use->loc, &read.hi[i], err));
    }
    return r->visit(r->context, &read, err);
}

static ds_status read_op(const reader *r, const ds_env *env, const ds_op *op, ds_error *err);

static bool uses_mention(const reader *r, const ds_op *op, const char *name) {
    for (uint32_t i = 0; i < op->n_in; i++)
        for (uint32_t k = 0; k < op->in[i].n_index; k++)
            if (ds_expr_mentions(r->exprs, op->in[i].index[k], name) ||
                (ds_use_is_range(&op->in[i], k) &&
                 ds_expr_mentions(r->exprs, op->in[i].index_hi[k], name)))
                return true;
    return false;
}

/* Do the reads inside depend on the loop's index? */
static bool reads_mention(const reader *r, const ds_block *block, const char *name) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        if (uses_mention(r, op, name) || (op->body && reads_mention(r, op->body, name)))
            return true;
        if (op->code == DS_OP_FOR &&
            (ds_expr_mentions(r->exprs, op->lo, name) || ds_expr_mentions(r->exprs, op->hi, name)))
            return true;
    }
    return false;
}

static ds_status read_block(const reader *r, const ds_env *env, const ds_block *block,
                            ds_error *err) {
    for (uint32_t i = 0; i < block->n_ops; i++) DS_TRY(read_op(r, env, block->ops[i], err));
    return DS_OK;
}

static ds_status read_loop(const reader *r, const ds_env *env, const ds_op *op, ds_error *err) {
    int64_t lo, hi;
    DS_TRY(ds_expr_eval_int(env, op->lo, op->loc, &lo, err));
    DS_TRY(ds_expr_eval_int(env, op->hi, op->loc, &hi, err));
    bool each = reads_mention(r, op->body, op->index);
    for (int64_t at = lo; at < hi; at = each ? at + 1 : hi) {
        ds_index index = {op->index, at, env->indices};
        ds_env inner = *env;
        inner.indices = &index;
        DS_TRY(read_block(r, &inner, op->body, err));
    }
    return DS_OK;
}

static ds_status read_op(const reader *r, const ds_env *env, const ds_op *op, ds_error *err) {
    for (uint32_t i = 0; i < op->n_in; i++) {
        bool taken = i >= op->n_conds;
        if (!taken) {
            ds_num holds;
            DS_TRY(ds_expr_eval(env, op->conds[i], op->in[i].loc, &holds, err));
            taken = holds.kind == DS_NUM_INT ? holds.i != 0 : holds.r != 0;
        }
        if (taken) DS_TRY(read_use(r, env, &op->in[i], err));
        if (taken && op->n_conds) return DS_OK;
    }
    if (op->code == DS_OP_FOR) return read_loop(r, env, op, err);
    return op->body ? read_block(r, env, op->body, err) : DS_OK;
}

ds_status ds_rec_reads(const ds_func *func, const ds_op *op, const ds_env *env, ds_rec_visit *visit,
                       void *context, ds_error *err) {
    const reader r = {func, env->exprs, visit, context};
    return read_op(&r, env, op, err);
}

/* ---- points ---- */

/* An op of the body: the nodes first … first + points - 1. */
typedef struct equation {
    const ds_op *op;
    uint32_t n_dims;
    uint32_t dim[DS_MAX_REC_DIMS]; /* of the header */
    int64_t first, points;
} equation;

typedef struct box {
    uint32_t to; /* equation */
    ds_value value;
    ds_loc loc;
    int64_t lo[DS_MAX_REC_DIMS], hi[DS_MAX_REC_DIMS];
} box;

/* A node that is being looked at, and the boxes of what it reads. */
typedef struct open_node {
    int64_t node;
    ds_value value; /* as which it is read */
    uint32_t equation;
    uint32_t first_box; /* of check.boxes; those of the node end where the next node's begin */
    uint32_t box;       /* the next to look at */
    int64_t at[DS_MAX_REC_DIMS];
    bool in_box;
} open_node;

enum { NEW, OPEN, DONE };

typedef struct check {
    const ds_func *func;
    const ds_op *rec;
    const ds_env *around;
    int64_t lo[DS_MAX_REC_DIMS], hi[DS_MAX_REC_DIMS]; /* of the header's dims */
    DS_VEC(equation) equations;
    uint32_t *equation_of; /* value → equation + 1 */
    uint8_t *state;        /* of each node */
    int64_t budget;
    DS_VEC(open_node) open;
    DS_VEC(box) boxes;
} check;

static int64_t extent(const check *c, uint32_t dim) {
    return c->hi[dim] > c->lo[dim] ? c->hi[dim] - c->lo[dim] : 0;
}

/* The points of an op, or of a use of the yield, that has the dims of a value. */
static ds_status points_over(const check *c, const ds_op *op, ds_value like, equation *out,
                             ds_error *err) {
    const ds_value_info *info = ds_value_at(c->func, like);
    *out = (equation){.op = op, .n_dims = info->n_binders, .points = 1};
    for (uint32_t i = 0; i < out->n_dims; i++) {
        uint32_t *dim = &out->dim[i];
        while (*dim < c->rec->n_dims && c->rec->dims[*dim].name != info->binders[i].name) ++*dim;
        if (*dim == c->rec->n_dims)
            return ds_error_set(err, DS_ERR_INTERNAL, op->loc, "%%%s has the dim '%s' of no rec",
                                info->name, info->binders[i].name);
        if (__builtin_mul_overflow(out->points, extent(c, *dim), &out->points))
            return ds_error_set(err, DS_ERR_OVERFLOW, op->loc, "more points than 2^63");
    }
    return DS_OK;
}

static ds_status add_equation(check *c, const ds_op *op, int64_t *nodes, ds_error *err) {
    equation e;
    DS_TRY(points_over(c, op, op->out[0], &e, err));
    e.first = *nodes;
    if (__builtin_add_overflow(*nodes, e.points, nodes))
        return ds_error_set(err, DS_ERR_OVERFLOW, op->loc, "more points than 2^63");
    for (uint32_t k = 0; k < op->n_out; k++) c->equation_of[op->out[k].i] = c->equations.n + 1;
    DS_HPUSH(&c->equations, e);
    return DS_OK;
}

static void point_of(const check *c, const equation *e, int64_t node, int64_t *at) {
    int64_t rest = node - e->first;
    for (uint32_t i = e->n_dims; i-- > 0;) {
        int64_t n = extent(c, e->dim[i]);
        at[i] = c->lo[e->dim[i]] + rest % n;
        rest /= n;
    }
}

static int64_t node_of(const check *c, const equation *e, const int64_t *at) {
    int64_t node = 0;
    for (uint32_t i = 0; i < e->n_dims; i++)
        node = node * extent(c, e->dim[i]) + at[i] - c->lo[e->dim[i]];
    return e->first + node;
}

/* ---- one read ---- */

/* " (at t = 3, l = 0)", outermost first. */
static void point_text(const ds_index *at, const ds_index *end, ds_buf *out) {
    if (at == end) return;
    point_text(at->up, end, out);
    ds_buf_printf(out, "%s%s = %lld", at->up == end ? " (at " : ", ", at->name,
                  (long long)at->value);
}

static ds_status out_of_range(const check *c, const ds_rec_read *read, uint32_t i, int64_t lo,
                              int64_t hi, ds_error *err) {
    const ds_use *use = read->use;
    ds_buf text = {0};
    ds_buf_printf(&text, "%%%s{", ds_value_at(c->func, use->value)->name);
    for (uint32_t k = 0; k < use->n_index; k++) {
        if (k) ds_buf_put(&text, ", ");
        ds_expr_print(c->around->exprs, use->index[k], &text);
        if (!ds_use_is_range(use, k)) continue;
        ds_buf_putc(&text, ':');
        ds_expr_print(c->around->exprs, use->index_hi[k], &text);
    }
    if (read->hi[i] < read->lo[i])
        ds_buf_printf(&text, "} reads a range that ends before it begins, %lld:%lld",
                      (long long)read->lo[i], (long long)read->hi[i]);
    else if (ds_use_is_range(use, i))
        ds_buf_printf(&text, "} reads %lld to %lld", (long long)read->lo[i],
                      (long long)read->hi[i] - 1);
    else
        ds_buf_printf(&text, "} reads index %lld", (long long)read->lo[i]);
    ds_buf_printf(&text, ", but %s goes from %lld to %lld",
                  ds_value_at(c->func, use->value)->binders[i].name, (long long)lo,
                  (long long)hi - 1);
    if (read->at != c->around->indices) {
        point_text(read->at, c->around->indices, &text);
        ds_buf_putc(&text, ')');
    }
    ds_status status = ds_error_set(err, DS_ERR_VALUE, use->loc, "%s", text.text);
    ds_buf_deinit(&text);
    return status;
}

/* Each index against its binder, which may mention the indices to the left. */
static ds_status check_range(const check *c, const ds_rec_read *read, ds_error *err) {
    const ds_value_info *info = ds_value_at(c->func, read->use->value);
    ds_index own[DS_MAX_REC_DIMS];
    ds_env env = *c->around;
    env.indices = read->at;
    for (uint32_t i = 0; i < read->n && i < info->n_binders; i++) {
        int64_t lo, hi;
        const ds_binder *binder = &info->binders[i];
        DS_TRY(ds_expr_eval_int(&env, binder->lo, binder->loc, &lo, err));
        DS_TRY(ds_expr_eval_int(&env, binder->hi, binder->loc, &hi, err));
        if (read->lo[i] < lo || read->hi[i] > hi || read->lo[i] > read->hi[i])
            return out_of_range(c, read, i, lo, hi, err);
        own[i] = (ds_index){binder->name, read->lo[i], env.indices};
        env.indices = &own[i];
    }
    return DS_OK;
}

static ds_status visit_read(void *context, const ds_rec_read *read, ds_error *err) {
    check *c = context;
    c->budget--;
    if (read->n) DS_TRY(check_range(c, read, err));
    uint32_t to = c->equation_of[read->use->value.i];
    if (!to) return DS_OK;
    box b = {.to = to - 1, .value = read->use->value, .loc = read->use->loc};
    for (uint32_t i = 0; i < read->n; i++) {
        b.lo[i] = read->lo[i];
        b.hi[i] = read->hi[i];
        if (b.lo[i] == b.hi[i]) return DS_OK;
    }
    DS_HPUSH(&c->boxes, b);
    return DS_OK;
}

/* ---- the walk ---- */

/* Adds the boxes of what an equation reads at its node. */
static ds_status read_at(check *c, const equation *eq, int64_t node, ds_error *err) {
    int64_t at[DS_MAX_REC_DIMS];
    ds_index room[DS_MAX_REC_DIMS];
    ds_env env = *c->around;
    point_of(c, eq, node, at);
    for (uint32_t i = 0; i < eq->n_dims; i++) {
        room[i] = (ds_index){c->rec->dims[eq->dim[i]].name, at[i], env.indices};
        env.indices = &room[i];
    }
    return ds_rec_reads(c->func, eq->op, &env, visit_read, c, err);
}

static ds_status open_at(check *c, int64_t node, uint32_t e, ds_value value, ds_error *err) {
    open_node open = {.node = node, .value = value, .equation = e};
    open.first_box = open.box = c->boxes.n;
    c->state[node] = OPEN;
    DS_HPUSH(&c->open, open);
    return read_at(c, &c->equations.at[e], node, err);
}

/* The next node that the open one reads; false: there is no other. */
static bool next_read(check *c, open_node *open, int64_t *node, const box **through) {
    while (open->box < c->boxes.n) {
        const box *b = &c->boxes.at[open->box];
        const equation *to = &c->equations.at[b->to];
        uint32_t i = to->n_dims;
        for (uint32_t k = 0; k < to->n_dims && !open->in_box; k++) open->at[k] = b->lo[k];
        if (open->in_box) {
            while (i > 0 && ++open->at[i - 1] == b->hi[i - 1]) {
                open->at[i - 1] = b->lo[i - 1];
                i--;
            }
            if (i == 0) {
                open->in_box = false;
                open->box++;
                continue;
            }
        }
        open->in_box = true;
        *node = node_of(c, to, open->at);
        *through = b;
        return true;
    }
    return false;
}

#define MAX_CHAIN 6 /* of a long cycle the first values, then the last */

static void node_text(const check *c, const open_node *open, ds_buf *out) {
    const equation *e = &c->equations.at[open->equation];
    int64_t at[DS_MAX_REC_DIMS];
    point_of(c, e, open->node, at);
    ds_buf_printf(out, "%%%s", ds_value_at(c->func, open->value)->name);
    for (uint32_t i = 0; i < e->n_dims; i++)
        ds_buf_printf(out, "%s%lld", i ? ", " : "{", (long long)at[i]);
    if (e->n_dims) ds_buf_putc(out, '}');
}

static ds_status refuse_cycle(const check *c, int64_t node, const box *through, ds_error *err) {
    uint32_t first = 0, n = c->open.n;
    while (c->open.at[first].node != node) first++;
    ds_buf text = {0};
    open_node closing = c->open.at[first];
    closing.value = through->value;
    node_text(c, &closing, &text);
    for (uint32_t i = first + 1; i < n; i++) {
        if (n - first > MAX_CHAIN && i - first == MAX_CHAIN - 1) {
            ds_buf_printf(&text, ", and so on over %u more", n - i);
            break;
        }
        ds_buf_put(&text, i == first + 1 ? " reads " : ", which reads ");
        node_text(c, &c->open.at[i], &text);
    }
    ds_buf_put(&text, n == first + 1 ? " reads " : ", which reads ");
    node_text(c, &closing, &text);
    ds_status status =
        ds_error_set(err, DS_ERR_VALUE, through->loc, "a value depends on itself: %s", text.text);
    ds_buf_deinit(&text);
    return status;
}

/* Everything that a node reads, directly or not. */
static ds_status walk_from(check *c, int64_t root, uint32_t e, ds_error *err) {
    DS_TRY(open_at(c, root, e, c->equations.at[e].op->out[0], err));
    while (c->open.n && c->budget > 0) {
        open_node *open = &c->open.at[c->open.n - 1];
        int64_t node;
        const box *through;
        if (!next_read(c, open, &node, &through)) {
            c->state[open->node] = DONE;
            c->boxes.n = open->first_box;
            c->open.n--;
            continue;
        }
        c->budget--;
        if (c->state[node] == OPEN) return refuse_cycle(c, node, through, err);
        if (c->state[node] == NEW) DS_TRY(open_at(c, node, through->to, through->value, err));
    }
    return DS_OK;
}

/* What a rec yields is read at every point of the result's dims. */
static ds_status check_yield(check *c, ds_error *err) {
    const ds_block *body = c->rec->body;
    const ds_op *yield = body->n_ops ? body->ops[body->n_ops - 1] : NULL;
    if (!yield || yield->code != DS_OP_YIELD) return DS_OK;
    for (uint32_t i = 0; i < yield->n_in && i < c->rec->n_out; i++) {
        equation e;
        ds_op one = {.code = DS_OP_YIELD, .loc = yield->loc, .in = &yield->in[i], .n_in = 1};
        DS_TRY(points_over(c, &one, c->rec->out[i], &e, err));
        for (int64_t k = 0; k < e.points; k++) {
            c->boxes.n = 0;
            DS_TRY(read_at(c, &e, k, err));
        }
    }
    return DS_OK;
}

#define READS_A_POINT 4 /* assumed: two operands, each looked at and followed */

static ds_status check_points(check *c, int64_t budget, bool *complete, ds_error *err) {
    int64_t nodes = 0;
    const ds_block *body = c->rec->body;
    for (uint32_t i = 0; i < body->n_ops; i++)
        if (body->ops[i]->n_out) DS_TRY(add_equation(c, body->ops[i], &nodes, err));
    *complete = nodes <= budget / READS_A_POINT; /* else the walk would end in vain */
    if (!*complete) return DS_OK;
    c->state = ds_xcalloc((size_t)nodes + 1, 1);
    c->budget = budget;
    for (uint32_t e = 0; e < c->equations.n; e++)
        for (int64_t k = 0; k < c->equations.at[e].points && c->budget > 0; k++)
            if (c->state[c->equations.at[e].first + k] == NEW)
                DS_TRY(walk_from(c, c->equations.at[e].first + k, e, err));
    *complete = c->budget > 0;
    return *complete ? check_yield(c, err) : DS_OK;
}

ds_status ds_rec_check(const ds_func *func, const ds_op *rec, const ds_env *env, int64_t budget,
                       bool *complete, ds_error *err) {
    check c = {.func = func, .rec = rec, .around = env};
    *complete = false;
    for (uint32_t i = 0; i < rec->n_dims; i++) {
        DS_TRY(ds_expr_eval_int(env, rec->dims[i].lo, rec->dims[i].loc, &c.lo[i], err));
        DS_TRY(ds_expr_eval_int(env, rec->dims[i].hi, rec->dims[i].loc, &c.hi[i], err));
    }
    c.equation_of = ds_xcalloc(func->values.n + 1, sizeof *c.equation_of);
    ds_status status = check_points(&c, budget, complete, err);
    free(c.equation_of);
    free(c.state);
    free(c.equations.at);
    free(c.open.at);
    free(c.boxes.at);
    return status;
}
