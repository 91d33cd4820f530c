/* Result shapes and dtypes of every op, and what is refused. Shapes worked out by hand. */
#include "tests/support/op_text.h"

#include <criterion/criterion.h>
#include <stdio.h>

#define OK(args, line, want)        op_text_expect(args, line, want)
#define BAD(args, line, code, part) op_text_expect_error(args, line, DS_ERR_##code, part)

Test(ops_shapes, matmul) {
    OK("%a: f32[32, 64], %b: f32[64, 16]", "%y = matmul(%a, %b)", "f32[32, 16]");
    OK("%a: bf16[2, 3, 64], %b: bf16[64, 16]", "%y = matmul(%a, %b)", "bf16[2, 3, 16]");
    OK("%a: f32[64], %b: f32[64, 16]", "%y = matmul(%a, %b)", "f32[16]");
    OK("%a: f32[2, 3, 5, 64], %b: f32[2, 3, 64, 16]", "%y = matmul(%a, %b)", "f32[2, 3, 5, 16]");
    OK("%a: f32[64, 32], %b: f32[64, 16]", "%y = matmul(%a, %b) {transpose_a = true}",
       "f32[32, 16]");
    OK("%a: f32[7, 32, 64], %b: f32[16, 64]", "%y = matmul(%a, %b) {transpose_b = true}",
       "f32[7, 32, 16]");
    OK("%a: f32[7, 64, 32], %b: f32[7, 16, 64]",
       "%y = matmul(%a, %b) {transpose_a = true, transpose_b = true}", "f32[7, 32, 16]");
    BAD("%a: f32[32, 64], %b: f32[63, 16]", "%y = matmul(%a, %b)", SHAPE,
        "dim 0 of operand 1 (f32[63, 16]) is 63, but dim 1 of operand 0 (f32[32, 64]) is 64");
    BAD("%a: f32[32, 64], %b: bf16[64, 16]", "%y = matmul(%a, %b)", TYPE, "cast one of them");
    BAD("%a: f32[32, 64]", "%y = matmul(%a)", TYPE, "matmul has 2 operands, not 1");
    BAD("%a: f32[3, 4, 5], %b: f32[4, 5, 6]", "%y = matmul(%a, %b)", SHAPE, "must be equal");
    BAD("%a: f32[4, 5], %b: f32[4]", "%y = matmul(%a, %b)", SHAPE, "operand 1 has 1 dim");
    BAD("%a: f32[2, 4, 5], %b: f32[4, 5]", "%y = matmul(%a, %b) {transpose_a = true}", SHAPE,
        "operand 0 has 3 dims");
    BAD("%a: f32[4, 5], %b: f32[5, 6]", "%y = matmul(%a, %b) over dp", TYPE, "no 'over' clause");
}

Test(ops_shapes, attributes) {
    const char *args = "%a: f32[32, 64], %b: f32[64, 16]";
    BAD(args, "%y = matmul(%a, %b) {transpose_c = true}", NAME, "did you mean 'transpose_");
    BAD(args, "%y = matmul(%a, %b) {qqqqqq = true}", NAME,
        "it takes transpose_a, transpose_b, products, converts, name");
    BAD(args, "%y = matmul(%a, %b) {transpose_a = 1}", TYPE, "must be true or false");
    BAD(args, "%y = matmul(%a, %b) {cost = 3}", TYPE, "a time, such as 3 us");
    OK(args, "%y = matmul(%a, %b) {cost = 3 us, name = \"fc1\", stream = side}", "f32[32, 16]");
    BAD(args, "%y = scale(%a)", TYPE, "scale needs the attribute 'factor' (a number)");
    OK(args, "%y = scale(%a) {factor = 0.5}", "f32[32, 64]");
    OK(args, "%y = scale(%a) {factor = 2}", "f32[32, 64]");
    BAD(args, "%y = scale(%a) {factor = \"x\"}", TYPE, "must be a number");
    BAD(args, "%y = dropout(%a) {p = 0.1, p = 0.2}", NAME, "given twice");
    BAD(args, "%y = softmax(%a) {dim = 2}", VALUE, "'dim' is 2, but the operand has 2 dims");
    BAD(args, "%y = softmax(%a) {dim = 1.5}", TYPE, "must be an integer");
    BAD(args, "%y = softmax(%a) dim 1", TYPE, "{ dim = 1 }");
}

