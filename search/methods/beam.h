/* Beam search (search/methods/beam.c). */
#ifndef DS_SEARCH_METHODS_BEAM_H
#define DS_SEARCH_METHODS_BEAM_H

#include "search/bound/bounds.h"
#include "search/methods/method.h"

/* Decides dimension after dimension and keeps the `width` (0: 16) best prefixes by the first
 * objective. A prefix is worth as much as a simulated candidate that begins with the prefix; a
 * prefix whose bound (bounds.h) is no better than the best candidate so far is dropped unseen.
 * Passes repeat from the best candidates on until a pass brings nothing. All draws follow from
 * `seed`. Errors: those of ds_bounds_new. */
ds_status ds_beam_new(const ds_eval_source *source, ds_space *space, uint64_t seed, uint32_t width,
                      ds_method **out, ds_error *err);

#endif
