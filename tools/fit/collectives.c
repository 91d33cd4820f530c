/* fit-profiles collectives: collective_protocols.csv from measured collectives.
 *
 * The protocols of one collective on one kind of link are fitted together, to the rows that these
 * protocols serve and that are not held back. A prediction is the simulator's own: the phases of
 * every algorithm that competes, of which steps, latency and flow are taken down once, and the
 * terms of ds_cost_collective with the constants altered in memory. What is made small is the mean
 * of |log(predicted/measured)|: as often too fast as too slow, whatever a few rows do. A constant
 * that is 0 in the file stays 0; the others enter as logarithms; the starts come from the rows, so
 * the same files give the same constants. */
#include "ir/base/file.h"
#include "ir/base/output.h"
#include "ir/base/units.h"
#include "ir/lang/lang.h"
#include "ir/verify/verify.h"
#include "sim/cost/build.h"
#include "sim/cost/constant.h"
#include "sim/cost/fit/fit.h"
#include "tools/fit/collectives_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
    const char *column;
    ds_constant_name name;
    double unit;
} kinds[N_KINDS] = {{"launch_us", DS_CONSTANT_PROTOCOL_LAUNCH_PS, PS_PER_US},
                    {"step_us", DS_CONSTANT_PROTOCOL_STEP_PS, PS_PER_US},
                    {"copy_gb_per_s", DS_CONSTANT_PROTOCOL_COPY_BYTES_PER_S, 1e9},
                    {"e", DS_CONSTANT_PROTOCOL_E, 1}};

/* ---- measured rows ---- */

static ds_status take_way(fit_coll *f, fit_row *r, const char *algorithm, ds_error *err) {
    ds_phase *phases;
    uint32_t n;
    ds_error refusal;
    const ds_coll_request *q = &r->measured->request;
    if (ds_coll_phases(f->topo, q, algorithm, &f->arena, &phases, &n, &refusal) != DS_OK)
        return DS_OK; /* not every group has every algorithm */
    fit_way w = {0};
    for (uint32_t i = 0; i < n; i++) {
        int64_t ps;
        DS_TRY(ds_phase_alone_ps(f->topo, &phases[i], (uint64_t)1 << 32, &ps, err));
        double wait = (double)phases[i].steps * (double)phases[i].alpha_ps;
        w.steps += (double)phases[i].steps;
        w.wait_ps += wait;
        w.flow_ps += (double)ps - wait;
    }
    r->ways[r->n_ways++] = w;
    return DS_OK;
}

ds_status fit__link_of(const fit_coll *f, uint32_t line, int64_t *bytes_per_s, ds_error *err) {
    return fit_rate(&f->csv, line, "link_gb_per_s", bytes_per_s, err);
}

/* The groups that a row of the file is for; most = HUGE_VAL: without an end. */
static void window_of(const fit_coll *f, uint32_t line, double *least, double *most) {
    uint32_t low = ds_csv_find(&f->csv, "least_group"), high = ds_csv_find(&f->csv, "most_group");
    const char **cells = f->csv.rows.at[line].cells;
    *least = low == DS_CSV_NO_COLUMN ? 0 : strtod(cells[low], NULL);
    *most = high == DS_CSV_NO_COLUMN ? 0 : strtod(cells[high], NULL);
    if (*most == 0) *most = HUGE_VAL;
}

/* Are two rows of the file protocols of the same collective, link and groups? */
static ds_status are_together(const fit_coll *f, uint32_t a, uint32_t b, bool *out, ds_error *err) {
    const char *one, *other;
    int64_t first, second;
    double least[2], most[2];
    window_of(f, a, &least[0], &most[0]);
    window_of(f, b, &least[1], &most[1]);
    DS_TRY(fit_cell(&f->csv, a, "collective", &one, err));
    DS_TRY(fit_cell(&f->csv, b, "collective", &other, err));
    DS_TRY(fit__link_of(f, a, &first, err));
    DS_TRY(fit__link_of(f, b, &second, err));
    *out = strcmp(one, other) == 0 && first == second && least[0] == least[1] && most[0] == most[1];
    return DS_OK;
}

