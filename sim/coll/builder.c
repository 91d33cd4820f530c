/* The primitives: messages added up to phases. `load` spreads bytes over the links of a route;
 * everything else is counting. */
#include "ir/base/units.h"
#include "sim/coll/internal.h"

#include <stdlib.h>
#include <string.h>

ds_status ds_coll__at_request(const ds_coll_builder *b, ds_status status) {
    if (status != DS_OK && b->err && !b->err->loc.line) b->err->loc = b->request->loc;
    return status;
}

int64_t ds_coll__shard(const ds_coll_request *r, uint32_t member) {
    if (r->shard_bytes) return r->shard_bytes[member];
    return ds_coll__part(r->bytes, member, r->n);
}

ds_status ds_coll__load(ds_coll_builder *b, const ds_route *route, int64_t bytes, bool at_least) {
    if (route->latency_ps > b->alpha_ps) b->alpha_ps = route->latency_ps;
    if (bytes == 0) return DS_OK;
    for (uint32_t i = 0; i < route->n_links; i++) {
        uint64_t *slot = ds_map_find(&b->slot, route->links[i]);
        uint32_t at = slot ? (uint32_t)*slot : b->loads.n;
        if (!slot) {
            ds_map_put(&b->slot, route->links[i], at);
            DS_HPUSH(&b->loads, ((ds_load){.link = route->links[i]}));
        }
        ds_u128 add = (ds_u128)bytes * route->share_q32[i], *sum = &b->loads.at[at].bytes_q32;
        if (!at_least)
            *sum += add;
        else if (*sum < add)
            *sum = add;
    }
    return DS_OK;
}

ds_status ds_coll__route(ds_coll_builder *b, uint32_t from, uint32_t to, const ds_route **route) {
    uint32_t source = b->request->devices[from], target = b->request->devices[to];
    return ds_coll__at_request(b, b->request->single_route
                                      ? ds_topo_route_single(b->topo, source, target, route, b->err)
                                      : ds_topo_route(b->topo, source, target, route, b->err));
}

ds_status ds_coll__post(ds_coll_builder *b, uint32_t from, uint32_t to, int64_t bytes) {
    if (b->messages) return ds_coll__post_message(b, from, to, bytes);
    const ds_route *route;
    DS_TRY(ds_coll__route(b, from, to, &route));
    return ds_coll__load(b, route, bytes, false);
}

ds_status ds_coll__ring(ds_coll_builder *b, const ds_team *team, bool reduce, bool gather) {
    if (b->messages) return ds_coll__ring_messages(b, team, reduce, gather);
    int64_t whole = 0;
    for (uint32_t i = 0; i < team->n; i++) whole += team->shard[i];
    for (uint32_t i = 0; i < team->n; i++) {
        uint32_t next = i + 1 < team->n ? i + 1 : 0;
        const ds_route *route;
        DS_TRY(ds_coll__route(b, team->member[i], team->member[next], &route));
        if (reduce) ds_coll__load(b, route, whole - team->shard[i], false);
        if (gather) ds_coll__load(b, route, whole - team->shard[next], false);
    }
    return DS_OK;
}

/* In c chunks the first reaches the end after `depth` times its own time, then the others follow:
 * links carry bytes for (depth − 1 + c)/c of the time that the bytes alone take. */
static int64_t with_fill(const ds_coll_builder *b, const ds_tree *tree) {
    int64_t depth = (int64_t)tree->depth * (tree->up + tree->down), chunks = b->request->chunks;
    if (!chunks || depth < 2) return tree->bytes;
    ds_u128 more = (ds_u128)tree->bytes * (uint64_t)(depth - 1) / (uint64_t)chunks;
    return more < INT64_MAX / 2 ? tree->bytes + (int64_t)more : tree->bytes;
}

ds_status ds_coll__tree(ds_coll_builder *b, const ds_tree *tree) {
    if (b->messages) return ds_coll__tree_messages(b, tree);
    int64_t bytes = with_fill(b, tree);
    for (uint32_t i = 0; i < tree->n; i++) {
        if (tree->parent[i] == tree->n) continue;
        uint32_t child = tree->member[i], parent = tree->member[tree->parent[i]];
        if (tree->up) DS_TRY(ds_coll__post(b, child, parent, bytes));
        if (tree->down) DS_TRY(ds_coll__post(b, parent, child, bytes));
    }
    return DS_OK;
}

static int by_link(const void *a, const void *b) {
    const ds_load *x = a, *y = b;
    return x->link < y->link ? -1 : x->link > y->link;
}

void ds_coll__end_phase(ds_coll_builder *b, int64_t steps, int64_t weight) {
    if (b->messages && !b->loads.n) {
        ds_coll__end_messages(b);
        return;
    }
    ds_phase phase = {.steps = steps, .alpha_ps = b->alpha_ps, .weight = weight};
    phase.n_loads = b->loads.n;
    phase.loads = DS_NEW_N(b->arena, ds_load, b->loads.n);
    if (b->loads.n) {
        memcpy(phase.loads, b->loads.at, b->loads.n * sizeof *phase.loads);
        qsort(phase.loads, phase.n_loads, sizeof *phase.loads, by_link);
    }
    ds_map_clear(&b->slot);
    b->loads.n = 0;
    b->alpha_ps = 0;
    if (b->messages)
        ds_coll__phase_message(b, &phase);
    else
        DS_PUSH(b->arena, &b->phases, phase);
}
