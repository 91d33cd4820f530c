/* The problem of sufficient factors, from the instances of a plan.
 *
 * A vertex is a name: all instances of an operation in turns, microbatches and calls. A collective is
 * its operand. */
#include "sim/run/factors.h"

#include "ir/passes/build/build.h"
#include "ir/passes/build/path.h"
#include "ir/strategy/scenario.h"
#include "sim/run/internal.h"

#include <stdlib.h>
#include <string.h>

enum { PS_PER_US = 1000000, NS_PER_US = 1000 };

typedef struct vertex {
    const char *name;
    uint32_t with; /* the vertex whose choice it shares; a root has itself */
    bool is_known;
    bool is_free;    /* a backward operation of the group */
    bool is_passing; /* passes terms of a sum on */
    int64_t ps, gradient_bytes;
} vertex;

/* What one operation's result is to others. */
typedef struct tensor {
    uint32_t maker;
    int64_t bytes;
    DS_VEC(uint32_t) readers;
} tensor;

typedef struct finder {
    const ds_plan *plan;
    const ds_op_group *group;
    const char *model;
    ds_arena *arena;
    const char **axes; /* of the replicas, interned; NULL: not known */
    uint32_t n_axes;
    const ds_group *ring;
    DS_VEC(const char *) taken; /* patterns of backward operations that another group has */
    DS_VEC(vertex) vertices;
    DS_VEC(tensor) tensors;
    ds_map by_name, by_result;
    uint32_t *vertex_of; /* [records] */
    bool *counted;       /* [values]: its bytes are part of a tensor's */
} finder;

static const ds_record *record_of(const finder *f, uint32_t inst) {
    return f->plan->records.at[f->plan->insts.at[inst].record];
}

/* The value that a collective brought, as its maker left it. */
static uint32_t origin_of(const finder *f, uint32_t value) {
    for (;;) {
        const ds_vinst *v = &f->plan->values.at[value];
        if (record_of(f, v->inst)->kind != DS_REC_COMM) return value;
        if (v->result >= ds_plan_n_reads(f->plan, v->inst)) return value;
        value = f->plan->operands.at[f->plan->insts.at[v->inst].first_operand + v->result];
    }
}

/* ---- replicas ---- */

/* The loops around a scope, from the inside out. */
static const ds_path_loop *loops_of(const finder *f, uint32_t scope) {
    ds_path_loop *loops = NULL, **at = &loops;
    for (; scope != DS_NONE; scope = f->plan->scopes.at[scope].up) {
        const ds_scope *s = &f->plan->scopes.at[scope];
        if (!s->op || s->op->code != DS_OP_FOR) continue;
        *at = DS_NEW(f->arena, ds_path_loop);
        **at = (ds_path_loop){ds_path_loop_name(s->func, s->op), DS_ANY_TURN, NULL};
        at = (ds_path_loop **)&(*at)->up;
    }
    return loops;
}

/* Is the instance of a backward operation of the group? Casts that `lower` adds have no path. */
static bool is_backward(const finder *f, uint32_t inst) {
    const ds_record *record = record_of(f, inst);
    if (!record->op || record->kind != DS_REC_COMPUTE) return false;
    const char *name = ds_path_op_name(record->func, record->op), *dot = strrchr(name, '.');
    if (!dot || !ds_path_is_gradient(dot + 1) || strstr(name, ".cast.")) return false;
    const char *forward = ds_arena_strndup(f->arena, name, (size_t)(dot - name));
    const ds_path_loop *loops = loops_of(f, f->plan->insts.at[inst].scope);
    for (uint32_t i = 0; i < f->taken.n; i++)
        if (ds_path_match(f->taken.at[i], f->model, loops, name, NULL)) return false;
    for (uint32_t i = 0; i < f->group->n_ops; i++)
        if (ds_path_match(f->group->ops[i], f->model, loops, forward, NULL)) return true;
    return false;
}

static bool is_axis(const finder *f, const char *name) {
    for (uint32_t i = 0; i < f->n_axes; i++)
        if (f->axes[i] == name) return true;
    return false;
}

static bool is_reduction(const finder *f, const ds_record *record) {
    bool is = record->kind == DS_REC_COMM && record->op &&
              (record->op->code == DS_OP_ALL_REDUCE || record->op->code == DS_OP_REDUCE_SCATTER) &&
              record->n_groups == 1 && record->groups[0].n_devices > 1;
    for (uint32_t i = 0; is && f->axes && i < record->op->n_over; i++)
        is = is_axis(f, record->op->over[i]);
    return is && (!f->axes || record->op->n_over == f->n_axes);
}

