/* Collective terms: worked out by hand, and against the committed measurements. */
#include "ir/base/csv.h"
#include "tests/support/generate/cost_tree.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ONE (UINT64_C(1) << 32)

static cost_tree tree;
static ds_profiles *p;
static uint32_t profile;

/* Reference: 100 GB/s, 1 us a step, launch 10 us. Over 2: 2 steps, wire = S. 1e6 bytes in 32 us
 * leave 20 us of flow for 10 us of wire: e = 0.5. 2e6 bytes in 52 us leave 40 us for 20 us: e =
 * 0.5. */
static void set_up(void) {
    cost_tree_init(&tree);
    cost_tree_put(&tree, "p/collectives.csv",
                  "collective,group_size,size_bytes,time_us,source\n"
                  "all_reduce,2,1000000,32,s\n"
                  "all_reduce,2,2000000,52,s\n"
                  "all_reduce,2,4000000,62,s\n");
    cost_tree_put(&tree, "p/collective_fits.csv",
                  "collective,group_size,capacity_gb_per_s,alpha_us,launch_us,step_us,e_max,s_half,"
                  "holds_compute,n,median_error,p90_error,basis,source\n"
                  "all_reduce,2,100,1,10,0,1,0,1,3,,,rows,s\n"
                  "all_reduce,6,100,1,20,0.5,0.75,0,0,0,,,assumed: a test,s\n"
                  "broadcast,2,50,1,0,0,1,0,1,0,,,whether compute runs beside it,s\n"
                  "send,2,100,1,3,0,0.8,1000000,0,0,,,assumed: a test,s\n");
    cost_tree_put(&tree, "p/collective_protocols.csv",
                  "collective,link_gb_per_s,protocol,launch_us,step_us,copy_gb_per_s,e,least_bytes,"
                  "most_bytes,n,median_error,p90_error,basis,source\n"
                  "all_to_all,50,ll,5,1,0,0.25,0,0,0,,,assumed: a test,s\n"
                  "all_to_all,50,simple,20,3,100,1,0,0,0,,,assumed: a test,s\n"
                  "all_to_all,5,net,40,0,0,0.5,0,0,0,,,assumed: a test,s\n"
                  "broadcast,50,small,5,0,0,0.5,0,1000,0,,,assumed: a test,s\n"
                  "broadcast,50,large,9,0,0,0.5,1001,0,0,,,assumed: a test,s\n"
                  "all_reduce,10,net,70,0,0,0.5,0,0,0,,,assumed: a test,s\n");
    p = cost_tree_load(&tree);
    cr_assert_eq(ds_profiles_find_profile(p, "P", DS_NOWHERE, &profile, NULL), DS_OK);
}
static void tear_down(void) {
    ds_profiles_free(p);
    cost_tree_deinit(&tree);
}
TestSuite(cost_collective, .init = set_up, .fini = tear_down);

static ds_coll_cost terms(const char *collective, uint32_t group, int64_t bytes) {
    ds_coll_cost cost;
    cr_assert_eq(ds_cost_collective(p, profile,
                                    &(ds_coll_demand){collective, group, bytes, (ds_coll_links){0}},
                                    &cost, NULL, NULL),
                 DS_OK);
    cr_assert(cost.from_profile);
    return cost;
}

static void expect_e(const char *collective, uint32_t group, int64_t bytes, double e) {
    double got = (double)terms(collective, group, bytes).efficiency_q32 / (double)ONE;
    cr_assert_float_eq(got, e, 1e-9, "%s over %u of %lld: %.12g", collective, group,
                       (long long)bytes, got);
}

Test(cost_collective, without_a_profile_nothing_is_added) {
    ds_coll_cost cost;
    cr_assert_eq(ds_cost_collective(p, 0,
                                    &(ds_coll_demand){"all_reduce", 8, 1000, (ds_coll_links){0}},
                                    &cost, NULL, NULL),
                 DS_OK);
    cr_assert_eq(cost.launch_ps, 0);
    cr_assert_eq(cost.step_ps, 0);
    cr_assert_eq(cost.efficiency_q32, ONE);
    cr_assert_not(cost.from_profile);
    cr_assert_not(cost.holds_compute);
}

