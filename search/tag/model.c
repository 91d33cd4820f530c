/* From a scenario to a problem of TAG.
 *
 * The step is planned once for each batch size of the profile. Instances of all plans correspond,
 * since only sizes differ. An instance that computes becomes an operation; a view is its operand;
 * a collective is its operands, and what an all_reduce reads is a sum.
 *
 * Names tell base groups: `fc1.dx` and `fc1.dw` belong to the forward operation `fc1`, an update to
 * the first reader of its weight, any other backward operation to the operation whose result it
 * reads first. */
#include "search/tag/model.h"

#include "ir/base/map.h"
#include "ir/ops/ops.h"
#include "ir/passes/build/build.h"
#include "ir/passes/build/path.h"
#include "ir/strategy/group.h"
#include "ir/strategy/scenario.h"
#include "ir/verify/verify.h"
#include "sim/run/run.h"

#include <stdlib.h>
#include <string.h>

typedef struct reader {
    const ds_pase_source *source;
    const ds_profiles *profiles;
    ds_tag_model *model;
    ds_unit *unit;
    ds_binding binding;
    const ds_topology *topology;
    ds_topo *topo;
    uint32_t n_devices, n_points;
    int64_t samples, point[DS_TAG_MAX_POINTS];
    uint32_t *kind_of; /* [device]: kinds of this problem */
    uint32_t *first_of_kind;
    /* of the first plan */
    DS_VEC(ds_tag_op) ops;
    DS_VEC(uint32_t) base_of;
    DS_VEC(ds_tag_base) base;
    DS_VEC(uint32_t) main_value; /* [operation]: what stands for its result */
    uint32_t *inst_op;           /* [instance]: its operation; DS_NONE */
    uint32_t *maker;             /* [value]: the operation that stands for it; DS_NONE */
    ds_map base_by_name;
    const ds_plan *plan;
    const ds_model_step *step;
    bool is_backward;
} reader;

/* ---- the scenario ---- */

static ds_status refuse(ds_loc loc, const char *why, ds_error *err) {
    return ds_error_set(err, DS_ERR_UNSUPPORTED, loc, "the tree search takes no %s", why);
}

/* What the search would drop in silence is refused, unless it says nothing. */
static ds_status check_key(const ds_unit *unit, const ds_attr *key, ds_error *err) {
    int64_t n;
    bool is_one = key->kind == DS_ATTR_EXPR && ds_expr_is_int(&unit->exprs, key->expr, &n) &&
                  n == (strcmp(key->name, "zero") != 0);
    if (is_one || key->labelled || strcmp(key->name, "dp") == 0 ||
        strcmp(key->name, "bucket_size") == 0)
        return DS_OK;
    return ds_error_set(err, DS_ERR_UNSUPPORTED, key->loc,
                        "the tree search chooses the strategy itself and takes groups, dp and "
                        "bucket_size alone from the scenario: leave %s out",
                        key->name);
}

static ds_status check_scenario(const ds_unit *unit, ds_error *err) {
    const ds_attr *mesh = ds_scenario_find(unit, "", "mesh");
    const ds_attr *strategy = ds_scenario_find(unit, "", "strategy");
    if (!ds_scenario_model(unit)) return refuse(DS_NOWHERE, "scenario without a `model`", err);
    if (ds_scenario_n_jobs(unit) > 0) return refuse(DS_NOWHERE, "scenario with jobs", err);
    if (!ds_scenario_topology(unit)) return refuse(DS_NOWHERE, "scenario without `on`", err);
    if (mesh) return refuse(mesh->loc, "`mesh`: the search chooses devices itself", err);
    if (!ds_scenario_trains(unit)) return refuse(DS_NOWHERE, "scenario that does not train", err);
    for (uint32_t i = 0; strategy && i < strategy->n_items; i++)
        DS_TRY(check_key(unit, &strategy->items[i], err));
    return DS_OK;
}

/* dp over all devices in place of the scenario's strategy. */
static void set_strategy(ds_unit *unit, int64_t n_devices) {
    const ds_attr *bucket = ds_scenario_find(unit, "strategy", "bucket_size");
    ds_attr strategy = {.kind = DS_ATTR_BLOCK, .multiline = true};
    strategy.items = DS_NEW_N(&unit->arena, ds_attr, 2);
    strategy.items[strategy.n_items++] = (ds_attr){.name = ds_intern(&unit->strings, "dp"),
                                                   .kind = DS_ATTR_EXPR,
                                                   .expr = ds_expr_int(&unit->exprs, n_devices)};
    if (bucket) strategy.items[strategy.n_items++] = *bucket;
    ds_scenario_set(unit, "", "strategy", strategy);
}

