/* How large the tables of an elimination get, before any is made: nodes go one after the other, and
 * only who depends on whom is kept. */
#include "search/pase/tables.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_NODES = 128 };

/* Nodes that a term is over, but for the one that goes first. */
typedef struct scope {
    uint32_t n, *node;
} scope;

typedef struct sizer {
    const ds_pase_graph *graph;
    const ds_pase_configs *const *sets;
    const uint32_t *goes;
    ds_arena arena;
    struct {
        DS_VEC(scope) terms;
    } * nodes;
} sizer;

static void add_edges(sizer *s, const ds_pase_model *model) {
    for (uint32_t e = 0; e < s->graph->edges.n; e++) {
        const ds_pase_edge *edge = &s->graph->edges.at[e];
        if (edge->from == edge->to || !ds_pase_counts(model, edge)) continue;
        bool from_first = s->goes[edge->from] < s->goes[edge->to];
        uint32_t *later = DS_NEW(&s->arena, uint32_t);
        *later = from_first ? edge->to : edge->from;
        uint32_t first = from_first ? edge->from : edge->to;
        DS_PUSH(&s->arena, &s->nodes[first].terms, ((scope){1, later}));
    }
}

static bool add_node(uint32_t *list, uint32_t *n, uint32_t w) {
    for (uint32_t i = 0; i < *n; i++)
        if (list[i] == w) return true;
    if (*n == MOST_NODES) return false;
    list[(*n)++] = w;
    return true;
}

/* What v depends on when it goes, which becomes a term of the next of them. *entries: of its
 * message; INFINITY beyond MOST_NODES nodes. */
static void eliminate(sizer *s, uint32_t v, double *entries) {
    uint32_t list[MOST_NODES], n = 0, next = v;
    *entries = 1;
    for (uint32_t t = 0; t < s->nodes[v].terms.n; t++)
        for (uint32_t i = 0; i < s->nodes[v].terms.at[t].n; i++) {
            uint32_t w = s->nodes[v].terms.at[t].node[i];
            if (w != v && !add_node(list, &n, w)) *entries = INFINITY;
        }
    for (uint32_t i = 0; i < n; i++) {
        *entries *= s->sets[list[i]]->n;
        if (next == v || s->goes[list[i]] < s->goes[next]) next = list[i];
    }
    if (next == v) return;
    uint32_t *kept = DS_NEW_N(&s->arena, uint32_t, n);
    memcpy(kept, list, n * sizeof *kept);
    DS_PUSH(&s->arena, &s->nodes[next].terms, ((scope){n, kept}));
}

static ds_status too_large(const sizer *s, const ds_pase_model *model, uint32_t v, double entries,
                           double max_bytes, ds_error *err) {
    const char *path = s->graph->nodes.at[v].path;
    return ds_error_set(err, DS_ERR_LIMIT, DS_NOWHERE,
                        "over %lld devices '%s' has %u configurations, and a table of %.3g entries "
                        "when it goes: %.3g combinations are beyond the limit of %.0f MB of tables "
                        "and %.0g combinations; fewer devices or a larger cutoff make fewer",
                        (long long)model->limits.devices, path ? path : "?", s->sets[v]->n, entries,
                        entries * s->sets[v]->n, max_bytes / 1e6, DS_PASE_MAX_COMBINATIONS);
}

ds_status ds_pase__check_sizes(const ds_pase_graph *graph, const ds_pase_model *model,
                               const ds_pase_configs *const *sets, const uint32_t *goes,
                               double max_bytes, ds_error *err) {
    sizer s = {.graph = graph, .sets = sets, .goes = goes};
    uint32_t n = graph->nodes.n, worst = 0;
    double bytes = 0, combinations = 0, most = -1, entries_of_worst = 0;
    ds_arena_init(&s.arena);
    s.nodes = ds_arena_calloc(&s.arena, n + 1, sizeof *s.nodes);
    uint32_t *order = DS_NEW_N(&s.arena, uint32_t, n + 1);
    for (uint32_t v = 0; v < n; v++) order[goes[v]] = v;
    add_edges(&s, model);
    for (uint32_t i = 0; i < n; i++) {
        double entries;
        eliminate(&s, order[i], &entries);
        bytes += 8 * entries;
        combinations += entries * sets[order[i]]->n;
        if (entries * sets[order[i]]->n <= most) continue;
        most = entries * sets[order[i]]->n;
        entries_of_worst = entries;
        worst = order[i];
    }
    ds_status status = DS_OK;
    if (bytes > max_bytes || combinations > DS_PASE_MAX_COMBINATIONS)
        status = too_large(&s, model, worst, entries_of_worst, max_bytes, err);
    ds_arena_deinit(&s.arena);
    return status;
}
