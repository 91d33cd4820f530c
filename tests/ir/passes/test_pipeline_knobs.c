/* Pipelines with everything else that a strategy, a training block and a schedule can say: equal to
 * the sequential step (exec --verify), or refused with what to change. Runs that take few cases
 * prove every eighth of them. */
#include "ir/base/map.h"
#include "tests/support/cases.h"
#include "tests/support/pipe.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void prove_with(const pipe_model *model, const char *set, const char *train,
                       const char *strategy) {
    uint64_t hash = ds_hash_bytes(strategy, strlen(strategy));
    uint32_t every = FEW_CASES ? 8u : 1u;
    if (ds_hash_mix(hash, (uint64_t)model->name[0]) % every) return;
    pipe_expect_equal(
        &(pipe_case){.model = model, .strategy = strategy, .set = set, .train = train});
}

static void prove(const pipe_model *model, const char *strategy) {
    prove_with(model, NULL, NULL, strategy);
}

/* The same strategy under schedules of each sort: B and W in one, chunks in a loop, W apart, chunks
 * back and forth, two copies of the weights. */
static void prove_each(const pipe_model *model, const char *set, const char *strategy) {
    static const char *const names[] = {"1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe"};
    char text[256];
    for (uint32_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(text, sizeof text, "pp = 2, microbatches = 4, schedule = \"%s\", %s", names[i],
                 strategy);
        prove_with(model, set, NULL, text);
    }
}

static void refuse_with(const pipe_model *model, const char *set, const char *train,
                        const char *strategy, const char *a, const char *b) {
    const char *parts[] = {a, b, NULL};
    pipe_expect_refused(
        &(pipe_case){.model = model, .strategy = strategy, .set = set, .train = train}, parts);
}

static void refuse(const pipe_model *model, const char *strategy, const char *a, const char *b) {
    refuse_with(model, NULL, NULL, strategy, a, b);
}

/* ---- recomputation ---- */

Test(pipeline_knobs, recompute) {
    prove_each(&pipe_gpt, NULL, "recompute = selective");
    prove_each(&pipe_gpt, NULL, "recompute = full");
    prove_each(&pipe_t5, NULL, "recompute = selective, tp = 2");
    prove_each(&pipe_mixtral, NULL, "recompute = full, dp = 2");
}

Test(pipeline_knobs, recompute_some) {
    prove_with(&pipe_gpt, "layers=8", NULL, "pp = 2, microbatches = 4, recompute = \"every:2\"");
    prove_with(&pipe_llama, "layers=12", NULL,
               "pp = 2, microbatches = 4, schedule = \"interleaved\", recompute = \"every:3\"");
    prove(&pipe_gpt, "pp = 2, microbatches = 4, schedule = \"zb-v\", recompute = [\"fc1\"]");
}

/* ---- parallelism inside a stage ---- */

Test(pipeline_knobs, sequence_parallel) {
    prove_each(&pipe_gpt, NULL, "tp = 2, sp = true");
    prove(&pipe_t5, "pp = 2, tp = 2, sp = true, microbatches = 4, schedule = \"zb-v\"");
    prove(&pipe_llama,
          "pp = 2, tp = 2, dp = 2, sp = true, recompute = full, zero = 1, microbatches = 2");
}

Test(pipeline_knobs, context_parallel) {
    prove_each(&pipe_gpt, NULL, "cp = 2");
    prove(&pipe_gpt, "pp = 2, cp = 2, cp_type = ulysses, microbatches = 4, schedule = \"zb-h1\"");
    prove(&pipe_llama,
          "pp = 2, cp = 2, cp_type = all_gather, microbatches = 4, schedule = \"chimera\"");
}

Test(pipeline_knobs, experts) {
    prove_each(&pipe_mixtral, NULL, "dp = 2, ep = 2");
    prove(&pipe_mixtral,
          "pp = 2, dp = 2, cp = 2, ep = 2, zero = 1, microbatches = 2, schedule = \"zb-h1\"");
}

Test(pipeline_knobs, shared_out_gradients) {
    prove_each(&pipe_gpt, NULL, "dp = 2, zero = 2");
    prove_each(&pipe_mlp, NULL, "dp = 2, tp = 2, zero = 2");
    prove_with(&pipe_llama, "batch=16", NULL,
               "pp = 2, dp = 4, zero = 2, zero_group = 2, microbatches = 2");
}

