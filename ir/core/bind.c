/* Binding: one value for every param of every module.
 *
 * Modules are visited importers first, so a `with` expression is evaluated in its importer, whose
 * params are known by then, and waits as a `given` value for the imported module's turn. Settings
 * of the command line are given values from the start, which nothing replaces. */
#include "ir/base/arena.h"
#include "ir/base/str.h"
#include "ir/core/expr_walk.h"
#include "ir/core/imports.h"
#include "ir/core/ir.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A value from outside that stands in for a param's initial value. */
typedef struct given {
    ds_num value;
    const char *path; /* of the --set; NULL if it comes from a `with` */
    ds_loc loc;
    bool is_set;
} given;

typedef struct binder {
    ds_unit *unit;
    ds_binding *out;
    given **given; /* [module id][param index] */
    ds_error *err;
} binder;

typedef struct param_ref {
    const ds_module *module;
    uint32_t index;
} param_ref;

static const ds_param *param_at(param_ref ref) {
    return &ref.module->params.at[ref.index];
}

/* ---- paths ---- */

static bool own_param(const ds_module *module, const char *name, param_ref *out) {
    for (uint32_t i = 0; i < module->params.n; i++) {
        if (strcmp(module->params.at[i].name, name) != 0) continue;
        *out = (param_ref){module, i};
        return true;
    }
    return false;
}

/* How many imports without an alias, direct or not, declare `name`; *out and *other are two. */
static uint32_t open_params(const ds_module *module, const char *name, param_ref *out,
                            param_ref *other) {
    uint32_t n, found = 0;
    ds_module **open = ds_ir__open_modules(module, &n);
    for (uint32_t i = 1; i < n; i++) found += own_param(open[i], name, found ? other : out);
    free(open);
    return found;
}

typedef DS_VEC(const char *) names;

enum { MAX_CANDIDATES = 256, MAX_ALIAS_DEPTH = 4, MAX_LISTED = 8 };

/* Every path that can be set from inside `module`, for suggestions. */
static void list_paths(ds_arena *arena, const ds_module *module, const char *prefix, int depth,
                       names *out) {
    uint32_t n;
    ds_module **open = ds_ir__open_modules(module, &n);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < open[i]->params.n && out->n < MAX_CANDIDATES; k++)
            DS_PUSH(arena, out, ds_arena_printf(arena, "%s%s", prefix, open[i]->params.at[k].name));
    free(open);
    for (uint32_t i = 0; i < module->imports.n && depth < MAX_ALIAS_DEPTH; i++) {
        const ds_import *import = &module->imports.at[i];
        if (!import->alias || !import->module) continue;
        const char *longer = ds_arena_printf(arena, "%s%s.", prefix, import->alias);
        list_paths(arena, import->module, longer, depth + 1, out);
    }
}

static ds_status unknown_param(const ds_module *module, const char *path, const char *source,
                               ds_loc loc, ds_error *err) {
    ds_arena arena;
    ds_arena_init(&arena);
    names known = {0};
    list_paths(&arena, module, "", 0, &known);
    ds_buf hint = {0};
    const char *near = ds_suggest(path, known.at, known.n);
    if (near)
        ds_buf_printf(&hint, "; did you mean '%s'?", near);
    else if (!known.n)
        ds_buf_put(&hint, "; there are no params");
    for (uint32_t i = 0; i < known.n && i < MAX_LISTED && !near; i++)
        ds_buf_printf(&hint, "%s%s", i ? ", " : "; the params are ", known.at[i]);
    if (known.n > MAX_LISTED && !near) ds_buf_put(&hint, ", ...");
    ds_status status = ds_error_set(err, DS_ERR_NAME, loc, "%s: there is no param '%s'%s", source,
                                    path, hint.text);
    ds_buf_deinit(&hint);
    ds_arena_deinit(&arena);
    return status;
}