static ds_status first_of(const ds_diags *diags, ds_error *err) {
    for (uint32_t i = 0; i < diags->all.n; i++)
        if (diags->all.at[i].severity == DS_SEV_ERROR)
            return ds_error_set(err, DS_ERR_VALUE, diags->all.at[i].loc, "%s",
                                diags->all.at[i].message);
    return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE, "it cannot be verified");
}

static ds_status bind(reader *r, int64_t batch, ds_error *err) {
    const ds_pase_source *s = r->source;
    ds_setting *settings = DS_NEW_N(&r->model->arena, ds_setting, s->n_settings + 1);
    uint32_t n = s->n_settings;
    if (n > 0) memcpy(settings, s->settings, n * sizeof *settings);
    if (batch > 0) {
        ds_buf text = {0};
        ds_buf_printf(&text, "%lld", (long long)batch);
        settings[n++] = (ds_setting){"batch", ds_arena_strdup(&r->model->arena, text.text)};
        ds_buf_deinit(&text);
    }
    DS_TRY(ds_bind(r->unit, settings, n, &r->binding, err));
    ds_diags diags;
    ds_diags_init(&diags);
    ds_status status = ds_verify_bound(r->unit, &r->binding, &diags);
    if (status) status = first_of(&diags, err);
    ds_diags_deinit(&diags);
    return status;
}

static ds_status open_scenario(reader *r, ds_error *err) {
    const ds_pase_source *s = r->source;
    const ds_module *module;
    uint32_t index;
    DS_TRY(ds_load_text(s->path, s->text, s->n, &s->load, &r->unit, err));
    ds_diags diags;
    ds_diags_init(&diags);
    ds_status status = ds_verify(r->unit, &diags);
    if (status) status = first_of(&diags, err);
    ds_diags_deinit(&diags);
    DS_TRY(status);
    DS_TRY(check_scenario(r->unit, err));
    r->model->has_groups = ds_strategy_groups(r->unit) != NULL;
    DS_TRY(bind(r, 0, err));
    DS_TRY(ds_model_samples(&r->binding, &r->samples, err));
    if (r->samples < 1 || !ds_find_param(r->unit, "batch", &module, &index))
        return refuse(DS_NOWHERE,
                      "model whose samples do not follow a param `batch`: the costs are those of "
                      "several batches",
                      err);
    r->topology = ds_scenario_topology(r->unit);
    DS_TRY(ds_topo_build(&r->binding, r->topology, &r->topo, err));
    r->n_devices = ds_topo_n_devices(r->topo);
    if (r->n_devices < 2 || r->n_devices > DS_TAG_MAX_GPUS)
        return ds_error_set(err, DS_ERR_LIMIT, r->topology->loc,
                            "@%s has %u devices: the tree search takes 2 to %u", r->topology->name,
                            r->n_devices, DS_TAG_MAX_GPUS);
    set_strategy(r->unit, r->n_devices);
    return DS_OK;
}

/* ---- machines ---- */

static ds_status bandwidth(reader *r, uint32_t from, uint32_t to, int64_t *mb_per_s,
                           ds_error *err) {
    const ds_route *route;
    double least = 1e15;
    DS_TRY(ds_topo_route(r->topo, from, to, &route, err));
    for (uint32_t i = 0; i < route->n_links; i++) {
        double share = (double)route->share_q32[i] / 4294967296.0;
        double rate = (double)ds_topo_link_at(r->topo, route->links[i])->bytes_per_s / share;
        if (rate < least) least = rate;
    }
    *mb_per_s = (int64_t)(least / 1e6);
    if (*mb_per_s < 1) *mb_per_s = 1;
    return DS_OK;
}

