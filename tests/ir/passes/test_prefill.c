/* A prompt at once equals the prompt turn by turn: every op that has a form for several turns, in
 * one chunk and in several, against the definition of the rec; and the ops of chunks against what
 * they are by hand. */
#include "ir/lang/lang.h"
#include "ir/passes/passes.h"
#include "tests/support/exec.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define PROMPT 6

/* Executes the step that `lower` makes of the text. */
static ds_status run_step(const exec_case *model, exec_case *out, ds_buf *printed) {
    ds_model_step *step;
    memset(out, 0, sizeof *out);
    ds_status status = ds_model_step_new(&model->binding, &step, &out->err);
    if (status != DS_OK) return status;
    ds_print_module(step->unit->modules.at[0], printed);
    ds_exec_options options = {.seed = 1, .keep_inputs = true};
    exec_text(out, printed->text, NULL, &options);
    cr_assert_eq(out->status, DS_OK, "%s\n%s", out->err.message, printed->text);
    ds_model_step_free(step);
    return DS_OK;
}

static void put_scenario(ds_buf *text, const char *rec, int chunk) {
    ds_buf_put(text, rec);
    ds_buf_printf(text,
                  "scenario { model = @f, tokens { dim = t, prompt = %d, batch = 2 }, strategy { "
                  "prefill = vector, prefill_chunk = %d } }\n",
                  PROMPT, chunk);
}

/* One chunk, and chunks of one, two and three turns. */
static void expect_equal(const char *rec, const char *has) {
    static const int chunks[] = {0, 1, 2, 3};
    for (int c = 0; c < 4; c++) {
        ds_buf text = {0}, printed = {0};
        exec_case model, step;
        put_scenario(&text, rec, chunks[c]);
        exec_text(&model, text.text, NULL, NULL);
        cr_assert_eq(model.status, DS_OK, "%s\n%s", model.err.message, text.text);
        cr_assert_eq(run_step(&model, &step, &printed), DS_OK, "%s\n%s", step.err.message,
                     text.text);
        exec_expect_same(&model, &step, printed.text);
        cr_expect(!has || strstr(printed.text, has), "no %s in\n%s", has, printed.text);
        exec_free(&step);
        exec_free(&model);
        ds_buf_deinit(&printed);
        ds_buf_deinit(&text);
    }
}

/* %y of the lines, for each turn of %x{t}: [2, 4], over layers as weights. */
static void expect_lines(const char *lines, const char *type, const char *has) {
    ds_buf text = {0};
    ds_buf_printf(&text,
                  "dir 1\nparam T = 9\n"
                  "func @f(%%x{t: 0..T}: f64[2, 4], %%w: f64[4, 3], %%s: f64[4], %%c: f64[2, 4], "
                  "%%p: f64[9, 4], %%m: f64[2, 3, 1, 4]) -> {t: 0..T} %s {\n"
                  "  %%r = rec (t in 0..T) {\n%s    yield %%y\n  }\n  return %%r\n}\n",
                  type, lines);
    expect_equal(text.text, has);
    ds_buf_deinit(&text);
}

Test(prefill, elementwise) {
    expect_lines("%y = add(%x{t}, %c)\n", "f64[2, 4]", "expand");
    expect_lines("%y = mul(%x{t}, %s)\n", "f64[2, 4]", "mul(");
    expect_lines("%a = tanh(%x{t})\n%y = sub(%c, %a)\n", "f64[2, 4]", "expand");
    expect_lines("%a = reduce_sum(%x{t}) {dims = [0]}\n%b = exp(%a)\n%y = div(%x{t}, %b)\n",
                 "f64[2, 4]", "div(");
    expect_lines("%a = bias(%x{t}, %s)\n%y = scale(%a) {factor = 0.5}\n", "f64[2, 4]", "bias");
    expect_lines("%a = bias(%x{t}, %q) {dim = 0}\n%q = reduce_sum(%c) {dims = [1]}\n%y = neg(%a)\n",
                 "f64[2, 4]", "dim = 0");
    expect_lines("%y = dropout(%x{t}) {p = 0.0}\n", "f64[2, 4]", NULL);
    expect_lines("%a = cast(%x{t}) {dtype = f32}\n%y = cast(%a) {dtype = f64}\n", "f64[2, 4]",
                 "cast");
}

Test(prefill, products) {
    expect_lines("%y = matmul(%x{t}, %w)\n", "f64[2, 3]", "matmul");
    expect_lines("%y = matmul(%x{t}, %c) {transpose_a = true}\n", "f64[4, 4]", "transpose");
    expect_lines("%y = matmul(%c, %x{t}) {transpose_b = true}\n", "f64[2, 2]", "expand");
}