/* The protocols for the row's group on the links nearest to the row's. */
static ds_status find_protocols(const fit_coll *f, fit_row *r, ds_error *err) {
    double best = HUGE_VAL;
    r->first = UINT32_MAX;
    for (uint32_t i = 0; i < f->csv.rows.n; i++) {
        const char *collective;
        int64_t link;
        double least, most, group = r->measured->request.n;
        window_of(f, i, &least, &most);
        DS_TRY(fit_cell(&f->csv, i, "collective", &collective, err));
        DS_TRY(fit__link_of(f, i, &link, err));
        if (strcmp(collective, ds_op_name(r->measured->request.op)) != 0) continue;
        if (group < least || group > most) continue;
        double off = fabs(log((double)link / (double)r->links.slowest_bytes_per_s));
        if (off >= best) continue;
        best = off;
        r->first = i;
    }
    return DS_OK;
}

static ds_status read_rows(fit_coll *f, const char *folder, const char *table, ds_error *err) {
    ds_csv csv;
    ds_measured *measured;
    DS_TRY(ds_csv_read(table, &csv, err));
    DS_TRY(fit__of_device(f, folder, &csv, err));
    f->n = csv.rows.n;
    ds_status status =
        ds_measured_read(&csv, ds_topo_n_devices(f->topo), &f->arena, &measured, err);
    ds_csv_deinit(&csv);
    DS_TRY(status);
    f->rows = ds_xcalloc(f->n, sizeof *f->rows);
    f->predicted = ds_xcalloc(f->n, sizeof *f->predicted);
    f->measured = ds_xcalloc(f->n, sizeof *f->measured);
    for (uint32_t i = 0; i < f->n; i++) {
        fit_row *r = &f->rows[i];
        const char *names[DS_COLL_MOST_ALGORITHMS];
        r->measured = &measured[i];
        DS_TRY(ds_coll_links_of(f->topo, &r->measured->request, &r->links, err));
        uint32_t n = ds_coll_candidates(&r->measured->request, names);
        for (uint32_t k = 0; k < n; k++) DS_TRY(take_way(f, r, names[k], err));
    }
    return DS_OK;
}

/* ---- a table that is not there ---- */

static bool are_alike(const fit_row *a, const fit_row *b) {
    return a->measured->request.op == b->measured->request.op &&
           a->links.slowest_bytes_per_s == b->links.slowest_bytes_per_s;
}

/* Rows on the links of row `i` of its collective that are fitted; 0 if an earlier one has them. */
static uint32_t count_alike(const fit_coll *f, uint32_t i) {
    uint32_t n = 0;
    for (uint32_t k = 0; k < f->n; k++) {
        const fit_row *r = &f->rows[k];
        if (r->measured->held || r->measured->aux || !are_alike(r, &f->rows[i])) continue;
        if (k < i) return 0;
        n++;
    }
    return n;
}

#define ROWS_OF_ONE 4 /* launch and share of the links */
#define ROWS_OF_TWO 8 /* launch, step and share of each, and the copy */

/* Two protocols for a collective on one kind of link, one where the rows are few. */
static void start_table(const fit_coll *f, const char *source, ds_buf *out) {
    static const char *const names[] = {"small", "large"};
    ds_buf_put(out, "collective,link_gb_per_s,protocol,launch_us,step_us,copy_gb_per_s,e,"
                    "least_bytes,most_bytes,n,median_error,p90_error,basis,source\n");
    for (uint32_t i = 0; i < f->n; i++) {
        const fit_row *r = &f->rows[i];
        uint32_t n = r->measured->held || r->measured->aux ? 0 : count_alike(f, i);
        const char *collective = ds_op_name(r->measured->request.op);
        double gb_per_s = (double)r->links.slowest_bytes_per_s / 1e9;
        if (n && n < ROWS_OF_ONE)
            printf("%s on links of %g GB/s: %u rows are too few\n", collective, gb_per_s, n);
        if (n < ROWS_OF_ONE) continue;
        bool two = n >= ROWS_OF_TWO;
        for (int p = !two; p < 2; p++) {
            ds_buf_printf(out, "%s,%.15g,%s,10,%d,%d,0.5,0,0,%u,,,measured collectives,",
                          collective, gb_per_s, names[p], two, two ? 1000 : 0, n);
            ds_csv_put_cell(out, source, false);
            ds_buf_putc(out, '\n');
        }
    }
}

