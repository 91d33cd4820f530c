/* Shared by the files of ir/ops: how hooks see an op, and the helpers they are written with. */
#ifndef DS_OPS_INTERNAL_H
#define DS_OPS_INTERNAL_H

#include "ir/ops/ops.h"

/* ---- rules (rule.c) ---- */

/* What a rule may depend on: ranks, dims that are literally 1, attributes. Operands beyond the
 * eighth are not looked at. */
typedef struct ds_rule_args {
    ds_unit *unit; /* NULL: nothing is kept */
    const ds_op *op;
    const ds_exprs *exprs;
    const ds_env *env; /* NULL while params are unbound */
    uint32_t n_in, n_out;
    uint8_t in_rank[DS_MAX_OPERANDS];
    uint8_t in_ones[DS_MAX_OPERANDS]; /* bit j: dim j is the literal 1 */
} ds_rule_args;

/* ds_rule_parse of a text that stays where it is: once for each unit. */
ds_status ds_ops__rule_text(const ds_rule_args *args, const char *text, ds_loc loc, ds_rule *out,
                            ds_error *err);
/* The op's rule as the table or its hook says, `...` expanded for these ranks. */
ds_status ds_ops__rule(const ds_rule_args *args, ds_rule *out, ds_error *err);
/* Replaces `...` by explicit factors; checks ranks. */
ds_status ds_ops__rule_expand(const ds_rule_args *args, ds_rule *rule, ds_error *err);

/* Building rules in code. A term is filled dim by dim. */
uint8_t ds_ops__factor(ds_rule *rule, const char *name, ds_factor_kind kind);
void ds_ops__dim(ds_rule_term *term, uint8_t factor);
void ds_ops__dim_one(ds_rule_term *term);
void ds_ops__dim_any(ds_rule_term *term);
/* Factors a, b, c, … for a tensor of this rank; in[0] and out[0] made of them. */
void ds_ops__rule_identity(ds_rule *rule, uint32_t rank);
static inline const ds_rule_term *ds_ops__term(const ds_rule_term *terms, uint32_t n, uint32_t i) {
    return &terms[i < n ? i : n - 1];
}

/* ---- matching types against a rule (match.c) ---- */

typedef struct ds_match {
    const ds_infer *ctx;
    const ds_op_desc *desc;
    ds_rule rule;
    ds_expr size[DS_MAX_FACTORS]; /* none: not known yet */
    /* The operand dim that first carried the factor; NULL: none did. Its splits are the factor's,
     * if the factor is outermost there. */
    const ds_dim *dim[DS_MAX_FACTORS];
    bool outermost[DS_MAX_FACTORS];
    uint32_t operand[DS_MAX_FACTORS], index[DS_MAX_FACTORS];
} ds_match;

/* The factor of that name; DS_MAX_FACTORS if the rule has none. */
uint32_t ds_ops__factor_named(const ds_rule *rule, const char *name);
/* Sets a factor's size, found by name. The factor must exist. */
void ds_ops__set_size(ds_match *m, const char *name, ds_expr size);
ds_expr ds_ops__size(const ds_match *m, const char *name);

void ds_ops__match_init(ds_match *m, const ds_infer *ctx, const ds_rule *rule);
/* Everything from bound factors to ctx->out: sizes, splits, partials, places, dtypes. */
ds_status ds_ops__match_run(ds_match *m, ds_error *err);

/* The op's rule, then match_run (infer.c). */
ds_status ds_ops__infer_by_rule(const ds_infer *ctx, ds_error *err);
/* The same for an op whose result has dims that no operand has (set in `made`): there each device
 * makes its own part, so the written type says how they are split. */
ds_status ds_ops__infer_making(const ds_infer *ctx, uint32_t made, ds_error *err);
/* Which groups of operand dims make which groups of result dims (layout.c). */
ds_status ds_ops__reshape_rule(const ds_infer *ctx, ds_rule *out, ds_error *err);

/* ---- what was inferred before (memo.c) ---- */

/* infer(ctx, desc), or what it made of the same op and types before, where that is all it looks at.
 * O(size of the types). */
