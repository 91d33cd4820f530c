/* Whole simulations, remembered by the numbers of the actions.
 *
 * A bench is what one thread simulates with: the step as `recompute` leaves it, which goes back there
 * after each deployment, the topology, and the times of transfers so far. Each thread takes a bench
 * that lies idle, or makes one. */
#include "search/tag/whole.h"

#include "ir/base/map.h"
#include "ir/core/devices.h"
#include "ir/passes/build/path.h"
#include "ir/passes/snapshot.h"
#include "ir/strategy/group.h"
#include "ir/strategy/scenario.h"
#include "ir/verify/verify.h"
#include "sim/run/run.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct known {
    uint32_t *choice;
    ds_tag_simulated result;
} known;

typedef struct bench {
    struct bench *next;
    ds_unit *unit;
    ds_binding binding;
    ds_sim_options options;
    ds_model_step *step;
    ds_step_mark *mark;
    ds_topo *topo;
    int64_t samples;
} bench;

struct ds_tag_whole {
    const ds_pase_source *source;
    const ds_profiles *profiles;
    const ds_tag_choices *choices;
    ds_arena arena;
    ds_map by_hash;
    DS_VEC(known) known;
    bench *idle;
    pthread_mutex_t lock; /* of all that is above */
};

uint64_t ds_tag_whole_count(const ds_tag_whole *whole) {
    return whole->known.n;
}

ds_status ds_tag_whole_text(const ds_tag_whole *w, const uint32_t *choice, ds_buf *text,
                            ds_error *err) {
    const ds_pase_source *s = w->source;
    ds_unit *unit = NULL;
    ds_buf meshes = {0};
    DS_TRY(ds_load_text(s->path, s->text, s->n, &s->load, &unit, err));
    if (choice) ds_tag_put(unit, w->choices, choice);
    ds_tag_put_meshes(unit, w->choices, choice, &meshes);
    ds_print_module(unit->modules.at[0], text);
    ds_buf_putc(text, '\n');
    ds_buf_put(text, meshes.text ? meshes.text : "");
    ds_buf_deinit(&meshes);
    ds_unit_free(unit);
    return DS_OK;
}

static ds_status verify(ds_unit *unit, const ds_pase_source *s, ds_binding *binding,
                        ds_error *err) {
    ds_diags diags;
    ds_diags_init(&diags);
    ds_status status = ds_verify(unit, &diags);
    if (!status) status = ds_bind(unit, s->settings, s->n_settings, binding, err);
    if (!status) status = ds_verify_bound(unit, binding, &diags);
    for (uint32_t i = diags.all.n; status && i-- > 0;)
        if (diags.all.at[i].severity == DS_SEV_ERROR)
            ds_error_set(err, status, DS_NOWHERE, "%s", diags.all.at[i].message);
    ds_diags_deinit(&diags);
    return status;
}

/* ---- groups of the scenario ---- */

static ds_status gpus_of(const ds_tag_whole *w, const ds_binding *binding, const ds_op_group *group,
                         uint64_t *gpus, ds_error *err) {
    const ds_tag_model *m = w->choices->model;
    const ds_mesh *mesh = group->on ? ds_find_mesh(binding->unit->modules.at[0], group->on) : NULL;
    int64_t n = 0, device;
    *gpus = mesh ? 0 : ds_tag_gpus_of(&m->problem.cluster, UINT64_MAX);
    if (mesh) DS_TRY(ds_mesh_count_devices(binding, mesh, &n, err));
    for (int64_t i = 0; i < n; i++) {
        DS_TRY(ds_mesh_device_at(binding, mesh, i, &device, err));
        for (uint32_t g = 0; g < ds_tag_n_gpus(&m->problem.cluster); g++)
            if (m->device[g] == device) *gpus |= UINT64_C(1) << g;
    }
    return DS_OK;
}

/* The number of the action with the devices and the way, with shares if the group has some. */
static ds_status action_of(const ds_tag_whole *w, const ds_binding *binding,
                           const ds_op_group *group, uint32_t *action, ds_error *err) {
    const ds_tag_choices *c = w->choices;
    bool shares = group->shares || group->shares_by_time;
    uint64_t gpus;
    DS_TRY(gpus_of(w, binding, group, &gpus, err));
    for (*action = 0; *action < c->n; ++*action) {
        const ds_tag_action *a = &c->action[*action];
        bool is_way = group->by == DS_GROUP_DUPLICATE    ? a->way == DS_TAG_DUPLICATE
                      : group->by == DS_GROUP_ALL_REDUCE ? a->way == DS_TAG_ALL_REDUCE
                                                         : false;
        if (a->gpus == gpus && is_way && (a->share != NULL) == shares) return DS_OK;
    }
    return ds_error_set(
        err, DS_ERR_UNSUPPORTED, group->loc,
        "group \"%s\": the tree search has no action with these devices, by = %s and "
        "%s shares to begin from",
        group->name, ds_group_way_word(group->by), shares ? "unequal" : "equal");
}

