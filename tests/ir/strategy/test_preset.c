/* What frameworks set where the scenario says nothing, and that they set nothing else. */
#include "ir/ops/ops.h"
#include "ir/strategy/preset.h"
#include "tests/support/step.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

/* The settings that a scenario's framework makes, as a report prints them. */
static void expect(const char *framework, const char *train, const char *strategy,
                   const char *settings) {
    char text[2048];
    step_case c;
    ds_buf out = {0};
    snprintf(text, sizeof text,
             "dir 1\nimport \"models/gpt.dir\" as model with layers = 2, hidden = 16, heads = 4,"
             " seq = 8, vocab = 32, batch = 8\n"
             "topology @box {\n  device gpu[8] : \"A100-SXM4-80GB\"\n  switch s\n"
             "  link gpu[i] -- s : 300 GB/s, 1 us for i in 0..8\n}\n"
             "scenario {\n  model = @model.gpt\n  on = @box\n  framework = %s\n"
             "  train { loss = none, optimizer = adam%s }\n  strategy { %s }\n}\n",
             framework, train, strategy);
    step_make(&c, text, NULL, DS_PASS_SHARD);
    cr_assert_eq(c.status, DS_OK, "%s: %s", framework, c.err.message);
    bool any = ds_preset_print(&c.binding, &c.step->train, &c.step->strategy, &out);
    cr_expect_eq(any, *settings != '\0');
    cr_expect_str_eq(any ? out.text : "", settings, "%s { %s }", framework, strategy);
    ds_buf_deinit(&out);
    step_free(&c);
}

Test(preset, what_each_framework_sets) {
    expect("none", "", "dp = 2", "");
    expect("deepspeed", "", "dp = 2, zero = 1", "kernels = eager, late_reduce = true");
    expect("deepspeed", "", "cp = 2", "kernels = eager, late_reduce = true");
    expect("deepspeed", "", "dp = 2, zero = 2", "kernels = eager, bucket_size = 2000 MB");
    expect("megatron", ", dtype = bf16", "dp = 2, tp = 2, pp = 2, microbatches = 2",
           "clip_norm = 1.0, grad_dtype = f32, late_reduce = true, scatter_gather = true, "
           "masks = kept, kernels = fused");
    expect("megatron", "", "dp = 2, cp = 2, zero = 1",
           "clip_norm = 1.0, late_reduce = true, zero_cp = true, masks = kept, kernels = fused");
    expect("megatron", "", "cp = 2",
           "clip_norm = 1.0, late_reduce = true, masks = kept, kernels = fused");
    expect("deepspeed", "", "cp = 2, zero = 2",
           "kernels = eager, zero_cp = true, bucket_size = 2000 MB");
    expect("fsdp", "", "cp = 2",
           "zero = 3, zero_cp = true, reshard_after_forward = root, prefetch = 1, bucket_size = "
           "1 TB, masks = kept, kernels = "
           "eager");
    expect("megatron", ", dtype = f16", "tp = 2, dp = 1",
           "clip_norm = 1.0, masks = kept, kernels = fused");
    expect(
        "megatron_deepspeed", "", "dp = 2, zero = 1",
        "clip_norm = 1.0, late_reduce = true, zero_uneven = true, masks = kept, kernels = fused");
    expect("fsdp", "", "dp = 4",
           "zero = 3, reshard_after_forward = root, prefetch = 1, zero_uneven = true, "
           "bucket_size = 1 TB, masks = kept, kernels = "
           "eager");
    expect("fsdp", "", "dp = 2, pp = 2, microbatches = 2",
           "zero = 3, reshard_after_forward = root, no_sync = true, prefetch = 1, zero_uneven = "
           "true, bucket_size = 1 TB, "
           "masks = kept, kernels = eager");
    expect("torchtitan", "", "dp = 2, pp = 2, microbatches = 2",
           "clip_norm = 1.0, zero = 3, reshard_after_forward = default, no_sync = true, "
           "first_stage_less = 1, "
           "last_stage_less = 1, prefetch = 1, "
           "zero_uneven = true, bucket_size = 1 TB, masks = kept, kernels = eager");
    expect("torchtitan", "", "dp = 2, microbatches = 2",
           "clip_norm = 1.0, zero = 3, reshard_after_forward = default, prefetch = 1, zero_uneven "
           "= true, bucket_size = 1 TB, "
           "masks = kept, kernels = eager");
    expect("fsdp", "", "dp = 1",
           "zero = 3, prefetch = 1, bucket_size = 1 TB, masks = kept, kernels = eager");
}