/* Is the value made by a backward operation of the group, or a sum of such values (over microbatches, over
 * turns)? */
static bool is_of_group(const finder *f, uint32_t value, uint32_t depth) {
    uint32_t inst = f->plan->values.at[origin_of(f, value)].inst;
    const ds_record *record = record_of(f, inst);
    if (is_backward(f, inst)) return true;
    bool sums = record->op && record->kind == DS_REC_COMPUTE && depth &&
                ds_op_desc_of(record->op->code)->flags & DS_OPF_LAZY;
    for (uint32_t k = 0; sums && k < ds_plan_n_reads(f->plan, inst); k++)
        if (is_of_group(f, f->plan->operands.at[f->plan->insts.at[inst].first_operand + k],
                        depth - 1))
            return true;
    return false;
}

/* The first reduction of what a backward operation makes tells the replicas. */
static void find_replicas(finder *f) {
    for (uint32_t i = 0; i < f->plan->insts.n && !f->axes; i++) {
        const ds_record *record = record_of(f, i);
        if (!is_reduction(f, record)) continue;
        for (uint32_t k = 0; k < ds_plan_n_reads(f->plan, i); k++) {
            uint32_t value = f->plan->operands.at[f->plan->insts.at[i].first_operand + k];
            if (!is_of_group(f, value, 4)) continue;
            f->axes = record->op->over;
            f->n_axes = record->op->n_over;
            f->ring = &record->groups[0];
        }
    }
}

static ds_status find_bandwidth(finder *f, int64_t *mb_per_s, ds_error *err) {
    double least = (double)DS_SFB_MAX_SPEED * 1e6;
    for (uint32_t i = 0; i < f->ring->n_devices; i++) {
        const ds_route *route;
        uint32_t next = f->ring->devices[(i + 1) % f->ring->n_devices];
        DS_TRY(ds_topo_route(f->plan->topo, f->ring->devices[i], next, &route, err));
        for (uint32_t k = 0; k < route->n_links; k++) {
            const ds_topo_link *link = ds_topo_link_at(f->plan->topo, route->links[k]);
            double rate = (double)link->bytes_per_s * 0x1p32 / (double)route->share_q32[k];
            if (rate < least) least = rate;
        }
    }
    *mb_per_s = least < 1e6 ? 1 : (int64_t)(least / 1e6);
    return DS_OK;
}

/* ---- vertices ---- */

static uint32_t root_of(const finder *f, uint32_t v) {
    while (f->vertices.at[v].with != v) v = f->vertices.at[v].with;
    return v;
}

/* Inputs are vertices of their own. */
static uint32_t vertex_of(finder *f, uint32_t record_index) {
    const ds_record *record = f->plan->records.at[record_index];
    const char *name = record->op ? ds_path_op_name(record->func, record->op) : "";
    uint64_t key = record->op ? ds_hash_bytes(name, strlen(name)) : ~(uint64_t)record_index;
    uint64_t *slot = ds_map_slot(&f->by_name, key);
    if (!*slot) {
        vertex v = {.name = name, .with = f->vertices.n};
        DS_PUSH(f->arena, &f->vertices, v);
        *slot = f->vertices.n;
    }
    return (uint32_t)*slot - 1;
}

static bool same_devices(const finder *f, const ds_record *record) {
    uint32_t n = f->ring->n_devices, found = 0;
    for (uint32_t i = 0; i < n && record->n_devices == n; i++)
        for (uint32_t k = 0; k < n; k++) found += record->devices[k] == f->ring->devices[i];
    return found == n;
}

static int64_t slowest_ps(const ds_record *record) {
    int64_t most = 0;
    for (uint32_t i = 0; i < record->n_variants; i++)
        if (record->variants[i].ps > most) most = record->variants[i].ps;
    return most;
}

static int64_t bytes_of(const finder *f, uint32_t value) {
    const ds_vinst *v = &f->plan->values.at[value];
    const ds_record *record = record_of(f, v->inst);
    int64_t most = 0;
    for (uint32_t i = 0; i < record->n_variants; i++)
        if (record->variants[i].out_bytes[v->result] > most)
            most = record->variants[i].out_bytes[v->result];
    return most;
}

/* ---- what is read ---- */

static bool is_split(const finder *f, const ds_type *type) {
    for (uint32_t d = 0; d < type->rank; d++)
        for (uint32_t k = 0; k < type->dims[d].n_splits; k++)
            if (is_axis(f, type->dims[d].splits[k].axis)) return true;
    return false;
}

