/* Costs as the simulator has them, one operation or tensor at a time. */
#include "search/pase/costs_internal.h"

#include "ir/strategy/scenario.h"
#include "search/pase/apply.h"
#include "sim/plan/plan.h"

#include <stdlib.h>
#include <string.h>

/* ---- one node under one configuration ---- */

static ds_shape local_shape(const ds_shape *shape, const int8_t *axis, const uint16_t *split) {
    ds_shape local = *shape;
    for (uint32_t d = 0; d < shape->rank; d++)
        if (axis[d] >= 0) local.dims[d] = (shape->dims[d] + split[axis[d]] - 1) / split[axis[d]];
    return local;
}

typedef struct local {
    const ds_pase_node *node;
    const uint16_t *split;
    ds_shape in[DS_MAX_OPERANDS], out[DS_MAX_OPERANDS];
    double turns; /* of a stack of LSTMs */
} local;

static local local_of(const ds_pase_node *node, const uint16_t *split) {
    local l = {.node = node, .split = split, .turns = 1};
    for (uint32_t i = 0; i < node->n_in; i++)
        l.in[i] = local_shape(&node->in[i], node->in_axis[i], split);
    for (uint32_t i = 0; i < node->n_out; i++)
        l.out[i] = local_shape(&node->out[i], node->out_axis[i], split);
    if (node->kind == DS_PASE_LSTM) l.turns = (double)node->size[0];
    return l;
}

static ds_status reduce_us(ds_pase_costs *m, const local *l, const ds_shape *shape,
                           const int8_t *axis, double *us, ds_error *err) {
    ds_pase_group group = ds_pase__axes_without(m, l->node, l->split, axis, shape->rank);
    return ds_pase__group_us(&m->groups, DS_OP_ALL_REDUCE, &group, ds_pase__bytes_of(shape), us,
                             err);
}

/* Small gradients are reduced together, in buckets: each takes its share of one. */
static ds_status bucket_us(ds_pase_costs *m, const ds_pase_group *group, double bytes, double *us,
                           ds_error *err) {
    double bucket = (double)m->step->strategy.bucket_bytes;
    double whole = bytes < bucket ? bucket : bytes;
    DS_TRY(ds_pase__group_us(&m->groups, DS_OP_ALL_REDUCE, group, whole, us, err));
    *us *= bytes / (whole > 0 ? whole : 1);
    return DS_OK;
}

static bool is_differentiable(const ds_shape *shape) {
    return ds_dtype_is_float(shape->dtype);
}

/* Of each microbatch, and of the step: gradients of weights are added up over the microbatches,
 * then reduced once. */
typedef struct times {
    double each, once;
} times;

static ds_status weight_us(ds_pase_costs *m, const local *l, uint32_t i, double *beside, times *sum,
                           ds_error *err) {
    const ds_pase_node *node = l->node;
    double us = 0, add = 0;
    ds_pase_group group =
        ds_pase__axes_without(m, node, l->split, node->in_axis[i], node->in[i].rank);
    DS_TRY(bucket_us(m, &group, ds_pase__bytes_of(&l->in[i]), &us, err));
    if (node->in_tied[i])
        sum->once += us * m->exposed;
    else
        *beside += us;
    if (m->batches > 1)
        DS_TRY(ds_pase__memory_us(m, (ds_pase_stream){"accumulate", 2, 1}, &l->in[i], node->op->loc,
                                  &add, err));
    sum->once += (m->batches - 1) * add;
    if (node->in_reread[i]) /* terms of its readers are added up */
        return ds_pase__memory_us(m, (ds_pase_stream){"add", 2, 1}, &l->in[i], node->op->loc,
                                  &sum->once, err);
    return ds_pase__update_us(m, &l->in[i], node->op->loc, &sum->once, err);
}

