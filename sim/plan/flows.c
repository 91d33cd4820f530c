/* Flows: what the engine gives to the network for each activity that loads shared links.
 *
 * One flow stands for a phase of all groups of a meeting, and one link for all links of its class:
 * the flow uses it by the sum of what those groups use of the link that stands for the class. A
 * link that only one flow uses is a constant bound on its level, and becomes its cap; of links that
 * the same flows use, one that can never be full before another is left out. Neither changes a rate
 * (share.h), so folded and unfolded plans may differ in it. */
#include "sim/plan/internal.h"

#include "sim/coll/coll.h"

#include <stdlib.h>
#include <string.h>

/* One flow's use of one class of links. */
typedef struct edge {
    uint32_t flow, cls;
    uint64_t use_q32;
} edge;

typedef struct maker {
    ds_builder *b;
    ds_plan *plan;
    ds_map first_flow; /* group that stands for a meeting → its first flow */
    DS_VEC(ds_flow) flows;
    uint32_t *class_of; /* per shared link */
    uint32_t *stands;   /* per class: the place of the link that stands for it */
    uint32_t n_classes;
    DS_VEC(edge) edges;
} maker;

static ds_u128 capacity_q20(const maker *m, uint32_t cls) {
    uint32_t link = m->b->sharing.links[m->stands[cls]];
    return (ds_u128)ds_topo_link_at(m->plan->topo, link)->bytes_per_s << DS_RATE_BITS;
}

static void class_links(maker *m) {
    const ds_sharing *sharing = &m->b->sharing;
    bool alone = m->b->options->unfold || m->plan->per_rank; /* ranks' devices are never folded */
    m->class_of = ds_xcalloc(sharing->n, sizeof *m->class_of);
    m->stands = ds_xcalloc(sharing->n, sizeof *m->stands);
    ds_map seen;
    ds_map_init(&seen);
    for (uint32_t l = 0; l < sharing->n; l++) {
        uint64_t key = alone ? l : sharing->colour[l], *found = ds_map_find(&seen, key);
        m->class_of[l] = found ? (uint32_t)*found : m->n_classes;
        if (found) continue;
        ds_map_put(&seen, key, m->n_classes);
        m->stands[m->n_classes++] = l;
    }
    ds_map_deinit(&seen);
}

static void add_flows(maker *m, const ds_group *g) {
    if (!g->n_flows) return;
    ds_map_put(&m->first_flow, DS_KEY(g), m->flows.n);
    for (uint32_t p = 0; p < g->n_flows; p++) DS_HPUSH(&m->flows, g->flows[p]);
}

/* What one group adds to the links that stand for classes. */
static void add_edges(maker *m, const ds_group *g, uint32_t first_flow) {
    for (uint32_t p = 0; p < g->n_flows; p++) {
        const ds_share_flow *f = &g->flows[p].share;
        for (uint32_t i = 0; i < f->n_uses; i++) {
            uint32_t cls = m->class_of[f->uses[i].link];
            uint64_t n = m->b->sharing.stays[f->uses[i].link] ? 1 + (uint64_t)g->n_images : 1;
            if (m->stands[cls] == f->uses[i].link)
                DS_HPUSH(&m->edges, ((edge){first_flow + p, cls, f->uses[i].use_q32 * n}));
        }
    }
}

static void add_meetings(maker *m, const ds_record *r) {
    for (uint32_t i = 0; i < r->n_meetings; i++) add_flows(m, &r->groups[r->meeting_group[i]]);
    for (uint32_t i = 0; i < r->n_groups; i++) {
        const ds_group *g = &r->groups[i];
        if (!g->n_flows) continue;
        uint32_t cls = m->plan->class_of[g->devices[0]];
        uint32_t meeting = r->class_meeting[ds_record_class_pos(r, cls)];
        const ds_group *stands = &r->groups[r->meeting_group[meeting]];
        add_edges(m, g, (uint32_t)*ds_map_find(&m->first_flow, DS_KEY(stands)));
    }
}

