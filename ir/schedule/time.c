/* The timeline of a schedule: earliest times of all items, by one pass over the rank lists.
 *
 * A rank runs its list until an item waits for another rank's item; when the other item has run,
 * the rank continues. Ranks that never finish wait for each other in a cycle. */
#include "ir/schedule/schedule.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { F, B, W, R };

typedef struct timer {
    const ds_schedule_index *index;
    const ds_schedule_costs *costs;
    const int64_t *durations; /* of items; NULL: from `costs` */
    int64_t *start, *end;     /* of items; end −1: not run yet */
    ds_schedule_rank_time *ranks;
    uint32_t *next;  /* [rank]: its next item */
    int64_t *now;    /* [rank] */
    uint32_t *todo;  /* ranks that may continue, a stack; */
    uint32_t n_todo; /* the stack has a rank at most once */
    bool *is_todo;
} timer;

static const ds_schedule_item *item_on(const timer *t, uint32_t rank, uint32_t number) {
    const ds_schedule_index *x = t->index;
    return &x->schedule->ranks[x->list[rank]].items[number - x->first[rank]];
}

static uint32_t item_number(const timer *t, int kind, int64_t chunk, int64_t microbatch) {
    return t->index->item[kind][microbatch * t->index->n_chunks + chunk];
}

static int64_t duration_of(const timer *t, uint32_t rank, uint32_t number) {
    if (t->durations) return t->durations[number];
    const ds_schedule_item *item = item_on(t, rank, number);
    const ds_schedule_durations *d = &t->costs->chunks[t->costs->n_chunks == 1 ? 0 : item->chunk];
    bool split = item_number(t, W, item->chunk, item->microbatch) != DS_NO_ITEM;
    switch (item->kind) {
    case 'F':
        return d->f;
    case 'B':
        return split ? d->b : d->b + d->w;
    case 'W':
        return d->w;
    default:
        return d->r;
    }
}

/* The items for which an item waits: at most two. */
static uint32_t waits_for(const timer *t, const ds_schedule_item *item, uint32_t on[2]) {
    int64_t c = item->chunk, m = item->microbatch;
    uint32_t n = 0;
    if (item->kind == 'F') {
        if (c > 0) on[n++] = item_number(t, F, c - 1, m);
        return n;
    }
    if (item->kind == 'W') return on[n++] = item_number(t, B, c, m), n;
    if (item->kind == 'R') return on[n++] = item_number(t, F, c, m), n;
    uint32_t again = item_number(t, R, c, m);
    on[n++] = again != DS_NO_ITEM ? again : item_number(t, F, c, m);
    if (c + 1 < t->index->n_chunks) on[n++] = item_number(t, B, c + 1, m);
    return n;
}

/* The earliest start that the awaited items allow; −1: one of these items has not run. */
static int64_t ready_at(const timer *t, uint32_t rank, const ds_schedule_item *item) {
    uint32_t on[2], n = waits_for(t, item, on);
    int64_t ready = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (t->end[on[i]] < 0) return -1;
        bool near = on[i] >= t->index->first[rank] && on[i] < t->index->first[rank + 1];
        int64_t at = t->end[on[i]] + (near ? 0 : t->costs->comm);
        if (at > ready) ready = at;
    }
    return ready;
}

static void look_at(timer *t, uint32_t rank) {
    if (t->is_todo[rank]) return;
    t->is_todo[rank] = true;
    t->todo[t->n_todo++] = rank;
}

/* Lets the rank that waits for this item continue. */
static void wake(timer *t, const ds_schedule_item *item) {
    const ds_schedule_index *x = t->index;
    int64_t c = item->chunk + (item->kind == 'F' ? 1 : item->kind == 'B' ? -1 : 0);
    if (c < 0 || c >= x->n_chunks) return;
    look_at(t, x->stage[(size_t)x->copy[item->microbatch] * x->n_chunks + (size_t)c]);
}

