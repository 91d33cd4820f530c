/* Compute that transfers slow, by a profile whose interference is 1: twice as long. */
#include "tests/support/generate/cost_tree.h"
#include "tests/support/sim.h"

#include "ir/lang/lang.h"
#include "ir/verify/verify.h"
#include "sim/engine/pace.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define US INT64_C(1000000)

typedef struct slowed {
    cost_tree tree;
    ds_profiles *profiles;
    ds_unit *unit;
    ds_binding binding;
    ds_plan *plan;
    ds_run run;
} slowed;

static void start_issued(slowed *s, const char *text, const char *issue_us,
                         const char *interference, bool unfold) {
    char csv[256];
    snprintf(csv, sizeof csv,
             "name,device,issue_us,interference,software,source\nP,Box-1,%s,%s,by hand,s\n",
             issue_us, interference);
    cost_tree_init(&s->tree);
    cost_tree_put(&s->tree, "p/profile.csv", csv);
    s->profiles = cost_tree_load(&s->tree);
    ds_error err = {0};
    ds_diags diags;
    ds_diags_init(&diags);
    ds_plan_options options = {.unfold = unfold};
    s->unit = NULL;
    cr_assert_eq(ds_load_text("test.dir", text, strlen(text), NULL, &s->unit, &err), DS_OK, "%s",
                 err.message);
    cr_assert_eq(ds_verify(s->unit, &diags), DS_OK);
    ds_diags_deinit(&diags);
    cr_assert_eq(ds_bind(s->unit, NULL, 0, &s->binding, &err), DS_OK);
    cr_assert_eq(ds_plan_build(&s->binding, s->profiles, &options, &s->plan, &err), DS_OK, "%s",
                 err.message);
    cr_assert_eq(ds_engine_run(s->plan, NULL, NULL, &s->run, &err), DS_OK, "%s", err.message);
}

static void start(slowed *s, const char *text, const char *interference, bool unfold) {
    start_issued(s, text, "0", interference, unfold);
}

static void end(slowed *s) {
    ds_run_deinit(&s->run);
    ds_plan_free(s->plan);
    ds_unit_free(s->unit);
    ds_profiles_free(s->profiles);
    cost_tree_deinit(&s->tree);
}

#define BOX                                                                                        \
    "dir 1\n"                                                                                      \
    "topology @t {\n  device d[2] : \"Box-1\"\n  switch s\n"                                       \
    "  link d[i] -- s : 10 GB/s, 1 us for i in 0..2\n}\n"                                          \
    "mesh @m = [dp = 2] on @t\n"

/* The permute runs from 0 to 6 us; in these 6 us compute does 3 us of its work, and the rest after
 * it at full pace: a, of 2 us, ends at 4; b, of 11 us, has done 1 at 6 us and ends at 16. */
static const char both[] =
    BOX "func @f(%x: f32[8] on @m) {\n"
        "  %p = permute(%x) over dp {cost = 6 us}\n"
        "  %a = relu(%x) {cost = 2 us}\n  %b = relu(%a) {cost = 11 us}\n  return\n}\n"
        "scenario { program = @f, profile = \"P\" }\n";

Test(interference, compute_is_slowed_while_a_transfer_runs) {
    for (int unfold = 0; unfold < 2; unfold++) {
        slowed s;
        start(&s, both, "1", unfold);
        cr_expect_eq(s.run.step_ps, 16 * US, "%lld", (long long)s.run.step_ps);
        end(&s);
    }
}

Test(interference, none_without_a_coefficient) {
    slowed s;
    start(&s, both, "", false);
    cr_expect_eq(s.run.step_ps, 13 * US);
    end(&s);
    start(&s, both, "0", false);
    cr_expect_eq(s.run.step_ps, 13 * US);
    end(&s);
}

/* A transfer that starts in the middle: c of 12 us has done 4 when the permute starts, 3 more when
 * it ends 6 us later, and 5 more 5 us after that: 15. */
Test(interference, a_transfer_in_the_middle) {
    slowed s;
    start(&s,
          BOX "func @f(%x: f32[8] on @m) {\n"
              "  %h = relu(%x) {cost = 4 us, stream = s}\n"
              "  %p = permute(%h) over dp {cost = 6 us}\n  %c = relu(%x) {cost = 12 us}\n"
              "  return\n}\n"
              "scenario { program = @f, profile = \"P\" }\n",
          "1", false);
    cr_expect_eq(s.run.step_ps, 15 * US, "%lld", (long long)s.run.step_ps);
    end(&s);
}

