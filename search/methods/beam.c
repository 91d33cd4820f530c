/* Beam search.
 *
 * A pass begins with the empty prefix, once for each of the `width` best known candidates, and sets
 * one dimension a stage. Each prefix in the beam has an example, a candidate that begins with the
 * prefix. A child that agrees with its parent's example has the same example. Any other child gets
 * a new example, which agrees with the parent's wherever conditions allow, and is simulated. So a
 * stage asks "what if this knob were another one", for `width` different answers to the knobs
 * before. Two rules keep the beam from being one candidate sixteen times. The best prefix of each
 * answer stays, since an answer may need another answer to a later knob to be good. Of prefixes
 * with equal scores one stays, since mostly such prefixes differ in a knob without effect.
 *
 * The first pass begins with the best of a few random candidates. */
#include "search/methods/beam.h"

#include "search/methods/internal.h"

#include <stdlib.h>
#include <string.h>

enum { DEFAULT_WIDTH = 16, MAX_PASSES = 8, DRAWS = 4 /* for each prefix, at the start */ };

typedef struct prefix {
    ds_choice *at;    /* the first `depth` of a pass count */
    uint32_t example; /* place of a candidate that begins so */
    int64_t bound;
    double score; /* of the example, once known */
    uint32_t place;
    bool tie, kept; /* as good as the prefix before; in the beam */
} prefix;

typedef DS_VEC(prefix) prefixes;

typedef struct beam {
    ds_method method;
    ds_memos memos;
    ds_space *space;
    ds_bounds *bounds; /* NULL: no bounds for this objective */
    uint64_t seed;
    uint32_t width, n_dims, depth, pass;
    double best_before; /* the best score before the pass */
    prefixes kept, children;
    ds_candidate candidate;
    bool ended;
} beam;

/* ---- bounds ---- */

static ds_status bound_of(beam *b, const ds_choice *at, uint32_t depth, int64_t *out,
                          ds_error *err) {
    ds_bound_region region;
    *out = 0;
    if (!b->bounds) return DS_OK;
    DS_TRY(ds_bounds_region(b->bounds, at, depth, &region, err));
    int64_t peak = ds_bound_peak_bytes(&region);
    if (region.capacity_bytes && peak > region.capacity_bytes)
        *out = INT64_MAX;
    else
        *out = b->memos.objective.what == DS_METRIC_step_time ? ds_bound_step_ps(&region) : peak;
    return DS_OK;
}

static bool is_hopeless(const beam *b, int64_t bound) {
    if (!b->bounds) return false;
    double unit = b->memos.objective.what == DS_METRIC_step_time ? 1e-12 : 1;
    return bound == INT64_MAX || (double)bound * unit * (1 - 1e-12) > b->memos.best;
}

/* ---- stages ---- */

static ds_status add_child(beam *b, const prefix *parent, const ds_choice *choice, ds_error *err) {
    uint32_t dim = b->depth;
    const ds_choice *example = b->memos.all.at[parent->example].at;
    prefix child = {.at = DS_NEW_N(&b->memos.arena, ds_choice, b->n_dims),
                    .example = parent->example};
    bool found = true;
    memcpy(child.at, parent->at, b->n_dims * sizeof *child.at);
    child.at[dim] = *choice;
    DS_TRY(bound_of(b, child.at, dim + 1, &child.bound, err));
    if (!ds_choice_same(b->space, dim, choice, &example[dim])) {
        if (is_hopeless(b, child.bound)) return DS_OK;
        memcpy(b->candidate.at, child.at, b->n_dims * sizeof *child.at);
        uint64_t seed = ds_hash_mix(b->seed, b->memos.all.n);
        DS_TRY(ds_space_complete(b->space, &b->candidate, dim + 1, example, seed, &found, err));
        if (found) child.example = ds_memos_ask(&b->memos, b->space, &b->candidate);
    }
    if (found) DS_HPUSH(&b->children, child);
    return DS_OK;
}

static ds_status ask_children(beam *b, ds_error *err) {
    ds_status status = DS_OK;
    b->children.n = 0;
    for (uint32_t i = 0; i < b->kept.n && status == DS_OK; i++) {
        ds_arena scratch;
        ds_choice *choices;
        uint32_t n = 0;
        ds_arena_init(&scratch);
        const prefix parent = b->kept.at[i];
        status = ds_space_children(b->space, parent.at, b->depth, &scratch, &choices, &n, err);
        for (uint32_t k = 0; k < n && status == DS_OK; k++)
            status = add_child(b, &parent, &choices[k], err);
        ds_arena_deinit(&scratch);
    }
    b->depth++;
    return status;
}

/* Best first; of equals the lower bound first, then the earlier prefix. */
static int best_first(const void *x, const void *y) {
    const prefix *p = x, *q = y;
    if (p->score < q->score || p->score > q->score) return p->score < q->score ? -1 : 1;
    if (p->bound != q->bound) return p->bound < q->bound ? -1 : 1;
    return p->place < q->place ? -1 : 1;
}

static void sort(beam *b, prefixes *all) {
    for (uint32_t i = 0; i < all->n; i++) {
        prefix *p = &all->at[i];
        p->score = b->memos.all.at[p->example].score;
        p->place = i;
        p->kept = false;
    }
    if (all->n) qsort(all->at, all->n, sizeof *all->at, best_first);
    for (uint32_t i = 0; i < all->n; i++)
        all->at[i].tie = i > 0 && !(all->at[i].score > all->at[i - 1].score);
}

