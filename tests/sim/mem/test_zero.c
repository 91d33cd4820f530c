/* ZeRO in time: how many layers are gathered at once, and what communication is behind what.
 *
 * An MLP of L layers, each with two square weights of S bytes, at a batch so large that a layer's
 * work takes longer than its communication. */
#include "tests/support/sim.h"
#include "tests/support/step.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LAYERS 8
#define WIDTH  2048
#define S      ((int64_t)WIDTH * WIDTH * 2)

static const char loops[] =
    "dir 1\n"
    "param layers = 8, width = 2048, batch = 65536, zero = 3, m = 1, dp = 4, group = dp\n"
    "param prefetch = 1\n"
    "topology @box {\n  device gpu[4] : \"A100-SXM4-80GB\"\n  switch sw\n"
    "  link gpu[i] -- sw : 300 GB/s, 1 us for i in 0..4\n}\n"
    "func @mlp(%x: f16[batch@dp, width]) -> f16[batch@dp, width] {\n"
    "  %y = for l in 0..layers carry (%h: f16[batch@dp, width] = %x) {\n"
    "    weight %u : f16[width, width]\n"
    "    weight %v : f16[width, width]\n"
    "    %a = matmul(%h, %u)\n"
    "    %b = relu(%a)\n"
    "    %c = matmul(%b, %v)\n"
    "    yield %c\n"
    "  }\n"
    "  return %y\n"
    "}\n"
    "scenario {\n  model = @mlp\n  on = @box\n"
    "  train { loss = mse, optimizer = adam }\n"
    "  strategy { dp = dp, zero = zero, zero_group = group, microbatches = m,\n"
    "             prefetch = prefetch }\n}\n";

/* The same without loops: four weights of S bytes, each more than a bucket. */
static const char straight[] =
    "dir 1\n"
    "param width = 2048, batch = 65536, zero = 3, m = 1, dp = 4, prefetch = 1\n"
    "topology @box {\n  device gpu[4] : \"A100-SXM4-80GB\"\n  switch sw\n"
    "  link gpu[i] -- sw : 300 GB/s, 1 us for i in 0..4\n}\n"
    "func @mlp(%x: f16[batch@dp, width]) -> f16[batch@dp, width] {\n"
    "  weight %u : f16[width, width]\n  weight %v : f16[width, width]\n"
    "  weight %w : f16[width, width]\n  weight %p : f16[width, width]\n"
    "  %a = matmul(%x, %u)\n  %b = matmul(%a, %v)\n"
    "  %c = matmul(%b, %w)\n  %d = matmul(%c, %p)\n"
    "  return %d\n"
    "}\n"
    "scenario {\n  model = @mlp\n  on = @box\n"
    "  train { loss = mse, optimizer = adam }\n"
    "  strategy { dp = dp, zero = zero, microbatches = m, prefetch = prefetch,\n"
    "             bucket_size = 1 MB }\n}\n";

static void simulate(sim_case *c, const char *text, const char *settings, ds_pass_id last) {
    step_case step;
    step_make(&step, text, settings, last);
    cr_assert_eq(step.status, DS_OK, "%s: %s", settings, step.err.message);
    char *program = step_text(&step);
    sim_run_text(c, program, NULL, false);
    cr_assert_eq(c->status, DS_OK, "%s", settings);
    cr_assert_eq(c->result->plan->n_classes, 1, "all devices are alike");
    free(program);
    step_free(&step);
}

static const char *label_of(const sim_case *c, uint32_t value) {
    const ds_plan *plan = c->result->plan;
    return plan->records.at[plan->insts.at[plan->values.at[value].inst].record]->label;
}

/* The most bytes that gathered weights take at once. */
static int64_t gathered_peak(const sim_case *c) {
    const ds_mem_class *mem = &c->result->mem.classes[0];
    int64_t now = 0, peak = 0;
    for (uint32_t i = 0; i < mem->n_events; i++) {
        if (strcmp(label_of(c, mem->events[i].value), "all_gather") != 0) continue;
        now += mem->events[i].delta_bytes;
        if (now > peak) peak = now;
    }
    cr_expect_eq(now, 0, "what is gathered is given back");
    return peak;
}

static int64_t peak_of(const char *text, const char *settings, ds_pass_id last) {
    sim_case c;
    simulate(&c, text, settings, last);
    int64_t peak = gathered_peak(&c);
    sim_free(&c);
    return peak;
}

Test(zero, prefetch_bounds_the_gathered_layers) {
    for (int m = 1; m <= 2; m++)
        for (int k = 0; k <= 3; k++) {
            char settings[64];
            snprintf(settings, sizeof settings, "prefetch=%d m=%d", k, m);
            int64_t peak = peak_of(loops, settings, DS_PASS_OVERLAP);
            cr_expect_eq(peak, (k + 1) * 2 * S, "%s: %g layers", settings,
                         (double)peak / (2.0 * S));
        }
}

