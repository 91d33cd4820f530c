/* gemm_fits.csv of generic profiles from the published products of gemm.csv and deepbench.csv.
 *
 * One curve a dtype and format of scales. The launch of a kernel does not depend on the dtype: the
 * curve of 16 bits finds the launch, and the others keep it. The times of narrow products hold the
 * conversion of the activation, whose fixed time and rate are fitted with the product, except where
 * the kernel takes converted operands. */
#include "tools/fit/products.h"
#include "ir/base/output.h"
#include "sim/cost/fit/gemm.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RESIDENT 4   /* tiles of a processor; more fit no device better */
#define NO_SAG_S 1e3 /* a clock that falls after minutes fell in no row */

/* ---- what the tables call things ---- */

const fit_product_format fit_product_formats[FIT_N_PRODUCT_FORMATS] = {
    {"bf16", DS_BF16, "", 2, 0},
    {"fp8", DS_F8E4M3, "tensor", 1, 4}, /* converted as bytes_converted of ds_work counts */
    {"fp8_block", DS_F8E4M3, "block", 1, 4},
    {"nvfp4", DS_F4E2M1, "nvfp4", 0.5625, 3},  /* 4 bits, and a scale of 8 for 16 of them */
    {"mxfp4", DS_F4E2M1, "mxfp4", 0.53125, 3}, /* 4 bits, and a scale of 8 for 32 of them */
    {"fp16", DS_F16, "", 2, 0},                /* of DeepBench alone, as the next */
    {"fp32", DS_F32, "", 4, 0},
};

/* Kernels that were timed with operands converted before; of the others the time holds the
 * conversion of the activation. */
bool fit_is_converted_before(const char *kernel) {
    return strcmp(kernel, "cublasLt") == 0 || strncmp(kernel, "aiter-", 6) == 0;
}

/* Timed without a CUDA graph (sources.csv, aic-vllm-0.24.0): the time is the host's. */
static bool is_host_bound(const char *kernel) {
    return strcmp(kernel, "DeepGemmFp8BlockScaledMMKernel") == 0;
}

/* After 10,000 warm-ups: at sustained clocks, the others near the boost. */
static bool is_sustained(const char *operands) {
    return strstr(operands, "sustained") != NULL;
}

/* ---- rows ---- */

typedef struct table {
    ds_csv csv;
    fit_measured in; /* DeepBench's rows */
    ds_error *err;
} table;

typedef struct sample {
    ds_gemm_row *rows;
    uint32_t n;
    fit_groups shapes, kernels, sizes;
} sample;

static void sample_init(sample *s, uint32_t most) {
    *s = (sample){.rows = ds_xcalloc(most + 1, sizeof *s->rows)};
    ds_strtab_init(&s->shapes.names);
    ds_strtab_init(&s->kernels.names);
    ds_strtab_init(&s->sizes.names);
}

static void sample_deinit(sample *s) {
    fit_groups_deinit(&s->shapes);
    fit_groups_deinit(&s->kernels);
    fit_groups_deinit(&s->sizes);
    free(s->rows);
}

static ds_status take_row(table *t, uint32_t row, const fit_product_format *format,
                          const char *kernel, sample *s) {
    ds_gemm_row r = {.shape = {1, 0, 0, 0, format->element_bytes, 2}};
    const char *columns[] = {"m", "n", "k"}, *cells[3];
    int64_t *const to[] = {&r.shape.m, &r.shape.n, &r.shape.k};
    char name[128];
    for (int i = 0; i < 3; i++) {
        double value;
        DS_TRY(fit_cell(&t->csv, row, columns[i], &cells[i], t->err));
        DS_TRY(fit_number(&t->csv, row, columns[i], &value, t->err));
        *to[i] = (int64_t)value;
    }
    DS_TRY(fit_number(&t->csv, row, "time_us", &r.seconds, t->err));
    r.seconds *= 1e-6;
    if (!fit_is_converted_before(kernel))
        r.converted_bytes = format->converted_bytes * (double)r.shape.m * (double)r.shape.k;
    snprintf(name, sizeof name, "%s/%s", cells[1], cells[2]);
    r.shape_group = fit_group(&s->shapes, name);
    r.family = fit_group(&s->kernels, kernel);
    r.size = fit_group(&s->sizes, cells[0]);
    s->rows[s->n++] = r;
    return DS_OK;
}