/* Gathered on their stage, where they are read. */
Test(pipeline_knobs, shared_out_weights) {
    prove_each(&pipe_gpt, NULL, "dp = 2, zero = 3");
    prove(&pipe_t5,
          "pp = 2, dp = 2, microbatches = 4, zero = 3, prefetch = 2, schedule = \"zb-h1\"");
    prove(&pipe_gpt, "pp = 2, dp = 2, microbatches = 4, zero = 3, recompute = full");
}

/* Gathered once a step on their stage, before the first microbatch. */
Test(pipeline_knobs, gathered_weights_that_stay) {
    prove_each(&pipe_gpt, NULL, "dp = 2, zero = 3, reshard_after_forward = never, no_sync = true");
    prove_each(&pipe_llama, NULL, "dp = 2, zero = 3, no_sync = true");
    prove_each(&pipe_mlp, NULL, "dp = 2, zero = 2, no_sync = true");
    prove(&pipe_t5, "pp = 2, dp = 2, tp = 2, microbatches = 4, zero = 3, no_sync = true, "
                    "reshard_after_forward = never, schedule = \"zb-h1\"");
    prove(&pipe_mixtral, "pp = 2, dp = 4, ep = 2, microbatches = 2, zero = 3, no_sync = true, "
                         "reshard_after_forward = never, recompute = full");
    prove_with(&pipe_llama, "batch=16", NULL,
               "pp = 2, dp = 4, zero = 3, zero_group = 2, microbatches = 2, no_sync = true, "
               "reshard_after_forward = never");
    prove(&pipe_gpt, "pp = 2, dp = 2, microbatches = 1, zero = 3, reshard_after_forward = never");
    refuse(&pipe_gpt, "pp = 2, dp = 2, microbatches = 2, zero = 3, reshard_after_forward = never",
           "several microbatches read the gathered weights", "no_sync = true");
}

Test(pipeline_knobs, offload) {
    prove_each(&pipe_gpt, NULL, "offload = activations");
    prove(&pipe_llama, "pp = 2, dp = 2, microbatches = 4, zero = 1, schedule = \"chimera\", "
                       "offload = [activations, optimizer, weights]");
}

Test(pipeline_knobs, small_buckets) {
    prove_each(&pipe_gpt, NULL, "dp = 2, bucket_size = 200 B");
}

/* Which devices a stage has; what it computes does not change. */
Test(pipeline_knobs, orders_of_the_mesh) {
    static const char *const orders[] = {"dp pp cp tp", "tp cp dp pp", "cp tp pp dp"};
    char text[256];
    for (uint32_t i = 0; i < 3; i++) {
        snprintf(text, sizeof text,
                 "pp = 2, dp = 2, tp = 2, cp = 2, zero = 1, microbatches = 2, order = \"%s\", "
                 "schedule = \"zb-h1\"",
                 orders[i]);
        prove(&pipe_gpt, text);
        snprintf(text, sizeof text,
                 "pp = 4, dp = 2, tp = 2, microbatches = 8, order = \"%s\", schedule = \"%s\"",
                 orders[i], i ? "chimera" : "1f1b");
        prove_with(&pipe_mlp, "batch=16", NULL, text);
    }
}

Test(pipeline_knobs, sends) {
    prove(&pipe_gpt, "pp = 2, microbatches = 4, p2p = batched");
    prove(&pipe_gpt, "pp = 2, microbatches = 4, p2p = blocking");
    prove(&pipe_gpt, "pp = 2, microbatches = 4, p2p = paired");
    prove(&pipe_llama, "pp = 2, tp = 2, microbatches = 4, p2p = paired, scatter_gather = true");
    prove(&pipe_llama, "pp = 2, tp = 2, microbatches = 4, p2p = buffered, scatter_gather = true");
    prove_with(&pipe_gpt, NULL, "optimizer = sgd", "pp = 2, microbatches = 4, tied_dtype = bf16");
    prove(&pipe_gpt, "pp = 2, tp = 2, microbatches = 4, scatter_gather = true");
    prove(&pipe_gpt, "pp = 2, tp = 2, sp = true, microbatches = 4, scatter_gather = true");
}

/* ---- numbers of stages, microbatches, layers ---- */

