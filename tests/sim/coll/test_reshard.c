/* Resharding against closed forms: bytes of the slices over the NIC's bandwidth. */
#include "sim/coll/reshard.h"

#include "ir/base/rng.h"
#include "tests/support/cases.h"
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Machines of two devices on a fast switch (100 GB/s, 1 us a link) and one port of 1 GB/s for both;
 * between devices of two machines 2 + 10 us. */
#define HEAD                                                                                       \
    "dir 1\nparam machines = 4\n"                                                                  \
    "topology @node {\n  device d[2] : \"A100-SXM4-80GB\"\n  switch s\n  nic nic\n"                \
    "  link d[i] -- s : 100 GB/s, 1 us for i in 0..2\n  link s -- nic : 1 GB/s, 0 us\n}\n"         \
    "topology @t {\n  node n[machines] : @node\n  switch net\n"                                    \
    "  link n[i].nic -- net : 100 GB/s, 5 us for i in 0..machines\n}\n"                            \
    "mesh @m = [dp = machines, tp = 2] on @t\n"                                                    \
    "mesh @a = pick 0..4 of @m [dp = 2, tp = 2]\nmesh @b = pick 4..8 of @m [dp = 2, tp = 2]\n"     \
    "mesh @one = pick 0..1 of @m [dp = 1]\nmesh @rest = pick 2..2 * machines of @m [dp = "         \
    "machines "                                                                                    \
    "- 1, tp = 2]\n"

#define US    INT64_C(1000000)
#define MB_PS (1000 * US) /* 10^6 bytes at 1 GB/s */

static int64_t run_body(const char *body, const char *settings, bool unfold, const char *network) {
    char text[4096];
    snprintf(text, sizeof text, HEAD "%s\nscenario { program = @f, network = %s }\n", body,
             network);
    sim_case c;
    sim_run_text(&c, text, settings, unfold);
    int64_t ps = c.status == DS_OK ? c.result->run.step_ps : -1;
    cr_expect_eq(c.status, DS_OK, "%s: %s", body, c.err.message);
    sim_free(&c);
    return ps;
}

/* i8 of `from` to `to`. */
static int64_t move(const char *from, const char *to, const char *attrs, const char *settings) {
    char body[1024];
    snprintf(body, sizeof body,
             "func @f(%%x: i8[%s) -> i8[%s {\n  %%y = reshard(%%x) {%s} : i8[%s\n  return %%y\n}",
             from, to, attrs, to);
    int64_t fluid = run_body(body, settings, false, "fluid");
    cr_expect_eq(run_body(body, settings, true, "fluid"), fluid, "%s: unfolded", body);
    return fluid;
}

/* A chain over `ports` hops between machines and `local` ones inside, in 256 chunks: latencies, the
 * slowest link, and of the other hops a chunk each. */
static int64_t chain_ps(int64_t bytes, int64_t ports, int64_t local) {
    int64_t hop_ps = bytes * 1000, fill_ps = (ports - 1) * hop_ps + local * (hop_ps / 100);
    return (ports * 12 + local * 2) * US + hop_ps + fill_ps / 256;
}

/* Equal but for whole bytes of chunks. */
static void expect_near(int64_t ps, int64_t want_ps) {
    cr_expect_leq(llabs(ps - want_ps), 200 * 1000, "%" PRId64 ", not %" PRId64, ps, want_ps);
}

/* Equal but for shares of bandwidth rounded down. */
static void expect_ps(int64_t ps, int64_t want_ps) {
    cr_expect(ps >= want_ps && ps <= want_ps + 10, "%" PRId64 ", not %" PRId64, ps, want_ps);
}

/* One sender: m receivers elsewhere get m times the bytes, or once all in a row. */
Test(reshard, one_to_many) {
    for (int machines = 4; machines <= 6; machines++) {
        char settings[32];
        snprintf(settings, sizeof settings, "machines=%d", machines);
        int64_t m = 2 * (machines - 1);
        const char *from = "60000000] on @one", *to = "60000000] on @rest";
        expect_ps(move(from, to, "algorithm = \"send_recv\"", settings), 12 * US + m * 60 * MB_PS);
        expect_near(move(from, to, "algorithm = \"broadcast\"", settings),
                    chain_ps(60000000, m / 2, m / 2));
        /* half to each device, then one step in every machine: 2 us + 30 MB at 100 GB/s */
        expect_ps(move(from, to, "algorithm = \"send_recv_gather\"", settings),
                  12 * US + m * 30 * MB_PS + 2 * US + 300 * US);
    }
}

