/* Gradients of whole models, small, against differences of the loss; microbatches. */
#include "tests/support/step.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void expect(const char *model, const char *settings) {
    char text[512];
    snprintf(text, sizeof text,
             "dir 1\nimport \"models/%s.dir\"\nscenario { model = @%s, train { loss = %s, "
             "optimizer = none } }\n",
             model, model, strcmp(model, "mlp") ? "none" : "mse");
    step_expect_some_gradients(text, settings, 2);
}

Test(grad_models, mlp) {
    expect("mlp", "layers=3 width=4 batch=5");
}

Test(grad_models, gpt) {
    expect("gpt", "layers=2 hidden=8 heads=2 seq=4 vocab=11 batch=2");
}

Test(grad_models, llama) {
    expect("llama", "layers=2 hidden=8 heads=4 kv_heads=2 ffn=6 vocab=11 seq=4 batch=2");
}

Test(grad_models, mixtral) {
    expect("mixtral",
           "layers=2 hidden=8 heads=2 kv_heads=1 ffn=4 experts=4 top=2 vocab=11 seq=4 batch=2");
}

Test(grad_models, transformer) {
    expect("transformer", "layers=2 hidden=8 heads=2 ffn=6 vocab=11 seq=4 target_seq=3 batch=2");
}

Test(grad_models, bert) {
    expect("bert", "layers=1 hidden=8 heads=2 seq=4 vocab=11 batch=2");
}

Test(grad_models, t5) {
    expect("t5", "layers=2 hidden=8 heads=2 head_dim=4 ffn=6 seq=4 target_seq=3 vocab=11 batch=2");
}

Test(grad_models, alexnet) {
    expect("alexnet", "batch=1 image=63 classes=4 width=1 hidden=6");
}

Test(grad_models, rnnlm) {
    expect("rnnlm", "batch=2 seq=3 vocab=7 hidden=4 layers=2");
}

Test(grad_models, resnet) {
    expect("resnet", "batch=2 image=16 classes=5 width=2 blocks1=1 blocks2=1 blocks3=1 blocks4=1");
}

/* ---- microbatches ---- */

/* The same tensor over all microbatches: x{0}, x{1}, … one after the other; of an element of a family
 * x{t}: x{0,t}, x{1,t}, … */
static ds_exec_tensor join(const ds_exec_tensor *parts, uint32_t n, const char *name, int m) {
    ds_exec_tensor whole = {0};
    for (int i = 0; i < m; i++) {
        char part_name[64];
        const char *element = strchr(name, '{');
        int plain = element ? (int)(element - name) : (int)strlen(name);
        snprintf(part_name, sizeof part_name, "%.*s{%d%s%s", plain, name, i, element ? "," : "}",
                 element ? element + 1 : "");
        for (uint32_t k = 0; k < n; k++) {
            const ds_exec_tensor *part = &parts[k];
            if (strcmp(part->name, part_name) != 0) continue;
            if (!i) {
                whole = *part;
                whole.at = malloc((size_t)(part->n * m) * sizeof *whole.at);
                whole.dims[0] *= m;
                whole.n = 0;
            }
            memcpy(whole.at + whole.n, part->at, (size_t)part->n * sizeof *whole.at);
            whole.n += part->n;
        }
    }
    whole.name = name;
    return whole;
}

/* The step of m microbatches equals that of one batch, where the loss is a mean over samples. */
static void expect_equal(const char *text, const char *const *inputs, uint32_t n_inputs, int m) {
    step_case one, many;
    char settings[32];
    snprintf(settings, sizeof settings, "m=%d", m);
    step_make(&one, text, "m=1", DS_PASS_GRAD);
    step_make(&many, text, settings, DS_PASS_GRAD);
    cr_assert_eq(many.status, DS_OK, "%s", many.err.message);
    free(step_text(&many));
    ds_exec_result *b = step_run(&many, 3, NULL, 0);
    ds_exec_tensor given[8];
    for (uint32_t i = 0; i < n_inputs; i++)
        given[i] = join(b->inputs.at, b->inputs.n, inputs[i], m);
    ds_exec_result *a = step_run(&one, 3, given, n_inputs);
    ds_exec_comparison c;
    ds_exec_compare(a, b, DS_EXEC_BOUND, &c);
    for (uint32_t i = 0; i < c.outputs.n; i++)
        cr_expect(c.outputs.at[i].equal && c.outputs.at[i].by_name,
                  "m = %d: %s differs by %g of %g", m,
                  c.outputs.at[i].a ? c.outputs.at[i].a->name : c.outputs.at[i].b->name,
                  c.outputs.at[i].max_difference, c.outputs.at[i].max_a);
    cr_assert(c.equal);
    ds_exec_comparison_deinit(&c);
    ds_exec_result_free(a);
    ds_exec_result_free(b);
    for (uint32_t i = 0; i < n_inputs; i++) free(given[i].at);
    step_free(&one);
    step_free(&many);
}

