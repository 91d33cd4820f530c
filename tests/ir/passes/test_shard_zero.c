/* ZeRO: what each stage leaves of weights, gradients and states on a device, what it sends, and
 * that the step stays the same step.
 *
 * The formulas are those of Rajbhandari et al., ZeRO, arXiv:1910.02054: with P parameters in 16
 * bits, gradients in 16 bits, and K = 12 bytes of Adam's states in 32 bits (section 3.1), on n
 * replicas (figure 1, section 7.2). */
#include "tests/support/prove.h"
#include "tests/support/step.h"

#include "ir/passes/build/build.h"
#include "ir/strategy/scenario.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BOX                                                                                        \
    "topology @box {\n"                                                                            \
    "  device gpu[16] : \"A100-SXM4-80GB\"\n"                                                      \
    "  switch sw\n"                                                                                \
    "  link gpu[i] -- sw : 300 GB/s, 1 us for i in 0..16\n"                                        \
    "}\n"

#define STRATEGY                                                                                   \
    "  strategy { dp = dp, tp = tp, cp = cp, zero = zero, zero_group = group, microbatches = m,\n" \
    "             prefetch = prefetch, late_reduce = late == 1, zero_cp = joint == 1,\n"           \
    "             reshard_after_forward = reshard, no_sync = no_sync == 1 }\n"

#define KNOBS                                                                                      \
    "dp = 4, tp = 1, zero = 0, group = dp, m = 1, prefetch = 1, late = 0, cp = 1, joint = 0, "     \
    "reshard = \"always\", no_sync = 0"

/* Layers of a residual block with a bias, in a loop. */
static const char mlp[] =
    "dir 1\nparam layers = 3, width = 8, batch = 48, " KNOBS "\n" BOX
    "func @mlp(%x: f32[batch@(dp, cp), width]) -> f32[batch@(dp, cp), width] {\n"
    "  %y = for l in 0..layers carry (%h: f32[batch@(dp, cp), width] = %x) {\n"
    "    weight %w1 : f32[width, 4 * width@tp]\n"
    "    weight %b1 : f32[4 * width@tp]\n"
    "    weight %w2 : f32[4 * width@tp, width]\n"
    "    %z = matmul(%h, %w1)\n"
    "    %s = add(%z, %b1)\n"
    "    %a = gelu(%s)\n"
    "    %b = matmul(%a, %w2)\n"
    "    %d = add(%b, %h)\n"
    "    yield %d\n"
    "  }\n"
    "  return %y\n"
    "}\n"
    "scenario {\n  model = @mlp\n  on = @box\n"
    "  train { loss = mse, optimizer = adam, dtype = f16, grad_dtype = f16 }\n" STRATEGY "}\n";

/* One table read twice, layers outside of loops, a bias of an odd size, a loop without weights. */
static const char odd[] =
    "dir 1\nparam width = 6, rows = 10, batch = 48, " KNOBS "\n" BOX
    "func @odd(%ids: i32[batch@dp]) -> f32[] {\n"
    "  weight %table : f32[rows, width]\n"
    "  weight %u : f32[width, 2 * width]\n"
    "  weight %c : f32[5]\n"
    "  weight %v : f32[2 * width, width]\n"
    "  %e = embedding(%ids, %table)\n"
    "  %p = matmul(%e, %u)\n"
    "  %q = tanh(%p)\n"
    "  %r = matmul(%q, %v)\n"
    "  %t = for l in 0..2 carry (%h = %r) {\n"
    "    %n = rms_norm(%h)\n"
    "    yield %n\n"
    "  }\n"
    "  %logits = einsum(%t, %table) {rule = \"b w, r w -> b r\"}\n"
    "  %ce = cross_entropy(%logits, %ids)\n"
    "  %cc = mul(%c, %c)\n"
    "  %c1 = reduce_mean(%cc)\n"
    "  %loss = add(%ce, %c1)\n"
    "  return %loss\n"
    "}\n"
    "scenario {\n  model = @odd\n  on = @box\n"
    "  train { loss = none, optimizer = adamw, keep_gradients = true }\n" STRATEGY "}\n";

/* ---- the same step ---- */

static void expect_equal(const char *text, const char *settings) {
    proof_options options = {.settings = settings, .seed = 1};
    proof result;
    prove(text, &options, &result);
    cr_expect_eq(result.verdict, PROOF_EQUAL, "%s: %s: %s", settings,
                 proof_verdict_name(result.verdict), result.what);
}

