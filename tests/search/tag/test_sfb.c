/* Sufficient factors: costs worked out by hand, and the minimum cut against all choices. */
#include "ir/base/rng.h"
#include "search/tag/sfb.h"
#include "tests/support/cases.h"
#include "tests/support/generate/random_tag.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

enum { BANDWIDTH = 2810, FLOAT = 4 };

static ds_sfb_choice choose(const ds_sfb_problem *p, ds_arena *arena) {
    ds_sfb_choice choice;
    ds_error err;
    cr_assert_eq(ds_sfb_choose(p, arena, &choice, &err), DS_OK, "%s", err.message);
    return choice;
}

static ds_status refused(const ds_sfb_problem *p) {
    ds_arena arena = {0};
    ds_sfb_choice choice;
    ds_error err;
    ds_status status = ds_sfb_choose(p, &arena, &choice, &err);
    ds_arena_deinit(&arena);
    return status;
}

/* ---- one matrix: dW = X^T · dY ---- */

typedef struct matrix {
    int64_t rows, columns, time_us;
} matrix;

static const matrix fc6 = {25088, 4096, 460}, small = {4096, 1024, 100};

/* In us; 0 if the matrix is better reduced. Operation 0 makes X, 1 makes dY, 2 the gradient. */
static double matrix_us(matrix w, uint32_t n_replicas, int64_t samples, ds_sfb_gather gather) {
    static const uint32_t gradient = 2;
    const ds_sfb_op op[] = {
        {.stays = true},
        {.stays = true},
        {.time_ns = w.time_us * 1000, .gradient_bytes = w.rows * w.columns * FLOAT}};
    const ds_sfb_tensor tensor[] = {{0, 1, &gradient, samples * w.rows * FLOAT},
                                    {1, 1, &gradient, samples * w.columns * FLOAT}};
    const ds_sfb_problem p = {n_replicas, BANDWIDTH, gather, 3, 2, op, tensor};
    ds_arena arena = {0};
    ds_sfb_choice choice = choose(&p, &arena);
    int64_t m = n_replicas;
    cr_expect_eq(choice.n_whole, choice.is_whole[2]);
    cr_expect(!choice.is_whole[0] && !choice.is_whole[1]);
    cr_expect_eq(choice.gathered_bytes,
                 choice.n_whole * m * (m - 1) * samples * (w.rows + w.columns) * FLOAT);
    cr_expect_eq(choice.spared_bytes, choice.n_whole * 2 * (m - 1) * w.rows * w.columns * FLOAT);
    ds_arena_deinit(&arena);
    return choice.cost_us;
}

#define EXPECT_US(us, wanted)                                                                      \
    cr_expect(fabs((us) - (wanted)) < 0.005, "%.4f us, not %.2f", (us), (double)(wanted))

/* 460 + 1 + 249.26 - 146,278.22; a sample more a replica costs 83.09 us. */
Test(tag_sfb, fully_connected_6) {
    EXPECT_US(matrix_us(fc6, 2, 3, DS_SFB_SERIAL), -145567.96);
    EXPECT_US(matrix_us(fc6, 2, 1755, DS_SFB_SERIAL), -1.08);
    cr_expect_eq(matrix_us(fc6, 2, 1756, DS_SFB_SERIAL), 0);
    EXPECT_US(matrix_us(small, 2, 32, DS_SFB_SERIAL), -5403.09);
    EXPECT_US(matrix_us(small, 2, 402, DS_SFB_SERIAL), -9.78);
    cr_expect_eq(matrix_us(small, 2, 403, DS_SFB_SERIAL), 0);
}

/* Two NICs gather at once: 460 + 1 + 124.63 - 146,278.22. Without time 16 replicas stop at 27.5 samples
 * over one bottleneck, and at 440 over NICs: M (M - 1) against M - 1. */
