/* Schedules: orders held against the published figures, parameters that are refused, text and back,
 * the check, and times against a naive fixed point. */
#include "ir/base/rng.h"
#include "ir/lang/lang.h"
#include "tests/support/schedule.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef ds_schedule_durations times;

/* ---- orders ---- */

/* GPipe, arXiv 1811.06965, figure 2(c): four stages, four microbatches, backwards from the last. */
Test(schedule, gpipe_as_drawn) {
    schedule_case c;
    schedule_open(&c, "gpipe", 4, 4, 0, (times){0});
    schedule_expect_rank(&c, 0, "F0.0 F0.1 F0.2 F0.3 B0.3 B0.2 B0.1 B0.0");
    schedule_expect_rank(&c, 3, "F3.0 F3.1 F3.2 F3.3 B3.3 B3.2 B3.1 B3.0");
    schedule_close(&c);
}

/* Megatron-LM, arXiv 2104.04473, figures 3 (1F1B) and 4 (interleaved): four devices, eight
 * microbatches, two chunks on a device in the latter. */
Test(schedule, megatron_as_drawn) {
    schedule_case c;
    schedule_open(&c, "1f1b", 4, 8, 0, (times){0});
    schedule_expect_rank(&c, 0,
                         "F0.0 F0.1 F0.2 F0.3 B0.0 F0.4 B0.1 F0.5 B0.2 F0.6 B0.3 F0.7 B0.4 B0.5 "
                         "B0.6 B0.7");
    schedule_expect_rank(&c, 3,
                         "F3.0 B3.0 F3.1 B3.1 F3.2 B3.2 F3.3 B3.3 F3.4 B3.4 F3.5 B3.5 F3.6 B3.6 "
                         "F3.7 B3.7");
    schedule_close(&c);
    schedule_open(&c, "interleaved", 4, 8, 2, (times){0});
    schedule_expect_rank(&c, 0,
                         "F0.0 F0.1 F0.2 F0.3 F4.0 F4.1 F4.2 F4.3 F0.4 F0.5 F0.6 B4.0 F0.7 B4.1 "
                         "F4.4 B4.2 F4.5 B4.3 F4.6 B0.0 F4.7 B0.1 B0.2 B0.3 B4.4 B4.5 B4.6 B4.7 "
                         "B0.4 B0.5 B0.6 B0.7");
    schedule_expect_rank(&c, 3,
                         "F3.0 F3.1 F3.2 F3.3 F7.0 B7.0 F7.1 B7.1 F7.2 B7.2 F7.3 B7.3 F3.4 B3.0 "
                         "F3.5 B3.1 F3.6 B3.2 F3.7 B3.3 F7.4 B7.4 F7.5 B7.5 F7.6 B7.6 F7.7 B7.7 "
                         "B3.4 B3.5 B3.6 B3.7");
    schedule_close(&c);
}

/* Chimera, arXiv 2107.06925, figure 3: four workers, microbatches 0 and 1 down, 2 and 3 up. */
Test(schedule, chimera_as_drawn) {
    schedule_case c;
    schedule_open(&c, "chimera", 4, 4, 0, (times){0});
    schedule_expect_rank(&c, 0, "F0.0 F0.1 F3.2 B3.2 F3.3 B3.3 B0.0 B0.1");
    schedule_expect_rank(&c, 1, "F1.0 F2.2 F1.1 F2.3 B2.2 B1.0 B2.3 B1.1");
    schedule_expect_rank(&c, 3, "F0.2 F0.3 F3.0 B3.0 F3.1 B3.1 B0.2 B0.3");
    cr_expect_eq(c.index.n_copies, 2);
    uint32_t copies[] = {0, 0, 1, 1};
    for (int m = 0; m < 4; m++) cr_expect_eq(c.index.copy[m], copies[m]);
    cr_expect_eq(c.index.stage[4], 3, "the second copy's chunk 0 is on the last stage");
    schedule_close(&c);
}

