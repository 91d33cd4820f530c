/* Peak memory of 200 random programs, to the byte, against a walk that knows only what the test
 * itself drew: which op reads which values, how long each takes, on which stream. Time is followed
 * op by op; then bytes are summed anew at the start of every buffer. Rules: SEMANTICS of memory in
 * sim/mem/README.md. */
#include "ir/base/rng.h"
#include "sim/mem/allocator.h"
#include "tests/support/cases.h"
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_VALUES = 160, N_SIZES = 6 };
#define RUNS (FEW_CASES ? 60u : 200u)
#define END  INT64_MAX
#define MIB  INT64_C(1048576)

/* Rows of 64 f32: 256 B each; not all are whole blocks of 512 B. */
static const int rows[N_SIZES] = {1, 7, 33, 2049, 9001, 50001};

typedef enum kind { INPUT, PRODUCT, RELU, ADD, VIEW, PERMUTE } kind;

typedef struct value {
    kind kind;
    int size;       /* index into rows */
    int read[2];    /* -1: none */
    int us;         /* duration */
    bool is_output; /* of the program */
    bool is_hidden; /* a turn of a loop before its last: no name */
    /* found by the walk */
    int64_t start_us, end_us; /* of the op */
    int owner;                /* the value whose buffer it has */
    int64_t free_us;          /* of owners */
} value;

typedef struct program {
    value at[MAX_VALUES];
    int n;
    bool has_permute;
} program;

/* ---- drawing ---- */

static int add(program *p, value v) {
    v.owner = p->n;
    p->at[p->n] = v;
    return p->n++;
}

/* Some value of that size among the newest; views count as values. */
static int draw_value(const program *p, ds_rng *rng, int size) {
    for (int tries = 0; tries < 100; tries++) {
        int back = (int)ds_rng_below(rng, (uint64_t)(p->n < 12 ? p->n : 12));
        const value *v = &p->at[p->n - 1 - back];
        if (v->size == size && !v->is_hidden) return p->n - 1 - back;
    }
    return size; /* the input of that size */
}

static void put_attrs(ds_buf *text, int us) {
    ds_buf_printf(text, " {cost = %d us}\n", us);
}

static void draw_op(program *p, ds_rng *rng, ds_buf *text) {
    static const kind kinds[] = {PRODUCT, PRODUCT, RELU, RELU, ADD, ADD, VIEW, PERMUTE};
    int size = (int)ds_rng_below(rng, N_SIZES), a = draw_value(p, rng, size);
    int us = 1 + (int)ds_rng_below(rng, 5);
    value v = {kinds[ds_rng_below(rng, 8)], size, {a, -1}, us, false, false, 0, 0, 0, 0};
    switch (v.kind) {
    case PRODUCT:
        ds_buf_printf(text, "%%v%d = matmul(%%v%d, %%w)", p->n, a);
        break;
    case RELU:
        ds_buf_printf(text, "%%v%d = relu(%%v%d)", p->n, a);
        break;
    case ADD:
        v.read[1] = draw_value(p, rng, size);
        ds_buf_printf(text, "%%v%d = add(%%v%d, %%v%d)", p->n, a, v.read[1]);
        break;
    case PERMUTE:
        p->has_permute = true;
        ds_buf_printf(text, "%%v%d = permute(%%v%d) over dp", p->n, a);
        break;
    default:
        v.us = 0;
        ds_buf_printf(text,
                      "%%f%d = reshape(%%v%d) {shape = [%d]}\n"
                      "%%v%d = reshape(%%f%d) {shape = [%d, 64]}\n",
                      p->n, a, 64 * rows[size], p->n, p->n, rows[size]);
    }
    if (v.kind != VIEW) put_attrs(text, us);
    add(p, v);
}

