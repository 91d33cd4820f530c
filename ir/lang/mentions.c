/* A walk over all expressions of functions, topologies, meshes. */
#include "ir/lang/mentions.h"

#include <stdlib.h>

typedef struct walk {
    const ds_exprs *exprs;
    ds_mention_visit visit;
    void *context;
} walk;

/* By recursion: expressions are no deeper than the parser lets them be. */
static void walk_expr(const walk *w, ds_expr e) {
    if (!DS_HAS_EXPR(e)) return;
    const ds_expr_node *node = ds_expr_at(w->exprs, e);
    if (node->kind == DS_EXPR_PARAM || node->kind == DS_EXPR_INDEX) w->visit(w->context, node);
    walk_expr(w, node->a);
    walk_expr(w, node->b);
}

static void walk_steps(const walk *w, const ds_step *steps, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) walk_expr(w, steps[i].index);
}

static void walk_place(const walk *w, const ds_place *place) {
    for (uint32_t i = 0; i < place->n_coords; i++) walk_expr(w, place->coords[i].at);
    walk_steps(w, place->steps, place->n_steps);
}

static void walk_attrs(const walk *w, const ds_attr *attrs, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        walk_expr(w, attrs[i].expr);
        walk_place(w, &attrs[i].place);
        walk_attrs(w, attrs[i].items, attrs[i].n_items);
    }
}

static void walk_binders(const walk *w, const ds_binder *binders, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        walk_expr(w, binders[i].lo);
        walk_expr(w, binders[i].hi);
    }
}

/* ---- functions ---- */

static void walk_type(const walk *w, const ds_type *type) {
    for (uint32_t d = 0; type && d < type->rank; d++) {
        const ds_dim *dim = &type->dims[d];
        walk_expr(w, dim->size);
        for (uint32_t s = 0; s < dim->n_splits; s++)
            for (uint32_t i = 0; i < dim->splits[s].n_sizes; i++)
                walk_expr(w, dim->splits[s].sizes[i]);
    }
    if (type) walk_place(w, &type->on);
}

static void walk_uses(const walk *w, const ds_use *uses, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t x = 0; x < uses[i].n_index; x++) {
            walk_expr(w, uses[i].index[x]);
            if (uses[i].index_hi) walk_expr(w, uses[i].index_hi[x]);
        }
}

static void walk_block(const walk *w, const ds_block *block);

static void walk_op(const walk *w, const ds_op *op) {
    walk_uses(w, op->in, op->n_in);
    walk_attrs(w, op->attrs, op->n_attrs);
    for (uint32_t i = 0; i < op->n_group; i++) walk_expr(w, op->group[i]);
    for (uint32_t i = 0; i < op->n_to; i++) walk_place(w, &op->to[i]);
    for (uint32_t i = 0; i < op->n_mesh_args; i++) walk_place(w, &op->mesh_args[i]);
    walk_expr(w, op->index_arg);
    const ds_expr single[] = {op->dim, op->dim_to, op->to_rank, op->from_rank, op->tag};
    for (size_t i = 0; i < sizeof single / sizeof *single; i++) walk_expr(w, single[i]);
    if (op->code == DS_OP_FOR) {
        walk_expr(w, op->lo);
        walk_expr(w, op->hi);
    }
    walk_binders(w, op->dims, op->n_dims);
    for (uint32_t i = 0; i < op->n_conds; i++) walk_expr(w, op->conds[i]);
    for (uint32_t i = 0; op->result_types && i < op->n_out; i++) walk_type(w, op->result_types[i]);
    if (op->body) walk_block(w, op->body);
}

static void walk_block(const walk *w, const ds_block *block) {
    for (uint32_t i = 0; i < block->n_ops; i++) walk_op(w, block->ops[i]);
}

static void walk_func(const walk *w, const ds_func *func) {
    for (uint32_t v = 0; v < func->values.n; v++) {
        const ds_value_info *info = &func->values.at[v];
        walk_type(w, info->type);
        walk_attrs(w, info->attrs, info->n_attrs);
        walk_binders(w, info->binders, info->n_binders);
    }
    for (uint32_t i = 0; i < func->n_results; i++) {
        walk_type(w, func->results[i]);
        if (func->result_binders)
            walk_binders(w, func->result_binders[i], func->n_result_binders[i]);
    }
    walk_block(w, &func->body);
}

/* ---- devices ---- */

static void walk_topology(const walk *w, const ds_topology *topology) {
    for (uint32_t i = 0; i < topology->nodes.n; i++) {
        const ds_node_decl *node = &topology->nodes.at[i];
        walk_expr(w, node->count);
        walk_attrs(w, node->attrs, node->n_attrs);
    }
    for (uint32_t i = 0; i < topology->links.n; i++) {
        const ds_link_decl *link = &topology->links.at[i];
        walk_steps(w, link->a, link->n_a);
        walk_steps(w, link->b, link->n_b);
        walk_expr(w, link->bandwidth.value);
        walk_expr(w, link->latency.value);
        walk_binders(w, link->loops, link->n_loops);
        walk_expr(w, link->where);
        walk_attrs(w, link->attrs, link->n_attrs);
    }
}

