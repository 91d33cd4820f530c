/* Softmax, normalisation, losses, convolution, pooling, LSTM, attention and rotary embedding
 * against loops written out. */
#include "tests/support/exec.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

/* ---- softmax and normalisation ---- */

Test(exec_nn, softmax_over_any_dim) {
    exec_case c;
    exec_lines(&c, "%x: f32[2, 3, 4]", "f32[2, 3, 4], f32[2, 3, 4]",
               "%y = softmax(%x)\n%z = softmax(%x) {dim = 1}\nreturn %y, %z");
    const double *x = exec_in(&c, "x");
    double y[24], z[24];
    for (int b = 0; b < 2; b++)
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < 4; j++) {
                double row = 0, column = 0;
                for (int k = 0; k < 4; k++) row += exp(x[b * 12 + i * 4 + k]);
                for (int k = 0; k < 3; k++) column += exp(x[b * 12 + k * 4 + j]);
                y[b * 12 + i * 4 + j] = exp(x[b * 12 + i * 4 + j]) / row;
                z[b * 12 + i * 4 + j] = exp(x[b * 12 + i * 4 + j]) / column;
            }
    exec_expect(exec_out(&c, "y"), y, 24, "last dim");
    exec_expect(exec_out(&c, "z"), z, 24, "dim 1");
    exec_free(&c);
}

Test(exec_nn, softmax_of_large_numbers) {
    ds_exec_tensor x = {
        .name = "x", .rank = 1, .dims = {3}, .n = 3, .at = (double[]){1000, 1001, -1000}};
    ds_exec_options options = {.inputs = &x, .n_inputs = 1};
    exec_case c;
    exec_text(&c, "dir 1\nfunc @f(%x: f32[3]) -> f32[3] {\n%y = softmax(%x)\nreturn %y\n}\n", NULL,
              &options);
    exec_expect(exec_out(&c, "y"), (double[]){1 / (1 + exp(1)), 1 / (1 + exp(-1)), 0}, 3,
                "shifted");
    exec_free(&c);
}

/* dx_i = sum_j dy_j d y_j / d x_i with the Jacobian y_j (delta_ij - y_i) */
Test(exec_nn, softmax_gradient) {
    exec_case c;
    exec_lines(&c, "%x: f32[5], %dy: f32[5]", "f32[5], f32[5]",
               "%y = softmax(%x)\n%dx = softmax_grad(%dy, %y)\nreturn %y, %dx");
    const double *y = exec_out(&c, "y"), *dy = exec_in(&c, "dy");
    double want[5] = {0};
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 5; j++) want[i] += dy[j] * y[j] * ((i == j) - y[i]);
    exec_expect(exec_out(&c, "dx"), want, 5, "Jacobian");
    exec_free(&c);
}

Test(exec_nn, layer_and_rms_norm) {
    exec_case c;
    exec_lines(&c, "%x: f32[2, 5], %g: f32[5], %b: f32[5]",
               "f32[2, 5], f32[2, 5], f32[2, 5], f32[2, 5]",
               "%p = layer_norm(%x)\n%l = layer_norm(%x, %g, %b) {eps = 0.01}\n"
               "%q = rms_norm(%x)\n%r = rms_norm(%x, %g) {eps = 0.01}\nreturn %p, %l, %q, %r");
    const double *x = exec_in(&c, "x"), *g = exec_in(&c, "g"), *b = exec_in(&c, "b");
    double want[4][10];
    for (int i = 0; i < 2; i++) {
        double sum = 0, square = 0, mean, variance;
        for (int j = 0; j < 5; j++) sum += x[i * 5 + j], square += x[i * 5 + j] * x[i * 5 + j];
        mean = sum / 5;
        variance = square / 5 - mean * mean;
        for (int j = 0; j < 5; j++) {
            double centred = x[i * 5 + j] - mean;
            want[0][i * 5 + j] = centred / sqrt(variance + 1e-5);
            want[1][i * 5 + j] = centred / sqrt(variance + 0.01) * g[j] + b[j];
            want[2][i * 5 + j] = x[i * 5 + j] / sqrt(square / 5 + 1e-6);
            want[3][i * 5 + j] = x[i * 5 + j] / sqrt(square / 5 + 0.01) * g[j];
        }
    }
    const char *names[] = {"p", "l", "q", "r"};
    for (int i = 0; i < 4; i++) exec_expect(exec_out(&c, names[i]), want[i], 10, names[i]);
    exec_free(&c);
}

