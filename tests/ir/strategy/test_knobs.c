/* The lines of knobs.def: complete where the compiler cannot ask, and denied what they do not say.
 */
#include "ir/lang/lang.h"
#include "ir/strategy/preset.h"
#include "ir/strategy/scenario.h"
#include "ir/verify/verify.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static bool has_word(const char *words, const char *word) {
    size_t n = strlen(word);
    for (const char *at = words; at && (at = strstr(at, word)) != NULL; at += n)
        if ((at == words || at[-1] == ' ') && (at[n] == ' ' || !at[n])) return true;
    return false;
}

/* Calls `check` for each word of a text. */
static void each_word(const ds_knob *knob, const char *words,
                      void (*check)(const ds_knob *knob, const char *word)) {
    char copy[512], *rest = NULL;
    cr_assert_lt(strlen(words), sizeof copy);
    strcpy(copy, words);
    for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        check(knob, word);
}

static void is_choice(const ds_knob *knob, const char *word) {
    if (knob->choices)
        cr_expect(has_word(knob->choices, word), "%s: %s is no choice", knob->name, word);
}

/* "zero=3|offload": knobs of the section, and of a choice its words. */
static void is_need(const ds_knob *knob, const char *word) {
    char copy[512], *rest = NULL;
    strcpy(copy, word);
    for (char *one = strtok_r(copy, "|", &rest); one; one = strtok_r(NULL, "|", &rest)) {
        char *equals = strchr(one, '=');
        if (*one == '@' || strcmp(one, "training") == 0 || strcmp(one, "rec") == 0) continue;
        if (equals) *equals = '\0';
        const ds_knob *other = ds_scenario_knob(knob->section, one);
        cr_expect(other && other->bytes, "%s: there is no %s", knob->name, one);
        if (equals && other) is_choice(other, equals + 1);
    }
}

/* Is there a reader for every knob of the kind? */
static bool is_read_by_kind(ds_knob_kind kind) {
    return kind != DS_KNOB_INTS && kind != DS_KNOB_TEXTS && kind != DS_KNOB_FLAGS &&
           kind != DS_KNOB_AXES;
}

static void check_field(const ds_knob *knob) {
    bool late = knob->first > DS_PASS_RECOMPUTE && strcmp(knob->section, "strategy") == 0;
    cr_expect_lt(knob->first, DS_PASS_COUNT, "%s", knob->name);
    cr_expect_not_null(knob->initial, "%s", knob->name);
    if (!knob->read) cr_expect(is_read_by_kind(knob->kind), "%s", knob->name);
    if (!knob->read && knob->kind == DS_KNOB_TEXT)
        cr_expect_not_null(knob->choices, "%s", knob->name);
    if (knob->choices && *knob->initial) is_choice(knob, knob->initial);
    /* another step has no use for a pointer to this one's memory (ds_step_adopt) */
    if (late)
        cr_expect(knob->kind != DS_KNOB_INTS && knob->kind != DS_KNOB_SECTION, "%s", knob->name);
}

Test(knobs, lines_are_complete) {
    uint32_t n;
    const ds_knob *knobs = ds_scenario_knobs(&n);
    for (uint32_t i = 0; i < n; i++) {
        const ds_knob *knob = &knobs[i];
        bool has_record =
            strcmp(knob->section, "train") == 0 || strcmp(knob->section, "strategy") == 0;
        cr_expect(knob->doc && strlen(knob->doc) > 5, "%s", knob->name);
        cr_expect_eq(ds_scenario_knob(knob->section, knob->name), knob, "%s is there twice",
                     knob->name);
        cr_expect_eq(knob->bytes > 0, has_record, "%s", knob->name);
        if (has_record) check_field(knob);
        for (int way = 0; way < DS_N_WAYS; way++)
            if (knob->ways[way] && *knob->ways[way] != '*') {
                cr_expect(has_record, "%s: a way of a KEY has ANY or nothing", knob->name);
                each_word(knob, knob->ways[way], is_choice);
            }
        if (knob->needs) each_word(knob, knob->needs, is_need);
    }
}