/* DeepBench's products of the kind. */
static void collect_bench(const table *t, uint32_t kind, const fit_product_format *format,
                          sample *s) {
    for (uint32_t i = 0; i < t->in.rows.n; i++) {
        const measured_row *row = &t->in.rows.at[i];
        const ds_work *w = &row->parts[0].work;
        char name[64], rows[32];
        if (row->kind != kind || row->refused || w->kind != DS_WORK_GEMM ||
            strcmp(row->dtype, format->name) != 0 || strcmp(row->split, "calib") != 0)
            continue;
        snprintf(name, sizeof name, "%lld/%lld", (long long)w->n, (long long)w->k);
        snprintf(rows, sizeof rows, "%lld", (long long)w->m);
        double bytes = format->element_bytes;
        s->rows[s->n++] = (ds_gemm_row){.shape = {w->batch, w->m, w->n, w->k, bytes, bytes},
                                        .seconds = row->us * 1e-6,
                                        .shape_group = fit_group(&s->shapes, name),
                                        .size = fit_group(&s->sizes, rows)};
    }
}

/* Is the device of the table of this kind? */
static bool is_of_kind(const table *t, const char *device, uint32_t kind) {
    uint32_t of;
    ds_error ignored;
    return ds_profiles_find_kind(t->in.profiles, device, DS_NOWHERE, &of, &ignored) == DS_OK &&
           of == kind;
}

static ds_status collect(table *t, uint32_t kind, const fit_product_format *format, sample *s) {
    const char *last = NULL;
    bool of_kind = false;
    if (format->dtype == DS_F16 || format->dtype == DS_F32) {
        collect_bench(t, kind, format, s);
        return DS_OK;
    }
    for (uint32_t i = 0; i < t->csv.rows.n; i++) {
        const char *device, *dtype, *kernel, *operands, *split;
        DS_TRY(fit_cell(&t->csv, i, "device", &device, t->err));
        DS_TRY(fit_cell(&t->csv, i, "dtype", &dtype, t->err));
        DS_TRY(fit_cell(&t->csv, i, "kernel", &kernel, t->err));
        DS_TRY(fit_cell(&t->csv, i, "operands", &operands, t->err));
        DS_TRY(fit_cell(&t->csv, i, "split", &split, t->err));
        if (strcmp(split, "calib") != 0 || strcmp(dtype, format->name) != 0 ||
            is_sustained(operands) || is_host_bound(kernel))
            continue;
        if (!last || strcmp(last, device) != 0) of_kind = is_of_kind(t, device, kind);
        last = device;
        if (of_kind) DS_TRY(take_row(t, i, format, kernel, s));
    }
    return DS_OK;
}

/* ---- constants ---- */

/* Multiprocessors or compute units, by NVIDIA's and AMD's architecture papers; GB200: by the
 * device's properties as programs print them. */
static const struct {
    const char *prefix; /* of the catalogue's name */
    int64_t processors;
} processors[] = {
    {"A100", 108},         {"A800", 108},       {"H100-SXM", 132},      {"H100-PCIE", 114},
    {"H800", 132},         {"H200", 132},       {"GH200", 132},         {"B200", 148},
    {"B300", 148},         {"GB200", 152},      {"GB300", 152},         {"L40S", 142},
    {"RTX-PRO-6000", 188}, {"RTX-4090", 128},   {"MI300X", 304},        {"MI325X", 304},
    {"MI355X", 256},       {"V100", 80},        {"P100", 56},           {"T4", 40},
    {"M40", 24},           {"GTX-TITAN-X", 24}, {"TITAN-X-Pascal", 28}, {"TITAN-Xp", 30},
    {"GTX-1080Ti", 28},    {"A40", 84}};

int64_t fit_processors_of(const ds_device_kind *kind) {
    for (size_t i = 0; i < sizeof processors / sizeof *processors; i++)
        if (strncmp(kind->name, processors[i].prefix, strlen(processors[i].prefix)) == 0)
            return processors[i].processors;
    return 0;
}

