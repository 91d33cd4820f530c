#include "tests/support/exec.h"

#include "ir/lang/lang.h"
#include "ir/verify/verify.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define MAX_SETTINGS 32

static void first_diag(exec_case *c, const ds_diags *diags) {
    for (uint32_t i = 0; i < diags->all.n; i++) {
        const ds_diag *d = &diags->all.at[i];
        if (d->severity != DS_SEV_ERROR) continue;
        c->status = ds_error_set(&c->err, d->code, d->loc, "%s", d->message);
        return;
    }
}

static uint32_t split(char *text, ds_setting *list) {
    uint32_t n = 0;
    for (char *word = strtok(text, " "); word && n < MAX_SETTINGS; word = strtok(NULL, " ")) {
        char *equals = strchr(word, '=');
        *equals = '\0';
        list[n++] = (ds_setting){word, equals + 1};
    }
    return n;
}

static void run(exec_case *c, const char *settings, const ds_exec_options *options) {
    char copy[512];
    ds_setting list[MAX_SETTINGS];
    snprintf(copy, sizeof copy, "%s", settings ? settings : "");
    uint32_t n = split(copy, list);
    ds_diags diags;
    ds_diags_init(&diags);
    if (ds_verify(c->unit, &diags) != DS_OK) first_diag(c, &diags);
    if (c->status == DS_OK) c->status = ds_bind(c->unit, list, n, &c->binding, &c->err);
    if (c->status == DS_OK && ds_verify_bound(c->unit, &c->binding, &diags) != DS_OK)
        first_diag(c, &diags);
    ds_diags_deinit(&diags);
    ds_exec_options own = options ? *options : (ds_exec_options){.seed = 1};
    own.keep_inputs = true;
    if (c->status == DS_OK) c->status = ds_exec_run(&c->binding, &own, &c->result, &c->err);
}

static void say(const exec_case *c) {
    if (c->status != DS_OK)
        printf("%s: line %u: %s\n", ds_status_name(c->status), c->err.loc.line, c->err.message);
}

void exec_text(exec_case *c, const char *text, const char *settings,
               const ds_exec_options *options) {
    *c = (exec_case){0};
    c->status = ds_load_text(DS_SOURCE_DIR "/scenarios/test.dir", text, strlen(text), NULL,
                             &c->unit, &c->err);
    if (c->status == DS_OK) run(c, settings, options);
    say(c);
}

void exec_file(exec_case *c, const char *file, const char *settings) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", DS_SOURCE_DIR, file);
    *c = (exec_case){0};
    c->status = ds_load_file(path, NULL, &c->unit, &c->err);
    if (c->status == DS_OK) run(c, settings, NULL);
    say(c);
}

void exec_lines(exec_case *c, const char *args, const char *results, const char *lines) {
    ds_buf text = {0};
    ds_buf_printf(&text, "dir 1\nfunc @f(%s) -> (%s) {\n%s\n}\n", args, results, lines);
    exec_text(c, text.text, NULL, NULL);
    ds_buf_deinit(&text);
}

void exec_free(exec_case *c) {
    ds_exec_result_free(c->result);
    ds_unit_free(c->unit);
}

const ds_exec_tensor *exec_output(const exec_case *c, const char *name) {
    cr_assert_eq(c->status, DS_OK, "%s", c->err.message);
    const ds_exec_tensor *t = ds_exec_output(c->result, name);
    cr_assert(t, "no result %s", name);
    return t;
}

const double *exec_out(const exec_case *c, const char *name) {
    return exec_output(c, name)->at;
}

const double *exec_in(const exec_case *c, const char *name) {
    cr_assert_eq(c->status, DS_OK, "%s", c->err.message);
    for (uint32_t i = 0; i < c->result->inputs.n; i++)
        if (strcmp(c->result->inputs.at[i].name, name) == 0) return c->result->inputs.at[i].at;
    cr_assert(false, "no input %s", name);
    return NULL;
}

void exec_expect(const double *got, const double *want, int64_t n, const char *what) {
    for (int64_t i = 0; i < n; i++) {
        cr_expect(fabs(got[i] - want[i]) <= 1e-12 * (1 + fabs(want[i])),
                  "%s: element %lld is %.17g, not %.17g", what, (long long)i, got[i], want[i]);
        if (!(fabs(got[i] - want[i]) <= 1e-12 * (1 + fabs(want[i])))) return;
    }
}

void exec_expect_same(const exec_case *a, const exec_case *b, const char *what) {
    cr_assert_eq(a->status, DS_OK, "%s: %s", what, a->err.message);
    cr_assert_eq(b->status, DS_OK, "%s: %s", what, b->err.message);
    ds_exec_comparison c;
    ds_exec_compare(a->result, b->result, DS_EXEC_BOUND, &c);
    cr_expect(c.same_inputs, "%s: the programs have other inputs", what);
    cr_expect(c.outputs.n, "%s: nothing to compare", what);
    for (uint32_t i = 0; i < c.outputs.n; i++) {
        const ds_exec_pair *p = &c.outputs.at[i];
        cr_expect(p->equal, "%s: %s differs by %g of %g", what, p->a ? p->a->name : p->b->name,
                  p->max_difference, p->max_a);
        cr_expect(!p->a || p->max_a > 0, "%s: %s is all zeros", what, p->a ? p->a->name : "");
    }
    ds_exec_comparison_deinit(&c);
}
