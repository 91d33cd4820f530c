/* How many op instances a second the engine executes, on one core.
 *
 * The program is data parallel over 64 GPUs behind a switch, unfolded (every device a class of its
 * own), so it has layers × 64 × 7 instances: matmul, relu, and backward relu_grad, two matmuls, an
 * all_reduce that overlaps them, and its consumer. Planning is not counted; ds_engine_run is.
 * Instructions come from the processor's counter where the kernel gives it; else from callgrind
 * (valgrind --tool=callgrind --toggle-collect=ds_engine_run on this program with --once). */
#define _GNU_SOURCE
#include "ir/lang/lang.h"
#include "ir/verify/verify.h"
#include "sim/run/run.h"
#include "tools/bench/counter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char program[] =
    "dir 1\n"
    "param layers = 2600, width = 1024, batch = 65536\n"
    "topology @cluster {\n"
    "  device gpu[64] : \"A100-SXM4-80GB\"\n"
    "  switch fabric\n"
    "  link gpu[i] -- fabric : 100 GB/s, 1 us for i in 0..64\n"
    "}\n"
    "mesh @m = [dp = 64] on @cluster\n"
    "func @step(%x: f32[batch@dp, width] on @m, %t: f32[batch@dp, width] on @m,\n"
    "           %w{l: 0..layers}: f32[width, width] on @m) -> {l: 0..layers} f32[width, width] on "
    "@m {\n"
    "  %y, %ins, %outs = for l in 0..layers carry (%h = %x) {\n"
    "    %z = matmul(%h, %w{l})\n"
    "    %a = relu(%z)\n"
    "    yield %a keep %h, %a\n"
    "  }\n"
    "  %dy = mse_grad(%y, %t)\n"
    "  %dx, %grads = for r in 0..layers carry (%d = %dy) {\n"
    "    %dz = relu_grad(%d, %outs{layers - 1 - r})\n"
    "    %dw = einsum(%ins{layers - 1 - r}, %dz) {rule = \"b k, b n -> k n\"}\n"
    "    %g = all_reduce(%dw) over dp {algorithm = \"ring\"}\n"
    "    %u = scale(%g) {factor = 0.1}\n"
    "    %dh = matmul(%dz, %w{layers - 1 - r}) {transpose_b = true}\n"
    "    yield %dh keep %u\n"
    "  }\n"
    "  return %grads\n"
    "}\n"
    "scenario { program = @step }\n";

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Runs this program once more, smaller, under callgrind; 0 if there is no valgrind to count. */
static double instructions_by_callgrind(const char *self) {
    char command[1024], line[256];
    snprintf(command, sizeof command,
             "valgrind --tool=callgrind --callgrind-out-file=/dev/null "
             "--toggle-collect=ds_engine_run '%s' --once 100 2>&1",
             self);
    FILE *pipe = popen(command, "r");
    double collected = 0, instances = 0;
    while (pipe && fgets(line, sizeof line, pipe)) {
        const char *found = strstr(line, "Collected :");
        if (found) collected = strtod(found + 11, NULL);
        if (strncmp(line, "instances ", 10) == 0) instances = strtod(line + 10, NULL);
    }
    if (pipe) pclose(pipe);
    return instances > 0 ? collected / instances : 0;
}

static int fail(const ds_error *err, const ds_diags *diags) {
    fprintf(stderr, "%s\n", err->message);
    for (uint32_t i = 0; i < diags->all.n; i++)
        fprintf(stderr, "%u: %s\n", diags->all.at[i].loc.line, diags->all.at[i].message);
    return 1;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void measure(const ds_plan *plan, const char *self) {
    enum { RUNS = 7 };
    double times[RUNS];
    uint64_t instructions = 0;
    int counter = bench_open_counter();
    for (int i = 0; i < RUNS; i++) {
        ds_run run;
        ds_error err;
        uint64_t before = bench_read_counter(counter);
        double start = seconds();
        if (ds_engine_run(plan, NULL, NULL, &run, &err) != DS_OK) return;
        times[i] = seconds() - start;
        instructions = bench_read_counter(counter) - before;
        ds_run_deinit(&run);
    }
    qsort(times, RUNS, sizeof *times, by_value);
    double n = plan->n_tasks;
    printf("engine: %u op instances on %u devices (%u classes), %u transfers\n", plan->n_tasks,
           plan->n_devices, plan->n_classes, plan->n_activities);
    printf("        %.2f million op instances a second (median of %d runs; slowest %.2f, fastest "
           "%.2f)\n",
           n / times[RUNS / 2] * 1e-6, RUNS, n / times[RUNS - 1] * 1e-6, n / times[0] * 1e-6);
    double an_instance = instructions ? (double)instructions / n : instructions_by_callgrind(self);
    if (an_instance > 0)
        printf("        %.0f instructions an instance (%s)\n", an_instance,
               instructions ? "processor's counter" : "callgrind, 100 layers");
    else
        printf(
            "        instructions are not counted: neither a processor's counter nor valgrind\n");
    if (counter >= 0) close(counter);
}

int main(int argc, char **argv) {
    bool once = argc > 2 && strcmp(argv[1], "--once") == 0;
    ds_setting layers = {"layers", once ? argv[2] : "2600"};
    ds_unit *unit = NULL;
    ds_binding binding;
    ds_profiles *profiles = NULL;
    ds_plan *plan = NULL;
    ds_error err = {0};
    ds_diags diags;
    ds_diags_init(&diags);
    ds_plan_options options = {.unfold = true};
    ds_status status = ds_load_text("bench.dir", program, sizeof program - 1, NULL, &unit, &err);
    if (status == DS_OK) status = ds_verify(unit, &diags);
    if (status == DS_OK) status = ds_bind(unit, &layers, 1, &binding, &err);
    if (status == DS_OK) status = ds_profiles_load(NULL, &profiles, &err);
    double start = seconds();
    if (status == DS_OK) status = ds_plan_build(&binding, profiles, &options, &plan, &err);
    double planned = seconds() - start;
    if (status != DS_OK) return fail(&err, &diags);
    if (once) {
        ds_run run;
        if (ds_engine_run(plan, NULL, NULL, &run, &err) == DS_OK) ds_run_deinit(&run);
        printf("instances %u\n", plan->n_tasks);
    } else {
        printf("plan:   %.2f million tasks a second\n", plan->n_tasks / planned * 1e-6);
        measure(plan, argv[0]);
    }
    ds_plan_free(plan);
    ds_profiles_free(profiles);
    ds_diags_deinit(&diags);
    ds_unit_free(unit);
    return 0;
}
