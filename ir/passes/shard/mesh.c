/* The strategy's mesh.
 *
 * The mesh has the axes pp dp cp tp in the strategy's order, without axes of degree 1. Two knobs
 * need an axis inside another one. Experts are shared out over ep neighbouring replicas, so the
 * replicas become (dp / ep, ep); if there are fewer replicas than ep, the rest of ep is taken from
 * cp, and then from tp as a whole: with sequence parallelism its devices have tokens of their own.
 * Shard groups (zero_group, HSDP) make the replicas (dp / group, fsdp). A model's dp or cp then
 * means both axes, major first. */
#include "ir/passes/shard/internal.h"

#include "ir/core/devices.h"
#include "ir/strategy/scenario.h"

#include <string.h>

/* ---- axes ---- */

static void add_axis(ds_sharder *s, const char *name, int64_t size, ds_logical_axis *of) {
    ds_shard_mesh *mesh = &s->meshes.at[0];
    if (size == 1) return;
    if (of) of->axis[of->n++] = (uint8_t)mesh->n_axes;
    mesh->axes[mesh->n_axes++] = (ds_shard_axis){ds_intern(&s->unit->strings, name), size};
}

static void append_axes(ds_logical_axis *to, const ds_logical_axis *from) {
    for (uint32_t i = 0; i < from->n; i++) to->axis[to->n++] = from->axis[i];
}

/* The numbers of replicas and of parts of a sequence over which ep is spread. */
static ds_status split_ep(const ds_strategy *st, int64_t *of_dp, int64_t *of_cp, ds_error *err) {
    *of_dp = *of_cp = 1;
    if (st->ep <= 1) return DS_OK;
    if (st->dp % st->ep == 0) {
        *of_dp = st->ep;
    } else if (st->ep % st->dp == 0 && st->cp % (st->ep / st->dp) == 0) {
        *of_dp = st->dp;
        *of_cp = st->ep / st->dp;
    } else if (ds_strategy_ep_has_tp(st)) {
        *of_dp = st->dp;
        *of_cp = st->cp;
    } else {
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "ep = %lld can be made neither of dp = %lld nor of dp and a part of "
                            "cp = %lld: it must divide dp, or be dp times a divisor of cp",
                            (long long)st->ep, (long long)st->dp, (long long)st->cp);
    }
    return DS_OK;
}

static ds_status make_axes(ds_sharder *s, ds_error *err) {
    const ds_strategy *st = &s->step->strategy;
    ds_logical_axis *dp = &s->logical[DS_L_DP], *cp = &s->logical[DS_L_CP];
    ds_logical_axis ep_dp = {0}, ep_cp = {0}, groups = {0};
    int64_t of_dp, of_cp, group = st->zero ? st->zero_group : st->dp;
    DS_TRY(split_ep(st, &of_dp, &of_cp, err));
    if (group < st->dp && st->ep > 1)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                            "zero_group = %lld with ep = %lld: the replicas cannot be grouped in "
                            "two ways at once",
                            (long long)group, (long long)st->ep);
    for (uint32_t i = 0; i < 4; i++) {
        const char *axis = st->order[i];
        if (strcmp(axis, "pp") == 0) add_axis(s, "pp", st->pp, NULL);
        if (strcmp(axis, "tp") == 0) add_axis(s, "tp", st->tp, &s->logical[DS_L_TP]);
        if (strcmp(axis, "dp") == 0) {
            bool whole = of_dp == st->dp; /* all replicas hold different experts */
            if (st->ep > 1) {
                add_axis(s, "dp", whole ? 1 : st->dp / of_dp, dp);
                add_axis(s, "ep", of_dp, &ep_dp);
                append_axes(dp, &ep_dp);
            } else {
                add_axis(s, "dp", st->dp / group, dp);
                add_axis(s, group < st->dp ? "fsdp" : "dp", group, &groups);
                append_axes(dp, &groups);
            }
        }
        if (strcmp(axis, "cp") == 0) {
            add_axis(s, "cp", st->cp / of_cp, cp);
            add_axis(s, "epc", of_cp, &ep_cp);
            append_axes(cp, &ep_cp);
        }
    }
    append_axes(&s->logical[DS_L_EP], &ep_dp);
    append_axes(&s->logical[DS_L_EP], &ep_cp);
    if (ds_strategy_ep_has_tp(st)) append_axes(&s->logical[DS_L_EP], &s->logical[DS_L_TP]);
    s->zero = st->ep > 1 ? *dp : groups;
    if (st->zero_cp) append_axes(&s->zero, cp);
    return DS_OK;
}

static const char *const LOGICAL[DS_L_COUNT] = {"dp", "cp", "tp", "ep"};