/* The fastest by name is what is chosen without one. */
Test(reshard, the_fastest_is_chosen) {
    const char *from = "60000000] on @one", *to = "60000000] on @rest";
    int64_t best = move(from, to, "algorithm = \"broadcast\"", "machines=5");
    cr_expect_eq(move(from, to, "", "machines=5"), best);
    cr_expect_eq(move(from, to, "algorithm = fastest", "machines=5"), best);
}

/* Rows over machines to columns over machines: four quarters; two at a time, if in a good order. */
Test(reshard, order_of_broadcasts) {
    const char *from = "8000@dp, 1000] on @a", *to = "8000, 1000@dp] on @b";
    /* each quarter through one port, where it waits for no more than that, and on to another device
     */
    int64_t quarter = chain_ps(2000000, 1, 1);
    expect_near(move(from, to, "algorithm = \"broadcast\"", NULL), 2 * MB_PS + quarter);
    expect_near(move(from, to, "algorithm = \"broadcast\", balance = none", NULL),
                4 * MB_PS + quarter);
    cr_expect_eq(move(from, to, "algorithm = \"send_recv\"", NULL), 8 * MB_PS + 12 * US);
}

/* Replicas on two machines: the first one sends all, or each half. */
Test(reshard, senders_are_balanced) {
    const char *from = "8000000] on @a", *to = "8000000@dp] on @b";
    int64_t half = chain_ps(4000000, 1, 1);
    expect_near(move(from, to, "algorithm = \"broadcast\", balance = none", NULL),
                4 * MB_PS + half);
    expect_near(move(from, to, "algorithm = \"broadcast\", balance = size", NULL), half);
    cr_expect_eq(move(from, to, "algorithm = \"send_recv\"", NULL), 8 * MB_PS + 12 * US);
    /* other groups share the machines' ports: they choose together */
    const char *quarters = "8000000@tp] on @a";
    expect_near(move(quarters, to, "algorithm = \"broadcast\"", NULL),
                2 * MB_PS + chain_ps(2000000, 1, 1));
}

/* 3 : 1 to even on the same devices: 2 MB more for those of the second machine, not all to all. */
Test(reshard, uneven_shards) {
    const char *from = "8000000@dp[6000000, 2000000]] on @a", *to = "8000000@dp] on @a";
    cr_expect_eq(move(from, to, "algorithm = send_recv", NULL), 12 * US + 2 * 2 * MB_PS);
    expect_near(move(from, to, "algorithm = broadcast", NULL), chain_ps(2000000, 1, 1));
    /* 1 MB to each, 1 MB at 100 GB/s between them */
    cr_expect_eq(move(from, to, "algorithm = send_recv_gather", NULL),
                 12 * US + 2 * MB_PS + 2 * US + 10 * US);
    expect_near(move(from, to, "", NULL), chain_ps(2000000, 1, 1));
    /* elsewhere: 6 and 2 MB to 4 and 4 */
    expect_near(move(from, "8000000@dp] on @b", "algorithm = broadcast", NULL),
                4 * MB_PS + chain_ps(2000000, 1, 1));
}

/* Chunks cut chains, not what is sent at once: the second hop begins a fourth later. */
Test(reshard, chunks) {
    const char *terms = "8000000] on @a partial(dp)", *to = "8000000@dp] on @b";
    static const char *const networks[] = {"fluid", "stepwise"};
    for (int i = 0; i < 2; i++) {
        char body[512];
        snprintf(body, sizeof body,
                 "func @f(%%x: i8[%s) -> i8[%s {\n  %%y = reshard(%%x) {algorithm = "
                 "send_recv_gather, chunks = 4} : i8[%s\n  return %%y\n}",
                 terms, to, to);
        int64_t sums = 12 * US + 2 * 4 * MB_PS, sends = 12 * US + 4 * MB_PS,
                gathers = 2 * US + 20 * US;
        expect_ps(run_body(body, NULL, false, networks[i]), sums + sends + gathers);
    }
    expect_near(
        move("8000000@dp] on @a", "8000000@dp] on @b", "algorithm = broadcast, chunks = 4", NULL),
        14 * US + 4 * MB_PS + 10 * US); /* a fourth of 4 MB at 100 GB/s */
}

