/* Exact least-cost paths over a tree of templates.
 *
 * The *level* of a template T has as vertices T's own nodes and the ports of its instances (the
 * vertices inside them where links of T or of a template above T end), and as edges T's own links
 * and, inside each instance of a template D, an edge from port p to port q for the best paths
 * p → q inside D that avoid D's other ports on the way. Those come from a search in D, which is
 * cached and serves every instance of D.
 *
 * Every path inside T between two vertices of the level splits at the level's vertices into own
 * links and such inner pieces in exactly one way; a best path consists of best pieces. So
 * Dijkstra's algorithm on the level, multiplying the numbers of paths along pieces and adding them
 * up over alternatives, finds exactly the best paths of the full graph inside T and counts each
 * once, those that leave an instance and come back included. For an end deep inside an instance,
 * the piece up to the first port (source) or from the last port on (target) is a search inside the
 * instance again. Above the root there is nothing, so the root's search gives the answer for the
 * whole graph.
 *
 * A path may not go on through a vertex that does not forward (a device), nor, in T's search,
 * through a port of T (that is the next piece's business), except at the source itself. Every edge
 * costs at least one hop, so costs grow strictly along a path and counts are final when a vertex is
 * settled.
 *
 * A search runs only as far as asked and goes on from there when asked again. */
#include "sim/topo/search.h"

#include <assert.h>
#include <stdlib.h>

/* ---- costs ---- */

int ds_topo_cost_compare(const ds_topo_cost *a, const ds_topo_cost *b) {
    if (!a->n_paths || !b->n_paths) return !a->n_paths - !b->n_paths;
    if (a->latency_ps != b->latency_ps) return a->latency_ps < b->latency_ps ? -1 : 1;
    return (a->hops > b->hops) - (a->hops < b->hops);
}

ds_u128 ds_topo_paths_mul(ds_u128 a, ds_u128 b) {
    ds_u128 product;
    bool wraps = __builtin_mul_overflow(a, b, &product);
    return wraps || product > DS_TOPO_MANY_PATHS ? DS_TOPO_MANY_PATHS : product;
}

ds_topo_cost ds_topo_cost_join(ds_topo_cost a, ds_topo_cost b) {
    ds_topo_cost sum = {.hops = a.hops + b.hops,
                        .n_paths = ds_topo_paths_mul(a.n_paths, b.n_paths)};
    bool wraps = __builtin_add_overflow(a.latency_ps, b.latency_ps, &sum.latency_ps);
    if (wraps) sum.latency_ps = INT64_MAX;
    return sum;
}

/* Takes the better one, or both if they are equally good. */
static void take_better(ds_topo_cost *best, const ds_topo_cost *other) {
    int order = ds_topo_cost_compare(other, best);
    if (order < 0) *best = *other;
    if (order != 0) return;
    ds_u128 sum = best->n_paths + other->n_paths; /* both at most 2^120 */
    best->n_paths = sum > DS_TOPO_MANY_PATHS ? DS_TOPO_MANY_PATHS : sum;
}

/* ---- heap ---- */

static bool before(const ds_topo_heap_item *a, const ds_topo_heap_item *b) {
    if (a->latency_ps != b->latency_ps) return a->latency_ps < b->latency_ps;
    if (a->hops != b->hops) return a->hops < b->hops;
    return a->vertex < b->vertex;
}

void ds_topo_heap_push(ds_topo_heap *heap, ds_topo_heap_item item) {
    DS_HPUSH(heap, item);
    uint32_t i = heap->n - 1;
    for (; i > 0 && before(&item, &heap->at[(i - 1) / 2]); i = (i - 1) / 2) {
        heap->at[i] = heap->at[(i - 1) / 2];
    }
    heap->at[i] = item;
}

ds_topo_heap_item ds_topo_heap_pop(ds_topo_heap *heap) {
    ds_topo_heap_item top = heap->at[0], last = heap->at[--heap->n];
    uint32_t i = 0;
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= heap->n) break;
        if (child + 1 < heap->n && before(&heap->at[child + 1], &heap->at[child])) child++;
        if (!before(&heap->at[child], &last)) break;
        heap->at[i] = heap->at[child];
        i = child;
    }
    heap->at[i] = last;
    return top;
}

