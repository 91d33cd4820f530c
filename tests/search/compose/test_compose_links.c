/* Steps whose transfers meet on links, so that they are followed unit by unit: with periods that
 * repeat, which are passed over, chunks of two sorts, buckets of many sizes. Each class of each
 * step is held to the simulation of the whole step. */
#include "ir/lang/lang.h"
#include "ir/verify/verify.h"
#include "search/compose/compose.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

/* Collectives over tp leave the node in most orders of the axes, by the links that sends take. */
static const char form[] =
    "dir 1\n"
    "topology @dgx { device gpu[4] : \"A100-SXM4-80GB\"\n  switch nvswitch\n  nic nic[4]\n"
    "  link gpu[i] -- nvswitch : 300 GB/s, 1.2 us for i in 0..4\n"
    "  link gpu[i] -- nic[i] : 24 GB/s, 1 us for i in 0..4 }\n"
    "topology @pod { node n[4] : @dgx\n  switch fabric\n"
    "  link n[i].nic[j] -- fabric : 25 GB/s, 2 us for i in 0..4, j in 0..4 }\n"
    "param dp = 1, tp = 1, pp = 1, microbatches = 5, layers = 4\n"
    "param schedule = \"1f1b\", virtual_stages = 1, order = \"pp dp cp tp\"\n"
    "import \"models/megatron.dir\" as model with layers = layers, hidden = 512, heads = 16,"
    " seq = 256, vocab = 1024, batch = dp * microbatches\n"
    "scenario { model = @model.gpt, on = @pod, profile = \"A100-SXM4-80GB\"\n"
    "  train { loss = none, optimizer = adam, dtype = f16, grad_dtype = f32 }\n"
    "  strategy { dp = dp, tp = tp, pp = pp, microbatches = microbatches, order = order,\n"
    "    schedule = schedule, virtual_stages = virtual_stages, sp = true,\n"
    "    late_reduce = %s, bucket_size = %s } }\n";

enum { N = 8 };
static const char *const names[N] = {
    "dp", "tp", "pp", "microbatches", "layers", "schedule", "virtual_stages", "order"};

typedef struct steps {
    ds_unit *unit;
    ds_profiles *profiles;
    ds_plan_ground *ground;
    ds_composer *composer;
} steps;

static void open_steps(steps *s, const char *late, const char *bucket) {
    char text[2400];
    snprintf(text, sizeof text, form, late, bucket);
    ds_error err;
    ds_diags diags;
    ds_diags_init(&diags);
    cr_assert_eq(
        ds_load_text(DS_SOURCE_DIR "/scenarios/test.dir", text, strlen(text), NULL, &s->unit, &err),
        DS_OK, "%s", err.message);
    cr_assert_eq(ds_verify(s->unit, &diags), DS_OK);
    ds_diags_deinit(&diags);
    cr_assert_eq(ds_profiles_load(DS_BUILD_PROFILES, &s->profiles, &err), DS_OK);
    s->ground = ds_plan_ground_new();
    s->composer = ds_composer_new(s->profiles);
}

static void close_steps(steps *s) {
    ds_composer_free(s->composer);
    ds_plan_ground_free(s->ground);
    ds_profiles_free(s->profiles);
    ds_unit_free(s->unit);
}

static void compare(const ds_composed *x, const ds_result *r, const char *what) {
    cr_expect_eq(x->metrics.step_ps, r->run.step_ps, "%s: step %lld, not %lld", what,
                 (long long)x->metrics.step_ps, (long long)r->run.step_ps);
    cr_expect_eq(x->metrics.peak_bytes, r->metrics.peak_bytes, "%s: peak", what);
    cr_assert_eq(x->n_classes, r->plan->n_classes, "%s", what);
    for (uint32_t c = 0; c < x->n_classes; c++) {
        cr_expect_eq(x->classes[c].exposed_comm_ps, r->accounts[c].exposed_comm_ps,
                     "%s: class %u, exposed %lld, not %lld", what, c,
                     (long long)x->classes[c].exposed_comm_ps,
                     (long long)r->accounts[c].exposed_comm_ps);
        cr_expect_eq(x->classes[c].compute_ps, r->accounts[c].compute_ps, "%s: class %u", what, c);
    }
}

