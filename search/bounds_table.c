/* From prefixes of the odometer to what is known of them.
 *
 * Two questions. Which knobs of the strategy are known: each is a dimension, an expression with a
 * level (search/space_names.c), or constant. And which dimensions the model depends on: those that
 * are knobs outside of the strategy, those from which params of imported modules follow, and those
 * that the text of the root module mentions outside of strategy and sweep. Once all of these are
 * set the step on one device is simulated, and its operations are the table; the dimensions' values
 * are the key under which it is found again. */
#include "search/bounds.h"

#include "ir/base/map.h"
#include "ir/lang/verify.h"
#include "search/space_internal.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* X(place, name): knobs of the strategy that the bounds look at. */
#define KNOBS(X)                                                                                   \
    X(DP, "dp")                                                                                    \
    X(TP, "tp")                                                                                    \
    X(PP, "pp")                                                                                    \
    X(CP, "cp")                                                                                    \
    X(EP, "ep")                                                                                    \
    X(MICROBATCHES, "microbatches")                                                                \
    X(ZERO, "zero")                                                                                \
    X(ZERO_GROUP, "zero_group")                                                                    \
    X(VIRTUAL_STAGES, "virtual_stages")                                                            \
    X(SCHEDULE, "schedule")                                                                        \
    X(RECOMPUTE, "recompute")                                                                      \
    X(SP, "sp")
enum {
#define DS_X(id, name) KNOB_##id,
    KNOBS(DS_X)
#undef DS_X
        N_KNOBS
};

typedef struct knob {
    const ds_attr *attr; /* NULL: the scenario does not say it */
    uint32_t dim;        /* UINT32_MAX: it does not vary by itself */
    ds_level level;
} knob;

struct ds_bounds {
    ds_arena arena;
    const ds_eval_source *source;
    ds_space *space;
    knob knobs[N_KNOBS];
    bool *shapes; /* per dimension: the model, its training or the topology depend on it */
    ds_level shaped;
    bool refused;
    ds_map tables;                      /* key → index */
    DS_VEC(const ds_bound_table *) all; /* NULL: there is none of that model */
    ds_candidate candidate;
};

/* ---- what depends on what ---- */

static void mark_expr(ds_bounds *b, ds_expr e, uint32_t depth);

static void mark_param(ds_bounds *b, uint32_t module, uint32_t param, uint32_t depth) {
    const ds_space *s = b->space;
    for (uint32_t i = 0; i < s->dims.n; i++) {
        const ds_sweep_target *target = &s->dims.at[i].target;
        if (target->module && target->module->id == module && target->param == param) {
            b->shapes[i] = true;
            return;
        }
    }
    for (uint32_t i = 0; i < s->recipes.n; i++) {
        const ds_recipe *recipe = &s->recipes.at[i];
        if (recipe->kind == DS_RECIPE_PARAM && recipe->module == module && recipe->param == param)
            mark_expr(b, recipe->expr, depth + 1);
    }
}

/* Chains are short; one that is not counts as depending on everything. */
static void mark_expr(ds_bounds *b, ds_expr e, uint32_t depth) {
    enum { MAX_DEPTH = 200 };
    if (!DS_HAS_EXPR(e)) return;
    if (depth > MAX_DEPTH) {
        for (uint32_t i = 0; i < b->space->dims.n; i++) b->shapes[i] = true;
        return;
    }
    ds_expr_node node = *ds_expr_at(&b->space->unit->exprs, e);
    if (node.kind == DS_EXPR_PARAM)
        mark_param(b, (uint32_t)((uint64_t)node.i >> 32), (uint32_t)node.i, depth);
    mark_expr(b, node.a, depth + 1);
    mark_expr(b, node.b, depth + 1);
}

static ds_expr param_expr(ds_unit *unit, uint32_t module, uint32_t param) {
    ds_expr_node node = {.kind = DS_EXPR_PARAM,
                         .i = (int64_t)((uint64_t)module << 32 | param),
                         .name = unit->modules.at[module]->params.at[param].name};
    return ds_expr_make(&unit->exprs, node);
}

