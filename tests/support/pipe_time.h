/* Pipelined programs under given times, in tests: a balanced model cut into stages. Every call
 * of an item takes the time that the test gives, a send takes `send_ps`, and sums and means take no time. */
#ifndef DS_TEST_PIPE_TIME_H
#define DS_TEST_PIPE_TIME_H

#include "sim/report/analysis.h"
#include "tests/support/step.h"

typedef struct pipe_program {
    step_case c; /* up to the pipeline pass */
    bool splits; /* some items are W */
    int64_t send_ps;
    ds_profiles *profiles;
    ds_result *result; /* of the last simulation */
    ds_stages stages;
} pipe_program;

/* An MLP with a layer for each chunk and one sample in a microbatch, without an optimizer. v = 0:
 * the schedule's own number of chunks. */
void pipe_open(pipe_program *p, const char *schedule, int64_t stages, int64_t microbatches,
               int64_t v);
/* The same under 1F1B with two stages of two layers and of one layer: a layer's F, B and W are the durations.
 * `p2p` is the word of the strategy. */
void pipe_open_uneven(pipe_program *p, const char *p2p, int64_t microbatches);
void pipe_close(pipe_program *p);

/* Simulates it with a chunk's F, B, W (B and W in one: b + w). Fails the test if that fails. */
void pipe_simulate(pipe_program *p, ds_schedule_durations times);

/* The most chunks that are in flight on a stage at once: of what F makes for W, or for B and W in
 * one, buffers that are alive in the last simulation. */
uint32_t pipe_in_flight(const pipe_program *p, uint32_t stage);

#endif
