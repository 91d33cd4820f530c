#include "search/tag/weights.h"

#include "ir/base/output.h"
#include "ir/exec/npy.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

ds_status ds_tag_weights_write(ds_tag_prior *prior, const char *path, ds_error *err) {
    const ds_nn_params *params = ds_tag_prior_params(prior);
    ds_exec_tensor tensor = {.dtype = DS_F32, .rank = 1, .dims = {params->n}, .n = params->n};
    ds_buf text = {0};
    tensor.at = ds_xcalloc(params->n, sizeof *tensor.at);
    for (uint32_t i = 0; i < params->n; i++) tensor.at[i] = (double)params->value[i];
    ds_npy_print(&tensor, &text);
    free(tensor.at);
    ds_status status = ds_output_write(path, DS_OUTPUT_OVERWRITE, text.text, text.n, err);
    ds_buf_deinit(&text);
    return status;
}

/* The network that has so many parameters; NULL: none has. */
static ds_tag_prior *prior_of(int64_t n) {
    for (uint32_t kind = 0; kind < DS_TAG_N_PRIORS; kind++) {
        ds_tag_prior *prior = ds_tag_prior_new((ds_tag_prior_kind)kind, 0);
        if (ds_tag_prior_params(prior)->n == n) return prior;
        ds_tag_prior_free(prior);
    }
    return NULL;
}

/* NaN is no f32 either. */
static ds_status set_params(const ds_exec_tensor *tensor, const char *path, ds_nn_params *params,
                            ds_error *err) {
    for (uint32_t i = 0; i < params->n; i++) {
        double value = tensor->at[i];
        if (!(fabs(value) <= FLT_MAX) || fabs((double)(float)value - value) > 0)
            return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "%s: number %u, %g, is no f32", path,
                                i, value);
        params->value[i] = (float)value;
    }
    return DS_OK;
}

ds_status ds_tag_weights_read(const char *path, ds_tag_prior **out, ds_error *err) {
    ds_exec_tensor tensor;
    DS_TRY(ds_npy_read(path, INT64_C(1) << 28, &tensor, err));
    ds_tag_prior *prior = prior_of(tensor.n);
    ds_status status =
        prior ? set_params(&tensor, path, ds_tag_prior_params(prior), err)
              : ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                             "%s has %" PRId64 " numbers: no network has as many parameters", path,
                             tensor.n);
    free(tensor.at);
    if (status == DS_OK)
        *out = prior;
    else
        ds_tag_prior_free(prior);
    return status;
}
