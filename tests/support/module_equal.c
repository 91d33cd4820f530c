/* A plain recursive comparison. Names are compared as text, since each module has its own table of
 * strings; expressions node by node, so that a wrong parenthesis in print would be seen. */
#include "tests/support/module_equal.h"

#include <string.h>

typedef struct pair {
    const ds_exprs *a, *b;
    const char *difference;
} pair;

#define SAME(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            if (!p->difference) p->difference = #condition;                                        \
            return false;                                                                          \
        }                                                                                          \
    } while (0)

#define SAME_ARRAY(function, x, y, n)                                                              \
    do {                                                                                           \
        for (uint32_t k_ = 0; k_ < (n); k_++) SAME(function(p, &(x)[k_], &(y)[k_]));               \
    } while (0)

static bool text(const char *a, const char *b) {
    return (!a && !b) || (a && b && strcmp(a, b) == 0);
}

static bool expr_same(pair *p, const ds_expr *ea, const ds_expr *eb) {
    SAME(DS_HAS_EXPR(*ea) == DS_HAS_EXPR(*eb));
    if (!DS_HAS_EXPR(*ea)) return true;
    const ds_expr_node *a = ds_expr_at(p->a, *ea), *b = ds_expr_at(p->b, *eb);
    SAME(a->kind == b->kind);
    SAME(text(a->name, b->name));
    SAME(a->i == b->i);
    SAME(memcmp(&a->r, &b->r, sizeof a->r) == 0);
    return expr_same(p, &a->a, &b->a) && expr_same(p, &a->b, &b->b);
}

static bool trivia_same(pair *p, const ds_trivia *a, const ds_trivia *b) {
    SAME(a->n_comments == b->n_comments);
    for (uint32_t k = 0; k < a->n_comments; k++) SAME(text(a->comments[k], b->comments[k]));
    SAME(a->blank_before == b->blank_before);
    SAME(text(a->trailing, b->trailing));
    SAME(text(a->opening, b->opening));
    return true;
}

/* ---- places and types ---- */

static bool step_same(pair *p, const ds_step *a, const ds_step *b) {
    SAME(text(a->name, b->name));
    return expr_same(p, &a->index, &b->index);
}

static bool coord_same(pair *p, const ds_coord *a, const ds_coord *b) {
    SAME(text(a->axis, b->axis));
    return expr_same(p, &a->at, &b->at);
}

static bool place_same(pair *p, const ds_place *a, const ds_place *b) {
    SAME(a->kind == b->kind && text(a->name, b->name));
    SAME(a->n_coords == b->n_coords && a->n_steps == b->n_steps);
    SAME_ARRAY(coord_same, a->coords, b->coords, a->n_coords);
    SAME_ARRAY(step_same, a->steps, b->steps, a->n_steps);
    return true;
}

static bool split_same(pair *p, const ds_split *a, const ds_split *b) {
    SAME(text(a->axis, b->axis) && a->n_sizes == b->n_sizes);
    SAME_ARRAY(expr_same, a->sizes, b->sizes, a->n_sizes);
    return true;
}

static bool dim_same(pair *p, const ds_dim *a, const ds_dim *b) {
    SAME(a->n_splits == b->n_splits && expr_same(p, &a->size, &b->size));
    SAME_ARRAY(split_same, a->splits, b->splits, a->n_splits);
    return true;
}

/* The k-th partial of one kind of reduction, or NULL: print puts the sums first. */
static const ds_partial *partial_of(const ds_type *type, ds_reduction reduction, uint32_t k) {
    for (uint32_t i = 0; i < type->n_partials; i++)
        if (type->partials[i].reduction == reduction && k-- == 0) return &type->partials[i];
    return NULL;
}

static bool partials_same(pair *p, const ds_type *a, const ds_type *b, ds_reduction reduction) {
    for (uint32_t k = 0;; k++) {
        const ds_partial *x = partial_of(a, reduction, k), *y = partial_of(b, reduction, k);
        if (!x && !y) return true;
        SAME(x && y && text(x->axis, y->axis));
    }
}

