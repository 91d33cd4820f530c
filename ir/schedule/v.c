/* Schedules on a V: rank r holds chunks r and 2p − 1 − r, so that the first and the last chunk, and
 * with them forward and backward of a microbatch, meet on rank 0 ("Pipeline Parallelism with
 * Controllable Memory", arXiv 2405.15362). A chunk is half a stage.
 *
 * ZB-V is an explicit order, made for F = B = W: warm-up, three rounds of filling, a stable phase
 * of F B W F B W, cool-down (as in PyTorch's ScheduleZBVZeroBubble,
 * torch/distributed/pipelining/schedules.py). ZB-V keeps 2p chunks, that is p stages' worth, in
 * flight; bubbles vanish at F = B = W from 2p − 1 microbatches on.
 *
 * V-half and V-min repeat a building block every six slots (two F, two B, two W of one slot each):
 * the sooner a microbatch's B follows its F, the fewer chunks are in flight. For microbatch 0 the
 * block gives the slots of chunk 0's F, chunk 1's F, chunk 1's B and chunk 0's B on each rank
 * (sail-sg/zero-bubble-pipeline-parallelism, …/zerobubble/scheduler/zbv_greedy.py); W takes the
 * free slots. Here the blocks give each rank's order of F and B, and the limit of chunks in flight
 * when W takes the first free slot after its B. Then W is filled in: before an item that cannot
 * start yet, if W fits, or when the limit would be exceeded. Durations are the options'. The paper
 * also reorders F and B in warm-up and cool-down to shorten both; this file keeps the order, and
 * items start as early as the order allows. */
#include "ir/schedule/internal.h"

#include <assert.h>
#include <stdlib.h>

/* ---- ZB-V ---- */

/* Counts of one rank; indices are the rank's chunks. */
typedef struct zbv_rank {
    ds_schedule_maker *maker;
    int64_t rank, f[2], b[2], w[2];
} zbv_rank;

/* Puts an item. The order assumes at least 2p − 1 microbatches; items of missing microbatches are
 * left out. */
static void zbv_put(zbv_rank *z, char kind, int which, int64_t microbatch) {
    if (microbatch >= z->maker->m) return;
    int64_t chunk = which ? 2 * z->maker->p - 1 - z->rank : z->rank;
    ds_schedule__put(z->maker, z->rank, kind, chunk, microbatch);
}

static void zbv_f(zbv_rank *z, int which) {
    zbv_put(z, 'F', which, z->f[which]++);
}
static void zbv_b(zbv_rank *z, int which) {
    zbv_put(z, 'B', which, z->b[which]++);
}
static void zbv_w(zbv_rank *z, int which) {
    zbv_put(z, 'W', which, z->w[which]++);
}

static void zbv_bw(zbv_rank *z, int which) {
    zbv_b(z, which);
    zbv_w(z, which);
}

ds_status ds_schedule__zb_v(ds_schedule_maker *maker, ds_error *err) {
    (void)err;
    int64_t p = maker->p, m = maker->m < 2 * p - 1 ? 2 * p - 1 : maker->m;
    for (int64_t r = 0; r < p; r++) {
        zbv_rank z = {.maker = maker, .rank = r};
        for (int64_t i = 0; i < 2 * (p - r) - 1; i++) zbv_f(&z, 0);
        for (int64_t i = 0; i < r; i++) {
            zbv_f(&z, 1);
            zbv_f(&z, 0);
        }
        for (int64_t i = 0; i < p - r; i++) {
            zbv_f(&z, 1);
            zbv_bw(&z, 1);
        }
        while (z.f[1] < z.f[0] || z.f[0] < m) {
            if (z.f[0] < m) zbv_f(&z, 0);
            zbv_bw(&z, 0);
            zbv_f(&z, 1);
            zbv_bw(&z, 1);
        }
        for (int64_t i = 0; i < r; i++) {
            zbv_b(&z, 0);
            zbv_b(&z, 1);
        }
        for (int64_t i = 0; i < p - r; i++) zbv_bw(&z, 0);
        while (z.w[1] < z.b[1]) zbv_w(&z, 1);
        while (z.w[0] < z.b[0]) zbv_w(&z, 0);
    }
    return DS_OK;
}

/* ---- building blocks ---- */

enum { F0, F1, B1, B0, PERIOD = 6 };

typedef void block_of(int64_t p, int64_t rank, int64_t offset[4]);

static void v_min_block(int64_t p, int64_t r, int64_t offset[4]) {
    int64_t gap = p % 3 == 0 ? 2 : 0; /* else two items would share a slot modulo 6 */
    offset[F0] = r;
    offset[F1] = 2 * p - 1 - r;
    offset[B1] = 2 * p + gap + r;
    offset[B0] = 4 * p + gap - 1 - r;
}

static void v_half_block(int64_t p, int64_t r, int64_t offset[4]) {
    int64_t gap = p % 2 == 0 ? 3 : 0;
    offset[F0] = 2 * r;
    offset[F1] = 3 * p - 2 - r;
    offset[B1] = 3 * p + gap - 1 + 2 * r;
    offset[B0] = 6 * p + gap - 2 - r;
}

/* The order of F and B: 4m items a rank. */
typedef struct v_order {
    ds_schedule_maker *maker;
    ds_schedule_item *items; /* [p × 4m] */
    int64_t n;               /* 4m */
    int64_t limit;           /* chunks in flight */
} v_order;

