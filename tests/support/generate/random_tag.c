#include "tests/support/generate/random_tag.h"

#include <string.h>

static uint32_t draw(ds_rng *rng, uint32_t below) {
    return (uint32_t)ds_rng_below(rng, below);
}

static void make_cluster(random_tag *r, ds_rng *rng) {
    static const int64_t speeds[] = {2810, 3000, 5000, 8000};
    ds_tag_cluster *c = &r->problem.cluster;
    c->n_machines = 1 + draw(rng, RANDOM_TAG_MACHINES);
    c->machine = r->machine;
    c->mb_per_s = r->mb_per_s;
    for (uint32_t m = 0; m < c->n_machines; m++)
        r->machine[m] = (ds_tag_machine){.kind = draw(rng, 2),
                                         .n_gpus = 1 + draw(rng, RANDOM_TAG_GPUS / c->n_machines),
                                         .memory_bytes = (int64_t)draw(rng, 400000000)};
    for (uint32_t i = 0; i < c->n_machines * c->n_machines; i++)
        r->mb_per_s[i] = speeds[draw(rng, 4)];
}

static void make_op(random_tag *r, ds_rng *rng, uint32_t i, bool is_training) {
    static const double times[] = {0, 10, 100, 1000};
    ds_tag_op *op = &r->op[i];
    const ds_tag_graph *g = &r->problem.graph;
    uint32_t kind = draw(rng, 10);
    op->result = kind < 6 ? DS_TAG_SAMPLES : kind < 8 ? DS_TAG_SUM : DS_TAG_WHOLE;
    op->result_bytes = draw(rng, 4) ? (int64_t)draw(rng, 30000000) : 2810 * (int64_t)draw(rng, 3);
    op->param_bytes = draw(rng, 3) ? 0 : (int64_t)draw(rng, 4000000);
    op->group = draw(rng, 3) ? i * g->n_groups / g->n_ops : draw(rng, g->n_groups);
    op->us = r->us[i];
    for (uint32_t k = 0; k < g->n_kinds * g->n_points; k++)
        r->us[i][k] = draw(rng, 2) ? times[draw(rng, 4)] : draw(rng, 2000);
    op->parent = r->parent[i];
    for (uint32_t tries = draw(rng, 4); tries > 0 && i > 0; tries--) {
        uint32_t p = draw(rng, 2) ? draw(rng, i) : i - 1 - draw(rng, i < 5 ? i : 5);
        bool is_new = true, is_update = false;
        for (uint32_t k = 0; k < op->n_parents; k++) is_new = is_new && r->parent[i][k] != p;
        for (uint32_t k = 0; k < r->op[p].n_parents; k++)
            is_update = is_update || r->op[r->parent[p][k]].result == DS_TAG_SUM;
        if (!is_new) continue;
        if (is_training &&
            (is_update || (r->op[p].result == DS_TAG_SUM && op->result != DS_TAG_WHOLE)))
            continue;
        r->parent[i][op->n_parents++] = p;
    }
}

static void make_action(random_tag *r, ds_rng *rng, uint32_t group) {
    ds_tag_action *a = &r->action[group];
    uint32_t n_gpus = ds_tag_n_gpus(&r->problem.cluster), n = 0;
    if (draw(rng, 7) == 0) return;
    a->gpus = draw(rng, 2) ? ds_tag_gpus_of(&r->problem.cluster, 1 + draw(rng, 15))
                           : draw(rng, 1u << n_gpus);
    a->way = (ds_tag_way)draw(rng, 4);
    for (uint64_t set = a->gpus; set; set &= set - 1) n++;
    if (n == 0 || draw(rng, 3)) return;
    for (uint32_t i = 0; i < n; i++) r->share[group][i] = 1;
    for (int64_t rest = r->problem.batch - n; rest > 0; rest--) r->share[group][draw(rng, n)]++;
    a->share = r->share[group];
}

void random_tag_make(random_tag *out, uint64_t seed, bool is_training) {
    ds_rng rng = {seed};
    memset(out, 0, sizeof *out);
    ds_tag_problem *p = &out->problem;
    p->batch = RANDOM_TAG_GPUS + draw(&rng, RANDOM_TAG_BATCH - RANDOM_TAG_GPUS + 1);
    p->quirks = draw(&rng, 2) ? DS_TAG_RELEASED : draw(&rng, DS_TAG_RELEASED + 1);
    p->is_ranked = draw(&rng, 4) == 0;
    p->graph = (ds_tag_graph){.n_ops = 1 + draw(&rng, RANDOM_TAG_OPS),
                              .n_groups = 1 + draw(&rng, RANDOM_TAG_GROUPS),
                              .n_kinds = 2,
                              .n_points = 1 + draw(&rng, 4),
                              .op = out->op,
                              .batch = out->batch};
    for (uint32_t i = 0; i < 4; i++) out->batch[i] = 1 << i;
    make_cluster(out, &rng);
    for (uint32_t i = 0; i < p->graph.n_ops; i++) make_op(out, &rng, i, is_training);
    for (uint32_t g = 0; g < p->graph.n_groups; g++) make_action(out, &rng, g);
}

void random_tag_instance(random_tag *r, uint64_t seed, uint32_t n_groups) {
    static const ds_tag_machine machines[] = {{0, 2, 0}, {1, 4, 0}, {1, 2, 0}};
    static const int64_t speeds[] = {8000, 2810, 2810, 2810, 3000, 2810, 2810, 2810, 3000};
    for (;; seed += 1000) { /* steps of 8 and more operations */
        random_tag_make(r, seed, true);
        if (r->problem.graph.n_ops >= 8 && r->problem.graph.n_ops <= 24) break;
    }
    memset(r->action, 0, sizeof r->action);
    r->problem.quirks = DS_TAG_RELEASED;
    r->problem.batch = 24;
    r->problem.graph.n_groups = n_groups;
    for (uint32_t i = 0; i < r->problem.graph.n_ops; i++)
        r->op[i].group = i * n_groups / r->problem.graph.n_ops;
    memcpy(r->machine, machines, sizeof machines);
    for (uint32_t m = 0; m < 3; m++)
        r->machine[m].memory_bytes = 60000000 + 20000000 * (int64_t)(seed % 7);
    memcpy(r->mb_per_s, speeds, sizeof speeds);
    r->problem.cluster.n_machines = 3;
}
