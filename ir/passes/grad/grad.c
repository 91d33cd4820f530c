/* The gradient pass: step->func becomes the forward and backward pass of every weight.
 *
 * The forward pass is copied op by op; what the backward pass turns out to need of a loop's turns
 * is kept by that loop as a family. Results: those of the model, then one gradient a weight.
 *
 * With m microbatches the step calls one function a microbatch: @first makes gradients, @next adds
 * its own to those of the microbatches before (as many calls of one text as there are), @last does
 * too, and its sums are the gradients of the step. The step's inputs are families over
 * microbatches; its loss, and other scalar results, are means; other results are concatenated along
 * dim 0. The calls say which microbatch they are, so that masks of dropout differ. With pipeline
 * stages a single microbatch is a function too, @last, and the gradients of a weight that several
 * chunks read are summed behind the microbatches.
 */
#include "ir/passes/grad/internal.h"
#include "ir/passes/internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- what the backward pass needs from forward ops ---- */

/* Does the gradient read a result that the op need not have? Such ops have one: the logarithm of a
 * softmax's denominators. */
static bool has_lse(const ds_op *op) {
    const ds_op_desc *desc = ds_op_desc_of(op->code);
    return desc && ds_op_saves_result(desc, 0, desc->min_out);
}

static void extra_result(ds_grad *g, const ds_op *old, ds_op *op) {
    const char *name = ds_grad__name(g, old->out[0], ".lse");
    ds_value made = ds_build_out(&g->b, op, name, NULL);
    uint32_t id = g->old->values.n + g->extra_new.n;
    DS_PUSH(&g->unit->arena, &g->extra_new, made);
    g->home[id] = g->home[old->out[0].i];
    ds_map_put(&g->extra, DS_KEY(old), id);
}

/* A mask is named by the names of the loops around the op and its own, and by their turns. */
static void name_mask(ds_grad *g, const ds_op *old, ds_op *op) {
    ds_arena *arena = &g->unit->arena;
    const ds_attr *key = ds_attr_find(op->attrs, op->n_attrs, "key");
    const char *text = key ? ds_attr_text(&g->unit->exprs, key) : NULL;
    if (!text) {
        const ds_attr *name = ds_attr_find(op->attrs, op->n_attrs, "name");
        text = name ? ds_attr_text(&g->unit->exprs, name) : NULL;
        if (!text) text = ds_value_at(g->old, old->out[0])->name;
        ds_expr turn[DS_MAX_RANK * 2];
        uint32_t n = 0;
        for (const ds_grad_loop *at = g->home[old->out[0].i]; at; at = at->up, n++)
            text = ds_arena_printf(arena, "%s.%s", at->op->index, text);
        uint32_t k = n;
        for (const ds_grad_loop *at = g->home[old->out[0].i]; at; at = at->up)
            turn[--k] = ds_expr_index(&g->unit->exprs, at->op->index);
        if (n) ds_build_attr_exprs(&g->b, op, "turn", turn, n);
    }
    ds_build_attr_text(&g->b, op, "key", text);
}

ds_status ds_grad__extend(void *context, const ds_op *old, ds_op *op, ds_error *err) {
    ds_grad *g = context;
    (void)err;
    if (has_lse(old) && old->n_out == 1 && ds_grad__op_is_live(g, old)) extra_result(g, old, op);
    if (old->code == DS_OP_DROPOUT) name_mask(g, old, op);
    return DS_OK;
}

static uint32_t count_ops(const ds_block *block, bool (*is)(const ds_op *op)) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < block->n_ops; i++) {
        n += is(block->ops[i]);
        if (block->ops[i]->code == DS_OP_FOR) n += count_ops(block->ops[i]->body, is);
    }
    return n;
}

/* ---- one function ---- */

