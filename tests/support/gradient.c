#include "tests/support/gradient.h"

#include "tests/support/exec.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEP 1e-4 /* of inputs of about 1: errors of 1e-8 by the step, of 1e-12 by rounding */

enum { MAX_WANTED = 8 };

/* "f64[2, 3]" of %name among the arguments. */
static void put_type(const char *args, const char *name, ds_buf *out) {
    char key[32];
    snprintf(key, sizeof key, "%%%s:", name);
    const char *at = strstr(args, key);
    cr_assert(at, "no argument %s", name);
    at += strlen(key);
    ds_buf_printf(out, "%.*s", (int)(strcspn(at, "]") + 1), at);
}

static void put_program(const char *args, const char *lines, char *const *wanted, int n,
                        ds_buf *out) {
    ds_buf_printf(out, "dir 1\nfunc @f(%s) -> (f64[]", args);
    for (int i = 0; i < n; i++) {
        ds_buf_put(out, ",");
        put_type(args, wanted[i], out);
    }
    ds_buf_printf(out, ") {\n%s\n%%p_ = mul(%%y, %%dy)\n%%loss = reduce_sum(%%p_)\nreturn %%loss",
                  lines);
    for (int i = 0; i < n; i++) ds_buf_printf(out, ", %%d%s", wanted[i]);
    ds_buf_put(out, "\n}\n");
}

static double loss_with(const char *program, const ds_exec_tensor *x) {
    ds_exec_options options = {.seed = 1, .inputs = x, .n_inputs = 1};
    exec_case c;
    exec_text(&c, program, NULL, &options);
    double loss = exec_out(&c, "loss")[0];
    exec_free(&c);
    return loss;
}

static void check_one(const char *program, const exec_case *c, const char *name) {
    char gradient[32];
    snprintf(gradient, sizeof gradient, "d%s", name);
    const ds_exec_tensor *got = exec_output(c, gradient);
    const double *at = exec_in(c, name);
    ds_exec_tensor x = *got;
    x.name = name;
    x.at = malloc((size_t)x.n * sizeof *x.at);
    double *want = malloc((size_t)x.n * sizeof *want), most = 0;
    memcpy(x.at, at, (size_t)x.n * sizeof *x.at);
    for (int64_t i = 0; i < x.n; i++) {
        x.at[i] = at[i] + STEP;
        want[i] = loss_with(program, &x);
        x.at[i] = at[i] - STEP;
        want[i] = (want[i] - loss_with(program, &x)) / (2 * STEP);
        x.at[i] = at[i];
        most = fmax(most, fabs(want[i]));
    }
    cr_expect_gt(most, 0, "%s: all differences are 0", gradient);
    for (int64_t i = 0; i < x.n; i++)
        if (!(fabs(got->at[i] - want[i]) <= 1e-6 * most)) {
            cr_expect(false, "%s[%lld] is %.12g, but the difference is %.12g\n%s", gradient,
                      (long long)i, got->at[i], want[i], program);
            break;
        }
    free(x.at);
    free(want);
}

void gradient_check(const char *args, const char *lines, const char *wanted) {
    char *names = strdup(wanted), *list[MAX_WANTED];
    int n = 0;
    for (char *name = strtok(names, " "); name && n < MAX_WANTED; name = strtok(NULL, " "))
        list[n++] = name;
    ds_buf program = {0};
    put_program(args, lines, list, n, &program);
    exec_case c;
    exec_text(&c, program.text, NULL, NULL);
    cr_expect_eq(c.status, DS_OK, "%s\n%s", c.err.message, program.text);
    for (int i = 0; i < n && c.result; i++) check_one(program.text, &c, list[i]);
    exec_free(&c);
    ds_buf_deinit(&program);
    free(names);
}
