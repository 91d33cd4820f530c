/* Fits of protocols to measured collectives, shared by collectives.c and left_out.c. */
#ifndef DS_FIT_COLLECTIVES_INTERNAL_H
#define DS_FIT_COLLECTIVES_INTERNAL_H

#include "sim/coll/measured.h"
#include "tools/fit/fit.h"

#define PS_PER_US 1e6

/* One algorithm of one row: what of its time no constant changes. */
typedef struct fit_way {
    double steps, wait_ps, flow_ps;
} fit_way;

typedef struct fit_row {
    ds_measured *measured;
    ds_coll_links links;
    fit_way ways[DS_COLL_MOST_ALGORITHMS];
    uint32_t n_ways;
    uint32_t first; /* row of the file where its protocols begin; UINT32_MAX: none */
} fit_row;

/* What of a protocol is fitted; the copy is the same for all protocols of a collective. */
enum { LAUNCH, STEP, COPY, SHARE, N_KINDS };

#define MOST_PROTOCOLS 4
#define MOST_VARIABLES (MOST_PROTOCOLS * N_KINDS)

typedef struct fit_coll {
    ds_csv csv; /* collective_protocols.csv */
    bool is_read;
    ds_topo *topo;
    ds_profiles *profiles;
    uint32_t profile;
    ds_arena arena;
    fit_row *rows;
    uint32_t n;
    double *predicted, *measured; /* scratch, n each */
    uint32_t first, n_protocols;  /* what is being fitted: rows of the file */
    int kind[MOST_VARIABLES];
    uint32_t protocol[MOST_VARIABLES]; /* UINT32_MAX: of all (the copy) */
    uint32_t n_variables;
    bool worse;   /* the file's constants fit worse than those found, or it says other rows */
    bool started; /* there was no file */
} fit_coll;

/* Is the row fitted: neither held back nor aux? */
static inline bool fit__is_fitted(const fit_row *r) {
    return !r->measured->held && !r->measured->aux;
}
/* The capacity that a row of the file is for. */
ds_status fit__link_of(const fit_coll *f, uint32_t line, int64_t *bytes_per_s, ds_error *err);
/* The time of a row by the constants in memory. */
ds_status fit__predict(const fit_coll *f, const fit_row *r, double *us, ds_error *err);
/* Which constants of the protocols in question are free, and what the file has for them. */
ds_status fit__variables(fit_coll *f, double *in_file, ds_error *err);
/* A constant of that kind with as many digits as the table gets. */
double fit__rounded(double value, int kind);
/* Into memory. */
ds_status fit__set_variable(fit_coll *f, uint32_t v, double value, ds_error *err);
/* Finds the constants (as logarithms) for the fitted rows, from starts that those rows give, and
 * from `in_file` where it is not NULL. */
ds_status fit__search(fit_coll *f, const double *in_file, double *best, double *value,
                      ds_error *err);
/* Calls `visit` with f->first and f->n_protocols set to each set of protocols that has rows. */
ds_status fit__each_set(fit_coll *f, ds_status (*visit)(fit_coll *f, ds_error *err), ds_error *err);

/* device_rows.c: of a table of many devices (tests/data/ops/collectives.csv) the rows of the
 * folder's device that lie in one island of the topology, as tables of one machine have them; other
 * tables as they are. */
ds_status fit__of_device(const fit_coll *f, const char *folder, ds_csv *csv, ds_error *err);

/* left_out.c: what the fitted rows of the protocols in question had, into the table; true in
 * *differs where the table says something else. */
ds_status fit__set_seen(fit_coll *f, bool *differs, ds_error *err);
/* The columns for that. */
void fit__add_seen(ds_csv *csv);
ds_status fit__leave_out(fit_coll *f, ds_error *err);

#endif
