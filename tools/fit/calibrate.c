/* fit-profiles rows: a profile's constants from published steps.
 *
 * FOLDER/calibration.csv says which constants move, between which bounds, and which of them move
 * together. The rows are those of the tables whose testbed (tools/validate) names the profile and
 * whose split is calib; each is predicted as `distsim validate` does, a whole step, with constants
 * altered in memory. ds_fit_steps_run makes log(predicted/measured) small over all of them. Rows of
 * other splits are predicted once, at the end, and have no part. Where calibration.csv has a prior,
 * what single ops take elsewhere, a constant is held to it like by one more row (fit/steps.h).
 *
 * Left out: the fit repeated without the rows of each model (layers and width), by the residuals'
 * derivatives around the fit; the constants so found then predict those rows, by simulation. */
#include "ir/base/file.h"
#include "sim/cost/constant.h"
#include "sim/cost/fit/fit.h"
#include "sim/cost/fit/steps.h"
#include "tools/fit/fit.h"
#include "tools/validate/predict.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- what is fitted ---- */

/* One constant of the profile; those of one variable keep their ratios. */
typedef struct target {
    ds_constant which;
    uint32_t variable;
    double start; /* as in the profile, in its unit */
    uint32_t line;
} target;

typedef struct fitting {
    ds_profiles *profiles;
    uint32_t profile;
    const char *name;
    fit_groups variables;
    DS_VEC(target) targets;
    DS_VEC(double) low, high, start; /* by variable, in the unit of its first target */
    DS_VEC(double) prior, spread;    /* the same; spread 0: no prior */
    DS_VEC(ds_csv) tables;
    DS_VEC(val_prediction) rows; /* of the profile, all splits, as read */
    val_prediction *open;        /* scratch: the rows that are being fitted, as read */
    val_prediction *chosen;      /* the same with what the last fresh prediction chose */
    uint32_t n;                  /* of them */
    bool cauchy;                 /* the loss (fit/steps.h) */
    double ratios[2];            /* where new steps lie, by the calib rows as last predicted */
    ds_load_options load;
    uint32_t n_workers;
} fitting;

static const struct {
    const char *name;
    ds_constant_name which;
    double unit; /* of one in the file */
} names[] = {{"e_max", DS_CONSTANT_E_MAX, 1},
             {"w_half", DS_CONSTANT_W_HALF, 1},
             {"floor_us", DS_CONSTANT_FLOOR_PS, 1e6},
             {"launch_us", DS_CONSTANT_PROTOCOL_LAUNCH_PS, 1e6},
             {"step_us", DS_CONSTANT_PROTOCOL_STEP_PS, 1e6},
             {"copy_gb_per_s", DS_CONSTANT_PROTOCOL_COPY_BYTES_PER_S, 1e9},
             {"e", DS_CONSTANT_PROTOCOL_E, 1},
             {"tiles_e_max", DS_CONSTANT_TILES_E_MAX, 1}};

static double unit_of(const ds_constant *which) {
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].which == which->name) return names[i].unit;
    return 1;
}

/* Both cells, or none. */
static ds_status read_prior(fitting *f, const ds_csv *csv, uint32_t row, double spread_of_all,
                            ds_error *err) {
    double prior = 0, spread = 0;
    const char *text = "";
    ds_error unsaid;
    if (fit_cell(csv, row, "prior", &text, &unsaid) == DS_OK && *text) {
        DS_TRY(fit_number(csv, row, "prior", &prior, err));
        DS_TRY(fit_number(csv, row, "spread", &spread, err));
        if (!(prior > 0) || !(spread > 0))
            return ds_csv_error(csv, &csv->rows.at[row], err,
                                "a prior and its spread are positive");
        if (spread_of_all > 0) spread = spread_of_all;
    }
    DS_HPUSH(&f->prior, prior);
    DS_HPUSH(&f->spread, spread);
    return DS_OK;
}

