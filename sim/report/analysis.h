/* Analyses of a finished run: the waits of its tasks, its critical path, its time by cause, and the
 * differences of two runs. All are exact: parts add up to the step, in picoseconds. */
#ifndef DS_REPORT_ANALYSIS_H
#define DS_REPORT_ANALYSIS_H

#include "sim/report/report.h"
#include "sim/run/stages.h"

/* The use of an interval of time. */
typedef enum ds_time_kind {
    DS_TIME_COMPUTE,
    DS_TIME_COMM,     /* a started transfer */
    DS_TIME_HOST,     /* the host has not issued the task yet */
    DS_TIME_IDLE,     /* nothing: waiting for others */
    DS_TIME_START,    /* the task's job has not started yet */
    DS_TIME_OVERHEAD, /* after the last task: the iteration's fixed cost */
    DS_TIME_KIND_COUNT
} ds_time_kind;
/* "compute", "communication", "host", "idle", "start", "overhead". */
const char *ds_time_kind_name(ds_time_kind kind);

/* ---- waits of tasks ---- */

/* The wait of a task: the last of all things that the task needed. */
#define DS_WAIT_MAP(X)                                                                             \
    X(NOTHING, "nothing")           /* the task could have started at 0 */                         \
    X(DATA, "data")                 /* the task that makes one of its operands */                  \
    X(STREAM, "stream")             /* the task before on its compute stream */                    \
    X(COMMUNICATOR, "communicator") /* the transfer before on its communication stream */          \
    X(HOST, "host")                 /* the host's issuing */                                       \
    X(RENDEZVOUS, "rendezvous")     /* another member of its meeting */
typedef enum ds_wait {
#define DS_X(name, text) DS_WAIT_##name,
    DS_WAIT_MAP(DS_X)
#undef DS_X
        DS_WAIT_COUNT
} ds_wait;
const char *ds_wait_name(ds_wait wait);

/* Of things that came at the same time, operands count before the stream, the stream before the
 * host, a task's own side before the other members of its meeting. */
typedef struct ds_waits {
    uint32_t *from; /* per task: the task whose end made its own side ready; DS_NONE: issue, or 0 */
    uint8_t *why;   /* per task: ds_wait of its own side, so never RENDEZVOUS */
    uint32_t *last; /* per task: the member of its meeting that was ready last; often itself */
} ds_waits;

/* O(tasks + dependences). The same for folded and unfolded runs: of several other members that came
 * last together the choice depends on their histories alone, not on their numbers. */
void ds_waits_find(const ds_result *result, ds_waits *out);
void ds_waits_deinit(ds_waits *waits);

/* ---- the critical path ---- */

typedef struct ds_segment {
    int64_t start_ps, end_ps; /* start < end */
    int64_t times;            /* 1; in a repeat of the plan as often as that runs, one by one */
    ds_time_kind kind;
    ds_wait waited_for; /* why `task` did not start earlier; else NOTHING */
    uint32_t task;      /* that ran; HOST, START: that was issued; IDLE: that had not started;
                         * OVERHEAD: that ended last */
} ds_segment;

/* From the end of the step backwards through what each task really waited for. The segments are in
 * order of time and, each as often as it says, cover [0, step) without gap or overlap, so the totals
 * add up to the step. IDLE
 * would be time in which a task had all that it needed and still did not start. */
typedef struct ds_critical_path {
    ds_segment *at;
    uint32_t n;
    int64_t total_ps[DS_TIME_KIND_COUNT];
} ds_critical_path;

static inline int64_t ds_segment_ps(const ds_segment *s) {
    return s->times * (s->end_ps - s->start_ps);
}
/* The path ends in the last task of the critical device. O(tasks + dependences). */
void ds_critical_path_find(const ds_result *result, ds_critical_path *out);
void ds_critical_path_deinit(ds_critical_path *path);

/* Shares of the critical path, by parts whose predictions err unlike (sim/cost/cost.h). STEP is 1, and
 * LENT all operations. HOST is the time until the last task is issued, since a host that is nearly late
 * may be late in truth. EXPERTS are exchanges between experts, which are no communication here, and
 * experts' operations, which count as operations, too. O(segments + tasks). */
void ds_step_shares(const ds_result *result, const ds_critical_path *path,
                    double share[DS_PART_COUNT]);

/* ---- where time goes, by cause ---- */

/* Time by cause: compute by the op table's family ("linear", "attention", …), communication by mesh
 * axes ("dp", "dp,tp"; "send" between two devices; else the op's mnemonic), host issue, idleness
 * and the wait for a job's start ("" all). */
