/* Shared by the files of sim/coll; not a public header.
 *
 * An algorithm says what its members send to each other, in a few primitives (builder.c). They add
 * the bytes up to phases, or write every message down (messages.c); the algorithms do not know
 * which. */
#ifndef DS_COLL_INTERNAL_H
#define DS_COLL_INTERNAL_H

#include "ir/base/map.h"
#include "ir/ops/algorithms.def"
#include "sim/coll/coll.h"
#include "sim/topo/turn.h"

/* Bounds of a time that differ by less than 1/DS_COLL_CLOSE of it are good enough. */
#define DS_COLL_CLOSE 256

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

/* What the members of a phase do, for its time alone (alone.c). */
typedef struct ds_hop {
    const ds_route *route;
    int64_t bytes; /* of all its messages */
    uint32_t from, to;
    bool turned;      /* the builder's turn takes it to hops that are not listed */
    uint32_t towards; /* tree: the next edge on the way to the root, an earlier one; UINT32_MAX */
} ds_hop;

typedef struct ds_part {
    enum { DS_PART_POSTS, DS_PART_RING, DS_PART_TREE } kind;
    uint32_t first, n; /* of hops; a tree of two ways has the edges up, then those down */
    int64_t steps;     /* ring */
    uint32_t times;    /* ring: its hops follow each other so many times */
    uint32_t chained;  /* tree: so many hops of either way are chains (ds_chains) */
    bool two_ways;
    bool uneven; /* ring: shards differ, and so do steps */
} ds_part;

/* Bounds of a phase's time alone, DS_NEVER_PS beyond int64; all of its members are through no
 * earlier than first_ps. */
typedef struct ds_span {
    int64_t least_ps, most_ps, first_ps;
    bool unsure; /* no bounds, whatever they say */
} ds_span;

