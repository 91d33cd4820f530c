/* What is written for other tools says the same as the graph: GraphML read back, SimGrid platforms
 * taken apart link by link. */
#include "ir/base/rng.h"
#include "ir/import/xml_internal.h"
#include "tests/support/import_topo.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const topologies[] = {"dgx-a100",       "dgx-h100",    "dgx1-v100",
                                         "dgx2",           "fat-tree",    "mixed-box",
                                         "p3-16xlarge-x2", "pcie-4xv100", "torus"};
#define N_TOPOLOGIES (sizeof topologies / sizeof *topologies)

static topo_text load(const char *name) {
    char path[128];
    snprintf(path, sizeof path, "scenarios/topologies/%s.dir", name);
    return topo_text_load(path, NULL, 0);
}

/* ---- GraphML ---- */

static topo_text round_trip(const ds_topo *topo, ds_buf *text) {
    ds_buf graphml = {0};
    cr_assert_eq(ds_topo_print_graphml(topo, &graphml, NULL), DS_OK);
    topo_text t = import_topo(ds_import_graphml, graphml.text, NULL, text);
    ds_buf_deinit(&graphml);
    return t;
}

static void same_links(const ds_topo *a, const ds_topo *b) {
    cr_assert_eq(ds_topo_n_vertices(a), ds_topo_n_vertices(b));
    cr_assert_eq(ds_topo_n_links(a), ds_topo_n_links(b));
    for (uint32_t l = 0; l < ds_topo_n_links(a); l++) {
        const ds_topo_link *x = ds_topo_link_at(a, l), *y = ds_topo_link_at(b, l);
        cr_assert_eq(x->bytes_per_s, y->bytes_per_s);
        cr_assert_eq(x->latency_ps, y->latency_ps);
        cr_assert_eq(x->cap_bytes_per_s, y->cap_bytes_per_s);
        cr_assert_eq(ds_topo_reduces(a, x->to), ds_topo_reduces(b, y->to));
        cr_assert_eq(ds_topo_vertex_kind(a, x->from), ds_topo_vertex_kind(b, y->from));
        cr_assert_eq(ds_topo_vertex_kind(a, x->to), ds_topo_vertex_kind(b, y->to));
    }
}

/* Links keep their numbers, so routes are equal link by link and share by share. */
static void same_routes(ds_topo *a, ds_topo *b) {
    uint32_t n = ds_topo_n_devices(a);
    cr_assert_eq(ds_topo_n_devices(b), n);
    for (uint32_t i = 0; i < n; i++) {
        cr_assert_str_eq(ds_topo_device_type(a, i), ds_topo_device_type(b, i));
        for (uint32_t j = 0; j < n; j++) {
            const ds_route *x = device_route(a, i, j), *y = device_route(b, i, j);
            cr_assert_eq(x->latency_ps, y->latency_ps);
            cr_assert_eq(x->n_links, y->n_links);
            for (uint32_t l = 0; l < x->n_links; l++) {
                cr_assert_eq(x->links[l], y->links[l]);
                cr_assert_eq(x->share_q32[l], y->share_q32[l]);
            }
        }
    }
}

Test(export_topo, graphml_comes_back) {
    for (size_t i = 0; i < N_TOPOLOGIES; i++) {
        topo_text t = load(topologies[i]);
        topo_text back = round_trip(t.topo, NULL);
        cr_expect_str_eq(ds_topo_name(back.topo), ds_topo_name(t.topo));
        same_links(t.topo, back.topo);
        same_routes(t.topo, back.topo);
        topo_text_free(&t);
        topo_text_free(&back);
    }
}

/* Two kinds of devices in each instance, odd figures, one-way and parallel links, nodes that do
 * not do what their kind does. */
