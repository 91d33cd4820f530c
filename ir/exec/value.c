/* Types with numbers: which box of a value each device holds. */
#include "ir/exec/internal.h"

#include <math.h>
#include <stdlib.h>

/* ---- boxes ---- */

ds_env ds_exec__env(const ds_exec_site *site, const ds_exec_place *place, uint32_t position,
                    ds_index *room) {
    const ds_index *indices = site->indices;
    for (uint32_t i = 0; i < site->manual.n; i++) {
        int64_t at = ds_exec_coordinate(place, ds_exec_axis(place, site->manual.axes[i]), position);
        room[i] = (ds_index){site->manual.axes[i], at, indices};
        indices = &room[i];
    }
    return ds_binding_env(site->run->binding, indices);
}

/* What one device holds of a dim. */
typedef struct shard {
    int64_t full, lo, size;
} shard;

/* Splits major → minor, each cutting what is left. */
static ds_status cut_dim(const ds_exec_site *site, const ds_env *env, const ds_dim *dim,
                         const ds_exec_place *place, uint32_t position, shard *out, ds_error *err) {
    DS_TRY(ds_expr_eval_int(env, dim->size, site->loc, &out->full, err));
    if (out->full < 0)
        return ds_error_set(err, DS_ERR_SHAPE, site->loc, "a dim has size %lld",
                            (long long)out->full);
    out->lo = 0;
    out->size = out->full;
    for (uint32_t s = 0; s < dim->n_splits; s++) {
        const ds_split *split = &dim->splits[s];
        uint32_t axis = ds_exec_axis(place, split->axis);
        int64_t n = ds_exec_axis_size(place, split->axis);
        int64_t at = ds_exec_coordinate(place, axis, position);
        if (!split->n_sizes) {
            if (out->size % n)
                return ds_error_set(err, DS_ERR_SHAPE, site->loc,
                                    "a dim of %lld does not divide by axis %s of size %lld",
                                    (long long)out->size, split->axis, (long long)n);
            out->size /= n;
            out->lo += at * out->size;
            continue;
        }
        if (split->n_sizes != n)
            return ds_error_set(err, DS_ERR_SHAPE, site->loc,
                                "%u shard sizes are given for axis %s of size %lld", split->n_sizes,
                                split->axis, (long long)n);
        int64_t end = out->lo + out->size;
        for (int64_t k = 0; k <= at; k++) {
            if (k) out->lo += out->size;
            DS_TRY(ds_expr_eval_int(env, split->sizes[k], site->loc, &out->size, err));
            if (out->size < 0 || out->lo > end - out->size)
                return ds_error_set(err, DS_ERR_SHAPE, site->loc,
                                    "shard %lld along %s has %lld of %lld elements", (long long)k,
                                    split->axis, (long long)out->size, (long long)out->full);
        }
    }
    return DS_OK;
}

static uint64_t axis_bit(const ds_exec_place *place, const char *axis) {
    uint32_t a = ds_exec_axis(place, axis);
    return a < place->n_axes ? UINT64_C(1) << a : 0;
}

static void set_axes(ds_exec_value *value, const ds_type *type, const ds_exec_manual *manual) {
    for (uint32_t d = 0; d < type->rank; d++)
        for (uint32_t s = 0; s < type->dims[d].n_splits; s++)
            value->split |= axis_bit(value->place, type->dims[d].splits[s].axis);
    for (uint32_t p = 0; p < type->n_partials; p++) {
        uint64_t bit = axis_bit(value->place, type->partials[p].axis);
        *(type->partials[p].reduction == DS_RED_MAX ? &value->max : &value->sum) |= bit;
    }
    for (uint32_t i = 0; i < manual->n; i++)
        value->manual |= axis_bit(value->place, manual->axes[i]);
}

static void note_devices(ds_exec_run_state *run, const ds_exec_place *place) {
    for (uint32_t i = 0; i < place->n_devices; i++)
        ds_map_put(&run->devices_seen, place->devices[i], 1);
}

ds_status ds_exec__value_new(const ds_exec_site *site, const ds_type *type,
                             const ds_exec_place *place, ds_exec_value **out, ds_error *err) {
    if (!place)
        DS_TRY(ds_exec_place_of(&site->run->places, site->scope, &type->on, site->indices, &place,
                                err));
    note_devices(site->run, place);
    ds_exec_value *value = ds_xcalloc(1, sizeof *value);
    value->owners = 1;
    value->place = place;
    value->dtype = type->dtype;
    value->rank = type->rank;
    value->parts = ds_xcalloc(place->n_devices, sizeof *value->parts);
    set_axes(value, type, &site->manual);
    ds_index *room = ds_xcalloc(site->manual.n + 1, sizeof *room);
    ds_status status = DS_OK;
    for (uint32_t i = 0; i < place->n_devices && status == DS_OK; i++) {
        ds_env env = ds_exec__env(site, place, i, room);
        ds_exec_part *part = &value->parts[i];
        part->t.rank = type->rank;
        for (uint32_t d = 0; d < type->rank && status == DS_OK; d++) {
            shard cut = {0};
            status = cut_dim(site, &env, &type->dims[d], place, i, &cut, err);
            part->full[d] = cut.full;
            part->lo[d] = cut.lo;
            part->t.dims[d] = cut.size;
        }
        if (status == DS_OK)
            status = ds_tensor_count(type->rank, part->t.dims, site->loc, &part->t.n, err);
    }
    free(room);
    if (status != DS_OK) {
        ds_exec__value_drop(value);
        value = NULL;
    }
    *out = value;
    return status;
}

