/* The plan's life: from a scenario to its entry, default placement and profiles; then the steps. */
#include "sim/plan/plan.h"

#include "ir/strategy/scenario.h"
#include "sim/plan/walk.h"

#include <stdlib.h>
#include <string.h>

/* ---- from the scenario ---- */

ds_status ds_plan__find_profiles(ds_builder *b, ds_error *err) {
    b->n_profiles_used = 0; /* the job before named its own */
    b->is_ideal = b->is_generic = false;
    for (int list = 0; list < 2; list++) {
        const char *key = list ? "profiles" : "profile";
        uint32_t n = ds_scenario_text_count(b->unit, "", key);
        if (!n) continue;
        const ds_attr *attr = ds_scenario_find(b->unit, "", key);
        b->profiles_used = DS_NEW_N(&b->plan->arena, uint32_t, n);
        for (uint32_t i = 0; i < n; i++) {
            const char *name;
            DS_TRY(ds_scenario_text_at(b->binding, "", key, i, &name, err));
            if (ds_profiles_means_generic(name)) {
                b->is_generic = true;
                continue;
            }
            uint32_t *profile = &b->profiles_used[b->n_profiles_used++];
            DS_TRY(ds_profiles_find_profile(b->profiles, name, attr->loc, profile, err));
            b->is_ideal = b->is_ideal || *profile == 0;
        }
        return DS_OK;
    }
    return DS_OK;
}

ds_status ds_plan__generic_of(const ds_profiles *profiles, uint32_t kind, ds_loc loc,
                              uint32_t *profile, ds_error *err) {
    *profile = ds_profiles_generic(profiles, kind);
    if (*profile) return DS_OK;
    return ds_error_set(err, DS_ERR_VALUE, loc,
                        "profile = generic: no published table of operations of %s is known here, "
                        "so the kind has no generic profile",
                        ds_profiles_kind(profiles, kind)->name);
}

ds_status ds_plan_profile_of(const ds_binding *binding, const ds_profiles *profiles, uint32_t kind,
                             ds_cost_source *out, ds_error *err) {
    const char *key = ds_scenario_find(binding->unit, "", "profile") ? "profile" : "profiles";
    uint32_t n = ds_scenario_text_count(binding->unit, "", key);
    bool is_ideal = false, is_generic = false;
    *out = (ds_cost_source){.kind = kind};
    for (uint32_t i = 0; i < n; i++) {
        const char *name;
        uint32_t profile;
        DS_TRY(ds_scenario_text_at(binding, "", key, i, &name, err));
        if (ds_profiles_means_generic(name)) {
            is_generic = true;
            continue;
        }
        DS_TRY(ds_profiles_find_profile(profiles, name, DS_NOWHERE, &profile, err));
        is_ideal = is_ideal || profile == 0;
        if (ds_profile_kind(profiles, profile) == kind) out->profile = profile;
    }
    if (out->profile || is_ideal) return DS_OK;
    if (is_generic) return ds_plan__generic_of(profiles, kind, DS_NOWHERE, &out->profile, err);
    out->profile = ds_profiles_default(profiles, kind);
    out->is_default = out->profile != 0;
    return DS_OK;
}

static ds_status find_entry(ds_builder *b, ds_error *err) {
    if (!ds_unit_scenario(b->unit))
        return ds_error_set(
            err, DS_ERR_VALUE, (ds_loc){b->root->path, 1, 1, 1},
            "nothing to run: the file has no scenario block; add scenario { model = "
            "@NAME, on = @NAME }");
    b->program = ds_scenario_ranks(b->unit);
    if (!b->program) b->entry = ds_scenario_program_func(b->unit);
    if (!b->program && !b->entry && ds_scenario_model(b->unit))
        return ds_error_set(err, DS_ERR_UNSUPPORTED, ds_unit_scenario(b->unit)->loc,
                            "a model is no program yet: passes make one of it (ds_simulate)");
    if (!b->program && !b->entry)
        return ds_error_set(err, DS_ERR_VALUE, ds_unit_scenario(b->unit)->loc,
                            "nothing to run: the scenario names neither a program nor a model");
    if (b->entry && b->entry->n_mesh_params)
        return ds_error_set(err, DS_ERR_TYPE, b->entry->loc,
                            "@%s has mesh parameters; the entry of a run must have none",
                            b->entry->name);
    return DS_OK;
}

