/* Every candidate of a space. */
#include "search/methods/method.h"

#include <stdlib.h>

typedef struct grid {
    ds_method method;
    ds_space *space;
    uint64_t n;
} grid;

static ds_status next(ds_method *method, ds_candidate *candidate, bool *found, ds_error *err) {
    grid *g = (grid *)method;
    DS_TRY(ds_space_next(g->space, candidate, found, err));
    if (*found) candidate->number = g->n++;
    return DS_OK;
}

static double progress(const ds_method *method) {
    return ds_space_progress(((const grid *)method)->space);
}

static void free_grid(ds_method *method) {
    free(method);
}

ds_method *ds_grid_new(ds_space *space) {
    grid *g = ds_xcalloc(1, sizeof *g);
    g->method = (ds_method){.next = next, .progress = progress, .free = free_grid};
    g->space = space;
    return &g->method;
}
