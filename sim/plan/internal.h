/* Shared by the files of sim/plan; not a public header. */
#ifndef DS_PLAN_INTERNAL_H
#define DS_PLAN_INTERNAL_H

#include "ir/base/map.h"
#include "sim/plan/plan.h"

/* A function in the context of a call: its mesh parameters bound to placements. */
typedef struct ds_context {
    const ds_func *func;
    uint32_t *mesh_args; /* placement ids, one per mesh parameter */
    uint32_t default_place; /* where values without `on` live */
    uint64_t hash;
} ds_context;

typedef struct ds_builder {
    ds_plan *plan;
    ds_unit *unit;
    const ds_binding *binding;
    const ds_profiles *profiles;
    const ds_plan_options *options;
    const ds_module *root;
    const ds_topology *topology; /* the one topology of the run; NULL until known */
    uint32_t default_place;      /* of the entry; DS_NONE: none stated */
    uint32_t *profiles_used;     /* profile ids of the scenario */
    uint32_t n_profiles_used;
    ds_map placement_index; /* hash → id + 1 */
    ds_map record_index;    /* hash → id */
    DS_VEC(ds_context *) contexts;
} ds_builder;

/* place.c */
ds_status ds_plan__use_topology(ds_builder *b, const ds_topology *topology, ds_loc loc,
                                ds_error *err);
ds_status ds_plan__place(ds_builder *b, const ds_context *ctx, const ds_place *place,
                         const ds_index *indices, uint32_t *out, ds_error *err);
ds_status ds_plan__mesh(ds_builder *b, const ds_mesh *mesh, uint32_t *out, ds_error *err);
uint32_t ds_plan__single(ds_builder *b, uint32_t device);
uint32_t ds_plan__devices_in_order(ds_builder *b);
int64_t ds_plan__axis_size(const ds_placement *p, const char *axis); /* 1 if absent */
/* Splits a placement into groups along `axes` (major → minor): lists of devices, all of one size. */
void ds_plan__groups(ds_builder *b, const ds_placement *p, const char *const *axes, uint32_t n,
                     uint32_t **devices, uint32_t *n_groups, uint32_t *group_size);

/* lower.c */
typedef struct ds_operand_env {
    const ds_type *type; /* element type */
    ds_index *indices;   /* in scope for it */
} ds_operand_env;
/* The record of a table op, call-with-cost or half in this context; cached. */
ds_status ds_plan__record(ds_builder *b, const ds_context *ctx, const ds_op *op,
                          const ds_operand_env *in, const ds_index *indices, uint32_t *out,
                          ds_error *err);
/* The record of an input value of this type. */
ds_status ds_plan__input_record(ds_builder *b, const ds_context *ctx, const ds_func *func,
                                const ds_value_info *value, const ds_index *indices, uint32_t *out,
                                ds_error *err);
uint32_t ds_plan__add_record(ds_builder *b, ds_record *record);
ds_category ds_plan__category(const ds_attr *attrs, uint32_t n, ds_category otherwise);

/* comm.c */
ds_status ds_plan__comm_record(ds_builder *b, const ds_context *ctx, const ds_op *op,
                               const ds_operand_env *in, const ds_index *indices,
                               const uint32_t *in_places, const uint32_t *out_places,
                               ds_record *record, ds_error *err);
ds_status ds_plan__half_record(ds_builder *b, const ds_op *op, const ds_operand_env *in,
                               const ds_index *indices, uint32_t device, int64_t rank,
                               ds_record *record, ds_error *err);
/* Local bytes of a type on the i-th device of a placement. */
ds_status ds_plan__local_shape(ds_builder *b, const ds_type *type, const ds_index *indices,
                               const ds_placement *p, uint32_t device_pos, ds_loc loc,
                               ds_shape *out, ds_error *err);
bool ds_plan__is_uneven(const ds_type *type, const ds_placement *p);

/* walk.c, classes.c, expand.c */
ds_status ds_plan__walk(ds_builder *b, ds_error *err);
ds_status ds_plan__classes(ds_builder *b, ds_error *err);
ds_status ds_plan__expand(ds_builder *b, ds_error *err);

#endif
