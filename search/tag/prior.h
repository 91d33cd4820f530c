/* Priors of the tree search: networks that read a partial deployment and say which action of the
 * next group is worth a visit.
 *
 * Both networks see the same numbers. Times are over ‖t‖, the Euclidean norm of the groups' times;
 * bytes over ‖t‖ · B, B the highest bandwidth; and x / (1 + x) of a number that may be large.
 *
 *     group    time on the mean machine at 1, 1/2, 1/4, 1/8 of the batch; parameters; tensors inside;
 *              way taken (3); time and idleness in the simulation of the partial deployment;
 *              decided, being decided                                                         13
 *     machine  GPUs, memory, bandwidth inside; share of memory at the peak, utilisation          5
 *     place    group on machine: time at the four batches, is the group there?                  5
 *     tensor   bytes from group to group                                                        1
 *     link     bandwidth from machine to machine                                                1
 *
 * DS_TAG_MLP looks at one action at a time: the group, the way, means of machine and place over the
 * machines taken and over the others. DS_TAG_GAT first passes messages along tensors (both ways),
 * places (both ways) and links in a graph attention network.
 *
 * Source: Zhang et al., arXiv:2302.06126, section 4.2 for features, layers, loss and decoder; Brody,
 * Alon and Yahav, ICLR 2022 for attention of both ends. Widths are smaller than TAG's 256, for a
 * leaf costs a millisecond here. */
#ifndef DS_SEARCH_TAG_PRIOR_H
#define DS_SEARCH_TAG_PRIOR_H

#include "search/nn/nn.h"
#include "search/tag/tag.h"

/* What a network sees of a problem whatever is decided. */
typedef struct ds_tag_view ds_tag_view;

/* In `arena`; problem and actions must outlive the view. O(operations · (points + parents)). */
ds_tag_view *ds_tag_view_new(const ds_tag_problem *problem, const ds_tag_action *actions,
                             uint32_t n_actions, ds_arena *arena);

uint32_t ds_tag_view_n_actions(const ds_tag_view *view);

/* A partial deployment: the groups from `depth` on are open. */
typedef struct ds_tag_state {
    const ds_tag_view *view;
    const ds_tag_action *action;   /* [depth] */
    uint32_t depth;                /* the group being decided */
    const ds_tag_outcome *outcome; /* of its simulation */
} ds_tag_state;

typedef enum ds_tag_prior_kind { DS_TAG_MLP, DS_TAG_GAT, DS_TAG_N_PRIORS } ds_tag_prior_kind;
typedef struct ds_tag_prior ds_tag_prior;

ds_tag_prior *ds_tag_prior_new(ds_tag_prior_kind kind, uint64_t seed);
void ds_tag_prior_free(ds_tag_prior *prior);
ds_nn_params *ds_tag_prior_params(ds_tag_prior *prior);

/* p[n_actions]: probabilities of the actions. Called from several threads. */
void ds_tag_prior_of(const ds_tag_prior *prior, const ds_tag_state *state, ds_arena *scratch,
                     double *p);
/* Adds the gradient of -Σ target log p to the parameters' gradients; the loss. */
double ds_tag_prior_learn(ds_tag_prior *prior, const ds_tag_state *state, const double *target,
                          ds_arena *scratch);

#endif
