/* Shared by the files of the verifier; not a public header.
 *
 *   verify.c    the order of the phases, and how things are reported
 *   names.c     declarations: duplicates, references, unused and shadowed names
 *   calls.c     the call graph: recursion, and which functions belong to models
 *   topology.c  device graphs: paths, units; counting devices; mesh sizes
 *   program.c   schedules and the ranks of per-rank programs
 *   place.c     places and mesh axes; are two types the same?
 *   types.c     the walk through a function that infers types
 *   call.c      calls: a callee's types as its caller sees them
 *   region.c    for and local
 *   rec.c       rec: the dims of equations, then their types
 *   attrs.c     attributes of what is not in the op table
 *   bound.c     the walk with numbers; bound_region.c through loops, local regions, recs
 *   depends.c   which ops depend on an index
 *   mesh.c      meshes with numbers
 *   scenario.c  the scenario: keys, values, a runnable entry
 *   override.c  the strategy's overrides of single ops
 *   sweep.c     the sweep: what varies, over which values, and its objectives
 *   degrade.c   devices and links that are slower than their topology says */
#ifndef DS_VERIFY_INTERNAL_H
#define DS_VERIFY_INTERNAL_H

#include "ir/lang/library.h"
#include "ir/ops/ops.h"
#include "ir/strategy/scenario.h"
#include "ir/verify/verify.h"

typedef struct ds_checker {
    ds_unit *unit;
    ds_diags *diags;
    const ds_binding *binding; /* NULL: symbolic */
    uint64_t max_turns;        /* with numbers: of a nest of loops, that are all checked */
    ds_map reported;           /* with numbers: places that have a report */
    ds_library_items library;  /* read for the first unknown name */
    bool knows_library;
} ds_checker;

/* ---- reports (verify.c) ---- */

void ds_verify__error(ds_checker *ck, ds_status code, ds_loc loc, const char *hint,
                      const char *format, ...) DS_PRINTF(5, 6);
void ds_verify__warn(ds_checker *ck, ds_loc loc, const char *format, ...) DS_PRINTF(3, 4);
void ds_verify__pass_on(ds_checker *ck, const ds_error *err);

/* Texts for messages, in the diagnostics' arena. */
const char *ds_verify__type_text(ds_checker *ck, const ds_type *type);
const char *ds_verify__place_text(ds_checker *ck, const ds_place *place);
const char *ds_verify__expr_text(ds_checker *ck, ds_expr e);
/* "did you mean @box?" with the sigil before the name, or NULL. */
const char *ds_verify__hint(ds_checker *ck, const char *sigil, const char *name,
                            const char *const *candidates, uint32_t n);

typedef struct ds_names {
    DS_VEC(const char *) all;
} ds_names;

/* The names of all declarations of a kind that a module sees: names of its own and of imports
 * without an alias, "alias.name" of imports with one; in the diagnostics' arena. */
void ds_verify__visible(ds_checker *ck, const ds_module *module, ds_item_kind kind, ds_names *out);
/* Reports an unknown @name, and suggests a visible name of `kind`. */
void ds_verify__unknown(ds_checker *ck, const ds_module *module, ds_item_kind kind, ds_loc loc,
                        const char *name);

/* ---- phases ---- */

void ds_verify__names(ds_checker *ck, const ds_module *module);
/* Sets every call's callee and every function's is_model; reports cycles. O(functions + calls). */
void ds_verify__calls(ds_checker *ck);
void ds_verify__topology(ds_checker *ck, const ds_topology *topology);
/* Checks the attributes of the topology's links with numbers. */
void ds_verify__link_numbers(ds_checker *ck, const ds_topology *topology);
/* The node at the end of a path; NULL if the path is wrong (then reported). */
const ds_node_decl *ds_verify__path(ds_checker *ck, const ds_topology *topology,
                                    const ds_step *steps, uint32_t n, ds_loc loc);
void ds_verify__schedule(ds_checker *ck, const ds_schedule *schedule);
void ds_verify__program(ds_checker *ck, const ds_program *program);
/* Checks that the peers of an op in a rank's body are ranks of the program. False if anything was
 * reported. */
bool ds_verify__rank_op(ds_checker *ck, const ds_program *program, const ds_func *func,
                        const ds_op *op);
void ds_verify__func(ds_checker *ck, ds_func *func, const ds_program *program);
void ds_verify__scenario(ds_checker *ck, const ds_module *module);
void ds_verify__scenario_bound(ds_checker *ck);
/* Checks a value for the knob. */
void ds_verify__knob_value(ds_checker *ck, const ds_module *module, const ds_knob *knob,
                           const ds_attr *attr);
