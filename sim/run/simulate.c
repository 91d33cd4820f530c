/* The pipeline of a run: (passes →) plan → engine → memory → accounts. */
#include "ir/passes/build/count.h"
#include "ir/strategy/scenario.h"
#include "ir/strategy/tokens.h"
#include "sim/run/balance.h"
#include "sim/run/factors.h"
#include "sim/run/internal.h"
#include "sim/run/montecarlo.h"
#include "sim/run/shares.h"
#include "sim/run/spans.h"

#include <stdlib.h>

static bool is_product(ds_work_kind kind) {
    return kind == DS_WORK_GEMM || kind == DS_WORK_CONV || kind == DS_WORK_ATTENTION ||
           kind == DS_WORK_RECURRENT;
}

static void add_compute(const ds_result *r, uint32_t task, int64_t times, ds_account *a) {
    const ds_variant *v = ds_plan_task_variant(r->plan, task);
    /* its cost, or slowed by transfers */
    int64_t ps = times * (r->run.end_ps[task] - r->run.start_ps[task]);
    a->origin_ps[v->cost.origin] += ps;
    if (v->cost.fitted) a->fitted_ps += ps;
    if (v->cost.extrapolated) a->extrapolated_ps += ps;
    ds_i128 flop = (ds_i128)v->work.flop * times;
    a->flop_of[v->work.dtype] += flop;
    if (is_product(v->work.kind)) a->product_flop_of[v->work.dtype] += flop;
}

const char *ds_comm_origin_name(ds_comm_origin origin) {
    static const char *const names[] = {"profile", "links", "given"};
    return origin < DS_COMM_ORIGIN_COUNT ? names[origin] : "?";
}

static void add_comm(const ds_result *r, uint32_t task, int64_t times, ds_account *a) {
    const ds_group *g = r->plan->activities[r->plan->task_activity[task]].group;
    int64_t ps = times * (r->run.end_ps[task] - r->run.start_ps[task]);
    ds_comm_origin origin = !g->request             ? DS_COMM_GIVEN
                            : g->terms.from_profile ? DS_COMM_PROFILE
                                                    : DS_COMM_LINKS;
    a->comm_origin_ps[origin] += ps;
    if (g->terms.extrapolated) a->comm_extrapolated_ps += ps;
}

/* The compute and communication spans of every class, of tasks that run equally often. */
typedef struct account_spans {
    ds_span *at;
    uint32_t *first, *n; /* per class: of compute, then of communication */
} account_spans;

static void close_spans(ds_result *r, account_spans *spans, int64_t times) {
    for (uint32_t c = 0; c < r->plan->n_classes; c++) {
        ds_account *a = &r->accounts[c];
        uint32_t *n = spans->n + 2 * c, *first = spans->first + 2 * c;
        ds_span *compute = spans->at + first[0], *comm = spans->at + first[1];
        uint32_t n_compute = ds_spans_merge(compute, n[0]), n_comm = ds_spans_merge(comm, n[1]);
        int64_t hidden_ps = ds_spans_overlap(compute, n_compute, comm, n_comm);
        a->compute_ps += times * ds_spans_total(compute, n_compute);
        a->hidden_comm_ps += times * hidden_ps;
        a->exposed_comm_ps += times * (ds_spans_total(comm, n_comm) - hidden_ps);
        n[0] = n[1] = 0;
    }
}

/* One pass over the tasks. Nothing runs across the gate of a repeat, so spans are merged between
 * gates. */
