/* A found strategy against others, all simulated: data parallelism, experts' patterns, and the
 * uniform strategies dp x tp x pp that the model itself can take. */
#ifndef DS_TOOLS_PASE_CONTEST_H
#define DS_TOOLS_PASE_CONTEST_H

#include "search/pase/simulate.h"

typedef struct ds_pase_entry {
    ds_pase_time time; /* step_ps 0: no strategy runs and fits */
    char name[48];     /* "dp 4 x tp 2", "megatron tp 4" */
} ds_pase_entry;

typedef struct ds_pase_contest {
    /* By distsim's costs, all turns of a loop alike: the fastest strategy of searches with weights'
     * reductions exposed, in part, and hidden (ds_pase_costs_expose). */
    ds_pase_entry found;
    ds_pase_entry data, expert, grid;
} ds_pase_contest;

/* The scenario must have a model, `on` a topology of exactly `devices`, and a strategy, which is
 * replaced. `expert` is the best of one weird trick or of Megatron's pattern for tp = 2, 4, 8, as
 * overrides; `grid` the best of all dp x tp x pp = devices with tp up to 8 and pp up to 8, and for
 * pp > 1 microbatches of 2 pp and 4 pp in 1F1B. Strategies that the model or the memory refuses do
 * not count. Errors: those of searching and simulating `found`. O(some 40 simulations). */
ds_status ds_pase_contest_run(const ds_pase_source *source, const ds_profiles *profiles,
                              int64_t devices, ds_pase_contest *out, ds_error *err);

#endif