Test(tag_sfb, all_gathers_over_nics) {
    const matrix free = {25088, 4096, 0};
    EXPECT_US(matrix_us(fc6, 2, 3, DS_SFB_NICS), -145692.59);
    cr_expect_lt(matrix_us(free, 16, 27, DS_SFB_SERIAL), 0);
    cr_expect_eq(matrix_us(free, 16, 28, DS_SFB_SERIAL), 0);
    cr_expect_lt(matrix_us(free, 16, 440, DS_SFB_NICS), 0);
    cr_expect_eq(matrix_us(free, 16, 441, DS_SFB_NICS), 0);
    cr_expect_eq(matrix_us(fc6, 1, 1, DS_SFB_SERIAL), 0);
}

/* ---- a chain: factors of 2 MB from smaller tensors ---- */

/* Operations 0 and 1 make 0.25 and 0.5 MB, of which 2 and 3 make the factors in 5 and 8 us. */
Test(tag_sfb, chain_computes_the_factors_too) {
    static const uint32_t two = 2, three = 3, gradient = 4;
    ds_sfb_op op[] = {{.stays = true},
                      {.stays = true},
                      {.time_ns = 5000},
                      {.time_ns = 8000},
                      {.time_ns = 100000, .gradient_bytes = 4096 * 1024 * FLOAT}};
    const ds_sfb_tensor tensor[] = {{0, 1, &two, 250000},
                                    {1, 1, &three, 500000},
                                    {2, 1, &gradient, 2000000},
                                    {3, 1, &gradient, 2000000}};
    const ds_sfb_problem p = {2, BANDWIDTH, DS_SFB_SERIAL, 5, 4, op, tensor};
    ds_arena arena = {0};
    ds_sfb_choice choice = choose(&p, &arena);
    cr_expect(choice.is_whole[2] && choice.is_whole[3] && choice.is_whole[4]);
    EXPECT_US(choice.cost_us, -5320.73); /* 101 + 6 + 9 + 533.81 - 5,970.54 */
    cr_expect_eq(choice.gathered_bytes, 1500000);
    cr_expect_eq(choice.spared_bytes, 2 * 4096 * 1024 * FLOAT);
    op[2].stays = op[3].stays = true;
    choice = choose(&p, &arena);
    cr_expect_eq(choice.n_whole, 1);
    EXPECT_US(choice.cost_us, -3022.56); /* 101 + 2,846.98 - 5,970.54 */
    ds_arena_deinit(&arena);
}

/* ---- all choices ---- */

enum { MOST_OPS = 20, MOST_TENSORS = 2 * MOST_OPS };

typedef struct instance {
    ds_sfb_problem problem; /* points into the rest */
    ds_sfb_op op[MOST_OPS];
    ds_sfb_tensor tensor[MOST_TENSORS];
    uint32_t reader[MOST_TENSORS][3];
} instance;

static void make_tensor(instance *in, ds_rng *rng, uint32_t maker, int64_t unit) {
    uint32_t n_ops = in->problem.n_ops, i = in->problem.n_tensors++;
    ds_sfb_tensor *tensor = &in->tensor[i];
    *tensor = (ds_sfb_tensor){.maker = maker, .reader = in->reader[i]};
    tensor->bytes = (int64_t)ds_rng_below(rng, 4) * unit;
    for (uint32_t r = maker + 1; r < n_ops && tensor->n_readers < 3; r++)
        if (ds_rng_below(rng, 3) == 0) in->reader[i][tensor->n_readers++] = r;
}

