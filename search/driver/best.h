/* The best candidates so far: the first few by the first objective, and, with several objectives,
 * the Pareto front: candidates that no other beats in one objective without losing in another. */
#ifndef DS_SEARCH_DRIVER_BEST_H
#define DS_SEARCH_DRIVER_BEST_H

#include "search/driver/rows.h"

#define DS_BEST_KEPT 10u

typedef struct ds_best_row {
    uint64_t number, hash;
    ds_metrics metrics;
    char *values; /* "dp=2 tp=1 schedule=1f1b"; owned */
    char *pairs;  /* the same as n_pairs names and values, each NUL-terminated; owned */
    uint32_t n_pairs;
} ds_best_row;

typedef struct ds_best {
    ds_objective *objectives; /* owned */
    uint32_t n_objectives;
    DS_VEC(ds_best_row) top;   /* best first; of equals the first candidate */
    DS_VEC(ds_best_row) front; /* empty with one objective; in order of candidates */
} ds_best;

void ds_best_init(ds_best *best, const ds_space *space);
void ds_best_deinit(ds_best *best);
/* A candidate that fits and holds all conditions. O(kept + front). */
void ds_best_add(ds_best *best, const ds_space *space, const ds_candidate *candidate,
                 const ds_outcome *outcome);

/* The results with a .title in ir/strategy/metrics.def, as a line of a table, in the order of a
 * row's columns; row NULL: the headings. Prices and tokens if `shown` has any (NULL: neither). */
void ds_best_put_line(const ds_best_row *row, const ds_best_row *shown, ds_buf *out);
/* The best candidates as the member "best" of an object, and with several objectives the front as
 * "front": hash, candidate, the values of the dimensions as texts, every result of
 * ir/strategy/metrics.def that sweeps have. */
void ds_best_put_json(const ds_best *best, ds_json *json);
/* Tables for a terminal; `hashes`: with hashes, for sweeps whose rows a hash leads to. */
void ds_best_print(const ds_best *best, bool hashes, ds_buf *out);

#endif
