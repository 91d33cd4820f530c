/* Plans for mixed clusters: machines of several kinds train one model.
 *
 * A plan is one of two shapes, both of which the strategy's knobs say:
 *
 *     stages     kind A: 2 stages of 4 replicas ─► kind B: 3 stages of 8 replicas
 *                stage_dp = [4, 4, 8, 8, 8], stage_tp, stage_layers
 *     replicas   each pipeline on machines of one kind, side by side, with unequal parts of the batch
 *                dp_shares = [5, 5, 2, 2, 2], pp, tp, stage_layers, order = "dp pp cp tp"
 *
 * Machines may stay idle. The search lists the structures, cuts the layers for each, estimates
 * (estimate.c), simulates the best estimates whole, and then tries changes of the best ones, each
 * simulated whole (search.c). The winner is the fastest simulated plan, so an estimate never decides
 * between two simulated plans. */
#ifndef DS_SEARCH_MIXED_MIXED_H
#define DS_SEARCH_MIXED_MIXED_H

#include "ir/base/error.h"
#include "ir/base/str.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    DS_MIXED_KINDS = 4,
    DS_MIXED_STAGES = 64,
    DS_MIXED_TPS = 4,     /* 1, 2, 4, 8 */
    DS_MIXED_SAMPLES = 6, /* of a replica in a microbatch: 1, 2, 4, 8, 16, 32 */
    DS_MIXED_SPANS = 3    /* of a sum of gradients: in a machine, over two, over all of a kind */
};

/* What one piece of the model costs on tp devices of a kind; arrays by log2 of a replica's samples in
 * a microbatch. An end is all outside of layers: the embedding, the head and the loss. */
typedef struct ds_mixed_piece {
    bool known; /* false: the kind's machine or the model does not take this tp */
    double layer_s[DS_MIXED_SAMPLES], ends_s[DS_MIXED_SAMPLES]; /* forward and backward */
    double layer_update_s, ends_update_s;                       /* the optimizer's */
    double layer_bytes, ends_bytes; /* a device: weights, gradients and optimizer state */
    double layer_sample_bytes, ends_sample_bytes; /* a device: activations kept, for a sample */
} ds_mixed_piece;

typedef struct ds_mixed_kind {
    const char *name;        /* the device type */
    uint32_t n_devices;      /* of this kind */
    uint32_t per_machine;    /* devices of a machine: those with fast links to each other */
    const uint32_t *devices; /* [n_devices]: their numbers in the topology */
    double capacity_bytes;
    double usd_per_hour, watts; /* of a device; 0: not known */
    double failures_per_hour;   /* of a device: preemptions and failures */
    /* Of a sum of gradients, a byte of weights: of all_reduces, and of zero = 1's scatters and gathers. */
    double sync_s_per_byte[2][DS_MIXED_SPANS];
    bool hides_sums; /* the sums run beside the backward pass */
    ds_mixed_piece pieces[DS_MIXED_TPS];
} ds_mixed_kind;

typedef struct ds_mixed_problem {
    uint32_t n_kinds;
    ds_mixed_kind kinds[DS_MIXED_KINDS];
    uint32_t n_devices;          /* of the topology */
    uint32_t layers;             /* 1: a model that stages do not cut */
    int64_t batch, sample_units; /* samples a step; tokens of a sample, 1 without tokens */
    double layer_params, ends_params;
    int64_t width; /* of a layer; what dp does not divide, zero = 1 leaves whole; 0: unknown */
    double mixed_sync_s_per_byte[2]; /* as a kind's, over devices of all kinds */
    double edge_bytes;               /* of a sample between two layers */
    double between_bytes_per_s;      /* of the link between kinds; 0: no limit */
    bool cuts;                       /* stages are allowed */
    bool recomputes;                 /* all plans run the layers of the forward pass again */
} ds_mixed_problem;

typedef struct ds_mixed_stage {
    uint8_t kind;
    uint16_t dp, tp, layers;
} ds_mixed_stage;

typedef struct ds_mixed_group {
    uint8_t kind;
    uint16_t replicas;
    int64_t share; /* samples of a microbatch, of all replicas of the group */
} ds_mixed_group;

typedef struct ds_mixed_plan {
    bool side_by_side; /* the shape of replicas */
    uint8_t n_stages, n_groups;
    uint8_t zero;
    bool recompute, eager;
    int64_t microbatches;
    ds_mixed_stage stages[DS_MIXED_STAGES]; /* side by side: kind and dp mean nothing */
    ds_mixed_group groups[DS_MIXED_KINDS];  /* side by side alone */
    /* Stages take the devices of all kinds one after the other, in this order, so that a stage may lie
     * on two kinds; its `kind` is then the slowest. false: each stage on its own kind. */
    bool in_order;
    uint8_t order[DS_MIXED_KINDS];
    double estimate_s; /* HUGE_VAL: does not fit */
    /* of the simulation */
    bool fits;
    int64_t step_ps, peak_bytes;
    double
        busy_s[DS_MIXED_STAGES]; /* of stages one after the other: compute and exposed transfers */
} ds_mixed_plan;