static void grad_init(ds_grad *g, ds_model_step *step, const char *name) {
    *g = (ds_grad){.step = step, .unit = step->unit, .old = step->func, .seed = 1, .final = true};
    g->n_values = g->old->values.n + count_ops(&g->old->body, has_lse);
    g->live = ds_xcalloc(g->n_values + 1, sizeof *g->live);
    g->home = ds_xcalloc(g->n_values + 1, sizeof *g->home);
    g->parts_at = ds_xcalloc(g->n_values + 1, sizeof *g->parts_at);
    g->slots_at = ds_xcalloc(g->n_values + 1, sizeof *g->slots_at);
    g->saved = ds_xmalloc((g->n_values + 1) * sizeof *g->saved);
    memset(g->saved, 0xff, (g->n_values + 1) * sizeof *g->saved);
    ds_map_init(&g->loops);
    ds_map_init(&g->extra);
    g->n_weights = ds_step_n_trained(step);
    g->weights = ds_xcalloc(g->n_weights + 1, sizeof *g->weights);
    ds_map_init(&g->weight_of);
    ds_map_init(&g->firsts);
    for (uint32_t i = 0; i < g->n_weights; i++) {
        ds_value old = step->weights.at[i].arg;
        g->weights[i] =
            (ds_grad_weight){.old = old, .accumulator = DS_NO_VALUE, .result = DS_NO_VALUE};
        ds_map_put(&g->weight_of, old.i, i);
    }
    ds_build_func(&g->b, step->unit->modules.at[0], name, true);
    g->b.func->loc = g->old->loc;
    ds_build_reserve(&g->b, 4 * g->old->values.n);
    ds_copy_init(&g->copy, &g->b, g->old);
    g->copy.extend = ds_grad__extend;
    g->copy.context = g;
}

static ds_func *grad_deinit(ds_grad *g) {
    free(g->live);
    free(g->home);
    free(g->saved);
    free(g->parts_at);
    free(g->slots_at);
    free(g->weights);
    ds_map_deinit(&g->weight_of);
    ds_map_deinit(&g->firsts);
    ds_map_deinit(&g->loops);
    ds_map_deinit(&g->extra);
    ds_copy_deinit(&g->copy);
    return ds_build_end(&g->b);
}

static void find_made_loops(ds_grad *g, const ds_block *block) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        if (op->code != DS_OP_FOR) continue;
        uint64_t *made = ds_map_find(&g->copy.ops, DS_KEY(op));
        ds_grad__loop(g, op)->made = (ds_op *)(uintptr_t)*made;
        find_made_loops(g, op->body);
    }
}

static const ds_type *accumulator_type(ds_grad *g, const ds_value_info *weight) {
    ds_dtype dtype = g->step->train.grad_dtype;
    if (dtype == DS_DTYPE_COUNT || dtype == weight->type->dtype) return weight->type;
    ds_type *type = DS_NEW(&g->unit->arena, ds_type);
    *type = *weight->type;
    type->dtype = dtype;
    return type;
}

static void make_args(ds_grad *g, bool accumulates) {
    for (uint32_t i = 0; i < g->old->n_args; i++) ds_copy_arg(&g->copy, i);
    ds_attr *role = DS_NEW(&g->unit->arena, ds_attr);
    *role = ds_attr_of_word(g->unit, "role", "gradient");
    for (uint32_t i = 0; i < g->n_weights && accumulates; i++) {
        ds_grad_weight *w = &g->weights[i];
        const ds_value_info *info = ds_value_at(g->old, w->old);
        w->accumulator =
            ds_build_arg(&g->b, ds_grad__name(g, w->old, ".sum"), accumulator_type(g, info),
                         info->binders, info->n_binders, role, 1);
    }
}

static ds_status make_body(ds_grad *g, bool accumulates, ds_error *err) {
    DS_TRY(ds_grad__scan(g, err));
    make_args(g, accumulates);
    DS_TRY(ds_copy_block(&g->copy, &g->old->body, err));
    find_made_loops(g, &g->old->body);
    DS_TRY(ds_grad__backward(g, err));
    const ds_op *end = ds_block_end(&g->old->body);
    uint32_t n = end->n_in, n_all = n + g->n_weights;
    ds_use *results = DS_NEW_N(&g->unit->arena, ds_use, n_all + 1);
    for (uint32_t i = 0; i < n; i++) results[i] = ds_copy_use(&g->copy, &end->in[i]);
    for (uint32_t i = 0; i < g->n_weights; i++) results[n + i] = ds_use_of(g->weights[i].result);
    return ds_build_return(&g->b, results, n_all, err);
}

/* ---- one microbatch ---- */

static ds_status whole_batch(ds_model_step *step, ds_error *err) {
    ds_grad g;
    grad_init(&g, step, step->func->name);
    ds_status status = make_body(&g, false, err);
    for (uint32_t i = 0; i < step->weights.n && status == DS_OK; i++) {
        ds_step_weight *w = &step->weights.at[i];
        w->arg = g.copy.map[w->arg.i];
        if (!w->frozen) w->grad_result = step->n_model_results + i;
    }
    ds_func *func = grad_deinit(&g);
    if (status == DS_OK) ds_model_step_set_func(step, func);
    return status;
}

/* ---- several ---- */

