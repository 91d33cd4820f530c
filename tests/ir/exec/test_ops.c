/* Every op of the table, sharded as far as its rule allows, gives what it gives on one device.
 *
 * One text an op, annotated for the axes dp and tp; it runs on meshes 1x1, 2x1, 1x2 and 2x2 over
 * the same inputs. What the op computes is tested elsewhere, against formulas; here, that it does
 * not depend on the mesh. A plain elementwise op needs no text; any other op without a text fails
 * the test. */
#include "tests/support/elementwise.h"
#include "tests/support/exec.h"

#include "ir/ops/ops.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

typedef struct op_case {
    ds_opcode code;
    const char *args, *results, *lines;
} op_case;

#define UNARY(CODE, line)                                                                          \
    { CODE, "%x: f32[4@dp, 6@tp]", "f32[4@dp, 6@tp]", "%y = " line "\nreturn %y" }
#define BINARY(CODE, line)                                                                         \
    {                                                                                              \
        CODE, "%x: f32[4@dp, 2, 6@tp], %z: f32[6@tp]", "f32[4@dp, 2, 6@tp]",                       \
            "%y = " line "\nreturn %y"                                                             \
    }

static const op_case cases[] = {
    {DS_OP_MATMUL, "%x: f32[4@dp, 6@tp], %w: f32[6@tp, 3]", "f32[4@dp, 3] partial(tp)",
     "%y = matmul(%x, %w)\nreturn %y"},
    {DS_OP_MATMUL, "%x: f32[2, 4@dp, 6], %w: f32[2, 8@tp, 6]", "f32[2, 4@dp, 8@tp]",
     "%y = matmul(%x, %w) {transpose_b = true}\nreturn %y"},
    {DS_OP_EINSUM, "%x: f32[4@dp, 6], %z: f32[4@dp, 8@tp]", "f32[6, 8@tp] partial(dp)",
     "%y = einsum(%x, %z) {rule = \"b k, b n -> k n\"}\nreturn %y"},
    {DS_OP_EINSUM, "%x: f32[4@dp, 6@tp], %z: f32[6@tp, 5], %v: f32[5]", "f32[4@dp] partial(tp)",
     "%y = einsum(%x, %z, %v) {rule = \"i j, j k, k -> i\"}\nreturn %y"},
    {DS_OP_EINSUM, "%x: f32[4@dp, 6@tp], %w: f32[2@tp, 3, 5]", "f32[4@dp, 5] partial(tp)",
     "%y = einsum(%x, %w) {rule = \"b (h d), h d e -> b e\"}\nreturn %y"},
    BINARY(DS_OP_BIAS, "bias(%x, %z)"),
    BINARY(DS_OP_ADD, "add(%x, %z)"),
    BINARY(DS_OP_SUB, "sub(%x, %z)"),
    BINARY(DS_OP_MUL, "mul(%x, %z)"),
    BINARY(DS_OP_DIV, "div(%x, %z)"),
    UNARY(DS_OP_SCALE, "scale(%x) {factor = 1.5}"),
    {DS_OP_SQRT, "%x: f32[4@dp, 6@tp]", "f32[4@dp, 6@tp]",
     "%e = exp(%x)\n%y = sqrt(%e)\nreturn %y"},
    {DS_OP_LOG, "%x: f32[4@dp, 6@tp]", "f32[4@dp, 6@tp]",
     "%e = exp(%x)\n%s = add(%e, %e)\n%y = log(%s)\nreturn %y"},
    UNARY(DS_OP_DROPOUT, "dropout(%x) {p = 0.5}"),
    {DS_OP_DROPOUT, "%x: f32[4, 6@tp], %w: f32[6@tp, 8@dp]", "f32[4, 8@dp] partial(tp)",
     "%z = matmul(%x, %w)\n%y = dropout(%z) {p = 0.5}\nreturn %y"},
    {DS_OP_CAST, "%x: f32[4@dp, 6@tp]", "f16[4@dp, 6@tp]",
     "%y = cast(%x) {dtype = f16}\nreturn %y"},
    {DS_OP_ACCUMULATE, "%x: f32[4@dp, 6@tp], %z: f16[4@dp, 6@tp]", "f32[4@dp, 6@tp]",
     "%y = accumulate(%x, %z)\nreturn %y"},
    {DS_OP_ZEROS, "%x: f32[4@dp]", "f32[4@dp]",
     "%z = zeros() : f32[4@dp]\n%y = add(%x, %z)\nreturn %y"},
    {DS_OP_FILL, "%x: f32[4@dp]", "f32[4@dp]",
     "%z = fill() {value = 2.0} : f32[4@dp]\n%y = mul(%x, %z)\nreturn %y"},
    {DS_OP_SOFTMAX, "%x: f32[4@dp, 5, 6@tp]", "f32[4@dp, 5, 6@tp]",
     "%y = softmax(%x) {dim = 1}\nreturn %y"},
    {DS_OP_SOFTMAX_GRAD, "%x: f32[4@dp, 6@tp, 5], %z: f32[4@dp, 6@tp, 5]", "f32[4@dp, 6@tp, 5]",
     "%s = softmax(%z)\n%y = softmax_grad(%x, %s)\nreturn %y"},
    {DS_OP_LAYER_NORM, "%x: f32[4@dp, 6@tp, 5], %g: f32[5], %b: f32[5]", "f32[4@dp, 6@tp, 5]",
     "%y = layer_norm(%x, %g, %b)\nreturn %y"},
    {DS_OP_RMS_NORM, "%x: f32[4@dp, 6@tp, 5], %g: f32[5]", "f32[4@dp, 6@tp, 5]",
     "%y = rms_norm(%x, %g)\nreturn %y"},
    {DS_OP_BATCH_NORM, "%x: f32[8@dp, 4@tp, 3], %g: f32[4@tp], %b: f32[4@tp]", "f32[8@dp, 4@tp, 3]",
     "%y = batch_norm(%x, %g, %b) {groups = 2}\nreturn %y"},
    {DS_OP_LAYER_NORM_GRAD, "%d: f32[4@dp, 6@tp, 5], %x: f32[4@dp, 6@tp, 5], %g: f32[5]",
     "f32[4@dp, 6@tp, 5], f32[5] partial(dp, tp), f32[5] partial(dp, tp)",
     "%y, %u, %v = layer_norm_grad(%d, %x, %g)\nreturn %y, %u, %v"},
    {DS_OP_RMS_NORM_GRAD, "%d: f32[4@dp, 6@tp, 5], %x: f32[4@dp, 6@tp, 5], %g: f32[5]",
     "f32[4@dp, 6@tp, 5], f32[5] partial(dp, tp)",
     "%y, %u = rms_norm_grad(%d, %x, %g)\nreturn %y, %u"},
    {DS_OP_BATCH_NORM_GRAD, "%d: f32[8@dp, 4@tp, 3], %x: f32[8@dp, 4@tp, 3], %g: f32[4@tp]",
     "f32[8@dp, 4@tp, 3], f32[4@tp] partial(dp), f32[4@tp] partial(dp)",
     "%y, %u, %v = batch_norm_grad(%d, %x, %g) {groups = 2}\nreturn %y, %u, %v"},
    {DS_OP_EMBEDDING, "%i: i32[4@dp, 3], %t: f32[8@tp, 5]", "f32[4@dp, 3, 5] partial(tp)",
     "%y = embedding(%i, %t)\nreturn %y"},
    {DS_OP_CROSS_ENTROPY, "%x: f32[4@dp, 6@tp, 5], %l: i32[4@dp, 6@tp]", "f32[] partial(dp, tp)",
     "%y = cross_entropy(%x, %l)\nreturn %y"},
    {DS_OP_CROSS_ENTROPY, "%x: f32[4@dp, 5], %l: i32[4@dp]", "f32[4@dp]",
     "%y = cross_entropy(%x, %l) {reduction = none}\nreturn %y"},
    {DS_OP_CROSS_ENTROPY, "%x: f32[4@dp, 6@tp, 5], %l: i32[4@dp, 6@tp]",
     "f32[] partial(dp, tp), f32[4@dp, 6@tp]", "%y, %s = cross_entropy(%x, %l)\nreturn %y, %s"},
    {DS_OP_CROSS_ENTROPY_GRAD, "%x: f32[4@dp, 3, 6@tp], %l: i32[4@dp, 3], %s: f32[4@dp, 3]",
     "f32[4@dp, 3, 6@tp]", "%y = cross_entropy_grad(%x, %l, %s)\nreturn %y"},
    {DS_OP_EMBEDDING_GRAD, "%d: f32[4@dp, 3, 5], %i: i32[4@dp, 3]", "f32[8@tp, 5] partial(dp)",
     "%y = embedding_grad(%d, %i) {rows = 8} : f32[8@tp, 5] partial(dp)\nreturn %y"},
    {DS_OP_PICK, "%x: f32[4@dp, 3, 6@tp], %l: i32[4@dp, 3]", "f32[4@dp, 3] partial(tp)",
     "%y = pick(%x, %l)\nreturn %y"},
    {DS_OP_MSE, "%x: f32[4@dp, 6@tp], %z: f32[4@dp, 6@tp]", "f32[] partial(dp, tp)",
     "%y = mse(%x, %z)\nreturn %y"},
    {DS_OP_MSE_GRAD, "%x: f32[4@dp, 6@tp], %z: f32[4@dp, 6@tp]", "f32[4@dp, 6@tp]",
     "%y = mse_grad(%x, %z)\nreturn %y"},
    {DS_OP_CONV2D, "%x: f32[4@dp, 2@tp, 5, 5], %f: f32[3, 2@tp, 2, 2]",
     "f32[4@dp, 3, 5, 5] partial(tp)",
     "%y = conv2d(%x, %f) {pad = 1, stride = 1, dilation = 2}\nreturn %y"},
    {DS_OP_CONV2D, "%x: f32[4@dp, 4@tp, 5, 5], %f: f32[8@tp, 1, 2, 2]", "f32[4@dp, 8@tp, 4, 4]",
     "%y = conv2d(%x, %f) {groups = 4}\nreturn %y"},
    {DS_OP_MAX_POOL, "%x: f32[4@dp, 2@tp, 5, 5]", "f32[4@dp, 2@tp, 2, 2]",
     "%y = max_pool(%x) {window = 2}\nreturn %y"},
    {DS_OP_AVG_POOL, "%x: f32[4@dp, 2@tp, 5, 5]", "f32[4@dp, 2@tp, 3, 3]",
     "%y = avg_pool(%x) {window = 3, pad = 1, stride = 2}\nreturn %y"},
    {DS_OP_CONV2D_GRAD_X, "%y: f32[4@dp, 4@tp, 5, 5], %f: f32[4@tp, 2, 3, 2]",
     "f32[4@dp, 2, 9, 6] partial(tp)",
     "%x = conv2d_grad_x(%y, %f) {size = [9, 6], stride = [2, 1], pad = [1, 0]}\nreturn %x"},
    {DS_OP_CONV2D_GRAD_X, "%y: f32[4@dp, 8@tp, 4, 4], %f: f32[8@tp, 1, 2, 2]",
     "f32[4@dp, 4@tp, 5, 5]", "%x = conv2d_grad_x(%y, %f) {size = 5, groups = 4}\nreturn %x"},
    {DS_OP_CONV2D_GRAD_W, "%x: f32[4@dp, 2, 9, 6], %y: f32[4@dp, 4@tp, 5, 5]",
     "f32[4@tp, 2, 3, 2] partial(dp)",
     "%f = conv2d_grad_w(%x, %y) {window = [3, 2], stride = [2, 1], pad = [1, 0]}\nreturn %f"},
    {DS_OP_CONV2D_GRAD_W, "%x: f32[4@dp, 4@tp, 5, 5], %y: f32[4@dp, 8@tp, 4, 4]",
     "f32[8@tp, 1, 2, 2] partial(dp)",
     "%f = conv2d_grad_w(%x, %y) {window = 2, groups = 4}\nreturn %f"},
    {DS_OP_MAX_POOL_GRAD, "%y: f32[4@dp, 2@tp, 2, 2], %x: f32[4@dp, 2@tp, 5, 5]",
     "f32[4@dp, 2@tp, 5, 5]", "%d = max_pool_grad(%y, %x) {window = 2}\nreturn %d"},
    {DS_OP_AVG_POOL_GRAD, "%y: f32[4@dp, 2@tp, 3, 3]", "f32[4@dp, 2@tp, 5, 5]",
     "%d = avg_pool_grad(%y) {window = 3, pad = 1, stride = 2, size = 5}\nreturn %d"},
    {DS_OP_LSTM_GRAD,
     "%y: f32[4@(dp, tp), 3, 3], %x: f32[4@(dp, tp), 3, 2], %w: f32[2, 12], %r: f32[3, 12], "
     "%b: f32[12], %h: f32[4@(dp, tp), 3], %c: f32[4@(dp, tp), 3]",
     "f32[4@(dp, tp), 3, 2], f32[2, 12] partial(dp, tp), f32[3, 12] partial(dp, tp), "
     "f32[12] partial(dp, tp), f32[4@(dp, tp), 3], f32[4@(dp, tp), 3]",
     "%i, %j, %k, %l, %m, %n = lstm_grad(%y, %x, %w, %r, %b, %h, %c)\n"
     "return %i, %j, %k, %l, %m, %n"},
    {DS_OP_LSTM,
     "%x: f32[4@dp, 3, 2], %w: f32[2, 12], %r: f32[3, 12], %b: f32[12], "
     "%h: f32[4@dp, 3], %c: f32[4@dp, 3]",
     "f32[4@dp, 3, 3], f32[4@dp, 3], f32[4@dp, 3]",
     "%y, %i, %j = lstm(%x, %w, %r, %b, %h, %c)\nreturn %y, %i, %j"},
    {DS_OP_CAUSAL_CONV, "%x: f32[2@dp, 5, 4@tp], %w: f32[4@tp, 3], %b: f32[4@tp]",
     "f32[2@dp, 5, 4@tp]", "%y = causal_conv(%x, %w, %b) {silu = true}\nreturn %y"},
    {DS_OP_CAUSAL_CONV_GRAD,
     "%y: f32[2@dp, 5, 4@tp], %x: f32[2@dp, 5, 4@tp], %w: f32[4@tp, 3], %b: f32[4@tp]",
     "f32[2@dp, 5, 4@tp], f32[4@tp, 3] partial(dp), f32[4@tp] partial(dp)",
     "%i, %j, %k = causal_conv_grad(%y, %x, %w, %b) {silu = true}\nreturn %i, %j, %k"},
    {DS_OP_SSD_SCAN,
     "%x: f32[2@dp, 5, 4@tp, 3], %t: f32[2@dp, 5, 4@tp], %b: f32[2@dp, 5, 2@tp, 2], "
     "%c: f32[2@dp, 5, 2@tp, 2], %a: f32[4@tp], %d: f32[4@tp], %e: f32[4@tp]",
     "f32[2@dp, 5, 4@tp, 3]", "%y = ssd_scan(%x, %t, %b, %c, %a, %d, %e)\nreturn %y"},
    {DS_OP_SSD_SCAN_GRAD,
     "%y: f32[2@dp, 5, 4@tp, 3], %x: f32[2@dp, 5, 4@tp, 3], %t: f32[2@dp, 5, 4@tp], "
     "%b: f32[2@dp, 5, 2@tp, 2], %c: f32[2@dp, 5, 2@tp, 2], %a: f32[4@tp], %d: f32[4@tp], "
     "%e: f32[4@tp]",
     "f32[2@dp, 5, 4@tp, 3], f32[2@dp, 5, 4@tp], f32[2@dp, 5, 2@tp, 2], f32[2@dp, 5, 2@tp, 2], "
     "f32[4@tp] partial(dp), f32[4@tp] partial(dp), f32[4@tp] partial(dp)",
     "%i, %j, %k, %l, %m, %n, %o = ssd_scan_grad(%y, %x, %t, %b, %c, %a, %d, %e)\n"
     "return %i, %j, %k, %l, %m, %n, %o"},
    {DS_OP_ATTENTION,
     "%q: f32[2@dp, 4, 4@tp, 3], %k: f32[2@dp, 4, 2@tp, 3], "
     "%v: f32[2@dp, 4, 2@tp, 3]",
     "f32[2@dp, 4, 4@tp, 3]", "%y = attention(%q, %k, %v) {causal = true}\nreturn %y"},
    {DS_OP_ATTENTION, "%q: f32[2, 4@(dp, tp), 4, 3], %k: f32[2, 6, 2, 3], %v: f32[2, 6, 2, 3]",
     "f32[2, 4@(dp, tp), 4, 3]", "%y = attention(%q, %k, %v) {causal = true}\nreturn %y"},
    {DS_OP_ATTENTION, "%q: f32[2@dp, 4, 4@tp, 3], %k: f32[2@dp, 4, 1, 3], %v: f32[2@dp, 4, 1, 3]",
     "f32[2@dp, 4, 4@tp, 3]", "%y = attention(%q, %k, %v)\nreturn %y"},
    {DS_OP_ATTENTION,
     "%q: f32[2@dp, 4, 4@tp, 3], %k: f32[2@dp, 4, 2@tp, 3], "
     "%v: f32[2@dp, 4, 2@tp, 3]",
     "f32[2@dp, 4, 4@tp, 3], f32[2@dp, 4, 4@tp]",
     "%y, %l = attention(%q, %k, %v) {causal = true}\nreturn %y, %l"},
    {DS_OP_ATTENTION_MERGE,
     "%a: f32[2@dp, 4@tp, 2, 3], %i: f32[2@dp, 4@tp, 2], %b: f32[2@dp, 4@tp, 2, 3], "
     "%j: f32[2@dp, 4@tp, 2]",
     "f32[2@dp, 4@tp, 2, 3], f32[2@dp, 4@tp, 2]",
     "%y, %l = attention_merge(%a, %i, %b, %j)\nreturn %y, %l"},
    {DS_OP_ATTENTION_GRAD,
     "%dy: f32[2@dp, 4, 4@tp, 2], %q: f32[2@dp, 4, 4@tp, 3], %k: f32[2@dp, 6, 2@tp, 3], "
     "%v: f32[2@dp, 6, 2@tp, 2]",
     "f32[2@dp, 4, 4@tp, 3], f32[2@dp, 6, 2@tp, 3], f32[2@dp, 6, 2@tp, 2]",
     "%o, %l = attention(%q, %k, %v) {causal = true}\n"
     "%x, %y, %z = attention_grad(%dy, %q, %k, %v, %o, %l) {causal = true}\nreturn %x, %y, %z"},
    {DS_OP_ATTENTION_GRAD, /* queries split: keys and values get terms of sums */
     "%dy: f32[2, 4@(dp, tp), 4, 3], %q: f32[2, 4@(dp, tp), 4, 3], %k: f32[2, 6, 2, 3], "
     "%v: f32[2, 6, 2, 3]",
     "f32[2, 4@(dp, tp), 4, 3], f32[2, 6, 2, 3] partial(dp, tp), f32[2, 6, 2, 3] partial(dp, tp)",
     "%o, %l = attention(%q, %k, %v) {causal = true}\n"
     "%x, %y, %z = attention_grad(%dy, %q, %k, %v, %o, %l) {causal = true}\nreturn %x, %y, %z"},
    {DS_OP_ATTENTION_GRAD, /* one key head for all: split query heads do the same */
     "%dy: f32[2@dp, 4, 4@tp, 3], %q: f32[2@dp, 4, 4@tp, 3], %k: f32[2@dp, 4, 1, 3], "
     "%v: f32[2@dp, 4, 1, 3]",
     "f32[2@dp, 4, 4@tp, 3], f32[2@dp, 4, 1, 3] partial(tp), f32[2@dp, 4, 1, 3] partial(tp)",
     "%o, %l = attention(%q, %k, %v) {scale = 2.0}\n"
     "%x, %y, %z = attention_grad(%dy, %q, %k, %v, %o, %l) {scale = 2.0}\nreturn %x, %y, %z"},
    {DS_OP_ROTARY, "%x: f32[2@dp, 4@tp, 3, 4]", "f32[2@dp, 4@tp, 3, 4]",
     "%y = rotary(%x)\nreturn %y"},
    {DS_OP_ROTARY, "%x: f32[2@dp, 4@tp, 3, 4]", "f32[2@dp, 4@tp, 3, 4]",
     "%y = rotary(%x) {start = 3, inverse = true}\nreturn %y"},
    {DS_OP_RESHAPE, "%x: f32[4@dp, 8@tp]", "f32[4@dp, 2@tp, 4]",
     "%y = reshape(%x) {shape = [4, 2, 4]}\nreturn %y"},
    {DS_OP_RESHAPE, "%x: f32[4@(dp, tp), 3, 5]", "f32[12@(dp, tp), 5]",
     "%y = reshape(%x) {shape = [12, 5]}\nreturn %y"},
    {DS_OP_TRANSPOSE, "%x: f32[4@dp, 6@tp, 3]", "f32[3, 4@dp, 6@tp]",
     "%y = transpose(%x) {perm = [2, 0, 1]}\nreturn %y"},
    {DS_OP_STACK, "%x: f32[3, 4@dp, 6@tp]", "f32[4@dp, 6@tp, 3]",
     "%y = stack(%x) {dim = -1}\nreturn %y"},
    {DS_OP_CONCAT, "%x: f32[4@dp, 2, 6@tp], %z: f32[4@dp, 3, 6@tp]", "f32[4@dp, 5, 6@tp]",
     "%y = concat(%x, %z) {dim = 1}\nreturn %y"},
    {DS_OP_SPLIT, "%x: f32[4@dp, 6, 2@tp]", "f32[4@dp, 1, 2@tp], f32[4@dp, 5, 2@tp]",
     "%y, %z = split(%x) {dim = 1, sizes = [1, 5]}\nreturn %y, %z"},
    {DS_OP_SLICE, "%x: f32[4@dp, 6, 2@tp]", "f32[4@dp, 3, 2@tp]",
     "%y = slice(%x) {dim = 1, lo = 2, hi = 5}\nreturn %y"},
    {DS_OP_PAD, "%x: f32[4@dp, 6, 2@tp]", "f32[4@dp, 9, 2@tp]",
     "%y = pad(%x) {dim = 1, lo = 2, hi = 1}\nreturn %y"},
    {DS_OP_PUT, "%c: f32[4@dp, 6, 2@tp], %x: f32[4@dp, 3, 2@tp]", "f32[4@dp, 6, 2@tp]",
     "%y = put(%c, %x) {dim = 1, at = 2}\nreturn %y"},
    {DS_OP_EXPAND, "%x: f32[4@dp, 3]", "f32[4@dp, 6@tp, 3, 2]",
     "%y = expand(%x) {dims = [1, -1], sizes = [6, 2]} : f32[4@dp, 6@tp, 3, 2]\nreturn %y"},
    {DS_OP_AFTER, "%x: f32[4@dp, 6@tp], %w: f32[6@tp, 3]", "f32[4@dp, 6@tp]",
     "%p = matmul(%x, %w)\n%y = after(%x, %p, %w)\nreturn %y"},
    {DS_OP_OFFLOAD, "%x: f32[4@dp, 6@tp]", "f32[4@dp, 6@tp] host", "%y = offload(%x)\nreturn %y"},
    {DS_OP_RELOAD, "%x: f32[4@dp, 6@tp] host", "f32[4@dp, 6@tp]", "%y = reload(%x)\nreturn %y"},
    {DS_OP_REDUCE_MAX_GRAD, "%d: f32[4@dp, 6@tp], %x: f32[4@dp, 3, 6@tp]", "f32[4@dp, 3, 6@tp]",
     "%y = reduce_max_grad(%d, %x) {dims = [1]}\nreturn %y"},
    {DS_OP_REDUCE_SUM, "%x: f32[4@dp, 6@tp, 3]", "f32[4@dp, 3] partial(tp)",
     "%y = reduce_sum(%x) {dims = [1]}\nreturn %y"},
    {DS_OP_REDUCE_MEAN, "%x: f32[4@dp, 6@tp, 3]", "f32[] partial(dp, tp)",
     "%y = reduce_mean(%x)\nreturn %y"},
    {DS_OP_REDUCE_MAX, "%x: f32[4@dp, 6@tp, 3]", "f32[4@dp, 1, 3] partial(tp, max)",
     "%y = reduce_max(%x) {dims = [1], keep = true}\nreturn %y"},
    {DS_OP_SUM_SQUARES, "%x: f32[4@dp, 6@tp, 3]", "f32[] partial(dp, tp)",
     "%y = sum_squares(%x)\nreturn %y"},
    {DS_OP_TOTAL, "%x: f32[4@dp, 6@tp], %w: f32[4@dp, 6@tp]", "f32[4@dp, 6@tp]",
     "%y = total(%x, %w, %x)\nreturn %y"},
    {DS_OP_CLIP_FACTOR, "%x: f32[4@dp, 6@tp]", "f32[]",
     "%s = sum_squares(%x)\n%a = all_reduce(%s) over (dp, tp)\n"
     "%y = clip_factor(%a, %a) {max_norm = 0.5}\nreturn %y"},
    {DS_OP_TOPK, "%x: f32[4@dp, 6@tp, 5]", "f32[4@dp, 6@tp, 2], i32[4@dp, 6@tp, 2]",
     "%y, %i = topk(%x) {k = 2}\nreturn %y, %i"},
    {DS_OP_DISPATCH, "%x: f32[4@dp, 6, 2@tp], %i: i32[4@dp, 6, 2]", "f32[4@dp, 3, 3, 2@tp]",
     "%y = dispatch(%x, %i) {experts = 3, capacity = 3}\nreturn %y"},
    {DS_OP_DISPATCH,
     "%x: f32[4@dp, 2@tp, 6, 2], %i: i32[4@dp, 2@tp, 6, 2], %w: f32[4@dp, 2@tp, 6, 2]",
     "f32[4@dp, 2@tp, 3, 3, 2]",
     "%y = dispatch(%x, %i, %w) {experts = 3, capacity = 3}\nreturn %y"},
    {DS_OP_COMBINE, "%b: f32[4@dp, 3, 3, 2@tp], %i: i32[4@dp, 6, 2], %w: f32[4@dp, 6, 2]",
     "f32[4@dp, 6, 2@tp]", "%y = combine(%b, %i, %w)\nreturn %y"},
    {DS_OP_COMBINE_GRAD, "%dy: f32[4@dp, 6, 2@tp], %b: f32[4@dp, 3, 3, 2@tp], %i: i32[4@dp, 6, 2]",
     "f32[4@dp, 6, 2] partial(tp)", "%y = combine_grad(%dy, %b, %i)\nreturn %y"},
    {DS_OP_TOPK_GRAD, "%dv: f32[4@dp, 6@tp, 2], %i: i32[4@dp, 6@tp, 2]", "f32[4@dp, 6@tp, 5]",
     "%y = topk_grad(%dv, %i) {size = 5}\nreturn %y"},
    {DS_OP_SGD, "%w: f32[4@dp, 6@tp], %g: f32[4@dp, 6@tp]", "f32[4@dp, 6@tp]",
     "%y = sgd(%w, %g)\nreturn %y"},
    {DS_OP_MOMENTUM, "%w: f32[4@dp, 6@tp], %g: f32[4@dp, 6@tp], %m: f32[4@dp, 6@tp]",
     "f32[4@dp, 6@tp], f32[4@dp, 6@tp]", "%y, %n = momentum(%w, %g, %m)\nreturn %y, %n"},
    {DS_OP_ADAM,
     "%w: f32[4@dp, 6@tp], %g: f32[4@dp, 6@tp], %m: f32[4@dp, 6@tp], "
     "%v: f32[4@dp, 6@tp]",
     "f32[4@dp, 6@tp], f32[4@dp, 6@tp]", "%y, %n, %u = adam(%w, %g, %m, %v)\nreturn %y, %u"},
    {DS_OP_ADAMW,
     "%w: f16[4@dp, 6@tp], %g: f16[4@dp, 6@tp], %m: f32[4@dp, 6@tp], "
     "%v: f32[4@dp, 6@tp], %c: f32[4@dp, 6@tp]",
     "f16[4@dp, 6@tp], f32[4@dp, 6@tp]",
     "%y, %n, %u, %d = adamw(%w, %g, %m, %v, %c) {step = 3}\nreturn %y, %d"},
    {DS_OP_ALL_REDUCE, "%x: f32[4@dp, 6@tp], %w: f32[6@tp, 3]", "f32[4@dp, 3]",
     "%p = matmul(%x, %w)\n%y = all_reduce(%p) over tp\nreturn %y"},
    {DS_OP_ALL_GATHER, "%x: f32[8@(dp, tp), 3]", "f32[8@dp, 3]",
     "%y = all_gather(%x) over tp dim 0\nreturn %y"},
    {DS_OP_REDUCE_SCATTER, "%x: f32[4@dp, 6@tp], %w: f32[6@tp, 4]", "f32[4@dp, 4@tp]",
     "%p = matmul(%x, %w)\n%y = reduce_scatter(%p) over tp dim 1\nreturn %y"},
    {DS_OP_ALL_TO_ALL, "%x: f32[4@dp, 4@tp, 2]", "f32[4@(dp, tp), 4, 2]",
     "%y = all_to_all(%x) over tp dim 1 -> 0\nreturn %y"},
    {DS_OP_BROADCAST, "%x: f32[4] on @m{tp=0}", "f32[4] on @m",
     "%y = broadcast(%x) over tp\nreturn %y"},
    {DS_OP_SCATTER, "%x: f32[4, 3] on @m{tp=0}", "f32[4@tp, 3] on @m",
     "%y = scatter(%x) over tp dim 0\nreturn %y"},
    {DS_OP_GATHER, "%x: f32[4@dp, 4@tp] on @m", "f32[4@dp, 4] on @m{tp=tp - 1}",
     "%y = gather(%x) over tp dim 1 {root = tp - 1}\nreturn %y"},
    {DS_OP_REDUCE, "%x: f32[4@dp, 6@tp] on @m, %w: f32[6@tp, 3] on @m", "f32[4@dp, 3] on @m{tp=0}",
     "%p = matmul(%x, %w)\n%y = reduce(%p) over tp\nreturn %y"},
    {DS_OP_SEND, "%x: f32[4@dp] on @m{tp=0}", "f32[4@dp] on @m{tp=tp - 1}",
     "%y = send(%x) to @m{tp=tp - 1}\nreturn %y"},
    {DS_OP_PERMUTE, "%x: f32[4@tp, 3]", "f32[4@tp, 3]",
     "%p = permute(%x) over tp\n%y = permute(%p) over tp {shift = -1}\nreturn %y"},
    {DS_OP_RESHARD, "%x: f32[4@dp, 6@tp]", "f32[4@tp, 6@dp]",
     "%y = reshard(%x) : f32[4@tp, 6@dp]\nreturn %y"},
};
enum { N_CASES = sizeof cases / sizeof *cases };

