/* Units and modules, written quantities, and names seen through imports. */
#include "ir/core/ir.h"

#include "ir/base/arena.h"
#include "ir/core/imports.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- life cycle ---- */

ds_unit *ds_unit_new(void) {
    ds_unit *unit = ds_xcalloc(1, sizeof *unit);
    ds_arena_init(&unit->arena);
    ds_strtab_init(&unit->strings);
    ds_exprs_init(&unit->exprs);
    ds_map_init(&unit->inferred);
    return unit;
}

void ds_unit_free(ds_unit *unit) {
    if (!unit) return;
    ds_map_deinit(&unit->inferred);
    ds_exprs_deinit(&unit->exprs);
    ds_strtab_deinit(&unit->strings);
    ds_arena_deinit(&unit->arena);
    free(unit);
}

ds_module *ds_unit_add_module(ds_unit *unit, const char *path, const char *text, size_t n) {
    ds_module *module = DS_NEW(&unit->arena, ds_module);
    module->unit = unit;
    module->id = unit->modules.n;
    module->path = ds_intern(&unit->strings, path);
    char *copy = ds_arena_alloc(&unit->arena, n + 1); /* may hold NULs: not a strndup */
    if (n) memcpy(copy, text, n);
    module->text = copy;
    module->text_n = n;
    DS_PUSH(&unit->arena, &unit->modules, module);
    return module;
}

/* ---- written quantities ---- */

typedef struct unit_row {
    const char *text;
    char dimension;
    double scale;
} unit_row;

static const unit_row UNITS[] = {{"", '\0', 1.0},
#define DS_X(name, text, dimension, scale) {text, dimension, scale},
                                 DS_UNIT_MAP(DS_X)
#undef DS_X
};

#define N_UNITS ((uint32_t)(sizeof UNITS / sizeof *UNITS))

const char *ds_unit_text(ds_unit_id unit) {
    return UNITS[unit].text;
}
char ds_unit_dimension(ds_unit_id unit) {
    return UNITS[unit].dimension;
}
double ds_unit_scale(ds_unit_id unit) {
    return UNITS[unit].scale;
}

bool ds_unit_parse(const char *text, size_t n, ds_unit_id *out) {
    for (uint32_t i = 1; i < N_UNITS; i++) {
        if (strlen(UNITS[i].text) != n || memcmp(UNITS[i].text, text, n) != 0) continue;
        *out = (ds_unit_id)i;
        return true;
    }
    return false;
}

static const char *dimension_text(char dimension) {
    switch (dimension) {
    case 'T':
        return "a time (ps, ns, us, ms, s)";
    case 'B':
        return "a size (B, KB, MB, GB, TB, KiB, MiB, GiB, TiB)";
    case 'R':
        return "a bandwidth (GB/s, GiB/s, Gb/s, ...)";
    case 'F':
        return "a rate of arithmetic (GFLOP/s, TFLOP/s)";
    default:
        return "a quantity";
    }
}

/* scale * per_base where it is meant to be an integer: 1e-9 s * 1e12 ps/s is 1000, not
 * 1000.0000000000001. Four roundings of a double are allowed for. */
static double combined_scale(ds_unit_id unit, double per_base) {
    double scale = UNITS[unit].scale * per_base, whole = round(scale);
    return fabs(scale - whole) <= 4 * DBL_EPSILON * whole ? whole : scale;
}

/* The nearest integer to value * scale, exact for integer values and scales. */
static bool scale_to_int(const ds_num *value, double scale, int64_t *out) {
    bool whole = scale >= 1 && scale < 0x1p62 && round(scale) == scale;
    if (value->kind == DS_NUM_INT && whole)
        return !__builtin_mul_overflow(value->i, (int64_t)scale, out);
    double real = (value->kind == DS_NUM_INT ? (double)value->i : value->r) * scale;
    if (!(real < 0x1p63)) return false;
    *out = llround(real);
    return true;
}

ds_status ds_quantity_eval(const ds_env *env, ds_quantity q, char dimension, double per_base,
                           ds_loc loc, int64_t *out, ds_error *err) {
    ds_num value;
    DS_TRY(ds_expr_eval(env, q.value, loc, &value, err));
    const char *unit = UNITS[q.unit].text;
    if (value.kind == DS_NUM_STR)
        return ds_error_set(err, DS_ERR_TYPE, loc, "%s is needed here, not the string \"%s\"",
                            dimension_text(dimension), value.s);
    double shown = value.kind == DS_NUM_INT ? (double)value.i : value.r;
    if (UNITS[q.unit].dimension != dimension)
        return ds_error_set(err, DS_ERR_TYPE, loc, "%s is needed here, not %.15g%s%s",
                            dimension_text(dimension), shown, *unit ? " " : " without a unit",
                            unit);
    if (shown < 0) return ds_error_set(err, DS_ERR_VALUE, loc, "%.15g %s is negative", shown, unit);
    if (dimension == 'R' && shown > 0 && shown * combined_scale(q.unit, per_base) < 1)
        return ds_error_set(err, DS_ERR_VALUE, loc, "%.15g %s is less than 1 B/s", shown, unit);
    if (!scale_to_int(&value, combined_scale(q.unit, per_base), out))
        return ds_error_set(err, DS_ERR_OVERFLOW, loc,
                            "%.15g %s is beyond the largest value that can be simulated", shown,
                            unit);
    return DS_OK;
}