static bool is_word_in(const char *text, const char *word) {
    size_t n = strlen(word);
    for (const char *at = strstr(text, word); at; at = strstr(at + 1, word)) {
        bool before = at > text && (isalnum((unsigned char)at[-1]) || at[-1] == '_');
        bool after = isalnum((unsigned char)at[n]) || at[n] == '_';
        if (!before && !after) return true;
    }
    return false;
}

/* The root module as text without strategy, params, imports and sweep. */
static void print_root(ds_unit *unit, ds_buf *out) {
    ds_buf text = {0};
    ds_scenario old = *ds_unit_scenario(unit);
    ds_scenario_set(unit, "", "strategy", (ds_attr){.kind = DS_ATTR_BLOCK});
    ds_print_module_content(unit->modules.at[0], &text);
    ds_scenario_restore(unit, &old);
    for (const char *line = text.text; line && *line;) {
        const char *end = strchr(line, '\n');
        size_t n = end ? (size_t)(end - line) + 1 : strlen(line);
        if (strncmp(line, "param ", 6) != 0 && strncmp(line, "import ", 7) != 0)
            ds_buf_printf(out, "%.*s", (int)n, line);
        line += n;
    }
    ds_buf_deinit(&text);
}

static ds_status find_shapes(ds_bounds *b, ds_error *err) {
    ds_unit *unit = b->space->unit;
    ds_level level;
    ds_buf text = {0};
    ds_status status = DS_OK;
    print_root(unit, &text);
    for (uint32_t m = 0; m < unit->modules.n && status == DS_OK; m++) {
        const ds_module *module = unit->modules.at[m];
        for (uint32_t i = 0; i < module->params.n && status == DS_OK; i++) {
            if (m == 0 && (!text.text || !is_word_in(text.text, module->params.at[i].name)))
                continue;
            status = ds_space__level(b->space, param_expr(unit, m, i), DS_NOWHERE, &level, err);
            if (status == DS_OK) mark_param(b, m, i, 0);
        }
    }
    ds_buf_deinit(&text);
    for (uint32_t i = 0; i < b->space->dims.n; i++) {
        const ds_knob *varied = b->space->dims.at[i].target.knob;
        if (varied && strcmp(varied->section, "strategy") != 0) b->shapes[i] = true;
        if (b->shapes[i]) b->shaped = i + 1;
    }
    return status;
}

/* ---- knobs ---- */

static ds_status find_knobs(ds_bounds *b, ds_error *err) {
    static const char *const names[] = {
#define DS_X(id, name) name,
        KNOBS(DS_X)
#undef DS_X
    };
    const ds_space *s = b->space;
    for (uint32_t k = 0; k < N_KNOBS; k++) {
        knob *found = &b->knobs[k];
        *found = (knob){.attr = ds_scenario_find(s->unit, "strategy", names[k]), .dim = UINT32_MAX};
        for (uint32_t i = 0; i < s->dims.n; i++)
            if (s->dims.at[i].target.knob == ds_scenario_knob("strategy", names[k])) found->dim = i;
        if (found->dim != UINT32_MAX)
            found->level = found->dim + 1;
        else if (found->attr && found->attr->kind == DS_ATTR_EXPR)
            DS_TRY(
                ds_space__level(b->space, found->attr->expr, found->attr->loc, &found->level, err));
    }
    return DS_OK;
}

/* The value where it is known and one number or word; kind is 0xff where it is not. */
enum { UNKNOWN = 0xff };

static ds_num num_of_attr(const ds_bounds *b, const ds_attr *attr, ds_num value) {
    ds_env env = ds_space__env(b->space, &b->space->walk);
    if (attr->kind == DS_ATTR_WORD) return (ds_num){.kind = DS_NUM_STR, .s = attr->word};
    if (attr->kind == DS_ATTR_BOOL) return (ds_num){.kind = DS_NUM_INT, .i = attr->flag};
    if (attr->kind == DS_ATTR_EXPR &&
        ds_expr_eval(&env, attr->expr, attr->loc, &value, NULL) == DS_OK)
        return value;
    return (ds_num){.kind = (ds_num_kind)UNKNOWN};
}

