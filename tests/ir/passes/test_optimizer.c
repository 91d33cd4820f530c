/* The optimizer pass: updated weights and states against the formulas, and which values there are.
 */
#include "tests/support/step.h"

#include "ir/ops/ops.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void make(step_case *c, const char *train) {
    char text[2048];
    snprintf(text, sizeof text,
             "dir 1\nparam layers = 2\n"
             "func @f(%%x: f32[3, 4], %%t: f32[3, 4]) -> f32[] {\n  weight %%v : f32[4, 4]\n"
             "  %%i = matmul(%%x, %%v)\n  %%y = for l in 0..layers carry (%%h = %%i) {\n"
             "    weight %%w : f32[4, 4]\n    weight %%b : f32[4]\n    %%z = matmul(%%h, %%w)\n"
             "    %%q = bias(%%z, %%b)\n    %%a = tanh(%%q)\n    yield %%a\n  }\n"
             "  %%loss = mse(%%y, %%t)\n  return %%loss\n}\n"
             "scenario {\n  model = @f\n  train { loss = none, %s }\n}\n",
             train);
    step_make(c, text, NULL, DS_PASS_LOWER);
    cr_assert_eq(c->status, DS_OK, "%s", c->err.message);
    c->step->train.keep_gradients = true;
    for (int p = DS_PASS_GRAD; p <= DS_PASS_OPTIMIZER && c->status == DS_OK; p++)
        c->status = ds_model_step_run(c->step, (ds_pass_id)p, &c->err);
    cr_assert_eq(c->status, DS_OK, "%s", c->err.message);
    free(step_text(c));
}

static const double *in(const ds_exec_result *r, const char *name) {
    for (uint32_t i = 0; i < r->inputs.n; i++)
        if (strcmp(r->inputs.at[i].name, name) == 0) return r->inputs.at[i].at;
    cr_assert(false, "no input %s", name);
    return NULL;
}

static const double *out(const ds_exec_result *r, const char *name) {
    const ds_exec_tensor *t = ds_exec_output(r, name);
    cr_assert_not_null(t, "no result %s", name);
    return t->at;
}

/* One update by hand: state[0] = m, state[1] = v. */
typedef void update(double *w, double g, double *state);

static void sgd(double *w, double g, double *state) {
    (void)state;
    *w -= 0.5 * g;
}
static void momentum(double *w, double g, double *state) {
    state[0] = 0.8 * state[0] + g;
    *w -= 0.5 * state[0];
}
static void adam_rule(double *w, double g, double *state, double decay) {
    state[0] = 0.7 * state[0] + 0.3 * g;
    state[1] = 0.9 * state[1] + 0.1 * g * g;
    double m = state[0] / (1 - 0.7), v = state[1] / (1 - 0.9);
    *w -= 0.5 * (m / (sqrt(v) + 1e-3) + decay * *w);
}
static void adam(double *w, double g, double *state) {
    adam_rule(w, g, state, 0);
}
static void adamw(double *w, double g, double *state) {
    adam_rule(w, g, state, 0.2);
}

/* "w" and "{1}" for the family's element, "v" and "" for a plain weight. */
static void expect_update(const ds_exec_result *r, const char *weight, const char *index, int n,
                          int n_states, update *rule) {
    static const char *const states[] = {".m", ".v"};
    char name[64];
    snprintf(name, sizeof name, "%s%s", weight, index);
    const double *w = in(r, name), *state[2], *new_state[2];
    snprintf(name, sizeof name, "%s.grad%s", weight, index);
    const double *g = out(r, name);
    snprintf(name, sizeof name, "%s.new%s", weight, index);
    const double *new_w = out(r, name);
    for (int s = 0; s < n_states; s++) {
        snprintf(name, sizeof name, "%s%s%s", weight, states[s], index);
        state[s] = in(r, name);
        snprintf(name, sizeof name, "%s%s.new%s", weight, states[s], index);
        new_state[s] = out(r, name);
    }
    for (int i = 0; i < n; i++) {
        double want = w[i], s[2] = {0};
        for (int k = 0; k < n_states; k++) s[k] = state[k][i];
        rule(&want, g[i], s);
        cr_assert_float_eq(new_w[i], want, 1e-12, "%s%s[%d]", weight, index, i);
        for (int k = 0; k < n_states; k++) cr_assert_float_eq(new_state[k][i], s[k], 1e-12);
        cr_assert(n_states < 2 || state[1][i] >= 0, "a second moment is no negative number");
    }
}

static void expect_all(const char *train, int n_states, update *rule) {
    step_case c;
    make(&c, train);
    ds_exec_result *r = step_run(&c, 1, NULL, 0);
    expect_update(r, "v", "", 16, n_states, rule);
    expect_update(r, "w", "{0}", 16, n_states, rule);
    expect_update(r, "w", "{1}", 16, n_states, rule);
    expect_update(r, "b", "{1}", 4, n_states, rule);
    ds_exec_result_free(r);
    step_free(&c);
}

#define ADAM "lr = 0.5, beta1 = 0.7, beta2 = 0.9, eps = 1e-3"

Test(optimizer, formulas) {
    expect_all("optimizer = sgd, lr = 0.5", 0, sgd);
    expect_all("optimizer = momentum, lr = 0.5, momentum = 0.8", 1, momentum);
    expect_all("optimizer = adam, " ADAM, 2, adam);
    expect_all("optimizer = adamw, weight_decay = 0.2, " ADAM, 2, adamw);
}

