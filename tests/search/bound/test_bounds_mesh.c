/* What bounds know of a topology, by closed form: latencies of links on the way, and bytes over the
 * slowest of them. Two boxes of four devices, 200 GB/s and 1 us to a switch, 20 GB/s and 1 us to a
 * NIC, 20 GB/s and 2 us to the other box's. */
#include "search/bound/mesh.h"

#include "ir/ops/ops.h"
#include "tests/support/sweep.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

#define US INT64_C(1000000)

static ds_bound_machine *open_machine(sweep_case *c, const char *links) {
    char text[1500];
    snprintf(text, sizeof text,
             "dir 1\nparam dp = 1\nimport \"models/mlp.dir\" as m with layers = 2, batch = 64\n"
             "topology @box { device gpu[4] : \"A100-SXM4-80GB\"\n  switch s\n  nic n\n  host h\n"
             "  link gpu[i] -- s : 200 GB/s, 1 us for i in 0..4\n  link s -- n : 20 GB/s, 1 us\n"
             "  %s }\n"
             "topology @a { node box[2] : @box\n  switch top\n"
             "  link box[i].n -- top : 20 GB/s, 2 us for i in 0..2 }\n"
             "scenario { model = @m.mlp, on = @a, train { loss = mse, optimizer = sgd },\n"
             "  strategy { dp = dp } }\nsweep { dp in [1, 2] }\n",
             links);
    sweep_open_text(c, text, NULL);
    cr_assert_eq(c->status, DS_OK, "%s", c->err.message);
    ds_bound_machine *m = ds_bound_machine_new(&c->binding, c->profiles);
    cr_assert_not_null(m);
    cr_expect_eq(ds_bound_machine_devices(m), 8);
    return m;
}

static void end(sweep_case *c, ds_bound_machine *m) {
    ds_bound_machine_free(m);
    sweep_close(c);
}

static ds_bound_mesh mesh_of(sweep_case *c, int64_t dp, int64_t tp, int64_t pp, int64_t cp,
                             const char *order) {
    return (ds_bound_mesh){dp, tp, pp, cp, ds_intern(&c->unit->strings, order)};
}

/* The fastest device's way counts, whichever that is: 1 GiB at 20 GB/s and 5 us. */
Test(bounds_mesh, the_fastest_way_to_a_host) {
    static const char *const links[] = {
        "link gpu[0] -- h : 20 GB/s, 5 us\n  link gpu[i] -- h : 10 GB/s, 5 us for i in 1..4",
        "link gpu[3] -- h : 20 GB/s, 5 us\n  link gpu[i] -- h : 10 GB/s, 5 us for i in 0..3",
        "link gpu[i] -- h : 20 GB/s, 5 us for i in 0..4"};
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
        sweep_case c;
        ds_bound_machine *m = open_machine(&c, links[i]);
        const double bytes = 1 << 30, wanted = 5e-6 / bytes + 1 / 20e9;
        cr_expect_float_eq(ds_bound_machine_host_per_byte(m, false), wanted, 1e-18, "%s", links[i]);
        cr_expect_float_eq(ds_bound_machine_host_per_byte(m, true), wanted, 1e-18, "%s", links[i]);
        end(&c, m);
    }
}

/* A device without a way to a host: nothing is known. */
Test(bounds_mesh, no_way_to_a_host) {
    sweep_case c;
    ds_bound_machine *m = open_machine(&c, "");
    cr_expect_eq(fpclassify(ds_bound_machine_host_per_byte(m, false)), FP_ZERO);
    cr_expect_eq(fpclassify(ds_bound_machine_host_per_byte(m, true)), FP_ZERO);
    end(&c, m);
}

/* 20 MB: 102 us within a box, 1008 us to the other one. Stages 0 and 1 are neighbours, or four
 * devices apart, or two. */
