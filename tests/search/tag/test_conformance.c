/* TAG's released rules: numbers worked out from the rules by hand, and closed forms. */
#include "search/tag/tag.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

/* ---- graphs and clusters by hand ---- */

enum { MOST = 100 };
static const int64_t one_size[] = {2};
static const double none[4] = {0};
static double us_of[MOST][4];
static uint32_t parent_of[MOST][2];
static ds_tag_op ops[MOST];

/* A graph with the operations ops[0 … n - 1] and one profiled batch size. */
static ds_tag_problem problem_of(uint32_t n_ops, uint32_t n_groups, ds_tag_cluster cluster) {
    ds_tag_graph graph = {n_ops, n_groups, 2, 1, ops, one_size};
    return (ds_tag_problem){graph, cluster, 2, DS_TAG_RELEASED, false};
}

static void set_op(uint32_t i, ds_tag_result_kind result, int64_t bytes, uint32_t group) {
    ops[i] = (ds_tag_op){.result = result, .result_bytes = bytes, .us = none, .group = group};
}

static void set_us(uint32_t i, double first, double second) {
    us_of[i][0] = first;
    us_of[i][1] = second;
    ops[i].us = us_of[i];
}

static void set_parent(uint32_t i, uint32_t parent) {
    parent_of[i][0] = parent;
    ops[i].parent = parent_of[i];
    ops[i].n_parents = 1;
}

/* Two machines of one GPU each, of two kinds, 2810 MB/s everywhere. */
static const ds_tag_machine two_machines[] = {{0, 1, INT64_C(1) << 33}, {1, 1, INT64_C(1) << 33}};
static const int64_t two_speeds[] = {2810, 2810, 2810, 2810};
static const ds_tag_cluster two = {2, two_machines, two_speeds};

/* TAG's testbed: 4 V100, 8 GTX 1080 Ti, 4 P100. */
static const ds_tag_machine testbed_machines[] = {
    {0, 4, INT64_C(30) << 30}, {1, 8, INT64_C(9) << 30}, {1, 4, INT64_C(10) << 30}};
static const int64_t testbed_speeds[] = {8000, 2810, 2810, 2810, 3000, 2810, 2810, 2810, 3000};
static const ds_tag_cluster testbed = {3, testbed_machines, testbed_speeds};

static ds_tag_outcome simulate(const ds_tag_problem *p, const ds_tag_action *action,
                               ds_arena *arena) {
    ds_tag_outcome out;
    ds_error err;
    cr_assert_eq(ds_tag_check(p, &err), DS_OK, "%s", err.message);
    cr_assert_eq(ds_tag_simulate(p, action, arena, &out, &err), DS_OK, "%s", err.message);
    return out;
}

/* ---- collectives ---- */

Test(tag_conformance, collectives) {
    int64_t mib100 = INT64_C(100) << 20;
    cr_expect_eq(ds_tag_collective_us(mib100, 2810, DS_TAG_RELEASED), 28645);
    cr_expect_eq(ds_tag_collective_us(mib100, 3000, DS_TAG_RELEASED), 26830);
    cr_expect_eq(ds_tag_collective_us(mib100, 8000, DS_TAG_RELEASED), 10061);
    cr_expect_eq(ds_tag_collective_us(512 << 10, 2810, DS_TAG_RELEASED), 390);
    /* The lines meet at 667.17 KiB: one KiB costs k1 = 0.0434 us before and k2 = 0.2777 us after.
     * The slopes are read over 100 KiB, at 1 MB/s, where a microsecond is a 2810th. */
    double us[4];
    const int64_t kib[] = {567, 667, 668, 768};
    for (int i = 0; i < 4; i++)
        us[i] = (double)ds_tag_collective_us(kib[i] << 10, 1, DS_TAG_RELEASED) / 2810;
    cr_expect_float_eq((us[1] - us[0]) / 100, 0.0434202, 1e-5);
    cr_expect_float_eq((us[3] - us[2]) / 100, 0.2776680, 1e-5);
    double k1 = (us[1] - us[0]) / 100, k2 = (us[3] - us[2]) / 100;
    cr_expect_float_eq((us[1] - k1 * 667 - us[2] + k2 * 668) / (k2 - k1), 667.17, 0.01);
    /* Sizes are cut to whole KiB, unless the quirk is off. */
    cr_expect_eq(ds_tag_collective_us(mib100 + 1023, 2810, DS_TAG_RELEASED), 28645);
    cr_expect_eq(ds_tag_collective_us(mib100 + 7 * 1024 / 2, 2810, DS_TAG_RELEASED), 28645);
    cr_expect_eq(ds_tag_collective_us(mib100 + 7 * 1024 / 2, 2810, 0), 28646);
    cr_expect_eq(ds_tag_transfer_us(2810 * 3 - 1, 2810, DS_TAG_RELEASED), 2 + 12);
    cr_expect_eq(ds_tag_transfer_us(2810 * 3 - 1, 2810, 0), 3 + 12);
}

