/* Links hold their active flows in doubly linked lists of *nodes*, one for each (flow, link); a
 * flow's nodes stand together, so both directions of the bipartite graph are walked without search.
 *
 * A round takes the least level from a heap of links and caps. A link's level only rises as others
 * are done, so an entry of the heap that is out of date is too small, and is put right when it
 * comes up. That a level only rises: floor(free / Σ) >= λ means free >= λ Σ, and what a round takes
 * away is λ of the Σ of those that are done.
 *
 * Most flows start on links that nobody else loads, and have them to themselves until they stop:
 * these mark no links, and their level is known. */
#include "sim/net/share.h"

#include "ir/base/arena.h"

#include <stdlib.h>

#define NONE UINT32_MAX

typedef struct link_state {
    ds_u128 capacity_q52;
    ds_u128 free_q52; /* of this solution: what those that are done leave */
    ds_u128 sum_q32;  /* Σ weight · use of those that are not done */
    uint32_t first;   /* node */
    uint32_t epoch;   /* of the settling that has seen it */
    bool marked;
} link_state;

typedef struct flow_state {
    ds_u128 alone_q20; /* level if nobody shares its links, once it has been looked for; else 0 */
    ds_u128 level_q20;
    ds_u128 next_q20; /* in the solution at hand */
    uint32_t first;   /* node */
    uint32_t epoch;
    bool active, marked, done;
    bool listed; /* in `alone` */
} flow_state;

typedef struct node {
    ds_u128 take_q32; /* weight · use */
    uint32_t flow;
    uint32_t before, after; /* on the same link */
} node;

/* A link, or a flow's cap, that may end the next round. */
typedef struct bound {
    ds_u128 level_q20;
    uint32_t id;
    bool is_cap;
} bound;

struct ds_share {
    const ds_share_flow *spec;
    link_state *links;
    flow_state *flows;
    node *nodes;
    uint32_t *marked_links, *marked_flows; /* since the last settling */
    uint32_t n_marked_links, n_marked_flows;
    uint32_t *alone; /* flows that have started since, on links that nobody loaded */
    uint32_t n_alone;
    uint32_t *found_links, *found_flows; /* the component at hand */
    uint32_t n_found_links, n_found_flows;
    uint32_t *changed;
    uint32_t n_changed, n_solved;
    bound *heap, *round;
    uint32_t n_heap;
    uint32_t epoch;
};

ds_share *ds_share_new(const ds_u128 *capacity_q20, uint32_t n_links, const ds_share_flow *flows,
                       uint32_t n_flows) {
    ds_share *s = ds_xcalloc(1, sizeof *s);
    s->spec = flows;
    s->links = ds_xcalloc(n_links, sizeof *s->links);
    s->flows = ds_xcalloc(n_flows, sizeof *s->flows);
    uint32_t n_nodes = 0;
    for (uint32_t f = 0; f < n_flows; f++) n_nodes += flows[f].n_uses;
    s->nodes = ds_xcalloc(n_nodes, sizeof *s->nodes);
    s->marked_links = ds_xcalloc(n_links, sizeof *s->marked_links);
    s->found_links = ds_xcalloc(n_links, sizeof *s->found_links);
    s->marked_flows = ds_xcalloc(n_flows, sizeof *s->marked_flows);
    s->found_flows = ds_xcalloc(n_flows, sizeof *s->found_flows);
    s->alone = ds_xcalloc(n_flows, sizeof *s->alone);
    s->changed = ds_xcalloc(n_flows, sizeof *s->changed);
    s->heap = ds_xcalloc((size_t)n_links + n_flows, sizeof *s->heap);
    s->round = ds_xcalloc((size_t)n_links + n_flows, sizeof *s->round);
    for (uint32_t l = 0; l < n_links; l++) {
        s->links[l].capacity_q52 = capacity_q20[l] << DS_USE_BITS;
        s->links[l].first = NONE;
    }
    for (uint32_t f = 0, at = 0; f < n_flows; f++) {
        s->flows[f].first = at;
        for (uint32_t i = 0; i < flows[f].n_uses; i++, at++)
            s->nodes[at] =
                (node){(ds_u128)flows[f].uses[i].use_q32 * flows[f].weight, f, NONE, NONE};
    }
    return s;
}

void ds_share_free(ds_share *s) {
    if (!s) return;
    free(s->links);
    free(s->flows);
    free(s->nodes);
    free(s->marked_links);
    free(s->marked_flows);
    free(s->found_links);
    free(s->found_flows);
    free(s->alone);
    free(s->changed);
    free(s->heap);
    free(s->round);
    free(s);
}