static ds_status read_start(const ds_tag_whole *w, const ds_binding *binding, uint32_t *choice,
                            bool *is_given, ds_error *err) {
    const ds_tag_model *m = w->choices->model;
    const ds_attr *groups = ds_strategy_groups(binding->unit);
    const char *model = ds_scenario_model(binding->unit)->name;
    *is_given = groups != NULL;
    for (uint32_t i = groups ? groups->n_items : 0; i-- > 0;) {
        ds_op_group group;
        uint32_t action, n = 0;
        DS_TRY(ds_group_read(binding, &groups->items[i], &group, err));
        DS_TRY(action_of(w, binding, &group, &action, err));
        for (uint32_t k = 0; k < group.n_ops; k++)
            for (uint32_t b = m->n_base; b-- > 0;)
                if (ds_path_match(group.ops[k], model, NULL, m->base[b].name, NULL)) {
                    choice[m->group_of[b]] = action;
                    n++;
                }
        if (n == 0)
            return ds_error_set(
                err, DS_ERR_UNSUPPORTED, group.loc,
                "group \"%s\" names no whole operation of the model: the tree search "
                "cannot begin from it",
                group.name);
    }
    return DS_OK;
}

ds_status ds_tag_whole_start(const ds_tag_whole *w, uint32_t *choice, bool *is_given,
                             ds_error *err) {
    const ds_pase_source *s = w->source;
    ds_unit *unit = NULL;
    ds_binding binding;
    memset(choice, 0, w->choices->model->problem.graph.n_groups * sizeof *choice);
    ds_status status = ds_load_text(s->path, s->text, s->n, &s->load, &unit, err);
    if (!status) status = verify(unit, s, &binding, err);
    if (!status) status = read_start(w, &binding, choice, is_given, err);
    ds_unit_free(unit);
    return status;
}

/* Opens the text with the deployment; NULL: with the meshes of all. */
static ds_status open_text(const ds_tag_whole *w, const uint32_t *choice, bench *b, ds_error *err) {
    ds_load_options load = w->source->load;
    ds_buf text = {0};
    load.has_settings = true;
    ds_status status = ds_tag_whole_text(w, choice, &text, err);
    if (!status) status = ds_load_text(w->source->path, text.text, text.n, &load, &b->unit, err);
    if (!status) status = verify(b->unit, w->source, &b->binding, err);
    if (!status) status = ds_sim_options_read(&b->binding, &b->options, err);
    ds_buf_deinit(&text);
    return status;
}

/* ---- from the text ---- */

static void refuse(ds_status status, ds_tag_simulated *out) {
    if (status) *out = (ds_tag_simulated){.step_ps = INT64_MAX, .status = status};
}

ds_tag_simulated ds_tag_whole_replay(ds_tag_whole *w, const uint32_t *choice, ds_error *err) {
    bench b = {0};
    ds_result *r = NULL;
    ds_tag_simulated out = {0};
    ds_status status = open_text(w, choice, &b, err);
    b.options.trust_passes = true;
    if (!status) status = ds_simulate(&b.binding, w->profiles, &b.options, &r, err);
    if (!status)
        out = (ds_tag_simulated){r->run.step_ps, r->metrics.peak_bytes, r->metrics.fits, DS_OK};
    refuse(status, &out);
    ds_result_free(r);
    ds_unit_free(b.unit);
    return out;
}

/* ---- one step, sharded again and again ---- */

static void free_bench(bench *b) {
    ds_step_mark_free(b->mark);
    ds_model_step_free(b->step);
    ds_topo_free(b->topo);
    ds_plan_ground_free(b->options.ground);
    ds_unit_free(b->unit);
    free(b);
}

static ds_status fill_bench(const ds_tag_whole *w, bench *b, ds_error *err) {
    DS_TRY(open_text(w, NULL, b, err));
    b->options.ground = ds_plan_ground_new();
    DS_TRY(ds_model_samples(&b->binding, &b->samples, err));
    DS_TRY(ds_model_step_new(&b->binding, &b->step, err));
    b->step->trusted = b->step->schematic = true;
    DS_TRY(ds_model_step_run_to(b->step, DS_PASS_RECOMPUTE, NULL, NULL, err));
    DS_TRY(ds_topo_build(&b->step->binding, ds_scenario_topology(b->step->unit), &b->topo, err));
    b->mark = ds_step_mark_new(b->step);
    return DS_OK;
}

static ds_status new_bench(const ds_tag_whole *w, bench **out, ds_error *err) {
    *out = ds_xcalloc(1, sizeof **out);
    ds_status status = fill_bench(w, *out, err);
    if (status) free_bench(*out);
    return status;
}