/* `source` opens the message: "--set dp=2" or "with". */
static ds_status find_param(const ds_module *from, const char *path, const char *source, ds_loc loc,
                            param_ref *out, ds_error *err) {
    const ds_module *module = from;
    const char *name = path;
    while (module) {
        if (own_param(module, name, out)) return DS_OK;
        param_ref other;
        uint32_t found = open_params(module, name, out, &other);
        if (found > 1)
            return ds_error_set(err, DS_ERR_NAME, loc,
                                "%s: param '%s' is declared by both %s and %s; import one of them "
                                "with `as` and set it by that name",
                                source, name, out->module->path, other.module->path);
        if (found) return DS_OK;
        const char *dot = strchr(name, '.');
        if (!dot) break;
        module = ds_ir__find_alias(module, name, (size_t)(dot - name));
        name = dot + 1;
    }
    return unknown_param(from, path, source, loc, err);
}

bool ds_find_param_from(const ds_module *from, const char *path, const ds_module **module,
                        uint32_t *index) {
    param_ref ref;
    if (find_param(from, path, "", DS_NOWHERE, &ref, NULL) != DS_OK) return false;
    *module = ref.module;
    *index = ref.index;
    return true;
}

bool ds_find_param(const ds_unit *unit, const char *path, const ds_module **module,
                   uint32_t *index) {
    return ds_find_param_from(unit->modules.at[0], path, module, index);
}

/* ---- values ---- */

static bool looks_like_number(const char *text) {
    /* strtod would also take "inf", "nan" and hexadecimal */
    return *text && text[strspn(text, "+-.0123456789eE")] == '\0' && strpbrk(text, "0123456789");
}

static ds_status setting_value(ds_unit *unit, const char *source, const char *text, ds_num *out,
                               ds_error *err) {
    char *end = NULL;
    if (looks_like_number(text)) {
        errno = 0;
        int64_t i = strtoll(text, &end, 10);
        if (!*end && errno == ERANGE)
            return ds_error_set(err, DS_ERR_OVERFLOW, DS_NOWHERE,
                                "%s: the integer does not fit in 64 bits", source);
        if (!*end) {
            *out = (ds_num){.kind = DS_NUM_INT, .i = i};
            return DS_OK;
        }
        double r = strtod(text, &end);
        if (!*end && !isfinite(r))
            return ds_error_set(err, DS_ERR_OVERFLOW, DS_NOWHERE, "%s: the number is too large",
                                source);
        if (!*end) {
            *out = (ds_num){.kind = DS_NUM_REAL, .r = r};
            return DS_OK;
        }
    }
    size_t n = strlen(text);
    if (n >= 2 && text[0] == '"' && text[n - 1] == '"') {
        text++;
        n -= 2;
    }
    *out = (ds_num){.kind = DS_NUM_STR, .s = ds_intern_n(&unit->strings, text, n)};
    return DS_OK;
}

static const char *kind_text(const ds_num *value) {
    switch (value->kind) {
    case DS_NUM_INT:
        return value->is_bool ? "true or false" : "an integer";
    case DS_NUM_REAL:
        return "a real";
    case DS_NUM_STR:
        return "a string";
    }
    return "?";
}

static void print_num(const ds_num *value, ds_buf *out) {
    switch (value->kind) {
    case DS_NUM_INT:
        if (value->is_bool)
            ds_buf_put(out, value->i ? "true" : "false");
        else
            ds_buf_printf(out, "%" PRId64, value->i);
        return;
    case DS_NUM_REAL:
        ds_buf_printf(out, "%.15g", value->r);
        return;
    case DS_NUM_STR:
        ds_buf_printf(out, "\"%s\"", value->s);
        return;
    }
}

static bool same_num(const ds_num *x, const ds_num *y) {
    if (x->kind != y->kind || x->is_bool != y->is_bool) return false;
    return x->kind == DS_NUM_INT   ? x->i == y->i
           : x->kind == DS_NUM_STR ? x->s == y->s
                                   : !(x->r < y->r) && !(x->r > y->r);
}

/* ---- given values ---- */

static bool is_said(const ds_unit *unit, const char *path) {
    for (uint32_t i = 0; i < unit->said.n; i++)
        if (strcmp(unit->said.at[i].path, path) == 0) return true;
    return false;
}

static ds_status give_settings(binder *b, const ds_setting *settings, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        if (is_said(b->unit, settings[i].path)) continue;
        char source[256];
        snprintf(source, sizeof source, "--set %s=%s", settings[i].path, settings[i].text);
        given value = {.path = settings[i].path, .loc = DS_NOWHERE, .is_set = true};
        param_ref ref;
        DS_TRY(
            find_param(b->unit->modules.at[0], settings[i].path, source, DS_NOWHERE, &ref, b->err));
        DS_TRY(setting_value(b->unit, source, settings[i].text, &value.value, b->err));
        b->given[ref.module->id][ref.index] = value;
    }
    return DS_OK;
}

