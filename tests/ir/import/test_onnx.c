/* ONNX graphs, made in memory: imported, verified, printed again, executed, and compared with what
 * the ONNX operator specification says the nodes compute, worked out here with plain loops. */
#include "ir/import/import.h"
#include "ir/lang/lang.h"
#include "tests/support/exec.h"
#include "tests/support/generate/onnx_model.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { FLOAT = 1, UINT16 = 4, INT64 = 7 };

static ds_status import(onnx_model *m, ds_buf *text, ds_error *err) {
    ds_buf bytes = {0};
    onnx_pack(m, &bytes);
    ds_import_options options = {0};
    ds_status status = ds_import_onnx(bytes.text, bytes.n, &options, text, err);
    ds_buf_deinit(&bytes);
    return status;
}

/* Imports and executes; the written text must also be as fmt prints it. */
static void run(exec_case *c, onnx_model *m, const char *settings) {
    ds_buf text = {0}, again = {0};
    ds_error err = {0};
    ds_status status = import(m, &text, &err);
    cr_assert_eq(status, DS_OK, "%s", err.message);
    exec_text(c, text.text, settings, NULL);
    cr_assert_eq(c->status, DS_OK, "%s\n%s", c->err.message, text.text);
    ds_print_module(c->unit->modules.at[0], &again);
    cr_expect_str_eq(again.text, text.text);
    ds_buf_deinit(&text);
    ds_buf_deinit(&again);
}

static void expect_dims(const exec_case *c, const char *name, int64_t d0, int64_t d1, int64_t d2,
                        int64_t d3) {
    const ds_exec_tensor *t = exec_output(c, name);
    int64_t want[] = {d0, d1, d2, d3};
    for (uint32_t d = 0; d < 4; d++)
        cr_expect_eq(d < t->rank ? t->dims[d] : 0, want[d], "dim %u of %s is %lld", d, name,
                     (long long)(d < t->rank ? t->dims[d] : 0));
}

/* ---- whole models ---- */

/* y = softmax(relu(x W1' + b1) W2 + b2), as Keras and PyTorch export it. */
Test(import_onnx, mlp) {
    onnx_model m;
    exec_case c;
    onnx_begin(&m, 13);
    onnx_input(&m, "x", "batch 3");
    onnx_tensor(&m, "fc1.weight", "5 3");
    onnx_tensor(&m, "fc1.bias", "5");
    onnx_tensor(&m, "fc2.weight", "5 2");
    onnx_tensor(&m, "fc2.bias", "2");
    onnx_node(&m, "Gemm", "x fc1.weight fc1.bias", "/fc1/Gemm_output_0", "alpha=1.0 transB=1");
    onnx_node(&m, "Relu", "/fc1/Gemm_output_0", "h", "");
    onnx_node(&m, "MatMul", "h fc2.weight", "p", "");
    onnx_node(&m, "Add", "fc2.bias p", "q", "");
    onnx_node(&m, "Softmax", "q", "y", "axis=1");
    onnx_output(&m, "y");
    run(&c, &m, "batch=4");
    const double *x = exec_in(&c, "x"), *w1 = exec_in(&c, "fc1.weight"),
                 *b1 = exec_in(&c, "fc1.bias"), *w2 = exec_in(&c, "fc2.weight"),
                 *b2 = exec_in(&c, "fc2.bias");
    double want[8];
    for (int i = 0; i < 4; i++) {
        double z[2] = {b2[0], b2[1]};
        for (int j = 0; j < 5; j++) {
            double h = b1[j];
            for (int k = 0; k < 3; k++) h += x[i * 3 + k] * w1[j * 3 + k];
            for (int o = 0; o < 2; o++) z[o] += fmax(h, 0) * w2[j * 2 + o];
        }
        for (int o = 0; o < 2; o++) want[i * 2 + o] = exp(z[o]) / (exp(z[0]) + exp(z[1]));
    }
    exec_expect(exec_out(&c, "y"), want, 8, "y");
    exec_free(&c);
}

