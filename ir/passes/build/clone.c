/* Expressions, attributes and types from one unit to another. Declarations: clone_decl.c. */
#include "ir/passes/build/clone.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ds_clone_init(ds_cloner *c, const ds_binding *source) {
    *c = (ds_cloner){.source = source, .unit = ds_unit_new()};
    c->unit->stop = source->unit->stop;
    c->module = ds_unit_add_module(c->unit, source->unit->modules.at[0]->path, "", 0);
    c->module->version = source->unit->modules.at[0]->version;
}

void ds_clone_deinit(ds_cloner *c) {
    ds_map_deinit(&c->names);
    ds_map_deinit(&c->exprs[0]);
    ds_map_deinit(&c->exprs[1]);
    ds_map_deinit(&c->params);
    ds_map_deinit(&c->replaced);
    ds_map_deinit(&c->affected);
    ds_map_deinit(&c->places);
}

const char *ds_clone_text(ds_cloner *c, const char *text) {
    return text ? ds_intern(&c->unit->strings, text) : NULL;
}

ds_loc ds_clone_loc(ds_cloner *c, ds_loc loc) {
    loc.file = ds_clone_text(c, loc.file);
    return loc;
}

/* ---- params and indices ---- */

uint64_t ds_clone_param_key(const ds_module *module, uint32_t index) {
    return (uint64_t)module->id << 32 | index;
}

static const char *numbered(ds_cloner *c, const char *name, uint32_t i) {
    return i < 2 ? name : ds_clone_text(c, ds_arena_printf(&c->unit->arena, "%s_%u", name, i));
}

ds_expr ds_clone_new_param(ds_cloner *c, const char *name, ds_expr init) {
    name = ds_clone_text(c, name);
    uint32_t i = 1;
    while (ds_map_find(&c->names, DS_KEY(numbered(c, name, i)))) i++;
    name = numbered(c, name, i);
    ds_map_put(&c->names, DS_KEY(name), DS_CLONE_PARAM);
    ds_param param = {.name = name, .init = init};
    uint32_t index = c->module->params.n;
    DS_PUSH(&c->unit->arena, &c->module->params, param);
    return ds_expr_make(&c->unit->exprs,
                        (ds_expr_node){.kind = DS_EXPR_PARAM, .name = name, .i = index});
}

static bool is_open(const char *name, const char *const *open, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (open[i] == name) return true;
    return false;
}

const char *ds_clone_index_name(ds_cloner *c, const char *wanted, const char *const *open,
                                uint32_t n) {
    wanted = ds_clone_text(c, wanted);
    for (uint32_t i = 1;; i++) {
        const char *name = numbered(c, wanted, i);
        const uint64_t *taken = ds_map_find(&c->names, DS_KEY(name));
        if ((taken && *taken == DS_CLONE_PARAM) || is_open(name, open, n)) continue;
        ds_map_put(&c->names, DS_KEY(name), DS_CLONE_INDEX);
        return name;
    }
}

static ds_expr real_literal(ds_cloner *c, double value) {
    char text[40];
    int digits = 1; /* the shortest text that reads back as the same number */
    double size = value < 0 ? -value : value;
    do snprintf(text, sizeof text, "%.*g", digits, size);
    while (strtod(text, NULL) != size && ++digits <= 17);
    if (!strpbrk(text, ".einf")) strcat(text, ".0");
    ds_expr_node node = {.kind = DS_EXPR_REAL, .r = size, .name = ds_clone_text(c, text)};
    ds_expr e = ds_expr_make(&c->unit->exprs, node);
    if (value >= 0) return e;
    return ds_expr_make(&c->unit->exprs, (ds_expr_node){.kind = DS_EXPR_NEG, .a = e});
}

ds_expr ds_clone_literal(ds_cloner *c, ds_num value) {
    if (value.kind == DS_NUM_INT) return ds_expr_int(&c->unit->exprs, value.i);
    if (value.kind == DS_NUM_REAL) return real_literal(c, value.r);
    ds_expr_node node = {.kind = DS_EXPR_STR, .name = ds_clone_text(c, value.s)};
    return ds_expr_make(&c->unit->exprs, node);
}

static bool same_value(const ds_num *a, const ds_num *b) {
    if (a->kind != b->kind) return false;
    if (a->kind == DS_NUM_INT) return a->i == b->i;
    return a->kind == DS_NUM_REAL ? !(a->r < b->r) && !(a->r > b->r) : a->s == b->s;
}

