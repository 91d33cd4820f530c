/* Routes worked out by hand. */
#include "ir/lang/lang.h"
#include "tests/support/generate/topo_text.h"

#include <criterion/criterion.h>
#include <string.h>

#define WHOLE (UINT64_C(1) << 32)

static uint64_t share_of(const topo_text *t, const ds_route *route, const char *from,
                         const char *to) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < route->n_links; i++) {
        const ds_topo_link *link = ds_topo_link_at(t->topo, route->links[i]);
        if (link->from == topo_text_vertex(t, from) && link->to == topo_text_vertex(t, to)) {
            sum += route->share_q32[i];
        }
    }
    return sum;
}

Test(topo_route, dgx1_nvlink_where_there_is_one_and_pcie_elsewhere) {
    topo_text t = topo_text_load("scenarios/topologies/dgx1-v100.dir", NULL, 0);
    /* nvidia-smi topo -m of the machine: links between GPU pairs, 0 = through the CPUs (SYS) */
    static const int nvlinks[8][8] = {
        {0, 1, 1, 2, 2, 0, 0, 0}, {1, 0, 2, 1, 0, 2, 0, 0}, {1, 2, 0, 2, 0, 0, 1, 0},
        {2, 1, 2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 1, 1, 2}, {0, 2, 0, 0, 1, 0, 2, 1},
        {0, 0, 1, 0, 1, 2, 0, 2}, {0, 0, 0, 1, 2, 1, 2, 0},
    };
    for (uint32_t a = 0; a < 8; a++) {
        for (uint32_t b = 0; b < 8; b++) {
            const ds_route *route;
            ds_error err;
            cr_assert_eq(ds_topo_route(t.topo, a, b, &route, &err), DS_OK);
            if (a == b) {
                cr_assert_eq(route->hops, 0);
                cr_assert_eq(route->n_links, 0);
                cr_assert_eq(route->latency_ps, 0);
            } else if (nvlinks[a][b]) {
                cr_assert_eq(route->hops, 1);
                cr_assert_eq(route->latency_ps, 470000);
                cr_assert_eq(route->share_q32[0], WHOLE);
                cr_assert_eq(ds_topo_link_at(t.topo, route->links[0])->bytes_per_s,
                             nvlinks[a][b] * INT64_C(25000000000));
            } else { /* gpu, switch, cpu, cpu, switch, gpu */
                cr_assert_eq(route->hops, 5);
                cr_assert_eq(route->n_links, 5);
                cr_assert_eq(route->latency_ps, 2500000);
            }
        }
    }
    topo_text_free(&t);
}

Test(topo_route, dgx1_six_nvlinks_a_gpu) {
    topo_text t = topo_text_load("scenarios/topologies/dgx1-v100.dir", NULL, 0);
    int64_t out[8] = {0};
    for (uint32_t i = 0; i < ds_topo_n_links(t.topo); i++) {
        const ds_topo_link *link = ds_topo_link_at(t.topo, i);
        if (link->from < 8 && link->to < 8) out[link->from] += link->bytes_per_s;
    }
    for (int g = 0; g < 8; g++) cr_assert_eq(out[g], INT64_C(150000000000));
    topo_text_free(&t);
}

Test(topo_route, devices_do_not_forward) {
    topo_text t =
        topo_text_build("topology @ring {\n device d[8] : \"X\"\n"
                        " link d[i] -- d[(i + 1) % 8] : 1 GB/s, 500 ns for i in 0..8\n}\n");
    const ds_route *route;
    ds_error err;
    cr_assert_eq(ds_topo_route(t.topo, 7, 0, &route, &err), DS_OK);
    cr_assert_eq(route->hops, 1);
    cr_assert_eq(route->latency_ps, 500000);
    cr_assert_eq(ds_topo_route(t.topo, 0, 2, &route, &err), DS_ERR_UNREACHABLE);
    cr_assert(strstr(err.message, "d[0]") && strstr(err.message, "d[2]"), "%s", err.message);
    topo_text_free(&t);
}