/* Where values without `on` live: the scenario's mesh; else the first device of `on = @box`. */
static ds_status find_default_place(ds_builder *b, ds_error *err) {
    b->default_place = b->computed = DS_NONE;
    ds_mesh *mesh = ds_scenario_mesh(b->unit);
    ds_topology *topology = ds_scenario_topology(b->unit);
    if (mesh) DS_TRY(ds_plan__mesh(b, mesh, &b->default_place, err));
    if (topology) DS_TRY(ds_plan__use_topology(b, topology, topology->loc, err));
    if (!b->plan->topo && b->root->topologies.n == 1)
        DS_TRY(ds_plan__use_topology(b, b->root->topologies.at[0], b->root->topologies.at[0]->loc,
                                     err));
    if (b->plan->topo && !mesh && topology) b->default_place = ds_plan__single(b, 0);
    if (!b->program) return DS_OK;
    if (!b->plan->topo)
        return ds_error_set(err, DS_ERR_VALUE, b->program->loc,
                            "a per-rank program needs devices: say `on = @topology` or "
                            "`mesh = @mesh` in the scenario");
    uint32_t place = mesh ? b->default_place : ds_plan__devices_in_order(b);
    b->rank_devices = ds_plan__placement(b, place)->devices;
    b->n_rank_devices = ds_plan__placement(b, place)->n_devices;
    if (!b->plan->rank_of) {
        b->plan->rank_of = DS_NEW_N(&b->plan->arena, uint32_t, b->plan->n_devices);
        for (uint32_t d = 0; d < b->plan->n_devices; d++) b->plan->rank_of[d] = DS_NONE;
    }
    for (uint32_t r = 0; r < b->n_rank_devices; r++) b->plan->rank_of[b->rank_devices[r]] = r;
    return DS_OK;
}

static ds_status read_extras(ds_builder *b, ds_error *err) {
    DS_TRY(ds_scenario_int(b->binding, "", "batch", &b->plan->samples, err));
    return ds_scenario_text(b->binding, "", "title", &b->plan->title, err);
}

static ds_status walk(ds_builder *b, int64_t steps, ds_error *err) {
    DS_TRY(find_entry(b, err));
    DS_TRY(ds_plan__find_profiles(b, err));
    DS_TRY(ds_plan__find_kernels(b, err));
    DS_TRY(find_default_place(b, err));
    DS_TRY(ds_plan__count_used(b, err));
    return ds_plan__walk(b, steps, err);
}

/* Tasks that there are if every device is a class of its own. */
static uint64_t n_unfolded(const ds_plan *plan) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < plan->insts.n; i++) {
        const ds_record *r = plan->records.at[plan->insts.at[i].record];
        if (r->kind != DS_REC_INPUT) n += r->n_devices;
    }
    return n;
}

/* `own` are the builder's options. */
static ds_status build_plan(ds_builder *b, ds_plan_options *own, ds_error *err) {
    DS_TRY(own->n_jobs ? ds_plan__jobs(b, walk, err) : walk(b, 1, err));
    DS_TRY(read_extras(b, err));
    ds_plan__saves(b->plan, b->options->keeps_products);
    if (own->unfold_up_to) own->unfold = own->unfold || n_unfolded(b->plan) <= own->unfold_up_to;
    b->plan->unfolded = own->unfold;
    bool schematic = b->options->schematic != NULL;
    DS_TRY(ds_plan__turn_holds(b));
    if (!b->plan->topo && !schematic)
        return ds_error_set(err, DS_ERR_VALUE, ds_unit_scenario(b->unit)->loc,
                            "the program names no devices: say `on = @topology` in the scenario");
    if (!b->options->stepwise && !schematic) DS_TRY(ds_plan__sharing(b, err));
    ds_plan__classes(b);
    if (!b->plan->n_classes)
        return ds_error_set(err, DS_ERR_VALUE, ds_unit_scenario(b->unit)->loc,
                            "nothing to run: the program has neither values nor ops");
    DS_TRY(ds_plan__expand(b, err));
    return b->options->stepwise ? ds_plan__stepwise(b, err) : ds_plan__flows(b, err);
}

