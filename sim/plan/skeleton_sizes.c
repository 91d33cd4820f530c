/* Meets of a skeleton that differ from another one in their bytes alone.
 *
 * The gradients of a stage are reduced in buckets of many sizes, over the same groups, on the same
 * streams, by the same algorithm: such meets have the classes, streams and links of the first of
 * them, and take other times. So one of them is made, and the others are copies of its activity
 * with durations of their own. They never run beside it, since they have its streams, so that a
 * link which no other flow uses is still a bound on a level, and not a link to be shared.
 *
 * A copy tells no devices apart that the first does not: all groups of the meet have one canonical
 * place (congruent.c), and thus one duration. Phases of the copy that flow for so short a time that
 * they load no link (traffic.c) are told by the same rule; one that loads links where the first's
 * does not makes the meet no copy. */
#include "sim/plan/skeleton_internal.h"

#include "sim/coll/coll.h"

#include <stdlib.h>
#include <string.h>

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

bool ds_skeleton__is_copy(const ds_record *first, const ds_group *own) {
    const ds_group *g = &first->groups[0];
    if (!g->congruent || !own->request || own->n_phases != g->n_phases ||
        strcmp(own->algorithm, g->algorithm) != 0 || !g->bytes != !own->bytes ||
        own->terms.efficiency_q32 != g->terms.efficiency_q32 ||
        own->terms.holds_compute != g->terms.holds_compute)
        return false;
    for (uint32_t i = 1; i < first->n_groups; i++)
        if (first->groups[i].congruent != g->congruent) return false;
    for (uint32_t p = 0; p < g->n_phases; p++)
        if (own->times[p].flow_ps >= DS_PLAN_LEAST_PS && g->times[p].flow_ps < DS_PLAN_LEAST_PS)
            return false;
    return true;
}

/* Of a phase: the first's flow, as it was made from its groups and as it is over classes of links;
 * and the times of the copy. */
static ds_flow copy_flow(const ds_flow *made, const ds_flow *packed, const ds_phase_time *time) {
    bool loads = time->flow_ps >= DS_PLAN_LEAST_PS;
    ds_flow flow = loads ? *packed : *made;
    if (!loads) flow.share.n_uses = 0;
    flow.work = time->most_q32 * DS_WORK_PER_BYTE_Q32;
    flow.wait_ps = time->wait_ps;
    flow.alone_ps = time->flow_ps;
    if (loads && packed->alone_q20 != made->alone_q20) ds_flow_set_alone(&flow);
    return flow;
}

static ds_status copy_flows(ds_skeleton_copies *copies, ds_plan *plan, const ds_group *first,
                            const ds_group *own, ds_activity *a, ds_error *err) {
    bool loads = false, shares = false;
    for (uint32_t p = 0; p < first->n_flows; p++)
        loads =
            loads || (first->flows[p].share.n_uses && own->times[p].flow_ps >= DS_PLAN_LEAST_PS);
    uint32_t from = a->first_flow;
    a->ps = own->ps;
    a->first_flow = a->n_flows = 0;
    if (!loads) return DS_OK;
    a->ps = 0;
    a->first_flow = plan->n_flows + copies->flows.n;
    for (uint32_t p = 0; p < first->n_flows; p++) {
        ds_flow flow = copy_flow(&first->flows[p], &plan->flows[from + p], &own->times[p]);
        if (p == 0) flow.wait_ps += own->terms.launch_ps;
        shares = shares || flow.share.n_uses;
        if (!ds_add_i64(a->ps, flow.wait_ps, &a->ps) || !ds_add_i64(a->ps, flow.alone_ps, &a->ps))
            return ds_error_set(err, DS_ERR_OVERFLOW, DS_NOWHERE,
                                "a transfer takes longer than 106 days, the range of int64 "
                                "picoseconds");
        DS_HPUSH(&copies->flows, flow);
    }
    if (shares) a->n_flows = first->n_flows;
    return DS_OK;
}