ds_status ds_ops__infer_once(const ds_infer *ctx, const ds_op_desc *desc,
                             ds_status (*infer)(const ds_infer *ctx, const ds_op_desc *desc,
                                                ds_error *err),
                             ds_error *err);

/* ---- checks and comparisons (check.c) ---- */

const char *ds_ops__type_text(const ds_infer *ctx, const ds_type *type);
const char *ds_ops__expr_text(const ds_infer *ctx, ds_expr e);
const char *ds_ops__axes_text(const ds_infer *ctx, const ds_split *splits, uint32_t n);

/* Equality, decided on bound numbers where the symbols leave it open and ctx->env is there. */
ds_status ds_ops__equal(const ds_infer *ctx, ds_expr a, ds_expr b, ds_tri *out, ds_error *err);
ds_status ds_ops__same_place(const ds_infer *ctx, const ds_place *a, const ds_place *b, ds_tri *out,
                             ds_error *err);
ds_status ds_ops__same_splits(const ds_infer *ctx, const ds_dim *a, const ds_dim *b, bool *out,
                              ds_error *err);
/* Same dtype, rank and global sizes? If not, an error that shows both. */
ds_status ds_ops__same_shape(const ds_infer *ctx, const ds_type *a, const ds_type *b,
                             ds_error *err);
/* All operands on one place: an op never moves data. */
ds_status ds_ops__one_place(const ds_infer *ctx, ds_error *err);
/* Which partials of the operands the results inherit (at most DS_MAX_RANK); none if there are none.
 */
ds_status ds_ops__passed_partials(const ds_infer *ctx, const ds_op_desc *desc,
                                  const ds_partial **out, uint32_t *n, ds_error *err);
/* Operand dtypes against desc->dtypes; result dtypes if `out` is not NULL. */
ds_status ds_ops__dtypes(const ds_infer *ctx, const ds_op_desc *desc, ds_dtype *out, ds_error *err);
/* The place with a function's only mesh parameter put in for a place left out. */
ds_place ds_ops__resolved_place(const ds_infer *ctx, const ds_place *place);
bool ds_ops__is_manual(const ds_infer *ctx, const char *axis);

/* ---- attributes (attr.c) ---- */

/* Unknown names, wrong kinds, missing ones. */
ds_status ds_ops__check_attrs(const ds_infer *ctx, const ds_op_desc *desc, ds_error *err);
/* A literal, or an expression with env. *known is false if it needs an env that is not there. */
ds_status ds_ops__int(const ds_exprs *exprs, const ds_env *env, ds_expr e, ds_loc loc, int64_t *out,
                      bool *known, ds_error *err);
/* Is an attribute's value `e` known and below `least`? Then an error that names it. */
ds_status ds_ops__at_least(const ds_infer *ctx, const char *name, ds_expr e, int64_t least,
                           ds_error *err);
/* An integer attribute that must be known when types are inferred: dims, flags, counts. */
ds_status ds_ops__attr_literal(const ds_rule_args *args, const char *name, int64_t *out,
                               ds_error *err);
/* A dim attribute, counted from the end if negative. */
ds_status ds_ops__attr_dim(const ds_rule_args *args, const char *name, uint32_t rank, uint32_t *out,
                           ds_error *err);
/* Distinct dims from an `ints` attribute; none if it is absent. */
ds_status ds_ops__attr_dims(const ds_rule_args *args, const char *name, uint32_t rank,
                            uint32_t out[DS_MAX_RANK], uint32_t *n, ds_error *err);
/* Item i of an `ints` attribute as an expression; a single number stands for all items. The default
 * of the table if absent; none if there is neither. */
ds_expr ds_ops__attr_item(ds_exprs *exprs, const ds_op *op, const char *name, uint32_t i);
/* The number of items, 1 for a single number, 0 if absent. */
uint32_t ds_ops__attr_n(const ds_op *op, const char *name);
/* Item i as a number; the default of the table if absent. */
ds_status ds_ops__attr_item_int(const ds_op *op, const ds_env *env, const char *name, uint32_t i,
                                int64_t *out, ds_error *err);
const char *ds_ops__attr_text(const ds_op *op, const ds_exprs *exprs, const char *name);

