#include "tests/support/schedule.h"

#include "ir/lang/lang.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <string.h>

static void begin(schedule_case *c) {
    *c = (schedule_case){.unit = ds_unit_new()};
    ds_arena_init(&c->arena);
}

void schedule_open(schedule_case *c, const char *name, int64_t p, int64_t m, int64_t v,
                   ds_schedule_durations times) {
    begin(c);
    ds_schedule_options options = {name, p, m, v, times.f, times.b, times.w};
    cr_assert_eq(ds_schedule_make(c->unit, &options, &c->schedule, &c->err), DS_OK,
                 "%s p=%" PRId64 " m=%" PRId64 ": %s", name, p, m, c->err.message);
    cr_assert_eq(ds_schedule_check(c->schedule, &c->arena, &c->index, &c->err), DS_OK,
                 "%s p=%" PRId64 " m=%" PRId64 ": %s", name, p, m, c->err.message);
    cr_assert_eq(c->index.n_ranks, p);
    cr_assert_eq(c->index.n_microbatches, m);
}

void schedule_parse(schedule_case *c, const char *text) {
    begin(c);
    ds_module *module = ds_unit_add_module(c->unit, "test.dir", text, strlen(text));
    cr_assert_eq(ds_parse(module, &c->err), DS_OK, "%s", c->err.message);
    cr_assert_eq(module->schedules.n, 1);
    c->schedule = module->schedules.at[0];
}

void schedule_close(schedule_case *c) {
    ds_arena_deinit(&c->arena);
    ds_unit_free(c->unit);
}

void schedule_time(schedule_case *c, ds_schedule_durations times, int64_t pair, int64_t comm) {
    ds_schedule_costs costs = {&times, 1, pair, comm};
    cr_assert_eq(ds_schedule_time(&c->index, &costs, &c->arena, &c->timing, &c->err), DS_OK,
                 "@%s: %s", c->schedule->name, c->err.message);
}

int64_t schedule_bubble(const char *name, int64_t p, int64_t m, int64_t v,
                        ds_schedule_durations times, int64_t pair) {
    schedule_case c;
    schedule_open(&c, name, p, m, v, times);
    schedule_time(&c, times, pair, 0);
    int64_t bubble = c.timing.bubble;
    schedule_close(&c);
    return bubble;
}

void schedule_expect_rank(const schedule_case *c, uint32_t rank, const char *text) {
    const ds_schedule_rank *list = &c->schedule->ranks[rank];
    ds_buf got = {0};
    for (uint32_t i = 0; i < list->n_items; i++) {
        const ds_schedule_item *item = &list->items[i];
        const char *separator = i + 1 == list->n_items ? "" : item->with_next ? "&" : " ";
        ds_buf_printf(&got, "%c%" PRId64 ".%" PRId64 "%s", item->kind, item->chunk,
                      item->microbatch, separator);
    }
    cr_expect_str_eq(got.text, text, "rank %u of @%s", rank, c->schedule->name);
    ds_buf_deinit(&got);
}