static ds_num knob_value(const ds_bounds *b, uint32_t k, const ds_choice *prefix, uint32_t depth,
                         ds_num absent) {
    const knob *it = &b->knobs[k];
    if (it->level > depth) return (ds_num){.kind = (ds_num_kind)UNKNOWN};
    if (it->dim == UINT32_MAX) return it->attr ? num_of_attr(b, it->attr, absent) : absent;
    const ds_sweep_entry *entry = b->space->dims.at[it->dim].entry;
    if (entry->domain == DS_DOMAIN_LIST &&
        entry->list.items[prefix[it->dim].item].kind != DS_ATTR_EXPR)
        return num_of_attr(b, &entry->list.items[prefix[it->dim].item], absent);
    return prefix[it->dim].value;
}

static int64_t knob_int(const ds_bounds *b, uint32_t k, const ds_choice *prefix, uint32_t depth,
                        int64_t absent, int64_t unknown) {
    ds_num value = knob_value(b, k, prefix, depth, (ds_num){.kind = DS_NUM_INT, .i = absent});
    return value.kind == DS_NUM_INT && value.i >= 0 ? value.i : unknown;
}

static const char *knob_text(const ds_bounds *b, uint32_t k, const ds_choice *prefix,
                             uint32_t depth, const char *absent) {
    ds_num value = knob_value(b, k, prefix, depth, (ds_num){.kind = DS_NUM_STR, .s = absent});
    return value.kind == DS_NUM_STR && value.s ? value.s : "";
}

/* ---- tables ---- */

static bool is_product(ds_work_kind kind) {
    return kind == DS_WORK_GEMM || kind == DS_WORK_CONV || kind == DS_WORK_ATTENTION ||
           kind == DS_WORK_RECURRENT;
}

static bool is_alike(const ds_bound_op *a, const ds_bound_op *b) {
    return a->op == b->op && a->work.kind == b->work.kind && a->work.dtype == b->work.dtype &&
           a->work.flop == b->work.flop && a->work.bytes_read == b->work.bytes_read;
}

/* Counts it with those that are alike. */
static void add_op(ds_bounds *b, ds_bound_ops *ops, const ds_bound_op *op) {
    for (uint32_t i = 0; i < ops->n; i++) {
        if (!is_alike(&ops->at[i], op)) continue;
        ops->at[i].n++;
        return;
    }
    DS_PUSH(&b->arena, ops, *op);
}

/* A product that all devices do alike, or NULL. */
static const ds_variant *product_of(const ds_plan *plan, uint32_t inst) {
    const ds_record *record = plan->records.at[plan->insts.at[inst].record];
    if (record->kind != DS_REC_COMPUTE || record->n_variants != 1) return NULL;
    const ds_variant *v = &record->variants[0];
    return is_product(v->work.kind) && v->cost.origin != DS_COST_GIVEN ? v : NULL;
}

/* The path with the most time in products. Operands come from instances before. */
static void add_chain(ds_bounds *b, ds_bound_table *t, const ds_plan *plan) {
    uint32_t n = plan->insts.n, last = DS_NONE;
    int64_t *until = ds_xcalloc(n + UINT32_C(1), sizeof *until);
    uint32_t *before = ds_xcalloc(n + UINT32_C(1), sizeof *before);
    for (uint32_t i = 0; i < n; i++) {
        const ds_inst *inst = &plan->insts.at[i];
        const ds_variant *v = product_of(plan, i);
        before[i] = DS_NONE;
        for (uint32_t k = 0; k < inst->n_reads; k++) {
            uint32_t from = plan->values.at[plan->operands.at[inst->first_operand + k]].inst;
            if (from >= i || until[from] <= until[i]) continue;
            until[i] = until[from];
            before[i] = from;
        }
        if (v) until[i] += v->ps;
        if (last == DS_NONE || until[i] > until[last]) last = i;
    }
    for (uint32_t i = last; i != DS_NONE; i = before[i]) {
        const ds_variant *v = product_of(plan, i);
        if (!v) continue;
        const char *label = plan->records.at[plan->insts.at[i].record]->label;
        ds_bound_op op = {.op = ds_intern(&b->space->unit->strings, label), .n = 1};
        op.work = (ds_work){.kind = v->work.kind, .dtype = v->work.dtype, .flop = v->work.flop};
        add_op(b, &t->chain, &op);
    }
    free(before);
    free(until);
}

