/* Names of a sweep: what they are, and what a dimension's name finds. */
#include "ir/strategy/sweep.h"

#include "ir/strategy/scenario.h"

#include <string.h>

bool ds_sweep_sees_knob(const ds_knob *knob) {
    bool seen = strcmp(knob->section, "strategy") == 0 || strcmp(knob->section, "train") == 0;
    return seen && knob->kind != DS_KNOB_SECTION;
}

const ds_sweep *ds_unit_sweep(const ds_unit *unit) {
    const ds_module *root = unit->modules.n ? unit->modules.at[0] : NULL;
    return root && root->sweeps.n ? &root->sweeps.at[0] : NULL;
}

bool ds_sweep_is_on(const ds_sweep *sweep, const char *option) {
    for (uint32_t i = 0; sweep && i < sweep->n_entries; i++)
        if (sweep->entries[i].kind == DS_SWEEP_OPTION &&
            strcmp(sweep->entries[i].name, option) == 0)
            return sweep->entries[i].on;
    return false;
}

const ds_knob *ds_scenario_bare_knob(const ds_unit *unit, const char *name) {
    static const char *const sections[] = {"strategy", "train", ""};
    const ds_knob *own = ds_scenario_knob("", name);
    if (own && !ds_scenario_n_jobs(unit) && !ds_scenario_trains(unit)) return own;
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) {
        const ds_knob *knob = ds_scenario_knob(sections[i], name);
        if (knob) return knob;
    }
    return NULL;
}

/* "strategy.zero", "train.dtype", or a key alone. */
static const ds_knob *find_knob(const ds_unit *unit, const char *name) {
    static const char *const sections[] = {"strategy", "train"};
    const char *dot = strchr(name, '.');
    if (!dot) return ds_scenario_bare_knob(unit, name);
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) {
        size_t n = strlen(sections[i]);
        if (n == (size_t)(dot - name) && memcmp(sections[i], name, n) == 0)
            return ds_scenario_knob(sections[i], dot + 1);
    }
    return NULL;
}

bool ds_sweep_find(ds_unit *unit, const char *name, ds_sweep_target *out) {
    const char *dot = strrchr(name, '.');
    *out = (ds_sweep_target){.bare = ds_intern(&unit->strings, dot ? dot + 1 : name)};
    if (ds_find_param(unit, name, &out->module, &out->param)) return true;
    out->knob = find_knob(unit, name);
    return out->knob != NULL;
}

ds_status ds_sweep_holds(const ds_env *env, const ds_sweep_entry *entry, bool *out, ds_error *err) {
    ds_num value;
    if (entry->unit == DS_UNIT_NONE) {
        DS_TRY(ds_expr_eval(env, entry->a, entry->loc, &value, err));
        if (value.kind != DS_NUM_INT && value.kind != DS_NUM_REAL)
            return ds_error_set(err, DS_ERR_TYPE, entry->loc, "a condition is a text");
        *out = value.kind == DS_NUM_INT ? value.i != 0 : value.r < 0 || value.r > 0;
        return DS_OK;
    }
    const ds_expr_node *node = ds_expr_at(env->exprs, entry->a);
    double left, right;
    DS_TRY(ds_expr_eval_real(env, node->a, entry->loc, &left, err));
    DS_TRY(ds_expr_eval_real(env, node->b, entry->loc, &right, err));
    right *= ds_unit_scale(entry->unit);
    bool less = left<right, more = left> right;
    switch (node->kind) {
    case DS_EXPR_EQ:
        *out = !less && !more;
        break;
    case DS_EXPR_NE:
        *out = less || more;
        break;
    case DS_EXPR_LT:
        *out = less;
        break;
    case DS_EXPR_LE:
        *out = !more;
        break;
    case DS_EXPR_GT:
        *out = more;
        break;
    default:
        *out = !less;
        break;
    }
    return DS_OK;
}
