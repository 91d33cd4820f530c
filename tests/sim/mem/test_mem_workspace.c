/* Workspace (sim/mem/workspace.c) by closed form, in whole blocks of 512 B: cuBLAS's 8,519,680 B a
 * handle and stream (two of 4 MiB, eight of 16 KiB; the number that PyTorch issue 95668 reports) or
 * 32 MiB on Hopper, 1 MiB for products with a bias, scratch of ops while they run, and the roots of
 * Adam's second moments for all weights at once. */
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLAS INT64_C(8519680)
#define MIB  INT64_C(1048576)

static void simulate(sim_case *c, const char *kind, const char *args, const char *body) {
    char text[4096];
    snprintf(text, sizeof text,
             "dir 1\ntopology @t {\n  device d : \"%s\"\n}\nmesh @m = [dp = 1] on @t\n"
             "func @f(%s, %%one: f32[1] on @m) -> f32[1] on @m {\n%s\nreturn %%one\n}\n"
             "scenario { program = @f }\n",
             kind, args, body);
    sim_run_text(c, text, NULL, false);
    cr_assert_eq(c->status, DS_OK, "%s\n%s", c->err.message, text);
}

static ds_mem compute(const sim_case *c, ds_mem_framework framework) {
    ds_mem mem = {0};
    ds_mem_options options = {.mode = DS_MEM_ALLOCATOR, .framework = framework};
    cr_assert_eq(ds_mem_compute(c->result->plan, &c->result->run, &options, &mem, NULL), DS_OK);
    return mem;
}

/* The most workspace at once. */
static int64_t most(const char *kind, const char *args, const char *body,
                    ds_mem_framework framework) {
    sim_case c;
    simulate(&c, kind, args, body);
    ds_mem mem = compute(&c, framework);
    int64_t bytes = mem.classes[0].most_by_category[DS_MEM_WORKSPACE];
    cr_expect_eq(c.result->mem.classes[0].most_by_category[DS_MEM_WORKSPACE], 0, "exact");
    ds_mem_deinit(&mem);
    sim_free(&c);
    return bytes;
}

#define A100 "A100-SXM4-80GB"
#define H100 "H100-SXM5-80GB"
#define XW   "%x: f32[64, 64] on @m, %w: f32[64, 64] on @m, %b: f32[64] on @m"

Test(mem_workspace, cublas) {
    const char *two = "%y = matmul(%x, %w) {cost = 1 us}\n%z = matmul(%y, %w) {cost = 1 us}";
    const char *bias = "%y = matmul(%x, %w) {cost = 1 us}\n%z = bias(%y, %b) {cost = 1 us}";
    const char *train = "%y = matmul(%x, %w) {cost = 1 us}\n%r = relu(%y) {cost = 1 us}\n"
                        "%d = relu_grad(%r, %r) {cost = 1 us}\n"
                        "%g = matmul(%x, %d) {transpose_a = true, cost = 1 us}\n"
                        "%n = sgd(%w, %g) {cost = 1 us}";
    cr_expect_eq(most(A100, XW, "%y = relu(%x) {cost = 1 us}", DS_MEM_PLAIN), 0);
    cr_expect_eq(most(A100, XW, two, DS_MEM_PLAIN), BLAS);
    cr_expect_eq(most(H100, XW, two, DS_MEM_PLAIN), 32 * MIB);
    cr_expect_eq(most(A100, XW, bias, DS_MEM_PLAIN), BLAS + MIB);
    cr_expect_eq(most(A100, XW, train, DS_MEM_PLAIN), 2 * BLAS);
    cr_expect_eq(most(A100, XW, train, DS_MEM_DEEPSPEED), 2 * BLAS);
}

Test(mem_workspace, cublas_for_each_stream) {
    const char *body = "%y = matmul(%x, %w) {cost = 1 us}\n"
                       "%z = matmul(%x, %w) {cost = 1 us, stream = \"side\"}";
    cr_expect_eq(most(A100, XW, body, DS_MEM_PLAIN), 2 * BLAS);
}

/* A bias that is added to something else is no call of cuBLASLt. */
Test(mem_workspace, cublaslt_behind_products_only) {
    const char *body = "%y = matmul(%x, %w) {cost = 1 us}\n%r = relu(%y) {cost = 1 us}\n"
                       "%z = bias(%r, %b) {cost = 1 us}";
    cr_expect_eq(most(A100, XW, body, DS_MEM_PLAIN), BLAS);
}

/* 4·2·4·256 + 4·2·256·4·64 bytes, for as long as the op runs: not twice for two of them. */
Test(mem_workspace, scratch_while_an_op_runs) {
    const char *args = "%q: bf16[2, 256, 4, 64] on @m, %l: f32[2, 256, 4] on @m";
    const char *body = "%a, %b, %c = attention_grad(%q, %q, %q, %q, %q, %l) {cost = 5 us}\n"
                       "%d, %e, %f = attention_grad(%a, %q, %q, %q, %q, %l) {cost = 5 us}\n"
                       "%z = add(%d, %e) {cost = 1 us}";
    cr_expect_eq(most(A100, args, body, DS_MEM_PLAIN), 8192 + 524288);
}

#define STATES                                                                                     \
    "%w: bf16[64, 64] on @m, %g: bf16[64, 64] on @m, %m: f32[64, 64] on @m, "                      \
    "%v: f32[64, 64] on @m, %u: bf16[32, 32] on @m, %h: bf16[32, 32] on @m, "                      \
    "%n: f32[32, 32] on @m, %o: f32[32, 32] on @m"
