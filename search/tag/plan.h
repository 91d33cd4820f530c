/* The search for a deployment of a scenario: tree search and local improvement under the fast
 * evaluator, then whole simulations, which alone decide. */
#ifndef DS_SEARCH_TAG_PLAN_H
#define DS_SEARCH_TAG_PLAN_H

#include "ir/base/json.h"
#include "search/tag/whole.h"

typedef struct ds_tag_plan_options {
    uint32_t n_groups;   /* at most; the step's base groups are gathered */
    uint64_t n_playouts; /* of the tree */
    uint64_t seed;
    uint32_t n_workers; /* of the tree: the result is the same for any number */
    uint32_t n_best;    /* deployments of the tree that are simulated whole */
    uint32_t n_whole;   /* whole simulations at most, for improvements */
    double within; /* 0: off. Of estimates: an improvement that is estimated to take longer than
                           so many times the best deployment's estimate is not simulated */
} ds_tag_plan_options;

/* Whole simulations of every 256th leaf. */
typedef struct ds_tag_check_of_leaves {
    uint32_t n, n_exact, n_near; /* relative errors up to 1e-6, up to 1 % */
    double median, worst;        /* of |estimate / simulated - 1| */
} ds_tag_check_of_leaves;

typedef struct ds_tag_plan {
    ds_tag_model *model;
    ds_tag_fast *fast;
    ds_tag_whole *whole;
    uint32_t *choice;      /* [group]: numbers of actions of the best deployment */
    ds_tag_simulated base; /* all devices with all_reduce, even shares where those are possible */
    ds_tag_simulated best;
    ds_tag_simulated subset; /* the best of all_reduce on one set of machines */
    uint32_t subset_action;
    double tree_us, improved_us; /* estimates: the tree's best, and after local improvement */
    double best_estimate_us;
    uint64_t n_playouts, n_evaluated, n_estimates, n_simulated;
    ds_tag_check_of_leaves check;
} ds_tag_plan;

/* `source` and `profiles` outlive the plan. Errors: those of ds_tag_model_read, of prices, and of a
 * base that no simulation takes. */
ds_status ds_tag_plan_new(const ds_pase_source *source, const ds_profiles *profiles,
                          const ds_tag_plan_options *options, ds_tag_plan **out, ds_error *err);
void ds_tag_plan_free(ds_tag_plan *plan);

/* Times, a line for each run of base groups of one action, how good the estimates are (report.c). */
void ds_tag_plan_print(const ds_tag_plan *plan, ds_buf *out);
/* Members of an open object. */
void ds_tag_plan_put_json(const ds_tag_plan *plan, ds_json *json);
/* "v100 x 4, gtx x 8": the GPUs of an action, by machine. */
void ds_tag_print_devices(const ds_tag_model *model, const ds_tag_action *action, ds_buf *out);

#endif