Test(cost_collective, rows_become_efficiencies) {
    expect_e("all_reduce", 2, 1000000, 0.5);
    expect_e("all_reduce", 2, 2000000, 0.5);
    expect_e("all_reduce", 2, 4000000, 0.8);       /* 50 us of flow, 40 us of wire */
    expect_e("all_reduce", 2, 3000000, 30.0 / 45); /* 57 us between the rows */
    expect_e("all_reduce", 2, 1000, 0.5);          /* below: the first row's */
    expect_e("all_reduce", 2, 400000000, 0.8);     /* above: the last row's */
    cr_assert_eq(terms("all_reduce", 2, 5).launch_ps, 10000000);
    cr_assert(terms("all_reduce", 2, 5).holds_compute);
}

Test(cost_collective, curves_and_group_sizes) {
    expect_e("all_reduce", 6, 12345, 0.75);
    expect_e("all_reduce", 9, 12345, 0.75);
    expect_e("all_reduce", 4, 1000000, 0.625); /* halfway from 0.5 over 2 to 0.75 over 6 */
    cr_assert_eq(terms("all_reduce", 5, 1).launch_ps, 10000000, "launch of the smaller group");
    cr_assert_eq(terms("all_reduce", 6, 1).step_ps, 500000);
    cr_assert_not(terms("all_reduce", 7, 1).holds_compute);
    expect_e("send", 2, 1000000, 0.4); /* 0.8 · 1/2 */
}

Test(cost_collective, other_collectives_by_bytes_on_the_wire) {
    /* (n-1)/n · S of a gather are 2(n-1)/n · S/2 of an all_reduce: 8e6 as 4e6 */
    expect_e("all_gather", 2, 8000000, 0.8);
    expect_e("reduce_scatter", 2, 2000000, 0.5);
    expect_e("recv", 2, 1000000, 0.4);
    ds_coll_cost cost;
    cr_assert_eq(ds_cost_collective(p, profile,
                                    &(ds_coll_demand){"offload", 2, 1, (ds_coll_links){0}}, &cost,
                                    NULL, NULL),
                 DS_OK);
    cr_assert_not(cost.from_profile);
}

static ds_coll_cost on_links(const char *collective, uint32_t group, int64_t bytes,
                             int64_t link_bytes_per_s) {
    ds_coll_cost cost;
    cr_assert_eq(ds_cost_collective(
                     p, profile,
                     &(ds_coll_demand){collective, group, bytes,
                                       (ds_coll_links){.slowest_bytes_per_s = link_bytes_per_s}},
                     &cost, NULL, NULL),
                 DS_OK);
    return cost;
}

/* 2e6 bytes take 40 us of flow at 100 GB/s where 2e6/(0.8 x 100 GB/s) = 25 us would do at the
 * efficiency of 4e6 bytes: 15 us are latency, on whatever link. */
Test(cost_collective, on_other_links_lost_time_stays_a_time) {
    static const int64_t others[] = {26000000000, 99999999999, 900000000000};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        ds_coll_cost cost = on_links("all_reduce", 2, 2000000, others[i]);
        cr_expect_eq(cost.launch_ps, 25000000, "%lld", (long long)cost.launch_ps);
        cr_expect_float_eq((double)cost.efficiency_q32 / (double)ONE, 0.8, 1e-9);
        cr_expect(cost.extrapolated && cost.from_profile && cost.holds_compute);
    }
    ds_coll_cost same = on_links("all_reduce", 2, 2000000, 100000000000);
    cr_expect_eq(same.launch_ps, 10000000);
    cr_expect_float_eq((double)same.efficiency_q32 / (double)ONE, 0.5, 1e-9);
    cr_expect_not(same.extrapolated);
    /* launch + 2 alpha + flow: the row's 52 us either way */
    cr_expect_float_eq(10 + 2 + 20 / 0.5, 25 + 2 + 20 / 0.8, 1e-9);
}

