/* The check of a schedule: every item on its stage, exactly once; and the index of a checked
 * schedule.
 *
 * Numbers in a text may be huge, so memory is bounded by the lists: m microbatches of c chunks need
 * at least m·c forward items. */
#include "ir/base/map.h"
#include "ir/schedule/schedule.h"

#include <inttypes.h>
#include <string.h>

static const char kinds[] = "FBWR";
enum { F, B, W, R, N_KINDS };

/* The check's writable view of the index, whose arrays are const for other readers. */
typedef struct checker {
    const ds_schedule *schedule;
    ds_arena *arena;
    ds_schedule_index *index;
    uint32_t *list, *first, *stage, *copy, *item[N_KINDS];
    ds_error *err;
} checker;

static ds_status fail(const checker *ck, ds_loc loc, const char *format, ...) DS_PRINTF(3, 4);
static ds_status fail(const checker *ck, ds_loc loc, const char *format, ...) {
    va_list ap;
    va_start(ap, format);
    ds_status status =
        ds_error_vset(ck->err, DS_ERR_VALUE, loc.file ? loc : ck->schedule->loc, format, ap);
    va_end(ap);
    return status;
}

static uint32_t slot(const checker *ck, int64_t chunk, int64_t microbatch) {
    return (uint32_t)(microbatch * ck->index->n_chunks + chunk);
}

static const ds_schedule_rank *list_of(const checker *ck, uint32_t rank) {
    return &ck->schedule->ranks[ck->list[rank]];
}

/* ---- ranks and their items ---- */

static ds_status number_ranks(checker *ck) {
    const ds_schedule *s = ck->schedule;
    uint32_t n = s->n_ranks;
    if (n == 0) return fail(ck, s->loc, "@%s lists no rank", s->name);
    ck->list = DS_NEW_N(ck->arena, uint32_t, n);
    ck->first = DS_NEW_N(ck->arena, uint32_t, n + 1);
    for (uint32_t r = 0; r < n; r++) ck->list[r] = DS_NO_ITEM;
    for (uint32_t i = 0; i < n; i++) {
        int64_t rank = s->ranks[i].rank;
        if (rank < 0 || rank >= n)
            return fail(ck, s->ranks[i].loc,
                        "@%s lists rank %" PRId64 ", but has %u ranks, 0 to %u", s->name, rank, n,
                        n - 1);
        if (ck->list[rank] != DS_NO_ITEM)
            return fail(ck, s->ranks[i].loc, "rank %" PRId64 " is listed twice in @%s", rank,
                        s->name);
        ck->list[rank] = i;
    }
    uint64_t total = 0;
    for (uint32_t r = 0; r < n; r++) {
        ck->first[r] = (uint32_t)total;
        total += list_of(ck, r)->n_items;
        if (total >= DS_NO_ITEM) return fail(ck, s->loc, "@%s has too many items", s->name);
    }
    ck->first[n] = ck->index->n_items = (uint32_t)total;
    ck->index->n_ranks = n;
    return DS_OK;
}

static ds_status count_microbatches(checker *ck) {
    const ds_schedule *s = ck->schedule;
    int64_t n_items = ck->index->n_items, last = -1;
    if (s->chunks < 1 || s->chunks > n_items)
        return fail(ck, s->loc,
                    "@%s has %" PRId64 " chunks and %" PRId64
                    " items: every chunk has one at least",
                    s->name, s->chunks, n_items);
    for (uint32_t i = 0; i < s->n_ranks; i++)
        for (uint32_t k = 0; k < s->ranks[i].n_items; k++) {
            const ds_schedule_item *item = &s->ranks[i].items[k];
            if (item->chunk < 0 || item->chunk >= s->chunks)
                return fail(ck, s->ranks[i].loc,
                            "rank %" PRId64 " lists %c%" PRId64 ".%" PRId64
                            ", but @%s has chunks 0 to %" PRId64,
                            s->ranks[i].rank, item->kind, item->chunk, item->microbatch, s->name,
                            s->chunks - 1);
            if (item->microbatch > last) last = item->microbatch;
        }
    if (last >= n_items / s->chunks)
        return fail(ck, s->loc,
                    "@%s has %" PRId64 " items, too few for microbatches 0 to %" PRId64
                    " of %" PRId64 " chunks, an F each",
                    s->name, n_items, last, s->chunks);
    ck->index->n_chunks = (uint32_t)s->chunks;
    ck->index->n_microbatches = (uint32_t)(last + 1);
    return DS_OK;
}