Test(prefill, products_of_two_turns) {
    expect_lines("%a = transpose(%x{t})\n%y = matmul(%x{t}, %a)\n", "f64[2, 2]", "transpose");
    expect_lines("%y = einsum(%x{t}, %x{t}) {rule = \"a b, c b -> c a\"}\n", "f64[2, 2]",
                 "a turn b, c turn b -> c turn a");
    expect_lines("%y = einsum(%w, %x{t}) {rule = \"b c, a b -> c a\"}\n", "f64[3, 2]", "turn");
}

Test(prefill, along_the_last_dims) {
    expect_lines("%y = rms_norm(%x{t}, %s)\n", "f64[2, 4]", "rms_norm");
    expect_lines("%y = layer_norm(%x{t}, %s, %s)\n", "f64[2, 4]", "layer_norm");
    expect_lines("%y = softmax(%x{t}) {dim = 0}\n", "f64[2, 4]", "softmax");
    expect_lines("%y, %i = topk(%x{t}) {k = 2}\n", "f64[2, 2]", "topk");
    expect_lines("%a = reduce_max(%x{t}) {dims = [1], keep = true}\n%y = sub(%x{t}, %b)\n"
                 "%b = einsum(%a, %one) {rule = \"a z, z b -> a b\"}\n"
                 "%one = fill() {value = 1.0} : f64[1, 4]\n",
                 "f64[2, 4]", "keep");
    expect_lines("%a = reduce_mean(%x{t})\n%y = mul(%x{t}, %a)\n", "f64[2, 4]", "reduce_mean");
}

Test(prefill, layout) {
    expect_lines("%y = reshape(%x{t}) {shape = [2, 2, 2]}\n", "f64[2, 2, 2]", "reshape");
    expect_lines("%y = reshape(%x{t}) {shape = [8]}\n", "f64[8]", "transpose");
    expect_lines("%a, %b = split(%x{t}) {dim = 1}\n%y = concat(%b, %c, %a) {dim = 1}\n",
                 "f64[2, 8]", "concat");
    expect_lines("%a = slice(%x{t}) {dim = 1, lo = 1, hi = 3}\n%y = pad(%a) {dim = 0, lo = 1}\n",
                 "f64[3, 2]", "pad");
    expect_lines("%y = expand(%x{t}) {dims = [0, 2], sizes = [3, 2]}\n", "f64[3, 2, 2, 4]",
                 "expand");
    expect_lines("%a = slice(%p) {dim = 0, lo = t, hi = t + 1}\n%y = add(%x{t}, %a)\n", "f64[2, 4]",
                 "slice(%p)");
}

Test(prefill, attention_over_all_turns_and_windows) {
    static const char *const ranges[] = {"0:t + 1", "max(0, t - 2):t + 1", "max(0, t):t + 1",
                                         "max(t - 7, 0):t + 1"};
    for (int k = 0; k < 4; k++) {
        char lines[500];
        snprintf(lines, sizeof lines,
                 "%%z = reshape(%%x{t}) {shape = [2, 1, 4]}\n"
                 "%%n = tanh(%%z)\n%%q = reshape(%%x{t}) {shape = [2, 1, 1, 4]}\n"
                 "%%r = rotary(%%q) {start = t}\n"
                 "%%ks = stack(%%z{%s}) {dim = 1}\n%%vs = stack(%%n{%s}) {dim = 1}\n"
                 "%%y = attention(%%r, %%ks, %%vs)\n",
                 ranges[k], ranges[k]);
        expect_lines(lines, "f64[2, 1, 1, 4]", "causal = true");
    }
}

Test(prefill, attention_to_the_same_keys) {
    expect_lines("%q = reshape(%x{t}) {shape = [2, 1, 1, 4]}\n%y = attention(%q, %m, %m)\n",
                 "f64[2, 1, 1, 4]", NULL);
    expect_lines("%q = reshape(%x{t}) {shape = [1, 2, 1, 4]}\n"
                 "%y = attention(%q, %q, %q) {causal = true}\n",
                 "f64[1, 2, 1, 4]", NULL);
}