static void account(ds_result *r) {
    const ds_plan *plan = r->plan;
    account_spans spans = {.first = ds_xcalloc((size_t)plan->n_classes * 2 + 1, sizeof(uint32_t)),
                           .n = ds_xcalloc((size_t)plan->n_classes * 2, sizeof(uint32_t)),
                           .at = ds_xcalloc(plan->n_tasks, sizeof(ds_span))};
    for (uint32_t t = 0; t < plan->n_tasks; t++)
        spans.first[2 * plan->task_class[t] + (plan->task_activity[t] != DS_NONE) + 1]++;
    for (uint32_t i = 0; i < 2 * plan->n_classes; i++) spans.first[i + 1] += spans.first[i];
    int64_t times = 1;
    for (uint32_t t = 0, gate = 0; t < plan->n_tasks; t++) {
        bool passes = gate < plan->n_gates && plan->gates[gate].task <= t;
        while (gate < plan->n_gates && plan->gates[gate].task <= t) gate++;
        if (passes) close_spans(r, &spans, times);
        if (passes) times = ds_plan_times(plan, plan->task_inst[t]);
        uint32_t slot = 2 * plan->task_class[t] + (plan->task_activity[t] != DS_NONE);
        spans.at[spans.first[slot] + spans.n[slot]++] =
            (ds_span){r->run.start_ps[t], r->run.end_ps[t]};
        ds_account *a = &r->accounts[plan->task_class[t]];
        a->n_tasks += times;
        if (r->run.end_ps[t] > a->end_ps) a->end_ps = r->run.end_ps[t];
        if (plan->task_activity[t] == DS_NONE)
            add_compute(r, t, times, a);
        else
            add_comm(r, t, times, a);
    }
    close_spans(r, &spans, times);
    for (uint32_t c = 0; c < plan->n_classes; c++) {
        ds_account *a = &r->accounts[c];
        ds_i128 flop = 0;
        for (int d = 0; d < DS_DTYPE_COUNT; d++) flop += a->flop_of[d];
        a->flop = (double)flop;
        a->idle_ps = r->run.step_ps - a->compute_ps - a->exposed_comm_ps;
    }
    free(spans.first);
    free(spans.n);
    free(spans.at);
}

/* Unknown capacities come last, then the larger peak. */
bool ds_metrics_add_peak(ds_metrics *m, bool first, int64_t peak, int64_t room) {
    double share = room ? (double)peak / (double)room : 0, most = first ? -1 : 0;
    if (!first && m->capacity_bytes) most = (double)m->peak_bytes / (double)m->capacity_bytes;
    if (room && peak > room) m->fits = false;
    if (share < most || (share == most && peak <= m->peak_bytes)) return false;
    m->peak_bytes = peak;
    m->capacity_bytes = room;
    return true;
}

static void find_fullest(ds_result *r) {
    r->metrics.fits = true;
    for (uint32_t c = 0; c < r->plan->n_classes; c++)
        if (ds_metrics_add_peak(&r->metrics, c == 0, r->mem.classes[c].peak_bytes,
                                ds_class_capacity(r->plan, c)))
            r->fullest = c;
}

static int by_kind(const void *a, const void *b) {
    const ds_kind_total *x = a, *y = b;
    return x->kind < y->kind ? -1 : x->kind > y->kind;
}

/* Seconds at peak of all devices, summed in the order of kinds: classes do not change rounding. */
static double peak_s_of(ds_result *r) {
    uint32_t n;
    double peak_s = 0, product_flop = 0, product_s = 0;
    ds_kind_total *kinds = ds_kind_totals(r, &n);
    qsort(kinds, n, sizeof *kinds, by_kind);
    for (uint32_t k = 0; k < n; k++) {
        peak_s += kinds[k].peak_s;
        product_flop += kinds[k].product_flop;
        product_s += kinds[k].product_s;
    }
    free(kinds);
    if (!r->step) return peak_s;
    r->useful = ds_ratio(r->model_flop, product_flop);
    return product_s * r->useful;
}

void ds_metrics_derive(ds_metrics *m) {
    double step_s = (double)m->step_ps * 1e-12;
    if (m->step_ps > 0) m->throughput_per_s = (m->samples > 0 ? (double)m->samples : 1.0) / step_s;
}

static void take_times(const ds_account *of, ds_metrics *m) {
    m->compute_ps = of->compute_ps;
    m->exposed_comm_ps = of->exposed_comm_ps;
    m->hidden_comm_ps = of->hidden_comm_ps;
    m->idle_ps = of->idle_ps;
}

static void summarise(ds_result *r) {
    const ds_plan *plan = r->plan;
    ds_metrics *m = &r->metrics;
    ds_i128 idle = 0;
    for (uint32_t c = 0; c < plan->n_classes; c++) {
        const ds_account *a = &r->accounts[c];
        m->devices += plan->classes[c].n_devices;
        idle += (ds_i128)plan->classes[c].n_devices * a->idle_ps;
        m->op_instances += a->n_tasks * plan->classes[c].n_devices;
        if (a->end_ps > r->accounts[r->critical].end_ps) r->critical = c;
    }
    take_times(&r->accounts[r->critical], m);
    m->step_ps = r->run.step_ps;
    m->samples = plan->samples;
    m->device_classes = plan->n_classes;
    m->tasks = plan->n_tasks;
    r->counts_samples = plan->samples > 0;
    double peak_s = peak_s_of(r), devices = (double)m->devices;
    if (m->step_ps > 0) {
        m->bubble_fraction = (double)idle / (devices * (double)m->step_ps);
        m->mfu = peak_s / (devices * ((double)m->step_ps * 1e-12));
    }
    find_fullest(r);
    ds_metrics_derive(m);
}

