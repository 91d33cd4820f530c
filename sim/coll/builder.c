/* The primitives: messages added up to phases. `load` spreads bytes over the links of a route;
 * everything else is counting. */
#include "ir/base/units.h"
#include "ir/ops/ops.h"
#include "sim/coll/internal.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

ds_status ds_coll__at_request(const ds_coll_builder *b, ds_status status) {
    if (status != DS_OK && b->err && !b->err->loc.line) ds_error_move(b->err, b->request->loc);
    return status;
}

int64_t ds_coll__shard(const ds_coll_request *r, uint32_t member) {
    if (r->shard_bytes) return r->shard_bytes[member];
    return ds_coll__part(r->bytes, member, r->n);
}

ds_status ds_coll__too_large(const ds_coll_builder *b) {
    const ds_coll_request *q = b->request;
    return ds_error_set(b->err, DS_ERR_OVERFLOW, q->loc,
                        "%s of %lld bytes over %u: more than 2^63 bytes from one of its members to "
                        "another",
                        ds_op_name(q->op), (long long)q->bytes, q->n);
}

/* Numbers of links that are not loaded are of no meaning: they are not cleared. */
const ds_load *ds_coll__find_load(const ds_coll_builder *b, uint32_t link) {
    if (b->shares) {
        const uint64_t *slot = ds_map_find(&b->slot, link);
        return slot ? &b->loads.at[*slot] : NULL;
    }
    uint32_t at = b->place ? b->place[link] : b->loads.n;
    return at < b->loads.n && b->loads.at[at].link == link ? &b->loads.at[at] : NULL;
}

ds_load *ds_coll__load_of(ds_coll_builder *b, uint32_t link) {
    if (!b->place && !b->shares) {
        b->place = ds_topo_take_numbers(b->topo);
        b->shares = !b->place;
    }
    const ds_load *known = ds_coll__find_load(b, link);
    if (known) return &b->loads.at[known - b->loads.at];
    if (b->shares)
        ds_map_put(&b->slot, link, b->loads.n);
    else
        b->place[link] = b->loads.n;
    DS_HPUSH(&b->loads, ((ds_load){.link = link}));
    return &b->loads.at[b->loads.n - 1];
}

void ds_coll__add_loads(ds_coll_builder *b, const ds_phase *from) {
    for (uint32_t i = 0; i < from->n_loads; i++)
        ds_coll__load_of(b, from->loads[i].link)->bytes_q32 += from->loads[i].bytes_q32;
}

void ds_coll__clear_loads(ds_coll_builder *b) {
    if (b->shares) ds_map_clear(&b->slot);
    b->loads.n = 0;
}

ds_status ds_coll__load(ds_coll_builder *b, const ds_route *route, int64_t bytes, bool at_least) {
    if (route->latency_ps > b->alpha_ps) b->alpha_ps = route->latency_ps;
    if (bytes == 0) return DS_OK;
    for (uint32_t i = 0; i < route->n_links; i++) {
        ds_turned at = {.first = route->links[i]};
        if (b->turns) at = ds_turn_link(b->turn, route->links[i]);
        ds_load *load = ds_coll__load_of(b, at.first);
        ds_u128 add = (ds_u128)bytes * route->share_q32[i], *sum = &load->bytes_q32;
        if (*sum && load->turned != at.moves) b->clashes = true;
        load->turned = at.moves;
        if (b->turns && !at.moves) add *= ds_turn_order(b->turn); /* all images load it */
        if (!at_least)
            *sum += add;
        else if (*sum < add)
            *sum = add;
    }
    return DS_OK;
}

bool ds_coll__clash(const ds_coll_builder *b) {
    bool clashes = b->clashes;
    for (uint32_t i = 0; i < b->loads.n && !clashes; i++) {
        if (b->loads.at[i].turned) continue;
        const ds_load *first =
            ds_coll__find_load(b, ds_turn_link(b->turn, b->loads.at[i].link).first);
        clashes = first && first->turned;
    }
    return clashes;
}

void ds_coll__drop_phase(ds_coll_builder *b) {
    ds_coll__clear_loads(b);
    b->hops.n = b->parts.n = 0;
    b->turn = NULL;
    b->turns = b->clashes = false;
    b->alpha_ps = 0;
}

ds_status ds_coll__route(ds_coll_builder *b, uint32_t from, uint32_t to, const ds_route **route) {
    uint32_t source = b->request->devices[from], target = b->request->devices[to];
    return ds_coll__at_request(b, b->request->single_route
                                      ? ds_topo_route_single(b->topo, source, target, route, b->err)
                                      : ds_topo_route(b->topo, source, target, route, b->err));
}

/* ---- what is timed ---- */

static ds_part *new_part(ds_coll_builder *b, ds_part part) {
    part.first = b->hops.n;
    DS_HPUSH(&b->parts, part);
    return &b->parts.at[b->parts.n - 1];
}

