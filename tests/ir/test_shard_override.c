/* Overrides of single ops, on the strategy's mesh and on views of it: the step stays the same. */
#include "tests/support/prove.h"
#include "tests/support/step.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A tied weight read in a loop and behind it, a weight a turn, a call. */
static const char model[] = "dir 1\nparam width = 12, batch = 12, layers = 2\n"
                            "topology @box {\n"
                            "  device gpu[6] : \"A100-SXM4-80GB\"\n"
                            "  switch sw\n"
                            "  link gpu[i] -- sw : 300 GB/s, 1 us for i in 0..6\n"
                            "}\n"
                            "mesh @base = [dp = 2, tp = 3] on @box\n"
                            "mesh @v = view @base [cp = 6]\n"
                            "func @half(%x: f32[batch@dp, width]) -> f32[batch, width] {\n"
                            "  weight %w : f32[width, width@tp]\n"
                            "  weight %c : f32[width@tp]\n"
                            "  %z = matmul(%x, %w)\n"
                            "  %b = bias(%z, %c)\n"
                            "  return %b\n"
                            "}\n"
                            "func @net(%x: f32[batch@dp, width]) -> f32[batch, width] {\n"
                            "  weight %tied : f32[width, width@tp]\n"
                            "  %y = for l in 0..layers carry (%h = %x) {\n"
                            "    %p = call @half(%h)\n"
                            "    %a = tanh(%p)\n"
                            "    %q = matmul(%a, %tied)\n"
                            "    %n = rms_norm(%q)\n"
                            "    yield %n\n"
                            "  }\n"
                            "  %t = matmul(%y, %tied)\n"
                            "  return %t\n"
                            "}\n";

static void expect_equal(const char *ops, int zero, int microbatches) {
    char text[4096];
    proof_options options = {.seed = 1, .texts = true};
    proof p;
    snprintf(text, sizeof text,
             "%sscenario {\n  model = @net\n  on = @box\n"
             "  train { loss = mse, optimizer = adam, dtype = bf16, keep_gradients = true }\n"
             "  strategy { dp = 2, tp = 3, zero = %d, microbatches = %d, ops {\n%s\n} }\n}\n",
             model, zero, microbatches, ops);
    prove(text, &options, &p);
    cr_expect_eq(p.verdict, PROOF_EQUAL, "zero = %d, %d microbatches, %s: %s: %s", zero,
                 microbatches, ops, proof_verdict_name(p.verdict), p.what);
}

static const char *const overrides[] = {
    "\"t\" = on @v [k: cp]",                                /* a tied weight lies on the view */
    "\"l[*].q\" = on @v [n: cp]",                           /* the same, from inside the loop */
    "\"net/l[*]/p/z\" = on @base [k: tp]",                  /* the whole path */
    "\"l[1].p.z\" = on @v [k: cp]\n\"n\" = on @v [_0: cp]", /* one turn */
    "\"p.b\" = on @v [b: cp]\n\"a\" = on @base [_0: [dp, tp]]",
};

Test(shard_override, the_step_stays_the_same) {
    for (int zero = 0; zero <= 3; zero++)
        for (size_t i = 0; i < sizeof overrides / sizeof *overrides; i++)
            expect_equal(overrides[i], zero, 1);
}

Test(shard_override, in_microbatches_too) {
    for (int zero = 0; zero <= 3; zero++)
        for (size_t i = 0; i < sizeof overrides / sizeof *overrides; i++)
            expect_equal(overrides[i], zero, 2);
}

/* "t.dense" and "t.d" are ops of the model, no backward ops of "t". */
Test(shard_override, names_that_begin_like_a_gradient) {
    static const char text[] = "dir 1\n"
                               "topology @box {\n"
                               "  device gpu[2] : \"A100-SXM4-80GB\"\n"
                               "  link gpu[0] -- gpu[1] : 300 GB/s, 1 us\n"
                               "}\n"
                               "mesh @base = [dp = 2] on @box\n"
                               "func @net(%x: f32[4@dp, 8]) -> f32[4, 8] {\n"
                               "  weight %w : f32[8, 8]\n"
                               "  weight %u : f32[8, 8]\n"
                               "  weight %v : f32[8, 8]\n"
                               "  %t = matmul(%x, %w)\n"
                               "  %a = matmul(%t, %u) {name = \"t.dense\"}\n"
                               "  %b = matmul(%a, %v) {name = \"t.d\"}\n"
                               "  return %b\n"
                               "}\n"
                               "scenario {\n  model = @net\n  on = @box\n"
                               "  strategy { dp = 2, ops { \"t\" = on @base [k: dp] } }\n}\n";
    step_case c;
    step_make(&c, text, NULL, DS_PASS_SHARD);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    char *program = step_text(&c);
    const char *sum = strstr(program, "all_reduce(%t)");
    sum = sum ? sum : strstr(program, "reduce_scatter(%t)");
    cr_expect_not_null(sum, "%s", program);
    cr_expect_null(strstr(program, "(%a)"), "%s", program);
    cr_expect_null(strstr(program, "(%b)"), "%s", program);
    free(program);
    step_free(&c);
}

