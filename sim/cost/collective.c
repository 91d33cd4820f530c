/* What a profile knows about collectives: launch, step latency, efficiency by group and size. */
#include "ir/base/units.h"
#include "sim/cost/profiles_internal.h"

#include <inttypes.h>
#include <string.h>

/* Steps and wire bytes of a ring over n members, relative to the size S (nccl-tests
 * PERFORMANCE.md): wire = S · num(n)/n per member and direction; and, for a collective without rows
 * of its own, whose rows stand for it: `basis` at a size of S · ratio puts the same bytes on the
 * wire. */
typedef struct shape {
    const char *name;
    uint32_t steps_per_peer; /* steps = this · (n − 1), 0: one step */
    const char *basis;
    double ratio;
} shape;

static const shape shapes[] = {
    {"all_reduce", 2, NULL, 1},
    {"all_gather", 1, "all_reduce", 0.5},
    {"reduce_scatter", 1, "all_reduce", 0.5},
    {"all_to_all", 1, "all_reduce", 0.5},
    {"broadcast", 1, "all_reduce", 0.5},
    {"reduce", 1, "all_reduce", 0.5},
    {"scatter", 1, "all_reduce", 0.5},
    {"gather", 1, "all_reduce", 0.5},
    {"send", 0, NULL, 1},
    {"recv", 0, "send", 1},
    {"permute", 0, "send", 1},
};

static const shape *shape_of(const char *name) {
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (strcmp(shapes[i].name, name) == 0) return &shapes[i];
    return NULL;
}

/* The fits next to `group`: of the largest group size that is at most `group`, else of the
 * smallest; and, where `group` itself was not profiled, of the next larger one. */
static const ds_coll_fit *fit_of(const ds_profiles *p, uint32_t profile, const char *collective,
                                 uint32_t group, const ds_coll_fit **above) {
    const ds_coll_fit *found = NULL;
    *above = NULL;
    for (uint32_t i = 0; i < p->coll_fits.n; i++) {
        const ds_coll_fit *f = &p->coll_fits.at[i];
        if (f->profile != profile || strcmp(f->collective, collective) != 0) continue;
        if (found && f->group > group) {
            if (found->group < group) *above = f;
            break;
        }
        found = f;
    }
    return found;
}

typedef struct run {
    const ds_coll_row *at;
    uint32_t n;
} run;

/* The rows of the fit's collective and group: a contiguous run, sorted by size. */
static run rows_of(const ds_profiles *p, const ds_coll_fit *fit) {
    run r = {0};
    for (uint32_t i = 0; i < p->coll_rows.n; i++) {
        const ds_coll_row *row = &p->coll_rows.at[i];
        if (row->profile != fit->profile || row->group != fit->group ||
            strcmp(row->collective, fit->collective) != 0)
            continue;
        if (!r.n) r.at = row;
        r.n++;
    }
    return r;
}

/* Measured time at a size within the rows, piecewise linear. */
static double time_at(run rows, double bytes, ds_buf *explain) {
    uint32_t i = 0;
    while (i + 1 < rows.n && (double)rows.at[i + 1].bytes <= bytes) i++;
    const ds_coll_row *a = &rows.at[i], *b = i + 1 < rows.n ? &rows.at[i + 1] : a;
    if (explain)
        ds_buf_printf(explain, "  measured at %" PRId64 " to %" PRId64 " bytes [%s]\n", a->bytes,
                      b->bytes, a->source);
    if (a == b) return (double)a->ps;
    double t = (bytes - (double)a->bytes) / ((double)b->bytes - (double)a->bytes);
    return (double)a->ps + ((double)b->ps - (double)a->ps) * t;
}