static ds_status with_value(const binder *b, const ds_attr *attr, ds_num *out) {
    ds_env env = ds_binding_env(b->out, NULL);
    switch (attr->kind) {
    case DS_ATTR_EXPR:
        return ds_expr_eval(&env, attr->expr, attr->loc, out, b->err);
    case DS_ATTR_WORD:
        *out = (ds_num){.kind = DS_NUM_STR, .s = attr->word};
        return DS_OK;
    case DS_ATTR_BOOL:
        *out = ds_num_bool(attr->flag);
        return DS_OK;
    default:
        return ds_error_set(b->err, DS_ERR_TYPE, attr->loc,
                            "param '%s' takes a number, a string, true, false or an expression",
                            attr->name);
    }
}

/* A module is loaded once, so all imports of it must agree. */
static ds_status give_with(binder *b, const ds_module *target, const ds_attr *attr) {
    param_ref ref;
    given value = {.loc = attr->loc, .is_set = true};
    DS_TRY(find_param(target, attr->name, "with", attr->loc, &ref, b->err));
    DS_TRY(with_value(b, attr, &value.value));
    given *slot = &b->given[ref.module->id][ref.index];
    if (slot->is_set && slot->path) return DS_OK;
    if (slot->is_set && !same_num(&slot->value, &value.value)) {
        ds_buf text = {0};
        ds_buf_printf(&text, "param '%s' of %s is set to ", attr->name, ref.module->path);
        print_num(&value.value, &text);
        ds_buf_put(&text, " here and to ");
        print_num(&slot->value, &text);
        ds_buf_printf(&text, " by another import (%s:%" PRIu32 ")",
                      slot->loc.file ? slot->loc.file : "?", slot->loc.line);
        ds_status status = ds_error_set(b->err, DS_ERR_VALUE, attr->loc, "%s", text.text);
        ds_buf_deinit(&text);
        return status;
    }
    *slot = value;
    return DS_OK;
}

static ds_status give_withs(binder *b, const ds_module *importer) {
    for (uint32_t i = 0; i < importer->imports.n; i++) {
        const ds_import *import = &importer->imports.at[i];
        for (uint32_t k = 0; k < import->n_with && import->module; k++)
            DS_TRY(give_with(b, import->module, &import->with[k]));
    }
    return DS_OK;
}

/* ---- params ---- */

/* An initial value may look at params declared before it only. */
static ds_status check_order(const binder *b, param_ref ref) {
    const ds_param *param = param_at(ref);
    ds_expr_walk walk;
    ds_expr__walk_init(&walk, &b->unit->exprs, param->init);
    const char *late = NULL;
    for (uint32_t k = 0; k < walk.n; k++) {
        const ds_expr_node *node = ds_expr_at(&b->unit->exprs, (ds_expr){walk.ids[k]});
        if (node->kind == DS_EXPR_PARAM && node->i >> 32 == ref.module->id &&
            (uint32_t)node->i >= ref.index)
            late = node->name;
    }
    ds_expr__walk_deinit(&walk);
    if (!late) return DS_OK;
    return ds_error_set(b->err, DS_ERR_NAME, param->loc,
                        "param '%s' is made from '%s', which is not declared before it",
                        param->name, late);
}

/* A given value must be of the kind of the initial one; an integer may stand for a real, the text
 * of a setting for true or false. */
