/* The search for a deployment of a scenario: tree search, then local improvement. Every deployment is
 * simulated whole (whole.h). */
#ifndef DS_SEARCH_TAG_PLAN_H
#define DS_SEARCH_TAG_PLAN_H

#include "ir/base/json.h"
#include "search/tag/whole.h"

typedef struct ds_tag_plan_options {
    uint32_t n_groups;   /* at most; the step's base groups are gathered */
    uint64_t n_playouts; /* of the tree */
    uint64_t seed;
    uint32_t n_workers; /* of the tree: the result is the same for any number */
    uint32_t n_whole;   /* simulations at most, for improvements */
} ds_tag_plan_options;

/* What a found deployment is measured by: one action for all operations. */
typedef enum ds_tag_baseline_id {
    DS_TAG_ALL,    /* all devices with all_reduce, even shares where those are possible */
    DS_TAG_SHARES, /* the same with shares by time; of equal devices none */
    DS_TAG_SUBSET, /* the best of all_reduce on fewer machines, with and without shares */
    DS_TAG_N_BASELINES
} ds_tag_baseline_id;

typedef struct ds_tag_plan {
    ds_tag_model *model;
    ds_tag_choices *choices;
    ds_tag_whole *whole;
    uint32_t *choice; /* [group]: numbers of actions of the best deployment */
    ds_tag_simulated baseline[DS_TAG_N_BASELINES]; /* a status: there is none */
    ds_tag_simulated best;
    double least_us; /* ds_tag_least_us */
    uint64_t n_playouts, n_evaluated, n_simulated;
    uint32_t n_checked; /* leaves simulated from their text as well: one in 256 */
} ds_tag_plan;

/* `source` and `profiles` outlive the plan. Errors: those of ds_tag_model_read, of ds_tag_whole_new,
 * of a data parallelism that no simulation takes; INTERNAL if a deployment's text takes longer or
 * shorter than the search said, which is checked of one leaf in 256 and of the found deployment. */
ds_status ds_tag_plan_new(const ds_pase_source *source, const ds_profiles *profiles,
                          const ds_tag_plan_options *options, ds_tag_plan **out, ds_error *err);
void ds_tag_plan_free(ds_tag_plan *plan);
/* The fastest baseline that fits; DS_TAG_N_BASELINES: none does. */
ds_tag_baseline_id ds_tag_plan_rival(const ds_tag_plan *plan);

/* Microseconds that every deployment computes for at least on some GPU, by prices that are lines
 * between the priced batches (ds_tag_op_us): a lower bound of its step. Transfers and waiting are left
 * out. O(groups · actions · machines) (least.c). */
double ds_tag_least_us(const ds_tag_choices *choices);

/* Times, a line for each run of base groups of one action (report.c). */
void ds_tag_plan_print(const ds_tag_plan *plan, ds_buf *out);
/* Members of an open object. */
void ds_tag_plan_put_json(const ds_tag_plan *plan, ds_json *json);
/* action[n_groups]: a line, or an object of the member `deployment`, for each run. */
void ds_tag_print_runs(const ds_tag_model *model, const ds_tag_action *action, ds_buf *out);
void ds_tag_put_runs(const ds_tag_model *model, const ds_tag_action *action, ds_json *json);

#endif
