/* One scenario, many strategies. */
#include "tools/pase/contest.h"

#include "ir/strategy/scenario.h"
#include "search/pase/costs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct contest {
    const ds_pase_source *source;
    const ds_profiles *profiles;
    int64_t devices;
    ds_pase_contest *out;
} contest;

/* Keeps the fastest strategy that fits. */
static void consider(ds_pase_entry *best, const char *name, const ds_pase_time *time) {
    if (!time->fits || (best->time.step_ps && time->step_ps >= best->time.step_ps)) return;
    best->time = *time;
    snprintf(best->name, sizeof best->name, "%s", name);
}

/* ---- dp x tp x pp ---- */

typedef struct uniform {
    int64_t dp, tp, pp, microbatches;
} uniform;

static void put_knob(ds_unit *unit, ds_attr *items, uint32_t *n, const char *name, int64_t value) {
    items[(*n)++] = (ds_attr){.name = ds_intern(&unit->strings, name),
                              .kind = DS_ATTR_EXPR,
                              .expr = ds_expr_int(&unit->exprs, value)};
}

static ds_status simulate_uniform(const contest *c, const uniform *u, ds_pase_time *time,
                                  ds_error *err) {
    ds_unit *unit = NULL;
    ds_attr items[4];
    uint32_t n = 0;
    ds_buf text = {0};
    ds_status status =
        ds_load_text(c->source->path, c->source->text, c->source->n, &c->source->load, &unit, err);
    if (!status) {
        put_knob(unit, items, &n, "dp", u->dp);
        put_knob(unit, items, &n, "tp", u->tp);
        if (u->pp > 1) put_knob(unit, items, &n, "pp", u->pp);
        if (u->pp > 1) put_knob(unit, items, &n, "microbatches", u->microbatches);
        ds_scenario_set(unit, "", "strategy",
                        (ds_attr){.kind = DS_ATTR_BLOCK, .items = items, .n_items = n});
        ds_print_module(unit->modules.at[0], &text);
        ds_pase_source with = *c->source;
        with.text = text.text;
        with.n = text.n;
        status = ds_pase_simulate(&with, c->profiles, time, err);
    }
    ds_buf_deinit(&text);
    ds_unit_free(unit);
    return status;
}

static void try_uniform(contest *c, const uniform *u) {
    ds_pase_time time;
    ds_error refused = {0};
    char name[48];
    if (simulate_uniform(c, u, &time, &refused) != DS_OK) return;
    int used = snprintf(name, sizeof name, "dp %" PRId64, u->dp);
    if (u->tp > 1)
        used += snprintf(name + used, sizeof name - (size_t)used, " x tp %" PRId64, u->tp);
    if (u->pp > 1)
        snprintf(name + used, sizeof name - (size_t)used, " x pp %" PRId64 ", %" PRId64, u->pp,
                 u->microbatches);
    consider(&c->out->grid, name, &time);
    if (u->tp == 1 && u->pp == 1) consider(&c->out->data, "data parallel", &time);
}

static void grid(contest *c) {
    for (int64_t pp = 1; pp <= 8; pp *= 2)
        for (int64_t tp = 1; tp <= 8 && tp * pp <= c->devices; tp *= 2)
            for (int64_t turns = 2; turns <= (pp > 1 ? 4 : 2); turns += 2) {
                if (c->devices % (tp * pp) != 0) continue;
                try_uniform(c, &(uniform){c->devices / (tp * pp), tp, pp, turns * pp});
            }
}

/* ---- overrides ---- */

static void try_expert(contest *c, const ds_pase_case *cs, const ds_pase_limits *limits,
                       int64_t tp) {
    ds_pase_splits *splits = ds_xcalloc((size_t)cs->folded->nodes.n + 1, sizeof *splits);
    ds_pase_time time;
    ds_error refused = {0};
    char name[48];
    ds_pase_expert(cs->folded, limits, tp, splits);
    if (ds_pase_is_convolutional(cs->folded))
        snprintf(name, sizeof name, "one weird trick");
    else
        snprintf(name, sizeof name, "megatron tp %" PRId64, tp);
    if (ds_pase_simulate_strategy(c->source, c->profiles,
                                  &(ds_pase_assigned){cs->folded, splits, c->devices, false}, &time,
                                  &refused) == DS_OK)
        consider(&c->out->expert, name, &time);
    free(splits);
}

static void experts(contest *c, const ds_pase_case *cs) {
    ds_pase_limits limits = {.devices = c->devices, .cutoff = 1, .by_rule = true, .divides = true};
    bool images = ds_pase_is_convolutional(cs->folded);
    for (int64_t tp = images ? 1 : 2; tp <= (images ? 1 : 8) && tp <= c->devices; tp *= 2)
        if (c->devices % tp == 0) try_expert(c, cs, &limits, tp);
}

/* Searches with several shares of exposed traffic (weights' reductions; tensors moved again for
 * backward ops), and keeps the strategy that simulates fastest. */
static ds_status find_shares(contest *c, const ds_pase_case *cs, ds_error *err) {
    static const double shares[][2] = {{1, 0}, {1, 1}, {0.5, 0.5}, {0.25, 0.25}, {0, 1}, {0, 0}};
    ds_pase_model *model = NULL;
    ds_status status =
        ds_pase_costs_new(&cs->binding, cs->step, c->profiles, c->devices, 1, &model, err);
    for (size_t i = 0; i < sizeof shares / sizeof *shares && !status; i++) {
        ds_pase_result *result = NULL;
        ds_pase_time time;
        char name[48];
        ds_pase_costs_expose(model, shares[i][0], shares[i][1]);
        status = ds_pase_search(cs->folded, model, &(ds_pase_options){0}, &result, err);
        if (!status)
            status = ds_pase_simulate_strategy(
                c->source, c->profiles,
                &(ds_pase_assigned){cs->folded, result->strategy, c->devices, false}, &time, err);
        snprintf(name, sizeof name, "%g, %g", shares[i][0], shares[i][1]);
        if (!status) consider(&c->out->found, name, &time);
        ds_pase_result_free(result);
    }
    if (model) model->free(model);
    return status;
}

ds_status ds_pase_contest_run(const ds_pase_source *source, const ds_profiles *profiles,
                              int64_t devices, ds_pase_contest *out, ds_error *err) {
    contest c = {source, profiles, devices, out};
    ds_pase_case cs;
    memset(out, 0, sizeof *out);
    ds_status status = ds_pase_case_open(source, &cs, err);
    if (!status) status = find_shares(&c, &cs, err);
    if (!status) experts(&c, &cs);
    if (!status) grid(&c);
    ds_pase_case_close(&cs);
    return status;
}
