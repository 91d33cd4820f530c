/* Models run: what `train` and `strategy` ask for is made by passes and simulated. Times and bytes
 * by hand from the roofline (no profile) and the links. */
#include "tests/support/sim.h"

#include "ir/base/str.h"
#include "sim/cost/cost.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define LAYERS 4
#define WIDTH  INT64_C(1024)
#define BATCH  INT64_C(8192)
#define WEIGHT (4 * WIDTH * WIDTH) /* bytes of one */
#define GB_S   100                 /* of a link */

static const char HEAD[] =
    "dir 1\n"
    "param layers = 4, width = 1024, batch = 8192, dp = 4, tp = 1, zero = 0, micro = 1\n"
    "topology @t {\n"
    "  device d[8] : \"A100-SXM4-80GB\"\n"
    "  switch s\n"
    "  link d[i] -- s : 100 GB/s, 1 us for i in 0..8\n"
    "}\n"
    "func @mlp(%x: f32[batch@dp, width]) -> f32[batch@dp, width] {\n"
    "  %y = for l in 0..layers carry (%h = %x) {\n"
    "    weight %w : f32[width, width]\n"
    "    %z = matmul(%h, %w)\n"
    "    %a = relu(%z)\n"
    "    yield %a\n"
    "  }\n"
    "  return %y\n"
    "}\n"
    "func @pair(%x: f32[batch@dp, width]) -> f32[batch@dp, width] {\n"
    "  weight %u : f32[width, width@tp]\n"
    "  weight %v : f32[width@tp, width]\n"
    "  %a = matmul(%x, %u)\n"
    "  %b = relu(%a)\n"
    "  %c = matmul(%b, %v)\n"
    "  return %c\n"
    "}\n";

#define STRATEGY "  strategy { dp = dp, tp = tp, zero = zero, microbatches = micro }\n"

static void run(sim_case *c, const char *model, const char *train, const char *more,
                const char *settings) {
    char text[4096];
    snprintf(text, sizeof text, "%sscenario {\n  model = @%s\n  on = @t\n  train %s\n%s}\n", HEAD,
             model, train, more);
    sim_run_text(c, text, settings, false);
}

/* Duration of a product of 2·m·k·n FLOPs at the peak, rounded up as rooflines are. */
static int64_t product_ps(const sim_case *c, int64_t m, int64_t k, int64_t n) {
    const ds_plan *plan = c->result->plan;
    double peak = ds_profiles_kind(plan->profiles, plan->classes[0].kind)->peak_flop_per_s[DS_F32];
    return (int64_t)ceil(2.0 * (double)m * (double)k * (double)n / peak * 1e12);
}

/* A ring of n: 2 (n−1) steps over two links of 1 us, 2 (n−1)/n of the bytes through each link. */
static int64_t ring_ps(int64_t n, int64_t bytes) {
    return 2 * (n - 1) * 2000000 + (2 * (n - 1) * bytes / n) * (1000 / GB_S);
}

typedef struct totals {
    int64_t n_products, product_ps;
    int64_t n_reduces, reduced_bytes, reduce_ps;
    int64_t n_comm;
} totals;

/* All tasks of class 0. */
static totals add_up(const sim_case *c) {
    const ds_plan *plan = c->result->plan;
    totals sum = {0};
    for (uint32_t t = 0; t < plan->n_tasks; t++) {
        if (plan->task_class[t]) continue;
        const ds_record *r = ds_plan_task_record(plan, t);
        int64_t ps = c->result->run.end_ps[t] - c->result->run.start_ps[t];
        if (plan->task_activity[t] != DS_NONE) sum.n_comm++;
        if (r->op->code == DS_OP_MATMUL || r->op->code == DS_OP_EINSUM) {
            sum.n_products++;
            sum.product_ps += ps;
        } else if (r->op->code == DS_OP_ALL_REDUCE) {
            sum.n_reduces++;
            sum.reduced_bytes += plan->activities[plan->task_activity[t]].group->bytes;
            sum.reduce_ps += ps;
        }
    }
    return sum;
}

