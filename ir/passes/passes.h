/* From a model to a program: passes, each IR to IR.
 *
 *     lower      the scenario's model as one function @step in a module of its own: calls inlined,
 *                loops kept, weights and dtypes as the training step will have them
 *     stage      with pp > 1: loops cut and weights shared out over the pipeline's chunks
 *     grad       the backward pass: gradients of all weights; microbatches
 *     optimizer  updated weights and states
 *     recompute  forward ops run again in the backward pass, whose values are then not kept
 *     shard      the strategy's mesh, shardings and communication: model becomes program
 *     offload    values wait in the hosts' memory until an op needs them
 *     pipeline   with pp > 1: functions of chunks, in the schedule's order, with sends between them
 *     overlap    waits: gathered weights are prefetched; gathers and scatters of tensor
 *                parallelism are cut into chunks that run under the products they feed
 *     project    one body per rank
 *
 * Every pass works on a ds_model_step. After every pass the step's module prints as text that
 * parses, verifies, runs and executes. Before `shard` the scenario says `model = @step` and splits
 * are hints; after `shard` the scenario says `program = @step`.
 *
 * Names. A weight's argument is named as exec names a model's weights (calls and name joined by
 * dots; one family binder a loop around it). With weight %w: gradient %w.grad, updated %w.new,
 * optimizer states %w.m, %w.v, %w.master, updated %w.m.new …; the loss is %loss. */
#ifndef DS_PASSES_PASSES_H
#define DS_PASSES_PASSES_H

#include "ir/schedule/schedule.h"
#include "ir/strategy/knobs.h"

/* One weight of the step, with its gradient and optimizer states. Values are arguments of, or
 * returned by, step->func; i = UINT32_MAX: none. */
typedef struct ds_step_weight {
    const char *name;
    const char *base; /* name in the model: `stage` splits one %w into %w.c0, %w.c1 … */
    uint32_t chunk;   /* chunk of the pipeline whose ops read the weight */
    uint32_t tied;    /* index of the first weight of the step that is the same weight of the model:
                         chunks that read one weight each have a copy. Without copies: this weight's
                         own index */
    ds_value arg;
    uint32_t grad_result; /* index among the function's results; UINT32_MAX: none */
    ds_value state[3];    /* optimizer states as arguments: m, v */
    uint32_t n_states;
    ds_value master;     /* the master copy, or none */
    uint32_t new_result; /* index of the updated weight; UINT32_MAX */
    bool stays;          /* its states stay on the device (offload_fraction) */
    bool frozen;         /* it is not trained: no gradient, states or update */
    /* Of a frozen weight with an adapter, by dim: 'g' a dim of the result and of both operands, 'c'
     * summed over, 'k' of the result alone. The weights %w.lora_a[g.., c.., rank] and
     * %w.lora_b[g.., rank, k..] are the adapter's. NULL: no adapter. */
    const char *adapted;
} ds_step_weight;

#define DS_NO_RESULT UINT32_MAX
#define DS_NO_VALUE  ((ds_value){UINT32_MAX})

/* Where a pipeline is cut, in turns of the loops that stand in no other. */
typedef struct ds_step_cut {
    const int64_t *loop_turns; /* of each loop, in the order in which loops run */
    uint32_t n_loops;
    const int64_t *chunk_turns; /* of each chunk over all loops, as in stage_layers; NULL before
                                   `stage` */
    const uint8_t *marks;       /* of each outermost loop of the model: what its layers do, bits
                             DS_LAYERS_…; NULL: every layer does all of it */
    uint32_t n_marks;
} ds_step_cut;

/* What some layers do and others do not (recompute_layers, offload_layers, offload_fraction). */
enum { DS_LAYERS_AGAIN = 1, DS_LAYERS_SENT = 2, DS_LAYERS_STATES_SENT = 4 };

