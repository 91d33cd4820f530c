#include "tests/support/sim.h"

#include "ir/lang/lang.h"
#include "ir/verify/verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SETTINGS 16

/* The profiles that the build makes, once for all cases of a process: to load them takes longer than
 * most cases. */
static ds_profiles *built;

static ds_status load_profiles(sim_case *c, const char *db) {
    if (strcmp(db, DS_BUILD_PROFILES) != 0) return ds_profiles_load(db, &c->profiles, &c->err);
    if (!built) DS_TRY(ds_profiles_load(db, &built, &c->err));
    c->profiles = built;
    return DS_OK;
}

static void first_diag(sim_case *c, const ds_diags *diags) {
    for (uint32_t i = 0; i < diags->all.n; i++) {
        const ds_diag *d = &diags->all.at[i];
        if (d->severity != DS_SEV_ERROR) continue;
        c->status = ds_error_set(&c->err, d->code, d->loc, "%s", d->message);
        return;
    }
}

static void run(sim_case *c, const char *settings, bool unfold, const char *db) {
    char copy[512];
    ds_setting list[MAX_SETTINGS];
    uint32_t n = 0;
    snprintf(copy, sizeof copy, "%s", settings ? settings : "");
    for (char *word = strtok(copy, " "); word && n < MAX_SETTINGS; word = strtok(NULL, " ")) {
        char *equals = strchr(word, '=');
        *equals = '\0';
        list[n++] = (ds_setting){word, equals + 1};
    }
    ds_diags diags;
    ds_diags_init(&diags);
    if (ds_verify(c->unit, &diags) != DS_OK) first_diag(c, &diags);
    if (c->status == DS_OK) c->status = ds_bind(c->unit, list, n, &c->binding, &c->err);
    if (c->status == DS_OK && ds_verify_bound(c->unit, &c->binding, &diags) != DS_OK)
        first_diag(c, &diags);
    ds_diags_deinit(&diags);
    if (c->status == DS_OK) c->status = load_profiles(c, db);
    ds_sim_options options = {.unfold = unfold};
    if (c->status == DS_OK) c->status = ds_sim_options_read(&c->binding, &options, &c->err);
    if (c->status == DS_OK)
        c->status = ds_simulate(&c->binding, c->profiles, &options, &c->result, &c->err);
    if (c->status != DS_OK)
        printf("%s: line %u: %s\n", ds_status_name(c->status), c->err.loc.line, c->err.message);
}

static void run_text(sim_case *c, const char *text, const char *settings, bool unfold,
                     const char *db) {
    *c = (sim_case){0};
    c->status = ds_load_text(DS_SOURCE_DIR "/scenarios/test.dir", text, strlen(text), NULL,
                             &c->unit, &c->err);
    if (c->status == DS_OK)
        run(c, settings, unfold, db);
    else
        printf("line %u: %s\n", c->err.loc.line, c->err.message);
}

void sim_run_text(sim_case *c, const char *text, const char *settings, bool unfold) {
    run_text(c, text, settings, unfold, DS_BUILD_PROFILES);
}

void sim_run_with(sim_case *c, const char *text, const char *db) {
    run_text(c, text, NULL, false, db);
}

void sim_run_file(sim_case *c, const char *file, const char *settings, bool unfold) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", DS_SOURCE_DIR, file);
    *c = (sim_case){0};
    c->status = ds_load_file(path, NULL, &c->unit, &c->err);
    if (c->status == DS_OK)
        run(c, settings, unfold, DS_BUILD_PROFILES);
    else
        printf("%s:%u: %s\n", file, c->err.loc.line, c->err.message);
}

void sim_free(sim_case *c) {
    ds_result_free(c->result);
    if (c->profiles != built) ds_profiles_free(c->profiles);
    ds_unit_free(c->unit);
}

uint32_t sim_task(const sim_case *c, const char *device, const char *suffix) {
    const ds_plan *plan = c->result->plan;
    uint32_t found = UINT32_MAX, n = 0;
    for (uint32_t t = 0; t < plan->n_tasks; t++) {
        const ds_class *cls = &plan->classes[plan->task_class[t]];
        if (device && strcmp(ds_topo_device_path(plan->topo, cls->device), device) != 0) continue;
        ds_buf path = {0};
        ds_plan_path(plan, plan->task_inst[t], &path);
        size_t k = strlen(suffix);
        if (path.n >= k && strcmp(path.text + path.n - k, suffix) == 0) {
            found = t;
            n++;
        }
        ds_buf_deinit(&path);
    }
    if (n != 1) printf("%u tasks end in \"%s\" on %s\n", n, suffix, device ? device : "any device");
    return n == 1 ? found : UINT32_MAX;
}
