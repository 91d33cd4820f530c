/* Who sends, and what goes first: items that keep resources busy, to be over as soon as possible.
 *
 * A *sequence* is a list of (item, option); each starts when all its resources are free, after
 * those before it in the list that need them. Every schedule without needless waits is one. `order`
 * takes the best of
 *   - what `size` gives;
 *   - randomised greedy: again and again the largest set of items that do not get in each other's
 * way out of some random permutations, of equally large ones that with the least busy resources;
 *     options are drawn with a probability that falls with what their resources have had to do
 *     (arXiv 2211.05322, section 3.2);
 *   - all sequences, depth first, leaving those that cannot be better, up to MOST_NODES of them.
 * No clock: the answer is the same everywhere. It stops as soon as a bound is met: a resource that
 * items need whatever their option is busy for at least the sum of their times. */
#include "sim/coll/reshard.h"

#include "ir/base/rng.h"

#include <stdlib.h>
#include <string.h>

#define MOST_NODES        4000
#define MOST_DEPTH        24     /* items for which sequences are searched */
#define MOST_PERMUTATIONS 100    /* a round, as in the paper */
#define MOST_DRAWS        400000 /* permutations · items² */
#define SEED              UINT64_C(2211053220)

typedef struct pick {
    uint32_t item, option;
} pick;

typedef struct search {
    const ds_reshard_item *items;
    uint32_t n, n_resources;
    int64_t *free_ps; /* per resource: when it is free again */
    int64_t *load_ps; /* per resource: what it has to do */
    int64_t *must_ps; /* per resource: of the items that are left, whatever their option */
    bool *done;
    pick *now, *best;
    int64_t best_ps, bound_ps;
    uint32_t n_nodes;
    uint32_t *changed; /* depth first: resources and what they were, to go back */
    int64_t *was_ps;
} search;

static const ds_reshard_option *option_of(const search *s, pick p) {
    return &s->items[p.item].options[p.option];
}

static int64_t latest(const int64_t *of, const ds_reshard_option *o) {
    int64_t most = 0;
    for (uint32_t i = 0; i < o->n_resources; i++)
        if (of[o->resources[i]] > most) most = of[o->resources[i]];
    return most;
}

/* Starts of a sequence, and its end. */
static int64_t time_order(search *s, const pick *list, ds_reshard_slot *slots) {
    int64_t end_ps = 0;
    memset(s->free_ps, 0, s->n_resources * sizeof *s->free_ps);
    for (uint32_t i = 0; i < s->n; i++) {
        const ds_reshard_option *o = option_of(s, list[i]);
        int64_t start_ps = latest(s->free_ps, o), stop_ps = start_ps + o->ps;
        for (uint32_t k = 0; k < o->n_resources; k++) s->free_ps[o->resources[k]] = stop_ps;
        if (stop_ps > end_ps) end_ps = stop_ps;
        if (slots) slots[list[i].item] = (ds_reshard_slot){list[i].option, start_ps};
    }
    return end_ps;
}

static void keep_if_better(search *s, const pick *list) {
    int64_t end_ps = time_order(s, list, NULL);
    if (end_ps >= s->best_ps) return;
    s->best_ps = end_ps;
    memcpy(s->best, list, s->n * sizeof *list);
}

/* ---- none, size ---- */

typedef struct by_size {
    int64_t ps;
    uint32_t item;
} by_size;

static int larger_first(const void *a, const void *b) {
    const by_size *x = a, *y = b;
    if (x->ps != y->ps) return x->ps > y->ps ? -1 : 1;
    return x->item < y->item ? -1 : x->item > y->item;
}

/* The option whose resources will have least to do. */
static uint32_t least_loaded(const search *s, uint32_t item) {
    const ds_reshard_item *it = &s->items[item];
    uint32_t best = 0;
    for (uint32_t k = 1; k < it->n_options; k++) {
        int64_t one = latest(s->load_ps, &it->options[k]) + it->options[k].ps;
        if (one < latest(s->load_ps, &it->options[best]) + it->options[best].ps) best = k;
    }
    return best;
}

static void add_load(search *s, const ds_reshard_option *o) {
    for (uint32_t i = 0; i < o->n_resources; i++) s->load_ps[o->resources[i]] += o->ps;
}

static void choose_by_size(search *s) {
    by_size *sorted = ds_xcalloc(s->n, sizeof *sorted);
    for (uint32_t i = 0; i < s->n; i++) sorted[i] = (by_size){s->items[i].options[0].ps, i};
    if (s->n) qsort(sorted, s->n, sizeof *sorted, larger_first);
    for (uint32_t i = 0; i < s->n; i++) {
        pick p = {sorted[i].item, least_loaded(s, sorted[i].item)};
        add_load(s, option_of(s, p));
        s->now[p.item] = p; /* in order */
    }
    free(sorted);
}

/* ---- randomised greedy ---- */

