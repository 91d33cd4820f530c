/* Where numbers come from and go to: generated inputs, .npy files, limits, emulated dtypes, and the
 * comparison of two runs. */
#include "tests/support/exec.h"

#include "ir/exec/npy.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- generated ---- */

Test(exec_inputs, depend_on_seed_name_and_index_alone) {
    exec_case c;
    exec_lines(&c, "%x: f32[3, 4], %w{l: 0..2}: f32[4]", "f32[3, 4]", "%y = relu(%x)\nreturn %y");
    double scale = sqrt(3.0 / 3); /* fan: dim 0 of 2 */
    cr_expect_float_eq(ds_exec_generated_scale(2, (int64_t[]){3, 4}), scale, 1e-15);
    for (int i = 0; i < 12; i++) {
        cr_expect_eq(exec_in(&c, "x")[i], ds_exec_generated(1, "x", i) * scale);
        cr_expect(fabs(ds_exec_generated(1, "x", i)) <= 1);
    }
    cr_expect_eq(exec_in(&c, "w{1}")[2], ds_exec_generated(1, "w1", 2));
    cr_expect_neq(ds_exec_generated(1, "w1", 2), ds_exec_generated(1, "w0", 2));
    cr_expect_neq(ds_exec_generated(1, "w1", 2), ds_exec_generated(2, "w1", 2));
    cr_expect_neq(ds_exec_generated(1, "w1", 2), ds_exec_generated(1, "w1", 3));
    exec_free(&c);
}

/* Uniform in -1..1: mean 0 +- 1/sqrt(3n), mean square 1/3. */
Test(exec_inputs, are_uniform) {
    double sum = 0, square = 0;
    for (int i = 0; i < 10000; i++) {
        double x = ds_exec_generated(7, "x", i);
        sum += x;
        square += x * x;
    }
    cr_expect(fabs(sum / 10000) < 0.03, "%g", sum / 10000);
    cr_expect(fabs(square / 10000 - 1.0 / 3) < 0.015, "%g", square / 10000);
}

Test(exec_inputs, integers_fit_what_they_index) {
    exec_case c;
    exec_text(&c,
              "dir 1\nfunc @look<mesh @s>(%i: i32[64] on @s, %t: f32[5, 2] on @s) -> f32[64, 2] on "
              "@s {\n%y = embedding(%i, %t)\nreturn %y\n}\n"
              "topology @box { device g[2] : \"V100-PCIE-16GB\" }\nmesh @m = [dp = 2] on @box\n"
              "func @f(%ids: i32[8, 8] on @m, %t: f32[5, 2] on @m, %free: i32[64] on @m, "
              "%own: i32[64] on @m {range = 9}) -> (f32[64, 2] on @m, i32[64], i32[64]) {\n"
              "%i = reshape(%ids) {shape = [64]}\n%y = call @look<@m>(%i, %t)\n"
              "return %y, %free, %own\n}\nscenario { program = @f\n mesh = @m }\n",
              NULL, NULL);
    double most_ids = 0, most_free = 0, most_own = 0;
    for (int i = 0; i < 64; i++) {
        most_ids = fmax(most_ids, exec_in(&c, "ids")[i]);
        most_free = fmax(most_free, exec_in(&c, "free")[i]);
        most_own = fmax(most_own, exec_in(&c, "own")[i]);
        cr_expect_eq(exec_in(&c, "own")[i], floor(exec_in(&c, "own")[i]));
    }
    cr_expect_eq(most_ids, 4, "the table has 5 rows");
    cr_expect_eq(most_free, 1, "nothing says more");
    cr_expect_eq(most_own, 8, "range = 9");
    exec_free(&c);
}

/* Four arguments that are the quarters of one tensor, as explicit programs have them. */
Test(exec_inputs, boxes_of_a_larger_input) {
    exec_case c;
    exec_lines(&c,
               "%a: f32[2, 2] {input = \"x\", of = [4, 4], at = [0, 2]}, "
               "%b: f32[2, 2] {input = x, of = [4, 4], at = [2, 0]}, %x: f32[4, 4]",
               "f32[2, 2], f32[2, 2], f32[4, 4]", "return %a, %b, %x");
    const double *x = exec_in(&c, "x");
    cr_expect_eq(c.result->inputs.n, 1, "one input, three arguments");
    exec_expect(exec_out(&c, "a"), (double[]){x[2], x[3], x[6], x[7]}, 4, "upper right");
    exec_expect(exec_out(&c, "b"), (double[]){x[8], x[9], x[12], x[13]}, 4, "lower left");
    exec_free(&c);
    exec_lines(&c, "%a: f32[2] {of = [4], at = [3]}", "f32[2]", "return %a");
    cr_expect_eq(c.status, DS_ERR_VALUE);
    exec_free(&c);
    exec_lines(&c, "%a: f32[2] {input = x}, %x: f32[3]", "f32[2], f32[3]", "return %a, %x");
    cr_expect_eq(c.status, DS_ERR_SHAPE);
    exec_free(&c);
}