/* Lays a rank's blocks into slots, reads off the order and counts chunks in flight. */
static void lay_out_rank(v_order *order, int64_t rank, const int64_t offset[4],
                         ds_schedule_item *slots, int64_t n_slots) {
    const ds_schedule_maker *maker = order->maker;
    int64_t chunks[2] = {rank, 2 * maker->p - 1 - rank};
    for (int64_t t = 0; t < n_slots; t++) slots[t].kind = 0;
    for (int type = F0; type <= B0; type++)
        for (int64_t k = 0; k < maker->m; k++)
            slots[offset[type] + PERIOD * k] = (ds_schedule_item){
                type <= F1 ? 'F' : 'B', chunks[type == F1 || type == B1], k, false};
    ds_schedule_item *at = &order->items[rank * order->n];
    int64_t in_flight = 0, waiting = 0;
    for (int64_t t = 0; t < n_slots; t++) {
        if (slots[t].kind) *at++ = slots[t];
        in_flight += slots[t].kind == 'F';
        waiting += slots[t].kind == 'B';
        if (in_flight > order->limit) order->limit = in_flight;
        if (slots[t].kind || waiting == 0) continue;
        waiting--;
        in_flight--;
    }
}

/* ---- filling in W ---- */

typedef struct fill_rank {
    int64_t next; /* position in the order */
    int64_t now;  /* the time at which the rank is free */
    int64_t n_b, n_w, in_flight;
    ds_schedule_item *backwards; /* in the order of their runs */
} fill_rank;

typedef struct fill {
    v_order *order;
    fill_rank *ranks;
    int64_t *end[2]; /* of F, B: [microbatch × 2p + chunk], −1: not yet */
} fill;

static int64_t *end_of(fill *f, char kind, int64_t chunk, int64_t microbatch) {
    return &f->end[kind == 'B'][microbatch * 2 * f->order->maker->p + chunk];
}

/* The end of the item for which `item` waits; −1: not known yet. */
static int64_t ready_at(fill *f, const ds_schedule_item *item) {
    int64_t last = 2 * f->order->maker->p - 1;
    if (item->kind == 'F')
        return item->chunk ? *end_of(f, 'F', item->chunk - 1, item->microbatch) : 0;
    int64_t own = *end_of(f, 'F', item->chunk, item->microbatch);
    if (item->chunk == last || own < 0) return own;
    return *end_of(f, 'B', item->chunk + 1, item->microbatch);
}

static void run_w(fill *f, int64_t r) {
    fill_rank *rank = &f->ranks[r];
    const ds_schedule_item *b = &rank->backwards[rank->n_w++];
    ds_schedule__put(f->order->maker, r, 'W', b->chunk, b->microbatch);
    rank->now += f->order->maker->times.w;
    rank->in_flight--;
}

/* Runs the rank's next item if its earliest start is known. The result depends only on the order
 * and these times, so ranks may take turns in any order. */
static bool run_next(fill *f, int64_t r) {
    fill_rank *rank = &f->ranks[r];
    const ds_schedule_maker *maker = f->order->maker;
    const ds_schedule_item *item = &f->order->items[r * f->order->n + rank->next];
    int64_t ready = ready_at(f, item);
    if (ready < 0) return false;
    while (rank->n_w < rank->n_b && (rank->now + maker->times.w <= ready ||
                                     (item->kind == 'F' && rank->in_flight == f->order->limit)))
        run_w(f, r);
    ds_schedule__put(f->order->maker, r, item->kind, item->chunk, item->microbatch);
    if (rank->now < ready) rank->now = ready;
    rank->now += item->kind == 'F' ? maker->times.f : maker->times.b;
    *end_of(f, item->kind, item->chunk, item->microbatch) = rank->now;
    if (item->kind == 'F') rank->in_flight++;
    if (item->kind == 'B') rank->backwards[rank->n_b++] = *item;
    rank->next++;
    return true;
}

static void fill_in_w(v_order *order) {
    int64_t p = order->maker->p, m = order->maker->m;
    fill f = {.order = order, .ranks = ds_xcalloc((size_t)p, sizeof *f.ranks)};
    for (int i = 0; i < 2; i++) {
        f.end[i] = ds_xmalloc((size_t)(2 * p * m) * sizeof *f.end[i]);
        for (int64_t k = 0; k < 2 * p * m; k++) f.end[i][k] = -1;
    }
    for (int64_t r = 0; r < p; r++)
        f.ranks[r].backwards = ds_xcalloc((size_t)(2 * m), sizeof *f.ranks[r].backwards);
    for (bool moved = true; moved;) {
        moved = false;
        for (int64_t r = 0; r < p; r++)
            while (f.ranks[r].next < order->n && run_next(&f, r)) moved = true;
    }
    for (int64_t r = 0; r < p; r++) {
        assert(f.ranks[r].next == order->n); /* slots are a linear extension */
        while (f.ranks[r].n_w < f.ranks[r].n_b) run_w(&f, r);
        free(f.ranks[r].backwards);
    }
    free(f.end[0]);
    free(f.end[1]);
    free(f.ranks);
}

static ds_status repeat_block(ds_schedule_maker *maker, block_of *block) {
    int64_t p = maker->p, m = maker->m, n_slots = PERIOD * m + 6 * p + 2;
    v_order order = {.maker = maker, .n = 4 * m};
    order.items = ds_xcalloc((size_t)(p * order.n), sizeof *order.items);
    ds_schedule_item *slots = ds_xcalloc((size_t)n_slots, sizeof *slots);
    for (int64_t r = 0; r < p; r++) {
        int64_t offset[4];
        block(p, r, offset);
        lay_out_rank(&order, r, offset, slots, n_slots);
    }
    fill_in_w(&order);
    free(slots);
    free(order.items);
    return DS_OK;
}

ds_status ds_schedule__v_half(ds_schedule_maker *maker, ds_error *err) {
    (void)err;
    return repeat_block(maker, v_half_block);
}

ds_status ds_schedule__v_min(ds_schedule_maker *maker, ds_error *err) {
    (void)err;
    return repeat_block(maker, v_min_block);
}