/* The first key of FOLDER/sources.csv. */
static ds_status source_of(fit_coll *f, const char *folder, const char **out, ds_error *err) {
    ds_csv csv;
    DS_TRY(fit_read_in(folder, "sources.csv", &csv, err));
    ds_status status = DS_OK;
    uint32_t key = ds_csv_find(&csv, "key");
    if (key != DS_CSV_NO_COLUMN && csv.rows.n)
        *out = ds_arena_printf(&f->arena, "%s", csv.rows.at[0].cells[key]);
    else
        status = ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "%s has no source", csv.file);
    ds_csv_deinit(&csv);
    return status;
}

static ds_status read_table(fit_coll *f, const char *folder, ds_buf *text, ds_error *err) {
    ds_buf path = {0};
    const char *source = "";
    ds_buf_printf(&path, "%s/collective_protocols.csv", folder);
    f->started = access(path.text, F_OK) != 0;
    ds_status status = f->started ? source_of(f, folder, &source, err)
                                  : ds_file_read(path.text, DS_NOWHERE, (size_t)1 << 24, text, err);
    if (status == DS_OK && f->started) start_table(f, source, text);
    if (status == DS_OK) status = ds_csv_parse(path.text, text->text, text->n, &f->csv, err);
    f->is_read = status == DS_OK;
    if (status == DS_OK && !f->csv.rows.n)
        status = ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                              "%s: no collective with at least %d measured rows on links of a kind",
                              path.text, ROWS_OF_ONE);
    ds_buf_deinit(&path);
    return status;
}

/* ---- the profile ---- */

static ds_status make_link(const char *from, const char *dir, const char *name, ds_error *err) {
    char here[4096] = "";
    ds_buf at = {0}, target = {0};
    bool done = *from == '/' || getcwd(here, sizeof here);
    ds_buf_printf(&target, "%s%s%s", here, *from == '/' ? "" : "/", from);
    ds_buf_printf(&at, "%s/%s", dir, name);
    done = done && symlink(target.text, at.text) == 0;
    ds_buf_deinit(&target);
    ds_buf_deinit(&at);
    return done ? DS_OK : ds_error_set(err, DS_ERR_IO, DS_NOWHERE, "cannot write in %s", dir);
}

/* What the profile of a folder is made of but its measured collectives, which would count in place
 * of the protocols, and those themselves. */
static const char *const parts[] = {"profile.csv", "sources.csv"};

/* A tree with the folder's profile in it and these protocols, of the catalogue beside the folder.
 */
static ds_status make_tree(const char *folder, const char *dir, const ds_buf *protocols,
                           ds_error *err) {
    ds_buf from = {0}, to = {0};
    ds_buf_printf(&from, "%s/../schema.sql", folder);
    ds_status status = DS_OK;
    if (access(from.text, F_OK) != 0)
        status = ds_error_set(err, DS_ERR_IO, DS_NOWHERE,
                              "beside %s are no schema.sql and catalogue: copy those of "
                              "cost_profiles there, as for `distsim profile build`",
                              folder);
    if (status == DS_OK) status = make_link(from.text, dir, "schema.sql", err);
    from.n = 0;
    ds_buf_printf(&from, "%s/../catalogue", folder);
    if (status == DS_OK) status = make_link(from.text, dir, "catalogue", err);
    ds_buf_printf(&to, "%s/profile", dir);
    mkdir(to.text, 0700);
    for (size_t i = 0; status == DS_OK && i < sizeof parts / sizeof *parts; i++) {
        from.n = 0;
        ds_buf_printf(&from, "%s/%s", folder, parts[i]);
        status = make_link(from.text, to.text, parts[i], err);
    }
    ds_buf_put(&to, "/collective_protocols.csv");
    if (status == DS_OK)
        status = ds_output_write(to.text, DS_OUTPUT_NEW, protocols->text, protocols->n, err);
    ds_buf_deinit(&to);
    ds_buf_deinit(&from);
    return status;
}

static void remove_tree(const char *dir) {
    static const char *const names[] = {
        "profile/profile.csv", "profile/sources.csv", "profile/collective_protocols.csv",
        "schema.sql",          "catalogue",           "profiles.db"};
    ds_buf path = {0};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        path.n = 0;
        ds_buf_printf(&path, "%s/%s", dir, names[i]);
        unlink(path.text);
    }
    path.n = 0;
    ds_buf_printf(&path, "%s/profile", dir);
    rmdir(path.text);
    rmdir(dir);
    ds_buf_deinit(&path);
}

