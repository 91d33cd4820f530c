/* Collectives alone on a star of n devices (10 GB/s and 1 us a hop, so 2 us a route) against their
 * closed forms, and on topologies where the bottleneck is shared. */
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <stdio.h>

#define STAR                                                                                       \
    "dir 1\n"                                                                                      \
    "param n = 8\n"                                                                                \
    "topology @star {\n"                                                                           \
    "  device d[n] : \"A100-SXM4-80GB\"\n"                                                         \
    "  switch s\n"                                                                                 \
    "  link d[i] -- s : 10 GB/s, 1 us for i in 0..n\n"                                             \
    "}\n"                                                                                          \
    "mesh @m = [dp = n] on @star\n"

static int64_t step(const char *text, const char *settings) {
    sim_case c;
    sim_run_text(&c, text, settings, false);
    int64_t ps = c.status == DS_OK ? c.result->run.step_ps : -1;
    sim_free(&c);
    return ps;
}

/* 80,000,000 bytes in f32; at 10 GB/s they take 8 ms = 8e9 ps. */
static int64_t one(const char *op, const char *in, const char *out, const char *clauses,
                   const char *settings) {
    char text[1024];
    snprintf(text, sizeof text,
             STAR "func @f(%%x: f32[%s) -> f32[%s {\n  %%y = %s(%%x) %s\n  return %%y\n}\n"
                  "scenario { program = @f }\n",
             in, out, op, clauses);
    return step(text, settings);
}

#define BYTES_PS INT64_C(8000000000)
#define HOP_PS   INT64_C(2000000)

Test(coll, ring_all_reduce) {
    /* 2(n−1) steps of 2 us, 2(n−1)/n of the bytes over every port */
    int64_t got = one("all_reduce", "20000000] on @m partial(dp)", "20000000] on @m",
                      "over dp {algorithm = \"ring\"}", NULL);
    cr_expect_eq(got, 14 * HOP_PS + BYTES_PS * 14 / 8, "%lld", (long long)got);
    got = one("all_reduce", "20000000] on @m partial(dp)", "20000000] on @m",
              "over dp {algorithm = \"ring\"}", "n=5");
    cr_expect_eq(got, 8 * HOP_PS + BYTES_PS * 8 / 5, "%lld", (long long)got);
}

Test(coll, tree_all_reduce) {
    /* Two trees with half of the bytes each: a member has at most 3 tree edges in one tree and 1 in
     * the other, in both directions; two edges deep (1, 2, 4), so 4 steps. Its port carries at most
     * (3 + 1)/2 · S. */
    int64_t got = one("all_reduce", "20000000] on @m partial(dp)", "20000000] on @m",
                      "over dp {algorithm = \"tree\"}", NULL);
    cr_expect_eq(got, 4 * HOP_PS + 2 * BYTES_PS, "%lld", (long long)got);
}

Test(coll, gathers_and_scatters_over_the_ring) {
    int64_t got = one("all_gather", "20000000@dp] on @m", "20000000] on @m", "over dp dim 0", NULL);
    cr_expect_eq(got, 7 * HOP_PS + BYTES_PS * 7 / 8, "%lld", (long long)got);
    got = one("reduce_scatter", "20000000] on @m partial(dp)", "20000000@dp] on @m",
              "over dp dim 0", NULL);
    cr_expect_eq(got, 7 * HOP_PS + BYTES_PS * 7 / 8, "%lld", (long long)got);
}

Test(coll, all_to_all_shares_the_ports) {
    /* 80 MB over 4 members: each sends 3/4 of its 20 MB, all at once: 3/4 · 2 ms, one step */
    int64_t got = one("all_to_all", "2500, 8000@dp] on @m", "2500@dp, 8000] on @m",
                      "over dp dim 1 -> 0", "n=4");
    cr_expect_eq(got, HOP_PS + BYTES_PS / 4 * 3 / 4, "%lld", (long long)got);
}

Test(coll, permute_and_broadcast) {
    int64_t got =
        one("permute", "20000000@dp] on @m", "20000000@dp] on @m", "over dp {shift = 1}", NULL);
    cr_expect_eq(got, HOP_PS + BYTES_PS / 8, "%lld", (long long)got);
    /* chain from the root: n−1 steps, all bytes over each hop; or tree: log2, 2 children a port */
    got = one("broadcast", "20000000] on @m{dp=0}", "20000000] on @m",
              "over dp {algorithm = \"ring\"}", NULL);
    cr_expect_eq(got, 7 * HOP_PS + BYTES_PS, "%lld", (long long)got);
    got = one("gather", "20000000@dp] on @m", "20000000] on @m{dp=0}", "over dp dim 0", NULL);
    cr_expect_eq(got, HOP_PS + BYTES_PS * 7 / 8, "%lld", (long long)got);
}

