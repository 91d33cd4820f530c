/* Candidates and scores by the candidates' hash; shared by the methods that learn. */
#ifndef DS_SEARCH_METHODS_INTERNAL_H
#define DS_SEARCH_METHODS_INTERNAL_H

#include "ir/base/map.h"
#include "search/methods/method.h"

#include <math.h>

/* One candidate that is or will be evaluated. */
typedef struct ds_memo {
    ds_choice *at;
    double score; /* less is better; INFINITY: the candidate does not count */
} ds_memo;

/* Candidates in the order in which a method asks for them. Candidates from `served` on have not
 * been handed out, candidates from `told` on have no score yet. */
typedef struct ds_memos {
    ds_arena arena;
    ds_map index; /* hash → place */
    DS_VEC(ds_memo) all;
    uint32_t served, told;
    ds_objective objective;
    double best;
    uint32_t best_at; /* place of the best candidate; UINT32_MAX: no candidate counts */
} ds_memos;

void ds_memos_init(ds_memos *memos, const ds_space *space);
void ds_memos_deinit(ds_memos *memos);
/* The place of a candidate; asks for a new candidate. */
uint32_t ds_memos_ask(ds_memos *memos, const ds_space *space, const ds_candidate *candidate);
static inline bool ds_memos_are_told(const ds_memos *memos) {
    return memos->told == memos->all.n;
}
/* ds_method.next and ds_method.tell of a method that asks with memos. */
bool ds_memos_serve(ds_memos *memos, const ds_space *space, ds_candidate *candidate);
void ds_memos_tell(ds_memos *memos, const ds_outcome *outcome, bool accepted);

#endif
