/* LoRA: the step against its definition, x (W + alpha / rank A B), and against closed forms of
 * trained parameters, states, and products. */
#include "tests/support/step.h"

#include "ir/passes/build/count.h"
#include "ir/prove/check.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 3, H = 16, HEADS = 4, KV = 2, D = 4, FFN = 32, VOCAB = 64, S = 8, B = 8, R = 2 };

static const char *llama(const char *train, const char *strategy) {
    static char text[1024];
    snprintf(text, sizeof text,
             "dir 1\nimport \"models/llama.dir\" as g with layers = %d, hidden = %d, heads = %d, "
             "kv_heads = %d, ffn = %d, seq = %d, vocab = %d, batch = %d\n"
             "topology @box { device gpu[4] switch hub "
             "link gpu[i] -- hub : 100 GB/s, 1 us for i in 0..4 }\n"
             "scenario { model = @g.llama, on = @box, train { optimizer = adam, %s }, "
             "strategy { bucket_size = 25 MB%s } }\n",
             LAYERS, H, HEADS, KV, FFN, S, VOCAB, B, train, strategy);
    return text;
}

static void make(step_case *c, const char *text, ds_pass_id last) {
    step_make(c, text, NULL, last);
    cr_assert_eq(c->status, DS_OK, "%s\n%s", c->err.message, text);
    free(step_text(c)); /* it parses, and prints as itself */
}

/* ---- the same numbers ---- */

/* The model has the merged weights (ir/prove/lora.h); then every pass against the one before. */
static void expect_equal(const char *text, uint32_t compared) {
    step_case c;
    ds_step_check check;
    ds_error err = {0};
    step_make(&c, text, NULL, DS_PASS_LOWER);
    cr_assert_eq(c.status, DS_OK, "%s\n%s", c.err.message, text);
    ds_status status =
        ds_model_step_check(&c.binding, &(ds_step_check_options){.seed = 1}, &check, &err);
    cr_assert_eq(status, DS_OK, "%s: %s", text, err.message);
    cr_expect(check.equal, "%s: %s differs", text, check.worst ? check.worst->name : "nothing");
    uint32_t n = 0;
    for (uint32_t i = 0; i < check.rows.n; i++) n += check.rows.at[i].pass == DS_PASS_LOWER;
    cr_expect_eq(n, compared, "%u results of the model", n);
    ds_step_check_deinit(&check);
    step_free(&c);
}

Test(lora, is_its_definition) {
    static const char *const strategies[] = {"",
                                             ", tp = 2",
                                             ", tp = 2, sp = true",
                                             ", dp = 4, zero = 3",
                                             ", dp = 2, cp = 2, zero = 1",
                                             ", recompute = full",
                                             ", offload = [weights, optimizer]"};
    for (uint32_t i = 0; i < sizeof strategies / sizeof *strategies; i++)
        expect_equal(llama("lora_rank = 2, lora_alpha = 6", strategies[i]), 1);
    expect_equal(llama("lora_rank = 4, lora_targets = [q_proj, v_proj]", ""), 1);
    expect_equal(llama("lora_rank = 2, clip_norm = 0.1", ", pp = 3, microbatches = 4"), 0);
    expect_equal(llama("lora_rank = 2, dtype = bf16", ", dp = 2, microbatches = 2, zero = 2"), 0);
}

/* GPT's one weight for q, k and v; weights of experts, which have a dim that is not contracted. */
Test(lora, of_other_products) {
    static const char *const models[] = {
        "models/gpt.dir\" as g with layers = 2, hidden = 16, heads = 4, seq = 8, vocab = 32, "
        "batch = 4, dropout = 0.0",
        "models/mixtral.dir\" as g with layers = 2, hidden = 16, heads = 4, kv_heads = 2, ffn = 8, "
        "experts = 4, seq = 8, vocab = 32, batch = 4"};
    static const char *const names[] = {"gpt", "mixtral"};
    for (int i = 0; i < 2; i++) {
        char text[768];
        snprintf(text, sizeof text,
                 "dir 1\nimport \"%s\ntopology @box { device gpu[4] switch hub "
                 "link gpu[i] -- hub : 100 GB/s, 1 us for i in 0..4 }\n"
                 "scenario { model = @g.%s, on = @box, train { optimizer = sgd, lora_rank = 2, "
                 "lora_alpha = 3 }, strategy { dp = 2 } }\n",
                 models[i], names[i]);
        expect_equal(text, 1);
    }
}

/* ---- gradients ---- */

Test(lora, gradients_of_adapters_alone) {
    step_case c;
    make(&c, llama("lora_rank = 2, lora_alpha = 6, lora_targets = [q, down]", ""), DS_PASS_GRAD);
    cr_expect_eq(ds_step_n_trained(c.step), 4, "two adapters of two weights");
    cr_expect_eq(c.step->func->n_results, 1 + 4, "the loss and the gradients");
    for (uint32_t i = 0; i < c.step->weights.n; i++) {
        const ds_step_weight *w = &c.step->weights.at[i];
        cr_expect_eq(w->frozen, i >= 4);
        cr_expect_eq(w->grad_result == DS_NO_RESULT, i >= 4, "%s", w->name);
        cr_expect_eq(strstr(w->name, ".lora_") != NULL, i < 4, "%s", w->name);
    }
    step_free(&c);
    step_expect_some_gradients(llama("lora_rank = 2, lora_alpha = 6", ""), NULL, 6);
}

