/* Deployments by distsim's own semantics: what `distsim run` would say, in a thousandth of its time.
 *
 * Where TAG mode has events for every GPU, here GPUs of a machine do the same; a machine computes in
 * program order, as the simulator's streams do; tensors move as reshards, gradients meet in buckets,
 * at the prices of sim/coll; and communication shares links max-min. What is left out: other links
 * than those between machines, hosts, and how the passes order communication. So a deployment found
 * here is simulated whole before anybody is told (whole.h). */
#ifndef DS_SEARCH_TAG_DEPLOY_H
#define DS_SEARCH_TAG_DEPLOY_H

#include "search/tag/model.h"

typedef struct ds_tag_fast ds_tag_fast;

/* Prices for a model that is gathered. The model must outlive it. */
ds_status ds_tag_fast_new(const ds_tag_model *model, ds_tag_fast **out, ds_error *err);
void ds_tag_fast_free(ds_tag_fast *fast);

/* The actions of a group: of each set of machines all_reduce with equal shares, and with shares by
 * time where its kinds differ; of each machine `duplicate` and `columns`; the first GPU of each
 * machine alone. */
const ds_tag_action *ds_tag_fast_actions(const ds_tag_fast *fast, uint32_t *n);

typedef struct ds_tag_estimate {
    double us;
    int64_t peak_bytes; /* of the GPU that is nearest to its memory */
    bool fits;
} ds_tag_estimate;

/* choice[n_groups]: numbers of actions. From any thread. O(operations · machines + communication²). */
ds_status ds_tag_fast_estimate(const ds_tag_fast *fast, const uint32_t *choice, ds_arena *arena,
                               ds_tag_estimate *out, ds_error *err);
/* base / us - 1, to the power 1/4 beyond 1, and -1 if it does not fit: as ds_tag_value. */
double ds_tag_fast_value(double base_us, const ds_tag_estimate *estimate);
/* The number of an action of the list. O(actions). */
uint32_t ds_tag_fast_number(const ds_tag_fast *fast, const ds_tag_action *action);
/* Does the action split the base group by columns? */
bool ds_tag_fast_columns(const ds_tag_fast *fast, uint32_t base, uint32_t action);
/* All GPUs with all_reduce: the action to compare with, and its microseconds. */
uint32_t ds_tag_fast_base(const ds_tag_fast *fast, double *us);

#endif