static ds_status read_target(fitting *f, const ds_csv *csv, uint32_t row, double spread_of_all,
                             ds_error *err) {
    const char *variable, *constant, *resource;
    target t = {.line = csv->rows.at[row].line};
    double low, high;
    DS_TRY(fit_cell(csv, row, "variable", &variable, err));
    DS_TRY(fit_cell(csv, row, "constant", &constant, err));
    DS_TRY(fit_cell(csv, row, "op", &t.which.op, err));
    DS_TRY(fit_cell(csv, row, "dtype", &t.which.dtype, err));
    DS_TRY(fit_cell(csv, row, "resource", &resource, err));
    DS_TRY(fit_cell(csv, row, "protocol", &t.which.protocol, err));
    DS_TRY(fit_number(csv, row, "low", &low, err));
    DS_TRY(fit_number(csv, row, "high", &high, err));
    size_t k = 0;
    while (k < sizeof names / sizeof *names && strcmp(names[k].name, constant) != 0) k++;
    if (k == sizeof names / sizeof *names)
        return ds_csv_error(csv, &csv->rows.at[row], err, "no constant is called '%s'", constant);
    t.which.name = names[k].which;
    t.which.flop = strcmp(resource, "flop") == 0;
    if (*t.which.protocol)
        DS_TRY(fit_rate(csv, row, "link_gb_per_s", &t.which.link_bytes_per_s, err));
    DS_TRY(ds_constant_get(f->profiles, f->profile, &t.which, &t.start, err));
    t.variable = fit_group(&f->variables, variable);
    if (t.variable == f->start.n) {
        DS_HPUSH(&f->start, t.start / names[k].unit);
        DS_HPUSH(&f->low, low);
        DS_HPUSH(&f->high, high);
        DS_TRY(read_prior(f, csv, row, spread_of_all, err));
    }
    if (!(t.start > 0))
        return ds_csv_error(csv, &csv->rows.at[row], err,
                            "%s of %s is 0 in the profile: no factor moves it", constant,
                            t.which.op);
    DS_HPUSH(&f->targets, t);
    return DS_OK;
}

static ds_status set_constants(fitting *f, const double *c, ds_error *err) {
    for (uint32_t i = 0; i < f->targets.n; i++) {
        const target *t = &f->targets.at[i];
        double factor = c[t->variable] / f->start.at[t->variable];
        DS_TRY(ds_constant_set(f->profiles, f->profile, &t->which, t->start * factor, err));
    }
    return DS_OK;
}

/* ---- rows ---- */

static ds_status read_rows(fitting *f, const char *file, uint32_t every, ds_error *err) {
    ds_csv csv;
    char room[64];
    uint32_t seen = 0;
    DS_TRY(ds_csv_read(file, &csv, err));
    DS_HPUSH(&f->tables, csv);
    for (uint32_t i = 0; i < csv.rows.n; i++) {
        val_prediction p = {.file = file};
        val_row_read(&csv, i, &p.row);
        const val_testbed *testbed = val_testbed_of(&p.row);
        if (!testbed || !testbed->profile || strcmp(testbed->profile, f->name) != 0) continue;
        if (strcmp(p.row.split, "calib") == 0 && seen++ % every) continue;
        snprintf(p.set, sizeof p.set, "%s", val_set_of(&p.row, file, room, sizeof room));
        DS_HPUSH(&f->rows, p);
    }
    return DS_OK;
}

static bool is_calib(const val_prediction *p) {
    return strcmp(p->row.split, "calib") == 0;
}
static bool same_model(const val_row *a, const val_row *b) {
    return a->layers == b->layers && a->hidden == b->hidden;
}

/* ---- prediction ---- */

static ds_status predict(fitting *f, val_prediction *rows, ds_error *err) {
    val_job job = {
        .profiles = f->profiles, .load = f->load, .n_workers = f->n_workers, .times_only = true};
    return val_predict(&job, rows, f->n, err);
}

/* Open rows (a microbatch size, a layout that is the fastest) are chosen anew for each accepted
 * step, and kept for the derivatives around it. */
