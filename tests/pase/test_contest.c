/* What is found under the simulator's costs, simulated beside what others would do. */
#include "tests/support/cases.h"
#include "tools/pase/contest.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static const char *const models[] = {
    "import \"models/mlp.dir\" as m with layers = 4, width = 4096, batch = 512\n"
    "scenario {\n  model = @m.mlp\n  train { loss = mse, optimizer = sgd }\n",
    "import \"models/alexnet.dir\" as m with classes = 1024, batch = 256\n"
    "scenario {\n  model = @m.alexnet\n  train { optimizer = adam, dtype = bf16 }\n",
    "import \"models/gpt.dir\" as m with layers = 4, vocab = 50304, batch = 16\n"
    "scenario {\n  model = @m.gpt\n  train { optimizer = adam, dtype = bf16 }\n",
};

/* Eight boxes, a NIC of 25 GB/s a device. */
#define POD                                                                                        \
    "topology @pod {\n  node n[8] : @dgx_a100\n  switch net\n"                                     \
    "  link n[i].nic[j] -- net : 25 GB/s, 1 us for i in 0..8, j in 0..8\n}\n"

static void expect_best(const char *model, int64_t devices, const ds_profiles *profiles) {
    char text[1024];
    ds_pase_contest c;
    ds_error err = {0};
    bool pod = devices == 64;
    snprintf(text, sizeof text,
             "dir 1\nimport \"topologies/dgx-a100.dir\"\n%s%s  on = @%s\n"
             "  profile = \"A100-SXM4-80GB\"\n  strategy { dp = %d }\n}\n",
             pod ? POD : "", model, pod ? "pod" : "dgx_a100", (int)devices);
    ds_pase_source source = {
        .path = DS_SOURCE_DIR "/scenarios/contest.dir", .text = text, .n = strlen(text)};
    cr_assert_eq(ds_pase_contest_run(&source, profiles, devices, &c, &err), DS_OK, "%s",
                 err.message);
    const ds_pase_entry *others[] = {&c.data, &c.expert, &c.grid};
    for (int i = 0; i < 3; i++) {
        cr_expect_gt(others[i]->time.step_ps, 0, "%s: nothing runs", model);
        cr_expect_leq(c.found.time.step_ps, others[i]->time.step_ps, "%s: %lld ps, %s takes %lld",
                      model, (long long)c.found.time.step_ps, others[i]->name,
                      (long long)others[i]->time.step_ps);
    }
    cr_expect(c.found.time.fits);
}

Test(pase_contest, found_is_as_fast) {
    ds_profiles *profiles = NULL;
    ds_error err = {0};
    cr_assert_eq(ds_profiles_load(DS_BUILD_PROFILES, &profiles, &err), DS_OK, "%s", err.message);
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) expect_best(models[i], 8, profiles);
    ds_profiles_free(profiles);
}

/* The batch grows with the devices. */
static const char *const large[] = {
    "import \"models/alexnet.dir\" as m with classes = 1024, batch = 2048\n"
    "scenario {\n  model = @m.alexnet\n  train { optimizer = adam, dtype = bf16 }\n",
    "import \"models/mixtral.dir\" as m with layers = 1, batch = 64\n"
    "scenario {\n  model = @m.mixtral\n  train { optimizer = adam, dtype = bf16 }\n",
};

Test(pase_contest, found_is_as_fast_on_64) {
    ds_profiles *profiles = NULL;
    ds_error err = {0};
    size_t n = FEW_CASES ? 1 : sizeof large / sizeof *large;
    cr_assert_eq(ds_profiles_load(DS_BUILD_PROFILES, &profiles, &err), DS_OK, "%s", err.message);
    for (size_t i = 0; i < n; i++) expect_best(large[i], 64, profiles);
    ds_profiles_free(profiles);
}
