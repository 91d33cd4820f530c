/* Training a prior, and measuring how many playouts the prior saves a search. */
#ifndef DS_TOOLS_TAG_LEARN_H
#define DS_TOOLS_TAG_LEARN_H

#include "tools/tag/play.h"

typedef struct learn_options {
    uint64_t seed;
    uint32_t games, playouts,
        epochs; /* training: games of so many playouts each, epochs over their states */
    play_left left;
} learn_options;

typedef struct learn_report {
    uint32_t n_states;
    uint64_t data_hash;           /* of all states and targets */
    double entropy, uniform_loss; /* means: of the targets; of equal probabilities */
    double loss[DS_TAG_N_PRIORS], cpu_s[DS_TAG_N_PRIORS]; /* means over the last epoch */
} learn_report;

/* Plays games with uniform priors, and both networks learn the shares of playouts of each state that had at least
 * 12: -Σ share log p, Adam with rate 1e-3, batches of 8, norm 5. O(games · playouts · simulation). */
ds_status learn_priors(const play_models *models, const learn_options *options,
                       ds_tag_prior *out[DS_TAG_N_PRIORS], learn_report *report, ds_error *err);

/* Playouts of a search without a prior, and of one with a prior; a playout beyond MEASURE_CAP counts
 * as MEASURE_CAP + 1. Every MEASURE_LONG-th cluster's games are searched to the end with priors too. */
enum { MEASURE_PLAYOUTS = 2000, MEASURE_CAP = 200, MEASURE_LONG = 5, MEASURE_VALUES = 3 };

/* One search: the playouts of the first improvement, and of 95 % of uniform's best value after 2,000
 * playouts; values after 50, 800 and 2,000 playouts, the last two only if `is_long`. */
typedef struct measured_game {
    uint32_t model, first, reach;
    bool is_long;
    double value[MEASURE_VALUES];
} measured_game;

/* The game without a prior, and then with: `uniform` NULL for the first. */
ds_status measure_game(const play_game *game, const ds_tag_prior *prior, bool is_long,
                       const measured_game *uniform, measured_game *out, ds_error *err);
/* Medians of n games, a line a model and one for all; mean values; and the two-sided sign test of
 * `reach` against uniform's. */
void measure_print(const char *name, const measured_game *games, const measured_game *uniform,
                   uint32_t n);

#endif
