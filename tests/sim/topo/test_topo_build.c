/* Counts, paths, numbering and units of built topologies, and the errors of broken ones. */
#include "ir/lang/lang.h"
#include "tests/support/generate/topo_text.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char pod[] =
    "topology @dgx {\n"
    "  device gpu[8] : \"A100-SXM4-80GB\"\n"
    "  switch nvswitch\n"
    "  nic nic[8]\n"
    "  link gpu[i] -- nvswitch : 300 GB/s, 1.2 us for i in 0..8\n"
    "  link gpu[i] -- nic[i] : 24 GB/s, 1 us for i in 0..8\n"
    "}\n"
    "topology @pod {\n"
    "  node n[128] : @dgx\n"
    "  switch leaf[16], spine[8]\n"
    "  link n[i].nic[j] -- leaf[i / 8] : 25 GB/s, 2 us for i in 0..128, j in 0..8\n"
    "  link leaf[i] -- spine[j] : 200 GB/s, 2 us for i in 0..16, j in 0..8\n"
    "}\n";

Test(topo_build, counts_of_nested_instances) {
    topo_text t = topo_text_build(pod);
    cr_assert_eq(ds_topo_n_devices(t.topo), 1024);
    cr_assert_eq(ds_topo_n_vertices(t.topo), 128 * 17 + 24);
    cr_assert_eq(ds_topo_n_links(t.topo), 2 * (128 * 16 + 128 * 8 + 16 * 8));
    cr_assert_str_eq(ds_topo_name(t.topo), "pod");
    topo_text_free(&t);
}

Test(topo_build, devices_in_order_of_declaration) {
    topo_text t = topo_text_build(pod);
    cr_assert_str_eq(ds_topo_device_path(t.topo, 0), "n[0].gpu[0]");
    cr_assert_str_eq(ds_topo_device_path(t.topo, 8 * 77 + 5), "n[77].gpu[5]");
    cr_assert_str_eq(ds_topo_device_type(t.topo, 1023), "A100-SXM4-80GB");
    uint32_t vertex = ds_topo_find_vertex(t.topo, "n[77].gpu[5]");
    cr_assert_eq(vertex, 77 * 17 + 5);
    cr_assert_eq(ds_topo_vertex_kind(t.topo, vertex), DS_NODE_DEVICE);
    cr_assert_eq(ds_topo_vertex_kind(t.topo, vertex + 8), DS_NODE_NIC);
    topo_text_free(&t);
}

Test(topo_build, every_printed_path_leads_back) {
    topo_text t = topo_text_build(pod);
    for (uint32_t v = 0; v < ds_topo_n_vertices(t.topo); v++) {
        cr_assert_eq(ds_topo_find_vertex(t.topo, ds_topo_vertex_path(t.topo, v)), v);
    }
    const char *const wrong[] = {"",
                                 "n",
                                 "n[0]",
                                 "n[128].gpu[0]",
                                 "leaf",
                                 "leaf[16]",
                                 "leaf[0].x",
                                 "n[0].nvswitch[0]",
                                 "leaf[-1]",
                                 "leaf[ 1]",
                                 "n[0]gpu[0]",
                                 "n[0].gpu[0].",
                                 "leaf[0",
                                 "leaf[0]]",
                                 "n[0].gpu[99999999999999999999]"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cr_assert_eq(ds_topo_find_vertex(t.topo, wrong[i]), UINT32_MAX, "%s", wrong[i]);
    }
    topo_text_free(&t);
}

/* Units to the byte and picosecond: bits are an eighth of bytes, binary prefixes are not decimal.
 */