/* Element of an image, 0 outside. */
static double pixel(const double *x, int channels, int size, int n, int c, int i, int j) {
    if (i < 0 || j < 0 || i >= size || j >= size) return 0;
    return x[((n * channels + c) * size + i) * size + j];
}

/* out[n][k][p][q] of a 3 x 3 filter over 2 channels, with this stride and padding before. */
static void convolve(const double *x, const double *w, const double *b, int size, int stride,
                     int before, int out_size, double *out) {
    for (int n = 0, at = 0; n < 2; n++)
        for (int k = 0; k < 4; k++)
            for (int p = 0; p < out_size; p++)
                for (int q = 0; q < out_size; q++, at++) {
                    out[at] = b ? b[k] : 0;
                    for (int c = 0; c < 2; c++)
                        for (int r = 0; r < 3; r++)
                            for (int s = 0; s < 3; s++)
                                out[at] += w[((k * 2 + c) * 3 + r) * 3 + s] *
                                           pixel(x, 2, size, n, c, p * stride + r - before,
                                                 q * stride + s - before);
                }
}

/* Convolution with bias, relu, pooling, mean over the image, a linear layer. */
Test(import_onnx, cnn) {
    onnx_model m;
    exec_case c;
    onnx_begin(&m, 11);
    onnx_input(&m, "images", "N 2 8 8");
    onnx_tensor(&m, "w", "4 2 3 3");
    onnx_tensor(&m, "b", "4");
    onnx_tensor(&m, "fc", "3 4");
    onnx_node(&m, "Conv", "images w b", "c", "kernel_shape=3,3 pads=1,1,1,1 strides=1,1 group=1");
    onnx_node(&m, "Relu", "c", "r", "");
    onnx_node(&m, "MaxPool", "r", "p", "kernel_shape=2,2 strides=2,2");
    onnx_node(&m, "GlobalAveragePool", "p", "g", "");
    onnx_node(&m, "Flatten", "g", "f", "");
    onnx_node(&m, "Gemm", "f fc", "y", "transB=1");
    onnx_output(&m, "y");
    run(&c, &m, "N=2");
    double conv[2 * 4 * 64], want[6] = {0};
    convolve(exec_in(&c, "images"), exec_in(&c, "w"), exec_in(&c, "b"), 8, 1, 1, 8, conv);
    for (int n = 0; n < 2; n++)
        for (int k = 0; k < 4; k++) {
            double mean = 0;
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < 4; j++) {
                    const double *at = conv + ((n * 4 + k) * 8 + 2 * i) * 8 + 2 * j;
                    mean += fmax(0, fmax(fmax(at[0], at[1]), fmax(at[8], at[9]))) / 16;
                }
            for (int o = 0; o < 3; o++) want[n * 3 + o] += mean * exec_in(&c, "fc")[o * 4 + k];
        }
    exec_expect(exec_out(&c, "y"), want, 6, "y");
    exec_free(&c);
}

/* SAME_UPPER: ceil(9 / 2) = 5 windows of reach 3 need 2·4 + 3 - 9 = 2, one on each side; over 8,
 * 4 windows need 2·3 + 3 - 8 = 1, at the end. */
Test(import_onnx, padding_of_both_kinds) {
    for (int size = 8; size <= 9; size++) {
        onnx_model m;
        exec_case c;
        char dims[32];
        snprintf(dims, sizeof dims, "2 2 %d %d", size, size);
        onnx_begin(&m, 13);
        onnx_input(&m, "x", dims);
        onnx_tensor(&m, "w", "4 2 3 3");
        onnx_node(&m, "Conv", "x w", "y", "auto_pad:SAME_UPPER strides=2,2");
        onnx_output(&m, "y");
        run(&c, &m, NULL);
        int out = (size + 1) / 2;
        double want[2 * 4 * 25];
        convolve(exec_in(&c, "x"), exec_in(&c, "w"), NULL, size, 2, size - 8, out, want);
        expect_dims(&c, "y", 2, 4, out, out);
        exec_expect(exec_out(&c, "y"), want, 8 * out * out, "y");
        exec_free(&c);
    }
}

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