void ds_verify__sweep(ds_checker *ck, const ds_module *module);
/* Checks a pattern of paths of ops; NULL: nothing to check. */
void ds_verify__pattern(ds_checker *ck, const char *pattern, ds_loc loc);
/* Checks one entry of strategy { ops { … } }. */
void ds_verify__override(ds_checker *ck, const ds_module *module, const ds_attr *attr);
void ds_verify__bound(ds_checker *ck);
/* degrade.c */
void ds_verify__degrades(ds_checker *ck, const ds_module *module);
void ds_verify__degrade_numbers(ds_checker *ck);

/* Checks attributes of a structural op (with env, on numbers) and of a function's argument. */
void ds_verify__op_attrs(ds_checker *ck, const ds_env *env, const ds_op *op);
void ds_verify__arg_attrs(ds_checker *ck, const ds_value_info *arg);
/* Reports an index whose name hides a param of its module. */
void ds_verify__index_name(ds_checker *ck, const ds_module *module, const char *name, ds_loc loc);

/* ---- places and types (place.c) ---- */

/* A place with its declaration. NONE stays NONE: the place where the caller or the scenario runs
 * the function. */
typedef struct ds_resolved {
    ds_place_kind kind;
    const ds_mesh *mesh;         /* MESH of a module */
    const char *param;           /* MESH parameter of the function, else NULL */
    const ds_topology *topology; /* DEVICE */
} ds_resolved;

/* False if the place's name is unknown; nothing is reported. */
bool ds_verify__resolve(const ds_func *func, const ds_place *place, ds_resolved *out);
bool ds_verify__mesh_has_axis(const ds_mesh *mesh, const char *axis);
/* Is the axis fixed by one of the place's coordinates? */
bool ds_verify__is_fixed(const ds_place *place, const char *axis);
/* Checks a place, or a type's axes and place, and reports errors. `what` names the value in
 * messages, e.g. "%x". Returns false if anything was reported. */
bool ds_verify__check_place(ds_checker *ck, const ds_func *func, const ds_place *place, ds_loc loc);
bool ds_verify__check_type(ds_checker *ck, const ds_func *func, const ds_type *type,
                           const char *what, ds_loc loc);
/* A type of `func` as ops see it: in a model without hints (ds_type_plain). */
ds_type *ds_verify__seen(ds_checker *ck, const ds_func *func, const ds_type *type);
bool ds_verify__check_axis(ds_checker *ck, const ds_module *module, const char *axis, ds_loc loc);

/* Compares two places as seen from inside `func`. With an env, numbers decide if symbols cannot. */
ds_tri ds_verify__same_place(ds_checker *ck, const ds_func *func, const ds_env *env,
                             const ds_place *a, const ds_place *b);
/* The type with every expression replaced by its number, for comparison and for messages. */
const ds_type *ds_verify__numbers(ds_checker *ck, const ds_env *env, const ds_type *type);
ds_tri ds_verify__same_expr(ds_checker *ck, const ds_env *env, ds_expr a, ds_expr b);
/* Compares dtype, dims, splits and partials, but no places. */
ds_tri ds_verify__same_tensor(ds_checker *ck, const ds_env *env, const ds_type *a,
                              const ds_type *b);
/* Compares types; a written type without a place takes the found type's place. */
ds_tri ds_verify__same_type(ds_checker *ck, const ds_func *func, const ds_env *env,
                            const ds_type *written, const ds_type *found);
ds_tri ds_verify__same_binders(ds_checker *ck, const ds_env *env, const ds_binder *a, uint32_t n_a,
                               const ds_binder *b, uint32_t n_b);
/* `type` with the names of binders `from` replaced by the names of binders `to`. */
const ds_type *ds_verify__rename(ds_checker *ck, const ds_type *type, const ds_binder *from,
                                 const ds_binder *to, uint32_t n);
/* The type without splits and partials over axes of size 1 on its place: axes that a coordinate
 * fixes, axes that a known mesh lacks, every axis on a single device. */
const ds_type *ds_verify__without_ones(ds_checker *ck, const ds_func *func, const ds_type *type);

/* ---- meshes with numbers (mesh.c) ---- */

#define DS_MAX_FIXED 16

/* A mesh with some coordinates fixed. */
typedef struct ds_bound_mesh {
    bool known;          /* false: the mesh of the caller or the run */
    const ds_mesh *mesh; /* NULL: one device */
    uint32_t n_fixed;
    const char *axis[DS_MAX_FIXED];
    int64_t at[DS_MAX_FIXED];
} ds_bound_mesh;

typedef struct ds_mesh_table {
    ds_checker *ck;
    ds_map sizes;   /* ds_mesh → int64_t* of its axes; 0: wrong, and reported */
    ds_arena arena; /* of the sizes */
} ds_mesh_table;

void ds_verify__meshes_init(ds_mesh_table *t, ds_checker *ck);
void ds_verify__meshes_deinit(ds_mesh_table *t);
/* The size of an axis, 1 if the mesh lacks it or a coordinate fixes it; false if unknown. */
bool ds_verify__size_on(ds_mesh_table *t, const ds_bound_mesh *mesh, const char *axis,
                        int64_t *size);
