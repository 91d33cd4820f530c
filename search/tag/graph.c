/* The problem: checks, profiled times, sets of GPUs, and the places of replicas. */
#include "search/tag/internal.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#define QUIRK(name, released, off) {#name, released, off},
const ds_tag_quirk ds_tag_quirks[DS_TAG_N_QUIRKS] = {
#include "search/tag/quirks.def"
};
#undef QUIRK

const char *ds_tag_way_word(ds_tag_way way) {
    static const char *const words[] = {
#define DS_X(name, word) word,
        DS_TAG_WAY_MAP(DS_X)
#undef DS_X
    };
    assert((unsigned)way < sizeof words / sizeof *words);
    return words[way];
}

/* ---- profiled times ---- */

static bool is_nearer(const int64_t *batch, uint32_t a, uint32_t b, int64_t samples) {
    return llabs(batch[a] - samples) < llabs(batch[b] - samples);
}

double ds_tag_op_us(const ds_tag_graph *graph, uint32_t op, uint32_t kind, int64_t samples) {
    const double *us = &graph->op[op].us[(size_t)kind * graph->n_points];
    const int64_t *batch = graph->batch;
    if (graph->n_points == 1) return us[0];
    uint32_t first = 0, second = 1; /* nearest, and nearest of the others */
    if (is_nearer(batch, 1, 0, samples)) first = 1, second = 0;
    for (uint32_t i = 2; i < graph->n_points; i++)
        if (is_nearer(batch, i, first, samples)) {
            second = first;
            first = i;
        } else if (is_nearer(batch, i, second, samples)) {
            second = i;
        }
    double slope = (us[second] - us[first]) / (double)(batch[second] - batch[first]);
    return fmax(0, us[first] + slope * (double)(samples - batch[first]));
}

/* ---- checks ---- */

static ds_status check_op(const ds_tag_graph *g, uint32_t i, ds_error *err) {
    const ds_tag_op *op = &g->op[i];
    const char *name = op->name ? op->name : "?";
    if (op->group >= g->n_groups)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "operation %u ('%s') is in group %u of %u groups", i, name, op->group,
                            g->n_groups);
    if (op->result_bytes < 0 || op->result_bytes > DS_TAG_MAX_BYTES || op->param_bytes < 0 ||
        op->param_bytes > DS_TAG_MAX_BYTES)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "operation %u ('%s') has a result of %" PRId64
                            " bytes and parameters of %" PRId64 " bytes: 0 … 2^42 are possible",
                            i, name, op->result_bytes, op->param_bytes);
    for (uint32_t k = 0; k < g->n_kinds * g->n_points; k++)
        if (!(op->us[k] >= 0 && op->us[k] <= DS_TAG_MAX_US))
            return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                                "operation %u ('%s') takes %g us on kind %u of GPU: 0 … 1e12 are "
                                "possible",
                                i, name, op->us[k], k / g->n_points);
    for (uint32_t k = 0; k < op->n_parents; k++) {
        if (op->parent[k] >= i)
            return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                                "operation %u ('%s') reads operation %u: parents come first", i,
                                name, op->parent[k]);
        for (uint32_t j = 0; j < k; j++)
            if (op->parent[j] == op->parent[k])
                return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                                    "operation %u ('%s') lists operation %u twice", i, name,
                                    op->parent[k]);
    }
    return DS_OK;
}

static ds_status check_graph(const ds_tag_graph *g, ds_error *err) {
    if (g->n_ops == 0 || g->n_groups == 0 || g->n_kinds == 0 || g->n_points == 0)
        return ds_error_set(
            err, DS_ERR_VALUE, DS_NOWHERE,
            "a graph has %u operations, %u groups, %u kinds of GPUs and %u profiled "
            "batch sizes: at least one of each is needed",
            g->n_ops, g->n_groups, g->n_kinds, g->n_points);
    for (uint32_t i = 0; i < g->n_points; i++)
        if (g->batch[i] < (i ? g->batch[i - 1] + 1 : 1) || g->batch[i] > DS_TAG_MAX_BATCH)
            return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                                "profiled batch size %u is %" PRId64 ": sizes rise from 1 to 2^20",
                                i, g->batch[i]);
    for (uint32_t i = 0; i < g->n_ops; i++) DS_TRY(check_op(g, i, err));
    return DS_OK;
}

