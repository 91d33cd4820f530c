/* Layouts: how values lie on a mesh, as small sets and lists of axis numbers.
 *
 * A type says the same with names and expressions; the partitioner compares, changes and prices
 * layouts. */
#include "ir/base/units.h"
#include "ir/passes/internal.h"
#include "ir/passes/shard/internal.h"

#include <assert.h>
#include <string.h>

int64_t ds_shard__size(const ds_sharder *s, ds_expr size) {
    int64_t value = 0;
    if (ds_expr_is_int(&s->unit->exprs, size, &value)) return value;
    const uint64_t *found = ds_map_find(&s->known->sizes, size.i);
    if (found) return (int64_t)*found;
    ds_env env = ds_binding_env(&s->step->binding, NULL);
    if (ds_expr_eval_int(&env, size, DS_NOWHERE, &value, NULL) != DS_OK) value = 0;
    ds_map_put(&s->known->sizes, size.i, (uint64_t)value);
    return value;
}

int64_t ds_shard__parts(const ds_sharder *s, const ds_layout *layout, uint32_t dim) {
    int64_t parts = 1;
    for (uint32_t i = 0; i < layout->n[dim]; i++)
        parts *= ds_shard__axis_size(s, layout->mesh, layout->axis[dim][i]);
    return parts;
}

int ds_shard__dim_of(const ds_layout *layout, uint32_t axis) {
    for (uint32_t d = 0; d < layout->rank; d++)
        for (uint32_t i = 0; i < layout->n[d]; i++)
            if (layout->axis[d][i] == axis) return (int)d;
    return -1;
}

ds_layout ds_shard__whole(const ds_sharder *s, uint32_t rank) {
    return (ds_layout){.mesh = s->here, .rank = (uint8_t)rank};
}

bool ds_shard__has_shares(const ds_sharder *s, uint8_t mesh, uint32_t axis) {
    const ds_shard_mesh *m = &s->meshes.at[mesh];
    return m->shares && m->shared == axis;
}

bool ds_shard__same_layout(const ds_layout *a, const ds_layout *b) {
    if (a->mesh != b->mesh || a->rank != b->rank || a->sum != b->sum || a->max != b->max ||
        a->server != b->server)
        return false;
    for (uint32_t d = 0; d < a->rank; d++)
        if (a->n[d] != b->n[d] || memcmp(a->axis[d], b->axis[d], a->n[d]) != 0 ||
            (a->n[d] && (a->shares ^ b->shares) >> d & 1))
            return false;
    return true;
}

/* ---- sizes ---- */

double ds_shard__bytes(const ds_sharder *s, const ds_type *type) {
    double bytes = (double)ds_dtype_bits(type->dtype) / 8;
    for (uint32_t d = 0; d < type->rank; d++) {
        int64_t size = ds_shard__size(s, type->dims[d].size);
        bytes *= size > 0 ? (double)size : 1;
    }
    return bytes;
}

double ds_shard__local_bytes(const ds_sharder *s, const ds_type *type, const ds_layout *layout) {
    double bytes = ds_shard__bytes(s, type);
    for (uint32_t d = 0; d < layout->rank; d++) bytes /= (double)ds_shard__parts(s, layout, d);
    return bytes;
}

/* ---- types ---- */

static uint8_t mesh_of(const ds_sharder *s, const ds_place *on) {
    for (uint32_t m = 0; on->kind == DS_PLACE_MESH && m < s->meshes.n; m++)
        if (s->meshes.at[m].name == on->name) return (uint8_t)m;
    return 0;
}

static uint8_t axis_of(const ds_sharder *s, uint8_t mesh, const char *name) {
    const ds_shard_mesh *m = &s->meshes.at[mesh];
    for (uint32_t a = 0; a < m->n_axes; a++)
        if (m->axes[a].name == name) return (uint8_t)a;
    assert(false && "an axis of no mesh");
    return 0;
}

