/* Schedules of programs that are known from the literature: which loops, which lags, what is freed
 * where; and the order of cost. */
#include "ir/base/rng.h"
#include "tests/support/temporal.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct made {
    ds_arena arena;
    ds_temporal_program program;
    ds_temporal_schedule schedule;
    ds_buf nest, loops;
} made;

static void make(made *m, const char *text) {
    ds_error err = {0};
    memset(m, 0, sizeof *m);
    m->program = temporal_parse(&m->arena, text);
    cr_assert_eq(ds_temporal_schedule_make(&m->program, &m->arena, &m->schedule, &err), DS_OK, "%s",
                 err.message);
    ds_temporal_nest_print(&m->program, &m->schedule, &m->nest);
    ds_temporal_print(&m->program, &m->schedule, &m->loops);
}

static void drop(made *m) {
    ds_buf_deinit(&m->nest);
    ds_buf_deinit(&m->loops);
    ds_arena_deinit(&m->arena);
}

/* Is the schedule carried out without an offence, and is its nest as given? */
static void expect_nest(const char *text, const char *nest) {
    made m;
    make(&m, text);
    temporal_world world;
    temporal_world_init(&m.program, &world);
    const char *offence = temporal_world_run(&world, &m.schedule);
    cr_expect_null(offence, "%s in\n%s", offence, m.loops.text);
    cr_expect(strcmp(m.nest.text, nest) == 0, "got\n%swanted\n%sloops\n%s", m.nest.text, nest,
              m.loops.text);
    cr_expect_not(m.schedule.inexact);
    temporal_world_deinit(&world);
    drop(&m);
}

/* Decode with a cache: causal if the range is "0:t+1". Two layers, a prompt of 3, 8 tokens. */
#define DECODE(layers, tokens, last, range)                                                        \
    "dims t=" tokens " l=" layers "\n"                                                             \
    "in t 4 kept : next{t-1} if !(t<3)\n"                                                          \
    "e t 64 : in{t}\n"                                                                             \
    "x t,l 64 : e{t} if l==0 ; y{t,l-1} if !(l==0)\n"                                              \
    "q t,l 64 : x{t,l}\n"                                                                          \
    "k t,l 16 : x{t,l}\n"                                                                          \
    "v t,l 16 : x{t,l}\n"                                                                          \
    "a t,l 64 : q{t,l} ; k{" range ",l} ; v{" range ",l}\n"                                        \
    "y t,l 64 : x{t,l} ; a{t,l}\n"                                                                 \
    "logits t 256 : y{t," last "}\n"                                                               \
    "next t 4 : logits{t}\n"

/* n-step return: reward r of act t..t+n-1 is the gain of turn t. */
#define RETURNS(range)                                                                             \
    "dims i=3 t=12\n"                                                                              \
    "u i 256 : new{i-1} if !(i==0)\n"                                                              \
    "o i,t 64 : s{i,t-1} if !(t==0)\n"                                                             \
    "z i,t 64 : o{i,t} ; u{i}\n"                                                                   \
    "a i,t 64 : z{i,t}\n"                                                                          \
    "m i,t 64 : a{i,t}\n"                                                                          \
    "s i,t 64 : m{i,t}\n"                                                                          \
    "r i,t 64 : s{i,t} ; a{i,t}\n"                                                                 \
    "g i,t 64 : r{i," range "}\n"                                                                  \
    "dz i,t 64 : a{i,t} ; g{i,t}\n"                                                                \
    "dw i,t 256 : o{i,t} ; dz{i,t}\n"                                                              \
    "sum i 256 : dw{i,0:12}\n"                                                                     \
    "new i 256 kept : u{i} ; sum{i}\n"

/* h{t} = tanh(x{t} wx + h{t-1} wh), its gradient dh, and the gradients of both weights. */
#define RNN                                                                                        \
    "dims t=6\n"                                                                                   \
    "p t 64 :\n"                                                                                   \
    "h t 64 : h{t-1} if 0<t ; p{t}\n"                                                              \
    "slope t 64 : h{t}\n"                                                                          \
    "dh t 64 : dz{t+1} if t<5 ; h{5} if !(t<5)\n"                                                  \
    "dz t 64 : dh{t} ; slope{t}\n"                                                                 \
    "dx t 64 : dz{t} ; p{t}\n"                                                                     \
    "dwh t 512 : dz{t} ; h{t-1} if 0<t\n"                                                          \
    "dw - 512 kept : dwh{0:6} ; dx{0:6}\n"