/* A number for each kind of device. */
static ds_status find_kinds(reader *r, ds_error *err) {
    ds_tag_model *m = r->model;
    ds_tag_graph *g = &m->problem.graph;
    r->kind_of = DS_NEW_N(&m->arena, uint32_t, r->n_devices);
    r->first_of_kind = DS_NEW_N(&m->arena, uint32_t, r->n_devices);
    m->kind = DS_NEW_N(&m->arena, const char *, r->n_devices);
    for (uint32_t d = 0; d < r->n_devices; d++) {
        const char *type = ds_topo_device_type(r->topo, d);
        uint32_t k = 0, catalogue;
        while (k < g->n_kinds && strcmp(m->kind[k], type) != 0) k++;
        r->kind_of[d] = k;
        if (k < g->n_kinds) continue;
        DS_TRY(ds_profiles_find_kind(r->profiles, type, r->topology->loc, &catalogue, err));
        m->kind[k] = ds_arena_strdup(&m->arena, type);
        r->first_of_kind[g->n_kinds++] = d;
    }
    return ds_topo_one_clock(r->topo)
               ? DS_OK
               : refuse(r->topology->loc, "topology with several clocks or power caps", err);
}

static bool same_machine(const reader *r, uint32_t a, uint32_t b) {
    return ds_topo_island(r->topo, a) == ds_topo_island(r->topo, b) &&
           r->kind_of[a] == r->kind_of[b];
}

static ds_status find_machines(reader *r, ds_error *err) {
    ds_tag_model *m = r->model;
    ds_tag_cluster *c = &m->problem.cluster;
    ds_tag_machine *machine = DS_NEW_N(&m->arena, ds_tag_machine, r->n_devices);
    uint32_t *first = DS_NEW_N(&m->arena, uint32_t, r->n_devices);
    m->device = DS_NEW_N(&m->arena, uint32_t, r->n_devices);
    m->machine = DS_NEW_N(&m->arena, const char *, r->n_devices);
    for (uint32_t d = 0; d < r->n_devices; d++) {
        m->device[d] = d;
        if (d > 0 && same_machine(r, d - 1, d)) {
            machine[c->n_machines - 1].n_gpus++;
            continue;
        }
        uint32_t kind;
        DS_TRY(ds_profiles_find_kind(r->profiles, m->kind[r->kind_of[d]], r->topology->loc, &kind,
                                     err));
        int64_t memory = ds_profiles_kind(r->profiles, kind)->memory_bytes;
        m->machine[c->n_machines] = ds_arena_strdup(&m->arena, ds_topo_device_path(r->topo, d));
        first[c->n_machines] = d;
        machine[c->n_machines++] = (ds_tag_machine){r->kind_of[d], 1, memory ? memory : INT64_MAX};
    }
    int64_t *mb_per_s = DS_NEW_N(&m->arena, int64_t, c->n_machines * c->n_machines);
    for (uint32_t a = 0; a < c->n_machines; a++)
        for (uint32_t b = 0; b < c->n_machines; b++) {
            uint32_t to = a == b && machine[a].n_gpus > 1 ? first[a] + 1 : first[b];
            int64_t *rate = &mb_per_s[a * c->n_machines + b];
            *rate = 1000000; /* a GPU alone sends nothing */
            if (to != first[a]) DS_TRY(bandwidth(r, first[a], to, rate, err));
        }
    c->machine = machine;
    c->mb_per_s = mb_per_s;
    return DS_OK;
}

/* ---- batch sizes ---- */

static void add_point(reader *r, int64_t samples) {
    for (uint32_t i = 0; i < r->n_points; i++)
        if (r->point[i] == samples) return;
    if (r->n_points == DS_TAG_MAX_POINTS) return;
    uint32_t at = r->n_points++;
    for (; at > 0 && r->point[at - 1] > samples; at--) r->point[at] = r->point[at - 1];
    r->point[at] = samples;
}

/* What a GPU has of the batch where machines share it evenly, and powers of four between. */
static void find_points(reader *r) {
    const ds_tag_cluster *c = &r->model->problem.cluster;
    add_point(r, 1);
    add_point(r, r->samples);
    for (uint64_t set = 1; c->n_machines <= 4 && set >> c->n_machines == 0; set++) {
        uint32_t n = (uint32_t)__builtin_popcountll(ds_tag_gpus_of(c, set));
        if (r->samples >= n) add_point(r, r->samples / n);
    }
    for (int64_t n = 4; n < r->samples; n *= 4) add_point(r, n);
}