Test(ops_shapes, einsum) {
    OK("%x: f32[32, 8], %dz: f32[32, 5]", "%y = einsum(%x, %dz) {rule = \"b k, b n -> k n\"}",
       "f32[8, 5]");
    OK("%x: f32[4, 6, 8, 5], %w: f32[4, 5, 7]",
       "%y = einsum(%x, %w) {rule = \"e g c d, e d f -> e g c f\"}", "f32[4, 6, 8, 7]");
    OK("%x: f32[3, 8], %w: f32[8, 4, 5]",
       "%y = einsum(%x, %w) {rule = \"... k, k h d -> ... (h d)\"}", "f32[3, 20]");
    OK("%x: f32[3, 20], %w: f32[4, 5, 8]",
       "%y = einsum(%x, %w) {rule = \"... (h d), h d n -> ... n\"}", "f32[3, 8]");
}

Test(ops_shapes, einsum_errors) {
    const char *args = "%x: f32[3, 8], %w: f32[8, 20]";
    BAD(args, "%y = einsum(%x, %w) {rule = \"b k, k n -> b m\"}", SHAPE,
        "factor 'm' of the result occurs in no operand");
    BAD(args, "%y = einsum(%x, %w) {rule = \"b k, k n\"}", SYNTAX, "'->'");
    BAD(args, "%y = einsum(%x, %w) {rule = \"b k -> b k\"}", TYPE, "is for 1 operands");
    BAD(args, "%y = einsum(%x, %w) {rule = \"b b, b n -> n\"}", SYNTAX, "twice in one term");
    BAD(args, "%y = einsum(%x, %w) {rule = \"b k, k n -> b n; k: som\"}", NAME, "'sum'");
    BAD(args, "%y = einsum(%x, %w) {rule = \"b k, k (h d) -> b (h d)\"}", SHAPE,
        "nothing says how large the factors 'h' and 'd'");
    BAD(args, "%y = einsum(%x, %w) {rule = \"b k, k n -> b n; k: max\"}", VALUE,
        "sum or whole only");
    BAD(args, "%y = einsum(%x, %w)", TYPE, "needs the attribute 'rule'");
}

Test(ops_shapes, elementwise) {
    OK("%a: f32[4, 8], %b: f32[4, 8]", "%y = add(%a, %b)", "f32[4, 8]");
    OK("%a: f32[2, 4, 8], %b: f32[8]", "%y = mul(%a, %b)", "f32[2, 4, 8]");
    OK("%a: f32[2, 4, 8], %b: f32[4, 8]", "%y = sub(%a, %b)", "f32[2, 4, 8]");
    OK("%a: f32[2, 4, 8], %b: f32[4, 1]", "%y = div(%a, %b)", "f32[2, 4, 8]");
    OK("%a: f32[2, 4], %b: f32[]", "%y = mul(%a, %b)", "f32[2, 4]");
    OK("%a: f32[1, 4], %b: f32[1, 4]", "%y = add(%a, %b)", "f32[1, 4]");
    BAD("%a: f32[1, 4], %b: f32[3, 4]", "%y = add(%a, %b)", SHAPE, "must be equal");
    BAD("%a: f32[4], %b: f32[3, 4]", "%y = add(%a, %b)", SHAPE, "lower rank comes second");
    BAD("%a: f32[2, 4, 8], %b: f32[4]", "%y = add(%a, %b)", SHAPE, "must be equal");
    OK("%a: f32[2, 4, 8], %b: f32[8]", "%y = bias(%a, %b)", "f32[2, 4, 8]");
    OK("%a: f32[2, 4, 8, 8], %b: f32[4]", "%y = bias(%a, %b) {dim = 1}", "f32[2, 4, 8, 8]");
    BAD("%a: f32[2, 4], %b: f32[2]", "%y = bias(%a, %b)", SHAPE, "must be equal");
    const char *const unary[] = {"relu", "gelu", "silu", "tanh",   "sigmoid",
                                 "exp",  "sqrt", "neg",  "dropout"};
    for (size_t i = 0; i < sizeof unary / sizeof *unary; i++) {
        char line[64];
        snprintf(line, sizeof line, "%%y = %s(%%a)", unary[i]);
        OK("%a: f32[2, 4, 8]", line, "f32[2, 4, 8]");
    }
    BAD("%a: i32[4]", "%y = gelu(%a)", TYPE, "float dtype is needed");
    OK("%a: f32[4, 8]", "%y = cast(%a) {dtype = bf16}", "bf16[4, 8]");
    OK("%a: f32[4, 8]", "%y = cast(%a) : bf16[4, 8]", "bf16[4, 8]");
    BAD("%a: f32[4, 8]", "%y = cast(%a) {dtype = f33}", TYPE, "must be a dtype");
    BAD("%a: f32[4, 8]", "%y = cast(%a)", TYPE, "needs the attribute 'dtype'");
    OK("%a: f32[4, 8], %g: bf16[4, 8]", "%y = accumulate(%a, %g)", "f32[4, 8]");
    OK("%a: f32[4]", "%y = zeros() : bf16[8@dp, 3]", "bf16[8@dp, 3]");
    OK("%a: f32[4]", "%y = fill() {value = 1.0} : f32[]", "f32[]");
    BAD("%a: f32[4]", "%y = zeros()", TYPE, "must be written");
    OK("%d: f32[4, 8], %y: f32[4, 8]", "%z = relu_grad(%d, %y)", "f32[4, 8]");
    OK("%d: f32[4, 8], %y: f32[4, 8]", "%z = gelu_grad(%d, %y)", "f32[4, 8]");
}

