/* Jobs of one cluster: the summary's table and the members of the JSON object. */
#include "sim/report/internal.h"

/* The job's time over its time alone. */
static double slow_down(const ds_job_result *job) {
    return job->alone_ps > 0 ? (double)(job->end_ps - job->start_ps) / (double)job->alone_ps : 1;
}

static const char *end_of(const ds_result *r, uint32_t vertex) {
    return ds_topo_vertex_path(r->plan->topo, vertex);
}

#define MAX_SHARED 8

static void put_shared(const ds_result *r, ds_buf *out) {
    uint32_t shown = 0, links = 0;
    for (uint32_t i = 0, end; i < r->n_shared; i = end, links++) {
        const ds_topo_link *link = ds_topo_link_at(r->plan->topo, r->shared[i].link);
        for (end = i + 1; end < r->n_shared && r->shared[end].link == r->shared[i].link;) end++;
        if (shown == MAX_SHARED) continue;
        shown++;
        ds_buf_printf(out, "  %s -> %s, %s:", end_of(r, link->from), end_of(r, link->to),
                      ds_report__rate((double)link->bytes_per_s, "B/s").s);
        for (uint32_t k = i; k < end; k++)
            ds_buf_printf(out, "%s %s", k == i ? "" : ",", r->jobs[r->shared[k].job].name);
        ds_buf_putc(out, '\n');
    }
    if (links > shown) ds_buf_printf(out, "  and %u more\n", links - shown);
}

void ds_report__put_jobs(const ds_result *r, ds_buf *out) {
    if (!r->n_jobs) return;
    ds_buf_printf(out, "\nJobs\n  %-12s %7s %6s %10s %10s %10s %10s %9s\n", "job", "devices",
                  "steps", "start", "end", "a step", "alone", "slow-down");
    for (uint32_t j = 0; j < r->n_jobs; j++) {
        const ds_job_result *job = &r->jobs[j];
        ds_buf_printf(out, "  %-12s %7u %6lld %10s %10s %10s %10s %8.3fx\n", job->name,
                      job->n_devices, (long long)job->steps, ds_report__ps(job->start_ps).s,
                      ds_report__ps(job->end_ps).s,
                      ds_report__ps((job->end_ps - job->start_ps) / job->steps).s,
                      ds_report__ps(job->alone_ps / job->steps).s, slow_down(job));
    }
    ds_buf_put(out, r->n_shared ? "\nLinks that several jobs load\n"
                                : "  no link is loaded by more than one of them\n");
    put_shared(r, out);
}

static void json_shared(const ds_result *r, ds_json *json) {
    ds_json_key(json, "shared_links");
    ds_json_begin_array(json);
    for (uint32_t i = 0; i < r->n_shared;) {
        uint32_t id = r->shared[i].link;
        const ds_topo_link *link = ds_topo_link_at(r->plan->topo, id);
        ds_json_begin_object(json);
        ds_json_key_string(json, "from", end_of(r, link->from));
        ds_json_key_string(json, "to", end_of(r, link->to));
        ds_json_key_int(json, "bytes_per_s", link->bytes_per_s);
        ds_json_key(json, "jobs");
        ds_json_begin_array(json);
        for (; i < r->n_shared && r->shared[i].link == id; i++)
            ds_json_string(json, r->jobs[r->shared[i].job].name);
        ds_json_end_array(json);
        ds_json_end_object(json);
    }
    ds_json_end_array(json);
}

void ds_report__json_jobs(const ds_result *r, ds_json *json) {
    if (!r->n_jobs) return;
    ds_json_key(json, "jobs");
    ds_json_begin_array(json);
    for (uint32_t j = 0; j < r->n_jobs; j++) {
        const ds_job_result *job = &r->jobs[j];
        int64_t time_ps = job->end_ps - job->start_ps;
        ds_json_begin_object(json);
        ds_json_key_string(json, "name", job->name);
        ds_json_key_int(json, "devices", job->n_devices);
        ds_json_key_int(json, "steps", job->steps);
        ds_json_key_int(json, "start_ps", job->start_ps);
        ds_json_key_int(json, "end_ps", job->end_ps);
        ds_json_key_int(json, "step_time_ps", time_ps / job->steps);
        ds_json_key_int(json, "alone_ps", job->alone_ps);
        ds_json_key_double(json, "slow_down", slow_down(job));
        if (job->samples && time_ps > 0)
            ds_json_key_double(json, "samples_per_s",
                               (double)job->samples * (double)job->steps /
                                   ((double)time_ps * 1e-12));
        ds_json_end_object(json);
    }
    ds_json_end_array(json);
    json_shared(r, json);
}