/* An option of the item that needs no busy resource, drawn: the less its resources have had to do
 * (in thousandths of the most), the likelier; n_options: none. */
static uint32_t draw_option(const search *s, uint32_t item, const bool *busy, int64_t most_ps,
                            ds_rng *rng) {
    const ds_reshard_item *it = &s->items[item];
    uint64_t sum = 0;
    uint32_t drawn = it->n_options;
    for (uint32_t k = 0; k < it->n_options; k++) {
        const ds_reshard_option *o = &it->options[k];
        bool clear = true;
        for (uint32_t i = 0; i < o->n_resources && clear; i++) clear = !busy[o->resources[i]];
        if (!clear) continue;
        uint64_t w = (uint64_t)(most_ps - latest(s->load_ps, o)) / ((uint64_t)most_ps / 1000 + 1);
        sum += w + 1;
        if (ds_rng_below(rng, sum) <= w) drawn = k; /* with probability (w + 1) / sum */
    }
    return drawn;
}

/* One permutation: those of the items left that fit together, into `set`; how many. */
static uint32_t draw_set(const search *s, uint32_t *left, uint32_t n_left, bool *busy, pick *set,
                         int64_t most_ps, ds_rng *rng) {
    uint32_t n = 0;
    memset(busy, 0, s->n_resources * sizeof *busy);
    for (uint32_t i = 0; i < n_left; i++) {
        uint32_t j = i + (uint32_t)ds_rng_below(rng, n_left - i), item = left[j];
        left[j] = left[i];
        left[i] = item;
        uint32_t k = draw_option(s, item, busy, most_ps, rng);
        if (k == s->items[item].n_options) continue;
        const ds_reshard_option *o = &s->items[item].options[k];
        for (uint32_t r = 0; r < o->n_resources; r++) busy[o->resources[r]] = true;
        set[n++] = (pick){item, k};
    }
    return n;
}

/* What the busiest resource of the set has to do then. */
static int64_t set_load(const search *s, const pick *set, uint32_t n) {
    int64_t most = 0;
    for (uint32_t i = 0; i < n; i++) {
        const ds_reshard_option *o = option_of(s, set[i]);
        int64_t one = latest(s->load_ps, o) + o->ps;
        if (one > most) most = one;
    }
    return most;
}

static void randomised_greedy(search *s) {
    uint64_t square = (uint64_t)s->n * s->n, permutations = MOST_DRAWS / (square ? square : 1);
    if (permutations > MOST_PERMUTATIONS) permutations = MOST_PERMUTATIONS;
    if (!permutations) return;
    uint32_t *left = ds_xcalloc(s->n, sizeof *left), n_left = s->n, n_now = 0;
    bool *busy = ds_xcalloc(s->n_resources, sizeof *busy);
    pick *set = ds_xcalloc(s->n, sizeof *set), *largest = ds_xcalloc(s->n, sizeof *largest);
    ds_rng rng = {SEED};
    memset(s->load_ps, 0, s->n_resources * sizeof *s->load_ps);
    for (uint32_t i = 0; i < s->n; i++) left[i] = i;
    while (n_left) {
        uint32_t n_largest = 0;
        int64_t most_ps = 0, least_ps = 0;
        for (uint32_t r = 0; r < s->n_resources; r++)
            if (s->load_ps[r] > most_ps) most_ps = s->load_ps[r];
        for (uint64_t p = 0; p < permutations; p++) {
            uint32_t n = draw_set(s, left, n_left, busy, set, most_ps, &rng);
            int64_t ps = set_load(s, set, n);
            if (n < n_largest || (n == n_largest && ps >= least_ps)) continue;
            n_largest = n;
            least_ps = ps;
            memcpy(largest, set, n * sizeof *set);
        }
        for (uint32_t i = 0; i < n_largest; i++) {
            add_load(s, option_of(s, largest[i]));
            s->now[n_now++] = largest[i];
            s->done[largest[i].item] = true;
        }
        uint32_t kept = 0;
        for (uint32_t i = 0; i < n_left; i++)
            if (!s->done[left[i]]) left[kept++] = left[i];
        n_left = kept;
    }
    keep_if_better(s, s->now);
    memset(s->done, 0, s->n * sizeof *s->done);
    free(left);
    free(busy);
    free(set);
    free(largest);
}

/* ---- all sequences, depth first ---- */

/* Is the resource in all options of the item? */
static bool is_needed(const ds_reshard_item *it, uint32_t resource) {
    for (uint32_t k = 1; k < it->n_options; k++) {
        bool found = false;
        for (uint32_t i = 0; i < it->options[k].n_resources && !found; i++)
            found = it->options[k].resources[i] == resource;
        if (!found) return false;
    }
    return true;
}

static int64_t least_ps(const ds_reshard_item *it) {
    int64_t least = it->options[0].ps;
    for (uint32_t k = 1; k < it->n_options; k++)
        if (it->options[k].ps < least) least = it->options[k].ps;
    return least;
}