Test(ops_shapes, normalisation_and_loss) {
    OK("%x: f32[2, 4, 8]", "%y = softmax(%x)", "f32[2, 4, 8]");
    OK("%x: f32[2, 4, 8]", "%y = softmax(%x) {dim = 0}", "f32[2, 4, 8]");
    OK("%d: f32[4, 8], %y: f32[4, 8]", "%z = softmax_grad(%d, %y)", "f32[4, 8]");
    OK("%x: bf16[2, 4, 8]", "%y = layer_norm(%x)", "bf16[2, 4, 8]");
    OK("%x: bf16[2, 4, 8], %g: f32[8], %b: f32[8]", "%y = layer_norm(%x, %g, %b)", "bf16[2, 4, 8]");
    BAD("%x: f32[2, 4, 8], %g: f32[4]", "%y = layer_norm(%x, %g)", SHAPE, "must be equal");
    OK("%x: bf16[2, 4, 8], %g: bf16[8]", "%y = rms_norm(%x, %g)", "bf16[2, 4, 8]");
    OK("%x: f32[32, 64, 7, 7], %g: f32[64], %b: f32[64]",
       "%y = batch_norm(%x, %g, %b) {groups = 4}", "f32[32, 64, 7, 7]");
    OK("%x: f32[32, 64]", "%y = batch_norm(%x)", "f32[32, 64]");
    BAD("%x: f32[30, 64]", "%y = batch_norm(%x) {groups = 4}", SHAPE, "not a multiple of 4");
    BAD("%x: f32[30, 64]", "%y = batch_norm(%x) {groups = -2}", VALUE, "'groups' is -2");
    BAD("%x: f32[30, 64]", "%y = batch_norm(%x) {groups = 0}", VALUE, "'groups' is 0");
    OK("%i: i32[2, 5], %t: bf16[100, 16]", "%y = embedding(%i, %t)", "bf16[2, 5, 16]");
    BAD("%i: f32[2, 5], %t: bf16[100, 16]", "%y = embedding(%i, %t)", TYPE, "integer dtype");
    OK("%x: f32[2, 5, 100], %l: i32[2, 5]", "%y = cross_entropy(%x, %l)", "f32[]");
    OK("%x: f32[2, 5, 100], %l: i32[2, 5]", "%y = cross_entropy(%x, %l) {reduction = none}",
       "f32[2, 5]");
    BAD("%x: f32[2, 5, 100], %l: i32[2, 5]", "%y = cross_entropy(%x, %l) {reduction = most}", VALUE,
        "none of mean, sum, none");
    OK("%x: f32[2, 5], %y: f32[2, 5]", "%z = mse(%x, %y)", "f32[]");
    OK("%x: f32[2, 5], %y: f32[2, 5]", "%z = mse(%x, %y) {reduction = \"none\"}", "f32[2, 5]");
    OK("%x: f32[2, 5], %y: f32[2, 5]", "%z = mse_grad(%x, %y)", "f32[2, 5]");
}

