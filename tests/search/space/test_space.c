/* Spaces: the candidates of a sweep against loops written out in C, and closed counts. */
#include "tests/support/sweep.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A scenario whose topology has `n` devices; the sweep's body follows. */
#define HEAD                                                                                       \
    "dir 1\n"                                                                                      \
    "param n = 16, dp = 1, tp = 1, pp = 1, batch = 64, each = batch / dp, rate = 0.5\n"            \
    "import \"models/mlp.dir\" as mlp with layers = 4, batch = batch\n"                            \
    "topology @box { device gpu[n] : \"V100-SXM2-16GB\" }\n"                                       \
    "topology @two { device gpu[2] : \"V100-SXM2-16GB\" }\n"                                       \
    "scenario { model = @mlp.mlp, on = @box\n"                                                     \
    "  strategy { dp = dp, tp = tp, pp = pp, microbatches = 2 * pp, recompute = none } }\n"

static void expect(const char *sweep, const char *settings, const char *wanted) {
    sweep_case c;
    char text[2048];
    snprintf(text, sizeof text, HEAD "sweep { %s }\n", sweep);
    sweep_open_text(&c, text, settings);
    cr_assert_eq(c.status, DS_OK, "%s: %s", sweep, c.err.message);
    char *found = sweep_candidates(&c);
    cr_assert_not_null(found, "%s: %s", sweep, c.err.message);
    cr_expect_str_eq(found, wanted, "%s:\n%s", sweep, found);
    free(found);
    sweep_close(&c);
}

static void refuse(const char *sweep, const char *message) {
    sweep_case c;
    char text[2048];
    snprintf(text, sizeof text, HEAD "sweep { %s }\n", sweep);
    sweep_open_text(&c, text, NULL);
    char *found = c.status == DS_OK ? sweep_candidates(&c) : NULL;
    cr_expect_neq(c.status, DS_OK, "%s", sweep);
    cr_expect_not_null(strstr(c.err.message, message), "%s: %s", sweep, c.err.message);
    free(found);
    sweep_close(&c);
}

Test(space, domains) {
    expect("dp in 3..6", NULL, "3\n4\n5\n");
    expect("dp in 0..8 step 3", NULL, "0\n3\n6\n");
    expect("dp in -2..1", NULL, "-2\n-1\n0\n");
    expect("dp in 5..5", NULL, "");
    expect("dp in divisors(36)", NULL, "1\n2\n3\n4\n6\n9\n12\n18\n36\n");
    expect("dp in divisors(world)", "n=10", "1\n2\n5\n10\n");
    expect("dp in powers_of_two(1, 8)", NULL, "1\n2\n4\n8\n");
    expect("dp in powers_of_two(3, 20)", NULL, "4\n8\n16\n");
    expect("dp in powers_of_two(9, 15)", NULL, "");
    expect("dp in [4, 2 * n, 4]", NULL, "4\n32\n4\n");
    expect("schedule in [\"1f1b\", gpipe], sp in [true, false]", NULL,
           "1f1b true\n1f1b false\ngpipe true\ngpipe false\n");
    expect("on in [@box, @two], strategy.bucket_size in [25 MB]", NULL, "@box 25 MB\n@two 25 MB\n");
    expect("rate in [0.25, 1, 1e-3]", NULL, "0.25\n1\n0.001\n");
    expect("recompute in [none, full, [\"a\", \"b\"]]", NULL, "none\nfull\n[a b]\n");
    expect("offload in [[weights], [weights, activations]], stage_layers in [[1, 3], [2, 2]]", NULL,
           "[weights] [1 3]\n[weights] [2 2]\n[weights activations] [1 3]\n"
           "[weights activations] [2 2]\n");
}

/* The last dimension turns fastest, whatever the domains follow from. */
Test(space, order_is_the_odometer) {
    ds_buf wanted = {0};
    for (int dp = 1; dp <= 16; dp *= 2)
        for (int tp = 1; tp <= 16 / dp; tp++)
            for (int mb = tp; mb < 2 * tp + 2; mb += 2)
                if (16 / dp % tp == 0) ds_buf_printf(&wanted, "%d %d %d\n", dp, tp, mb);
    expect("dp in powers_of_two(1, world), tp in divisors(world / dp),\n"
           "strategy.microbatches in tp..2 * tp + 2 step 2",
           NULL, wanted.text);
    ds_buf_deinit(&wanted);
}

