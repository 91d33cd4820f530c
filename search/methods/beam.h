/* Beam search (search/methods/beam.c). */
#ifndef DS_SEARCH_METHODS_BEAM_H
#define DS_SEARCH_METHODS_BEAM_H

#include "search/bound/bounds.h"
#include "search/methods/method.h"

/* Decides dimension after dimension: of all prefixes the `width` (0: 16) best are kept. A prefix is
 * worth what the best candidate is worth that is known to begin with it; one whose bound (bounds.h)
 * is no better than the best candidate so far is dropped unseen. Passes are repeated from the best
 * candidate on until one brings nothing. By the first objective. What is drawn follows from `seed`.
 * Errors: those of ds_bounds_new. */
ds_status ds_beam_new(const ds_eval_source *source, ds_space *space, uint64_t seed, uint32_t width,
                      ds_method **out, ds_error *err);

#endif