Test(export_topo, graphml_of_an_odd_graph) {
    topo_text t = topo_text_build("topology @part {\n"
                                  "  device a : \"T4\", b : \"A40\" {forward = true}\n"
                                  "  switch s {forward = false, reduce = true}\n"
                                  "  link a -> b : 123456789 B/s, 7 ps\n"
                                  "  link a -- s : 999999999999999999 B/s, 123456789 ns\n"
                                  "  link b -> a : 123456789 B/s, 8 ps\n"
                                  "}\n"
                                  "topology @odd {\n"
                                  "  node n[3] : @part\n"
                                  "  switch min2 {reduce = true}, x\n"
                                  "  link n[i].a -- x : 53.6870912 GB/s, 0 ns for i in 0..3\n"
                                  "  link n[i].b -- x : 1 B/s, 1 ms for i in 0..3, j in 0..2\n"
                                  "  link n[i].b -- x : 9 GB/s, 1 ms {efficiency = 0.7, cap = "
                                  "12345 KB/s} for i in 0..3\n"
                                  "  link x -- min2 : 1 KB/s, 1 s\n"
                                  "}\n");
    ds_buf text = {0}, again = {0};
    topo_text back = round_trip(t.topo, &text);
    same_links(t.topo, back.topo);
    same_routes(t.topo, back.topo);
    topo_text twice = round_trip(back.topo, &again);
    cr_expect_str_eq(again.text, text.text);
    topo_text_free(&t);
    topo_text_free(&back);
    topo_text_free(&twice);
    ds_buf_deinit(&text);
    ds_buf_deinit(&again);
}

static uint64_t draw(uint64_t seed, uint64_t *at, uint64_t n) {
    return ds_rng_at(seed, 23, (*at)++, 0) % n;
}

/* Runs of links with indices that stay, go up, are divided or jump, from anywhere on; one by one.
 */
static void put_random_links(uint64_t seed, ds_buf *text) {
    static const char *const ends[] = {"a", "b"};
    uint64_t at = 0;
    ds_buf_put(text, "topology @t {\n  device a[40] : \"T4\"\n  switch b[40]\n");
    for (uint64_t runs = 1 + draw(seed, &at, 6); runs > 0; runs--) {
        uint64_t n = 1 + draw(seed, &at, 14), a0 = draw(seed, &at, 20), b0 = draw(seed, &at, 20),
                 step_a = draw(seed, &at, 2), way = draw(seed, &at, 4), by = 1 + draw(seed, &at, 4);
        const char *a = ends[draw(seed, &at, 2)], *b = ends[draw(seed, &at, 2)];
        for (uint64_t k = 0; k < n; k++) {
            uint64_t i = a0 + step_a * k, j = way == 0   ? b0
                                              : way == 1 ? b0 + k
                                              : way == 2 ? b0 + (a0 + k) / by - a0 / by
                                                         : draw(seed, &at, 40);
            if (a == b && i == j) continue;
            ds_buf_printf(text, "  link %s[%d] %s %s[%d] : %d GB/s, 1 us\n", a, (int)i,
                          way == 3 && k % 2 ? "->" : "--", b, (int)j, 1 + (int)(runs % 2));
        }
    }
    ds_buf_put(text, "}\n");
}

/* Whatever loops are made of them, the links are the same ones in the same order. */
Test(export_topo, loops_of_random_links) {
    for (uint64_t seed = 0; seed < 400; seed++) {
        ds_buf text = {0}, written = {0};
        put_random_links(seed, &text);
        topo_text t = topo_text_build(text.text);
        topo_text back = round_trip(t.topo, &written);
        same_links(t.topo, back.topo);
        for (uint32_t l = 0; l < ds_topo_n_links(t.topo); l++) {
            const ds_topo_link *x = ds_topo_link_at(t.topo, l), *y = ds_topo_link_at(back.topo, l);
            cr_assert_str_eq(ds_topo_vertex_path(t.topo, x->from),
                             ds_topo_vertex_path(back.topo, y->from), "%s\n%s", text.text,
                             written.text);
            cr_assert_str_eq(ds_topo_vertex_path(t.topo, x->to),
                             ds_topo_vertex_path(back.topo, y->to), "%s\n%s", text.text,
                             written.text);
        }
        topo_text_free(&t);
        topo_text_free(&back);
        ds_buf_deinit(&text);
        ds_buf_deinit(&written);
    }
}