/* Some costs are small whole numbers, so that choices are equal; others have odd nanoseconds. */
static void make_instance(instance *in, uint64_t seed) {
    static const int64_t speeds[] = {1, 2, 6, BANDWIDTH};
    ds_rng rng = {seed};
    bool is_coarse = ds_rng_below(&rng, 2), is_large = seed % 100 == 0;
    memset(in, 0, sizeof *in);
    in->problem.n_replicas = 1 + (uint32_t)ds_rng_below(&rng, 5);
    in->problem.mb_per_s = speeds[ds_rng_below(&rng, 4)];
    in->problem.gather = ds_rng_below(&rng, 2) ? DS_SFB_NICS : DS_SFB_SERIAL;
    in->problem.n_ops = is_large ? MOST_OPS : 1 + (uint32_t)ds_rng_below(&rng, 15);
    in->problem.op = in->op;
    in->problem.tensor = in->tensor;
    int64_t unit = is_coarse ? in->problem.mb_per_s /* a microsecond */
                             : in->problem.mb_per_s * 37 + (int64_t)ds_rng_below(&rng, 100);
    for (uint32_t i = 0; i < in->problem.n_ops; i++) {
        ds_sfb_op *op = &in->op[i];
        op->time_ns = (int64_t)ds_rng_below(&rng, 4) * 1000;
        if (!is_coarse) op->time_ns += (int64_t)ds_rng_below(&rng, 20000);
        op->stays = ds_rng_below(&rng, 8) == 0 && !is_large;
        if (ds_rng_below(&rng, 3) == 0) op->gradient_bytes = (int64_t)ds_rng_below(&rng, 12) * unit;
        for (uint64_t k = ds_rng_below(&rng, 3); k > 0; k--) make_tensor(in, &rng, i, unit);
    }
}

/* Costs in ns, times M · B; the formula of the header, read naively. */
typedef struct search {
    const ds_sfb_problem *p;
    int64_t least;
    uint32_t best, least_set, n_best; /* bits of operations */
} search;

static int64_t tensor_cost(const search *s, const ds_sfb_tensor *tensor, uint32_t chosen) {
    int64_t m = s->p->n_replicas, n = 0;
    for (uint32_t k = 0; k < tensor->n_readers; k++) n += chosen >> tensor->reader[k] & 1;
    if (s->p->gather == DS_SFB_SERIAL) return n * m * m * (m - 1) * tensor->bytes * 1000;
    return (n > 0) * m * (m - 1) * tensor->bytes * 1000;
}

static int64_t op_cost(const search *s, uint32_t i) {
    int64_t m = s->p->n_replicas;
    return ((m - 1) * s->p->op[i].time_ns + 1000) * m * s->p->mb_per_s -
           2 * (m - 1) * s->p->op[i].gradient_bytes * 1000;
}

/* Decides the operations below `n_open`; those from there on are decided. Tensors are listed by maker,
 * and read by later operations. */
static void decide(search *s, uint32_t n_open, uint32_t n_tensors, uint32_t chosen, int64_t cost) {
    if (n_open == 0) {
        if (cost < s->least) s->least_set = chosen;
        if (cost < s->least) s->n_best = 0;
        if (cost > s->least) return;
        s->least = cost;
        s->least_set &= chosen;
        s->n_best++;
        return;
    }
    uint32_t i = n_open - 1;
    int64_t gathered = 0;
    while (n_tensors > 0 && s->p->tensor[n_tensors - 1].maker == i)
        gathered += tensor_cost(s, &s->p->tensor[--n_tensors], chosen);
    decide(s, i, n_tensors, chosen, cost + gathered);
    if (!s->p->op[i].stays)
        decide(s, i, n_tensors, chosen | UINT32_C(1) << i, cost + op_cost(s, i));
}

/* Of equal choices the least set, which is part of all others. */
Test(tag_sfb, minimum_cut_equals_brute_force) {
    static instance in;
    uint32_t n_some = 0, n_tied = 0;
    for (uint64_t seed = 0; seed < (FEW_CASES ? 90 : 1000); seed++) {
        make_instance(&in, seed);
        ds_arena arena = {0};
        ds_sfb_choice choice = choose(&in.problem, &arena);
        search s = {.p = &in.problem, .least = INT64_MAX};
        decide(&s, in.problem.n_ops, in.problem.n_tensors, 0, 0);
        uint32_t whole = 0;
        for (uint32_t i = 0; i < in.problem.n_ops; i++) whole |= (uint32_t)choice.is_whole[i] << i;
        cr_expect_eq((int64_t)choice.cost, s.least, "%d", (int)seed);
        cr_expect_eq(whole, s.least_set, "%d: %x, not %x", (int)seed, whole, s.least_set);
        n_some += whole != 0;
        n_tied += s.n_best > 1;
        ds_arena_deinit(&arena);
    }
    cr_expect_geq(n_some, FEW_CASES ? 20 : 300);
    cr_expect_geq(n_tied, FEW_CASES ? 1 : 20);
}