typedef struct ds_model_step {
    ds_unit *unit;      /* owned; its root module holds everything, without imports */
    ds_binding binding; /* of that unit */
    ds_func *func;      /* @step, in the root module */
    ds_train train;
    ds_strategy strategy;
    /* The param that is the batch of one microbatch: `batch` divided by the number of microbatches.
     * Every size that depends on the microbatch is an expression of this param, so binding the
     * param anew (ds_bind) gives the program for microbatches of another size. NULL: the step has
     * one microbatch, or a pass has written some size as a number. */
    const char *microbatch;
    int64_t batch;
    uint32_t n_model_results; /* results of the model itself; the loss is the first */
    DS_VEC(ds_step_weight)
    weights;       /* in the unit's arena, in order of the arguments; frozen ones
                                       behind all others */
    uint32_t done; /* bit i: pass i has run */
    /* Set by the caller before `grad` if only the program after `overlap` is wanted. A pipeline's
     * step is then brief between `grad` and `pipeline`: the call of a middle microbatch has no
     * operands, and no results but the model's. A brief step is verified once, after `overlap`,
     * unless the step is long (passes.c). The program after `overlap` does not depend on this
     * flag. */
    bool brief;
    /* Set by the caller to trust that passes make legal programs. Types are still inferred after
     * each pass; but no step is verified with numbers, and a brief or schematic step is not
     * verified at all. The program does not depend on this flag. */
    bool trusted;
    /* Set by the caller before `shard` if the program will be read and not run: the mesh may then
     * have more places than the topology has devices. */
    bool schematic;
    /* The order of each rec as text (ds_temporal_nest_brief), in the unit's arena; NULL: no rec. */
    const char *orders;
    /* A pattern of the strategy that names single turns of a loop, which `lower` wrote out for it. NULL:
     * none. */
    const char *turn_pattern;
    ds_loc turn_loc;
    /* The pipeline's schedule, made by `stage`; without one schedule.schedule is NULL. */
    ds_schedule_index schedule;
    ds_step_cut cut; /* where `stage` has cut the pipeline */
    /* After `shard`, if stages differ in width: the name of each stage's mesh, [pp]; else NULL. */
    const char **stage_mesh;
    bool has_views; /* overrides or groups lie on other meshes than the strategy's */
} ds_model_step;

/* The weights that are trained: the first so many. O(weights). */
static inline uint32_t ds_step_n_trained(const ds_model_step *step) {
    uint32_t n = 0;
    while (n < step->weights.n && !step->weights.at[n].frozen) n++;
    return n;
}

/* The name of a pass ("lower", "grad", …), and the pass of a name; DS_PASS_COUNT if unknown. */
const char *ds_pass_name(ds_pass_id pass);
ds_pass_id ds_pass_by_name(const char *name);

/* lower: a step from a verified and bound unit whose scenario has a `model`. *out is NULL on error.
 * Errors: DS_ERR_UNSUPPORTED, DS_ERR_VALUE with the place in the source. O(size of the model). */
ds_status ds_model_step_new(const ds_binding *source, ds_model_step **out, ds_error *err);
void ds_model_step_free(ds_model_step *step);
/* Gives an error without a place the place of the source's strategy. */
void ds_model_step_place_error(const ds_unit *source, ds_error *err);

/* The passes. Each pass checks that the passes that it needs have run. */
ds_status ds_pass_stage(ds_model_step *step, ds_error *err);
ds_status ds_pass_grad(ds_model_step *step, ds_error *err);
ds_status ds_pass_optimizer(ds_model_step *step, ds_error *err);
ds_status ds_pass_recompute(ds_model_step *step, ds_error *err);
ds_status ds_pass_shard(ds_model_step *step, ds_error *err);
ds_status ds_pass_offload(ds_model_step *step, ds_error *err);
ds_status ds_pass_pipeline(ds_model_step *step, ds_error *err);
ds_status ds_pass_overlap(ds_model_step *step, ds_error *err);
ds_status ds_pass_project(ds_model_step *step, ds_error *err);

/* Runs one pass by its id, then verifies the module; a brief step is verified after `overlap` only.
 * A finding is DS_ERR_INTERNAL with the verifier's message, because passes make legal programs. */
ds_status ds_model_step_run(ds_model_step *step, ds_pass_id pass, ds_error *err);
/* Runs the passes that the scenario asks for (ds_model_step_wants) and that have not run, up to and
 * including `last`. `observe` (may be NULL) is called after each pass. */
ds_status ds_model_step_run_to(ds_model_step *step, ds_pass_id last,
                               ds_status (*observe)(void *context, const ds_model_step *step,
                                                    ds_pass_id pass, ds_error *err),
                               void *context, ds_error *err);

/* Does the scenario ask for the pass? pipeline needs pp > 1, stage pp > 1 or layers that differ
 * (ds_step_tells_apart); grad needs training,
 * optimizer and recompute also a value other than "none"; offload needs its knob; overlap needs
 * several devices or offload. */
/* In what do layers differ? Bits DS_LAYERS_…. */
uint32_t ds_step_tells_apart(const ds_model_step *step);
/* Does loop number k of the model do it? O(1). */
static inline bool ds_step_layers_do(const ds_model_step *step, uint32_t k, uint32_t what) {
    return !step->cut.marks || k >= step->cut.n_marks || step->cut.marks[k] & what;
}
bool ds_model_step_wants(const ds_model_step *step, ds_pass_id pass);

/* Replaces the module's function of the same name by `func`, or adds `func`, and keeps the module's
 * items in order. */
void ds_model_step_set_func(ds_model_step *step, ds_func *func);

#endif