/* ZB-H1 by hand: rank 3 starts W when rank 0's W has freed a place for microbatch 4. */
Test(schedule, zero_bubble_by_hand) {
    schedule_case c;
    schedule_open(&c, "zb-h1", 4, 6, 0, (times){0});
    schedule_expect_rank(&c, 0,
                         "F0.0 F0.1 F0.2 F0.3 B0.0 W0.0 F0.4 B0.1 W0.1 F0.5 B0.2 W0.2 B0.3 W0.3 "
                         "B0.4 W0.4 B0.5 W0.5");
    schedule_expect_rank(&c, 3,
                         "F3.0 B3.0 F3.1 B3.1 F3.2 B3.2 F3.3 B3.3 W3.0 F3.4 B3.4 W3.1 F3.5 B3.5 "
                         "W3.2 W3.3 W3.4 W3.5");
    schedule_close(&c);
}

/* DualPipe by hand from the eight steps of its repository, outermost and middle rank of four. */
Test(schedule, dualpipe_by_hand) {
    schedule_case c;
    schedule_open(&c, "dualpipe", 4, 8, 0, (times){0});
    schedule_expect_rank(&c, 0,
                         "F0.0 F0.1 F0.2 F3.4 B3.4 W3.4 F3.5 F0.3&B3.5 F3.6&B0.0 B3.6 F3.7&B0.1 "
                         "B3.7 B0.2 W0.2 B0.3 W0.3");
    schedule_expect_rank(&c, 1,
                         "F1.0 F2.4 F1.1 F2.5 F1.2 B2.4 F2.6&B1.0 F1.3&B2.5 F2.7&B1.1 B2.6 B1.2 "
                         "B2.7 B1.3 W2.7 W1.3");
    schedule_close(&c);
}

/* ZB-V fills its V with 2p - 1 microbatches: of fewer, items stand in the order that they have
 * among so many. */
Test(schedule, few_microbatches_in_a_v_are_the_first_of_many) {
    for (int64_t p = 2; p <= 4; p++)
        for (int64_t m = 1; m < 2 * p - 1; m++) {
            schedule_case few, many;
            schedule_open(&few, "zb-v", p, m, 0, (times){0});
            schedule_open(&many, "zb-v", p, 2 * p - 1, 0, (times){0});
            for (int64_t r = 0; r < p; r++) {
                const ds_schedule_rank *a = &few.schedule->ranks[r], *b = &many.schedule->ranks[r];
                uint32_t at = 0;
                for (uint32_t i = 0; i < b->n_items; i++) {
                    const ds_schedule_item *item = &b->items[i];
                    if (item->microbatch >= m) continue;
                    cr_assert_lt(at, a->n_items);
                    cr_expect(a->items[at].kind == item->kind &&
                                  a->items[at].chunk == item->chunk &&
                                  a->items[at].microbatch == item->microbatch,
                              "p = %d, m = %d, rank %d: item %u", (int)p, (int)m, (int)r, at);
                    at++;
                }
                cr_expect_eq(at, a->n_items);
            }
            schedule_close(&few);
            schedule_close(&many);
        }
}

/* ---- every form, legal and complete ---- */

static bool takes(const char *name, int64_t p, int64_t m) {
    if (strcmp(name, "interleaved") == 0) return m % p == 0;
    if (strcmp(name, "dualpipe") == 0) return p % 2 == 0 && m % 2 == 0 && m >= 2 * p;
    if (strcmp(name, "dualpipev") == 0) return m >= 2 * p;
    if (strcmp(name, "chimera") == 0) return p % 2 == 0 && m % 2 == 0;
    return true;
}

