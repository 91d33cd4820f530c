/* Shared by the reports: texts of numbers, names of streams, sums over ops. */
#include "ir/base/map.h"
#include "ir/base/units.h"
#include "sim/coll/coll.h"
#include "sim/report/internal.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbers ---- */

static ds_text take(ds_buf *buf) {
    ds_text text;
    snprintf(text.s, sizeof text.s, "%s", buf->text);
    ds_buf_deinit(buf);
    return text;
}

ds_text ds_report__ps(int64_t ps) {
    ds_buf buf = {0};
    ds_print_ps(ps, &buf);
    return take(&buf);
}

ds_text ds_report__bytes(int64_t bytes) {
    ds_buf buf = {0};
    if (bytes == DS_MANY_BYTES) ds_buf_put(&buf, "over ");
    ds_print_bytes(bytes, &buf);
    return take(&buf);
}

ds_text ds_report__rate(double per_s, const char *unit) {
    ds_buf buf = {0};
    ds_print_rate(per_s, unit, &buf);
    return take(&buf);
}

ds_text ds_report__percent(double share) {
    ds_text text;
    snprintf(text.s, sizeof text.s, "%.1f %%", 100 * share);
    return text;
}

/* ---- names ---- */

/* Drops every "[digits]" that begins at `from` or later. */
static void drop_indices(ds_buf *path, size_t from) {
    size_t to = from;
    for (size_t i = from; i < path->n; i++) {
        size_t end = i + 1;
        while (path->text[i] == '[' && (isdigit((unsigned char)path->text[end]) ||
                                        (end == i + 1 && path->text[end] == '-')))
            end++;
        if (end > i + 1 && path->text[end] == ']')
            i = end;
        else
            path->text[to++] = path->text[i];
    }
    path->n = to;
    path->text[to] = '\0';
}

void ds_report__short_path(const ds_plan *plan, uint32_t inst, ds_buf *out) {
    size_t from = out->n;
    ds_plan_path(plan, inst, out);
    drop_indices(out, from);
}

void ds_report__op_path(const ds_result *r, uint32_t inst, ds_buf *out) {
    size_t from = out->n;
    ds_report__short_path(r->plan, inst, out);
    if (r->step && r->step->strategy.pp > 1) {
        ds_report__item_path(r, inst, from, out);
        return;
    }
    if (!r->step || r->step->strategy.microbatches < 2) return;
    /* "step/loss.3/layer/fc1": the second part is the call of microbatch 3. */
    char *call = strchr(out->text + from, '/'), *end = call ? strchr(call + 1, '/') : NULL;
    if (!end) return;
    char *dot = end;
    while (dot > call && isdigit((unsigned char)dot[-1])) dot--;
    if (dot == end || dot[-1] != '.') return;
    memmove(dot - 1, end, strlen(end) + 1);
    out->n = strlen(out->text);
}

#define MAX_OP_WIDTH 44

void ds_report__op_title(const ds_result *r, uint32_t inst, ds_buf *out) {
    const char *label = r->plan->records.at[r->plan->insts.at[inst].record]->label;
    size_t from = out->n, path = from + strlen(label) + 1;
    ds_buf_printf(out, "%s ", label);
    ds_report__op_path(r, inst, out);
    if (out->n - from <= MAX_OP_WIDTH) return;
    size_t keep = MAX_OP_WIDTH - (path - from) - 3; /* a path's end says more than its start */
    memmove(out->text + path + 3, out->text + out->n - keep, keep + 1);
    memcpy(out->text + path, "...", 3);
    out->n = from + MAX_OP_WIDTH;
}

void ds_report__value_path(const ds_plan *plan, uint32_t value, ds_buf *out) {
    const ds_vinst *v = &plan->values.at[ds_mem_value(value)];
    const ds_record *r = plan->records.at[plan->insts.at[v->inst].record];
    ds_plan_path(plan, v->inst, out);
    if (r->n_out > 1 && v->name) ds_buf_printf(out, " (%%%s)", v->name);
    ds_buf_put(out, ds_mem_part_text(value));
}

const char *ds_report__device(const ds_plan *plan, uint32_t cls) {
    return ds_topo_device_path(plan->topo, plan->classes[cls].device);
}

const char *ds_report__kind(const ds_plan *plan, uint32_t cls) {
    return ds_profiles_kind(plan->profiles, plan->classes[cls].kind)->name;
}

void ds_report__alike(const ds_plan *plan, uint32_t cls, ds_buf *out) {
    uint32_t n = plan->classes[cls].n_devices;
    if (n > 1) ds_buf_printf(out, " (%u alike)", n);
}

const ds_group *ds_report__group(const ds_plan *plan, uint32_t task) {
    uint32_t activity = plan->task_activity[task];
    return activity == DS_NONE ? NULL : plan->activities[activity].group;
}

const char *ds_report__algorithm(const ds_group *group) {
    return group && group->algorithm ? group->algorithm : "";
}