/* What all devices of the plan do alike. */
static void add_ops(ds_bounds *b, ds_bound_table *t, bool forward, const ds_plan *plan) {
    uint32_t n_devices = 0;
    for (uint32_t c = 0; c < plan->n_classes; c++) n_devices += plan->classes[c].n_devices;
    for (uint32_t i = 0; i < plan->insts.n; i++) {
        const ds_record *record = plan->records.at[plan->insts.at[i].record];
        if (record->kind != DS_REC_COMPUTE || record->n_variants != 1 ||
            record->n_devices != n_devices)
            continue;
        const ds_variant *v = &record->variants[0];
        const ds_work *w = &v->work;
        if (v->cost.origin == DS_COST_GIVEN || w->kind == DS_WORK_NONE) continue;
        ds_bound_op op = {.op = record->label, .n = 1};
        op.work = (ds_work){.kind = w->kind, .dtype = w->dtype};
        if (is_product(w->kind))
            op.work.flop = w->flop;
        else
            op.work.bytes_read = w->bytes_read + w->bytes_written;
        op.op = ds_intern(&b->space->unit->strings, op.op);
        if (!forward)
            add_op(b, is_product(w->kind) ? &t->products : &t->memory, &op);
        else if (is_product(w->kind))
            add_op(b, &t->forward, &op);
    }
}

/* The forward pass was simulated without training, in the model's own types. Its products count as
 * those of the training step of the same work, in that one's types. */
static void retype_forward(ds_bound_table *t) {
    for (uint32_t i = 0; i < t->forward.n; i++) {
        ds_bound_op *op = &t->forward.at[i];
        uint32_t k = 0;
        while (k < t->products.n &&
               (t->products.at[k].op != op->op || t->products.at[k].work.flop != op->work.flop))
            k++;
        if (k < t->products.n)
            op->work.dtype = t->products.at[k].work.dtype;
        else
            op->n = 0;
    }
}

/* What is there from the beginning, by what it is. */
static void add_state(ds_bound_table *t, const ds_plan *plan) {
    for (uint32_t i = 0; i < plan->insts.n; i++) {
        const ds_inst *inst = &plan->insts.at[i];
        const ds_record *record = plan->records.at[inst->record];
        if (record->kind != DS_REC_INPUT || record->n_variants != 1) continue;
        for (uint32_t k = 0; k < record->n_out; k++) {
            const ds_vinst *value = &plan->values.at[inst->first_value + k];
            int64_t bytes = record->variants[0].out_bytes[k];
            if (value->is_host) continue;
            if (value->category == DS_CAT_WEIGHT) t->weight_bytes += bytes;
            if (value->category == DS_CAT_OPTIMIZER) t->state_bytes += bytes;
        }
    }
}

/* When the first operation begins that only the backward pass has. */
static int64_t turning_ps(const ds_result *r) {
    int64_t first = INT64_MAX;
    for (uint32_t i = 0; i < r->plan->n_tasks; i++) {
        const ds_record *record = ds_plan_task_record(r->plan, i);
        const ds_op_desc *desc = record->op ? ds_op_desc_of(record->op->code) : NULL;
        if (desc && (desc->flags & DS_OPF_BACKWARD) && r->run.start_ps[i] < first)
            first = r->run.start_ps[i];
    }
    return first;
}

