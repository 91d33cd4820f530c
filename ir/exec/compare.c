/* Are two runs' results the same, up to the order of sums? */
#include "ir/exec/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const ds_exec_tensor *ds_exec_output(const ds_exec_result *result, const char *name) {
    ds_arena arena;
    ds_arena_init(&arena);
    const char *plain = ds_exec__plain_name(&arena, name);
    const ds_exec_tensor *found = NULL;
    for (uint32_t i = 0; i < result->outputs.n && !found; i++) {
        const ds_exec_tensor *t = &result->outputs.at[i];
        if (strcmp(ds_exec__plain_name(&arena, t->name), plain) == 0) found = t;
    }
    ds_arena_deinit(&arena);
    return found;
}

static bool same_shape(const ds_exec_tensor *a, const ds_exec_tensor *b) {
    if (a->rank != b->rank) return false;
    for (uint32_t d = 0; d < a->rank; d++)
        if (a->dims[d] != b->dims[d]) return false;
    return true;
}

/* Not a number, or infinite on one side only, is as far away as can be. */
static double distance(double a, double b) {
    if (a == b) return 0;
    double d = fabs(a - b);
    return isnan(d) ? INFINITY : d;
}

static void compare_elements(ds_exec_pair *pair, double bound) {
    for (int64_t i = 0; i < pair->a->n; i++) {
        double d = distance(pair->a->at[i], pair->b->at[i]), size = fabs(pair->a->at[i]);
        if (size > pair->max_a) pair->max_a = size;
        if (d <= pair->max_difference) continue;
        pair->max_difference = d;
        pair->at = i;
    }
    pair->equal = pair->max_difference == 0 ||
                  (isfinite(pair->max_difference) && pair->max_difference <= bound * pair->max_a);
}

typedef struct tensors {
    const ds_exec_tensor *at;
    uint32_t n;
    bool *used;
    const char **names;
} tensors;

static tensors tensors_of(ds_arena *arena, const ds_exec_tensor *at, uint32_t n) {
    tensors t = {at, n, DS_NEW_N(arena, bool, n + 1), DS_NEW_N(arena, const char *, n + 1)};
    for (uint32_t i = 0; i < n; i++) t.names[i] = ds_exec__plain_name(arena, at[i].name);
    return t;
}

static uint32_t next_unused(const tensors *t, uint32_t from) {
    while (from < t->n && t->used[from]) from++;
    return from;
}

static uint32_t by_name(const tensors *t, const char *name) {
    uint32_t i = 0;
    while (i < t->n && (t->used[i] || strcmp(t->names[i], name) != 0)) i++;
    return i;
}

/* Which of b belongs to each of a: by name, then (if `positions`) in order of what is left. */
static void pair_up(tensors *a, tensors *b, bool positions, uint32_t *partner, bool *named) {
    uint32_t left_a = 0, left_b = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        partner[i] = by_name(b, a->names[i]);
        named[i] = partner[i] < b->n;
        if (named[i]) b->used[partner[i]] = true;
        left_a += !named[i];
    }
    for (uint32_t i = 0; i < b->n; i++) left_b += !b->used[i];
    if (!positions || left_a != left_b) return;
    for (uint32_t i = 0; i < a->n; i++) {
        if (named[i]) continue;
        partner[i] = next_unused(b, 0);
        b->used[partner[i]] = true;
    }
}

static void compare_lists(ds_arena *arena, tensors a, tensors b, bool values, double bound,
                          ds_exec_pairs *out) {
    uint32_t *partner = DS_NEW_N(arena, uint32_t, a.n + 1);
    bool *named = DS_NEW_N(arena, bool, a.n + 1);
    pair_up(&a, &b, values, partner, named);
    for (uint32_t i = 0; i < a.n; i++) {
        ds_exec_pair pair = {.a = &a.at[i], .by_name = named[i]};
        if (partner[i] < b.n) pair.b = &b.at[partner[i]];
        pair.same_shape = pair.b && same_shape(pair.a, pair.b);
        if (values && pair.same_shape) compare_elements(&pair, bound);
        DS_HPUSH(out, pair);
    }
    for (uint32_t i = next_unused(&b, 0); i < b.n; i = next_unused(&b, i + 1))
        DS_HPUSH(out, ((ds_exec_pair){.b = &b.at[i]}));
}

/* A tensor that is zero but for roundings (the gradient of a key's bias in a softmax) has no digits
 * to compare: what differs by less than the roundings of the largest result is equal. */
static void forgive_roundings(ds_exec_pairs *pairs) {
    double largest = 0;
    for (uint32_t i = 0; i < pairs->n; i++)
        if (pairs->at[i].max_a > largest) largest = pairs->at[i].max_a;
    for (uint32_t i = 0; i < pairs->n; i++)
        if (pairs->at[i].same_shape && pairs->at[i].max_difference <= DS_EXEC_FLOOR * largest)
            pairs->at[i].equal = true;
}

void ds_exec_compare(const ds_exec_result *a, const ds_exec_result *b, double bound,
                     ds_exec_comparison *out) {
    ds_arena arena;
    ds_arena_init(&arena);
    *out = (ds_exec_comparison){.equal = true, .same_inputs = true};
    compare_lists(&arena, tensors_of(&arena, a->outputs.at, a->outputs.n),
                  tensors_of(&arena, b->outputs.at, b->outputs.n), true, bound, &out->outputs);
    if (bound > 0) forgive_roundings(&out->outputs);
    compare_lists(&arena, tensors_of(&arena, a->inputs.at, a->inputs.n),
                  tensors_of(&arena, b->inputs.at, b->inputs.n), false, bound, &out->inputs);
    for (uint32_t i = 0; i < out->outputs.n; i++)
        out->equal = out->equal && out->outputs.at[i].equal;
    for (uint32_t i = 0; i < out->inputs.n; i++)
        out->same_inputs = out->same_inputs && out->inputs.at[i].same_shape;
    ds_arena_deinit(&arena);
}

void ds_exec_comparison_deinit(ds_exec_comparison *comparison) {
    free(comparison->outputs.at);
    free(comparison->inputs.at);
    *comparison = (ds_exec_comparison){0};
}
