#include "tests/support/model.h"

#include "ir/base/diag.h"
#include "ir/lang/lang.h"
#include "ir/verify/verify.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define MAX_WORDS 16

static uint32_t words(char *text, const char **list) {
    uint32_t n = 0;
    for (char *word = strtok(text, " "); word && n < MAX_WORDS; word = strtok(NULL, " "))
        list[n++] = word;
    return n;
}

static uint32_t parse_settings(char *text, ds_setting *list) {
    const char *word[MAX_WORDS];
    uint32_t n = words(text, word);
    for (uint32_t i = 0; i < n; i++) {
        char *equals = strchr(word[i], '=');
        *equals = '\0';
        list[i] = (ds_setting){word[i], equals + 1};
    }
    return n;
}

static const char *first_error(const ds_diags *diags) {
    for (uint32_t i = 0; i < diags->all.n; i++)
        if (diags->all.at[i].severity == DS_SEV_ERROR) return diags->all.at[i].message;
    return "";
}

void model_open(model_case *m, const char *model, const char *settings) {
    char path[1024], copy[512];
    ds_setting list[MAX_WORDS];
    ds_error err = {0};
    ds_diags diags;
    snprintf(path, sizeof path, "%s/scenarios/models/%s.dir", DS_SOURCE_DIR, model);
    snprintf(copy, sizeof copy, "%s", settings ? settings : "");
    uint32_t n = parse_settings(copy, list);
    cr_assert_eq(ds_load_file(path, NULL, &m->unit, &err), DS_OK, "%s: %s", path, err.message);
    ds_diags_init(&diags);
    cr_assert_eq(ds_verify(m->unit, &diags), DS_OK, "%s: %s", path, first_error(&diags));
    cr_assert_eq(ds_bind(m->unit, list, n, &m->binding, &err), DS_OK, "%s: %s", path, err.message);
    cr_assert_eq(ds_verify_bound(m->unit, &m->binding, &diags), DS_OK, "%s: %s", path,
                 first_error(&diags));
    ds_diags_deinit(&diags);
    m->func = ds_find_func(m->unit->modules.at[0], model);
    cr_assert(m->func, "%s has no @%s", path, model);
}

void model_close(model_case *m) {
    ds_unit_free(m->unit);
}

void model_count(const char *model, const char *settings, ds_model_counts *out) {
    model_case m;
    ds_error err = {0};
    model_open(&m, model, settings);
    ds_status status = ds_model_count(&m.binding, m.func, out, &err);
    cr_assert_eq(status, DS_OK, "%s: %s", model, err.message);
    model_close(&m);
}

static ds_exec_result *run(const model_case *m, const ds_exec_options *options) {
    ds_exec_result *result;
    ds_error err = {0};
    ds_status status = ds_exec_run(&m->binding, options, &result, &err);
    cr_assert_eq(status, DS_OK, "%s: %s", m->func->name, err.message);
    return result;
}

static ds_exec_tensor zeroed(const ds_exec_result *from, const char *name) {
    for (uint32_t i = 0; i < from->inputs.n; i++) {
        const ds_exec_tensor *t = &from->inputs.at[i];
        if (strcmp(t->name, name) != 0) continue;
        memset(t->at, 0, (size_t)t->n * sizeof *t->at);
        return *t;
    }
    cr_assert(false, "no input %s", name);
    return (ds_exec_tensor){0};
}

double model_loss(const char *model, const char *settings, const char *zeros) {
    model_case m;
    char copy[256];
    const char *name[MAX_WORDS];
    ds_exec_tensor inputs[MAX_WORDS];
    model_open(&m, model, settings);
    ds_exec_options options = {.seed = 1, .keep_inputs = true, .entry = m.func};
    ds_exec_result *result = run(&m, &options);
    if (zeros) { /* again, with the first run's inputs in part */
        ds_exec_result *first = result;
        snprintf(copy, sizeof copy, "%s", zeros);
        options.n_inputs = words(copy, name);
        for (uint32_t i = 0; i < options.n_inputs; i++) inputs[i] = zeroed(first, name[i]);
        options.inputs = inputs;
        result = run(&m, &options);
        ds_exec_result_free(first);
    }
    double loss = result->outputs.at[0].at[0];
    ds_exec_result_free(result);
    model_close(&m);
    return loss;
}