Test(exec_nn, batch_norm_by_groups) {
    exec_case c;
    exec_lines(&c, "%x: f32[4, 2, 3], %g: f32[2], %b: f32[2]", "f32[4, 2, 3]",
               "%y = batch_norm(%x, %g, %b) {groups = 2, eps = 0.1}\nreturn %y");
    const double *x = exec_in(&c, "x");
    double want[24];
    for (int u = 0; u < 2; u++)
        for (int ch = 0; ch < 2; ch++) {
            double sum = 0, square = 0;
            for (int n = 2 * u; n < 2 * u + 2; n++)
                for (int l = 0; l < 3; l++) {
                    double v = x[n * 6 + ch * 3 + l];
                    sum += v, square += v * v;
                }
            double mean = sum / 6, variance = square / 6 - mean * mean;
            for (int n = 2 * u; n < 2 * u + 2; n++)
                for (int l = 0; l < 3; l++)
                    want[n * 6 + ch * 3 + l] = (x[n * 6 + ch * 3 + l] - mean) /
                                                   sqrt(variance + 0.1) * exec_in(&c, "g")[ch] +
                                               exec_in(&c, "b")[ch];
        }
    exec_expect(exec_out(&c, "y"), want, 24, "batch_norm");
    exec_free(&c);
}

/* ---- losses ---- */

Test(exec_nn, mse_and_its_gradient) {
    exec_case c;
    exec_lines(&c, "%x: f32[2, 3], %t: f32[2, 3]", "f32[], f32[], f32[2, 3], f32[2, 3], f32[2, 3]",
               "%m = mse(%x, %t)\n%s = mse(%x, %t) {reduction = sum}\n"
               "%e = mse(%x, %t) {reduction = none}\n%g = mse_grad(%x, %t)\n"
               "%h = mse_grad(%x, %t) {reduction = sum}\nreturn %m, %s, %e, %g, %h");
    double sum = 0, e[6], g[6], h[6];
    for (int i = 0; i < 6; i++) {
        double d = exec_in(&c, "x")[i] - exec_in(&c, "t")[i];
        e[i] = d * d;
        sum += e[i];
        h[i] = 2 * d;
        g[i] = h[i] / 6;
    }
    exec_expect(exec_out(&c, "s"), &sum, 1, "sum");
    sum /= 6;
    exec_expect(exec_out(&c, "m"), &sum, 1, "mean");
    exec_expect(exec_out(&c, "e"), e, 6, "none");
    exec_expect(exec_out(&c, "g"), g, 6, "gradient of the mean");
    exec_expect(exec_out(&c, "h"), h, 6, "gradient of the sum");
    exec_free(&c);
}

Test(exec_nn, cross_entropy) {
    exec_case c;
    exec_lines(&c, "%x: f32[3, 5], %l: i32[3]", "f32[], f32[], f32[3]",
               "%m = cross_entropy(%x, %l)\n%s = cross_entropy(%x, %l) {reduction = sum}\n"
               "%r = cross_entropy(%x, %l) {reduction = none}\nreturn %m, %s, %r");
    double sum = 0, rows[3];
    for (int i = 0; i < 3; i++) {
        double total = 0, label = exec_in(&c, "l")[i];
        cr_assert(label >= 0 && label < 5 && label == floor(label), "label %g", label);
        for (int j = 0; j < 5; j++) total += exp(exec_in(&c, "x")[i * 5 + j]);
        rows[i] = -log(exp(exec_in(&c, "x")[i * 5 + (int)label]) / total);
        sum += rows[i];
    }
    exec_expect(exec_out(&c, "r"), rows, 3, "rows");
    exec_expect(exec_out(&c, "s"), &sum, 1, "sum");
    sum /= 3;
    exec_expect(exec_out(&c, "m"), &sum, 1, "mean");
    exec_free(&c);
}