static bool type_same(pair *p, ds_type *const *ta, ds_type *const *tb) {
    const ds_type *a = *ta, *b = *tb;
    SAME((a == NULL) == (b == NULL));
    if (!a) return true;
    SAME(a->dtype == b->dtype && a->rank == b->rank && a->n_partials == b->n_partials);
    SAME_ARRAY(dim_same, a->dims, b->dims, a->rank);
    return partials_same(p, a, b, DS_RED_SUM) && partials_same(p, a, b, DS_RED_MAX) &&
           place_same(p, &a->on, &b->on);
}

static bool binder_same(pair *p, const ds_binder *a, const ds_binder *b) {
    SAME(text(a->name, b->name));
    return expr_same(p, &a->lo, &b->lo) && expr_same(p, &a->hi, &b->hi);
}

static bool attr_same(pair *p, const ds_attr *a, const ds_attr *b) {
    SAME(text(a->name, b->name) && a->quoted_name == b->quoted_name && a->kind == b->kind);
    SAME(a->unit == b->unit && a->flag == b->flag && text(a->word, b->word));
    SAME(a->is_override == b->is_override && a->multiline == b->multiline);
    SAME(a->labelled == b->labelled);
    SAME(a->n_items == b->n_items);
    SAME_ARRAY(attr_same, a->items, b->items, a->n_items);
    return expr_same(p, &a->expr, &b->expr) && place_same(p, &a->place, &b->place) &&
           trivia_same(p, &a->trivia, &b->trivia) && trivia_same(p, &a->dangling, &b->dangling);
}

/* ---- functions ---- */

static bool value_same(pair *p, const ds_value *a, const ds_value *b) {
    SAME(a->i == b->i);
    return true;
}

static bool info_same(pair *p, const ds_value_info *a, const ds_value_info *b) {
    SAME(text(a->name, b->name) && a->is_arg == b->is_arg && a->in_rec == b->in_rec &&
         a->type_written == b->type_written);
    SAME(a->n_binders == b->n_binders && a->n_attrs == b->n_attrs);
    SAME((a->def == NULL) == (b->def == NULL));
    SAME_ARRAY(binder_same, a->binders, b->binders, a->n_binders);
    SAME_ARRAY(attr_same, a->attrs, b->attrs, a->n_attrs);
    return type_same(p, &a->type, &b->type);
}

static bool use_same(pair *p, const ds_use *a, const ds_use *b) {
    SAME(a->value.i == b->value.i && a->n_index == b->n_index);
    SAME((a->index_hi == NULL) == (b->index_hi == NULL));
    SAME_ARRAY(expr_same, a->index, b->index, a->n_index);
    if (a->index_hi) SAME_ARRAY(expr_same, a->index_hi, b->index_hi, a->n_index);
    return true;
}

static bool block_same(pair *p, const ds_block *a, const ds_block *b);

static bool clauses_same(pair *p, const ds_op *a, const ds_op *b) {
    SAME(a->n_over == b->n_over && a->across == b->across && a->has_group == b->has_group);
    for (uint32_t k = 0; k < a->n_over; k++) SAME(text(a->over[k], b->over[k]));
    SAME(a->n_group == b->n_group && a->n_to == b->n_to);
    SAME_ARRAY(expr_same, a->group, b->group, a->n_group);
    SAME_ARRAY(place_same, a->to, b->to, a->n_to);
    return expr_same(p, &a->dim, &b->dim) && expr_same(p, &a->dim_to, &b->dim_to) &&
           expr_same(p, &a->to_rank, &b->to_rank) && expr_same(p, &a->from_rank, &b->from_rank) &&
           expr_same(p, &a->tag, &b->tag);
}