Test(schedule, every_form_runs_wherever_it_is_made) {
    const ds_schedule_form *form;
    for (uint32_t i = 0; (form = ds_schedule_form_at(i)); i++)
        for (int64_t p = 1; p <= 9; p++)
            for (int64_t m = 1; m <= 3 * p; m++) {
                ds_schedule_options options = {.name = form->name, .stages = p, .microbatches = m};
                if (!takes(form->name, p, m)) {
                    ds_unit *unit = ds_unit_new();
                    const ds_schedule *none;
                    ds_error err;
                    cr_expect_eq(ds_schedule_make(unit, &options, &none, &err), DS_ERR_VALUE);
                    cr_expect_null(none);
                    ds_unit_free(unit);
                    continue;
                }
                schedule_case c;
                times t = {3, 4, 2, 0};
                schedule_open(&c, form->name, p, m, 0, t);
                schedule_time(&c, t, 8, 1);
                int64_t work = 0;
                for (uint32_t r = 0; r < p; r++) work += c.timing.ranks[r].busy;
                /* A pair counts 8 in place of 3 + 4 + 2. */
                int64_t all = m * c.index.n_chunks * 9, pairs = all - work;
                cr_expect_geq(pairs, 0);
                cr_expect(strncmp(form->name, "dual", 4) == 0 || pairs == 0, "%s", form->name);
                schedule_close(&c);
            }
}

/* ---- text ---- */

Test(schedule, prints_and_parses_to_itself) {
    const ds_schedule_form *form;
    for (uint32_t i = 0; (form = ds_schedule_form_at(i)); i++) {
        schedule_case c, again;
        schedule_open(&c, form->name, 4, 8, 0, (times){1, 1, 1, 0});
        ds_module *module = ds_unit_add_module(c.unit, "made", "", 0);
        module->version = 1;
        DS_PUSH(&c.unit->arena, &module->schedules, (ds_schedule *)c.schedule);
        DS_PUSH(&c.unit->arena, &module->items, ((ds_item){DS_ITEM_SCHEDULE, 0}));
        ds_buf text = {0}, twice = {0};
        ds_print_module(module, &text);
        schedule_parse(&again, text.text);
        ds_print_module(again.unit->modules.at[0], &twice);
        cr_expect_str_eq(text.text, twice.text, "%s", form->name);
        cr_expect_eq(ds_schedule_check(again.schedule, &again.arena, &again.index, &again.err),
                     DS_OK);
        cr_expect_eq(again.index.n_items, c.index.n_items);
        cr_expect_eq(again.index.n_copies, c.index.n_copies);
        ds_buf_deinit(&text);
        ds_buf_deinit(&twice);
        schedule_close(&c);
        schedule_close(&again);
    }
}

static ds_status make(ds_unit *unit, const char *name, int64_t p, int64_t m, int64_t v,
                      const ds_schedule **out, ds_error *err) {
    return ds_schedule_make(unit, &(ds_schedule_options){name, p, m, v, 0, 0, 0}, out, err);
}

static void expect_refused(const char *name, int64_t p, int64_t m, int64_t v, ds_status code,
                           const char *text) {
    ds_unit *unit = ds_unit_new();
    const ds_schedule *schedule;
    ds_error err = {0};
    cr_expect_eq(make(unit, name, p, m, v, &schedule, &err), code, "%s", name);
    cr_expect_not_null(strstr(err.message, text), "%s: %s", name, err.message);
    ds_unit_free(unit);
}

