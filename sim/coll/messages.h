/* A collective as messages between two devices each, with what each waits for.
 *
 * The same algorithms as in phases: what a phase says of all messages at once, here every message
 * does for itself. A message first waits for the messages whose data it passes on, then its route's
 * latency, then for the one before it on the same edge of a pipeline, and then loads the links of
 * its route. Members begin the next phase when all their own messages of the one before have ended,
 * and a message begins when its sender and its receiver have: nothing is buffered. Several phases
 * in chunks: a member begins a phase of a chunk when it is also through with that phase of the
 * chunk before. */
#ifndef DS_COLL_MESSAGES_H
#define DS_COLL_MESSAGES_H

#include "ir/base/map.h"
#include "sim/coll/coll.h"

typedef struct ds_message {
    const ds_route *route; /* owned by the topology; NULL: no bytes of its own */
    const ds_phase *phase; /* reduction in switches, offload: all members' in one; else NULL */
    int64_t bytes;
    uint32_t n_waits; /* messages that must have ended before its latency begins */
    uint32_t after;   /* and one before it loads links; UINT32_MAX: none */
} ds_message;

typedef struct ds_message_edge {
    uint32_t from, to;
} ds_message_edge;

/* In `arena`. Edges by `from`: each message ends before `to` may begin; every `to` is higher than
 * its `from`, so the order of messages is one in which they could run. */
typedef struct ds_message_graph {
    ds_message *messages;
    uint32_t n_messages;
    uint32_t *first; /* n_messages + 1: edges[first[m] … first[m + 1]) go out from m */
    uint32_t *edges; /* targets */
} ds_message_graph;

/* Chunks into which pipelines cut where the request says nothing (0); nothing is cut where no member
 * passes a chunk on. */
#define DS_MESSAGE_CHUNKS 256

/* The messages of the named algorithm. The same errors as ds_coll_phases, and DS_ERR_LIMIT beyond
 * 2^26 messages or edges. O(messages): n² for a ring. */
ds_status ds_coll_messages(ds_topo *topo, const ds_coll_request *request, const char *algorithm,
                           ds_arena *arena, ds_message_graph *out, ds_error *err);

/* The links that messages load, numbered as they are met. */
typedef struct ds_link_places {
    ds_map place; /* link of the topology + 1 → index */
    DS_VEC(uint32_t) links;
} ds_link_places;
void ds_link_places_deinit(ds_link_places *places);

/* How long a message waits, and whether and how it loads links. */
typedef struct ds_message_load {
    int64_t wait_ps;
    bool loads; /* else it has no flow */
    ds_flow flow;
} ds_message_load;

/* A message with a profile's terms; uses in `arena`. DS_ERR_OVERFLOW. O(links of its route). */
ds_status ds_message_flow(const ds_topo *topo, const ds_message *message, const ds_coll_cost *terms,
                          ds_link_places *places, ds_arena *arena, ds_message_load *out,
                          ds_error *err);

#endif
