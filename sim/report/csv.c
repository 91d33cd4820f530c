/* One row per task, in the order of the plan (issue order): for spreadsheets and scripts. */
#include "ir/base/csv.h"

#include "sim/report/internal.h"

#include <stdio.h>

enum {
    DEVICE,
    N_DEVICES,
    STREAM,
    OP,
    PATH,
    START,
    END,
    FLOP,
    BYTES_READ,
    BYTES_WRITTEN,
    COMM_BYTES,
    ALGORITHM,
    ORIGIN,
    N_CELLS
};

typedef struct row {
    const char *cells[N_CELLS];
    char numbers[N_CELLS][24];
} row;

static void set(row *w, int cell, int64_t value) {
    snprintf(w->numbers[cell], sizeof w->numbers[cell], "%lld", (long long)value);
    w->cells[cell] = w->numbers[cell];
}

static void fill(row *w, const ds_result *r, uint32_t task, const char *stream, const char *path) {
    const ds_plan *plan = r->plan;
    const ds_group *group = ds_report__group(plan, task);
    uint32_t cls = plan->task_class[task];
    w->cells[DEVICE] = ds_report__device(plan, cls);
    set(w, N_DEVICES, plan->classes[cls].n_devices);
    w->cells[STREAM] = stream;
    w->cells[OP] = ds_plan_task_record(plan, task)->label;
    w->cells[PATH] = path;
    set(w, START, r->run.start_ps[task]);
    set(w, END, r->run.end_ps[task]);
    w->cells[ALGORITHM] = ds_report__algorithm(group);
    if (group) {
        w->cells[FLOP] = w->cells[BYTES_READ] = w->cells[BYTES_WRITTEN] = "0";
        set(w, COMM_BYTES, group->bytes);
        w->cells[ORIGIN] = "";
        return;
    }
    const ds_variant *v = ds_plan_task_variant(plan, task);
    set(w, FLOP, v->work.flop);
    set(w, BYTES_READ, v->work.bytes_read);
    set(w, BYTES_WRITTEN, v->work.bytes_written);
    w->cells[COMM_BYTES] = "0";
    w->cells[ORIGIN] = ds_cost_origin_name(v->cost.origin);
}

void ds_report_csv(const ds_result *r, ds_buf *out) {
    static const char *const head[N_CELLS] = {
        "device", "n_devices",  "stream",        "op",         "path",      "start_ps", "end_ps",
        "flop",   "bytes_read", "bytes_written", "comm_bytes", "algorithm", "origin"};
    const ds_plan *plan = r->plan;
    char **streams = ds_report__stream_names(plan);
    ds_buf path = {0};
    uint32_t last = DS_NONE; /* tasks of one instance follow each other and share its path */
    ds_csv_put_row(out, head, N_CELLS);
    for (uint32_t t = 0; t < plan->n_tasks; t++) {
        if (plan->task_inst[t] != last) {
            last = plan->task_inst[t];
            path.n = 0;
            ds_plan_path(plan, last, &path);
        }
        row w;
        fill(&w, r, t, streams[plan->task_stream[t]], path.text);
        ds_csv_put_row(out, w.cells, N_CELLS);
    }
    ds_buf_deinit(&path);
    ds_report__free_names(streams, plan->n_streams);
}