ds_layout ds_shard__layout(const ds_sharder *s, const ds_type *type) {
    ds_layout layout = ds_shard__whole(s, type->rank);
    layout.mesh = mesh_of(s, &type->on);
    if (type->on.n_coords) layout.server = (uint16_t)(1 + ds_shard__size(s, type->on.coords[0].at));
    for (uint32_t d = 0; d < type->rank; d++)
        for (uint32_t i = 0; i < type->dims[d].n_splits; i++)
            layout.axis[d][layout.n[d]++] = axis_of(s, layout.mesh, type->dims[d].splits[i].axis);
    for (uint32_t d = 0; d < type->rank && s->meshes.at[layout.mesh].shares; d++)
        if (type->dims[d].n_splits && type->dims[d].splits[0].n_sizes)
            layout.shares |= (uint8_t)(1u << d);
    for (uint32_t p = 0; p < type->n_partials; p++) {
        uint8_t bit = (uint8_t)(1u << axis_of(s, layout.mesh, type->partials[p].axis));
        if (type->partials[p].reduction == DS_RED_MAX)
            layout.max |= bit;
        else
            layout.sum |= bit;
    }
    return layout;
}

/* Writes the sizes of a dim's parts in the shares of the mesh. All dims with the same parts share an
 * array. */
static void put_shares(const ds_sharder *s, const ds_shard_mesh *mesh, ds_dim *dim) {
    uint32_t n = (uint32_t)mesh->axes[mesh->shared].size;
    int64_t size = ds_shard__size(s, dim->size), part = size / mesh->shares_sum;
    uint64_t key = ds_hash_mix((uint64_t)size, DS_KEY(mesh->shares));
    const uint64_t *found = ds_map_find(&s->known->uneven, key);
    ds_expr *sizes = found ? (ds_expr *)(uintptr_t)*found : DS_NEW_N(&s->unit->arena, ds_expr, n);
    for (uint32_t i = 0; i < n && !found; i++)
        sizes[i] = ds_expr_int(&s->unit->exprs, part * mesh->shares[i]);
    if (!found) ds_map_put(&s->known->uneven, key, DS_KEY(sizes));
    dim->splits[0].sizes = sizes;
    dim->splits[0].n_sizes = n;
}

static ds_expr *uneven_sizes(const ds_sharder *s, int64_t size, int64_t parts) {
    uint64_t key = ds_hash_mix((uint64_t)size, (uint64_t)parts);
    const uint64_t *found = ds_map_find(&s->known->uneven, key);
    if (found) return (ds_expr *)(uintptr_t)*found;
    ds_expr *sizes = DS_NEW_N(&s->unit->arena, ds_expr, (uint32_t)parts);
    ds_expr most = ds_expr_int(&s->unit->exprs, size / parts + 1);
    ds_expr least = ds_expr_int(&s->unit->exprs, size / parts);
    for (int64_t i = 0; i < parts; i++) sizes[i] = i < size % parts ? most : least;
    ds_map_put(&s->known->uneven, key, DS_KEY(sizes));
    return sizes;
}

/* Writes the sizes of a dim's parts if the dim does not divide, which only ZeRO allows: the first
 * parts are larger by one. */
static void put_sizes(const ds_sharder *s, ds_dim *dim, int64_t parts) {
    if (dim->n_splits != 1) return;
    int64_t size = ds_shard__size(s, dim->size);
    if (size % parts == 0) return;
    dim->splits[0].sizes = uneven_sizes(s, size, parts);
    dim->splits[0].n_sizes = (uint32_t)parts;
}

bool ds_shard__is_cut_unequally(const ds_type *type) {
    for (uint32_t d = 0; d < type->rank; d++)
        if (type->dims[d].n_splits && type->dims[d].splits[0].n_sizes) return true;
    return false;
}

ds_type *ds_shard__type(const ds_sharder *s, const ds_type *like, const ds_layout *layout) {
    ds_arena *arena = &s->unit->arena;
    const ds_shard_mesh *mesh = &s->meshes.at[layout->mesh];
    ds_type *type = DS_NEW(arena, ds_type);
    type->dtype = like->dtype;
    type->rank = like->rank;
    type->dims = DS_NEW_N(arena, ds_dim, like->rank + 1);
    for (uint32_t d = 0; d < like->rank; d++) {
        ds_dim *dim = &type->dims[d];
        dim->size = like->dims[d].size;
        dim->n_splits = layout->n[d];
        dim->splits = DS_NEW_N(arena, ds_split, layout->n[d] + 1);
        for (uint32_t i = 0; i < layout->n[d]; i++)
            dim->splits[i].axis = mesh->axes[layout->axis[d][i]].name;
        if (layout->n[d] && layout->shares >> d & 1)
            put_shares(s, mesh, dim);
        else
            put_sizes(s, dim, ds_shard__parts(s, layout, d));
    }
    type->partials = DS_NEW_N(arena, ds_partial, mesh->n_axes + 1);
    for (uint32_t a = 0; a < mesh->n_axes; a++) {
        if (!((layout->sum | layout->max) & (1u << a))) continue;
        ds_reduction how = layout->max & (1u << a) ? DS_RED_MAX : DS_RED_SUM;
        type->partials[type->n_partials++] = (ds_partial){mesh->axes[a].name, how};
    }
    if (s->meshes.n > 1 || s->has_servers) /* with one mesh the place is left out */
        type->on = (ds_place){.kind = DS_PLACE_MESH, .name = mesh->name};
    if (layout->server) {
        type->on.coords = DS_NEW(arena, ds_coord);
        type->on.n_coords = 1;
        type->on.coords[0] =
            (ds_coord){mesh->axes[0].name, ds_expr_int(&s->unit->exprs, layout->server - 1)};
    }
    return type;
}

