/* Stores of a rec in the simulated memory, to the byte: classes, lengths, tiles and windows against
 * the closed forms of ir/temporal/store.h, at the peak and at each turn. All that is not the store is
 * the same in each. */
#include "ir/temporal/store.h"
#include "tests/support/sim.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { N = 1000, POINT = 4 * N };

typedef struct shape {
    int T, w, tile;
    const char *stores;
} shape;

/* A sum over windows of w values, of T values in all. */
static void run_windows(sim_case *c, const shape *s) {
    char text[1024], tile[40] = "";
    if (s->tile) snprintf(tile, sizeof tile, ", rec_tile = %d", s->tile);
    snprintf(text, sizeof text,
             "dir 1\ntopology @box {\n  device d : \"A100-SXM4-80GB\"\n}\n"
             "func @f(%%x: f32[%d]) -> f32[%d] {\n  %%r = rec (t in 0..%d) {\n"
             "    %%u = scale(%%x) {factor = 0.5 * t}\n"
             "    %%m = reduce_sum(%%u{max(0, t - %d):t + 1}) {dims = [0]}\n"
             "    %%s = case t == 0: %%x, else: %%c{t - 1}\n    %%c = add(%%s, %%m)\n"
             "    yield %%c{%d}\n  }\n  return %%r\n}\n"
             "scenario { model = @f, on = @box, strategy { rec_stores = %s%s } }\n",
             N, N, s->T, s->w - 1, s->T - 1, s->stores, tile);
    sim_run_text(c, text, NULL, false);
    cr_assert_eq(c->status, DS_OK, "%s\n%s", c->err.message, text);
}

/* A ring holds each point twice; one that would hold more than all points is no ring. */
static ds_store store_of(const shape *s) {
    ds_store store = {.kind = DS_STORE_WHOLE, .point_bytes = POINT, .length = s->T, .window = s->w};
    for (int k = 0; k <= DS_STORE_HOST; k++)
        if (strcmp(ds_store_name((ds_store_class)k), s->stores) == 0)
            store.kind = (ds_store_class)k;
    if (strcmp(s->stores, "rings") == 0 && 2 * s->w <= s->T) store.kind = DS_STORE_CIRCULAR;
    store.tile = s->tile ? s->tile : store.kind == DS_STORE_PAGED ? 16 : 512;
    return store;
}

static bool is_stored(const ds_plan *plan, uint32_t value) {
    const ds_op *op = plan->records.at[plan->insts.at[plan->values.at[value].inst].record]->op;
    return op && (op->code == DS_OP_PUT || op->code == DS_OP_ZEROS ||
                  (op->code == DS_OP_CONCAT && op->n_in == 1));
}

/* What stores hold when the write of each turn has begun. */
static void check_turns(const sim_case *c, const shape *s) {
    const ds_plan *plan = c->result->plan;
    const ds_mem_class *mem = &c->result->mem.classes[0];
    ds_store store = store_of(s);
    int64_t puts = 0, per_turn = store.kind == DS_STORE_CIRCULAR ? 2 : 1;
    for (uint32_t i = 0; i < plan->insts.n; i++) {
        const ds_inst *inst = &plan->insts.at[i];
        const ds_op *op = plan->records.at[inst->record]->op;
        if (!op || op->code != DS_OP_PUT) continue;
        int64_t bytes = 0, t = puts++ / per_turn, start = c->result->run.start_ps[inst->first_task];
        for (uint32_t e = 0; e < mem->n_events; e++)
            if (mem->events[e].time_ps <= start && is_stored(plan, mem->events[e].value))
                bytes += mem->events[e].delta_bytes;
        cr_expect_eq(bytes, ds_store_bytes(&store, t),
                     "%s, %d values, window %d, tile %d, turn %" PRId64 ": %" PRId64
                     " bytes, not %" PRId64,
                     s->stores, s->T, s->w, s->tile, t, bytes, ds_store_bytes(&store, t));
    }
    cr_expect_eq(puts, per_turn * s->T);
}

static int64_t rest_bytes; /* beside the store */

