/* A lower bound on every completion of a partial deployment.
 *
 * The decided groups are expanded alone. The tasks that bring the result of one decided operation to
 * another do not depend on other readers of the result, so all of these tasks are in every completion,
 * with the same predecessors. Hence the loads of resources and the longest path bound the makespan. */
#include "search/tag/internal.h"

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

/* ---- loads ---- */

static int64_t most_loaded(const ds_tag_tasks *t) {
    uint32_t n = t->problem->cluster.n_machines;
    int64_t *gpu_us = DS_NEW_N(t->arena, int64_t, t->n_gpus), most = 0, collectives_us = 0;
    int64_t *link_us = DS_NEW_N(t->arena, int64_t, n * n);
    for (uint32_t i = 0; i < t->task.n; i++) {
        const ds_tag_task *task = &t->task.at[i];
        int64_t *load = &collectives_us;
        if (task->kind == DS_TAG_COMPUTE) load = &gpu_us[task->gpu];
        if (task->kind == DS_TAG_TRANSFER)
            load = &link_us[t->machine_of[task->from] * n + t->machine_of[task->gpu]];
        *load += task->us;
        most = greater_of(most, *load);
    }
    return most;
}

/* ---- paths ---- */

typedef struct paths {
    const ds_tag_tasks *t;
    const ds_tag_place *place;
    const int64_t *floors;
    int64_t *end_us;  /* [task]: not before */
    int64_t *done_us; /* [operation]: no replica has ended before */
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

static int64_t follow(const paths *p, uint32_t op) {
    int64_t from_open = parents_done(p, op), latest = 0, first_end = INT64_MAX;
    if (is_open(p, op)) return p->done_us[op] = from_open + p->floors[op];
    for (uint32_t i = p->t->first_task[op]; i < p->t->first_task[op + 1]; i++) {
        const ds_tag_task *task = &p->t->task.at[i];
        int64_t start = task->is_replica ? from_open : 0;
        for (uint32_t k = 0; k < task->n_in; k++) {
            uint32_t in = p->t->in.at[task->first_in + k];
            start = greater_of(start, p->end_us[p->t->tensor.at[in].maker]);
        }
        p->end_us[i] = start + task->us;
        latest = greater_of(latest, p->end_us[i]);
        if (task->is_replica && p->end_us[i] < first_end) first_end = p->end_us[i];
    }
    p->done_us[op] = first_end;
    return latest;
}

ds_status ds_tag_bound(const ds_tag_problem *problem, const ds_tag_action *action,
                       const int64_t *floors, ds_arena *arena, int64_t *bound_us, ds_error *err) {
    ds_tag_tasks tasks;
    ds_tag__tasks_init(&tasks, problem, arena);
    ds_tag_place *place = DS_NEW_N(arena, ds_tag_place, problem->graph.n_groups);
    for (uint32_t g = 0; g < problem->graph.n_groups; g++)
        if (action[g].gpus) DS_TRY(ds_tag__place(&tasks, &action[g], g, &place[g], err));
    ds_tag__expand(&tasks, place);
    paths p = {&tasks, place, floors, NULL, NULL};
    p.end_us = DS_NEW_N(arena, int64_t, tasks.task.n + 1);
    p.done_us = DS_NEW_N(arena, int64_t, problem->graph.n_ops);
    *bound_us = most_loaded(&tasks);
    for (uint32_t op = 0; op < problem->graph.n_ops; op++)
        *bound_us = greater_of(*bound_us, follow(&p, op));
    return DS_OK;
}
