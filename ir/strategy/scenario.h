/* The scenario block: its entries, and how they are read.
 *
 *     scenario {
 *       program = @step                  // or: model = @mlp, on = @box
 *       train { loss = mse, optimizer = sgd }
 *       strategy { dp = dp, tp = 1, pp = 1 }
 *       profile = "V100-PCIE-16GB"
 *     }
 *
 * ir/strategy/knobs.def says which keys there are. */
#ifndef DS_STRATEGY_SCENARIO_H
#define DS_STRATEGY_SCENARIO_H

#include "ir/base/diag.h"
#include "ir/core/ir.h"
#include "ir/strategy/knobs.h"

/* The root module's scenario; NULL if it has none. */
const ds_scenario *ds_unit_scenario(const ds_unit *unit);
/* The entry of that name in a section ("" for the scenario itself); NULL if absent. */
const ds_attr *ds_scenario_find(const ds_unit *unit, const char *section, const char *name);

/* Puts an entry (its name is set here) into the scenario, in the place of one of that name if there
 * is one; a section that is missing is made. The unit must have a scenario. What was there before
 * comes back with ds_scenario_restore of a copy of *ds_unit_scenario(unit) made before: entries are
 * replaced, never written to. The unit is not verified anew. */
void ds_scenario_set(ds_unit *unit, const char *section, const char *name, ds_attr entry);
void ds_scenario_restore(ds_unit *unit, const ds_scenario *old);
/* Puts an entry, which keeps its own place, into the innermost of nested blocks ("jobs", "first",
 * "strategy"; n 0: the scenario itself); blocks that are missing are made. */
void ds_scenario_say(ds_unit *unit, const char *const *blocks, uint32_t n, const char *name,
                     ds_attr entry);

/* Does the scenario run a program as the program stands? A program with a rec has no order of its
 * own: passes make a step of the program, as of a model. */
bool ds_scenario_is_program(const ds_unit *unit);
/* `program = @f`: the function, or NULL. `model = @f` likewise, and a program with a rec. */
ds_func *ds_scenario_program_func(const ds_unit *unit);
ds_func *ds_scenario_model(const ds_unit *unit);
/* `program = @p` where @p is a per-rank program, or NULL. */
ds_program *ds_scenario_ranks(const ds_unit *unit);
/* The mesh on which values without `on` live: `mesh = @m`; else, for a program, the only mesh that
 * the root module declares; else NULL. */
ds_mesh *ds_scenario_mesh(const ds_unit *unit);
/* `on = @box`: the topology, or NULL. */
ds_topology *ds_scenario_topology(const ds_unit *unit);
/* The same; else the topology of the mesh; else the only one of the root module; else NULL. */
const ds_topology *ds_scenario_devices(const ds_unit *unit);

/* Has the scenario a train block? Without, or with `train = off`, it runs the forward pass. */
bool ds_scenario_trains(const ds_unit *unit);
/* The knob of a key without its section: of `strategy`, else of `train`, else of the scenario. A
 * scenario that does not train has `dtype` itself. NULL: no section has the key. */
const ds_knob *ds_scenario_bare_knob(const ds_unit *unit, const char *name);

/* ---- jobs (jobs.c): `jobs { train { model = @f … } other { program = @g, start = 5 ms } }` ----
 */

uint32_t ds_scenario_n_jobs(const ds_unit *unit);
/* The block of a job, in written order; its name is the job's. */
const ds_attr *ds_scenario_job(const ds_unit *unit, uint32_t job);
/* Is it a key of the scenario that each job says for itself: `model`, `mesh`, `strategy` …? */
bool ds_scenario_is_job_key(const char *name);
/* The scenario as the job alone would have it: what all jobs have in common, and what this one
 * says, without `start` and `steps`. Put it in place with ds_scenario_restore: then everything that
 * reads a scenario reads the job's. In the unit's arena. */
ds_scenario ds_scenario_of_job(ds_unit *unit, uint32_t job);
/* Puts the scenario of the job of that name in place for good. DS_ERR_NAME, with a suggestion. */
ds_status ds_scenario_choose_job(ds_unit *unit, const char *name, ds_error *err);
/* When its devices are free for it, and how many steps it takes, one after another: 0 and 1 by
 * default. Errors: evaluation, numbers out of range. */
ds_status ds_scenario_job_times(const ds_binding *binding, uint32_t job, int64_t *start_ps,
                                int64_t *steps, ds_error *err);
/* Does the scenario, or one of its jobs, say `model = @func`? */
bool ds_scenario_has_model(const ds_unit *unit, const ds_func *func);

/* Values by section and name; an absent entry leaves *out as it was. The unit must be verified.
 * Errors: evaluation, a number below the knob's minimum. */
ds_status ds_scenario_int(const ds_binding *binding, const char *section, const char *name,
                          int64_t *out, ds_error *err);
ds_status ds_scenario_real(const ds_binding *binding, const char *section, const char *name,
                           double *out, ds_error *err);
ds_status ds_scenario_text(const ds_binding *binding, const char *section, const char *name,
                           const char **out, ds_error *err);
/* true, false, on, off, or an expression such as a Boolean param or a comparison. */
ds_status ds_scenario_bool(const ds_binding *binding, const char *section, const char *name,
                           bool *out, ds_error *err);
/* A quantity of time, in ps. */
ds_status ds_scenario_ps(const ds_binding *binding, const char *section, const char *name,
                         int64_t *out, ds_error *err);
/* The items of a list entry (`profiles = ["a", "b"]`), or a single one; index < count. */
uint32_t ds_scenario_text_count(const ds_unit *unit, const char *section, const char *name);
ds_status ds_scenario_text_at(const ds_binding *binding, const char *section, const char *name,
                              uint32_t index, const char **out, ds_error *err);
ds_status ds_scenario_int_at(const ds_binding *binding, const char *section, const char *name,
                             uint32_t index, int64_t *out, ds_error *err);
/* The value of an attribute that is the value, or an item, of the section's key. */
ds_status ds_scenario_text_of(const ds_binding *binding, const ds_attr *attr, const char *section,
                              const char *name, const char **out, ds_error *err);
ds_status ds_scenario_int_of(const ds_binding *binding, const ds_attr *attr, const char *section,
                             const char *name, int64_t *out, ds_error *err);

#endif
