/* distsim profile calibrate ROWS.csv: error against the number of measured steps of one's own, and
 * the factors of all of them as a profile. */
#include "ir/base/json.h"
#include "ir/base/output.h"
#include "tools/cli/profile.h"
#include "tools/validate/calibrate.h"
#include "tools/validate/errors.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

static const uint32_t numbers[] = {0, 1, 3, 10};
enum { N_NUMBERS = sizeof numbers / sizeof *numbers };
static const char *const factor_names[CAL_FACTORS] = {"compute", "communication", "host"};

typedef struct calibrating {
    const profile_calibrate_options *options;
    cli_options *common;
    ds_profiles *profiles;
    uint32_t generic; /* the profile of the rows' device */
    ds_csv csv;
    DS_VEC(val_prediction) rows; /* of the device, by the generic profile … */
    DS_VEC(val_prediction) open; /* … and before they are predicted */
    cal_prior prior;
    cal_row *near; /* the rows that have a prediction, n of them */
    uint32_t n;
    cal_errors errors[N_NUMBERS];
    cal_estimate all;                  /* from all rows */
    double factors[CAL_FACTORS], seen; /* of all rows; their mean error by simulation, in percent */
    double low, high;                  /* nine in ten of measured/predicted */
} calibrating;

/* ---- rows ---- */

static ds_status kind_of(const calibrating *c, const val_row *row, uint32_t *kind, ds_error *err) {
    char gpu[64];
    val_gpu_name(row->gpu, gpu, sizeof gpu);
    ds_error unsaid;
    if (ds_profiles_find_kind(c->profiles, gpu, DS_NOWHERE, kind, &unsaid) == DS_OK) return DS_OK;
    return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "%s:%u: gpu = '%s': %s", c->options->table,
                        row->line, row->gpu, unsaid.message);
}

/* Rows of one device, that of --device or the only one. */
static ds_status read_rows(calibrating *c, ds_error *err) {
    uint32_t wanted = UINT32_MAX, first_line = 0;
    const char *device = c->options->device;
    if (device) DS_TRY(ds_profiles_find_kind(c->profiles, device, DS_NOWHERE, &wanted, err));
    for (uint32_t i = 0; i < c->csv.rows.n; i++) {
        val_prediction p = {.file = c->options->table};
        char room[64];
        uint32_t kind;
        val_row_read(&c->csv, i, &p.row);
        if (c->options->split && strcmp(p.row.split, c->options->split) != 0) continue;
        DS_TRY(kind_of(c, &p.row, &kind, err));
        if (device && kind != wanted) continue;
        if (!device && wanted != UINT32_MAX && kind != wanted)
            return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                                "%s:%u: gpu = '%s', but line %u has a %s: one cluster has one set "
                                "of factors; --device NAME takes the rows of one device",
                                c->options->table, p.row.line, p.row.gpu, first_line,
                                ds_profiles_kind(c->profiles, wanted)->name);
        if (!first_line) first_line = p.row.line;
        wanted = kind;
        snprintf(p.set, sizeof p.set, "%s",
                 val_set_of(&p.row, c->options->table, room, sizeof room));
        DS_HPUSH(&c->rows, p);
        DS_HPUSH(&c->open, p);
    }
    if (!c->rows.n)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "%s: no row%s%s%s%s", c->options->table,
                            device ? " of device " : "", device ? device : "",
                            c->options->split ? " of split " : "",
                            c->options->split ? c->options->split : "");
    c->generic = ds_profiles_generic(c->profiles, wanted);
    if (c->generic) return DS_OK;
    return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                        "%s has no generic profile, and no relative with one",
                        ds_profiles_kind(c->profiles, wanted)->name);
}

/* ---- the factors of all rows ---- */

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static ds_status take_all(calibrating *c, const val_job *job, ds_error *err) {
    uint32_t n = c->n;
    val_prediction *rows = ds_xcalloc((size_t)n + 1, sizeof *rows);
    uint32_t *order = ds_xcalloc((size_t)n + 1, sizeof *order);
    double *far = ds_xcalloc((size_t)n + 1, sizeof *far);
    for (uint32_t i = 0; i < n; i++) {
        order[i] = i;
        rows[i] = c->open.at[c->near[i].of];
    }
    cal_estimate_from(c->near, order, n, &c->prior, &c->all);
    for (int a = 0; a < CAL_FACTORS; a++) c->factors[a] = exp(c->all.mean[a]);
    ds_status status = cal_predict(job, c->common->profiles, c->factors, rows, n, err);
    uint32_t counted = 0;
    for (uint32_t i = 0; i < n && status == DS_OK; i++) {
        far[i] = cal_deviation(&c->all, &c->near[i], &c->prior);
        if (rows[i].refused) continue;
        c->seen += fabs(val_error(&rows[i]));
        counted++;
    }
    if (counted) c->seen /= counted;
    qsort(far, n, sizeof *far, by_value);
    c->high = n ? exp(CAL_NINE_IN_TEN * far[n / 2]) : 0;
    c->low = n ? 1 / c->high : 0;
    free(far);
    free(order);
    free(rows);
    return status;
}

