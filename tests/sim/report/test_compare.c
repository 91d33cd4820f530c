/* Two runs: the lines of a comparison are those worked out by hand, and add up to the differences
 * of steps and peaks for every pair of scenarios. */
#include "tests/support/sim.h"

#include "sim/report/analysis.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define US INT64_C(1000000)

#define HEAD                                                                                       \
    "dir 1\n"                                                                                      \
    "topology @t {\n"                                                                              \
    "  device d[4] : \"V100-PCIE-16GB\"\n"                                                         \
    "  switch s\n"                                                                                 \
    "  link d[i] -- s : 10 GB/s, 1 us for i in 0..4\n"                                             \
    "}\n"                                                                                          \
    "param n = 8\n"                                                                                \
    "mesh @m = [dp = 2, tp = 2] on @t\n"

static void run(sim_case *c, const char *body, const char *settings) {
    ds_buf text = {0};
    ds_buf_printf(&text, HEAD "func @f(%s\nscenario { program = @f }\n", body);
    sim_run_text(c, text.text, settings, false);
    cr_assert_eq(c->status, DS_OK);
    ds_buf_deinit(&text);
}

static void sums(const ds_comparison *c, const char *name) {
    int64_t time = 0, memory = 0, last = INT64_MAX;
    for (uint32_t i = 0; i < c->time.n; i++) {
        int64_t d = c->time.at[i].b - c->time.at[i].a;
        time += d;
        cr_expect_leq(llabs(d), last, "%s: largest first", name);
        last = llabs(d);
    }
    last = INT64_MAX;
    for (uint32_t i = 0; i < c->memory.n; i++) {
        int64_t d = c->memory.at[i].b - c->memory.at[i].a;
        memory += d;
        cr_expect_leq(llabs(d), last, "%s: largest first", name);
        last = llabs(d);
    }
    cr_expect_eq(time, c->b->run.step_ps - c->a->run.step_ps, "%s: time", name);
    cr_expect_eq(memory, c->b->metrics.peak_bytes - c->a->metrics.peak_bytes, "%s: memory", name);
}

static void expect(const ds_difference *d, ds_time_kind kind, const char *what, int64_t a_us,
                   int64_t b_us) {
    cr_expect_eq(d->kind, kind, "%s", what);
    cr_expect_str_eq(d->what, what);
    cr_expect_eq(d->a, a_us * US, "%s: %lld", what, (long long)d->a);
    cr_expect_eq(d->b, b_us * US, "%s: %lld", what, (long long)d->b);
}

/* A: matmul 4, its result's permute over dp 6, of which relu hides 2. B: over tp 5, nothing hidden,
 * then idle 1 while d0 waits for its partner: a tanh of 6 on d1 alone. */
Test(compare, by_hand) {
    sim_case a, b;
    run(&a,
        "%x: f32[n, 8] on @m, %w: f32[8, 8] on @m) {\n"
        "  %y = matmul(%x, %w) {cost = 4 us}\n"
        "  %p = permute(%y) over dp {cost = 6 us}\n"
        "  %r = relu(%y) {cost = 2 us}\n"
        "  %s = relu(%p) {cost = 1 us}\n  return\n}",
        NULL);
    run(&b,
        "%x: f32[n, 8] on @m, %w: f32[8, 8] on @m, %z: f32[8] on @t.d[1]) {\n"
        "  %t = tanh(%z) {cost = 1 us}\n"
        "  %y = matmul(%x, %w) {cost = 3 us}\n"
        "  %p = permute(%y) over tp {cost = 5 us}\n"
        "  %s = relu(%p) {cost = 2 us}\n  return\n}",
        "n=16");
    cr_assert_eq(a.result->run.step_ps, 11 * US);
    cr_assert_eq(b.result->run.step_ps, 11 * US);
    ds_comparison c;
    ds_compare(a.result, b.result, &c);
    cr_assert_eq(c.time.n, 5);
    expect(&c.time.at[0], DS_TIME_COMM, "tp", 0, 5);
    expect(&c.time.at[1], DS_TIME_COMM, "dp", 4, 0);
    expect(&c.time.at[2], DS_TIME_COMPUTE, "linear", 4, 3);
    expect(&c.time.at[3], DS_TIME_COMPUTE, "elementwise", 3, 2);
    expect(&c.time.at[4], DS_TIME_IDLE, "", 0, 1);
    sums(&c, "by hand");
    cr_assert_eq(c.knobs.n, 1);
    cr_expect_str_eq(c.knobs.at[0].name, "n");
    cr_expect_str_eq(c.knobs.at[0].a, "8");
    cr_expect_str_eq(c.knobs.at[0].b, "16");
    ds_comparison_deinit(&c);
    sim_free(&a);
    sim_free(&b);
}

