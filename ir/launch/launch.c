/* The table of frameworks. */
#include "ir/launch/internal.h"

#include <string.h>

typedef struct form {
    const char *name, *title, *version;
    ds_status (*read)(ds_launch *, const ds_launch_given *, const char *, size_t, ds_error *);
    ds_status (*write)(const ds_launch *, ds_buf *, ds_error *);
} form;

/* In the order of ds_launch_framework. */
static const form frameworks[] = {
    {"megatron", "Megatron-LM", "Megatron-LM, arguments of 2025-09 and 2026-08", ds_megatron__read,
     ds_megatron__write},
    {"torchtitan", "torchtitan", "torchtitan, configuration of 2025-11", ds_torchtitan__read,
     ds_torchtitan__write},
    {"deepspeed", "DeepSpeed", "DeepSpeed, configuration of 2026-08", ds_deepspeed__read,
     ds_deepspeed__write},
    {"fsdp", "PyTorch FSDP", "PyTorch, fully_shard of 2.6", ds_fsdp__read, ds_fsdp__write},
};

void ds_launch_init(ds_launch *launch, ds_launch_framework framework, ds_arena *arena) {
    *launch = (ds_launch){.framework = framework,
                          .tp = 1,
                          .pp = 1,
                          .cp = 1,
                          .dp = 1,
                          .ep = 1,
                          .virtual_stages = 1,
                          .scatter_gather = true,
                          .schedule = "1f1b",
                          .recompute = "none",
                          .recompute_layers = "all",
                          .offload_fraction = 1,
                          .cp_type = "ring",
                          .tp_overlap = "none",
                          .ep_dispatch = "all_to_all",
                          .dtype = "bf16",
                          .optimizer = "adam",
                          .arena = arena};
}

void ds_launch_deinit(ds_launch *launch) {
    ds_buf_deinit(&launch->ignored);
    ds_buf_deinit(&launch->notes);
}

const char *ds_launch_framework_name(ds_launch_framework framework) {
    return frameworks[framework].name;
}

bool ds_launch_framework_by_name(const char *name, ds_launch_framework *out) {
    for (size_t i = 0; i < sizeof frameworks / sizeof *frameworks; i++)
        if (strcmp(frameworks[i].name, name) == 0) {
            *out = (ds_launch_framework)i;
            return true;
        }
    return false;
}

const char *ds_launch_framework_title(ds_launch_framework framework) {
    return frameworks[framework].title;
}

const char *ds_launch_framework_version(ds_launch_framework framework) {
    return frameworks[framework].version;
}

ds_status ds_launch_read(ds_launch *launch, const ds_launch_given *given, const char *text,
                         size_t n, ds_error *err) {
    const char *copy = ds_arena_strndup(launch->arena, text, n); /* ends in a byte 0 */
    if (strlen(copy) != n)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "a byte 0: this is no text");
    text = copy;
    launch->source = given->source;
    DS_TRY(frameworks[launch->framework].read(launch, given, text, n, err));
    return ds_model_find_family(&launch->model, err);
}

ds_status ds_launch_write(const ds_launch *launch, ds_buf *out, ds_error *err) {
    bool deepep = strcmp(launch->ep_dispatch, "deepep") == 0;
    if (launch->framework != DS_LAUNCH_MEGATRON && (deepep || launch->ep_overlap))
        return ds_launch__lacks(launch, err, deepep ? "ep_dispatch" : "ep_overlap",
                                "tokens go to experts by all_to_all, in the order of compute");
    return frameworks[launch->framework].write(launch, out, err);
}
