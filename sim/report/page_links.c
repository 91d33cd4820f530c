/* The bytes of a step over every link, and from every device to every other.
 *
 * Link loads are those of the phases that the simulation shares links by. The matrix has the
 * messages of the same algorithms: a ring's bytes go to its neighbours only. Both are sums over the
 * distinct groups of the run, each as often as its communications run. */
#include "ir/base/map.h"
#include "ir/ops/ops.h"
#include "sim/coll/messages.h"
#include "sim/report/internal.h"

#include <stdlib.h>

enum {
    MOST_LINKS = 2000,
    MOST_CELLS = 64,  /* rows of the matrix; more devices are summed in blocks */
    MOST_GROUP = 128, /* members of a group whose messages are written down: n² of them */
    MOST_GROUPS = 4000
};

typedef struct traffic {
    const ds_plan *plan;
    DS_VEC(const ds_group *) groups; /* distinct */
    DS_VEC(int64_t) times;           /* of each: its communications */
    uint64_t n_images;               /* groups that are not listed, as executions */
    double *by_link, *by_pair;       /* bytes; pairs of blocks of devices */
    uint32_t block, n_blocks;        /* devices in a block */
    uint32_t n_large;                /* groups without messages */
} traffic;

/* ---- which groups communicate, and how often ---- */

static uint64_t key_of(const ds_group *g) {
    uint64_t key = ds_hash_bytes(g->devices, g->n_devices * sizeof *g->devices);
    key = ds_hash_mix(ds_hash_mix(key, (uint64_t)g->bytes), g->request->op);
    return ds_hash_mix(ds_hash_mix(key, DS_KEY(g->algorithm)), g->request->root);
}

static void add_group(traffic *t, ds_map *index, const ds_group *g, int64_t times) {
    if (!g->request || !g->algorithm) return;
    uint64_t key = key_of(g), *found = ds_map_find(index, key);
    t->n_images += g->n_images * (uint64_t)times;
    if (!found) {
        ds_map_put(index, key, t->groups.n);
        DS_HPUSH(&t->groups, g);
        DS_HPUSH(&t->times, 0);
        found = ds_map_find(index, key);
    }
    t->times.at[*found] += times;
}

static void find_groups(traffic *t) {
    const ds_plan *plan = t->plan;
    int64_t *times = ds_xcalloc(plan->records.n, sizeof *times);
    ds_map index;
    ds_map_init(&index);
    for (uint32_t i = 0; i < plan->insts.n; i++)
        times[plan->insts.at[i].record] += ds_plan_times(plan, i);
    for (uint32_t i = 0; i < plan->records.n; i++) {
        const ds_record *r = plan->records.at[i];
        /* in per-rank programs each member has a half of the same meeting: its first counts */
        bool half = r->kind == DS_REC_HALF;
        if (r->kind != DS_REC_COMM && !half) continue;
        if (half && (r->is_recv || r->devices[0] != r->groups[0].devices[0])) continue;
        for (uint32_t g = 0; g < r->n_groups; g++) add_group(t, &index, &r->groups[g], times[i]);
    }
    ds_map_deinit(&index);
    free(times);
}

/* ---- their bytes ---- */

static void add_links(traffic *t, const ds_group *g, int64_t times) {
    ds_arena arena;
    ds_arena_init(&arena);
    ds_phase *phases;
    uint32_t n = 0;
    if (ds_coll_phases(t->plan->topo, g->request, g->algorithm, &arena, &phases, &n, NULL) != DS_OK)
        n = 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < phases[i].n_loads; k++)
            t->by_link[phases[i].loads[k].link] +=
                (double)phases[i].loads[k].bytes_q32 / 4294967296.0 * (double)times;
    ds_arena_deinit(&arena);
}

/* The device at the end of a route; DS_NONE: a host or a switch. */
static uint32_t end_of(const ds_plan *plan, const ds_route *route, bool last) {
    uint32_t from = DS_NONE;
    for (uint32_t i = 0; i < route->n_links; i++) { /* links come by number, not along the path */
        const ds_topo_link *link = ds_topo_link_at(plan->topo, route->links[i]);
        uint32_t vertex = last ? link->to : link->from;
        bool inside = false;
        for (uint32_t k = 0; k < route->n_links && !inside; k++) {
            const ds_topo_link *other = ds_topo_link_at(plan->topo, route->links[k]);
            inside = (last ? other->from : other->to) == vertex;
        }
        if (!inside) from = vertex;
    }
    return from == DS_NONE ? DS_NONE : ds_topo_device_at(plan->topo, from);
}

static void add_pair(traffic *t, uint32_t from, uint32_t to, double bytes) {
    if (from >= t->plan->n_devices || to >= t->plan->n_devices) return;
    t->by_pair[(size_t)(from / t->block) * t->n_blocks + to / t->block] += bytes;
}