/* The name that the program gives, else a description of the communicator. */
static void stream_name(const ds_plan *plan, uint32_t task, ds_buf *out) {
    const ds_record *r = ds_plan_task_record(plan, task);
    const ds_attr *named = ds_attr_find(r->op->attrs, r->op->n_attrs, "stream");
    const char *name = ds_attr_text(&r->func->module->unit->exprs, named);
    if (name) {
        ds_buf_put(out, name);
        return;
    }
    const ds_group *g = ds_report__group(plan, task);
    for (uint32_t i = 0; i < r->op->n_over; i++)
        ds_buf_printf(out, "%s%s", i ? "," : "", r->op->over[i]);
    if (r->op->n_over) {
        ds_buf_printf(out, " of %u", g->n_devices);
    } else if (r->op->code == DS_OP_SEND || r->op->code == DS_OP_RECV) {
        ds_buf_printf(out, "%s to %s", ds_topo_device_path(plan->topo, g->devices[0]),
                      ds_topo_device_path(plan->topo, g->devices[1]));
    } else if (ds_op_desc_of(r->op->code)->flags & DS_OPF_HOST) {
        ds_buf_printf(out, "%s host", r->op->code == DS_OP_OFFLOAD ? "to" : "from");
    } else {
        ds_buf_printf(out, "%s and %u more", ds_topo_device_path(plan->topo, g->devices[0]),
                      g->n_devices - 1);
    }
}

char **ds_report__stream_names(const ds_plan *plan) {
    char **names = ds_xcalloc(plan->n_streams, sizeof *names);
    for (uint32_t s = 0; s < plan->n_streams; s++) {
        ds_buf name = {0};
        if (plan->streams[s].key == 0)
            ds_buf_put(&name, "compute");
        else
            stream_name(plan, plan->stream_tasks[plan->streams[s].first], &name);
        names[s] = name.text;
    }
    return names;
}

void ds_report__free_names(char **names, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) free(names[i]);
    free(names);
}

/* ---- sums over the ops of the text ---- */

typedef struct table {
    ds_map index;   /* ds_op → row */
    ds_map by_path; /* hash of mnemonic and path → row: of a model's step */
    DS_VEC(ds_op_total) rows;
} table;

/* The row of another microbatch's copy of the op; else a new row. */
static uint32_t row_by_path(table *t, const ds_result *r, const ds_record *record, uint32_t inst) {
    if (!r->step) return t->rows.n;
    ds_buf path = {0};
    ds_buf_printf(&path, "%s ", record->label);
    ds_report__op_path(r, inst, &path);
    uint64_t key = ds_hash_bytes(path.text, path.n), *found = ds_map_find(&t->by_path, key);
    ds_buf_deinit(&path);
    if (found) return (uint32_t)*found;
    ds_map_put(&t->by_path, key, t->rows.n);
    return t->rows.n;
}

static ds_op_total *row_of(table *t, const ds_result *r, uint32_t task) {
    const ds_record *record = ds_plan_task_record(r->plan, task);
    uint64_t *found = ds_map_find(&t->index, DS_KEY(record->op));
    if (found) return &t->rows.at[*found];
    uint32_t inst = r->plan->task_inst[task], row = row_by_path(t, r, record, inst);
    ds_map_put(&t->index, DS_KEY(record->op), row);
    ds_op_total fresh = {.record = record, .inst = inst, .group = ds_report__group(r->plan, task)};
    if (row == t->rows.n) DS_HPUSH(&t->rows, fresh);
    return &t->rows.at[row];
}

static void add(table *t, const ds_result *r, uint32_t task) {
    const ds_plan *plan = r->plan;
    const ds_record *record = ds_plan_task_record(plan, task);
    const ds_group *group = ds_report__group(plan, task);
    ds_op_total *row = row_of(t, r, task);
    int64_t times = ds_plan_times(plan, plan->task_inst[task]), bytes;
    row->n += times;
    row->ps += times * (r->run.end_ps[task] - r->run.start_ps[task]);
    if (!group) {
        const ds_work *work = &ds_plan_task_variant(plan, task)->work;
        row->flop += (double)work->flop * (double)times;
        row->memory_bytes +=
            ((double)work->bytes_read + (double)work->bytes_written) * (double)times;
        return;
    }
    ds_opcode op = group->request ? group->request->op : record->op->code;
    bool told = ds_mul_i64(group->bytes, times, &bytes);
    row->bytes = ds_bytes_sum(row->bytes, told ? bytes : DS_MANY_BYTES);
    row->bus_bytes +=
        ds_coll_bus_factor(op, group->n_devices) * (double)group->bytes * (double)times;
}

static int by_time(const void *a, const void *b) {
    const ds_op_total *x = a, *y = b;
    if (x->ps != y->ps) return x->ps > y->ps ? -1 : 1;
    return x->inst < y->inst ? -1 : x->inst > y->inst;
}

static ds_op_total *finish(table *t, uint32_t *n) {
    ds_map_deinit(&t->index);
    ds_map_deinit(&t->by_path);
    *n = t->rows.n;
    if (*n) qsort(t->rows.at, *n, sizeof *t->rows.at, by_time);
    return t->rows.at;
}

ds_op_total *ds_report__ops(const ds_result *r, uint32_t cls, uint32_t *n) {
    table t = {0};
    for (uint32_t task = 0; task < r->plan->n_tasks; task++)
        if (r->plan->task_class[task] == cls) add(&t, r, task);
    return finish(&t, n);
}

ds_op_total *ds_report__collectives(const ds_result *r, uint32_t *n) {
    table t = {0};
    for (uint32_t i = 0; i < r->plan->insts.n; i++) {
        uint32_t task = r->plan->insts.at[i].first_task; /* classes ascend: its lowest device */
        if (task == DS_NONE || r->plan->task_activity[task] == DS_NONE) continue;
        /* In a per-rank program every rank has an instance of its own: the first counts. */
        const ds_activity *a = &r->plan->activities[r->plan->task_activity[task]];
        bool half = ds_plan_task_record(r->plan, task)->kind == DS_REC_HALF;
        if (!half || r->plan->members[a->first_member] == task) add(&t, r, task);
    }
    return finish(&t, n);
}
