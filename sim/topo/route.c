/* Routes: which links carry which share of the bytes from one vertex to another.
 *
 * The search (search.c) gives for every vertex the number of best paths that lead to it, F. Going
 * back from the target in order of falling cost gives the number of best ways on from each
 * vertex, B. A link z → y on a best path is part of F(z)·B(y) of the F(target) paths, so its share
 * is that quotient: equal bytes on every path. Inner pieces of instances are unfolded by the same
 * procedure inside the instance, weighted with the number of whole paths that use them. All
 * numbers are exact integers; only the final quotient is rounded, to the nearest 2^-32.
 *
 * Where `degrade` makes a link of a route slower, the route is chosen again (go_around): latency
 * alone would send all bytes over a link of any slowness, and around a missing one.
 *
 * Of all pairs that an exchange of equal parts of the topology maps to each other (symmetry.h) one
 * is searched; the others' routes are its images. */
#include "sim/topo/search.h"
#include "sim/topo/symmetry.h"

#include <assert.h>
#include <stdlib.h>

/* Searches are forgotten, all at once, when they hold more labels than this (about 100 MB). */
#define MAX_LABELS (UINT64_C(1) << 20)

typedef struct link_paths {
    uint32_t link; /* global */
    ds_u128 n_paths;
} link_paths;

typedef struct flow {
    ds_topo *topo;
    ds_map index; /* link → index into links */
    DS_VEC(link_paths) links;
} flow;

static void add_link_paths(flow *f, uint32_t link, ds_u128 n_paths) {
    const uint64_t *at = ds_map_find(&f->index, link);
    if (at) {
        f->links.at[*at].n_paths += n_paths;
        return;
    }
    ds_map_put(&f->index, link, f->links.n);
    link_paths item = {link, n_paths};
    DS_HPUSH(&f->links, item);
}

/* The vertices of one level still to be left backwards, dearest first, each with B. */
typedef struct wave {
    ds_topo_heap heap; /* costs negated */
    ds_map index;      /* vertex → index into ways */
    DS_VEC(ds_u128) ways;
} wave;

static void add_ways(wave *w, const ds_topo_label *label, ds_u128 ways) {
    const uint64_t *at = ds_map_find(&w->index, label->vertex);
    if (at) {
        w->ways.at[*at] += ways;
        return;
    }
    ds_map_put(&w->index, label->vertex, w->ways.n);
    DS_HPUSH(&w->ways, ways);
    ds_topo_heap_item item = {-label->cost.latency_ps, -(int64_t)label->cost.hops, label->vertex};
    ds_topo_heap_push(&w->heap, item);
}

static bool same_cost(ds_topo_cost a, ds_topo_cost b) {
    return ds_topo_cost_compare(&a, &b) == 0;
}

static void spread(flow *f, ds_topo_search *s, uint32_t vertex, ds_u128 ways, uint32_t link_base);

/* Back over the template's own links into y. */
static void leave_by_links(flow *f, const ds_topo_search *s, const ds_topo_label *y, ds_u128 ways,
                           uint32_t link_base, wave *w) {
    const ds_topo_template *t = s->t;
    for (uint32_t i = t->in_start[y->vertex]; i < t->in_start[y->vertex + 1]; i++) {
        const ds_topo_link *link = &t->own.at[t->in_links[i]];
        const ds_topo_label *z = ds_topo_settled(s, link->from);
        if (!z || !ds_topo_passes(s, z->vertex)) continue;
        ds_topo_cost step = {link->latency_ps, 1, 1};
        if (!same_cost(ds_topo_cost_join(z->cost, step), y->cost)) continue;
        add_link_paths(f, link_base + t->in_links[i], ds_topo_paths_mul(z->cost.n_paths, ways));
        add_ways(w, z, ways);
    }
}