/* send: e = 0.8 S/(S + 1e6) = 0.4 at 1e6, so 10 us/0.4 - 10 us/0.8 = 12.5 us of latency. */
Test(cost_collective, on_other_links_a_curve_keeps_its_maximum) {
    ds_coll_cost cost = on_links("recv", 2, 1000000, 10000000000);
    cr_expect_eq(cost.launch_ps, 15500000, "%lld", (long long)cost.launch_ps);
    cr_expect_float_eq((double)cost.efficiency_q32 / (double)ONE, 0.8, 1e-9);
    cr_expect(cost.extrapolated);
    cr_expect_eq(on_links("send", 2, 0, 10000000000).launch_ps, 3000000);
    /* e is at its maximum: nothing to carry over */
    cr_expect_eq(on_links("all_reduce", 8, 1000000, 40000000000).launch_ps, 20000000);
    /* over 4, halfway: e = 0.625, e_sat = 0.775; wire = 1.5e6 B, 15 us at 100 GB/s */
    double latency = 15 / 0.625 - 15 / 0.775;
    cr_expect_float_eq((double)on_links("all_reduce", 4, 1000000, 40000000000).launch_ps,
                       (10 + latency) * 1e6, 1);
}

static ds_coll_cost with_flow(uint32_t group, int64_t bytes, int64_t link, int64_t flow_ps) {
    ds_coll_cost cost;
    cr_assert_eq(ds_cost_collective(p, profile,
                                    &(ds_coll_demand){"all_to_all", group, bytes,
                                                      (ds_coll_links){.slowest_bytes_per_s = link,
                                                                      .flow_ps = flow_ps}},
                                    &cost, NULL, NULL),
                 DS_OK);
    return cost;
}

#define LINK INT64_C(50000000000)

/* Over 4, 3 steps: ll takes 5 + 3 + 4 f us, simple 20 + 9 + S/100 GB/s + f. With f = 10 us both are
 * far apart in favour of simple once S is small: 48 against 39 + S; at f = 6 us 32 against 35. */
Test(cost_collective, the_fastest_protocol_counts) {
    ds_coll_cost fast = with_flow(4, 100, LINK, 6000000),
                 full = with_flow(4, 100000, LINK, 10000000);
    cr_expect_eq(fast.launch_ps, 5000000);
    cr_expect_eq(fast.step_ps, 1000000);
    cr_expect_float_eq((double)fast.efficiency_q32 / (double)ONE, 0.25, 1e-9);
    cr_expect_eq(full.launch_ps, 21000000, "20 us and 1 us of copying: %lld",
                 (long long)full.launch_ps);
    cr_expect_eq(full.step_ps, 3000000);
    cr_expect_eq(full.efficiency_q32, ONE);
    cr_expect(full.from_profile && !full.extrapolated && !full.holds_compute);
    /* 1 MB copied in 10 us: 48 us of ll against 49 */
    cr_expect_eq(with_flow(4, 1000000, LINK, 10000000).launch_ps, 5000000);
    /* no flow given: a ring's, 3/4 of 2e6 bytes at 50 GB/s, 30 us: 128 us against 20 + 9 + 20 + 30
     */
    cr_expect_eq(with_flow(4, 2000000, LINK, 0).launch_ps, 40000000);
    /* the sevenfold of steps: 26 + 4 · 12 against 20 + 63 + 12 */
    cr_expect_eq(with_flow(22, 100, LINK, 12000000).launch_ps, 5000000);
}

