/* Which params say how many layers and samples there are, and what depends on them. */
#include "search/compose/shorten.h"

#include "ir/lang/mentions.h"
#include "ir/passes/build/clone.h"
#include "ir/strategy/scenario.h"

#include <stdlib.h>
#include <string.h>

static bool is_param(const ds_shorter_param *p, const ds_module *module, uint32_t index) {
    return p->module == module && p->index == index;
}

bool ds_shorter_has(const ds_shorter *less, const ds_module *module, uint32_t index) {
    return is_param(&less->layers, module, index) || is_param(&less->batch, module, index);
}

/* ---- what depends on a param ---- */

/* The param, and what is computed from it: by what leaves of expressions have. */
typedef struct search {
    ds_map in;
    uint64_t but_for; /* one that may be mentioned */
    bool found;       /* another one is */
} search;

static void look(void *context, const ds_expr_node *leaf) {
    search *s = context;
    uint64_t key = (uint64_t)leaf->i;
    if (leaf->kind == DS_EXPR_PARAM && key != s->but_for && ds_map_find(&s->in, key))
        s->found = true;
}

/* False: nothing new is computed from what is in. */
static bool add_computed(const ds_binding *binding, search *s) {
    const ds_unit *unit = binding->unit;
    uint32_t before = s->in.n;
    for (uint32_t m = 0; m < unit->modules.n; m++)
        for (uint32_t i = 0; i < unit->modules.at[m]->params.n; i++) {
            s->found = false;
            ds_mentions_expr(&unit->exprs, ds_clone_origin(binding, unit->modules.at[m], i), look,
                             s);
            if (s->found) ds_map_put(&s->in, (uint64_t)m << 32 | i, 1);
        }
    return s->in.n > before;
}

/* Does the scenario mention it or what is computed from it, or (if asked) a function the latter? */
static bool something_depends(const ds_binding *binding, ds_shorter_param of, bool in_funcs) {
    const ds_unit *unit = binding->unit;
    const ds_scenario *scenario = ds_unit_scenario(unit);
    uint64_t key = (uint64_t)of.module->id << 32 | of.index;
    search s = {.but_for = UINT64_MAX};
    ds_map_put(&s.in, key, 1);
    while (add_computed(binding, &s)) continue;
    s.found = false;
    ds_mentions_attrs(&unit->exprs, scenario->entries, scenario->n_entries, look, &s);
    s.but_for = key;
    for (uint32_t m = 0; m < unit->modules.n && in_funcs && s.in.n > 1; m++)
        for (uint32_t f = 0; f < unit->modules.at[m]->funcs.n; f++)
            ds_mentions_func(unit->modules.at[m]->funcs.at[f], look, &s);
    ds_map_deinit(&s.in);
    return s.found;
}

/* ---- layers ---- */

const char *ds_shorter_find_layers(const ds_binding *binding, ds_shorter *out) {
    ds_layer_loop loop;
    if (!ds_find_layer_loop(binding, ds_scenario_model(binding->unit), &loop)) return NULL;
    out->layers = (ds_shorter_param){loop.module, loop.param};
    return something_depends(binding, out->layers, false) ? NULL : loop.op->index;
}

int64_t ds_shorter_n_layers(const ds_binding *binding, const ds_shorter *less) {
    return binding->params[less->layers.module->id][less->layers.index].i;
}

/* ---- the batch ---- */

/* The param that dim 0 of all inputs is that are split over dp. */
static ds_shorter_param batch_of(const ds_unit *unit) {
    const ds_func *model = ds_scenario_model(unit);
    ds_shorter_param batch = {0};
    for (uint32_t i = 0; i < model->n_args; i++) {
        const ds_value_info *info = ds_value_at(model, model->args[i]);
        if (!ds_type_is_over(info->type, 0, "dp")) continue;
        const ds_expr_node *node = ds_expr_at(&unit->exprs, info->type->dims[0].size);
        if (node->kind != DS_EXPR_PARAM) return (ds_shorter_param){0};
        ds_shorter_param p = {unit->modules.at[(uint64_t)node->i >> 32], (uint32_t)node->i};
        if (batch.module && !is_param(&batch, p.module, p.index)) return (ds_shorter_param){0};
        batch = p;
    }
    return batch;
}

void ds_shorter_find_batch(const ds_binding *binding, const ds_strategy *s, ds_shorter *out) {
    int64_t parts = s->dp * s->microbatches;
    ds_shorter_param batch = batch_of(binding->unit);
    out->batch = (ds_shorter_param){0};
    if (!batch.module) return;
    const ds_num *value = &binding->params[batch.module->id][batch.index];
    if (value->kind != DS_NUM_INT || value->i % parts || something_depends(binding, batch, true))
        return;
    out->batch = batch;
    out->samples = value->i / parts;
    out->replicas = s->dp > 1 && !s->zero ? 2 : s->dp;
}

/* ---- a binding ---- */

ds_binding ds_shorter_binding(const ds_binding *from, const ds_strategy *s, const ds_shorter *less,
                              int64_t n) {
    uint32_t n_modules = from->unit->modules.n;
    ds_binding out = {.unit = from->unit};
    out.params = ds_xcalloc(n_modules, sizeof *out.params);
    for (uint32_t m = 0; m < n_modules; m++) {
        uint32_t n_params = from->unit->modules.at[m]->params.n;
        out.params[m] = ds_xcalloc(n_params, sizeof **out.params);
        if (n_params) memcpy(out.params[m], from->params[m], n_params * sizeof **out.params);
    }
    out.params[less->layers.module->id][less->layers.index].i = n;
    if (less->batch.module)
        out.params[less->batch.module->id][less->batch.index].i =
            less->samples * less->replicas * s->microbatches;
    return out;
}

void ds_shorter_binding_free(ds_binding *binding) {
    for (uint32_t m = 0; m < binding->unit->modules.n; m++) free(binding->params[m]);
    free(binding->params);
}
