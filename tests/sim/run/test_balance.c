/* balance = time against all cuts there are, each simulated. */
#include "ir/strategy/scenario.h"
#include "sim/run/balance.h"
#include "tests/support/cases.h"
#include "tests/support/sim.h"
#include "tests/support/step.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CHUNKS 16

/* Sixteen equal layers, and a head of two more. */
static const char HEADED[] = "param layers = 16, width = 512, batch = 1024\n"
                             "func @model(%x: f32[batch@dp, width]) -> f32[batch@dp, width] {\n"
                             "  %y = for l in 0..layers carry (%h = %x) {\n"
                             "    weight %w : f32[width, width]\n"
                             "    %z = matmul(%h, %w)\n"
                             "    yield %z\n"
                             "  }\n"
                             "  weight %u : f32[width, width]\n"
                             "  weight %v : f32[width, width]\n"
                             "  %a = matmul(%y, %u)\n"
                             "  %b = matmul(%a, %v)\n"
                             "  return %b\n"
                             "}\n";

static const char BOX[] = "topology @box {\n"
                          "  device gpu[8] : \"A100-SXM4-80GB\"\n"
                          "  switch sw\n"
                          "  link gpu[i] -- sw : 300 GB/s, 0 us for i in 0..8\n"
                          "}\n";

/* Two kinds of devices: stage 0 and 1 on the faster ones. */
static const char MIXED[] = "topology @box {\n"
                            "  device gpu[2] : \"A100-SXM4-80GB\"\n"
                            "  device old[2] : \"V100-SXM2-32GB\"\n"
                            "  switch sw\n"
                            "  link gpu[i] -- sw : 300 GB/s, 0 us for i in 0..2\n"
                            "  link old[i] -- sw : 300 GB/s, 0 us for i in 0..2\n"
                            "}\n";

#define SGD  "{ loss = mse, optimizer = sgd }"
#define ADAM "{ loss = mse, optimizer = adam }"

/* `model` has @model or imports `name`. */
static void run_on(sim_case *c, const char *model, const char *name, const char *box,
                   const char *train, const char *strategy, const char *settings) {
    char text[4096];
    snprintf(text, sizeof text,
             "dir 1\n%s%sscenario {\n  model = @%s\n  on = @box\n  train %s\n"
             "  strategy { %s }\n}\n",
             model, box, name, train, strategy);
    sim_run_text(c, text, settings, false);
}

static void run(sim_case *c, const char *train, const char *strategy, const char *settings) {
    run_on(c, HEADED, "model", BOX, train, strategy, settings);
}

/* ---- all cuts ---- */

typedef struct cuts {
    sim_case *c;
    int64_t turns[MAX_CHUNKS];
    uint32_t n_chunks, n; /* that were simulated */
    int64_t best_ps, even_ps;
    int64_t best[MAX_CHUNKS];
} cuts;

static void set_layers(ds_unit *unit, const int64_t *turns, uint32_t n) {
    ds_attr list = {.kind = DS_ATTR_LIST, .n_items = n};
    list.items = DS_NEW_N(&unit->arena, ds_attr, n);
    for (uint32_t i = 0; i < n; i++)
        list.items[i] =
            (ds_attr){.kind = DS_ATTR_EXPR, .expr = ds_expr_int(&unit->exprs, turns[i])};
    ds_scenario_set(unit, "strategy", "stage_layers", list);
}

/* Chunks without a weight are refused, and count for nothing. */
static void try_cut(cuts *all) {
    ds_result *result = NULL;
    ds_sim_options options = {0};
    set_layers(all->c->unit, all->turns, all->n_chunks);
    if (ds_simulate(&all->c->binding, all->c->profiles, &options, &result, NULL) != DS_OK) return;
    all->n++;
    if (result->run.step_ps < all->best_ps) {
        all->best_ps = result->run.step_ps;
        memcpy(all->best, all->turns, sizeof all->best);
    }
    ds_result_free(result);
}

static void try_all(cuts *all, uint32_t chunk, int64_t left) {
    if (chunk + 1 == all->n_chunks) {
        all->turns[chunk] = left;
        try_cut(all);
        return;
    }
    for (int64_t n = 0; n <= left; n++) {
        all->turns[chunk] = n;
        try_all(all, chunk + 1, left - n);
    }
}

