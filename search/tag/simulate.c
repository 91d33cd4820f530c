/* Events of an expanded deployment.
 *
 * A task is ready as soon as all of its predecessors have ended. A ready task is put on its
 * resources at once, in the order of readiness, and starts when the last of its resources becomes
 * free:
 *
 *     computation   its GPU
 *     transfer      its links (and not the GPUs)
 *     collective    the one collective that runs at a time (and not links and GPUs: a quirk)
 *
 * A resource is taken until the task ends, so a task that waits for one link holds the other. Ends
 * are events. TAG leaves equal times to its heap; here the task that was created first ends first,
 * and tasks that an end makes ready are put on in the order of creation.
 *
 * At an end, tensors that have no reader left are freed, then the task's own are allocated. */
#include "search/tag/internal.h"

#include "ir/base/heap.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* ---- durations ---- */

int64_t ds_tag_collective_us(int64_t bytes, int64_t mb_per_s, uint32_t quirks) {
    bool is_cut = quirks & DS_TAG_TRUNCATE;
    double kib = is_cut ? (double)(bytes >> 10) : (double)bytes / 1024;
    double us = fmax(0.043420241077615454 * kib + 368.2013618677043,
                     0.27766802543921265 * kib + 211.91926070037152);
    us *= 2810 / (double)mb_per_s;
    return (int64_t)(is_cut ? us : us + 0.5);
}

int64_t ds_tag_transfer_us(int64_t bytes, int64_t mb_per_s, uint32_t quirks) {
    return (bytes + (quirks & DS_TAG_TRUNCATE ? 0 : mb_per_s / 2)) / mb_per_s + 12;
}

/* ---- the state of a run ---- */

typedef struct run {
    const ds_tag_tasks *t;
    ds_tag_outcome *out;
    uint32_t quirks, n_machines;
    uint32_t (*before)[2];       /* [task]: predecessors that make no tensor for the task */
    uint32_t *waits;             /* [task]: predecessors that have not ended */
    uint32_t *first_next, *next; /* followers of task i: next[first_next[i] … first_next[i + 1]) */
    int64_t *start_us, *end_us;  /* [task]; -1: not yet */
    int64_t *gpu_free_us, *link_free_us, collective_free_us;
    uint32_t *readers_left; /* [tensor] */
    int64_t *held_bytes;    /* [GPU] */
    ds_heap events;
} run;

enum { CHAIN, RANK }; /* of run.before */

/* ---- order ---- */

static void chain_collectives(run *r) {
    uint32_t later = DS_TAG_NONE;
    for (uint32_t i = r->t->task.n; i-- > 0;) {
        if (r->t->task.at[i].kind != DS_TAG_COLLECTIVE) continue;
        r->before[i][CHAIN] = later;
        later = i;
    }
}

/* Followers in the order of creation. */
static void link_tasks(run *r) {
    const ds_tag_tasks *t = r->t;
    uint32_t n = t->task.n;
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < n; i++) {
            const ds_tag_task *task = &t->task.at[i];
            for (uint32_t k = 0; k < task->n_in + 2; k++) {
                uint32_t maker = k < task->n_in ? t->tensor.at[t->in.at[task->first_in + k]].maker
                                                : r->before[i][k - task->n_in];
                if (maker == DS_TAG_NONE) continue;
                if (pass == 0) {
                    r->first_next[maker + 2]++;
                    r->waits[i]++;
                } else {
                    r->next[r->first_next[maker + 1]++] = i;
                }
            }
        }
        if (pass == 0)
            for (uint32_t i = 2; i < n + 2; i++) r->first_next[i] += r->first_next[i - 1];
        if (pass == 0) r->next = DS_NEW_N(t->arena, uint32_t, r->first_next[n + 1] + 1);
    }
}

typedef struct ranked {
    int64_t rank;
    uint32_t task;
} ranked;

static int by_rank(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    if (x->rank != y->rank) return x->rank > y->rank ? -1 : 1;
    return x->task < y->task ? -1 : x->task > y->task;
}

/* Kahn's order backwards: a rank is known when all followers' ranks are. A task on a cycle keeps
 * rank 0, and the run reports the cycle. */
