/* Jobs of a scenario: each a scenario of its own that shares the cluster, and what is said of it,
 * with the others. */
#include "ir/strategy/scenario.h"

#include <string.h>

/* A start beyond this leaves no room for the job itself in int64. */
#define MAX_START_PS (INT64_MAX / 4)
#define MAX_STEPS    1000000

static const char *const job_keys[] = {"model", "program", "mesh", "train", "strategy", "batch"};

bool ds_scenario_is_job_key(const char *name) {
    for (size_t i = 0; i < sizeof job_keys / sizeof *job_keys; i++)
        if (strcmp(name, job_keys[i]) == 0) return true;
    return false;
}

static const ds_attr *jobs_of(const ds_unit *unit) {
    const ds_attr *jobs = ds_scenario_find(unit, "", "jobs");
    return jobs && jobs->kind == DS_ATTR_BLOCK ? jobs : NULL;
}

uint32_t ds_scenario_n_jobs(const ds_unit *unit) {
    const ds_attr *jobs = jobs_of(unit);
    return jobs ? jobs->n_items : 0;
}

const ds_attr *ds_scenario_job(const ds_unit *unit, uint32_t job) {
    return &jobs_of(unit)->items[job];
}

ds_scenario ds_scenario_of_job(ds_unit *unit, uint32_t job) {
    ds_scenario scenario = *ds_unit_scenario(unit);
    const ds_attr *own = ds_scenario_job(unit, job);
    uint32_t n = 0;
    ds_attr *entries = DS_NEW_N(&unit->arena, ds_attr, scenario.n_entries + own->n_items);
    for (uint32_t i = 0; i < scenario.n_entries; i++)
        if (strcmp(scenario.entries[i].name, "jobs") != 0) entries[n++] = scenario.entries[i];
    for (uint32_t i = 0; i < own->n_items; i++)
        if (ds_scenario_is_job_key(own->items[i].name)) entries[n++] = own->items[i];
    scenario.entries = entries;
    scenario.n_entries = n;
    scenario.loc = own->loc;
    return scenario;
}

ds_status ds_scenario_choose_job(ds_unit *unit, const char *name, ds_error *err) {
    const ds_attr *jobs = jobs_of(unit);
    if (!jobs)
        return ds_error_set(err, DS_ERR_NAME, DS_NOWHERE, "no job '%s': the scenario has no jobs",
                            name);
    const char **names = DS_NEW_N(&unit->arena, const char *, jobs->n_items);
    for (uint32_t j = 0; j < jobs->n_items; j++) {
        names[j] = jobs->items[j].name;
        if (strcmp(names[j], name) != 0) continue;
        ds_scenario own = ds_scenario_of_job(unit, j);
        ds_scenario_restore(unit, &own);
        return DS_OK;
    }
    const char *near = ds_suggest(name, names, jobs->n_items);
    return ds_error_set(err, DS_ERR_NAME, jobs->loc, "no job '%s'%s%s%s", name,
                        near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static ds_status out_of_range(const ds_attr *attr, const char *job, int64_t most, ds_error *err) {
    return ds_error_set(err, DS_ERR_VALUE, attr->loc, "'%s' of job '%s' must be from %s to %lld%s",
                        attr->name, job, strcmp(attr->name, "steps") == 0 ? "1" : "0",
                        (long long)most, strcmp(attr->name, "steps") == 0 ? "" : " ps");
}

ds_status ds_scenario_job_times(const ds_binding *binding, uint32_t job, int64_t *start_ps,
                                int64_t *steps, ds_error *err) {
    const ds_attr *own = ds_scenario_job(binding->unit, job);
    const ds_attr *start = ds_attr_find(own->items, own->n_items, "start");
    const ds_attr *count = ds_attr_find(own->items, own->n_items, "steps");
    ds_env env = ds_binding_env(binding, NULL);
    *start_ps = 0;
    *steps = 1;
    if (start && start->kind == DS_ATTR_QUANTITY)
        DS_TRY(ds_quantity_eval(&env, (ds_quantity){start->expr, start->unit}, 'T', 1e12,
                                start->loc, start_ps, err));
    if (start && start->kind != DS_ATTR_QUANTITY) {
        DS_TRY(ds_expr_eval_int(&env, start->expr, start->loc, start_ps, err));
        if (*start_ps != 0)
            return ds_error_set(err, DS_ERR_VALUE, start->loc,
                                "'start' of job '%s' is %lld without a unit: say 5 ms, say",
                                own->name, (long long)*start_ps);
    }
    if (*start_ps < 0 || *start_ps > MAX_START_PS)
        return out_of_range(start, own->name, MAX_START_PS, err);
    if (count) DS_TRY(ds_expr_eval_int(&env, count->expr, count->loc, steps, err));
    if (*steps < 1 || *steps > MAX_STEPS) return out_of_range(count, own->name, MAX_STEPS, err);
    return DS_OK;
}

bool ds_scenario_has_model(const ds_unit *unit, const ds_func *func) {
    if (func == ds_scenario_model(unit)) return func != NULL;
    for (uint32_t j = 0; j < ds_scenario_n_jobs(unit); j++) {
        const ds_attr *own = ds_scenario_job(unit, j);
        const ds_attr *model = ds_attr_find(own->items, own->n_items, "model");
        if (model && model->kind == DS_ATTR_PLACE &&
            func == ds_find_func(unit->modules.at[0], model->place.name))
            return true;
    }
    return false;
}
