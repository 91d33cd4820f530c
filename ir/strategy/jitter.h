/* `jitter`: what of a run is random, and how.
 *
 *     jitter {
 *       compute = lognormal(sigma = 0.05)                        // each op on each device
 *       device = normal(sigma = 0.02)                            // each device, once a run
 *       network = gamma(shape = 50)                              // each transfer
 *       straggler = bernoulli(probability = 0.01, factor = 2)    // each device, once a run
 *       runs = 200
 *     }
 *
 * Each draws a factor of durations. With a mean-one variable X, `min` (0 unless said) and `mean`
 * (1) a factor is min + (mean - min)·X; X is lognormal(sigma)   exp(sigma z - sigma²/2), z normal
 *     gamma(shape)       gamma of that shape and scale 1/shape: standard deviation 1/√shape
 *     exponential()      exponential
 *     weibull(shape)     weibull of that shape and scale 1/Γ(1 + 1/shape)
 *     pareto(shape)      pareto from (shape - 1)/shape on; shape above 1
 *     uniform()          uniform from 0 to 2
 * normal(sigma) is mean + sigma z, truncated below at min (so its mean is a little above where
 * that cuts much off); bernoulli(probability, factor) is `factor` with that probability, else 1. */
#ifndef DS_STRATEGY_JITTER_H
#define DS_STRATEGY_JITTER_H

#include "ir/core/ir.h"

/* X(NAME, text, the parameters that it must have beside mean and min: s sigma, k shape, b
 * probability and factor) */
#define DS_RANDOM_MAP(X)                                                                           \
    X(NORMAL, "normal", 's')                                                                       \
    X(LOGNORMAL, "lognormal", 's')                                                                 \
    X(GAMMA, "gamma", 'k')                                                                         \
    X(EXPONENTIAL, "exponential", ' ')                                                             \
    X(WEIBULL, "weibull", 'k')                                                                     \
    X(PARETO, "pareto", 'k')                                                                       \
    X(UNIFORM, "uniform", ' ')                                                                     \
    X(BERNOULLI, "bernoulli", 'b')

#define DS_JITTER_MAX_RUNS 1000000

typedef enum ds_random_kind {
    DS_RANDOM_NONE, /* always 1 */
#define DS_X(name, text, needs) DS_RANDOM_##name,
    DS_RANDOM_MAP(DS_X)
#undef DS_X
} ds_random_kind;

typedef struct ds_random {
    ds_random_kind kind;
    double mean, min;
    double sigma, shape;
    double probability, factor;
} ds_random;

typedef enum ds_jitter_source {
    DS_JITTER_COMPUTE,
    DS_JITTER_DEVICE,
    DS_JITTER_NETWORK,
    DS_JITTER_STRAGGLER,
    DS_JITTER_COUNT
} ds_jitter_source;

typedef struct ds_jitter {
    bool is_given; /* the scenario has a `jitter` */
    ds_random of[DS_JITTER_COUNT];
    ds_loc at[DS_JITTER_COUNT]; /* where they are said */
    int64_t runs;               /* 100 unless said */
    int64_t seed;               /* the scenario's, else 0 */
} ds_jitter;

/* Reads the scenario's. The unit must be verified and bound. Errors: a distribution or parameter
 * that there is not, a number out of range, a block without any distribution. */
ds_status ds_jitter_read(const ds_binding *binding, ds_jitter *out, ds_error *err);
/* One value of the block, `lognormal(sigma = 0.05)`; env NULL: names alone. */
ds_status ds_random_read(const ds_env *env, const ds_attr *attr, ds_random *out, ds_error *err);

#endif