/* The time of class 0 in ops of one kind. */
static int64_t code_ps(const sim_case *c, ds_opcode code) {
    int64_t sum = 0;
    for (uint32_t t = 0; t < c->result->plan->n_tasks; t++)
        if (!c->result->plan->task_class[t] &&
            ds_plan_task_record(c->result->plan, t)->op->code == code)
            sum += c->result->run.end_ps[t] - c->result->run.start_ps[t];
    return sum;
}

/* Three products a layer; the gradients and the loss, 4 bytes, are reduced. */
Test(run_model, data_parallel_step) {
    sim_case c;
    run(&c, "mlp", "{ loss = mse, optimizer = sgd }", STRATEGY "  name = \"x\"\n", NULL);
    cr_assert_eq(c.status, DS_OK);
    totals sum = add_up(&c);
    cr_expect_eq(c.result->plan->n_classes, 1);
    cr_expect_eq(c.result->plan->classes[0].n_devices, 4);
    cr_expect_eq(sum.n_products, 3 * LAYERS, "that of the first layer's input among them");
    cr_expect_eq(sum.product_ps, sum.n_products * product_ps(&c, BATCH / 4, WIDTH, WIDTH));
    cr_expect_eq(sum.reduced_bytes, LAYERS * WEIGHT + 4);
    cr_expect_eq(sum.n_reduces, LAYERS + 1);
    sim_free(&c);
}

/* The gradient of layer l is reduced while those of the layers below are computed. SGD begins with
 * the first layer, whose gradient is the last: its all_reduce is what nothing hides. The loss is
 * reduced beside SGD. */
Test(run_model, gradients_are_reduced_under_the_backward_pass) {
    sim_case c;
    run(&c, "mlp", "{ loss = mse, optimizer = sgd }", STRATEGY, NULL);
    cr_assert_eq(c.status, DS_OK);
    int64_t one = ring_ps(4, WEIGHT);
    cr_assert_lt(one, 2 * product_ps(&c, BATCH / 4, WIDTH, WIDTH), "a layer hides an all_reduce");
    const ds_account *a = &c.result->accounts[0];
    totals sum = add_up(&c);
    cr_expect_eq(a->exposed_comm_ps, one);
    cr_expect_eq(a->hidden_comm_ps, sum.reduce_ps - one);
    cr_expect_geq(a->hidden_comm_ps, (LAYERS - 1) * one);
    cr_expect_eq(a->idle_ps, 0);
    cr_expect_eq(c.result->run.step_ps, a->compute_ps + one);
    sim_free(&c);
}

/* ZeRO 1 likewise, with half a ring each to scatter a gradient and to gather a new weight. The last
 * scatter and the gathers come after the backward pass, with late_reduce all scatters. Updates but
 * the first run under the gathers; with late_reduce each update waits for its scatter, and the
 * gather and all later traffic for the update. The loss is reduced last. */
Test(run_model, zero_1_scatters_under_the_backward_pass) {
    static const char *const strategies[] = {
        "  strategy { dp = dp, zero = 1 }\n",
        "  strategy { dp = dp, zero = 1, late_reduce = true }\n",
        "  strategy { dp = dp, zero = 2 }\n"};
    int64_t exposed_ps[3], step_ps[3];
    int64_t half = ring_ps(4, WEIGHT) / 2, update = 0, loss = 0;
    for (int i = 0; i < 3; i++) {
        sim_case c;
        run(&c, "mlp", "{ loss = mse, optimizer = momentum }", strategies[i], NULL);
        cr_assert_eq(c.status, DS_OK);
        update = code_ps(&c, DS_OP_MOMENTUM) / LAYERS;
        loss = code_ps(&c, DS_OP_ALL_REDUCE);
        exposed_ps[i] = c.result->accounts[0].exposed_comm_ps;
        step_ps[i] = c.result->run.step_ps;
        cr_expect_eq(step_ps[i], c.result->accounts[0].compute_ps + exposed_ps[i]);
        sim_free(&c);
    }
    cr_expect_eq(exposed_ps[0], half + LAYERS * half - (LAYERS - 1) * update + loss);
    cr_expect_eq(exposed_ps[1], LAYERS * 2 * half + loss);
    cr_expect_eq(step_ps[2], step_ps[0], "one microbatch");
}

