/* Time by cause, of a device and of the critical path.
 *
 * A device's timeline is cut into pieces: compute first (where tasks of several compute streams
 * overlap, a piece belongs to the task that started first), then transfers, then gaps. */
#include "sim/report/internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- rows ---- */

static int largest_first(const void *a, const void *b) {
    const ds_cause *x = a, *y = b;
    if (x->ps != y->ps) return x->ps > y->ps ? -1 : 1;
    if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
    return strcmp(x->what, y->what);
}

void ds_report__over(const ds_plan *plan, uint32_t task, ds_buf *out) {
    const ds_op *op = ds_plan_task_record(plan, task)->op;
    for (uint32_t i = 0; i < op->n_over; i++) ds_buf_printf(out, "%s%s", i ? "," : "", op->over[i]);
    if (op->n_over) return;
    bool pair = op->code == DS_OP_SEND || op->code == DS_OP_RECV;
    ds_buf_put(out, pair ? "send" : ds_op_name(op->code));
}

void ds_report__cause(ds_time_kind kind, const char *what, ds_buf *out) {
    ds_buf_put(out, kind == DS_TIME_HOST       ? "host issue"
                    : kind == DS_TIME_START    ? "job not started"
                    : kind == DS_TIME_OVERHEAD ? "iteration overhead"
                                               : ds_time_kind_name(kind));
    if (*what) ds_buf_printf(out, " (%s)", what);
}

/* The name of the task's cause within its kind; "" for host issue and idleness. */
static const char *what_of(ds_causes *causes, const ds_plan *plan, ds_time_kind kind,
                           uint32_t task) {
    if (kind == DS_TIME_COMPUTE) {
        const ds_record *record = ds_plan_task_record(plan, task);
        const ds_op_desc *desc = ds_op_desc_of(record->op->code);
        return ds_intern(&causes->names, desc ? desc->family : record->label);
    }
    if (kind != DS_TIME_COMM) return "";
    ds_buf over = {0};
    ds_report__over(plan, task, &over);
    const char *what = ds_intern(&causes->names, over.text);
    ds_buf_deinit(&over);
    return what;
}

static void add(ds_causes *causes, const ds_plan *plan, ds_time_kind kind, uint32_t task,
                int64_t ps) {
    if (ps == 0) return;
    const char *what = what_of(causes, plan, kind, task);
    uint32_t i = 0;
    while (i < causes->rows.n &&
           (causes->rows.at[i].kind != kind || strcmp(causes->rows.at[i].what, what) != 0))
        i++;
    if (i == causes->rows.n) DS_HPUSH(&causes->rows, ((ds_cause){kind, what, 0}));
    causes->rows.at[i].ps += ps;
}

static void begin(ds_causes *causes) {
    *causes = (ds_causes){0};
    ds_strtab_init(&causes->names);
}

static void sort(ds_causes *causes) {
    if (causes->rows.n)
        qsort(causes->rows.at, causes->rows.n, sizeof *causes->rows.at, largest_first);
}

void ds_causes_deinit(ds_causes *causes) {
    free(causes->rows.at);
    ds_strtab_deinit(&causes->names);
    *causes = (ds_causes){0};
}

/* ---- one device ---- */

/* Part of a task that no earlier started task of its kind covers. */
typedef struct piece {
    int64_t start, end;
    uint32_t task;
} piece;

typedef DS_VEC(piece) pieces;

static int by_start(const void *a, const void *b) {
    const piece *x = a, *y = b;
    if (x->start != y->start) return x->start < y->start ? -1 : 1;
    return x->task < y->task ? -1 : x->task > y->task;
}

