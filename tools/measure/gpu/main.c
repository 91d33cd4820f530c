/* measure-gpu [--dry-run] FOLDER DEVICE: times a GPU and writes a profile of it, named DEVICE (a
 * device of the catalogue), into FOLDER. --dry-run prints the head of ops.csv and every row without
 * its time, and needs no GPU. */
#include "tools/measure/gpu/gpu.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SOURCE "measured-here"

static const char ops_head[] = "class,op,dtype,batch,m,n,k,heads,kv_heads,seq_q,seq_kv,head_dim,"
                               "causal,tokens,width,time_us,source\n";

static void put_job(FILE *out, const gpu_job *job, const char *us) {
    const char *name = gpu_op_name(job->op), *dtype = gpu_dtype_name(job->dtype);
    if (job->op == GPU_GEMM)
        fprintf(out, "gemm,gemm,%s,%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",,,,,,,,,%s,%s\n",
                dtype, job->batch, job->m, job->n, job->k, us, SOURCE);
    else if (job->op == GPU_ATTENTION)
        fprintf(out,
                "attention,attention,%s,%" PRId64 ",,,,%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64
                ",%" PRId64 ",0,,,%s,%s\n",
                dtype, job->batch, job->heads, job->heads, job->seq, job->seq, job->head_dim, us,
                SOURCE);
    else
        fprintf(out, "memory,%s,%s,,,,,,,,,,,%" PRId64 ",%" PRId64 ",%s,%s\n", name, dtype,
                job->rows, job->width, us, SOURCE);
}

static FILE *create(const char *folder, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *out = fopen(path, "w");
    if (!out) fprintf(stderr, "measure-gpu: error: cannot write %s\n", path);
    return out;
}

static bool put_ops(const char *folder, const gpu_job *jobs, uint32_t n) {
    FILE *out = create(folder, "ops.csv");
    if (!out) return false;
    fputs(ops_head, out);
    for (uint32_t i = 0; i < n; i++) {
        char us[32];
        snprintf(us, sizeof us, "%.6f", jobs[i].us);
        put_job(out, &jobs[i], us);
    }
    return fclose(out) == 0;
}

/* The best rate of the products of a dtype: the unit of its efficiencies, with a quarter on top, so
 * that none exceeds 1. */
static double reference_giga(const gpu_job *jobs, uint32_t n, gpu_dtype dtype) {
    double best = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (jobs[i].op != GPU_GEMM || jobs[i].dtype != dtype) continue;
        double giga = gpu_job_flop(&jobs[i]) / jobs[i].us * 1e-3;
        if (giga > best) best = giga;
    }
    return 1.25 * best;
}

#define RATIOS "ratio_p05,ratio_p25,ratio_p50,ratio_p75,ratio_p95"

/* Starts for `distsim profile fit`, which fills in the constants. */
static bool put_fits(const char *folder, const gpu_job *jobs, uint32_t n, const gpu_device *d) {
    double memory = d->memory_gb_per_s > 0 ? d->memory_gb_per_s : 1000;
    FILE *out = create(folder, "efficiency.csv");
    if (!out) return false;
    fputs("op,dtype,resource,reference_giga_per_s,e_max,w_half,w_min,w_max,n,median_error,"
          "p90_error," RATIOS ",basis,source\n",
          out);
    fprintf(out, "attention,*,flop,%.3f,1,1,1,2,1,,,,,,,,the attention rows of ops.csv,%s\n",
            reference_giga(jobs, n, GPU_F16), SOURCE);
    for (int op = GPU_ADD; op < GPU_OP_COUNT; op++)
        fprintf(out, "%s,*,bytes,%.3f,1,1,1,2,1,,,,,,,,the rows of ops.csv,%s\n",
                gpu_op_name((gpu_op)op), memory, SOURCE);
    fprintf(out, "memory,*,bytes,%.3f,1,1,1,2,1,,,,,,,,all memory rows of ops.csv,%s\n", memory,
            SOURCE);
    if (fclose(out) != 0 || !(out = create(folder, "gemm_fits.csv"))) return false;
    fputs("dtype,processors,flop_giga_per_s,memory_gb_per_s,e_max,tail,prologue,port,e_memory,"
          "overlap,launch_us,w_min,w_max,n,median_error,p90_error,shape_median_error,"
          "shape_p90_error,family_median_error,family_p90_error,size_median_error,size_p90_"
          "error," RATIOS ",basis,source\n",
          out);
    for (int type = GPU_F16; type <= GPU_F32; type++)
        fprintf(out,
                "%s,%d,%.3f,%.3f,0.75,0.5,64,0.3,0.8,0.15,4,1,2,1,,,,,,,,,,,,,,all gemm rows of "
                "ops.csv,%s\n",
                gpu_dtype_name((gpu_dtype)type), d->processors,
                reference_giga(jobs, n, (gpu_dtype)type), memory, SOURCE);
    return fclose(out) == 0;
}