/* Loads a hop with all its bytes, and writes it down where times are asked for. */
static ds_status add_hop(ds_coll_builder *b, uint32_t from, uint32_t to, int64_t bytes,
                         uint32_t towards) {
    ds_hop hop = {.bytes = bytes, .from = from, .to = to, .turned = b->turns, .towards = towards};
    DS_TRY(ds_coll__route(b, from, to, &hop.route));
    if (b->terms) {
        DS_HPUSH(&b->hops, hop);
        b->parts.at[b->parts.n - 1].n++;
    }
    return ds_coll__load(b, hop.route, bytes, false);
}

/* ---- the primitives ---- */

ds_status ds_coll__post(ds_coll_builder *b, uint32_t from, uint32_t to, int64_t bytes) {
    if (b->messages) return ds_coll__post_message(b, from, to, bytes);
    if (b->terms && (!b->parts.n || b->parts.at[b->parts.n - 1].kind != DS_PART_POSTS))
        new_part(b, (ds_part){.kind = DS_PART_POSTS});
    b->n_messages += b->turns ? ds_turn_order(b->turn) : 1;
    return add_hop(b, from, to, bytes, NONE);
}

/* Shards as equal as whole bytes allow? */
static bool is_even(const ds_team *team) {
    int64_t least = team->shard[0], most = least;
    for (uint32_t i = 1; i < team->n; i++) {
        if (team->shard[i] < least) least = team->shard[i];
        if (team->shard[i] > most) most = team->shard[i];
    }
    return most - least <= 1;
}

/* How many hops of the ring tell all: those of one period, where the rest are images of them. */
static uint32_t hops_that_tell(ds_coll_builder *b, const ds_team *team) {
    const ds_coll_request *q = b->request;
    bool alone = b->has_layout && b->layout.n_rings == 1 && team->n == q->n && !q->chunks;
    bool repeats = q->turn && alone && !q->shard_bytes && q->bytes % q->n == 0;
    for (uint32_t i = 0; i < team->n && repeats; i++) repeats = team->member[i] == i;
    if (!repeats) return team->n;
    b->turn = q->turn;
    b->turns = true;
    return q->period;
}

ds_status ds_coll__ring(ds_coll_builder *b, const ds_team *team, bool reduce, bool gather) {
    if (b->messages) return ds_coll__ring_messages(b, team, reduce, gather);
    int64_t whole = 0, steps = (int64_t)(team->n - 1) * (reduce + gather);
    if (team->n < 2) return DS_OK;
    uint32_t n = hops_that_tell(b, team);
    if (b->terms)
        new_part(b, (ds_part){.kind = DS_PART_RING,
                              .steps = steps,
                              .times = team->n / n,
                              .uneven = !is_even(team)});
    b->n_messages += (uint64_t)steps * team->n;
    for (uint32_t i = 0; i < team->n; i++) whole += team->shard[i];
    for (uint32_t i = 0; i < n; i++) {
        uint32_t next = i + 1 < team->n ? i + 1 : 0;
        int64_t bytes = reduce ? whole - team->shard[i] : 0;
        if (!ds_add_i64(bytes, gather ? whole - team->shard[next] : 0, &bytes))
            return ds_coll__too_large(b);
        DS_TRY(add_hop(b, team->member[i], team->member[next], bytes, NONE));
    }
    return DS_OK;
}

/* Members so that parents come before their children. */
uint32_t *ds_coll__top_down(ds_coll_builder *b, const ds_tree *t) {
    uint32_t *order = DS_NEW_N(b->arena, uint32_t, t->n);
    uint32_t *child = DS_NEW_N(b->arena, uint32_t, t->n);
    uint32_t *next = DS_NEW_N(b->arena, uint32_t, t->n), n = 0;
    for (uint32_t i = 0; i < t->n; i++) child[i] = next[i] = NONE;
    for (uint32_t i = 0; i < t->n; i++) {
        if (t->parent[i] == t->n) {
            order[n++] = i;
            continue;
        }
        next[i] = child[t->parent[i]];
        child[t->parent[i]] = i;
    }
    for (uint32_t at = 0; at < n; at++)
        for (uint32_t c = child[order[at]]; c != NONE; c = next[c]) order[n++] = c;
    return order;
}

/* All edges one way; `edge` is scratch for the members' hops. */
static ds_status tree_edges(ds_coll_builder *b, const ds_tree *t, const uint32_t *order, bool up,
                            int64_t bytes, uint32_t *edge) {
    const ds_chains *c = t->chains;
    for (uint32_t k = 0; k < t->n; k++) {
        uint32_t i = order[k], p = t->parent[i];
        edge[i] = NONE;
        if (p == t->n) continue;
        uint32_t child = t->member[i], parent = t->member[p];
        edge[i] = b->hops.n;
        DS_TRY(add_hop(b, up ? child : parent, up ? parent : child, bytes, edge[p]));
    }
    b->turns = c != NULL;
    for (uint32_t i = 0; c && i < c->n_chains * c->length; i++) {
        if (i % c->length == 0) continue;
        uint32_t child = c->member[i], parent = c->member[i - 1];
        DS_TRY(add_hop(b, up ? child : parent, up ? parent : child, bytes, NONE));
    }
    b->turns = false;
    return DS_OK;
}

