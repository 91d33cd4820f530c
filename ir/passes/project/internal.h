/* Shared by the files of the project pass; not a public header.
 *
 *   project.c  ranks, arguments, results, scenario; the pass
 *   view.c     expressions, places and boxes as one rank sees them
 *   walk.c     blocks, loops, calls, regions
 *   op.c       ops, and attributes that depend on a shard's position
 *   comm.c     collectives and sends
 *   reshard.c  reshard as a list of collectives and sends */
#ifndef DS_PASSES_PROJECT_INTERNAL_H
#define DS_PASSES_PROJECT_INTERNAL_H

#include "ir/exec/place.h"
#include "ir/passes/build/build.h"
#include "ir/passes/build/clone.h"
#include "ir/passes/project/project.h"

/* The form that a source value has on this rank. */
typedef enum ds_pj_kind {
    DS_PJ_ABSENT, /* the value lives on other ranks */
    DS_PJ_ONE,    /* a value */
    DS_PJ_FAMILY, /* a family with all or the last of the source's binders */
    DS_PJ_MANY    /* a family whose elements differ, one by one: lo .. lo + n of the first binder */
} ds_pj_kind;

typedef struct ds_pj_slot {
    ds_pj_kind kind;
    ds_use use; /* ONE; FAMILY: without indices */
    int64_t lo, n;
    struct ds_pj_slot *items;
} ds_pj_slot;

/* A name that source expressions may mention, and its replacement. The name is a loop's index, a
 * binder, or an axis, replaced by axis_index's coordinate. */
typedef struct ds_pj_index {
    const char *name; /* in the source unit */
    ds_expr to;       /* in the new unit: a literal, or an index of a loop that is kept */
    bool is_axis;
    const struct ds_pj_index *up;
} ds_pj_index;

/* The names of the loops and calls around an op, which name a dropout's mask. */
typedef struct ds_pj_path {
    const char *name;
    ds_expr turn; /* of a loop */
    const struct ds_pj_path *up;
    ds_expr microbatch; /* of a call with this attribute; else none */
} ds_pj_path;

/* An activation of a source function. */
typedef struct ds_pj_frame {
    ds_exec_scope scope;
    ds_pj_slot *slots; /* one a value */
    const ds_pj_index *indices;
    const ds_pj_path *path;
    uint32_t n_manual; /* axes of the open regions */
} ds_pj_frame;

typedef struct ds_projector {
    const ds_binding *source;
    ds_cloner clone;
    ds_unit *unit; /* the new one */
    ds_builder b;
    ds_exec_places places;
    const ds_exec_place *world; /* rank i is its device i */
    const ds_exec_place *here;  /* the place of values that name none */
    bool outside;               /* an error: a value is on a device outside of the world */
    int64_t rank;
    uint64_t device;
    ds_map tags; /* source op → tag */
    ds_map seen; /* places whose devices are all ranks */
    /* Set by an error in a kept loop: the loop's index, if the rank's work differs from turn to
     * turn. The loop is then unrolled. */
    ds_expr unroll;
    DS_VEC(const char *) open; /* indices of the open loops, on the heap */
    ds_project_outputs *outputs;
} ds_projector;

/* The part of its whole tensor that a value is, dim by dim, in expressions of the new unit. */
typedef struct ds_pj_box {
    ds_dtype dtype;
    bool host;
    uint32_t rank;
    ds_expr full[DS_MAX_RANK], lo[DS_MAX_RANK], size[DS_MAX_RANK];
} ds_pj_box;

/* ---- view.c ---- */

/* The expression with params and indices replaced. */
ds_status ds_project__expr(ds_projector *p, const ds_pj_frame *f, ds_expr e, ds_loc loc,
                           ds_expr *out, ds_error *err);
/* The expression's value; if the value depends on the index of a kept loop, that loop must be
 * unrolled. */
ds_status ds_project__int(ds_projector *p, const ds_pj_frame *f, ds_expr e, ds_loc loc,
                          int64_t *out, ds_error *err);
/* The value of a new expression that is a literal. Any other expression depends on the index of a
 * loop, which must be unrolled. */
ds_status ds_project__literal(ds_projector *p, ds_expr e, ds_loc loc, int64_t *out, ds_error *err);
ds_status ds_project__place(ds_projector *p, const ds_pj_frame *f, const ds_place *place,
                            ds_loc loc, const ds_exec_place **out, ds_error *err);