Test(knobs, presets_set_what_there_is) {
    uint32_t n;
    const ds_preset *presets = ds_presets(&n);
    const ds_knob *framework = ds_scenario_knob("", "framework");
    for (uint32_t i = 0; i < n; i++) {
        const ds_preset *p = &presets[i];
        const ds_knob *knob = ds_scenario_knob(p->section, p->key);
        cr_assert_not_null(knob, "%s.%s", p->section, p->key);
        cr_expect(has_word(framework->choices, p->framework), "%s", p->framework);
        cr_expect_gt(strlen(p->source), 5, "%s.%s", p->section, p->key);
        is_choice(knob, p->value);
    }
}

/* ---- records ---- */

typedef struct records {
    ds_unit *unit;
    ds_binding binding;
    ds_train train;
    ds_strategy strategy;
} records;

static records read_scenario(const char *entries) {
    records r;
    ds_error err;
    ds_buf text = {0};
    ds_buf_printf(&text, "dir 1\nscenario { model = @f\n %s }\n", entries);
    cr_assert_eq(ds_load_text("t", text.text, text.n, NULL, &r.unit, &err), DS_OK, "%s",
                 err.message);
    ds_buf_deinit(&text);
    cr_assert_eq(ds_bind(r.unit, NULL, 0, &r.binding, &err), DS_OK);
    cr_assert_eq(ds_train_read(&r.binding, &r.train, &err), DS_OK, "%s", err.message);
    cr_assert_eq(ds_strategy_read(&r.binding, &r.strategy, &err), DS_OK, "%s", err.message);
    return r;
}

static void expect_prints(const records *r, const char *section, const char *name,
                          const char *value) {
    const ds_knob *knob = ds_scenario_knob(section, name);
    ds_buf text = {0};
    ds_knob_print(knob, strcmp(section, "train") == 0 ? (const void *)&r->train : &r->strategy,
                  &text);
    cr_expect_str_eq(text.text, value, "%s.%s", section, name);
    ds_buf_deinit(&text);
}

/* Defaults as KNOBS.generated.md has them. */
Test(knobs, defaults) {
    static const char *const defaults[][3] = {{"train", "loss", "none"},
                                              {"train", "optimizer", "none"},
                                              {"train", "lr", ""},
                                              {"train", "dtype", ""},
                                              {"train", "clip_norm", "0"},
                                              {"train", "keep_gradients", "false"},
                                              {"strategy", "dp", "1"},
                                              {"strategy", "zero", "0"},
                                              {"strategy", "zero_group", "1"},
                                              {"strategy", "prefetch", "1"},
                                              {"strategy", "schedule", "1f1b"},
                                              {"strategy", "bucket_size", "25000000 B"},
                                              {"strategy", "recompute", "none"},
                                              {"strategy", "offload", "none"},
                                              {"strategy", "stage_layers", ""},
                                              {"strategy", "order", "pp dp cp tp"},
                                              {"strategy", "p2p", "overlapped"},
                                              {"strategy", "ops", ""},
                                              {"strategy", "cp_type", "ring"},
                                              {"strategy", "balance", "layers"},
                                              {"strategy", "tp_overlap", "none"},
                                              {"strategy", "sp", "false"}};
    records r = read_scenario("");
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++)
        expect_prints(&r, defaults[i][0], defaults[i][1], defaults[i][2]);
    ds_unit_free(r.unit);
}

