/* Reports on the runs with jitter: a section of the summary, a member of the JSON object, CSV with
 * a row a run. */
#include "ir/base/csv.h"
#include "ir/base/units.h"
#include "sim/report/internal.h"
#include "sim/run/montecarlo.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_BUSIEST = 3 };

static const uint32_t percents[] = DS_PERCENTILES;

/* The classes that had the most compute most often. */
static void put_busiest(const ds_result *r, const ds_monte_carlo *mc, ds_buf *out) {
    uint32_t n_classes = r->plan->n_classes;
    uint32_t *count = ds_xcalloc(n_classes, sizeof *count);
    for (uint32_t i = 0; i < mc->n_runs; i++) count[mc->busiest[i]]++;
    ds_buf_put(out, "  most compute:");
    for (uint32_t k = 0; k < MOST_BUSIEST; k++) {
        uint32_t most = 0;
        for (uint32_t c = 1; c < n_classes; c++)
            if (count[c] > count[most]) most = c;
        if (!count[most]) break;
        ds_buf_printf(out, "%s %s in %s", k ? "," : "", ds_report__device(r->plan, most),
                      ds_report__percent((double)count[most] / mc->n_runs).s);
        count[most] = 0;
    }
    ds_buf_put(out, " of the runs\n");
    free(count);
}

void ds_report__put_runs(const ds_result *r, ds_buf *out) {
    const ds_monte_carlo *mc = r->monte_carlo;
    if (!mc) return;
    ds_buf_printf(out, "\n%s over %" PRIu32 " run%s with jitter (seed %" PRId64 ")\n",
                  r->n_jobs ? "Makespan of all jobs" : "Step time", mc->n_runs,
                  mc->n_runs == 1 ? "" : "s", mc->seed);
    ds_buf_put(out, " ");
    for (uint32_t k = 0; k < DS_N_PERCENTILES; k++)
        ds_buf_printf(out, " p%" PRIu32 " %s%s", percents[k], ds_report__ps(mc->percentile_ps[k]).s,
                      k + 1 < DS_N_PERCENTILES ? ", " : "\n");
    ds_buf_printf(out, "  mean %s, standard deviation %s, from %s to %s\n",
                  ds_report__ps(mc->mean_ps).s, ds_report__ps((int64_t)(mc->sd_ps + 0.5)).s,
                  ds_report__ps(mc->least_ps).s, ds_report__ps(mc->most_ps).s);
    if (mc->nominal_ps > 0)
        ds_buf_printf(out, "  the mean is %.3g times the %s without jitter, %s\n",
                      (double)mc->mean_ps / (double)mc->nominal_ps, r->n_jobs ? "makespan" : "step",
                      ds_report__ps(mc->nominal_ps).s);
    put_busiest(r, mc, out);
}

void ds_report__json_runs(const ds_result *r, ds_json *json) {
    const ds_monte_carlo *mc = r->monte_carlo;
    if (!mc) return;
    ds_json_key(json, "monte_carlo");
    ds_json_begin_object(json);
    ds_json_key_int(json, "runs", mc->n_runs);
    ds_json_key_int(json, "seed", mc->seed);
    ds_json_key_string(json, "of", r->n_jobs ? "makespan" : "step_time");
    ds_json_key_int(json, "nominal_ps", mc->nominal_ps);
    ds_json_key_int(json, "mean_ps", mc->mean_ps);
    ds_json_key_double(json, "sd_ps", mc->sd_ps);
    ds_json_key_int(json, "min_ps", mc->least_ps);
    for (uint32_t k = 0; k < DS_N_PERCENTILES; k++) {
        char key[16];
        snprintf(key, sizeof key, "p%" PRIu32 "_ps", percents[k]);
        ds_json_key_int(json, key, mc->percentile_ps[k]);
    }
    ds_json_key_int(json, "max_ps", mc->most_ps);
    ds_json_end_object(json);
}

void ds_report_runs_csv(const ds_result *r, ds_buf *out) {
    static const char *const head[] = {"run", "step_time_ps", "busiest_device"};
    const ds_monte_carlo *mc = r->monte_carlo;
    ds_csv_put_row(out, head, 3);
    for (uint32_t i = 0; mc && i < mc->n_runs; i++) {
        char run[16], ps[24];
        snprintf(run, sizeof run, "%" PRIu32, i);
        snprintf(ps, sizeof ps, "%" PRId64, mc->step_ps[i]);
        const char *cells[] = {run, ps, ds_report__device(r->plan, mc->busiest[i])};
        ds_csv_put_row(out, cells, 3);
    }
}
