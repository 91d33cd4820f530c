/* Programs through the whole simulator: what verifies is planned, run, accounted and reported, or
 * refused with an error; never a crash, a leak or a hang. Sizes are bounded by max_instances. */
#include "ir/lang/lang.h"
#include "ir/lang/verify.h"
#include "sim/report/report.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Loaded once and shared: it is immutable. The pointer keeps it reachable for LeakSanitizer. */
static const ds_profiles *profiles(void) {
    static ds_profiles *loaded;
    ds_error err;
    if (!loaded && ds_profiles_load(DS_BUILD_PROFILES, &loaded, &err) != DS_OK) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    return loaded;
}

static void conserve(const ds_result *r) {
    for (uint32_t c = 0; c < r->plan->n_classes; c++) {
        const ds_account *a = &r->accounts[c];
        if (a->compute_ps + a->exposed_comm_ps + a->idle_ps != r->run.step_ps || a->idle_ps < 0)
            abort();
    }
}

static void simulate(const ds_binding *binding, bool unfold) {
    ds_sim_options options = {.max_instances = 3000, .unfold = unfold};
    ds_result *result;
    ds_error err = {0};
    if (ds_simulate(binding, profiles(), &options, &result, &err) != DS_OK) return;
    conserve(result);
    ds_buf text = {0};
    ds_report_summary(result, &text);
    ds_report_json(result, &text);
    ds_report_csv(result, &text);
    ds_report_trace(result, &text);
    ds_report_explain(result, "*", &text);
    ds_buf_deinit(&text);
    ds_result_free(result);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ds_unit *unit = ds_unit_new();
    ds_module *module = ds_unit_add_module(unit, "fuzz.dir", (const char *)data, size);
    ds_diags diags;
    ds_binding binding;
    ds_diags_init(&diags);
    if (ds_parse(module, NULL) == DS_OK && module->imports.n == 0 &&
        ds_verify(unit, &diags) == DS_OK && ds_bind(unit, NULL, 0, &binding, NULL) == DS_OK &&
        ds_verify_bound(unit, &binding, &diags) == DS_OK) {
        simulate(&binding, false);
        simulate(&binding, true);
    }
    ds_diags_deinit(&diags);
    ds_unit_free(unit);
    return 0;
}
