/* The work of a pipeline's chunks, from a simulated step.
 *
 * Every task in the call of an item (items.c) counts for that item: compute in full, transfers as
 * far as no compute of the device hides the transfer. An item's time has two parts: work in loops,
 * which grows with the turns of the chunk, and work beside loops. The busiest device of a stage
 * represents the stage. Tasks outside all items, except sends, are the stage's end. */
#include "sim/run/balance_internal.h"
#include "sim/run/stages.h"

#include <stdlib.h>
#include <string.h>

typedef struct span {
    int64_t start, end;
    uint32_t cls, task;
    bool transfer;
} span;

typedef struct meter {
    const ds_result *result;
    uint32_t *item_of;  /* [scopes]: the item around the scope; DS_NONE: no item */
    bool *in_loop;      /* [scopes]: in a loop; for scopes of an item, in a loop of the item */
    uint32_t *stage_of; /* [classes]: the stage that the class represents; DS_NONE: no stage */
    ds_cut_times *out;
} meter;

/* ---- items ---- */

static uint32_t number_of(const ds_schedule_index *schedule, const ds_item_call *call) {
    const char *kinds = "FBWR", *kind = strchr(kinds, call->kind);
    if (call->chunk < 0 || call->chunk >= schedule->n_chunks) return DS_NONE;
    if (call->microbatch < 0 || call->microbatch >= schedule->n_microbatches) return DS_NONE;
    size_t at = (size_t)call->microbatch * schedule->n_chunks + (size_t)call->chunk;
    uint32_t number = schedule->item[kind - kinds][at];
    return number == DS_NO_ITEM ? DS_NONE : number;
}

/* One pass is enough: an outer scope comes before its inner scopes. */
static void find_items(meter *m) {
    const ds_plan *plan = m->result->plan;
    for (uint32_t s = 0; s < plan->scopes.n; s++) {
        const ds_scope *scope = &plan->scopes.at[s];
        bool top = scope->up == DS_NONE;
        ds_item_call call;
        m->item_of[s] = top ? DS_NONE : m->item_of[scope->up];
        m->in_loop[s] =
            (!top && m->in_loop[scope->up]) || (scope->op && scope->op->code == DS_OP_FOR);
        if (m->item_of[s] != DS_NONE || !ds_item_call_of(m->result, s, &call)) continue;
        m->item_of[s] = number_of(m->out->schedule, &call);
        m->in_loop[s] = false;
    }
}

static bool is_send(const ds_plan *plan, uint32_t task) {
    const ds_record *record = ds_plan_task_record(plan, task);
    return record->op && record->op->code == DS_OP_SEND;
}

static void count(meter *m, uint32_t task, int64_t ps) {
    const ds_plan *plan = m->result->plan;
    uint32_t scope = plan->insts.at[plan->task_inst[task]].scope, item = m->item_of[scope];
    if (item == DS_NONE && is_send(plan, task)) return;
    ds_cut_time *time =
        item != DS_NONE ? &m->out->items[item] : &m->out->ends[m->stage_of[plan->task_class[task]]];
    if (m->in_loop[scope])
        time->inside_ps += ps;
    else
        time->beside_ps += ps;
}

/* ---- busy time ---- */

static int by_start(const void *a, const void *b) {
    const span *x = a, *y = b;
    if (x->cls != y->cls) return x->cls < y->cls ? -1 : 1;
    if (x->transfer != y->transfer) return x->transfer ? 1 : -1;
    if (x->start != y->start) return x->start < y->start ? -1 : 1;
    return x->task < y->task ? -1 : x->task > y->task;
}

/* Leaves of each span the part that no earlier span covers. Spans are in order of start. */
static void clip(span *spans, size_t n) {
    int64_t covered = 0;
    for (size_t i = 0; i < n; i++) {
        if (spans[i].start < covered) spans[i].start = covered;
        if (spans[i].end < spans[i].start) spans[i].end = spans[i].start;
        covered = spans[i].end;
    }
}

