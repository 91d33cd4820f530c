/* The driver of the passes, the blocks that they read, and the check that proves them. */
#include "ir/lang/lang.h"
#include "ir/prove/check.h"
#include "ir/verify/verify.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

typedef struct source {
    ds_unit *unit;
    ds_binding binding;
} source;

static void load(source *s, const char *text) {
    ds_error err;
    ds_diags diags;
    ds_diags_init(&diags);
    cr_assert_eq(ds_load_text("test.dir", text, strlen(text), NULL, &s->unit, &err), DS_OK, "%s",
                 err.message);
    ds_status status = ds_verify(s->unit, &diags);
    cr_assert_eq(status, DS_OK, "%s", diags.all.n ? diags.all.at[0].message : "");
    cr_assert_eq(ds_bind(s->unit, NULL, 0, &s->binding, &err), DS_OK, "%s", err.message);
    ds_diags_deinit(&diags);
}

#define MODEL                                                                                      \
    "dir 1\nparam batch = 8, layers = 2\n"                                                         \
    "topology @box {\n  device gpu[8] : \"A40\"\n}\n"                                              \
    "func @f(%x: f32[batch@dp, 8]) -> f32[batch@dp, 8] {\n"                                        \
    "  %y = for l in 0..layers carry (%h = %x) {\n"                                                \
    "    weight %w : f32[8, 8]\n"                                                                  \
    "    %z = matmul(%h, %w)\n"                                                                    \
    "    %a = gelu(%z)\n"                                                                          \
    "    yield %a\n"                                                                               \
    "  }\n"                                                                                        \
    "  return %y\n"                                                                                \
    "}\n"

#define SCENARIO(entries) MODEL "scenario {\n model = @f\n on = @box\n " entries "\n}\n"

/* ---- what is read ---- */

Test(strategy, defaults) {
    source s;
    ds_train train;
    ds_strategy strategy;
    ds_error err;
    load(&s, SCENARIO("strategy { dp = 4 }"));
    cr_assert_eq(ds_train_read(&s.binding, &train, &err), DS_OK);
    cr_assert_eq(ds_strategy_read(&s.binding, &strategy, &err), DS_OK);
    cr_expect_not(train.on);
    cr_expect_eq(train.dtype, DS_DTYPE_COUNT);
    cr_expect(isnan(train.lr));
    cr_expect_eq(strategy.dp * 1000 + strategy.tp * 100 + strategy.pp * 10 + strategy.cp, 4111);
    cr_expect_eq(strategy.zero_group, 4);
    cr_expect_eq(strategy.bucket_bytes, 25000000);
    cr_expect_eq(strategy.prefetch, 1);
    cr_expect_eq(strategy.cp_type, DS_CP_RING);
    cr_expect_str_eq(strategy.order[0], "pp");
    cr_expect_str_eq(strategy.order[3], "tp");
    cr_expect_str_eq(strategy.schedule, "1f1b");
    cr_expect_eq(strategy.recompute, DS_RECOMPUTE_NONE);
    cr_expect_null(strategy.ops);
    ds_unit_free(s.unit);
}

