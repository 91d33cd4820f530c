/* Counting by walking: every function once, with its loops unrolled.
 *
 * A function's shapes depend on params and on its own loops only, so every call of a function
 * counts the same. Functions are counted callees first, from a work list rather than by recursion,
 * because chains of calls may be long; blocks nest only as deep as the parser allows.
 *
 * `dispatch` makes buffers with more rows than tokens use. Each value that is made of such buffers,
 * up to `combine`, carries the share of its rows that tokens use. A function is counted once for
 * each combination of shares that its arguments have. */
#include "ir/passes/build/count.h"

#include "ir/base/arena.h"
#include "ir/base/map.h"
#include "ir/core/rec.h"
#include "ir/ops/ops.h"
#include "ir/passes/build/build.h"

#include <stdlib.h>
#include <string.h>

/* Rows of a value: the rows that tokens use, and all rows. {0, 0}: no padding. */
typedef struct share {
    int64_t used, all;
} share;

/* A function to be called with arguments of these shares. */
typedef struct called {
    const ds_func *func;
    const share *args; /* of the arena; NULL: no padding */
    uint64_t key;
} called;

typedef struct counted {
    ds_model_counts sum;
    const share *results; /* of the arena */
} counted;

typedef struct counter {
    const ds_binding *binding;
    const ds_func *func; /* being walked */
    share *shares;       /* of its values */
    share *results;      /* of the function's results */
    bool waits;          /* for a callee, which is on top of the list */
    ds_map known;        /* key of `called` → index into counts */
    DS_VEC(counted) counts;
    DS_VEC(called) todo;
    ds_arena arena;
    int64_t steps; /* ops, turns and elements walked so far */
} counter;

static ds_status walk(counter *c, const ds_block *block, const ds_index *indices,
                      ds_model_counts *sum, ds_error *err);
static ds_status walk_op(counter *c, const ds_op *op, const ds_index *indices, ds_model_counts *sum,
                         ds_error *err);

static ds_status step(counter *c, ds_loc loc, ds_error *err) {
    if (++c->steps <= DS_COUNT_MAX_STEPS) return DS_OK;
    return ds_error_set(err, DS_ERR_LIMIT, loc, "counting stops after %lld operations and turns",
                        (long long)DS_COUNT_MAX_STEPS);
}

/* A turn of a loop takes one step, and one more for each op of the body. A loop whose steps alone
 * exceed the limit is refused before its first turn. */
static ds_status check_turns(counter *c, const ds_op *loop, int64_t lo, int64_t hi, ds_error *err) {
    int64_t turns, steps;
    if (hi <= lo) return DS_OK;
    bool beyond = __builtin_sub_overflow(hi, lo, &turns) ||
                  __builtin_mul_overflow(turns, 1 + (int64_t)loop->body->n_ops, &steps) ||
                  steps > DS_COUNT_MAX_STEPS - c->steps;
    if (beyond) c->steps = DS_COUNT_MAX_STEPS;
    return beyond ? step(c, loop->loc, err) : DS_OK;
}

static ds_status add_counts(ds_model_counts *to, const ds_model_counts *more, ds_loc loc,
                            ds_error *err) {
    if (__builtin_add_overflow(to->weights, more->weights, &to->weights) ||
        __builtin_add_overflow(to->parameters, more->parameters, &to->parameters) ||
        __builtin_add_overflow(to->flop, more->flop, &to->flop) ||
        __builtin_add_overflow(to->matmul_flop, more->matmul_flop, &to->matmul_flop) ||
        __builtin_add_overflow(to->attention_flop, more->attention_flop, &to->attention_flop) ||
        __builtin_add_overflow(to->padding_flop, more->padding_flop, &to->padding_flop))
        return ds_error_set(err, DS_ERR_OVERFLOW, loc, "more than 2^63 parameters up to here");
    return DS_OK;
}

static ds_status shape_of(const ds_env *env, const ds_type *type, ds_loc loc, ds_shape *out,
                          ds_error *err) {
    if (!type) return ds_error_set(err, DS_ERR_INTERNAL, loc, "a value without a type is counted");
    *out = (ds_shape){.dtype = type->dtype, .rank = type->rank};
    for (uint32_t d = 0; d < type->rank; d++)
        DS_TRY(ds_expr_eval_int(env, type->dims[d].size, loc, &out->dims[d], err));
    return DS_OK;
}

