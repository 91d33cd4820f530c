/* Models of the library, with 4 to 96 layers: folded, they cost what the whole graph does, and the
 * boundary of a block is what crosses it. An imported graph, which has no loops and no names that
 * mean anything. Patterns that are known to be best. */
#include "ir/base/map.h"
#include "ir/import/import.h"
#include "search/pase/costs.h"
#include "search/tap/tap.h"
#include "tests/support/cases.h"
#include "tests/support/generate/onnx_model.h"
#include "tests/support/step.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct opened {
    step_case step;
    ds_pase_graph *graph;
    ds_pase_model *model;
    ds_tap_fold *fold;
} opened;

#define BOX                                                                                        \
    "topology @box {\n  device gpu[8] : \"A100-SXM4-80GB\"\n  switch s\n"                          \
    "  link gpu[i] -- s : 300 GB/s, 235 ns for i in 0..8\n}\n"

/* With PaSE's formulas, or with the simulator's costs; what is not asked for is not there. */
static void open_text(const char *text, int64_t devices, int64_t cutoff,
                      const ds_profiles *profiles, opened *o) {
    ds_error err = {0};
    *o = (opened){0};
    step_make(&o->step, text, NULL, DS_PASS_LOWER);
    cr_assert_eq(o->step.status, DS_OK, "%s\n%s", o->step.err.message, text);
    cr_assert_eq(ds_pase_graph_read(o->step.step, &o->graph, &err), DS_OK, "%s", err.message);
    if (profiles)
        cr_assert_eq(ds_pase_costs_new(&o->step.binding, o->step.step, profiles, devices, cutoff,
                                       &o->model, &err),
                     DS_OK, "%s", err.message);
    else
        o->model = ds_pase_formulas_new(devices, cutoff, DS_PASE_FLOP_PER_S, DS_PASE_BYTES_PER_S);
    cr_assert_eq(ds_tap_fold_new(o->graph, o->model, &o->fold, &err), DS_OK, "%s", err.message);
}

static void close_text(opened *o) {
    ds_tap_fold_free(o->fold);
    o->model->free(o->model);
    ds_pase_graph_free(o->graph);
    step_free(&o->step);
}

static ds_pase_result *tap(const opened *o) {
    ds_pase_result *r = NULL;
    ds_error err = {0};
    cr_assert_eq(ds_tap_search(o->fold, o->model, &(ds_pase_options){0}, &r, &err), DS_OK, "%s",
                 err.message);
    return r;
}

/* The whole graph's best strategy costs the same: the costs of nodes, and of edges, added up in the
 * order of the program, are the same to the last bit. */
static void expect_unfolded(const opened *o, const char *what) {
    ds_pase_result *folded = tap(o), *whole = NULL;
    ds_error err = {0};
    cr_assert_eq(ds_pase_search(o->graph, o->model, &(ds_pase_options){0}, &whole, &err), DS_OK,
                 "%s", err.message);
    cr_expect_eq(folded->node_cost + folded->edge_cost, whole->node_cost + whole->edge_cost,
                 "%s: %.17g and not %.17g", what, folded->node_cost + folded->edge_cost,
                 whole->node_cost + whole->edge_cost);
    cr_expect_eq(folded->fits, whole->fits);
    cr_expect_eq(folded->sizes.edges, whole->sizes.edges);
    ds_pase_result_free(folded);
    ds_pase_result_free(whole);
}

static bool reads(const opened *o, const ds_tap_run *run, const char *path) {
    for (uint32_t i = 0; i < run->n_global; i++)
        if (strcmp(o->graph->nodes.at[run->global[i]].path, path) == 0) return true;
    return false;
}

/* ---- GPT and T5 ---- */

static const int layers[] = {4, 12, 24, 48, 96};
#define DEPTHS (FEW_CASES ? 2 : 5)

static void open_gpt(int n, int64_t devices, const ds_profiles *profiles, opened *o) {
    char text[1024];
    snprintf(text, sizeof text,
             "dir 1\nimport \"models/gpt.dir\" as m with layers = %d, vocab = 50304\n" BOX
             "scenario { model = @m.gpt, on = @box, train { optimizer = adam } }\n",
             n);
    open_text(text, devices, 1, profiles, o);
}