/* Megatron's pair: no communication between column and row, one all_reduce after. */
Test(run_model, tensor_parallel_forward) {
    sim_case c;
    run(&c, "pair", "= off", STRATEGY, "dp=1 tp=8");
    cr_assert_eq(c.status, DS_OK);
    totals sum = add_up(&c);
    cr_expect_eq(sum.n_products, 2);
    cr_expect_eq(sum.product_ps, 2 * product_ps(&c, BATCH, WIDTH, WIDTH / 8));
    cr_expect_eq(sum.n_comm, 1);
    cr_expect_eq(sum.reduced_bytes, 4 * BATCH * WIDTH);
    cr_expect_eq(sum.reduce_ps, ring_ps(8, 4 * BATCH * WIDTH));
    cr_expect_eq(c.result->accounts[0].exposed_comm_ps, sum.reduce_ps);
    sim_free(&c);
}

Test(run_model, without_train_and_strategy_one_device_goes_forward) {
    sim_case c;
    run(&c, "mlp", "= off", "", NULL);
    cr_assert_eq(c.status, DS_OK);
    totals sum = add_up(&c);
    cr_expect_eq(sum.n_products, LAYERS);
    cr_expect_eq(sum.n_comm, 0);
    cr_expect_eq(c.result->plan->classes[0].n_devices, 1);
    cr_expect_eq(c.result->model_flop, 2.0 * LAYERS * (double)(BATCH * WIDTH * WIDTH));
    sim_free(&c);
}

/* MFU = 3 · forward FLOPs / (devices · peak · step), also where tensor parallelism does work twice
 * (@mlp has nothing to split over tp). */
Test(run_model, mfu_counts_what_the_model_needs) {
    for (int tp = 1; tp <= 2; tp++) {
        sim_case c;
        run(&c, "mlp", "{ loss = mse, optimizer = adam }", STRATEGY, tp == 1 ? "tp=1" : "tp=2");
        cr_assert_eq(c.status, DS_OK);
        const ds_result *r = c.result;
        double flop = 3 * 2.0 * LAYERS * (double)(BATCH * WIDTH * WIDTH);
        double peak =
            ds_profiles_kind(r->plan->profiles, r->plan->classes[0].kind)->peak_flop_per_s[DS_F32];
        double wanted = flop / (4 * tp * peak * (double)r->run.step_ps * 1e-12);
        cr_expect_eq(r->model_flop, flop);
        cr_expect_float_eq(r->metrics.mfu, wanted, 1e-9 * wanted);
        cr_expect_float_eq(r->useful, 1.0 / tp, 1e-9);
        sim_free(&c);
    }
}

/* Frozen weights have no gradient: 4 FLOPs a weight and token, not 6. Attention has no weights: 3
 * times its forward pass, 2 h of the causal half of s * s pairs. Documents of a quarter of a sequence
 * have a quarter of the pairs. */
