/* Tokens to experts and back: copies, links, and the fits of kernels that send. */
#include "sim/cost/exchange.h"

#include "ir/base/map.h"
#include "ir/base/units.h"
#include "sim/cost/profiles_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

uint64_t ds_exchange_hash(const ds_exchange *x) {
    if (!x) return 0;
    uint64_t key = ds_hash_mix((uint64_t)x->experts, (uint64_t)x->top);
    key = ds_hash_mix(ds_hash_mix(key, (uint64_t)x->limit), x->back);
    key = ds_hash_mix(key, ds_hash_bytes(&x->filled, sizeof x->filled));
    return ds_hash_mix(key, ds_hash_bytes(&x->bytes, sizeof x->bytes)) | 1;
}

/* The share of tokens without an expert in a part that has a share `there` of `all`. */
static double missing(double all, double there, int64_t top) {
    double none = 1, elsewhere = all * (1 - there);
    if (all <= 0) return pow(1 - there, (double)top);
    for (int64_t i = 0; i < top && (double)i < all; i++)
        none *= fmax(0, (elsewhere - (double)i) / (all - (double)i));
    return none;
}

double ds_exchange_reach(const ds_exchange *x, double parts, double nodes) {
    double share = x->limit && (double)x->limit < nodes ? (double)x->limit / nodes : 1;
    return share * (1 - missing((double)x->experts * share, 1 / (parts * share), x->top));
}

double ds_exchange_tokens(const ds_exchange *x, double bytes) {
    return bytes / x->bytes * x->filled;
}

void ds_sending_of(const ds_exchange *x, double devices, double nodes, ds_sending *out) {
    double reach = ds_exchange_reach(x, devices, nodes);
    *out = (ds_sending){.bytes = x->bytes, .copies = devices * reach};
    out->wired = (devices - nodes) * reach;
    if (nodes < 2) return;
    out->n_nodes = nodes;
    out->crossed = (nodes - 1) * ds_exchange_reach(x, nodes, nodes);
}

double ds_sending_seconds(const ds_sending_fit *f, const ds_sending *s) {
    double link = s->wired * s->bytes / (f->e_link * s->link_bytes_per_s);
    double passes = s->copies + f->own + (s->n_nodes > 0 ? f->relay * (1 + s->crossed) : 0);
    double copy = passes * (f->copy_s + s->bytes / f->copy_bytes_per_s) / s->blocks;
    double slowest = s->wired > 0 ? fmax(link, copy) : copy;
    if (s->n_nodes > 0)
        slowest = fmax(slowest, s->crossed * s->bytes / (f->e_net * s->net_bytes_per_s));
    return f->launch_s + f->node_s * s->n_nodes + s->tokens * slowest;
}

static bool curve_of(const ds_profiles *profiles, uint32_t profile, const char *const words[3],
                     ds_cost_curve *out) {
    char name[64];
    snprintf(name, sizeof name, "send_%s_%s_%s", words[0], words[1], words[2]);
    return ds_profile_curve(profiles, profile, name, out);
}

bool ds_sending_fit_of(const ds_profiles *profiles, uint32_t profile, const char *kernel,
                       const char *op, bool between_nodes, ds_sending_fit *out) {
    ds_cost_curve link, copy, own, relay = {0}, net = {0};
    if (!curve_of(profiles, profile, (const char *const[]){kernel, op, "link"}, &link) ||
        !curve_of(profiles, profile, (const char *const[]){kernel, op, "copy"}, &copy) ||
        !curve_of(profiles, profile, (const char *const[]){kernel, op, "own"}, &own))
        return false;
    if (between_nodes &&
        (!curve_of(profiles, profile, (const char *const[]){kernel, op, "relay"}, &relay) ||
         !curve_of(profiles, profile, (const char *const[]){kernel, op, "net"}, &net)))
        return false;
    double rate = copy.reference_per_s * copy.e_max;
    *out = (ds_sending_fit){.launch_s = link.floor_s,
                            .node_s = net.floor_s,
                            .e_link = link.e_max,
                            .e_net = net.e_max,
                            .copy_s = copy.w_half / rate,
                            .copy_bytes_per_s = rate,
                            .own = rate / (own.reference_per_s * own.e_max)};
    if (between_nodes) out->relay = rate / (relay.reference_per_s * relay.e_max);
    return true;
}

