/* Microbatches: every expression over the batch gets the batch of one microbatch.
 *
 * The batch is a param P: dim 0 of the inputs that are split over @dp there is proportional to P.
 * The step has a new param `microbatch = P / m` in place of P; params computed from P are computed
 * anew. The scenario's own uses of P (samples a step) stay. */
#include "ir/passes/lower/internal.h"

#include "ir/base/units.h"

#include <stdlib.h>
#include <string.h>

typedef struct param_ref {
    const ds_module *module;
    uint32_t index;
} param_ref;

typedef struct batch {
    const ds_binding *source;
    int64_t m;
    ds_num **trial; /* the params' values with one param divided */
} batch;

static ds_num *value_at(ds_num *const *params, param_ref ref) {
    return &params[ref.module->id][ref.index];
}

static const char *name_of(param_ref ref) {
    return ref.module->params.at[ref.index].name;
}

static bool eval(const batch *b, ds_num *const *params, ds_expr e, int64_t *out) {
    ds_env env = {.exprs = &b->source->unit->exprs, .params = (const ds_num *const *)params};
    return ds_expr_eval_int(&env, e, DS_NOWHERE, out, NULL) == DS_OK;
}

static void reset(batch *b) {
    const ds_unit *unit = b->source->unit;
    for (uint32_t m = 0; m < unit->modules.n; m++)
        memcpy(b->trial[m], b->source->params[m],
               unit->modules.at[m]->params.n * sizeof **b->trial);
}

/* Does dividing the param by m divide e by m? */
static bool is_proportional(batch *b, ds_expr e, param_ref ref) {
    int64_t whole, part, value = value_at(b->source->params, ref)->i;
    if (value_at(b->source->params, ref)->kind != DS_NUM_INT || value % b->m != 0) return false;
    reset(b);
    value_at(b->trial, ref)->i = value / b->m;
    return eval(b, b->source->params, e, &whole) && eval(b, b->trial, e, &part) && part &&
           part * b->m == whole;
}

/* The params that e mentions, each once, on the heap. */
static param_ref *params_in(const batch *b, ds_expr e, uint32_t *n) {
    const ds_unit *unit = b->source->unit;
    DS_VEC(ds_expr) open = {0};
    DS_VEC(param_ref) found = {0};
    ds_map seen;
    ds_map_init(&seen);
    DS_HPUSH(&open, e);
    while (open.n) {
        ds_expr top = open.at[--open.n];
        if (!DS_HAS_EXPR(top) || ds_map_find(&seen, top.i)) continue;
        ds_map_put(&seen, top.i, 1);
        const ds_expr_node *node = ds_expr_at(&unit->exprs, top);
        if (node->kind == DS_EXPR_PARAM) {
            param_ref ref = {unit->modules.at[node->i >> 32], (uint32_t)node->i};
            DS_HPUSH(&found, ref);
            continue;
        }
        DS_HPUSH(&open, node->a);
        DS_HPUSH(&open, node->b);
    }
    ds_map_deinit(&seen);
    free(open.at);
    *n = found.n;
    return found.at;
}

/* The one param to which e is proportional; of several, the param called batch. */
static bool find_factor(batch *b, ds_expr e, param_ref *out) {
    uint32_t n, fit = 0;
    param_ref *params = params_in(b, e, &n);
    bool named = false;
    for (uint32_t i = 0; i < n; i++) {
        if (!is_proportional(b, e, params[i])) continue;
        bool is_batch = strcmp(name_of(params[i]), "batch") == 0;
        if (!fit++ || is_batch) *out = params[i];
        named = named || is_batch;
    }
    free(params);
    return fit == 1 || named;
}

static ds_expr origin(const batch *b, param_ref ref) {
    return ds_clone_origin(b->source, ref.module, ref.index);
}

static ds_status not_divisible(const batch *b, const ds_value_info *arg, ds_expr e, ds_error *err) {
    ds_buf text = {0};
    int64_t value = 0;
    ds_expr_print(&b->source->unit->exprs, e, &text);
    eval(b, b->source->params, e, &value);
    ds_buf fit = {0};
    ds_put_near_divisors(value > 0 ? value : 1, b->m, &fit);
    if (value % b->m != 0)
        ds_error_set(err, DS_ERR_VALUE, arg->loc,
                     "%lld microbatches do not divide the batch: dim 0 of %%%s is %s = %lld; "
                     "choose %s microbatches",
                     (long long)b->m, arg->name, text.text, (long long)value, fit.text);
    else
        ds_error_set(err, DS_ERR_UNSUPPORTED, arg->loc,
                     "microbatches need a batch that is a param: dim 0 of %%%s is %s, which is not "
                     "proportional in exactly one param that %lld divides",
                     arg->name, text.text, (long long)b->m);
    ds_buf_deinit(&fit);
    ds_buf_deinit(&text);
    return value % b->m ? DS_ERR_VALUE : DS_ERR_UNSUPPORTED;
}