Test(schedule, refuses_what_a_form_cannot_take) {
    expect_refused("1f1b", 0, 4, 0, DS_ERR_VALUE, "at least 1 stage, not 0");
    expect_refused("1f1b", 4, -1, 0, DS_ERR_VALUE, "at least 1 microbatch, not -1");
    expect_refused("1f1b", 4, 4, 3, DS_ERR_VALUE, "virtual_stages = 3");
    expect_refused("interleaved", 4, 6, 2, DS_ERR_VALUE,
                   "(6) must be a multiple of the stages (4)");
    expect_refused("dualpipe", 3, 8, 0, DS_ERR_VALUE, "even number of stages, not 3");
    expect_refused("dualpipe", 4, 6, 0, DS_ERR_VALUE, "(2 * 4 = 8), not 6");
    expect_refused("dualpipe", 4, 9, 0, DS_ERR_VALUE, "not 9");
    expect_refused("dualpipev", 4, 7, 0, DS_ERR_VALUE, "(2 * 4 = 8), not 7");
    expect_refused("chimera", 5, 4, 0, DS_ERR_VALUE, "even number of stages, not 5");
    expect_refused("chimera", 4, 3, 0, DS_ERR_VALUE, "not 3");
    expect_refused("hanayo", 4, 4, 3, DS_ERR_VALUE, "two a wave, not 3");
    expect_refused("zb-h3", 4, 4, 0, DS_ERR_NAME, "did you mean \"zb-h");
    expect_refused("@mine", 4, 4, 0, DS_ERR_NAME, "no schedule @mine");
    expect_refused("gpipe", 1 << 20, 1 << 20, 0, DS_ERR_LIMIT, "16777216 items");
    expect_refused("gpipe", INT64_MAX, INT64_MAX, 0, DS_ERR_LIMIT, "16777216 items");
    expect_refused("interleaved", 2, 2, INT64_MAX, DS_ERR_LIMIT, "16777216 items");
    expect_refused("file:/nowhere/s.dir", 4, 4, 0, DS_ERR_IO, "/nowhere/s.dir");
}

static const char two_ranks[] = "dir 1\nschedule @mine {\n  chunks 2\n  place 0->0 1->1\n"
                                "  rank 0: F0.0 F0.1 B0.0 B0.1\n  rank 1: F1.0 B1.0 F1.1 B1.1\n}\n";

Test(schedule, finds_what_is_written_out) {
    schedule_case c;
    schedule_parse(&c, two_ranks);
    const ds_schedule *found;
    cr_expect_eq(make(c.unit, "@mine", 2, 2, 0, &found, &c.err), DS_OK);
    cr_expect_eq(found, c.schedule);
    cr_expect_eq(make(c.unit, "@mine", 3, 2, 0, &found, &c.err), DS_ERR_VALUE);
    cr_expect_not_null(strstr(c.err.message, "2 ranks, but the pipeline has 3 stages"));
    cr_expect_eq(make(c.unit, "@mine", 2, 5, 0, &found, &c.err), DS_ERR_VALUE);
    cr_expect_not_null(strstr(c.err.message, "2 microbatches, but the step has 5"));
    char path[] = "/tmp/ds_schedule_XXXXXX", name[64];
    int file = mkstemp(path);
    cr_assert_geq(file, 0);
    cr_assert_eq(write(file, two_ranks, strlen(two_ranks)), (ssize_t)strlen(two_ranks));
    close(file);
    snprintf(name, sizeof name, "file:%s", path);
    cr_expect_eq(make(c.unit, name, 2, 2, 0, &found, &c.err), DS_OK, "%s", c.err.message);
    cr_expect_str_eq(found->name, "mine");
    unlink(path);
    schedule_close(&c);
}

/* ---- the check ---- */

static void expect_wrong(const char *body, ds_status code, const char *text) {
    ds_buf source = {0};
    ds_buf_printf(&source, "dir 1\nschedule @s {\n%s\n}\n", body);
    schedule_case c;
    schedule_parse(&c, source.text);
    ds_status status = ds_schedule_check(c.schedule, &c.arena, &c.index, &c.err);
    ds_schedule_costs costs = {&(times){1, 1, 1, 1}, 1, 0, 0};
    if (!status) status = ds_schedule_time(&c.index, &costs, &c.arena, &c.timing, &c.err);
    cr_expect_eq(status, code, "%s", body);
    cr_expect(code == DS_OK || strstr(c.err.message, text), "%s: %s", body, c.err.message);
    ds_buf_deinit(&source);
    schedule_close(&c);
}