/* ---- output ---- */

static void put_table(const calibrating *c, ds_buf *out) {
    ds_buf_printf(out, "%s: %u rows of %s, %u predicted; errors of rows that gave no factor\n\n",
                  c->options->table, c->rows.n,
                  ds_profiles_kind(c->profiles, ds_profile_kind(c->profiles, c->generic))->name,
                  c->n);
    ds_buf_put(out, "own rows  choices    mean  median    bias  9 in 10 choices  in interval  "
                    "half width\n");
    for (int i = 0; i < N_NUMBERS; i++) {
        const cal_errors *e = &c->errors[i];
        if (!e->draws)
            ds_buf_printf(out, "%8u  fewer rows than that and another one\n", numbers[i]);
        else
            ds_buf_printf(out,
                          "%8u  %7u  %4.1f %%  %4.1f %%  %+4.1f %%           %4.1f %%       %4.0f "
                          "%%      %4.1f %%\n",
                          e->k, e->draws, e->mean, e->median, e->bias, e->p90_draws, e->covered,
                          e->half_width);
    }
    ds_buf_printf(out,
                  "\nall %u rows: compute x %.3f, communication x %.3f, host x %.3f; with "
                  "these they are off by %.1f %%\n",
                  c->n, c->factors[0], c->factors[1], c->factors[2], c->seen);
}

static void put_refusals(const calibrating *c, ds_buf *out) {
    for (uint32_t i = 0; i < c->rows.n; i++)
        if (c->rows.at[i].refused)
            ds_buf_printf(out, "refused: line %u: %s\n", c->rows.at[i].row.line, c->rows.at[i].why);
}

static void put_json(const calibrating *c, ds_buf *out) {
    ds_json json;
    ds_json_init(&json, out, 2);
    ds_json_begin_object(&json);
    ds_json_key_string(&json, "base", ds_profile_name(c->profiles, c->generic));
    ds_json_key_int(&json, "n", c->n);
    ds_json_key_int(&json, "refused", (int64_t)c->rows.n - c->n);
    ds_json_key(&json, "errors");
    ds_json_begin_array(&json);
    for (int i = 0; i < N_NUMBERS; i++) {
        const cal_errors *e = &c->errors[i];
        const struct {
            const char *key;
            double value;
        } cells[] = {{"mape", e->mean},
                     {"median", e->median},
                     {"bias", e->bias},
                     {"p90_of_choices", e->p90_draws},
                     {"interval_coverage", e->covered},
                     {"interval_half_width", e->half_width}};
        ds_json_begin_object(&json);
        ds_json_key_int(&json, "rows", numbers[i]);
        ds_json_key_int(&json, "choices", e->draws);
        for (size_t k = 0; k < sizeof cells / sizeof *cells; k++) {
            ds_json_key(&json, cells[k].key);
            if (e->draws)
                ds_json_double(&json, cells[k].value);
            else
                ds_json_null(&json);
        }
        ds_json_end_object(&json);
    }
    ds_json_end_array(&json);
    ds_json_key(&json, "factors");
    ds_json_begin_object(&json);
    for (int a = 0; a < CAL_FACTORS; a++) {
        ds_json_key(&json, factor_names[a]);
        ds_json_double(&json, c->factors[a]);
    }
    ds_json_end_object(&json);
    ds_json_key(&json, "mape_of_fitted");
    ds_json_double(&json, c->seen);
    ds_json_end_object(&json);
    ds_buf_putc(out, '\n');
}

/* ---- the profile ---- */

/* The last part of a path. */
static const char *base_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void put_profile(const calibrating *c, const char *name, ds_buf *out) {
    char numbers_[7][32], software[128];
    const double values[] = {c->factors[0], c->factors[1], c->factors[2],
                             c->low,        c->high,       c->seen / 100};
    for (int i = 0; i < 6; i++) snprintf(numbers_[i], sizeof numbers_[i], "%.4f", values[i]);
    snprintf(numbers_[6], sizeof numbers_[6], "%u", c->n);
    snprintf(software, sizeof software, "%s, calibrated to %u steps",
             ds_profile_name(c->profiles, c->generic), c->n);
    static const char *const header[] = {"name",        "device",         "issue_us",
                                         "base",        "compute_factor", "communication_factor",
                                         "host_factor", "ratio_p05",      "ratio_p95",
                                         "software",    "steps",          "step_error",
                                         "steps_split", "source"};
    const char *const cells[] = {
        name,        ds_profiles_kind(c->profiles, ds_profile_kind(c->profiles, c->generic))->name,
        "0",         ds_profile_name(c->profiles, c->generic),
        numbers_[0], numbers_[1],
        numbers_[2], numbers_[3],
        numbers_[4], software,
        numbers_[6], numbers_[5],
        "calib",     name};
    ds_csv_put_row(out, header, sizeof header / sizeof *header);
    ds_csv_put_row(out, cells, sizeof cells / sizeof *cells);
}

