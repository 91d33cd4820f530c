/* fit-profiles: where the fitted constants of cost_profiles/ come from (they are
 * committed numbers; this tool is how to arrive at them again). See cost_profiles/README.md. */
#include "tools/fit/fit.h"

#include <math.h>
#include <stdbool.h>
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
    fputs("usage: fit-profiles ops cost_profiles/NAME [--write | --check]\n"
          "       fit-profiles collectives TOPOLOGY.dir cost_profiles/NAME TABLE.csv "
          "[--write | --check]\n"
          "       fit-profiles steps SCENARIO.dir DATA.csv\n"
          "ops    fits efficiency curves to ops.csv; --write puts the constants into\n"
          "       efficiency.csv, --check fails if one there is off by more than 1 %\n"
          "collectives  fits protocols to measured collectives\n"
          "steps  fits the profile of a scenario to measured steps, by simulating them\n",
          stderr);
    return 2;
}

/* False if the word is no mode. */
static bool mode_of(const char *word, fit_mode *mode) {
    *mode = FIT_PRINT;
    if (!word) return true;
    *mode = strcmp(word, "--write") == 0 ? FIT_WRITE : FIT_CHECK;
    return *mode == FIT_WRITE || strcmp(word, "--check") == 0;
}

int main(int argc, char **argv) {
    ds_error err = {0};
    ds_status status;
    fit_mode mode;
    if (argc < 3 || argc > 6) return usage();
    if (strcmp(argv[1], "ops") == 0 && argc < 5 && mode_of(argv[3], &mode))
        status = fit_ops(argv[2], mode, &err);
    else if (strcmp(argv[1], "steps") == 0 && argc == 4)
        status = fit_steps(argv[2], argv[3], &err);
    else if (strcmp(argv[1], "collectives") == 0 && argc > 4 && mode_of(argv[5], &mode))
        status = fit_collectives(argv[2], argv[3], argv[4], mode, &err);
    else
        return usage();
    if (status != DS_OK) fprintf(stderr, "fit-profiles: error: %s\n", err.message);
    return ds_status_exit_code(status);
}