Test(exec_nn, embedding) {
    exec_case c;
    exec_lines(&c, "%ids: i32[2, 3], %t: f32[7, 2]", "f32[2, 3, 2]",
               "%y = embedding(%ids, %t)\nreturn %y");
    double want[12];
    for (int i = 0; i < 6; i++)
        memcpy(want + 2 * i, exec_in(&c, "t") + 2 * (int)exec_in(&c, "ids")[i], 2 * sizeof *want);
    exec_expect(exec_out(&c, "y"), want, 12, "embedding");
    exec_free(&c);
}

static void with_ids(const char *text, double a, double b, exec_case *c) {
    ds_exec_tensor ids = {.name = "ids", .rank = 1, .dims = {2}, .n = 2, .at = (double[]){a, b}};
    ds_exec_options options = {.inputs = &ids, .n_inputs = 1};
    exec_text(c, text, NULL, &options);
}

Test(exec_nn, indices_outside_their_table) {
    static const char look_up[] = "dir 1\nfunc @f(%ids: i32[2], %t: f32[7, 2]) -> f32[2, 2] {\n"
                                  "%y = embedding(%ids, %t)\nreturn %y\n}\n";
    static const char label[] = "dir 1\nfunc @f(%x: f32[2, 4], %ids: i32[2]) -> f32[] {\n"
                                "%y = cross_entropy(%x, %ids)\nreturn %y\n}\n";
    exec_case c;
    with_ids(look_up, 0, 7, &c);
    cr_expect_eq(c.status, DS_ERR_VALUE);
    cr_expect(strstr(c.err.message, "row 7 is none of 0 .. 6"), "%s", c.err.message);
    exec_free(&c);
    with_ids(look_up, -1, 0, &c);
    cr_expect_eq(c.status, DS_ERR_VALUE);
    exec_free(&c);
    with_ids(label, 4, 0, &c);
    cr_expect(strstr(c.err.message, "label 4 is none of 0 .. 3"), "%s", c.err.message);
    exec_free(&c);
}

/* ---- convolution and pooling ---- */

static double pixel(const double *x, int channels, int n, int c, int h, int w) {
    return h < 0 || h >= 5 || w < 0 || w >= 6 ? 0 : x[((n * channels + c) * 5 + h) * 6 + w];
}

Test(exec_nn, convolution_with_stride_pad_and_dilation) {
    exec_case c;
    exec_lines(&c, "%x: f32[2, 3, 5, 6], %f: f32[4, 3, 2, 3]", "f32[2, 4, 3, 4]",
               "%y = conv2d(%x, %f) {stride = [2, 1], pad = [1, 1], dilation = [2, 2]}\nreturn %y");
    const double *x = exec_in(&c, "x"), *f = exec_in(&c, "f");
    double want[96];
    for (int n = 0, at = 0; n < 2; n++)
        for (int k = 0; k < 4; k++)
            for (int p = 0; p < 3; p++)
                for (int q = 0; q < 4; q++, at++) {
                    want[at] = 0;
                    for (int i = 0; i < 3; i++)
                        for (int r = 0; r < 2; r++)
                            for (int s = 0; s < 3; s++)
                                want[at] += f[((k * 3 + i) * 2 + r) * 3 + s] *
                                            pixel(x, 3, n, i, 2 * p - 1 + 2 * r, q - 1 + 2 * s);
                }
    exec_expect(exec_out(&c, "y"), want, 96, "conv2d");
    exec_free(&c);
}

/* Depthwise: channel c of the result sees channel c alone. */
Test(exec_nn, grouped_convolution) {
    exec_case c;
    exec_lines(&c, "%x: f32[1, 2, 5, 6], %f: f32[4, 1, 1, 1]", "f32[1, 4, 5, 6]",
               "%y = conv2d(%x, %f) {groups = 2}\nreturn %y");
    double want[120];
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < 30; i++)
            want[k * 30 + i] = exec_in(&c, "f")[k] * exec_in(&c, "x")[k / 2 * 30 + i];
    exec_expect(exec_out(&c, "y"), want, 120, "two filters a group");
    exec_free(&c);
}