/* ResNet-50's first layers, a dilated, a grouped and a depthwise convolution. */
Test(ops_shapes, convolution) {
    OK("%x: f32[8, 3, 224, 224], %w: f32[64, 3, 7, 7]", "%y = conv2d(%x, %w) {stride = 2, pad = 3}",
       "f32[8, 64, 112, 112]");
    OK("%x: f32[8, 64, 112, 112]", "%y = max_pool(%x) {window = 3, stride = 2, pad = 1}",
       "f32[8, 64, 56, 56]");
    OK("%x: f32[8, 2048, 7, 7]", "%y = avg_pool(%x) {window = [7, 7]}", "f32[8, 2048, 1, 1]");
    OK("%x: f32[8, 6, 32, 20], %w: f32[16, 6, 5, 3]", "%y = conv2d(%x, %w)", "f32[8, 16, 28, 18]");
    OK("%x: f32[1, 4, 20, 20], %w: f32[4, 4, 3, 3]", "%y = conv2d(%x, %w) {dilation = 2}",
       "f32[1, 4, 16, 16]");
    OK("%x: f32[1, 4, 20, 20], %w: f32[4, 4, 3, 3]",
       "%y = conv2d(%x, %w) {stride = [2, 1], pad = [1, 0]}", "f32[1, 4, 10, 18]");
    OK("%x: f32[1, 12, 8, 8], %w: f32[6, 4, 3, 3]", "%y = conv2d(%x, %w) {groups = 3, pad = 1}",
       "f32[1, 6, 8, 8]");
    OK("%x: f32[1, 12, 8, 8], %w: f32[12, 1, 3, 3]", "%y = conv2d(%x, %w) {groups = 12, pad = 1}",
       "f32[1, 12, 8, 8]");
    BAD("%x: f32[1, 12, 8, 8], %w: f32[6, 12, 3, 3]", "%y = conv2d(%x, %w) {groups = 3}", SHAPE,
        "conv2d: dim 1 of operand 0");
    BAD("%x: f32[1, 3, 4, 4], %w: f32[6, 3, 7, 7]", "%y = conv2d(%x, %w)", SHAPE, "size -2");
    BAD("%x: f32[1, 3, 9, 9], %w: f32[6, 3, 3, 3]", "%y = conv2d(%x, %w) {stride = 0}", VALUE,
        "'stride' is 0, but must be at least 1");
    BAD("%x: f32[1, 3, 9, 9], %w: f32[6, 3, 3, 3]", "%y = conv2d(%x, %w) {pad = -1}", VALUE,
        "'pad' is -1");
    BAD("%x: f32[1, 3, 9, 9], %w: f32[6, 3, 3, 3]", "%y = conv2d(%x, %w) {dilation = []}", VALUE,
        "'dilation' is an empty list");
    BAD("%x: f32[1, 3, 9, 9]", "%y = max_pool(%x)", TYPE, "needs the attribute 'window'");
    BAD("%x: f32[1, 3, 9, 9]", "%y = max_pool(%x) {window = []}", VALUE, "empty list");
}

/* Sizes that the forward op floors away must be said; dy's are checked against them. */
Test(ops_shapes, convolution_backward) {
    const char *args = "%x: f32[8, 3, 224, 224], %w: f32[64, 3, 7, 7], %y: f32[8, 64, 112, 112]";
    OK(args, "%d = conv2d_grad_x(%y, %w) {size = 224, stride = 2, pad = 3}", "f32[8, 3, 224, 224]");
    OK(args, "%d = conv2d_grad_x(%y, %w) {size = [223, 224], stride = 2, pad = 3}",
       "f32[8, 3, 223, 224]");
    BAD(args, "%d = conv2d_grad_x(%y, %w) {size = [225, 224], stride = 2, pad = 3}", SHAPE,
        "h = 225 gives p = 113 in the forward op, but dy has 112");
    BAD(args, "%d = conv2d_grad_x(%y, %w) {stride = 2, pad = 3}", TYPE, "'size'");
    BAD(args, "%d = conv2d_grad_x(%y, %w) {size = [], stride = 2}", VALUE, "'size' is an empty");
    OK(args, "%d = conv2d_grad_w(%x, %y) {window = 7, stride = 2, pad = 3}", "f32[64, 3, 7, 7]");
    OK(args, "%d = conv2d_grad_w(%x, %y) {window = [8, 7], stride = 2, pad = 3}",
       "f32[64, 3, 8, 7]");
    BAD(args, "%d = conv2d_grad_w(%x, %y) {window = 5, stride = 2, pad = 3}", SHAPE, "dy has 112");
    BAD(args, "%d = conv2d_grad_w(%x, %y) {window = []}", VALUE, "'window' is an empty");
    OK("%x: f32[1, 12, 8, 8], %y: f32[1, 6, 6, 6]",
       "%d = conv2d_grad_w(%x, %y) {window = 3, groups = 3}", "f32[6, 4, 3, 3]");
    BAD("%x: f32[1, 12, 8, 8], %y: f32[1, 6, 6, 6]",
        "%d = conv2d_grad_w(%x, %y) {window = 3, groups = 5}", SHAPE, "a multiple of 5");
    OK("%y: f32[1, 3, 4, 4], %x: f32[1, 3, 9, 8]", "%d = max_pool_grad(%y, %x) {window = 2}",
       "f32[1, 3, 9, 8]");
    BAD("%y: f32[1, 3, 4, 4], %x: f32[1, 3, 9, 10]", "%d = max_pool_grad(%y, %x) {window = 2}",
        SHAPE, "w = 10 gives q = 5");
    OK("%y: f32[1, 3, 4, 4]", "%d = avg_pool_grad(%y) {window = 2, size = [8, 9]}",
       "f32[1, 3, 8, 9]");
    BAD("%y: f32[1, 3, 4, 4]", "%d = avg_pool_grad(%y) {window = 2, size = 7}", SHAPE, "p = 3");
}

