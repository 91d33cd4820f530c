/* Changes that make a model's step fit: single changes of its strategy, each simulated.
 *
 * To simulate a change, the adviser writes the change into the unit's scenario (ds_scenario_set)
 * and restores the old scenario afterwards. Changes that the passes refuse are left out: the model
 * or the devices cannot take such a change. If no change suffices alone, the adviser keeps the best
 * change and adds the next best, and so on. */
#include "ir/strategy/scenario.h"
#include "sim/report/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CHANGES  12
#define MAX_COMBINED 5

/* One knob, or two that keep the number of devices (tp up, dp down), or the batch. */
typedef struct change {
    const char *knobs[2]; /* of `strategy`; NULL: none */
    ds_attr attrs[2];
    const char *param; /* the batch: path of its param, as in --set; else NULL */
    int64_t batch;
    char text[64];
} change;

typedef struct adviser {
    ds_unit *unit;
    const ds_binding *binding;
    const ds_profiles *profiles;
    const ds_sim_options *options;
    const ds_setting *settings;
    uint32_t n_settings;
    const ds_strategy *strategy;
    change changes[MAX_CHANGES];
    uint32_t n_changes;
} adviser;

/* ---- possible changes ---- */

static change *add_change(adviser *a) {
    change *c = &a->changes[a->n_changes++];
    *c = (change){0};
    return c;
}

static void add_int(adviser *a, const char *knob, int64_t value) {
    change *c = add_change(a);
    c->knobs[0] = knob;
    c->attrs[0] = (ds_attr){.kind = DS_ATTR_EXPR, .expr = ds_expr_int(&a->unit->exprs, value)};
    snprintf(c->text, sizeof c->text, "%s = %lld", knob, (long long)value);
}

static void add_word(adviser *a, const char *knob, const char *word) {
    change *c = add_change(a);
    c->knobs[0] = knob;
    c->attrs[0] = (ds_attr){.kind = DS_ATTR_WORD, .word = ds_intern(&a->unit->strings, word)};
    snprintf(c->text, sizeof c->text, "%s = %s", knob, word);
}

static void add_tp(adviser *a) {
    int64_t tp = 2 * a->strategy->tp, dp = a->strategy->dp;
    /* sizes are the file's, or stages have their own */
    if (ds_scenario_mesh(a->unit) || a->strategy->stage_tp) return;
    add_int(a, "tp", tp);
    if (dp % 2) return; /* twice the devices, if the topology has as many */
    change *c = &a->changes[a->n_changes - 1];
    c->knobs[1] = "dp";
    c->attrs[1] = (ds_attr){.kind = DS_ATTR_EXPR, .expr = ds_expr_int(&a->unit->exprs, dp / 2)};
    snprintf(c->text, sizeof c->text, "tp = %lld, dp = %lld", (long long)tp, (long long)dp / 2);
}

/* ---- the batch ---- */

static const ds_expr_node *param_of(const adviser *a, ds_expr e) {
    const ds_expr_node *node = ds_expr_at(&a->unit->exprs, e);
    return node->kind == DS_EXPR_PARAM ? node : NULL;
}

/* The name of the param for --set; where an import passes a param of the root on, the root's. */
static const char *param_path(const adviser *a, const ds_expr_node *param) {
    uint32_t id = (uint32_t)((uint64_t)param->i >> 32);
    const ds_module *root = a->unit->modules.at[0], *module = a->unit->modules.at[id];
    if (module == root) return param->name;
    for (uint32_t i = 0; i < root->imports.n; i++) {
        const ds_import *import = &root->imports.at[i];
        if (import->module != module) continue;
        const ds_attr *with = ds_attr_find(import->with, import->n_with, param->name);
        const ds_expr_node *from =
            with && with->kind == DS_ATTR_EXPR ? param_of(a, with->expr) : NULL;
        if (from && (uint64_t)from->i >> 32 == 0) return from->name;
        return import->alias ? ds_arena_printf(&a->unit->arena, "%s.%s", import->alias, param->name)
                             : param->name;
    }
    return NULL;
}

