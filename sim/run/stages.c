/* Pipeline stages: busy and idle time, memory, and bytes sent between stages. */
#include "sim/run/stages.h"
#include "ir/base/units.h"
#include "sim/coll/coll.h"
#include "sim/coll/reshard.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The largest mesh of the program with an axis pp above 1 (the first of equals), and the axis's
 * number; NULL: no such mesh. */
static const ds_placement *pipeline_mesh(const ds_plan *plan, uint32_t *axis) {
    const ds_placement *best = NULL;
    for (uint32_t i = 0; i < plan->placements.n; i++) {
        const ds_placement *p = plan->placements.at[i];
        for (uint32_t a = 0; a < p->n_axes; a++) {
            if (strcmp(p->axes[a], "pp") != 0 || p->sizes[a] < 2) continue;
            if (best && best->n_devices >= p->n_devices) continue;
            best = p;
            *axis = a;
        }
    }
    return best;
}

/* Adds a device to a stage. The lowest of the devices that compute longest represents the stage. */
static void add_device(ds_stage *stage, const ds_result *r, uint32_t device) {
    uint32_t cls = r->plan->class_of[device];
    if (cls == DS_NONE) return; /* the program does not use the device */
    int64_t compute = r->accounts[cls].compute_ps;
    int64_t peak = r->mem.classes[cls].peak_bytes;
    if (peak > stage->peak_bytes) stage->peak_bytes = peak;
    bool first = stage->n_devices++ == 0;
    if (!first && compute < stage->compute_ps) return;
    if (!first && compute == stage->compute_ps && device > stage->device) return;
    stage->device = device;
    stage->compute_ps = compute;
    stage->exposed_comm_ps = r->accounts[cls].exposed_comm_ps;
    stage->idle_ps = r->accounts[cls].idle_ps;
}

/* Puts the device into stage i. */
static void place(const ds_result *r, uint32_t device, uint32_t i, ds_stages *out) {
    add_device(&out->at[i], r, device);
    out->of_device[device] = i;
}

static void leave_out_idle(const ds_result *r, uint32_t n, ds_stages *out) {
    uint32_t *number = ds_xcalloc(n, sizeof *number);
    for (uint32_t s = 0; s < n; s++) {
        number[s] = out->at[s].n_devices ? out->n : DS_NONE;
        if (out->at[s].n_devices) out->at[out->n++] = out->at[s];
    }
    for (uint32_t d = 0; d < r->plan->n_devices; d++)
        if (out->of_device[d] != DS_NONE) out->of_device[d] = number[out->of_device[d]];
    free(number);
}

static void group_by_coordinate(const ds_result *r, const ds_placement *mesh, uint32_t axis,
                                ds_stages *out) {
    uint32_t inner = 1;
    for (uint32_t a = axis + 1; a < mesh->n_axes; a++) inner *= (uint32_t)mesh->sizes[a];
    uint32_t n = (uint32_t)mesh->sizes[axis];
    out->at = ds_xcalloc(n, sizeof *out->at);
    for (uint32_t i = 0; i < mesh->n_devices; i++) place(r, mesh->devices[i], i / inner % n, out);
    leave_out_idle(r, n, out);
}

/* The mesh that `shard` makes for stages of several widths: all devices in the order of the stages.
 * NULL: no such mesh. */
static const ds_placement *widths_mesh(const ds_result *r) {
    const ds_strategy *s = r->step ? &r->step->strategy : NULL;
    uint32_t n = 0;
    for (int64_t i = 0; s && s->stage_dp && i < s->pp; i++)
        n += (uint32_t)(s->stage_dp[i] * s->stage_tp[i]);
    for (uint32_t i = 0; n && i < r->plan->placements.n; i++) {
        const ds_placement *p = r->plan->placements.at[i];
        if (p->n_devices == n && p->n_axes == 1 && strcmp(p->axes[0], "device") == 0) return p;
    }
    return NULL;
}

