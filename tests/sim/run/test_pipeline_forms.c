/* Closed forms of pipelines, through the passes and the simulator, to the picosecond: a balanced
 * model is cut into stages, every item of the program takes its F, B or W, sends take nothing, and
 * what the simulation reports is what has been published (sources: the table in
 * ir/schedule/schedule.c; tests/ir/schedule/test_schedule_forms.c holds the schedules themselves to
 * it, over more numbers).
 *
 * The span bubble is the most of the stages' last end − first start − busy time, B the time of the
 * input gradient; there is no optimizer that stages would wait for. Where a stage has v chunks, F,
 * B and W are those of a chunk. DualPipe's form has F&B as a duration of its own, and a program
 * cannot say how long two calls take together: of DualPipe and DualPipeV the program is held to the
 * timeline of the schedule with one after the other. */
#include "tests/support/cases.h"
#include "tests/support/pipe_time.h"
#include "tests/support/schedule.h"

#include "ir/base/rng.h"

#include <criterion/criterion.h>
#include <inttypes.h>

/* A few numbers of stages; all with DISTSIM_TEST_ALL=1. */
#define LEAST_STEP(p) (FEW_CASES ? 2 * (p) : 1)
enum { MOST = 16 };

typedef ds_schedule_durations times;

static const times ratios[] = {
    {1, 1, 1, 0},  {100, 90, 89, 0},           {2, 3, 1, 0}, {5, 7, 5, 0}, {7, 5, 4, 0},
    {1, 50, 1, 0}, {123457, 131071, 99991, 0}, {3, 3, 4, 0}};
enum { N_RATIOS = sizeof ratios / sizeof *ratios };
static const times equal[] = {{1, 1, 1, 0}, {777, 777, 777, 0}};

