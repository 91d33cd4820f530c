/* The physical terms of a prediction that a scenario can switch off: `without = [launch, tiles]`.
 *
 * Each is a part of the cost model that measurements of single operations or of networks gave.
 * Without a term costs are what they are without that part of the model, so the difference of two
 * runs is the term's effect. `distsim validate --without` asks whether a term lowers errors on rows
 * that it was not made from. Whoever adds a term adds its line here and asks ds_profiles_has
 * (sim/cost/cost.h) where the term acts. */
#ifndef DS_STRATEGY_TERMS_H
#define DS_STRATEGY_TERMS_H

#include "ir/core/ir.h"

#define DS_TERM_MAP(X)                                                                             \
    X(CURVES, "curves", "fitted rates of operations; without: peaks of the data sheet")            \
    X(TILES, "tiles", "products by tiles and waves; without: an efficiency curve, or the peak")    \
    X(ATTENTION, "attention", "curves of attention; without: the curve of products")               \
    X(LAUNCH, "launch", "the least time of an operation; without: none")                           \
    X(HOST, "host", "the host's time to issue kernels; without: kernels wait for no host")         \
    X(KERNELS, "kernels", "kernels of the framework's stack; without: an operation is a kernel")   \
    X(CLOCKS, "clocks", "clocks that power limits allow; without: clocks of short measurements")   \
    X(STEP, "step", "operations take longer in steps than alone; without: equally long")           \
    X(VARIATION, "variation", "the slowest of many devices; without: devices of a kind are equal") \
    X(INTERFERENCE, "interference", "compute slows down beside transfers; without: neither")       \
    X(PROTOCOLS, "protocols", "fits of collectives; without: latency and bandwidth of the links")  \
    X(OVERLAP, "overlap", "transfers beside compute; without: in line, as `overlap = off`")        \
    X(BANDWIDTH, "bandwidth", "bytes on links; without: transfers take their latency alone")       \
    X(TRANSFERS, "transfers", "transfers; without: transfers take no time")                        \
    X(WAITS, "waits",                                                                              \
      "devices wait for each other; without: no waits, and each transfer has its links alone")

/* Bits of a set. */
typedef enum ds_term {
#define DS_X(id, name, doc) DS_TERM__AT_##id,
    DS_TERM_MAP(DS_X)
#undef DS_X
        DS_N_TERMS,
#define DS_X(id, name, doc) DS_TERM_##id = 1 << DS_TERM__AT_##id,
    DS_TERM_MAP(DS_X)
#undef DS_X
} ds_term;

/* The name ("curves") and the meaning of term i < DS_N_TERMS. */
const char *ds_term_name(uint32_t i);
const char *ds_term_doc(uint32_t i);
/* The set that the scenario's `without` names, and OVERLAP with `overlap = off`; 0 without the keys.
 * The unit must be verified. Errors: evaluation. */
ds_status ds_terms_read(const ds_binding *binding, uint32_t *out, ds_error *err);

#endif
