/* The commands of fit-profiles. Each prints a table to stdout. */
#ifndef DS_TOOLS_FIT_H
#define DS_TOOLS_FIT_H

#include "ir/base/csv.h"
#include "ir/base/str.h"
#include "sim/cost/fit/fit.h"
#include "sim/cost/gemm.h"
#include "tools/measured/measured.h"

#include <stdbool.h>

typedef enum fit_mode { FIT_PRINT, FIT_WRITE, FIT_CHECK } fit_mode;

/* Fits every row of FOLDER/efficiency.csv with n > 0 to FOLDER/ops.csv and prints the constants
 * next to those in the file. FIT_WRITE puts them there; FIT_CHECK is DS_ERR_DATA if one is off by
 * more than 1 %. Without a file, or without a row in it, the rows of ops.csv say which curves there
 * are; one that cannot be fitted is said and left out. Without ops.csv there is nothing to fit. */
ds_status fit_ops(const char *folder, fit_mode mode, ds_error *err);

/* Fits the constants of the profile that `scenario` names to the measured steps in `data`, rows
 * marked calib, by simulating each of them; prints errors of those and of the rows marked val. */
ds_status fit_steps(const char *scenario, const char *data, ds_error *err);

/* Fits the curves of memory-bound ops of FOLDER/efficiency.csv to the rows of a published table that
 * are of the device (as the table calls the device), and gives borrowed curves their constants
 * (memory.c); prints errors of rows left out. FIT_CHECK is DS_ERR_DATA if other constants fit over
 * 1 % better, or a borrowed curve is not the lender's. */
ds_status fit_memory(const char *table, const char *folder, const char *alias, fit_mode mode,
                     ds_error *err);

typedef struct fit_published_options {
    const char *const *tables; /* of published steps (tools/validate/row.h) */
    uint32_t n_tables;
    uint32_t every;      /* of the calib rows only each n-th; 1: all */
    uint32_t iterations; /* at most */
    double away;         /* the search starts at the profile's constants times this, or by it */
    double spread;       /* of all priors; 0: as calibration.csv says */
    bool cauchy;         /* rows far off pull ever less (sim/cost/fit/steps.h) */
    bool write;          /* puts the constants into the folder's files */
    bool leave_out;      /* predicts each model by a fit without it */
} fit_published_options;

/* Fits the constants that FOLDER/calibration.csv names to the calib rows of its profile; prints
 * constants and errors. */
ds_status fit_published(const char *folder, const fit_published_options *options, ds_error *err);

/* Where nine in ten of measured/predicted of new steps lie, from r = log(measured/predicted) of n steps
 * to which so many constants were fitted (intervals.c). */
void fit_step_interval(const double *r, uint32_t n, double constants, double ratio[2]);
/* Intervals of measured/predicted steps, from rows of `distsim validate --out` of the split calib:
 * ratio_p05 and ratio_p95 of the profiles that were fitted to steps, and catalogue/intervals.csv from
 * rows by generic profiles, under the folder `root`. */
ds_status fit_intervals(const char *root, const char *const *files, uint32_t n, fit_mode mode,
                        ds_error *err);

/* Fits the protocols of FOLDER/collective_protocols.csv (one or two a collective and kind of link
 * where there is no such file) with n > 0 to the rows of a table of
 * measured collectives (sim/coll/measured.h) that are not held back; prints the constants and the
 * errors of both kinds of rows. FIT_CHECK is DS_ERR_DATA if the file's constants fit worse than
 * those found. */
ds_status fit_collectives(const char *topology, const char *folder, const char *table,
                          fit_mode mode, ds_error *err);

/* Leaves out of the fits of FOLDER/collective_protocols.csv, one at a time, the rows of a kind of
 * link, of the most and of the fewest nodes, of the largest and of the smallest group, of the
 * largest and of the smallest sizes (a quarter of the sizes each), and predicts those rows by
 * constants found without them. Prints for each row `kind,collective,link,what,measured/predicted`.
 * Rows held back are not looked at. */
ds_status fit_left_out(const char *topology, const char *folder, const char *table, ds_error *err);

/* Reads FOLDER/NAME. */
ds_status fit_read_in(const char *folder, const char *name, ds_csv *out, ds_error *err);

/* The folder of a profile, by its profile.csv. */
typedef struct fit_profile {
    const char *path;
    char source[128]; /* key of sources.csv */
    uint32_t kind;    /* of the device */
} fit_profile;
ds_status fit_profile_read(const ds_profiles *profiles, const char *path, fit_profile *out,
                           ds_error *err);

/* A folder, and the rows of FOLDER/NAME, a published table of many devices. */
typedef struct fit_measured {
    fit_profile of;
    ds_profiles *profiles;
    measured_rows rows; /* of all devices */
    ds_arena arena;
} fit_measured;
/* To be deinitialised after errors, too. */
ds_status fit_measured_read(const char *folder, const char *tables, const char *name,
                            fit_measured *out, ds_error *err);
void fit_measured_deinit(fit_measured *m);

/* Writes the rows of a table that was read from a file, and changed, back into it. Quoted cells
 * must not span lines. `whole`: the file has nothing to keep, or is not there. */
ds_status fit_write(const ds_csv *csv, bool whole, ds_error *err);
/* FIT_WRITE writes; FIT_CHECK is DS_ERR_DATA if n_off of the table's constants are not the fit's. */
ds_status fit_write_or_check(const ds_csv *csv, bool whole, fit_mode mode, uint32_t n_off,
                             ds_error *err);
/* Appends the lines of FOLDER/NAME whose first or second cell begins with the word, or the others. */
ds_status fit_put_lines(const char *folder, const char *name, const char *word, bool with,
                        ds_buf *out, ds_error *err);
