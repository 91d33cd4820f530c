/* Ops that tests over the whole op table need no entry for: their lines say all there is to say. */
#ifndef DS_TEST_ELEMENTWISE_H
#define DS_TEST_ELEMENTWISE_H

#include "ir/ops/ops.h"

#include <string.h>

/* Operands of a plain elementwise op, whose result has the shape of each of them: 1 or 2; 0: the op
 * is another. */
static inline uint32_t plain_operands(const ds_op_desc *desc) {
    bool plain = strcmp(desc->family, "elementwise") == 0 && !desc->rule_of && !desc->infer &&
                 !desc->attrs && desc->min_in == desc->max_in && desc->max_in > 0;
    return plain ? desc->max_in : 0;
}

#endif