/* ---- hints ---- */

/* A value whose written type says over which axes its dims are split. */
typedef struct hinted {
    const ds_type *type;
    const char *who;
    ds_loc loc;
} hinted;

static ds_status add_hint(const ds_sharder *s, const hinted *h, uint32_t d, const char *name,
                          ds_layout *out, ds_error *err) {
    const char *who = h->who;
    ds_loc loc = h->loc;
    ds_logical_axis axes;
    DS_TRY(ds_shard__physical(s, name, loc, &axes, err));
    for (uint32_t i = 0; i < axes.n; i++) {
        int at = ds_shard__dim_of(out, axes.axis[i]);
        bool of_experts = strcmp(name, "tp") == 0 && ds_strategy_ep_has_tp(&s->step->strategy);
        if (at >= 0 && of_experts) continue; /* tp already splits experts elsewhere */
        if (at >= 0)
            return ds_error_set(err, DS_ERR_SHARDING, loc,
                                "%%%s: dims %d and %u are both split over mesh axis %s, which ep "
                                "shares with dp and cp",
                                who, at, d, s->meshes.at[0].axes[axes.axis[i]].name);
        if (out->n[d] && (out->shares >> d & 1 || ds_shard__has_shares(s, 0, axes.axis[i])))
            return ds_error_set(err, DS_ERR_UNSUPPORTED, loc,
                                "%%%s: dim %u is split over dp and another axis: with dp_shares it "
                                "may be split over dp alone",
                                who, d);
        out->axis[d][out->n[d]++] = axes.axis[i];
        if (ds_shard__has_shares(s, 0, axes.axis[i])) out->shares |= (uint8_t)(1u << d);
    }
    int64_t size = ds_shard__size(s, h->type->dims[d].size), parts = ds_shard__parts(s, out, d);
    int64_t sum = s->meshes.at[0].shares_sum;
    if (out->n[d] && out->shares >> d & 1) {
        if (size && size % sum == 0) return DS_OK;
        return ds_error_set(err, DS_ERR_SHAPE, loc,
                            "%%%s: dim %u of size %lld cannot be split by dp_shares into whole "
                            "parts: their sum, %lld without common divisors, does not divide it",
                            who, d, (long long)size, (long long)sum);
    }
    if (!axes.n || (size && size % parts == 0)) return DS_OK;
    bool stage = s->mesh_of_chunk;
    if (stage) loc = ds_step__knob(s->step, strcmp(name, "dp") == 0 ? "stage_dp" : "stage_tp");
    ds_buf fit = {0};
    ds_put_near_divisors(size, parts, &fit);
    ds_status status = ds_error_set(
        err, DS_ERR_SHAPE, loc,
        "%%%s: dim %u of size %lld is split over %s, but %lld parts%s%s do not divide it: "
        "choose %s parts, or take the hint away",
        who, d, (long long)size, name, (long long)parts, stage ? " on @" : "",
        stage ? s->meshes.at[s->here].name : "", fit.text);
    ds_buf_deinit(&fit);
    return status;
}

ds_status ds_shard__hint(const ds_sharder *s, const ds_type *type, const char *who, ds_loc loc,
                         ds_layout *out, uint8_t *seq, ds_error *err) {
    *out = ds_shard__whole(s, type->rank);
    *seq = 0;
    for (uint32_t d = 0; d < type->rank; d++)
        for (uint32_t i = 0; i < type->dims[d].n_splits; i++) {
            const char *name = type->dims[d].splits[i].axis;
            if (strcmp(name, "cp") == 0) *seq |= (uint8_t)(1u << d);
            DS_TRY(add_hint(s, &(hinted){type, who, loc}, d, name, out, err));
        }
    return DS_OK;
}