typedef struct ds_cause {
    ds_time_kind kind;
    const char *what;
    int64_t ps;
} ds_cause;

typedef struct ds_causes {
    DS_VEC(ds_cause) rows; /* distinct, ps > 0, longest first */
    ds_strtab names;
} ds_causes;

/* The time of one class: at each instant its compute (of several streams the task that started
 * first), else the transfer that started first, else idle or, where the next task waits for its own
 * host alone, host issue. The rows add up to the step; compute and communication to the account's
 * compute_ps and exposed_comm_ps. O(tasks log tasks). */
void ds_causes_of_class(const ds_result *result, uint32_t cls, ds_causes *out);
/* The time of the critical path. */
void ds_causes_of_path(const ds_result *result, const ds_critical_path *path, ds_causes *out);
void ds_causes_deinit(ds_causes *causes);

/* ---- two runs ---- */

/* One line of a difference: the cost in A and in B. */
typedef struct ds_difference {
    ds_time_kind kind; /* of time */
    const char *what;  /* of time: ds_cause.what; of memory: the category */
    int64_t a, b;      /* ps or bytes */
} ds_difference;

/* A knob of the scenario or a param that differs between A and B; NULL: no such entry. */
typedef struct ds_knob_difference {
    const char *name, *a, *b;
} ds_knob_difference;

typedef struct ds_comparison {
    const ds_result *a, *b;
    /* Of the critical device's time: Σ (b − a) is the difference of the steps. */
    DS_VEC(ds_difference) time;
    /* Of the fullest device's peak, by category: Σ (b − a) is the difference of the peaks. */
    DS_VEC(ds_difference) memory;
    DS_VEC(ds_knob_difference) knobs;
    ds_strtab names;
} ds_comparison;

/* Rows that are 0 in both are left out; the others come by the size of their difference, largest
 * first. Both results must outlive the comparison. O(tasks log tasks). */
void ds_compare(const ds_result *a, const ds_result *b, ds_comparison *out);
void ds_comparison_deinit(ds_comparison *comparison);

/* As tables for a terminal, and as one JSON object (sim/report/JSON.md). */
void ds_report_comparison(const ds_comparison *comparison, ds_buf *out);
void ds_report_comparison_json(const ds_comparison *comparison, ds_buf *out);

/* ---- changes of the machine ---- */

/* A step time, and what was changed since the rung before (the first: nothing). Differences of
 * neighbours add up to the difference of the ends. */
typedef struct ds_rung {
    const char *change;
    int64_t step_ps;
} ds_rung;

/* `without`: terms were left out one after the other; else statements of other machines were added
 * (ir/strategy/what_if.h). n >= 1. */
void ds_report_ladder(const ds_rung *rungs, uint32_t n, bool without, ds_buf *out);
void ds_report_ladder_json(const ds_rung *rungs, uint32_t n, bool without, ds_buf *out);

/* The change of the step with 1 % more of a resource. */
typedef struct ds_sensitivity {
    const char *resource; /* "compute", "link gpu--nvswitch" */
    int64_t run_ps;       /* by simulation */
    int64_t path_ps; /* by the critical path: the changes of the segments of the unchanged run */
    enum {
        DS_PATH_SAME, /* both runs have one critical path, which decides alone: path_ps is run_ps */
        DS_PATH_SHARED, /* one path, but other transfers load links of its transfers, or slow its
                           compute: path_ps does not see by how much more or less */
        DS_PATH_OTHER   /* the changed run has another path */
    } path;
} ds_sensitivity;

/* Both runs with all tasks (repeat_turns 0). O(tasks + dependences). */
ds_sensitivity ds_sensitivity_of(const ds_result *base, const ds_result *changed,
                                 const char *resource);
/* A line a resource; n rows of a step of step_ps. */
void ds_report_sensitivity(const ds_sensitivity *rows, uint32_t n, int64_t step_ps, ds_buf *out);
void ds_report_sensitivity_json(const ds_sensitivity *rows, uint32_t n, int64_t step_ps,
                                ds_buf *out);

/* ---- several runs ---- */

/* n runs side by side, a column a run under its name: the critical device's time by cause, whose
 * column adds up to the step, and the fullest device's peak by category, whose column adds up to the
 * peak. As a table, and as one JSON object (sim/report/JSON.md). O(n tasks log tasks). */
void ds_report_columns(const ds_result *const *results, const char *const *names, uint32_t n,
                       ds_buf *out);
void ds_report_columns_json(const ds_result *const *results, const char *const *names, uint32_t n,
                            ds_buf *out);

#endif