/* Attention over packed documents, in the step as it is lowered: the model has one document a
 * sequence. */
static ds_status count_packed(const ds_result *r, double *attention, ds_error *err) {
    ds_model_step *step = NULL;
    ds_model_counts counts;
    DS_TRY(ds_model_step_new(r->source, &step, err));
    ds_status status = ds_model_count(&step->binding, step->func, &counts, err);
    double times = (double)step->strategy.microbatches;
    ds_model_step_free(step);
    if (status == DS_OK) *attention = times * (double)counts.attention_flop;
    return status;
}

/* Each product has two in the backward pass, one by either operand; a frozen weight has no
 * gradient. */
static ds_status count_flop(ds_result *r, ds_error *err) {
    ds_model_counts all;
    const ds_train *train = &r->step->train;
    DS_TRY(ds_model_count(r->source, ds_scenario_model(r->source->unit), &all, err));
    double attention = (double)all.attention_flop, times = train->on ? 3 : 1;
    double weights = train->on && train->lora_rank ? 2 : times;
    if (train->on && train->n_documents) DS_TRY(count_packed(r, &attention, err));
    r->model_flop = weights * (double)(all.matmul_flop - all.padding_flop - all.attention_flop) +
                    times * attention;
    r->padding_flop = weights * (double)all.padding_flop;
    return DS_OK;
}

/* Sets *program to the scenario's program, or to the step that passes make of the model. */
static ds_status find_program(ds_result *r, bool trusted, const ds_binding **program,
                              ds_error *err) {
    *program = r->source;
    if (!ds_scenario_model(r->source->unit) || ds_scenario_is_program(r->source->unit))
        return DS_OK;
    DS_TRY(ds_run__make_step(r->source, trusted, &r->step, err));
    *program = &r->step->binding;
    return count_flop(r, err);
}

/* An allocator's blocks depend on all that was allocated before. */
static bool may_repeat(const ds_result *r, const ds_sim_options *options, uint32_t n_jobs) {
    return !n_jobs && !options->unfold && !options->stepwise &&
           options->mem_mode != DS_MEM_ALLOCATOR && !(r->step && r->step->train.on);
}

typedef DS_VEC(const ds_op *) body_list;

/* What the next plan follows whole, since a repeat did not hold: at first the loops so far, for the
 * beginning may be unlike the rest; where one is refused again, all loops of the same body, such as
 * the stages of a token. */
static void follow_whole(const ds_plan *plan, uint32_t refused, body_list *bodies,
                         ds_plan_options *options) {
    const ds_op *around = plan->repeats.at[refused].around;
    for (uint32_t i = 0; i < bodies->n; i++)
        if (bodies->at[i] == around) {
            options->repeats_from = 0;
            options->whole = bodies->at;
            options->n_whole = bodies->n;
            return;
        }
    DS_HPUSH(bodies, around);
    options->whole = bodies->at;
    options->repeats_from += refused + 1;
}

static ds_status plan_and_run(ds_result *r, const ds_binding *program, const ds_profiles *profiles,
                              const ds_sim_options *options, ds_plan_options *plan_options,
                              ds_error *err) {
    enum { TRIES = 6 };
    body_list bodies = {0};
    ds_status status = DS_OK;
    for (int i = 0; status == DS_OK; i++) {
        status = ds_plan_build(program, profiles, plan_options, &r->plan, err);
        if (status == DS_OK && r->step)
            status = ds_model_samples(r->source, &r->plan->samples, err);
        if (status != DS_OK) break;
        if (r->step) r->plan->overhead_ps = r->step->train.iteration_overhead_ps;
        status = ds_engine_run(r->plan, options->progress, options->progress_context, &r->run, err);
        if (status != DS_OK || r->run.refused == DS_NONE) break;
        follow_whole(r->plan, r->run.refused, &bodies, plan_options);
        if (i + 1 == TRIES || r->plan->n_pauses) plan_options->repeat_turns = 0;
        ds_run_deinit(&r->run);
        ds_plan_free(r->plan);
        r->plan = NULL;
    }
    free(bodies.at);
    return status;
}

