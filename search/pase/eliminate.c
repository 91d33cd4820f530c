/* The dynamic programme: nodes are eliminated one after the other.
 *
 * The dims of a message are in the order in which the nodes go, the last to go slowest, so that in
 * every term v's own dim is contiguous. The assignments are walked like nested loops; each level
 * keeps the sum of the terms that are decided there, and the innermost one is a few additions of
 * rows and a minimum.
 *
 * No choice is stored: afterwards nodes are taken in the opposite order, and each looks once
 * through its terms under what is chosen already. */
#include "search/pase/eliminate.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_DEPENDENT 64u

/* A table over some nodes, of which the stage's own is the one that goes. */
typedef struct term {
    const double *table;
    uint32_t group;
    uint32_t n; /* nodes but for its own, the last to go first */
    uint32_t *node;
    size_t *stride;
} term;

typedef struct ds_pase_stage {
    uint32_t own;
    DS_VEC(term *) terms;
    uint32_t n_dependent;
    uint32_t *dependent; /* the last to go first */
    double *message;
} stage;

static uint32_t configs_of(const ds_pase_elimination *e, uint32_t v) {
    return e->sets[v]->n;
}

void ds_pase__elimination_init(ds_pase_elimination *e, const ds_pase_graph *graph,
                               const ds_pase_configs **sets, const uint32_t *goes, double bytes,
                               double max_bytes) {
    *e = (ds_pase_elimination){.graph = graph, .sets = sets, .goes = goes, .max_bytes = max_bytes};
    ds_arena_init(&e->arena);
    e->sizes.table_bytes = bytes;
    e->stages = DS_NEW_N(&e->arena, stage, graph->nodes.n + 1);
    for (uint32_t v = 0; v < graph->nodes.n; v++) {
        e->stages[v].own = v;
        if (configs_of(e, v) > e->sizes.most_configs) e->sizes.most_configs = configs_of(e, v);
    }
}

void ds_pase__elimination_deinit(ds_pase_elimination *e) {
    ds_arena_deinit(&e->arena);
}

/* ---- what each node depends on ---- */

static void add_dependent(const ds_pase_elimination *e, const stage *st, uint32_t *list,
                          uint32_t *n, uint32_t w) {
    if (w == st->own) return;
    uint32_t at = 0;
    while (at < *n && e->goes[list[at]] > e->goes[w]) at++;
    if (at < *n && list[at] == w) return;
    memmove(&list[at + 1], &list[at], (*n - at) * sizeof *list);
    list[at] = w;
    ++*n;
}

static ds_status too_wide(const ds_pase_elimination *e, const stage *st, uint32_t n,
                          double combinations, ds_error *err) {
    const char *path = e->graph->nodes.at[st->own].path;
    return ds_error_set(err, DS_ERR_LIMIT, DS_NOWHERE,
                        "'%s' depends on %u nodes when it goes: %.3g combinations are beyond the "
                        "limit of %.0f MB of tables",
                        path ? path : "?", n, combinations, e->max_bytes / 1e6);
}

static ds_status find_dependent(ds_pase_elimination *e, stage *st, ds_error *err) {
    uint32_t list[2 * MOST_DEPENDENT + 1], n = 0;
    for (uint32_t i = 0; i < st->terms.n; i++) {
        for (uint32_t k = 0; k < st->terms.at[i]->n; k++)
            add_dependent(e, st, list, &n, st->terms.at[i]->node[k]);
        if (n >= MOST_DEPENDENT) return too_wide(e, st, n, INFINITY, err);
    }
    st->dependent = DS_NEW_N(&e->arena, uint32_t, n + 1);
    memcpy(st->dependent, list, n * sizeof *list);
    st->n_dependent = n;
    double entries = 1;
    for (uint32_t i = 0; i < n; i++) entries *= configs_of(e, list[i]);
    double combinations = entries * configs_of(e, st->own);
    ds_pase_sizes *sizes = &e->sizes;
    sizes->table_bytes += 8 * entries;
    if (sizes->table_bytes > e->max_bytes || combinations > 1e13)
        return too_wide(e, st, n, combinations, err);
    if (n > sizes->most_dependent) sizes->most_dependent = n;
    sizes->combinations += combinations;
    if (combinations > sizes->most_combinations) sizes->most_combinations = combinations;
    st->message = DS_NEW_N(&e->arena, double, (size_t)entries);
    return DS_OK;
}

/* ---- terms ---- */