/* A partial input is really in terms: no device of two holds all of it. */
Test(exec_inputs, partial_ones_are_terms) {
    exec_case c;
    exec_text(
        &c,
        "dir 1\ntopology @box { device g[2] : \"V100-PCIE-16GB\" }\nmesh @m = [dp = 2] on @box\n"
        "func @f(%x: f32[6] partial(dp) on @m) -> (f32[6], f32[12@dp]) {\n"
        "%y = all_reduce(%x) over dp\n%l = local over (dp) (%x) -> (f32[12@dp] on @m) {\n"
        "%i = scale(%x) {factor = 1.0}\nyield %i\n}\nreturn %y, %l\n}\n"
        "scenario { program = @f\n mesh = @m }\n",
        NULL, NULL);
    exec_expect(exec_out(&c, "y"), exec_in(&c, "x"), 6, "the sum");
    for (int i = 0; i < 6; i++) cr_expect_eq(exec_out(&c, "l")[i] == 0, i % 2 == 1);
    exec_free(&c);
}

Test(exec_inputs, given_ones_must_fit) {
    static const char text[] = "dir 1\nfunc @f(%weights: f32[2, 2]) -> f32[2, 2] {\nreturn "
                               "%weights\n}\n";
    double numbers[4] = {1, 2, 3, 4};
    ds_exec_tensor t = {.name = "weights", .rank = 2, .dims = {2, 2}, .n = 4, .at = numbers};
    ds_exec_options options = {.inputs = &t, .n_inputs = 1};
    exec_case c;
    exec_text(&c, text, NULL, &options);
    exec_expect(exec_out(&c, "weights"), numbers, 4, "given");
    exec_free(&c);
    t.dims[0] = 1;
    t.dims[1] = 4;
    exec_text(&c, text, NULL, &options);
    cr_expect(strstr(c.err.message, "input %weights is [2, 2], but [1, 4] is given for it"), "%s",
              c.err.message);
    exec_free(&c);
    t.name = "weight";
    exec_text(&c, text, NULL, &options);
    cr_expect_eq(c.status, DS_ERR_NAME);
    cr_expect(strstr(c.err.message, "did you mean 'weights'?"), "%s", c.err.message);
    exec_free(&c);
}

/* ---- limits ---- */

Test(exec_inputs, memory_is_limited) {
    ds_exec_options options = {.max_bytes = 1000};
    exec_case c;
    exec_text(&c, "dir 1\nfunc @f(%x: f32[100]) -> f32[100] {\n%y = relu(%x)\nreturn %y\n}\n", NULL,
              &options);
    cr_expect_eq(c.status, DS_ERR_LIMIT);
    cr_expect(
        strstr(c.err.message, "[100] needs 800 bytes beside the 800 in use, but at most 1000"),
        "%s", c.err.message);
    exec_free(&c);
    exec_text(&c,
              "dir 1\nfunc @f(%x: f32[1000000, 1000000, 1000000]) -> f32[1] {\n"
              "%y = zeros() : f32[1]\nreturn %y\n}\n",
              NULL, NULL);
    cr_expect_eq(c.status, DS_ERR_LIMIT);
    exec_free(&c);
    exec_text(&c,
              "dir 1\nfunc @f(%x: f32[1000000, 1000000, 10000000]) -> f32[1] {\n"
              "%y = zeros() : f32[1]\nreturn %y\n}\n",
              NULL, NULL);
    cr_expect_eq(c.status, DS_ERR_OVERFLOW);
    exec_free(&c);
}

/* A loop does not hold the values of all its turns. */
Test(exec_inputs, loops_give_memory_back) {
    exec_case c;
    exec_lines(&c, "%x: f32[1000]", "f32[1000]",
               "%y = for l in 0..100 carry (%h = %x) {\n%a = relu(%h)\n%b = neg(%a)\nyield %b\n}\n"
               "return %y");
    cr_assert_eq(c.status, DS_OK);
    cr_expect(c.result->peak_bytes <= 6 * 8000, "%lld", (long long)c.result->peak_bytes);
    exec_free(&c);
}

