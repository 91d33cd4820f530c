/* Methods that learn: as good as they say, and the same however they are run. */
#include "tests/support/cases.h"
#include "tests/support/generate/spaces.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const methods[] = {"beam", "anneal", "mcmc"};

/* The rows; the best value of the first objective and the number of rows are set. */
static char *run(sweep_case *c, const char *method, uint32_t workers, uint64_t evals,
                 uint64_t *rows, double *best) {
    char folder[64], path[100];
    ds_sweep_result r;
    sweep_folder(folder);
    snprintf(path, sizeof path, "%s/rows.csv", folder);
    sweep_run(c,
              &(ds_sweep_options){
                  .path = path, .method = method, .n_workers = workers, .max_rows = evals},
              &r, DS_OK);
    *rows = r.rows;
    *best =
        r.best.top.n ? ds_metric_measure(&r.best.top.at[0].metrics, r.best.objectives[0].what) : -1;
    char *csv = sweep_read(path, NULL);
    ds_sweep_result_deinit(&r);
    sweep_remove_folder(folder);
    return csv;
}

Test(methods, workers_do_not_matter) {
    sweep_case c;
    uint64_t evals = FEW_CASES ? 24 : 100;
    random_space(9, 60, 400, &c);
    for (int i = 0; i < 3; i++) {
        uint64_t rows;
        double best;
        char *one = run(&c, methods[i], 1, evals, &rows, &best);
        for (uint32_t n = 2; n <= (FEW_CASES ? 2 : 8); n *= 2) {
            char *other = run(&c, methods[i], n, evals, &rows, &best);
            cr_expect_str_eq(one, other, "%s", methods[i]);
            free(other);
        }
        free(one);
    }
    sweep_close(&c);
}

/* No candidate twice. */
Test(methods, ask_for_nothing_twice) {
    sweep_case c;
    sweep_open_file(&c, DS_SOURCE_DIR "/scenarios/distir-grid.dir", NULL);
    for (int i = 0; i < 3; i++) {
        uint64_t rows;
        double best;
        char *csv = run(&c, methods[i], 1, FEW_CASES ? 30 : 500, &rows, &best), *hashes[100];
        uint32_t n = 0, hash = sweep_column(csv, "hash");
        cr_expect_leq(rows, 75, "%s", methods[i]);
        for (char *at = strchr(csv, '\n') + 1, *end; *at && n < 100; at = end + 1) {
            end = strchr(at, '\n');
            *end = '\0';
            char *cells[64];
            cr_assert_gt(sweep_split(at, cells, 64), hash);
            hashes[n] = cells[hash];
            for (uint32_t k = 0; k < n; k++) cr_expect_str_neq(hashes[k], hashes[n]);
            n++;
        }
        cr_expect_eq(n, rows);
        free(csv);
    }
    sweep_close(&c);
}

/* A sweep that was stopped goes on as if it had not been. */
Test(methods, resume) {
    sweep_case c;
    char folder[64], path[100];
    uint64_t evals = FEW_CASES ? 20 : 40;
    ds_sweep_result r;
    sweep_open_file(&c, DS_SOURCE_DIR "/scenarios/distir-grid.dir", NULL);
    sweep_folder(folder);
    snprintf(path, sizeof path, "%s/rows.csv", folder);
    for (int i = 0; i < 3; i++) {
        uint64_t rows;
        double best;
        char *whole = run(&c, methods[i], 2, evals, &rows, &best);
        for (size_t part = 1; part < (FEW_CASES ? 2 : 4); part++) {
            FILE *file = fopen(path, "wb");
            fwrite(whole, 1, strlen(whole) * part / 4, file);
            fclose(file);
            sweep_run(&c,
                      &(ds_sweep_options){
                          .path = path, .method = methods[i], .max_rows = evals, .resume = true},
                      &r, DS_OK);
            ds_sweep_result_deinit(&r);
            char *csv = sweep_read(path, NULL);
            cr_expect_str_eq(csv, whole, "%s", methods[i]);
            free(csv);
        }
        free(whole);
    }
    sweep_remove_folder(folder);
    sweep_close(&c);
}

/* Beside the grid: beam within 1 % on most spaces, the walks within 10 % on the average, with fewer
 * candidates. */
Test(methods, find_good_candidates) {
    int spaces = FEW_CASES ? 1 : 5;
    double excess[3] = {0}, share[3] = {0};
    int near = 0;
    for (int i = 0; i < spaces; i++) {
        sweep_case c;
        uint64_t all, rows;
        double best, found;
        random_space((uint64_t)(i + 20), FEW_CASES ? 60 : 150, 500, &c);
        free(run(&c, "grid", 2, 0, &all, &best));
        for (int k = 0; k < 3 && best > 0; k++) {
            free(run(&c, methods[k], 2, k ? all / 2 : 0, &rows, &found));
            cr_expect_geq(found, best, "%s, space %d", methods[k], i);
            excess[k] += found / best - 1;
            share[k] += (double)rows / (double)all;
            if (k == 0) near += found <= 1.01 * best;
        }
        sweep_close(&c);
    }
    for (int k = 0; k < 3; k++)
        printf("%s: %.1f %% above the best on the average, with %.0f %% of the candidates\n",
               methods[k], 100 * excess[k] / spaces, 100 * share[k] / spaces);
    cr_expect_geq(near, spaces > 1 ? spaces - 1 : 1);
    cr_expect_lt(excess[1] / spaces, 0.1);
    cr_expect_lt(excess[2] / spaces, 0.1);
}

/* An objective without bounds: of a grid with one batch the most samples a second are the least
 * time. */
Test(methods, beam_without_bounds) {
    if (FEW_CASES) cr_skip_test("150 simulations");
    const char *path = DS_SOURCE_DIR "/scenarios/distir-grid.dir";
    sweep_case c;
    uint64_t rows;
    double least, most;
    sweep_open_file(&c, path, NULL);
    free(run(&c, "grid", 2, 0, &rows, &least));
    sweep_close(&c);
    char *text = sweep_read(path, NULL), *at = strstr(text, "minimize step_time");
    cr_assert_not_null(at);
    strcpy(at, "maximize throughput }"); /* the sweep is the file's last block */
    sweep_open_text(&c, text, NULL);
    free(run(&c, "beam", 2, 0, &rows, &most));
    cr_expect_float_eq(most * least, 8192, 0.01, "%g samples/s, %g s", most, least);
    sweep_close(&c);
    free(text);
}

Test(methods, refuse_what_they_cannot_do) {
    sweep_case c;
    ds_sweep_result r;
    sweep_open_file(&c, DS_SOURCE_DIR "/scenarios/distir-grid.dir", NULL);
    sweep_run(&c,
              &(ds_sweep_options){
                  .path = "/dev/null", .method = "beam", .overwrite = true, .n_shards = 2},
              &r, DS_ERR_USAGE);
    cr_expect_not_null(strstr(c.err.message, "has no shards"));
    ds_sweep_result_deinit(&r);
    sweep_run(&c,
              &(ds_sweep_options){
                  .path = "/dev/null", .method = "mcmc", .overwrite = true, .certificate = "x"},
              &r, DS_ERR_USAGE);
    cr_expect_not_null(strstr(c.err.message, "proves nothing"));
    ds_sweep_result_deinit(&r);
    sweep_close(&c);
}
