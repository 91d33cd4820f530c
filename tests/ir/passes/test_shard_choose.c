/* Which factor of an op takes an axis, by what that costs: bytes that a device sends by the ring
 * formulas, (n - 1)/n of a gathered tensor, 2 (n - 1)/n of a summed one. */
#include "ir/ops/ops.h"
#include "tests/support/step.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

/* x w has rows x inner elements, of which each device has some columns; its product with itself
 * transposed, rows x rows, is a sum over columns. */
static const char gram[] =
    "dir 1\nparam rows = 8, inner = 8, tp = 2\n"
    "topology @box {\n  device gpu[8] : \"A100-SXM4-80GB\"\n  switch sw\n"
    "  link gpu[i] -- sw : 300 GB/s, 1 us for i in 0..8\n}\n"
    "func @net(%x: f32[rows, 16]) -> f32[rows, rows] {\n"
    "  weight %w : f32[16, inner@tp]\n"
    "  %h = matmul(%x, %w)\n"
    "  %y = einsum(%h, %h) {rule = \"b k, c k -> b c\"} : f32[rows, rows]\n"
    "  return %y\n}\n"
    "scenario {\n  model = @net\n  on = @box\n  train = off\n  strategy { tp = tp }\n}\n";

static uint32_t count(const step_case *c, ds_opcode code) {
    const ds_block *body = &c->step->func->body;
    uint32_t n = 0;
    for (uint32_t i = 0; i < body->n_ops; i++) n += body->ops[i]->code == code;
    return n;
}

/* To gather both operands takes 2 rows inner (n - 1)/n, to sum the result 2 rows rows (n - 1)/n.
 * Where both take as long the work is split. */
Test(shard_choose, sums_a_small_result_and_gathers_small_operands) {
    for (int tp = 2; tp <= 8; tp *= 2)
        for (int rows = 8; rows <= 64; rows += 8) {
            char settings[64];
            step_case c;
            snprintf(settings, sizeof settings, "rows=%d inner=32 tp=%d", rows, tp);
            step_make(&c, gram, settings, DS_PASS_SHARD);
            cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
            cr_expect_eq(count(&c, DS_OP_ALL_REDUCE), rows <= 32, "%s", settings);
            cr_expect_eq(count(&c, DS_OP_ALL_GATHER) > 0, rows > 32, "%s", settings);
            step_free(&c);
        }
}

/* The meshes @all and @m are made for 2 of 8 devices, on a topology of either name. */
Test(shard_choose, meshes_have_names_that_topologies_leave) {
    static const char *const names[] = {"all", "m"};
    for (int i = 0; i < 2; i++) {
        char text[sizeof gram + 8], *to = text;
        for (const char *at = gram, *box; *at; at = box ? box + strlen("@box") : at + strlen(at)) {
            box = strstr(at, "@box");
            int n = box ? (int)(box - at) : (int)strlen(at);
            to += sprintf(to, "%.*s%s%s", n, at, box ? "@" : "", box ? names[i] : "");
        }
        step_case c;
        step_make(&c, text, NULL, DS_PASS_SHARD);
        cr_expect_eq(c.status, DS_OK, "%s", c.err.message);
        step_free(&c);
    }
}