/* ---- emulated dtypes ---- */

/* Published values: f16 has 11 significant bits and 65504 as its largest, bf16 8 bits, E4M3 4 bits
 * up to 448, E5M2 3 bits up to 57344, E2M1 {0, .5, 1, 1.5, 2, 3, 4, 6}; ties go to even. */
static void rounds(const char *dtype, const double *in, const double *out, int n) {
    char text[256];
    snprintf(
        text, sizeof text,
        "dir 1\nfunc @f(%%x: f64[%d]) -> %s[%d] {\n%%y = cast(%%x) {dtype = %s}\nreturn %%y\n}\n",
        n, dtype, n, dtype);
    double copy[16];
    memcpy(copy, in, (size_t)n * sizeof *copy);
    ds_exec_tensor x = {.name = "x", .rank = 1, .dims = {n}, .n = n, .at = copy};
    ds_exec_options options = {.emulate = true, .inputs = &x, .n_inputs = 1};
    exec_case c;
    exec_text(&c, text, NULL, &options);
    for (int i = 0; i < n; i++)
        cr_expect(exec_out(&c, "y")[i] == out[i], "%s(%.17g) = %.17g, not %.17g", dtype, in[i],
                  exec_out(&c, "y")[i], out[i]);
    exec_free(&c);
}

Test(exec_emulate, formats) {
    rounds("f16", (double[]){2049, 2051, 65519, 65520, 0x1p-25, 0x1.8p-24, 1.0 / 3},
           (double[]){2048, 2052, 65504, INFINITY, 0, 0x1p-23, 0x1.554p-2}, 7);
    rounds("bf16", (double[]){257, 259, 0x1.FFp127, 0x1.FEp127, 0x1p-133, 3.14159},
           (double[]){256, 260, INFINITY, 0x1.FEp127, 0x1p-133, 3.140625}, 6);
    rounds("f8e4m3", (double[]){17, 19, 1000, -0x1p-9, 0x1p-10, 448, 465},
           (double[]){16, 20, 448, -0x1p-9, 0, 448, 448}, 7);
    rounds("f8e5m2", (double[]){9, 11, 57344, 61439, 61440, 0x1p-16},
           (double[]){8, 12, 57344, 57344, INFINITY, 0x1p-16}, 6);
    rounds("f4e2m1", (double[]){0.25, 0.75, 1.25, 2.5, 5, 7, -100, 0.3},
           (double[]){0, 1, 1, 2, 4, 6, -6, 0.5}, 8);
    rounds("f32", (double[]){1.0 / 3, 16777217}, (double[]){(float)(1.0 / 3), 16777216}, 2);
    rounds("i8", (double[]){200, -1000, 5.9}, (double[]){127, -128, 5}, 3);
}

/* Each result is rounded: 1 + 2^-12 in f16 is 1, so nothing is added up. */
Test(exec_emulate, after_every_op) {
    exec_case c;
    ds_exec_tensor x = {.name = "x", .rank = 1, .dims = {1}, .n = 1, .at = (double[]){0x1p-12}};
    ds_exec_options options = {.emulate = true, .inputs = &x, .n_inputs = 1};
    static const char text[] =
        "dir 1\nfunc @f(%x: f16[1]) -> f16[1] {\n%one = fill() {value = 1.0} : f16[1]\n"
        "%y = for l in 0..64 carry (%s = %one) {\n%t = add(%s, %x)\nyield %t\n}\nreturn %y\n}\n";
    exec_text(&c, text, NULL, &options);
    cr_expect_eq(exec_out(&c, "y")[0], 1);
    exec_free(&c);
    options.emulate = false;
    exec_text(&c, text, NULL, &options);
    cr_expect_eq(exec_out(&c, "y")[0], 1 + 0x1p-6);
    exec_free(&c);
}

/* ---- .npy ---- */

static char *scratch_file(const void *bytes, size_t n) {
    char *path = strdup("/tmp/distsim-npy-XXXXXX");
    int fd = mkstemp(path);
    cr_assert(fd >= 0 && write(fd, bytes, n) == (ssize_t)n);
    close(fd);
    return path;
}

/* What numpy.save writes for a [2, 3] of doubles, byte by byte. */
Test(exec_npy, is_what_numpy_writes) {
    double numbers[6] = {1, -2, 0.5, 1e300, 0, 3};
    ds_exec_tensor t = {.dtype = DS_F16, .rank = 2, .dims = {2, 3}, .n = 6, .at = numbers};
    char want[128 + 48];
    memset(want, ' ', 128);
    memcpy(want, "\x93NUMPY\x01\x00\x76\x00", 10);
    memcpy(want + 10, "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }", 59);
    want[127] = '\n';
    memcpy(want + 128, numbers, 48); /* little-endian hosts only, as this test's are */
    ds_buf got = {0};
    ds_npy_print(&t, &got);
    cr_assert_eq(got.n, sizeof want);
    cr_expect_eq(memcmp(got.text, want, sizeof want), 0);
    ds_buf_deinit(&got);
}