Test(knobs, values_are_read_by_kind) {
    records r = read_scenario(
        "train { loss = cross_entropy, optimizer = adamw, lr = 0.5, dtype = bf16, keep_gradients = "
        "on, iteration_overhead = 3 ms }\n"
        "strategy { dp = 4, zero = 2, cp_type = ulysses, tp_overlap = none, schedule = \"gpipe\", "
        "pp = 2, recompute = \"every:2\", offload = [weights, activations], bucket_size = 5 MB, "
        "stage_layers = [1, 2], order = \"tp, cp dp pp\", p2p = blocking }");
    static const char *const values[][3] = {{"train", "loss", "cross_entropy"},
                                            {"train", "optimizer", "adamw"},
                                            {"train", "lr", "0.5"},
                                            {"train", "dtype", "bf16"},
                                            {"train", "keep_gradients", "true"},
                                            {"train", "iteration_overhead", "3000000000 ps"},
                                            {"strategy", "dp", "4"},
                                            {"strategy", "zero_group", "4"},
                                            {"strategy", "zero", "2"},
                                            {"strategy", "cp_type", "ulysses"},
                                            {"strategy", "schedule", "gpipe"},
                                            {"strategy", "recompute", "every:K"},
                                            {"strategy", "offload", "activations weights"},
                                            {"strategy", "bucket_size", "5000000 B"},
                                            {"strategy", "stage_layers", "[...]"},
                                            {"strategy", "order", "tp cp dp pp"},
                                            {"strategy", "p2p", "blocking"}};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        expect_prints(&r, values[i][0], values[i][1], values[i][2]);
    ds_unit_free(r.unit);
}

/* ---- settings ---- */

/* A legal value of the knob as --set says it; NULL: blocks are not said so. */
static const char *text_for(const ds_knob *knob, char text[64]) {
    const char *last = knob->choices ? strrchr(knob->choices, ' ') : NULL;
    snprintf(text, 64, "%s", last ? last + 1 : knob->choices ? knob->choices : "1");
    if (text[0] == '[') strcpy(text, "[q]");                        /* [...]: a list */
    if (last && strchr(text, ':')) strcpy(strchr(text, ':'), ":1"); /* share:P */
    switch (knob->kind) {
    case DS_KNOB_BOOL:
        return "on";
    case DS_KNOB_INTS:
        return "[1, 1]";
    case DS_KNOB_QUANTITY:
        return knob->dimension == 'T' ? "3 ms" : "5 MB";
    case DS_KNOB_DTYPE:
        return "f16";
    case DS_KNOB_SCHEDULE:
        return "gpipe";
    case DS_KNOB_SECTION:
        return NULL;
    case DS_KNOB_AXES:
        return "tp pp dp cp";
    default:
        return text;
    }
}

/* The verifier takes the value, and the record has it. */
static void expect_settable(const ds_knob *knob) {
    static const char scenario[] =
        "dir 1\nfunc @f(%x: f32[8]) -> f32[8] {\n  %y = relu(%x)\n  return %y\n}\n"
        "scenario { model = @f, train { optimizer = none } }\n";
    char path[64], text[64];
    ds_setting setting = {path, text_for(knob, text)};
    ds_load_options options = {.settings = &setting, .n_settings = 1};
    ds_unit *unit;
    ds_error err;
    ds_diags diags;
    ds_binding binding;
    if (!setting.text) return;
    snprintf(path, sizeof path, "%s.%s", knob->section, knob->name);
    cr_assert_eq(ds_load_text("t", scenario, sizeof scenario - 1, &options, &unit, &err), DS_OK,
                 "%s=%s: %s", path, setting.text, err.message);
    ds_diags_init(&diags);
    cr_expect_eq(ds_verify(unit, &diags), DS_OK, "%s=%s", path, setting.text);
    cr_assert_eq(ds_bind(unit, &setting, 1, &binding, &err), DS_OK, "%s", err.message);
    cr_expect_not_null(ds_scenario_find(unit, knob->section, knob->name), "%s", path);
    ds_diags_deinit(&diags);
    ds_unit_free(unit);
}

Test(knobs, every_line_can_be_set) {
    uint32_t n, n_set = 0;
    const ds_knob *knobs = ds_scenario_knobs(&n);
    for (uint32_t i = 0; i < n; i++) {
        if (!knobs[i].bytes) continue;
        expect_settable(&knobs[i]);
        n_set++;
    }
    cr_expect_gt(n_set, 40);
}