ds_status ds_run__simulate(ds_result *r, const ds_binding *program, const ds_profiles *profiles,
                           const ds_sim_options *options, const ds_plan_job *jobs, uint32_t n_jobs,
                           ds_error *err) {
    ds_tokens tokens = {0};
    ds_plan_options plan_options = {.max_instances = options->max_instances,
                                    .unfold = options->unfold,
                                    .unfold_up_to = options->unfold_up_to,
                                    .stepwise = options->stepwise,
                                    .cost_mode = options->cost_mode,
                                    .ground = options->ground,
                                    .jobs = jobs,
                                    .n_jobs = n_jobs};
    if (r->step) plan_options.keeps_products = ds_strategy_keeps_products(&r->step->strategy);
    if (may_repeat(r, options, n_jobs)) {
        plan_options.repeat_turns = options->repeat_turns;
        DS_TRY(ds_tokens_read(r->source, &tokens, err));
        plan_options.whole_dim = tokens.dim;
    }
    DS_TRY(plan_and_run(r, program, profiles, options, &plan_options, err));
    ds_mem_options memory = {.mode = options->mem_mode,
                             .framework = options->framework,
                             .keep_masks = options->keep_masks};
    DS_TRY(ds_mem_compute(r->plan, &r->run, &memory, &r->mem, err));
    DS_TRY(ds_mem_hosts(r->plan, &r->mem, &r->hosts, &r->n_hosts, err));
    r->accounts = ds_xcalloc(r->plan->n_classes, sizeof *r->accounts);
    account(r);
    summarise(r);
    return n_jobs ? DS_OK : ds_run__tokens(r, err);
}

ds_status ds_simulate(const ds_binding *binding, const ds_profiles *profiles,
                      const ds_sim_options *options, ds_result **out, ds_error *err) {
    *out = NULL;
    if (ds_scenario_n_jobs(binding->unit))
        return ds_run__jobs(binding, profiles, options, out, err);
    if (ds_shares_wanted(binding)) return ds_run__shares(binding, profiles, options, out, err);
    if (ds_balance_wanted(binding)) return ds_run__balance(binding, profiles, options, out, err);
    if (ds_factors_wanted(binding)) return ds_run__factors(binding, profiles, options, out, err);
    ds_result *r = ds_xcalloc(1, sizeof *r);
    const ds_binding *program;
    r->source = binding;
    ds_status status = find_program(r, options->trust_passes, &program, err);
    if (status == DS_OK) {
        status = ds_run__simulate(r, program, profiles, options, NULL, 0, err);
        if (status != DS_OK && r->step) ds_model_step_place_error(binding->unit, err);
    }
    if (status == DS_OK)
        *out = r;
    else
        ds_result_free(r);
    return status;
}

bool ds_simulate_finds(const ds_binding *source) {
    return ds_shares_wanted(source) || ds_balance_wanted(source) || ds_factors_wanted(source);
}

ds_status ds_simulate_settings(const ds_binding *source, const ds_profiles *profiles,
                               const ds_sim_options *options, ds_error *err) {
    for (uint32_t i = 0; i < 3 && ds_simulate_finds(source);
         i++) { /* one may leave the next open */
        ds_result *result = NULL;
        DS_TRY(ds_simulate(source, profiles, options, &result, err));
        ds_result_free(result);
    }
    return DS_OK;
}

ds_status ds_jitter_runs(ds_result *r, const ds_jitter *jitter, uint32_t threads, ds_error *err) {
    ds_monte_carlo runs;
    DS_TRY(ds_monte_carlo_run(r->plan, jitter, r->run.step_ps, threads, &runs, err));
    r->monte_carlo = ds_xcalloc(1, sizeof *r->monte_carlo);
    *r->monte_carlo = runs;
    return DS_OK;
}

void ds_result_free(ds_result *r) {
    if (!r) return;
    if (r->monte_carlo) ds_monte_carlo_deinit(r->monte_carlo);
    free(r->monte_carlo);
    ds_mem_deinit(&r->mem);
    ds_run_deinit(&r->run);
    ds_plan_free(r->plan);
    ds_model_step_free(r->step);
    free(r->hosts);
    free(r->accounts);
    free(r->advice);
    if (r->cut) free(r->cut->turns);
    free(r->cut);
    if (r->tokens) free(r->tokens->ps);
    if (r->tokens) free(r->tokens->cache);
    free(r->tokens);
    for (uint32_t j = 0; j < r->n_jobs; j++) ds_model_step_free(r->jobs[j].step);
    free(r->jobs);
    free(r->shared);
    free(r);
}