static ds_status number_items(checker *ck) {
    uint32_t n = ck->index->n_microbatches * ck->index->n_chunks;
    for (int kind = 0; kind < N_KINDS; kind++) {
        ck->item[kind] = DS_NEW_N(ck->arena, uint32_t, n);
        memset(ck->item[kind], 0xff, n * sizeof *ck->item[kind]); /* DS_NO_ITEM */
    }
    for (uint32_t r = 0; r < ck->index->n_ranks; r++)
        for (uint32_t k = 0; k < list_of(ck, r)->n_items; k++) {
            const ds_schedule_item *item = &list_of(ck, r)->items[k];
            const char *kind = strchr(kinds, item->kind);
            uint32_t *at = &ck->item[kind - kinds][slot(ck, item->chunk, item->microbatch)];
            if (*at != DS_NO_ITEM)
                return fail(ck, list_of(ck, r)->loc,
                            "%c%" PRId64 ".%" PRId64 " is listed twice in @%s", item->kind,
                            item->chunk, item->microbatch, ck->schedule->name);
            *at = ck->first[r] + k;
            if (item->kind != 'F') ck->index->trains = true;
        }
    return DS_OK;
}

static ds_status find_missing(const checker *ck) {
    for (uint32_t m = 0; m < ck->index->n_microbatches; m++)
        for (uint32_t c = 0; c < ck->index->n_chunks; c++)
            for (int kind = F; kind <= (ck->index->trains ? B : F); kind++)
                if (ck->item[kind][slot(ck, c, m)] == DS_NO_ITEM)
                    return fail(ck, ck->schedule->loc, "%c%u.%u is missing in @%s", kinds[kind], c,
                                m, ck->schedule->name);
    return DS_OK;
}

/* ---- placement ---- */

static uint32_t rank_of_item(const checker *ck, uint32_t number) {
    uint32_t lo = 0, hi = ck->index->n_ranks; /* first[lo] <= number < first[hi] */
    while (hi - lo > 1) {
        uint32_t middle = lo + (hi - lo) / 2;
        if (ck->first[middle] <= number)
            lo = middle;
        else
            hi = middle;
    }
    return lo;
}

/* Reads the places as written: the k-th place of a chunk is copy k. Without places, takes the
 * stages of microbatch 0's items. */
static ds_status read_places(checker *ck) {
    const ds_schedule *s = ck->schedule;
    uint32_t n = ck->index->n_chunks;
    ck->index->n_copies = s->n_place / n;
    if (!s->n_place) {
        ck->index->n_copies = 1;
        ck->stage = DS_NEW_N(ck->arena, uint32_t, n);
        for (uint32_t c = 0; c < n; c++)
            ck->stage[c] = rank_of_item(ck, ck->item[F][slot(ck, c, 0)]);
        return DS_OK;
    }
    if (s->n_place % n != 0)
        return fail(ck, s->loc,
                    "@%s has %u places for %u chunks: every copy of the weights places "
                    "each chunk once",
                    s->name, s->n_place, n);
    ck->stage = DS_NEW_N(ck->arena, uint32_t, s->n_place);
    uint32_t *seen = DS_NEW_N(ck->arena, uint32_t, n);
    for (uint32_t i = 0; i < s->n_place; i++) {
        int64_t chunk = s->place_chunk[i], stage = s->place_stage[i];
        if (chunk < 0 || chunk >= n || seen[chunk] == ck->index->n_copies)
            return fail(ck, s->loc,
                        "@%s places chunk %" PRId64 " once too often, or has no such "
                        "chunk",
                        s->name, chunk);
        if (stage < 0 || stage >= ck->index->n_ranks)
            return fail(ck, s->loc,
                        "@%s places chunk %" PRId64 " on stage %" PRId64 ", but has ranks 0 to %u",
                        s->name, chunk, stage, ck->index->n_ranks - 1);
        ck->stage[seen[chunk]++ * n + chunk] = (uint32_t)stage;
    }
    return DS_OK;
}

/* Is every item of the microbatch on the copy's stages? If not, *wrong is an item on another
 * stage. */
