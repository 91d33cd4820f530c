/* Sweeps: rows against single runs, the same bytes however they come about. */
#include "tests/support/sim.h"
#include "tests/support/sweep.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define GRID DS_SOURCE_DIR "/scenarios/distir-grid.dir"
enum { MAX_CELLS = 64 };

/* Small enough for many sweeps, with every verdict: dp = 3 does not divide the batch (illegal), one
 * device does not hold what two do, and a condition looks at the step time. */
static const char small[] =
    "dir 1\n"
    "param dp = 1, tp = 1, batch = 64, width = 20000\n"
    "import \"models/mlp.dir\" as mlp with layers = 4, batch = batch, width = width\n"
    "topology @box { device gpu[8] : \"V100-SXM2-16GB\"\n"
    "  switch s\n  link gpu[i] -- s : 100 GB/s, 1 us for i in 0..8 }\n"
    "scenario { model = @mlp.mlp, on = @box, train { loss = mse, optimizer = adam }\n"
    "  strategy { dp = dp, tp = tp } }\n"
    "sweep { dp in 1..5, tp in [1, 2, 4] where dp * tp <= world\n"
    "  width in [2000, 20000], zero in [0, 1]\n"
    "  where step_time > 1 ms, minimize step_time, minimize peak_memory subject to fits }\n";

static char *sweep_text(const char *text, const ds_sweep_options *options, ds_sweep_result *out,
                        size_t *n) {
    sweep_case c;
    sweep_open_text(&c, text, NULL);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    sweep_run(&c, options, out, DS_OK);
    sweep_close(&c);
    return sweep_read(options->path, n);
}

static int lines(const char *text) {
    int n = 0;
    for (; *text; text++) n += *text == '\n';
    return n;
}

/* ---- rows ---- */

static uint32_t split_row(char *row, char **cells) {
    uint32_t n = sweep_split(row, cells, MAX_CELLS);
    cr_assert(n > 0 && n <= MAX_CELLS);
    return n;
}

/* Each row of DistIR's grid is what `distsim run --set …` gives, to the picosecond and byte. */
Test(sweep, rows_are_runs) {
    char folder[64], path[100];
    sweep_folder(folder);
    snprintf(path, sizeof path, "%s/grid.csv", folder);
    sweep_case c;
    ds_sweep_result result;
    sweep_open_file(&c, GRID, NULL);
    sweep_run(&c, &(ds_sweep_options){.path = path, .n_workers = 2}, &result, DS_OK);
    cr_expect_eq(result.rows, 75);
    cr_expect_eq(result.n[DS_VERDICT_OK], 75);
    cr_expect(result.complete);
    ds_sweep_result_deinit(&result);
    sweep_close(&c);

    char *text = sweep_read(path, NULL), *at = strchr(text, '\n') + 1;
    cr_expect_eq(strncmp(text,
                         "model_size,world_size,batch_size,dp_degree,hp_degree,pp_degree,"
                         "num_microbatches,latency,throughput,peak_memory,",
                         strlen("model_size,world_size,batch_size,dp_degree,hp_degree,pp_degree,"
                                "num_microbatches,latency,throughput,peak_memory,")),
                 0);
    uint32_t step = sweep_column(text, "step_time_ps");
    for (int row = 0; row < 75; row++) {
        char *next = strchr(at, '\n') + 1, *cells[MAX_CELLS], settings[200];
        at[next - at - 1] = '\0';
        split_row(at, cells);
        snprintf(settings, sizeof settings, "dp=%s tp=%s pp=%s microbatches=%s", cells[3], cells[4],
                 cells[5], cells[6]);
        sim_case s;
        sim_run_file(&s, "scenarios/distir-grid.dir", settings, false);
        cr_assert_eq(s.status, DS_OK);
        cr_expect_eq(strtoll(cells[step], NULL, 10), s.result->run.step_ps, "%s", settings);
        cr_expect_eq(strtoll(cells[9], NULL, 10), s.result->metrics.peak_bytes, "%s", settings);
        cr_expect(!(strtod(cells[8], NULL) < s.result->metrics.throughput_per_s) &&
                  !(strtod(cells[8], NULL) > s.result->metrics.throughput_per_s));
        cr_expect_float_eq(strtod(cells[7], NULL), (double)s.result->run.step_ps * 1e-12, 1e-15);
        cr_expect_str_eq(cells[0], "mlp-small");
        cr_expect_str_eq(cells[1], "16");
        cr_expect_str_eq(cells[2], "8192");
        sim_free(&s);
        at = next;
    }
    free(text);
    sweep_remove_folder(folder);
}

