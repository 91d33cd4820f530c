/* Generic profiles of devices that nobody has published operations of.
 *
 * Such a kind takes the fits of the relative that the catalogue names (catalogue/relatives.csv). A
 * curve keeps its share of the peak or of the bandwidth and its times a kernel: the reference rate,
 * and with it the work that a time a kernel is worth, grow with the quotient of the kinds' peaks of
 * the dtype, or of their bandwidths. A curve of a dtype for which one of the kinds has no peak is
 * not lent. Constants of collectives are lent unchanged, since each names its kind of link.
 *
 * A kind with a generic profile of its own takes products and attention alone: of a dtype, or of a
 * dtype and direction, without a fit in the profile. The kind keeps its number of processors.
 *
 * No row of the kind itself backs this, so the spread of every fit is as much wider as such
 * transfers were wrong. A generic profile's own fit without residuals, whose constants another device
 * or kernel gave, has the same spread. */
#include "sim/cost/profiles_internal.h"

#include <ctype.h>

/* Measured of memory-bound ops (cost_profiles/FITTING.md): predicted by the curves of another
 * device, nine in ten of 879 rows lie from 0.72 to 1.36 times the prediction. Of products and
 * attention the same page has a table of devices left out. Assumed of the rest. */
#define TRANSFER 1.35

typedef struct loan {
    ds_profiles *p;
    uint32_t from, to; /* profiles */
    const ds_device_kind *lender, *kind;
    uint32_t n_gemms, n_attentions; /* the first so many may be lent */
    /* Of `to`, before the loan. */
    bool products[DS_DTYPE_COUNT], attention[DS_DTYPE_COUNT][2]; /* [backward] */
    int64_t processors;                                          /* 0: not known */
} loan;

static ds_cost_spread widened(ds_cost_spread s) {
    if (!(s.low > 0)) return (ds_cost_spread){1 / TRANSFER, TRANSFER};
    return (ds_cost_spread){s.low / TRANSFER, s.high * TRANSFER};
}

/* 0: one of the kinds does not say. */
static double peak_ratio(const loan *l, int32_t dtype) {
    ds_dtype of = dtype == DS_ANY_DTYPE ? DS_BF16 : (ds_dtype)dtype;
    double theirs = l->lender->peak_flop_per_s[of];
    return theirs > 0 ? l->kind->peak_flop_per_s[of] / theirs : 0;
}

static double memory_ratio(const loan *l) {
    double theirs = (double)l->lender->memory_bytes_per_s;
    return theirs > 0 ? (double)l->kind->memory_bytes_per_s / theirs : 0;
}

static const char *basis_of(const loan *l, const char *basis) {
    return ds_arena_printf(&l->p->arena, "lent by %s: %s", l->lender->name, basis);
}

static void lend_curves(const loan *l) {
    ds_profiles *p = l->p;
    p->profiles.at[l->to].first_fit = p->fits.n;
    for (uint32_t i = 0, n = p->fits.n; i < n; i++) {
        ds_fit f = p->fits.at[i];
        double ratio = f.flop ? peak_ratio(l, f.dtype) : memory_ratio(l);
        if (f.profile != l->from || !(ratio > 0)) continue;
        f.profile = l->to;
        f.reference_per_s *= ratio;
        f.w_half *= ratio;
        f.spread = widened(f.spread);
        f.basis = basis_of(l, f.basis);
        DS_PUSH(&p->arena, &p->fits, f);
    }
    p->profiles.at[l->to].end_fit = p->fits.n;
}

static void take_stock(loan *l) {
    for (uint32_t i = 0; i < l->n_gemms; i++) {
        const ds_gemm_fit *f = &l->p->gemms.at[i];
        if (f->profile != l->to) continue;
        l->products[f->dtype] = true;
        l->processors = f->model.processors;
    }
    for (uint32_t i = 0; i < l->n_attentions; i++) {
        const ds_attention_fit *f = &l->p->attentions.at[i];
        if (f->profile != l->to) continue;
        l->attention[f->dtype][f->backward] = true;
        l->processors = f->model.processors;
    }
}

/* Places in a copy of a fit. */
typedef struct places {
    uint32_t *profile;
    int64_t *processors;
    double *flop_per_s, *bytes_per_s;
    ds_cost_spread *spread;
    const char **basis;
} places;

/* False: the fit is not the lender's, or a rate is not known. */
static bool lend_model(const loan *l, ds_dtype dtype, const places *of) {
    double peaks = peak_ratio(l, (int32_t)dtype), bandwidths = memory_ratio(l);
    if (*of->profile != l->from || !(peaks > 0) || !(bandwidths > 0)) return false;
    *of->profile = l->to;
    if (l->processors) *of->processors = l->processors;
    *of->flop_per_s *= peaks;
    *of->bytes_per_s *= bandwidths;
    *of->spread = widened(*of->spread);
    *of->basis = basis_of(l, *of->basis);
    return true;
}

#define PLACES(f)                                                                                  \
    (&(places){&(f).profile, &(f).model.processors, &(f).model.flop_per_s, &(f).model.bytes_per_s, \
               &(f).spread, &(f).basis})

static void lend_products(loan *l) {
    ds_profiles *p = l->p;
    take_stock(l);
    for (uint32_t i = 0; i < l->n_gemms; i++) {
        ds_gemm_fit f = p->gemms.at[i];
        if (!l->products[f.dtype] && lend_model(l, f.dtype, PLACES(f)))
            DS_PUSH(&p->arena, &p->gemms, f);
    }
    for (uint32_t i = 0; i < l->n_attentions; i++) {
        ds_attention_fit f = p->attentions.at[i];
        if (!l->attention[f.dtype][f.backward] && lend_model(l, f.dtype, PLACES(f)))
            DS_PUSH(&p->arena, &p->attentions, f);
    }
}