Test(ops_shapes, recurrent_and_attention) {
    const char *lstm = "%x: f32[16, 50, 512], %wx: f32[512, 4096], %wh: f32[1024, 4096], "
                       "%b: f32[4096], %h: f32[16, 1024], %c: f32[16, 1024]";
    OK(lstm, "%y = lstm(%x, %wx, %wh)", "f32[16, 50, 1024]");
    OK(lstm, "%y, %hn, %cn = lstm(%x, %wx, %wh, %b, %h, %c)",
       "f32[16, 50, 1024]; f32[16, 1024]; f32[16, 1024]");
    BAD(lstm, "%y = lstm(%x, %wx, %wh, %b, %h)", TYPE, "both initial states");
    const char *back = "%y: f32[16, 50, 1024], %x: f32[16, 50, 512], %wx: f32[512, 4096], "
                       "%wh: f32[1024, 4096], %b: f32[4096], %h: f32[16, 1024], %c: f32[16, 1024]";
    OK(back, "%dx, %dw, %dr = lstm_grad(%y, %x, %wx, %wh)",
       "f32[16, 50, 512]; f32[512, 4096]; f32[1024, 4096]");
    OK(back, "%dx, %dw, %dr, %db, %dh, %dc = lstm_grad(%y, %x, %wx, %wh, %b, %h, %c)",
       "f32[16, 50, 512]; f32[512, 4096]; f32[1024, 4096]; f32[4096]; f32[16, 1024]; "
       "f32[16, 1024]");
    BAD(back, "%dx, %dw, %dr = lstm_grad(%y, %x, %wx, %wh, %b)", TYPE, "as many results, not 3");
    BAD(back, "%dx, %dw, %dr, %db, %dh = lstm_grad(%y, %x, %wx, %wh, %b, %h)", TYPE,
        "both initial states");
    BAD(back, "%dx, %dw, %dr = lstm_grad(%x, %x, %wx, %wh)", SHAPE, "have 512 units");
    BAD("%x: f32[16, 50, 512], %wx: f32[512, 4096], %wh: f32[1000, 4096]",
        "%y = lstm(%x, %wx, %wh)", SHAPE, "dim 1 of operand 1");
    BAD("%x: f32[16, 50, 512], %wx: f32[512, 4096], %wh: f32[1024, 4096], %b: f32[4096], "
        "%h: f32[16, 1000], %c: f32[16, 1000]",
        "%y = lstm(%x, %wx, %wh, %b, %h, %c)", SHAPE, "have 1000 units");
    OK("%q: bf16[2, 128, 12, 64], %k: bf16[2, 128, 12, 64], %v: bf16[2, 128, 12, 64]",
       "%y = attention(%q, %k, %v) {causal = true}", "bf16[2, 128, 12, 64]");
    OK("%q: bf16[2, 128, 32, 64], %k: bf16[2, 256, 8, 64], %v: bf16[2, 256, 8, 96]",
       "%y = attention(%q, %k, %v)", "bf16[2, 128, 32, 96]");
    OK("%q: bf16[2, 128, 32, 64], %k: bf16[2, 256, 1, 64], %v: bf16[2, 256, 1, 64]",
       "%y = attention(%q, %k, %v)", "bf16[2, 128, 32, 64]");
    BAD("%q: bf16[2, 128, 30, 64], %k: bf16[2, 128, 8, 64], %v: bf16[2, 128, 8, 64]",
        "%y = attention(%q, %k, %v)", SHAPE, "is 30, which is not a multiple of 8");
    OK("%q: bf16[2, 128, 32, 64], %k: bf16[2, 256, 8, 64], %v: bf16[2, 256, 8, 96]",
       "%y, %l = attention(%q, %k, %v) {q_start = 128}", "bf16[2, 128, 32, 96]; f32[2, 128, 32]");
    OK("%q: bf16[2, 128, 32, 64], %k: bf16[2, 256, 8, 64], %v: bf16[2, 256, 8, 96], "
       "%y: bf16[2, 128, 32, 96], %l: f32[2, 128, 32]",
       "%a, %b, %c = attention_grad(%y, %q, %k, %v, %y, %l)",
       "bf16[2, 128, 32, 64]; bf16[2, 256, 8, 64]; bf16[2, 256, 8, 96]");
    BAD("%q: bf16[2, 128, 32, 64], %k: bf16[2, 256, 8, 64], %l: f32[2, 128, 8]",
        "%a, %b, %c = attention_grad(%q, %q, %k, %k, %q, %l)", SHAPE, "operand 5");
    BAD("%q: bf16[2, 128, 32, 64]", "%a, %l = attention(%q, %q, %q) {q_start = 0.5}", TYPE,
        "'q_start' must be an integer");
    OK("%x: bf16[2, 128, 32, 64]", "%y = rotary(%x)", "bf16[2, 128, 32, 64]");
}

