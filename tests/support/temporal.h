/* Temporal programs as text, and their schedules carried out point by point. */
#ifndef DS_TEST_TEMPORAL_H
#define DS_TEST_TEMPORAL_H

#include "ir/temporal/temporal.h"

/* Lines "dims i=3 t=12" first, then a statement a line:
 *
 *     NAME DIMS BYTES [kept] : READ ; READ …        r t 8 : s{t} ; x{max(0, t-3):t+1} if t > 2
 *
 * DIMS is "-" or "i,t". A read gives an index for every dim of its source, in the header's order.
 * Sources may come later. Ends the test on an error. */
ds_temporal_program temporal_parse(ds_arena *arena, const char *text);

/* A random program: three dims at most, bounds up to 6, six statements at most, every read in
 * bounds. About half of the programs have a cycle. */
void temporal_random(uint64_t seed, ds_buf *out);

/* The program's points, by an evaluator that shares nothing with the scheduler. */
typedef struct temporal_world {
    const ds_temporal_program *program;
    int64_t base[64], n; /* number of a statement's first point; all points */
    char *needed, *ran, *freed;
    bool cyclic;
} temporal_world;

void temporal_world_init(const ds_temporal_program *program, temporal_world *out);
void temporal_world_deinit(temporal_world *world);
/* Carries a schedule out: every needed point once and no other, all that a point reads before the
 * point and not freed, all values but kept ones freed once. NULL, or the first offence as text
 * (static storage). */
const char *temporal_world_run(temporal_world *world, const ds_temporal_schedule *schedule);

#endif
