/* Declarations from one unit to another: axes, topologies, meshes, schedules. */
#include "ir/passes/build/clone.h"

#include <stdlib.h>
#include <string.h>

static ds_expr plain(void *context, ds_expr e) {
    return ds_clone_expr(context, e);
}

/* ---- names ---- */

static bool place_is_taken(const ds_module *module, const char *name) {
    for (uint32_t i = 0; i < module->topologies.n; i++)
        if (module->topologies.at[i]->name == name) return true;
    for (uint32_t i = 0; i < module->meshes.n; i++)
        if (module->meshes.at[i]->name == name) return true;
    return false;
}

static const char *place_name(ds_cloner *c, const char *wanted) {
    const char *name = ds_clone_text(c, wanted);
    for (uint32_t i = 2; place_is_taken(c->module, name); i++)
        name = ds_clone_text(c, ds_arena_printf(&c->unit->arena, "%s_%u", wanted, i));
    return name;
}

/* ---- axes ---- */

static bool axis_is_known(const ds_module *module, const char *name) {
    for (uint32_t i = 0; i < module->axes.n; i++)
        if (module->axes.at[i].name == name) return true;
    return false;
}

void ds_clone_axes(ds_cloner *c) {
    const ds_unit *from = c->source->unit;
    for (uint32_t m = 0; m < from->modules.n; m++)
        for (uint32_t i = 0; i < from->modules.at[m]->axes.n; i++) {
            ds_axis_decl axis = {.name = ds_clone_text(c, from->modules.at[m]->axes.at[i].name)};
            if (!axis_is_known(c->module, axis.name))
                DS_PUSH(&c->unit->arena, &c->module->axes, axis);
        }
}

/* ---- topologies ---- */

/* The loops of a link or a degrade, innermost last. Copies may have to rename their indices. */
typedef struct link_scope {
    ds_cloner *c;
    const ds_binder *from;
    const ds_binder *to;
    uint32_t n;
} link_scope;

static ds_expr in_link(void *context, ds_expr e) {
    const link_scope *s = context;
    ds_expr copy = ds_clone_expr(s->c, e);
    for (uint32_t i = s->n; i-- > 0;) {
        const char *old = ds_clone_text(s->c, s->from[i].name);
        if (old != s->to[i].name)
            copy = ds_expr_subst(&s->c->unit->exprs, copy, old,
                                 ds_expr_index(&s->c->unit->exprs, s->to[i].name));
    }
    return copy;
}

static ds_step *copy_steps(link_scope *s, const ds_step *steps, uint32_t n) {
    ds_step *copy = DS_NEW_N(&s->c->unit->arena, ds_step, n + 1);
    for (uint32_t i = 0; i < n; i++)
        copy[i] = (ds_step){ds_clone_text(s->c, steps[i].name), in_link(s, steps[i].index)};
    return copy;
}

static void copy_attrs(ds_cloner *c, const ds_module *module, const ds_attr *attrs, uint32_t n,
                       ds_clone_expr_fn expr, void *context, ds_attr **out) {
    *out = DS_NEW_N(&c->unit->arena, ds_attr, n + 1);
    for (uint32_t i = 0; i < n; i++) ds_clone_attr(c, module, &attrs[i], expr, context, &(*out)[i]);
}

/* Copies the n loops. */
static link_scope open_scope(ds_cloner *c, const ds_binder *from, uint32_t n, ds_binder **out) {
    const char **open = ds_xcalloc(n + 1, sizeof *open);
    ds_binder *to = *out = DS_NEW_N(&c->unit->arena, ds_binder, n + 1);
    link_scope scope = {c, from, to, 0};
    for (uint32_t i = 0; i < n; i++) {
        open[i] = ds_clone_index_name(c, from[i].name, open, i);
        to[i] = (ds_binder){open[i], in_link(&scope, from[i].lo), in_link(&scope, from[i].hi),
                            ds_clone_loc(c, from[i].loc)};
        scope.n = i + 1;
    }
    free((void *)open);
    return scope;
}

static void copy_link(ds_cloner *c, const ds_topology *from, const ds_link_decl *link,
                      ds_topology *out) {
    ds_link_decl copy = *link;
    link_scope scope = open_scope(c, link->loops, link->n_loops, &copy.loops);
    copy.a = copy_steps(&scope, link->a, link->n_a);
    copy.b = copy_steps(&scope, link->b, link->n_b);
    copy.bandwidth.value = in_link(&scope, link->bandwidth.value);
    copy.latency.value = in_link(&scope, link->latency.value);
    copy.where = in_link(&scope, link->where);
    copy_attrs(c, from->module, link->attrs, link->n_attrs, in_link, &scope, &copy.attrs);
    copy.loc = ds_clone_loc(c, link->loc);
    copy.trivia = (ds_trivia){0};
    DS_PUSH(&c->unit->arena, &out->links, copy);
}

static void copy_node(ds_cloner *c, const ds_topology *from, const ds_node_decl *node,
                      ds_topology *out) {
    ds_node_decl copy = *node;
    const ds_topology *inner =
        node->kind == DS_NODE_INSTANCE ? ds_find_topology(from->module, node->type_name) : NULL;
    copy.name = ds_clone_text(c, node->name);
    copy.count = ds_clone_expr(c, node->count);
    copy.type_name = inner ? ds_clone_topology(c, inner) : ds_clone_text(c, node->type_name);
    copy_attrs(c, from->module, node->attrs, node->n_attrs, plain, c, &copy.attrs);
    copy.loc = ds_clone_loc(c, node->loc);
    copy.trivia = (ds_trivia){0};
    DS_PUSH(&c->unit->arena, &out->nodes, copy);
}