/* The fastest of all cuts of the scenario that has been run. */
static cuts best_of_all(sim_case *c) {
    const ds_model_step *step = c->result->step;
    cuts all = {.c = c, .n_chunks = step->schedule.n_chunks, .best_ps = INT64_MAX};
    int64_t n = 0;
    for (uint32_t l = 0; l < step->cut.n_loops; l++) n += step->cut.loop_turns[l];
    ds_scenario old = *ds_unit_scenario(c->unit);
    try_all(&all, 0, n);
    ds_scenario_restore(c->unit, &old);
    return all;
}

static void print_cut(const char *what, const int64_t *turns, uint32_t n, int64_t ps) {
    printf("%s", what);
    for (uint32_t i = 0; i < n; i++) printf(" %lld", (long long)turns[i]);
    printf(": %lld ps\n", (long long)ps);
}

/* What was found takes at most `excess` longer than the fastest of all cuts. */
static void expect_near(sim_case *c, const char *what, double excess) {
    cr_assert_eq(c->status, DS_OK, "%s: %s", what, c->err.message);
    cuts all = best_of_all(c);
    int64_t found_ps = c->result->run.step_ps;
    cr_expect(all.n > 1, "%s", what);
    cr_expect(found_ps >= all.best_ps, "%s: it is one of all", what);
    bool near = (double)found_ps <= (1 + excess) * (double)all.best_ps;
    cr_expect(near, "%s", what);
    if (near) return;
    print_cut("found", c->result->step->cut.chunk_turns, all.n_chunks, found_ps);
    print_cut("best", all.best, all.n_chunks, all.best_ps);
}

static void expect_best(const char *train, const char *strategy, const char *settings) {
    sim_case c;
    run(&c, train, strategy, settings);
    expect_near(&c, strategy, 0);
    sim_free(&c);
}

/* ---- the fastest of all ---- */

/* 18 layers' work on 4 stages is 5 layers' on the busiest; the head is two of the last stage's. */
Test(balance, a_head_of_two_layers) {
    if (FEW_CASES) cr_skip_test("hundreds of simulations");
    sim_case c;
    run(&c, SGD, "pp = 4, microbatches = 16, balance = time", NULL);
    expect_near(&c, "1f1b", 0);
    const int64_t *turns = c.result->step->cut.chunk_turns;
    int64_t most = 0, sum = 0;
    for (int s = 0; s < 4; s++) {
        int64_t work = turns[s] + (s == 3 ? 2 : 0);
        if (work > most) most = work;
        sum += turns[s];
    }
    cr_expect_eq(most, 5);
    cr_expect_eq(sum, 16);
    sim_free(&c);
}

Test(balance, schedules_with_one_chunk_a_stage) {
    expect_best(SGD, "pp = 4, microbatches = 8, schedule = \"zb-h1\", balance = time", "layers=8");
    expect_best(ADAM, "pp = 4, microbatches = 8, balance = time", "layers=8");
    expect_best(ADAM, "pp = 4, microbatches = 4, balance = time", "layers=9 width=64");
    expect_best(SGD, "pp = 3, microbatches = 8, balance = time, recompute = full", "layers=8");
}

Test(balance, virtual_stages_and_copies) {
    expect_best(SGD, "pp = 2, microbatches = 4, schedule = \"interleaved\", balance = time",
                "layers=8");
    expect_best(SGD, "pp = 2, microbatches = 4, schedule = \"zb-v\", balance = time", "layers=8");
    expect_best(SGD, "pp = 4, microbatches = 8, schedule = \"chimera\", balance = time",
                "layers=9");
}

Test(balance, beside_data_parallelism) {
    expect_best(SGD, "pp = 2, dp = 2, microbatches = 8, balance = time", NULL);
    expect_best(SGD, "pp = 3, dp = 2, microbatches = 4, balance = time", "layers=10");
    expect_best(SGD, "pp = 3, dp = 2, microbatches = 8, balance = time, zero = 3", "layers=10");
}

/* The timeline lets a stage send when its item ends, not when what is sent is there. */
Test(balance, the_timeline_is_near_where_it_is_not_exact) {
    static const char *const strategies[] = {
        "pp = 4, microbatches = 4, balance = time",
        "pp = 4, microbatches = 8, schedule = \"gpipe\", balance = time",
        "pp = 4, microbatches = 8, schedule = \"dualpipe\", balance = time",
    };
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
        sim_case c;
        run(&c, SGD, strategies[i], "layers=9");
        expect_near(&c, strategies[i], 0.01);
        sim_free(&c);
    }
}