/* As many links as there are pairs, and not one of each. */
Test(export_topo, nearly_all_pairs) {
    topo_text t = topo_text_build("topology @t {\n  device d[3] : \"T4\"\n"
                                  "  link d[0] -- d[1] : 1 GB/s, 1 us\n"
                                  "  link d[0] -- d[1] : 1 GB/s, 1 us\n"
                                  "  link d[1] -- d[2] : 1 GB/s, 1 us\n}\n");
    topo_text back = round_trip(t.topo, NULL);
    for (uint32_t l = 0; l < ds_topo_n_links(t.topo); l++)
        cr_expect_str_eq(ds_topo_vertex_path(back.topo, ds_topo_link_at(back.topo, l)->to),
                         ds_topo_vertex_path(t.topo, ds_topo_link_at(t.topo, l)->to));
    topo_text_free(&t);
    topo_text_free(&back);
}

/* As other tools write it: a namespace's prefix, keys in another order, defaults, undirected. */
Test(export_topo, graphml_of_others) {
    topo_text t = import_topo(
        ds_import_graphml,
        "<?xml version='1.0'?>\n<g:graphml xmlns:g='http://graphml.graphdrawing.org/xmlns'>\n"
        "<g:key id='d3' for='edge' attr.name='latency_ps' attr.type='long'>"
        "<g:default>1000</g:default></g:key>\n"
        "<g:key id='d0' for='node' attr.name='kind'><g:default>device</g:default></g:key>\n"
        "<g:key id='d1' for='node' attr.name='type'><g:default>T4</g:default></g:key>\n"
        "<g:key id='d2' for='edge' attr.name='bytes_per_s'/>\n"
        "<g:key id='color' for='node' attr.name='color'/>\n"
        "<g:graph edgedefault='undirected'>\n"
        "<g:node id='and'><g:data key='color'>red &amp; blue</g:data></g:node>\n"
        "<g:node id='2nd one'/><g:node id='s'><g:data key='d0'> switch </g:data></g:node>\n"
        "<g:edge source='and' target='s'><g:data key='d2'>5</g:data></g:edge>\n"
        "<g:edge source='s' target='2nd one'><g:data key='d2'>6</g:data></g:edge>\n"
        "<g:edge source='s' target='and' directed='true'><g:data key='d2'>7</g:data></g:edge>\n"
        "</g:graph>\n</g:graphml>\n",
        NULL, NULL);
    cr_expect_eq(ds_topo_n_devices(t.topo), 2);
    cr_expect_eq(ds_topo_n_links(t.topo), 5);
    cr_expect_str_eq(ds_topo_name(t.topo), "imported");
    cr_expect_str_eq(ds_topo_device_path(t.topo, 0), "n_and");
    cr_expect_eq(device_route(t.topo, 0, 1)->latency_ps, 2000);
    cr_expect_float_eq(route_rate(t.topo, device_route(t.topo, 0, 1)), 5, 1e-9);
    topo_text_free(&t);
}

#define REDUCING                                                                                   \
    "<graphml><key id='kind'/><key id='reduce'/><graph>\n<node id='n'><data key='kind'>nic</data>" \
    "<data key='reduce'>true</data></node></graph></graphml>"
#define KEYS                                                                                       \
    "<graphml><key id='kind'/><key id='type'/><key id='forward'/><key id='bytes_per_s'/>"          \
    "<key id='latency_ps'/><graph>"
#define NODE   "<node id='a'><data key='kind'>device</data><data key='type'>T4</data></node>"
#define SWITCH "<node id='s'><data key='kind'>switch</data></node>"

