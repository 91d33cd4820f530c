/* Several jobs on one cluster: closed forms of two rings over one link, the job alone against the
 * run of a scenario of its own, and folded against unfolded. */
#include "ir/base/rng.h"
#include "sim/report/analysis.h"
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define US INT64_C(1000000)
#define MS (1000 * US)

static void run(sim_case *c, const char *text, const char *settings, bool unfold) {
    sim_run_text(c, text, settings, unfold);
    cr_assert_eq(c->status, DS_OK, "%s", c->err.message);
}

static void expect_near(int64_t got, int64_t want, int64_t within, const char *what) {
    cr_expect(got >= want - within && got <= want + within, "%s: %lld ps, not %lld", what,
              (long long)got, (long long)want);
}

/* a and b each have a device on either side of one link of 10 GB/s; routes take 4 us. An
 * all_reduce of 1 GB over two members sends 1 GB each way, in two steps: 8 us and 100 ms. */
#define ACROSS                                                                                     \
    "dir 1\nparam start = 0, steps = 1, more = 1\n"                                                \
    "topology @pod {\n"                                                                            \
    "  device a[2] : \"A100-SXM4-80GB\", b[2] : \"A100-SXM4-80GB\"\n"                              \
    "  switch left, right\n"                                                                       \
    "  link a[0] -- left : 100 GB/s, 1 us\n  link b[0] -- left : 100 GB/s, 1 us\n"                 \
    "  link a[1] -- right : 100 GB/s, 1 us\n  link b[1] -- right : 100 GB/s, 1 us\n"               \
    "  link left -- right : 10 GB/s, 2 us\n}\n"                                                    \
    "mesh @all = [dp = 4] on @pod\n"                                                               \
    "mesh @a = pick 0..2 of @all [dp = 2]\nmesh @b = pick 2..4 of @all [dp = 2]\n"                 \
    "func @ring(%x: f32[250000000] partial(dp)) -> f32[250000000] {\n"                             \
    "  %y = all_reduce(%x) over dp {algorithm = \"ring\"}\n  return %y\n}\n"

#define TWO                                                                                        \
    ACROSS "scenario { on = @pod\n  jobs {\n"                                                      \
           "    first { program = @ring, mesh = @a, steps = steps }\n"                             \
           "    second { program = @ring, mesh = @b, start = start us, steps = more }\n  }\n}\n"

#define ALONE (100 * MS + 8 * US)

Test(jobs, two_rings_get_half_of_the_link_each) {
    sim_case c;
    run(&c, TWO, NULL, false);
    for (uint32_t j = 0; j < 2; j++) {
        const ds_job_result *job = &c.result->jobs[j];
        expect_near(job->alone_ps, ALONE, 2, "alone");
        expect_near(job->end_ps, 200 * MS + 8 * US, 2, "together");
        cr_expect_eq(job->n_devices, 2);
    }
    /* both ways of left -- right, each by both jobs; nothing else */
    cr_assert_eq(c.result->n_shared, 4);
    const ds_topo *topo = c.result->plan->topo;
    for (uint32_t i = 0; i < 4; i++) {
        const ds_topo_link *link = ds_topo_link_at(topo, c.result->shared[i].link);
        cr_expect_eq(link->bytes_per_s, 10000000000);
        cr_expect_eq(c.result->shared[i].job, i % 2);
    }
    sim_free(&c);
}

/* The second starts after 50 ms: each has the link alone for 50 ms and shares it for 100. */
/* Each job's rate is over its own time, and the wait for a start is the host's fault no more than
 * the devices'. @one's ring of 4 MB takes a few us; @two computes from 1 ms to 11 ms. */
#define STARTS(batch)                                                                              \
    "dir 1\ntopology @c {\n  device g[4] : \"A100-SXM4-80GB\"\n  switch s\n"                       \
    "  link g[i] -- s : 100 GB/s, 1 us for i in 0..4\n}\n"                                         \
    "mesh @all = [dp = 4] on @c\nmesh @a = pick 0..2 of @all [dp = 2]\n"                           \
    "mesh @b = pick 2..4 of @all [dp = 2]\n"                                                       \
    "func @p(%x: f32[64@dp] on @a) -> f32[64@dp] on @a {\n"                                        \
    "  %y = relu(%x) {cost = 2 ms}\n  return %y\n}\n"                                              \
    "func @q(%x: f32[64@dp] on @b) -> f32[64@dp] on @b {\n"                                        \
    "  %y = relu(%x) {cost = 5 ms}\n  return %y\n}\n"                                              \
    "scenario { on = @c\n  jobs {\n    one { program = @p, steps = 3" batch " }\n"                 \
    "    two { program = @q, start = 1 ms, steps = 2, batch = 5 }\n  }\n}\n"