/* Ranks' devices are never folded; beside them no others are. */
static bool has_rank_job(const ds_plan_options *options) {
    bool found = false;
    for (uint32_t j = 0; j < options->n_jobs && !found; j++) {
        const ds_plan_job *job = &options->jobs[j];
        ds_scenario old = *ds_unit_scenario(job->binding->unit);
        if (job->scenario) ds_scenario_restore(job->binding->unit, job->scenario);
        found = ds_scenario_ranks(job->binding->unit) != NULL;
        ds_scenario_restore(job->binding->unit, &old);
    }
    return found;
}

void ds_plan__deinit(ds_builder *b) {
    ds_map_deinit(&b->placement_index);
    ds_map_deinit(&b->mesh_index);
    ds_map_deinit(&b->slices);
    ds_map_deinit(&b->split);
    ds_map_deinit(&b->record_index);
    ds_map_deinit(&b->context_of);
    ds_map_deinit(&b->indices_of);
    ds_map_deinit(&b->repeats_of);
    ds_map_deinit(&b->alike);
    ds_map_deinit(&b->types);
    ds_map_deinit(&b->sizes);
    ds_map_deinit(&b->contexts);
    free(b->words.list.at);
    free(b->reads.at);
    ds_map_deinit(&b->store_of);
    ds_map_deinit(&b->host_points);
    free(b->holds.at);
    ds_plan__kernels_deinit(b);
    ds_plan__stamps_deinit(b);
    ds_plan__sharing_deinit(&b->sharing);
    ds_plan__congruent_deinit(b);
    ds_plan__turn_deinit(b);
}

/* The profiles of what the scenario calls the machine (`without`, `overlap`, `what_if`). */
static ds_status change_costs(ds_plan *plan, bool stepwise, const ds_profiles **profiles,
                              ds_error *err) {
    uint32_t without;
    ds_what_if what_if;
    DS_TRY(ds_terms_read(plan->binding, &without, err));
    DS_TRY(ds_what_if_read(plan->binding, &what_if, err));
    if (stepwise && without & (DS_TERM_BANDWIDTH | DS_TERM_WAITS))
        return ds_error_set(err, DS_ERR_UNSUPPORTED,
                            ds_scenario_find(plan->binding->unit, "", "without")->loc,
                            "without = bandwidth and without = waits are for `network = fluid`: "
                            "messages are sent by somebody over some link");
    *profiles = ds_profiles_without(*profiles, without, &plan->arena);
    *profiles = ds_profiles_what_if(*profiles, &what_if, &plan->arena);
    plan->profiles = *profiles;
    return DS_OK;
}

/* *again: make every part; then: the program does not repeat where its mesh does. */
static ds_status build_once(const ds_binding *binding, const ds_profiles *profiles,
                            const ds_plan_options *options, bool *again, ds_plan **out,
                            ds_error *err) {
    ds_plan *plan = *out = ds_xcalloc(1, sizeof *plan);
    ds_arena_init(&plan->arena);
    plan->binding = binding;
    ds_status told = change_costs(plan, options->stepwise, &profiles, err);
    if (told != DS_OK) {
        ds_plan_free(plan);
        *out = NULL;
        return told;
    }
    plan->cost_mode = options->cost_mode;
    ds_plan_options own = *options;
    own.unfold = own.unfold || own.stepwise || has_rank_job(options);
    if (own.ground) ds_ground__make_room(own.ground);
    ds_builder b = {.plan = plan,
                    .unit = binding->unit,
                    .binding = binding,
                    .profiles = profiles,
                    .options = &own,
                    .root = binding->unit->modules.at[0],
                    .unturned = *again};
    ds_status status = build_plan(&b, &own, err);
    *again = b.turn.refused;
    ds_plan__deinit(&b);
    if (status != DS_OK) {
        ds_plan_free(plan);
        *out = NULL;
    }
    return status;
}

ds_status ds_plan_build(const ds_binding *binding, const ds_profiles *profiles,
                        const ds_plan_options *options, ds_plan **out, ds_error *err) {
    bool again = false;
    ds_status status = build_once(binding, profiles, options, &again, out, err);
    return again ? build_once(binding, profiles, options, &again, out, err) : status;
}

