/* A lower bound on every completion of a partial deployment.
 *
 * The decided groups are expanded alone. The tasks that bring the result of one decided operation to
 * another do not depend on other readers of the result, so all of these tasks are in every completion,
 * with the same predecessors. Hence the loads of resources and the longest path bound the makespan. */
#include "search/tag/internal.h"

#include "ir/base/heap.h"

#include <stdlib.h>

static int64_t greater_of(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* ---- floors ---- */

static int64_t floor_of(const ds_tag_tasks *t, const ds_tag_place *place, uint32_t op) {
    const ds_tag_problem *p = t->problem;
    bool is_whole = place->n == 1 || place->way == DS_TAG_SPLIT || place->way == DS_TAG_DUPLICATE ||
                    p->graph.op[op].result == DS_TAG_WHOLE;
    int64_t least = INT64_MAX;
    for (uint32_t i = 0; i < place->n; i++) {
        uint32_t kind = p->cluster.machine[t->machine_of[place->gpu[i]]].kind;
        int64_t samples = is_whole ? p->batch : place->lo[i + 1] - place->lo[i];
        int64_t us = (int64_t)ds_tag_op_us(&p->graph, op, kind, samples);
        if (us < least) least = us;
    }
    return least;
}

void ds_tag_floors(const ds_tag_problem *problem, const ds_tag_action *actions, uint32_t n_actions,
                   int64_t *us) {
    ds_arena arena;
    ds_tag_tasks tasks;
    ds_tag_place place;
    ds_arena_init(&arena);
    ds_tag__tasks_init(&tasks, problem, &arena);
    for (uint32_t op = 0; op < problem->graph.n_ops; op++) us[op] = n_actions ? INT64_MAX : 0;
    for (uint32_t i = 0; i < n_actions; i++) {
        bool is_possible = ds_tag__place(&tasks, &actions[i], 0, &place, NULL) == DS_OK;
        for (uint32_t op = 0; is_possible && op < problem->graph.n_ops; op++) {
            int64_t least = floor_of(&tasks, &place, op);
            if (least < us[op]) us[op] = least;
        }
    }
    ds_arena_deinit(&arena);
}

/* ---- paths ---- */

typedef struct paths {
    const ds_tag_tasks *t;
    const ds_tag_place *place;
    const int64_t *floors;
    int64_t *start_us; /* [task]: not before */
    int64_t *after_us; /* [task]: from the end to the makespan, at least */
    int64_t *chain_us; /* [task]: not before, by the chain of collectives */
    int64_t *done_us;  /* [operation]: no replica has ended before */
} paths;

static bool is_open(const paths *p, uint32_t op) {
    return p->place[p->t->problem->graph.op[op].group].n == 0;
}

/* The latest of the parents, of the open ones alone if the operation is decided. */
static int64_t parents_done(const paths *p, uint32_t op) {
    const ds_tag_op *o = &p->t->problem->graph.op[op];
    int64_t latest = 0;
    for (uint32_t k = 0; k < o->n_parents; k++)
        if (is_open(p, op) || is_open(p, o->parent[k]))
            latest = greater_of(latest, p->done_us[o->parent[k]]);
    return latest;
}

static void follow(const paths *p, uint32_t op) {
    int64_t from_open = parents_done(p, op), first_end = INT64_MAX;
    if (is_open(p, op)) {
        p->done_us[op] = from_open + p->floors[op];
        return;
    }
    for (uint32_t i = p->t->first_task[op]; i < p->t->first_task[op + 1]; i++) {
        const ds_tag_task *task = &p->t->task.at[i];
        int64_t start = greater_of(p->chain_us[i], task->is_replica ? from_open : 0);
        for (uint32_t k = 0; k < task->n_in; k++) {
            uint32_t maker = p->t->tensor.at[p->t->in.at[task->first_in + k]].maker;
            start = greater_of(start, p->start_us[maker] + p->t->task.at[maker].us);
        }
        p->start_us[i] = start;
        if (task->is_replica && start + task->us < first_end) first_end = start + task->us;
    }
    p->done_us[op] = first_end;
}

/* A collective waits for the collective that was created next. */
static bool follow_chain(const paths *p) {
    bool changes = false;
    int64_t later_end = 0;
    for (uint32_t i = p->t->task.n; i-- > 0;) {
        const ds_tag_task *task = &p->t->task.at[i];
        if (task->kind != DS_TAG_COLLECTIVE) continue;
        changes |= p->start_us[i] < later_end;
        p->chain_us[i] = greater_of(p->chain_us[i], later_end);
        later_end = greater_of(p->start_us[i], p->chain_us[i]) + task->us;
    }
    return changes;
}

static void follow_back(const paths *p) {
    const ds_tag_tasks *t = p->t;
    for (uint32_t i = t->task.n; i-- > 0;) {
        const ds_tag_task *task = &t->task.at[i];
        for (uint32_t k = 0; k < task->n_in; k++) {
            int64_t *after = &p->after_us[t->tensor.at[t->in.at[task->first_in + k]].maker];
            *after = greater_of(*after, task->us + p->after_us[i]);
        }
    }
}

static bool chain_back(const paths *p) {
    bool changes = false;
    int64_t least = 0;
    for (uint32_t i = 0; i < p->t->task.n; i++) {
        const ds_tag_task *task = &p->t->task.at[i];
        if (task->kind != DS_TAG_COLLECTIVE) continue;
        changes |= p->after_us[i] < least;
        p->after_us[i] = greater_of(p->after_us[i], least);
        least = p->after_us[i] + task->us;
    }
    return changes;
}

/* ---- loads ---- */

typedef struct load {
    uint32_t resource, task;
    int64_t start_us, left_us;
} load;

static int by_start(const void *a, const void *b) {
    const load *x = a, *y = b;
    if (x->resource != y->resource) return x->resource < y->resource ? -1 : 1;
    if (x->start_us != y->start_us) return x->start_us < y->start_us ? -1 : 1;
    return x->task < y->task ? -1 : x->task > y->task;
}

static uint32_t resource_of(const ds_tag_tasks *t, const ds_tag_task *task) {
    uint32_t n = t->problem->cluster.n_machines;
    if (task->kind == DS_TAG_COLLECTIVE) return 0;
    if (task->kind == DS_TAG_COMPUTE) return 1 + task->gpu;
    return 1 + t->n_gpus + t->machine_of[task->from] * n + t->machine_of[task->gpu];
}

/* Jackson's preemptive schedule of one resource: of the tasks that may run, the task with the most
 * time after it. No order of the resource ends before. Source: Carlier, "The one-machine sequencing
 * problem", EJOR 11, 1982. */
static int64_t schedule(const paths *p, load *loads, uint32_t n, ds_heap *waiting) {
    int64_t now = 0, most = 0;
    for (uint32_t k = 0; k < n || waiting->n > 0;) {
        if (waiting->n == 0) now = greater_of(now, loads[k].start_us);
        for (; k < n && loads[k].start_us <= now; k++)
            ds_heap_push(waiting, -p->after_us[loads[k].task], k);
        uint32_t i = ds_heap_pop(waiting);
        int64_t after = p->after_us[loads[i].task], next = k < n ? loads[k].start_us : INT64_MAX;
        if (now + loads[i].left_us > next) {
            loads[i].left_us -= next - now;
            now = next;
            ds_heap_push(waiting, -after, i);
        } else {
            now += loads[i].left_us;
            most = greater_of(most, now + after);
        }
    }
    return most;
}

static int64_t most_loaded(const paths *p) {
    const ds_tag_tasks *t = p->t;
    load *loads = DS_NEW_N(t->arena, load, t->task.n + 1);
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->task.n; i++) {
        const ds_tag_task *task = &t->task.at[i];
        if (task->us > 0) loads[n++] = (load){resource_of(t, task), i, p->start_us[i], task->us};
    }
    qsort(loads, n, sizeof *loads, by_start);
    ds_heap waiting = {0};
    int64_t most = 0;
    for (uint32_t first = 0, end; first < n; first = end) {
        for (end = first; end < n && loads[end].resource == loads[first].resource;) end++;
        most = greater_of(most, schedule(p, &loads[first], end - first, &waiting));
    }
    ds_heap_deinit(&waiting);
    return most;
}

