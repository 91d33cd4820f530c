/* Several fabrics in one topology, links that are missing, and links that are faster one way: which
 * way messages and rings go, and how long they take in closed form. */
#include "tests/support/generate/topo_text.h"
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define US INT64_C(1000000)

static int64_t step(const char *topology, const char *func) {
    char text[8192];
    int64_t ps[2];
    snprintf(text, sizeof text, "dir 1\n%s%sscenario { program = @f }\n", topology, func);
    for (int unfold = 0; unfold < 2; unfold++) {
        sim_case c;
        sim_run_text(&c, text, NULL, unfold);
        cr_assert_eq(c.status, DS_OK, "%s in\n%s", c.err.message, text);
        ps[unfold] = c.result->run.step_ps;
        sim_free(&c);
    }
    cr_expect_eq(ps[0], ps[1], "folded %lld, unfolded %lld", (long long)ps[0], (long long)ps[1]);
    return ps[0];
}

/* Within a thousandth of the bytes' time and the latencies. */
static void expect_ps(int64_t got, double bytes_ps, int64_t latency_ps, const char *what) {
    double want = bytes_ps + (double)latency_ps;
    cr_expect((double)got >= want * 0.999 && (double)got <= want * 1.001, "%s: %.3f us, not %.3f",
              what, (double)got * 1e-6, want * 1e-6);
}

/* Do all links of the route end at such vertices? */
static bool goes_by(const topo_text *t, const char *from, const char *to, const char *by) {
    const ds_route *route = topo_text_route(t, from, to);
    cr_assert_not_null(route, "%s -> %s", from, to);
    bool through = false;
    for (uint32_t i = 0; i < route->n_links; i++) {
        const ds_topo_link *link = ds_topo_link_at(t->topo, route->links[i]);
        const char *end = ds_topo_vertex_path(t->topo, link->to);
        through = through || strcmp(end, by) == 0;
        /* no device passes anything on */
        bool inner = strcmp(end, to) != 0;
        cr_expect(!inner || ds_topo_vertex_kind(t->topo, link->to) != DS_NODE_DEVICE, "%s", end);
    }
    return through;
}

/* ---- bridges between half of the pairs ---- */

/* Four cards on a PCIe switch, of which 0 and 1, 2 and 3 have a bridge. */
#define BRIDGED                                                                                    \
    "topology @box {\n  device gpu[4] : \"A100-SXM4-80GB\"\n  switch plx\n"                        \
    "  link gpu[i] -- plx : 16 GB/s, 500 ns for i in 0..4\n"                                       \
    "  link gpu[2 * i] -- gpu[2 * i + 1] : 50 GB/s, 700 ns for i in 0..2\n}\n"
#define REDUCE(n)                                                                                  \
    "mesh @m = [dp = " #n "] on @box\nfunc @f(%x: f32[100000000] partial(dp)) -> f32[100000000]"   \
    " {\n  %y = all_reduce(%x) over dp {algorithm = \"ring\"}\n  return %y\n}\n"

Test(fabrics, a_bridge_is_used_by_its_pair_alone) {
    topo_text t = topo_text_build(BRIDGED);
    cr_expect_eq(topo_text_route(&t, "gpu[0]", "gpu[1]")->hops, 1);
    cr_expect_eq(topo_text_route(&t, "gpu[0]", "gpu[1]")->latency_ps, 700000);
    cr_expect(goes_by(&t, "gpu[1]", "gpu[2]", "plx"));
    cr_expect(goes_by(&t, "gpu[0]", "gpu[3]", "plx"));
    cr_expect_eq(ds_topo_island(t.topo, 0), ds_topo_island(t.topo, 1));
    cr_expect_neq(ds_topo_island(t.topo, 1), ds_topo_island(t.topo, 2));
    topo_text_free(&t);
    /* Two rings, 0 1 3 2 and 1 0 2 3, with half of the bytes each: their hops over PCIe load each
     * card's link once each way. */
    double bytes_ps = 2 * 3 / 4.0 * 2e8 / 16e9 * 1e12;
    int64_t ps = step(BRIDGED, REDUCE(4));
    expect_ps(ps, bytes_ps, 6 * US, "rings over two bridges");
    /* Groups that are pairs: bridged ones by the bridge. */
    int64_t pair = step(BRIDGED, "mesh @m = [pp = 2, dp = 2] on @box\n"
                                 "func @f(%x: f32[100000000] partial(dp)) -> f32[100000000] {\n"
                                 "  %y = all_reduce(%x) over dp {algorithm = \"ring\"}\n"
                                 "  return %y\n}\n");
    expect_ps(pair, 4e8 / 50e9 * 1e12, 2 * 700000, "pairs by their bridges");
    /* and those that are not meet on PCIe, each on links of its own */
    int64_t across = step(BRIDGED, "mesh @m = [dp = 2, tp = 2] on @box\n"
                                   "func @f(%x: f32[100000000] partial(dp)) -> f32[100000000] {\n"
                                   "  %y = all_reduce(%x) over dp {algorithm = \"ring\"}\n"
                                   "  return %y\n}\n");
    expect_ps(across, 4e8 / 16e9 * 1e12, 2 * US, "pairs without");
}