/* Back through the inside of the instance that y is a port of. */
static void leave_through_instance(flow *f, ds_topo_search *s, const ds_topo_label *y, ds_u128 ways,
                                   uint32_t link_base, wave *w) {
    ds_topo_spot spot = ds_topo_locate(s->t, y->vertex), source;
    if (!spot.node->child) return;
    ds_topo_template *child = ds_topo_inside(spot);
    uint32_t base = y->vertex - spot.inner;
    uint32_t inner_links = link_base + ds_topo_link_base(spot.node, spot.element);
    for (uint32_t i = 0; i < child->n_ports; i++) {
        const ds_topo_label *z = ds_topo_settled(s, base + child->ports[i]);
        if (!z || z == y || !ds_topo_passes(s, z->vertex)) continue;
        ds_topo_search *inside = ds_topo_search_from(f->topo, child, child->ports[i]);
        const ds_topo_label *piece = ds_topo_settled(inside, spot.inner);
        if (!piece || !same_cost(ds_topo_cost_join(z->cost, piece->cost), y->cost)) continue;
        spread(f, inside, spot.inner, ds_topo_paths_mul(z->cost.n_paths, ways), inner_links);
        add_ways(w, z, ds_topo_paths_mul(piece->cost.n_paths, ways));
    }
    ds_topo_search *first = ds_topo_source_search(f->topo, s, &source);
    if (!first || s->source - source.inner != base) return;
    const ds_topo_label *piece = ds_topo_settled(first, spot.inner);
    if (piece && same_cost(piece->cost, y->cost)) spread(f, first, spot.inner, ways, inner_links);
}

/* The target is deep inside an instance: the last pieces of the paths, from the last port on. */
static void enter_instance(flow *f, ds_topo_search *s, uint32_t vertex, ds_u128 ways,
                           uint32_t link_base, wave *w) {
    ds_topo_spot target = ds_topo_locate(s->t, vertex), source;
    ds_topo_template *child = ds_topo_inside(target);
    uint32_t base = vertex - target.inner;
    uint32_t inner_links = link_base + ds_topo_link_base(target.node, target.element);
    ds_topo_cost best = ds_topo_resolve(f->topo, s, vertex);
    ds_topo_search *first = ds_topo_source_search(f->topo, s, &source);
    if (first && s->source - source.inner == base &&
        same_cost(ds_topo_resolve(f->topo, first, target.inner), best)) {
        spread(f, first, target.inner, ways, inner_links);
    }
    for (uint32_t i = 0; i < child->n_ports; i++) {
        const ds_topo_label *z = ds_topo_settled(s, base + child->ports[i]);
        if (!z || !ds_topo_passes(s, z->vertex)) continue;
        if (ds_topo_cost_compare(&z->cost, &best) >= 0) continue;
        ds_topo_search *inside = ds_topo_search_from(f->topo, child, child->ports[i]);
        ds_topo_cost rest = ds_topo_resolve(f->topo, inside, target.inner);
        if (!rest.n_paths || !same_cost(ds_topo_cost_join(z->cost, rest), best)) continue;
        spread(f, inside, target.inner, ds_topo_paths_mul(z->cost.n_paths, ways), inner_links);
        add_ways(w, z, ds_topo_paths_mul(rest.n_paths, ways));
    }
}

/* Adds to every link the number of paths through it, for all best paths from the search's source
 * to `vertex`, each of which stands for `ways` paths of the whole route. */
static void spread(flow *f, ds_topo_search *s, uint32_t vertex, ds_u128 ways, uint32_t link_base) {
    wave w = {0};
    if (ds_topo_on_level(s->t, vertex)) {
        ds_topo_resolve(f->topo, s, vertex);
        add_ways(&w, ds_topo_settled(s, vertex), ways);
    } else {
        enter_instance(f, s, vertex, ways, link_base, &w);
    }
    while (w.heap.n) {
        uint32_t at = ds_topo_heap_pop(&w.heap).vertex;
        if (at == s->source) continue;
        const ds_topo_label *y = ds_topo_settled(s, at);
        ds_u128 on = w.ways.at[*ds_map_find(&w.index, at)];
        leave_by_links(f, s, y, on, link_base, &w);
        leave_through_instance(f, s, y, on, link_base, &w);
    }
    ds_map_deinit(&w.index);
    free(w.ways.at);
    free(w.heap.at);
}

/* part / whole in units of 2^-32, rounded to nearest; part <= whole <= 2^120. */
static uint64_t quotient_q32(ds_u128 part, ds_u128 whole) {
    if (part == whole) return UINT64_C(1) << 32;
    uint64_t q = 0;
    for (int bit = 0; bit < 32; bit++) { /* long division, one binary digit at a time */
        part <<= 1;
        q <<= 1;
        if (part >= whole) {
            part -= whole;
            q |= 1;
        }
    }
    return q + (part * 2 >= whole);
}

typedef struct carried_link {
    uint32_t link;
    uint64_t share_q32;
} carried_link;

static int by_carried(const void *a, const void *b) {
    const carried_link *x = a, *y = b;
    return (x->link > y->link) - (x->link < y->link);
}

static int by_link(const void *a, const void *b) {
    const link_paths *x = a, *y = b;
    return (x->link > y->link) - (x->link < y->link);
}