/* Terms are summed where they are, then sent in parts. */
Test(reshard, partials_are_summed) {
    /* ring of 2 over the port: 12 us + half of the bytes; then halves from both machines */
    expect_near(
        move("8000000] on @a partial(dp)", "8000000@dp] on @b", "algorithm = broadcast", NULL),
        12 * US + 2 * 4 * MB_PS + 2 * MB_PS + chain_ps(2000000, 1, 1));
}

/* Sequences of collectives on one mesh. */
Test(reshard, inside_one_mesh) {
    /* one of them: as it is written by itself */
    int64_t gathered = run_body("func @f(%x: i8[8000000@dp] on @m) -> i8[8000000] on @m {\n"
                                "  %y = all_gather(%x) over dp dim 0\n  return %y\n}",
                                NULL, false, "fluid");
    cr_expect_eq(move("8000000@dp] on @m", "8000000] on @m", "", NULL), gathered);
    int64_t scattered =
        run_body("func @f(%x: i8[8000000] on @m partial(dp)) -> i8[8000000@dp] on @m {\n"
                 "  %y = reduce_scatter(%x) over dp dim 0\n  return %y\n}",
                 NULL, false, "fluid");
    cr_expect_eq(move("8000000] on @m partial(dp)", "8000000@dp] on @m", "", NULL), scattered);
    /* half of the columns cut out, and gathered along dp */
    int64_t other = run_body("func @f(%x: i8[8000@dp, 500] on @m) -> i8[8000, 500] on @m {\n"
                             "  %y = all_gather(%x) over dp dim 0\n  return %y\n}",
                             NULL, false, "fluid");
    cr_expect_eq(
        move("8000@dp, 1000] on @m", "8000, 1000@tp] on @m", "algorithm = collectives", NULL),
        other);
    expect_ps(move("8000@dp, 1000] on @m", "8000, 1000@tp] on @m", "algorithm = send_recv", NULL),
              12 * US + 6 * MB_PS);
    /* two: the sum of both */
    int64_t both =
        run_body("func @f(%x: i8[8000@dp, 1000] on @m partial(tp)) -> i8[8000, 1000] on @m {\n"
                 "  %s = all_reduce(%x) over tp\n  %y = all_gather(%s) over dp dim 0\n"
                 "  return %y\n}",
                 NULL, false, "fluid");
    cr_expect_eq(move("8000@dp, 1000] on @m partial(tp)", "8000, 1000] on @m",
                      "algorithm = collectives", NULL),
                 both);
    /* nothing */
    cr_expect_eq(move("8000000] on @m", "8000000@dp] on @m", "", NULL), 0);
}

/* What goes the other way does not wait: each way is a stream. */
Test(reshard, both_ways_at_once) {
    static const char body[] = "func @f(%x: i8[8000000@dp] on @a, %z: i8[8000000@dp] on @b)\n"
                               "    -> (i8[8000000@dp] on @b, i8[8000000@dp] on @a) {\n"
                               "  %r = relu(%x) {cost = 100 us}\n"
                               "  %y = reshard(%r) {algorithm = broadcast} : i8[8000000@dp] on @b\n"
                               "  %w = reshard(%z) {algorithm = broadcast} : i8[8000000@dp] on @a\n"
                               "  return %y, %w\n}";
    expect_near(run_body(body, NULL, false, "fluid"), 100 * US + chain_ps(4000000, 1, 1));
}

/* Meshes that overlap: what a device holds already is not sent. */
Test(reshard, overlapping_meshes) {
    /* [0, 1 | 2, 3] to [2, 3 | 4, 5]: the first half goes to machine 1, the second to machine 2 */
    char body[] =
        "mesh @c = pick 2..6 of @m [dp = 2, tp = 2]\n"
        "func @f(%x: i8[8000000@dp] on @a) -> i8[8000000@dp] on @c {\n"
        "  %y = reshard(%x) {algorithm = broadcast} : i8[8000000@dp] on @c\n  return %y\n}";
    expect_near(run_body(body, NULL, false, "fluid"), chain_ps(4000000, 1, 1));
    char more[] = "mesh @c = pick 0..6 of @m [dp = 3, tp = 2]\n"
                  "func @f(%x: i8[8000000] on @a) -> i8[8000000] on @c {\n"
                  "  %y = reshard(%x) {algorithm = broadcast} : i8[8000000] on @c\n  return %y\n}";
    expect_near(run_body(more, NULL, false, "fluid"), chain_ps(8000000, 1, 1));
}