/* With a bridge of the two missing, its pair falls back to PCIe. */
Test(fabrics, a_missing_bridge) {
    int64_t pair = step(BRIDGED "degrade gpu[2] -- gpu[3] bandwidth = 0\n",
                        "mesh @m = [pp = 2, dp = 2] on @box\n"
                        "func @f(%x: f32[100000000] partial(dp)) -> f32[100000000] {\n"
                        "  %y = all_reduce(%x) over dp {algorithm = \"ring\"}\n"
                        "  return %y\n}\n");
    expect_ps(pair, 4e8 / 16e9 * 1e12, 2 * US, "the slower pair");
}

/* ---- the hybrid cube mesh ---- */

#define CUBE "import \"scenarios/topologies/dgx1-v100.dir\"\n"
#define CUBE_REDUCE                                                                                \
    "mesh @m = [dp = 8] on @dgx1\nfunc @f(%x: f32[250000000] partial(dp)) -> f32[250000000]"       \
    " {\n  %y = all_reduce(%x) over dp {algorithm = \"ring\"}\n  return %y\n}\n"

/* Six rings over the 48 directed links of 25 GB/s. A GPU that has lost the two links to its
 * neighbour on the other side has four left each way: no more than four rings, all over NVLink. A
 * GPU that has lost all of them stands on PCIe. */
Test(fabrics, rings_of_a_cube_with_missing_links) {
    double whole = 2 * 7 / 8.0 * 1e9 / 25e9 * 1e12; /* of one ring */
    int64_t latency_ps = 14 * 470000;
    expect_ps(step(CUBE, CUBE_REDUCE), whole / 6, latency_ps, "six rings");
    expect_ps(step(CUBE "degrade gpu[0] -- gpu[4] bandwidth = 0\n", CUBE_REDUCE), whole / 4,
              latency_ps, "four rings");
    /* gpu[2] -- gpu[6] is a single link: five rings are left at most */
    int64_t five = step(CUBE "degrade gpu[2] -- gpu[6] bandwidth = 0\n", CUBE_REDUCE);
    cr_expect_geq((double)five, whole / 5);
    cr_expect_leq((double)five, (whole / 4 + (double)latency_ps) * 1.001);
    /* a link of half the bandwidth costs the others nothing that they have */
    int64_t half = step(CUBE "degrade gpu[2] -- gpu[6] bandwidth = 0.5\n", CUBE_REDUCE);
    cr_expect_geq(half, step(CUBE, CUBE_REDUCE));
    cr_expect_leq(half, five);
    int64_t alone =
        step(CUBE "degrade gpu[7] -- gpu[i] bandwidth = 0 for i in 3..7\n", CUBE_REDUCE);
    cr_expect_geq((double)alone, 2 * 7 / 8.0 * 1e9 / 15.75e9 * 1e12);
}

/* ---- faster one way than the other ---- */

#define LOPSIDED                                                                                   \
    "topology @box {\n  device gpu[4] : \"A100-SXM4-80GB\"\n  switch s\n"                          \
    "  link gpu[i] -> s : 10 GB/s, 1 us for i in 0..4\n"                                           \
    "  link s -> gpu[i] : 40 GB/s, 2 us for i in 0..4\n}\n"

