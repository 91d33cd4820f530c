/* Collective algorithms as fluid phases (and as messages: messages.h).
 *
 * Sizes follow nccl-tests: for n members,
 *   all_reduce                        S = one member's buffer
 *   all_gather                        S = the gathered result
 *   reduce_scatter                    S = one member's input
 *   all_to_all                        S = one member's send buffer
 *   broadcast, reduce, send, permute  S = the buffer
 *   scatter, gather                   S = the whole at the root
 *   offload, reload                   S = the buffer of the one device, to or from its host
 * Shards may be uneven: `shard_bytes[i]` is what member i owns (sum = S for gathers and scatters).
 *
 * Alone on one switch, with route latency a and bandwidth B on equal links:
 *   ring              all_reduce                   2(n−1)a + 2(n−1)/n·S/B
 *                     all_gather, reduce_scatter   (n−1)a + (n−1)/n·S/B
 *                     broadcast, reduce            (n−1)a + S/B, a pipelined chain
 *   tree              all_reduce                   2d·a + ~2·S/B, d = ⌊log2(n−1)⌋, at least 1
 *                                                  (double binary tree: each edge carries S/2
 *                                                  each way)
 *                     broadcast, reduce            (⌈log2(n+1)⌉−1)a + 2·S/B
 *                     gather, scatter              ⌈log2 n⌉a + (n−1)/n·S/B, a binomial tree, n a
 *                                                  power of two
 *   direct            all_reduce                   2a + 2(n−1)/n·S/B
 *                     all_gather, reduce_scatter,
 *                     all_to_all, gather, scatter  a + (n−1)/n·S/B
 *                     broadcast, reduce            a + (n−1)·S/B
 *                     send, permute                a + S/B
 *   halving_doubling  all_reduce                   2·log2(n)·a + 2(n−1)/n·S/B, n a power of two;
 *                                                  beyond it the rest of the members first gives
 *                                                  all to others: 2(a + S/B) more
 *                     the others                   half of it
 *   switch            where {reduce = true}        a + S/B: in-switch reduction and multicast
 * and over M nodes of k members, with latency and bandwidth a, B inside and A, C between them:
 *   hierarchical      all_reduce                   2((k−1)a + (k−1)/k·S/B) + 2(M−1)A
 *                                                  + 2(M−1)/M·S/(kC): reduce-scatter inside,
 *                                                  all-reduce between members of one rank,
 *                                                  all-gather inside; the sum of phases
 *   pxn               all_to_all                   a + (k−1)/k·S/B + A + (M−1)/M·S/C, by way of the
 *                                                  member of the sender's node that has the
 *                                                  receiver's rank
 *   deepep            all_to_all of tokens          the slower of (k−1)M·p·T/B and (M−1)·q·T/C, and
 *                                                  the longest route: a member's tokens T go to the
 *                                                  same rank of each other node that has one of
 *                                                  their experts (a share q of them), and on to the
 *                                                  devices there that have one (a share p);
 *                                                  sim/cost/exchange.h. Kernels forward while
 *                                                  tokens arrive, so that both are one phase
 *   ring              k rings, each over its own NICs; hops are unequal:
 *
 * Hops of unequal latency or bandwidth do not wait for each other: a message sets out when its data
 * have come and the one before it on its hop has gone. In a ring of s steps whose hop i has latency
 * a_i and bytes that take f_i in all, the last message ends after
 *     T = max over runs of at most s hops in a row and the flows f* in the run of
 *         f* + (Σ over the run of s·a_i + f_i − f*)/s:
 * one latency and the bytes of the slowest link, 2(n−1)/n·S/(kC) + A, once that is slow enough to
 * hide the others; the sum of the hops on the way around where latencies count. In a tree, Σ a on
 * the longest path up, Σ a on the longest down, and the slowest link; in c chunks (Σ f on these
 * paths − the slowest)/c more. The other messages wait for nothing: max over links and latencies of
 * the latency and the bytes of all that come no sooner. Derivations and bounds: alone.c. Of a
 * phase, what messages take beyond the flow of its bytes is its wait: steps·a of equal hops, less
 * of others. So it contends as before, and takes as long as its messages when it does not.
 *
 * Where lower and upper bound differ by more than 1/256 (hops that share links with those of other
 * rings, chunks in trees, phases through which members are at different times), its messages are
 * run once, alone, and phases wait for as long as these take together (rehearse.c), up to 2^14
 * messages, or 2^16 in chunks; beyond, an eighth of the way from the lower to the upper bound.
 *
 * In c chunks phases overlap, and are one phase: in slot s phase p works on chunk s − p. Without
 * chunks, pipelines are cut ever finer, and phases follow one another.
 *
 * Sources: nccl-tests PERFORMANCE.md (sizes, bus factors); double binary trees: Sanders, Speck,
 * Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", Parallel Computing
 * 2009; halving and doubling: Thakur, Rabenseifner, Gropp, "Optimization of collective
 * communication operations in MPICH", IJHPCA 2005; NVLS, SHARP, PXN: NVIDIA/nccl. */
