/* Each algorithm says which member sends how many bytes to which, in how many latency steps; `hop`
 * spreads those bytes over the links of the route. Everything else is counting. */
#include "sim/coll/coll.h"

#include "ir/base/map.h"
#include "ir/base/units.h"
#include "ir/ops/ops.h"

#include <stdlib.h>
#include <string.h>

const char *const ds_coll_algorithms[] = {"ring", "tree", "direct"};
const uint32_t ds_coll_n_algorithms = 3;

typedef struct builder {
    ds_topo *topo;
    const ds_coll_request *request;
    ds_arena *arena;
    ds_error *err;
    ds_map slot; /* link → index into loads */
    DS_VEC(ds_load) loads;
    int64_t alpha_ps;
    DS_VEC(ds_phase) phases;
} builder;

static ds_status at_request(const builder *b, ds_status status) {
    if (status != DS_OK && b->err && !b->err->loc.line) b->err->loc = b->request->loc;
    return status;
}

/* Adds a message of `bytes` to the links of a route. */
static ds_status load_route(builder *b, const ds_route *route, int64_t bytes) {
    if (route->latency_ps > b->alpha_ps) b->alpha_ps = route->latency_ps;
    if (bytes == 0) return DS_OK;
    for (uint32_t i = 0; i < route->n_links; i++) {
        uint64_t *slot = ds_map_find(&b->slot, route->links[i]);
        uint32_t at = slot ? (uint32_t)*slot : b->loads.n;
        if (!slot) {
            ds_map_put(&b->slot, route->links[i], at);
            DS_HPUSH(&b->loads, ((ds_load){.link = route->links[i]}));
        }
        b->loads.at[at].bytes_q32 += (ds_u128)bytes * route->share_q32[i];
    }
    return DS_OK;
}

/* A message from one member to another. */
static ds_status hop(builder *b, uint32_t from, uint32_t to, int64_t bytes) {
    const ds_route *route;
    uint32_t source = b->request->devices[from], target = b->request->devices[to];
    DS_TRY(at_request(b, b->request->single_route
                             ? ds_topo_route_single(b->topo, source, target, &route, b->err)
                             : ds_topo_route(b->topo, source, target, &route, b->err)));
    return load_route(b, route, bytes);
}

/* A message from the one device to its host, or back. */
static ds_status host_hop(builder *b, bool back) {
    const ds_coll_request *r = b->request;
    const ds_route *route;
    uint32_t device = ds_topo_device_vertex(b->topo, r->devices[0]);
    uint32_t from = back ? r->host : device, to = back ? device : r->host;
    DS_TRY(at_request(b, ds_topo_route_vertices(b->topo, from, to, &route, b->err)));
    return load_route(b, route, r->bytes);
}

static int by_link(const void *a, const void *b) {
    const ds_load *x = a, *y = b;
    return x->link < y->link ? -1 : x->link > y->link;
}

/* Ends the phase that the hops since the last one make up. */
static void end_phase(builder *b, int64_t steps, int64_t weight) {
    ds_phase phase = {.steps = steps, .alpha_ps = b->alpha_ps, .weight = weight};
    phase.n_loads = b->loads.n;
    phase.loads = DS_NEW_N(b->arena, ds_load, b->loads.n);
    if (b->loads.n) {
        memcpy(phase.loads, b->loads.at, b->loads.n * sizeof *phase.loads);
        qsort(phase.loads, phase.n_loads, sizeof *phase.loads, by_link);
    }
    DS_PUSH(b->arena, &b->phases, phase);
    ds_map_clear(&b->slot);
    b->loads.n = 0;
    b->alpha_ps = 0;
}

static int64_t shard(const ds_coll_request *r, uint32_t member) {
    if (r->shard_bytes) return r->shard_bytes[member];
    return r->bytes / r->n + (member < r->bytes % r->n);
}

/* Once around the ring, n − 1 steps. Reduce-scatter: the partial sum of member s's shard sets out
 * at s + 1 and ends at s, so the hop i → i+1 carries every shard but i's. All-gather: shards travel
 * until everybody has them, so it carries every shard but that of i+1. All-reduce is both. */
static ds_status ring_passes(builder *b, bool reduce_scatter, bool all_gather) {
    const ds_coll_request *r = b->request;
    for (uint32_t i = 0; i < r->n; i++) {
        uint32_t next = (i + 1) % r->n;
        if (reduce_scatter) DS_TRY(hop(b, i, next, r->bytes - shard(r, i)));
        if (all_gather) DS_TRY(hop(b, i, next, r->bytes - shard(r, next)));
    }
    end_phase(b, (int64_t)(r->n - 1) * (reduce_scatter + all_gather), 1);
    return DS_OK;
}

/* A pipelined chain from the root around the ring (broadcast) or towards it (reduce). */
static ds_status chain(builder *b, bool towards_root) {
    const ds_coll_request *r = b->request;
    for (uint32_t i = 0; i + 1 < r->n; i++) {
        uint32_t near = (r->root + i) % r->n, far = (r->root + i + 1) % r->n;
        DS_TRY(towards_root ? hop(b, far, near, r->bytes) : hop(b, near, far, r->bytes));
    }
    end_phase(b, r->n - 1, 1);
    return DS_OK;
}

