/* Timings of a body: when each of its chains starts and ends. The same state of streams and reads has
 * the same timing, which is looked up. */
#include "search/compose/solver.h"

#include <stdlib.h>
#include <string.h>

ds_timing *ds_solver__own_timing(ds_solver *x, const ds_body *body, const int64_t *times) {
    uint32_t n = 2 * body->n_chains;
    uint64_t hash = DS_KEY(body);
    for (uint32_t i = 0; i < n; i++)
        hash = (hash ^ (uint64_t)times[i]) * UINT64_C(0x9e3779b97f4a7c15) ^ (hash >> 29);
    const uint64_t *found = ds_map_find(&x->timings, hash);
    ds_timing *first = found ? (ds_timing *)(uintptr_t)*found : NULL;
    for (ds_timing *t = first; t; t = t->next)
        if (t->body == body && memcmp(t->start, times, n * sizeof *times) == 0) return t;
    ds_arena *arena = &x->t->arena;
    ds_timing *timing = DS_NEW(arena, ds_timing);
    timing->arena = arena;
    timing->body = body;
    timing->next = first;
    timing->start = DS_NEW_N(arena, int64_t, (size_t)n + 1);
    timing->end = timing->start + body->n_chains;
    memcpy(timing->start, times, n * sizeof *times);
    for (uint32_t r = 0; r < body->n_chains; r++)
        if (timing->end[r] > timing->all_end) timing->all_end = timing->end[r];
    ds_map_put(&x->timings, hash, DS_KEY(timing));
    return timing;
}

/* With a key, for the body to keep. */
static ds_timing *new_timing(const ds_body *body) {
    uint32_t n = body->n_chains, n_streams = body->stream_cls.n;
    ds_timing *timing = ds_xcalloc(1, sizeof *timing);
    timing->body = body;
    timing->start = ds_xcalloc(2 * ((size_t)n + n_streams) + body->exts.n + 1, sizeof(int64_t));
    timing->end = timing->start + n;
    timing->free_ps = timing->end + n;
    timing->key = timing->free_ps + n_streams;
    return timing;
}

static void keep_timing(ds_body *body, ds_timing *timing, uint64_t hash) {
    const uint64_t *found = ds_map_find(&body->timings, hash);
    timing->hash = hash;
    timing->next = found ? (ds_timing *)(uintptr_t)*found : NULL;
    ds_map_put(&body->timings, hash, DS_KEY(timing));
}

static void time_chains(const ds_body *body, const int64_t *key, ds_timing *out) {
    const int64_t *exts = key + body->stream_cls.n;
    out->flows_from = INT64_MAX;
    for (uint32_t i = 0; i < body->stream_cls.n; i++) out->free_ps[i] = key[i];
    for (uint32_t r = 0; r < body->n_chains; r++) {
        const ds_chain *chain = &body->chains[r];
        int64_t start = 0;
        for (uint32_t i = chain->need; i < chain[1].need; i++) {
            const ds_need *need = &body->needs[i];
            int64_t at = need->kind == DS_NEED_STREAM ? key[need->at]
                         : need->kind == DS_NEED_EXT  ? exts[need->at]
                                                      : out->end[need->at] - need->less_ps;
            if (at > start) start = at;
        }
        int64_t end = start + chain->ps;
        out->start[r] = start;
        out->end[r] = end;
        if (end > out->all_end) out->all_end = end;
        if (chain->transfer != DS_NONE) {
            if (start < out->flows_from) out->flows_from = start;
            if (end > out->flows_to) out->flows_to = end;
        }
        for (uint32_t i = chain->slot; i < chain->slot + chain->n_slots; i++)
            out->free_ps[body->slots.at[i]] = end;
    }
}

ds_timing *ds_solver__timing_of(ds_solver *x, ds_body *body, const int64_t *key) {
    uint32_t n = body->stream_cls.n + body->exts.n;
    uint64_t hash = n;
    for (uint32_t i = 0; i < n; i++)
        hash = (hash ^ (uint64_t)key[i]) * UINT64_C(0x9e3779b97f4a7c15) ^ (hash >> 29);
    const uint64_t *found = ds_map_find(&body->timings, hash);
    for (ds_timing *t = found ? (ds_timing *)(uintptr_t)*found : NULL; t; t = t->next)
        if (memcmp(t->key, key, n * sizeof *key) == 0) return t;
    ds_timing *timing = new_timing(body);
    memcpy(timing->key, key, n * sizeof *key);
    time_chains(body, key, timing);
    keep_timing(body, timing, hash);
    x->t->n_timed++;
    x->s->timed += body->n_chains;
    return timing;
}