static ds_status check_cluster(const ds_tag_cluster *c, uint32_t n_kinds, ds_error *err) {
    uint64_t n_gpus = 0;
    for (uint32_t m = 0; m < c->n_machines; m++) {
        const ds_tag_machine *machine = &c->machine[m];
        if (machine->kind >= n_kinds || machine->n_gpus == 0 || machine->memory_bytes < 0)
            return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                                "machine %u has %u GPUs of kind %u with %" PRId64
                                " bytes: GPUs of the kinds 0 … %u are profiled",
                                m, machine->n_gpus, machine->kind, machine->memory_bytes,
                                n_kinds - 1);
        n_gpus += machine->n_gpus;
        for (uint32_t to = 0; to < c->n_machines; to++)
            if (c->mb_per_s[m * c->n_machines + to] < 1)
                return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                                    "machine %u reaches machine %u with %" PRId64 " MB/s", m, to,
                                    c->mb_per_s[m * c->n_machines + to]);
    }
    if (n_gpus == 0 || n_gpus > DS_TAG_MAX_GPUS)
        return ds_error_set(err, DS_ERR_LIMIT, DS_NOWHERE, "%" PRIu64 " GPUs: 1 … %u are possible",
                            n_gpus, DS_TAG_MAX_GPUS);
    return DS_OK;
}

ds_status ds_tag_check(const ds_tag_problem *problem, ds_error *err) {
    DS_TRY(check_graph(&problem->graph, err));
    DS_TRY(check_cluster(&problem->cluster, problem->graph.n_kinds, err));
    if (problem->batch < 1 || problem->batch > DS_TAG_MAX_BATCH)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "a batch of %" PRId64 ": 1 … 2^20 are possible", problem->batch);
    if (problem->quirks > DS_TAG_RELEASED)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE, "%#x has bits beyond the %d quirks",
                            problem->quirks, DS_TAG_N_QUIRKS);
    return DS_OK;
}

/* ---- sets of GPUs ---- */

uint32_t ds_tag_n_gpus(const ds_tag_cluster *cluster) {
    uint32_t n = 0;
    for (uint32_t m = 0; m < cluster->n_machines; m++) n += cluster->machine[m].n_gpus;
    return n;
}

uint64_t ds_tag_gpus_of(const ds_tag_cluster *cluster, uint64_t machines) {
    uint64_t gpus = 0;
    for (uint32_t m = 0, gpu = 0; m < cluster->n_machines; m++)
        for (uint32_t i = 0; i < cluster->machine[m].n_gpus; i++, gpu++)
            if (machines >> m & 1) gpus |= UINT64_C(1) << gpu;
    return gpus;
}

/* ---- places ---- */

void ds_tag__tasks_init(ds_tag_tasks *tasks, const ds_tag_problem *problem, ds_arena *arena) {
    const ds_tag_cluster *cluster = &problem->cluster;
    *tasks = (ds_tag_tasks){.problem = problem, .arena = arena, .n_gpus = ds_tag_n_gpus(cluster)};
    tasks->machine_of = DS_NEW_N(arena, uint32_t, tasks->n_gpus);
    for (uint32_t m = 0, gpu = 0; m < cluster->n_machines; m++)
        for (uint32_t i = 0; i < cluster->machine[m].n_gpus; i++) tasks->machine_of[gpu++] = m;
}

