/* Compute, exposed communication and idleness of every class (sim/run/simulate.c). */
#include "search/compose/internal.h"

#include <stdlib.h>
#include <string.h>

static uint32_t n_visitors(const ds_body *body, uint32_t k) {
    return body->first_visitor[k + 1] - body->first_visitor[k];
}

/* What a class does in a timing, one span a chain. `spans` is room for all of them. */
static ds_busy look_at(const ds_body *body, const ds_timing *t, uint32_t k, ds_span *spans) {
    const uint32_t *chains = body->visitors + body->first_visitor[k];
    uint32_t n = n_visitors(body, k), n_comm = 0;
    ds_busy out = {.compute = spans, .start_ps = INT64_MAX};
    for (uint32_t i = 0; i < n; i++) {
        ds_span span = {t->start[chains[i]], t->end[chains[i]]};
        bool compute = body->units.at[body->chains[chains[i]].first].transfer == DS_NONE;
        if (compute)
            spans[out.n_compute++] = span;
        else
            spans[n - ++n_comm] = span; /* from behind */
        if (span.end > out.end_ps) out.end_ps = span.end;
        if (span.start < out.start_ps) out.start_ps = span.start;
    }
    out.comm = spans + out.n_compute;
    for (uint32_t i = 0; i < n_comm / 2; i++) {
        ds_span other = out.comm[i];
        out.comm[i] = out.comm[n_comm - 1 - i];
        out.comm[n_comm - 1 - i] = other;
    }
    out.n_compute = ds_spans_merge(out.compute, out.n_compute);
    out.n_comm = ds_spans_merge(out.comm, n_comm);
    out.compute_ps = ds_spans_total(out.compute, out.n_compute);
    out.exposed_ps = ds_spans_total(out.comm, out.n_comm) -
                     ds_spans_overlap(out.compute, out.n_compute, out.comm, out.n_comm);
    return out;
}

/* ---- a class over all executions ---- */

/* What of the spans lies within a stretch of time. */
static uint32_t clip_spans(const ds_span *spans, uint32_t n, int64_t base_ps, ds_span within,
                           ds_span *out) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        ds_span span = {base_ps + spans[i].start, base_ps + spans[i].end};
        if (span.start < within.start) span.start = within.start;
        if (span.end > within.end) span.end = within.end;
        if (span.start < span.end) out[kept++] = span;
    }
    return kept;
}

typedef struct sums {
    int64_t compute_ps, exposed_ps;
} sums;

static const ds_span ever = {INT64_MIN, INT64_MAX};

/* Of executions that overlap, within a stretch of time. */
static sums sum_over(const ds_visit *visits, uint32_t n, ds_span within) {
    uint32_t n_compute = 0, n_comm = 0;
    for (uint32_t i = 0; i < n; i++) {
        const ds_busy *busy = visits[i].of;
        n_compute += busy->n_compute;
        n_comm += busy->n_comm;
    }
    ds_span *compute = ds_xmalloc(((size_t)n_compute + n_comm) * sizeof *compute);
    ds_span *comm = compute + n_compute;
    n_compute = n_comm = 0;
    for (uint32_t i = 0; i < n; i++) {
        const ds_busy *busy = visits[i].of;
        int64_t base_ps = visits[i].base_ps;
        n_compute +=
            clip_spans(busy->compute, busy->n_compute, base_ps, within, compute + n_compute);
        n_comm += clip_spans(busy->comm, busy->n_comm, base_ps, within, comm + n_comm);
    }
    n_compute = ds_spans_merge(compute, n_compute);
    n_comm = ds_spans_merge(comm, n_comm);
    sums out = {ds_spans_total(compute, n_compute), ds_spans_total(comm, n_comm)};
    out.exposed_ps -= ds_spans_overlap(compute, n_compute, comm, n_comm);
    free(compute);
    return out;
}

/* Executions that overlap no other are known. */
static sums sum_cluster(const ds_visit *visits, uint32_t n) {
    const ds_busy *busy = visits->of;
    return n == 1 ? (sums){busy->compute_ps, busy->exposed_ps} : sum_over(visits, n, ever);
}

