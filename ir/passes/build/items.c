/* The items that a step's module prints, in order, with only the params that the module mentions.
 *
 * A param that no text mentions stays in the module, because expressions know params by number.
 * Such a param is no item, so that it is not printed. */
#include "ir/passes/build/clone.h"

#include <stdlib.h>

typedef struct marker {
    const ds_exprs *exprs;
    ds_module *module;
    ds_map seen;   /* expressions */
    ds_map arrays; /* of uneven sizes, which types share */
    ds_map types;
    bool *used; /* per param */
    DS_VEC(ds_expr) open;
} marker;

static void mark(marker *m, ds_expr e) {
    if (DS_HAS_EXPR(e)) DS_HPUSH(&m->open, e);
    while (m->open.n) {
        ds_expr top = m->open.at[--m->open.n];
        if (!DS_HAS_EXPR(top) || ds_map_find(&m->seen, top.i)) continue;
        ds_map_put(&m->seen, top.i, 1);
        const ds_expr_node *node = ds_expr_at(m->exprs, top);
        if (node->kind == DS_EXPR_PARAM && (uint32_t)node->i < m->module->params.n) {
            m->used[(uint32_t)node->i] = true;
            DS_HPUSH(&m->open, m->module->params.at[(uint32_t)node->i].init);
        }
        DS_HPUSH(&m->open, node->a);
        DS_HPUSH(&m->open, node->b);
    }
}

static void mark_all(marker *m, const ds_expr *e, uint32_t n) {
    for (uint32_t i = 0; e && i < n; i++)
        if (i == 0 || e[i].i != e[i - 1].i) mark(m, e[i]);
}

static void mark_place(marker *m, const ds_place *place) {
    for (uint32_t i = 0; i < place->n_coords; i++) mark(m, place->coords[i].at);
    for (uint32_t i = 0; i < place->n_steps; i++) mark(m, place->steps[i].index);
}

static bool is_new(ds_map *seen, const void *what) {
    if (ds_map_find(seen, DS_KEY(what))) return false;
    ds_map_put(seen, DS_KEY(what), 1);
    return true;
}

static void mark_sizes(marker *m, const ds_split *split) {
    if (split->n_sizes && is_new(&m->arrays, split->sizes))
        mark_all(m, split->sizes, split->n_sizes);
}

static void mark_type(marker *m, const ds_type *type) {
    if (!type || !is_new(&m->types, type)) return;
    for (uint32_t d = 0; d < type->rank; d++) {
        mark(m, type->dims[d].size);
        for (uint32_t s = 0; s < type->dims[d].n_splits; s++)
            mark_sizes(m, &type->dims[d].splits[s]);
    }
    mark_place(m, &type->on);
}

static void mark_attrs(marker *m, const ds_attr *attrs, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        mark(m, attrs[i].expr);
        mark_place(m, &attrs[i].place);
        mark_attrs(m, attrs[i].items, attrs[i].n_items);
    }
}

static void mark_binders(marker *m, const ds_binder *binders, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        mark(m, binders[i].lo);
        mark(m, binders[i].hi);
    }
}

static void mark_value(marker *m, const ds_func *func, ds_value value) {
    const ds_value_info *info = ds_value_at(func, value);
    mark_type(m, info->type);
    mark_binders(m, info->binders, info->n_binders);
    mark_attrs(m, info->attrs, info->n_attrs);
}

static void mark_op(marker *m, const ds_func *func, const ds_op *op) {
    for (uint32_t i = 0; i < op->n_in; i++) {
        mark_all(m, op->in[i].index, op->in[i].n_index);
        mark_all(m, op->in[i].index_hi, op->in[i].n_index);
    }
    for (uint32_t i = 0; i < op->n_out; i++) mark_value(m, func, op->out[i]);
    for (uint32_t i = 0; i < op->n_args; i++) mark_value(m, func, op->args[i]);
    for (uint32_t i = 0; i < op->n_to; i++) mark_place(m, &op->to[i]);
    for (uint32_t i = 0; i < op->n_mesh_args; i++) mark_place(m, &op->mesh_args[i]);
    for (uint32_t i = 0; op->result_types && i < op->n_out; i++) mark_type(m, op->result_types[i]);
    mark_attrs(m, op->attrs, op->n_attrs);
    mark_all(m, op->group, op->n_group);
    const ds_expr others[] = {op->dim, op->dim_to, op->to_rank, op->from_rank,
                              op->tag, op->lo,     op->hi,      op->index_arg};
    mark_all(m, others, sizeof others / sizeof *others);
    for (uint32_t i = 0; op->body && i < op->body->n_ops; i++) mark_op(m, func, op->body->ops[i]);
}

static void mark_func(marker *m, const ds_func *func) {
    for (uint32_t i = 0; i < func->n_args; i++) mark_value(m, func, func->args[i]);
    for (uint32_t i = 0; i < func->n_results; i++) {
        mark_type(m, func->results[i]);
        if (func->result_binders)
            mark_binders(m, func->result_binders[i], func->n_result_binders[i]);
    }
    for (uint32_t i = 0; i < func->body.n_ops; i++) mark_op(m, func, func->body.ops[i]);
}