/* What cannot run or does not fit is a row with its reason. */
Test(sweep, every_candidate_is_a_row) {
    char folder[64], path[100];
    ds_sweep_result r;
    sweep_folder(folder);
    snprintf(path, sizeof path, "%s/rows.csv", folder);
    char *text = sweep_text(small, &(ds_sweep_options){.path = path}, &r, NULL);
    /* dp 1, 2: tp 1 2 4; dp 3, 4: tp 1 2; four rows each */
    cr_expect_eq(r.rows, 40);
    cr_expect_eq(lines(text), 41);
    cr_expect_eq(r.n[DS_VERDICT_ILLEGAL], 8); /* dp = 3 */
    cr_expect_gt(r.n[DS_VERDICT_DOES_NOT_FIT], 0);
    cr_expect_gt(r.n[DS_VERDICT_EXCLUDED], 0);
    cr_expect_gt(r.n[DS_VERDICT_OK], 0);
    cr_expect_not_null(strstr(text, ",excluded,where step_time > 1 ms,"));
    cr_expect_not_null(strstr(text, " bytes are missing on gpu[0],"));
    cr_expect_not_null(strstr(text, ",-1,-1,-1,3,1,2000,0,"));
    ds_sweep_result_deinit(&r);
    free(text);
    sweep_remove_folder(folder);
}

/* The best and the front, against all pairs of rows. */
Test(sweep, best_and_front) {
    char folder[64], path[100], *cells[MAX_CELLS];
    double step[64], memory[64];
    int n = 0, on_front = 0, best = 0;
    ds_sweep_result r;
    sweep_folder(folder);
    snprintf(path, sizeof path, "%s/rows.csv", folder);
    char *text = sweep_text(small, &(ds_sweep_options){.path = path}, &r, NULL);
    uint32_t status = sweep_column(text, "status"), at_step = sweep_column(text, "step_time_ps");
    for (char *at = strchr(text, '\n') + 1, *next; *at; at = next) {
        next = strchr(at, '\n') + 1;
        next[-1] = '\0';
        split_row(at, cells);
        if (strcmp(cells[status], "ok") != 0) continue;
        step[n] = strtod(cells[at_step], NULL);
        memory[n++] = strtod(cells[9], NULL);
    }
    for (int i = 0; i < n; i++) {
        bool covered = false;
        for (int k = 0; k < n; k++)
            covered = covered || (step[k] <= step[i] && memory[k] <= memory[i] &&
                                  (step[k] < step[i] || memory[k] < memory[i] || k < i));
        on_front += !covered;
        if (step[i] < step[best]) best = i;
    }
    cr_assert_gt(n, 5);
    cr_expect_eq(r.best.front.n, (uint32_t)on_front);
    cr_expect_eq(r.best.top.at[0].metrics.step_ps, (int64_t)step[best]);
    cr_expect_eq(r.best.top.n, (uint32_t)(n < 10 ? n : 10));
    for (uint32_t i = 0; i < r.best.top.n; i++) { /* the i-th smallest */
        int64_t ps = r.best.top.at[i].metrics.step_ps;
        uint32_t below = 0, up_to = 0;
        for (int k = 0; k < n; k++) {
            below += (int64_t)step[k] < ps;
            up_to += (int64_t)step[k] <= ps;
        }
        cr_expect(below <= i && i < up_to);
    }
    ds_sweep_result_deinit(&r);
    free(text);
    sweep_remove_folder(folder);
}

/* ---- the same bytes ---- */