static bool runs_on(const checker *ck, uint32_t microbatch, uint32_t copy, uint32_t *wrong) {
    const uint32_t *stage = &ck->stage[(size_t)copy * ck->index->n_chunks];
    for (uint32_t c = 0; c < ck->index->n_chunks; c++)
        for (int kind = 0; kind < N_KINDS; kind++) {
            uint32_t number = ck->item[kind][slot(ck, c, microbatch)];
            if (number == DS_NO_ITEM || rank_of_item(ck, number) == stage[c]) continue;
            *wrong = number;
            return false;
        }
    return true;
}

static ds_status find_copies(checker *ck) {
    ck->copy = DS_NEW_N(ck->arena, uint32_t, ck->index->n_microbatches);
    for (uint32_t m = 0; m < ck->index->n_microbatches; m++) {
        uint32_t wrong = 0, copy = 0;
        while (copy < ck->index->n_copies && !runs_on(ck, m, copy, &wrong)) copy++;
        ck->copy[m] = copy;
        if (copy < ck->index->n_copies) continue;
        uint32_t rank = rank_of_item(ck, wrong);
        const ds_schedule_item *item = &list_of(ck, rank)->items[wrong - ck->first[rank]];
        if (ck->index->n_copies > 1)
            return fail(ck, list_of(ck, rank)->loc,
                        "rank %u lists %c%" PRId64 ".%u, but the items "
                        "of microbatch %u stand on the stages of none of the %u copies that @%s "
                        "places",
                        rank, item->kind, item->chunk, m, m, ck->index->n_copies,
                        ck->schedule->name);
        return fail(
            ck, list_of(ck, rank)->loc,
            "rank %u lists %c%" PRId64 ".%u, but chunk %" PRId64 " of @%s stands on stage %u", rank,
            item->kind, item->chunk, m, item->chunk, ck->schedule->name, ck->stage[item->chunk]);
    }
    return DS_OK;
}

/* ---- together ---- */

/* Does one item wait for the other? Items of one microbatch do, if they have one chunk, or pass an
 * activation or its gradient on. */
static bool depends(const ds_schedule_item *a, const ds_schedule_item *b) {
    if (a->microbatch != b->microbatch) return false;
    if (a->chunk == b->chunk) return true;
    int64_t apart = a->chunk - b->chunk;
    bool passes_on = a->kind == b->kind && (a->kind == 'F' || a->kind == 'B');
    return passes_on && (apart == 1 || apart == -1);
}

static ds_status check_together(const checker *ck) {
    for (uint32_t r = 0; r < ck->index->n_ranks; r++) {
        const ds_schedule_rank *list = list_of(ck, r);
        for (uint32_t k = 0; k < list->n_items; k++)
            for (uint32_t j = k; j + 1 < list->n_items && list->items[j].with_next; j++) {
                const ds_schedule_item *a = &list->items[k], *b = &list->items[j + 1];
                if (j + 2 - k > 8)
                    return fail(ck, list->loc, "rank %u issues more than 8 items together", r);
                if (!depends(a, b)) continue;
                return fail(ck, list->loc,
                            "rank %u issues %c%" PRId64 ".%" PRId64 " and %c%" PRId64 ".%" PRId64
                            " together, but one waits for the other",
                            r, a->kind, a->chunk, a->microbatch, b->kind, b->chunk, b->microbatch);
            }
    }
    return DS_OK;
}

static ds_status run_checks(checker *ck) {
    DS_TRY(number_ranks(ck));
    DS_TRY(count_microbatches(ck));
    DS_TRY(number_items(ck));
    DS_TRY(find_missing(ck));
    DS_TRY(read_places(ck));
    DS_TRY(find_copies(ck));
    return check_together(ck);
}

ds_status ds_schedule_check(const ds_schedule *schedule, ds_arena *arena, ds_schedule_index *out,
                            ds_error *err) {
    *out = (ds_schedule_index){.schedule = schedule};
    checker ck = {.schedule = schedule, .arena = arena, .index = out, .err = err};
    DS_TRY(run_checks(&ck));
    out->list = ck.list;
    out->first = ck.first;
    out->stage = ck.stage;
    out->copy = ck.copy;
    for (int kind = 0; kind < N_KINDS; kind++) out->item[kind] = ck.item[kind];
    return DS_OK;
}

const ds_schedule_item *ds_schedule_item_at(const ds_schedule_index *index, uint32_t number,
                                            uint32_t *rank) {
    checker ck = {.index = (ds_schedule_index *)index, .first = (uint32_t *)index->first};
    uint32_t r = rank_of_item(&ck, number);
    if (rank) *rank = r;
    return &index->schedule->ranks[index->list[r]].items[number - index->first[r]];
}
