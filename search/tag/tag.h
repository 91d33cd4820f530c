/* TAG mode: a deployment of grouped operations on unlike machines, simulated by TAG's rules.
 *
 * A deployment gives each group of operations an action: a set of GPUs, shares of the batch, and a
 * way in which gradients meet. The deployment is expanded to tasks on GPUs and links (expand.c), and
 * events run the tasks (simulate.c). Units are TAG's: microseconds, bytes, MB/s of 10^6 bytes.
 *
 * Source: Zhang et al., "Expediting Distributed DNN Training with Device Topology-Aware Graph
 * Deployment", arXiv:2302.06126. TAG has no licence: distsim has its rules and none of its code.
 * README.md of this folder states the rules; quirks.def lists the quirks of the released
 * simulator, each with a switch. */
#ifndef DS_SEARCH_TAG_TAG_H
#define DS_SEARCH_TAG_TAG_H

#include "ir/base/arena.h"
#include "ir/base/error.h"

#include <stdbool.h>

#define DS_TAG_MAX_GPUS  64u
#define DS_TAG_MAX_BYTES (INT64_C(1) << 42) /* of a tensor; with MAX_BATCH, products fit 64 bits */
#define DS_TAG_MAX_BATCH (INT64_C(1) << 20)
#define DS_TAG_MAX_US    1e12 /* of an operation */

/* ---- the graph ---- */

/* How the result of an operation lies when the batch is split over replicas. */
typedef enum ds_tag_result_kind {
    DS_TAG_SAMPLES, /* each replica has its samples */
    DS_TAG_SUM,     /* each replica has a summand of full size: a gradient of parameters */
    DS_TAG_WHOLE,   /* each replica computes all of it, from whole operands: a weight, an update */
} ds_tag_result_kind;

typedef struct ds_tag_op {
    const char *name; /* for messages; may be NULL */
    ds_tag_result_kind result;
    int64_t result_bytes; /* of the whole batch */
    int64_t param_bytes;  /* weighs the operation where a group is cut into parts */
    const double *us;     /* [kind of GPU][point]: profiled at the batch sizes of the graph */
    const uint32_t *parent;
    uint32_t n_parents;
    uint32_t group;
} ds_tag_op;

/* Parents come before their children. Group 0 is the first in the order of decisions. */
typedef struct ds_tag_graph {
    uint32_t n_ops, n_groups, n_kinds, n_points;
    const ds_tag_op *op;
    const int64_t *batch; /* [n_points], rising: the batch sizes of the profile */
} ds_tag_graph;

/* Microseconds of `op` on `kind` with `samples`: the line through the two profiled batch sizes that
 * are nearest (of equally near sizes the smaller one), at least 0; a profile of one size is
 * constant. O(points). */
double ds_tag_op_us(const ds_tag_graph *graph, uint32_t op, uint32_t kind, int64_t samples);

/* ---- the cluster ---- */

typedef struct ds_tag_machine {
    uint32_t kind, n_gpus;
    int64_t memory_bytes; /* of each GPU */
} ds_tag_machine;

/* GPUs are numbered through, machine by machine. */
typedef struct ds_tag_cluster {
    uint32_t n_machines;
    const ds_tag_machine *machine;
    const int64_t *mb_per_s; /* [from][to]: between machines; [m][m]: between GPUs of machine m */
} ds_tag_cluster;

uint32_t ds_tag_n_gpus(const ds_tag_cluster *cluster);
/* The GPUs of a set of machines, a bit each. */
uint64_t ds_tag_gpus_of(const ds_tag_cluster *cluster, uint64_t machines);

/* ---- deployments ---- */

/* X(name, word): how the replicas of a group work together. TAG's options 0, 1, 2 and code 4. */
#define DS_TAG_WAY_MAP(X)                                                                          \
    X(PS, "ps")                 /* replicas; gradients meet at a parameter server */               \
    X(ALL_REDUCE, "all_reduce") /* replicas; gradients meet in a collective */                     \
    X(SPLIT, "split")           /* no replicas: each operation on one of the GPUs (TAG: MP) */     \
    X(DUPLICATE, "duplicate")   /* each GPU computes the whole batch, so gradients are whole */    \
    X(COLUMNS, "columns")       /* weights are split by columns; not in TAG mode (deploy.h) */

typedef enum ds_tag_way {
#define DS_X(name, word) DS_TAG_##name,
    DS_TAG_WAY_MAP(DS_X)
#undef DS_X
} ds_tag_way;

const char *ds_tag_way_word(ds_tag_way way);

typedef struct ds_tag_action {
    uint64_t gpus; /* a bit a GPU; 0: the group has no action */
    ds_tag_way way;
    /* [GPUs of the set] samples, each at least 1, together the batch; NULL: even, and of a batch
     * that does not divide the first GPUs have a sample more. */
    const int64_t *share;
} ds_tag_action;