static ds_status adopt(const binder *b, param_ref ref, const given *value, const ds_num *init,
                       ds_num *out) {
    bool flag;
    *out = value->value;
    if (init->is_bool && out->kind == DS_NUM_STR && ds_num_parse_bool(out->s, &flag)) {
        *out = ds_num_bool(flag);
        return DS_OK;
    }
    if (out->kind == init->kind && out->is_bool == init->is_bool) return DS_OK;
    if (out->kind == DS_NUM_INT && !out->is_bool && init->kind == DS_NUM_REAL) {
        *out = (ds_num){.kind = DS_NUM_REAL, .r = (double)out->i};
        return DS_OK;
    }
    ds_buf text = {0};
    ds_buf_printf(&text, "%s%s: param '%s' is %s (initially ", value->path ? "--set " : "with ",
                  value->path ? value->path : param_at(ref)->name, param_at(ref)->name,
                  kind_text(init));
    print_num(init, &text);
    ds_buf_put(&text, "), and ");
    print_num(&value->value, &text);
    ds_buf_printf(&text, " is %s", kind_text(&value->value));
    ds_status status = ds_error_set(b->err, DS_ERR_TYPE, value->loc, "%s", text.text);
    ds_buf_deinit(&text);
    return status;
}

static ds_status bind_param(binder *b, param_ref ref) {
    const ds_param *param = param_at(ref);
    const given *value = &b->given[ref.module->id][ref.index];
    ds_num *out = &b->out->params[ref.module->id][ref.index];
    ds_env env = ds_binding_env(b->out, NULL);
    DS_TRY(check_order(b, ref));
    ds_num init;
    if (!value->is_set) return ds_expr_eval(&env, param->init, param->loc, out, b->err);
    /* An initial value that cannot be computed tells no kind, and is not needed. */
    if (ds_expr_eval(&env, param->init, param->loc, &init, NULL) != DS_OK) init = value->value;
    return adopt(b, ref, value, &init, out);
}

static ds_status bind_module(binder *b, const ds_module *module) {
    b->out->params[module->id] = DS_NEW_N(&b->unit->arena, ds_num, module->params.n);
    for (uint32_t i = 0; i < module->params.n; i++) DS_TRY(bind_param(b, (param_ref){module, i}));
    return give_withs(b, module);
}

/* ---- modules ---- */

/* Importers first (Kahn); modules on a cycle, which loading refuses, would be left out. */
static uint32_t order_modules(const ds_unit *unit, uint32_t *order) {
    uint32_t n_modules = unit->modules.n, n = 0;
    uint32_t *importers = ds_xcalloc(n_modules, sizeof *importers);
    for (uint32_t m = 0; m < n_modules; m++)
        for (uint32_t i = 0; i < unit->modules.at[m]->imports.n; i++) {
            const ds_module *module = unit->modules.at[m]->imports.at[i].module;
            if (module) importers[module->id]++;
        }
    for (uint32_t m = 0; m < n_modules; m++)
        if (!importers[m]) order[n++] = m;
    for (uint32_t at = 0; at < n; at++)
        for (uint32_t i = 0; i < unit->modules.at[order[at]]->imports.n; i++) {
            const ds_module *module = unit->modules.at[order[at]]->imports.at[i].module;
            if (module && --importers[module->id] == 0) order[n++] = module->id;
        }
    free(importers);
    return n;
}

static ds_status bind_modules(binder *b, const uint32_t *order, uint32_t n) {
    if (n < b->unit->modules.n)
        return ds_error_set(b->err, DS_ERR_NAME, DS_NOWHERE, "the imports of %s form a cycle",
                            b->unit->modules.at[0]->path);
    for (uint32_t i = 0; i < n; i++) DS_TRY(bind_module(b, b->unit->modules.at[order[i]]));
    return DS_OK;
}

ds_status ds_bind(ds_unit *unit, const ds_setting *settings, uint32_t n_settings, ds_binding *out,
                  ds_error *err) {
    uint32_t n_modules = unit->modules.n;
    *out = (ds_binding){unit, DS_NEW_N(&unit->arena, ds_num *, n_modules)};
    if (!n_modules) return DS_OK;
    ds_arena scratch;
    ds_arena_init(&scratch);
    binder b = {unit, out, DS_NEW_N(&scratch, given *, n_modules), err};
    for (uint32_t m = 0; m < n_modules; m++)
        b.given[m] = DS_NEW_N(&scratch, given, unit->modules.at[m]->params.n);
    uint32_t *order = DS_NEW_N(&scratch, uint32_t, n_modules);
    uint32_t n = order_modules(unit, order);
    ds_status status = give_settings(&b, settings, n_settings);
    if (status == DS_OK) status = bind_modules(&b, order, n);
    ds_arena_deinit(&scratch);
    return status;
}