/* A model may not take every batch, as with groups of batch_norm. */
static ds_status drop_points(reader *r, ds_error *err) {
    uint32_t n = 0;
    ds_error why = {0};
    for (uint32_t i = 0; i < r->n_points; i++)
        if (bind(r, r->point[i] * r->n_devices, &why) == DS_OK) r->point[n++] = r->point[i];
    if (n == 0 && err) *err = why;
    r->n_points = n;
    return n > 0 ? DS_OK : DS_ERR_VALUE;
}

/* ---- base groups ---- */

/* "dx", "dw", "d2", "dscale" … : the end of a backward operation's name. */
static bool is_gradient(const char *end) {
    return end[0] == 'd' && end[1] && strlen(end) <= 6;
}

static const uint64_t *base_named(const reader *r, const char *name) {
    return ds_map_find(&r->base_by_name, ds_hash_bytes(name, strlen(name)));
}

/* The base of the longest beginning of the name that is a forward operation; DS_NONE. */
static uint32_t base_of_name(reader *r, const char *name) {
    char *text = ds_arena_strdup(&r->model->arena, name);
    for (;;) {
        const uint64_t *found = base_named(r, text);
        if (found) return (uint32_t)*found;
        char *dot = strrchr(text, '.');
        if (!dot) return DS_NONE;
        bool is_end = is_gradient(dot + 1);
        *dot = 0;
        if (is_end && base_named(r, text)) r->is_backward = true;
    }
}

static uint32_t add_base(reader *r, const char *name) {
    ds_arena *arena = &r->model->arena;
    ds_map_put(&r->base_by_name, ds_hash_bytes(name, strlen(name)), r->base.n);
    DS_PUSH(arena, &r->base, (ds_tag_base){.name = ds_arena_strdup(arena, name)});
    return r->base.n - 1;
}

static bool is_split(ds_opcode code) {
    const char *family = ds_op_desc_of(code)->family;
    return strcmp(family, "linear") == 0 || strcmp(family, "elementwise") == 0 ||
           strcmp(family, "conv") == 0 || code == DS_OP_EMBEDDING || code == DS_OP_CROSS_ENTROPY;
}

/* The dim that tensor parallelism would split: channels of images, else the last one of the result;
 * of a table and of a loss the words. */
static void find_column(reader *r, const ds_record *rec, ds_tag_base *base) {
    const ds_op *op = rec->op;
    const ds_type *in[DS_MAX_OPERANDS], *out[DS_MAX_OPERANDS] = {NULL};
    ds_env env = ds_binding_env(&r->step->binding, NULL);
    ds_rule rule;
    if (!is_split(op->code) || op->n_in > DS_MAX_OPERANDS) return;
    for (uint32_t i = 0; i < op->n_in; i++)
        in[i] = ds_use_type(r->step->unit, rec->func, &op->in[i]);
    for (uint32_t i = 0; i < op->n_out && i < DS_MAX_OPERANDS; i++)
        out[i] = ds_value_at(rec->func, op->out[i])->type;
    ds_infer infer = {.unit = r->step->unit,
                      .func = rec->func,
                      .op = op,
                      .in = in,
                      .out = (ds_type **)out,
                      .env = &env};
    bool is_table = op->code == DS_OP_EMBEDDING, is_loss = op->code == DS_OP_CROSS_ENTROPY;
    const ds_type *type = is_table ? in[1] : is_loss ? in[0] : out[0];
    if (type->rank < 2 || ds_op_rule(&infer, &rule, NULL) != DS_OK) return;
    uint32_t d = is_table ? 0 : type->rank == 4 ? 1 : type->rank - 1;
    const ds_rule_term *term = is_table ? &rule.in[1] : is_loss ? &rule.in[0] : &rule.out[0];
    const ds_rule_dim *dim = &term->dims[d];
    if (ds_type_is_over(type, d, "dp") || dim->n != 1 || dim->any) return;
    if (!is_table && !is_loss && rule.kinds[dim->factors[0]] != DS_FACTOR_PAR) return;
    if (ds_expr_eval_int(&env, type->dims[d].size, op->loc, &base->n_columns, NULL) != DS_OK)
        return;
    base->column = ds_arena_strdup(&r->model->arena, rule.names[dim->factors[0]]);
}

