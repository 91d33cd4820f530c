/* Communication on real data.
 *
 * However it is written (over axes, in a local region, across devices, in a group of ranks), a
 * collective is: some members' operands in rank order, some members' results in rank order. Shards
 * are moved as the op says (put together along a dim, cut, added up in rank order) and the result
 * is then what its type calls it; if the two disagree, shapes or numbers are wrong and are seen. */
#include "ir/exec/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- one group ---- */

typedef struct mover {
    ds_exec_memory *memory;
    const ds_exec_group *g;
    ds_loc loc;
} mover;

static ds_status wrong_shape(const mover *m, const ds_tensor *have, const ds_tensor *want,
                             ds_error *err) {
    char a[DS_DIMS_TEXT], b[DS_DIMS_TEXT];
    return ds_error_set(err, DS_ERR_SHAPE, m->loc, "%s: a device gets %s, but its type says %s",
                        ds_op_name(m->g->code), ds_dims_text(have->rank, have->dims, a),
                        ds_dims_text(want->rank, want->dims, b));
}

/* The result of member i is this tensor; the caller keeps its own ownership. */
static ds_status give(const mover *m, uint32_t i, const ds_tensor *t, ds_error *err) {
    ds_tensor *out = m->g->out[i];
    if (!ds_tensor_same_shape(t, out)) return wrong_shape(m, t, out, err);
    *out = ds_tensor_share(t);
    return DS_OK;
}

static ds_status give_all(const mover *m, const ds_tensor *t, ds_error *err) {
    for (uint32_t i = 0; i < m->g->n_out; i++) DS_TRY(give(m, i, t, err));
    return DS_OK;
}

/* A rooted op where every member has a result: those of the others mean nothing. */
static ds_status give_root(const mover *m, const ds_tensor *t, ds_error *err) {
    if (m->g->n_out == 1) return give(m, 0, t, err);
    for (uint32_t i = 0; i < m->g->n_out; i++) {
        if (i == m->g->root) {
            DS_TRY(give(m, i, t, err));
            continue;
        }
        ds_tensor *out = m->g->out[i], fresh;
        DS_TRY(ds_tensor_new(m->memory, out->rank, out->dims, m->loc, &fresh, err));
        for (int64_t k = 0; k < fresh.n; k++) fresh.at[k] = NAN;
        *out = fresh;
    }
    return DS_OK;
}

static ds_status reduced(const mover *m, ds_tensor *sum, ds_error *err) {
    const ds_exec_group *g = m->g;
    DS_TRY(ds_tensor_new(m->memory, g->in[0]->rank, g->in[0]->dims, m->loc, sum, err));
    memcpy(sum->at, g->in[0]->at, (size_t)sum->n * sizeof(double));
    for (uint32_t i = 1; i < g->n_in; i++) {
        const ds_tensor *t = g->in[i];
        if (!ds_tensor_same_shape(t, sum)) {
            ds_status status = wrong_shape(m, t, sum, err);
            ds_tensor_drop(sum);
            return status;
        }
        for (int64_t k = 0; k < sum->n; k++) {
            if (!g->max)
                sum->at[k] += t->at[k];
            else if (t->at[k] > sum->at[k] || isnan(t->at[k]))
                sum->at[k] = t->at[k];
        }
    }
    return DS_OK;
}

static ds_status concatenated(const mover *m, ds_tensor *whole, ds_error *err) {
    const ds_exec_group *g = m->g;
    int64_t dims[DS_MAX_RANK], lo[DS_MAX_RANK] = {0};
    static const int64_t zeros[DS_MAX_RANK] = {0};
    for (uint32_t d = 0; d < g->in[0]->rank; d++) dims[d] = g->in[0]->dims[d];
    for (uint32_t i = 1; i < g->n_in; i++) {
        ds_tensor like = *g->in[i];
        like.dims[g->dim] = g->in[0]->dims[g->dim];
        if (!ds_tensor_same_shape(&like, g->in[0])) return wrong_shape(m, &like, g->in[0], err);
        dims[g->dim] += g->in[i]->dims[g->dim];
    }
    DS_TRY(ds_tensor_new(m->memory, g->in[0]->rank, dims, m->loc, whole, err));
    for (uint32_t i = 0; i < g->n_in; i++) {
        ds_tensor_copy_box(whole, lo, g->in[i], zeros, g->in[i]->dims, NULL);
        lo[g->dim] += g->in[i]->dims[g->dim];
    }
    return DS_OK;
}

