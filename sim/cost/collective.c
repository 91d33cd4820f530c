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
    {"reshard", 0, "send", 1},
};

static const shape *shape_of(const char *name) {
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (strcmp(shapes[i].name, name) == 0) return &shapes[i];
    return NULL;
}

/* Elements of one profile in a vector that is sorted by profile. */
typedef struct span {
    uint32_t begin, end;
} span;

/* The first element whose profile is at least `profile`; the profile is each element's first member.
 * O(log n). */
static uint32_t lower_bound(const void *at, size_t size, uint32_t n, uint32_t profile) {
    uint32_t begin = 0, end = n;
    while (begin < end) {
        uint32_t middle = begin + (end - begin) / 2, is;
        memcpy(&is, (const char *)at + middle * size, sizeof is);
        if (is < profile)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

#define SPAN_OF(vec, profile) span_of((vec).at, sizeof *(vec).at, (vec).n, profile)

static span span_of(const void *at, size_t size, uint32_t n, uint32_t profile) {
    return (span){lower_bound(at, size, n, profile), lower_bound(at, size, n, profile + 1)};
}

/* The fits next to `group`: of the largest group size that is at most `group`, else of the
 * smallest; and, where `group` itself was not profiled, of the next larger one. */
static const ds_coll_fit *fit_of(const ds_profiles *p, uint32_t profile, const char *collective,
                                 uint32_t group, const ds_coll_fit **above) {
    const ds_coll_fit *found = NULL;
    span own = SPAN_OF(p->coll_fits, profile);
    *above = NULL;
    for (uint32_t i = own.begin; i < own.end; i++) {
        const ds_coll_fit *f = &p->coll_fits.at[i];
        if (strcmp(f->collective, collective) != 0) continue;
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
    span own = SPAN_OF(p->coll_rows, fit->profile);
    for (uint32_t i = own.begin; i < own.end; i++) {
        const ds_coll_row *row = &p->coll_rows.at[i];
        if (row->group != fit->group || strcmp(row->collective, fit->collective) != 0) continue;
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

double ds_cost__wire_factor(const char *collective, double n) {
    const shape *s = shape_of(collective);
    return s && s->steps_per_peer ? s->steps_per_peer * (n - 1) / n : 1;
}

static double wire_factor(const ds_coll_fit *f, double n) {
    return ds_cost__wire_factor(f->collective, n);
}

static double steps_of(const shape *s, double n) {
    return s && s->steps_per_peer ? s->steps_per_peer * (n - 1) : 1;
}

/* The efficiency at which a ring on the fit's links takes the time `ps`. */
static double efficiency_of(const ds_coll_fit *f, double bytes, double ps) {
    double n = (double)f->group, steps = steps_of(shape_of(f->collective), n);
    double overhead = (double)f->launch_ps + steps * ((double)f->alpha_ps + (double)f->step_ps);
    double flow_s = (ps - overhead) / (double)DS_PS_PER_S;
    if (flow_s <= 0) return 1;
    double e = wire_factor(f, n) * bytes / ((double)f->capacity_bytes_per_s * flow_s);
    return e < 1 ? e : 1;
}

/* How well a collective uses links of the fit's capacity: at its size, and once it is so large that
 * latencies no longer count. */
typedef struct use {
    double e, saturated;
    bool outside; /* of the measured sizes */
} use;

/* By the fit's rows, or by its curve where it has none. */
static use use_of(const ds_profiles *p, const ds_coll_fit *f, double bytes, ds_buf *explain) {
    run rows = rows_of(p, f);
    use u = {.saturated = f->e_max < 1 ? f->e_max : 1};
    if (rows.n) {
        const ds_coll_row *first = &rows.at[0], *last = &rows.at[rows.n - 1];
        double least = (double)first->bytes, most = (double)last->bytes;
        double size = bytes < least ? least : bytes > most ? most : bytes;
        u.e = efficiency_of(f, size, time_at(rows, size, explain));
        u.saturated = efficiency_of(f, most, (double)last->ps);
        u.outside = bytes < least || bytes > most;
    } else {
        double e = f->s_half > 0 ? f->e_max * bytes / (bytes + f->s_half) : f->e_max;
        u.e = e < 1 ? e : 1;
    }
    if (explain)
        ds_buf_printf(explain, "  efficiency %.4g over %u; %s [%s]\n", u.e, f->group, f->basis,
                      f->source);
    return u;
}

/* Linear in the group size between the fits below and above. */
static use use_between(const ds_profiles *p, const ds_coll_fit *f, const ds_coll_fit *above,
                       uint32_t group, double bytes, ds_buf *explain) {
    use u = use_of(p, f, bytes, explain);
    if (above) {
        use more = use_of(p, above, bytes, explain);
        double t = (double)(group - f->group) / (double)(above->group - f->group);
        u.e += (more.e - u.e) * t;
        u.saturated += (more.saturated - u.saturated) * t;
        u.outside = u.outside || more.outside;
    }
    if (u.saturated < u.e) u.saturated = u.e;
    return u;
}

#define LEAST_EFFICIENCY DS_COST_LEAST_EFFICIENCY

static uint64_t to_q32(double e) {
    return (uint64_t)(e * 4294967296.0);
}

/* What is asked for. */
typedef struct demand {
    const shape *own;
    uint32_t group;
    double bytes;
    double as; /* bytes of the collective whose terms are taken */
    const ds_coll_links *links;
} demand;

/* ---- what a fit did not see ---- */

/* How far measurements lay from predictions (measured/predicted, the 5th and 95th percentile) of
 * rows that a fit did not see: of another kind of link, over other numbers of nodes, over groups
 * and of sizes beyond those of the other rows. Source: `fit-profiles left-out` over
 * tests/data/collectives/machines.csv, rows marked fit alone (cost_profiles/FITTING.md, "Beyond the
 * rows of a fit"). */
static const ds_cost_spread unseen[DS_SEEN_COUNT] = {[DS_SEEN_LINK] = {0.37, 3},
                                                     [DS_SEEN_NODES] = {0.36, 2.8},
                                                     [DS_SEEN_GROUP] = {0.5, 1.8},
                                                     [DS_SEEN_SIZE] = {0.57, 2.2}};

/* The wider one counts: rows of the fit's own kind lie as far off as before. */
static void extrapolate(ds_coll_cost *cost, ds_seen_kind kind) {
    const ds_cost_spread *by = &unseen[kind];
    cost->extrapolated = true;
    if (!(cost->spread.low > 0) || by->low < cost->spread.low) cost->spread.low = by->low;
    if (by->high > cost->spread.high) cost->spread.high = by->high;
}

static void explain_spread(const ds_coll_cost *cost, ds_buf *out) {
    if (cost->extrapolated)
        ds_buf_printf(out,
                      "  extrapolated: nine in ten take %.2g to %.2g times as long as predicted\n",
                      cost->spread.low, cost->spread.high);
}

/* Topologies name one link by capacities that differ by less. Assumed: NICs of 200 Gb/s are 24 or
 * 25 GB/s in scenarios/topologies, NVLinks of an H100 450 or 477. */
#define SAME_LINK 1.1

static bool is_beyond(const ds_seen *seen, ds_seen_kind kind, double value) {
    double slack = kind == DS_SEEN_LINK ? SAME_LINK : 1;
    return value > 0 && seen->most > 0 &&
           (value * slack < (double)seen->least || value > (double)seen->most * slack);
}

static void put_seen(ds_seen_kind kind, double value, ds_buf *out) {
    if (kind == DS_SEEN_LINK)
        ds_print_rate(value, "B/s", out);
    else
        ds_buf_printf(out, "%.0f", value);
}

/* Marks the cost where the demand lies beyond the rows that the protocols were fitted to. */
static void compare_seen(const ds_seen *seen, const double *asked, ds_coll_cost *out,
                         ds_buf *explain) {
    static const char *const names[] = {"links of", "nodes:", "a group of", "bytes:"};
    for (int k = 0; k < DS_SEEN_COUNT; k++) {
        if (!is_beyond(&seen[k], (ds_seen_kind)k, asked[k])) continue;
        extrapolate(out, (ds_seen_kind)k);
        if (!explain) continue;
        ds_buf_printf(explain, "  extrapolated: %s ", names[k]);
        put_seen((ds_seen_kind)k, asked[k], explain);
        ds_buf_put(explain, "; the rows have ");
        put_seen((ds_seen_kind)k, (double)seen[k].least, explain);
        ds_buf_put(explain, " to ");
        put_seen((ds_seen_kind)k, (double)seen[k].most, explain);
        ds_buf_putc(explain, '\n');
    }
}

/* ---- protocols ---- */

/* How far the link that a protocol was fitted on may be from the one in use before the cost counts
 * as extrapolated: one or two NVLinks between a pair are links of one kind, NVLink and a NIC are
 * not. */
#define SAME_KIND_OF_LINK 2.5

static double ratio_of(int64_t a, int64_t b) {
    return a < b ? (double)b / (double)a : (double)a / (double)b;
}

typedef struct protocols {
    const ds_protocol *at;
    uint32_t n;
    double ratio; /* of their link's capacity to that in use, at least 1 */
} protocols;

/* Those of the collective on the nearest links; `link_bytes_per_s` 0: the fastest links there are.
 */
static protocols protocols_of(const ds_profiles *p, uint32_t profile, const char *collective,
                              int64_t link_bytes_per_s) {
    protocols best = {0};
    span own = SPAN_OF(p->protocols, profile);
    for (uint32_t i = own.begin, n; i < own.end; i += n) {
        const ds_protocol *first = &p->protocols.at[i];
        for (n = 1; i + n < own.end; n++) {
            const ds_protocol *next = &first[n];
            if (next->link_bytes_per_s != first->link_bytes_per_s ||
                strcmp(next->collective, first->collective) != 0)
                break;
        }
        if (strcmp(first->collective, collective) != 0) continue;
        double ratio = link_bytes_per_s ? ratio_of(first->link_bytes_per_s, link_bytes_per_s) : 1;
        if (!best.n || ratio <= best.ratio) best = (protocols){.at = first, .n = n, .ratio = ratio};
    }
    return best;
}

/* Steps of a ring, and its flow on the protocols' links where the caller does not say what the flow
 * takes: what protocols are compared by. */
typedef struct ring_use {
    double steps, flow_ps;
} ring_use;

static ring_use ring_of(const shape *s, const ds_protocol *on, uint32_t group, double bytes,
                        int64_t flow_ps) {
    double n = (double)group;
    bool ring = s && s->steps_per_peer;
    double wire = ring ? s->steps_per_peer * (n - 1) / n * bytes : bytes;
    ring_use u = {.steps = steps_of(s, n), .flow_ps = (double)flow_ps};
    if (!flow_ps) u.flow_ps = wire / (double)on->link_bytes_per_s * (double)DS_PS_PER_S;
    return u;
}

static double copy_ps(const ds_protocol *f, double bytes) {
    return f->copy_bytes_per_s ? bytes / (double)f->copy_bytes_per_s * (double)DS_PS_PER_S : 0;
}

static double protocol_ps(const ds_protocol *f, const ring_use *ring, double bytes) {
    return (double)f->launch_ps + copy_ps(f, bytes) + ring->steps * (double)f->step_ps +
           ring->flow_ps / f->e;
}

static bool takes_group(const ds_protocol *f, uint32_t group) {
    return group >= f->least_group && (!f->most_group || group <= f->most_group);
}

static bool is_used_for(const ds_protocol *f, uint32_t group, double bytes) {
    return takes_group(f, group) && bytes >= (double)f->least_bytes &&
           (!f->most_bytes || bytes <= (double)f->most_bytes);
}

/* The fastest protocol for the group and the size. If no protocol is for both, the fastest for the
 * group; if no protocol is for the group, the fastest of all. */
static const ds_protocol *fastest(const protocols *from, const ring_use *ring, uint32_t group,
                                  double bytes) {
    const ds_protocol *best = NULL, *of_group = NULL, *of_all = from->at;
    for (uint32_t i = 0; i < from->n; i++) {
        const ds_protocol *f = &from->at[i];
        double ps = protocol_ps(f, ring, bytes);
        if (ps < protocol_ps(of_all, ring, bytes)) of_all = f;
        if (takes_group(f, group) && (!of_group || ps < protocol_ps(of_group, ring, bytes)))
            of_group = f;
        if (is_used_for(f, group, bytes) && (!best || ps < protocol_ps(best, ring, bytes)))
            best = f;
    }
    return best ? best : of_group ? of_group : of_all;
}

/* `d->as`: bytes of the buffer as the protocol's own collective counts them. */
static ds_status terms_of_protocols(const protocols *from, const demand *d, ds_coll_cost *out,
                                    ds_buf *explain, ds_error *err) {
    double copied = d->as;
    ring_use flow = ring_of(d->own, from->at, d->group, d->bytes, d->links->flow_ps);
    const ds_protocol *f = fastest(from, &flow, d->group, copied);
    int64_t copy;
    DS_TRY(ds_ps_from_seconds(copy_ps(f, copied) / (double)DS_PS_PER_S, &copy, err));
    *out = (ds_coll_cost){.step_ps = f->step_ps,
                          .efficiency_q32 = to_q32(f->e),
                          .from_profile = true,
                          .spread = f->spread};
    out->copy_ps = copy;
    if (!ds_add_i64(f->launch_ps, copy, &out->launch_ps))
        return ds_error_set(err, DS_ERR_OVERFLOW, DS_NOWHERE,
                            "the launch of a collective exceeds int64 picoseconds");
    if (explain)
        ds_buf_printf(explain, "  protocol %s of %u; %s [%s]\n", f->name, from->n, f->basis,
                      f->source);
    const double asked[DS_SEEN_COUNT] = {(double)d->links->slowest_bytes_per_s,
                                         (double)d->links->n_nodes, (double)d->group, copied};
    compare_seen(f->seen, asked, out, explain);
    if (from->ratio <= SAME_KIND_OF_LINK || f->seen[DS_SEEN_LINK].most) return DS_OK;
    extrapolate(out, DS_SEEN_LINK);
    if (explain) {
        ds_buf_put(explain, "  extrapolated: fitted on links of ");
        ds_print_rate((double)f->link_bytes_per_s, "B/s", explain);
        ds_buf_putc(explain, '\n');
    }
    return DS_OK;
}

/* ---- rows and curves of one group and link ---- */

/* The flow gets efficiency `to` in place of the lower u->e: what it loses beyond that is added to
 * the launch as the time that it is. */
static ds_status carry_over(const ds_coll_fit *f, const use *u, double to, const demand *d,
                            ds_coll_cost *out, ds_error *err) {
    double seconds = wire_factor(f, (double)d->group) * d->as / (double)f->capacity_bytes_per_s;
    int64_t latency_ps = 0;
    if (u->e > 0) /* a curve at 0 bytes */
        DS_TRY(ds_ps_from_seconds(seconds / u->e - seconds / to, &latency_ps, err));
    out->efficiency_q32 = to_q32(to);
    if (ds_add_i64(out->launch_ps, latency_ps, &out->launch_ps)) return DS_OK;
    return ds_error_set(err, DS_ERR_OVERFLOW, DS_NOWHERE,
                        "the latency of a collective exceeds int64 picoseconds");
}

/* On links of another capacity than the fit's. */
static ds_status on_other_links(const ds_coll_fit *f, const use *u, const demand *d,
                                ds_coll_cost *out, ds_buf *explain, ds_error *err) {
    int64_t launch_ps = out->launch_ps;
    double to = u->saturated > LEAST_EFFICIENCY ? u->saturated : LEAST_EFFICIENCY;
    DS_TRY(carry_over(f, u, to, d, out, err));
    extrapolate(out, DS_SEEN_LINK);
    if (explain) {
        ds_buf_put(explain, "  extrapolated: the slowest link has ");
        ds_print_rate((double)d->links->slowest_bytes_per_s, "B/s", explain);
        ds_buf_put(explain, ", those of the fit ");
        ds_print_rate((double)f->capacity_bytes_per_s, "B/s", explain);
        ds_buf_printf(explain, "; the efficiency of large sizes there, %.4g, and ", u->saturated);
        ds_print_ps(out->launch_ps - launch_ps, explain);
        ds_buf_put(explain, " of latency\n");
    }
    return DS_OK;
}

static void explain_terms(const ds_coll_cost *cost, ds_buf *out) {
    ds_buf_put(out, "  launch ");
    ds_print_ps(cost->launch_ps, out);
    ds_buf_put(out, ", per step ");
    ds_print_ps(cost->step_ps, out);
    ds_buf_printf(out, ", efficiency %.4g%s\n", (double)cost->efficiency_q32 / 4294967296.0,
                  cost->holds_compute ? ", on the compute stream" : "");
}

/* A group smaller or larger than all that were profiled. Transfers between two have no group. */
static bool is_group_outside(const ds_coll_fit *f, const ds_coll_fit *above, uint32_t group) {
    const shape *s = shape_of(f->collective);
    return s && s->steps_per_peer && !above && f->group != group;
}

/* A fit without rows, launch and steps that uses links as a whole says whether its collectives hold
 * compute, and nothing of their times. */
static bool says_times(const ds_profiles *p, const ds_coll_fit *f) {
    return f->launch_ps || f->step_ps || f->e_max < 1 || f->s_half > 0 || rows_of(p, f).n;
}

/* Is the size beyond all sizes of the fit's rows, and has the profile a protocol for the size? */
static bool is_for_protocols(const ds_profiles *p, const ds_coll_fit *f, const protocols *fast,
                             const demand *d) {
    double bytes = d->as;
    run rows = rows_of(p, f);
    if (!rows.n) return false;
    if (bytes >= (double)rows.at[0].bytes && bytes <= (double)rows.at[rows.n - 1].bytes)
        return false;
    for (uint32_t i = 0; i < fast->n; i++)
        if (is_used_for(&fast->at[i], d->group, bytes)) return true;
    return false;
}

/* A fit as it is on the links in use. */
typedef struct placed {
    ds_coll_fit fit;
    bool is_here; /* its reference links are these, or as fast */
    bool is_sure; /* false: its rows may have been measured on much slower ones */
} placed;

/* Rows without a fit take the links in use as reference, unless these links are too slow for the rows. */
static placed place(const ds_coll_fit *f, const demand *d) {
    placed on = {.fit = *f, .is_sure = true};
    const ds_coll_links *links = d->links;
    double rate = (double)f->capacity_bytes_per_s, capacity = (double)links->slowest_bytes_per_s;
    on.is_here =
        !links->slowest_bytes_per_s || links->slowest_bytes_per_s == f->capacity_bytes_per_s;
    if (!f->no_link) return on;
    double n = (double)d->group, flow_s = (double)links->flow_ps / (double)DS_PS_PER_S;
    if (links->changed > 0) flow_s *= links->changed;
    if (links->flow_ps) capacity = wire_factor(f, n) * d->as / flow_s;
    on.fit.alpha_ps = links->wait_ps / (int64_t)steps_of(d->own, n);
    if (capacity < 1 || capacity > 1e18 || capacity * SAME_KIND_OF_LINK < rate) return on;
    on.fit.capacity_bytes_per_s = (int64_t)capacity;
    on.is_here = true;
    on.is_sure = capacity <= rate * SAME_KIND_OF_LINK;
    return on;
}

static ds_status terms_of_fit(const ds_profiles *p, const placed *on, const ds_coll_fit *above,
                              const demand *d, ds_coll_cost *out, ds_buf *explain, ds_error *err) {
    const ds_coll_fit *f = &on->fit;
    uint32_t group = d->group;
    double bytes = d->as;
    use u = use_between(p, f, above, group, bytes, explain);
    bool group_outside = is_group_outside(f, above, group);
    *out = (ds_coll_cost){.launch_ps = f->launch_ps,
                          .step_ps = f->step_ps,
                          .efficiency_q32 = to_q32(u.e),
                          .from_profile = true,
                          .holds_compute = f->holds_compute,
                          .spread = f->spread};
    if (u.outside) extrapolate(out, DS_SEEN_SIZE);
    if (group_outside) extrapolate(out, DS_SEEN_GROUP);
    if (!on->is_sure) extrapolate(out, DS_SEEN_LINK);
    /* Rows are of groups inside one node (cost_profiles/FORMATS.md), and so are curves through rows.
     */
    const ds_seen one_node[DS_SEEN_COUNT] = {[DS_SEEN_NODES] = {1, 1}};
    const double asked[DS_SEEN_COUNT] = {[DS_SEEN_NODES] = (double)d->links->n_nodes};
    if (f->n > 0) compare_seen(one_node, asked, out, explain);
    if (explain && u.outside)
        ds_buf_put(explain, "  extrapolated: no row of that size; the efficiency of the nearest\n");
    if (explain && group_outside)
        ds_buf_printf(explain, "  extrapolated: a group of %u by the fit over %u\n", group,
                      f->group);
    if (explain && !on->is_sure)
        ds_buf_put(explain,
                   "  extrapolated: no row shows what these links can do; they may be others\n");
    if (!on->is_here) return on_other_links(f, &u, d, out, explain, err);
    double least = d->links->changed > 0 ? u.saturated : LEAST_EFFICIENCY;
    if (least < LEAST_EFFICIENCY) least = LEAST_EFFICIENCY;
    return u.e < least ? carry_over(f, &u, least, d, out, err) : DS_OK;
}

/* What a profile has for a collective under the name of `of`: rows or a curve of groups, or
 * protocols, those first that were fitted on links of the kind in use, and there rows first within
 * their sizes. */
static ds_status try_terms(const ds_profiles *p, uint32_t profile, const ds_coll_demand *asked,
                           const shape *of, ds_coll_cost *out, ds_buf *explain, ds_error *err) {
    const ds_coll_fit *above = NULL, *f = fit_of(p, profile, of->name, asked->group, &above);
    const shape *own = shape_of(asked->collective);
    double bytes = (double)asked->bytes, as = bytes * (own == of ? 1 : own->ratio);
    demand d = {own, asked->group, bytes, as, &asked->links};
    placed on = {.is_here = true}, next;
    if (f) {
        on = place(f, &d);
        f = &on.fit;
    }
    if (above) {
        next = place(above, &d);
        above = &next.fit;
    }
    int64_t link = asked->links.slowest_bytes_per_s;
    if (!link && f) link = f->capacity_bytes_per_s;
    protocols fast = protocols_of(p, profile, of->name, link);
    bool timed = f && on.is_here && says_times(p, f);
    if (!f && !fast.n) return DS_OK;
    if (explain && own != of)
        ds_buf_printf(explain, "  no rows; as %s of %.0f bytes\n", of->name, as);
    if (fast.n && (!f || (fast.ratio <= SAME_KIND_OF_LINK &&
                          (!timed || is_for_protocols(p, f, &fast, &d))))) {
        DS_TRY(terms_of_protocols(&fast, &d, out, explain, err));
        out->holds_compute = f && on.is_here && f->holds_compute;
        return DS_OK;
    }
    return terms_of_fit(p, &on, above, &d, out, explain, err);
}

ds_status ds_cost_collective(const ds_profiles *profiles, uint32_t profile,
                             const ds_coll_demand *asked, ds_coll_cost *out, ds_buf *explain,
                             ds_error *err) {
    *out = (ds_coll_cost){.efficiency_q32 = UINT64_C(1) << 32};
    if (asked->bytes < 0)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE, "%s of %" PRId64 " bytes",
                            asked->collective, asked->bytes);
    const char *software = profiles->profiles.at[profile].software;
    if (explain)
        ds_buf_printf(explain, "%s of %" PRId64 " bytes over %u, profile %s\n", asked->collective,
                      asked->bytes, asked->group, profiles->profiles.at[profile].name);
    if (explain && *software) ds_buf_printf(explain, "  software: %s\n", software);
    const ds_profile *named = &profiles->profiles.at[profile];
    profile = ds_cost__base(profiles, profile);
    if (!ds_profiles_has(profiles, DS_TERM_PROTOCOLS)) profile = 0;
    const shape *s = profile ? shape_of(asked->collective) : NULL;
    if (s) DS_TRY(try_terms(profiles, profile, asked, s, out, explain, err));
    if (s && !out->from_profile && s->basis)
        DS_TRY(try_terms(profiles, profile, asked, shape_of(s->basis), out, explain, err));
    if (profile && asked->links.exchange)
        DS_TRY(ds_cost__exchange(profiles, profile, asked, out, explain, err));
    DS_TRY(ds_cost__scale_collective(named, out, explain, err));
    int64_t latency_ppb = ds_profiles_rate_ppb(profiles, DS_RESOURCE_LATENCY);
    out->launch_ps = out->copy_ps + ds_what_if_times(out->launch_ps - out->copy_ps, latency_ppb);
    out->step_ps = ds_what_if_times(out->step_ps, latency_ppb);
    if (explain) explain_terms(out, explain);
    if (explain) explain_spread(out, explain);
    return DS_OK;
}
