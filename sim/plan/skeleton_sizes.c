/* Meets of a skeleton that differ from another one in their bytes alone.
 *
 * The gradients of a stage are reduced in buckets of many sizes, over the same groups, on the same
 * streams, by the same algorithm: such meets have the classes, streams and links of the first of
 * them, and take other times. So one of them is made, and the others are copies of its activity
 * with durations of their own. They never run beside it, since they have its streams, so that a
 * link which no other flow uses is still a bound on a level, and not a link to be shared.
 *
 * A copy tells no devices apart that the first does not: all groups of the meet have one canonical
 * place (congruent.c), and thus one duration. A phase that flows for so short a time that it loads
 * no link (traffic.c) makes a sort of its own. */
#include "sim/plan/skeleton_internal.h"

#include "sim/coll/coll.h"

#include <stdlib.h>
#include <string.h>

/* ---- sorts ---- */

static uint64_t text_hash(const ds_builder *b, const ds_op *op, const char *name) {
    const char *text = ds_attr_text(&b->unit->exprs, ds_attr_find(op->attrs, op->n_attrs, name));
    return text ? ds_hash_bytes(text, strlen(text)) | 1 : 0;
}

uint64_t ds_skeleton__alike(const ds_builder *b, const ds_plan_meet *meet) {
    const ds_op *op = meet->op;
    uint64_t key = ds_hash_mix(ds_hash_mix(op->code, meet->stream), op->across);
    key = ds_hash_mix(key, (uint64_t)meet->from << 32 | meet->to);
    for (uint32_t i = 0; i < op->n_over; i++)
        key = ds_hash_mix(key, ds_hash_bytes(op->over[i], strlen(op->over[i])));
    key = ds_hash_mix(key, text_hash(b, op, "algorithm"));
    return ds_hash_mix(key, text_hash(b, op, "route"));
}

uint64_t ds_skeleton__sort(uint64_t alike, const ds_group *cost) {
    uint64_t key = ds_hash_mix(alike, ds_hash_bytes(cost->algorithm, strlen(cost->algorithm)));
    key = ds_hash_mix(ds_hash_mix(key, cost->n_phases), cost->terms.efficiency_q32);
    key = ds_hash_mix(key, (uint64_t)cost->terms.holds_compute << 1 | !cost->bytes);
    for (uint32_t p = 0; p < cost->n_phases; p++)
        key = ds_hash_mix(key, cost->times[p].flow_ps >= DS_PLAN_LEAST_PS);
    return key;
}

/* ---- copies ---- */

typedef struct copier {
    const ds_skeleton_base *base;
    ds_plan *plan;
    DS_VEC(ds_flow) flows;
} copier;

/* Of a phase: the first's flow, as it was made from its groups and as it is over classes of links;
 * and the times of the copy. */
static ds_flow copy_flow(const ds_flow *made, const ds_flow *packed, const ds_phase_time *time) {
    bool loads = time->flow_ps >= DS_PLAN_LEAST_PS;
    ds_flow flow = loads ? *packed : *made;
    flow.work = time->most_q32 * DS_WORK_PER_BYTE_Q32;
    flow.wait_ps = time->wait_ps;
    flow.alone_ps = time->flow_ps;
    if (loads && packed->alone_q20 != made->alone_q20) ds_flow_set_alone(&flow);
    return flow;
}

/* `of`: the activity of the base. */
static ds_status copy_flows(copier *c, uint32_t of, const ds_group *own, ds_activity *a,
                            ds_error *err) {
    bool shares = false;
    uint32_t n = c->base->n_made[of], from = a->first_flow;
    a->ps = own->ps;
    a->first_flow = a->n_flows = 0;
    if (!n) return DS_OK;
    a->ps = 0;
    a->first_flow = c->flows.n;
    for (uint32_t p = 0; p < n; p++) {
        ds_flow flow = copy_flow(&c->base->made[from + p], &c->flows.at[from + p], &own->times[p]);
        if (p == 0) flow.wait_ps += own->terms.launch_ps;
        shares = shares || flow.share.n_uses;
        if (!ds_add_i64(a->ps, flow.wait_ps, &a->ps) || !ds_add_i64(a->ps, flow.alone_ps, &a->ps))
            return ds_error_set(err, DS_ERR_OVERFLOW, DS_NOWHERE,
                                "a transfer takes longer than 106 days, the range of int64 "
                                "picoseconds");
        DS_HPUSH(&c->flows, flow);
    }
    if (shares) a->n_flows = n;
    return DS_OK;
}

static uint32_t n_tasks_of(const ds_plan *plan, uint32_t inst) {
    uint32_t end = inst + 1 < plan->insts.n ? plan->insts.at[inst + 1].first_task : plan->n_tasks;
    return end - plan->insts.at[inst].first_task;
}

