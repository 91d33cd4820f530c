/* The options that a scenario asks for. A value that this version cannot honour is refused: a
 * result that ignores the file is worse than none. Passes check `train` and `strategy`. */
#include "sim/run/run.h"

#include "ir/strategy/preset.h"
#include "ir/strategy/scenario.h"

#include <string.h>

static ds_status refuse(const ds_attr *attr, const char *why, ds_error *err) {
    return ds_error_set(err, DS_ERR_UNSUPPORTED, attr->loc, "%s", why);
}

/* A program runs as written: no pass trains, splits or schedules a program. */
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
    const char *cost = options->cost_mode == DS_COST_FITTED ? "fitted" : "measured";
    DS_TRY(ds_scenario_text(binding, "", "cost", &cost, err));
    if (strcmp(cost, "fitted") == 0)
        options->cost_mode = DS_COST_FITTED;
    else if (strcmp(cost, "measured") == 0)
        options->cost_mode = DS_COST_MEASURED;
    else
        return refuse(ds_scenario_find(binding->unit, "", "cost"), "`cost` is measured or fitted",
                      err);
    const char *network = options->stepwise ? "stepwise" : "fluid";
    DS_TRY(ds_scenario_text(binding, "", "network", &network, err));
    options->stepwise = strcmp(network, "stepwise") == 0;
    const char *memory = "exact";
    DS_TRY(ds_scenario_text(binding, "", "memory", &memory, err));
    if (!ds_mem_mode_parse(memory, &options->mem_mode))
        return refuse(ds_scenario_find(binding->unit, "", "memory"),
                      "`memory` is exact, rounded or allocator", err);
    const char *masks = options->keep_masks ? "kept" : "drawn";
    DS_TRY(ds_scenario_text(binding, "", "masks", &masks, err));
    const ds_preset *preset = ds_preset_of(binding, "", "masks");
    options->keep_masks = strcmp(preset ? preset->value : masks, "kept") == 0;
    const char *framework = "none";
    DS_TRY(ds_scenario_text(binding, "", "framework", &framework, err));
    ds_mem_framework_parse(framework, &options->framework);
    bool program = ds_scenario_is_program(binding->unit);
    return program ? check_program(binding, err) : DS_OK;
}
