/* How long it takes to simulate scenarios/gpt-1t-pp64.dir, a pipeline of 64 stages and 512
 * microbatches, and which step takes how much: CPU time, memory that the step's unit asks for, and
 * the process's peak so far. Once: a run takes seconds. Arguments are settings: stages=16
 * microbatches=64. */
#define _GNU_SOURCE
#include "ir/lang/lang.h"
#include "ir/verify/verify.h"
#include "sim/report/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

typedef struct bench {
    ds_unit *unit;
    ds_binding binding;
    ds_profiles *profiles;
    ds_model_step *step;
    ds_plan *plan;
    ds_run run;
    ds_mem mem;
    ds_result *result;
    double last_s, sum_s;
} bench;

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void say(bench *b, const char *what, size_t bytes) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    double now_s = seconds();
    printf("  %-12s%8.3f s", what, now_s - b->last_s);
    if (bytes)
        printf("%10.1f MiB of arena", (double)bytes / (1 << 20));
    else
        printf("%23s", "");
    printf("%10.1f MiB peak\n", (double)usage.ru_maxrss / 1024);
    b->sum_s += now_s - b->last_s;
    b->last_s = seconds();
}

static ds_status load(bench *b, const ds_setting *settings, uint32_t n, ds_error *err) {
    static const char *const include[] = {DS_SOURCE_DIR "/scenarios"};
    const ds_load_options options = {.include_dirs = include, .n_include_dirs = 1};
    ds_diags diags;
    ds_diags_init(&diags);
    ds_status status =
        ds_load_file(DS_SOURCE_DIR "/scenarios/gpt-1t-pp64.dir", &options, &b->unit, err);
    if (status == DS_OK) status = ds_verify(b->unit, &diags);
    if (status == DS_OK) status = ds_bind(b->unit, settings, n, &b->binding, err);
    if (status == DS_OK) status = ds_verify_bound(b->unit, &b->binding, &diags);
    if (status == DS_OK) status = ds_profiles_load(NULL, &b->profiles, err);
    ds_diags_deinit(&diags);
    say(b, "load", 0);
    return status;
}

/* As ds_simulate does it. */
static ds_status make_step(bench *b, ds_error *err) {
    DS_TRY(ds_model_step_new(&b->binding, &b->step, err));
    b->step->brief = true;
    for (uint32_t p = DS_PASS_LOWER; p <= DS_PASS_OVERLAP; p++) {
        size_t before = b->step->unit->arena.bytes;
        if (!ds_model_step_wants(b->step, (ds_pass_id)p)) continue;
        DS_TRY(ds_model_step_run(b->step, (ds_pass_id)p, err));
        say(b, ds_pass_name((ds_pass_id)p), b->step->unit->arena.bytes - before);
    }
    return DS_OK;
}

static ds_status simulate(bench *b, ds_error *err) {
    const ds_plan_options options = {.max_instances = 0};
    const ds_mem_options memory = {.mode = DS_MEM_EXACT};
    DS_TRY(ds_plan_build(&b->step->binding, b->profiles, &options, &b->plan, err));
    say(b, "plan", b->plan->arena.bytes);
    DS_TRY(ds_engine_run(b->plan, NULL, NULL, &b->run, err));
    say(b, "engine", 0);
    DS_TRY(ds_mem_compute(b->plan, &b->run, &memory, &b->mem, err));
    say(b, "memory", 0);
    return DS_OK;
}

/* All of it again, as `distsim run` has it, with the report. */
static ds_status whole(bench *b, ds_error *err) {
    const ds_sim_options options = {.max_instances = 0};
    ds_buf text = {0};
    DS_TRY(ds_simulate(&b->binding, b->profiles, &options, &b->result, err));
    ds_report_summary(b->result, &text);
    ds_buf_deinit(&text);
    return DS_OK;
}

static void free_steps(bench *b) {
    ds_mem_deinit(&b->mem);
    ds_run_deinit(&b->run);
    ds_plan_free(b->plan);
    ds_model_step_free(b->step);
}

int main(int argc, char **argv) {
    bench b = {.last_s = seconds()};
    ds_setting settings[8];
    ds_error err = {0};
    uint32_t n = 0;
    for (int i = 1; i < argc && n < 8; i++) {
        char *equals = strchr(argv[i], '=');
        if (!equals) continue;
        *equals = '\0';
        settings[n++] = (ds_setting){argv[i], equals + 1};
    }
    printf("pipeline: scenarios/gpt-1t-pp64.dir\n");
    ds_status status = load(&b, settings, n, &err);
    if (status == DS_OK) status = make_step(&b, &err);
    if (status == DS_OK) status = simulate(&b, &err);
    if (status == DS_OK) printf("  %-12s%8.3f s, %u tasks\n", "together", b.sum_s, b.plan->n_tasks);
    free_steps(&b);
    double start_s = seconds();
    if (status == DS_OK) status = whole(&b, &err);
    if (status == DS_OK)
        printf("  %-12s%8.3f s, with accounts and summary; step %.3f s\n", "run",
               seconds() - start_s, (double)b.result->run.step_ps * 1e-12);
    else
        fprintf(stderr, "%s\n", err.message);
    ds_result_free(b.result);
    ds_profiles_free(b.profiles);
    ds_unit_free(b.unit);
    return status != DS_OK;
}