static void mark_topology(marker *m, const ds_topology *topology) {
    for (uint32_t i = 0; i < topology->nodes.n; i++) {
        mark(m, topology->nodes.at[i].count);
        mark_attrs(m, topology->nodes.at[i].attrs, topology->nodes.at[i].n_attrs);
    }
    for (uint32_t i = 0; i < topology->links.n; i++) {
        const ds_link_decl *link = &topology->links.at[i];
        for (uint32_t k = 0; k < link->n_a; k++) mark(m, link->a[k].index);
        for (uint32_t k = 0; k < link->n_b; k++) mark(m, link->b[k].index);
        mark(m, link->bandwidth.value);
        mark(m, link->latency.value);
        mark(m, link->where);
        mark_binders(m, link->loops, link->n_loops);
        mark_attrs(m, link->attrs, link->n_attrs);
    }
}

static void mark_degrade(marker *m, const ds_degrade *degrade) {
    for (uint32_t k = 0; k < degrade->n_a; k++) mark(m, degrade->a[k].index);
    for (uint32_t k = 0; k < degrade->n_b; k++) mark(m, degrade->b[k].index);
    mark(m, degrade->where);
    mark_binders(m, degrade->loops, degrade->n_loops);
    mark_attrs(m, degrade->factors, degrade->n_factors);
}

static void mark_mesh(marker *m, const ds_mesh *mesh) {
    for (uint32_t i = 0; i < mesh->n_axes; i++) mark(m, mesh->axes[i].size);
    mark(m, mesh->pick_lo);
    mark(m, mesh->pick_hi);
    mark_all(m, mesh->order, mesh->n_order);
}

static void mark_module(marker *m) {
    const ds_module *module = m->module;
    for (uint32_t i = 0; i < module->topologies.n; i++) mark_topology(m, module->topologies.at[i]);
    for (uint32_t i = 0; i < module->meshes.n; i++) mark_mesh(m, module->meshes.at[i]);
    for (uint32_t i = 0; i < module->funcs.n; i++) mark_func(m, module->funcs.at[i]);
    for (uint32_t i = 0; i < module->programs.n; i++)
        for (uint32_t k = 0; k < module->programs.at[i]->n_ranks; k++)
            mark_func(m, module->programs.at[i]->ranks[k]);
    for (uint32_t i = 0; i < module->degrades.n; i++) mark_degrade(m, &module->degrades.at[i]);
    for (uint32_t i = 0; i < module->scenarios.n; i++)
        mark_attrs(m, module->scenarios.at[i].entries, module->scenarios.at[i].n_entries);
}

enum { LINE_WIDTH = 90 };

static size_t printed_width(const ds_module *module, const ds_param *param) {
    ds_buf text = {0};
    ds_buf_printf(&text, ", %s = ", param->name);
    ds_expr_print(&module->unit->exprs, param->init, &text);
    size_t n = text.n;
    ds_buf_deinit(&text);
    return n;
}

/* Adds the used params, as many on a line as fit. */
static void add_params(ds_module *module, const bool *used) {
    uint32_t group = 0;
    size_t width = 0;
    for (uint32_t i = 0; i < module->params.n; i++) {
        ds_param *param = &module->params.at[i];
        size_t n = printed_width(module, param);
        bool starts = i == 0 || used[i] != used[i - 1] || width + n > LINE_WIDTH;
        group += starts;
        width = starts ? n : width + n;
        param->group = group;
        if (used[i] && starts)
            DS_PUSH(&module->unit->arena, &module->items, ((ds_item){DS_ITEM_PARAMS, i}));
    }
}

static void add_items(ds_module *module, ds_item_kind kind, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        DS_PUSH(&module->unit->arena, &module->items, ((ds_item){kind, i}));
}

void ds_clone_order_items(ds_module *module) {
    marker m = {.exprs = &module->unit->exprs, .module = module};
    m.used = ds_xcalloc(module->params.n + 1, sizeof *m.used);
    ds_map_init(&m.seen);
    ds_map_init(&m.arrays);
    ds_map_init(&m.types);
    mark_module(&m);
    module->items.n = 0;
    add_params(module, m.used);
    add_items(module, DS_ITEM_AXIS, module->axes.n);
    add_items(module, DS_ITEM_TOPOLOGY, module->topologies.n);
    add_items(module, DS_ITEM_MESH, module->meshes.n);
    add_items(module, DS_ITEM_DEGRADE, module->degrades.n);
    add_items(module, DS_ITEM_SCHEDULE, module->schedules.n);
    add_items(module, DS_ITEM_FUNC, module->funcs.n);
    add_items(module, DS_ITEM_PROGRAM, module->programs.n);
    add_items(module, DS_ITEM_SCENARIO, module->scenarios.n);
    ds_map_deinit(&m.seen);
    ds_map_deinit(&m.arrays);
    ds_map_deinit(&m.types);
    free(m.open.at);
    free(m.used);
}
