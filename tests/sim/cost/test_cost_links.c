/* A profile measured inside a node, used inside it and between nodes: by hand from its rows. */
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <string.h>

static const char inside[] =
    "dir 1\n"
    "import \"topologies/dgx-a100.dir\"\n"
    "mesh @m = [dp = 8] on @dgx_a100\n"
    "func @main(%x: f32[262144] on @m partial(dp)) -> f32[262144] on @m {\n"
    "  %y = all_reduce(%x) over dp {algorithm = \"ring\"}\n"
    "  return %y\n"
    "}\n"
    "scenario { program = @main, profile = \"A100-SXM4-80GB\" }\n";

static const char between[] =
    "dir 1\n"
    "topology @box {\n"
    "  device gpu[2] : \"A100-SXM4-80GB\"\n"
    "  switch nvswitch\n"
    "  nic nic\n"
    "  link gpu[i] -- nvswitch : 300 GB/s, 235 ns for i in 0..2\n"
    "  link gpu[i] -- nic : 25 GB/s, 500 ns for i in 0..2\n"
    "}\n"
    "topology @pair {\n"
    "  node n[2] : @box\n"
    "  link n[0].nic -- n[1].nic : 200 Gb/s, 1 us\n"
    "}\n"
    "mesh @m = [dp = 4] on @pair\n"
    "func @main(%x: f32[262144] on @m partial(dp)) -> f32[262144] on @m {\n"
    "  %y = all_reduce(%x) over dp {algorithm = \"ring\"}\n"
    "  %z = scale(%y) {factor = 0.5}\n"
    "  return %z\n"
    "}\n"
    "scenario { program = @main, profile = \"A100-SXM4-80GB\" }\n";

static void expect(const ds_buf *text, const char *part) {
    cr_expect(text->text && strstr(text->text, part), "\"%s\" is not in:\n%s", part, text->text);
}

/* The row of collectives.csv: 1 MiB over 8 in 92.79 us. */
Test(cost_links, inside_the_node_a_collective_takes_what_was_measured) {
    sim_case c;
    sim_run_text(&c, inside, NULL, false);
    cr_assert_eq(c.status, DS_OK);
    cr_expect_float_eq((double)c.result->run.step_ps, 92.79e6, 100);
    const ds_account *a = &c.result->accounts[0];
    cr_expect_eq(a->comm_origin_ps[DS_COMM_PROFILE], c.result->run.step_ps);
    cr_expect_eq(a->comm_extrapolated_ps, 0);
    sim_free(&c);
}

/* Rows at 1 MiB: 63.91 us over 3, 62.77 us over 5; at 1 GiB 6757.1 and 7653.2 us. Less the launch,
 * 7.53 us, and 2(n-1) steps of 0.47 us, against 2(n-1)/n S at 300 GB/s. */
static double efficiency(double n, double bytes, double us) {
    return 2 * (n - 1) / n * bytes / (300e3 * (us - 7.53 - 2 * (n - 1) * 0.47));
}

/* Two nodes of two GPUs, 25 GB/s between them. Over 4: e halfway from 3 to 5, at 1 MiB 0.0971, at
 * 1 GiB 0.7283. 1.5 MiB on each wire: 5.24 us/0.0971 - 5.24 us/0.7283 = 46.8 us of latency; 2 us of
 * the link between, once: those of later messages pass while it is busy; 62.9 us/0.7283 = 86.4 us
 * of flow; 7.53 us of launch: 142.7 us. The efficiency of 1 MiB multiplied onto the slow link would
 * give 667.7 us. */
Test(cost_links, between_nodes_latency_is_no_factor) {
    sim_case c;
    sim_run_text(&c, between, NULL, false);
    cr_assert_eq(c.status, DS_OK);
    double mib = 1048576, gib = 1073741824;
    double e = (efficiency(3, mib, 63.91) + efficiency(5, mib, 62.77)) / 2;
    double large = (efficiency(3, gib, 6757.1) + efficiency(5, gib, 7653.2)) / 2;
    double latency_us = 1.5 * mib / 300e3 * (1 / e - 1 / large);
    double us = 7.53 + latency_us + 2 + 1.5 * mib / (25e3 * large);
    cr_expect_float_eq(us, 142.7, 0.05);
    const ds_account *a = &c.result->accounts[0];
    cr_expect_float_eq((double)a->exposed_comm_ps, us * 1e6, 100, "%lld ps instead of %g us",
                       (long long)a->exposed_comm_ps, us);
    cr_expect_eq(a->comm_origin_ps[DS_COMM_PROFILE], a->exposed_comm_ps);
    cr_expect_eq(a->comm_extrapolated_ps, a->exposed_comm_ps);
    ds_buf text = {0};
    ds_report_summary(c.result, &text);
    expect(&text, "roofline 100.0 % (fitted curves)");
    expect(&text, "  communication  fitted profile 100.0 %; extrapolated 100.0 %\n");
    expect(&text, "all_reduce main/y  ring, bus 11.02 GB/s, extrapolated (times 0.36 .. 3)\n");
    text.n = 0;
    cr_assert(ds_report_explain(c.result, "all_reduce", &text));
    expect(&text, "extrapolated: the slowest link has 25 GB/s, those of the fit 300 GB/s; the "
                  "efficiency of large sizes there, 0.7283, and 46.81 us of latency\n");
    expect(&text, "software: ");
    ds_buf_deinit(&text);
    sim_free(&c);
}