/* The value that imports give a param. Any import will do: binding has checked that all of them
 * agree. */
static ds_expr given(const ds_unit *unit, const ds_module *module, const char *name) {
    ds_expr e = DS_NO_EXPR;
    for (uint32_t m = 0; m < unit->modules.n; m++)
        for (uint32_t i = 0; i < unit->modules.at[m]->imports.n; i++) {
            const ds_import *import = &unit->modules.at[m]->imports.at[i];
            if (import->module != module) continue;
            const ds_attr *with = ds_attr_find(import->with, import->n_with, name);
            if (with && with->kind == DS_ATTR_EXPR) e = with->expr;
        }
    return e;
}

ds_expr ds_clone_origin(const ds_binding *source, const ds_module *module, uint32_t index) {
    const ds_param *p = &module->params.at[index];
    ds_expr e = given(source->unit, module, p->name);
    ds_env env = ds_binding_env(source, NULL);
    ds_num value;
    if (!DS_HAS_EXPR(e)) e = p->init;
    if (ds_expr_eval(&env, e, p->loc, &value, NULL) != DS_OK ||
        !same_value(&value, &source->params[module->id][index]))
        return DS_NO_EXPR;
    return e;
}

static ds_expr copy_expr(ds_cloner *c, ds_expr e, bool replaced);

enum { MAX_DEPTH = 64 }; /* of params made of params; deeper params become their values */

static bool is_taken(ds_cloner *c, const char *name) {
    return ds_map_find(&c->names, DS_KEY(ds_clone_text(c, name))) != NULL;
}

static ds_expr copy_value(ds_cloner *c, bool replaced, ds_num value) {
    c->fixed = c->fixed || replaced;
    return ds_clone_literal(c, value);
}

static ds_expr copy_param(ds_cloner *c, const ds_expr_node *node, bool replaced, ds_num value) {
    const ds_unit *from = c->source->unit;
    const ds_module *module = from->modules.at[node->i >> 32];
    ds_expr origin = ds_clone_origin(c->source, module, (uint32_t)node->i);
    ds_expr init = DS_NO_EXPR;
    if (DS_HAS_EXPR(origin) && c->depth < MAX_DEPTH) {
        bool alias = ds_expr_at(&from->exprs, origin)->kind == DS_EXPR_PARAM;
        if (!alias && is_taken(c, node->name)) return copy_value(c, replaced, value);
        c->depth++;
        init = copy_expr(c, origin, replaced);
        c->depth--;
        if (alias) return init;
    }
    if (is_taken(c, node->name)) return copy_value(c, replaced, value);
    if (!DS_HAS_EXPR(init)) init = copy_value(c, replaced, value);
    return ds_clone_new_param(c, node->name, init);
}

static ds_expr param(ds_cloner *c, const ds_expr_node *node, bool replaced) {
    uint64_t key = (uint64_t)node->i;
    ds_num value = c->source->params[key >> 32][(uint32_t)key];
    const uint64_t *affected = replaced ? ds_map_find(&c->affected, key) : NULL;
    ds_map *map =
        replaced && (affected || ds_map_find(&c->replaced, key)) ? &c->replaced : &c->params;
    const uint64_t *found = ds_map_find(map, key);
    if (found) return (ds_expr){(uint32_t)*found};
    if (affected) value = (ds_num){.kind = DS_NUM_INT, .i = (int64_t)*affected};
    ds_expr copy = copy_param(c, node, affected != NULL, value);
    ds_map_put(map, key, copy.i);
    return copy;
}

/* ---- expressions ---- */

static ds_expr mapped(const ds_map *map, ds_expr e) {
    const uint64_t *found = ds_map_find(map, e.i);
    return found ? (ds_expr){(uint32_t)*found} : DS_NO_EXPR;
}

static ds_expr copy_node(ds_cloner *c, const ds_expr_node *node, const ds_map *map, bool replaced) {
    if (node->kind == DS_EXPR_PARAM) return param(c, node, replaced);
    ds_expr_node copy = *node;
    copy.name = ds_clone_text(c, node->name);
    copy.a = mapped(map, node->a);
    copy.b = mapped(map, node->b);
    return ds_expr_make(&c->unit->exprs, copy);
}

