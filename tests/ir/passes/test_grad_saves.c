/* What the op table says of gradients, `saves` and `backward`, held against what the pass grad writes.
 * One model an op, its operands weights by turns; the loss is the sum of its results, whose own
 * gradient reads nothing. An elementwise op of one operand needs no sample here. */
#define _GNU_SOURCE
#include "tests/support/step.h"

#include "ir/ops/ops.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Operands and results have the names of the line's form. `wanted`: operands that may have a
 * gradient; `summed`: the results that the loss is the sum of. */
typedef struct sample {
    const char *op, *operands, *line, *wanted, *summed;
} sample;

static const sample samples[] = {
    {"matmul", "%a: f32[3, 4], %b: f32[4, 5]", "%y = matmul(%a, %b)", "a b", "y"},
    {"einsum", "%a: f32[3, 4], %b: f32[4, 5]", "%y = einsum(%a, %b) {rule = \"m k, k n -> m n\"}",
     "a b", "y"},
    {"bias", "%x: f32[3, 4], %b: f32[4]", "%y = bias(%x, %b)", "x b", "y"},
    {"add", "%a: f32[3, 4], %b: f32[4]", "%y = add(%a, %b)", "a b", "y"},
    {"sub", "%a: f32[3, 4], %b: f32[4]", "%y = sub(%a, %b)", "a b", "y"},
    {"mul", "%a: f32[3, 4], %b: f32[4]", "%y = mul(%a, %b)", "a b", "y"},
    {"div", "%a: f32[3, 4], %b: f32[4]", "%y = div(%a, %b)", "a b", "y"},
    {"scale", "%x: f32[3]", "%y = scale(%x) {factor = 2.0}", "x", "y"},
    {"cast", "%x: bf16[3]", "%y = cast(%x) {dtype = f32}", "x", "y"},
    {"accumulate", "%acc: f32[3], %x: bf16[3]", "%y = accumulate(%acc, %x)", "acc x", "y"},
    {"softmax", "%x: f32[3, 4]", "%y = softmax(%x)", "x", "y"},
    {"layer_norm", "%x: f32[3, 4], %scale: f32[4], %shift: f32[4]",
     "%y = layer_norm(%x, %scale, %shift)", "x scale shift", "y"},
    {"rms_norm", "%x: f32[3, 4], %scale: f32[4]", "%y = rms_norm(%x, %scale)", "x scale", "y"},
    {"batch_norm", "%x: f32[3, 4, 2, 2], %scale: f32[4], %shift: f32[4]",
     "%y = batch_norm(%x, %scale, %shift)", "x scale shift", "y"},
    {"embedding", "%ids: i32[3], %table: f32[8, 4]", "%y = embedding(%ids, %table)", "table", "y"},
    {"pick", "%x: f32[3, 4], %labels: i32[3]", "%y = pick(%x, %labels)", "x", "y"},
    {"cross_entropy", "%logits: f32[3, 4], %labels: i32[3]",
     "%l, %lse = cross_entropy(%logits, %labels)", "logits", "l"},
    {"mse", "%x: f32[3, 4], %y: f32[3, 4]", "%l = mse(%x, %y)", "x y", "l"},
    {"conv2d", "%x: f32[1, 2, 4, 4], %w: f32[3, 2, 2, 2]", "%y = conv2d(%x, %w)", "x w", "y"},
    {"max_pool", "%x: f32[1, 2, 4, 4]", "%y = max_pool(%x) {window = 2}", "x", "y"},
    {"avg_pool", "%x: f32[1, 2, 4, 4]", "%y = avg_pool(%x) {window = 2}", "x", "y"},
    {"causal_conv", "%x: f32[2, 3, 4], %w: f32[4, 2], %bias: f32[4]",
     "%y = causal_conv(%x, %w, %bias)", "x w bias", "y"},
    {"ssd_scan",
     "%x: f32[1, 3, 2, 2], %dt: f32[1, 3, 2], %b: f32[1, 3, 1, 2], %c: f32[1, 3, 1, 2], "
     "%a: f32[2], %d: f32[2], %bias: f32[2]",
     "%y = ssd_scan(%x, %dt, %b, %c, %a, %d, %bias)", "x dt b c a d bias", "y"},
    {"lstm",
     "%x: f32[2, 3, 4], %wx: f32[4, 20], %wh: f32[5, 20], %b: f32[20], %h0: f32[2, 5], "
     "%c0: f32[2, 5]",
     "%y, %h = lstm(%x, %wx, %wh, %b, %h0, %c0)", "x wx wh b h0 c0", "y h"},
    {"attention", "%q: f32[2, 3, 4, 8], %k: f32[2, 3, 4, 8], %v: f32[2, 3, 4, 8]",
     "%o, %lse = attention(%q, %k, %v)", "q k v", "o"},
    {"rotary", "%x: f32[2, 3, 4, 8]", "%y = rotary(%x)", "x", "y"},
    {"reshape", "%x: f32[3, 4]", "%y = reshape(%x) {shape = [12]}", "x", "y"},
    {"transpose", "%x: f32[3, 4]", "%y = transpose(%x)", "x", "y"},
    {"stack", "%x: f32[3, 4, 2]", "%y = stack(%x) {dim = 1}", "x", "y"},
    {"concat", "%a: f32[3, 4], %b: f32[2, 4]", "%y = concat(%a, %b)", "a b", "y"},
    {"split", "%x: f32[4, 4]", "%a, %b = split(%x)", "x", "a b"},
    {"slice", "%x: f32[4, 4]", "%y = slice(%x) {lo = 1, hi = 3}", "x", "y"},
    {"pad", "%x: f32[4, 4]", "%y = pad(%x) {lo = 1}", "x", "y"},
    {"put", "%c: f32[4, 4], %x: f32[2, 4]", "%y = put(%c, %x) {at = 1}", "c x", "y"},
    {"expand", "%x: f32[4]", "%y = expand(%x) {dims = [0], sizes = [3]}", "x", "y"},
    {"after", "%x: f32[4], %done: f32[4]", "%y = after(%x, %done)", "x", "y"},
    {"reduce_sum", "%x: f32[3, 4]", "%y = reduce_sum(%x) {dims = 0}", "x", "y"},
    {"reduce_mean", "%x: f32[3, 4]", "%y = reduce_mean(%x) {dims = 0}", "x", "y"},
    {"reduce_max", "%x: f32[3, 4]", "%y = reduce_max(%x) {dims = 0}", "x", "y"},
    {"topk", "%x: f32[3, 4]", "%values, %indices = topk(%x) {k = 2}", "x", "values"},
    {"dispatch", "%x: f32[1, 4, 8], %indices: i32[1, 4, 2], %weights: f32[1, 4, 2]",
     "%b = dispatch(%x, %indices, %weights) {experts = 2, capacity = 4}", "x weights", "b"},
    {"combine", "%b: f32[1, 2, 4, 8], %indices: i32[1, 4, 2], %weights: f32[1, 4, 2]",
     "%y = combine(%b, %indices, %weights)", "b weights", "y"},
};
enum { N_SAMPLES = sizeof samples / sizeof *samples, MAX_NAMES = 12, NAME = 16 };

