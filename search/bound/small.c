/* Making the small step.
 *
 * The end of the model's loop must be a param that nothing else mentions (ir/lang/mentions.h), so
 * that setting the param to three leaves all else as it is; nothing may mention the loop's index.
 *
 * Passes take most of the time. So where the size of a microbatch is a param of the program, and
 * the program is the same for small and large microbatches, passes run once, for the smallest
 * microbatches: whatever is legal for these is legal for any size. */
#include "search/bound/runs.h"

#include "ir/lang/mentions.h"
#include "ir/passes/snapshot.h"
#include "ir/strategy/preset.h"
#include "ir/strategy/scenario.h"
#include "ir/verify/verify.h"

#include <stdlib.h>
#include <string.h>

/* ---- the scenario of the small step ---- */

static ds_attr word(ds_unit *unit, const char *text) {
    return (ds_attr){.kind = DS_ATTR_WORD, .word = ds_intern(&unit->strings, text)};
}

static ds_attr number(ds_unit *unit, int64_t value) {
    return (ds_attr){.kind = DS_ATTR_EXPR, .expr = ds_expr_int(&unit->exprs, value)};
}

static ds_attr text(ds_unit *unit, const char *value) {
    ds_expr_node node = {.kind = DS_EXPR_STR, .name = ds_intern(&unit->strings, value)};
    return (ds_attr){.kind = DS_ATTR_EXPR, .expr = ds_expr_make(&unit->exprs, node)};
}

/* States what a framework would set: the small step is the same for all of its strategies. */
static void set_plain(ds_unit *unit) {
    uint32_t n;
    const ds_preset *presets = ds_presets(&n);
    for (uint32_t i = 0; i < n; i++) {
        const ds_knob *line = ds_scenario_knob(presets[i].section, presets[i].key);
        if (strcmp(presets[i].section, "strategy") != 0) continue;
        if (line->kind == DS_KNOB_QUANTITY) continue; /* buckets: the small step reduces nothing */
        ds_attr plain = word(unit, line->initial);
        if (line->kind == DS_KNOB_INT) plain = number(unit, strtoll(line->initial, NULL, 10));
        if (line->kind == DS_KNOB_BOOL)
            plain = (ds_attr){.kind = DS_ATTR_BOOL, .flag = strcmp(line->initial, "true") == 0};
        ds_scenario_set(unit, "strategy", presets[i].key, plain);
    }
}

static void set_strategy(ds_unit *unit, const ds_bound_sibling *s) {
    ds_scenario_set(unit, "", "strategy", (ds_attr){.kind = DS_ATTR_BLOCK});
    set_plain(unit);
    ds_scenario_set(unit, "strategy", "recompute", word(unit, s->recompute));
    ds_scenario_set(unit, "strategy", "tp", number(unit, s->tp));
    ds_scenario_set(unit, "strategy", "cp", number(unit, s->cp));
    ds_scenario_set(unit, "strategy", "dp", number(unit, s->ep));
    ds_scenario_set(unit, "strategy", "ep", number(unit, s->ep));
    ds_scenario_set(unit, "strategy", "cp_type", word(unit, s->cp_type));
    if (s->order) ds_scenario_set(unit, "strategy", "order", text(unit, s->order));
    ds_scenario_set(unit, "strategy", "tp_overlap", word(unit, s->tp_overlap));
    ds_scenario_set(unit, "strategy", "sp", (ds_attr){.kind = DS_ATTR_BOOL, .flag = s->sp});
    ds_scenario_set(unit, "strategy", "microbatches", number(unit, s->parts / s->ep));
}

/* A topology of the sibling's devices alone. The unit's list of modules stays as it was, without
 * the module that the topology is parsed from. NULL: the text does not parse. */
#define SMALL "bounds__small"

static ds_topology *parse_topology(ds_unit *unit, const ds_bound_sibling *s) {
    ds_module **at = unit->modules.at;
    uint32_t n = unit->modules.n, cap = unit->modules.cap;
    ds_buf text = {0};
    ds_buf_printf(&text,
                  "dir 1\ntopology @" SMALL " { device gpu[%d] : \"%s\"\n switch s\n"
                  " link gpu[i] -- s : 100 GB/s, 1 us for i in 0..%d }\n",
                  (int)(s->ep * s->tp * s->cp), s->device, (int)(s->ep * s->tp * s->cp));
    ds_module *module = ds_unit_add_module(unit, "", text.text, text.n);
    ds_status status = ds_parse(module, NULL);
    ds_buf_deinit(&text);
    unit->modules.at = at;
    unit->modules.n = n;
    unit->modules.cap = cap;
    return status == DS_OK ? module->topologies.at[0] : NULL;
}

