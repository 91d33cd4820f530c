/* The numbers of a search: configurations, costs of nodes, tables of edges. Internal to
 * search/pase. */
#ifndef DS_PASE_TABLES_H
#define DS_PASE_TABLES_H

#include "search/pase/pase.h"

/* Nodes that are equal but for their place in the graph share set, costs and memory; so do edges
 * their tables. A table is there in the direction that the elimination reads: [row][column], the
 * column's node goes first. */
typedef struct ds_pase_tables {
    ds_arena arena;
    const ds_pase_configs **set; /* per node */
    const double **cost;         /* per node: [set->n] */
    const double **memory;       /* likewise, or NULL */
    const double **late;         /* likewise: at the second moment */
    const double **edge;         /* per edge; NULL: it costs nothing */
    uint32_t n_edge_tables;
    double bytes;
} ds_pase_tables;

/* Do two edges cost the same, if the nodes at their ends have the same configurations? */
bool ds_pase__same_tensor(const ds_pase_edge *a, const ds_pase_edge *b);

/* alike[v]: the first node that is equal to v but for its place in the graph: by a hash of all that
 * costs look at (op, shapes, attributes, kinds of operands), checked field by field. O(nodes). */
void ds_pase__find_alike(const ds_pase_graph *graph, const ds_pase_model *model, uint32_t *alike);

/* goes[v]: the position of node v in the elimination; alike: what ds_pase__find_alike finds, NULL:
 * not known yet. Errors: the model's, DS_ERR_LIMIT. */
ds_status ds_pase__tables_new(const ds_pase_graph *graph, ds_pase_model *model,
                              const uint32_t *goes, const uint32_t *alike, double max_bytes,
                              ds_pase_tables **out, ds_error *err);
/* Would an elimination in this order need more than max_bytes of messages, or too many
 * combinations? DS_ERR_LIMIT, with the node that needs most. O(nodes · terms). */
#define DS_PASE_MAX_COMBINATIONS 1e11 /* some two minutes */
ds_status ds_pase__check_sizes(const ds_pase_graph *graph, const ds_pase_model *model,
                               const ds_pase_configs *const *sets, const uint32_t *goes,
                               double max_bytes, ds_error *err);
void ds_pase__tables_free(ds_pase_tables *tables);

#endif
