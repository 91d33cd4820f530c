/* What ds_simulate says of a model under a strategy, without following every microbatch.
 *
 * A step of m microbatches runs few different things: of each chunk of the model a forward and a
 * backward item, the first, the second, one in the middle, the last; what they send; and what
 * stands behind them all. So the passes and the plan make the step of a *sibling*: the same
 * strategy, devices and microbatch size, but four microbatches. Its records, streams, flows and
 * classes are those of the whole step. From them the step of m microbatches is put together in the
 * order of its schedule, and timed and weighed exactly (README.md). */
#ifndef DS_COMPOSE_COMPOSE_H
#define DS_COMPOSE_COMPOSE_H

#include "sim/run/run.h"

/* Of a device class. compute + exposed + idle = step. */
typedef struct ds_composed_class {
    int64_t compute_ps, exposed_comm_ps, idle_ps;
    int64_t end_ps;     /* its last task's end */
    int64_t peak_bytes; /* ds_mem_class */
} ds_composed_class;

typedef struct ds_composed {
    /* What has a column or a name in sweeps (ir/strategy/metrics.def), to the last bit. */
    ds_metrics metrics;
    int64_t overhead_ps;        /* of the step, train's iteration_overhead */
    ds_composed_class *classes; /* those of the whole step, in its order */
    uint32_t n_classes;
    uint32_t critical, fullest; /* classes, as in ds_result */
    char fullest_path[96];      /* a device of that class */
    bool folded;                /* from a template: alike layers and chunks were made once */
    uint64_t n_items, n_timed;  /* items of the schedule; those that were not known already */
    uint64_t n_repeated; /* items and sends in periods that go as the ones before have gone */
} ds_composed;

void ds_composed_deinit(ds_composed *composed);

/* May this scenario be put together at all, as far as its text tells? Else *why says what stands
 * against it: jobs, a program, what is found by simulations, an unfolded or stepwise network,
 * memory other than exact. O(entries of the scenario). */
bool ds_compose_can(const ds_binding *binding, const ds_sim_options *options, const char **why);

/* What candidates of one unit have in common: templates, and what their devices' communication
 * takes. For one thread. The unit and the profiles must outlive it, and so must the ground of the
 * options that it is run with. */
typedef struct ds_composer ds_composer;
ds_composer *ds_composer_new(const ds_profiles *profiles);
void ds_composer_free(ds_composer *composer);

/* The result of ds_simulate for the same scenario, to the picosecond and byte. *out is to be
 * deinitialised if *why is NULL and the status DS_OK. If the step turns out not to be of the known
 * kind the status is DS_OK and *why says how; then nothing is known, and ds_simulate is to be
 * asked. Errors: those of the passes and the plan, for ds_simulate to say in its words. */
ds_status ds_composer_run(ds_composer *composer, const ds_binding *binding,
                          const ds_sim_options *options, ds_composed *out, const char **why,
                          ds_error *err);
/* The same, for once. */
ds_status ds_compose(const ds_binding *binding, const ds_profiles *profiles,
                     const ds_sim_options *options, ds_composed *out, const char **why,
                     ds_error *err);

#endif