ds_status ds_tag__place(const ds_tag_tasks *t, const ds_tag_action *action, uint32_t group,
                        ds_tag_place *place, ds_error *err) {
    int64_t batch = t->problem->batch;
    if (t->n_gpus < 64 && action->gpus >> t->n_gpus)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "group %u is on GPUs %#" PRIx64 " of a cluster of %u", group,
                            action->gpus, t->n_gpus);
    if (action->way == DS_TAG_COLUMNS)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "group %u is split by columns, which TAG does not know", group);
    place->n = 0;
    place->way = action->way;
    for (uint32_t gpu = 0; gpu < t->n_gpus; gpu++)
        if (action->gpus >> gpu & 1) place->gpu[place->n++] = gpu;
    if (action->way == DS_TAG_SPLIT || action->way == DS_TAG_DUPLICATE) return DS_OK;
    place->lo[0] = 0;
    for (uint32_t i = 0; i < place->n; i++) {
        int64_t share = batch / place->n + (i < batch % place->n);
        if (action->share) share = action->share[i];
        if (share < 1 || share > batch - place->lo[i])
            return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                                "replica %u of group %u has a share of %" PRId64
                                " samples of a batch of %" PRId64 " over %u GPUs",
                                i, group, share, batch, place->n);
        place->lo[i + 1] = place->lo[i] + share;
    }
    if (place->lo[place->n] != batch)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "the shares of group %u are %" PRId64 " samples of a batch of %" PRId64,
                            group, place->lo[place->n], batch);
    return DS_OK;
}

ds_status ds_tag__places(const ds_tag_tasks *tasks, const ds_tag_action *action, ds_tag_place **out,
                         ds_error *err) {
    const ds_tag_problem *p = tasks->problem;
    ds_tag_action everywhere = {ds_tag_gpus_of(&p->cluster, UINT64_MAX), DS_TAG_ALL_REDUCE, NULL};
    const ds_tag_action *unset =
        (p->quirks & DS_TAG_FIRST_ACTION) && action[0].gpus ? &action[0] : &everywhere;
    *out = DS_NEW_N(tasks->arena, ds_tag_place, p->graph.n_groups);
    for (uint32_t g = 0; g < p->graph.n_groups; g++)
        DS_TRY(ds_tag__place(tasks, action[g].gpus ? &action[g] : unset, g, &(*out)[g], err));
    return DS_OK;
}

/* ---- parts ---- */

/* Operations in order; each goes to the GPU where most bytes of its group neighbours are, weighed by
 * the room that the GPU has left, which is linear deterministic greedy partitioning of a stream.
 *
 * Source: Stanton and Kliot, "Streaming graph partitioning for large distributed graphs", KDD 2012.
 * TAG has METIS do it, with the same weights (whole 100,000 parameters of 4 bytes) and the same
 * balance (1.5). O(operations · GPUs · parents). */
void ds_tag__partition(const ds_tag_graph *graph, uint32_t group, const ds_tag_place *place,
                       uint32_t *owner) {
    int64_t total = 0, room[DS_TAG_MAX_GPUS];
    for (uint32_t i = 0; i < graph->n_ops; i++)
        if (graph->op[i].group == group) total += graph->op[i].param_bytes / 400000;
    bool is_weightless = total == 0;
    if (is_weightless)
        for (uint32_t i = 0; i < graph->n_ops; i++) total += graph->op[i].group == group;
    for (uint32_t g = 0; g < place->n; g++)
        room[g] = (3 * total + 2 * place->n - 1) / (2 * place->n);
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        const ds_tag_op *op = &graph->op[i];
        if (op->group != group) continue;
        int64_t weight = is_weightless ? 1 : op->param_bytes / 400000;
        uint32_t best = 0;
        double best_score = -1;
        for (uint32_t g = 0; g < place->n; g++) {
            double bytes = 0;
            for (uint32_t k = 0; k < op->n_parents; k++) {
                const ds_tag_op *parent = &graph->op[op->parent[k]];
                if (parent->group == group && owner[op->parent[k]] == place->gpu[g])
                    bytes += (double)parent->result_bytes;
            }
            double score = room[g] >= weight ? bytes * (double)room[g] : -1;
            if (score > best_score || (score == best_score && room[g] > room[best])) {
                best = g;
                best_score = score;
            }
        }
        owner[i] = place->gpu[best];
        room[best] -= weight;
    }
}