Test(exec_nn, pooling) {
    exec_case c;
    exec_lines(&c, "%x: f32[1, 2, 5, 6]", "f32[1, 2, 3, 3], f32[1, 2, 3, 3], f32[1, 2, 2, 3]",
               "%m = max_pool(%x) {window = [3, 2], stride = 2, pad = [1, 0]}\n"
               "%a = avg_pool(%x) {window = [3, 2], stride = 2, pad = [1, 0]}\n"
               "%d = max_pool(%x) {window = 2}\nreturn %m, %a, %d");
    const double *x = exec_in(&c, "x");
    double m[18], a[18];
    for (int ch = 0, at = 0; ch < 2; ch++)
        for (int p = 0; p < 3; p++)
            for (int q = 0; q < 3; q++, at++) {
                m[at] = -1e9;
                a[at] = 0;
                for (int r = 0; r < 3; r++)
                    for (int s = 0; s < 2; s++) {
                        int h = 2 * p - 1 + r, w = 2 * q + s;
                        if (h >= 0 && h < 5) m[at] = fmax(m[at], pixel(x, 2, 0, ch, h, w));
                        a[at] += pixel(x, 2, 0, ch, h, w) / 6;
                    }
            }
    exec_expect(exec_out(&c, "m"), m, 18, "max_pool");
    exec_expect(exec_out(&c, "a"), a, 18, "avg_pool counts padding");
    cr_expect_eq(exec_out(&c, "d")[0], fmax(fmax(x[0], x[1]), fmax(x[6], x[7])));
    exec_free(&c);
}

/* ---- lstm ---- */

static double s(double x) {
    return 1 / (1 + exp(-x));
}

/* One unit, so each gate is one number: z_j = w_j x + r_j h + b_j for i, f, g, o. */
Test(exec_nn, lstm_of_one_unit_by_hand) {
    exec_case c;
    exec_lines(&c,
               "%x: f32[1, 3, 1], %w: f32[1, 4], %r: f32[1, 4], %b: f32[4], %h: f32[1, 1], "
               "%c: f32[1, 1]",
               "f32[1, 3, 1], f32[1, 1], f32[1, 1]",
               "%y, %hn, %cn = lstm(%x, %w, %r, %b, %h, %c)\nreturn %y, %hn, %cn");
    const double *w = exec_in(&c, "w"), *r = exec_in(&c, "r"), *b = exec_in(&c, "b");
    double h = exec_in(&c, "h")[0], cell = exec_in(&c, "c")[0], y[3];
    for (int t = 0; t < 3; t++) {
        double z[4];
        for (int j = 0; j < 4; j++) z[j] = w[j] * exec_in(&c, "x")[t] + r[j] * h + b[j];
        cell = s(z[1]) * cell + s(z[0]) * tanh(z[2]);
        y[t] = h = s(z[3]) * tanh(cell);
    }
    exec_expect(exec_out(&c, "y"), y, 3, "hidden states");
    exec_expect(exec_out(&c, "hn"), &h, 1, "last hidden state");
    exec_expect(exec_out(&c, "cn"), &cell, 1, "last cell state");
    exec_free(&c);
}

/* Several rows and units, no bias, zero states: the first step has no recurrent part. */
Test(exec_nn, lstm_first_step) {
    exec_case c;
    exec_lines(&c, "%x: f32[2, 1, 3], %w: f32[3, 8], %r: f32[2, 8]", "f32[2, 1, 2]",
               "%y = lstm(%x, %w, %r)\nreturn %y");
    double want[4];
    for (int b = 0; b < 2; b++)
        for (int u = 0; u < 2; u++) {
            double z[4] = {0};
            for (int j = 0; j < 4; j++)
                for (int i = 0; i < 3; i++)
                    z[j] += exec_in(&c, "x")[b * 3 + i] * exec_in(&c, "w")[i * 8 + j * 2 + u];
            want[b * 2 + u] = s(z[3]) * tanh(s(z[0]) * tanh(z[2]));
        }
    exec_expect(exec_out(&c, "y"), want, 4, "first step");
    exec_free(&c);
}