Test(topo_route, forwarding_devices_share_both_ways_round) {
    topo_text t =
        topo_text_build("topology @ring {\n device d[8] : \"X\" {forward = true}\n"
                        " link d[i] -- d[(i + 1) % 8] : 1 GB/s, 500 ns for i in 0..8\n}\n");
    const ds_route *route = topo_text_route(&t, "d[0]", "d[4]");
    cr_assert_eq(route->hops, 4);
    cr_assert_eq(route->n_links, 8);
    for (uint32_t i = 0; i < 8; i++) cr_assert_eq(route->share_q32[i], WHOLE / 2);
    route = topo_text_route(&t, "d[0]", "d[3]");
    cr_assert_eq(route->n_links, 3);
    cr_assert_eq(route->latency_ps, 1500000);
    topo_text_free(&t);
}

Test(topo_route, latency_before_hops) {
    topo_text t =
        topo_text_build("topology @t {\n device a : \"X\"\n device b : \"X\"\n switch s[2]\n"
                        " link a -- b : 1 GB/s, 3 us\n"
                        " link a -- s[0] : 1 GB/s, 1 us\n link s[0] -- s[1] : 1 GB/s, 0 us\n"
                        " link s[1] -- b : 1 GB/s, 1 us\n link s[0] -- b : 1 GB/s, 1 us\n}\n");
    const ds_route *route = topo_text_route(&t, "a", "b"); /* 2 us over 2 links beats 2 us over 3 */
    cr_assert_eq(route->latency_ps, 2000000);
    cr_assert_eq(route->hops, 2);
    cr_assert_eq(route->n_links, 2);
    topo_text_free(&t);
}

/* Leaf and spine: with n spines every leaf-spine link carries 1/n, rounded to nearest. */
Test(topo_route, equal_paths_share_equally) {
    static const char *const texts[] = {"2", "3", "5"};
    static const uint64_t shares[] = {2147483648, 1431655765, 858993459}; /* 2^32/n */
    for (int i = 0; i < 3; i++) {
        ds_buf text = {0};
        ds_buf_printf(&text,
                      "param spines = %s\ntopology @t {\n device d[8] : \"X\"\n"
                      " switch leaf[4]\n switch spine[spines]\n"
                      " link d[i] -- leaf[i / 2] : 1 GB/s, 1 us for i in 0..8\n"
                      " link leaf[i] -- spine[j] : 1 GB/s, 1 us for i in 0..4, j in 0..spines\n}\n",
                      texts[i]);
        topo_text t = topo_text_build(text.text);
        const ds_route *route = topo_text_route(&t, "d[0]", "d[7]");
        cr_assert_eq(route->hops, 4);
        cr_assert_eq(route->latency_ps, 4000000);
        cr_assert_eq(share_of(&t, route, "d[0]", "leaf[0]"), WHOLE);
        cr_assert_eq(share_of(&t, route, "leaf[0]", "spine[1]"), shares[i]);
        cr_assert_eq(share_of(&t, route, "spine[1]", "leaf[3]"), shares[i]);
        cr_assert_eq(share_of(&t, route, "leaf[3]", "d[7]"), WHOLE);
        route = topo_text_route(&t, "d[0]", "d[1]");
        cr_assert_eq(route->hops, 2);
        topo_text_free(&t);
        ds_buf_deinit(&text);
    }
}