static ds_status count_weight(const ds_env *env, const ds_value_info *info, ds_model_counts *sum,
                              ds_error *err) {
    ds_shape shape;
    ds_model_counts one = {.weights = 1};
    DS_TRY(shape_of(env, info->type, info->loc, &shape, err));
    ds_status status = ds_shape_elements(&shape, &one.parameters, err);
    if (status != DS_OK) ds_error_move(err, info->loc);
    DS_TRY(status);
    return add_counts(sum, &one, info->loc, err);
}

static bool is_products(ds_work_kind kind) {
    return kind == DS_WORK_GEMM || kind == DS_WORK_CONV || kind == DS_WORK_ATTENTION ||
           kind == DS_WORK_RECURRENT;
}

/* ---- padding ---- */

/* The least share among the operands. */
static share share_of(const counter *c, const ds_op *op) {
    share least = {0};
    for (uint32_t i = 0; i < op->n_in; i++) {
        share s = c->shares[op->in[i].value.i];
        if (s.all && (!least.all || (ds_i128)s.used * least.all < (ds_i128)least.used * s.all))
            least = s;
    }
    return least;
}

/* Tokens spread evenly over experts: the rows in use are the tokens' choices, at most all rows. */
static ds_status share_of_buffers(const ds_shape *choices, const ds_shape *buffers, share *out,
                                  ds_error *err) {
    share s;
    DS_TRY(ds_shape_elements(choices, &s.used, err));
    DS_TRY(ds_shape_elements(buffers, &s.all, err));
    s.all /= buffers->dims[buffers->rank - 1];
    *out = s.used < s.all ? s : (share){0};
    return DS_OK;
}

static ds_status pass_share(counter *c, const ds_op *op, const ds_shape *shapes, share in,
                            ds_error *err) {
    if (op->code == DS_OP_DISPATCH)
        DS_TRY(share_of_buffers(&shapes[1], &shapes[op->n_in], &in, err));
    else if (op->code == DS_OP_COMBINE || op->code == DS_OP_COMBINE_GRAD)
        in = (share){0};
    for (uint32_t i = 0; i < op->n_out; i++) c->shares[op->out[i].i] = in;
    return DS_OK;
}

/* ---- ops ---- */

static ds_status count_work(counter *c, const ds_env *env, const ds_op *op, ds_model_counts *sum,
                            ds_error *err) {
    ds_shape *shapes = ds_xcalloc((size_t)op->n_in + op->n_out + 1, sizeof *shapes);
    ds_status status = DS_OK;
    for (uint32_t i = 0; i < op->n_in && status == DS_OK; i++)
        status = shape_of(env, ds_use_type(c->binding->unit, c->func, &op->in[i]), op->loc,
                          &shapes[i], err);
    for (uint32_t i = 0; i < op->n_out && status == DS_OK; i++)
        status = shape_of(env, ds_value_at(c->func, op->out[i])->type, op->loc,
                          &shapes[op->n_in + i], err);
    ds_work work;
    share in = share_of(c, op);
    if (status == DS_OK) status = ds_op_work(op, env, shapes, shapes + op->n_in, &work, err);
    if (status == DS_OK) status = pass_share(c, op, shapes, in, err);
    free(shapes);
    DS_TRY(status);
    ds_model_counts one = {.flop = work.flop,
                           .matmul_flop = is_products(work.kind) ? work.flop : 0,
                           .attention_flop = work.kind == DS_WORK_ATTENTION ? work.flop : 0};
    if (in.all) one.padding_flop = one.matmul_flop - one.matmul_flop * in.used / in.all;
    return add_counts(sum, &one, op->loc, err);
}

static uint64_t key_of(const ds_func *func, const share *args, uint32_t n) {
    uint64_t key = DS_KEY(func);
    for (uint32_t i = 0; i < n; i++)
        if (args[i].all)
            key = ds_hash_mix(ds_hash_mix(ds_hash_mix(key, i), (uint64_t)args[i].used),
                              (uint64_t)args[i].all);
    return key;
}

/* Adds the callee's counts for these arguments; if the counts are unknown, the walk waits for the
 * callee. */
