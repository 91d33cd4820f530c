/* The best cut for the times of chunks.
 *
 * The time of a chunk with other turns follows by proportion. The time of a turn differs from loop
 * to loop (an encoder's and a decoder's), and chunks of one loop give that loop's time. A chunk
 * keeps the ratio of its measured time to the time that its measured turns predict. Work beside the
 * loops stays with the first and the last chunk; work just before a later loop moves with that
 * loop's first turn. */
#include "sim/run/balance_internal.h"

#include "ir/base/units.h"

#include <stdlib.h>
#include <string.h>

/* Items of schedules that one search may time: about half a second of work. */
#define MAX_TIMED_ITEMS 10000000

enum { K = DS_CUT_KINDS };
static const char kinds[] = "FBWR";

/* A chunk on the stage of one of its copies: sums over the microbatches there. */
typedef struct place {
    int64_t inside_ps[K], beside_ps[K];
    int64_t n_runs; /* microbatches */
} place;

typedef struct cutter {
    const ds_cut_times *times;
    uint32_t n_chunks, n_loops, n_places;
    int64_t n_turns;
    uint32_t *chunk_of;                    /* [items] */
    uint8_t *kind_of;                      /* [items] */
    place *places;                         /* [copies × chunks], without entries */
    bool *has_entry;                       /* [chunks]: the measured beside_ps are entries' */
    int64_t (*turn_ps)[K];                 /* [loops]: over all microbatches */
    int64_t (*entry_ps)[K];                /* [loops]: work just before the loop's first turn */
    int64_t (*predicted_ps)[K];            /* [chunks]: inside_ps by turn_ps, measured turns */
    int64_t *item_ps;                      /* [items]: of the cut under test */
    int64_t *loads, *sorted, *best_sorted; /* [stages] */
    int64_t *stage_turns;                  /* [stages]: of the measured cut */
    int64_t *end_turn_ps;                  /* [stages]: of a turn, after all microbatches */
    int64_t least;                         /* turns that the first and the last chunk need */
    int64_t timed_items;
} cutter;

/* ---- proportions ---- */

static int64_t loop_end(const cutter *t, uint32_t loop) {
    int64_t end = 0;
    for (uint32_t l = 0; l <= loop; l++) end += t->times->cut->loop_turns[l];
    return end;
}

/* The number of the loop's turns among the turns from … to − 1. */
static int64_t turns_of(const cutter *t, uint32_t loop, int64_t from, int64_t to) {
    int64_t hi = loop_end(t, loop), lo = hi - t->times->cut->loop_turns[loop];
    if (lo < from) lo = from;
    if (hi > to) hi = to;
    return hi > lo ? hi - lo : 0;
}

static int64_t turns_ps(const cutter *t, int64_t from, int64_t to, uint32_t kind) {
    int64_t sum = 0;
    for (uint32_t l = 0; l < t->n_loops; l++) sum += turns_of(t, l, from, to) * t->turn_ps[l][kind];
    return sum;
}

static int64_t scale(int64_t x, int64_t numerator, int64_t denominator) {
    return (int64_t)((ds_u128)(uint64_t)x * (uint64_t)numerator / (uint64_t)denominator);
}

/* ---- from times of items to times of turns ---- */

static void add_items(cutter *t) {
    const ds_schedule_index *schedule = t->times->schedule;
    for (uint32_t i = 0; i < schedule->n_items; i++) {
        uint32_t stage;
        const ds_schedule_item *item = ds_schedule_item_at(schedule, i, &stage);
        uint32_t chunk = (uint32_t)item->chunk, copy = schedule->copy[item->microbatch];
        place *p = &t->places[copy * t->n_chunks + chunk];
        t->chunk_of[i] = chunk;
        t->kind_of[i] = (uint8_t)(strchr(kinds, item->kind) - kinds);
        p->inside_ps[t->kind_of[i]] += t->times->items[i].inside_ps;
        p->beside_ps[t->kind_of[i]] += t->times->items[i].beside_ps;
        p->n_runs += item->kind == 'F';
    }
}

static int64_t inside_of(const cutter *t, uint32_t chunk, uint32_t kind) {
    int64_t sum = 0;
    for (uint32_t p = chunk; p < t->n_places; p += t->n_chunks) sum += t->places[p].inside_ps[kind];
    return sum;
}