Test(topo_route, single_path_takes_the_lowest_links) {
    topo_text t =
        topo_text_build("topology @t {\n device d[2] : \"X\"\n switch leaf[2]\n"
                        " switch spine[3]\n"
                        " link leaf[i] -- spine[2 - j] : 1 GB/s, 1 us for i in 0..2, j in 0..3\n"
                        " link d[i] -- leaf[i] : 1 GB/s, 1 us for i in 0..2\n}\n");
    const ds_route *route, *again;
    ds_error err;
    cr_assert_eq(ds_topo_route_single(t.topo, 0, 1, &route, &err), DS_OK);
    cr_assert_eq(route->hops, 4);
    cr_assert_eq(route->n_links, 4);
    cr_assert_eq(route->latency_ps, 4000000);
    cr_assert_eq(share_of(&t, route, "leaf[0]", "spine[2]"), WHOLE);
    cr_assert_eq(share_of(&t, route, "spine[2]", "leaf[1]"), WHOLE);
    cr_assert_eq(ds_topo_route_single(t.topo, 0, 1, &again, &err), DS_OK);
    cr_assert_eq(route, again);
    cr_assert_eq(ds_topo_route_single(t.topo, 1, 1, &route, &err), DS_OK);
    cr_assert_eq(route->n_links, 0);
    topo_text_free(&t);
}

Test(topo_route, parallel_links_are_paths_of_their_own) {
    topo_text t = topo_text_build("topology @t {\n device a : \"X\"\n device b : \"X\"\n"
                                  " link a -- b : 25 GB/s, 1 us for i in 0..4\n}\n");
    const ds_route *route = topo_text_route(&t, "a", "b");
    cr_assert_eq(route->n_links, 4);
    for (uint32_t i = 0; i < 4; i++) cr_assert_eq(route->share_q32[i], WHOLE / 4);
    topo_text_free(&t);
}

/* The best way between two nodes of one instance may lead outside. */
Test(topo_route, leaves_an_instance_and_comes_back) {
    topo_text t = topo_text_build("topology @box {\n device d[2] : \"X\"\n switch s[2]\n"
                                  " link d[i] -- s[i] : 1 GB/s, 1 us for i in 0..2\n"
                                  " link s[0] -- s[1] : 1 GB/s, 9 us\n}\n"
                                  "topology @t {\n node n[3] : @box\n"
                                  " link n[0].s[i] -- n[1].s[0] : 1 GB/s, 1 us for i in 0..2\n"
                                  " link n[1].s[i] -- n[2].s[i] : 1 GB/s, 4 us for i in 0..2\n}\n");
    const ds_route *route = topo_text_route(&t, "n[0].d[0]", "n[0].d[1]");
    cr_assert_eq(route->latency_ps, 4000000); /* d s[0] n[1].s[0] s[1] d */
    cr_assert_eq(route->hops, 4);
    cr_assert_eq(share_of(&t, route, "n[0].s[0]", "n[1].s[0]"), WHOLE);
    route = topo_text_route(&t, "n[2].d[0]", "n[2].d[1]"); /* 9 us inside beats 4 + 9 + 4 */
    cr_assert_eq(route->latency_ps, 11000000);
    cr_assert_eq(route->hops, 3);
    topo_text_free(&t);
}

Test(topo_route, pod_of_1024) {
    topo_text t = topo_text_load("scenarios/topologies/pod-128x8.dir", NULL, 0);
    const ds_route *inside = topo_text_route(&t, "n[3].gpu[0]", "n[3].gpu[5]");
    cr_assert_eq(inside->latency_ps, 2400000);
    cr_assert_eq(inside->hops, 2);
    const ds_route *leaf = topo_text_route(&t, "n[8].gpu[1]", "n[15].gpu[6]");
    cr_assert_eq(leaf->latency_ps, 6000000); /* 1 + 2 + 2 + 1 */
    cr_assert_eq(leaf->n_links, 4);
    const ds_route *spine = topo_text_route(&t, "n[0].gpu[0]", "n[127].gpu[7]");
    cr_assert_eq(spine->latency_ps, 10000000); /* 1 + 2 + 2 + 2 + 2 + 1 */
    cr_assert_eq(spine->hops, 6);
    cr_assert_eq(spine->n_links, 4 + 2 * 8);
    cr_assert_eq(share_of(&t, spine, "leaf[0]", "spine[3]"), WHOLE / 8);
    topo_text_free(&t);
}