/* A database of the folder alone, for a profile that the default one does not have. */
static ds_status load_folder(fit_coll *f, const char *folder, const ds_buf *protocols,
                             ds_error *err) {
    char dir[] = "/tmp/distsim-fit-XXXXXX";
    ds_buf db = {0};
    if (!mkdtemp(dir))
        return ds_error_set(err, DS_ERR_IO, DS_NOWHERE, "cannot make a folder in /tmp");
    ds_buf_printf(&db, "%s/profiles.db", dir);
    ds_status status = make_tree(folder, dir, protocols, err);
    if (status == DS_OK) status = ds_profiles_build(dir, db.text, err);
    if (status == DS_OK) status = ds_profiles_load(db.text, &f->profiles, err);
    f->profile = 1; /* the only one */
    remove_tree(dir);
    ds_buf_deinit(&db);
    return status;
}

static ds_status load_profile(fit_coll *f, const char *folder, const ds_buf *protocols,
                              ds_error *err) {
    const char *slash = strrchr(folder, '/');
    ds_error unknown;
    if (f->started) return load_folder(f, folder, protocols, err);
    DS_TRY(ds_profiles_load(NULL, &f->profiles, err));
    if (ds_profiles_find_profile(f->profiles, slash ? slash + 1 : folder, DS_NOWHERE, &f->profile,
                                 &unknown) == DS_OK)
        return DS_OK;
    ds_profiles_free(f->profiles);
    f->profiles = NULL;
    return load_folder(f, folder, protocols, err);
}

/* ---- predictions ---- */

ds_status fit__predict(const fit_coll *f, const fit_row *r, double *us, ds_error *err) {
    const ds_coll_request *q = &r->measured->request;
    ds_coll_cost terms;
    DS_TRY(ds_cost_collective(f->profiles, f->profile,
                              &(ds_coll_demand){ds_op_name(q->op), q->n, q->bytes, r->links},
                              &terms, NULL, err));
    double e = (double)terms.efficiency_q32 / 4294967296.0, best = HUGE_VAL;
    for (uint32_t i = 0; i < r->n_ways; i++) {
        const fit_way *w = &r->ways[i];
        double ps = (double)terms.launch_ps + w->steps * (double)terms.step_ps + w->wait_ps +
                    w->flow_ps / e;
        if (ps < best) best = ps;
    }
    *us = best / PS_PER_US;
    return DS_OK;
}

/* Predicts the rows of the protocols in question, held back or not. */
static ds_status predict_some(fit_coll *f, bool held, uint32_t *n, ds_error *err) {
    *n = 0;
    for (uint32_t i = 0; i < f->n; i++) {
        const fit_row *r = &f->rows[i];
        if (r->first != f->first || r->measured->held != held || r->measured->aux) continue;
        f->measured[*n] = r->measured->us;
        DS_TRY(fit__predict(f, r, &f->predicted[(*n)++], err));
    }
    return DS_OK;
}

/* ---- constants ---- */

static ds_status constant_of(const fit_coll *f, uint32_t line, int kind, ds_constant *out,
                             ds_error *err) {
    *out = (ds_constant){.name = kinds[kind].name};
    DS_TRY(fit_cell(&f->csv, line, "collective", &out->op, err));
    DS_TRY(fit_cell(&f->csv, line, "protocol", &out->protocol, err));
    return fit__link_of(f, line, &out->link_bytes_per_s, err);
}

/* Four significant digits, and no finer than a nanosecond or a megabyte per second. */
double fit__rounded(double value, int kind) {
    char text[32];
    snprintf(text, sizeof text, "%.4g", value);
    value = strtod(text, NULL);
    return kind == SHARE ? value : round(value * 1e3) / 1e3;
}

/* A variable's value, into the loaded profile. */
ds_status fit__set_variable(fit_coll *f, uint32_t v, double value, ds_error *err) {
    int kind = f->kind[v];
    for (uint32_t p = 0; p < f->n_protocols; p++) {
        if (f->protocol[v] != UINT32_MAX && f->protocol[v] != p) continue;
        ds_constant which;
        DS_TRY(constant_of(f, f->first + p, kind, &which, err));
        DS_TRY(ds_constant_set(f->profiles, f->profile, &which, value * kinds[kind].unit, err));
    }
    return DS_OK;
}