Test(topo_build, units_are_exact) {
    static const struct {
        const char *text;
        int64_t bytes_per_s, latency_ps;
    } cases[] = {
        {"53.6870912 GB/s, 500 ns", 53687091200, 500000},
        {"77 Gb/s, 1.2 us", 9625000000, 1200000},
        {"200 Gb/s, 0.6 us", 25000000000, 600000},
        {"1 GiB/s, 3 ms", 1073741824, 3000000000},
        {"2810 MB/s, 1350 ns", 2810000000, 1350000},
        {"1 B/s, 1 ps", 1, 1},
        {"0.1 TB/s, 0 s", 100000000000, 0},
        {"15.75 GB/s, 0.3 us", 15750000000, 300000},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[200];
        snprintf(text, sizeof text,
                 "topology @t {\n device a : \"X\"\n device b : \"X\"\n"
                 " link a -> b : %s\n}\n",
                 cases[i].text);
        topo_text t = topo_text_build(text);
        const ds_topo_link *link = ds_topo_link_at(t.topo, 0);
        cr_assert_eq(ds_topo_n_links(t.topo), 1);
        cr_assert_eq(link->bytes_per_s, cases[i].bytes_per_s, "%s", cases[i].text);
        cr_assert_eq(link->latency_ps, cases[i].latency_ps, "%s", cases[i].text);
        topo_text_free(&t);
    }
}

Test(topo_build, loops_where_and_params) {
    topo_text t =
        topo_text_build("param n = 5\n"
                        "topology @mesh {\n"
                        "  device d[n] : \"X\"\n"
                        "  link d[i] -- d[j] : 1 GB/s, 1 us for i in 0..n, j in 0..n where i < j\n"
                        "  link d[i] -> d[j] : 1 GB/s, 1 us for i in 0..n, j in i + 1..n\n"
                        "}\n");
    cr_assert_eq(ds_topo_n_links(t.topo), 5 * 4 + 5 * 4 / 2);
    topo_text_free(&t);
}

/* ---- devices by written path ---- */

static ds_step step_of(topo_text *t, const char *name, int64_t index) {
    ds_step step = {ds_intern(&t->unit->strings, name), DS_NO_EXPR};
    if (index >= 0) step.index = ds_expr_int(&t->unit->exprs, index);
    return step;
}

Test(topo_build, finds_devices_by_path) {
    topo_text t =
        topo_text_build("topology @one { device gpu : \"X\"\n switch s\n"
                        " link gpu -- s : 1 GB/s, 1 us }\n"
                        "topology @two { device pad[3] : \"X\"\n node n[4] : @one\n switch top\n"
                        " link n[i].s -- top : 1 GB/s, 1 us for i in 0..4 }\n");
    ds_env env = ds_binding_env(&t.binding, NULL);
    ds_error err;
    uint32_t device = 99;
    ds_step deep[] = {step_of(&t, "n", 2), step_of(&t, "gpu", -1)};
    cr_assert_eq(ds_topo_find_device(t.topo, &env, deep, 2, DS_NOWHERE, &device, &err), DS_OK);
    cr_assert_eq(device, 5);
    device = 99; /* an instance with one device is that device */
    cr_assert_eq(ds_topo_find_device(t.topo, &env, deep, 1, DS_NOWHERE, &device, &err), DS_OK);
    cr_assert_eq(device, 5);
    cr_assert_eq(ds_topo_find_device(t.topo, &env, deep, 0, DS_NOWHERE, &device, &err),
                 DS_ERR_NAME);
    cr_assert(strstr(err.message, "7 devices"), "%s", err.message);
    ds_step not_device[] = {step_of(&t, "n", 2), step_of(&t, "s", -1)};
    cr_assert_eq(ds_topo_find_device(t.topo, &env, not_device, 2, DS_NOWHERE, &device, &err),
                 DS_ERR_NAME);
    ds_step misspelt[] = {step_of(&t, "pda", 0)};
    cr_assert_eq(ds_topo_find_device(t.topo, &env, misspelt, 1, DS_NOWHERE, &device, &err),
                 DS_ERR_NAME);
    cr_assert(strstr(err.message, "did you mean `pad`"), "%s", err.message);
    topo_text_free(&t);
}