Test(balance, devices_of_two_kinds) {
    sim_case c;
    run_on(&c, HEADED, "model", MIXED, SGD, "pp = 4, microbatches = 8, balance = time",
           "layers=9 width=1024 batch=8192");
    expect_near(&c, "mixed", 0);
    const int64_t *turns = c.result->step->cut.chunk_turns;
    cr_expect(turns[0] > turns[2], "an A100 takes more layers than a V100");
    sim_free(&c);
}

/* A table of words as large as the layers together, which the optimizer reads and writes for as
 * long as a microbatch takes: on the first stage and, for the head, on the last. */
Test(balance, a_long_end) {
    if (FEW_CASES) cr_skip_test("hundreds of simulations");
    static const char model[] = "import \"models/gpt.dir\" as gpt with layers = 12, hidden = 256, "
                                "heads = 4, seq = 256, vocab = 25600, batch = 8\n";
    sim_case c;
    run_on(&c, model, "gpt.gpt", BOX, "{ optimizer = adam, dtype = bf16 }",
           "pp = 3, microbatches = 8, balance = time", NULL);
    expect_near(&c, "gpt", 0);
    sim_free(&c);
}

/* Encoder and decoder: a turn of one takes not as long as one of the other. */
Test(balance, two_loops) {
    if (FEW_CASES) cr_skip_test("hundreds of simulations");
    static const char model[] = "import \"models/t5.dir\" as t5 with layers = 5, hidden = 256, "
                                "heads = 4, ffn = 1024, vocab = 4096, batch = 8\n";
    for (int pp = 2; pp <= 3; pp++) {
        char strategy[64];
        sim_case c;
        snprintf(strategy, sizeof strategy, "pp = %d, microbatches = 8, balance = time", pp);
        run_on(&c, model, "t5.t5", BOX, "{ optimizer = sgd, dtype = bf16 }", strategy, NULL);
        expect_near(&c, strategy, 0);
        sim_free(&c);
    }
}

/* ---- what the scenario is then ---- */

/* The cut is what a run with the same stage_layers says. */
Test(balance, becomes_stage_layers) {
    sim_case c, other;
    run(&c, SGD, "pp = 4, microbatches = 16, balance = time", NULL);
    const ds_attr *layers = ds_scenario_find(c.unit, "strategy", "stage_layers");
    cr_assert_not_null(layers);
    cr_expect_eq(layers->n_items, 4);
    cr_expect_not(ds_balance_wanted(&c.binding), "it has been found");
    cr_expect_eq(c.result->step->strategy.balance, DS_BALANCE_TIME);
    char strategy[128];
    const int64_t *n = c.result->step->cut.chunk_turns;
    snprintf(strategy, sizeof strategy,
             "pp = 4, microbatches = 16, stage_layers = [%lld, %lld, %lld, %lld]", (long long)n[0],
             (long long)n[1], (long long)n[2], (long long)n[3]);
    run(&other, SGD, strategy, NULL);
    cr_expect_eq(other.result->run.step_ps, c.result->run.step_ps);
    sim_free(&other);
    run(&other, SGD, "pp = 4, microbatches = 16", NULL);
    cr_expect(c.result->run.step_ps < other.result->run.step_ps);
    sim_free(&other);
    sim_free(&c);
}

/* Equal layers on every stage are as good as can be: the even cut stays. */
Test(balance, what_is_balanced_stays) {
    static const char model[] =
        "import \"models/mlp.dir\" as mlp with layers = 8, width = 512, batch = 512\n";
    sim_case c;
    run_on(&c, model, "mlp.mlp", BOX, SGD, "pp = 4, microbatches = 8, balance = time", NULL);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    for (int s = 0; s < 4; s++) cr_expect_eq(c.result->step->cut.chunk_turns[s], 2);
    sim_free(&c);
}

/* Without pp > 1 there is nothing to cut; what is given by hand stays. */
Test(balance, is_not_always_wanted) {
    sim_case c;
    run(&c, SGD, "balance = time", NULL);
    cr_expect_eq(c.status, DS_OK, "%s", c.err.message);
    cr_expect_null(ds_scenario_find(c.unit, "strategy", "stage_layers"));
    sim_free(&c);
    run(&c, SGD, "pp = 2, microbatches = 4, balance = time, stage_layers = [4, 12]", NULL);
    cr_expect_eq(c.status, DS_OK, "%s", c.err.message);
    cr_expect_eq(c.result->step->cut.chunk_turns[0], 4);
    sim_free(&c);
}