Test(jobs, throughput_and_the_wait_for_a_start) {
    sim_case c;
    run(&c, STARTS(", batch = 3"), NULL, false);
    cr_expect_eq(c.result->run.step_ps, 11 * MS);
    /* 3 steps of 3 samples in 6 ms, 2 of 5 in 10 ms */
    cr_expect_float_eq(c.result->metrics.throughput_per_s, 9 / 6e-3 + 10 / 10e-3, 1e-6, "%g",
                       c.result->metrics.throughput_per_s);
    cr_expect(c.result->counts_samples);
    ds_critical_path path;
    ds_critical_path_find(c.result, &path);
    cr_expect_eq(path.total_ps[DS_TIME_START], MS);
    cr_expect_eq(path.total_ps[DS_TIME_HOST], 0);
    cr_expect_eq(path.total_ps[DS_TIME_COMPUTE], 10 * MS);
    ds_critical_path_deinit(&path);
    ds_causes causes;
    ds_causes_of_class(c.result, c.result->critical, &causes);
    cr_assert_eq(causes.rows.n, 2);
    cr_expect_eq(causes.rows.at[1].kind, DS_TIME_START);
    cr_expect_eq(causes.rows.at[1].ps, MS);
    ds_causes_deinit(&causes);
    sim_free(&c);
    run(&c, STARTS(""), NULL, false); /* one does not say how many samples: steps */
    cr_expect_float_eq(c.result->metrics.throughput_per_s, 3 / 6e-3 + 2 / 10e-3, 1e-6);
    cr_expect_not(c.result->counts_samples);
    sim_free(&c);
}

Test(jobs, an_overlap_of_half) {
    sim_case c;
    run(&c, TWO, "start=50000", false);
    expect_near(c.result->jobs[0].end_ps, 150 * MS, 20 * US, "first");
    expect_near(c.result->jobs[1].end_ps, 200 * MS, 20 * US, "second");
    cr_expect_eq(c.result->jobs[1].start_ps, 50 * MS);
    sim_free(&c);
}

Test(jobs, who_misses_the_other_is_as_fast_as_alone) {
    sim_case c;
    run(&c, TWO, "start=100008 more=2", false);
    const ds_job_result *jobs = c.result->jobs;
    for (uint32_t j = 0; j < 2; j++)
        cr_expect_eq(jobs[j].end_ps - jobs[j].start_ps, jobs[j].alone_ps, "job %u", j);
    expect_near(jobs[1].end_ps, 3 * ALONE, 4, "two steps behind one");
    cr_expect_eq(c.result->run.step_ps, jobs[1].end_ps);
    sim_free(&c);
}

/* ---- steps ---- */

#define UPDATE                                                                                     \
    "dir 1\nparam steps = 1\n"                                                                     \
    "topology @box {\n  device gpu[4] : \"A100-SXM4-80GB\"\n  switch s\n"                          \
    "  link gpu[i] -- s : 100 GB/s, 1 us for i in 0..4\n}\n"                                       \
    "mesh @all = [dp = 4] on @box\nmesh @a = pick 0..2 of @all [dp = 2]\n"                         \
    "mesh @b = pick 2..4 of @all [dp = 2]\n"                                                       \
    "func @step(%w: f32[1000] {role = weight}) -> f32[1000] {\n"                                   \
    "  %g = relu(%w) {cost = 3 us}\n"                                                              \
    "  %r = reshape(%g) {shape = [1000], cost = 5 us, stream = \"x\"}\n"                           \
    "  %w1 = sgd(%w, %r) {cost = 1 us}\n  return %w1\n}\n"                                         \
    "func @idle(%x: f32[8]) -> f32[8] {\n  %y = relu(%x) {cost = 2 us}\n  return %y\n}\n"

/* Each step reads the weight that the one before has updated: 3 + 5 + 1 us a step, in the memory
 * of one; without an update the next step's 2 us only wait for their stream. */
Test(jobs, steps_follow_one_another) {
    sim_case one, three;
    const char *text = UPDATE "scenario { on = @box\n  jobs {\n"
                              "    a { program = @step, mesh = @a, steps = steps }\n"
                              "    b { program = @idle, mesh = @b, start = 4 us, steps = steps }\n"
                              "  }\n}\n";
    run(&one, text, NULL, false);
    run(&three, text, "steps=3", false);
    cr_expect_eq(one.result->jobs[0].end_ps, 9 * US);
    cr_expect_eq(three.result->jobs[0].end_ps, 27 * US);
    cr_expect_eq(three.result->jobs[0].alone_ps, 27 * US);
    cr_expect_eq(three.result->jobs[1].end_ps, 10 * US);
    cr_expect_eq(three.result->jobs[1].alone_ps, 6 * US);
    cr_expect_eq(three.result->mem.classes[0].peak_bytes, one.result->mem.classes[0].peak_bytes);
    cr_expect_eq(three.result->n_shared, 0);
    sim_free(&one);
    sim_free(&three);
}