/* 300 GB/s x 0.92; both directions; a link without attributes has no cap. */
Test(topo_build, efficiency_and_cap_of_links) {
    topo_text t = topo_text_build("topology @t {\n  device d[2] : \"X\"\n"
                                  "  link d[0] -- d[1] : 300 GB/s, 1 us {efficiency = 0.92, cap = "
                                  "12 GB/s}\n  link d[0] -> d[1] : 5 GB/s, 1 us\n}\n");
    for (uint32_t l = 0; l < 2; l++) {
        cr_expect_eq(ds_topo_link_at(t.topo, l)->bytes_per_s, INT64_C(276000000000));
        cr_expect_eq(ds_topo_link_at(t.topo, l)->cap_bytes_per_s, INT64_C(12000000000));
    }
    cr_expect_eq(ds_topo_link_at(t.topo, 2)->bytes_per_s, INT64_C(5000000000));
    cr_expect_eq(ds_topo_link_at(t.topo, 2)->cap_bytes_per_s, 0);
    topo_text_free(&t);
}

/* ---- errors ---- */

typedef struct broken {
    const char *text;
    ds_status code;
    uint32_t line; /* of the whole text, whose first line is "dir 1" */
    const char *message;
} broken;

#define TWO "topology @t {\n device d[2] : \"X\"\n switch s\n"