/* `line` is where the line of an op without a sample is written. */
static sample sample_of(const ds_op_desc *desc, char line[64]) {
    for (size_t i = 0; i < N_SAMPLES; i++)
        if (strcmp(samples[i].op, desc->name) == 0) return samples[i];
    bool simple = strcmp(desc->family, "elementwise") == 0 && desc->max_in == 1 && !desc->form;
    cr_assert(simple, "no sample of %s", desc->name);
    snprintf(line, 64, "%%y = %s(%%x)", desc->name);
    return (sample){desc->name, "%x: f32[3]", line, "x", "y"};
}

/* ---- names ---- */

typedef struct names {
    char at[MAX_NAMES][NAME];
    uint32_t n;
} names;

static void add_name(names *list, const char *text) {
    cr_assert_lt(list->n, MAX_NAMES);
    size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789");
    snprintf(list->at[list->n++], NAME, "%.*s", (int)n, text);
}

/* "a b" */
static names words(const char *text) {
    names out = {0};
    for (; *text; text += strspn(text, " ")) {
        add_name(&out, text);
        text += strcspn(text, " ");
    }
    return out;
}

/* All operands, then all results. */
static names values_of(const sample *s) {
    names out = {0};
    for (const char *at = strchr(s->operands, '%'); at; at = strchr(at + 1, '%'))
        add_name(&out, at + 1);
    for (const char *at = s->line; *at != '='; at++)
        if (*at == '%') add_name(&out, at + 1);
    return out;
}

/* ---- what is read ---- */