static void mark_link(ds_share *s, uint32_t link) {
    if (s->links[link].marked) return;
    s->links[link].marked = true;
    s->marked_links[s->n_marked_links++] = link;
}

static void mark_links(ds_share *s, uint32_t flow) {
    const ds_share_flow *spec = &s->spec[flow];
    for (uint32_t i = 0; i < spec->n_uses; i++) mark_link(s, spec->uses[i].link);
}

void ds_share_start(ds_share *s, uint32_t flow) {
    flow_state *f = &s->flows[flow];
    const ds_share_flow *spec = &s->spec[flow];
    bool alone = true;
    f->active = true;
    for (uint32_t i = 0; i < spec->n_uses; i++) {
        uint32_t at = f->first + i;
        link_state *link = &s->links[spec->uses[i].link];
        s->nodes[at].before = NONE;
        s->nodes[at].after = link->first;
        if (link->first != NONE) {
            s->nodes[link->first].before = at;
            alone = false;
        }
        link->first = at;
    }
    if (!spec->n_uses) {
        if (!f->marked) s->marked_flows[s->n_marked_flows++] = flow;
        f->marked = true;
    } else if (!alone || !f->alone_q20) {
        mark_links(s, flow);
    } else if (!f->listed) {
        f->listed = true;
        s->alone[s->n_alone++] = flow;
    }
}

void ds_share_stop(ds_share *s, uint32_t flow) {
    flow_state *f = &s->flows[flow];
    const ds_share_flow *spec = &s->spec[flow];
    f->active = false;
    f->level_q20 = 0;
    for (uint32_t i = 0; i < spec->n_uses; i++) {
        const node *n = &s->nodes[f->first + i];
        link_state *link = &s->links[spec->uses[i].link];
        if (n->before == NONE)
            link->first = n->after;
        else
            s->nodes[n->before].after = n->after;
        if (n->after != NONE) s->nodes[n->after].before = n->before;
        if (link->first != NONE) mark_link(s, spec->uses[i].link);
    }
}

bool ds_share_unsettled(const ds_share *s) {
    return s->n_marked_links || s->n_marked_flows || s->n_alone;
}

/* ---- the heap of bounds ---- */

static void sift_down(bound *heap, uint32_t n, uint32_t i) {
    bound item = heap[i];
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= n) break;
        if (child + 1 < n && heap[child + 1].level_q20 < heap[child].level_q20) child++;
        if (heap[child].level_q20 >= item.level_q20) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = item;
}

static bound pop_bound(ds_share *s) {
    bound top = s->heap[0];
    s->heap[0] = s->heap[--s->n_heap];
    if (s->n_heap) sift_down(s->heap, s->n_heap, 0);
    return top;
}

/* Puts the heap's top right: gone if it bounds nobody any more, its level if that has risen. Until
 * what is on top is right. */
static void refresh_top(ds_share *s) {
    while (s->n_heap) {
        bound *top = &s->heap[0];
        if (top->is_cap) {
            if (!s->flows[top->id].done) return;
            pop_bound(s);
            continue;
        }
        const link_state *link = &s->links[top->id];
        if (!link->sum_q32) {
            pop_bound(s);
            continue;
        }
        ds_u128 level = link->free_q52 / link->sum_q32;
        if (level == top->level_q20) return;
        top->level_q20 = level;
        sift_down(s->heap, s->n_heap, 0);
    }
}

/* ---- one component ---- */

static void find_flow(ds_share *s, uint32_t flow) {
    flow_state *f = &s->flows[flow];
    if (f->epoch == s->epoch) return;
    f->epoch = s->epoch;
    f->done = false;
    s->found_flows[s->n_found_flows++] = flow;
}

static void find_link(ds_share *s, uint32_t link) {
    if (s->links[link].epoch == s->epoch) return;
    s->links[link].epoch = s->epoch;
    s->found_links[s->n_found_links++] = link;
}

/* The links that `link` is joined with by active flows, and these flows. */
static void find_component(ds_share *s, uint32_t link) {
    s->n_found_links = s->n_found_flows = 0;
    find_link(s, link);
    for (uint32_t i = 0, seen = 0; i < s->n_found_links; i++) {
        for (uint32_t n = s->links[s->found_links[i]].first; n != NONE; n = s->nodes[n].after)
            find_flow(s, s->nodes[n].flow);
        for (; seen < s->n_found_flows; seen++) {
            const ds_share_flow *spec = &s->spec[s->found_flows[seen]];
            for (uint32_t k = 0; k < spec->n_uses; k++) find_link(s, spec->uses[k].link);
        }
    }
}

