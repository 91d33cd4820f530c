/* What has been found out once about an op and its operands' types, to be found again.
 *
 * A key is the words that spell out all that an answer depends on: names by address, since they are
 * interned, expressions by their ids. Keys and answers are in the unit's arena; what maps hashes to
 * them is a ds_map, given with its owner. */
#ifndef DS_OPS_MEMO_H
#define DS_OPS_MEMO_H

#include "ir/core/ir.h"

#define DS_MEMO_WORDS 192u /* an op of eight matrices with attributes; longer ones are not kept */

typedef struct ds_memo_key {
    uint64_t words[DS_MEMO_WORDS];
    uint32_t n;
    bool other; /* too long, or with a part that has no words: never found */
} ds_memo_key;

static inline void ds_memo_put(ds_memo_key *key, uint64_t word) {
    if (key->n == DS_MEMO_WORDS)
        key->other = true;
    else
        key->words[key->n++] = word;
}

/* Begins a key: code, number of operands and results, attributes but for the op's name. An op with
 * clauses (over, dim, to, …) has no key. O(attributes). */
void ds_memo_begin(ds_memo_key *key, const ds_unit *unit, const ds_op *op);
/* All that the type says. O(rank). */
void ds_memo_put_type(ds_memo_key *key, const ds_type *type);

/* The answer that was kept under the key; NULL if there is none. O(words). */
const void *ds_memo_find(const ds_map *map, const ds_memo_key *key);
/* Keeps it. The answer must be in the arena, or outlive the map. */
void ds_memo_keep(ds_map *map, ds_arena *arena, const ds_memo_key *key, const void *answer);

#endif