static ds_status run_plan(const bench *b, ds_plan *plan, ds_tag_simulated *out, ds_error *err) {
    const ds_sim_options *o = &b->options;
    ds_mem_options options = {o->mem_mode, o->framework, o->keep_masks};
    ds_metrics m = {.fits = true};
    ds_run run;
    ds_mem mem = {0};
    plan->samples = b->samples;
    plan->overhead_ps = b->step->train.iteration_overhead_ps;
    DS_TRY(ds_engine_run(plan, NULL, NULL, &run, err));
    ds_status status = ds_mem_compute(plan, &run, &options, &mem, err);
    for (uint32_t c = 0; !status && c < plan->n_classes; c++)
        ds_metrics_add_peak(&m, c == 0, mem.classes[c].peak_bytes, ds_class_capacity(plan, c));
    *out = (ds_tag_simulated){run.step_ps, m.peak_bytes, m.fits, status};
    ds_mem_deinit(&mem);
    ds_run_deinit(&run);
    return status;
}

/* *by_text: the simulator has to find shares by time first. */
static ds_status simulate(const ds_tag_whole *w, bench *b, const uint32_t *choice,
                          ds_tag_simulated *out, bool *by_text, ds_error *err) {
    ds_model_step *step = b->step;
    ds_strategy strategy;
    ds_plan *plan;
    ds_plan_options options = {
        .ground = b->options.ground, .topo = b->topo, .cost_mode = b->options.cost_mode};
    ds_step_mark_return(b->mark);
    ds_tag_put(step->unit, w->choices, choice);
    DS_TRY(ds_strategy_read(&step->binding, &strategy, err));
    DS_TRY(ds_strategy_check(&step->binding, &strategy, err));
    *by_text = strategy.dp_shares_by_time && strategy.dp > 1;
    if (*by_text) return DS_OK;
    step->strategy = strategy;
    options.keeps_products = ds_strategy_keeps_products(&strategy);
    DS_TRY(ds_model_step_run_to(step, DS_PASS_OVERLAP, NULL, NULL, err));
    DS_TRY(ds_plan_build(&step->binding, w->profiles, &options, &plan, err));
    ds_status status = run_plan(b, plan, out, err);
    ds_plan_free(plan);
    return status;
}

/* ---- what is known ---- */

/* Its number, or with `*hash` the free place for it: known.n. */
static uint32_t find(const ds_tag_whole *w, const uint32_t *choice, uint64_t *hash) {
    size_t bytes = w->choices->model->problem.graph.n_groups * sizeof *choice;
    *hash = ds_hash_bytes(choice, bytes);
    for (const uint64_t *at; (at = ds_map_find(&w->by_hash, *hash)); ++*hash)
        if (memcmp(w->known.at[*at].choice, choice, bytes) == 0) return (uint32_t)*at;
    return w->known.n;
}

static void keep(ds_tag_whole *w, const uint32_t *choice, const ds_tag_simulated *result) {
    uint32_t n = w->choices->model->problem.graph.n_groups;
    uint64_t hash;
    if (find(w, choice, &hash) < w->known.n) return; /* another thread was sooner */
    known k = {DS_NEW_N(&w->arena, uint32_t, n + 1), *result};
    memcpy(k.choice, choice, n * sizeof *choice);
    ds_map_put(&w->by_hash, hash, w->known.n);
    DS_PUSH(&w->arena, &w->known, k);
}

ds_tag_simulated ds_tag_whole_simulate(ds_tag_whole *w, const uint32_t *choice, ds_error *err) {
    ds_tag_simulated out = {0};
    ds_status status = DS_OK;
    uint64_t hash;
    bool by_text = false;
    pthread_mutex_lock(&w->lock);
    uint32_t number = find(w, choice, &hash);
    bool is_known = number < w->known.n;
    bench *b = is_known ? NULL : w->idle;
    if (is_known) out = w->known.at[number].result;
    if (b) w->idle = b->next;
    pthread_mutex_unlock(&w->lock);
    if (is_known) return out;
    if (!b) status = new_bench(w, &b, err);
    if (!status) status = simulate(w, b, choice, &out, &by_text, err);
    refuse(status, &out);
    if (by_text) out = ds_tag_whole_replay(w, choice, err);
    pthread_mutex_lock(&w->lock);
    keep(w, choice, &out);
    if (b) {
        b->next = w->idle;
        w->idle = b;
    }
    pthread_mutex_unlock(&w->lock);
    return out;
}

ds_status ds_tag_whole_new(const ds_pase_source *source, const ds_profiles *profiles,
                           const ds_tag_choices *choices, ds_tag_whole **out, ds_error *err) {
    ds_tag_whole *w = *out = ds_xcalloc(1, sizeof *w);
    *w = (ds_tag_whole){.source = source, .profiles = profiles, .choices = choices};
    ds_arena_init(&w->arena);
    ds_map_init(&w->by_hash);
    pthread_mutex_init(&w->lock, NULL);
    ds_status status = new_bench(w, &w->idle, err);
    if (!status) return DS_OK;
    w->idle = NULL;
    ds_tag_whole_free(w);
    *out = NULL;
    return status;
}

void ds_tag_whole_free(ds_tag_whole *w) {
    if (!w) return;
    for (bench *b = w->idle, *next; b; b = next) {
        next = b->next;
        free_bench(b);
    }
    pthread_mutex_destroy(&w->lock);
    ds_map_deinit(&w->by_hash);
    ds_arena_deinit(&w->arena);
    free(w);
}
