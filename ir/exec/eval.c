/* The functions that the op table names by EVAL, and what they share. */
#include "ir/exec/internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define EVAL(f)                      .run = ds_exec__eval_##f,
#define OP(ID, MNEMONIC, ROOMS, ...) [DS_OP_##ID] = {.code = DS_OP_##ID, ROOMS},
static const struct {
    ds_opcode code;
    ds_eval_function *run;
} evaluators[DS_OP_COUNT] = {
#include "ir/ops/ops.def"
};

ds_eval_function *ds_exec__evaluator(ds_opcode code) {
    return code < DS_OP_COUNT ? evaluators[code].run : NULL;
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
