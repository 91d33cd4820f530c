/* The event loop.
 *
 * Two sources of events: ends of compute tasks and of waits of transfers, in a heap; ends of
 * transfers and their flows, in the network. A task is *ready* when it heads its idle stream and
 * has no dependence left. A ready compute task has a known start (now, or when the host has issued
 * it) and so a known end: it is one event. A ready communication arrives at its meeting; the last
 * arrival starts the transfer.
 *
 * A transfer that shares no link with another one is one event, too. Else it goes through its
 * flows: it waits, loads links until the network says that this flow has ended, and so on.
 *
 * Where transfers slow compute (pace.h), an end is not known for good: each change of pace puts the
 * task into the heap once more, and what is there from before is stale.
 *
 * Where the network is stepwise, a transfer is its messages: each waits for those before it, for
 * its latency, and for its turn on the edge of a pipeline, and then flows (steps.c).
 *
 * The heap's ids are tasks (compute ends); n_tasks + activity: a transfer whose last member is
 * still being issued by the host, or whose wait before a flow ends; and n_tasks + n_activities +
 * task: compute that is still being issued, where transfers may slow it; beyond these, messages. */
#include "sim/engine/engine.h"

#include "ir/base/heap.h"
#include "ir/base/units.h"
#include "sim/engine/internal.h"
#include "sim/engine/pace.h"
#include "sim/engine/repeat.h"
#include "sim/engine/steps.h"
#include "sim/net/net.h"

#include <stdlib.h>
#include <string.h>

typedef struct engine {
    const ds_plan *plan;
    ds_heap heap;
    ds_net *net;
    ds_pace *pace;   /* NULL: transfers slow no compute */
    ds_steps *steps; /* NULL: no transfer has messages */
    ds_gates gates;
    uint32_t *n_pred;  /* per task */
    uint32_t *head;    /* per stream: tasks ended */
    uint32_t *missing; /* per activity: members not arrived */
    int64_t *ready_ps; /* per activity: latest arrival */
    uint32_t *place;   /* per activity: by which it was started among all; DS_NONE before */
    uint32_t *flow;    /* per activity: the flow it is in or waits for; DS_NONE: none is left */
    uint32_t n_started;
    int64_t *start_ps, *end_ps;
    int64_t *pause_ps; /* per pause: its end; -1: not asked for yet */
    uint32_t *order;
    int64_t now_ps;
    uint32_t n_done;
    uint32_t late; /* the first task of which a time left int64; DS_NONE */
} engine;

/* Every time that the loop goes to is checked here, once: at_ps itself if it is the task's. */
static int64_t in_time(engine *e, uint32_t task, int64_t at_ps) {
    if (at_ps == DS_NEVER_PS && e->late == DS_NONE) e->late = task;
    return at_ps;
}

static int64_t later(engine *e, uint32_t task, int64_t at_ps, int64_t ps) {
    return in_time(e, task, ds_ps_sum(at_ps, ps));
}

static uint32_t member_of(const engine *e, uint32_t activity) {
    return e->plan->members[e->plan->activities[activity].first_member];
}

static void push_end(engine *e, uint32_t task, int64_t end_ps) {
    ds_heap_push(&e->heap, in_time(e, task, end_ps), task);
}

/* The transfer waits, and then for what its flow `next` waits, until the first of its flows that
 * loads links which others may load; if there is none any more, it ends after the wait. */
static void wait_for_flow(engine *e, uint32_t activity, uint32_t next, int64_t wait_ps) {
    const ds_activity *a = &e->plan->activities[activity];
    const ds_flow *flows = e->plan->flows;
    uint32_t task = member_of(e, activity);
    for (uint32_t f = next; f < a->first_flow + a->n_flows; f++) {
        wait_ps = later(e, task, wait_ps, flows[f].wait_ps);
        if (!flows[f].share.n_uses) {
            wait_ps = later(e, task, wait_ps, flows[f].alone_ps);
            continue;
        }
        e->flow[activity] = f;
        ds_heap_push(&e->heap, later(e, task, e->now_ps, wait_ps), e->plan->n_tasks + activity);
        return;
    }
    e->flow[activity] = DS_NONE;
    ds_net_wait(e->net, activity, e->place[activity], later(e, task, e->now_ps, wait_ps));
}

