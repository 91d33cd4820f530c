/* Deployments of models under distsim's own semantics: against `run` of their texts, the search
 * against enumeration, found strategies against real numbers. */
#include "ir/base/file.h"
#include "ir/base/rng.h"
#include "search/tag/plan.h"
#include "tests/support/cases.h"
#include "tests/support/prove.h"
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Two machines with two GPUs each, of unlike kinds. */
#define BOX                                                                                        \
    "topology @fast { device gpu[2] : \"V100-SXM2-32GB\"\n switch s\n nic nic\n"                   \
    "  link gpu[i] -- s : 8000 MB/s, 500 ns for i in 0..2\n link nic -- s : 8000 MB/s, 500 ns }\n" \
    "topology @slow { device gpu[2] : \"P100-PCIE-16GB\"\n switch s\n nic nic\n"                   \
    "  link gpu[i] -- s : 3000 MB/s, 500 ns for i in 0..2\n link nic -- s : 3000 MB/s, 500 ns }\n" \
    "topology @box { node a : @fast\n node b : @slow\n switch net\n"                               \
    "  link a.nic -- net : 2810 MB/s, 1350 ns\n link b.nic -- net : 2810 MB/s, 1350 ns }\n"

typedef struct plan_case {
    char text[4096];
    ds_pase_source source;
    ds_profiles *profiles;
    ds_tag_plan *plan;
} plan_case;

static void open(plan_case *c, const char *imports, const char *model, const char *topology) {
    ds_error err;
    snprintf(c->text, sizeof c->text,
             "dir 1\nparam batch = 8\n%s\n" BOX
             "import \"topologies/mixed-box.dir\"\nscenario { model = @%s, on = @%s, "
             "train { optimizer = sgd, keep_gradients = true }, profile = ideal }\n",
             imports, model, topology);
    c->source = (ds_pase_source){
        .path = DS_SOURCE_DIR "/scenarios/test.dir", .text = c->text, .n = strlen(c->text)};
    cr_assert_eq(ds_profiles_load(DS_BUILD_PROFILES, &c->profiles, &err), DS_OK, "%s", err.message);
}

static void search(plan_case *c, ds_tag_plan_options options) {
    ds_error err;
    cr_assert_eq(ds_tag_plan_new(&c->source, c->profiles, &options, &c->plan, &err), DS_OK, "%s",
                 err.message);
}

/* Without a search. */
static void prepare(plan_case *c, uint32_t n_groups) {
    ds_error err;
    c->plan = ds_xcalloc(1, sizeof *c->plan);
    cr_assert_eq(ds_tag_model_read(&c->source, c->profiles, &c->plan->model, &err), DS_OK, "%s",
                 err.message);
    ds_tag_model_gather(c->plan->model, n_groups);
    cr_assert_eq(ds_tag_choices_new(c->plan->model, &c->plan->choices, &err), DS_OK);
    cr_assert_eq(ds_tag_whole_new(&c->source, c->profiles, c->plan->choices, &c->plan->whole, &err),
                 DS_OK, "%s", err.message);
}

static void done(plan_case *c) {
    ds_tag_plan_free(c->plan);
    ds_profiles_free(c->profiles);
}

#define VGG19 "import \"models/vgg19.dir\" with batch = batch"

/* VGG-19 of full size on TAG's testbed, batch 48. By hand: 373.9 ms on all devices, 142.1 ms on the
 * V100s, 70.53 ms with head.fc1 … fc3 by columns on the V100s, which is 5.3 times as fast. The search
 * has no hint. The text that is written runs, and takes what the search says to the picosecond. */
