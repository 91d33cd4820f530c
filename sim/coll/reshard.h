/* Resharding: from any tiles on some devices to any tiles on others (DS_OP_RESHARD).
 *
 * What a tile of the source and one of the destination have in common is a *piece*: those that hold
 * the source tile can send it, those that shall hold the destination tile and lack it receive it.
 *
 * Ways to move the pieces, each an algorithm of coll.c (NIC: the links of an island to the others):
 *
 *   send_recv         every receiver gets each of its pieces whole from one sender, all at once:
 *                     a + (bytes over the busiest NIC)/B where shares are equal. One sender,
 *                     m receivers elsewhere: a + m·S/B.
 *   send_recv_gather  the k receivers of a piece in one island get 1/k of it each, then gather:
 *                     a + S/B + (k−1)a' + (k−1)/k·S/B' for those k.
 *   broadcast         each piece goes down a chain through all its receivers in a pipeline, into
 *                     every island once: over hops of latency a_i and bytes that take f_i, in c
 *                     chunks, Σ a_i + max f + (Σ f_i − max f)/c, however many the receivers. A hop
 *                     waits for the pieces before it on the links that both need most.
 *   collectives       a sequence of collectives, given by who asks.
 *
 * Alone, each takes as long as its messages (rehearse.c) with as many chunks as these are cut into
 * (256 where the request says nothing; one of a chain of one hop), up to 2^16 messages; beyond, as
 * long as slices of the schedule (reshard.c).
 *
 * Who sends, and what goes first (`balance`):
 *
 *   none   the first of those that hold the piece; in order
 *   size   largest first, each from the one with the least to send so far; in order
 *   order  also the order: the best of randomised greedy choices and of a search, depth first, that
 *          ends after a number of nodes; the same on every machine. send_recv and send_recv_gather
 *          have no order: as `size`.
 *
 * Terms of a sum are first reduced and scattered among one holder of each (a ring), so that each
 * has an equal part to send.
 *
 * Source: Zhuang et al., "On Optimizing the Communication of Model Parallelism", MLSys 2023, arXiv
 * 2211.05322: the three ways to move pieces, sender and order as a scheduling problem, randomised
 * greedy and depth-first search. There hosts are busy or free; here links are, so that devices with
 * NICs of their own do not wait for each other. */
#ifndef DS_COLL_RESHARD_H
#define DS_COLL_RESHARD_H

#include "ir/core/ir.h"

typedef enum ds_reshard_balance {
    DS_BALANCE_ORDER,
    DS_BALANCE_SIZE,
    DS_BALANCE_NONE
} ds_reshard_balance;

/* Members are indices into the request's devices. senders[t · n_senders + k] holds term t of the
 * piece; the k-th holders of all terms sum them up together. */
typedef struct ds_reshard_piece {
    int64_t bytes;
    const uint32_t *senders;
    uint32_t n_senders, n_terms;
    const uint32_t *receivers;
    uint32_t n_receivers;
} ds_reshard_piece;

/* One collective of a sequence, in groups at once. */
typedef struct ds_reshard_step {
    ds_opcode op;
    const uint32_t *members; /* n_groups × group_size */
    uint32_t n_groups, group_size;
    const int64_t *bytes;       /* per group, as in ds_coll_request */
    const int64_t *shard_bytes; /* like members, or NULL */
} ds_reshard_step;

typedef struct ds_reshard {
    const ds_reshard_piece *pieces;
    uint32_t n_pieces;
    const ds_reshard_step *steps; /* of "collectives" */
    uint32_t n_steps;
    ds_reshard_balance balance;
    uint64_t hash;                 /* of all above */
    struct ds_reshard_slot *slots; /* when each broadcast begins, found by the first that asks; one
                                      for each piece and term */
    bool *has_slots;
} ds_reshard;

/* Sets hash, and makes room for slots in `arena`. */
void ds_reshard_finish(ds_reshard *reshard, ds_arena *arena);

/* ---- who sends and what goes first: a scheduling problem of its own ---- */

/* An item is done in one of several ways, each of which keeps some resources busy for `ps`. */
typedef struct ds_reshard_option {
    int64_t ps;
    const uint32_t *resources;
    uint32_t n_resources;
} ds_reshard_option;

typedef struct ds_reshard_item {
    const ds_reshard_option *options; /* one at least */
    uint32_t n_options;
} ds_reshard_item;

typedef struct ds_reshard_slot {
    uint32_t option;
    int64_t start_ps;
} ds_reshard_slot;

/* Gives every item a way and a start such that no resource is busy twice at a time; returns when
 * the last one ends. Deterministic. O(items · options · resources of each) for none and size; order
 * adds at most a constant number of as many steps (reshard_order.c). */
int64_t ds_reshard_order(const ds_reshard_item *items, uint32_t n, uint32_t n_resources,
                         ds_reshard_balance balance, ds_reshard_slot *slots);

#endif
