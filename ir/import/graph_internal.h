/* A device graph that an importer builds, and its text as a topology of the language.
 *
 * Nodes stand in groups, which become `device gpu[8] : "…"`; links are written in order, runs of
 * alike ones as a loop. Names need not be valid or new: they are made so. */
#ifndef DS_IMPORT_GRAPH_INTERNAL_H
#define DS_IMPORT_GRAPH_INTERNAL_H

#include "ir/base/map.h"
#include "ir/import/import.h"

typedef struct ds_graph_group {
    const char *name;
    ds_node_kind kind;
    const char *type; /* of devices, else NULL */
    uint32_t n;
    bool single;   /* no index, if there is one */
    bool forwards; /* other than by default: devices that do, others that do not */
    bool reduces;  /* of switches */
} ds_graph_group;

typedef struct ds_graph_node {
    uint32_t group, index;
} ds_graph_node;

typedef struct ds_graph_link {
    uint32_t from, to; /* nodes */
    int64_t bytes_per_s, latency_ps;
    int64_t cap_bytes_per_s; /* 0: none */
    bool duplex;
} ds_graph_link;

typedef struct ds_graph {
    ds_arena *arena;
    DS_VEC(ds_graph_group) groups; /* all in the arena */
    DS_VEC(ds_graph_node) nodes;
    DS_VEC(ds_graph_link) links;
    ds_strtab names; /* of the groups */
    ds_map taken;    /* name → the number to try next behind it */
    ds_buf notes;    /* comment lines; heap */
} ds_graph;

/* Most groups, nodes and links that an importer takes. */
#define DS_GRAPH_MAX_GROUPS 4096u
#define DS_GRAPH_MAX_NODES  (UINT32_C(1) << 17)
#define DS_GRAPH_MAX_LINKS  (UINT32_C(1) << 19)

void ds_graph__init(ds_graph *graph, ds_arena *arena);
void ds_graph__deinit(ds_graph *graph);

/* A new, empty group of nodes; `single`: without an index as long as it has one node. Expected
 * O(1). */
uint32_t ds_graph__group(ds_graph *graph, const char *name, ds_node_kind kind, const char *type,
                         bool single);
/* One more node of a group; returns its number among all nodes. */
uint32_t ds_graph__node(ds_graph *graph, uint32_t group);
/* A link without a cap; duplex: this much each way. */
void ds_graph__link(ds_graph *graph, uint32_t from, uint32_t to, int64_t bytes_per_s,
                    int64_t latency_ps, bool duplex);
/* One paragraph of the comment on top, printf and wrapped. */
void ds_graph__note(ds_graph *graph, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* "25 GB/s", exactly; "470 ns", exactly. */
void ds_graph__put_rate(ds_buf *out, int64_t bytes_per_s);
void ds_graph__put_time(ds_buf *out, int64_t ps);

/* The whole file: version, notes, the topology; `name` is made a valid one. */
void ds_graph__print(const ds_graph *graph, const char *name, ds_buf *out);

#endif
