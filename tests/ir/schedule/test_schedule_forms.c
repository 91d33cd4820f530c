/* Closed forms of bubbles and of microbatches in flight, as published (sources: the table in
 * ir/schedule/schedules.def), over their whole ranges for p ≤ 16. All numbers are exact integers. A
 * bubble is a rank's last end − first start − busy time, the largest of all ranks; communication is
 * free. B is the time of the input gradient. */
#include "tests/support/schedule.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef ds_schedule_durations times;

/* Ratios of F : B : W, of about the sizes that occur and well beyond. */
static const times ratios[] = {
    {1, 1, 1, 0},    {1, 2, 0, 0},  {2, 3, 1, 0},   {3, 2, 2, 0},
    {7, 5, 4, 0},    {5, 7, 5, 0},  {10, 13, 9, 0}, {100, 90, 89, 0},
    {1000, 1, 1, 0}, {1, 50, 1, 0}, {3, 3, 4, 0},   {123457, 131071, 99991, 0},
};
enum { N_RATIOS = sizeof ratios / sizeof *ratios };

static int64_t most(int64_t a, int64_t b) {
    return a > b ? a : b;
}
static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Microbatches to try with p stages: around the thresholds of the forms, and many. */
static uint32_t some_microbatches(int64_t p, int64_t out[8]) {
    int64_t all[] = {1, p - 1, p, p + 1, 2 * p - 1, 2 * p, 3 * p + 1, 5 * p};
    for (int i = 0; i < 8; i++) out[i] = all[i];
    return 8;
}

static void expect_bubble(const char *name, int64_t p, int64_t m, int64_t v, times t, int64_t pair,
                          int64_t wanted) {
    int64_t got = schedule_bubble(name, p, m, v, t, pair);
    cr_expect_eq(got, wanted,
                 "%s p=%" PRId64 " m=%" PRId64 " v=%" PRId64 " F=%" PRId64 " B=%" PRId64
                 " W=%" PRId64 " F&B=%" PRId64 ": bubble %" PRId64 ", wanted %" PRId64,
                 name, p, m, v, t.f, t.b, t.w, pair, got, wanted);
}

Test(forms, one_forward_one_backward_wait_p_minus_1_times_all) {
    static const char *names[] = {"gpipe", "1f1b", "eager-1f1b"};
    for (int i = 0; i < 3; i++)
        for (int64_t p = 1; p <= 16; p++) {
            int64_t m[8];
            for (uint32_t k = 0, n = some_microbatches(p, m); k < n; k++)
                for (int r = 0; r < N_RATIOS && m[k] > 0; r++) {
                    times t = ratios[r];
                    expect_bubble(names[i], p, m[k], 0, t, 0, (p - 1) * (t.f + t.b + t.w));
                }
        }
}

/* In terms of a chunk, whose F is 1/v of the stage's: (p − 1)(F + B + W). */
Test(forms, chunks_divide_the_bubble) {
    for (int64_t p = 2; p <= 16; p++)
        for (int64_t v = 1; v <= 4; v++)
            for (int64_t groups = 1; groups <= 3; groups++)
                for (int r = 0; r < N_RATIOS; r++) {
                    times t = ratios[r];
                    int64_t wanted = (p - 1) * (t.f + t.b + t.w);
                    expect_bubble("interleaved", p, groups * p, v, t, 0, wanted);
                    expect_bubble("breadth-first", p, groups * p + groups - 1, v, t, 0, wanted);
                }
}

Test(forms, zb_h1_hides_w_once) {
    for (int64_t p = 1; p <= 16; p++)
        for (int64_t m = p; m <= 4 * p; m += most(1, p / 3))
            for (int r = 0; r < N_RATIOS; r++) {
                times t = ratios[r];
                if (t.w > least(t.f, t.b)) continue;
                expect_bubble("zb-h1", p, m, 0, t, 0, (p - 1) * (t.f + t.b - t.w));
            }
}

Test(forms, zb_h2_hides_w_twice) {
    for (int64_t p = 1; p <= 16; p++)
        for (int64_t m = 2 * p - 1; m <= 5 * p; m += most(1, p / 3))
            for (int r = 0; r < N_RATIOS; r++) {
                times t = ratios[r];
                if (t.w > t.f || 2 * t.w > t.f + t.b) continue;
                expect_bubble("zb-h2", p, m, 0, t, 0, (p - 1) * (t.f + t.b - 2 * t.w));
            }
}

