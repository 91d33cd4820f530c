/* Transfers that meet on links, against times worked out by hand. */
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define US INT64_C(1000000)

/* Four devices under one switch, 10 GB/s and 1 us a link, so 2 us a route; f32[10000] is 40,000
 * bytes: 4 us at 10 GB/s. */
#define STAR                                                                                       \
    "dir 1\n"                                                                                      \
    "topology @t {\n"                                                                              \
    "  device d[4] : \"A100-SXM4-80GB\"\n"                                                         \
    "  switch s\n"                                                                                 \
    "  link d[i] -- s : 10 GB/s, 1 us for i in 0..4\n"                                             \
    "}\n"                                                                                          \
    "mesh @m = [dp = 2, tp = 2] on @t\n"

static void run(sim_case *c, const char *text, bool unfold) {
    sim_run_text(c, text, NULL, unfold);
    cr_assert_eq(c->status, DS_OK, "%s", c->err.message);
}

static int64_t end_of(const sim_case *c, const char *device, const char *name) {
    uint32_t task = sim_task(c, device, name);
    cr_assert_neq(task, UINT32_MAX, "%s on %s", name, device);
    return c->result->run.end_ps[task];
}

/* A rate like 10/3 GB/s is rounded down to 2^-20 B/s, and an end at it up to a ps. */
static void expect_end(const sim_case *c, const char *device, const char *name, int64_t ps) {
    int64_t got = end_of(c, device, name);
    cr_expect(got == ps || got == ps + 1, "%s on %s ends at %lld ps, not %lld", name, device,
              (long long)got, (long long)ps);
}

/* Three into d3 at once: 3 x 4 us after the route's 2 us, all together. One into d0 beside them has
 * links of its own. */
Test(contention, n_to_one) {
    sim_case c;
    run(&c,
        STAR "func @f(%x: f32[10000] on @t.d[0], %y: f32[10000] on @t.d[1],\n"
             "        %z: f32[10000] on @t.d[2], %w: f32[10000] on @t.d[3]) {\n"
             "  %a = send(%x) to @t.d[3]\n  %b = send(%y) to @t.d[3]\n"
             "  %c = send(%z) to @t.d[3]\n  %e = send(%w) to @t.d[0]\n  return\n}\n"
             "scenario { program = @f }\n",
        false);
    expect_end(&c, "d[3]", "/a", 14 * US);
    expect_end(&c, "d[3]", "/b", 14 * US);
    expect_end(&c, "d[3]", "/c", 14 * US);
    expect_end(&c, "d[0]", "/e", 6 * US);
    sim_free(&c);
}

/* 40, 80 and 120 kB out of d0. Thirds until the first has ended, at 2 + 12 us; 40 and 80 kB are
 * left, halves until 14 + 8; 40 kB alone, 4 us more. */
Test(contention, one_to_n_of_unequal_sizes) {
    sim_case c;
    run(&c,
        STAR "func @f(%x: f32[10000] on @t.d[0], %y: f32[20000] on @t.d[0],\n"
             "        %z: f32[30000] on @t.d[0]) {\n"
             "  %a = send(%x) to @t.d[1]\n  %b = send(%y) to @t.d[2]\n"
             "  %c = send(%z) to @t.d[3]\n  return\n}\nscenario { program = @f }\n",
        false);
    expect_end(&c, "d[1]", "/a", 14 * US);
    expect_end(&c, "d[2]", "/b", 22 * US);
    expect_end(&c, "d[3]", "/c", 26 * US);
    sim_free(&c);
}

/* a flows from 2 us on; b starts at 3 us, waits until 5 and then shares: a has 10 kB left and ends
 * at 7; b has then 30 kB left and ends at 10. While b waits, a is not slowed. */
Test(contention, a_transfer_that_waits_loads_nothing) {
    sim_case c;
    run(&c,
        STAR "func @f(%x: f32[10000] on @t.d[0], %y: f32[10000] on @t.d[1]) {\n"
             "  %a = send(%x) to @t.d[2]\n  %h = relu(%y) {cost = 3 us}\n"
             "  %b = send(%h) to @t.d[2]\n  return\n}\nscenario { program = @f }\n",
        false);
    expect_end(&c, "d[2]", "/a", 7 * US);
    expect_end(&c, "d[2]", "/b", 10 * US);
    sim_free(&c);
}

