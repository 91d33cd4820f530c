/* Least-cost search inside one template; seen by sim/topo only. The design is in search.c. */
#ifndef DS_TOPO_SEARCH_H
#define DS_TOPO_SEARCH_H

#include "sim/topo/tree.h"

__extension__ typedef unsigned __int128 ds_u128;

/* Numbers of paths are exact below this and stay at it from there on: "too many". */
#define DS_TOPO_MANY_PATHS ((ds_u128)1 << 120)

/* The cost of the best paths from one vertex to another, and how many there are. n_paths 0: none.
 * latency_ps INT64_MAX: beyond int64. */
typedef struct ds_topo_cost {
    int64_t latency_ps;
    uint32_t hops;
    ds_u128 n_paths;
} ds_topo_cost;

/* < 0, 0, > 0: latency first, then hops. No path is dearer than any. */
int ds_topo_cost_compare(const ds_topo_cost *a, const ds_topo_cost *b);
/* All best paths a, each continued by each of b. */
ds_topo_cost ds_topo_cost_join(ds_topo_cost a, ds_topo_cost b);
/* a * b, or DS_TOPO_MANY_PATHS. */
ds_u128 ds_topo_paths_mul(ds_u128 a, ds_u128 b);

typedef struct ds_topo_heap_item {
    int64_t latency_ps;
    int64_t hops;
    uint32_t vertex;
} ds_topo_heap_item;

/* A binary heap, least (latency, hops, vertex) on top. */
typedef struct ds_topo_heap {
    ds_topo_heap_item *at;
    uint32_t n, cap;
} ds_topo_heap;
void ds_topo_heap_push(ds_topo_heap *heap, ds_topo_heap_item item);
ds_topo_heap_item ds_topo_heap_pop(ds_topo_heap *heap);

typedef struct ds_topo_label {
    ds_topo_cost cost;
    uint32_t vertex;
    bool settled; /* final */
} ds_topo_label;

/* A search from one vertex of a template: as far as it was needed up to now. */
struct ds_topo_search {
    ds_topo_template *t;
    uint32_t source;
    ds_map label_of; /* vertex → index into labels */
    DS_VEC(ds_topo_label) labels;
    ds_topo_heap heap;
};

/* The cached search from `source`, begun if it is new. */
ds_topo_search *ds_topo_search_from(ds_topo *topo, ds_topo_template *t, uint32_t source);

/* The label of a vertex on the template's level if it is settled, else NULL. */
const ds_topo_label *ds_topo_settled(const ds_topo_search *s, uint32_t vertex);
/* May a path of this search go on from this vertex? */
bool ds_topo_passes(const ds_topo_search *s, uint32_t vertex);
/* Is the vertex on the template's own level: a node of its own, or a port of an instance? */
bool ds_topo_on_level(const ds_topo_template *t, uint32_t vertex);
/* The search inside the instance that holds the source, if that is not on the level; else NULL. */
ds_topo_search *ds_topo_source_search(ds_topo *topo, const ds_topo_search *s, ds_topo_spot *spot);

/* The best paths from the search's source to any vertex of its template, without passing through a
 * port of the template. O(k log k) for the k vertices of the level that are nearer. */
ds_topo_cost ds_topo_resolve(ds_topo *topo, ds_topo_search *s, uint32_t vertex);

#endif
