/* What parts of a program mention: params and indices, by expressions.
 *
 * A visitor is called for each param and each index (loops', binders', topologies') that stands in
 * an expression, as often as it does; what a param is made from is not looked at. */
#ifndef DS_LANG_MENTIONS_H
#define DS_LANG_MENTIONS_H

#include "ir/core/ir.h"

/* `leaf` is a DS_EXPR_PARAM, whose `i` is module id << 32 | index, or a DS_EXPR_INDEX. */
typedef void (*ds_mention_visit)(void *context, const ds_expr_node *leaf);

/* Each is O(size of what is looked at). */
void ds_mentions_expr(const ds_exprs *exprs, ds_expr e, ds_mention_visit visit, void *context);
void ds_mentions_attrs(const ds_exprs *exprs, const ds_attr *attrs, uint32_t n,
                       ds_mention_visit visit, void *context);
/* Types, attributes, places, uses, loops' bounds; not what is called. */
void ds_mentions_func(const ds_func *func, ds_mention_visit visit, void *context);
/* Everything that says which devices and links there are, and what is left of them: topologies,
 * meshes, `degrade`. */
void ds_mentions_devices(const ds_module *module, ds_mention_visit visit, void *context);

/* `for i in 0..n`, the only loop of a model's body, where n is a param that no other expression of
 * the model mentions, nor of a function that the model calls: with another value of it the model has
 * more layers or fewer, and else is the same. */
typedef struct ds_layer_loop {
    const ds_op *op;
    const ds_module *module;
    uint32_t param;  /* of that module; bound to an integer */
    bool uses_index; /* something in the model mentions an index of the loop's name */
} ds_layer_loop;

/* False: the model has no such loop. O(size of all functions). */
bool ds_find_layer_loop(const ds_binding *binding, const ds_func *model, ds_layer_loop *out);

#endif