static ds_status gradients_us(ds_pase_costs *m, const local *l, const ds_work *work, times *sum,
                              ds_error *err) {
    const ds_pase_node *node = l->node;
    double share[DS_MAX_OPERANDS] = {0}, full[DS_MAX_OPERANDS] = {0};
    double backward = 0, last, work_beside = 0, pointwise = 0, beside = 0;
    bool differ = false;
    for (uint32_t i = 0; i < node->n_in; i++) {
        if (!is_differentiable(&l->in[i])) continue;
        full[i] = node->in_weight[i] || node->in_made[i];
        share[i] = node->in_weight[i] ? 1 : node->made[i] / node->times;
        differ |= full[i] > share[i];
    }
    DS_TRY(ds_pase__backward_us(m, node, work, share, &backward, &last, err));
    work_beside = backward;
    if (differ) {
        work_beside = 0;
        DS_TRY(ds_pase__backward_us(m, node, work, full, &work_beside, &last, err));
    }
    for (uint32_t p = 0; p < node->pointwise; p++)
        DS_TRY(ds_pase__memory_us(m, (ds_pase_stream){"relu_grad", 2, 1}, &l->out[0], node->op->loc,
                                  &pointwise, err));
    for (uint32_t p = 0; p < node->light; p++)
        DS_TRY(ds_pase__memory_us(m, (ds_pase_stream){"reduce_sum", 1, 0}, &l->out[0],
                                  node->op->loc, &pointwise, err));
    DS_TRY(ds_pase__casts_us(m, node, &l->out[0], true, &pointwise, err));
    work_beside += pointwise;
    for (uint32_t i = 0; i < node->n_in; i++) {
        double us = 0;
        if (share[i] <= 0) continue;
        if (node->in_weight[i]) {
            DS_TRY(weight_us(m, l, i, &beside, sum, err));
            continue;
        }
        DS_TRY(reduce_us(m, l, &l->in[i], node->in_axis[i], &us, err));
        if (i == 0) us = us > last ? us - last : 0;
        sum->each += us * share[i];
    }
    double first = node->first / node->times;
    double later = beside > work_beside ? beside - work_beside : 0;
    sum->each += backward + pointwise;
    sum->once += m->exposed * (first * beside + (1 - first) * later);
    return DS_OK;
}

/* A loss whose words are split is several ops over the logits in f32, and three all_reduces of a
 * number a row (ir/passes/shard/loss.c). */
static ds_status split_loss_us(ds_pase_costs *m, const local *l, double *us, ds_error *err) {
    static const ds_pase_stream ops[] = {
        {"reduce_max", 1, 0}, {"expand", 0, 1}, {"sub", 2, 1}, {"exp", 1, 1}, {"reduce_sum", 1, 0}};
    const ds_pase_node *node = l->node;
    ds_shape logits = l->in[0], rows = l->in[0];
    int8_t row_axis[DS_MAX_RANK];
    double reduce = 0;
    if (ds_dtype_bits(logits.dtype) < 32) logits.dtype = DS_F32;
    rows.dtype = logits.dtype;
    rows.rank--;
    memcpy(row_axis, node->in_axis[0], sizeof row_axis);
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        DS_TRY(ds_pase__memory_us(m, ops[i], &logits, node->op->loc, us, err));
    DS_TRY(reduce_us(m, l, &rows, row_axis, &reduce, err));
    *us += 3 * reduce;
    return DS_OK;
}

static bool splits_words(const local *l) {
    const ds_pase_node *node = l->node;
    return node->kind == DS_PASE_LOSS && node->op->code == DS_OP_CROSS_ENTROPY &&
           l->split[__builtin_ctz(node->along)] > 1;
}

/* An argument lies as the model splits it over dp, all devices: to where the op wants it. */
static ds_status arguments_us(ds_pase_costs *m, const local *l, double *sum, ds_error *err) {
    const ds_pase_node *node = l->node;
    for (uint32_t i = 0; i < node->n_in; i++) {
        double us, back, share = 1 - node->made[i] / node->times;
        if (node->in_data[i] < 0 || share <= 0) continue;
        uint32_t rank = node->in[i].rank;
        ds_pase_layout have = {{0}, {0}},
                       want = ds_pase__layout_of(m, node, l->split, node->in_axis[i], rank);
        for (uint32_t d = 0; d < rank; d++) have.parts[d] = have.stride[d] = 1;
        have.parts[node->in_data[i]] = (uint32_t)m->base.limits.devices;
        DS_TRY(ds_pase__moves_us(m, ds_pase__layout_number(m, &have),
                                 ds_pase__layout_number(m, &want), ds_pase__bytes_of(&node->in[i]),
                                 &us, &back, err));
        *sum += m->batches * share * us;
    }
    return DS_OK;
}

