/* The critical path and the stages as text: tables for the summary, members of the JSON object. */
#include "ir/base/map.h"
#include "sim/report/internal.h"

#include <stdlib.h>

#define MAX_OPS    5
#define MAX_STAGES 16

/* ---- ops of the critical path ---- */

/* All segments of one op of the text and one kind. */
typedef struct row {
    ds_time_kind kind;
    uint32_t inst; /* of the first segment */
    int64_t n, ps;
} row;

typedef struct rows {
    row *at;
    uint32_t n;
} rows;

static int longest_first(const void *a, const void *b) {
    const row *x = a, *y = b;
    if (x->ps != y->ps) return x->ps > y->ps ? -1 : 1;
    if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
    return x->inst < y->inst ? -1 : x->inst > y->inst;
}

static uint64_t key_of(const ds_result *r, uint32_t inst, ds_time_kind kind) {
    ds_buf text = {0};
    ds_buf_put(&text, r->plan->records.at[r->plan->insts.at[inst].record]->label);
    ds_buf_putc(&text, ' ');
    ds_report__op_path(r, inst, &text);
    uint64_t key = ds_hash_mix(ds_hash_bytes(text.text, text.n), kind);
    ds_buf_deinit(&text);
    return key;
}

/* Per scope: the same for the turns of a loop. */
static uint64_t *places_of(const ds_plan *plan) {
    uint64_t *places = ds_xcalloc((size_t)plan->scopes.n + 1, sizeof *places);
    for (uint32_t i = 0; i < plan->scopes.n; i++) {
        const ds_scope *s = &plan->scopes.at[i];
        uint64_t up = s->up == DS_NONE ? 0 : places[s->up];
        places[i] = ds_hash_mix(ds_hash_mix(up, DS_KEY(s->func)), s->op ? DS_KEY(s->op) : 0);
    }
    return places;
}

static rows rows_of(const ds_result *r, const ds_critical_path *path) {
    DS_VEC(row) all = {0};
    ds_map index, known; /* by text; by what the text is made of */
    ds_map_init(&index);
    ds_map_init(&known);
    uint64_t *places = places_of(r->plan);
    for (uint32_t i = 0; i < path->n; i++) {
        const ds_segment *s = &path->at[i];
        uint32_t inst = r->plan->task_inst[s->task];
        uint64_t place = places[r->plan->insts.at[inst].scope];
        place = ds_hash_mix(ds_hash_mix(place, DS_KEY(ds_plan_task_record(r->plan, s->task)->op)),
                            s->kind);
        const uint64_t *row_of = ds_map_find(&known, place);
        uint32_t at = row_of ? (uint32_t)*row_of : all.n;
        if (!row_of) {
            uint64_t key = key_of(r, inst, s->kind), *found = ds_map_find(&index, key);
            if (found) at = (uint32_t)*found;
            if (!found) DS_HPUSH(&all, ((row){.kind = s->kind, .inst = inst}));
            ds_map_put(&index, key, at);
            ds_map_put(&known, place, at);
        }
        all.at[at].n += s->times;
        all.at[at].ps += ds_segment_ps(s);
    }
    ds_map_deinit(&index);
    ds_map_deinit(&known);
    free(places);
    if (all.n) qsort(all.at, all.n, sizeof *all.at, longest_first);
    return (rows){all.at, all.n};
}

/* ---- summary ---- */

static void put_share(const char *what, int64_t ps, const ds_result *r, ds_buf *out) {
    ds_buf_printf(out, "  %-26s%10s %9s\n", what, ds_report__ps(ps).s,
                  ds_report__percent(ds_ratio((double)ps, (double)r->run.step_ps)).s);
}

static void put_kinds(const ds_result *r, const ds_critical_path *path, ds_buf *out) {
    if (path->total_ps[DS_TIME_COMPUTE])
        put_share("compute", path->total_ps[DS_TIME_COMPUTE], r, out);
    ds_causes causes;
    ds_causes_of_path(r, path, &causes);
    for (uint32_t i = 0; i < causes.rows.n; i++) {
        const ds_cause *cause = &causes.rows.at[i];
        if (cause->kind == DS_TIME_COMPUTE) continue;
        ds_buf what = {0};
        ds_report__cause(cause->kind, cause->what, &what);
        put_share(what.text, cause->ps, r, out);
        ds_buf_deinit(&what);
    }
    ds_causes_deinit(&causes);
}

static void put_row(const ds_result *r, const row *op, ds_buf *out) {
    ds_buf_printf(out, "  %10s %9s %8lld  ", ds_report__ps(op->ps).s,
                  ds_report__percent(ds_ratio((double)op->ps, (double)r->run.step_ps)).s,
                  (long long)op->n);
    if (op->kind == DS_TIME_HOST) ds_buf_put(out, "issue up to ");
    if (op->kind == DS_TIME_IDLE) ds_buf_put(out, "idle before ");
    if (op->kind == DS_TIME_START) ds_buf_put(out, "job not started before ");
    if (op->kind == DS_TIME_OVERHEAD) ds_buf_put(out, "iteration overhead after ");
    ds_report__op_title(r, op->inst, out);
    ds_buf_putc(out, '\n');
}