/* ---- backward 1000 / 1500 us, a gradient of 28.1 MB, updates of 100 us ---- */

static ds_tag_problem backward_and_update(void) {
    set_op(0, DS_TAG_SUM, 28100000, 0);
    set_us(0, 1000, 1500);
    set_op(1, DS_TAG_WHOLE, 0, 0);
    set_us(1, 100, 100);
    set_parent(1, 0);
    return problem_of(2, 1, two);
}

Test(tag_conformance, parameter_server) {
    ds_arena arena = {0};
    ds_tag_problem p = backward_and_update();
    ds_tag_action ps = {3, DS_TAG_PS, NULL};
    ds_tag_outcome out = simulate(&p, &ps, &arena);
    /* 1500 + (10000 + 12) there + (10000 + 12) back + 100 */
    cr_expect_eq(out.makespan_us, 21624);
    cr_expect_eq(out.peak_bytes[0], 56200000);
    cr_expect_eq(out.peak_bytes[1], 28100000);
    cr_expect_eq(out.moved_bytes, 56200000);
    cr_expect_eq(out.op_us[0], 1500);
    cr_expect_eq(out.op_us[1], 21624 - 11512); /* the server updates at 11,512 already */
    cr_expect_eq(out.op_idle_us[0], 11512 - 1500);
    cr_expect_eq(out.busy_us[0], 1100);
    cr_expect_eq(out.utilisation[0], 0);
    p.quirks &= ~(uint32_t)DS_TAG_INTEGER_UTILISATION;
    cr_expect_float_eq(simulate(&p, &ps, &arena).utilisation[1], 1600. / 21624, 1e-12);
    /* The weights are pulled: 1500 + 10012 + 100 + 12 us for an update of 0 bytes. */
    p.quirks &= ~(uint32_t)DS_TAG_PS_SUMS;
    cr_expect_eq(simulate(&p, &ps, &arena).makespan_us, 11624);
    ops[1].result_bytes = 28100000;
    cr_expect_eq(simulate(&p, &ps, &arena).makespan_us, 21624);
    ds_arena_deinit(&arena);
}

Test(tag_conformance, all_reduce) {
    ds_arena arena = {0};
    ds_tag_problem p = backward_and_update();
    ds_tag_action all_reduce = {3, DS_TAG_ALL_REDUCE, NULL};
    ds_tag_outcome out = simulate(&p, &all_reduce, &arena);
    cr_expect_eq(out.makespan_us, 9431); /* 1500 + 7831 + 100 */
    cr_expect_eq(out.peak_bytes[0], 28100000);
    cr_expect_eq(out.peak_bytes[1], 28100000);
    cr_expect_eq(out.n_collectives, 1);
    /* Nothing meets where both compute everything: 1500 + 100. */
    ds_tag_action duplicate = {3, DS_TAG_DUPLICATE, NULL};
    cr_expect_eq(simulate(&p, &duplicate, &arena).makespan_us, 1600);
    ds_tag_action alone = {1, DS_TAG_PS, NULL};
    out = simulate(&p, &alone, &arena);
    cr_expect_eq(out.makespan_us, 1100);
    cr_expect_eq(out.utilisation[0], 1); /* the one whole number beside 0 */
    ds_arena_deinit(&arena);
}

/* ---- links ---- */

/* 28.1 MB are ready at 10 us, 2,810 bytes at 20; then an operation of 7 us. */
Test(tag_conformance, links_are_first_in_first_out) {
    ds_arena arena = {0};
    set_op(0, DS_TAG_SAMPLES, 28100000, 0);
    set_op(1, DS_TAG_SAMPLES, 2810, 0);
    set_us(0, 10, 10);
    set_us(1, 10, 10);
    set_op(2, DS_TAG_SAMPLES, 0, 1);
    set_op(3, DS_TAG_SAMPLES, 0, 1);
    set_parent(2, 0);
    set_parent(3, 1);
    set_us(3, 7, 7);
    ds_tag_problem p = problem_of(4, 2, two);
    ds_tag_action apart[] = {{1, DS_TAG_PS, NULL}, {2, DS_TAG_PS, NULL}};
    cr_expect_eq(simulate(&p, apart, &arena).makespan_us, 10042);
    ds_arena_deinit(&arena);
}

