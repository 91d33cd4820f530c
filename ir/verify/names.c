/* Declarations: duplicates, references to others, cycles of meshes, unused and shadowed names. */
#include "ir/core/devices.h"
#include "ir/verify/internal.h"

#include <stdlib.h>
#include <string.h>

static void add_axes(ds_checker *ck, const ds_module *module, ds_names *out, uint32_t depth) {
    for (uint32_t i = 0; i < module->axes.n; i++)
        DS_PUSH(&ck->diags->arena, &out->all, module->axes.at[i].name);
    for (uint32_t i = 0; i < module->imports.n && depth; i++)
        if (module->imports.at[i].module)
            add_axes(ck, module->imports.at[i].module, out, depth - 1);
}

bool ds_verify__check_axis(ds_checker *ck, const ds_module *module, const char *axis, ds_loc loc) {
    if (ds_axis_is_declared(module, axis)) return true;
    ds_names names = {0};
    for (uint32_t i = 0; i < DS_N_BUILTIN_AXES; i++)
        DS_PUSH(&ck->diags->arena, &names.all, ds_builtin_axes[i]);
    add_axes(ck, module, &names, DS_MAX_IMPORT_DEPTH);
    const char *hint = ds_verify__hint(ck, "", axis, names.all.at, names.all.n);
    if (!hint) hint = ds_arena_printf(&ck->diags->arena, "write 'axis %s' to declare it", axis);
    ds_verify__error(ck, DS_ERR_NAME, loc, hint,
                     "unknown mesh axis '%s': axes are pp, dp, cp, tp, ep and the axes declared by "
                     "'axis NAME'",
                     axis);
    return false;
}

/* ---- names that a module sees ---- */

static uint32_t count_of(const ds_module *module, ds_item_kind kind) {
    switch (kind) {
    case DS_ITEM_TOPOLOGY:
        return module->topologies.n;
    case DS_ITEM_MESH:
        return module->meshes.n;
    case DS_ITEM_FUNC:
        return module->funcs.n;
    case DS_ITEM_PROGRAM:
        return module->programs.n;
    case DS_ITEM_SCHEDULE:
        return module->schedules.n;
    case DS_ITEM_PARAMS:
        return module->params.n;
    case DS_ITEM_AXIS:
        return module->axes.n;
    default:
        return 0;
    }
}

static const char *name_of(const ds_module *module, ds_item_kind kind, uint32_t i, ds_loc *loc) {
    switch (kind) {
    case DS_ITEM_TOPOLOGY:
        return *loc = module->topologies.at[i]->loc, module->topologies.at[i]->name;
    case DS_ITEM_MESH:
        return *loc = module->meshes.at[i]->loc, module->meshes.at[i]->name;
    case DS_ITEM_FUNC:
        return *loc = module->funcs.at[i]->loc, module->funcs.at[i]->name;
    case DS_ITEM_PROGRAM:
        return *loc = module->programs.at[i]->loc, module->programs.at[i]->name;
    case DS_ITEM_SCHEDULE:
        return *loc = module->schedules.at[i]->loc, module->schedules.at[i]->name;
    case DS_ITEM_PARAMS:
        return *loc = module->params.at[i].loc, module->params.at[i].name;
    default:
        return *loc = module->axes.at[i].loc, module->axes.at[i].name;
    }
}

static void add_visible(ds_checker *ck, const ds_module *module, ds_item_kind kind,
                        const char *prefix, uint32_t depth, ds_names *out) {
    ds_arena *arena = &ck->diags->arena;
    for (uint32_t i = 0; i < count_of(module, kind); i++) {
        ds_loc loc;
        const char *name = name_of(module, kind, i, &loc);
        if (prefix) name = ds_arena_printf(arena, "%s.%s", prefix, name);
        DS_PUSH(arena, &out->all, name);
    }
    for (uint32_t i = 0; i < module->imports.n && depth; i++) {
        const ds_import *import = &module->imports.at[i];
        if (!import->module) continue;
        if (!import->alias) {
            add_visible(ck, import->module, kind, prefix, depth - 1, out);
        } else if (!prefix) {
            add_visible(ck, import->module, kind, import->alias, depth - 1, out);
        }
    }
}

