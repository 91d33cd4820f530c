/* balance = time: the layers of a pipeline's chunks that simulate fastest.
 *
 * A pass cannot simulate, so the caller of the passes finds the cut before the passes run:
 * ds_simulate does so by itself, other callers call ds_simulate_settings. The cut becomes the scenario's
 * stage_layers, and the passes read the cut as if the scenario's text gave one. */
#ifndef DS_RUN_BALANCE_H
#define DS_RUN_BALANCE_H

#include "sim/run/run.h"

/* Simulations of one search at most; each costs as much as a run, and two results are in memory. */
#define DS_BALANCE_MAX_RUNS 6

/* Does the scenario of a verified, bound unit ask for a cut by time that has not been found: a
 * model with pp > 1, balance = time and no stage_layers?
 *
 * The best cut is written into the scenario of source->unit as stage_layers. The first simulation shares layers out evenly. Its result gives the time of a
 * layer and the time of the rest of each chunk (embedding, head and loss), and both give the cut
 * that is best by the schedule's timeline. That cut is simulated and measured in turn, until a cut
 * comes again. The fastest simulated cut wins, cuts that fit into memory before others, of equals
 * the first. Errors: those of ds_simulate for the even cut; DS_ERR_UNSUPPORTED for a model without
 * loops. */
bool ds_balance_wanted(const ds_binding *source);

/* Where the busiest stage of a pipeline works over a tenth longer than the average stage, simulates
 * balance = time and keeps the cut as result->cut if the cut is faster. Does nothing for a cut that
 * was found by time. The source's scenario changes during the call and is restored. */
void ds_balance_advise(ds_result *result, const ds_profiles *profiles,
                       const ds_sim_options *options);

#endif
