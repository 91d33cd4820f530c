/* Whole simulations, remembered by the numbers of the actions. */
#include "search/tag/whole.h"

#include "ir/base/map.h"
#include "ir/verify/verify.h"
#include "sim/run/run.h"

#include <stdlib.h>
#include <string.h>

typedef struct known {
    uint32_t *choice;
    ds_tag_simulated result;
} known;

struct ds_tag_whole {
    const ds_pase_source *source;
    const ds_profiles *profiles;
    const ds_tag_model *model;
    const ds_tag_fast *fast;
    ds_arena arena;
    ds_map by_hash;
    DS_VEC(known) known;
    ds_plan_ground *ground;
};

ds_tag_whole *ds_tag_whole_new(const ds_pase_source *source, const ds_profiles *profiles,
                               const ds_tag_model *model, const ds_tag_fast *fast) {
    ds_tag_whole *w = ds_xcalloc(1, sizeof *w);
    *w = (ds_tag_whole){.source = source, .profiles = profiles, .model = model, .fast = fast};
    ds_arena_init(&w->arena);
    ds_map_init(&w->by_hash);
    w->ground = ds_plan_ground_new();
    return w;
}

void ds_tag_whole_free(ds_tag_whole *w) {
    if (!w) return;
    ds_plan_ground_free(w->ground);
    ds_map_deinit(&w->by_hash);
    ds_arena_deinit(&w->arena);
    free(w);
}

uint64_t ds_tag_whole_count(const ds_tag_whole *whole) {
    return whole->known.n;
}

ds_status ds_tag_whole_text(const ds_tag_whole *w, const uint32_t *choice, ds_buf *text,
                            ds_error *err) {
    const ds_pase_source *s = w->source;
    ds_unit *unit = NULL;
    ds_status status = ds_load_text(s->path, s->text, s->n, &s->load, &unit, err);
    if (!status) ds_tag_write(unit, w->model, w->fast, choice, text);
    ds_unit_free(unit);
    return status;
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

static ds_status simulate(ds_tag_whole *w, const ds_buf *text, ds_tag_simulated *out,
                          ds_error *err) {
    ds_load_options load = w->source->load;
    ds_unit *unit = NULL;
    ds_result *result = NULL;
    ds_binding binding;
    ds_sim_options options = {0};
    load.has_settings = true;
    ds_status status = ds_load_text(w->source->path, text->text, text->n, &load, &unit, err);
    if (!status) status = verify(unit, w->source, &binding, err);
    if (!status) status = ds_sim_options_read(&binding, &options, err);
    options.ground = w->ground;
    options.trust_passes = true;
    if (!status) status = ds_simulate(&binding, w->profiles, &options, &result, err);
    if (!status)
        *out = (ds_tag_simulated){.step_ps = result->run.step_ps,
                                  .peak_bytes = result->metrics.peak_bytes,
                                  .fits = result->metrics.fits};
    ds_result_free(result);
    ds_unit_free(unit);
    return status;
}

ds_tag_simulated ds_tag_whole_simulate(ds_tag_whole *w, const uint32_t *choice, ds_error *err) {
    size_t bytes = w->model->problem.graph.n_groups * sizeof *choice;
    uint64_t hash = ds_hash_bytes(choice, bytes);
    for (const uint64_t *found; (found = ds_map_find(&w->by_hash, hash)); hash++) {
        const known *k = &w->known.at[*found];
        if (memcmp(k->choice, choice, bytes) == 0) return k->result;
    }
    known k = {.choice = DS_NEW_N(&w->arena, uint32_t, w->model->problem.graph.n_groups + 1)};
    ds_buf text = {0};
    memcpy(k.choice, choice, bytes);
    ds_status status = ds_tag_whole_text(w, choice, &text, err);
    if (!status) status = simulate(w, &text, &k.result, err);
    if (status) k.result = (ds_tag_simulated){.step_ps = INT64_MAX, .status = status};
    ds_buf_deinit(&text);
    ds_map_put(&w->by_hash, hash, w->known.n);
    DS_PUSH(&w->arena, &w->known, k);
    return k.result;
}