Test(pipeline_knobs, more_stages) {
    static const char *const names[] = {"1f1b", "interleaved", "zb-h2", "zb-v", "hanayo", "v-half"};
    char set[64], text[256];
    for (uint32_t pp = 3; pp <= 8; pp += pp < 4 ? 1 : 4)
        for (uint32_t i = 0; i < sizeof names / sizeof *names; i++) {
            snprintf(set, sizeof set, "layers=%u batch=%u hidden=8", 2 * pp, 4 * pp);
            snprintf(text, sizeof text, "pp = %u, dp = 2, microbatches = %u, schedule = \"%s\"", pp,
                     2 * pp, names[i]);
            prove_with(i % 2 ? &pipe_gpt : &pipe_llama, set, "optimizer = sgd", text);
        }
    prove_with(&pipe_gpt, "layers=8 batch=8", NULL,
               "pp = 4, microbatches = 8, schedule = \"dualpipe\"");
    prove_with(&pipe_mlp, "layers=8 batch=16 width=8", NULL,
               "pp = 8, dp = 2, microbatches = 8, schedule = \"chimera\"");
}

Test(pipeline_knobs, one_microbatch) {
    static const char *const names[] = {"gpipe", "1f1b", "eager-1f1b", "breadth-first", "zb-h1",
                                        "zb-h2", "zb-v", "v-half",     "v-min",         "hanayo"};
    char text[256];
    for (uint32_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(text, sizeof text, "pp = 2, dp = 2, schedule = \"%s\"", names[i]);
        prove(i % 2 ? &pipe_gpt : &pipe_t5, text);
    }
}

Test(pipeline_knobs, odd_numbers_of_microbatches) {
    static const char *const names[] = {"gpipe", "1f1b", "zb-h1", "zb-v", "v-min", "hanayo"};
    char text[256], set[64];
    for (uint32_t i = 0; i < sizeof names / sizeof *names; i++)
        for (uint32_t m = 3; m <= 7; m += 2) {
            snprintf(text, sizeof text, "pp = 2, microbatches = %u, schedule = \"%s\"", m,
                     names[i]);
            snprintf(set, sizeof set, "batch=%u", m);
            prove_with(&pipe_llama, set, NULL, text);
        }
    prove_with(&pipe_gpt, "batch=5", NULL, "pp = 2, microbatches = 5, schedule = \"dualpipev\"");
}

Test(pipeline_knobs, uneven_layers) {
    prove(&pipe_gpt, "pp = 2, microbatches = 4, stage_layers = [1, 3]");
    prove(&pipe_mlp, "pp = 2, microbatches = 4, stage_layers = [3, 1], schedule = \"zb-h2\"");
    prove(&pipe_t5, "pp = 2, microbatches = 4, stage_layers = [1, 3], schedule = \"zb-h1\"");
    prove(&pipe_t5, "pp = 2, microbatches = 4, stage_layers = [3, 1], schedule = \"chimera\"");
    prove(&pipe_llama,
          "pp = 2, microbatches = 4, stage_layers = [1, 1, 2, 0], schedule = \"interleaved\"");
    prove_with(&pipe_gpt, "layers=7", NULL, "pp = 3, dp = 2, microbatches = 4, balance = flops");
}

/* The embedding, or the head, is a chunk of its own. */
Test(pipeline_knobs, embedding_and_head_alone) {
    static const char *const layers[] = {"[0, 4]", "[4, 0]"};
    static const char *const four[] = {"[0, 2, 2, 0]", "[0, 4, 0, 0]"};
    char text[256];
    for (uint32_t i = 0; i < 2; i++) {
        snprintf(text, sizeof text, "pp = 2, dp = 2, microbatches = 4, stage_layers = %s",
                 layers[i]);
        prove(&pipe_gpt, text);
        prove(&pipe_llama, text);
        prove(&pipe_t5, text);
    }
    prove(&pipe_gpt, "pp = 2, microbatches = 4, stage_layers = [0, 4], schedule = \"zb-h1\"");
    prove(&pipe_t5, "pp = 2, microbatches = 4, stage_layers = [0, 4], schedule = \"zb-h1\"");
    snprintf(text, sizeof text,
             "pp = 2, microbatches = 4, stage_layers = %s, schedule = \"interleaved\"", four[0]);
    prove(&pipe_gpt, text);
    prove(&pipe_llama, text);
}

/* ---- training ---- */

Test(pipeline_knobs, optimizers) {
    static const char *const trains[] = {
        "optimizer = none, keep_gradients = true", "optimizer = none",
        "optimizer = sgd, keep_gradients = true", "optimizer = momentum, momentum = 0.8",
        "optimizer = adamw, weight_decay = 0.1"};
    for (uint32_t i = 0; i < sizeof trains / sizeof *trains; i++) {
        prove_with(&pipe_gpt, NULL, trains[i], "pp = 2, microbatches = 4");
        prove_with(&pipe_gpt, NULL, trains[i],
                   "pp = 2, dp = 2, zero = 1, microbatches = 4, schedule = \"zb-v\"");
        prove_with(&pipe_t5, NULL, trains[i],
                   "pp = 2, dp = 2, microbatches = 4, schedule = \"dualpipe\"");
    }
}

