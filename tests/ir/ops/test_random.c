/* Random programs of one op.
 *
 * sound: an einsum is computed on real numbers, once whole and once device by device on shards cut
 * as the operand types say; the shards of the result, put together as the inferred type says, must
 * be the whole result. This proves the sharding rule of generic inference, partial sums included.
 *
 * robust: any op over any operands and attributes either infers or fails with a message; what
 * infers with symbols infers to the same type when bound, and has work. */
#include "ir/base/rng.h"
#include "tests/support/op_text.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static uint32_t below(ds_rng *rng, uint32_t n) {
    return (uint32_t)ds_rng_below(rng, n);
}

/* ---- sound ---- */

#define N_FACTORS 4
#define N_AXES    2

static const char *const axis_name[N_AXES] = {"dp", "cp"};
static const uint32_t axis_size[N_AXES] = {4, 2};

typedef struct space {
    uint32_t size[N_FACTORS];
    int axis[N_FACTORS]; /* the axis that splits the factor, or -1 */
    uint32_t term[3];    /* two operands and the result: bit f: has factor f */
} space;

/* The offset of a point in a term's row-major array; `size` of each factor. */
static uint32_t offset(uint32_t term, const uint32_t *size, const uint32_t *at) {
    uint32_t o = 0;
    for (uint32_t f = 0; f < N_FACTORS; f++)
        if (term & (1u << f)) o = o * size[f] + at[f];
    return o;
}

/* The next point of the space; false after the last. */
static bool step(const uint32_t *size, uint32_t *at) {
    for (uint32_t f = N_FACTORS; f-- > 0;) {
        if (++at[f] < size[f]) return true;
        at[f] = 0;
    }
    return false;
}

/* result[global offset] += the products of the points lo ≤ point < lo + size. */
static void compute(const space *s, const uint32_t *lo, const uint32_t *size, const double *a,
                    const double *b, double *result) {
    uint32_t at[N_FACTORS] = {0}, global[N_FACTORS];
    do {
        for (uint32_t f = 0; f < N_FACTORS; f++) global[f] = lo[f] + at[f];
        result[offset(s->term[2], s->size, global)] +=
            a[offset(s->term[0], s->size, global)] * b[offset(s->term[1], s->size, global)];
    } while (step(size, at));
}

static void put_type(ds_buf *text, const space *s, uint32_t term) {
    const char *gap = "";
    ds_buf_put(text, "f32[");
    for (uint32_t f = 0; f < N_FACTORS; f++) {
        if (!(term & (1u << f))) continue;
        ds_buf_printf(text, "%s%u", gap, s->size[f]);
        if (s->axis[f] >= 0) ds_buf_printf(text, "@%s", axis_name[s->axis[f]]);
        gap = ", ";
    }
    ds_buf_put(text, "] on @m");
}

static void put_term(ds_buf *text, uint32_t term) {
    for (uint32_t f = 0; f < N_FACTORS; f++)
        if (term & (1u << f)) ds_buf_printf(text, " %c", (char)('p' + f));
}

static int split_axis(const ds_dim *dim) {
    for (uint32_t s = 0; s < dim->n_splits; s++)
        for (int a = 0; a < N_AXES; a++)
            if (strcmp(dim->splits[s].axis, axis_name[a]) == 0) return a;
    return -1;
}

/* How often an element of the result is delivered, over all devices, if each device delivers what
 * its type says: its part of the split dims; a term of the sum for partial axes; and for an axis
 * that is neither, the same value again, of which one is taken. */
static bool is_primary(const ds_type *type, const uint32_t coord[N_AXES]) {
    for (int a = 0; a < N_AXES; a++) {
        bool used = false;
        for (uint32_t d = 0; d < type->rank; d++) used |= split_axis(&type->dims[d]) == a;
        for (uint32_t p = 0; p < type->n_partials; p++)
            used |= strcmp(type->partials[p].axis, axis_name[a]) == 0;
        if (!used && coord[a] != 0) return false;
    }
    return true;
}

static void check_sound(const space *s, const ds_type *type, ds_rng *rng, const char *line) {
    double a[512], b[512], whole[512] = {0}, sharded[512] = {0};
    for (uint32_t i = 0; i < 512; i++) {
        a[i] = (double)below(rng, 19) - 9;
        b[i] = (double)below(rng, 19) - 9;
    }
    const uint32_t zero[N_FACTORS] = {0};
    compute(s, zero, s->size, a, b, whole);
    for (uint32_t device = 0; device < axis_size[0] * axis_size[1]; device++) {
        uint32_t coord[N_AXES] = {device / axis_size[1], device % axis_size[1]};
        uint32_t lo[N_FACTORS], part[N_FACTORS];
        for (uint32_t f = 0; f < N_FACTORS; f++) {
            part[f] = s->axis[f] < 0 ? s->size[f] : s->size[f] / axis_size[s->axis[f]];
            lo[f] = s->axis[f] < 0 ? 0 : coord[s->axis[f]] * part[f];
        }
        if (is_primary(type, coord)) compute(s, lo, part, a, b, sharded);
    }
    uint32_t f = 0, d = 0;
    for (; f < N_FACTORS; f++)
        if (s->term[2] & (1u << f))
            cr_expect_eq(split_axis(&type->dims[d++]), s->axis[f], "%s: dim %u", line, d - 1);
    cr_expect_eq(memcmp(whole, sharded, sizeof whole), 0, "%s: shards do not add up", line);
}