Test(check, names_what_is_wrong) {
    expect_wrong("chunks 1", DS_ERR_VALUE, "lists no rank");
    expect_wrong("chunks 2\nrank 0: F0.0", DS_ERR_VALUE, "2 chunks and 1 items");
    expect_wrong("chunks 1\nrank 1: F0.0", DS_ERR_VALUE, "lists rank 1, but has 1 ranks");
    expect_wrong("chunks 1\nrank 0: F0.0 F0.0", DS_ERR_VALUE, "F0.0 is listed twice");
    expect_wrong("chunks 1\nrank 0: F0.0 F0.9223372036854775807", DS_ERR_VALUE, "too few");
    expect_wrong("chunks 1\nrank 0: F0.0 B0.0 F0.1", DS_ERR_VALUE, "B0.1 is missing");
    expect_wrong("chunks 2\nrank 0: F0.0 F1.0 B1.0 W0.0", DS_ERR_VALUE, "B0.0 is missing");
    expect_wrong("chunks 1\nrank 0: B0.0 F0.1 B0.1", DS_ERR_VALUE, "F0.0 is missing");
    expect_wrong("chunks 2\nplace 0->0 1->1\nrank 0: F0.0 F1.0\nrank 1:", DS_ERR_VALUE,
                 "rank 0 lists F1.0, but chunk 1 of @s stands on stage 1");
    expect_wrong("chunks 2\nplace 0->0 1->1 0->1 1->0\nrank 0: F0.0 F0.1\nrank 1: F1.0 F1.1", DS_OK,
                 "");
    expect_wrong("chunks 2\nplace 0->0 1->1 0->1 1->0\nrank 0: F0.0 F1.0\nrank 1: F0.1 F1.1",
                 DS_ERR_VALUE, "none of the 2 copies");
    expect_wrong("chunks 2\nplace 0->0 1->1 0->1\nrank 0: F0.0\nrank 1: F1.0", DS_ERR_VALUE,
                 "3 places for 2 chunks");
    expect_wrong("chunks 1\nplace 0->1\nrank 0: F0.0", DS_ERR_VALUE,
                 "places chunk 0 on stage 1, but has ranks 0 to 0");
    expect_wrong("chunks 2\nplace 0->0 1->2\nrank 0: F0.0\nrank 1: F1.0", DS_ERR_VALUE,
                 "places chunk 1 on stage 2, but has ranks 0 to 1");
    expect_wrong("chunks 2\nplace 0->0 2->1\nrank 0: F0.0\nrank 1: F1.0", DS_ERR_VALUE,
                 "chunk 2 once too often, or has no such chunk");
    expect_wrong("chunks 2\nplace 0->0 0->1\nrank 0: F0.0\nrank 1: F1.0", DS_ERR_VALUE,
                 "chunk 0 once too often");
    expect_wrong("chunks 2\nrank 0: F0.0\nrank 1: F2.0", DS_ERR_VALUE,
                 "rank 1 lists F2.0, but @s has chunks 0 to 1");
    expect_wrong("chunks 1\nrank 0: F0.0&B0.0", DS_ERR_VALUE, "one waits for the other");
    expect_wrong("chunks 2\nrank 0: F0.0&F1.0", DS_ERR_VALUE, "one waits for the other");
    expect_wrong("chunks 1\nrank 0: F0.0 F0.1&B0.0 B0.1", DS_OK, "");
    expect_wrong("chunks 1\nrank 0: F0.0 R0.0 B0.0", DS_OK, "");
}

/* F0.0&F0.1&…: eight together, and one more. */
Test(check, how_many_are_issued_together) {
    for (int n = 2; n <= 9; n++) {
        ds_buf body = {0};
        ds_buf_put(&body, "chunks 1\nrank 0:");
        for (int i = 0; i < n; i++) ds_buf_printf(&body, "%sF0.%d", i ? "&" : " ", i);
        expect_wrong(body.text, n <= 8 ? DS_OK : DS_ERR_VALUE,
                     "rank 0 issues more than 8 items together");
        ds_buf_deinit(&body);
    }
}

