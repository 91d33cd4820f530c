/* What a scenario asks of a run. A key that this version cannot honour is refused: a result that
 * ignores what the file says is worse than none. */
#include "sim/report/report.h"

#include "ir/lang/scenario.h"

#include <string.h>

static ds_status refuse(const ds_attr *attr, const char *why, ds_error *err) {
    return ds_error_set(err, DS_ERR_UNSUPPORTED, attr->loc, "%s", why);
}

/* `key = value` where only the first choice can be simulated. */
static ds_status only(const ds_binding *binding, const char *key, const char *can, const char *why,
                      ds_error *err) {
    const char *value = can;
    DS_TRY(ds_scenario_text(binding, "", key, &value, err));
    if (strcmp(value, can) == 0) return DS_OK;
    return refuse(ds_scenario_find(binding->unit, "", key), why, err);
}

/* Knobs of passes that this version lacks, at values that would change the program. The degrees dp,
 * tp, pp, cp, ep are the plan's to check: they must agree with the devices. */
static ds_status check_strategy(const ds_binding *binding, ds_error *err) {
    const ds_unit *unit = binding->unit;
    static const struct {
        const char *name;
        int64_t neutral;
    } numbers[] = {{"microbatches", 1}, {"virtual_stages", 1}, {"zero", 0}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        int64_t value = numbers[i].neutral;
        DS_TRY(ds_scenario_int(binding, "strategy", numbers[i].name, &value, err));
        if (value != numbers[i].neutral)
            return ds_error_set(err, DS_ERR_UNSUPPORTED,
                                ds_scenario_find(unit, "strategy", numbers[i].name)->loc,
                                "strategy %s = %lld needs passes that this version does not have; "
                                "write the step out and give it as `program = @step`",
                                numbers[i].name, (long long)value);
    }
    static const char *const unused[] = {"order", "bucket_size"};
    for (size_t i = 0; i < sizeof unused / sizeof *unused; i++)
        if (ds_scenario_find(unit, "strategy", unused[i]))
            return refuse(ds_scenario_find(unit, "strategy", unused[i]),
                          "this knob belongs to the shard pass, which this version does not have",
                          err);
    const ds_attr *schedule = ds_scenario_find(unit, "strategy", "schedule");
    const char *name = ds_attr_text(&unit->exprs, schedule);
    if (schedule && (!name || (strcmp(name, "1f1b") != 0 && strcmp(name, "gpipe") != 0)))
        return refuse(
            schedule,
            "schedules come with the pipeline pass, which this version does not have; with "
            "one stage and one microbatch \"1f1b\" and \"gpipe\" are the same",
            err);
    bool sp = false;
    const char *recompute = "none";
    DS_TRY(ds_scenario_bool(binding, "strategy", "sp", &sp, err));
    DS_TRY(ds_scenario_text(binding, "strategy", "recompute", &recompute, err));
    if (sp)
        return refuse(ds_scenario_find(unit, "strategy", "sp"),
                      "sequence parallelism needs the shard pass, which this version does not have",
                      err);
    if (strcmp(recompute, "none") != 0)
        return refuse(ds_scenario_find(unit, "strategy", "recompute"),
                      "recomputation needs a pass that this version does not have", err);
    if (ds_scenario_find(unit, "strategy", "ops"))
        return refuse(ds_scenario_find(unit, "strategy", "ops"),
                      "placements of single ops need the shard pass, which this version does not "
                      "have",
                      err);
    return DS_OK;
}

/* A program is run as it stands: nothing is trained, split or scheduled for it. */
static ds_status check_program(const ds_binding *binding, ds_error *err) {
    static const char *const keys[] = {"train", "strategy"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const ds_attr *attr = ds_scenario_find(binding->unit, "", keys[i]);
        if (attr && attr->kind == DS_ATTR_BLOCK && attr->n_items)
            return ds_error_set(err, DS_ERR_UNSUPPORTED, attr->loc,
                                "`%s` is for a `model`; a `program` runs as it is written",
                                keys[i]);
    }
    return DS_OK;
}

ds_status ds_sim_options_read(const ds_binding *binding, ds_sim_options *options, ds_error *err) {
    const char *cost = "measured";
    DS_TRY(ds_scenario_text(binding, "", "cost", &cost, err));
    if (strcmp(cost, "fitted") == 0)
        options->cost_mode = DS_COST_FITTED;
    else if (strcmp(cost, "measured") == 0)
        options->cost_mode = DS_COST_MEASURED;
    else
        return refuse(ds_scenario_find(binding->unit, "", "cost"), "`cost` is measured or fitted",
                      err);
    DS_TRY(only(binding, "network", "fluid",
                "this version simulates transfers as fluid phases only: `network = fluid`", err));
    DS_TRY(only(binding, "memory", "exact", "this version counts live bytes only: `memory = exact`",
                err));
    bool program = ds_scenario_find(binding->unit, "", "program") != NULL;
    return program ? check_program(binding, err) : check_strategy(binding, err);
}
