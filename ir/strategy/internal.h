/* Shared by the files of this folder; not a public header. */
#ifndef DS_STRATEGY_INTERNAL_H
#define DS_STRATEGY_INTERNAL_H

#include "ir/strategy/knobs.h"

/* ---- readers of knobs with a syntax of their own (strategy.c, group.c) ---- */

ds_knob_reader ds_knobs__read_degree, ds_knobs__read_stage_layers, ds_knobs__read_widths,
    ds_knobs__read_elsewhere, ds_knobs__read_shares, ds_knobs__read_recompute,
    ds_knobs__read_recompute_layers, ds_knobs__read_lora_targets, ds_knobs__read_lengths,
    ds_knobs__read_offload, ds_knobs__read_order, ds_knobs__read_groups;

/* Where the scenario says the knob; DS_NOWHERE if it does not. */
ds_loc ds_knobs__loc(const ds_binding *binding, const ds_knob *knob);

/* ---- words of a line of the table (idle.c) ---- */

/* Calls of this step through "a b c". False: there are no more. */
bool ds_knobs__next_word(const char **at, const char **word, size_t *n);
bool ds_knobs__is_word(const char *word, size_t n, const char *text);
bool ds_knobs__has_word(const char *words, const char *text);

/* turns.c. What a pipeline without training has no form of: DS_ERR_UNSUPPORTED at the knob. */
ds_status ds_strategy__check_turns(const ds_binding *binding, const ds_strategy *strategy,
                                   ds_error *err);

#endif