Test(run_model, mfu_of_adapters_leaves_out_gradients_of_weights) {
    const double s = 2048, b = 4, l = 2, h = 512, f = 1024, v = 1000;
    const double weights = l * (4 * h * h + 3 * h * f) + v * h, attention = l * 2 * b * s * s * h;
    static const char text[] =
        "dir 1\nimport \"models/llama.dir\" with layers = 2, hidden = 512, heads = 8, kv_heads = "
        "8, "
        "ffn = 1024, vocab = 1000, seq = 2048, batch = 4\n"
        "topology @t { device d[1] : \"A100-SXM4-80GB\" }\n"
        "scenario {\n  model = @llama\n  on = @t\n  train { optimizer = sgd, lora_rank = 8%s }\n"
        "  strategy { microbatches = 2 }\n}\n";
    for (int packed = 0; packed < 2; packed++) {
        char all[1024];
        sim_case c;
        snprintf(all, sizeof all, text, packed ? ", lengths = [\"512\"]" : "");
        sim_run_text(&c, all, NULL, false);
        cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
        double wanted = 4 * b * s * weights + 3 * attention / (packed ? 4 : 1);
        cr_expect_float_eq(c.result->model_flop, wanted, 1e-9 * wanted, "%.17g, not %.17g",
                           c.result->model_flop, wanted);
        sim_free(&c);
    }
}

/* Mixtral with a quarter more room than tokens need: MFU counts a token's two experts, so 6 FLOPs a
 * weight that a token uses, tables of words apart, and 2 (forward) of the causal half of scores and
 * sums; padding is a quarter of the experts' work. In one microbatch and in four. */
Test(run_model, mfu_leaves_out_the_padding_of_experts) {
    const double s = 2048, b = 4, l = 2, h = 512, f = 1024, v = 1000, e = 8;
    double attention = l * 2 * b * s * s * h;
    double weights = l * (2 * h * h + 2 * h * h / 4 + h * e + 2 * 3 * h * f) + v * h;
    double wanted = 3 * (2 * b * s * weights + attention);
    double padding = 3 * 2 * b * s * l * 2 * 3 * h * f / 4;
    static const char text[] =
        "dir 1\nimport \"models/mixtral.dir\" with layers = 2, hidden = 512, heads = 8, "
        "kv_heads = 2, ffn = 1024, vocab = 1000, seq = 2048\n"
        "param micro = 1\n"
        "topology @t { device d[1] : \"A100-SXM4-80GB\" }\n"
        "scenario {\n  model = @mixtral\n  on = @t\n  train { optimizer = sgd }\n"
        "  strategy { microbatches = micro }\n}\n";
    for (int micro = 1; micro <= 4; micro *= 4) {
        sim_case c;
        sim_run_text(&c, text, micro == 1 ? "micro=1" : "micro=4", false);
        cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
        const ds_result *r = c.result;
        double peak =
            ds_profiles_kind(r->plan->profiles, r->plan->classes[0].kind)->peak_flop_per_s[DS_F32];
        double mfu = wanted / (peak * (double)r->run.step_ps * 1e-12);
        cr_expect_float_eq(r->model_flop, wanted, 1e-9 * wanted);
        cr_expect_float_eq(r->padding_flop, padding, 1e-9 * padding);
        cr_expect_float_eq(r->metrics.mfu, mfu, 1e-9 * mfu, "%.17g, not %.17g", r->metrics.mfu,
                           mfu);
        sim_free(&c);
    }
}

Test(run_model, samples_are_the_models_batch) {
    static const struct {
        const char *more, *settings;
        int64_t samples;
    } cases[] = {{STRATEGY, NULL, BATCH},
                 {STRATEGY, "micro=4", BATCH},
                 {STRATEGY "  batch = 7\n", "micro=2", 7}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sim_case c;
        run(&c, "mlp", "{ loss = mse, optimizer = sgd }", cases[i].more, cases[i].settings);
        cr_assert_eq(c.status, DS_OK);
        cr_expect_eq(c.result->plan->samples, cases[i].samples);
        cr_expect_float_eq(c.result->metrics.throughput_per_s,
                           (double)cases[i].samples / ((double)c.result->run.step_ps * 1e-12),
                           1e-6);
        sim_free(&c);
    }
}

/* P parameters: 4 P of weights and 8 P of Adam's moments are there from the start, and the update
 * makes no second copy of them; ZeRO divides its share by dp, weights gathered after the update
 * go back into their places. The sums of microbatches are gradients. */
