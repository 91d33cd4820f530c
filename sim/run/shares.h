/* dp_shares = time: the parts of a batch with which unequal replicas simulate fastest.
 *
 * As a cut by time (balance.h), they are found by whoever runs the passes: ds_simulate by itself,
 * other callers by ds_shares_find. They then are the scenario's dp_shares, and all that comes after
 * is as if the numbers had been written there. */
#ifndef DS_RUN_SHARES_H
#define DS_RUN_SHARES_H

#include "sim/run/run.h"

/* Simulations of one search at most; each costs what a run costs, and two results are in memory. */
#define DS_SHARES_MAX_RUNS 14

/* Does the scenario of a verified, bound unit ask for parts that have not been found: a model with
 * dp > 1 and dp_shares = time? */
bool ds_shares_wanted(const ds_binding *source);

/* Parts of `n_samples` for n replicas, each at least 1, of which sample counts x_i take
 * fixed_i + each_i * x_i: those with the least maximum, as few as can be where it does not matter
 * (of equals the first). each_i > 0, n_samples >= n. O(n_samples · n) at worst. */
void ds_shares_choose(const double *fixed, const double *each, uint32_t n, int64_t n_samples,
                      int64_t *parts);

/* Finds the parts and puts them into the scenario of source->unit as dp_shares; does nothing where
 * they are not wanted. The first simulation is of parts as equal as can be. A replica's time is the
 * compute of its busiest device; taken as proportional to its part, later, once two parts of it
 * have been simulated, as a line through the last two. For these times the best parts are
 * simulated, and so on until parts come again or half of the simulations are made. What of a
 * replica's line does not depend on its part delays the others only where it comes before they
 * meet, so the share of it that counts is searched next, from none to all, by golden section. The
 * fastest that was simulated is taken (those that
 * fit into memory before others; of equals the first). Errors: those of ds_simulate for the equal
 * parts; DS_ERR_VALUE for fewer samples in a microbatch than replicas, or if no input says how many
 * there are. */
ds_status ds_shares_find(const ds_binding *source, const ds_profiles *profiles,
                         const ds_sim_options *options, ds_error *err);

#endif