const char *ds_clone_topology(ds_cloner *c, const ds_topology *topology) {
    const uint64_t *found = ds_map_find(&c->places, DS_KEY(topology));
    if (found) return (const char *)(uintptr_t)*found;
    ds_topology *copy = DS_NEW(&c->unit->arena, ds_topology);
    copy->module = c->module;
    copy->loc = ds_clone_loc(c, topology->loc);
    copy->trivia.blank_before = true;
    for (uint32_t i = 0; i < topology->nodes.n; i++)
        copy_node(c, topology, &topology->nodes.at[i], copy);
    for (uint32_t i = 0; i < topology->links.n; i++)
        copy_link(c, topology, &topology->links.at[i], copy);
    for (uint32_t i = 0; i < topology->items.n; i++)
        DS_PUSH(&c->unit->arena, &copy->items, topology->items.at[i]);
    copy->name = place_name(c, topology->name); /* named after the topologies inside, which are
                                                   declared first */
    ds_map_put(&c->places, DS_KEY(topology), DS_KEY(copy->name));
    DS_PUSH(&c->unit->arena, &c->module->topologies, copy);
    return copy->name;
}

void ds_clone_degrades(ds_cloner *c) {
    const ds_module *root = c->source->unit->modules.at[0];
    for (uint32_t i = 0; i < root->degrades.n; i++) {
        const ds_degrade *from = &root->degrades.at[i];
        ds_degrade copy = *from;
        link_scope scope = open_scope(c, from->loops, from->n_loops, &copy.loops);
        copy.a = copy_steps(&scope, from->a, from->n_a);
        copy.b = copy_steps(&scope, from->b, from->n_b);
        copy.where = in_link(&scope, from->where);
        copy_attrs(c, root, from->factors, from->n_factors, in_link, &scope, &copy.factors);
        copy.loc = ds_clone_loc(c, from->loc);
        copy.trivia = (ds_trivia){.blank_before = i == 0};
        DS_PUSH(&c->unit->arena, &c->module->degrades, copy);
    }
}

/* ---- meshes and schedules ---- */

static const char *mesh_base(ds_cloner *c, const ds_mesh *mesh) {
    if (mesh->kind == DS_MESH_ON)
        return ds_clone_topology(c, ds_find_topology(mesh->module, mesh->base));
    return ds_clone_mesh(c, ds_find_mesh(mesh->module, mesh->base));
}

const char *ds_clone_mesh(ds_cloner *c, const ds_mesh *mesh) {
    const uint64_t *found = ds_map_find(&c->places, DS_KEY(mesh));
    if (found) return (const char *)(uintptr_t)*found;
    ds_arena *arena = &c->unit->arena;
    ds_mesh *copy = DS_NEW(arena, ds_mesh);
    *copy = *mesh;
    copy->module = c->module;
    copy->loc = ds_clone_loc(c, mesh->loc);
    copy->trivia = (ds_trivia){.blank_before = true};
    copy->base = mesh_base(c, mesh);
    copy->axes = DS_NEW_N(arena, ds_mesh_axis, mesh->n_axes + 1);
    for (uint32_t i = 0; i < mesh->n_axes; i++)
        copy->axes[i] = (ds_mesh_axis){ds_clone_text(c, mesh->axes[i].name),
                                       ds_clone_expr(c, mesh->axes[i].size),
                                       ds_clone_loc(c, mesh->axes[i].loc)};
    copy->pick_lo = ds_clone_expr(c, mesh->pick_lo);
    copy->pick_hi = ds_clone_expr(c, mesh->pick_hi);
    copy->order = DS_NEW_N(arena, ds_expr, mesh->n_order + 1);
    for (uint32_t i = 0; i < mesh->n_order; i++) copy->order[i] = ds_clone_expr(c, mesh->order[i]);
    copy->name = place_name(c, mesh->name);
    ds_map_put(&c->places, DS_KEY(mesh), DS_KEY(copy->name));
    DS_PUSH(arena, &c->module->meshes, copy);
    return copy->name;
}

static void *copy_array(ds_arena *arena, const void *from, size_t n, size_t size) {
    void *copy = ds_arena_calloc(arena, n + 1, size);
    if (n) memcpy(copy, from, n * size);
    return copy;
}

const char *ds_clone_schedule(ds_cloner *c, const ds_schedule *schedule) {
    const uint64_t *found = ds_map_find(&c->places, DS_KEY(schedule));
    if (found) return (const char *)(uintptr_t)*found;
    ds_arena *arena = &c->unit->arena;
    ds_schedule *copy = DS_NEW(arena, ds_schedule);
    *copy = *schedule;
    copy->name = ds_clone_text(c, schedule->name);
    copy->loc = ds_clone_loc(c, schedule->loc);
    copy->trivia = (ds_trivia){.blank_before = true};
    copy->dangling = (ds_trivia){0};
    size_t n = schedule->n_place;
    copy->place_chunk = copy_array(arena, schedule->place_chunk, n, sizeof *copy->place_chunk);
    copy->place_stage = copy_array(arena, schedule->place_stage, n, sizeof *copy->place_stage);
    copy->ranks = copy_array(arena, schedule->ranks, schedule->n_ranks, sizeof *copy->ranks);
    for (uint32_t i = 0; i < schedule->n_ranks; i++) {
        ds_schedule_rank *rank = &copy->ranks[i];
        rank->items = copy_array(arena, rank->items, rank->n_items, sizeof *rank->items);
        rank->loc = ds_clone_loc(c, rank->loc);
        rank->trivia = (ds_trivia){0};
    }
    ds_map_put(&c->places, DS_KEY(schedule), DS_KEY(copy->name));
    DS_PUSH(arena, &c->module->schedules, copy);
    return copy->name;
}
