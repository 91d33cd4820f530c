/* Steps put together from a sibling of four microbatches against the simulation of the whole step:
 * the same picosecond and byte on every class. */
#include "ir/base/rng.h"
#include "search/compose/compose.h"
#include "tests/support/cases.h"
#include "tests/support/composed.h"
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Four nodes of eight; two leaves, whose links to the spine are narrower than what they carry. */
static const char head[] =
    "dir 1\n"
    "topology @dgx { device gpu[8] : \"A100-SXM4-80GB\"\n  switch nvswitch\n  nic nic[8]\n"
    "  link gpu[i] -- nvswitch : 300 GB/s, 1.2 us for i in 0..8\n"
    "  link gpu[i] -- nic[i] : 24 GB/s, 1 us for i in 0..8 }\n"
    "topology @pod { node n[4] : @dgx\n  switch leaf[2], spine\n"
    "  link n[i].nic[j] -- leaf[i / 2] : 25 GB/s, 2 us for i in 0..4, j in 0..8\n"
    "  link leaf[i] -- spine : 150 GB/s, 2 us for i in 0..2 }\n"
    "param dp = 1, tp = 1, pp = 1, microbatches = 5, mbs = 1, layers = 4\n"
    "param schedule = \"1f1b\", virtual_stages = 1, recompute = \"none\", zero = 0\n"
    "param clip = 0\n";

static const char gpt[] =
    "import \"models/gpt.dir\" as model with layers = layers, hidden = 256, heads = 8, seq = 128,"
    " vocab = 1024, batch = dp * mbs * microbatches\n";
static const char llama[] =
    "import \"models/llama.dir\" as model with layers = layers, hidden = 256, heads = 8,"
    " kv_heads = 8, ffn = 512, seq = 128, vocab = 1024, batch = dp * mbs * microbatches\n";

static const char *const schedules[] = {"1f1b",  "interleaved",   "eager-1f1b", "gpipe",  "zb-h1",
                                        "zb-h2", "breadth-first", "zb-v",       "v-half", "v-min"};
enum { N_SCHEDULES = sizeof schedules / sizeof *schedules };
static const char *const recomputes[] = {"none", "selective", "full"};

/* True if the step was put together, and then it is the simulated one; with costs that others may
 * have left on the ground, where the simulation has found its own. */
static bool check(const char *text, const char *settings, bool masks, ds_plan_ground *ground,
                  int *folded) {
    sim_case c;
    ds_error err;
    ds_composed composed;
    const char *why;
    sim_run_text(&c, text, settings, false);
    if (c.status != DS_OK) {
        sim_free(&c);
        return false;
    }
    ds_sim_options options = {.cost_mode = DS_COST_MEASURED, .keep_masks = masks, .ground = ground};
    cr_assert_eq(ds_sim_options_read(&c.binding, &options, &err), DS_OK);
    cr_assert_eq(ds_compose(&c.binding, c.profiles, &options, &composed, &why, &err), DS_OK,
                 "%s: %s", settings, err.message);
    if (why && getenv("DS_COMPOSE_WHY")) printf("%s: %s\n", settings, why);
    if (!why) composed_compare(&c, &composed, settings);
    if (!why) *folded += composed.folded;
    if (!why) ds_composed_deinit(&composed);
    sim_free(&c);
    return !why;
}

static void write_text(const char *model, bool masks, bool sp, bool parts, char *out, size_t n) {
    snprintf(out, n,
             "%s%sscenario { model = @model.%s, on = @pod, profile = \"A100-SXM4-80GB\"\n"
             "  masks = %s\n"
             "  train { loss = none, optimizer = adam, dtype = f16, grad_dtype = f32,\n"
             "    clip_norm = clip }\n"
             "  strategy { dp = dp, tp = tp, pp = pp, microbatches = microbatches,\n"
             "    schedule = schedule, virtual_stages = virtual_stages, recompute = recompute,\n"
             "    zero = zero, sp = %s, scatter_gather = %s } }\n",
             head, model == gpt ? gpt : llama, model == gpt ? "gpt" : "llama",
             masks ? "kept" : "drawn", sp ? "on" : "off", parts ? "on" : "off");
}

