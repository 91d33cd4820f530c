/* Private to ir/core: the distinct nodes below an expression, without recursion.
 *
 * A node is made after its operands, so ids fall from a node to its operands. Sorted by falling id,
 * users come before what they use: going through the list backwards is a bottom-up pass that
 * visits every shared node once, however deep or repeated the written text is. */
#ifndef DS_CORE_EXPR_WALK_H
#define DS_CORE_EXPR_WALK_H

#include "ir/core/expr.h"

#define DS_WALK_LOCAL 32u /* small expressions need no heap */

typedef struct ds_expr_walk {
    uint32_t *ids; /* falling; ids[0] is the root */
    uint32_t n;
    uint32_t local[DS_WALK_LOCAL];
} ds_expr_walk;

/* The walk points into itself: not to be copied. O(n log n) up to DS_WALK_LOCAL nodes, then
 * O(root id / 64 + n). */
void ds_expr__walk_init(ds_expr_walk *walk, const ds_exprs *exprs, ds_expr root);
void ds_expr__walk_deinit(ds_expr_walk *walk);
/* The position of a node that is in the walk. O(log n). */
uint32_t ds_expr__walk_find(const ds_expr_walk *walk, ds_expr e);

/* "+", "and", …; NULL for other kinds. */
const char *ds_expr__operator(ds_expr_kind kind);

#endif