/* Machines 0 and 1 send 28.1 MB each to machine 2, which has a way in of its own or none. */
Test(tag_conformance, ordered_pairs_have_links) {
    ds_arena arena = {0};
    const ds_tag_machine machines[] = {{0, 1, INT64_MAX}, {0, 1, INT64_MAX}, {0, 1, INT64_MAX}};
    const int64_t speeds[] = {2810, 2810, 2810, 2810, 2810, 2810, 2810, 2810, 2810};
    for (uint32_t i = 0; i < 2; i++) {
        set_op(i, DS_TAG_SAMPLES, 28100000, i);
        set_op(i + 2, DS_TAG_SAMPLES, 0, 2);
        set_parent(i + 2, i);
    }
    ds_tag_problem p = problem_of(4, 3, (ds_tag_cluster){3, machines, speeds});
    ds_tag_action action[] = {{1, DS_TAG_PS, NULL}, {2, DS_TAG_PS, NULL}, {4, DS_TAG_PS, NULL}};
    cr_expect_eq(simulate(&p, action, &arena).makespan_us, 10012);
    p.quirks &= ~(uint32_t)DS_TAG_PAIR_LINKS;
    cr_expect_eq(simulate(&p, action, &arena).makespan_us, 20024);
    ds_arena_deinit(&arena);
}

/* ---- chains of collectives ---- */

/* VGG-19 on images of 224 x 224 with 1,000 classes: a weight and a bias for each of 16 convolutions
 * of 3 x 3 and 3 matrices. */
static uint32_t vgg19(bool has_matrices) {
    static const int64_t channels[] = {3,   64,  64,  128, 128, 256, 256, 256, 256,
                                       512, 512, 512, 512, 512, 512, 512, 512};
    static const int64_t widths[] = {25088, 4096, 4096, 1000};
    uint32_t n = 0;
    int64_t bytes = 0;
    for (uint32_t i = 0; i < 16; i++) {
        set_op(n++, DS_TAG_SUM, 4 * 9 * channels[i] * channels[i + 1], 0);
        set_op(n++, DS_TAG_SUM, 4 * channels[i + 1], 0);
    }
    for (uint32_t i = 0; i < 3; i++) {
        if (has_matrices) set_op(n++, DS_TAG_SUM, 4 * widths[i] * widths[i + 1], 0);
        set_op(n++, DS_TAG_SUM, 4 * widths[i + 1], 0);
    }
    for (uint32_t i = 0; i < n; i++) bytes += ops[i].result_bytes;
    if (has_matrices) cr_assert_eq(bytes, 574668960);
    return n;
}

Test(tag_conformance, gradients_of_vgg19) {
    ds_arena arena = {0};
    ds_tag_action all_reduce = {3, DS_TAG_ALL_REDUCE, NULL};
    uint32_t n = vgg19(true);
    cr_assert_eq(n, 38);
    ds_tag_problem p = problem_of(n, 1, two);
    cr_expect_eq(simulate(&p, &all_reduce, &arena).makespan_us, 167205);
    p.quirks &= ~(uint32_t)DS_TAG_COLLECTIVE_CHAIN; /* one at a time still */
    cr_expect_eq(simulate(&p, &all_reduce, &arena).makespan_us, 167205);
    p = problem_of(vgg19(false), 1, two);
    cr_expect_eq(simulate(&p, &all_reduce, &arena).makespan_us, 32472);
    ds_arena_deinit(&arena);
}

/* Two gradients, made at 1000 and 3000 us, of 28.1 MB (7,831 us) and nothing (368 us). The first one
 * waits for the second, which was created next. */
