#include "tests/support/step.h"

#include "ir/lang/lang.h"
#include "ir/verify/verify.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SETTINGS 16

static void first_diag(step_case *c, const ds_diags *diags) {
    for (uint32_t i = 0; i < diags->all.n && c->status == DS_OK; i++)
        if (diags->all.at[i].severity == DS_SEV_ERROR)
            c->status = ds_error_set(&c->err, diags->all.at[i].code, diags->all.at[i].loc, "%s",
                                     diags->all.at[i].message);
}

static void bind(step_case *c, const char *settings) {
    char copy[512];
    ds_setting list[MAX_SETTINGS];
    uint32_t n = 0;
    snprintf(copy, sizeof copy, "%s", settings ? settings : "");
    for (char *word = strtok(copy, " "); word && n < MAX_SETTINGS; word = strtok(NULL, " ")) {
        char *equals = strchr(word, '=');
        *equals = '\0';
        list[n++] = (ds_setting){word, equals + 1};
    }
    ds_diags diags;
    ds_diags_init(&diags);
    if (ds_verify(c->source, &diags) != DS_OK) first_diag(c, &diags);
    if (c->status == DS_OK) c->status = ds_bind(c->source, list, n, &c->binding, &c->err);
    if (c->status == DS_OK && ds_verify_bound(c->source, &c->binding, &diags) != DS_OK)
        first_diag(c, &diags);
    ds_diags_deinit(&diags);
}

void step_make(step_case *c, const char *text, const char *settings, ds_pass_id last) {
    *c = (step_case){0};
    c->status = ds_load_text(DS_SOURCE_DIR "/scenarios/test.dir", text, strlen(text), NULL,
                             &c->source, &c->err);
    if (c->status == DS_OK) bind(c, settings);
    if (c->status == DS_OK) c->status = ds_model_step_new(&c->binding, &c->step, &c->err);
    for (uint32_t p = DS_PASS_STAGE; p <= (uint32_t)last && c->status == DS_OK; p++)
        if (p == (uint32_t)last || ds_model_step_wants(c->step, (ds_pass_id)p))
            c->status = ds_model_step_run(c->step, (ds_pass_id)p, &c->err);
    if (c->status == DS_OK) return;
    printf("%s: line %u: %s\n", ds_status_name(c->status), c->err.loc.line, c->err.message);
}

void step_free(step_case *c) {
    ds_model_step_free(c->step);
    ds_unit_free(c->source);
}

ds_exec_result *step_run(const step_case *c, uint64_t seed, const ds_exec_tensor *given,
                         uint32_t n_given) {
    ds_exec_options options = {
        .seed = seed, .keep_inputs = true, .inputs = given, .n_inputs = n_given};
    ds_exec_result *result;
    ds_error err = {0};
    cr_assert_eq(c->status, DS_OK, "%s", c->err.message);
    ds_status status = ds_exec_run(&c->step->binding, &options, &result, &err);
    cr_assert_eq(status, DS_OK, "exec: %s", err.message);
    return result;
}

char *step_text(const step_case *c) {
    ds_buf first = {0}, second = {0};
    ds_unit *unit;
    ds_error err = {0};
    ds_print_module(c->step->unit->modules.at[0], &first);
    ds_status status = ds_load_text("step.dir", first.text, first.n, NULL, &unit, &err);
    cr_assert_eq(status, DS_OK, "line %u: %s\n%s", err.loc.line, err.message, first.text);
    ds_diags diags;
    ds_diags_init(&diags);
    status = ds_verify(unit, &diags);
    cr_assert_eq(status, DS_OK, "%s\n%s", diags.all.n ? diags.all.at[0].message : "", first.text);
    ds_diags_deinit(&diags);
    ds_print_module(unit->modules.at[0], &second);
    cr_assert_str_eq(second.text, first.text, "fmt of fmt is the identity");
    ds_buf_deinit(&second);
    ds_unit_free(unit);
    return first.text;
}

static const ds_op *find(const ds_func *func, const ds_block *block, const char *name) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        for (uint32_t k = 0; k < op->n_out; k++)
            if (strcmp(ds_value_at(func, op->out[k])->name, name) == 0) return op;
        const ds_op *inner = op->body ? find(func, op->body, name) : NULL;
        if (inner) return inner;
    }
    return NULL;
}

const ds_op *step_find(const step_case *c, const char *result) {
    return find(c->step->func, &c->step->func->body, result);
}

/* ---- finite differences ---- */

#define DELTA      1e-4
#define TOLERANCE  1e-5
#define MAX_SAMPLE 24

