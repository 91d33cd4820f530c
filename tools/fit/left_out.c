/* What the rows of a fit of collectives had, and how far off rows are that a fit did not see.
 *
 * Protocols are said to hold for any group, any size and links of one kind. Rows of a kind that is
 * left out say how far that is from true: constants are found from the other rows, from starts that
 * those rows give, and predict what was left out. Protocols of one kind of link are fitted apart
 * from those of another one, so that a kind of link is left out by taking the constants of the
 * other. */
#include "tools/fit/collectives_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what was seen ---- */

enum { GROUP, NODES, SIZE, LINK, N_SEEN };
static const char *const seen_columns[] = {
    "group_least", "group_most", "nodes_least",         "nodes_most",
    "size_least",  "size_most",  "link_least_gb_per_s", "link_most_gb_per_s"};

static double seen_of(const fit_row *r, int kind) {
    switch (kind) {
    case GROUP:
        return r->measured->request.n;
    case NODES:
        return r->links.n_nodes;
    case SIZE:
        return (double)r->measured->request.bytes;
    default:
        return (double)r->links.slowest_bytes_per_s / 1e9;
    }
}

static bool is_in_set(const fit_coll *f, const fit_row *r) {
    return r->first == f->first && fit__is_fitted(r);
}

static void range_of(const fit_coll *f, int kind, double *least, double *most) {
    *least = HUGE_VAL;
    *most = 0;
    for (uint32_t i = 0; i < f->n; i++) {
        if (!is_in_set(f, &f->rows[i])) continue;
        double value = seen_of(&f->rows[i], kind);
        if (value < *least) *least = value;
        if (value > *most) *most = value;
    }
}

void fit__add_seen(ds_csv *csv) {
    fit_add_columns(csv, seen_columns, 2 * N_SEEN);
}

static ds_status set_cells(fit_coll *f, const char *column, double value, bool *differs,
                           ds_error *err) {
    for (uint32_t p = 0; p < f->n_protocols; p++) {
        const char *text;
        DS_TRY(fit_cell(&f->csv, f->first + p, column, &text, err));
        if (!*text || strtod(text, NULL) != value) *differs = true;
        DS_TRY(fit_set(&f->csv, f->first + p, column, "%.15g", value, err));
    }
    return DS_OK;
}

ds_status fit__set_seen(fit_coll *f, bool *differs, ds_error *err) {
    for (int kind = 0; kind < N_SEEN; kind++) {
        double least, most;
        range_of(f, kind, &least, &most);
        DS_TRY(set_cells(f, seen_columns[2 * kind], least, differs, err));
        DS_TRY(set_cells(f, seen_columns[2 * kind + 1], most, differs, err));
    }
    return DS_OK;
}

/* ---- what is left out ---- */

static ds_status put_row(const fit_coll *f, const fit_row *r, const char *kind, const char *what,
                         ds_error *err) {
    double us;
    DS_TRY(fit__predict(f, r, &us, err));
    printf("%s,%s,%g,%s,%.4f\n", kind, ds_op_name(r->measured->request.op),
           (double)r->links.slowest_bytes_per_s / 1e9, what, r->measured->us / us);
    return DS_OK;
}

/* Rows of the set whose value is within the limits. */
typedef struct omission {
    int kind;
    double least, most;
    const char *name, *what;
} omission;

static bool is_left_out(const fit_coll *f, const fit_row *r, const omission *o) {
    double value = seen_of(r, o->kind);
    return is_in_set(f, r) && value >= o->least && value <= o->most;
}

/* Finds the constants without the rows that are marked. */
static ds_status fit_without(fit_coll *f, const bool *left, ds_error *err) {
    double x[MOST_VARIABLES], value;
    for (uint32_t i = 0; i < f->n; i++)
        if (left[i]) f->rows[i].measured->aux = true;
    ds_status status = fit__search(f, NULL, x, &value, err);
    for (uint32_t i = 0; i < f->n; i++)
        if (left[i]) f->rows[i].measured->aux = false;
    for (uint32_t v = 0; v < f->n_variables && status == DS_OK; v++)
        status = fit__set_variable(f, v, fit__rounded(exp(x[v]), f->kind[v]), err);
    return status;
}