static ds_status call(counter *c, const ds_op *op, ds_model_counts *sum, ds_error *err) {
    share *args = DS_NEW_N(&c->arena, share, op->n_in + 1);
    for (uint32_t i = 0; i < op->n_in; i++) args[i] = c->shares[op->in[i].value.i];
    uint64_t key = key_of(op->callee, args, op->n_in);
    const uint64_t *found = ds_map_find(&c->known, key);
    if (!found) {
        DS_HPUSH(&c->todo, ((called){op->callee, args, key}));
        c->waits = true;
        return DS_OK;
    }
    const counted *callee = &c->counts.at[*found];
    for (uint32_t i = 0; i < op->n_out; i++) c->shares[op->out[i].i] = callee->results[i];
    return add_counts(sum, &callee->sum, op->loc, err);
}

/* Passes the shares of a yield on, to the carries of the next turn and to the kept values. */
static void pass_yields(counter *c, const ds_op *op) {
    const ds_op *yield = op->body->n_ops ? op->body->ops[op->body->n_ops - 1] : NULL;
    for (uint32_t i = 0; yield && i < yield->n_in && i < op->n_out; i++) {
        c->shares[op->out[i].i] = c->shares[yield->in[i].value.i];
        if (i < op->n_args) c->shares[op->args[i].i] = c->shares[op->out[i].i];
    }
}

static ds_status walk_loop(counter *c, const ds_op *op, const ds_index *indices,
                           ds_model_counts *sum, ds_error *err) {
    ds_env env = ds_binding_env(c->binding, indices);
    int64_t lo, hi;
    DS_TRY(ds_expr_eval_int(&env, op->lo, op->loc, &lo, err));
    DS_TRY(ds_expr_eval_int(&env, op->hi, op->loc, &hi, err));
    DS_TRY(check_turns(c, op, lo, hi, err));
    for (uint32_t i = 0; i < op->n_args; i++)
        c->shares[op->args[i].i] = c->shares[op->out[i].i] = c->shares[op->in[i].value.i];
    for (int64_t at = lo; at < hi && !c->waits; at++) {
        DS_TRY(step(c, op->loc, err));
        ds_index turn = {op->index, at, indices};
        DS_TRY(walk(c, op->body, &turn, sum, err));
        pass_yields(c, op);
    }
    return DS_OK;
}

/* ---- recs ---- */

/* A rec's ranges, and the point whose shapes are looked at. */
typedef struct rec_point {
    const ds_op *rec;
    int64_t lo[DS_MAX_REC_DIMS], hi[DS_MAX_REC_DIMS];
    ds_index at[DS_MAX_REC_DIMS]; /* a chain: the last is the innermost */
} rec_point;

static uint32_t dims_of(const counter *c, const rec_point *p, const ds_op *op) {
    uint32_t n, dims = 0;
    const ds_binder *own = ds_rec_dims(c->func, op, &n);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t d = 0; d < p->rec->n_dims; d++)
            if (p->rec->dims[d].name == own[i].name) dims |= 1u << d;
    return dims;
}

/* The dims on which shapes depend: the others repeat the same work. */
static uint32_t dims_of_shapes(const counter *c, const rec_point *p, const ds_op *op) {
    const ds_exprs *exprs = &c->binding->unit->exprs;
    uint32_t dims = 0;
    for (uint32_t d = 0; d < p->rec->n_dims; d++) {
        const char *name = p->rec->dims[d].name;
        bool found = false;
        for (uint32_t i = 0; i < op->n_in; i++) {
            const ds_type *type = ds_use_type(c->binding->unit, c->func, &op->in[i]);
            found = found || (type && ds_type_mentions(exprs, type, name));
        }
        for (uint32_t i = 0; i < op->n_out; i++) {
            const ds_type *type = ds_value_at(c->func, op->out[i])->type;
            found = found || (type && ds_type_mentions(exprs, type, name));
        }
        if (found) dims |= 1u << d;
    }
    return dims;
}

static int64_t points_of(const rec_point *p, uint32_t dims) {
    int64_t n = 1;
    for (uint32_t d = 0; d < p->rec->n_dims; d++)
        if (dims >> d & 1) n *= p->hi[d] > p->lo[d] ? p->hi[d] - p->lo[d] : 0;
    return n;
}