static void check(const shape *s) {
    sim_case c;
    ds_store store = store_of(s);
    bool is_ring = store.kind == DS_STORE_CIRCULAR || store.kind == DS_STORE_RING;
    if (is_ring && s->w >= s->T) return; /* refused: no window */
    run_windows(&c, s);
    int64_t got = c.result->mem.classes[0].peak_bytes;
    int64_t want = rest_bytes + ds_store_peak(&store);
    if (store.kind == DS_STORE_RING) want += (int64_t)s->w * POINT; /* the window, in one piece */
    cr_expect_eq(got, want, "%s, %d values, window %d, tile %d: %" PRId64 ", not %" PRId64,
                 s->stores, s->T, s->w, s->tile, got, want);
    check_turns(&c, s);
    sim_free(&c);
}

static void check_all(const char *stores, int tile) { /* 12 combinations */
    static const int lengths[] = {9, 16, 40}, windows[] = {2, 5, 8, 40};
    /* The input, the sum of all turns, and the value of the turn or the sum of its window. */
    rest_bytes = 3 * POINT;
    for (int l = 0; l < 3; l++)
        for (int w = 0; w < 4; w++) check(&(shape){lengths[l], windows[w], tile, stores});
}

Test(mem_rec, rings) { /* rings of two points a value, of one, or the whole, which is less */
    check_all("rings", 0);
    check_all("circular", 0);
    check_all("ring", 0);
}

Test(mem_rec, whole) { /* in place, or a new tensor in each turn */
    check_all("whole", 0);
    check_all("functional", 0);
}

Test(mem_rec, tiles) {
    check_all("point", 0);
    check_all("block", 3);
    check_all("block", 5);
    check_all("paged", 0);
}

/* ---- stores at the hosts ---- */

typedef struct swap {
    int T, w, depth; /* each point is read w turns later; w >= T: in a loop of its own, after all */
} swap;

static void run_swap(sim_case *c, const swap *s) {
    char text[1600], reads[300];
    if (s->w < s->T)
        snprintf(reads, sizeof reads, "    %%y = case t < %d: %%x, else: %%u{t - %d}\n", s->w,
                 s->w);
    else
        snprintf(reads, sizeof reads,
                 "    %%e = expand(%%all{%d}) {dims = [0], sizes = [%d]} : f32[%d]\n"
                 "    %%y = mul(%%u, %%e)\n",
                 s->T - 1, N, N);
    snprintf(
        text, sizeof text,
        "dir 1\ntopology @box {\n  device d : \"A100-SXM4-80GB\"\n  host cpu\n"
        "  link d -- cpu : 0.1 GB/s, 1 us\n}\n"
        "func @f(%%x: f32[%d], %%z: f32[]) -> f32[%d] {\n  %%r = rec (t in 0..%d) {\n"
        "    %%u = scale(%%%s) {factor = 0.5 * t}\n"
        "    %%n = reduce_sum(%%u) {dims = [0]} : f32[]\n"
        "    %%some = case t == 0: %%z, else: %%all{t - 1} : f32[]\n"
        "    %%all = add(%%some, %%n)\n%s"
        "    %%s = case t == 0: %%x, else: %%c{t - 1}\n    %%c = add(%%s, %%y)\n"
        "    yield %%c{%d}\n  }\n  return %%r\n}\n"
        "scenario { model = @f, on = @box, strategy { rec_stores = host, rec_prefetch = %d } }\n",
        N, N, s->T, s->w < s->T ? "s" : "x", reads, s->T - 1, s->depth);
    sim_run_text(c, text, NULL, false);
    cr_assert_eq(c->status, DS_OK, "%s\n%s", c->err.message, text);
}

/* Bytes of values of one op that are there at a time. */
static int64_t bytes_of(const sim_case *c, ds_opcode code, bool host, int64_t time_ps) {
    const ds_plan *plan = c->result->plan;
    const ds_mem_class *mem = &c->result->mem.classes[0];
    const ds_mem_event *events = host ? mem->host_events : mem->events;
    int64_t bytes = 0;
    for (uint32_t e = 0; e < (host ? mem->n_host_events : mem->n_events); e++) {
        if (events[e].time_ps > time_ps) continue;
        const ds_vinst *v = &plan->values.at[events[e].value];
        const ds_op *op = plan->records.at[plan->insts.at[v->inst].record]->op;
        if (op && op->code == code) bytes += events[e].delta_bytes;
    }
    return bytes;
}

