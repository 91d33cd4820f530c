/* 10,000 random programs of three dims at most and bounds up to 6, carried out point by point. The
 * evaluator (tests/support/temporal.c) decides by itself what is needed and what has a cycle. */
#include "ir/base/rng.h"
#include "tests/support/temporal.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROGRAMS 10000

typedef struct maker {
    ds_rng rng;
    ds_buf *out;
    uint32_t n_dims, n, dims[8];
    int64_t size[3];
} maker;

static const char *const dim_names[] = {"i", "t", "l"};

static int64_t pick(maker *m, int64_t n) {
    return (int64_t)ds_rng_below(&m->rng, (uint64_t)n);
}

/* One index of a source's dim d, as text: within bounds at every point where `when` holds, which is
 * empty or a condition. */
static void put_index(maker *m, uint32_t reader_dims, uint32_t d, char *when, size_t room) {
    const char *t = dim_names[d];
    int64_t N = m->size[d], k = 1 + pick(m, 2);
    bool has = (reader_dims >> d & 1) != 0;
    int64_t kind = pick(m, has ? 22 : 4);
    if (!has || kind >= 20) {
        if (pick(m, 3) == 0)
            ds_buf_printf(m->out, "0:%" PRId64, N);
        else
            ds_buf_printf(m->out, "%" PRId64, pick(m, N));
        return;
    }
    size_t used = strlen(when);
    const char *and = used ? " and " : "";
    switch (kind) {
    case 0:
    case 1:
    case 2:
        ds_buf_printf(m->out, "%s-%" PRId64, t, k);
        snprintf(when + used, room - used, "%s%" PRId64 "<=%s", and, k, t);
        return;
    case 3:
        ds_buf_printf(m->out, "%s+%" PRId64, t, k);
        snprintf(when + used, room - used, "%s%s<%" PRId64, and, t, N - k);
        return;
    case 4:
        ds_buf_printf(m->out, "max(0,%s-%" PRId64 ")", t, k);
        return;
    case 5:
        ds_buf_printf(m->out, "min(%s+%" PRId64 ",%" PRId64 ")", t, k, N - 1);
        return;
    case 6:
        ds_buf_printf(m->out, "0:%s+1", t);
        return;
    case 7:
        ds_buf_printf(m->out, "0:%s", t);
        return;
    case 8:
        ds_buf_printf(m->out, "%s:%" PRId64, t, N);
        return;
    case 9:
        ds_buf_printf(m->out, "max(0,%s-%" PRId64 "):%s+1", t, k, t);
        return;
    case 10:
        ds_buf_printf(m->out, "%s:min(%s+%" PRId64 ",%" PRId64 ")", t, t, k + 1, N);
        return;
    case 11:
        ds_buf_printf(m->out, "max(0,%s-%" PRId64 "):min(%s+%" PRId64 ",%" PRId64 ")", t, k, t, k,
                      N);
        return;
    case 12:
        if (pick(m, 4) == 0)
            ds_buf_printf(m->out, "%" PRId64 "-%s", N - 1, t);
        else
            ds_buf_put(m->out, t);
        return;
    case 13:
        if (pick(m, 4) == 0)
            ds_buf_printf(m->out, "%s/2*2:min(%s/2*2+2,%" PRId64 ")", t, t, N);
        else
            ds_buf_put(m->out, t);
        return;
    default:
        ds_buf_put(m->out, t);
        return;
    }
}

static void put_read(maker *m, uint32_t reader, const char *branch) {
    uint32_t source = (uint32_t)pick(m, m->n);
    if (pick(m, 10) > 0 && reader > 0) source = (uint32_t)pick(m, reader); /* mostly earlier ones */
    char when[160] = "";
    snprintf(when, sizeof when, "%s", branch);
    ds_buf_printf(m->out, " s%u", source);
    bool first = true;
    for (uint32_t d = 0; d < m->n_dims; d++) {
        if (!(m->dims[source] >> d & 1)) continue;
        ds_buf_put(m->out, first ? "{" : ",");
        put_index(m, m->dims[reader], d, when, sizeof when);
        first = false;
    }
    if (!first) ds_buf_put(m->out, "}");
    if (when[0]) ds_buf_printf(m->out, " if %s", when);
}

