/* Pipelines whose stages have different widths: equal to the sequential step in all that they
 * return (exec --verify), with exactly the reshards that cross; or refused with what to change. */
#include "tests/support/cases.h"
#include "tests/support/pipe.h"
#include "tests/support/step.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STRIDE (FEW_CASES ? 17u : 1u)

static void prove_with(const pipe_model *model, const char *set, const char *strategy) {
    pipe_expect_equal(&(pipe_case){.model = model, .strategy = strategy, .set = set});
}

static void refuse(const char *strategy, const char *a, const char *b) {
    const char *parts[] = {a, b, NULL};
    pipe_expect_refused(&(pipe_case){.model = &pipe_gpt, .strategy = strategy}, parts);
}

/* ---- schedules ---- */

/* tp 2 → dp 2; tp 4 → dp 2 × tp 2; 1 → 2 × 2; wide → narrow. */
static const char *const widths[] = {
    "stage_dp = [1, 2], stage_tp = [2, 1]", "stage_dp = [1, 2], stage_tp = [4, 2]",
    "stage_dp = [1, 2], stage_tp = [1, 2]", "stage_dp = [2, 1], stage_tp = [2, 2]"};
enum { WIDTHS = sizeof widths / sizeof *widths };

static void prove_schedules(const pipe_model *model) {
    static const char *const schedules[] = {"1f1b",  "gpipe", "eager-1f1b", "interleaved",
                                            "zb-h1", "zb-v",  "hanayo"};
    char text[256];
    for (uint32_t i = 0; i < WIDTHS * 7; i += STRIDE) {
        snprintf(text, sizeof text, "%s, microbatches = 4, schedule = \"%s\"", widths[i % WIDTHS],
                 schedules[i / WIDTHS]);
        prove_with(model, NULL, text);
    }
}

Test(pipeline_widths, mlp) {
    prove_schedules(&pipe_mlp);
}

/* The table is embedding and head: its gradients are added up from stages of two widths. */
Test(pipeline_widths, gpt) {
    static const pipe_model gpt = {
        "gpt", "layers = 4, hidden = 8, heads = 4, seq = 4, vocab = 12, batch = 8", ""};
    prove_schedules(&gpt);
}

Test(pipeline_widths, llama) {
    static const pipe_model llama = {"llama",
                                     "layers = 4, hidden = 8, heads = 4, kv_heads = 4, ffn = 8, "
                                     "seq = 4, vocab = 12, batch = 8",
                                     ""};
    prove_schedules(&llama);
}

/* Skips from the encoder to every layer of the decoder; experts; ops outside of loops. */
Test(pipeline_widths, what_else_is_cut) {
    static const char *const schedules[] = {"1f1b", "interleaved", "zb-v"};
    char text[256];
    for (uint32_t i = 0; i < 3; i++) {
        const char *list =
            i % 2 ? "stage_dp = [2, 1], stage_tp = [1, 2]" : "stage_dp = [1, 2], stage_tp = [2, 1]";
        snprintf(text, sizeof text, "%s, microbatches = 4, schedule = \"%s\"", list, schedules[i]);
        prove_with(&pipe_t5, NULL, text);
        prove_with(&pipe_mixtral, NULL, text);
    }
    snprintf(text, sizeof text, "%s, microbatches = 4, balance = flops, schedule = ", widths[0]);
    for (uint32_t i = 0; i < 3; i++) {
        char whole[300];
        snprintf(whole, sizeof whole, "%s\"%s\"", text, schedules[i]);
        prove_with(&pipe_alexnet, NULL, whole);
    }
}

/* What the encoder gives goes to two stages of the decoder, each of its own width. */
Test(pipeline_widths, skips) {
    prove_with(&pipe_t5, NULL,
               "stage_dp = [2, 1, 1], stage_tp = [1, 2, 1], microbatches = 4, "
               "stage_layers = [2, 1, 1]");
    prove_with(&pipe_t5, NULL,
               "stage_dp = [1, 2, 1], stage_tp = [2, 1, 1], microbatches = 4, "
               "stage_layers = [2, 1, 1], schedule = \"zb-h1\"");
}