/* Puts `lines` in place of the lines whose first or second cell begins with the word. */
ds_status fit_replace_lines(const char *folder, const char *name, const char *word,
                            const ds_buf *lines, ds_error *err);
/* Adds those of the columns that a table lacks, empty. */
void fit_add_columns(ds_csv *csv, const char *const *names, uint32_t n_names);
/* The columns of residuals' percentiles. */
void fit_add_ratios(ds_csv *csv);

/* efficiency.csv, and gemm_fits.csv (false: the rows or the device do not allow for it), for the
 * rows of ops.csv, to be fitted (start.c). */
void fit_start_curves(const ds_csv *ops, const char *folder, ds_buf *out);
bool fit_start_gemms(const ds_csv *ops, const char *folder, ds_buf *out);
/* Takes out of a table that was started those rows that no fit has replaced. */
void fit_drop_unfitted(ds_csv *csv);

/* A cell by the name of its column, as text and as a number. Errors: DS_ERR_DATA. */
ds_status fit_cell(const ds_csv *csv, uint32_t row, const char *column, const char **out,
                   ds_error *err);
ds_status fit_number(const ds_csv *csv, uint32_t row, const char *column, double *out,
                     ds_error *err);
/* The row of this dtype and with this name in the column; UINT32_MAX: none. */
ds_status fit_find_row(const ds_csv *csv, const char *column, const char *name, const char *dtype,
                       uint32_t *row, ds_error *err);
/* Where the number of a column goes: to `to`, times `unit` (0: as it is), or to `count`. */
typedef struct fit_number_to {
    const char *column;
    double *to;
    double unit;
    int64_t *count;
    bool may_lack; /* 0 where the cell is empty, or the table has no such column */
} fit_number_to;
ds_status fit_numbers(const ds_csv *csv, uint32_t row, const fit_number_to *numbers, size_t n,
                      ds_error *err);
/* The constants of a row of gemm_fits.csv. */
ds_status fit_read_gemm(const ds_csv *csv, uint32_t row, ds_gemm_model *out, ds_error *err);
/* Of a cell in GB/s; DS_ERR_DATA beyond 10^18 bytes/s. */
ds_status fit_rate(const ds_csv *csv, uint32_t row, const char *column, int64_t *bytes_per_s,
                   ds_error *err);

/* Sets a cell in memory; `format` prints the value. */
ds_status fit_set(ds_csv *csv, uint32_t row, const char *column, const char *format, double value,
                  ds_error *err);

/* Sets cells to four digits; a value below 0, which no fit has, empties its cell. */
typedef struct fit_value {
    const char *column;
    double value;
} fit_value;
ds_status fit_set_values(ds_csv *csv, uint32_t row, const fit_value *values, size_t n,
                         ds_error *err);
/* n, median_error, p90_error and ratio_p05 to ratio_p95. */
ds_status fit_set_errors(ds_csv *csv, uint32_t row, uint32_t n, const ds_fit_errors *seen,
                         const double ratios[5], ds_error *err);
/* DS_ERR_DATA if median_error and p90_error of the row are more than 0.001 from these, or there is no
 * row (UINT32_MAX). */
ds_status fit_check_errors(const ds_csv *csv, uint32_t row, const ds_fit_errors *e, ds_error *err);
/* A line; none where the median is below 0. */
void fit_print_errors(const char *what, const ds_fit_errors *e);

/* Fits every row of FOLDER/gemm_fits.csv with n > 0 to the gemm rows of FOLDER/ops.csv, and prints
 * what rows left out by shape, family and size are predicted to be. FIT_CHECK leaves nothing out
 * and is DS_ERR_DATA if other constants fit over 1 % better. */
ds_status fit_gemms(const char *folder, fit_mode mode, ds_error *err);

/* Fits every row of FOLDER/attention_fits.csv with n > 0 to the rows of a table of measured kernels
 * (tests/data/ops/attention.csv) with the split calib, of the row's rows_device and rows_kernel
 * ("KERNEL:mxfp8" where the table's dtype is mxfp8), its direction, dtype and head dims. Rows of both
 * passes fit a backward row beside the forward row of the kernel. A token_ns of 0 stays 0. FIT_CHECK
 * is DS_ERR_DATA if other constants fit over 1 % better. */
ds_status fit_attention(const char *folder, const char *table, fit_mode mode, ds_error *err);

/* Fits the products of experts, and the passes around these products, to the layers of the folder's
 * device in TABLES/moe.csv, marked calib: rows "grouped" of gemm_fits.csv, "experts" of
 * efficiency.csv (experts.c). FIT_CHECK as in fit_products. */
ds_status fit_experts(const char *tables, const char *folder, fit_mode mode, ds_error *err);

/* Fits the sending of tokens to experts and back to the rows of the folder's device in
 * TABLES/dispatch.csv, marked calib: rows "send_..." of efficiency.csv (dispatch.c). FIT_CHECK as in
 * fit_products. */
ds_status fit_dispatch(const char *tables, const char *folder, fit_mode mode, ds_error *err);

/* Fits curves of convolutions and recurrent layers to the rows of the folder's device in
 * TABLES/deepbench.csv, marked calib (bench.c). FIT_CHECK as in fit_products. */
ds_status fit_bench(const char *tables, const char *folder, fit_mode mode, ds_error *err);

/* Numbers of names, in order of appearance; names.slots zeroed by ds_strtab_init. */
typedef struct fit_groups {
    ds_strtab names;
    DS_VEC(const char *) seen; /* heap */
} fit_groups;
uint32_t fit_group(fit_groups *groups, const char *name);
void fit_groups_deinit(fit_groups *groups);

#endif