Test(check, names_the_circle) {
    expect_wrong("chunks 1\nrank 0: B0.0 F0.0", DS_ERR_DEADLOCK,
                 "B0.0 on rank 0 waits for F0.0 on rank 0, which is behind");
    expect_wrong("chunks 2\nrank 0: F0.0 B0.0 F0.1 B0.1\nrank 1: F1.0 F1.1 B1.0 B1.1",
                 DS_ERR_DEADLOCK,
                 "B0.0 on rank 0 waits for B1.0 on rank 1, which is behind; F1.1 on rank 1 waits "
                 "for F0.1 on rank 0, which is behind");
    /* Rank 2 only waits for the circle of 0 and 1; it is not part of it. */
    expect_wrong("chunks 3\nrank 0: F0.0 B0.0 F0.1 B0.1\nrank 1: F1.0 F1.1 B1.0 B1.1\n"
                 "rank 2: F2.0 F2.1 B2.0 B2.1",
                 DS_ERR_DEADLOCK, "@s cannot be run in any order: ");
}

Test(check, durations_have_limits) {
    schedule_case c;
    schedule_open(&c, "1f1b", 2, 2, 0, (times){0});
    times huge = {INT64_MAX / 4, 1, 1, 0}, negative = {1, -1, 1, 0};
    ds_schedule_costs costs = {&huge, 1, 0, 0};
    cr_expect_eq(ds_schedule_time(&c.index, &costs, &c.arena, &c.timing, &c.err), DS_ERR_OVERFLOW);
    costs.chunks = &negative;
    cr_expect_eq(ds_schedule_time(&c.index, &costs, &c.arena, &c.timing, &c.err), DS_ERR_VALUE);
    costs = (ds_schedule_costs){(times[]){{1, 1, 1, 0}, {1, 1, 1, 0}, {1, 1, 1, 0}}, 3, 0, 0};
    cr_expect_eq(ds_schedule_time(&c.index, &costs, &c.arena, &c.timing, &c.err), DS_ERR_VALUE);
    schedule_close(&c);
}

/* ---- times ---- */

/* By hand: two stages, F 2 and 3, whole B 4 and 6, 1 between ranks. */
Test(timeline, of_two_stages_by_hand) {
    schedule_case c;
    schedule_open(&c, "1f1b", 2, 2, 0, (times){0});
    ds_schedule_costs costs = {(times[]){{2, 3, 1, 0}, {3, 4, 2, 0}}, 2, 0, 1};
    cr_assert_eq(ds_schedule_time(&c.index, &costs, &c.arena, &c.timing, &c.err), DS_OK);
    /*        F0.0 F0.1 B0.0 B0.1   F1.0 B1.0 F1.1 B1.1 */
    int64_t starts[] = {0, 2, 13, 22, 3, 6, 12, 15};
    int64_t ends[] = {2, 4, 17, 26, 6, 12, 15, 21};
    for (int i = 0; i < 8; i++) {
        cr_expect_eq(c.timing.start[i], starts[i], "item %d starts at %" PRId64, i,
                     c.timing.start[i]);
        cr_expect_eq(c.timing.end[i], ends[i]);
    }
    cr_expect_eq(c.timing.makespan, 26);
    cr_expect_eq(c.timing.bubble, 26 - 12);
    schedule_close(&c);
}