typedef struct batches {
    ds_model_step *step;
    ds_builder b;
    int64_t m;
    ds_func **parts;  /* by microbatch; equal ones are one function */
    ds_value *args;   /* of the step */
    uint32_t *weight; /* by argument: 1 + the weight that it is, or 0 */
    ds_use *sums;     /* gradients so far */
    ds_use *results;  /* [microbatch][model result] */
    uint32_t n_trained;
    uint32_t *n_tied; /* by weight, the first of those that are one of the model: their number */
} batches;

static ds_status make_part(batches *x, const char *name, int64_t at, ds_func **out, ds_error *err) {
    ds_grad g;
    grad_init(&g, x->step, name);
    g.seed = 1.0 / (double)x->m;
    g.final = at == x->m - 1;
    ds_status status = make_body(&g, at > 0, err);
    *out = grad_deinit(&g);
    return status;
}

static ds_status make_parts(batches *x, ds_error *err) {
    for (int64_t i = 0; i < x->m; i++) {
        bool middle = i && i < x->m - 1;
        const char *name = i == x->m - 1 ? "last" : i ? "next" : "first";
        if (middle && i > 1)
            x->parts[i] = x->parts[1];
        else
            DS_TRY(make_part(x, name, i, &x->parts[i], err));
    }
    return DS_OK;
}

/* Fills x->weight. */
static void find_weights(batches *x) {
    const ds_model_step *step = x->step;
    ds_map weights;
    ds_map_init(&weights);
    for (uint32_t i = 0; i < step->weights.n; i++)
        ds_map_put(&weights, step->weights.at[i].arg.i, i + 1u);
    for (uint32_t k = 0; k < step->func->n_args; k++) {
        const uint64_t *weight = ds_map_find(&weights, step->func->args[k].i);
        x->weight[k] = weight ? (uint32_t)*weight : 0;
    }
    ds_map_deinit(&weights);
}

/* An index that is no param: "m" or the like. */
static const char *batch_index(const ds_model_step *step) {
    const ds_module *module = step->unit->modules.at[0];
    const char *const wanted[] = {"m", "mb", "micro", "microbatch", "microbatch_"};
    for (uint32_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        bool taken = false;
        for (uint32_t p = 0; p < module->params.n; p++)
            taken |= strcmp(module->params.at[p].name, wanted[i]) == 0;
        if (!taken) return ds_intern(&step->unit->strings, wanted[i]);
    }
    return ds_intern(&step->unit->strings, "microbatch__");
}

static void step_args(batches *x) {
    ds_model_step *step = x->step;
    const ds_func *old = step->func;
    ds_exprs *exprs = &step->unit->exprs;
    ds_binder binder = {batch_index(step), ds_expr_int(exprs, 0), ds_expr_int(exprs, x->m),
                        DS_NOWHERE};
    for (uint32_t i = 0; i < old->n_args; i++) {
        const ds_value_info *info = ds_value_at(old, old->args[i]);
        uint32_t n = info->n_binders, micro = !x->weight[i] && x->m > 1;
        ds_binder *binders = DS_NEW_N(&step->unit->arena, ds_binder, n + 1);
        binders[0] = binder;
        if (n) memcpy(binders + micro, info->binders, n * sizeof *binders);
        x->args[i] = ds_build_arg(&x->b, info->name, info->type, binders, n + micro, info->attrs,
                                  info->n_attrs);
    }
}

/* Of an input that was a family, the family of one microbatch: for t in … { yield keep %x{i, t} } */
static ds_status own_family(batches *x, const ds_binder *binders, uint32_t n, uint32_t at,
                            ds_use element, ds_use *out, ds_error *err) {
    if (at == n) {
        *out = element;
        return DS_OK;
    }
    const ds_binder *binder = &binders[at];
    ds_op *loop = ds_build_for(&x->b, binder->name, binder->lo, binder->hi);
    ds_expr *index = DS_NEW_N(&x->step->unit->arena, ds_expr, element.n_index + 1);
    memcpy(index, element.index, element.n_index * sizeof *index);
    index[element.n_index] = ds_expr_index(&x->step->unit->exprs, loop->index);
    element.index = index;
    element.n_index++;
    ds_use kept;
    DS_TRY(own_family(x, binders, n, at + 1, element, &kept, err));
    DS_TRY(ds_build_yield(&x->b, NULL, 0, &kept, 1, NULL, err));
    *out = ds_use_of(loop->out[0]);
    return DS_OK;
}