static ds_status residuals(void *context, const double *c, bool near, double *r, ds_error *err) {
    fitting *f = context;
    val_prediction *now = ds_xcalloc(f->n + 1, sizeof *now);
    memcpy(now, near ? f->chosen : f->open, f->n * sizeof *now);
    for (uint32_t i = 0; i < f->n; i++) now[i].seconds = 0;
    ds_status status = set_constants(f, c, err);
    if (status == DS_OK) status = predict(f, now, err);
    for (uint32_t i = 0; i < f->n && status == DS_OK; i++) {
        if (now[i].refused)
            status = ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "%s:%u: %s", now[i].file,
                                  now[i].row.line, now[i].why);
        r[i] = log(now[i].seconds / now[i].row.seconds);
    }
    if (!near) memcpy(f->chosen, now, f->n * sizeof *now);
    free(now);
    return status;
}

static void show_progress(void *context, uint32_t iteration, double loss) {
    (void)context;
    fprintf(stderr, "step %u: loss %.5f\n", iteration + 1, loss);
}

/* Takes the calib rows, without those that are refused. */
static ds_status choose_rows(fitting *f, ds_error *err) {
    f->n = 0;
    for (uint32_t i = 0; i < f->rows.n; i++) {
        const val_prediction *p = &f->rows.at[i];
        if (is_calib(p)) f->open[f->n++] = *p;
    }
    memcpy(f->chosen, f->open, f->n * sizeof *f->open);
    DS_TRY(predict(f, f->chosen, err));
    uint32_t kept = 0;
    for (uint32_t i = 0; i < f->n; i++)
        if (!f->chosen[i].refused) f->open[kept++] = f->open[i];
    f->n = kept;
    return DS_OK;
}

static ds_status search_constants(fitting *f, const fit_published_options *options, double *c,
                                  double *loss, ds_error *err) {
    ds_fit_steps how = {.n = f->variables.seen.n,
                        .n_rows = f->n,
                        .low = f->low.at,
                        .high = f->high.at,
                        .prior = f->prior.at,
                        .spread = f->spread.at,
                        .cauchy = f->cauchy,
                        .max_iterations = options->iterations,
                        .progress = show_progress};
    for (uint32_t k = 0; k < how.n; k++)
        c[k] = f->start.at[k] * (k % 2 ? 1 / options->away : options->away);
    return ds_fit_steps_run(&how, residuals, f, c, loss, err);
}

/* ---- what is printed ---- */

/* |predicted/measured - 1| of predicted rows, by set. */
static void print_errors(const char *label, const val_prediction *rows, uint32_t n) {
    double *p = ds_xcalloc(2 * (size_t)n + 1, sizeof *p), *m = p + n;
    for (uint32_t first = 0; first < n; first++) {
        uint32_t count = 0;
        bool known = rows[first].refused;
        for (uint32_t i = 0; i < first && !known; i++)
            known = !rows[i].refused && strcmp(rows[i].set, rows[first].set) == 0;
        if (known) continue;
        for (uint32_t i = first; i < n; i++) {
            if (rows[i].refused || strcmp(rows[i].set, rows[first].set) != 0) continue;
            p[count] = rows[i].seconds;
            m[count++] = rows[i].row.seconds;
        }
        ds_fit_errors e = ds_fit_errors_of(p, m, count);
        printf("%-16s %-18s %4u  %6.2f %%  %6.2f %%  %6.2f %%\n", label, rows[first].set, count,
               100 * e.mean, 100 * e.median, 100 * e.p90);
    }
    free(p);
}

/* An interval for new steps, ratio_p05 and ratio_p95 of profile.csv. */
static void take_ratios(const fitting *f, const val_prediction *rows, uint32_t n,
                        double ratios[2]) {
    double *r = ds_xcalloc((size_t)n + 1, sizeof *r);
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++)
        if (!rows[i].refused) r[count++] = log(rows[i].row.seconds / rows[i].seconds);
    if (count) fit_step_interval(r, count, f->variables.seen.n, ratios);
    free(r);
}

static ds_status print_split(fitting *f, const char *split, ds_error *err) {
    f->n = 0;
    for (uint32_t i = 0; i < f->rows.n; i++)
        if (strcmp(f->rows.at[i].row.split, split) == 0) f->open[f->n++] = f->rows.at[i];
    DS_TRY(predict(f, f->open, err));
    print_errors(split, f->open, f->n);
    if (strcmp(split, "calib") != 0) return DS_OK;
    take_ratios(f, f->open, f->n, f->ratios);
    printf("measured/predicted: nine in ten new steps from %.3f to %.3f\n", f->ratios[0],
           f->ratios[1]);
    return DS_OK;
}