static ds_status node_us(ds_pase_costs *m, const local *l, double *us, ds_error *err) {
    const ds_pase_node *node = l->node;
    const ds_op *op = node->op;
    ds_env env = ds_binding_env(&m->step->binding, NULL);
    ds_work work;
    double reduce = 0;
    times sum = {0, 0};
    DS_TRY(ds_op_work(op, &env, l->in, l->out, &work, err));
    if (splits_words(l))
        DS_TRY(split_loss_us(m, l, &sum.each, err));
    else
        DS_TRY(ds_pase__op_us(m, ds_op_name(op->code), &work, op->loc, &sum.each, err));
    for (uint32_t p = 0; p < node->pointwise; p++)
        DS_TRY(ds_pase__memory_us(m, (ds_pase_stream){"relu", 1, 1}, &l->out[0], op->loc, &sum.each,
                                  err));
    for (uint32_t p = 0; p < node->light; p++)
        DS_TRY(ds_pase__memory_us(m, (ds_pase_stream){"bias", 1, 1}, &l->out[0], op->loc, &sum.each,
                                  err));
    DS_TRY(ds_pase__casts_us(m, node, &l->out[0], false, &sum.each, err));
    for (uint32_t i = 0; i < node->n_out; i++) {
        DS_TRY(reduce_us(m, l, &l->out[i], node->out_axis[i], &reduce, err));
        sum.each += reduce;
    }
    if (m->step->train.on) DS_TRY(gradients_us(m, l, &work, &sum, err));
    *us = l->turns * (m->batches * sum.each + sum.once);
    return arguments_us(m, l, us, err);
}

static ds_status too_many_operands(const ds_pase_node *node, ds_error *err) {
    return ds_error_set(err, DS_ERR_UNSUPPORTED, node->op->loc,
                        "the search costs ops of up to %d operands and results, not this '%s'",
                        DS_MAX_OPERANDS, ds_op_name(node->op->code));
}

static ds_status node_costs(ds_pase_model *model, const ds_pase_node *node,
                            const ds_pase_configs *set, double *cost, ds_error *err) {
    bool view = (ds_op_desc_of(node->op->code)->flags & DS_OPF_VIEW) != 0;
    if (!view && (node->op->n_in > DS_MAX_OPERANDS || node->op->n_out > DS_MAX_OPERANDS))
        return too_many_operands(node, err);
    for (uint32_t c = 0; c < set->n; c++) {
        local l = local_of(node, ds_pase_config(set, c));
        cost[c] = 0;
        if (!view) DS_TRY(node_us((ds_pase_costs *)model, &l, &cost[c], err));
    }
    return DS_OK;
}

/* ---- memory ---- */

/* `late`: where the backward pass is fullest, if nothing but the batch is split: with the gradients
 * that are there, and what is still to be read. Else before it, with all that it reads and the
 * gradients of the microbatches before. Per turn of the node. */
static double memory_at(const ds_pase_costs *m, const local *l, bool late) {
    const ds_pase_node *node = l->node;
    bool narrow;
    double bytes = 0, held = 0, before = late ? node->before / node->times : 1;
    double gradients = m->batches > 1 ? 1 : late ? node->behind / node->times : 0;
    for (uint32_t i = 0; i < node->n_in; i++) {
        if (!node->in_weight[i] || node->in_reread[i]) continue;
        bytes += ds_pase__stays_of(m, &l->in[i], &narrow);
        if (m->step->train.on)
            bytes += gradients * ds_pase__gradient_bytes(&m->step->train, &l->in[i]);
    }
    for (uint32_t i = 0; i < DS_PASE_HELD; i++) {
        double parts = 1;
        for (uint32_t a = 0; a < node->n_axes; a++)
            if ((node->held[i].axes >> a) & 1) parts *= l->split[a];
        held += before * node->held[i].bytes / parts;
    }
    held += m->batches * (node->argument_bytes + node->data_bytes / (double)m->base.limits.devices);
    return l->turns * (bytes + held / node->times);
}

static ds_status fill_memory(const ds_pase_costs *m, const ds_pase_node *node,
                             const ds_pase_configs *set, bool late, double *bytes) {
    for (uint32_t c = 0; c < set->n; c++) {
        local l = local_of(node, ds_pase_config(set, c));
        bytes[c] = memory_at(m, &l, late);
    }
    return DS_OK;
}

static ds_status node_memory(ds_pase_model *model, const ds_pase_node *node,
                             const ds_pase_configs *set, double *bytes, ds_error *err) {
    (void)err;
    return fill_memory((const ds_pase_costs *)model, node, set, false, bytes);
}

