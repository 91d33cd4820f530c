/* What the two files of collectives share: the four ways of saying who takes part. */
#ifndef DS_OPS_COLLECTIVE_H
#define DS_OPS_COLLECTIVE_H

#include "ir/ops/internal.h"

typedef enum ds_form {
    DS_FORM_OVER,   /* over (a, b): mesh axes; global types */
    DS_FORM_MANUAL, /* over (a, b) inside a local region over them: shard types */
    DS_FORM_GROUP,  /* group (0, 1): ranks of a per-rank program: local types */
    DS_FORM_ACROSS  /* across: one operand a device, or a mesh slice */
} ds_form;

typedef struct ds_coll {
    const ds_infer *ctx;
    const char *name;
    ds_form form;
    /* Devices in the group: known for GROUP and ACROSS, else if all axis sizes are. */
    int64_t n;
    bool n_known;
    uint32_t dim, dim_to; /* where the op has them */
} ds_coll;

enum { DS_COLL_DIM = 1, DS_COLL_DIM_TO = 2, DS_COLL_TO = 4 };

/* Reads and checks the clauses. `wants`: which of dim, dim -> dim and (for ACROSS) `to` the op has.
 */
ds_status ds_ops__coll(const ds_infer *ctx, unsigned wants, ds_coll *out, ds_error *err);
ds_status ds_ops__same_count(const ds_coll *c, ds_error *err);
/* ACROSS: operands of equal types (but for the size of dim `free_dim`, or none if ≥ rank) on
 * distinct devices, or slices of one shape; dims that move are whole in them. */
ds_status ds_ops__across_operands(const ds_coll *c, uint32_t free_dim, ds_error *err);
/* ACROSS: is the place a slice of the operands' shape? */
ds_status ds_ops__across_place(const ds_coll *c, const ds_place *on, ds_error *err);
/* The mesh of a place; NULL: a device, no place, or a mesh parameter. */
const ds_mesh *ds_ops__mesh_of(const ds_infer *ctx, const ds_place *place);
bool ds_ops__is_fixed(const ds_place *place, const char *axis);
ds_status ds_ops__set_out(const ds_coll *c, uint32_t i, ds_type *type, ds_error *err);
/* A copy of operand i's type. */
ds_type *ds_ops__copy(const ds_coll *c, uint32_t i);

/* partial(a) for every axis of `over` is taken away. */
ds_status ds_ops__drop_partials(const ds_coll *c, uint32_t i, ds_type *type, ds_error *err);
/* The axes of `over` are the minor-most splits of dim d and are taken away, or are appended there.
 */
ds_status ds_ops__drop_splits(const ds_coll *c, uint32_t i, ds_type *type, uint32_t d,
                              ds_error *err);
ds_status ds_ops__add_splits(const ds_coll *c, uint32_t i, ds_type *type, uint32_t d,
                             ds_error *err);
/* Dim d is `n` times as large, or an n-th. A group whose size is not known takes the written type.
 */
ds_status ds_ops__grow(const ds_coll *c, uint32_t i, ds_type *type, uint32_t d, ds_error *err);
ds_status ds_ops__shrink(const ds_coll *c, uint32_t i, ds_type *type, uint32_t d, ds_error *err);
/* The sum over the operands of dim d. */
ds_expr ds_ops__sum_of_dims(const ds_coll *c, uint32_t d);

#endif
