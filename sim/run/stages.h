/* How busy the stages of a pipeline are. */
#ifndef DS_RUN_STAGES_H
#define DS_RUN_STAGES_H

#include "sim/run/run.h"

/* Devices with the same coordinate on the mesh axis pp. Times are those of the device that computes
 * longest (ties: the lowest): compute + exposed + idle = step, as in the device's account. */
typedef struct ds_stage {
    uint32_t device;    /* the device that computes longest */
    uint32_t n_devices; /* of the stage */
    int64_t compute_ps, exposed_comm_ps, idle_ps;
    int64_t first_ps, last_ps; /* start of the first compute task, end of the last; tasks of no
                                  length do not count */
    int64_t bubble_ps;         /* last − first − compute */
    int64_t peak_bytes;        /* memory of the stage's fullest device */
    int64_t sent_bytes;        /* by sends to devices of other stages; on a mesh with an axis pp
                                  also by collectives between stages, as bus bytes */
    int64_t
        sent_grad_bytes; /* the part that is gradients of weights, as of a table on two stages */
    int64_t sent_most_bytes; /* by one device */
} ds_stage;

typedef struct ds_stages {
    ds_stage *at; /* by coordinate; by class where no mesh of the program has an axis pp above 1 */
    uint32_t n;
    uint32_t *of_device; /* stage of each device; DS_NONE: no stage */
    bool by_class;
    int64_t span_bubble_ps;   /* the largest bubble_ps of a stage */
    int64_t makespan_idle_ps; /* the largest idle_ps of a stage */
} ds_stages;

/* Bytes beyond int64 are DS_MANY_BYTES. O(tasks + instances + devices). Source: the span is the
 * cost of Qi et al. arXiv:2401.10241, section 2.3, whose bubble rate is (span − busy) / span. */
void ds_stages_find(const ds_result *result, ds_stages *out);
void ds_stages_deinit(ds_stages *stages);

#endif
