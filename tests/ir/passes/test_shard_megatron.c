/* GPT-3 175B over 8 x 8 devices: what the partitioner finds is what Megatron's authors placed by
 * hand. Shoeybi et al. (arXiv:1909.08053, section 3): two all_reduces forward and two backward a
 * layer. Narayanan et al. (arXiv:2104.04473, section 3.2): 8 b s h (t - 1) / t elements a device
 * and layer. Korthikanti et al. (arXiv:2205.05198, section 4.2): with sequence parallelism two
 * pairs of all_gather and reduce_scatter each way, and the input of each pair of matrices is
 * gathered again in the backward pass (table 2's 34 s b h / t holds the scattered one). */
#include "tests/support/launches.h"

#include "ir/ops/ops.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static const char *const GPT3 =
    "dir 1\n"
    "param layers = 96\n"
    "import \"models/gpt.dir\" as g with layers = layers, hidden = 12288, heads = 96, seq = 2048,"
    " vocab = 51200, batch = 8\n"
    "import \"topologies/pod-128x8.dir\"\n"
    "scenario {\n"
    "  model = @g.gpt\n"
    "  on = @pod\n"
    "  train %s\n"
    "  strategy { dp = 8, tp = 8, sp = %s }\n"
    "}\n";

static const char *text(const char *train, const char *sp) {
    static char buffer[1024];
    snprintf(buffer, sizeof buffer, GPT3, train, sp);
    return buffer;
}

static const char FORWARD[] = "= off", STEP[] = "{ loss = none, optimizer = adam, dtype = f16 }";

/* Elements that one device sends in the collectives over tp of a layer, by the ring formulas. */
static double sent(const step_case *c, const ds_block *block, bool in_loop) {
    const ds_func *func = c->step->func;
    ds_env env = ds_binding_env(&c->step->binding, NULL);
    double sum = 0;
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        if (op->code == DS_OP_FOR) sum += sent(c, op->body, true);
        if (!in_loop || op->n_over != 1 || strcmp(op->over[0], "tp") != 0) continue;
        for (uint32_t k = 0; k < op->n_in; k++) {
            const ds_type *type = ds_value_at(func, op->in[k].value)->type;
            double whole = 1;
            for (uint32_t d = 0; d < type->rank; d++) {
                int64_t size;
                cr_assert_eq(ds_expr_eval_int(&env, type->dims[d].size, DS_NOWHERE, &size, NULL),
                             DS_OK);
                whole *= (double)size;
            }
            whole /= 8; /* one replica's part of the batch */
            sum += (op->code == DS_OP_ALL_REDUCE ? 2 : 1) * whole * 7 / 8;
        }
    }
    return sum;
}

#define BSH (1.0 * 2048 * 12288) /* one sample a replica */

Test(megatron, two_all_reduces_each_way) {
    launches forward = launches_a_layer(text(FORWARD, "false"), "", NULL);
    launches step = launches_a_layer(text(STEP, "false"), "", "tp");
    cr_expect_eq(forward.all_reduce, 2);
    cr_expect_eq(step.all_reduce, 4);
    cr_expect_eq(step.all_gather + step.reduce_scatter + step.all_to_all + step.permute, 0);
    cr_expect_eq(step.other, 0);
}

Test(megatron, volume_is_8_bsh) {
    step_case c;
    step_make(&c, text(STEP, "false"), NULL, DS_PASS_SHARD);
    cr_assert(c.step, "%s", c.err.message);
    cr_expect_float_eq(sent(&c, &c.step->func->body, false), 8 * BSH * 7 / 8, 0.5);
    step_free(&c);
}

Test(megatron, sequence_parallel_pairs) {
    launches forward = launches_a_layer(text(FORWARD, "true"), "", NULL);
    launches step = launches_a_layer(text(STEP, "true"), "", "tp");
    cr_expect_eq(forward.all_gather, 2);
    cr_expect_eq(forward.reduce_scatter, 2);
    cr_expect_eq(forward.all_reduce, 0);
    cr_expect_eq(step.all_gather, 2 + 2 + 2, "forward, backward, and the two gathered again");
    cr_expect_eq(step.reduce_scatter, 2 + 2);
    cr_expect_eq(step.all_reduce + step.all_to_all + step.permute + step.other, 0);
}

/* The published volume is that of tensor parallelism; gathering again adds two gathers of b s h. */
Test(megatron, sequence_parallel_volume) {
    step_case c;
    step_make(&c, text(STEP, "true"), NULL, DS_PASS_SHARD);
    cr_assert(c.step, "%s", c.err.message);
    cr_expect_float_eq(sent(&c, &c.step->func->body, false), (8 + 2) * BSH * 7 / 8, 0.5);
    step_free(&c);
}

/* Gradients of a layer are reduced over the replicas in its own turn of the backward loop: those of
 * the matrices alone are 604 MB a device, in buckets of at least 25 MB. */
Test(megatron, gradients_are_reduced_layer_by_layer) {
    launches step = launches_a_layer(text(STEP, "false"), "", "dp");
    cr_expect_geq(step.all_reduce, 1);
    cr_expect_leq(step.all_reduce, 604 / 25);
}
