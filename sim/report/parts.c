/* What a step's critical path is made of, by parts whose predictions err unlike. */
#include "sim/report/analysis.h"

#include <stdlib.h>
#include <string.h>

/* Routes tokens to experts, or back. */
static bool routes(const ds_op *op) {
    const ds_op_desc *desc = op ? ds_op_desc_of(op->code) : NULL;
    return desc && strcmp(desc->family, "moe") == 0;
}

static bool has_experts(const ds_result *r, const ds_critical_path *path) {
    for (uint32_t i = 0; i < path->n; i++) {
        const ds_segment *s = &path->at[i];
        if (s->kind == DS_TIME_COMPUTE && routes(ds_plan_task_record(r->plan, s->task)->op))
            return true;
    }
    return false;
}

/* With experts in the step, a product of a batch is an expert's, not an attention head's. */
static bool is_of_experts(const ds_result *r, const ds_segment *s, bool experts) {
    const ds_op *op = ds_plan_task_record(r->plan, s->task)->op;
    if (s->kind == DS_TIME_COMM) return op && op->code == DS_OP_ALL_TO_ALL;
    const ds_work *w = &ds_plan_task_variant(r->plan, s->task)->work;
    return routes(op) || (experts && w->kind == DS_WORK_GEMM && w->batch > 1);
}

static void add(const ds_result *r, const ds_segment *s, bool experts, int64_t ps[DS_PART_COUNT]) {
    int64_t length = ds_segment_ps(s);
    ps[DS_PART_STEP] += length;
    if (s->kind != DS_TIME_COMPUTE && s->kind != DS_TIME_COMM) return;
    bool expert = is_of_experts(r, s, experts);
    if (expert) ps[DS_PART_EXPERTS] += length;
    if (s->kind == DS_TIME_COMPUTE)
        ps[ds_step_part_of(&ds_plan_task_variant(r->plan, s->task)->work)] += length;
    else if (!expert)
        ps[DS_PART_COMMUNICATION] += length;
}

/* The time at which a host that never waits has issued the last task. The issue of a pause begins after
 * the pause that precedes it. */
static int64_t issue_ps(const ds_plan *plan) {
    int64_t *pauses = ds_xcalloc((size_t)plan->n_pauses + 1, sizeof *pauses), last_ps = 0;
    for (uint32_t p = 0; p < plan->n_pauses; p++) {
        uint32_t before = plan->pauses[p].before;
        pauses[p] = ds_ps_sum(before == DS_NONE ? 0 : pauses[before], plan->pauses[p].issue_ps);
    }
    for (uint32_t t = 0; t < plan->n_tasks; t++) {
        uint32_t pause = plan->task_pause ? plan->task_pause[t] : DS_NONE;
        int64_t ps = ds_ps_sum(pause == DS_NONE ? 0 : pauses[pause], plan->task_issue_ps[t]);
        if (ps > last_ps) last_ps = ps;
    }
    free(pauses);
    return last_ps;
}

void ds_step_shares(const ds_result *result, const ds_critical_path *path,
                    double share[DS_PART_COUNT]) {
    int64_t ps[DS_PART_COUNT] = {0};
    bool experts = has_experts(result, path);
    for (uint32_t i = 0; i < path->n; i++) add(result, &path->at[i], experts, ps);
    ps[DS_PART_LENT] = ps[DS_PART_COMPUTE] + ps[DS_PART_ATTENTION] + ps[DS_PART_NARROW];
    ps[DS_PART_HOST] = issue_ps(result->plan);
    for (int k = 0; k < DS_PART_COUNT; k++) {
        share[k] = ds_ratio((double)ps[k], (double)ps[DS_PART_STEP]);
        if (share[k] > 1) share[k] = 1;
    }
}
