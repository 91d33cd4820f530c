/* Degraded devices and links: durations and routes in closed form, and folded against unfolded. */
#include "ir/lang/lang.h"
#include "tests/support/generate/topo_text.h"
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define US INT64_C(1000000)
#define MS (1000 * US)

static void run(sim_case *c, const char *text, const char *degrades, bool unfold) {
    char whole[8192];
    snprintf(whole, sizeof whole, "%s%s", text, degrades);
    sim_run_text(c, whole, NULL, unfold);
    cr_assert_eq(c->status, DS_OK, "%s", c->err.message);
}

/* Folded and unfolded alike; returns that. */
static int64_t step_of(const char *text, const char *degrades) {
    sim_case folded, unfolded;
    run(&folded, text, degrades, false);
    run(&unfolded, text, degrades, true);
    int64_t ps = folded.result->run.step_ps;
    cr_expect_eq(ps, unfolded.result->run.step_ps, "folded %lld, unfolded %lld under %s",
                 (long long)ps, (long long)unfolded.result->run.step_ps, degrades);
    sim_free(&folded);
    sim_free(&unfolded);
    return ps;
}

/* ---- devices ---- */

/* A100: f32 19.5 TFLOP/s, 2.039 TB/s. matmul m = k = n = 1024 is compute-bound: 2^31 FLOP; relu of
 * 2^26 f32 is memory-bound: 2^29 bytes. */
#define ONE                                                                                        \
    "dir 1\ntopology @box {\n  device gpu[2] : \"A100-SXM4-80GB\"\n}\n"                            \
    "mesh @m = [dp = 2] on @box\n"
#define MATMUL                                                                                     \
    ONE "func @f(%x: f32[1024, 1024], %w: f32[1024, 1024]) -> f32[1024, 1024] {\n"                 \
        "  %y = matmul(%x, %w)\n  return %y\n}\nscenario { program = @f }\n"
#define RELU                                                                                       \
    ONE "func @f(%x: f32[67108864]) -> f32[67108864] {\n"                                          \
        "  %y = relu(%x)\n  return %y\n}\nscenario { program = @f }\n"
#define GIVEN                                                                                      \
    ONE "func @f(%x: f32[8]) -> f32[8] {\n"                                                        \
        "  %y = relu(%x) {cost = 27 us}\n  return %y\n}\nscenario { program = @f }\n"

static int64_t ceil_div(int64_t a, int64_t b) {
    return a / b + (a % b != 0);
}

Test(degrade, what_bounds_an_op_is_what_slows_it) {
    int64_t matmul = step_of(MATMUL, ""), relu = step_of(RELU, "");
    cr_assert_eq(matmul, ceil_div((INT64_C(1) << 31) * 10, 195)); /* ps at 19.5 FLOP/ps */
    cr_expect_eq(step_of(MATMUL, "degrade gpu[1] compute = 0.8\n"), ceil_div(matmul * 10, 8));
    cr_expect_eq(step_of(MATMUL, "degrade gpu[1] memory = 0.9\n"), matmul);
    cr_expect_eq(step_of(RELU, "degrade gpu[0] memory = 0.9\n"), ceil_div(relu * 10, 9));
    cr_expect_eq(step_of(RELU, "degrade gpu[0] compute = 0.8\n"), relu);
    cr_expect_eq(step_of(GIVEN, "degrade gpu[0] compute = 0.9\n"), 30 * US);
    cr_expect_eq(step_of(GIVEN, "degrade gpu[0] memory = 0.9\n"), 27 * US);
    /* the other device alone */
    cr_expect_eq(step_of(GIVEN, "degrade gpu[0] compute = 0.5\ndegrade gpu[0] compute = 1\n"),
                 27 * US, "the last of several holds");
}

/* bytes / (2.039 TB/s · m) overtakes FLOP / 19.5 TFLOP/s where m is small enough: 3 · 2^22 bytes
 * take 6171 ns, 2^31 FLOP take 110127 ns. */
