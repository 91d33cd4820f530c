/* Games of the tree search on random clusters: what priors learn from, and what measures them. */
#ifndef DS_TOOLS_TAG_PLAY_H
#define DS_TOOLS_TAG_PLAY_H

#include "search/tag/model.h"

enum { PLAY_MODELS = 6, PLAY_MACHINES = 4 };

typedef struct play_models {
    ds_profiles *profiles;
    ds_tag_model *at[PLAY_MODELS];
} play_models;

/* Inception v3, ResNet-101, VGG-19, Transformer, BERT base and large at batch 48, at most 40 groups,
 * priced at data sheets' peaks on the three kinds of TAG's testbed. From the repository's root. */
ds_status play_models_open(play_models *models, ds_error *err);
void play_models_close(play_models *models);
const char *play_model_name(uint32_t model);

/* A model on a random cluster. */
typedef struct play_game {
    uint32_t model;
    ds_tag_machine machine[PLAY_MACHINES];
    int64_t mb_per_s[PLAY_MACHINES * PLAY_MACHINES];
    ds_tag_problem problem; /* points into the game */
} play_game;

/* What training leaves out. UINT32_MAX: nothing. */
typedef struct play_left {
    uint32_t model, kind;
} play_left;

/* Game number `number` of `seed`: two to four machines of 2, 3, 4, 6 or 8 GPUs of any kind, 8 GPUs
 * in all (`is_test`: nothing is left out, and six games, one a model, have one cluster) or up to
 * 16; 8,000 or 20,000 MB/s inside, 5,000 in a rack and 2,810 between
 * racks. Source: TAG's generator (arXiv:2302.06126, released data.py); machines are at least two,
 * for a single one leaves three actions. assumed: two racks, each machine in either alike. TAG's
 * rules with all quirks but the chain of collectives, under which some deployments never end. */
void play_game_draw(const play_models *models, const play_left *left, uint64_t seed,
                    uint32_t number, bool is_test, play_game *out);

/* Does the game have what is left out? */
bool play_has(const play_game *game, const play_left *left);

/* A tree of one leaf a round; free with ds_tag_tree_free. */
ds_status play_tree(const play_game *game, const ds_tag_prior *prior, ds_tag_tree **out,
                    ds_error *err);

#endif