Test(temporal, causal_decode_is_one_loop_and_keeps_its_cache) {
    expect_nest(DECODE("2", "8", "1", "0:t+1"), "for t\n"
                                                "  in\n"
                                                "  free next [1]\n"
                                                "  e\n"
                                                "  for l\n"
                                                "    x\n"
                                                "    q\n"
                                                "    k\n"
                                                "    v\n"
                                                "    a\n"
                                                "    free q\n"
                                                "    y\n"
                                                "    free x\n"
                                                "    free a\n"
                                                "  free e\n"
                                                "  logits\n"
                                                "  free y\n"
                                                "  next\n"
                                                "  free logits\n"
                                                "free k\n"
                                                "free v\n");
}

Test(temporal, window_decode_frees_its_cache_behind_the_window) {
    expect_nest(DECODE("2", "8", "1", "max(0,t-2):t+1"), "for t\n"
                                                         "  in\n"
                                                         "  free next [1]\n"
                                                         "  e\n"
                                                         "  for l\n"
                                                         "    x\n"
                                                         "    q\n"
                                                         "    k\n"
                                                         "    v\n"
                                                         "    a\n"
                                                         "    free q\n"
                                                         "    free k\n"
                                                         "    free v\n"
                                                         "    y\n"
                                                         "    free x\n"
                                                         "    free a\n"
                                                         "  free e\n"
                                                         "  logits\n"
                                                         "  free y\n"
                                                         "  next\n"
                                                         "  free logits\n");
}

Test(temporal, n_step_learns_n_less_one_turns_after_acting) {
    expect_nest(RETURNS("t:min(t+4,12)"), "for i\n"
                                          "  u\n"
                                          "  for t\n"
                                          "    o\n"
                                          "    free s [1]\n"
                                          "    z\n"
                                          "    a\n"
                                          "    free z\n"
                                          "    m\n"
                                          "    s\n"
                                          "    free m\n"
                                          "    r\n"
                                          "    g [3]\n"
                                          "    free r [3]\n"
                                          "    dz [3]\n"
                                          "    free a [3]\n"
                                          "    free g [3]\n"
                                          "    dw [3]\n"
                                          "    free o [3]\n"
                                          "    free dz [3]\n"
                                          "  sum\n"
                                          "  free dw\n"
                                          "  new\n"
                                          "  free u\n"
                                          "  free sum\n");
}

Test(temporal, monte_carlo_is_two_loops) {
    expect_nest(RETURNS("t:12"), "for i\n"
                                 "  u\n"
                                 "  for t\n"
                                 "    o\n"
                                 "    free s [1]\n"
                                 "    z\n"
                                 "    a\n"
                                 "    free z\n"
                                 "    m\n"
                                 "    s\n"
                                 "    free m\n"
                                 "    r\n"
                                 "  for t\n"
                                 "    g\n"
                                 "    free r\n"
                                 "    dz\n"
                                 "    free a\n"
                                 "    free g\n"
                                 "    dw\n"
                                 "    free o\n"
                                 "    free dz\n"
                                 "  sum\n"
                                 "  free dw\n"
                                 "  new\n"
                                 "  free u\n"
                                 "  free sum\n");
}

Test(temporal, recurrence_and_its_gradient_run_forward_then_reversed) {
    expect_nest(RNN, "for t\n"
                     "  p\n"
                     "  h\n"
                     "for t reversed\n"
                     "  slope\n"
                     "  dh\n"
                     "  free h\n"
                     "  free dz [1]\n"
                     "  dz\n"
                     "  free slope\n"
                     "  free dh\n"
                     "  dx\n"
                     "  free p\n"
                     "  dwh\n"
                     "dw\n"
                     "free dx\n"
                     "free dwh\n");
}

/* ---- refusals, and programs without a nest ---- */

static void expect_refusal(const char *text, ds_status code, const char *message) {
    ds_arena arena;
    ds_arena_init(&arena);
    ds_temporal_program program = temporal_parse(&arena, text);
    ds_temporal_schedule schedule;
    ds_error err = {0};
    cr_expect_eq(ds_temporal_schedule_make(&program, &arena, &schedule, &err), code);
    cr_expect(strstr(err.message, message), "%s", err.message);
    ds_arena_deinit(&arena);
}

