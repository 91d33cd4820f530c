/* Groups that are images of each other: what one takes, and which links it loads, is looked at
 * once.
 *
 * The members of a group have a canonical place in the topology (sim/topo/symmetry.h). Groups with
 * one canonical place are congruent: an automorphism of the topology maps members to members in
 * order, and with them islands, rings, trees and routes. So the same collective of the same size
 * takes the same time on all of them, and loads the images of the same links. It is looked at on
 * the canonical place; what differs from group to group is where its links are.
 *
 * Left as they are: {route = "single"}, which takes the lowest link ids; and transfers between
 * meshes, whose order is their own. */
#include "sim/plan/comm.h"

#include "sim/coll/coll.h"
#include "sim/coll/reshard.h"
#include "sim/topo/symmetry.h"

#include <stdlib.h>
#include <string.h>

/* A canonical place. */
struct ds_congruent {
    uint32_t *devices;
    uint32_t n;
    uint32_t host; /* vertex, or DS_NONE */
    ds_turn *turn; /* of a group with a period: by so many members */
    uint64_t hash;
    struct ds_congruent *next;
};

void ds_plan__congruent_deinit(ds_builder *b) {
    ds_map_deinit(&b->place_of);
    ds_map_deinit(&b->congruent);
    ds_map_deinit(&b->costs);
    ds_map_deinit(&b->bodies);
    free(b->vertices);
}

static bool keeps_place(const ds_coll_request *q) {
    return q->single_route || q->reshard;
}

/* The vertices of the members, and of a host, at their canonical place. Until the next call the
 * symmetry carries links back to this group. */
static const uint32_t *bring_to_place(ds_builder *b, const ds_coll_request *q) {
    uint32_t n = q->n + (q->host != DS_NONE);
    if (b->n_vertices < n) {
        free(b->vertices);
        b->n_vertices = 2 * n;
        b->vertices = ds_xcalloc(2 * (size_t)n, sizeof *b->vertices);
    }
    for (uint32_t i = 0; i < q->n; i++)
        b->vertices[i] = ds_topo_device_vertex(b->plan->topo, q->devices[i]);
    if (q->host != DS_NONE) b->vertices[q->n] = q->host;
    ds_symmetry_canonical(ds_topo_symmetry(b->plan->topo), b->vertices, n, b->vertices);
    return b->vertices;
}

static bool is_at(const ds_builder *b, const ds_congruent *c, const ds_coll_request *q,
                  const uint32_t *vertices) {
    if (c->n != q->n || (c->host == DS_NONE) != (q->host == DS_NONE)) return false;
    if (c->host != DS_NONE && c->host != vertices[q->n]) return false;
    for (uint32_t i = 0; i < c->n; i++)
        if (ds_topo_device_vertex(b->plan->topo, c->devices[i]) != vertices[i]) return false;
    return true;
}

static ds_congruent *look_for_place(ds_builder *b, const ds_coll_request *q) {
    const uint32_t *vertices = bring_to_place(b, q);
    uint64_t hash = ds_hash_mix(q->n, q->host != DS_NONE ? vertices[q->n] : DS_NONE);
    for (uint32_t i = 0; i < q->n; i++) hash = ds_hash_mix(hash, vertices[i]);
    const uint64_t *found = ds_map_find(&b->congruent, hash);
    ds_congruent *first = found ? (ds_congruent *)(uintptr_t)*found : NULL;
    for (ds_congruent *c = first; c; c = c->next)
        if (is_at(b, c, q, vertices)) return c;
    ds_congruent *c = DS_NEW(&b->plan->arena, ds_congruent);
    *c = (ds_congruent){.n = q->n, .host = q->host, .hash = hash, .next = first};
    if (q->host != DS_NONE) c->host = vertices[q->n];
    c->devices = DS_NEW_N(&b->plan->arena, uint32_t, q->n);
    for (uint32_t i = 0; i < q->n; i++)
        c->devices[i] = ds_topo_device_at(b->plan->topo, vertices[i]);
    ds_map_put(&b->congruent, hash, DS_KEY(c));
    return c;
}

