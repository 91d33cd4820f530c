/* `tokens { dim = t, prompt = P, batch = batch }`: which dim of a rec counts tokens. */
#ifndef DS_STRATEGY_TOKENS_H
#define DS_STRATEGY_TOKENS_H

#include "ir/base/diag.h"
#include "ir/core/ir.h"

typedef struct ds_tokens {
    bool is_given;   /* the scenario has a `tokens` */
    const char *dim; /* its turns are lo … hi - 1 */
    int64_t lo, hi;
    int64_t prompt; /* lo < prompt < hi: the turn prompt - 1 makes the first token */
    int64_t batch;
    ds_loc loc;
} ds_tokens;

/* Reads the scenario's. The unit must be verified and bound. Errors: a key that is missing, a dim
 * that no rec of the model has, a prompt outside the range of the dim, jobs. */
ds_status ds_tokens_read(const ds_binding *binding, ds_tokens *out, ds_error *err);

#endif
