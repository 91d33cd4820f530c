/* A simulation: what is asked for, and what comes out. */
#ifndef DS_RUN_RUN_H
#define DS_RUN_RUN_H

#include "ir/base/units.h"
#include "ir/passes/passes.h"
#include "ir/strategy/metrics.h"
#include "sim/engine/engine.h"
#include "sim/mem/mem.h"

/* What a communication's duration rests on: a profile's fit for such collectives, the links'
 * latency and bandwidth alone, or the program's {cost = …}. */
typedef enum ds_comm_origin {
    DS_COMM_PROFILE,
    DS_COMM_LINKS,
    DS_COMM_GIVEN,
    DS_COMM_ORIGIN_COUNT
} ds_comm_origin;
const char *ds_comm_origin_name(ds_comm_origin origin);

/* Where a class's time goes. At each instant a device is computing, else in exposed communication
 * (a started transfer), else idle: compute + exposed + idle = step, exactly, on every device. */
typedef struct ds_account {
    int64_t compute_ps;
    int64_t exposed_comm_ps;
    int64_t hidden_comm_ps; /* transfer time under compute */
    int64_t idle_ps;
    int64_t end_ps; /* its last task's end */
    int64_t n_tasks;
    double flop;                             /* sum over its compute tasks */
    ds_i128 flop_of[DS_DTYPE_COUNT];         /* the same exactly, by their dtype */
    ds_i128 product_flop_of[DS_DTYPE_COUNT]; /* of matrix products, convolutions, … alone */
    int64_t origin_ps[DS_COST_ORIGIN_COUNT]; /* compute_ps by where durations come from */
    int64_t fitted_ps;                       /* of the roofline: by a profile's efficiency curves */
    int64_t extrapolated_ps;
    int64_t
        comm_origin_ps[DS_COMM_ORIGIN_COUNT]; /* its transfers' durations, overlaps counted twice */
    int64_t comm_extrapolated_ps;
} ds_account;

typedef struct ds_sim_options {
    uint32_t max_instances; /* 0: DS_PLAN_MAX_INSTANCES */
    bool unfold;
    uint32_t unfold_up_to; /* ds_plan_options */
    bool stepwise; /* transfers message by message */
    /* What passes make of a model is not verified with numbers (ds_model_step.trusted): for sweeps,
     * whose rows are run again by themselves before anybody relies on one. */
    bool trust_passes;
    ds_plan_ground *ground; /* for many runs, one after the other; NULL: none */
    ds_cost_mode cost_mode;
    ds_mem_mode mem_mode;
    bool keep_masks;            /* ds_mem_options */
    ds_mem_framework framework; /* the same */
    ds_progress progress;
    void *progress_context;
} ds_sim_options;

/* Sets what the unit's scenario says about a run (`cost`, `network`, `memory`, `masks`,
 * `framework`) and leaves the rest. `train` and `strategy` beside a `program` are
 * DS_ERR_UNSUPPORTED. The unit must be verified and
 * bound. */
ds_status ds_sim_options_read(const ds_binding *binding, ds_sim_options *options, ds_error *err);

/* A change of the strategy of a step that does not fit, and what it would bring. */
typedef struct ds_advice {
    char change[160]; /* "zero = 3", "recompute = full, microbatches = 8" */
    bool runs;        /* the passes accept it; else the metrics are 0 */
    ds_metrics metrics;
} ds_advice;

/* A cut of a pipeline that is faster than the one that was simulated. */
typedef struct ds_faster_cut {
    uint32_t stage; /* the busiest one */
    double excess;  /* what it works more on a microbatch than stages do on the average: 0.12 */
    int64_t *turns; /* of loops, in each chunk: stage_layers; owned */
    uint32_t n_turns;
    int64_t step_ps;
    bool fits;
} ds_faster_cut;

/* One of the programs of a scenario with `jobs`. */
typedef struct ds_job_result {
    const char *name;
    ds_model_step *step; /* of a model; else NULL; owned */
    uint32_t n_devices;
    int64_t steps;
    int64_t start_ps, end_ps; /* when its devices are free for it; its last task's end */
    int64_t alone_ps;         /* from one to the other, with the cluster to itself */
    int64_t samples;          /* a step; 0: not stated */
} ds_job_result;

/* A link that transfers of several jobs load has an entry for each of them. */
typedef struct ds_job_link {
    uint32_t link, job;
} ds_job_link;

/* Sets what follows from other results, of a step simulated or put together: throughput. */
void ds_metrics_derive(ds_metrics *metrics);

