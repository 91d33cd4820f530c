/* Cells of a table by the names of their columns. */
#include "tools/fit/fit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