/* One stream's transfers follow each other and never share. Both directions of a link are two. */
Test(contention, streams_and_directions) {
    sim_case c;
    run(&c,
        STAR "func @f(%x: f32[10000] on @t.d[0], %y: f32[10000] on @t.d[1]) {\n"
             "  %a = send(%x) to @t.d[1]\n  %b = send(%x) to @t.d[1]\n"
             "  %c = send(%y) to @t.d[0]\n  return\n}\nscenario { program = @f }\n",
        false);
    expect_end(&c, "d[1]", "/a", 6 * US);
    expect_end(&c, "d[1]", "/b", 12 * US);
    expect_end(&c, "d[0]", "/c", 6 * US);
    cr_expect_eq(c.result->plan->n_flows, 0, "nothing is shared");
    sim_free(&c);
}

/* Parking lot: a line of switches, 10 GB/s between them; the long transfer meets a local one on
 * each of two hops. All get 5 GB/s: 8 us after their waits of 4 and 3 us, but from 11 us on, when
 * the local ones have ended, the long one is alone with 5 kB: it flowed at 5 from 4 to 11 us (35
 * kB). */
Test(contention, parking_lot) {
    sim_case c;
    run(&c,
        "dir 1\n"
        "topology @t {\n  device d[3] : \"A100-SXM4-80GB\"\n  device e[2] : \"A100-SXM4-80GB\"\n"
        "  switch s[3]\n  link d[i] -- s[i] : 100 GB/s, 1 us for i in 0..3\n"
        "  link e[i] -- s[i] : 100 GB/s, 1 us for i in 0..2\n"
        "  link s[i] -- s[i + 1] : 10 GB/s, 1 us for i in 0..2\n}\n"
        "func @f(%x: f32[10000] on @t.d[0], %y: f32[10000] on @t.e[0],\n"
        "        %z: f32[10000] on @t.e[1]) {\n"
        "  %a = send(%x) to @t.d[2]\n  %b = send(%y) to @t.d[1]\n  %c = send(%z) to @t.d[2]\n"
        "  return\n}\nscenario { program = @f }\n",
        false);
    /* b and c are alone from 3 to 4 us: 10 kB; 30 kB at 5 GB/s last until 10. a: from 4 to 10 at 5,
     * 30 kB; the last 10 kB at 10, until 11. */
    expect_end(&c, "d[1]", "/b", 10 * US);
    expect_end(&c, "d[2]", "/c", 10 * US);
    expect_end(&c, "d[2]", "/a", 11 * US);
    sim_free(&c);
}

/* Two all_reduces over disjoint pairs whose rings cross one trunk of 10 GB/s each way: 40 kB each
 * way for each of them takes 4 us alone, 8 us together, after 2 steps of 4 us. */
static const char trunk[] = "dir 1\n"
                            "topology @t {\n  device d[4] : \"A100-SXM4-80GB\"\n  switch s[2]\n"
                            "  link d[i] -- s[i / 2] : 100 GB/s, 1 us for i in 0..4\n"
                            "  link s[0] -- s[1] : 10 GB/s, 2 us\n}\n"
                            "mesh @m = [dp = 2, tp = 2] on @t\n"
                            "func @f(%x: f32[10000] on @m partial(dp)) -> f32[10000] on @m {\n"
                            "  %y = all_reduce(%x) over dp {algorithm = \"ring\"}\n  return %y\n}\n"
                            "scenario { program = @f }\n";

Test(contention, groups_of_one_op_share_a_trunk) {
    for (int unfold = 0; unfold < 2; unfold++) {
        sim_case c;
        run(&c, trunk, unfold);
        cr_expect_eq(c.result->run.step_ps, 2 * 4 * US + 8 * US, "%lld",
                     (long long)c.result->run.step_ps);
        cr_expect_eq(c.result->plan->n_classes, unfold ? 4 : 1);
        if (!unfold) cr_expect_eq(c.result->plan->n_links, 0, "a constant bound");
        sim_free(&c);
    }
}

/* Four senders and two spines between two leaves: every pair's bytes go half over each spine, so
 * all four share 20 GB/s, 5 GB/s each; with route = "single" they all take the spine of the lowest
 * link and share 10. Alone, a sender is bound by 10 GB/s of its port and is no faster over two
 * spines. */
static void two_spines(const char *attrs, int64_t flow_ps) {
    char text[2048];
    snprintf(text, sizeof text,
             "dir 1\n"
             "topology @t {\n  device d[8] : \"A100-SXM4-80GB\"\n  switch leaf[2], spine[2]\n"
             "  link d[i] -- leaf[i / 4] : 10 GB/s, 1 us for i in 0..8\n"
             "  link leaf[i] -- spine[j] : 10 GB/s, 1 us for i in 0..2, j in 0..2\n}\n"
             "mesh @m = [pp = 2, tp = 4] on @t\n"
             "func @f(%%x: f32[40000@tp] on @m{pp=0}) {\n"
             "  %%a = send(%%x) to @m{pp=1} %s\n  return\n}\nscenario { program = @f }\n",
             attrs);
    for (int unfold = 0; unfold < 2; unfold++) {
        sim_case c;
        run(&c, text, unfold);
        cr_expect_eq(c.result->run.step_ps, 4 * US + flow_ps, "%s: %lld", attrs,
                     (long long)c.result->run.step_ps);
        sim_free(&c);
    }
}