/* The place of a type, and this rank's position in it: UINT32_MAX: none. */
ds_status ds_project__position(ds_projector *p, const ds_pj_frame *f, const ds_type *type,
                               ds_loc loc, const ds_exec_place **place, uint32_t *position,
                               ds_error *err);
/* The device at a position of a place. */
typedef struct ds_pj_member {
    const ds_exec_place *place;
    uint32_t position;
} ds_pj_member;

/* The box that the member holds. */
ds_status ds_project__box(ds_projector *p, const ds_pj_frame *f, const ds_type *type,
                          ds_pj_member member, ds_loc loc, ds_pj_box *out, ds_error *err);
ds_type *ds_project__type_of_box(ds_projector *p, const ds_pj_box *box);
/* The type of the value on this rank; NULL if the value lives on other ranks. */
ds_status ds_project__type(ds_projector *p, const ds_pj_frame *f, const ds_type *type, ds_loc loc,
                           ds_type **out, ds_error *err);
/* The source type of a use. */
const ds_type *ds_project__use_type(const ds_projector *p, const ds_pj_frame *f, const ds_use *use);
/* The rank of a device; -1: none. */
int64_t ds_project__rank_of(const ds_projector *p, uint64_t device);
ds_expr ds_project__fold(ds_projector *p, ds_expr_kind kind, ds_expr a, ds_expr b);
ds_expr ds_project__number(ds_projector *p, int64_t value);

/* ---- walk.c ---- */

/* `results` gets the n operands of yield or return. */
ds_status ds_project__block(ds_projector *p, ds_pj_frame *f, const ds_block *block,
                            ds_pj_slot *results, ds_error *err);
/* Reads a use: a value, or a whole family. */
ds_status ds_project__read(ds_projector *p, const ds_pj_frame *f, const ds_use *use,
                           ds_pj_slot *out, ds_error *err);
/* Reads a use that must be a value of this rank. */
ds_status ds_project__read_one(ds_projector *p, const ds_pj_frame *f, const ds_use *use,
                               ds_use *out, ds_error *err);

/* ---- op.c ---- */

ds_status ds_project__table_op(ds_projector *p, ds_pj_frame *f, const ds_op *op, ds_error *err);
/* A new op of that code with the attributes of a source op. */
ds_status ds_project__new_op(ds_projector *p, const ds_pj_frame *f, const ds_op *like,
                             ds_opcode code, ds_op **out, ds_error *err);
/* Copies attributes with params and indices replaced. */
ds_status ds_project__attrs(ds_projector *p, const ds_pj_frame *f, const ds_attr *attrs, uint32_t n,
                            ds_attr **out, ds_error *err);
void ds_project__drop_attr(ds_op *op, const char *name);
/* "fc1": the name of an op in paths. */
const char *ds_project__own_name(const ds_projector *p, const ds_func *func, const ds_op *op);

/* ---- comm.c, reshard.c ---- */

ds_status ds_project__comm(ds_projector *p, ds_pj_frame *f, const ds_op *op, ds_error *err);
ds_status ds_project__reshard(ds_projector *p, ds_pj_frame *f, const ds_op *op, ds_error *err);
/* The ranks of this rank's group along the axes, in rank order: new expressions in the arena. */
ds_status ds_project__group(ds_projector *p, ds_pj_member self, const char *const *axes,
                            uint32_t n_axes, ds_expr **out, uint32_t *n, ds_error *err);
/* send and recv of one source op have one tag on all ranks. */
ds_status ds_project__send(ds_projector *p, const ds_pj_frame *f, const ds_op *like, ds_use what,
                           int64_t to, ds_error *err);
/* What arrives: from which rank, its name and type. */
typedef struct ds_pj_arrival {
    int64_t from;
    const char *name;
    ds_type *type;
} ds_pj_arrival;

ds_status ds_project__recv(ds_projector *p, const ds_pj_frame *f, const ds_op *like,
                           ds_pj_arrival what, ds_use *out, ds_error *err);
/* The position with the same coordinates by name; axes that the target lacks count as 0. */
uint32_t ds_project__same_coordinates(const ds_exec_place *from, const ds_exec_place *to,
                                      uint32_t position);

#endif
