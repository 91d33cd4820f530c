/* Memory first: a lower bound rejects candidates before the simulation.
 *
 * Bounds keep their answers and change the frame of their space, so each worker has bounds, a space
 * and a unit of its own. A rejection costs a few microseconds for the bound, and the binding for
 * the row's hash; each worker makes each kind of layer once. */
#include "search/driver/reject.h"

#include "search/bound/bounds.h"
#include "search/space/frame.h"

#include <inttypes.h>
#include <stdlib.h>

typedef struct rejecting {
    ds_eval eval;
    ds_eval *simulation; /* for candidates that are not rejected */
    ds_unit *unit;
    ds_binding binding;
    ds_space *space;
    ds_eval_source source; /* of the bounds, with `space` */
    ds_bounds *bounds;
    uint32_t n_dims;
} rejecting;

/* False: the candidate may fit. */
static bool lacks_memory(rejecting *r, const ds_candidate *candidate, int64_t *needs,
                         int64_t *has) {
    ds_bound_region region;
    if (ds_bounds_memory(r->bounds, candidate->at, r->n_dims, &region, NULL) != DS_OK) return false;
    *needs = ds_bound_peak_bytes(&region);
    *has = region.capacity_bytes;
    return *has && *needs > *has;
}

static void run_unless_rejected(ds_eval *eval, const ds_candidate *candidate, ds_outcome *out) {
    rejecting *r = (rejecting *)eval;
    int64_t needs, has;
    if (!lacks_memory(r, candidate, &needs, &has)) {
        r->simulation->run(r->simulation, candidate, out);
        return;
    }
    ds_eval_describe(r->simulation, candidate, out);
    if (out->verdict != DS_VERDICT_OK) return; /* the candidate cannot even be bound */
    out->verdict = DS_VERDICT_DOES_NOT_FIT;
    out->unsimulated = true;
    ds_buf_printf(&out->reason, "needs at least %" PRId64 " bytes, device has %" PRId64, needs,
                  has);
}

static void free_rejecting(ds_eval *eval) {
    rejecting *r = (rejecting *)eval;
    if (r->simulation) r->simulation->free(r->simulation);
    ds_bounds_free(r->bounds);
    ds_space_free(r->space);
    ds_unit_free(r->unit);
    free(r);
}

static ds_status make(rejecting *r, const ds_eval_source *source, ds_error *err) {
    const ds_space *space = source->space;
    const char *why;
    DS_TRY(ds_eval_new_simulation(source, &r->simulation, err));
    DS_TRY(ds_eval_load(source, &r->unit, err));
    DS_TRY(ds_bind(r->unit, space->settings, space->n_settings, &r->binding, err));
    DS_TRY(ds_space_new(&r->binding, space->settings, space->n_settings, &r->space, err));
    r->source = *source;
    r->source.space = r->space;
    r->n_dims = ds_space_n_dims(r->space);
    return ds_bounds_new(&r->source, r->space, &r->bounds, &why, err);
}

ds_status ds_eval_new_memory_first(const ds_eval_source *source, ds_eval **out, ds_error *err) {
    rejecting *r = ds_xcalloc(1, sizeof *r);
    r->eval = (ds_eval){run_unless_rejected, free_rejecting};
    *out = &r->eval;
    ds_status status = make(r, source, err);
    if (status == DS_OK) return DS_OK;
    free_rejecting(&r->eval);
    *out = NULL;
    return status;
}
