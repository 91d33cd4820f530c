/* Which function evaluates which op, and what they share. */
#include "ir/exec/internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const ds_eval_function evaluators[DS_OP_COUNT] = {
    [DS_OP_MATMUL] = ds_exec__eval_einsum,
    [DS_OP_EINSUM] = ds_exec__eval_einsum,
    [DS_OP_BIAS] = ds_exec__eval_elementwise,
    [DS_OP_ADD] = ds_exec__eval_elementwise,
    [DS_OP_SUB] = ds_exec__eval_elementwise,
    [DS_OP_MUL] = ds_exec__eval_elementwise,
    [DS_OP_DIV] = ds_exec__eval_elementwise,
    [DS_OP_SCALE] = ds_exec__eval_elementwise,
    [DS_OP_RELU] = ds_exec__eval_elementwise,
    [DS_OP_GELU] = ds_exec__eval_elementwise,
    [DS_OP_SILU] = ds_exec__eval_elementwise,
    [DS_OP_SQUARED_RELU] = ds_exec__eval_elementwise,
    [DS_OP_TANH] = ds_exec__eval_elementwise,
    [DS_OP_SIGMOID] = ds_exec__eval_elementwise,
    [DS_OP_EXP] = ds_exec__eval_elementwise,
    [DS_OP_LOG] = ds_exec__eval_elementwise,
    [DS_OP_SQRT] = ds_exec__eval_elementwise,
    [DS_OP_NEG] = ds_exec__eval_elementwise,
    [DS_OP_DROPOUT] = ds_exec__eval_elementwise,
    [DS_OP_CAST] = ds_exec__eval_elementwise,
    [DS_OP_ACCUMULATE] = ds_exec__eval_elementwise,
    [DS_OP_ZEROS] = ds_exec__eval_elementwise,
    [DS_OP_FILL] = ds_exec__eval_elementwise,
    [DS_OP_RELU_GRAD] = ds_exec__eval_elementwise,
    [DS_OP_GELU_GRAD] = ds_exec__eval_elementwise,
    [DS_OP_SILU_GRAD] = ds_exec__eval_elementwise,
    [DS_OP_SQUARED_RELU_GRAD] = ds_exec__eval_elementwise,
    [DS_OP_TANH_GRAD] = ds_exec__eval_elementwise,
    [DS_OP_SIGMOID_GRAD] = ds_exec__eval_elementwise,
    [DS_OP_SOFTMAX] = ds_exec__eval_softmax,
    [DS_OP_SOFTMAX_GRAD] = ds_exec__eval_softmax,
    [DS_OP_LAYER_NORM] = ds_exec__eval_norm,
    [DS_OP_RMS_NORM] = ds_exec__eval_norm,
    [DS_OP_BATCH_NORM] = ds_exec__eval_batch_norm,
    [DS_OP_LAYER_NORM_GRAD] = ds_exec__eval_norm_grad,
    [DS_OP_RMS_NORM_GRAD] = ds_exec__eval_norm_grad,
    [DS_OP_BATCH_NORM_GRAD] = ds_exec__eval_batch_norm_grad,
    [DS_OP_EMBEDDING] = ds_exec__eval_embedding,
    [DS_OP_EMBEDDING_GRAD] = ds_exec__eval_embedding_grad,
    [DS_OP_PICK] = ds_exec__eval_pick,
    [DS_OP_CROSS_ENTROPY] = ds_exec__eval_cross_entropy,
    [DS_OP_CROSS_ENTROPY_GRAD] = ds_exec__eval_cross_entropy_grad,
    [DS_OP_MSE] = ds_exec__eval_mse,
    [DS_OP_MSE_GRAD] = ds_exec__eval_mse,
    [DS_OP_CONV2D] = ds_exec__eval_conv2d,
    [DS_OP_CONV2D_GRAD_X] = ds_exec__eval_conv2d,
    [DS_OP_CONV2D_GRAD_W] = ds_exec__eval_conv2d,
    [DS_OP_MAX_POOL] = ds_exec__eval_pool,
    [DS_OP_AVG_POOL] = ds_exec__eval_pool,
    [DS_OP_MAX_POOL_GRAD] = ds_exec__eval_pool_grad,
    [DS_OP_AVG_POOL_GRAD] = ds_exec__eval_pool_grad,
    [DS_OP_LSTM] = ds_exec__eval_lstm,
    [DS_OP_LSTM_GRAD] = ds_exec__eval_lstm_grad,
    [DS_OP_CAUSAL_CONV] = ds_exec__eval_causal_conv,
    [DS_OP_CAUSAL_CONV_GRAD] = ds_exec__eval_causal_conv_grad,
    [DS_OP_SSD_SCAN] = ds_exec__eval_ssd_scan,
    [DS_OP_SSD_SCAN_GRAD] = ds_exec__eval_ssd_scan_grad,
    [DS_OP_ATTENTION] = ds_exec__eval_attention,
    [DS_OP_ATTENTION_MERGE] = ds_exec__eval_attention_merge,
    [DS_OP_ATTENTION_GRAD] = ds_exec__eval_attention_grad,
    [DS_OP_ROTARY] = ds_exec__eval_rotary,
    [DS_OP_RESHAPE] = ds_exec__eval_reshape,
    [DS_OP_TRANSPOSE] = ds_exec__eval_transpose,
    [DS_OP_CONCAT] = ds_exec__eval_boxes,
    [DS_OP_SPLIT] = ds_exec__eval_boxes,
    [DS_OP_SLICE] = ds_exec__eval_boxes,
    [DS_OP_PAD] = ds_exec__eval_boxes,
    [DS_OP_EXPAND] = ds_exec__eval_expand,
    [DS_OP_AFTER] = ds_exec__eval_after,
    [DS_OP_OFFLOAD] = ds_exec__eval_after,
    [DS_OP_RELOAD] = ds_exec__eval_after,
    [DS_OP_REDUCE_SUM] = ds_exec__eval_reduce,
    [DS_OP_REDUCE_MEAN] = ds_exec__eval_reduce,
    [DS_OP_REDUCE_MAX] = ds_exec__eval_reduce,
    [DS_OP_REDUCE_MAX_GRAD] = ds_exec__eval_reduce_max_grad,
    [DS_OP_SUM_SQUARES] = ds_exec__eval_clip,
    [DS_OP_TOTAL] = ds_exec__eval_clip,
    [DS_OP_CLIP_FACTOR] = ds_exec__eval_clip,
    [DS_OP_TOPK] = ds_exec__eval_topk,
    [DS_OP_TOPK_GRAD] = ds_exec__eval_topk_grad,
    [DS_OP_DISPATCH] = ds_exec__eval_dispatch,
    [DS_OP_COMBINE] = ds_exec__eval_combine,
    [DS_OP_COMBINE_GRAD] = ds_exec__eval_combine_grad,
    [DS_OP_SGD] = ds_exec__eval_optimizer,
    [DS_OP_MOMENTUM] = ds_exec__eval_optimizer,
    [DS_OP_ADAM] = ds_exec__eval_optimizer,
    [DS_OP_ADAMW] = ds_exec__eval_optimizer,
};