/* What is held at that time, before that operation allocates anything. */
static void find_saved(ds_bound_table *t, const ds_result *r) {
    const ds_mem_class *c = &r->mem.classes[0];
    int64_t turning = turning_ps(r), held = 0;
    if (r->mem.mode != DS_MEM_EXACT || turning == INT64_MAX || r->plan->n_classes != 1) return;
    for (uint32_t i = 0; i < c->n_events; i++) {
        const ds_mem_event *e = &c->events[i];
        if (e->time_ps < turning || (e->time_ps == turning && e->delta_bytes < 0))
            held += e->delta_bytes;
    }
    held -= t->weight_bytes + t->state_bytes;
    t->saved_bytes = held > 0 ? held : 0;
}

/* False if weights are split over replicas by hand: then no bound of memory holds. */
static bool find_gradients(ds_bound_table *t, const ds_model_step *step) {
    const ds_train *train = &step->train;
    bool narrow = train->grad_dtype != DS_DTYPE_COUNT && train->grad_dtype != train->dtype &&
                  train->grad_dtype != DS_F32;
    bool updated = train->on && train->optimizer != DS_OPTIMIZER_NONE && !narrow;
    for (uint32_t i = 0; i < step->weights.n; i++) {
        const ds_step_weight *w = &step->weights.at[i];
        const ds_type *type = ds_value_at(step->func, w->arg)->type;
        updated = updated && w->new_result != DS_NO_RESULT;
        for (uint32_t d = 0; type && d < type->rank; d++)
            if (ds_type_is_over(type, d, "dp") || ds_type_is_over(type, d, "cp")) return false;
    }
    if (updated) t->gradient_bytes = t->weight_bytes;
    return true;
}

static void find_links(ds_bound_table *t, ds_topo *topo) {
    int64_t *egress = ds_xcalloc(ds_topo_n_vertices(topo) + UINT32_C(1), sizeof *egress);
    for (uint32_t i = 0; i < ds_topo_n_links(topo); i++) {
        const ds_topo_link *link = ds_topo_link_at(topo, i);
        egress[link->from] += link->whole_bytes_per_s > link->bytes_per_s ? link->whole_bytes_per_s
                                                                          : link->bytes_per_s;
    }
    for (uint32_t d = 0; d < ds_topo_n_devices(topo); d++) {
        int64_t out = egress[ds_topo_device_vertex(topo, d)];
        if (out > t->egress_bytes_per_s) t->egress_bytes_per_s = out;
    }
    free(egress);
    uint32_t n;
    ds_topo_reducing_switches(topo, &n);
    t->reduces = n > 0;
}

/* Operations, state, device and links from the step on one device; false: not of that model. */
static bool read_step(ds_bounds *b, ds_bound_table *t, const ds_result *r) {
    const ds_plan *plan = r->plan;
    for (uint32_t d = 1; d < plan->n_devices; d++)
        if (plan->kind_of[d] != plan->kind_of[0] || plan->profile_of[d] != plan->profile_of[0])
            return false;
    for (uint32_t i = 0; i < plan->records.n; i++) {
        const ds_record *record = plan->records.at[i];
        const ds_op_desc *desc = record->op ? ds_op_desc_of(record->op->code) : NULL;
        if (desc && strcmp(desc->family, "moe") == 0) return false; /* uneven by nature */
    }
    t->profiles = b->source->profiles;
    t->kind = plan->kind_of[0];
    t->profile = plan->profile_of[0];
    t->capacity_bytes = r->capacity_bytes;
    t->n_devices = plan->n_devices;
    add_ops(b, t, false, plan);
    add_chain(b, t, plan);
    add_state(t, plan);
    find_saved(t, r);
    find_links(t, plan->topo);
    return find_gradients(t, r->step);
}

static ds_attr word(ds_unit *unit, const char *text) {
    return (ds_attr){.kind = DS_ATTR_WORD, .word = ds_intern(&unit->strings, text)};
}

/* What is simulated of a candidate: its step on tp devices, as a whole or forwards alone. */
typedef struct sibling {
    bool forward;
    const char *recompute;
    int64_t tp, sp;
} sibling;

