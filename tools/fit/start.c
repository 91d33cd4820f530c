/* Tables of constants for a folder that has measured rows and no constants yet.
 *
 * Which rows there are says which curves: one for products and one for attention in the dtype with
 * the most rows, one for each memory-bound op and one for all of them, each from as many rows on as
 * a fit takes. Peaks of the catalogue are the reference; of a device that it lacks, 1 TFLOP/s and
 * 100 GB/s, which only set the unit of e. Other dtypes and kinds of products follow gemm's curve,
 * as in the committed profiles. The constants themselves are marked as not fitted yet (w_max
 * START_W_MAX), so that fit_drop_unfitted finds what no fit replaced. */
#include "ir/base/arena.h"
#include "sim/cost/cost.h"
#include "sim/cost/fit/fit.h"
#include "tools/fit/fit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define START_W_MAX    "2"
#define LEAST_ROWS     (2 * DS_FIT_ROWS_PER_CONSTANT) /* of a curve: e_max and w_half */
#define LEAST_OF_TILES (7 * DS_FIT_ROWS_PER_CONSTANT)

typedef struct starter {
    const ds_csv *ops;
    ds_profiles *profiles;      /* NULL: no database */
    const ds_device_kind *kind; /* NULL: not in the catalogue */
    const char *source;         /* of the first measured row: its key is known to the folder */
    ds_buf *out;
} starter;

static const char *cell(const starter *s, uint32_t row, const char *column) {
    uint32_t at = ds_csv_find(s->ops, column);
    return at == DS_CSV_NO_COLUMN ? "" : s->ops->rows.at[row].cells[at];
}

/* The catalogue's entry of the device that FOLDER/profile.csv names. */
static void find_device(starter *s, const char *folder) {
    ds_error ignored;
    fit_profile of;
    if (ds_profiles_load(NULL, &s->profiles, &ignored) == DS_OK &&
        fit_profile_read(s->profiles, folder, &of, &ignored) == DS_OK)
        s->kind = ds_profiles_kind(s->profiles, of.kind);
}

static bool starter_init(starter *s, const ds_csv *ops, const char *folder, ds_buf *out) {
    *s = (starter){.ops = ops, .out = out};
    if (!ops->rows.n) return false;
    s->source = cell(s, 0, "source");
    find_device(s, folder);
    return true;
}

static double peak_of(const starter *s, const char *dtype) {
    ds_dtype type;
    if (!s->kind || !ds_dtype_parse(dtype, &type)) return 0;
    return s->kind->peak_flop_per_s[type] / 1e9;
}

static uint32_t count_cells(const starter *s, const char *column, const char *name,
                            const char *dtype) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->ops->rows.n; i++)
        n += strcmp(cell(s, i, column), name) == 0 &&
             (!dtype || strcmp(cell(s, i, "dtype"), dtype) == 0);
    return n;
}

/* The dtype with the most rows of a class, of equal ones the first; NULL: no rows. */
static const char *main_dtype(const starter *s, const char *class, uint32_t *n) {
    const char *best = NULL;
    *n = 0;
    for (uint32_t i = 0; i < s->ops->rows.n; i++) {
        if (strcmp(cell(s, i, "class"), class) != 0) continue;
        uint32_t of = count_cells(s, "class", class, cell(s, i, "dtype"));
        if (of > *n) best = cell(s, i, "dtype");
        if (of > *n) *n = of;
    }
    return best;
}

static void put_curve(starter *s, const char *op, const char *dtype, const char *resource,
                      double giga_per_s, bool fitted, const char *basis) {
    double unit = strcmp(resource, "flop") == 0 ? 1000 : 100;
    ds_csv_put_cell(s->out, op, true);
    ds_buf_putc(s->out, ',');
    ds_csv_put_cell(s->out, dtype, false);
    ds_buf_printf(s->out, ",%s,%.15g,1,1,1," START_W_MAX ",%d,,,,,,,,", resource,
                  giga_per_s > 0 ? giga_per_s : unit, fitted);
    ds_csv_put_cell(s->out, basis, false);
    ds_buf_putc(s->out, ',');
    ds_csv_put_cell(s->out, s->source, false);
    ds_buf_putc(s->out, '\n');
}

static void put_bytes(starter *s, const char *op, const char *basis) {
    double giga_per_s = s->kind ? (double)s->kind->memory_bytes_per_s / 1e9 : 0;
    put_curve(s, op, "*", "bytes", giga_per_s, true, basis);
}

/* Products in other dtypes than the fitted one: where the catalogue knows both peaks. */
static void put_other_dtypes(starter *s, const char *fitted) {
    static const char *const dtypes[] = {"f16", "bf16", "tf32", "f32", "f64"};
    double same = peak_of(s, fitted);
    bool is_half = strcmp(fitted, "f16") == 0 || strcmp(fitted, "bf16") == 0;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        double peak = peak_of(s, dtypes[i]);
        if (!(peak > 0) || !(same > 0) || strcmp(dtypes[i], fitted) == 0) continue;
        if (is_half && i < 2 && peak >= same && peak <= same) continue; /* stands in */
        put_curve(s, "gemm", dtypes[i], "flop", peak, false,
                  "assumed: the gemm curve at this peak with the same fixed time");
    }
}