/* Copies' tasks stand for their activities alone: members and streams are the first's. */
static ds_status copy_tasks(copier *c, uint32_t inst, const ds_group *own, ds_error *err) {
    ds_plan *plan = c->plan;
    uint32_t n = n_tasks_of(c->base->plan, inst), of = c->base->plan->insts.at[inst].first_task;
    for (uint32_t k = 0; k < n; k++) {
        uint32_t task = plan->n_tasks++, known = of, activity = plan->task_activity[of + k];
        while (plan->task_activity[known] != activity) known++;
        plan->task_class[task] = plan->task_class[of + k];
        plan->task_stream[task] = plan->task_stream[of + k];
        if (known < of + k) { /* of a meeting that has been copied */
            plan->task_activity[task] = plan->task_activity[task - (of + k - known)];
            continue;
        }
        ds_activity a = plan->activities[activity];
        DS_TRY(copy_flows(c, activity, own, &a, err));
        plan->task_activity[task] = plan->n_activities;
        plan->activities[plan->n_activities++] = a;
    }
    return DS_OK;
}

/* n of `from` on the heap, with room for more. */
static void *duplicate(const void *from, size_t n, size_t more, size_t size) {
    char *copy = ds_xmalloc((n + more + 1) * size);
    if (n) memcpy(copy, from, n * size);
    memset(copy + n * size, 0, more * size);
    return copy;
}

static uint32_t count_members(const ds_plan *plan) {
    uint32_t n = 0;
    for (uint32_t a = 0; a < plan->n_activities; a++) n += plan->activities[a].n_members;
    return n;
}

/* The base's own, with room for as many more tasks. */
static void copy_base(copier *c, uint32_t more) {
    const ds_plan *from = c->base->plan;
    ds_plan *plan = c->plan;
    uint32_t n = from->n_tasks, n_uses = 0;
    plan->n_devices = from->n_devices;
    plan->n_classes = from->n_classes;
    plan->classes = DS_NEW_N(&plan->arena, ds_class, from->n_classes);
    memcpy(plan->classes, from->classes, from->n_classes * sizeof *plan->classes);
    plan->n_tasks = n;
    plan->task_class = duplicate(from->task_class, n, more, sizeof *plan->task_class);
    plan->task_stream = duplicate(from->task_stream, n, more, sizeof *plan->task_stream);
    plan->task_activity = duplicate(from->task_activity, n, more, sizeof *plan->task_activity);
    plan->task_ps = duplicate(from->task_ps, n, more, sizeof *plan->task_ps);
    plan->n_activities = from->n_activities;
    plan->activities =
        duplicate(from->activities, from->n_activities, more, sizeof *plan->activities);
    plan->members = duplicate(from->members, count_members(from), 0, sizeof *plan->members);
    plan->n_streams = from->n_streams;
    plan->streams = duplicate(from->streams, from->n_streams, 0, sizeof *plan->streams);
    plan->n_links = from->n_links;
    plan->link_capacity_q20 =
        duplicate(from->link_capacity_q20, from->n_links, 0, sizeof *plan->link_capacity_q20);
    for (uint32_t f = 0; f < from->n_flows; f++) n_uses += from->flows[f].share.n_uses;
    plan->link_uses = duplicate(from->link_uses, n_uses, 0, sizeof *plan->link_uses);
    for (uint32_t f = 0; f < from->n_flows; f++) {
        ds_flow flow = from->flows[f];
        flow.share.uses = plan->link_uses + (flow.share.uses - from->link_uses);
        DS_HPUSH(&c->flows, flow);
    }
}

static ds_status copy_meets(copier *c, const ds_skeleton_meet *meets, uint32_t n, ds_error *err) {
    const ds_plan *from = c->base->plan;
    ds_inst *insts = ds_xcalloc((size_t)n + c->base->n_stages, sizeof *insts);
    c->plan->insts.at = insts;
    c->plan->insts.n = c->plan->insts.cap = n + c->base->n_stages;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t inst = (uint32_t)*ds_map_find(&c->base->inst_of, meets[i].sort);
        insts[i] = from->insts.at[inst]; /* one that stands alone is itself */
        if (!meets[i].cost) continue;
        insts[i].first_task = c->plan->n_tasks;
        DS_TRY(copy_tasks(c, inst, meets[i].cost, err));
    }
    for (uint32_t s = 0; s < c->base->n_stages; s++)
        insts[n + s] = from->insts.at[from->insts.n - c->base->n_stages + s];
    return DS_OK;
}

ds_status ds_skeleton__copy(const ds_builder *b, const ds_skeleton_base *base,
                            const ds_skeleton_meet *meets, uint32_t n, ds_plan **out,
                            ds_error *err) {
    copier c = {.base = base, .plan = ds_xcalloc(1, sizeof *c.plan)};
    uint32_t more = 0;
    ds_arena_init(&c.plan->arena);
    c.plan->binding = b->binding;
    c.plan->profiles = b->profiles;
    c.plan->cost_mode = b->options->cost_mode;
    c.plan->topo = b->options->topo;
    c.plan->borrows_topo = true;
    for (uint32_t i = 0; i < n; i++)
        if (meets[i].cost)
            more += n_tasks_of(base->plan, (uint32_t)*ds_map_find(&base->inst_of, meets[i].sort));
    copy_base(&c, more);
    ds_status status = copy_meets(&c, meets, n, err);
    c.plan->flows = c.flows.at;
    c.plan->n_flows = c.flows.n;
    *out = c.plan;
    if (status == DS_OK) return DS_OK;
    ds_plan_free(c.plan);
    *out = NULL;
    return status;
}
