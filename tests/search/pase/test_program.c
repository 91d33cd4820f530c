/* What the search finds, as a program: sharded over the views that its overrides name, the step is
 * still the same step, executed on real numbers. And a folded graph: its best is the best of the
 * strategies that split all turns alike. */
#include "ir/lang/lang.h"
#include "search/pase/apply.h"
#include "search/pase/costs.h"
#include "tests/support/prove.h"
#include "tests/support/step.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Links so fast that even small models are worth splitting. */
#define BOX                                                                                        \
    "topology @box {\n  device gpu[4] : \"A100-SXM4-80GB\"\n  switch s\n"                          \
    "  link gpu[i] -- s : 1000000 GB/s, 1 ps for i in 0..4\n}\n"

/* Models and what makes them small. */
static const char *const models[][2] = {
    {"import \"models/mlp.dir\" as m with layers = 3, width = 8, batch = 8",
     "model = @m.mlp, train { loss = mse, optimizer = sgd, keep_gradients = true }"},
    {"import \"models/alexnet.dir\" as m with batch = 4, image = 63, width = 4, hidden = 16, "
     "classes = 8",
     "model = @m.alexnet, train { optimizer = sgd, keep_gradients = true }"},
    {"import \"models/rnnlm.dir\" as m with batch = 4, seq = 4, vocab = 16, hidden = 8",
     "model = @m.rnnlm, train { optimizer = sgd, keep_gradients = true }"},
    {"import \"models/transformer.dir\" as m with layers = 2, hidden = 16, heads = 4, ffn = 32, "
     "seq = 8, target_seq = 4, vocab = 64, batch = 4, embed_scale = 4.0",
     "model = @m.transformer, train { optimizer = adam, keep_gradients = true }"},
    {"import \"models/llama.dir\" as m with layers = 2, hidden = 16, heads = 4, kv_heads = 2, "
     "ffn = 32, seq = 8, vocab = 64, batch = 4",
     "model = @m.llama, train { optimizer = sgd, keep_gradients = true }"},
    {"import \"models/mixtral.dir\" as m with layers = 2, hidden = 16, heads = 4, kv_heads = 2, "
     "ffn = 32, experts = 4, chunks = 2, seq = 8, vocab = 64, batch = 4",
     "model = @m.mixtral, train { optimizer = sgd, keep_gradients = true }"},
    {"import \"models/bert.dir\" as m with layers = 2, hidden = 16, heads = 4, seq = 8, vocab = "
     "64, "
     "batch = 4",
     "model = @m.bert, train { optimizer = sgd, keep_gradients = true }"},
    {"import \"models/t5.dir\" as m with layers = 2, hidden = 16, heads = 4, head_dim = 8, "
     "ffn = 32, seq = 8, target_seq = 6, vocab = 64, batch = 4, head_scale = 0.25",
     "model = @m.t5, train { optimizer = sgd, keep_gradients = true }"},
    {"import \"models/resnet50.dir\" as m with batch = 4, image = 64, width = 2, classes = 8, "
     "bn_groups = 4",
     "model = @m.resnet50, train { optimizer = sgd, keep_gradients = true }"},
    {"import \"models/gpt.dir\" as m with layers = 2, hidden = 16, heads = 4, seq = 8, vocab = 64, "
     "batch = 4",
     "model = @m.gpt, train { optimizer = adam, dtype = bf16, keep_gradients = true }"},
};
enum { N_MODELS = sizeof models / sizeof *models };

typedef struct found {
    step_case step;
    ds_pase_graph *graph, *folded;
    ds_pase_model *model;
    ds_pase_result *result;
} found;

static void scenario_text(int i, char *text, size_t size) {
    snprintf(text, size, "dir 1\n%s\n" BOX "scenario {\n  on = @box, %s\n}\n", models[i][0],
             models[i][1]);
}