/* ---- attributes ---- */

const char *ds_attr_text(const ds_exprs *exprs, const ds_attr *attr) {
    if (!attr) return NULL;
    if (attr->kind == DS_ATTR_WORD) return attr->word;
    if (attr->kind != DS_ATTR_EXPR) return NULL;
    const ds_expr_node *node = ds_expr_at(exprs, attr->expr);
    return node->kind == DS_EXPR_STR ? node->name : NULL;
}

bool ds_attrs_mention(const ds_exprs *exprs, const ds_attr *attrs, uint32_t n,
                      const char *index_name) {
    for (uint32_t i = 0; i < n; i++)
        if ((DS_HAS_EXPR(attrs[i].expr) && ds_expr_mentions(exprs, attrs[i].expr, index_name)) ||
            ds_attrs_mention(exprs, attrs[i].items, attrs[i].n_items, index_name))
            return true;
    return false;
}

const ds_attr *ds_attr_find(const ds_attr *attrs, uint32_t n, const char *name) {
    for (uint32_t i = 0; i < n; i++)
        if (attrs[i].name && strcmp(attrs[i].name, name) == 0) return &attrs[i];
    return NULL;
}

/* ---- names ---- */

ds_module *ds_ir__find_alias(const ds_module *module, const char *alias, size_t n) {
    for (uint32_t i = 0; i < module->imports.n; i++) {
        const ds_import *import = &module->imports.at[i];
        if (import->alias && strlen(import->alias) == n && memcmp(import->alias, alias, n) == 0)
            return import->module;
    }
    return NULL;
}

ds_module **ds_ir__open_modules(const ds_module *module, uint32_t *n) {
    const ds_unit *unit = module->unit;
    ds_module **open = ds_xcalloc(unit->modules.n, sizeof(ds_module *));
    bool *seen = ds_xcalloc(unit->modules.n, sizeof *seen);
    *n = 0;
    open[(*n)++] = unit->modules.at[module->id];
    seen[module->id] = true;
    for (uint32_t at = 0; at < *n; at++) {
        for (uint32_t i = 0; i < open[at]->imports.n; i++) {
            const ds_import *import = &open[at]->imports.at[i];
            if (import->alias || !import->module || seen[import->module->id]) continue;
            seen[import->module->id] = true;
            open[(*n)++] = import->module;
        }
    }
    free(seen);
    return open;
}

typedef void *(*find_own)(const ds_module *module, const char *name);

static void *find_in_open_modules(const ds_module *module, const char *name, find_own own) {
    uint32_t n;
    ds_module **open = ds_ir__open_modules(module, &n);
    void *found = NULL;
    for (uint32_t i = 0; i < n && !found; i++) found = own(open[i], name);
    free(open);
    return found;
}

static void *find_name(const ds_module *module, const char *name, find_own own) {
    while (module) {
        void *found = own(module, name);
        if (!found && module->imports.n) found = find_in_open_modules(module, name, own);
        const char *dot = strchr(name, '.');
        if (found || !dot) return found;
        module = ds_ir__find_alias(module, name, (size_t)(dot - name));
        name = dot + 1;
    }
    return NULL;
}

#define DS_DEFINE_FIND(kind, list)                                                                 \
    static void *own_##kind(const ds_module *module, const char *name) {                           \
        for (uint32_t i = 0; i < module->list.n; i++)                                              \
            if (strcmp(module->list.at[i]->name, name) == 0) return module->list.at[i];            \
        return NULL;                                                                               \
    }                                                                                              \
    ds_##kind *ds_find_##kind(const ds_module *module, const char *name) {                         \
        return find_name(module, name, own_##kind);                                                \
    }

DS_DEFINE_FIND(func, funcs)
DS_DEFINE_FIND(topology, topologies)
DS_DEFINE_FIND(mesh, meshes)
DS_DEFINE_FIND(program, programs)
DS_DEFINE_FIND(schedule, schedules)