/* The same order, every item with a time of its own. */
Test(timeline, of_single_items_by_hand) {
    schedule_case c;
    schedule_open(&c, "1f1b", 2, 2, 0, (times){0});
    /*               F0.0 F0.1 B0.0 B0.1   F1.0 B1.0 F1.1 B1.1 */
    int64_t takes[] = {2, 3, 4, 5, 3, 6, 1, 2};
    int64_t starts[] = {0, 2, 13, 17, 3, 6, 12, 13};
    cr_assert_eq(ds_schedule_time_items(&c.index, takes, 1, &c.arena, &c.timing, &c.err), DS_OK);
    for (int i = 0; i < 8; i++) {
        cr_expect_eq(c.timing.start[i], starts[i], "item %d starts at %" PRId64, i,
                     c.timing.start[i]);
        cr_expect_eq(c.timing.end[i], starts[i] + takes[i]);
    }
    cr_expect_eq(c.timing.makespan, 22);
    schedule_close(&c);
}

/* A pair starts when both may and ends as one. */
Test(timeline, of_a_pair) {
    schedule_case c;
    schedule_parse(&c, "dir 1\nschedule @s {\n chunks 1\n rank 0: F0.0 F0.1&B0.0 B0.1\n}\n");
    cr_assert_eq(ds_schedule_check(c.schedule, &c.arena, &c.index, &c.err), DS_OK);
    schedule_time(&c, (times){10, 10, 10, 0}, 15, 0);
    cr_expect_eq(c.timing.start[1], 10);
    cr_expect_eq(c.timing.start[2], 10);
    cr_expect_eq(c.timing.end[2], 25);
    cr_expect_eq(c.timing.makespan, 45);
    cr_expect_eq(c.timing.peak, 2);
    schedule_time(&c, (times){10, 10, 10, 0}, 0, 0);
    cr_expect_eq(c.timing.makespan, 60);
    schedule_close(&c);
}

/* The same rules once more, in the most naive way: starts rise until nothing changes. */
static void naive_starts(const schedule_case *c, const times *t, int64_t comm, int64_t *start) {
    const ds_schedule_index *x = &c->index;
    memset(start, 0, x->n_items * sizeof *start);
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t i = 0; i < x->n_items; i++) {
            uint32_t rank;
            const ds_schedule_item *item = ds_schedule_item_at(x, i, &rank);
            int64_t wanted = 0;
            for (uint32_t j = 0; j < x->n_items; j++) {
                uint32_t other;
                const ds_schedule_item *o = ds_schedule_item_at(x, j, &other);
                bool same = o->microbatch == item->microbatch, own = o->chunk == item->chunk;
                bool before = other == rank && j + 1 == i;
                before |=
                    same && item->kind == 'F' && o->kind == 'F' && o->chunk + 1 == item->chunk;
                before |=
                    same && item->kind == 'B' && o->kind == 'B' && o->chunk == item->chunk + 1;
                before |= same && own && item->kind == 'B' && o->kind == 'F';
                before |= same && own && item->kind == 'W' && o->kind == 'B';
                if (!before) continue;
                bool split = x->item[2][o->microbatch * x->n_chunks + o->chunk] != DS_NO_ITEM;
                const times *d = &t[o->chunk];
                int64_t takes_ = o->kind == 'F' ? d->f : o->kind == 'W' ? d->w : d->b;
                if (o->kind == 'B' && !split) takes_ += d->w;
                int64_t at = start[j] + takes_ + (other == rank ? 0 : comm);
                if (at > wanted) wanted = at;
            }
            changed |= wanted != start[i];
            start[i] = wanted;
        }
    }
}

Test(timeline, equals_a_naive_fixed_point_on_random_durations) {
    const ds_schedule_form *form;
    ds_rng rng = {11};
    for (uint32_t i = 0; (form = ds_schedule_form_at(i)); i++)
        for (int64_t p = 2; p <= 4; p += 2) {
            schedule_case c;
            schedule_open(&c, form->name, p, 2 * p, 0, (times){2, 3, 1, 0});
            times *t = DS_NEW_N(&c.arena, times, c.index.n_chunks);
            for (uint32_t k = 0; k < c.index.n_chunks; k++)
                t[k] = (times){(int64_t)ds_rng_below(&rng, 20), (int64_t)ds_rng_below(&rng, 20),
                               (int64_t)ds_rng_below(&rng, 20), 0};
            int64_t comm = (int64_t)ds_rng_below(&rng, 5);
            ds_schedule_costs costs = {t, c.index.n_chunks, 0, comm};
            cr_assert_eq(ds_schedule_time(&c.index, &costs, &c.arena, &c.timing, &c.err), DS_OK);
            int64_t *start = DS_NEW_N(&c.arena, int64_t, c.index.n_items);
            naive_starts(&c, t, comm, start);
            cr_expect_arr_eq(c.timing.start, start, c.index.n_items * sizeof *start, "%s",
                             form->name);
            schedule_close(&c);
        }
}