Test(zero, groups_gather_no_more) {
    cr_expect_eq(peak_of(loops, "prefetch=1 group=2", DS_PASS_OVERLAP), 2 * 2 * S);
}

Test(zero, without_loops_a_weight_is_a_unit) {
    for (int k = 0; k <= 2; k++) {
        char settings[64];
        snprintf(settings, sizeof settings, "prefetch=%d", k);
        int64_t peak = peak_of(straight, settings, DS_PASS_OVERLAP);
        cr_expect_eq(peak, (k + 1) * S, "%s: %g weights", settings, (double)peak / (double)S);
    }
}

/* What the pass is for. */
Test(zero, without_overlap_all_layers_are_gathered) {
    cr_expect_geq(peak_of(loops, "", DS_PASS_SHARD), LAYERS * 2 * S);
}

/* ---- what runs beside what ---- */

/* Tasks of that label, in the order of their starts. */
static uint32_t tasks_of(const sim_case *c, const char *label, uint32_t *out, uint32_t max) {
    const ds_plan *plan = c->result->plan;
    const ds_run *run = &c->result->run;
    uint32_t n = 0;
    for (uint32_t t = 0; t < plan->n_tasks; t++) {
        if (strcmp(ds_plan_task_record(plan, t)->label, label) != 0) continue;
        cr_assert_lt(n, max);
        uint32_t at = n++;
        for (; at && run->start_ps[out[at - 1]] > run->start_ps[t]; at--) out[at] = out[at - 1];
        out[at] = t;
    }
    return n;
}

/* The compute stream never waits while task `t` runs. */
static void expect_hidden(const sim_case *c, uint32_t t, const char *what) {
    const ds_plan *plan = c->result->plan;
    const ds_run *run = &c->result->run;
    int64_t busy = 0;
    for (uint32_t k = 0; k < plan->n_tasks; k++) {
        if (plan->task_activity[k] != DS_NONE) continue;
        int64_t lo = run->start_ps[k] > run->start_ps[t] ? run->start_ps[k] : run->start_ps[t];
        int64_t hi = run->end_ps[k] < run->end_ps[t] ? run->end_ps[k] : run->end_ps[t];
        if (hi > lo) busy += hi - lo;
    }
    cr_expect_eq(busy, run->end_ps[t] - run->start_ps[t], "%s: %lld of %lld ps hidden", what,
                 (long long)busy, (long long)(run->end_ps[t] - run->start_ps[t]));
}

/* A turn's gradients are reduced beside the next turn's backward: only the last turn's are not. */
Test(zero, gradients_are_reduced_beside_the_backward) {
    static const char *const labels[] = {"all_reduce", NULL, "reduce_scatter", "reduce_scatter"};
    for (int zero = 0; zero <= 3; zero++) {
        char settings[64];
        uint32_t tasks[64];
        sim_case c;
        if (!labels[zero]) continue;
        snprintf(settings, sizeof settings, "zero=%d", zero);
        simulate(&c, loops, settings, DS_PASS_OVERLAP);
        uint32_t n = tasks_of(&c, labels[zero], tasks, 64);
        cr_assert_eq(n, LAYERS + (zero == 0), "one a turn, and the loss: %u", n);
        for (uint32_t i = 0; i + 1 < LAYERS; i++) expect_hidden(&c, tasks[i], settings);
        sim_free(&c);
    }
}

/* With prefetch = 1 all gathers but the first run beside the layer before; with 0 none does. */
Test(zero, weights_are_gathered_beside_the_layer_before) {
    uint32_t tasks[64];
    sim_case c;
    simulate(&c, loops, "prefetch=1", DS_PASS_OVERLAP);
    uint32_t n = tasks_of(&c, "all_gather", tasks, 64);
    cr_expect_eq(n, 2 * LAYERS, "one a turn, forward and backward");
    for (uint32_t i = 1; i < n; i++) expect_hidden(&c, tasks[i], "prefetch=1");
    int64_t ahead = c.result->run.step_ps;
    sim_free(&c);

    simulate(&c, loops, "prefetch=0", DS_PASS_OVERLAP);
    n = tasks_of(&c, "all_gather", tasks, 64);
    int64_t exposed = 0;
    for (uint32_t i = 1; i < n; i++)
        exposed += c.result->run.end_ps[tasks[i]] - c.result->run.start_ps[tasks[i]];
    /* Beside a gather of the backward pass the reduction of the turn before runs on, and the
     * gradients of its weights are still computed: at least the forward ones are exposed. */
    cr_expect_geq(c.result->run.step_ps, ahead + exposed / 2 - exposed / n, "%lld, %lld, %lld",
                  (long long)c.result->run.step_ps, (long long)ahead, (long long)exposed);
    sim_free(&c);
}