Test(bounds_mesh, sends_between_stages) {
    const int64_t bytes = 20000000, within = 102 * US, apart = 1008 * US;
    static const struct {
        int64_t dp, tp, pp, cp;
        const char *order;
        int sends[4]; /* 1: within a box, 2: to the other one; of stages 1, 2, 3 */
    } cases[] = {
        {1, 1, 4, 1, "pp dp cp tp", {0, 1, 1, 1}}, {1, 4, 2, 1, "pp dp cp tp", {0, 2}},
        {1, 2, 4, 1, "pp dp cp tp", {0, 1, 2, 1}}, {2, 1, 4, 1, "pp dp cp tp", {0, 1, 2, 1}},
        {1, 1, 4, 2, "pp dp cp tp", {0, 1, 2, 1}}, {2, 1, 4, 1, "dp pp cp tp", {0, 1, 1, 1}},
        {1, 2, 4, 1, "cp tp pp dp", {0, 1, 1, 1}}, {4, 1, 2, 1, "cp tp pp dp", {0, 2}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sweep_case c;
        ds_bound_machine *m = open_machine(&c, "");
        const int64_t pp = cases[i].pp;
        ds_bound_mesh mesh = mesh_of(&c, cases[i].dp, cases[i].tp, pp, cases[i].cp, cases[i].order);
        const int64_t *sends = ds_bound_mesh_sends(m, &mesh, bytes);
        int64_t sum = 0;
        for (int64_t s = 0; s < pp; s++) {
            int kind = cases[i].sends[s];
            sum += kind == 1 ? within : kind == 2 ? apart : 0;
            cr_expect_eq(sends[s], sum, "case %d, stage %d", (int)i, (int)s);
            cr_expect_eq(sends[pp + s], sum, "case %d, back from stage %d", (int)i, (int)s);
        }
        cr_expect_eq(ds_bound_mesh_sends(m, &mesh, 0)[pp - 1], 0);
        end(&c, m);
    }
}

/* From the first stage to the last one, in one send. */
Test(bounds_mesh, across_the_stages) {
    sweep_case c;
    ds_bound_machine *m = open_machine(&c, "");
    ds_bound_mesh near = mesh_of(&c, 1, 1, 4, 1, "pp dp cp tp"),
                  far = mesh_of(&c, 1, 2, 4, 1, "pp dp cp tp"),
                  one = mesh_of(&c, 1, 2, 1, 1, "pp dp cp tp"),
                  large = mesh_of(&c, 2, 2, 4, 1, "pp dp cp tp");
    cr_expect_eq(ds_bound_mesh_across_ps(m, &near, 20000000), 102 * US);
    cr_expect_eq(ds_bound_mesh_across_ps(m, &far, 20000000), 1008 * US);
    cr_expect_eq(ds_bound_mesh_across_ps(m, &far, 40000000), 2008 * US);
    cr_expect_eq(ds_bound_mesh_across_ps(m, &one, 20000000), 0);
    cr_expect_eq(ds_bound_mesh_across_ps(m, &large, 20000000), 0, "more than there are");
    end(&c, m);
}

/* An all_gather over two: half of the bytes over a switch, or to the other box. Of groups in two
 * places the cheaper one counts: here the same. */
Test(bounds_mesh, transfers_of_groups) {
    sweep_case c;
    ds_bound_machine *m = open_machine(&c, "");
    ds_bound_mesh within = mesh_of(&c, 1, 2, 4, 1, "pp dp cp tp"),
                  apart = mesh_of(&c, 1, 2, 4, 1, "tp pp dp cp"),
                  alone = mesh_of(&c, 8, 1, 1, 1, "pp dp cp tp");
    cr_expect_eq(ds_bound_mesh_transfer_ps(m, &within, DS_OP_ALL_GATHER, 40000000), 102 * US);
    cr_expect_eq(ds_bound_mesh_transfer_ps(m, &apart, DS_OP_ALL_GATHER, 40000000), 1008 * US);
    cr_expect_neq(ds_bound_mesh_group(m, &within), 0);
    cr_expect_neq(ds_bound_mesh_group(m, &within), ds_bound_mesh_group(m, &apart));
    cr_expect_eq(ds_bound_mesh_group(m, &alone), 1);
    end(&c, m);
}

/* All_gathers over dp of 2, or dp and cp of 2 each within a box: (n - 1)/n of the bytes. */
Test(bounds_mesh, seconds_a_byte_over_replicas) {
    sweep_case c;
    ds_bound_machine *m = open_machine(&c, "");
    const double most = 40e6;
    ds_bound_mesh within = mesh_of(&c, 2, 1, 1, 1, "pp dp cp tp"),
                  apart = mesh_of(&c, 2, 4, 1, 1, "pp dp cp tp"),
                  both = mesh_of(&c, 2, 1, 1, 2, "pp dp cp tp"),
                  one = mesh_of(&c, 1, 4, 1, 1, "pp dp cp tp");
    double rate = ds_bound_mesh_per_byte(m, &within, DS_OP_ALL_GATHER, (int64_t)most);
    cr_expect_float_eq(rate, 102e-6 / most, 1e-16);
    rate = ds_bound_mesh_per_byte(m, &apart, DS_OP_ALL_GATHER, (int64_t)most);
    cr_expect_float_eq(rate, 1008e-6 / most, 1e-16);
    /* 30 MB at 200 GB/s, and three steps around a ring */
    rate = ds_bound_mesh_per_byte(m, &both, DS_OP_ALL_GATHER, (int64_t)most);
    cr_expect_float_eq(rate, 156e-6 / most, 1e-16, "%g", rate * most);
    rate = ds_bound_mesh_per_byte(m, &one, DS_OP_ALL_GATHER, (int64_t)most);
    cr_expect_eq(fpclassify(rate), FP_ZERO);
    rate = ds_bound_mesh_per_byte(m, &within, DS_OP_ALL_GATHER, 0);
    cr_expect_eq(fpclassify(rate), FP_ZERO);
    end(&c, m);
}
