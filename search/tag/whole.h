/* Deployments as strategies of the language, and whole simulations of them. */
#ifndef DS_SEARCH_TAG_WHOLE_H
#define DS_SEARCH_TAG_WHOLE_H

#include "search/tag/deploy.h"

/* Writes a deployment, action[n_groups], into the scenario of a loaded unit, which is `source` of the
 * model: meshes, the strategy's degree dp, a group for each action, overrides for columns. Appends
 * the module's text. bucket_size of the strategy stays. */
void ds_tag_write(ds_unit *unit, const ds_tag_model *model, const ds_tag_fast *fast,
                  const uint32_t *choice, ds_buf *text);

typedef struct ds_tag_whole ds_tag_whole;
/* Simulates deployments and remembers them. Everything must outlive it. */
ds_tag_whole *ds_tag_whole_new(const ds_pase_source *source, const ds_profiles *profiles,
                               const ds_tag_model *model, const ds_tag_fast *fast);
void ds_tag_whole_free(ds_tag_whole *whole);

typedef struct ds_tag_simulated {
    int64_t step_ps; /* INT64_MAX: refused, for the reason of the status */
    int64_t peak_bytes;
    bool fits;
    ds_status status;
} ds_tag_simulated;

/* The scenario with the deployment, simulated as `run` does. Deployments that passes refuse have a
 * status, and are no error. O(a simulation), O(1) if it is known. */
ds_tag_simulated ds_tag_whole_simulate(ds_tag_whole *whole, const uint32_t *choice, ds_error *err);
/* Simulations that were made. */
uint64_t ds_tag_whole_count(const ds_tag_whole *whole);
/* The scenario's text with the deployment. */
ds_status ds_tag_whole_text(const ds_tag_whole *whole, const uint32_t *choice, ds_buf *text,
                            ds_error *err);

#endif