/* The efficiency at which a ring on the reference links takes the measured time. */
static double efficiency_of_rows(const ds_coll_fit *f, run rows, double bytes, ds_buf *explain) {
    const shape *s = shape_of(f->collective);
    double n = (double)f->group;
    double steps = s && s->steps_per_peer ? s->steps_per_peer * (n - 1) : 1;
    double factor = s && s->steps_per_peer ? steps / n : 1;
    double least = (double)rows.at[0].bytes, most = (double)rows.at[rows.n - 1].bytes;
    double size = bytes < least ? least : bytes > most ? most : bytes;
    double overhead = (double)f->launch_ps + steps * ((double)f->alpha_ps + (double)f->step_ps);
    double flow_ps = time_at(rows, size, explain) - overhead;
    if (flow_ps <= 0) return 1;
    return factor * size / ((double)f->capacity_bytes_per_s * (flow_ps / (double)DS_PS_PER_S));
}

/* Efficiency by the fit's rows, or by its curve where it has none; at most 1. */
static double efficiency(const ds_profiles *p, const ds_coll_fit *f, double bytes,
                         ds_buf *explain) {
    run rows = rows_of(p, f);
    double e = f->e_max;
    if (rows.n)
        e = efficiency_of_rows(f, rows, bytes, explain);
    else if (f->s_half > 0)
        e = f->e_max * bytes / (bytes + f->s_half);
    if (explain)
        ds_buf_printf(explain, "  efficiency %.4g over %u; %s [%s]\n", e < 1 ? e : 1, f->group,
                      f->basis, f->source);
    return e < 1 ? e : 1;
}

/* Linear in the group size between the fits below and above. */
static double efficiency_between(const ds_profiles *p, const ds_coll_fit *f,
                                 const ds_coll_fit *above, uint32_t group, double bytes,
                                 ds_buf *explain) {
    double e = efficiency(p, f, bytes, explain);
    if (!above) return e;
    double more = efficiency(p, above, bytes, explain);
    return e + (more - e) * (double)(group - f->group) / (double)(above->group - f->group);
}

static void explain_terms(const ds_coll_cost *cost, ds_buf *out) {
    ds_buf_put(out, "  launch ");
    ds_print_ps(cost->launch_ps, out);
    ds_buf_put(out, ", per step ");
    ds_print_ps(cost->step_ps, out);
    ds_buf_printf(out, ", efficiency %.4g%s\n", (double)cost->efficiency_q32 / 4294967296.0,
                  cost->holds_compute ? ", on the compute stream" : "");
}

ds_status ds_cost_collective(const ds_profiles *profiles, uint32_t profile, const char *collective,
                             uint32_t group, int64_t bytes, ds_coll_cost *out, ds_buf *explain,
                             ds_error *err) {
    *out = (ds_coll_cost){.efficiency_q32 = UINT64_C(1) << 32};
    if (bytes < 0)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE, "%s of %" PRId64 " bytes", collective,
                            bytes);
    if (explain)
        ds_buf_printf(explain, "%s of %" PRId64 " bytes over %u, profile %s\n", collective, bytes,
                      group, profiles->profiles.at[profile].name);
    const shape *s = shape_of(collective);
    const ds_coll_fit *above = NULL, *f = NULL;
    double size = (double)bytes;
    if (profile) f = fit_of(profiles, profile, collective, group, &above);
    if (profile && !f && s && s->basis) {
        f = fit_of(profiles, profile, s->basis, group, &above);
        size *= s->ratio;
        if (f && explain)
            ds_buf_printf(explain, "  no rows; as %s of %.0f bytes\n", f->collective, size);
    }
    if (f) {
        double e = efficiency_between(profiles, f, above, group, size, explain);
        uint64_t q32 = (uint64_t)(e * 4294967296.0);
        *out = (ds_coll_cost){.launch_ps = f->launch_ps,
                              .step_ps = f->step_ps,
                              .efficiency_q32 = q32 ? q32 : 1,
                              .from_profile = true,
                              .holds_compute = f->holds_compute};
    }
    if (explain) explain_terms(out, explain);
    return DS_OK;
}