uint64_t ds_verify__hash_mesh(uint64_t hash, const ds_bound_mesh *mesh);
/* Checks every topology's count and links, and every mesh against its devices. */
void ds_verify__mesh_declarations(ds_mesh_table *t);

/* ---- indices (depends.c) ---- */

typedef struct ds_dependence {
    bool mentions; /* an op of the block depends on the index */
    uint64_t ops;  /* in the block, nested ones included */
} ds_dependence;

void ds_verify__depends(const ds_checker *ck, const ds_func *func, const ds_block *block,
                        const char *name, ds_dependence *out);

/* ---- the walk (types.c) ---- */

typedef struct ds_index_scope {
    const char *name;
    const struct ds_index_scope *up;
} ds_index_scope;

/* A wrong value has a report, so that its readers are silent. */
enum { DS_DEFINED = 1, DS_WRONG = 2 };

typedef struct ds_walker {
    ds_checker *ck;
    ds_func *func;
    const ds_program *program;     /* the program, if the body is a rank; else NULL */
    uint8_t *defined;              /* per value: 0, DS_DEFINED or DS_WRONG */
    bool *wrong_results;           /* per declared result: the type is wrong, and reported */
    const ds_index_scope *indices; /* open loops, innermost first */
    const char **manual;           /* axes of the open local regions */
    uint32_t n_manual;
} ds_walker;

/* "l in 0..4, t in 0..8" of a family. */
const char *ds_verify__binders_text(ds_checker *ck, const ds_value_info *info);
/* A name with its sigil. */
const char *ds_verify__name_text(ds_arena *arena, char sigil, const char *name);
/* "%name" of a value, in the diagnostics' arena. */
const char *ds_verify__value_text(ds_walker *w, ds_value value);
/* Marks the op's results as defined and sets their types: found[i], or the written type if found[i]
 * is NULL; a written type must agree. `who` and `verb` name the finder in messages: "matmul",
 * "gives". */
void ds_verify__set_results(ds_walker *w, const ds_op *op, const ds_type *const *found,
                            const char *who, const char *verb);
void ds_verify__set_type(ds_walker *w, ds_value value, const ds_type *found, ds_loc loc,
                         const char *who, const char *verb);
/* The type of a use, with indices substituted; NULL if unknown or wrong (then reported). A whole
 * family gives its element type and *family; if `family` is NULL, a whole family is an error. */
const ds_type *ds_verify__read(ds_walker *w, const ds_use *use, const ds_value_info **family);
/* The type of a use, without reports or counting of uses, for the walk with numbers. */
const ds_type *ds_verify__element(ds_checker *ck, const ds_func *func, const ds_use *use);
/* Walks a block. Returns its terminator, which must be an `end` in last position, or NULL. */
const ds_op *ds_verify__block(ds_walker *w, const ds_block *block, ds_opcode end);
/* Does the block have a yield or return, even a misplaced one? */
bool ds_verify__has_end(const ds_block *block);
/* Forgets the values that a region defined: no op after the region can name them. */
void ds_verify__leave(ds_walker *w, const ds_op *region);
/* Checks the index names of a family. */
void ds_verify__binders(ds_checker *ck, const ds_func *func, const ds_binder *binders, uint32_t n);
void ds_verify__call(ds_walker *w, ds_op *op);
void ds_verify__for(ds_walker *w, ds_op *op);
void ds_verify__local(ds_walker *w, ds_op *region);
void ds_verify__rec(ds_walker *w, ds_op *rec);
/* One op of a block, but for the block's end. */
void ds_verify__op(ds_walker *w, ds_op *op);

/* call.c: a type, and binders, of op->callee as the caller sees them, with mesh arguments, mesh
 * names and the index argument substituted. */
const ds_type *ds_verify__callee_type(ds_checker *ck, const ds_func *caller, const ds_op *call,
                                      const ds_type *type);
const ds_binder *ds_verify__callee_binders(ds_checker *ck, const ds_op *call,
                                           const ds_binder *binders, uint32_t n);
/* region.c: a carry's type one turn later, and at a given turn. */
const ds_type *ds_verify__carry_next(ds_checker *ck, const ds_op *loop, const ds_type *carry);
const ds_type *ds_verify__carry_at(ds_checker *ck, const ds_op *loop, const ds_type *carry,
                                   ds_expr turn);
/* The size of an axis on a place as an expression; none if only the caller knows it. */
ds_expr ds_verify__axis_size(ds_checker *ck, const ds_func *func, const ds_place *on,
                             const char *axis);
/* The shard type inside a local region over these axes; NULL if an axis has an unknown size. */
const ds_type *ds_verify__shard_type(ds_checker *ck, const ds_func *func, const ds_type *type,
                                     const char *const *axes, uint32_t n_axes);

#endif