/* ---- models ---- */

#define MODELS                                                                                     \
    "dir 1\nimport \"topologies/pod-128x8.dir\"\n"                                                 \
    "import \"models/gpt.dir\" as g with layers = 2, hidden = 128, heads = 4, vocab = 256, "       \
    "seq = 32, batch = 16\n"                                                                       \
    "import \"models/mlp.dir\" as m with layers = 3, width = 256, batch = 64\n"                    \
    "mesh @all = [dp = 1024] on @pod\n"                                                            \
    "mesh @a = pick 4..12 of @all [pp = 2, dp = 4]\nmesh @b = pick 12..20 of @all [dp = 8]\n"
#define GPT                                                                                        \
    "model = @g.gpt, mesh = @a, train { optimizer = adam, dtype = bf16 }\n"                        \
    "strategy { pp = 2, dp = 4, microbatches = 2, zero = 1 }\n"
#define MLP                                                                                        \
    "model = @m.mlp, mesh = @b, train { loss = mse, optimizer = sgd }, strategy { dp = 8 }\n"

/* The groups of a cross node 0 and 1, and those of b nodes 1 and 2: they meet at node 1's NICs. */
Test(jobs, alone_is_a_run_of_its_own) {
    sim_case both, a, b;
    run(&both, MODELS "scenario { on = @pod\n jobs { gpt { " GPT " }\n mlp { " MLP " } } }\n", NULL,
        false);
    run(&a, MODELS "scenario { on = @pod\n" GPT "}\n", NULL, false);
    run(&b, MODELS "scenario { on = @pod\n" MLP "}\n", NULL, false);
    const ds_job_result *jobs = both.result->jobs;
    cr_expect_eq(jobs[0].alone_ps, a.result->run.step_ps);
    cr_expect_eq(jobs[1].alone_ps, b.result->run.step_ps);
    cr_expect_eq(jobs[0].samples, 16);
    cr_expect_geq(jobs[0].end_ps, jobs[0].alone_ps);
    cr_expect_geq(jobs[1].end_ps, jobs[1].alone_ps);
    cr_expect_eq(both.result->metrics.op_instances,
                 a.result->metrics.op_instances + b.result->metrics.op_instances);
    cr_expect_eq(both.result->metrics.peak_bytes,
                 a.result->metrics.peak_bytes > b.result->metrics.peak_bytes
                     ? a.result->metrics.peak_bytes
                     : b.result->metrics.peak_bytes);
    sim_free(&both);
    sim_free(&a);
    sim_free(&b);
}

/* Weights, moments and master copies go from step to step: none is left where it was. */
Test(jobs, steps_of_a_pipeline_carry_its_state) {
    sim_case c;
    run(&c, MODELS "scenario { on = @pod\n jobs { gpt { " GPT ", steps = 2 } } }\n", NULL, false);
    const ds_plan *plan = c.result->plan;
    uint32_t states = 0, second = 0;
    for (uint32_t i = 0; i < plan->insts.n; i++) {
        const ds_inst *inst = &plan->insts.at[i];
        const ds_record *r = plan->records.at[inst->record];
        ds_category category =
            r->kind == DS_REC_INPUT ? plan->values.at[inst->first_value].category : DS_CAT_BUFFER;
        states += category == DS_CAT_OPTIMIZER || category == DS_CAT_WEIGHT;
    }
    /* every state is the home of two updates: the second one's alias is the first one */
    for (uint32_t v = 0; v < plan->values.n; v++) {
        const ds_vinst *value = &plan->values.at[v];
        second += value->is_state && plan->values.at[value->alias].is_state &&
                  plan->values.at[value->alias].inst != value->inst;
    }
    cr_expect_geq(second, states, "%u of %u", second, states);
    cr_expect_gt(states, 20);
    cr_expect_leq(c.result->jobs[0].end_ps, c.result->jobs[0].alone_ps);
    sim_free(&c);
}

