/* Schedules in two directions at once: DualPipe, DualPipeV, Chimera.
 *
 * DualPipe (DeepSeek-V3, arXiv 2412.19437; the eight steps of deepseek-ai/DualPipe,
 * dualpipe/dualpipe.py) feeds m/2 microbatches from either end of the pipeline, so every rank holds
 * two chunks: one of each copy of the weights. DualPipeV is the same order with the second half of
 * the pipeline folded back: no copies, chunks r and 2p − 1 − r on rank r, all microbatches from one
 * end. Seen from a rank both are two flows, 0 and 1, that differ only in the numbers below.
 *
 * Chimera (arXiv 2107.06925): units of p microbatches, half down, half up. If F and B take one slot
 * each, the j-th microbatch of a direction runs F on the direction's s-th stage in slot s + 2j and
 * B in slot 2p − 1 − s + 2j. Both directions never want one slot: s + 2j and p − 1 − s + 2j differ
 * in parity as p is even. Units follow each other without a gap (the paper's direct concatenation).
 */
#include "ir/schedule/internal.h"

#include <stdlib.h>

/* One rank of DualPipe: its progress in each flow. */
typedef struct dual_rank {
    ds_schedule_maker *maker;
    int64_t rank;
    int64_t chunk[2], base[2]; /* of flow 0 and 1: the rank's chunk, the first microbatch */
    int64_t forward[2], backward[2];
    int64_t weights;      /* W done */
    int64_t n_waiting;    /* W put off so far; the w-th belongs to (flow, microbatch) … */
    int8_t *waiting_flow; /* … at w */
    int64_t *waiting;
} dual_rank;

static void forward(dual_rank *d, int flow) {
    ds_schedule__put(d->maker, d->rank, 'F', d->chunk[flow], d->base[flow] + d->forward[flow]++);
}

/* Puts a backward. split: W is put off; W that are put off run in order. */
static void backward(dual_rank *d, int flow, bool split) {
    int64_t microbatch = d->base[flow] + d->backward[flow]++;
    ds_schedule__put(d->maker, d->rank, 'B', d->chunk[flow], microbatch);
    if (!split) return;
    d->waiting_flow[d->n_waiting] = (int8_t)flow;
    d->waiting[d->n_waiting++] = microbatch;
}

static void weights(dual_rank *d) {
    int64_t w = d->weights++;
    ds_schedule__put(d->maker, d->rank, 'W', d->chunk[d->waiting_flow[w]], d->waiting[w]);
}

static void together(dual_rank *d, int forward_flow, int backward_flow) {
    forward(d, forward_flow);
    ds_schedule__join(d->maker, d->rank);
    backward(d, backward_flow, false);
}

/* h: the rank's distance from the outer end, of `half` ranks; n microbatches in a flow, n ≥ 2 half
 * or n ≥ half (two copies). */
static void put_dual_rank(dual_rank *d, int64_t h, int64_t half, int64_t n) {
    int64_t inner = half - h - 1; /* ranks between this one and the middle */
    for (int64_t i = 0; i < 2 * inner; i++) forward(d, 0);
    for (int64_t i = 0; i <= h; i++) {
        forward(d, 0);
        forward(d, 1);
    }
    for (int64_t i = 0; i < inner; i++) {
        backward(d, 1, true);
        weights(d);
        forward(d, 1);
    }
    for (int64_t i = 0; i < n - 2 * half + h + 1; i++) {
        if (i == 0 && inner == 0) { /* not overlapped: a shorter bubble */
            forward(d, 0);
            backward(d, 1, false);
        } else {
            together(d, 0, 1);
        }
        together(d, 1, 0);
    }
    for (int64_t i = 0; i < inner; i++) {
        backward(d, 1, false);
        together(d, 1, 0);
    }
    bool split = false; /* the second half of these backwards leaves W for the end */
    for (int64_t i = 0; i <= h; i++) {
        split |= i == (h + 1) / 2 && h % 2 == 1;
        backward(d, 1, split);
        split |= i == (h + 1) / 2;
        backward(d, 0, split);
    }
    for (int64_t i = 0; i < inner; i++) {
        weights(d);
        backward(d, 0, true);
    }
    while (d->weights < d->n_waiting) weights(d);
}