/* A condition on one of the reader's dims; "" if the reader has none. */
static void put_condition(maker *m, uint32_t reader, char *out, size_t room) {
    uint32_t d = (uint32_t)pick(m, m->n_dims);
    static const char *const forms[] = {"%s<%d", "%s==%d", "%s<=%d", "%s%%2==%d"};
    out[0] = '\0';
    if (m->dims[reader] >> d & 1) {
        int64_t form = pick(m, 16) == 0 ? 3 : pick(m, 3);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(out, room, forms[form], dim_names[d], form == 3 ? 1 : (int)pick(m, m->size[d]));
#pragma GCC diagnostic pop
    }
}

static void put_program(maker *m) {
    m->n_dims = 1 + (uint32_t)pick(m, 3);
    m->n = 1 + (uint32_t)pick(m, 6);
    ds_buf_put(m->out, "dims");
    for (uint32_t d = 0; d < m->n_dims; d++) {
        m->size[d] = 1 + pick(m, 6);
        ds_buf_printf(m->out, " %s=%" PRId64, dim_names[d], m->size[d]);
    }
    for (uint32_t s = 0; s < m->n; s++) m->dims[s] = (uint32_t)pick(m, 1 << m->n_dims);
    for (uint32_t s = 0; s < m->n; s++)
        if (pick(m, 3) > 0) m->dims[s] = (1u << m->n_dims) - 1;
    for (uint32_t s = 0; s < m->n; s++) {
        ds_buf_printf(m->out, "\ns%u ", s);
        if (!m->dims[s]) ds_buf_put(m->out, "-");
        bool first = true;
        for (uint32_t d = 0; d < m->n_dims; d++)
            if (m->dims[s] >> d & 1) {
                ds_buf_printf(m->out, "%s%s", first ? "" : ",", dim_names[d]);
                first = false;
            }
        ds_buf_printf(m->out, " %" PRId64 "%s :", 1 + pick(m, 64),
                      s + 1 == m->n || pick(m, 6) == 0 ? " kept" : "");
        char condition[64], branch[96];
        put_condition(m, s, condition, sizeof condition);
        int64_t reads = pick(m, 4);
        for (int64_t r = 0; r < reads; r++) {
            if (r > 0) ds_buf_put(m->out, " ;");
            branch[0] = '\0';
            if (condition[0] && r < 2)
                snprintf(branch, sizeof branch, r ? "!(%s)" : "(%s)", condition);
            put_read(m, s, branch);
        }
    }
    ds_buf_put(m->out, "\n");
}

typedef struct tally {
    int cyclic, unrolled, inexact, points;
} tally;

static void try_program(uint64_t seed, tally *sum) {
    ds_buf text = {0};
    maker m = {.out = &text};
    m.rng.state = seed * 7919 + 1;
    put_program(&m);
    ds_arena arena;
    ds_arena_init(&arena);
    ds_temporal_program program = temporal_parse(&arena, text.text);
    temporal_world world;
    temporal_world_init(&program, &world);
    ds_temporal_schedule schedule;
    ds_error err = {0};
    ds_status status = ds_temporal_schedule_make(&program, &arena, &schedule, &err);
    if (world.cyclic) {
        sum->cyclic++;
        cr_assert_neq(status, DS_OK, "a cycle is missed (program %" PRIu64 "):\n%s", seed,
                      text.text);
        cr_assert(strstr(err.message, "reads"), "%s", err.message);
    } else {
        ds_buf loops = {0};
        cr_assert_eq(status, DS_OK, "program %" PRIu64 ": %s\n%s", seed, err.message, text.text);
        ds_temporal_print(&program, &schedule, &loops);
        const char *offence = temporal_world_run(&world, &schedule);
        cr_assert_null(offence, "program %" PRIu64 ": %s\n%s\n%s", seed, offence, text.text,
                       loops.text);
        sum->unrolled += schedule.unrolled;
        sum->inexact += schedule.inexact;
        sum->points += (int)schedule.runs;
        if (schedule.unrolled && getenv("SHOW"))
            printf("unrolled %" PRIu64 "\n%s", seed, text.text);
        ds_buf_deinit(&loops);
    }
    temporal_world_deinit(&world);
    ds_arena_deinit(&arena);
    ds_buf_deinit(&text);
}

Test(temporal_random, every_needed_point_runs_once_in_order) {
    tally sum = {0};
    for (uint64_t seed = 0; seed < PROGRAMS; seed++) try_program(seed, &sum);
    printf("%d programs: %d with a cycle, %d point by point, %d inexact; %d points run\n", PROGRAMS,
           sum.cyclic, sum.unrolled, sum.inexact, sum.points);
    cr_expect_eq(sum.inexact, 0);
    cr_expect_gt(sum.cyclic, PROGRAMS / 20);
    cr_expect_lt(sum.cyclic, PROGRAMS * 3 / 5);
}