Test(degrade, the_other_side_of_the_roofline_takes_over) {
    int64_t matmul = step_of(MATMUL, "");
    double memory_ps = 3 * 4194304.0 / 2.039;
    cr_expect_eq(step_of(MATMUL, "degrade gpu[1] memory = 0.1\n"), matmul);
    int64_t slow = step_of(MATMUL, "degrade gpu[1] memory = 0.05\n");
    cr_expect_float_eq((double)slow, memory_ps / 0.05, 50.0, "%lld", (long long)slow);
}

/* ---- a symmetric job with one slow device ---- */

/* One of 1,024, in a job with tensor and data parallelism: all of it waits, and the classes are
 * few. */
#define THOUSAND                                                                                   \
    "dir 1\ntopology @box {\n  device gpu[8] : \"A100-SXM4-80GB\"\n  switch s\n  nic nic\n"        \
    "  link gpu[i] -- s : 300 GB/s, 1 us for i in 0..8\n  link s -- nic : 25 GB/s, 1 us\n}\n"      \
    "topology @pod {\n  node n[128] : @box\n  switch spine[4]\n"                                   \
    "  link n[i].nic -- spine[j] : 25 GB/s, 2 us for i in 0..128, j in 0..4\n}\n"                  \
    "mesh @m = [dp = 128, tp = 8] on @pod\n"                                                       \
    "func @step(%x: f32[1024@dp, 8192@tp], %w: f32[8192@tp, 1024]) -> f32[1024] {\n"               \
    "  %y = matmul(%x, %w) {cost = 300 us}\n"                                                      \
    "  %r = all_reduce(%y) over tp\n"                                                              \
    "  %b = reduce_sum(%r) {dims = [0], cost = 50 us}\n"                                           \
    "  %s = all_reduce(%b) over dp"
#define THOUSAND_END "\n  return %s\n}\nscenario { program = @step }\n"

Test(degrade, a_thousand_wait_for_one) {
    static const char text[] = THOUSAND " {cost = 1 ms}" THOUSAND_END;
    sim_case whole, slow, each;
    run(&whole, text, "", false);
    run(&slow, text, "degrade n[77].gpu[5] compute = 0.6\n", false);
    run(&each, text, "degrade n[77].gpu[5] compute = 0.6\n", true);
    cr_expect_eq(slow.result->run.step_ps, each.result->run.step_ps);
    cr_expect_eq(each.result->plan->n_classes, 1024);
    /* the slow one, its node, its fellows of the dp ring, the others */
    cr_expect_leq(slow.result->plan->n_classes, 8, "%u", slow.result->plan->n_classes);
    /* 300 us and 50 us take 500 us and 84 us (83.3 rounded up to ps) */
    cr_expect_eq(slow.result->run.step_ps - whole.result->run.step_ps,
                 200 * US + ceil_div(50 * US * 10, 6) - 50 * US);
    uint32_t n;
    const ds_topo_degraded *all = ds_topo_degraded_all(slow.result->plan->topo, &n);
    cr_assert_eq(n, 1);
    cr_expect_not(all[0].is_link);
    cr_expect_str_eq(ds_topo_device_path(slow.result->plan->topo, all[0].i), "n[77].gpu[5]");
    sim_free(&whole);
    sim_free(&slow);
    sim_free(&each);
}

/* The rings of the others, which started before it, do not share the links with that of the slow
 * one; and a slow link beside the slow device. */
Test(degrade, contention_folds_too) {
    static const char text[] = THOUSAND THOUSAND_END;
    int64_t whole = step_of(text, "");
    int64_t slow = step_of(text, "degrade n[77].gpu[5] compute = 0.6\n");
    cr_expect_gt(slow, whole + 200 * US);
    cr_expect_leq(slow, whole + 234 * US);
    int64_t both = step_of(text, "degrade n[77].gpu[5] compute = 0.6\n"
                                 "degrade n[3].nic -> spine[2] bandwidth = 0.1\n");
    cr_expect_geq(both, slow);
}

/* ---- links ---- */

/* Four devices on a switch; a ring of 2 (n - 1) steps: alpha 2 us, bytes / 4 at the slowest link.
 */
