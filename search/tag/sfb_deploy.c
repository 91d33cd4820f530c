/* Sufficient factors of a deployment: the problem of the groups that share replicas, and the deployment
 * in which the chosen operations form groups of their own that every GPU computes whole. */
#include "search/tag/internal.h"
#include "search/tag/sfb.h"

#include <string.h>

typedef struct deployed {
    const ds_tag_problem *problem;
    ds_tag_tasks tasks; /* machines of GPUs */
    ds_tag_place *place;
    ds_arena *arena;
} deployed;

static ds_status place_groups(deployed *d, const ds_tag_action *action, ds_error *err) {
    ds_tag__tasks_init(&d->tasks, d->problem, d->arena);
    return ds_tag__places(&d->tasks, action, &d->place, err);
}

static const ds_tag_place *place_of(const deployed *d, uint32_t op) {
    return &d->place[d->problem->graph.op[op].group];
}

/* The same GPUs and shares, and gradients that meet in collectives. */
static bool are_peers(const ds_tag_place *a, const ds_tag_place *b) {
    return a->way == DS_TAG_ALL_REDUCE && b->way == DS_TAG_ALL_REDUCE && a->n == b->n &&
           memcmp(a->gpu, b->gpu, a->n * sizeof *a->gpu) == 0 &&
           memcmp(a->lo, b->lo, (a->n + 1) * sizeof *a->lo) == 0;
}

static uint64_t gpus_of(const ds_tag_place *place) {
    uint64_t gpus = 0;
    for (uint32_t i = 0; i < place->n; i++) gpus |= UINT64_C(1) << place->gpu[i];
    return gpus;
}

/* ---- the problem of a group ---- */

/* The slowest replica's whole microseconds. */
static int64_t time_ns(const deployed *d, uint32_t op, const ds_tag_place *place) {
    const ds_tag_problem *p = d->problem;
    int64_t most = 0;
    for (uint32_t i = 0; i < place->n; i++) {
        uint32_t kind = p->cluster.machine[d->tasks.machine_of[place->gpu[i]]].kind;
        double us = ds_tag_op_us(&p->graph, op, kind, place->lo[i + 1] - place->lo[i]);
        int64_t whole = (int64_t)(p->quirks & DS_TAG_TRUNCATE ? us : us + 0.5);
        if (whole > most) most = whole;
    }
    return most * 1000;
}

/* Bytes of the greatest share. */
static int64_t part_bytes(const deployed *d, uint32_t op, const ds_tag_place *place) {
    int64_t most = 0, batch = d->problem->batch;
    for (uint32_t i = 0; i < place->n; i++)
        if (place->lo[i + 1] - place->lo[i] > most) most = place->lo[i + 1] - place->lo[i];
    return (d->problem->graph.op[op].result_bytes * most + batch - 1) / batch;
}

/* Does every one of the GPUs have the whole result already? */
static bool is_everywhere(const deployed *d, uint32_t op, const ds_tag_place *place) {
    const ds_tag_place *maker = place_of(d, op);
    return maker->way == DS_TAG_DUPLICATE && (gpus_of(place) & ~gpus_of(maker)) == 0;
}

static ds_sfb_op op_of(const deployed *d, uint32_t op, const ds_tag_place *place) {
    const ds_tag_op *o = &d->problem->graph.op[op];
    if (o->result == DS_TAG_WHOLE || !are_peers(place_of(d, op), place) || place->n < 2)
        return (ds_sfb_op){.stays = true};
    return (ds_sfb_op){.time_ns = time_ns(d, op, place),
                       .gradient_bytes = o->result == DS_TAG_SUM ? o->result_bytes : 0};
}

typedef DS_VEC(uint32_t) list;

