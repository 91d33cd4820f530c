/* Streams, rendezvous and host issue (sim/engine/README.md, "What counts") with durations given by hand. */
#include "sim/report/analysis.h"
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <stdio.h>

#define US INT64_C(1000000)

#define HEAD                                                                                       \
    "dir 1\n"                                                                                      \
    "topology @t {\n"                                                                              \
    "  device d[4] : \"V100-PCIE-16GB\"\n"                                                         \
    "  switch s\n"                                                                                 \
    "  link d[i] -- s : 10 GB/s, 1 us for i in 0..4\n"                                             \
    "}\n"                                                                                          \
    "mesh @m = [dp = 2, tp = 2] on @t\n"

static void run(sim_case *c, const char *body, const char *scenario) {
    char text[4096];
    snprintf(text, sizeof text, HEAD "func @f(%s\nscenario { program = @f%s }\n", body, scenario);
    sim_run_text(c, text, NULL, false);
}

static int64_t step(const char *body) {
    sim_case c;
    run(&c, body, "");
    cr_assert_eq(c.status, DS_OK);
    int64_t ps = c.result->run.step_ps;
    sim_free(&c);
    return ps;
}

Test(engine, communication_overlaps_independent_compute) {
    /* a 3 us, then its all_reduce 5 us beside b 4 us; c needs both: 3 + 5 + 1 */
    sim_case c;
    run(&c,
        "%x: f32[8] on @m) {\n"
        "  %a = relu(%x) {cost = 3 us}\n"
        "  %p = permute(%a) over dp {cost = 5 us}\n"
        "  %b = relu(%a) {cost = 4 us}\n"
        "  %c = add(%b, %p) {cost = 1 us}\n  return\n}",
        "");
    cr_assert_eq(c.status, DS_OK);
    cr_expect_eq(c.result->run.step_ps, 9 * US);
    const ds_account *a = &c.result->accounts[0];
    cr_expect_eq(a->compute_ps, 8 * US);
    cr_expect_eq(a->hidden_comm_ps, 4 * US);
    cr_expect_eq(a->exposed_comm_ps, 1 * US);
    cr_expect_eq(a->idle_ps, 0);
    sim_free(&c);
}

/* A transfer over 0 .. 3 us and an op that the host issues at once, over 0 .. 3 us, too: of what
 * ends at one time, compute is first (engine.h), whichever was started first. */
Test(engine, compute_ends_before_transfers_of_the_same_time) {
    sim_case c;
    run(&c,
        "%x: f32[8] on @m) {\n"
        "  %p = permute(%x) over dp {cost = 3 us}\n"
        "  %a = relu(%x) {cost = 3 us}\n  return\n}",
        "");
    cr_assert_eq(c.status, DS_OK);
    const ds_plan *plan = c.result->plan;
    bool transfers = false;
    for (uint32_t i = 0; i < plan->n_tasks; i++) {
        uint32_t task = c.result->run.order[i];
        cr_expect_eq(c.result->run.end_ps[task], 3 * US);
        cr_expect(plan->task_activity[task] != DS_NONE || !transfers);
        transfers = transfers || plan->task_activity[task] != DS_NONE;
    }
    cr_expect(transfers);
    sim_free(&c);
}

Test(engine, one_communicator_is_one_stream_two_are_two) {
    cr_expect_eq(step("%x: f32[8] on @m) {\n  %a = permute(%x) over dp {cost = 5 us}\n"
                      "  %b = permute(%x) over dp {cost = 7 us}\n  return\n}"),
                 12 * US);
    cr_expect_eq(step("%x: f32[8] on @m) {\n  %a = permute(%x) over dp {cost = 5 us}\n"
                      "  %b = permute(%x) over tp {cost = 7 us}\n  return\n}"),
                 7 * US);
    cr_expect_eq(step("%x: f32[8] on @m) {\n  %a = permute(%x) over dp {cost = 5 us, stream = s}\n"
                      "  %b = permute(%x) over tp {cost = 7 us, stream = s}\n  return\n}"),
                 12 * US);
}

Test(engine, sends_of_one_pair_queue_and_directions_do_not) {
    cr_expect_eq(step("%x: f32[8] on @t.d[0], %y: f32[8] on @t.d[1]) {\n"
                      "  %a = send(%x) to @t.d[1] {cost = 5 us}\n"
                      "  %b = send(%x) to @t.d[1] {cost = 5 us}\n"
                      "  %c = send(%y) to @t.d[0] {cost = 7 us}\n"
                      "  %e = send(%x) to @t.d[2] {cost = 9 us}\n  return\n}"),
                 10 * US);
}

