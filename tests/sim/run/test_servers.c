/* Parameter servers: what the program sends, where the states are, how long a push and a pull take. That
 * the step stays the same: tests/sim/run/test_property_groups.c. */
#include "ir/lang/lang.h"
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { K = 2048, N = 1024 }; /* weights of 8,388,608 bytes in f32 */

/* Two products; %w is weight 0 of the step, and %u weight 1. */
static void run_with(sim_case *c, int n, const char *optimizer, const char *strategy) {
    char text[1024];
    snprintf(text, sizeof text,
             "dir 1\nparam batch = 32\n"
             "topology @box {\n  device gpu[%d] : \"V100-SXM2-32GB\"\n  switch net\n"
             "  link gpu[i] -- net : 2810 MB/s, 1 us for i in 0..%d\n}\n"
             "func @net(%%x: f32[batch@dp, %d]) -> f32[batch, %d] {\n"
             "  weight %%w : f32[%d, %d]\n  weight %%u : f32[%d, %d]\n"
             "  %%a = matmul(%%x, %%w)\n  %%z = matmul(%%a, %%u) {transpose_b = true}\n"
             "  return %%z\n}\n"
             "scenario {\n  model = @net\n  on = @box\n  profile = ideal\n"
             "  train { loss = mse, optimizer = %s }\n"
             "  strategy { %s }\n}\n",
             n, n, K, K, K, N, K, N, optimizer, strategy);
    sim_run_text(c, text, NULL, false);
}

static void run(sim_case *c, int n, const char *optimizer, const char *by) {
    char text[256];
    snprintf(text, sizeof text, "dp = %d, group \"all\" { ops = [\"**\"], by = %s }", n, by);
    run_with(c, n, optimizer, text);
}

static char *program_of(const sim_case *c) {
    ds_buf text = {0};
    ds_print_module(c->result->step->unit->modules.at[0], &text);
    return text.text;
}

static void expect_has(const char *program, const char *what, bool has) {
    cr_expect_eq(strstr(program, what) != NULL, has, "%s is %sin\n%s", what, has ? "not " : "",
                 program);
}

static double task_us(const sim_case *c, const char *device, const char *path) {
    uint32_t task = sim_task(c, device, path);
    cr_assert_neq(task, UINT32_MAX);
    return (double)(c->result->run.end_ps[task] - c->result->run.start_ps[task]) / 1e6;
}

/* Device w mod n has the states of weight w, and updates it. */
Test(servers, send_weights) {
    sim_case c;
    run(&c, 2, "adam", "ps");
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    char *p = program_of(&c);
    expect_has(p, "%w.m: f32[2048, 1024] on @m{dp=0}", true);
    expect_has(p, "%u.v: f32[2048, 1024] on @m{dp=1}", true);
    expect_has(
        p, "reduce(%w.grad) over dp {root = 0, stream = \"server0\"} : f32[2048, 1024] on @m{dp=0}",
        true);
    expect_has(
        p, "reduce(%u.grad) over dp {root = 1, stream = \"server1\"} : f32[2048, 1024] on @m{dp=1}",
        true);
    expect_has(p, "broadcast(%w.new) over dp {stream = \"server0\"} : f32[2048, 1024] on @m", true);
    expect_has(p, "all_reduce(%w.grad", false);
    free(p);
    sim_free(&c);
}

/* The sum comes back, and every device has the states. */
Test(servers, send_gradients) {
    sim_case c;
    run(&c, 2, "adam", "ps, ps_sends = gradients");
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    char *p = program_of(&c);
    expect_has(p, "%w.m: f32[2048, 1024] on @m {role = optimizer}", true);
    expect_has(p, "reduce(%u.grad) over dp {root = 1, ", true);
    expect_has(p, "broadcast(%u.grad.sum) over dp", true);
    expect_has(p, "broadcast(%w.new", false);
    free(p);
    sim_free(&c);
}

/* A gradient of G bytes takes G / B and the latency of two links each way. The two servers send new
 * weights at once, in both directions of the links. The sum of %u comes back on the way of the push of
 * %w. */