static double loss_at(const step_case *forward, uint64_t seed, const ds_exec_tensor *weight) {
    ds_exec_result *result = step_run(forward, seed, weight, weight != NULL);
    double loss = result->outputs.at[0].at[0];
    ds_exec_result_free(result);
    return loss;
}

/* Of fourth order: (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12h, wrong by h^4 f^(5) / 30. */
static double difference(const step_case *forward, uint64_t seed, ds_exec_tensor *w, int64_t i) {
    double at = w->at[i], f[5];
    for (int k = -2; k <= 2; k++) {
        w->at[i] = at + k * DELTA;
        if (k) f[k + 2] = loss_at(forward, seed, w);
    }
    w->at[i] = at;
    return (8 * (f[3] - f[1]) - (f[4] - f[0])) / (12 * DELTA);
}

/* The input that a weight is drawn from: its name, or that of the model's weight where the step has
 * two of one name. */
static const char *drawn_from(const step_case *c, const ds_step_weight *w) {
    const ds_value_info *info = ds_value_at(c->step->func, w->arg);
    const ds_attr *input = ds_attr_find(info->attrs, info->n_attrs, "input");
    return input ? ds_attr_text(&c->step->unit->exprs, input) : info->name;
}

/* The gradient of input "w{3}": of all weights that are drawn from w. False: it is no weight. */
static bool gradient_of(const step_case *c, const ds_exec_result *result,
                        const ds_exec_tensor *input, double *sum) {
    size_t n = strcspn(input->name, "{");
    bool found = false;
    memset(sum, 0, (size_t)input->n * sizeof *sum);
    for (uint32_t i = 0; i < c->step->weights.n; i++) {
        const ds_step_weight *w = &c->step->weights.at[i];
        const char *from = drawn_from(c, w);
        if (w->frozen || strlen(from) != n || strncmp(from, input->name, n) != 0) continue;
        char name[256];
        snprintf(name, sizeof name, "%s.grad%s", w->name, input->name + n);
        const ds_exec_tensor *got = ds_exec_output(result, name);
        cr_assert_not_null(got, "no result %s", name);
        cr_assert_eq(got->n, input->n, "%s has the size of its weight", name);
        for (int64_t k = 0; k < got->n; k++) sum[k] += got->at[k];
        found = true;
    }
    return found;
}

static void expect_gradient(const step_case *forward, uint64_t seed, const double *got,
                            const ds_exec_tensor *weight, int64_t sample) {
    ds_exec_tensor w = *weight;
    int64_t stride = (w.n + sample - 1) / sample;
    double largest = 1e-3;
    for (int64_t i = 0; i < w.n; i++) largest = fmax(largest, fabs(got[i]));
    for (int64_t i = 0; i < w.n; i += stride) {
        double want = difference(forward, seed, &w, i);
        cr_assert(fabs(got[i] - want) <= TOLERANCE * largest,
                  "the gradient of %s[%lld] is %.12g, the difference of the loss is %.12g", w.name,
                  (long long)i, got[i], want);
    }
}

static bool expect_all(const step_case *forward, const step_case *backward, uint64_t seed,
                       int64_t sample) {
    ds_exec_result *result = step_run(backward, seed, NULL, 0);
    uint32_t n = 0;
    if (result->margin < 100 * DELTA && seed < 200) { /* a kink is near */
        ds_exec_result_free(result);
        return false;
    }
    cr_assert_float_eq(result->outputs.at[0].at[0], loss_at(forward, seed, NULL), 1e-12);
    for (uint32_t i = 0; i < result->inputs.n; i++) {
        const ds_exec_tensor *input = &result->inputs.at[i];
        double *sum = calloc((size_t)input->n + 1, sizeof *sum);
        if (gradient_of(backward, result, input, sum)) {
            expect_gradient(forward, seed, sum, input, sample);
            n++;
        }
        free(sum);
    }
    cr_assert_gt(n, 0, "no gradients");
    ds_exec_result_free(result);
    return true;
}

void step_expect_some_gradients(const char *text, const char *settings, int64_t sample) {
    step_case forward, backward;
    step_make(&forward, text, settings, DS_PASS_LOWER);
    step_make(&backward, text, settings, DS_PASS_GRAD);
    cr_assert_eq(forward.status, DS_OK, "%s\n%s", forward.err.message, text);
    cr_assert_eq(backward.status, DS_OK, "%s\n%s", backward.err.message, text);
    uint64_t seed = 1;
    while (!expect_all(&forward, &backward, seed, sample)) seed++;
    free(step_text(&backward));
    step_free(&forward);
    step_free(&backward);
}

void step_expect_gradients(const char *text, const char *settings) {
    step_expect_some_gradients(text, settings, MAX_SAMPLE);
}
