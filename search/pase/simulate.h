/* Strategies of a search as simulated steps: a scenario, given as text, is loaded, its model read
 * as a graph, and run again with a strategy in place of its own. */
#ifndef DS_PASE_SIMULATE_H
#define DS_PASE_SIMULATE_H

#include "ir/lang/lang.h"
#include "search/pase/apply.h"
#include "sim/cost/cost.h"

/* Where a scenario comes from. All of it must outlive what is made of it. */
typedef struct ds_pase_source {
    const char *path; /* what imports are looked for from */
    const char *text;
    size_t n;
    ds_load_options load;
    const ds_setting *settings;
    uint32_t n_settings;
} ds_pase_source;

/* A scenario whose model can be searched. */
typedef struct ds_pase_case {
    ds_unit *unit;
    ds_binding binding;
    ds_model_step *step;   /* as `lower` leaves it */
    ds_pase_graph *graph;  /* of the step */
    ds_pase_graph *folded; /* of that: what programs can have */
} ds_pase_case;

/* Errors: those of loading, verifying, lowering and ds_pase_graph_read. Close it either way. */
ds_status ds_pase_case_open(const ds_pase_source *source, ds_pase_case *out, ds_error *err);
void ds_pase_case_close(ds_pase_case *c);

/* What a step takes. */
typedef struct ds_pase_time {
    int64_t step_ps;
    int64_t peak_bytes; /* of the fullest device */
    bool fits;
} ds_pase_time;

/* The scenario as it stands, at fitted costs. Errors: the verifier's first, the passes', the
 * simulator's. O(a simulation). */
ds_status ds_pase_simulate(const ds_pase_source *source, const ds_profiles *profiles,
                           ds_pase_time *out, ds_error *err);
/* A strategy for a graph, which is of a case of the same model, of any batch. */
typedef struct ds_pase_assigned {
    const ds_pase_graph *graph;
    const ds_pase_splits *splits;
    int64_t devices; /* all those of the topology */
    bool aligned;    /* align.h */
} ds_pase_assigned;

/* The scenario with the strategy instead of its own (ds_pase_apply). */
ds_status ds_pase_simulate_strategy(const ds_pase_source *source, const ds_profiles *profiles,
                                    const ds_pase_assigned *strategy, ds_pase_time *out,
                                    ds_error *err);

#endif