/* The number of items in the step at `number`: two for a pair with its own duration, else one. */
static uint32_t step_size(const timer *t, uint32_t rank, uint32_t number) {
    if (t->costs->pair == 0 || !item_on(t, rank, number)->with_next) return 1;
    if (number > t->index->first[rank] && item_on(t, rank, number - 1)->with_next) return 1;
    if (number + 1 >= t->index->first[rank + 1]) return 1;
    const ds_schedule_item *a = item_on(t, rank, number), *b = a + 1;
    bool is_pair = (a->kind == 'F' && b->kind == 'B') || (a->kind == 'B' && b->kind == 'F');
    return is_pair && !b->with_next ? 2 : 1;
}

static bool run_step(timer *t, uint32_t rank) {
    uint32_t number = t->next[rank], n = step_size(t, rank, number);
    int64_t start = t->now[rank];
    for (uint32_t i = 0; i < n; i++) {
        int64_t ready = ready_at(t, rank, item_on(t, rank, number + i));
        if (ready < 0) return false;
        if (ready > start) start = ready;
    }
    int64_t duration = n == 2 ? t->costs->pair : duration_of(t, rank, number);
    for (uint32_t i = 0; i < n; i++) {
        t->start[number + i] = start;
        t->end[number + i] = start + duration;
        wake(t, item_on(t, rank, number + i));
    }
    t->ranks[rank].busy += duration;
    t->now[rank] = start + duration;
    t->next[rank] += n;
    return true;
}

/* ---- chunks in flight ---- */

/* A rank runs one item after the other, so the list's order gives the peak: +1 at F, −1 after W, or
 * after B without W. In a pair F counts first. */
static uint32_t peak_of(const timer *t, uint32_t rank) {
    int64_t now = 0, peak = 0;
    uint32_t end = t->index->first[rank + 1];
    for (uint32_t k = t->index->first[rank]; k < end; k++) {
        const ds_schedule_item *item = item_on(t, rank, k);
        bool late_f = item->with_next && k + 1 < end && item_on(t, rank, k + 1)->kind == 'F';
        if (item->kind == 'F') now++;
        if (now + late_f > peak) peak = now + late_f;
        bool ends =
            item->kind == 'W' ||
            (item->kind == 'B' && item_number(t, W, item->chunk, item->microbatch) == DS_NO_ITEM);
        if (ends) now--;
    }
    return (uint32_t)peak;
}

/* ---- failures ---- */

/* Finds the item at which `rank` is blocked; returns the number of an awaited item that has not
 * run. */
static uint32_t blocked_on(const timer *t, uint32_t rank, const ds_schedule_item **item) {
    uint32_t number = t->next[rank], n = step_size(t, rank, number);
    for (uint32_t i = 0; i < n; i++) {
        *item = item_on(t, rank, number + i);
        uint32_t on[2], n_on = waits_for(t, *item, on);
        for (uint32_t j = 0; j < n_on; j++)
            if (t->end[on[j]] < 0) return on[j];
    }
    return DS_NO_ITEM;
}

static ds_status deadlock(const timer *t, ds_error *err) {
    const ds_schedule_index *x = t->index;
    bool *seen = ds_xcalloc(x->n_ranks, sizeof *seen);
    uint32_t rank = 0;
    while (t->next[rank] == x->first[rank + 1]) rank++;
    const ds_schedule_item *item;
    while (!seen[rank]) { /* every unfinished rank waits for another: the walk ends in the cycle */
        seen[rank] = true;
        ds_schedule_item_at(x, blocked_on(t, rank, &item), &rank);
    }
    free(seen);
    ds_buf text = {0};
    uint32_t first = rank, n = 0;
    do {
        uint32_t on = blocked_on(t, rank, &item), other;
        const ds_schedule_item *wanted = ds_schedule_item_at(x, on, &other);
        if (n++ < 12)
            ds_buf_printf(&text,
                          "%s%c%" PRId64 ".%" PRId64 " on rank %u waits for %c%" PRId64 ".%" PRId64
                          " on rank %u%s",
                          n > 1 ? "; " : "", item->kind, item->chunk, item->microbatch, rank,
                          wanted->kind, wanted->chunk, wanted->microbatch, other,
                          on == t->next[other] ? "" : ", which is behind");
        rank = other;
    } while (rank != first);
    ds_error_set(err, DS_ERR_DEADLOCK, x->schedule->loc, "@%s cannot be run in any order: %s%s",
                 x->schedule->name, text.text, n > 12 ? "; …" : "");
    ds_buf_deinit(&text);
    return DS_ERR_DEADLOCK;
}