static void add_sums(ds_composed_class *to, int64_t times, sums s) {
    to->compute_ps += times * s.compute_ps;
    to->exposed_comm_ps += times * s.exposed_ps;
}

/* What executions that overlap do within stretches that come again. */
static void add_again(const ds_cut *cuts, uint32_t n_cuts, const ds_visit *visits, uint32_t n,
                      int64_t last_ps, sums once, ds_composed_class *out) {
    int64_t first_ps = visits->start_ps;
    for (uint32_t k = 0; k < n_cuts; k++) {
        ds_span within = {cuts[k].from_ps, cuts[k].to_ps};
        if (last_ps <= within.start || first_ps >= within.end) continue;
        bool whole = first_ps >= within.start && last_ps <= within.end;
        add_sums(out, cuts[k].times, whole ? once : sum_over(visits, n, within));
    }
}

/* Executions that overlap are put together in clusters. */
static void account(const ds_timeline *t, const ds_visit *visits, uint32_t n,
                    ds_composed_class *out) {
    for (uint32_t i = 0, end; i < n; i = end) {
        int64_t last_ps = visits[i].end_ps;
        for (end = i + 1; end < n && visits[end].start_ps < last_ps; end++)
            if (visits[end].end_ps > last_ps) last_ps = visits[end].end_ps;
        sums once = sum_cluster(visits + i, end - i);
        add_sums(out, 1, once);
        add_again(t->cuts.at, t->cuts.n, visits + i, end - i, last_ps, once, out);
    }
    out->idle_ps = t->step_ps - out->compute_ps - out->exposed_comm_ps;
}

typedef struct looker {
    const ds_timeline *t;
    ds_busy *busy;  /* of the class at hand … */
    ds_span *spans; /* … and where they are */
    uint32_t n_busy;
    size_t n_spans;
    int64_t end_ps; /* the last one of the class, in the step */
} looker;

/* Those of timings that others have, too, are kept. */
static void keep_busy(const ds_body *body, ds_timing *t) {
    t->n_busy = body->n_classes;
    t->busy = ds_compose__room(t, (size_t)t->n_busy + 1, sizeof *t->busy);
    for (uint32_t k = 0; k < t->n_busy; k++) {
        ds_span *spans = ds_compose__room(t, (size_t)n_visitors(body, k) + 1, sizeof *spans);
        t->busy[k] = look_at(body, t, k, spans);
    }
}

static bool look_at_busy(void *context, const ds_exec *e, uint32_t k, ds_visit *out) {
    looker *l = context;
    ds_timing *t = e->timing;
    const ds_body *body = l->t->s->parts[e->part].body;
    const ds_busy *busy;
    if (!n_visitors(body, k)) return false;
    if (ds_compose__shares(t)) {
        if (!t->busy) keep_busy(body, t);
        busy = &t->busy[k];
    } else {
        busy = &l->busy[l->n_busy];
        l->busy[l->n_busy++] = look_at(body, t, k, l->spans + l->n_spans);
        l->n_spans += n_visitors(body, k);
    }
    int64_t end_ps = e->base_ps + busy->end_ps;
    if (end_ps + e->late_ps > l->end_ps) l->end_ps = end_ps + e->late_ps;
    *out = (ds_visit){e->base_ps + busy->start_ps, end_ps, e->base_ps, busy};
    return true;
}

/* Room for any class. */
static void make_room(looker *l, const ds_visits *visits) {
    const ds_sibling *s = l->t->s;
    size_t most = 0;
    for (uint32_t c = 0; c < s->plan->n_classes; c++) {
        size_t n = 0;
        for (uint32_t i = visits->first[c]; i < visits->first[c + 1]; i++) {
            const ds_exec *e = &l->t->execs[visits->from[i].exec];
            if (!ds_compose__shares(e->timing))
                n += n_visitors(s->parts[e->part].body, visits->from[i].k);
        }
        if (n > most) most = n;
    }
    l->spans = ds_xmalloc((most + 1) * sizeof *l->spans);
    l->busy = ds_xmalloc(((size_t)visits->most + 1) * sizeof *l->busy);
}

