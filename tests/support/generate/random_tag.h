/* Random problems of TAG mode (search/tag): small graphs, clusters and deployments with many equal
 * times, so that rules for ties count. */
#ifndef DS_TESTS_RANDOM_TAG_H
#define DS_TESTS_RANDOM_TAG_H

#include "ir/base/rng.h"
#include "search/tag/tag.h"

enum {
    RANDOM_TAG_OPS = 60,
    RANDOM_TAG_GROUPS = 6,
    RANDOM_TAG_MACHINES = 4,
    RANDOM_TAG_GPUS = 8,
    RANDOM_TAG_BATCH = 16,
};

typedef struct random_tag {
    ds_tag_problem problem; /* points into the rest */
    ds_tag_action action[RANDOM_TAG_GROUPS];
    ds_tag_op op[RANDOM_TAG_OPS];
    double us[RANDOM_TAG_OPS][8];
    uint32_t parent[RANDOM_TAG_OPS][3];
    int64_t batch[4], share[RANDOM_TAG_GROUPS][RANDOM_TAG_GPUS];
    ds_tag_machine machine[RANDOM_TAG_MACHINES];
    int64_t mb_per_s[RANDOM_TAG_MACHINES * RANDOM_TAG_MACHINES];
} random_tag;

/* Fills *out, a function of the seed. `is_training`: a gradient is read by updates alone, and no
 * operation reads an update, so that no chain of collectives contradicts the graph. */
void random_tag_make(random_tag *out, uint64_t seed, bool is_training);

/* A step of 8 to 24 operations in groups of about equal size, on three machines of two, four and two
 * GPUs, two kinds: 21 actions under the released quirks. Memory is short in some. */
void random_tag_instance(random_tag *out, uint64_t seed, uint32_t n_groups);

#endif