#define STAR                                                                                       \
    "dir 1\ntopology @box {\n  device gpu[4] : \"A100-SXM4-80GB\"\n  switch s[2]\n"                \
    "  link gpu[i] -- s[0] : 100 GB/s, 1 us for i in 0..4\n"                                       \
    "  link gpu[i] -- s[1] : 50 GB/s, 2 us for i in 0..4\n}\n"                                     \
    "mesh @m = [dp = 4] on @box\n"                                                                 \
    "func @f(%x: f32[100000000] partial(dp)) -> f32[100000000] {\n"                                \
    "  %y = all_reduce(%x) over dp {algorithm = \"ring\"}\n  return %y\n}\n"                       \
    "scenario { program = @f }\n"

Test(degrade, a_ring_goes_at_the_rate_of_its_slowest_link) {
    int64_t bytes = 6 * 100 * INT64_C(1000000);               /* over each link */
    cr_assert_eq(step_of(STAR, ""), 6 * 2 * US + bytes * 10); /* 100 GB/s: 10 ps a byte */
    /* The slow hop is busy all the time; the others' latencies are hidden behind it or not. */
    int64_t half = step_of(STAR, "degrade gpu[2] -> s[0] bandwidth = 0.5\n");
    cr_expect(half >= bytes * 20 && half <= bytes * 20 + 6 * 2 * US, "%lld", (long long)half);
    /* At 25 GB/s the other switch is faster: 50 GB/s, and 2 us a hop. */
    int64_t quarter = step_of(STAR, "degrade gpu[2] -- s[0] bandwidth = 0.25\n");
    cr_expect(quarter >= bytes * 20 && quarter <= bytes * 20 + 6 * 4 * US, "%lld",
              (long long)quarter);
    /* With both ways at 25 GB/s none is. */
    int64_t both = step_of(STAR, "degrade gpu[2] -- s[0] bandwidth = 0.25\n"
                                 "degrade gpu[2] -- s[1] bandwidth = 0.5\n");
    cr_expect(both >= bytes * 40 && both <= bytes * 40 + 6 * 4 * US, "%lld", (long long)both);
}

/* Without its link to s[0] a device has only the slow switch: its two hops in the ring go over
 * s[1], 4 us and 50 GB/s. */
Test(degrade, a_missing_link_is_routed_around) {
    char text[2048];
    snprintf(text, sizeof text, "%sdegrade gpu[3] -- s[0] bandwidth = 0\n", &STAR[6]);
    topo_text t = topo_text_build(text);
    const ds_route *route = topo_text_route(&t, "gpu[3]", "gpu[0]");
    cr_assert_not_null(route);
    cr_expect_eq(route->latency_ps, 4 * US);
    cr_expect_eq(route->hops, 2);
    for (uint32_t i = 0; i < route->n_links; i++)
        cr_expect_eq(ds_topo_link_at(t.topo, route->links[i])->bytes_per_s, 50000000000);
    const ds_route *other = topo_text_route(&t, "gpu[1]", "gpu[0]");
    cr_expect_eq(other->latency_ps, 2 * US);
    topo_text_free(&t);
    int64_t bytes = 6 * 100 * INT64_C(1000000);
    int64_t step = step_of(STAR, "degrade gpu[3] -- s[0] bandwidth = 0\n");
    cr_expect_geq(step, bytes * 20);
    cr_expect_leq(step, bytes * 20 + 6 * 4 * US);
}

Test(degrade, who_cannot_be_reached_is_named) {
    sim_case c;
    char text[4096];
    snprintf(text, sizeof text, "%sdegrade gpu[3] bandwidth = 0\n", STAR);
    sim_run_text(&c, text, NULL, false);
    cr_assert_eq(c.status, DS_ERR_UNREACHABLE);
    cr_expect_not_null(strstr(c.err.message, "gpu[3]"), "%s", c.err.message);
    cr_expect_not_null(strstr(c.err.message, "missing"), "%s", c.err.message);
    sim_free(&c);
}

