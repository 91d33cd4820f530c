/* fit-profiles: where the fitted constants of cost_profiles/ come from (SEMANTICS S4: they are
 * committed numbers; this tool is how to arrive at them again). See cost_profiles/README.md. */
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

static int usage(void) {
    fputs("usage: fit-profiles ops cost_profiles/NAME [--write]\n"
          "       fit-profiles steps SCENARIO.dir DATA.csv\n"
          "ops    fits efficiency.csv to ops.csv; --write puts the constants into efficiency.csv\n"
          "steps  fits the scenario's profile to measured steps, by simulating them\n",
          stderr);
    return 2;
}

int main(int argc, char **argv) {
    ds_error err = {0};
    ds_status status;
    bool write = argc == 4 && strcmp(argv[3], "--write") == 0;
    if ((argc == 3 || write) && strcmp(argv[1], "ops") == 0)
        status = fit_ops(argv[2], write, &err);
    else if (argc == 4 && strcmp(argv[1], "steps") == 0)
        status = fit_steps(argv[2], argv[3], &err);
    else
        return usage();
    if (status != DS_OK) fprintf(stderr, "fit-profiles: error: %s\n", err.message);
    return ds_status_exit_code(status);
}