/* Layers, a branch by layer, and a first layer that is the same for all turns. */
Test(prefill, layers) {
    expect_equal("dir 1\nparam T = 8\nfunc @f(%x{t: 0..T}: f64[2, 4], %c: f64[2, 4], %w{l: 0..5}: "
                 "f64[4, 4]) -> {t: 0..T} f64[2, 4] {\n"
                 "  %r = rec (t in 0..T, l in 0..5) {\n"
                 "    %i = case l == 0: %c, else: %o{t, l - 1}\n"
                 "    %a = matmul(%i, %w{l})\n    %b = add(%a, %x{t})\n"
                 "    %o = tanh(%b)\n    yield %o{t, 4}\n  }\n  return %r\n}\n",
                 "for l in");
    expect_equal("dir 1\nparam T = 8\nfunc @f(%x{t: 0..T}: f64[2, 4], %w{l: 0..3}: f64[4, 4]) -> "
                 "{t: 0..T, l: 0..3} f64[2, 4] {\n"
                 "  %r = rec (t in 0..T, l in 0..3) {\n"
                 "    %o = matmul(%x{t}, %w{l})\n    yield %o\n  }\n  return %r\n}\n",
                 NULL);
}

/* The prompt's last turn alone is read: by a turn, of a chunk. */
Test(prefill, one_turn_of_a_chunk) {
    expect_equal("dir 1\nparam T = 9\nfunc @f(%x{t: 0..6}: f64[2, 4], %w: f64[4, 4]) -> {t: 0..T} "
                 "f64[2, 4] {\n"
                 "  %r = rec (t in 0..T) {\n"
                 "    %i = case t < 6: %x{t}, else: %n{t - 1}\n"
                 "    %h = reshape(%i) {shape = [2, 1, 4]}\n"
                 "    %q = reshape(%i) {shape = [2, 1, 1, 4]}\n"
                 "    %ks = stack(%h{0:t + 1}) {dim = 1}\n"
                 "    %a = attention(%q, %ks, %ks)\n"
                 "    %o = reshape(%a) {shape = [2, 4]}\n"
                 "    %m = matmul(%o, %w)\n    %n = tanh(%m)\n    yield %i\n  }\n  return %r\n}\n",
                 "attention");
}

/* ---- refusals ---- */

static void expect_refused(const char *lines, int chunk, const char *message) {
    ds_buf text = {0}, rec = {0}, printed = {0};
    exec_case model, step;
    ds_buf_printf(&rec,
                  "dir 1\nparam T = 9\nfunc @f(%%x{t: 0..T}: f64[2, 4], %%c: f64[2, 4]) -> {t: "
                  "0..T} f64[2, 4] {\n  %%r = rec (t in 0..T) {\n%s    yield %%y\n  }\n  return "
                  "%%r\n}\n",
                  lines);
    put_scenario(&text, rec.text, chunk);
    exec_text(&model, text.text, NULL, NULL);
    cr_assert_eq(model.status, DS_OK, "%s\n%s", model.err.message, text.text);
    cr_assert_neq(run_step(&model, &step, &printed), DS_OK, "%s", text.text);
    cr_expect_str_eq(step.err.message, message);
    exec_free(&model);
    ds_buf_deinit(&printed);
    ds_buf_deinit(&rec);
    ds_buf_deinit(&text);
}

Test(prefill, refusals) {
    expect_refused("%y = add(%x{t}, %s)\n%s = case t == 0: %c, else: %y{t - 1} : f64[2, 4]\n", 0,
                   "prefill = vector: inside the prompt of 6 turns %s takes different branches, so "
                   "its turns cannot run at once");
    expect_refused("%z = tanh(%x{t})\n%y = case t < 6: %z, else: %x{t}\n%v = neg(%y)\n", 4,
                   "prefill_chunk = 4 does not divide the prompt of 6 turns");
    expect_refused("%z = tanh(%x{t})\n%y = add(%z, %z{max(t - 1, 0)})\n", 0,
                   "prefill = vector: inside the prompt of 6 turns %y needs %z of another turn, so "
                   "its turns cannot run at once");
    expect_refused("%z = tanh(%x{t})\n%y = reduce_sum(%z{0:t + 1}) {dims = [0]}\n", 0,
                   "prefill = vector: reduce_sum has no form for several turns at once: it reads a "
                   "range of turns");
    expect_refused("%y = scale(%x{t}) {factor = 0.5 * t}\n", 0,
                   "prefill = vector: scale has no form for several turns at once: 'factor' "
                   "depends on the turn");
    expect_refused("%z = tanh(%x{t})\n%y = reduce_sum(%z{t:T}) {dims = [0]}\n", 0,
                   "prefill = vector: inside the prompt of 6 turns %y reads a range of turns that "
                   "is neither all so far nor a window that ends with the turn");
    expect_refused("%y = dropout(%x{t}) {p = 0.5}\n", 0,
                   "prefill = vector: dropout has no form for several turns at once: each turn has "
                   "its own mask");
}