Test(exec_npy, what_is_written_reads_back) {
    double numbers[6] = {1, -2, 7, 8, 0, 3};
    const ds_exec_tensor cases[] = {
        {.dtype = DS_F32, .rank = 2, .dims = {2, 3}, .n = 6, .at = numbers},
        {.dtype = DS_I32, .rank = 1, .dims = {6}, .n = 6, .at = numbers},
        {.dtype = DS_F32, .rank = 0, .n = 1, .at = numbers},
        {.dtype = DS_F32, .rank = 2, .dims = {0, 3}, .n = 0, .at = numbers}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ds_buf file = {0};
        ds_npy_print(&cases[i], &file);
        char *path = scratch_file(file.text, file.n);
        ds_exec_tensor got;
        ds_error err = {0};
        cr_assert_eq(ds_npy_read(path, 1000, &got, &err), DS_OK, "%s", err.message);
        cr_expect_eq(got.rank, cases[i].rank);
        cr_expect_eq(memcmp(got.dims, cases[i].dims, sizeof got.dims), 0);
        exec_expect(got.at, numbers, cases[i].n, "numbers");
        free(got.at);
        unlink(path);
        free(path);
        ds_buf_deinit(&file);
    }
}

static void npy(const char *header, const void *data, size_t n, ds_status status, const char *part,
                double first) {
    char bytes[512] = "\x93NUMPY\x01\x00";
    size_t h = strlen(header);
    bytes[8] = (char)h;
    memcpy(bytes + 10, header, h);
    memcpy(bytes + 10 + h, data, n);
    char *path = scratch_file(bytes, 10 + h + n);
    ds_exec_tensor got;
    ds_error err = {0};
    cr_expect_eq(ds_npy_read(path, 100, &got, &err), status, "%s: %s", header, err.message);
    if (status == DS_OK && got.n) cr_expect_eq(got.at[0], first);
    cr_expect(status == DS_OK || strstr(err.message, part), "%s", err.message);
    free(got.at);
    unlink(path);
    free(path);
}

#define HEADER(descr, order, shape)                                                                \
    "{'descr': '" descr "', 'fortran_order': " order ", 'shape': " shape ", }"

Test(exec_npy, dtypes_and_refusals) {
    npy(HEADER("<f4", "False", "(1,)"), "\0\0\x20\xc0", 4, DS_OK, "", -2.5);
    npy(HEADER("<i4", "False", "(1,)"), "\xfe\xff\xff\xff", 4, DS_OK, "", -2);
    npy(HEADER("<i8", "False", "()"), "\0\0\0\0\1\0\0\0", 8, DS_OK, "", 4294967296.0);
    npy(HEADER("|i1", "False", "(1, 1)"), "\xff", 1, DS_OK, "", -1);
    npy(HEADER(">f4", "False", "(1,)"), "\0\0\0\0", 4, DS_ERR_UNSUPPORTED, "'>f4'", 0);
    npy(HEADER("<c16", "False", "(1,)"), "\0\0\0\0", 4, DS_ERR_UNSUPPORTED, "'<c16'", 0);
    npy(HEADER("<f4", "True", "(1,)"), "\0\0\0\0", 4, DS_ERR_UNSUPPORTED, "Fortran order", 0);
    npy(HEADER("<f4", "False", "(2,)"), "\0\0\0\0", 4, DS_ERR_DATA, "after 1 of 2", 0);
    npy(HEADER("<f4", "False", "(1,)"), "\0\0\0\0x", 5, DS_ERR_DATA, "follow the last", 0);
    npy(HEADER("<f8", "False", "(50,)"), "", 0, DS_ERR_LIMIT, "50 elements", 0);
    npy(HEADER("<f8", "False", "(4611686018427387904, 4)"), "", 0, DS_ERR_OVERFLOW, "2^63", 0);
    npy(HEADER("<f8", "False", "(-1,)"), "", 0, DS_ERR_DATA, "list of sizes", 0);
    npy(HEADER("<f8", "False", "(1,"), "", 0, DS_ERR_DATA, "list of sizes", 0);
    npy(HEADER("<f8", "False", "(1,1,1,1,1,1,1,1,1)"), "", 0, DS_ERR_LIMIT, "8 dims", 0);
    npy("{'descr': [('a', '<f4')], 'shape': (1,)}", "", 0, DS_ERR_UNSUPPORTED, "dtype", 0);
    npy("{'descr': '<f4", "", 0, DS_ERR_DATA, "no fortran_order", 0);
    npy("{'shape': (1,)}", "", 0, DS_ERR_DATA, "no descr", 0);
    npy("", "", 0, DS_ERR_DATA, "no descr", 0);
}

