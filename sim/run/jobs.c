/* Several jobs on one cluster: each alone, then all together.
 *
 * Each job is simulated as a scenario of its own first. This gives the step that passes make of the
 * job's model, and the job's time with the cluster to itself. Then one plan holds the steps of all
 * jobs, and the jobs compete for links. To simulate a job alone, the job's scenario replaces the
 * unit's, as a cut does in balance.c. */
#include "ir/strategy/scenario.h"
#include "sim/coll/coll.h"
#include "sim/run/internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- alone ---- */

typedef struct runner {
    const ds_binding *source;
    const ds_profiles *profiles;
    const ds_sim_options *options;
    ds_arena arena;
    ds_scenario *scenarios; /* of the jobs */
    ds_plan_job *plans;
    ds_result *r;
} runner;

/* The run of the job's steps from time 0. */
static ds_status run_steps(runner *x, uint32_t job, int64_t *alone_ps, ds_error *err) {
    ds_plan_job alone = x->plans[job];
    alone.start_ps = 0;
    ds_result *r = ds_xcalloc(1, sizeof *r);
    r->source = x->source;
    ds_status status = ds_run__simulate(r, x->source, x->profiles, x->options, &alone, 1, err);
    *alone_ps = r->run.step_ps;
    ds_result_free(r);
    return status;
}

/* Jobs are never all between steps, so a fixed cost between steps has no place in a plan. */
static ds_status refuse_overhead(const ds_binding *binding, ds_error *err) {
    const ds_attr *attr = ds_scenario_find(binding->unit, "train", "iteration_overhead");
    if (!attr) return DS_OK;
    return ds_error_set(err, DS_ERR_UNSUPPORTED, attr->loc,
                        "'iteration_overhead' in a job: jobs go on beside each other, and a fixed "
                        "cost between their steps is not simulated");
}

static ds_status run_alone(runner *x, uint32_t job, ds_error *err) {
    ds_job_result *out = &x->r->jobs[job];
    ds_plan_job *plan = &x->plans[job];
    ds_sim_options checked = *x->options;
    ds_result *step;
    DS_TRY(ds_sim_options_read(x->source, &checked, err));
    DS_TRY(refuse_overhead(x->source, err));
    DS_TRY(ds_simulate(x->source, x->profiles, x->options, &step, err));
    out->alone_ps = step->run.step_ps;
    out->samples = step->plan->samples;
    out->step = step->step;
    step->step = NULL;
    ds_result_free(step);
    plan->binding = out->step ? &out->step->binding : x->source;
    plan->scenario = out->step ? NULL : &x->scenarios[job];
    return plan->steps > 1 ? run_steps(x, job, &out->alone_ps, err) : DS_OK;
}

static ds_status prepare(runner *x, uint32_t job, ds_error *err) {
    ds_unit *unit = x->source->unit;
    const ds_attr *block = ds_scenario_job(unit, job);
    ds_plan_job *plan = &x->plans[job];
    ds_job_result *out = &x->r->jobs[job];
    plan->name = out->name = block->name;
    plan->loc = block->loc;
    DS_TRY(ds_scenario_job_times(x->source, job, &plan->start_ps, &plan->steps, err));
    out->start_ps = plan->start_ps;
    out->steps = plan->steps;
    ds_scenario all = *ds_unit_scenario(unit);
    x->scenarios[job] = ds_scenario_of_job(unit, job);
    ds_scenario_restore(unit, &x->scenarios[job]);
    ds_status status = run_alone(x, job, err);
    ds_scenario_restore(unit, &all);
    return status;
}

/* ---- together ---- */

static void find_ends(ds_result *r) {
    const ds_plan *plan = r->plan;
    for (uint32_t j = 0; j < r->n_jobs; j++) r->jobs[j].end_ps = r->jobs[j].start_ps;
    for (uint32_t c = 0; c < plan->n_classes; c++) {
        ds_job_result *job = &r->jobs[plan->job_of[plan->classes[c].device]];
        job->n_devices += plan->classes[c].n_devices;
        if (r->accounts[c].end_ps > job->end_ps) job->end_ps = r->accounts[c].end_ps;
    }
}

/* Sum over jobs of the work per second from the job's start to its end: samples if those of every
 * job are known, else steps. */