static uint32_t ceil_log2(uint32_t n) {
    uint32_t log = 0;
    while (((uint64_t)1 << log) < n) log++;
    return log;
}

/* Parent of `i` in the in-order binary tree over 1 … n−1, or n for the root; 0 hangs below the
 * root. Odd members are leaves; the lowest set bit tells the height, and moving it up one place
 * leads to the parent. A parent beyond the end is replaced by the nearest ancestor inside. */
static uint32_t tree_parent(uint32_t i, uint32_t n) {
    if (i == 0) { /* the root is the highest power of two below n */
        uint32_t top = 1;
        while (top * 2 < n) top *= 2;
        return n > 1 ? top : n;
    }
    uint32_t bit = i & (~i + 1);
    uint32_t up = (i ^ bit) | (bit << 1);
    if (up >= n) up = i ^ bit;
    return up ? up : n; /* 0 is not inside the tree: i is its root */
}

/* Double binary tree: tree 1 over the members, tree 2 over the members shifted by one, each with
 * half of the bytes. up: child → parent, down: parent → child. */
static ds_status double_tree(builder *b, bool up, bool down, int64_t directions) {
    const ds_coll_request *r = b->request;
    for (uint32_t t = 0; t < 2; t++) {
        int64_t half = t ? r->bytes - r->bytes / 2 : r->bytes / 2;
        for (uint32_t i = 0; i < r->n; i++) {
            uint32_t parent = tree_parent(i, r->n);
            if (parent == r->n) continue;
            uint32_t c = (i + t) % r->n, p = (parent + t) % r->n;
            if (up) DS_TRY(hop(b, c, p, half));
            if (down) DS_TRY(hop(b, p, c, half));
        }
    }
    end_phase(b, directions * ceil_log2(r->n), 1);
    return DS_OK;
}

/* One binary tree rooted at `root`, all bytes on each edge (pipelined). */
static ds_status rooted_tree(builder *b, bool towards_root) {
    const ds_coll_request *r = b->request;
    for (uint32_t i = 1; i < r->n; i++) { /* heap order: parent of i is (i − 1) / 2 */
        uint32_t c = (r->root + i) % r->n, p = (r->root + (i - 1) / 2) % r->n;
        DS_TRY(towards_root ? hop(b, c, p, r->bytes) : hop(b, p, c, r->bytes));
    }
    end_phase(b, ceil_log2(r->n + 1) - 1, 1); /* edges from the root to the deepest leaf */
    return DS_OK;
}

/* Every member sends to every other; bytes by what the receiver or the sender owns. */
static ds_status all_pairs(builder *b, bool senders_shard) {
    const ds_coll_request *r = b->request;
    for (uint32_t i = 0; i < r->n; i++)
        for (uint32_t k = 1; k < r->n; k++) {
            uint32_t j = (i + k) % r->n;
            DS_TRY(hop(b, i, j, shard(r, senders_shard ? i : j)));
        }
    end_phase(b, 1, r->n - 1);
    return DS_OK;
}

static ds_status star(builder *b, bool towards_root) {
    const ds_coll_request *r = b->request;
    for (uint32_t i = 0; i < r->n; i++) {
        if (i == r->root) continue;
        DS_TRY(towards_root ? hop(b, i, r->root, shard(r, i)) : hop(b, r->root, i, shard(r, i)));
    }
    end_phase(b, 1, 1);
    return DS_OK;
}

static ds_status shifted(builder *b) {
    const ds_coll_request *r = b->request;
    for (uint32_t i = 0; i < r->n; i++) {
        uint32_t to = (uint32_t)ds_floormod((int64_t)i + r->shift, r->n);
        if (to != i) DS_TRY(hop(b, i, to, r->bytes));
    }
    end_phase(b, 1, 1);
    return DS_OK;
}

