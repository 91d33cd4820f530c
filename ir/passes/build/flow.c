/* The stages of values: forward from weights, then through carried values, then back from
 * readers. */
#include "ir/passes/build/flow.h"

#include "ir/passes/build/copy.h"

typedef struct flow {
    const ds_func *func;
    ds_flow_weight *weight;
    void *context;
    uint32_t *stage;  /* by value */
    bool *of_weights; /* by value: made of weights alone */
    bool changed;
} flow;

static uint32_t later(uint32_t a, uint32_t b) {
    if (a == DS_FLOW_NONE) return b;
    return b == DS_FLOW_NONE || a > b ? a : b;
}

static void set(flow *f, ds_value value, uint32_t stage) {
    if (f->stage[value.i] != DS_FLOW_NONE || stage == DS_FLOW_NONE) return;
    f->stage[value.i] = stage;
    f->changed = true;
}

static void set_all(flow *f, const ds_op *op, uint32_t stage) {
    for (uint32_t i = 0; i < op->n_out; i++) set(f, op->out[i], stage);
}

static bool is_loop(const ds_op *op) {
    return op->code == DS_OP_FOR;
}

static bool is_end(const ds_op *op) {
    return op->code == DS_OP_YIELD || op->code == DS_OP_RETURN;
}

/* What a loop's results are in its body: carries first, then what it keeps. */
static const ds_use *result_in(const ds_op *loop, uint32_t i) {
    return &ds_block_end(loop->body)->in[i];
}

/* ---- forward from weights ---- */

static ds_status place_op(flow *f, const ds_op *op, const ds_flow_loop *loops, ds_error *err) {
    uint32_t anchor = DS_FLOW_NONE, other = DS_FLOW_NONE;
    bool of_weights = op->n_in > 0, any = false;
    for (uint32_t i = 0; i < op->n_in; i++) {
        uint32_t stage, value = op->in[i].value.i;
        DS_TRY(f->weight(f->context, &op->in[i], loops, &stage, err));
        bool weight = stage != DS_FLOW_NONE || f->of_weights[value];
        if (stage == DS_FLOW_NONE) stage = f->stage[value];
        if (weight && (stage == DS_FLOW_ANY || stage == DS_FLOW_NONE))
            any = true;
        else if (weight)
            anchor = later(anchor, stage);
        else
            other = later(other, stage);
        of_weights = of_weights && weight;
    }
    for (uint32_t i = 0; i < op->n_out; i++) f->of_weights[op->out[i].i] = of_weights;
    uint32_t stage = anchor != DS_FLOW_NONE ? anchor : other;
    if (stage == DS_FLOW_NONE && any && !of_weights) stage = 0;
    set_all(f, op, stage);
    return DS_OK;
}

static ds_status place_block(flow *f, const ds_block *block, const ds_flow_loop *loops,
                             ds_error *err) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        if (is_end(op)) continue;
        if (!is_loop(op)) {
            DS_TRY(place_op(f, op, loops, err));
            continue;
        }
        ds_flow_loop inner = {op, loops};
        DS_TRY(place_block(f, op->body, &inner, err));
        for (uint32_t k = 0; k < op->n_out; k++)
            set(f, op->out[k], f->stage[result_in(op, k)->value.i]);
    }
    return DS_OK;
}

/* ---- through carried values, then back from readers ---- */

static void follow_block(flow *f, const ds_block *block) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        uint32_t stage = DS_FLOW_NONE;
        if (is_end(op)) continue;
        for (uint32_t k = 0; k < op->n_in && !is_loop(op); k++)
            stage = later(stage, f->stage[op->in[k].value.i]);
        if (!is_loop(op)) {
            set_all(f, op, stage);
            continue;
        }
        for (uint32_t k = 0; k < op->n_args; k++)
            set(f, op->args[k], f->stage[result_in(op, k)->value.i]);
        for (uint32_t k = 0; k < op->n_args; k++) set(f, op->args[k], f->stage[op->in[k].value.i]);
        follow_block(f, op->body);
        for (uint32_t k = 0; k < op->n_out; k++)
            set(f, op->out[k], f->stage[result_in(op, k)->value.i]);
    }
}

/* Is the value made by an op that has operands, or carried? */
static bool is_placed(const flow *f, ds_value value) {
    const ds_value_info *info = ds_value_at(f->func, value);
    return info->def && (info->def->n_in || is_loop(info->def));
}

static void need(flow *f, const ds_use *use, uint32_t stage) {
    if (is_placed(f, use->value)) set(f, use->value, stage);
}

static void need_block(flow *f, const ds_block *block) {
    for (uint32_t i = block->n_ops; i-- > 0;) {
        const ds_op *op = block->ops[i];
        if (is_end(op)) continue;
        for (uint32_t k = 0; k < op->n_out && is_loop(op); k++)
            need(f, result_in(op, k), f->stage[op->out[k].i]);
        if (is_loop(op)) need_block(f, op->body);
        for (uint32_t k = 0; k < op->n_in; k++)
            need(f, &op->in[k],
                 is_loop(op) ? f->stage[op->args[k].i]
                 : op->n_out ? f->stage[op->out[0].i]
                             : 0);
    }
}

static void default_block(flow *f, const ds_block *block) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        if (is_end(op) || (!op->n_in && !is_loop(op))) continue;
        for (uint32_t k = 0; k < op->n_args && is_loop(op); k++) set(f, op->args[k], 0);
        if (is_loop(op)) default_block(f, op->body);
        set_all(f, op, 0);
    }
}

ds_status ds_flow_find(ds_arena *arena, const ds_func *func, ds_flow_weight *weight, void *context,
                       const uint32_t **out, ds_error *err) {
    uint32_t n = func->values.n;
    flow f = {.func = func, .weight = weight, .context = context};
    f.stage = DS_NEW_N(arena, uint32_t, n + 1);
    f.of_weights = DS_NEW_N(arena, bool, n + 1);
    for (uint32_t i = 0; i < n; i++) f.stage[i] = DS_FLOW_NONE;
    DS_TRY(place_block(&f, &func->body, NULL, err));
    for (f.changed = true; f.changed;) {
        f.changed = false;
        follow_block(&f, &func->body);
        if (!f.changed) need_block(&f, &func->body);
    }
    default_block(&f, &func->body);
    *out = f.stage;
    return DS_OK;
}
