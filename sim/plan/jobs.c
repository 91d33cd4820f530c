/* Several programs in one plan.
 *
 * Each job is followed as a program alone would be, from its own unit and scenario, and leaves its
 * instances and records behind those of the job before. Nothing of one job refers to another: they
 * meet on links alone. So a device belongs to one job at most. */
#include "sim/plan/internal.h"

#include "ir/strategy/scenario.h"

#include <stdlib.h>
#include <string.h>

static ds_status claim(ds_builder *b, uint32_t job, const ds_record *r, ds_error *err) {
    ds_plan *plan = b->plan;
    for (uint32_t k = 0; k < r->n_devices; k++) {
        uint32_t *owner = &plan->job_of[r->devices[k]];
        if (*owner != DS_NONE && *owner != job)
            return ds_error_set(err, DS_ERR_VALUE, plan->jobs[job].loc,
                                "jobs '%s' and '%s' both use %s: give each devices of its own, as "
                                "`mesh = @m` with `mesh @m = pick 8..16 of @all [dp = 8]`",
                                plan->jobs[*owner].name, plan->jobs[job].name,
                                ds_topo_device_path(plan->topo, r->devices[k]));
        *owner = job;
    }
    return DS_OK;
}

/* The devices of its instances are the job's. (Not of its records: two jobs that do the same on the
 * same devices share those.) */
static ds_status claim_devices(ds_builder *b, uint32_t job, ds_error *err) {
    ds_plan *plan = b->plan;
    bool *seen = ds_xcalloc(plan->records.n, sizeof *seen);
    ds_status status = DS_OK;
    for (uint32_t i = plan->jobs[job].first_inst; i < plan->insts.n && status == DS_OK; i++) {
        uint32_t record = plan->insts.at[i].record;
        if (!seen[record]) status = claim(b, job, plan->records.at[record], err);
        seen[record] = true;
    }
    free(seen);
    return status;
}

/* What was found out about the ops of one unit says nothing of another's. */
static void forget_unit(ds_builder *b) {
    ds_map_clear(&b->alike);
    b->entry = NULL;
    b->program = NULL;
}

static ds_status plan_job(ds_builder *b, ds_plan_job *job,
                          ds_status (*plan)(ds_builder *, int64_t, ds_error *), ds_error *err) {
    ds_unit *unit = job->binding->unit;
    ds_scenario old = *ds_unit_scenario(unit);
    forget_unit(b);
    b->unit = unit;
    b->binding = job->binding;
    b->root = unit->modules.at[0];
    job->first_inst = b->plan->insts.n;
    job->first_record = b->plan->records.n;
    if (job->scenario) ds_scenario_restore(unit, job->scenario);
    ds_status status = plan(b, job->steps, err);
    ds_scenario_restore(unit, &old);
    return status;
}

ds_status ds_plan__jobs(ds_builder *b, ds_status (*plan)(ds_builder *, int64_t, ds_error *),
                        ds_error *err) {
    ds_plan *p = b->plan;
    const ds_binding *source = b->binding;
    uint32_t n = b->options->n_jobs;
    ds_plan_job *jobs = DS_NEW_N(&p->arena, ds_plan_job, n);
    memcpy(jobs, b->options->jobs, n * sizeof *jobs);
    p->jobs = jobs;
    p->n_jobs = n;
    for (uint32_t j = 0; j < n; j++) {
        DS_TRY(plan_job(b, &jobs[j], plan, err));
        if (!p->topo) /* the first job names no devices: the caller says so */
            break;
        if (!p->job_of) {
            p->job_of = DS_NEW_N(&p->arena, uint32_t, p->n_devices);
            memset(p->job_of, 0xff, p->n_devices * sizeof *p->job_of); /* DS_NONE */
        }
        DS_TRY(claim_devices(b, j, err));
    }
    b->unit = source->unit;
    b->binding = source;
    b->root = source->unit->modules.at[0];
    return DS_OK;
}
