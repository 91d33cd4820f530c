/* Min-sum elimination: the least sum of tables over some nodes, one node after the other. Internal
 * to search/pase and search/tap.
 *
 * Terms are tables over few nodes: the costs of one, the table of an edge. When node v goes, its
 * dependent nodes D(v) are those that its terms mention beside it, all of which go later. Its
 * message is a term over D(v): for each assignment the least sum of v's terms over the
 * configurations of v. */
#ifndef DS_PASE_ELIMINATE_H
#define DS_PASE_ELIMINATE_H

#include "search/pase/pase.h"

typedef struct ds_pase_elimination {
    ds_arena arena;
    const ds_pase_graph *graph;   /* for messages of errors */
    const ds_pase_configs **sets; /* per node */
    const uint32_t *goes;         /* per node: its position in the order */
    const uint32_t *prefer;       /* per node: the configuration to take if no other one is better;
                                     NULL, or UINT32_MAX: the first */
    struct ds_pase_stage *stages; /* per node */
    double total;                 /* of what has gone and hangs together with nothing any more */
    double max_bytes;             /* of tables; DS_ERR_LIMIT beyond */
    ds_pase_sizes sizes;          /* combinations and bytes so far */
} ds_pase_elimination;

/* All must outlive it; `bytes`: of tables that are there already. */
void ds_pase__elimination_init(ds_pase_elimination *e, const ds_pase_graph *graph,
                               const ds_pase_configs **sets, const uint32_t *goes, double bytes,
                               double max_bytes);
void ds_pase__elimination_deinit(ds_pase_elimination *e);

/* A term over n ≥ 1 nodes, the last to go first: the table's dims in that order, the dim of the
 * node that goes first contiguous. Terms belong to groups, which are numbers. */
void ds_pase__add_term(ds_pase_elimination *e, const double *table, const uint32_t *node,
                       uint32_t n, uint32_t group);
/* Eliminates v; its message belongs to the group. O(Π configurations of v and D(v)). */
ds_status ds_pase__eliminate(ds_pase_elimination *e, uint32_t v, uint32_t group, ds_error *err);
/* Takes the group's terms that are left away and adds them up: out[Π configurations], whose dims
 * are the n nodes, in the order of ds_pase__add_term. Terms of the group over other nodes, which
 * must not be, are a bug. */
void ds_pase__gather(ds_pase_elimination *e, uint32_t group, const uint32_t *node, uint32_t n,
                     double *out);
/* Given choice[] of D(v): the best configuration of v, of equal ones the first. */
void ds_pase__choose(const ds_pase_elimination *e, uint32_t v, uint32_t *choice);

/* Nodes of which a table will be made. */
typedef struct ds_pase_clique {
    uint32_t n;
    const uint32_t *node;
} ds_pase_clique;
/* GenerateSeq, nodes of a lower stage first (order.c). O(nodes² + fill). */
void ds_pase__order_in_stages(const ds_pase_graph *graph, const uint32_t *stage,
                              const ds_pase_clique *cliques, uint32_t n_cliques, uint32_t *out);

#endif
