/* PyTorch FSDP: settings of torch.distributed.fsdp.fully_shard. A training script of one's own has
 * them, so they are written and not read. */
#include "ir/launch/internal.h"

#include <inttypes.h>
#include <string.h>

ds_status ds_fsdp__read(ds_launch *launch, const ds_launch_given *given, const char *text, size_t n,
                        ds_error *err) {
    (void)launch;
    (void)given;
    (void)text;
    (void)n;
    return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                        "the settings of FSDP are in a program of one's own: they are not read");
}

static const char *torch_dtype(const char *dtype) {
    return strcmp(dtype, "bf16") == 0  ? "torch.bfloat16"
           : strcmp(dtype, "f16") == 0 ? "torch.float16"
                                       : "torch.float32";
}

static ds_status check(const ds_launch *l, ds_error *err) {
    const int64_t degrees[] = {l->tp, l->pp, l->cp, l->ep};
    static const char *const names[] = {"tp", "pp", "cp", "ep"};
    for (int i = 0; i < 4; i++)
        if (degrees[i] > 1) return ds_launch__lacks(l, err, names[i], "it has replicas alone");
    if (l->zero < 3 && l->dp > 1)
        return ds_launch__lacks(l, err, "zero", "it shares gradients and weights out");
    if (strcmp(l->recompute, "none") != 0 && strcmp(l->recompute, "full") != 0)
        return ds_launch__lacks(l, err, "recompute", "whole layers are computed again, or none");
    if (l->bucket_bytes) return ds_launch__lacks(l, err, "bucket_size", "a unit is a layer");
    if (l->offload && strcmp(l->offload, "[optimizer, weights]") != 0)
        return ds_launch__lacks(l, err, "offload",
                                "its CPUOffloadPolicy has optimizer and weights at hosts");
    if (l->offload && l->offload_fraction < 1)
        return ds_launch__lacks(l, err, "offload_fraction",
                                "its CPUOffloadPolicy has all states at hosts");
    return DS_OK;
}

/* The condition of a layer, number i, that runs again; "": all layers. fms-fsdp's and torchtitan's
 * rules, in Python. */
static const char *layers_again(const ds_launch *l, ds_arena *arena) {
    const char *text = l->recompute_layers, *value = strchr(text, ':');
    if (!value++) return "";
    if (strncmp(text, "first", 5) == 0) return ds_arena_printf(arena, "if i < %s: ", value);
    if (strncmp(text, "one_in", 6) == 0)
        return ds_arena_printf(arena, "if (i + 1) %% %s == 0: ", value);
    return ds_arena_printf(arena, "if int((i + 1) * %s + 0.5) > int(i * %s + 0.5): ", value, value);
}

ds_status ds_fsdp__write(const ds_launch *l, ds_buf *out, ds_error *err) {
    int64_t group = l->zero_group ? l->zero_group : l->dp;
    const char *offload = l->offload ? ", offload_policy=CPUOffloadPolicy()" : "";
    DS_TRY(check(l, err));
    ds_launch__put_torchrun(l, out);
    ds_buf_put(out, " train.py\n");
    ds_buf_printf(out,
                  "mesh = init_device_mesh(\"cuda\", (%" PRId64 ", %" PRId64
                  "), mesh_dim_names=(\"replicate\", \"shard\"))\n",
                  l->dp / group, group);
    ds_buf_printf(out,
                  "policy = MixedPrecisionPolicy(param_dtype=%s, reduce_dtype=%s)\n"
                  "for i, layer in enumerate(model.layers):\n",
                  torch_dtype(l->dtype), torch_dtype(l->grad_dtype ? l->grad_dtype : l->dtype));
    if (strcmp(l->recompute, "full") == 0)
        ds_buf_printf(out, "    %scheckpoint(layer)  # torch.distributed._composable\n",
                      layers_again(l, l->arena));
    ds_buf_printf(
        out,
        "    fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=%s%s)\n"
        "fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=%s%s)\n",
        l->reshard && strcmp(l->reshard, "never") == 0 ? "False" : "True", offload,
        l->reshard && strcmp(l->reshard, "always") != 0 ? "False" : "True", offload);
    ds_buf_printf(out,
                  "# sequences of %" PRId64 " tokens; %" PRId64
                  " sequences a device and turn, %" PRId64 " turns a step\n",
                  l->seq, l->microbatch, l->batch / (l->dp * l->microbatch));
    return DS_OK;
}