static void draw(ds_rng *rng, char *out, size_t n) {
    int pp = 1 << ds_rng_below(rng, 3), tp = 1 << ds_rng_below(rng, 4), dp = 1;
    while (pp * tp * dp < 32 && ds_rng_below(rng, 3)) dp *= 2;
    const char *schedule = schedules[pp > 1 ? ds_rng_below(rng, N_SCHEDULES) : 0];
    int m = 1 + (int)ds_rng_below(rng, 20);
    int v = (int)ds_schedule_virtual_stages(schedule, 1);
    bool interleaved = strcmp(schedule, "interleaved") == 0;
    if (interleaved || strcmp(schedule, "breadth-first") == 0) v = 1 + (int)ds_rng_below(rng, 4);
    if (interleaved) m = (m + pp - 1) / pp * pp;
    int layers = pp * v * (1 + (int)ds_rng_below(rng, 2));
    if (ds_rng_below(rng, 2)) layers = pp * v + (int)ds_rng_below(rng, 13);
    /* one after another: in which order arguments are drawn is the compiler's choice */
    int zero = dp > 1 ? (int)ds_rng_below(rng, 4) : 0;
    const char *recompute = recomputes[ds_rng_below(rng, 3)];
    int mbs = 1 + (int)ds_rng_below(rng, 2);
    int clip = ds_rng_below(rng, 4) == 0;
    snprintf(out, n,
             "pp=%d tp=%d dp=%d microbatches=%d mbs=%d layers=%d schedule=%s virtual_stages=%d "
             "recompute=%s zero=%d clip=%d",
             pp, tp, dp, m, mbs, layers, schedule, v, recompute, zero, clip);
}

static void draw_many(const char *model, uint64_t seed, int n, int least) {
    char text[4096], settings[256];
    ds_rng rng = {seed};
    ds_plan_ground *ground = ds_plan_ground_new();
    int done = 0, folded = 0;
    for (int i = 0; i < n; i++) {
        bool masks = ds_rng_below(&rng, 3) == 0;
        write_text(model, masks, ds_rng_below(&rng, 2), i % 3 == 1, text, sizeof text);
        draw(&rng, settings, sizeof settings);
        done += check(text, settings, masks, ground, &folded);
    }
    ds_plan_ground_free(ground);
    cr_expect(done >= least, "%d of %d were put together, not %d", done, n, least);
    cr_expect(folded >= least / 2, "%d of %d were folded, not %d", folded, n, least / 2);
    if (getenv("DS_COMPOSE_WHY")) printf("%d of %d, %d folded\n", done, n, folded);
}

/* The chunks at the turn of a V share a device, and W2 reads what chunk 1 has made, as B1 does. Of
 * four microbatches the one in the middle has W2 before B1; of five also one that has W2 after B1.
 * Freed by B1 there, too, the buffer made a peak of 14,336 bytes in place of 14,400. */
Test(compose, many_microbatches_in_a_v) {
    static const char text[] =
        "dir 1\nparam layers = 7, microbatches = 5\n"
        "import \"models/mlp.dir\" as model with layers = layers, width = 16,"
        " batch = microbatches\n"
        "topology @box { device gpu[3] : \"A100-SXM4-80GB\"\n  switch s\n"
        "  link gpu[i] -- s : 300 GB/s, 2 us for i in 0..3 }\n"
        "scenario { model = @model.mlp, on = @box\n"
        "  train { loss = mse, optimizer = adam }\n"
        "  strategy { pp = 3, microbatches = microbatches, schedule = \"zb-v\" } }\n";
    static const char *const schedules_of_v[] = {"zb-v", "v-half", "v-min"};
    int folded;
    char of_gpt[4096], settings[128];
    ds_plan_ground *ground = ds_plan_ground_new();
    cr_expect(check(text, "microbatches=4", false, ground, &folded));
    cr_expect(check(text, "", false, ground, &folded));
    cr_expect(check(text, "microbatches=60", false, ground, &folded));
    write_text(gpt, false, false, false, of_gpt, sizeof of_gpt);
    for (size_t i = 0; i < 3; i++) {
        snprintf(settings, sizeof settings,
                 "pp=2 tp=2 microbatches=9 layers=6 virtual_stages=2 schedule=%s",
                 schedules_of_v[i]);
        cr_expect(check(of_gpt, settings, false, ground, &folded), "%s", settings);
    }
    ds_plan_ground_free(ground);
}