/* Half the batch, where a model's first input has a param as its number of samples. */
static void add_batch(adviser *a) {
    const ds_func *model = ds_scenario_model(a->unit);
    const ds_type *type = model->n_args ? ds_value_at(model, model->args[0])->type : NULL;
    if (!type || !type->rank) return;
    const ds_expr_node *param = param_of(a, type->dims[0].size);
    const char *path = param ? param_path(a, param) : NULL;
    int64_t batch;
    ds_env env = ds_binding_env(a->binding, NULL);
    if (!path || ds_expr_eval_int(&env, type->dims[0].size, DS_NOWHERE, &batch, NULL) != DS_OK ||
        batch % 2)
        return;
    change *c = add_change(a);
    c->param = path;
    c->batch = batch / 2;
    snprintf(c->text, sizeof c->text, "%.40s = %lld", path, (long long)c->batch);
}

static void find_changes(adviser *a) {
    const ds_strategy *s = a->strategy;
    for (int64_t zero = s->zero + 1; zero <= 3 && (s->dp > 1 || s->stage_dp); zero++)
        add_int(a, "zero", zero);
    if (s->recompute == DS_RECOMPUTE_NONE) add_word(a, "recompute", "selective");
    if (s->recompute == DS_RECOMPUTE_NONE || s->recompute == DS_RECOMPUTE_SELECTIVE)
        add_word(a, "recompute", "full");
    if (!s->offload) add_word(a, "offload", "activations");
    if (!s->offload) add_word(a, "offload", "optimizer");
    if (s->tp > 1 && !s->sp) add_word(a, "sp", "on");
    add_int(a, "microbatches", 2 * s->microbatches);
    add_tp(a);
    add_batch(a);
}

/* ---- one simulation ---- */

static ds_status bind_batch(const adviser *a, const change *const *picked, uint32_t n,
                            ds_binding *binding, ds_error *err) {
    char text[32];
    ds_setting *settings = ds_xcalloc((size_t)a->n_settings + 1, sizeof *settings);
    uint32_t n_settings = a->n_settings;
    if (n_settings) memcpy(settings, a->settings, n_settings * sizeof *settings);
    for (uint32_t i = 0; i < n; i++) {
        if (!picked[i]->param) continue;
        snprintf(text, sizeof text, "%lld", (long long)picked[i]->batch);
        settings[n_settings++] = (ds_setting){.path = picked[i]->param, .text = text};
    }
    ds_status status = ds_bind(a->unit, settings, n_settings, binding, err);
    free(settings);
    return status;
}

/* Simulates with all `picked` changes. */
static void try(const adviser *a, const change *const *picked, uint32_t n, ds_advice *out) {
    ds_scenario old = *ds_unit_scenario(a->unit);
    ds_binding binding = *a->binding;
    ds_result *result = NULL;
    bool batch = false;
    *out = (ds_advice){0};
    for (uint32_t i = 0; i < n; i++) {
        size_t used = strlen(out->change);
        snprintf(out->change + used, sizeof out->change - used, "%s%s", i ? ", " : "",
                 picked[i]->text);
        batch = batch || picked[i]->param;
        for (int k = 0; k < 2 && picked[i]->knobs[k]; k++)
            ds_scenario_set(a->unit, "strategy", picked[i]->knobs[k], picked[i]->attrs[k]);
    }
    ds_status status = batch ? bind_batch(a, picked, n, &binding, NULL) : DS_OK;
    if (status == DS_OK) status = ds_simulate(&binding, a->profiles, a->options, &result, NULL);
    ds_scenario_restore(a->unit, &old);
    if (status != DS_OK) return;
    out->runs = true;
    out->metrics = result->metrics;
    ds_result_free(result);
}

/* ---- the search ---- */

/* The change that leaves the least memory, of the changes that are not used yet and whose knobs are
 * not set either. Half the batch, which is another step, only when no other change is left. */
static uint32_t best_left(const adviser *a, const ds_result *r, const change *const *picked,
                          uint32_t n) {
    uint32_t best = DS_NONE;
    for (uint32_t i = 0; i < a->n_changes; i++) {
        const ds_advice *trial = &r->advice[i];
        bool clash = !trial->runs || trial->metrics.peak_bytes >= r->metrics.peak_bytes;
        for (uint32_t k = 0; k < n && !clash; k++)
            for (int j = 0; j < 4 && !clash; j++) {
                const char *x = picked[k]->knobs[j / 2], *y = a->changes[i].knobs[j % 2];
                clash = picked[k] == &a->changes[i] || (x && y && strcmp(x, y) == 0);
            }
        if (clash) continue;
        bool batch = a->changes[i].param, best_batch = best != DS_NONE && a->changes[best].param;
        if (best == DS_NONE || (best_batch && !batch) ||
            (best_batch == batch && trial->metrics.peak_bytes < r->advice[best].metrics.peak_bytes))
            best = i;
    }
    return best;
}

