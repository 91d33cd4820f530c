/* Shared by the files of sim/run; not a public header. */
#ifndef DS_RUN_INTERNAL_H
#define DS_RUN_INTERNAL_H

#include "sim/run/run.h"

/* The step that a scenario's model becomes. Errors: those of passes, with their place in the
 * source; knobs of passes that this version lacks. */
ds_status ds_run__make_step(const ds_binding *source, bool trusted, ds_model_step **out,
                            ds_error *err);
/* Plans and runs `program` or the jobs and fills *r, where only source, step and jobs are set. */
ds_status ds_run__simulate(ds_result *r, const ds_binding *program, const ds_profiles *profiles,
                           const ds_sim_options *options, const ds_plan_job *jobs, uint32_t n_jobs,
                           ds_error *err);
/* ds_simulate of a scenario with jobs. */
ds_status ds_run__jobs(const ds_binding *source, const ds_profiles *profiles,
                       const ds_sim_options *options, ds_result **out, ds_error *err);
/* ds_simulate with balance = time: writes the cut into the source's scenario (balance.c). */
ds_status ds_run__balance(const ds_binding *source, const ds_profiles *profiles,
                          const ds_sim_options *options, ds_result **out, ds_error *err);
ds_status ds_run__factors(const ds_binding *source, const ds_profiles *profiles,
                          const ds_sim_options *options, ds_result **out, ds_error *err);
/* ds_simulate with dp_shares = time: writes the parts into the source's scenario (shares.c). */
ds_status ds_run__shares(const ds_binding *source, const ds_profiles *profiles,
                         const ds_sim_options *options, ds_result **out, ds_error *err);
/* Sets result->tokens if the scenario has `tokens` (tokens.c). Errors: a schedule without turns. */
ds_status ds_run__tokens(ds_result *result, ds_error *err);

#endif