Test(preset, what_is_stated_stays) {
    expect("megatron", ", clip_norm = 0, dtype = bf16, grad_dtype = bf16",
           "dp = 2, late_reduce = false", "masks = kept, kernels = fused, bucket_size = 80 MB");
    expect("megatron", ", clip_norm = 0", "dp = 2, late_reduce = false, bucket_size = 1 MB",
           "masks = kept, kernels = fused");
    expect("fsdp", "", "dp = 4, zero = 2",
           "prefetch = 1, bucket_size = 1 TB, masks = kept, kernels = eager");
}

/* Megatron-LM: max(40e6, 1e6 · dp · cp) parameters, in the dtype of gradients. */
Test(preset, buckets_grow_with_the_replicas) {
    static const char text[] =
        "dir 1\nimport \"models/gpt.dir\" as model with layers = 2, hidden = 16, heads = 4,"
        " seq = 8, vocab = 32, batch = 8\n"
        "topology @box {\n  device gpu[8] : \"A100-SXM4-80GB\"\n  switch s\n"
        "  link gpu[i] -- s : 300 GB/s, 1 us for i in 0..8\n}\n"
        "scenario {\n  model = @model.gpt\n  on = @box\n  framework = megatron\n"
        "  train { loss = none, optimizer = adam, dtype = bf16 }\n"
        "  strategy { dp = 8, late_reduce = false }\n}\n";
    step_case c;
    step_make(&c, text, NULL, DS_PASS_SHARD);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    ds_strategy s = c.step->strategy;
    cr_expect_eq(s.bucket_bytes, 160000000, "40e6 gradients of f32");
    s.dp = 64;
    cr_expect_eq(ds_preset_bucket_bytes(&c.binding, &c.step->train, &s), 4 * 64000000LL);
    s.cp = 2;
    cr_expect_eq(ds_preset_bucket_bytes(&c.binding, &c.step->train, &s), 4 * 128000000LL);
    s.late_reduce = true;
    cr_expect_eq(ds_preset_bucket_bytes(&c.binding, &c.step->train, &s), 0);
    step_free(&c);
}

static bool has(const ds_block *block, ds_opcode code) {
    bool found = false;
    for (uint32_t i = 0; i < block->n_ops && !found; i++)
        found =
            block->ops[i]->code == code || (block->ops[i]->body && has(block->ops[i]->body, code));
    return found;
}

/* The step is the one that a scenario with these settings has. */
Test(preset, settings_are_carried_out) {
    static const char *const frameworks[] = {"none", "megatron", "fsdp"};
    for (int f = 0; f < 3; f++) {
        char text[1024];
        step_case c;
        snprintf(text, sizeof text,
                 "dir 1\ntopology @box {\n  device gpu[2] : \"A100-SXM4-80GB\"\n  switch s\n"
                 "  link gpu[i] -- s : 300 GB/s, 1 us for i in 0..2\n}\n"
                 "func @f(%%x: f32[8@dp, 16]) -> f32[8@dp, 16] {\n  weight %%w : f32[16, 16]\n"
                 "  %%y = matmul(%%x, %%w)\n  return %%y\n}\n"
                 "scenario {\n  model = @f\n  on = @box\n  framework = %s\n"
                 "  train { loss = mse, optimizer = sgd }\n  strategy { dp = 2 }\n}\n",
                 frameworks[f]);
        step_make(&c, text, NULL, DS_PASS_SHARD);
        cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
        const ds_block *body = &c.step->func->body;
        cr_expect_eq(has(body, DS_OP_CLIP_FACTOR), f == 1, "%s", frameworks[f]);
        cr_expect_eq(has(body, DS_OP_ALL_GATHER), f == 2, "%s", frameworks[f]);
        step_free(&c);
    }
}