static void dual_rank_init(dual_rank *d, ds_schedule_maker *maker, int64_t rank, int64_t n) {
    *d = (dual_rank){.maker = maker, .rank = rank};
    d->waiting = ds_xcalloc((size_t)(2 * n), sizeof *d->waiting);
    d->waiting_flow = ds_xcalloc((size_t)(2 * n), sizeof *d->waiting_flow);
}

static void dual_rank_deinit(dual_rank *d) {
    free(d->waiting);
    free(d->waiting_flow);
}

static ds_status check_even_stages(const ds_schedule_maker *maker, const char *title,
                                   ds_error *err) {
    if (maker->p % 2 == 0) return DS_OK;
    return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                        "%s runs from both ends of the pipeline: it needs an even number of "
                        "stages, not %lld",
                        title, (long long)maker->p);
}

ds_status ds_schedule__dualpipe(ds_schedule_maker *maker, ds_error *err) {
    int64_t p = maker->p, m = maker->m;
    DS_TRY(check_even_stages(maker, "DualPipe", err));
    if (m % 2 != 0 || m < 2 * p)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "DualPipe needs an even number of microbatches, at least twice the "
                            "stages (2 * %lld = %lld), not %lld",
                            (long long)p, (long long)(2 * p), (long long)m);
    for (int64_t r = 0; r < p; r++) {
        int64_t outer = r < p / 2 ? r : p - 1 - r;
        int down = r < p / 2 ? 0 : 1; /* the flow that runs from stage 0 to p − 1 */
        dual_rank d;
        dual_rank_init(&d, maker, r, m / 2);
        d.chunk[down] = r;
        d.chunk[1 - down] = p - 1 - r;
        d.base[1 - down] = m / 2;
        put_dual_rank(&d, outer, p / 2, m / 2);
        dual_rank_deinit(&d);
    }
    return DS_OK;
}

ds_status ds_schedule__dualpipev(ds_schedule_maker *maker, ds_error *err) {
    int64_t p = maker->p, m = maker->m;
    if (m < 2 * p)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "DualPipeV needs at least two microbatches a stage (2 * %lld = %lld), "
                            "not %lld",
                            (long long)p, (long long)(2 * p), (long long)m);
    for (int64_t r = 0; r < p; r++) {
        dual_rank d;
        dual_rank_init(&d, maker, r, m);
        d.chunk[0] = r;
        d.chunk[1] = 2 * p - 1 - r;
        put_dual_rank(&d, r, p, m);
        dual_rank_deinit(&d);
    }
    return DS_OK;
}

/* ---- Chimera ---- */

static void put_chimera_rank(ds_schedule_maker *maker, int64_t rank, ds_schedule_item *slots,
                             int64_t n_slots) {
    int64_t p = maker->p, m = maker->m;
    for (int64_t t = 0; t < n_slots; t++) slots[t].kind = 0;
    for (int64_t first = 0; first < m; first += p) { /* a unit: microbatches first … */
        int64_t half = (m - first < p ? m - first : p) / 2;
        for (int64_t j = 0; j < half; j++) {
            for (int64_t up = 0; up < 2; up++) {
                int64_t s = up ? p - 1 - rank : rank, microbatch = first + up * half + j;
                int64_t t = first / p * 2 * p + 2 * j; /* a unit keeps a rank busy for 2p slots */
                slots[t + s] = (ds_schedule_item){'F', s, microbatch, false};
                slots[t + 2 * p - 1 - s] = (ds_schedule_item){'B', s, microbatch, false};
            }
        }
    }
    for (int64_t t = 0; t < n_slots; t++)
        if (slots[t].kind)
            ds_schedule__put(maker, rank, slots[t].kind, slots[t].chunk, slots[t].microbatch);
}

ds_status ds_schedule__chimera(ds_schedule_maker *maker, ds_error *err) {
    int64_t p = maker->p, m = maker->m;
    DS_TRY(check_even_stages(maker, "Chimera", err));
    if (m % 2 != 0)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "Chimera sends half of the microbatches each way: it needs an even "
                            "number of them, not %lld",
                            (long long)m);
    int64_t n_slots = (m / p + 1) * 2 * p + 3 * p;
    ds_schedule_item *slots = ds_xcalloc((size_t)n_slots, sizeof *slots);
    for (int64_t r = 0; r < p; r++) put_chimera_rank(maker, r, slots, n_slots);
    free(slots);
    return DS_OK;
}