static const ds_route *make_route(ds_topo *topo, ds_topo_search *s, uint32_t to,
                                  const ds_topo_cost *cost) {
    flow f = {.topo = topo};
    spread(&f, s, to, 1, 0);
    if (f.links.n) qsort(f.links.at, f.links.n, sizeof *f.links.at, by_link);
    uint32_t *links = DS_NEW_N(&topo->arena, uint32_t, f.links.n);
    uint64_t *shares = DS_NEW_N(&topo->arena, uint64_t, f.links.n);
    for (uint32_t i = 0; i < f.links.n; i++) {
        links[i] = f.links.at[i].link;
        shares[i] = quotient_q32(f.links.at[i].n_paths, cost->n_paths);
    }
    ds_route *route = DS_NEW(&topo->arena, ds_route);
    *route = (ds_route){cost->latency_ps, cost->hops, f.links.n, links, shares};
    free(f.links.at);
    ds_map_deinit(&f.index);
    return route;
}

/* The image of a route at the canonical place of its ends (symmetry.h). */
static const ds_route *carry_route(ds_topo *topo, const ds_route *from) {
    uint32_t *links = DS_NEW_N(&topo->arena, uint32_t, from->n_links);
    uint64_t *shares = DS_NEW_N(&topo->arena, uint64_t, from->n_links);
    carried_link *list = ds_xcalloc(from->n_links, sizeof *list);
    for (uint32_t i = 0; i < from->n_links; i++)
        list[i] = (carried_link){ds_symmetry_carry_link(topo->symmetry, from->links[i]),
                                 from->share_q32[i]};
    if (from->n_links) qsort(list, from->n_links, sizeof *list, by_carried);
    for (uint32_t i = 0; i < from->n_links; i++) {
        links[i] = list[i].link;
        shares[i] = list[i].share_q32;
    }
    free(list);
    ds_route *route = DS_NEW(&topo->arena, ds_route);
    *route = (ds_route){from->latency_ps, from->hops, from->n_links, links, shares};
    return route;
}

static const char without_missing[] = " without the links that are missing (bandwidth = 0)";

static bool some_missing(const ds_topo *topo) {
    uint32_t n;
    const ds_topo_degraded *all = ds_topo_degraded_all(topo, &n);
    for (uint32_t i = 0; i < n; i++)
        if (all[i].is_link && !all[i].bandwidth_ppb) return true;
    return false;
}

/* ---- around slow links ---- */

/* A large message: Source: PyTorch DistributedDataParallel's bucket_cap_mb, 25 MB. */
enum { LARGE_BYTES = 25000000 };

/* How long a large message takes alone on the route, in ps. */
static ds_u128 large_time(const ds_topo *topo, const ds_route *route) {
    ds_u128 longest = 0;
    for (uint32_t i = 0; i < route->n_links; i++) {
        const ds_topo_link *link = &topo->links[route->links[i]];
        int64_t rate = link->bytes_per_s, cap = link->cap_bytes_per_s;
        if (cap && cap < rate) rate = cap;
        ds_u128 bytes = ((ds_u128)LARGE_BYTES * route->share_q32[i]) >> 32;
        ds_u128 time = rate ? bytes * UINT64_C(1000000000000) / (uint64_t)rate : INT64_MAX;
        if (time > longest) longest = time;
    }
    return longest + (uint64_t)route->latency_ps;
}

static bool is_slowed(const ds_topo *topo, const ds_route *route) {
    for (uint32_t i = 0; i < route->n_links; i++) {
        const ds_topo_link *link = &topo->links[route->links[i]];
        if (link->bytes_per_s < link->whole_bytes_per_s) return true;
    }
    return false;
}

/* Where a link of the route was degraded, the best route without such links, if a large message
 * takes less time there. Vertices and links have the same numbers in both graphs. */
static void go_around(ds_topo *topo, uint32_t from, uint32_t to, const ds_route **route) {
    const ds_route *other;
    if (!topo->around || !is_slowed(topo, *route)) return;
    if (ds_topo_route_vertices(topo->around, from, to, &other, NULL) != DS_OK) return;
    if (large_time(topo, other) < large_time(topo, *route)) *route = other;
}