Test(ops_shapes, layout) {
    OK("%x: f32[2, 3, 20]", "%y = reshape(%x) {shape = [2, 3, 4, 5]}", "f32[2, 3, 4, 5]");
    OK("%x: f32[2, 3, 20]", "%y = reshape(%x) : f32[6, 20]", "f32[6, 20]");
    OK("%x: f32[2, 3, 4]", "%y = reshape(%x) {shape = 24}", "f32[24]");
    OK("%x: f32[1, 1]", "%y = reshape(%x) : f32[]", "f32[]");
    OK("%x: f32[6, 4]", "%y = reshape(%x) : f32[4, 6]", "f32[4, 6]");
    OK("%x: f32[6, 1, 4]", "%y = reshape(%x) : f32[1, 6, 4, 1]", "f32[1, 6, 4, 1]");
    OK("%x: f32[2,2,2,2,2,2,2,2]", "%y = reshape(%x) : f32[16, 16]", "f32[16, 16]");
    BAD("%x: f32[2, 3, 20]", "%y = reshape(%x) {shape = [2, 3, 4, 4]}", SHAPE, "other elements");
    BAD("%x: f32[2, 3]", "%y = reshape(%x) {shape = [2, 3, 2]}", SHAPE, "other elements");
    BAD("%x: f32[2, 3, 20]", "%y = reshape(%x)", TYPE, "needs the attribute 'shape'");
    OK("%x: f32[2, 3, 20]", "%y = transpose(%x)", "f32[2, 20, 3]");
    OK("%x: f32[2, 3, 20]", "%y = transpose(%x) {perm = [2, 0, 1]}", "f32[20, 2, 3]");
    BAD("%x: f32[2, 3, 20]", "%y = transpose(%x) {perm = [2, 0, 0]}", VALUE, "names dim 0 twice");
    BAD("%x: f32[2, 3, 20]", "%y = transpose(%x) {perm = [1, 0]}", VALUE, "2 entries for 3 dims");
    OK("%a: f32[2, 3], %b: f32[4, 3], %c: f32[1, 3]", "%y = concat(%a, %b, %c)", "f32[7, 3]");
    OK("%a: f32[2, 3], %b: f32[2, 5]", "%y = concat(%a, %b) {dim = -1}", "f32[2, 8]");
    BAD("%a: f32[2, 3], %b: f32[4, 5]", "%y = concat(%a, %b)", SHAPE, "must be equal");
    OK("%x: f32[4, 12]", "%q, %k, %v = split(%x) {dim = 1}", "f32[4, 4]; f32[4, 4]; f32[4, 4]");
    OK("%x: f32[4, 12]", "%q, %k, %v = split(%x) {dim = 1, sizes = [8, 2, 2]}",
       "f32[4, 8]; f32[4, 2]; f32[4, 2]");
    BAD("%x: f32[4, 12]", "%a, %b = split(%x) {dim = 1, sizes = [8, 2]}", SHAPE, "add up to 10");
    BAD("%x: f32[4, 12]", "%a, %b = split(%x) {dim = 1, sizes = [8, 2, 2]}", TYPE, "3 sizes");
    BAD("%x: f32[4, 12]", "%a, %b, %c = split(%x)", SHAPE, "do not make up dim 0 of 4");
    OK("%x: f32[4, 12]", "%y = slice(%x) {dim = 1, lo = 3, hi = 7}", "f32[4, 4]");
    BAD("%x: f32[4, 12]", "%y = slice(%x) {dim = 1, lo = 3, hi = 13}", VALUE, "3 to 13");
    BAD("%x: f32[4, 12]", "%y = slice(%x) {dim = 1, lo = 4, hi = 3}", VALUE, "4 to 3");
    BAD("%x: f32[4, 12]", "%y = slice(%x) {dim = 1, lo = 3, hi = 3}", SHAPE, "dim 1 has size 0");
    OK("%x: f32[4, 12]", "%y = pad(%x) {dim = 0, lo = 1, hi = 2}", "f32[7, 12]");
    BAD("%x: f32[4, 12]", "%y = pad(%x) {lo = -1}", VALUE, "'lo' is -1");
}

