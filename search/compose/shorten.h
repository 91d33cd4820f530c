/* A model with fewer layers and samples; not a public header.
 *
 * Both are params: with another value the model is another one. That says something of the step
 * only if nothing that the scenario says (its strategy, say) depends on them. Params that are
 * computed from them keep their values: right for what depends on the number of layers, but sizes
 * that are computed from the batch have to go with it, so no function may mention such. */
#ifndef DS_COMPOSE_SHORTEN_H
#define DS_COMPOSE_SHORTEN_H

#include "ir/strategy/strategy.h"

typedef struct ds_shorter_param {
    const ds_module *module; /* NULL: none */
    uint32_t index;
} ds_shorter_param;

typedef struct ds_shorter {
    ds_shorter_param layers;
    ds_shorter_param batch; /* none: as many samples as the step has */
    int64_t samples;        /* of a microbatch on one replica; 0 without a batch */
    int64_t replicas;       /* of the smaller step */
} ds_shorter;

/* The index of the model's loop over layers; NULL: it has none of the known form
 * (ds_find_layer_loop), or more than the loop depends on how many there are. O(size of all
 * functions and of the scenario). */
const char *ds_shorter_find_layers(const ds_binding *binding, ds_shorter *out);
int64_t ds_shorter_n_layers(const ds_binding *binding, const ds_shorter *less);
/* Replicas that hold the same and do the same need not be as many: two have something to reduce.
 * For that the batch must be a param, dim 0 of the inputs. With ZeRO replicas stay as they are.
 * O(as above). */
void ds_shorter_find_batch(const ds_binding *binding, const ds_strategy *s, ds_shorter *out);
/* Is it one of them? */
bool ds_shorter_has(const ds_shorter *less, const ds_module *module, uint32_t index);

/* Has the smaller step fewer replicas than the step may have? */
static inline bool ds_shorter_has_few(const ds_shorter *less, const ds_strategy *s) {
    return less->batch.module && !s->zero;
}
/* A binding with n layers, and samples for the replicas of the smaller step; to be freed. */
ds_binding ds_shorter_binding(const ds_binding *from, const ds_strategy *s, const ds_shorter *less,
                              int64_t n);
void ds_shorter_binding_free(ds_binding *binding);

#endif