/* A factor of each operand or both; each axis splits one factor at most. */
static space random_space(ds_rng *rng) {
    space s = {0};
    for (uint32_t f = 0; f < N_FACTORS; f++) {
        s.axis[f] = -1;
        s.size[f] = below(rng, 2) ? 4 : 2 * (1 + below(rng, 2));
        uint32_t where = 1 + below(rng, 3);
        for (uint32_t i = 0; i < 2; i++)
            if (where & (1u << i)) s.term[i] |= 1u << f;
        if (below(rng, 2)) s.term[2] |= 1u << f;
    }
    for (int a = 0; a < N_AXES; a++) {
        uint32_t f = below(rng, N_FACTORS);
        if (s.axis[f] < 0 && s.size[f] % axis_size[a] == 0) s.axis[f] = a;
    }
    return s;
}

Test(ops_random, sound) {
    ds_rng rng = {11};
    for (int round = 0; round < 400; round++) {
        space s = random_space(&rng);
        ds_buf args = {0}, line = {0};
        ds_buf_put(&args, "%x: ");
        put_type(&args, &s, s.term[0]);
        ds_buf_put(&args, ", %y: ");
        put_type(&args, &s, s.term[1]);
        ds_buf_put(&line, "%z = einsum(%x, %y) {rule = \"");
        put_term(&line, s.term[0]);
        ds_buf_put(&line, ",");
        put_term(&line, s.term[1]);
        ds_buf_put(&line, " ->");
        put_term(&line, s.term[2]);
        ds_buf_put(&line, "\"}");
        op_text t;
        op_text_init(&t, NULL, args.text, line.text, OP_TEXT_BOUND);
        cr_expect_eq(t.err.code, DS_OK, "%s: %s", args.text, t.err.message);
        if (t.err.code == DS_OK)
            check_sound(&s, ds_value_at(t.func, op_text_last(&t)->out[0])->type, &rng, line.text);
        op_text_deinit(&t);
        ds_buf_deinit(&args);
        ds_buf_deinit(&line);
    }
}

/* ---- robust ---- */

/* Mostly plain types of few sizes, so that many ops are legal; now and then something odd. */
static void put_random_type(ds_buf *text, ds_rng *rng, uint32_t rank, const char *tail) {
    static const char *const plain[] = {"4", "8", "8", "b", "8@tp", "b@tp", "4@dp", "2 * k + 2"};
    static const char *const odd[] = {"1",           "12",  "k",  "b * k", "8@dp[2,2,2,2]",
                                      "32@(dp, tp)", "0",   "-4", "k@x",   "9223372036854775807",
                                      "b@tp[8]",     "4@cp"};
    ds_buf_printf(text, "%s[", below(rng, 12) ? "f32" : below(rng, 2) ? "bf16" : "i32");
    for (uint32_t d = 0; d < rank; d++)
        ds_buf_printf(text, "%s%s", d ? ", " : "",
                      below(rng, 10) ? plain[below(rng, 8)] : odd[below(rng, 12)]);
    ds_buf_printf(text, "]%s", tail);
}

static void put_operands(ds_buf *text, ds_rng *rng) {
    static const char *const tails[] = {" on @m{pp=1}",    " partial(dp)", " partial(tp, max)",
                                        " on @box.gpu[b]", " on @n{dp=0}", ""};
    uint32_t rank = below(rng, 5);
    const char *tail = below(rng, 2) ? " on @m" : tails[below(rng, 6)];
    ds_buf all = {0};
    put_random_type(&all, rng, rank, tail);
    for (uint32_t i = 0; i < 3; i++) {
        ds_buf_printf(text, "%s%%v%u: ", i ? ", " : "", i);
        if (below(rng, 3))
            ds_buf_put(text, all.text);
        else
            put_random_type(text, rng, below(rng, 3) ? rank : below(rng, 5), tail);
    }
    ds_buf_deinit(&all);
}