/* What the activity takes beyond its flows: nothing, unless somebody has changed it since the plan
 * was made. */
static int64_t extra_ps(const ds_plan *plan, const ds_activity *a) {
    ds_i128 ps = a->ps;
    for (uint32_t i = 0; i < a->n_flows; i++) {
        const ds_flow *f = &plan->flows[a->first_flow + i];
        ps -= (ds_i128)f->wait_ps + f->alone_ps;
    }
    return ps < -DS_NEVER_PS ? -DS_NEVER_PS : (int64_t)ps; /* a flow that never ends tells itself */
}

/* A transfer begins or ends on the devices of its members. */
static void change_pace(engine *e, const ds_activity *a, bool begins) {
    for (uint32_t i = 0; i < a->n_members; i++) {
        uint32_t cls = e->plan->task_class[e->plan->members[a->first_member + i]];
        if (!ds_pace_transfer(e->pace, cls, begins, e->now_ps)) continue;
        for (uint32_t t = ds_pace_first(e->pace, cls); t != DS_NONE; t = ds_pace_next(e->pace, t))
            push_end(e, t, ds_pace_due_ps(e->pace, t));
    }
}

/* Messages of which the heap has to be told when their latency is over. */
static void wait_for_steps(engine *e) {
    uint32_t base = 2 * e->plan->n_tasks + e->plan->n_activities, step;
    int64_t at_ps;
    while (ds_steps_take(e->steps, &step, &at_ps)) {
        if (at_ps == DS_NEVER_PS) in_time(e, member_of(e, ds_steps_owner(e->steps, step)), at_ps);
        ds_heap_push(&e->heap, at_ps, base + step);
    }
}

static void start_transfer(engine *e, uint32_t activity) {
    const ds_activity *a = &e->plan->activities[activity];
    for (uint32_t i = 0; i < a->n_members; i++)
        e->start_ps[e->plan->members[a->first_member + i]] = e->now_ps;
    e->place[activity] = e->n_started++;
    if (e->pace) change_pace(e, a, true);
    if (a->n_steps) {
        int64_t launch_ps = a->group->terms.launch_ps;
        ds_steps_start(e->steps, activity, later(e, member_of(e, activity), e->now_ps, launch_ps));
        wait_for_steps(e);
        return;
    }
    wait_for_flow(e, activity, a->first_flow, extra_ps(e->plan, a));
}

/* The wait of a transfer is over: for its last member to be issued, or for its flow to begin. */
static void go_on(engine *e, uint32_t activity) {
    if (e->place[activity] == DS_NONE)
        start_transfer(e, activity);
    else
        ds_net_flow(e->net, activity, e->place[activity], e->flow[activity], e->now_ps);
}

/* Compute that transfers may slow, once it is issued. */
static void start_varying(engine *e, uint32_t task, int64_t at_ps) {
    if (at_ps > e->now_ps)
        ds_heap_push(&e->heap, at_ps, e->plan->n_tasks + e->plan->n_activities + task);
    else
        push_end(e, task, ds_pace_start(e->pace, task, at_ps));
}

/* A pause ends with its transfer, if the host is there by then. Whoever asks has waited for the
 * transfers of the pause and of all before. */
static int64_t end_of_pause(engine *e, uint32_t pause) {
    if (pause == DS_NONE) return 0;
    if (e->pause_ps[pause] >= 0) return e->pause_ps[pause];
    const ds_pause *p = &e->plan->pauses[pause];
    int64_t begin = ds_ps_sum(end_of_pause(e, p->before), p->issue_ps), end = e->end_ps[p->task];
    return e->pause_ps[pause] = begin > end ? begin : end;
}