Test(strategy, everything) {
    source s;
    ds_train train;
    ds_strategy strategy;
    ds_error err;
    load(&s, SCENARIO("train { loss = cross_entropy, optimizer = adamw, lr = 0.5, beta2 = 0.25, "
                      "dtype = bf16, grad_dtype = f32, keep_gradients = true }\n"
                      "strategy { dp = 4, tp = 2, ep = 2, sp = true, microbatches = 2, zero = 3, "
                      "zero_group = 2, prefetch = 0, bucket_size = 2 MB, cp_type = ulysses, "
                      "recompute = full, order = \"tp dp pp cp\" }"));
    cr_assert_eq(ds_train_read(&s.binding, &train, &err), DS_OK);
    cr_assert_eq(ds_strategy_read(&s.binding, &strategy, &err), DS_OK, "%s", err.message);
    cr_expect(train.on && train.keep_gradients);
    cr_expect_eq(train.loss, DS_LOSS_CROSS_ENTROPY);
    cr_expect_eq(train.optimizer, DS_OPTIMIZER_ADAMW);
    cr_expect_float_eq(train.lr, 0.5, 0);
    cr_expect_float_eq(train.beta2, 0.25, 0);
    cr_expect_eq(train.dtype, DS_BF16);
    cr_expect_eq(train.grad_dtype, DS_F32);
    cr_expect_eq(strategy.ep, 2);
    cr_expect_eq(strategy.zero, 3);
    cr_expect_eq(strategy.zero_group, 2);
    cr_expect_eq(strategy.prefetch, 0);
    cr_expect_eq(strategy.bucket_bytes, 2000000);
    cr_expect_eq(strategy.cp_type, DS_CP_ULYSSES);
    cr_expect_str_eq(strategy.order[0], "tp");
    cr_expect(strategy.sp);
    cr_expect_eq(strategy.recompute, DS_RECOMPUTE_FULL);
    ds_unit_free(s.unit);
}

static void expect_strategy_refused(const char *text, const char *message) {
    source s;
    ds_strategy strategy;
    ds_error err;
    load(&s, text);
    cr_expect_eq(ds_strategy_read(&s.binding, &strategy, &err), DS_ERR_VALUE);
    cr_expect(strstr(err.message, message), "%s", err.message);
    ds_unit_free(s.unit);
}

Test(strategy, contradictions) {
    expect_strategy_refused(SCENARIO("strategy { dp = 4, ep = 3 }"),
                            "ep = 3 does not divide dp * cp = 4");
    expect_strategy_refused(SCENARIO("strategy { dp = 4, zero_group = 3 }"),
                            "zero_group = 3 does not divide dp = 4");
}

/* Degrees that the strategy leaves open are those of an explicit mesh. */
Test(strategy, degrees_of_a_mesh) {
    source s;
    ds_strategy strategy;
    ds_error err;
    load(&s, MODEL "mesh @m = [dp = 2, tp = 4] on @box\n"
                   "scenario {\n model = @f\n mesh = @m\n strategy { dp = 2 }\n}\n");
    cr_assert_eq(ds_strategy_read(&s.binding, &strategy, &err), DS_OK, "%s", err.message);
    cr_expect_eq(strategy.dp, 2);
    cr_expect_eq(strategy.tp, 4);
    ds_unit_free(s.unit);
}

/* ---- the driver ---- */

static ds_status note(void *context, const ds_model_step *step, ds_pass_id pass, ds_error *err) {
    (void)step, (void)err;
    *(uint32_t *)context |= 1u << pass;
    return DS_OK;
}

static uint32_t passes_that_run(const char *text, ds_pass_id last) {
    source s;
    ds_model_step *step;
    ds_error err;
    uint32_t ran = 0;
    load(&s, text);
    cr_assert_eq(ds_model_step_new(&s.binding, &step, &err), DS_OK, "%s", err.message);
    cr_assert_eq(ds_model_step_run_to(step, last, note, &ran, &err), DS_OK, "%s", err.message);
    cr_expect_eq(step->done, ran);
    ds_model_step_free(step);
    ds_unit_free(s.unit);
    return ran;
}

enum {
    LOWER = 1 << DS_PASS_LOWER,
    GRAD = 1 << DS_PASS_GRAD,
    OPTIMIZER = 1 << DS_PASS_OPTIMIZER,
    SHARD = 1 << DS_PASS_SHARD,
    OVERLAP = 1 << DS_PASS_OVERLAP
};

Test(passes, what_a_scenario_asks_for) {
    cr_expect_eq(passes_that_run(SCENARIO(""), DS_PASS_OVERLAP), LOWER | SHARD);
    cr_expect_eq(passes_that_run(SCENARIO("strategy { dp = 2 }"), DS_PASS_OVERLAP),
                 LOWER | SHARD | OVERLAP);
    cr_expect_eq(passes_that_run(SCENARIO("train { loss = mse }"), DS_PASS_OPTIMIZER),
                 LOWER | GRAD);
    cr_expect_eq(passes_that_run(SCENARIO("train { loss = mse, optimizer = sgd }"), DS_PASS_SHARD),
                 LOWER | GRAD | OPTIMIZER | SHARD);
}

