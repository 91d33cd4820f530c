/* Tokens to experts and back, as DeepEP's normal kernels and NVLink's all-to-all kernels send.
 *
 * A token goes once to each device with an expert of the token's, its own device among them, and
 * over the network once to each other node; a node's devices pass tokens on. Experts are drawn
 * without repetition, all alike: of E experts, s E of them elsewhere, k draws miss the others with
 * the product of (s E - i)/(E - i). `blocks` multiprocessors copy, and links carry; the slowest of
 * three holds the exchange up:
 *
 *     t = launch + node (nodes, if several)
 *         + tokens max(wired bytes/(e_link L), (copies + own)(copy + bytes/r)/blocks,
 *                      nodes' bytes/(e_net N))
 *
 * `own` counts the passes over a token on its own device, in copies. Source of the form: DeepEP,
 * README.md and csrc/kernels (deepseek-ai/DeepEP): kernels are channels of multiprocessors, nodes
 * are crossed once and forwarded over NVLink. */
#include "tools/measured/measured.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { USUAL_BLOCKS = 20 }; /* DeepEP's Buffer.num_sms */

/* The share of tokens without an expert among the others, a share `there` of all. */
static double missing(const measured_exchange *x, double there) {
    double none = 1;
    if (!x->experts) return pow(1 - there, (double)x->topk);
    double all = (double)x->experts, elsewhere = all * (1 - there);
    for (int64_t i = 0; i < x->topk && i < x->experts; i++)
        none *= fmax(0, (elsewhere - (double)i) / (all - (double)i));
    return none;
}

void measured_sending_of(const measured_row *row, int64_t n_nodes, measured_sending *out) {
    const measured_exchange *x = &row->exchange;
    double devices = (double)x->group, nodes = (double)n_nodes;
    /* A scale of 32 bits for 128 elements of 8, of 8 bits for 16 of 4. */
    double bits = (double)x->bits + (x->bits == 8 ? 32.0 / 128 : x->bits == 4 ? 8.0 / 16 : 0);
    *out = (measured_sending){.tokens = (double)x->tokens,
                              .bytes = (double)x->hidden * bits / 8,
                              .copies = devices * (1 - missing(x, 1 / devices)),
                              .blocks = (double)(x->blocks ? x->blocks : USUAL_BLOCKS)};
    out->wired = out->copies * (devices - 1) / devices;
    if (n_nodes < 2) return;
    out->n_nodes = nodes;
    out->crossed = (nodes - 1) * (1 - missing(x, 1 / nodes));
}

double measured_sending_seconds(const measured_sending_fit *f, const measured_sending *s) {
    double link = s->wired * s->bytes / (f->e_link * s->link_bytes_per_s);
    double copy = (s->copies + f->own) * (f->copy_s + s->bytes / f->copy_bytes_per_s) / s->blocks;
    double slowest = fmax(link, copy);
    if (s->n_nodes > 0)
        slowest = fmax(slowest, s->crossed * s->bytes / (f->e_net * s->net_bytes_per_s));
    return f->launch_s + f->node_s * s->n_nodes + s->tokens * slowest;
}

/* ---- constants of a profile ---- */

const char *measured_sending_kernel(const measured_row *row) {
    if (strncmp(row->kernel, "DeepEP", 6) == 0) return "deepep";
    if (strstr(row->kernel, "NVLinkTwoSided")) return "two_sided";
    return strstr(row->kernel, "NVLinkOneSided") ? "one_sided" : NULL;
}

static bool curve_of(const ds_profiles *profiles, uint32_t profile, const measured_row *row,
                     const char *what, ds_cost_curve *out) {
    char name[64];
    const char *kernel = measured_sending_kernel(row);
    if (!kernel) return false;
    snprintf(name, sizeof name, "send_%s_%s_%s", kernel, row->op, what);
    return ds_profile_curve(profiles, profile, name, out);
}

bool measured_sending_fit_of(const ds_profiles *profiles, uint32_t profile, const measured_row *row,
                             bool between_nodes, measured_sending_fit *out) {
    ds_cost_curve link, copy, own, net = {0};
    if (!curve_of(profiles, profile, row, "link", &link) ||
        !curve_of(profiles, profile, row, "copy", &copy) ||
        !curve_of(profiles, profile, row, "own", &own))
        return false;
    if (between_nodes && !curve_of(profiles, profile, row, "net", &net)) return false;
    double rate = copy.reference_per_s * copy.e_max;
    *out = (measured_sending_fit){.launch_s = link.floor_s,
                                  .node_s = net.floor_s,
                                  .e_link = link.e_max,
                                  .e_net = net.e_max,
                                  .copy_s = copy.w_half / rate,
                                  .copy_bytes_per_s = rate,
                                  .own = rate / (own.reference_per_s * own.e_max)};
    return true;
}