/* Weights of a call are one for each point of the dims that `weights` lists. */
static uint32_t dims_of_weights(const counter *c, const rec_point *p, const ds_op *op) {
    const ds_attr *attr = ds_attr_find(op->attrs, op->n_attrs, "weights");
    uint32_t dims = 0;
    if (op->code == DS_OP_WEIGHT) return dims_of(c, p, op);
    for (uint32_t i = 0; attr && i < attr->n_items; i++)
        for (uint32_t d = 0; d < p->rec->n_dims; d++)
            if (ds_expr_at(&c->binding->unit->exprs, attr->items[i].expr)->name ==
                p->rec->dims[d].name)
                dims |= 1u << d;
    return dims;
}

static ds_status walk_equation(counter *c, rec_point *p, const ds_op *op, ds_model_counts *sum,
                               ds_error *err) {
    uint32_t dims = dims_of(c, p, op), moving = dims_of_shapes(c, p, op) & dims;
    int64_t alike = points_of(p, dims & ~moving), weights = points_of(p, dims_of_weights(c, p, op));
    ds_model_counts all = {0};
    if (points_of(p, dims) == 0) return DS_OK;
    for (uint32_t d = 0; d < p->rec->n_dims; d++) p->at[d].value = p->lo[d];
    for (uint32_t d = 0; d < p->rec->n_dims && !c->waits;) {
        ds_model_counts one = {0};
        DS_TRY(walk_op(c, op, &p->at[p->rec->n_dims - 1], &one, err));
        all.flop += one.flop * alike;
        all.matmul_flop += one.matmul_flop * alike;
        all.attention_flop += one.attention_flop * alike;
        all.padding_flop += one.padding_flop * alike;
        all.weights = one.weights * weights; /* the same at every point */
        all.parameters = one.parameters * weights;
        for (d = 0; d < p->rec->n_dims; d++) {
            if (!(moving >> d & 1)) continue;
            if (++p->at[d].value < p->hi[d]) break;
            p->at[d].value = p->lo[d];
        }
    }
    return add_counts(sum, &all, op->loc, err);
}

/* Every equation at every point of its dims, needed or not. */
static ds_status walk_rec(counter *c, const ds_op *op, const ds_index *indices,
                          ds_model_counts *sum, ds_error *err) {
    rec_point p = {.rec = op};
    ds_env env = ds_binding_env(c->binding, indices);
    for (uint32_t d = 0; d < op->n_dims; d++) {
        DS_TRY(ds_expr_eval_int(&env, op->dims[d].lo, op->loc, &p.lo[d], err));
        DS_TRY(ds_expr_eval_int(&env, op->dims[d].hi, op->loc, &p.hi[d], err));
        p.at[d] = (ds_index){op->dims[d].name, p.lo[d], d ? &p.at[d - 1] : indices};
    }
    for (uint32_t i = 0; i < op->body->n_ops && !c->waits; i++) {
        const ds_op *equation = op->body->ops[i];
        if (equation->code != DS_OP_CASE && equation->code != DS_OP_YIELD)
            DS_TRY(walk_equation(c, &p, equation, sum, err));
    }
    return DS_OK;
}

static ds_status walk_op(counter *c, const ds_op *op, const ds_index *indices, ds_model_counts *sum,
                         ds_error *err) {
    DS_TRY(step(c, op->loc, err));
    ds_env env = ds_binding_env(c->binding, indices);
    switch (op->code) {
    case DS_OP_FOR:
        return walk_loop(c, op, indices, sum, err);
    case DS_OP_CALL:
        return call(c, op, sum, err);
    case DS_OP_REC:
        return walk_rec(c, op, indices, sum, err);
    case DS_OP_LOCAL:
        return ds_error_set(err, DS_ERR_UNSUPPORTED, op->loc,
                            "a rank-local region shows what one device does, not the whole; count "
                            "the model that the program was made from");
    case DS_OP_WEIGHT:
        return count_weight(&env, ds_value_at(c->func, op->out[0]), sum, err);
    case DS_OP_YIELD:
        return DS_OK;
    case DS_OP_RETURN:
        for (uint32_t i = 0; i < op->n_in && i < c->func->n_results; i++)
            c->results[i] = c->shares[op->in[i].value.i];
        return DS_OK;
    default:
        return count_work(c, &env, op, sum, err);
    }
}