static void group_by_width(const ds_result *r, const ds_placement *mesh, ds_stages *out) {
    const ds_strategy *s = &r->step->strategy;
    out->at = ds_xcalloc((uint32_t)s->pp, sizeof *out->at);
    for (uint32_t i = 0, at = 0; i < (uint32_t)s->pp; i++)
        for (int64_t end = at + s->stage_dp[i] * s->stage_tp[i]; at < end; at++)
            place(r, mesh->devices[at], i, out);
    leave_out_idle(r, (uint32_t)s->pp, out);
}

static void group_by_class(const ds_result *r, ds_stages *out) {
    memcpy(out->of_device, r->plan->class_of, r->plan->n_devices * sizeof *out->of_device);
    out->by_class = true;
    out->n = r->plan->n_classes;
    out->at = ds_xcalloc(out->n, sizeof *out->at);
    for (uint32_t c = 0; c < out->n; c++) {
        add_device(&out->at[c], r, r->plan->classes[c].device);
        out->at[c].n_devices = r->plan->classes[c].n_devices;
    }
}

/* First start and last end of compute, for every class. */
static void find_spans(const ds_result *r, ds_stages *out) {
    const ds_plan *plan = r->plan;
    int64_t *first = ds_xcalloc(plan->n_classes, sizeof *first);
    int64_t *last = ds_xcalloc(plan->n_classes, sizeof *last);
    for (uint32_t c = 0; c < plan->n_classes; c++) first[c] = INT64_MAX;
    for (uint32_t t = 0; t < plan->n_tasks; t++) {
        uint32_t c = plan->task_class[t];
        int64_t start = r->run.start_ps[t], end = r->run.end_ps[t];
        if (plan->task_activity[t] != DS_NONE || start == end) continue;
        if (start < first[c]) first[c] = start;
        if (end > last[c]) last[c] = end;
    }
    for (uint32_t s = 0; s < out->n; s++) {
        ds_stage *stage = &out->at[s];
        uint32_t c = plan->class_of[stage->device];
        stage->first_ps = last[c] ? first[c] : 0;
        stage->last_ps = last[c];
        stage->bubble_ps = stage->last_ps - stage->first_ps - stage->compute_ps;
        if (stage->bubble_ps > out->span_bubble_ps) out->span_bubble_ps = stage->bubble_ps;
        if (stage->idle_ps > out->makespan_idle_ps) out->makespan_idle_ps = stage->idle_ps;
    }
    free(first);
    free(last);
}

/* ---- bytes sent ---- */

static void add_product(int64_t *sum, int64_t n, int64_t bytes) {
    int64_t product;
    *sum = ds_mul_i64(n, bytes, &product) ? ds_bytes_sum(*sum, product) : DS_MANY_BYTES;
}

/* How often a record runs, and how often with gradients of weights; how many groups of it the one
 * in hand stands for. */
typedef struct runs {
    int64_t n, n_grad, images;
} runs;

static runs *count_runs(const ds_plan *plan) {
    runs *of = ds_xcalloc(plan->records.n, sizeof *of);
    for (uint32_t i = 0; i < plan->insts.n; i++) {
        const ds_inst *inst = &plan->insts.at[i];
        if (!ds_plan_n_operands(plan, i)) continue;
        uint32_t value = plan->operands.at[inst->first_operand];
        int64_t times = ds_plan_times(plan, i);
        of[inst->record].n += times;
        if (plan->values.at[value].category == DS_CAT_GRADIENT) of[inst->record].n_grad += times;
    }
    return of;
}

/* The bytes that each of the first *n members of a group sends to other stages in one run. In a
 * send only the first member sends. A collective between stages counts as in nccl-tests, with the
 * bytes that pass a member's port. */