Test(sweep, any_number_of_workers) {
    char folder[64], path[100];
    size_t n, n_first = 0;
    char *first = NULL;
    sweep_folder(folder);
    for (uint32_t workers = 1; workers <= 8; workers *= 2) {
        ds_sweep_result r;
        snprintf(path, sizeof path, "%s/%u.csv", folder, workers);
        char *text =
            sweep_text(small, &(ds_sweep_options){.path = path, .n_workers = workers}, &r, &n);
        if (!first) {
            first = text;
            n_first = n;
            ds_sweep_result_deinit(&r);
            continue;
        }
        cr_expect(n == n_first && memcmp(text, first, n) == 0, "%u workers", workers);
        ds_sweep_result_deinit(&r);
        free(text);
    }
    free(first);
    sweep_remove_folder(folder);
}

static void put_file(const char *path, const char *text, size_t n) {
    FILE *file = fopen(path, "wb");
    cr_assert(file && fwrite(text, 1, n, file) == n);
    fclose(file);
}

/* Cut anywhere, be it in the header, a sweep goes on to the same file. */
Test(sweep, resumes_wherever_it_was_cut) {
    char folder[64], path[100];
    size_t n, again;
    ds_sweep_result r;
    sweep_folder(folder);
    snprintf(path, sizeof path, "%s/rows.csv", folder);
    char *whole = sweep_text(small, &(ds_sweep_options){.path = path}, &r, &n);
    uint64_t ok = r.n[DS_VERDICT_OK];
    uint32_t front = r.best.front.n;
    int64_t best_ps = r.best.top.at[0].metrics.step_ps;
    ds_sweep_result_deinit(&r);
    for (size_t cut = 0; cut <= n; cut = cut + 1 + n / 13) {
        put_file(path, whole, cut);
        ds_sweep_options nothing = {.path = path, .resume = true, .max_rows = 1};
        char *text = sweep_text(small, &nothing, &r, &again);
        cr_expect(again >= cut && memcmp(text, whole, again) == 0, "cut at %zu: no beginning", cut);
        ds_sweep_result_deinit(&r);
        free(text);
        text = sweep_text(small, &(ds_sweep_options){.path = path, .resume = true}, &r, &again);
        cr_expect(again == n && memcmp(text, whole, n) == 0, "cut at %zu", cut);
        cr_expect_eq(r.n[DS_VERDICT_OK], ok);
        cr_expect_eq(r.best.front.n, front);
        cr_expect_eq(r.best.top.at[0].metrics.step_ps, best_ps);
        ds_sweep_result_deinit(&r);
        free(text);
    }
    free(whole);
    sweep_remove_folder(folder);
}