static bool structure_same(pair *p, const ds_op *a, const ds_op *b) {
    SAME(text(a->index, b->index) && a->n_args == b->n_args && a->n_keep == b->n_keep);
    SAME_ARRAY(value_same, a->args, b->args, a->n_args);
    SAME((a->result_types == NULL) == (b->result_types == NULL));
    if (a->result_types) SAME_ARRAY(type_same, a->result_types, b->result_types, a->n_out);
    SAME(text(a->callee_name, b->callee_name) && a->n_mesh_args == b->n_mesh_args);
    SAME_ARRAY(place_same, a->mesh_args, b->mesh_args, a->n_mesh_args);
    SAME(expr_same(p, &a->index_arg, &b->index_arg));
    SAME(a->n_dims == b->n_dims && a->n_conds == b->n_conds);
    SAME_ARRAY(binder_same, a->dims, b->dims, a->n_dims);
    SAME_ARRAY(expr_same, a->conds, b->conds, a->n_conds);
    SAME((a->body == NULL) == (b->body == NULL));
    if (a->body) SAME(block_same(p, a->body, b->body));
    return expr_same(p, &a->lo, &b->lo) && expr_same(p, &a->hi, &b->hi);
}

static bool op_same(pair *p, ds_op *const *oa, ds_op *const *ob) {
    const ds_op *a = *oa, *b = *ob;
    SAME(a->code == b->code && a->n_in == b->n_in && a->n_out == b->n_out);
    SAME(a->n_attrs == b->n_attrs);
    SAME_ARRAY(use_same, a->in, b->in, a->n_in);
    SAME_ARRAY(value_same, a->out, b->out, a->n_out);
    SAME_ARRAY(attr_same, a->attrs, b->attrs, a->n_attrs);
    return clauses_same(p, a, b) && structure_same(p, a, b) &&
           trivia_same(p, &a->trivia, &b->trivia);
}

static bool block_same(pair *p, const ds_block *a, const ds_block *b) {
    SAME(a->n_ops == b->n_ops);
    SAME_ARRAY(op_same, a->ops, b->ops, a->n_ops);
    return trivia_same(p, &a->dangling, &b->dangling);
}

static bool results_same(pair *p, const ds_func *a, const ds_func *b) {
    SAME(a->n_results == b->n_results);
    SAME_ARRAY(type_same, a->results, b->results, a->n_results);
    for (uint32_t k = 0; k < a->n_results; k++) {
        SAME(a->n_result_binders[k] == b->n_result_binders[k]);
        SAME_ARRAY(binder_same, a->result_binders[k], b->result_binders[k], a->n_result_binders[k]);
    }
    return true;
}

static bool func_same(pair *p, ds_func *const *fa, ds_func *const *fb) {
    const ds_func *a = *fa, *b = *fb;
    SAME(text(a->name, b->name) && a->rank == b->rank && a->n_args == b->n_args);
    SAME(a->n_mesh_params == b->n_mesh_params);
    for (uint32_t k = 0; k < a->n_mesh_params; k++)
        SAME(text(a->mesh_params[k], b->mesh_params[k]));
    SAME(text(a->index_param, b->index_param));
    SAME_ARRAY(value_same, a->args, b->args, a->n_args);
    SAME(results_same(p, a, b));
    SAME(a->values.n == b->values.n);
    SAME_ARRAY(info_same, a->values.at, b->values.at, a->values.n);
    return block_same(p, &a->body, &b->body) && trivia_same(p, &a->trivia, &b->trivia);
}

static bool program_same(pair *p, ds_program *const *pa, ds_program *const *pb) {
    const ds_program *a = *pa, *b = *pb;
    SAME(text(a->name, b->name) && a->n_ranks == b->n_ranks);
    SAME_ARRAY(func_same, a->ranks, b->ranks, a->n_ranks);
    return trivia_same(p, &a->trivia, &b->trivia) && trivia_same(p, &a->dangling, &b->dangling);
}

/* ---- declarations ---- */

static bool import_same(pair *p, const ds_import *a, const ds_import *b) {
    SAME(text(a->path, b->path) && text(a->alias, b->alias) && a->n_with == b->n_with);
    SAME_ARRAY(attr_same, a->with, b->with, a->n_with);
    return trivia_same(p, &a->trivia, &b->trivia);
}

static bool param_same(pair *p, const ds_param *a, const ds_param *b) {
    SAME(text(a->name, b->name) && a->group == b->group);
    return expr_same(p, &a->init, &b->init) && trivia_same(p, &a->trivia, &b->trivia);
}

