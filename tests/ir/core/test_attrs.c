/* The values that attribute specs list against those that the simulator knows: what the verifier
 * accepts is what a run can do, and no less. */
#include "ir/ops/ops.h"
#include "sim/coll/coll.h"
#include "sim/plan/plan.h"
#include "tests/support/generate/topo_text.h"

#include <criterion/criterion.h>
#include <string.h>

/* Is `name = word` accepted by the spec? */
static bool accepts(ds_unit *unit, const char *spec, const char *name, const char *word,
                    ds_error *err) {
    ds_infer ctx = {.unit = unit};
    ds_attr attr = {.name = name, .kind = DS_ATTR_WORD, .word = word};
    return ds_op_check_attr(&ctx, &attr, &spec, 1, "it", err) == DS_OK;
}

#define N 4

static bool simulated(const topo_text *t, ds_opcode op, const char *algorithm) {
    const uint32_t devices[N] = {0, 1, 2, 3};
    const ds_exchange tokens = {.experts = N, .top = 1, .filled = 1, .bytes = 16};
    ds_coll_request request = {.op = op,
                               .devices = devices,
                               .n = N,
                               .shift = 1,
                               .bytes = 1024,
                               .exchange = op == DS_OP_ALL_TO_ALL ? &tokens : NULL};
    ds_arena arena;
    ds_phase *phases;
    uint32_t n;
    ds_arena_init(&arena);
    ds_status status = ds_coll_phases(t->topo, &request, algorithm, &arena, &phases, &n, NULL);
    ds_arena_deinit(&arena);
    cr_expect(status == DS_OK || status == DS_ERR_UNSUPPORTED);
    return status == DS_OK;
}

/* recv meets a send, reshard becomes whichever collective its types ask for. */
Test(attrs, algorithms_are_those_of_the_collectives) {
    topo_text t = topo_text_build("topology @nodes {\n  device d[4] : \"V100-SXM2-16GB\"\n"
                                  "  switch s[2], top {reduce = true}\n  nic n[4]\n"
                                  "  link d[i] -- s[i / 2] : 10 GB/s, 1 us for i in 0..4\n"
                                  "  link d[i] -- n[i] : 1 GB/s, 1 us for i in 0..4\n"
                                  "  link n[i] -- top : 1 GB/s, 1 us for i in 0..4\n}\n");
    for (ds_opcode op = DS_OP_FIRST_TABLE_OP; op < DS_OP_COUNT; op++) {
        const ds_op_desc *desc = ds_op_desc_of(op);
        if (!(desc->flags & DS_OPF_COLLECTIVE) || op == DS_OP_RESHARD) continue;
        const char *name;
        for (uint32_t a = 0; (name = ds_coll_algorithm(a)) != NULL; a++) {
            bool known = accepts(t.unit, desc->attrs, "algorithm", name, NULL);
            bool runs = simulated(&t, op == DS_OP_RECV ? (ds_opcode)DS_OP_SEND : op, name);
            cr_expect_eq(known, runs, "%s by %s: listed %d, simulated %d", desc->name, name, known,
                         runs);
        }
    }
    topo_text_free(&t);
}

Test(attrs, roles_are_the_categories_of_memory) {
    topo_text t = topo_text_build("topology @one {\n  device d : \"V100-SXM2-16GB\"\n}\n");
    uint32_t listed = 1;
    for (const char *at = ds_op_role_attr; (at = strchr(at, ',')) != NULL; at++) listed++;
    cr_expect_eq(listed, (uint32_t)DS_CATEGORY_COUNT);
    for (uint32_t c = 0; c < DS_CATEGORY_COUNT; c++)
        cr_expect(accepts(t.unit, ds_op_role_attr, "role", ds_category_name((ds_category)c), NULL));
    topo_text_free(&t);
}

Test(attrs, what_is_wrong_lists_what_is_right) {
    topo_text t = topo_text_build("topology @one {\n  device d : \"V100-SXM2-16GB\"\n}\n");
    const char *spec = "kind:str{ring,tree}=ring depth:int";
    ds_error err = {0};
    cr_expect(accepts(t.unit, spec, "kind", "tree", &err));
    cr_expect_not(accepts(t.unit, spec, "kind", "rin", &err), "a prefix of a choice is none");
    cr_expect_str_eq(err.message, "it: kind \"rin\" is none of ring, tree; did you mean 'ring'?");
    cr_expect_not(accepts(t.unit, spec, "kind", "ring,tree", &err));
    cr_expect_not(accepts(t.unit, spec, "size", "ring", &err));
    cr_expect_str_eq(err.message, "it has no attribute 'size'; it takes kind, depth");
    cr_expect_not(accepts(t.unit, spec, "depth", "ring", &err));
    cr_expect_str_eq(err.message, "it: attribute 'depth' must be an integer");
    topo_text_free(&t);
}
