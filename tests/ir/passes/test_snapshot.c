/* Steps that go back to where they were behind a pass: what is made of them from there is the text
 * that a fresh step gives, and knobs that are said to be read later make no difference before. */
#include "tests/support/pipe.h"
#include "tests/support/step.h"

#include "ir/lang/lang.h"
#include "ir/passes/snapshot.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct source {
    ds_buf text;
    char *settings;
} source;

static source source_of(const pipe_model *model, const char *strategy, const char *set) {
    pipe_case c = {.model = model, .strategy = strategy, .set = set};
    source s = {.settings = pipe_settings(&c)};
    pipe_text(&c, &s.text);
    return s;
}

static void open_step_of(step_case *c, const pipe_model *model, const char *strategy,
                         const char *set) {
    source s = source_of(model, strategy, set);
    step_make(c, s.text.text, s.settings, DS_PASS_LOWER);
    cr_assert_eq(c->status, DS_OK, "%s: %s", strategy, c->err.message);
    c->step->brief = c->step->trusted = c->step->schematic = true;
    ds_buf_deinit(&s.text);
    free(s.settings);
}

static void open_step(step_case *c, const pipe_model *model, const char *strategy) {
    open_step_of(c, model, strategy, "batch=16");
}

static void print(ds_model_step *step, ds_buf *out) {
    out->n = 0;
    ds_print_module(step->unit->modules.at[0], out);
}

static void run(step_case *c, ds_pass_id last, ds_buf *out) {
    c->status = ds_model_step_run_to(c->step, last, NULL, NULL, &c->err);
    cr_assert_eq(c->status, DS_OK, "%s", c->err.message);
    if (out) print(c->step, out);
}

/* Of one strategy, from another one's step behind `behind`, there and back twice. */
static void expect_same(const pipe_model *model, const char *first, const char *second,
                        ds_pass_id behind) {
    const char *strategies[2] = {first, second};
    step_case fresh[2], kept;
    ds_buf wanted[2] = {{0}}, before = {0}, now = {0};
    ds_strategy read[2];
    for (int i = 0; i < 2; i++) {
        open_step(&fresh[i], model, strategies[i]);
        read[i] = fresh[i].step->strategy;
        run(&fresh[i], DS_PASS_OVERLAP, &wanted[i]);
    }
    cr_assert(strcmp(wanted[0].text, wanted[1].text) != 0, "%s and %s are the same", first, second);
    open_step(&kept, model, first);
    run(&kept, behind, &before);
    ds_step_mark *mark = ds_step_mark_new(kept.step);
    for (int i = 0; i < 4; i++) {
        ds_step_adopt(kept.step, &read[i % 2], behind);
        run(&kept, DS_PASS_OVERLAP, &now);
        cr_expect_str_eq(now.text, wanted[i % 2].text, "%s from %s", strategies[i % 2], first);
        ds_step_mark_return(mark);
        print(kept.step, &now);
        cr_expect_str_eq(now.text, before.text, "%s after %s", first, strategies[i % 2]);
    }
    ds_step_mark_free(mark);
    for (int i = 0; i < 2; i++) {
        ds_buf_deinit(&wanted[i]);
        step_free(&fresh[i]);
    }
    step_free(&kept);
    ds_buf_deinit(&before);
    ds_buf_deinit(&now);
}

Test(snapshot, behind_recompute) {
    static const char *const late[] = {"zero = 1",
                                       "zero = 2",
                                       "sp = true",
                                       "late_reduce = true",
                                       "bucket_size = 1 KB",
                                       "order = \"tp dp cp pp\"",
                                       "offload = optimizer",
                                       "scatter_gather = true"};
    for (uint32_t i = 0; i < sizeof late / sizeof *late; i++) {
        char second[256];
        snprintf(second, sizeof second,
                 "pp = 2, dp = 2, tp = 2, microbatches = 4, recompute = selective, %s", late[i]);
        expect_same(&pipe_gpt, "pp = 2, dp = 2, tp = 2, microbatches = 4, recompute = selective",
                    second, DS_PASS_RECOMPUTE);
    }
}

Test(snapshot, behind_shard) {
    static const char *const late[] = {"offload = optimizer", "offload = weights",
                                       "offload = activations", "scatter_gather = true",
                                       "p2p = blocking"};
    for (uint32_t i = 0; i < sizeof late / sizeof *late; i++) {
        char second[256];
        snprintf(second, sizeof second, "pp = 2, dp = 2, tp = 2, microbatches = 4, zero = 1, %s",
                 late[i]);
        expect_same(&pipe_gpt, "pp = 2, dp = 2, tp = 2, microbatches = 4, zero = 1", second,
                    DS_PASS_SHARD);
    }
}