Test(tag_plan, vgg19_beats_the_strategy_by_hand) {
    static plan_case c;
    sim_case run;
    ds_buf text = {0};
    ds_error err;
    open(&c, VGG19, "vgg19", "mixed");
    c.source.settings = &(ds_setting){"batch", "48"};
    c.source.n_settings = 1;
    search(&c,
           (ds_tag_plan_options){.n_groups = 12, .n_playouts = 1, .n_workers = 1, .n_whole = 500});
    cr_expect_eq(c.plan->baseline[DS_TAG_ALL].step_ps / 100000000, 3739);
    cr_expect_eq(c.plan->baseline[DS_TAG_SUBSET].step_ps / 100000000, 1421);
    cr_expect_eq(ds_tag_plan_rival(c.plan), DS_TAG_SUBSET);
    cr_expect_lt(c.plan->best.step_ps, INT64_C(70530000000));
    cr_expect(c.plan->best.fits);
    /* 19.63 G products an image (Simonyan and Zisserman), three times but for the first layer's
     * gradient of the images, at the data sheets' 15.7, 11.34 and 9.3 TFLOP/s: 29.6 ms. Operations
     * bound by memory add up to a tenth. */
    double flop = 2 * (3 * 19.63e9 - 0.0867e9) * 48,
           flop_per_us = (4 * 15.7 + 8 * 11.34 + 4 * 9.3) * 1e6;
    cr_expect_gt(c.plan->least_us, flop / flop_per_us);
    cr_expect_lt(c.plan->least_us, 1.1 * flop / flop_per_us);
    cr_assert_eq(ds_tag_whole_text(c.plan->whole, c.plan->choice, &text, &err), DS_OK);
    sim_run_text(&run, text.text, "batch=48", false);
    cr_assert_eq(run.status, DS_OK, "%s", run.err.message);
    cr_expect_eq(run.result->run.step_ps, c.plan->best.step_ps);
    sim_free(&run);
    ds_buf_deinit(&text);
    done(&c);
}

/* The strategy by hand of scenarios/mixed-box-vgg.dir, 62.78 ms, is what the search begins from. */
Test(tag_plan, groups_of_the_scenario_are_a_start) {
    static plan_case c;
    ds_error err;
    ds_buf text = {0};
    uint32_t choice[46];
    bool is_given;
    const char *path = DS_SOURCE_DIR "/scenarios/mixed-box-vgg.dir";
    cr_assert_eq(ds_file_read(path, DS_NOWHERE, DS_LOAD_MAX_BYTES, &text, &err), DS_OK);
    open(&c, VGG19, "vgg19", "mixed");
    c.source = (ds_pase_source){.path = path, .text = text.text, .n = text.n};
    prepare(&c, 46);
    cr_assert_eq(ds_tag_whole_start(c.plan->whole, choice, &is_given, &err), DS_OK, "%s",
                 err.message);
    ds_tag_simulated r = ds_tag_whole_simulate(c.plan->whole, choice, &err);
    cr_expect(is_given);
    cr_expect_eq(r.step_ps / 10000000, 6278);
    ds_buf_deinit(&text);
    done(&c);
}

/* Two groups: no deployment is faster; and 1 and 3 workers find the same. */
Test(tag_plan, improvement_finds_the_optimum) {
    static plan_case c, other;
    static const char small[] = "import \"models/vgg19.dir\" with batch = batch, image = 32, "
                                "width = 16, hidden = 2048, classes = 1000";
    ds_tag_plan_options options = {.n_groups = 2, .n_playouts = 50, .n_workers = 1, .n_whole = 400};
    open(&c, small, "vgg19", "box");
    search(&c, options);
    uint32_t n = c.plan->choices->n, choice[2];
    for (uint32_t i = 0; i < n * n; i++) {
        choice[0] = i % n;
        choice[1] = i / n;
        ds_tag_simulated r = ds_tag_whole_simulate(c.plan->whole, choice, NULL);
        cr_expect(r.status || !r.fits || r.step_ps >= c.plan->best.step_ps, "%u and %u", choice[0],
                  choice[1]);
        cr_expect(r.status || (double)r.step_ps >= 1e6 * c.plan->least_us, "%u and %u", choice[0],
                  choice[1]);
    }
    options.n_workers = 3;
    open(&other, small, "vgg19", "box");
    search(&other, options);
    cr_expect_arr_eq(c.plan->choice, other.plan->choice, 2 * sizeof *choice);
    cr_expect_eq(c.plan->n_evaluated, other.plan->n_evaluated);
    cr_expect_eq(c.plan->n_simulated, other.plan->n_simulated);
    done(&c);
    done(&other);
}

