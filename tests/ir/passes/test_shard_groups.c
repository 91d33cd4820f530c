/* Groups of operations: where they lie, what is sent, what is refused. That the step stays the same
 * on random models: tests/sim/run/test_property_groups.c. */
#include "ir/lang/lang.h"
#include "ir/strategy/group.h"
#include "tests/support/prove.h"
#include "tests/support/step.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Two products with different letters for the batch (`_0`, then b), a norm of all gradients. */
static const char model[] = "dir 1\n"
                            "param batch = 12, width = 4\n"
                            "topology @box {\n"
                            "  device gpu[6] : \"A100-SXM4-80GB\"\n"
                            "  switch sw\n"
                            "  link gpu[i] -- sw : 300 GB/s, 1 us for i in 0..6\n"
                            "}\n"
                            "mesh @all = [dp = 6] on @box\n"
                            "mesh @low = pick 0..2 of @all [dp = 2]\n"
                            "mesh @high = pick 2..6 of @all [dp = 4]\n"
                            "mesh @four = pick 2..6 of @all [dp = 2, tp = 2]\n"
                            "mesh @pair = pick 4..6 of @all [dp = 2]\n"
                            "func @net(%x: f32[batch@dp, width]) -> f32[batch, width] {\n"
                            "  weight %w : f32[width, width]\n"
                            "  weight %u : f32[width, width]\n"
                            "  weight %v : f32[width, width]\n"
                            "  %a = matmul(%x, %w)\n"
                            "  %r = relu(%a)\n"
                            "  %t = einsum(%r, %u) {rule = \"b k, k n -> b n\"}\n"
                            "  %s = matmul(%t, %v) {name = \"head.fc\"}\n"
                            "  %z = tanh(%s) {name = \"head.act\"}\n"
                            "  return %z\n"
                            "}\n";

static void write(char *text, size_t size, const char *train, const char *strategy) {
    snprintf(text, size,
             "%sscenario {\n  model = @net\n  on = @box\n"
             "  train { loss = mse, optimizer = sgd%s }\n  strategy {\n%s\n  }\n}\n",
             model, train, strategy);
}

/* The program, which must be equal to the unsharded step. */
static char *program_of(const char *train, const char *strategy) {
    char text[4096];
    proof_options options = {.seed = 1, .texts = true};
    proof p;
    step_case c;
    write(text, sizeof text, train, strategy);
    prove(text, &options, &p);
    cr_expect_eq(p.verdict, PROOF_EQUAL, "%s: %s: %s", strategy, proof_verdict_name(p.verdict),
                 p.what);
    step_make(&c, text, NULL, DS_PASS_SHARD);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    char *program = step_text(&c);
    step_free(&c);
    return program;
}

static int count(const char *program, const char *what) {
    int n = 0;
    for (const char *at = program; (at = strstr(at, what)); at++) n++;
    return n;
}

static void expect_has(const char *program, const char *what) {
    cr_expect_not_null(strstr(program, what), "%s is not in\n%s", what, program);
}

/* Both products are split by their batch, one of @t in the letter b; the input and the weights lie
 * where the group is, and the gradients are summed there. */
Test(shard_groups, replicas) {
    char *p = program_of("", "group \"g\" { ops = [\"a\", \"r\", \"t\"], on = @high }");
    expect_has(p, "%x: f32[batch@dp, width] on @high");
    expect_has(p, "%w: f32[width, width] on @high");
    expect_has(p,
               "%t = einsum(%r, %u) {rule = \"b k, k n -> b n\"} : f32[batch@dp, width] on @high");
    expect_has(p, "all_reduce(");
    cr_expect_eq(count(p, "on @m = pick"), 0);
    free(p);
}

/* All axes of the mesh share the batch. */
Test(shard_groups, replicas_over_two_axes) {
    char *p = program_of("", "group \"g\" { ops = [\"head.**\"], on = @four, by = all_reduce }");
    expect_has(p, "f32[batch@(dp,tp), width] on @four");
    free(p);
}

Test(shard_groups, copies_send_no_gradients) {
    char *p = program_of("", "group \"g\" { ops = [\"**\"], on = @high, by = duplicate }");
    expect_has(p, "%a = matmul(%x, %w) : f32[batch, width] on @high");
    cr_expect_eq(count(p, "all_reduce"), 0, "%s", p);
    cr_expect_eq(count(p, "@dp"), 0, "%s", p);
    free(p);
}

/* Three products of equal weights: two on the first device would be more than 1.5 times its part
 * only with three devices; relu and tanh stay where their operand is. */