/* Everything about one run. Owns what it points to but source and profiles. */
typedef struct ds_result {
    const ds_binding *source; /* what was asked to run */
    ds_model_step *step;      /* of a model: what passes made, which is what was run; else NULL */
    ds_plan *plan;
    ds_run run;
    ds_mem mem;
    ds_mem_host *hosts; /* at which something is kept */
    uint32_t n_hosts;
    ds_account *accounts; /* per class */
    uint32_t critical;    /* the class whose last task ends last (ties: lowest device) */
    ds_metrics metrics;   /* ir/strategy/metrics.def; without degrees and prices */
    bool counts_samples;  /* throughput_per_s does; of jobs: if all of them state `batch` */
    double model_flop;    /* of a model: what a step must compute; 0 for a program */
    double padding_flop;  /* of a model: products on rows of experts' buffers that no token uses,
                           * which model_flop leaves out */
    double useful;        /* of a model: model_flop over the products that were executed */
    uint32_t fullest;     /* the class of the device nearest to (or furthest over) its capacity */
    ds_advice *advice;    /* of ds_advise: single changes, then combinations; NULL: not asked */
    uint32_t n_advice;
    struct ds_monte_carlo *monte_carlo; /* of ds_jitter_runs; NULL: not asked */
    ds_faster_cut *cut;  /* of ds_balance_advise; NULL: not asked, or there is none */
    ds_job_result *jobs; /* NULL without */
    uint32_t n_jobs;
    ds_job_link *shared; /* ascending by link, then job */
    uint32_t n_shared;
} ds_result;

/* Plans, runs, and accounts for the scenario of a verified, bound unit. O(tasks log tasks).
 * Of a `model` the passes make the step that `train` and `strategy` ask for, and that is run; the
 * result keeps it. With balance = time the scenario is given the stage_layers that are found
 * (sim/run/balance.h). Of `jobs` each is simulated alone first, then all of them together: that
 * run is the result. `binding` must outlive the result. A program that does not fit in memory
 * is a result with fits == false, not an error. */
ds_status ds_simulate(const ds_binding *binding, const ds_profiles *profiles,
                      const ds_sim_options *options, ds_result **out, ds_error *err);
void ds_result_free(ds_result *result);
/* Adds the runs with jitter that the scenario asks for (sim/run/montecarlo.h). The result must
 * have been simulated with `unfold`. */
struct ds_jitter;
ds_status ds_jitter_runs(ds_result *result, const struct ds_jitter *jitter, uint32_t threads,
                         ds_error *err);

/* ---- what reports and other ways to simulate a step share ---- */

/* part / whole, 0 where the whole is 0. */
static inline double ds_ratio(double part, double whole) {
    return whole > 0 ? part / whole : 0;
}

/* Memory of a device of the class; 0: not known. */
static inline int64_t ds_class_capacity(const ds_plan *plan, uint32_t cls) {
    return ds_profiles_kind(plan->profiles, plan->classes[cls].kind)->memory_bytes;
}

/* Samples a step, if *out is 0: the first dim of the first input that is split over dp. */
ds_status ds_model_samples(const ds_binding *source, int64_t *out, ds_error *err);
/* FLOPs of the model's matrix products, convolutions, attention and LSTM cells forward; three times
 * that if it trains: each product has two in the backward pass, one by either operand. Products on
 * rows of experts' buffers that no token uses are *padding instead. */
ds_status ds_model_flop(const ds_binding *source, bool trains, double *out, double *padding,
                        ds_error *err);

/* An item of the schedule. */
typedef struct ds_item_call {
    char kind; /* F, B, W or R */
    int64_t chunk, microbatch;
} ds_item_call;

/* Which item a scope is in; false if it is in none. O(depth). */
bool ds_item_call_of(const ds_result *result, uint32_t scope, ds_item_call *out);

/* Devices of one hardware kind. */
typedef struct ds_kind_total {
    uint32_t kind;
    uint32_t profile; /* of the first class */
    uint32_t n_devices;
    ds_i128 flop_of[DS_DTYPE_COUNT], product_flop_of[DS_DTYPE_COUNT]; /* of all of them */
    double flop, product_flop;                                        /* the sums */
    double peak_s, product_s; /* seconds at peak; of a model, peak_s of its useful products */
    bool peak_is_known;
} ds_kind_total;
/* In order of their first class; on the heap. O(classes · kinds). */
ds_kind_total *ds_kind_totals(const ds_result *result, uint32_t *n);

#endif