/* The same, into the table. */
static ds_status write_variable(fit_coll *f, uint32_t v, double value, ds_error *err) {
    uint32_t column;
    char text[48];
    DS_TRY(ds_csv_need(&f->csv, kinds[f->kind[v]].column, &column, err));
    snprintf(text, sizeof text, "%.15g", value);
    for (uint32_t p = 0; p < f->n_protocols; p++)
        if (f->protocol[v] == UINT32_MAX || f->protocol[v] == p)
            f->csv.rows.at[f->first + p].cells[column] = ds_arena_printf(&f->csv.arena, "%s", text);
    return DS_OK;
}

static void add_variable(fit_coll *f, int kind, uint32_t protocol) {
    f->kind[f->n_variables] = kind;
    f->protocol[f->n_variables++] = protocol;
}

/* Are all fitted rows of the set over one group? Then launch and steps cannot be told apart, and a
 * step stays as the file has it. */
static bool has_one_group(const fit_coll *f) {
    uint32_t group = 0;
    for (uint32_t i = 0; i < f->n; i++) {
        const fit_row *r = &f->rows[i];
        if (r->first != f->first || !fit__is_fitted(r)) continue;
        if (group && group != r->measured->request.n) return false;
        group = r->measured->request.n;
    }
    return true;
}

/* Which constants are free, and what the file has for them. */
ds_status fit__variables(fit_coll *f, double *in_file, ds_error *err) {
    f->n_variables = 0;
    for (uint32_t p = 0; p < f->n_protocols; p++)
        for (int kind = 0; kind < N_KINDS; kind++) {
            double value;
            DS_TRY(fit_number(&f->csv, f->first + p, kinds[kind].column, &value, err));
            if (value == 0 || (kind == COPY && p) || (kind == STEP && has_one_group(f))) continue;
            in_file[f->n_variables] = value;
            add_variable(f, kind, kind == COPY ? UINT32_MAX : p);
        }
    return DS_OK;
}

/* ---- search ---- */

#define BEYOND 1e3 /* instead of an error, for a point outside the limits */

/* Rounded below 1 %, where all is well, so that a simplex can settle. */
static double loss(double predicted, double measured) {
    double r = log(predicted / measured);
    return sqrt(r * r + 1e-4);
}

static ds_status mean_loss(void *context, const double *x, double *value, ds_error *err) {
    fit_coll *f = context;
    uint32_t n;
    *value = BEYOND;
    for (uint32_t v = 0; v < f->n_variables; v++) {
        double constant = fit__rounded(exp(x[v]), f->kind[v]); /* what the table would say */
        if ((f->kind[v] == SHARE && constant > 1) || constant > 1e9 || constant <= 0) return DS_OK;
        DS_TRY(fit__set_variable(f, v, constant, err));
    }
    DS_TRY(predict_some(f, false, &n, err));
    *value = 0;
    for (uint32_t i = 0; i < n; i++) *value += loss(f->predicted[i], f->measured[i]) / n;
    return DS_OK;
}

/* The shortest time, and the largest share of the links that a row reached. */
static void look_at_rows(const fit_coll *f, double *shortest_us, double *share) {
    *shortest_us = HUGE_VAL;
    *share = 0;
    for (uint32_t i = 0; i < f->n; i++) {
        const fit_row *r = &f->rows[i];
        if (r->first != f->first || r->measured->held || r->measured->aux) continue;
        if (r->measured->us < *shortest_us) *shortest_us = r->measured->us;
        double least = HUGE_VAL;
        for (uint32_t k = 0; k < r->n_ways; k++)
            if (r->ways[k].flow_ps < least) least = r->ways[k].flow_ps;
        double e = least / (r->measured->us * PS_PER_US);
        if (e > *share) *share = e;
    }
    if (*share > 0.97) *share = 0.97;
}

/* Of p protocols, each later one starts later and uses the links better. */
static double start_of(const fit_coll *f, uint32_t v, double shortest_us, double share) {
    double place =
        f->protocol[v] == UINT32_MAX ? 1 : (double)(f->protocol[v] + 1) / (double)f->n_protocols;
    switch (f->kind[v]) {
    case LAUNCH:
        return shortest_us * (0.4 + 0.8 * place);
    case STEP:
        return shortest_us * 0.1 * place;
    case COPY:
        return 1000;
    default:
        return share * place;
    }
}

#define N_STARTS 16

