/* From a model to a program: passes, each IR to IR.
 *
 *     lower      the scenario's model as one function @step in a module of its own: calls inlined,
 *                loops kept, weights and dtypes as the training step will have them
 *     stage      with pp > 1: loops cut and weights shared out over the pipeline's chunks
 *     grad       the backward pass: gradients of all weights; microbatches
 *     optimizer  updated weights and states
 *     recompute  forward ops again in the backward pass, in the place of values kept for it
 *     shard      the strategy's mesh, shardings and communication: model becomes program
 *     offload    what is not needed now goes to the hosts' memory, and comes back
 *     pipeline   with pp > 1: functions of chunks, in the schedule's order, with sends between them
 *     overlap    what waits for what: prefetch of gathered weights; gathers and scatters of tensor
 *                parallelism in chunks under the products that they feed
 *     project    one body per rank
 *
 * All work on a ds_model_step. After each of them its module prints as text that parses, verifies,
 * runs and executes: until `shard` the scenario says `model = @step` and splits are hints; from
 * then on it says `program = @step`.
 *
 * Names. A weight's argument is named as exec names a model's weights (calls and name joined by
 * dots; one family binder a loop around it). With weight %w: gradient %w.grad, updated %w.new,
 * optimizer states %w.m, %w.v, %w.master, updated %w.m.new …; the loss is %loss. */
#ifndef DS_PASSES_PASSES_H
#define DS_PASSES_PASSES_H

#include "ir/schedule/schedule.h"
#include "ir/strategy/knobs.h"

/* One weight of the step and what belongs to it. Values are arguments of, or returned by,
 * step->func; i = UINT32_MAX: none. */
typedef struct ds_step_weight {
    const char *name;
    const char *base; /* its name in the model: `stage` makes several of one, %w.c0, %w.c1 … */
    uint32_t chunk;   /* of the pipeline, whose ops read it */
    uint32_t tied; /* index of the first weight that is the same one of the model, read in another
                      chunk; its own where there is none */
    ds_value arg;
    uint32_t grad_result; /* index among the function's results; UINT32_MAX: none */
    ds_value state[3];    /* optimizer states as arguments: m, v */
    uint32_t n_states;
    ds_value master;     /* the master copy, or none */
    uint32_t new_result; /* index of the updated weight; UINT32_MAX */
} ds_step_weight;

#define DS_NO_RESULT UINT32_MAX
#define DS_NO_VALUE  ((ds_value){UINT32_MAX})

/* Where a pipeline is cut, in turns of the loops that stand in no other. */
typedef struct ds_step_cut {
    const int64_t *loop_turns; /* of each loop, in the order in which they run */
    uint32_t n_loops;
    const int64_t *chunk_turns; /* of each chunk over all loops, as stage_layers has them; NULL
                                   before `stage` */
} ds_step_cut;

typedef struct ds_model_step {
    ds_unit *unit;      /* owned; its root module holds everything, without imports */
    ds_binding binding; /* of that unit */
    ds_func *func;      /* @step, in the root module */
    ds_train train;
    ds_strategy strategy;
    /* The param that is the batch of one microbatch, `batch` divided by their number. All sizes
     * that follow from it are computed from it, so bound to another one (ds_bind) the program is
     * that of microbatches of this size. NULL: there is one microbatch, or some size is a number
     * by now. */
    const char *microbatch;
    int64_t batch;
    uint32_t n_model_results;       /* results that the model itself has; the loss is the first */
    DS_VEC(ds_step_weight) weights; /* in the unit's arena, in order of the arguments */
    uint32_t done;                  /* bit i: pass i has run */
    /* Set it before `grad` runs if only the program behind `overlap` is wanted. Then a pipeline's
     * step is written in brief between `grad` and `pipeline` (equal microbatches say nothing but
     * which function they call, and what the model gives), and it is verified once, at the end, if
     * it is not very long (passes.c). The program is the same. */
    bool brief;
    /* Set it to take it on trust that passes make legal programs: types are inferred behind each of
     * them as ever, but nothing is verified with numbers, and a brief or schematic step not at all.
     * The program is the same. */
    bool trusted;
    /* Set it before `shard` if the program is to be looked at, not run: its mesh may have more
     * places than there are devices. */
    bool schematic;
    /* The pipeline's schedule, made by `stage`; without one schedule.schedule is NULL. */
    ds_schedule_index schedule;
    ds_step_cut cut; /* where `stage` has cut it */
    /* With stages of several widths, from `shard` on: the mesh of each, [pp]; else NULL. */
    const char **stage_mesh;
} ds_model_step;

/* "lower", "grad", … and back; DS_PASS_COUNT if unknown. */
const char *ds_pass_name(ds_pass_id pass);
ds_pass_id ds_pass_by_name(const char *name);

/* lower: a step from a verified and bound unit whose scenario has a `model`. *out is NULL on error.
 * Errors: DS_ERR_UNSUPPORTED, DS_ERR_VALUE with the place in the source. O(size of the model). */
ds_status ds_model_step_new(const ds_binding *source, ds_model_step **out, ds_error *err);
void ds_model_step_free(ds_model_step *step);
/* An error of a step without a place of its own is at the source's strategy. */
void ds_model_step_place_error(const ds_unit *source, ds_error *err);

/* The passes. Each checks that what it needs has run. */
ds_status ds_pass_stage(ds_model_step *step, ds_error *err);
ds_status ds_pass_grad(ds_model_step *step, ds_error *err);
ds_status ds_pass_optimizer(ds_model_step *step, ds_error *err);
ds_status ds_pass_recompute(ds_model_step *step, ds_error *err);
ds_status ds_pass_shard(ds_model_step *step, ds_error *err);
ds_status ds_pass_offload(ds_model_step *step, ds_error *err);
ds_status ds_pass_pipeline(ds_model_step *step, ds_error *err);
ds_status ds_pass_overlap(ds_model_step *step, ds_error *err);
ds_status ds_pass_project(ds_model_step *step, ds_error *err);

/* Runs one pass by its id, then verifies the module anew (a finding is DS_ERR_INTERNAL with the
 * verifier's message: passes make legal programs); a brief step only once `overlap` has run. */
ds_status ds_model_step_run(ds_model_step *step, ds_pass_id pass, ds_error *err);
/* All that the scenario asks for, up to and including `last`: grad and optimizer only if it trains,
 * recompute only if it says so, overlap only if something was sharded. `observe` (may be NULL) is
 * called after each pass. */
ds_status ds_model_step_run_to(ds_model_step *step, ds_pass_id last,
                               ds_status (*observe)(void *context, const ds_model_step *step,
                                                    ds_pass_id pass, ds_error *err),
                               void *context, ds_error *err);

/* Is the pass part of this version? */
bool ds_pass_exists(ds_pass_id pass);
/* Does the scenario ask for the pass? grad and optimizer only if it trains, recompute only if the
 * strategy has some too, overlap only on several devices. */
bool ds_model_step_wants(const ds_model_step *step, ds_pass_id pass);

/* Puts `func` in the place of the module's function of the same name, or adds it, and keeps the
 * module's items in order. */
void ds_model_step_set_func(ds_model_step *step, ds_func *func);

#endif
