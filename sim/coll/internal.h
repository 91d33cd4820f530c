/* Shared by the files of sim/coll; not a public header.
 *
 * An algorithm says what its members send to each other, in a few primitives (builder.c). They add
 * the bytes up to phases, or write every message down (messages.c); the algorithms do not know
 * which. */
#ifndef DS_COLL_INTERNAL_H
#define DS_COLL_INTERNAL_H

#include "ir/base/map.h"
#include "sim/coll/coll.h"

/* The members by islands (sim/topo/island.c), and in which orders rings go through them. */
typedef struct ds_layout {
    uint32_t n_islands;
    const uint32_t **member; /* per island: members in ring order */
    uint32_t *count;
    uint32_t most;    /* members of the largest island */
    bool even;        /* all islands are as large */
    uint32_t **rings; /* n members each; every ring has an equal part of the bytes */
    uint32_t n_rings;
    uint32_t *chain; /* n members along direct links, where those close no ring; else NULL */
} ds_layout;

typedef struct ds_coll_builder {
    ds_topo *topo;
    const ds_coll_request *request;
    ds_arena *arena; /* of what is made */
    ds_error *err;
    ds_layout layout;
    bool has_layout;
    ds_map slot; /* link → index into loads */
    DS_VEC(ds_load) loads;
    int64_t alpha_ps;
    DS_VEC(ds_phase) phases;
    struct ds_messages *messages; /* NULL: phases are made */
} ds_coll_builder;

/* Some members, and how many bytes of the collective each of them owns. */
typedef struct ds_team {
    const uint32_t *member;
    uint32_t n;
    const int64_t *shard;
} ds_team;

/* Bytes that a member owns. */
int64_t ds_coll__shard(const ds_coll_request *request, uint32_t member);
/* Part i of n of `bytes`, as even as whole bytes allow. */
static inline int64_t ds_coll__part(int64_t bytes, uint32_t i, uint32_t n) {
    return bytes / n + (i < bytes % n);
}

/* ---- builder.c: primitives ---- */

/* Adds bytes to the links of a route, all of them or no less than there are. */
ds_status ds_coll__load(ds_coll_builder *b, const ds_route *route, int64_t bytes, bool at_least);
/* A message that depends on all that its sender has got in the phases before. */
ds_status ds_coll__post(ds_coll_builder *b, uint32_t from, uint32_t to, int64_t bytes);
/* Once around the ring in n − 1 steps. Reduce-scatter: the partial sum of member s's shard sets out
 * at s + 1 and ends at s, so the hop i → i+1 carries every shard but i's. All-gather: shards travel
 * until everybody has them, so it carries every shard but that of i+1. All-reduce is both. */
ds_status ds_coll__ring(ds_coll_builder *b, const ds_team *team, bool reduce, bool gather);
/* All bytes over each edge of a tree, pipelined: up, from members to parents, or down, or up and
 * then down. parent[i]: an index into `member`, or n for the root. */
typedef struct ds_tree {
    const uint32_t *member, *parent;
    uint32_t n;
    uint32_t depth; /* edges from the root to the deepest member */
    int64_t bytes;
    bool up, down;
} ds_tree;
ds_status ds_coll__tree(ds_coll_builder *b, const ds_tree *tree);
/* Ends the phase that all since the last one make up. */
void ds_coll__end_phase(ds_coll_builder *b, int64_t steps, int64_t weight);

/* coll.c: has the algorithm, or refuses it. */
ds_status ds_coll__build(ds_coll_builder *b, const char *algorithm);
void ds_coll__deinit(ds_coll_builder *b);

ds_status ds_coll__route(ds_coll_builder *b, uint32_t from, uint32_t to, const ds_route **route);
ds_status ds_coll__at_request(const ds_coll_builder *b, ds_status status);

/* layout.c */
const ds_layout *ds_coll__layout(ds_coll_builder *b);

/* Algorithms, each with those that it does; the others are refused before. */
ds_status ds_coll__ring_algorithm(ds_coll_builder *b);
ds_status ds_coll__tree_algorithm(ds_coll_builder *b);
ds_status ds_coll__direct_algorithm(ds_coll_builder *b);
ds_status ds_coll__halving_algorithm(ds_coll_builder *b);
ds_status ds_coll__hierarchical_algorithm(ds_coll_builder *b);
ds_status ds_coll__pxn_algorithm(ds_coll_builder *b);
ds_status ds_coll__switch_algorithm(ds_coll_builder *b);
/* reshard.c */
ds_status ds_coll__collectives_algorithm(ds_coll_builder *b);
ds_status ds_coll__send_recv_algorithm(ds_coll_builder *b);
ds_status ds_coll__send_recv_gather_algorithm(ds_coll_builder *b);
ds_status ds_coll__broadcast_algorithm(ds_coll_builder *b);

/* messages.c: the primitives where every message is written down */
ds_status ds_coll__post_message(ds_coll_builder *b, uint32_t from, uint32_t to, int64_t bytes);
ds_status ds_coll__ring_messages(ds_coll_builder *b, const ds_team *team, bool reduce, bool gather);
ds_status ds_coll__tree_messages(ds_coll_builder *b, const ds_tree *tree);
void ds_coll__end_messages(ds_coll_builder *b);
/* What the loads of the phase hold becomes one message of all members. */
void ds_coll__phase_message(ds_coll_builder *b, const ds_phase *phase);

#endif