/* ---- searches ---- */

bool ds_topo_on_level(const ds_topo_template *t, uint32_t vertex) {
    ds_topo_spot spot = ds_topo_locate(t, vertex);
    return !spot.node->child || spot.node->child->flags[spot.inner] & DS_TOPO_PORT;
}

bool ds_topo_passes(const ds_topo_search *s, uint32_t vertex) {
    uint8_t flags = s->t->flags[vertex];
    return vertex == s->source || (flags & (DS_TOPO_FORWARDS | DS_TOPO_PORT)) == DS_TOPO_FORWARDS;
}

const ds_topo_label *ds_topo_settled(const ds_topo_search *s, uint32_t vertex) {
    const uint64_t *at = ds_map_find(&s->label_of, vertex);
    return at && s->labels.at[*at].settled ? &s->labels.at[*at] : NULL;
}

static void relax(ds_topo *topo, ds_topo_search *s, uint32_t vertex, ds_topo_cost cost) {
    const uint64_t *at = ds_map_find(&s->label_of, vertex);
    if (!at) {
        ds_map_put(&s->label_of, vertex, s->labels.n);
        ds_topo_label label = {cost, vertex, false};
        DS_HPUSH(&s->labels, label);
        topo->n_labels++;
    } else {
        ds_topo_label *label = &s->labels.at[*at];
        bool better = ds_topo_cost_compare(&cost, &label->cost) < 0;
        if (label->settled) return; /* its count is final: this path is dearer */
        take_better(&label->cost, &cost);
        if (!better) return;
    }
    ds_topo_heap_push(&s->heap, (ds_topo_heap_item){cost.latency_ps, cost.hops, vertex});
}

/* The cheapest vertex that is not settled, or NULL; clears outdated entries off the heap. */
static ds_topo_label *nearest(ds_topo_search *s) {
    while (s->heap.n) {
        const ds_topo_heap_item *top = &s->heap.at[0];
        ds_topo_label *label = &s->labels.at[*ds_map_find(&s->label_of, top->vertex)];
        if (!label->settled && label->cost.latency_ps == top->latency_ps &&
            label->cost.hops == top->hops) {
            return label;
        }
        ds_topo_heap_pop(&s->heap);
    }
    return NULL;
}

static bool settle_next(ds_topo *topo, ds_topo_search *s, uint32_t *vertex);

/* Continues from `cost` along the best ways through an instance: to every port that the search
 * inside it reaches. */
static void relax_ports(ds_topo *topo, ds_topo_search *s, ds_topo_search *inside, uint32_t base,
                        ds_topo_cost cost) {
    uint32_t ignored;
    while (settle_next(topo, inside, &ignored)) {
    }
    for (uint32_t i = 0; i < inside->labels.n; i++) {
        const ds_topo_label *label = &inside->labels.at[i];
        if (!(inside->t->flags[label->vertex] & DS_TOPO_PORT)) continue;
        relax(topo, s, base + label->vertex, ds_topo_cost_join(cost, label->cost));
    }
}

static void expand(ds_topo *topo, ds_topo_search *s, uint32_t vertex, ds_topo_cost cost) {
    const ds_topo_template *t = s->t;
    for (uint32_t i = t->out_start[vertex]; i < t->out_start[vertex + 1]; i++) {
        const ds_topo_link *link = &t->own.at[t->out_links[i]];
        relax(topo, s, link->to, ds_topo_cost_join(cost, (ds_topo_cost){link->latency_ps, 1, 1}));
    }
    ds_topo_spot spot = ds_topo_locate(t, vertex);
    if (!spot.node->child) return;
    relax_ports(topo, s, ds_topo_search_from(topo, ds_topo_inside(spot), spot.inner),
                vertex - spot.inner, cost);
}