Test(pipeline_widths, three_stages) {
    prove_with(&pipe_gpt, "layers=6",
               "stage_dp = [2, 1, 1], stage_tp = [1, 2, 1], microbatches = 4");
    prove_with(&pipe_llama, NULL,
               "stage_dp = [1, 2, 1], stage_tp = [2, 2, 1], microbatches = 4, "
               "stage_layers = [1, 2, 1], schedule = \"zb-h1\"");
    prove_with(&pipe_mlp, "batch=12", "stage_dp = [3, 2, 1], microbatches = 2");
}

/* Both copies of a chunk are on stages of one width. */
Test(pipeline_widths, two_copies) {
    static const char both[] =
        "stage_dp = [1, 2, 2, 1], stage_tp = [2, 1, 1, 2], microbatches = 8, schedule = ";
    char text[256];
    snprintf(text, sizeof text, "%s\"chimera\"", both);
    prove_with(&pipe_mlp, "batch=16", text);
    snprintf(text, sizeof text, "%s\"dualpipe\"", both);
    prove_with(&pipe_gpt, "batch=16", text);
    refuse("stage_dp = [1, 2], stage_tp = [2, 1], microbatches = 4, schedule = \"chimera\"",
           "runs chunk 0 on stage 0 and on stage 1", "not equally wide");
}

/* ---- the rest of a strategy ---- */

Test(pipeline_widths, knobs) {
    static const char *const more[] = {"microbatches = 1",
                                       "microbatches = 4, zero = 1",
                                       "microbatches = 4, zero = 2",
                                       "microbatches = 4, zero = 3, prefetch = 2, sp = true",
                                       "microbatches = 4, zero = 1, zero_uneven = true",
                                       "microbatches = 4, recompute = full, sp = true",
                                       "microbatches = 4, recompute = selective",
                                       "microbatches = 4, p2p = batched",
                                       "microbatches = 4, p2p = blocking",
                                       "microbatches = 4, order = \"pp tp dp cp\"",
                                       "microbatches = 2, bucket_size = 1 B"};
    char text[256];
    for (uint32_t i = 0; i < sizeof more / sizeof *more; i += STRIDE) {
        snprintf(text, sizeof text, "stage_dp = [1, 2], stage_tp = [2, 2], %s", more[i]);
        prove_with(&pipe_gpt, NULL, text);
    }
}

/* A tied table on two stages that both have replicas: its parts are summed over them first. */
Test(pipeline_widths, zero_on_both_sides) {
    char text[256];
    for (int zero = 0; zero <= 3; zero++) {
        snprintf(text, sizeof text,
                 "stage_dp = [2, 4], stage_tp = [2, 2], microbatches = 2, zero = %d", zero);
        prove_with(&pipe_gpt, "batch=16", text);
    }
    prove_with(&pipe_gpt, NULL,
               "stage_dp = [2, 2], stage_tp = [1, 2], microbatches = 4, zero = 1, sp = true");
}

Test(pipeline_widths, sixteen_bits) {
    pipe_expect_equal(&(pipe_case){
        .model = &pipe_gpt,
        .strategy = "stage_dp = [2, 1], stage_tp = [1, 2], microbatches = 4, zero = 2",
        .train = "optimizer = adam, dtype = bf16, master_dtype = f32, grad_dtype = f32"});
}

/* Lists that are all alike are dp and tp. */
Test(pipeline_widths, alike) {
    prove_with(&pipe_gpt, NULL, "stage_dp = [2, 2], stage_tp = [2, 2], microbatches = 4");
    prove_with(&pipe_gpt, NULL, "pp = 2, stage_tp = [2, 2], microbatches = 4, cp = 2");
}