Test(temporal, a_cycle_is_named) {
    expect_refusal("dims t=4\nh t 1 : o{t}\no t 1 kept : h{t} ; o{t-1} if 0<t\n", DS_ERR_VALUE,
                   "%h{0} reads %o{0}, which reads %h{0}");
    /* Only one point of the dim closes the cycle. */
    expect_refusal("dims t=9\nh t 1 : o{8-t} if t!=4 and 4<t ; o{t} if t==4\no t 1 kept : h{t}\n",
                   DS_ERR_VALUE, "%h{4} reads %o{4}, which reads %h{4}");
}

Test(temporal, a_program_without_a_nest_is_refused_if_it_is_large) {
    expect_refusal("dims t=2000000\na t 1 kept : a{t+1} if t<3 ; a{t-1} if 3<t\n", DS_ERR_LIMIT,
                   "too many to order point by point");
}

Test(temporal, a_program_without_a_nest_runs_point_by_point) {
    expect_nest("dims t=7\nx - 8 :\na t 8 kept : a{t+1} if t<3 ; x if t==3 ; a{t-1} if 3<t\n",
                "point by point\n");
}

/* Only what a yield needs runs: of every second value, the even ones. */
Test(temporal, only_needed_points_run) {
    made m;
    make(&m, "dims t=101\na t 8 : a{t-2} if 1<t\nb - 8 kept : a{100}\nc t 8 :\n");
    cr_expect_eq(m.schedule.runs, 51 + 1);
    cr_expect_not(m.schedule.inexact);
    drop(&m);
}

/* ---- what does not grow ---- */

#define LLAMA(layers, last)                                                                        \
    "dims t=1024 l=" layers "\n"                                                                   \
    "in t 64 kept : next{t-1} if !(t<512)\n"                                                       \
    "e t 6144 : in{t}\n"                                                                           \
    "x t,l 6144 : e{t} if l==0 ; y{t,l-1} if !(l==0)\n"                                            \
    "n1 t,l 6144 : x{t,l}\n"                                                                       \
    "q0 t,l 6144 : n1{t,l}\n"                                                                      \
    "k0 t,l 2048 : n1{t,l}\n"                                                                      \
    "v t,l 2048 : n1{t,l}\n"                                                                       \
    "q t,l 6144 : q0{t,l}\n"                                                                       \
    "k t,l 2048 : k0{t,l}\n"                                                                       \
    "ks t,l 2048 : k{0:t+1,l}\n"                                                                   \
    "vs t,l 2048 : v{0:t+1,l}\n"                                                                   \
    "a t,l 6144 : q{t,l} ; ks{t,l} ; vs{t,l}\n"                                                    \
    "o t,l 6144 : a{t,l}\n"                                                                        \
    "r t,l 6144 : x{t,l} ; o{t,l}\n"                                                               \
    "n2 t,l 6144 : r{t,l}\n"                                                                       \
    "gate t,l 16384 : n2{t,l}\n"                                                                   \
    "up t,l 16384 : n2{t,l}\n"                                                                     \
    "act t,l 16384 : gate{t,l}\n"                                                                  \
    "mix t,l 16384 : act{t,l} ; up{t,l}\n"                                                         \
    "down t,l 6144 : mix{t,l}\n"                                                                   \
    "y t,l 6144 : r{t,l} ; down{t,l}\n"                                                            \
    "last t 6144 : y{t," last "}\n"                                                                \
    "logits t 256000 : last{t}\n"                                                                  \
    "next t 64 : logits{t}\n"

static uint32_t lines(const char *text) {
    uint32_t n = 0;
    for (; *text; text++) n += *text == '\n';
    return n;
}

Test(temporal, layers_and_tokens_add_neither_text_nor_work) {
    made few, many;
    make(&few, LLAMA("4", "3"));
    make(&many, LLAMA("64", "63"));
    cr_expect_str_eq(few.nest.text, many.nest.text);
    cr_expect_eq(lines(few.loops.text), lines(many.loops.text));
    cr_expect_float_eq((double)few.arena.bytes, (double)many.arena.bytes,
                       0.01 * (double)few.arena.bytes, "%zu and %zu bytes of work", few.arena.bytes,
                       many.arena.bytes);
    drop(&few);
    drop(&many);
}