static bool axis_same(pair *p, const ds_axis_decl *a, const ds_axis_decl *b) {
    SAME(text(a->name, b->name));
    return trivia_same(p, &a->trivia, &b->trivia);
}

static bool node_same(pair *p, const ds_node_decl *a, const ds_node_decl *b) {
    SAME(a->kind == b->kind && text(a->name, b->name) && text(a->type_name, b->type_name));
    SAME(a->group == b->group && a->n_attrs == b->n_attrs);
    SAME_ARRAY(attr_same, a->attrs, b->attrs, a->n_attrs);
    return expr_same(p, &a->count, &b->count) && trivia_same(p, &a->trivia, &b->trivia);
}

static bool quantity_same(pair *p, const ds_quantity *a, const ds_quantity *b) {
    SAME(a->unit == b->unit);
    return expr_same(p, &a->value, &b->value);
}

static bool link_same(pair *p, const ds_link_decl *a, const ds_link_decl *b) {
    SAME(a->n_a == b->n_a && a->n_b == b->n_b && a->duplex == b->duplex);
    SAME(a->n_loops == b->n_loops && a->n_attrs == b->n_attrs);
    SAME_ARRAY(step_same, a->a, b->a, a->n_a);
    SAME_ARRAY(step_same, a->b, b->b, a->n_b);
    SAME_ARRAY(binder_same, a->loops, b->loops, a->n_loops);
    SAME_ARRAY(attr_same, a->attrs, b->attrs, a->n_attrs);
    return quantity_same(p, &a->bandwidth, &b->bandwidth) &&
           quantity_same(p, &a->latency, &b->latency) && expr_same(p, &a->where, &b->where) &&
           trivia_same(p, &a->trivia, &b->trivia);
}

static bool topology_same(pair *p, ds_topology *const *ta, ds_topology *const *tb) {
    const ds_topology *a = *ta, *b = *tb;
    SAME(text(a->name, b->name) && a->nodes.n == b->nodes.n && a->links.n == b->links.n);
    SAME(a->items.n == b->items.n);
    for (uint32_t k = 0; k < a->items.n; k++)
        SAME(a->items.at[k].is_link == b->items.at[k].is_link &&
             a->items.at[k].index == b->items.at[k].index);
    SAME_ARRAY(node_same, a->nodes.at, b->nodes.at, a->nodes.n);
    SAME_ARRAY(link_same, a->links.at, b->links.at, a->links.n);
    return trivia_same(p, &a->trivia, &b->trivia) && trivia_same(p, &a->dangling, &b->dangling);
}

static bool mesh_axis_same(pair *p, const ds_mesh_axis *a, const ds_mesh_axis *b) {
    SAME(text(a->name, b->name));
    return expr_same(p, &a->size, &b->size);
}

static bool mesh_same(pair *p, ds_mesh *const *ma, ds_mesh *const *mb) {
    const ds_mesh *a = *ma, *b = *mb;
    SAME(text(a->name, b->name) && a->kind == b->kind && text(a->base, b->base));
    SAME(a->n_axes == b->n_axes && a->n_order == b->n_order);
    SAME_ARRAY(mesh_axis_same, a->axes, b->axes, a->n_axes);
    SAME_ARRAY(expr_same, a->order, b->order, a->n_order);
    return expr_same(p, &a->pick_lo, &b->pick_lo) && expr_same(p, &a->pick_hi, &b->pick_hi) &&
           trivia_same(p, &a->trivia, &b->trivia);
}

static bool schedule_rank_same(pair *p, const ds_schedule_rank *a, const ds_schedule_rank *b) {
    SAME(a->rank == b->rank && a->n_items == b->n_items);
    for (uint32_t k = 0; k < a->n_items; k++) {
        const ds_schedule_item *x = &a->items[k], *y = &b->items[k];
        SAME(x->kind == y->kind && x->chunk == y->chunk && x->microbatch == y->microbatch &&
             x->with_next == y->with_next);
    }
    return trivia_same(p, &a->trivia, &b->trivia);
}