/* ---- deployments ---- */

/* X (10 us) and dY (20 us) of 6 samples on two machines of one GPU, the gradient of fc6 (460 us of 3
 * samples, 920 us of 6), and its update (0 us). */
static int64_t train_us(int64_t batch, ds_tag_way way, const int64_t *share,
                        ds_tag_sfb_deployment *factors) {
    ds_arena arena = {0};
    static const int64_t sizes[] = {3, 6}, speeds[] = {BANDWIDTH, BANDWIDTH, BANDWIDTH, BANDWIDTH};
    static const double x_us[] = {10, 10}, dy_us[] = {20, 20}, dw_us[] = {460, 920}, none[2] = {0};
    static const uint32_t parents[] = {0, 1, 2};
    static const ds_tag_machine machine[] = {{0, 1, INT64_C(1) << 36}, {0, 1, INT64_C(1) << 36}};
    const ds_tag_op op[] = {
        {.result_bytes = batch * 25088 * FLOAT, .us = x_us},
        {.result_bytes = batch * 4096 * FLOAT, .us = dy_us},
        {NULL, DS_TAG_SUM, 25088 * 4096 * FLOAT, 0, dw_us, parents, 2, 1},
        {NULL, DS_TAG_WHOLE, 25088 * 4096 * FLOAT, 0, none, parents + 2, 1, 1},
    };
    const ds_tag_problem p = {
        {4, 2, 1, 2, op, sizes}, {2, machine, speeds}, batch, DS_TAG_RELEASED, false};
    const ds_tag_action action[] = {{3, way, share}, {3, DS_TAG_ALL_REDUCE, share}};
    ds_tag_outcome out;
    ds_error err;
    cr_assert_eq(ds_tag_check(&p, &err), DS_OK, "%s", err.message);
    if (factors) {
        cr_assert_eq(ds_tag_sfb_deploy(&p, action, DS_SFB_SERIAL, &arena, factors, &err), DS_OK);
        cr_assert_eq(ds_tag_check(&factors->problem, &err), DS_OK, "%s", err.message);
    }
    cr_assert_eq(ds_tag_simulate(factors ? &factors->problem : &p,
                                 factors ? factors->action : action, &arena, &out, &err),
                 DS_OK, "%s", err.message);
    int64_t us = out.makespan_us;
    ds_arena_deinit(&arena);
    return us;
}

/* Before: 10 + 20 + 460 and a collective of 401,408 KiB, 0.27766802543921265 · 401,408 + 211.919 =
 * 111,670 us. After: half of X leaves at 10 us for 119, half of dY after it for 29, and the gradient of
 * all samples takes 920. With one way for all, X and dY are made everywhere too: 10 + 20 + 920. */
Test(tag_sfb, deployment_by_hand) {
    static const int64_t unequal[] = {4, 2};
    ds_tag_sfb_deployment f;
    cr_expect_eq(train_us(6, DS_TAG_PS, NULL, NULL), 490 + 111670);
    cr_expect_eq(train_us(6, DS_TAG_PS, NULL, &f), 10 + 119 + 29 + 920);
    cr_expect_eq(f.n_whole, 1);
    EXPECT_US(f.cost_us, -145567.96);
    cr_expect_eq(train_us(6, DS_TAG_ALL_REDUCE, NULL, &f), 10 + 20 + 920);
    cr_expect_eq(f.n_whole, 3);
    /* Without gathering: 460 + 1 - 146,278.22. */
    cr_expect_eq(train_us(6, DS_TAG_DUPLICATE, NULL, &f), 10 + 20 + 920);
    EXPECT_US(f.cost_us, -145817.22);
    /* 613 us and 466,944 bytes of 4 samples: 614 + 332.34 - 146,278.22. */
    train_us(6, DS_TAG_PS, unequal, &f);
    EXPECT_US(f.cost_us, -145331.87);
    /* 2,000 samples a GPU lose. */
    int64_t us = train_us(4000, DS_TAG_PS, NULL, NULL);
    cr_expect_eq(train_us(4000, DS_TAG_PS, NULL, &f), us);
    cr_expect_eq(f.n_whole, 0);
}