Test(ops_shapes, reductions) {
    OK("%x: f32[2, 3, 20]", "%y = reduce_sum(%x)", "f32[]");
    OK("%x: f32[2, 3, 20]", "%y = reduce_sum(%x) {dims = [0, 2]}", "f32[3]");
    OK("%x: f32[2, 3, 20]", "%y = reduce_mean(%x) {dims = -1, keep = true}", "f32[2, 3, 1]");
    OK("%x: f32[2, 3, 20]", "%y = reduce_max(%x) {dims = [0]}", "f32[3, 20]");
    BAD("%x: f32[2, 3]", "%y = reduce_sum(%x) {dims = [0, 0]}", VALUE, "twice");
    BAD("%x: f32[2, 3]", "%y = reduce_sum(%x) {dims = [2]}", VALUE, "has 2 dims");
}

Test(ops_shapes, experts) {
    OK("%x: f32[8, 64, 16]", "%v, %i = topk(%x) {k = 2}", "f32[8, 64, 2]; i32[8, 64, 2]");
    BAD("%x: f32[8, 4]", "%v, %i = topk(%x) {k = 5}", VALUE, "k is 5");
    OK("%x: bf16[8, 64, 32], %i: i32[8, 64, 2]",
       "%y = dispatch(%x, %i) {experts = 16, capacity = 10}", "bf16[8, 16, 10, 32]");
    OK("%y: bf16[8, 16, 10, 32], %i: i32[8, 64, 2], %w: f32[8, 64, 2]", "%z = combine(%y, %i, %w)",
       "bf16[8, 64, 32]");
    OK("%x: bf16[64, 32], %i: i32[64, 2]", "%y = dispatch(%x, %i) {experts = 16, capacity = 10}",
       "bf16[16, 10, 32]");
    OK("%x: bf16[3, 8, 64, 32], %i: i32[3, 8, 64, 2], %y: bf16[3, 8, 16, 10, 32]",
       "%w = combine_grad(%x, %y, %i)", "bf16[3, 8, 64, 2]");
    BAD("%x: bf16[8, 64, 32], %i: i32[64, 2]",
        "%y = dispatch(%x, %i) {experts = 16, capacity = 10}", SHAPE, "operand 1 has 2 dims");
    BAD("%x: bf16[8, 64, 32], %i: i32[8, 64, 2], %w: f32[8, 64, 3]",
        "%y = dispatch(%x, %i, %w) {experts = 16, capacity = 10}", SHAPE, "must be equal");
    OK("%d: f32[8, 64, 2], %i: i32[8, 64, 2]", "%r = topk_grad(%d, %i) {size = 16}",
       "f32[8, 64, 16]");
    BAD("%d: f32[8, 64, 2], %i: i32[8, 64, 2]", "%r = topk_grad(%d, %i) {size = 0}", VALUE,
        "'size' is 0");
}

