/* What random candidates of a sweep cost that nothing rejects beforehand: by default of GPT-3 175B
 * on 4,096 GPUs (scenarios/sweeps/gpt3-175b-4096.dir), hard ones, since no two of them are alike.
 * Evaluators are those of a sweep, one a thread; candidates that lack memory by its lower bound are
 * not counted. They are drawn by a seed, so that two builds are compared by the same list.
 *
 *   bench_candidates [candidates (300)] [threads (1)] [seed (1)] [sweep file] [rows.tsv]
 *
 * rows.tsv gets a line a candidate: its draw, verdict, step, exposed communication, peak, hash,
 * processor time, values. */
#define _GNU_SOURCE
#include "ir/verify/verify.h"
#include "search/driver/reject.h"
#include "search/methods/method.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SWEEP DS_SOURCE_DIR "/scenarios/sweeps/gpt3-175b-4096.dir"
#define DRAWS 40 /* at most, for each candidate that is wanted */

typedef struct row {
    ds_candidate candidate;
    ds_outcome outcome;
    double ms;
} row;

typedef struct bench {
    ds_unit *unit;
    ds_binding binding;
    ds_profiles *profiles;
    ds_space *space;
    ds_eval_source source;
    ds_arena arena;
    row *rows;
    uint32_t n_rows;
    uint32_t wanted;
    atomic_uint next, n_simulated;
} bench;

static double seconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static ds_status load(bench *b, const char *path, uint64_t seed, ds_error *err) {
    ds_diags diags;
    ds_diags_init(&diags);
    ds_status status = ds_load_file(path, &b->source.load, &b->unit, err);
    if (status == DS_OK) status = ds_verify(b->unit, &diags);
    ds_diags_deinit(&diags);
    DS_TRY(status);
    DS_TRY(ds_profiles_load(NULL, &b->profiles, err));
    DS_TRY(ds_bind(b->unit, NULL, 0, &b->binding, err));
    DS_TRY(ds_space_new(&b->binding, NULL, 0, &b->space, err));
    b->source.path = path;
    b->source.space = b->space;
    b->source.profiles = b->profiles;
    b->source.content = ds_eval_content(b->unit, b->profiles);
    b->rows = ds_xcalloc((size_t)b->wanted * DRAWS + 1, sizeof *b->rows);
    ds_method *method = ds_random_new(b->space, seed, 0);
    for (bool found = true; status == DS_OK && b->n_rows < b->wanted * DRAWS; b->n_rows++) {
        row *r = &b->rows[b->n_rows];
        r->candidate = ds_candidate_new(b->space, &b->arena);
        status = method->next(method, &r->candidate, &found, err);
        if (!found) break;
    }
    method->free(method);
    return status;
}

static void *work(void *context) {
    bench *b = context;
    ds_eval *eval;
    ds_error err;
    if (ds_eval_new_memory_first(&b->source, &eval, &err) != DS_OK) {
        fprintf(stderr, "%s\n", err.message);
        return NULL;
    }
    while (b->n_simulated < b->wanted) {
        uint32_t i = b->next++;
        if (i >= b->n_rows) break;
        double start_s = seconds(CLOCK_THREAD_CPUTIME_ID);
        eval->run(eval, &b->rows[i].candidate, &b->rows[i].outcome);
        b->rows[i].ms = 1e3 * (seconds(CLOCK_THREAD_CPUTIME_ID) - start_s);
        if (!b->rows[i].outcome.unsimulated) b->n_simulated++;
    }
    eval->free(eval);
    return NULL;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void write_row(const bench *b, const row *r, FILE *f) {
    const ds_outcome *o = &r->outcome;
    ds_buf text = {0};
    for (uint32_t d = 0; d < ds_space_n_dims(b->space); d++) {
        ds_buf_printf(&text, "\t%s=", ds_space_dim_name(b->space, d));
        ds_space_put_value(b->space, &r->candidate, d, &text);
    }
    fprintf(f, "%" PRIu64 "\t%s\t%" PRId64 "\t%" PRId64 "\t%" PRId64 "\t%016" PRIx64 "\t%.3f%s\n",
            r->candidate.number, ds_verdict_text(o->verdict), o->metrics.step_ps,
            o->metrics.exposed_comm_ps, o->metrics.peak_bytes, o->hash, r->ms, text.text);
    ds_buf_deinit(&text);
}

static void report(bench *b, uint32_t n_threads, double wall_s, FILE *f) {
    double *ms = ds_xmalloc(((size_t)b->n_rows + 1) * sizeof *ms), sum = 0, rest = 0;
    uint32_t n = 0, n_all = 0, count[DS_VERDICT_COUNT] = {0};
    for (uint32_t i = 0; i < b->n_rows; i++) {
        const row *r = &b->rows[i];
        if (!r->outcome.hash) continue; /* nobody has come to it */
        n_all++;
        if (r->outcome.unsimulated) {
            rest += r->ms;
            continue;
        }
        count[r->outcome.verdict]++;
        ms[n++] = r->ms;
        sum += r->ms;
        if (f) write_row(b, r, f);
    }
    if (!n) n = 1, ms[0] = 0;
    qsort(ms, n, sizeof *ms, by_value);
    printf("%u candidates of %u that were drawn: %u fit, %u do not, %u illegal, %u failed\n", n,
           n_all, count[DS_VERDICT_OK], count[DS_VERDICT_DOES_NOT_FIT], count[DS_VERDICT_ILLEGAL],
           count[DS_VERDICT_FAILED]);
    printf(
        "%.2f ms of processor time each (median %.2f, 90 %% %.2f, 99 %% %.2f, most %.2f); %.1f us "
        "for each that is rejected\n",
        sum / n, ms[n / 2], ms[(size_t)n * 9 / 10], ms[(size_t)n * 99 / 100], ms[n - 1],
        n_all > n ? 1e3 * rest / (n_all - n) : 0);
    printf("%.1f a second on %u thread%s by the clock, start-up included (%.2f s)\n", n / wall_s,
           n_threads, n_threads > 1 ? "s" : "", wall_s);
    free(ms);
}

int main(int argc, char **argv) {
    static const char *const include[] = {DS_SOURCE_DIR "/scenarios"};
    bench b = {.wanted = argc > 1 ? (uint32_t)atoi(argv[1]) : 300};
    uint32_t n_threads = argc > 2 ? (uint32_t)atoi(argv[2]) : 1;
    ds_error err;
    b.source.load = (ds_load_options){.include_dirs = include, .n_include_dirs = 1};
    ds_arena_init(&b.arena);
    if (n_threads > 64) n_threads = 64;
    if (load(&b, argc > 4 && *argv[4] ? argv[4] : SWEEP, argc > 3 ? strtoull(argv[3], NULL, 10) : 1,
             &err) != DS_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    double start_s = seconds(CLOCK_MONOTONIC);
    pthread_t threads[64];
    for (uint32_t i = 0; i < n_threads; i++) pthread_create(&threads[i], NULL, work, &b);
    for (uint32_t i = 0; i < n_threads; i++) pthread_join(threads[i], NULL);
    double wall_s = seconds(CLOCK_MONOTONIC) - start_s;
    FILE *f = argc > 5 ? fopen(argv[5], "w") : NULL;
    report(&b, n_threads, wall_s, f);
    if (f) fclose(f);
    for (uint32_t i = 0; i < b.n_rows; i++) ds_outcome_deinit(&b.rows[i].outcome);
    free(b.rows);
    ds_space_free(b.space);
    ds_profiles_free(b.profiles);
    ds_unit_free(b.unit);
    ds_arena_deinit(&b.arena);
    return 0;
}
