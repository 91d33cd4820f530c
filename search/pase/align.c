/* Nestings of splits, by trying them. */
#include "search/pase/align.h"

#include <string.h>

/* Device d holds part d / stride % parts. */
typedef struct place {
    uint32_t parts, stride;
} place;

ds_pase_nesting ds_pase_nested(const ds_pase_node *node, const uint16_t *split) {
    ds_pase_nesting nesting = {0};
    for (uint32_t a = 0; a < node->n_axes; a++)
        if (split[a] > 1) nesting.axis[nesting.n++] = (uint8_t)a;
    return nesting;
}

/* Where the dims of a tensor lie at one end of its edge. */
static void places_of(const uint16_t *split, const ds_pase_nesting *nesting, const int8_t *axis,
                      uint32_t rank, uint32_t devices, place *out) {
    uint32_t stride[DS_PASE_MAX_AXES] = {0}, left = devices;
    for (uint32_t i = 0; i < nesting->n; i++)
        stride[nesting->axis[i]] = left /= split[nesting->axis[i]];
    for (uint32_t d = 0; d < rank; d++) {
        bool is_split = axis[d] >= 0 && split[axis[d]] > 1;
        out[d] = is_split ? (place){split[axis[d]], stride[axis[d]]} : (place){1, 1};
    }
}

/* The share of a tensor that a device has at both ends. */
static double common(const place *a, const place *b, uint32_t rank, uint32_t device) {
    double share = 1;
    for (uint32_t d = 0; d < rank; d++) {
        double x = 1.0 / a[d].parts, y = 1.0 / b[d].parts;
        double from = x * (device / a[d].stride % a[d].parts), to = from + x;
        double lo = y * (device / b[d].stride % b[d].parts), hi = lo + y;
        double width = (to < hi ? to : hi) - (from > lo ? from : lo);
        if (width <= 0) return 0;
        share *= width;
    }
    return share;
}

/* What all devices together lack of a tensor, there and back, as parts of it. */
static double lacking(const place *a, const place *b, uint32_t rank, uint32_t devices) {
    double whole = 0, both = 0, x = 1, y = 1;
    for (uint32_t d = 0; d < rank; d++) {
        x /= a[d].parts;
        y /= b[d].parts;
    }
    whole = (x + y) * devices;
    for (uint32_t i = 0; i < devices; i++) both += common(a, b, rank, i);
    return whole - 2 * both;
}

typedef struct aligner {
    const ds_pase_graph *graph;
    const ds_pase_splits *strategy;
    uint32_t devices;
    ds_pase_nesting *nesting;
    uint32_t v, first_edge;
    double least;
    ds_pase_nesting best;
} aligner;

static double bytes_to_move(const aligner *a, const ds_pase_nesting *nesting) {
    double bytes = 0;
    for (uint32_t e = a->first_edge; e < a->graph->edges.n && a->graph->edges.at[e].to <= a->v;
         e++) {
        const ds_pase_edge *edge = &a->graph->edges.at[e];
        place have[DS_MAX_RANK], want[DS_MAX_RANK];
        double size = ds_dtype_bits(edge->dtype) / 8.0;
        if (edge->to != a->v || edge->from >= a->v) continue;
        for (uint32_t d = 0; d < edge->rank; d++) size *= (double)edge->size[d];
        places_of(a->strategy[edge->from].of, &a->nesting[edge->from], edge->from_axis, edge->rank,
                  a->devices, have);
        places_of(a->strategy[a->v].of, nesting, edge->to_axis, edge->rank, a->devices, want);
        bytes += size * lacking(have, want, edge->rank, a->devices);
    }
    return bytes;
}

/* All orders of the axes from `at` on, in lexical order. */
static void try_orders(aligner *a, ds_pase_nesting *nesting, uint32_t at) {
    if (at == nesting->n) {
        double bytes = bytes_to_move(a, nesting);
        if (bytes >= a->least * (1 - 1e-9)) return;
        a->least = bytes;
        a->best = *nesting;
        return;
    }
    for (uint32_t i = at; i < nesting->n; i++) {
        ds_pase_nesting with = *nesting;
        memmove(&with.axis[at + 1], &with.axis[at], i - at);
        with.axis[at] = nesting->axis[i];
        try_orders(a, &with, at + 1);
    }
}

void ds_pase_align(const ds_pase_graph *graph, const ds_pase_splits *strategy, int64_t devices,
                   ds_pase_nesting *nesting) {
    aligner a = {
        .graph = graph, .strategy = strategy, .devices = (uint32_t)devices, .nesting = nesting};
    for (a.v = 0; a.v < graph->nodes.n; a.v++) {
        ds_pase_nesting plain = ds_pase_nested(&graph->nodes.at[a.v], strategy[a.v].of);
        while (a.first_edge < graph->edges.n && graph->edges.at[a.first_edge].to < a.v)
            a.first_edge++;
        a.best = plain;
        a.least = bytes_to_move(&a, &plain);
        try_orders(&a, &plain, 0);
        nesting[a.v] = a.best;
    }
}