Test(forms, zb_v_has_none_with_equal_times) {
    for (int64_t p = 1; p <= 16; p++)
        for (int64_t m = 2 * p - 1; m <= 5 * p; m += most(1, p / 3)) {
            expect_bubble("zb-v", p, m, 0, (times){1, 1, 1, 0}, 0, 0);
            expect_bubble("zb-v", p, m, 0, (times){77, 77, 77, 0}, 0, 0);
        }
}

Test(forms, v_half_halves_the_bubble_of_1f1b_with_equal_times) {
    for (int64_t p = 2; p <= 16; p += 2)
        for (int64_t m = 2 * p; m <= 6 * p; m += p / 2)
            expect_bubble("v-half", p, m, 0, (times){1, 1, 1, 0}, 0, 3 * (p - 1));
}

/* Two thirds of 1F1B's, less or more half an F as p is a multiple of 3 or not. */
Test(forms, v_min_has_two_thirds_of_the_bubble_of_1f1b_with_equal_times) {
    for (int64_t p = 2; p <= 16; p++)
        for (int64_t m = 2 * p; m <= 6 * p; m += most(1, p / 2))
            expect_bubble("v-min", p, m, 0, (times){1, 1, 1, 0}, 0,
                          4 * (p - 1) + (p % 3 == 0 ? 1 : -1));
}

Test(forms, chimera_waits_p_by_2_minus_1_times) {
    for (int64_t p = 2; p <= 16; p += 2)
        for (int64_t units = 1; units <= 4; units++)
            for (int64_t w = 0; w <= 3; w++) {
                times t = {7, 7 - w, w, 0};
                expect_bubble("chimera", p, units * p, 0, t, 0, (p / 2 - 1) * 14);
            }
}

/* One unit with any F and B: 2(p/2 − 1) max(F, whole B). arXiv 2107.06925 counts p − 2 bubbles. */
Test(forms, chimera_one_unit_with_any_times) {
    for (int64_t p = 2; p <= 16; p += 2)
        for (int r = 0; r < N_RATIOS; r++) {
            times t = ratios[r];
            expect_bubble("chimera", p, p, 0, t, 0, (p - 2) * most(t.f, t.b + t.w));
        }
}

Test(forms, hanayo_waves_divide_the_bubble) {
    for (int64_t p = 1; p <= 16; p++)
        for (int64_t waves = 1; waves <= 3; waves++)
            for (int64_t units = 1; units <= 3; units++)
                expect_bubble("hanayo", p, units * p, 2 * waves, (times){3, 2, 1, 0}, 0,
                              (p - 1) * 6);
}

/* ---- DualPipe ---- */

/* DeepSeek's notation: B the whole backward. */
static int64_t deepseek(int64_t p, times t, int64_t pair) {
    return (p / 2 - 1) * (pair + (t.b + t.w) - 3 * t.w);
}

static int64_t idle_of(const char *name, int64_t p, int64_t m, times t, int64_t pair,
                       uint32_t rank) {
    schedule_case c;
    schedule_open(&c, name, p, m, 0, t);
    schedule_time(&c, t, pair, 0);
    int64_t idle = c.timing.makespan - c.timing.ranks[rank].busy;
    schedule_close(&c);
    return idle;
}

static void expect_dual(int64_t p, int64_t m, times t, int64_t pair) {
    int64_t wanted = deepseek(p, t, pair);
    int64_t got = idle_of("dualpipe", p, m, t, pair, (uint32_t)(p / 2 - 1));
    cr_expect_eq(got, wanted,
                 "p=%" PRId64 " m=%" PRId64 " F=B=%" PRId64 " W=%" PRId64 " F&B=%" PRId64
                 ": %" PRId64 ", wanted %" PRId64,
                 p, m, t.f, t.w, pair, got, wanted);
    cr_expect_eq(idle_of("dualpipe", p, m, t, pair, (uint32_t)(p / 2)), wanted);
    /* Folded into a V: half of the ranks, all microbatches through each. */
    got = idle_of("dualpipev", p / 2, m, t, pair, (uint32_t)(p / 2 - 1));
    cr_expect_eq(got, wanted, "dualpipev p=%" PRId64 " m=%" PRId64, p / 2, m);
}

Test(forms, dualpipe_as_deepseek_says_on_the_middle_ranks) {
    for (int64_t p = 2; p <= 16; p += 2)
        for (int64_t m = 2 * p; m <= 4 * p; m += p)
            for (int64_t w = 1; w <= 6; w += 2)
                for (int64_t pair = 6 + w; pair <= 12 + 2 * w; pair += 3)
                    expect_dual(p, m, (times){6, 6, w, 0}, pair);
}

