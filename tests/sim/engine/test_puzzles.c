/* The eight LLM Training Puzzles (lessons 17 to 24): time and memory by hand from the puzzles'
 * rules, the published targets, and what the puzzles' checker asks for: every layer updated once,
 * with the gradient of all batches, which holds if the weights are those of one rank that does all
 * at once.
 *
 * Units: one step = 1 us, W = 512 * 512 a weight, its state or its gradient, A = 512 * 256 the
 * activations of one batch. The puzzles' score is when the last event, an update, starts. Published
 * are whole steps and one decimal of a million, some rounded, some cut. Source:
 * scenarios/puzzles/README.md. */
#include "tests/support/exec.h"
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TENTH  INT64_C(100000) /* of a step, in ps */
#define UPDATE (5 * TENTH)
#define W      INT64_C(262144)
#define A      INT64_C(131072)

typedef struct puzzle {
    const char *name;
    int layers;
    int64_t score_tenths, peak_bytes; /* by the rules */
    int64_t target_steps, target_bytes;
} puzzle;

/* Each sum of bytes: weights and states; gathered weight; gradients; activations and theirs. */
static const puzzle puzzles[] = {
    {"17-puzzle-standard", 2, 165, 4 * W + 12 * A, 17, 2600000}, /* loss: x0 x1 x2, 4 batches */
    {"18-puzzle-accumulation", 2, 165, 4 * W + 2 * W + 3 * A, 17, 2000000},
    {"19-puzzle-ddp", 2, 51, 4 * W + 2 * W + 2 * A, 5, 1800000}, /* first all_reduce; y, dx0 */
    {"20-puzzle-sharded-weights", 6, 199, 3 * W + W + 5 * W + 3 * A, 20,
     2800000},                                                      /* last backward; y, x0, dx1 */
    {"21-puzzle-fsdp", 6, 199, 3 * W + W + W + 8 * A, 20, 2300000}, /* first reduce_scatter */
    {"22-puzzle-pipeline", 8, 669, 4 * W + 16 * A, 66, 3300000}, /* first backward of each rank */
    {"23-puzzle-gpipe", 8, 333, 4 * W + 8 * W + 8 * A, 33, 4100000}, /* last send; 4 y, 4 dx */
    {"24-puzzle-pipeline-fsdp", 4, 155, 8 * W / 16 + W + W + 3 * W / 16 + 2 * A, 15, 1000000},
};
#define N_PUZZLES (sizeof puzzles / sizeof *puzzles)

static void run(sim_case *c, const puzzle *p) {
    char file[96];
    snprintf(file, sizeof file, "scenarios/lessons/%s/solution.dir", p->name);
    sim_run_file(c, file, NULL, false);
    cr_assert_eq(c->status, DS_OK, "%s", p->name);
}

static bool is_update(const ds_plan *plan, uint32_t task) {
    ds_buf path = {0};
    ds_plan_path(plan, plan->task_inst[task], &path);
    const char *slash = strrchr(path.text, '/');
    bool found = slash && strcmp(slash, "/update") == 0;
    ds_buf_deinit(&path);
    return found;
}

static int64_t peak_of(const ds_result *r) {
    int64_t most = 0;
    for (uint32_t k = 0; k < r->mem.n_classes; k++)
        if (r->mem.classes[k].peak_bytes > most) most = r->mem.classes[k].peak_bytes;
    return most;
}

Test(puzzles, time_and_memory_are_those_of_the_rules) {
    for (size_t i = 0; i < N_PUZZLES; i++) {
        const puzzle *p = &puzzles[i];
        sim_case c;
        run(&c, p);
        int64_t score_ps = 0;
        for (uint32_t t = 0; t < c.result->plan->n_tasks; t++)
            if (is_update(c.result->plan, t) && c.result->run.start_ps[t] > score_ps)
                score_ps = c.result->run.start_ps[t];
        cr_expect_eq(score_ps, p->score_tenths * TENTH, "%s: score %lld ps", p->name,
                     (long long)score_ps);
        cr_expect_eq(c.result->run.step_ps, score_ps + UPDATE, "%s", p->name);
        cr_expect_eq(peak_of(c.result), p->peak_bytes, "%s: peak %lld", p->name,
                     (long long)peak_of(c.result));
        sim_free(&c);
    }
}

/* Less than a step and less than 0.1 million from the target, but for puzzle 5: there every tensor
 * is of W or of four batches, so that a peak is a multiple of W, and 3.3 million lies between two.
 */
Test(puzzles, published_targets_are_met) {
    for (size_t i = 0; i < N_PUZZLES; i++) {
        const puzzle *p = &puzzles[i];
        cr_expect_lt(llabs(p->score_tenths - 10 * p->target_steps), 10, "%s", p->name);
        int64_t off = llabs(p->peak_bytes - p->target_bytes);
        if (strcmp(p->name, "22-puzzle-pipeline") != 0) {
            cr_expect_lt(off, 100000, "%s", p->name);
            continue;
        }
        cr_expect_eq(p->peak_bytes % W, 0);
        cr_expect_lt(p->peak_bytes, p->target_bytes);
        cr_expect_gt(p->peak_bytes + W, p->target_bytes + 100000);
    }
}

/* ---- times by hand ---- */

/* In tenths: forward and backward 10 a batch, update 5, a collective 3, each end of a pass 2. */
static int64_t score_of(const char *name) {
    for (size_t i = 0; i < N_PUZZLES; i++)
        if (strcmp(puzzles[i].name, name) == 0) return puzzles[i].score_tenths;
    cr_assert_fail("%s", name);
    return 0;
}

