/* Making a failing random model smaller: one thing after the other is made simpler, and stays so if
 * the model still fails, until nothing can be. Large things come first. */
#include "tests/support/generate/random_model.h"

#include <string.h>

#define MAX_TRIED 4000u

typedef struct shrinker {
    random_model *m;
    model_fails fails;
    void *context;
    uint32_t tried;
    bool changed;
} shrinker;

/* Takes `next` if it is another model and fails too. */
static bool attempt(shrinker *s, const random_model *next) {
    if (memcmp(next, s->m, sizeof *next) == 0) return false;
    s->tried++;
    if (!s->fails(s->context, next)) return false;
    *s->m = *next;
    s->changed = true;
    return true;
}

static void drop_parts(shrinker *s) {
    for (uint32_t p = 0; p < s->m->n_parts;) {
        random_model next = *s->m;
        next.n_parts--;
        for (uint32_t i = p; i < next.n_parts; i++) next.parts[i] = next.parts[i + 1];
        memset(&next.parts[next.n_parts], 0, sizeof next.parts[0]);
        if (!attempt(s, &next)) p++;
    }
}

static void drop_blocks(shrinker *s, uint32_t p) {
    for (uint32_t i = 0; i < s->m->parts[p].n;) {
        random_model next = *s->m;
        random_part *part = &next.parts[p];
        part->n--;
        for (uint32_t k = i; k < part->n; k++) part->blocks[k] = part->blocks[k + 1];
        memset(&part->blocks[part->n], 0, sizeof part->blocks[0]);
        if (!attempt(s, &next)) i++;
    }
}

#define TRY(s, place, value)                                                                       \
    do {                                                                                           \
        random_model next = *(s)->m;                                                               \
        next.place = value;                                                                        \
        attempt(s, &next);                                                                         \
    } while (0)

static void simplify_block(shrinker *s, uint32_t p, uint32_t i) {
    TRY(s, parts[p].blocks[i].kind, BLOCK_ACTIVATION);
    TRY(s, parts[p].blocks[i].variant, 0);
    for (uint32_t bit = 0; bit < 8; bit++)
        TRY(s, parts[p].blocks[i].variant,
            (uint8_t)(s->m->parts[p].blocks[i].variant & ~(1u << bit)));
    if (s->m->parts[p].blocks[i].weights > 1) TRY(s, parts[p].blocks[i].weights, 1);
    TRY(s, parts[p].blocks[i].weights, 0);
    TRY(s, parts[p].blocks[i].values, 0);
}

static void simplify_part(shrinker *s, uint32_t p) {
    TRY(s, parts[p].form, PART_PLAIN);
    if (s->m->parts[p].form > PART_LOOP) TRY(s, parts[p].form, PART_LOOP);
    if (s->m->parts[p].form == PART_LOOP_CALL) TRY(s, parts[p].form, PART_CALL);
    while (s->m->parts[p].turns > 1) {
        uint8_t turns = s->m->parts[p].turns;
        TRY(s, parts[p].turns, (uint8_t)(turns - 1));
        if (s->m->parts[p].turns == turns) break;
    }
    if (s->m->parts[p].values > 1) TRY(s, parts[p].values, 1);
    TRY(s, parts[p].values, 0);
    for (uint32_t i = 0; i < s->m->parts[p].n; i++) simplify_block(s, p, i);
}

static void simplify_knobs(shrinker *s) {
    static const int small[] = {2, 3, 4};
    test_plan one = plan_of_one();
    one.at[KNOB_OPTIMIZER] = 0; /* gradients alone are less still */
    TRY(s, plan.n_layers, 0);
    TRY(s, plan.widths, WIDTHS_ALIKE);
    TRY(s, plan.uneven, 0);
    for (uint32_t k = 0; k < KNOB_COUNT; k++) {
        TRY(s, plan.at[k], one.at[k]);
        for (uint32_t i = 0; i < 3; i++)
            if (s->m->plan.at[k] > small[i] && one.at[k] == 1) TRY(s, plan.at[k], small[i]);
    }
}

/* Sizes down to 1. */
static void simplify_sizes(shrinker *s) {
    for (uint32_t k = 0; k < SIZE_COUNT; k++)
        for (int size = k == SIZE_HEAD_DIM ? 2 : 1; size < s->m->size[k]; size++) { /* pairs turn */
            random_model next = *s->m;
            next.size[k] = size;
            if (attempt(s, &next)) break;
        }
}

static void simplify_ends(shrinker *s) {
    TRY(s, loss, LOSS_SQUARES);
    TRY(s, ids, false);
    TRY(s, extra, false);
    TRY(s, half, false);
    if (s->m->hints > 1) TRY(s, hints, 1);
    TRY(s, hints, 0);
}

uint32_t random_model_shrink(random_model *m, model_fails fails, void *context) {
    shrinker s = {.m = m, .fails = fails, .context = context, .changed = true};
    while (s.changed && s.tried < MAX_TRIED) {
        s.changed = false;
        drop_parts(&s);
        for (uint32_t p = 0; p < m->n_parts; p++) drop_blocks(&s, p);
        simplify_knobs(&s);
        for (uint32_t p = 0; p < m->n_parts; p++) simplify_part(&s, p);
        simplify_ends(&s);
        simplify_sizes(&s);
    }
    return s.tried;
}
