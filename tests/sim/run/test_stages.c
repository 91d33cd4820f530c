/* Stages of a pipeline: busy, idle and bubble, against timelines worked out by hand and the closed
 * form of GPipe. */
#include "tests/support/sim.h"

#include "sim/report/analysis.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <string.h>

#define US INT64_C(1000000)

static void topology(uint32_t n, ds_buf *out) {
    ds_buf_printf(out,
                  "dir 1\ntopology @t {\n  device d[%u] : \"V100-PCIE-16GB\"\n  switch s\n"
                  "  link d[i] -- s : 10 GB/s, 1 us for i in 0..%u\n}\n",
                  n, n);
}

static void make(const char *mesh, uint32_t n, const char *body, sim_case *c, ds_stages *stages) {
    ds_buf text = {0};
    topology(n, &text);
    ds_buf_printf(&text, "%s\nfunc @f(%s\nscenario { program = @f }\n", mesh, body);
    sim_run_text(c, text.text, NULL, false);
    cr_assert_eq(c->status, DS_OK);
    ds_stages_find(c->result, stages);
    ds_buf_deinit(&text);
}

/* Stage 0: 0 to 2, 7 to 11; stage 1: 3 to 6; sends 2 to 3 and 6 to 7. */
static const char there_and_back[] = "%x: f32[8] on @m{pp=0}) {\n"
                                     "  %a = relu(%x) {cost = 2 us}\n"
                                     "  %s = send(%a) to @m{pp=1} {cost = 1 us}\n"
                                     "  %b = relu(%s) {cost = 3 us}\n"
                                     "  %r = send(%b) to @m{pp=0} {cost = 1 us}\n"
                                     "  %c = relu(%r) {cost = 4 us}\n  return\n}";

Test(stages, there_and_back_by_hand) {
    static const char *const meshes[] = {"mesh @m = [pp = 2, dp = 2] on @t",
                                         "mesh @m = [dp = 2, pp = 2] on @t"};
    static const char *const second[] = {"d[2]", "d[1]"};
    for (int i = 0; i < 2; i++) {
        sim_case c;
        ds_stages s;
        make(meshes[i], 4, there_and_back, &c, &s);
        cr_expect_not(s.by_class);
        cr_assert_eq(s.n, 2);
        const ds_stage *a = &s.at[0], *b = &s.at[1];
        cr_expect_eq(a->n_devices, 2);
        cr_expect_eq(b->n_devices, 2);
        cr_expect_eq(a->compute_ps, 6 * US);
        cr_expect_eq(a->exposed_comm_ps, 2 * US);
        cr_expect_eq(a->idle_ps, 3 * US);
        cr_expect_eq(a->first_ps, 0);
        cr_expect_eq(a->last_ps, 11 * US);
        cr_expect_eq(a->bubble_ps, 5 * US);
        cr_expect_eq(b->compute_ps, 3 * US);
        cr_expect_eq(b->exposed_comm_ps, 2 * US);
        cr_expect_eq(b->idle_ps, 6 * US);
        cr_expect_eq(b->first_ps, 3 * US);
        cr_expect_eq(b->last_ps, 6 * US);
        cr_expect_eq(b->bubble_ps, 0);
        cr_expect_eq(s.span_bubble_ps, 5 * US);
        cr_expect_eq(s.makespan_idle_ps, 6 * US);
        cr_expect_str_eq(ds_topo_device_path(c.result->plan->topo, b->device), second[i]);
        /* (2 · 3 + 2 · 6) / (4 · 11) */
        cr_expect_float_eq(c.result->metrics.bubble_fraction, 18.0 / 44, 1e-12);
        ds_stages_deinit(&s);
        sim_free(&c);
    }
}

/* A stage begins with its first compute, and is its busiest device. */
Test(stages, are_their_busiest_device_and_its_work) {
    sim_case c;
    ds_stages s;
    make("mesh @m = [pp = 2, dp = 2] on @t", 4,
         "%x: f32[8] on @m{pp=1}, %y: f32[8] on @t.d[3]) {\n"
         "  %p = permute(%x) over dp {cost = 2 us}\n"
         "  %a = relu(%p) {cost = 3 us}\n"
         "  %b = relu(%y) {cost = 1 us}\n  return\n}",
         &c, &s);
    cr_assert_eq(s.n, 1, "no device of stage 0 is used");
    cr_expect_str_eq(ds_topo_device_path(c.result->plan->topo, s.at[0].device), "d[3]");
    cr_expect_eq(s.at[0].n_devices, 2);
    cr_expect_eq(s.at[0].compute_ps, 4 * US);
    cr_expect_eq(s.at[0].first_ps, 2 * US);
    cr_expect_eq(s.at[0].bubble_ps, 0);
    ds_stages_deinit(&s);
    sim_free(&c);
}

Test(stages, are_classes_without_an_axis_pp) {
    sim_case c;
    ds_stages s;
    make("mesh @m = [dp = 2, tp = 2] on @t", 4,
         "%x: f32[8] on @m, %y: f32[8] on @t.d[3]) {\n"
         "  %a = relu(%x) {cost = 3 us}\n  %b = relu(%y) {cost = 1 us}\n  return\n}",
         &c, &s);
    cr_expect(s.by_class);
    cr_assert_eq(s.n, 2);
    cr_expect_eq(s.at[0].n_devices, 3);
    cr_expect_eq(s.at[0].idle_ps, 1 * US);
    cr_expect_eq(s.makespan_idle_ps, 1 * US);
    cr_expect_eq(s.span_bubble_ps, 0);
    ds_stages_deinit(&s);
    sim_free(&c);
}