void ds_pase__add_term(ds_pase_elimination *e, const double *table, const uint32_t *node,
                       uint32_t n, uint32_t group) {
    assert(n >= 1 && n <= MOST_DEPENDENT);
    term *t = DS_NEW(&e->arena, term);
    *t = (term){.table = table,
                .group = group,
                .n = n - 1,
                .node = DS_NEW_N(&e->arena, uint32_t, n),
                .stride = DS_NEW_N(&e->arena, size_t, n)};
    size_t stride = configs_of(e, node[n - 1]);
    for (uint32_t i = n - 1; i-- > 0;) {
        assert(e->goes[node[i]] > e->goes[node[i + 1]]);
        t->node[i] = node[i];
        t->stride[i] = stride;
        stride *= configs_of(e, node[i]);
    }
    DS_PUSH(&e->arena, &e->stages[node[n - 1]].terms, t);
}

/* To the node of D(v) that goes next, whose dim is the message's fastest. */
static void send_message(ds_pase_elimination *e, const stage *st, uint32_t group) {
    if (st->n_dependent == 0)
        e->total += st->message[0];
    else
        ds_pase__add_term(e, st->message, st->dependent, st->n_dependent, group);
}

/* ---- the innermost loops ---- */

enum { LANES = 4 };

static double least_of(const double *lanes) {
    double least = lanes[0];
    for (int l = 1; l < LANES; l++) least = lanes[l] < least ? lanes[l] : least;
    return least;
}

/* min over c of a[c] + b[c]; four minima side by side, which is what processors do well. */
static double least_sum(const double *restrict a, const double *restrict b, uint32_t n) {
    double lanes[LANES] = {INFINITY, INFINITY, INFINITY, INFINITY};
    uint32_t c = 0;
    for (; c + LANES <= n; c += LANES)
        for (uint32_t l = 0; l < LANES; l++) {
            double x = a[c + l] + b[c + l];
            lanes[l] = x < lanes[l] ? x : lanes[l];
        }
    for (; c < n; c++) {
        double x = a[c] + b[c];
        lanes[0] = x < lanes[0] ? x : lanes[0];
    }
    return least_of(lanes);
}

static double least_value(const double *a, uint32_t n) {
    double least = INFINITY;
    for (uint32_t c = 0; c < n; c++) least = a[c] < least ? a[c] : least;
    return least;
}

static void add_row(double *restrict to, const double *restrict row, uint32_t n) {
    for (uint32_t c = 0; c < n; c++) to[c] += row[c];
}

/* ---- one node ---- */

/* The assignment of D(v) being walked, and per level which terms it decides. */
typedef struct walk {
    const ds_pase_elimination *e;
    const stage *st;
    uint32_t at[MOST_DEPENDENT];
    uint32_t level_n[MOST_DEPENDENT + 1];
    const term **level[MOST_DEPENDENT + 1];
    double *sums; /* [levels + 1][configurations of v] */
    double *out;
} walk;

static const double *row_of(const walk *w, const term *t) {
    size_t offset = 0;
    for (uint32_t k = 0; k < t->n; k++)
        for (uint32_t i = 0; i < w->st->n_dependent; i++)
            if (w->st->dependent[i] == t->node[k]) offset += t->stride[k] * w->at[i];
    return t->table + offset;
}

/* The level behind which all nodes of the term are set. */
static uint32_t level_of(const stage *st, const term *t) {
    uint32_t level = 0;
    for (uint32_t k = 0; k < t->n; k++)
        for (uint32_t i = 0; i < st->n_dependent; i++)
            if (st->dependent[i] == t->node[k] && i + 1 > level) level = i + 1;
    return level;
}

static void descend(walk *w, uint32_t level) {
    uint32_t n = configs_of(w->e, w->st->own);
    const double *sum = &w->sums[(size_t)level * n];
    if (level == w->st->n_dependent) {
        *w->out++ = least_value(sum, n);
        return;
    }
    uint32_t choices = configs_of(w->e, w->st->dependent[level]);
    double *next = &w->sums[(size_t)(level + 1) * n];
    for (uint32_t c = 0; c < choices; c++) {
        w->at[level] = c;
        uint32_t terms = w->level_n[level + 1];
        if (level + 1 == w->st->n_dependent && terms == 1) {
            *w->out++ = least_sum(sum, row_of(w, w->level[level + 1][0]), n);
            continue;
        }
        memcpy(next, sum, n * sizeof *next);
        if (level + 1 == w->st->n_dependent && terms > 1) {
            for (uint32_t t = 0; t + 1 < terms; t++)
                add_row(next, row_of(w, w->level[level + 1][t]), n);
            *w->out++ = least_sum(next, row_of(w, w->level[level + 1][terms - 1]), n);
            continue;
        }
        for (uint32_t t = 0; t < terms; t++) add_row(next, row_of(w, w->level[level + 1][t]), n);
        descend(w, level + 1);
    }
}