/* Every member gets its consecutive part of dim d, as large as its type says. */
static ds_status give_parts(const mover *m, const ds_tensor *whole, ds_error *err) {
    const ds_exec_group *g = m->g;
    int64_t lo[DS_MAX_RANK] = {0};
    static const int64_t zeros[DS_MAX_RANK] = {0};
    for (uint32_t i = 0; i < g->n_out; i++) {
        ds_tensor *out = g->out[i], part, fits = *whole;
        fits.dims[g->dim] = out->dims[g->dim];
        bool last = i + 1 == g->n_out;
        int64_t end = lo[g->dim] + out->dims[g->dim];
        if (!ds_tensor_same_shape(&fits, out) || end > whole->dims[g->dim] ||
            (last && end != whole->dims[g->dim]))
            return wrong_shape(m, whole, out, err);
        DS_TRY(ds_tensor_new(m->memory, out->rank, out->dims, m->loc, &part, err));
        ds_tensor_copy_box(&part, zeros, whole, lo, part.dims, NULL);
        *out = part;
        lo[g->dim] = end;
    }
    return DS_OK;
}

/* Member r gets part r along dim_to of every operand, put together along dim. */
static ds_status all_to_all(const mover *m, ds_error *err) {
    const ds_exec_group *g = m->g;
    int64_t from[DS_MAX_RANK] = {0};
    for (uint32_t r = 0; r < g->n_out; r++) {
        ds_tensor *out = g->out[r], fresh;
        DS_TRY(ds_tensor_new(m->memory, out->rank, out->dims, m->loc, &fresh, err));
        int64_t to[DS_MAX_RANK] = {0};
        for (uint32_t i = 0; i < g->n_in; i++) {
            const ds_tensor *in = g->in[i];
            ds_tensor box = fresh;
            box.dims[g->dim] = in->dims[g->dim];
            bool fits = to[g->dim] + box.dims[g->dim] <= fresh.dims[g->dim] &&
                        from[g->dim_to] + box.dims[g->dim_to] <= in->dims[g->dim_to];
            for (uint32_t d = 0; d < in->rank; d++)
                fits = fits && (d == g->dim_to || box.dims[d] == in->dims[d]);
            if (!fits) {
                ds_tensor_drop(&fresh);
                return wrong_shape(m, in, out, err);
            }
            ds_tensor_copy_box(&fresh, to, in, from, box.dims, NULL);
            to[g->dim] += box.dims[g->dim];
        }
        from[g->dim_to] += fresh.dims[g->dim_to];
        *out = fresh;
    }
    return DS_OK;
}

static ds_status permute(const mover *m, ds_error *err) {
    const ds_exec_group *g = m->g;
    int64_t n = g->n_in;
    for (uint32_t i = 0; i < g->n_in; i++) {
        int64_t to = ((int64_t)i + g->shift % n + n) % n;
        DS_TRY(give(m, (uint32_t)to, g->in[i], err));
    }
    return DS_OK;
}

ds_status ds_exec__group(ds_exec_memory *memory, const ds_exec_group *g, ds_loc loc,
                         ds_error *err) {
    mover m = {memory, g, loc};
    ds_tensor whole = {0};
    uint32_t root = g->n_in == 1 ? 0 : g->root;
    ds_status status = DS_OK;
    switch (g->code) {
    case DS_OP_ALL_REDUCE:
    case DS_OP_REDUCE:
    case DS_OP_REDUCE_SCATTER:
        DS_TRY(reduced(&m, &whole, err));
        break;
    case DS_OP_ALL_GATHER:
    case DS_OP_GATHER:
        DS_TRY(concatenated(&m, &whole, err));
        break;
    default:
        break;
    }
    switch (g->code) {
    case DS_OP_ALL_REDUCE:
    case DS_OP_ALL_GATHER:
        status = give_all(&m, &whole, err);
        break;
    case DS_OP_REDUCE:
    case DS_OP_GATHER:
        status = give_root(&m, &whole, err);
        break;
    case DS_OP_REDUCE_SCATTER:
        status = give_parts(&m, &whole, err);
        break;
    case DS_OP_BROADCAST:
        return give_all(&m, g->in[root], err);
    case DS_OP_SCATTER:
        return give_parts(&m, g->in[root], err);
    case DS_OP_ALL_TO_ALL:
        return all_to_all(&m, err);
    default:
        return permute(&m, err);
    }
    ds_tensor_drop(&whole);
    return status;
}

