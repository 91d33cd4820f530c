/* Meshes with numbers: sizes of axes, fixed coordinates, and whether each mesh fits its devices. */
#include "ir/core/devices.h"
#include "ir/verify/internal.h"

void ds_verify__meshes_init(ds_mesh_table *t, ds_checker *ck) {
    *t = (ds_mesh_table){.ck = ck};
    ds_map_init(&t->sizes);
    ds_arena_init(&t->arena);
}

void ds_verify__meshes_deinit(ds_mesh_table *t) {
    ds_map_deinit(&t->sizes);
    ds_arena_deinit(&t->arena);
}

/* ---- sizes ---- */

static const int64_t *sizes_of(ds_mesh_table *t, const ds_mesh *mesh) {
    const uint64_t *known = ds_map_find(&t->sizes, DS_KEY(mesh));
    if (known) return (const int64_t *)(uintptr_t)*known;
    int64_t *sizes = DS_NEW_N(&t->arena, int64_t, mesh->n_axes + 1);
    ds_error err = {0};
    if (ds_mesh_axis_sizes(t->ck->binding, mesh, sizes, &err) != DS_OK) {
        ds_verify__pass_on(t->ck, &err);
        sizes = NULL;
    }
    ds_map_put(&t->sizes, DS_KEY(mesh), DS_KEY(sizes));
    return sizes;
}

static int64_t fixed_at(const ds_bound_mesh *mesh, const char *axis) {
    for (uint32_t i = 0; i < mesh->n_fixed; i++)
        if (mesh->axis[i] == axis) return mesh->at[i];
    return -1;
}

/* The size of an axis, 1 if the mesh lacks it or a coordinate fixes it; false if unknown. */
bool ds_verify__size_on(ds_mesh_table *t, const ds_bound_mesh *mesh, const char *axis,
                        int64_t *size) {
    *size = 1;
    if (!mesh->known) return false;
    if (!mesh->mesh || fixed_at(mesh, axis) >= 0) return true;
    const int64_t *sizes = sizes_of(t, mesh->mesh);
    if (!sizes) return false;
    for (uint32_t i = 0; i < mesh->mesh->n_axes; i++)
        if (mesh->mesh->axes[i].name == axis) *size = sizes[i];
    return true;
}

uint64_t ds_verify__hash_mesh(uint64_t hash, const ds_bound_mesh *mesh) {
    hash = ds_hash_mix(hash, mesh->known);
    hash = ds_hash_mix(hash, DS_KEY(mesh->mesh));
    for (uint32_t i = 0; i < mesh->n_fixed; i++) {
        hash = ds_hash_mix(hash, DS_KEY(mesh->axis[i]));
        hash = ds_hash_mix(hash, (uint64_t)mesh->at[i]);
    }
    return hash;
}

/* ---- declarations ---- */

static bool eval(ds_mesh_table *t, ds_expr e, ds_loc loc, int64_t *out) {
    ds_env env = ds_binding_env(t->ck->binding, NULL);
    ds_error err = {0};
    if (ds_expr_eval_int(&env, e, loc, out, &err) == DS_OK) return true;
    ds_verify__pass_on(t->ck, &err);
    return false;
}

static void check_order(ds_mesh_table *t, const ds_mesh *mesh, int64_t devices) {
    if (mesh->n_order != devices) {
        ds_verify__error(t->ck, DS_ERR_SHAPE, mesh->loc, NULL,
                         "the order of mesh @%s lists %u devices, but it has %lld places",
                         mesh->name, mesh->n_order, (long long)devices);
        return;
    }
    ds_map seen;
    ds_map_init(&seen);
    for (uint32_t i = 0; i < mesh->n_order; i++) {
        int64_t device;
        if (!eval(t, mesh->order[i], mesh->loc, &device)) break;
        if (device < 0 || device >= devices) {
            ds_verify__error(
                t->ck, DS_ERR_VALUE, mesh->loc, NULL,
                "the order of mesh @%s lists device %lld; the %lld devices are numbered from 0",
                mesh->name, (long long)device, (long long)devices);
            break;
        }
        if (ds_map_find(&seen, (uint64_t)device)) {
            ds_verify__error(t->ck, DS_ERR_VALUE, mesh->loc, NULL,
                             "the order of mesh @%s lists device %lld twice", mesh->name,
                             (long long)device);
            break;
        }
        ds_map_put(&seen, (uint64_t)device, 1);
    }
    ds_map_deinit(&seen);
}

static bool check_pick(ds_mesh_table *t, const ds_mesh *mesh) {
    const ds_mesh *base = ds_find_mesh(mesh->module, mesh->base);
    int64_t hi, devices;
    ds_error err = {0};
    if (!base || !eval(t, mesh->pick_hi, mesh->loc, &hi)) return false;
    if (ds_mesh_count_devices(t->ck->binding, base, &devices, &err) != DS_OK) return false;
    if (hi <= devices) return true;
    ds_verify__error(t->ck, DS_ERR_VALUE, mesh->loc, NULL,
                     "mesh @%s picks devices up to %lld, but @%s has %lld, numbered from 0",
                     mesh->name, (long long)hi - 1, mesh->base, (long long)devices);
    return false;
}

static void check_mesh(ds_mesh_table *t, const ds_mesh *mesh) {
    const int64_t *sizes = sizes_of(t, mesh);
    int64_t devices, product = 1;
    ds_error err = {0};
    if (!sizes || (mesh->kind == DS_MESH_PICK && !check_pick(t, mesh))) return;
    if (ds_mesh_count_devices(t->ck->binding, mesh, &devices, &err) != DS_OK) {
        ds_verify__pass_on(t->ck, &err);
        return;
    }
    ds_buf text = {0};
    for (uint32_t i = 0; i < mesh->n_axes; i++) {
        product *= sizes[i]; /* within int64, see ds_mesh_axis_sizes */
        ds_buf_printf(&text, "%s%s = %lld", i ? ", " : "", mesh->axes[i].name, (long long)sizes[i]);
    }
    if (product != devices)
        ds_verify__error(t->ck, DS_ERR_SHAPE, mesh->loc, NULL,
                         "mesh @%s has %lld places (%s), but %s %lld device%s", mesh->name,
                         (long long)product, text.n ? text.text : "no axes",
                         mesh->kind == DS_MESH_PICK
                             ? "the pick takes"
                             : ds_arena_printf(&t->ck->diags->arena, "@%s has", mesh->base),
                         (long long)devices, devices == 1 ? "" : "s");
    else if (mesh->n_order)
        check_order(t, mesh, devices);
    ds_buf_deinit(&text);
}

void ds_verify__mesh_declarations(ds_mesh_table *t) {
    const ds_unit *unit = t->ck->unit;
    for (uint32_t m = 0; m < unit->modules.n; m++) {
        const ds_module *module = unit->modules.at[m];
        for (uint32_t i = 0; i < module->topologies.n; i++) {
            int64_t n;
            ds_error err = {0};
            if (ds_topology_count_devices(t->ck->binding, module->topologies.at[i], &n, &err))
                ds_verify__pass_on(t->ck, &err);
            ds_verify__link_numbers(t->ck, module->topologies.at[i]);
        }
        for (uint32_t i = 0; i < module->meshes.n; i++) check_mesh(t, module->meshes.at[i]);
    }
}