/* The result takes memory on its devices alone, the operand where it is. */
Test(reshard, memory_of_the_receivers) {
    sim_case c;
    sim_run_text(&c,
                 HEAD "func @f(%x: i8[8000000@dp] on @a) -> i8[8000000] on @b {\n"
                      "  %y = reshard(%x) : i8[8000000] on @b\n  return %y\n}\n"
                      "scenario { program = @f }\n",
                 NULL, true);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    for (uint32_t i = 0; i < c.result->plan->n_classes; i++) {
        bool source = c.result->plan->classes[i].device < 4;
        cr_expect_eq(c.result->mem.classes[i].peak_bytes, source ? 4000000 : 8000000);
    }
    sim_free(&c);
}

/* ---- random ones ---- */

/* i8[24, 1000000] over a mesh of `dp` x `tp` devices from `first` on; split[d]: 0 none, 1 dp, 2 tp.
 */
typedef struct spec {
    int first, dp, tp, split[2];
} spec;

static spec random_spec(ds_rng *rng) {
    static const int sizes[] = {1, 2, 3, 4};
    spec s = {.dp = sizes[ds_rng_below(rng, 4)], .tp = 1 + (int)ds_rng_below(rng, 2)};
    s.first = (int)ds_rng_below(rng, (uint64_t)(9 - s.dp * s.tp));
    s.split[0] = (int)ds_rng_below(rng, 3);
    s.split[1] = (int)ds_rng_below(rng, 3);
    bool thirds = s.split[1] == 1 && s.dp == 3; /* 10^6 does not divide by 3 */
    if (s.split[1] == s.split[0] || thirds) s.split[1] = 0;
    return s;
}

static void put_spec(const spec *s, const char *mesh, char *type, char *pick, size_t size) {
    static const char *const at[] = {"", "@dp", "@tp"};
    snprintf(type, size, "i8[24%s, 1000000%s] on @%s", at[s->split[0]], at[s->split[1]], mesh);
    snprintf(pick, size, "mesh @%s = pick %d..%d of @m [dp = %d, tp = %d]\n", mesh, s->first,
             s->first + s->dp * s->tp, s->dp, s->tp);
}

/* Does a device hold the 1/12 x 1/4 of the value at (i, k)? */
static bool has(const spec *s, int device, int i, int k) {
    int pos = device - s->first, at[3] = {0, pos / s->tp, pos % s->tp}, n[3] = {1, s->dp, s->tp};
    if (pos < 0 || pos >= s->dp * s->tp) return false;
    int row = s->split[0], column = s->split[1];
    return i / (12 / n[row]) == at[row] && k / (4 / n[column]) == at[column];
}

/* Bytes that enter the machine (2 devices) at least: what it wants and lacks. */
static int64_t wanted(const spec *from, const spec *to, int machine) {
    int64_t bytes = 0;
    for (int i = 0; i < 12; i++)
        for (int k = 0; k < 4; k++) {
            bool lacks = false, held = false;
            for (int d = 2 * machine; d < 2 * machine + 2; d++) {
                lacks = lacks || has(to, d, i, k);
                held = held || has(from, d, i, k);
            }
            bytes += lacks && !held ? 24 * 1000000 / 48 : 0;
        }
    return bytes;
}

/* Every way takes at least as long as the port of the machine that lacks most; folded and unfolded
 * agree; it takes no time exactly where nobody lacks anything; messages take as long, within 1 %.
 */
