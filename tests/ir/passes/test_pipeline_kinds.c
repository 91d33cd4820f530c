/* Chunks that say the same but for their slice and layers share one function: which do, how they are
 * called, and that the program is still the sequential step. Runs that take few cases prove fewer
 * of them. */
#include "ir/passes/pipeline/kinds.h"
#include "tests/support/cases.h"
#include "tests/support/pipe.h"
#include "tests/support/step.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *program_of(const pipe_model *model, const char *set, const char *strategy) {
    const pipe_case of = {.model = model, .set = set, .strategy = strategy};
    ds_buf text = {0};
    step_case c;
    char *settings = pipe_settings(&of);
    pipe_text(&of, &text);
    step_make(&c, text.text, settings, DS_PASS_PIPELINE);
    char *out = step_text(&c);
    step_free(&c);
    ds_buf_deinit(&text);
    free(settings);
    return out;
}

static uint32_t count(const char *text, const char *part) {
    uint32_t n = 0;
    for (; (text = strstr(text, part)); text += strlen(part)) n++;
    return n;
}

/* Fails the test unless these are the functions' heads up to '(', in their order. */
static void expect_funcs(const char *text, const char *const *heads) {
    const char *at = text;
    for (; *heads && (at = strstr(at, "\nfunc @")); heads++) {
        at += strlen("\nfunc @");
        size_t n = strcspn(at, "(");
        cr_expect(n == strlen(*heads) && strncmp(at, *heads, n) == 0, "%s, not %.*s", *heads,
                  (int)n, at);
    }
    cr_expect(!*heads, "no %s", *heads ? *heads : "");
    cr_expect(!at || !strstr(at, "\nfunc @"), "more functions: %.60s", at ? at : "");
}

#define ARGS  "<mesh @s, index first>"
#define FUNCS (const char *const[])

/* Of four chunks with a layer each the two in the middle are of one kind; three roles of B. */
Test(pipeline_kinds, chunks_in_the_middle) {
    char *text = program_of(&pipe_gpt, NULL, "pp = 4, microbatches = 4");
    expect_funcs(text, FUNCS{"step", "F0", "F" ARGS, "F3", "B3_first", "B_first" ARGS, "B3_next",
                             "B0_first", "B_next" ARGS, "B0_next", "B3_last", "B_last" ARGS,
                             "B0_last", NULL});
    cr_expect_eq(count(text, " = call @F<@m{pp=1}, 1>("), 4, "%s", text);
    cr_expect_eq(count(text, " = call @F<@m{pp=2}, 2>("), 4);
    cr_expect_eq(count(text, " = call @B_next<@m{pp=1}, 1>("), 2);
    cr_expect_eq(count(text, "name = \"F2\", microbatch = 3"), 1);
    cr_expect(strstr(text, "for layer in first..first + 1"));
    free(text);
}

/* Eight chunks back and forth over four stages: those of one kind are on all stages. */
Test(pipeline_kinds, chunks_in_a_v) {
    char *text =
        program_of(&pipe_gpt, "layers=16", "pp = 4, microbatches = 8, schedule = \"zb-v\"");
    const char *const six[] = {"pp=1}, 2>", "pp=2}, 4>",  "pp=3}, 6>",
                               "pp=3}, 8>", "pp=2}, 10>", "pp=1}, 12>"};
    for (int i = 0; i < 6; i++) {
        char call[64];
        snprintf(call, sizeof call, " = call @F<@m{%s(", six[i]);
        cr_expect_eq(count(text, call), 8, "%s", call);
    }
    cr_expect_eq(count(text, "\nfunc @F"), 3);
    free(text);
}

/* Chunks of two and of three layers are of two kinds; a chunk that is alone has its slice in the
 * text. */
Test(pipeline_kinds, uneven_layers) {
    char *text = program_of(&pipe_llama, "layers=11",
                            "pp = 5, microbatches = 4, stage_layers = [2, 3, 2, 2, 2]");
    cr_expect_eq(count(text, "\nfunc @F"), 4, "%s", text);
    cr_expect(strstr(text, "\nfunc @F" ARGS "(") && strstr(text, "\nfunc @F1("));
    cr_expect_eq(count(text, " = call @F<@m{pp=2}, 5>("), 4);
    cr_expect_eq(count(text, " = call @F<@m{pp=3}, 7>("), 4);
    free(text);
}

