/* A step without a backward pass, on the stages of a pipeline: every op goes to the mesh slice of
 * its stage (ir/passes/build/flow.h), loops and all, and a value that another stage reads is sent
 * right after the value is made.
 *
 *     … = for t in 0..T carry (%k.c0.store: … on @m{pp=0}, %next: … on @m{pp=1}) {
 *       %next.s0 = send(%next) to @m{pp=0}
 *       …                                        layers of stage 0
 *       %y.s1 = send(%y) to @m{pp=1}
 *       …                                        layers of stage 1, which make the token
 *     }
 *
 * A device runs what stands on its stage, so stage 0 is free for other work while stage 1 makes the
 * token. Constants are made, and inputs are arguments, on each stage that reads them. */
#include "ir/exec/exec.h"
#include "ir/passes/build/copy.h"
#include "ir/passes/build/flow.h"
#include "ir/passes/pipeline/emit.h"
#include "ir/strategy/scenario.h"

#include <stdlib.h>
#include <string.h>

typedef struct turner {
    ds_pipe p;
    const uint32_t *stage; /* by value; DS_FLOW_NONE: wherever read */
    uint32_t n_stages, n_values;
    bool *reads;      /* [stage][value] */
    ds_pipe_copy *on; /* [stage]; on[s].map: [value] */
    ds_map weights;   /* argument → weight */
} turner;

static bool *read_at(const turner *t, ds_value value, uint32_t stage) {
    return &t->reads[(size_t)stage * t->n_values + value.i];
}

static uint32_t stage_of(const turner *t, const ds_op *op) {
    return op->n_out ? t->stage[op->out[0].i] : 0;
}

static ds_status weight_stage(void *context, const ds_use *use, const ds_flow_loop *loops,
                              uint32_t *stage, ds_error *err) {
    const turner *t = context;
    const uint64_t *found = ds_map_find(&t->weights, use->value.i);
    (void)loops;
    (void)err;
    *stage = found ? t->p.step->weights.at[*found].chunk : DS_FLOW_NONE;
    return DS_OK;
}

/* ---- who reads what ---- */

static void note_read(const turner *t, ds_value value, uint32_t stage) {
    if (stage != DS_FLOW_NONE) *read_at(t, value, stage) = true;
}

static void note_block(const turner *t, const ds_block *block);

/* A loop reads what it begins with where it carries that, and its yield where the result is. */
static void note_op(const turner *t, const ds_op *op) {
    if (op->code != DS_OP_FOR) {
        for (uint32_t k = 0; k < op->n_in; k++) note_read(t, op->in[k].value, stage_of(t, op));
        return;
    }
    for (uint32_t k = 0; k < op->n_args; k++)
        note_read(t, op->in[k].value, t->stage[op->args[k].i]);
    note_block(t, op->body);
    const ds_op *end = ds_block_end(op->body);
    for (uint32_t k = 0; k < op->n_out; k++) {
        ds_value at = k < op->n_args ? op->args[k] : op->out[k];
        note_read(t, end->in[k].value, t->stage[at.i]);
    }
}

static void note_block(const turner *t, const ds_block *block) {
    for (uint32_t i = 0; i < block->n_ops; i++)
        if (block->ops[i]->code != DS_OP_YIELD && block->ops[i]->code != DS_OP_RETURN)
            note_op(t, block->ops[i]);
}

static uint32_t first_reader(const turner *t, ds_value value) {
    uint32_t s = 0;
    while (s + 1 < t->n_stages && !*read_at(t, value, s)) s++;
    return *read_at(t, value, s) ? s : 0;
}

/* What nobody else reads is returned from stage 0. */
static void note_results(const turner *t, const ds_op *end) {
    for (uint32_t k = 0; k < end->n_in; k++) {
        uint32_t stage = t->stage[end->in[k].value.i];
        if (stage == DS_FLOW_NONE) stage = first_reader(t, end->in[k].value);
        note_read(t, end->in[k].value, stage);
    }
}

/* ---- arguments ---- */

/* {input = "ids", range = 32000}: a copy draws what the input draws, whoever reads the copy. */
static ds_status add_origin(turner *t, ds_value old, ds_value made, ds_error *err) {
    const ds_value_info *from = ds_value_at(t->p.old, old);
    ds_op fake = {.attrs = from->attrs, .n_attrs = from->n_attrs};
    int64_t below = 0;
    if (!ds_attr_find(from->attrs, from->n_attrs, "input"))
        ds_build_attr_text(&t->p.b, &fake, "input", from->name);
    if (!ds_dtype_is_float(from->type->dtype))
        DS_TRY(ds_exec_input_range(&t->p.step->binding, t->p.old, old, &below, err));
    if (below && !ds_attr_find(from->attrs, from->n_attrs, "range"))
        ds_build_attr_int(&t->p.b, &fake, "range", below);
    ds_value_info *info = ds_value_at(t->p.b.func, made);
    info->attrs = fake.attrs;
    info->n_attrs = fake.n_attrs;
    return DS_OK;
}