Test(ops_shapes, optimizers) {
    const char *args =
        "%w: bf16[8, 4], %g: bf16[8, 4], %m: f32[8, 4], %v: f32[8, 4], %c: f32[8, 4]";
    OK(args, "%a = sgd(%w, %g)", "bf16[8, 4]");
    OK(args, "%a, %b = sgd(%w, %g, %c)", "bf16[8, 4]; f32[8, 4]");
    OK(args, "%a, %b = momentum(%w, %g, %m)", "bf16[8, 4]; f32[8, 4]");
    OK(args, "%a, %b, %d = adam(%w, %g, %m, %v)", "bf16[8, 4]; f32[8, 4]; f32[8, 4]");
    OK(args, "%a, %b, %d, %e = adamw(%w, %g, %m, %v, %c)",
       "bf16[8, 4]; f32[8, 4]; f32[8, 4]; f32[8, 4]");
    BAD(args, "%a, %b, %d, %e = adamw(%w, %g, %m, %v)", TYPE, "4 operands has 3 results");
    BAD("%w: f32[8, 4], %g: f32[4, 8]", "%a = sgd(%w, %g)", SHAPE, "must be equal");
}

/* Dims stay in the user's words. */
Test(ops_shapes, symbols) {
    const struct {
        const char *args, *line, *want;
    } cases[] = {
        {"%x: f32[b, s, w], %k: f32[w, 4 * w]", "%y = matmul(%x, %k)", "f32[b, s, 4 * w]"},
        {"%x: f32[b, s, h * d]", "%y = reshape(%x) {shape = [b, s, h, d]}", "f32[b, s, h, d]"},
        {"%x: f32[b, s, w]", "%y = reshape(%x) {shape = [b, s, h, w / h]}", "f32[b, s, h, w / h]"},
        {"%x: f32[b, s, h, w / h]", "%y = reshape(%x) {shape = [b, s, w]}", "f32[b, s, w]"},
        {"%q: f32[b, s, h, d], %k: f32[b, s, g, d]", "%y = attention(%q, %k, %k)",
         "f32[b, s, h, d]"},
        {"%x: f32[b, 3, s, s], %k: f32[w, 3, 3, 3]", "%y = conv2d(%x, %k) {pad = 1}",
         "f32[b, w, s, s]"},
        {"%x: f32[b, 3, s, s], %k: f32[w, 3, 3, 3]", "%y = conv2d(%x, %k)",
         "f32[b, w, s - 2, s - 2]"},
        {"%x: f32[b, w], %y: f32[s, w]", "%z = concat(%x, %y)", "f32[b + s, w]"},
        {"%x: f32[b, w]", "%y = slice(%x) {dim = 1, hi = w - 1}", "f32[b, w - 1]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (unsigned mode = OP_TEXT_SYMBOLIC; mode <= OP_TEXT_BOUND; mode++) {
            op_text t;
            op_text_init(&t, "b = 8, s = 16, w = 64, h = 4, d = 16, g = 2", cases[i].args,
                         cases[i].line, mode);
            cr_expect_str_eq(t.err.code ? t.err.message : t.result.text, cases[i].want);
            op_text_deinit(&t);
        }
}

/* What symbols leave open is decided when the params are bound. */
Test(ops_shapes, bound) {
    const char *args = "%x: f32[b, k], %w: f32[n, 4]", *line = "%y = matmul(%x, %w)";
    op_text t;
    op_text_init(&t, "b = 8, k = 16, n = 17", args, line, OP_TEXT_SYMBOLIC);
    cr_expect_str_eq(t.err.code ? t.err.message : t.result.text, "f32[b, 4]");
    op_text_deinit(&t);
    op_text_init(&t, "b = 8, k = 16, n = 17", args, line, OP_TEXT_BOUND);
    cr_expect_eq(t.err.code, DS_ERR_SHAPE);
    cr_expect(strstr(t.err.message, "n = 17") && strstr(t.err.message, "k = 16"), "%s",
              t.err.message);
    op_text_deinit(&t);
    op_text_init(&t, "b = 0, k = 16, n = 16", args, line, OP_TEXT_BOUND);
    cr_expect(strstr(t.err.message, "dim 0 has size b = 0"), "%s", t.err.message);
    op_text_deinit(&t);
}
