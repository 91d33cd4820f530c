/* Draws, scaled copies of the plan's durations, and workers that run the copies.
 *
 * The engine does not know of jitter: the engine gets a shallow copy of the plan with other arrays
 * of durations. Instances of one op may share flows but draw factors of their own, so with network
 * jitter every transfer gets flows of its own. */
#include "sim/run/montecarlo.h"

#include "ir/base/rng.h"
#include "ir/base/units.h"

#include <gsl/gsl_cdf.h>
#include <gsl/gsl_errno.h>
#include <gsl/gsl_sf_gamma.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ONE_Q32     (UINT64_C(1) << 32)
#define BEYOND_Q32  UINT64_MAX /* a factor too large to hold: the scaled duration lasts for ever */
#define MAX_THREADS 64u

/* ---- factors ---- */

/* X of mean one (ir/strategy/jitter.h). */
static double mean_one(const ds_random *r, double u) {
    switch (r->kind) {
    case DS_RANDOM_LOGNORMAL:
        return r->sigma > 0 ? gsl_cdf_lognormal_Pinv(u, -0.5 * r->sigma * r->sigma, r->sigma) : 1;
    case DS_RANDOM_GAMMA:
        return gsl_cdf_gamma_Pinv(u, r->shape, 1 / r->shape);
    case DS_RANDOM_EXPONENTIAL:
        return gsl_cdf_exponential_Pinv(u, 1);
    case DS_RANDOM_WEIBULL:
        return gsl_cdf_weibull_Pinv(u, 1 / gsl_sf_gamma(1 + 1 / r->shape), r->shape);
    case DS_RANDOM_PARETO:
        return gsl_cdf_pareto_Pinv(u, r->shape, (r->shape - 1) / r->shape);
    case DS_RANDOM_UNIFORM:
        return 2 * u;
    case DS_RANDOM_NONE:
    case DS_RANDOM_NORMAL:
    case DS_RANDOM_BERNOULLI:
        break;
    }
    return 1;
}

/* The part of the normal that lies above `min`. */
static double truncated_normal(const ds_random *r, double u) {
    if (!(r->sigma > 0)) return r->mean;
    double cut = gsl_cdf_ugaussian_P((r->min - r->mean) / r->sigma);
    double factor = r->mean + r->sigma * gsl_cdf_ugaussian_Pinv(cut + u * (1 - cut));
    return factor > r->min ? factor : r->min;
}

uint64_t ds_random_quantile_q32(const ds_random *r, double u) {
    double factor = 1;
    if (r->kind == DS_RANDOM_BERNOULLI)
        factor = u < r->probability ? r->factor : 1;
    else if (r->kind == DS_RANDOM_NORMAL)
        factor = truncated_normal(r, u);
    else if (r->kind != DS_RANDOM_NONE)
        factor = r->min + (r->mean - r->min) * mean_one(r, u);
    if (factor <= 0) return 0;
    return factor < 0x1p31 /* not NaN */ ? (uint64_t)(factor * 0x1p32 + 0.5) : BEYOND_Q32;
}

/* Read by every worker. */
typedef struct shared {
    const ds_plan *plan;
    const ds_jitter *jitter;
    uint32_t n_threads;
    uint32_t *first_flow; /* per activity, of flows of its own; NULL: the network is not random */
    uint32_t n_flows;
    ds_monte_carlo *out;
} shared;

static uint64_t draw_q32(const shared *s, ds_jitter_source source, uint32_t run, uint32_t device,
                         uint32_t inst) {
    const ds_random *random = &s->jitter->of[source];
    if (random->kind == DS_RANDOM_NONE) return ONE_Q32;
    uint64_t bits =
        ds_rng_at((uint64_t)s->jitter->seed, run, (uint64_t)source << 32 | device, inst);
    /* The middles of 2^52 equal parts: neither 0 nor 1. */
    return ds_random_quantile_q32(random, ((double)(bits >> 12) + 0.5) * 0x1p-52);
}