static const char *const strategies[] = {
    "dp=4",
    "dp=2 tp=2",
    "dp=4 tp=2",
    "dp=4 group=2",
    "dp=6 group=3",
    "dp=3",
    "dp=6 group=2 tp=2",
    "dp=4 m=2",
    "dp=2 tp=2 m=3",
    "dp=4 group=2 m=4",
    "dp=2 width=7",
    "dp=4 width=5",
    "dp=4 prefetch=0",
    "dp=4 prefetch=2 m=2",
    "dp=4 prefetch=9",
    "dp=2 cp=2 joint=1 m=2",
    "dp=4 group=2 cp=2 joint=1",
};

#define N_STRATEGIES (sizeof strategies / sizeof *strategies)

static void expect_all_equal(const char *text, int zero, const char *more) {
    for (size_t i = 0; i < N_STRATEGIES; i++) {
        char settings[128];
        snprintf(settings, sizeof settings, "zero=%d %s%s", zero, strategies[i], more);
        expect_equal(text, settings);
    }
}

Test(zero, stage_0_is_the_same_step) {
    expect_all_equal(mlp, 0, "");
    expect_all_equal(odd, 0, "");
}

Test(zero, stage_1_is_the_same_step) {
    expect_all_equal(mlp, 1, "");
    expect_all_equal(odd, 1, "");
}

Test(zero, stage_2_is_the_same_step) {
    expect_all_equal(mlp, 2, "");
    expect_all_equal(odd, 2, "");
}

Test(zero, stage_3_is_the_same_step) {
    expect_all_equal(mlp, 3, "");
    expect_all_equal(odd, 3, "");
}

/* Weights that stay gathered, for a microbatch or for the step; gradients scattered once. */
Test(zero, kept_weights_and_gradients_are_the_same_step) {
    expect_all_equal(mlp, 3, " reshard=never");
    expect_all_equal(odd, 3, " reshard=never");
    expect_all_equal(mlp, 3, " reshard=never no_sync=1");
    expect_all_equal(odd, 3, " no_sync=1");
    expect_all_equal(odd, 3, " reshard=layers");
    expect_all_equal(odd, 3, " reshard=root");
    expect_all_equal(mlp, 2, " no_sync=1");
}

/* A transformer with a tied table, microbatches and dropout. */
static const char gpt[] =
    "dir 1\nimport \"models/gpt.dir\" with layers = 2, hidden = 16, heads = 4, seq = 8, vocab = "
    "64, "
    "batch = 8, dropout = 0.1\n"
    "param " KNOBS "\n" BOX "scenario {\n  model = @gpt\n  on = @box\n"
    "  train { loss = none, optimizer = adam, keep_gradients = true }\n" STRATEGY "}\n";

Test(zero, a_transformer_is_the_same_step) {
    static const char *const settings[] = {
        "zero=1 dp=2",
        "zero=1 dp=4 tp=2 m=2",
        "zero=2 dp=4 tp=2",
        "zero=2 dp=2 tp=2 m=2",
        "zero=3 dp=4",
        "zero=3 dp=2 tp=4",
        "zero=3 dp=4 group=2",
        "zero=3 dp=2 m=2",
        "zero=3 dp=2 tp=2 prefetch=0",
        "zero=1 dp=2 cp=2 joint=1",
        "zero=1 dp=2 cp=4 joint=1 late=1",
        "zero=2 dp=2 cp=2 joint=1 m=2",
        "zero=3 dp=2 cp=2 tp=2 joint=1",
        "zero=3 dp=1 cp=2 joint=1",
        "zero=3 dp=4 reshard=never",
        "zero=3 dp=4 reshard=layers m=2",
        "zero=3 dp=4 reshard=root m=2 prefetch=2",
        "zero=3 dp=2 tp=2 m=2 reshard=never",
        "zero=3 dp=4 group=2 m=2 no_sync=1",
        "zero=3 dp=2 cp=2 joint=1 m=4 reshard=never no_sync=1",
        "zero=2 dp=4 m=2 no_sync=1",
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) expect_equal(gpt, settings[i]);
}

/* ---- bytes ---- */

/* An expression of the step as a number. */
static double number(const step_case *c, ds_expr e) {
    ds_env env = ds_binding_env(&c->step->binding, NULL);
    ds_error err = {0};
    int64_t value = 0;
    cr_assert_eq(ds_expr_eval_int(&env, e, DS_NOWHERE, &value, &err), DS_OK, "%s", err.message);
    return (double)value;
}

static double axis_size(const step_case *c, const char *axis) {
    const ds_mesh *mesh = ds_scenario_mesh(c->step->unit);
    for (uint32_t a = 0; a < mesh->n_axes; a++)
        if (strcmp(mesh->axes[a].name, axis) == 0) return number(c, mesh->axes[a].size);
    cr_assert_fail("no axis %s", axis);
    return 0;
}