/* The only loop among the turns whose time is unknown; n_loops: no such loop, or several. */
static uint32_t unknown_loop(const cutter *t, const bool *known, int64_t from, int64_t to) {
    uint32_t found = t->n_loops;
    for (uint32_t l = 0; l < t->n_loops; l++) {
        if (known[l] || !turns_of(t, l, from, to)) continue;
        if (found < t->n_loops) return t->n_loops;
        found = l;
    }
    return found;
}

/* One round: times of the loops that share a chunk with known loops only. False: no such loop. */
static bool find_some(cutter *t, bool *known) {
    int64_t(*sum)[K] = ds_xcalloc(t->n_loops, sizeof *sum);
    int64_t *n = ds_xcalloc(t->n_loops, sizeof *n), from = 0, to;
    bool any = false;
    for (uint32_t c = 0; c < t->n_chunks; c++, from = to) {
        to = from + t->times->cut->chunk_turns[c];
        uint32_t loop = unknown_loop(t, known, from, to);
        if (loop == t->n_loops) continue;
        n[loop] += turns_of(t, loop, from, to);
        for (uint32_t k = 0; k < K; k++)
            sum[loop][k] += inside_of(t, c, k) - turns_ps(t, from, to, k);
    }
    for (uint32_t l = 0; l < t->n_loops; l++) {
        for (uint32_t k = 0; n[l] && k < K; k++)
            t->turn_ps[l][k] = sum[l][k] > 0 ? sum[l][k] / n[l] : 0;
        known[l] = known[l] || n[l];
        any = any || n[l];
    }
    free(n);
    free(sum);
    return any;
}

/* Loops that share all their chunks cannot be told apart: each of their turns gets the average. */
static void find_rest(cutter *t, const bool *known) {
    int64_t n = 0, sum[K] = {0};
    for (uint32_t c = 0; c < t->n_chunks; c++) {
        n += t->times->cut->chunk_turns[c];
        for (uint32_t k = 0; k < K; k++) sum[k] += inside_of(t, c, k);
    }
    for (uint32_t l = 0; l < t->n_loops; l++)
        for (uint32_t k = 0; !known[l] && k < K; k++) t->turn_ps[l][k] = sum[k] / n;
}

static void find_turns(cutter *t) {
    bool *known = ds_xcalloc(t->n_loops, sizeof *known);
    while (find_some(t, known)) {
    }
    find_rest(t, known);
    free(known);
}

/* The work beside loops of a chunk in the middle becomes the entry of the loop. */
static void take_entry(cutter *t, uint32_t chunk, uint32_t loop) {
    t->has_entry[chunk] = true;
    for (uint32_t p = chunk; p < t->n_places; p += t->n_chunks)
        for (uint32_t k = 0; k < K; k++) {
            t->entry_ps[loop][k] += t->places[p].beside_ps[k];
            t->places[p].beside_ps[k] = 0;
        }
}

/* Is the first turn of loop > 0 among the turns from … to − 1? */
static bool has_first(const cutter *t, uint32_t loop, int64_t from, int64_t to) {
    int64_t first = loop_end(t, loop - 1);
    return first >= from && first < to && first < loop_end(t, loop);
}

static void find_entries(cutter *t) {
    int64_t from = 0, to;
    for (uint32_t c = 0; c < t->n_chunks; c++, from = to) {
        to = from + t->times->cut->chunk_turns[c];
        for (uint32_t l = 1; l < t->n_loops && c > 0 && c + 1 < t->n_chunks; l++)
            if (has_first(t, l, from, to)) take_entry(t, c, l);
    }
}

static void find_proportions(cutter *t) {
    int64_t from = 0, to;
    for (uint32_t c = 0; c < t->n_chunks; c++, from = to) {
        to = from + t->times->cut->chunk_turns[c];
        for (uint32_t k = 0; k < K; k++) t->predicted_ps[c][k] = turns_ps(t, from, to, k);
    }
}

static void add_turns(const cutter *t, const int64_t *turns, int64_t *out) {
    const ds_schedule_index *schedule = t->times->schedule;
    for (uint32_t i = 0; i < schedule->n_copies * t->n_chunks; i++)
        out[schedule->stage[i]] += turns[i % t->n_chunks];
}

