/* Branch and bound: the best candidate, with proof.
 *
 * Regions (prefixes of the odometer) wait in a heap, the one with the lowest bound in front. It is
 * taken out and its children put in, each with its own bound, or its parent's if that is better;
 * one that is a single candidate goes into the next round. Once the lowest bound is no less than
 * the best candidate's value, nothing that waits can be better. A region whose candidates lack
 * memory or are refused by a pass, all of them, has the bound INT64_MAX.
 *
 * Rounds depend on what was told before, never on the number of workers: 4 candidates at first, an
 * eighth of all so far later, because a round begins before the results of its first candidate
 * could spare the last one. */
#include "search/methods/bound.h"

#include "ir/base/heap.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_ROUND = 4, ROUND_SHARE = 8, NOBODY = -1 };

typedef struct node {
    uint32_t parent; /* the root is its own */
    uint32_t depth;
    uint32_t first_child, n_children;
    ds_choice choice; /* of dimension depth − 1 */
    int64_t bound;
    bool told, illegal;
    ds_verdict verdict; /* once told */
    bool accepted;
    int64_t value;
    uint64_t hash;
} node;

typedef struct search {
    ds_method method;
    const ds_eval_source *source;
    ds_space *space;
    ds_bounds *bounds;
    ds_objective objective;
    uint32_t n_dims;
    DS_VEC(node) nodes;
    ds_heap waiting; /* nodes by bound */
    DS_VEC(uint32_t) round;
    uint32_t served, told; /* of the round */
    uint64_t n;            /* candidates so far */
    int64_t best;          /* value; INT64_MAX: none */
    uint32_t best_node;
    ds_choice *prefix; /* of one region */
    bool proved;
} search;

/* ---- regions ---- */

/* Lower bounds leave first, then larger depths, then nodes made first. */
static void push_node(search *s, uint32_t index) {
    const node *at = &s->nodes.at[index];
    ds_heap_push_ranked(&s->waiting, at->bound, UINT32_MAX - at->depth, index);
}

static void read_prefix(const search *s, uint32_t index, ds_choice *out) {
    for (const node *at = &s->nodes.at[index]; at->depth; at = &s->nodes.at[at->parent])
        out[at->depth - 1] = at->choice;
}

/* Of the first `depth` of the prefix. */
static ds_status find_bound(search *s, uint32_t depth, node *out, ds_error *err) {
    ds_bound_region region;
    DS_TRY(ds_bounds_memory(s->bounds, s->prefix, depth, &region, err));
    int64_t peak = ds_bound_peak_bytes(&region);
    out->illegal = ds_bound_is_illegal(&region);
    out->bound = peak;
    if (out->illegal || (region.capacity_bytes && peak > region.capacity_bytes))
        out->bound = INT64_MAX;
    if (out->bound == INT64_MAX || s->objective.what != DS_METRIC_step_time) return DS_OK;
    DS_TRY(ds_bounds_region(s->bounds, s->prefix, depth, &region, err));
    out->bound = ds_bound_step_ps(&region);
    return DS_OK;
}

static ds_status add_children(search *s, uint32_t index, const ds_choice *children, uint32_t n,
                              ds_error *err) {
    uint32_t depth = s->nodes.at[index].depth, first = s->nodes.n;
    int64_t least = s->nodes.at[index].bound;
    s->nodes.at[index].first_child = first;
    s->nodes.at[index].n_children = n;
    for (uint32_t i = 0; i < n; i++) {
        node child = {.parent = index, .depth = depth + 1, .choice = children[i]};
        s->prefix[depth] = children[i];
        DS_TRY(find_bound(s, depth + 1, &child, err));
        if (child.bound < least) child.bound = least;
        DS_HPUSH(&s->nodes, child);
    }
    for (uint32_t i = 0; i < n; i++) push_node(s, first + i);
    return DS_OK;
}

static ds_status expand(search *s, uint32_t index, ds_error *err) {
    ds_arena scratch;
    ds_choice *children;
    uint32_t n;
    ds_arena_init(&scratch);
    read_prefix(s, index, s->prefix);
    ds_status status = ds_space_children(s->space, s->prefix, s->nodes.at[index].depth, &scratch,
                                         &children, &n, err);
    if (status == DS_OK) status = add_children(s, index, children, n, err);
    ds_arena_deinit(&scratch);
    return status;
}

/* ---- the method ---- */

static uint32_t round_size(const search *s) {
    uint64_t n = s->n / ROUND_SHARE;
    return n < FIRST_ROUND ? FIRST_ROUND : n > DS_ROUND ? DS_ROUND : (uint32_t)n;
}

