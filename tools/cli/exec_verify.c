/* The table of ds_model_step_check: one line a pass and kind of tensor, and one for each tensor
 * that differs. */
#include "tools/cli/exec_verify.h"

#include "ir/prove/check.h"
#include "ir/strategy/scenario.h"

#include <math.h>
#include <string.h>

enum { MAX_DIFFERENT = 20 }; /* listed one by one */

static double relative(const ds_step_check_row *row) {
    return row->max_difference > 0 ? row->max_difference / row->max_a : 0;
}

static void print_line(const ds_step_check_row *row, const char *tensors, ds_buf *out) {
    ds_buf_printf(out, "%-10s %-9s %8s %11.5g %11.3g %11.3g  %s  %s\n", ds_pass_name(row->pass),
                  ds_check_kind_name(row->kind), tensors, row->max_a, row->max_difference,
                  1e-9 * row->max_a, row->equal ? "equal    " : "DIFFERENT", row->name);
}

/* All tensors of a pass and kind: how many, and the one that differs most. */
static void print_group(const ds_step_check *check, ds_pass_id pass, ds_check_kind kind,
                        ds_buf *out) {
    const ds_step_check_row *worst = NULL;
    uint32_t n = 0;
    for (uint32_t i = 0; i < check->rows.n; i++) {
        const ds_step_check_row *row = &check->rows.at[i];
        if (row->pass != pass || row->kind != kind) continue;
        n++;
        if (!worst || (worst->equal && !row->equal) ||
            (worst->equal == row->equal && relative(row) > relative(worst)))
            worst = row;
    }
    ds_buf count = {0};
    ds_buf_printf(&count, "%u", n);
    if (worst) print_line(worst, count.text, out);
    ds_buf_deinit(&count);
}

static void print_different(const ds_step_check *check, ds_buf *out) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < check->rows.n; i++) {
        if (check->rows.at[i].equal) continue;
        if (n == 0) ds_buf_put(out, "tensors that differ:\n");
        if (n++ < MAX_DIFFERENT) print_line(&check->rows.at[i], "", out);
    }
    if (n > MAX_DIFFERENT) ds_buf_printf(out, "and %u more\n", n - MAX_DIFFERENT);
}

static void print_table(const ds_step_check *check, ds_buf *out) {
    ds_buf_printf(out, "%-10s %-9s %8s %11s %11s %11s  %-9s  %s\n", "pass", "what", "tensors",
                  "max|a|", "max|a-b|", "bound", "", "the one that differs most");
    for (int pass = 0; pass < DS_PASS_COUNT; pass++)
        for (int kind = 0; kind <= DS_CHECK_STATE; kind++)
            print_group(check, (ds_pass_id)pass, (ds_check_kind)kind, out);
}

static void print_verdict(const ds_step_check *check, uint64_t seed, ds_buf *out) {
    print_different(check, out);
    if (check->skipped) ds_buf_printf(out, "%s\n", check->skipped);
    if (check->seed != seed)
        ds_buf_printf(out,
                      "seed %llu: with the %llu before it a choice (top-k, the sign in a relu) was "
                      "too close to compare\n",
                      (unsigned long long)check->seed, (unsigned long long)(check->seed - seed));
    if (check->margin < 1e-6)
        ds_buf_printf(out,
                      "no seed up to %llu decides every choice by more than 1e-6 (%.2g): rounding "
                      "may turn one\n",
                      (unsigned long long)check->seed, check->margin);
    ds_buf_printf(out, "%s, %u device%s\n", check->equal ? "equal" : "different", check->n_devices,
                  check->n_devices == 1 ? "" : "s");
}

static ds_status verify(const cli_source *source, const cli_verify_options *options,
                        ds_step_check *check, ds_error *err) {
    ds_step_check_options how = {.seed = options->seed, .max_bytes = options->max_bytes};
    if (!ds_scenario_model(source->unit))
        return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                            "--verify runs the passes on a model and compares; this file names no "
                            "model, and a program has no passes to prove: compare it with another "
                            "one by --against");
    if (options->pass) how.passes = 1u << ds_pass_by_name(options->pass);
    DS_TRY(ds_model_step_check(&source->binding, &how, check, err));
    if (check->rows.n || check->compared) return DS_OK;
    return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                        "nothing to compare: the scenario does not ask for %s",
                        options->pass ? options->pass : "any pass");
}

int cli_verify(const cli_source *source, const cli_verify_options *options) {
    ds_step_check check = {0};
    ds_error err = {0};
    ds_buf text = {0};
    ds_status status = verify(source, options, &check, &err);
    if (status == DS_OK) {
        if (!options->quiet) print_table(&check, &text);
        print_verdict(&check, options->seed, &text);
        status = cli_print(text.text, text.n, &err);
    }
    int exit_code = status == DS_OK ? !check.equal : cli_fail(source->unit, &err);
    ds_buf_deinit(&text);
    ds_step_check_deinit(&check);
    return exit_code;
}