/* An input has no base before its first reader: DS_NONE. */
static uint32_t base_of_inst(reader *r, const ds_record *rec, const ds_tag_op *op) {
    const char *name = ds_path_op_name(rec->func, rec->op);
    const char *end = strrchr(name, '.');
    r->is_backward |= end && strcmp(end, ".grad") == 0; /* zeros and sums */
    bool is_update = strcmp(ds_op_desc_of(rec->op->code)->family, "optimizer") == 0;
    uint32_t base = is_update ? DS_NONE : base_of_name(r, name);
    bool is_exact = base != DS_NONE && strcmp(r->base.at[base].name, name) == 0;
    if (is_exact || (base != DS_NONE && r->is_backward)) return base;
    if (!is_update && !r->is_backward) {
        base = add_base(r, name);
        find_column(r, rec, &r->base.at[base]);
        return base;
    }
    for (uint32_t k = 0; k < op->n_parents; k++)
        if (r->base_of.at[op->parent[k]] != DS_NONE) return r->base_of.at[op->parent[k]];
    return r->base.n > 0 ? r->base_of.at[r->base_of.n - 1] : add_base(r, name); /* zeros */
}

/* ---- operations ---- */

/* Of several results the largest stands for all: a loss has a sum, and a number for each sample. */
static uint32_t main_result(const ds_record *rec) {
    uint32_t most = 0;
    for (uint32_t i = 1; i < rec->n_out; i++)
        if (rec->variants[0].out_bytes[i] >= rec->variants[0].out_bytes[most]) most = i;
    return most;
}

static const ds_type *type_of(const reader *r, const ds_record *rec, const char *name) {
    if (rec->op)
        return rec->op->n_out ? ds_value_at(rec->func, rec->op->out[main_result(rec)])->type : NULL;
    for (uint32_t i = 0; i < r->step->func->n_args; i++) {
        const ds_value_info *arg = ds_value_at(r->step->func, r->step->func->args[i]);
        if (strcmp(arg->name, name) == 0) return arg->type;
    }
    return NULL;
}

static bool is_over_dp(const ds_type *type) {
    for (uint32_t d = 0; type && d < type->rank; d++)
        if (ds_type_is_over(type, d, "dp")) return true;
    return false;
}

/* A part that is not reduced there is taken along like samples. */
static bool is_term(const ds_type *type) {
    return type && type->n_partials > 0;
}

static int64_t result_bytes(const reader *r, uint32_t inst, const ds_record *rec) {
    int64_t bytes = 0;
    for (uint32_t i = 0; i < rec->n_out; i++) {
        const ds_vinst *v = &r->plan->values.at[r->plan->insts.at[inst].first_value + i];
        if (!v->is_state && !v->is_inside) bytes += rec->variants[0].out_bytes[i];
    }
    return bytes;
}

static void read_parents(reader *r, uint32_t inst, ds_tag_op *op) {
    const ds_plan *plan = r->plan;
    uint32_t n = ds_plan_n_reads(plan, inst), first = plan->insts.at[inst].first_operand;
    uint32_t *parent = DS_NEW_N(&r->model->arena, uint32_t, n + 1);
    for (uint32_t k = 0; k < n; k++) {
        uint32_t made_by = r->maker[plan->operands.at[first + k]], i = 0;
        while (i < op->n_parents && parent[i] != made_by) i++;
        if (made_by != DS_NONE && i == op->n_parents) parent[op->n_parents++] = made_by;
    }
    op->parent = parent;
}

/* Inputs belong to their first reader, which also counts their weights. */
static void adopt_inputs(reader *r, ds_tag_op *op, uint32_t base) {
    for (uint32_t k = 0; k < op->n_parents; k++) {
        uint32_t *of = &r->base_of.at[op->parent[k]];
        if (*of != DS_NONE) continue;
        *of = base;
        if (r->ops.at[op->parent[k]].result == DS_TAG_WHOLE)
            op->param_bytes += r->ops.at[op->parent[k]].result_bytes;
    }
}