static bool put_profile(const char *folder, const char *device, const gpu_device *d,
                        double launch_us) {
    FILE *out = create(folder, "profile.csv");
    if (!out) return false;
    fprintf(out,
            "name,device,issue_us,software,source\n"
            "%s-measured,%s,%.6f,\"%s, CUDA %d.%d, cuBLAS\",%s\n",
            device, device, launch_us, d->name, d->runtime_version / 1000,
            d->runtime_version % 1000 / 10, SOURCE);
    if (fclose(out) != 0 || !(out = create(folder, "sources.csv"))) return false;
    fprintf(out,
            "key,title,place,revision,licence\n" SOURCE
            ",\"Own times of a %s\",measure-gpu (tools/measure/gpu),,facts\n",
            d->name);
    return fclose(out) == 0;
}

/* Copies have no table in a profile: links of a topology take their bandwidth and latency. */
static bool put_copies(const char *folder) {
    static const char *const names[] = {"host to device", "device to host", "on the device"};
    FILE *out = create(folder, "copies.csv");
    if (!out) return false;
    fputs("direction,size_bytes,time_us\n", out);
    bool done = true;
    for (int c = 0; c < GPU_COPY_COUNT && done; c++)
        for (int64_t bytes = 4096; bytes <= INT64_C(1) << 28 && done; bytes *= 4) {
            double us;
            done = gpu_time_copy((gpu_copy)c, bytes, &us);
            if (done) fprintf(out, "%s,%" PRId64 ",%.6f\n", names[c], bytes, us);
        }
    return fclose(out) == 0 && done;
}

static bool measure(const char *folder, const char *name, gpu_job *jobs, uint32_t n) {
    gpu_device device;
    double launch_us;
    if (!gpu_open(&device)) return false;
    fprintf(stderr, "%s: %d processors, %.0f GB/s, %" PRIu32 " operations\n", device.name,
            device.processors, device.memory_gb_per_s, n);
    bool done = gpu_time_launch(&launch_us);
    for (uint32_t i = 0; i < n && done; i++) {
        done = gpu_time(&jobs[i]);
        if (i % 100 == 99) fprintf(stderr, "%" PRIu32 " done\n", i + 1);
    }
    done = done && put_ops(folder, jobs, n) && put_fits(folder, jobs, n, &device) &&
           put_profile(folder, name, &device, launch_us) && put_copies(folder);
    gpu_close();
    return done;
}

static void dry_run(const gpu_job *jobs, uint32_t n) {
    double flop = 0, bytes = 0;
    fputs(ops_head, stdout);
    for (uint32_t i = 0; i < n; i++) {
        put_job(stdout, &jobs[i], "");
        flop += gpu_job_flop(&jobs[i]);
        bytes += gpu_job_bytes(&jobs[i]);
    }
    fprintf(stderr, "%" PRIu32 " operations, %.4g FLOP and %.4g bytes once each\n", n, flop, bytes);
}

int main(int argc, char **argv) {
    bool dry = argc == 2 && strcmp(argv[1], "--dry-run") == 0;
    if (!dry && (argc != 3 || argv[1][0] == '-')) {
        fputs("usage: measure-gpu FOLDER DEVICE | --dry-run\n"
              "DEVICE: the GPU's name in cost_profiles/catalogue/devices.csv\n",
              stderr);
        return 2;
    }
    uint32_t n;
    gpu_job *jobs = gpu_jobs(&n);
    bool done = true;
    if (dry)
        dry_run(jobs, n);
    else
        done = measure(argv[1], argv[2], jobs, n);
    free(jobs);
    return done ? 0 : 1;
}