static ds_value add_arg(turner *t, ds_value old, uint32_t stage, const char *name) {
    const ds_value_info *info = ds_value_at(t->p.old, old);
    ds_value made = ds_build_arg(&t->p.b, name, ds_pipe__place(&t->on[stage], info->type),
                                 info->binders, info->n_binders, info->attrs, info->n_attrs);
    ds_value_at(t->p.b.func, made)->loc = info->loc;
    t->on[stage].map[old.i] = made;
    return made;
}

/* A weight is on its stage alone; `stage` has made a copy for each stage that reads it. */
static ds_status add_args(turner *t, ds_error *err) {
    ds_arena *arena = &t->p.unit->arena;
    for (uint32_t k = 0; k < t->p.old->n_args; k++) {
        ds_value old = t->p.old->args[k];
        const char *name = ds_value_at(t->p.old, old)->name;
        const uint64_t *weight = ds_map_find(&t->weights, old.i);
        uint32_t n = 0;
        if (weight) {
            ds_step_weight *w = &t->p.step->weights.at[*weight];
            w->arg = add_arg(t, old, w->chunk, name);
            w->name = ds_value_at(t->p.b.func, w->arg)->name;
            continue;
        }
        for (uint32_t s = 0; s < t->n_stages; s++) n += *read_at(t, old, s);
        if (n <= 1) add_arg(t, old, first_reader(t, old), name);
        for (uint32_t s = 0; s < t->n_stages && n > 1; s++) {
            if (!*read_at(t, old, s)) continue;
            ds_value made = add_arg(t, old, s, ds_arena_numbered(arena, name, ".s", s));
            DS_TRY(add_origin(t, old, made, err));
        }
    }
    return DS_OK;
}

/* ---- ops ---- */

/* Sends a value that has just been made to all other stages that read it. */
static ds_status send_value(turner *t, ds_value old, ds_error *err) {
    uint32_t from = t->stage[old.i];
    for (uint32_t s = 0; s < t->n_stages && from != DS_FLOW_NONE; s++) {
        if (s == from || !*read_at(t, old, s)) continue;
        ds_value made = t->on[from].map[old.i];
        const char *name =
            ds_arena_numbered(&t->p.unit->arena, ds_value_at(t->p.b.func, made)->name, ".s", s);
        DS_TRY(ds_pipe__send(&t->p, made, s, name, &t->on[s].map[old.i], err));
    }
    return DS_OK;
}

static ds_status send_values(turner *t, const ds_value *old, uint32_t n, ds_error *err) {
    for (uint32_t i = 0; i < n; i++) DS_TRY(send_value(t, old[i], err));
    return DS_OK;
}

/* The value on a stage, in the place of an old use. */
static ds_status read_use(const turner *t, const ds_use *use, uint32_t stage, ds_use *out,
                          ds_error *err) {
    *out = *use;
    out->value = t->on[stage].map[use->value.i];
    if (out->value.i != DS_NO_VALUE.i) return DS_OK;
    return ds_error_set(err, DS_ERR_INTERNAL, use->loc, "pipeline: %%%s is missing on stage %u",
                        ds_value_at(t->p.old, use->value)->name, stage);
}

static ds_status copy_op(turner *t, const ds_op *op, ds_error *err) {
    uint32_t stage = stage_of(t, op);
    ds_use read;
    if (stage == DS_FLOW_NONE) { /* a constant, on each stage that reads it */
        for (uint32_t s = 0; s < t->n_stages; s++)
            for (uint32_t i = 0; i < op->n_out; i++)
                if (*read_at(t, op->out[i], s)) {
                    ds_pipe__copy_op(&t->on[s], op);
                    break;
                }
        return DS_OK;
    }
    for (uint32_t i = 0; i < op->n_in; i++) DS_TRY(read_use(t, &op->in[i], stage, &read, err));
    ds_pipe__copy_op(&t->on[stage], op);
    return send_values(t, op->out, op->n_out, err);
}

static ds_status copy_block(turner *t, const ds_block *block, ds_error *err);