#define QUIRK(name, released, off) DS_TAG_QUIRK_##name##_BIT,
enum {
#include "search/tag/quirks.def"
    DS_TAG_N_QUIRKS
};
#undef QUIRK
#define QUIRK(name, released, off) DS_TAG_##name = 1u << DS_TAG_QUIRK_##name##_BIT,
enum {
#include "search/tag/quirks.def"
    DS_TAG_RELEASED = (1u << DS_TAG_N_QUIRKS) - 1 /* every quirk of the released simulator */
};
#undef QUIRK

typedef struct ds_tag_quirk {
    const char *name, *released, *off; /* static strings */
} ds_tag_quirk;
extern const ds_tag_quirk ds_tag_quirks[DS_TAG_N_QUIRKS];

typedef struct ds_tag_problem {
    ds_tag_graph graph;
    ds_tag_cluster cluster;
    int64_t batch;
    uint32_t quirks; /* bits; DS_TAG_RELEASED: the released simulator */
    bool
        is_ranked; /* a GPU keeps the order of ranks: rank = the greatest of its followers + us + 1 */
} ds_tag_problem;

/* Errors: VALUE, NAME or LIMIT with the place and the numbers. O(operations · parents²). */
ds_status ds_tag_check(const ds_tag_problem *problem, ds_error *err);

/* ---- simulation ---- */

typedef struct ds_tag_outcome {
    int64_t makespan_us;
    bool fits; /* no GPU's peak is beyond its memory */
    uint32_t n_tasks, n_transfers, n_collectives;
    int64_t moved_bytes; /* by transfers */
    /* [GPU] */
    int64_t *peak_bytes, *busy_us;
    double *utilisation;
    /* [operation]: from the first replica's start to the last one's end; from there to the first
     * start of a child, at least 0, the least over children, and 0 without a child */
    int64_t *op_us, *op_idle_us;
} ds_tag_outcome;

/* Simulates a deployment of a checked problem. action[n_groups]; arrays of `out` are in `arena`.
 * Errors: VALUE (an action that does not fit the problem), DEADLOCK (the chain of collectives
 * contradicts the graph). O(T log T) for T tasks. */
ds_status ds_tag_simulate(const ds_tag_problem *problem, const ds_tag_action *action,
                          ds_arena *arena, ds_tag_outcome *out, ds_error *err);

/* Microseconds of an all_reduce of `bytes` over a bottleneck of mb_per_s:
 *
 *     max(k1 · KiB + b1, k2 · KiB + b2) · 2810 / mb_per_s
 *
 * Source: TAG's fit of NCCL at 2810 MB/s: two Huber regressions, below 256 KiB and above 1 MiB. The
 * lines meet at 667.17 KiB. The number of GPUs has no part in it. */
int64_t ds_tag_collective_us(int64_t bytes, int64_t mb_per_s, uint32_t quirks);
/* bytes / mb_per_s + 12 us. Source: TAG's latency of gRPC. */
int64_t ds_tag_transfer_us(int64_t bytes, int64_t mb_per_s, uint32_t quirks);

/* ---- what a search needs ---- */

/* The actions of a group, in TAG's order: sets of machines 1 … 2^machines - 1 as bits, of each ps,
 * all_reduce, split. A set of one GPU has `ps` alone. ps and all_reduce need a batch that the
 * number of GPUs divides. At most 16 machines. The array is in `arena`. */
ds_status ds_tag_actions(const ds_tag_problem *problem, ds_arena *arena, ds_tag_action **out,
                         uint32_t *n_out, ds_error *err);
/* Operations' least microseconds under any of the actions, on any of its GPUs: us[n_ops]. */
void ds_tag_floors(const ds_tag_problem *problem, const ds_tag_action *actions, uint32_t n_actions,
                   int64_t *us);
/* No deployment that completes `action` by actions of the floors, and fits, takes less than
 * *bound_us; INT64_MAX: none fits, or all wait for ever. A group without GPUs is open, whatever the
 * quirks are. Each task of the decided groups has an earliest start and a least time after its end,
 * by the longest paths, in which operations of open groups take their floor; the bound is the
 * greatest of Jackson's preemptive schedules of the tasks of one GPU, of one link, and of all
 * collectives. More decided groups never lower the bound. The simulated makespan of the decided
 * groups alone is no bound, for more tasks may start others in a better order. O(tasks · log). */
ds_status ds_tag_bound(const ds_tag_problem *problem, const ds_tag_action *action,
                       const int64_t *floors, ds_arena *arena, int64_t *bound_us, ds_error *err);
/* All GPUs with all_reduce, or, if that does not fit into memory, with split. */
ds_status ds_tag_baseline(const ds_tag_problem *problem, ds_arena *arena, ds_tag_action *out,
                          ds_tag_outcome *outcome, ds_error *err);
/* The worth of a deployment: v = base / makespan - 1, v^(1/4) where v > 1; -1 if it does not fit. */
double ds_tag_value(int64_t base_us, const ds_tag_outcome *outcome);
/* PUCT's weight of the prior: sqrt(actions / 10). */
double ds_tag_exploration(uint32_t n_actions);

#endif
