/* Two simulations in two threads, each with its own unit and topology, sharing the profiles: the
 * library has no mutable globals of its own, so ThreadSanitizer must stay silent and both must
 * agree. igraph, which has some, is entered by both (sim/topo/analyze.c has its mutex). */
#include "ir/lang/lang.h"
#include "ir/verify/verify.h"
#include "sim/run/run.h"

#include <pthread.h>
#include <stdio.h>

typedef struct job {
    const ds_profiles *profiles;
    int64_t step_ps[4];
    int64_t bisection_bytes_per_s[4];
    bool failed;
} job;

static const char *const files[] = {"gpt3-layer-tp8.dir", "pipeline-2x4.dir", "mixed-box-dp.dir",
                                    "out-of-memory.dir"};

static ds_status analyze(ds_topo *topo, int64_t *bisection_bytes_per_s, ds_error *err) {
    bool connected;
    uint32_t a, b;
    DS_TRY(ds_topo_connected(topo, &connected, &a, &b, err));
    if (!connected)
        return ds_error_set(err, DS_ERR_UNREACHABLE, DS_NOWHERE, "%s does not reach %s",
                            ds_topo_device_path(topo, a), ds_topo_device_path(topo, b));
    return ds_topo_bisection(topo, bisection_bytes_per_s, err);
}

static ds_status simulate(job *j, const char *file, int i, ds_error *err) {
    char path[1024];
    snprintf(path, sizeof path, "%s/scenarios/%s", DS_SOURCE_DIR, file);
    ds_unit *unit = NULL;
    ds_diags diags;
    ds_binding binding;
    ds_result *result = NULL;
    ds_sim_options options = {0};
    ds_diags_init(&diags);
    ds_status status = ds_load_file(path, NULL, &unit, err);
    if (status == DS_OK) status = ds_verify(unit, &diags);
    if (status == DS_OK) status = ds_bind(unit, NULL, 0, &binding, err);
    if (status == DS_OK) status = ds_verify_bound(unit, &binding, &diags);
    if (status == DS_OK) status = ds_simulate(&binding, j->profiles, &options, &result, err);
    if (status == DS_OK) j->step_ps[i] = result->run.step_ps;
    if (status == DS_OK) status = analyze(result->plan->topo, &j->bisection_bytes_per_s[i], err);
    ds_result_free(result);
    ds_diags_deinit(&diags);
    ds_unit_free(unit);
    return status;
}

static void *work(void *argument) {
    job *j = argument;
    for (int i = 0; i < 4; i++) {
        ds_error err = {0};
        if (simulate(j, files[i], i, &err) != DS_OK) {
            fprintf(stderr, "%s: %s\n", files[i], err.message);
            j->failed = true;
        }
    }
    return NULL;
}

int main(void) {
    ds_error err;
    ds_profiles *profiles;
    if (ds_profiles_load(DS_BUILD_PROFILES, &profiles, &err) != DS_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    job jobs[2] = {{.profiles = profiles}, {.profiles = profiles}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, work, &jobs[i]);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    ds_profiles_free(profiles);
    int wrong = jobs[0].failed || jobs[1].failed;
    for (int i = 0; i < 4; i++) {
        printf("%s: %lld ps, bisection %lld bytes/s\n", files[i], (long long)jobs[0].step_ps[i],
               (long long)jobs[0].bisection_bytes_per_s[i]);
        wrong |= jobs[0].step_ps[i] != jobs[1].step_ps[i] || jobs[0].step_ps[i] <= 0;
        wrong |= jobs[0].bisection_bytes_per_s[i] != jobs[1].bisection_bytes_per_s[i];
    }
    return wrong;
}