Test(shard_groups, owners) {
    char *p = program_of("", "group \"g\" { ops = [\"**\"], on = @low, by = split }");
    cr_expect_eq(count(p, "all_reduce"), 0, "%s", p);
    expect_has(p, "%w: f32[width, width] on @low_0");
    expect_has(p, "on @low_1");
    expect_has(p, "mesh @low_1 = pick 1..2 of @low [dp = 1]");
    free(p);
}

/* A mesh with the strategy's axes on other devices is not the strategy's mesh. */
Test(shard_groups, devices_count_not_axes_alone) {
    char *p = program_of("", "dp = 2\ngroup \"g\" { ops = [\"head.**\"], on = @pair }");
    expect_has(p, "%v: f32[width, width] on @pair");
    expect_has(p, "%w: f32[width, width] on @m");
    free(p);
    p = program_of("", "dp = 2\ngroup \"g\" { ops = [\"head.**\"], on = @low }");
    cr_expect_eq(count(p, "reshard"), 0, "%s", p);
    free(p);
}

/* The norm of all gradients adds up scalars of every mesh, and the factor comes to the gradients. */
Test(shard_groups, norm_over_meshes) {
    char *p = program_of(", clip_norm = 0.001",
                         "dp = 2\n"
                         "group \"a\" { ops = [\"a\", \"r\"], on = @high, by = all_reduce }\n"
                         "group \"b\" { ops = [\"t\"], on = @pair, by = split }\n"
                         "group \"c\" { ops = [\"head.**\"], on = @four, by = duplicate }");
    expect_has(p, "%clip.cut = reshard(%clip)");
    free(p);
}

/* A backward op that a pattern of its own names: all compute the whole gradient. */
Test(shard_groups, backward_op) {
    char *p = program_of("", "dp = 2\ngroup \"g\" { ops = [\"head.fc.dw\"], by = duplicate }");
    expect_has(p, "all_reduce(%u.grad, %w.grad)");
    expect_has(p, "all_gather(%t)");
    cr_expect_eq(count(p, "%v.grad.sum"), 0, "%s", p);
    free(p);
}

/* An override goes before a group. */
Test(shard_groups, override_of_an_op_in_a_group) {
    char *p = program_of("", "dp = 2\nops { \"t\" = on @low [k: dp] }\n"
                             "group \"g\" { ops = [\"a\", \"t\"], on = @high }");
    expect_has(p, "%u: f32[width@dp, width] on @m");
    free(p);
}

/* In a pipeline, of stages of one width or of several: on the devices of the operations' stages, or on
 * others, to which nothing is sent but by a reshard. */
Test(shard_groups, stages) {
    static const char *const groups[] = {
        "group \"g\" { ops = [\"a\", \"head.**\"], by = duplicate }",
        "group \"g\" { ops = [\"a\", \"head.**\"], on = @pair, shares = [1, 2] }",
        "group \"g\" { ops = [\"**\"], on = @high, by = split }",
        "group \"g\" { ops = [\"a\", \"head.**\"], on = @four, by = ps }",
        "group \"g\" { ops = [\"t.dx\", \"head.fc.dx\"], by = duplicate }",
        "group \"g\" { ops = [\"t.dx\", \"head.fc.dx\"], on = @pair, by = duplicate }",
        "ops { \"a\" = on @low [k: dp], \"head.fc\" = on @pair [batch: dp] }"};
    static const char *const stages[] = {
        "pp = 2, dp = 2, tp = 1", "stage_dp = [2, 1], stage_tp = [1, 2]", "stage_dp = [1, 2]",
        "stage_dp = [2, 2], stage_tp = [2, 1], dp_shares = [1, 2], zero = 1"};
    for (size_t i = 0; i < 4 * sizeof groups / sizeof *groups; i++) {
        char text[4096], strategy[512];
        proof_options options = {.seed = 1, .settings = "batch=24", .texts = true, .ranks = true};
        proof p;
        snprintf(strategy, sizeof strategy, "%s, microbatches = 2, balance = flops\n%s",
                 stages[i % 4], groups[i / 4]);
        write(text, sizeof text, i % 4 ? "" : ", clip_norm = 0.01", strategy);
        prove(text, &options, &p);
        cr_expect_eq(p.verdict, PROOF_EQUAL, "%s: %s: %s", strategy, proof_verdict_name(p.verdict),
                     p.what);
    }
}

/* `batch` is a factor of overrides too. */
Test(shard_groups, batch_in_overrides) {
    char *p = program_of("", "ops { \"a\" = on @high [batch: dp], \"t\" = on @high [batch: dp] }");
    expect_has(p, "%a = matmul(%x.cut, %w) : f32[batch@dp, width] on @high");
    free(p);
}

