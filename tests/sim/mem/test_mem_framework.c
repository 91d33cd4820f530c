/* DeepSpeed's own buffers (sim/mem/framework.c) by closed form, for a GPT of
 * P = l (12 h² + 13 h) + (V + s + 2) h parameters over dp replicas with ZeRO 1:
 *
 *     f16 gradients            2 P/dp + 4 P/dp + 2 · 5e8
 *     f32 sums of f16 ones     2 P + 4 · 5e8
 *     all in f32               4 · 5e8
 *
 * beside the kernels of a process of 2022,
 *
 * shares of states that three replicas do not divide, and FSDP's parts (sim/mem/fsdp.c). */
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

enum { LAYERS = 2, HIDDEN = 64, VOCAB = 256, SEQ = 16 };
#define PARAMS                                                                                     \
    (INT64_C(1) * LAYERS * (12 * HIDDEN * HIDDEN + 13 * HIDDEN) + (VOCAB + SEQ + 2) * HIDDEN)

static void simulate(sim_case *c, int dp, const char *train, const char *more) {
    char text[1024];
    snprintf(text, sizeof text,
             "dir 1\nimport \"models/megatron.dir\" as m with layers = %d, hidden = %d, heads = 4, "
             "seq = %d, vocab = %d, batch = %d\n"
             "topology @box {\n  device d[%d] : \"A100-SXM4-80GB\"\n  switch s\n"
             "  link d[i] -- s : 300 GB/s, 1 us for i in 0..%d\n}\n"
             "scenario { model = @m.gpt, on = @box, train { optimizer = adam%s }, strategy { dp = "
             "%d%s%s } }\n",
             LAYERS, HIDDEN, SEQ, VOCAB, dp, dp, dp, train, dp,
             strstr(more, "zero =") ? "" : ", zero = 1", more);
    sim_run_text(c, text, NULL, false);
    cr_assert_eq(c->status, DS_OK, "%s\n%s", c->err.message, text);
}

static int64_t framework_bytes(const char *train) {
    sim_case c;
    ds_mem mem = {0};
    simulate(&c, 4, train, "");
    ds_mem_options options = {.mode = DS_MEM_ALLOCATOR, .framework = DS_MEM_DEEPSPEED};
    cr_assert_eq(ds_mem_compute(c.result->plan, &c.result->run, &options, &mem, NULL), DS_OK);
    cr_expect_eq(mem.n_classes, 1u);
    int64_t bytes = mem.classes[0].peak_by_category[DS_MEM_FRAMEWORK];
    ds_mem_deinit(&mem);
    sim_free(&c);
    return bytes;
}

Test(mem_framework, deepspeed_by_closed_form) {
    const int64_t bucket = 500000000;
    const int64_t modules = 631 * INT64_C(1048576); /* as BigScience measured, less the context */
    cr_expect_eq(framework_bytes(", dtype = f16"), (2 + 4) * PARAMS / 4 + 2 * bucket + modules);
    cr_expect_eq(framework_bytes(", dtype = bf16, grad_dtype = f32"),
                 2 * PARAMS + 4 * bucket + modules);
    cr_expect_eq(framework_bytes(""), 4 * bucket + modules);
}

/* FSDP keeps parts of f32 alone. Of P parameters, dp parts each: 12 bytes of states; the program's
 * parts of 16 bits are 2 more. FSDP2 gathers a unit through a flat tensor beside the weights. */
static ds_mem_class *fsdp_class(ds_mem_framework framework, sim_case *c, ds_mem *mem) {
    simulate(c, 4, ", dtype = bf16", ", zero = 3");
    ds_mem_options options = {.mode = DS_MEM_ALLOCATOR, .framework = framework};
    cr_assert_eq(ds_mem_compute(c->result->plan, &c->result->run, &options, mem, NULL), DS_OK);
    return &mem->classes[0];
}

/* Bytes of all flat tensors that weights are gathered through. */
static int64_t flat_bytes(const sim_case *c, const ds_mem_class *of) {
    const ds_plan *plan = c->result->plan;
    int64_t sum = 0;
    for (uint32_t i = 0; i < of->n_events; i++) {
        const ds_mem_event *e = &of->events[i];
        uint32_t inst = plan->values.at[ds_mem_value(e->value)].inst;
        const ds_op *op = plan->records.at[plan->insts.at[inst].record]->op;
        bool flat = ds_mem_part(e->value) == DS_MEM_SCRATCH && op->code == DS_OP_ALL_GATHER;
        if (flat && e->delta_bytes > 0) sum += e->delta_bytes;
    }
    return sum;
}

