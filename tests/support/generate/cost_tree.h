/* Small cost_profiles trees in a temporary folder, and databases made from them. */
#ifndef DS_TESTS_COST_TREE_H
#define DS_TESTS_COST_TREE_H

#include "sim/cost/build.h"
#include "sim/cost/cost.h"

typedef struct cost_tree {
    char dir[64]; /* has schema.sql, catalogue/ and profile folders p/ and q/; q/ is empty */
    char db[80];
} cost_tree;

/* A tree with one device, "Box-1" (alias "b1"; 1.5 GiB, 100 GB/s, 10 TFLOP/s in f32, 20 in f16 and
 * bf16), and one profile "P" of it (issue 2.5 us) with no rows yet. */
void cost_tree_init(cost_tree *tree);
void cost_tree_deinit(cost_tree *tree);
/* Replaces one file, e.g. "p/ops.csv". */
void cost_tree_put(const cost_tree *tree, const char *file, const char *text);
/* Builds and loads; fails the test on an error. */
ds_profiles *cost_tree_load(const cost_tree *tree);
/* Builds and expects DS_ERR_DATA with `message`, "DIR" standing for the tree's folder. */
void cost_tree_refused(const cost_tree *tree, const char *message);

/* The database of the committed CSVs, built once a test. */
ds_profiles *cost_tree_load_committed(void);

#endif