Test(passes, order) {
    source s;
    ds_model_step *step;
    ds_error err;
    load(&s, SCENARIO("train { loss = mse, optimizer = sgd }"));
    cr_assert_eq(ds_model_step_new(&s.binding, &step, &err), DS_OK);
    cr_expect_eq(ds_model_step_run(step, DS_PASS_GRAD, &err), DS_OK);
    cr_expect_eq(ds_model_step_run(step, DS_PASS_GRAD, &err), DS_ERR_VALUE);
    cr_expect_str_eq(err.message, "grad has run already");
    cr_expect_eq(ds_model_step_run(step, DS_PASS_SHARD, &err), DS_OK);
    cr_expect_eq(ds_model_step_run(step, DS_PASS_OPTIMIZER, &err), DS_ERR_VALUE);
    cr_expect_str_eq(err.message, "optimizer comes before what has run already");
    ds_model_step_free(step);
    ds_unit_free(s.unit);
}

Test(passes, names) {
    for (int i = 0; i < DS_PASS_COUNT; i++)
        cr_expect_eq((int)ds_pass_by_name(ds_pass_name((ds_pass_id)i)), i);
    cr_expect_eq(ds_pass_by_name("sharding"), DS_PASS_COUNT);
}

/* ---- the check ---- */

static void check(const char *text, uint32_t passes, ds_step_check *out) {
    source s;
    ds_error err;
    ds_step_check_options options = {.seed = 1, .passes = passes};
    load(&s, text);
    cr_assert_eq(ds_model_step_check(&s.binding, &options, out, &err), DS_OK, "%s", err.message);
    ds_unit_free(s.unit);
}

static uint32_t count(const ds_step_check *c, ds_pass_id pass, ds_check_kind kind) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->rows.n; i++)
        n += c->rows.at[i].pass == pass && c->rows.at[i].kind == kind;
    return n;
}

Test(check, every_pass_of_a_step) {
    ds_step_check c;
    check(SCENARIO("train { loss = mse, optimizer = adam }\n strategy { dp = 4 }"), 0, &c);
    cr_expect(c.equal);
    cr_expect_eq(c.n_devices, 4);
    cr_expect_eq(count(&c, DS_PASS_GRAD, DS_CHECK_RESULT), 1);
    cr_expect_eq(count(&c, DS_PASS_OPTIMIZER, DS_CHECK_GRADIENT), 2);
    cr_expect_eq(count(&c, DS_PASS_SHARD, DS_CHECK_GRADIENT), 2);
    cr_expect_eq(count(&c, DS_PASS_SHARD, DS_CHECK_WEIGHT), 2);
    cr_expect_eq(count(&c, DS_PASS_SHARD, DS_CHECK_STATE), 4);
    cr_expect_eq(count(&c, DS_PASS_OVERLAP, DS_CHECK_WEIGHT), 2);
    ds_step_check_deinit(&c);
}

Test(check, one_pass) {
    ds_step_check c;
    check(SCENARIO("train { loss = mse, optimizer = sgd }\n strategy { dp = 2 }"), SHARD, &c);
    cr_expect(c.equal);
    cr_expect_eq(c.rows.n, 1 + 2 + 2);
    for (uint32_t i = 0; i < c.rows.n; i++) cr_expect_eq(c.rows.at[i].pass, DS_PASS_SHARD);
    ds_step_check_deinit(&c);
}

/* The mean over microbatches is that of the lowered step run on each. */
Test(check, microbatches) {
    ds_step_check c;
    check(SCENARIO("train { loss = mse, optimizer = sgd }\n strategy { dp = 2, microbatches = 4 }"),
          0, &c);
    cr_expect(c.equal);
    cr_expect_null(c.skipped);
    cr_expect_eq(count(&c, DS_PASS_GRAD, DS_CHECK_RESULT), 1);
    ds_step_check_deinit(&c);
}