/* Profiles are numbered upwards, so what is added at the end stays sorted. */
static void lend_collectives(const loan *l) {
    ds_profiles *p = l->p;
    for (uint32_t i = 0, n = p->coll_rows.n; i < n; i++) {
        ds_coll_row row = p->coll_rows.at[i];
        if (row.profile != l->from) continue;
        row.profile = l->to;
        DS_PUSH(&p->arena, &p->coll_rows, row);
    }
    for (uint32_t i = 0, n = p->coll_fits.n; i < n; i++) {
        ds_coll_fit f = p->coll_fits.at[i];
        if (f.profile != l->from) continue;
        f.profile = l->to;
        f.spread = widened(f.spread);
        DS_PUSH(&p->arena, &p->coll_fits, f);
    }
    for (uint32_t i = 0, n = p->protocols.n; i < n; i++) {
        ds_protocol f = p->protocols.at[i];
        if (f.profile != l->from) continue;
        f.profile = l->to;
        f.spread = widened(f.spread);
        DS_PUSH(&p->arena, &p->protocols, f);
    }
}

/* A copy in lower case, for look-ups. */
static const char *lower(ds_arena *arena, const char *name) {
    char *copy = ds_arena_strdup(arena, name);
    for (char *c = copy; *c; c++) *c = (char)tolower((unsigned char)*c);
    return copy;
}

/* The profile of a kind that has none. */
static uint32_t add_profile(ds_profiles *p, uint32_t kind, uint32_t from) {
    ds_profile profile = p->profiles.at[from];
    profile.software =
        ds_arena_printf(&p->arena, "the fits of %s, scaled by peaks and bandwidth", profile.name);
    profile.name = ds_arena_printf(&p->arena, "%s-generic", p->kinds.at[kind].name);
    profile.lower = lower(&p->arena, profile.name);
    profile.kind = kind;
    profile.is_default = false;
    profile.is_lent = true;
    DS_PUSH(&p->arena, &p->profiles, profile);
    return p->profiles.n - 1;
}

static void assume(const ds_profiles *p, uint32_t profile, ds_cost_spread *spread) {
    bool has_rows = spread->low > 0;
    if (!has_rows && p->profiles.at[profile].is_generic) *spread = widened(*spread);
}

static void assume_transfers(ds_profiles *p) {
    for (uint32_t i = 0; i < p->fits.n; i++)
        assume(p, p->fits.at[i].profile, &p->fits.at[i].spread);
    for (uint32_t i = 0; i < p->gemms.n; i++)
        assume(p, p->gemms.at[i].profile, &p->gemms.at[i].spread);
    for (uint32_t i = 0; i < p->attentions.n; i++)
        assume(p, p->attentions.at[i].profile, &p->attentions.at[i].spread);
    for (uint32_t i = 0; i < p->coll_fits.n; i++)
        assume(p, p->coll_fits.at[i].profile, &p->coll_fits.at[i].spread);
    for (uint32_t i = 0; i < p->protocols.n; i++)
        assume(p, p->protocols.at[i].profile, &p->protocols.at[i].spread);
}

/* Kinds with a generic profile borrow first, so that kinds without one take these loans too. No loan
 * is lent on within a pass: the order of the kinds plays no part. */
void ds_cost__borrow(ds_profiles *p) {
    uint32_t n = p->profiles.n;
    p->n_own_profiles = n;
    p->n_own_gemms = p->gemms.n;
    p->n_own_attentions = p->attentions.n;
    for (int has_own = 1; has_own >= 0; has_own--) {
        uint32_t n_gemms = p->gemms.n, n_attentions = p->attentions.n;
        for (uint32_t kind = 0; kind < p->kinds.n; kind++) {
            uint32_t lender = p->kinds.at[kind].lender, own = ds_profiles_generic(p, kind);
            uint32_t from = lender ? ds_profiles_generic(p, lender - 1) : 0;
            if (!from || from >= n || (own > 0) != has_own) continue; /* a loan is not lent */
            loan l = {.p = p,
                      .from = from,
                      .to = own ? own : add_profile(p, kind, from),
                      .lender = &p->kinds.at[lender - 1],
                      .kind = &p->kinds.at[kind],
                      .n_gemms = n_gemms,
                      .n_attentions = n_attentions};
            lend_products(&l);
            if (own) continue;
            lend_curves(&l);
            lend_collectives(&l);
        }
    }
    assume_transfers(p);
}

/* Of the kind itself the number of processors alone, which its data sheet has. */
uint32_t ds_profiles_lend(ds_profiles *p, uint32_t kind, uint32_t lender) {
    uint32_t from = ds_profiles_generic(p, lender), own = ds_profiles_generic(p, kind);
    if (!from || from >= p->n_own_profiles || kind == lender) return 0; /* a loan is not lent */
    loan l = {.p = p,
              .from = from,
              .to = own,
              .lender = &p->kinds.at[lender],
              .kind = &p->kinds.at[kind],
              .n_gemms = p->n_own_gemms,
              .n_attentions = p->n_own_attentions};
    take_stock(&l);
    int64_t processors = l.processors;
    l = (loan){.p = p,
               .from = from,
               .to = add_profile(p, kind, from),
               .lender = l.lender,
               .kind = l.kind,
               .n_gemms = l.n_gemms,
               .n_attentions = l.n_attentions,
               .processors = processors};
    p->profiles.at[l.to].base = l.to;
    lend_products(&l);
    lend_curves(&l);
    lend_collectives(&l);
    return l.to;
}
