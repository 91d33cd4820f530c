/* PaSE's own cost model on the graphs of its paper: the least costs that its released program
 * finds, to every digit, and the sizes of its tables.
 *
 * Costs, K, M, combinations and the ratio to data parallelism were measured with that program
 * (revision 32aa761, 10 TFLOP/s, 16 GB/s) where it ends in reasonable time, and with an independent
 * programme in C for the rest (ResNet-101 and the Transformer from p = 32 on). Node and edge counts
 * are those of its graphs. Largest breadth-first frontiers: 1, 1, 11, 7, 37. */
#include "ir/lang/lang.h"
#include "ir/verify/verify.h"
#include "search/pase/pase.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct golden {
    const char *cost; /* "%.2f" */
    uint32_t most_configs;
    double combinations;  /* all; 0: not known to the digit */
    double data_parallel; /* its cost over the least; 0: not measured */
} golden;

typedef struct network {
    const char *file;
    int64_t cutoff;
    uint32_t nodes, edges, most_dependent, frontier;
    golden at[5]; /* p = 4, 8, 16, 32, 64 */
} network;

static const network networks[] = {
    {"alexnet",
     4,
     14,
     13,
     1,
     1,
     {{"148215719552.00", 12, 960, 3.90},
      {"97098296512.00", 28, 4009, 6.19},
      {"70320712672.00", 56, 13146, 8.72},
      {"53136349552.00", 100, 35722, 11.65},
      {"41120456048.00", 163, 82077, 15.05}}},
    {"rnnlm",
     1,
     4,
     3,
     1,
     1,
     {{"6866837733376.00", 15, 580, 1.37},
      {"4024963186688.00", 36, 2937, 1.76},
      {"2476066881536.00", 75, 11214, 2.40},
      {"1491938058240.00", 142, 35425, 3.59},
      {"935818633216.00", 249, 96470, 5.41}}},
    {"inception_v3",
     4,
     219,
     253,
     2,
     11,
     {{"986757044608.00", 14, 89943, 1.014},
      {"782140602432.00", 30, 717334, 1.021},
      {"673045949344.00", 57, 0, 1.037},
      {"602425599824.00", 105, 0, 1.074},
      {"553203648656.00", 176, 0, 1.170}}},
    {"resnet101",
     4,
     245,
     277,
     2,
     7,
     {{"1718742247936.00", 15, 0, 1.008},
      {"1425262849920.00", 35, 0, 1.014},
      {"1244493633088.00", 68, 0, 1.047},
      {"1086268826784.00", 117, 0, 0},
      {"881764728352.00", 184, 0, 0}}},
    {"transformer",
     1,
     204,
     256,
     3,
     37,
     {{"2189181321216.00", 22, 0, 1.138},
      {"1421082828800.00", 62, 0, 1.302},
      {"1004992614400.00", 146, 0, 1.522},
      {"727566614528.00", 302, 0, 0},
      {"521017024512.00", 566, 0, 0}}},
};

typedef struct opened {
    ds_unit *unit;
    ds_model_step *step;
    ds_pase_graph *graph;
} opened;

static void open_network(const network *net, opened *o) {
    char path[512];
    snprintf(path, sizeof path, "%s/scenarios/models/pase/%s.dir", DS_SOURCE_DIR, net->file);
    ds_error err = {0};
    ds_diags diags;
    ds_diags_init(&diags);
    ds_binding binding;
    ds_load_options options = {0};
    cr_assert_eq(ds_load_file(path, &options, &o->unit, &err), DS_OK, "%s", err.message);
    cr_assert_eq(ds_verify(o->unit, &diags), DS_OK);
    cr_assert_eq(ds_bind(o->unit, NULL, 0, &binding, &err), DS_OK, "%s", err.message);
    cr_assert_eq(ds_verify_bound(o->unit, &binding, &diags), DS_OK);
    cr_assert_eq(ds_model_step_new(&binding, &o->step, &err), DS_OK, "%s", err.message);
    cr_assert_eq(ds_pase_graph_read(o->step, &o->graph, &err), DS_OK, "%s", err.message);
    ds_diags_deinit(&diags);
}

static void close_network(opened *o) {
    ds_pase_graph_free(o->graph);
    ds_model_step_free(o->step);
    ds_unit_free(o->unit);
}

static void expect_cost(const network *net, const golden *g, double cost, const char *what) {
    char text[64];
    snprintf(text, sizeof text, "%.2f", cost);
    cr_expect_str_eq(text, g->cost, "%s, %s: %s and not %s", net->file, what, text, g->cost);
}