static ds_gemm_fit_start start_of(const ds_device_kind *kind, int64_t n_processors,
                                  const fit_product_format *format, bool converts,
                                  double launch_s) {
    ds_gemm_fit_start start = {.model = {.processors = n_processors,
                                         .flop_per_s = kind->peak_flop_per_s[format->dtype],
                                         .bytes_per_s = (double)kind->memory_bytes_per_s,
                                         .e_max = 0.7,
                                         .tail = 0.8,
                                         .prologue = 128,
                                         .port = 0.15,
                                         .e_memory = 0.85,
                                         .overlap = 0.1,
                                         .launch_s = launch_s > 0 ? launch_s : 2.5e-6,
                                         .resident = RESIDENT,
                                         .lone = 1,
                                         .cut_s = 2e-6,
                                         .sag = 0.2,
                                         .sag_s = 5e-3},
                               .keeps_launch = launch_s > 0,
                               .validate = true};
    if (converts)
        start.conversion = (ds_gemm_conversion){5e-6, 0.6 * (double)kind->memory_bytes_per_s};
    return start;
}

static bool has_conversions(const sample *s) {
    for (uint32_t i = 0; i < s->n; i++)
        if (s->rows[i].converted_bytes > 0) return true;
    return false;
}

/* ---- the file ---- */

static const char header[] =
    "dtype,format,processors,flop_giga_per_s,memory_gb_per_s,e_max,tail,prologue,port,e_memory,"
    "overlap,launch_us,resident,lone,cut_us,sag,sag_us,convert_us,convert_gb_per_s,w_min,w_max,n,"
    "median_error,p90_error,shape_median_error,shape_p90_error,family_median_error,"
    "family_p90_error,size_median_error,size_p90_error,ratio_p05,ratio_p25,ratio_p50,ratio_p75,"
    "ratio_p95,basis,source\n";

static void put_numbers(ds_buf *out, const double *values, size_t n) {
    for (size_t i = 0; i < n; i++) {
        ds_buf_putc(out, ',');
        if (values[i] > 0) ds_buf_printf(out, "%.4g", values[i]);
    }
}

static void put_row(ds_buf *out, const fit_product_format *format, const ds_gemm_fit_result *r,
                    uint32_t n, const char *source) {
    const ds_gemm_model *m = &r->model;
    const double constants[] = {m->e_max,    m->tail,    m->prologue,      m->port,
                                m->e_memory, m->overlap, m->launch_s * 1e6};
    bool sags = m->sag_s < NO_SAG_S;
    const double form[] = {m->lone,
                           m->cut_s * 1e6,
                           sags ? m->sag : 0,
                           sags ? m->sag_s * 1e6 : 0,
                           r->conversion.seconds * 1e6,
                           r->conversion.bytes_per_s / 1e9,
                           r->w_min,
                           r->w_max};
    const double errors[] = {r->seen.median,   r->seen.p90,   r->shape.median, r->shape.p90,
                             r->family.median, r->family.p90, r->size.median,  r->size.p90,
                             r->ratios[0],     r->ratios[1],  r->ratios[2],    r->ratios[3],
                             r->ratios[4]};
    ds_buf_printf(out, "%s,%s,%lld,%.15g,%.15g", ds_dtype_name(format->dtype), format->format,
                  (long long)m->processors, m->flop_per_s / 1e9, m->bytes_per_s / 1e9);
    put_numbers(out, constants, sizeof constants / sizeof *constants);
    ds_buf_printf(out, ",%lld", (long long)m->resident);
    put_numbers(out, form, sizeof form / sizeof *form);
    ds_buf_printf(out, ",%u", n);
    put_numbers(out, errors, sizeof errors / sizeof *errors);
    bool bench = format->dtype == DS_F16 || format->dtype == DS_F32;
    ds_buf_printf(out, ",%s products of tests/data/ops/%s.csv,%s\n", format->name,
                  bench ? "deepbench" : "gemm", source);
}

static void print_fit(const ds_device_kind *kind, const fit_product_format *format, const sample *s,
                      const ds_gemm_fit_result *r) {
    printf("%s, products in %s: %u rows, %u shapes\n", kind->name, format->name, s->n,
           s->shapes.seen.n);
    fit_print_errors("rows seen", &r->seen);
    fit_print_errors("shapes left out", &r->shape);
    fit_print_errors("kernels left out", &r->family);
    fit_print_errors("sizes left out", &r->size);
    fflush(stdout);
}

static ds_status fit_format(table *t, const fit_product_format *format, double *launch_s,
                            ds_buf *out) {
    sample s;
    ds_gemm_fit_result r;
    const ds_device_kind *kind = ds_profiles_kind(t->in.profiles, t->in.of.kind);
    int64_t n_processors = fit_processors_of(kind);
    sample_init(&s, t->csv.rows.n + t->in.rows.n);
    ds_status status = collect(t, t->in.of.kind, format, &s);
    if (status == DS_OK && s.n) {
        ds_gemm_fit_start start =
            start_of(kind, n_processors, format, has_conversions(&s), *launch_s);
        status = ds_fit_gemm(s.rows, s.n, &start, &r, t->err);
        if (status == DS_OK) {
            if (!(*launch_s > 0)) *launch_s = r.model.launch_s;
            print_fit(kind, format, &s, &r);
            put_row(out, format, &r, s.n, t->in.of.source);
        }
    }
    sample_deinit(&s);
    return status;
}