static const broken broken_ones[] = {
    {TWO " link d[0] -- sw : 1 GB/s, 1 us\n}\n", DS_ERR_NAME, 5, "no node `sw`"},
    {TWO " link d[0] -- ss : 1 GB/s, 1 us\n}\n", DS_ERR_NAME, 5, "did you mean `s`"},
    {TWO " link d[2] -- s : 1 GB/s, 1 us\n}\n", DS_ERR_VALUE, 5, "d[2]"},
    {TWO " link d[i - 1] -- s : 1 GB/s, 1 us for i in 0..2\n}\n", DS_ERR_VALUE, 5, "d[-1]"},
    {TWO " link d -- s : 1 GB/s, 1 us\n}\n", DS_ERR_NAME, 5, "needs an index"},
    {TWO " link d[0] -- s[0] : 1 GB/s, 1 us\n}\n", DS_ERR_NAME, 5, "takes no index"},
    {TWO " link d[0] -- s.x : 1 GB/s, 1 us\n}\n", DS_ERR_NAME, 5, "single node"},
    {TWO " link d[i] -- d[1 - i] : 1 GB/s, 1 us for i in 0..1\n link d[i] -- d[j] : 1 GB/s, 1 us "
         "for i in "
         "0..2, j in 0..2\n}\n",
     DS_ERR_VALUE, 6, "to itself (j = 0, i = 0)"},
    {TWO " link d[0] -- s : 0 GB/s, 1 us\n}\n", DS_ERR_VALUE, 5, "bandwidth"},
    {TWO " link d[0] -- s : 1 GB/s, 1 us {efficiency = 1.5}\n}\n", DS_ERR_VALUE, 5, "is 1.5"},
    {TWO " link d[0] -- s : 1 GB/s, 1 us {efficiency = 0}\n}\n", DS_ERR_VALUE, 5, "above 0"},
    {TWO " link d[0] -- s : 1 GB/s, 1 us {efficiency = 3 us}\n}\n", DS_ERR_TYPE, 5, "number"},
    {TWO " link d[0] -- s : 1 GB/s, 1 us {cap = 5}\n}\n", DS_ERR_TYPE, 5, "must be a rate"},
    {TWO " link d[0] -- s : 1 GB/s, 1 us {cap = 0 GB/s}\n}\n", DS_ERR_VALUE, 5, "at least 1"},
    {TWO " link d[0] -- s : 1 GB/s, 1 us {duplex = true}\n}\n", DS_ERR_NAME, 5, "`duplex`"},
    {TWO " link d[0] -- s : 0 - 1 GB/s, 1 us\n}\n", DS_ERR_VALUE, 5, ""},
    {TWO " link d[0] -- s : 1 GB/s, 0 - 1 us\n}\n", DS_ERR_VALUE, 5, ""},
    {TWO " link d[0] -- s : 1 GB, 1 us\n}\n", DS_ERR_TYPE, 5, ""},
    {TWO " link d[0] -- s : 1 GB/s, 1 GB/s\n}\n", DS_ERR_TYPE, 5, ""},
    {"topology @t {\n switch s[4]\n}\n", DS_ERR_VALUE, 2, "no devices"},
    {"topology @t {\n device d[0] : \"X\"\n}\n", DS_ERR_VALUE, 2, "no nodes"},
    {"topology @t {\n device d[1 - 2] : \"X\"\n}\n", DS_ERR_VALUE, 3, "negative count: -1"},
    {"topology @t {\n device d[16777217] : \"X\"\n}\n", DS_ERR_LIMIT, 3, "16777217"},
    {"topology @a { device d[4096] : \"X\" }\ntopology @t {\n node n[4097] : @a\n}\n", DS_ERR_LIMIT,
     4, "16781312 vertices"},
    {"topology @t {\n node n[2] : @t\n}\n", DS_ERR_NAME, 3, "@t contains itself"},
    {"topology @a { node b : @t }\ntopology @t {\n node a : @a\n}\n", DS_ERR_NAME, 2,
     "@t contains itself"},
    {"topology @big { device d : \"X\" }\ntopology @t {\n node n[2] : @bgi\n}\n", DS_ERR_NAME, 4,
     "did you mean @big"},
    {"topology @a { device d : \"X\" }\ntopology @t {\n node n[2] : @a\n switch s\n link n[0] -- s "
     ": 1 GB/s, 1 us\n}\n",
     DS_ERR_NAME, 6, "`n.d`"},
    {"topology @t {\n device d : \"X\"\n switch d\n}\n", DS_ERR_NAME, 4, "declared twice"},
    {"topology @t {\n device d : \"X\" {forwards = true}\n}\n", DS_ERR_NAME, 3, "forward"},
    {"topology @t {\n device d : \"X\" {forward = 1}\n}\n", DS_ERR_TYPE, 3, "true or false"},
    {TWO " link d[0] -- s : 1 GB/s, 1 us {efficiency = 1e-320}\n}\n", DS_ERR_VALUE, 5,
     "it must leave at least 1 B/s"},
    {TWO " link d[0] -- s : 0.6 B/s, 1 us\n}\n", DS_ERR_VALUE, 5, "0.6 B/s is less than 1 B/s"},
    {TWO " link d[0] -- s : 5e-324 GB/s, 1 us\n}\n", DS_ERR_VALUE, 5, "is less than 1 B/s"},
    {TWO " link d[0] -- s : 1e300 GB/s, 1 us\n}\n", DS_ERR_OVERFLOW, 5, "is beyond the largest"},
    {TWO " link d[0] -- s : 1 GB/s, 1e7 s\n}\n", DS_ERR_OVERFLOW, 5, "is beyond the largest"},
    {TWO " link d[0] -- s : 1 GB/s, 1 us for i in 0..100000, j in 0..100000 where i < 0\n}\n",
     DS_ERR_LIMIT, 5, "turns"},
};

Test(topo_build, errors_name_place_and_values) {
    for (size_t i = 0; i < sizeof broken_ones / sizeof *broken_ones; i++) {
        const broken *b = &broken_ones[i];
        topo_text t;
        ds_error err = {0};
        ds_status status = topo_text_try(b->text, &t, &err);
        cr_expect_eq(status, b->code, "%s: got %s: %s", b->text, ds_status_name(status),
                     err.message);
        cr_expect_eq(err.loc.line, b->line, "%s: line %u: %s", b->text, err.loc.line, err.message);
        cr_expect(strstr(err.message, b->message), "%s: %s", b->text, err.message);
        cr_expect_null(t.topo);
        topo_text_free(&t);
    }
}