static ds_status copy_loop(turner *t, const ds_op *old, ds_error *err) {
    ds_arena *arena = &t->p.unit->arena;
    const ds_op *end = ds_block_end(old->body);
    ds_use *uses = DS_NEW_N(arena, ds_use, (size_t)old->n_args + old->n_out + 1);
    const char **names = DS_NEW_N(arena, const char *, old->n_out + 1);
    for (uint32_t k = 0; k < old->n_args; k++)
        DS_TRY(read_use(t, &old->in[k], t->stage[old->args[k].i], &uses[k], err));
    ds_op *loop = ds_build_for(&t->p.b, old->index, old->lo, old->hi);
    loop->loc = old->loc;
    loop->trivia = old->trivia;
    loop->attrs = old->attrs;
    loop->n_attrs = old->n_attrs;
    for (uint32_t k = 0; k < old->n_args; k++) {
        const ds_value_info *info = ds_value_at(t->p.old, old->args[k]);
        uint32_t stage = t->stage[old->args[k].i];
        ds_value arg = ds_build_carry(&t->p.b, loop, info->name,
                                      ds_pipe__place(&t->on[stage], info->type), uses[k]);
        t->on[stage].map[old->args[k].i] = arg;
    }
    DS_TRY(send_values(t, old->args, old->n_args, err));
    DS_TRY(copy_block(t, old->body, err));
    for (uint32_t k = 0; k < old->n_out; k++) {
        ds_value at = k < old->n_args ? old->args[k] : old->out[k];
        DS_TRY(read_use(t, &end->in[k], t->stage[at.i], &uses[k], err));
        names[k] = ds_value_at(t->p.old, old->out[k])->name;
    }
    DS_TRY(ds_build_yield(&t->p.b, uses, old->n_args, uses + old->n_args, old->n_out - old->n_args,
                          names, err));
    for (uint32_t k = 0; k < old->n_out; k++) {
        ds_value at = k < old->n_args ? old->args[k] : old->out[k];
        t->on[t->stage[at.i]].map[old->out[k].i] = loop->out[k];
    }
    return send_values(t, old->out, old->n_out, err);
}

static ds_status copy_block(turner *t, const ds_block *block, ds_error *err) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        if (op->code == DS_OP_YIELD || op->code == DS_OP_RETURN) continue;
        DS_TRY(op->code == DS_OP_FOR ? copy_loop(t, op, err) : copy_op(t, op, err));
    }
    return DS_OK;
}

/* ---- the pass ---- */

static ds_status write_step(turner *t, ds_error *err) {
    const ds_op *end = ds_block_end(&t->p.old->body);
    note_block(t, &t->p.old->body);
    note_results(t, end);
    DS_TRY(add_args(t, err));
    DS_TRY(copy_block(t, &t->p.old->body, err));
    ds_use *results = DS_NEW_N(&t->p.unit->arena, ds_use, end->n_in + 1);
    for (uint32_t k = 0; k < end->n_in; k++) {
        uint32_t stage = t->stage[end->in[k].value.i];
        if (stage == DS_FLOW_NONE) stage = first_reader(t, end->in[k].value);
        DS_TRY(read_use(t, &end->in[k], stage, &results[k], err));
    }
    return ds_build_return(&t->p.b, results, end->n_in, err);
}

static ds_status build(turner *t, ds_error *err) {
    ds_arena *arena = &t->p.unit->arena;
    size_t n = (size_t)t->n_stages * t->n_values;
    DS_TRY(ds_flow_find(arena, t->p.old, weight_stage, t, &t->stage, err));
    t->reads = DS_NEW_N(arena, bool, n + 1);
    t->on = DS_NEW_N(arena, ds_pipe_copy, t->n_stages + 1);
    ds_value *maps = DS_NEW_N(arena, ds_value, n + 1);
    for (size_t i = 0; i < n; i++) maps[i] = DS_NO_VALUE;
    ds_build_func(&t->p.b, t->p.unit->modules.at[0], t->p.old->name, false);
    t->p.b.func->loc = t->p.old->loc;
    for (uint32_t s = 0; s < t->n_stages; s++)
        t->on[s] = (ds_pipe_copy){.b = &t->p.b,
                                  .old = t->p.old,
                                  .map = maps + (size_t)s * t->n_values,
                                  .place = ds_pipe__on(&t->p, s),
                                  .types = &t->p.types[s]};
    ds_status status = write_step(t, err);
    ds_func *func = ds_build_end(&t->p.b);
    if (status == DS_OK) ds_model_step_set_func(t->p.step, func);
    return status;
}

ds_status ds_pipe__turns(ds_model_step *step, ds_error *err) {
    turner t = {.p = {.step = step,
                      .unit = step->unit,
                      .old = step->func,
                      .mesh = ds_scenario_mesh(step->unit)->name,
                      .n_stages = (uint32_t)step->strategy.pp},
                .n_stages = (uint32_t)step->strategy.pp,
                .n_values = step->func->values.n};
    t.p.types = ds_xcalloc(t.n_stages + 1, sizeof *t.p.types);
    for (uint32_t s = 0; s < t.n_stages; s++) ds_map_init(&t.p.types[s]);
    ds_map_init(&t.weights);
    for (uint32_t w = 0; w < step->weights.n; w++)
        ds_map_put(&t.weights, step->weights.at[w].arg.i, w);
    ds_status status = build(&t, err);
    ds_map_deinit(&t.weights);
    for (uint32_t s = 0; s < t.n_stages; s++) ds_map_deinit(&t.p.types[s]);
    free(t.p.types);
    return status;
}
