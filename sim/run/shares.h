/* dp_shares = time, and shares = time of groups: the parts of a batch with which unequal replicas
 * simulate fastest.
 *
 * As with a cut by time (balance.h), the caller of the passes finds the parts before the passes
 * run: ds_simulate does so by itself, other callers call ds_simulate_settings. The parts become the
 * scenario's dp_shares or shares, and the passes read the parts as if the scenario's text gave numbers. */
#ifndef DS_RUN_SHARES_H
#define DS_RUN_SHARES_H

#include "sim/run/run.h"

/* Simulations of one search at most, of dp_shares or of a group; each costs as much as a run, and two results are in memory. */
#define DS_SHARES_MAX_RUNS 14

/* Deals n_samples out to n replicas, at least 1 to each, so that the largest of fixed_i + each_i *
 * parts_i is least; where a replica's part does not change the largest, the sample goes to the
 * replica that ends first (of equals the first). each_i > 0, n_samples >= n. O(n_samples · n) at
 * worst. */
void ds_shares_choose(const double *fixed, const double *each, uint32_t n, int64_t n_samples,
                      int64_t *parts);

/* Does the scenario of a verified, bound unit ask for parts that have not been found: a model with
 * dp > 1 and dp_shares = time, or a group with shares = time?
 *
 * The best parts are written into the scenario of source->unit as dp_shares or shares. All begin with equal parts; then dp_shares are searched, and one group
 * after another, while the others keep their parts. The first simulation has parts as equal as possible. A replica's time is the
 * compute of its busiest device: proportional to the part at first, then a line through the last
 * two simulated parts. The best parts for these times are simulated in turn, until parts come again
 * or half of the simulations are made. The constant of a replica's line delays other replicas only
 * where the constant comes before the replicas meet. So golden section then searches, from none to
 * all, for the share of the constants that counts. The fastest simulated parts win, parts that fit
 * into memory before others, of equals the first. Errors: those of ds_simulate for the equal parts;
 * DS_ERR_VALUE for fewer samples in a microbatch than replicas, or if no input gives the number of
 * samples. */
bool ds_shares_wanted(const ds_binding *source);

#endif