Test(cost_collective, protocols_belong_to_a_kind_of_link) {
    cr_expect_not(with_flow(4, 100, LINK / 2, 1000).extrapolated, "one of two NVLinks");
    cr_expect_eq(with_flow(4, 100, LINK / 2, 1000).launch_ps, 5000000);
    cr_expect_eq(with_flow(4, 100, 6000000000, 1000).launch_ps, 40000000, "nearer to 5 GB/s");
    cr_expect(with_flow(4, 100, LINK * 3, 1000).extrapolated);
    /* the rows of all_reduce are for 100 GB/s; on a link of 9 the protocol for 10 is nearer */
    cr_expect_eq(on_links("all_reduce", 2, 2000000, 9000000000).launch_ps, 70000000);
    cr_expect_not(on_links("all_reduce", 2, 2000000, 9000000000).extrapolated);
}

Test(cost_collective, protocols_have_their_sizes) {
    cr_expect_eq(terms("broadcast", 4, 1000).launch_ps, 5000000);
    cr_expect_eq(terms("broadcast", 4, 1001).launch_ps, 9000000);
}

/* Switches that add up serve a whole node: its protocol is for 8 and more, others for less. */
Test(cost_collective, protocols_have_their_groups) {
    ds_profiles_free(p);
    cost_tree_put(&tree, "p/collective_protocols.csv",
                  "collective,link_gb_per_s,protocol,launch_us,step_us,copy_gb_per_s,e,least_bytes,"
                  "most_bytes,least_group,most_group,n,median_error,p90_error,basis,source\n"
                  "all_to_all,50,few,5,0,0,0.5,0,0,0,7,0,,,assumed: a test,s\n"
                  "all_to_all,50,small,9,0,0,0.75,0,1000,8,0,0,,,assumed: a test,s\n");
    p = cost_tree_load(&tree);
    cr_expect_eq(with_flow(2, 100, LINK, 0).launch_ps, 5000000);
    cr_expect_eq(with_flow(7, 100, LINK, 0).launch_ps, 5000000);
    cr_expect_eq(with_flow(8, 100, LINK, 0).launch_ps, 9000000, "few is faster, and for fewer");
    cr_expect_eq(with_flow(64, 100, LINK, 0).launch_ps, 9000000);
    cr_expect_eq(with_flow(8, 1001, LINK, 0).launch_ps, 9000000, "its group before its size");
}

/* The row of broadcast has no times of its own: they are its protocols', and it holds compute. */
Test(cost_collective, a_row_may_say_nothing_of_times) {
    ds_coll_cost cost = on_links("broadcast", 2, 1000, LINK);
    cr_expect_eq(cost.launch_ps, 5000000);
    cr_expect_float_eq((double)cost.efficiency_q32 / (double)ONE, 0.5, 1e-9);
    cr_expect(cost.holds_compute);
    cr_expect_not(on_links("broadcast", 2, 1000, LINK / 2).holds_compute, "links of another kind");
}

/* Rows from 1e6 to 4e6 bytes come first on their links; outside of them the protocols of that kind
 * of link that are for the size do, where there are any; others take the nearest row's efficiency.
 */
Test(cost_collective, protocols_beyond_the_rows_sizes) {
    ds_profiles_free(p);
    cost_tree_put(&tree, "p/collective_protocols.csv",
                  "collective,link_gb_per_s,protocol,launch_us,step_us,copy_gb_per_s,e,least_bytes,"
                  "most_bytes,n,median_error,p90_error,basis,source\n"
                  "all_reduce,100,small,25,0,0,0.125,0,1500000,0,,,assumed: a test,s\n");
    p = cost_tree_load(&tree);
    ds_coll_cost below = terms("all_reduce", 2, 999999), at = terms("all_reduce", 2, 1000000);
    cr_expect_eq(below.launch_ps, 25000000);
    cr_expect_float_eq((double)below.efficiency_q32 / (double)ONE, 0.125, 1e-9);
    cr_expect_not(below.extrapolated);
    cr_expect_eq(at.launch_ps, 10000000);
    cr_expect_eq(terms("all_reduce", 2, 1200000).launch_ps, 10000000);
    cr_expect_eq(terms("all_gather", 2, 1999998).launch_ps, 25000000, "as 999999 bytes");
    cr_expect(terms("all_reduce", 2, 4000001).extrapolated, "above, where no protocol is used");
    cr_expect_eq(terms("all_reduce", 6, 999999).launch_ps, 20000000, "6 has a curve, no rows");
    /* on links of 9 GB/s the rows are carried over, as the protocol is for another kind */
    cr_expect_eq(on_links("all_reduce", 2, 999999, 9000000000).extrapolated, true);
}