typedef struct ds_coll_builder {
    ds_topo *topo;
    const ds_coll_request *request;
    ds_arena *arena; /* of what is made */
    ds_error *err;
    ds_layout layout;
    bool has_layout;
    uint32_t *place; /* link → index into loads, if that has the link; NULL: not taken yet */
    bool shares;     /* another builder has the room: */
    ds_map slot;     /* link → index into loads */
    DS_VEC(ds_load) loads;
    int64_t alpha_ps;
    const ds_turn *turn; /* under which the phase being made, or some of it, repeats; NULL: none */
    bool turns;          /* the hops being added stand for their images */
    bool clashes;        /* a link is loaded by these and by others */
    DS_VEC(ds_phase) phases;
    struct ds_messages *messages; /* NULL: phases are made */
    const ds_coll_cost *terms;    /* phases with their times alone; NULL: with the slowest hop's */
    DS_VEC(ds_hop) hops;          /* of the phase that is being made, if there are terms */
    DS_VEC(ds_part) parts;
    int64_t least_ps, most_ps; /* sums over phases; DS_NEVER_PS beyond int64 */
    bool unsure;               /* a phase has no bounds */
    bool uneven;               /* some members are through with a phase long before others */
    uint64_t n_messages;
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

/* A number of bytes left int64. */
ds_status ds_coll__too_large(const ds_coll_builder *b);
/* A time left int64. */
ds_status ds_coll__too_long(const ds_coll_request *request, ds_error *err);
/* The load of a link in the phase being made; the second makes it, if there is none yet. */
const ds_load *ds_coll__find_load(const ds_coll_builder *b, uint32_t link);
ds_load *ds_coll__load_of(ds_coll_builder *b, uint32_t link);
/* Adds the loads of another phase. */
void ds_coll__add_loads(ds_coll_builder *b, const ds_phase *from);
/* Forgets all loads. */
void ds_coll__clear_loads(ds_coll_builder *b);
/* Adds bytes to the links of a route, all of them or no less than there are. */
ds_status ds_coll__load(ds_coll_builder *b, const ds_route *route, int64_t bytes, bool at_least);
/* Is a link loaded by hops that stand for their images, and by others? O(loads). */
bool ds_coll__clash(const ds_coll_builder *b);
/* Forgets all that was added since the last phase ended. */
void ds_coll__drop_phase(ds_coll_builder *b);
/* A message that depends on all that its sender has got in the phases before. */
ds_status ds_coll__post(ds_coll_builder *b, uint32_t from, uint32_t to, int64_t bytes);
/* Once around the ring in n − 1 steps. Reduce-scatter: the partial sum of member s's shard sets out
 * at s + 1 and ends at s, so the hop i → i+1 carries every shard but i's. All-gather: shards travel
 * until everybody has them, so it carries every shard but that of i+1. All-reduce is both. */
ds_status ds_coll__ring(ds_coll_builder *b, const ds_team *team, bool reduce, bool gather);
/* Below each member of a tree a chain of others: that of member i is member[i % n_chains · length …
 * + length), beginning with the member itself; chains not listed are images of the listed ones under
 * the request's turn. Members are numbered chain after chain. */
typedef struct ds_chains {
    const uint32_t *member;
    uint32_t n_chains, length;
} ds_chains;
/* All bytes over each edge of a tree, pipelined: up, from members to parents, or down, or up and
 * then down. parent[i]: an index into `member`, or n for the root. */
typedef struct ds_tree {
    const uint32_t *member, *parent;
    uint32_t n;
    const struct ds_chains *chains; /* NULL: none */
    uint32_t depth;                 /* edges from the root to the deepest member */
    int64_t bytes;
    bool up, down;
    /* Messages alone, of the edge into each member; NULL: not asked for. Its first chunk loads
     * links after gate[i], and last[i] is set to its last one. */
    const uint32_t *gate;
    uint32_t *last;
} ds_tree;
ds_status ds_coll__tree(ds_coll_builder *b, const ds_tree *tree);
/* The tree's edges so that those nearer to the root come first: edge[0 … n − 1), member indices. */
uint32_t *ds_coll__top_down(ds_coll_builder *b, const ds_tree *tree);
/* Ends the phase that all since the last one make up. */
void ds_coll__end_phase(ds_coll_builder *b, int64_t steps, int64_t weight);

/* coll.c: has the algorithm, or refuses it. */
ds_status ds_coll__build(ds_coll_builder *b, const char *algorithm);
void ds_coll__deinit(ds_coll_builder *b);
/* Can it be done so? What only some groups have (levels, a switch) is passed over in a choice. */
bool ds_coll__is_passed_over(ds_status status);
/* Where nothing can be done, a way that is not there says more than a name that does not fit. */
bool ds_coll__says_more(ds_status status, ds_status than);

ds_status ds_coll__route(ds_coll_builder *b, uint32_t from, uint32_t to, const ds_route **route);
ds_status ds_coll__at_request(const ds_coll_builder *b, ds_status status);

/* alone.c: bounds of the time that the parts of the phase being made take with the network to
 * themselves; flow_ps: what its most loaded link needs. O(hops · length of routes). */
ds_span ds_coll__alone(const ds_coll_builder *b, int64_t flow_ps);
/* rehearse.c: the same time by running all messages, in *ps. */
ds_status ds_coll__rehearse(ds_topo *topo, const ds_coll_request *request, const char *algorithm,
                            const ds_coll_cost *terms, int64_t *ps, ds_error *err);

/* layout.c */
const ds_layout *ds_coll__layout(ds_coll_builder *b);

/* The functions of ir/ops/algorithms.def, each with the collectives of its line; other collectives
 * are refused before. */
#define X(function, ...) ds_status ds_coll__##function##_algorithm(ds_coll_builder *b);
DS_ALGORITHMS(X)
#undef X

/* messages.c: the primitives where every message is written down */
ds_status ds_coll__post_message(ds_coll_builder *b, uint32_t from, uint32_t to, int64_t bytes);
ds_status ds_coll__ring_messages(ds_coll_builder *b, const ds_team *team, bool reduce, bool gather);
ds_status ds_coll__tree_messages(ds_coll_builder *b, const ds_tree *tree);
void ds_coll__end_messages(ds_coll_builder *b);
/* One without bytes that ends when the others have; UINT32_MAX for none. */
uint32_t ds_coll__join_messages(ds_coll_builder *b, const uint32_t *others, uint32_t n);
/* What the loads of the phase hold becomes one message of all members. */
void ds_coll__phase_message(ds_coll_builder *b, const ds_phase *phase);

#endif
