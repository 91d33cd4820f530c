/* What the names of a sweep block stand for; the block itself is a ds_sweep (ir/core/ir.h). */
#ifndef DS_STRATEGY_SWEEP_H
#define DS_STRATEGY_SWEEP_H

#include "ir/strategy/scenario.h"

/* X(name, may be an objective, what it is). The first two are known before a candidate is
 * simulated, the others only then. */
#define DS_SWEEP_DERIVED(X)                                                                        \
    X(world, false, "devices of the topology that the scenario runs on")                           \
    X(cost_per_hour, true, "price of a device and hour times the devices of the topology")         \
    X(step_time, true, "seconds")                                                                  \
    X(throughput, true, "samples (without a batch: steps) per second")                             \
    X(cost, true, "price of a sample: cost_per_hour / 3600 / throughput")                          \
    X(memory, true, "the same as peak_memory")                                                     \
    X(peak_memory, true, "bytes of the fullest device")                                            \
    X(fits, false, "1 if every device holds what it needs, else 0")                                \
    X(mfu, true, "model FLOPs utilisation, from 0 to 1")                                           \
    X(bubble, true, "share of the devices' time in which they are idle")

typedef enum ds_derived {
#define DS_X(name, is_objective, doc) DS_DERIVED_##name,
    DS_SWEEP_DERIVED(DS_X)
#undef DS_X
        DS_DERIVED_COUNT
} ds_derived;
#define DS_DERIVED_FIRST_SIMULATED DS_DERIVED_step_time

/* By name; DS_DERIVED_COUNT if it is none. */
ds_derived ds_derived_by_name(const char *name);
const char *ds_derived_name(ds_derived derived);
bool ds_derived_is_objective(ds_derived derived);

/* Can expressions of a sweep name the knob? */
bool ds_sweep_sees_knob(const ds_knob *knob);

/* The root module's sweep; NULL if it has none. */
const ds_sweep *ds_unit_sweep(const ds_unit *unit);
/* Is the option on? They are off unless the sweep says so; NULL has none. */
bool ds_sweep_is_on(const ds_sweep *sweep, const char *option);

/* What a dimension varies: a param, or a knob of the scenario. "zero" is the param of that name, if
 * there is one, else the knob of `strategy`, else of `train`, else of the scenario itself;
 * "strategy.zero" is the knob, "gpt.layers" the param of an import. */
typedef struct ds_sweep_target {
    const ds_module *module; /* of a param; NULL: a knob */
    uint32_t param;
    const ds_knob *knob;
    const char *bare; /* its name in expressions; interned */
} ds_sweep_target;

/* False if there is nothing of that name. O(params + knobs). */
bool ds_sweep_find(ds_unit *unit, const char *name, ds_sweep_target *out);

#endif
