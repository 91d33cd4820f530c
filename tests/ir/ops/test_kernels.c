/* Bytes and launches of the kernels of each stack, against counts by hand. */
#include "ir/ops/kernels.h"
#include "tests/support/op_text.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

enum { MOST_OPS = 24 };

/* What the ops of a text come to, in order. */
typedef struct launched {
    uint32_t n;
    int32_t launches[MOST_OPS]; /* -1: not memory-bound */
    int64_t bytes[MOST_OPS];
} launched;

static ds_shape shape_of(const op_text *t, const ds_type *type) {
    ds_shape shape = {.dtype = type->dtype, .rank = type->rank};
    for (uint32_t d = 0; d < type->rank; d++)
        cr_assert_eq(
            ds_expr_eval_int(&t->env, type->dims[d].size, DS_NOWHERE, &shape.dims[d], NULL), DS_OK);
    return shape;
}

static void look_at(const op_text *t, const ds_op *op, const ds_map *kernels, launched *out) {
    ds_shape in[8], results[8];
    ds_work work;
    for (uint32_t i = 0; i < op->n_in; i++)
        in[i] = shape_of(t, t->func->values.at[op->in[i].value.i].type);
    for (uint32_t i = 0; i < op->n_out; i++)
        results[i] = shape_of(t, t->func->values.at[op->out[i].i].type);
    cr_assert_eq(ds_op_work(op, &t->env, in, results, &work, NULL), DS_OK);
    const uint64_t *found = ds_map_find(kernels, DS_KEY(op));
    const ds_kernel *kernel = found ? (const ds_kernel *)(uintptr_t)*found : NULL;
    if (kernel) cr_assert_eq(ds_kernel_work(kernel, op, in, results, &work, NULL), DS_OK);
    bool memory = work.kind == DS_WORK_MEMORY;
    out->launches[out->n] = memory ? 1 + (kernel ? kernel->extra_launches : 0) : -1;
    out->bytes[out->n++] = memory ? work.bytes_read + work.bytes_written : 0;
}

static launched look_with(const char *args, const char *lines, ds_kernel_stack stack,
                          ds_kernel_stack loss) {
    op_text t;
    launched out = {0};
    ds_map kernels = {0};
    op_text_init(&t, NULL, args, lines, OP_TEXT_BOUND);
    cr_assert_eq(t.err.code, DS_OK, "%s", t.err.message);
    ds_kernels_find(t.func, stack, loss, &t.unit->arena, &kernels);
    for (uint32_t i = 0; i < t.func->body.n_ops; i++)
        if (t.func->body.ops[i]->code >= DS_OP_FIRST_TABLE_OP)
            look_at(&t, t.func->body.ops[i], &kernels, &out);
    ds_map_deinit(&kernels);
    op_text_deinit(&t);
    return out;
}

static launched look(const char *args, const char *lines, ds_kernel_stack stack) {
    return look_with(args, lines, stack, stack);
}

/* All ops together, and one after the other. */
static void expect(const char *args, const char *lines, ds_kernel_stack stack, const char *launches,
                   int64_t bytes) {
    launched got = look(args, lines, stack);
    char text[256] = "";
    int64_t sum = 0;
    for (uint32_t i = 0; i < got.n; i++) {
        size_t n = strlen(text);
        if (got.launches[i] >= 0) snprintf(text + n, sizeof text - n, "%d ", got.launches[i]);
        sum += got.bytes[i];
    }
    cr_expect_str_eq(text, launches, "%s\n  launches %s", lines, text);
    cr_expect_eq(sum, bytes, "%s\n  want %lld bytes, got %lld", lines, (long long)bytes,
                 (long long)sum);
}

#define E    8192 /* elements of %x */
#define NORM "%x: bf16[64, 128], %s: bf16[128]"

/* One kernel reads 2 bytes an element and writes 2. Eager: to f32 2 + 4, pow 4 + 4, mean 4, product
 * 4 + 4, to bf16 4 + 2, product with the scale 2 + 2: 36 bytes an element in eight kernels. In f32
 * pow, mean and both products alone: 28. */
Test(kernels, rms_norm) {
    const char *line = "%y = rms_norm(%x, %s)";
    expect(NORM, line, DS_KERNELS_OPS, "1 ", 4 * E + 256);
    expect(NORM, line, DS_KERNELS_COMPILED, "1 ", 4 * E + 256);
    expect(NORM, line, DS_KERNELS_FUSED, "1 ", 4 * E + 256);
    expect(NORM, line, DS_KERNELS_EAGER, "8 ", 36 * E);
    expect("%x: f32[64, 128], %s: f32[128]", line, DS_KERNELS_EAGER, "8 ", 28 * E);
}

