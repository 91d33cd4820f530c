/* Dispatch and combine of published tables, as sim/cost/exchange.h has them. */
#include "tools/measured/measured.h"

#include <string.h>

/* DeepEP's tests/test_internode.py draws the experts of a token from min(nodes, 4) nodes. Kernels of
 * one node alone have other tests. */
enum { MOST_NODES = 4 };

void measured_sending_of(const measured_row *row, int64_t n_nodes, ds_sending *out) {
    const measured_exchange *x = &row->exchange;
    /* A scale of 32 bits for 128 elements of 8, of 8 bits for 16 of 4. */
    double bits = (double)x->bits + (x->bits == 8 ? 32.0 / 128 : x->bits == 4 ? 8.0 / 16 : 0);
    const ds_exchange sent = {.experts = x->experts,
                              .top = x->topk,
                              .limit = MOST_NODES,
                              .bytes = (double)x->hidden * bits / 8};
    ds_sending_of(&sent, (double)x->group, (double)n_nodes, out);
    out->tokens = (double)x->tokens;
    out->blocks = (double)(x->blocks ? x->blocks : DS_SENDING_BLOCKS);
}

const char *measured_sending_kernel(const measured_row *row) {
    if (strncmp(row->kernel, "DeepEP", 6) == 0) return "deepep";
    if (strstr(row->kernel, "NVLinkTwoSided")) return "two_sided";
    return strstr(row->kernel, "NVLinkOneSided") ? "one_sided" : NULL;
}

bool measured_sending_fit_of(const ds_profiles *profiles, uint32_t profile, const measured_row *row,
                             bool between_nodes, ds_sending_fit *out) {
    const char *kernel = measured_sending_kernel(row);
    return kernel && ds_sending_fit_of(profiles, profile, kernel, row->op, between_nodes, out);
}