/* A stage that had no turns gets the average of the other stages. */
static void find_end_turns(cutter *t) {
    int64_t ps = 0, n = 0;
    uint32_t n_stages = t->times->schedule->n_ranks;
    add_turns(t, t->times->cut->chunk_turns, t->stage_turns);
    for (uint32_t s = 0; s < n_stages; s++) {
        ps += t->times->ends[s].inside_ps;
        n += t->stage_turns[s];
    }
    for (uint32_t s = 0; s < n_stages; s++)
        t->end_turn_ps[s] =
            t->stage_turns[s] ? t->times->ends[s].inside_ps / t->stage_turns[s] : ps / n;
}

static void cutter_init(cutter *t, const ds_cut_times *times, int64_t least, ds_arena *arena) {
    const ds_schedule_index *schedule = times->schedule;
    *t = (cutter){.times = times,
                  .n_chunks = schedule->n_chunks,
                  .n_loops = times->cut->n_loops,
                  .n_places = schedule->n_chunks * schedule->n_copies,
                  .least = least};
    t->chunk_of = DS_NEW_N(arena, uint32_t, schedule->n_items);
    t->kind_of = DS_NEW_N(arena, uint8_t, schedule->n_items);
    t->places = DS_NEW_N(arena, place, t->n_places);
    t->has_entry = DS_NEW_N(arena, bool, t->n_chunks);
    t->turn_ps = ds_arena_calloc(arena, t->n_loops, sizeof *t->turn_ps);
    t->entry_ps = ds_arena_calloc(arena, t->n_loops, sizeof *t->entry_ps);
    t->predicted_ps = ds_arena_calloc(arena, t->n_chunks, sizeof *t->predicted_ps);
    t->item_ps = DS_NEW_N(arena, int64_t, schedule->n_items);
    t->loads = DS_NEW_N(arena, int64_t, schedule->n_ranks);
    t->sorted = DS_NEW_N(arena, int64_t, schedule->n_ranks);
    t->best_sorted = DS_NEW_N(arena, int64_t, schedule->n_ranks);
    t->stage_turns = DS_NEW_N(arena, int64_t, schedule->n_ranks);
    t->end_turn_ps = DS_NEW_N(arena, int64_t, schedule->n_ranks);
    for (uint32_t c = 0; c < t->n_chunks; c++) t->n_turns += times->cut->chunk_turns[c];
    add_items(t);
    find_turns(t);
    find_entries(t);
    find_proportions(t);
    find_end_turns(t);
}

/* ---- the times of a cut ---- */

/* The time of the chunk inside loops over n_runs microbatches with the turns from … to − 1;
 * `inside_ps` is the measured time. */
static int64_t inside_with(const cutter *t, uint32_t chunk, uint32_t kind, int64_t inside_ps,
                           int64_t n_runs, int64_t from, int64_t to) {
    int64_t ps = turns_ps(t, from, to, kind), predicted_ps = t->predicted_ps[chunk][kind];
    if (predicted_ps) return scale(inside_ps, ps, predicted_ps);
    return scale(ps, n_runs, t->times->schedule->n_microbatches);
}

static int64_t entries_with(const cutter *t, uint32_t kind, int64_t n_runs, int64_t from,
                            int64_t to) {
    int64_t sum = 0;
    for (uint32_t l = 1; l < t->n_loops; l++)
        if (has_first(t, l, from, to)) sum += t->entry_ps[l][kind];
    return scale(sum, n_runs, t->times->schedule->n_microbatches);
}

/* The work of a place in one step with the turns from … to − 1. */
static int64_t work_of(const cutter *t, uint32_t number, int64_t from, int64_t to) {
    const place *p = &t->places[number];
    uint32_t chunk = number % t->n_chunks;
    int64_t sum = 0;
    for (uint32_t k = 0; k < K; k++)
        sum += inside_with(t, chunk, k, p->inside_ps[k], p->n_runs, from, to) + p->beside_ps[k] +
               entries_with(t, k, p->n_runs, from, to);
    return sum;
}

static void find_loads(cutter *t, const int64_t *turns) {
    const ds_schedule_index *schedule = t->times->schedule;
    memset(t->loads, 0, schedule->n_ranks * sizeof *t->loads);
    int64_t from = 0;
    for (uint32_t c = 0; c < t->n_chunks; from += turns[c++])
        for (uint32_t p = c; p < t->n_places; p += t->n_chunks)
            t->loads[schedule->stage[p]] += work_of(t, p, from, from + turns[c]);
}