Test(pipeline_knobs, dtypes) {
    static const char *const trains[] = {
        "optimizer = adam, dtype = bf16", "optimizer = adam, dtype = bf16, grad_dtype = f32",
        "optimizer = sgd, dtype = f16, grad_dtype = f16, master_dtype = f32",
        "optimizer = adam, dtype = bf16, state_dtype = bf16", "optimizer = sgd, grad_dtype = bf16"};
    for (uint32_t i = 0; i < sizeof trains / sizeof *trains; i++) {
        prove_with(&pipe_gpt, NULL, trains[i], "pp = 2, tp = 2, microbatches = 4");
        prove_with(&pipe_gpt, NULL, trains[i],
                   "pp = 2, dp = 2, zero = 1, microbatches = 4, schedule = \"zb-h1\"");
        prove_with(&pipe_llama, NULL, trains[i],
                   "pp = 2, dp = 2, zero = 2, microbatches = 4, schedule = \"chimera\"");
    }
}

/* ---- schedules that are written out ---- */

/* Backward in falling order of microbatches, and stage 1's W in another. */
static const char falling[] = "schedule @s {\n  chunks 2\n  place 0->0 1->1\n"
                              "  rank 0: F0.0 F0.1 F0.2 B0.2 B0.1 W0.2 B0.0 W0.0 W0.1\n"
                              "  rank 1: F1.0 F1.1 F1.2 B1.2 B1.1 B1.0 W1.1 W1.0 W1.2\n}\n";
/* Both passes out of order; W of one microbatch apart, of the others not. */
static const char shuffled[] = "schedule @s {\n  chunks 2\n  place 0->1 1->0\n"
                               "  rank 1: F0.1 F0.2 F0.0 B0.2 B0.0 W0.0 B0.1\n"
                               "  rank 0: F1.1 F1.2 B1.2 F1.0 B1.0 B1.1 W1.1\n}\n";
/* Three chunks, two of them on stage 0, issued together. */
static const char loop[] = "schedule @s {\n  chunks 3\n  place 0->0 1->1 2->0\n"
                           "  rank 0: F0.0 F0.1 F2.0 B2.0 F2.1&B0.0 B2.1 B0.1\n"
                           "  rank 1: F1.0 F1.1 B1.0 B1.1\n}\n";
/* Two copies of the weights, the microbatches not in turn, backward not in their order. */
static const char copies[] = "schedule @s {\n  chunks 2\n  place 0->0 1->1 0->1 1->0\n"
                             "  rank 0: F0.0 F0.3 F1.1 F1.2 B1.2 B1.1 B0.3 B0.0\n"
                             "  rank 1: F0.1 F0.2 F1.0 F1.3 B1.3 B1.0 B0.2 B0.1\n}\n";

static void prove_schedule(const pipe_model *model, const char *schedule, uint32_t m,
                           const char *more) {
    char strategy[256], set[64];
    snprintf(strategy, sizeof strategy, "pp = 2, microbatches = %u, schedule = @s%s", m, more);
    snprintf(set, sizeof set, "batch=%u", 2 * m);
    pipe_expect_equal(
        &(pipe_case){.model = model, .strategy = strategy, .set = set, .items = schedule});
}

Test(pipeline_knobs, schedules_of_the_module) {
    const pipe_model *models[] = {&pipe_gpt, &pipe_t5};
    for (uint32_t i = 0; i < 2; i++) {
        prove_schedule(models[i], falling, 3, "");
        prove_schedule(models[i], falling, 3, ", dp = 2, zero = 1");
        prove_schedule(models[i], shuffled, 3, ", tp = 2");
        prove_schedule(models[i], shuffled, 3, ", dp = 2, zero = 2, recompute = full");
        prove_schedule(models[i], copies, 4, ", dp = 2");
        prove_schedule(models[i], loop, 2, ", virtual_stages = 2, dp = 2");
    }
}

Test(pipeline_knobs, schedule_of_a_file) {
    char path[] = "/tmp/distsim-schedule-XXXXXX", strategy[256];
    int fd = mkstemp(path);
    FILE *file = fdopen(fd, "w");
    cr_assert_not_null(file);
    fprintf(file, "dir 1\n\n%s", falling);
    fclose(file);
    snprintf(strategy, sizeof strategy, "pp = 2, dp = 2, microbatches = 3, schedule = \"file:%s\"",
             path);
    prove_with(&pipe_gpt, "batch=6", NULL, strategy);
    unlink(path);
}