/* ---- attention ---- */

/* b = 2 rows, s = 3 queries, t = 5 keys, 4 query heads over 2 key heads, d = 3, e = 2. */
static void attention(bool causal, double scale, const exec_case *c, double *out) {
    const double *q = exec_in(c, "q"), *k = exec_in(c, "k"), *v = exec_in(c, "v");
    for (int b = 0; b < 2; b++)
        for (int i = 0; i < 3; i++)
            for (int h = 0; h < 4; h++) {
                double weight[5], sum = 0;
                for (int t = 0; t < 5; t++) {
                    double dot = 0;
                    for (int d = 0; d < 3; d++)
                        dot +=
                            q[((b * 3 + i) * 4 + h) * 3 + d] * k[((b * 5 + t) * 2 + h / 2) * 3 + d];
                    weight[t] = causal && t > i + 2 ? 0 : exp(dot * scale);
                    sum += weight[t];
                }
                for (int e = 0; e < 2; e++) {
                    double *o = &out[((b * 3 + i) * 4 + h) * 2 + e];
                    *o = 0;
                    for (int t = 0; t < 5; t++)
                        *o += weight[t] / sum * v[((b * 5 + t) * 2 + h / 2) * 2 + e];
                }
            }
}

Test(exec_nn, attention_grouped_causal_and_scaled) {
    exec_case c;
    exec_lines(&c, "%q: f32[2, 3, 4, 3], %k: f32[2, 5, 2, 3], %v: f32[2, 5, 2, 2]",
               "f32[2, 3, 4, 2], f32[2, 3, 4, 2], f32[2, 3, 4, 2]",
               "%a = attention(%q, %k, %v)\n%b = attention(%q, %k, %v) {causal = true}\n"
               "%s = attention(%q, %k, %v) {scale = 2.0}\nreturn %a, %b, %s");
    double want[48];
    attention(false, 1 / sqrt(3), &c, want);
    exec_expect(exec_out(&c, "a"), want, 48, "all keys");
    attention(true, 1 / sqrt(3), &c, want);
    exec_expect(exec_out(&c, "b"), want, 48, "the last query sees all keys");
    attention(false, 2, &c, want);
    exec_expect(exec_out(&c, "s"), want, 48, "scale");
    exec_free(&c);
}

/* Multiplying by e^(i position angle) as complex numbers, pair by pair. */
Test(exec_nn, rotary) {
    exec_case c;
    exec_lines(&c, "%x: f32[1, 3, 2, 4]", "f32[1, 3, 2, 4]",
               "%y = rotary(%x) {base = 100.0}\nreturn %y");
    double want[24];
    for (int p = 0; p < 3; p++)
        for (int h = 0; h < 2; h++)
            for (int i = 0; i < 2; i++) {
                double angle = p * (i ? 0.1 : 1.0); /* 100^(-2i/4) */
                const double *x = exec_in(&c, "x") + (p * 2 + h) * 4 + 2 * i;
                want[(p * 2 + h) * 4 + 2 * i] = x[0] * cos(angle) - x[1] * sin(angle);
                want[(p * 2 + h) * 4 + 2 * i + 1] = x[0] * sin(angle) + x[1] * cos(angle);
            }
    exec_expect(exec_out(&c, "y"), want, 24, "rotary");
    exec_free(&c);
}

Test(exec_nn, rotary_of_an_odd_head) {
    exec_case c;
    exec_lines(&c, "%x: f32[1, 3, 2, 3]", "f32[1, 3, 2, 3]", "%y = rotary(%x)\nreturn %y");
    cr_expect_eq(c.status, DS_ERR_SHAPE);
    cr_expect(strstr(c.err.message, "the head dim is 3"), "%s", c.err.message);
    exec_free(&c);
}
