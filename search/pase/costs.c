/* Costs as the simulator has them, one operation or tensor at a time. */
#include "search/pase/costs.h"

#include "ir/strategy/scenario.h"
#include "search/pase/apply.h"
#include "search/pase/groups.h"
#include "search/pase/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* How a tensor lies under a configuration of one end. */
typedef struct layout {
    uint32_t parts[DS_MAX_RANK], stride[DS_MAX_RANK];
} layout;

/* What devices lack of a tensor that lies as `have`, and where they get it. */
typedef struct move {
    layout want, have; /* without dims that are whole on both sides */
    uint32_t rank;
    double lacking;  /* a share of the tensor, of the device that lacks most */
    uint32_t within; /* the fewest consecutive devices that together have all they want */
    const ds_pase_curve *exchange; /* that brings it; NULL: none lacks anything */
    double sent;                   /* the share of the tensor that is the collective's size */
    double last_bytes, last_us;    /* the same tensor moves alike between many pairs of splits */
} move;

#define MOST_LOOKS 1e9 /* half a minute and more */

typedef struct costs {
    ds_pase_model base;
    const ds_model_step *step;
    const ds_profiles *profiles;
    ds_topo *topo;
    uint32_t kind, profile;
    ds_pase_groups groups;
    double looks;           /* at parts of devices, for all ways between layouts */
    uint32_t *seen, now;    /* [devices]: which parts are seen already */
    double batches;         /* microbatches of a step, each as large as the graph is */
    double updates_us;      /* of all weights, none of them split */
    double exposed;         /* share of the weights' reductions that counts, */
    double again;           /* and of what is moved again for backward ops */
    DS_VEC(layout) layouts; /* heap, as the next */
    ds_map known_layouts;   /* hash → layouts */
    DS_VEC(move) moves;
    ds_map known_moves; /* hash of two layouts without dims that are whole in both → moves */
    ds_map known_ways;  /* numbers of two layouts → moves from the first and back, packed */
} costs;

/* ---- where parts lie ---- */

/* Device d holds part d / stride % parts of an axis; the first axis is outermost, what is left of
 * the devices innermost. */
static void strides_of(const costs *m, const ds_pase_node *node, const uint16_t *split,
                       uint32_t *stride) {
    uint32_t product = 1;
    for (uint32_t a = 0; a < node->n_axes; a++) product *= split[a];
    uint32_t at = (uint32_t)m->base.limits.devices / product;
    for (uint32_t a = node->n_axes; a-- > 0;) {
        stride[a] = at;
        at *= split[a];
    }
}

static bool has_axis(const int8_t *axis, uint32_t rank, uint32_t a) {
    for (uint32_t d = 0; d < rank; d++)
        if (axis[d] == (int8_t)a) return true;
    return false;
}

/* The axes over which a tensor's parts are terms of a sum, or copies. */
static ds_pase_group axes_without(const costs *m, const ds_pase_node *node, const uint16_t *split,
                                  const int8_t *axis, uint32_t rank) {
    ds_pase_group group = {0};
    uint32_t stride[DS_PASE_MAX_AXES];
    strides_of(m, node, split, stride);
    for (uint32_t a = 0; a < node->n_axes; a++) {
        if (split[a] == 1 || has_axis(axis, rank, a)) continue;
        group.size[group.n_axes] = split[a];
        group.stride[group.n_axes++] = stride[a];
    }
    return group;
}

static ds_shape local_shape(const ds_shape *shape, const int8_t *axis, const uint16_t *split) {
    ds_shape local = *shape;
    for (uint32_t d = 0; d < shape->rank; d++)
        if (axis[d] >= 0) local.dims[d] = (shape->dims[d] + split[axis[d]] - 1) / split[axis[d]];
    return local;
}

static double bytes_of(const ds_shape *shape) {
    double bytes = ds_dtype_bits(shape->dtype) / 8.0;
    for (uint32_t d = 0; d < shape->rank; d++) bytes *= (double)shape->dims[d];
    return bytes;
}

/* ---- ops ---- */