/* The input of a microbatch. */
static ds_status own_input(batches *x, uint32_t arg, int64_t i, ds_use *out, ds_error *err) {
    const ds_value_info *info = ds_value_at(x->step->func, x->step->func->args[arg]);
    ds_expr at = ds_expr_int(&x->step->unit->exprs, i);
    *out = ds_use_of(x->args[arg]);
    if (x->weight[arg] || x->m == 1) return DS_OK;
    if (info->n_binders && x->step->strategy.pp > 1)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, info->loc,
                            "the input %%%s is a family: with a pipeline microbatches need inputs "
                            "that are single values",
                            info->name);
    ds_use element = ds_use_at(&x->step->unit->arena, x->args[arg], &at, 1);
    return own_family(x, info->binders, info->n_binders, 0, element, out, err);
}

/* How many weights are the same one of the model, itself included? */
static uint32_t n_tied(const batches *x, uint32_t w) {
    return x->n_tied[x->step->weights.at[w].tied];
}

/* Of a brief step the calls between @next's first one and @last's say nothing but what the model
 * gives: `pipeline` reads no more of them. */
static bool is_brief(const batches *x, int64_t i) {
    return ds_step__is_brief(x->step) && i > 1 && i < x->m - 1;
}

/* call @part(inputs of the microbatch, weights, sums) */
static ds_status call_part(batches *x, int64_t i, ds_error *err) {
    ds_model_step *step = x->step;
    const ds_func *old = step->func, *part = x->parts[i];
    const ds_op *end = ds_block_end(&part->body);
    bool brief = is_brief(x, i);
    ds_use *in = DS_NEW_N(&step->unit->arena, ds_use, old->n_args + 1);
    for (uint32_t k = 0; k < old->n_args && !brief; k++) DS_TRY(own_input(x, k, i, &in[k], err));
    ds_op *call = ds_build_op(&x->b, DS_OP_CALL);
    call->callee = (ds_func *)part;
    call->callee_name = part->name;
    if (x->m > 1) ds_build_attr_int(&x->b, call, "microbatch", i);
    uint32_t n_out = brief ? step->n_model_results : part->n_results;
    for (uint32_t k = 0; k < old->n_args && !brief; k++) ds_build_in(&x->b, call, in[k]);
    for (uint32_t k = 0; k < x->n_trained && i && !brief; k++) ds_build_in(&x->b, call, x->sums[k]);
    for (uint32_t k = 0; k < n_out; k++) {
        bool last = i == x->m - 1, model = k < step->n_model_results;
        const char *name = ds_value_at(part, end->in[k].value)->name;
        if ((model && x->m > 1) || !last)
            name = ds_arena_printf(&step->unit->arena, "%s.%lld", name, (long long)i);
        else if (!model && n_tied(x, k - step->n_model_results) > 1)
            name = ds_arena_printf(&step->unit->arena, "%s.own", name);
        ds_value out = ds_build_out(&x->b, call, name, part->results[k]);
        ds_value_info *info = ds_value_at(x->b.func, out);
        info->type_written = false;
        info->binders = part->result_binders[k];
        info->n_binders = part->n_result_binders[k];
        if (model)
            x->results[i * step->n_model_results + k] = ds_use_of(out);
        else
            x->sums[k - step->n_model_results] = ds_use_of(out);
    }
    return ds_build_put(&x->b, call, err);
}

/* The mean of a scalar; other results one after the other. */
static ds_status join_results(batches *x, uint32_t k, ds_use *out, ds_error *err) {
    const ds_model_step *step = x->step;
    const ds_op *end = ds_block_end(&step->func->body);
    const ds_value_info *info = ds_value_at(step->func, end->in[k].value);
    const ds_use *first = &x->results[k];
    uint32_t stride = step->n_model_results;
    *out = first[0];
    if (x->m == 1) return DS_OK;
    if (info->n_binders && !end->in[k].n_index)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, info->loc,
                            "microbatches: the result %%%s is a family", info->name);
    if (step->func->results[k]->rank) {
        ds_op *op = ds_build_op(&x->b, DS_OP_CONCAT);
        for (int64_t i = 0; i < x->m; i++) ds_build_in(&x->b, op, first[i * stride]);
        *out = ds_use_of(ds_build_out(&x->b, op, info->name, NULL));
        return ds_build_put(&x->b, op, err);
    }
    const char *sum = ds_arena_printf(&step->unit->arena, "%s.sum", info->name);
    for (int64_t i = 1; i < x->m; i++) {
        DS_TRY(ds_build_binary(&x->b, DS_OP_ADD, sum, *out, first[i * stride], &out->value, err));
        *out = ds_use_of(out->value);
    }
    ds_op *op = ds_build_op(&x->b, DS_OP_SCALE);
    ds_build_in(&x->b, op, *out);
    ds_build_attr_real(&x->b, op, "factor", 1.0 / (double)x->m);
    *out = ds_use_of(ds_build_out(&x->b, op, info->name, NULL));
    return ds_build_put(&x->b, op, err);
}