#define FIRST  "%w1, %m1, %v1 = adam(%w, %g, %m, %v) {cost = 1 us}\n"
#define SECOND "%u1, %n1, %o1 = adam(%u, %h, %n, %o) {cost = 1 us}\n"

/* Roots of 16,384 and 4,096 B: together in one call, in turn with other work between them. */
Test(mem_workspace, updates_of_one_call) {
    cr_expect_eq(most(A100, STATES, FIRST SECOND, DS_MEM_PLAIN), 16384 + 4096);
    cr_expect_eq(most(A100, STATES, FIRST "%r = relu(%g) {cost = 1 us}\n" SECOND, DS_MEM_PLAIN),
                 16384);
    cr_expect_eq(most(A100, STATES, FIRST SECOND, DS_MEM_DEEPSPEED), 0);
}

/* Both roots are there from the first update's start on, and part of a step of 2 us. */
Test(mem_workspace, updates_share_their_time) {
    sim_case c;
    simulate(&c, A100, STATES, FIRST SECOND);
    ds_mem mem = compute(&c, DS_MEM_PLAIN);
    const ds_mem_class *m = &mem.classes[0];
    uint32_t taken = 0, given = 0;
    for (uint32_t i = 0; i < m->n_events; i++) {
        if (ds_mem_part(m->events[i].value) != DS_MEM_SCRATCH) continue;
        bool take = m->events[i].delta_bytes > 0;
        taken += take;
        given += !take;
        cr_expect_eq(m->events[i].time_ps, take ? 0 : 2000000);
        cr_expect_eq(ds_mem_category(c.result->plan, m->events[i].value),
                     (uint32_t)DS_MEM_WORKSPACE);
    }
    cr_expect(taken == 2 && given == 2);
    ds_mem_deinit(&mem);
    sim_free(&c);
}

/* Communication neither begins a call nor ends it: permutes over 0 .. 3 and 3 .. 8 us bring the
 * weights of updates over 3 .. 4 and 8 .. 9. The scratch of both is there from 3 to 9. */
Test(mem_workspace, communication_between_updates) {
    char text[2048];
    sim_case c;
    snprintf(
        text, sizeof text,
        "dir 1\ntopology @t {\n  device d[2] : \"%s\"\n  link d[0] -- d[1] : 10 GB/s, 1 us\n}\n"
        "mesh @m = [dp = 2] on @t\n"
        "func @f(%s, %%one: f32[1] on @m) -> f32[1] on @m {\n"
        "  %%p = permute(%%g) over dp {cost = 3 us}\n"
        "  %%w1, %%m1, %%v1 = adam(%%w, %%p, %%m, %%v) {cost = 1 us}\n"
        "  %%q = permute(%%h) over dp {cost = 5 us}\n"
        "  %%u1, %%n1, %%o1 = adam(%%u, %%q, %%n, %%o) {cost = 1 us}\n"
        "  return %%one\n}\nscenario { program = @f }\n",
        A100, STATES);
    sim_run_text(&c, text, NULL, false);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    ds_mem mem = compute(&c, DS_MEM_PLAIN);
    const ds_mem_class *m = &mem.classes[0];
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->n_events; i++) {
        if (ds_mem_part(m->events[i].value) != DS_MEM_SCRATCH) continue;
        cr_expect_eq(m->events[i].time_ps, m->events[i].delta_bytes > 0 ? 3000000 : 9000000);
        n++;
    }
    cr_expect_eq(n, 4);
    ds_mem_deinit(&mem);
    sim_free(&c);
}

/* Megatron-DeepSpeed's loss is in place, PyTorch's holds log_softmax's result beside the logits. */
Test(mem_workspace, losses) {
    const char *args = "%x: f32[64, 1000] on @m, %l: i32[64] on @m";
    const char *body = "%y, %e = cross_entropy(%x, %l) {cost = 1 us}\n"
                       "%d = cross_entropy_grad(%x, %l, %e) {cost = 1 us}";
    cr_expect_eq(most(A100, args, body, DS_MEM_PLAIN), 2 * 256000);
    cr_expect_eq(most(A100, args, body, DS_MEM_DEEPSPEED), 0);
}

/* The categories still add up to the peak, and a library's workspace is there from the start. */
Test(mem_workspace, is_part_of_the_sums) {
    sim_case c;
    simulate(&c, A100, XW, "%y = matmul(%x, %w) {cost = 1 us}");
    ds_mem mem = compute(&c, DS_MEM_PLAIN);
    const ds_mem_class *m = &mem.classes[0];
    int64_t sum = 0;
    for (int k = 0; k < DS_MEM_CATEGORY_COUNT; k++) sum += m->peak_by_category[k];
    cr_expect_eq(sum, m->peak_bytes);
    cr_expect_eq(m->input_by_category[DS_MEM_WORKSPACE], BLAS);
    uint32_t n;
    ds_mem_live *live = ds_mem_live_at_peak(&mem, 0, &n);
    cr_expect_eq(live[0].bytes, BLAS);
    cr_expect_str_eq(ds_mem_part_text(live[0].value), " (cuBLAS)");
    free(live);
    ds_mem_deinit(&mem);
    sim_free(&c);
}