static void nap(long ms) {
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

/* SIGKILL at some instant; what is there is a beginning of the whole, and is completed. */
Test(sweep, survives_being_killed) {
    char folder[64], path[100], killed[100];
    size_t n, again;
    ds_sweep_result r;
    sweep_folder(folder);
    snprintf(path, sizeof path, "%s/whole.csv", folder);
    snprintf(killed, sizeof killed, "%s/killed.csv", folder);
    char *whole = sweep_text(small, &(ds_sweep_options){.path = path}, &r, &n);
    ds_sweep_result_deinit(&r);
    for (long ms = 5; ms < 60; ms += 11) {
        unlink(killed);
        fflush(NULL);
        pid_t child = fork();
        cr_assert_geq(child, 0);
        if (child == 0) {
            free(sweep_text(small, &(ds_sweep_options){.path = killed, .n_workers = 2}, &r, &n));
            _exit(0);
        }
        nap(ms);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        size_t left = 0;
        char *part = sweep_read(killed, &left);
        cr_expect(!part || (left <= n && memcmp(part, whole, left) == 0), "after %ld ms", ms);
        free(part);
        char *text =
            sweep_text(small, &(ds_sweep_options){.path = killed, .resume = true}, &r, &again);
        cr_expect(again == n && memcmp(text, whole, n) == 0, "after %ld ms", ms);
        ds_sweep_result_deinit(&r);
        free(text);
    }
    free(whole);
    sweep_remove_folder(folder);
}

Test(sweep, shards_are_the_whole) {
    char folder[64], paths[3][100], merged[100];
    const char *list[] = {paths[0], paths[1], paths[2]};
    size_t n, n_merged;
    uint64_t rows;
    ds_sweep_result r;
    ds_error err;
    sweep_folder(folder);
    snprintf(merged, sizeof merged, "%s/whole.csv", folder);
    char *whole = sweep_text(small, &(ds_sweep_options){.path = merged}, &r, &n);
    ds_sweep_result_deinit(&r);
    for (uint32_t i = 0; i < 3; i++) {
        snprintf(paths[i], sizeof paths[i], "%s/%u.csv", folder, i);
        ds_sweep_options options = {.path = paths[i], .shard = i, .n_shards = 3};
        free(sweep_text(small, &options, &r, NULL));
        cr_expect_eq(r.rows, i == 0 ? 14 : 13); /* 40 rows */
        ds_sweep_result_deinit(&r);
    }
    cr_assert_eq(ds_sweep_merge(list, 3, merged, true, 40, &rows, &err), DS_OK);
    char *text = sweep_read(merged, &n_merged);
    cr_expect(rows == 40 && n == n_merged && memcmp(text, whole, n) == 0);
    cr_expect_eq(ds_sweep_merge(list, 2, merged, true, 40, &rows, &err), DS_ERR_DATA);
    cr_expect_not_null(strstr(err.message, "candidate 2 is missing"), "%s", err.message);
    cr_expect_eq(ds_sweep_merge(list, 3, merged, true, 41, &rows, &err), DS_ERR_DATA);
    cr_expect_not_null(strstr(err.message, "candidate 40 of 41 is missing"), "%s", err.message);
    cr_expect_not_null(strstr(err.message, paths[1]), "%s", err.message); /* 40 = 13 * 3 + 1 */
    cr_expect_eq(ds_sweep_merge(list, 3, merged, true, 39, &rows, &err), DS_ERR_DATA);
    cr_expect_eq(ds_sweep_merge(list, 3, paths[2], true, 40, &rows, &err), DS_ERR_USAGE);
    const char *twice[] = {paths[0], paths[0]};
    cr_expect_eq(ds_sweep_merge(twice, 2, merged, true, 40, &rows, &err), DS_ERR_DATA);
    cr_expect_not_null(strstr(err.message, "candidate 0 comes twice"), "%s", err.message);
    free(text);
    free(whole);
    sweep_remove_folder(folder);
}

/* A condition on knobs that cannot be evaluated for a candidate makes its row a failed one, whoever
 * asks for it, unless another condition excludes it; one on nothing ends the sweep. */
static char *explore_division(const char *param, const char *where, const char *method,
                              ds_sweep_result *r, ds_status expected) {
    static const char divides[] =
        "dir 1\nparam tp = 1, zero = 0%s\n"
        "import \"models/mlp.dir\" as mlp with layers = 4, batch = 64, width = 64\n"
        "topology @box { device gpu[8] : \"V100-SXM2-16GB\"\n"
        "  switch s\n  link gpu[i] -- s : 100 GB/s, 1 us for i in 0..8 }\n"
        "scenario { model = @mlp.mlp, on = @box, train { loss = mse, optimizer = adam }\n"
        "  strategy { tp = tp } }\n"
        "sweep { tp in [1, 2, 4, 8] where %s > -100, minimize step_time }\n";
    char folder[64], path[100], text[1000];
    sweep_case c;
    snprintf(text, sizeof text, divides, param, where);
    sweep_folder(folder);
    snprintf(path, sizeof path, "%s/rows.csv", folder);
    sweep_open_text(&c, text, NULL);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    sweep_run(&c, &(ds_sweep_options){.path = path, .method = method}, r, expected);
    ds_sweep_result_deinit(r);
    sweep_close(&c);
    char *rows = sweep_read(path, NULL);
    sweep_remove_folder(folder);
    return rows;
}

Test(sweep, conditions_that_cannot_be_evaluated_are_failed_rows) {
    static const char *const methods[] = {"grid", "random", "bound", "beam"};
    ds_sweep_result r;
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        char *rows = explore_division("", "8 / (tp - 4)", methods[i], &r, DS_OK);
        cr_expect_eq(r.rows, 4, "%s: %s", methods[i], rows);
        cr_expect_eq(r.n[DS_VERDICT_OK], 3, "%s: %s", methods[i], rows);
        cr_expect_not_null(strstr(rows, ",failed,division by zero in `8 / (tp - 4)`"), "%s", rows);
        free(rows);
    }
    char *rows =
        explore_division("", "8 / (tp - 4) > -100, where tp != 4 and tp", "grid", &r, DS_OK);
    cr_expect_eq(r.rows, 3, "%s", rows);
    free(rows);
    free(explore_division("", "8 / zero", "grid", &r, DS_ERR_VALUE));
}

