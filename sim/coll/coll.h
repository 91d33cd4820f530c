/* Collective algorithms as fluid phases.
 *
 * Sizes follow nccl-tests: for n members,
 *   all_reduce      S = one member's buffer
 *   all_gather      S = the gathered result        reduce_scatter  S = one member's input
 *   all_to_all      S = one member's send buffer   broadcast, reduce, send, permute  S = the buffer
 *   scatter, gather S = the whole at the root
 *   offload, reload S = the buffer of the one device, to or from its host
 * Shards may be uneven: `shard_bytes[i]` is what member i owns (sum = S for gathers and scatters).
 *
 * Alone, with route latency a (the slowest hop) and bandwidth B on equal links, this gives
 *   ring  all_reduce 2(n−1)a + 2(n−1)/n·S/B      all_gather, reduce_scatter (n−1)a + (n−1)/n·S/B
 *   tree  all_reduce 2⌈log2 n⌉a + ~2·S/B (double binary tree: each edge carries S/2 each way)
 *   direct all_to_all a + (n−1)/n·S/B at a port
 * Source: nccl-tests PERFORMANCE.md (sizes, bus factors); double binary trees: Sanders, Speck,
 * Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", Parallel Computing
 * 2009. */
#ifndef DS_COLL_COLL_H
#define DS_COLL_COLL_H

#include "ir/core/ir.h"
#include "sim/cost/cost.h"
#include "sim/net/net.h"

typedef struct ds_coll_request {
    ds_opcode op;            /* DS_OP_ALL_REDUCE … */
    const char *algorithm;   /* "ring", "tree", "direct"; NULL: the cheapest by predicted time */
    const uint32_t *devices; /* in group order: the ring's order; member 0 … */
    uint32_t n;
    uint32_t root;              /* member index, for rooted collectives */
    int64_t shift;              /* permute */
    int64_t bytes;              /* S */
    uint32_t host;              /* offload, reload: vertex of the host of the one device */
    bool single_route;          /* one path a pair instead of all equal-cost ones */
    const int64_t *shard_bytes; /* n entries, or NULL: S split as evenly as whole bytes allow */
    ds_loc loc;
} ds_coll_request;

/* The phases of one algorithm, in `arena`. DS_ERR_UNSUPPORTED for an algorithm that the collective
 * does not have. O(sum of route lengths): n for rings and trees, n² for direct. */
ds_status ds_coll_phases(ds_topo *topo, const ds_coll_request *request, const char *algorithm,
                         ds_arena *arena, ds_phase **phases, uint32_t *n_phases, ds_error *err);

/* What a phase takes alone: its wait with a profile's step terms (the launch is not in it), and its
 * flow at the profile's efficiency; the bytes of its most loaded link. */
typedef struct ds_phase_time {
    int64_t wait_ps, flow_ps;
    ds_u128 most_q32;
} ds_phase_time;

/* How a collective is done, and how long that takes alone. */
typedef struct ds_coll_choice {
    const char *algorithm;
    int64_t ps; /* launch + Σ wait + flow */
    ds_phase_time *phases;
    uint32_t n_phases;
} ds_coll_choice;

/* The named algorithm, or the fastest of the candidates, with a profile's launch, per-step and
 * efficiency terms; phases in `arena`. */
ds_status ds_coll_choose(ds_topo *topo, const ds_coll_request *request, const ds_coll_cost *terms,
                         ds_arena *arena, ds_coll_choice *out, ds_error *err);

/* Capacity of the link that needs longest for its bytes, by the named algorithm or the first of the
 * candidates; 0 if no link carries any. Whether a profile's fit knows these links
 * (ds_cost_collective).
 */
ds_status ds_coll_slowest_link(ds_topo *topo, const ds_coll_request *request, int64_t *bytes_per_s,
                               ds_error *err);

/* Which algorithms compete when the program names none; static. */
const char *const *ds_coll_candidates(ds_opcode op, uint32_t *n);

/* "ring", "tree", "direct": all names, for messages and help. */
extern const char *const ds_coll_algorithms[];
extern const uint32_t ds_coll_n_algorithms;

#endif