static ds_status check_costs(const ds_schedule_index *index, const ds_schedule_costs *costs,
                             ds_error *err) {
    int64_t most = INT64_MAX / 4 / ((int64_t)index->n_items + 1), low = 0, high = 0;
    if (costs->n_chunks != 1 && costs->n_chunks != index->n_chunks)
        return ds_error_set(err, DS_ERR_VALUE, index->schedule->loc,
                            "@%s has %u chunks, but durations are given for %u",
                            index->schedule->name, index->n_chunks, costs->n_chunks);
    for (uint32_t c = 0; c <= costs->n_chunks; c++) {
        const ds_schedule_durations *d = &costs->chunks[c < costs->n_chunks ? c : 0];
        int64_t all[] = {d->f, d->b, d->w, d->r, costs->pair, costs->comm};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
            if (all[i] < low) low = all[i];
            if (all[i] > high) high = all[i];
        }
    }
    if (low < 0)
        return ds_error_set(err, DS_ERR_VALUE, index->schedule->loc,
                            "durations are not negative: %" PRId64, low);
    if (high <= most) return DS_OK;
    return ds_error_set(err, DS_ERR_OVERFLOW, index->schedule->loc,
                        "%u items of up to %" PRId64 " take longer than a 64-bit time can say",
                        index->n_items, high);
}

static ds_status time_items(const ds_schedule_index *index, const ds_schedule_costs *costs,
                            const int64_t *durations, ds_arena *arena, ds_schedule_timing *out,
                            ds_error *err) {
    uint32_t n = index->n_ranks;
    timer t = {.index = index, .costs = costs, .durations = durations};
    t.start = DS_NEW_N(arena, int64_t, index->n_items);
    t.end = DS_NEW_N(arena, int64_t, index->n_items);
    t.ranks = DS_NEW_N(arena, ds_schedule_rank_time, n);
    t.next = DS_NEW_N(arena, uint32_t, n);
    t.now = DS_NEW_N(arena, int64_t, n);
    t.todo = DS_NEW_N(arena, uint32_t, n);
    t.is_todo = DS_NEW_N(arena, bool, n);
    memset(t.end, 0xff, index->n_items * sizeof *t.end); /* −1 */
    for (uint32_t r = n; r-- > 0;) {
        t.next[r] = index->first[r];
        look_at(&t, r);
    }
    while (t.n_todo > 0) {
        uint32_t rank = t.todo[--t.n_todo];
        t.is_todo[rank] = false;
        while (t.next[rank] < index->first[rank + 1] && run_step(&t, rank)) {
        }
    }
    for (uint32_t r = 0; r < n; r++)
        if (t.next[r] < index->first[r + 1]) return deadlock(&t, err);
    out->start = t.start;
    out->end = t.end;
    out->ranks = t.ranks;
    for (uint32_t r = 0; r < n; r++) {
        ds_schedule_rank_time *rank = &t.ranks[r];
        if (index->first[r] == index->first[r + 1]) continue;
        rank->start = t.start[index->first[r]];
        rank->end = t.now[r];
        rank->peak = peak_of(&t, r);
        int64_t bubble = rank->end - rank->start - rank->busy;
        if (bubble > out->bubble) out->bubble = bubble;
        if (rank->end > out->makespan) out->makespan = rank->end;
        if (rank->peak > out->peak) out->peak = rank->peak;
    }
    return DS_OK;
}

ds_status ds_schedule_time(const ds_schedule_index *index, const ds_schedule_costs *costs,
                           ds_arena *arena, ds_schedule_timing *out, ds_error *err) {
    *out = (ds_schedule_timing){0};
    DS_TRY(check_costs(index, costs, err));
    return time_items(index, costs, NULL, arena, out, err);
}

ds_status ds_schedule_time_items(const ds_schedule_index *index, const int64_t *durations,
                                 int64_t comm, ds_arena *arena, ds_schedule_timing *out,
                                 ds_error *err) {
    ds_schedule_costs costs = {.comm = comm};
    *out = (ds_schedule_timing){0};
    return time_items(index, &costs, durations, arena, out, err);
}
