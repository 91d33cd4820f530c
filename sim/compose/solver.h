/* The timeline while it is being found; not a public header. */
#ifndef DS_COMPOSE_SOLVER_H
#define DS_COMPOSE_SOLVER_H

#include "ir/base/heap.h"
#include "sim/compose/internal.h"
#include "sim/net/net.h"

#define DS_IN_ORDER UINT32_MAX /* an edge along a stream, which carries no value */

typedef struct ds_solver_edge {
    uint32_t to, ext, unit, next; /* ext: place among the target's externals; unit: which end */
} ds_solver_edge;

#define DS_FLOWING INT64_MAX

typedef struct ds_solver_node {
    uint32_t exec, unit; /* the first of a chain; DS_NONE: all of it */
    uint32_t pending, edges;
    int64_t ready_ps;
    int64_t next_ps; /* of a transfer that waits: until when; DS_FLOWING */
    /* of a transfer over shared links, once it may start */
    uint32_t activity, stream; /* its first member's: the network knows it by that */
    uint32_t flow;             /* in the network: the flow it is in; DS_NONE */
    bool started, settled;
} ds_solver_node;

/* The executions of one rank, which follow each other, as far as nodes have been made for them. */
typedef struct ds_solver_rank {
    uint32_t made, end; /* executions */
    uint32_t n_open;    /* items that have been made and are not over yet */
    uint32_t past;      /* all executions before have ended by now (period.c) */
} ds_solver_rank;

typedef struct ds_period ds_period;

typedef struct ds_solver {
    ds_sibling *s;
    ds_timeline *t;
    const ds_plan *plan;
    const uint32_t *rank_of;
    ds_solver_rank *ranks;
    uint32_t n_ranks;
    uint32_t first_rank; /* whose settled items periods are counted by: that of the first item */
    bool ahead;          /* nodes are made for items shortly before these are run */
    bool complete;       /* all have been made */
    DS_VEC(ds_solver_node) nodes;
    DS_VEC(ds_solver_edge) edges;
    uint32_t *spare;     /* per number of nodes: the first of so many in a row that are free … */
    uint32_t spare_edge; /* … and a free edge; `edges` and `next` lead to more */
    uint64_t n_nodes, n_settled;
    DS_VEC(uint32_t) ready;
    DS_VEC(uint32_t) hungry; /* ranks that may want more nodes */
    DS_VEC(int64_t)
    exts;                /* of opaque executions, from exec->ext on: when what they read is there */
    uint32_t *waiting;   /* per execution without nodes: edges from it */
    bool *is_last;       /* per execution: a transfer of the tail waits for it */
    uint32_t *n_left;    /* per execution: nodes that are not settled */
    uint32_t *last;      /* per stream: the last node put on it … */
    uint32_t *on_stream; /* … and the one whose transfer the network knows */
    int64_t *free_ps;
    int64_t *key; /* room for one */
    ds_heap heap;
    ds_net *net;
    int64_t now_ps;
    uint32_t n_items; /* of the first rank, that are settled */
    bool late;
    ds_period *period;
} ds_solver;

static inline ds_part *ds_solver__part(const ds_solver *x, uint32_t exec) {
    return &x->s->parts[x->t->execs[exec].part];
}
static inline uint32_t ds_solver__rank(const ds_solver *x, uint32_t exec) {
    return x->rank_of[ds_solver__part(x, exec)->group];
}

/* period.c: passes over periods of the schedule that go as one before has gone. To be asked
 * whenever an item of the first rank has been settled, and nothing is ready. */
void ds_period_skip(ds_solver *x);
void ds_period_free(ds_period *period);

#endif