Test(run_model, states_are_updated_in_place) {
    for (int zero = 0; zero <= 3; zero++)
        for (int micro = 1; micro <= 2; micro++) {
            sim_case c;
            char settings[64];
            snprintf(settings, sizeof settings, "zero=%d micro=%d", zero, micro);
            run(&c, "mlp", "{ loss = mse, optimizer = adam }", STRATEGY, settings);
            cr_assert_eq(c.status, DS_OK);
            const ds_mem_class *m = &c.result->mem.classes[0];
            int64_t p = LAYERS * WEIGHT, weights = zero == 3 ? p / 4 : p;
            cr_expect_eq(m->input_by_category[DS_CAT_WEIGHT], weights, "%s", settings);
            cr_expect_eq(m->most_by_category[DS_CAT_WEIGHT], weights, "%s", settings);
            cr_expect_eq(m->input_by_category[DS_CAT_OPTIMIZER], zero ? 2 * p / 4 : 2 * p, "%s",
                         settings);
            cr_expect_eq(m->most_by_category[DS_CAT_OPTIMIZER], zero ? 2 * p / 4 : 2 * p, "%s",
                         settings);
            bool parts = zero >= 2 || (zero == 1 && micro == 1);
            cr_expect_geq(m->most_by_category[DS_CAT_GRADIENT], parts ? p / 4 : p, "%s", settings);
            if (zero < 3) cr_expect_eq(m->most_by_category[DS_CAT_BUFFER], 0, "%s", settings);
            int64_t sum = 0;
            for (int k = 0; k < DS_CATEGORY_COUNT; k++) sum += m->peak_by_category[k];
            cr_expect_eq(sum, m->peak_bytes);
            sim_free(&c);
        }
}

/* ---- what is refused, and where ---- */

static void expect_refusal(const char *strategy, const char *settings, ds_status status,
                           const char *part, const char *at) {
    char text[4096], more[256];
    snprintf(more, sizeof more, "  strategy { dp = dp, %s }\n", strategy);
    snprintf(text, sizeof text,
             "%sscenario {\n  model = @mlp\n  on = @t\n  train { loss = mse, optimizer = sgd }\n"
             "%s}\n",
             HEAD, more);
    sim_case c;
    sim_run_text(&c, text, settings, false);
    cr_expect_eq(c.status, status, "%s: %s", strategy, c.err.message);
    cr_expect(strstr(c.err.message, part), "%s: %s", strategy, c.err.message);
    uint32_t line = 1;
    for (const char *p = text; p < strstr(text, at); p++) line += *p == '\n';
    cr_expect_eq(c.err.loc.line, line, "%s: line %u, not %u", strategy, c.err.loc.line, line);
    cr_assert(c.unit);
    cr_expect_str_eq(c.err.loc.file, c.unit->modules.at[0]->path, "the place is the source's");
    sim_free(&c);
}

Test(run_model, knobs_of_pipelines_are_refused_without_one) {
    expect_refusal("virtual_stages = 2", NULL, DS_ERR_UNSUPPORTED, "need pp > 1", "strategy {");
    expect_refusal("stage_layers = [2]", NULL, DS_ERR_UNSUPPORTED, "needs pp > 1", "strategy {");
    expect_refusal("schedule = \"zb1\"", NULL, DS_ERR_UNSUPPORTED, "several stages", "strategy {");
    expect_refusal("schedule = \"gpipe\", microbatches = 2", NULL, DS_ERR_UNSUPPORTED,
                   "several stages", "strategy {");
}

Test(run_model, errors_of_passes_have_their_place_in_the_source) {
    expect_refusal("tp = 1", "batch=10", DS_ERR_SHAPE, "do not divide", "func @mlp");
}

Test(run_model, trivial_schedules_are_taken) {
    sim_case c;
    run(&c, "mlp", "{ loss = mse, optimizer = sgd }",
        "  strategy { dp = 2, pp = 1, schedule = \"gpipe\", recompute = none }\n", NULL);
    cr_expect_eq(c.status, DS_OK);
    sim_free(&c);
}