/* A reload waits for an op of the item before, and with `prefetch` for one of the item before that.
 * For the third item the latter is the first, whose ops have other numbers, for it adds up no
 * gradients: later items waited for ops of the slow device, and idled 256 ns too little. The first
 * one's are left out where they end before the second one's begin; with fewer layers than are
 * reloaded ahead they do not. */
Test(compose, many_microbatches_with_offload) {
    static const char text[] =
        "dir 1\nparam layers = 2, microbatches = 5, prefetch = 1\n"
        "import \"models/mlp.dir\" as model with layers = layers, width = 64,"
        " batch = 8192 * microbatches\n"
        "topology @box { device gpu[4] : \"A100-SXM4-80GB\"\n  switch s\n  host memory[4]\n"
        "  link gpu[i] -- s : 300 GB/s, 2 us for i in 0..4\n"
        "  link gpu[i] -- memory[i] : 32 GB/s, 0 us for i in 0..4 }\n"
        "degrade gpu[0] compute = 0.2\n"
        "scenario { model = @model.mlp, on = @box\n"
        "  train { loss = mse, optimizer = sgd }\n"
        "  strategy { dp = 2, tp = 2, microbatches = microbatches, offload = [weights],\n"
        "    prefetch = prefetch } }\n";
    int folded;
    ds_plan_ground *ground = ds_plan_ground_new();
    cr_expect(check(text, "", false, ground, &folded));
    cr_expect(check(text, "layers=3 microbatches=12", false, ground, &folded));
    cr_expect_not(check(text, "layers=1 prefetch=2", false, ground, &folded));
    ds_plan_ground_free(ground);
}

Test(compose, gpt) {
    draw_many(gpt, 1, FEW_CASES ? 15 : 60, FEW_CASES ? 11 : 44);
}

Test(compose, llama) {
    draw_many(llama, 2, FEW_CASES ? 15 : 60, FEW_CASES ? 11 : 44);
}

/* What an MLP's chunk makes is read by its own backward pass, too: in a V that is so for some
 * microbatches after the next chunk's weight gradients, for others before. */
Test(compose, mlp_in_a_v) {
    static const char text[] =
        "dir 1\nparam pp = 2, dp = 1, microbatches = 5, layers = 4, schedule = \"zb-v\"\n"
        "param zero = 0\n"
        "import \"models/mlp.dir\" as model with layers = layers, width = 32,"
        " batch = 4 * dp * microbatches\n"
        "topology @box { device gpu[8] : \"A100-SXM4-80GB\"\n  switch s\n"
        "  link gpu[i] -- s : 300 GB/s, 2 us for i in 0..8 }\n"
        "scenario { model = @model.mlp, on = @box\n"
        "  train { loss = mse, optimizer = adam }\n"
        "  strategy { pp = pp, dp = dp, microbatches = microbatches, schedule = schedule,\n"
        "    zero = zero } }\n";
    int n = FEW_CASES ? 20 : 100, done = 0, folded;
    ds_rng rng = {5};
    ds_plan_ground *ground = ds_plan_ground_new();
    for (int i = 0; i < n; i++) {
        char settings[128];
        int pp = 2 + (int)ds_rng_below(&rng, 3), dp = 1 + (int)ds_rng_below(&rng, 2);
        int m = 1 + (int)ds_rng_below(&rng, 16), layers = 2 * pp + (int)ds_rng_below(&rng, 8);
        const char *schedule = schedules[N_SCHEDULES - 1 - ds_rng_below(&rng, 3)];
        int zero = dp > 1 ? (int)ds_rng_below(&rng, 3) : 0;
        snprintf(settings, sizeof settings,
                 "pp=%d dp=%d microbatches=%d layers=%d schedule=%s zero=%d", pp, dp, m, layers,
                 schedule, zero);
        done += check(text, settings, false, ground, &folded);
    }
    ds_plan_ground_free(ground);
    cr_expect_eq(done, n, "%d of %d were put together", done, n);
    if (getenv("DS_COMPOSE_WHY")) printf("%d of %d\n", done, n);
}