/* ---- parts of a plan ---- */

uint32_t ds_mixed_used(const ds_mixed_problem *problem, const ds_mixed_plan *plan,
                       uint32_t kind); /* devices */
/* The devices of a plan in the order of the mesh; returns how many. `out` has n_devices places. */
uint32_t ds_mixed_devices(const ds_mixed_problem *problem, const ds_mixed_plan *plan,
                          uint32_t *out);
/* "mesh @all = …\nmesh @m = …\n" on topology `on`, and the strategy's entries without braces. */
void ds_mixed_put_mesh(const ds_mixed_problem *problem, const ds_mixed_plan *plan, const char *on,
                       ds_buf *out);
void ds_mixed_put_strategy(const ds_mixed_problem *problem, const ds_mixed_plan *plan, ds_buf *out);
/* "4 x A100 (tp 2) 14 layers, 3 x V100 10 layers" */
void ds_mixed_put_words(const ds_mixed_problem *problem, const ds_mixed_plan *plan, ds_buf *out);

/* ---- estimates ---- */

/* Forward and backward of a stage for a microbatch with `samples` a replica. */
double ds_mixed_stage_s(const ds_mixed_problem *problem, const ds_mixed_stage *stage,
                        double samples, bool last, bool recompute);
/* Cuts the layers: the busiest stage has least to do, within memory. `simulated` (NULL: none) is the
 * same plan with another cut, whose busy_s correct the estimates of stages. False: no cut fits. */
bool ds_mixed_cut(const ds_mixed_problem *problem, const ds_mixed_plan *simulated,
                  ds_mixed_plan *plan);
/* Sets the parts of the batch that side-by-side replicas end a microbatch with at one time. */
bool ds_mixed_share(const ds_mixed_problem *problem, ds_mixed_plan *plan);
/* Does the plan, with its cut, fit into memory by the estimates? */
bool ds_mixed_fits(const ds_mixed_problem *problem, const ds_mixed_plan *plan);
/* Of stage s of a plan of stages: the sum of its gradients, and a microbatch's way to the next stage. */
double ds_mixed_sum_s(const ds_mixed_problem *problem, const ds_mixed_plan *plan, uint32_t s);
double ds_mixed_send_s(const ds_mixed_problem *problem, const ds_mixed_plan *plan, uint32_t s);
/* Sets estimate_s of a plan with its cut. */
void ds_mixed_estimate(const ds_mixed_problem *problem, ds_mixed_plan *plan);

/* ---- objectives ---- */

typedef enum ds_mixed_goal {
    DS_MIXED_STEP_TIME, /* seconds of a step */
    DS_MIXED_COST,      /* $ a million tokens (samples, where the model has no tokens) */
    DS_MIXED_ENERGY,    /* J a token: the boards' power limits, so an upper bound */
    DS_MIXED_EXPECTED,  /* $ a million tokens with preemptions, checkpoints and restarts */
    DS_MIXED_GOALS
} ds_mixed_goal;

typedef struct ds_mixed_faults {
    double checkpoint_s, restart_s;
} ds_mixed_faults;

/* How many seconds pass for a second of useful work, if failures of rate `per_s` come at random and
 * a segment of work of `interval_s` ends with a checkpoint of `checkpoint_s`: with M = 1 / per_s
 * M e^(R/M) (e^((interval + checkpoint)/M) - 1) / interval (Daly 2006, eq. 20; a failure in a restart
 * or a checkpoint counts). interval_s 0: the best interval, found by golden section. */
double ds_mixed_stretch(double per_s, const ds_mixed_faults *faults, double interval_s,
                        double *best_interval_s);
/* The plan's value for a step of `step_s`; less is better. */
double ds_mixed_value(const ds_mixed_problem *problem, const ds_mixed_plan *plan,
                      ds_mixed_goal goal, const ds_mixed_faults *faults, double step_s);

/* ---- the search ---- */

/* Simulates n plans whole, in any order: sets fits, step_ps, peak_bytes, busy_s; `fits` is false where
 * the program is refused. Errors end the search. */
typedef ds_status (*ds_mixed_simulate)(void *context, ds_mixed_plan *plans, uint32_t n,
                                       ds_error *err);

typedef struct ds_mixed_options {
    ds_mixed_goal goal;
    ds_mixed_faults faults;
    double within_s;   /* slower plans do not count; 0: any */
    uint32_t max_runs; /* simulations of a search */
    bool front;        /* searches for time, for cost and between follow that for the goal */
    ds_mixed_simulate simulate;
    void *context;
} ds_mixed_options;

typedef struct ds_mixed_result {
    ds_mixed_plan *plans; /* all simulated ones that fit, the best first; owned */
    uint32_t n_plans;
    uint64_t n_estimated;
    uint32_t n_simulated;
} ds_mixed_result;

ds_status ds_mixed_search(const ds_mixed_problem *problem, const ds_mixed_options *options,
                          ds_mixed_result *result, ds_error *err);
void ds_mixed_result_deinit(ds_mixed_result *result);

#endif