static void account_all(const ds_timeline *t, const ds_visits *visits, ds_composed *out) {
    looker l = {.t = t};
    make_room(&l, visits);
    for (uint32_t c = 0; c < t->s->plan->n_classes; c++) {
        l.n_busy = 0;
        l.n_spans = 0;
        l.end_ps = 0;
        uint32_t n = ds_compose__visits(t, visits, c, look_at_busy, &l);
        account(t, visits->at, n, &out->classes[c]);
        out->classes[c].end_ps = l.end_ps;
    }
    free(l.spans);
    free(l.busy);
}

/* FLOPs of products on all devices of a hardware kind, exact, so that their order does not matter. */
typedef struct products {
    uint32_t kind;
    ds_i128 flop_of[DS_DTYPE_COUNT];
} products;

static int by_kind(const void *a, const void *b) {
    const products *x = a, *y = b;
    return x->kind < y->kind ? -1 : x->kind > y->kind;
}

static void add_products(const ds_plan *plan, const ds_part *part, int64_t times, products *kinds,
                         uint32_t *n) {
    for (uint32_t u = 0; u < part->body->units.n; u++) {
        const ds_unit_task *unit = &part->body->units.at[u];
        if (!unit->flop) continue;
        const ds_class *c = &plan->classes[part->classes.at[unit->cls]];
        uint32_t k = 0;
        while (k < *n && kinds[k].kind != c->kind) k++;
        if (k == *n) kinds[(*n)++].kind = c->kind;
        kinds[k].flop_of[unit->dtype] += (ds_i128)times * c->n_devices * unit->flop;
    }
}

/* As sim/run/simulate.c rounds it: `model_flop` of all FLOPs of products, at the devices' peaks. */
static double mfu(const ds_timeline *t, double model_flop, double devices) {
    const ds_plan *plan = t->s->plan;
    int64_t *times = ds_xcalloc(t->s->n_parts, sizeof *times);
    products *kinds = ds_xcalloc(plan->n_classes, sizeof *kinds);
    uint32_t n = 0;
    double flop = 0, product_s = 0;
    for (uint32_t i = 0; i < t->n_execs; i++) times[t->execs[i].part]++;
    for (uint32_t p = 0; p < t->s->n_parts; p++)
        if (times[p]) add_products(plan, &t->s->parts[p], times[p], kinds, &n);
    qsort(kinds, n, sizeof *kinds, by_kind);
    for (uint32_t k = 0; k < n; k++) {
        const double *peak = ds_profiles_kind(plan->profiles, kinds[k].kind)->peak_flop_per_s;
        ds_i128 sum = 0;
        double peak_s = 0;
        for (int d = 0; d < DS_DTYPE_COUNT; d++) {
            sum += kinds[k].flop_of[d];
            if (peak[d] > 0) peak_s += (double)kinds[k].flop_of[d] / peak[d];
        }
        flop += (double)sum;
        product_s += peak_s;
    }
    free(times);
    free(kinds);
    if (!(flop > 0) || !(t->step_ps > 0)) return 0;
    return product_s * (model_flop / flop) / (devices * ((double)t->step_ps * 1e-12));
}

void ds_compose__account(const ds_timeline *t, const ds_visits *visits, double model_flop,
                         ds_composed *out) {
    const ds_plan *plan = t->s->plan;
    ds_metrics *m = &out->metrics;
    account_all(t, visits, out);
    ds_i128 idle = 0;
    for (uint32_t c = 0; c < plan->n_classes; c++) {
        idle += (ds_i128)plan->classes[c].n_devices * out->classes[c].idle_ps;
        m->devices += plan->classes[c].n_devices;
        if (out->classes[c].end_ps > out->classes[out->critical].end_ps) out->critical = c;
    }
    double devices = (double)m->devices;
    if (m->step_ps > 0) m->bubble_fraction = (double)idle / (devices * (double)m->step_ps);
    m->mfu = mfu(t, model_flop, devices);
    m->exposed_comm_ps = out->classes[out->critical].exposed_comm_ps;
}