ds_exec_value *ds_exec__value_share(ds_exec_value *value) {
    value->owners++;
    return value;
}

void ds_exec__value_drop(ds_exec_value *value) {
    if (!value || --value->owners) return;
    for (uint32_t i = 0; i < value->place->n_devices; i++) ds_tensor_drop(&value->parts[i].t);
    free(value->parts);
    free(value);
}

ds_status ds_exec__part_new(const ds_exec_site *site, ds_exec_part *part, ds_error *err) {
    ds_tensor fresh;
    DS_TRY(ds_tensor_new(&site->run->memory, part->t.rank, part->t.dims, site->loc, &fresh, err));
    part->t = fresh;
    return DS_OK;
}

/* ---- replicas ---- */

bool ds_exec__same_on(const ds_exec_place *place, uint64_t axes, uint32_t a, uint32_t b) {
    for (uint32_t k = 0; k < place->n_axes; k++)
        if ((axes >> k & 1) && ds_exec_coordinate(place, k, a) != ds_exec_coordinate(place, k, b))
            return false;
    return true;
}

/* The position with coordinate 0 on every axis outside `axes`, else as at `position`. */
static uint32_t first_like(const ds_exec_place *place, uint64_t axes, uint32_t position) {
    int64_t at = 0;
    for (uint32_t k = 0; k < place->n_axes; k++)
        at = at * place->sizes[k] + ((axes >> k & 1) ? ds_exec_coordinate(place, k, position) : 0);
    return (uint32_t)at;
}

static bool same_number(double a, double b) {
    return a == b || (isnan(a) && isnan(b));
}

static ds_status differ(const ds_exec_site *site, const ds_exec_value *value, const char *path,
                        uint32_t first, uint32_t other, int64_t element, ds_error *err) {
    const ds_exec_part *a = &value->parts[first], *b = &value->parts[other];
    int64_t index[DS_MAX_RANK], rest = element;
    char text[DS_DIMS_TEXT];
    for (uint32_t d = value->rank; d-- > 0;) {
        index[d] = a->lo[d] + rest % a->t.dims[d];
        rest /= a->t.dims[d];
    }
    ds_buf devices = {0};
    ds_exec_device_text(value->place, first, &devices);
    ds_buf_put(&devices, " and ");
    ds_exec_device_text(value->place, other, &devices);
    ds_error_set(err, DS_ERR_VALUE, site->loc,
                 "%s should be the same on %s, but element %s is %.17g there and %.17g here", path,
                 devices.text, ds_dims_text(value->rank, index, text), a->t.at[element],
                 b->t.at[element]);
    ds_buf_deinit(&devices);
    return DS_ERR_VALUE;
}

ds_status ds_exec__check_replicas(const ds_exec_site *site, const ds_exec_value *value,
                                  const char *path, ds_error *err) {
    uint64_t own = value->split | value->sum | value->max | value->manual;
    for (uint32_t i = 0; i < value->place->n_devices; i++) {
        uint32_t first = first_like(value->place, own, i);
        const ds_tensor *a = &value->parts[first].t, *b = &value->parts[i].t;
        if (first == i || a->at == b->at) continue;
        for (int64_t k = 0; k < a->n; k++)
            if (!same_number(a->at[k], b->at[k]))
                return differ(site, value, path, first, i, k, err);
    }
    return DS_OK;
}

/* ---- the whole ---- */

static double add(double d, double s) {
    return d + s;
}

static double larger(double d, double s) {
    return isnan(d) || d > s ? d : s;
}

ds_status ds_exec__assemble(const ds_exec_site *site, const ds_exec_value *value, uint64_t fixed,
                            uint32_t like, ds_tensor *out, ds_error *err) {
    static const int64_t zeros[DS_MAX_RANK] = {0};
    uint64_t own = value->split | value->sum | value->max;
    if ((value->sum & ~fixed) && (value->max & ~fixed))
        return ds_error_set(err, DS_ERR_UNSUPPORTED, site->loc,
                            "a term of a sum over one axis and of a maximum over another: reduce "
                            "them one after the other");
    bool max = (value->max & ~fixed) != 0;
    DS_TRY(ds_tensor_new(&site->run->memory, value->rank, value->parts[like].full, site->loc, out,
                         err));
    for (int64_t k = 0; k < out->n && max; k++) out->at[k] = -INFINITY;
    for (uint32_t i = 0; i < value->place->n_devices; i++) {
        /* one of each set of replicas; on the fixed axes those of `like` */
        uint32_t first = first_like(value->place, own | fixed, i);
        if (first != i || !ds_exec__same_on(value->place, fixed, i, like)) continue;
        const ds_exec_part *part = &value->parts[i];
        ds_tensor_copy_box(out, part->lo, &part->t, zeros, part->t.dims, max ? larger : add);
    }
    return DS_OK;
}