static const char mlp[] =
    "dir 1\nparam batch = 12, layers = 3, m = 1\n"
    "func @f(%x: f32[batch@dp, 4], %t: f32[batch@dp, 4]) -> (f32[], f32[batch@dp, 4]) {\n"
    "  weight %tied : f32[4, 4]\n  weight %c : f32[4]\n  %i = matmul(%x, %tied)\n"
    "  %y = for l in 0..layers carry (%h = %i) {\n    weight %w : f32[4, 4]\n"
    "    weight %b : f32[4]\n    %z = matmul(%h, %w)\n    %q = bias(%z, %b)\n    %a = tanh(%q)\n"
    "    %u = matmul(%a, %tied)\n    yield %u\n  }\n  %o = bias(%y, %c)\n  %loss = mse(%o, %t)\n"
    "  return %loss, %o\n}\n"
    "scenario {\n  model = @f\n  train { loss = none, optimizer = none }\n"
    "  strategy { microbatches = m }\n}\n";

Test(grad_models, microbatches_are_one_batch) {
    const char *const inputs[] = {"x", "t"};
    for (int m = 2; m <= 6; m++)
        if (12 % m == 0) expect_equal(mlp, inputs, 2, m);
}

Test(grad_models, microbatches_of_a_transformer) {
    const char *const inputs[] = {"ids", "labels"};
    static const char text[] =
        "dir 1\nparam m = 1\nimport \"models/llama.dir\" with layers = 2, hidden = 8, heads = 4, "
        "kv_heads = 2, ffn = 6, vocab = 11, seq = 4, batch = 6\n"
        "scenario {\n  model = @llama\n  train { loss = none, optimizer = none }\n"
        "  strategy { microbatches = m }\n}\n";
    expect_equal(text, inputs, 2, 2);
    expect_equal(text, inputs, 2, 3);
}

#define REC(RESULT, END, TRAIN)                                                                    \
    "dir 1\nparam m = 1, T = 3, b = 6, d = 4\n"                                                    \
    "func @f(%x{t: 0..T}: f32[b@dp, d], %y: f32[b@dp, d], %h0: f32[b@dp, d]) -> " RESULT " {\n"    \
    "  weight %w : f32[d, d]\n  weight %v : f32[d, d]\n  %h = rec (t in 0..T) {\n"                 \
    "    %s = case t == 0: %h0, else: %u{t - 1}\n    %p = matmul(%x{t}, %w)\n"                     \
    "    %q = matmul(%s, %v)\n    %z = add(%p, %q)\n    %u = tanh(%z)\n"                           \
    "    %g = reduce_sum(%u{0:t + 1}) {dims = [0]}\n    yield %g\n  }\n" END                       \
    "scenario {\n  model = @f\n  strategy { microbatches = m }\n" TRAIN "}\n"
static const char *const rec_inputs[] = {"x{0}", "x{1}", "x{2}", "y", "h0"};

/* Families as inputs: of points in time. */
Test(grad_models, microbatches_of_a_rec) {
    static const char text[] = REC("f32[]", "  %loss = mse(%h{T - 1}, %y)\n  return %loss\n}\n",
                                   "  train { loss = none, optimizer = none }\n");
    for (int m = 2; m <= 3; m++) expect_equal(text, rec_inputs, 5, m);
}