/* ---- clauses ---- */

static ds_status dim_clause(const ds_exec_site *site, const ds_op *op, ds_expr dim, uint32_t rank,
                            uint32_t *out, ds_error *err) {
    ds_env env = ds_binding_env(site->run->binding, site->indices);
    int64_t at;
    if (!DS_HAS_EXPR(dim)) return DS_OK;
    DS_TRY(ds_expr_eval_int(&env, dim, op->loc, &at, err));
    if (at < 0 || at >= rank)
        return ds_error_set(err, DS_ERR_VALUE, op->loc, "%s: there is no dim %lld among %u",
                            ds_op_name(op->code), (long long)at, rank);
    *out = (uint32_t)at;
    return DS_OK;
}

ds_status ds_exec__group_clauses(const ds_exec_site *site, const ds_op *op, ds_exec_group *g,
                                 ds_error *err) {
    ds_env env = ds_binding_env(site->run->binding, site->indices);
    const char *word = ds_op_attr_str(op, site->run->binding->unit, "op");
    uint32_t rank = g->in[0]->rank;
    int64_t root = 0;
    g->code = op->code;
    g->shift = 1;
    g->max = g->max || (word && strcmp(word, "max") == 0);
    DS_TRY(dim_clause(site, op, op->dim, rank, &g->dim, err));
    DS_TRY(dim_clause(site, op, op->dim_to, rank, &g->dim_to, err));
    if (op->code == DS_OP_PERMUTE) DS_TRY(ds_op_attr_int(op, &env, "shift", &g->shift, err));
    const ds_attr *attr = ds_attr_find(op->attrs, op->n_attrs, "root");
    if (attr && attr->kind == DS_ATTR_EXPR) DS_TRY(ds_op_attr_int(op, &env, "root", &root, err));
    if (attr && attr->kind == DS_ATTR_LIST && attr->n_items)
        DS_TRY(ds_expr_eval_int(&env, attr->items[0].expr, attr->loc, &root, err));
    if (g->n_in > 1 && (root < 0 || root >= g->n_in))
        return ds_error_set(err, DS_ERR_VALUE, op->loc, "%s: root %lld is no member of %u",
                            ds_op_name(op->code), (long long)root, g->n_in);
    g->root = (uint32_t)root;
    return DS_OK;
}

/* ---- over axes ---- */

/* Positions of a group's members in rank order: `leader` has coordinate 0 on the axes. */
static void members(const ds_exec_place *place, const ds_op *op, uint32_t leader, uint32_t n,
                    uint32_t *out) {
    for (uint32_t r = 0; r < n; r++) {
        int64_t rest = r, at = leader;
        for (uint32_t k = op->n_over; k-- > 0;) {
            uint32_t axis = ds_exec_axis(place, op->over[k]);
            if (axis == place->n_axes) continue;
            int64_t stride = 1;
            for (uint32_t a = axis + 1; a < place->n_axes; a++) stride *= place->sizes[a];
            at += rest % place->sizes[axis] * stride;
            rest /= place->sizes[axis];
        }
        out[r] = (uint32_t)at;
    }
}

static uint64_t over_bits(const ds_exec_place *place, const ds_op *op) {
    uint64_t bits = 0;
    for (uint32_t k = 0; k < op->n_over; k++) {
        uint32_t axis = ds_exec_axis(place, op->over[k]);
        if (axis < place->n_axes) bits |= UINT64_C(1) << axis;
    }
    return bits;
}

static bool is_leader(const ds_exec_place *place, uint64_t bits, uint32_t position) {
    for (uint32_t a = 0; a < place->n_axes; a++)
        if ((bits >> a & 1) && ds_exec_coordinate(place, a, position)) return false;
    return true;
}

