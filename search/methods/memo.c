/* Candidates and scores of the methods that learn: no candidate is asked for twice. */
#include "search/methods/internal.h"

#include <stdlib.h>
#include <string.h>

void ds_memos_init(ds_memos *m, const ds_space *space) {
    uint32_t n;
    *m = (ds_memos){.best = INFINITY, .best_at = UINT32_MAX};
    ds_arena_init(&m->arena);
    ds_map_init(&m->index);
    m->objective = ds_space_objectives(space, &n)[0];
}

void ds_memos_deinit(ds_memos *m) {
    ds_map_deinit(&m->index);
    ds_arena_deinit(&m->arena);
    free(m->all.at);
}

uint32_t ds_memos_ask(ds_memos *m, const ds_space *space, const ds_candidate *candidate) {
    uint64_t hash = ds_candidate_hash(space, candidate);
    const uint64_t *known = ds_map_find(&m->index, hash);
    if (known) return (uint32_t)*known;
    ds_candidate copy = ds_candidate_new(space, &m->arena);
    memcpy(copy.at, candidate->at, ds_space_n_dims(space) * sizeof *copy.at);
    ds_map_put(&m->index, hash, m->all.n);
    DS_HPUSH(&m->all, ((ds_memo){copy.at, INFINITY}));
    return m->all.n - 1;
}

bool ds_memos_serve(ds_memos *m, const ds_space *space, ds_candidate *candidate) {
    if (m->served == m->all.n) return false;
    candidate->number = m->served;
    memcpy(candidate->at, m->all.at[m->served++].at,
           ds_space_n_dims(space) * sizeof *candidate->at);
    return true;
}

void ds_memos_tell(ds_memos *m, const ds_outcome *outcome, bool accepted) {
    uint32_t at = m->told++;
    if (!accepted) return;
    double value = ds_metric_measure(&outcome->metrics, m->objective.what);
    m->all.at[at].score = m->objective.maximize ? -value : value;
    if (m->all.at[at].score >= m->best) return;
    m->best = m->all.at[at].score;
    m->best_at = at;
}