static void set_strategy(ds_unit *unit, const sibling *s) {
    ds_attr number = {.kind = DS_ATTR_EXPR, .expr = ds_expr_int(&unit->exprs, s->tp)};
    ds_scenario_set(unit, "", "strategy", (ds_attr){.kind = DS_ATTR_BLOCK});
    ds_scenario_set(unit, "strategy", "recompute", word(unit, s->recompute));
    ds_scenario_set(unit, "strategy", "tp", number);
    ds_scenario_set(unit, "strategy", "sp", (ds_attr){.kind = DS_ATTR_BOOL, .flag = s->sp > 0});
    if (s->forward) ds_scenario_set(unit, "", "train", word(unit, "off"));
}

/* NULL: there is none. */
static ds_result *simulate(ds_bounds *b, const sibling *of, ds_binding *binding, ds_arena *arena) {
    ds_unit *unit = b->space->unit;
    ds_setting *settings;
    uint32_t n;
    ds_sim_options options;
    ds_result *result = NULL;
    ds_diags diags;
    ds_space_set_knobs(b->space, &b->candidate, unit);
    set_strategy(unit, of);
    ds_space_settings(b->space, &b->candidate, arena, &settings, &n);
    if (ds_bind(unit, settings, n, binding, NULL) != DS_OK) return NULL;
    ds_diags_init(&diags);
    ds_status status = ds_verify_bound(unit, binding, &diags);
    ds_diags_deinit(&diags);
    if (status != DS_OK || ds_eval_options(binding, &options, NULL) != DS_OK) return NULL;
    if (options.cost_mode != DS_COST_FITTED) return NULL;
    return ds_simulate(binding, b->source->profiles, &options, &result, NULL) == DS_OK ? result
                                                                                       : NULL;
}

/* What a device sends at least in collectives of all `tp` devices. */
static double count_sent(const ds_result *r, int64_t tp, bool reduces) {
    const ds_plan *plan = r->plan;
    double sent = 0, share = (double)(tp - 1) / (double)tp;
    for (uint32_t i = 0; i < plan->insts.n; i++) {
        const ds_record *record = plan->records.at[plan->insts.at[i].record];
        if (record->kind != DS_REC_COMM || record->n_groups != 1 ||
            record->groups[0].n_devices != (uint32_t)tp || !record->groups[0].request)
            continue;
        double bytes = (double)record->groups[0].bytes * share;
        if (strcmp(record->label, "all_reduce") == 0)
            sent += reduces ? bytes : 2 * bytes;
        else if (strcmp(record->label, "all_gather") == 0 ||
                 strcmp(record->label, "reduce_scatter") == 0)
            sent += bytes;
    }
    return sent;
}

/* Simulates, with an arena of its own for what binding makes, and reads into the table. */
static bool read_simulated(ds_bounds *b, ds_bound_table *t, const sibling *of) {
    ds_unit *unit = b->space->unit;
    ds_scenario scenario = *ds_unit_scenario(unit);
    ds_arena kept = unit->arena, own;
    ds_binding binding;
    ds_arena_init(&unit->arena);
    ds_arena_init(&own);
    ds_result *r = simulate(b, of, &binding, &own);
    bool ok = r && r->step;
    if (ok && of->forward) {
        add_ops(b, t, true, r->plan);
        retype_forward(t);
    } else if (ok) {
        ok = read_step(b, t, r);
        t->sent_bytes = (int64_t)count_sent(r, of->tp, t->reduces);
        t->n_devices /= of->tp;
    }
    ds_result_free(r);
    ds_scenario_restore(unit, &scenario);
    ds_arena_deinit(&own);
    ds_arena_deinit(&unit->arena);
    unit->arena = kept;
    return ok;
}

