/* One model under every schedule.
 *
 * To simulate a schedule, the comparer writes the schedule into the unit's scenario and restores
 * the old scenario afterwards, as the adviser does in advice.c. */
#include "sim/report/schedules.h"
#include "ir/base/units.h"
#include "ir/schedule/schedule.h"
#include "ir/strategy/scenario.h"
#include "sim/report/analysis.h"

#include <stdlib.h>
#include <string.h>

typedef struct comparer {
    ds_unit *unit;
    const ds_binding *binding;
    const ds_profiles *profiles;
    const ds_sim_options *options;
    ds_schedule_table *table;
} comparer;

/* ---- one simulation ---- */

static void sum_stages(const ds_stages *stages, ds_schedule_row *row) {
    for (uint32_t i = 0; i < stages->n; i++) {
        const ds_stage *s = &stages->at[i];
        row->sent_bytes = ds_bytes_sum(row->sent_bytes, s->sent_bytes);
        row->sent_grad_bytes = ds_bytes_sum(row->sent_grad_bytes, s->sent_grad_bytes);
        if (s->sent_most_bytes > row->sent_most_bytes) row->sent_most_bytes = s->sent_most_bytes;
        if (s->peak_bytes <= row->peak_bytes) continue;
        row->peak_bytes = s->peak_bytes;
        row->peak_stage = i;
    }
}

static void read_result(const ds_result *r, ds_schedule_row *row) {
    ds_stages stages;
    ds_stages_find(r, &stages);
    row->fits = r->metrics.fits;
    row->step_ps = r->run.step_ps;
    row->span_bubble_ps = stages.span_bubble_ps;
    row->bubble_fraction = r->metrics.bubble_fraction;
    row->missing_bytes = r->metrics.fits ? 0 : r->metrics.peak_bytes - r->metrics.capacity_bytes;
    row->copies = r->step->schedule.n_copies;
    sum_stages(&stages, row);
    ds_stages_deinit(&stages);
}

static void set_text(ds_unit *unit, const char *knob, const char *text) {
    ds_attr attr = {.kind = DS_ATTR_WORD, .word = ds_intern(&unit->strings, text)};
    ds_scenario_set(unit, "strategy", knob, attr);
}

static void set_int(ds_unit *unit, const char *knob, int64_t value) {
    ds_attr attr = {.kind = DS_ATTR_EXPR, .expr = ds_expr_int(&unit->exprs, value)};
    ds_scenario_set(unit, "strategy", knob, attr);
}

/* `written`: a schedule that the scenario writes out stays as written, since "@s" is no text. */
static void try(const comparer *c, ds_schedule_row *row, bool written) {
    ds_scenario old = *ds_unit_scenario(c->unit);
    ds_result *result = NULL;
    ds_error why;
    if (!written) {
        set_text(c->unit, "schedule", row->name);
        set_int(c->unit, "virtual_stages", row->virtual_stages);
    }
    ds_status status = ds_simulate(c->binding, c->profiles, c->options, &result, &why);
    ds_scenario_restore(c->unit, &old);
    if (status == DS_OK)
        read_result(result, row);
    else
        row->refused = ds_intern(&c->table->names, why.message);
    ds_result_free(result);
}

/* ---- all schedules ---- */

static void add(const comparer *c, const ds_strategy *s, const char *name, bool written) {
    int64_t asked = s->virtual_stages ? s->virtual_stages : 1;
    ds_schedule_row row = {.name = ds_intern(&c->table->names, name),
                           .virtual_stages = ds_schedule_virtual_stages(name, asked),
                           .own = strcmp(name, s->schedule) == 0};
    try(c, &row, written);
    DS_HPUSH(&c->table->rows, row);
}

static ds_status check(const ds_binding *source, const ds_strategy *strategy, ds_error *err) {
    if (!ds_scenario_model(source->unit) || ds_scenario_is_program(source->unit))
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "a program has the order that it was written in: schedules are "
                            "compared for a scenario's model");
    if (strategy->pp > 1) return DS_OK;
    const ds_attr *pp = ds_scenario_find(source->unit, "strategy", "pp");
    return ds_error_set(err, DS_ERR_VALUE, pp ? pp->loc : DS_NOWHERE,
                        "schedules order the work of several stages, and the strategy has one: "
                        "say pp = 2 or more");
}

ds_status ds_schedules_compare(const ds_binding *source, const ds_profiles *profiles,
                               const ds_sim_options *options, ds_schedule_table *out,
                               ds_error *err) {
    ds_strategy strategy;
    *out = (ds_schedule_table){.source = source};
    ds_strtab_init(&out->names);
    DS_TRY(ds_strategy_read(source, &strategy, err));
    DS_TRY(check(source, &strategy, err));
    out->stages = strategy.pp;
    out->microbatches = strategy.microbatches;
    comparer c = {source->unit, source, profiles, options, out};
    const ds_schedule_form *form;
    bool own = false;
    for (uint32_t i = 0; (form = ds_schedule_form_at(i)); i++) {
        add(&c, &strategy, form->name, false);
        own = own || out->rows.at[i].own;
    }
    if (!own) add(&c, &strategy, strategy.schedule, true);
    return DS_OK;
}

void ds_schedule_table_deinit(ds_schedule_table *table) {
    free(table->rows.at);
    ds_strtab_deinit(&table->names);
    *table = (ds_schedule_table){0};
}

bool ds_schedule_table_any(const ds_schedule_table *table) {
    for (uint32_t i = 0; i < table->rows.n; i++)
        if (!table->rows.at[i].refused && table->rows.at[i].fits) return true;
    return false;
}