Test(cost_collective, beyond_what_was_measured_is_marked) {
    cr_expect_not(terms("all_reduce", 2, 1000000).extrapolated);
    cr_expect_not(terms("all_reduce", 4, 2000000).extrapolated, "between 2 and 6");
    cr_expect(terms("all_reduce", 2, 999999).extrapolated, "smaller than the rows");
    cr_expect(terms("all_gather", 2, 8000002).extrapolated, "as 4000001 bytes");
    cr_expect(terms("all_reduce", 7, 2000000).extrapolated, "more than 6");
    cr_expect_not(terms("permute", 7, 2000000).extrapolated, "pairs, however many");
    cr_expect_not(on_links("all_reduce", 8, 1, 0).holds_compute);
}

Test(cost_collective, the_explanation_names_sources) {
    ds_buf text = {0};
    ds_coll_cost cost;
    cr_assert_eq(ds_cost_collective(p, profile,
                                    &(ds_coll_demand){"all_gather", 2, 3000000, (ds_coll_links){0}},
                                    &cost, &text, NULL),
                 DS_OK);
    cr_assert_not_null(strstr(text.text, "as all_reduce of 1500000 bytes"), "%s", text.text);
    cr_assert_not_null(strstr(text.text, "1000000 to 2000000 bytes [s: somewhere @r1]"), "%s",
                       text.text);
    ds_buf_deinit(&text);
}

/* launch + steps · alpha + wire/(capacity · e) gives each committed all-reduce time back to 1e-6.
 */
Test(cost_committed, a_ring_on_the_reference_links_takes_the_measured_time) {
    ds_profiles *all = cost_tree_load_committed();
    ds_csv csv;
    ds_error err = {0};
    uint32_t id;
    cr_assert_eq(ds_profiles_find_profile(all, "A100-SXM4-80GB", DS_NOWHERE, &id, &err), DS_OK);
    cr_assert_eq(
        ds_csv_read(DS_SOURCE_DIR "/cost_profiles/A100-SXM4-80GB/collectives.csv", &csv, &err),
        DS_OK);
    uint32_t checked = 0;
    for (uint32_t i = 0; i < csv.rows.n; i++) {
        const char **row = csv.rows.at[i].cells;
        if (strcmp(row[0], "all_reduce") != 0) continue;
        uint32_t n = (uint32_t)atoi(row[1]);
        double bytes = atof(row[2]), us = atof(row[3]), steps = 2.0 * (n - 1);
        ds_coll_cost cost;
        cr_assert_eq(ds_cost_collective(
                         all, id, &(ds_coll_demand){row[0], n, (int64_t)bytes, (ds_coll_links){0}},
                         &cost, NULL, &err),
                     DS_OK);
        double e = (double)cost.efficiency_q32 / (double)ONE;
        double predicted =
            (double)cost.launch_ps * 1e-6 + steps * 0.47 + steps / n * bytes / (300e3 * e);
        cr_assert_float_eq(predicted, us, us * 1e-6, "%s over %u of %s: %g", row[0], n, row[2],
                           predicted);
        checked++;
    }
    cr_assert_gt(checked, 200);
    ds_csv_deinit(&csv);
    ds_profiles_free(all);
}