/* So does a param that a condition looks at, whatever is between them; a domain has to have values.
 * Conditions on other things hold or not as ever. */
Test(sweep, params_that_cannot_be_evaluated_are_failed_rows) {
    static const char *const methods[] = {"grid", "random", "bound", "beam"};
    static const char params[] = ", part = 8 / (tp - 4), more = part + 1";
    ds_sweep_result r;
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        char *rows = explore_division(params, "more", methods[i], &r, DS_OK);
        cr_expect_eq(r.rows, 4, "%s: %s", methods[i], rows);
        cr_expect_eq(r.n[DS_VERDICT_OK], 3, "%s: %s", methods[i], rows);
        cr_expect_not_null(strstr(rows, ",failed,division by zero in `8 / (tp - 4)`"), "%s", rows);
        free(rows);
    }
    char *rows = explore_division(params, "more > -100, where tp < 4 and more", "grid", &r, DS_OK);
    cr_expect_eq(r.rows, 3, "%s", rows); /* 1, 2, and 4, of which nothing can be told */
    free(rows);
    rows = explore_division(params, "more > -100, where tp != 4 and tp", "grid", &r, DS_OK);
    cr_expect_eq(r.rows, 3, "%s", rows);
    free(rows);
    rows =
        explore_division(params, "more > -100, dp in [1, part] where dp", "grid", &r, DS_ERR_VALUE);
    cr_expect_not_null(strstr(rows, "\n"));
    free(rows);
}

/* Rows whose cells contradict their place or each other are not gone on with. */
Test(sweep, changed_rows_are_not_resumed) {
    char folder[64], path[100];
    ds_sweep_result r;
    size_t n;
    sweep_folder(folder);
    snprintf(path, sizeof path, "%s/rows.csv", folder);
    char *rows = sweep_text(small, &(ds_sweep_options){.path = path}, &r, &n);
    ds_sweep_result_deinit(&r);
    static const uint32_t columns[] = {7, 10}; /* latency; the first dimension */
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        char *cell = strchr(rows, '\n') + 1;
        for (uint32_t k = 0; k < columns[i]; k++) cell = strchr(cell, ',') + 1;
        char *digit = strchr(cell, ',') - 1, old = *digit;
        sweep_case c;
        *digit = old == '7' ? '8' : '7';
        put_file(path, rows, n);
        sweep_open_text(&c, small, NULL);
        sweep_run(&c, &(ds_sweep_options){.path = path, .resume = true}, &r, DS_ERR_DATA);
        ds_sweep_result_deinit(&r);
        sweep_close(&c);
        *digit = old;
    }
    free(rows);
    sweep_remove_folder(folder);
}

/* ---- whose rows ---- */

static char *with(const char *text, const char *old, const char *new) {
    const char *at = strstr(text, old);
    ds_buf out = {0};
    ds_buf_put_n(&out, text, (size_t)(at - text));
    ds_buf_put(&out, new);
    ds_buf_put(&out, at + strlen(old));
    return out.text;
}