static void fill_candidate(ds_bounds *b, const ds_choice *prefix, uint32_t depth) {
    const ds_space *s = b->space;
    for (uint32_t i = 0; i < s->dims.n; i++) {
        const ds_sweep_target *target = &s->dims.at[i].target;
        ds_choice *choice = &b->candidate.at[i];
        *choice = (ds_choice){.value = {.kind = DS_NUM_INT, .i = 1}};
        if (i < depth && b->shapes[i])
            *choice = prefix[i];
        else if (target->module)
            choice->value = s->base->params[target->module->id][target->param];
    }
}

static const ds_bound_table *make_table(ds_bounds *b, const ds_choice *prefix, uint32_t depth,
                                        const sibling *of) {
    sibling forward = {true, "none", of->tp, of->sp};
    ds_bound_table *t = DS_NEW(&b->arena, ds_bound_table);
    *t = (ds_bound_table){0};
    fill_candidate(b, prefix, depth);
    bool ok = read_simulated(b, t, of) && read_simulated(b, t, &forward);
    DS_PUSH(&b->arena, &b->all, ok ? t : NULL);
    return b->all.at[b->all.n - 1];
}

static uint64_t hash_choice(uint64_t hash, const ds_choice *choice) {
    const ds_num *v = &choice->value;
    hash = ds_hash_mix(hash, choice->item);
    if (v->kind == DS_NUM_INT) return ds_hash_mix(hash, (uint64_t)v->i);
    return ds_hash_mix(hash, v->kind == DS_NUM_REAL ? ds_hash_bytes(&v->r, sizeof v->r)
                                                    : ds_hash_bytes(v->s, strlen(v->s)));
}

/* Recomputation adds work; of the kinds whose work on one device says how much at least. */
static const char *known_recompute(const ds_bounds *b, const ds_choice *prefix, uint32_t depth) {
    const char *text = knob_text(b, KNOB_RECOMPUTE, prefix, depth, "none");
    return strcmp(text, "full") == 0 || strcmp(text, "selective") == 0 ? text : "none";
}

static uint64_t key_of(const ds_bounds *b, const ds_choice *prefix, const char *recompute) {
    uint64_t key = ds_hash_bytes(recompute, strlen(recompute));
    for (uint32_t i = 0; i < b->shaped; i++)
        if (b->shapes[i]) key = hash_choice(ds_hash_mix(key, i), &prefix[i]);
    return key;
}

static const ds_bound_table *find_table(ds_bounds *b, const ds_choice *prefix, uint32_t depth,
                                        int64_t tp, int64_t sp) {
    const char *recompute = known_recompute(b, prefix, depth);
    uint64_t key = ds_hash_mix(key_of(b, prefix, recompute), (uint64_t)tp);
    key = ds_hash_mix(key, (uint64_t)sp);
    const uint64_t *at = ds_map_find(&b->tables, key);
    if (at) return b->all.at[*at];
    ds_map_put(&b->tables, key, b->all.n);
    return make_table(b, prefix, depth, &(sibling){false, recompute, tp, sp});
}

/* ---- regions ---- */

ds_status ds_bounds_region(ds_bounds *b, const ds_choice *prefix, uint32_t depth,
                           ds_bound_region *out, ds_error *err) {
    *out = (ds_bound_region){.zero = -1};
    if (b->refused || depth < b->shaped) return DS_OK;
    for (uint32_t i = 0; i < depth; i++)
        DS_TRY(ds_space__set(b->space, &b->space->walk, i, prefix[i].value, prefix[i].item, err));
    int64_t tp = knob_int(b, KNOB_TP, prefix, depth, 1, 0);
    int64_t sp = knob_int(b, KNOB_SP, prefix, depth, 0, -1);
    bool known = tp > 0 && sp >= 0;
    out->table = find_table(b, prefix, depth, known ? tp : 1, known ? sp : 0);
    out->dp = knob_int(b, KNOB_DP, prefix, depth, 1, 0);
    out->tp = known ? 1 : tp;
    out->pp = knob_int(b, KNOB_PP, prefix, depth, 1, 0);
    out->cp = knob_int(b, KNOB_CP, prefix, depth, 1, 0);
    out->microbatches = knob_int(b, KNOB_MICROBATCHES, prefix, depth, 1, 0);
    out->zero = knob_int(b, KNOB_ZERO, prefix, depth, 0, -1);
    if (knob_int(b, KNOB_ZERO_GROUP, prefix, depth, 0, 1)) out->zero = -1;
    out->experts = knob_int(b, KNOB_EP, prefix, depth, 1, 0) != 1;
    const char *recompute = knob_text(b, KNOB_RECOMPUTE, prefix, depth, "none");
    out->saves = strcmp(recompute, known_recompute(b, prefix, depth)) == 0;
    const char *schedule = knob_text(b, KNOB_SCHEDULE, prefix, depth, "1f1b");
    out->at_once = strcmp(schedule, "gpipe") == 0 && out->pp > 1;
    out->in_order = (strcmp(schedule, "1f1b") == 0 || strcmp(schedule, "gpipe") == 0) &&
                    knob_int(b, KNOB_VIRTUAL_STAGES, prefix, depth, 1, 0) == 1;
    return DS_OK;
}

