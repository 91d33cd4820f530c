/* fit-profiles memory: the curves of memory-bound ops from a published table of them
 * (tests/data/ops/memory_bound.csv).
 *
 *     t = max(floor, row · tokens, t0 + bytes/(B e_max)),  t0 = w_half/(B e_max)
 *
 * t0 is what a kernel takes besides its bytes, `row` what a row of a norm takes that a group of
 * threads works on alone, `floor` the shortest kernel. floor and row are fitted where the file has
 * them. A row of efficiency.csv with n > 0 whose op and kernels a line of `families` has is fitted
 * to the rows of the device; errors and residuals are of rows predicted without all rows of their
 * size (five folds).
 *
 * A row with n = 0 and "borrowed: PROFILE" as its basis has PROFILE's share of the bandwidth and
 * PROFILE's times, at the bandwidth of its own device; "as OP" or "as OP, KERNELS" has the constants
 * of another row of the file. Both, and the curve of all ops, have the errors that rows of
 * seven devices show when curves of another device predict them (cost_profiles/FITTING.md). Rows of split val are not looked at. */
#include "sim/cost/fit/fit.h"
#include "tools/fit/fit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How the table calls what efficiency.csv calls op and kernels. Transformer Engine's norms are
 * taken for cuDNN's; the fused ones of an inference engine stand for kernels that are not known. */
static const struct family {
    const char *op, *direction, *backend; /* of the table; an op up to here */
    const char *curve, *kernels;
} families[] = {
    {"rms_norm", "fwd", "pytorch", "rms_norm", "eager"},
    {"rms_norm", "fwd", "torch_compile", "rms_norm", "compiled"},
    {"rms_norm", "fwd", "cudnn", "rms_norm", "fused"},
    {"rms_norm", "bwd", "pytorch", "rms_norm_grad", "eager"},
    {"rms_norm", "bwd", "torch_compile", "rms_norm_grad", "compiled"},
    {"rms_norm", "bwd", "cudnn", "rms_norm_grad", "fused"},
    {"rms_norm", "fwd", "vllm", "rms_norm", ""},
    {"add+rms_norm", "fwd", "vllm", "add_rms_norm", ""},
    {"embedding", "fwd", "vllm", "embedding", ""},
    {"rope", "fwd", "vllm", "rotary", ""},
    {"silu_mul", "fwd", "vllm", "silu_mul", ""},
    {"quant_fp8_static", "fwd", "trtllm", "convert", ""},
    {"fp8_amax", "fwd", "trtllm", "amax", ""},
};

typedef struct point {
    double bytes, tokens, seconds;
    uint32_t group;
} point;

typedef struct curve {
    double reference_per_s; /* bytes/s */
    double e_max, t0_s, floor_s, row_s;
    bool has_floor, has_row;
} curve;

typedef struct job {
    ds_csv table, curves; /* of the ops; efficiency.csv */
    const char *alias;    /* the device in the table */
    fit_mode mode;
    uint32_t n_off;
    ds_error *err;
} job;

static double seconds_of(const curve *c, const point *p) {
    double t = c->t0_s + p->bytes / (c->reference_per_s * c->e_max);
    t = fmax(t, c->floor_s);
    return fmax(t, c->row_s * p->tokens);
}

/* ---- the fit ---- */

typedef struct search {
    const point *points;
    uint32_t n, skip; /* all but those of group `skip` modulo the folds; UINT32_MAX: all */
    curve *curve;
} search;

static void set_variables(curve *c, const double *x) {
    uint32_t i = 0;
    c->e_max = exp(x[i++]);
    c->t0_s = exp(x[i++]);
    if (c->has_floor) c->floor_s = exp(x[i++]);
    if (c->has_row) c->row_s = exp(x[i++]);
}

static ds_status loss_of(void *context, const double *x, double *value, ds_error *err) {
    const search *s = context;
    (void)err;
    set_variables(s->curve, x);
    *value = 0;
    for (uint32_t i = 0; i < s->n; i++)
        if (s->points[i].group % DS_FIT_FOLDS != s->skip)
            *value += ds_fit_loss(seconds_of(s->curve, &s->points[i]), s->points[i].seconds);
    return DS_OK;
}