/* Two steps over [s, b, i], then the last state through a linear layer. Gates of the written
 * program are i f c o over the columns of [k, 4 hidden]. */
Test(import_onnx, lstm) {
    enum { S = 2, B = 3, I = 2, H = 2 };
    onnx_model m;
    exec_case c;
    onnx_begin(&m, 14);
    onnx_input(&m, "x", "2 batch 2");
    onnx_tensor(&m, "W", "1 8 2");
    onnx_tensor(&m, "R", "1 8 2");
    onnx_tensor(&m, "Bias", "1 16");
    onnx_node(&m, "LSTM", "x W R Bias", "Y Yh", "hidden_size=2");
    onnx_node(&m, "Identity", "Yh", "last", "");
    onnx_output(&m, "Y");
    onnx_output(&m, "last");
    run(&c, &m, "batch=3");
    const double *x = exec_in(&c, "x"), *w = exec_in(&c, "W"), *r = exec_in(&c, "R"),
                 *bias = exec_in(&c, "Bias");
    double h[B][H] = {{0}}, cell[B][H] = {{0}}, want[S * B * H];
    for (int s = 0; s < S; s++)
        for (int b = 0; b < B; b++) {
            double next[H];
            for (int u = 0; u < H; u++) {
                double z[4];
                for (int g = 0; g < 4; g++) {
                    z[g] = bias[g * H + u];
                    for (int i = 0; i < I; i++)
                        z[g] += x[(s * B + b) * I + i] * w[i * 4 * H + g * H + u];
                    for (int i = 0; i < H; i++) z[g] += h[b][i] * r[i * 4 * H + g * H + u];
                }
                cell[b][u] = sigmoid(z[1]) * cell[b][u] + sigmoid(z[0]) * tanh(z[2]);
                next[u] = sigmoid(z[3]) * tanh(cell[b][u]);
            }
            memcpy(h[b], next, sizeof next);
            memcpy(want + (s * B + b) * H, next, sizeof next);
        }
    const ds_exec_tensor *y = &c.result->outputs.at[0], *last = &c.result->outputs.at[1];
    cr_expect(y->rank == 4 && y->dims[0] == S && y->dims[1] == 1 && y->dims[2] == B);
    cr_expect(last->rank == 3 && last->dims[0] == 1 && last->dims[1] == B);
    exec_expect(y->at, want, S * B * H, "Y");
    exec_expect(last->at, want + B * H, B * H, "last");
    exec_free(&c);
}

/* A layer norm as older exporters write it: nine nodes. */
Test(import_onnx, layer_norm_in_pieces_and_whole) {
    onnx_model m;
    exec_case c;
    onnx_begin(&m, 17);
    onnx_input(&m, "x", "4 6");
    onnx_tensor(&m, "scale", "6");
    onnx_tensor(&m, "shift", "6");
    onnx_real(&m, "two", 2, "");
    onnx_real(&m, "eps", 0.015625F, "1"); /* exact in binary */
    onnx_node(&m, "ReduceMean", "x", "mean", "axes=-1,");
    onnx_node(&m, "Sub", "x mean", "d", "");
    onnx_node(&m, "Pow", "d two", "d2", "");
    onnx_node(&m, "ReduceMean", "d2", "var", "axes=-1,");
    onnx_node(&m, "Add", "var eps", "ve", "");
    onnx_node(&m, "Sqrt", "ve", "dev", "");
    onnx_node(&m, "Div", "d dev", "n", "");
    onnx_node(&m, "Mul", "n scale", "ns", "");
    onnx_node(&m, "Add", "ns shift", "pieces", "");
    onnx_node(&m, "LayerNormalization", "x scale shift", "whole", "axis=-1 epsilon=0.015625");
    onnx_output(&m, "pieces");
    onnx_output(&m, "whole");
    run(&c, &m, NULL);
    const double *whole = exec_out(&c, "whole"), *pieces = exec_out(&c, "pieces");
    for (int i = 0; i < 24; i++) cr_expect_float_eq(whole[i], pieces[i], 1e-12);
    double mean = 0, variance = 0;
    const double *x = exec_in(&c, "x");
    for (int i = 0; i < 6; i++) mean += x[i] / 6;
    for (int i = 0; i < 6; i++) variance += (x[i] - mean) * (x[i] - mean) / 6;
    cr_expect_float_eq(whole[2],
                       (x[2] - mean) / sqrt(variance + 0.015625) * exec_in(&c, "scale")[2] +
                           exec_in(&c, "shift")[2],
                       1e-12);
    exec_free(&c);
}