/* Of the halves of a rendezvous one stands for it: the activity's group. */
static ds_status add_halves(maker *m, ds_error *err) {
    ds_map meets;
    ds_map_init(&meets);
    for (uint32_t a = 0; a < m->plan->n_activities; a++)
        ds_map_put(&meets, DS_KEY(m->plan->activities[a].group), 1);
    ds_status status = DS_OK;
    for (uint32_t i = 0; i < m->plan->records.n && status == DS_OK; i++) {
        const ds_record *r = m->plan->records.at[i];
        if (r->kind != DS_REC_HALF || !ds_map_find(&meets, DS_KEY(r->groups))) continue;
        status = ds_plan__traffic(m->b, r->groups, err);
        add_flows(m, r->groups);
        if (r->groups->n_flows)
            add_edges(m, r->groups, (uint32_t)*ds_map_find(&m->first_flow, DS_KEY(r->groups)));
    }
    ds_map_deinit(&meets);
    return status;
}

/* ---- which links matter ---- */

static int by_class(const void *a, const void *b) {
    const edge *x = a, *y = b;
    if (x->cls != y->cls) return x->cls < y->cls ? -1 : 1;
    return x->flow < y->flow ? -1 : x->flow > y->flow;
}

static int by_flow(const void *a, const void *b) {
    const edge *x = a, *y = b;
    if (x->flow != y->flow) return x->flow < y->flow ? -1 : 1;
    return x->cls < y->cls ? -1 : x->cls > y->cls;
}

/* Sums the uses of one flow and class; edges end up by class, then flow. */
static void sum_edges(maker *m) {
    if (!m->edges.n) return;
    qsort(m->edges.at, m->edges.n, sizeof *m->edges.at, by_class);
    uint32_t n = 0;
    for (uint32_t i = 1; i < m->edges.n; i++) {
        if (by_class(&m->edges.at[n], &m->edges.at[i]) == 0)
            m->edges.at[n].use_q32 += m->edges.at[i].use_q32;
        else
            m->edges.at[++n] = m->edges.at[i];
    }
    m->edges.n = n + 1;
}

/* The edges of one class: first … first + n of `edges`. */
typedef struct column {
    ds_u128 capacity_q20;
    uint64_t flows; /* hash of which */
    uint32_t cls, first, n;
} column;

/* By flows; then by what the link has for them, so that the tighter ones come first. */
static int by_flows(const void *a, const void *b) {
    const column *x = a, *y = b;
    if (x->flows != y->flows) return x->flows < y->flows ? -1 : 1;
    if (x->capacity_q20 != y->capacity_q20) return x->capacity_q20 < y->capacity_q20 ? -1 : 1;
    return x->cls < y->cls ? -1 : x->cls > y->cls;
}

/* Is x full no later than y, whatever their flows do? They have the same flows if the hashes are
 * equal, which is looked at again. */
static bool tighter(const maker *m, const column *x, const column *y) {
    if (x->n != y->n || x->capacity_q20 > y->capacity_q20) return false;
    for (uint32_t i = 0; i < x->n; i++) {
        const edge *a = &m->edges.at[x->first + i], *b = &m->edges.at[y->first + i];
        if (a->flow != b->flow || a->use_q32 < b->use_q32) return false;
    }
    return true;
}

void ds_flow_set_alone(ds_flow *f) {
    ds_u128 rate = f->alone_q20 * f->share.weight;
    ds_u128 ps = rate ? f->work / rate + (f->work % rate != 0) : DS_NEVER_PS;
    f->alone_ps = ps < DS_NEVER_PS ? (int64_t)ps : DS_NEVER_PS;
}

static void cap_flow(ds_flow *f, ds_u128 level_q20) {
    if (level_q20 >= f->share.cap_q20) return;
    f->share.cap_q20 = f->alone_q20 = level_q20;
    ds_flow_set_alone(f);
}

/* Keeps the links that several flows use and that may be the tightest for them; at most this many
 * are compared with each. */
#define MOST_COMPARED 16

static uint32_t keep_columns(maker *m, column *columns, uint32_t n) {
    qsort(columns, n, sizeof *columns, by_flows);
    uint32_t kept = 0, run = 0;
    for (uint32_t i = 0; i < n; i++) {
        const column *c = &columns[i];
        const edge *first = &m->edges.at[c->first];
        if (c->n == 1) {
            ds_flow *f = &m->flows.at[first->flow];
            cap_flow(f, (c->capacity_q20 << DS_USE_BITS) /
                            ((ds_u128)first->use_q32 * f->share.weight));
            continue;
        }
        if (kept == run || columns[run].flows != c->flows) run = kept;
        bool needed = true;
        for (uint32_t k = run; k < kept && k < run + MOST_COMPARED && needed; k++)
            needed = !tighter(m, &columns[k], c);
        if (needed) columns[kept++] = *c;
    }
    return kept;
}

