/* Paths of ops in a step, and the patterns of `strategy { ops { … } }` that match paths.
 *
 * After lower, the calls of the model are in the names of ops: `name = "block.fc1"`, or the name of
 * the first result. The loops around an op are not in its name: each loop is known by its index (or
 * its `name`). A turn of a loop that was unrolled is part of the name: "l[3].block.fc1".
 *
 * A pattern is made of parts between '.' or '/'. Parts with brackets are loops, `l[*]` or `l[3]`;
 * the others are names, in which `*` is any text and `?` any character. A pattern matches an op if
 * the pattern's names are the last of the op's names, and the pattern's loops are among the loops
 * around the op, in the same order: so "fc1", "block.fc1", "l[*].fc1" and "step/l[*]/block/fc1" all
 * match block.fc1 in loop l of @step. With `**` as its last name a pattern matches all that is below
 * the names before: "block.**" matches block.fc1 and block.head.fc1, and "**" every op. */
#ifndef DS_PASSES_BUILD_PATH_H
#define DS_PASSES_BUILD_PATH_H

#include "ir/core/ir.h"

#define DS_ANY_TURN INT64_C(-1)

/* A loop around an op; a list from the inside out. */
typedef struct ds_path_loop {
    const char *name;
    int64_t turn; /* DS_ANY_TURN: the loop is kept */
    const struct ds_path_loop *up;
} ds_path_loop;

/* Does the pattern match an op called `name` (parts as above) of function `func` in `loops`?
 * `[3]` does not match a loop that is kept, unless `innermost` is given. Then `[3]` matches, and
 * *innermost is the innermost loop of which the pattern names a single turn, or NULL. O(parts). */
bool ds_path_match(const char *pattern, const char *func, const ds_path_loop *loops,
                   const char *name, const ds_path_loop **innermost);

/* The name of an op in its path: `name`, else its first result's, else its mnemonic. */
const char *ds_path_op_name(const ds_func *func, const ds_op *op);
/* Is this the last part of a backward op's name: "dx", "dw", "d2" of an operand by number? */
bool ds_path_is_gradient(const char *end);
/* Does the pattern end with such a name, as "fc1.dw" does? */
bool ds_path_names_gradient(const char *pattern);
/* The name of a loop: `name`, else its index. */
const char *ds_path_loop_name(const ds_func *func, const ds_op *loop);

#endif