/* ---- elementwise ---- */

Test(import_onnx, broadcasts_and_constants) {
    onnx_model m;
    exec_case c;
    onnx_begin(&m, 13);
    onnx_input(&m, "x", "2 3");
    onnx_input(&m, "r", "3");
    onnx_input(&m, "k", "2 1");
    onnx_real(&m, "four", 4, "");
    onnx_real(&m, "one", 1, "1");
    onnx_node(&m, "Sub", "r x", "a", "");    /* the smaller one first */
    onnx_node(&m, "Mul", "k x", "b", "");    /* a 1 on the left */
    onnx_node(&m, "Sub", "one x", "c", "");  /* constant first */
    onnx_node(&m, "Div", "x four", "d", ""); /* by a constant */
    onnx_node(&m, "Exp", "x", "ex", "");
    onnx_node(&m, "Div", "four ex", "e", "");
    onnx_node(&m, "Sum", "a b c d e", "y", "");
    onnx_output(&m, "y");
    run(&c, &m, NULL);
    const double *x = exec_in(&c, "x"), *r = exec_in(&c, "r"), *k = exec_in(&c, "k");
    double want[6];
    for (int i = 0; i < 6; i++)
        want[i] = (r[i % 3] - x[i]) + k[i / 3] * x[i] + (1 - x[i]) + x[i] / 4 + 4 / exp(x[i]);
    exec_expect(exec_out(&c, "y"), want, 6, "y");
    exec_free(&c);
}

/* x/2 (1 + erf(x/√2)) in the three orders in which exporters write it: gelu each time, and nothing
 * else is left. */
Test(import_onnx, gelu_in_pieces) {
    static const char *const orders[][4] = {
        {"x e1", "p", "p half", "y"}, {"half x", "h", "h e1", "y"}, {"e1 half", "h", "h x", "y"}};
    for (size_t i = 0; i < 3; i++) {
        onnx_model m;
        ds_buf text = {0};
        ds_error err = {0};
        onnx_begin(&m, 13);
        onnx_input(&m, "x", "2 3");
        onnx_real(&m, "root", 1.41421356F, "");
        onnx_real(&m, "one", 1, "");
        onnx_real(&m, "half", 0.5F, "");
        onnx_node(&m, "Div", "x root", "s", "");
        onnx_node(&m, "Erf", "s", "e", "");
        onnx_node(&m, "Add", "e one", "e1", "");
        onnx_node(&m, "Mul", orders[i][0], orders[i][1], "");
        onnx_node(&m, "Mul", orders[i][2], orders[i][3], "");
        onnx_output(&m, "y");
        cr_assert_eq(import(&m, &text, &err), DS_OK, "%zu: %s", i, err.message);
        cr_expect(strstr(text.text, " {\n  // the exact gelu of the graph; distsim's is the tanh "
                                    "form\n  %y = gelu(%x) : f32[2, 3]\n  return %y\n}"),
                  "%s", text.text);
        ds_buf_deinit(&text);
    }
}

