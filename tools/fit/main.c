/* fit-profiles: where the fitted constants of cost_profiles/ come from (they are
 * committed numbers; this tool is how to arrive at them again). See cost_profiles/README.md. */
#include "ir/base/arena.h"
#include "tools/fit/fit.h"
#include "tools/fit/products.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int usage(void) {
    fputs(
        "usage: fit-profiles ops cost_profiles/NAME [--write | --check]\n"
        "       fit-profiles attention cost_profiles/NAME TABLE.csv [--write | --check]\n"
        "       fit-profiles products TABLES cost_profiles/NAME [--write | --check]\n"
        "       fit-profiles experts TABLES cost_profiles/NAME [--write | --check]\n"
        "       fit-profiles dispatch TABLES cost_profiles/NAME [--write | --check]\n"
        "       fit-profiles bench TABLES cost_profiles/NAME [--write | --check]\n"
        "       fit-profiles collectives TOPOLOGY.dir cost_profiles/NAME TABLE.csv "
        "[--write | --check]\n"
        "       fit-profiles left-out TOPOLOGY.dir cost_profiles/NAME TABLE.csv\n"
        "       fit-profiles memory TABLE.csv cost_profiles/NAME DEVICE [--write | --check]\n"
        "       fit-profiles intervals cost_profiles ROWS.csv... [--write | --check]\n"
        "       fit-profiles steps SCENARIO.dir DATA.csv\n"
        "       fit-profiles rows cost_profiles/NAME TABLE.csv... [--every N] [--iterations N]\n"
        "                    [--away FACTOR] [--spread SHARE] [--cauchy] [--leave-out]\n"
        "                    [--write]\n"
        "ops    fits efficiency curves, and products by tiles and waves, to ops.csv; --write puts\n"
        "       the constants into efficiency.csv and gemm_fits.csv, --check fails if one of\n"
        "       efficiency.csv is off by more than 1 %, or other products fit 1 % better\n"
        "attention    fits attention by blocks and waves to measured kernels\n"
        "products  fits gemm_fits.csv of a generic profile to TABLES/gemm.csv and deepbench.csv\n"
        "experts   fits the products of experts to TABLES/moe.csv\n"
        "dispatch  fits the sending of tokens to experts to TABLES/dispatch.csv\n"
        "bench     fits convolutions and recurrent layers to TABLES/deepbench.csv\n"
        "collectives  fits protocols to measured collectives\n"
        "left-out     predicts measured collectives by fits that did not see their links, nodes,\n"
        "             groups or sizes\n"
        "memory fits curves of memory-bound ops to a published table, whose rows name the device\n"
        "intervals  takes rows of `distsim validate --out`, and says where nine in ten of new\n"
        "       steps lie\n"
        "steps  fits the profile of a scenario to measured steps, by simulating them\n"
        "rows   fits what calibration.csv names to the calib rows of tables of published steps:\n"
        "       all of them, or each N-th; --leave-out fits once more without each model, and\n"
        "       predicts it; --away starts elsewhere; --spread is that of all priors, in place of\n"
        "       calibration.csv's; with --cauchy rows far off pull ever less; --write puts the "
        "constants into the files\n",
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

/* False if the word is no number from `least` on. */
static bool number_of(const char *text, double least, double *out) {
    char *end;
    *out = text ? strtod(text, &end) : 0;
    return text && !*end && *out >= least && *out < 1e6;
}

static ds_status read_intervals(int argc, char **argv, bool *understood, ds_error *err) {
    fit_mode mode = FIT_PRINT;
    bool has_mode = argc > 3 && mode_of(argv[argc - 1], &mode);
    int n = argc - 3 - has_mode;
    if (!has_mode) mode = FIT_PRINT;
    *understood = n > 0;
    return n > 0 ? fit_intervals(argv[2], (const char *const *)&argv[3], (uint32_t)n, mode, err)
                 : DS_OK;
}

static ds_status read_published(int argc, char **argv, bool *understood, ds_error *err) {
    fit_published_options options = {.every = 1, .iterations = 12, .away = 1};
    const char **tables = ds_xcalloc((size_t)argc, sizeof *tables);
    double every = 1, iterations = 12;
    *understood = true;
    for (int i = 3; i < argc && *understood; i++) {
        if (strcmp(argv[i], "--write") == 0)
            options.write = true;
        else if (strcmp(argv[i], "--leave-out") == 0)
            options.leave_out = true;
        else if (strcmp(argv[i], "--cauchy") == 0)
            options.cauchy = true;
        else if (strcmp(argv[i], "--every") == 0)
            *understood = number_of(argv[++i], 1, &every);
        else if (strcmp(argv[i], "--iterations") == 0)
            *understood = number_of(argv[++i], 0, &iterations);
        else if (strcmp(argv[i], "--away") == 0)
            *understood = number_of(argv[++i], 1, &options.away);
        else if (strcmp(argv[i], "--spread") == 0)
            *understood = number_of(argv[++i], 1e-3, &options.spread);
        else
            tables[options.n_tables++] = argv[i];
    }
    options.tables = tables;
    options.every = (uint32_t)every;
    options.iterations = (uint32_t)iterations;
    *understood = *understood && options.n_tables;
    ds_status status = *understood ? fit_published(argv[2], &options, err) : DS_OK;
    free(tables);
    return status;
}

int main(int argc, char **argv) {
    ds_error err = {0};
    ds_status status;
    fit_mode mode;
    if (argc < 3) return usage();
    if (strcmp(argv[1], "rows") == 0) {
        bool understood;
        status = read_published(argc, argv, &understood, &err);
        if (!understood) return usage();
    } else if (strcmp(argv[1], "intervals") == 0) {
        bool understood;
        status = read_intervals(argc, argv, &understood, &err);
        if (!understood) return usage();
    } else if (argc > 6) {
        return usage();
    } else if (strcmp(argv[1], "ops") == 0 && argc < 5 && mode_of(argv[3], &mode))
        status = fit_both(argv[2], mode, &err);
    else if (strcmp(argv[1], "attention") == 0 && argc > 3 && argc < 6 && mode_of(argv[4], &mode))
        status = fit_attention(argv[2], argv[3], mode, &err);
    else if (strcmp(argv[1], "memory") == 0 && argc > 4 && mode_of(argv[5], &mode))
        status = fit_memory(argv[2], argv[3], argv[4], mode, &err);
    else if (strcmp(argv[1], "products") == 0 && argc > 3 && mode_of(argv[4], &mode))
        status = fit_products(argv[2], argv[3], mode, &err);
    else if (strcmp(argv[1], "experts") == 0 && argc > 3 && mode_of(argv[4], &mode))
        status = fit_experts(argv[2], argv[3], mode, &err);
    else if (strcmp(argv[1], "dispatch") == 0 && argc > 3 && mode_of(argv[4], &mode))
        status = fit_dispatch(argv[2], argv[3], mode, &err);
    else if (strcmp(argv[1], "bench") == 0 && argc > 3 && mode_of(argv[4], &mode))
        status = fit_bench(argv[2], argv[3], mode, &err);
    else if (strcmp(argv[1], "steps") == 0 && argc == 4)
        status = fit_steps(argv[2], argv[3], &err);
    else if (strcmp(argv[1], "left-out") == 0 && argc == 5)
        status = fit_left_out(argv[2], argv[3], argv[4], &err);
    else if (strcmp(argv[1], "collectives") == 0 && argc > 4 && mode_of(argv[5], &mode))
        status = fit_collectives(argv[2], argv[3], argv[4], mode, &err);
    else
        return usage();
    if (status != DS_OK) fprintf(stderr, "fit-profiles: error: %s\n", err.message);
    return ds_status_exit_code(status);
}