static void walk_mesh(const walk *w, const ds_mesh *mesh) {
    for (uint32_t i = 0; i < mesh->n_axes; i++) walk_expr(w, mesh->axes[i].size);
    walk_expr(w, mesh->pick_lo);
    walk_expr(w, mesh->pick_hi);
    for (uint32_t i = 0; i < mesh->n_order; i++) walk_expr(w, mesh->order[i]);
}

static void walk_degrade(const walk *w, const ds_degrade *degrade) {
    walk_steps(w, degrade->a, degrade->n_a);
    walk_steps(w, degrade->b, degrade->n_b);
    walk_attrs(w, degrade->factors, degrade->n_factors);
    walk_binders(w, degrade->loops, degrade->n_loops);
    walk_expr(w, degrade->where);
}

/* ---- public ---- */

void ds_mentions_expr(const ds_exprs *exprs, ds_expr e, ds_mention_visit visit, void *context) {
    walk_expr(&(walk){exprs, visit, context}, e);
}

void ds_mentions_attrs(const ds_exprs *exprs, const ds_attr *attrs, uint32_t n,
                       ds_mention_visit visit, void *context) {
    walk_attrs(&(walk){exprs, visit, context}, attrs, n);
}

void ds_mentions_func(const ds_func *func, ds_mention_visit visit, void *context) {
    walk_func(&(walk){&func->module->unit->exprs, visit, context}, func);
}

void ds_mentions_devices(const ds_module *module, ds_mention_visit visit, void *context) {
    const walk w = {&module->unit->exprs, visit, context};
    for (uint32_t i = 0; i < module->topologies.n; i++) walk_topology(&w, module->topologies.at[i]);
    for (uint32_t i = 0; i < module->meshes.n; i++) walk_mesh(&w, module->meshes.at[i]);
    for (uint32_t i = 0; i < module->degrades.n; i++) walk_degrade(&w, &module->degrades.at[i]);
}

/* ---- the loop over layers ---- */

typedef struct counts {
    int64_t param;
    const char *index;
    uint32_t n_param, n_index;
} counts;

static void count_leaf(void *context, const ds_expr_node *leaf) {
    counts *c = context;
    if (leaf->kind == DS_EXPR_PARAM)
        c->n_param += leaf->i == c->param;
    else
        c->n_index += leaf->name == c->index;
}

typedef DS_VEC(const ds_func *) funcs;

static void add_callees(funcs *reached, const ds_block *block) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        uint32_t k = 0;
        if (op->body) add_callees(reached, op->body);
        if (op->code != DS_OP_CALL || !op->callee) continue;
        while (k < reached->n && reached->at[k] != op->callee) k++;
        if (k == reached->n) DS_HPUSH(reached, op->callee);
    }
}

/* Counts in the model and in all functions that the model calls, each once. */
static void count_in(const ds_func *model, counts *c) {
    funcs reached = {0};
    DS_HPUSH(&reached, model);
    for (uint32_t i = 0; i < reached.n; i++) {
        ds_mentions_func(reached.at[i], count_leaf, c);
        add_callees(&reached, &reached.at[i]->body);
    }
    free(reached.at);
}

static const ds_op *only_loop(const ds_func *func) {
    const ds_op *found = NULL;
    for (uint32_t i = 0; i < func->body.n_ops; i++) {
        if (func->body.ops[i]->code != DS_OP_FOR) continue;
        if (found) return NULL;
        found = func->body.ops[i];
    }
    return found;
}

bool ds_find_layer_loop(const ds_binding *binding, const ds_func *model, ds_layer_loop *out) {
    const ds_unit *unit = binding->unit;
    const ds_op *loop = only_loop(model);
    ds_env env = ds_binding_env(binding, NULL);
    int64_t lo;
    if (!loop || ds_expr_at(&unit->exprs, loop->hi)->kind != DS_EXPR_PARAM ||
        ds_expr_eval_int(&env, loop->lo, loop->loc, &lo, NULL) != DS_OK || lo != 0)
        return false;
    counts c = {.param = ds_expr_at(&unit->exprs, loop->hi)->i, .index = loop->index};
    *out = (ds_layer_loop){.op = loop,
                           .module = unit->modules.at[(uint64_t)c.param >> 32],
                           .param = (uint32_t)c.param};
    if (binding->params[out->module->id][out->param].kind != DS_NUM_INT) return false;
    ds_mentions_func(model, count_leaf, &c);
    out->uses_index = c.n_index > 0;
    c.n_param = 0;
    count_in(model, &c);
    return c.n_param == 1;
}
