#include "search/tag/weights.h"

#include "ir/base/output.h"
#include "ir/exec/npy.h"

#include <inttypes.h>
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

ds_status ds_tag_weights_read(const char *path, ds_tag_prior_kind kind, ds_tag_prior **out,
                              ds_error *err) {
    ds_exec_tensor tensor;
    DS_TRY(ds_npy_read(path, INT64_C(1) << 28, &tensor, err));
    ds_tag_prior *prior = ds_tag_prior_new(kind, 0);
    ds_nn_params *params = ds_tag_prior_params(prior);
    ds_status status = DS_OK;
    if (tensor.n != params->n)
        status = ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                              "%s has %" PRId64 " numbers: the network has %u", path, tensor.n,
                              params->n);
    for (uint32_t i = 0; i < params->n && status == DS_OK; i++) {
        params->value[i] = (float)tensor.at[i];
        if ((double)params->value[i] >= tensor.at[i] && (double)params->value[i] <= tensor.at[i])
            continue;
        status = ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "%s: number %u, %g, is no f32", path, i,
                              tensor.at[i]);
    }
    free(tensor.at);
    if (status == DS_OK)
        *out = prior;
    else
        ds_tag_prior_free(prior);
    return status;
}