/* A list of many devices is looked for once. */
#define MANY 64

static ds_congruent *find_place(ds_builder *b, const ds_coll_request *q) {
    if (q->n < MANY || q->host != DS_NONE) return look_for_place(b, q);
    uint64_t *slot = ds_map_slot(&b->place_of, ds_hash_mix(DS_KEY(q->devices), q->n));
    if (!*slot) *slot = DS_KEY(look_for_place(b, q));
    return (ds_congruent *)(uintptr_t)*slot;
}

/* The turn by `period` members at a group's canonical place: of this group's devices alone. */
static ds_status find_turn(ds_builder *b, ds_congruent *c, uint32_t period) {
    if (!period || c->turn) return DS_OK;
    uint32_t *to = ds_xcalloc(c->n, sizeof *to);
    for (uint32_t i = 0; i < c->n; i++) to[i] = c->devices[(i + period) % c->n];
    c->turn = ds_turn_new(b->plan->topo, c->devices, to, c->n);
    free(to);
    if (c->turn) DS_HPUSH(&b->turn.places, c->turn);
    return c->turn ? DS_OK : ds_plan__refuse_turn(b);
}

static uint64_t text_hash(const char *text) {
    return text ? ds_hash_bytes(text, strlen(text)) : 0;
}

/* What a cost depends on beside the place and the sizes of shards. */
static uint64_t cost_key(const ds_builder *b, const ds_group *g, uint64_t place) {
    const ds_coll_request *q = g->request;
    uint64_t key = ds_hash_mix(place, q->op);
    key = ds_hash_mix(ds_hash_mix(key, (uint64_t)q->bytes), text_hash(q->algorithm));
    key = ds_hash_mix(ds_hash_mix(key, q->root), (uint64_t)q->shift);
    key = ds_hash_mix(ds_hash_mix(key, (uint64_t)q->chunks), ds_exchange_hash(q->exchange));
    for (uint32_t i = 0; i < q->n; i++) key = ds_hash_mix(key, b->plan->profile_of[q->devices[i]]);
    return ds_hash_mix(key, q->host);
}

static void take_cost(ds_group *g, const ds_group *from) {
    g->terms = from->terms;
    g->ps = from->ps;
    g->algorithm = from->algorithm;
    g->times = from->times;
    g->n_phases = from->n_phases;
}

const ds_turn *ds_plan__place_turn(const ds_group *g) {
    return g->period ? g->congruent->turn : NULL;
}

/* The request of the canonical group. */
static void set_place(const ds_group *g, ds_coll_request *q) {
    q->devices = g->congruent->devices;
    q->host = g->congruent->host;
    q->turn = ds_plan__place_turn(g);
    q->period = g->period;
}

uint64_t ds_plan__place_hash(const ds_congruent *c) {
    return c->hash;
}

uint64_t ds_plan__graph(ds_builder *b) {
    if (!b->graph)
        b->graph = ds_hash_mix(ds_topo_hash(b->plan->topo), ds_profiles_hash(b->profiles)) | 1;
    return b->graph;
}

/* What a cost depends on, whatever the plan. */
static uint64_t ground_key(ds_builder *b, const ds_group *g) {
    return ds_hash_mix(cost_key(b, g, g->congruent->hash), ds_plan__graph(b));
}

/* A reshard is looked at once for the devices where it is. */
static ds_status cost_reshard(ds_builder *b, ds_plan__group_coster *cost, ds_group *g,
                              ds_error *err) {
    const ds_coll_request *q = g->request;
    ds_plan_ground *ground = b->options->ground;
    uint64_t place = ds_hash_bytes(q->devices, q->n * sizeof *q->devices);
    uint64_t key = ds_hash_mix(cost_key(b, g, place), q->reshard->hash);
    key = ds_hash_mix(ds_hash_mix(key, q->single_route), ds_plan__graph(b));
    if (ds_ground__find(ground, key, &b->plan->arena, g)) return DS_OK;
    DS_TRY(cost(b, g, err));
    ds_ground__keep(ground, key, g);
    return DS_OK;
}