static ds_exec_part *part_on(const ds_exec_value *value, const ds_exec_place *place,
                             uint32_t position) {
    if (value->place != place) position = ds_exec_position(value->place, place->devices[position]);
    return position == UINT32_MAX ? NULL : &value->parts[position];
}

static ds_status over_axes(const ds_exec_site *site, const ds_op *op, const ds_exec_value *in,
                           ds_exec_value *out, ds_error *err) {
    bool from_root = op->code == DS_OP_BROADCAST || op->code == DS_OP_SCATTER;
    const ds_exec_place *place = from_root ? out->place : in->place;
    uint64_t bits = over_bits(place, op), reduced_bits = over_bits(in->place, op);
    if ((in->sum & reduced_bits) && (in->max & reduced_bits))
        return ds_error_set(err, DS_ERR_UNSUPPORTED, op->loc,
                            "%s over an axis of a sum and one of a maximum: write two",
                            ds_op_name(op->code));
    uint32_t n = 1;
    for (uint32_t a = 0; a < place->n_axes; a++)
        if (bits >> a & 1) n *= (uint32_t)place->sizes[a];
    uint32_t *at = ds_xcalloc(n, sizeof *at);
    ds_exec_group g = {.in = ds_xcalloc(n, sizeof *g.in), .out = ds_xcalloc(n, sizeof *g.out)};
    ds_status status = DS_OK;
    for (uint32_t p = 0; p < place->n_devices && status == DS_OK; p++) {
        if (!is_leader(place, bits, p)) continue;
        members(place, op, p, n, at);
        g.n_in = g.n_out = 0;
        g.max = (in->max & reduced_bits) != 0;
        for (uint32_t r = 0; r < n; r++) {
            ds_exec_part *from = part_on(in, place, at[r]), *to = part_on(out, place, at[r]);
            if (from) g.in[g.n_in++] = &from->t;
            if (to) g.out[g.n_out++] = &to->t;
        }
        if (!g.n_in || !g.n_out)
            status = ds_error_set(err, DS_ERR_SHARDING, op->loc,
                                  "%s: a group of devices has no operand or no result",
                                  ds_op_name(op->code));
        if (status == DS_OK) status = ds_exec__group_clauses(site, op, &g, err);
        if (status == DS_OK) status = ds_exec__group(&site->run->memory, &g, op->loc, err);
    }
    free(at);
    free(g.in);
    free(g.out);
    return status;
}

/* ---- across, send, reshard ---- */

/* No device is in two groups, nor twice in one. */
static ds_status check_places(const ds_exec_place *const *places, uint32_t n, const ds_op *op,
                              ds_error *err) {
    uint32_t at;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t p = 0; p < places[i]->n_devices; p++)
            DS_TRY(ds_exec_places_across(places, op->n_in, n, places[i]->devices[p], op, &at, err));
    return DS_OK;
}

/* The i-th devices of all operands and results are a group. */
static ds_status across(const ds_exec_site *site, const ds_op *op, ds_exec_value *const *in,
                        ds_exec_value **out, ds_error *err) {
    uint32_t n = op->n_in + (op->n_to ? op->n_out : 0);
    const ds_exec_place **places = ds_xcalloc(n, sizeof *places);
    for (uint32_t i = 0; i < n; i++) places[i] = (i < op->n_in ? in[i] : out[i - op->n_in])->place;
    ds_status status = check_places(places, n, op, err);
    ds_exec_group g = {.n_in = op->n_in,
                       .n_out = op->n_out,
                       .in = ds_xcalloc(op->n_in, sizeof *g.in),
                       .out = ds_xcalloc(op->n_out, sizeof *g.out)};
    for (uint32_t p = 0; p < places[0]->n_devices && status == DS_OK; p++) {
        for (uint32_t i = 0; i < op->n_in; i++) g.in[i] = &in[i]->parts[p].t;
        for (uint32_t i = 0; i < op->n_out; i++) g.out[i] = &out[i]->parts[p].t;
        status = ds_exec__group_clauses(site, op, &g, err);
        if (status == DS_OK) status = ds_exec__group(&site->run->memory, &g, op->loc, err);
    }
    free(places);
    free(g.in);
    free(g.out);
    return status;
}