/* The model with operand `wanted` for its only weight. */
static void put_model(const sample *s, const char *wanted, ds_buf *text) {
    char mark[NAME + 4], type[64] = "";
    names summed = words(s->summed);
    snprintf(mark, sizeof mark, "%%%s: ", wanted);
    const char *own = strstr(s->operands, mark), *sep = "";
    sscanf(own + strlen(mark), "%63[^]]", type);
    ds_buf_put(text, "dir 1\nfunc @f(");
    for (const char *at = s->operands; at; at = strstr(at, ", %") ? strstr(at, ", %") + 2 : NULL) {
        if (at == own) continue;
        ds_buf_printf(text, "%s%.*s]", sep, (int)strcspn(at, "]"), at);
        sep = ", ";
    }
    ds_buf_printf(text, ") -> f32[] {\nweight %%%s : %s]\n%s\n", wanted, type, s->line);
    for (uint32_t i = 0; i < summed.n; i++)
        ds_buf_printf(text, "%%part%u = reduce_sum(%%%s)\n", i, summed.at[i]);
    if (summed.n > 1) ds_buf_put(text, "%loss = add(%part0, %part1)\n");
    ds_buf_printf(text,
                  "return %%%s\n}\nscenario { model = @f, train { loss = none, optimizer = none } "
                  "}\n",
                  summed.n > 1 ? "loss" : "part0");
}

/* Which of `values` do ops after the loss read, as bits? *made: is one of these ops a `backward`? */
static uint32_t reads_of(const sample *s, const names *values, const char *wanted,
                         ds_opcode backward_op, bool *made) {
    ds_buf text = {0};
    step_case c;
    uint32_t bits = 0;
    put_model(s, wanted, &text);
    step_make(&c, text.text, NULL, DS_PASS_GRAD);
    cr_assert_eq(c.status, DS_OK, "%s: %s\n%s", s->op, c.err.message, text.text);
    const ds_func *step = c.step->func;
    bool backward = false;
    for (uint32_t i = 0; i < step->body.n_ops; i++) {
        const ds_op *op = step->body.ops[i];
        if (backward && op->code == backward_op) *made = true;
        for (uint32_t k = 0; backward && op->code != DS_OP_RETURN && k < op->n_in; k++)
            for (uint32_t v = 0; v < values->n; v++)
                if (strcmp(ds_value_at(step, op->in[k].value)->name, values->at[v]) == 0)
                    bits |= 1u << v;
        if (op->n_out && strcmp(ds_value_at(step, op->out[0])->name, "loss") == 0) backward = true;
    }
    step_free(&c);
    ds_buf_deinit(&text);
    return bits;
}

/* ---- the line ---- */

static uint32_t saves_of(const ds_op_desc *desc, uint32_t of, uint32_t n_in, uint32_t n) {
    uint32_t bits = 0;
    for (uint32_t v = 0; v < n; v++)
        if (v < n_in ? ds_op_saves_operand(desc, of, v) : ds_op_saves_result(desc, of, v - n_in))
            bits |= 1u << v;
    return bits;
}

static uint32_t index_of(const names *values, const char *name) {
    for (uint32_t v = 0; v < values->n; v++)
        if (strcmp(values->at[v], name) == 0) return v;
    cr_assert_fail("no operand %s", name);
    return 0;
}

static void expect_line(const ds_op_desc *desc) {
    char line[64];
    sample s = sample_of(desc, line);
    names values = values_of(&s), wanted = words(s.wanted);
    uint32_t n_in = 0;
    bool made = desc->backward == DS_OP_INVALID;
    for (const char *at = strchr(s.operands, '%'); at; at = strchr(at + 1, '%')) n_in++;
    for (uint32_t i = 0; i < wanted.n; i++) {
        uint32_t reads = reads_of(&s, &values, wanted.at[i], desc->backward, &made);
        uint32_t saves = saves_of(desc, index_of(&values, wanted.at[i]), n_in, values.n);
        cr_expect_eq(saves, reads, "%s, the gradient of %%%s: the line saves %#x, grad reads %#x",
                     desc->name, wanted.at[i], saves, reads);
    }
    cr_expect(made, "%s: grad never writes %s", desc->name, ds_op_name(desc->backward));
}

Test(grad_saves, lines_are_what_gradients_read) {
    for (ds_opcode code = DS_OP_FIRST_TABLE_OP; code < DS_OP_COUNT; code++) {
        const ds_op_desc *desc = ds_op_desc_of(code);
        cr_expect_eq(desc->vjp != NULL, desc->saves != NULL, "%s", desc->name);
        cr_expect(desc->vjp || !desc->backward, "%s", desc->name);
        if (desc->vjp) expect_line(desc);
    }
}