/* `values` in the order of names, with blanks between. Returns how many executions were passed
 * over. */
static uint64_t check(steps *s, const char *values) {
    char copy[200];
    ds_setting settings[N];
    snprintf(copy, sizeof copy, "%s", values);
    char *at = strtok(copy, " ");
    for (int i = 0; i < N; i++, at = strtok(NULL, " ")) {
        cr_assert_not_null(at);
        if (strcmp(names[i], "order") == 0)
            for (char *c = at; *c; c++)
                if (*c == '-') *c = ' ';
        settings[i] = (ds_setting){names[i], at};
    }
    ds_binding binding;
    ds_composed composed;
    ds_result *result;
    ds_error err;
    const char *why;
    ds_sim_options options = {.cost_mode = DS_COST_FITTED, .trust_passes = true};
    cr_assert_eq(ds_bind(s->unit, settings, N, &binding, &err), DS_OK, "%s", err.message);
    cr_assert_eq(ds_sim_options_read(&binding, &options, &err), DS_OK);
    cr_assert_eq(ds_simulate(&binding, s->profiles, &options, &result, &err), DS_OK, "%s: %s",
                 values, err.message);
    options.ground = s->ground;
    cr_assert_eq(ds_composer_run(s->composer, &binding, &options, &composed, &why, &err), DS_OK);
    cr_assert_null(why, "%s: %s", values, why);
    cr_expect(composed.folded, "%s", values);
    compare(&composed, result, values);
    uint64_t n = composed.n_repeated;
    ds_composed_deinit(&composed);
    ds_result_free(result);
    return n;
}

/* Returns in how many of the steps something was passed over. */
static int check_all(const char *late, const char *bucket, const char *const *cases) {
    steps s;
    open_steps(&s, late, bucket);
    int n = 0;
    for (; *cases; cases++) n += check(&s, *cases) > 0;
    close_steps(&s);
    return n;
}

/* dp tp pp microbatches layers schedule virtual_stages order */
Test(compose_links, periods_that_repeat_are_passed_over) {
    static const char *const cases[] = {
        "2 4 2 24 4 1f1b 1 tp-pp-cp-dp", "1 8 2 24 2 gpipe 1 pp-dp-cp-tp",
        "1 8 2 24 4 interleaved 2 dp-tp-cp-pp", "1 4 4 40 8 1f1b 1 tp-pp-cp-dp", NULL};
    static const char *const late[] = {"2 4 2 25 4 eager-1f1b 1 tp-dp-cp-pp",
                                       "1 8 2 24 4 breadth-first 2 pp-tp-cp-dp",
                                       "1 8 2 24 4 interleaved 2 tp-pp-cp-dp", NULL};
    int n = check_all("false", "25 MB", cases) + check_all("true", "25 MB", late);
    cr_expect_geq(n, 5, "periods were found in %d steps", n);
}

/* 6 layers on 4 stages: 1 2 2 1; 10 on 8: six of 1, two of 2 in the middle. */
Test(compose_links, chunks_of_two_sorts) {
    static const char *const cases[] = {
        "1 4 4 6 6 1f1b 1 tp-pp-cp-dp",   "1 2 8 9 10 1f1b 1 pp-dp-cp-tp",
        "1 2 8 5 11 gpipe 1 dp-tp-cp-pp", "2 1 8 3 26 breadth-first 2 pp-dp-cp-tp",
        "2 1 8 1 13 1f1b 1 pp-dp-cp-tp",  NULL};
    check_all("false", "25 MB", cases);
}

/* From one bucket for each gradient to one for all; small ones flow for so short a time that they
 * load no link. */
Test(compose_links, buckets_of_many_sizes) {
    static const char *const sizes[] = {"1 KB", "100 KB", "1 MB", "3 MB"};
    static const char *const cases[] = {"4 2 2 4 4 1f1b 1 dp-pp-cp-tp",
                                        "4 2 2 4 4 1f1b 1 tp-pp-cp-dp",
                                        "8 2 1 2 6 1f1b 1 tp-pp-cp-dp", NULL};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        check_all(i % 2 ? "true" : "false", sizes[i], cases);
}