/* Where nobody asks for the times of hops the fill of a chain in c chunks counts as bytes: links
 * carry them for (depth − 1 + c)/c of the time that they alone take. */
static ds_status with_fill(const ds_coll_builder *b, const ds_tree *tree, int64_t *bytes) {
    int64_t depth = (int64_t)tree->depth * (tree->up + tree->down), chunks = b->request->chunks;
    *bytes = tree->bytes;
    if (b->request->op != DS_OP_RESHARD || !chunks || depth < 2) return DS_OK;
    ds_i128 more = (ds_i128)tree->bytes * (depth - 1) / chunks;
    if (more > INT64_MAX - tree->bytes) return ds_coll__too_large(b);
    *bytes += (int64_t)more;
    return DS_OK;
}

ds_status ds_coll__tree(ds_coll_builder *b, const ds_tree *tree) {
    if (b->messages) return ds_coll__tree_messages(b, tree);
    if (tree->n < 2) return DS_OK;
    int64_t bytes;
    DS_TRY(with_fill(b, tree, &bytes));
    const uint32_t *order = ds_coll__top_down(b, tree);
    uint32_t *edge = DS_NEW_N(b->arena, uint32_t, tree->n);
    const ds_chains *c = tree->chains;
    if (b->terms)
        new_part(b, (ds_part){.kind = DS_PART_TREE,
                              .chained = c ? c->n_chains * (c->length - 1) : 0,
                              .two_ways = tree->up && tree->down});
    uint64_t n = (uint64_t)tree->n * (c ? c->length : 1);
    b->n_messages +=
        (n - 1) * (tree->up + tree->down) * (uint64_t)(b->request->chunks ? b->request->chunks : 1);
    if (tree->up) DS_TRY(tree_edges(b, tree, order, true, bytes, edge));
    if (tree->down) DS_TRY(tree_edges(b, tree, order, false, bytes, edge));
    return DS_OK;
}

/* By link, which differ: byte by byte from the lowest, back and forth between two arrays. */
static void sort_loads(ds_load *loads, uint32_t n) {
    uint32_t highest = 0;
    bool sorted = true;
    for (uint32_t i = 0; i < n; i++) {
        if (loads[i].link > highest) highest = loads[i].link;
        sorted = sorted && (!i || loads[i - 1].link < loads[i].link);
    }
    if (sorted) return;
    ds_load *room = ds_xcalloc(n, sizeof *room), *from = loads, *to = room;
    for (uint32_t shift = 0; shift < 32 && highest >> shift; shift += 8) {
        uint32_t at[257] = {0};
        for (uint32_t i = 0; i < n; i++) at[(from[i].link >> shift & 0xff) + 1]++;
        for (uint32_t k = 1; k < 257; k++) at[k] += at[k - 1];
        for (uint32_t i = 0; i < n; i++) to[at[from[i].link >> shift & 0xff]++] = from[i];
        ds_load *swap = from;
        from = to;
        to = swap;
    }
    if (from == room) memcpy(loads, room, n * sizeof *loads);
    free(room);
}

/* The wait is what the messages take beyond the flow of the phase's bytes. */
static void time_phase(ds_coll_builder *b, ds_phase *phase) {
    int64_t flow_ps, steps_ps, alpha_ps;
    ds_phase flow = *phase;
    flow.steps = 0;
    if (ds_phase_alone_ps(b->topo, &flow, b->terms->efficiency_q32, &flow_ps, NULL) != DS_OK ||
        !ds_add_i64(phase->alpha_ps, b->terms->step_ps, &alpha_ps) ||
        !ds_mul_i64(phase->steps, alpha_ps, &steps_ps))
        return; /* too long for any clock: told where times are added up */
    int64_t all_ps = ds_ps_sum(flow_ps, steps_ps);
    ds_span span = {.least_ps = all_ps, .most_ps = all_ps, .first_ps = all_ps};
    if (b->parts.n) span = ds_coll__alone(b, flow_ps);
    if (span.most_ps < flow_ps) span.most_ps = flow_ps;
    phase->more_ps = span.most_ps - flow_ps - steps_ps;
    b->least_ps = ds_ps_sum(b->least_ps, span.least_ps);
    b->most_ps = ds_ps_sum(b->most_ps, span.most_ps);
    b->unsure = b->unsure || span.unsure;
    if (span.first_ps < span.most_ps - span.most_ps / DS_COLL_CLOSE) b->uneven = true;
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
        sort_loads(phase.loads, phase.n_loads);
        if (b->terms) time_phase(b, &phase);
    }
    ds_coll__drop_phase(b);
    if (b->messages)
        ds_coll__phase_message(b, &phase);
    else
        DS_PUSH(b->arena, &b->phases, phase);
}
