/* Periods of the schedule that are cut out of the timeline: peaks and accounts of every class are
 * still those of the whole step, whether memory grows over a period, is given back, or stays as it
 * is; and what a step takes grows by the same for each microbatch once it is in a period. */
#include "ir/lang/lang.h"
#include "ir/verify/verify.h"
#include "search/compose/compose.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

/* Sends between nodes load links, so that items are events in time; tp stays within a node. */
static const char text[] =
    "dir 1\n"
    "topology @dgx { device gpu[2] : \"A100-SXM4-80GB\"\n  switch nvswitch\n  nic nic[2]\n"
    "  link gpu[i] -- nvswitch : 300 GB/s, 1.2 us for i in 0..2\n"
    "  link gpu[i] -- nic[i] : 24 GB/s, 1 us for i in 0..2 }\n"
    "topology @pod { node n[4] : @dgx\n  switch fabric\n"
    "  link n[i].nic[j] -- fabric : 25 GB/s, 2 us for i in 0..4, j in 0..2 }\n"
    "param tp = 2, pp = 4, microbatches = 5, layers = 4, seq = 256\n"
    "param schedule = \"1f1b\", virtual_stages = 1, order = \"pp dp cp tp\"\n"
    "import \"models/megatron.dir\" as model with layers = layers, hidden = 256, heads = 8,"
    " seq = seq, vocab = 512, batch = microbatches\n"
    "scenario { model = @model.gpt, on = @pod, profile = \"A100-SXM4-80GB\"\n"
    "  train { loss = none, optimizer = adam, dtype = f16, grad_dtype = f32 }\n"
    "  strategy { dp = 1, tp = tp, pp = pp, microbatches = microbatches, order = order,\n"
    "    schedule = schedule, virtual_stages = virtual_stages, sp = true } }\n";

typedef struct step {
    int pp, tp, layers, chunks;
    const char *schedule, *order;
} step;

typedef struct bench {
    ds_unit *unit;
    ds_profiles *profiles;
    ds_plan_ground *ground;
    ds_composer *composer;
} bench;

static void open_bench(bench *b) {
    ds_error err;
    ds_diags diags;
    ds_diags_init(&diags);
    cr_assert_eq(
        ds_load_text(DS_SOURCE_DIR "/scenarios/test.dir", text, strlen(text), NULL, &b->unit, &err),
        DS_OK, "%s", err.message);
    cr_assert_eq(ds_verify(b->unit, &diags), DS_OK);
    ds_diags_deinit(&diags);
    cr_assert_eq(ds_profiles_load(DS_BUILD_PROFILES, &b->profiles, &err), DS_OK);
    b->ground = ds_plan_ground_new();
    b->composer = ds_composer_new(b->profiles);
}

static void close_bench(bench *b) {
    ds_composer_free(b->composer);
    ds_plan_ground_free(b->ground);
    ds_profiles_free(b->profiles);
    ds_unit_free(b->unit);
}

/* `result` NULL: it is not simulated. */
static void run(bench *b, const step *s, int m, ds_composed *out, ds_result **result) {
    char number[5][16];
    const int values[5] = {s->pp, s->tp, s->layers, s->chunks, m};
    static const char *const names[5] = {"pp", "tp", "layers", "virtual_stages", "microbatches"};
    ds_setting settings[7] = {{"schedule", s->schedule}, {"order", s->order}};
    for (int i = 0; i < 5; i++) {
        snprintf(number[i], sizeof number[i], "%d", values[i]);
        settings[2 + i] = (ds_setting){names[i], number[i]};
    }
    ds_binding binding;
    ds_error err;
    const char *why;
    ds_sim_options options = {.cost_mode = DS_COST_FITTED, .trust_passes = true};
    cr_assert_eq(ds_bind(b->unit, settings, 7, &binding, &err), DS_OK, "%s", err.message);
    cr_assert_eq(ds_sim_options_read(&binding, &options, &err), DS_OK);
    if (result)
        cr_assert_eq(ds_simulate(&binding, b->profiles, &options, result, &err), DS_OK, "%s",
                     err.message);
    options.ground = b->ground;
    cr_assert_eq(ds_composer_run(b->composer, &binding, &options, out, &why, &err), DS_OK, "%s",
                 err.message);
    cr_assert_null(why, "%s", why);
}