static void find_throughput(ds_result *r) {
    bool samples = true;
    for (uint32_t j = 0; j < r->n_jobs; j++) samples = samples && r->jobs[j].samples > 0;
    r->metrics.throughput_per_s = 0;
    for (uint32_t j = 0; j < r->n_jobs; j++) {
        const ds_job_result *job = &r->jobs[j];
        double done = (double)job->steps * (samples ? (double)job->samples : 1);
        double seconds = (double)(job->end_ps - job->start_ps) * 1e-12;
        if (seconds > 0) r->metrics.throughput_per_s += done / seconds;
    }
    r->counts_samples = samples;
}

/* ---- shared links ---- */

static int by_link(const void *a, const void *b) {
    const ds_job_link *x = a, *y = b;
    if (x->link != y->link) return x->link < y->link ? -1 : 1;
    return x->job < y->job ? -1 : x->job > y->job;
}

typedef struct loads {
    DS_VEC(ds_job_link) at;
    uint32_t *last; /* per link: 1 + the job that was added last */
} loads;

static ds_status add_group(loads *l, const ds_result *r, const ds_group *g, uint32_t job,
                           ds_error *err) {
    if (!g->request || !g->request->bytes) return DS_OK;
    ds_arena scratch;
    ds_arena_init(&scratch);
    ds_phase *phases;
    uint32_t n;
    ds_status status =
        ds_coll_phases(r->plan->topo, g->request, g->algorithm, &scratch, &phases, &n, err);
    for (uint32_t p = 0; p < n && status == DS_OK; p++)
        for (uint32_t i = 0; i < phases[p].n_loads; i++) {
            uint32_t link = phases[p].loads[i].link;
            if (!phases[p].loads[i].bytes_q32 || l->last[link] == job + 1) continue;
            l->last[link] = job + 1;
            DS_HPUSH(&l->at, ((ds_job_link){link, job}));
        }
    ds_arena_deinit(&scratch);
    return status;
}

/* Keeps the links that two or more jobs load. */
static void keep_shared(loads *l) {
    uint32_t kept = 0;
    if (l->at.n) qsort(l->at.at, l->at.n, sizeof *l->at.at, by_link);
    for (uint32_t i = 0, end; i < l->at.n; i = end) {
        for (end = i + 1; end < l->at.n && l->at.at[end].link == l->at.at[i].link;) end++;
        for (uint32_t k = i; k < end && end - i > 1; k++) l->at.at[kept++] = l->at.at[k];
    }
    l->at.n = kept;
}

static ds_status find_shared(ds_result *r, ds_error *err) {
    const ds_plan *plan = r->plan;
    loads l = {.last = ds_xcalloc(ds_topo_n_links(plan->topo), sizeof *l.last)};
    ds_status status = DS_OK;
    for (uint32_t i = 0, job = 0; i < plan->records.n && status == DS_OK; i++) {
        const ds_record *record = plan->records.at[i];
        while (job + 1 < plan->n_jobs && i >= plan->jobs[job + 1].first_record) job++;
        if (record->like) continue;
        for (uint32_t g = 0; g < record->n_groups && status == DS_OK; g++)
            status = add_group(&l, r, &record->groups[g], job, err);
    }
    keep_shared(&l);
    r->shared = l.at.at;
    r->n_shared = l.at.n;
    free(l.last);
    return status;
}

/* ---- the run ---- */

static ds_status run_all(runner *x, ds_error *err) {
    for (uint32_t j = 0; j < x->r->n_jobs; j++) DS_TRY(prepare(x, j, err));
    DS_TRY(ds_run__simulate(x->r, x->source, x->profiles, x->options, x->plans, x->r->n_jobs, err));
    find_ends(x->r);
    find_throughput(x->r);
    return find_shared(x->r, err);
}

ds_status ds_run__jobs(const ds_binding *source, const ds_profiles *profiles,
                       const ds_sim_options *options, ds_result **out, ds_error *err) {
    uint32_t n = ds_scenario_n_jobs(source->unit);
    runner x = {.source = source, .profiles = profiles, .options = options};
    ds_arena_init(&x.arena);
    x.scenarios = DS_NEW_N(&x.arena, ds_scenario, n);
    x.plans = DS_NEW_N(&x.arena, ds_plan_job, n);
    x.r = ds_xcalloc(1, sizeof *x.r);
    x.r->source = source;
    x.r->jobs = ds_xcalloc(n, sizeof *x.r->jobs);
    x.r->n_jobs = n;
    ds_status status = run_all(&x, err);
    if (status != DS_OK) {
        ds_model_step_place_error(source->unit, err);
        ds_result_free(x.r);
        x.r = NULL;
    }
    *out = x.r;
    ds_arena_deinit(&x.arena);
    return status;
}
