/* Gathering: few groups of many. Kruskal's order of pairs with a limit on weights. */
#include "search/tag/puct.h"

#include <math.h>
#include <stdlib.h>

typedef struct pair {
    double elements;
    uint32_t a, b;
} pair;

typedef struct gathering {
    uint32_t n_groups, n_left;
    uint32_t *root_of;   /* [group]: a forest; roots stand for merged groups */
    double *weight, *us; /* [group], of roots */
} gathering;

static int by_elements(const void *a, const void *b) {
    const pair *x = a, *y = b;
    if (x->elements != y->elements) return x->elements > y->elements ? -1 : 1;
    if (x->a != y->a) return x->a < y->a ? -1 : 1;
    return x->b < y->b ? -1 : x->b > y->b;
}

static uint32_t root_of(gathering *g, uint32_t i) {
    while (g->root_of[i] != i) i = g->root_of[i] = g->root_of[g->root_of[i]];
    return i;
}

static void merge(gathering *g, uint32_t a, uint32_t b) {
    uint32_t low = a < b ? a : b, high = a < b ? b : a;
    g->root_of[high] = low;
    g->weight[low] += g->weight[high];
    g->us[low] += g->us[high];
    g->n_left--;
}

/* The mean over kinds of GPUs and batch sizes. */
static double mean_us(const ds_tag_graph *graph, uint32_t op) {
    uint32_t n = graph->n_kinds * graph->n_points;
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += graph->op[op].us[i];
    return sum / n;
}

static void merge_neighbours(gathering *g, const ds_tag_graph *graph, uint32_t n_wanted,
                             ds_arena *arena) {
    DS_VEC(pair) pairs = {0};
    double total = 0;
    for (uint32_t i = 0; i < g->n_groups; i++) total += g->weight[i];
    for (uint32_t i = 0; i < graph->n_ops; i++)
        for (uint32_t k = 0; k < graph->op[i].n_parents; k++) {
            const ds_tag_op *parent = &graph->op[graph->op[i].parent[k]];
            int64_t elements = parent->result_bytes / 4;
            pair p = {elements ? (double)elements : 1000, parent->group, graph->op[i].group};
            DS_PUSH(arena, &pairs, p);
        }
    if (pairs.n > 0) qsort(pairs.at, pairs.n, sizeof *pairs.at, by_elements);
    for (uint32_t i = 0; i < pairs.n && g->n_left > n_wanted; i++) {
        uint32_t a = root_of(g, pairs.at[i].a), b = root_of(g, pairs.at[i].b);
        if (a != b && g->weight[a] + g->weight[b] <= 5 * total / n_wanted) merge(g, a, b);
    }
}

static void merge_lightest(gathering *g, uint32_t n_wanted) {
    while (g->n_left > n_wanted) {
        uint32_t first = UINT32_MAX, second = UINT32_MAX;
        for (uint32_t i = 0; i < g->n_groups; i++) {
            if (root_of(g, i) != i) continue;
            if (first == UINT32_MAX || g->weight[i] < g->weight[first]) {
                second = first;
                first = i;
            } else if (second == UINT32_MAX || g->weight[i] < g->weight[second]) {
                second = i;
            }
        }
        merge(g, first, second);
    }
}

typedef struct timed {
    double us;
    uint32_t group;
} timed;

static int by_us(const void *a, const void *b) {
    const timed *x = a, *y = b;
    if (x->us != y->us) return x->us > y->us ? -1 : 1;
    return x->group < y->group ? -1 : x->group > y->group;
}

uint32_t ds_tag_gather(const ds_tag_graph *graph, uint32_t n_wanted, ds_arena *arena,
                       uint32_t *group_of) {
    uint32_t n = graph->n_groups, n_roots = 0;
    gathering g = {.n_groups = n, .n_left = n};
    g.root_of = DS_NEW_N(arena, uint32_t, n);
    g.weight = DS_NEW_N(arena, double, n);
    g.us = DS_NEW_N(arena, double, n);
    for (uint32_t i = 0; i < n; i++) g.root_of[i] = i;
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        g.us[graph->op[i].group] += mean_us(graph, i);
        g.weight[graph->op[i].group] += floor(sqrt(mean_us(graph, i)));
    }
    if (n_wanted == 0) n_wanted = 1;
    merge_neighbours(&g, graph, n_wanted, arena);
    merge_lightest(&g, n_wanted);
    timed *roots = DS_NEW_N(arena, timed, n);
    uint32_t *number = DS_NEW_N(arena, uint32_t, n);
    for (uint32_t i = 0; i < n; i++)
        if (root_of(&g, i) == i) roots[n_roots++] = (timed){g.us[i], i};
    qsort(roots, n_roots, sizeof *roots, by_us);
    for (uint32_t i = 0; i < n_roots; i++) number[roots[i].group] = i;
    for (uint32_t i = 0; i < n; i++) group_of[i] = number[root_of(&g, i)];
    return n_roots;
}