/* Starts from a third, two thirds and nine tenths of the bandwidth, and 1 and 5 us besides. */
static ds_status find_curve(const point *points, uint32_t n, uint32_t skip, curve *c,
                            ds_error *err) {
    static const double shares[] = {0.3, 0.6, 0.9}, times[] = {1e-6, 5e-6};
    double starts[6 * 4], best[4], value;
    uint32_t n_variables = 2u + (c->has_floor ? 1 : 0) + (c->has_row ? 1 : 0), at = 0;
    for (int e = 0; e < 3; e++)
        for (int t = 0; t < 2; t++) {
            starts[at++] = log(shares[e]);
            starts[at++] = log(times[t]);
            if (c->has_floor) starts[at++] = log(2e-6);
            if (c->has_row) starts[at++] = log(1e-9);
        }
    search s = {points, n, skip, c};
    ds_fit_search how = {.n = n_variables,
                         .starts = starts,
                         .n_starts = 6,
                         .step = 0.3,
                         .tolerance = 1e-5,
                         .max_iterations = 3000};
    DS_TRY(ds_fit_minimize(&how, loss_of, &s, best, &value, err));
    set_variables(c, best);
    return DS_OK;
}

/* ---- measured rows ---- */

static bool begins(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

/* The table's row is of the device and of the family. The ops' names may go on: "rms_norm(final)",
 * "fp8_amax (dynamic minus static)". */
static ds_status is_of(const job *j, uint32_t row, const struct family *f, bool *out) {
    const char *device, *op, *direction, *backend, *split;
    DS_TRY(fit_cell(&j->table, row, "device", &device, j->err));
    DS_TRY(fit_cell(&j->table, row, "op", &op, j->err));
    DS_TRY(fit_cell(&j->table, row, "direction", &direction, j->err));
    DS_TRY(fit_cell(&j->table, row, "backend", &backend, j->err));
    DS_TRY(fit_cell(&j->table, row, "split", &split, j->err));
    *out = strcmp(device, j->alias) == 0 && begins(op, f->op) &&
           strcmp(direction, f->direction) == 0 && begins(backend, f->backend) &&
           strcmp(split, "calib") == 0;
    return DS_OK;
}

static int by_bytes(const void *a, const void *b) {
    double x = ((const point *)a)->bytes, y = ((const point *)b)->bytes;
    return (x > y) - (x < y);
}

/* Rows of a size are of one group, sizes in ascending order. */
static ds_status points_of(const job *j, const struct family *f, point *points, uint32_t *n) {
    *n = 0;
    for (uint32_t i = 0; i < j->table.rows.n; i++) {
        bool mine;
        point *p = &points[*n];
        DS_TRY(is_of(j, i, f, &mine));
        if (!mine) continue;
        DS_TRY(fit_number(&j->table, i, "bytes", &p->bytes, j->err));
        DS_TRY(fit_number(&j->table, i, "rows", &p->tokens, j->err));
        DS_TRY(fit_number(&j->table, i, "time_us", &p->seconds, j->err));
        p->seconds *= 1e-6;
        ++*n;
    }
    qsort(points, *n, sizeof *points, by_bytes);
    for (uint32_t i = 0; i < *n; i++)
        points[i].group = i ? points[i - 1].group + (points[i].bytes > points[i - 1].bytes) : 0;
    return DS_OK;
}

/* ---- efficiency.csv ---- */

static ds_status number_or_none(const job *j, uint32_t row, const char *column, double *out) {
    const char *text;
    *out = 0;
    DS_TRY(fit_cell(&j->curves, row, column, &text, j->err));
    return *text ? fit_number(&j->curves, row, column, out, j->err) : DS_OK;
}

static ds_status read_curve(const job *j, uint32_t row, curve *c) {
    double w_half;
    *c = (curve){0};
    DS_TRY(fit_number(&j->curves, row, "reference_giga_per_s", &c->reference_per_s, j->err));
    DS_TRY(fit_number(&j->curves, row, "e_max", &c->e_max, j->err));
    DS_TRY(fit_number(&j->curves, row, "w_half", &w_half, j->err));
    DS_TRY(number_or_none(j, row, "floor_us", &c->floor_s));
    DS_TRY(number_or_none(j, row, "row_ns", &c->row_s));
    c->reference_per_s *= 1e9;
    c->t0_s = w_half / (c->reference_per_s * c->e_max);
    c->floor_s *= 1e-6;
    c->row_s *= 1e-9;
    c->has_floor = c->floor_s > 0;
    c->has_row = c->row_s > 0;
    return DS_OK;
}

static ds_status put_curve(job *j, uint32_t row, const curve *c, double w_min, double w_max) {
    const struct {
        const char *column;
        double value;
        bool there;
    } cells[] = {{"e_max", c->e_max, true},
                 {"w_half", c->t0_s * c->reference_per_s * c->e_max, true},
                 {"floor_us", 1e6 * c->floor_s, c->has_floor},
                 {"row_ns", 1e9 * c->row_s, c->has_row},
                 {"w_min", w_min, w_max > 0},
                 {"w_max", w_max, w_max > 0}};
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++)
        if (cells[i].there)
            DS_TRY(fit_set(&j->curves, row, cells[i].column, i == 2 || i == 3 ? "%.3f" : "%.4g",
                           cells[i].value, j->err));
    return DS_OK;
}

