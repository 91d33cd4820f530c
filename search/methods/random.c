/* Different random candidates. The hash of every draw is kept: 16 bytes a candidate. */
#include "search/methods/method.h"

#include "ir/base/map.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_REPEATS = 1000 };

typedef struct sample {
    ds_method method;
    ds_space *space;
    uint64_t seed, draws, n, wanted;
    ds_map seen;
} sample;

static uint64_t hash_of(const sample *s, const ds_candidate *c) {
    uint64_t hash = 0;
    for (uint32_t i = 0; i < ds_space_n_dims(s->space); i++) {
        const ds_num *v = &c->at[i].value;
        uint64_t word = v->kind == DS_NUM_INT    ? (uint64_t)v->i
                        : v->kind == DS_NUM_REAL ? ds_hash_bytes(&v->r, sizeof v->r)
                                                 : ds_hash_bytes(v->s, strlen(v->s));
        hash = ds_hash_mix(ds_hash_mix(hash, word), c->at[i].item);
    }
    return hash;
}

static ds_status next(ds_method *method, ds_candidate *candidate, bool *found, ds_error *err) {
    sample *s = (sample *)method;
    for (int repeat = 0; repeat < MAX_REPEATS; repeat++) {
        DS_TRY(ds_space_draw(s->space, s->seed, s->draws++, candidate, found, err));
        if (!*found) return DS_OK;
        uint64_t hash = hash_of(s, candidate);
        if (ds_map_find(&s->seen, hash)) continue;
        ds_map_put(&s->seen, hash, 1);
        candidate->number = s->n++;
        return DS_OK;
    }
    *found = false;
    return DS_OK;
}

static double progress(const ds_method *method) {
    const sample *s = (const sample *)method;
    return s->wanted ? (double)s->n / (double)s->wanted : 0;
}

static void free_sample(ds_method *method) {
    ds_map_deinit(&((sample *)method)->seen);
    free(method);
}

ds_method *ds_random_new(ds_space *space, uint64_t seed, uint64_t n) {
    sample *s = ds_xcalloc(1, sizeof *s);
    s->method = (ds_method){.next = next, .progress = progress, .free = free_sample};
    s->space = space;
    s->seed = seed;
    s->wanted = n;
    ds_map_init(&s->seen);
    return &s->method;
}