/* Four devices behind two switches: the ring crosses the 1 GB/s link between them once each way.
 * One latency of that hop; the next message's passes while the link is busy. */
Test(coll, a_ring_is_as_fast_as_its_slowest_hop) {
    int64_t got = step("dir 1\n"
                       "topology @t {\n"
                       "  device d[4] : \"A100-SXM4-80GB\"\n"
                       "  switch s[2]\n"
                       "  link d[i] -- s[i / 2] : 10 GB/s, 1 us for i in 0..4\n"
                       "  link s[0] -- s[1] : 1 GB/s, 3 us\n"
                       "}\n"
                       "mesh @m = [dp = 4] on @t\n"
                       "func @f(%x: f32[20000000] on @m partial(dp)) -> f32[20000000] on @m {\n"
                       "  %y = all_reduce(%x) over dp {algorithm = \"ring\"}\n  return %y\n}\n"
                       "scenario { program = @f }\n",
                       NULL);
    cr_expect_eq(got, 5000000 + BYTES_PS * 10 * 6 / 4, "%lld", (long long)got);
}

/* A bucket of two tensors is one launch over their sum. */
Test(coll, a_bucket_is_one_collective) {
    int64_t got = step(STAR "func @f(%x: f32[5000000] on @m partial(dp),\n"
                            "        %y: f32[15000000] on @m partial(dp))\n"
                            "    -> (f32[5000000] on @m, f32[15000000] on @m) {\n"
                            "  %a, %b = all_reduce(%x, %y) over dp {algorithm = \"ring\"}\n"
                            "  return %a, %b\n}\n"
                            "scenario { program = @f }\n",
                       NULL);
    cr_expect_eq(got, 14 * HOP_PS + BYTES_PS * 14 / 8, "%lld", (long long)got);
}

/* DistIR's style: one value a device, any number of them. */
Test(coll, across_three_devices) {
    int64_t got =
        step(STAR "func @f(%x0: f32[20000000] on @star.d[0], %x1: f32[20000000] on @star.d[1],\n"
                  "        %x2: f32[20000000] on @star.d[2]) {\n"
                  "  %a, %b, %c = all_reduce(%x0, %x1, %x2) across {algorithm = \"ring\"}\n"
                  "  return\n}\n"
                  "scenario { program = @f }\n",
             NULL);
    /* 20,000,000 floats do not divide by 3 in bytes: shards differ by one byte at most */
    int64_t exact = 4 * HOP_PS + BYTES_PS * 4 / 3;
    cr_expect(got >= exact - 1000 && got <= exact + 1000, "%lld", (long long)got);
}

/* The same program with one op more a layer: work is lowered once, whatever the number of layers.
 */
Test(coll, text_size_and_simulated_size_are_independent) {
    const char *text = STAR "param layers = 10\n"
                            "func @f(%x: f32[64, 64] on @m) -> f32[64, 64] on @m {\n"
                            "  %y = for l in 0..layers carry (%h = %x) {\n"
                            "    %a = relu(%h)\n    yield %a\n  }\n  return %y\n}\n"
                            "scenario { program = @f }\n";
    sim_case few, many;
    sim_run_text(&few, text, "layers=10", false);
    sim_run_text(&many, text, "layers=100000", false);
    cr_assert_eq(few.status, DS_OK);
    cr_assert_eq(many.status, DS_OK);
    cr_expect_eq(few.result->plan->records.n, many.result->plan->records.n);
    cr_expect_eq(many.result->run.step_ps, few.result->run.step_ps * 10000);
    cr_expect_eq(many.result->metrics.op_instances, 800000);
    sim_free(&few);
    sim_free(&many);
}

Test(coll, broadcast_over_a_tree) {
    /* two members: one edge, one step, all bytes */
    int64_t got = one("broadcast", "20000000] on @m{dp=0}", "20000000] on @m",
                      "over dp {algorithm = \"tree\"}", "n=2");
    cr_expect_eq(got, HOP_PS + BYTES_PS, "%lld", (long long)got);
    /* three: the root sends to both children at once through one port */
    got = one("broadcast", "20000000] on @m{dp=0}", "20000000] on @m",
              "over dp {algorithm = \"tree\"}", "n=3");
    cr_expect_eq(got, HOP_PS + 2 * BYTES_PS, "%lld", (long long)got);
}