/* Rows that no row of the device backs: errors of transfers. */
static ds_status put_transfer(job *j, uint32_t row) {
    static const ds_fit_errors errors = {.median = 0.073, .p90 = 0.326};
    static const double ratios[5] = {0.72, 0.92, 0.99, 1.07, 1.36};
    const char *op, *basis;
    DS_TRY(fit_cell(&j->curves, row, "op", &op, j->err));
    DS_TRY(fit_cell(&j->curves, row, "basis", &basis, j->err));
    bool lent = begins(basis, "borrowed: ") || begins(basis, "as ") || strcmp(op, "memory") == 0;
    return lent ? fit_set_errors(&j->curves, row, 0, &errors, ratios, j->err) : DS_OK;
}

/* A constant of the file is off if the time of a middling op is: constants trade against each
 * other. */
static void compare(job *j, uint32_t row, const curve *found, const point *points, uint32_t n) {
    curve old;
    if (read_curve(j, row, &old) != DS_OK) return;
    double was = 0, is = 0;
    for (uint32_t i = 0; i < n; i++) {
        was += ds_fit_loss(seconds_of(&old, &points[i]), points[i].seconds);
        is += ds_fit_loss(seconds_of(found, &points[i]), points[i].seconds);
    }
    if (was > is * 1.01 + 1e-6) j->n_off++;
}

static ds_status fit_row(job *j, uint32_t row, const struct family *f, point *points) {
    uint32_t n;
    curve c;
    DS_TRY(points_of(j, f, points, &n));
    DS_TRY(read_curve(j, row, &c));
    uint32_t least = DS_FIT_ROWS_PER_CONSTANT * 2;
    if (n < least)
        return ds_csv_error(&j->curves, &j->curves.rows.at[row], j->err,
                            "%u rows of %s %s by %s; a curve needs %u", n, f->op, f->direction,
                            f->backend, least);
    double *left = ds_xcalloc(2 * n, sizeof *left), *measured = left + n, ratios[5];
    ds_status status = DS_OK;
    for (uint32_t fold = 0; fold < DS_FIT_FOLDS && status == DS_OK; fold++) {
        status = find_curve(points, n, fold, &c, j->err);
        for (uint32_t i = 0; i < n; i++)
            if (points[i].group % DS_FIT_FOLDS == fold) left[i] = seconds_of(&c, &points[i]);
    }
    if (status == DS_OK) status = find_curve(points, n, UINT32_MAX, &c, j->err);
    for (uint32_t i = 0; i < n; i++) measured[i] = points[i].seconds;
    if (status == DS_OK) {
        ds_fit_errors e = ds_fit_errors_of(left, measured, n);
        ds_fit_ratios(left, measured, n, ratios);
        printf("%-16s %-9s e %.3f  t0 %5.2f us  floor %5.2f us  row %.3f ns  %3u rows, left out: "
               "median %4.1f %%, p90 %4.1f %%\n",
               f->curve, f->kernels, c.e_max, 1e6 * c.t0_s, 1e6 * c.floor_s, 1e9 * c.row_s, n,
               100 * e.median, 100 * e.p90);
        compare(j, row, &c, points, n);
        status = put_curve(j, row, &c, points[0].bytes, points[n - 1].bytes);
        if (status == DS_OK) status = fit_set_errors(&j->curves, row, n, &e, ratios, j->err);
    }
    free(left);
    return status;
}

/* ---- one folder ---- */

static ds_status family_of(const job *j, uint32_t row, const struct family **out) {
    const char *op, *kernels, *basis;
    DS_TRY(fit_cell(&j->curves, row, "op", &op, j->err));
    DS_TRY(fit_cell(&j->curves, row, "kernels", &kernels, j->err));
    DS_TRY(fit_cell(&j->curves, row, "basis", &basis, j->err));
    *out = NULL;
    if (!begins(basis, "memory_bound.csv")) return DS_OK;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(op, families[i].curve) == 0 && strcmp(kernels, families[i].kernels) == 0)
            *out = &families[i];
    return DS_OK;
}

/* The row of efficiency.csv of an op and kernels; UINT32_MAX: none. */
static ds_status find_row(const job *j, const char *op, const char *kernels, uint32_t *row) {
    for (*row = 0; *row < j->curves.rows.n; ++*row) {
        const char *a, *k, *resource;
        DS_TRY(fit_cell(&j->curves, *row, "op", &a, j->err));
        DS_TRY(fit_cell(&j->curves, *row, "kernels", &k, j->err));
        DS_TRY(fit_cell(&j->curves, *row, "resource", &resource, j->err));
        if (strcmp(a, op) == 0 && strcmp(k, kernels) == 0 && strcmp(resource, "bytes") == 0)
            return DS_OK;
    }
    *row = UINT32_MAX;
    return DS_OK;
}