/* Makes the root module's list of topologies anew in the unit's present arena, one longer. */
static bool add_topology(ds_unit *unit, const ds_bound_sibling *s) {
    ds_module *root = unit->modules.at[0];
    ds_topology *small = parse_topology(unit, s), **old = root->topologies.at;
    uint32_t n = root->topologies.n;
    if (!small) return false;
    root->topologies.at = NULL;
    root->topologies.n = root->topologies.cap = 0;
    for (uint32_t i = 0; i < n; i++) DS_PUSH(&unit->arena, &root->topologies, old[i]);
    DS_PUSH(&unit->arena, &root->topologies, small);
    return true;
}

static void set_topology(ds_unit *unit) {
    ds_attr on = {.kind = DS_ATTR_PLACE};
    on.place = (ds_place){.kind = DS_PLACE_MESH, .name = ds_intern(&unit->strings, SMALL)};
    ds_scenario_set(unit, "", "on", on);
}

/* ---- the step ---- */

static bool verifies(const ds_binding *binding) {
    ds_diags diags;
    ds_diags_init(&diags);
    ds_status status = ds_verify_bound(binding->unit, binding, &diags);
    ds_diags_deinit(&diags);
    return status == DS_OK;
}

/* The turns of all loops of the step before any pass; the cut loop counts with its full turns. */
static bool count_turns(const ds_model_step *step, ds_bound_layers *out) {
    ds_env env = ds_binding_env(&step->binding, NULL);
    out->all_turns = out->turns ? out->turns - TURNS : 0;
    for (uint32_t i = 0; i < step->func->body.n_ops; i++) {
        const ds_op *op = step->func->body.ops[i];
        int64_t lo, hi;
        if (op->code != DS_OP_FOR) continue;
        if (ds_expr_eval_int(&env, op->lo, op->loc, &lo, NULL) != DS_OK ||
            ds_expr_eval_int(&env, op->hi, op->loc, &hi, NULL) != DS_OK ||
            (hi > lo && !ds_add_i64(out->all_turns, hi - lo, &out->all_turns)))
            return false;
    }
    return true;
}

static bool reads_parts(const ds_model_step *step) {
    for (uint32_t i = 0; i < step->func->n_args; i++) {
        const ds_type *type = ds_value_at(step->func, step->func->args[i])->type;
        for (uint32_t d = 0; type && d < type->rank; d++)
            if (ds_type_is_over(type, d, "cp")) return true;
    }
    return false;
}

/* Is some weight split over replicas by hand? Its bytes on a device are not known then. Asked before
 * `shard`, which makes ep of dp. */
static bool is_split_by_hand(const ds_model_step *step) {
    for (uint32_t i = 0; i < step->weights.n; i++) {
        const ds_type *type = ds_value_at(step->func, step->weights.at[i].arg)->type;
        for (uint32_t d = 0; type && d < type->rank; d++)
            if (ds_type_is_over(type, d, "dp") || ds_type_is_over(type, d, "cp")) return true;
    }
    return false;
}

static bool is_over_ep(const ds_type *type) {
    bool over = false;
    for (uint32_t d = 0; d < type->rank; d++) over |= ds_type_is_over(type, d, "ep");
    return over;
}

/* The weights of a turn, which are families of the step. */
static void read_weights(const ds_model_step *step, int64_t tp, ds_bound_layers *out) {
    ds_env env = ds_binding_env(&step->binding, NULL);
    for (uint32_t i = 0; i < step->weights.n; i++) {
        const ds_value_info *value = ds_value_at(step->func, step->weights.at[i].arg);
        ds_bound_weight w = {.bytes = 1};
        if (!value->n_binders || !value->type || out->n_weights == 24) continue;
        if (is_over_ep(value->type)) continue;
        bool known = true;
        for (uint32_t d = 0; d < value->type->rank && known; d++) {
            int64_t size;
            bool split = ds_type_is_over(value->type, d, "tp");
            known = ds_expr_eval_int(&env, value->type->dims[d].size, DS_NOWHERE, &size, NULL) ==
                        DS_OK &&
                    ds_mul_i64(w.bytes, split ? size / tp : size, &w.bytes);
            if (known && !split && w.n_dims < 4) w.dims[w.n_dims++] = size;
        }
        known = known && ds_mul_i64(w.bytes, ds_dtype_bits(value->type->dtype) / 8, &w.bytes);
        if (known) out->weights[out->n_weights++] = w;
    }
}

