/* The critical path: timelines worked out by hand; on scenarios and random programs it covers the
 * step, does not depend on folding, and is critical: any longer, and the step is longer. */
#include "tests/support/cases.h"
#include "tests/support/generate/random_program.h"
#include "tests/support/sim.h"

#include "sim/report/analysis.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define US INT64_C(1000000)

#define HEAD                                                                                       \
    "dir 1\n"                                                                                      \
    "topology @t {\n"                                                                              \
    "  device d[6] : \"V100-PCIE-16GB\"\n"                                                         \
    "  switch s\n"                                                                                 \
    "  link d[i] -- s : 10 GB/s, 1 us for i in 0..6\n"                                             \
    "}\n"                                                                                          \
    "axis q\naxis x\naxis y\n"                                                                     \
    "mesh @m = [dp = 3, tp = 2] on @t\n"

/* One segment as it is expected: the last name of its path. */
typedef struct expected {
    int64_t start_us, end_us;
    ds_time_kind kind;
    ds_wait waited_for;
    const char *name, *device;
} expected;

static const char *name_of(const ds_plan *plan, uint32_t task, ds_buf *path) {
    path->n = 0;
    ds_plan_path(plan, plan->task_inst[task], path);
    const char *slash = strrchr(path->text, '/');
    return slash ? slash + 1 : path->text;
}

static void expect_path(const char *body, const expected *want, uint32_t n) {
    ds_buf text = {0}, path_text = {0};
    ds_buf_printf(&text, HEAD "func @f(%s\nscenario { program = @f }\n", body);
    sim_case c;
    sim_run_text(&c, text.text, NULL, false);
    cr_assert_eq(c.status, DS_OK);
    ds_critical_path path;
    ds_critical_path_find(c.result, &path);
    cr_assert_eq(path.n, n, "%u segments of %u", path.n, n);
    for (uint32_t i = 0; i < n; i++) {
        const ds_segment *s = &path.at[i];
        const ds_plan *plan = c.result->plan;
        const char *device =
            ds_topo_device_path(plan->topo, plan->classes[plan->task_class[s->task]].device);
        cr_expect_eq(s->start_ps, want[i].start_us * US, "%u: %lld", i, (long long)s->start_ps);
        cr_expect_eq(s->end_ps, want[i].end_us * US, "%u: %lld", i, (long long)s->end_ps);
        cr_expect_eq(s->kind, want[i].kind, "%u: %s", i, ds_time_kind_name(s->kind));
        cr_expect_eq(s->waited_for, want[i].waited_for, "%u: %s", i, ds_wait_name(s->waited_for));
        cr_expect_str_eq(name_of(plan, s->task, &path_text), want[i].name);
        cr_expect_str_eq(device, want[i].device);
    }
    ds_critical_path_deinit(&path);
    ds_buf_deinit(&text);
    ds_buf_deinit(&path_text);
    sim_free(&c);
}
#define EXPECT_PATH(body, ...)                                                                     \
    expect_path(body, (const expected[]){__VA_ARGS__},                                             \
                sizeof((const expected[]){__VA_ARGS__}) / sizeof(expected))

Test(critical, follows_data_through_a_transfer) {
    /* b, 4 us, is hidden under p, 5 us */
    EXPECT_PATH("%x: f32[8] on @m) {\n"
                "  %a = relu(%x) {cost = 3 us}\n"
                "  %p = permute(%a) over dp {cost = 5 us}\n"
                "  %b = relu(%a) {cost = 4 us}\n"
                "  %c = add(%b, %p) {cost = 1 us}\n  return\n}",
                {0, 3, DS_TIME_COMPUTE, DS_WAIT_NOTHING, "a", "d[0]"},
                {3, 8, DS_TIME_COMM, DS_WAIT_DATA, "p", "d[0]"},
                {8, 9, DS_TIME_COMPUTE, DS_WAIT_DATA, "c", "d[0]"});
}

Test(critical, goes_to_the_member_that_came_last) {
    EXPECT_PATH("%x: f32[8] on @t.d[0], %y: f32[8] on @t.d[1]) {\n"
                "  %a = relu(%x) {cost = 2 us}\n  %b = relu(%y) {cost = 6 us}\n"
                "  %g, %h = all_reduce(%a, %b) across {cost = 3 us}\n"
                "  %e = relu(%g) {cost = 1 us}\n  return\n}",
                {0, 6, DS_TIME_COMPUTE, DS_WAIT_NOTHING, "b", "d[1]"},
                {6, 9, DS_TIME_COMM, DS_WAIT_RENDEZVOUS, "g", "d[0]"},
                {9, 10, DS_TIME_COMPUTE, DS_WAIT_DATA, "e", "d[0]"});
}