/* Names of dimensions, params that follow from them, knobs, derived values. */
Test(space, conditions_see_names) {
    expect("dp in [1, 2, 4, 8] where each == 16", NULL, "4\n");
    expect("dp in [1, 2, 4] where dp * tp * pp == world / 4", NULL, "4\n");
    expect("pp in [1, 2, 3] where microbatches == 4", NULL, "2\n"); /* 2 * pp */
    expect("on in [@box, @two], dp in [2, 16] where dp == world", NULL, "@box 16\n@two 2\n");
    expect("on in [@box, @two] where on == \"two\"", NULL, "@two\n");
    expect("n in [2, 4, 8] where world > 2", NULL, "4\n8\n");
    expect("schedule in [gpipe, \"1f1b\"] where schedule != \"gpipe\"", NULL, "1f1b\n");
    expect("dp in [1, 2], price 2.5 where cost_per_hour == 40", NULL, "1\n2\n");
    expect("dp in [1, 2], price 2.5 * dp where cost_per_hour > 40", NULL, "2\n");
    expect("sp in [on, off, true] where sp == 1", NULL, "on\ntrue\n");
    expect("dp in [1, 2] where recompute == \"none\"", NULL, "1\n2\n");
    expect("dp in [1, 2] where zero == 0 and cp == 1", NULL, "1\n2\n");
    expect("mlp.layers in [2, 4] where layers == 4", NULL, "4\n");
    expect("dp in [1, 2] where 1 == 2", NULL, "");
    /* what is simulated is not known here, so it excludes nothing */
    expect("dp in [1, 2] where step_time < 1 ms, minimize memory subject to fits", NULL, "1\n2\n");
}

/* A condition stands where its last variable is set: one that could not be evaluated behind it is
 * never reached. */
Test(space, conditions_prune_early) {
    expect("dp in [0, 1, 2] where dp > 0, tp in 0..4 where 4 % dp == 0 and tp / dp == 1", NULL,
           "1 1\n2 2\n2 3\n");
}

Test(space, errors) {
    refuse("dp in [0, 1] where 4 / 0 == 4", "division by zero");
    expect("dp in [0, 1, 2] where 4 / dp == 4", NULL, "0\n1\n"); /* the row of 0 will be failed */
    refuse("balance in [n, flops]", "'n' is the param of line 2, a number");
    refuse("dp in divisors(0)", "the number must be from 1");
    refuse("dp in 0..4 step 0", "it must be at least 1");
    refuse("dp in 0..4 step tp, tp in [1]", "which is declared after it");
    refuse("dp in divisors(dp)", "looks at 'dp' itself");
    refuse("tp in [1], dp in 0..step_time", "what is simulated");
    refuse("dp in [1], dp in [2]", "varies already");
    refuse("strategy.dp in [1], dp in [2]", "both 'dp' in conditions");
    refuse("dq in [1]", "neither a param nor a key");
    refuse("strategy in [1]", "is a block");
    refuse("schedule in 0..3", "takes no numbers");
    refuse("recompute in [none, everything]", "cannot be everything");
    refuse("dp in [@box]", "takes numbers, strings, true and false");
    refuse("dp in [1], minimize time", "is no objective");
    refuse("minimize step_time", "varies nothing");
    refuse("dp in [1] where schedule == \"gpipe\"", "does not say it");
    refuse("dp in [1] where \"text\"", "is a text");
    refuse("dp in [1], price step_time", "a price cannot look at");
}

