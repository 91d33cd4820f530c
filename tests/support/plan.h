/* Strategies for tests of the passes: a record of knobs, its text, and lists of them that cover a
 * space of knobs pair by pair. */
#ifndef DS_TEST_PLAN_H
#define DS_TEST_PLAN_H

#include "ir/base/rng.h"
#include "ir/base/str.h"

#include <stdbool.h>

typedef enum test_knob {
    KNOB_DP,
    KNOB_TP,
    KNOB_CP,
    KNOB_SP, /* 0, 1 */
    KNOB_CP_TYPE,
    KNOB_EP,
    KNOB_ZERO,
    KNOB_SHARDS, /* replicas / zero_group */
    KNOB_MICROBATCHES,
    KNOB_ORDER,
    KNOB_OPTIMIZER, /* none: gradients alone */
    KNOB_BUCKET,    /* small, or the default */
    KNOB_PREFETCH,
    KNOB_RECOMPUTE, /* none, selective, full */
    KNOB_PP,
    KNOB_SCHEDULE, /* the number of its form; said with pp > 1, as what follows */
    KNOB_VIRTUAL,  /* chunks of a stage; 0: not said */
    KNOB_BALANCE,  /* layers, flops */
    KNOB_COUNT
} test_knob;

#define MAX_CHUNKS 12

/* Stages of two widths, one after the other; the first is that of even stages. */
enum { WIDTHS_ALIKE, DP_THEN_TP, NARROW_DP, NARROW_TP, ONE_THEN_ALL, WIDTHS_COUNT };

typedef struct test_plan {
    int at[KNOB_COUNT];
    int widths; /* with pp > 1, cp = ep = 1 and one group of replicas */
    int uneven; /* dp_shares of 1 and 2 in turn, 1: the first is 2; with ep and shards 1; 0: none */
    int n_layers; /* stage_layers; 0: not said */
    int layers[MAX_CHUNKS];
} test_plan;

/* One device, sgd. */
test_plan plan_of_one(void);
int plan_world(const test_plan *plan);
/* Into how many equal parts a microbatch must divide: dp, or the sum of its shares. */
int plan_parts(const test_plan *plan);
/* What a stage has of KNOB_DP or KNOB_TP. */
int plan_width(const test_plan *plan, test_knob knob, int stage);
/* "dp=2 tp=3 zero=1": knobs that are not as in plan_of_one. */
void plan_name(const test_plan *plan, ds_buf *out);
/* A box of as many devices, the param microbatches, and the scenario of the model. `train`: what
 * else its block says ("loss = mse"), or NULL. */
void plan_scenario(const test_plan *plan, const char *model, const char *train, ds_buf *out);

/* Values that a knob may take; ends with -1. */
typedef struct test_space {
    int values[KNOB_COUNT][8];
    int max_world;
    bool (*legal)(const void *context, const test_plan *plan); /* may be NULL */
    const void *context;
} test_space;

/* Every combination that the strategy itself allows (ep divides dp cp, the world is small enough;
 * knobs that say nothing at these degrees stay at their first value). Returns how many; `out`
 * (heap) is the caller's. */
uint32_t plan_product(const test_space *space, test_plan **out);
/* Some of the product: each pair of values of two knobs that occurs in it occurs in one of these.
 * Nearly as few as can be: each is the best of many that were drawn. */
uint32_t plan_pairs(const test_space *space, test_plan **out);

#endif