Test(critical, waits_for_streams_and_communicators) {
    EXPECT_PATH("%x: f32[8] on @m) {\n"
                "  %a = permute(%x) over dp {cost = 5 us}\n"
                "  %b = permute(%x) over dp {cost = 7 us}\n"
                "  %c = relu(%x) {cost = 11 us}\n  return\n}",
                {0, 5, DS_TIME_COMM, DS_WAIT_NOTHING, "a", "d[0]"},
                {5, 12, DS_TIME_COMM, DS_WAIT_COMMUNICATOR, "b", "d[0]"});
    EXPECT_PATH("%x: f32[8] on @m) {\n"
                "  %a = relu(%x) {cost = 5 us}\n  %b = relu(%x) {cost = 7 us}\n  return\n}",
                {0, 5, DS_TIME_COMPUTE, DS_WAIT_NOTHING, "a", "d[0]"},
                {5, 12, DS_TIME_COMPUTE, DS_WAIT_STREAM, "b", "d[0]"});
}

/* 26.65 us a task by the profile: the fifth task is issued at 133.25 us and runs 1 us. */
Test(critical, ends_at_the_host_that_issues_too_slowly) {
    sim_case c;
    sim_run_text(&c,
                 HEAD "func @f(%x: f32[8] on @m) {\n"
                      "  %y = for l in 0..5 carry (%h = %x) {\n"
                      "    %a = relu(%h) {cost = 1 us}\n    yield %a\n  }\n  return\n}\n"
                      "scenario { program = @f, profile = \"V100-PCIE-16GB\" }\n",
                 NULL, false);
    cr_assert_eq(c.status, DS_OK);
    ds_critical_path path;
    ds_critical_path_find(c.result, &path);
    cr_assert_eq(path.n, 2);
    cr_expect_eq(path.at[0].kind, DS_TIME_HOST);
    cr_expect_eq(path.at[0].end_ps, 5 * INT64_C(26650000));
    cr_expect_eq(path.at[1].waited_for, DS_WAIT_HOST);
    cr_expect_eq(path.total_ps[DS_TIME_HOST], 5 * INT64_C(26650000));
    cr_expect_eq(path.total_ps[DS_TIME_COMPUTE], US);
    ds_critical_path_deinit(&path);
    ds_causes causes;
    ds_causes_of_class(c.result, 0, &causes); /* idle all the time but for 5 us, for the host */
    cr_assert_eq(causes.rows.n, 2);
    cr_expect_eq(causes.rows.at[0].kind, DS_TIME_HOST);
    cr_expect_eq(causes.rows.at[0].ps, 5 * INT64_C(26650000) - 4 * US);
    cr_expect_str_eq(causes.rows.at[1].what, "elementwise");
    ds_causes_deinit(&causes);
    sim_free(&c);
}

Test(critical, of_an_empty_program_is_empty) {
    sim_case c;
    sim_run_text(&c, HEAD "func @f(%x: f32[8] on @m) {\n  return\n}\nscenario { program = @f }\n",
                 NULL, false);
    cr_assert_eq(c.status, DS_OK);
    ds_critical_path path;
    ds_critical_path_find(c.result, &path);
    cr_expect_eq(path.n, 0);
    ds_critical_path_deinit(&path);
    sim_free(&c);
}

/* ---- what holds for every run ---- */