static void put_source(const calibrating *c, const char *name, ds_buf *out) {
    static const char *const header[] = {"key", "title", "place", "revision", "licence"};
    const char *const cells[] = {name, "Measured steps", base_of(c->options->table), "", "facts"};
    ds_csv_put_row(out, header, 5);
    ds_csv_put_row(out, cells, 5);
}

static ds_status write_file(const calibrating *c, const char *file, const ds_buf *text,
                            ds_error *err) {
    ds_buf path = {0};
    ds_buf_printf(&path, "%s/%s", c->options->folder, file);
    unsigned flags = c->common->overwrite ? DS_OUTPUT_OVERWRITE : DS_OUTPUT_NEW;
    ds_status status = text ? ds_output_write(path.text, flags, text->text, text->n, err)
                            : ds_output_check(path.text, flags, err);
    ds_buf_deinit(&path);
    return status;
}

static ds_status write_profile(const calibrating *c, ds_error *err) {
    ds_buf profile = {0}, source = {0};
    const char *name = c->options->name ? c->options->name : base_of(c->options->folder);
    put_profile(c, name, &profile);
    put_source(c, name, &source);
    ds_status status = write_file(c, "profile.csv", &profile, err);
    if (status == DS_OK) status = write_file(c, "sources.csv", &source, err);
    ds_buf_deinit(&source);
    ds_buf_deinit(&profile);
    return status;
}

/* Before anything is predicted. */
static ds_status check_folder(const calibrating *c, ds_error *err) {
    if (!c->options->folder) return DS_OK;
    if (mkdir(c->options->folder, 0777) != 0 && errno != EEXIST)
        return ds_error_set(err, DS_ERR_IO, DS_NOWHERE, "cannot make %s: %s", c->options->folder,
                            strerror(errno));
    DS_TRY(write_file(c, "profile.csv", NULL, err));
    return write_file(c, "sources.csv", NULL, err);
}

/* ---- the action ---- */

static ds_status calibrate(calibrating *c, ds_error *err) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    DS_TRY(ds_csv_read(c->options->table, &c->csv, err));
    DS_TRY(read_rows(c, err));
    DS_TRY(check_folder(c, err));
    val_job job = {.profiles = c->profiles,
                   .load = {.include_dirs = c->common->include_dirs.at,
                            .n_include_dirs = c->common->include_dirs.n},
                   .n_workers = cores > 0 ? (uint32_t)cores : 1};
    c->near = ds_xcalloc((size_t)c->rows.n + 1, sizeof *c->near);
    DS_TRY(cal_look(&job, c->common->profiles, c->rows.at, c->rows.n, c->near, &c->n, err));
    for (int i = 0; i < N_NUMBERS; i++)
        cal_errors_of(c->near, c->n, numbers[i], &c->prior, &c->errors[i]);
    if (!c->n)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                            "%s: no row is predicted; the first, line %u: %s", c->options->table,
                            c->rows.at[0].row.line, c->rows.at[0].why);
    DS_TRY(take_all(c, &job, err));
    return c->options->folder ? write_profile(c, err) : DS_OK;
}

ds_status profile_calibrate(const profile_calibrate_options *options, cli_options *common,
                            ds_error *err) {
    calibrating c = {.options = options, .common = common};
    ds_buf text = {0};
    DS_TRY(ds_profiles_load(common->profiles, &c.profiles, err));
    c.prior = cal_prior_of(c.profiles);
    ds_status status = calibrate(&c, err);
    if (status == DS_OK && options->json) put_json(&c, &text);
    if (status == DS_OK && !options->json) put_table(&c, &text);
    if (status == DS_OK && !options->json) put_refusals(&c, &text);
    if (text.n) fputs(text.text, stdout);
    ds_buf_deinit(&text);
    free(c.near);
    free(c.open.at);
    free(c.rows.at);
    if (c.csv.n_columns) ds_csv_deinit(&c.csv);
    ds_profiles_free(c.profiles);
    return status;
}
