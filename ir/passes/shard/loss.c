/* The loss of logits whose vocabulary is split over devices.
 *
 * cross_entropy needs whole rows. Gathering rows would move and hold b·s·v numbers; a device needs
 * only three numbers a row of the other parts (Shoeybi et al. 2019, "Megatron-LM",
 * arXiv:1909.08053, section 3: the loss is fused with the parallel GEMM). With m the largest logit
 * of a row:
 *
 *     lse  = log Σ exp(x − m) + m,   loss = lse − x[label]
 *
 * so m, the sum and the label's logit are each made by an all_reduce of [b, s]. The backward op,
 * exp(x − lse) − onehot, works on parts unchanged. The arithmetic is in f32 or wider, like the op's
 * second result. */
#include "ir/passes/shard/internal.h"

#include <string.h>

typedef struct loss {
    ds_sharder *s;
    const char *name; /* of the result */
    ds_use x, labels;
    ds_layout logits, rows; /* rows: of one number a row */
    ds_dtype dtype;         /* of the arithmetic */
} loss;

static ds_status put_op(const loss *l, ds_op *op, ds_value *out, ds_error *err) {
    DS_TRY(ds_shard__put(l->s, op, &(ds_shard_value){0}, err));
    *out = op->out[0];
    return DS_OK;
}

/* what = "": the result's own name. */
static ds_op *new_op(const loss *l, ds_opcode code, const char *what, const ds_type *written) {
    ds_builder *b = &l->s->f.b;
    ds_op *op = ds_build_op(b, code);
    const char *dot = what[0] ? "." : "";
    ds_build_out(b, op, ds_arena_printf(&l->s->unit->arena, "%s%s%s", l->name, dot, what), written);
    return op;
}

static ds_status unary(const loss *l, ds_opcode code, const char *what, ds_value x, ds_value *out,
                       ds_error *err) {
    ds_op *op = new_op(l, code, what, NULL);
    ds_build_in(&l->s->f.b, op, ds_use_of(x));
    return put_op(l, op, out, err);
}

static ds_status binary(const loss *l, ds_opcode code, const char *what, ds_value x, ds_value y,
                        ds_value *out, ds_error *err) {
    ds_op *op = new_op(l, code, what, NULL);
    ds_build_in(&l->s->f.b, op, ds_use_of(x));
    ds_build_in(&l->s->f.b, op, ds_use_of(y));
    return put_op(l, op, out, err);
}

static ds_status cast(const loss *l, ds_value x, ds_dtype dtype, const char *name, ds_value *out,
                      ds_error *err) {
    const ds_type *type = ds_value_at(l->s->f.b.func, x)->type;
    *out = x;
    if (type->dtype == dtype) return DS_OK;
    ds_type *to = ds_type_copy(&l->s->unit->arena, type);
    to->dtype = dtype;
    ds_op *op = ds_build_op(&l->s->f.b, DS_OP_CAST);
    ds_build_in(&l->s->f.b, op, ds_use_of(x));
    ds_build_out(&l->s->f.b, op, name, to);
    return put_op(l, op, out, err);
}

/* Completes a reduction over all parts of a row, on every device. */
static ds_status complete(const loss *l, ds_value part, ds_value *out, ds_error *err) {
    ds_use whole;
    DS_TRY(ds_shard__move(l->s, ds_use_of(part), &l->rows, &whole, err));
    *out = whole.value;
    return DS_OK;
}

/* A reduction over the last dim, completed. */
static ds_status over_row(const loss *l, ds_opcode code, const char *what, ds_value x,
                          ds_value *out, ds_error *err) {
    ds_op *op = new_op(l, code, what, NULL);
    ds_expr last = ds_expr_int(&l->s->unit->exprs, l->rows.rank);
    ds_build_in(&l->s->f.b, op, ds_use_of(x));
    ds_build_attr_exprs(&l->s->f.b, op, "dims", &last, 1);
    DS_TRY(put_op(l, op, out, err));
    return complete(l, *out, out, err);
}

/* Repeats one number a row along the row. */
static ds_status along_row(const loss *l, ds_value x, ds_value *out, ds_error *err) {
    ds_exprs *exprs = &l->s->unit->exprs;
    const ds_type *logits = ds_shard__type_of(l->s, &l->x);
    ds_expr last = ds_expr_int(exprs, l->rows.rank), size = logits->dims[l->rows.rank].size;
    ds_op *op = new_op(l, DS_OP_EXPAND, "rows", ds_shard__type(l->s, logits, &l->logits));
    ds_build_in(&l->s->f.b, op, ds_use_of(x));
    ds_build_attr_exprs(&l->s->f.b, op, "dims", &last, 1);
    ds_build_attr_exprs(&l->s->f.b, op, "sizes", &size, 1);
    return put_op(l, op, out, err);
}