/* ---- what is refused ---- */

Test(pipeline_knobs, refused_layers) {
    refuse(&pipe_gpt, "pp = 2, stage_layers = [1, 2]", "make 3", "4 turns");
    refuse(&pipe_gpt, "pp = 2, stage_layers = [1, 2, 1]", "3 numbers", "2 chunks");
    refuse(&pipe_mlp, "pp = 2, stage_layers = [0, 4]", "chunk 0", "stage_layers");
    refuse(&pipe_gpt, "pp = 8, microbatches = 4", "4 turns", "8 chunks");
    refuse(&pipe_mlp, "pp = 8, microbatches = 4, balance = flops", "8 chunks", "only 4");
}

Test(pipeline_knobs, refused_schedules) {
    refuse_with(&pipe_gpt, "batch=6", NULL, "pp = 2, microbatches = 3, schedule = \"interleaved\"",
                "microbatches (3)", "stages (2)");
    refuse(&pipe_gpt, "pp = 2, microbatches = 2, schedule = \"dualpipe\"", "(2 * 2 = 4)", "not 2");
    refuse(&pipe_gpt, "pp = 2, microbatches = 2, schedule = \"dualpipev\"", "(2 * 2 = 4)", "not 2");
    refuse(&pipe_gpt, "pp = 2, microbatches = 1, schedule = \"chimera\"", "even number", "not 1");
    refuse_with(&pipe_mlp, "batch=6", NULL, "pp = 3, microbatches = 6, schedule = \"chimera\"",
                "even number of stages", "not 3");
    refuse(&pipe_gpt, "pp = 2, microbatches = 2, schedule = \"chimera\"", "one of 2 microbatches",
           "needs two");
    refuse(&pipe_gpt, "pp = 2, microbatches = 4, schedule = \"zb-v\", virtual_stages = 3",
           "2 chunks", "virtual_stages = 3");
    refuse(&pipe_gpt, "pp = 2, microbatches = 4, schedule = \"1f1p\"", "1f1p", "did you mean");
    refuse(&pipe_gpt, "pp = 2, microbatches = 4, schedule = \"file:nowhere.dir\"", "nowhere.dir",
           "");
    refuse(&pipe_gpt, "schedule = \"zb-h1\", microbatches = 4", "pp > 1", "one stage");
    refuse(&pipe_gpt, "virtual_stages = 2", "pp > 1", "");
    refuse(&pipe_gpt, "stage_layers = [4]", "pp > 1", "");
}

Test(pipeline_knobs, refused_schedules_that_are_written_out) {
    static const char stops[] = "schedule @s {\n  chunks 2\n  place 0->0 1->1\n"
                                "  rank 0: B0.0 F0.0 F0.1 B0.1\n  rank 1: F1.0 B1.0 F1.1 B1.1\n}\n";
    static const char without[] = "schedule @s {\n  chunks 2\n  place 0->0 1->1\n"
                                  "  rank 0: F0.0 F0.1 B0.0 B0.1\n  rank 1: F1.0 B1.0 F1.1\n}\n";
    const struct {
        const char *schedule, *strategy, *a, *b;
    } all[] = {{stops, "pp = 2, microbatches = 2, schedule = @s", "B0.0", "F0.0"},
               {without, "pp = 2, microbatches = 2, schedule = @s", "B1.1", ""},
               {falling, "pp = 2, microbatches = 4, schedule = @s", "3", "4"},
               {falling, "pp = 4, microbatches = 2, schedule = @s", "2", "4"},
               {falling, "pp = 2, microbatches = 3, schedule = @t", "@t", ""}};
    for (uint32_t i = 0; i < sizeof all / sizeof *all; i++) {
        const char *parts[] = {all[i].a, all[i].b, NULL};
        pipe_expect_refused(
            &(pipe_case){.model = &pipe_gpt, .strategy = all[i].strategy, .items = all[i].schedule},
            parts);
    }
}

/* Loops in loops stay whole, and so do their sums of gradients. */
Test(pipeline_knobs, refused_recomputation) {
    refuse(&pipe_gpt, "pp = 2, microbatches = 2, recompute = \"every:2\", schedule = \"zb-h1\"",
           "every:K", "a schedule without W");
}

Test(pipeline_knobs, refused_with_stages) {
    refuse(&pipe_gpt, "pp = 2, microbatches = 3", "3", "batch");
    refuse(&pipe_gpt, "pp = 3, microbatches = 4, tp = 8", "24", "16");
}
