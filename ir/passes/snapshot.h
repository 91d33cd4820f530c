/* Marks: a step returns to its state after some pass, so that later passes can run again.
 *
 * Candidates of a sweep share most of the passes' work: two shardings of one model begin from the
 * same step. A step is full of pointers and cannot be copied elsewhere. A mark therefore copies the
 * bytes of the step's memory, and returning to the mark restores these bytes in place:
 *
 *     DS_TRY(ds_model_step_run_to(step, DS_PASS_RECOMPUTE, NULL, NULL, err));
 *     ds_step_mark *mark = ds_step_mark_new(step);
 *     for (…) {
 *         ds_step_adopt(step, &strategies[i], DS_PASS_RECOMPUTE);
 *         DS_TRY(ds_model_step_run_to(step, DS_PASS_OVERLAP, NULL, NULL, err));
 *         …                                          // simulate, and copy results out
 *         ds_step_mark_return(mark);
 *     }
 *
 * Restoring bytes is exact whatever passes change in existing functions. Two strategies have the
 * same program after a pass if they differ only in knobs that this and earlier passes do not read
 * (ds_step_unread). */
#ifndef DS_PASSES_SNAPSHOT_H
#define DS_PASSES_SNAPSHOT_H

#include "ir/passes/passes.h"

typedef struct ds_step_mark ds_step_mark;

/* Marks the step's present state; the step must outlive the mark. Marks of one step nest. O(bytes
 * of the unit). */
ds_step_mark *ds_step_mark_new(ds_model_step *step);
/* The same with the room of a mark that is not needed any more, which may have been another step's;
 * NULL: a new one. */
void ds_step_mark_set(ds_step_mark **mark, ds_model_step *step);
/* Gives the step back the state of the mark. Everything that passes made after the mark is gone;
 * younger marks may only be freed. Interned texts stay, because no program depends on their
 * presence. O(bytes of the unit at the mark and made after the mark). */
void ds_step_mark_return(const ds_step_mark *mark);
void ds_step_mark_free(ds_step_mark *mark);

/* The size of a microbatch, as the param that ds_model_step.microbatch names; 0: no param is one.
 * O(params). */
int64_t ds_step_samples(const ds_model_step *step);
/* Binds the param anew, for passes to come, too. The step must have one. Errors: evaluation of
 * params that depend on it. O(params). */
ds_status ds_step_bind_samples(ds_model_step *step, int64_t samples, ds_error *err);

/* Does no pass up to `pass` read the knob? Then the knob makes no difference to the program there,
 * and ds_step_adopt takes it over. `pass` is DS_PASS_RECOMPUTE or DS_PASS_SHARD. Only knobs of the
 * strategy are late. */
bool ds_knob_is_late(const ds_knob *knob, ds_pass_id pass);
/* Gives a step behind `pass` those knobs of another strategy of the same scenario, which has been
 * read and checked (strategy.h). O(knobs). */
void ds_step_adopt(ds_model_step *step, const ds_strategy *from, ds_pass_id pass);

#endif