static ds_status print_all(fitting *f, ds_error *err) {
    puts("rows             set                   n      mean    median       p90");
    DS_TRY(print_split(f, "calib", err));
    return print_split(f, "val", err);
}

/* ---- models left out ---- */

#define DIFFERENCE 1.05 /* of a constant, for derivatives around the fit */

/* Residuals of all fitted rows near the constants c0, as far as first derivatives say; and which of
 * the rows count. A fit without a model moves the constants little: simulating each step of each
 * such fit would take hours and change nothing. */
typedef struct tangent {
    const double *c0;
    double *r0, *slope; /* n_rows; n_rows x n */
    uint32_t n, n_kept;
    uint32_t *kept;
} tangent;

static ds_status tangent_residuals(void *context, const double *c, bool near, double *r,
                                   ds_error *err) {
    const tangent *t = context;
    (void)near;
    (void)err;
    for (uint32_t i = 0; i < t->n_kept; i++) {
        uint32_t row = t->kept[i];
        r[i] = t->r0[row];
        for (uint32_t k = 0; k < t->n; k++) r[i] += t->slope[row * t->n + k] * log(c[k] / t->c0[k]);
    }
    return DS_OK;
}

static ds_status find_slopes(fitting *f, tangent *t, ds_error *err) {
    double *c = ds_xcalloc(t->n + f->n, sizeof *c), *r = c + t->n;
    ds_status status = residuals(f, t->c0, false, t->r0, err);
    for (uint32_t k = 0; k < t->n && status == DS_OK; k++) {
        memcpy(c, t->c0, t->n * sizeof *c);
        c[k] /= DIFFERENCE;
        status = residuals(f, c, true, r, err);
        for (uint32_t i = 0; i < f->n && status == DS_OK; i++)
            t->slope[i * t->n + k] = (t->r0[i] - r[i]) / log(DIFFERENCE);
    }
    free(c);
    return status;
}

/* Predicts the rows of the model of row `which` by a fit to the others; into `unseen`. */
static ds_status predict_unseen(fitting *f, tangent *t, const val_row *model, double *c,
                                val_prediction *unseen, uint32_t *n, ds_error *err) {
    ds_fit_steps how = {.n = t->n,
                        .low = f->low.at,
                        .high = f->high.at,
                        .prior = f->prior.at,
                        .spread = f->spread.at,
                        .cauchy = f->cauchy,
                        .max_iterations = 100};
    double loss;
    *n = t->n_kept = 0;
    for (uint32_t i = 0; i < f->n; i++) {
        if (same_model(&f->open[i].row, model))
            unseen[(*n)++] = f->chosen[i];
        else
            t->kept[t->n_kept++] = i;
    }
    how.n_rows = t->n_kept;
    memcpy(c, t->c0, t->n * sizeof *c);
    DS_TRY(ds_fit_steps_run(&how, tangent_residuals, t, c, &loss, err));
    DS_TRY(set_constants(f, c, err));
    val_job job = {
        .profiles = f->profiles, .load = f->load, .n_workers = f->n_workers, .times_only = true};
    for (uint32_t i = 0; i < *n; i++) unseen[i].seconds = 0;
    return val_predict(&job, unseen, *n, err);
}

static ds_status leave_each_out(fitting *f, tangent *t, double *c, val_prediction *unseen,
                                ds_error *err) {
    uint32_t total = 0;
    for (uint32_t i = 0; i < f->n; i++) {
        const val_row *model = &f->open[i].row;
        uint32_t n, first = 0;
        while (!same_model(&f->open[first].row, model)) first++;
        if (first < i) continue;
        DS_TRY(predict_unseen(f, t, model, c, unseen + total, &n, err));
        printf("without %lld layers of %lld:", (long long)model->layers, (long long)model->hidden);
        for (uint32_t k = total; k < total + n; k++)
            printf(" %s:%u %+.1f %%", unseen[k].set, unseen[k].row.line,
                   100 * (unseen[k].seconds / unseen[k].row.seconds - 1));
        puts("");
        total += n;
    }
    print_errors("left out", unseen, total);
    return DS_OK;
}

