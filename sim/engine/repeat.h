/* Turns that do the same, run once (sim/plan/repeat.c).
 *
 * A gate stands before the turn that is run, and one behind it. What comes after a gate waits until
 * all before it has ended: then nothing runs, and no link is loaded. If without the gate nothing would
 * have begun earlier, the state of the run at the first gate and at the second differ in the time
 * alone, so the next turn takes as long, and so do all: at the second gate the clock goes on by the
 * turns that are left.
 *
 * The host is the one thing that runs on. A class whose host issues a turn in as long as the turn
 * takes is where it was; a class that waited for its host nowhere in the turn, and whose host issues
 * a turn faster, waits nowhere later. Else the repeat is refused, and so it is where a gate holds
 * something back. */
#ifndef DS_ENGINE_REPEAT_H
#define DS_ENGINE_REPEAT_H

#include "ir/base/arena.h"
#include "sim/plan/plan.h"

typedef struct ds_gates {
    const ds_plan *plan;
    uint32_t next;     /* gate */
    uint32_t task;     /* of the next gate; DS_NONE: none */
    uint32_t refused;  /* the repeat that does not hold; DS_NONE */
    int64_t *turn_ps;  /* per repeat: when it begins, then what a turn takes; owned by the run */
    int64_t *bound_ps; /* per class: the last start that its host made wait; -1 */
    int64_t held_ps;   /* since when something is held */
    DS_VEC(uint32_t) held;
    uint32_t n_taking, taken; /* the first of the held, which are let go */
} ds_gates;

/* No gate without repeats. */
ds_gates ds_gates_new(const ds_plan *plan);
void ds_gates_deinit(ds_gates *gates); /* but turn_ps */

void ds_gates_keep(ds_gates *gates, uint32_t id, int64_t now_ps);
/* What could begin now is behind the gate: held as `id` if so. */
static inline bool ds_gates_hold(ds_gates *gates, uint32_t task, uint32_t id, int64_t now_ps) {
    if (task < gates->task) return false;
    ds_gates_keep(gates, id, now_ps);
    return true;
}
/* A task of the class starts at `at_ps`, when its host has issued it. */
static inline void ds_gates_bind(ds_gates *gates, uint32_t cls, int64_t at_ps) {
    if (gates->bound_ps && at_ps > gates->bound_ps[cls]) gates->bound_ps[cls] = at_ps;
}
/* So many tasks have ended: opens the gates that they reach, and sets the clock on; false: none. */
bool ds_gates_open(ds_gates *gates, uint32_t n_done, int64_t *now_ps);
/* The next instance that a gate held and holds no longer; false: there is none. */
bool ds_gates_take(ds_gates *gates, uint32_t *id);

#endif