static void set_bounds(ds_share *s) {
    s->n_heap = 0;
    for (uint32_t i = 0; i < s->n_found_links; i++) {
        link_state *link = &s->links[s->found_links[i]];
        link->free_q52 = link->capacity_q52;
        link->sum_q32 = 0;
        for (uint32_t n = link->first; n != NONE; n = s->nodes[n].after)
            link->sum_q32 += s->nodes[n].take_q32;
        if (link->sum_q32)
            s->heap[s->n_heap++] =
                (bound){link->free_q52 / link->sum_q32, s->found_links[i], false};
    }
    for (uint32_t i = 0; i < s->n_found_flows; i++) {
        uint32_t flow = s->found_flows[i];
        if (s->spec[flow].cap_q20 != DS_NO_CAP)
            s->heap[s->n_heap++] = (bound){s->spec[flow].cap_q20, flow, true};
    }
    for (uint32_t i = s->n_heap / 2; i-- > 0;) sift_down(s->heap, s->n_heap, i);
}

static void finish_flow(ds_share *s, uint32_t flow, ds_u128 level_q20) {
    flow_state *f = &s->flows[flow];
    if (f->done) return;
    f->done = true;
    f->next_q20 = level_q20;
    const ds_share_flow *spec = &s->spec[flow];
    for (uint32_t i = 0; i < spec->n_uses; i++) {
        link_state *link = &s->links[spec->uses[i].link];
        ds_u128 take = s->nodes[f->first + i].take_q32;
        link->free_q52 -= level_q20 * take;
        link->sum_q32 -= take;
    }
}

/* All bounds at the least level end together: which ones they are must not depend on which of them
 * comes first, and what one takes away may raise the level of another. */
static void do_round(ds_share *s) {
    ds_u128 level = s->heap[0].level_q20;
    uint32_t n = 0;
    while (s->n_heap && s->heap[0].level_q20 == level) {
        s->round[n++] = pop_bound(s);
        refresh_top(s);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (s->round[i].is_cap) {
            finish_flow(s, s->round[i].id, level);
            continue;
        }
        for (uint32_t k = s->links[s->round[i].id].first; k != NONE; k = s->nodes[k].after)
            finish_flow(s, s->nodes[k].flow, level);
    }
    refresh_top(s);
}

static void find_rates(ds_share *s) {
    set_bounds(s);
    refresh_top(s);
    while (s->n_heap) do_round(s);
}

/* Most flows are alone most of the time. */
static void solve_one(ds_share *s, flow_state *f) {
    if (!f->alone_q20) {
        find_rates(s);
        f->alone_q20 = f->next_q20;
    }
    f->next_q20 = f->alone_q20;
}

static void solve_component(ds_share *s) {
    if (s->n_found_flows == 1)
        solve_one(s, &s->flows[s->found_flows[0]]);
    else
        find_rates(s);
    s->n_solved += s->n_found_flows;
    for (uint32_t i = 0; i < s->n_found_flows; i++) {
        flow_state *f = &s->flows[s->found_flows[i]];
        if (f->next_q20 == f->level_q20) continue;
        f->level_q20 = f->next_q20;
        s->changed[s->n_changed++] = s->found_flows[i];
    }
}

uint32_t ds_share_settle(ds_share *s, const uint32_t **changed) {
    s->n_changed = s->n_solved = 0;
    s->epoch++; /* after 2^32 settlings a stale stamp would have to be just as old */
    for (uint32_t i = 0; i < s->n_marked_links; i++) {
        uint32_t link = s->marked_links[i];
        s->links[link].marked = false;
        if (s->links[link].epoch == s->epoch) continue;
        find_component(s, link);
        if (s->n_found_flows) solve_component(s);
    }
    for (uint32_t i = 0; i < s->n_marked_flows; i++) {
        flow_state *f = &s->flows[s->marked_flows[i]];
        f->marked = false;
        if (!f->active) continue;
        f->level_q20 = s->spec[s->marked_flows[i]].cap_q20;
        s->changed[s->n_changed++] = s->marked_flows[i];
    }
    for (uint32_t i = 0; i < s->n_alone; i++) {
        flow_state *f = &s->flows[s->alone[i]];
        f->listed = false;
        if (!f->active || f->epoch == s->epoch) continue; /* others have come to its links */
        f->level_q20 = f->alone_q20;
        s->changed[s->n_changed++] = s->alone[i];
        s->n_solved++;
    }
    s->n_marked_links = s->n_marked_flows = s->n_alone = 0;
    *changed = s->changed;
    return s->n_changed;
}

ds_u128 ds_share_level_q20(const ds_share *s, uint32_t flow) {
    return s->flows[flow].level_q20;
}

uint32_t ds_share_n_solved(const ds_share *s) {
    return s->n_solved;
}
