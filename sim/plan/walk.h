/* The walk inside: shared by walk.c and stamp.c; not a public header. */
#ifndef DS_PLAN_WALK_INTERNAL_H
#define DS_PLAN_WALK_INTERNAL_H

#include "sim/plan/values.h"

/* One activation of a function. */
typedef struct ds_frame {
    const ds_context *ctx;
    ds_slot *slots;
    const ds_region *region; /* innermost */
    uint32_t scope;
    uint32_t rank_device;
    uint32_t depth;
} ds_frame;

/* The indices that a function knows when a call of it begins. */
static inline const ds_index *ds_plan__indices(const ds_context *ctx) {
    return ctx->index.name ? &ctx->index : NULL;
}

/* Follows a block; its yield or return sets out[0 … n_out). */
ds_status ds_plan__block(ds_builder *b, ds_frame *f, const ds_block *body, const ds_index *indices,
                         ds_slot *out, uint32_t n_out, ds_error *err);
/* Which buffer a result takes, and what it is, where that depends on the operands. */
void ds_plan__inherit(const ds_builder *b, const ds_op *op, const ds_record *r, uint32_t result,
                      const uint32_t *operands, ds_vinst *v);
/* Could ds_plan__inherit change anything? */
bool ds_plan__inherits(const ds_op *op, const ds_record *r);

/* stamp.c: does what a call does, from the list that an earlier call in the same context left;
 * false if there is none, or if it does not fit this call. `args` and `results` are those of the
 * call. O(instances of the call). */
bool ds_plan__stamp(ds_builder *b, const ds_context *ctx, const ds_slot *args, uint32_t scope,
                    ds_slot *results);
void ds_plan__stamps_deinit(ds_builder *b);

/* repeat.c: may the turns of the loop do the same, for all that the text says? The loop keeps nothing,
 * and nothing that costs depends on its index. O(1) but for the first time, O(body). */
bool ds_plan__may_repeat(ds_builder *b, const ds_frame *f, const ds_op *op, int64_t turns);
/* The text is not all: the loop's turns differ. */
void ds_plan__never_repeats(ds_builder *b, const ds_op *op);

/* Where the plan stands before a turn. */
typedef struct ds_turn_mark {
    uint32_t inst, value;
} ds_turn_mark;

/* Do the values that two turns in a row leave to the next say the same: made at the same place of the
 * turn, or the same value from before both? Then all later turns do what the second does. */
bool ds_plan__leave_alike(const ds_builder *b, ds_turn_mark first, const ds_slot *left,
                          ds_turn_mark second, const ds_slot *left_second, uint32_t n);
/* Begins a repeat of a loop in the scope, before its turn; ends it after, as one that stands for so many turns, or none. */
uint32_t ds_plan__begin_repeat(ds_builder *b, uint32_t scope, int64_t times);
void ds_plan__end_repeat(ds_builder *b, uint32_t repeat, bool holds);

/* saves.c: lets go of what the kernels of the scenario's stack do not keep. */
void ds_plan__saves(ds_plan *plan, bool keeps_products);
/* saves_eager.c: keeps what PyTorch's eager mode keeps besides. `backward`: per instance;
 * `keeps_products`: of ds_plan_options. */
void ds_plan__saves_eager(ds_plan *plan, const bool *backward, bool keeps_products);

#endif
