/* Many runs of one plan with random durations: percentiles of the step time.
 *
 * The plan is built once, with every device by itself (ds_plan_options.unfold). A run multiplies
 * durations by factors:
 *
 *   compute task   device · straggler · compute
 *   transfer       network, for latencies, bytes to carry and the time alone
 *
 * A factor is a pure function of seed, run and owner. The owner is the device; for `compute` the
 * op's instance and the device; for `network` the transfer's instance and the lowest device that
 * takes part. So a run depends neither on other runs nor on the number of threads, and two programs
 * draw the same factors for the parts that are the same.
 *
 * Factors are 2^-32 fixed point; a duration is rounded up to ps; a factor of exactly 1 changes
 * nothing. Memory, host issue and the time of what the host keeps are as without jitter. */
#ifndef DS_RUN_MONTECARLO_H
#define DS_RUN_MONTECARLO_H

#include "ir/strategy/jitter.h"
#include "sim/engine/engine.h"

/* Order statistics: the p-th percentile of n values is the ceil(n·p/100)-th smallest. */
#define DS_PERCENTILES                                                                             \
    { 5, 50, 90, 95, 99 }
enum { DS_N_PERCENTILES = 5 };

typedef struct ds_monte_carlo {
    uint32_t n_runs;
    int64_t seed;
    int64_t *step_ps;   /* per run; heap */
    uint32_t *busiest;  /* per run: the class with the most compute; heap */
    int64_t nominal_ps; /* without jitter */
    int64_t least_ps, most_ps, mean_ps;
    double sd_ps; /* of the sample: over n - 1; 0 of a single run */
    int64_t percentile_ps[DS_N_PERCENTILES];
} ds_monte_carlo;

/* The factor at u in (0, 1), the distribution's quantile, in 2^-32. */
uint64_t ds_random_quantile_q32(const ds_random *random, double u);

/* nominal_ps: the plan's own step. threads 0: one for each processor. Errors: DS_ERR_UNSUPPORTED
 * (a plan in which one device represents several, network jitter message by message), those of
 * ds_engine_run, with the number of the first run that failed. Deterministic for any number of
 * threads. O(runs · (ds_engine_run + tasks)). */
ds_status ds_monte_carlo_run(const ds_plan *plan, const ds_jitter *jitter, int64_t nominal_ps,
                             uint32_t threads, ds_monte_carlo *out, ds_error *err);
void ds_monte_carlo_deinit(ds_monte_carlo *mc);

#endif