void ds_plan_free(ds_plan *plan) {
    if (!plan) return;
    if (!plan->borrows_topo) ds_topo_free(plan->topo);
    free(plan->insts.at);
    free(plan->values.at);
    free(plan->operands.at);
    free(plan->scopes.at);
    free(plan->copies.at);
    free(plan->repeats.at);
    free(plan->repeat_of);
    free(plan->gates);
    free(plan->task_inst);
    free(plan->task_class);
    free(plan->task_stream);
    free(plan->task_activity);
    free(plan->task_ps);
    free(plan->task_issue_ps);
    free(plan->task_pause);
    free(plan->pauses);
    free(plan->task_n_pred);
    free(plan->succ_first);
    free(plan->succ);
    free(plan->activities);
    free(plan->members);
    free(plan->flows);
    free(plan->link_uses);
    free(plan->steps);
    free(plan->step_succ);
    free(plan->link_capacity_q20);
    free(plan->streams);
    free(plan->stream_tasks);
    ds_arena_deinit(&plan->arena);
    free(plan);
}

/* ---- paths ---- */

static const char *own_name(const ds_func *func, const ds_op *op) {
    const char *name =
        ds_attr_text(&func->module->unit->exprs, ds_attr_find(op->attrs, op->n_attrs, "name"));
    if (name) return name;
    return op->n_out ? ds_value_at(func, op->out[0])->name : ds_op_name(op->code);
}

void ds_plan_scope_name(const ds_plan *plan, uint32_t scope, ds_buf *out) {
    const ds_scope *s = &plan->scopes.at[scope];
    if (!s->op) {
        ds_buf_put(out, s->func->name ? s->func->name : "rank");
    } else if (s->op->code == DS_OP_FOR) {
        ds_buf_put(out, s->op->index);
        ds_buf_putc(out, '[');
        ds_buf_put_int(out, s->index);
        ds_buf_putc(out, ']');
    } else {
        ds_buf_put(out, own_name(s->func, s->op));
    }
}

const char *ds_plan_inst_name(const ds_plan *plan, uint32_t inst) {
    const ds_inst *i = &plan->insts.at[inst];
    const ds_record *r = plan->records.at[i->record];
    return r->op ? own_name(r->func, r->op) : plan->values.at[i->first_value].name;
}

static void scope_path(const ds_plan *plan, uint32_t scope, ds_buf *out) {
    const ds_scope *s = &plan->scopes.at[scope];
    if (s->up != DS_NONE) {
        scope_path(plan, s->up, out);
        ds_buf_putc(out, '/');
    }
    ds_plan_scope_name(plan, scope, out);
}

uint32_t ds_plan_job_of(const ds_plan *plan, uint32_t inst) {
    uint32_t job = 0;
    while (job + 1 < plan->n_jobs && inst >= plan->jobs[job + 1].first_inst) job++;
    return job;
}

static void job_path(const ds_plan *plan, uint32_t inst, ds_buf *out) {
    const ds_plan_job *job = &plan->jobs[ds_plan_job_of(plan, inst)];
    const ds_scope *s = &plan->scopes.at[plan->insts.at[inst].scope];
    while (s->up != DS_NONE) s = &plan->scopes.at[s->up];
    ds_buf_put(out, job->name);
    if (job->steps > 1) ds_buf_printf(out, "[%lld]", (long long)s->index);
    ds_buf_putc(out, '/');
}

void ds_plan_path(const ds_plan *plan, uint32_t inst, ds_buf *out) {
    if (plan->n_jobs) job_path(plan, inst, out);
    scope_path(plan, plan->insts.at[inst].scope, out);
    ds_buf_putc(out, '/');
    ds_buf_put(out, ds_plan_inst_name(plan, inst));
}

void ds_plan_task_label(const ds_plan *plan, uint32_t task, ds_buf *out) {
    const ds_class *c = &plan->classes[plan->task_class[task]];
    const ds_scope *s = &plan->scopes.at[plan->insts.at[plan->task_inst[task]].scope];
    while (s->up != DS_NONE) s = &plan->scopes.at[s->up];
    if (s->func->rank >= 0)
        ds_buf_printf(out, "rank %lld", (long long)s->func->rank);
    else
        ds_buf_put(out, ds_topo_device_path(plan->topo, c->device));
    ds_buf_printf(out, " %s ", ds_plan_task_record(plan, task)->label);
    ds_plan_path(plan, plan->task_inst[task], out);
}