static void add_op(reader *r, uint32_t inst, const ds_record *rec) {
    ds_arena *arena = &r->model->arena;
    const ds_inst *at = &r->plan->insts.at[inst];
    const ds_type *type = type_of(r, rec, r->plan->values.at[at->first_value].name);
    ds_tag_op op = {.result = DS_TAG_WHOLE, .result_bytes = result_bytes(r, inst, rec)};
    ds_buf path = {0};
    ds_plan_path(r->plan, inst, &path);
    op.name =
        ds_arena_strdup(arena, rec->op ? path.text : r->plan->values.at[at->first_value].name);
    ds_buf_deinit(&path);
    if (is_over_dp(type) || is_term(type)) {
        op.result = DS_TAG_SAMPLES;
        op.result_bytes *= is_over_dp(type) ? r->samples / r->point[0] : r->n_devices;
    }
    if (rec->op) read_parents(r, inst, &op);
    uint32_t base = rec->op ? base_of_inst(r, rec, &op) : DS_NONE;
    if (base != DS_NONE) adopt_inputs(r, &op, base);
    op.us = DS_NEW_N(arena, double, r->model->problem.graph.n_kinds * r->n_points);
    r->inst_op[inst] = r->ops.n;
    for (uint32_t i = 0; i < rec->n_out; i++) r->maker[at->first_value + i] = r->ops.n;
    DS_PUSH(arena, &r->ops, op);
    DS_PUSH(arena, &r->base_of, base);
    DS_PUSH(arena, &r->main_value, at->first_value + main_result(rec));
}

/* What is made of operands without an operation of its own. A reduced term is a sum. */
static void pass_on(reader *r, uint32_t inst, const ds_record *rec) {
    const ds_plan *plan = r->plan;
    const ds_inst *at = &plan->insts.at[inst];
    uint32_t n = ds_plan_n_reads(plan, inst);
    bool reduces = rec->op->code == DS_OP_ALL_REDUCE || rec->op->code == DS_OP_REDUCE_SCATTER;
    for (uint32_t i = 0; i < rec->n_out && n > 0; i++) {
        uint32_t operand = plan->operands.at[at->first_operand + (i < n ? i : n - 1)];
        uint32_t made_by = r->maker[at->first_value + i] = r->maker[operand];
        if (!reduces || made_by == DS_NONE || r->main_value.at[made_by] != operand) continue;
        ds_tag_op *op = &r->ops.at[made_by];
        if (op->result == DS_TAG_SAMPLES) op->result_bytes /= r->n_devices;
        op->result = DS_TAG_SUM;
    }
}

static bool is_view(const ds_record *rec) {
    return rec->op && (ds_op_desc_of(rec->op->code)->flags & DS_OPF_VIEW) != 0;
}

static void read_ops(reader *r) {
    const ds_plan *plan = r->plan;
    r->inst_op = DS_NEW_N(&r->model->arena, uint32_t, plan->insts.n + 1);
    r->maker = DS_NEW_N(&r->model->arena, uint32_t, plan->values.n + 1);
    memset(r->inst_op, 0xff, plan->insts.n * sizeof *r->inst_op);
    memset(r->maker, 0xff, plan->values.n * sizeof *r->maker);
    for (uint32_t i = 0; i < plan->insts.n; i++) {
        const ds_record *rec = plan->records.at[plan->insts.at[i].record];
        if (rec->kind == DS_REC_COMM || is_view(rec))
            pass_on(r, i, rec);
        else
            add_op(r, i, rec);
    }
}

/* ---- prices ---- */

static double us_on(const ds_record *rec, uint32_t device) {
    uint32_t k = 0;
    while (k < rec->n_devices && rec->devices[k] != device) k++;
    if (rec->kind != DS_REC_COMPUTE || k == rec->n_devices) return 0;
    return (double)rec->variants[rec->variant_of[k]].ps * 1e-6;
}

static ds_status read_prices(reader *r, uint32_t point, uint32_t n_insts, ds_error *err) {
    const ds_plan *plan = r->plan;
    if (plan->insts.n != n_insts)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                            "a step of %lld samples a device has %u op instances, of %lld %u: the "
                            "tree search takes models whose operations do not depend on the batch",
                            (long long)r->point[0], n_insts, (long long)r->point[point],
                            plan->insts.n);
    for (uint32_t i = 0; i < plan->insts.n; i++) {
        const ds_record *rec = plan->records.at[plan->insts.at[i].record];
        if (r->inst_op[i] == DS_NONE) continue;
        double *us = (double *)r->ops.at[r->inst_op[i]].us;
        for (uint32_t k = 0; k < r->model->problem.graph.n_kinds; k++)
            us[k * r->n_points + point] = us_on(rec, r->first_of_kind[k]);
    }
    return DS_OK;
}

