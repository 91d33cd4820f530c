/* Weights of priors as .npy files. */
#ifndef DS_SEARCH_TAG_WEIGHTS_H
#define DS_SEARCH_TAG_WEIGHTS_H

#include "search/tag/prior.h"

/* A vector of all parameters, as doubles, which hold f32 exactly. Errors: DS_ERR_IO. */
ds_status ds_tag_weights_write(ds_tag_prior *prior, const char *path, ds_error *err);
/* The number of parameters says which network. Errors: those of ds_npy_read; DATA for a number that
 * no network has, or a parameter that is no f32. */
ds_status ds_tag_weights_read(const char *path, ds_tag_prior **out, ds_error *err);

#endif