static void put_products(starter *s) {
    static const char *const alike[] = {"conv", "attention", "recurrent"};
    uint32_t n, n_attention;
    const char *dtype = main_dtype(s, "gemm", &n), *of = main_dtype(s, "attention", &n_attention);
    bool some = n >= LEAST_ROWS;
    if (some)
        put_curve(s, "gemm", dtype, "flop", peak_of(s, dtype), true, "the gemm rows of ops.csv");
    if (n >= 2 * LEAST_ROWS) put_bytes(s, "gemm", "the gemm rows of ops.csv");
    if (n_attention >= LEAST_ROWS)
        put_curve(s, "attention", of, "flop", peak_of(s, of), true,
                  "the attention rows of ops.csv");
    if (some) put_other_dtypes(s, dtype);
    for (size_t i = 0; some && i < sizeof alike / sizeof *alike; i++)
        if (i != 1 || n_attention < LEAST_ROWS)
            put_curve(s, alike[i], dtype, "flop", peak_of(s, dtype), false,
                      "assumed: the gemm curve since the same units do the work");
}

static bool is_first(const starter *s, uint32_t row) {
    for (uint32_t i = 0; i < row; i++)
        if (strcmp(cell(s, i, "op"), cell(s, row, "op")) == 0) return false;
    return true;
}

static void put_memory(starter *s) {
    char basis[128];
    for (uint32_t i = 0; i < s->ops->rows.n; i++) {
        const char *op = cell(s, i, "op");
        if (strcmp(cell(s, i, "class"), "memory") != 0 || !is_first(s, i)) continue;
        if (count_cells(s, "op", op, NULL) < LEAST_ROWS) continue;
        snprintf(basis, sizeof basis, "the %.64s rows of ops.csv", op);
        put_bytes(s, op, basis);
    }
    if (count_cells(s, "class", "memory", NULL) >= LEAST_ROWS)
        put_bytes(s, "memory", "all memory rows of ops.csv");
}

void fit_start_curves(const ds_csv *ops, const char *folder, ds_buf *out) {
    starter s;
    ds_buf_put(out, "op,dtype,resource,reference_giga_per_s,e_max,w_half,w_min,w_max,n,"
                    "median_error,p90_error,ratio_p05,ratio_p25,ratio_p50,ratio_p75,ratio_p95,"
                    "basis,source\n");
    if (!starter_init(&s, ops, folder, out)) return;
    put_products(&s);
    put_memory(&s);
    ds_profiles_free(s.profiles);
}

/* Multiprocessors; NVIDIA's architecture papers, and for the last two the products' pages. */
static const struct {
    const char *prefix; /* of the catalogue's name */
    int processors;
} multiprocessors[] = {{"P100", 56},      {"V100", 80},  {"A100", 108}, {"A40", 84},
                       {"H100-SXM", 132}, {"H200", 132}, {"B200", 148}};

static int processors_of(const ds_device_kind *kind) {
    for (size_t i = 0; kind && i < sizeof multiprocessors / sizeof *multiprocessors; i++)
        if (strncmp(kind->name, multiprocessors[i].prefix, strlen(multiprocessors[i].prefix)) == 0)
            return multiprocessors[i].processors;
    return 0;
}

bool fit_start_gemms(const ds_csv *ops, const char *folder, ds_buf *out) {
    starter s;
    uint32_t n;
    if (!starter_init(&s, ops, folder, out)) return false;
    const char *dtype = main_dtype(&s, "gemm", &n);
    int processors = processors_of(s.kind);
    bool can = n >= LEAST_OF_TILES && processors && peak_of(&s, dtype) > 0;
    if (can)
        ds_buf_printf(out,
                      "dtype,processors,flop_giga_per_s,memory_gb_per_s,e_max,tail,prologue,port,"
                      "e_memory,overlap,launch_us,w_min,w_max,n,median_error,p90_error,"
                      "shape_median_error,shape_p90_error,family_median_error,family_p90_error,"
                      "size_median_error,size_p90_error,ratio_p05,ratio_p25,ratio_p50,ratio_p75,"
                      "ratio_p95,basis,source\n"
                      "%s,%d,%.15g,%.15g,0.8,0.5,100,0.2,0.8,0.25,3,1," START_W_MAX
                      ",1,,,,,,,,,,,,,,the gemm rows of ops.csv,%s\n",
                      dtype, processors, peak_of(&s, dtype),
                      (double)s.kind->memory_bytes_per_s / 1e9, s.source);
    else if (n >= LEAST_OF_TILES)
        printf("products by tiles and waves: the multiprocessors of this device are not known "
               "here; a row in %s/gemm_fits.csv says them\n",
               folder);
    ds_profiles_free(s.profiles);
    return can;
}

void fit_drop_unfitted(ds_csv *csv) {
    uint32_t at = ds_csv_find(csv, "w_max"), kept = 0;
    for (uint32_t i = 0; at != DS_CSV_NO_COLUMN && i < csv->rows.n; i++)
        if (strcmp(csv->rows.at[i].cells[at], START_W_MAX) != 0)
            csv->rows.at[kept++] = csv->rows.at[i];
    csv->rows.n = kept;
}
