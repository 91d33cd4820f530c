/* Schedules whose order is one rule: some forwards first, then one backward and one forward in
 * turn, then the remaining backwards. With T = m·v items of each kind on a rank, numbered in the
 * order in which the rank runs them, two numbers describe a rank:
 *
 *     lead    forwards before the first backward
 *     delay   W of the k-th backward follows backward k + delay; none: B is the whole backward
 *
 *     GPipe, breadth-first  lead T
 *     1F1B                  lead p − r               at most p − r in flight
 *     eager 1F1B            lead 2(p − r) − 1
 *     interleaved           lead 2(p − r − 1) + (v − 1)p + 1
 *     ZB-H1                 lead p − r, delay r: lead + delay = p in flight on every rank
 *     ZB-H2                 lead 2(p − r) − 1, delay 2r: 2p − 1 in flight on every rank
 *
 * The other half of a schedule is the chunk and microbatch of the k-th item: depth first in groups
 * of p microbatches (Megatron-LM's interleaved order), or breadth first. */
#include "ir/schedule/internal.h"

enum { NO_SPLIT = -1 };

/* The k-th forward's or backward's turn through the rank's chunks, and its microbatch. */
typedef struct place_in_order {
    int64_t turn, microbatch;
} place_in_order;
typedef place_in_order order_of(const ds_schedule_maker *maker, int64_t k, bool backward);

/* Groups of p microbatches pass all chunks of the rank before the next group starts: Megatron-LM,
 * get_model_chunk_id in core/pipeline_parallel/schedules.py. With v = 1: k itself. */
static place_in_order depth_first(const ds_schedule_maker *maker, int64_t k, bool backward) {
    if (maker->v == 1) return (place_in_order){0, k};
    int64_t p = maker->p, v = maker->v;
    int64_t turn = k % (p * v) / p;
    return (place_in_order){backward ? v - 1 - turn : turn, k / (p * v) * p + k % p};
}

/* All microbatches pass a chunk before the first enters the next. */
static place_in_order breadth_first(const ds_schedule_maker *maker, int64_t k, bool backward) {
    int64_t turn = k / maker->m;
    return (place_in_order){backward ? maker->v - 1 - turn : turn, k % maker->m};
}

/* As breadth_first, but the backward starts with the last microbatch, as GPipe draws it. */
static place_in_order last_first(const ds_schedule_maker *maker, int64_t k, bool backward) {
    return (place_in_order){0, backward ? maker->m - 1 - k : k};
}

static void put_kth(ds_schedule_maker *maker, order_of *order, int64_t rank, char kind, int64_t k) {
    place_in_order at = order(maker, k, kind != 'F');
    ds_schedule__put(maker, rank, kind, at.turn * maker->p + rank, at.microbatch);
}

static void put_rank(ds_schedule_maker *maker, order_of *order, int64_t rank, int64_t lead,
                     int64_t delay) {
    int64_t total = maker->m * maker->v;
    for (int64_t k = 0; k < lead && k < total; k++) put_kth(maker, order, rank, 'F', k);
    for (int64_t k = 0; k < total; k++) {
        put_kth(maker, order, rank, 'B', k);
        if (delay != NO_SPLIT && k >= delay) put_kth(maker, order, rank, 'W', k - delay);
        if (lead + k < total) put_kth(maker, order, rank, 'F', lead + k);
    }
    int64_t late = delay < total ? delay : total;
    for (int64_t k = total - late; k < total && delay != NO_SPLIT; k++)
        put_kth(maker, order, rank, 'W', k);
}

ds_status ds_schedule__gpipe(ds_schedule_maker *maker, ds_error *err) {
    (void)err;
    for (int64_t r = 0; r < maker->p; r++) put_rank(maker, last_first, r, maker->m, NO_SPLIT);
    return DS_OK;
}

ds_status ds_schedule__1f1b(ds_schedule_maker *maker, ds_error *err) {
    (void)err;
    for (int64_t r = 0; r < maker->p; r++) put_rank(maker, depth_first, r, maker->p - r, NO_SPLIT);
    return DS_OK;
}

ds_status ds_schedule__eager_1f1b(ds_schedule_maker *maker, ds_error *err) {
    (void)err;
    for (int64_t r = 0; r < maker->p; r++)
        put_rank(maker, depth_first, r, 2 * (maker->p - r) - 1, NO_SPLIT);
    return DS_OK;
}

ds_status ds_schedule__interleaved(ds_schedule_maker *maker, ds_error *err) {
    int64_t p = maker->p, m = maker->m, v = maker->v;
    if (v == 1) return ds_schedule__1f1b(maker, err);
    if (m % p != 0)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "interleaved 1F1B works in groups of one microbatch a stage: the "
                            "microbatches (%lld) must be a multiple of the stages (%lld)",
                            (long long)m, (long long)p);
    for (int64_t r = 0; r < p; r++)
        put_rank(maker, depth_first, r, 2 * (p - r - 1) + (v - 1) * p + 1, NO_SPLIT);
    return DS_OK;
}

ds_status ds_schedule__breadth_first(ds_schedule_maker *maker, ds_error *err) {
    (void)err;
    for (int64_t r = 0; r < maker->p; r++)
        put_rank(maker, breadth_first, r, maker->m * maker->v, NO_SPLIT);
    return DS_OK;
}

ds_status ds_schedule__zb_h1(ds_schedule_maker *maker, ds_error *err) {
    (void)err;
    for (int64_t r = 0; r < maker->p; r++) put_rank(maker, depth_first, r, maker->p - r, r);
    return DS_OK;
}

ds_status ds_schedule__zb_h2(ds_schedule_maker *maker, ds_error *err) {
    (void)err;
    for (int64_t r = 0; r < maker->p; r++)
        put_rank(maker, depth_first, r, 2 * (maker->p - r) - 1, 2 * r);
    return DS_OK;
}
