/* 10,000 random programs of three dims at most and bounds up to 6, carried out point by point. The
 * evaluator (tests/support/temporal.c) decides by itself what is needed and what has a cycle. */
#include "tests/support/temporal.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROGRAMS 10000

typedef struct tally {
    int cyclic, unrolled, inexact, points;
} tally;

static void try_program(uint64_t seed, bool apart, tally *sum) {
    ds_buf text = {0};
    temporal_random(seed, &text);
    ds_arena arena;
    ds_arena_init(&arena);
    ds_temporal_program program = temporal_parse(&arena, text.text);
    program.apart = apart;
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
    for (uint64_t seed = 0; seed < PROGRAMS; seed++) try_program(seed, false, &sum);
    printf("%d programs: %d with a cycle, %d point by point, %d inexact; %d points run\n", PROGRAMS,
           sum.cyclic, sum.unrolled, sum.inexact, sum.points);
    cr_expect_eq(sum.inexact, 0);
    cr_expect_leq(sum.unrolled, 5);
    cr_expect_gt(sum.cyclic, PROGRAMS / 20);
    cr_expect_lt(sum.cyclic, PROGRAMS * 3 / 5);
}

/* A loop for each component: the same programs have an order. */
Test(temporal_random, without_fusion_too) {
    tally sum = {0};
    for (uint64_t seed = 0; seed < PROGRAMS; seed++) try_program(seed, true, &sum);
    cr_expect_eq(sum.inexact, 0);
    cr_expect_leq(sum.unrolled, 5);
}