void ds_verify__visible(ds_checker *ck, const ds_module *module, ds_item_kind kind, ds_names *out) {
    add_visible(ck, module, kind, NULL, DS_MAX_IMPORT_DEPTH, out);
}

static const char *kind_text(ds_item_kind kind) {
    switch (kind) {
    case DS_ITEM_TOPOLOGY:
        return "topology";
    case DS_ITEM_MESH:
        return "mesh";
    case DS_ITEM_FUNC:
        return "function";
    case DS_ITEM_PROGRAM:
        return "program";
    case DS_ITEM_SCHEDULE:
        return "schedule";
    case DS_ITEM_PARAMS:
        return "param";
    default:
        return "axis";
    }
}

/* "… @box is a topology", if the name exists with another kind. */
static const char *other_kind(const ds_module *module, const char *name) {
    if (ds_find_func(module, name)) return "function";
    if (ds_find_program(module, name)) return "per-rank program";
    if (ds_find_topology(module, name)) return "topology";
    if (ds_find_mesh(module, name)) return "mesh";
    if (ds_find_schedule(module, name)) return "schedule";
    return NULL;
}

/* The visible name of an import with an alias: @d.dgx for @dgx. */
static const char *hint_of_alias(ds_checker *ck, const char *name, const ds_names *names) {
    for (uint32_t i = 0; i < names->all.n; i++) {
        const char *dot = strrchr(names->all.at[i], '.');
        if (dot && strcmp(dot + 1, name) == 0)
            return ds_arena_printf(&ck->diags->arena, "did you mean @%s?", names->all.at[i]);
    }
    return NULL;
}

static const char *hint_of_item(ds_checker *ck, const ds_library_item *item) {
    return ds_arena_printf(&ck->diags->arena, "%s has @%s: add import \"%s\"", item->file,
                           item->name, item->file);
}

/* The file of the library that declares `name`: the import that is missing. */
static const char *hint_of_library(ds_checker *ck, ds_item_kind kind, const char *name) {
    if (!ck->knows_library) ds_library_scan(&ck->library);
    ck->knows_library = true;
    for (uint32_t i = 0; i < ck->library.all.n; i++) {
        const ds_library_item *item = &ck->library.all.at[i];
        if (item->kind == kind && strcmp(item->name, name) == 0) return hint_of_item(ck, item);
    }
    return NULL;
}

/* The same for the name of the library that is nearest to `name`. */
static const char *hint_of_near(ds_checker *ck, ds_item_kind kind, const char *name) {
    const ds_library_item *best = NULL;
    DS_VEC(const char *) known = {0};
    for (uint32_t i = 0; i < ck->library.all.n; i++)
        if (ck->library.all.at[i].kind == kind) DS_HPUSH(&known, ck->library.all.at[i].name);
    const char *near = ds_suggest(name, known.at, known.n);
    for (uint32_t i = 0; near && !best && i < ck->library.all.n; i++)
        if (ck->library.all.at[i].name == near) best = &ck->library.all.at[i];
    free(known.at);
    return best ? hint_of_item(ck, best) : NULL;
}

void ds_verify__unknown(ds_checker *ck, const ds_module *module, ds_item_kind kind, ds_loc loc,
                        const char *name) {
    const char *other = other_kind(module, name);
    if (other) {
        ds_verify__error(ck, DS_ERR_NAME, loc, NULL, "@%s is a %s; a %s is needed here", name,
                         other, kind_text(kind));
        return;
    }
    ds_names names = {0};
    ds_verify__visible(ck, module, kind, &names);
    const char *hint = hint_of_alias(ck, name, &names);
    if (!hint) hint = hint_of_library(ck, kind, name);
    if (!hint) hint = ds_verify__hint(ck, "@", name, names.all.at, names.all.n);
    if (!hint) hint = hint_of_near(ck, kind, name);
    if (!hint && names.all.n == 1)
        hint = ds_arena_printf(&ck->diags->arena, "the only %s here is @%s", kind_text(kind),
                               names.all.at[0]);
    ds_verify__error(ck, DS_ERR_NAME, loc, hint, "unknown %s @%s", kind_text(kind), name);
}

/* ---- duplicates ---- */

typedef struct name_set {
    ds_map first; /* name → kind << 32 | index */
} name_set;