/* Elements of one device's part. */
static double local_elements(const step_case *c, const ds_type *type) {
    double n = 1;
    for (uint32_t d = 0; d < type->rank; d++) {
        n *= number(c, type->dims[d].size);
        for (uint32_t s = 0; s < type->dims[d].n_splits; s++)
            n /= axis_size(c, type->dims[d].splits[s].axis);
    }
    return n;
}

/* Bytes of a value, all elements of a family together. */
static double bytes_of(const step_case *c, ds_value value) {
    const ds_value_info *info = ds_value_at(c->step->func, value);
    double bytes = local_elements(c, info->type) * (double)ds_dtype_bits(info->type->dtype) / 8;
    for (uint32_t b = 0; b < info->n_binders; b++)
        bytes *= number(c, info->binders[b].hi) - number(c, info->binders[b].lo);
    return bytes;
}

static double argument_bytes(const step_case *c, const char *role) {
    const ds_func *func = c->step->func;
    double bytes = 0;
    for (uint32_t i = 0; i < func->n_args; i++) {
        const ds_value_info *info = ds_value_at(func, func->args[i]);
        const ds_attr *attr = ds_attr_find(info->attrs, info->n_attrs, "role");
        if (attr && strcmp(attr->word, role) == 0) bytes += bytes_of(c, func->args[i]);
    }
    return bytes;
}

/* Gradients as they are when the optimizer begins: the families that it reads, or that what
 * scatters them for it reads. */
static double gradient_bytes(const step_case *c) {
    const ds_func *func = c->step->func;
    double bytes = 0;
    for (uint32_t i = 0; i < func->values.n; i++) {
        const char *name = func->values.at[i].name, *at = strstr(name, ".grad");
        if (func->values.at[i].n_binders && at && strcmp(at, ".grad") == 0)
            bytes += bytes_of(c, (ds_value){i});
    }
    return bytes;
}

static void make(step_case *c, const char *text, const char *settings) {
    step_make(c, text, settings, DS_PASS_OVERLAP);
    cr_assert_eq(c->status, DS_OK, "%s: %s", settings, c->err.message);
}

/* Figure 1 of the paper, K = 12. With stage 1 the scatters come before the optimizer, or with
 * late_reduce after the whole backward pass. */
static void expect_state_bytes(const char *degrees) {
    const double layers = 3, width = 8, n = 4;
    const double P = layers * (4 * width * width + 4 * width + 4 * width * width);
    for (int m = 1; m <= 3; m++)
        for (int i = 0; i <= 4; i++) {
            step_case c;
            char settings[64];
            int late = i == 4, zero = late ? 1 : i;
            snprintf(settings, sizeof settings, "zero=%d m=%d late=%d%s", zero, m, late, degrees);
            make(&c, mlp, settings);
            cr_expect_eq(argument_bytes(&c, "weight"), 2 * P / (zero == 3 ? n : 1), "%s", settings);
            cr_expect_eq(gradient_bytes(&c), 2 * P / (zero >= 1 && !late ? n : 1), "%s: %g",
                         settings, gradient_bytes(&c));
            cr_expect_eq(argument_bytes(&c, "optimizer"), 12 * P / (zero >= 1 ? n : 1), "%s",
                         settings);
            step_free(&c);
        }
}

Test(zero, state_bytes_are_the_published_ones) {
    expect_state_bytes("");
    expect_state_bytes(" dp=2 cp=2 joint=1");
    expect_state_bytes(" dp=1 cp=4 joint=1");
}

/* 48 is divided by dp · cp = 8, though 12 is not. Where dp · cp = 10 divide nothing, dp alone
 * shares out. cp shares nothing out unless the scenario says so. */
Test(zero, what_dp_and_cp_do_not_divide_dp_does) {
    const double P = 3 * (4 * 144 + 48 + 4 * 144);
    step_case c;
    make(&c, mlp, "zero=1 dp=2 cp=4 width=12 joint=1");
    cr_expect_eq(argument_bytes(&c, "optimizer"), 12 * P / 8);
    step_free(&c);
    make(&c, mlp, "zero=1 dp=2 cp=5 width=12 batch=40 joint=1");
    cr_expect_eq(argument_bytes(&c, "optimizer"), 12 * P / 2);
    step_free(&c);
    make(&c, mlp, "zero=1 dp=2 cp=2");
    cr_expect_eq(argument_bytes(&c, "optimizer"), 12 * 3 * (4 * 64 + 32 + 4 * 64) / 2);
    step_free(&c);
}

