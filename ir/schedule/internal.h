/* Shared by the files of ir/schedule: what the generators write with. Not a public header. */
#ifndef DS_SCHEDULE_INTERNAL_H
#define DS_SCHEDULE_INTERNAL_H

#include "ir/schedule/schedule.h"

/* A schedule in the making: p ranks, m microbatches, v chunks on a rank (of one copy). */
typedef struct ds_schedule_maker {
    ds_unit *unit;
    const ds_schedule_options *options;
    int64_t p, m, v;
    ds_schedule_durations times;
    ds_schedule *schedule;
    uint32_t cap; /* items that a rank's list has room for */
} ds_schedule_maker;

/* Appends an item to a rank's list. */
void ds_schedule__put(ds_schedule_maker *maker, int64_t rank, char kind, int64_t chunk,
                      int64_t microbatch);
/* Issues the last item together with the next. */
void ds_schedule__join(ds_schedule_maker *maker, int64_t rank);

/* The stage of a chunk of a model that runs along the pipeline and back: 0 1 2 2 1 0 0 1 2 … */
int64_t ds_schedule__wave(const ds_schedule_maker *maker, int64_t chunk);

typedef ds_status ds_schedule_generator(ds_schedule_maker *maker, ds_error *err);

/* The generators of schedules.def. */
#define SCHEDULE(generator, ...) ds_schedule_generator ds_schedule__##generator;
#include "ir/schedule/schedules.def"
#undef SCHEDULE

#endif