static void combine(const adviser *a, ds_result *r) {
    const change *picked[MAX_COMBINED];
    uint32_t n = 0;
    while (n < MAX_COMBINED) {
        uint32_t next = best_left(a, r, picked, n);
        if (next == DS_NONE) return;
        picked[n++] = &a->changes[next];
        if (n == 1) continue;
        ds_advice *out = &r->advice[r->n_advice];
        try(a, picked, n, out);
        if (!out->runs) return;
        r->n_advice++;
        if (out->metrics.fits) return;
    }
}

void ds_advise(ds_result *r, const ds_profiles *profiles, const ds_sim_options *options,
               const ds_setting *settings, uint32_t n_settings) {
    if (r->metrics.fits || !r->step || r->advice) return;
    ds_sim_options quiet = *options;
    quiet.progress = NULL;
    adviser a = {.unit = r->source->unit,
                 .binding = r->source,
                 .profiles = profiles,
                 .options = &quiet,
                 .settings = settings,
                 .n_settings = n_settings,
                 .strategy = &r->step->strategy};
    find_changes(&a);
    r->advice = ds_xcalloc((size_t)a.n_changes + MAX_COMBINED, sizeof *r->advice);
    bool fits = false;
    for (uint32_t i = 0; i < a.n_changes; i++) {
        const change *one = &a.changes[i];
        try(&a, &one, 1, &r->advice[r->n_advice++]);
        fits = fits || r->advice[i].metrics.fits;
    }
    if (!fits) combine(&a, r);
}

/* ---- texts ---- */

static void put_line(const ds_result *r, const ds_advice *d, ds_buf *out) {
    ds_buf_printf(out, "  %10s  %10s a step  %8.4g %s/s  %s\n",
                  ds_report__bytes(d->metrics.peak_bytes).s, ds_report__ps(d->metrics.step_ps).s,
                  d->metrics.throughput_per_s, r->plan->samples ? "samples" : "steps", d->change);
}

static void put_all(const ds_result *r, bool fits, const char *title, ds_buf *out) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n_advice; i++) {
        const ds_advice *d = &r->advice[i];
        if (!d->runs || d->metrics.fits != fits ||
            (!fits && d->metrics.peak_bytes >= r->metrics.peak_bytes))
            continue;
        if (n++ == 0) ds_buf_printf(out, "  %s\n", title);
        put_line(r, d, out);
    }
}

void ds_report__advice(const ds_result *r, ds_buf *out) {
    if (!r->metrics.fits && r->step && !r->advice)
        ds_buf_put(out, "\ndistsim run --advice simulates changes of the strategy and says which "
                        "would fit\n");
    if (!r->advice) return;
    ds_buf_put(out, "\nWhat would make it fit (each simulated)\n");
    bool fits = false;
    for (uint32_t i = 0; i < r->n_advice; i++) fits = fits || r->advice[i].metrics.fits;
    put_all(r, true, "fits:", out);
    if (!fits) ds_buf_put(out, "  none of the changes that were tried does\n");
    put_all(r, false, "less, but still too much:", out);
}

void ds_report__put_advice(ds_json *json, const ds_result *r) {
    static const ds_metric_id shown[] = {DS_METRIC_fits, DS_METRIC_step_ps,
                                         DS_METRIC_throughput_per_s, DS_METRIC_peak_bytes,
                                         DS_METRIC_capacity_bytes};
    if (!r->advice) return;
    ds_json_key(json, "advice");
    ds_json_begin_array(json);
    for (uint32_t i = 0; i < r->n_advice; i++) {
        const ds_advice *d = &r->advice[i];
        if (!d->runs) continue;
        ds_json_begin_object(json);
        ds_json_key_string(json, "change", d->change);
        for (size_t k = 0; k < sizeof shown / sizeof *shown; k++)
            ds_metric_put_json(&d->metrics, shown[k], json);
        ds_json_end_object(json);
    }
    ds_json_end_array(json);
}