/* Numbers of stages: 2, and the multiples of `by` up to MOST. */
static int64_t next(int64_t p, int64_t by) {
    return (p + LEAST_STEP(p) + by - 1) / by * by;
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* What a form says for these times; negative: nothing. */
typedef int64_t form(int64_t p, times t);

static void expect_bubble(const pipe_program *q, const char *name, int64_t p, int64_t m, times t,
                          int64_t wanted) {
    int64_t busy = q->c.step->schedule.n_chunks / p * m * (t.f + t.b + t.w);
    if (q->c.step->schedule.n_copies == 1) /* else a stage has as many chunks on each */
        cr_expect_eq(q->stages.makespan_idle_ps, q->result->run.step_ps - busy);
    cr_expect_geq(q->stages.makespan_idle_ps, q->stages.span_bubble_ps);
    cr_expect_eq(q->stages.span_bubble_ps, wanted,
                 "%s p=%" PRId64 " m=%" PRId64 " F=%" PRId64 " B=%" PRId64 " W=%" PRId64
                 ": bubble %" PRId64 ", wanted %" PRId64,
                 name, p, m, t.f, t.b, t.w, q->stages.span_bubble_ps, wanted);
}

static void check(const char *name, int64_t p, int64_t m, int64_t v, const times *all, uint32_t n,
                  form *wanted) {
    pipe_program q;
    pipe_open(&q, name, p, m, v);
    for (uint32_t r = 0; r < n; r++) {
        int64_t bubble = wanted(p, all[r]);
        if (bubble < 0) continue;
        pipe_simulate(&q, all[r]);
        cr_assert_eq(q.stages.n, p);
        expect_bubble(&q, name, p, m, all[r], bubble);
    }
    pipe_close(&q);
}

/* ---- span bubbles ---- */

static int64_t of_1f1b(int64_t p, times t) {
    return (p - 1) * (t.f + t.b + t.w);
}

Test(pipeline_forms, one_forward_one_backward_wait_p_minus_1_times_all) {
    static const char *const names[] = {"gpipe", "1f1b", "eager-1f1b"};
    for (int i = 0; i < 3; i++)
        for (int64_t p = 2; p <= MOST; p = next(p, 1)) {
            check(names[i], p, p % 3 + 1, 0, ratios, 3, of_1f1b);
            check(names[i], p, 2 * p + i, 0, ratios, N_RATIOS, of_1f1b);
        }
}

/* No stage waits longer for the end than between its own first and last item: of these schedules
 * the makespan's idle time is the bubble too. */
Test(pipeline_forms, idle_time_of_the_makespan) {
    static const char *const names[] = {"gpipe", "1f1b", "eager-1f1b", "interleaved"};
    for (int i = 0; i < 4; i++)
        for (int64_t p = 2; p <= MOST; p = next(p, 1)) {
            pipe_program q;
            times t = ratios[p % N_RATIOS];
            pipe_open(&q, names[i], p, 2 * p, 0);
            pipe_simulate(&q, t);
            cr_expect_eq(q.stages.makespan_idle_ps, (p - 1) * (t.f + t.b + t.w));
            pipe_close(&q);
        }
}

/* Of a stage's times, 1/v of it. */
Test(pipeline_forms, chunks_divide_the_bubble) {
    for (int64_t p = 2; p <= MOST; p = next(p, 1)) {
        int64_t v = 1 + p % 4;
        check("interleaved", p, p, v, ratios, 3, of_1f1b);
        check("interleaved", p, 3 * p, 2, ratios, N_RATIOS, of_1f1b);
        check("breadth-first", p, p, v, ratios, 3, of_1f1b);
        check("breadth-first", p, 2 * p + 1, 2, ratios, N_RATIOS, of_1f1b);
    }
}

static int64_t of_zb_h1(int64_t p, times t) {
    return t.w <= least(t.f, t.b) ? (p - 1) * (t.f + t.b - t.w) : -1;
}

static int64_t of_zb_h2(int64_t p, times t) {
    return t.w <= t.f && 2 * t.w <= t.f + t.b ? (p - 1) * (t.f + t.b - 2 * t.w) : -1;
}

Test(pipeline_forms, zb_h1_hides_w_once) {
    for (int64_t p = 2; p <= MOST; p = next(p, 1)) {
        check("zb-h1", p, p, 0, ratios, N_RATIOS, of_zb_h1);
        check("zb-h1", p, 3 * p + 1, 0, ratios, N_RATIOS, of_zb_h1);
    }
}

Test(pipeline_forms, zb_h2_hides_w_twice) {
    for (int64_t p = 2; p <= MOST; p = next(p, 1)) {
        check("zb-h2", p, 2 * p - 1, 0, ratios, N_RATIOS, of_zb_h2);
        check("zb-h2", p, 3 * p + 1, 0, ratios, N_RATIOS, of_zb_h2);
    }
}

static int64_t none(int64_t p, times t) {
    return 0 * p * t.f;
}

static int64_t of_v_half(int64_t p, times t) {
    return 3 * (p - 1) * t.f;
}

static int64_t of_v_min(int64_t p, times t) {
    return (4 * (p - 1) + (p % 3 == 0 ? 1 : -1)) * t.f;
}

Test(pipeline_forms, v_schedules_with_equal_times) {
    for (int64_t p = 2; p <= MOST; p = next(p, 1)) {
        check("zb-v", p, 2 * p - 1, 0, equal, 2, none);
        check("zb-v", p, 3 * p + 1, 0, equal, 2, none);
        check("v-min", p, 2 * p, 0, equal, 2, of_v_min);
    }
    for (int64_t p = 2; p <= MOST; p = next(p, 2)) {
        check("v-half", p, 2 * p, 0, equal, 2, of_v_half);
        check("v-half", p, 3 * p, 0, equal, 2, of_v_half);
    }
}

static int64_t of_chimera(int64_t p, times t) {
    return (p / 2 - 1) * (t.f + t.b + t.w);
}

/* F = B + W */
static const times as_long[] = {{7, 7, 0, 0}, {7, 5, 2, 0}, {777, 111, 666, 0}};

Test(pipeline_forms, chimera_waits_p_by_2_minus_1_times) {
    for (int64_t p = 2; p <= MOST; p = next(p, 2)) { /* each copy runs two microbatches at least */
        check("chimera", p, p == 2 ? 4 : p, 0, as_long, 3, of_chimera);
        check("chimera", p, 3 * p, 0, as_long, 3, of_chimera);
    }
}

Test(pipeline_forms, hanayo_waves_divide_the_bubble) {
    for (int64_t p = 2; p <= MOST; p = next(p, 1)) {
        check("hanayo", p, p, 2, as_long, 3, of_1f1b);
        check("hanayo", p, 2 * p, p < 9 ? 4 : 2, as_long, 3, of_1f1b);
    }
}

/* ---- outside of the forms' ranges: the program is the schedule ---- */

static void expect_schedule(const char *name, int64_t p, int64_t m, times t) {
    pipe_program q;
    schedule_case c;
    pipe_open(&q, name, p, m, 0);
    pipe_simulate(&q, t);
    schedule_open(&c, name, p, m, 0, (times){0});
    schedule_time(&c, t, 0, 0);
    cr_expect_eq(q.result->run.step_ps, c.timing.makespan, "%s p=%" PRId64 " m=%" PRId64, name, p,
                 m);
    for (uint32_t r = 0; r < p; r++) {
        const ds_schedule_rank_time *rank = &c.timing.ranks[r];
        cr_expect_eq(q.stages.at[r].first_ps, rank->start);
        cr_expect_eq(q.stages.at[r].last_ps, rank->end);
        cr_expect_eq(q.stages.at[r].compute_ps, rank->busy);
        cr_expect_eq(pipe_in_flight(&q, r), rank->peak, "%s p=%" PRId64 " m=%" PRId64, name, p, m);
    }
    schedule_close(&c);
    pipe_close(&q);
}

Test(pipeline_forms, any_times_are_those_of_the_schedule) {
    ds_rng rng = {1};
    for (uint32_t i = 0; ds_schedule_form_at(i); i++)
        for (int64_t p = 2; p <= MOST; p = next(p, 4)) {
            times t = {1 + (int64_t)ds_rng_below(&rng, 1000), 1 + (int64_t)ds_rng_below(&rng, 1000),
                       1 + (int64_t)ds_rng_below(&rng, 1000), 0};
            expect_schedule(ds_schedule_form_at(i)->name, p, 2 * p, t);
        }
}

/* ---- microbatches in flight, as the memory of the program has them ---- */

typedef struct in_flight {
    uint32_t on[MOST], most;
} in_flight;

static in_flight measure(const char *name, int64_t p, int64_t m, int64_t v) {
    in_flight f = {.most = 0};
    pipe_program q;
    pipe_open(&q, name, p, m, v);
    pipe_simulate(&q, (times){1, 1, 1, 0});
    for (uint32_t r = 0; r < p; r++) {
        f.on[r] = pipe_in_flight(&q, r);
        if (f.on[r] > f.most) f.most = f.on[r];
    }
    pipe_close(&q);
    return f;
}

Test(pipeline_forms, in_flight_on_each_stage) {
    for (int64_t p = 2; p <= MOST; p = next(p, 3))
        for (int64_t m = p / 2 + 1; m <= 3 * p; m += 2 * p - 1) {
            in_flight all[] = {measure("gpipe", p, m, 0), measure("1f1b", p, m, 0),
                               measure("eager-1f1b", p, m, 0), measure("zb-h1", p, m, 0),
                               measure("zb-h2", p, m, 0)};
            for (int64_t r = 0; r < p; r++) {
                cr_expect_eq(all[0].on[r], m);
                cr_expect_eq(all[1].on[r], least(m, p - r));
                cr_expect_eq(all[2].on[r], least(m, 2 * (p - r) - 1));
                cr_expect_eq(all[3].on[r], least(m, p));
                cr_expect_eq(all[4].on[r], least(m, 2 * p - 1));
            }
        }
}

/* Of chunks: 2p of a schedule with two on a stage are p stages' worth. */
Test(pipeline_forms, in_flight_at_most) {
    for (int64_t p = 2; p <= MOST; p = next(p, 4)) {
        int64_t v = 2 + p % 3;
        cr_expect_eq(measure("interleaved", p, 3 * p, v).most, p * v + p - 1);
        cr_expect_eq(measure("breadth-first", p, 2 * p, v).most, 2 * p * v);
        cr_expect_eq(measure("zb-v", p, 3 * p, 0).most, 2 * p);
        cr_expect_eq(measure("dualpipev", p, 3 * p, 0).most, 2 * p + 1);
        cr_expect_leq(measure("v-half", p, 3 * p, 0).most, p + 2);
        cr_expect_leq(3 * measure("v-min", p, 3 * p, 0).most, 2 * p + 8);
        cr_expect_leq(measure("hanayo", p, 2 * p, 0).most, 2 * p);
        cr_expect_eq(measure("dualpipe", p, 3 * p, 0).most, p + 1);
        cr_expect_eq(measure("chimera", p, 3 * p + p % 4, 0).most, p);
    }
}

/* ---- sends in line with compute ---- */

/* Two layers, then one layer: F 20 and B 40 ps, F 10 and B 20 ps, sends of 10 ps. Under `paired` both stages wait
 * for each exchange, a gradient and then an activation: 80 ps a microbatch. Under `buffered` the exchange is beside
 * the slower stage's compute: 60 ps a microbatch, and at the ends 20 + 10 + 30 + 10 ps until the first gradient is
 * there, less F of the second microbatch, and 10 ps before the last B. */
Test(pipeline_forms, exchanges_of_two_uneven_stages) {
    static const struct {
        const char *p2p;
        int64_t each, ends;
    } wanted[] = {{"paired", 80, 20}, {"buffered", 60, 40}};
    for (size_t i = 0; i < 2; i++)
        for (int64_t m = 3; m <= 9; m += 3) {
            pipe_program p;
            pipe_open_uneven(&p, wanted[i].p2p, m);
            p.send_ps = 10;
            pipe_simulate(&p, (times){10, 20, 0, 0});
            cr_expect_eq(p.result->run.step_ps, wanted[i].each * m + wanted[i].ends,
                         "%s, %" PRId64 " microbatches: %" PRId64, wanted[i].p2p, m,
                         p.result->run.step_ps);
            pipe_close(&p);
        }
}