static ds_dtype arg_dtype(const step_case *c, const char *name) {
    const ds_func *f = c->step->func;
    for (uint32_t i = 0; i < f->n_args; i++) {
        const ds_value_info *info = ds_value_at(f, f->args[i]);
        if (strcmp(info->name, name) == 0) return info->type->dtype;
    }
    return DS_DTYPE_COUNT;
}

/* Mixed precision: 2 bytes for what ops read, 4 for the copy that is updated and its moments. */
Test(optimizer, mixed_precision) {
    step_case c;
    make(&c, "optimizer = adam, dtype = bf16, grad_dtype = f32");
    cr_assert_eq(arg_dtype(&c, "w"), DS_BF16);
    cr_assert_eq(arg_dtype(&c, "w.master"), DS_F32);
    cr_assert_eq(arg_dtype(&c, "w.m"), DS_F32);
    cr_assert_eq(arg_dtype(&c, "v.v"), DS_F32);
    const ds_func *f = c.step->func;
    const ds_step_weight *w = &c.step->weights.at[1];
    cr_assert_eq(f->results[w->grad_result]->dtype, DS_F32);
    cr_assert_eq(f->results[w->new_result]->dtype, DS_BF16);
    cr_assert_eq(ds_value_at(f, w->master)->type->dtype, DS_F32);
    const ds_op *op = step_find(&c, "w.turn");
    cr_assert_eq(op->code, DS_OP_ADAM);
    cr_assert_eq(op->n_in, 5);
    step_free(&c);
    make(&c, "optimizer = momentum, dtype = bf16, state_dtype = bf16");
    cr_assert_eq(arg_dtype(&c, "w.m"), DS_BF16);
    cr_assert_eq(arg_dtype(&c, "w.master"), DS_F32);
    cr_assert_eq(c.step->func->results[c.step->weights.at[1].grad_result]->dtype, DS_BF16);
    step_free(&c);
    make(&c, "optimizer = sgd");
    cr_assert_eq(arg_dtype(&c, "w.master"), DS_DTYPE_COUNT, "no copy in full precision");
    step_free(&c);
}

/* Weights of the same loop are updated in one loop; gradients leave the step only if asked. */
Test(optimizer, structure) {
    step_case c;
    make(&c, "optimizer = adam");
    const ds_block *body = &c.step->func->body;
    const ds_op *loop = body->ops[body->n_ops - 3], *plain = body->ops[body->n_ops - 2];
    cr_assert_eq(loop->code, DS_OP_FOR);
    cr_assert_eq(loop->n_out, 6);
    cr_assert_eq(plain->code, DS_OP_ADAM);
    cr_assert_eq(c.step->func->n_results, 1 + 3 + 3 + 6);
    step_free(&c);
    step_make(&c,
              "dir 1\nfunc @f(%x: f32[3, 4], %t: f32[3, 4]) -> f32[] {\n  weight %w : f32[4, 4]\n"
              "  %y = matmul(%x, %w)\n  %loss = mse(%y, %t)\n  return %loss\n}\n"
              "scenario { model = @f, train { loss = none, optimizer = sgd } }\n",
              NULL, DS_PASS_OPTIMIZER);
    cr_assert_eq(c.status, DS_OK);
    cr_assert_eq(c.step->func->n_results, 2);
    cr_assert_eq(c.step->weights.at[0].grad_result, DS_NO_RESULT);
    cr_assert_eq(c.step->weights.at[0].new_result, 1);
    step_free(&c);
}

/* A nested family: one loop an index. */
Test(optimizer, nested_families_and_microbatches) {
    step_case c;
    step_make(&c,
              "dir 1\nparam layers = 2, inner = 3, batch = 4\n"
              "func @f(%x: f32[batch@dp, 4], %t: f32[batch@dp, 4]) -> f32[] {\n"
              "  %y = for l in 0..layers carry (%h = %x) {\n"
              "    %g = for m in 0..inner carry (%k = %h) {\n      weight %w : f32[4, 4]\n"
              "      %z = matmul(%k, %w)\n      %a = tanh(%z)\n      yield %a\n    }\n"
              "    yield %g\n  }\n  %loss = mse(%y, %t)\n  return %loss\n}\n"
              "scenario {\n  model = @f\n  train { loss = none, optimizer = sgd, lr = 0.5 }\n"
              "  strategy { microbatches = 2 }\n}\n",
              NULL, DS_PASS_LOWER);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    c.step->train.keep_gradients = true;
    for (int p = DS_PASS_GRAD; p <= DS_PASS_OPTIMIZER && c.status == DS_OK; p++)
        c.status = ds_model_step_run(c.step, (ds_pass_id)p, &c.err);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    free(step_text(&c));
    ds_exec_result *r = step_run(&c, 1, NULL, 0);
    for (int l = 0; l < 2; l++)
        for (int m = 0; m < 3; m++) {
            char index[32];
            snprintf(index, sizeof index, "{%d,%d}", l, m);
            expect_update(r, "w", index, 16, 0, sgd);
        }
    ds_exec_result_free(r);
    step_free(&c);
}

Test(optimizer, refusals) {
    step_case c;
    step_make(&c,
              "dir 1\nfunc @f(%x: f32[3, 4], %t: f32[3, 4]) -> f32[] {\n  weight %w : f32[4, 4]\n"
              "  %y = matmul(%x, %w)\n  %loss = mse(%y, %t)\n  return %loss\n}\n"
              "scenario { model = @f, train { loss = none, optimizer = adam, weight_decay = 0.1 } "
              "}\n",
              NULL, DS_PASS_OPTIMIZER);
    cr_assert_eq(c.status, DS_ERR_UNSUPPORTED);
    cr_assert(strstr(c.err.message, "adamw"), "%s", c.err.message);
    step_free(&c);
}
