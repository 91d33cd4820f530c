/* What is known of candidates by their hash; shared by the methods that learn. */
#ifndef DS_SEARCH_METHODS_INTERNAL_H
#define DS_SEARCH_METHODS_INTERNAL_H

#include "ir/base/map.h"
#include "search/methods/method.h"

#include <math.h>

/* One candidate that is or will be evaluated. */
typedef struct ds_memo {
    ds_choice *at;
    double score; /* less is better; INFINITY: it does not count */
} ds_memo;

/* Candidates in the order in which they are asked for. Those from `served` on have not been handed
 * out, those from `told` on have no score yet. */
typedef struct ds_memos {
    ds_arena arena;
    ds_map index; /* hash → place */
    DS_VEC(ds_memo) all;
    uint32_t served, told;
    ds_objective objective;
    double best;
    uint32_t best_at; /* place of the best one; UINT32_MAX: none */
} ds_memos;

void ds_memos_init(ds_memos *memos, const ds_space *space);
void ds_memos_deinit(ds_memos *memos);
/* The place of a candidate, which is asked for if it is a new one. */
uint32_t ds_memos_ask(ds_memos *memos, const ds_space *space, const ds_candidate *candidate);
static inline bool ds_memos_are_told(const ds_memos *memos) {
    return memos->told == memos->all.n;
}
/* ds_method.next and tell of a method whose questions these are. */
bool ds_memos_serve(ds_memos *memos, const ds_space *space, ds_candidate *candidate);
void ds_memos_tell(ds_memos *memos, const ds_outcome *outcome, bool accepted);

#endif
