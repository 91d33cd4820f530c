/* One node for all turns of a loop. */
#include "search/pase/internal.h"

#include "ir/base/map.h"

#include <stdlib.h>
#include <string.h>

typedef struct folder {
    const ds_pase_graph *from;
    ds_pase_graph *to;
    uint32_t *node; /* old → new */
    ds_map nodes, edges;
} folder;

static bool same_node(const ds_pase_node *a, const ds_pase_node *b) {
    return a->op == b->op && a->n_axes == b->n_axes && a->pointwise == b->pointwise &&
           a->light == b->light && a->casts == b->casts && strcmp(a->pattern, b->pattern) == 0 &&
           memcmp(a->size, b->size, sizeof a->size) == 0;
}

static void add_memory(const ds_pase_node *from, ds_pase_node *to) {
    for (uint32_t i = 0; i < DS_PASE_HELD; i++)
        if (from->held[i].bytes > 0) ds_pase__hold(to, from->held[i].axes, from->held[i].bytes);
    to->data_bytes += from->data_bytes;
    to->argument_bytes += from->argument_bytes;
    to->before += from->before;
    to->behind += from->behind;
}

/* A key that is free, or that of an equal one. */
static void fold_node(folder *f, uint32_t v) {
    const ds_pase_node *node = &f->from->nodes.at[v];
    uint64_t hash = ds_hash_bytes(node->pattern, strlen(node->pattern));
    for (;; hash = ds_hash_mix(hash, 1)) {
        const uint64_t *found = ds_map_find(&f->nodes, hash);
        if (!found) break;
        ds_pase_node *old = &f->to->nodes.at[*found];
        if (!same_node(node, old)) continue;
        old->times += node->times;
        old->first += node->first;
        for (uint32_t i = 0; i < node->n_in; i++) {
            old->in_made[i] |= node->in_made[i];
            old->made[i] += node->made[i];
            if (old->in_data[i] < 0) old->in_data[i] = node->in_data[i];
        }
        add_memory(node, old);
        f->node[v] = (uint32_t)*found;
        return;
    }
    ds_map_put(&f->nodes, hash, f->to->nodes.n);
    f->node[v] = f->to->nodes.n;
    DS_PUSH(&f->to->arena, &f->to->nodes, *node);
}

static bool same_edge(const ds_pase_edge *a, const ds_pase_edge *b) {
    return a->from == b->from && a->to == b->to && a->dtype == b->dtype && a->rank == b->rank &&
           a->shadowed == b->shadowed && a->again == b->again && a->tied == b->tied &&
           a->weight == b->weight && a->ties == b->ties &&
           memcmp(a->size, b->size, sizeof a->size) == 0 &&
           memcmp(a->from_axis, b->from_axis, sizeof a->from_axis) == 0 &&
           memcmp(a->to_axis, b->to_axis, sizeof a->to_axis) == 0;
}

static void fold_edge(folder *f, const ds_pase_edge *old) {
    ds_pase_edge edge = *old;
    edge.from = f->node[old->from];
    edge.to = f->node[old->to];
    uint64_t hash = ds_hash_mix((uint64_t)edge.from << 32 | edge.to, edge.shadowed);
    for (;; hash = ds_hash_mix(hash, 1)) {
        const uint64_t *found = ds_map_find(&f->edges, hash);
        if (!found) break;
        ds_pase_edge *known = &f->to->edges.at[*found];
        if (!same_edge(&edge, known)) continue;
        known->times += edge.times;
        return;
    }
    ds_map_put(&f->edges, hash, f->to->edges.n);
    DS_PUSH(&f->to->arena, &f->to->edges, edge);
}

static int by_reader(const void *a, const void *b) {
    const ds_pase_edge *x = a, *y = b;
    if (x->to != y->to) return x->to < y->to ? -1 : 1;
    return x->from < y->from ? -1 : x->from > y->from;
}

ds_pase_graph *ds_pase_graph_fold(const ds_pase_graph *graph) {
    folder f = {.from = graph, .to = ds_pase_graph_new()};
    f.to->all_devices = graph->all_devices;
    f.node = ds_xcalloc((size_t)graph->nodes.n + 1, sizeof *f.node);
    ds_map_init(&f.nodes);
    ds_map_init(&f.edges);
    for (uint32_t v = 0; v < graph->nodes.n; v++) fold_node(&f, v);
    for (uint32_t e = 0; e < graph->edges.n; e++) fold_edge(&f, &graph->edges.at[e]);
    for (uint32_t i = 0; i < graph->fused.n; i++) {
        ds_pase_fused fused = graph->fused.at[i];
        fused.node = f.node[fused.node];
        DS_PUSH(&f.to->arena, &f.to->fused, fused);
    }
    if (f.to->edges.n) qsort(f.to->edges.at, f.to->edges.n, sizeof *f.to->edges.at, by_reader);
    ds_map_deinit(&f.nodes);
    ds_map_deinit(&f.edges);
    free(f.node);
    return f.to;
}