/* Uses an explicit stack: an expression may nest deeper than the C stack allows. */
static ds_expr copy_expr(ds_cloner *c, ds_expr e, bool replaced) {
    const ds_exprs *from = &c->source->unit->exprs;
    ds_map *map = &c->exprs[replaced];
    DS_VEC(ds_expr) open = {0};
    if (!DS_HAS_EXPR(e)) return e;
    DS_HPUSH(&open, e);
    while (open.n) {
        ds_expr top = open.at[open.n - 1];
        const ds_expr_node *node = ds_expr_at(from, top);
        uint32_t before = open.n;
        if (!ds_map_find(map, top.i)) {
            if (DS_HAS_EXPR(node->a) && !ds_map_find(map, node->a.i)) DS_HPUSH(&open, node->a);
            if (DS_HAS_EXPR(node->b) && !ds_map_find(map, node->b.i)) DS_HPUSH(&open, node->b);
            if (open.n == before) ds_map_put(map, top.i, copy_node(c, node, map, replaced).i);
        }
        if (open.n == before) open.n--;
    }
    free(open.at);
    return mapped(map, e);
}

ds_expr ds_clone_expr(ds_cloner *c, ds_expr e) {
    return copy_expr(c, e, false);
}

ds_expr ds_clone_expr_replaced(ds_cloner *c, ds_expr e) {
    return copy_expr(c, e, true);
}

/* ---- attributes ---- */

/* @name in an attribute: a mesh, a topology, a schedule, or a function, which keeps its name. */
static const char *place_name(ds_cloner *c, const ds_module *module, const char *name) {
    const ds_mesh *mesh = ds_find_mesh(module, name);
    const ds_topology *topology = mesh ? NULL : ds_find_topology(module, name);
    const ds_schedule *schedule = mesh || topology ? NULL : ds_find_schedule(module, name);
    if (mesh) return ds_clone_mesh(c, mesh);
    if (topology) return ds_clone_topology(c, topology);
    if (schedule) return ds_clone_schedule(c, schedule);
    return ds_clone_text(c, name);
}

static void copy_place(ds_cloner *c, const ds_module *module, const ds_place *place,
                       ds_clone_expr_fn expr, void *context, ds_place *out) {
    *out = *place;
    out->loc = ds_clone_loc(c, place->loc);
    if (place->kind == DS_PLACE_NONE) return;
    out->name = place_name(c, module, place->name);
    out->coords = DS_NEW_N(&c->unit->arena, ds_coord, place->n_coords + 1);
    for (uint32_t i = 0; i < place->n_coords; i++)
        out->coords[i] =
            (ds_coord){ds_clone_text(c, place->coords[i].axis), expr(context, place->coords[i].at)};
    out->steps = DS_NEW_N(&c->unit->arena, ds_step, place->n_steps + 1);
    for (uint32_t i = 0; i < place->n_steps; i++)
        out->steps[i] =
            (ds_step){ds_clone_text(c, place->steps[i].name), expr(context, place->steps[i].index)};
}

void ds_clone_attr(ds_cloner *c, const ds_module *module, const ds_attr *attr,
                   ds_clone_expr_fn expr, void *context, ds_attr *out) {
    *out = *attr;
    out->name = ds_clone_text(c, attr->name);
    out->word = ds_clone_text(c, attr->word);
    out->loc = ds_clone_loc(c, attr->loc);
    out->trivia = out->dangling = (ds_trivia){0};
    out->expr = expr(context, attr->expr);
    copy_place(c, module, &attr->place, expr, context, &out->place);
    out->items = DS_NEW_N(&c->unit->arena, ds_attr, attr->n_items + 1);
    for (uint32_t i = 0; i < attr->n_items; i++)
        ds_clone_attr(c, module, &attr->items[i], expr, context, &out->items[i]);
}

/* ---- types ---- */

ds_type *ds_clone_type(ds_cloner *c, const ds_type *type, ds_clone_expr_fn expr, void *context) {
    ds_arena *arena = &c->unit->arena;
    ds_type *copy = DS_NEW(arena, ds_type);
    copy->dtype = type->dtype;
    copy->rank = type->rank;
    copy->dims = DS_NEW_N(arena, ds_dim, type->rank + 1);
    for (uint32_t d = 0; d < type->rank; d++) {
        const ds_dim *from = &type->dims[d];
        ds_dim *to = &copy->dims[d];
        to->size = expr(context, from->size);
        to->n_splits = from->n_splits;
        to->splits = from->n_splits ? DS_NEW_N(arena, ds_split, from->n_splits) : NULL;
        for (uint32_t s = 0; s < from->n_splits; s++)
            to->splits[s].axis = ds_clone_text(c, from->splits[s].axis);
    }
    return copy;
}
