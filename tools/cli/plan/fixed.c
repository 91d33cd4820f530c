/* distsim plan: keys that --set fixes for all candidates.
 *
 * A fixed knob that the space varies has one value in the space; any other fixed key is an entry of
 * the scenario. Programs are read with these settings and printed again, so that rows, replays and
 * the plan that is written have the keys. */
#include "ir/lang/lang.h"
#include "ir/strategy/sweep.h"
#include "ir/verify/verify.h"
#include "tools/cli/plan/plan.h"

#include <stdio.h>
#include <string.h>

enum { MOST = sizeof((cli_plan *)0)->fixed / sizeof *((cli_plan *)0)->fixed };

/* "strategy.zero" and "train.lr"; options have the two keys of `train` that plans print. */
bool cli_plan_fixes(cli_plan *plan, const ds_setting *setting, int *exit_code) {
    const char *path = setting->path;
    if (strncmp(path, "strategy.", 9) != 0 && strncmp(path, "train.", 6) != 0) return false;
    bool option = strcmp(path, "train.dtype") == 0 || strcmp(path, "train.optimizer") == 0;
    uint32_t at = 0;
    while (at < plan->n_fixed && strcmp(plan->fixed[at].path, path) != 0) at++;
    if (option || at == MOST) {
        *exit_code = 2;
        if (option)
            fprintf(stderr, "distsim: error: say %s as --%s\n", path, path + 6);
        else
            fprintf(stderr, "distsim: error: at most %d keys are fixed\n", MOST);
        return true;
    }
    plan->fixed[at] = *setting;
    plan->n_fixed += at == plan->n_fixed;
    return true;
}

static bool varies(ds_unit *unit, const ds_setting *setting) {
    const ds_sweep *sweep = ds_unit_sweep(unit);
    ds_sweep_target wanted, found;
    if (!sweep || !ds_sweep_find(unit, setting->path, &wanted)) return false;
    for (uint32_t i = 0; i < sweep->n_entries; i++)
        if (sweep->entries[i].kind == DS_SWEEP_DIM &&
            ds_sweep_find(unit, sweep->entries[i].name, &found) && found.knob == wanted.knob)
            return true;
    return false;
}

static ds_status check(ds_unit *unit, ds_error *err) {
    ds_diags diags;
    ds_diags_init(&diags);
    ds_status status = ds_verify(unit, &diags);
    for (uint32_t i = diags.all.n; i-- > 0 && status != DS_OK;)
        if (diags.all.at[i].severity == DS_SEV_ERROR)
            ds_error_set(err, status, diags.all.at[i].loc, "%s", diags.all.at[i].message);
    ds_diags_deinit(&diags);
    return status;
}

ds_status cli_plan_fix(const cli_plan *plan, const char *path, ds_buf *text, ds_error *err) {
    ds_setting settings[MOST];
    ds_load_options load = plan->load;
    ds_unit *unit;
    if (!plan->n_fixed) return DS_OK;
    ds_status status = ds_load_text(path, text->text, text->n, &load, &unit, err);
    for (uint32_t i = 0; i < plan->n_fixed && status == DS_OK; i++) {
        const ds_setting *fixed = &plan->fixed[i];
        settings[i] = *fixed;
        if (!varies(unit, fixed)) continue;
        const char *key = strchr(fixed->path, '.') + 1;
        settings[i] =
            (ds_setting){"--vary", ds_arena_printf(plan->arena, "%s=%s", key, fixed->text)};
    }
    ds_unit_free(unit);
    DS_TRY(status);
    load.settings = settings;
    load.n_settings = plan->n_fixed;
    status = ds_load_text(path, text->text, text->n, &load, &unit, err);
    if (status == DS_OK) status = check(unit, err);
    if (status == DS_OK) {
        text->n = 0;
        ds_print_module(unit->modules.at[0], text);
    }
    ds_unit_free(unit);
    return status;
}