/* ---- unequal parts ---- */

/* Twelve samples as 8 and 4, on a view with one axis; the same devices and shares are one mesh. */
Test(shard_groups, shares) {
    char *p = program_of("", "group \"a\" { ops = [\"a\"], on = @low, shares = [4, 2] }\n"
                             "group \"b\" { ops = [\"r\"], on = @low, shares = [2, 1] }\n"
                             "group \"c\" { ops = [\"t\"], on = @low }");
    expect_has(p, "mesh @low_shares = view @low [dp = 2]");
    cr_expect_eq(count(p, "mesh @low_shares"), 1, "%s", p);
    expect_has(p, "%x: f32[batch@dp[8,4], width] on @low_shares");
    expect_has(p, "%r = relu(%a) : f32[batch@dp[8,4], width] on @low_shares");
    expect_has(p, "%t = einsum(%r.cut, %u) {rule = \"b k, k n -> b n\"} : f32[batch@dp, width]");
    free(p);
}

/* Statistics of six groups of two images: a device has whole groups of its own images. */
Test(shard_groups, shares_of_statistics) {
    static const char text[] =
        "dir 1\n"
        "import \"models/resnet50.dir\" as r with image = 32, width = 2, classes = 4, blocks1 = 1, "
        "blocks2 = 1, blocks3 = 1, blocks4 = 1, batch = 12, bn_groups = 6\n"
        "topology @box {\n  device gpu[4]\n  switch sw\n"
        "  link gpu[i] -- sw : 1 GB/s, 1 us for i in 0..4\n}\n"
        "mesh @all = [dp = 4] on @box\nmesh @two = pick 1..3 of @all [dp = 2]\n"
        "scenario {\n  model = @r.resnet50\n  on = @box\n"
        "  train { loss = none, optimizer = sgd }\n  strategy {\n"
        "    group \"g\" { ops = [\"net.stem.**\"], on = @all, shares = [1, 1, 1, 3] }\n"
        "    group \"h\" { ops = [\"net.stage1.**\"], on = @two, shares = [1, 2] }\n  }\n}\n";
    proof_options options = {.seed = 1};
    proof p;
    prove(text, &options, &p);
    cr_expect_eq(p.verdict, PROOF_EQUAL, "%s: %s", proof_verdict_name(p.verdict), p.what);
    options.settings = "r.bn_groups=4";
    prove(text, &options, &p);
    cr_expect_eq(p.verdict, PROOF_REFUSED);
    cr_expect(strstr(p.what, "batch_norm") && strstr(p.what, "their shares, 6"), "%s", p.what);
}

/* The strategy's own shares, beside groups and overrides with shares of their own or without. */
Test(shard_groups, shares_of_the_strategy) {
    char *p =
        program_of("", "dp = 2, dp_shares = [1, 2], zero = 1\n"
                       "ops { \"a\" = on @low [batch: dp] }\n"
                       "group \"b\" { ops = [\"t\"], by = all_reduce }\n"
                       "group \"c\" { ops = [\"head.fc\"], on = @high, shares = [1, 2, 2, 1] }\n"
                       "group \"d\" { ops = [\"head.act\"], on = @low, by = all_reduce }");
    expect_has(p, "%a = matmul(%x, %w) : f32[batch@dp[4,8], width] on @m");
    expect_has(p, ": f32[batch@dp[4,8], width] on @m");
    expect_has(p, "f32[batch@dp[2,4,4,2], width] on @high_shares");
    expect_has(p, "%z = tanh(%s.cut) {name = \"head.act\"} : f32[batch@dp, width] on @m");
    free(p);
}

/* ---- refused ---- */

static void refuse(const char *strategy, const char *a, const char *b) {
    char text[4096];
    proof_options options = {.seed = 1};
    proof p;
    write(text, sizeof text, "", strategy);
    prove(text, &options, &p);
    cr_expect_neq(p.verdict, PROOF_EQUAL, "%s", strategy);
    cr_expect(strstr(p.what, a) && strstr(p.what, b), "%s: %s", strategy, p.what);
}