/* The position with the same coordinates by name; axes that the target lacks count as 0. */
static uint32_t same_coordinates(const ds_exec_place *from, const ds_exec_place *to,
                                 uint32_t position) {
    int64_t at = 0;
    for (uint32_t a = 0; a < from->n_axes; a++) {
        uint32_t axis = ds_exec_axis(to, from->axes[a]);
        int64_t c = axis < to->n_axes ? ds_exec_coordinate(to, axis, position) : 0;
        at = at * from->sizes[a] + (c < from->sizes[a] ? c : 0);
    }
    return (uint32_t)at;
}

static ds_status send(const ds_op *op, const ds_exec_value *in, ds_exec_value *out, ds_error *err) {
    if (in->place->n_devices != out->place->n_devices)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, op->loc,
                            "send from %u devices to %u: slices must be of equal size",
                            in->place->n_devices, out->place->n_devices);
    for (uint32_t p = 0; p < out->place->n_devices; p++) {
        const ds_tensor *t = &in->parts[same_coordinates(in->place, out->place, p)].t;
        ds_exec_group one = {.code = op->code, .n_in = 1, .n_out = 1, .in = &t};
        ds_tensor *to = &out->parts[p].t;
        one.out = &to;
        DS_TRY(give(&(mover){NULL, &one, op->loc}, 0, t, err));
    }
    return DS_OK;
}

/* Axes of the operand's place along which its terms (or manual tensors) stay apart. */
static ds_status kept_axes(const ds_op *op, const ds_exec_value *in, const ds_exec_value *out,
                           uint64_t *kept, ds_error *err) {
    *kept = in->place == out->place ? in->manual : 0;
    for (uint32_t a = 0; a < in->place->n_axes; a++) {
        uint32_t b = ds_exec_axis(out->place, in->place->axes[a]);
        uint64_t bit = UINT64_C(1) << a;
        if (b == out->place->n_axes || !((in->sum | in->max) & bit) ||
            !((out->sum | out->max) >> b & 1))
            continue;
        if (in->place->sizes[a] != out->place->sizes[b])
            return ds_error_set(err, DS_ERR_UNSUPPORTED, op->loc,
                                "reshard: %lld terms along %s would become %lld; sum them first",
                                (long long)in->place->sizes[a], in->place->axes[a],
                                (long long)out->place->sizes[b]);
        *kept |= bit;
    }
    return DS_OK;
}

static ds_status reshard(const ds_exec_site *site, const ds_op *op, const ds_exec_value *in,
                         ds_exec_value *out, ds_error *err) {
    static const int64_t zeros[DS_MAX_RANK] = {0};
    uint64_t kept;
    uint32_t last = UINT32_MAX;
    ds_tensor whole = {0};
    ds_status status = kept_axes(op, in, out, &kept, err);
    for (uint32_t p = 0; p < out->place->n_devices && status == DS_OK; p++) {
        uint32_t like = same_coordinates(in->place, out->place, p);
        if (last == UINT32_MAX || !ds_exec__same_on(in->place, kept, last, like)) {
            ds_tensor_drop(&whole);
            status = ds_exec__assemble(site, in, kept, like, &whole, err);
            last = like;
        }
        if (status == DS_OK) status = ds_exec__part_new(site, &out->parts[p], err);
        ds_exec_part *part = &out->parts[p];
        for (uint32_t d = 0; d < out->rank && status == DS_OK; d++)
            if (part->lo[d] + part->t.dims[d] > whole.dims[d])
                status = wrong_shape(&(mover){NULL, &(ds_exec_group){.code = op->code}, op->loc},
                                     &whole, &part->t, err);
        if (status == DS_OK)
            ds_tensor_copy_box(&part->t, zeros, &whole, part->lo, part->t.dims, NULL);
    }
    ds_tensor_drop(&whole);
    return status;
}

ds_status ds_exec__comm(const ds_exec_site *site, const ds_op *op, ds_exec_value *const *in,
                        ds_exec_value **out, ds_error *err) {
    if (op->code == DS_OP_RESHARD) return reshard(site, op, in[0], out[0], err);
    if (op->code == DS_OP_SEND) return send(op, in[0], out[0], err);
    if (op->across) return across(site, op, in, out, err);
    for (uint32_t i = 0; i < op->n_in; i++) DS_TRY(over_axes(site, op, in[i], out[i], err));
    return DS_OK;
}