/* All groups with all_reduce on all GPUs, and half of them as they were. */
Test(tag_sfb, random_deployments) {
    static random_tag r;
    uint32_t n_some = 0;
    for (uint64_t seed = 0; seed < (FEW_CASES ? 40 : 300); seed++) {
        ds_arena arena = {0};
        ds_error err;
        ds_tag_sfb_deployment factors;
        ds_tag_outcome before, after;
        random_tag_make(&r, seed, true);
        uint32_t n_gpus = ds_tag_n_gpus(&r.problem.cluster);
        for (uint32_t g = seed % 2; g < r.problem.graph.n_groups && r.problem.batch >= n_gpus; g++)
            r.action[g] = (ds_tag_action){(UINT64_C(1) << n_gpus) - 1, DS_TAG_ALL_REDUCE, NULL};
        cr_assert_eq(ds_tag_simulate(&r.problem, r.action, &arena, &before, &err), DS_OK, "%s",
                     err.message);
        cr_assert_eq(ds_tag_sfb_deploy(&r.problem, r.action, seed / 2 % 2, &arena, &factors, &err),
                     DS_OK, "%s", err.message);
        cr_assert_eq(ds_tag_check(&factors.problem, &err), DS_OK, "%s", err.message);
        cr_assert_eq(ds_tag_simulate(&factors.problem, factors.action, &arena, &after, &err), DS_OK,
                     "%s", err.message);
        n_some += factors.n_whole > 0;
        cr_expect_eq(factors.cost_us<0, factors.n_whole> 0);
        cr_expect_leq(after.n_collectives, before.n_collectives);
        if (factors.n_whole == 0) cr_expect_eq(after.makespan_us, before.makespan_us);
        ds_arena_deinit(&arena);
    }
    cr_expect_geq(n_some, FEW_CASES ? 10 : 150);
}

/* ---- numbers out of range ---- */

Test(tag_sfb, refuses_what_it_cannot_count) {
    static const uint32_t itself[] = {0}, beyond[] = {2}, twice[] = {1, 1};
    ds_sfb_op op[2] = {{.time_ns = 1}, {.time_ns = 1, .gradient_bytes = 1}};
    ds_sfb_tensor tensor = {.maker = 0, .n_readers = 1, .reader = itself, .bytes = 1};
    ds_sfb_problem p = {2, 1, DS_SFB_SERIAL, 2, 1, op, &tensor};
    cr_expect_eq(refused(&p), DS_ERR_VALUE);
    tensor.reader = beyond;
    cr_expect_eq(refused(&p), DS_ERR_VALUE);
    tensor.reader = twice;
    cr_expect_eq(refused(&p), DS_OK);
    tensor.n_readers = 2;
    cr_expect_eq(refused(&p), DS_ERR_VALUE);
    p.n_tensors = 0;
    p.n_replicas = 0;
    cr_expect_eq(refused(&p), DS_ERR_VALUE);
    p.n_replicas = 2;
    p.mb_per_s = 0;
    cr_expect_eq(refused(&p), DS_ERR_VALUE);
    p.mb_per_s = 1;
    op[0].time_ns = -1;
    cr_expect_eq(refused(&p), DS_ERR_VALUE);
    /* 2^42 bytes of M = 1024 are 2046 · 2^42 · 1000 units, less odd ones of time. */
    op[0].time_ns = 0;
    op[1] = (ds_sfb_op){.time_ns = 1, .gradient_bytes = DS_SFB_MAX_BYTES - 1};
    op[0] = (ds_sfb_op){.time_ns = 3, .gradient_bytes = DS_SFB_MAX_BYTES};
    p.n_replicas = DS_SFB_MAX_M;
    p.mb_per_s = 2809;
    cr_expect_eq(refused(&p), DS_ERR_LIMIT);
}
