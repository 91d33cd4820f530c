/* What a large cluster costs to simulate: scenarios/gpt3-175b-65536.dir with ever more replicas,
 * each in a process of its own: what of the simulation grows and what does not, CPU time and peak
 * memory. Then a ring all_reduce of 1 GiB over 1,024 devices, beside what two other simulators were
 * measured to take for it (2-core 2.5 GHz machine): ASTRA-sim 2 at 518bd51 8.27 s, SimGrid 3.32's
 * S4U model 26.1 s.
 *
 * Arguments are values of dp; without any 4, 64, 256, 1024, 4096, 16384. The last is a million
 * devices: 1.2 GB. */
#define _GNU_SOURCE
#include "ir/lang/lang.h"
#include "ir/verify/verify.h"
#include "sim/run/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

typedef struct bench {
    ds_unit *unit;
    ds_binding binding;
    ds_profiles *profiles;
    ds_result *result;
} bench;

static ds_status bind(bench *b, const ds_setting *settings, uint32_t n, ds_error *err) {
    ds_diags diags;
    ds_diags_init(&diags);
    ds_status status = ds_verify(b->unit, &diags);
    if (status == DS_OK) status = ds_bind(b->unit, settings, n, &b->binding, err);
    if (status == DS_OK) status = ds_verify_bound(b->unit, &b->binding, &diags);
    ds_diags_deinit(&diags);
    if (status != DS_OK && !err->message[0]) ds_error_set(err, status, DS_NOWHERE, "not verified");
    return status;
}

static ds_status simulate(bench *b, const ds_setting *settings, uint32_t n, ds_error *err) {
    const ds_sim_options options = {.max_instances = 0};
    DS_TRY(bind(b, settings, n, err));
    DS_TRY(ds_profiles_load(NULL, &b->profiles, err));
    return ds_simulate(&b->binding, b->profiles, &options, &b->result, err);
}

static void deinit(bench *b) {
    ds_result_free(b->result);
    ds_profiles_free(b->profiles);
    if (b->unit) ds_unit_free(b->unit);
}

static int failed(const ds_error *err) {
    fprintf(stderr, "%s\n", err->message);
    return 1;
}

/* ---- replicas ---- */

static int run_replicas(const char *dp) {
    static const char *const include[] = {DS_SOURCE_DIR "/scenarios"};
    const ds_load_options options = {.include_dirs = include, .n_include_dirs = 1};
    const ds_setting setting = {"dp", dp};
    bench b = {0};
    ds_error err = {0};
    double start_s = seconds();
    ds_status status =
        ds_load_file(DS_SOURCE_DIR "/scenarios/gpt3-175b-65536.dir", &options, &b.unit, &err);
    if (status == DS_OK) status = simulate(&b, &setting, 1, &err);
    if (status != DS_OK) return failed(&err);
    double took_s = seconds() - start_s;
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    const ds_plan *plan = b.result->plan;
    printf("%9u%8u%9u%9llu%7u%7u%9.2f%9.1f%10.3f\n", plan->n_devices, plan->n_classes,
           plan->n_tasks, (unsigned long long)b.result->run.n_events, plan->n_flows, plan->n_links,
           took_s, (double)usage.ru_maxrss / 1024, (double)b.result->run.step_ps * 1e-12);
    deinit(&b);
    return 0;
}

static int in_a_process(const char *dp) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int code = run_replicas(dp);
        fflush(stdout);
        _exit(code);
    }
    int status = 1;
    if (child < 0 || waitpid(child, &status, 0) != child) return 1;
    return status != 0;
}

/* ---- a ring ---- */

#define RING                                                                                       \
    "dir 1\n"                                                                                      \
    "topology @ring {\n"                                                                           \
    "  device d[1024] : \"A100-SXM4-80GB\"\n"                                                      \
    "  link d[i] -- d[(i + 1) % 1024] : 53.6870912 GB/s, 500 ns for i in 0..1024\n"                \
    "}\n"                                                                                          \
    "mesh @m = [dp = 1024] on @ring\n"                                                             \
    "func @main(%x: f32[268435456] on @m partial(dp)) -> f32[268435456] on @m {\n"                 \
    "  %y = all_reduce(%x) over dp {algorithm = \"ring\"}\n"                                       \
    "  return %y\n"                                                                                \
    "}\n"                                                                                          \
    "scenario { program = @main }\n"

static int run_ring(bool unfold, double *took_s) {
    const ds_sim_options options = {.unfold = unfold};
    bench b = {0};
    ds_error err = {0};
    double start_s = seconds();
    ds_status status = ds_load_text("ring", RING, strlen(RING), NULL, &b.unit, &err);
    if (status == DS_OK) status = bind(&b, NULL, 0, &err);
    if (status == DS_OK) status = ds_profiles_load(NULL, &b.profiles, &err);
    if (status == DS_OK) status = ds_simulate(&b.binding, b.profiles, &options, &b.result, &err);
    if (status != DS_OK) return failed(&err);
    *took_s = seconds() - start_s;
    printf("  %s  %7.4f s, %u tasks; takes %.3f us\n", unfold ? "unfolded" : "folded  ", *took_s,
           b.result->plan->n_tasks, (double)b.result->run.step_ps * 1e-6);
    deinit(&b);
    return 0;
}

int main(int argc, char **argv) {
    static const char *const usual[] = {"4", "64", "256", "1024", "4096", "16384"};
    int bad = 0;
    printf("scale: scenarios/gpt3-175b-65536.dir\n"
           "     GPUs classes    tasks   events  flows  links    CPU s      MiB    step s\n");
    if (argc > 1)
        for (int i = 1; i < argc; i++) bad |= in_a_process(argv[i]);
    else
        for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) bad |= in_a_process(usual[i]);
    double folded_s = 1, unfolded_s = 1;
    printf("ring all_reduce of 1 GiB over 1,024 devices\n");
    bad |= run_ring(false, &folded_s) || run_ring(true, &unfolded_s);
    printf("  ASTRA-sim 8.27 s: %.0f and %.0f times as long; SimGrid 26.1 s: %.0f and %.0f\n",
           8.27 / folded_s, 8.27 / unfolded_s, 26.1 / folded_s, 26.1 / unfolded_s);
    return bad;
}