/* The step lowered for the sibling; NULL: an error, or no training. */
static ds_model_step *lower(const ds_binding *binding) {
    ds_model_step *step;
    if (ds_model_step_new(binding, &step, NULL) != DS_OK) return NULL;
    if (step->train.on) return step;
    ds_model_step_free(step);
    return NULL;
}

static bool run_to(ds_model_step *step, ds_pass_id last) {
    step->strategy.microbatches = MICROBATCHES;
    step->brief = step->trusted = step->schematic = true;
    return ds_model_step_run_to(step, last, NULL, NULL, NULL) == DS_OK;
}

/* ---- all sizes at once ---- */

/* A hash of the printed program without its params. */
static uint64_t hash_program(const ds_model_step *step) {
    static const char param[] = "param ";
    uint64_t hash = 0;
    ds_buf text = {0};
    ds_print_module_content(step->unit->modules.at[0], &text);
    for (const char *line = text.text; line && *line;) {
        const char *end = strchr(line, '\n');
        size_t n = end ? (size_t)(end - line) + 1 : strlen(line);
        if (strncmp(line, param, strlen(param)) != 0)
            hash = ds_hash_mix(hash, ds_hash_bytes(line, n));
        line += n;
    }
    ds_buf_deinit(&text);
    return hash;
}

/* Is the sharded program the same for the largest microbatches as for those of `step`, the
 * smallest? The cost of each way to split an op grows with the size at most, so a way that is
 * cheapest at both ends is cheapest between. One device has nothing to split. */
static bool is_any_size(const ds_bound_sibling *s, ds_model_step *step) {
    int64_t parts = 2, batch = step->batch / s->ep; /* of a replica */
    while (parts <= batch / parts && batch % parts) parts++;
    if (s->ep * s->tp * s->cp == 1 || parts > batch / parts) return true;
    if (!run_to(step, DS_PASS_RECOMPUTE)) return false;
    ds_step_mark *mark = ds_step_mark_new(step);
    bool ok = ds_step_bind_samples(step, batch / parts * s->ep, NULL) == DS_OK &&
              run_to(step, DS_PASS_SHARD);
    uint64_t large = ok ? hash_program(step) : 0;
    ds_step_mark_return(mark);
    ds_step_mark_free(mark);
    return ok && run_to(step, DS_PASS_SHARD) && hash_program(step) == large;
}

/* ---- bytes of all sizes ---- */

/* How an expression grows with a param: 0 not at all, 1 evenly, 2 otherwise or not known. */
static int growth(const ds_module *module, ds_expr e, const char *param) {
    if (!DS_HAS_EXPR(e)) return 0;
    const ds_expr_node *node = ds_expr_at(&module->unit->exprs, e);
    if (node->kind == DS_EXPR_PARAM) {
        if (node->name == param) return 1;
        uint32_t module_of = (uint32_t)((uint64_t)node->i >> 32);
        const ds_module *of = module->unit->modules.at[module_of];
        return growth(module, of->params.at[(uint32_t)node->i].init, param);
    }
    int a = growth(module, node->a, param), b = growth(module, node->b, param);
    if (node->kind == DS_EXPR_ADD || node->kind == DS_EXPR_SUB || node->kind == DS_EXPR_NEG)
        return a > b ? a : b;
    if (node->kind == DS_EXPR_MUL) return a + b;
    return a || b ? 2 : 0;
}

/* Do the bytes of a device's part grow evenly? True if at most one dim grows, elements are whole
 * bytes and splits are even, provided that the part is whole for one sample and for two. */
static bool type_grows_evenly(const ds_module *module, const ds_type *type, const char *param) {
    int sum = 0;
    for (uint32_t d = 0; d < type->rank; d++) {
        sum += growth(module, type->dims[d].size, param);
        for (uint32_t s = 0; s < type->dims[d].n_splits; s++)
            if (type->dims[d].splits[s].n_sizes) return false;
    }
    return sum <= 1 && (sum == 0 || ds_dtype_bits(type->dtype) % 8 == 0);
}

