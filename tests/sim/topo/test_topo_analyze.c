/* Bisection bandwidth against closed forms, connectivity, and the two export formats. */
#include "tests/support/generate/topo_text.h"

#include <criterion/criterion.h>
#include <string.h>

static int64_t bisection(const topo_text *t) {
    int64_t value = -1;
    ds_error err = {0};
    ds_status status = ds_topo_bisection(t->topo, &value, &err);
    cr_assert_eq(status, DS_OK, "%s", err.message);
    return value;
}

static int64_t bisection_of(const char *text) {
    topo_text t = topo_text_build(text);
    int64_t value = bisection(&t);
    topo_text_free(&t);
    return value;
}

Test(topo_analyze, ring_is_cut_twice) {
    cr_assert_eq(bisection_of("topology @t {\n device d[64] : \"X\"\n"
                              " link d[i] -- d[(i + 1) % 64] : 3 GB/s, 1 us for i in 0..64\n}\n"),
                 INT64_C(6000000000));
}

Test(topo_analyze, full_mesh_is_cut_in_a_quarter_of_n_squared) {
    cr_assert_eq(
        bisection_of("topology @t {\n device d[10] : \"X\"\n"
                     " link d[i] -- d[j] : 7 B/s, 1 us for i in 0..10, j in i + 1..10\n}\n"),
        5 * 5 * 7);
}

Test(topo_analyze, star_is_limited_by_half_of_its_arms) {
    cr_assert_eq(bisection_of("topology @t {\n device d[9] : \"X\"\n switch s\n"
                              " link d[i] -- s : 10 B/s, 1 us for i in 0..9\n}\n"),
                 4 * 10);
}

Test(topo_analyze, parallel_links_add_up) {
    cr_assert_eq(bisection_of("topology @t {\n device d[2] : \"X\"\n"
                              " link d[0] -> d[1] : 5 B/s, 1 us for i in 0..3\n"
                              " link d[1] -> d[0] : 1 B/s, 1 us\n}\n"),
                 15);
}

Test(topo_analyze, a_switch_that_does_not_forward_carries_nothing) {
    cr_assert_eq(bisection_of("topology @t {\n device d[2] : \"X\"\n switch s {forward = false}\n"
                              " link d[i] -- s : 5 B/s, 1 us for i in 0..2\n}\n"),
                 0);
}

/* x * y * z torus cut across its outermost dimension: 2 * x * y links. */
Test(topo_analyze, torus) {
    const ds_setting settings[] = {{"x", "4"}, {"y", "6"}, {"z", "8"}};
    topo_text t = topo_text_load("scenarios/topologies/torus.dir", settings, 3);
    cr_assert_eq(bisection(&t), 2 * 4 * 6 * INT64_C(50000000000));
    topo_text_free(&t);
    const ds_setting flat[] = {{"x", "8"}, {"y", "8"}, {"z", "1"}};
    t = topo_text_load("scenarios/topologies/torus.dir", flat, 3);
    cr_assert_eq(ds_topo_n_links(t.topo), 8 * 8 * 4);
    cr_assert_eq(bisection(&t), 2 * 8 * INT64_C(50000000000));
    topo_text_free(&t);
}

/* Full bisection bandwidth: half of the k^3/4 hosts at full rate (Al-Fares et al. 2008). */
Test(topo_analyze, fat_tree) {
    static const struct {
        const char *k;
        uint32_t hosts;
    } cases[] = {{"2", 2}, {"4", 16}, {"8", 128}};
    for (int i = 0; i < 3; i++) {
        const ds_setting setting = {"k", cases[i].k};
        topo_text t = topo_text_load("scenarios/topologies/fat-tree.dir", &setting, 1);
        cr_assert_eq(ds_topo_n_devices(t.topo), cases[i].hosts);
        cr_assert_eq(bisection(&t), cases[i].hosts / 2 * INT64_C(25000000000));
        topo_text_free(&t);
    }
}

/* 16 leaves x 8 spines x 200 GB/s is more than 512 NICs x 24 GB/s of PCIe. */
Test(topo_analyze, pod) {
    topo_text t = topo_text_load("scenarios/topologies/pod-128x8.dir", NULL, 0);
    cr_assert_eq(bisection(&t), 512 * INT64_C(24000000000));
    topo_text_free(&t);
}

Test(topo_analyze, bandwidths_beyond_doubles_stay_exact) {
    cr_assert_eq(bisection_of("topology @t {\n device d[2] : \"X\"\n"
                              " link d[0] -- d[1] : 9007199254740993 B/s, 1 us for i in 0..3\n}\n"),
                 INT64_C(27021597764222979));
}

Test(topo_analyze, one_device_has_no_bisection) {
    topo_text t = topo_text_build("topology @t {\n device d : \"X\"\n}\n");
    int64_t value;
    ds_error err;
    cr_assert_eq(ds_topo_bisection(t.topo, &value, &err), DS_ERR_VALUE);
    topo_text_free(&t);
}

/* ---- connectivity ---- */