void ds_report__put_critical(const ds_result *r, ds_buf *out) {
    ds_critical_path path;
    ds_critical_path_find(r, &path);
    if (path.n) {
        int64_t n = 0;
        for (uint32_t i = 0; i < path.n; i++) n += path.at[i].times;
        ds_buf_printf(out, "\nCritical path: %lld segment%s, each waited for the one before\n",
                      (long long)n, n == 1 ? "" : "s");
        put_kinds(r, &path, out);
        rows ops = rows_of(r, &path);
        for (uint32_t i = 0; i < ops.n && i < MAX_OPS; i++) put_row(r, &ops.at[i], out);
        if (ops.n > MAX_OPS) ds_buf_printf(out, "  and %u more\n", ops.n - MAX_OPS);
        free(ops.at);
    }
    ds_critical_path_deinit(&path);
}

static const char *device_of(const ds_result *r, const ds_stage *stage) {
    return ds_topo_device_path(r->plan->topo, stage->device);
}

static void put_stage(const ds_result *r, const ds_stages *stages, uint32_t i, ds_buf *out) {
    const ds_stage *s = &stages->at[i];
    double step = (double)r->run.step_ps;
    ds_buf_printf(
        out, "  %5u %8u %10s %8s %8s %8s %10s %11s %11s  %s\n", i, s->n_devices,
        ds_report__ps(s->compute_ps).s, ds_report__percent(ds_ratio((double)s->compute_ps, step)).s,
        ds_report__percent(ds_ratio((double)s->exposed_comm_ps, step)).s,
        ds_report__percent(ds_ratio((double)s->idle_ps, step)).s, ds_report__ps(s->bubble_ps).s,
        ds_report__bytes(s->peak_bytes).s, ds_report__bytes(s->sent_bytes).s, device_of(r, s));
}

void ds_report__put_stages(const ds_result *r, ds_buf *out) {
    ds_stages stages;
    ds_stages_find(r, &stages);
    if (stages.n > 1) {
        ds_buf_put(out, stages.by_class ? "\nDevice classes\n"
                                        : "\nStages, each by its busiest device\n");
        ds_buf_printf(out, "  %5s %8s %10s %8s %8s %8s %10s %11s %11s  device\n",
                      stages.by_class ? "class" : "stage", "devices", "compute", "busy", "exposed",
                      "idle", "bubble", "memory", "sends");
        for (uint32_t i = 0; i < stages.n && i < MAX_STAGES; i++) put_stage(r, &stages, i, out);
        if (stages.n > MAX_STAGES) ds_buf_printf(out, "  and %u more\n", stages.n - MAX_STAGES);
        ds_buf_printf(out, "  span bubble %s: the most of last end - first start - compute\n",
                      ds_report__ps(stages.span_bubble_ps).s);
        ds_buf_printf(out, "  makespan idle %s: the most of step - compute - exposed\n",
                      ds_report__ps(stages.makespan_idle_ps).s);
    }
    ds_stages_deinit(&stages);
}

/* ---- JSON ---- */

static void json_op(ds_json *json, const ds_result *r, uint32_t inst,
                    void (*print)(const ds_result *, uint32_t, ds_buf *)) {
    ds_buf path = {0};
    print(r, inst, &path);
    ds_json_key_string(json, "op", r->plan->records.at[r->plan->insts.at[inst].record]->label);
    ds_json_key_string(json, "path", path.text);
    ds_buf_deinit(&path);
}

static void full_path(const ds_result *r, uint32_t inst, ds_buf *out) {
    ds_plan_path(r->plan, inst, out);
}

static void json_causes(ds_json *json, const ds_result *r, const ds_critical_path *path) {
    ds_causes causes;
    ds_causes_of_path(r, path, &causes);
    ds_json_key(json, "causes");
    ds_json_begin_array(json);
    for (uint32_t i = 0; i < causes.rows.n; i++) {
        ds_json_begin_object(json);
        ds_json_key_string(json, "kind", ds_time_kind_name(causes.rows.at[i].kind));
        ds_json_key_string(json, "what", causes.rows.at[i].what);
        ds_json_key_int(json, "total_ps", causes.rows.at[i].ps);
        ds_json_end_object(json);
    }
    ds_json_end_array(json);
    ds_causes_deinit(&causes);
}