/* Groups of 2 among 4 replicas share out what 4 would. */
Test(zero, a_group_shares_out_the_states) {
    const double P = 3 * (4 * 64 + 32 + 4 * 64);
    step_case c;
    make(&c, mlp, "zero=3 group=2");
    cr_expect_eq(argument_bytes(&c, "weight"), 2 * P / 2);
    cr_expect_eq(gradient_bytes(&c), 2 * P / 2);
    cr_expect_eq(argument_bytes(&c, "optimizer"), 12 * P / 2);
    step_free(&c);
}

/* What has no dim that divides stays whole: width 8 and 32 are not divided by 3. */
Test(zero, what_does_not_divide_stays_whole) {
    const double P = 3 * (4 * 64 + 32 + 4 * 64);
    step_case c;
    make(&c, mlp, "zero=3 dp=3");
    cr_expect_eq(argument_bytes(&c, "weight"), 2 * P);
    cr_expect_eq(argument_bytes(&c, "optimizer"), 12 * P);
    step_free(&c);
}

/* ---- traffic ---- */

typedef struct traffic {
    double gathered, scattered, reduced; /* elements that a device sends */
    uint32_t n_gathers, n_scatters, n_reductions;
} traffic;

/* Whole elements of what goes over the links; scalars (the loss) do not count. */
static double whole(const step_case *c, const ds_func *func, const ds_op *op, bool in) {
    double n = 0;
    for (uint32_t i = 0; i < op->n_in; i++) {
        const ds_type *type =
            in ? ds_use_type(c->step->unit, func, &op->in[i]) : ds_value_at(func, op->out[i])->type;
        if (type->rank) n += local_elements(c, type);
    }
    return n;
}

/* In a ring of n: (n−1)/n of what is whole, twice that for an all_reduce. */
static void count_op(const step_case *c, const ds_func *func, const ds_op *op, double turns,
                     traffic *t) {
    double n = 1;
    for (uint32_t a = 0; a < op->n_over; a++) n *= axis_size(c, op->over[a]);
    double share = turns * (n - 1) / n;
    if (op->code == DS_OP_ALL_GATHER) {
        t->gathered += share * whole(c, func, op, false);
        t->n_gathers++;
    } else if (op->code == DS_OP_REDUCE_SCATTER) {
        t->scattered += share * whole(c, func, op, true);
        t->n_scatters++;
    } else if (op->code == DS_OP_ALL_REDUCE && whole(c, func, op, true) > 0) {
        t->reduced += 2 * share * whole(c, func, op, true);
        t->n_reductions++;
    }
}

static void count(const step_case *c, const ds_func *func, const ds_block *block, double turns,
                  traffic *t) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        if (op->code == DS_OP_FOR)
            count(c, func, op->body, turns * (number(c, op->hi) - number(c, op->lo)), t);
        else if (op->code == DS_OP_CALL)
            count(c, op->callee, &op->callee->body, turns, t);
        else
            count_op(c, func, op, turns, t);
    }
}

static traffic traffic_of(const char *text, const char *settings) {
    step_case c;
    traffic t = {0};
    make(&c, text, settings);
    count(&c, c.step->func, &c.step->func->body, 1, &t);
    step_free(&c);
    return t;
}

static void expect_near(double got, double want, const char *what, const char *settings) {
    cr_expect(got >= want - 1e-6 && got <= want + 1e-6, "%s: %s %g, not %g", settings, what, got,
              want);
}

/* Section 7: 2P, 2P and 3P for one microbatch, times (n−1)/n; for m of them what the README says:
 * 2P, 2P, (m+1)P, 3mP, but that the backward pass reads no biases (B) and does not gather them. */
Test(zero, traffic_is_the_published_one) {
    const double B = 3 * 32, P = 3 * (4 * 64 + 4 * 64) + B, n = 4, share = (n - 1) / n;
    for (int m = 1; m <= 4; m++)
        for (int zero = 0; zero <= 3; zero++) {
            char settings[64];
            const char *degrees = m == 4 ? " dp=2 cp=2 joint=1" : "";
            snprintf(settings, sizeof settings, "zero=%d m=%d%s", zero, m, degrees);
            const double gathered[] = {0, P, P, m * (2 * P - B)},
                         scattered[] = {0, P, m * P, m * P};
            traffic t = traffic_of(mlp, settings);
            expect_near(t.gathered, share * gathered[zero], "gathers", settings);
            expect_near(t.scattered, share * scattered[zero], "scatters", settings);
            expect_near(t.reduced, zero == 0 ? share * 2 * P : 0, "reduces", settings);
        }
}