Test(contention, equal_cost_routes_share) {
    two_spines("", 8 * US);
    two_spines("{route = \"single\"}", 16 * US);
}

/* Collectives of two communicators of each device, issued together: the ring over dp (2 of 4
 * members a step) and the ring over tp both load all ports; each moves 40 kB over each. Sharing,
 * both take 2 steps of 2 us and 8 us. */
Test(contention, concurrent_collectives_of_one_rank) {
    for (int unfold = 0; unfold < 2; unfold++) {
        sim_case c;
        run(&c,
            STAR "func @f(%x: f32[10000] on @m partial(dp), %y: f32[10000] on @m partial(tp)) {\n"
                 "  %a = all_reduce(%x) over dp {algorithm = \"ring\"}\n"
                 "  %b = all_reduce(%y) over tp {algorithm = \"ring\"}\n  return\n}\n"
                 "scenario { program = @f }\n",
            unfold);
        expect_end(&c, "d[0]", "/a", 4 * US + 8 * US);
        expect_end(&c, "d[0]", "/b", 4 * US + 8 * US);
        cr_expect_eq(c.result->plan->n_classes, unfold ? 4 : 1);
        sim_free(&c);
    }
}

/* A direct all_to_all among 4 has 3 messages at each port at a time, a send 1: of 10 GB/s the send
 * gets 2.5. all_to_all: 3 x 10 kB at each port, waits 2 us. send: 40 kB, waits 2 us. Ports of d0
 * out and d1 in: all_to_all's 30 kB at 7.5 GB/s take 4 us, until 6; the send has moved 10 kB, and
 * 30 kB more take 3 us. */
Test(contention, weights_are_messages_in_flight) {
    sim_case c;
    run(&c,
        "dir 1\n"
        "topology @t {\n  device d[4] : \"A100-SXM4-80GB\"\n  switch s\n"
        "  link d[i] -- s : 10 GB/s, 1 us for i in 0..4\n}\n"
        "mesh @m = [ep = 4] on @t\n"
        "func @f(%x: f32[100, 400@ep] on @m, %y: f32[10000] on @t.d[0]) {\n"
        "  %a = all_to_all(%x) over ep dim 1 -> 0\n  %b = send(%y) to @t.d[1]\n  return\n}\n"
        "scenario { program = @f }\n",
        false);
    expect_end(&c, "d[2]", "/a", 6 * US);
    expect_end(&c, "d[1]", "/b", 9 * US);
    sim_free(&c);
}

/* 1 GiB a port through a 256-port switch at 50 GiB/s: (255/256) / 50 s, as SimGrid gives it. */
Test(contention, all_to_all_of_256_ports_is_bound_by_the_ports) {
    sim_case c;
    run(&c,
        "dir 1\n"
        "topology @t {\n  device d[256] : \"A100-SXM4-80GB\"\n  switch s\n"
        "  link d[i] -- s : 53.6870912 GB/s, 250 ns for i in 0..256\n}\n"
        "mesh @m = [ep = 256] on @t\n"
        "func @f(%x: f32[16384, 4194304@ep] on @m) {\n"
        "  %a = all_to_all(%x) over ep dim 1 -> 0\n  return\n}\nscenario { program = @f }\n",
        false);
    int64_t ns = c.result->run.step_ps / 1000;
    cr_expect(ns >= 19922000 - 1000 && ns <= 19922000 + 1000, "%lld ns", (long long)ns);
    sim_free(&c);
}

/* Per-rank programs: the same as n_to_one, from ranks. */
Test(contention, per_rank_programs_share_too) {
    sim_case c;
    run(&c,
        STAR "program @p {\n"
             "  rank 0 (%x: f32[10000]) { send(%x) to 3 tag 0 }\n"
             "  rank 1 (%x: f32[10000]) { send(%x) to 3 tag 0 }\n"
             "  rank 2 (%x: f32[10000]) { send(%x) to 3 tag 0 }\n"
             "  rank 3 { %a = recv tag 0 from 0 : f32[10000] %b = recv tag 0 from 1 : f32[10000]\n"
             "           %c = recv tag 0 from 2 : f32[10000] }\n}\n"
             "scenario { program = @p, on = @t }\n",
        false);
    expect_end(&c, "d[3]", "/a", 14 * US);
    expect_end(&c, "d[3]", "/c", 14 * US);
    sim_free(&c);
}

