/* Local shapes: what one device holds of a sharded value. */
#include "sim/plan/internal.h"

#include "ir/base/units.h"

#include <string.h>

bool ds_plan__is_uneven(const ds_type *type) {
    for (uint32_t d = 0; d < type->rank; d++)
        for (uint32_t s = 0; s < type->dims[d].n_splits; s++)
            if (type->dims[d].splits[s].n_sizes) return true;
    return false;
}

uint64_t ds_plan__part_key(const ds_type *type, const ds_placement *p, uint32_t pos) {
    uint64_t key = 0;
    for (uint32_t d = 0; d < type->rank; d++)
        for (uint32_t s = 0; s < type->dims[d].n_splits; s++) {
            const ds_split *split = &type->dims[d].splits[s];
            int64_t at = split->n_sizes ? ds_plan__coordinate(p, split->axis, pos) : 0;
            if (at < split->n_sizes)
                key = ds_hash_mix(key, split->sizes[at].i); /* equal sizes: one expression */
        }
    return key;
}

uint32_t ds_plan__position(const ds_placement *p, uint32_t device) {
    uint32_t lo = 0, hi = p->n_devices, guess = device - p->ascending[0];
    if (guess < hi && p->ascending[guess] == device) return p->by_device[guess]; /* neighbours */
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (p->ascending[mid] < device)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == p->n_devices || p->ascending[lo] != device) return DS_NONE;
    return p->by_device[lo];
}

int64_t ds_plan__coordinate(const ds_placement *p, const char *axis, uint32_t pos) {
    int64_t rest = pos;
    if (p->replica && strcmp(axis, "dp") == 0) return p->replica;
    for (uint32_t a = p->n_axes; a-- > 0;) {
        int64_t at = rest % p->sizes[a];
        rest /= p->sizes[a];
        if (p->axes[a] == axis) return at;
    }
    return 0;
}

void ds_plan__enter(const ds_region *region, const ds_placement *p, uint32_t pos) {
    for (; region; region = region->up)
        for (uint32_t i = 0; i < region->n; i++)
            region->own[i].value = p ? ds_plan__coordinate(p, region->own[i].name, pos) : 0;
}

/* The device at `pos` of a placement, seen from an op. */
typedef struct member {
    ds_env env;
    const ds_placement *p;
    uint32_t pos;
    ds_loc loc;
} member;

/* Where the device's part begins (unless lo is NULL), and its size. */
static ds_status local_dim(const member *m, const ds_dim *dim, int64_t *lo, int64_t *out,
                           ds_error *err) {
    const ds_placement *p = m->p;
    ds_loc loc = m->loc;
    int64_t size;
    if (lo) *lo = 0;
    DS_TRY(ds_expr_eval_int(&m->env, dim->size, loc, &size, err));
    if (size < 0)
        return ds_error_set(err, DS_ERR_SHAPE, loc, "a dim has size %lld", (long long)size);
    for (uint32_t s = 0; s < dim->n_splits; s++) {
        const ds_split *split = &dim->splits[s];
        int64_t n = ds_plan__axis_size(p, split->axis);
        if (split->n_sizes) {
            if (split->n_sizes != n)
                return ds_error_set(err, DS_ERR_SHAPE, loc,
                                    "%u shard sizes are given for axis %s of size %lld",
                                    split->n_sizes, split->axis, (long long)n);
            int64_t at = ds_plan__coordinate(p, split->axis, m->pos);
            for (int64_t i = lo ? 0 : at; i <= at; i++) {
                DS_TRY(ds_expr_eval_int(&m->env, split->sizes[i], loc, &size, err));
                if (i < at && !ds_add_i64(*lo, size, lo))
                    return ds_error_set(err, DS_ERR_OVERFLOW, loc, "shard sizes beyond 2^63");
            }
        } else if (size % n) {
            return ds_error_set(err, DS_ERR_SHAPE, loc,
                                "a dim of %lld does not divide by axis %s of size %lld",
                                (long long)size, split->axis, (long long)n);
        } else {
            size /= n;
            if (lo) *lo += size * ds_plan__coordinate(p, split->axis, m->pos);
        }
    }
    *out = size;
    return DS_OK;
}

ds_status ds_plan__local_box(ds_builder *b, ds_typed t, const ds_placement *p, uint32_t pos,
                             ds_loc loc, ds_local_box *out, ds_error *err) {
    const member m = {ds_binding_env(b->binding, t.indices), p, pos, loc};
    out->shape = (ds_shape){.dtype = t.type->dtype, .rank = t.type->rank};
    for (uint32_t d = 0; d < t.type->rank; d++)
        DS_TRY(local_dim(&m, &t.type->dims[d], &out->lo[d], &out->shape.dims[d], err));
    return DS_OK;
}

ds_status ds_plan__local_shape(ds_builder *b, ds_typed t, const ds_placement *p, uint32_t pos,
                               ds_loc loc, ds_shape *out, ds_error *err) {
    const member m = {ds_binding_env(b->binding, t.indices), p, pos, loc};
    *out = (ds_shape){.dtype = t.type->dtype, .rank = t.type->rank};
    for (uint32_t d = 0; d < t.type->rank; d++)
        DS_TRY(local_dim(&m, &t.type->dims[d], NULL, &out->dims[d], err));
    return DS_OK;
}

ds_status ds_plan__local_bytes(ds_builder *b, ds_typed t, const ds_placement *p, uint32_t pos,
                               ds_loc loc, int64_t *out, ds_error *err) {
    ds_shape shape;
    DS_TRY(ds_plan__local_shape(b, t, p, pos, loc, &shape, err));
    ds_status status = ds_shape_bytes(&shape, out, err);
    if (status != DS_OK) ds_error_move(err, loc);
    return status;
}