static bool has_case(ds_opcode code) {
    for (int i = 0; i < N_CASES; i++)
        if (cases[i].code == code) return true;
    return false;
}

static void execute(exec_case *c, const op_case *at, int dp, int tp) {
    ds_buf text = {0};
    char settings[32];
    snprintf(settings, sizeof settings, "dp=%d tp=%d", dp, tp);
    ds_buf_printf(
        &text,
        "dir 1\nparam dp = 1, tp = 1\ntopology @box { device g[4] : \"V100-PCIE-16GB\" }\n"
        "mesh @all = [dp = 4] on @box\nmesh @m = pick 0..dp * tp of @all [dp = dp, tp = "
        "tp]\nfunc @f(%s) -> (%s) {\n%s\n}\nscenario { program = @f\n mesh = @m }\n",
        at->args, at->results, at->lines);
    exec_text(c, text.text, settings, NULL);
    cr_expect_eq(c->status, DS_OK, "%s on %dx%d: %s\n%s", ds_op_name(at->code), dp, tp,
                 c->err.message, text.text);
    ds_buf_deinit(&text);
}

static void expect_same_on_meshes(const op_case *at) {
    static const int meshes[][2] = {{2, 1}, {1, 2}, {2, 2}};
    exec_case one;
    execute(&one, at, 1, 1);
    for (int k = 0; k < 3 && one.result; k++) {
        exec_case many;
        execute(&many, at, meshes[k][0], meshes[k][1]);
        if (many.result) {
            exec_expect_same(&one, &many, ds_op_name(at->code));
            cr_expect_gt(many.result->n_devices, 1, "%s", ds_op_name(at->code));
        }
        exec_free(&many);
    }
    exec_free(&one);
}

Test(exec_ops, do_not_depend_on_the_mesh) {
    for (int i = 0; i < N_CASES; i++) expect_same_on_meshes(&cases[i]);
    for (ds_opcode code = DS_OP_FIRST_TABLE_OP; code < DS_OP_COUNT; code++) {
        uint32_t n = plain_operands(ds_op_desc_of(code));
        if (!n || has_case(code)) continue;
        char lines[96];
        snprintf(lines, sizeof lines, "%%y = %s(%s)\nreturn %%y", ds_op_name(code),
                 n == 1 ? "%x" : "%x, %z");
        expect_same_on_meshes(
            &(op_case){code, "%x: f32[4@dp, 6@tp], %z: f32[4@dp, 6@tp]", "f32[4@dp, 6@tp]", lines});
    }
}

/* recv has no sharded form: test_exec_structure.c has it. */
Test(exec_ops, are_all_there) {
    for (ds_opcode code = DS_OP_FIRST_TABLE_OP; code < DS_OP_COUNT; code++)
        cr_expect(code == DS_OP_RECV || has_case(code) || plain_operands(ds_op_desc_of(code)),
                  "%s is not executed by any test", ds_op_name(code));
}
