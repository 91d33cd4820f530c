/* Tokens to their experts and back: to each node once, over the rail of the sender's rank, and
 * from there to each device with an expert of the token's (DeepEP's normal kernels; shares of the
 * tokens: sim/cost/exchange.h). */
#include "sim/coll/internal.h"

#include <math.h>

static ds_status missing_words(const ds_coll_builder *b) {
    return ds_error_set(b->err, DS_ERR_UNSUPPORTED, b->request->loc,
                        "algorithm \"deepep\" sends tokens: the all_to_all must say `experts`, "
                        "`top`, `tokens`, `capacity` and `token_bytes`, as strategy.ep_dispatch "
                        "makes it");
}

static ds_status uneven_nodes(const ds_coll_builder *b) {
    return ds_error_set(b->err, DS_ERR_UNSUPPORTED, b->request->loc,
                        "algorithm \"deepep\" needs islands (nodes) with the same number of "
                        "members; this group of %u is in %u islands, of at most %u",
                        b->request->n, b->layout.n_islands, b->layout.most);
}

static ds_status bytes_of(const ds_coll_builder *b, double bytes, int64_t *out) {
    if (!(bytes < 0x1p62)) return ds_coll__too_large(b);
    *out = (int64_t)llround(bytes);
    return DS_OK;
}

/* Kernels forward what has come while more comes: one phase. Dispatch and combine load each pair of
 * members alike, both ways. */
ds_status ds_coll__deepep_algorithm(ds_coll_builder *b) {
    const ds_exchange *x = b->request->exchange;
    if (!x) return missing_words(b);
    const ds_layout *l = ds_coll__layout(b);
    uint32_t nodes = l->n_islands, each = l->most;
    if (!l->even) return uneven_nodes(b);
    double sent = ds_exchange_tokens(x, (double)b->request->bytes) * x->bytes;
    int64_t between = 0, inside = 0;
    DS_TRY(bytes_of(b, sent * ds_exchange_reach(x, nodes, nodes), &between));
    DS_TRY(bytes_of(b, sent * nodes * ds_exchange_reach(x, b->request->n, nodes), &inside));
    for (uint32_t m = 0; m < nodes; m++)
        for (uint32_t i = 0; i < each; i++) {
            for (uint32_t k = 1; k < each; k++)
                DS_TRY(ds_coll__post(b, l->member[m][i], l->member[m][(i + k) % each], inside));
            for (uint32_t k = 1; k < nodes; k++)
                DS_TRY(ds_coll__post(b, l->member[m][i], l->member[(m + k) % nodes][i], between));
        }
    ds_coll__end_phase(b, 1, (int64_t)each + nodes - 2);
    return DS_OK;
}