Test(temporal, a_decode_of_28_layers_is_scheduled_within_50_ms) {
    double best = 1;
    for (int i = 0; i < 5; i++) {
        made m;
        clock_t start = clock();
        make(&m, LLAMA("28", "27"));
        double s = (double)(clock() - start) / CLOCKS_PER_SEC;
        if (s < best) best = s;
        drop(&m);
    }
    cr_expect_lt(best, 0.05, "%.1f ms", best * 1e3);
    printf("a decode of 28 layers: %.2f ms\n", best * 1e3);
}

/* ---- the lag of least bytes ---- */

#define MOST_SHIFT 7

typedef struct one_dim { /* statements 0..n-1 over one dim; a read meets t+from .. t+to */
    int n, n_reads;
    int64_t bytes[5];
    struct {
        int reader, source;
        int64_t from, to;
    } reads[12];
} one_dim;

/* Bytes between a value and its last reader, in turns; -1: a read comes before its value. */
static int64_t waiting(const one_dim *p, const int64_t *c) {
    int64_t sum = 0;
    for (int s = 0; s < p->n; s++) {
        int64_t last = c[s];
        for (int r = 0; r < p->n_reads; r++) {
            if (p->reads[r].source != s) continue;
            if (c[p->reads[r].reader] - c[s] < p->reads[r].to) return -1;
            int64_t turn = c[p->reads[r].reader] - p->reads[r].from;
            if (turn > last) last = turn;
        }
        sum += p->bytes[s] * (last - c[s]);
    }
    return sum;
}

static int64_t brute_force(const one_dim *p) {
    int64_t c[5] = {0}, best = -1;
    for (int i = 0; i >= 0;) {
        int64_t sum = waiting(p, c);
        if (sum >= 0 && (best < 0 || sum < best)) best = sum;
        for (i = p->n - 1; i >= 0 && ++c[i] > MOST_SHIFT; i--) c[i] = 0;
    }
    return best;
}

static void one_dim_text(const one_dim *p, ds_buf *text) {
    ds_buf_put(text, "dims t=60");
    for (int s = 0; s < p->n; s++) {
        ds_buf_printf(text, "\ns%d t %" PRId64 "%s :", s, p->bytes[s],
                      s + 1 == p->n ? " kept" : "");
        const char *between = " ";
        for (int r = 0; r < p->n_reads; r++)
            if (p->reads[r].reader == s) {
                ds_buf_printf(text, "%ss%d{max(0,t+%" PRId64 "):min(60,t+%" PRId64 ")}", between,
                              p->reads[r].source, p->reads[r].from, p->reads[r].to + 1);
                between = " ; ";
            }
    }
    ds_buf_put(text, "\n");
}

Test(temporal, lags_hold_no_more_bytes_than_the_best_of_all_lags) {
    ds_rng rng = {20};
    int lagging = 0;
    for (int k = 0; k < 200; k++) {
        one_dim p = {.n = 3 + (int)ds_rng_below(&rng, 2)};
        for (int s = 0; s < p.n; s++) {
            p.bytes[s] = 1 + (int64_t)ds_rng_below(&rng, 9);
            for (int r = 0; s > 0 && r < 2 && p.n_reads < 12; r++) {
                int64_t from = (int64_t)ds_rng_below(&rng, 5) - 2;
                p.reads[p.n_reads].reader = s;
                p.reads[p.n_reads].source = (int)ds_rng_below(&rng, (uint64_t)s);
                p.reads[p.n_reads].from = from;
                p.reads[p.n_reads++].to = from + (int64_t)ds_rng_below(&rng, 2);
            }
        }
        ds_buf text = {0};
        made m;
        one_dim_text(&p, &text);
        make(&m, text.text);
        cr_assert_eq(m.schedule.n_nest > 0 && m.schedule.nest[0].loop, 1);
        const int64_t *shift = m.schedule.nest[0].shift;
        cr_expect_eq(waiting(&p, shift), brute_force(&p), "%s%s", text.text, m.nest.text);
        for (int s = 0; s < p.n; s++) lagging += shift[s] != 0;
        drop(&m);
        ds_buf_deinit(&text);
    }
    cr_expect_gt(lagging, 100);
}