/* What was told counts from now on, in the order of candidates. */
static void take_results(search *s) {
    for (uint32_t i = 0; i < s->round.n; i++) {
        const node *at = &s->nodes.at[s->round.at[i]];
        if (!at->accepted || at->value >= s->best) continue;
        s->best = at->value;
        s->best_node = s->round.at[i];
    }
    s->round.n = s->served = s->told = 0;
}

static ds_status make_round(search *s, ds_error *err) {
    take_results(s);
    uint32_t size = round_size(s);
    while (s->round.n < size && s->waiting.n && !s->proved) {
        int64_t lowest = s->waiting.at[0].time_ps;
        if (lowest >= s->best || lowest == INT64_MAX) break;
        uint32_t index = ds_heap_pop(&s->waiting);
        if (s->nodes.at[index].depth == s->n_dims)
            DS_HPUSH(&s->round, index);
        else
            DS_TRY(expand(s, index, err));
    }
    s->proved = s->round.n == 0;
    return DS_OK;
}

static ds_status next(ds_method *method, ds_candidate *candidate, bool *found, ds_error *err) {
    search *s = (search *)method;
    *found = false;
    if (s->served == s->round.n && s->told < s->round.n) return DS_OK;
    if (s->served == s->round.n) DS_TRY(make_round(s, err));
    if (s->proved) return DS_OK;
    read_prefix(s, s->round.at[s->served++], candidate->at);
    candidate->number = s->n++;
    *found = true;
    return DS_OK;
}

static void tell(ds_method *method, const ds_candidate *candidate, const ds_outcome *outcome,
                 bool accepted) {
    search *s = (search *)method;
    (void)candidate;
    node *at = &s->nodes.at[s->round.at[s->told++]];
    at->told = true;
    at->verdict = outcome->verdict;
    at->accepted = accepted;
    at->hash = outcome->hash;
    at->value = s->objective.what == DS_METRIC_step_time ? outcome->metrics.step_ps
                                                         : outcome->metrics.peak_bytes;
}

/* How near the lowest bound has come to the best value. */
static double progress(const ds_method *method) {
    const search *s = (const search *)method;
    if (s->proved) return 1;
    if (s->best == INT64_MAX || s->best <= 0 || !s->waiting.n) return 0;
    double share = (double)s->waiting.at[0].time_ps / (double)s->best;
    return share < 1 ? share : 1;
}

static void free_search(ds_method *method) {
    search *s = (search *)method;
    ds_bounds_free(s->bounds);
    free(s->nodes.at);
    ds_heap_deinit(&s->waiting);
    free(s->round.at);
    free(s->prefix);
    free(s);
}

static ds_status refuse(const char *why, ds_error *err) {
    return ds_error_set(
        err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
        "--method bound has no bounds of this sweep: %s; grid, random, beam, anneal "
        "and mcmc need none",
        why);
}

static ds_status check_objective(const ds_space *space, ds_objective *out, ds_error *err) {
    uint32_t n;
    *out = ds_space_objectives(space, &n)[0];
    if (n > 1) return refuse("it has several objectives", err);
    if (out->what == DS_METRIC_memory) out->what = DS_METRIC_peak_bytes;
    if (out->maximize || (out->what != DS_METRIC_step_time && out->what != DS_METRIC_peak_bytes))
        return refuse("there are some for minimize step_time and minimize peak_memory only", err);
    return DS_OK;
}

ds_status ds_bound_new(const ds_eval_source *source, ds_space *space, ds_method **out,
                       ds_error *err) {
    ds_objective objective;
    const char *why;
    ds_bounds *bounds;
    *out = NULL;
    DS_TRY(check_objective(space, &objective, err));
    DS_TRY(ds_bounds_new(source, space, &bounds, &why, err));
    if (why) { /* the reason is in the bounds' memory */
        ds_status status = refuse(why, err);
        ds_bounds_free(bounds);
        return status;
    }
    search *s = ds_xcalloc(1, sizeof *s);
    s->method = (ds_method){.next = next, .tell = tell, .progress = progress, .free = free_search};
    s->source = source;
    s->space = space;
    s->bounds = bounds;
    s->objective = objective;
    s->n_dims = ds_space_n_dims(space);
    s->best = INT64_MAX;
    s->prefix = ds_xcalloc(s->n_dims + UINT32_C(1), sizeof *s->prefix);
    DS_HPUSH(&s->nodes, (node){0});
    push_node(s, 0);
    *out = &s->method;
    return DS_OK;
}

bool ds_bound_is_proved(const ds_method *method) {
    return ((const search *)method)->proved;
}