/* ---- what there are no bounds of ---- */

static bool varies(const ds_space *s, const char *section, const char *name) {
    for (uint32_t i = 0; i < s->dims.n; i++)
        if (s->dims.at[i].target.knob == ds_scenario_knob(section, name)) return true;
    return false;
}

static const char *find_refusal(const ds_bounds *b) {
    static const struct {
        const char *section, *name, *why;
    } unknown[] = {{"", "jobs", "several jobs share the cluster"},
                   {"", "program", "the scenario runs a program, not a model"},
                   {"", "mesh", "the scenario gives a mesh of its own"},
                   {"strategy", "offload", "strategy.offload keeps state in other memory"},
                   {"strategy", "ops", "strategy.ops places single operations"},
                   {"strategy", "dp_shares", "strategy.dp_shares makes unequal replicas"},
                   {"strategy", "stage_dp", "strategy.stage_dp makes stages of several widths"},
                   {"strategy", "stage_tp", "strategy.stage_tp makes stages of several widths"}};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        if (ds_scenario_find(b->space->unit, unknown[i].section, unknown[i].name) ||
            varies(b->space, unknown[i].section, unknown[i].name))
            return unknown[i].why;
    const char *cost = "fitted";
    const ds_attr *attr = ds_scenario_find(b->space->unit, "", "cost");
    if (attr && ds_scenario_text(b->space->base, "", "cost", &cost, NULL) == DS_OK &&
        strcmp(cost, "fitted") != 0)
        return "measured costs follow no curve that could be bounded: say cost = fitted";
    return varies(b->space, "", "cost") ? "the kind of costs varies" : NULL;
}

ds_status ds_bounds_new(const ds_eval_source *source, ds_space *space, ds_bounds **out,
                        const char **why, ds_error *err) {
    ds_bounds *b = ds_xcalloc(1, sizeof *b);
    ds_arena_init(&b->arena);
    ds_map_init(&b->tables);
    b->source = source;
    b->space = space;
    b->shapes = DS_NEW_N(&b->arena, bool, space->dims.n);
    memset(b->shapes, 0, space->dims.n * sizeof *b->shapes);
    b->candidate = ds_candidate_new(space, &b->arena);
    *why = find_refusal(b);
    b->refused = *why != NULL;
    ds_status status = b->refused ? DS_OK : find_knobs(b, err);
    if (status == DS_OK && !b->refused) status = find_shapes(b, err);
    if (status == DS_OK) status = ds_space__cook(space, &space->walk, 0, err);
    if (status == DS_OK) status = ds_space__cook(space, &space->judge, 0, err);
    *out = b;
    if (status == DS_OK) return DS_OK;
    ds_bounds_free(b);
    *out = NULL;
    return status;
}

void ds_bounds_free(ds_bounds *b) {
    if (!b) return;
    ds_map_deinit(&b->tables);
    ds_arena_deinit(&b->arena);
    free(b);
}