Test(reshard, random_meshes) {
    static const char *const ways[] = {"", "algorithm = send_recv", "algorithm = send_recv_gather",
                                       "algorithm = broadcast"};
    ds_rng rng = {11};
    for (int c = 0; c < (FEW_CASES ? 12 : 40); c++) {
        spec from = random_spec(&rng), to = random_spec(&rng);
        char x[128], y[128], pick_x[128], pick_y[128];
        put_spec(&from, "x", x, pick_x, sizeof x);
        put_spec(&to, "y", y, pick_y, sizeof y);
        int64_t most = 0;
        bool lacks = false;
        for (int m = 0; m < 4; m++)
            if (wanted(&from, &to, m) > most) most = wanted(&from, &to, m);
        for (int d = 0; d < 8; d++)
            for (int p = 0; p < 48; p++)
                lacks = lacks || (has(&to, d, p / 4, p % 4) && !has(&from, d, p / 4, p % 4));
        int64_t fastest = 0;
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            char body[1024];
            snprintf(body, sizeof body,
                     "%s%sfunc @f(%%x: %s) -> %s {\n  %%y = reshard(%%x) {%s} : %s\n  return "
                     "%%y\n}",
                     pick_x, pick_y, x, y, ways[w], y);
            int64_t fluid = run_body(body, NULL, false, "fluid");
            int64_t steps = run_body(body, NULL, false, "stepwise");
            cr_expect_eq(run_body(body, NULL, true, "fluid"), fluid, "%s", body);
            cr_expect_eq(fluid > 0, lacks, "%s: %" PRId64 " ps", body, fluid);
            cr_expect_geq(fluid, most * 1000, "%s: %" PRId64 " ps", body, fluid);
            double ratio = lacks ? (double)fluid / (double)steps : 1;
            cr_expect(ratio > 0.99 && ratio < 1.01, "%s: %g of the messages'", body, ratio);
            if (w == 0) fastest = fluid;
            cr_expect_leq(fastest, fluid, "%s", body);
        }
    }
}

/* ---- the benchmark of arXiv 2211.05322 ---- */

static void settings_of(char *out, size_t size, int machines, int gpus) {
    snprintf(out, size,
             "n0=268435456 n1=1 n2=1 gpus=%d from_machines=1 from0=1 from_inner=1 to_machines=%d "
             "to0=1 to_inner=%d",
             gpus, machines, machines * gpus);
}

static double seconds(const sim_case *c, const char *name) {
    uint32_t t = sim_task(c, "n[0].gpu[0]", name);
    cr_assert_neq(t, UINT32_MAX);
    return (double)(c->result->run.end_ps[t] - c->result->run.start_ps[t]) / 1e12;
}

/* 1 → m: send_recv in proportion to the receivers, broadcast flat: 1 GiB at 1.25 GB/s. */
Test(reshard, published_one_to_many) {
    static const int shapes[][2] = {{1, 1}, {1, 2}, {1, 3}, {1, 4}, {2, 2}, {3, 2}, {4, 2}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        char settings[256];
        settings_of(settings, sizeof settings, shapes[i][0], shapes[i][1]);
        sim_case c;
        sim_run_file(&c, "scenarios/resharding.dir", settings, false);
        cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
        double once = 1073741824 / 1.25e9, m = shapes[i][0] * shapes[i][1];
        cr_expect_float_eq(seconds(&c, "/send_recv"), m * once, 1e-4);
        /* one after another through the port, a chunk later into each machine but the first, and
         * at most three hops of NVLink at 22 GB/s or more in each */
        double order = seconds(&c, "/order"), fill = once * (shapes[i][0] - 1) / 256;
        cr_expect_geq(order, once + fill - 1e-6);
        cr_expect_leq(order, once + fill + 3 * shapes[i][0] * once * 1.25 / 22 / 256 + 1e-4);
        sim_free(&c);
    }
}

