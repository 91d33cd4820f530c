/* Series of times, and the CSV files that a profile is (cost_profiles/README.md). */
#include "tools/measure/measure.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *ms_alloc(size_t bytes) {
    size_t line = 64;
    void *at = aligned_alloc(line, (bytes + line - 1) / line * line);
    if (!at) abort();
    return at;
}

void ms_add(ms_series *series, double seconds) {
    if (series->n == series->room) {
        series->room = series->room ? 2 * series->room : 32;
        series->seconds = realloc(series->seconds, series->room * sizeof *series->seconds);
        if (!series->seconds) abort();
    }
    series->seconds[series->n++] = seconds;
}

static int by_value(const void *a, const void *b) {
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

double ms_quantile(const ms_series *series, double q) {
    double *sorted = ms_alloc(series->n * sizeof *sorted);
    memcpy(sorted, series->seconds, series->n * sizeof *sorted);
    qsort(sorted, series->n, sizeof *sorted, by_value);
    double at = q * (series->n - 1);
    uint32_t low = (uint32_t)at, high = low + 1 < series->n ? low + 1 : low;
    double value = sorted[low] + (at - low) * (sorted[high] - sorted[low]);
    free(sorted);
    return value;
}

void ms_free(ms_series *series) {
    free(series->seconds);
    *series = (ms_series){0};
}

/* ---- files ---- */

static FILE *create(const char *folder, const char *name) {
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) return NULL;
    FILE *out = fopen(path, "w");
    if (!out) fprintf(stderr, "measure-cpu: error: cannot write %s\n", path);
    return out;
}

static bool put(const char *folder, const char *name, const char *text) {
    FILE *out = create(folder, name);
    if (!out) return false;
    bool done = fputs(text, out) >= 0;
    return fclose(out) == 0 && done;
}

#define SOURCE "measured-here"

static void put_op(FILE *out, const ms_job *job) {
    double us = 1e6 * ms_quantile(&job->series, 0.5);
    int rows = job->rows, width = job->width;
    switch (job->kind) {
    case MS_ALL_REDUCE:
        break;
    case MS_PRODUCT:
        fprintf(out, "gemm,gemm,f32,1,%d,%d,%d,,,%.6f,%s\n", rows, width, width, us, SOURCE);
        break;
    case MS_WEIGHT_PRODUCT:
        fprintf(out, "gemm,gemm,f32,1,%d,%d,%d,,,%.6f,%s\n", width, width, rows, us, SOURCE);
        break;
    default:
        fprintf(out, "memory,%s,f32,,,,,%d,%d,%.6f,%s\n", ms_kind_name(job->kind), rows, width, us,
                SOURCE);
    }
}

static bool put_ops(const char *folder, const ms_job *jobs, uint32_t n) {
    FILE *out = create(folder, "ops.csv");
    if (!out) return false;
    fputs("class,op,dtype,batch,m,n,k,tokens,width,time_us,source\n", out);
    for (uint32_t i = 0; i < n; i++) put_op(out, &jobs[i]);
    return fclose(out) == 0;
}

static bool put_collectives(const char *folder, const ms_job *jobs, uint32_t n, int ranks) {
    FILE *out = create(folder, "collectives.csv");
    if (!out) return false;
    fputs("collective,group_size,size_bytes,time_us,source\n", out);
    for (uint32_t i = 0; i < n; i++) {
        if (jobs[i].kind != MS_ALL_REDUCE) continue;
        fprintf(out, "all_reduce,%d,%zu,%.6f,%s\n", ranks,
                (size_t)jobs[i].rows * (size_t)jobs[i].width * sizeof(float),
                1e6 * ms_quantile(&jobs[i].series, 0.5), SOURCE);
    }
    return fclose(out) == 0;
}

/* The curves are filled by `distsim profile fit`: n says which are to be fitted, the rest is a
 * start. The reference rates only set the unit of e. */
static bool put_curves(const char *folder) {
    return put(folder, "efficiency.csv",
               "op,dtype,resource,reference_giga_per_s,e_max,w_half,w_min,w_max,n,median_error,"
               "p90_error,ratio_p05,ratio_p25,ratio_p50,ratio_p75,ratio_p95,basis,source\n"
               "gemm,f32,flop,100,1,1,1,2,1,,,,,,,,the gemm rows of ops.csv," SOURCE "\n"
               "relu,*,bytes,100,1,1,1,2,1,,,,,,,,the relu rows of ops.csv," SOURCE "\n"
               "relu_grad,*,bytes,100,1,1,1,2,1,,,,,,,,the relu_grad rows of ops.csv," SOURCE "\n"
               "mse,*,bytes,100,1,1,1,2,1,,,,,,,,the mse rows of ops.csv," SOURCE "\n"
               "mse_grad,*,bytes,100,1,1,1,2,1,,,,,,,,the mse_grad rows of ops.csv," SOURCE "\n"
               "sgd,*,bytes,100,1,1,1,2,1,,,,,,,,the sgd rows of ops.csv," SOURCE "\n"
               "memory,*,bytes,100,1,1,1,2,1,,,,,,,,all memory rows of ops.csv," SOURCE "\n");
}

/* MPI_Allreduce returns when it is done: it holds the core (holds_compute). Launch and step are in
 * the measured rows. The link is that of scenarios/topologies/localhost.dir. */
static bool put_collective_fits(const char *folder, int ranks) {
    char text[512];
    snprintf(text, sizeof text,
             "collective,group_size,capacity_gb_per_s,alpha_us,launch_us,step_us,e_max,s_half,"
             "holds_compute,n,median_error,p90_error,basis,source\n"
             "all_reduce,%d,100,0.02,0,0,1,0,1,0,,,assumed: nothing outside the rows of "
             "collectives.csv," SOURCE "\n",
             ranks);
    return put(folder, "collective_fits.csv", text);
}

bool ms_write_profile(const char *folder, const ms_job *jobs, uint32_t n, int ranks) {
    return put_ops(folder, jobs, n) && put_collectives(folder, jobs, n, ranks) &&
           put_curves(folder) && put_collective_fits(folder, ranks) &&
           put(folder, "profile.csv",
               "name,device,issue_us,software,source\n"
               "localhost,localhost-core,0,BLAS with 1 thread and MPI on this machine," SOURCE
               "\n") &&
           put(folder, "sources.csv",
               "key,title,place,revision,licence\n" SOURCE
               ",This machine's own times,measure-cpu (tools/measure),,facts\n");
}

bool ms_write_steps(const char *folder, const ms_series *steps) {
    FILE *out = create(folder, "steps.csv");
    if (!out) return false;
    fputs("layers,width,batch,median_us,q25_us,q75_us,n\n", out);
    for (uint32_t i = 0; i < ms_n_configurations; i++) {
        const ms_configuration *c = &ms_configurations[i];
        fprintf(out, "%d,%d,%d,%.3f,%.3f,%.3f,%" PRIu32 "\n", c->layers, c->width, c->batch,
                1e6 * ms_quantile(&steps[i], 0.5), 1e6 * ms_quantile(&steps[i], 0.25),
                1e6 * ms_quantile(&steps[i], 0.75), steps[i].n);
    }
    return fclose(out) == 0;
}