/* Without overlap, F&B = F + B + W, it is the largest span bubble of all ranks as well. */
Test(forms, dualpipe_as_deepseek_says_without_overlap) {
    for (int64_t p = 2; p <= 16; p += 2)
        for (int64_t m = 2 * p; m <= 4 * p; m += p)
            for (int64_t w = 1; w <= 6; w++) {
                times t = {6, 6, w, 0};
                expect_bubble("dualpipe", p, m, 0, t, 12 + w, deepseek(p, t, 12 + w));
                expect_bubble("dualpipev", p / 2, m, 0, t, 12 + w, deepseek(p, t, 12 + w));
            }
}

/* ---- in flight ---- */

static uint32_t in_flight(const char *name, int64_t p, int64_t m, int64_t v, uint32_t rank) {
    schedule_case c;
    schedule_open(&c, name, p, m, v, (times){1, 1, 1, 0});
    schedule_time(&c, (times){1, 1, 1, 0}, 0, 0);
    uint32_t peak = rank == UINT32_MAX ? c.timing.peak : c.timing.ranks[rank].peak;
    schedule_close(&c);
    return peak;
}

Test(in_flight, on_each_rank) {
    for (int64_t p = 2; p <= 16; p++)
        for (int64_t m = 1; m <= 4 * p; m += p / 2)
            for (uint32_t r = 0; r < p; r++) {
                cr_expect_eq(in_flight("gpipe", p, m, 0, r), m);
                cr_expect_eq(in_flight("1f1b", p, m, 0, r), least(m, p - r));
                cr_expect_eq(in_flight("eager-1f1b", p, m, 0, r), least(m, 2 * (p - r) - 1));
                cr_expect_eq(in_flight("zb-h1", p, m, 0, r), least(m, p));
                cr_expect_eq(in_flight("zb-h2", p, m, 0, r), least(m, 2 * p - 1));
            }
}

/* Of chunks. A V schedule has two on a rank: 2p of them are p stages' worth. */
Test(in_flight, at_most) {
    for (int64_t p = 2; p <= 16; p++) {
        for (int64_t v = 2; v <= 4; v++) {
            cr_expect_eq(in_flight("interleaved", p, 4 * p, v, UINT32_MAX), p * v + p - 1);
            cr_expect_eq(in_flight("breadth-first", p, 3 * p, v, UINT32_MAX), 3 * p * v);
        }
        cr_expect_eq(in_flight("zb-v", p, 4 * p, 0, UINT32_MAX), 2 * p);
        cr_expect_eq(in_flight("dualpipev", p, 4 * p, 0, UINT32_MAX), 2 * p + 1);
        cr_expect_leq(in_flight("v-half", p, 6 * p, 0, UINT32_MAX), p + 2);
        cr_expect_leq(3 * in_flight("v-min", p, 6 * p, 0, UINT32_MAX), 2 * p + 8);
        for (int64_t waves = 1; waves <= 2; waves++)
            cr_expect_leq(in_flight("hanayo", p, 4 * p, 2 * waves, UINT32_MAX), 2 * waves * p);
        if (p % 2) continue;
        cr_expect_eq(in_flight("dualpipe", p, 4 * p, 0, UINT32_MAX), p + 1);
        cr_expect_eq(in_flight("chimera", p, 4 * p, 0, UINT32_MAX), p);
    }
}

/* ---- the zero-bubble repository's table ---- */

typedef struct fraction {
    int64_t over, under;
} fraction;

/* "0", "B", "B/3", "2B/3 + …", "1/2", "2": the factor of B, or the number. */
static fraction read_fraction(const char *text) {
    fraction f = {1, 1};
    int n = 0;
    if (sscanf(text, "%" SCNd64 "%n", &f.over, &n) == 1) text += n;
    if (*text == 'B') text++;
    if (*text == '/') sscanf(text + 1, "%" SCNd64, &f.under);
    return f;
}

/* Items that get something from another rank, of `microbatches`. */
static int64_t transfers(const schedule_case *c) {
    int64_t n = 0;
    for (uint32_t chunk = 1; chunk < c->index.n_chunks; chunk++)
        n += 2 * (c->index.stage[chunk] != c->index.stage[chunk - 1]);
    return n * c->index.n_microbatches;
}