Test(import_onnx, reductions_and_activations) {
    onnx_model m;
    exec_case c;
    onnx_begin(&m, 13);
    onnx_input(&m, "x", "2 3");
    onnx_ints(&m, "axes", "1", "1");
    onnx_node(&m, "Tanh", "x", "t", "");
    onnx_node(&m, "Sigmoid", "t", "s", "");
    onnx_node(&m, "ReduceSum", "s axes", "sum", "keepdims=0");
    onnx_node(&m, "ReduceMax", "x", "max", "axes=0, keepdims=0");
    onnx_node(&m, "ReduceMean", "x", "mean", "keepdims=0");
    onnx_node(&m, "Log", "s", "log", "");
    onnx_node(&m, "Clip", "x", "clip", "min=0.0");
    for (int i = 0; i < 5; i++)
        onnx_output(&m, (const char *[]){"sum", "max", "mean", "log", "clip"}[i]);
    run(&c, &m, NULL);
    const double *x = exec_in(&c, "x");
    double sum[2] = {0}, max[3], mean = 0, log_[6], clip[6];
    for (int i = 0; i < 6; i++) {
        sum[i / 3] += sigmoid(tanh(x[i]));
        max[i % 3] = i < 3 ? x[i] : fmax(max[i % 3], x[i]);
        mean += x[i] / 6;
        log_[i] = log(sigmoid(tanh(x[i])));
        clip[i] = fmax(x[i], 0);
    }
    exec_expect(exec_out(&c, "sum"), sum, 2, "sum");
    exec_expect(exec_out(&c, "max"), max, 3, "max");
    exec_expect(exec_out(&c, "mean"), &mean, 1, "mean");
    exec_expect(exec_out(&c, "log"), log_, 6, "log");
    exec_expect(exec_out(&c, "clip"), clip, 6, "clip");
    exec_free(&c);
}

/* ---- layout and shapes ---- */

/* What torch writes for x.view(x.size(0), -1), and for a view into heads: nothing but reshapes
 * may be left. */
Test(import_onnx, shape_computations_vanish) {
    onnx_model m;
    onnx_begin(&m, 13);
    onnx_input(&m, "x", "batch seq 12");
    onnx_ints(&m, "zero", "0", "");
    onnx_ints(&m, "first", "0", "1");
    onnx_ints(&m, "minus", "-1", "1");
    onnx_ints(&m, "heads", "3", "1");
    onnx_ints(&m, "one", "1", "1");
    onnx_ints(&m, "two", "2", "1");
    onnx_node(&m, "Shape", "x", "s", "");
    onnx_node(&m, "Gather", "s zero", "b", "axis=0");
    onnx_node(&m, "Unsqueeze", "b first", "b1", "");
    onnx_node(&m, "Slice", "s one two", "q1", "");
    onnx_node(&m, "Concat", "b1 q1 heads minus", "view", "axis=0");
    onnx_node(&m, "Reshape", "x view", "split", "");
    onnx_node(&m, "Concat", "b1 minus", "flat", "axis=0");
    onnx_node(&m, "Reshape", "split flat", "y", "");
    onnx_output(&m, "split");
    onnx_output(&m, "y");
    ds_buf text = {0};
    ds_error err = {0};
    cr_assert_eq(import(&m, &text, &err), DS_OK, "%s", err.message);
    const char *want = "func @net(%x: f32[batch@dp, seq, 12]) -> (f32[batch, seq, 3, 4], "
                       "f32[batch, 12 * seq]) {\n"
                       "  %split = reshape(%x) {shape = [batch, seq, 3, 4]} : "
                       "f32[batch, seq, 3, 4]\n"
                       "  %y = reshape(%split) {shape = [batch, 12 * seq]} : "
                       "f32[batch, 12 * seq]\n"
                       "  return %split, %y\n}\n";
    cr_expect(strstr(text.text, want), "%s", text.text);
    cr_expect(strstr(text.text, "param batch = 1, seq = 1\n"), "%s", text.text);
    ds_buf_deinit(&text);
}