/* ---- work (work.c) ---- */

/* a*b*…: false in *ok on overflow. */
int64_t ds_ops__mul(bool *ok, int64_t a, int64_t b);
int64_t ds_ops__add(bool *ok, int64_t a, int64_t b);
ds_status ds_ops__overflow(const ds_op *op, bool ok, ds_error *err);
/* Bytes of operands and results, tokens and width, dtype; kind MEMORY. */
ds_status ds_ops__work_bytes(const ds_op *op, const ds_shape *in, const ds_shape *out,
                             ds_work *work, ds_error *err);
/* The rule's factor sizes on concrete shapes; -1: not determined. */
ds_status ds_ops__work_factors(const ds_op *op, const ds_env *env, const ds_shape *in,
                               const ds_shape *out, ds_rule *rule, int64_t size[DS_MAX_FACTORS],
                               ds_error *err);

/* ---- hooks, by family file ---- */

#define DS_RULE_HOOK(name)  ds_status name(const ds_rule_args *args, ds_rule *out, ds_error *err)
#define DS_SIZES_HOOK(name) ds_status name(ds_match *m, ds_error *err)
#define DS_INFER_HOOK(name) ds_status name(const ds_infer *ctx, ds_error *err)
#define DS_WORK_HOOK(name)                                                                         \
    ds_status name(const ds_op *op, const ds_env *env, const ds_shape *in, const ds_shape *out,    \
                   ds_work *work, ds_error *err)

#define DS_SCRATCH_HOOK(name)                                                                      \
    ds_status name(const ds_op *op, const ds_type *const *types, const ds_shape *in,               \
                   const ds_shape *out, int64_t *bytes, ds_error *err)

