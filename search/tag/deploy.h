/* The actions of distsim's own semantics: which devices take a group of operations, and how. */
#ifndef DS_SEARCH_TAG_DEPLOY_H
#define DS_SEARCH_TAG_DEPLOY_H

#include "search/tag/model.h"

typedef struct ds_tag_choices {
    const ds_tag_model *model;
    ds_arena arena;
    ds_tag_action *action; /* [n] */
    uint32_t n;
} ds_tag_choices;

/* The actions of a group, of a model that outlives them: of each set of machines all_reduce with
 * equal shares, and with shares by time where its kinds differ; of each machine `duplicate` and
 * `columns`; the first GPU of each machine alone. The first action is all machines with all_reduce,
 * with shares if the batch has no equal ones. DS_ERR_LIMIT beyond 8 machines. O(actions ·
 * operations). */
ds_status ds_tag_choices_new(const ds_tag_model *model, ds_tag_choices **out, ds_error *err);
void ds_tag_choices_free(ds_tag_choices *choices);

/* The number of an action of the list; 0 for another. O(actions). */
uint32_t ds_tag_choices_number(const ds_tag_choices *choices, const ds_tag_action *action);
/* Does the action split the base group by columns? */
bool ds_tag_choices_columns(const ds_tag_choices *choices, uint32_t base, uint32_t action);

#endif