/* DistIR's grid: 24, 46, 75, 111 and 154 candidates for 4, 8, 16, 32 and 64 devices. */
Test(space, counts_of_distirs_grid) {
    static const struct {
        int world, n;
    } counts[] = {{4, 24}, {8, 46}, {16, 75}, {32, 111}, {64, 154}};
    char text[2048], setting[16];
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        sweep_case c;
        snprintf(text, sizeof text,
                 HEAD "sweep { dp in powers_of_two(1, world), tp in powers_of_two(1, world),\n"
                      "pp in powers_of_two(1, world), strategy.microbatches in "
                      "powers_of_two(1, 128)\n"
                      "where dp * tp * pp == world\n"
                      "where pp == 1 and microbatches == 1 or pp > 1 and microbatches > 1\n"
                      "where 8192 / dp >= microbatches }\n");
        snprintf(setting, sizeof setting, "n=%d", counts[i].world);
        sweep_open_text(&c, text, setting);
        char *found = sweep_candidates(&c);
        int n = 0;
        for (const char *at = found; at && *at; at++) n += *at == '\n';
        cr_expect_eq(n, counts[i].n, "%d devices: %d", counts[i].world, n);
        free(found);
        sweep_close(&c);
    }
}

/* Draws are of the space, the same for the same seed, and reach all of it. */
Test(space, draws) {
    sweep_case c;
    ds_space *space;
    ds_arena arena;
    sweep_open_text(&c, HEAD "sweep { dp in 1..5, tp in dp..5 where (dp + tp) % 2 == 0 }\n", NULL);
    cr_assert_eq(ds_space_new(&c.binding, NULL, 0, &space, &c.err), DS_OK);
    ds_arena_init(&arena);
    ds_candidate a = ds_candidate_new(space, &arena), b = ds_candidate_new(space, &arena);
    int seen[5][5] = {{0}}, kinds = 0, other_seed = 0;
    for (uint64_t k = 0; k < 200; k++) {
        bool found;
        cr_assert_eq(ds_space_draw(space, 7, k, &a, &found, &c.err), DS_OK);
        cr_assert(found);
        int64_t dp = a.at[0].value.i, tp = a.at[1].value.i;
        cr_assert(dp >= 1 && dp < 5 && tp >= dp && tp < 5 && (dp + tp) % 2 == 0);
        kinds += !seen[dp][tp]++;
        ds_space_draw(space, 7, k, &b, &found, &c.err);
        cr_assert(b.at[0].value.i == dp && b.at[1].value.i == tp);
        ds_space_draw(space, 8, k, &b, &found, &c.err);
        other_seed += b.at[0].value.i != dp || b.at[1].value.i != tp;
    }
    cr_expect_eq(kinds, 6); /* 11 13 22 24 33 44 */
    cr_expect_gt(other_seed, 50);
    ds_arena_deinit(&arena);
    ds_space_free(space);
    sweep_close(&c);
}

/* Long chains and deep nesting are an answer or an error, not a crash; topologies that are nested
 * twice in each other are looked at once. */
Test(space, long_chains) {
    for (int n = 500; n <= 5000; n *= 10) {
        sweep_case c;
        ds_buf text = {0};
        ds_buf_put(&text, "dir 1\nparam p0 = 1\n");
        for (int i = 1; i <= n; i++) ds_buf_printf(&text, "param p%d = p%d + 1\n", i, i - 1);
        ds_buf_put(&text, "topology @t0 { device gpu : \"V100\" }\n");
        for (int i = 1; i <= 30; i++)
            ds_buf_printf(&text, "topology @t%d { node a : @t%d\n node b : @t%d }\n", i, i - 1,
                          i - 1);
        ds_buf_printf(&text,
                      "func @f(%%x: f32[4]) -> f32[4] { return %%x }\n"
                      "scenario { model = @f, on = @t30 }\n"
                      "sweep { p0 in [1, 2, 3] where p%d == %d, where world == 1073741824 }\n",
                      n, n + 2);
        sweep_open_text(&c, text.text, NULL);
        cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
        char *found = sweep_candidates(&c);
        if (n == 500)
            cr_expect_str_eq(found ? found : c.err.message, "2\n");
        else
            cr_expect_eq(c.status, DS_ERR_LIMIT);
        free(found);
        ds_buf_deinit(&text);
        sweep_close(&c);
    }
}