/* Loops, instances, and a direction of its own; what is not named stays whole. */
Test(degrade, loops_and_whole_instances) {
    topo_text t = topo_text_build(
        "topology @box {\n  device gpu[2] : \"X\"\n  switch s\n"
        "  link gpu[i] -- s : 100 GB/s, 1 us for i in 0..2\n}\n"
        "topology @pod {\n  node n[3] : @box\n  switch top\n"
        "  link n[i].s -- top : 10 GB/s, 3 us for i in 0..3\n}\n"
        "mesh @m = [dp = 6] on @pod\n"
        "degrade n[i].gpu[j] -> n[i].s bandwidth = 0.5, latency = 2 for i in 0..3, j in 0..2 "
        "where i != j\n"
        "degrade n[1] compute = 0.5, memory = 0.25\n"
        "degrade n[2] -- top latency = 10\n");
    int64_t compute, memory;
    for (uint32_t d = 0; d < 6; d++) {
        ds_topo_device_shares(t.topo, d, &compute, &memory);
        cr_expect_eq(compute, d / 2 == 1 ? 500000000 : 1000000000);
        cr_expect_eq(memory, d / 2 == 1 ? 250000000 : 1000000000);
        char from[32], to[32];
        snprintf(from, sizeof from, "n[%u].gpu[%u]", d / 2, d % 2);
        snprintf(to, sizeof to, "n[%u].s", d / 2);
        bool slow = d / 2 != d % 2;
        const ds_route *up = topo_text_route(&t, from, to), *down = topo_text_route(&t, to, from);
        cr_expect_eq(up->latency_ps, slow ? 2 * US : US, "%s", from);
        cr_expect_eq(ds_topo_link_at(t.topo, up->links[0])->bytes_per_s,
                     slow ? 50000000000 : 100000000000);
        cr_expect_eq(down->latency_ps, US);
        const ds_route *out = topo_text_route(&t, to, "top");
        cr_expect_eq(out->latency_ps, d / 2 == 2 ? 30 * US : 3 * US);
    }
    uint32_t n;
    ds_topo_degraded_all(t.topo, &n);
    cr_expect_eq(n, 2 + 4 + 2);
    topo_text_free(&t);
}

/* ---- sustained_clock ---- */

#define CLOCKED(attrs)                                                                             \
    "dir 1\nparam part = 0.8\n"                                                                    \
    "topology @box {\n  device gpu[2] : \"A100-SXM4-80GB\"" attrs "\n}\n"                          \
    "mesh @m = [dp = 2] on @box\n"
#define PRODUCT                                                                                    \
    "func @f(%x: f32[1024, 1024], %w: f32[1024, 1024]) -> f32[1024, 1024] {\n"                     \
    "  %y = matmul(%x, %w)\n  return %y\n}\n"
#define SMALL_SUM "func @f(%x: f32[67108864]) -> f32[67108864] {\n  %y = relu(%x)\n  return %y\n}\n"
#define RUN_IT    "scenario { program = @f }\n"

/* 2^31 FLOP at 0.8 of 19.5 FLOP/ps; what memory bounds takes as long as before. */
Test(clock, multiplies_peaks_of_compute_alone) {
    int64_t whole = step_of(CLOCKED("") PRODUCT RUN_IT, "");
    int64_t slow = step_of(CLOCKED(" {sustained_clock = part}") PRODUCT RUN_IT, "");
    cr_assert_eq(whole, ceil_div((INT64_C(1) << 31) * 10, 195));
    cr_expect_eq(slow, ceil_div(whole * 10, 8));
    cr_expect_eq(step_of(CLOCKED(" {sustained_clock = 1}") PRODUCT RUN_IT, ""), whole);
    cr_expect_eq(step_of(CLOCKED(" {sustained_clock = 0.5}") SMALL_SUM RUN_IT, ""),
                 step_of(CLOCKED("") SMALL_SUM RUN_IT, ""));
    /* what the program says is no peak */
    cr_expect_eq(step_of(CLOCKED(" {sustained_clock = 0.5}") "func @f(%x: f32[8]) -> f32[8] {\n"
                                                             "  %y = relu(%x) {cost = 27 us}\n"
                                                             "  return %y\n}\n" RUN_IT,
                         ""),
                 27 * US);
    /* with a degraded device one after the other: 0.8 of 0.5 */
    cr_expect_eq(step_of(CLOCKED(" {sustained_clock = part}") PRODUCT RUN_IT,
                         "degrade gpu[1] compute = 0.5\n"),
                 2 * slow);
}

