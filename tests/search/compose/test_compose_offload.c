/* Steps of few microbatches put together from exact templates against their simulation: what hosts
 * keep, unequal parts of states and gradients, ZeRO in groups, stages that do not fill nodes. Steps
 * of many microbatches, some on a degraded device, are put together from four, or simulated. */
#include "ir/base/rng.h"
#include "search/compose/compose.h"
#include "tests/support/cases.h"
#include "tests/support/composed.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Three nodes of four, each GPU with a host's memory of its own, or two with one. */
static void write_text(ds_rng *rng, bool many, char *out, size_t n) {
    static const char *const onoff[] = {"off", "on"};
    const char *sp = onoff[ds_rng_below(rng, 2)], *parts = onoff[ds_rng_below(rng, 2)];
    const char *uneven = ds_rng_below(rng, 4) ? "true" : "false";
    const char *late = ds_rng_below(rng, 4) ? "false" : "true";
    int prefetch = ds_rng_below(rng, 4) ? 1 : (int)ds_rng_below(rng, 3);
    const char *memory = ds_rng_below(rng, 2) ? "i" : "i / 2";
    bool degraded = many && ds_rng_below(rng, 3);
    const char *order = ds_rng_below(rng, 2) ? "pp dp cp tp" : "dp pp cp tp";
    snprintf(
        out, n,
        "dir 1\n"
        "topology @node { device gpu[4] : \"A100-SXM4-80GB\"\n  switch nvswitch\n  nic nic[4]\n"
        "  host memory[4]\n"
        "  link gpu[i] -- nvswitch : 300 GB/s, 1.2 us for i in 0..4\n"
        "  link gpu[i] -- memory[%s] : 32 GB/s, 0 us for i in 0..4\n"
        "  link gpu[i] -- nic[i] : 24 GB/s, 1 us for i in 0..4 }\n"
        "topology @pod { node n[3] : @node\n  switch fabric\n"
        "  link n[i].nic[j] -- fabric : 25 GB/s, 2 us for i in 0..3, j in 0..4 }\n"
        "%s"
        "param dp = 1, tp = 1, pp = 1, microbatches = 1, mbs = 1, layers = 4, zero = 0, group = 1\n"
        "param schedule = \"1f1b\", virtual_stages = 1, recompute = \"none\"\n"
        "param w = \"none\", a = \"none\", o = \"none\"\n"
        "import \"models/gpt.dir\" as model with layers = layers, hidden = 128, heads = 4,"
        " seq = 64, vocab = 512, batch = dp * mbs * microbatches\n"
        "scenario { model = @model.gpt, on = @pod, profile = \"A100-SXM4-80GB\"\n"
        "  train { loss = none, optimizer = adam, dtype = f16, grad_dtype = f32 }\n"
        "  strategy { dp = dp, tp = tp, pp = pp, microbatches = microbatches,\n"
        "    schedule = schedule, virtual_stages = virtual_stages, recompute = recompute,\n"
        "    zero = zero, zero_group = group, zero_uneven = %s, sp = %s, scatter_gather = %s, "
        "order = \"%s\",\n"
        "    late_reduce = %s, prefetch = %d,\n"
        "    offload = [w, a, o] } }\n",
        memory, degraded ? "degrade n[0].gpu[1] compute = 0.02\n" : "", uneven, sp, parts, order,
        late, prefetch);
}

static void draw(ds_rng *rng, bool many_microbatches, char *out, size_t n) {
    static const int replicas[] = {1, 2, 3, 5, 6};
    static const char *const recomputes[] = {"none", "selective", "full"};
    int pp = 1 << ds_rng_below(rng, 3), tp = 1 << ds_rng_below(rng, 2), dp = 12, v = 1;
    while (dp * pp * tp > 12) dp = replicas[ds_rng_below(rng, 5)];
    int m = many_microbatches ? 5 + (int)ds_rng_below(rng, 9) : 1 + (int)ds_rng_below(rng, 4);
    bool breadth = pp > 1 && ds_rng_below(rng, 2);
    bool many = ds_rng_below(rng, 4) == 0; /* more chunks than a template is read with */
    if (breadth) v = many ? 9 + (int)ds_rng_below(rng, 6) : 1 + (int)ds_rng_below(rng, 3);
    int layers = pp * v * (many && breadth ? 1 + (int)ds_rng_below(rng, 2) : 1);
    layers += (int)ds_rng_below(rng, 4);
    int zero = dp > 1 ? (int)ds_rng_below(rng, 3) : 0;
    const char *recompute = recomputes[ds_rng_below(rng, 3)];
    uint64_t offload = ds_rng_below(rng, 8);
    int group = zero && dp % 2 == 0 && ds_rng_below(rng, 2) ? dp / 2 : dp;
    if (group < dp && ds_rng_below(rng, 2)) offload = 0;
    snprintf(out, n,
             "pp=%d tp=%d dp=%d microbatches=%d layers=%d schedule=%s virtual_stages=%d "
             "recompute=%s zero=%d group=%d w=%s a=%s o=%s",
             pp, tp, dp, m, layers, breadth ? "breadth-first" : "1f1b", v, recompute, zero, group,
             offload & 1 ? "weights" : "none", offload & 2 ? "activations" : "none",
             offload & 4 ? "optimizer" : "none");
}

/* 1: put together, and then it is the simulated one; 0: not; -1: no such strategy. */
static int check(const char *text, const char *settings) {
    sim_case c;
    ds_error err;
    ds_composed composed;
    const char *why;
    sim_run_text(&c, text, settings, false);
    if (c.status != DS_OK) {
        sim_free(&c);
        return -1;
    }
    ds_sim_options options = {.cost_mode = DS_COST_MEASURED};
    cr_assert_eq(ds_sim_options_read(&c.binding, &options, &err), DS_OK);
    cr_assert_eq(ds_compose(&c.binding, c.profiles, &options, &composed, &why, &err), DS_OK,
                 "%s: %s", settings, err.message);
    if (why && getenv("DS_COMPOSE_WHY")) printf("%s: %s\n", settings, why);
    /* An item's sends may begin before all of its operands are there: then it is followed. */
    cr_expect(!why || strcmp(why, "a transfer that starts within an item") != 0, "%s", settings);
    if (!why) {
        composed_compare(&c, &composed, settings);
        ds_composed_deinit(&composed);
    }
    sim_free(&c);
    return !why;
}

static void draw_all(bool many, int n, int *legal, int *done) {
    char text[4096], settings[256];
    ds_rng rng = {7};
    for (int i = 0; i < n; i++) {
        write_text(&rng, many, text, sizeof text);
        draw(&rng, many, settings, sizeof settings);
        int found = check(text, settings);
        *legal += found >= 0;
        *done += found > 0;
    }
    if (getenv("DS_COMPOSE_WHY")) printf("%d of %d legal, %d put together\n", *legal, n, *done);
    cr_expect(*legal >= n / 3, "%d of %d are legal", *legal, n);
}

static int n_cases(void) {
    const char *more = getenv("DISTSIM_TEST_OFFLOADS");
    return more ? atoi(more) : FEW_CASES ? 16 : 60;
}

Test(compose_offload, random_steps) {
    int legal = 0, done = 0;
    draw_all(false, n_cases(), &legal, &done);
    cr_expect(done >= legal * 3 / 4, "%d of %d were put together", done, legal);
}

Test(compose_offload, many_microbatches) {
    int legal = 0, done = 0;
    draw_all(true, n_cases(), &legal, &done);
    cr_expect(done >= legal / 8, "%d of %d were put together", done, legal);
}