ds_status ds_shard__physical(const ds_sharder *s, const char *name, ds_loc loc,
                             ds_logical_axis *out, ds_error *err) {
    (void)loc;
    (void)err;
    *out = (ds_logical_axis){0};
    for (uint32_t l = 0; l < DS_L_COUNT; l++)
        if (strcmp(name, LOGICAL[l]) == 0) {
            *out = s->logical[l];
            return DS_OK;
        }
    const ds_shard_mesh *mesh = &s->meshes.at[0];
    for (uint32_t a = 0; a < mesh->n_axes; a++)
        if (strcmp(mesh->axes[a].name, name) == 0) out->axis[out->n++] = (uint8_t)a;
    return DS_OK; /* a declared axis that the mesh lacks has size 1 */
}

/* ---- declarations ---- */

/* Declares an item before the functions and the scenario, which use it. */
static void declare(ds_module *module, ds_item_kind kind, uint32_t index) {
    uint32_t at = 0;
    while (at < module->items.n && module->items.at[at].kind != DS_ITEM_FUNC) at++;
    DS_PUSH(&module->unit->arena, &module->items, ((ds_item){kind, index}));
    memmove(&module->items.at[at + 1], &module->items.at[at],
            (module->items.n - 1 - at) * sizeof *module->items.at);
    module->items.at[at] = (ds_item){kind, index};
}

static const char *free_mesh_name(ds_sharder *s, const char *wanted) {
    const char *name = ds_intern(&s->unit->strings, wanted);
    for (uint32_t i = 2; ds_find_mesh(s->module, name) || ds_find_topology(s->module, name); i++)
        name = ds_intern(&s->unit->strings, ds_arena_printf(&s->unit->arena, "%s%u", wanted, i));
    return name;
}

ds_mesh *ds_shard__new_mesh(ds_sharder *s, const char *name, ds_mesh_kind kind, const char *base) {
    ds_mesh *mesh = DS_NEW(&s->unit->arena, ds_mesh);
    mesh->name = free_mesh_name(s, name);
    mesh->module = s->module;
    mesh->kind = kind;
    mesh->base = base;
    declare(s->module, DS_ITEM_MESH, s->module->meshes.n);
    DS_PUSH(&s->unit->arena, &s->module->meshes, mesh);
    return mesh;
}

void ds_shard__set_axes(ds_sharder *s, ds_mesh *mesh, const ds_shard_axis *axes, uint32_t n) {
    mesh->axes = DS_NEW_N(&s->unit->arena, ds_mesh_axis, n);
    mesh->n_axes = n;
    for (uint32_t a = 0; a < n; a++)
        mesh->axes[a] = (ds_mesh_axis){.name = axes[a].name,
                                       .size = ds_expr_int(&s->unit->exprs, axes[a].size)};
}

void ds_shard__declare_axes(ds_sharder *s, const ds_shard_axis *axes, uint32_t n) {
    for (uint32_t a = 0; a < n; a++) {
        if (ds_axis_is_declared(s->module, axes[a].name)) continue;
        declare(s->module, DS_ITEM_AXIS, s->module->axes.n);
        DS_PUSH(&s->unit->arena, &s->module->axes, ((ds_axis_decl){.name = axes[a].name}));
    }
}

static ds_status count_devices(const ds_sharder *s, const ds_mesh *given, const ds_topology *box,
                               int64_t *n, ds_error *err) {
    const ds_binding *binding = &s->step->binding;
    if (given) return ds_mesh_count_devices(binding, given, n, err);
    if (box) return ds_topology_count_devices(binding, box, n, err);
    return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                        "the scenario names no devices: say `on = @topology`");
}

ds_status ds_shard__world(ds_sharder *s, int64_t world, const ds_shard_axis *axes, uint32_t n,
                          ds_mesh **out, ds_error *err) {
    const char *first = ds_intern(&s->unit->strings, "dp");
    ds_mesh *given = ds_scenario_mesh(s->unit);
    ds_topology *box = ds_scenario_topology(s->unit);
    int64_t devices = 0;
    DS_TRY(count_devices(s, given, box, &devices, err));
    if (world > devices && !s->step->schematic)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "the strategy needs %lld devices, @%s has %lld", (long long)world,
                            given ? given->name : box->name, (long long)devices);
    if (!given && world == devices) {
        *out = ds_shard__new_mesh(s, "m", DS_MESH_ON, box->name);
    } else {
        if (!given) {
            given = ds_shard__new_mesh(s, "all", DS_MESH_ON, box->name);
            ds_shard__set_axes(s, given, &(ds_shard_axis){first, devices}, 1);
        }
        *out = ds_shard__new_mesh(s, "m", DS_MESH_PICK, given->name);
        (*out)->pick_lo = ds_expr_int(&s->unit->exprs, 0);
        (*out)->pick_hi = ds_expr_int(&s->unit->exprs, world);
    }
    ds_shard__set_axes(s, *out, axes, n);
    s->n_devices = (uint32_t)world;
    return DS_OK;
}

