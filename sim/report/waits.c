/* The wait of every task.
 *
 * A task's own side is ready when its operands' makers and its stream's predecessor have ended and
 * the host has issued the task: the task waited for the last of these. A transfer starts when the
 * last of its members is ready.
 *
 * Which of several members that came last together? Any choice is a right answer, but a folded run
 * must choose as an unfolded run does, where devices have other numbers. So each task gets a
 * *history*: a hash of its instance and of the history of the task that it waited for. Histories
 * are equal for devices of one class, and the least history wins. Tasks are visited in the order of
 * their ends, so the history of the task waited for is known. */
#include "ir/base/map.h"
#include "sim/report/analysis.h"

#include <stdlib.h>

const char *ds_wait_name(ds_wait wait) {
    static const char *const names[] = {
#define DS_X(name, text) text,
        DS_WAIT_MAP(DS_X)
#undef DS_X
    };
    return wait < DS_WAIT_COUNT ? names[wait] : "?";
}

typedef struct finder {
    const ds_plan *plan;
    const ds_run *run;
    ds_waits *out;
    uint32_t *before;  /* per task: the task before on its stream; DS_NONE: the first */
    int64_t *ready_ps; /* per task: when its own side was ready */
    uint64_t *history;
} finder;

static void link_streams(finder *f) {
    for (uint32_t s = 0; s < f->plan->n_streams; s++) {
        uint32_t before = DS_NONE;
        for (uint32_t i = 0; i < f->plan->streams[s].n; i++) {
            uint32_t task = f->plan->stream_tasks[f->plan->streams[s].first + i];
            f->before[task] = before;
            before = task;
        }
    }
}

/* The task that makes the operand on the class; DS_NONE: an input, or made on other classes. */
static uint32_t maker_of(const ds_plan *plan, uint32_t value, uint32_t cls) {
    const ds_inst *maker = &plan->insts.at[plan->values.at[value].inst];
    if (maker->first_task == DS_NONE) return DS_NONE;
    uint32_t pos = ds_record_class_pos(plan->records.at[maker->record], cls);
    return pos == DS_NONE ? DS_NONE : maker->first_task + pos;
}

/* The transfer that ended the last pause in which the host of the task waited; DS_NONE: the host has
 * never waited. */
static uint32_t pausing(const finder *f, uint32_t task) {
    const ds_plan *plan = f->plan;
    uint32_t pause = plan->task_pause ? plan->task_pause[task] : DS_NONE;
    while (pause != DS_NONE && f->run->end_ps[plan->pauses[pause].task] < f->run->pause_ps[pause])
        pause = plan->pauses[pause].before;
    return pause == DS_NONE ? DS_NONE : plan->pauses[pause].task;
}

static void own_side(finder *f, uint32_t task) {
    const ds_plan *plan = f->plan;
    uint32_t inst = plan->task_inst[task], first = plan->insts.at[inst].first_operand;
    uint32_t n = ds_plan_n_operands(plan, inst), from = DS_NONE, before = f->before[task];
    int64_t ready = 0;
    ds_wait why = DS_WAIT_NOTHING;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t maker = maker_of(plan, plan->operands.at[first + i], plan->task_class[task]);
        if (maker == DS_NONE) continue;
        int64_t end = ds_run_end_ps(f->run, plan, maker, task);
        if (end == 0 || end < ready || (end == ready && maker < from)) continue;
        ready = end;
        from = maker;
        why = DS_WAIT_DATA;
    }
    int64_t before_ps = before == DS_NONE ? 0 : ds_run_end_ps(f->run, plan, before, task);
    if (before_ps > ready) {
        ready = before_ps;
        from = before;
        why = plan->streams[plan->task_stream[task]].key ? DS_WAIT_COMMUNICATOR : DS_WAIT_STREAM;
    }
    int64_t issue_ps = ds_run_issue_ps(f->run, plan, task);
    if (issue_ps > ready) {
        ready = issue_ps;
        from = pausing(f, task);
        why = DS_WAIT_HOST;
    }
    f->ready_ps[task] = ready;
    f->out->from[task] = from;
    f->out->why[task] = (uint8_t)why;
    f->out->last[task] = task;
    uint64_t past = from == DS_NONE ? 0 : f->history[from];
    f->history[task] = ds_hash_mix(ds_hash_mix(past, why), inst);
}

/* Finds the member whose own side was ready last, once all own sides are known. */
static void meet(finder *f, const ds_activity *a) {
    const uint32_t *members = f->plan->members + a->first_member;
    uint32_t best = members[0];
    for (uint32_t i = 1; i < a->n_members; i++) {
        uint32_t m = members[i];
        if (f->ready_ps[m] > f->ready_ps[best] ||
            (f->ready_ps[m] == f->ready_ps[best] && f->history[m] < f->history[best]))
            best = m;
    }
    int64_t last_ps = f->ready_ps[best];
    uint64_t past = f->history[best];
    for (uint32_t i = 0; i < a->n_members; i++) {
        uint32_t m = members[i];
        if (f->ready_ps[m] == last_ps) continue;
        f->out->last[m] = best;
        f->history[m] = ds_hash_mix(past, f->plan->task_inst[m]);
    }
}

void ds_waits_find(const ds_result *r, ds_waits *out) {
    uint32_t n = r->plan->n_tasks;
    finder f = {.plan = r->plan, .run = &r->run, .out = out};
    out->from = ds_xcalloc(n, sizeof *out->from);
    out->why = ds_xcalloc(n, sizeof *out->why);
    out->last = ds_xcalloc(n, sizeof *out->last);
    f.before = ds_xcalloc(n, sizeof *f.before);
    f.ready_ps = ds_xcalloc(n, sizeof *f.ready_ps);
    f.history = ds_xcalloc(n, sizeof *f.history);
    link_streams(&f);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t task = r->run.order[i], activity = r->plan->task_activity[task];
        own_side(&f, task);
        if (activity == DS_NONE) continue;
        const ds_activity *a = &r->plan->activities[activity];
        if (r->plan->members[a->first_member + a->n_members - 1] == task) meet(&f, a);
    }
    free(f.before);
    free(f.ready_ps);
    free(f.history);
}

void ds_waits_deinit(ds_waits *waits) {
    free(waits->from);
    free(waits->why);
    free(waits->last);
    *waits = (ds_waits){0};
}
