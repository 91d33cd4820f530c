/* A simulation: the options of a run, its result, and the functions from one to the other. */
#ifndef DS_RUN_RUN_H
#define DS_RUN_RUN_H

#include "ir/base/units.h"
#include "ir/passes/passes.h"
#include "ir/strategy/metrics.h"
#include "sim/engine/engine.h"
#include "sim/mem/mem.h"

/* ---- the options of a run ---- */

/* Loops of fewer turns have little to gain from repeat_turns. */
#define DS_REPEAT_TURNS 8

typedef struct ds_sim_options {
    uint32_t max_instances; /* 0: DS_PLAN_MAX_INSTANCES */
    bool unfold;
    uint32_t unfold_up_to; /* ds_plan_options */
    /* Loops of so many turns or more whose turns do the same are simulated for three turns, and the
     * others take what the second takes (sim/plan/repeat.c); 0: all turns are simulated. For results
     * of which no task of a turn is asked for by itself. */
    uint32_t repeat_turns;
    bool stepwise; /* transfers message by message */
    /* The step that passes make is not verified with numbers (ds_model_step.trusted): for sweeps,
     * since whoever relies on a row runs that row by itself first. */
    bool trust_passes;
    ds_plan_ground *ground; /* shared by runs made one after the other; NULL: none */
    ds_cost_mode cost_mode;
    ds_mem_mode mem_mode;
    bool keep_masks;            /* ds_mem_options */
    ds_mem_framework framework; /* the same */
    ds_progress progress;
    void *progress_context;
} ds_sim_options;

/* Sets the options that the unit's scenario gives (`cost`, `network`, `memory`, `masks`,
 * `framework`) and leaves the rest. `train` and `strategy` beside a `program` are
 * DS_ERR_UNSUPPORTED. The unit must be verified and bound. */
ds_status ds_sim_options_read(const ds_binding *binding, ds_sim_options *options, ds_error *err);

/* ---- the result of a run ---- */

/* The source of a communication's duration: a profile's fit for such collectives, the links'
 * latency and bandwidth alone, or the program's {cost = …}. */
typedef enum ds_comm_origin {
    DS_COMM_PROFILE,
    DS_COMM_LINKS,
    DS_COMM_GIVEN,
    DS_COMM_ORIGIN_COUNT
} ds_comm_origin;
const char *ds_comm_origin_name(ds_comm_origin origin);

/* Where the time of a class goes (a class: devices that do the same, simulated as one). At each
 * instant a device is computing, else in exposed communication (a started transfer), else idle:
 * compute + exposed + idle = step, exactly, on every device. */
typedef struct ds_account {
    int64_t compute_ps;
    int64_t exposed_comm_ps;
    int64_t hidden_comm_ps; /* transfer time under compute */
    int64_t idle_ps;
    int64_t end_ps; /* of the last task */
    int64_t n_tasks;
    double flop;                             /* sum over compute tasks */
    ds_i128 flop_of[DS_DTYPE_COUNT];         /* the same, exact, by dtype */
    ds_i128 product_flop_of[DS_DTYPE_COUNT]; /* of matrix products, convolutions, … alone */
    int64_t origin_ps[DS_COST_ORIGIN_COUNT]; /* compute_ps by the source of durations */
    int64_t fitted_ps;                       /* of the roofline: by a profile's fits */
    int64_t extrapolated_ps;
    int64_t comm_origin_ps[DS_COMM_ORIGIN_COUNT]; /* of transfers; overlaps count twice */
    int64_t comm_extrapolated_ps;
} ds_account;

/* A change of the strategy of a step that does not fit, and the effect of the change. */
typedef struct ds_advice {
    char change[160]; /* "zero = 3", "recompute = full, microbatches = 8" */
    bool runs;        /* the passes accept the change; else the metrics are 0 */
    ds_metrics metrics;
} ds_advice;

/* A cut of a pipeline that is faster than the simulated cut. */
typedef struct ds_faster_cut {
    uint32_t stage; /* the busiest stage of the simulated cut */
    double excess;  /* 0.12: that stage works 12 % longer than the average stage */
    int64_t *turns; /* of loops in each chunk, as stage_layers; owned */
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
    int64_t start_ps, end_ps; /* when its devices are free for the job; end of its last task */
    int64_t alone_ps;         /* time from start to end with the cluster to itself */
    int64_t samples;          /* a step; 0: not known */
} ds_job_result;

/* A job that loads a link which other jobs load, too. */
typedef struct ds_job_link {
    uint32_t link, job;
} ds_job_link;

/* Times of the turns of the dim that counts tokens (ir/strategy/tokens.h). A turn ends with the last
 * of its operations, and a turn that ends before an earlier one takes no time. What runs before the
 * first turn counts to the first, what runs after the last to the last. Turns at the end that only
 * store what turns before have made are part of the turn before. So first_ps and ps are the step. */
typedef struct ds_cache_step {
    int64_t turn, bytes; /* of all stores in tiles, from then on */
} ds_cache_step;

typedef struct ds_token_times {
    const char *dim;
    int64_t prompt, batch;
    int64_t first_ps; /* until the turn prompt - 1 has ended, which makes the first token */
    int64_t *ps;      /* of each turn from `prompt` on; owned */
    uint32_t n;
    double mean_ps;      /* of ps */
    double per_s;        /* tokens of the whole batch */
    int64_t cache_bytes; /* on a device of the fullest class: stores that turns fill and read */
    ds_cache_step
        *cache; /* of stores in tiles: the turns in which they hold more than before; owned */
    uint32_t n_cache;
} ds_token_times;