/* Without training the parts of the batch run one after the other. */
Test(grad_models, parts_of_a_rec) {
    static const char text[] =
        REC("{t: 0..3} f32[b, d]", "  %k = add(%h{0}, %y)\n  return %h\n}\n", "");
    step_case one, many;
    step_make(&one, text, "m=1", DS_PASS_LOWER);
    step_make(&many, text, "m=3", DS_PASS_LOWER);
    cr_assert_eq(many.status, DS_OK, "%s", many.err.message);
    ds_exec_result *b = step_run(&many, 3, NULL, 0);
    ds_exec_tensor given[5];
    for (uint32_t i = 0; i < 5; i++) given[i] = join(b->inputs.at, b->inputs.n, rec_inputs[i], 3);
    ds_exec_result *a = step_run(&one, 3, given, 5);
    cr_assert_eq(a->outputs.n, 3);
    cr_assert_eq(b->outputs.n, 9); /* %h{m, t} */
    for (uint32_t k = 0; k < 9; k++) {
        const ds_exec_tensor *part = &b->outputs.at[k], *x = &a->outputs.at[k % 3];
        cr_assert_eq(x->n, 3 * part->n);
        for (int64_t i = 0; i < part->n; i++)
            cr_expect_float_eq(part->at[i], x->at[k / 3 * part->n + i], 1e-12);
    }
    for (uint32_t i = 0; i < 5; i++) free(given[i].at);
    ds_exec_result_free(a);
    ds_exec_result_free(b);
    step_free(&one);
    step_free(&many);
}

/* Masks differ by microbatch, and gradients are those of the masks: the loss that the step gives
 * has the gradients that it gives. */
Test(grad_models, microbatches_with_dropout) {
    static const char text[] =
        "dir 1\nparam batch = 8, m = 4\n"
        "func @f(%x: f32[batch@dp, 4]) -> f32[] {\n  weight %w : f32[4, 4]\n"
        "  %z = matmul(%x, %w)\n  %d = dropout(%z) {p = 0.5}\n  %s = mul(%d, %d)\n"
        "  %loss = reduce_mean(%s)\n  return %loss\n}\n"
        "scenario {\n  model = @f\n  train { loss = none, optimizer = none }\n"
        "  strategy { microbatches = m }\n}\n";
    step_case c;
    step_make(&c, text, NULL, DS_PASS_GRAD);
    ds_exec_result *r = step_run(&c, 1, NULL, 0);
    ds_exec_tensor w = {0};
    for (uint32_t i = 0; i < r->inputs.n; i++)
        if (strcmp(r->inputs.at[i].name, "w") == 0) w = r->inputs.at[i];
    const ds_exec_tensor *g = ds_exec_output(r, "w.grad");
    for (int64_t i = 0; i < w.n; i += 5) {
        double at = w.at[i], f[2];
        for (int k = 0; k < 2; k++) {
            w.at[i] = at + (k ? 1e-4 : -1e-4);
            ds_exec_result *moved = step_run(&c, 1, &w, 1);
            f[k] = moved->outputs.at[0].at[0];
            ds_exec_result_free(moved);
        }
        w.at[i] = at;
        cr_assert_float_eq((f[1] - f[0]) / 2e-4, g->at[i], 1e-7);
    }
    /* One text for the two in the middle; their calls tell them apart. */
    char *printed = step_text(&c);
    cr_assert(strstr(printed, "func @next(") && !strstr(printed, "func @next_"), "%s", printed);
    cr_assert(strstr(printed, "{microbatch = 1}") && strstr(printed, "{microbatch = 2}"), "%s",
              printed);
    free(printed);
    ds_exec_result_free(r);
    step_free(&c);
}

/* Three texts, whatever the number of microbatches; the last one's sums are marked. */
Test(grad_models, microbatches_share_their_text) {
    step_case c;
    step_make(&c, mlp, "m=6", DS_PASS_GRAD);
    const ds_module *module = c.step->unit->modules.at[0];
    cr_assert_eq(module->funcs.n, 4);
    char *text = step_text(&c);
    int next = 0, accumulate = 0;
    for (const char *at = text; (at = strstr(at, "call @next(")); at++) next++;
    for (const char *at = text; (at = strstr(at, "role = gradient}")); at++) accumulate++;
    cr_assert_eq(next, 4);
    /* 4 weights: in @next and @last an argument each; in @last an op each */
    cr_assert_eq(accumulate, 12, "%s", text);
    free(text);
    step_free(&c);
}
