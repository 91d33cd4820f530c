/* How long it takes to build, differentiate, shard and print the training step of GPT-3 175B: 96
 * layers over 8 x 8 GPUs, mixed precision, Adam. Reading the model's text is counted; the machine's
 * file is read too. Medians of CPU time, and the peak of the process's memory. */
#define _GNU_SOURCE
#include "ir/passes/passes.h"
#include "ir/lang/lang.h"
#include "ir/verify/verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

static const char scenario[] =
    "dir 1\n"
    "import \"models/gpt.dir\" as g with layers = 96, hidden = 12288, heads = 96, seq = 2048,"
    " vocab = 51200, batch = 8\n"
    "import \"topologies/pod-128x8.dir\"\n"
    "scenario {\n"
    "  model = @g.gpt\n"
    "  on = @pod\n"
    "  train { loss = none, optimizer = adam, dtype = f16 }\n"
    "  strategy { dp = 8, tp = 8 }\n"
    "}\n";

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* From text to text; the bytes printed. */
static ds_status transform(size_t *bytes, ds_error *err) {
    static const char *const include[] = {DS_SOURCE_DIR "/scenarios"};
    const ds_load_options options = {.include_dirs = include, .n_include_dirs = 1};
    ds_unit *unit = NULL;
    ds_binding binding;
    ds_model_step *step = NULL;
    ds_diags diags;
    ds_diags_init(&diags);
    ds_status status =
        ds_load_text("gpt3.dir", scenario, sizeof scenario - 1, &options, &unit, err);
    if (status == DS_OK) status = ds_verify(unit, &diags);
    if (status == DS_OK) status = ds_bind(unit, NULL, 0, &binding, err);
    if (status == DS_OK) status = ds_verify_bound(unit, &binding, &diags);
    if (status == DS_OK) status = ds_model_step_new(&binding, &step, err);
    if (status == DS_OK) status = ds_model_step_run_to(step, DS_PASS_OVERLAP, NULL, NULL, err);
    if (status == DS_OK) {
        ds_buf text = {0};
        ds_print_module(step->unit->modules.at[0], &text);
        *bytes = text.n;
        ds_buf_deinit(&text);
    }
    if (step) ds_model_step_free(step);
    ds_diags_deinit(&diags);
    ds_unit_free(unit);
    return status;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

#define RUNS 21

int main(void) {
    double times[RUNS];
    size_t bytes = 0;
    for (int i = 0; i < RUNS; i++) {
        ds_error err = {0};
        double start = seconds();
        if (transform(&bytes, &err) != DS_OK) {
            fprintf(stderr, "%s\n", err.message);
            return 1;
        }
        times[i] = seconds() - start;
    }
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    qsort(times, RUNS, sizeof *times, by_value);
    printf("passes: GPT-3 175B, dp 8, tp 8: %.1f ms from text to %zu bytes of text (median of %d; "
           "fastest %.1f, slowest %.1f)\n",
           times[RUNS / 2] * 1e3, bytes, RUNS, times[0] * 1e3, times[RUNS - 1] * 1e3);
    printf("        peak memory of the process %.1f MiB\n", (double)usage.ru_maxrss / 1024);
    return 0;
}