/* A backward op whose letters are none of the op's, or other dims than the op's, lies as its
 * operand: the neg of a sub's gradient, a transpose (whose heads were words). */
Test(shard_override, backward_ops_without_the_letters) {
    static const char text[] = "dir 1\n"
                               "topology @box {\n"
                               "  device gpu[2] : \"A100-SXM4-80GB\"\n"
                               "  link gpu[0] -- gpu[1] : 300 GB/s, 1 us\n"
                               "}\n"
                               "mesh @base = [dp = 2] on @box\n"
                               "func @net(%x: f32[4, 8, 6]) -> f32[4, 6, 8] {\n"
                               "  weight %w : f32[6, 6]\n"
                               "  weight %u : f32[6, 6]\n"
                               "  %a = matmul(%x, %w)\n"
                               "  %b = matmul(%x, %u)\n"
                               "  %s = sub(%a, %b)\n"
                               "  %t = transpose(%s) {perm = [0, 2, 1]}\n"
                               "  return %t\n"
                               "}\n"
                               "scenario {\n  model = @net\n  on = @box\n"
                               "  train { loss = mse, optimizer = sgd }\n"
                               "  strategy { dp = 2, ops {\n"
                               "    \"a\" = on @base [_1: dp]\n    \"b\" = on @base [_1: dp]\n"
                               "    \"s\" = on @base [b: dp]\n    \"t\" = on @base [b: dp]\n"
                               "    \"loss\" = on @base [_2: dp] } }\n}\n";
    step_case c;
    step_make(&c, text, NULL, DS_PASS_SHARD);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    char *program = step_text(&c);
    cr_expect_null(strstr(program, "all_gather"), "%s", program);
    cr_expect_null(strstr(program, "all_to_all"), "%s", program);
    free(program);
    step_free(&c);
}

/* A batch is split by the groups that its statistics are of; the letter b is the batch of the lstm,
 * another dim in what its backward pass adds up. */
static const char grouped[] =
    "dir 1\nparam batch = 12\n"
    "topology @box {\n"
    "  device gpu[6] : \"A100-SXM4-80GB\"\n"
    "  switch sw\n"
    "  link gpu[i] -- sw : 300 GB/s, 1 us for i in 0..6\n"
    "}\n"
    "mesh @base = [dp = 2, tp = 3] on @box\n"
    "mesh @v = view @base [cp = 6]\n"
    "func @net(%x: f32[batch@dp, 4, 6]) -> f32[batch, 6] {\n"
    "  weight %g : f32[4]\n"
    "  weight %wx : f32[6, 24]\n"
    "  weight %wh : f32[6, 24]\n"
    "  %n = batch_norm(%x, %g) {groups = 6}\n"
    "  %y, %h = lstm(%n, %wx, %wh)\n"
    "  %s = reduce_mean(%y) {dims = 1}\n"
    "  %z = mul(%s, %h)\n"
    "  return %z\n"
    "}\n"
    "scenario {\n  model = @net\n  on = @box\n  train { loss = mse, optimizer = sgd }\n"
    "  strategy { dp = 2, tp = 3";

Test(shard_override, letters_of_the_backward_pass) {
    char text[4096];
    proof_options options = {.seed = 1, .texts = true};
    proof p;
    snprintf(text, sizeof text, "%s%s }\n}\n", grouped,
             ", ops { \"y\" = on @v [b: cp]\n\"n\" = on @v [u: cp] }");
    prove(text, &options, &p);
    cr_expect_eq(p.verdict, PROOF_EQUAL, "%s: %s", proof_verdict_name(p.verdict), p.what);
}

Test(shard_override, groups_of_batch_norm_keep_the_batch_split) {
    char text[4096];
    step_case c;
    snprintf(text, sizeof text, "%s }\n}\n", grouped);
    step_make(&c, text, NULL, DS_PASS_SHARD);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    char *program = step_text(&c);
    cr_expect_null(strstr(program, "all_gather"), "%s", program);
    free(program);
    step_free(&c);
}