static void put_attrs(ds_buf *text, ds_rng *rng, const ds_op_desc *desc) {
    static const char *const attrs[] = {"dim = 0",
                                        "dim = -1",
                                        "dim = 7",
                                        "k = 2",
                                        "k = b",
                                        "factor = 2",
                                        "shape = [b, 4]",
                                        "shape = [8, 1]",
                                        "shape = []",
                                        "shape = 32",
                                        "perm = [1, 0]",
                                        "perm = [0]",
                                        "dims = [0]",
                                        "dims = [1, 2, 3]",
                                        "window = 2",
                                        "window = [-1, 3]",
                                        "groups = 2",
                                        "groups = -3",
                                        "groups = b",
                                        "hi = 3",
                                        "lo = 1, hi = 4",
                                        "experts = 4, capacity = 2",
                                        "experts = b, capacity = k",
                                        "keep = true",
                                        "rule = \"a b, b c -> a c\"",
                                        "rule = \"(a b) c, c -> (c a) b\"",
                                        "rule = \"... a, ... a -> ...\"",
                                        "rule = \"->\"",
                                        "rule = \"... a, a -> a ...\"",
                                        "rule = \"a b, b a -> \"",
                                        "root = 5",
                                        "root = [1, 0]",
                                        "sizes = [1, 3]",
                                        "sizes = [b - 4, 4]",
                                        "transpose_a = true",
                                        "transpose_b = true",
                                        "dtype = bf16",
                                        "value = 0.5",
                                        "reduction = none",
                                        "op = max",
                                        "stride = 2",
                                        "stride = []",
                                        "size = 8",
                                        "size = [b, 4]",
                                        "size = []",
                                        "window = 2, size = 8",
                                        "window = [], size = 8",
                                        "window = 2, size = [-1, k]",
                                        "q_start = b",
                                        "k_start = -1",
                                        "pad = 1"};
    const uint32_t n = sizeof attrs / sizeof *attrs;
    if (!desc->attrs || !below(rng, 6)) return;
    for (uint32_t tries = 0; tries < 100; tries++) {
        const char *attr = attrs[below(rng, n)];
        char name[24] = {0};
        memcpy(name, attr, strcspn(attr, " "));
        strcat(name, ":");
        if (!strstr(desc->attrs, name) && below(rng, 200)) continue;
        ds_buf_printf(text, " {%s}", attr);
        return;
    }
}

static void put_random_op(ds_buf *text, ds_rng *rng) {
    static const char *const clauses[] = {" over dp",
                                          " over tp",
                                          " over (dp, tp)",
                                          " over tp dim 1",
                                          " over tp dim 0",
                                          " over dp dim 0 -> 1",
                                          " over tp dim 1 -> 0",
                                          " across",
                                          " across dim 0",
                                          " group (0, 1)",
                                          " group (0, 1) dim 0",
                                          " group (0, 1, 2, 3) dim 0 -> 1",
                                          " group ()",
                                          " to @box.gpu[3]",
                                          " to @m{pp=b}",
                                          " to 1",
                                          " dim 9",
                                          " tag 3 from 1",
                                          " over pp"};
    ds_opcode code = DS_OP_FIRST_TABLE_OP + below(rng, DS_OP_COUNT - DS_OP_FIRST_TABLE_OP);
    const ds_op_desc *desc = ds_op_desc_of(code);
    uint32_t more = below(rng, 6) ? 0 : below(rng, 3);
    uint32_t n_in = desc->min_in + more, n_out = desc->min_out + (more && below(rng, 2) ? more : 0);
    for (uint32_t i = 0; i < n_out; i++) ds_buf_printf(text, "%s%%r%u", i ? ", " : "", i);
    ds_buf_printf(text, "%s%s(", n_out ? " = " : "", desc->name);
    for (uint32_t i = 0; i < n_in; i++) ds_buf_printf(text, "%s%%v%u", i ? ", " : "", i % 3);
    ds_buf_put(text, ")");
    if ((desc->flags & DS_OPF_COLLECTIVE) || !below(rng, 40))
        ds_buf_put(text, clauses[below(rng, 19)]);
    put_attrs(text, rng, desc);
    if (n_out == 1 && !below(rng, 4)) {
        ds_buf_put(text, " : ");
        put_random_type(text, rng, below(rng, 4), "");
    }
}

static void try_one(const char *args, const char *line) {
    op_text symbolic, bound;
    op_text_init(&symbolic, "b = 8, k = 3", args, line, OP_TEXT_SYMBOLIC);
    op_text_init(&bound, "b = 8, k = 3", args, line, OP_TEXT_BOUND);
    if (symbolic.err.code != DS_OK)
        cr_expect(symbolic.err.message[0], "%s fails without a message", line);
    cr_expect_neq(symbolic.err.code, DS_ERR_INTERNAL, "%s: %s", line, symbolic.err.message);
    cr_expect_neq(bound.err.code, DS_ERR_INTERNAL, "%s: %s", line, bound.err.message);
    if (symbolic.err.code == DS_OK && bound.err.code == DS_OK && bound.result.text)
        cr_expect_str_eq(symbolic.result.text, bound.result.text, "%s over %s", line, args);
    if (bound.err.code == DS_OK) op_text_work(&bound);
    op_text_deinit(&symbolic);
    op_text_deinit(&bound);
}

Test(ops_random, robust) {
    ds_rng rng = {5};
    for (int round = 0; round < 6000; round++) {
        ds_buf args = {0}, line = {0};
        put_operands(&args, &rng);
        put_random_op(&line, &rng);
        try_one(args.text, line.text);
        ds_buf_deinit(&args);
        ds_buf_deinit(&line);
    }
}