static void rank_tasks(const run *r, ranked *rank) {
    const ds_tag_tasks *t = r->t;
    uint32_t n = t->task.n, done = 0, n_ordered = 0;
    uint32_t *order = DS_NEW_N(t->arena, uint32_t, n + 1);
    uint32_t *waits = DS_NEW_N(t->arena, uint32_t, n + 1);
    for (uint32_t i = 0; i < n; i++) {
        rank[i] = (ranked){0, i};
        waits[i] = r->waits[i];
        if (waits[i] == 0) order[n_ordered++] = i;
    }
    for (; done < n_ordered; done++)
        for (uint32_t k = r->first_next[order[done]]; k < r->first_next[order[done] + 1]; k++)
            if (--waits[r->next[k]] == 0) order[n_ordered++] = r->next[k];
    while (done-- > 0) {
        uint32_t i = order[done];
        int64_t most = 0;
        for (uint32_t k = r->first_next[i]; k < r->first_next[i + 1]; k++)
            if (rank[r->next[k]].rank > most) most = rank[r->next[k]].rank;
        rank[i].rank = most + t->task.at[i].us + 1;
    }
}

/* Each GPU's computations one after the other by falling rank, equal ranks as created. */
static void order_by_rank(run *r) {
    const ds_tag_tasks *t = r->t;
    ranked *rank = DS_NEW_N(t->arena, ranked, t->task.n);
    uint32_t *last = DS_NEW_N(t->arena, uint32_t, t->n_gpus);
    rank_tasks(r, rank);
    qsort(rank, t->task.n, sizeof *rank, by_rank);
    for (uint32_t g = 0; g < t->n_gpus; g++) last[g] = DS_TAG_NONE;
    for (uint32_t i = 0; i < t->task.n; i++) {
        const ds_tag_task *task = &t->task.at[rank[i].task];
        if (task->kind != DS_TAG_COMPUTE) continue;
        r->before[rank[i].task][RANK] = last[task->gpu];
        last[task->gpu] = rank[i].task;
    }
}

static void start_over(run *r) {
    uint32_t n = r->t->task.n;
    r->waits = DS_NEW_N(r->t->arena, uint32_t, n);
    r->first_next = DS_NEW_N(r->t->arena, uint32_t, n + 2);
    link_tasks(r);
}

/* ---- resources ---- */