static void open_t5(int n, int64_t devices, const ds_profiles *profiles, opened *o) {
    char text[1024];
    snprintf(text, sizeof text,
             "dir 1\nimport \"models/t5.dir\" as m with layers = %d, hidden = 1024, heads = 16, "
             "ffn = 4096, batch = 16, head_scale = 0.03125\n" BOX
             "scenario { model = @m.t5, on = @box, train { optimizer = sgd } }\n",
             n);
    open_text(text, devices, 1, profiles, o);
}

/* Between two layers of GPT is one tensor; how many nodes are left does not depend on the depth. */
Test(tap_models, gpt) {
    for (int i = 0; i < DEPTHS; i++) {
        opened o;
        open_gpt(layers[i], 8, NULL, &o);
        cr_assert_eq(o.fold->runs.n, 1);
        cr_expect_eq(o.fold->runs.at[0].copies, (uint32_t)layers[i]);
        cr_expect_eq(o.fold->runs.at[0].n_state, 1);
        cr_expect_eq(o.fold->runs.at[0].n_global, 0);
        cr_expect_eq(o.fold->n_unique, 16);
        expect_unfolded(&o, "GPT");
        close_text(&o);
    }
}

/* Every encoder block reads the table of distances; every decoder block the encoder's output, which
 * crosses all boundaries between them, and the masked distances. */
Test(tap_models, t5) {
    for (int i = 0; i < DEPTHS; i++) {
        opened o;
        open_t5(layers[i], 4, NULL, &o);
        cr_assert_eq(o.fold->runs.n, 2);
        const ds_tap_run *encoder = &o.fold->runs.at[0], *decoder = &o.fold->runs.at[1];
        cr_expect_eq(encoder->copies, (uint32_t)layers[i] - 1); /* the first reads an embedding */
        cr_expect_eq(decoder->copies, (uint32_t)layers[i] - 1);
        cr_expect_eq(encoder->n_state, 1);
        cr_expect_eq(decoder->n_state, 1);
        cr_expect_eq(encoder->n_global, 1);
        cr_expect_eq(decoder->n_global, 2);
        cr_expect(reads(&o, encoder, "distance"));
        cr_expect(reads(&o, decoder, "enc_n"));
        cr_expect(reads(&o, decoder, "masked"));
        expect_unfolded(&o, "T5");
        close_text(&o);
    }
}

Test(tap_models, simulated_costs) {
    ds_profiles *profiles = NULL;
    ds_error err = {0};
    cr_assert_eq(ds_profiles_load(DS_BUILD_PROFILES, &profiles, &err), DS_OK, "%s", err.message);
    for (int i = 0; i < (FEW_CASES ? 1 : 3); i++) {
        opened o;
        open_gpt(layers[i], 8, profiles, &o);
        expect_unfolded(&o, "GPT");
        close_text(&o);
        open_t5(layers[i], 4, profiles, &o);
        expect_unfolded(&o, "T5");
        close_text(&o);
    }
    ds_profiles_free(profiles);
}

/* ---- the rest of the library ---- */

typedef struct library {
    const char *file;
    uint32_t runs, unique, nodes;
} library;

/* Inception's blocks that occur twice, ResNet-101's stages, layers of transformers. */
static const library models[] = {
    {"bert", 1, 23, 177},        {"llama", 1, 34, 484},         {"mixtral", 1, 44, 644},
    {"transformer", 2, 64, 180}, {"inception_v3", 2, 198, 224}, {"resnet101", 4, 70, 245},
    {"vgg19", 3, 22, 26},
};

Test(tap_models, library) {
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char text[256];
        opened o;
        snprintf(text, sizeof text,
                 "dir 1\nimport \"models/%s.dir\" as m\n"
                 "scenario { model = @m.%s, train { optimizer = sgd } }\n",
                 models[i].file, models[i].file);
        open_text(text, 4, 4, NULL, &o);
        cr_expect_eq(o.fold->runs.n, models[i].runs, "%s", models[i].file);
        cr_expect_eq(o.fold->n_unique, models[i].unique, "%s", models[i].file);
        cr_expect_eq(o.graph->nodes.n, models[i].nodes, "%s", models[i].file);
        expect_unfolded(&o, models[i].file);
        close_text(&o);
    }
}