/* Two transfers one after the other on two streams are one span; both at a time slow no more. */
Test(interference, several_transfers_slow_as_one) {
    slowed s;
    start(&s,
          BOX "func @f(%x: f32[8] on @m) {\n"
              "  %p = permute(%x) over dp {cost = 6 us}\n"
              "  %q = permute(%x) over dp {cost = 3 us, stream = s}\n"
              "  %r = permute(%p) over dp {cost = 6 us, stream = s}\n"
              "  %c = relu(%x) {cost = 12 us}\n  return\n}\n"
              "scenario { program = @f, profile = \"P\" }\n",
          "1", false);
    /* 12 us of transfers, in which 6 us are done, and 6 more */
    cr_expect_eq(s.run.step_ps, 18 * US, "%lld", (long long)s.run.step_ps);
    end(&s);
}

/* The host takes 2 us to issue each: a runs from 2 to 5, b from 5 to 8. */
Test(interference, what_the_host_still_issues_starts_later) {
    slowed s;
    start_issued(&s,
                 BOX "func @f(%x: f32[8] on @m) {\n  %a = relu(%x) {cost = 3 us}\n"
                     "  %b = relu(%a) {cost = 3 us}\n  return\n}\n"
                     "scenario { program = @f, profile = \"P\" }\n",
                 "2", "1", false);
    cr_expect_eq(s.run.step_ps, 8 * US, "%lld", (long long)s.run.step_ps);
    end(&s);
}

/* ---- several devices ---- */

#define MIXED                                                                                      \
    "dir 1\n"                                                                                      \
    "topology @t {\n  device d[3] : \"Box-1\"\n  device e[1] : \"Bare\"\n  switch s\n"             \
    "  link d[i] -- s : 10 GB/s, 1 us for i in 0..3\n  link e[0] -- s : 10 GB/s, 1 us\n}\n"

static int64_t mixed_ps(const char *body) {
    char text[2048];
    slowed s;
    snprintf(text, sizeof text,
             MIXED "func @f(%s  return\n}\nscenario { program = @f, profile = \"P\" }\n", body);
    start(&s, text, "1", false);
    int64_t ps = s.run.step_ps;
    for (uint32_t t = 0; t < s.plan->n_tasks; t++) cr_expect_leq(s.run.end_ps[t], ps);
    end(&s);
    return ps;
}

/* A transfer of 6 us: the Box-1 has done 3 of its 4 us then and ends at 7; the other kind of device
 * has no coefficient. */
Test(interference, one_kind_of_device_alone) {
    const char *text = "%%x: f32[8] on @t.d[0], %%y: f32[8] on @t.e[0]) {\n"
                       "  %%s = send(%%x) to @t.%s {cost = 6 us}\n"
                       "  %%a = relu(%%x) {cost = 4 us}\n"
                       "  %%b = relu(%%y) {cost = %d us}\n";
    char body[512];
    for (int to = 0; to < 2; to++)
        for (int us = 1; us <= 9; us += 4) {
            snprintf(body, sizeof body, text, to ? "e[0]" : "d[1]", us);
            int64_t ps = mixed_ps(body);
            cr_expect_eq(ps, (us > 7 ? us : 7) * US, "%d us: %lld", us, (long long)ps);
        }
}

/* Device 0 sends to 1 and 2 at once: the second transfer finds it slowed, and slows device 2 all
 * the same: 2 of 10 us are done in the transfer's 4, the rest takes 8. Or received: likewise. */
Test(interference, every_member_of_a_transfer_is_slowed) {
    cr_expect_eq(mixed_ps("%x: f32[8] on @t.d[0], %y: f32[8] on @t.d[2]) {\n"
                          "  %p = send(%x) to @t.d[1] {cost = 4 us}\n"
                          "  %q = send(%x) to @t.d[2] {cost = 4 us}\n"
                          "  %c = relu(%y) {cost = 10 us}\n"),
                 12 * US);
    cr_expect_eq(mixed_ps("%x: f32[8] on @t.d[1], %y: f32[8] on @t.d[2]) {\n"
                          "  %p = send(%x) to @t.d[0] {cost = 4 us}\n"
                          "  %q = send(%y) to @t.d[0] {cost = 4 us}\n"
                          "  %c = relu(%y) {cost = 10 us}\n"),
                 12 * US);
}

Test(interference, a_task_that_does_not_run_has_no_end) {
    slowed s;
    start(&s, both, "1", false);
    ds_pace *pace = ds_pace_new(s.plan);
    for (uint32_t t = 0; t < s.plan->n_tasks; t++) cr_expect_eq(ds_pace_due_ps(pace, t), -1);
    ds_pace_free(pace);
    end(&s);
}