Test(import_onnx, layouts) {
    onnx_model m;
    exec_case c;
    onnx_begin(&m, 13);
    onnx_input(&m, "x", "2 3 4");
    onnx_ints(&m, "from", "-3 1", "2");
    onnx_ints(&m, "to", "9223372036854775807 -1", "2");
    onnx_ints(&m, "axes", "2 1", "2");
    onnx_ints(&m, "sizes", "1 3", "2");
    onnx_ints(&m, "last", "3", "");
    onnx_node(&m, "Transpose", "x", "t", "");            /* [4, 3, 2] */
    onnx_node(&m, "Slice", "x from to axes", "s", "");   /* x[:, 1:2, 1:] */
    onnx_node(&m, "Split", "x sizes", "p q", "axis=-1"); /* [2,3,1], [2,3,3] */
    onnx_node(&m, "Concat", "q p", "c", "axis=2");       /* turned by one */
    onnx_node(&m, "Gather", "x last", "g", "axis=2");    /* x[:, :, 3] */
    onnx_output(&m, "t");
    onnx_output(&m, "s");
    onnx_output(&m, "c");
    onnx_output(&m, "g");
    run(&c, &m, NULL);
    const double *x = exec_in(&c, "x");
    double t[24], s[6], turned[24], g[6];
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 3; j++)
            for (int k = 0; k < 4; k++) {
                double value = x[(i * 3 + j) * 4 + k];
                t[(k * 3 + j) * 2 + i] = value;
                turned[(i * 3 + j) * 4 + (k + 3) % 4] = value;
                if (j == 1 && k >= 1) s[i * 3 + k - 1] = value;
                if (k == 3) g[i * 3 + j] = value;
            }
    const ds_exec_tensor *out = c.result->outputs.at;
    exec_expect(out[0].at, t, 24, "t");
    exec_expect(out[1].at, s, 6, "s");
    exec_expect(out[2].at, turned, 24, "c");
    exec_expect(out[3].at, g, 6, "g");
    cr_expect(out[1].rank == 3 && out[3].rank == 2);
    exec_free(&c);
}

/* Token and position tables; the positions are known integers, so a slice stands for them. */
Test(import_onnx, embeddings) {
    onnx_model m;
    exec_case c;
    onnx_begin(&m, 13);
    onnx_input_of(&m, "ids", INT64, "batch 3");
    onnx_tensor(&m, "tokens", "7 2");
    onnx_tensor(&m, "places", "8 2");
    onnx_ints(&m, "position", "0 1 2 3 4 5 6 7", "1 8");
    onnx_ints(&m, "a", "2", "1");
    onnx_ints(&m, "b", "5", "1");
    onnx_ints(&m, "axis", "1", "1");
    onnx_node(&m, "Gather", "tokens ids", "t", "");
    onnx_node(&m, "Slice", "position a b axis", "at", "");
    onnx_node(&m, "Gather", "places at", "p", "");
    onnx_node(&m, "Add", "t p", "y", "");
    onnx_output(&m, "y");
    run(&c, &m, "batch=2");
    const double *ids = exec_in(&c, "ids"), *tokens = exec_in(&c, "tokens"),
                 *places = exec_in(&c, "places");
    double want[12];
    for (int i = 0; i < 6; i++)
        for (int d = 0; d < 2; d++)
            want[i * 2 + d] = tokens[(int)ids[i] * 2 + d] + places[(2 + i % 3) * 2 + d];
    expect_dims(&c, "y", 2, 3, 2, 0);
    exec_expect(exec_out(&c, "y"), want, 12, "y");
    exec_free(&c);
}

/* ---- what is refused ---- */

typedef struct refusal {
    const char *op_type, *inputs, *outputs, *attributes;
    ds_status status;
    const char *message;
} refusal;