static void covers_the_step(const ds_result *r, const char *name) {
    ds_critical_path path;
    ds_critical_path_find(r, &path);
    int64_t at = 0, sum = 0, totals = 0;
    for (uint32_t i = 0; i < path.n; i++) {
        const ds_segment *s = &path.at[i];
        cr_assert_eq(s->start_ps, at, "%s: segment %u begins at %lld, not %lld", name, i,
                     (long long)s->start_ps, (long long)at);
        cr_assert_lt(s->start_ps, s->end_ps);
        if (s->kind == DS_TIME_COMPUTE || s->kind == DS_TIME_COMM) {
            cr_expect_eq(s->start_ps, r->run.start_ps[s->task], "%s", name);
            cr_expect_eq(s->end_ps, r->run.end_ps[s->task], "%s", name);
        }
        at = s->end_ps;
    }
    cr_expect_eq(at, r->run.step_ps, "%s", name);
    ds_causes causes;
    ds_causes_of_path(r, &path, &causes);
    for (uint32_t i = 0; i < causes.rows.n; i++) sum += causes.rows.at[i].ps;
    for (int k = 0; k < DS_TIME_KIND_COUNT; k++) totals += path.total_ps[k];
    cr_expect_eq(sum, r->run.step_ps, "%s", name);
    cr_expect_eq(totals, r->run.step_ps, "%s", name);
    cr_expect_eq(path.total_ps[DS_TIME_IDLE], 0, "%s: every task starts when it can", name);
    ds_causes_deinit(&causes);
    ds_critical_path_deinit(&path);
}

/* Times by cause of a device are a partition of its account, which is checked elsewhere. */
static void causes_are_the_account(const ds_result *r, const char *name) {
    for (uint32_t c = 0; c < r->plan->n_classes; c++) {
        int64_t of[DS_TIME_KIND_COUNT] = {0};
        ds_causes causes;
        ds_causes_of_class(r, c, &causes);
        for (uint32_t i = 0; i < causes.rows.n; i++)
            of[causes.rows.at[i].kind] += causes.rows.at[i].ps;
        cr_expect_eq(of[DS_TIME_COMPUTE], r->accounts[c].compute_ps, "%s, class %u", name, c);
        cr_expect_eq(of[DS_TIME_COMM], r->accounts[c].exposed_comm_ps, "%s, class %u", name, c);
        cr_expect_eq(of[DS_TIME_HOST] + of[DS_TIME_IDLE], r->accounts[c].idle_ps, "%s, class %u",
                     name, c);
        ds_causes_deinit(&causes);
    }
}

/* Makes up to `most` of its tasks longer by 1 us, one at a time, and runs the plan again: each
 * chain of waits gets longer by as much, so the step must. Transfers take their time alone in it:
 * one that comes later may meet less traffic. */
static void is_critical(const ds_result *shared, uint32_t most, const char *name) {
    ds_plan *plan = shared->plan;
    ds_result alone = *shared, *r = &alone;
    ds_error err;
    uint32_t *n_flows = ds_xcalloc(plan->n_activities, sizeof *n_flows);
    for (uint32_t a = 0; a < plan->n_activities; a++) {
        n_flows[a] = plan->activities[a].n_flows;
        plan->activities[a].n_flows = 0;
    }
    cr_assert_eq(ds_engine_run(plan, NULL, NULL, &alone.run, &err), DS_OK);
    ds_critical_path path;
    ds_critical_path_find(r, &path);
    uint32_t stride = path.n / most + 1;
    for (uint32_t i = 0; i < path.n; i += stride) {
        const ds_segment *s = &path.at[i];
        if (s->kind == DS_TIME_HOST || s->kind == DS_TIME_IDLE) continue;
        uint32_t activity = plan->task_activity[s->task];
        int64_t *ps =
            activity == DS_NONE ? &plan->task_ps[s->task] : &plan->activities[activity].ps;
        ds_run longer;
        *ps += US;
        cr_assert_eq(ds_engine_run(plan, NULL, NULL, &longer, &err), DS_OK);
        *ps -= US;
        cr_expect_geq(longer.step_ps, r->run.step_ps + US, "%s: segment %u is not critical", name,
                      i);
        ds_run_deinit(&longer);
    }
    ds_critical_path_deinit(&path);
    ds_run_deinit(&alone.run);
    for (uint32_t a = 0; a < plan->n_activities; a++) plan->activities[a].n_flows = n_flows[a];
    free(n_flows);
}

static json_t *critical_json(const ds_result *r) {
    ds_buf text = {0};
    ds_report_json(r, &text);
    json_t *all = json_loads(text.text, JSON_REJECT_DUPLICATES, NULL);
    cr_assert(all, "%s", text.text);
    json_t *path = json_incref(json_object_get(all, "critical_path"));
    json_decref(all);
    ds_buf_deinit(&text);
    return path;
}

