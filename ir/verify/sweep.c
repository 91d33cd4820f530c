/* The sweep: every dimension varies an existing param or key over legal values; no domain mentions
 * a later dimension; objectives are known. The search checks numbers: it evaluates domains and
 * conditions candidate by candidate. */
#include "ir/strategy/sweep.h"
#include "ir/strategy/metrics.h"
#include "ir/verify/internal.h"

#include <string.h>

static void unknown_target(ds_checker *ck, const ds_module *module, const ds_sweep_entry *dim) {
    ds_names names = {0};
    for (uint32_t i = 0; i < module->params.n; i++)
        DS_PUSH(&ck->diags->arena, &names.all, module->params.at[i].name);
    uint32_t n;
    const ds_knob *knobs = ds_scenario_knobs(&n);
    for (uint32_t i = 0; i < n; i++) DS_PUSH(&ck->diags->arena, &names.all, knobs[i].name);
    const char *hint = ds_verify__hint(ck, "", dim->name, names.all.at, names.all.n);
    ds_verify__error(ck, DS_ERR_NAME, dim->loc, hint,
                     "'%s' is neither a param nor a key of the scenario, so nothing can vary",
                     dim->name);
}

/* A param takes the values that --set can give. */
static void check_param_values(ds_checker *ck, const ds_sweep_entry *dim) {
    for (uint32_t i = 0; i < dim->list.n_items; i++) {
        const ds_attr *item = &dim->list.items[i];
        if (item->kind == DS_ATTR_EXPR || item->kind == DS_ATTR_WORD || item->kind == DS_ATTR_BOOL)
            continue;
        ds_verify__error(ck, DS_ERR_TYPE, item->loc, NULL,
                         "param '%s' takes numbers, strings, true and false", dim->name);
    }
}

static void check_knob_values(ds_checker *ck, const ds_module *module, const ds_knob *knob,
                              const ds_sweep_entry *dim) {
    if (knob->kind == DS_KNOB_SECTION) {
        ds_verify__error(ck, DS_ERR_TYPE, dim->loc, NULL,
                         "'%s' is a block; vary a key of it, as in %s.KEY", dim->name, dim->name);
        return;
    }
    for (uint32_t i = 0; i < dim->list.n_items; i++)
        ds_verify__knob_value(ck, module, knob, &dim->list.items[i]);
    if (dim->domain == DS_DOMAIN_LIST || knob->kind == DS_KNOB_INT || knob->kind == DS_KNOB_REAL)
        return;
    ds_verify__error(ck, DS_ERR_TYPE, dim->loc, NULL,
                     "'%s' takes no numbers (%s): list its values, as in %s in [...]", dim->name,
                     knob->doc, dim->name);
}

static bool mentions(const ds_checker *ck, const ds_sweep_entry *dim, const char *name) {
    const ds_exprs *exprs = &ck->unit->exprs;
    const ds_expr ends[] = {dim->a, dim->b, dim->step};
    for (int i = 0; i < 3; i++)
        if (DS_HAS_EXPR(ends[i]) && ds_expr_mentions(exprs, ends[i], name)) return true;
    return false;
}

/* Refuses a domain that mentions its own or a later dimension. */
static void check_domain(ds_checker *ck, const ds_sweep *sweep, uint32_t at) {
    const ds_sweep_entry *dim = &sweep->entries[at];
    for (uint32_t i = at; i < sweep->n_entries; i++) {
        const ds_sweep_entry *other = &sweep->entries[i];
        ds_sweep_target target;
        if (other->kind != DS_SWEEP_DIM || !ds_sweep_find(ck->unit, other->name, &target)) continue;
        if (mentions(ck, dim, target.bare))
            ds_verify__error(ck, DS_ERR_NAME, dim->loc, NULL,
                             i == at ? "the domain of '%s' looks at '%s' itself"
                                     : "the domain of '%s' looks at '%s', which is declared after "
                                       "it: swap them",
                             dim->name, other->name);
    }
}

static bool same_target(const ds_sweep_target *a, const ds_sweep_target *b) {
    return a->module == b->module && a->param == b->param && a->knob == b->knob;
}

static void check_dim(ds_checker *ck, const ds_module *module, const ds_sweep *sweep, uint32_t at) {
    const ds_sweep_entry *dim = &sweep->entries[at];
    ds_sweep_target target, other;
    if (!ds_sweep_find(ck->unit, dim->name, &target)) {
        unknown_target(ck, module, dim);
        return;
    }
    for (uint32_t i = 0; i < at; i++) {
        const ds_sweep_entry *before = &sweep->entries[i];
        if (before->kind != DS_SWEEP_DIM || !ds_sweep_find(ck->unit, before->name, &other))
            continue;
        if (same_target(&target, &other))
            ds_verify__error(ck, DS_ERR_NAME, dim->loc, NULL, "'%s' varies already (line %u)",
                             dim->name, before->loc.line);
        else if (target.bare == other.bare)
            ds_verify__error(ck, DS_ERR_NAME, dim->loc, NULL,
                             "'%s' and '%s' are both '%s' in conditions: rename one", before->name,
                             dim->name, target.bare);
    }
    check_domain(ck, sweep, at);
    if (target.module)
        check_param_values(ck, dim);
    else
        check_knob_values(ck, module, target.knob, dim);
}