/* Counts the compute of one device, and the parts of its transfers that no compute hides. */
static void count_class(meter *m, span *compute, size_t n_compute, span *transfers, size_t n) {
    clip(compute, n_compute);
    clip(transfers, n);
    for (size_t i = 0; i < n_compute; i++)
        count(m, compute[i].task, compute[i].end - compute[i].start);
    for (size_t i = 0, k = 0; i < n; i++) {
        int64_t ps = transfers[i].end - transfers[i].start;
        while (k < n_compute && compute[k].end <= transfers[i].start) k++;
        for (size_t j = k; j < n_compute && compute[j].start < transfers[i].end; j++) {
            int64_t lo = compute[j].start, hi = compute[j].end;
            if (lo < transfers[i].start) lo = transfers[i].start;
            if (hi > transfers[i].end) hi = transfers[i].end;
            if (hi > lo) ps -= hi - lo;
        }
        count(m, transfers[i].task, ps);
    }
}

static void count_spans(meter *m, span *spans, size_t n) {
    if (n) qsort(spans, n, sizeof *spans, by_start);
    for (size_t from = 0, middle, to; from < n; from = to) {
        for (middle = from; middle < n && spans[middle].cls == spans[from].cls; middle++)
            if (spans[middle].transfer) break;
        for (to = middle; to < n && spans[to].cls == spans[from].cls;) to++;
        count_class(m, spans + from, middle - from, spans + middle, to - middle);
    }
}

static int by_size(const void *a, const void *b) {
    const int64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* The median time of a send: most sends carry activations or their gradients, few tied weights. */
static int64_t middle_send(const ds_result *r, const span *spans, size_t n) {
    int64_t *sends = ds_xmalloc((n + 1) * sizeof *sends), middle;
    size_t n_sends = 0;
    for (size_t i = 0; i < n; i++) {
        if (is_send(r->plan, spans[i].task)) sends[n_sends++] = spans[i].end - spans[i].start;
    }
    if (n_sends) qsort(sends, n_sends, sizeof *sends, by_size);
    middle = n_sends ? sends[n_sends / 2] : 0;
    free(sends);
    return middle;
}

static void count_stages(meter *m) {
    const ds_result *r = m->result;
    const ds_plan *plan = r->plan;
    ds_stages stages;
    ds_stages_find(r, &stages);
    memset(m->stage_of, 0xff, plan->n_classes * sizeof *m->stage_of); /* DS_NONE */
    for (uint32_t s = 0; s < stages.n && s < m->out->schedule->n_ranks; s++)
        m->stage_of[plan->class_of[stages.at[s].device]] = s;
    span *spans = ds_xmalloc(((size_t)plan->n_tasks + 1) * sizeof *spans);
    size_t n = 0;
    for (uint32_t t = 0; t < plan->n_tasks; t++) {
        span one = {.start = r->run.start_ps[t],
                    .end = r->run.end_ps[t],
                    .cls = plan->task_class[t],
                    .task = t,
                    .transfer = plan->task_activity[t] != DS_NONE};
        if (m->stage_of[one.cls] != DS_NONE) spans[n++] = one;
    }
    m->out->send_ps = middle_send(r, spans, n);
    count_spans(m, spans, n);
    free(spans);
    ds_stages_deinit(&stages);
}

void ds_cut__measure(const ds_result *r, ds_arena *arena, ds_cut_times *out) {
    const ds_schedule_index *schedule = &r->step->schedule;
    meter m = {.result = r, .out = out};
    *out = (ds_cut_times){.schedule = schedule, .cut = &r->step->cut};
    out->items = DS_NEW_N(arena, ds_cut_time, schedule->n_items);
    out->ends = DS_NEW_N(arena, ds_cut_time, schedule->n_ranks);
    m.item_of = ds_xmalloc(((size_t)r->plan->scopes.n + 1) * sizeof *m.item_of);
    m.in_loop = ds_xcalloc((size_t)r->plan->scopes.n + 1, sizeof *m.in_loop);
    m.stage_of = ds_xmalloc(((size_t)r->plan->n_classes + 1) * sizeof *m.stage_of);
    find_items(&m);
    count_stages(&m);
    free(m.stage_of);
    free(m.in_loop);
    free(m.item_of);
}

void ds_cut__loads(const ds_cut_times *times, int64_t *out) {
    const ds_schedule_index *schedule = times->schedule;
    for (uint32_t s = 0; s < schedule->n_ranks; s++) {
        out[s] = 0;
        for (uint32_t i = schedule->first[s]; i < schedule->first[s + 1]; i++)
            out[s] += times->items[i].inside_ps + times->items[i].beside_ps;
    }
}