/* ---- the busiest stage: one chunk a stage ---- */

static int64_t least_of(const cutter *t, uint32_t chunk) {
    return chunk == 0 || chunk + 1 == t->n_chunks ? t->least : 1;
}

/* The turns that the chunks after `chunk` need. */
static int64_t needed_after(const cutter *t, uint32_t chunk) {
    int64_t n = 0;
    for (uint32_t c = chunk + 1; c < t->n_chunks; c++) n += least_of(t, c);
    return n;
}

/* Every chunk takes as many turns as the bound allows, so that the last chunk is left with as few
 * as possible. False if a chunk exceeds the bound even so. */
static bool fill(const cutter *t, int64_t bound, int64_t *turns) {
    int64_t from = 0;
    for (uint32_t c = 0; c < t->n_chunks; c++) {
        int64_t lo = least_of(t, c), hi = t->n_turns - from - needed_after(t, c);
        if (c + 1 == t->n_chunks) lo = hi;
        if (work_of(t, c, from, from + lo) > bound) return false;
        while (lo < hi) { /* the most turns within the bound */
            int64_t middle = lo + (hi - lo + 1) / 2;
            if (work_of(t, c, from, from + middle) <= bound)
                lo = middle;
            else
                hi = middle - 1;
        }
        turns[c] = lo;
        from += lo;
    }
    return true;
}

static void least_bound(cutter *t, int64_t *turns) {
    int64_t lo = 0, hi = 0, from = 0;
    for (uint32_t c = 0; c < t->n_chunks; from += turns[c++]) {
        int64_t ps = work_of(t, c, from, from + turns[c]);
        if (ps > hi) hi = ps; /* a bound that the present cut keeps */
    }
    while (lo < hi) {
        int64_t middle = lo + (hi - lo) / 2;
        if (fill(t, middle, turns))
            hi = middle;
        else
            lo = middle + 1;
    }
    fill(t, lo, turns);
}

/* ---- one turn moved ---- */

static int largest_first(const void *a, const void *b) {
    const int64_t *x = a, *y = b;
    return *x > *y ? -1 : *x < *y;
}

/* The stages' loads, largest first. */
static void sort_loads(cutter *t, const int64_t *turns) {
    uint32_t n = t->times->schedule->n_ranks;
    find_loads(t, turns);
    memcpy(t->sorted, t->loads, n * sizeof *t->sorted);
    qsort(t->sorted, n, sizeof *t->sorted, largest_first);
}

static bool is_less(const int64_t *a, const int64_t *b, uint32_t n) {
    uint32_t i = 0;
    while (i < n && a[i] == b[i]) i++;
    return i < n && a[i] < b[i];
}

/* Has the chunk turns to give, and is a stage of the chunk among the busiest? By the loads that
 * find_loads found last. */
static bool is_busiest(const cutter *t, const int64_t *turns, uint32_t chunk) {
    const ds_schedule_index *schedule = t->times->schedule;
    bool busiest = false;
    for (uint32_t copy = 0; copy < schedule->n_copies; copy++)
        busiest =
            busiest || t->loads[schedule->stage[copy * t->n_chunks + chunk]] == t->best_sorted[0];
    return busiest && turns[chunk] > least_of(t, chunk);
}

/* Moves a turn away from a busiest stage if the move makes the largest load less, or the next
 * largest where the largest stays equal; true if a turn moved. Exact for one loop, where every turn
 * of a stage takes the same time: if a cut with a lower maximum exists, some stage has more turns
 * in that cut than here, and so has room for a turn of the busiest stage. */
static bool level(cutter *t, int64_t *turns) {
    uint32_t n = t->times->schedule->n_ranks, best_from = 0, best_to = 0;
    bool *busiest = ds_xcalloc(t->n_chunks, sizeof *busiest);
    sort_loads(t, turns);
    memcpy(t->best_sorted, t->sorted, n * sizeof *t->sorted);
    for (uint32_t c = 0; c < t->n_chunks; c++) busiest[c] = is_busiest(t, turns, c);
    for (uint32_t from = 0; from < t->n_chunks; from++)
        for (uint32_t to = 0; busiest[from] && to < t->n_chunks; to++) {
            if (from == to) continue;
            turns[from]--, turns[to]++;
            sort_loads(t, turns);
            turns[from]++, turns[to]--;
            if (!is_less(t->sorted, t->best_sorted, n)) continue;
            memcpy(t->best_sorted, t->sorted, n * sizeof *t->sorted);
            best_from = from;
            best_to = to;
        }
    free(busiest);
    turns[best_from]--;
    turns[best_to]++;
    return best_from != best_to;
}