/* ---- the certificate ---- */

void ds_certificate_put_cell(const char *text, ds_buf *out) {
    ds_buf_put(out, "");
    for (; *text; text++) {
        if (*text == '\t' || *text == '\n' || *text == '\\') ds_buf_putc(out, '\\');
        ds_buf_putc(out, *text == '\t' ? 't' : *text == '\n' ? 'n' : *text);
    }
}

void ds_certificate_read_cell(char *cell) {
    char *out = cell;
    for (; *cell; cell++) {
        char c = *cell;
        if (c == '\\' && cell[1]) {
            c = *++cell;
            if (c == 't') c = '\t';
            if (c == 'n') c = '\n';
        }
        *out++ = c;
    }
    *out = '\0';
}

static void put_prefix(const search *s, uint32_t depth, ds_candidate *full, ds_buf *out) {
    ds_buf value = {0};
    for (uint32_t i = 0; i < depth; i++) {
        value.n = 0;
        ds_buf_put(&value, "");
        ds_space_put_value(s->space, full, i, &value);
        ds_buf_putc(out, '\t');
        ds_certificate_put_cell(value.text, out);
    }
    ds_buf_deinit(&value);
    ds_buf_putc(out, '\n');
}

static ds_status put_region(search *s, uint32_t index, ds_candidate *full, uint64_t *n, ds_buf *out,
                            ds_error *err) {
    const node *at = &s->nodes.at[index];
    bool found;
    read_prefix(s, index, full->at);
    /* a prefix that no candidate has is no region */
    DS_TRY(ds_space_complete(s->space, full, at->depth, NULL, 0, &found, err));
    if (!found) return DS_OK;
    if (!at->told && at->bound == INT64_MAX)
        ds_buf_put(out, at->illegal ? "illegal\t-" : "lacks_memory\t-");
    else if (!at->told)
        ds_buf_printf(out, "bound\t%" PRId64, at->bound);
    else
        ds_buf_printf(out, "%s\t%" PRId64, at->accepted ? "run" : "rejected",
                      at->accepted ? at->value : NOBODY);
    put_prefix(s, at->depth, full, out);
    ++*n;
    return DS_OK;
}

/* Children lie in the odometer's order, so a walk in depth meets regions in that order. */
static ds_status put_regions(search *s, ds_candidate *full, uint64_t *n, ds_buf *out,
                             ds_error *err) {
    DS_VEC(uint32_t) todo = {0};
    ds_status status = DS_OK;
    DS_HPUSH(&todo, 0u);
    while (todo.n && status == DS_OK) {
        uint32_t index = todo.at[--todo.n];
        const node *at = &s->nodes.at[index];
        bool expanded = at->first_child > 0;
        for (uint32_t i = at->n_children; i-- > 0;) DS_HPUSH(&todo, at->first_child + i);
        if (!expanded) status = put_region(s, index, full, n, out, err);
    }
    free(todo.at);
    return status;
}

ds_status ds_bound_certificate(ds_method *method, const char *source, const char *settings,
                               ds_buf *out, ds_error *err) {
    search *s = (search *)method;
    if (!s->proved)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "the sweep was stopped before its best candidate was proved: there is "
                            "no certificate");
    ds_arena arena;
    ds_arena_init(&arena);
    ds_candidate full = ds_candidate_new(s->space, &arena);
    ds_buf regions = {0}, cells[2] = {{0}};
    uint64_t n = 0;
    ds_certificate_put_cell(source, &cells[0]);
    ds_certificate_put_cell(settings, &cells[1]);
    ds_status status = put_regions(s, &full, &n, &regions, err);
    ds_buf_printf(
        out,
        "distsim certificate 1\nsource\t%s\nsettings\t%s\ncontent\t%016" PRIx64 "\nobjective\t%s\n",
        cells[0].text, cells[1].text, s->source->content, ds_metric_at(s->objective.what)->sweep);
    ds_buf_deinit(&cells[0]);
    ds_buf_deinit(&cells[1]);
    if (s->best == INT64_MAX) {
        ds_buf_put(out, "incumbent\t-\t-\n");
    } else {
        ds_buf_printf(out, "incumbent\t%" PRId64 "\t%016" PRIx64, s->best,
                      s->nodes.at[s->best_node].hash);
        read_prefix(s, s->best_node, full.at);
        put_prefix(s, s->n_dims, &full, out);
    }
    ds_buf_printf(out, "regions\t%" PRIu64 "\n%send\n", n, regions.text ? regions.text : "");
    ds_buf_deinit(&regions);
    ds_arena_deinit(&arena);
    return status;
}