/* Of a transfer whose cost is stated nobody knows the links. */
Test(contention, what_is_stated_loads_no_link) {
    sim_case c;
    run(&c,
        STAR "func @f(%x: f32[10000] on @t.d[0]) {\n  %a = send(%x) to @t.d[1]\n"
             "  %b = send(%x) to @t.d[2] {cost = 5 us}\n  return\n}\nscenario { program = @f }\n",
        false);
    expect_end(&c, "d[1]", "/a", 6 * US);
    expect_end(&c, "d[2]", "/b", 5 * US);
    sim_free(&c);
}

/* ---- 1,024 GPUs under fat trees ---- */

/* Between devices of a route stand no other devices. */
static void passes_no_gpu(const sim_case *c, uint32_t from, uint32_t to) {
    const ds_topo *topo = c->result->plan->topo;
    const ds_route *route;
    ds_error err;
    cr_assert_eq(ds_topo_route(c->result->plan->topo, from, to, &route, &err), DS_OK);
    for (uint32_t i = 0; i < route->n_links; i++) {
        uint32_t ends[] = {ds_topo_link_at(topo, route->links[i])->from,
                           ds_topo_link_at(topo, route->links[i])->to};
        for (int k = 0; k < 2; k++) {
            if (ds_topo_vertex_kind(topo, ends[k]) != DS_NODE_DEVICE) continue;
            const char *path = ds_topo_vertex_path(topo, ends[k]);
            cr_expect(strcmp(path, ds_topo_device_path(topo, from)) == 0 ||
                          strcmp(path, ds_topo_device_path(topo, to)) == 0,
                      "%s is on the way", path);
        }
    }
}

static void fat_tree(const char *import, const char *on, const char *mesh, const char *attrs,
                     int64_t expected_ps) {
    char text[1024];
    snprintf(text, sizeof text,
             "dir 1\nimport \"topologies/%s\n"
             "mesh @m = %s on @%s\n"
             "func @f(%%x: f32[96000000] on @m{pp=0}) {\n"
             "  %%a = send(%%x) to @m{pp=1} %s\n  return\n}\nscenario { program = @f }\n",
             import, mesh, on, attrs);
    for (int unfold = 0; unfold < 2; unfold++) {
        sim_case c;
        run(&c, text, unfold);
        cr_expect_eq(c.result->run.step_ps, expected_ps, "%s %s: %lld, not %lld", on, attrs,
                     (long long)c.result->run.step_ps, (long long)expected_ps);
        const ds_plan *plan = c.result->plan;
        for (uint32_t a = 0; a < plan->n_activities; a++) {
            const ds_group *g = plan->activities[a].group;
            passes_no_gpu(&c, g->devices[0], g->devices[1]);
        }
        sim_free(&c);
    }
}

/* 384 MB from each of the 64 GPUs under one leaf to those under the next. At 24 GB/s into each NIC
 * that is 16 ms, and 1,536 GB/s of the 1,600 from a leaf to its eight spines: nobody is slowed.
 * All over the lowest spine they would share 200 GB/s: 64 x 384 MB / 200 GB/s. */
Test(contention, a_pod_of_1024_spreads_over_its_spines) {
    const char *mesh = "[pp = 16, dp = 64]";
    int64_t wait = 10 * US; /* 1 + 2 + 2 + 2 + 2 + 1 us */
    fat_tree("pod-128x8.dir\"", "pod", mesh, "", wait + 16000 * US);
    fat_tree("pod-128x8.dir\"", "pod", mesh, "{route = \"single\"}", wait + 122880 * US);
}

/* k = 16: 1,024 hosts at 25 GB/s, full bisection. The 64 hosts of a pod send to the next pod's: no
 * link is short of room, 15.36 ms. With one path a pair all of an edge switch's 8 hosts take its
 * first uplink, and all 8 edge switches' traffic one core switch's link: 64 times as long. */
Test(contention, a_fat_tree_of_1024_has_full_bisection) {
    const char *mesh = "[pp = 16, dp = 64]";
    int64_t wait = 6 * 600000;
    fat_tree("fat-tree.dir\" with k = 16", "fat_tree", mesh, "", wait + 15360 * US);
    fat_tree("fat-tree.dir\" with k = 16", "fat_tree", mesh, "{route = \"single\"}",
             wait + 64 * 15360 * US);
}