Test(fabrics, up_is_slower_than_down) {
    topo_text t = topo_text_build(LOPSIDED);
    cr_expect_eq(topo_text_route(&t, "gpu[0]", "gpu[3]")->latency_ps, 3 * US);
    topo_text_free(&t);
    double s = 4e8 / 10e9 * 1e12; /* 400 MB upwards */
    expect_ps(step(LOPSIDED, REDUCE(4)), 2 * 3 / 4.0 * s, 6 * 3 * US, "ring");
    /* Each sends the three others a quarter: 3/4 up, and as much comes down four times as fast. */
    int64_t all_to_all =
        step(LOPSIDED, "mesh @m = [dp = 4] on @box\n"
                       "func @f(%x: f32[20000, 20000@dp]) -> f32[20000@dp, 20000] {\n"
                       "  %y = all_to_all(%x) over dp dim 1 -> 0 {algorithm = \"direct\"}\n"
                       "  return %y\n}\n");
    expect_ps(all_to_all, 3 / 4.0 * s, 3 * US, "all_to_all");
    /* Three senders to one: 3 · 100 MB down at 40 GB/s take less than 100 MB up at 10. */
    int64_t to_one =
        step(LOPSIDED, "func @f(%a: f32[25000000] on @box.gpu[0], %b: f32[25000000] on @box.gpu[1],"
                       " %c: f32[25000000] on @box.gpu[2]) -> (f32[25000000] on @box.gpu[3],"
                       " f32[25000000] on @box.gpu[3], f32[25000000] on @box.gpu[3]) {\n"
                       "  %x = send(%a) to @box.gpu[3]\n  %y = send(%b) to @box.gpu[3]\n"
                       "  %z = send(%c) to @box.gpu[3]\n  return %x, %y, %z\n}\n");
    expect_ps(to_one, s / 4, 3 * US, "three to one");
    /* One to three: all by its own link up. */
    int64_t from_one =
        step(LOPSIDED, "func @f(%a: f32[25000000] on @box.gpu[3], %b: f32[25000000] on @box.gpu[3],"
                       " %c: f32[25000000] on @box.gpu[3]) -> (f32[25000000] on @box.gpu[0],"
                       " f32[25000000] on @box.gpu[1], f32[25000000] on @box.gpu[2]) {\n"
                       "  %x = send(%a) to @box.gpu[0]\n  %y = send(%b) to @box.gpu[1]\n"
                       "  %z = send(%c) to @box.gpu[2]\n  return %x, %y, %z\n}\n");
    expect_ps(from_one, s * 3 / 4, 3 * US, "one to three");
}

/* ---- NVSwitch, InfiniBand and Ethernet ---- */

#define TWO_NETS                                                                                   \
    "topology @node {\n  device gpu[4] : \"A100-SXM4-80GB\"\n  switch nvs, plx\n  nic ib, eth\n"   \
    "  link gpu[i] -- nvs : 300 GB/s, 1 us for i in 0..4\n"                                        \
    "  link gpu[i] -- plx : 25 GB/s, 1 us for i in 0..4\n"                                         \
    "  link plx -- ib : 25 GB/s, 500 ns\n  link plx -- eth : 25 GB/s, 500 ns\n}\n"                 \
    "topology @box {\n  node n[2] : @node\n  switch fabric, lan\n"                                 \
    "  link n[i].ib -- fabric : 20 GB/s, 1 us for i in 0..2\n"                                     \
    "  link n[i].eth -- lan : 10 GB/s, 10 us for i in 0..2\n}\n"

/* Inside a node by the faster of two fabrics of equal latency would be a share of each: both are
 * two links of 1 us. So PCIe is made a little longer here than NVSwitch, as it is. */
#define FABRICS TWO_NETS "degrade n[i].plx latency = 1.5 for i in 0..2\n"

Test(fabrics, each_way_has_its_fabric) {
    topo_text t = topo_text_build(FABRICS);
    cr_expect(goes_by(&t, "n[0].gpu[0]", "n[0].gpu[3]", "n[0].nvs"));
    cr_expect_not(goes_by(&t, "n[0].gpu[0]", "n[0].gpu[3]", "n[0].plx"));
    cr_expect(goes_by(&t, "n[0].gpu[1]", "n[1].gpu[2]", "fabric"));
    cr_expect_not(goes_by(&t, "n[0].gpu[1]", "n[1].gpu[2]", "lan"));
    topo_text_free(&t);
    /* One crossing each way: the ring is as fast as InfiniBand. */
    double s = 4e8 * 2 * 7 / 8.0;
    int64_t whole = step(FABRICS, REDUCE(8));
    cr_expect_geq((double)whole, s / 20e9 * 1e12);
    /* Without a node's port both go by Ethernet. */
    static const char without[] = FABRICS "degrade n[1].ib bandwidth = 0\n";
    t = topo_text_build(without);
    cr_expect(goes_by(&t, "n[0].gpu[1]", "n[1].gpu[2]", "lan"));
    cr_expect(goes_by(&t, "n[1].gpu[1]", "n[0].gpu[2]", "lan"));
    topo_text_free(&t);
    int64_t slow = step(without, REDUCE(8));
    cr_expect_geq((double)slow, s / 10e9 * 1e12);
    cr_expect_gt(slow, whole);
}