/* ---- memory ---- */

/* Results that no operation reads are there at the end: do they fit beside each other? */
static bool may_fit(const paths *p) {
    const ds_tag_tasks *t = p->t;
    const ds_tag_graph *g = &t->problem->graph;
    int64_t held[DS_TAG_MAX_GPUS] = {0};
    bool *may_be_read = DS_NEW_N(t->arena, bool, g->n_ops);
    for (uint32_t op = 0; op < g->n_ops; op++)
        for (uint32_t k = 0; is_open(p, op) && k < g->op[op].n_parents; k++)
            may_be_read[g->op[op].parent[k]] = true;
    for (uint32_t i = 0; i < t->tensor.n; i++) {
        const ds_tag_tensor *tensor = &t->tensor.at[i];
        if (tensor->n_readers == 0 && !may_be_read[t->task.at[tensor->maker].op])
            held[tensor->gpu] += tensor->bytes;
    }
    for (uint32_t gpu = 0; gpu < t->n_gpus; gpu++)
        if (held[gpu] > t->problem->cluster.machine[t->machine_of[gpu]].memory_bytes) return false;
    return true;
}

ds_status ds_tag_bound(const ds_tag_problem *problem, const ds_tag_action *action,
                       const int64_t *floors, ds_arena *arena, int64_t *bound_us, ds_error *err) {
    ds_tag_tasks tasks;
    ds_tag__tasks_init(&tasks, problem, arena);
    ds_tag_place *place = DS_NEW_N(arena, ds_tag_place, problem->graph.n_groups);
    for (uint32_t g = 0; g < problem->graph.n_groups; g++)
        if (action[g].gpus) DS_TRY(ds_tag__place(&tasks, &action[g], g, &place[g], err));
    ds_tag__expand(&tasks, place);
    paths p = {.t = &tasks, .place = place, .floors = floors};
    p.start_us = DS_NEW_N(arena, int64_t, tasks.task.n + 1);
    p.after_us = DS_NEW_N(arena, int64_t, tasks.task.n + 1);
    p.chain_us = DS_NEW_N(arena, int64_t, tasks.task.n + 1);
    p.done_us = DS_NEW_N(arena, int64_t, problem->graph.n_ops);
    bool has_chain = problem->quirks & DS_TAG_COLLECTIVE_CHAIN;
    uint32_t n = 0;
    do {
        for (uint32_t op = 0; op < problem->graph.n_ops; op++) follow(&p, op);
        if (++n > tasks.task.n + 2) {
            *bound_us = INT64_MAX;
            return DS_OK;
        }
    } while (has_chain && follow_chain(&p));
    do follow_back(&p);
    while (has_chain && chain_back(&p));
    *bound_us = may_fit(&p) ? most_loaded(&p) : INT64_MAX;
    for (uint32_t op = 0; op < problem->graph.n_ops; op++)
        *bound_us = greater_of(*bound_us, p.done_us[op]);
    return DS_OK;
}