static int64_t issue_of(engine *e, uint32_t task) {
    int64_t ps = e->plan->task_issue_ps[task];
    if (!e->plan->task_pause) return ps;
    return ds_ps_sum(end_of_pause(e, e->plan->task_pause[task]), ps);
}

/* All members of the transfer have arrived. */
static void meet(engine *e, uint32_t activity) {
    if (e->ready_ps[activity] <= e->now_ps)
        start_transfer(e, activity);
    else
        ds_heap_push(&e->heap, e->ready_ps[activity], e->plan->n_tasks + activity);
}

/* The task heads its idle stream and all its dependences have ended. */
static void ready(engine *e, uint32_t task) {
    const ds_plan *plan = e->plan;
    int64_t issue_ps = issue_of(e, task), at = issue_ps > e->now_ps ? issue_ps : e->now_ps;
    in_time(e, task, at);
    uint32_t activity = plan->task_activity[task];
    if (activity == DS_NONE) {
        if (ds_gates_hold(&e->gates, task, task, e->now_ps)) return;
        if (issue_ps > e->now_ps) ds_gates_bind(&e->gates, plan->task_class[task], at);
        e->start_ps[task] = at;
        if (e->pace && ds_pace_varies(e->pace, plan->task_class[task]))
            start_varying(e, task, at);
        else
            ds_heap_push(&e->heap, later(e, task, at, plan->task_ps[task]), task);
        return;
    }
    if (issue_ps > e->now_ps) ds_gates_bind(&e->gates, plan->task_class[task], at);
    if (at > e->ready_ps[activity]) e->ready_ps[activity] = at;
    if (--e->missing[activity] || plan->activities[activity].orphan) return;
    if (!ds_gates_hold(&e->gates, task, plan->n_tasks + activity, e->now_ps)) meet(e, activity);
}

/* Opens the gates that all tasks before have reached, and lets go of what they held. */
static void open_gates(engine *e) {
    const ds_plan *plan = e->plan;
    uint32_t id;
    if (!ds_gates_open(&e->gates, e->n_done, &e->now_ps)) return;
    if (e->now_ps == DS_NEVER_PS && e->n_done < plan->n_tasks) in_time(e, e->n_done, DS_NEVER_PS);
    while (e->now_ps != DS_NEVER_PS && ds_gates_take(&e->gates, &id)) {
        if (id < plan->n_tasks)
            ready(e, id);
        else
            meet(e, id - plan->n_tasks);
    }
}

static bool heads_stream(const engine *e, uint32_t task) {
    const ds_stream *s = &e->plan->streams[e->plan->task_stream[task]];
    return e->plan->stream_tasks[s->first + e->head[e->plan->task_stream[task]]] == task;
}

static void end_task(engine *e, uint32_t task) {
    const ds_plan *plan = e->plan;
    e->end_ps[task] = e->now_ps;
    e->order[e->n_done++] = task;
    uint32_t stream = plan->task_stream[task];
    const ds_stream *s = &plan->streams[stream];
    uint32_t head = ++e->head[stream];
    if (head < s->n) {
        uint32_t next = plan->stream_tasks[s->first + head];
        if (!e->n_pred[next]) ready(e, next);
    }
    for (uint32_t i = plan->succ_first[task]; i < plan->succ_first[task + 1]; i++) {
        uint32_t next = plan->succ[i];
        if (!--e->n_pred[next] && heads_stream(e, next)) ready(e, next);
    }
}

static void start_first_tasks(engine *e) {
    for (uint32_t s = 0; s < e->plan->n_streams; s++) {
        uint32_t task = e->plan->stream_tasks[e->plan->streams[s].first];
        if (!e->n_pred[task]) ready(e, task);
    }
}

