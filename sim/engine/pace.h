/* Compute that transfers slow: multiprocessors and memory bandwidth that communication takes.
 *
 * A device's coefficient is 1 + interference of its profile: compute takes that many times as long
 * while a transfer of the device runs (has started and not ended), in whichever part of it. Several
 * transfers at a time slow it no more than one. Work that is left is kept in integers, and brought
 * up to date when the pace changes; compute beside no transfer takes its cost, to the ps. */
#ifndef DS_ENGINE_PACE_H
#define DS_ENGINE_PACE_H

#include "sim/plan/plan.h"

typedef struct ds_pace ds_pace;

/* NULL if no class of the plan has an interference. O(classes + tasks) of memory else. */
ds_pace *ds_pace_new(const ds_plan *plan);
void ds_pace_free(ds_pace *pace);
/* May transfers slow the compute of this class? Ends of others are not looked after. */
bool ds_pace_varies(const ds_pace *pace, uint32_t cls);
/* A compute task of such a class starts; when it would end at this pace, INT64_MAX beyond int64. */
int64_t ds_pace_start(ds_pace *pace, uint32_t task, int64_t now_ps);
void ds_pace_end(ds_pace *pace, uint32_t task);
/* A transfer of the class begins or ends. Has the pace of its running tasks changed? Then all of
 * them have new ends. O(running tasks of the class). */
bool ds_pace_transfer(ds_pace *pace, uint32_t cls, bool begins, int64_t now_ps);
/* The running tasks of a class, and when each ends as things stand; -1: it does not run. */
uint32_t ds_pace_first(const ds_pace *pace, uint32_t cls);
uint32_t ds_pace_next(const ds_pace *pace, uint32_t task);
int64_t ds_pace_due_ps(const ds_pace *pace, uint32_t task);

#endif