Test(servers, a_push_and_a_pull) {
    double gradient = (double)K * N * 4 / 2810 + 2;
    sim_case c;
    run(&c, 2, "sgd", "ps");
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    static const char *const alone[] = {"u.grad.sum", "w.grad.sum", "w.new.pulled", "u.new.pulled"};
    for (int i = 0; i < 4; i++)
        cr_expect(fabs(task_us(&c, "gpu[0]", alone[i]) - gradient) < 0.01, "%s: %.2f us", alone[i],
                  task_us(&c, "gpu[0]", alone[i]));
    sim_free(&c);
    run(&c, 2, "sgd", "ps, ps_sends = gradients");
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    cr_expect(fabs(task_us(&c, "gpu[0]", "u.grad.sum") - gradient) < 0.01);
    cr_expect_gt(task_us(&c, "gpu[0]", "u.grad.sum.pulled"), gradient + 1);
    sim_free(&c);
}

/* Two moments of a weight, on one device or on each. */
Test(servers, states_are_where_the_update_is) {
    static const char *const ways[] = {"all_reduce", "ps, ps_sends = gradients", "ps"};
    for (int i = 0; i < 3; i++) {
        sim_case c;
        run(&c, 4, "adam", ways[i]);
        cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
        for (uint32_t d = 0; d < 4; d++) {
            const ds_mem_class *memory = &c.result->mem.classes[c.result->plan->class_of[d]];
            int64_t weights = i < 2 ? 2 : d < 2;
            cr_expect_eq(memory->most_by_category[DS_CAT_OPTIMIZER], weights * 2 * K * N * 4,
                         "%s, gpu %u: %lld bytes", ways[i], d,
                         (long long)memory->most_by_category[DS_CAT_OPTIMIZER]);
        }
        sim_free(&c);
    }
}

/* For the norm of all gradients each server adds up the squares of its own. */
Test(servers, norm_of_gradients) {
    sim_case c;
    run(&c, 2, "adam, clip_norm = 0.01", "ps");
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    char *p = program_of(&c);
    expect_has(p, "%w.grad.square = sum_squares(%w.grad.done) : f32[] on @m{dp=0}", true);
    expect_has(p, "%u.grad.square = sum_squares(%u.grad.done) : f32[] on @m{dp=1}", true);
    expect_has(p, "broadcast(%w.grad.square) over dp {stream = \"server0\"}", true);
    expect_has(p, "broadcast(%u.grad.square) over dp {stream = \"server1\"}", true);
    free(p);
    sim_free(&c);
}

/* With ZeRO the states of the group are on servers all the same; over two axes a server is one of all
 * devices, %u's the second. */
Test(servers, beside_zero_and_tensor_parallelism) {
    sim_case c;
    run_with(&c, 4, "adam", "dp = 2, tp = 2, zero = 2, group \"all\" { ops = [\"**\"], by = ps }");
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    char *p = program_of(&c);
    expect_has(p, "mesh @m_servers = view @m [dp = 4]", true);
    expect_has(p, "%w.m: f32[2048, 1024] on @m_servers{dp=0}", true);
    expect_has(p, "%u.v: f32[2048, 1024] on @m_servers{dp=1}", true);
    expect_has(p, "scatter", false);
    free(p);
    for (uint32_t d = 0; d < 4; d++)
        cr_expect_eq(
            c.result->mem.classes[c.result->plan->class_of[d]].most_by_category[DS_CAT_OPTIMIZER],
            (d < 2) * 2 * K * N * 4);
    sim_free(&c);
}

Test(servers, refused) {
    static const struct {
        const char *by, *message;
    } cases[] = {
        {"ps, ps_sends = sums }, group \"b\" { ops = [\"z\"]", "'ps_sends' cannot be sums"},
        {"sfb, ps_sends = weights", "ps_sends needs by = ps"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sim_case c;
        run(&c, 2, "adam", cases[i].by);
        cr_expect_neq(c.status, DS_OK, "%s", cases[i].by);
        cr_expect(strstr(c.err.message, cases[i].message) != NULL, "%s: %s", cases[i].by,
                  c.err.message);
        sim_free(&c);
    }
}
