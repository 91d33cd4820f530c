/* The proof of the passes: a model's step before and after each pass, on real numbers.
 *
 *     ds_step_check check;
 *     DS_TRY(ds_model_step_check(&binding, &(ds_step_check_options){.seed = 1}, &check, err));
 *     check.equal, check.worst->name, …
 *     ds_step_check_deinit(&check);
 *
 * Runs all passes that the scenario asks for, with gradients as results, and executes the program
 * after each pass (ir/exec, in f64, inputs generated from the seed): the model as written, the
 * lowered step, with gradients, with updated weights, sharded, overlapped, one body per rank.
 * Neighbours must agree within max|a-b| <= 1e-9 max|a| for every tensor of both programs (SEMANTICS
 * P2). With m microbatches the loss is compared with the mean over the lowered step's m losses.
 *
 * A pipelined program is compared with the *sequential* step instead of a neighbour: the same model
 * and microbatches with pp = 1, up to the optimizer, on one device; and so is a
 * step in pieces (ds_step_tells_apart), before `shard`. Results are paired by name,
 * %w.c1.grad{3} with %w.grad{3}; every result on either side needs a partner. */
#ifndef DS_PROVE_CHECK_H
#define DS_PROVE_CHECK_H

#include "ir/passes/passes.h"

typedef enum ds_check_kind {
    DS_CHECK_RESULT, /* the loss, and other results of the model */
    DS_CHECK_GRADIENT,
    DS_CHECK_WEIGHT, /* updated */
    DS_CHECK_STATE   /* of the optimizer, master copies included */
} ds_check_kind;

/* One tensor, before and after a pass. */
typedef struct ds_step_check_row {
    ds_pass_id pass;
    ds_check_kind kind;
    const char *name;
    double max_a, max_difference; /* max|a|, max|a-b|; infinite if the shapes differ, or one side
                                     lacks the tensor */
    bool equal;
} ds_step_check_row;

typedef struct ds_step_check_options {
    uint64_t seed;     /* the first seed; the next seed is taken while a choice is too close
                          (margin) */
    uint32_t passes;   /* bit i: compare before and after pass i; 0: after all */
    int64_t max_bytes; /* as in ds_exec_options */
} ds_step_check_options;

/* Seeds that are tried before a choice within 1e-6 counts as undecided. */
#define DS_CHECK_MAX_SEEDS 16

typedef struct ds_step_check {
    ds_arena arena;
    DS_VEC(ds_step_check_row) rows; /* in order of passes, then of results */
    bool compared;                  /* some pass was; results without elements have no rows */
    bool equal;                     /* every row is equal */
    const ds_step_check_row *worst; /* largest max|a-b| / max|a|; NULL: nothing was compared */
    uint64_t seed;                  /* the seed that was used */
    double margin;                  /* ds_exec_result; below 1e-6: no seed tried was decided */
    uint32_t n_devices;             /* of the last program */
    const char *skipped;            /* the comparison that was left out, and why; or NULL */
} ds_step_check;

/* Errors: errors of the passes and of exec, with the pass after which the program failed. `out`
 * must be freed in any case (ds_step_check_deinit). O(work of all programs). */
ds_status ds_model_step_check(const ds_binding *binding, const ds_step_check_options *options,
                              ds_step_check *out, ds_error *err);
void ds_step_check_deinit(ds_step_check *check);

const char *ds_check_kind_name(ds_check_kind kind);

#endif