Test(import_onnx, refusals_name_node_and_op) {
    static const refusal all[] = {
        {"Frobnicate", "x", "y", "", DS_ERR_UNSUPPORTED,
         "node 0 'y' (Frobnicate): distsim's import does not know this op"},
        {"Clip", "x", "y", "min=0.0 max=6.0", DS_ERR_UNSUPPORTED, "as relu"},
        {"AveragePool", "x", "y", "kernel_shape=3,3 pads=1,1,1,1", DS_ERR_UNSUPPORTED,
         "node 0 'y' (AveragePool): count_include_pad = 0"},
        {"MaxPool", "x", "y", "kernel_shape=2,2 pads=0,0,1,1", DS_ERR_UNSUPPORTED, "both sides"},
        {"MaxPool", "x", "y", "kernel_shape=3,3 strides=2,2 ceil_mode=1", DS_ERR_UNSUPPORTED,
         "ceil_mode"},
        {"MaxPool", "x", "y", "kernel_shape=9,9", DS_ERR_SHAPE,
         "dim 2 of what max_pool gives is 0"},
        {"MaxPool", "x", "y", "kernel_shape=2,", DS_ERR_DATA, "'kernel_shape' has 1 entries"},
        {"Softmax", "x", "y", "axis=7", DS_ERR_DATA, "axis 7 of a tensor of 4 dims"},
        {"Add", "x nowhere", "y", "", DS_ERR_DATA, "reads 'nowhere', which nothing above it"},
        {"Add", "x y", "y", "", DS_ERR_DATA, "reads 'y'"},
        {"Add", "x", "y", "", DS_ERR_DATA, "it has 1 inputs"},
        {"Relu", "x", "x", "", DS_ERR_DATA, "defines 'x' a second time"},
        {"Conv", "x v", "y", "", DS_ERR_SHAPE, "its filter has 1 dims"},
        {"MatMul", "x v", "y", "", DS_ERR_UNSUPPORTED, "operands of 4 and 1 dims"},
        {"Reshape", "x v", "y", "", DS_ERR_UNSUPPORTED, "'v', must be known integers"},
        {"Reshape", "x shape", "y", "", DS_ERR_SHAPE, "reshape"},
        {"LSTM", "x v v", "y", "direction:bidirectional", DS_ERR_UNSUPPORTED, "one direction"},
        {"Transpose", "x", "y", "perm=0,0,1,2", DS_ERR_DATA, "'perm' has dim 0 twice"},
        {"Pow", "x v", "y", "", DS_ERR_UNSUPPORTED, "0.5, 2 and 3"},
        {"Erf", "x", "y", "", DS_ERR_UNSUPPORTED, "erf in gelu only"},
        {"Identity", "-", "y", "", DS_ERR_DATA, "its input 0 is missing"},
        {"Cast", "x", "y", "to=4", DS_ERR_UNSUPPORTED, "ONNX data type 4"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        onnx_model m;
        ds_buf text = {0};
        ds_error err = {0};
        onnx_begin(&m, 13);
        onnx_input(&m, "x", "2 2 8 8");
        onnx_tensor(&m, "v", "8");
        onnx_ints(&m, "shape", "5 5", "2");
        onnx_node(&m, all[i].op_type, all[i].inputs, all[i].outputs, all[i].attributes);
        onnx_output(&m, all[i].outputs);
        cr_expect_eq(import(&m, &text, &err), all[i].status, "%s: %s", all[i].op_type, err.message);
        cr_expect(strstr(err.message, all[i].message), "%s: %s", all[i].op_type, err.message);
        cr_expect_eq(text.n, 0);
        ds_buf_deinit(&text);
    }
}

Test(import_onnx, bad_files_inputs_and_settings) {
    static const char *const garbage[] = {"", "hello", "\x3a\x7f", "{\"a\": 1}", "\x0b\x0c"};
    ds_import_options options = {0};
    ds_buf text = {0};
    ds_error err;
    for (size_t i = 0; i < sizeof garbage / sizeof *garbage; i++)
        cr_expect_neq(ds_import_onnx(garbage[i], strlen(garbage[i]), &options, &text, &err), DS_OK);
    onnx_model m;
    onnx_begin(&m, 6);
    onnx_input(&m, "x", "2");
    onnx_output(&m, "x");
    cr_expect_eq(import(&m, &text, &err), DS_ERR_UNSUPPORTED);
    cr_expect(strstr(err.message, "opset 6"), "%s", err.message);
    onnx_begin(&m, 13);
    onnx_input_of(&m, "x", UINT16, "2");
    onnx_output(&m, "x");
    cr_expect_eq(import(&m, &text, &err), DS_ERR_UNSUPPORTED);
    onnx_begin(&m, 13);
    onnx_input(&m, "x", "-2");
    onnx_output(&m, "x");
    cr_expect_eq(import(&m, &text, &err), DS_ERR_SHAPE);
    onnx_begin(&m, 13);
    onnx_input(&m, "x", "batch");
    onnx_output(&m, "gone");
    cr_expect_eq(import(&m, &text, &err), DS_ERR_DATA);
    cr_expect_eq(text.n, 0);
    ds_buf_deinit(&text);
}

/* Attributes that hold graphs that hold nodes …, 1,000 deep: refused before they are unpacked. */
Test(import_onnx, nesting_is_bounded) {
    uint8_t bytes[16384];
    size_t n = 0; /* built from the inside: node{attribute{g{…}}} */
    static const uint8_t tags[] = {0x0a, 0x2a, 0x32}; /* graph.node, node.attribute, attribute.g */
    for (int depth = 0; depth < 1000; depth++) {
        uint8_t head[4] = {tags[2 - depth % 3]};
        size_t k = 1;
        for (size_t rest = n; k == 1 || rest; rest >>= 7)
            head[k++] = (uint8_t)((rest & 0x7f) | (rest >> 7 ? 0x80 : 0));
        memmove(bytes + k, bytes, n);
        memcpy(bytes, head, k);
        n += k;
    }
    /* The outermost tag of a model is its graph (7); 1000 % 3 == 1 leaves an attribute's g there.
     */
    bytes[0] = 0x3a;
    ds_import_options options = {0};
    ds_buf text = {0};
    ds_error err;
    cr_expect_eq(ds_import_onnx((const char *)bytes, n, &options, &text, &err), DS_ERR_LIMIT, "%s",
                 err.message);
    ds_buf_deinit(&text);
}

/* Open sizes are params; --set gives them values in the written file. */
Test(import_onnx, settings_and_scenario) {
    onnx_model m;
    ds_buf bytes = {0}, text = {0};
    ds_error err = {0};
    ds_setting set[] = {{"batch", "32"}, {"x_dim1", "10"}};
    ds_import_options options = {.source = "a\nb.onnx",
                                 .on_file = "topologies/dgx-a100.dir",
                                 .on_name = "dgx_a100",
                                 .settings = set,
                                 .n_settings = 2};
    onnx_begin(&m, 13);
    onnx_input(&m, "x", "? ?");
    onnx_node(&m, "Relu", "x", "y", "");
    onnx_output(&m, "y");
    onnx_pack(&m, &bytes);
    const char *data = bytes.text;
    cr_assert_eq(ds_import_onnx(data, bytes.n, &options, &text, &err), DS_OK, "%s", err.message);
    cr_expect(strstr(text.text, "// Imported from a?b.onnx (ONNX, opset 13, made by tests)."), "%s",
              text.text);
    cr_expect(strstr(text.text, "param batch = 32, x_dim1 = 10\n"), "%s", text.text);
    cr_expect(strstr(text.text, "%x: f32[batch@dp, x_dim1]"), "%s", text.text);
    cr_expect(strstr(text.text, "scenario {\n  model = @net\n  on = @dgx_a100\n  train = off\n"),
              "%s", text.text);
    set[1].path = "seq";
    cr_expect_eq(ds_import_onnx(data, bytes.n, &options, &text, &err), DS_ERR_NAME);
    cr_expect(strstr(err.message, "no such param (it has batch, x_dim1)"), "%s", err.message);
    set[1] = (ds_setting){"batch", "0"};
    cr_expect_eq(ds_import_onnx(data, bytes.n, &options, &text, &err), DS_ERR_VALUE);
    ds_buf_deinit(&bytes);
    ds_buf_deinit(&text);
}