static ds_status late_memory(ds_pase_model *model, const ds_pase_node *node,
                             const ds_pase_configs *set, double *bytes, ds_error *err) {
    (void)err;
    return fill_memory((const ds_pase_costs *)model, node, set, true, bytes);
}

/* ---- tensors between nodes ---- */

/* An end of an edge. Configurations that put the tensor in the same places are one place. */
typedef struct end {
    ds_pase_node node; /* the number of its axes alone */
    const ds_pase_configs *set;
    uint32_t n, *at; /* places: numbers of layouts */
    uint32_t *of;    /* per configuration: its place */
} end;

static uint32_t place_at(const end *e, uint32_t config) {
    return e->at[e->of[config]];
}

static end end_of(ds_pase_costs *m, const ds_pase_configs *set, const int8_t *axis, uint32_t rank,
                  ds_arena *arena) {
    end e = {.node = {.n_axes = set->n_axes},
             .set = set,
             .at = DS_NEW_N(arena, uint32_t, set->n),
             .of = DS_NEW_N(arena, uint32_t, set->n)};
    for (uint32_t c = 0; c < set->n; c++) {
        ds_pase_layout l = ds_pase__layout_of(m, &e.node, ds_pase_config(set, c), axis, rank);
        uint32_t number = ds_pase__layout_number(m, &l), i = 0;
        while (i < e.n && e.at[i] != number) i++;
        if (i == e.n) e.at[e.n++] = number;
        e.of[c] = i;
    }
    return e;
}

/* Terms of a tied weight's gradient that lie alike at both ends over the same groups are added up
 * before they are reduced: one of the two reductions that the nodes have is given back. If that is
 * so at all edges of the weight, the one that is left ends the backward pass, and other weights are
 * updated beside it; each edge gives back its part of what that hides. Otherwise terms are added up
 * behind reductions, which the updates wait for. */
static ds_status share_reduction(ds_pase_costs *m, const ds_pase_edge *edge, const end *from,
                                 const end *to, double bytes, double *cost, ds_error *err) {
    ds_shape weight = {.dtype = edge->dtype, .rank = edge->rank};
    memcpy(weight.dims, edge->size, edge->rank * sizeof *edge->size);
    for (uint32_t i = 0; i < from->set->n; i++) {
        uint32_t here = place_at(from, i);
        ds_pase_group one = ds_pase__axes_without(m, &from->node, ds_pase_config(from->set, i),
                                                  edge->from_axis, edge->rank);
        double us, last;
        DS_TRY(bucket_us(m, &one, bytes * ds_pase__part_share(&m->layouts.at[here], edge->rank),
                         &us, err));
        last = us;
        DS_TRY(ds_pase__behind_updates_us(m, &weight, DS_NOWHERE, &last, err));
        us += (us - last) / edge->ties;
        for (uint32_t k = 0; k < to->set->n; k++) {
            ds_pase_group other = ds_pase__axes_without(m, &to->node, ds_pase_config(to->set, k),
                                                        edge->to_axis, edge->rank);
            bool same = here == place_at(to, k) && ds_pase__group_same(&one, &other);
            if (same) cost[(size_t)i * to->set->n + k] -= us * m->exposed;
        }
    }
    return DS_OK;
}

static ds_status edge_costs(ds_pase_model *model, const ds_pase_edge *edge,
                            const ds_pase_configs *from, const ds_pase_configs *to, double *cost,
                            ds_error *err) {
    ds_pase_costs *m = (ds_pase_costs *)model;
    ds_arena arena;
    ds_arena_init(&arena);
    end have = end_of(m, from, edge->from_axis, edge->rank, &arena);
    end want = end_of(m, to, edge->to_axis, edge->rank, &arena);
    double *table = DS_NEW_N(&arena, double, (size_t)have.n *want.n + 1);
    double bytes = ds_dtype_bits(edge->dtype) / 8.0;
    for (uint32_t d = 0; d < edge->rank; d++) bytes *= (double)edge->size[d];
    ds_status status = DS_OK;
    for (uint32_t i = 0; i < have.n && !status; i++)
        for (uint32_t k = 0; k < want.n && !status; k++) {
            double forward, back;
            status = ds_pase__moves_us(m, have.at[i], want.at[k], bytes, &forward, &back, err);
            if (!m->step->train.on) back = 0;
            if (edge->again && m->step->train.on) forward *= 1 + m->again; /* not kept as it came */
            table[(size_t)i * want.n + k] = m->batches * (forward + back);
        }
    for (uint32_t i = 0; i < from->n && !status; i++)
        for (uint32_t k = 0; k < to->n; k++)
            cost[(size_t)i * to->n + k] = table[(size_t)have.of[i] * want.n + want.of[k]];
    if (!status && edge->tied && m->step->train.on)
        status = share_reduction(m, edge, &have, &want, bytes, cost, err);
    ds_arena_deinit(&arena);
    return status;
}