static const char *const models[][2] = {
    {"import \"models/vgg19.dir\" with batch = batch, image = 32, width = 2, hidden = 16, "
     "classes = 8",
     "vgg19"},
    {"import \"models/resnet101.dir\" with batch = batch, image = 32, width = 2, classes = 8, "
     "bn_groups = 4, blocks1 = 1, blocks2 = 1, blocks3 = 1, blocks4 = 1",
     "resnet101"},
    {"import \"models/inception_v3.dir\" with batch = batch, image = 75, unit = 1, classes = 8, "
     "bn_groups = 4",
     "inception_v3"},
    {"import \"models/transformer.dir\" with layers = 2, hidden = 16, heads = 4, ffn = 32, "
     "seq = 8, target_seq = 4, vocab = 64, batch = batch, embed_scale = 4.0",
     "transformer"},
    {"import \"models/bert.dir\" with layers = 2, hidden = 12, heads = 3, seq = 8, vocab = 64, "
     "batch = batch",
     "bert"},
    {"import \"models/bert.dir\" with layers = 4, hidden = 16, heads = 4, seq = 8, vocab = 64, "
     "batch = batch",
     "bert"}, /* large: twice as deep, a third wider */
};

/* Actions in random order for random groups: the same as `run` of the text, to the picosecond and the
 * byte; what one refuses, the other refuses. */
Test(tag_plan, deployments_take_what_run_says) {
    bool all = getenv("DISTSIM_TEST_ALL") != NULL;
    ds_rng rng = {23};
    for (uint32_t i = 0; i < sizeof models / sizeof *models; i += all ? 1 : 2) {
        static plan_case c;
        uint32_t choice[12], n_mixed = 0;
        open(&c, models[i][0], models[i][1], "box");
        prepare(&c, 12);
        for (uint32_t trial = 0; trial < (all ? 40 : 8); trial++) {
            for (uint32_t g = 0; g < 12; g++)
                choice[g] = g > 0 && ds_rng_below(&rng, 2)
                                ? choice[g - 1]
                                : (uint32_t)ds_rng_below(&rng, c.plan->choices->n);
            ds_tag_simulated a = ds_tag_whole_simulate(c.plan->whole, choice, NULL);
            ds_tag_simulated b = ds_tag_whole_replay(c.plan->whole, choice, NULL);
            cr_expect_eq(a.step_ps, b.step_ps, "%s, trial %u", models[i][1], trial);
            cr_expect_eq(a.peak_bytes, b.peak_bytes, "%s, trial %u", models[i][1], trial);
            cr_expect_eq(a.fits, b.fits);
            n_mixed += a.status == DS_OK;
        }
        cr_expect_gt(n_mixed, all ? 20u : 4u, "%s", models[i][1]);
        done(&c);
    }
}

static void expect_equal(const plan_case *c, const uint32_t *choice, const char *what) {
    ds_buf text = {0};
    ds_error err;
    proof p;
    cr_assert_eq(ds_tag_whole_text(c->plan->whole, choice, &text, &err), DS_OK, "%s", err.message);
    prove(text.text, &(proof_options){.seed = 1}, &p);
    cr_expect_eq(p.verdict, PROOF_EQUAL, "%s: %s: %s\n%s", what, proof_verdict_name(p.verdict),
                 p.what, text.text);
    ds_buf_deinit(&text);
}

/* The best deployment of each model of the testbed, small, is the same step; so is one whose groups
 * take every way in turn. */
Test(tag_plan, deployments_are_the_same_step) {
    uint32_t leaves = FEW_CASES ? 6 : 20;
    for (uint32_t i = 0; i < sizeof models / sizeof *models; i++) {
        static plan_case c;
        uint32_t n, turn = 0, choice[5];
        open(&c, models[i][0], models[i][1], "box");
        search(&c, (ds_tag_plan_options){
                       .n_groups = 5, .n_playouts = leaves, .n_workers = 1, .n_whole = leaves});
        n = c.plan->choices->n;
        expect_equal(&c, c.plan->choice, models[i][1]);
        for (uint32_t g = 0; g < c.plan->model->problem.graph.n_groups; g++)
            do { /* until the passes take the deployment */
                choice[g] = turn++ % n;
                for (uint32_t k = g + 1; k < 5; k++) choice[k] = 0;
            } while (ds_tag_whole_simulate(c.plan->whole, choice, NULL).status && turn < 4 * n);
        expect_equal(&c, choice, models[i][1]);
        done(&c);
    }
}