/* Every account of every class; returns how many executions were cut out. */
static uint64_t hold_to_simulation(bench *b, const step *s, int m) {
    ds_composed x;
    ds_result *r;
    run(b, s, m, &x, &r);
    cr_expect_eq(x.metrics.step_ps, r->run.step_ps, "%s, %d: step %lld, not %lld", s->schedule, m,
                 (long long)x.metrics.step_ps, (long long)r->run.step_ps);
    cr_expect_eq(x.metrics.peak_bytes, r->metrics.peak_bytes, "%s, %d: peak %lld, not %lld",
                 s->schedule, m, (long long)x.metrics.peak_bytes, (long long)r->metrics.peak_bytes);
    cr_expect_float_eq(x.metrics.bubble_fraction, r->metrics.bubble_fraction, 1e-12, "%s, %d",
                       s->schedule, m);
    cr_expect_float_eq(x.metrics.mfu, r->metrics.mfu, 1e-12 * r->metrics.mfu, "%s, %d", s->schedule,
                       m);
    cr_assert_eq(x.n_classes, r->plan->n_classes);
    for (uint32_t c = 0; c < x.n_classes; c++) {
        const ds_composed_class *own = &x.classes[c];
        cr_expect_eq(own->compute_ps, r->accounts[c].compute_ps, "%s, %d: class %u, compute",
                     s->schedule, m, c);
        cr_expect_eq(own->exposed_comm_ps, r->accounts[c].exposed_comm_ps,
                     "%s, %d: class %u, exposed %lld, not %lld", s->schedule, m, c,
                     (long long)own->exposed_comm_ps, (long long)r->accounts[c].exposed_comm_ps);
        cr_expect_eq(own->idle_ps, r->accounts[c].idle_ps, "%s, %d: class %u, idle", s->schedule, m,
                     c);
    }
    uint64_t n = x.n_repeated;
    ds_composed_deinit(&x);
    ds_result_free(r);
    return n;
}

static const step steps[] = {
    {4, 2, 4, 1, "1f1b", "pp dp cp tp"},          {4, 2, 8, 2, "interleaved", "pp dp cp tp"},
    {4, 2, 4, 1, "gpipe", "pp dp cp tp"},         {4, 2, 8, 2, "breadth-first", "pp dp cp tp"},
    {4, 2, 4, 1, "eager-1f1b", "pp dp cp tp"},    {4, 2, 4, 1, "zb-h1", "pp dp cp tp"},
    {2, 4, 4, 1, "1f1b", "pp dp cp tp"},          {2, 4, 4, 1, "gpipe", "tp dp cp pp"},
    {2, 4, 8, 2, "breadth-first", "tp dp cp pp"},
};
enum { N_STEPS = sizeof steps / sizeof *steps };

/* Forward items of gpipe and breadth-first leave more behind with each period, backward ones take
 * it away; the others give back what they take. */
Test(compose_period, whatever_memory_does) {
    bench b;
    open_bench(&b);
    int n_cut = 0;
    for (int i = 0; i < N_STEPS; i++)
        for (int m = 24; m <= 28; m += 4) n_cut += hold_to_simulation(&b, &steps[i], m) > 0;
    cr_expect_eq(n_cut, 2 * N_STEPS, "something was cut out of %d of %d steps", n_cut, 2 * N_STEPS);
    close_bench(&b);
}

/* 1F1B keeps no more microbatches than there are stages; in its period every further microbatch
 * computes as long as the one before, to the picosecond. */
Test(compose_period, many_more_microbatches) {
    bench b;
    open_bench(&b);
    ds_composed few, more, most;
    run(&b, &steps[0], 64, &few, NULL);
    run(&b, &steps[0], 128, &more, NULL);
    run(&b, &steps[0], 256, &most, NULL);
    for (uint32_t c = 0; c < few.n_classes; c++) {
        cr_expect_eq(most.classes[c].compute_ps - more.classes[c].compute_ps,
                     2 * (more.classes[c].compute_ps - few.classes[c].compute_ps), "class %u", c);
        int64_t inputs = (most.classes[c].peak_bytes - more.classes[c].peak_bytes) -
                         2 * (more.classes[c].peak_bytes - few.classes[c].peak_bytes);
        cr_expect_eq(inputs, 0, "class %u", c); /* only the batch's own input grows */
    }
    cr_expect_gt(most.n_repeated, more.n_repeated + 2 * 4 * 100);
    ds_composed_deinit(&few);
    ds_composed_deinit(&more);
    ds_composed_deinit(&most);
    close_bench(&b);
}
