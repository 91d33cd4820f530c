/* What each op of the reference keeps for its backward pass: the lines "Saved for backward: …" of
 * LANGUAGE.md, held against what the gradients read that grad writes. One model an op, its operands
 * weights by turns; the loss is the sum of its results, whose own gradient reads nothing. */
#define _GNU_SOURCE
#include "tests/support/step.h"

#include "ir/ops/ops.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Operands and results have the names of the op's section. `wanted`: operands that may have a
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
    {"relu", "%x: f32[3]", "%y = relu(%x)", "x", "y"},
    {"gelu", "%x: f32[3]", "%y = gelu(%x)", "x", "y"},
    {"silu", "%x: f32[3]", "%y = silu(%x)", "x", "y"},
    {"squared_relu", "%x: f32[3]", "%y = squared_relu(%x)", "x", "y"},
    {"tanh", "%x: f32[3]", "%y = tanh(%x)", "x", "y"},
    {"sigmoid", "%x: f32[3]", "%y = sigmoid(%x)", "x", "y"},
    {"exp", "%x: f32[3]", "%y = exp(%x)", "x", "y"},
    {"log", "%x: f32[3]", "%y = log(%x)", "x", "y"},
    {"sqrt", "%x: f32[3]", "%y = sqrt(%x)", "x", "y"},
    {"neg", "%x: f32[3]", "%y = neg(%x)", "x", "y"},
    {"dropout", "%x: f32[3]", "%y = dropout(%x)", "x", "y"},
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
    {"concat", "%a: f32[3, 4], %b: f32[2, 4]", "%y = concat(%a, %b)", "a b", "y"},
    {"split", "%x: f32[4, 4]", "%a, %b = split(%x)", "x", "a b"},
    {"slice", "%x: f32[4, 4]", "%y = slice(%x) {lo = 1, hi = 3}", "x", "y"},
    {"pad", "%x: f32[4, 4]", "%y = pad(%x) {lo = 1}", "x", "y"},
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

static const sample *sample_of(const char *op) {
    for (size_t i = 0; i < N_SAMPLES; i++)
        if (strcmp(samples[i].op, op) == 0) return &samples[i];
    return NULL;
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

/* Which of `values` do ops behind the loss read, as bits? */
static uint32_t reads_of(const sample *s, const names *values, const char *wanted) {
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

static void put_values(const names *values, uint32_t bits, ds_buf *out) {
    if (!bits) ds_buf_put(out, "nothing");
    const char *sep = "";
    for (uint32_t v = 0; v < values->n; v++) {
        if (!(bits >> v & 1)) continue;
        ds_buf_printf(out, "%s`%%%s`", sep, values->at[v]);
        uint32_t rest = bits >> (v + 1);
        sep = rest & (rest - 1) ? ", " : " and "; /* more than one is to come */
    }
}

/* "`%y`", or "`%b` for the gradient of `%a`; `%a` for that of `%b`". */
static void put_line(const sample *s, ds_buf *out) {
    names values = values_of(s), wanted = words(s->wanted);
    uint32_t reads[MAX_NAMES];
    bool alike = true;
    for (uint32_t i = 0; i < wanted.n; i++) {
        reads[i] = reads_of(s, &values, wanted.at[i]);
        alike = alike && reads[i] == reads[0];
    }
    ds_buf_put(out, "\n* Saved for backward: ");
    if (alike) put_values(&values, reads[0], out);
    for (uint32_t i = 0; i < wanted.n && !alike; i++) {
        if (i) ds_buf_put(out, "; ");
        put_values(&values, reads[i], out);
        ds_buf_printf(out, " for %s of `%%%s`", i ? "that" : "the gradient", wanted.at[i]);
    }
}

/* The section of an op, NUL-terminated copy. */
static char *section(const char *text, const char *name) {
    char heading[64];
    snprintf(heading, sizeof heading, "\n### %s\n", name);
    const char *at = strstr(text, heading);
    cr_assert_not_null(at, "no section for %s", name);
    at += strlen(heading);
    const char *end = strstr(at, "\n##");
    return strndup(at, end ? (size_t)(end - at) : strlen(at));
}

static char *read_reference(void) {
    static char text[1 << 20];
    FILE *file = fopen(DS_SOURCE_DIR "/ir/lang/LANGUAGE.md", "rb");
    cr_assert_not_null(file);
    size_t n = fread(text, 1, sizeof text - 1, file);
    cr_assert(feof(file));
    fclose(file);
    text[n] = '\0';
    return text;
}

/* A sentence may go on behind the line, after a full stop or a semicolon. */
Test(language_saved, lines_are_what_gradients_read) {
    const char *text = read_reference();
    for (ds_opcode code = DS_OP_FIRST_TABLE_OP; code < DS_OP_COUNT; code++) {
        const char *op = ds_op_name(code);
        char *part = section(text, op);
        const char *line = strstr(part, "\n* Saved for backward: ");
        if (ds_op_desc_of(code)->backward) {
            const sample *s = sample_of(op);
            cr_assert_not_null(s, "no sample of %s", op);
            ds_buf want = {0};
            put_line(s, &want);
            bool found = line && strncmp(line, want.text, want.n) == 0 &&
                         (line[want.n] == '.' || line[want.n] == ';');
            cr_expect(found, "### %s wants%s.", op, want.text);
            ds_buf_deinit(&want);
        } else {
            cr_expect_null(line, "%s has no gradient, and so saves nothing", op);
        }
        free(part);
    }
}