/* Adds the declarations of one kind; two declarations of one name in a set are an error. */
static void add_to_set(ds_checker *ck, name_set *set, const ds_module *module, ds_item_kind kind,
                       const char *sigil) {
    for (uint32_t i = 0; i < count_of(module, kind); i++) {
        ds_loc loc, before;
        const char *name = name_of(module, kind, i, &loc);
        const uint64_t *found = ds_map_find(&set->first, DS_KEY(name));
        if (!found) {
            ds_map_put(&set->first, DS_KEY(name), (uint64_t)kind << 32 | i);
            continue;
        }
        ds_item_kind kind_before = (ds_item_kind)(*found >> 32);
        name_of(module, kind_before, (uint32_t)*found, &before);
        const char *what =
            ds_arena_printf(&ck->diags->arena, *sigil ? "%s%s" : "%s'%s'", sigil, name);
        if (kind == kind_before)
            ds_verify__error(ck, DS_ERR_NAME, loc, NULL,
                             "%s %s is declared twice; the first one is on line %u",
                             kind_text(kind), what, before.line);
        else
            ds_verify__error(ck, DS_ERR_NAME, loc, NULL,
                             "the name %s is taken by the %s on line %u", what,
                             kind_text(kind_before), before.line);
    }
}

static void check_duplicates(ds_checker *ck, const ds_module *module) {
    /* A place may be a mesh or a topology's device, an entry a function or a program: the two kinds
     * of each pair share their names. */
    static const struct {
        ds_item_kind kinds[2];
        const char *sigil;
    } sets[] = {{{DS_ITEM_PARAMS, DS_ITEM_PARAMS}, ""},
                {{DS_ITEM_AXIS, DS_ITEM_AXIS}, ""},
                {{DS_ITEM_TOPOLOGY, DS_ITEM_MESH}, "@"},
                {{DS_ITEM_FUNC, DS_ITEM_PROGRAM}, "@"},
                {{DS_ITEM_SCHEDULE, DS_ITEM_SCHEDULE}, "@"}};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        name_set set;
        ds_map_init(&set.first);
        add_to_set(ck, &set, module, sets[i].kinds[0], sets[i].sigil);
        if (sets[i].kinds[1] != sets[i].kinds[0])
            add_to_set(ck, &set, module, sets[i].kinds[1], sets[i].sigil);
        ds_map_deinit(&set.first);
    }
    for (uint32_t i = 0; i < module->axes.n; i++)
        if (ds_axis_is_builtin(module->axes.at[i].name))
            ds_verify__error(ck, DS_ERR_NAME, module->axes.at[i].loc, NULL,
                             "axis '%s' needs no declaration: pp, dp, cp, tp and ep always exist",
                             module->axes.at[i].name);
    for (uint32_t i = 1; i < module->scenarios.n; i++)
        ds_verify__error(ck, DS_ERR_NAME, module->scenarios.at[i].loc, NULL,
                         "a module has one scenario at most; the first one is on line %u",
                         module->scenarios.at[0].loc.line);
}

/* ---- imports and params ---- */

static const ds_param *find_param(const ds_module *module, const char *name) {
    for (uint32_t i = 0; i < module->params.n; i++)
        if (module->params.at[i].name == name) return &module->params.at[i];
    return NULL;
}

static void check_with(ds_checker *ck, const ds_import *import) {
    for (uint32_t i = 0; i < import->n_with; i++) {
        const ds_attr *with = &import->with[i];
        for (uint32_t j = 0; j < i; j++)
            if (import->with[j].name == with->name)
                ds_verify__error(ck, DS_ERR_NAME, with->loc, NULL,
                                 "param '%s' is given twice for \"%s\"", with->name, import->path);
        if (find_param(import->module, with->name)) continue;
        ds_names names = {0};
        for (uint32_t k = 0; k < import->module->params.n; k++)
            DS_PUSH(&ck->diags->arena, &names.all, import->module->params.at[k].name);
        ds_verify__error(ck, DS_ERR_NAME, with->loc,
                         ds_verify__hint(ck, "", with->name, names.all.at, names.all.n),
                         "\"%s\" has no param '%s'", import->path, with->name);
    }
}

