/* Deployments as strategies of the language, and whole simulations of them.
 *
 * One meaning: what a deployment takes is what `distsim run` says of its text, to the picosecond.
 * What deployments have in common is done once: the passes before `shard`, links and routes, the
 * times of transfers. */
#ifndef DS_SEARCH_TAG_WHOLE_H
#define DS_SEARCH_TAG_WHOLE_H

#include "search/tag/deploy.h"

/* Puts a deployment, choice[n_groups], into the scenario of a unit: the strategy's degree dp, a group
 * for each action, overrides for columns. bucket_size of the strategy stays. */
void ds_tag_put(ds_unit *unit, const ds_tag_choices *choices, const uint32_t *choice);
/* Appends the meshes that the deployment needs as text. NULL: those of all actions, and the scenario
 * gets a group on each, so that lowering keeps the meshes. */
void ds_tag_put_meshes(ds_unit *unit, const ds_tag_choices *choices, const uint32_t *choice,
                       ds_buf *text);

typedef struct ds_tag_whole ds_tag_whole;
/* Simulates deployments and remembers them. All that is given must outlive it. Errors: those of
 * loading and of the passes before `shard`. */
ds_status ds_tag_whole_new(const ds_pase_source *source, const ds_profiles *profiles,
                           const ds_tag_choices *choices, ds_tag_whole **out, ds_error *err);
void ds_tag_whole_free(ds_tag_whole *whole);

typedef struct ds_tag_simulated {
    int64_t step_ps; /* INT64_MAX: refused, for the reason of the status */
    int64_t peak_bytes;
    bool fits;
    ds_status status;
} ds_tag_simulated;

/* Deployments that passes refuse have a status, and are no error; `err` says why at the first
 * asking. From any thread. O(shard + plan + tasks), O(1) if it is known. */
ds_tag_simulated ds_tag_whole_simulate(ds_tag_whole *whole, const uint32_t *choice, ds_error *err);
/* The same from the deployment's text, as `distsim run` does it; not remembered. O(a simulation). */
ds_tag_simulated ds_tag_whole_replay(ds_tag_whole *whole, const uint32_t *choice, ds_error *err);
/* choice[n_groups]: what the scenario's own groups say, where there are some; operations of one group
 * of the search that lie apart lie as the first of them, those in no group have action 0. Errors: a
 * group that is no action. O(operations · patterns). */
ds_status ds_tag_whole_start(const ds_tag_whole *whole, uint32_t *choice, bool *is_given,
                             ds_error *err);
/* Deployments that were simulated. */
uint64_t ds_tag_whole_count(const ds_tag_whole *whole);
/* The scenario's text with the deployment. */
ds_status ds_tag_whole_text(const ds_tag_whole *whole, const uint32_t *choice, ds_buf *text,
                            ds_error *err);

#endif