/* A flow has ended, or the whole transfer, or one of its messages. */
static void end_flow(engine *e, uint32_t activity) {
    const ds_plan *plan = e->plan;
    if (activity >= plan->n_activities) {
        activity = ds_steps_end(e->steps, activity - plan->n_activities, e->now_ps);
        wait_for_steps(e);
        if (activity == DS_NONE) return;
        e->flow[activity] = DS_NONE;
    }
    const ds_activity *a = &plan->activities[activity];
    uint32_t flow = e->flow[activity];
    if (flow != DS_NONE && flow + 1 < a->first_flow + a->n_flows) {
        wait_for_flow(e, activity, flow + 1, 0);
        return;
    }
    if (e->pace) change_pace(e, a, false);
    for (uint32_t i = 0; i < a->n_members; i++) end_task(e, plan->members[a->first_member + i]);
}

/* A wait that the heap told is over. */
static void end_wait(engine *e, uint32_t id) {
    const ds_plan *plan = e->plan;
    if (id < plan->n_tasks + plan->n_activities) {
        go_on(e, id - plan->n_tasks);
        return;
    }
    uint32_t task = id - plan->n_tasks - plan->n_activities;
    if (task >= plan->n_tasks) {
        ds_steps_waited(e->steps, task - plan->n_tasks, e->now_ps);
        return;
    }
    push_end(e, task, ds_pace_start(e->pace, task, e->now_ps));
}

static void drop_stale(engine *e) {
    while (e->heap.n) {
        uint32_t id = (uint32_t)e->heap.at[0].sequence_and_id;
        if (id >= e->plan->n_tasks || !ds_pace_varies(e->pace, e->plan->task_class[id]) ||
            ds_pace_due_ps(e->pace, id) == e->heap.at[0].time_ps)
            return;
        ds_heap_pop(&e->heap);
    }
}

/* Error: no flow that is left ends within int64. */
static void never_ends(engine *e, uint32_t activity) {
    uint32_t n = e->plan->n_activities;
    if (activity >= n) activity = ds_steps_owner(e->steps, activity - n);
    in_time(e, member_of(e, activity), DS_NEVER_PS);
}

/* Does what comes next; false if there is nothing. What happens now in the heap comes before the
 * network is asked, which looks for rates once all that happens at one time has happened. */
static bool next_event(engine *e) {
    if (e->pace) drop_stale(e);
    int64_t heap_ps = e->heap.n ? e->heap.at[0].time_ps : DS_NEVER_PS;
    int64_t net_ps =
        e->heap.n && heap_ps == e->now_ps ? DS_NEVER_PS : ds_net_next_ps(e->net, e->now_ps);
    if (e->heap.n && heap_ps <= net_ps) {
        e->now_ps = heap_ps;
        uint32_t id = ds_heap_pop(&e->heap);
        if (id >= e->plan->n_tasks) {
            end_wait(e, id);
            return true;
        }
        if (e->pace) ds_pace_end(e->pace, id);
        end_task(e, id);
        return true;
    }
    if (net_ps == DS_NEVER_PS) {
        if (ds_net_n_active(e->net)) never_ends(e, ds_net_pop(e->net));
        return false;
    }
    e->now_ps = net_ps;
    end_flow(e, ds_net_pop(e->net));
    return true;
}

/* `last`: the first task that ends after int64 picoseconds; DS_NONE. */
static ds_status too_long(const ds_plan *plan, uint32_t last, ds_error *err) {
    const ds_op *op = last == DS_NONE ? NULL : ds_plan_task_record(plan, last)->op;
    ds_buf label = {0};
    if (last != DS_NONE) ds_buf_put(&label, "; the first task to end too late is ");
    if (last != DS_NONE) ds_plan_task_label(plan, last, &label);
    ds_status status =
        ds_error_set(err, DS_ERR_OVERFLOW, op ? op->loc : DS_NOWHERE,
                     "the step takes longer than 106 days, the range of int64 picoseconds%s",
                     label.text ? label.text : "");
    ds_buf_deinit(&label);
    return status;
}