Test(compare, names_the_knobs_that_differ) {
    sim_case a, b;
    sim_run_file(&a, "scenarios/tour.dir", NULL, false);
    sim_run_file(&b, "scenarios/tour.dir", "dp=8 tp=1 batch=16384", false);
    cr_assert(a.status == DS_OK && b.status == DS_OK);
    ds_comparison c;
    ds_compare(a.result, b.result, &c);
    sums(&c, "tour");
    static const char *const wanted[][3] = {
        {"strategy.dp", "2", "8"}, {"strategy.tp", "4", "1"}, {"batch", "8192", "16384"}};
    cr_assert_eq(c.knobs.n, 3, "params that a knob names too are told once");
    for (uint32_t i = 0; i < 3; i++) {
        cr_expect_str_eq(c.knobs.at[i].name, wanted[i][0]);
        cr_expect_str_eq(c.knobs.at[i].a, wanted[i][1]);
        cr_expect_str_eq(c.knobs.at[i].b, wanted[i][2]);
    }
    ds_comparison_deinit(&c);
    ds_compare(a.result, a.result, &c);
    sums(&c, "itself");
    cr_expect_eq(c.knobs.n, 0);
    ds_buf text = {0};
    ds_report_comparison(&c, &text);
    cr_expect(strstr(text.text, "Nothing is set differently"), "%s", text.text);
    ds_buf_deinit(&text);
    ds_comparison_deinit(&c);
    sim_free(&a);
    sim_free(&b);
}

static int64_t int_at(json_t *object, const char *key) {
    json_t *value = json_object_get(object, key);
    cr_assert(json_is_integer(value), "%s", key);
    return json_integer_value(value);
}

static int64_t sum_at(json_t *object, const char *list, const char *key) {
    int64_t sum = 0;
    size_t i;
    json_t *line;
    json_array_foreach(json_object_get(object, list), i, line) sum += int_at(line, key);
    return sum;
}

Test(compare, adds_up_for_every_pair_of_scenarios) {
    static const char *const files[] = {
        "scenarios/distir-mlp.dir",   "scenarios/pipeline-2x4.dir",  "scenarios/gpt3-layer-tp8.dir",
        "scenarios/mixed-box-dp.dir", "scenarios/out-of-memory.dir", "scenarios/mlp-training.dir",
        "scenarios/gpt2-dp4.dir",     "scenarios/tour.dir",
    };
    enum { N = sizeof files / sizeof *files };
    sim_case cases[N];
    for (size_t i = 0; i < N; i++) {
        sim_run_file(&cases[i], files[i], NULL, false);
        cr_assert_eq(cases[i].status, DS_OK, "%s", files[i]);
    }
    for (size_t i = 0; i < N * N; i++) {
        const ds_result *a = cases[i / N].result, *b = cases[i % N].result;
        ds_comparison c;
        ds_compare(a, b, &c);
        sums(&c, files[i % N]);
        ds_buf text = {0};
        ds_report_comparison_json(&c, &text);
        json_t *json = json_loads(text.text, JSON_REJECT_DUPLICATES, NULL);
        cr_assert(json, "%s", text.text);
        cr_expect_eq(sum_at(json, "time", "a_ps"), a->run.step_ps);
        cr_expect_eq(sum_at(json, "time", "b_ps"), b->run.step_ps);
        cr_expect_eq(sum_at(json, "time", "difference_ps"),
                     int_at(json, "step_time_difference_ps"));
        cr_expect_eq(sum_at(json, "memory", "a_bytes"), a->metrics.peak_bytes);
        cr_expect_eq(sum_at(json, "memory", "difference_bytes"),
                     int_at(json, "peak_memory_difference_bytes"));
        json_decref(json);
        ds_buf_deinit(&text);
        ds_comparison_deinit(&c);
    }
    for (size_t i = 0; i < N; i++) sim_free(&cases[i]);
}