/* A loop that multiplies its value by w in each turn: a value each. */
static void draw_loop(program *p, ds_rng *rng, ds_buf *text) {
    int size = (int)ds_rng_below(rng, N_SIZES), a = draw_value(p, rng, size);
    int turns = 1 + (int)ds_rng_below(rng, 4), us = 1 + (int)ds_rng_below(rng, 5);
    int last = p->n + turns - 1;
    ds_buf_printf(text,
                  "%%v%d = for l in 0..%d carry (%%c = %%v%d) {\n"
                  "%%z = matmul(%%c, %%w) {cost = %d us}\nyield %%z\n}\n",
                  last, turns, a, us);
    for (int t = 0; t < turns; t++)
        a = add(p, (value){PRODUCT, size, {a, -1}, us, false, t + 1 < turns, 0, 0, 0, 0});
}

static void draw(program *p, uint64_t seed, ds_buf *text) {
    ds_rng rng = {seed};
    ds_buf body = {0};
    p->n = 0;
    p->has_permute = false;
    ds_buf_put(text, "dir 1\ntopology @t {\n  device d[2] : \"A100-SXM4-80GB\"\n"
                     "  link d[0] -- d[1] : 10 GB/s, 1 us\n}\nmesh @m = [dp = 2] on @t\n"
                     "func @f(");
    for (int s = 0; s < N_SIZES; s++) {
        add(p, (value){INPUT, s, {-1, -1}, 0, false, false, 0, 0, 0, 0});
        ds_buf_printf(text, "%%v%d: f32[%d, 64] on @m, ", s, rows[s]);
    }
    int n = 5 + (int)ds_rng_below(&rng, 60);
    for (int i = 0; i < n; i++) {
        if (ds_rng_below(&rng, 10) == 0)
            draw_loop(p, &rng, &body);
        else
            draw_op(p, &rng, &body);
    }
    /* the newest value and an older one of another op come back */
    int out[2] = {p->n - 1, p->n - 1 - (int)ds_rng_below(&rng, 4)};
    while (out[0] >= N_SIZES && p->at[out[0]].kind == VIEW) out[0]--;
    if (out[1] == out[0] || p->at[out[1]].kind != RELU) out[1] = -1;
    ds_buf_put(text, "%w: f32[64, 64] on @m) -> ");
    ds_buf_printf(text, out[1] < 0 ? "f32[%d, 64] on @m" : "(f32[%d, 64] on @m",
                  rows[p->at[out[0]].size]);
    if (out[1] >= 0) ds_buf_printf(text, ", f32[%d, 64] on @m)", rows[p->at[out[1]].size]);
    ds_buf_printf(text, " {\n%sreturn %%v%d", body.text, out[0]);
    if (out[1] >= 0) ds_buf_printf(text, ", %%v%d", out[1]);
    ds_buf_printf(text, "\n}\nscenario { program = @f }\n");
    for (int i = 0; i < 2; i++)
        if (out[i] >= 0) p->at[out[i]].is_output = true;
    ds_buf_deinit(&body);
}

/* ---- the walk ---- */

static int64_t bytes_of(const value *v) {
    return INT64_C(256) * rows[v->size];
}

/* The op or input whose result a value is, looking through views. */
static int maker(const program *p, int v) {
    while (p->at[v].kind == VIEW) v = p->at[v].read[0];
    return v;
}

/* When each op runs: two streams, each in order, each op after what it reads. */
static void time_ops(program *p) {
    int64_t free_us[2] = {0, 0};
    for (int i = 0; i < p->n; i++) {
        value *v = &p->at[i];
        if (v->kind == INPUT || v->kind == VIEW) continue;
        int64_t *stream = &free_us[v->kind == PERMUTE];
        v->start_us = *stream;
        for (int k = 0; k < 2; k++) {
            if (v->read[k] < 0) continue;
            int64_t ready = p->at[maker(p, v->read[k])].end_us;
            if (ready > v->start_us) v->start_us = ready;
        }
        *stream = v->end_us = v->start_us + v->us;
    }
}

/* Does op `i` read the value that `v` is, directly or as a view of it? */
static bool reads(const program *p, int i, int v) {
    const value *op = &p->at[i];
    if (op->kind == INPUT || op->kind == VIEW) return false;
    for (int k = 0; k < 2; k++)
        if (op->read[k] >= 0 && maker(p, op->read[k]) == v) return true;
    return false;
}