/* Cases 1 to 9: no way can be faster than the busiest port; broadcast in order is as fast. */
Test(reshard, published_many_to_many) {
    static const struct {
        const char *settings;
        double gib_out, speed_up; /* of the busiest port; over send_recv */
    } cases[] = {
        {"from0=2 from_inner=4 to0=2 to_inner=4", 1, 4},
        {"from0=1 from_inner=8 to0=2 to_inner=4", 1, 4},
        {"from0=1 from1=2 from_inner=4 to0=2 to_inner=4", 1, 4},
        {"from0=1 from1=8 from_inner=1 to0=8 to_inner=1", 1, 1},
        {"from_outer=2 from0=4 from_inner=1 to0=2 to_inner=4", 1, 4},
        {"n0=3072 n2=170 to_machines=3 from0=2 from_inner=4 to0=3 to_inner=4", 0.99609375, 4},
        {"from_machines=1 from0=4 from_inner=1 to0=1 to_inner=8", 2, 8},
        {"from_machines=1 from0=4 from_inner=1 to0=1 to_inner=8", 2, 8},
        {"from0=1 from1=2 from_inner=4 to0=1 to2=2 to_inner=4", 1, 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sim_case c;
        sim_run_file(&c, "scenarios/resharding.dir", cases[i].settings, false);
        cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
        double bound = cases[i].gib_out * 1073741824 / 1.25e9, order = seconds(&c, "/order");
        cr_expect_float_eq(order / bound, 1, 2e-3, "case %zu: %g of %g s", i + 1, order, bound);
        cr_expect_float_eq(seconds(&c, "/send_recv") / order, cases[i].speed_up, 0.01, "case %zu",
                           i + 1);
        cr_expect_leq(seconds(&c, "/order"), seconds(&c, "/size"));
        cr_expect_leq(seconds(&c, "/size"), seconds(&c, "/none"));
        cr_expect_leq(seconds(&c, "/fastest"), order);
        sim_free(&c);
    }
}

/* scenarios/resharding.dir, with messages instead of phases. */
static void run_resharding(sim_case *c, const char *settings, bool stepwise) {
    static const char end[] = "  profile = ideal\n}\n", more[] = "  network = stepwise\n}\n";
    char text[8192];
    FILE *f = fopen(DS_SOURCE_DIR "/scenarios/resharding.dir", "r");
    cr_assert_not_null(f);
    size_t n = fread(text, 1, sizeof text - sizeof more, f);
    fclose(f);
    text[n] = '\0';
    cr_assert(n > sizeof end && strcmp(text + n - (sizeof end - 1), end) == 0);
    if (stepwise) strcpy(text + n - 2, more);
    sim_run_text(c, text, settings, false);
}

/* The same messages, one by one: within 1 % in every way, and the fastest is the fastest. */
Test(reshard, published_message_by_message) {
    static const char *const cases[] = {
        "from0=1 from1=2 from_inner=4 to0=2 to_inner=4",
        "from0=1 from1=8 from_inner=1 to0=8 to_inner=1",
        "n0=3072 n2=170 to_machines=3 from0=2 from_inner=4 to0=3 to_inner=4",
        "from_machines=1 from0=4 from_inner=1 to0=1 to_inner=8",
        "from0=1 from1=2 from_inner=4 to0=1 to2=2 to_inner=4",
    };
    static const char *const ways[] = {"/send_recv", "/gather", "/none",
                                       "/size",      "/order",  "/fastest"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double fluid[6], least = 1e9;
        for (int stepwise = 0; stepwise < 2; stepwise++) {
            sim_case c;
            run_resharding(&c, cases[i], stepwise);
            cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
            for (int w = 0; w < 6; w++) {
                double s = seconds(&c, ways[w]);
                if (s < least) least = s;
                if (stepwise)
                    cr_expect_float_eq(fluid[w] / s, 1, 0.01, "%s%s: %g, messages %g", cases[i],
                                       ways[w], fluid[w], s);
                fluid[w] = s;
            }
            cr_expect_leq(fluid[5], least * 1.000001);
            sim_free(&c);
        }
    }
}

/* A star: both receivers want both halves, from a sender each. No order takes less than their
 * ports, 100 MB at 10 GB/s; chunk by chunk, one more of each half. */
Test(reshard, receivers_of_two_pieces) {
    static const char text[] =
        "dir 1\naxis p\naxis q\n"
        "topology @t {\n  device d[4] : \"V100-SXM2-16GB\"\n  switch s\n"
        "  link d[i] -- s : 10 GB/s, 0 ns for i in 0..4\n}\n"
        "mesh @all = [p = 4] on @t\nmesh @a = pick 0..2 of @all [p = 2]\n"
        "mesh @b = pick 2..4 of @all [q = 2]\n"
        "func @f(%%x: u8[100000000@p] on @a) -> u8[100000000] on @b {\n"
        "  %%y = reshard(%%x) {algorithm = broadcast} : u8[100000000] on @b\n  return %%y\n}\n"
        "scenario { program = @f, network = %s }\n";
    static const char *const networks[] = {"fluid", "stepwise"};
    for (int i = 0; i < 2; i++) {
        char program[1024];
        sim_case c;
        snprintf(program, sizeof program, text, networks[i]);
        sim_run_text(&c, program, NULL, false);
        cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
        int64_t ps = c.result->run.step_ps, port_ps = INT64_C(10000000000);
        cr_expect(ps >= port_ps && ps <= port_ps + 2 * port_ps / 2 / 256 + 1000,
                  "%s: %" PRId64 " ps", networks[i], ps);
        sim_free(&c);
    }
}

/* ---- who sends, and what goes first, by brute force ---- */

typedef struct brute {
    const ds_reshard_item *items;
    uint32_t n, n_resources;
    bool done[8];
    int64_t free_ps[8], best_ps;
} brute;

static void try_all(brute *b, uint32_t depth, int64_t end_ps) {
    if (end_ps >= b->best_ps) return;
    if (depth == b->n) b->best_ps = end_ps;
    for (uint32_t i = 0; i < b->n; i++)
        for (uint32_t k = 0; !b->done[i] && k < b->items[i].n_options; k++) {
            const ds_reshard_option *o = &b->items[i].options[k];
            int64_t was[8], start_ps = 0;
            memcpy(was, b->free_ps, sizeof was);
            for (uint32_t r = 0; r < o->n_resources; r++)
                if (was[o->resources[r]] > start_ps) start_ps = was[o->resources[r]];
            for (uint32_t r = 0; r < o->n_resources; r++)
                b->free_ps[o->resources[r]] = start_ps + o->ps;
            b->done[i] = true;
            try_all(b, depth + 1, start_ps + o->ps > end_ps ? start_ps + o->ps : end_ps);
            b->done[i] = false;
            memcpy(b->free_ps, was, sizeof was);
        }
}

/* Senders 0 … 2, receivers 3 … 6: an option is one sender and the item's receivers. */
Test(reshard, order_is_the_best_of_small_cases) {
    ds_rng rng = {7};
    uint32_t n_best = 0, n_cases = 200;
    for (uint32_t c = 0; c < n_cases; c++) {
        uint32_t n = 2 + (uint32_t)ds_rng_below(&rng, 4), resources[5][3][3];
        ds_reshard_option options[5][3];
        ds_reshard_item items[5];
        for (uint32_t i = 0; i < n; i++) {
            int64_t ps = 1 + (int64_t)ds_rng_below(&rng, 9);
            uint32_t to = 3 + (uint32_t)ds_rng_below(&rng, 4),
                     also = 3 + (uint32_t)ds_rng_below(&rng, 4);
            items[i] = (ds_reshard_item){options[i], 1 + (uint32_t)ds_rng_below(&rng, 3)};
            for (uint32_t k = 0; k < items[i].n_options; k++) {
                uint32_t *r = resources[i][k];
                r[0] = k, r[1] = to, r[2] = also;
                options[i][k] = (ds_reshard_option){ps, r, also == to ? 2 : 3};
            }
        }
        ds_reshard_slot slots[5];
        brute b = {.items = items, .n = n, .n_resources = 7, .best_ps = INT64_MAX};
        try_all(&b, 0, 0);
        int64_t order = ds_reshard_order(items, n, 7, DS_BALANCE_ORDER, slots);
        int64_t none = ds_reshard_order(items, n, 7, DS_BALANCE_NONE, slots);
        cr_expect_geq(order, b.best_ps);
        cr_expect_leq(order, none);
        n_best += order == b.best_ps;
    }
    cr_expect_eq(n_best, n_cases);
}

/* Do two items need a resource at one time? */
static bool collide(const ds_reshard_option *a, int64_t a_ps, const ds_reshard_option *b,
                    int64_t b_ps) {
    if (a_ps + a->ps <= b_ps || b_ps + b->ps <= a_ps) return false;
    for (uint32_t i = 0; i < a->n_resources; i++)
        for (uint32_t k = 0; k < b->n_resources; k++)
            if (a->resources[i] == b->resources[k]) return true;
    return false;
}

/* So many items, three of nine resources each, that a round draws one permutation alone, or that
 * nothing is drawn at all: no resource is busy twice at a time, and the last ends no later than in
 * the given order. */
Test(reshard, order_of_many_items) {
    enum { MOST = 700, RESOURCES = 9 };
    static ds_reshard_option options[MOST];
    static ds_reshard_item items[MOST];
    static ds_reshard_slot slots[MOST];
    static uint32_t resources[MOST][3];
    ds_rng rng = {3};
    for (uint32_t n = 500; n <= MOST; n += 200) {
        int64_t loads[RESOURCES] = {0}, busiest = 0, last = 0;
        for (uint32_t i = 0; i < n; i++) {
            options[i] = (ds_reshard_option){1 + (int64_t)ds_rng_below(&rng, 9), resources[i], 3};
            items[i] = (ds_reshard_item){&options[i], 1};
            for (uint32_t k = 0; k < 3; k++) {
                resources[i][k] = 3 * k + (uint32_t)ds_rng_below(&rng, 3);
                loads[resources[i][k]] += options[i].ps;
                if (loads[resources[i][k]] > busiest) busiest = loads[resources[i][k]];
            }
        }
        int64_t none = ds_reshard_order(items, n, RESOURCES, DS_BALANCE_NONE, slots);
        int64_t ps = ds_reshard_order(items, n, RESOURCES, DS_BALANCE_ORDER, slots);
        cr_expect(busiest <= ps && ps <= none, "%u items: %d, %d, %d", n, (int)busiest, (int)ps,
                  (int)none);
        for (uint32_t i = 0; i < n; i++) {
            if (slots[i].start_ps + options[i].ps > last) last = slots[i].start_ps + options[i].ps;
            for (uint32_t k = 0; k < i; k++)
                cr_assert(!collide(&options[i], slots[i].start_ps, &options[k], slots[k].start_ps));
        }
        cr_expect_eq(last, ps);
    }
}

/* ---- eager 1F1B on two stages of different width ---- */

static double step_seconds(const char *file, const char *settings) {
    sim_case c;
    sim_run_file(&c, file, settings, false);
    cr_assert_eq(c.status, DS_OK, "%s %s: %s", file, settings, c.err.message);
    double s = (double)c.result->run.step_ps / 1e12;
    sim_free(&c);
    return s;
}

/* Published: about 10 % for GPT-3, up to 50 % for a U-Transformer (arXiv 2211.05322). */
Test(reshard, eager_hides_what_crosses) {
    const char *by_hand = "scenarios/eager-two-widths.dir";
    double gpt = step_seconds(by_hand, "ahead=0") / step_seconds(by_hand, "ahead=1");
    double u = step_seconds(by_hand, "tensors=4 fwd=70 bwd=140 ahead=0") /
               step_seconds(by_hand, "tensors=4 fwd=70 bwd=140 ahead=1");
    cr_expect(gpt > 1.05 && gpt < 1.15, "GPT-3: %g", gpt);
    cr_expect(u > 1.3 && u < 1.5, "U-Transformer: %g", u);
}

/* Closed form of the U-shape by hand: stage 0's loop of forward, over, forward and backward, back,
 * backward holds two microbatches in 1F1B, three in eager 1F1B. */
Test(reshard, loops_of_two_and_three) {
    const char *by_hand = "scenarios/eager-two-widths.dir";
    /* 4 · 16 · 1024 · 2048 elements of 2 bytes through one port at 1.25 GB/s, either way */
    double over = 4.0 * 16 * 1024 * 2048 * 2 / 1.25e9;
    double loop = 2 * (0.07 + 0.14) + 2 * over;
    double more = step_seconds(by_hand, "tensors=4 fwd=70 bwd=140 microbatches=40") -
                  step_seconds(by_hand, "tensors=4 fwd=70 bwd=140 microbatches=20");
    cr_expect_float_eq(more / 20, loop / 2, 1e-3, "%g s a microbatch, %g", more / 20, loop / 2);
    more = step_seconds(by_hand, "tensors=4 fwd=70 bwd=140 ahead=1 microbatches=40") -
           step_seconds(by_hand, "tensors=4 fwd=70 bwd=140 ahead=1 microbatches=20");
    cr_expect_float_eq(more / 20, loop / 3, 0.03, "%g s a microbatch, %g", more / 20, loop / 3);
}
