/* Steps that return to an earlier state; which knobs are read late. */
#include "ir/passes/snapshot.h"

#include <stdlib.h>
#include <string.h>

/* ---- marks ---- */

/* A unit is an arena and heap tables that point into the arena. */
struct ds_step_mark {
    ds_model_step *step, then;
    ds_unit unit; /* only the fields that are neither arenas nor tables are read */
    ds_arena_state memory;
    uint32_t n_exprs;
    DS_VEC(ds_map_entry) inferred;
};

void ds_step_mark_set(ds_step_mark **out, ds_model_step *step) {
    if (!*out) *out = ds_xcalloc(1, sizeof **out);
    ds_step_mark *mark = *out;
    const ds_unit *unit = step->unit;
    mark->step = step;
    mark->then = *step;
    mark->unit = *unit;
    mark->n_exprs = unit->exprs.nodes.n;
    ds_arena_keep(&unit->arena, &mark->memory);
    uint32_t at = 0;
    mark->inferred.n = 0;
    for (const ds_map_entry *e; (e = ds_map_next(&unit->inferred, &at));)
        DS_HPUSH(&mark->inferred, *e);
}

ds_step_mark *ds_step_mark_new(ds_model_step *step) {
    ds_step_mark *mark = NULL;
    ds_step_mark_set(&mark, step);
    return mark;
}

void ds_step_mark_return(const ds_step_mark *mark) {
    ds_unit *unit = mark->then.unit;
    *mark->step = mark->then;
    ds_arena_go_back(&unit->arena, &mark->memory);
    ds_exprs_cut(&unit->exprs, mark->n_exprs);
    memcpy(&unit->modules, &mark->unit.modules, sizeof unit->modules);
    ds_map_clear(&unit->inferred);
    for (uint32_t i = 0; i < mark->inferred.n; i++)
        ds_map_put(&unit->inferred, mark->inferred.at[i].key, mark->inferred.at[i].value);
}

void ds_step_mark_free(ds_step_mark *mark) {
    if (!mark) return;
    ds_arena_state_deinit(&mark->memory);
    free(mark->inferred.at);
    free(mark);
}

/* ---- sizes that are bound late ---- */

static uint32_t find_samples(const ds_model_step *step) {
    const ds_module *module = step->unit->modules.at[0];
    uint32_t i = 0;
    while (i < module->params.n && module->params.at[i].name != step->microbatch) i++;
    return i;
}

int64_t ds_step_samples(const ds_model_step *step) {
    if (!step->microbatch) return 0;
    const ds_num *bound = &step->binding.params[0][find_samples(step)];
    return bound->kind == DS_NUM_INT ? bound->i : 0;
}

ds_status ds_step_bind_samples(ds_model_step *step, int64_t samples, ds_error *err) {
    ds_module *module = step->unit->modules.at[0];
    module->params.at[find_samples(step)].init = ds_expr_int(&step->unit->exprs, samples);
    return ds_bind(step->unit, NULL, 0, &step->binding, err);
}

/* ---- what is read late ---- */

bool ds_knob_is_late(const ds_knob *knob, ds_pass_id pass) {
    return knob->bytes && knob->first > pass && strcmp(knob->section, "strategy") == 0;
}

/* The step's unit owns the texts of a strategy, so texts are interned before copying. */
void ds_step_adopt(ds_model_step *step, const ds_strategy *from, ds_pass_id pass) {
    ds_strategy now = *from, *to = &step->strategy;
    uint32_t n;
    const ds_knob *knobs = ds_scenario_knobs(&n);
    for (uint32_t i = 0; i < 4; i++) now.order[i] = ds_intern(&step->unit->strings, from->order[i]);
    for (uint32_t i = 0; i < n; i++)
        if (ds_knob_is_late(&knobs[i], pass))
            memcpy((char *)to + knobs[i].offset, (const char *)&now + knobs[i].offset,
                   knobs[i].bytes);
}