/* Can the lists be worked off at all? Again and again, any rank whose next item has what it needs.
 */
static bool naive_runs(const schedule_case *c) {
    const ds_schedule_index *x = &c->index;
    bool *done = calloc(x->n_items, 1);
    uint32_t left = x->n_items;
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t i = 0; i < x->n_items; i++) {
            uint32_t rank, slot;
            const ds_schedule_item *item = ds_schedule_item_at(x, i, &rank);
            slot = (uint32_t)(item->microbatch * x->n_chunks + item->chunk);
            bool first = item->chunk == 0, last = item->chunk + 1 == x->n_chunks;
            bool ready = i == x->first[rank] || done[i - 1];
            if (item->kind == 'F') ready &= first || done[x->item[0][slot - 1]];
            if (item->kind == 'B') ready &= done[x->item[0][slot]];
            if (item->kind == 'B') ready &= last || done[x->item[1][slot + 1]];
            if (item->kind == 'W') ready &= done[x->item[1][slot]];
            if (done[i] || !ready) continue;
            done[i] = moved = true;
            left--;
        }
    }
    free(done);
    return left == 0;
}

/* Two items of a rank change places; the verdict is the naive one's. */
Test(timeline, finds_every_deadlock) {
    static const char *names[] = {"1f1b", "zb-h1", "interleaved", "chimera"};
    ds_rng rng = {5};
    int dead = 0, alive = 0;
    for (int turn = 0; turn < 2000; turn++) {
        schedule_case c;
        schedule_open(&c, names[turn % 4], 4, 4, 0, (times){1, 1, 1, 0});
        for (int swaps = 1 + turn % 3; swaps > 0; swaps--) {
            ds_schedule_rank *list = &c.schedule->ranks[ds_rng_below(&rng, 4)];
            uint32_t i = (uint32_t)ds_rng_below(&rng, list->n_items - 1);
            ds_schedule_item item = list->items[i];
            list->items[i] = list->items[i + 1];
            list->items[i + 1] = item;
        }
        cr_assert_eq(ds_schedule_check(c.schedule, &c.arena, &c.index, &c.err), DS_OK);
        ds_schedule_costs costs = {&(times){1, 1, 1, 0}, 1, 0, 0};
        ds_status status = ds_schedule_time(&c.index, &costs, &c.arena, &c.timing, &c.err);
        bool runs = naive_runs(&c);
        cr_assert_eq(status, runs ? DS_OK : DS_ERR_DEADLOCK);
        dead += !runs;
        alive += runs;
        schedule_close(&c);
    }
    cr_expect_gt(dead, 200);
    cr_expect_gt(alive, 200);
}

/* Eager warm-up hides communication that 1F1B waits for (arXiv 2211.05322, section 4.3). */
Test(timeline, eager_1f1b_hides_communication) {
    times t = {10, 10, 10, 0};
    schedule_case plain, eager;
    schedule_open(&plain, "1f1b", 4, 16, 0, t);
    schedule_open(&eager, "eager-1f1b", 4, 16, 0, t);
    schedule_time(&plain, t, 0, 8);
    schedule_time(&eager, t, 0, 8);
    cr_expect_lt(eager.timing.makespan, plain.timing.makespan);
    schedule_close(&plain);
    schedule_close(&eager);
}