static bool is_partial(const finder *f, const ds_type *type) {
    for (uint32_t i = 0; i < type->n_partials; i++)
        if (is_axis(f, type->partials[i].axis)) return true;
    return false;
}

static tensor *tensor_of(finder *f, uint32_t maker, uint32_t result) {
    uint64_t *slot = ds_map_slot(&f->by_result, (uint64_t)maker << 32 | result);
    if (!*slot) {
        DS_PUSH(f->arena, &f->tensors, ((tensor){.maker = maker}));
        *slot = f->tensors.n;
    }
    return &f->tensors.at[*slot - 1];
}

static void add_reader(finder *f, uint32_t reader, uint32_t value) {
    uint32_t origin = origin_of(f, value);
    const ds_vinst *v = &f->plan->values.at[origin];
    uint32_t maker = f->vertex_of[f->plan->insts.at[v->inst].record];
    if (maker == DS_NONE || maker == reader) return;
    tensor *t = tensor_of(f, maker, v->result);
    if (!f->counted[value]) t->bytes += bytes_of(f, value);
    f->counted[value] = true;
    for (uint32_t i = 0; i < t->readers.n; i++)
        if (t->readers.at[i] == reader) return;
    DS_PUSH(f->arena, &t->readers, reader);
}

/* The terms' makers and the reader are whole together. */
static void join(finder *f, uint32_t reader, uint32_t value) {
    const ds_vinst *v = &f->plan->values.at[origin_of(f, value)];
    uint32_t maker = f->vertex_of[f->plan->insts.at[v->inst].record];
    f->vertices.at[reader].is_passing = true;
    if (maker != DS_NONE) f->vertices.at[root_of(f, maker)].with = root_of(f, reader);
}

static void read_operands(finder *f, uint32_t inst) {
    const ds_record *record = record_of(f, inst);
    uint32_t reader = f->vertex_of[f->plan->insts.at[inst].record];
    uint32_t n = ds_plan_n_reads(f->plan, inst);
    for (uint32_t k = 0; k < n && n == record->op->n_in; k++) {
        const ds_type *type =
            ds_use_type(record->func->module->unit, record->func, &record->op->in[k]);
        uint32_t value = f->plan->operands.at[f->plan->insts.at[inst].first_operand + k];
        if (is_partial(f, type))
            join(f, reader, value);
        else if (is_split(f, type) && f->vertices.at[reader].is_free)
            add_reader(f, reader, value);
    }
}

static void read_reduction(finder *f, uint32_t inst) {
    bool half = record_of(f, inst)->op->code == DS_OP_REDUCE_SCATTER;
    for (uint32_t k = 0; k < ds_plan_n_reads(f->plan, inst); k++) {
        uint32_t value = f->plan->operands.at[f->plan->insts.at[inst].first_operand + k];
        uint32_t origin = origin_of(f, value);
        uint32_t maker = f->vertex_of[f->plan->insts.at[f->plan->values.at[origin].inst].record];
        if (maker != DS_NONE)
            f->vertices.at[maker].gradient_bytes += bytes_of(f, value) / (half ? 2 : 1);
    }
}

static void add_instance(finder *f, uint32_t inst) {
    const ds_record *record = record_of(f, inst);
    vertex *v = &f->vertices.at[f->vertex_of[f->plan->insts.at[inst].record]];
    if (!v->is_known) v->is_free = same_devices(f, record) && is_backward(f, inst);
    v->is_known = true;
    v->ps += slowest_ps(record);
    read_operands(f, inst);
}

static void read_plan(finder *f) {
    const ds_plan *plan = f->plan;
    for (uint32_t r = 0; r < plan->records.n; r++) {
        bool is = plan->records.at[r]->kind == DS_REC_COMPUTE ||
                  plan->records.at[r]->kind == DS_REC_INPUT;
        f->vertex_of[r] = is ? vertex_of(f, r) : DS_NONE;
    }
    for (uint32_t i = 0; i < plan->insts.n; i++) {
        const ds_record *record = record_of(f, i);
        if (record->kind == DS_REC_COMPUTE && record->op) {
            add_instance(f, i);
        } else if (is_reduction(f, record)) {
            read_reduction(f, i);
        }
    }
}

/* ---- the problem ---- */

/* A root has the sums of what shares its choice. */
static ds_sfb_op *list_ops(finder *f) {
    uint32_t n = f->vertices.n;
    ds_sfb_op *op = DS_NEW_N(f->arena, ds_sfb_op, n + 1);
    for (uint32_t i = 0; i < n; i++) {
        const vertex *v = &f->vertices.at[i];
        ds_sfb_op *root = &op[root_of(f, i)];
        root->time_ns += (v->ps + PS_PER_US / 2) / PS_PER_US * NS_PER_US;
        root->gradient_bytes += v->gradient_bytes;
        root->stays |= !v->is_free && !v->is_passing;
    }
    for (uint32_t i = 0; i < n; i++) op[i].stays |= f->vertices.at[i].with != i;
    return op;
}