Test(mem_framework, fsdp_keeps_no_narrow_parts) {
    static const ds_mem_framework frameworks[] = {DS_MEM_PLAIN, DS_MEM_FSDP, DS_MEM_TORCHTITAN};
    int64_t weight[3], optimizer[3], flat[3];
    for (int i = 0; i < 3; i++) {
        sim_case c;
        ds_mem mem = {0};
        const ds_mem_class *of = fsdp_class(frameworks[i], &c, &mem);
        weight[i] = of->most_by_category[DS_CAT_WEIGHT];
        optimizer[i] = of->most_by_category[DS_CAT_OPTIMIZER];
        flat[i] = flat_bytes(&c, of);
        ds_mem_deinit(&mem);
        sim_free(&c);
    }
    /* a part of at least 512 B for each weight: biases and norms are smaller */
    cr_expect_geq(optimizer[0], 12 * PARAMS / 4);
    cr_expect_geq(weight[0], 2 * PARAMS / 4);
    cr_expect_eq(weight[1], 0);
    cr_expect_eq(weight[2], 0);
    cr_expect_eq(optimizer[1], optimizer[0]);
    cr_expect_eq(optimizer[2], optimizer[0]);
    cr_expect_eq(flat[0], 0);
    cr_expect_eq(flat[1], 0, "weights are views of the flat tensor");
    /* once before the forward pass, once before the backward pass; small weights stay whole */
    cr_expect_geq(flat[2], 2 * 2 * INT64_C(12) * LAYERS * HIDDEN * HIDDEN);
    cr_expect_leq(flat[2], 2 * (2 * PARAMS + 512));
}

/* Which words of `framework` have buffers or streams of their own. */
Test(mem_framework, names) {
    static const struct {
        const char *name;
        ds_mem_framework framework;
    } names[] = {{"none", DS_MEM_PLAIN},          {"megatron", DS_MEM_PLAIN},
                 {"fsdp", DS_MEM_FSDP},           {"torchtitan", DS_MEM_TORCHTITAN},
                 {"deepspeed", DS_MEM_DEEPSPEED}, {"megatron_deepspeed", DS_MEM_DEEPSPEED}};
    ds_mem_framework got;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        cr_expect(ds_mem_framework_parse(names[i].name, &got), "%s", names[i].name);
        cr_expect_eq(got, names[i].framework, "%s", names[i].name);
    }
    cr_expect(!ds_mem_framework_parse("horovod", &got));
    cr_expect(!ds_mem_framework_parse("", &got));
}

Test(mem_framework, none_counts_nothing) {
    sim_case c;
    ds_mem mem = {0};
    simulate(&c, 4, ", dtype = f16", "");
    ds_mem_options options = {.mode = DS_MEM_ALLOCATOR};
    cr_assert_eq(ds_mem_compute(c.result->plan, &c.result->run, &options, &mem, NULL), DS_OK);
    cr_expect_eq(mem.classes[0].peak_by_category[DS_MEM_FRAMEWORK], 0);
    ds_mem_deinit(&mem);
    sim_free(&c);
}

/* Bytes of the optimizer's inputs of a class. */
static int64_t states(const sim_case *c, uint32_t cls) {
    return c->result->mem.classes[cls].input_by_category[DS_CAT_OPTIMIZER];
}

/* All replicas' shares together are the states, once: 12 bytes a parameter. Whole without unequal
 * parts, since 64, 256 and 4 have no third (the 3 of w_qkv has). */
Test(mem_framework, unequal_shares_add_up) {
    sim_case c;
    simulate(&c, 3, ", dtype = f16", ", zero_uneven = true");
    const ds_plan *plan = c.result->plan;
    int64_t sum = 0, most = 0, least = INT64_MAX;
    for (uint32_t k = 0; k < plan->n_classes; k++) {
        int64_t bytes = states(&c, k);
        sum += bytes * plan->classes[k].n_devices;
        if (bytes > most) most = bytes;
        if (bytes < least) least = bytes;
    }
    cr_expect_eq(sum, 12 * PARAMS);
    cr_expect_leq((double)most, 1.1 * (double)least); /* parts differ by one row at most */
    sim_free(&c);

    simulate(&c, 3, ", dtype = f16", "");
    cr_expect_gt(states(&c, 0), 12 * PARAMS / 2);
    sim_free(&c);
}
