/* How a framework's stack launches ops: as kernels of their own, several kernels, or parts of one.
 *
 * kernels.def is the table, and says what may be one kernel. What an op of a function comes to is
 * found from the text alone: neighbours in one block, and who reads their values. */
#ifndef DS_OPS_KERNELS_H
#define DS_OPS_KERNELS_H

#include "ir/base/map.h"
#include "ir/ops/ops.h"

/* The words of the scenario's key `kernels`, in their order. */
typedef enum ds_kernel_stack {
    DS_KERNELS_OPS, /* an op is a kernel */
    DS_KERNELS_EAGER,
    DS_KERNELS_COMPILED,
    DS_KERNELS_FUSED,
    DS_KERNELS_COUNT
} ds_kernel_stack;

/* A line of KERNELS. */
typedef struct ds_kernel_line {
    ds_kernel_stack stack;
    const char *op;
    int32_t launches, conversions, own, wide;
    const char *source;
} ds_kernel_line;

/* What is launched for an op. */
typedef struct ds_kernel {
    int32_t extra_launches;     /* kernels beyond one; -1: the op is in a kernel of another op */
    uint32_t unread, unwritten; /* bit i: operand or result i does not go through memory */
    bool epilogue;              /* the result takes the place of a product's */
    bool is_converted;          /* of a narrow product: one before it converts the same operand */
    uint32_t weight;            /* of a narrow product: the operand that is a weight */
    int32_t weight_bytes; /* and what is moved to convert an element of the weight; 0: nothing */
    const ds_kernel_line *line; /* NULL: one kernel, which reads and writes once */
} ds_kernel;

const char *ds_kernel_stack_name(ds_kernel_stack stack);
/* The stack of a word; false: no such word. */
bool ds_kernel_stack_parse(const char *word, ds_kernel_stack *out);
/* The host's time for a kernel of the stack, in per cent of a kernel of eager mode. */
int64_t ds_kernel_issue_percent(ds_kernel_stack stack);
/* What the host issues for the op beside its kernels. */
int32_t ds_kernel_calls(ds_kernel_stack stack, const char *op);
/* Does the host wait for what other stages send? */
bool ds_kernel_host_waits(ds_kernel_stack stack);
/* The whole table of KERNELS. */
const ds_kernel_line *ds_kernel_lines(uint32_t *n);

/* Is the op the loss, or the loss's gradient? */
bool ds_kernel_is_loss(const ds_op *op);

/* Adds an entry op → ds_kernel (in the arena) for each op of a verified function that is not one
 * kernel by itself. The loss, and conversions between the loss and the logits, are kernels of the
 * stack `loss`. O(ops + uses). */
void ds_kernels_find(const ds_func *func, ds_kernel_stack stack, ds_kernel_stack loss,
                     ds_arena *arena, ds_map *out);

/* Changes the work of an op on local shapes, as ds_op_work says it, to that of its kernels. Only
 * bytes change: a kernel recomputes nothing. Errors: bytes beyond 2^63. */
ds_status ds_kernel_work(const ds_kernel *kernel, const ds_op *op, const ds_shape *in,
                         const ds_shape *out, ds_work *work, ds_error *err);

#endif
