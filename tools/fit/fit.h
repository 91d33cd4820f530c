/* The two commands of fit-profiles. Each prints a table to stdout. */
#ifndef DS_TOOLS_FIT_H
#define DS_TOOLS_FIT_H

#include "ir/base/csv.h"

typedef enum fit_mode { FIT_PRINT, FIT_WRITE, FIT_CHECK } fit_mode;

/* Fits every row of FOLDER/efficiency.csv with n > 0 to FOLDER/ops.csv and prints the constants
 * next to those in the file. FIT_WRITE puts them there; FIT_CHECK is DS_ERR_DATA if one is off by
 * more than 1 %. */
ds_status fit_ops(const char *folder, fit_mode mode, ds_error *err);

/* Fits the constants of the profile that `scenario` names to the measured steps in `data`, rows
 * marked calib, by simulating each of them; prints errors of those and of the rows marked val. */
ds_status fit_steps(const char *scenario, const char *data, ds_error *err);

/* A cell by the name of its column, as text and as a number. Errors: DS_ERR_DATA. */
ds_status fit_cell(const ds_csv *csv, uint32_t row, const char *column, const char **out,
                   ds_error *err);
ds_status fit_number(const ds_csv *csv, uint32_t row, const char *column, double *out,
                     ds_error *err);

#endif