static void check_swap(const swap *s) {
    sim_case c;
    ds_store store = {.kind = DS_STORE_HOST,
                      .point_bytes = POINT,
                      .length = s->w < s->T ? s->T - s->w : s->T,
                      .window = s->w < s->T ? s->w : 0,
                      .depth = s->depth};
    run_swap(&c, s);
    const ds_plan *plan = c.result->plan;
    int64_t t = 0, puts = 0, most_in = 0;
    for (uint32_t i = 0; i < plan->insts.n; i++) {
        const ds_op *op = plan->records.at[plan->insts.at[i].record]->op;
        if (plan->insts.at[i].first_task == DS_NONE) continue;
        int64_t start = c.result->run.start_ps[plan->insts.at[i].first_task];
        if (op && op->code == DS_OP_SCALE) {
            cr_expect_eq(bytes_of(&c, DS_OP_SCALE, false, start), ds_store_bytes(&store, t),
                         "%d values, read %d turns later, depth %d, turn %" PRId64 ": %" PRId64
                         " bytes, not %" PRId64,
                         s->T, s->w, s->depth, t, bytes_of(&c, DS_OP_SCALE, false, start),
                         ds_store_bytes(&store, t));
            t++;
        }
        if (op && op->code == DS_OP_PUT) {
            int64_t at_host = bytes_of(&c, DS_OP_PUT, true, start);
            cr_expect_eq(at_host, ds_store_host_bytes(&store, puts),
                         "%d values, read %d turns later, turn %" PRId64 ": %" PRId64
                         " bytes at the host, not %" PRId64,
                         s->T, s->w, puts, at_host, ds_store_host_bytes(&store, puts));
            puts++;
        }
        int64_t in = bytes_of(&c, DS_OP_SLICE, false, start);
        if (in > most_in) most_in = in;
    }
    cr_expect(t == store.length && puts == t);
    /* The link is slower than compute: a point is used, and the next one is on its way. */
    cr_expect_eq(most_in, POINT * (s->depth < 2 ? s->depth : 2),
                 "%d values, read %d turns later, depth %d: %" PRId64 " bytes on their way back",
                 s->T, s->w, s->depth, most_in);
    sim_free(&c);
}

Test(mem_rec, hosts) { /* 14 */
    static const int lengths[] = {9, 40}, later[] = {3, 40}, depths[] = {1, 2, 3, 5};
    for (int l = 0; l < 2; l++)
        for (int w = 0; w < 2; w++)
            for (int d = 0; d < 4; d++)
                if (depths[d] <= later[w]) /* else a reader waits for points on their way out */
                    check_swap(&(swap){lengths[l], later[w], depths[d]});
}

/* A turn writes a view of the store before, so the store is copied: two points of each, or all. */
Test(mem_rec, copies) {
    static const char *const stores[] = {"point", "whole"};
    for (int T = 6; T <= 12; T += 6)
        for (int k = 0; k < 2; k++) {
            sim_case c;
            char text[600];
            snprintf(text, sizeof text,
                     "dir 1\ntopology @box {\n  device d : \"A100-SXM4-80GB\"\n}\n"
                     "func @f(%%b{i: 0..%d}: f64[1]) -> ({i: 0..%d} f64[1], f64[1]) {\n"
                     "  %%r0, %%r1 = rec (i in 0..%d) {\n    %%e1 = tanh(%%e0{%d}) : f64[1]\n"
                     "    %%e0 = case i == 0: %%b{0}, else: %%e0{i - 1} : f64[1]\n"
                     "    yield %%e0, %%e1\n  }\n  return %%r0, %%r1\n}\n"
                     "scenario { model = @f, on = @box, strategy { rec_stores = %s } }\n",
                     T, T, T, T - 1, stores[k]);
            sim_run_text(&c, text, NULL, false);
            cr_assert_eq(c.status, DS_OK, "%s\n%s", c.err.message, text);
            int64_t want = 8 * (2 * T + 2 * (k ? T : 2)), got = c.result->mem.classes[0].peak_bytes;
            cr_expect_eq(got, want, "%s, %d points: %" PRId64 " bytes, not %" PRId64, stores[k], T,
                         got, want);
            sim_free(&c);
        }
}