static bool is_output(const program *p, int v) {
    for (int i = v; i < p->n; i++)
        if (p->at[i].is_output && maker(p, i) == v) return true;
    return false;
}

/* May op `i` write over its first operand? */
static bool is_in_place(const program *p, int i) {
    const value *v = &p->at[i];
    if (v->kind != RELU && v->kind != ADD) return false;
    int a = maker(p, v->read[0]), owner = p->at[a].owner;
    if (p->at[owner].kind == INPUT || is_output(p, a)) return false;
    for (int k = i + 1; k < p->n; k++)
        if (reads(p, k, a)) return false; /* later in the program */
    for (int u = 0; u < i; u++) {         /* everything that had the buffer, and its readers */
        if (p->at[u].kind == VIEW || p->at[u].owner != owner) continue;
        if (is_output(p, u) || p->at[u].end_us > v->start_us) return false;
        for (int k = 0; k < i; k++)
            if (reads(p, k, u) && p->at[k].end_us > v->start_us) return false;
    }
    return true;
}

static void find_buffers(program *p) {
    for (int i = 0; i < p->n; i++) {
        value *v = &p->at[i];
        v->owner = is_in_place(p, i) ? p->at[maker(p, v->read[0])].owner : maker(p, i);
    }
    for (int i = 0; i < p->n; i++) {
        value *v = &p->at[i];
        if (v->kind == VIEW) continue;
        int64_t end = v->kind == INPUT || is_output(p, i) ? END : v->end_us;
        for (int k = 0; k < p->n; k++)
            if (reads(p, k, i) && p->at[k].end_us > end) end = p->at[k].end_us;
        if (end > p->at[v->owner].free_us) p->at[v->owner].free_us = end;
    }
}

static bool is_owner(const program *p, int i) {
    return p->at[i].kind != VIEW && p->at[i].owner == i;
}

static int64_t round_up(int64_t bytes, int64_t to) {
    return (bytes + to - 1) / to * to;
}

/* The most that is alive at the start of any buffer, each rounded up to `block` bytes. */
static int64_t walk_peak(const program *p, int64_t block) {
    int64_t peak = 0;
    for (int t = 0; t < p->n; t++) {
        int64_t now = round_up(64 * 64 * 4, block); /* w */
        for (int i = 0; i < p->n; i++)
            if (is_owner(p, i) && p->at[i].start_us <= p->at[t].start_us &&
                p->at[t].start_us < p->at[i].free_us)
                now += round_up(bytes_of(&p->at[i]), block);
        if (now > peak) peak = now;
    }
    return peak;
}

/* cuBLAS's, if there is a product: two blocks of 4 MiB and eight of 16 KiB. */
static int64_t workspace(const program *p) {
    for (int i = 0; i < p->n; i++)
        if (p->at[i].kind == PRODUCT) return 8519680;
    return 0;
}

/* The same buffers given to the allocator (tests/sim/mem/test_allocator.c holds that to its rules).
 */
typedef struct change {
    int64_t us, bytes; /* bytes < 0: a free */
    int key;           /* order of the program */
    uint32_t *block;
} change;

static int in_order(const void *a, const void *b) {
    const change *x = a, *y = b;
    if (x->us != y->us) return x->us < y->us ? -1 : 1;
    if ((x->bytes > 0) != (y->bytes > 0)) return x->bytes > 0 ? 1 : -1;
    return (x->key > y->key) - (x->key < y->key);
}

