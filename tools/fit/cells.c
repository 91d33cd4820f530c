/* Folders of profiles, tables in these folders, and cells by the names of their columns. */
#include "tools/fit/fit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ds_status fit_read_in(const char *folder, const char *name, ds_csv *out, ds_error *err) {
    ds_buf path = {0};
    ds_buf_printf(&path, "%s/%s", folder, name);
    ds_status status = ds_csv_read(path.text, out, err);
    ds_buf_deinit(&path);
    return status;
}

ds_status fit_profile_read(const ds_profiles *profiles, const char *path, fit_profile *out,
                           ds_error *err) {
    ds_csv csv;
    const char *device = NULL, *source = NULL;
    *out = (fit_profile){.path = path};
    DS_TRY(fit_read_in(path, "profile.csv", &csv, err));
    ds_status status = DS_OK;
    if (!csv.rows.n)
        status = ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "%s/profile.csv: no row", path);
    if (status == DS_OK) status = fit_cell(&csv, 0, "device", &device, err);
    if (status == DS_OK) status = fit_cell(&csv, 0, "source", &source, err);
    if (status == DS_OK)
        status = ds_profiles_find_kind(profiles, device, DS_NOWHERE, &out->kind, err);
    if (status == DS_OK) snprintf(out->source, sizeof out->source, "%s", source);
    ds_csv_deinit(&csv);
    return status;
}

ds_status fit_measured_read(const char *folder, const char *tables, const char *name,
                            fit_measured *out, ds_error *err) {
    ds_csv csv;
    *out = (fit_measured){0};
    ds_arena_init(&out->arena);
    DS_TRY(ds_profiles_load(NULL, &out->profiles, err));
    DS_TRY(fit_profile_read(out->profiles, folder, &out->of, err));
    DS_TRY(fit_read_in(tables, name, &csv, err));
    ds_status status = measured_read(&csv, out->profiles, &out->arena, &out->rows, err);
    ds_csv_deinit(&csv);
    return status;
}

void fit_measured_deinit(fit_measured *m) {
    ds_profiles_free(m->profiles);
    ds_arena_deinit(&m->arena);
}

ds_status fit_cell(const ds_csv *csv, uint32_t row, const char *column, const char **out,
                   ds_error *err) {
    uint32_t at;
    DS_TRY(ds_csv_need(csv, column, &at, err));
    *out = csv->rows.at[row].cells[at];
    return DS_OK;
}

ds_status fit_number(const ds_csv *csv, uint32_t row, const char *column, double *out,
                     ds_error *err) {
    const char *text;
    char *end;
    DS_TRY(fit_cell(csv, row, column, &text, err));
    *out = strtod(text, &end);
    if (*text && !*end && isfinite(*out)) return DS_OK;
    return ds_csv_error(csv, &csv->rows.at[row], err, "%s = '%s': not a number", column, text);
}

ds_status fit_find_row(const ds_csv *csv, const char *column, const char *name, const char *dtype,
                       uint32_t *row, ds_error *err) {
    for (*row = 0; *row < csv->rows.n; ++*row) {
        const char *a, *b;
        DS_TRY(fit_cell(csv, *row, column, &a, err));
        DS_TRY(fit_cell(csv, *row, "dtype", &b, err));
        if (strcmp(a, name) == 0 && strcmp(b, dtype) == 0) return DS_OK;
    }
    *row = UINT32_MAX;
    return DS_OK;
}

ds_status fit_numbers(const ds_csv *csv, uint32_t row, const fit_number_to *numbers, size_t n,
                      ds_error *err) {
    for (size_t i = 0; i < n; i++) {
        const fit_number_to *to = &numbers[i];
        uint32_t at = ds_csv_find(csv, to->column);
        double value = 0;
        bool lacks = at == DS_CSV_NO_COLUMN || !*csv->rows.at[row].cells[at];
        if (!lacks || !to->may_lack) DS_TRY(fit_number(csv, row, to->column, &value, err));
        if (to->to)
            *to->to = to->unit > 0 ? value * to->unit : value;
        else
            *to->count = (int64_t)value;
    }
    return DS_OK;
}

ds_status fit_read_gemm(const ds_csv *csv, uint32_t row, ds_gemm_model *out, ds_error *err) {
    const fit_number_to numbers[] = {{"processors", .count = &out->processors},
                                     {"flop_giga_per_s", .to = &out->flop_per_s, .unit = 1e9},
                                     {"memory_gb_per_s", .to = &out->bytes_per_s, .unit = 1e9},
                                     {"e_max", .to = &out->e_max},
                                     {"tail", .to = &out->tail},
                                     {"prologue", .to = &out->prologue},
                                     {"port", .to = &out->port},
                                     {"e_memory", .to = &out->e_memory},
                                     {"overlap", .to = &out->overlap},
                                     {"launch_us", .to = &out->launch_s, .unit = 1e-6},
                                     {"resident", .count = &out->resident, .may_lack = true},
                                     {"lone", .to = &out->lone, .may_lack = true},
                                     {"cut_us", .to = &out->cut_s, .unit = 1e-6, .may_lack = true},
                                     {"sag", .to = &out->sag, .may_lack = true},
                                     {"sag_us", .to = &out->sag_s, .unit = 1e-6, .may_lack = true}};
    return fit_numbers(csv, row, numbers, sizeof numbers / sizeof *numbers, err);
}