ds_status ds_shard__mesh(ds_sharder *s, ds_error *err) {
    if (s->step->strategy.stage_dp) return ds_shard__stages(s, err);
    DS_PUSH(&s->unit->arena, &s->meshes, (ds_shard_mesh){0});
    s->n_own = 1;
    DS_TRY(make_axes(s, err));
    ds_shard_mesh *m = &s->meshes.at[0];
    ds_mesh *mesh;
    int64_t world = 1;
    for (uint32_t a = 0; a < m->n_axes; a++) world *= m->axes[a].size;
    if (s->logical[DS_L_DP].n == 1) { /* dp_shares excludes what makes two axes of dp */
        m->shares = s->step->strategy.dp_shares;
        m->shares_sum = s->step->strategy.dp_shares_sum;
        m->shared = s->logical[DS_L_DP].axis[0];
    }
    s->wants_batch = m->shares != NULL;
    if (!m->n_axes) m->axes[m->n_axes++] = (ds_shard_axis){ds_intern(&s->unit->strings, "dp"), 1};
    ds_shard__declare_axes(s, m->axes, m->n_axes);
    DS_TRY(ds_shard__world(s, world, m->axes, m->n_axes, &mesh, err));
    s->program_mesh = m->name = mesh->name;
    return DS_OK;
}

static uint32_t n_devices(const ds_shard_mesh *mesh) {
    uint32_t n = 1;
    for (uint32_t a = 0; a < mesh->n_axes; a++) n *= (uint32_t)mesh->axes[a].size;
    return n;
}

uint32_t ds_shard__n_devices(const ds_sharder *s, uint8_t mesh) {
    return n_devices(&s->meshes.at[mesh]);
}

/* Do two meshes have the same axes above 1? */
static bool has_axes_of(const ds_shard_mesh *m, const ds_shard_mesh *view) {
    uint32_t k = 0;
    for (uint32_t a = 0; a < view->n_axes; a++) {
        if (view->axes[a].size == 1) continue;
        if (k == m->n_axes || m->axes[k].name != view->axes[a].name ||
            m->axes[k].size != view->axes[a].size)
            return false;
        k++;
    }
    return k == m->n_axes || (m->n_axes == 1 && m->axes[0].size == 1);
}

/* Has the declared mesh other devices than the strategy's mesh, or in another order? */
static ds_status is_apart(const ds_sharder *s, const ds_mesh *mesh, const ds_shard_mesh *view,
                          bool *apart, ds_error *err) {
    const ds_mesh *own = ds_find_mesh(s->module, s->meshes.at[0].name);
    uint32_t n = n_devices(view);
    *apart = s->n_own > 1 || n != n_devices(&s->meshes.at[0]);
    for (uint32_t i = 0; i < n && !*apart && own; i++) {
        int64_t a, b;
        DS_TRY(ds_mesh_device_at(&s->step->binding, own, i, &a, err));
        DS_TRY(ds_mesh_device_at(&s->step->binding, mesh, i, &b, err));
        *apart = a != b;
    }
    return DS_OK;
}

ds_status ds_shard__axes_named(const ds_sharder *s, uint8_t mesh, const char *name, ds_loc loc,
                               ds_logical_axis *out, ds_error *err) {
    if (!ds_shard__is_view(s, mesh)) return ds_shard__physical(s, name, loc, out, err);
    *out = (ds_logical_axis){0};
    const ds_shard_mesh *m = &s->meshes.at[mesh];
    for (uint32_t a = 0; a < m->n_axes; a++)
        if (strcmp(m->axes[a].name, name) == 0 && m->axes[a].size > 1)
            out->axis[out->n++] = (uint8_t)a;
    return DS_OK;
}

ds_status ds_shard__view(ds_sharder *s, const ds_place *place, ds_loc loc, uint8_t *out,
                         ds_error *err) {
    *out = 0;
    for (uint32_t m = 0; m < s->meshes.n; m++, (*out)++)
        if (s->meshes.at[m].name == place->name) return DS_OK;
    const ds_mesh *mesh = ds_find_mesh(s->module, place->name);
    if (!mesh || place->kind != DS_PLACE_MESH || place->n_coords)
        return ds_error_set(err, DS_ERR_NAME, loc, "an override is placed on a mesh, as `on @v`");
    if (mesh->n_axes > DS_SHARD_AXES || s->meshes.n == UINT8_MAX)
        return ds_error_set(err, DS_ERR_LIMIT, loc, "@%s has %u axes; overrides take up to %u",
                            mesh->name, mesh->n_axes, DS_SHARD_AXES);
    ds_shard_mesh view = {.name = mesh->name, .n_axes = mesh->n_axes};
    int64_t sizes[DS_SHARD_AXES];
    DS_TRY(ds_mesh_axis_sizes(&s->step->binding, mesh, sizes, err));
    for (uint32_t a = 0; a < mesh->n_axes; a++)
        view.axes[a] = (ds_shard_axis){mesh->axes[a].name, sizes[a]};
    DS_TRY(is_apart(s, mesh, &view, &view.apart, err));
    *out = 0;
    if (!view.apart && has_axes_of(&s->meshes.at[0], &view)) return DS_OK;
    *out = (uint8_t)s->meshes.n;
    DS_PUSH(&s->unit->arena, &s->meshes, view);
    return DS_OK;
}