static ds_sfb_tensor *list_tensors(finder *f) {
    ds_sfb_tensor *out = DS_NEW_N(f->arena, ds_sfb_tensor, f->tensors.n + 1);
    for (uint32_t i = 0; i < f->tensors.n; i++) {
        const tensor *t = &f->tensors.at[i];
        uint32_t *reader = DS_NEW_N(f->arena, uint32_t, t->readers.n + 1), n = 0;
        uint32_t maker = root_of(f, t->maker);
        for (uint32_t k = 0; k < t->readers.n; k++) {
            uint32_t root = root_of(f, t->readers.at[k]), j = 0;
            while (j < n && reader[j] != root) j++;
            if (j == n && root != maker) reader[n++] = root;
        }
        out[i] = (ds_sfb_tensor){maker, n, reader, t->bytes};
    }
    return out;
}

static ds_status choose(finder *f, ds_factors *out, ds_error *err) {
    find_replicas(f);
    if (!f->axes) return DS_OK;
    f->vertex_of = DS_NEW_N(f->arena, uint32_t, f->plan->records.n + 1);
    f->counted = DS_NEW_N(f->arena, bool, f->plan->values.n + 1);
    read_plan(f);
    ds_sfb_problem problem = {.n_replicas = f->ring->n_devices,
                              .gather = f->group->serial ? DS_SFB_SERIAL : DS_SFB_NICS,
                              .n_ops = f->vertices.n,
                              .n_tensors = f->tensors.n,
                              .op = list_ops(f),
                              .tensor = list_tensors(f)};
    DS_TRY(find_bandwidth(f, &problem.mb_per_s, err));
    DS_TRY(ds_sfb_choose(&problem, f->arena, &out->choice, err));
    out->n_replicas = problem.n_replicas;
    out->mb_per_s = problem.mb_per_s;
    out->op = DS_NEW_N(f->arena, const char *, f->vertices.n + 1);
    for (uint32_t i = 0; i < f->vertices.n; i++)
        if (f->vertices.at[i].is_free && out->choice.is_whole[root_of(f, i)])
            out->op[out->n++] = ds_arena_strdup(f->arena, f->vertices.at[i].name);
    return DS_OK;
}

/* Collects the patterns by which groups name backward operations: such operations stay where the pattern puts them. */
static void find_taken(finder *f, const ds_model_step *step) {
    const ds_attr *groups = step->strategy.groups;
    for (uint32_t i = 0; groups && i < groups->n_items; i++) {
        ds_op_group other;
        if (ds_group_read(&step->binding, &groups->items[i], &other, NULL) != DS_OK) continue;
        for (uint32_t k = 0; k < other.n_ops; k++)
            if (ds_path_names_gradient(other.ops[k])) DS_PUSH(f->arena, &f->taken, other.ops[k]);
    }
}

ds_status ds_factors_choose(const ds_result *result, const ds_op_group *group, ds_arena *arena,
                            ds_factors *out, ds_error *err) {
    finder f = {.plan = result->plan,
                .group = group,
                .model = ds_scenario_model(result->source->unit)->name,
                .arena = arena};
    *out = (ds_factors){0};
    find_taken(&f, result->step);
    ds_map_init(&f.by_name);
    ds_map_init(&f.by_result);
    ds_status status = choose(&f, out, err);
    ds_map_deinit(&f.by_name);
    ds_map_deinit(&f.by_result);
    return status;
}

/* ---- the search ---- */

typedef struct searcher {
    const ds_binding *source;
    const ds_profiles *profiles;
    const ds_sim_options *options;
    ds_arena arena;
    ds_result *best;
} searcher;

bool ds_factors_wanted(const ds_binding *source) {
    const ds_attr *groups = ds_strategy_groups(source->unit);
    if (!groups || !ds_scenario_model(source->unit) || ds_scenario_is_program(source->unit))
        return false;
    for (uint32_t i = 0; i < groups->n_items; i++) {
        ds_op_group group; /* passes report an error */
        if (ds_group_read(source, &groups->items[i], &group, NULL) == DS_OK &&
            group.by == DS_GROUP_SFB)
            return true;
    }
    return false;
}

