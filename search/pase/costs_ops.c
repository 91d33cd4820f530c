/* What one device does: an operation, its backward operations, casts and updates of weights. */
#include "search/pase/costs_internal.h"

#include <math.h>

double ds_pase__bytes_of(const ds_shape *shape) {
    double bytes = ds_dtype_bits(shape->dtype) / 8.0;
    for (uint32_t d = 0; d < shape->rank; d++) bytes *= (double)shape->dims[d];
    return bytes;
}

/* ---- ops ---- */

ds_status ds_pase__op_us(const ds_pase_costs *m, const char *name, const ds_work *work, ds_loc loc,
                         double *sum, ds_error *err) {
    ds_cost cost;
    if (work->kind == DS_WORK_NONE) return DS_OK;
    ds_cost_query query = {.profiles = m->profiles,
                           .kind = m->kind,
                           .profile = m->profile,
                           .op = name,
                           .work = work,
                           .loc = loc,
                           .n_devices = ds_topo_n_devices(m->topo)};
    DS_TRY(ds_cost_op(&query, DS_COST_FITTED, &cost, NULL, err));
    DS_TRY(ds_cost_clock(&query, ds_topo_device_clock(m->topo, 0),
                         ds_topo_device_power_mw(m->topo, 0), &cost, NULL, err));
    *sum += (double)cost.ps * 1e-6;
    return DS_OK;
}

ds_status ds_pase__memory_us(const ds_pase_costs *m, ds_pase_stream s, const ds_shape *shape,
                             ds_loc loc, double *sum, ds_error *err) {
    int64_t width = shape->rank ? shape->dims[shape->rank - 1] : 1;
    double bytes = ds_pase__bytes_of(shape), elements = bytes * 8 / ds_dtype_bits(shape->dtype);
    ds_work work = {.kind = DS_WORK_MEMORY,
                    .dtype = shape->dtype,
                    .flop = (int64_t)elements,
                    .bytes_read = (int64_t)bytes * s.reads,
                    .bytes_written = (int64_t)bytes * s.writes,
                    .tokens = (int64_t)elements / (width > 0 ? width : 1),
                    .width = width};
    return ds_pase__op_us(m, s.op, &work, loc, sum, err);
}

ds_status ds_pase__backward_us(const ds_pase_costs *m, const ds_pase_node *node,
                               const ds_work *work, const double *share, double *sum, double *last,
                               ds_error *err) {
    const ds_op *op = node->op;
    const ds_op_desc *desc = ds_op_desc_of(op->code);
    ds_work back = *work;
    double us = 0;
    *last = 0;
    if (node->kind == DS_PASE_GEMM && op->code != DS_OP_EMBEDDING) {
        bool conv = op->code == DS_OP_CONV2D;
        back.n = work->k;
        back.k = work->n;
        if (share[0] > 0)
            DS_TRY(ds_pase__op_us(m, conv ? "conv2d_grad_x" : "einsum", &back, op->loc, &us, err));
        *sum += us * share[0];
        back = *work;
        back.m = conv ? work->n : work->k;
        back.n = conv ? work->k : work->n;
        back.k = work->m;
        us = 0;
        if (share[1] > 0)
            DS_TRY(ds_pase__op_us(m, conv ? "conv2d_grad_w" : "einsum", &back, op->loc, &us, err));
        *sum += us * share[1];
        *last = us * share[1];
        return DS_OK;
    }
    double most = 0;
    for (uint32_t i = 0; i < node->n_in; i++) most = share[i] > most ? share[i] : most;
    if (most <= 0 || !desc->backward) return DS_OK;
    back.flop *= 2;
    back.bytes_read += work->bytes_written;
    back.bytes_written = work->bytes_read;
    DS_TRY(ds_pase__op_us(m, ds_op_name(desc->backward), &back, op->loc, &us, err));
    *sum += us * most;
    return DS_OK;
}

ds_status ds_pase__casts_us(const ds_pase_costs *m, const ds_pase_node *node,
                            const ds_shape *result, bool back, double *sum, ds_error *err) {
    int64_t from = ds_dtype_bits(back ? node->cast_to : node->cast_from);
    int64_t to = ds_dtype_bits(back ? node->cast_from : node->cast_to);
    int64_t narrow = from < to ? from : to;
    ds_shape shape = *result;
    shape.dtype = (from < to) == back ? node->cast_to : node->cast_from;
    for (uint32_t c = 0; c < node->casts; c++)
        DS_TRY(ds_pase__memory_us(m, (ds_pase_stream){"cast", from / narrow, to / narrow}, &shape,
                                  node->op->loc, sum, err));
    return DS_OK;
}

