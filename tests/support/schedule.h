/* Schedules in tests: made or parsed, checked, timed. */
#ifndef DS_TEST_SCHEDULE_H
#define DS_TEST_SCHEDULE_H

#include "ir/schedule/schedule.h"

typedef struct schedule_case {
    ds_unit *unit;
    ds_arena arena;
    const ds_schedule *schedule;
    ds_schedule_index index;
    ds_schedule_timing timing;
    ds_error err;
} schedule_case;

/* Makes and checks the schedule; v = 0: the form's own number of chunks. Fails the test if it is
 * refused. Close it. */
void schedule_open(schedule_case *c, const char *name, int64_t p, int64_t m, int64_t v,
                   ds_schedule_durations times);
/* Parses a text that holds one schedule; no check. */
void schedule_parse(schedule_case *c, const char *text);
void schedule_close(schedule_case *c);

/* Times a checked one, all chunks alike; fails the test if that fails. */
void schedule_time(schedule_case *c, ds_schedule_durations times, int64_t pair, int64_t comm);

/* The largest span bubble of the schedule with free communication. */
int64_t schedule_bubble(const char *name, int64_t p, int64_t m, int64_t v,
                        ds_schedule_durations times, int64_t pair);

/* A rank's list as text: "F0.0 F0.1&B1.0". Fails the test if it is another. */
void schedule_expect_rank(const schedule_case *c, uint32_t rank, const char *text);

#endif