/* In a 16 x 16 x 16 torus the antipode is 8 steps away in each dimension, either way round:
 * 2^3 * 24! / (8!)^3 paths; the six first links carry a sixth each, by symmetry. */
Test(topo_route, torus_antipode) {
    const ds_setting settings[] = {{"x", "16"}, {"y", "16"}, {"z", "16"}};
    topo_text t = topo_text_load("scenarios/topologies/torus.dir", settings, 3);
    cr_assert_eq(ds_topo_n_devices(t.topo), 4096);
    const ds_route *route;
    ds_error err;
    cr_assert_eq(ds_topo_route(t.topo, 0, (8 * 16 + 8) * 16 + 8, &route, &err), DS_OK);
    cr_assert_eq(route->hops, 24);
    uint32_t first = 0;
    for (uint32_t i = 0; i < route->n_links; i++) {
        if (ds_topo_link_at(t.topo, route->links[i])->from != 0) continue;
        cr_assert_eq(route->share_q32[i], 715827883); /* 2^32 / 6 */
        first++;
    }
    cr_assert_eq(first, 6);
    topo_text_free(&t);
}

/* n diamonds in a row: 2^n paths. */
static topo_text diamonds(int n) {
    ds_buf text = {0};
    ds_buf_printf(&text,
                  "param n = %d\ntopology @t {\n device a : \"X\"\n device b : \"X\"\n"
                  " switch s[n + 1]\n switch m[n * 2]\n"
                  " link s[i] -> m[i * 2 + j] : 1 GB/s, 1 us for i in 0..n, j in 0..2\n"
                  " link m[i * 2 + j] -> s[i + 1] : 1 GB/s, 1 us for i in 0..n, j in 0..2\n"
                  " link a -> s[0] : 1 GB/s, 1 us\n link s[n] -> b : 1 GB/s, 1 us\n}\n",
                  n);
    topo_text t = topo_text_build(text.text);
    ds_buf_deinit(&text);
    return t;
}

Test(topo_route, counts_paths_exactly_and_refuses_overflow) {
    topo_text t = diamonds(119);
    const ds_route *route = topo_text_route(&t, "a", "b");
    cr_assert_eq(route->n_links, 119 * 4 + 2);
    cr_assert_eq(share_of(&t, route, "s[100]", "m[201]"), WHOLE / 2);
    cr_assert_eq(share_of(&t, route, "s[119]", "b"), WHOLE);
    topo_text_free(&t);
    t = diamonds(120);
    ds_error err;
    cr_assert_eq(ds_topo_route(t.topo, 0, 1, &route, &err), DS_ERR_OVERFLOW);
    cr_assert(strstr(err.message, "2^120"), "%s", err.message);
    topo_text_free(&t);
}

Test(topo_route, refuses_latency_overflow) {
    topo_text t =
        topo_text_build("topology @t {\n device a : \"X\"\n device b : \"X\"\n switch s\n"
                        " link a -- s : 1 GB/s, 9000000 s\n link s -- b : 1 GB/s, 9000000 s\n}\n");
    const ds_route *route;
    ds_error err;
    cr_assert_eq(ds_topo_route(t.topo, 0, 1, &route, &err), DS_ERR_OVERFLOW);
    topo_text_free(&t);
}

Test(topo_route, is_cached) {
    topo_text t = topo_text_load("scenarios/topologies/dgx-a100.dir", NULL, 0);
    const ds_route *a, *b;
    cr_assert_eq(ds_topo_route(t.topo, 1, 6, &a, NULL), DS_OK);
    cr_assert_eq(ds_topo_route(t.topo, 1, 6, &b, NULL), DS_OK);
    cr_assert_eq(a, b);
    topo_text_free(&t);
}