static ds_status op_us(const costs *m, const char *name, const ds_work *work, ds_loc loc,
                       double *sum, ds_error *err) {
    ds_cost cost;
    if (work->kind == DS_WORK_NONE) return DS_OK;
    ds_cost_query query = {m->profiles, m->kind, m->profile, name, work, loc};
    DS_TRY(ds_cost_op(&query, DS_COST_FITTED, &cost, NULL, err));
    DS_TRY(ds_cost_clock(&query, ds_topo_device_clock(m->topo, 0), &cost, NULL, err));
    *sum += (double)cost.ps * 1e-6;
    return DS_OK;
}

/* Reads and writes `bytes` once, a few operations an element. */
static ds_status memory_us(const costs *m, const char *name, const ds_shape *shape, int64_t reads,
                           int64_t writes, ds_loc loc, double *sum, ds_error *err) {
    int64_t width = shape->rank ? shape->dims[shape->rank - 1] : 1;
    double bytes = bytes_of(shape), elements = bytes * 8 / ds_dtype_bits(shape->dtype);
    ds_work work = {.kind = DS_WORK_MEMORY,
                    .dtype = shape->dtype,
                    .flop = (int64_t)elements,
                    .bytes_read = (int64_t)bytes * reads,
                    .bytes_written = (int64_t)bytes * writes,
                    .tokens = (int64_t)elements / (width > 0 ? width : 1),
                    .width = width};
    return op_us(m, name, &work, loc, sum, err);
}

/* What the op's backward ops do, operand by operand: a product with two of its dims exchanged; for
 * all else one op that reads what the op made too, with twice its arithmetic. share[operand]: how
 * many of the turns that the node stands for want its gradient, 0 … 1. *last: of a product, what
 * it does for the second operand, after the first. */
static ds_status backward_us(const costs *m, const ds_pase_node *node, const ds_work *work,
                             const double *share, double *sum, double *last, ds_error *err) {
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
            DS_TRY(op_us(m, conv ? "conv2d_grad_x" : "einsum", &back, op->loc, &us, err));
        *sum += us * share[0];
        back = *work;
        back.m = conv ? work->n : work->k;
        back.n = conv ? work->k : work->n;
        back.k = work->m;
        us = 0;
        if (share[1] > 0)
            DS_TRY(op_us(m, conv ? "conv2d_grad_w" : "einsum", &back, op->loc, &us, err));
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
    DS_TRY(op_us(m, ds_op_name(desc->backward), &back, op->loc, &us, err));
    *sum += us * most;
    return DS_OK;
}

/* Casts of what the node makes, and of its gradient back. */
static ds_status casts_us(const costs *m, const ds_pase_node *node, const ds_shape *result,
                          bool back, double *sum, ds_error *err) {
    int64_t from = ds_dtype_bits(back ? node->cast_to : node->cast_from);
    int64_t to = ds_dtype_bits(back ? node->cast_from : node->cast_to);
    int64_t narrow = from < to ? from : to;
    ds_shape shape = *result;
    shape.dtype = (from < to) == back ? node->cast_to : node->cast_from;
    for (uint32_t c = 0; c < node->casts; c++)
        DS_TRY(memory_us(m, "cast", &shape, from / narrow, to / narrow, node->op->loc, sum, err));
    return DS_OK;
}