/* One step of Dijkstra's algorithm; false at the end. */
static bool settle_next(ds_topo *topo, ds_topo_search *s, uint32_t *vertex) {
    ds_topo_label *label = nearest(s);
    if (!label) return false;
    ds_topo_heap_pop(&s->heap);
    label->settled = true;
    *vertex = label->vertex;
    if (ds_topo_passes(s, *vertex)) expand(topo, s, *vertex, label->cost);
    return true;
}

ds_topo_search *ds_topo_source_search(ds_topo *topo, const ds_topo_search *s, ds_topo_spot *spot) {
    *spot = ds_topo_locate(s->t, s->source);
    if (!spot->node->child) return NULL;
    ds_topo_template *child = ds_topo_inside(*spot);
    if (child->flags[spot->inner] & DS_TOPO_PORT) return NULL;
    return ds_topo_search_from(topo, child, spot->inner);
}

ds_topo_search *ds_topo_search_from(ds_topo *topo, ds_topo_template *t, uint32_t source) {
    const uint64_t *known = ds_map_find(&t->search_of, source);
    if (known) return t->searches.at[*known];
    ds_topo_search *s = ds_xcalloc(1, sizeof *s);
    s->t = t;
    s->source = source;
    ds_map_put(&t->search_of, source, t->searches.n);
    DS_HPUSH(&t->searches, s);

    ds_topo_cost nothing = {0, 0, 1};
    ds_topo_spot spot;
    ds_topo_search *inside = ds_topo_source_search(topo, s, &spot);
    if (inside) {
        relax_ports(topo, s, inside, source - spot.inner, nothing);
    } else {
        relax(topo, s, source, nothing);
    }
    return s;
}

/* From a settled port `at` of the instance at `base` on to a vertex deep inside it. */
static void resolve_through(ds_topo *topo, ds_topo_search *s, ds_topo_spot target, uint32_t base,
                            uint32_t at, ds_topo_cost *best) {
    if (!ds_topo_passes(s, at)) return;
    ds_topo_search *inside = ds_topo_search_from(topo, ds_topo_inside(target), at - base);
    ds_topo_cost rest = ds_topo_resolve(topo, inside, target.inner);
    if (!rest.n_paths) return;
    ds_topo_cost whole = ds_topo_cost_join(ds_topo_settled(s, at)->cost, rest);
    take_better(best, &whole);
}

ds_topo_cost ds_topo_resolve(ds_topo *topo, ds_topo_search *s, uint32_t vertex) {
    uint32_t at;
    if (ds_topo_on_level(s->t, vertex)) {
        while (!ds_topo_settled(s, vertex) && settle_next(topo, s, &at)) {
        }
        const ds_topo_label *label = ds_topo_settled(s, vertex);
        return label ? label->cost : (ds_topo_cost){0};
    }
    ds_topo_spot target = ds_topo_locate(s->t, vertex), source;
    const ds_topo_template *child = target.node->child;
    uint32_t base = vertex - target.inner;
    ds_topo_cost best = {0};
    ds_topo_search *inside = ds_topo_source_search(topo, s, &source);
    if (inside && s->source - source.inner == base) {
        best = ds_topo_resolve(topo, inside, target.inner);
    }
    for (uint32_t i = 0; i < child->n_ports; i++) {
        if (!ds_topo_settled(s, base + child->ports[i])) continue;
        resolve_through(topo, s, target, base, base + child->ports[i], &best);
    }
    for (;;) {
        const ds_topo_label *next = nearest(s);
        if (!next || ds_topo_cost_compare(&next->cost, &best) >= 0) return best;
        settle_next(topo, s, &at);
        if (at >= base && at - base < child->n_vertices) {
            resolve_through(topo, s, target, base, at, &best);
        }
    }
}

void ds_topo_drop_searches(ds_topo *topo) {
    for (uint32_t i = 0; i < topo->templates.n; i++) {
        ds_topo_template *t = topo->templates.at[i];
        for (uint32_t j = 0; j < t->searches.n; j++) {
            ds_topo_search *s = t->searches.at[j];
            ds_map_deinit(&s->label_of);
            free(s->labels.at);
            free(s->heap.at);
            free(s);
        }
        t->searches.n = 0;
        ds_map_clear(&t->search_of);
    }
    topo->n_labels = 0;
}