/* A one-way ring whose link 0 → 1 is slow: reduce_scatter to shards of 6, 1 and 1 MiB sends all but
 * shard 0 over it (its partial sums set out at 1 and end at 0), all_gather all but shard 1. */
Test(coll, uneven_shards_load_the_right_hops) {
    const char *ring = "dir 1\n"
                       "topology @t {\n"
                       "  device d[3] : \"A100-SXM4-80GB\"\n"
                       "  link d[0] -> d[1] : 1 GB/s, 1 us\n"
                       "  link d[1] -> d[2] : 1000 GB/s, 1 us\n"
                       "  link d[2] -> d[0] : 1000 GB/s, 1 us\n"
                       "}\n"
                       "mesh @m = [dp = 3] on @t\n";
    char text[1024];
    snprintf(
        text, sizeof text,
        "%sfunc @f(%%x: i8[8000000] on @m partial(dp)) -> i8[8000000@dp[6000000, 1000000, "
        "1000000]] on @m {\n  %%y = reduce_scatter(%%x) over dp dim 0 : i8[8000000@dp[6000000, "
        "1000000, 1000000]] on @m\n  return %%y\n}\nscenario { program = @f }\n",
        ring);
    int64_t got = step(text, NULL);
    cr_expect_eq(got, 1000000 + INT64_C(2000000000), "%lld", (long long)got);
    snprintf(
        text, sizeof text,
        "%sfunc @f(%%x: i8[8000000@dp[6000000, 1000000, 1000000]] on @m) -> i8[8000000] on @m "
        "{\n  %%y = all_gather(%%x) over dp dim 0\n  return %%y\n}\nscenario { program = @f }\n",
        ring);
    got = step(text, NULL);
    cr_expect_eq(got, 1000000 + INT64_C(7000000000), "%lld", (long long)got);
}

Test(coll, a_single_route_carries_everything) {
    const char *text = "dir 1\n"
                       "topology @t {\n"
                       "  device d[2] : \"A100-SXM4-80GB\"\n"
                       "  switch s[2]\n"
                       "  link d[i] -- s[j] : 1 GB/s, 500 ns for i in 0..2, j in 0..2\n"
                       "}\n"
                       "func @f(%%x: i8[1000000] on @t.d[0]) -> i8[1000000] on @t.d[1] {\n"
                       "  %%y = send(%%x) to @t.d[1]%s\n  return %%y\n}\n"
                       "scenario { program = @f }\n";
    char both[1024], single[1024];
    snprintf(both, sizeof both, text, "");
    snprintf(single, sizeof single, text, " {route = single}");
    cr_expect_eq(step(both, NULL), 1000000 + INT64_C(500000000));
    cr_expect_eq(step(single, NULL), 1000000 + INT64_C(1000000000));
}

/* What would be wrong if it were simulated is refused. */
Test(coll, what_is_not_one_transfer_is_refused) {
    static const char *const bodies[] = {
        /* a device would send and receive in one op */
        "func @f(%x: f32[8@dp] on @a) -> f32[8@dp] on @b {\n  %y = send(%x) to @b\n  return %y\n}",
    };
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        char text[1024];
        snprintf(text, sizeof text,
                 STAR "mesh @a = pick 0..2 of @m [dp = 2]\nmesh @b = pick 1..3 of @m [dp = 2]\n"
                      "mesh @o = view @m [dp = 2, tp = 2]\n%s\nscenario { program = @f }\n",
                 bodies[i]);
        sim_case c;
        sim_run_text(&c, text, "n=4", false);
        cr_expect_eq(c.status, DS_ERR_UNSUPPORTED, "case %zu: %s %s", i, ds_status_name(c.status),
                     c.err.message);
        sim_free(&c);
    }
}

Test(coll, a_stated_cost_counts_where_nothing_moves) {
    cr_expect_eq(
        one("permute", "20000000] on @m", "20000000] on @m", "over dp {cost = 5 us}", "n=1"),
        5000000);
    cr_expect_eq(one("reshape", "20000000] on @m", "20000000] on @m",
                     "{shape = [20000000], cost = 7 us}", "n=1"),
                 7000000);
}