static void add_messages(traffic *t, const ds_group *g, int64_t times) {
    if (g->n_devices > MOST_GROUP || ds_op_desc_of(g->request->op)->flags & DS_OPF_HOST) {
        t->n_large += g->n_devices > MOST_GROUP;
        return;
    }
    ds_arena arena;
    ds_arena_init(&arena);
    ds_coll_request whole = *g->request;
    ds_message_graph graph = {0};
    const ds_route *route = NULL; /* messages of one pair follow each other */
    uint32_t from = DS_NONE, to = DS_NONE;
    if (!whole.chunks) whole.chunks = 1; /* chunks carry the same bytes */
    if (ds_coll_messages(t->plan->topo, &whole, g->algorithm, &arena, &graph, NULL) != DS_OK)
        graph.n_messages = 0;
    for (uint32_t i = 0; i < graph.n_messages; i++) {
        const ds_message *m = &graph.messages[i];
        if (!m->route || !m->bytes) continue;
        if (m->route != route) {
            route = m->route;
            from = end_of(t->plan, route, false);
            to = end_of(t->plan, route, true);
        }
        add_pair(t, from, to, (double)m->bytes * (double)times);
    }
    ds_arena_deinit(&arena);
}

/* ---- as JSON ---- */

typedef struct load {
    double share; /* of what the link could carry in the step */
    uint32_t link;
} load;

static int fullest_first(const void *a, const void *b) {
    const load *x = a, *y = b;
    if (x->share < y->share || x->share > y->share) return x->share > y->share ? -1 : 1;
    return x->link < y->link ? -1 : x->link > y->link;
}

static load *sorted_loads(const traffic *t, int64_t step_ps, uint32_t *n) {
    uint32_t n_links = ds_topo_n_links(t->plan->topo);
    load *loads = ds_xcalloc(n_links, sizeof *loads);
    *n = 0;
    for (uint32_t l = 0; l < n_links; l++) {
        double most =
            (double)ds_topo_link_at(t->plan->topo, l)->bytes_per_s * 1e-12 * (double)step_ps;
        if (t->by_link[l] > 0) loads[(*n)++] = (load){ds_ratio(t->by_link[l], most), l};
    }
    if (*n) qsort(loads, *n, sizeof *loads, fullest_first);
    return loads;
}

/* [[from, to, bytes, bytes_per_s, share], ...] */
static void put_links(const traffic *t, int64_t step_ps, ds_json *json, ds_buf *dropped) {
    uint32_t n;
    load *loads = sorted_loads(t, step_ps, &n);
    ds_json_key(json, "links");
    ds_json_begin_array(json);
    for (uint32_t i = 0; i < n && i < MOST_LINKS; i++) {
        const ds_topo_link *l = ds_topo_link_at(t->plan->topo, loads[i].link);
        ds_json_begin_array(json);
        ds_json_string(json, ds_topo_vertex_path(t->plan->topo, l->from));
        ds_json_string(json, ds_topo_vertex_path(t->plan->topo, l->to));
        ds_json_double(json, t->by_link[loads[i].link]);
        ds_json_int(json, l->bytes_per_s);
        ds_json_double(json, loads[i].share);
        ds_json_end_array(json);
    }
    ds_json_end_array(json);
    if (n > MOST_LINKS)
        ds_buf_printf(dropped, "%u of %u links, those with the least load, are left out.\n",
                      n - MOST_LINKS, n);
    free(loads);
}

static void put_matrix(const traffic *t, ds_json *json) {
    uint32_t n = t->n_blocks;
    ds_json_key(json, "matrix");
    ds_json_begin_object(json);
    ds_json_key_int(json, "block", t->block);
    ds_json_key(json, "names");
    ds_json_begin_array(json);
    for (uint32_t i = 0; i < n; i++)
        ds_json_string(json, ds_topo_device_path(t->plan->topo, i * t->block));
    ds_json_end_array(json);
    ds_json_key(json, "cells"); /* [from, to, bytes] */
    ds_json_begin_array(json);
    for (size_t i = 0; i < (size_t)n * n; i++) {
        if (t->by_pair[i] <= 0) continue;
        ds_json_begin_array(json);
        ds_json_int(json, (int64_t)(i / n));
        ds_json_int(json, (int64_t)(i % n));
        ds_json_double(json, t->by_pair[i]);
        ds_json_end_array(json);
    }
    ds_json_end_array(json);
    ds_json_end_object(json);
}

void ds_report__put_links(const ds_result *r, ds_json *json, ds_buf *dropped) {
    traffic t = {.plan = r->plan};
    t.block = (r->plan->n_devices + MOST_CELLS - 1) / MOST_CELLS;
    t.block += t.block == 0;
    t.n_blocks = (r->plan->n_devices + t.block - 1) / t.block;
    t.by_link = ds_xcalloc(ds_topo_n_links(r->plan->topo), sizeof *t.by_link);
    t.by_pair = ds_xcalloc((size_t)t.n_blocks * t.n_blocks, sizeof *t.by_pair);
    find_groups(&t);
    for (uint32_t i = 0; i < t.groups.n && i < MOST_GROUPS; i++) {
        add_links(&t, t.groups.at[i], t.times.at[i]);
        add_messages(&t, t.groups.at[i], t.times.at[i]);
    }
    put_links(&t, r->run.step_ps, json, dropped);
    put_matrix(&t, json);
    if (t.groups.n > MOST_GROUPS)
        ds_buf_printf(dropped, "Links and matrix lack %u of %u groups.\n", t.groups.n - MOST_GROUPS,
                      t.groups.n);
    if (t.n_large)
        ds_buf_printf(dropped, "The matrix lacks %u groups of more than %d devices.\n", t.n_large,
                      MOST_GROUP);
    if (t.n_images)
        ds_buf_put(dropped, "Groups that do elsewhere what a drawn group does are not in links and "
                            "matrix.\n");
    free(t.by_link);
    free(t.by_pair);
    free(t.groups.at);
    free(t.times.at);
}