static int64_t states_of(const costs *m) {
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

/* Bytes of a weight and its states; *narrow: beside a master copy, which the optimizer reads in its
 * place. */
static double stays_of(const costs *m, const ds_shape *weight, bool *narrow) {
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
    return bytes_of(weight) * bits / own;
}

static ds_status update_us(const costs *m, const ds_shape *weight, ds_loc loc, double *sum,
                           ds_error *err) {
    static const char *const names[] = {NULL, "sgd", "momentum", "adam", "adamw"};
    const char *name = names[m->step->train.optimizer];
    if (!name) return DS_OK;
    bool narrow;
    double own = bytes_of(weight), stays = stays_of(m, weight, &narrow);
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
    return op_us(m, name, &work, loc, sum, err);
}

/* A weight of the step as a shape, and how many its family has; false: that varies with the turn.
 */
static bool weight_shape(const costs *m, const ds_value_info *value, ds_shape *shape, double *n) {
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

static ds_status all_updates_us(const costs *m, double *sum, ds_error *err) {
    const ds_model_step *step = m->step;
    for (uint32_t w = 0; w < step->weights.n && step->train.on; w++) {
        const ds_value_info *value = ds_value_at(step->func, step->weights.at[w].arg);
        ds_shape shape;
        double n, us = 0;
        if (!weight_shape(m, value, &shape, &n)) continue;
        DS_TRY(update_us(m, &shape, value->loc, &us, err));
        *sum += n * us;
    }
    return DS_OK;
}

/* Of a reduction that ends the backward pass: what is left when all other weights are updated. */
static ds_status behind_updates_us(const costs *m, const ds_shape *weight, ds_loc loc, double *us,
                                   ds_error *err) {
    double own = 0;
    DS_TRY(update_us(m, weight, loc, &own, err));
    *us = fmax(0, *us - fmax(0, m->updates_us - own));
    return DS_OK;
}

/* ---- tensors on their way ---- */

static layout layout_of(const costs *m, const ds_pase_node *node, const uint16_t *split,
                        const int8_t *axis, uint32_t rank) {
    layout l = {{0}, {0}};
    uint32_t stride[DS_PASE_MAX_AXES];
    strides_of(m, node, split, stride);
    for (uint32_t d = 0; d < rank; d++) {
        l.parts[d] = axis[d] < 0 ? 1 : split[axis[d]];
        l.stride[d] = l.parts[d] == 1 ? 1 : stride[axis[d]];
    }
    return l;
}

/* Which part of each dim a device has. */
static void parts_at(const layout *l, uint32_t rank, uint32_t device, uint32_t *part) {
    for (uint32_t d = 0; d < rank; d++) part[d] = device / l->stride[d] % l->parts[d];
}

/* The share of the tensor that one device wants and another one has. */
static double common(const layout *want, const uint32_t *wanted, const layout *have,
                     const uint32_t *had, uint32_t rank) {
    double share = 1;
    for (uint32_t d = 0; d < rank; d++) {
        double a = 1.0 / want->parts[d], b = 1.0 / have->parts[d];
        double lo = a * wanted[d], hi = lo + a;
        double from = b * had[d], to = from + b;
        double width = (hi < to ? hi : to) - (lo > from ? lo : from);
        if (width <= 1e-12) return 0;
        share *= width;
    }
    return share;
}

static double part_share(const layout *l, uint32_t rank) {
    double share = 1;
    for (uint32_t d = 0; d < rank; d++) share /= l->parts[d];
    return share;
}

/* Do the devices from `first` on, n of them, have all that the device wants? */
static bool covers(costs *m, const move *x, uint32_t device, uint32_t first, uint32_t n) {
    double sum = 0, whole = part_share(&x->want, x->rank);
    uint32_t wanted[DS_MAX_RANK], had[DS_MAX_RANK];
    parts_at(&x->want, x->rank, device, wanted);
    m->now++;
    for (uint32_t e = first; e < first + n; e++) {
        uint32_t number = 0; /* of the part among all, which are p at most */
        parts_at(&x->have, x->rank, e, had);
        for (uint32_t d = 0; d < x->rank; d++) number = number * x->have.parts[d] + had[d];
        if (m->seen[number] == m->now) continue;
        m->seen[number] = m->now;
        sum += common(&x->want, wanted, &x->have, had, x->rank);
    }
    return sum >= whole * (1 - 1e-9);
}

static void find_move(costs *m, move *x) {
    uint32_t p = (uint32_t)m->base.limits.devices, wanted[DS_MAX_RANK], had[DS_MAX_RANK];
    double whole = part_share(&x->want, x->rank);
    for (uint32_t d = 0; d < p; d++) {
        parts_at(&x->want, x->rank, d, wanted);
        parts_at(&x->have, x->rank, d, had);
        double lacks = whole - common(&x->want, wanted, &x->have, had, x->rank);
        if (lacks > x->lacking) x->lacking = lacks;
    }
    if (x->lacking < 1e-12) return;
    for (x->within = 2; x->within < p; x->within++) {
        uint32_t n = x->within;
        if (p % n != 0) continue;
        if (covers(m, x, 0, 0, n) && covers(m, x, p - 1, p - n, n)) break;
    }
}

/* Is all that differs that some dims become whole? Then the groups that gather them. */
static bool is_gather(const move *x, ds_pase_group *group) {
    *group = (ds_pase_group){0};
    for (uint32_t d = 0; d < x->rank; d++) {
        if (x->want.parts[d] == x->have.parts[d] && x->want.stride[d] == x->have.stride[d])
            continue;
        if (x->want.parts[d] > 1) return false;
        group->size[group->n_axes] = x->have.parts[d];
        group->stride[group->n_axes++] = x->have.stride[d];
    }
    return true;
}

/* The collective that brings what is lacking. */
static ds_status find_exchange(costs *m, move *x, ds_error *err) {
    ds_pase_group group;
    if (is_gather(x, &group)) {
        x->sent = part_share(&x->want, x->rank);
        return ds_pase__group_curve(&m->groups, DS_OP_ALL_GATHER, &group, &x->exchange, err);
    }
    group = (ds_pase_group){.n_axes = 1, .size = {x->within}, .stride = {1}};
    x->sent = x->lacking * x->within / (x->within - 1);
    return ds_pase__group_curve(&m->groups, DS_OP_ALL_TO_ALL, &group, &x->exchange, err);
}

/* Many tensors move alike: each way is looked at once. */
static ds_status find_way(costs *m, const layout *want, const layout *have, uint32_t *way,
                          ds_error *err) {
    move x = {.rank = 0};
    for (uint32_t d = 0; d < DS_MAX_RANK; d++) {
        if (want->parts[d] <= 1 && have->parts[d] <= 1) continue;
        x.want.parts[x.rank] = want->parts[d];
        x.want.stride[x.rank] = want->stride[d];
        x.have.parts[x.rank] = have->parts[d];
        x.have.stride[x.rank++] = have->stride[d];
    }
    uint64_t hash = x.rank;
    for (uint32_t d = 0; d < x.rank; d++) {
        hash = ds_hash_mix(hash, (uint64_t)x.want.parts[d] << 32 | x.want.stride[d]);
        hash = ds_hash_mix(hash, (uint64_t)x.have.parts[d] << 32 | x.have.stride[d]);
    }
    for (;; hash = ds_hash_mix(hash, 1)) {
        const uint64_t *found = ds_map_find(&m->known_moves, hash);
        if (!found) break;
        const move *known = &m->moves.at[*found];
        *way = (uint32_t)*found;
        if (memcmp(&known->want, &x.want, sizeof x.want) == 0 &&
            memcmp(&known->have, &x.have, sizeof x.have) == 0)
            return DS_OK;
    }
    m->looks += (double)m->base.limits.devices;
    if (m->looks > MOST_LOOKS)
        return ds_error_set(err, DS_ERR_LIMIT, DS_NOWHERE,
                            "over %lld devices tensors can lie in so many ways that more than %g "
                            "parts would have to be looked at; a larger cutoff or fewer devices "
                            "make fewer",
                            (long long)m->base.limits.devices, MOST_LOOKS);
    find_move(m, &x);
    if (x.lacking >= 1e-12) DS_TRY(find_exchange(m, &x, err));
    *way = m->moves.n;
    ds_map_put(&m->known_moves, hash, m->moves.n);
    DS_HPUSH(&m->moves, x);
    return DS_OK;
}

static double move_us(costs *m, uint32_t way, double bytes) {
    move *x = &m->moves.at[way];
    if (x->last_bytes != bytes) {
        x->last_bytes = bytes;
        x->last_us = ds_pase__curve_us(x->exchange, x->sent * bytes);
    }
    return x->last_us;
}

/* Microseconds for every device to get what it wants of a tensor of so many bytes, and what it had
 * of the tensor's gradient; layouts by number. */
static ds_status moves_us(costs *m, uint32_t have, uint32_t want, double bytes, double *forward,
                          double *back, ds_error *err) {
    *forward = *back = 0;
    if (want == have) return DS_OK;
    uint64_t key = (uint64_t)have << 32 | want;
    const uint64_t *found = ds_map_find(&m->known_ways, key);
    uint64_t ways = found ? *found : 0;
    if (!found) {
        uint32_t there, again;
        const layout from = m->layouts.at[have], to = m->layouts.at[want];
        DS_TRY(find_way(m, &to, &from, &there, err));
        DS_TRY(find_way(m, &from, &to, &again, err));
        ways = (uint64_t)there << 32 | again;
        ds_map_put(&m->known_ways, key, ways);
    }
    *forward = move_us(m, (uint32_t)(ways >> 32), bytes);
    *back = move_us(m, (uint32_t)ways, bytes);
    return DS_OK;
}

static uint32_t layout_number(costs *m, const layout *l) {
    uint64_t hash = 0;
    for (uint32_t d = 0; d < DS_MAX_RANK && l->parts[d]; d++)
        hash = ds_hash_mix(hash, (uint64_t)l->parts[d] << 32 | l->stride[d]);
    for (;; hash = ds_hash_mix(hash, 1)) {
        const uint64_t *found = ds_map_find(&m->known_layouts, hash);
        if (!found) break;
        if (memcmp(&m->layouts.at[*found], l, sizeof *l) == 0) return (uint32_t)*found;
    }
    ds_map_put(&m->known_layouts, hash, m->layouts.n);
    DS_HPUSH(&m->layouts, *l);
    return m->layouts.n - 1;
}

/* ---- one node under one configuration ---- */

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

static ds_status reduce_us(costs *m, const local *l, const ds_shape *shape, const int8_t *axis,
                           double *us, ds_error *err) {
    ds_pase_group group = axes_without(m, l->node, l->split, axis, shape->rank);
    return ds_pase__group_us(&m->groups, DS_OP_ALL_REDUCE, &group, bytes_of(shape), us, err);
}

/* Small gradients are reduced together, in buckets: each takes its share of one. */
static ds_status bucket_us(costs *m, const ds_pase_group *group, double bytes, double *us,
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

static ds_status weight_us(costs *m, const local *l, uint32_t i, double *beside, times *sum,
                           ds_error *err) {
    const ds_pase_node *node = l->node;
    double us = 0, add = 0;
    ds_pase_group group = axes_without(m, node, l->split, node->in_axis[i], node->in[i].rank);
    DS_TRY(bucket_us(m, &group, bytes_of(&l->in[i]), &us, err));
    if (node->in_tied[i])
        sum->once += us * m->exposed;
    else
        *beside += us;
    if (m->batches > 1)
        DS_TRY(memory_us(m, "accumulate", &l->in[i], 2, 1, node->op->loc, &add, err));
    sum->once += (m->batches - 1) * add;
    if (node->in_reread[i]) /* terms of its readers are added up */
        return memory_us(m, "add", &l->in[i], 2, 1, node->op->loc, &sum->once, err);
    return update_us(m, &l->in[i], node->op->loc, &sum->once, err);
}

static ds_status gradients_us(costs *m, const local *l, const ds_work *work, times *sum,
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
    DS_TRY(backward_us(m, node, work, share, &backward, &last, err));
    work_beside = backward;
    if (differ) {
        work_beside = 0;
        DS_TRY(backward_us(m, node, work, full, &work_beside, &last, err));
    }
    for (uint32_t p = 0; p < node->pointwise; p++)
        DS_TRY(memory_us(m, "relu_grad", &l->out[0], 2, 1, node->op->loc, &pointwise, err));
    for (uint32_t p = 0; p < node->light; p++)
        DS_TRY(memory_us(m, "reduce_sum", &l->out[0], 1, 0, node->op->loc, &pointwise, err));
    DS_TRY(casts_us(m, node, &l->out[0], true, &pointwise, err));
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
static ds_status split_loss_us(costs *m, const local *l, double *us, ds_error *err) {
    static const struct {
        const char *op;
        int64_t reads, writes;
    } ops[] = {
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
        DS_TRY(
            memory_us(m, ops[i].op, &logits, ops[i].reads, ops[i].writes, node->op->loc, us, err));
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
static ds_status arguments_us(costs *m, const local *l, double *sum, ds_error *err) {
    const ds_pase_node *node = l->node;
    for (uint32_t i = 0; i < node->n_in; i++) {
        double us, back, share = 1 - node->made[i] / node->times;
        if (node->in_data[i] < 0 || share <= 0) continue;
        uint32_t rank = node->in[i].rank;
        layout have = {{0}, {0}}, want = layout_of(m, node, l->split, node->in_axis[i], rank);
        for (uint32_t d = 0; d < rank; d++) have.parts[d] = have.stride[d] = 1;
        have.parts[node->in_data[i]] = (uint32_t)m->base.limits.devices;
        DS_TRY(moves_us(m, layout_number(m, &have), layout_number(m, &want), bytes_of(&node->in[i]),
                        &us, &back, err));
        *sum += m->batches * share * us;
    }
    return DS_OK;
}

static ds_status node_us(costs *m, const local *l, double *us, ds_error *err) {
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
        DS_TRY(op_us(m, ds_op_name(op->code), &work, op->loc, &sum.each, err));
    for (uint32_t p = 0; p < node->pointwise; p++)
        DS_TRY(memory_us(m, "relu", &l->out[0], 1, 1, op->loc, &sum.each, err));
    for (uint32_t p = 0; p < node->light; p++)
        DS_TRY(memory_us(m, "bias", &l->out[0], 1, 1, op->loc, &sum.each, err));
    DS_TRY(casts_us(m, node, &l->out[0], false, &sum.each, err));
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
        if (!view) DS_TRY(node_us((costs *)model, &l, &cost[c], err));
    }
    return DS_OK;
}

/* ---- memory ---- */

/* `late`: where the backward pass is fullest, if nothing but the batch is split: with the gradients
 * that are there, and what is still to be read. Else before it, with all that it reads and the
 * gradients of the microbatches before. Per turn of the node. */
static double memory_at(const costs *m, const local *l, bool late) {
    const ds_pase_node *node = l->node;
    bool narrow;
    double bytes = 0, held = 0, before = late ? node->before / node->times : 1;
    double gradients = m->batches > 1 ? 1 : late ? node->behind / node->times : 0;
    for (uint32_t i = 0; i < node->n_in; i++) {
        if (!node->in_weight[i] || node->in_reread[i]) continue;
        bytes += stays_of(m, &l->in[i], &narrow);
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

static ds_status fill_memory(const costs *m, const ds_pase_node *node, const ds_pase_configs *set,
                             bool late, double *bytes) {
    for (uint32_t c = 0; c < set->n; c++) {
        local l = local_of(node, ds_pase_config(set, c));
        bytes[c] = memory_at(m, &l, late);
    }
    return DS_OK;
}

static ds_status node_memory(ds_pase_model *model, const ds_pase_node *node,
                             const ds_pase_configs *set, double *bytes, ds_error *err) {
    (void)err;
    return fill_memory((const costs *)model, node, set, false, bytes);
}

static ds_status late_memory(ds_pase_model *model, const ds_pase_node *node,
                             const ds_pase_configs *set, double *bytes, ds_error *err) {
    (void)err;
    return fill_memory((const costs *)model, node, set, true, bytes);
}

/* ---- tensors between nodes ---- */

/* Configurations that put a tensor in the same places. */
typedef struct places {
    uint32_t n, *at; /* numbers of layouts */
    uint32_t *of;    /* per configuration */
} places;

static places places_of(costs *m, const ds_pase_node *node, const ds_pase_configs *set,
                        const int8_t *axis, uint32_t rank, ds_arena *arena) {
    places p = {.at = DS_NEW_N(arena, uint32_t, set->n), .of = DS_NEW_N(arena, uint32_t, set->n)};
    for (uint32_t c = 0; c < set->n; c++) {
        layout l = layout_of(m, node, ds_pase_config(set, c), axis, rank);
        uint32_t number = layout_number(m, &l), i = 0;
        while (i < p.n && p.at[i] != number) i++;
        if (i == p.n) p.at[p.n++] = number;
        p.of[c] = i;
    }
    return p;
}

/* Terms of a tied weight's gradient that lie alike at both ends over the same groups are added up
 * before they are reduced: one of the two reductions that the nodes have is given back. If that is
 * so at all edges of the weight, the one that is left ends the backward pass, and other weights are
 * updated beside it; each edge gives back its part of what that hides. Otherwise terms are added up
 * behind reductions, which the updates wait for. */
static ds_status share_reduction(costs *m, const ds_pase_edge *edge, const ds_pase_node *a,
                                 const ds_pase_node *b, const ds_pase_configs *from,
                                 const ds_pase_configs *to, const places *have, const places *want,
                                 double bytes, double *cost, ds_error *err) {
    ds_shape weight = {.dtype = edge->dtype, .rank = edge->rank};
    memcpy(weight.dims, edge->size, edge->rank * sizeof *edge->size);
    for (uint32_t i = 0; i < from->n; i++) {
        uint32_t here = have->at[have->of[i]];
        ds_pase_group one =
            axes_without(m, a, ds_pase_config(from, i), edge->from_axis, edge->rank);
        double us, last;
        DS_TRY(bucket_us(m, &one, bytes * part_share(&m->layouts.at[here], edge->rank), &us, err));
        last = us;
        DS_TRY(behind_updates_us(m, &weight, DS_NOWHERE, &last, err));
        us += (us - last) / edge->ties;
        for (uint32_t k = 0; k < to->n; k++) {
            ds_pase_group other =
                axes_without(m, b, ds_pase_config(to, k), edge->to_axis, edge->rank);
            bool same = here == want->at[want->of[k]] && ds_pase__group_same(&one, &other);
            if (same) cost[(size_t)i * to->n + k] -= us * m->exposed;
        }
    }
    return DS_OK;
}

static ds_status edge_costs(ds_pase_model *model, const ds_pase_edge *edge,
                            const ds_pase_configs *from, const ds_pase_configs *to, double *cost,
                            ds_error *err) {
    costs *m = (costs *)model;
    ds_arena arena;
    ds_arena_init(&arena);
    ds_pase_node a = {.n_axes = from->n_axes}, b = {.n_axes = to->n_axes};
    places have = places_of(m, &a, from, edge->from_axis, edge->rank, &arena);
    places want = places_of(m, &b, to, edge->to_axis, edge->rank, &arena);
    double *table = DS_NEW_N(&arena, double, (size_t)have.n *want.n + 1);
    double bytes = ds_dtype_bits(edge->dtype) / 8.0;
    for (uint32_t d = 0; d < edge->rank; d++) bytes *= (double)edge->size[d];
    ds_status status = DS_OK;
    for (uint32_t i = 0; i < have.n && !status; i++)
        for (uint32_t k = 0; k < want.n && !status; k++) {
            double forward, back;
            status = moves_us(m, have.at[i], want.at[k], bytes, &forward, &back, err);
            if (!m->step->train.on) back = 0;
            if (edge->again && m->step->train.on) forward *= 1 + m->again; /* not kept as it came */
            table[(size_t)i * want.n + k] = m->batches * (forward + back);
        }
    for (uint32_t i = 0; i < from->n && !status; i++)
        for (uint32_t k = 0; k < to->n; k++)
            cost[(size_t)i * to->n + k] = table[(size_t)have.of[i] * want.n + want.of[k]];
    if (!status && edge->tied && m->step->train.on)
        status = share_reduction(m, edge, &a, &b, from, to, &have, &want, bytes, cost, err);
    ds_arena_deinit(&arena);
    return status;
}

/* ---- the model ---- */

static void costs_free(ds_pase_model *model) {
    costs *m = (costs *)model;
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

static ds_status find_devices(costs *m, const ds_binding *source, ds_error *err) {
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
    for (uint32_t d = 1; d < p; d++)
        if (ds_topo_device_clock(m->topo, d) != ds_topo_device_clock(m->topo, 0))
            return ds_error_set(err, DS_ERR_UNSUPPORTED, topology->loc,
                                "the search is for devices of one sustained_clock; @%s has several",
                                topology->name);
    return ds_profiles_find_kind(m->profiles, type, topology->loc, &m->kind, err);
}

static ds_status find_profile(costs *m, const ds_binding *source, ds_error *err) {
    uint32_t n = ds_scenario_text_count(source->unit, "", "profile");
    for (uint32_t i = 0; i < n && m->profile == 0; i++) {
        const char *name;
        uint32_t profile;
        DS_TRY(ds_scenario_text_at(source, "", "profile", i, &name, err));
        DS_TRY(ds_profiles_find_profile(m->profiles, name, DS_NOWHERE, &profile, err));
        if (ds_profile_kind(m->profiles, profile) == m->kind) m->profile = profile;
    }
    return DS_OK;
}

ds_status ds_pase_costs_new(const ds_binding *source, const ds_model_step *step,
                            const ds_profiles *profiles, int64_t devices, int64_t cutoff,
                            ds_pase_model **out, ds_error *err) {
    costs *m = ds_xcalloc(1, sizeof *m);
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
    if (!status) status = all_updates_us(m, &m->updates_us, err);
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
    ((costs *)model)->exposed = reductions;
    ((costs *)model)->again = moved_again;
}