ds_status ds_plan__cost_once(ds_builder *b, ds_plan__group_coster *cost, ds_group *g,
                             ds_error *err) {
    if (keeps_place(g->request)) {
        if (g->period) return ds_plan__refuse_turn(b);
        bool is_kept = b->options->ground && g->request->reshard && !g->request->shard_bytes;
        return is_kept ? cost_reshard(b, cost, g, err) : cost(b, g, err);
    }
    ds_congruent *place = find_place(b, g->request);
    g->congruent = place;
    DS_TRY(find_turn(b, place, g->period));
    if (g->request->shard_bytes) return cost(b, g, err);
    ds_plan_ground *ground = b->options->ground;
    uint64_t key = cost_key(b, g, DS_KEY(g->congruent)), kept = ground ? ground_key(b, g) : 0;
    const uint64_t *found = ds_map_find(&b->costs, key);
    if (found) {
        take_cost(g, (const ds_group *)(uintptr_t)*found);
        return DS_OK;
    }
    /* What the canonical group is refused for, this one is, but the message names its devices. */
    ds_group *once = DS_NEW(&b->plan->arena, ds_group);
    ds_coll_request request = *g->request;
    set_place(g, &request);
    *once = *g;
    once->request = &request;
    once->devices = request.devices;
    if (!ground || !ds_ground__find(ground, kept, &b->plan->arena, once)) {
        if (cost(b, once, NULL) != DS_OK) return cost(b, g, err);
        if (ground) ds_ground__keep(ground, kept, once);
    }
    once->request = NULL;
    ds_map_put(&b->costs, key, DS_KEY(once));
    take_cost(g, once);
    return DS_OK;
}

bool ds_plan__cost_alike(ds_builder *b, const ds_group *first, ds_group *g) {
    const ds_coll_request *q = first->request;
    if (!first->congruent || q->shard_bytes || q->host != DS_NONE || g->bytes != first->bytes ||
        g->n_devices != first->n_devices)
        return false;
    for (uint32_t i = 0; i < g->n_devices; i++)
        if (b->plan->profile_of[g->devices[i]] != b->plan->profile_of[first->devices[i]])
            return false;
    ds_coll_request request = *q;
    request.devices = g->devices;
    if (find_place(b, &request) != first->congruent) return false;
    ds_coll_request *own = DS_NEW(&b->plan->arena, ds_coll_request);
    *own = request;
    g->request = own;
    g->congruent = first->congruent;
    g->key = ds_plan__devices_key(g->devices, g->n_devices, q->op == DS_OP_SEND);
    take_cost(g, first);
    return true;
}

ds_status ds_plan__phases_in_place(ds_builder *b, const ds_group *g, const ds_coll_request *request,
                                   ds_arena *arena, ds_phase **phases, uint32_t *n, ds_error *err) {
    ds_coll_request q = *request;
    if (g->congruent) set_place(g, &q);
    return ds_coll_phases(b->plan->topo, &q, g->algorithm, arena, phases, n, err);
}

void ds_plan__carry_links(ds_builder *b, const ds_group *g, const uint32_t *links, uint32_t n,
                          uint32_t *out) {
    if (!g->congruent) {
        memcpy(out, links, n * sizeof *out);
        return;
    }
    bring_to_place(b, g->request);
    ds_symmetry *symmetry = ds_topo_symmetry(b->plan->topo);
    for (uint32_t i = 0; i < n; i++) out[i] = ds_symmetry_carry_link(symmetry, links[i]);
}
