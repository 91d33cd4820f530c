/* A message has a count of those it waits for, and two marks: its latency is over, it has ended.
 * Messages whose latency begins are handed to the event loop through a list, so that a chain of
 * messages without bytes needs no recursion. */
#include "sim/engine/steps.h"

#include "ir/base/units.h"

#include <stdlib.h>

typedef struct due {
    uint32_t step;
    int64_t at_ps;
} due;

struct ds_steps {
    const ds_plan *plan;
    ds_net *net;
    uint32_t *n_waits; /* per message: not ended yet */
    uint32_t *owner;   /* the activity that is doing it */
    bool *waited, *ended;
    uint32_t *n_left; /* per activity */
    uint32_t n_begun;
    DS_VEC(due) due;
};

ds_steps *ds_steps_new(const ds_plan *plan, ds_net *net) {
    if (!plan->n_steps) return NULL;
    ds_steps *s = ds_xcalloc(1, sizeof *s);
    s->plan = plan;
    s->net = net;
    s->n_waits = ds_xcalloc(plan->n_steps, sizeof *s->n_waits);
    s->owner = ds_xcalloc(plan->n_steps, sizeof *s->owner);
    s->waited = ds_xcalloc(plan->n_steps, sizeof *s->waited);
    s->ended = ds_xcalloc(plan->n_steps, sizeof *s->ended);
    s->n_left = ds_xcalloc(plan->n_activities, sizeof *s->n_left);
    return s;
}

void ds_steps_free(ds_steps *s) {
    if (!s) return;
    free(s->n_waits);
    free(s->owner);
    free(s->waited);
    free(s->ended);
    free(s->n_left);
    free(s->due.at);
    free(s);
}

static void begin_step(ds_steps *s, uint32_t step, int64_t now_ps) {
    due d = {step, ds_ps_sum(now_ps, s->plan->steps[step].wait_ps)};
    DS_HPUSH(&s->due, d);
}

bool ds_steps_take(ds_steps *s, uint32_t *step, int64_t *at_ps) {
    if (!s->due.n) return false;
    due d = s->due.at[--s->due.n];
    *step = d.step;
    *at_ps = d.at_ps;
    return true;
}

void ds_steps_start(ds_steps *s, uint32_t activity, int64_t at_ps) {
    const ds_activity *a = &s->plan->activities[activity];
    s->n_left[activity] = a->n_steps;
    for (uint32_t i = a->first_step; i < a->first_step + a->n_steps; i++) {
        s->n_waits[i] = s->plan->steps[i].n_waits;
        s->owner[i] = activity;
        s->waited[i] = s->ended[i] = false;
        if (!s->n_waits[i]) begin_step(s, i, at_ps);
    }
}

uint32_t ds_steps_owner(const ds_steps *s, uint32_t step) {
    return s->owner[step];
}

static void load_step(ds_steps *s, uint32_t step, int64_t now_ps) {
    uint32_t id = s->plan->n_activities + step, flow = s->plan->steps[step].flow;
    if (flow == DS_NONE)
        ds_net_wait(s->net, id, s->n_begun++, now_ps);
    else
        ds_net_flow(s->net, id, s->n_begun++, flow, now_ps);
}

void ds_steps_waited(ds_steps *s, uint32_t step, int64_t now_ps) {
    uint32_t after = s->plan->steps[step].after;
    s->waited[step] = true;
    if (after == DS_NONE || s->ended[after]) load_step(s, step, now_ps);
}

uint32_t ds_steps_end(ds_steps *s, uint32_t step, int64_t now_ps) {
    const ds_plan_step *d = &s->plan->steps[step];
    s->ended[step] = true;
    if (d->next != DS_NONE && s->waited[d->next]) load_step(s, d->next, now_ps);
    for (uint32_t i = d->first; i < d->first + d->n; i++)
        if (!--s->n_waits[s->plan->step_succ[i]]) begin_step(s, s->plan->step_succ[i], now_ps);
    uint32_t activity = s->owner[step];
    return --s->n_left[activity] ? DS_NONE : activity;
}
