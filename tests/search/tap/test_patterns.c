/* What is known to be best: Megatron's pattern for a block of GPT on 8 devices, or what simulates
 * faster; and a classifier's crossing from data parallelism to columns, in closed form. */
#include "search/pase/costs.h"
#include "search/pase/simulate.h"
#include "search/tap/tap.h"
#include "tests/support/step.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t node_named(const ds_pase_graph *graph, const char *path) {
    for (uint32_t v = 0; v < graph->nodes.n; v++)
        if (strcmp(graph->nodes.at[v].path, path) == 0) return v;
    cr_assert_fail("no '%s'", path);
    return 0;
}

/* How a node is split: "n 8", "-". */
static void expect_split(const ds_pase_graph *graph, const ds_pase_splits *strategy,
                         const char *path, const char *axis, unsigned parts) {
    uint32_t v = node_named(graph, path);
    const ds_pase_node *node = &graph->nodes.at[v];
    for (uint32_t a = 0; a < node->n_axes; a++) {
        unsigned wanted = strcmp(node->axis_name[a], axis) == 0 ? parts : 1;
        cr_expect_eq(strategy[v].of[a], wanted, "%s: %s is split into %d", path, node->axis_name[a],
                     (int)strategy[v].of[a]);
    }
}

/* ---- Megatron ---- */

#define GPT(strategy)                                                                              \
    "dir 1\nimport \"models/gpt.dir\" as m with layers = 8, hidden = 4096, heads = 32, "           \
    "seq = 128, vocab = 50304, batch = 8\nimport \"topologies/dgx-a100.dir\"\n"                    \
    "scenario {\n  model = @m.gpt, on = @dgx_a100\n"                                               \
    "  train { optimizer = adam, dtype = bf16 }\n" strategy "}\n"

static ds_pase_source source_of(const char *text) {
    return (ds_pase_source){
        .path = DS_SOURCE_DIR "/scenarios/gpt.dir", .text = text, .n = strlen(text)};
}

/* Megatron's: columns, then rows, in every feed-forward block; heads in attention. All layers are
 * split alike, though each could have its own splits. */
Test(tap_patterns, megatron) {
    ds_profiles *profiles = NULL;
    ds_pase_model *model = NULL;
    ds_tap_fold *fold = NULL;
    ds_pase_result *r = NULL;
    ds_pase_case c;
    ds_pase_time found, megatron;
    ds_error err = {0};
    ds_pase_source source = source_of(GPT("")),
                   expert = source_of(GPT("  strategy { dp = 1, tp = 8 }\n"));
    cr_assert_eq(ds_profiles_load(DS_BUILD_PROFILES, &profiles, &err), DS_OK, "%s", err.message);
    cr_assert_eq(ds_pase_case_open(&source, &c, &err), DS_OK, "%s", err.message);
    cr_assert_eq(ds_pase_costs_new(&c.binding, c.step, profiles, 8, 1, &model, &err), DS_OK, "%s",
                 err.message);
    model->limits.mesh[0] = 1;
    model->limits.mesh[1] = 8;
    cr_assert_eq(ds_tap_fold_new(c.graph, model, &fold, &err), DS_OK, "%s", err.message);
    cr_assert_eq(ds_tap_search(fold, model, &(ds_pase_options){0}, &r, &err), DS_OK, "%s",
                 err.message);
    cr_expect_eq(fold->runs.at[0].copies, 8);
    for (int l = 0; l < 8; l++) {
        char path[4][32];
        static const char *const ops[] = {"qkv", "core", "fc1", "fc2"};
        static const char *const axes[] = {"n", "g", "n", "k"};
        for (int i = 0; i < 4; i++) {
            snprintf(path[i], sizeof path[i], "layer[%d].%s", l, ops[i]);
            expect_split(c.graph, r->strategy, path[i], axes[i], 8);
        }
    }
    cr_assert_eq(ds_pase_simulate_strategy(&source, profiles,
                                           &(ds_pase_assigned){c.graph, r->strategy, 8, false},
                                           &found, &err),
                 DS_OK, "%s", err.message);
    cr_assert_eq(ds_pase_simulate(&expert, profiles, &megatron, &err), DS_OK, "%s", err.message);
    cr_expect_leq(found.step_ps, megatron.step_ps, "%lld ps, and Megatron's takes %lld",
                  (long long)found.step_ps, (long long)megatron.step_ps);
    ds_pase_result_free(r);
    ds_tap_fold_free(fold);
    model->free(model);
    ds_pase_case_close(&c);
    ds_profiles_free(profiles);
}

/* ---- a classifier of very many classes ---- */

enum { BATCH = 4096, FEATURES = 2048, DEVICES = 8 };

/* ResNet-50 on a mesh of one axis of 8. Under PaSE's formulas, with b examples, k features, n
 * classes and r FLOPs a word,
 *
 *   data parallel   r·2(p-1)/p·nk  reduces the weight's gradient,  2b/p  of the loss
 *   columns         r·2(p-1)/p·bk  reduces the features' gradient, as much again gathers features
 *                                  and scatters their gradient,    2b + 2rb  of the loss
 *
 * and all else is equal, so that columns win from n = 2b + b/(rk) + bp/((p-1)k) on. A split of the
 * sum (k) would be better than either only below b = 2048 = k. */
static double crossing(void) {
    double r = DS_PASE_FLOP_PER_S / (DS_PASE_BYTES_PER_S / 8);
    return 2.0 * BATCH + BATCH / (r * FEATURES) +
           (double)BATCH * DEVICES / ((DEVICES - 1) * (double)FEATURES);
}

static void expect_classifier(int64_t classes) {
    char text[512];
    step_case step;
    ds_pase_graph *graph = NULL;
    ds_tap_fold *fold = NULL;
    ds_pase_result *result = NULL;
    ds_error err = {0};
    snprintf(text, sizeof text,
             "dir 1\nimport \"models/resnet50.dir\" as m with batch = %d, classes = %d\n"
             "scenario { model = @m.resnet50, train { optimizer = sgd } }\n",
             BATCH, (int)classes);
    step_make(&step, text, NULL, DS_PASS_LOWER);
    cr_assert_eq(step.status, DS_OK, "%s", step.err.message);
    cr_assert_eq(ds_pase_graph_read(step.step, &graph, &err), DS_OK, "%s", err.message);
    ds_pase_model *model =
        ds_pase_formulas_new(DEVICES, 4, DS_PASE_FLOP_PER_S, DS_PASE_BYTES_PER_S);
    model->limits.mesh[0] = 1;
    model->limits.mesh[1] = DEVICES;
    cr_assert_eq(ds_tap_fold_new(graph, model, &fold, &err), DS_OK, "%s", err.message);
    cr_assert_eq(ds_tap_search(fold, model, &(ds_pase_options){0}, &result, &err), DS_OK, "%s",
                 err.message);
    bool columns = (double)classes > crossing();
    expect_split(graph, result->strategy, "net.fc", columns ? "n" : "_0", DEVICES);
    expect_split(graph, result->strategy, "net.loss", columns ? "v" : "_0", DEVICES);
    expect_split(graph, result->strategy, "net.features", "a", DEVICES); /* examples: all else */
    cr_expect_gt(fold->runs.n, 0);
    ds_pase_result_free(result);
    ds_tap_fold_free(fold);
    model->free(model);
    ds_pase_graph_free(graph);
    step_free(&step);
}

Test(tap_patterns, classes) {
    cr_expect_float_eq(crossing(), 8194.2861, 1e-4);
    static const int64_t classes[] = {1000, 4096, 8192, 8200, 16384, 100000, 400000};
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) expect_classifier(classes[i]);
}