/* Each model predicted by constants that were fitted without its rows. */
static ds_status leave_out(fitting *f, const double *c0, ds_error *err) {
    DS_TRY(choose_rows(f, err));
    uint32_t n = f->variables.seen.n;
    double *room = ds_xcalloc((size_t)f->n * (n + 1) + n, sizeof *room);
    tangent t = {.c0 = c0, .n = n, .r0 = room, .slope = room + f->n};
    t.kept = ds_xcalloc(f->n + 1, sizeof *t.kept);
    val_prediction *unseen = ds_xcalloc(f->n + 1, sizeof *unseen);
    ds_status status = find_slopes(f, &t, err);
    if (status == DS_OK) status = leave_each_out(f, &t, room + (size_t)f->n * (n + 1), unseen, err);
    free(unseen);
    free(t.kept);
    free(room);
    return status;
}

static double rounded(double value) {
    char text[32];
    snprintf(text, sizeof text, "%.4g", value);
    return strtod(text, NULL);
}

static void print_constants(const fitting *f, double *c) {
    puts("variable          in file     fitted   change      prior  spread");
    for (uint32_t k = 0; k < f->variables.seen.n; k++) {
        c[k] = rounded(c[k]);
        bool end = c[k] <= f->low.at[k] * 1.001 || c[k] >= f->high.at[k] / 1.001;
        printf("%-14s  %9.4g  %9.4g  %+5.1f %%", f->variables.seen.at[k], f->start.at[k], c[k],
               100 * (c[k] / f->start.at[k] - 1));
        if (f->spread.at[k] > 0) printf("  %9.4g  %4.0f %%", f->prior.at[k], 100 * f->spread.at[k]);
        puts(end ? "  at a bound" : "");
    }
}

/* ---- into the files ---- */

static bool cell_is(const ds_csv *csv, uint32_t row, const char *column, const char *text) {
    const char *cell = "";
    ds_error unsaid;
    return fit_cell(csv, row, column, &cell, &unsaid) == DS_OK && strcmp(cell, text) == 0;
}

static bool is_row_of(const ds_csv *csv, uint32_t row, const ds_constant *which) {
    int64_t link = 0;
    ds_error unsaid;
    if (which->name == DS_CONSTANT_TILES_E_MAX) return cell_is(csv, row, "dtype", which->dtype);
    if (!*which->protocol)
        return cell_is(csv, row, "op", which->op) && cell_is(csv, row, "dtype", which->dtype) &&
               cell_is(csv, row, "resource", which->flop ? "flop" : "bytes");
    if (fit_rate(csv, row, "link_gb_per_s", &link, &unsaid) != DS_OK) return false;
    return cell_is(csv, row, "collective", which->op) &&
           cell_is(csv, row, "protocol", which->protocol) && link == which->link_bytes_per_s;
}

static const char *column_of(const ds_constant *which) {
    if (which->name == DS_CONSTANT_TILES_E_MAX) return "e_max";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].which == which->name) return names[i].name;
    return NULL;
}

/* Where a constant is written. */
static const char *file_of(const ds_constant *which) {
    if (which->name == DS_CONSTANT_TILES_E_MAX) return "gemm_fits.csv";
    return *which->protocol ? "collective_protocols.csv" : "efficiency.csv";
}

static ds_status write_file(const fitting *f, const char *folder, const char *file, const double *c,
                            ds_error *err) {
    ds_csv csv;
    ds_status status = DS_OK;
    bool moves = false;
    for (uint32_t i = 0; i < f->targets.n; i++)
        moves = moves || strcmp(file_of(&f->targets.at[i].which), file) == 0;
    if (!moves) return DS_OK;
    DS_TRY(fit_read_in(folder, file, &csv, err));
    for (uint32_t i = 0; i < f->targets.n && status == DS_OK; i++) {
        const target *t = &f->targets.at[i];
        double factor = c[t->variable] / f->start.at[t->variable];
        if (strcmp(file_of(&t->which), file) != 0) continue;
        for (uint32_t row = 0; row < csv.rows.n && status == DS_OK; row++)
            if (is_row_of(&csv, row, &t->which))
                status = fit_set(&csv, row, column_of(&t->which), "%.4g",
                                 t->start * factor / unit_of(&t->which), err);
    }
    if (status == DS_OK) status = fit_write(&csv, false, err);
    ds_csv_deinit(&csv);
    return status;
}