static void choose_links(maker *m) {
    column *columns = ds_xcalloc(m->n_classes, sizeof *columns);
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->edges.n; i++) {
        const edge *e = &m->edges.at[i];
        if (!i || e->cls != e[-1].cls)
            columns[n++] =
                (column){.capacity_q20 = capacity_q20(m, e->cls), .cls = e->cls, .first = i};
        column *c = &columns[n - 1];
        c->flows = ds_hash_mix(c->flows, e->flow);
        c->n++;
    }
    uint32_t kept = keep_columns(m, columns, n), n_edges = 0;
    edge *edges = ds_xcalloc(m->edges.n, sizeof *edges);
    m->plan->link_capacity_q20 = ds_xcalloc(kept, sizeof *m->plan->link_capacity_q20);
    m->plan->n_links = kept;
    for (uint32_t c = 0; c < kept; c++) {
        m->plan->link_capacity_q20[c] = columns[c].capacity_q20;
        for (uint32_t i = 0; i < columns[c].n; i++, n_edges++) {
            edges[n_edges] = m->edges.at[columns[c].first + i];
            edges[n_edges].cls = c;
        }
    }
    free(columns);
    free(m->edges.at);
    m->edges.at = edges;
    m->edges.n = m->edges.cap = n_edges;
}

/* ---- packing ---- */

static void pack_uses(maker *m) {
    ds_plan *plan = m->plan;
    if (m->edges.n) qsort(m->edges.at, m->edges.n, sizeof *m->edges.at, by_flow);
    plan->link_uses = ds_xcalloc(m->edges.n, sizeof *plan->link_uses);
    uint32_t at = 0;
    for (uint32_t f = 0; f < m->flows.n; f++) {
        ds_share_flow *flow = &m->flows.at[f].share;
        flow->uses = &plan->link_uses[at];
        flow->n_uses = 0;
        for (; at < m->edges.n && m->edges.at[at].flow == f; at++, flow->n_uses++)
            plan->link_uses[at] = (ds_link_use){m->edges.at[at].cls, m->edges.at[at].use_q32};
    }
    plan->flows = m->flows.at;
    plan->n_flows = m->flows.n;
}

static ds_status set_activity(const maker *m, ds_activity *a, ds_error *err) {
    const uint64_t *first = ds_map_find(&m->first_flow, DS_KEY(a->group));
    if (!first) return DS_OK;
    bool shares = false;
    a->ps = 0;
    for (uint32_t p = 0; p < a->group->n_flows; p++) {
        const ds_flow *f = &m->plan->flows[*first + p];
        shares = shares || f->share.n_uses;
        a->ps = ds_ps_sum(ds_ps_sum(a->ps, f->wait_ps), f->alone_ps);
        if (a->ps == DS_NEVER_PS)
            return ds_error_set(err, DS_ERR_OVERFLOW, a->group->request->loc,
                                "a transfer takes longer than 106 days, the range of int64 "
                                "picoseconds");
    }
    a->first_flow = (uint32_t)*first;
    a->n_flows = shares ? a->group->n_flows : 0;
    return DS_OK;
}

ds_status ds_plan__flows(ds_builder *b, ds_error *err) {
    if (!b->sharing.n) return DS_OK;
    maker m = {.b = b, .plan = b->plan};
    class_links(&m);
    ds_status status = DS_OK;
    if (b->plan->per_rank) status = add_halves(&m, err);
    if (!b->plan->per_rank || b->plan->n_jobs) /* jobs may be of either sort */
        for (uint32_t i = 0; i < b->plan->records.n; i++)
            if (b->plan->records.at[i]->kind == DS_REC_COMM && !b->plan->records.at[i]->like)
                add_meetings(&m, b->plan->records.at[i]);
    sum_edges(&m);
    choose_links(&m);
    pack_uses(&m);
    for (uint32_t a = 0; a < b->plan->n_activities && status == DS_OK; a++)
        status = set_activity(&m, &b->plan->activities[a], err);
    free(m.class_of);
    free(m.stands);
    free(m.edges.at);
    ds_map_deinit(&m.first_flow);
    return status;
}
