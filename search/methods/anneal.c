/* Chains that wander from candidate to candidate.
 *
 * All chains ask for one candidate a round; a step to a known candidate is decided at once, without
 * asking. A draw is a function of (seed, chain, step), so the search depends on results alone. */
#include "search/methods/anneal.h"

#include "ir/base/rng.h"
#include "search/methods/internal.h"

#include <stdlib.h>
#include <string.h>

enum {
    N_CHAINS = 16,
    MAX_KNOWN = 200, /* steps of a round to known candidates */
    LEAST = 64       /* candidates before mcmc may end */
};

static const double T_FIRST = 0.5, T_MCMC = 0.05, HALVINGS = 8.965784284662087; /* log2(500) */

typedef struct chain {
    uint32_t at, asked; /* places among the memos; UINT32_MAX: none */
    uint64_t steps;
    double scale;
} chain;

typedef struct anneal {
    ds_method method;
    ds_memos memos;
    ds_space *space;
    uint64_t seed, n;
    bool mcmc, begun, ended;
    uint32_t n_dims;
    chain chains[N_CHAINS];
    ds_candidate candidate;
} anneal;

enum { DRAW_DIM, DRAW_VALUE, DRAW_REST, DRAW_ACCEPT };

static uint64_t draw(const anneal *a, uint32_t c, uint64_t what) {
    return ds_rng_at(a->seed, c, a->chains[c].steps, what);
}

/* 2^x to 1e-7 by its Taylor series on [0, 1): sums, products and quotients give the same bits
 * everywhere, exp does not. */
static double power_of_two(double x) {
    double whole = floor(x), y = (x - whole) * 0.69314718055994531, term = 1, sum = 1;
    for (int i = 1; i < 12; i++) {
        term *= y / i;
        sum += term;
    }
    return whole < -1000 ? 0 : ldexp(sum, (int)whole);
}

/* ---- steps ---- */

static double temperature(const anneal *a, const chain *c) {
    if (a->mcmc) return T_MCMC;
    double share = (double)c->steps / ((double)a->n / N_CHAINS + 1);
    if (share > 1) share = 1;
    return T_FIRST * power_of_two(-share * HALVINGS);
}

static void decide(anneal *a, uint32_t index, uint32_t to) {
    chain *c = &a->chains[index];
    double now = a->memos.all.at[c->at].score, then = a->memos.all.at[to].score;
    bool take = then <= now;
    if (!(c->scale > 0) && then < INFINITY) c->scale = fabs(then);
    if (!take && then < INFINITY && c->scale > 0) {
        double x = (now - then) / (temperature(a, c) * c->scale);
        double u = ds_rng_uniform_at(a->seed, index, c->steps, DRAW_ACCEPT);
        take = u < power_of_two(x * 1.4426950408889634);
    }
    if (take) c->at = to;
    c->steps++;
}

/* The neighbour that the chain's next step leads to; UINT32_MAX: no neighbour. */
static ds_status propose(anneal *a, uint32_t index, uint32_t *out, ds_error *err) {
    const ds_choice *from = a->memos.all.at[a->chains[index].at].at;
    uint32_t dim = (uint32_t)(draw(a, index, DRAW_DIM) % a->n_dims), n, others = 0;
    ds_choice *choices;
    ds_arena scratch;
    bool found = false;
    ds_arena_init(&scratch);
    memcpy(a->candidate.at, from, a->n_dims * sizeof *from);
    ds_status status = ds_space_children(a->space, from, dim, &scratch, &choices, &n, err);
    for (uint32_t i = 0; status == DS_OK && i < n; i++)
        if (!ds_choice_same(a->space, dim, &choices[i], &from[dim])) choices[others++] = choices[i];
    if (others) {
        a->candidate.at[dim] = choices[draw(a, index, DRAW_VALUE) % others];
        status = ds_space_complete(a->space, &a->candidate, dim + 1, from,
                                   draw(a, index, DRAW_REST), &found, err);
    }
    ds_arena_deinit(&scratch);
    *out = UINT32_MAX;
    if (status == DS_OK && found) *out = ds_memos_ask(&a->memos, a->space, &a->candidate);
    return status;
}

static ds_status walk_chain(anneal *a, uint32_t index, ds_error *err) {
    chain *c = &a->chains[index];
    if (c->asked != UINT32_MAX) decide(a, index, c->asked);
    c->asked = UINT32_MAX;
    for (int i = 0; i < MAX_KNOWN && c->asked == UINT32_MAX; i++) {
        uint32_t to;
        DS_TRY(propose(a, index, &to, err));
        if (to == UINT32_MAX)
            c->steps++;
        else if (to < a->memos.told)
            decide(a, index, to);
        else
            c->asked = to;
    }
    return DS_OK;
}

static ds_status begin_chains(anneal *a, ds_error *err) {
    a->begun = true;
    for (uint32_t i = 0; i < N_CHAINS; i++) {
        bool found;
        DS_TRY(ds_space_draw(a->space, a->seed, i, &a->candidate, &found, err));
        a->ended = !found;
        if (!found) return DS_OK;
        a->chains[i].at = ds_memos_ask(&a->memos, a->space, &a->candidate);
        a->chains[i].asked = UINT32_MAX;
    }
    return DS_OK;
}

static ds_status make_round(anneal *a, ds_error *err) {
    if (!a->begun) return begin_chains(a, err);
    uint32_t n = a->memos.all.n, best = a->memos.best_at;
    bool stuck = a->mcmc && n >= LEAST && best != UINT32_MAX && n - best > n / 2;
    for (uint32_t i = 0; i < N_CHAINS; i++) {
        chain *c = &a->chains[i];
        double score = a->memos.all.at[c->at].score;
        if (!(c->scale > 0) && score < INFINITY) c->scale = fabs(score);
        if (!stuck) DS_TRY(walk_chain(a, i, err));
    }
    a->ended = ds_memos_are_told(&a->memos);
    return DS_OK;
}

/* ---- the method ---- */

static ds_status next(ds_method *method, ds_candidate *candidate, bool *found, ds_error *err) {
    anneal *a = (anneal *)method;
    *found = ds_memos_serve(&a->memos, a->space, candidate);
    if (*found || a->ended || !ds_memos_are_told(&a->memos)) return DS_OK;
    DS_TRY(make_round(a, err));
    *found = ds_memos_serve(&a->memos, a->space, candidate);
    return DS_OK;
}

static void tell(ds_method *method, const ds_candidate *candidate, const ds_outcome *outcome,
                 bool accepted) {
    (void)candidate;
    ds_memos_tell(&((anneal *)method)->memos, outcome, accepted);
}

static double progress(const ds_method *method) {
    const anneal *a = (const anneal *)method;
    return a->ended ? 1 : a->n ? (double)a->memos.told / (double)a->n : 0;
}

static void free_anneal(ds_method *method) {
    anneal *a = (anneal *)method;
    ds_memos_deinit(&a->memos);
    free(a);
}

ds_method *ds_anneal_new(ds_space *space, uint64_t seed, bool mcmc, uint64_t n) {
    anneal *a = ds_xcalloc(1, sizeof *a);
    a->method = (ds_method){.next = next, .tell = tell, .progress = progress, .free = free_anneal};
    a->space = space;
    a->seed = seed;
    a->mcmc = mcmc;
    a->n = n;
    a->n_dims = ds_space_n_dims(space);
    ds_memos_init(&a->memos, space);
    a->candidate = ds_candidate_new(space, &a->memos.arena);
    return &a->method;
}