static ds_status write_ratios(const fitting *f, const char *folder, ds_error *err) {
    ds_csv csv;
    DS_TRY(fit_read_in(folder, "profile.csv", &csv, err));
    ds_status status = fit_set(&csv, 0, "ratio_p05", "%.3f", f->ratios[0], err);
    if (status == DS_OK) status = fit_set(&csv, 0, "ratio_p95", "%.3f", f->ratios[1], err);
    if (status == DS_OK) status = fit_write(&csv, false, err);
    ds_csv_deinit(&csv);
    return status;
}

static ds_status write_constants(const fitting *f, const char *folder, const double *c,
                                 ds_error *err) {
    static const char *const files[] = {"efficiency.csv", "gemm_fits.csv",
                                        "collective_protocols.csv"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        DS_TRY(write_file(f, folder, files[i], c, err));
    return write_ratios(f, folder, err);
}

/* ---- all of it ---- */

static ds_status fit(fitting *f, const char *folder, const fit_published_options *options,
                     ds_error *err) {
    double *c = ds_xcalloc(f->variables.seen.n + 1, sizeof *c), loss;
    printf("profile %s, as built\n", f->name);
    ds_status status = print_all(f, err);
    if (status == DS_OK) status = choose_rows(f, err);
    if (status == DS_OK) status = search_constants(f, options, c, &loss, err);
    if (status == DS_OK) {
        printf("\nfitted to %u rows, loss %.5f\n", f->n, loss);
        print_constants(f, c);
        status = set_constants(f, c, err);
    }
    if (status == DS_OK) status = print_all(f, err);
    if (status == DS_OK && options->write) status = write_constants(f, folder, c, err);
    if (status == DS_OK && options->leave_out) status = leave_out(f, c, err);
    free(c);
    return status;
}

static ds_status read_tables(fitting *f, const ds_csv *calibration,
                             const fit_published_options *options, ds_error *err) {
    DS_TRY(ds_profiles_load(NULL, &f->profiles, err));
    DS_TRY(ds_profiles_find_profile(f->profiles, f->name, DS_NOWHERE, &f->profile, err));
    for (uint32_t i = 0; i < calibration->rows.n; i++)
        DS_TRY(read_target(f, calibration, i, options->spread, err));
    for (uint32_t i = 0; i < options->n_tables; i++)
        DS_TRY(read_rows(f, options->tables[i], options->every, err));
    if (!f->rows.n)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                            "no row of these tables belongs to a testbed with the profile %s",
                            f->name);
    f->open = ds_xcalloc(f->rows.n + 1, sizeof *f->open);
    f->chosen = ds_xcalloc(f->rows.n + 1, sizeof *f->chosen);
    return DS_OK;
}

ds_status fit_published(const char *folder, const fit_published_options *options, ds_error *err) {
    static const char *const include[] = {"scenarios"};
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    const char *slash = strrchr(folder, '/');
    fitting f = {.name = slash ? slash + 1 : folder,
                 .cauchy = options->cauchy,
                 .load = {.include_dirs = include, .n_include_dirs = 1},
                 .n_workers = cores > 0 ? (uint32_t)cores : 1};
    ds_csv calibration;
    DS_TRY(fit_read_in(folder, "calibration.csv", &calibration, err));
    ds_strtab_init(&f.variables.names);
    ds_status status = read_tables(&f, &calibration, options, err);
    if (status == DS_OK) status = fit(&f, folder, options, err);
    for (uint32_t i = 0; i < f.tables.n; i++) ds_csv_deinit(&f.tables.at[i]);
    free(f.tables.at);
    free(f.rows.at);
    free(f.open);
    free(f.chosen);
    free(f.targets.at);
    free(f.low.at);
    free(f.high.at);
    free(f.start.at);
    free(f.prior.at);
    free(f.spread.at);
    fit_groups_deinit(&f.variables);
    ds_profiles_free(f.profiles);
    ds_csv_deinit(&calibration);
    return status;
}