static void check_imports(ds_checker *ck, const ds_module *module) {
    for (uint32_t i = 0; i < module->imports.n; i++) {
        const ds_import *import = &module->imports.at[i];
        if (import->module) check_with(ck, import);
        for (uint32_t j = 0; j < i && import->alias; j++)
            if (module->imports.at[j].alias == import->alias)
                ds_verify__error(ck, DS_ERR_NAME, import->loc, NULL,
                                 "the alias '%s' is taken by the import on line %u", import->alias,
                                 module->imports.at[j].loc.line);
    }
}

/* A param is used iff an expression of the unit mentions it: every mention is a node of the table.
 */
static void count_param_uses(ds_checker *ck, const ds_module *module) {
    for (uint32_t i = 0; i < module->params.n; i++) module->params.at[i].n_uses = 0;
    const ds_exprs *exprs = &ck->unit->exprs;
    for (uint32_t e = 1; e < exprs->nodes.n; e++) {
        const ds_expr_node *node = &exprs->nodes.at[e];
        if (node->kind != DS_EXPR_PARAM || (uint32_t)(node->i >> 32) != module->id) continue;
        uint32_t index = (uint32_t)node->i;
        if (index < module->params.n) module->params.at[index].n_uses++;
    }
    for (uint32_t i = 0; i < module->params.n; i++)
        if (!module->params.at[i].n_uses)
            ds_verify__warn(ck, module->params.at[i].loc, "param '%s' is never used",
                            module->params.at[i].name);
}

void ds_verify__index_name(ds_checker *ck, const ds_module *module, const char *name, ds_loc loc) {
    const ds_param *param = find_param(module, name);
    if (param)
        ds_verify__error(ck, DS_ERR_NAME, loc, NULL,
                         "the index '%s' hides the param of that name (line %u); take another name",
                         name, param->loc.line);
}

/* ---- meshes ---- */

#define MAX_MESH_CHAIN 64

/* Follows views and picks to their end; reports a cycle once. */
static void check_mesh_base(ds_checker *ck, const ds_mesh *mesh) {
    if (mesh->kind == DS_MESH_ON) {
        if (!ds_find_topology(mesh->module, mesh->base))
            ds_verify__unknown(ck, mesh->module, DS_ITEM_TOPOLOGY, mesh->loc, mesh->base);
        return;
    }
    const ds_mesh *base = ds_find_mesh(mesh->module, mesh->base);
    if (!base) {
        ds_verify__unknown(ck, mesh->module, DS_ITEM_MESH, mesh->loc, mesh->base);
        return;
    }
    ds_buf chain = {0};
    ds_buf_printf(&chain, "@%s", mesh->name);
    for (uint32_t steps = 0; base && steps < MAX_MESH_CHAIN; steps++) {
        ds_buf_printf(&chain, " -> @%s", base->name);
        if (base == mesh) {
            ds_verify__error(ck, DS_ERR_NAME, mesh->loc, NULL, "mesh @%s is made of itself: %s",
                             mesh->name, chain.text);
            break;
        }
        if (base->loc.line < mesh->loc.line) break; /* a cycle is reported at its first mesh */
        base = base->kind == DS_MESH_ON ? NULL : ds_find_mesh(base->module, base->base);
    }
    ds_buf_deinit(&chain);
}

static void check_mesh(ds_checker *ck, const ds_mesh *mesh) {
    for (uint32_t i = 0; i < mesh->n_axes; i++) {
        const ds_mesh_axis *axis = &mesh->axes[i];
        ds_verify__check_axis(ck, mesh->module, axis->name, axis->loc);
        for (uint32_t j = 0; j < i; j++)
            if (mesh->axes[j].name == axis->name) {
                ds_verify__error(ck, DS_ERR_NAME, axis->loc, NULL,
                                 "mesh @%s has the axis '%s' twice", mesh->name, axis->name);
                break;
            }
    }
    check_mesh_base(ck, mesh);
}

void ds_verify__names(ds_checker *ck, const ds_module *module) {
    check_duplicates(ck, module);
    check_imports(ck, module);
    count_param_uses(ck, module);
    for (uint32_t i = 0; i < module->meshes.n; i++) check_mesh(ck, module->meshes.at[i]);
}
