/* matmul and einsum against sums written out. */
#include "tests/support/exec.h"

#include <criterion/criterion.h>
#include <stdio.h>

Test(exec_linear, matmul_by_hand) {
    ds_exec_tensor inputs[] = {
        {.name = "x", .rank = 2, .dims = {2, 3}, .n = 6, .at = (double[]){1, 2, 3, 4, 5, 6}},
        {.name = "w", .rank = 2, .dims = {3, 2}, .n = 6, .at = (double[]){1, 0, 2, -1, 0, 3}}};
    ds_exec_options options = {.inputs = inputs, .n_inputs = 2};
    exec_case c;
    exec_text(&c,
              "dir 1\nfunc @f(%x: f32[2, 3], %w: f32[3, 2]) -> f32[2, 2] {\n"
              "%y = matmul(%x, %w)\nreturn %y\n}\n",
              NULL, &options);
    exec_expect(exec_out(&c, "y"), (double[]){5, 7, 14, 13}, 4, "matmul");
    exec_free(&c);
}

/* y[i, j] = sum_k a(i, k) b(k, j), with either operand stored transposed. */
static void transposed(bool ta, bool tb) {
    char args[128], line[128];
    sprintf(args, "%%a: f32[%s], %%b: f32[%s]", ta ? "5, 3" : "3, 5", tb ? "4, 5" : "5, 4");
    sprintf(line, "%%y = matmul(%%a, %%b) {transpose_a = %s, transpose_b = %s}\nreturn %%y",
            ta ? "true" : "false", tb ? "true" : "false");
    exec_case c;
    exec_lines(&c, args, "f32[3, 4]", line);
    const double *a = exec_in(&c, "a"), *b = exec_in(&c, "b");
    double want[12] = {0};
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 4; j++)
            for (int k = 0; k < 5; k++)
                want[i * 4 + j] += a[ta ? k * 3 + i : i * 5 + k] * b[tb ? j * 5 + k : k * 4 + j];
    exec_expect(exec_out(&c, "y"), want, 12, line);
    exec_free(&c);
}

Test(exec_linear, transpositions) {
    for (int i = 0; i < 4; i++) transposed(i & 1, i & 2);
}

Test(exec_linear, leading_dims_and_batches) {
    exec_case c;
    exec_lines(&c, "%a: f32[2, 3, 4], %w: f32[4, 5], %b: f32[2, 4, 5]",
               "f32[2, 3, 5], f32[2, 3, 5]",
               "%y = matmul(%a, %w)\n%z = matmul(%a, %b)\nreturn %y, %z");
    const double *a = exec_in(&c, "a"), *w = exec_in(&c, "w"), *b = exec_in(&c, "b");
    double y[30] = {0}, z[30] = {0};
    for (int n = 0; n < 2; n++)
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < 5; j++)
                for (int k = 0; k < 4; k++) {
                    y[(n * 3 + i) * 5 + j] += a[(n * 3 + i) * 4 + k] * w[k * 5 + j];
                    z[(n * 3 + i) * 5 + j] += a[(n * 3 + i) * 4 + k] * b[(n * 4 + k) * 5 + j];
                }
    exec_expect(exec_out(&c, "y"), y, 30, "rows of leading dims");
    exec_expect(exec_out(&c, "z"), z, 30, "batched");
    exec_free(&c);
}

Test(exec_linear, einsum_of_three) {
    exec_case c;
    exec_lines(&c, "%a: f32[2, 3], %b: f32[3, 4], %v: f32[4]", "f32[2], f32[]",
               "%y = einsum(%a, %b, %v) {rule = \"i j, j k, k -> i\"}\n"
               "%s = einsum(%a) {rule = \"i j -> ; i: sum, j: sum\"}\nreturn %y, %s");
    const double *a = exec_in(&c, "a"), *b = exec_in(&c, "b"), *v = exec_in(&c, "v");
    double y[2] = {0}, s = 0;
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 3; j++) {
            s += a[i * 3 + j];
            for (int k = 0; k < 4; k++) y[i] += a[i * 3 + j] * b[j * 4 + k] * v[k];
        }
    exec_expect(exec_out(&c, "y"), y, 2, "three operands");
    exec_expect(exec_out(&c, "s"), &s, 1, "sum of all");
    exec_free(&c);
}

/* A dim made of two factors, and a sum over the outer one alone. */
Test(exec_linear, einsum_of_products) {
    exec_case c;
    exec_lines(&c, "%x: f32[2, 6], %w: f32[2, 3, 4]", "f32[2, 8]",
               "%y = einsum(%x, %w) {rule = \"b (h d), h d e -> b (h e)\"}\nreturn %y");
    const double *x = exec_in(&c, "x"), *w = exec_in(&c, "w");
    double y[16] = {0};
    for (int b = 0; b < 2; b++)
        for (int h = 0; h < 2; h++)
            for (int d = 0; d < 3; d++)
                for (int e = 0; e < 4; e++)
                    y[b * 8 + h * 4 + e] += x[b * 6 + h * 3 + d] * w[(h * 3 + d) * 4 + e];
    exec_expect(exec_out(&c, "y"), y, 16, "heads");
    exec_free(&c);
}