/* The class's compute, or its transfers, as pieces that do not overlap, in order of time. */
static pieces pieces_of(const ds_result *r, uint32_t cls, bool transfers) {
    const ds_plan *plan = r->plan;
    pieces all = {0};
    for (uint32_t t = 0; t < plan->n_tasks; t++) {
        if (plan->task_class[t] != cls || (plan->task_activity[t] != DS_NONE) != transfers)
            continue;
        if (r->run.start_ps[t] < r->run.end_ps[t])
            DS_HPUSH(&all, ((piece){r->run.start_ps[t], r->run.end_ps[t], t}));
    }
    if (all.n) qsort(all.at, all.n, sizeof *all.at, by_start);
    uint32_t n = 0;
    int64_t covered = 0;
    for (uint32_t i = 0; i < all.n; i++) {
        piece p = all.at[i];
        if (p.start < covered) p.start = covered;
        if (p.end <= p.start) continue;
        covered = p.end;
        all.at[n++] = p;
    }
    all.n = n;
    return all;
}

/* Did the task, which ends a gap, wait for its own host alone? Looks through tasks of no length
 * that the task waited for. */
static bool waits_for_host(const ds_result *r, const ds_waits *waits, uint32_t task) {
    int64_t start = r->run.start_ps[task];
    uint32_t from = waits->from[task];
    while (waits->last[task] == task && from != DS_NONE && r->run.start_ps[from] == start) {
        task = from;
        from = waits->from[task];
    }
    return waits->last[task] == task && waits->why[task] == DS_WAIT_HOST;
}

typedef struct timeline {
    const ds_result *result;
    ds_waits waits;
    pieces transfers;
    uint32_t next; /* the first transfer that has not ended */
    ds_causes *out;
} timeline;

/* No task runs from `start` to `end`, when `task` starts (DS_NONE: the step ends). */
static void gap(timeline *t, int64_t start, int64_t end, uint32_t task) {
    if (start == end) return;
    bool host = task != DS_NONE && waits_for_host(t->result, &t->waits, task);
    int64_t begin = host ? ds_report__begin_ps(t->result, task) : start;
    begin = begin < start ? start : begin > end ? end : begin;
    add(t->out, t->result->plan, DS_TIME_START, task, begin - start);
    add(t->out, t->result->plan, host ? DS_TIME_HOST : DS_TIME_IDLE, task, end - begin);
}

/* No task computes from `start` to `end`, when `task` starts to compute. */
static void no_compute(timeline *t, int64_t start, int64_t end, uint32_t task) {
    for (; t->next < t->transfers.n && start < end; t->next++) {
        piece p = t->transfers.at[t->next];
        if (p.end <= start) continue;
        if (p.start >= end) break;
        if (p.start > start) {
            gap(t, start, p.start, p.task);
            start = p.start;
        }
        int64_t until = p.end < end ? p.end : end;
        add(t->out, t->result->plan, DS_TIME_COMM, p.task, until - start);
        start = until;
        if (p.end > end) break;
    }
    gap(t, start, end, task);
}

void ds_causes_of_class(const ds_result *r, uint32_t cls, ds_causes *out) {
    begin(out);
    timeline t = {.result = r, .out = out, .transfers = pieces_of(r, cls, true)};
    ds_waits_find(r, &t.waits);
    pieces compute = pieces_of(r, cls, false);
    int64_t now = 0;
    for (uint32_t i = 0; i < compute.n; i++) {
        piece p = compute.at[i];
        no_compute(&t, now, p.start, p.task);
        add(out, r->plan, DS_TIME_COMPUTE, p.task, p.end - p.start);
        now = p.end;
    }
    no_compute(&t, now, r->run.step_ps - r->plan->overhead_ps, DS_NONE);
    add(out, r->plan, DS_TIME_OVERHEAD, DS_NONE, r->plan->overhead_ps);
    free(compute.at);
    free(t.transfers.at);
    ds_waits_deinit(&t.waits);
    sort(out);
}

/* ---- the critical path ---- */

void ds_causes_of_path(const ds_result *r, const ds_critical_path *path, ds_causes *out) {
    begin(out);
    for (uint32_t i = 0; i < path->n; i++)
        add(out, r->plan, path->at[i].kind, path->at[i].task, ds_segment_ps(&path->at[i]));
    sort(out);
}
