/* PaSE's cost model: FLOPs, and words on links times r.
 *
 * Written after its released code's formulas, with what is peculiar about them: words have 8 bytes,
 * parts of axes are quotients and not rounded up, devices of neighbours are aligned perfectly, only
 * the last of several edges between two nodes costs anything, elementwise ops count only behind
 * products and sums, and layouts are free.
 *
 *     AR(w, q) = r (w/q) 2(q-1)        a ring all-reduce of w words over q devices
 *     x_i = n_i/c_i, el = Π x_i
 *
 * Source: Elango, IPDPS 2021, section II, and the released cost model (nn_ops). */
#include "search/pase/pase.h"

#include <stdlib.h>

typedef struct formulas {
    ds_pase_model base;
    double r;
} formulas;

static double reduce(const formulas *f, double words, double parts) {
    return f->r * (words / parts) * 2 * (parts - 1);
}

/* One node under one configuration. */
typedef struct local {
    const ds_pase_node *node;
    const uint16_t *split;
    double size[DS_PASE_MAX_AXES]; /* of a device */
    double elements;
} local;

static local local_of(const ds_pase_node *node, const uint16_t *split) {
    local l = {.node = node, .split = split, .elements = 1};
    for (uint32_t a = 0; a < node->n_axes; a++) {
        l.size[a] = (double)node->size[a] / split[a];
        l.elements *= l.size[a];
    }
    return l;
}

static double size_of(const local *l, uint32_t axes) {
    double product = 1;
    for (uint32_t a = 0; a < l->node->n_axes; a++)
        if ((axes >> a) & 1) product *= l->size[a];
    return product;
}

static double parts_of(const local *l, uint32_t axes) {
    double product = 1;
    for (uint32_t a = 0; a < l->node->n_axes; a++)
        if ((axes >> a) & 1) product *= l->split[a];
    return product;
}

typedef struct matrices {
    double m, n, k;
} matrices;

/* Forward and two products backward; the result's partial sums, and those of both gradients. */
static double product_cost(const formulas *f, matrices size, matrices parts, double pointwise) {
    double m = size.m, n = size.n, k = size.k;
    double cost = 3 * m * n * k + 3 * pointwise * m * n;
    cost += reduce(f, m * n, parts.k);
    cost += reduce(f, m * k, parts.n);
    return cost + reduce(f, n * k, parts.m);
}

static double gemm(const formulas *f, const local *l) {
    const ds_pase_node *node = l->node;
    matrices size = {size_of(l, node->m), size_of(l, node->n), size_of(l, node->k)};
    matrices parts = {parts_of(l, node->m), parts_of(l, node->n), parts_of(l, node->k)};
    return size_of(l, node->batch) * product_cost(f, size, parts, node->pointwise);
}

/* Words that a device must get, of the target's part: those of the source's part that it has need
 * not come, unless the target is split further. */
static double missing(double target, double common, bool split_further) {
    double words = target - (split_further ? 0 : common);
    return words > 0 ? words : 0;
}

static double least(double a, double b) {
    return a < b ? a : b;
}

/* layer, sequence, batch, hidden, input; a step's result becomes its next step's operand. */
static double lstm(const formulas *f, const local *l) {
    const double *x = l->size;
    const uint16_t *c = l->split;
    matrices size = {x[1] * x[2], 4 * x[3], 2 * x[4]}, parts = {(double)c[1] * c[2], c[3], c[4]};
    double cost = x[0] * product_cost(f, size, parts, 3);
    double words = missing(x[2] * x[4], x[2] * least(x[3], x[4]), c[4] > c[3]);
    return cost + f->r * (double)l->node->size[0] * (double)l->node->size[1] * words;
}

static double norm(const formulas *f, const local *l) {
    uint32_t along = l->node->along, others = ~along;
    double x = size_of(l, along);
    return 16 * l->elements + 4 * reduce(f, l->elements / x, parts_of(l, along)) +
           4 * reduce(f, x, parts_of(l, others));
}

/* Borders of windows that neighbours have, of the operand. */
static double pool(const formulas *f, const local *l) {
    double x[DS_PASE_MAX_AXES], border[2], ghost = 0;
    uint32_t n = l->node->n_axes;
    for (uint32_t a = 0; a < n; a++) x[a] = (double)l->node->in_size[a] / l->split[a];
    if (n == 4) {
        for (uint32_t i = 0; i < 2; i++)
            border[i] = l->split[2 + i] > 1 ? (double)l->node->window[i] : 0;
        ghost = ((x[2] + border[0]) * (x[3] + border[1]) - x[2] * x[3]) * x[0] * x[1];
    }
    return l->elements + f->r * ghost;
}