/* ---- what is emitted ---- */

static uint32_t count(const char *text, const char *what) {
    uint32_t n = 0;
    for (; (text = strstr(text, what)); text += strlen(what)) n++;
    return n;
}

/* The pipelined program of mlp, between the line of `from` and the next blank one. */
static char *program(const char *strategy, bool optimizer) {
    ds_buf text = {0};
    step_case c;
    pipe_text(&(pipe_case){.model = &pipe_mlp,
                           .strategy = strategy,
                           .train = optimizer ? "optimizer = adam" : "optimizer = sgd"},
              &text);
    step_make(&c, text.text, NULL, DS_PASS_PIPELINE);
    ds_buf_deinit(&text);
    char *out = step_text(&c);
    step_free(&c);
    return out;
}

/* A microbatch sends one activation on and one gradient back at each of the borders, nothing else
 * crosses: 4 microbatches, 2 borders of unequal stages; equal stages send. */
Test(pipeline_widths, what_crosses) {
    char *text = program("stage_dp = [1, 2, 1], stage_tp = [2, 1, 2], microbatches = 4", true);
    cr_expect_eq(count(text, "= reshard("), 16, "%s", text);
    cr_expect_eq(count(text, "= send("), 0);
    free(text);
    text = program("stage_dp = [2, 2, 1], stage_tp = [1, 1, 2], microbatches = 4", false);
    cr_expect_eq(count(text, "= reshard("), 8, "%s", text);
    cr_expect_eq(count(text, "= send("), 8);
    free(text);
}

/* Stages take the devices one after another; a text has no axis of size 1 in splits. */
Test(pipeline_widths, meshes) {
    char *text = program("stage_dp = [1, 2], stage_tp = [4, 1], microbatches = 4, zero = 1", true);
    cr_expect(strstr(text, "mesh @s0 = pick 0..4 of @m [dp = 1, tp = 4]"), "%s", text);
    cr_expect(strstr(text, "mesh @s1 = pick 4..6 of @m [dp = 2, tp = 1]"), "%s", text);
    cr_expect(strstr(text, "all_gather") && strstr(text, "reduce_scatter"));
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        if (strstr(line, "reshard") || strstr(line, "return")) continue;
        cr_expect(!(strstr(line, "on @s0") && strstr(line, "@dp")), "%s", line);
        cr_expect(!(strstr(line, "on @s1") && strstr(line, "@tp")), "%s", line);
    }
    free(text);
}

/* ---- refusals ---- */

Test(pipeline_widths, refusals) {
    refuse("stage_dp = [1, 2], stage_tp = [2, 1, 1]", "stage_dp has 2 stages", "stage_tp has 3");
    refuse("stage_dp = [1, 2], dp = 2", "dp = 2 beside stage_dp", "leave it out");
    refuse("stage_tp = [1, 2], tp = 2", "tp = 2 beside stage_tp", "leave it out");
    refuse("stage_dp = [1, 2], pp = 3", "stage_dp has 2 stages", "pp = 3");
    refuse("stage_dp = [1, 0]", "stage 1 has 0", "at least 1");
    refuse("stage_dp = [1, 2], cp = 2", "split no sequences", "cp = 1");
    refuse("stage_dp = [1, 2], ep = 2", "ep", "");
    refuse("stage_dp = [1, 4], stage_tp = [4, 4], microbatches = 2", "needs 20 devices", "has 16");
    refuse("stage_dp = [1, 3], microbatches = 2", "split over dp",
           "3 parts on @s1 do not divide it");
    refuse("stage_dp = [1, 2], microbatches = 2, scatter_gather = true", "reshard",
           "leave scatter_gather out");
    refuse("stage_dp = [1, 2], microbatches = 2, offload = activations", "offload", "equally wide");
    refuse("stage_dp = [1, 2], microbatches = 2, zero = 1, zero_group = 1", "zero_group",
           "all of its own replicas");
}
