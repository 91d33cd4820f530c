/* fit-profiles: where the fitted constants of cost_profiles/ come from (they are
 * committed numbers; this tool is how to arrive at them again). See cost_profiles/README.md. */
#include "tools/fit/fit.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static int usage(void) {
    fputs(
        "usage: fit-profiles ops cost_profiles/NAME [--write | --check]\n"
        "       fit-profiles collectives TOPOLOGY.dir cost_profiles/NAME TABLE.csv "
        "[--write | --check]\n"
        "       fit-profiles steps SCENARIO.dir DATA.csv\n"
        "ops    fits efficiency curves, and products by tiles and waves, to ops.csv; --write puts\n"
        "       the constants into efficiency.csv and gemm_fits.csv, --check fails if one of\n"
        "       efficiency.csv is off by more than 1 %, or other products fit 1 % better\n"
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

static ds_status fit_both(const char *folder, fit_mode mode, ds_error *err) {
    DS_TRY(fit_ops(folder, mode, err));
    return fit_gemms(folder, mode, err);
}

int main(int argc, char **argv) {
    ds_error err = {0};
    ds_status status;
    fit_mode mode;
    if (argc < 3 || argc > 6) return usage();
    if (strcmp(argv[1], "ops") == 0 && argc < 5 && mode_of(argv[3], &mode))
        status = fit_both(argv[2], mode, &err);
    else if (strcmp(argv[1], "steps") == 0 && argc == 4)
        status = fit_steps(argv[2], argv[3], &err);
    else if (strcmp(argv[1], "collectives") == 0 && argc > 4 && mode_of(argv[5], &mode))
        status = fit_collectives(argv[2], argv[3], argv[4], mode, &err);
    else
        return usage();
    if (status != DS_OK) fprintf(stderr, "fit-profiles: error: %s\n", err.message);
    return ds_status_exit_code(status);
}