static void fill_message(const ds_pase_elimination *e, const stage *st) {
    walk w = {.e = e, .st = st, .out = st->message};
    uint32_t n = configs_of(e, st->own);
    w.sums = ds_xcalloc((size_t)(st->n_dependent + 1) * n, sizeof *w.sums);
    for (uint32_t l = 0; l <= st->n_dependent; l++)
        w.level[l] = ds_xcalloc((size_t)st->terms.n + 1, sizeof **w.level);
    for (uint32_t i = 0; i < st->terms.n; i++) {
        uint32_t level = level_of(st, st->terms.at[i]);
        w.level[level][w.level_n[level]++] = st->terms.at[i];
    }
    for (uint32_t t = 0; t < w.level_n[0]; t++) add_row(w.sums, row_of(&w, w.level[0][t]), n);
    descend(&w, 0);
    for (uint32_t l = 0; l <= st->n_dependent; l++) free(w.level[l]);
    free(w.sums);
}

ds_status ds_pase__eliminate(ds_pase_elimination *e, uint32_t v, uint32_t group, ds_error *err) {
    stage *st = &e->stages[v];
    DS_TRY(find_dependent(e, st, err));
    fill_message(e, st);
    send_message(e, st, group);
    return DS_OK;
}

void ds_pase__choose(const ds_pase_elimination *e, uint32_t v, uint32_t *choice) {
    const stage *st = &e->stages[v];
    walk w = {.e = e, .st = st};
    uint32_t n = configs_of(e, v), best = 0;
    double *sum = ds_xcalloc(n, sizeof *sum);
    for (uint32_t i = 0; i < st->n_dependent; i++) w.at[i] = choice[st->dependent[i]];
    for (uint32_t t = 0; t < st->terms.n; t++) add_row(sum, row_of(&w, st->terms.at[t]), n);
    if (e->prefer && e->prefer[v] != UINT32_MAX) best = e->prefer[v];
    for (uint32_t c = 0; c < n; c++)
        if (sum[c] < sum[best]) best = c;
    choice[v] = best;
    free(sum);
}

/* ---- a group of terms as one table ---- */

/* The strides of the table's dims in the term's own table; 0: it does not mention the node. */
static void strides_in(const stage *st, const term *t, const uint32_t *node, uint32_t n,
                       size_t *stride) {
    uint32_t found = 0;
    for (uint32_t i = 0; i < n; i++) {
        stride[i] = node[i] == st->own;
        found += node[i] == st->own;
        for (uint32_t k = 0; k < t->n; k++) {
            if (t->node[k] != node[i]) continue;
            stride[i] = t->stride[k];
            found++;
        }
    }
    assert(found == t->n + 1);
    (void)found;
}

/* out[…] += table[…] over the dims from `d` on. Returns the end of what was filled. */
static double *add_spread(const ds_pase_elimination *e, const double *table, const size_t *stride,
                          const uint32_t *node, uint32_t n, uint32_t d, double *out) {
    uint32_t choices = configs_of(e, node[d]);
    if (d + 1 == n) {
        for (uint32_t c = 0; c < choices; c++) out[c] += table[c * stride[d]];
        return out + choices;
    }
    for (uint32_t c = 0; c < choices; c++)
        out = add_spread(e, table + c * stride[d], stride, node, n, d + 1, out);
    return out;
}

void ds_pase__gather(ds_pase_elimination *e, uint32_t group, const uint32_t *node, uint32_t n,
                     double *out) {
    size_t stride[2 * MOST_DEPENDENT], entries = 1;
    assert(n < 2 * MOST_DEPENDENT);
    for (uint32_t i = 0; i < n; i++) entries *= configs_of(e, node[i]);
    memset(out, 0, entries * sizeof *out);
    for (uint32_t i = 0; i < n; i++) {
        stage *st = &e->stages[node[i]];
        uint32_t kept = 0;
        for (uint32_t t = 0; t < st->terms.n; t++) {
            term *one = st->terms.at[t];
            if (one->group != group) {
                st->terms.at[kept++] = one;
                continue;
            }
            strides_in(st, one, node, n, stride);
            add_spread(e, one->table, stride, node, n, 0, out);
        }
        st->terms.n = kept;
    }
}
