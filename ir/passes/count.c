/* Counting by walking: every function once, with its loops unrolled.
 *
 * A function's shapes depend on params and on its own loops only, so what one call of it counts is
 * a constant. Functions are counted callees first, from a work list rather than by recursion,
 * because chains of calls may be long; blocks nest only as deep as the parser allows. */
#include "ir/passes/count.h"

#include "ir/base/map.h"
#include "ir/ops/ops.h"
#include "ir/passes/build.h"

#include <stdlib.h>
#include <string.h>

typedef struct counter {
    const ds_binding *binding;
    const ds_func *func; /* being walked */
    ds_map known;        /* function → index into counts */
    DS_VEC(ds_model_counts) counts;
    DS_VEC(const ds_func *) todo;
    int64_t steps; /* ops, turns and elements walked so far */
} counter;

static ds_status walk(counter *c, const ds_block *block, const ds_index *indices,
                      ds_model_counts *sum, ds_error *err);

static ds_status step(counter *c, ds_loc loc, ds_error *err) {
    if (++c->steps <= DS_COUNT_MAX_STEPS) return DS_OK;
    return ds_error_set(err, DS_ERR_LIMIT, loc, "counting stops after %lld operations and turns",
                        (long long)DS_COUNT_MAX_STEPS);
}

static ds_status add_counts(ds_model_counts *to, const ds_model_counts *more, ds_loc loc,
                            ds_error *err) {
    if (__builtin_add_overflow(to->weights, more->weights, &to->weights) ||
        __builtin_add_overflow(to->parameters, more->parameters, &to->parameters) ||
        __builtin_add_overflow(to->flop, more->flop, &to->flop) ||
        __builtin_add_overflow(to->matmul_flop, more->matmul_flop, &to->matmul_flop))
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
    DS_TRY(ds_shape_elements(&shape, &one.parameters, err));
    return add_counts(sum, &one, info->loc, err);
}

static bool is_products(ds_work_kind kind) {
    return kind == DS_WORK_GEMM || kind == DS_WORK_CONV || kind == DS_WORK_ATTENTION ||
           kind == DS_WORK_RECURRENT;
}

static ds_status count_work(const counter *c, const ds_env *env, const ds_op *op,
                            ds_model_counts *sum, ds_error *err) {
    ds_shape *shapes = ds_xcalloc((size_t)op->n_in + op->n_out + 1, sizeof *shapes);
    ds_status status = DS_OK;
    for (uint32_t i = 0; i < op->n_in && status == DS_OK; i++)
        status = shape_of(env, ds_use_type(c->binding->unit, c->func, &op->in[i]), op->loc,
                          &shapes[i], err);
    for (uint32_t i = 0; i < op->n_out && status == DS_OK; i++)
        status = shape_of(env, ds_value_at(c->func, op->out[i])->type, op->loc,
                          &shapes[op->n_in + i], err);
    ds_work work;
    if (status == DS_OK) status = ds_op_work(op, env, shapes, shapes + op->n_in, &work, err);
    free(shapes);
    DS_TRY(status);
    ds_model_counts one = {.flop = work.flop,
                           .matmul_flop = is_products(work.kind) ? work.flop : 0};
    return add_counts(sum, &one, op->loc, err);
}

static ds_status walk_loop(counter *c, const ds_op *op, const ds_index *indices,
                           ds_model_counts *sum, ds_error *err) {
    ds_env env = ds_binding_env(c->binding, indices);
    int64_t lo, hi;
    DS_TRY(ds_expr_eval_int(&env, op->lo, op->loc, &lo, err));
    DS_TRY(ds_expr_eval_int(&env, op->hi, op->loc, &hi, err));
    for (int64_t at = lo; at < hi; at++) {
        DS_TRY(step(c, op->loc, err));
        ds_index turn = {op->index, at, indices};
        DS_TRY(walk(c, op->body, &turn, sum, err));
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
        return add_counts(sum, &c->counts.at[*ds_map_find(&c->known, DS_KEY(op->callee))], op->loc,
                          err);
    case DS_OP_LOCAL:
        return ds_error_set(err, DS_ERR_UNSUPPORTED, op->loc,
                            "a rank-local region shows what one device does, not the whole; count "
                            "the model that the program was made from");
    case DS_OP_WEIGHT:
        return count_weight(&env, ds_value_at(c->func, op->out[0]), sum, err);
    case DS_OP_YIELD:
    case DS_OP_RETURN:
        return DS_OK;
    default:
        return count_work(c, &env, op, sum, err);
    }
}

static ds_status walk(counter *c, const ds_block *block, const ds_index *indices,
                      ds_model_counts *sum, ds_error *err) {
    for (uint32_t i = 0; i < block->n_ops; i++)
        DS_TRY(walk_op(c, block->ops[i], indices, sum, err));
    return DS_OK;
}

/* ---- weights that are arguments ---- */

/* All elements of a family: the binders from `k` on, with those before it in `indices`. */
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

/* Puts on the list what the block calls and what is not counted yet. */
static void find_callees(counter *c, const ds_block *block) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        if (op->body) find_callees(c, op->body);
        if (op->code == DS_OP_CALL && !ds_map_find(&c->known, DS_KEY(op->callee)))
            DS_HPUSH(&c->todo, op->callee);
    }
}

static ds_status count_functions(counter *c, const ds_func *entry, ds_error *err) {
    DS_HPUSH(&c->todo, entry);
    while (c->todo.n) {
        const ds_func *func = c->todo.at[c->todo.n - 1];
        uint32_t before = c->todo.n;
        if (!ds_map_find(&c->known, DS_KEY(func))) find_callees(c, &func->body);
        if (c->todo.n > before) continue; /* they come first */
        c->todo.n--;
        if (ds_map_find(&c->known, DS_KEY(func))) continue;
        ds_model_counts sum = {0};
        c->func = func;
        DS_TRY(walk(c, &func->body, NULL, &sum, err));
        ds_map_put(&c->known, DS_KEY(func), c->counts.n);
        DS_HPUSH(&c->counts, sum);
    }
    return DS_OK;
}

ds_status ds_model_count(const ds_binding *binding, const ds_func *model, ds_model_counts *out,
                         ds_error *err) {
    counter c = {.binding = binding};
    ds_map_init(&c.known);
    ds_status status = count_functions(&c, model, err);
    if (status == DS_OK) *out = c.counts.at[c.counts.n - 1];
    if (status == DS_OK) status = count_arguments(&c, model, out, err);
    ds_map_deinit(&c.known);
    free(c.counts.at);
    free(c.todo.at);
    return status;
}