Test(export_topo, graphml_refusals) {
    static const struct {
        const char *text;
        ds_status status;
        uint32_t line, col;
        const char *message;
    } cases[] = {
        {"<graphml/>", DS_ERR_DATA, 1, 1, "<graph>"},
        {"<svg/>", DS_ERR_DATA, 1, 1, "this is a <svg>"},
        {KEYS "</graph></graphml>", DS_ERR_DATA, 1, 106, "no device"},
        {KEYS "\n<node id='b'/></graph></graphml>", DS_ERR_DATA, 2, 1, "the kind of this node"},
        {KEYS "\n<node/></graph></graphml>", DS_ERR_DATA, 2, 1, "no id"},
        {KEYS "\n<node id='b'><data key='kind'>device</data></node></graph></graphml>", DS_ERR_DATA,
         2, 1, "no type"},
        {KEYS "\n<node id='b'><data key='kind'>nic</data><data key='forward'>yes</data></node>"
              "</graph></graphml>",
         DS_ERR_DATA, 2, 1, "forward is \"yes\""},
        {REDUCING, DS_ERR_DATA, 2, 1, "only switches reduce"},
        {KEYS NODE "\n" NODE "</graph></graphml>", DS_ERR_DATA, 2, 1, "a second node"},
        {KEYS "<node id='g'>\n<graph/></node></graph></graphml>", DS_ERR_UNSUPPORTED, 2, 1,
         "<graph> inside a <node>"},
        {KEYS NODE "\n<edge source='a' target='b'/></graph></graphml>", DS_ERR_DATA, 2, 1,
         "\"b\", is no node"},
        {KEYS NODE "\n<edge source='a' target='a'/></graph></graphml>", DS_ERR_DATA, 2, 1,
         "to itself"},
        {KEYS NODE SWITCH "\n<edge source='a' target='s'/></graph></graphml>", DS_ERR_DATA, 2, 1,
         "no bytes_per_s"},
        {KEYS NODE SWITCH "\n<edge source='a' target='s'><data key='bytes_per_s'>0</data></edge>"
                          "</graph></graphml>",
         DS_ERR_DATA, 2, 1, "bytes_per_s of <edge> is \"0\""},
        {KEYS NODE SWITCH "\n<edge source='a' target='s'><data key='bytes_per_s'>1e9</data></edge>"
                          "</graph></graphml>",
         DS_ERR_DATA, 2, 1, "is \"1e9\""},
    };
    ds_import_options none = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ds_buf out = {0};
        ds_error err = {0};
        ds_status status =
            ds_import_graphml(cases[i].text, strlen(cases[i].text), &none, &out, &err);
        cr_expect_eq(status, cases[i].status, "%s: %s", cases[i].text, err.message);
        cr_expect(strstr(err.message, cases[i].message), "%s: %s", cases[i].text, err.message);
        cr_expect(err.loc.line == cases[i].line && err.loc.col == cases[i].col, "%s: %u:%u",
                  cases[i].text, err.loc.line, err.loc.col);
        ds_buf_deinit(&out);
    }
}

/* ---- SimGrid ---- */

static const char *attr(const ds_xml *element, const char *name) {
    const char *value = ds_xml__attr(element, name);
    cr_assert(value, "<%s> has no %s", element->name, name);
    return value;
}

/* "123Bps", "7ps" */
static int64_t figure(const ds_xml *element, const char *name, const char *unit) {
    char *end;
    int64_t value = strtoll(attr(element, name), &end, 10);
    cr_assert_str_eq(end, unit);
    return value;
}

static const char *prop(const ds_xml *element, const char *id) {
    for (const ds_xml *p = element->first; p; p = p->next)
        if (strcmp(p->name, "prop") == 0 && strcmp(attr(p, "id"), id) == 0) return attr(p, "value");
    cr_assert_fail("<%s> has no <prop id=\"%s\">", element->name, id);
    return "";
}

static void check_link(const ds_topo *topo, const ds_xml *element, uint32_t number) {
    char id[16];
    const ds_topo_link *link = ds_topo_link_at(topo, number);
    snprintf(id, sizeof id, "l%u", number);
    cr_assert_str_eq(attr(element, "id"), id);
    cr_assert_eq(figure(element, "bandwidth", "Bps"), link->bytes_per_s);
    cr_assert_eq(figure(element, "latency", "ps"), link->latency_ps);
    cr_assert_str_eq(prop(element, "from"), ds_topo_vertex_path(topo, link->from));
    cr_assert_str_eq(prop(element, "to"), ds_topo_vertex_path(topo, link->to));
}