static void check_row(const char *name, fraction rate, fraction memory, int64_t volume) {
    bool overhead = strcmp(name, "v-min") == 0; /* of the smallest order: half an F */
    for (int64_t p = 2; p <= 16; p += 2) {
        times t = {1, 1, 1, 0};
        schedule_case c, base;
        schedule_open(&c, name, p, 6 * p, 0, t);
        schedule_open(&base, "1f1b", p, 6 * p, 0, t);
        schedule_time(&c, t, 0, 0);
        schedule_time(&base, t, 0, 0);
        int64_t v = c.index.n_chunks / p; /* chunks take 1/v of a stage's time */
        int64_t off = c.timing.bubble * rate.under - base.timing.bubble * v * rate.over;
        cr_expect_leq(off < 0 ? -off : off, overhead ? rate.under : 0, "%s p=%" PRId64, name, p);
        /* Memory is stated for many stages: at most two more stages' worth. */
        int64_t more = c.timing.peak * memory.under - base.timing.peak * v * memory.over;
        cr_expect_leq(more, 2 * v * memory.under, "%s p=%" PRId64, name, p);
        cr_expect_geq(more, -v * memory.under, "%s p=%" PRId64, name, p);
        cr_expect_eq(transfers(&c), volume * transfers(&base));
        schedule_close(&c);
        schedule_close(&base);
    }
}

/* tests/data/schedules_zero_bubble.csv: bubble rate, memory and volume relative to 1F1B, at
 * F = B = W. B is 1F1B's bubble (p − 1)/(m + p − 1) of its makespan, so rates compare bubbles. */
Test(forms, zero_bubble_table) {
    static const char *const names[][2] = {{"1F1B", "1f1b"},     {"ZB1P", "zb-h1"},
                                           {"ZB2P", "zb-h2"},    {"ZBV", "zb-v"},
                                           {"V-Half", "v-half"}, {"V-Min", "v-min"}};
    FILE *file = fopen(DS_SOURCE_DIR "/tests/data/schedules_zero_bubble.csv", "r");
    cr_assert_not_null(file);
    char line[512], name[32], rate[64], memory[16];
    int64_t volume;
    size_t rows = 0;
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%31[^,],%63[^,],%15[^,],%" SCNd64, name, rate, memory, &volume) != 4)
            continue;
        cr_assert_lt(rows, sizeof names / sizeof *names);
        cr_assert_str_eq(name, names[rows][0]);
        check_row(names[rows++][1], read_fraction(rate), read_fraction(memory), volume);
    }
    fclose(file);
    cr_expect_eq(rows, sizeof names / sizeof *names);
}

/* What the tests of this file and of test_schedule.c prove of each schedule, in the words of its
 * line. A line with other words, or a new one, needs a test that proves the words first. */
Test(forms, lines_say_what_is_proved) {
    static const char *const proved[][4] = {
        {"gpipe", "(p-1)(F+B+W)", "all m", "m"},
        {"1f1b", "(p-1)(F+B+W)", "all m", "min(m, p-r) on rank r"},
        {"eager-1f1b", "(p-1)(F+B+W)", "all m", "min(m, 2(p-r)-1) on rank r"},
        {"interleaved", "(p-1)(F+B+W)/v", "p divides m", "p + (p-1)/v"},
        {"breadth-first", "(p-1)(F+B+W)/v", "m >= p", "m"},
        {"zb-h1", "(p-1)(F+B-W)", "W <= min(F, B), m >= p", "p"},
        {"zb-h2", "(p-1)(F+B-2W)", "W <= F, 2W <= F+B, m >= 2p-1", "2p-1"},
        {"zb-v", "0", "F = B = W, m >= 2p-1", "p"},
        {"v-half", "(p-1)(F+B+W)/2", "F = B = W, even p, m >= 2p", "p/2 + 1"},
        {"v-min", "-", "-", "p/3 + 2"},
        {"dualpipe", "(p/2-1)(F&B+B-2W)",
         "makespan idle of the middle ranks; F = B >= W, F&B >= F+W, even p", "p + 1"},
        {"dualpipev", "(p-1)(F&B+B-2W)/2", "makespan idle of the last rank; F = B >= W, F&B >= F+W",
         "p + 1/2"},
        {"chimera", "(p/2-1)(F+B+W)", "F = B+W, even p, p divides m", "p"},
        {"hanayo", "(p-1)(F+B+W)/v", "F = B+W, p divides m", "p"},
    };
    uint32_t n = sizeof proved / sizeof *proved;
    for (uint32_t i = 0; i < n; i++) {
        const ds_schedule_form *form = ds_schedule_form_at(i);
        cr_assert_not_null(form, "%s has no line", proved[i][0]);
        const char *const said[] = {form->name, form->bubble, form->range, form->memory};
        for (int k = 0; k < 4; k++)
            cr_expect_str_eq(said[k], proved[i][k], "%s: nothing proves '%s'", form->name, said[k]);
    }
    const ds_schedule_form *more = ds_schedule_form_at(n);
    cr_expect_null(more, "%s: nothing proves its line", more ? more->name : "");
}