/* Room for as many more tasks, activities, instances. */
static void grow(ds_plan *plan, uint32_t n) {
    uint32_t tasks = plan->n_tasks + n, activities = plan->n_activities + n;
    plan->task_activity = ds_xrealloc(plan->task_activity, tasks * sizeof *plan->task_activity);
    plan->task_class = ds_xrealloc(plan->task_class, tasks * sizeof *plan->task_class);
    plan->task_stream = ds_xrealloc(plan->task_stream, tasks * sizeof *plan->task_stream);
    plan->activities = ds_xrealloc(plan->activities, activities * sizeof *plan->activities);
}

static void append_flows(ds_plan *plan, ds_skeleton_copies *copies) {
    if (!copies->flows.n) return;
    size_t n = (size_t)plan->n_flows + copies->flows.n;
    plan->flows = ds_xrealloc(plan->flows, n * sizeof *plan->flows);
    memcpy(plan->flows + plan->n_flows, copies->flows.at, copies->flows.n * sizeof *plan->flows);
    plan->n_flows = (uint32_t)n;
}

/* Tasks of all copies: as many as their firsts have. */
static uint32_t count_tasks(const ds_plan *plan, const ds_skeleton_copies *copies,
                            const ds_inst *insts, uint32_t n_meets) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_meets; i++)
        if (copies->of[i] != DS_NONE) n += plan->records.at[insts[copies->of[i]].record]->n_classes;
    return n;
}

/* Copies' tasks stand for their activities alone: members and streams are the first's. */
static ds_status copy_tasks(ds_skeleton_copies *copies, ds_plan *plan, const ds_inst *first,
                            const ds_group *own, ds_error *err) {
    uint32_t n = plan->records.at[first->record]->n_classes, of = first->first_task;
    for (uint32_t k = 0; k < n; k++) {
        uint32_t task = plan->n_tasks++, known = of;
        while (plan->task_activity[known] != plan->task_activity[of + k]) known++;
        plan->task_class[task] = plan->task_class[of + k];
        plan->task_stream[task] = plan->task_stream[of + k];
        if (known < of + k) { /* of a meeting that has been copied */
            plan->task_activity[task] = plan->task_activity[task - (of + k - known)];
            continue;
        }
        ds_activity a = plan->activities[plan->task_activity[of + k]];
        const ds_group *g = a.group;
        DS_TRY(copy_flows(copies, plan, g, own, &a, err));
        plan->task_activity[task] = plan->n_activities;
        plan->activities[plan->n_activities++] = a;
    }
    return DS_OK;
}

ds_status ds_skeleton__add_copies(ds_builder *b, ds_skeleton_copies *copies, uint32_t n_meets,
                                  ds_error *err) {
    ds_plan *plan = b->plan;
    uint32_t n_copies = copies->costs.n, n_stages = plan->insts.n - (n_meets - n_copies);
    ds_inst *insts = ds_xcalloc((size_t)n_meets + n_stages, sizeof *insts);
    ds_status status = DS_OK;
    for (uint32_t i = 0, made = 0; i < n_meets; i++)
        if (copies->of[i] == DS_NONE) insts[i] = plan->insts.at[made++];
    for (uint32_t s = 0; s < n_stages; s++)
        insts[n_meets + s] = plan->insts.at[n_meets - n_copies + s];
    if (n_copies) grow(plan, count_tasks(plan, copies, insts, n_meets));
    for (uint32_t i = 0, copy = 0; i < n_meets && status == DS_OK; i++) {
        if (copies->of[i] == DS_NONE) continue;
        const ds_inst *first = &insts[copies->of[i]];
        insts[i] = (ds_inst){.record = first->record, .first_task = plan->n_tasks};
        status = copy_tasks(copies, plan, first, &copies->costs.at[copy++], err);
    }
    free(plan->insts.at);
    plan->insts.at = insts;
    plan->insts.n = plan->insts.cap = n_meets + n_stages;
    if (status == DS_OK) append_flows(plan, copies);
    return status;
}

void ds_skeleton__copies_deinit(ds_skeleton_copies *copies) {
    free(copies->of);
    free(copies->costs.at);
    free(copies->flows.at);
    ds_map_deinit(&copies->first);
}
