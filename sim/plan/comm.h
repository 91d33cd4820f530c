/* Shared by comm*.c. */
#ifndef DS_PLAN_COMM_H
#define DS_PLAN_COMM_H

#include "sim/plan/internal.h"

/* What a communication does, whatever its spelling: the collective, its groups one after another,
 * and in which placements its values lie. */
typedef struct ds_comm_shape {
    ds_opcode op;
    uint32_t *devices; /* n_groups × group_size */
    uint32_t n_groups, group_size;
    uint32_t root_place;       /* placement that holds the roots; DS_NONE: none */
    uint32_t n_images, period; /* of each group (ds_group) */
} ds_comm_shape;

/* turn.c: keeps one of the groups that are images of each other. Refuses the turn if some are not.
 * O(members). */
ds_status ds_plan__turn_groups(ds_builder *b, ds_comm_shape *c);

/* Hash of a group: in its order, or in any. */
uint64_t ds_plan__devices_key(const uint32_t *devices, uint32_t n, bool ordered);

/* Operands or results, and the placement of each. */
typedef struct ds_placed {
    const ds_typed *types;
    uint32_t n;
    const uint32_t *places;
} ds_placed;

/* Bytes of one member's operands or results; 0 where they do not live on the device. */
ds_status ds_plan__member_bytes(ds_builder *b, const ds_site *site, ds_placed values,
                                uint32_t device, int64_t *each, int64_t *total, ds_error *err);

/* The nccl-tests size of a group from what each member holds before and after: the sum of the
 * shards, or the largest buffer. */
ds_status ds_plan__size_of(ds_opcode op, ds_loc loc, const int64_t *in, const int64_t *out,
                           uint32_t n, int64_t *size, ds_error *err);
bool ds_plan__shards_in(ds_opcode op);
bool ds_plan__shards_out(ds_opcode op);

/* Variants of a COMM record whose devices are set: members that receive alike have one. */
ds_status ds_plan__comm_variants(ds_builder *b, const ds_site *site, const uint32_t *out_places,
                                 ds_record *r, ds_error *err);

/* ---- reshard ---- */

/* One collective of a sequence that leads from one sharding to another on the same placement, and
 * the types before and after it. Parts are cut out on the way, which moves nothing. */
typedef struct ds_relayout_step {
    ds_opcode op;
    const char **axes;
    uint32_t n_axes;
    const ds_type *from, *to;
} ds_relayout_step;

typedef struct ds_relayout {
    bool found;
    ds_relayout_step *steps;
    uint32_t n_steps; /* 0: nothing moves */
    bool cuts;        /* parts are cut out on the way */
} ds_relayout;

/* The shortest sequence of all_reduce, reduce_scatter, all_gather and all_to_all; of equally short
 * ones that which moves least (relayout.c). */
void ds_plan__relayout(ds_builder *b, const ds_placement *p, const ds_type *from, const ds_type *to,
                       ds_relayout *out);

/* A reshard that is one collective: says so in *c. One that moves nothing: no groups. Any other:
 * makes the record, and c->op is DS_OP_RESHARD. */
ds_status ds_plan__reshard(ds_builder *b, const ds_site *site, const uint32_t *in_places,
                           const uint32_t *out_places, ds_comm_shape *c, ds_record *r,
                           ds_error *err);

#endif
