/* Groups of operations: `strategy { group "stem" { ops = ["stem.*"], on = @fast, by = all_reduce } }`.
 *
 * A group says which operations, on which devices, how the devices share the batch, and how the
 * gradients of the replicas meet. ir/passes/shard/group.c makes layouts of it. */
#ifndef DS_STRATEGY_GROUP_H
#define DS_STRATEGY_GROUP_H

#include "ir/core/ir.h"

/* In the order of the words of the key `by` (knobs.def). */
typedef enum ds_group_way {
    DS_GROUP_ALL_REDUCE, /* a replica on each device, a part of the batch each; gradients are summed */
    DS_GROUP_DUPLICATE, /* every device computes the whole batch */
    DS_GROUP_SPLIT,     /* each operation is whole on one of the devices */
    DS_GROUP_PS,        /* replicas; gradients are summed on one device */
    DS_GROUP_SFB,       /* replicas; gradients from gathered factors */
    DS_N_GROUP_WAYS
} ds_group_way;

typedef struct ds_op_group {
    const char *name;
    ds_loc loc;
    const char **ops; /* patterns of paths (ir/passes/build/path.h) */
    uint32_t n_ops;
    const char *on; /* a mesh; NULL: the strategy's */
    ds_loc on_loc;
    ds_group_way by;
    const int64_t *shares; /* of the batch, one a device; NULL: equal parts */
    uint32_t n_shares;
    bool shares_by_time;
    ds_loc shares_loc;
    bool sends_sums; /* ps: the server sends summed gradients back, and every replica updates */
    bool serial;     /* sfb: factors are chosen by the cost of one bottleneck for all transfers */
} ds_op_group;

/* The word of `by`. */
const char *ds_group_way_word(ds_group_way way);
/* A block of the blocks of all groups of `strategy`, in written order; NULL: none. */
const ds_attr *ds_strategy_groups(ds_unit *unit);
/* Reads a group's block. Errors: evaluation, a text of a wrong kind, a key that is missing. */
ds_status ds_group_read(const ds_binding *binding, const ds_attr *block, ds_op_group *out,
                        ds_error *err);
/* Replaces the shares of the group of that name, which `strategy` has. */
void ds_group_set_shares(ds_unit *unit, const char *name, const int64_t *shares, uint32_t n);
/* Writes the group into `strategy`, where it replaces the group of its name. `on` must be a mesh of
 * the root module. O(entries). */
void ds_group_put(ds_unit *unit, const ds_op_group *group);

#endif