static double softmax(const formulas *f, const local *l) {
    uint32_t a = (uint32_t)__builtin_ctz(l->node->along);
    double whole = (double)l->node->size[a], rows = l->elements / l->size[a], parts = l->split[a];
    return 4 * l->elements + l->elements * whole + 2 * reduce(f, rows, parts) +
           reduce(f, rows * whole, parts);
}

static double loss(const formulas *f, const local *l) {
    uint32_t last = l->node->n_axes - 1;
    double rows = size_of(l, ~(1u << last));
    return 4 * l->elements + 2 * rows + (l->split[last] > 1 ? f->r * 2 * rows : 0);
}

/* What the published model has no formula for: thrice its multiply-adds, shared out. */
static double other(const local *l) {
    return 3 * l->node->flop / 2 / parts_of(l, ~0u);
}

static double cost_of(const formulas *f, const local *l) {
    switch (l->node->kind) {
    case DS_PASE_GEMM:
        return gemm(f, l);
    case DS_PASE_LSTM:
        return lstm(f, l);
    case DS_PASE_ELEMENTWISE:
        return (1 + (double)l->node->pointwise) * l->elements;
    case DS_PASE_NORM:
        return norm(f, l);
    case DS_PASE_POOL:
        return pool(f, l);
    case DS_PASE_MEAN:
        return reduce(f, l->elements, parts_of(l, l->node->along));
    case DS_PASE_SOFTMAX:
        return softmax(f, l);
    case DS_PASE_LOSS:
        return loss(f, l);
    case DS_PASE_LAYOUT:
    case DS_PASE_RESHAPE:
        return 0;
    case DS_PASE_OTHER:
        return other(l);
    }
    return 0;
}

static ds_status node_costs(ds_pase_model *model, const ds_pase_node *node,
                            const ds_pase_configs *set, double *cost, ds_error *err) {
    (void)err;
    for (uint32_t c = 0; c < set->n; c++) {
        local l = local_of(node, ds_pase_config(set, c));
        cost[c] = cost_of((const formulas *)model, &l);
    }
    return DS_OK;
}

/* ---- edges ---- */

/* A tensor's part on a device under each configuration of one end. */
typedef struct end_parts {
    double *size; /* [n][rank] */
    double *elements, *parts;
} end_parts;

static void end_init(end_parts *end, const ds_pase_edge *edge, const int8_t *axis,
                     const ds_pase_configs *set) {
    end->size = ds_xcalloc((size_t)set->n * (edge->rank + 2) + 1, sizeof(double));
    end->elements = end->size + (size_t)set->n * edge->rank;
    end->parts = end->elements + set->n;
    for (uint32_t c = 0; c < set->n; c++) {
        const uint16_t *split = ds_pase_config(set, c);
        double *size = &end->size[(size_t)c * edge->rank];
        end->elements[c] = end->parts[c] = 1;
        for (uint32_t d = 0; d < edge->rank; d++) {
            double parts = axis[d] < 0 ? 1 : split[axis[d]];
            size[d] = (double)edge->size[d] / parts;
            end->elements[c] *= size[d];
            end->parts[c] *= parts;
        }
    }
}

static ds_status edge_costs(ds_pase_model *model, const ds_pase_edge *edge,
                            const ds_pase_configs *from, const ds_pase_configs *to, double *cost,
                            ds_error *err) {
    (void)err;
    const formulas *f = (const formulas *)model;
    end_parts s, t;
    end_init(&s, edge, edge->from_axis, from);
    end_init(&t, edge, edge->to_axis, to);
    for (uint32_t a = 0; a < from->n; a++) {
        const double *have = &s.size[(size_t)a * edge->rank];
        for (uint32_t b = 0; b < to->n; b++) {
            const double *want = &t.size[(size_t)b * edge->rank];
            double common = 1;
            for (uint32_t d = 0; d < edge->rank; d++) common *= least(have[d], want[d]);
            double words = missing(t.elements[b], common, t.parts[b] > s.parts[a]);
            cost[(size_t)a * to->n + b] = f->r * 2 * words;
        }
    }
    free(s.size);
    free(t.size);
    return DS_OK;
}

static void formulas_free(ds_pase_model *model) {
    free(model);
}

ds_pase_model *ds_pase_formulas_new(int64_t devices, int64_t cutoff, double flop_per_s,
                                    double bytes_per_s) {
    formulas *f = ds_xcalloc(1, sizeof *f);
    f->base = (ds_pase_model){.name = "pase",
                              .unit = "FLOP",
                              .limits = {.devices = devices, .cutoff = cutoff},
                              .last_edge_only = true,
                              .no_tied_edges = true,
                              .node = node_costs,
                              .edge = edge_costs,
                              .free = formulas_free};
    f->r = flop_per_s / (bytes_per_s / 8);
    return &f->base;
}