/* Weights that stay gathered are gathered once a microbatch, biases too, or with no_sync once a step;
 * with no_sync, gradients are scattered once a step. */
Test(zero, kept_weights_are_gathered_once) {
    const double B = 3 * 32, P = 3 * (4 * 64 + 4 * 64) + B, n = 4, share = (n - 1) / n;
    for (int m = 1; m <= 4; m++)
        for (int k = 0; k < 4; k++) {
            bool never = k & 1, once = k & 2;
            char settings[80];
            snprintf(settings, sizeof settings, "zero=3 m=%d reshard=%s no_sync=%d", m,
                     never ? "never" : "always", once);
            const double gathered = never ? (once ? P : m * P) : m * (2 * P - B);
            traffic t = traffic_of(mlp, settings);
            expect_near(t.gathered, share * gathered, "gathers", settings);
            expect_near(t.scattered, share * (once ? 1 : m) * P, "scatters", settings);
            expect_near(t.reduced, 0, "reduces", settings);
        }
    traffic t = traffic_of(mlp, "zero=3 reshard=never");
    cr_expect_eq(t.n_gathers, 1, "a turn is a unit");
    t = traffic_of(mlp, "zero=2 m=3 no_sync=1");
    expect_near(t.scattered, share * P, "scatters", "zero=2 m=3 no_sync=1");
}

/* HSDP: scattered and gathered in the group of g, reduced across the r groups. */
Test(zero, groups_reduce_across) {
    const double B = 3 * 32, P = 3 * (4 * 64 + 4 * 64) + B, g = 2, r = 3;
    for (int zero = 1; zero <= 3; zero++) {
        char settings[64];
        snprintf(settings, sizeof settings, "zero=%d dp=6 group=2", zero);
        traffic t = traffic_of(mlp, settings);
        expect_near(t.gathered, (g - 1) / g * (zero == 3 ? 2 * P - B : P), "gathers", settings);
        expect_near(t.scattered, (g - 1) / g * P, "scatters", settings);
        expect_near(t.reduced, 2 * (r - 1) / r * P / g, "reduces", settings);
    }
}

/* Gradients that the step returns are sums, at every stage. */
Test(zero, returned_gradients_are_whole_sums) {
    for (int zero = 0; zero <= 3; zero++) {
        step_case c;
        char settings[64];
        snprintf(settings, sizeof settings, "zero=%d m=%d", zero, 1 + zero % 2);
        make(&c, odd, settings);
        const ds_func *func = c.step->func;
        for (uint32_t i = 0; i < func->n_results; i++)
            cr_expect_eq(func->results[i]->n_partials, 0, "%s: result %u", settings, i);
        step_free(&c);
        make(&c, gpt, settings);
        func = c.step->func;
        for (uint32_t i = 0; i < func->n_results; i++)
            cr_expect_eq(func->results[i]->n_partials, 0, "%s: result %u", settings, i);
        step_free(&c);
    }
}

/* One collective a turn: forward, backward, scattering; the bucket is larger than a layer. */
Test(zero, a_turn_is_gathered_by_one_collective) {
    traffic t = traffic_of(mlp, "zero=3");
    cr_expect_eq(t.n_gathers, 2);
    cr_expect_eq(t.n_scatters, 1);
    t = traffic_of(mlp, "zero=2");
    cr_expect_eq(t.n_gathers, 1, "the new weights of a turn");
    cr_expect_eq(t.n_scatters, 1);
    t = traffic_of(mlp, "zero=1");
    cr_expect_eq(t.n_gathers, 1);
    cr_expect_eq(t.n_scatters, 1);
    t = traffic_of(mlp, "zero=3 m=2");
    cr_expect_eq(t.n_gathers, 4);
    cr_expect_eq(t.n_scatters, 2);
}

/* SGD in 32 bits has neither states nor masters: nothing is split, and ZeRO 1 is ZeRO 0. */
Test(zero, without_states_gradients_are_reduced) {
    const double P = 3 * (4 * 64 + 32 + 4 * 64);
    static const char adam[] = "optimizer = adam, dtype = f16, grad_dtype = f16",
                      sgd[] = "optimizer = sgd";
    char text[sizeof mlp];
    const char *at = strstr(mlp, adam);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - mlp), mlp, sgd, at + strlen(adam));
    for (int m = 1; m <= 2; m++) {
        char settings[32];
        snprintf(settings, sizeof settings, "zero=1 m=%d", m);
        traffic t = traffic_of(text, settings);
        cr_expect_eq(t.n_scatters + t.n_gathers, 0, "%s", settings);
        expect_near(t.reduced, 2 * P * 3 / 4, "reduced", settings);
    }
}