static ds_status find_route(ds_topo *topo, uint32_t from, uint32_t to, const ds_route **out,
                            ds_error *err) {
    if (topo->n_labels > MAX_LABELS) ds_topo_drop_searches(topo);
    ds_topo_search *s = ds_topo_search_from(topo, topo->root, from);
    ds_topo_cost cost = ds_topo_resolve(topo, s, to);
    if (!cost.n_paths) {
        return ds_error_set(err, DS_ERR_UNREACHABLE, topo->decl->loc,
                            "no route from %s to %s in @%s%s (devices pass no traffic on unless "
                            "declared { forward = true })",
                            ds_topo_vertex_path(topo, from), ds_topo_vertex_path(topo, to),
                            topo->decl->name, some_missing(topo) ? without_missing : "");
    }
    if (cost.latency_ps == INT64_MAX) {
        return ds_error_set(err, DS_ERR_OVERFLOW, topo->decl->loc,
                            "the latency from %s to %s in @%s is beyond 106 days",
                            ds_topo_vertex_path(topo, from), ds_topo_vertex_path(topo, to),
                            topo->decl->name);
    }
    if (cost.n_paths >= DS_TOPO_MANY_PATHS) {
        return ds_error_set(err, DS_ERR_OVERFLOW, topo->decl->loc,
                            "from %s to %s in @%s there are more than 2^120 equally good paths",
                            ds_topo_vertex_path(topo, from), ds_topo_vertex_path(topo, to),
                            topo->decl->name);
    }
    *out = make_route(topo, s, to, &cost);
    go_around(topo, from, to, out);
    return DS_OK;
}

ds_status ds_topo_route_vertices(ds_topo *topo, uint32_t from, uint32_t to, const ds_route **out,
                                 ds_error *err) {
    assert(from < topo->root->n_vertices && to < topo->root->n_vertices);
    uint64_t key = (uint64_t)from << 32 | to;
    const uint64_t *known = ds_map_find(&topo->routes, key);
    if (known) {
        *out = (const ds_route *)(uintptr_t)*known;
        return DS_OK;
    }
    /* Searched once for all pairs that are images of each other. */
    uint32_t ends[] = {from, to}, place[2];
    ds_symmetry *symmetry = ds_topo_symmetry(topo);
    ds_symmetry_canonical(symmetry, ends, 2, place);
    bool at_place = place[0] == from && place[1] == to;
    if (!at_place && ds_topo_route_vertices(topo, place[0], place[1], out, NULL) == DS_OK) {
        ds_symmetry_canonical(symmetry, ends, 2, place);
        *out = carry_route(topo, *out);
    } else {
        DS_TRY(find_route(topo, from, to, out, err));
    }
    ds_map_put(&topo->routes, key, DS_KEY(*out));
    return DS_OK;
}

ds_status ds_topo_route(ds_topo *topo, uint32_t from, uint32_t to, const ds_route **out,
                        ds_error *err) {
    assert(from < topo->root->n_devices && to < topo->root->n_devices);
    return ds_topo_route_vertices(topo, topo->device_vertex[from], topo->device_vertex[to], out,
                                  err);
}

/* The lowest link of a route that starts at a vertex. Every link of a route lies on a best path to
 * its end, so going on by any of them arrives. */
static uint32_t lowest_link_from(const ds_topo *topo, const ds_route *route, uint32_t vertex) {
    uint32_t i = 0;
    while (topo->links[route->links[i]].from != vertex) i++;
    return route->links[i];
}

static int by_number(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

ds_status ds_topo_route_single(ds_topo *topo, uint32_t from, uint32_t to, const ds_route **out,
                               ds_error *err) {
    const ds_route *all;
    DS_TRY(ds_topo_route(topo, from, to, &all, err));
    uint32_t at = topo->device_vertex[from], end = topo->device_vertex[to];
    uint64_t key = (uint64_t)at << 32 | end;
    const uint64_t *known = ds_map_find(&topo->singles, key);
    if (known) {
        *out = (const ds_route *)(uintptr_t)*known;
        return DS_OK;
    }
    uint32_t *links = DS_NEW_N(&topo->arena, uint32_t, all->hops);
    uint64_t *shares = DS_NEW_N(&topo->arena, uint64_t, all->hops);
    for (uint32_t i = 0; i < all->hops; i++) {
        links[i] = lowest_link_from(topo, all, at);
        shares[i] = UINT64_C(1) << 32;
        at = topo->links[links[i]].to;
    }
    assert(at == end);
    if (all->hops) qsort(links, all->hops, sizeof *links, by_number);
    ds_route *route = DS_NEW(&topo->arena, ds_route);
    *route = (ds_route){all->latency_ps, all->hops, all->hops, links, shares};
    ds_map_put(&topo->singles, key, DS_KEY(route));
    *out = route;
    return DS_OK;
}