Test(exec_npy, files_that_are_none) {
    ds_exec_tensor got;
    ds_error err = {0};
    cr_expect_eq(ds_npy_read("/nowhere/x.npy", 100, &got, &err), DS_ERR_IO);
    char *path = scratch_file("PK\3\4", 4);
    cr_expect_eq(ds_npy_read(path, 100, &got, &err), DS_ERR_DATA);
    unlink(path);
    free(path);
    path = scratch_file("\x93NUMPY\x02\x00\x10\x00\x00\x00", 12);
    cr_expect_eq(ds_npy_read(path, 100, &got, &err), DS_ERR_UNSUPPORTED);
    cr_expect(strstr(err.message, "version 2.0"), "%s", err.message);
    unlink(path);
    free(path);
}

/* ---- comparison ---- */

static void compared(const char *a, const char *b, ds_exec_comparison *c, exec_case pair[2]) {
    exec_text(&pair[0], a, NULL, NULL);
    exec_text(&pair[1], b, NULL, NULL);
    cr_assert(pair[0].result && pair[1].result);
    ds_exec_compare(pair[0].result, pair[1].result, DS_EXEC_BOUND, c);
}

#define F(args, results, body) "dir 1\nfunc @f(" args ") -> (" results ") {\n" body "\n}\n"

Test(exec_compare, by_name_then_by_position) {
    ds_exec_comparison c;
    exec_case pair[2];
    compared(F("%x: f32[3], %y: f32[3]", "f32[3], f32[3], f32[3]",
               "%a = neg(%x)\n%b = neg(%y)\n%q = add(%x, %y)\nreturn %a, %b, %q"),
             F("%x: f32[3], %y: f32[3]", "f32[3], f32[3], f32[3]",
               "%b = neg(%y)\n%a = neg(%x)\n%z = add(%y, %x)\nreturn %b, %a, %z"),
             &c, pair);
    cr_expect(c.equal && c.same_inputs);
    cr_expect(c.outputs.at[0].by_name && c.outputs.at[1].by_name && !c.outputs.at[2].by_name);
    cr_expect_str_eq(c.outputs.at[2].b->name, "z");
    ds_exec_comparison_deinit(&c);
    exec_free(&pair[0]), exec_free(&pair[1]);
}

Test(exec_compare, what_differs_is_said) {
    ds_exec_comparison c;
    exec_case pair[2];
    compared(F("%x: f32[3]", "f32[3]", "%y = scale(%x) {factor = 2.0}\nreturn %y"),
             F("%x: f32[3]", "f32[3]", "%y = scale(%x) {factor = 2.000001}\nreturn %y"), &c, pair);
    cr_expect(!c.equal);
    cr_expect_float_eq(c.outputs.at[0].max_difference, c.outputs.at[0].max_a * 5e-7, 1e-12);
    ds_exec_comparison_deinit(&c);
    exec_free(&pair[0]), exec_free(&pair[1]);
    /* another shape, an input and a result more, and not a number */
    compared(F("%x: f32[3], %only: f32[1]", "f32[3], f32[1]", "%y = neg(%x)\nreturn %y, %only"),
             F("%x: f32[2]", "f32[2]", "%y = neg(%x)\nreturn %y"), &c, pair);
    cr_expect(!c.equal && !c.same_inputs);
    cr_expect(!c.outputs.at[0].same_shape && !c.outputs.at[1].b);
    ds_exec_comparison_deinit(&c);
    exec_free(&pair[0]), exec_free(&pair[1]);
    compared(F("%x: f32[2]", "f32[2]", "%z = sub(%x, %x)\n%y = div(%x, %x)\nreturn %y"),
             F("%x: f32[2]", "f32[2]", "%z = sub(%x, %x)\n%y = div(%z, %z)\nreturn %y"), &c, pair);
    cr_expect(!c.equal && isinf(c.outputs.at[0].max_difference));
    ds_exec_comparison_deinit(&c);
    exec_free(&pair[0]), exec_free(&pair[1]);
}