static bool loops_are_fixed(const ds_module *module, const ds_block *block, const char *param) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        if (op->code == DS_OP_FOR &&
            (growth(module, op->lo, param) || growth(module, op->hi, param)))
            return false;
        if (op->body && !loops_are_fixed(module, op->body, param)) return false;
    }
    return true;
}

static bool func_grows_evenly(const ds_func *func, const char *param) {
    for (uint32_t v = 0; v < func->values.n; v++) {
        const ds_value_info *info = &func->values.at[v];
        if (info->type && !type_grows_evenly(func->module, info->type, param)) return false;
        for (uint32_t i = 0; i < info->n_binders; i++)
            if (growth(func->module, info->binders[i].lo, param) ||
                growth(func->module, info->binders[i].hi, param))
                return false;
    }
    return loops_are_fixed(func->module, &func->body, param);
}

static bool step_grows_evenly(const ds_model_step *step) {
    const ds_module *module = step->unit->modules.at[0];
    for (uint32_t f = 0; f < module->funcs.n; f++)
        if (!func_grows_evenly(module->funcs.at[f], step->microbatch)) return false;
    return true;
}

/* ---- together ---- */

/* Runs all passes and fills `small`; frees `step`. */
static bool fill_small(const ds_bound_sibling *s, ds_model_step *step, bool open,
                       ds_bound_small *small) {
    small->known.n_weights = 0;
    bool ok = !is_split_by_hand(step) && count_turns(step, &small->known);
    if (ok) small->known.reads_parts = reads_parts(step);
    ok = ok && (!open || is_any_size(s, step)) && run_to(step, DS_PASS_OVERLAP);
    if (ok) {
        read_weights(step, s->tp, &small->known);
        small->unit = step->unit;
        small->binding = step->binding;
        small->microbatch = open ? step->microbatch : NULL;
        small->batch = step->batch;
        small->grows_evenly = open && step_grows_evenly(step);
        step->unit = NULL;
    }
    ds_model_step_free(step);
    return ok;
}

/* An open step if possible, so that the first size does not matter; else a step of that size. */
static bool make_step(const ds_binding *binding, const ds_bound_sibling *s, ds_bound_small *small) {
    ds_model_step *step = lower(binding);
    if (step && step->microbatch) {
        if (ds_step_bind_samples(step, s->ep, NULL) != DS_OK) {
            ds_model_step_free(step);
            return false;
        }
        if (fill_small(s, step, true, small)) return true;
        step = lower(binding);
    }
    return step && fill_small(s, step, false, small);
}

static bool make_small(ds_unit *unit, const ds_setting *settings, uint32_t n_settings,
                       const ds_bound_sibling *sibling, ds_bound_small *small) {
    ds_binding binding;
    const ds_func *func = ds_scenario_model(unit);
    ds_layer_loop loop;
    if (!func || !add_topology(unit, sibling)) return false;
    set_topology(unit);
    set_strategy(unit, sibling);
    if (ds_bind(unit, settings, n_settings, &binding, NULL) != DS_OK) return false;
    bool found = ds_find_layer_loop(&binding, func, &loop) && !loop.uses_index;
    ds_num *turns = found ? &binding.params[loop.module->id][loop.param] : NULL;
    if (turns && turns->i > 0) {
        small->known.turns = turns->i;
        turns->i = TURNS;
    }
    /* all layers as one piece on ep replicas: passes would take longer than the bounds save */
    if (!small->known.turns && sibling->ep > 1) return false;
    return verifies(&binding) && make_step(&binding, sibling, small);
}

ds_bound_small *ds_bound_small_new(ds_unit *unit, const ds_setting *settings, uint32_t n_settings,
                                   const ds_bound_sibling *sibling) {
    ds_module *root = unit->modules.at[0];
    ds_topology **topologies = root->topologies.at;
    uint32_t n = root->topologies.n, cap = root->topologies.cap;
    ds_bound_small *small = ds_xcalloc(1, sizeof *small);
    bool ok = make_small(unit, settings, n_settings, sibling, small);
    root->topologies.at = topologies;
    root->topologies.n = n;
    root->topologies.cap = cap;
    if (ok) return small;
    ds_bound_small_free(small);
    return NULL;
}

void ds_bound_small_free(ds_bound_small *small) {
    if (!small) return;
    ds_unit_free(small->unit);
    ds_bound_buffers_free(small->buffers);
    free(small);
}