#ifndef DS_COLL_COLL_H
#define DS_COLL_COLL_H

#include "ir/core/ir.h"
#include "sim/cost/cost.h"
#include "sim/net/net.h"

typedef struct ds_coll_request {
    ds_opcode op;          /* DS_OP_ALL_REDUCE … */
    const char *algorithm; /* a name; NULL: the cheapest by predicted time of those that compete */
    const uint32_t *devices; /* in group order: the ring's order; member 0 … */
    uint32_t n;
    uint32_t root;                    /* member index, for rooted collectives */
    int64_t shift;                    /* permute */
    int64_t bytes;                    /* S */
    int64_t chunks;                   /* of pipelines and phases; 0: see above */
    uint32_t host;                    /* offload, reload: vertex of the host of the one device */
    bool single_route;                /* one path a pair instead of all equal-cost ones */
    const struct ds_reshard *reshard; /* reshard.h; of DS_OP_RESHARD alone */
    const ds_exchange *exchange;      /* tokens that an all_to_all carries; NULL: not said */
    const struct ds_turn
        *turn; /* takes member i to i + period (sim/topo/turn.h); NULL: none known */
    uint32_t period;
    const int64_t *shard_bytes; /* n entries, or NULL: S split as evenly as whole bytes allow */
    ds_loc loc;
} ds_coll_request;

/* The phases of one algorithm, in `arena`. DS_ERR_UNSUPPORTED for an algorithm that the collective
 * or the group does not have. O(sum of route lengths): n for rings and trees (n·k between nodes of
 * k members), n log n for halving_doubling, n² for direct, n·period with a turn. Their waits are
 * those of equal hops: what unequal ones take depends on a profile's terms, and is in the times of a
 * choice. */
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

/* The named algorithm, or the fastest of the candidates, of equal ones the first, with a profile's
 * launch, per-step and efficiency terms; phases in `arena`. O(phases), and up to 2^14 messages run
 * where closed forms do not say enough. */
ds_status ds_coll_choose(ds_topo *topo, const ds_coll_request *request, const ds_coll_cost *terms,
                         ds_arena *arena, ds_coll_choice *out, ds_error *err);

/* What ds_cost_collective asks for: the capacity of the link that needs longest for its bytes, by
 * the named algorithm or the first of the candidates that there is (0 if no link carries any), the
 * least that the bytes of any candidate take at full capacity, and the islands of fast links that
 * the group has devices in. */
ds_status ds_coll_links_of(ds_topo *topo, const ds_coll_request *request, ds_coll_links *out,
                           ds_error *err);

/* All names, for messages and help; NULL behind the last. */
const char *ds_coll_algorithm(uint32_t i);

/* Which algorithms are looked at: the named one; those that compete where none is named; all that
 * the collective has where "fastest" is. Some may turn out not to be there for this group
 * (DS_ERR_UNSUPPORTED, DS_ERR_UNREACHABLE). Returns their number. */
#define DS_COLL_MOST_ALGORITHMS 8
uint32_t ds_coll_candidates(const ds_coll_request *request, const char **names);

/* Bytes that pass a member's port, relative to the size of the collective of n members.
 * Source: nccl-tests PERFORMANCE.md, "bus bandwidth". */
double ds_coll_bus_factor(ds_opcode op, double n);

#endif
