/* What the names of a sweep block stand for, but results (ir/strategy/metrics.h); the block itself
 * is a ds_sweep (ir/core/ir.h). */
#ifndef DS_STRATEGY_SWEEP_H
#define DS_STRATEGY_SWEEP_H

#include "ir/strategy/scenario.h"

/* Can expressions of a sweep name the knob? */
bool ds_sweep_sees_knob(const ds_knob *knob);

/* The root module's sweep; NULL if it has none. */
const ds_sweep *ds_unit_sweep(const ds_unit *unit);
/* Is the option on? They are off unless the sweep says so; NULL has none. */
bool ds_sweep_is_on(const ds_sweep *sweep, const char *option);

/* Does the condition hold? Its unit scales the right side of its comparison. Errors: evaluation, a
 * text as a condition. */
ds_status ds_sweep_holds(const ds_env *env, const ds_sweep_entry *entry, bool *out, ds_error *err);

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
