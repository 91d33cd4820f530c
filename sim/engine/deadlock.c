/* Why nothing moves: from a stuck task, follow what it waits for until a task comes up twice (a
 * cycle) or nobody can ever come (an orphan). */
#include "sim/engine/internal.h"

#include <stdlib.h>

typedef struct wait {
    uint32_t on; /* a task; DS_NONE: nobody */
    const char *why;
} wait;

static uint32_t head_of(const ds_stuck *x, uint32_t stream) {
    const ds_stream *s = &x->plan->streams[stream];
    return x->plan->stream_tasks[s->first + x->head[stream]];
}

static bool arrived(const ds_stuck *x, uint32_t task) {
    return head_of(x, x->plan->task_stream[task]) == task && !x->n_pred[task];
}

/* A dependence of `task` that has not ended. Only the stuck are searched, so a scan is cheap
 * enough. */
static uint32_t unmet(const ds_stuck *x, uint32_t task) {
    const ds_plan *plan = x->plan;
    uint32_t inst = plan->task_inst[task], cls = plan->task_class[task];
    uint32_t first = plan->insts.at[inst].first_operand, n = ds_plan_n_operands(plan, inst);
    for (uint32_t i = 0; i < n; i++) {
        const ds_inst *maker = &plan->insts.at[plan->values.at[plan->operands.at[first + i]].inst];
        if (maker->first_task == DS_NONE) continue;
        uint32_t pos = ds_record_class_pos(plan->records.at[maker->record], cls);
        if (pos != DS_NONE && x->end_ps[maker->first_task + pos] < 0)
            return maker->first_task + pos;
    }
    return DS_NONE;
}

static wait waits_for(const ds_stuck *x, uint32_t task) {
    const ds_plan *plan = x->plan;
    uint32_t head = head_of(x, plan->task_stream[task]);
    if (head != task) return (wait){head, "queued behind"};
    if (x->n_pred[task]) return (wait){unmet(x, task), "needs the result of"};
    uint32_t activity = plan->task_activity[task];
    if (activity == DS_NONE) return (wait){DS_NONE, "cannot start"};
    const ds_activity *a = &plan->activities[activity];
    for (uint32_t i = 0; i < a->n_members; i++) {
        uint32_t other = plan->members[a->first_member + i];
        if (!arrived(x, other)) return (wait){other, "meets"};
    }
    return (wait){DS_NONE, "waits for a partner that never comes"};
}

static void describe_task(const ds_stuck *x, uint32_t task, const char *why, ds_buf *out) {
    ds_buf_put(out, "\n  ");
    ds_plan_task_label(x->plan, task, out);
    const ds_op *op = ds_plan_task_record(x->plan, task)->op;
    if (op && op->loc.line) ds_buf_printf(out, " (line %u)", op->loc.line);
    ds_buf_printf(out, " %s", why);
}

static void describe_missing(const ds_stuck *x, uint32_t task, ds_buf *out) {
    const ds_plan *plan = x->plan;
    const ds_record *r = ds_plan_task_record(plan, task);
    const ds_group *g = &r->groups[0];
    if (!r->op || r->kind != DS_REC_HALF) return;
    if (!r->op->has_group) {
        ds_buf_printf(out, ": rank %u has no matching %s", plan->rank_of[g->devices[!r->is_recv]],
                      r->is_recv ? "send" : "recv");
        return;
    }
    ds_buf_printf(out, ": not all of the %u ranks of its group issue it; missing", g->n_devices);
    const ds_activity *a = &plan->activities[plan->task_activity[task]];
    for (uint32_t i = 0, listed = 0; i < g->n_devices; i++) {
        bool there = false;
        for (uint32_t k = 0; k < a->n_members; k++) {
            uint32_t cls = plan->task_class[plan->members[a->first_member + k]];
            there = there || plan->classes[cls].device == g->devices[i];
        }
        if (!there)
            ds_buf_printf(out, "%s rank %u", listed++ ? "," : "", plan->rank_of[g->devices[i]]);
    }
}

ds_status ds_engine__deadlock(const ds_stuck *x, ds_error *err) {
    const ds_plan *plan = x->plan;
    uint32_t stuck = 0, task = DS_NONE;
    for (uint32_t t = plan->n_tasks; t-- > 0;)
        if (x->end_ps[t] < 0) {
            stuck++;
            task = t;
        }
    /* A chain ends in an orphan or in a cycle; the visit order tells where the cycle begins. */
    uint32_t *order = ds_xcalloc(plan->n_tasks, sizeof *order), n = 0;
    while (task != DS_NONE && !order[task]) {
        order[task] = ++n;
        task = waits_for(x, task).on;
    }
    ds_buf text = {0};
    uint32_t begin = task == DS_NONE ? 1 : order[task];
    uint32_t t = DS_NONE;
    for (uint32_t i = 0; i < plan->n_tasks; i++)
        if (order[i] == begin) t = i;
    for (uint32_t i = begin; i <= n && i < begin + 20; i++) {
        wait w = waits_for(x, t);
        describe_task(x, t, w.why, &text);
        if (w.on == DS_NONE) describe_missing(x, t, &text);
        t = w.on;
    }
    if (n >= begin + 20) ds_buf_printf(&text, "\n  … %u more", n - begin - 19);
    ds_loc loc = {0};
    for (uint32_t i = 0; i < plan->n_tasks && !loc.line; i++)
        if (order[i] == begin && ds_plan_task_record(plan, i)->op)
            loc = ds_plan_task_record(plan, i)->op->loc;
    ds_status status = ds_error_set(
        err, DS_ERR_DEADLOCK, loc, "deadlock: %u task%s can never run; %s:%s", stuck,
        stuck == 1 ? "" : "s",
        task == DS_NONE ? "the chain of waits ends at" : "these wait for each other in a cycle",
        text.text ? text.text : "");
    ds_buf_deinit(&text);
    free(order);
    return status;
}