/* Sets what follows from other results, of a step simulated or put together: throughput. */
void ds_metrics_derive(ds_metrics *metrics);
/* Takes the peak and the capacity (0: not known) of one class after the other into the memory of
 * the fullest and into `fits`, which is true before; true if the class is the fullest so far. */
bool ds_metrics_add_peak(ds_metrics *metrics, bool first, int64_t peak_bytes, int64_t room_bytes);

/* Everything about one run. Owns all that its fields point to, except source. */
typedef struct ds_result {
    const ds_binding *source; /* the scenario that ran */
    ds_model_step *step;      /* of a model: the step that passes made and that ran; else NULL */
    ds_plan *plan;
    ds_run run;
    ds_mem mem;
    ds_mem_host *hosts; /* that keep something */
    uint32_t n_hosts;
    ds_account *accounts; /* per class */
    uint32_t critical;    /* the class whose last task ends last (ties: lowest device) */
    ds_metrics metrics;   /* ir/strategy/metrics.def; without degrees and prices */
    bool counts_samples;  /* in throughput_per_s; of jobs: if every job's samples are known */
    double model_flop;    /* of a model: what a step must compute, with LoRA the forward pass twice;
                           * 0 for a program */
    double padding_flop;  /* of a model: products on rows of experts' buffers that no token uses,
                           * which model_flop leaves out */
    double useful;        /* of a model: model_flop over the products that were executed */
    ds_token_times *tokens; /* NULL: the scenario has no `tokens` */
    uint32_t fullest;       /* the class of the device nearest to (or furthest over) its capacity */
    ds_advice *advice;      /* of ds_advise: single changes, then combinations; NULL: not asked */
    uint32_t n_advice;
    struct ds_monte_carlo *monte_carlo; /* of ds_jitter_runs; NULL: not asked */
    ds_faster_cut *cut;  /* of ds_balance_advise; NULL: not asked, or no cut is faster */
    ds_job_result *jobs; /* NULL: the scenario has no jobs */
    uint32_t n_jobs;
    ds_job_link *shared; /* ascending by link, then job */
    uint32_t n_shared;
} ds_result;

/* ---- the functions ---- */

/* Plans, runs, and accounts for the scenario of a verified, bound unit. O(tasks log tasks).
 * Of a `model` the passes make the step that `train` and `strategy` ask for; that step runs, and
 * the result keeps the step. balance = time and dp_shares = time write the numbers found into the
 * scenario (balance.h, shares.h). Each of several `jobs` is simulated alone first; the result is
 * that of all jobs together. `binding` must outlive the result. A program that does not fit in
 * memory is a result with fits == false, not an error. */
ds_status ds_simulate(const ds_binding *binding, const ds_profiles *profiles,
                      const ds_sim_options *options, ds_result **out, ds_error *err);
void ds_result_free(ds_result *result);
/* Settings of the scenario that simulation finds: parts of a batch (shares.h), a cut (balance.h),
 * factors (factors.h). Are any asked for that have not been found? Finds them, and writes them into the
 * scenario of source->unit; does nothing where none is open. Errors: those of ds_simulate. */
bool ds_simulate_finds(const ds_binding *source);
ds_status ds_simulate_settings(const ds_binding *source, const ds_profiles *profiles,
                               const ds_sim_options *options, ds_error *err);
struct ds_jitter;
/* Adds the runs with jitter that the scenario asks for (sim/run/montecarlo.h). The result must
 * have been simulated with `unfold`. */
ds_status ds_jitter_runs(ds_result *result, const struct ds_jitter *jitter, uint32_t threads,
                         ds_error *err);

/* ---- shared by reports and other ways to simulate a step ---- */

/* part / whole, 0 where the whole is 0. */
static inline double ds_ratio(double part, double whole) {
    return whole > 0 ? part / whole : 0;
}

/* Memory of a device of the class; 0: not known. */
static inline int64_t ds_class_capacity(const ds_plan *plan, uint32_t cls) {
    return ds_profiles_kind(plan->profiles, plan->classes[cls].kind)->memory_bytes;
}

/* Where *out is 0, sets *out to the samples of a step: the first dim of the first input that is
 * split over dp. */
ds_status ds_model_samples(const ds_binding *source, int64_t *out, ds_error *err);
/* FLOPs of the model's matrix products, convolutions, attention and LSTM cells forward; three times
 * as many if the model trains, since the backward pass has two products for each, one by either
 * operand. Products on rows of experts' buffers that no token uses count as *padding instead. */
ds_status ds_model_flop(const ds_binding *source, bool trains, double *out, double *padding,
                        ds_error *err);

/* An item of the schedule. */
typedef struct ds_item_call {
    char kind; /* F, B, W or R */
    int64_t chunk, microbatch;
} ds_item_call;

/* The item of the schedule around a scope; false: no item. O(depth). */
bool ds_item_call_of(const ds_result *result, uint32_t scope, ds_item_call *out);

/* Devices of one hardware kind. */
typedef struct ds_kind_total {
    uint32_t kind;
    uint32_t profile; /* of the first class */
    uint32_t n_devices;
    ds_i128 flop_of[DS_DTYPE_COUNT], product_flop_of[DS_DTYPE_COUNT]; /* of all devices */
    double flop, product_flop;                                        /* the sums */
    double peak_s, product_s; /* seconds at peak; of a model, peak_s counts useful products only */
    bool peak_is_known;
} ds_kind_total;
/* Is operations' time of that kind a lower bound: at the catalogue's peaks, which no profile says
 * anything of? O(classes). */
bool ds_result_is_bound(const ds_result *result, uint32_t kind);
/* Kinds in order of their first class; on the heap. O(classes · kinds). */
ds_kind_total *ds_kind_totals(const ds_result *result, uint32_t *n);

#endif