static ds_status find_batch(batch *b, const ds_func *model, param_ref *out, ds_error *err) {
    bool any = false;
    for (uint32_t i = 0; i < model->n_args; i++) {
        const ds_value_info *arg = ds_value_at(model, model->args[i]);
        if (!arg->type || !ds_type_is_over(arg->type, 0, "dp")) continue;
        param_ref found;
        ds_expr e = arg->type->dims[0].size;
        if (!find_factor(b, e, &found)) return not_divisible(b, arg, e, err);
        for (param_ref next;; found = next) { /* `with batch = batch`: follow the chain to its first
                                                 param */
            ds_expr from = origin(b, found);
            if (!DS_HAS_EXPR(from) || !find_factor(b, from, &next)) break;
        }
        if (any && (found.module != out->module || found.index != out->index))
            return ds_error_set(err, DS_ERR_UNSUPPORTED, arg->loc,
                                "microbatches need one batch: the inputs have '%s' and '%s'",
                                name_of(*out), name_of(found));
        *out = found;
        any = true;
    }
    if (any) return DS_OK;
    return ds_error_set(err, DS_ERR_UNSUPPORTED, model->loc,
                        "microbatches = %lld: no input of @%s says where its batch is; write "
                        "@dp at dim 0, as in %%x: f32[batch@dp, …]",
                        (long long)b->m, model->name);
}

/* Computes the params that depend on the batch anew, until no value changes. */
static void follow_up(batch *b) {
    const ds_unit *unit = b->source->unit;
    bool changed = true;
    for (uint32_t round = 0; changed && round < DS_LOWER_MAX_DEPTH; round++) {
        changed = false;
        for (uint32_t m = 0; m < unit->modules.n; m++)
            for (uint32_t i = 0; i < unit->modules.at[m]->params.n; i++) {
                param_ref ref = {unit->modules.at[m], i};
                ds_expr e = origin(b, ref);
                int64_t before, now;
                if (!DS_HAS_EXPR(e) || !eval(b, b->source->params, e, &before) ||
                    !eval(b, b->trial, e, &now) || now == before ||
                    now == value_at(b->trial, ref)->i)
                    continue;
                value_at(b->trial, ref)->i = now;
                changed = true;
            }
    }
}

static void replace(ds_lowering *l, const batch *b, param_ref of) {
    const ds_unit *unit = b->source->unit;
    ds_exprs *exprs = &l->c.unit->exprs;
    uint64_t key = ds_clone_param_key(of.module, of.index);
    ds_expr_node node = {.kind = DS_EXPR_PARAM, .name = name_of(of), .i = (int64_t)key};
    ds_expr whole = ds_clone_expr(&l->c, ds_expr_make(&b->source->unit->exprs, node));
    ds_expr part = ds_clone_new_param(
        &l->c, "microbatch", ds_expr_binary(exprs, DS_EXPR_DIV, whole, ds_expr_int(exprs, b->m)));
    ds_map_put(&l->c.replaced, key, part.i);
    l->step->microbatch = ds_expr_at(exprs, part)->name;
    l->step->batch = value_at(b->source->params, of)->i;
    for (uint32_t m = 0; m < unit->modules.n; m++)
        for (uint32_t i = 0; i < unit->modules.at[m]->params.n; i++) {
            param_ref ref = {unit->modules.at[m], i};
            const ds_num *now = value_at(b->trial, ref);
            if (now->kind != DS_NUM_INT || now->i == value_at(b->source->params, ref)->i ||
                (ref.module == of.module && ref.index == of.index))
                continue;
            ds_map_put(&l->c.affected, ds_clone_param_key(ref.module, i), (uint64_t)now->i);
        }
}

ds_status ds_lower__divide_batch(ds_lowering *l, ds_error *err) {
    const ds_unit *unit = l->source->unit;
    batch b = {.source = l->source, .m = l->step->strategy.microbatches};
    if (b.m == 1) return DS_OK;
    b.trial = ds_xcalloc(unit->modules.n + 1, sizeof *b.trial);
    for (uint32_t m = 0; m < unit->modules.n; m++)
        b.trial[m] = ds_xcalloc(unit->modules.at[m]->params.n + 1, sizeof **b.trial);
    param_ref of = {0};
    ds_status status = find_batch(&b, l->model, &of, err);
    if (status == DS_OK) {
        reset(&b);
        value_at(b.trial, of)->i /= b.m;
        follow_up(&b);
        replace(l, &b, of);
    }
    for (uint32_t m = 0; m < unit->modules.n; m++) free(b.trial[m]);
    free(b.trial);
    return status;
}