/* Rows of 1 MB and 4 MB over 4 in 45 and 165 us, and no fit: the highest rate is 1.5 * 4 MB / 165
 * us, 36 GB/s. Where the flow of 1 MB takes 30 us (50 GB/s) after 6 us of latency, e = 30/39 makes
 * it 45 us; 2 MB lie at 85 us: e = 60/79. */
Test(cost_collective, rows_without_a_fit_count_on_the_links_in_use) {
    static const char rows[] = "collective,group_size,size_bytes,time_us,source\n"
                               "all_reduce,4,1000000,45,s\n"
                               "all_reduce,4,4000000,165,s\n";
    cost_tree alone;
    uint32_t id;
    cost_tree_init(&alone);
    cost_tree_put(&alone, "p/collectives.csv", rows);
    ds_profiles *q = cost_tree_load(&alone);
    cr_assert_eq(ds_profiles_find_profile(q, "P", DS_NOWHERE, &id, NULL), DS_OK);
    static const struct {
        const char *collective;
        int64_t bytes, link, flow_ps, launch_ps;
        double e;
        bool extrapolated;
    } cases[] = {
        {"all_reduce", 1000000, 50000000000, 30000000, 0, 30.0 / 39, false},
        {"all_reduce", 2000000, 50000000000, 60000000, 0, 60.0 / 79, false},
        {"all_gather", 2000000, 50000000000, 30000000, 0, 30.0 / 33,
         false}, /* half the steps: 2 us each */
        {"all_reduce", 8000000, 50000000000, 240000000, 0, 120.0 / 159, true}, /* e of 4 MB */
        {"all_reduce", 1000000, 100000000000, 15000000, 0, 15.0 / 39, true},   /* 2.75 times 36 */
        /* Links of 10 GB/s are not those of the rows: 39 us of flow at 36.36 GB/s are e_sat =
         * 165/159 (at most 1) of it, 41.25 us, so no latency is left. */
        {"all_reduce", 1000000, 10000000000, 150000000, 0, 1, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ds_coll_cost cost;
        ds_coll_links links = {
            .slowest_bytes_per_s = cases[i].link, .flow_ps = cases[i].flow_ps, .wait_ps = 6000000};
        cr_assert_eq(ds_cost_collective(
                         q, id, &(ds_coll_demand){cases[i].collective, 4, cases[i].bytes, links},
                         &cost, NULL, NULL),
                     DS_OK);
        double e = (double)cost.efficiency_q32 / (double)ONE;
        cr_expect_float_eq(e, cases[i].e, 1e-6, "case %zu: e %.9g", i, e);
        cr_expect_eq(cost.launch_ps, cases[i].launch_ps, "case %zu", i);
        cr_expect_eq(cost.extrapolated, cases[i].extrapolated, "case %zu", i);
        cr_expect(cost.from_profile);
    }
    ds_profiles_free(q);
    cost_tree_deinit(&alone);
}

/* ---- what a fit did not see ---- */

/* Protocols whose rows were all_reduces of 1 KB to 1 MB over 2 to 8 of one node, on links of 100 to
 * 110 GB/s, and lay within 5 % of the fit. */
static ds_coll_cost seen_terms(uint32_t group, uint32_t nodes, double gb_per_s, int64_t bytes,
                               ds_buf *explain) {
    cost_tree own;
    ds_coll_cost cost;
    uint32_t found;
    cost_tree_init(&own);
    cost_tree_put(&own, "p/collective_protocols.csv",
                  "collective,link_gb_per_s,protocol,launch_us,step_us,copy_gb_per_s,e,least_bytes,"
                  "most_bytes,group_least,group_most,nodes_least,nodes_most,size_least,size_most,"
                  "link_least_gb_per_s,link_most_gb_per_s,n,median_error,p90_error,basis,source\n"
                  "all_reduce,100,simple,20,3,0,0.5,0,0,2,8,1,1,1000,1000000,100,110,9,0.02,0.05,"
                  "rows,s\n");
    ds_profiles *loaded = cost_tree_load(&own);
    cr_assert_eq(ds_profiles_find_profile(loaded, "P", DS_NOWHERE, &found, NULL), DS_OK);
    ds_coll_links links = {.slowest_bytes_per_s = (int64_t)(gb_per_s * 1e9), .n_nodes = nodes};
    cr_assert_eq(ds_cost_collective(loaded, found,
                                    &(ds_coll_demand){"all_reduce", group, bytes, links}, &cost,
                                    explain, NULL),
                 DS_OK);
    ds_profiles_free(loaded);
    cost_tree_deinit(&own);
    return cost;
}

Test(cost_collective, within_its_rows_a_fit_is_as_far_off_as_it_was) {
    static const struct {
        uint32_t group;
        double gb_per_s;
        int64_t bytes;
    } cases[] = {{2, 100, 1000}, {8, 110, 1000000}, {5, 105, 5000}, {8, 95, 1000}, {8, 0, 1000}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ds_coll_cost c = seen_terms(cases[i].group, 1, cases[i].gb_per_s, cases[i].bytes, NULL);
        cr_expect_not(c.extrapolated, "case %zu", i);
        cr_expect(c.spread.low >= 0.94 && c.spread.high <= 1.06, "case %zu", i);
    }
}

/* Beyond them it says so, with an interval that is at least that of its own rows; the terms stay.
 */
Test(cost_collective, beyond_its_rows_a_fit_promises_nothing_without_a_word) {
    static const struct {
        uint32_t group, nodes;
        double gb_per_s;
        int64_t bytes;
        const char *word;
    } cases[] = {{8, 2, 100, 1000, "nodes: 2; the rows have 1 to 1"},
                 {16, 1, 100, 1000, "a group of 16; the rows have 2 to 8"},
                 {8, 1, 50, 1000, "links of 50 GB/s; the rows have 100 GB/s to 110 GB/s"},
                 {8, 1, 200, 1000, "links of 200 GB/s"},
                 {8, 1, 100, 999, "bytes: 999; the rows have 1000 to 1000000"},
                 {8, 1, 100, 1000001, "bytes: 1000001"}};
    ds_coll_cost seen = seen_terms(8, 1, 100, 1000, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ds_buf text = {0};
        ds_coll_cost c =
            seen_terms(cases[i].group, cases[i].nodes, cases[i].gb_per_s, cases[i].bytes, &text);
        cr_expect(c.extrapolated, "%s", cases[i].word);
        cr_expect(c.spread.low < seen.spread.low && c.spread.high > seen.spread.high,
                  "%s: %g to %g", cases[i].word, c.spread.low, c.spread.high);
        cr_expect(strstr(text.text, cases[i].word), "%s is not in\n%s", cases[i].word, text.text);
        cr_expect(strstr(text.text, "times as long as predicted"), "%s", text.text);
        cr_expect_eq(c.launch_ps, seen.launch_ps);
        cr_expect_eq(c.efficiency_q32, seen.efficiency_q32);
        ds_buf_deinit(&text);
    }
}

/* Rows of collectives.csv were measured inside one node: over two they are no measurement. */
Test(cost_collective, rows_are_of_one_node) {
    for (uint32_t nodes = 0; nodes <= 2; nodes++) {
        ds_coll_cost c;
        ds_coll_links links = {.slowest_bytes_per_s = INT64_C(100000000000), .n_nodes = nodes};
        cr_assert_eq(ds_cost_collective(p, profile,
                                        &(ds_coll_demand){"all_reduce", 2, 2000000, links}, &c,
                                        NULL, NULL),
                     DS_OK);
        cr_expect_eq(c.extrapolated, nodes == 2, "%u nodes", nodes);
        cr_expect_eq(c.spread.high > 1, nodes == 2, "%u nodes", nodes);
    }
}
