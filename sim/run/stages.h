/* How busy the stages of a pipeline are. */
#ifndef DS_RUN_STAGES_H
#define DS_RUN_STAGES_H

#include "sim/run/run.h"

/* Devices with the same coordinate on the mesh axis pp. Its times are those of the device that
 * computes longest (ties: the lowest): compute + exposed + idle = step, as in its account. */
typedef struct ds_stage {
    uint32_t device;    /* that one */
    uint32_t n_devices; /* of the stage */
    int64_t compute_ps, exposed_comm_ps, idle_ps;
    int64_t first_ps, last_ps; /* start of its first compute task, end of its last; tasks of no
                                  length do not count */
    int64_t bubble_ps;         /* last − first − compute */
    int64_t peak_bytes;        /* of memory, of its fullest device */
    int64_t sent_bytes;        /* by its devices to those of other stages, by sends; of a mesh with
                                  an axis pp also by collectives between stages, as bus bytes */
    int64_t sent_grad_bytes;   /* of these: gradients of weights, as of a table on two stages */
    int64_t sent_most_bytes;   /* by one of its devices */
} ds_stage;

typedef struct ds_stages {
    ds_stage *at; /* by coordinate; by class where no mesh of the program has an axis pp above 1 */
    uint32_t n;
    uint32_t *of_device; /* DS_NONE: in none */
    bool by_class;
    int64_t span_bubble_ps;   /* the most of the stages' bubble_ps */
    int64_t makespan_idle_ps; /* the most of their idle_ps */
} ds_stages;

/* Bytes beyond int64 are DS_MANY_BYTES. O(tasks + instances + devices). Source: the span is the
 * cost of Qi et al. arXiv:2401.10241, section 2.3, whose bubble rate is (span − busy) / span. */
void ds_stages_find(const ds_result *result, ds_stages *out);
void ds_stages_deinit(ds_stages *stages);

#endif
