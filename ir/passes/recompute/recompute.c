/* The recomputation pass: values that the forward pass kept for the backward pass are made again.
 *
 * After grad the backward pass reads forward values directly, or from families that forward loops
 * keep, %act.kept{layers - 1 - layer}. The pass copies the function, and traces every such read to
 * the op that made the value and to the turns of the loops around the op. If that op is chosen
 * (choose.c), copies of the op, and of the chosen ops that make its operands, are put right before
 * the first reader. Operands that no chosen op makes are kept: a loop's carries, say, or q, k and
 * v. Turns replace loop indices, in operands, types and attributes, so that a dropout draws the
 * same mask again (its key names the op, not the copy). A copy serves all readers in its block and
 * in inner loops.
 *
 * Loops keep only values that are still read. Copies are called %x.again; they are ops like all
 * others, so that shard gives them their communication. */
#include "ir/passes/recompute/internal.h"

#include <stdlib.h>

static ds_arena *arena_of(const ds_again *a) {
    return &a->unit->arena;
}

/* ---- copying ---- */

static bool is_plain(const ds_again *a, const ds_again_op *reader, const ds_use *use) {
    bool whole = ds_value_at(a->old, use->value)->n_binders && !use->n_index;
    return reader->forward || reader->op->code == DS_OP_RETURN || use->index_hi || whole;
}

/* ds_copy's `read`. */
static ds_status read_value(void *context, const ds_op *reader, const ds_use *use, ds_use *out,
                            ds_error *err) {
    ds_again *a = context;
    const ds_again_op *info = ds_again__op(a, reader);
    if (!is_plain(a, info, use)) {
        ds_again_value x = ds_again__trace(a, use);
        if (ds_again__runs(a, &x)) return ds_again__make(a, &x, info->home, out, err);
        if (x.value.i != use->value.i) {
            *out = ds_again__kept(a, &x);
            return DS_OK;
        }
    }
    *out = ds_copy_use(&a->copy, use);
    return DS_OK;
}

/* ds_copy's `before`. */
static ds_status before_op(void *context, const ds_op *old, ds_error *err) {
    return ds_again__prepare(context, old, err);
}

/* ds_copy's `keeps`: a forward loop keeps a value for the backward pass only when a read adds the
 * family (ds_again__kept). */
static bool keeps(void *context, const ds_op *loop, uint32_t i) {
    const ds_again *a = context;
    return !ds_again__op(a, loop)->forward || a->wanted[loop->out[i].i];
}

static ds_status make_body(ds_again *a, ds_error *err) {
    const ds_op *end = ds_block_end(&a->old->body);
    DS_TRY(ds_again__choose(a, err));
    for (uint32_t i = 0; i < a->old->n_args; i++) ds_copy_arg(&a->copy, i);
    DS_TRY(ds_copy_block(&a->copy, &a->old->body, err));
    ds_use *results = DS_NEW_N(arena_of(a), ds_use, end->n_in + 1);
    for (uint32_t i = 0; i < end->n_in; i++) results[i] = ds_copy_use(&a->copy, &end->in[i]);
    return ds_build_return(&a->b, results, end->n_in, err);
}

/* ---- the step's functions ---- */

static void move_value(const ds_again *a, ds_value *value) {
    if (value->i != UINT32_MAX) *value = a->copy.map[value->i];
}

static void move_weights(const ds_again *a) {
    for (uint32_t i = 0; i < a->step->weights.n; i++) {
        ds_step_weight *w = &a->step->weights.at[i];
        move_value(a, &w->arg);
        for (uint32_t k = 0; k < w->n_states; k++) move_value(a, &w->state[k]);
        move_value(a, &w->master);
    }
}

/* Scans a function. */
static void open_func(ds_again *a, ds_model_step *step, const ds_func *func) {
    uint32_t n = func->values.n + 1;
    *a = (ds_again){.step = step, .unit = step->unit, .old = func};
    a->home = ds_xcalloc(n, sizeof *a->home);
    a->wanted = ds_xcalloc(n, sizeof *a->wanted);
    a->again = ds_xcalloc(n, sizeof *a->again);
    ds_map_init(&a->number);
    ds_map_init(&a->kept);
    ds_map_init(&a->blocks);
    ds_again__scan(a);
}

static void close_func(ds_again *a) {
    ds_map_deinit(&a->number);
    ds_map_deinit(&a->kept);
    ds_map_deinit(&a->blocks);
    free(a->home);
    free(a->wanted);
    free(a->again);
    free(a->made.at);
    free(a->made_blocks.at);
}

/* Scans a function; if blocks run again, turns loops into loops over blocks and scans again. */
static ds_status open_tiled(ds_again *a, ds_model_step *step, const ds_func *func, ds_error *err) {
    const ds_strategy *strategy = &step->strategy;
    open_func(a, step, func);
    if (strategy->recompute != DS_RECOMPUTE_EVERY || strategy->recompute_every == 1) return DS_OK;
    DS_TRY(ds_again__tile(a, err));
    ds_map blocks = a->blocks;
    ds_map_init(&a->blocks);
    close_func(a);
    open_func(a, step, func);
    a->blocks = blocks;
    return DS_OK;
}

static ds_status rewrite(ds_model_step *step, const ds_func *old, ds_func **out, ds_error *err) {
    ds_again a;
    ds_status status = open_tiled(&a, step, old, err);
    if (status != DS_OK) {
        close_func(&a);
        return status;
    }
    ds_build_func(&a.b, old->module, old->name, true);
    a.b.func->loc = old->loc;
    ds_copy_init(&a.copy, &a.b, old);
    a.copy.read = read_value;
    a.copy.keeps = keeps;
    a.copy.before = before_op;
    a.copy.context = &a;
    status = make_body(&a, err);
    if (status == DS_OK && old == step->func) move_weights(&a);
    ds_copy_deinit(&a.copy);
    *out = ds_build_end(&a.b);
    close_func(&a);
    return status;
}

static bool has_calls(const ds_func *func) {
    for (uint32_t i = 0; i < func->body.n_ops; i++)
        if (func->body.ops[i]->code == DS_OP_CALL) return true;
    return false;
}

/* Rewrites the functions of microbatches, or the step if it has none. */
ds_status ds_pass_recompute(ds_model_step *step, ds_error *err) {
    const ds_module *module = step->unit->modules.at[0];
    bool parts = has_calls(step->func);
    if (step->strategy.recompute == DS_RECOMPUTE_NONE) return DS_OK;
    for (uint32_t i = 0; i < module->funcs.n; i++) {
        ds_func *func = module->funcs.at[i], *made;
        if (parts == (func == step->func)) continue;
        DS_TRY(rewrite(step, func, &made, err));
        ds_model_step_set_func(step, made);
        for (uint32_t k = 0; parts && k < step->func->body.n_ops; k++)
            if (step->func->body.ops[k]->callee == func) step->func->body.ops[k]->callee = made;
    }
    return DS_OK;
}
