/* In which order nodes are eliminated, and what an order costs.
 *
 * GenerateSeq (PaSE, figure 3): always the node with the fewest neighbours, which are then joined
 * to each other; of equal ones the first. Breadth first is the order that the paper compares with.
 */
#include "search/pase/eliminate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef DS_VEC(uint32_t) neighbours; /* ascending */

static void insert(neighbours *set, uint32_t item) {
    uint32_t at = 0;
    while (at < set->n && set->at[at] < item) at++;
    if (at < set->n && set->at[at] == item) return;
    DS_HPUSH(set, item);
    memmove(&set->at[at + 1], &set->at[at], (set->n - 1 - at) * sizeof *set->at);
    set->at[at] = item;
}

static void take_out(neighbours *set, uint32_t item) {
    for (uint32_t i = 0; i < set->n; i++) {
        if (set->at[i] != item) continue;
        memmove(&set->at[i], &set->at[i + 1], (set->n - 1 - i) * sizeof *set->at);
        set->n--;
        return;
    }
}

static neighbours *neighbours_of(const ds_pase_graph *graph) {
    neighbours *sets = ds_xcalloc((size_t)graph->nodes.n + 1, sizeof *sets);
    for (uint32_t e = 0; e < graph->edges.n; e++) {
        const ds_pase_edge *edge = &graph->edges.at[e];
        if (edge->from == edge->to) continue;
        insert(&sets[edge->from], edge->to);
        insert(&sets[edge->to], edge->from);
    }
    return sets;
}

static void neighbours_free(neighbours *sets, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) free(sets[i].at);
    free(sets);
}

/* Of the nodes of the earliest stage, if there are stages. */
static uint32_t next_of(const neighbours *sets, const bool *gone, const uint32_t *stage,
                        uint32_t n) {
    uint32_t best = UINT32_MAX;
    for (uint32_t u = 0; u < n; u++) {
        if (gone[u]) continue;
        bool first = best == UINT32_MAX || (stage && stage[u] < stage[best]);
        bool same = !first && (!stage || stage[u] == stage[best]);
        if (first || (same && sets[u].n < sets[best].n)) best = u;
    }
    return best;
}

static void generate_seq(const ds_pase_graph *graph, neighbours *sets, const uint32_t *stage,
                         uint32_t *out) {
    uint32_t n = graph->nodes.n;
    bool *gone = ds_xcalloc((size_t)n + 1, sizeof *gone);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t v = next_of(sets, gone, stage, n);
        out[i] = v;
        gone[v] = true;
        for (uint32_t a = 0; a < sets[v].n; a++) {
            neighbours *w = &sets[sets[v].at[a]];
            take_out(w, v);
            for (uint32_t b = 0; b < sets[v].n; b++)
                if (b != a) insert(w, sets[v].at[b]);
        }
    }
    free(gone);
}

static void breadth_first(const ds_pase_graph *graph, const neighbours *sets, uint32_t *out) {
    uint32_t n = graph->nodes.n, done = 0, known = 0;
    bool *seen = ds_xcalloc((size_t)n + 1, sizeof *seen);
    for (uint32_t root = 0; root < n; root++) {
        if (seen[root]) continue;
        seen[root] = true;
        out[known++] = root;
        while (done < known) {
            const neighbours *near = &sets[out[done++]];
            for (uint32_t i = 0; i < near->n; i++) {
                if (seen[near->at[i]]) continue;
                seen[near->at[i]] = true;
                out[known++] = near->at[i];
            }
        }
    }
    free(seen);
}

ds_status ds_pase_order_of(const ds_pase_graph *graph, ds_pase_order order, uint32_t *out,
                           ds_error *err) {
    (void)err;
    neighbours *sets = neighbours_of(graph);
    if (order == DS_PASE_GENERATE_SEQ)
        generate_seq(graph, sets, NULL, out);
    else
        breadth_first(graph, sets, out);
    neighbours_free(sets, graph->nodes.n);
    return DS_OK;
}

void ds_pase__order_in_stages(const ds_pase_graph *graph, const uint32_t *stage,
                              const ds_pase_clique *cliques, uint32_t n_cliques, uint32_t *out) {
    neighbours *sets = neighbours_of(graph);
    for (uint32_t c = 0; c < n_cliques; c++)
        for (uint32_t i = 0; i < cliques[c].n; i++)
            for (uint32_t k = 0; k < cliques[c].n; k++)
                if (i != k) insert(&sets[cliques[c].node[i]], cliques[c].node[k]);
    generate_seq(graph, sets, stage, out);
    neighbours_free(sets, graph->nodes.n);
}

void ds_pase_frontier(const ds_pase_graph *graph, const uint32_t *order, const uint32_t *n_configs,
                      uint32_t *most, double *log10_combinations) {
    uint32_t n = graph->nodes.n, front = 0;
    double digits = 0;
    neighbours *sets = neighbours_of(graph);
    enum { AHEAD, FRONT, GONE };
    uint8_t *state = ds_xcalloc((size_t)n + 1, 1);
    *most = 0;
    if (log10_combinations) *log10_combinations = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t v = order[i];
        if (n_configs) digits += state[v] == FRONT ? 0 : log10((double)n_configs[v]);
        for (uint32_t k = 0; k < sets[v].n; k++) {
            uint32_t w = sets[v].at[k];
            if (state[w] != AHEAD) continue;
            state[w] = FRONT;
            front++;
            if (n_configs) digits += log10((double)n_configs[w]);
        }
        if (log10_combinations && digits > *log10_combinations) *log10_combinations = digits;
        if (state[v] == FRONT) front--;
        state[v] = GONE;
        if (n_configs) digits -= log10((double)n_configs[v]);
        if (front > *most) *most = front;
    }
    free(state);
    neighbours_free(sets, n);
}
