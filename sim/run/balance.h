/* balance = time: the layers of a pipeline's chunks that simulate fastest.
 *
 * A pass cannot simulate, so whoever runs passes on a scenario has the cut found first: ds_simulate
 * does so by itself, other callers by ds_balance_find. It is then the scenario's stage_layers, and
 * all that comes after is as if these had been written there. */
#ifndef DS_RUN_BALANCE_H
#define DS_RUN_BALANCE_H

#include "sim/run/run.h"

/* Simulations of one search at most; each costs what a run costs, and two results are in memory. */
#define DS_BALANCE_MAX_RUNS 6

/* Does the scenario of a verified, bound unit ask for a cut by time that has not been found: a
 * model with pp > 1, balance = time and no stage_layers? */
bool ds_balance_wanted(const ds_binding *source);

/* Finds the cut and puts it into the scenario of source->unit as stage_layers; does nothing where
 * it is not wanted. The first simulation is of layers shared out evenly. From it come the time of a
 * layer and what chunks have beside layers (embedding, head and loss), and from these the cut that
 * is best by the schedule's timeline; that is simulated, its times correct the first ones, and so
 * on until a cut comes again. The fastest that was simulated is taken (those that fit into memory
 * before others; of equals the first). Errors: those of ds_simulate for the even cut;
 * DS_ERR_UNSUPPORTED for a model without loops. */
ds_status ds_balance_find(const ds_binding *source, const ds_profiles *profiles,
                          const ds_sim_options *options, ds_error *err);

/* Where a pipeline's stages differ by more than a tenth in the time that they work on a microbatch,
 * simulates what balance = time would do and keeps that as result->cut, if it is faster. Nothing
 * for a cut that was found by time. The source's scenario is changed meanwhile, afterwards it is as
 * before. */
void ds_balance_advise(ds_result *result, const ds_profiles *profiles,
                       const ds_sim_options *options);

#endif