/* log Σ exp(x) of each row. */
static ds_status log_sum(const loss *l, ds_value *out, ds_error *err) {
    ds_value x = l->x.value, most, rows, sum;
    DS_TRY(over_row(l, DS_OP_REDUCE_MAX, "max", x, &most, err));
    DS_TRY(along_row(l, most, &rows, err));
    DS_TRY(binary(l, DS_OP_SUB, "shifted", x, rows, &rows, err));
    DS_TRY(unary(l, DS_OP_EXP, "exp", rows, &rows, err));
    DS_TRY(over_row(l, DS_OP_REDUCE_SUM, "total", rows, &sum, err));
    DS_TRY(unary(l, DS_OP_LOG, "log", sum, &sum, err));
    return binary(l, DS_OP_ADD, "lse", sum, most, out, err);
}

static ds_status picked(const loss *l, ds_value *out, ds_error *err) {
    ds_op *op = new_op(l, DS_OP_PICK, "picked", NULL);
    ds_build_in(&l->s->f.b, op, l->x);
    ds_build_in(&l->s->f.b, op, l->labels);
    DS_TRY(put_op(l, op, out, err));
    return complete(l, *out, out, err);
}

/* The loss of each row, or the rows' mean or sum if the op asks for one. */
static ds_status of_rows(const loss *l, const ds_op *old, ds_dtype dtype, ds_value lse,
                         ds_value label, ds_value *out, ds_error *err) {
    const char *how = ds_op_attr_str(old, l->s->unit, "reduction");
    bool none = how && strcmp(how, "none") == 0, sum = how && strcmp(how, "sum") == 0;
    bool last = dtype == l->dtype; /* no cast follows */
    DS_TRY(binary(l, DS_OP_SUB, none && last ? "" : "row", lse, label, out, err));
    if (none) return DS_OK;
    const char *what = last ? "" : sum ? "total" : "mean";
    return unary(l, sum ? DS_OP_REDUCE_SUM : DS_OP_REDUCE_MEAN, what, *out, out, err);
}

/* The logits in f32 or wider, with their vocabulary still split. */
static ds_status read_logits(loss *l, const ds_use *in, ds_error *err) {
    ds_value x;
    DS_TRY(ds_shard__move(l->s, in[0], &l->logits, &l->x, err));
    DS_TRY(ds_shard__move(l->s, in[1], &l->rows, &l->labels, err));
    if (ds_shard__type_of(l->s, &l->x)->dtype == l->dtype && !l->x.n_index) return DS_OK;
    if (l->x.n_index) {
        DS_TRY(ds_build_unary(&l->s->f.b, DS_OP_AFTER, "logits", l->x, &x, err));
        l->x = ds_use_of(x);
    }
    DS_TRY(cast(l, l->x.value, l->dtype, "logits", &x, err));
    l->x = ds_use_of(x);
    return DS_OK;
}

ds_status ds_shard__loss(ds_sharder *s, const ds_op *old, const ds_use *in,
                         const ds_shard_choice *choice, const ds_value **made, ds_error *err) {
    const ds_type *type = ds_shard__type_of(s, &in[0]);
    ds_layout now = ds_shard__layout(s, type);
    uint32_t last = type->rank - 1;
    loss l = {.s = s, .logits = choice->in[0], .rows = choice->in[1]};
    bool here = now.mesh == l.logits.mesh && ds_shard__parts(s, &now, last) > 1;
    bool said = l.logits.n[last] > 0;                           /* by an override */
    for (uint32_t i = 0; here && !said && i < now.n[last]; i++) /* but axes that rows take */
        if (ds_shard__dim_of(&l.logits, now.axis[last][i]) < 0)
            l.logits.axis[last][l.logits.n[last]++] = now.axis[last][i];
    if (!l.logits.n[last]) return DS_OK;
    l.dtype = ds_dtype_bits(type->dtype) < 32 ? DS_F32 : type->dtype;
    l.name = ds_value_at(s->f.from, old->out[0])->name;

    ds_value lse, label, row, *out = DS_NEW_N(&s->unit->arena, ds_value, 2);
    DS_TRY(read_logits(&l, in, err));
    DS_TRY(log_sum(&l, &lse, err));
    DS_TRY(picked(&l, &label, err));
    DS_TRY(of_rows(&l, old, type->dtype, lse, label, &row, err));
    DS_TRY(cast(&l, row, type->dtype, l.name, &out[0], err));
    if (old->n_out > 1)
        DS_TRY(cast(&l, lse, DS_F32, ds_value_at(s->f.from, old->out[1])->name, &out[1], err));
    *made = out;
    return DS_OK;
}