/* ---- the timeline ---- */

/* The end of the stage that ends last, with the stage's work after its items. */
static int64_t last_end(const cutter *t, const ds_schedule_timing *timing, const int64_t *turns,
                        ds_arena *arena) {
    int64_t last = 0, *n = DS_NEW_N(arena, int64_t, t->times->schedule->n_ranks);
    add_turns(t, turns, n);
    for (uint32_t s = 0; s < t->times->schedule->n_ranks; s++) {
        int64_t end = timing->ranks[s].end + t->times->ends[s].beside_ps + n[s] * t->end_turn_ps[s];
        if (end > last) last = end;
    }
    return last;
}

static void find_item_times(cutter *t, const int64_t *turns) {
    const ds_schedule_index *schedule = t->times->schedule;
    int64_t *first = ds_xcalloc((size_t)t->n_chunks + 1, sizeof *first);
    for (uint32_t c = 0; c < t->n_chunks; c++) first[c + 1] = first[c] + turns[c];
    for (uint32_t i = 0; i < schedule->n_items; i++) {
        uint32_t c = t->chunk_of[i], k = t->kind_of[i];
        const ds_cut_time *time = &t->times->items[i];
        t->item_ps[i] = inside_with(t, c, k, time->inside_ps, 1, first[c], first[c + 1]) +
                        (t->has_entry[c] ? 0 : time->beside_ps) +
                        entries_with(t, k, 1, first[c], first[c + 1]);
    }
    free(first);
}

static ds_status last_end_of(cutter *t, const int64_t *turns, int64_t *out, ds_error *err) {
    ds_arena arena;
    ds_schedule_timing timing;
    find_item_times(t, turns);
    ds_arena_init(&arena);
    ds_status status = ds_schedule_time_items(t->times->schedule, t->item_ps, t->times->send_ps,
                                              &arena, &timing, err);
    *out = status == DS_OK ? last_end(t, &timing, turns, &arena) : 0;
    ds_arena_deinit(&arena);
    t->timed_items += t->times->schedule->n_items;
    return status;
}

/* Moves the turn that makes the schedule's end, *ps, earliest. *moved is false if no move helps, or
 * if MAX_TIMED_ITEMS are timed. */
static ds_status hasten(cutter *t, int64_t *turns, int64_t *ps, bool *moved, ds_error *err) {
    uint32_t best_from = 0, best_to = 0;
    for (uint32_t from = 0; from < t->n_chunks; from++)
        for (uint32_t to = 0; to < t->n_chunks; to++) {
            int64_t other;
            if (from == to || turns[from] <= least_of(t, from)) continue;
            if (t->timed_items > MAX_TIMED_ITEMS) break;
            turns[from]--, turns[to]++;
            ds_status status = last_end_of(t, turns, &other, err);
            turns[from]++, turns[to]--;
            DS_TRY(status);
            if (other >= *ps) continue;
            *ps = other;
            best_from = from;
            best_to = to;
        }
    turns[best_from]--;
    turns[best_to]++;
    *moved = best_from != best_to;
    return DS_OK;
}

ds_status ds_cut__choose(const ds_cut_times *times, int64_t least, ds_arena *arena, int64_t *turns,
                         ds_error *err) {
    const ds_schedule_index *schedule = times->schedule;
    cutter t;
    int64_t ps;
    bool moved = true;
    cutter_init(&t, times, least, arena);
    memcpy(turns, times->cut->chunk_turns, t.n_chunks * sizeof *turns);
    if (t.n_chunks == schedule->n_ranks && schedule->n_copies == 1) least_bound(&t, turns);
    while (level(&t, turns)) {
    }
    DS_TRY(last_end_of(&t, turns, &ps, err));
    while (moved) DS_TRY(hasten(&t, turns, &ps, &moved, err));
    return DS_OK;
}
