/* Public models whose dims a table names and does not repeat.
 *
 * An entry has what the model's published config says, where that was read, and which model of the
 * library it is; or why there is none. Llama's rows have their dims themselves. */
#ifndef DS_VALIDATE_ZOO_H
#define DS_VALIDATE_ZOO_H

#include "ir/base/str.h"

typedef struct val_known_model {
    const char
        *name; /* a row's model begins so, but for case, blanks, - and _; the longest counts */
    const char *refused;                    /* why there is no scenario; NULL: there is one */
    const char *file;                       /* of scenarios/models, without .dir; NULL: moe */
    const char *entry;                      /* function of it */
    const char *with;                       /* more of its params, as ", dense = 3"; NULL: none */
    const char *entry_4_bits, *with_4_bits; /* with products of 4 bits; NULL: the same */
    const char *entry_generic; /* with a generic profile, whole; NULL: the same. Testbeds' constants
                                  were fitted to steps of `entry` */
    int64_t layers, hidden, heads, kv_heads, head_dim, ffn, experts, top, vocab;
    int64_t layers_a_turn; /* of the model's loops; 0: one */
    int64_t more_turns;    /* of loops behind the layers: multi-token prediction */
    /* Parameters in products of one layer beside the routed experts that every token goes through,
     * without attention's scores: for baselines. */
    double shared_params;
    /* Where layers differ: those of all layers together, routed experts too, and how many layers
     * have attention. 0: all are alike. */
    double active_params;
    int64_t attention_layers;
    const char *source;
} val_known_model;

/* NULL if the name is none of them. */
const val_known_model *val_known_model_of(const char *name);
/* Parameters of all layers' products that a token goes through. */
double val_known_active_params(const val_known_model *model);

#endif