Test(puzzles, scores_by_hand_of_one_rank_or_equal_ones) {
    cr_expect_eq(score_of("17-puzzle-standard"), 2 * 40 + 2 * 40 + 5);
    cr_expect_eq(score_of("18-puzzle-accumulation"), 4 * (2 * 10 + 2 * 10) + 5);
    cr_expect_eq(score_of("19-puzzle-ddp"), 2 * 10 + 2 * 10 + (3 + 5) + 3);
    cr_expect_eq(score_of("20-puzzle-sharded-weights"),
                 6 * (3 + 10) + 6 * (3 + 10) + 5 * (3 + 5) + 3);
    cr_expect_eq(score_of("21-puzzle-fsdp"), 6 * (3 + 10) + 6 * (3 + 10 + 3) + 5 * 5);
}

static int64_t later(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* Four ranks with two layers each, `n` turns of `size` batches; when the last update starts. */
static int64_t pipeline(int n, int size) {
    int64_t clock[4] = {0}, sent[4], end = 0;
    int work = 2 * 10 * size;
    for (int b = 0; b < n; b++)
        for (int r = 0; r < 4; r++) {
            if (r > 0) clock[r] = later(clock[r], sent[r - 1]) + 2;
            clock[r] += work + (r < 3 ? 2 : 0);
            sent[r] = clock[r];
        }
    for (int b = 0; b < n; b++)
        for (int r = 3; r >= 0; r--) {
            if (r < 3) clock[r] = later(clock[r], sent[r + 1]) + 2;
            clock[r] += work + (r > 0 ? 2 : 0);
            sent[r] = clock[r];
        }
    for (int r = 0; r < 4; r++) end = later(end, clock[r] + 5);
    return end;
}

Test(puzzles, scores_by_hand_of_pipelines) {
    cr_expect_eq(score_of("22-puzzle-pipeline"), pipeline(1, 4));
    cr_expect_eq(score_of("23-puzzle-gpipe"), pipeline(4, 1));
    /* one rank after another: gather, forward, pass; gather, backward, deal out, pass */
    cr_expect_eq(score_of("24-puzzle-pipeline-fsdp"),
                 4 * (3 + 10) + 3 * 4 + 4 * (3 + 10 + 3) + 3 * 4 + 3 * 5);
}

/* ---- each rank ---- */

static void expect_peaks(const puzzle *p, const int64_t want[4]) {
    sim_case c;
    run(&c, p);
    cr_assert_eq(c.result->mem.n_classes, 4);
    for (uint32_t k = 0; k < 4; k++)
        cr_expect_eq(c.result->mem.classes[k].peak_bytes, want[k], "%s, rank %u: %lld", p->name, k,
                     (long long)c.result->mem.classes[k].peak_bytes);
    sim_free(&c);
}

/* Puzzle 6: the first rank does not send, so that its most is one gradient, W, less, with x and the
 * gradient of its second activation in their place. Puzzle 7: a rank whose turn to deal out comes
 * later has the parts of more gradients. */
Test(puzzles, what_each_rank_holds) {
    const int64_t p6[] = {4 * W + 7 * W + 9 * A, 12 * W + 8 * A, 12 * W + 8 * A, 12 * W + 8 * A};
    expect_peaks(&puzzles[6], p6);
    int64_t p7[4];
    for (int l = 0; l < 4; l++) p7[l] = W / 2 + 2 * W + 2 * A + (3 - l) * W / 16;
    expect_peaks(&puzzles[7], p7);
}

/* ---- the same model ---- */

/* The name that layer l's new weight (or state) has among the results. */
static void name_of(const puzzle *p, char kind, int l, char *name, size_t size) {
    if (p->layers == 8 && l < 6)
        snprintf(name, size, "%c%d.new{%d}", kind, l % 2, l / 2);
    else if (p->layers == 8 || strcmp(p->name, "18-puzzle-accumulation") == 0 ||
             (p->layers == 4 && l == 3))
        snprintf(name, size, "%c%d", kind, l);
    else
        snprintf(name, size, "%c.new{%d}", kind, l);
}

static void expect_equal(const exec_case *one, const exec_case *many, const puzzle *p, char kind,
                         int l) {
    char whole[32], name[32];
    snprintf(whole, sizeof whole, "%c.new{%d}", kind, l);
    name_of(p, kind, l, name, sizeof name);
    const ds_exec_tensor *a = exec_output(one, whole), *b = exec_output(many, name);
    cr_assert_eq(a->n, b->n);
    double most = 0, difference = 0;
    for (int64_t i = 0; i < a->n; i++) {
        most = fmax(most, fabs(a->at[i]));
        difference = fmax(difference, fabs(a->at[i] - b->at[i]));
    }
    cr_expect(most > 0 && difference <= DS_EXEC_BOUND * most, "%s: %s differs by %g of %g", p->name,
              name, difference, most);
}

Test(puzzles, every_solution_trains_the_same_model) {
    for (size_t i = 1; i < N_PUZZLES; i++) {
        const puzzle *p = &puzzles[i];
        char file[96], settings[64];
        snprintf(file, sizeof file, "scenarios/lessons/%s/solution.dir", p->name);
        snprintf(settings, sizeof settings, "hidden=32 length=4 layers=%d", p->layers);
        exec_case one, many;
        exec_file(&one, "scenarios/lessons/17-puzzle-standard/solution.dir", settings);
        exec_file(&many, file, "hidden=32 length=4");
        cr_assert_eq(one.status, DS_OK);
        cr_assert_eq(many.status, DS_OK, "%s", p->name);
        for (int l = 0; l < p->layers; l++) {
            expect_equal(&one, &many, p, 'w', l);
            expect_equal(&one, &many, p, 'm', l);
        }
        exec_free(&one);
        exec_free(&many);
    }
}