ds_status fit_rate(const ds_csv *csv, uint32_t row, const char *column, int64_t *bytes_per_s,
                   ds_error *err) {
    double gb_per_s;
    DS_TRY(fit_number(csv, row, column, &gb_per_s, err));
    if (!(gb_per_s >= 1e-9 && gb_per_s <= 1e9))
        return ds_csv_error(csv, &csv->rows.at[row], err,
                            "%s = %g: a rate is from 1e-9 to 1e9 GB/s", column, gb_per_s);
    *bytes_per_s = llround(gb_per_s * 1e9);
    return DS_OK;
}

ds_status fit_set(ds_csv *csv, uint32_t row, const char *column, const char *format, double value,
                  ds_error *err) {
    uint32_t at;
    DS_TRY(ds_csv_need(csv, column, &at, err));
    csv->rows.at[row].cells[at] = ds_arena_printf(&csv->arena, format, value);
    return DS_OK;
}

static const char *const ratio_columns[] = {"ratio_p05", "ratio_p25", "ratio_p50", "ratio_p75",
                                            "ratio_p95"};

ds_status fit_set_values(ds_csv *csv, uint32_t row, const fit_value *values, size_t n,
                         ds_error *err) {
    for (size_t i = 0; i < n; i++)
        DS_TRY(fit_set(csv, row, values[i].column, values[i].value < 0 ? "" : "%.4g",
                       values[i].value, err));
    return DS_OK;
}

ds_status fit_set_errors(ds_csv *csv, uint32_t row, uint32_t n, const ds_fit_errors *seen,
                         const double ratios[5], ds_error *err) {
    const fit_value errors[] = {{"median_error", seen->median}, {"p90_error", seen->p90}};
    DS_TRY(fit_set(csv, row, "n", "%.0f", n, err));
    DS_TRY(fit_set_values(csv, row, errors, 2, err));
    for (int i = 0; i < 5; i++) DS_TRY(fit_set(csv, row, ratio_columns[i], "%.4g", ratios[i], err));
    return DS_OK;
}

#define OFF 0.001 /* of an error */

ds_status fit_check_errors(const ds_csv *csv, uint32_t row, const ds_fit_errors *e, ds_error *err) {
    double median, p90;
    if (row == UINT32_MAX)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "%s: no row of the fit", csv->file);
    DS_TRY(fit_number(csv, row, "median_error", &median, err));
    DS_TRY(fit_number(csv, row, "p90_error", &p90, err));
    if (fabs(e->median - median) < OFF * (1 + median) && fabs(e->p90 - p90) < OFF * (1 + p90))
        return DS_OK;
    return ds_csv_error(csv, &csv->rows.at[row], err,
                        "median_error and p90_error would be %.4g and %.4g", e->median, e->p90);
}

void fit_print_errors(const char *what, const ds_fit_errors *e) {
    if (e->median < 0) return;
    printf("  %-28s mean %5.1f %%  median %5.1f %%  p90 %5.1f %%\n", what, 100 * e->mean,
           100 * e->median, 100 * e->p90);
}

void fit_add_columns(ds_csv *csv, const char *const *names, uint32_t n_names) {
    for (uint32_t i = 0; i < n_names; i++) {
        uint32_t n = csv->n_columns;
        if (ds_csv_find(csv, names[i]) != DS_CSV_NO_COLUMN) continue;
        const char **columns = ds_arena_alloc(&csv->arena, (n + 1) * sizeof *columns);
        memcpy(columns, csv->columns, n * sizeof *columns);
        columns[n] = names[i];
        csv->columns = columns;
        for (uint32_t r = 0; r < csv->rows.n; r++) {
            const char **cells = ds_arena_alloc(&csv->arena, (n + 1) * sizeof *cells);
            memcpy(cells, csv->rows.at[r].cells, n * sizeof *cells);
            cells[n] = "";
            csv->rows.at[r].cells = cells;
        }
        csv->n_columns = n + 1;
    }
}

void fit_add_ratios(ds_csv *csv) {
    fit_add_columns(csv, ratio_columns, 5);
}

uint32_t fit_group(fit_groups *groups, const char *name) {
    const char *interned = ds_intern(&groups->names, name);
    for (uint32_t i = 0; i < groups->seen.n; i++)
        if (groups->seen.at[i] == interned) return i;
    DS_HPUSH(&groups->seen, interned);
    return groups->seen.n - 1;
}

void fit_groups_deinit(fit_groups *groups) {
    free(groups->seen.at);
    ds_strtab_deinit(&groups->names);
}