static void add_needs(search *s, uint32_t item, int sign) {
    const ds_reshard_item *it = &s->items[item];
    int64_t ps = least_ps(it) * sign;
    for (uint32_t i = 0; i < it->options[0].n_resources; i++)
        if (is_needed(it, it->options[0].resources[i]))
            s->must_ps[it->options[0].resources[i]] += ps;
}

/* No sequence that goes on from here ends before this. */
static int64_t lower_bound(const search *s, int64_t end_ps) {
    for (uint32_t r = 0; r < s->n_resources; r++)
        if (s->must_ps[r] && s->free_ps[r] + s->must_ps[r] > end_ps)
            end_ps = s->free_ps[r] + s->must_ps[r];
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->done[i]) continue;
        int64_t first = INT64_MAX;
        for (uint32_t k = 0; k < s->items[i].n_options; k++) {
            const ds_reshard_option *o = &s->items[i].options[k];
            int64_t one = latest(s->free_ps, o) + o->ps;
            if (one < first) first = one;
        }
        if (first > end_ps) end_ps = first;
    }
    return end_ps;
}

static void go_on(search *s, uint32_t depth, uint32_t n_changed, int64_t end_ps) {
    if (depth == s->n) {
        if (end_ps >= s->best_ps) return;
        s->best_ps = end_ps;
        memcpy(s->best, s->now, s->n * sizeof *s->now);
        return;
    }
    if (lower_bound(s, end_ps) >= s->best_ps) return;
    for (uint32_t item = 0; item < s->n; item++) {
        if (s->done[item]) continue;
        for (uint32_t k = 0; k < s->items[item].n_options; k++) {
            if (s->best_ps <= s->bound_ps || ++s->n_nodes > MOST_NODES) return;
            const ds_reshard_option *o = &s->items[item].options[k];
            int64_t stop_ps = latest(s->free_ps, o) + o->ps;
            uint32_t n = n_changed;
            for (uint32_t i = 0; i < o->n_resources; i++, n++) {
                s->changed[n] = o->resources[i];
                s->was_ps[n] = s->free_ps[o->resources[i]];
                s->free_ps[o->resources[i]] = stop_ps;
            }
            s->done[item] = true;
            add_needs(s, item, -1);
            s->now[depth] = (pick){item, k};
            go_on(s, depth + 1, n, stop_ps > end_ps ? stop_ps : end_ps);
            add_needs(s, item, 1);
            s->done[item] = false;
            while (n > n_changed) {
                n--;
                s->free_ps[s->changed[n]] = s->was_ps[n];
            }
        }
    }
}

static void all_sequences(search *s) {
    size_t most = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        uint32_t widest = 0;
        for (uint32_t k = 0; k < s->items[i].n_options; k++)
            if (s->items[i].options[k].n_resources > widest)
                widest = s->items[i].options[k].n_resources;
        most += widest;
    }
    s->changed = ds_xcalloc(most, sizeof *s->changed);
    s->was_ps = ds_xcalloc(most, sizeof *s->was_ps);
    memset(s->free_ps, 0, s->n_resources * sizeof *s->free_ps);
    go_on(s, 0, 0, 0);
    free(s->changed);
    free(s->was_ps);
}

int64_t ds_reshard_order(const ds_reshard_item *items, uint32_t n, uint32_t n_resources,
                         ds_reshard_balance balance, ds_reshard_slot *slots) {
    search s = {.items = items, .n = n, .n_resources = n_resources};
    s.free_ps = ds_xcalloc(n_resources, sizeof *s.free_ps);
    s.load_ps = ds_xcalloc(n_resources, sizeof *s.load_ps);
    s.must_ps = ds_xcalloc(n_resources, sizeof *s.must_ps);
    s.done = ds_xcalloc(n, sizeof *s.done);
    s.now = ds_xcalloc(n, sizeof *s.now);
    s.best = ds_xcalloc(n, sizeof *s.best);
    s.best_ps = INT64_MAX;
    for (uint32_t i = 0; i < n; i++) s.now[i] = (pick){i, 0};
    if (balance != DS_BALANCE_NONE) choose_by_size(&s);
    keep_if_better(&s, s.now);
    if (balance == DS_BALANCE_ORDER && n > 1) {
        for (uint32_t i = 0; i < n; i++) add_needs(&s, i, 1);
        memset(s.free_ps, 0, n_resources * sizeof *s.free_ps);
        s.bound_ps = lower_bound(&s, 0);
        if (s.best_ps > s.bound_ps) randomised_greedy(&s);
        if (s.best_ps > s.bound_ps && n <= MOST_DEPTH) all_sequences(&s);
    }
    int64_t end_ps = time_order(&s, s.best, slots);
    free(s.free_ps);
    free(s.load_ps);
    free(s.must_ps);
    free(s.done);
    free(s.now);
    free(s.best);
    return end_ps;
}