static bool schedule_same(pair *p, ds_schedule *const *sa, ds_schedule *const *sb) {
    const ds_schedule *a = *sa, *b = *sb;
    SAME(text(a->name, b->name) && a->chunks == b->chunks && a->n_place == b->n_place);
    for (uint32_t k = 0; k < a->n_place; k++)
        SAME(a->place_chunk[k] == b->place_chunk[k] && a->place_stage[k] == b->place_stage[k]);
    SAME(a->n_ranks == b->n_ranks);
    SAME_ARRAY(schedule_rank_same, a->ranks, b->ranks, a->n_ranks);
    return trivia_same(p, &a->trivia, &b->trivia) && trivia_same(p, &a->dangling, &b->dangling);
}

static bool scenario_same(pair *p, const ds_scenario *a, const ds_scenario *b) {
    SAME(a->n_entries == b->n_entries);
    SAME_ARRAY(attr_same, a->entries, b->entries, a->n_entries);
    return trivia_same(p, &a->trivia, &b->trivia) && trivia_same(p, &a->dangling, &b->dangling);
}

static bool degrade_same(pair *p, const ds_degrade *a, const ds_degrade *b) {
    SAME(a->n_a == b->n_a && a->n_b == b->n_b && a->duplex == b->duplex);
    SAME(a->n_loops == b->n_loops && a->n_factors == b->n_factors);
    SAME_ARRAY(step_same, a->a, b->a, a->n_a);
    SAME_ARRAY(step_same, a->b, b->b, a->n_b);
    SAME_ARRAY(binder_same, a->loops, b->loops, a->n_loops);
    SAME_ARRAY(attr_same, a->factors, b->factors, a->n_factors);
    return expr_same(p, &a->where, &b->where) && trivia_same(p, &a->trivia, &b->trivia);
}

static bool sweep_entry_same(pair *p, const ds_sweep_entry *a, const ds_sweep_entry *b) {
    SAME(a->kind == b->kind && a->domain == b->domain && a->unit == b->unit && a->on == b->on);
    SAME(text(a->name, b->name) && a->list.n_items == b->list.n_items);
    SAME(expr_same(p, &a->a, &b->a) && expr_same(p, &a->b, &b->b));
    SAME(expr_same(p, &a->step, &b->step));
    SAME_ARRAY(attr_same, a->list.items, b->list.items, a->list.n_items);
    return trivia_same(p, &a->trivia, &b->trivia);
}

static bool sweep_same(pair *p, const ds_sweep *a, const ds_sweep *b) {
    SAME(a->n_entries == b->n_entries);
    SAME_ARRAY(sweep_entry_same, a->entries, b->entries, a->n_entries);
    return trivia_same(p, &a->trivia, &b->trivia) && trivia_same(p, &a->dangling, &b->dangling);
}

#define SAME_VEC(function, field)                                                                  \
    do {                                                                                           \
        SAME(a->field.n == b->field.n);                                                            \
        SAME_ARRAY(function, a->field.at, b->field.at, a->field.n);                                \
    } while (0)

static bool module_same(pair *p, const ds_module *a, const ds_module *b) {
    SAME(a->version == b->version && a->items.n == b->items.n);
    for (uint32_t k = 0; k < a->items.n; k++)
        SAME(a->items.at[k].kind == b->items.at[k].kind &&
             a->items.at[k].index == b->items.at[k].index);
    SAME_VEC(import_same, imports);
    SAME_VEC(param_same, params);
    SAME_VEC(axis_same, axes);
    SAME_VEC(topology_same, topologies);
    SAME_VEC(mesh_same, meshes);
    SAME_VEC(func_same, funcs);
    SAME_VEC(program_same, programs);
    SAME_VEC(schedule_same, schedules);
    SAME_VEC(scenario_same, scenarios);
    SAME_VEC(degrade_same, degrades);
    SAME_VEC(sweep_same, sweeps);
    return trivia_same(p, &a->trivia, &b->trivia) && trivia_same(p, &a->dangling, &b->dangling);
}

const char *ds_test_module_difference(const ds_module *a, const ds_module *b) {
    pair p = {&a->unit->exprs, &b->unit->exprs, NULL};
    return module_same(&p, a, b) ? NULL : p.difference;
}