/* 2 + 4 to f32, 4 + 4 the complex product, 4 + 2 back. */
Test(kernels, rotary) {
    const char *args = "%x: bf16[2, 4, 8, 128]", *line = "%y = rotary(%x)";
    expect(args, line, DS_KERNELS_EAGER, "3 ", 20 * E);
    expect(args, line, DS_KERNELS_FUSED, "1 ", 4 * E);
}

#define GLU "%x: bf16[64, 32], %a: bf16[32, 128], %b: bf16[32, 128], %c: bf16[128, 32]"

/* Gate and up are read and the product written: 3 tensors in place of 5. */
Test(kernels, gated) {
    const char *lines = "%gate = matmul(%x, %a)\n  %up = matmul(%x, %b)\n  %act = silu(%gate)\n"
                        "  %glu = mul(%act, %up)\n  %y = matmul(%glu, %c)";
    expect(GLU, lines, DS_KERNELS_EAGER, "1 1 ", 10 * E);
    expect(GLU, lines, DS_KERNELS_COMPILED, "1 0 ", 6 * E);
    expect(GLU, lines, DS_KERNELS_FUSED, "1 0 ", 6 * E);
}

/* Backward: dy, gate, up and the activation are read, both gradients written: 6 tensors in place of
 * 9, since the activation's gradient stays in the kernel and dy is read once. */
Test(kernels, gated_backward) {
    const char *args = "%x: bf16[64, 32], %w: bf16[32, 128], %v: bf16[128, 32], "
                       "%gate: bf16[64, 128], %up: bf16[64, 128], %act: bf16[64, 128]";
    const char *lines = "%dy = matmul(%x, %w)\n  %dup = mul(%dy, %act)\n  %dact = mul(%dy, %up)\n"
                        "  %dgate = silu_grad(%dact, %gate)\n  %p = matmul(%dup, %v)\n"
                        "  %q = matmul(%dgate, %v)";
    expect(args, lines, DS_KERNELS_OPS, "1 1 1 ", 18 * E);
    expect(args, lines, DS_KERNELS_FUSED, "1 0 0 ", 12 * E);
    expect(args, lines, DS_KERNELS_COMPILED, "1 0 0 ", 12 * E);
}

/* The residual stream: the norm that follows a sum reads the sum in the kernel, which writes the
 * sum for the sum after the block all the same. That later sum waits for a product that waits for
 * the norm, so it is a kernel of its own. */
Test(kernels, sums_around_a_product) {
    const char *args = "%h: bf16[64, 128], %p: bf16[64, 128], %s: bf16[128], %w: bf16[128, 128]";
    const char *lines = "%mid = add(%h, %p)\n  %n = rms_norm(%mid, %s)\n  %q = matmul(%n, %w)\n"
                        "  %out = add(%mid, %q)";
    expect(args, lines, DS_KERNELS_OPS, "1 1 1 ", 6 * E + 4 * E + 256 + 6 * E);
    expect(args, lines, DS_KERNELS_COMPILED, "1 0 1 ", 6 * E + 2 * E + 256 + 6 * E);
}

/* A bias is the end of its product, in each stack; what something else reads too is not. */
Test(kernels, ends_of_products) {
    const char *args = "%x: bf16[64, 32], %w: bf16[32, 128], %b: bf16[128]";
    const char *alone = "%y = matmul(%x, %w)\n  %z = bias(%y, %b)";
    const char *twice = "%y = matmul(%x, %w)\n  %z = bias(%y, %b)\n  %t = relu(%y)";
    expect(args, alone, DS_KERNELS_OPS, "1 ", 4 * E + 256);
    expect(args, alone, DS_KERNELS_EAGER, "0 ", 256);
    expect(args, twice, DS_KERNELS_EAGER, "1 1 ", 4 * E + 256 + 4 * E);
}

/* The sum of gradients over microbatches in 32 bits: read and written in place of the product's 16
 * bits. */
Test(kernels, gradients_are_summed_by_products) {
    const char *args = "%x: bf16[128, 64], %w: bf16[64, 64], %sum: f32[128, 64]";
    const char *lines = "%dw = matmul(%x, %w)\n  %new = accumulate(%sum, %dw)";
    expect(args, lines, DS_KERNELS_OPS, "1 ", 10 * E);
    expect(args, lines, DS_KERNELS_FUSED, "0 ", 6 * E);
    expect(args, lines, DS_KERNELS_EAGER, "1 ", 10 * E);
}