static bool is_objective(const ds_sweep_entry *entry) {
    return entry->kind == DS_SWEEP_MINIMIZE || entry->kind == DS_SWEEP_MAXIMIZE;
}

/* Refuses an objective that is both minimized and maximized. */
static void check_contradiction(ds_checker *ck, const ds_sweep *sweep, uint32_t at) {
    const ds_sweep_entry *entry = &sweep->entries[at];
    for (uint32_t i = 0; i < at; i++) {
        const ds_sweep_entry *other = &sweep->entries[i];
        if (is_objective(other) && other->kind != entry->kind && other->name == entry->name)
            ds_verify__error(ck, DS_ERR_VALUE, entry->loc, NULL,
                             "%s is to be both minimized and maximized (line %u)", entry->name,
                             other->loc.line);
    }
}

static void check_objective(ds_checker *ck, const ds_sweep *sweep, uint32_t at) {
    const ds_sweep_entry *entry = &sweep->entries[at];
    check_contradiction(ck, sweep, at);
    ds_metric_id metric = ds_metric_by_name(entry->name);
    bool tokens = ds_scenario_find(ck->unit, "", "tokens") != NULL;
    if (ds_metric_is_objective(metric) && ds_metric_at(metric)->place == DS_AMONG_TOKENS && !tokens)
        ds_verify__error(ck, DS_ERR_VALUE, entry->loc, NULL,
                         "%s is of tokens: the scenario says which dim counts tokens by tokens "
                         "{ dim = t, prompt = P, batch = B }",
                         entry->name);
    if (ds_metric_is_objective(metric)) return;
    ds_names names = {0};
    ds_buf list = {0};
    for (int i = 0; i < DS_METRIC_COUNT; i++) {
        bool of_tokens = ds_metric_at((ds_metric_id)i)->place == DS_AMONG_TOKENS;
        if (!ds_metric_is_objective((ds_metric_id)i) || (of_tokens && !tokens)) continue;
        const char *name = ds_metric_at((ds_metric_id)i)->sweep;
        DS_PUSH(&ck->diags->arena, &names.all, name);
        ds_buf_printf(&list, "%s%s", list.n ? ", " : "", name);
    }
    const char *hint = ds_verify__hint(ck, "", entry->name, names.all.at, names.all.n);
    ds_verify__error(ck, DS_ERR_NAME, entry->loc, hint,
                     "'%s' is no objective; the objectives are %s", entry->name, list.text);
    ds_buf_deinit(&list);
}

static void check_option(ds_checker *ck, const ds_sweep *sweep, uint32_t at) {
    const ds_sweep_entry *entry = &sweep->entries[at];
    if (strcmp(entry->name, "memory_first") != 0)
        ds_verify__error(ck, DS_ERR_NAME, entry->loc, NULL,
                         "a sweep has no option '%s'; there is memory_first", entry->name);
    for (uint32_t i = 0; i < at; i++)
        if (sweep->entries[i].kind == DS_SWEEP_OPTION && sweep->entries[i].name == entry->name)
            ds_verify__error(ck, DS_ERR_NAME, entry->loc, NULL, "'%s' is said already (line %u)",
                             entry->name, sweep->entries[i].loc.line);
}

void ds_verify__sweep(ds_checker *ck, const ds_module *module) {
    for (uint32_t i = 1; i < module->sweeps.n; i++)
        ds_verify__error(ck, DS_ERR_NAME, module->sweeps.at[i].loc, NULL,
                         "a module has one sweep at most; the first one is on line %u",
                         module->sweeps.at[0].loc.line);
    if (!module->sweeps.n || module->id) return; /* the sweep of an imported file is not run */
    const ds_sweep *sweep = &module->sweeps.at[0];
    if (!module->scenarios.n)
        ds_verify__error(ck, DS_ERR_NAME, sweep->loc, NULL,
                         "a sweep varies a scenario, and the file has none");
    uint32_t n_dims = 0;
    for (uint32_t i = 0; i < sweep->n_entries; i++) {
        const ds_sweep_entry *entry = &sweep->entries[i];
        if (entry->kind == DS_SWEEP_DIM) {
            check_dim(ck, module, sweep, i);
            n_dims++;
        } else if (is_objective(entry)) {
            check_objective(ck, sweep, i);
        } else if (entry->kind == DS_SWEEP_OPTION) {
            check_option(ck, sweep, i);
        }
    }
    if (!n_dims)
        ds_verify__error(ck, DS_ERR_VALUE, sweep->loc, NULL,
                         "the sweep varies nothing: add a dimension, as in dp in [1, 2, 4]");
}
