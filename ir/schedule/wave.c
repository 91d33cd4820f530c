/* Hanayo (arXiv 2308.15762): the model's chunks run along the pipeline and back in waves, chunks
 * 0 1 … p−1 on stages 0 … p−1, the next p on p−1 … 0, and so on, so that one copy of the weights
 * suffices where Chimera needs two. v = 2 × waves chunks on a stage.
 *
 * The paper draws its order and publishes no rule. Here a simulation gives the order: F and the
 * whole backward take one slot each, and a free rank takes, of its ready items, a backward before a
 * forward, an earlier microbatch before a later one, a later chunk before an earlier one. A new
 * microbatch enters while fewer than p are in flight (the paper's N = p, kept for more). */
#include "ir/schedule/internal.h"

#include <stdlib.h>

/* Limit on visits to a chunk or a rank while an order is made: a few seconds. */
#define MOST_LOOKS 4e9

typedef struct wave_choice {
    bool found, backward;
    int64_t chunk, microbatch, start;
} wave_choice;

typedef struct wave {
    ds_schedule_maker *maker;
    int64_t chunks;
    int64_t *end[2];     /* forward, backward: [microbatch × chunks + chunk], −1: not yet */
    int64_t *next[2];    /* [chunk]: the next microbatch */
    int64_t *now;        /* [rank] */
    wave_choice *choice; /* [rank]: the best next item that is known */
} wave;

/* The earliest start of a chunk's next forward or backward; −1: not known. */
static int64_t ready_at(const wave *w, bool backward, int64_t chunk) {
    int64_t microbatch = w->next[backward][chunk];
    if (microbatch == w->maker->m) return -1;
    const int64_t *f = &w->end[0][microbatch * w->chunks], *b = &w->end[1][microbatch * w->chunks];
    if (backward) {
        if (f[chunk] < 0 || chunk == w->chunks - 1) return f[chunk];
        return b[chunk + 1];
    }
    if (chunk > 0) return f[chunk - 1];
    int64_t leaving = microbatch - w->maker->p; /* must leave first */
    return leaving < 0 ? 0 : w->end[1][leaving * w->chunks];
}

static bool is_better(const wave_choice *a, const wave_choice *b, int64_t now) {
    int64_t start_a = a->start > now ? a->start : now, start_b = b->start > now ? b->start : now;
    if (start_a != start_b) return start_a < start_b;
    if (a->backward != b->backward) return a->backward;
    if (a->microbatch != b->microbatch) return a->microbatch < b->microbatch;
    return a->chunk > b->chunk;
}

static void choose_next(wave *w, int64_t rank) {
    wave_choice best = {0};
    for (int64_t turn = 0; turn < w->maker->v; turn++) {
        int64_t p = w->maker->p;
        int64_t chunk = turn % 2 ? turn * p + p - 1 - rank : turn * p + rank;
        for (int backward = 0; backward < 2; backward++) {
            int64_t ready = ready_at(w, backward, chunk);
            if (ready < 0) continue;
            wave_choice c = {true, backward, chunk, w->next[backward][chunk], ready};
            if (!best.found || is_better(&c, &best, w->now[rank])) best = c;
        }
    }
    if (best.start < w->now[rank]) best.start = w->now[rank];
    w->choice[rank] = best;
}

static void run_item(wave *w, int64_t rank) {
    ds_schedule_maker *maker = w->maker;
    wave_choice c = w->choice[rank];
    ds_schedule__put(maker, rank, c.backward ? 'B' : 'F', c.chunk, c.microbatch);
    w->now[rank] = w->end[c.backward][c.microbatch * w->chunks + c.chunk] = c.start + 1;
    w->next[c.backward][c.chunk]++;
    choose_next(w, rank);
    int64_t neighbour = c.chunk + (c.backward ? -1 : 1);
    if (neighbour >= 0 && neighbour < w->chunks)
        choose_next(w, ds_schedule__wave(maker, neighbour));
    choose_next(w, 0); /* a microbatch may have left */
}

static void wave_init(wave *w, ds_schedule_maker *maker) {
    int64_t chunks = maker->p * maker->v;
    *w = (wave){.maker = maker, .chunks = chunks};
    for (int i = 0; i < 2; i++) {
        w->end[i] = ds_xmalloc((size_t)(chunks * maker->m) * sizeof *w->end[i]);
        for (int64_t k = 0; k < chunks * maker->m; k++) w->end[i][k] = -1;
        w->next[i] = ds_xcalloc((size_t)chunks, sizeof *w->next[i]);
    }
    w->now = ds_xcalloc((size_t)maker->p, sizeof *w->now);
    w->choice = ds_xcalloc((size_t)maker->p, sizeof *w->choice);
}

static void wave_deinit(wave *w) {
    for (int i = 0; i < 2; i++) {
        free(w->end[i]);
        free(w->next[i]);
    }
    free(w->now);
    free(w->choice);
}

ds_status ds_schedule__hanayo(ds_schedule_maker *maker, ds_error *err) {
    if (maker->v % 2 != 0)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "Hanayo's waves run along the pipeline and back: it needs an even "
                            "number of chunks on a stage, two a wave, not %lld",
                            (long long)maker->v);
    double looks =
        2.0 * (double)(maker->p * maker->v * maker->m) * (double)(maker->p + 6 * maker->v);
    if (looks > MOST_LOOKS)
        return ds_error_set(
            err, DS_ERR_LIMIT, DS_NOWHERE,
            "hanayo of %lld stages, %lld chunks on each and %lld microbatches: %.3g "
            "steps make its order, at most %.3g are supported",
            (long long)maker->p, (long long)maker->v, (long long)maker->m, looks, MOST_LOOKS);
    wave w;
    wave_init(&w, maker);
    for (int64_t r = 0; r < maker->p; r++) choose_next(&w, r);
    ds_status status = DS_OK;
    for (int64_t left = 2 * w.chunks * maker->m; left > 0 && status == DS_OK; left--) {
        status = ds_stop_check(maker->unit->stop, err);
        int64_t first = -1; /* the rank that starts earliest: no later choice can precede it */
        for (int64_t r = 0; r < maker->p; r++)
            if (w.choice[r].found && (first < 0 || w.choice[r].start < w.choice[first].start))
                first = r;
        run_item(&w, first);
    }
    wave_deinit(&w);
    return status;
}