/* ---- closed forms ---- */

/* In and out of the seven products of a layer of Llama. */
static const int64_t in_out[7][2] = {{H, HEADS *D}, {H, KV *D}, {H, KV *D}, {HEADS * D, H},
                                     {H, FFN},      {H, FFN},   {FFN, H}};

static int64_t elements(const step_case *c, ds_value value) {
    const ds_value_info *info = ds_value_at(c->step->func, value);
    ds_env env = ds_binding_env(&c->step->binding, NULL);
    int64_t n = 1, lo = 0, hi = 1, size;
    if (info->n_binders) {
        cr_assert_eq(ds_expr_eval_int(&env, info->binders[0].lo, DS_NOWHERE, &lo, NULL), DS_OK);
        cr_assert_eq(ds_expr_eval_int(&env, info->binders[0].hi, DS_NOWHERE, &hi, NULL), DS_OK);
    }
    for (uint32_t d = 0; d < info->type->rank; d++) {
        cr_assert_eq(ds_expr_eval_int(&env, info->type->dims[d].size, DS_NOWHERE, &size, NULL),
                     DS_OK);
        n *= size;
    }
    return n * (hi - lo);
}

static int64_t trained(const step_case *c) {
    int64_t n = 0;
    for (uint32_t i = 0; i < ds_step_n_trained(c->step); i++)
        n += elements(c, c->step->weights.at[i].arg);
    return n;
}

/* r (in + out) a product; with Adam in mixed precision three numbers of 32 bits each beside. */
Test(lora, parameters_and_states) {
    int64_t sum = 0;
    for (int i = 0; i < 7; i++) sum += LAYERS * R * (in_out[i][0] + in_out[i][1]);
    step_case c;
    make(&c, llama("lora_rank = 2, dtype = bf16", ""), DS_PASS_OPTIMIZER);
    cr_expect_eq(trained(&c), sum);
    int64_t states = 0;
    for (uint32_t i = 0; i < c.step->func->n_args; i++) {
        const ds_value_info *info = ds_value_at(c.step->func, c.step->func->args[i]);
        const ds_attr *role = ds_attr_find(info->attrs, info->n_attrs, "role");
        if (!role || strcmp(role->word, "optimizer") != 0) continue;
        states +=
            elements(&c, c.step->func->args[i]) * (int64_t)ds_dtype_bits(info->type->dtype) / 8;
    }
    cr_expect_eq(states, 12 * sum);
    step_free(&c);
    make(&c, llama("lora_rank = 2, lora_targets = [linear_qkv]", ""), DS_PASS_LOWER);
    cr_expect_eq(trained(&c), LAYERS * R * (3 * H + HEADS * D + 2 * KV * D));
    step_free(&c);
    make(&c, llama("lora_rank = 2, lora_targets = [q_proj, logits]", ""), DS_PASS_LOWER);
    cr_expect_eq(trained(&c), LAYERS * R * (H + HEADS * D) + R * (H + VOCAB));
    step_free(&c);
}

static int64_t products(const char *text) {
    step_case c;
    ds_model_counts n;
    make(&c, text, DS_PASS_GRAD);
    cr_assert_eq(ds_model_count(&c.step->binding, c.step->func, &n, NULL), DS_OK);
    step_free(&c);
    return (int64_t)n.matmul_flop;
}

/* T tokens: a frozen weight of P numbers costs 4 P T in place of 6 P T, an adapter 6 r (in + out) T. */
Test(lora, frozen_weights_have_no_products_of_gradients) {
    const int64_t T = B * S;
    int64_t all = products(llama("lr = 1", "")), frozen = H * VOCAB, adapters = 0;
    for (int i = 0; i < 7; i++) {
        frozen += LAYERS * in_out[i][0] * in_out[i][1];
        adapters += LAYERS * R * (in_out[i][0] + in_out[i][1]);
    }
    cr_expect_eq(products(llama("lora_rank = 2", "")), all - 2 * frozen * T + 6 * adapters * T);
}

/* ---- refused ---- */

static void refuse(const char *text, const char *message) {
    step_case c;
    step_make(&c, text, NULL, DS_PASS_LOWER);
    cr_expect_neq(c.status, DS_OK, "%s", text);
    cr_expect(strstr(c.err.message, message), "%s", c.err.message);
    step_free(&c);
}

Test(lora, says_why_not) {
    refuse(llama("lora_rank = 2, lora_targets = [qq]", ""), "\"qq\" is no product");
    refuse(llama("lora_rank = 0", ""), "lora_rank");
    refuse(llama("lora_rank = 2, lora_targets = [core]", ""), "there are q, k, v, proj, gate, up, "
                                                              "down, logits");
}