/* From the file's own constants too, so that fitting again never ends further off. */
ds_status fit__search(fit_coll *f, const double *in_file, double *best, double *value,
                      ds_error *err) {
    double starts[(N_STARTS + 1) * MOST_VARIABLES], shortest_us, share;
    look_at_rows(f, &shortest_us, &share);
    for (uint32_t s = 0; s < N_STARTS; s++)
        for (uint32_t v = 0; v < f->n_variables; v++) {
            static const double factors[2][4] = {{1, 0.4, 2.5, 0.1}, {1, 0.6, 0.3, 0.8}};
            uint32_t which = s == 0 ? 0 : (s * (2 * v + 3) / 3 + v) % 4;
            double factor = factors[f->kind[v] == SHARE][which];
            starts[s * f->n_variables + v] = log(start_of(f, v, shortest_us, share) * factor);
        }
    for (uint32_t v = 0; in_file && v < f->n_variables; v++)
        starts[N_STARTS * f->n_variables + v] = log(in_file[v]);
    ds_fit_search how = {.n = f->n_variables,
                         .starts = starts,
                         .n_starts = N_STARTS + (in_file != NULL),
                         .step = 0.4,
                         .tolerance = 1e-4,
                         .max_iterations = 3000};
    return ds_fit_minimize(&how, mean_loss, f, best, value, err);
}

/* ---- the report ---- */

static ds_status print_errors(fit_coll *f, const char *label, bool held, ds_fit_errors *errors,
                              uint32_t *n, ds_error *err) {
    DS_TRY(predict_some(f, held, n, err));
    if (!*n) return DS_OK;
    *errors = ds_fit_errors_of(f->predicted, f->measured, *n);
    printf("  %-6s %5u rows: mean %5.1f %%, median %5.1f %%, p90 %5.1f %%\n", label, *n,
           100 * errors->mean, 100 * errors->median, 100 * errors->p90);
    return DS_OK;
}

static ds_status set_statistics(fit_coll *f, uint32_t n, const ds_fit_errors *e, ds_error *err) {
    const char *const columns[] = {"n", "median_error", "p90_error"};
    const double values[] = {n, e->median, e->p90};
    for (int c = 0; c < 3; c++) {
        uint32_t at;
        DS_TRY(ds_csv_need(&f->csv, columns[c], &at, err));
        for (uint32_t p = 0; p < f->n_protocols; p++)
            f->csv.rows.at[f->first + p].cells[at] =
                ds_arena_printf(&f->csv.arena, "%.4g", values[c]);
    }
    return DS_OK;
}

static ds_status fit_together(fit_coll *f, ds_error *err) {
    double x[MOST_VARIABLES], in_file[MOST_VARIABLES], found, kept;
    const char *collective, *link;
    uint32_t n;
    DS_TRY(fit_cell(&f->csv, f->first, "collective", &collective, err));
    DS_TRY(fit_cell(&f->csv, f->first, "link_gb_per_s", &link, err));
    DS_TRY(fit__variables(f, in_file, err));
    printf("%s on links of %s GB/s\n", collective, link);
    DS_TRY(predict_some(f, false, &n, err));
    if (n < f->n_variables + 1)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                            "%s on links of %s GB/s: %u rows for %u constants", collective, link, n,
                            f->n_variables);
    for (uint32_t v = 0; v < f->n_variables; v++) x[v] = log(in_file[v]);
    DS_TRY(mean_loss(f, x, &kept, err));
    DS_TRY(fit__search(f, in_file, x, &found, err));
    f->worse = f->worse || kept > found * 1.01 + 1e-6;
    printf("  loss of the file's constants %.6f, of those found %.6f\n", kept, found);
    for (uint32_t v = 0; v < f->n_variables; v++) {
        const char *protocol = "all";
        uint32_t p = f->protocol[v] == UINT32_MAX ? 0 : f->protocol[v];
        if (f->protocol[v] != UINT32_MAX)
            DS_TRY(fit_cell(&f->csv, f->first + p, "protocol", &protocol, err));
        double value = fit__rounded(exp(x[v]), f->kind[v]);
        printf("  %-8s %-14s %10.6g, in the file %10.6g\n", protocol, kinds[f->kind[v]].column,
               value, in_file[v]);
        DS_TRY(fit__set_variable(f, v, value, err));
        DS_TRY(write_variable(f, v, value, err));
    }
    ds_fit_errors seen, unseen;
    DS_TRY(print_errors(f, "fit", false, &seen, &n, err));
    DS_TRY(set_statistics(f, n, &seen, err));
    bool differs = false;
    DS_TRY(fit__set_seen(f, &differs, err));
    if (differs) printf("  the file says other groups, nodes, sizes or links than the rows have\n");
    f->worse = f->worse || differs;
    return print_errors(f, "held", true, &unseen, &n, err);
}