/* ---- in a program ---- */

static void say(const ds_sending_fit *f, const ds_sending *s, ds_buf *out) {
    if (!out) return;
    ds_buf_printf(out, "  tokens by DeepEP: %.4g a device, %.4g copies over links of a node each",
                  s->tokens, s->wired);
    if (s->n_nodes > 0)
        ds_buf_printf(out, ", %.4g to other nodes; %.4g of the network", s->crossed, f->e_net);
    ds_buf_printf(out, ", %.4g of the links\n", f->e_link);
}

/* The kernel's time beyond its launches is the flow at an efficiency; a network that is slower than
 * the fit's is as slow as its links. */
static ds_status terms_of(const ds_sending_fit *f, const ds_sending *s, const ds_coll_links *links,
                          ds_coll_cost *out, ds_error *err) {
    int64_t launch_ps, whole_ps, more_ps = 0;
    double launch_s = f->launch_s + f->node_s * s->n_nodes;
    DS_TRY(ds_ps_from_seconds(launch_s, &launch_ps, err));
    DS_TRY(ds_ps_from_seconds(ds_sending_seconds(f, s), &whole_ps, err));
    double flow_ps = (double)links->flow_ps, body_ps = (double)(whole_ps - launch_ps), e = 1;
    if (flow_ps < body_ps) e = fmax(flow_ps / body_ps, DS_COST_LEAST_EFFICIENCY);
    if (flow_ps / e < body_ps)
        DS_TRY(ds_ps_from_seconds((body_ps - flow_ps / e) / (double)DS_PS_PER_S, &more_ps, err));
    launch_ps = launch_ps > links->wait_ps ? launch_ps - links->wait_ps : 0;
    if (!ds_add_i64(launch_ps, more_ps, &out->launch_ps))
        return ds_error_set(err, DS_ERR_OVERFLOW, DS_NOWHERE,
                            "the launch of a collective exceeds int64 picoseconds");
    out->efficiency_q32 = (uint64_t)(e * 4294967296.0);
    out->step_ps = 0;
    return DS_OK;
}

/* Passes of the fits of H100 and H200 (cost_profiles), dispatch and combine: the kernels are the same
 * on each device. */
static const double usual_relay[] = {2.3, 6.9};

ds_status ds_cost__exchange(const ds_profiles *profiles, uint32_t profile,
                            const ds_coll_demand *asked, ds_coll_cost *out, ds_buf *explain,
                            ds_error *err) {
    const ds_coll_links *links = &asked->links;
    const ds_exchange *x = links->exchange;
    const char *op = x->back ? "combine" : "dispatch";
    double nodes = links->n_nodes > 1 ? links->n_nodes : 1;
    ds_sending_fit f;
    ds_cost_curve curve = {0};
    bool several = nodes > 1, between = several;
    if (!ds_sending_fit_of(profiles, profile, "deepep", op, between, &f)) {
        between = false;
        if (!several || !ds_sending_fit_of(profiles, profile, "deepep", op, between, &f))
            return DS_OK;
        f.e_net = (double)out->efficiency_q32 / 4294967296.0;
        f.relay = usual_relay[x->back];
        out->extrapolated = true;
    }
    ds_sending s;
    ds_sending_of(x, asked->group, nodes, &s);
    s.tokens = ds_exchange_tokens(x, (double)asked->bytes);
    s.blocks = DS_SENDING_BLOCKS;
    s.link_bytes_per_s = (double)links->inside_bytes_per_s;
    s.net_bytes_per_s = (double)links->between_bytes_per_s;
    curve_of(profiles, profile, (const char *const[]){"deepep", op, "link"}, &curve);
    if (between || !several) {
        out->spread = curve.spread;
        out->extrapolated = false;
    }
    out->from_profile = true;
    say(&f, &s, explain);
    return terms_of(&f, &s, links, out, err);
}
