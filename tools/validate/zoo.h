/* Public models whose dims a table names and does not repeat.
 *
 * An entry has what the model's published config says, where that was read, and which model of the
 * library it is; or why there is none. Llama's rows have their dims themselves. */
#ifndef DS_VALIDATE_ZOO_H
#define DS_VALIDATE_ZOO_H

#include "ir/base/str.h"

typedef struct val_known_model {
    const char *name;    /* a row's model begins so, without case; the longest counts */
    const char *refused; /* why there is no scenario; NULL: there is one */
    const char *entry;   /* function of scenarios/models/moe.dir */
    const char *with;    /* more of its params, as ", dense = 3"; NULL: none */
    int64_t layers, hidden, heads, kv_heads, head_dim, ffn, experts, top, vocab;
    int64_t layers_a_turn; /* of the model's loops; 0: one */
    int64_t more_turns;    /* of loops behind the layers: multi-token prediction */
    /* Parameters in products of one layer beside the routed experts that every token goes through,
     * without attention's scores: for baselines. */
    double shared_params;
    const char *source;
} val_known_model;

/* NULL if the name is none of them. */
const val_known_model *val_known_model_of(const char *name);
/* Parameters of one layer's products that a token goes through. */
double val_known_active_params(const val_known_model *model);

#endif