/* Layers compiled one by one leave the loss to eager mode: to f32 2 + 4, log_softmax 4 + 4, and the
 * choice of an element a row. A compiled loss reads logits of 16 bits. The layer's norm and the cast
 * of something else stay compiled. */
Test(kernels, loss_has_a_stack_of_its_own) {
    const char *args = NORM ", %l: i32[64]";
    const char *lines = "%y = rms_norm(%x, %s)\n  %f = cast(%y) {dtype = f32}\n"
                        "  %loss = cross_entropy(%f, %l)";
    int64_t labels = 64 * 4 + 4;
    launched eager = look_with(args, lines, DS_KERNELS_COMPILED, DS_KERNELS_EAGER);
    cr_expect_eq(eager.launches[0], 1);
    cr_expect_eq(eager.bytes[0], 4 * E + 256);
    cr_expect_eq(eager.bytes[1], 6 * E);
    cr_expect_eq(eager.launches[2], 2);
    cr_expect_eq(eager.bytes[2], 8 * E, "%lld", (long long)eager.bytes[2]);
    launched compiled = look_with(args, lines, DS_KERNELS_EAGER, DS_KERNELS_COMPILED);
    cr_expect_eq(compiled.launches[0], 8);
    cr_expect_eq(compiled.bytes[1] + compiled.bytes[2], 2 * E + labels, "%lld",
                 (long long)(compiled.bytes[1] + compiled.bytes[2]));
}

/* Every op of the table is one of ops.def, or a name of kernels.def alone. */
Test(kernels, names) {
    uint32_t n;
    const ds_kernel_line *lines = ds_kernel_lines(&n);
    for (uint32_t i = 0; i < n; i++) {
        cr_expect_neq(ds_op_by_name(lines[i].op), DS_OP_INVALID, "%s", lines[i].op);
        cr_expect(lines[i].launches >= 1 && *lines[i].source);
    }
}

static int64_t converted(const char *lines, ds_kernel_stack stack) {
    op_text t;
    ds_map kernels = {0};
    int64_t sum = 0;
    const char *args = "%x: bf16[64, 128], %v: bf16[128, 32], %w: bf16[128, 32]";
    op_text_init(&t, NULL, args, lines, OP_TEXT_BOUND);
    cr_assert_eq(t.err.code, DS_OK, "%s", t.err.message);
    ds_kernels_find(t.func, stack, stack, &t.unit->arena, &kernels);
    for (uint32_t i = 0; i < t.func->body.n_ops; i++) {
        const ds_op *op = t.func->body.ops[i];
        if (op->code < DS_OP_FIRST_TABLE_OP) continue;
        ds_shape in[2], out = shape_of(&t, t.func->values.at[op->out[0].i].type);
        ds_work work;
        for (uint32_t k = 0; k < 2; k++)
            in[k] = shape_of(&t, t.func->values.at[op->in[k].value.i].type);
        cr_assert_eq(ds_op_work(op, &t.env, in, &out, &work, NULL), DS_OK);
        const uint64_t *found = ds_map_find(&kernels, DS_KEY(op));
        const ds_kernel *kernel = found ? (const ds_kernel *)(uintptr_t)*found : NULL;
        if (kernel) cr_assert_eq(ds_kernel_work(kernel, op, in, &out, &work, NULL), DS_OK);
        sum += work.bytes_converted;
    }
    ds_map_deinit(&kernels);
    op_text_deinit(&t);
    return sum;
}

/* 2 bytes an element are read and 1 + 1 written, by each product that is a call of its own; what
 * Transformer Engine makes one product of converts once. The second operands are others. */
Test(kernels, products_of_one_input_convert_it_once) {
#define NARROW(y, x, w, i) "%" y " = matmul(%" x ", %" w ") {products = f8e4m3, converts = " i "}\n"
    const char *one = NARROW("a", "x", "v", "0") NARROW("b", "x", "w", "0");
    const char *other = NARROW("a", "x", "v", "0") NARROW("b", "x", "v", "1");
    cr_expect_eq(converted(one, DS_KERNELS_OPS), 2 * 4 * E);
    cr_expect_eq(converted(one, DS_KERNELS_EAGER), 2 * 4 * E);
    cr_expect_eq(converted(one, DS_KERNELS_FUSED), 4 * E);
    cr_expect_eq(converted(other, DS_KERNELS_FUSED), 4 * E + 4 * 128 * 32);
    /* torchao: 8 bytes an element of a weight in the two products that convert, 4 in each */
    cr_expect_eq(converted(one, DS_KERNELS_COMPILED), 4 * E + 2 * 4 * 128 * 32);
}