Test(engine, a_rendezvous_waits_for_the_last_and_counts_as_idle) {
    /* d0 reaches the meeting at 2 us, d1 at 6 us; it lasts 3 us */
    sim_case c;
    run(&c,
        "%x: f32[8] on @t.d[0], %y: f32[8] on @t.d[1]) {\n"
        "  %a = relu(%x) {cost = 2 us}\n  %b = relu(%y) {cost = 6 us}\n"
        "  %g, %h = all_reduce(%a, %b) across {cost = 3 us}\n  return\n}",
        "");
    cr_assert_eq(c.status, DS_OK);
    cr_expect_eq(c.result->run.step_ps, 9 * US);
    const ds_account *d0 = &c.result->accounts[c.result->plan->class_of[0]];
    cr_expect_eq(d0->compute_ps, 2 * US);
    cr_expect_eq(d0->idle_ps, 4 * US);
    cr_expect_eq(d0->exposed_comm_ps, 3 * US);
    sim_free(&c);
}

Test(engine, the_host_issues_tasks_one_by_one) {
    /* 26.65 us each by the profile: the k-th task of 1 us starts when the host has issued it */
    sim_case c;
    run(&c,
        "%x: f32[8] on @m) {\n"
        "  %y = for l in 0..5 carry (%h = %x) {\n    %a = relu(%h) {cost = 1 us}\n    yield %a\n  "
        "}\n"
        "  return\n}",
        ", profile = \"V100-PCIE-16GB\"");
    cr_assert_eq(c.status, DS_OK);
    cr_expect_eq(c.result->plan->classes[0].issue_ps, 26650000);
    cr_expect_eq(c.result->run.step_ps, 5 * 26650000 + US);
    cr_expect_eq(c.result->accounts[0].idle_ps, 5 * 26650000 - 4 * US);
    sim_free(&c);
}

/* A recorded graph of kernels: nothing is issued one by one. */
Test(engine, the_host_issues_no_task_of_a_graph) {
    sim_case c;
    run(&c,
        "%x: f32[8] on @m) {\n"
        "  %y = for l in 0..5 carry (%h = %x) {\n    %a = relu(%h) {cost = 1 us}\n    yield %a\n  "
        "}\n"
        "  return\n}",
        ", profile = \"V100-PCIE-16GB\", cuda_graphs = true");
    cr_assert_eq(c.status, DS_OK);
    cr_expect_eq(c.result->plan->classes[0].issue_ps, 0);
    cr_expect_eq(c.result->run.step_ps, 5 * US);
    sim_free(&c);
}

#define PAIR                                                                                       \
    "dir 1\ntopology @t {\n  device d[2] : \"A100-SXM4-80GB\"\n  link d[0] -- d[1] : 1 GB/s, 1 "   \
    "us\n}\n"                                                                                      \
    "func @f(%x: f32[8] on @t.d[0]) {\n  %a = relu(%x) {cost = 1 us}\n"                            \
    "  %s = send(%a) to @t.d[1] {cost = 7 us}\n  %b = relu(%s) {cost = 1 us}\n"                    \
    "  %c = relu(%b) {cost = 1 us}\n  return\n}\nscenario { program = @f, profile = generic"

static void run_pair(sim_case *c, const char *scenario) {
    char text[1024];
    snprintf(text, sizeof text, "%s%s }\n", PAIR, scenario);
    sim_run_text(c, text, NULL, false);
    cr_assert_eq(c->status, DS_OK);
}

/* Megatron: 19.1 us of a kernel by 2.73. The first host issues the send at 2 kernels; the second
 * host waits for the 7 us of the transfer, and issues its reader and one kernel more after. */
Test(engine, the_host_waits_for_another_stage) {
    const int64_t kernel = 19100000 / 100 * 273;
    sim_case c;
    run_pair(&c, ", kernels = fused");
    cr_expect_eq(c.result->run.step_ps, 4 * kernel + 8 * US);
    ds_critical_path path;
    ds_critical_path_find(c.result, &path);
    cr_expect_eq(path.total_ps[DS_TIME_HOST], 4 * kernel);
    cr_expect_eq(path.total_ps[DS_TIME_COMM], 7 * US);
    cr_expect_eq(path.total_ps[DS_TIME_COMPUTE], US);
    ds_critical_path_deinit(&path);
    sim_free(&c);
    run_pair(&c, ", kernels = eager"); /* runs ahead: the third task of the second host, and 1 us */
    cr_expect_eq(c.result->run.step_ps, 3 * INT64_C(19100000) + US);
    sim_free(&c);
    run_pair(&c, ", kernels = fused, cuda_graphs = true");
    cr_expect_eq(c.result->run.step_ps, 10 * US);
    sim_free(&c);
    run_pair(&c, ", kernels = fused, without = host");
    cr_expect_eq(c.result->run.step_ps, 10 * US);
    sim_free(&c);
}

