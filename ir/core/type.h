/* Types: dtype[dim@axis, …] partial(axis) on @mesh{axis=coordinate} host. */
#ifndef DS_CORE_TYPE_H
#define DS_CORE_TYPE_H

#include "ir/core/expr.h"

#define DS_MAX_RANK 8

/* X(NAME, text, bits) */
#define DS_DTYPE_MAP(X)                                                                            \
    X(F64, "f64", 64)                                                                              \
    X(F32, "f32", 32)                                                                              \
    X(TF32, "tf32", 32) /* stored as f32, multiplied on tensor cores */                            \
    X(BF16, "bf16", 16)                                                                            \
    X(F16, "f16", 16)                                                                              \
    X(F8E4M3, "f8e4m3", 8)                                                                         \
    X(F8E5M2, "f8e5m2", 8)                                                                         \
    X(F4E2M1, "f4e2m1", 4)                                                                         \
    X(I64, "i64", 64)                                                                              \
    X(I32, "i32", 32)                                                                              \
    X(I16, "i16", 16)                                                                              \
    X(I8, "i8", 8)                                                                                 \
    X(U8, "u8", 8)                                                                                 \
    X(BOOL, "bool", 8)

typedef enum ds_dtype {
#define DS_X(name, text, bits) DS_##name,
    DS_DTYPE_MAP(DS_X)
#undef DS_X
        DS_DTYPE_COUNT
} ds_dtype;

const char *ds_dtype_name(ds_dtype dtype);
uint32_t ds_dtype_bits(ds_dtype dtype);
bool ds_dtype_is_float(ds_dtype dtype);
bool ds_dtype_parse(const char *text, ds_dtype *out);

/* One mesh axis that splits a dim; `sizes` are the uneven shard sizes of d@a[6,6,2,2], n_sizes 0
 * for an even split. */
typedef struct ds_split {
    const char *axis; /* interned */
    ds_expr *sizes;
    uint32_t n_sizes;
} ds_split;

typedef struct ds_dim {
    ds_expr size;     /* global size */
    ds_split *splits; /* major → minor */
    uint32_t n_splits;
} ds_dim;

typedef enum ds_reduction { DS_RED_SUM, DS_RED_MAX } ds_reduction;

typedef struct ds_partial {
    const char *axis; /* interned */
    ds_reduction reduction;
} ds_partial;

/* One step of a path @box.gpu[0].port: a name with an optional index. */
typedef struct ds_step {
    const char *name; /* interned */
    ds_expr index;    /* none: no [..] */
} ds_step;

/* axis = coordinate, as in @m{pp=1} */
typedef struct ds_coord {
    const char *axis;
    ds_expr at;
} ds_coord;

/* Where a value lives. A mesh (module-level or a function's mesh parameter) with some coordinates
 * fixed, or one device of a topology, or (DS_PLACE_NONE) whatever the function's mesh is. */
typedef enum ds_place_kind { DS_PLACE_NONE, DS_PLACE_MESH, DS_PLACE_DEVICE } ds_place_kind;
typedef struct ds_place {
    ds_place_kind kind;
    const char *name; /* interned name of the mesh (MESH) or topology (DEVICE), without '@' */
    ds_coord *coords; /* MESH, in written order */
    uint32_t n_coords;
    ds_step *steps; /* DEVICE */
    uint32_t n_steps;
    ds_loc loc;
} ds_place;

typedef struct ds_type {
    ds_dtype dtype;
    uint32_t rank;
    ds_dim *dims;
    ds_partial *partials;
    uint32_t n_partials;
    ds_place on;
    bool host; /* in the memory of the devices' hosts: there to be reloaded */
} ds_type;

/* Do the two types print the same? Symbolic sizes compare by ds_expr_equal; the tri-state is the
 * weakest of them. Placements compare by name, coordinates and steps. */
ds_tri ds_type_equal(const ds_exprs *exprs, const ds_type *a, const ds_type *b);
ds_tri ds_place_equal(const ds_exprs *exprs, const ds_place *a, const ds_place *b);
/* A copy whose arrays are in `arena`. */
ds_type *ds_type_copy(ds_arena *arena, const ds_type *type);
/* The type without splits, partials and place: dtype, sizes and which memory alone. Returns `type`
 * itself where it has none of them, else a copy in `arena`. O(rank). */
ds_type *ds_type_plain(ds_arena *arena, const ds_type *type);
bool ds_type_is_plain(const ds_type *type);
/* Is the dim split over an axis of that name? False for a dim that the type lacks. */
bool ds_type_is_over(const ds_type *type, uint32_t dim, const char *axis);
/* Substitutes an index in every expression of the type; shares what does not change. */
ds_type *ds_type_subst(ds_exprs *exprs, ds_arena *arena, const ds_type *type, const char *name,
                       ds_expr by);
/* Does the index occur in it, any if the name is NULL? */
bool ds_type_mentions(const ds_exprs *exprs, const ds_type *type, const char *index_name);
/* The same of a place alone: of its coordinates and steps. O(coordinates + steps). */
bool ds_place_mentions(const ds_exprs *exprs, const ds_place *place, const char *index_name);
/* Are all params in the type those of the module with this id? */
bool ds_type_is_of(const ds_exprs *exprs, const ds_type *type, uint32_t module);

void ds_type_print(const ds_exprs *exprs, const ds_type *type, ds_buf *out);
void ds_place_print(const ds_exprs *exprs, const ds_place *place, ds_buf *out);

#endif