static int64_t later_of(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* The link or links of a transfer: one for an ordered pair, or a way out and a way in. */
static void links_of(const run *r, uint32_t from_gpu, uint32_t to_gpu, uint32_t links[2]) {
    uint32_t from = r->t->machine_of[from_gpu], to = r->t->machine_of[to_gpu], n = r->n_machines;
    links[0] = links[1] = from * n + to;
    if (from != to && !(r->quirks & DS_TAG_PAIR_LINKS)) {
        links[0] = n * n + from;
        links[1] = n * n + n + to;
    }
}

/* A collective that loads its members: the latest time at which all are free, or, with `until`,
 * takes all of them until then. */
static int64_t take_members(run *r, const ds_tag_task *task, int64_t until) {
    const ds_tag_tensor *member = &r->t->tensor.at[task->first_out];
    int64_t free_us = 0;
    for (uint32_t i = 0; i < task->n_out; i++) {
        free_us = later_of(free_us, r->gpu_free_us[member[i].gpu]);
        if (until >= 0) r->gpu_free_us[member[i].gpu] = until;
        for (uint32_t j = 0; j < task->n_out; j++) {
            uint32_t links[2];
            if (i == j) continue;
            links_of(r, member[i].gpu, member[j].gpu, links);
            for (uint32_t k = 0; k < 2; k++) {
                free_us = later_of(free_us, r->link_free_us[links[k]]);
                if (until >= 0) r->link_free_us[links[k]] = until;
            }
        }
    }
    return free_us;
}

static void put_on(run *r, uint32_t i, int64_t now_us) {
    const ds_tag_task *task = &r->t->task.at[i];
    uint32_t links[2];
    int64_t start = now_us, end;
    switch (task->kind) {
    case DS_TAG_COMPUTE:
        start = later_of(start, r->gpu_free_us[task->gpu]);
        end = start + task->us;
        r->gpu_free_us[task->gpu] = end;
        r->out->busy_us[task->gpu] += task->us;
        break;
    case DS_TAG_TRANSFER:
        links_of(r, task->from, task->gpu, links);
        start = later_of(start, later_of(r->link_free_us[links[0]], r->link_free_us[links[1]]));
        end = start + task->us;
        r->link_free_us[links[0]] = r->link_free_us[links[1]] = end;
        break;
    default:
        start = later_of(start, r->collective_free_us);
        if (!(r->quirks & DS_TAG_COLLECTIVE_FREE))
            start = later_of(start, take_members(r, task, -1));
        end = start + task->us;
        r->collective_free_us = end;
        if (!(r->quirks & DS_TAG_COLLECTIVE_FREE)) take_members(r, task, end);
    }
    r->start_us[i] = start;
    r->end_us[i] = end;
    ds_heap_push_ranked(&r->events, end, 0, i); /* equal ends leave by the number of the task */
}

/* ---- events ---- */

static void hold(run *r, const ds_tag_task *task) {
    const ds_tag_tasks *t = r->t;
    for (uint32_t k = 0; k < task->n_in; k++) {
        uint32_t in = t->in.at[task->first_in + k];
        if (--r->readers_left[in] == 0)
            r->held_bytes[t->tensor.at[in].gpu] -= t->tensor.at[in].bytes;
    }
    for (uint32_t k = 0; k < task->n_out; k++) {
        const ds_tag_tensor *tensor = &t->tensor.at[task->first_out + k];
        int64_t held = r->held_bytes[tensor->gpu] += tensor->bytes;
        if (held > r->out->peak_bytes[tensor->gpu]) r->out->peak_bytes[tensor->gpu] = held;
    }
}

static uint32_t run_events(run *r) {
    uint32_t n_ended = 0;
    for (uint32_t i = 0; i < r->t->task.n; i++) r->start_us[i] = r->end_us[i] = -1;
    for (uint32_t i = 0; i < r->t->task.n; i++)
        if (r->waits[i] == 0) put_on(r, i, 0);
    for (; r->events.n > 0; n_ended++) {
        uint32_t i = ds_heap_pop(&r->events);
        r->out->makespan_us = r->end_us[i];
        hold(r, &r->t->task.at[i]);
        for (uint32_t k = r->first_next[i]; k < r->first_next[i + 1]; k++)
            if (--r->waits[r->next[k]] == 0) put_on(r, r->next[k], r->end_us[i]);
    }
    ds_heap_deinit(&r->events);
    return n_ended;
}

static ds_status stuck(const run *r, uint32_t n_ended, ds_error *err) {
    const ds_tag_graph *g = &r->t->problem->graph;
    uint32_t i = 0;
    while (r->start_us[i] >= 0 || r->t->task.at[i].kind != DS_TAG_COLLECTIVE ||
           r->before[i][CHAIN] == DS_TAG_NONE || r->start_us[r->before[i][CHAIN]] >= 0)
        if (++i == r->t->task.n) break;
    assert(i < r->t->task.n); /* without the chain tasks follow the graph */
    uint32_t op = r->t->task.at[i].op, other = r->t->task.at[r->before[i][CHAIN]].op;
    return ds_error_set(err, DS_ERR_DEADLOCK, DS_NOWHERE,
                        "%u of %u tasks never start: the all_reduce of operation %u ('%s') waits "
                        "for the all_reduce of operation %u ('%s'), which was created next (quirk "
                        "COLLECTIVE_CHAIN)",
                        r->t->task.n - n_ended, r->t->task.n, op,
                        g->op[op].name ? g->op[op].name : "?", other,
                        g->op[other].name ? g->op[other].name : "?");
}

/* ---- feedback ---- */

static void tell_ops(const run *r) {
    const ds_tag_graph *g = &r->t->problem->graph;
    ds_tag_outcome *out = r->out;
    int64_t *first = DS_NEW_N(r->t->arena, int64_t, g->n_ops);
    int64_t *last = DS_NEW_N(r->t->arena, int64_t, g->n_ops);
    for (uint32_t op = 0; op < g->n_ops; op++) {
        first[op] = INT64_MAX;
        out->op_idle_us[op] = -1;
    }
    for (uint32_t i = 0; i < r->t->task.n; i++) {
        const ds_tag_task *task = &r->t->task.at[i];
        if (!task->is_replica) continue;
        if (r->start_us[i] < first[task->op]) first[task->op] = r->start_us[i];
        if (r->end_us[i] > last[task->op]) last[task->op] = r->end_us[i];
    }
    for (uint32_t op = 0; op < g->n_ops; op++) {
        out->op_us[op] = last[op] - first[op];
        for (uint32_t k = 0; k < g->op[op].n_parents; k++) {
            uint32_t parent = g->op[op].parent[k];
            int64_t gap = later_of(0, first[op] - last[parent]);
            int64_t *idle = &out->op_idle_us[parent];
            if (*idle < 0 || gap < *idle) *idle = gap;
        }
    }
    for (uint32_t op = 0; op < g->n_ops; op++)
        if (out->op_idle_us[op] < 0) out->op_idle_us[op] = 0;
}

static void tell_gpus(const run *r) {
    ds_tag_outcome *out = r->out;
    out->fits = true;
    for (uint32_t gpu = 0; gpu < r->t->n_gpus; gpu++) {
        uint32_t machine = r->t->machine_of[gpu];
        if (out->peak_bytes[gpu] > r->t->problem->cluster.machine[machine].memory_bytes)
            out->fits = false;
        if (out->makespan_us == 0) continue;
        out->utilisation[gpu] = r->quirks & DS_TAG_INTEGER_UTILISATION
                                    ? (double)(out->busy_us[gpu] / out->makespan_us)
                                    : (double)out->busy_us[gpu] / (double)out->makespan_us;
    }
    for (uint32_t i = 0; i < r->t->task.n; i++) {
        const ds_tag_task *task = &r->t->task.at[i];
        out->n_transfers += task->kind == DS_TAG_TRANSFER;
        out->n_collectives += task->kind == DS_TAG_COLLECTIVE;
        if (task->kind == DS_TAG_TRANSFER)
            out->moved_bytes += r->t->tensor.at[task->first_out].bytes;
    }
}

/* ---- a run ---- */

static void init_outcome(const ds_tag_tasks *t, ds_tag_outcome *out) {
    uint32_t n_ops = t->problem->graph.n_ops;
    *out = (ds_tag_outcome){.n_tasks = t->task.n};
    out->peak_bytes = DS_NEW_N(t->arena, int64_t, t->n_gpus);
    out->busy_us = DS_NEW_N(t->arena, int64_t, t->n_gpus);
    out->utilisation = DS_NEW_N(t->arena, double, t->n_gpus);
    out->op_us = DS_NEW_N(t->arena, int64_t, n_ops);
    out->op_idle_us = DS_NEW_N(t->arena, int64_t, n_ops);
}

static void init_run(run *r, const ds_tag_tasks *t, ds_tag_outcome *out) {
    uint32_t n = t->task.n, n_machines = t->problem->cluster.n_machines;
    *r = (run){.t = t, .out = out, .quirks = t->problem->quirks, .n_machines = n_machines};
    r->before = ds_arena_calloc(t->arena, n, sizeof *r->before);
    for (uint32_t i = 0; i < n; i++) r->before[i][CHAIN] = r->before[i][RANK] = DS_TAG_NONE;
    r->start_us = DS_NEW_N(t->arena, int64_t, n);
    r->end_us = DS_NEW_N(t->arena, int64_t, n);
    r->gpu_free_us = DS_NEW_N(t->arena, int64_t, t->n_gpus);
    r->held_bytes = DS_NEW_N(t->arena, int64_t, t->n_gpus);
    r->link_free_us = DS_NEW_N(t->arena, int64_t, (n_machines + 2) * n_machines);
    r->readers_left = DS_NEW_N(t->arena, uint32_t, t->tensor.n);
    for (uint32_t i = 0; i < t->tensor.n; i++) r->readers_left[i] = t->tensor.at[i].n_readers;
    if (r->quirks & DS_TAG_COLLECTIVE_CHAIN) chain_collectives(r);
    start_over(r);
    if (t->problem->is_ranked) {
        order_by_rank(r);
        start_over(r);
    }
}

ds_status ds_tag_simulate(const ds_tag_problem *problem, const ds_tag_action *action,
                          ds_arena *arena, ds_tag_outcome *out, ds_error *err) {
    ds_tag_tasks tasks;
    ds_tag__tasks_init(&tasks, problem, arena);
    ds_tag_place *place;
    DS_TRY(ds_tag__places(&tasks, action, &place, err));
    ds_tag__expand(&tasks, place);
    run r;
    init_outcome(&tasks, out);
    init_run(&r, &tasks, out);
    uint32_t n_ended = run_events(&r);
    if (n_ended < tasks.task.n) return stuck(&r, n_ended, err);
    tell_ops(&r);
    tell_gpus(&r);
    return DS_OK;
}
