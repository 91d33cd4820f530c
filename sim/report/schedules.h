/* One model under every schedule of its pipeline: the time, memory and traffic of each schedule. */
#ifndef DS_REPORT_SCHEDULES_H
#define DS_REPORT_SCHEDULES_H

#include "sim/report/report.h"

/* A schedule, simulated. If the schedule was refused, all numbers from step_ps on are 0. */
typedef struct ds_schedule_row {
    const char *name;
    int64_t virtual_stages; /* chunks on a stage that were asked for */
    bool own;               /* the scenario's schedule */
    const char *refused;    /* the reason why the passes refuse; NULL: the schedule was run */
    bool fits;
    int64_t step_ps;
    int64_t span_bubble_ps;  /* ds_stages */
    double bubble_fraction;  /* ds_result */
    int64_t peak_bytes;      /* of a device of the stage that needs most memory, */
    uint32_t peak_stage;     /* … and that stage; of several the first */
    int64_t missing_bytes;   /* on the fullest device; 0: the step fits */
    int64_t sent_bytes;      /* from stage to stage in a step */
    int64_t sent_grad_bytes; /* the part that is gradients of weights */
    int64_t sent_most_bytes; /* by one device */
    uint32_t copies;         /* of the weights */
} ds_schedule_row;

typedef struct ds_schedule_table {
    const ds_binding *source;
    int64_t stages, microbatches;
    DS_VEC(ds_schedule_row)
    rows; /* every form, in the order of ds_schedule_form_at; then the scenario's own
             schedule if written out */
    ds_strtab names;
} ds_schedule_table;

/* Simulates the scenario's model once for every form, all else as the scenario says: with its
 * virtual_stages where the form takes any number, else with the form's own. A schedule that the
 * passes refuse is a row. The unit's scenario changes during the call and is restored. Errors:
 * DS_ERR_VALUE for a `program` or a strategy without stages; knobs that cannot be read. */
ds_status ds_schedules_compare(const ds_binding *source, const ds_profiles *profiles,
                               const ds_sim_options *options, ds_schedule_table *out,
                               ds_error *err);
void ds_schedule_table_deinit(ds_schedule_table *table);
/* Does any schedule run and fit? */
bool ds_schedule_table_any(const ds_schedule_table *table);

/* For a terminal; one record a row, picoseconds and bytes; the same as one JSON object. */
void ds_report_schedules(const ds_schedule_table *table, ds_buf *out);
void ds_report_schedules_csv(const ds_schedule_table *table, ds_buf *out);
void ds_report_schedules_json(const ds_schedule_table *table, ds_buf *out);

#endif