/* The gradient of a weight that several chunks read: the sum, once for every one of them. */
static ds_status sum_tied(batches *x, uint32_t w, ds_use *out, ds_error *err) {
    const ds_model_step *step = x->step;
    const ds_step_weight *weights = step->weights.at;
    uint32_t left = n_tied(x, w);
    *out = x->sums[w];
    if (left == 1) return DS_OK;
    *out = x->sums[weights[w].tied];
    left--;
    for (uint32_t i = weights[w].tied + 1; left; i++) {
        if (weights[i].tied != weights[w].tied) continue;
        const char *name = ds_arena_printf(&step->unit->arena, --left ? "%s.grad.part" : "%s.grad",
                                           weights[w].name);
        DS_TRY(ds_build_binary(&x->b, DS_OP_ADD, name, *out, x->sums[i], &out->value, err));
        *out = ds_use_of(out->value);
    }
    return DS_OK;
}

static ds_status step_body(batches *x, ds_error *err) {
    ds_model_step *step = x->step;
    uint32_t n = step->n_model_results, n_all = n + x->n_trained;
    step_args(x);
    for (int64_t i = 0; i < x->m; i++) DS_TRY(call_part(x, i, err));
    ds_use *results = DS_NEW_N(&step->unit->arena, ds_use, n_all + 1);
    for (uint32_t k = 0; k < n; k++) DS_TRY(join_results(x, k, &results[k], err));
    for (uint32_t w = 0; w < x->n_trained; w++) DS_TRY(sum_tied(x, w, &results[n + w], err));
    return ds_build_return(&x->b, results, n_all, err);
}

static void update_weights(batches *x) {
    ds_model_step *step = x->step;
    for (uint32_t k = 0; k < step->func->n_args; k++)
        if (x->weight[k]) step->weights.at[x->weight[k] - 1].arg = x->args[k];
    for (uint32_t i = 0; i < x->n_trained; i++)
        step->weights.at[i].grad_result = step->n_model_results + i;
}

static ds_status microbatches(ds_model_step *step, ds_error *err) {
    ds_arena *arena = &step->unit->arena;
    batches x = {
        .step = step, .m = step->strategy.microbatches, .n_trained = ds_step_n_trained(step)};
    x.parts = DS_NEW_N(arena, ds_func *, x.m + 1);
    x.args = DS_NEW_N(arena, ds_value, step->func->n_args + 1);
    x.weight = DS_NEW_N(arena, uint32_t, step->func->n_args + 1);
    find_weights(&x);
    x.sums = DS_NEW_N(arena, ds_use, step->weights.n + 1);
    x.n_tied = DS_NEW_N(arena, uint32_t, step->weights.n + 1);
    for (uint32_t i = 0; i < step->weights.n; i++) x.n_tied[step->weights.at[i].tied]++;
    x.results = DS_NEW_N(arena, ds_use, x.m * (int64_t)step->n_model_results + 1);
    DS_TRY(make_parts(&x, err));
    ds_build_func(&x.b, step->unit->modules.at[0], step->func->name, true);
    x.b.func->loc = step->func->loc;
    ds_status status = step_body(&x, err);
    ds_func *func = ds_build_end(&x.b);
    if (status != DS_OK) return status;
    update_weights(&x);
    ds_model_step_set_func(step, func);
    for (int64_t i = 0; i < x.m; i++)
        if (!i || x.parts[i] != x.parts[i - 1]) ds_model_step_set_func(step, x.parts[i]);
    return DS_OK;
}

/* More would be a text of millions of calls. */
#define MAX_MICROBATCHES 65536

ds_status ds_pass_grad(ds_model_step *step, ds_error *err) {
    if (!step->func->body.n_ops || step->n_model_results == 0)
        return ds_error_set(err, DS_ERR_TYPE, step->func->loc,
                            "the model has no result: there is no loss to train with");
    if (step->strategy.microbatches > MAX_MICROBATCHES)
        return ds_error_set(err, DS_ERR_LIMIT, step->func->loc,
                            "%lld microbatches: at most %d are supported",
                            (long long)step->strategy.microbatches, MAX_MICROBATCHES);
    bool calls = step->strategy.microbatches > 1 || step->strategy.pp > 1;
    return calls ? microbatches(step, err) : whole_batch(step, err);
}