static uint64_t product_q32(uint64_t a, uint64_t b) {
    ds_u128 product = ((ds_u128)a * b + (ONE_Q32 >> 1)) >> 32;
    bool beyond = a == BEYOND_Q32 || b == BEYOND_Q32 || product >= BEYOND_Q32;
    return beyond ? BEYOND_Q32 : (uint64_t)product;
}

/* ceil(ps · factor); DS_NEVER_PS, which the engine refuses, if that is beyond int64. */
static int64_t scale_ps(int64_t ps, uint64_t factor_q32) {
    if (factor_q32 == BEYOND_Q32 && ps) return DS_NEVER_PS;
    return ds_ps_narrow((ds_i128)(((ds_u128)(uint64_t)ps * factor_q32 + (ONE_Q32 - 1)) >> 32));
}

/* Multiplies the lower 32 bits and the rest apart. Work is below 2^123 (sim/net/phase.c); false if
 * the product passes 2^127, which no flow finishes. */
static bool scale_work(ds_u128 work, uint64_t factor_q32, ds_u128 *out) {
    ds_u128 upper = work >> 32;
    if (upper && factor_q32 > (((ds_u128)1 << 127) - 1) / upper) return false;
    *out = upper * factor_q32 + ((work & (ONE_Q32 - 1)) * factor_q32 >> 32);
    return true;
}

/* ---- one run ---- */

typedef struct worker {
    const shared *s;
    uint32_t number;
    ds_plan plan;         /* a shallow copy with the arrays below */
    uint64_t *device_q32; /* per class */
    int64_t *compute_ps;  /* the same */
    ds_status status;
    uint32_t failed_run;
    ds_error err;
} worker;

/* Returns the class with the most compute, the first of equals. */
static uint32_t scale_compute(worker *w, uint32_t run) {
    const ds_plan *plan = w->s->plan;
    memset(w->compute_ps, 0, plan->n_classes * sizeof *w->compute_ps);
    for (uint32_t c = 0; c < plan->n_classes; c++) {
        uint32_t device = plan->classes[c].device;
        w->device_q32[c] = product_q32(draw_q32(w->s, DS_JITTER_DEVICE, run, device, 0),
                                       draw_q32(w->s, DS_JITTER_STRAGGLER, run, device, 0));
    }
    for (uint32_t t = 0; t < plan->n_tasks; t++) {
        if (plan->task_activity[t] != DS_NONE || !plan->task_ps[t]) continue;
        uint32_t cls = plan->task_class[t];
        uint64_t own_q32 =
            draw_q32(w->s, DS_JITTER_COMPUTE, run, plan->classes[cls].device, plan->task_inst[t]);
        w->plan.task_ps[t] = scale_ps(plan->task_ps[t], product_q32(w->device_q32[cls], own_q32));
        w->compute_ps[cls] = ds_ps_sum(w->compute_ps[cls], w->plan.task_ps[t]);
    }
    uint32_t busiest = 0;
    for (uint32_t c = 1; c < plan->n_classes; c++)
        if (w->compute_ps[c] > w->compute_ps[busiest]) busiest = c;
    return busiest;
}

static uint64_t transfer_factor_q32(const worker *w, const ds_activity *a, uint32_t run) {
    const ds_plan *plan = w->s->plan;
    if (!a->n_members) return ONE_Q32;
    uint32_t first = plan->members[a->first_member], lowest = first;
    for (uint32_t i = 1; i < a->n_members; i++) {
        uint32_t member = plan->members[a->first_member + i];
        if (plan->classes[plan->task_class[member]].device <
            plan->classes[plan->task_class[lowest]].device)
            lowest = member;
    }
    return draw_q32(w->s, DS_JITTER_NETWORK, run, plan->classes[plan->task_class[lowest]].device,
                    plan->task_inst[lowest]);
}