/* Gradients are reduced before operations read them, so that samples alone are gathered. */
static void list_tensors(const deployed *d, const ds_tag_place *place, ds_sfb_problem *out) {
    const ds_tag_graph *g = &d->problem->graph;
    list *readers = DS_NEW_N(d->arena, list, g->n_ops);
    DS_VEC(ds_sfb_tensor) tensors = {0};
    for (uint32_t i = 0; i < g->n_ops; i++)
        for (uint32_t k = 0; !out->op[i].stays && k < g->op[i].n_parents; k++)
            DS_PUSH(d->arena, &readers[g->op[i].parent[k]], i);
    for (uint32_t i = 0; i < g->n_ops; i++) {
        ds_sfb_tensor tensor = {i, readers[i].n, readers[i].at, part_bytes(d, i, place)};
        if (g->op[i].result == DS_TAG_SAMPLES && tensor.n_readers > 0 &&
            !is_everywhere(d, i, place))
            DS_PUSH(d->arena, &tensors, tensor);
    }
    out->tensor = tensors.at;
    out->n_tensors = tensors.n;
}

static void describe(const deployed *d, const ds_tag_place *place, ds_sfb_problem *out) {
    uint32_t n_ops = d->problem->graph.n_ops;
    ds_sfb_op *op = DS_NEW_N(d->arena, ds_sfb_op, n_ops);
    for (uint32_t i = 0; i < n_ops; i++) op[i] = op_of(d, i, place);
    out->n_replicas = place->n;
    out->mb_per_s = place->n < 2 ? 1 : ds_tag__slowest_mb_per_s(&d->tasks, place);
    out->n_ops = n_ops;
    out->op = op;
    list_tensors(d, place, out);
}

ds_status ds_tag_sfb_of_group(const ds_tag_problem *problem, const ds_tag_action *action,
                              uint32_t group, ds_sfb_gather gather, ds_arena *arena,
                              ds_sfb_problem *out, ds_error *err) {
    deployed d = {.problem = problem, .arena = arena};
    DS_TRY(place_groups(&d, action, err));
    *out = (ds_sfb_problem){.gather = gather};
    describe(&d, &d.place[group], out);
    return DS_OK;
}

/* ---- the deployment ---- */

/* Is there an earlier group with the same replicas? */
static bool is_done(const deployed *d, uint32_t group) {
    for (uint32_t g = 0; g < group; g++)
        if (are_peers(&d->place[g], &d->place[group])) return true;
    return false;
}

static ds_status choose_group(const deployed *d, uint32_t group, ds_sfb_gather gather,
                              ds_tag_sfb_deployment *out, ds_error *err) {
    ds_sfb_problem factors = {.gather = gather};
    ds_sfb_choice choice;
    describe(d, &d->place[group], &factors);
    DS_TRY(ds_sfb_choose(&factors, d->arena, &choice, err));
    for (uint32_t i = 0; i < factors.n_ops; i++)
        if (choice.is_whole[i]) out->op[i].group = d->problem->graph.n_groups + group;
    out->n_whole += choice.n_whole;
    out->cost_us += choice.cost_us;
    out->gathered_bytes = ds_bytes_sum(out->gathered_bytes, choice.gathered_bytes);
    out->spared_bytes = ds_bytes_sum(out->spared_bytes, choice.spared_bytes);
    return DS_OK;
}

ds_status ds_tag_sfb_deploy(const ds_tag_problem *problem, const ds_tag_action *action,
                            ds_sfb_gather gather, ds_arena *arena, ds_tag_sfb_deployment *out,
                            ds_error *err) {
    deployed d = {.problem = problem, .arena = arena};
    uint32_t n = problem->graph.n_groups, n_ops = problem->graph.n_ops;
    DS_TRY(place_groups(&d, action, err));
    *out = (ds_tag_sfb_deployment){.problem = *problem,
                                   .op = DS_NEW_N(arena, ds_tag_op, n_ops),
                                   .action = DS_NEW_N(arena, ds_tag_action, 2 * n)};
    memcpy(out->op, problem->graph.op, n_ops * sizeof *out->op);
    memcpy(out->action, action, n * sizeof *action);
    out->problem.graph.op = out->op;
    out->problem.graph.n_groups = 2 * n;
    for (uint32_t g = 0; g < n; g++) {
        out->action[n + g] = (ds_tag_action){gpus_of(&d.place[g]), DS_TAG_DUPLICATE, NULL};
        if (d.place[g].way == DS_TAG_ALL_REDUCE && d.place[g].n > 1 && !is_done(&d, g))
            DS_TRY(choose_group(&d, g, gather, out, err));
    }
    return DS_OK;
}
