/* Actions under distsim's own semantics. */
#include "search/tag/deploy.h"

#include "sim/run/shares.h"

#include <stdlib.h>

enum { MOST_MACHINES = 8 };

/* The GPUs of an action, in order. */
typedef struct site {
    uint32_t n, gpu[DS_TAG_MAX_GPUS];
} site;

static site site_of(uint64_t gpus) {
    site s = {0};
    for (uint32_t g = 0; g < DS_TAG_MAX_GPUS; g++)
        if (gpus >> g & 1) s.gpu[s.n++] = g;
    return s;
}

/* Samples by time: lines through one sample and an even share. */
static void share_by_time(const ds_tag_choices *c, const site *s, int64_t *parts) {
    const ds_tag_problem *p = &c->model->problem;
    double fixed[DS_TAG_MAX_GPUS] = {0}, each[DS_TAG_MAX_GPUS];
    int64_t even = p->batch / s->n;
    for (uint32_t i = 0; i < s->n; i++) {
        uint32_t machine = 0;
        while (!(ds_tag_gpus_of(&p->cluster, UINT64_C(1) << machine) >> s->gpu[i] & 1)) machine++;
        double us = 0;
        for (uint32_t op = 0; op < p->graph.n_ops; op++)
            if (p->graph.op[op].result != DS_TAG_WHOLE)
                us += ds_tag_op_us(&p->graph, op, p->cluster.machine[machine].kind,
                                   even > 0 ? even : 1);
        each[i] = us / (double)(even > 0 ? even : 1) + 1e-9;
    }
    ds_shares_choose(fixed, each, s->n, p->batch, parts);
}

static bool add_action(ds_tag_choices *c, uint64_t gpus, ds_tag_way way, bool by_time) {
    const site s = site_of(gpus);
    int64_t batch = c->model->problem.batch, *parts = NULL;
    bool is_even = batch % s.n == 0;
    if (way == DS_TAG_ALL_REDUCE && (s.n > batch || (!by_time && !is_even))) return false;
    if (by_time) parts = DS_NEW_N(&c->arena, int64_t, DS_TAG_MAX_GPUS);
    if (by_time) share_by_time(c, &s, parts);
    c->action[c->n++] = (ds_tag_action){gpus, way, parts};
    return true;
}

static bool is_mixed(const ds_tag_cluster *c, uint64_t machines) {
    uint32_t kind = c->machine[__builtin_ctzll(machines)].kind;
    for (uint32_t m = 0; m < c->n_machines; m++)
        if ((machines >> m & 1) && c->machine[m].kind != kind) return true;
    return false;
}

static uint64_t first_half(uint64_t gpus) {
    uint64_t half = gpus;
    while (2 * __builtin_popcountll(half) > __builtin_popcountll(gpus))
        half &= ~(UINT64_C(1) << (63 - __builtin_clzll(half)));
    return half;
}

static void add_actions(ds_tag_choices *k) {
    const ds_tag_cluster *c = &k->model->problem.cluster;
    uint32_t most = 6 * (1u << c->n_machines);
    uint64_t all = (UINT64_C(1) << c->n_machines) - 1;
    k->action = DS_NEW_N(&k->arena, ds_tag_action, most);
    for (uint64_t machines = all; machines > 0; machines--) {
        uint64_t gpus = ds_tag_gpus_of(c, machines);
        bool is_one = (machines & (machines - 1)) == 0;
        bool is_even = add_action(k, gpus, DS_TAG_ALL_REDUCE, false);
        if (is_mixed(c, machines) || !is_even) add_action(k, gpus, DS_TAG_ALL_REDUCE, true);
        if (!is_one || c->machine[__builtin_ctzll(machines)].n_gpus == 1) continue;
        add_action(k, gpus, DS_TAG_COLUMNS, false);
        if (c->machine[__builtin_ctzll(machines)].n_gpus % 4 == 0) /* what four do not divide */
            add_action(k, first_half(gpus), DS_TAG_COLUMNS, false);
        add_action(k, gpus, DS_TAG_DUPLICATE, false);
        add_action(k, gpus & -gpus, DS_TAG_ALL_REDUCE, false);
    }
}

uint32_t ds_tag_choices_number(const ds_tag_choices *c, const ds_tag_action *action) {
    uint32_t i = 0;
    while (i < c->n && (c->action[i].gpus != action->gpus || c->action[i].way != action->way ||
                        c->action[i].share != action->share))
        i++;
    return i < c->n ? i : 0;
}

bool ds_tag_choices_columns(const ds_tag_choices *c, uint32_t base, uint32_t action) {
    const ds_tag_base *b = &c->model->base[base];
    uint32_t n = (uint32_t)__builtin_popcountll(c->action[action].gpus);
    return c->action[action].way == DS_TAG_COLUMNS && b->column && b->n_columns % n == 0;
}

ds_status ds_tag_choices_new(const ds_tag_model *model, ds_tag_choices **out, ds_error *err) {
    uint32_t n = model->problem.cluster.n_machines;
    *out = NULL;
    if (n > MOST_MACHINES)
        return ds_error_set(err, DS_ERR_LIMIT, DS_NOWHERE,
                            "%u machines: a tree search takes up to %d", n, MOST_MACHINES);
    *out = ds_xcalloc(1, sizeof **out);
    (*out)->model = model;
    ds_arena_init(&(*out)->arena);
    add_actions(*out);
    return DS_OK;
}

void ds_tag_choices_free(ds_tag_choices *choices) {
    if (!choices) return;
    ds_arena_deinit(&choices->arena);
    free(choices);
}