static const char *factors_name(searcher *s, const ds_op_group *group) {
    return ds_intern(&s->source->unit->strings,
                     ds_arena_printf(&s->arena, "%s factors", group->name));
}

static void put_factors(searcher *s, const ds_op_group *group, const ds_factors *factors) {
    ds_unit *unit = s->source->unit;
    ds_op_group whole = {.name = factors_name(s, group), .on = group->on, .by = DS_GROUP_DUPLICATE};
    whole.ops = DS_NEW_N(&s->arena, const char *, factors->n + 1);
    for (; whole.n_ops < factors->n; whole.n_ops++)
        whole.ops[whole.n_ops] = ds_arena_printf(&s->arena, "%s/%s", ds_scenario_model(unit)->name,
                                                 factors->op[whole.n_ops]);
    ds_group_put(unit, &whole);
}

static bool is_better(const ds_result *a, const ds_result *b) {
    if (a->metrics.fits != b->metrics.fits) return a->metrics.fits;
    return a->run.step_ps < b->run.step_ps;
}

/* Simulates the step with the factors of the group; keeps the better scenario. *idle is true before; false
 * after the scenario with the factors was kept. A choice that a pass cannot carry out (gradients of
 * microbatches that lie unlike) is dropped. */
static ds_status try_group(searcher *s, const ds_op_group *group, bool *idle, ds_error *err) {
    ds_scenario old = *ds_unit_scenario(s->source->unit);
    ds_factors factors;
    ds_result *result;
    DS_TRY(ds_factors_choose(s->best, group, &s->arena, &factors, err));
    if (!factors.n) return DS_OK;
    put_factors(s, group, &factors);
    ds_status status = ds_simulate(s->source, s->profiles, s->options, &result, err);
    if (status == DS_ERR_UNSUPPORTED) ds_scenario_restore(s->source->unit, &old);
    if (status != DS_OK) return status == DS_ERR_UNSUPPORTED ? DS_OK : status;
    *idle = !is_better(result, s->best);
    if (*idle) ds_scenario_restore(s->source->unit, &old);
    ds_result_free(*idle ? result : s->best);
    if (!*idle) s->best = result;
    return DS_OK;
}

/* The group of the chosen operations would take the place of a group of its name. */
static ds_status check_name(searcher *s, const ds_op_group *group, ds_error *err) {
    const ds_attr *blocks = ds_strategy_groups(s->source->unit);
    for (uint32_t i = 0; i < blocks->n_items; i++)
        if (strcmp(blocks->items[i].name, factors_name(s, group)) == 0)
            return ds_error_set(err, DS_ERR_VALUE, blocks->items[i].loc,
                                "group \"%s\": the name is for the operations that group \"%s\", "
                                "by = sfb, computes whole: take another",
                                blocks->items[i].name, group->name);
    return DS_OK;
}

static ds_status search(searcher *s, ds_error *err) {
    const ds_attr *blocks = ds_strategy_groups(s->source->unit);
    DS_VEC(ds_op_group) groups = {0};
    bool *idle = DS_NEW_N(&s->source->unit->arena, bool, 2 * blocks->n_items);
    for (uint32_t i = 0; i < blocks->n_items; i++) {
        ds_op_group group;
        DS_TRY(ds_group_read(s->source, &blocks->items[i], &group, err));
        idle[i] = group.by == DS_GROUP_SFB;
        if (!idle[i]) continue;
        DS_TRY(check_name(s, &group, err));
        DS_PUSH(&s->arena, &groups, group);
        group.by = DS_GROUP_ALL_REDUCE;
        ds_group_put(s->source->unit, &group);
    }
    DS_TRY(ds_simulate(s->source, s->profiles, s->options, &s->best, err));
    for (uint32_t i = 0, n = 0; i < blocks->n_items; i++)
        if (idle[i]) DS_TRY(try_group(s, &groups.at[n++], &idle[i], err));
    s->best->step->strategy.sfb_idle = idle;
    return DS_OK;
}

ds_status ds_run__factors(const ds_binding *source, const ds_profiles *profiles,
                          const ds_sim_options *options, ds_result **out, ds_error *err) {
    ds_sim_options turns = *options;
    searcher s = {.source = source, .profiles = profiles, .options = &turns};
    ds_scenario old = *ds_unit_scenario(source->unit);
    turns.repeat_turns = 0;
    ds_arena_init(&s.arena);
    ds_status status = search(&s, err);
    if (status != DS_OK) ds_scenario_restore(source->unit, &old);
    if (status != DS_OK) ds_result_free(s.best);
    if (status == DS_OK) *out = s.best;
    ds_arena_deinit(&s.arena);
    return status;
}
