/* A training step of the language as a problem of TAG: what a deployment may move, and what every
 * part of it costs.
 *
 * The passes make the step of the scenario's model with dp over all devices of its topology, and the
 * simulator's plan prices it: bytes and durations are those of `distsim run`, on every kind of
 * device. So results that the passes split over dp have samples, results that the step reduces are
 * sums, and all others are whole. */
#ifndef DS_SEARCH_TAG_MODEL_H
#define DS_SEARCH_TAG_MODEL_H

#include "search/pase/simulate.h"
#include "search/tag/puct.h"
#include "sim/topo/topo.h"

#define DS_TAG_MAX_POINTS 24u

typedef struct ds_tag_base {
    const char *name;   /* of the forward operation, as patterns of a strategy have it */
    const char *column; /* the factor of its result's last dim (of images: channels), which tensor
                           parallelism splits; NULL: it has none */
    int64_t n_columns;
    bool ends_another; /* another name ends with this one: a pattern says the model's name before */
} ds_tag_base;

typedef struct ds_tag_model {
    ds_arena arena;
    /* Checked. A base group holds a forward operation, all turns of it, with its backward
     * operations, weights and updates; group = base group until ds_tag_model_gather. Every quirk is
     * off. */
    ds_tag_problem problem;
    uint32_t n_base;
    ds_tag_base *base;    /* [n_base] */
    uint32_t *base_of;    /* [operation] */
    uint32_t *group_of;   /* [n_base] */
    uint32_t *device;     /* [GPU]: number in the topology */
    const char **kind;    /* [kind of GPU]: name in the catalogue */
    const char **machine; /* [machine]: path of its first device */
    const char *topology;
    bool has_groups; /* the scenario's strategy has some (ds_tag_whole_start) */
} ds_tag_model;

/* Reads the scenario of `source`. The model's samples must follow a param `batch` of the root
 * module: the step is priced at several batches. Machines are devices of one island and one kind,
 * numbered one after the other. Bandwidths are those of the slowest link between the first devices
 * of two machines. Errors: those of loading, verifying, passes and plans; UNSUPPORTED for a
 * scenario with a `program`, `mesh`, `jobs` or several microbatches, or without training. O(points ·
 * plan). */
ds_status ds_tag_model_read(const ds_pase_source *source, const ds_profiles *profiles,
                            ds_tag_model **out, ds_error *err);
void ds_tag_model_free(ds_tag_model *model);

/* Gathers the base groups into at most `n_wanted` groups (ds_tag_gather). */
void ds_tag_model_gather(ds_tag_model *model, uint32_t n_wanted);

#endif