static ds_status walk(counter *c, const ds_block *block, const ds_index *indices,
                      ds_model_counts *sum, ds_error *err) {
    for (uint32_t i = 0; i < block->n_ops && !c->waits; i++)
        DS_TRY(walk_op(c, block->ops[i], indices, sum, err));
    return DS_OK;
}

/* ---- weights that are arguments ---- */

/* Counts all elements of a family over the binders from `k` on; `indices` has the binders before
 * `k`. */
static ds_status count_family(counter *c, const ds_value_info *info, uint32_t k,
                              const ds_index *indices, ds_model_counts *sum, ds_error *err) {
    ds_env env = ds_binding_env(c->binding, indices);
    if (k == info->n_binders) return count_weight(&env, info, sum, err);
    int64_t lo, hi;
    DS_TRY(ds_expr_eval_int(&env, info->binders[k].lo, info->loc, &lo, err));
    DS_TRY(ds_expr_eval_int(&env, info->binders[k].hi, info->loc, &hi, err));
    for (int64_t at = lo; at < hi; at++) {
        DS_TRY(step(c, info->loc, err));
        ds_index element = {info->binders[k].name, at, indices};
        DS_TRY(count_family(c, info, k + 1, &element, sum, err));
    }
    return DS_OK;
}

static ds_status count_arguments(counter *c, const ds_func *func, ds_model_counts *sum,
                                 ds_error *err) {
    for (uint32_t i = 0; i < func->n_args; i++) {
        const ds_value_info *info = ds_value_at(func, func->args[i]);
        const ds_attr *role = ds_attr_find(info->attrs, info->n_attrs, "role");
        const char *text = ds_attr_text(&c->binding->unit->exprs, role);
        if (text && strcmp(text, "weight") == 0) DS_TRY(count_family(c, info, 0, NULL, sum, err));
    }
    return DS_OK;
}

/* ---- functions, callees first ---- */

/* Puts the functions that the block calls, and that are not counted yet, on the list. */
static void find_callees(counter *c, const ds_block *block) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        if (op->body) find_callees(c, op->body);
        if (op->code == DS_OP_CALL && !ds_map_find(&c->known, DS_KEY(op->callee)))
            DS_HPUSH(&c->todo, ((called){op->callee, NULL, DS_KEY(op->callee)}));
    }
}

static ds_status count_function(counter *c, const called *now, ds_model_counts *sum,
                                ds_error *err) {
    const ds_func *func = now->func;
    *sum = (ds_model_counts){0};
    c->func = func;
    c->waits = false;
    c->shares = ds_xcalloc(func->values.n + (size_t)1, sizeof *c->shares);
    c->results = DS_NEW_N(&c->arena, share, func->n_results + 1);
    for (uint32_t i = 0; now->args && i < func->n_args; i++)
        c->shares[func->args[i].i] = now->args[i];
    ds_status status = walk(c, &func->body, NULL, sum, err);
    free(c->shares);
    return status;
}

static ds_status count_functions(counter *c, const ds_func *entry, ds_error *err) {
    DS_HPUSH(&c->todo, ((called){entry, NULL, DS_KEY(entry)}));
    while (c->todo.n) {
        called now = c->todo.at[c->todo.n - 1];
        uint32_t before = c->todo.n;
        bool known = ds_map_find(&c->known, now.key) != NULL;
        if (!known) find_callees(c, &now.func->body);
        if (c->todo.n > before) continue; /* callees come first */
        counted fresh = {0};
        if (!known) DS_TRY(count_function(c, &now, &fresh.sum, err));
        if (!known && c->waits) continue;
        c->todo.n--;
        if (known) continue;
        fresh.results = c->results;
        ds_map_put(&c->known, now.key, c->counts.n);
        DS_HPUSH(&c->counts, fresh);
    }
    return DS_OK;
}

ds_status ds_model_count(const ds_binding *binding, const ds_func *model, ds_model_counts *out,
                         ds_error *err) {
    counter c = {.binding = binding};
    ds_map_init(&c.known);
    ds_arena_init(&c.arena);
    ds_status status = count_functions(&c, model, err);
    if (status == DS_OK) *out = c.counts.at[c.counts.n - 1].sum;
    if (status == DS_OK) status = count_arguments(&c, model, out, err);
    ds_map_deinit(&c.known);
    ds_arena_deinit(&c.arena);
    free(c.counts.at);
    free(c.todo.at);
    return status;
}