static void set(const char *path, const char *value, ds_status expected, const char *message) {
    static const char scenario[] =
        "dir 1\nparam k = 3\nscenario { model = @f, strategy { dp = 2 } }\n";
    const ds_setting settings[] = {{"strategy.dp", "2 * k"}, {path, value}};
    ds_load_options options = {.settings = settings, .n_settings = 2};
    ds_unit *unit;
    ds_error err;
    ds_binding binding;
    int64_t dp = 0;
    cr_expect_eq(ds_load_text("t", scenario, sizeof scenario - 1, &options, &unit, &err), expected);
    if (expected != DS_OK) {
        cr_expect_not_null(strstr(err.message, message), "%s", err.message);
    } else {
        cr_assert_eq(ds_bind(unit, settings, 2, &binding, &err), DS_OK, "%s", err.message);
        cr_assert_eq(ds_scenario_int(&binding, "strategy", "dp", &dp, &err), DS_OK);
        cr_expect_eq(dp, 2 * binding.params[0][0].i);
    }
    ds_unit_free(unit);
}

Test(knobs, settings_say_keys_and_params) {
    set("k", "5", DS_OK, "");
    set("strategy.sp", "on", DS_OK, "");
    set("strategy.zreo", "1", DS_ERR_NAME,
        "unknown key 'zreo' in 'strategy'; did you mean 'zero'?");
    set("train.optimiser", "sgd", DS_ERR_NAME, "did you mean 'optimizer'?");
    set("strategy.zero", "1 2", DS_ERR_SYNTAX, "no more after the value");
}

/* ---- what is not said is denied ---- */

Test(knobs, an_empty_line_allows_nothing) {
    static const ds_knob empty = {.name = "example"};
    cr_expect_eq(empty.size, DS_SIZE_NONE);
    cr_expect_eq(empty.bounds, DS_BOUNDS_NONE);
    for (int way = 0; way < DS_N_WAYS; way++) cr_expect_null(empty.ways[way]);
}

static const char *unknown(const char *entries, ds_way way) {
    records r = read_scenario(entries);
    const ds_knob *knob = ds_knobs_unknown(&r.binding, &r.train, &r.strategy, way);
    ds_unit_free(r.unit);
    return knob ? knob->name : "";
}

Test(knobs, values_that_no_line_allows_are_unknown) {
    static const struct {
        const char *entries, *by[DS_N_WAYS];
    } cases[] = {
        {"strategy { dp = 2, tp = 4, pp = 2, microbatches = 8 }", {"", "", "", "schedule"}},
        {"strategy { pp = 2, schedule = \"breadth-first\" }", {"", "", "", ""}},
        {"strategy { pp = 2, schedule = \"chimera\" }", {"schedule", "schedule", "", "schedule"}},
        {"strategy { schedule = \"chimera\" }", {"", "", "", ""}}, /* of one stage: none */
        {"strategy { dp = 2, zero = 3 }", {"", "zero", "", "zero"}},
        {"strategy { zero = 3 }", {"", "", "", ""}}, /* of one replica: nothing to share out */
        {"strategy { dp = 4, zero = 1, zero_group = 2 }", {"", "zero_group", "zero_group", ""}},
        {"strategy { dp = 4, zero_group = 2 }", {"", "", "", ""}},
        {"strategy { recompute = \"every:2\" }", {"", "recompute", "", "recompute"}},
        {"strategy { pp = 2, p2p = blocking, schedule = \"breadth-first\" }",
         {"p2p", "p2p", "p2p", "p2p"}},
        {"train { optimizer = sgd, clip_norm = 1 }", {"", "clip_norm", "clip_norm", "clip_norm"}},
        {"strategy { stage_dp = [2, 1] }", {"stage_dp", "stage_dp", "stage_dp", "schedule"}},
        {"jobs { }", {"", "", "", ""}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int way = 0; way < DS_N_WAYS; way++)
            cr_expect_str_eq(unknown(cases[i].entries, (ds_way)way), cases[i].by[way], "%s, way %d",
                             cases[i].entries, way);
}