Test(shard_groups, refusals) {
    refuse("group \"g\" { ops = [\"fc7\"], on = @low }", "fc7", "no operation");
    refuse("group \"g\" { ops = [\"a\", \"t\"] }\ngroup \"h\" { ops = [\"r\", \"t\"] }",
           "\"g\" and \"h\"", "t is in the groups");
    refuse("group \"g\" { ops = [\"a\"], on = @none }", "@none", "mesh");
    refuse("group \"g\" { on = @low }", "\"g\"", "names no operations");
    refuse("group \"g\" { ops = [], on = @low }", "\"g\"", "names no operations");
    refuse("group \"g\" { ops = [\"a\"], by = ring }", "ring", "all_reduce");
    refuse("group \"g\" { ops = [\"a/\"] }", "\"a/\"", "no pattern");
    refuse("group \"g\" { ops = [\"a\"], of = 3 }", "unknown key 'of'", "group");
    refuse("group { ops = [\"a\"] }", "named block", "group \"stem\"");
    refuse("group \"g\" { ops = [\"a\"] }\ngroup \"g\" { ops = [\"t\"] }", "'g'", "given twice");
    refuse("group \"g\" { ops = [\"a\"], on = @low, shares = [1, 2, 3] }", "3 numbers",
           "2 devices of @low");
    refuse("group \"g\" { ops = [\"a\"], on = @low, shares = [5, 2] }",
           "\"g\": matmul a: a batch of size 12 cannot be split over the 2 devices of @low: ",
           "their shares, 7 without common divisors, does not divide it");
    refuse("group \"g\" { ops = [\"a\"], on = @low, shares = [1, 0] }", "shares' is 0",
           "at least 1");
    refuse("group \"g\" { ops = [\"a\"], on = @low, shares = [1, 2], by = split }", "split",
           "no device a part");
    refuse("group \"g\" { ops = [\"a\"], shares = [1, 2] }", "say `on`", "dp_shares");
    refuse("group \"g\" { ops = [\"a\"], on = @low, shares = time }", "time", "does not simulate");
    refuse("dp = 2, zero = 1, zero_uneven = true\n"
           "group \"g\" { ops = [\"a\"], on = @low, shares = [1, 2] }",
           "zero_uneven", "shares");
    refuse("groop \"g\" { ops = [\"a\"] }", "groop", "only a group");
    refuse("pp = 2, microbatches = 2, balance = flops, schedule = \"zb-h1\"\n"
           "group \"g\" { ops = [\"a\"], on = @low }",
           "zb-h1", "gradients of weights apart");
    refuse("pp = 2, microbatches = 4, balance = flops, schedule = \"dualpipe\"\n"
           "group \"g\" { ops = [\"a\"], on = @low, by = duplicate }",
           "dualpipe", "other meshes");
    refuse("pp = 2, microbatches = 2, balance = flops\ngroup \"g\" { ops = [\"a\"], by = ps }",
           "\"g\": by = ps beside a pipeline", "`on`");
}

Test(shard_groups, batch_that_does_not_divide) {
    char text[4096];
    proof_options options = {.seed = 1, .settings = "batch=10"};
    proof p;
    write(text, sizeof text, "", "group \"g\" { ops = [\"t\"], on = @high }");
    prove(text, &options, &p);
    cr_expect_eq(p.verdict, PROOF_REFUSED);
    cr_expect(strstr(p.what, "group \"g\": einsum t: a batch of size 10 cannot be split over the 4 "
                             "devices of @high"),
              "%s", p.what);
}

/* ---- written by a search ---- */

/* What is put into a scenario prints as a file that reads the same group. */
Test(shard_groups, put_and_read) {
    static const char *const ops[] = {"head.**", "a"};
    static const int64_t shares[] = {5, 2};
    ds_op_group said = {.name = "stem",
                        .ops = (const char **)(uintptr_t)ops,
                        .n_ops = 2,
                        .on = "low",
                        .by = DS_GROUP_DUPLICATE,
                        .shares = shares,
                        .n_shares = 2};
    char text[4096];
    ds_buf printed = {0};
    write(text, sizeof text, "", "dp = 2, group \"stem\" { ops = \"t\", by = split }");
    ds_unit *unit = ds_unit_new();
    ds_error err = {0};
    cr_assert_eq(ds_parse(ds_unit_add_module(unit, "net.dir", text, strlen(text)), &err), DS_OK);
    ds_group_put(unit, &said);
    ds_print_module(unit->modules.at[0], &printed);
    cr_expect_not_null(strstr(printed.text,
                              "group \"stem\" { ops = [\"head.**\", \"a\"], on = @low, "
                              "by = duplicate, shares = [5, 2] }"),
                       "%s", printed.text);
    cr_expect_null(strstr(printed.text, "split"), "the group of that name is replaced");
    ds_unit_free(unit);
    ds_buf_deinit(&printed);
}