/* With PaSE's formulas, or with the simulator's costs. */
static void find(int i, const ds_profiles *profiles, found *f) {
    char text[4096];
    ds_error err = {0};
    scenario_text(i, text, sizeof text);
    step_make(&f->step, text, NULL, DS_PASS_LOWER);
    cr_assert_eq(f->step.status, DS_OK, "%s", f->step.err.message);
    cr_assert_eq(ds_pase_graph_read(f->step.step, &f->graph, &err), DS_OK, "%s", err.message);
    f->folded = ds_pase_graph_fold(f->graph);
    if (profiles)
        cr_assert_eq(
            ds_pase_costs_new(&f->step.binding, f->step.step, profiles, 4, 1, &f->model, &err),
            DS_OK, "%s", err.message);
    else
        f->model = ds_pase_formulas_new(4, 1, DS_PASE_FLOP_PER_S, 1e17);
    cr_assert_eq(ds_pase_search(f->folded, f->model, &(ds_pase_options){0}, &f->result, &err),
                 DS_OK, "%s", err.message);
}

static void found_free(found *f) {
    ds_pase_result_free(f->result);
    f->model->free(f->model);
    ds_pase_graph_free(f->folded);
    ds_pase_graph_free(f->graph);
    step_free(&f->step);
}

static void expect_program(int i, const ds_profiles *profiles) {
    char text[4096];
    found f;
    step_case plain;
    ds_pase_applied applied;
    ds_error err = {0};
    ds_buf printed = {0};
    proof p;
    proof_options options = {.seed = 1};
    find(i, profiles, &f);
    scenario_text(i, text, sizeof text);
    step_make(&plain, text, NULL, DS_PASS_LOWER);
    cr_assert_eq(ds_pase_apply(plain.source, f.folded, f.result->strategy, 4, &applied, &err),
                 DS_OK, "%s", err.message);
    ds_print_module(plain.source->modules.at[0], &printed);
    prove(printed.text, &options, &p);
    cr_expect_eq(p.verdict, PROOF_EQUAL, "%s: %s: %s\n%s", models[i][0],
                 proof_verdict_name(p.verdict), p.what, printed.text);
    cr_expect_eq(applied.n_varied, 0);
    cr_expect_gt(p.communications, 0, "%s: nothing is split", models[i][0]);
    ds_buf_deinit(&printed);
    step_free(&plain);
    found_free(&f);
}

Test(pase_program, published_formulas) {
    for (int i = 0; i < N_MODELS; i++) expect_program(i, NULL);
}

Test(pase_program, simulated_costs) {
    ds_profiles *profiles = NULL;
    ds_error err = {0};
    cr_assert_eq(ds_profiles_load(DS_BUILD_PROFILES, &profiles, &err), DS_OK, "%s", err.message);
    for (int i = 0; i < N_MODELS; i++) expect_program(i, profiles);
    ds_profiles_free(profiles);
}

static void expect_equal(int i, const found *f, const ds_pase_splits *splits, bool aligned,
                         const char *what) {
    char text[4096];
    step_case plain;
    ds_pase_applied applied;
    ds_error err = {0};
    ds_buf printed = {0};
    proof p;
    proof_options options = {.seed = 1};
    ds_pase_nesting *nesting = calloc(f->folded->nodes.n, sizeof *nesting);
    ds_pase_align(f->folded, splits, 4, nesting);
    scenario_text(i, text, sizeof text);
    step_make(&plain, text, NULL, DS_PASS_LOWER);
    cr_assert_eq(ds_pase_apply_nested(plain.source, f->folded, splits, aligned ? nesting : NULL, 4,
                                      &applied, &err),
                 DS_OK, "%s", err.message);
    ds_print_module(plain.source->modules.at[0], &printed);
    prove(printed.text, &options, &p);
    cr_expect_eq(p.verdict, PROOF_EQUAL, "%s: %s: %s: %s\n%s", models[i][0], what,
                 proof_verdict_name(p.verdict), p.what, printed.text);
    ds_buf_deinit(&printed);
    step_free(&plain);
    free(nesting);
}