static int64_t reserved_peak(const program *p) {
    static change all[2 * MAX_VALUES + 2];
    static uint32_t blocks[MAX_VALUES + 2];
    int n = 0;
    int64_t peak = 0;
    all[n++] =
        (change){0, 64 * 64 * 4, 2 * N_SIZES - 1, &blocks[MAX_VALUES]}; /* w, the last input */
    if (workspace(p))                                                   /* behind the inputs */
        all[n++] = (change){0, workspace(p), 2 * MAX_VALUES, &blocks[MAX_VALUES + 1]};
    for (int i = 0; i < p->n; i++) {
        if (!is_owner(p, i)) continue;
        int64_t bytes = bytes_of(&p->at[i]);
        all[n++] = (change){p->at[i].start_us, bytes, 2 * i, &blocks[i]};
        if (p->at[i].free_us < END)
            all[n++] = (change){p->at[i].free_us, -bytes, 2 * i, &blocks[i]};
    }
    qsort(all, (size_t)n, sizeof *all, in_order);
    ds_allocator *a = ds_allocator_new(80 * 1024 * MIB, false);
    for (int i = 0; i < n; i++) {
        if (all[i].bytes > 0)
            cr_assert_eq(ds_allocator_take(a, DS_ALLOC_COMPUTE, all[i].bytes, all[i].block, NULL),
                         DS_OK);
        else
            ds_allocator_give(a, *all[i].block);
        if (ds_allocator_reserved_bytes(a) > peak) peak = ds_allocator_reserved_bytes(a);
    }
    ds_allocator_free(a);
    return peak;
}

/* ---- comparison ---- */

/* What the catalogue says of an A100, by hand: driver 870, context 942, a pair 544 MiB. */
static int64_t overhead(const program *p) {
    return (870 + 942 + (p->has_permute ? 544 : 0)) * MIB;
}

static void check(uint64_t seed, ds_mem_mode mode) {
    static program p;
    ds_buf text = {0};
    sim_case c;
    draw(&p, seed, &text);
    sim_run_text(&c, text.text, NULL, false);
    cr_assert_eq(c.status, DS_OK, "%s\n%s", c.err.message, text.text);
    time_ops(&p);
    find_buffers(&p);
    int64_t last_us = 0;
    for (int i = 0; i < p.n; i++)
        if (p.at[i].end_us > last_us) last_us = p.at[i].end_us;
    cr_assert_eq(c.result->run.step_ps, last_us * 1000000, "seed %llu\n%s",
                 (unsigned long long)seed, text.text);
    cr_assert_eq(c.result->plan->n_classes, 1);
    ds_mem mem = {0};
    cr_assert_eq(
        ds_mem_compute(c.result->plan, &c.result->run, &(ds_mem_options){.mode = mode}, &mem, NULL),
        DS_OK);
    const ds_mem_class *m = &mem.classes[0];
    int64_t live = walk_peak(&p, mode ? 512 : 1), sum = 0;
    for (int k = 0; k < DS_MEM_CATEGORY_COUNT; k++) sum += m->peak_by_category[k];
    cr_expect_eq(sum, m->peak_bytes);
    if (mode < DS_MEM_ALLOCATOR) {
        cr_assert_eq(m->peak_bytes, live, "seed %llu %s\n%s", (unsigned long long)seed,
                     ds_mem_mode_name(mode), text.text);
    } else {
        cr_expect_eq(m->peak_by_category[DS_MEM_CONTEXT] + m->peak_by_category[DS_MEM_COMMUNICATOR],
                     overhead(&p));
        /* the categories are those of the moment at which buffers hold most */
        cr_expect_eq(sum - overhead(&p) - m->peak_by_category[DS_MEM_UNUSED], m->allocated_bytes);
        cr_expect_geq(m->allocated_bytes,
                      live + workspace(&p)); /* some blocks hold more than was asked for */
        cr_assert_eq(m->peak_bytes, overhead(&p) + reserved_peak(&p), "seed %llu\n%s",
                     (unsigned long long)seed, text.text);
    }
    ds_mem_deinit(&mem);
    ds_buf_deinit(&text);
    sim_free(&c);
}

Test(mem_random, live_bytes_equal_a_walk) {
    for (uint64_t seed = 0; seed < RUNS; seed++) check(seed, DS_MEM_EXACT);
}

Test(mem_random, blocks_of_512_bytes_equal_a_walk) {
    for (uint64_t seed = 0; seed < RUNS; seed++) check(seed, DS_MEM_ROUNDED);
}

Test(mem_random, an_allocator_and_overheads_equal_a_walk) {
    for (uint64_t seed = 0; seed < RUNS; seed++) check(seed, DS_MEM_ALLOCATOR);
}
