/* How long it takes to simulate a decode of 1,024 tokens: scenarios/decode-llama-70b.dir, Llama 3 70B
 * at tp 8, as `distsim run` does it, and once more with all turns of all layers, which gives the same
 * picoseconds. CPU time, the median of some runs, and instructions where the kernel counts them.
 * Arguments are settings: seq=4112 model.layers=28. */
#define _GNU_SOURCE
#include "ir/lang/lang.h"
#include "ir/verify/verify.h"
#include "sim/report/report.h"
#include "tools/bench/counter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RUNS = 7, MOST_SETTINGS = 9 };

typedef struct bench {
    ds_setting settings[MOST_SETTINGS];
    uint32_t n_settings;
    double load_s, run_s; /* of the last run */
    uint32_t n_tasks;
    ds_token_times tokens;
    int64_t step_ps;
} bench;

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static ds_status load(const bench *b, ds_unit **unit, ds_binding *binding, ds_profiles **profiles,
                      ds_error *err) {
    static const char *const include[] = {DS_SOURCE_DIR "/scenarios"};
    const ds_load_options options = {.include_dirs = include, .n_include_dirs = 1};
    ds_diags diags;
    ds_diags_init(&diags);
    ds_status status =
        ds_load_file(DS_SOURCE_DIR "/scenarios/decode-llama-70b.dir", &options, unit, err);
    if (status == DS_OK) status = ds_verify(*unit, &diags);
    if (status == DS_OK) status = ds_bind(*unit, b->settings, b->n_settings, binding, err);
    if (status == DS_OK) status = ds_verify_bound(*unit, binding, &diags);
    if (status == DS_OK) status = ds_profiles_load(NULL, profiles, err);
    ds_diags_deinit(&diags);
    return status;
}

static void keep(bench *b, const ds_result *r) {
    free(b->tokens.ps);
    b->tokens = (ds_token_times){.n = r->tokens->n};
    b->tokens.ps = ds_xcalloc(b->tokens.n, sizeof *b->tokens.ps);
    memcpy(b->tokens.ps, r->tokens->ps, b->tokens.n * sizeof *b->tokens.ps);
    b->step_ps = r->run.step_ps;
    b->n_tasks = r->plan->n_tasks;
}

static ds_status once(bench *b, uint32_t repeat_turns, ds_error *err) {
    ds_unit *unit = NULL;
    ds_binding binding;
    ds_profiles *profiles = NULL;
    ds_result *result = NULL;
    ds_sim_options options = {.repeat_turns = repeat_turns};
    ds_buf text = {0};
    double start_s = seconds();
    ds_status status = load(b, &unit, &binding, &profiles, err);
    b->load_s = seconds() - start_s;
    if (status == DS_OK) status = ds_simulate(&binding, profiles, &options, &result, err);
    if (status == DS_OK) ds_report_summary(result, &text);
    b->run_s = seconds() - start_s - b->load_s;
    if (status == DS_OK) keep(b, result);
    ds_buf_deinit(&text);
    ds_result_free(result);
    ds_profiles_free(profiles);
    ds_unit_free(unit);
    return status;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static ds_status measure(bench *b, ds_error *err) {
    double load_s[RUNS], run_s[RUNS];
    uint64_t instructions = 0;
    int counter = bench_open_counter();
    for (int i = 0; i < RUNS; i++) {
        uint64_t before = bench_read_counter(counter);
        DS_TRY(once(b, DS_REPEAT_TURNS, err));
        instructions = bench_read_counter(counter) - before;
        load_s[i] = b->load_s;
        run_s[i] = b->run_s;
    }
    if (counter >= 0) close(counter);
    qsort(load_s, RUNS, sizeof *load_s, by_value);
    qsort(run_s, RUNS, sizeof *run_s, by_value);
    printf("decode: %u tokens, %u tasks: %.3f s to load, %.3f s to simulate (median of %d)\n",
           b->tokens.n + 1, b->n_tasks, load_s[RUNS / 2], run_s[RUNS / 2], RUNS);
    if (instructions) printf("        %.0f million instructions\n", (double)instructions * 1e-6);
    return DS_OK;
}

static ds_status compare(bench *b, ds_error *err) {
    bench all = *b;
    uint32_t unlike = 0;
    all.tokens = (ds_token_times){0};
    DS_TRY(once(&all, 0, err));
    for (uint32_t i = 0; i < b->tokens.n; i++) unlike += b->tokens.ps[i] != all.tokens.ps[i];
    printf(
        "        with all turns: %u tasks, %.3f s; the step is %lld ps longer, %u tokens differ\n",
        all.n_tasks, all.run_s, (long long)(all.step_ps - b->step_ps), unlike);
    free(all.tokens.ps);
    return DS_OK;
}

int main(int argc, char **argv) {
    bench b = {.settings = {{"seq", "1040"}}, .n_settings = 1}; /* after a prompt of 16 */
    ds_error err = {0};
    for (int i = 1; i < argc && b.n_settings < MOST_SETTINGS; i++) {
        char *equals = strchr(argv[i], '=');
        if (!equals) continue;
        *equals = '\0';
        bool same = strcmp(argv[i], b.settings[0].path) == 0;
        b.settings[same ? 0 : b.n_settings++] = (ds_setting){argv[i], equals + 1};
    }
    ds_status status = measure(&b, &err);
    if (status == DS_OK) status = compare(&b, &err);
    if (status != DS_OK) fprintf(stderr, "%s\n", err.message);
    free(b.tokens.ps);
    return status != DS_OK;
}
