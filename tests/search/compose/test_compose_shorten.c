/* What else follows from the number of layers or samples when a step is put together from a smaller
 * one: the same picosecond and byte as the simulation of the whole step. */
#include "tests/support/composed.h"

#include <criterion/criterion.h>
#include <stdio.h>

/* Model, topology and strategy in one file, so that all of them see the same params. */
static const char form[] =
    "dir 1\n"
    "param layers = 12, batch = 64, wide = 64, half = layers / 2, out = half * 16, "
    "tokens = 4 * batch, most = batch\n"
    "func @f(%%x: f32[batch@dp, 4, wide]) -> f32[batch@dp, 4, wide] {\n"
    "  %%y = for l in 0..layers carry (%%h = %%x) {\n"
    "    weight %%w : f32[wide, wide]\n"
    "    %%a = matmul(%%h, %%w)\n"
    "    %%r = relu(%%a)\n"
    "    yield %%r\n  }\n"
    "%s"
    "}\n"
    "topology @box { device gpu[8] : \"A100-SXM4-80GB\"\n  switch s\n"
    "  link gpu[i] -- s : 100 GB/s, 1 us for i in 0..8 }\n"
    "scenario { model = @f, on = @box, train { loss = mse, optimizer = adam }\n"
    "  strategy { %s } }\n";

static const char plain[] = "  return %y\n";
static const char many_words[] = "  %t = reshape(%y) {shape = [tokens, wide]}\n"
                                 "  %u = relu(%t)\n"
                                 "  %z = reshape(%u) {shape = [batch, 4, wide]}\n"
                                 "  return %z\n";
static const char wide_head[] = "  weight %v : f32[wide, out]\n"
                                "  %o = matmul(%y, %v)\n"
                                "  %p = einsum(%o, %v) {rule = \"b s o, w o -> b s w\"}\n"
                                "  return %p\n";

static const struct {
    const char *tail, *strategy;
    bool folded; /* else put together from four microbatches, or simulated */
} cases[] = {{plain, "dp = 2, microbatches = 8", true},
             {plain, "dp = 2, pp = 2, microbatches = 8", true},
             {plain, "dp = 4, microbatches = batch / 8", true},
             {plain, "dp = 4, pp = 2, microbatches = most / 8", true},
             {plain, "dp = 2, bucket_size = batch * 1 KB, microbatches = 8", true},
             {plain, "dp = 2, microbatches = layers - 4", false},
             {plain, "dp = 2, pp = layers / 6, microbatches = 8", false},
             {plain, "dp = 2, bucket_size = half * 10 KB, microbatches = 8", false},
             {many_words, "dp = 2, pp = 2, microbatches = 8", true},
             {wide_head, "dp = 2, pp = 2, microbatches = 8", true}};

static void check(const char *text, const char *settings, bool folded) {
    sim_case c;
    ds_error err;
    ds_composed composed;
    const char *why;
    sim_run_text(&c, text, settings, false);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    ds_sim_options options = {.cost_mode = DS_COST_MEASURED};
    cr_assert_eq(ds_sim_options_read(&c.binding, &options, &err), DS_OK);
    cr_assert_eq(ds_compose(&c.binding, c.profiles, &options, &composed, &why, &err), DS_OK, "%s",
                 err.message);
    cr_expect_eq(!why && composed.folded, folded, "%s: %s", text, why ? why : "put together");
    if (!why) composed_compare(&c, &composed, text);
    if (!why) ds_composed_deinit(&composed);
    sim_free(&c);
}

Test(compose_shorten, what_follows_from_layers_and_samples) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[2048];
        snprintf(text, sizeof text, form, cases[i].tail, cases[i].strategy);
        check(text, NULL, cases[i].folded);
        check(text, "layers=20 batch=192", cases[i].folded);
    }
}