static uint32_t host(const ds_topo *topo, const char *path) {
    for (uint32_t d = 0; d < ds_topo_n_devices(topo); d++)
        if (strcmp(ds_topo_device_path(topo, d), path) == 0) return d;
    cr_assert_fail("no device %s", path);
    return 0;
}

/* A path from source to target, as long as ours, over links that ours use. */
static void check_route(ds_topo *topo, const ds_xml *element) {
    uint32_t from = host(topo, attr(element, "src")), to = host(topo, attr(element, "dst"));
    const ds_route *ours = device_route(topo, from, to);
    uint32_t at = ds_topo_device_vertex(topo, from), hops = 0;
    int64_t latency_ps = 0;
    cr_assert_str_eq(attr(element, "symmetrical"), "NO");
    for (const ds_xml *step = element->first; step; step = step->next, hops++) {
        uint32_t number = (uint32_t)strtoul(attr(step, "id") + 1, NULL, 10);
        const ds_topo_link *link = ds_topo_link_at(topo, number);
        bool used = false;
        for (uint32_t l = 0; l < ours->n_links; l++) used |= ours->links[l] == number;
        cr_assert(used, "%s to %s over l%u", attr(element, "src"), attr(element, "dst"), number);
        cr_assert_eq(link->from, at);
        at = link->to;
        latency_ps += link->latency_ps;
    }
    cr_assert_eq(at, ds_topo_device_vertex(topo, to));
    cr_assert_eq(hops, ours->hops);
    cr_assert_eq(latency_ps, ours->latency_ps);
}

Test(export_topo, simgrid_has_the_same_links_and_routes) {
    for (size_t i = 0; i < N_TOPOLOGIES; i++) {
        topo_text t = load(topologies[i]);
        ds_buf text = {0};
        ds_arena arena;
        const ds_xml *root;
        ds_error err = {0};
        uint32_t n_hosts = 0, n_links = 0, n_routes = 0, n = ds_topo_n_devices(t.topo);
        ds_arena_init(&arena);
        cr_assert_eq(ds_topo_print_simgrid(t.topo, &text, &err), DS_OK, "%s", err.message);
        cr_assert_eq(ds_xml__parse(&arena, text.text, text.n, &root, &err), DS_OK, "%s",
                     err.message);
        cr_assert_str_eq(root->name, "platform");
        cr_assert_str_eq(attr(root, "version"), "4.1");
        const ds_xml *zone = root->first;
        cr_assert_str_eq(attr(zone, "routing"), "Full");
        for (const ds_xml *part = zone->first; part; part = part->next) {
            if (strcmp(part->name, "host") == 0) {
                cr_assert_str_eq(attr(part, "id"), ds_topo_device_path(t.topo, n_hosts));
                cr_assert_str_eq(prop(part, "type"), ds_topo_device_type(t.topo, n_hosts++));
            } else if (strcmp(part->name, "link") == 0) {
                check_link(t.topo, part, n_links++);
            } else {
                cr_assert_str_eq(part->name, "route");
                check_route(t.topo, part);
                n_routes++;
            }
        }
        cr_expect_eq(n_hosts, n);
        cr_expect_eq(n_links, ds_topo_n_links(t.topo));
        cr_expect_eq(n_routes, n * (n - 1));
        ds_arena_deinit(&arena);
        ds_buf_deinit(&text);
        topo_text_free(&t);
    }
}

Test(export_topo, simgrid_needs_routes) {
    topo_text t = topo_text_build("topology @t {\n  device d[2] : \"T4\"\n  switch s\n"
                                  "  link d[0] -- s : 1 GB/s, 1 us\n}\n");
    ds_buf text = {0};
    ds_error err = {0};
    cr_expect_eq(ds_topo_print_simgrid(t.topo, &text, &err), DS_ERR_UNREACHABLE);
    cr_expect_eq(text.n, 0);
    ds_buf_deinit(&text);
    topo_text_free(&t);
}