/* Two copies of the weights: a chunk runs on two stages, with the same layers. */
Test(pipeline_kinds, two_copies) {
    char *text = program_of(&pipe_gpt, NULL, "pp = 2, microbatches = 4, schedule = \"chimera\"");
    expect_funcs(text, FUNCS{"step", "F0<mesh @s>", "F1<mesh @s>", "B1_first<mesh @s>",
                             "B0_first<mesh @s>", "B1_last<mesh @s>", "B0_last<mesh @s>", NULL});
    cr_expect_eq(count(text, " = call @F0<@m{pp=0}>("), 2);
    cr_expect_eq(count(text, " = call @F0<@m{pp=1}>("), 2);
    free(text);
}

/* Equally wide stages share a kind, stages of another width do not. */
Test(pipeline_kinds, stages_of_two_widths) {
    char *text = program_of(&pipe_gpt, "layers=6",
                            "stage_dp = [1, 1, 1, 2, 2, 1], stage_tp = [1, 1, 1, 1, 1, 1], "
                            "microbatches = 4");
    cr_expect_eq(count(text, "\nfunc @F<mesh @like_s1, index first>"), 1, "%s", text);
    cr_expect_eq(count(text, "\nfunc @F_2<mesh @like_s3, index first>"), 1);
    cr_expect_eq(count(text, " = call @F_2<@s4, 4>("), 4);
    free(text);
}

/* Masks of dropout depend on the layer, gradients on all: a wrong index is a wrong number. */
Test(pipeline_kinds, proved) {
    static const pipe_case cases[] = {
        {.model = &pipe_gpt, .strategy = "pp = 4, microbatches = 8"},
        {.model = &pipe_gpt,
         .set = "layers=8",
         .strategy = "pp = 4, tp = 2, sp = on, microbatches = 4, recompute = full"},
        {.model = &pipe_llama,
         .set = "layers=8",
         .strategy = "pp = 4, dp = 2, zero = 3, microbatches = 4, schedule = \"1f1b\""},
        {.model = &pipe_gpt,
         .set = "layers=8",
         .strategy = "pp = 2, microbatches = 4, schedule = \"zb-v\", virtual_stages = 2"},
        {.model = &pipe_gpt,
         .set = "layers=8",
         .strategy = "pp = 4, dp = 2, zero = 1, bucket_size = 1, microbatches = 4"},
        {.model = &pipe_gpt,
         .set = "layers=8",
         .strategy = "stage_dp = [2, 2, 2, 1], stage_tp = [1, 1, 1, 2], microbatches = 4"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i += FEW_CASES ? 3 : 1)
        pipe_expect_equal(&cases[i]);
}

/* ---- lines of integers ---- */

static bool belongs(ds_pipe_kind *kind, const int64_t *integers, int64_t *shift) {
    uint64_t words[] = {5, 7};
    ds_pipe_words text = {.at = words, .n = 2};
    int64_t copy[4];
    memcpy(copy, integers, sizeof copy);
    ds_pipe_integers list = {.at = copy, .n = 4};
    *shift = 99;
    return ds_pipe__is_of_kind(kind, &text, &list, shift);
}

/* 3 k - 2, 7, k, 4 - k at k = 4; then k = 6 says the slopes, k = 1 and 4 follow. */
Test(pipeline_kinds, integers_follow_lines) {
    uint64_t words[] = {5, 7};
    int64_t first[] = {10, 7, 4, 0}, shift;
    ds_pipe_kind kind = {.words = {.at = words, .n = 2}, .integers = {.at = first, .n = 4}};
    cr_expect(belongs(&kind, (int64_t[]){10, 7, 4, 0}, &shift));
    cr_expect_eq(shift, 0);
    cr_expect(!kind.slope);
    cr_expect(!belongs(&kind, (int64_t[]){10, 9, 7, 0}, &shift), "2 and 3 are on no line");
    cr_expect(belongs(&kind, (int64_t[]){16, 7, 6, -2}, &shift));
    cr_expect_eq(shift, 2);
    cr_expect_eq(kind.base, 4);
    cr_expect(belongs(&kind, (int64_t[]){1, 7, 1, 3}, &shift));
    cr_expect_eq(shift, -3);
    cr_expect(belongs(&kind, (int64_t[]){10, 7, 4, 0}, &shift));
    cr_expect_eq(shift, 0);
    cr_expect(!belongs(&kind, (int64_t[]){10, 8, 4, 0}, &shift), "7 stays");
    cr_expect(!belongs(&kind, (int64_t[]){1, 7, 1, 2}, &shift), "4 - k is 3");
    free(kind.slope);
}
