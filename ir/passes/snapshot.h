/* A step behind some pass, kept so that what follows can be made of it more than once.
 *
 * Candidates of a sweep share most of what passes do: another way of sharding begins where the one
 * before began. A step is not copied for that (all of it is pointers); it stays where it is, with a
 * copy of the bytes of its memory, and goes back:
 *
 *     DS_TRY(ds_model_step_run_to(step, DS_PASS_RECOMPUTE, NULL, NULL, err));
 *     ds_step_mark *mark = ds_step_mark_new(step);
 *     for (…) {
 *         ds_step_adopt(step, &strategies[i], DS_PASS_RECOMPUTE);
 *         DS_TRY(ds_model_step_run_to(step, DS_PASS_OVERLAP, NULL, NULL, err));
 *         …                                          // simulate it, and keep nothing of it
 *         ds_step_mark_return(mark);
 *     }
 *
 * That is exact whatever the passes do to functions that are there. Which strategies have the same
 * program behind a pass says a table of the knobs that no pass up to it reads. */
#ifndef DS_PASSES_SNAPSHOT_H
#define DS_PASSES_SNAPSHOT_H

#include "ir/passes/passes.h"

typedef struct ds_step_mark ds_step_mark;

/* The step as it is now; it must outlive the mark. Marks of one step nest. O(bytes of the unit). */
ds_step_mark *ds_step_mark_new(ds_model_step *step);
/* Makes the step what it was. All that was made of it since is gone; younger marks may only be
 * freed. Interned texts stay, on which nothing depends. O(bytes of the unit then, and what was made
 * since). */
void ds_step_mark_return(const ds_step_mark *mark);
void ds_step_mark_free(ds_step_mark *mark);
/* Memory of the mark alone. O(1). */
size_t ds_step_mark_bytes(const ds_step_mark *mark);

/* Does no pass up to `pass` read the knob? Then the knob makes no difference to the program there,
 * and ds_step_adopt takes it over. `pass` is DS_PASS_RECOMPUTE or DS_PASS_SHARD. Only knobs of the
 * strategy are late. */
bool ds_knob_is_late(const ds_knob *knob, ds_pass_id pass);
/* Gives a step behind `pass` those knobs of another strategy of the same scenario, which has been
 * read and checked (strategy.h). O(knobs). */
void ds_step_adopt(ds_model_step *step, const ds_strategy *from, ds_pass_id pass);

#endif