/* ---- refusals ---- */

static void expect_refusal(sim_case *c, ds_status status, const char *part) {
    cr_expect_eq(c->status, status, "%s: %s", ds_status_name(c->status), c->err.message);
    cr_expect(strstr(c->err.message, part), "%s", c->err.message);
    cr_expect_null(ds_scenario_find(c->unit, "strategy", "stage_layers"));
    const ds_attr *balance = ds_scenario_find(c->unit, "strategy", "balance");
    cr_expect_str_eq(balance->word, "time", "the scenario is as it was");
    sim_free(c);
}

Test(balance, refusals) {
    sim_case c;
    run_on(&c, "import \"models/alexnet.dir\" as net with batch = 4\n", "net.alexnet", BOX,
           "{ optimizer = sgd }", "pp = 2, microbatches = 2, balance = time", NULL);
    expect_refusal(&c, DS_ERR_UNSUPPORTED, "@alexnet has no loops: say balance = flops");
    run(&c, SGD, "pp = 4, microbatches = 8, balance = time", "layers=2");
    expect_refusal(&c, DS_ERR_VALUE, "2 turns of loops are too few for the pipeline's 4 chunks");
    run(&c, SGD, "pp = 16, microbatches = 16, balance = time", NULL);
    cr_expect_neq(c.status, DS_OK, "the box has 8 devices");
    expect_refusal(&c, c.status, "8");
}

/* A pass cannot simulate. */
Test(balance, the_pass_alone_refuses) {
    step_case c;
    char text[4096];
    snprintf(text, sizeof text,
             "dir 1\n%s%sscenario {\n  model = @model\n  on = @box\n  train %s\n"
             "  strategy { pp = 4, balance = time }\n}\n",
             HEADED, BOX, SGD);
    step_make(&c, text, NULL, DS_PASS_STAGE);
    cr_expect_eq(c.status, DS_ERR_UNSUPPORTED);
    cr_expect(strstr(c.err.message, "a pass does not simulate"), "%s", c.err.message);
    step_free(&c);
}

/* ---- advice ---- */

Test(balance, advice_is_what_a_run_says) {
    sim_case c, other;
    ds_sim_options options = {0};
    run(&c, SGD, "pp = 4, microbatches = 16", NULL);
    ds_scenario before = *ds_unit_scenario(c.unit);
    ds_balance_advise(c.result, c.profiles, &options);
    cr_expect_eq(memcmp(&before, ds_unit_scenario(c.unit), sizeof before), 0,
                 "the scenario is as it was");
    run(&other, SGD, "pp = 4, microbatches = 16, balance = time", NULL);
    const ds_faster_cut *cut = c.result->cut;
    cr_assert_not_null(cut);
    cr_expect_eq(cut->stage, 3);
    cr_expect_float_eq(cut->excess, 6 / 4.5 - 1, 0.02, "%g: 6 layers of 4.5", cut->excess);
    cr_expect_eq(cut->step_ps, other.result->run.step_ps);
    for (int s = 0; s < 4; s++) cr_expect_eq(cut->turns[s], other.result->step->cut.chunk_turns[s]);
    ds_balance_advise(other.result, other.profiles, &options);
    cr_expect_null(other.result->cut, "it is found by time");
    sim_free(&other);
    sim_free(&c);
}

/* By hand, the other way round; and where stages are alike within a tenth. */
Test(balance, advice_for_cuts_by_hand) {
    sim_case c;
    ds_sim_options options = {0};
    run(&c, SGD, "pp = 2, microbatches = 8, stage_layers = [13, 3]", NULL);
    ds_balance_advise(c.result, c.profiles, &options);
    cr_assert_not_null(c.result->cut);
    cr_expect_eq(c.result->cut->stage, 0);
    cr_expect_eq(c.result->cut->turns[0] + c.result->cut->turns[1], 16);
    sim_free(&c);
    run(&c, SGD, "pp = 2, microbatches = 8, stage_layers = [9, 7]", NULL);
    ds_balance_advise(c.result, c.profiles, &options);
    cr_expect_null(c.result->cut, "9 layers on both");
    sim_free(&c);
}
