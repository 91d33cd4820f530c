/* Branch and bound over the groups of a deployment, under TAG's rules: local improvement, the
 * optimum, and a certificate that any reader can check (`distsim certify`).
 *
 * A node has decided some groups. Each action of each open group has a bound (ds_tag_bound of the
 * node with that group decided besides), no less than the bound at the node above; an action whose
 * bound is no less than the best makespan needs no bound further down. The node branches on the
 * group whose least bound is the greatest, by rising bounds of the actions. */
#ifndef DS_SEARCH_TAG_BRANCH_H
#define DS_SEARCH_TAG_BRANCH_H

#include "ir/base/str.h"
#include "search/tag/tag.h"

typedef struct ds_tag_branching {
    const ds_tag_problem *problem; /* checked */
    const ds_tag_action *actions;  /* ds_tag_actions */
    uint32_t n_actions;
    uint64_t n_steps; /* at most: bounds and simulations; no deployment is simulated twice */
    uint64_t seed;    /* of new starts */
} ds_tag_branching;

typedef struct ds_tag_branched {
    int64_t us;       /* of the best deployment; INT64_MAX: none that fits was found */
    int64_t lower_us; /* no deployment takes less; INT64_MAX: none fits */
    uint64_t n_simulations, n_bounds;
} ds_tag_branched;

/* Improves action[n_groups], each one of the actions: runs of groups take one action together, then
 * the best choice for each group, each two groups. With half of the steps new starts near the best
 * deployment follow; then sets of three groups and more, until the steps are spent or all groups
 * together have been the set. A deployment that does not fit counts by its missing bytes. lower_us
 * is not set. Deterministic. */
void ds_tag_improve(const ds_tag_branching *what, ds_tag_action *action, ds_tag_branched *out);

/* Branch and bound over all groups, from action[n_groups] on, which becomes the best deployment.
 * Unless the steps end, lower_us is the best makespan. The certificate is appended, if wanted, a
 * line each, cells parted by tabs; actions are numbers of ds_tag_actions:
 *
 *     incumbent  US  a …    the best deployment, an action for each group; or a single -
 *     lower      US         no deployment takes less; -: none fits
 *     a  branch  G          with action a of the group above, one line for each action of group G
 *     a  bound   US         no completion takes less
 *     a  run     US         a deployment, simulated; - if it does not fit
 *     end
 *
 * The first node has no group above, and 0 in place of a. */
void ds_tag_prove(const ds_tag_branching *what, ds_tag_action *action, ds_buf *certificate,
                  ds_tag_branched *out);

/* Checks such lines: each action of each branch occurs once, each bound is no more than
 * ds_tag_bound, each run and the incumbent are simulated again with the stated result, and none of
 * the bounds and runs is below `lower`. n_steps has no meaning here. The check uses no search.
 * Errors: DATA with the line, counted from `first_line`. O(lines · simulation). */
ds_status ds_tag_certify(const ds_tag_branching *what, const char *text, uint64_t first_line,
                         ds_tag_branched *out, ds_error *err);

#endif