/* All but the segments' devices, which are the lowest of their class. */
static void same_path(const ds_result *a, const ds_result *b, const char *name) {
    json_t *x = critical_json(a), *y = critical_json(b), *segment;
    json_t *const both[] = {x, y};
    for (int i = 0; i < 2; i++) {
        size_t k;
        json_array_foreach(json_object_get(both[i], "segments"), k, segment)
            json_object_del(segment, "device");
    }
    cr_expect(json_equal(x, y), "%s: the path depends on folding", name);
    json_decref(x);
    json_decref(y);
}

static void check(const ds_result *folded, const ds_result *unfolded, const char *name) {
    const ds_result *const both[] = {folded, unfolded};
    for (int i = 0; i < 2; i++) {
        covers_the_step(both[i], name);
        causes_are_the_account(both[i], name);
        is_critical(both[i], 6, name);
    }
    same_path(folded, unfolded, name);
}

Test(critical, holds_for_every_scenario) {
    static const char *const scenarios[] = {
        "scenarios/distir-mlp.dir",    "scenarios/pipeline-2x4.dir", "scenarios/gpt3-layer-tp8.dir",
        "scenarios/mixed-box-dp.dir",  "scenarios/mlp-forward.dir",  "scenarios/mlp-training.dir",
        "scenarios/out-of-memory.dir", "scenarios/gpt2-dp4.dir",     "scenarios/tour.dir",
    };
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        sim_case folded, unfolded;
        sim_run_file(&folded, scenarios[i], NULL, false);
        sim_run_file(&unfolded, scenarios[i], NULL, true);
        cr_assert(folded.status == DS_OK && unfolded.status == DS_OK, "%s", scenarios[i]);
        check(folded.result, unfolded.result, scenarios[i]);
        sim_free(&folded);
        sim_free(&unfolded);
    }
}

Test(critical, holds_for_random_programs) {
    uint32_t ran = 0;
    for (uint64_t seed = 0; seed < (FEW_CASES ? 50 : 150); seed++) {
        ds_buf text = {0};
        random_program(seed, &text);
        sim_case folded, unfolded;
        sim_run_text(&folded, text.text, NULL, false);
        if (folded.status == DS_OK) {
            char name[32];
            snprintf(name, sizeof name, "seed %llu", (unsigned long long)seed);
            sim_run_text(&unfolded, text.text, NULL, true);
            cr_assert_eq(unfolded.status, DS_OK);
            check(folded.result, unfolded.result, name);
            sim_free(&unfolded);
            ran++;
        }
        sim_free(&folded);
        ds_buf_deinit(&text);
    }
    cr_expect_geq(ran, FEW_CASES ? 33 : 100);
}

/* Both d0 (with d3: relu) and d1 (with d2: tanh) come to the meetings at 4 us; d4, which ends last,
 * meets {2, 3, 4}, and d5 {0, 1, 5}. Unfolded the lowest that came last with d4 is d2, folded it is
 * the class of d0: numbers must not decide. */
Test(critical, members_that_come_last_together_are_told_apart_by_their_past) {
    static const char text[] =
        HEAD "mesh @p = [q = 6] on @t order (0, 3, 1, 2, 4, 5)\n"
             "mesh @a = pick 0..2 of @p [q = 2]\n"
             "mesh @b = pick 2..4 of @p [q = 2]\n"
             "mesh @c = pick 4..6 of @p [q = 2]\n"
             "mesh @g = [x = 2, y = 3] on @t order (2, 3, 4, 0, 1, 5)\n"
             "func @f(%x: f32[8] on @g, %u: f32[8] on @a, %v: f32[8] on @b, %w: f32[8] on @c) {\n"
             "  %ra = relu(%u) {cost = 4 us, stream = s}\n"
             "  %tb = tanh(%v) {cost = 4 us, stream = s}\n"
             "  %z = permute(%x) over y {cost = 2 us, stream = s}\n"
             "  %e = relu(%z) {cost = 1 us}\n"
             "  %k = relu(%w) {cost = 5 us}\n  return\n}\nscenario { program = @f }\n";
    sim_case folded, unfolded;
    sim_run_text(&folded, text, NULL, false);
    sim_run_text(&unfolded, text, NULL, true);
    cr_assert(folded.status == DS_OK && unfolded.status == DS_OK);
    cr_expect_eq(folded.result->run.step_ps, 12 * US);
    cr_expect_eq(folded.result->plan->n_classes, 3);
    check(folded.result, unfolded.result, "tie");
    sim_free(&folded);
    sim_free(&unfolded);
}
