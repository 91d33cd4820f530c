/* Machines and models by name. */
#include "tools/cli/plan/library.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const cli_machine machines[] = {
#define MACHINE(name, gpu, gpus, what) {name, gpu, what, gpus},
#include "tools/cli/plan/library.def"
};
static const cli_library_model models[] = {
#define MODEL(name, file, function, seq, with) {name, "models/" file ".dir", function, with, seq},
#include "tools/cli/plan/library.def"
};
#define N_MACHINES ((uint32_t)(sizeof machines / sizeof *machines))
#define N_MODELS   ((uint32_t)(sizeof models / sizeof *models))

const cli_library_model *cli_library_find_model(const char *name) {
    for (uint32_t i = 0; i < N_MODELS; i++)
        if (strcasecmp(models[i].name, name) == 0) return &models[i];
    return NULL;
}

const char *cli_library_suggest(const char *name) {
    const char *names[N_MODELS];
    for (uint32_t i = 0; i < N_MODELS; i++) names[i] = models[i].name;
    return ds_suggest(name, names, N_MODELS);
}

/* A machine, or the first word of its GPU ("H100"), that `name` may mean; NULL: none. In *out. */
static const char *near_machine(const char *name, char out[16]) {
    char words[N_MACHINES][16];
    const char *names[2 * N_MACHINES];
    for (uint32_t i = 0; i < N_MACHINES; i++) {
        snprintf(words[i], sizeof words[i], "%.*s", (int)strcspn(machines[i].gpu, "-"),
                 machines[i].gpu);
        names[2 * i] = machines[i].name;
        names[2 * i + 1] = words[i];
    }
    const char *near = ds_suggest(name, names, 2 * N_MACHINES);
    if (near) snprintf(out, 16, "%s", near);
    return near ? out : NULL;
}

static ds_status no_machine(const char *name, const char *gpu, ds_error *err) {
    char text[16];
    const char *near = gpu ? NULL : near_machine(name, text);
    ds_buf list = {0};
    for (uint32_t i = 0; i < N_MACHINES; i++)
        ds_buf_printf(&list, "%s%s (%s)", i ? ", " : "", machines[i].name, machines[i].gpu);
    ds_status status = ds_error_set(
        err, DS_ERR_NAME, DS_NOWHERE,
        "no machine %s '%s'%s%s%s; there are %s; --on FILE takes a machine of your own",
        gpu ? "has the GPU" : "and no GPU is called", gpu ? gpu : name,
        near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "", list.text);
    ds_buf_deinit(&list);
    return status;
}

ds_status cli_library_find_machine(const char *name, const ds_profiles *profiles,
                                   const cli_machine **out, ds_error *err) {
    uint32_t kind;
    for (uint32_t i = 0; i < N_MACHINES; i++)
        if (strcasecmp(machines[i].name, name) == 0) return *out = &machines[i], DS_OK;
    ds_error ignored;
    if (ds_profiles_find_kind(profiles, name, DS_NOWHERE, &kind, &ignored) != DS_OK)
        return no_machine(name, NULL, err);
    const char *gpu = ds_profiles_kind(profiles, kind)->name;
    for (uint32_t i = 0; i < N_MACHINES; i++)
        if (strcmp(machines[i].gpu, gpu) == 0) return *out = &machines[i], DS_OK;
    return no_machine(name, gpu, err);
}

void cli_library_put_models(ds_buf *out) {
    for (uint32_t i = 0; i < N_MODELS; i++)
        ds_buf_printf(out, "%-16s @%s of %s, sequences of %" PRId64 "\n", models[i].name,
                      models[i].function, models[i].file, models[i].seq);
}

void cli_library_put_machines(ds_buf *out) {
    for (uint32_t i = 0; i < N_MACHINES; i++)
        ds_buf_printf(out, "%-12s %-16s %s\n", machines[i].name, machines[i].gpu, machines[i].what);
}