/* The step with point[i] samples on every device. */
static ds_status read_point(reader *r, uint32_t i, uint32_t *n_insts, ds_error *err) {
    ds_model_step *step = NULL;
    ds_plan *plan = NULL;
    ds_plan_options options = {0};
    DS_TRY(bind(r, r->point[i] * r->n_devices, err));
    DS_TRY(ds_model_step_new(&r->binding, &step, err));
    step->trusted = true;
    ds_status status = ds_model_step_run_to(step, DS_PASS_OVERLAP, NULL, NULL, err);
    if (!status) status = ds_plan_build(&step->binding, r->profiles, &options, &plan, err);
    r->step = step;
    r->plan = plan;
    if (!status && i == 0) {
        read_ops(r);
        *n_insts = plan->insts.n;
    }
    if (!status) status = read_prices(r, i, *n_insts, err);
    ds_plan_free(plan);
    ds_model_step_free(step);
    return status;
}

/* ---- the problem ---- */

static void find_ends(reader *r) {
    for (uint32_t a = 0; a < r->base.n; a++)
        for (uint32_t b = 0; b < r->base.n; b++) {
            const char *name = r->base.at[a].name, *other = r->base.at[b].name;
            size_t n = strlen(name), m = strlen(other);
            if (m > n && other[m - n - 1] == '.' && strcmp(other + m - n, name) == 0)
                r->base.at[a].ends_another = true;
        }
}

static ds_status finish(reader *r, ds_error *err) {
    ds_tag_model *m = r->model;
    ds_tag_graph *g = &m->problem.graph;
    int64_t *batch = DS_NEW_N(&m->arena, int64_t, r->n_points);
    memcpy(batch, r->point, r->n_points * sizeof *batch);
    for (uint32_t i = 0; i < r->ops.n; i++) { /* an input that nothing reads is anywhere */
        if (r->base_of.at[i] == DS_NONE) r->base_of.at[i] = 0;
        r->ops.at[i].group = r->base_of.at[i];
    }
    find_ends(r);
    g->op = r->ops.at;
    g->n_ops = r->ops.n;
    g->n_groups = r->base.n;
    g->batch = batch;
    g->n_points = r->n_points;
    m->problem.batch = r->samples;
    m->n_base = r->base.n;
    m->base = r->base.at;
    m->base_of = r->base_of.at;
    m->group_of = DS_NEW_N(&m->arena, uint32_t, m->n_base + 1);
    for (uint32_t b = 0; b < m->n_base; b++) m->group_of[b] = b;
    m->topology = ds_arena_strdup(&m->arena, r->topology->name);
    return ds_tag_check(&m->problem, err);
}

static ds_status read_all(reader *r, ds_error *err) {
    uint32_t n_insts = 0;
    DS_TRY(open_scenario(r, err));
    DS_TRY(find_kinds(r, err));
    DS_TRY(find_machines(r, err));
    find_points(r);
    DS_TRY(drop_points(r, err));
    for (uint32_t i = 0; i < r->n_points; i++) DS_TRY(read_point(r, i, &n_insts, err));
    return finish(r, err);
}

ds_status ds_tag_model_read(const ds_pase_source *source, const ds_profiles *profiles,
                            ds_tag_model **out, ds_error *err) {
    reader r = {.source = source, .profiles = profiles};
    r.model = ds_xcalloc(1, sizeof *r.model);
    ds_arena_init(&r.model->arena);
    ds_map_init(&r.base_by_name);
    ds_status status = read_all(&r, err);
    ds_map_deinit(&r.base_by_name);
    ds_topo_free(r.topo);
    ds_unit_free(r.unit);
    *out = r.model;
    if (status) {
        ds_tag_model_free(r.model);
        *out = NULL;
    }
    return status;
}

void ds_tag_model_free(ds_tag_model *model) {
    if (!model) return;
    ds_arena_deinit(&model->arena);
    free(model);
}

void ds_tag_model_gather(ds_tag_model *model, uint32_t n_wanted) {
    ds_tag_graph *g = &model->problem.graph;
    ds_tag_op *op = (ds_tag_op *)g->op;
    g->n_groups = model->n_base;
    for (uint32_t i = 0; i < g->n_ops; i++) op[i].group = model->base_of[i];
    g->n_groups = ds_tag_gather(g, n_wanted, &model->arena, model->group_of);
    for (uint32_t i = 0; i < g->n_ops; i++) op[i].group = model->group_of[model->base_of[i]];
}