Test(sweep, refuses_what_another_sweep_wrote) {
    static const char *const changes[][2] = {{"tp in [1, 2, 4]", "tp in [1, 2]"},
                                             {"batch = 64", "batch = 128"},
                                             {"100 GB/s", "200 GB/s"},
                                             {"optimizer = adam", "optimizer = sgd"}};
    char folder[64], path[100];
    ds_sweep_result r;
    sweep_folder(folder);
    snprintf(path, sizeof path, "%s/rows.csv", folder);
    free(sweep_text(small, &(ds_sweep_options){.path = path, .max_rows = 5}, &r, NULL));
    cr_expect(r.rows == 5 && !r.complete);
    ds_sweep_result_deinit(&r);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        char *other = with(small, changes[i][0], changes[i][1]);
        sweep_case c;
        sweep_open_text(&c, other, NULL);
        sweep_run(&c, &(ds_sweep_options){.path = path, .resume = true}, &r, DS_ERR_DATA);
        cr_expect_not_null(strstr(c.err.message, "another sweep made this row"), "%s",
                           c.err.message);
        ds_sweep_result_deinit(&r);
        sweep_close(&c);
        free(other);
    }
    sweep_case c; /* the same sweep, but its file is there */
    sweep_open_text(&c, small, NULL);
    sweep_run(&c, &(ds_sweep_options){.path = path}, &r, DS_ERR_USAGE);
    ds_sweep_result_deinit(&r);
    sweep_run(&c, &(ds_sweep_options){.path = path, .resume = true, .shard = 1, .n_shards = 2}, &r,
              DS_ERR_DATA);
    ds_sweep_result_deinit(&r);
    put_file(path, "no,sweep\n1,2\n", 13);
    sweep_run(&c, &(ds_sweep_options){.path = path, .resume = true}, &r, DS_ERR_DATA);
    ds_sweep_result_deinit(&r);
    sweep_close(&c);
    sweep_remove_folder(folder);
}

static void remove_rows(void *context, const ds_sweep_progress *progress) {
    (void)progress;
    unlink(context);
}

/* The database is made of the rows' file: an error if the file is gone, and no database. */
Test(sweep, rows_that_are_gone_make_no_database) {
    char folder[64], path[100], db[100];
    sweep_folder(folder);
    snprintf(path, sizeof path, "%s/grid.csv", folder);
    snprintf(db, sizeof db, "%s/grid.db", folder);
    sweep_case c;
    ds_sweep_result result;
    ds_sweep_options options = {
        .path = path, .db = db, .n_workers = 1, .progress = remove_rows, .progress_context = path};
    sweep_open_file(&c, GRID, NULL);
    sweep_run(&c, &options, &result, DS_ERR_IO);
    cr_expect(access(db, F_OK) != 0);
    ds_sweep_result_deinit(&result);
    sweep_close(&c);
    sweep_remove_folder(folder);
}

/* Comments, blank lines and the order of entries do not change a row's hash; a number does. */
Test(sweep, hashes_are_of_content) {
    char folder[64], path[100];
    ds_sweep_result r;
    uint64_t hash[4];
    char *texts[4] = {with(small, "dir 1\n", "dir 1\n"),
                      with(small, "scenario {", "\n// a comment\nscenario {"),
                      with(small, "model = @mlp.mlp, on = @box", "on = @box, model = @mlp.mlp"),
                      with(small, "100 GB/s", "101 GB/s")};
    sweep_folder(folder);
    snprintf(path, sizeof path, "%s/rows.csv", folder);
    for (int i = 0; i < 4; i++) {
        ds_sweep_options options = {.path = path, .overwrite = true};
        free(sweep_text(texts[i], &options, &r, NULL));
        cr_assert(r.best.top.n > 0);
        hash[i] = r.best.top.at[0].hash;
        ds_sweep_result_deinit(&r);
        free(texts[i]);
    }
    cr_expect(hash[0] == hash[1] && hash[0] == hash[2] && hash[0] != hash[3]);
    sweep_remove_folder(folder);
}

/* ---- random ---- */

Test(sweep, random_candidates_are_different_and_repeatable) {
    char folder[64], path[100];
    size_t n[2];
    char *text[2];
    ds_sweep_result r;
    sweep_folder(folder);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%d.csv", folder, i);
        ds_sweep_options options = {.path = path,
                                    .method = "random",
                                    .seed = 3,
                                    .max_rows = 1000,
                                    .n_workers = 1u + (uint32_t)i};
        text[i] = sweep_text(small, &options, &r, &n[i]);
        cr_expect_eq(r.rows, 40); /* all there are */
        ds_sweep_result_deinit(&r);
    }
    cr_expect(n[0] == n[1] && memcmp(text[0], text[1], n[0]) == 0);
    free(text[0]);
    free(text[1]);
    sweep_remove_folder(folder);
}