/* A stage of one layer with one microbatch has items without any task: they happen at no time. */
Test(compose, items_without_tasks) {
    static const char text[] =
        "dir 1\nparam dp = 8, microbatches = 1\n"
        "import \"models/gpt.dir\" as model with layers = 2, hidden = 64, heads = 8, seq = 64, "
        "vocab = 2048, batch = 32, dropout = 0.1\n"
        "topology @box { device gpu[16] : \"A100-SXM4-80GB\"\n  switch s\n"
        "  link gpu[i] -- s : 300 GB/s, 2 us for i in 0..16 }\n"
        "scenario { model = @model.gpt, on = @box, train { loss = none, optimizer = adam }\n"
        "  strategy { dp = dp, pp = 2, microbatches = microbatches } }\n";
    ds_plan_ground *ground = ds_plan_ground_new();
    int folded;
    cr_expect(check(text, "", false, ground, &folded));
    cr_expect(check(text, "dp=1", false, ground, &folded));
    cr_expect(check(text, "dp=4 microbatches=4", false, ground, &folded));
    ds_plan_ground_free(ground);
}

/* Stages that send parts: cut behind an item, gathered in front of the one that reads them. */
Test(compose, parts) {
    static const char *const settings[] = {
        "pp=4 tp=2 dp=2 microbatches=8 layers=12 recompute=full",
        "pp=2 tp=4 microbatches=6 layers=4 schedule=interleaved virtual_stages=2",
        "pp=2 tp=8 dp=2 microbatches=5 layers=6 schedule=zb-h1",
    };
    char text[4096];
    int folded;
    ds_plan_ground *ground = ds_plan_ground_new();
    write_text(gpt, false, false, true, text, sizeof text);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        cr_expect(check(text, settings[i], false, ground, &folded), "%s", settings[i]);
    ds_plan_ground_free(ground);
}

/* GPT-3 175B itself, as scenarios/gpt3-175b-pp8.dir has it: 1F1B, interleaved, without a pipeline;
 * with masks that are kept. */
Test(compose, gpt3) {
    static const char *const settings[] = {
        "microbatches=32 schedule=1f1b virtual_stages=1 dp=4 recompute=full",
        "microbatches=16 dp=2",
        "microbatches=9 pp=1 dp=8 schedule=1f1b virtual_stages=1 recompute=none",
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        sim_case c;
        ds_error err;
        ds_composed composed;
        const char *why;
        sim_run_file(&c, "scenarios/gpt3-175b-pp8.dir", settings[i], false);
        cr_assert_eq(c.status, DS_OK);
        ds_sim_options options = {.trust_passes = true};
        cr_assert_eq(ds_sim_options_read(&c.binding, &options, &err), DS_OK);
        cr_assert_eq(ds_compose(&c.binding, c.profiles, &options, &composed, &why, &err), DS_OK);
        cr_assert_null(why, "%s: %s", settings[i], why);
        composed_compare(&c, &composed, settings[i]);
        cr_assert(composed.n_timed < composed.n_items, "no item was known already");
        ds_composed_deinit(&composed);
        sim_free(&c);
    }
}

/* What is not of the known kind is left to simulation, with a reason. */
Test(compose, reasons) {
    static const struct {
        const char *settings, *why;
    } cases[] = {
        {"pp=2 microbatches=8 schedule=chimera", "the schedule"},
        {"pp=2 dp=4 microbatches=8 layers=4 zero=3",
         "a microbatch that reads another one's values"},
    };
    char text[4096];
    write_text(gpt, false, false, false, text, sizeof text);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sim_case c;
        ds_error err;
        ds_composed composed;
        const char *why;
        sim_run_text(&c, text, cases[i].settings, false);
        cr_assert_eq(c.status, DS_OK);
        ds_sim_options options = {0};
        cr_assert_eq(ds_compose(&c.binding, c.profiles, &options, &composed, &why, &err), DS_OK);
        cr_assert_not_null(why, "%s", cases[i].settings);
        cr_expect_str_eq(why, cases[i].why);
        options.stepwise = true;
        cr_expect(!ds_compose_can(&c.binding, &options, &why));
        sim_free(&c);
    }
}