static ds_status copy_row(job *j, uint32_t row, const job *from, uint32_t other) {
    curve theirs, mine;
    double w_min, w_max;
    DS_TRY(read_curve(from, other, &theirs));
    DS_TRY(read_curve(j, row, &mine));
    DS_TRY(fit_number(&from->curves, other, "w_min", &w_min, j->err));
    DS_TRY(fit_number(&from->curves, other, "w_max", &w_max, j->err));
    double off = fabs(mine.e_max / theirs.e_max - 1) + fabs(mine.t0_s - theirs.t0_s) * 1e6;
    if (off > 0.01) j->n_off++;
    theirs.reference_per_s = mine.reference_per_s;
    return put_curve(j, row, &theirs, w_min, w_max);
}

/* "borrowed: PROFILE": the folder beside this one. */
static ds_status borrow_row(job *j, const char *folder, uint32_t row, const char *profile) {
    const char *slash = strrchr(folder, '/'), *op, *kernels;
    char name[256];
    job other = {.err = j->err};
    uint32_t at;
    size_t length = strcspn(profile, ";, ");
    snprintf(name, sizeof name, "%.*s%.*s", slash ? (int)(slash - folder + 1) : 0, folder,
             (int)length, profile);
    DS_TRY(fit_read_in(name, "efficiency.csv", &other.curves, j->err));
    ds_status status = fit_cell(&j->curves, row, "op", &op, j->err);
    if (status == DS_OK) status = fit_cell(&j->curves, row, "kernels", &kernels, j->err);
    if (status == DS_OK) status = find_row(&other, op, kernels, &at);
    if (status == DS_OK && at == UINT32_MAX)
        status = ds_csv_error(&j->curves, &j->curves.rows.at[row], j->err,
                              "%s has no curve of %s, kernels '%s'", name, op, kernels);
    if (status == DS_OK) status = copy_row(j, row, &other, at);
    ds_csv_deinit(&other.curves);
    return status;
}

/* "as OP" or "as OP, KERNELS": another row of the file. */
static ds_status follow_row(job *j, uint32_t row, const char *text) {
    char op[64] = "", kernels[16] = "";
    uint32_t at;
    sscanf(text, "%63[a-z_]%*[, ]%15[a-z]", op, kernels);
    if (strcmp(kernels, "eager") != 0 && strcmp(kernels, "compiled") != 0 &&
        strcmp(kernels, "fused") != 0)
        *kernels = 0;
    DS_TRY(find_row(j, op, kernels, &at));
    if (at != UINT32_MAX) return copy_row(j, row, j, at);
    return ds_csv_error(&j->curves, &j->curves.rows.at[row], j->err,
                        "no curve of %s, kernels '%s', to follow", op, kernels);
}

static ds_status fit_rows(job *j, const char *folder) {
    point *points = ds_xcalloc(j->table.rows.n + 1, sizeof *points);
    ds_status status = DS_OK;
    for (uint32_t i = 0; i < j->curves.rows.n && status == DS_OK; i++) {
        const struct family *f;
        status = family_of(j, i, &f);
        if (status == DS_OK && f) status = fit_row(j, i, f, points);
    }
    free(points);
    for (uint32_t i = 0; i < j->curves.rows.n && status == DS_OK; i++) status = put_transfer(j, i);
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < j->curves.rows.n && status == DS_OK; i++) {
            const char *basis;
            status = fit_cell(&j->curves, i, "basis", &basis, j->err);
            if (status == DS_OK && pass == 0 && begins(basis, "borrowed: "))
                status = borrow_row(j, folder, i, basis + strlen("borrowed: "));
            if (status == DS_OK && pass == 1 && begins(basis, "as "))
                status = follow_row(j, i, basis + strlen("as "));
        }
    return status;
}

ds_status fit_memory(const char *table, const char *folder, const char *alias, fit_mode mode,
                     ds_error *err) {
    job j = {.alias = alias, .mode = mode, .err = err};
    ds_status status = ds_csv_read(table, &j.table, err);
    if (status == DS_OK) status = fit_read_in(folder, "efficiency.csv", &j.curves, err);
    if (status == DS_OK) status = fit_rows(&j, folder);
    if (status == DS_OK) status = fit_write_or_check(&j.curves, false, mode, j.n_off, err);
    ds_csv_deinit(&j.curves);
    ds_csv_deinit(&j.table);
    return status;
}