static void scale_network(worker *w, uint32_t run) {
    const ds_plan *plan = w->s->plan;
    for (uint32_t i = 0; i < plan->n_activities; i++) {
        const ds_activity *from = &plan->activities[i];
        ds_activity *to = &w->plan.activities[i];
        uint64_t factor_q32 = transfer_factor_q32(w, from, run);
        int64_t rest_ps = from->ps; /* time beyond that of flows */
        to->ps = 0;
        for (uint32_t f = 0; f < from->n_flows; f++) {
            const ds_flow *flow = &plan->flows[from->first_flow + f];
            ds_flow *scaled = &w->plan.flows[to->first_flow + f];
            *scaled = *flow;
            scaled->wait_ps = scale_ps(flow->wait_ps, factor_q32);
            scaled->alone_ps = scale_ps(flow->alone_ps, factor_q32);
            if (!scale_work(flow->work, factor_q32, &scaled->work)) scaled->wait_ps = DS_NEVER_PS;
            to->ps = ds_ps_sum(to->ps, ds_ps_sum(scaled->wait_ps, scaled->alone_ps));
            rest_ps -= flow->wait_ps + flow->alone_ps;
        }
        to->ps = ds_ps_sum(to->ps, scale_ps(rest_ps > 0 ? rest_ps : 0, factor_q32));
    }
}

static ds_status make_run(worker *w, uint32_t number) {
    w->s->out->busiest[number] = scale_compute(w, number);
    if (w->s->first_flow) scale_network(w, number);
    ds_run run;
    DS_TRY(ds_engine_run(&w->plan, NULL, NULL, &run, &w->err));
    w->s->out->step_ps[number] = run.step_ps;
    ds_run_deinit(&run);
    return DS_OK;
}

static void *work(void *context) {
    worker *w = context;
    for (uint32_t r = w->number; r < w->s->out->n_runs; r += w->s->n_threads) {
        w->status = make_run(w, r);
        w->failed_run = r;
        if (w->status != DS_OK) break;
    }
    return NULL;
}

/* ---- workers ---- */

static void *copy_of(const void *from, size_t n, size_t size) {
    void *copy = ds_xcalloc(n + 1, size);
    if (n) memcpy(copy, from, n * size);
    return copy;
}

static void worker_init(worker *w, const shared *s, uint32_t number) {
    const ds_plan *plan = s->plan;
    *w = (worker){.s = s, .number = number, .plan = *plan};
    w->device_q32 = ds_xcalloc((size_t)plan->n_classes + 1, sizeof *w->device_q32);
    w->compute_ps = ds_xcalloc((size_t)plan->n_classes + 1, sizeof *w->compute_ps);
    w->plan.task_ps = copy_of(plan->task_ps, plan->n_tasks, sizeof *plan->task_ps);
    if (!s->first_flow) return;
    w->plan.activities = copy_of(plan->activities, plan->n_activities, sizeof *plan->activities);
    for (uint32_t i = 0; i < plan->n_activities; i++)
        w->plan.activities[i].first_flow = s->first_flow[i];
    w->plan.flows = ds_xcalloc((size_t)s->n_flows + 1, sizeof *w->plan.flows);
    w->plan.n_flows = s->n_flows;
}

static void worker_deinit(worker *w) {
    free(w->device_q32);
    free(w->compute_ps);
    free(w->plan.task_ps);
    if (!w->s->first_flow) return;
    free(w->plan.activities);
    free(w->plan.flows);
}

static uint32_t thread_count(uint32_t wanted, uint32_t n_runs) {
    long online = wanted ? (long)wanted : sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t n = online < 1 ? 1 : online > MAX_THREADS ? MAX_THREADS : (uint32_t)online;
    return n < n_runs ? n : n_runs;
}

/* Runs are dealt out in turn. A worker whose thread cannot start works in the caller's thread. */
static ds_status run_all(shared *s, ds_error *err) {
    worker *workers = ds_xcalloc(s->n_threads, sizeof *workers);
    pthread_t threads[MAX_THREADS];
    bool started[MAX_THREADS] = {false};
    for (uint32_t i = 0; i < s->n_threads; i++) worker_init(&workers[i], s, i);
    for (uint32_t i = 1; i < s->n_threads; i++)
        started[i] = pthread_create(&threads[i], NULL, work, &workers[i]) == 0;
    for (uint32_t i = 0; i < s->n_threads; i++)
        if (!started[i]) work(&workers[i]);
    const worker *failed = NULL;
    for (uint32_t i = 0; i < s->n_threads; i++) {
        if (started[i]) pthread_join(threads[i], NULL);
        if (workers[i].status != DS_OK && (!failed || workers[i].failed_run < failed->failed_run))
            failed = &workers[i];
    }
    ds_status status = DS_OK;
    if (failed)
        status = ds_error_set(err, failed->status, ds_error_loc(&failed->err), "run %u: %s",
                              failed->failed_run, failed->err.message);
    for (uint32_t i = 0; i < s->n_threads; i++) worker_deinit(&workers[i]);
    free(workers);
    return status;
}