/* The text without the params' values. */
static void cut_params(ds_buf *text) {
    size_t n = 0;
    for (const char *line = text->text; *line;) {
        const char *end = strchr(line, '\n');
        size_t length = end ? (size_t)(end - line) + 1 : strlen(line);
        if (strncmp(line, "param ", 6) != 0) {
            memmove(text->text + n, line, length);
            n += length;
        }
        line += length;
    }
    text->text[n] = '\0';
    text->n = n;
}

/* A step of 16 samples in 4 microbatches, behind `recompute`, becomes one of 32 samples. */
Test(snapshot, bound_to_other_samples) {
    static const char strategy[] = "pp = 2, dp = 2, tp = 2, microbatches = 4, recompute = full";
    step_case fresh, kept;
    ds_buf wanted = {0}, now = {0};
    open_step_of(&fresh, &pipe_gpt, strategy, "batch=32");
    open_step_of(&kept, &pipe_gpt, strategy, "batch=16");
    run(&kept, DS_PASS_RECOMPUTE, NULL);
    cr_expect_eq(ds_step_samples(kept.step), 4);
    cr_assert_eq(ds_step_bind_samples(kept.step, 8, &kept.err), DS_OK, "%s", kept.err.message);
    run(&kept, DS_PASS_OVERLAP, &now);
    run(&fresh, DS_PASS_OVERLAP, &wanted);
    cut_params(&now);
    cut_params(&wanted);
    cr_expect_str_eq(now.text, wanted.text);
    cr_expect_eq(ds_step_samples(kept.step), 8);
    cr_expect_eq(ds_step_samples(fresh.step), 8);
    ds_buf_deinit(&wanted);
    ds_buf_deinit(&now);
    step_free(&fresh);
    step_free(&kept);
}

/* A pass that read one of the late knobs would make another program of a strategy with another
 * value, or refuse what it cannot be. The number is none that a knob has. */
static void spoil(ds_strategy *s, ds_pass_id pass) {
    uint32_t n, n_late = 0;
    const ds_knob *knobs = ds_scenario_knobs(&n);
    for (uint32_t i = 0; i < n; i++) {
        if (!ds_knob_is_late(&knobs[i], pass)) continue;
        n_late++;
        if (knobs[i].kind == DS_KNOB_INT || knobs[i].kind == DS_KNOB_QUANTITY)
            ds_knob_set(&knobs[i], s, "7");
        else if (knobs[i].kind == DS_KNOB_BOOL)
            ds_knob_set(&knobs[i], s, "true");
        else if (knobs[i].choices) /* the one behind the last */
            ds_knob_set(&knobs[i], s, "no such choice");
        else
            s->order[0] = s->order[3];
    }
    cr_expect_gt(n_late, 0);
}

Test(snapshot, knobs_are_not_read_before) {
    static const char *const strategies[] = {
        "dp = 2, tp = 2, microbatches = 4", "pp = 2, microbatches = 4, recompute = full",
        "pp = 2, dp = 2, microbatches = 4, recompute = selective, schedule = \"zb-h1\"",
        "pp = 2, virtual_stages = 2, microbatches = 4, tp = 2, schedule = interleaved"};
    static const ds_pass_id passes[] = {DS_PASS_RECOMPUTE, DS_PASS_SHARD};
    const pipe_model *models[] = {&pipe_gpt, &pipe_llama, &pipe_t5};
    for (uint32_t i = 0; i < 4 * 3 * 2; i++) {
        step_case plain, spoilt;
        ds_buf a = {0}, b = {0};
        ds_pass_id pass = passes[i % 2];
        open_step(&plain, models[i / 2 % 3], strategies[i / 6]);
        open_step(&spoilt, models[i / 2 % 3], strategies[i / 6]);
        spoil(&spoilt.step->strategy, pass);
        run(&plain, pass, &a);
        run(&spoilt, pass, &b);
        cr_expect_str_eq(a.text, b.text, "%s, %s", models[i / 2 % 3]->name, strategies[i / 6]);
        step_free(&plain);
        step_free(&spoilt);
        ds_buf_deinit(&a);
        ds_buf_deinit(&b);
    }
}
