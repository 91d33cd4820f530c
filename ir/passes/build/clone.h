/* Copies from one unit into another: expressions, attributes, types, declarations.
 *
 * The copy has one module. A param of any module of the source becomes a param of that module when
 * a copied expression first mentions the param. A param that is computed from other params stays
 * computed if the formula gives the bound value; otherwise the copy has the bound value. A param
 * that only renames another param (`with batch = batch`) becomes that other param. Where a param of
 * another import has taken the name, the copy has the value in place of the param. Topologies,
 * meshes and schedules are copied when a copied text first names them, with everything that they
 * consist of. */
#ifndef DS_PASSES_BUILD_CLONE_H
#define DS_PASSES_BUILD_CLONE_H

#include "ir/base/map.h"
#include "ir/core/ir.h"

typedef struct ds_cloner {
    const ds_binding *source;
    ds_unit *unit;
    ds_module *module;
    ds_map names;    /* of params and indices: interned in `unit` → DS_CLONE_PARAM, _INDEX */
    ds_map exprs[2]; /* source expression → copy; [1]: with `replaced` put in */
    ds_map params;   /* source param → copy's expression */
    ds_map replaced; /* source param → its replacement in the second kind of copies */
    ds_map affected; /* source param computed from replaced params → its value after replacement */
    bool fixed;      /* some affected param was copied as its value */
    uint32_t depth;  /* of params made of params that are being copied */
    ds_map places;   /* source topology, mesh or schedule → the copy's name */
} ds_cloner;

enum { DS_CLONE_PARAM = 1, DS_CLONE_INDEX };

/* A fresh unit with one empty module that has the path of the source's root. */
void ds_clone_init(ds_cloner *c, const ds_binding *source);
/* Frees the maps; the unit stays. */
void ds_clone_deinit(ds_cloner *c);

const char *ds_clone_text(ds_cloner *c, const char *text);
ds_loc ds_clone_loc(ds_cloner *c, ds_loc loc);
/* An unchanged copy. Indices keep their names. O(nodes that were not copied before). */
ds_expr ds_clone_expr(ds_cloner *c, ds_expr e);
/* With the params in `replaced` put in. */
ds_expr ds_clone_expr_replaced(ds_cloner *c, ds_expr e);

/* The key of a param in `params`, `replaced` and `affected`. */
uint64_t ds_clone_param_key(const ds_module *module, uint32_t index);
/* The expression that gives a param its value: an import's `with`, else the initial value. None if
 * the param is bound to another value (--set). */
ds_expr ds_clone_origin(const ds_binding *source, const ds_module *module, uint32_t index);
/* Declares a param; the name is made unique. `init` is over params of the copy. */
ds_expr ds_clone_new_param(ds_cloner *c, const char *name, ds_expr init);
/* A number or text as a literal. */
ds_expr ds_clone_literal(ds_cloner *c, ds_num value);
/* A name for an index: `wanted`, numbered if a param or one of the n open indices has the name. */
const char *ds_clone_index_name(ds_cloner *c, const char *wanted, const char *const *open,
                                uint32_t n);

/* Attributes, with `expr` for their expressions; places that attributes name are copied too.
 * `module` holds the attribute. */
typedef ds_expr (*ds_clone_expr_fn)(void *context, ds_expr e);
void ds_clone_attr(ds_cloner *c, const ds_module *module, const ds_attr *attr,
                   ds_clone_expr_fn expr, void *context, ds_attr *out);
/* Copies dtype, sizes and splits; leaves out places and partials. */
ds_type *ds_clone_type(ds_cloner *c, const ds_type *type, ds_clone_expr_fn expr, void *context);

/* The name in the copy of a topology, mesh or schedule of the source. */
const char *ds_clone_topology(ds_cloner *c, const ds_topology *topology);
const char *ds_clone_mesh(ds_cloner *c, const ds_mesh *mesh);
const char *ds_clone_schedule(ds_cloner *c, const ds_schedule *schedule);
/* `axis` declarations of all modules of the source. */
void ds_clone_axes(ds_cloner *c);
/* The source's degraded devices and links. */
void ds_clone_degrades(ds_cloner *c);

/* The module's items in order (items.c): params that are mentioned, axes, topologies, meshes,
 * schedules, functions, programs, scenario. O(module). */
void ds_clone_order_items(ds_module *module);

#endif
