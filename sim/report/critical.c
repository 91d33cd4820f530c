/* The critical path: from the end of the step backwards through the wait of each task. */
#include "sim/report/analysis.h"

#include <stdlib.h>

const char *ds_time_kind_name(ds_time_kind kind) {
    static const char *const names[] = {"compute", "communication", "host",
                                        "idle",    "start",         "overhead"};
    return kind < DS_TIME_KIND_COUNT ? names[kind] : "?";
}

int64_t ds_report__begin_ps(const ds_result *r, uint32_t task) {
    const ds_plan *plan = r->plan;
    return plan->n_jobs ? plan->jobs[ds_plan_job_of(plan, plan->task_inst[task])].start_ps : 0;
}

typedef struct walk {
    ds_critical_path *path;
    DS_VEC(ds_segment) segments; /* latest first */
} walk;

static void add(walk *w, const ds_result *r, ds_segment s) {
    if (s.start_ps == s.end_ps) return;
    if (!s.times) s.times = ds_plan_times(r->plan, r->plan->task_inst[s.task]);
    DS_HPUSH(&w->segments, s);
}

/* The path ends in a repeat, where the host holds the task back: it is that of the repeat's last turn,
 * which is so many picoseconds later. */
static int64_t take_last_turn(walk *w, const ds_result *r, uint32_t task) {
    const ds_plan *plan = r->plan;
    int64_t later_ps = 0;
    uint32_t i = plan->repeat_of ? plan->repeat_of[plan->task_inst[task]] : DS_NONE;
    for (; i != DS_NONE; i = plan->repeats.at[i].up) {
        const ds_repeat *repeat = &plan->repeats.at[i];
        later_ps += (repeat->times - 1) * r->run.turn_ps[i];
        for (uint32_t k = w->segments.n; k-- > 0;) {
            uint32_t inst = plan->task_inst[w->segments.at[k].task];
            if (inst < repeat->first || inst >= repeat->end) break;
            w->segments.at[k].times /= repeat->times;
        }
    }
    return later_ps;
}

/* The last task of the critical device that ends with the run. */
static uint32_t last_task(const ds_result *r) {
    int64_t end_ps = r->run.step_ps - r->plan->overhead_ps;
    for (uint32_t t = r->plan->n_tasks; t-- > 0;)
        if (r->plan->task_class[t] == r->critical && r->run.end_ps[t] == end_ps) return t;
    return DS_NONE;
}

/* Adds, backwards, the task, the time between its readiness and its start, and the host's issuing.
 * Returns the task whose end made the task ready. */
static uint32_t step_back(walk *w, const ds_result *r, const ds_waits *waits, uint32_t task) {
    uint32_t last = waits->last[task], from = waits->from[last];
    bool host = waits->why[last] == DS_WAIT_HOST;
    int64_t start = r->run.start_ps[task];
    int64_t before = from == DS_NONE ? 0 : ds_run_end_ps(&r->run, r->plan, from, last);
    int64_t ready = host ? ds_run_issue_ps(&r->run, r->plan, last) : before;
    ds_wait why = last == task ? (ds_wait)waits->why[task] : DS_WAIT_RENDEZVOUS;
    bool compute = r->plan->task_activity[task] == DS_NONE;
    add(w, r,
        (ds_segment){start, r->run.end_ps[task], 0, compute ? DS_TIME_COMPUTE : DS_TIME_COMM, why,
                     task});
    add(w, r, (ds_segment){ready, start, 0, DS_TIME_IDLE, DS_WAIT_NOTHING, task});
    int64_t begin = from == DS_NONE ? ds_report__begin_ps(r, last) : before;
    if (host && from == DS_NONE) ready += take_last_turn(w, r, last);
    if (host) add(w, r, (ds_segment){begin, ready, 1, DS_TIME_HOST, DS_WAIT_NOTHING, last});
    if (host && from == DS_NONE)
        add(w, r, (ds_segment){0, begin, 1, DS_TIME_START, DS_WAIT_NOTHING, last});
    return from;
}

void ds_critical_path_find(const ds_result *r, ds_critical_path *out) {
    *out = (ds_critical_path){0};
    walk w = {.path = out};
    ds_waits waits;
    ds_waits_find(r, &waits);
    uint32_t last = last_task(r);
    if (last != DS_NONE)
        add(&w, r,
            (ds_segment){r->run.end_ps[last], r->run.step_ps, 1, DS_TIME_OVERHEAD, DS_WAIT_NOTHING,
                         last});
    for (uint32_t task = last; task != DS_NONE;) task = step_back(&w, r, &waits, task);
    ds_waits_deinit(&waits);
    out->at = w.segments.at;
    out->n = w.segments.n;
    for (uint32_t i = 0; i < out->n; i++)
        out->total_ps[out->at[i].kind] += ds_segment_ps(&out->at[i]);
    for (uint32_t i = 0, k = out->n; i + 1 < k; i++) { /* into order of time */
        ds_segment swap = out->at[i];
        out->at[i] = out->at[--k];
        out->at[k] = swap;
    }
}

void ds_critical_path_deinit(ds_critical_path *path) {
    free(path->at);
    *path = (ds_critical_path){0};
}