static ds_status build(builder *b, const char *algorithm) {
    bool ring = strcmp(algorithm, "ring") == 0, tree = strcmp(algorithm, "tree") == 0;
    bool direct = strcmp(algorithm, "direct") == 0;
    const ds_coll_request *r = b->request;
    switch (r->op) {
    case DS_OP_ALL_REDUCE:
        if (ring) return ring_passes(b, true, true);
        if (tree) return double_tree(b, true, true, 2);
        if (direct) {
            DS_TRY(all_pairs(b, false));
            return all_pairs(b, true);
        }
        break;
    case DS_OP_ALL_GATHER:
        if (ring) return ring_passes(b, false, true);
        if (direct) return all_pairs(b, true);
        break;
    case DS_OP_REDUCE_SCATTER:
        if (ring) return ring_passes(b, true, false);
        if (direct) return all_pairs(b, false);
        break;
    case DS_OP_ALL_TO_ALL:
        if (direct) return all_pairs(b, false);
        break;
    case DS_OP_BROADCAST:
    case DS_OP_REDUCE:
        if (ring) return chain(b, r->op == DS_OP_REDUCE);
        if (tree) return rooted_tree(b, r->op == DS_OP_REDUCE);
        break;
    case DS_OP_SCATTER:
    case DS_OP_GATHER:
        if (direct) return star(b, r->op == DS_OP_GATHER);
        break;
    case DS_OP_SEND:
        if (direct) {
            DS_TRY(hop(b, 0, 1, r->bytes));
            end_phase(b, 1, 1);
            return DS_OK;
        }
        break;
    case DS_OP_PERMUTE:
        if (direct) return shifted(b);
        break;
    case DS_OP_OFFLOAD:
    case DS_OP_RELOAD:
        if (direct) {
            DS_TRY(host_hop(b, r->op == DS_OP_RELOAD));
            end_phase(b, 1, 1);
            return DS_OK;
        }
        break;
    default:
        break;
    }
    return ds_error_set(b->err, DS_ERR_UNSUPPORTED, r->loc, "%s has no algorithm \"%s\"",
                        ds_op_name(r->op), algorithm);
}

ds_status ds_coll_phases(ds_topo *topo, const ds_coll_request *request, const char *algorithm,
                         ds_arena *arena, ds_phase **phases, uint32_t *n_phases, ds_error *err) {
    builder b = {.topo = topo, .request = request, .arena = arena, .err = err};
    bool moves = request->n > 1 || ds_op_desc_of(request->op)->flags & DS_OPF_HOST;
    ds_status status = moves ? build(&b, algorithm) : DS_OK;
    *phases = b.phases.at;
    *n_phases = b.phases.n;
    ds_map_deinit(&b.slot);
    free(b.loads.at);
    return status;
}

/* One phase's times; adds them to *total. */
static ds_status phase_time(ds_topo *topo, const ds_coll_request *request, ds_phase *phase,
                            const ds_coll_cost *terms, ds_phase_time *out, int64_t *total,
                            ds_error *err) {
    int64_t all_ps;
    if (!ds_add_i64(phase->alpha_ps, terms->step_ps, &phase->alpha_ps)) phase->alpha_ps = INT64_MAX;
    ds_status status = ds_phase_alone_ps(topo, phase, terms->efficiency_q32, &all_ps, err);
    if (status != DS_OK) {
        if (err) err->loc = request->loc;
        return status;
    }
    if (!ds_add_i64(*total, all_ps, total))
        return ds_error_set(err, DS_ERR_OVERFLOW, request->loc,
                            "a collective takes longer than int64 picoseconds hold");
    out->wait_ps = phase->steps * phase->alpha_ps;
    out->flow_ps = all_ps - out->wait_ps;
    out->most_q32 = ds_phase_most_bytes_q32(phase);
    return DS_OK;
}

static ds_status choose_this(ds_topo *topo, const ds_coll_request *request,
                             const ds_coll_cost *terms, const char *algorithm, ds_arena *arena,
                             ds_coll_choice *out, ds_error *err) {
    ds_arena scratch;
    ds_arena_init(&scratch);
    ds_phase *phases;
    *out = (ds_coll_choice){.algorithm = algorithm, .ps = terms->launch_ps};
    ds_status status =
        ds_coll_phases(topo, request, algorithm, &scratch, &phases, &out->n_phases, err);
    if (status == DS_OK) out->phases = DS_NEW_N(arena, ds_phase_time, out->n_phases);
    for (uint32_t i = 0; i < out->n_phases && status == DS_OK; i++)
        status = phase_time(topo, request, &phases[i], terms, &out->phases[i], &out->ps, err);
    ds_arena_deinit(&scratch);
    return status;
}

const char *const *ds_coll_candidates(ds_opcode op, uint32_t *n) {
    static const char *const ring_tree[] = {"ring", "tree"};
    static const char *const direct[] = {"direct"};
    switch (op) {
    case DS_OP_ALL_REDUCE:
    case DS_OP_BROADCAST:
    case DS_OP_REDUCE:
        *n = 2;
        return ring_tree;
    case DS_OP_ALL_GATHER:
    case DS_OP_REDUCE_SCATTER:
        *n = 1;
        return ring_tree;
    default:
        *n = 1;
        return direct;
    }
}

ds_status ds_coll_choose(ds_topo *topo, const ds_coll_request *request, const ds_coll_cost *terms,
                         ds_arena *arena, ds_coll_choice *out, ds_error *err) {
    if (request->algorithm)
        return choose_this(topo, request, terms, request->algorithm, arena, out, err);
    uint32_t n;
    const char *const *names = ds_coll_candidates(request->op, &n);
    for (uint32_t i = 0; i < n; i++) {
        ds_coll_choice this_one;
        DS_TRY(choose_this(topo, request, terms, names[i], arena, &this_one, err));
        if (i == 0 || this_one.ps < out->ps) *out = this_one;
    }
    return DS_OK;
}
