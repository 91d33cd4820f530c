/* A model of the language as TAG's problem: published sizes, and times of the simulator on one
 * device. */
#include "search/tag/model.h"
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define VGG19                                                                                      \
    "dir 1\nparam batch = 48\nimport \"models/vgg19.dir\" with batch = batch\n"                    \
    "import \"topologies/mixed-box.dir\"\n"                                                        \
    "topology @one { device gpu : \"%s\" }\n"                                                      \
    "scenario { model = @vgg19, on = @%s, train { optimizer = sgd }, profile = ideal }\n"

static ds_tag_model *read(const char *text, const ds_profiles *profiles) {
    ds_pase_source source = {
        .path = DS_SOURCE_DIR "/scenarios/test.dir", .text = text, .n = strlen(text)};
    ds_tag_model *model;
    ds_error err;
    cr_assert_eq(ds_tag_model_read(&source, profiles, &model, &err), DS_OK, "%s", err.message);
    return model;
}

static ds_tag_model *read_vgg19(ds_profiles **profiles) {
    char text[1000];
    ds_error err;
    cr_assert_eq(ds_profiles_load(DS_BUILD_PROFILES, profiles, &err), DS_OK, "%s", err.message);
    snprintf(text, sizeof text, VGG19, "P100-PCIE-16GB", "mixed");
    return read(text, *profiles);
}

/* Source: 143,667,240 parameters in 38 tensors (Simonyan and Zisserman 2014, table 2: 144 million),
 * 4 bytes each. */
Test(tag_model, vgg19_has_its_gradients) {
    ds_profiles *profiles;
    ds_tag_model *m = read_vgg19(&profiles);
    const ds_tag_graph *g = &m->problem.graph;
    uint32_t sums = 0;
    int64_t bytes = 0, params = 0;
    for (uint32_t i = 0; i < g->n_ops; i++) {
        params += g->op[i].param_bytes;
        if (g->op[i].result != DS_TAG_SUM || g->op[i].result_bytes < 100) continue;
        sums++;
        bytes += g->op[i].result_bytes;
    }
    cr_assert_eq(sums, 38);
    cr_assert_eq(bytes, 574668960);
    cr_assert_eq(params, 574668960);
    ds_tag_model_free(m);
    ds_profiles_free(profiles);
}

static double us_of(const ds_tag_model *m, uint32_t kind, int64_t samples) {
    double us = 0;
    for (uint32_t i = 0; i < m->problem.graph.n_ops; i++)
        us += ds_tag_op_us(&m->problem.graph, i, kind, samples);
    return us;
}

Test(tag_model, times_are_those_of_a_device_alone) {
    ds_profiles *profiles;
    ds_tag_model *m = read_vgg19(&profiles);
    cr_assert_eq(m->problem.graph.n_kinds, 3);
    for (uint32_t kind = 0; kind < 3; kind++)
        for (uint32_t i = 0; i < 2; i++) {
            char text[1000];
            sim_case one;
            snprintf(text, sizeof text, VGG19, m->kind[kind], "one");
            sim_run_text(&one, text, i ? "batch=12" : "batch=48", false);
            double us = (double)one.result->accounts[0].compute_ps * 1e-6;
            cr_assert_float_eq(us_of(m, kind, i ? 12 : 48), us, 1e-3 * us / 100, "%s: %f us",
                               m->kind[kind], us);
            sim_free(&one);
        }
    ds_tag_model_free(m);
    ds_profiles_free(profiles);
}

/* fc1's weights, its product, both its gradients and its update stay together; so do, gathered, its
 * neighbours. */
Test(tag_model, a_base_group_is_whole) {
    ds_profiles *profiles;
    ds_tag_model *m = read_vgg19(&profiles);
    const ds_tag_graph *g = &m->problem.graph;
    static const char *const names[] = {"head.w1", "step/head.fc1", "step/head.fc1.dx",
                                        "step/head.fc1.dw", "step/head.w1.opt"};
    uint32_t found = 0, base = UINT32_MAX;
    for (uint32_t i = 0; i < g->n_ops; i++)
        for (uint32_t k = 0; k < sizeof names / sizeof *names; k++) {
            if (strcmp(g->op[i].name, names[k]) != 0) continue;
            if (base == UINT32_MAX) base = m->base_of[i];
            cr_assert_eq(m->base_of[i], base, "%s", names[k]);
            found++;
        }
    cr_assert_eq(found, 5);
    cr_assert_str_eq(m->base[base].name, "head.fc1");
    ds_tag_model_gather(m, 12);
    cr_assert_leq(g->n_groups, 12);
    for (uint32_t i = 0; i < g->n_ops; i++)
        cr_assert_eq(g->op[i].group, m->group_of[m->base_of[i]]);
    ds_tag_model_free(m);
    ds_profiles_free(profiles);
}

Test(tag_model, what_the_search_does_not_take) {
    static const char *const cases[][2] = {
        {"mesh = @m, on = @mixed, model = @vgg19, train {}", "takes no `mesh`"},
        {"on = @mixed, model = @vgg19", "does not train"},
        {"model = @vgg19, train {}", "without `on`"},
        {"model = @vgg19, on = @mixed, train {}, strategy { microbatches = 2 }",
         "leave microbatches out"},
        {"model = @vgg19, on = @mixed, train {}, strategy { dp = 16, tp = 1, zero = 1 }",
         "leave zero out"},
    };
    ds_profiles *profiles;
    ds_error err;
    cr_assert_eq(ds_profiles_load(DS_BUILD_PROFILES, &profiles, &err), DS_OK, "%s", err.message);
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[1000];
        snprintf(text, sizeof text,
                 "dir 1\nparam batch = 48\nimport \"models/vgg19.dir\" with batch = batch\n"
                 "import \"topologies/mixed-box.dir\"\nmesh @m = [dp = 16] on @mixed\n"
                 "scenario { %s }\n",
                 cases[i][0]);
        ds_pase_source source = {
            .path = DS_SOURCE_DIR "/scenarios/test.dir", .text = text, .n = strlen(text)};
        ds_tag_model *model;
        cr_assert_neq(ds_tag_model_read(&source, profiles, &model, &err), DS_OK);
        cr_assert(strstr(err.message, cases[i][1]), "%s", err.message);
    }
    ds_profiles_free(profiles);
}
