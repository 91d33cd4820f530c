/* What a candidate of a sweep costs by simulation and put together from templates: random
 * strategies of GPT-3 175B on 1,024 GPUs with 1,536 samples a step (scenarios/gpt3-175b-pp8.dir has
 * the model). CPU time of one thread; costs of collectives are kept from candidate to candidate, as
 * a sweep's workers do. Both results are compared. Arguments: how many candidates (12), the seed of
 * the draw (1). */
#define _GNU_SOURCE
#include "search/compose/compose.h"
#include "ir/base/rng.h"
#include "ir/lang/lang.h"
#include "ir/verify/verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WORLD = 1024, SAMPLES = 1536, N_SETTINGS = 8 };

typedef struct candidate {
    char text[N_SETTINGS][24];
    ds_setting settings[N_SETTINGS];
} candidate;

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Powers of two: tp inside a node, pp over a divisor of 96 layers, the rest dp. */
static void draw(ds_rng *rng, candidate *c) {
    static const char *const names[N_SETTINGS] = {
        "tp", "pp", "dp", "microbatches", "recompute", "schedule", "virtual_stages", "gpt.batch"};
    static const char *const recomputes[] = {"none", "selective", "full"};
    int tp = 1 << ds_rng_below(rng, 4), pp = 1 << (1 + ds_rng_below(rng, 5)), dp = WORLD / tp / pp;
    int per_replica = SAMPLES / dp > 0 ? SAMPLES / dp : 1, m = per_replica;
    if (m % 2 == 0 && ds_rng_below(rng, 2)) m /= 2;
    const int numbers[] = {tp, pp, dp, m};
    for (int i = 0; i < 4; i++) snprintf(c->text[i], sizeof c->text[i], "%d", numbers[i]);
    snprintf(c->text[4], sizeof c->text[4], "%s", recomputes[ds_rng_below(rng, 3)]);
    snprintf(c->text[5], sizeof c->text[5], "1f1b");
    snprintf(c->text[6], sizeof c->text[6], "1");
    snprintf(c->text[7], sizeof c->text[7], "%d", dp * per_replica);
    for (int i = 0; i < N_SETTINGS; i++) c->settings[i] = (ds_setting){names[i], c->text[i]};
}

typedef struct bench {
    ds_unit *unit;
    ds_profiles *profiles;
    ds_plan_ground *grounds[2]; /* of either side */
    ds_composer *composer;
    double composed_s, simulated_s;
    int n, known;
} bench;

static ds_status load(bench *b, ds_error *err) {
    static const char *const include[] = {DS_SOURCE_DIR "/scenarios"};
    const ds_load_options options = {.include_dirs = include, .n_include_dirs = 1};
    ds_diags diags;
    ds_diags_init(&diags);
    ds_status status =
        ds_load_file(DS_SOURCE_DIR "/scenarios/gpt3-175b-pp8.dir", &options, &b->unit, err);
    if (status == DS_OK) status = ds_verify(b->unit, &diags);
    if (status == DS_OK) status = ds_profiles_load(NULL, &b->profiles, err);
    ds_diags_deinit(&diags);
    return status;
}

static ds_status measure(bench *b, const candidate *c, ds_error *err) {
    ds_binding binding;
    ds_composed composed;
    ds_result *result;
    const char *why;
    ds_sim_options options = {.cost_mode = DS_COST_FITTED, .trust_passes = true};
    DS_TRY(ds_bind(b->unit, c->settings, N_SETTINGS, &binding, err));
    DS_TRY(ds_sim_options_read(&binding, &options, err));
    options.cost_mode = DS_COST_FITTED;
    options.ground = b->grounds[0];
    double start_s = seconds();
    DS_TRY(ds_composer_run(b->composer, &binding, &options, &composed, &why, err));
    double middle_s = seconds();
    options.ground = b->grounds[1];
    DS_TRY(ds_simulate(&binding, b->profiles, &options, &result, err));
    double end_s = seconds();
    bool same = !why && composed.metrics.step_ps == result->run.step_ps &&
                composed.metrics.peak_bytes == result->metrics.peak_bytes;
    printf("tp %s, pp %2s, dp %3s, %3s microbatches, recompute %-9s %9.1f ms %9.1f ms  %s\n",
           c->text[0], c->text[1], c->text[2], c->text[3], c->text[4], 1e3 * (middle_s - start_s),
           1e3 * (end_s - middle_s),
           why    ? why
           : same ? "equal"
                  : "DIFFERENT");
    fflush(stdout);
    b->composed_s += middle_s - start_s;
    b->simulated_s += end_s - middle_s;
    b->n++;
    b->known += same;
    if (!why) ds_composed_deinit(&composed);
    ds_result_free(result);
    return DS_OK;
}

int main(int argc, char **argv) {
    bench b = {.grounds = {ds_plan_ground_new(), ds_plan_ground_new()}};
    int n = argc > 1 ? atoi(argv[1]) : 12;
    ds_rng rng = {argc > 2 ? strtoull(argv[2], NULL, 10) : 1};
    ds_error err;
    ds_status status = load(&b, &err);
    if (status == DS_OK) b.composer = ds_composer_new(b.profiles);
    printf("%-62s%12s%13s\n", "", "composed", "simulated");
    for (int i = 0; i < n && status == DS_OK; i++) {
        candidate c;
        draw(&rng, &c);
        if (measure(&b, &c, &err) != DS_OK)
            printf("tp %s, pp %s, dp %s: %s\n", c.text[0], c.text[1], c.text[2], err.message);
    }
    if (status != DS_OK) fprintf(stderr, "%s\n", err.message);
    if (b.n)
        printf("%d of %d equal: %.1f and %.1f candidates a second\n", b.known, b.n,
               b.n / b.composed_s, b.n / b.simulated_s);
    ds_composer_free(b.composer);
    for (int i = 0; i < 2; i++) ds_plan_ground_free(b.grounds[i]);
    ds_profiles_free(b.profiles);
    ds_unit_free(b.unit);
    return status != DS_OK;
}