/* ---- the model ---- */

static void costs_free(ds_pase_model *model) {
    ds_pase_costs *m = (ds_pase_costs *)model;
    ds_pase__groups_deinit(&m->groups);
    ds_map_deinit(&m->known_layouts);
    ds_map_deinit(&m->known_moves);
    ds_map_deinit(&m->known_ways);
    free(m->layouts.at);
    free(m->moves.at);
    free(m->seen);
    ds_topo_free(m->topo);
    free(m);
}

static ds_status find_devices(ds_pase_costs *m, const ds_binding *source, ds_error *err) {
    const ds_topology *topology = ds_scenario_topology(source->unit);
    uint32_t p = (uint32_t)m->base.limits.devices;
    if (!topology)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "the scenario does not say `on`: costs are those of devices and links");
    DS_TRY(ds_pase_check_devices(source->unit, err));
    DS_TRY(ds_topo_build(source, topology, &m->topo, err));
    if (ds_topo_n_devices(m->topo) < p)
        return ds_error_set(err, DS_ERR_VALUE, topology->loc, "@%s has %u devices, not %u",
                            topology->name, ds_topo_n_devices(m->topo), p);
    const char *type = ds_topo_device_type(m->topo, 0);
    for (uint32_t d = 1; d < p; d++)
        if (strcmp(ds_topo_device_type(m->topo, d), type) != 0)
            return ds_error_set(err, DS_ERR_UNSUPPORTED, topology->loc,
                                "the search is for devices of one kind; @%s has \"%s\" and \"%s\"",
                                topology->name, type, ds_topo_device_type(m->topo, d));
    if (!ds_topo_one_clock(m->topo))
        return ds_error_set(err, DS_ERR_UNSUPPORTED, topology->loc,
                            "the search is for devices of one sustained_clock and power_cap; @%s "
                            "has several",
                            topology->name);
    return ds_profiles_find_kind(m->profiles, type, topology->loc, &m->kind, err);
}

static ds_status find_profile(ds_pase_costs *m, const ds_binding *source, ds_error *err) {
    ds_cost_source found;
    DS_TRY(ds_plan_profile_of(source, m->profiles, m->kind, &found, err));
    m->profile = found.profile;
    return DS_OK;
}

ds_status ds_pase_costs_new(const ds_binding *source, const ds_model_step *step,
                            const ds_profiles *profiles, int64_t devices, int64_t cutoff,
                            ds_pase_model **out, ds_error *err) {
    ds_pase_costs *m = ds_xcalloc(1, sizeof *m);
    m->base = (ds_pase_model){
        .name = "distsim",
        .unit = "us",
        .limits = {.devices = devices, .cutoff = cutoff, .by_rule = true, .divides = true},
        .node = node_costs,
        .edge = edge_costs,
        .memory = node_memory,
        .late_memory = late_memory,
        .prefers_data = true,
        .free = costs_free};
    m->step = step;
    m->profiles = profiles;
    m->batches = (double)step->strategy.microbatches;
    m->seen = ds_xcalloc((size_t)devices + 1, sizeof *m->seen);
    m->exposed = 1;
    m->again = 0;
    ds_map_init(&m->known_layouts);
    ds_map_init(&m->known_moves);
    ds_map_init(&m->known_ways);
    ds_status status = find_devices(m, source, err);
    if (!status) status = find_profile(m, source, err);
    if (!status) status = ds_pase__all_updates_us(m, &m->updates_us, err);
    ds_pase__groups_init(&m->groups, m->topo, profiles, m->profile, (uint32_t)devices);
    *out = NULL;
    if (status) {
        costs_free(&m->base);
        return status;
    }
    m->base.memory_limit = (double)ds_profiles_kind(profiles, m->kind)->memory_bytes;
    *out = &m->base;
    return DS_OK;
}

void ds_pase_costs_expose(ds_pase_model *model, double reductions, double moved_again) {
    ((ds_pase_costs *)model)->exposed = reductions;
    ((ds_pase_costs *)model)->again = moved_again;
}
