/* A sweep with four workers, for ThreadSanitizer: candidates, outcomes and profiles are shared
 * without locks, handed over by the pool's semaphores alone. */
#include "search/driver/sweep.h"

#include "ir/verify/verify.h"

#include <stdio.h>

static const char text[] =
    "dir 1\n"
    "param dp = 1, tp = 1, pp = 1, microbatches = 1, batch = 64\n"
    "import \"models/mlp.dir\" as mlp with layers = 4, batch = batch, width = 512\n"
    "topology @box { device gpu[4] : \"V100-SXM2-16GB\"\n"
    "  switch s\n  link gpu[i] -- s : 100 GB/s, 1 us for i in 0..4 }\n"
    "scenario { model = @mlp.mlp, on = @box, train { loss = mse, optimizer = adam }\n"
    "  strategy { dp = dp, tp = tp, pp = pp, microbatches = microbatches } }\n"
    "sweep { dp in 1..5, tp in [1, 2, 4], pp in [1, 2] where dp * tp * pp <= world\n"
    "  microbatches in powers_of_two(1, 16), schedule in [\"1f1b\", gpipe]\n"
    "  minimize step_time, minimize peak_memory }\n";

static int explore(const ds_binding *binding, const ds_profiles *profiles, ds_error *err) {
    ds_sweep_subject subject = {.binding = binding,
                                .path = DS_SOURCE_DIR "/scenarios/test.dir",
                                .text = text,
                                .text_n = sizeof text - 1,
                                .profiles = profiles};
    ds_sweep_options options = {.path = "/dev/null", .overwrite = true, .n_workers = 4, .check = 3};
    ds_sweep_result result;
    ds_status status = ds_sweep_run(&subject, &options, &result, err);
    if (status == DS_OK)
        printf("%u rows, %u ok\n", (unsigned)result.rows, (unsigned)result.n[DS_VERDICT_OK]);
    bool right = status == DS_OK && result.complete && result.n[DS_VERDICT_OK] > 20;
    ds_sweep_result_deinit(&result);
    return right ? 0 : 1;
}

int main(void) {
    ds_unit *unit = NULL;
    ds_profiles *profiles = NULL;
    ds_binding binding;
    ds_diags diags;
    ds_error err = {.message = "verification"};
    int failed = 1;
    ds_diags_init(&diags);
    ds_status status =
        ds_load_text(DS_SOURCE_DIR "/scenarios/test.dir", text, sizeof text - 1, NULL, &unit, &err);
    if (status == DS_OK) status = ds_verify(unit, &diags);
    if (status == DS_OK) status = ds_bind(unit, NULL, 0, &binding, &err);
    if (status == DS_OK) status = ds_profiles_load(DS_BUILD_PROFILES, &profiles, &err);
    if (status == DS_OK) failed = explore(&binding, profiles, &err);
    if (failed) fprintf(stderr, "%s\n", err.message);
    ds_diags_deinit(&diags);
    ds_profiles_free(profiles);
    ds_unit_free(unit);
    return failed;
}