/* A block of one operation, 20,000 times: the cost is that of the strategy, turn by turn. */
Test(tap_models, very_deep) {
    opened o;
    double again = 0;
    open_text("dir 1\nimport \"models/mlp.dir\" as m with layers = 20000\n"
              "scenario { model = @m.mlp, train { loss = mse, optimizer = sgd } }\n",
              8, 1, NULL, &o);
    cr_expect_eq(o.fold->n_unique, 3);
    ds_pase_result *r = tap(&o);
    cr_assert_eq(ds_pase_cost_of(o.graph, o.model, r->strategy, &again, NULL), DS_OK);
    cr_expect_float_eq(again, r->cost, 1e-12 * r->cost);
    ds_pase_result_free(r);
    close_text(&o);
}

/* ---- a graph without names ---- */

enum { ONNX_LAYERS = 6 };

static void onnx_layer(onnx_model *m, int *n, char *h) {
    static const char *const nodes[][3] = {{"LayerNormalization", "h norm1", "axis=-1"}, /* 0 */
                                           {"MatMul", "0 wq", ""},
                                           {"MatMul", "0 wk", ""},
                                           {"MatMul", "0 wv", ""},
                                           {"Transpose", "2", "perm=0,2,1"},
                                           {"MatMul", "1 4", ""}, /* 5 */
                                           {"Softmax", "5", "axis=-1"},
                                           {"MatMul", "6 3", ""},
                                           {"MatMul", "7 wo", ""},
                                           {"Add", "h 8", ""},
                                           {"LayerNormalization", "9 norm2", "axis=-1"}, /* 10 */
                                           {"MatMul", "10 w1", ""},
                                           {"Relu", "11", ""},
                                           {"MatMul", "12 w2", ""},
                                           {"Add", "9 13", ""}};
    enum { NODES = sizeof nodes / sizeof *nodes };
    static const char *const weights[][2] = {{"norm1", "32"},  {"wq", "32 32"}, {"wk", "32 32"},
                                             {"wv", "32 32"},  {"wo", "32 32"}, {"norm2", "32"},
                                             {"w1", "32 128"}, {"w2", "128 32"}};
    char names[NODES][16], weight[8][16], in[64];
    for (int w = 0; w < 8; w++) {
        snprintf(weight[w], sizeof *weight, "p%d", (*n)++);
        onnx_tensor(m, weight[w], weights[w][1]);
    }
    for (int i = 0; i < NODES; i++) {
        char words[64], *rest = words;
        snprintf(words, sizeof words, "%s", nodes[i][1]);
        in[0] = 0;
        for (char *word; (word = strtok_r(rest, " ", &rest));) {
            const char *name = *word == 'h' ? h : NULL;
            for (int w = 0; w < 8; w++)
                if (strcmp(word, weights[w][0]) == 0) name = weight[w];
            if (in[0]) strcat(in, " ");
            strcat(in, name ? name : names[atoi(word)]);
        }
        snprintf(names[i], sizeof *names, "t%d", (*n)++);
        onnx_node(m, nodes[i][0], in, names[i], nodes[i][2]);
    }
    strcpy(h, names[NODES - 1]);
}

Test(tap_models, without_names) {
    onnx_model m;
    ds_buf bytes = {0}, text = {0};
    ds_error err = {0};
    opened o;
    int n = 0;
    char h[16] = "x";
    onnx_begin(&m, 17);
    onnx_input(&m, "x", "8 16 32");
    for (int l = 0; l < ONNX_LAYERS; l++) onnx_layer(&m, &n, h);
    onnx_output(&m, h);
    onnx_pack(&m, &bytes);
    cr_assert_eq(ds_import_onnx(bytes.text, bytes.n, &(ds_import_options){0}, &text, &err), DS_OK,
                 "%s", err.message);
    open_text(text.text, 8, 1, NULL, &o);
    cr_assert_eq(o.fold->runs.n, 1, "%s", text.text);
    cr_expect_geq(o.fold->runs.at[0].copies, ONNX_LAYERS - 1);
    cr_expect_eq(o.fold->runs.at[0].period, o.graph->nodes.n / ONNX_LAYERS);
    cr_expect_eq(o.fold->runs.at[0].n_state, 1);
    expect_unfolded(&o, "an imported graph");
    close_text(&o);
    ds_buf_deinit(&bytes);
    ds_buf_deinit(&text);
}