Test(tag_conformance, a_collective_waits_for_the_next_one) {
    ds_arena arena = {0};
    set_op(0, DS_TAG_SUM, 28100000, 0);
    set_us(0, 1000, 1000);
    set_op(1, DS_TAG_SUM, 0, 0);
    set_us(1, 2000, 2000);
    ds_tag_problem p = problem_of(2, 1, two);
    ds_tag_action all_reduce = {3, DS_TAG_ALL_REDUCE, NULL};
    cr_expect_eq(simulate(&p, &all_reduce, &arena).makespan_us, 3000 + 368 + 7831);
    p.quirks &= ~(uint32_t)DS_TAG_COLLECTIVE_CHAIN;
    cr_expect_eq(simulate(&p, &all_reduce, &arena).makespan_us, 1000 + 7831 + 368);
    /* The collective holds the GPUs after operation 1 was put on: 3000, then both collectives. */
    p.quirks &= ~(uint32_t)DS_TAG_COLLECTIVE_FREE;
    cr_expect_eq(simulate(&p, &all_reduce, &arena).makespan_us, 3000 + 7831 + 368);
    /* Operation 1 reads the reduced gradient of operation 0: each collective waits for the other. */
    set_parent(1, 0);
    p = problem_of(2, 1, two);
    ds_tag_outcome out;
    ds_error err;
    cr_assert_eq(ds_tag_check(&p, &err), DS_OK);
    cr_assert_eq(ds_tag_simulate(&p, &all_reduce, &arena, &out, &err), DS_ERR_DEADLOCK);
    cr_expect(strstr(err.message, "the all_reduce of operation 0 ('?') waits for the all_reduce of "
                                  "operation 1 ('?')"),
              "%s", err.message);
    p.quirks &= ~(uint32_t)DS_TAG_COLLECTIVE_CHAIN;
    cr_expect_eq(simulate(&p, &all_reduce, &arena).makespan_us, 1000 + 7831 + 2000 + 368);
    ds_arena_deinit(&arena);
}

/* ---- the search's numbers on TAG's testbed ---- */

Test(tag_conformance, actions_on_the_testbed) {
    ds_arena arena = {0};
    ds_error err;
    ds_tag_action *action;
    uint32_t n;
    set_op(0, DS_TAG_SUM, 0, 0);
    ds_tag_problem p = problem_of(1, 1, testbed);
    p.batch = 384;
    cr_assert_eq(ds_tag_actions(&p, &arena, &action, &n, &err), DS_OK);
    cr_expect_eq(n, 21);
    cr_expect_float_eq(ds_tag_exploration(n), 1.44914, 5e-6);
    for (uint32_t i = 0; i < n; i++) simulate(&p, &action[i], &arena);
    p.batch = 600; /* 16 GPUs do not divide 600 samples */
    cr_assert_eq(ds_tag_actions(&p, &arena, &action, &n, &err), DS_OK);
    cr_expect_eq(n, 19);
    for (uint32_t i = 0; i < n; i++) cr_expect(i == 18 || action[i].gpus != 0xffff);
    cr_expect_eq(action[18].way, DS_TAG_SPLIT);
    /* A machine of one GPU alone has one action: 1 + 3 + 3. */
    const ds_tag_machine machines[] = {{0, 1, 0}, {0, 2, 0}};
    p.cluster = (ds_tag_cluster){2, machines, two_speeds};
    cr_assert_eq(ds_tag_actions(&p, &arena, &action, &n, &err), DS_OK);
    cr_expect_eq(n, 7);
    ds_arena_deinit(&arena);
}

Test(tag_conformance, values) {
    ds_tag_outcome out = {.makespan_us = 100, .fits = true};
    cr_expect_float_eq(ds_tag_value(456, &out), 1.37361, 5e-6);
    cr_expect_float_eq(ds_tag_value(150, &out), 0.5, 1e-12);
    cr_expect_float_eq(ds_tag_value(50, &out), -0.5, 1e-12);
    out.fits = false;
    cr_expect_eq(ds_tag_value(456, &out), -1);
}

/* The baseline: all_reduce everywhere; where a gradient of 28.1 MB does not fit, the parts. */
Test(tag_conformance, baseline) {
    ds_arena arena = {0};
    ds_error err;
    ds_tag_problem p = backward_and_update();
    ds_tag_action action;
    ds_tag_outcome out;
    cr_assert_eq(ds_tag_baseline(&p, &arena, &action, &out, &err), DS_OK);
    cr_expect_eq(action.way, DS_TAG_ALL_REDUCE);
    cr_expect_eq(out.makespan_us, 9431);
    const ds_tag_machine small[] = {{0, 1, 28100000}, {1, 1, 28099999}};
    p.cluster.machine = small;
    cr_assert_eq(ds_tag_baseline(&p, &arena, &action, &out, &err), DS_OK);
    cr_expect_eq(action.way, DS_TAG_SPLIT); /* on GPU 0, then on GPU 0, where the gradient is */
    cr_expect_eq(out.makespan_us, 1100);
    cr_expect(out.fits);
    ds_arena_deinit(&arena);
}