static ds_status leave_out(fit_coll *f, const omission *o, const double *in_file, ds_error *err) {
    bool *left = ds_xcalloc(f->n, sizeof *left);
    uint32_t n_left = 0, n_kept = 0;
    for (uint32_t i = 0; i < f->n; i++) {
        left[i] = is_left_out(f, &f->rows[i], o);
        n_left += left[i];
        n_kept += !left[i] && is_in_set(f, &f->rows[i]);
    }
    ds_status status = DS_OK;
    bool enough = n_left && n_kept > f->n_variables;
    if (enough) status = fit_without(f, left, err);
    for (uint32_t i = 0; i < f->n && enough && status == DS_OK; i++)
        if (left[i]) status = put_row(f, &f->rows[i], o->name, o->what, err);
    for (uint32_t v = 0; v < f->n_variables && status == DS_OK; v++)
        status = fit__set_variable(f, v, in_file[v], err);
    free(left);
    return status;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The sizes below and above which a quarter of the rows are. */
static void quarters_of(const fit_coll *f, double *low, double *high) {
    double *sizes = ds_xcalloc(f->n, sizeof *sizes);
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->n; i++)
        if (is_in_set(f, &f->rows[i])) sizes[n++] = seen_of(&f->rows[i], SIZE);
    qsort(sizes, n, sizeof *sizes, by_size);
    *low = n ? sizes[n / 4] - 1 : 0;
    *high = n ? sizes[n - 1 - n / 4] + 1 : 0;
    free(sizes);
}

/* Rows of other kinds of links, by the set's constants as the file has them. Those over other
 * numbers of nodes than the set's say what nodes do, too: more nodes are mostly another link. */
static ds_status predict_others(const fit_coll *f, ds_error *err) {
    const char *collective;
    int64_t link;
    char what[48];
    double fewest, most;
    range_of(f, NODES, &fewest, &most);
    DS_TRY(fit_cell(&f->csv, f->first, "collective", &collective, err));
    DS_TRY(fit__link_of(f, f->first, &link, err));
    snprintf(what, sizeof what, "by %g", (double)link / 1e9);
    for (uint32_t i = 0; i < f->n; i++) {
        fit_row r = f->rows[i];
        if (r.first == f->first || r.first == UINT32_MAX || !fit__is_fitted(&r) ||
            strcmp(ds_op_name(r.measured->request.op), collective) != 0)
            continue;
        r.links.slowest_bytes_per_s = link; /* whose protocols are taken */
        DS_TRY(put_row(f, &r, "link", what, err));
        if (r.links.n_nodes < fewest || r.links.n_nodes > most)
            DS_TRY(put_row(f, &r, "nodes", what, err));
    }
    return DS_OK;
}

ds_status fit__leave_out(fit_coll *f, ds_error *err) {
    double in_file[MOST_VARIABLES], least[2], most[2], low, high;
    DS_TRY(fit__variables(f, in_file, err));
    range_of(f, NODES, &least[0], &most[0]);
    range_of(f, GROUP, &least[1], &most[1]);
    quarters_of(f, &low, &high);
    const omission all[] = {{NODES, most[0], most[0], "nodes", "the most"},
                            {NODES, least[0], least[0], "nodes", "the fewest"},
                            {GROUP, most[1], most[1], "group", "the largest"},
                            {GROUP, least[1], least[1], "group", "the smallest"},
                            {SIZE, high, HUGE_VAL, "size", "the largest"},
                            {SIZE, 0, low, "size", "the smallest"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        DS_TRY(leave_out(f, &all[i], in_file, err));
    return predict_others(f, err);
}