/* Forward of all microbatches, then backward of all; a transfer takes 1 ps, the least there is. */
static void gpipe(int p, int m, int f_us, int b_us, ds_buf *out) {
    topology((uint32_t)p, out);
    ds_buf_printf(out, "mesh @m = [pp = %d] on @t\nfunc @f(%%x: f32[8] on @m{pp=0}) {\n", p);
    for (int k = 0; k < m; k++) {
        for (int s = 0; s < p; s++) {
            if (s)
                ds_buf_printf(out, "  %%i%d_%d = send(%%f%d_%d) to @m{pp=%d} {cost = 1 ps}\n", s, k,
                              s - 1, k, s);
            ds_buf_printf(out, "  %%f%d_%d = relu(%%", s, k);
            if (s)
                ds_buf_printf(out, "i%d_%d", s, k);
            else
                ds_buf_put(out, "x");
            ds_buf_printf(out, ") {cost = %d us}\n", f_us);
        }
    }
    for (int k = 0; k < m; k++) {
        for (int s = p - 1; s >= 0; s--) {
            if (s < p - 1)
                ds_buf_printf(out, "  %%o%d_%d = send(%%b%d_%d) to @m{pp=%d} {cost = 1 ps}\n", s, k,
                              s + 1, k, s);
            ds_buf_printf(out, "  %%b%d_%d = relu(%%%c%d_%d) {cost = %d us}\n", s, k,
                          s < p - 1 ? 'o' : 'f', s, k, b_us);
        }
    }
    ds_buf_put(out, "  return\n}\nscenario { program = @f }\n");
}

/* GPipe on p stages: (p - 1)(F + B), here with two transfers of 1 ps besides, whatever the number
 * of microbatches (Huang et al. arXiv:1811.06965). Stage 0 runs from the first to the last moment,
 * the last one from (p - 1) F on without a break, to (p - 1) B before the end. */
Test(stages, bubble_of_gpipe_is_its_closed_form) {
    for (int p = 2; p <= 5; p++) {
        for (int m = 1; m <= 7; m += 2) {
            ds_buf text = {0};
            gpipe(p, m, 3, 5, &text);
            sim_case c;
            sim_run_text(&c, text.text, NULL, false);
            cr_assert_eq(c.status, DS_OK, "%s", text.text);
            ds_stages s;
            ds_stages_find(c.result, &s);
            int64_t bubble = (p - 1) * (8 * US + 2);
            cr_expect_eq(s.n, (uint32_t)p);
            cr_expect_eq(s.span_bubble_ps, bubble, "p %d, m %d", p, m);
            cr_expect_leq(s.makespan_idle_ps, bubble, "p %d, m %d", p, m);
            cr_expect_geq(s.makespan_idle_ps, bubble - 4 * m, "all but exposed transfers");
            cr_expect_eq(s.at[p - 1].bubble_ps, 0);
            cr_expect_eq(s.at[p - 1].first_ps, (p - 1) * (3 * US + 1));
            cr_expect_eq(c.result->run.step_ps, m * 8 * US + bubble);
            cr_expect_float_eq(c.result->metrics.bubble_fraction, (p - 1) / (double)(m + p - 1),
                               1e-5);
            ds_stages_deinit(&s);
            sim_free(&c);
            ds_buf_deinit(&text);
        }
    }
}

/* The reports say the same; a stage's row adds up to the step. */
Test(stages, are_in_the_reports) {
    sim_case c;
    ds_stages s;
    make("mesh @m = [pp = 2, dp = 2] on @t", 4, there_and_back, &c, &s);
    ds_buf text = {0}, json = {0};
    ds_report_summary(c.result, &text);
    cr_expect(strstr(text.text, "\nStages, each by its busiest device\n"), "%s", text.text);
    cr_expect(strstr(text.text, "  span bubble 5 us"));
    cr_expect(strstr(text.text, "  makespan idle 6 us"));
    ds_report_json(c.result, &json);
    json_t *all = json_loads(json.text, 0, NULL), *stage;
    cr_assert(all);
    cr_expect_eq(json_integer_value(json_object_get(all, "span_bubble_ps")), 5 * US);
    cr_expect_eq(json_integer_value(json_object_get(all, "makespan_idle_ps")), 6 * US);
    cr_expect_str_eq(json_string_value(json_object_get(all, "stages_by")), "pp");
    size_t i;
    json_array_foreach(json_object_get(all, "per_stage"), i, stage) {
        static const char *const parts[] = {"compute_ps", "exposed_comm_ps", "idle_ps"};
        int64_t sum = 0;
        for (int k = 0; k < 3; k++) sum += json_integer_value(json_object_get(stage, parts[k]));
        cr_expect_eq(sum, c.result->run.step_ps);
        cr_expect_eq(json_integer_value(json_object_get(stage, "span_bubble_ps")),
                     s.at[i].bubble_ps);
    }
    cr_expect_eq(i, 2);
    json_decref(all);
    ds_buf_deinit(&text);
    ds_buf_deinit(&json);
    ds_stages_deinit(&s);
    sim_free(&c);
}