/* ---- statistics ---- */

static int ascending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void summarise(ds_monte_carlo *mc) {
    static const uint32_t percents[] = DS_PERCENTILES;
    uint32_t n = mc->n_runs;
    int64_t *sorted = copy_of(mc->step_ps, n, sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, ascending);
    ds_i128 sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += sorted[i];
    mc->mean_ps = (int64_t)((sum + n / 2) / n);
    mc->least_ps = sorted[0];
    mc->most_ps = sorted[n - 1];
    for (uint32_t k = 0; k < DS_N_PERCENTILES; k++)
        mc->percentile_ps[k] = sorted[((uint64_t)n * percents[k] + 99) / 100 - 1];
    double squares = 0;
    for (uint32_t i = 0; i < n; i++) {
        double off = (double)(sorted[i] - mc->mean_ps);
        squares += off * off;
    }
    mc->sd_ps = n > 1 ? sqrt(squares / (n - 1)) : 0;
    free(sorted);
}

/* ---- the whole ---- */

static ds_status check_plan(const ds_plan *plan, const ds_jitter *jitter, ds_error *err) {
    for (uint32_t c = 0; c < plan->n_classes; c++)
        if (plan->classes[c].n_devices > 1)
            return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                                "devices with random factors are simulated each by itself; here "
                                "one stands for %u",
                                plan->classes[c].n_devices);
    if (plan->n_steps && jitter->of[DS_JITTER_NETWORK].kind != DS_RANDOM_NONE)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, jitter->at[DS_JITTER_NETWORK],
                            "jitter of the network needs network = fluid: message by message there "
                            "is no one duration to draw a factor for");
    return DS_OK;
}

ds_status ds_monte_carlo_run(const ds_plan *plan, const ds_jitter *jitter, int64_t nominal_ps,
                             uint32_t threads, ds_monte_carlo *out, ds_error *err) {
    *out = (ds_monte_carlo){.seed = jitter->seed, .nominal_ps = nominal_ps};
    DS_TRY(check_plan(plan, jitter, err));
    if (jitter->runs < 1 || jitter->runs > INT32_MAX)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE, "%lld runs: there are 1 to %d",
                            (long long)jitter->runs, INT32_MAX);
    out->n_runs = (uint32_t)jitter->runs;
    out->step_ps = ds_xcalloc(out->n_runs, sizeof *out->step_ps);
    out->busiest = ds_xcalloc(out->n_runs, sizeof *out->busiest);
    shared s = {.plan = plan,
                .jitter = jitter,
                .n_threads = thread_count(threads, out->n_runs),
                .out = out};
    if (jitter->of[DS_JITTER_NETWORK].kind != DS_RANDOM_NONE) {
        s.first_flow = ds_xcalloc((size_t)plan->n_activities + 1, sizeof *s.first_flow);
        for (uint32_t i = 0; i < plan->n_activities; i++) {
            s.first_flow[i] = s.n_flows;
            s.n_flows += plan->activities[i].n_flows;
        }
    }
    gsl_set_error_handler_off(); /* a quantile beyond doubles is a factor at its bound, no abort */
    ds_status status = run_all(&s, err);
    free(s.first_flow);
    if (status == DS_OK)
        summarise(out);
    else
        ds_monte_carlo_deinit(out);
    return status;
}

void ds_monte_carlo_deinit(ds_monte_carlo *mc) {
    free(mc->step_ps);
    free(mc->busiest);
    *mc = (ds_monte_carlo){0};
}