static int64_t states_of(const ds_pase_costs *m) {
    switch (m->step->train.optimizer) {
    case DS_OPTIMIZER_MOMENTUM:
        return 1;
    case DS_OPTIMIZER_ADAM:
    case DS_OPTIMIZER_ADAMW:
        return 2;
    default:
        return 0;
    }
}

double ds_pase__stays_of(const ds_pase_costs *m, const ds_shape *weight, bool *narrow) {
    const ds_train *train = &m->step->train;
    double own = ds_dtype_bits(weight->dtype);
    ds_dtype master = train->master_dtype == DS_DTYPE_COUNT ? DS_F32 : train->master_dtype;
    bool mixed = train->dtype != DS_DTYPE_COUNT && own < ds_dtype_bits(master);
    ds_dtype state = train->state_dtype != DS_DTYPE_COUNT ? train->state_dtype
                     : mixed                              ? master
                                                          : weight->dtype;
    double bits = own;
    if (train->on) bits += (double)states_of(m) * ds_dtype_bits(state);
    *narrow = train->on && mixed && train->optimizer != DS_OPTIMIZER_NONE;
    if (*narrow) bits += ds_dtype_bits(master);
    return ds_pase__bytes_of(weight) * bits / own;
}

ds_status ds_pase__update_us(const ds_pase_costs *m, const ds_shape *weight, ds_loc loc,
                             double *sum, ds_error *err) {
    static const char *const names[] = {NULL, "sgd", "momentum", "adam", "adamw"};
    const char *name = names[m->step->train.optimizer];
    if (!name) return DS_OK;
    bool narrow;
    double own = ds_pase__bytes_of(weight), stays = ds_pase__stays_of(m, weight, &narrow);
    double reads = ds_pase__gradient_bytes(&m->step->train, weight) + stays - (narrow ? own : 0);
    double elements = own * 8 / ds_dtype_bits(weight->dtype);
    int64_t width = weight->rank ? weight->dims[weight->rank - 1] : 1;
    ds_work work = {.kind = DS_WORK_MEMORY,
                    .dtype = weight->dtype,
                    .flop = (int64_t)elements,
                    .bytes_read = (int64_t)reads,
                    .bytes_written = (int64_t)stays,
                    .tokens = (int64_t)elements / (width > 0 ? width : 1),
                    .width = width};
    return ds_pase__op_us(m, name, &work, loc, sum, err);
}

/* A weight of the step as a shape, and how many its family has; false: that varies with the turn.
 */
static bool weight_shape(const ds_pase_costs *m, const ds_value_info *value, ds_shape *shape,
                         double *n) {
    ds_env env = ds_binding_env(&m->step->binding, NULL);
    const ds_type *type = value->type;
    *shape = (ds_shape){.dtype = type->dtype, .rank = type->rank};
    *n = 1;
    for (uint32_t d = 0; d < type->rank; d++)
        if (ds_expr_eval_int(&env, type->dims[d].size, DS_NOWHERE, &shape->dims[d], NULL) != DS_OK)
            return false;
    for (uint32_t b = 0; b < value->n_binders; b++) {
        const ds_binder *binder = &value->binders[b];
        int64_t lo, hi;
        if (ds_expr_eval_int(&env, binder->lo, DS_NOWHERE, &lo, NULL) != DS_OK ||
            ds_expr_eval_int(&env, binder->hi, DS_NOWHERE, &hi, NULL) != DS_OK)
            return false;
        *n *= hi > lo ? (double)(hi - lo) : 0;
    }
    return true;
}

ds_status ds_pase__all_updates_us(const ds_pase_costs *m, double *sum, ds_error *err) {
    const ds_model_step *step = m->step;
    for (uint32_t w = 0; w < step->weights.n && step->train.on; w++) {
        const ds_value_info *value = ds_value_at(step->func, step->weights.at[w].arg);
        ds_shape shape;
        double n, us = 0;
        if (!weight_shape(m, value, &shape, &n)) continue;
        DS_TRY(ds_pase__update_us(m, &shape, value->loc, &us, err));
        *sum += n * us;
    }
    return DS_OK;
}

ds_status ds_pase__behind_updates_us(const ds_pase_costs *m, const ds_shape *weight, ds_loc loc,
                                     double *us, ds_error *err) {
    double own = 0;
    DS_TRY(ds_pase__update_us(m, weight, loc, &own, err));
    *us = fmax(0, *us - fmax(0, m->updates_us - own));
    return DS_OK;
}