ds_status fit__each_set(fit_coll *f, ds_status (*visit)(fit_coll *f, ds_error *err),
                        ds_error *err) {
    for (f->first = 0; f->first < f->csv.rows.n; f->first += f->n_protocols) {
        double n;
        bool together = true;
        for (f->n_protocols = 1; f->first + f->n_protocols < f->csv.rows.n; f->n_protocols++) {
            DS_TRY(are_together(f, f->first, f->first + f->n_protocols, &together, err));
            if (!together) break;
        }
        if (f->n_protocols > MOST_PROTOCOLS)
            return ds_csv_error(&f->csv, &f->csv.rows.at[f->first], err,
                                "%u protocols: at most %u are fitted", f->n_protocols,
                                MOST_PROTOCOLS);
        DS_TRY(fit_number(&f->csv, f->first, "n", &n, err));
        if (n > 0) DS_TRY(visit(f, err));
    }
    return DS_OK;
}

static ds_status read_all(fit_coll *f, const char *folder, const char *table, ds_error *err) {
    ds_buf text = {0};
    DS_TRY(read_rows(f, folder, table, err));
    ds_status status = read_table(f, folder, &text, err);
    if (status == DS_OK) status = load_profile(f, folder, &text, err);
    ds_buf_deinit(&text);
    DS_TRY(status);
    fit__add_seen(&f->csv);
    for (uint32_t i = 0; i < f->n; i++) DS_TRY(find_protocols(f, &f->rows[i], err));
    return DS_OK;
}

static ds_status write_or_check(fit_coll *f, fit_mode mode, ds_error *err) {
    if (mode == FIT_WRITE) return fit_write(&f->csv, f->started, err);
    if (mode == FIT_PRINT || !f->worse) return DS_OK;
    return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                        "%s: there are constants that fit better, or other rows; write them with "
                        "--write",
                        f->csv.file);
}

static ds_status open_topology(const char *path, ds_unit **unit, ds_topo **topo, ds_error *err) {
    ds_diags diags;
    ds_binding binding;
    DS_TRY(ds_load_file(path, NULL, unit, err));
    ds_diags_init(&diags);
    ds_status status = ds_verify(*unit, &diags);
    ds_diags_deinit(&diags);
    if (status != DS_OK)
        return ds_error_set(err, status, DS_NOWHERE, "%s does not pass distsim check", path);
    DS_TRY(ds_bind(*unit, NULL, 0, &binding, err));
    const ds_module *module = (*unit)->modules.at[0];
    if (!module->topologies.n)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE, "%s has no topology", path);
    return ds_topo_build(&binding, module->topologies.at[module->topologies.n - 1], topo, err);
}

typedef ds_status (*visitor)(fit_coll *f, ds_error *err);

static ds_status visit_all(const char *topology, const char *folder, const char *table,
                           visitor visit, fit_mode mode, ds_error *err) {
    fit_coll f = {0};
    ds_unit *unit = NULL;
    ds_arena_init(&f.arena);
    ds_status status = open_topology(topology, &unit, &f.topo, err);
    if (status == DS_OK) status = read_all(&f, folder, table, err);
    if (status == DS_OK) status = fit__each_set(&f, visit, err);
    if (status == DS_OK) status = write_or_check(&f, mode, err);
    free(f.measured);
    free(f.predicted);
    free(f.rows);
    ds_profiles_free(f.profiles);
    ds_topo_free(f.topo);
    if (unit) ds_unit_free(unit);
    if (f.is_read) ds_csv_deinit(&f.csv);
    ds_arena_deinit(&f.arena);
    return status;
}

ds_status fit_collectives(const char *topology, const char *folder, const char *table,
                          fit_mode mode, ds_error *err) {
    return visit_all(topology, folder, table, fit_together, mode, err);
}

ds_status fit_left_out(const char *topology, const char *folder, const char *table, ds_error *err) {
    return visit_all(topology, folder, table, fit__leave_out, FIT_PRINT, err);
}