ds_status ds_engine_run(const ds_plan *plan, ds_progress progress, void *context, ds_run *out,
                        ds_error *err) {
    *out = (ds_run){0};
    engine e = {.plan = plan, .pace = ds_pace_new(plan), .late = DS_NONE};
    e.net = ds_net_new(plan->link_capacity_q20, plan->n_links, plan->flows, plan->n_flows,
                       plan->n_activities + plan->n_steps);
    e.steps = ds_steps_new(plan, e.net);
    e.n_pred = ds_xcalloc(plan->n_tasks, sizeof *e.n_pred);
    if (plan->n_tasks) memcpy(e.n_pred, plan->task_n_pred, plan->n_tasks * sizeof *e.n_pred);
    e.head = ds_xcalloc(plan->n_streams, sizeof *e.head);
    e.missing = ds_xcalloc(plan->n_activities, sizeof *e.missing);
    e.ready_ps = ds_xcalloc(plan->n_activities, sizeof *e.ready_ps);
    e.place = ds_xcalloc(plan->n_activities, sizeof *e.place);
    e.flow = ds_xcalloc(plan->n_activities, sizeof *e.flow);
    e.start_ps = ds_xcalloc(plan->n_tasks, sizeof *e.start_ps);
    e.end_ps = ds_xcalloc(plan->n_tasks, sizeof *e.end_ps);
    e.order = ds_xcalloc(plan->n_tasks, sizeof *e.order);
    e.pause_ps = ds_xcalloc(plan->n_pauses, sizeof *e.pause_ps);
    for (uint32_t p = 0; p < plan->n_pauses; p++) e.pause_ps[p] = -1;
    for (uint32_t a = 0; a < plan->n_activities; a++) {
        e.missing[a] = plan->activities[a].n_members;
        e.place[a] = DS_NONE;
    }
    for (uint32_t t = 0; t < plan->n_tasks; t++) e.start_ps[t] = e.end_ps[t] = -1;
    e.gates = ds_gates_new(plan);
    start_first_tasks(&e);
    open_gates(&e);
    const ds_stop *stop = plan->binding->unit->stop;
    ds_status status = DS_OK;
    uint32_t polls = 0;
    while (status == DS_OK && e.late == DS_NONE && e.gates.refused == DS_NONE && next_event(&e)) {
        status = ds_stop_check_often(stop, &polls, err);
        open_gates(&e);
        if ((++out->n_events & 0xffff) == 0 && progress) progress(context, e.n_done, plan->n_tasks);
    }
    if (status != DS_OK)
        ;
    else if (e.late != DS_NONE)
        status = too_long(plan, e.late, err);
    else if (e.gates.refused == DS_NONE && e.n_done < plan->n_tasks)
        status = ds_engine__deadlock(&(ds_stuck){plan, e.head, e.n_pred, e.end_ps}, err);
    out->start_ps = e.start_ps;
    out->end_ps = e.end_ps;
    out->order = e.order;
    out->pause_ps = e.pause_ps;
    out->turn_ps = e.gates.turn_ps;
    out->refused = e.gates.refused;
    out->step_ps = ds_ps_sum(e.now_ps, plan->overhead_ps);
    if (status == DS_OK && out->step_ps == DS_NEVER_PS) status = too_long(plan, DS_NONE, err);
    free(e.n_pred);
    free(e.head);
    free(e.missing);
    free(e.ready_ps);
    free(e.place);
    free(e.flow);
    ds_heap_deinit(&e.heap);
    ds_net_free(e.net);
    ds_pace_free(e.pace);
    ds_steps_free(e.steps);
    ds_gates_deinit(&e.gates);
    if (status != DS_OK) ds_run_deinit(out);
    return status;
}

int64_t ds_run_issue_ps(const ds_run *run, const ds_plan *plan, uint32_t task) {
    uint32_t pause = plan->task_pause ? plan->task_pause[task] : DS_NONE;
    int64_t after_ps = pause == DS_NONE ? 0 : run->pause_ps[pause];
    return ds_ps_sum(after_ps, plan->task_issue_ps[task]);
}

void ds_run_deinit(ds_run *run) {
    free(run->pause_ps);
    free(run->turn_ps);
    free(run->start_ps);
    free(run->end_ps);
    free(run->order);
    *run = (ds_run){0};
}