static void expect_data_parallel(const network *net, const golden *g, const opened *o,
                                 ds_pase_model *model, double least) {
    if (g->data_parallel == 0) return;
    ds_pase_splits *strategy = calloc(o->graph->nodes.n, sizeof *strategy);
    double cost = 0;
    ds_pase_data_parallel(o->graph, &model->limits, strategy);
    cr_assert_eq(ds_pase_cost_of(o->graph, model, strategy, &cost, NULL), DS_OK);
    cr_expect_float_eq(cost / least, g->data_parallel, 0.0055, "%s: %.4f and not %.3f", net->file,
                       cost / least, g->data_parallel);
    free(strategy);
}

static void expect_cell(const network *net, const opened *o, int i) {
    const golden *g = &net->at[i];
    ds_error err = {0};
    ds_pase_result *result = NULL;
    ds_pase_model *model =
        ds_pase_formulas_new(4 << i, net->cutoff, DS_PASE_FLOP_PER_S, DS_PASE_BYTES_PER_S);
    cr_assert_eq(ds_pase_search(o->graph, model, &(ds_pase_options){0}, &result, &err), DS_OK, "%s",
                 err.message);
    double again = 0;
    cr_assert_eq(ds_pase_cost_of(o->graph, model, result->strategy, &again, NULL), DS_OK);
    expect_cost(net, g, result->cost, "the programme");
    expect_cost(net, g, again, "the strategy's own cost");
    cr_expect_eq(result->sizes.most_configs, g->most_configs);
    cr_expect_eq(result->sizes.most_dependent, net->most_dependent);
    cr_expect_eq(result->sizes.edges, net->edges);
    if (g->combinations > 0) cr_expect_eq(result->sizes.combinations, g->combinations);
    expect_data_parallel(net, g, o, model, result->cost);
    ds_pase_result_free(result);
    model->free(model);
}

static void expect_network(const network *net, int cells) {
    opened o;
    open_network(net, &o);
    cr_expect_eq(o.graph->nodes.n, net->nodes);
    for (int i = 0; i < cells; i++) expect_cell(net, &o, i);
    uint32_t *order = calloc(o.graph->nodes.n, sizeof *order), most = 0;
    cr_assert_eq(ds_pase_order_of(o.graph, DS_PASE_BREADTH_FIRST, order, NULL), DS_OK);
    ds_pase_frontier(o.graph, order, NULL, &most, NULL);
    cr_expect_eq(most, net->frontier, "%s: %u", net->file, most);
    free(order);
    close_network(&o);
}

Test(pase, alexnet) {
    expect_network(&networks[0], 5);
}

Test(pase, rnnlm) {
    expect_network(&networks[1], 5);
}

Test(pase, inception_v3) {
    expect_network(&networks[2], 5);
}

Test(pase, resnet101) {
    expect_network(&networks[3], 5);
}

Test(pase, transformer) {
    expect_network(&networks[4], 5);
}

/* The paper: 25,200 combinations at most for a node of Inception v3 at p = 8, for breadth-first
 * order 10^14.9 (and 10^10.0 for ResNet-101). */
Test(pase, table_sizes) {
    static const struct {
        int net;
        double digits;
    } cases[] = {{2, 14.9}, {3, 10.0}};
    for (int i = 0; i < 2; i++) {
        const network *net = &networks[cases[i].net];
        opened o;
        open_network(net, &o);
        ds_pase_model *model =
            ds_pase_formulas_new(8, net->cutoff, DS_PASE_FLOP_PER_S, DS_PASE_BYTES_PER_S);
        ds_pase_result *result = NULL;
        cr_assert_eq(ds_pase_search(o.graph, model, &(ds_pase_options){0}, &result, NULL), DS_OK);
        if (i == 0) cr_expect_eq(result->sizes.most_combinations, 25200);
        /* Breadth-first order has no place for its tables, and says so. */
        ds_error err = {0};
        ds_pase_result *wide = NULL;
        ds_pase_options breadth = {.order = DS_PASE_BREADTH_FIRST};
        if (i == 0) {
            cr_expect_eq(ds_pase_search(o.graph, model, &breadth, &wide, &err), DS_ERR_LIMIT);
            cr_expect_null(wide);
        }
        uint32_t n = o.graph->nodes.n, most = 0;
        uint32_t *order = calloc(n, sizeof *order), *configs = calloc(n, sizeof *configs);
        double digits = 0;
        ds_arena arena;
        ds_arena_init(&arena);
        for (uint32_t v = 0; v < n; v++) {
            ds_pase_configs set;
            ds_pase_enumerate(&o.graph->nodes.at[v], &model->limits, &arena, &set, NULL);
            configs[v] = set.n;
        }
        ds_pase_order_of(o.graph, DS_PASE_BREADTH_FIRST, order, NULL);
        ds_pase_frontier(o.graph, order, configs, &most, &digits);
        cr_expect_float_eq(digits, cases[i].digits, 0.06, "%s: 10^%.2f", net->file, digits);
        ds_arena_deinit(&arena);
        free(order);
        free(configs);
        ds_pase_result_free(result);
        model->free(model);
        close_network(&o);
    }
}