static void json_ops(ds_json *json, const ds_result *r, const ds_critical_path *path) {
    rows ops = rows_of(r, path);
    ds_json_key(json, "ops");
    ds_json_begin_array(json);
    for (uint32_t i = 0; i < ops.n; i++) {
        ds_json_begin_object(json);
        ds_json_key_string(json, "kind", ds_time_kind_name(ops.at[i].kind));
        json_op(json, r, ops.at[i].inst, ds_report__op_path);
        ds_json_key_int(json, "count", ops.at[i].n);
        ds_json_key_int(json, "total_ps", ops.at[i].ps);
        ds_json_end_object(json);
    }
    ds_json_end_array(json);
    free(ops.at);
}

static void json_segment(ds_json *json, const ds_result *r, const ds_segment *s) {
    ds_buf_putc(json->out, '\n');
    ds_json_begin_object(json);
    ds_json_key_int(json, "start_ps", s->start_ps);
    ds_json_key_int(json, "end_ps", s->end_ps);
    if (s->times > 1) ds_json_key_int(json, "times", s->times);
    ds_json_key_string(json, "kind", ds_time_kind_name(s->kind));
    if (s->kind == DS_TIME_COMM) {
        ds_buf over = {0};
        ds_report__over(r->plan, s->task, &over);
        ds_json_key_string(json, "over", over.text);
        ds_buf_deinit(&over);
    }
    json_op(json, r, r->plan->task_inst[s->task], full_path);
    ds_json_key_string(json, "device", ds_report__device(r->plan, r->plan->task_class[s->task]));
    ds_json_key_string(json, "waited_for", ds_wait_name(s->waited_for));
    ds_json_end_object(json);
}

static void json_segments(ds_json *json, const ds_result *r, const ds_critical_path *path) {
    uint32_t indent = json->indent;
    ds_json_key(json, "segments");
    ds_json_begin_array(json);
    json->indent = 0; /* a line a segment: there may be many */
    for (uint32_t i = 0; i < path->n; i++) json_segment(json, r, &path->at[i]);
    json->indent = indent;
    ds_json_end_array(json);
}

void ds_report__json_critical(const ds_result *r, bool segments, ds_json *json) {
    ds_critical_path path;
    ds_critical_path_find(r, &path);
    ds_json_key(json, "critical_path");
    ds_json_begin_object(json);
    ds_json_key_int(json, "compute_ps", path.total_ps[DS_TIME_COMPUTE]);
    ds_json_key_int(json, "communication_ps", path.total_ps[DS_TIME_COMM]);
    ds_json_key_int(json, "host_ps", path.total_ps[DS_TIME_HOST]);
    ds_json_key_int(json, "idle_ps", path.total_ps[DS_TIME_IDLE]);
    if (r->n_jobs) ds_json_key_int(json, "start_ps", path.total_ps[DS_TIME_START]);
    if (r->plan->overhead_ps) ds_json_key_int(json, "overhead_ps", path.total_ps[DS_TIME_OVERHEAD]);
    json_causes(json, r, &path);
    json_ops(json, r, &path);
    if (segments) json_segments(json, r, &path);
    ds_json_end_object(json);
    ds_critical_path_deinit(&path);
}

void ds_report__json_stages(const ds_result *r, ds_json *json) {
    ds_stages stages;
    ds_stages_find(r, &stages);
    ds_json_key_int(json, "span_bubble_ps", stages.span_bubble_ps);
    ds_json_key_int(json, "makespan_idle_ps", stages.makespan_idle_ps);
    ds_json_key_string(json, "stages_by", stages.by_class ? "class" : "pp");
    ds_json_key(json, "per_stage");
    ds_json_begin_array(json);
    for (uint32_t i = 0; i < stages.n; i++) {
        const ds_stage *s = &stages.at[i];
        ds_json_begin_object(json);
        ds_json_key_int(json, "stage", i);
        ds_json_key_int(json, "n_devices", s->n_devices);
        ds_json_key_string(json, "device", device_of(r, s));
        ds_json_key_int(json, "compute_ps", s->compute_ps);
        ds_json_key_int(json, "exposed_comm_ps", s->exposed_comm_ps);
        ds_json_key_int(json, "idle_ps", s->idle_ps);
        ds_json_key_int(json, "first_start_ps", s->first_ps);
        ds_json_key_int(json, "last_end_ps", s->last_ps);
        ds_json_key_int(json, "span_bubble_ps", s->bubble_ps);
        ds_json_key_int(json, "peak_memory_bytes", s->peak_bytes);
        ds_json_key_bytes(json, "sent_bytes", s->sent_bytes);
        ds_json_key_bytes(json, "sent_gradient_bytes", s->sent_grad_bytes);
        ds_json_key_bytes(json, "sent_most_bytes", s->sent_most_bytes);
        ds_json_end_object(json);
    }
    ds_json_end_array(json);
    ds_stages_deinit(&stages);
}