/* 0.96 (((300 - 80)/(400 - 80)) 0.83)^(1/3) = 0.79626 of the clock, at the data sheet's peak; what
 * memory bounds keeps its time. */
Test(clock, falls_under_a_power_cap) {
    double whole = (double)step_of(CLOCKED("") PRODUCT RUN_IT, "");
    double capped = (double)step_of(CLOCKED(" {power_cap = 300}") PRODUCT RUN_IT, "");
    cr_expect_float_eq(capped / whole, 1 / 0.79625987, 1e-5);
    cr_expect_eq(step_of(CLOCKED(" {power_cap = 300}") SMALL_SUM RUN_IT, ""),
                 step_of(CLOCKED("") SMALL_SUM RUN_IT, ""));
    /* unlike caps are unlike devices */
    sim_case c;
    run(&c,
        "dir 1\ntopology @box {\n  device a[3] : \"A100-SXM4-80GB\"\n"
        "  device b : \"A100-SXM4-80GB\" {power_cap = 300}\n}\n"
        "mesh @m = [dp = 4] on @box\n" PRODUCT RUN_IT,
        "", false);
    cr_expect_eq(c.result->plan->n_classes, 2);
    sim_free(&c);
}

/* Two declarations of one kind with unlike clocks are unlike devices: the slower one ends last. */
Test(clock, devices_of_unlike_clocks_are_unlike) {
    const char *text = "dir 1\ntopology @box {\n  device a[3] : \"A100-SXM4-80GB\"\n"
                       "  device b : \"A100-SXM4-80GB\" {sustained_clock = 0.5}\n}\n"
                       "mesh @m = [dp = 4] on @box\n" PRODUCT RUN_IT;
    sim_case c;
    run(&c, text, "", false);
    cr_expect_eq(c.result->plan->n_classes, 2);
    cr_expect_eq(c.result->run.step_ps, 2 * ceil_div((INT64_C(1) << 31) * 10, 195));
    sim_free(&c);
}

/* A profile's times were taken at the clock that its device had. */
Test(clock, leaves_measured_times_alone) {
#define AT(attrs)                                                                                  \
    "dir 1\ntopology @box {\n  device gpu : \"A100-SXM4-80GB\"" attrs "\n}\n"                      \
    "mesh @m = [dp = 1] on @box\n"                                                                 \
    "func @f(%x: bf16[4096, 4096], %w: bf16[4096, 4096]) -> bf16[4096, 4096] {\n"                  \
    "  %y = matmul(%x, %w)\n  return %y\n}\n"                                                      \
    "scenario {\n  program = @f\n  profile = \"A100-SXM4-80GB\"\n  cost = fitted\n}\n"
    cr_expect_eq(step_of(AT(" {sustained_clock = 0.5}"), ""), step_of(AT(""), ""));
#undef AT
}

Test(clock, what_it_cannot_be) {
    static const struct {
        const char *node, *message;
    } cases[] = {
        {"device gpu : \"X\" {sustained_clock = 1.5}", "`sustained_clock` of `gpu` is 1.5"},
        {"device gpu : \"X\" {sustained_clock = 0}", "`sustained_clock` of `gpu` is 0"},
        {"device gpu : \"X\" {sustained_clock = true}", "must be a number"},
        {"device gpu : \"X\"\n  switch s {sustained_clock = 0.5}", "is not an attribute"},
        {"device gpu : \"X\" {power_cap = 0}", "`power_cap` of `gpu` is 0"},
        {"device gpu : \"X\" {power_cap = true}", "must be a number of watts"},
        {"device gpu : \"X\"\n  switch s {power_cap = 500}", "is not an attribute"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256];
        topo_text t;
        ds_error err = {0};
        snprintf(text, sizeof text, "topology @box {\n  %s\n}\n", cases[i].node);
        cr_expect_neq(topo_text_try(text, &t, &err), DS_OK);
        cr_expect(strstr(err.message, cases[i].message), "%s", err.message);
        topo_text_free(&t);
    }
}