/* ---- the constants of the file ---- */

static ds_status check_row(table *t, const ds_csv *fits, uint32_t row, const sample *s) {
    ds_gemm_model m;
    ds_gemm_conversion conversion;
    double *predicted = ds_xcalloc(s->n + 1, sizeof *predicted);
    double *measured = ds_xcalloc(s->n + 1, sizeof *measured);
    const fit_number_to conversions[] = {
        {"convert_us", .to = &conversion.seconds, .unit = 1e-6, .may_lack = true},
        {"convert_gb_per_s", .to = &conversion.bytes_per_s, .unit = 1e9, .may_lack = true}};
    ds_status status = fit_read_gemm(fits, row, &m, t->err);
    if (status == DS_OK) status = fit_numbers(fits, row, conversions, 2, t->err);
    for (uint32_t i = 0; i < s->n && status == DS_OK; i++) {
        predicted[i] = ds_gemm_row_seconds(&s->rows[i], &m, &conversion);
        measured[i] = s->rows[i].seconds;
    }
    if (status == DS_OK) {
        ds_fit_errors e = ds_fit_errors_of(predicted, measured, s->n);
        status = fit_check_errors(fits, row, &e, t->err);
    }
    free(predicted);
    free(measured);
    return status;
}

static ds_status check_format(table *t, const fit_product_format *format, const ds_csv *fits) {
    sample s;
    uint32_t row;
    sample_init(&s, t->csv.rows.n + t->in.rows.n);
    ds_status status = collect(t, t->in.of.kind, format, &s);
    if (status == DS_OK)
        status = fit_find_row(fits, "format", format->format, ds_dtype_name(format->dtype), &row,
                              t->err);
    if (status == DS_OK && s.n && row == UINT32_MAX)
        status = ds_error_set(t->err, DS_ERR_DATA, DS_NOWHERE, "%s: no row of %s products",
                              fits->file, format->name);
    if (status == DS_OK && s.n) status = check_row(t, fits, row, &s);
    sample_deinit(&s);
    return status;
}

static ds_status check_folder(table *t) {
    ds_csv fits;
    DS_TRY(fit_read_in(t->in.of.path, "gemm_fits.csv", &fits, t->err));
    ds_status status = DS_OK;
    for (int i = 0; i < FIT_N_PRODUCT_FORMATS && status == DS_OK; i++)
        status = check_format(t, &fit_product_formats[i], &fits);
    ds_csv_deinit(&fits);
    return status;
}

static ds_status fit_formats(table *t, bool write) {
    const char *path = t->in.of.path;
    ds_buf text = {0}, file = {0};
    double launch_s = 0;
    ds_buf_put(&text, header);
    size_t empty = text.n;
    ds_status status = DS_OK;
    for (int i = 0; i < FIT_N_PRODUCT_FORMATS && status == DS_OK; i++)
        status = fit_format(t, &fit_product_formats[i], &launch_s, &text);
    ds_buf_printf(&file, "%s/gemm_fits.csv", path);
    if (status == DS_OK && write && text.n > empty) /* experts.c has the others */
        status = fit_put_lines(path, "gemm_fits.csv", "grouped", true, &text, t->err);
    if (status == DS_OK && write && text.n > empty)
        status = ds_output_write(file.text, DS_OUTPUT_OVERWRITE, text.text, text.n, t->err);
    ds_buf_deinit(&file);
    ds_buf_deinit(&text);
    return status;
}

ds_status fit_products(const char *tables, const char *folder, fit_mode mode, ds_error *err) {
    table t = {.err = err};
    ds_status status = fit_measured_read(folder, tables, "deepbench.csv", &t.in, err);
    if (status == DS_OK) status = fit_read_in(tables, "gemm.csv", &t.csv, err);
    if (status == DS_OK)
        status = mode == FIT_CHECK ? check_folder(&t) : fit_formats(&t, mode == FIT_WRITE);
    ds_csv_deinit(&t.csv);
    fit_measured_deinit(&t.in);
    return status;
}