/* Megatron's pattern as overrides, the words of the loss split with it; and splits nested so that
 * tensors lie alike. */
Test(pase_program, experts_and_nesting) {
    for (int i = 0; i < N_MODELS; i++) {
        found f;
        find(i, NULL, &f);
        ds_pase_limits limits = {.devices = 4, .cutoff = 1, .by_rule = true, .divides = true};
        ds_pase_splits *splits = calloc(f.folded->nodes.n, sizeof *splits);
        ds_pase_expert(f.folded, &limits, 2, splits);
        expect_equal(i, &f, splits, false, "expert");
        expect_equal(i, &f, f.result->strategy, true, "aligned");
        free(splits);
        found_free(&f);
    }
}

/* A product by columns and the next by rows: the second's split of what is summed over lies as the
 * first's columns do, whatever the order of its axes. */
Test(pase_program, nestings_of_a_chain) {
    ds_pase_graph *graph = ds_pase_graph_new();
    ds_pase_node node = {.kind = DS_PASE_GEMM, .path = "op", .pattern = "op", .times = 1};
    node.n_axes = 3;
    for (int a = 0; a < 3; a++) node.size[a] = 64;
    DS_PUSH(&graph->arena, &graph->nodes, node);
    DS_PUSH(&graph->arena, &graph->nodes, node);
    ds_pase_edge edge = {.from = 0, .to = 1, .times = 1, .dtype = DS_F32, .rank = 2};
    edge.size[0] = edge.size[1] = 64;
    edge.from_axis[0] = edge.to_axis[0] = DS_PASE_NO_AXIS;
    edge.from_axis[1] = 1; /* n */
    edge.to_axis[1] = 2;   /* k */
    DS_PUSH(&graph->arena, &graph->edges, edge);
    ds_pase_splits splits[2] = {{{1, 8, 4, 1, 1, 1, 1, 1}}, {{1, 4, 8, 1, 1, 1, 1, 1}}};
    ds_pase_nesting nesting[2];
    ds_pase_align(graph, splits, 32, nesting);
    cr_expect_eq(nesting[0].n, 2);
    cr_expect_eq(nesting[0].axis[0], 1); /* n 8 outermost, at strides of 4 */
    cr_expect_eq(nesting[1].axis[0], 2); /* so is k 8 */
    cr_expect_eq(nesting[1].axis[1], 1);
    ds_pase_graph_free(graph);
}

/* The cost of a folded strategy is that of the same splits in the whole graph, turn by turn, and no
 * less than the best of all. */
Test(pase_program, folding) {
    for (int i = 0; i < N_MODELS; i++) {
        found f;
        ds_pase_result *free_turns = NULL;
        double whole = 0;
        find(i, NULL, &f);
        ds_pase_splits *strategy = calloc(f.graph->nodes.n, sizeof *strategy);
        for (uint32_t v = 0; v < f.graph->nodes.n; v++)
            for (uint32_t u = 0; u < f.folded->nodes.n; u++)
                if (strcmp(f.graph->nodes.at[v].pattern, f.folded->nodes.at[u].pattern) == 0)
                    strategy[v] = f.result->strategy[u];
        cr_assert_eq(ds_pase_cost_of(f.graph, f.model, strategy, &whole, NULL), DS_OK);
        cr_expect_float_eq(whole, f.result->cost, 1e-9 * whole, "%s: %.17g and not %.17g",
                           models[i][0], f.result->cost, whole);
        cr_assert_eq(ds_pase_search(f.graph, f.model, &(ds_pase_options){0}, &free_turns, NULL),
                     DS_OK);
        cr_expect_leq(free_turns->cost, whole * (1 + 1e-12));
        free(strategy);
        ds_pase_result_free(free_turns);
        found_free(&f);
    }
}