ds_eval_function ds_exec__evaluator(ds_opcode code) {
    return code < DS_OP_COUNT ? evaluators[code] : NULL;
}

/* ---- attributes ---- */

ds_status ds_eval_int(const ds_eval *e, const char *name, int64_t *value, ds_error *err) {
    return ds_op_attr_int(e->op, e->env, name, value, err);
}

ds_status ds_eval_real(const ds_eval *e, const char *name, double *value, ds_error *err) {
    return ds_op_attr_real(e->op, e->env, name, value, err);
}

ds_status ds_eval_item(const ds_eval *e, const char *name, uint32_t i, int64_t *value,
                       ds_error *err) {
    const ds_attr *attr = ds_attr_find(e->op->attrs, e->op->n_attrs, name);
    if (!attr || attr->kind != DS_ATTR_LIST) return ds_eval_int(e, name, value, err);
    if (!attr->n_items) return DS_OK;
    const ds_attr *item = &attr->items[i < attr->n_items ? i : attr->n_items - 1];
    return ds_expr_eval_int(e->env, item->expr, attr->loc, value, err);
}

ds_status ds_eval_dim(const ds_eval *e, const char *name, uint32_t rank, uint32_t *dim,
                      ds_error *err) {
    int64_t at = 0;
    DS_TRY(ds_eval_int(e, name, &at, err));
    if (at < 0) at += rank;
    if (at < 0 || at >= rank)
        return ds_eval_fail(e, err, DS_ERR_VALUE, "there is no dim %lld among %u", (long long)at,
                            rank);
    *dim = (uint32_t)at;
    return DS_OK;
}

ds_status ds_eval_count(const ds_eval *e, double *count, ds_error *err) {
    int64_t given;
    if (!ds_attr_find(e->op->attrs, e->op->n_attrs, "count")) return DS_OK;
    DS_TRY(ds_eval_int(e, "count", &given, err));
    if (given < 1)
        return ds_eval_fail(e, err, DS_ERR_VALUE, "a mean over %lld elements", (long long)given);
    *count = (double)given;
    return DS_OK;
}

const char *ds_eval_text(const ds_eval *e, const char *name) {
    return ds_op_attr_str(e->op, e->run->binding->unit, name);
}

ds_status ds_eval_fail(const ds_eval *e, ds_error *err, ds_status code, const char *format, ...) {
    char text[512];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    return ds_error_set(err, code, e->op->loc, "%s: %s", ds_op_name(e->op->code), text);
}

void ds_eval_margin(const ds_eval *e, double margin) {
    if (margin < e->run->margin) e->run->margin = margin;
}
