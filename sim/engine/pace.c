#include "sim/engine/pace.h"

#include "ir/base/units.h"

#include <stdlib.h>

#define FULL (UINT64_C(1) << 32)

typedef struct running {
    ds_u128 left_q32; /* ps of cost, at since_ps */
    int64_t since_ps, due_ps;
    uint32_t next; /* of the class */
} running;

typedef struct pace_class {
    uint64_t slowed_q32; /* cost done in a ps beside a transfer; FULL: never slowed */
    uint32_t n_transfers;
    uint32_t first;
} pace_class;

struct ds_pace {
    const ds_plan *plan;
    pace_class *classes;
    running *tasks;
};

ds_pace *ds_pace_new(const ds_plan *plan) {
    bool any = false;
    for (uint32_t c = 0; c < plan->n_classes; c++) any = any || plan->classes[c].slow_q32 > FULL;
    if (!any) return NULL;
    ds_pace *pace = ds_xcalloc(1, sizeof *pace);
    pace->plan = plan;
    pace->classes = ds_xcalloc(plan->n_classes, sizeof *pace->classes);
    pace->tasks = ds_xcalloc(plan->n_tasks, sizeof *pace->tasks);
    for (uint32_t t = 0; t < plan->n_tasks; t++) pace->tasks[t].due_ps = -1;
    for (uint32_t c = 0; c < plan->n_classes; c++) {
        ds_u128 slowed = ((ds_u128)1 << 64) / plan->classes[c].slow_q32;
        pace->classes[c] = (pace_class){.slowed_q32 = (uint64_t)slowed, .first = DS_NONE};
    }
    return pace;
}

void ds_pace_free(ds_pace *pace) {
    if (!pace) return;
    free(pace->classes);
    free(pace->tasks);
    free(pace);
}

bool ds_pace_varies(const ds_pace *pace, uint32_t cls) {
    return pace->classes[cls].slowed_q32 < FULL;
}

static uint64_t speed_q32(const pace_class *c) {
    return c->n_transfers ? c->slowed_q32 : FULL;
}

static void set_due(running *r, uint64_t speed) {
    ds_u128 ps = (r->left_q32 + speed - 1) / speed;
    r->due_ps = ds_ps_narrow((ds_i128)ps + r->since_ps); /* ps < 2^97 */
}

int64_t ds_pace_start(ds_pace *pace, uint32_t task, int64_t now_ps) {
    pace_class *c = &pace->classes[pace->plan->task_class[task]];
    running *r = &pace->tasks[task];
    *r = (running){.left_q32 = (ds_u128)(uint64_t)pace->plan->task_ps[task] << 32,
                   .since_ps = now_ps,
                   .next = c->first};
    c->first = task;
    set_due(r, speed_q32(c));
    return r->due_ps;
}

void ds_pace_end(ds_pace *pace, uint32_t task) {
    uint32_t *at = &pace->classes[pace->plan->task_class[task]].first;
    while (*at != task && *at != DS_NONE) at = &pace->tasks[*at].next;
    if (*at == task) *at = pace->tasks[task].next;
    pace->tasks[task].due_ps = -1;
}

bool ds_pace_transfer(ds_pace *pace, uint32_t cls, bool begins, int64_t now_ps) {
    pace_class *c = &pace->classes[cls];
    uint64_t before = speed_q32(c);
    c->n_transfers += begins ? 1 : UINT32_MAX;
    uint64_t now = speed_q32(c);
    if (now == before) return false;
    for (uint32_t t = c->first; t != DS_NONE; t = pace->tasks[t].next) {
        running *r = &pace->tasks[t];
        ds_u128 done = (ds_u128)before * (uint64_t)(now_ps - r->since_ps);
        r->left_q32 -= done < r->left_q32 ? done : r->left_q32;
        r->since_ps = now_ps;
        set_due(r, now);
    }
    return true;
}

uint32_t ds_pace_first(const ds_pace *pace, uint32_t cls) {
    return pace->classes[cls].first;
}

uint32_t ds_pace_next(const ds_pace *pace, uint32_t task) {
    return pace->tasks[task].next;
}

int64_t ds_pace_due_ps(const ds_pace *pace, uint32_t task) {
    return pace->tasks[task].due_ps;
}