/* a 0 to 3, b 3 to 7: the permute of a starts at 3, after b at 7. */
Test(engine, after_holds_a_communication_back) {
    cr_expect_eq(step("%x: f32[8] on @m) {\n  %a = relu(%x) {cost = 3 us}\n"
                      "  %b = relu(%x) {cost = 4 us}\n"
                      "  %p = permute(%a) over dp {cost = 5 us}\n  return\n}"),
                 8 * US);
    cr_expect_eq(step("%x: f32[8] on @m) {\n  %a = relu(%x) {cost = 3 us}\n"
                      "  %b = relu(%x) {cost = 4 us}\n  %h = after(%a, %b)\n"
                      "  %p = permute(%h) over dp {cost = 5 us}\n  return\n}"),
                 12 * US);
}

/* p 0 to 20 holds r back to 21; compute and what follows from it (10 + 12) do not wait. */
Test(engine, after_blocks_no_stream) {
    cr_expect_eq(step("%x: f32[8] on @m) {\n  %p = permute(%x) over dp {cost = 20 us}\n"
                      "  %h = after(%x, %p)\n  %r = permute(%h) over tp {cost = 1 us}\n"
                      "  %c = relu(%x) {cost = 10 us}\n"
                      "  %q = permute(%c) over tp {cost = 12 us, stream = s}\n  return\n}"),
                 22 * US);
}

/* a 0 to 3, b 3 to 7, the work 7 to 9, c 9 to 19: with a cost it does take the stream. And what
 * takes no time still meets: p starts on all members when the last of them has its operand, and r
 * is there at once. */
Test(engine, work_takes_its_stream_and_its_time) {
    cr_expect_eq(step("%x: f32[8] on @m) {\n  %a = relu(%x) {cost = 3 us}\n"
                      "  %b = relu(%x) {cost = 4 us}\n  %h = after(%a, %b) {cost = 2 us}\n"
                      "  %c = relu(%x) {cost = 10 us}\n  return\n}"),
                 19 * US);
    cr_expect_eq(step("%x: f32[8] on @m) {\n  %a = relu(%x) {cost = 3 us}\n"
                      "  %h = after(%a) {cost = 2 us}\n  %p = permute(%h) over dp {cost = 0 us}\n"
                      "  %r = relu(%p) {cost = 0 us}\n  %c = relu(%r) {cost = 10 us}\n  return\n}"),
                 15 * US);
}

/* Through loops, families, calls and views: each turn's gather waits for the one before it. */
Test(engine, after_is_carried_along) {
    cr_expect_eq(step("%x: f32[8] on @m) {\n  %y, %k = for l in 0..3 carry (%h = %x) {\n"
                      "    %p = permute(%x) over dp {cost = 5 us}\n    %a = after(%x, %p, %h)\n"
                      "    %v = reshape(%a) {shape = [2, 4]}\n    yield %p keep %v\n  }\n"
                      "  %s = permute(%k{1}) over tp {cost = 1 us}\n"
                      "  %z = after(%s, %s)\n  return\n}"),
                 15 * US);
    cr_expect_eq(step("%x: f32[8] on @m) {\n  %y, %k = for l in 0..3 carry (%h = %x) {\n"
                      "    %p = permute(%x) over dp {cost = 5 us}\n    %a = after(%x, %p, %h)\n"
                      "    %v = reshape(%a) {shape = [2, 4]}\n    yield %p keep %v\n  }\n"
                      "  %s = permute(%k{1}) over tp {cost = 7 us}\n  return\n}"),
                 17 * US);
}

Test(engine, time_beyond_int64_is_an_error) {
    sim_case c;
    run(&c,
        "%x: f32[8] on @m) {\n  %a = relu(%x) {cost = 9000000 s}\n"
        "  %b = relu(%a) {cost = 9000000 s}\n  return\n}",
        "");
    cr_expect_eq(c.status, DS_ERR_OVERFLOW);
    sim_free(&c);
}

Test(engine, too_large_programs_are_refused) {
    sim_case c;
    run(&c,
        "%x: f32[8] on @m) {\n  %y = for l in 0..4000000000000 carry (%h = %x) {\n"
        "    %a = relu(%h)\n    yield %a\n  }\n  return\n}",
        "");
    cr_expect_eq(c.status, DS_ERR_LIMIT);
    sim_free(&c);
}

/* A dead stretch in the host's order: a task of one stream does not wait for another stream's. */
Test(engine, streams_block_each_other_only_through_data) {
    cr_expect_eq(step("%x: f32[8] on @t.d[0], %y: f32[8] on @t.d[1]) {\n"
                      "  %slow = relu(%y) {cost = 50 us}\n"
                      "  %late = send(%slow) to @t.d[0] {cost = 1 us}\n"
                      "  %a = relu(%x) {cost = 10 us}\n"
                      "  %b = send(%a) to @t.d[2] {cost = 1 us}\n  return\n}"),
                 51 * US);
}