/* A mesh program beside ranks of their own. */
Test(jobs, ranks_beside_a_mesh) {
    sim_case c;
    run(&c,
        ACROSS "program @p {\n  rank 0 (%x: f32[1000000]) {\n    send(%x) to 1 tag 1\n  }\n"
               "  rank 1 {\n    %y = recv from 0 tag 1 : f32[1000000]\n  }\n}\n"
               "scenario { on = @pod\n jobs { ranks { program = @p, mesh = @a }\n"
               "   ring { program = @ring, mesh = @b } } }\n",
        NULL, false);
    /* 4 MB at half of 10 GB/s behind 4 us, but for the ring's first us: 8 us and 4 us later */
    expect_near(c.result->jobs[0].alone_ps, 404 * US, 2, "alone");
    expect_near(c.result->jobs[0].end_ps, 804 * US, 5 * US, "beside the ring");
    expect_near(c.result->jobs[1].end_ps, ALONE + 400 * US, 5 * US, "the ring");
    sim_free(&c);
}

/* ---- what is refused ---- */

Test(jobs, devices_of_two_jobs_are_refused) {
    sim_case c;
    sim_run_text(&c,
                 ACROSS "scenario { on = @pod\n jobs { x { program = @ring, mesh = @a }\n"
                        "  y { program = @ring, mesh = @a } } }\n",
                 NULL, false);
    cr_assert_eq(c.status, DS_ERR_VALUE);
    cr_expect(strstr(c.err.message, "jobs 'x' and 'y' both use a[0]") != NULL, "%s", c.err.message);
    sim_free(&c);
}

/* ---- folded and unfolded ---- */

/* Jobs of 2 to 8 devices each, in a row over leaves of four. */
static void random_jobs(ds_rng *rng, char *text, size_t n) {
    int n_jobs = 2 + (int)(ds_rng_next(rng) % 3), at = 0;
    int len = snprintf(text, n,
                       "dir 1\ntopology @t {\n  device d[32] : \"A100-SXM4-80GB\"\n"
                       "  switch leaf[8], spine\n"
                       "  link d[i] -- leaf[i / 4] : 25 GB/s, 1 us for i in 0..32\n"
                       "  link leaf[i] -- spine : %d GB/s, 2 us for i in 0..8\n}\n"
                       "mesh @all = [dp = 32] on @t\n"
                       "func @f(%%x: f32[2000000] partial(dp), %%v: f32[4096]) -> (f32[2000000], "
                       "f32[2000000]) {\n"
                       "  %%w = relu(%%v) {cost = 3 us}\n"
                       "  %%y = all_reduce(%%x) over dp {algorithm = \"ring\"}\n"
                       "  %%z = relu(%%y) {cost = 7 us}\n  return %%y, %%z\n}\n",
                       5 + (int)(ds_rng_next(rng) % 40));
    for (int j = 0; j < n_jobs; j++) {
        int size = 2 << ds_rng_next(rng) % 3;
        at += (int)(ds_rng_next(rng) % 2);
        len += snprintf(text + len, n - (size_t)len, "mesh @m%d = pick %d..%d of @all [dp = %d]\n",
                        j, at, at + size, size);
        at += size;
    }
    len += snprintf(text + len, n - (size_t)len, "scenario { on = @t\n  jobs {\n");
    for (int j = 0; j < n_jobs; j++)
        len += snprintf(text + len, n - (size_t)len,
                        "    j%d { program = @f, mesh = @m%d, start = %d us, steps = %d }\n", j, j,
                        (int)(ds_rng_next(rng) % 3) * 200, 1 + (int)(ds_rng_next(rng) % 4));
    snprintf(text + len, n - (size_t)len, "  }\n}\n");
}

Test(jobs, folded_is_unfolded) {
    ds_rng rng = {7};
    uint32_t folds = 0, slowed = 0;
    for (int i = 0; i < 40; i++) {
        char text[4096];
        sim_case folded, unfolded;
        random_jobs(&rng, text, sizeof text);
        run(&folded, text, NULL, false);
        run(&unfolded, text, NULL, true);
        const ds_result *f = folded.result, *u = unfolded.result;
        cr_assert_eq(f->run.step_ps, u->run.step_ps, "%s", text);
        cr_assert_eq(f->metrics.peak_bytes, u->metrics.peak_bytes, "%s", text);
        cr_assert_eq(f->n_shared, u->n_shared);
        folds += f->plan->n_classes < u->plan->n_classes;
        for (uint32_t j = 0; j < f->n_jobs; j++) {
            cr_assert_eq(f->jobs[j].end_ps, u->jobs[j].end_ps, "job %u of\n%s", j, text);
            cr_assert_eq(f->jobs[j].alone_ps, u->jobs[j].alone_ps, "job %u of\n%s", j, text);
            slowed += f->jobs[j].end_ps - f->jobs[j].start_ps > f->jobs[j].alone_ps;
        }
        sim_free(&folded);
        sim_free(&unfolded);
    }
    cr_expect_gt(folds, 10, "%u fold", folds);
    cr_expect_gt(slowed, 20, "%u jobs are slowed", slowed);
}
