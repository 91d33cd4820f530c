/* A strategy put into a scenario: per-op overrides, the meshes that they name, as the pass `shard`
 * takes them. */
#ifndef DS_PASE_APPLY_H
#define DS_PASE_APPLY_H

#include "search/pase/align.h"

typedef struct ds_pase_applied {
    uint32_t overrides, meshes;
    uint32_t n_varied;  /* operations in loops whose turns are split differently: the most frequent
                           split, of equals the first turn's, became that of all */
    uint32_t n_reduced; /* operations that lost a split which the op table's rule, or the number of
                           devices, does not allow */
} ds_pase_applied;

/* Is the scenario for all devices of its topology? DS_ERR_UNSUPPORTED where it has jobs, or a mesh
 * that is a part. */
ds_status ds_pase_check_devices(const ds_unit *unit, ds_error *err);

/* Changes the scenario of `unit`, whose model `graph` was read from: `mesh` becomes all devices of
 * its topology, or the first p, as one axis dp, strategy { dp = p, ops { … } } replaces what the
 * strategy said, but bucket_size and microbatches. An operation with splits c_1, c_2, … is done on
 * a view [s0 = c_1, s1 = c_2, …] with what is left, p/Π c, as its last axis; the first split is
 * outermost. The unit is then to be printed and read again: nothing is verified anew. Errors:
 * DS_ERR_VALUE without `on`, or where the topology is aliased. O(nodes²) of a loop's turns. */
ds_status ds_pase_apply(ds_unit *unit, const ds_pase_graph *graph, const ds_pase_splits *strategy,
                        int64_t devices, ds_pase_applied *out, ds_error *err);
/* The same with splits nested otherwise (ds_pase_align): per node, outermost first. */
ds_status ds_pase_apply_nested(ds_unit *unit, const ds_pase_graph *graph,
                               const ds_pase_splits *strategy, const ds_pase_nesting *nesting,
                               int64_t devices, ds_pase_applied *out, ds_error *err);

/* What the scenario's strategy says beside how the model is split, and that stays, behind the items
 * of `strategy`, which has room for them: how gradients are sent, and how much of the batch is done
 * at a time, which the costs count. */
#define DS_PASE_KEPT_KNOBS 2u
void ds_pase_keep_knobs(const ds_unit *unit, ds_attr *strategy);

#endif