static int64_t sent_by_members(const ds_record *record, const ds_group *group, const ds_stages *s,
                               uint32_t *n) {
    bool crosses = false;
    for (uint32_t i = 1; i < group->n_devices; i++)
        crosses = crosses || s->of_device[group->devices[i]] != s->of_device[group->devices[0]];
    bool send = record->op->code == DS_OP_SEND;
    if (record->op->code == DS_OP_RESHARD) return 0; /* add_reshard counts these */
    *n = send ? 1 : group->n_devices;
    if (!crosses || (!send && s->by_class)) return 0;
    ds_opcode op = group->request ? group->request->op : record->op->code;
    if (send) return group->bytes;
    double passed = (double)group->bytes * ds_coll_bus_factor(op, group->n_devices);
    return passed < 0x1p63 ? llround(passed) : DS_MANY_BYTES;
}

static void add_sent(const runs *of, int64_t bytes, uint32_t device, int64_t *by_device,
                     ds_stages *out) {
    uint32_t stage = out->of_device[device];
    add_product(&by_device[device], of->n, bytes);
    if (stage == DS_NONE) return;
    add_product(&out->at[stage].sent_bytes, of->n * of->images, bytes);
    add_product(&out->at[stage].sent_grad_bytes, of->n_grad * of->images, bytes);
}

/* Counts every piece of a reshard once, in equal parts from all devices that hold the piece. */
static void add_reshard(const runs *of, const ds_group *group, int64_t *by_device, ds_stages *out) {
    const ds_reshard *reshard = group->request ? group->request->reshard : NULL;
    for (uint32_t i = 0; reshard && i < reshard->n_pieces; i++) {
        const ds_reshard_piece *p = &reshard->pieces[i];
        uint32_t n = p->n_senders * p->n_terms;
        uint32_t to = out->of_device[group->devices[p->receivers[0]]];
        for (uint32_t k = 0; k < n; k++) {
            uint32_t device = group->devices[p->senders[k]];
            int64_t bytes = p->bytes / p->n_senders + (k % p->n_senders < p->bytes % p->n_senders);
            if (out->of_device[device] != to) add_sent(of, bytes, device, by_device, out);
        }
    }
}

static void find_sent(const ds_result *r, ds_stages *out) {
    const ds_plan *plan = r->plan;
    runs *of = count_runs(plan);
    int64_t *by_device = ds_xcalloc(plan->n_devices, sizeof *by_device);
    for (uint32_t i = 0; i < plan->records.n; i++) {
        const ds_record *record = plan->records.at[i];
        /* a rank's half of a collective lists the whole group: per-rank programs count sends
         * only */
        if (!record->op || (record->kind == DS_REC_HALF && record->op->code != DS_OP_SEND))
            continue;
        for (uint32_t g = 0; of[i].n && g < record->n_groups; g++) {
            uint32_t n;
            int64_t bytes = sent_by_members(record, &record->groups[g], out, &n);
            of[i].images = 1 + (int64_t)record->groups[g].n_images;
            for (uint32_t k = 0; bytes && k < n; k++)
                add_sent(&of[i], bytes, record->groups[g].devices[k], by_device, out);
            if (record->op->code == DS_OP_RESHARD && !out->by_class)
                add_reshard(&of[i], &record->groups[g], by_device, out);
        }
    }
    for (uint32_t d = 0; d < plan->n_devices; d++) {
        uint32_t stage = out->of_device[d];
        if (stage != DS_NONE && by_device[d] > out->at[stage].sent_most_bytes)
            out->at[stage].sent_most_bytes = by_device[d];
    }
    free(by_device);
    free(of);
}

void ds_stages_find(const ds_result *r, ds_stages *out) {
    *out = (ds_stages){0};
    uint32_t axis, n = r->plan->n_devices;
    out->of_device = ds_xmalloc((n + 1) * sizeof *out->of_device);
    for (uint32_t d = 0; d < n; d++) out->of_device[d] = DS_NONE;
    const ds_placement *mesh = pipeline_mesh(r->plan, &axis), *widths = widths_mesh(r);
    if (widths)
        group_by_width(r, widths, out);
    else if (mesh)
        group_by_coordinate(r, mesh, axis, out);
    else
        group_by_class(r, out);
    find_spans(r, out);
    find_sent(r, out);
}

void ds_stages_deinit(ds_stages *stages) {
    free(stages->at);
    free(stages->of_device);
    *stages = (ds_stages){0};
}