DS_RULE_HOOK(ds_ops__matmul_rule);
DS_RULE_HOOK(ds_ops__einsum_rule);
DS_WORK_HOOK(ds_ops__einsum_work);
DS_RULE_HOOK(ds_ops__bias_rule);
DS_RULE_HOOK(ds_ops__binary_rule);
DS_INFER_HOOK(ds_ops__cast_infer);
DS_INFER_HOOK(ds_ops__fill_infer);
DS_INFER_HOOK(ds_ops__zeros_infer);
DS_WORK_HOOK(ds_ops__zeros_work);
DS_INFER_HOOK(ds_ops__dropout_infer);
DS_RULE_HOOK(ds_ops__softmax_rule);
DS_RULE_HOOK(ds_ops__rms_norm_rule);
DS_RULE_HOOK(ds_ops__batch_norm_rule);
DS_SIZES_HOOK(ds_ops__batch_norm_sizes);
DS_RULE_HOOK(ds_ops__batch_norm_grad_rule);
DS_WORK_HOOK(ds_ops__norm_work);
DS_WORK_HOOK(ds_ops__norm_grad_work);
DS_RULE_HOOK(ds_ops__cross_entropy_rule);
DS_RULE_HOOK(ds_ops__mse_rule);
DS_WORK_HOOK(ds_ops__embedding_work);
DS_SIZES_HOOK(ds_ops__embedding_grad_sizes);
DS_INFER_HOOK(ds_ops__embedding_grad_infer);
DS_WORK_HOOK(ds_ops__embedding_grad_work);
DS_WORK_HOOK(ds_ops__pick_work);
DS_RULE_HOOK(ds_ops__conv2d_rule);
DS_SIZES_HOOK(ds_ops__conv2d_sizes);
DS_SIZES_HOOK(ds_ops__conv2d_grad_x_sizes);
DS_SIZES_HOOK(ds_ops__conv2d_grad_w_sizes);
DS_WORK_HOOK(ds_ops__conv2d_work);
DS_SIZES_HOOK(ds_ops__pool_sizes);
DS_SIZES_HOOK(ds_ops__pool_grad_sizes);
DS_WORK_HOOK(ds_ops__pool_work);
DS_SIZES_HOOK(ds_ops__lstm_sizes);
DS_WORK_HOOK(ds_ops__lstm_work);
DS_WORK_HOOK(ds_ops__lstm_grad_work);
DS_WORK_HOOK(ds_ops__causal_conv_work);
DS_SIZES_HOOK(ds_ops__causal_conv_grad_sizes);
DS_WORK_HOOK(ds_ops__causal_conv_grad_work);
DS_SIZES_HOOK(ds_ops__ssd_scan_sizes);
DS_WORK_HOOK(ds_ops__ssd_scan_work);
DS_WORK_HOOK(ds_ops__ssd_scan_grad_work);
DS_RULE_HOOK(ds_ops__attention_rule);
DS_WORK_HOOK(ds_ops__attention_work);
DS_WORK_HOOK(ds_ops__attention_grad_work);
DS_INFER_HOOK(ds_ops__reshape_infer);
DS_INFER_HOOK(ds_ops__reduce_some_infer);
DS_RULE_HOOK(ds_ops__transpose_rule);
DS_RULE_HOOK(ds_ops__stack_rule);
DS_RULE_HOOK(ds_ops__put_rule);
DS_SIZES_HOOK(ds_ops__put_sizes);
DS_WORK_HOOK(ds_ops__put_work);
DS_RULE_HOOK(ds_ops__concat_rule);
DS_SIZES_HOOK(ds_ops__concat_sizes);
DS_RULE_HOOK(ds_ops__split_rule);
DS_SIZES_HOOK(ds_ops__split_sizes);
DS_RULE_HOOK(ds_ops__slice_rule);
DS_SIZES_HOOK(ds_ops__slice_sizes);
DS_SIZES_HOOK(ds_ops__pad_sizes);
DS_RULE_HOOK(ds_ops__expand_rule);
DS_SIZES_HOOK(ds_ops__expand_sizes);
DS_INFER_HOOK(ds_ops__expand_infer);
DS_INFER_HOOK(ds_ops__after_infer);
DS_INFER_HOOK(ds_ops__host_infer);
DS_RULE_HOOK(ds_ops__reduce_sum_rule);
DS_RULE_HOOK(ds_ops__sum_squares_rule);
DS_RULE_HOOK(ds_ops__reduce_max_rule);
DS_RULE_HOOK(ds_ops__reduce_max_grad_rule);
DS_SIZES_HOOK(ds_ops__topk_sizes);
DS_WORK_HOOK(ds_ops__topk_work);
DS_SIZES_HOOK(ds_ops__topk_grad_sizes);
DS_SIZES_HOOK(ds_ops__dispatch_sizes);
DS_WORK_HOOK(ds_ops__dispatch_work);
DS_WORK_HOOK(ds_ops__combine_work);
DS_WORK_HOOK(ds_ops__combine_grad_work);
DS_INFER_HOOK(ds_ops__optimizer_infer);
DS_INFER_HOOK(ds_ops__all_reduce_infer);
DS_INFER_HOOK(ds_ops__all_gather_infer);
DS_INFER_HOOK(ds_ops__reduce_scatter_infer);
DS_INFER_HOOK(ds_ops__all_to_all_infer);
DS_INFER_HOOK(ds_ops__broadcast_infer);
DS_INFER_HOOK(ds_ops__scatter_infer);
DS_INFER_HOOK(ds_ops__gather_infer);
DS_INFER_HOOK(ds_ops__reduce_infer);
DS_INFER_HOOK(ds_ops__send_infer);
DS_INFER_HOOK(ds_ops__recv_infer);
DS_INFER_HOOK(ds_ops__permute_infer);
DS_INFER_HOOK(ds_ops__reshard_infer);
DS_WORK_HOOK(ds_ops__collective_work);
DS_SCRATCH_HOOK(ds_ops__attention_scratch);
DS_SCRATCH_HOOK(ds_ops__attention_grad_scratch);
DS_SCRATCH_HOOK(ds_ops__cross_entropy_scratch);
DS_SCRATCH_HOOK(ds_ops__cross_entropy_grad_scratch);
DS_SCRATCH_HOOK(ds_ops__mse_scratch);
DS_SCRATCH_HOOK(ds_ops__embedding_grad_scratch);
DS_SCRATCH_HOOK(ds_ops__adam_scratch);

#endif
