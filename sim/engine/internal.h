#ifndef DS_ENGINE_INTERNAL_H
#define DS_ENGINE_INTERNAL_H

#include "sim/engine/engine.h"

/* What is known when no event is left: which tasks have ended, which have arrived at their meeting.
 */
typedef struct ds_stuck {
    const ds_plan *plan;
    const uint32_t *head;   /* per stream: how many of its tasks have ended */
    const uint32_t *n_pred; /* per task: dependences not ended */
    const int64_t *end_ps;  /* per task: -1 until it has ended */
} ds_stuck;

/* Describes why nothing moves: always DS_ERR_DEADLOCK. */
ds_status ds_engine__deadlock(const ds_stuck *x, ds_error *err);

#endif