static void keep(beam *b, prefix *p) {
    p->kept = true;
    DS_HPUSH(&b->kept, *p);
}

/* Does no prefix in the beam have this value of the dimension that was set last? */
static bool is_new_value(const beam *b, const prefix *p) {
    uint32_t dim = b->depth - 1;
    for (uint32_t i = 0; i < b->kept.n; i++)
        if (ds_choice_same(b->space, dim, &p->at[dim], &b->kept.at[i].at[dim])) return false;
    return true;
}

/* The best `width` of `all` become the beam: the best prefix of each value, in at most half of the
 * beam, then prefixes without a tie, then the others. */
static void keep_best(beam *b, prefixes *all) {
    sort(b, all);
    b->kept.n = 0;
    for (uint32_t i = 0; b->depth && i < all->n && b->kept.n < (b->width + 1) / 2; i++)
        if (is_new_value(b, &all->at[i])) keep(b, &all->at[i]);
    for (int ties = 0; ties < 2; ties++)
        for (uint32_t i = 0; i < all->n && b->kept.n < b->width; i++)
            if (!all->at[i].kept && all->at[i].tie == ties) keep(b, &all->at[i]);
}

/* A pass that brought something is followed by another. */
static void begin_pass(beam *b) {
    bool better = b->pass == 0 || b->memos.best < b->best_before;
    b->kept.n = b->children.n = b->depth = 0;
    if (!better || b->pass++ == MAX_PASSES || !b->memos.all.n) {
        b->ended = true;
        return;
    }
    b->best_before = b->memos.best;
    ds_choice *none = DS_NEW_N(&b->memos.arena, ds_choice, b->n_dims);
    memset(none, 0, b->n_dims * sizeof *none);
    for (uint32_t i = 0; i < b->memos.all.n; i++)
        DS_HPUSH(&b->children, ((prefix){.at = none, .example = i}));
    keep_best(b, &b->children);
}

static ds_status ask_first(beam *b, ds_error *err) {
    for (uint32_t i = 0; i < DRAWS * b->width; i++) {
        bool found;
        DS_TRY(ds_space_draw(b->space, b->seed, i, &b->candidate, &found, err));
        if (!found) break; /* after a million draws: conditions reject all but a few */
        ds_memos_ask(&b->memos, b->space, &b->candidate);
    }
    b->depth = b->n_dims;
    return DS_OK;
}

static ds_status advance(beam *b, ds_error *err) {
    if (!b->memos.all.n) {
        DS_TRY(ask_first(b, err));
        b->ended = !b->memos.all.n;
        return DS_OK;
    }
    if (b->depth < b->n_dims && b->depth > 0) keep_best(b, &b->children);
    if (b->depth == b->n_dims) begin_pass(b);
    return b->ended ? DS_OK : ask_children(b, err);
}

/* ---- the method ---- */

static ds_status next(ds_method *method, ds_candidate *candidate, bool *found, ds_error *err) {
    beam *b = (beam *)method;
    *found = ds_memos_serve(&b->memos, b->space, candidate);
    while (!*found && !b->ended && ds_memos_are_told(&b->memos)) {
        DS_TRY(advance(b, err));
        *found = ds_memos_serve(&b->memos, b->space, candidate);
    }
    return DS_OK;
}

static void tell(ds_method *method, const ds_candidate *candidate, const ds_outcome *outcome,
                 bool accepted) {
    (void)candidate;
    ds_memos_tell(&((beam *)method)->memos, outcome, accepted);
}

/* Most searches take two or three passes. */
static double progress(const ds_method *method) {
    const beam *b = (const beam *)method;
    if (b->ended || !b->n_dims) return 1;
    double passes = b->pass < 2 ? 3 : b->pass + 1;
    double done = b->pass ? b->pass - 1 + (double)b->depth / b->n_dims : 0;
    return done / passes;
}

static void free_beam(ds_method *method) {
    beam *b = (beam *)method;
    ds_memos_deinit(&b->memos);
    ds_bounds_free(b->bounds);
    free(b->kept.at);
    free(b->children.at);
    free(b);
}

ds_status ds_beam_new(const ds_eval_source *source, ds_space *space, uint64_t seed, uint32_t width,
                      ds_method **out, ds_error *err) {
    beam *b = ds_xcalloc(1, sizeof *b);
    const char *why;
    b->method = (ds_method){.next = next, .tell = tell, .progress = progress, .free = free_beam};
    b->space = space;
    b->seed = seed;
    b->width = width ? width : DEFAULT_WIDTH;
    b->n_dims = ds_space_n_dims(space);
    ds_memos_init(&b->memos, space);
    b->candidate = ds_candidate_new(space, &b->memos.arena);
    ds_metric_id *what = &b->memos.objective.what;
    if (*what == DS_METRIC_memory) *what = DS_METRIC_peak_bytes;
    ds_status status = DS_OK;
    if (!b->memos.objective.maximize &&
        (*what == DS_METRIC_step_time || *what == DS_METRIC_peak_bytes))
        status = ds_bounds_new(source, space, &b->bounds, &why, err);
    *out = &b->method;
    if (status == DS_OK) return DS_OK;
    free_beam(&b->method);
    *out = NULL;
    return status;
}
