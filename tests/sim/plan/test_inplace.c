/* Every line of ops.def that works in place: may the result take that operand's buffer?
 *
 * The answer comes from the numbers. Each op runs on small tensors (ir/exec); one element after the
 * other of an operand whose buffer is taken is changed, and the results that change are those that
 * read the element. A result in place is made tile by tile: one element, or what a normalisation
 * needs together. Any other result is made at once, into a buffer of its own. What reads an element
 * must be made before the tile that overwrites the element, or be that tile. The line is right if
 * some order of tiles and results obeys that, so if that relation has no cycle.
 *
 * The simulated peak of the same op must be that of the line: inputs, a copy of each operand, and
 * the results that take nobody's buffer. */
#include "tests/support/elementwise.h"
#include "tests/support/exec.h"
#include "tests/support/sim.h"

#include "ir/ops/ops.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_OPERANDS = 5, MOST_RESULTS = 4, MOST_NODES = 256 };

typedef struct op_case {
    ds_opcode code;
    const char *operands[MOST_OPERANDS]; /* types */
    const char *results[MOST_RESULTS];
    const char *attrs;
    uint32_t whole; /* bit d: a tile spans dim d … */
    uint32_t parts; /* … of which dim 0 has so many, one after the other; 0: one */
} op_case;

#define M "f32[3, 4]"
#define V "f32[4]"
#define ROWS(CODE)                                                                                 \
    { DS_OP_##CODE, {M, V}, {M}, "", 0, 0 }
#define BINARY(CODE)                                                                               \
    { DS_OP_##CODE, {M, M}, {M}, "", 0, 0 }
#define B "f32[4, 2, 3]"

static const op_case cases[] = {
    ROWS(BIAS),
    ROWS(ADD),
    BINARY(ADD),
    ROWS(SUB),
    BINARY(SUB),
    ROWS(MUL),
    BINARY(MUL),
    ROWS(DIV),
    BINARY(DIV),
    {DS_OP_SCALE, {M}, {M}, "{factor = 1.5}", 0, 0},
    {DS_OP_DROPOUT, {M}, {M}, "{p = 0.5}", 0, 0},
    BINARY(ACCUMULATE),
    {DS_OP_ACCUMULATE, {M, "f16[3, 4]"}, {M}, "", 0, 0},
    {DS_OP_SOFTMAX, {M}, {M}, "", 2, 0},
    {DS_OP_SOFTMAX_GRAD, {M, M}, {M}, "", 2, 0},
    {DS_OP_LAYER_NORM, {M, V, V}, {M}, "", 2, 0},
    {DS_OP_RMS_NORM, {M, V}, {M}, "", 2, 0},
    {DS_OP_RMS_NORM, {B, "f32[2, 3]"}, {B}, "", 4, 0},
    {DS_OP_BATCH_NORM, {B, "f32[2]", "f32[2]"}, {B}, "{groups = 2}", 1 | 4, 2},
    {DS_OP_LAYER_NORM_GRAD, {M, M, V}, {M, V, V}, "", 2, 0},
    {DS_OP_LAYER_NORM_GRAD, {"f32[1, 4]", "f32[1, 4]", V}, {"f32[1, 4]", V, V}, "", 2, 0},
    {DS_OP_LAYER_NORM_GRAD, {V, V, V}, {V, V, V}, "", 1, 0},
    {DS_OP_LAYER_NORM_GRAD, {M, M}, {M}, "", 2, 0},
    {DS_OP_RMS_NORM_GRAD, {M, M, V}, {M, V}, "", 2, 0},
    {DS_OP_RMS_NORM_GRAD, {"f32[1, 4]", "f32[1, 4]", V}, {"f32[1, 4]", V}, "", 2, 0},
    {DS_OP_BATCH_NORM_GRAD, {B, B, "f32[2]"}, {B, "f32[2]", "f32[2]"}, "{groups = 2}", 1 | 4, 2},
    {DS_OP_BATCH_NORM_GRAD, {"f32[1, 4]", "f32[1, 4]", V}, {"f32[1, 4]", V, V}, "", 1, 1},
    {DS_OP_CROSS_ENTROPY_GRAD, {M, "i32[3]", "f32[3]"}, {M}, "", 0, 0},
    {DS_OP_PUT, {M, "f32[1, 4]"}, {M}, "{dim = 0, at = 1}", 0, 0},
    {DS_OP_PUT, {M, "f32[3, 2]"}, {M}, "{dim = 1, at = 2}", 0, 0},
    BINARY(MSE_GRAD),
    {DS_OP_ROTARY, {"f32[1, 2, 2, 4]"}, {"f32[1, 2, 2, 4]"}, "", 8, 0},
    {DS_OP_SGD, {M, M}, {M}, "", 0, 0},
    {DS_OP_SGD, {M, M, M}, {M, M}, "", 0, 0},
    {DS_OP_MOMENTUM, {M, M, M}, {M, M}, "", 0, 0},
    {DS_OP_MOMENTUM, {M, M, M, M}, {M, M, M}, "", 0, 0},
    {DS_OP_ADAM, {M, M, M, M}, {M, M, M}, "", 0, 0},
    {DS_OP_ADAM, {M, M, M, M, M}, {M, M, M, M}, "", 0, 0},
    {DS_OP_ADAMW, {M, M, M, M}, {M, M, M}, "", 0, 0},
    {DS_OP_ADAMW, {M, M, M, M, M}, {M, M, M, M}, "", 0, 0},
    {DS_OP_ALL_REDUCE, {M " partial(tp)"}, {M}, "over tp", 0, 0},
    {DS_OP_ALL_REDUCE, {M " partial(tp)", V " partial(tp)"}, {M, V}, "over tp", 0, 0},
};
enum {
    N_LISTED = sizeof cases / sizeof *cases,
    N_CASES = N_LISTED + DS_OP_COUNT - DS_OP_FIRST_TABLE_OP
};

static bool is_listed(ds_opcode code) {
    for (int i = 0; i < N_LISTED; i++)
        if (cases[i].code == code) return true;
    return false;
}

/* Those of the list, then plain elementwise ops that the list lacks; false: no case i. */
static bool case_of(int i, op_case *out) {
    ds_opcode code = DS_OP_FIRST_TABLE_OP + (ds_opcode)(i - N_LISTED);
    if (i < N_LISTED) {
        *out = cases[i];
        return true;
    }
    uint32_t n = is_listed(code) ? 0 : plain_operands(ds_op_desc_of(code));
    *out = (op_case){code, {M, n == 2 ? M : NULL}, {M}, "", 0, 0};
    return n && ds_op_desc_of(code)->inplace;
}

static uint32_t count(const char *const *list, uint32_t most) {
    uint32_t n = 0;
    while (n < most && list[n]) n++;
    return n;
}

static void list_values(ds_buf *text, const char *name, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) ds_buf_printf(text, "%s%%%s%u", i ? ", " : "", name, i);
}

/* The op over copies of the program's inputs x0 x1 …, for what is an input is never overwritten. */
static void write_program(const op_case *at, ds_buf *text) {
    uint32_t n_in = count(at->operands, MOST_OPERANDS), n_out = count(at->results, MOST_RESULTS);
    int tp = at->code == DS_OP_ALL_REDUCE ? 2 : 1;
    ds_buf_printf(text,
                  "dir 1\ntopology @box {\n  device g[2] : \"V100-PCIE-16GB\"\n"
                  "  link g[0] -- g[1] : 10 GB/s, 1 us\n}\n"
                  "mesh @all = [tp = 2] on @box\nmesh @m = pick 0..%d of @all [tp = %d]\nfunc @f(",
                  tp, tp);
    for (uint32_t i = 0; i < n_in; i++)
        ds_buf_printf(text, "%s%%x%u: %s", i ? ", " : "", i, at->operands[i]);
    ds_buf_put(text, ") -> (");
    for (uint32_t i = 0; i < n_out; i++) ds_buf_printf(text, "%s%s", i ? ", " : "", at->results[i]);
    ds_buf_put(text, ") {\n");
    for (uint32_t i = 0; i < n_in; i++)
        ds_buf_printf(text, "%%c%u = cast(%%x%u) {dtype = %.*s}\n", i, i,
                      (int)strcspn(at->operands[i], "["), at->operands[i]);
    list_values(text, "y", n_out);
    ds_buf_printf(text, " = %s(", ds_op_name(at->code));
    list_values(text, "c", n_in);
    ds_buf_printf(text, ") %s\nreturn ", at->attrs);
    list_values(text, "y", n_out);
    ds_buf_put(text, "\n}\nscenario { program = @f\n mesh = @m }\n");
}

/* ---- who reads what, by the numbers ---- */

typedef struct order {
    const op_case *at;
    uint32_t takes[MOST_RESULTS]; /* the operand; UINT32_MAX: none */
    uint32_t first[MOST_RESULTS]; /* the result's first node */
    uint32_t n_nodes;
    bool before[MOST_NODES][MOST_NODES];
} order;

/* The tile of an element: its coordinates along the dims that a tile does not span. */
static uint32_t tile_of(const op_case *at, const ds_exec_tensor *t, int64_t element) {
    uint32_t tile = 0;
    int64_t stride = t->n;
    for (uint32_t d = 0; d < t->rank; d++) {
        stride /= t->dims[d];
        int64_t i = element / stride % t->dims[d], size = t->dims[d];
        if (at->whole >> d & 1) {
            size = d == 0 && at->parts ? at->parts : 1;
            i = i * size / t->dims[d];
        }
        tile = tile * (uint32_t)size + (uint32_t)i;
    }
    return tile;
}

static uint32_t node_of(const order *o, uint32_t result, const ds_exec_tensor *t, int64_t element) {
    return o->first[result] + (o->takes[result] == UINT32_MAX ? 0 : tile_of(o->at, t, element));
}

static const ds_exec_tensor *result_of(const exec_case *c, uint32_t result) {
    return &c->result->outputs.at[result];
}

/* Runs the op with its inputs made positive, as log and sqrt want them, and `element` of `operand`
 * moved by `step`. */
static void execute(const op_case *at, const exec_case *like, uint32_t operand, int64_t element,
                    double step, exec_case *out) {
    ds_buf text = {0};
    write_program(at, &text);
    ds_exec_options options = {.seed = 1};
    ds_exec_tensor inputs[MOST_OPERANDS];
    for (uint32_t i = 0; like && i < like->result->inputs.n; i++) {
        inputs[i] = like->result->inputs.at[i];
        inputs[i].at = malloc((size_t)inputs[i].n * sizeof(double));
        for (int64_t e = 0; e < inputs[i].n; e++) {
            double v = like->result->inputs.at[i].at[e];
            inputs[i].at[e] = inputs[i].dtype == DS_I32 ? v : 0.25 + v * v;
        }
        if (i == operand) inputs[i].at[element] += step;
    }
    options.inputs = like ? inputs : NULL;
    options.n_inputs = like ? like->result->inputs.n : 0;
    exec_text(out, text.text, NULL, &options);
    cr_assert_eq(out->status, DS_OK, "%s: %s\n%s", ds_op_name(at->code), out->err.message,
                 text.text);
    for (uint32_t i = 0; i < options.n_inputs; i++) free(inputs[i].at);
    ds_buf_deinit(&text);
}

/* The node that overwrites the element comes after all that read the element. */
static void add_readers(order *o, const exec_case *a, const exec_case *b, uint32_t writer) {
    for (uint32_t r = 0; r < a->result->outputs.n; r++) {
        const ds_exec_tensor *x = result_of(a, r), *y = result_of(b, r);
        for (int64_t e = 0; e < x->n; e++)
            if (x->at[e] != y->at[e] && node_of(o, r, x, e) != writer)
                o->before[node_of(o, r, x, e)][writer] = true;
    }
}

static bool has_order(order *o) {
    bool done[MOST_NODES] = {false};
    for (uint32_t turn = 0; turn < o->n_nodes; turn++) {
        uint32_t next = 0;
        for (; next < o->n_nodes; next++) {
            bool waits = done[next];
            for (uint32_t b = 0; b < o->n_nodes && !waits; b++)
                waits = !done[b] && o->before[b][next];
            if (!waits) break;
        }
        if (next == o->n_nodes) return false;
        done[next] = true;
    }
    return true;
}

/* Is there an order in which results can be made, if each takes the buffer of that operand? */
static bool is_sound(const op_case *at, const uint32_t *takes) {
    order *o = calloc(1, sizeof *o);
    exec_case like, base;
    execute(at, NULL, UINT32_MAX, 0, 0, &like);
    execute(at, &like, UINT32_MAX, 0, 0, &base);
    o->at = at;
    for (uint32_t r = 0; r < base.result->outputs.n; r++) {
        const ds_exec_tensor *t = result_of(&base, r);
        o->takes[r] = takes[r];
        o->first[r] = o->n_nodes;
        o->n_nodes += takes[r] == UINT32_MAX ? 1 : tile_of(at, t, t->n - 1) + 1;
    }
    cr_assert_leq(o->n_nodes, MOST_NODES);
    bool distinct = true;
    for (uint32_t r = 0; r < base.result->outputs.n; r++) {
        for (uint32_t q = 0; q < r; q++) distinct &= takes[r] == UINT32_MAX || takes[q] != takes[r];
        for (int64_t e = 0; takes[r] != UINT32_MAX && e < result_of(&base, r)->n; e++)
            for (int sign = -1; sign <= 1; sign += 2) {
                exec_case moved;
                execute(at, &like, takes[r], e, sign * 0.2, &moved);
                add_readers(o, &base, &moved, node_of(o, r, result_of(&base, r), e));
                exec_free(&moved);
            }
    }
    bool sound = distinct && has_order(o);
    exec_free(&like);
    exec_free(&base);
    free(o);
    return sound;
}

static void claims_of(const op_case *at, uint32_t *takes) {
    for (uint32_t r = 0; r < MOST_RESULTS; r++)
        takes[r] = ds_op_inplace(ds_op_desc_of(at->code), r);
}

Test(inplace, every_line_that_says_so_has_a_case) {
    for (ds_opcode code = DS_OP_FIRST_TABLE_OP; code < DS_OP_COUNT; code++) {
        const ds_op_desc *desc = ds_op_desc_of(code);
        bool found = is_listed(code) || (desc->inplace && plain_operands(desc));
        cr_expect_eq(found, desc->inplace != NULL, "%s", desc->name);
        cr_expect(desc->inplace || !(desc->flags & DS_OPF_OPTIMIZER), "%s", desc->name);
    }
}

Test(inplace, nothing_reads_what_is_overwritten) {
    op_case at;
    for (int i = 0; i < N_CASES; i++) {
        if (!case_of(i, &at)) continue;
        uint32_t takes[MOST_RESULTS];
        claims_of(&at, takes);
        cr_expect(is_sound(&at, takes), "%s of %s", ds_op_name(at.code), at.operands[0]);
    }
}

/* The test sees what is wrong: result k in operand k's place is right for no norm's gradient. */
Test(inplace, a_wrong_line_is_seen) {
    uint32_t seen = 0;
    for (int i = 0; i < N_LISTED; i++) {
        const op_case *at = &cases[i];
        if (at->code != DS_OP_LAYER_NORM_GRAD || !at->results[1]) continue;
        cr_expect_not(is_sound(at, (uint32_t[]){0, UINT32_MAX, 2, UINT32_MAX}));
        cr_expect(is_sound(at, (uint32_t[]){0, UINT32_MAX, UINT32_MAX, UINT32_MAX}));
        seen++;
    }
    cr_expect_eq(seen, 3);
}

/* ---- the simulated peak ---- */

static int64_t bytes_of(const char *type) {
    int64_t bytes = type[0] == 'f' && type[1] == '1' ? 2 : 4;
    for (const char *at = strchr(type, '[') + 1; *at && *at != ']'; at += *at == ',' ? 2 : 0)
        bytes *= strtol(at, (char **)&at, 10);
    return bytes;
}

static int64_t peak_of(const char *text) {
    sim_case c;
    sim_run_text(&c, text, NULL, false);
    cr_assert_eq(c.status, DS_OK, "%s\n%s", c.err.message, text);
    int64_t bytes = c.result->mem.classes[0].peak_bytes;
    sim_free(&c);
    return bytes;
}

Test(inplace, the_peak_is_that_of_the_line) {
    op_case each;
    const op_case *at = &each;
    for (int i = 0; i < N_CASES; i++) {
        if (!case_of(i, &each)) continue;
        uint32_t takes[MOST_RESULTS], n_in = count(at->operands, MOST_OPERANDS);
        int64_t want = 0;
        claims_of(at, takes);
        for (uint32_t k = 0; k < n_in; k++) want += 2 * bytes_of(at->operands[k]);
        for (uint32_t k = 0; k < count(at->results, MOST_RESULTS); k++)
            if (takes[k] >= n_in) want += bytes_of(at->results[k]);
        ds_buf text = {0};
        write_program(at, &text);
        cr_expect_eq(peak_of(text.text), want, "%s: %lld bytes\n%s", ds_op_name(at->code),
                     (long long)want, text.text);
        ds_buf_deinit(&text);
    }
}

/* 3 inputs of 8, 8 and 4 KiB; dy's copy of 8, which dx takes, the scale's of 4, which is read all
 * the time; two gradients of 4. */
Test(inplace, a_shift_does_not_take_the_place_of_the_scale) {
    cr_expect_eq(peak_of("dir 1\ntopology @box { device g[1] : \"V100-PCIE-16GB\" }\n"
                         "mesh @m = [tp = 1] on @box\n"
                         "func @f(%d: f32[2, 1024], %x: f32[2, 1024], %g: f32[1024]) -> "
                         "(f32[2, 1024], f32[1024], f32[1024]) {\n"
                         "%a = cast(%d) {dtype = f32}\n%s = cast(%g) {dtype = f32}\n"
                         "%y, %u, %v = layer_norm_grad(%a, %x, %s)\nreturn %y, %u, %v\n}\n"
                         "scenario { program = @f\n mesh = @m }\n"),
                 40960);
}

/* ---- one buffer, two operands ---- */

static int64_t peak_of_body(const char *type, const char *results, const char *body) {
    ds_buf text = {0};
    ds_buf_printf(&text,
                  "dir 1\ntopology @box {\n  device g[2] : \"V100-PCIE-16GB\"\n"
                  "  link g[0] -- g[1] : 10 GB/s, 1 us\n}\n"
                  "mesh @m = [tp = 2] on @box\nfunc @f(%%x: %s) -> (%s) {\n"
                  "%%a = cast(%%x) {dtype = f32}\n%s\n}\nscenario { program = @f\n mesh = @m }\n",
                  type, results, body);
    int64_t bytes = peak_of(text.text);
    ds_buf_deinit(&text);
    return bytes;
}

#define A "f32[4, 64]"

/* x, the copy and, where the copy's buffer cannot be taken, the result: 1,024 bytes each. */
Test(inplace, a_buffer_that_the_op_reads_twice) {
    /* The same elements: a(i) is overwritten by what was made of a(i). */
    cr_expect_eq(peak_of_body(A, A, "%y = mul(%a, %a)\nreturn %y"), 2048);
    /* Its first row as well: the second row would be added to what the first row has become. */
    cr_expect_eq(peak_of_body(A, A,
                              "%s = slice(%a) {dim = 0, lo = 0, hi = 1}\n"
                              "%b = reshape(%s) {shape = [64]}\n"
                              "%y = add(%a, %b)\nreturn %y"),
                 3072);
}

/* Two results cannot both be in the one buffer; two buffers of operands hold two results. */
Test(inplace, a_bucket_that_holds_a_value_twice) {
    cr_expect_geq(peak_of_body(A " partial(tp)", A ", " A,
                               "%y, %z = all_reduce(%a, %a) over tp\nreturn %y, %z"),
                  3072);
    cr_expect_eq(peak_of_body(A " partial(tp)", A ", " A,
                              "%b = cast(%x) {dtype = f32}\n"
                              "%y, %z = all_reduce(%a, %b) over tp\nreturn %y, %z"),
                 3072);
}
