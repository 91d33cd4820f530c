/* The short graph: what is left if every run is one block. */
#include "search/tap/internal.h"

#include <stdlib.h>

typedef struct maker {
    const ds_pase_graph *from;
    const ds_tap_fold *fold;
    const ds_pase_model *model;
    ds_tap_edges in, out;
    uint32_t *run; /* per node: 0, or 1 + its run */
    ds_tap_short *s;
} maker;

static const ds_tap_run *run_of(const maker *m, uint32_t v) {
    return m->run[v] ? &m->fold->runs.at[m->run[v] - 1] : NULL;
}

/* The node of the run's first block that v is a copy of; v itself outside of runs. */
static uint32_t first_of(const maker *m, uint32_t v) {
    const ds_tap_run *run = run_of(m, v);
    return run ? run->start + (v - run->start) % run->period : v;
}

static uint32_t end_of(const ds_tap_run *run) {
    return run->start + run->period * run->copies;
}

/* The edge's place among those of its node that end at `end` or behind it. */
static uint32_t place_of(const maker *m, const ds_tap_edges *edges, uint32_t v, uint32_t e,
                         uint32_t end) {
    uint32_t place = 0;
    for (uint32_t i = edges->first[v]; edges->list[i] != e; i++)
        place += m->from->edges.at[edges->list[i]].to >= end;
    return place;
}

static uint32_t edge_at_place(const maker *m, const ds_tap_edges *edges, uint32_t v, uint32_t place,
                              uint32_t end) {
    for (uint32_t i = edges->first[v]; i < edges->first[v + 1]; i++)
        if (m->from->edges.at[edges->list[i]].to >= end && place-- == 0) return edges->list[i];
    return DS_TAP_NO_EDGE;
}

/* The edge that stands for e, an edge of the whole graph: that of the first block which is the same
 * edge; e itself if there is none. */
static uint32_t first_edge(const maker *m, uint32_t e) {
    const ds_pase_edge *edge = &m->from->edges.at[e];
    uint32_t to = first_of(m, edge->to), from = first_of(m, edge->from);
    if (m->run[edge->to])
        return edge_at_place(m, &m->in, to, place_of(m, &m->in, edge->to, e, 0), 0);
    if (!m->run[edge->from]) return e;
    uint32_t end = end_of(run_of(m, edge->from));
    uint32_t sink = edge_at_place(m, &m->out, from, place_of(m, &m->out, edge->from, e, end), end);
    return sink == DS_TAP_NO_EDGE ? e : sink;
}

static void add_nodes(maker *m) {
    ds_tap_short *s = m->s;
    for (uint32_t v = 0; v < m->from->nodes.n; v++) {
        uint32_t first = first_of(m, v);
        if (first == v) {
            s->node[v] = s->graph->nodes.n;
            s->node_run[s->graph->nodes.n] = m->run[v];
            DS_PUSH(&s->graph->arena, &s->graph->nodes, m->from->nodes.at[v]);
        }
        s->node[v] = s->node[first];
    }
}

static void add_edge(maker *m, uint32_t e, bool sink) {
    ds_tap_short *s = m->s;
    ds_pase_edge edge = m->from->edges.at[e];
    uint32_t in_run = m->run[edge.to];
    if (sink) in_run = m->run[edge.from];
    edge.from = s->node[edge.from];
    edge.to = s->node[edge.to];
    s->edge[e] = s->graph->edges.n;
    s->edge_run[s->graph->edges.n] = in_run;
    DS_PUSH(&s->graph->arena, &s->graph->edges, edge);
}

/* Does the edge, which no other stands for, end at a global node behind the run? */
static bool is_sink(const maker *m, uint32_t e) {
    const ds_pase_edge *edge = &m->from->edges.at[e];
    return m->run[edge->from] && m->run[edge->to] != m->run[edge->from] && !m->run[edge->to] &&
           first_of(m, edge->from) == edge->from;
}

static void add_edges(maker *m) {
    ds_tap_short *s = m->s;
    for (uint32_t e = 0; e < m->from->edges.n; e++) {
        s->edge[e] = DS_TAP_NO_EDGE;
        if (!ds_pase_counts(m->model, &m->from->edges.at[e])) continue;
        if (first_edge(m, e) == e) add_edge(m, e, is_sink(m, e));
    }
    for (uint32_t e = 0; e < m->from->edges.n; e++)
        if (ds_pase_counts(m->model, &m->from->edges.at[e])) s->edge[e] = s->edge[first_edge(m, e)];
}

/* Of equal nodes the first that is left may be another one than in the whole graph. */
static void find_alike(const maker *m, const uint32_t *alike) {
    ds_tap_short *s = m->s;
    uint32_t *first = ds_xcalloc((size_t)m->from->nodes.n + 1, sizeof *first);
    for (uint32_t v = 0; v < m->from->nodes.n; v++) {
        if (first_of(m, v) != v) continue;
        uint32_t *known = &first[alike[v]], at = s->node[v];
        if (!*known) *known = at + 1;
        s->alike[at] = *known - 1;
    }
    free(first);
}

ds_tap_short *ds_tap__short_new(const ds_tap_fold *fold, const ds_pase_model *model,
                                const uint32_t *alike) {
    const ds_pase_graph *from = fold->graph;
    ds_tap_short *s = ds_xcalloc(1, sizeof *s);
    ds_arena scratch;
    ds_arena_init(&scratch);
    ds_arena_init(&s->arena);
    s->graph = ds_pase_graph_new();
    s->node = DS_NEW_N(&s->arena, uint32_t, from->nodes.n + 1);
    s->edge = DS_NEW_N(&s->arena, uint32_t, from->edges.n + 1);
    s->node_run = DS_NEW_N(&s->arena, uint32_t, fold->n_unique + 1);
    s->alike = DS_NEW_N(&s->arena, uint32_t, fold->n_unique + 1);
    s->edge_run = DS_NEW_N(&s->arena, uint32_t, from->edges.n + 1);
    maker m = {.from = from, .fold = fold, .model = model, .s = s};
    m.in = ds_tap__edges_of(from, model, true, &scratch);
    m.out = ds_tap__edges_of(from, model, false, &scratch);
    m.run = DS_NEW_N(&scratch, uint32_t, from->nodes.n + 1);
    for (uint32_t r = 0; r < fold->runs.n; r++)
        for (uint32_t v = fold->runs.at[r].start; v < end_of(&fold->runs.at[r]); v++)
            m.run[v] = r + 1;
    add_nodes(&m);
    add_edges(&m);
    find_alike(&m, alike);
    ds_arena_deinit(&scratch);
    return s;
}

void ds_tap__short_free(ds_tap_short *s) {
    if (!s) return;
    ds_pase_graph_free(s->graph);
    ds_arena_deinit(&s->arena);
    free(s);
}