/* ---- profiled times ---- */

Test(tag_conformance, times_between_batch_sizes) {
    const int64_t batch[] = {1, 2, 8};
    const double us[] = {10, 30, 60};
    ds_tag_op op = {.us = us};
    ds_tag_graph g = {1, 1, 1, 3, &op, batch};
    cr_expect_eq(ds_tag_op_us(&g, 0, 0, 8), 60);
    cr_expect_eq(ds_tag_op_us(&g, 0, 0, 4), 70); /* 1 and 2 are nearest: 30 + 2 · 20 */
    cr_expect_eq(ds_tag_op_us(&g, 0, 0, 6), 50); /* 8 and 2: 60 - 2 · 5 */
    cr_expect_eq(ds_tag_op_us(&g, 0, 0, 20), 120);
    const double falling[] = {10, 4, 1};
    op.us = falling;
    cr_expect_eq(ds_tag_op_us(&g, 0, 0, 20), 0); /* 1 - 12 / 2 */
}

/* ---- rank order ---- */

/* Two operations on GPU 0, the second one of them before a long one on GPU 1: by rank it goes first. */
Test(tag_conformance, rank_order) {
    ds_arena arena = {0};
    set_op(0, DS_TAG_SAMPLES, 0, 0);
    set_us(0, 500, 500);
    set_op(1, DS_TAG_SAMPLES, 0, 0);
    set_us(1, 100, 100);
    set_op(2, DS_TAG_SAMPLES, 0, 1);
    set_us(2, 1000, 1000);
    set_parent(2, 1);
    ds_tag_problem p = problem_of(3, 2, two);
    ds_tag_action action[] = {{1, DS_TAG_PS, NULL}, {2, DS_TAG_PS, NULL}};
    cr_expect_eq(simulate(&p, action, &arena).makespan_us, 500 + 100 + 12 + 1000);
    p.is_ranked = true;
    cr_expect_eq(simulate(&p, action, &arena).makespan_us, 100 + 12 + 1000);
    ds_arena_deinit(&arena);
}

/* ---- refusals ---- */

static void expect_refusal(const ds_tag_problem *p, const ds_tag_action *action, const char *text) {
    ds_arena arena = {0};
    ds_error err;
    ds_tag_outcome out;
    ds_status status = ds_tag_check(p, &err);
    if (status == DS_OK) status = ds_tag_simulate(p, action, &arena, &out, &err);
    cr_assert_neq(status, DS_OK, "not refused: %s", text);
    cr_expect(strstr(err.message, text), "'%s' and not '%s'", err.message, text);
    ds_arena_deinit(&arena);
}

Test(tag_conformance, refusals) {
    ds_tag_problem p = backward_and_update();
    ds_tag_action action = {3, DS_TAG_PS, NULL};
    const int64_t short_share[] = {1, 0}, long_share[] = {2, 1}, rest_share[] = {1, INT64_MAX};
    action.share = short_share;
    expect_refusal(&p, &action, "replica 1 of group 0 has a share of 0 samples of a batch of 2");
    action.share = long_share;
    expect_refusal(&p, &action, "replica 1 of group 0 has a share of 1 samples");
    action.share = rest_share;
    expect_refusal(&p, &action, "replica 1 of group 0 has a share of 9223372036854775807 samples");
    action = (ds_tag_action){5, DS_TAG_PS, NULL};
    expect_refusal(&p, &action, "group 0 is on GPUs 0x5 of a cluster of 2");
    parent_of[1][0] = 1;
    expect_refusal(&p, &action, "operation 1 ('?') reads operation 1: parents come first");
    p.batch = 0;
    parent_of[1][0] = 0;
    expect_refusal(&p, &action, "a batch of 0");
    ops[1].group = 7;
    expect_refusal(&p, &action, "operation 1 ('?') is in group 7 of 1 groups");
    ops[1].group = 0;
    us_of[1][1] = NAN;
    expect_refusal(&p, &action, "operation 1 ('?') takes nan us on kind 1 of GPU");
    us_of[1][1] = 1;
    p.graph.n_kinds = 1;
    expect_refusal(&p, &action, "machine 1 has 1 GPUs of kind 1");
}