static bool connected(const char *text, uint32_t *a, uint32_t *b) {
    topo_text t = topo_text_build(text);
    bool yes = false;
    ds_error err = {0};
    cr_assert_eq(ds_topo_connected(t.topo, &yes, a, b, &err), DS_OK, "%s", err.message);
    topo_text_free(&t);
    return yes;
}

Test(topo_analyze, connectivity) {
    uint32_t a, b;
    cr_assert(connected("topology @t {\n device d[4] : \"X\"\n switch s\n"
                        " link d[i] -- s : 1 GB/s, 1 us for i in 0..4\n}\n",
                        &a, &b));
    cr_assert(connected("topology @t {\n device d[5] : \"X\"\n" /* no switch at all */
                        " link d[i] -- d[j] : 1 GB/s, 1 us for i in 0..5, j in i + 1..5\n}\n",
                        &a, &b));
    cr_assert(connected("topology @t {\n device d[4] : \"X\" {forward = true}\n"
                        " link d[i] -> d[(i + 1) % 4] : 1 GB/s, 1 us for i in 0..4\n}\n",
                        &a, &b));
    cr_assert(connected("topology @t {\n device d : \"X\"\n}\n", &a, &b));
    cr_assert_not(connected("topology @t {\n device d[4] : \"X\"\n" /* devices pass nothing on */
                            " link d[i] -- d[(i + 1) % 4] : 1 GB/s, 1 us for i in 0..4\n}\n",
                            &a, &b));
    cr_assert_eq(a, 0);
    cr_assert_eq(b, 2);
    cr_assert_not(connected("topology @t {\n device d[4] : \"X\"\n switch s\n" /* d[3] only sends */
                            " link d[i] -- s : 1 GB/s, 1 us for i in 0..3\n"
                            " link d[3] -> s : 1 GB/s, 1 us\n}\n",
                            &a, &b));
    cr_assert_eq(a, 0);
    cr_assert_eq(b, 3);
}

Test(topo_analyze, every_ready_made_topology_is_connected) {
    static const struct {
        const char *path;
        uint32_t devices;
    } files[] = {
        {"scenarios/topologies/dgx1-v100.dir", 8},
        {"scenarios/topologies/dgx2.dir", 16},
        {"scenarios/topologies/dgx-a100.dir", 8},
        {"scenarios/topologies/dgx-h100.dir", 8},
        {"scenarios/topologies/pcie-4xv100.dir", 4},
        {"scenarios/topologies/p3-16xlarge-x2.dir", 16},
        {"scenarios/topologies/mixed-box.dir", 16},
        {"scenarios/topologies/fat-tree.dir", 16},
        {"scenarios/topologies/torus.dir", 64},
        {"scenarios/topologies/pod-128x8.dir", 1024},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        topo_text t = topo_text_load(files[i].path, NULL, 0);
        bool yes = false;
        uint32_t a, b;
        cr_expect_eq(ds_topo_connected(t.topo, &yes, &a, &b, NULL), DS_OK);
        cr_expect(yes, "%s", files[i].path);
        cr_expect_eq(ds_topo_n_devices(t.topo), files[i].devices, "%s", files[i].path);
        topo_text_free(&t);
    }
}

/* ---- exports ---- */

static uint32_t occurrences(const char *text, const char *part) {
    uint32_t n = 0;
    for (const char *at = text; (at = strstr(at, part)); at++) n++;
    return n;
}

Test(topo_analyze, graphml_has_every_vertex_and_link_with_its_attributes) {
    topo_text t = topo_text_build("topology @t {\n device d[2] : \"A<&\\\"B\"\n nic n\n"
                                  " link d[i] -- n : 77 Gb/s, 1.5 us for i in 0..2\n}\n");
    ds_buf text = {0};
    cr_assert_eq(ds_topo_print_graphml(t.topo, &text, NULL), DS_OK);
    cr_assert_eq(occurrences(text.text, "<node "), 3);
    cr_assert_eq(occurrences(text.text, "<edge "), 4);
    cr_assert_eq(occurrences(text.text, "<data key=\"bw\">9625000000</data>"), 4);
    cr_assert_eq(occurrences(text.text, "<data key=\"lat\">1500000</data>"), 4);
    cr_assert_eq(occurrences(text.text, "<data key=\"name\">d[1]</data>"), 1);
    cr_assert_eq(occurrences(text.text, "<data key=\"kind\">nic</data>"), 1);
    cr_assert_eq(occurrences(text.text, "A&lt;&amp;"), 2);
    ds_buf_deinit(&text);
    topo_text_free(&t);
}

Test(topo_analyze, dot_draws_duplex_links_once_and_instances_as_clusters) {
    topo_text t = topo_text_load("scenarios/topologies/p3-16xlarge-x2.dir", NULL, 0);
    ds_buf text = {0};
    ds_topo_print_dot(t.topo, &text);
    cr_assert_eq(occurrences(text.text, "subgraph cluster_"), 2);
    cr_assert_eq(occurrences(text.text, " -> "), ds_topo_n_links(t.topo) / 2);
    cr_assert_eq(occurrences(text.text, "dir=both"), ds_topo_n_links(t.topo) / 2);
    cr_assert_eq(occurrences(text.text, "fillcolor=palegreen"), 16);
    ds_buf_deinit(&text);
    topo_text_free(&t);
}
