/* Programs through the whole simulator: what verifies is planned, run, accounted and reported, or
 * refused with an error; never a crash, a leak or a hang. Sizes are bounded by max_instances.
 *
 * A first byte below 8 says which program of the corpus the others edit; else the input is the
 * program. */
#include "ir/lang/lang.h"
#include "ir/strategy/jitter.h"
#include "ir/verify/verify.h"
#include "sim/report/report.h"
#include "tests/fuzz/support.h"

#include <stdio.h>
#include <stdlib.h>

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

/* Some of the runs with jitter that the scenario asks for. */
static void shake(const ds_binding *binding, ds_result *result) {
    ds_jitter jitter;
    ds_error err;
    if (ds_jitter_read(binding, &jitter, &err) != DS_OK || !jitter.is_given) return;
    if (jitter.runs > 5) jitter.runs = 5;
    ds_jitter_runs(result, &jitter, 1, &err);
}

static void simulate(const ds_binding *binding, bool unfold) {
    ds_sim_options options = {.max_instances = 3000, .unfold = unfold};
    ds_result *result;
    ds_error err = {0};
    if (ds_simulate(binding, profiles(), &options, &result, &err) != DS_OK) return;
    fuzz_check_result(result);
    if (!unfold) shake(binding, result);
    ds_buf text = {0};
    ds_report_summary(result, &text);
    ds_report_json(result, &text);
    ds_report_csv(result, &text);
    ds_report_trace(result, &text);
    ds_report_explain(result, "*", &text);
    ds_buf_deinit(&text);
    ds_result_free(result);
}

static const char *const names[] = {"collectives",   "jobs", "jitter", "pipeline-2x4",
                                    "across_slices", "work", "ranks",  "distir-mlp"};

static const ds_buf *program(uint32_t i) {
    static ds_buf texts[FUZZ_COUNT(names)];
    char path[64];
    snprintf(path, sizeof path, "tests/fuzz/corpus/run/%s.dir", names[i]);
    if (!texts[i].n) fuzz_read_lines(path, 0, 0, 1000, &texts[i]);
    return &texts[i];
}

static void run(const char *text, size_t n) {
    ds_unit *unit = ds_unit_new();
    ds_module *module = ds_unit_add_module(unit, "fuzz.dir", text, n);
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
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_bytes bytes = {data, size};
    ds_buf text = {0};
    if (!size || data[0] >= FUZZ_COUNT(names)) {
        run((const char *)data, size);
        return 0;
    }
    const ds_buf *base = program(fuzz_byte(&bytes));
    ds_buf_put_n(&text, base->text, base->n);
    fuzz_edit(&bytes, " ,;{}[]()=\"@%:.", &text);
    run(text.text, text.n);
    ds_buf_deinit(&text);
    return 0;
}
