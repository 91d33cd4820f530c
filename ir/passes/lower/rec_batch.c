/* Ops of chunks: each op of a turn has a form that makes the turns of a chunk at once. A rule a kind
 * of op says where the axis of the turns may lie among the operands' dims and where the results have
 * the axis; operands with the axis elsewhere are transposed, operands without one are repeated only
 * where the op would not repeat them itself.
 *
 * `in` are the operands of the copy. Sizes and places of a turn, before the axis is added, are those
 * "of the point". */
#include "ir/passes/lower/rec_internal.h"

#include <string.h>

typedef struct batch {
    ds_lowering *l;
    ds_lower_rec *rec;
    ds_lower_frame *frame;
    const ds_op *from;
    ds_use *in;
    bool *has;      /* by operand: has the axis */
    uint32_t *axis; /* by operand */
    ds_op *op;      /* with attributes, without operands */
    bool ranges;    /* an operand is a range */
} batch;

/* Dims of the point. */
static uint32_t rank_of(const batch *b, uint32_t i) {
    return ds_lower__type_of(b->l, b->in[i])->rank - b->has[i];
}

static ds_status refuse(const batch *b, const char *why, ds_error *err) {
    return ds_error_set(err, DS_ERR_UNSUPPORTED, b->from->loc,
                        "prefill = vector: %s has no form for several turns at once%s%s",
                        ds_op_name(b->from->code), *why ? ": " : "", why);
}

/* ---- operands ---- */

static void look(batch *b, uint32_t i) {
    const ds_lower_mark *mark = ds_lower__mark_of(b->rec, b->in[i]);
    b->has[i] = mark != NULL;
    b->axis[i] = mark ? mark->axis : 0;
    b->ranges = b->ranges || (mark && mark->range);
}

static ds_status move(batch *b, uint32_t i, uint32_t axis, ds_error *err) {
    if (!b->has[i])
        DS_TRY(ds_lower__chunk_repeat(b->rec, &b->in[i], axis, err));
    else
        DS_TRY(ds_lower__chunk_move(b->rec, &b->in[i], axis, err));
    look(b, i);
    return DS_OK;
}

/* The axis not behind the dim `most` of the point. */
static ds_status before(batch *b, uint32_t i, uint32_t most, ds_error *err) {
    if (b->axis[i] <= most) return DS_OK;
    return move(b, i, most < 1 ? most : 1, err);
}

/* ---- results ---- */

/* The written type with the axis. */
static const ds_type *written(batch *b, uint32_t result, uint32_t axis) {
    const ds_value_info *info = ds_value_at(b->frame->func, b->from->out[result]);
    const ds_type *type = ds_lower__written(b->l, b->frame, b->from, result);
    const char *turn = b->rec->op->dims[b->rec->chunks.turn].name;
    if (!type || (b->frame == b->rec->frame &&
                  ds_type_mentions(&b->l->source->unit->exprs, info->type, turn)))
        return NULL;
    return ds_lower__chunk_type(b->rec, type, axis);
}

static ds_use *result_of(const batch *b, uint32_t k) {
    return &b->frame->values[b->from->out[k].i].use;
}

static ds_status put(batch *b, const ds_type *const *types, ds_error *err) {
    for (uint32_t i = 0; i < b->from->n_in; i++) ds_build_in(&b->l->b, b->op, b->in[i]);
    return ds_lower__write(b->l, b->frame, b->from, b->op, types, err);
}

/* All results have the axis there. */
static ds_status put_at(batch *b, uint32_t axis, ds_error *err) {
    const ds_type **types = DS_NEW_N(ds_lower__arena(b->l), const ds_type *, b->from->n_out + 1);
    for (uint32_t k = 0; k < b->from->n_out; k++) types[k] = written(b, k, axis);
    DS_TRY(put(b, types, err));
    for (uint32_t k = 0; k < b->from->n_out; k++)
        ds_lower__mark(b->rec, *result_of(b, k), (ds_lower_mark){.axis = axis});
    return DS_OK;
}

/* x under another type of as many elements. */
static ds_status view(batch *b, ds_use *x, const ds_type *type, ds_error *err) {
    ds_op *op = ds_build_op(&b->l->b, DS_OP_RESHAPE);
    op->loc = b->op->loc;
    const char *name = ds_arena_printf(ds_lower__arena(b->l), "%s.turns",
                                       ds_value_at(b->l->b.func, x->value)->name);
    ds_build_in(&b->l->b, op, *x);
    ds_value made = ds_build_out(&b->l->b, op, name, type);
    DS_TRY(ds_build_put(&b->l->b, op, err));
    *x = ds_use_of(made);
    return DS_OK;
}

/* ---- attributes ---- */

static const ds_attr *attr_of(const batch *b, const char *name) {
    return ds_attr_find(b->op->attrs, b->op->n_attrs, name);
}

/* A dim of the point of `rank` dims, in an operand with the axis. */
static bool shifted(const batch *b, ds_expr e, uint32_t rank, uint32_t axis, int64_t *out) {
    if (!ds_expr_is_int(&b->l->c.unit->exprs, e, out)) return false;
    if (*out < 0) *out += rank;
    if (*out >= (int64_t)axis) (*out)++;
    return true;
}

/* The attribute that names a dim; `without`: its value where it is not given. */
static ds_status shift_dim(batch *b, const char *name, uint32_t rank, uint32_t axis,
                           int64_t without, ds_error *err) {
    const ds_attr *attr = attr_of(b, name);
    int64_t dim;
    if (!shifted(b, attr ? attr->expr : ds_lower__int(b->l, without), rank, axis, &dim))
        return refuse(b, "its dim is no number", err);
    ds_build_attr_int(&b->l->b, b->op, name, dim);
    return DS_OK;
}

static ds_status shift_dims(batch *b, const char *name, uint32_t rank, uint32_t axis,
                            ds_error *err) {
    const ds_attr *attr = attr_of(b, name);
    uint32_t n = attr ? attr->n_items : rank;
    ds_expr *dims = DS_NEW_N(ds_lower__arena(b->l), ds_expr, n + 1);
    for (uint32_t i = 0; i < n; i++) {
        int64_t dim;
        if (!shifted(b, attr ? attr->items[i].expr : ds_lower__int(b->l, i), rank, axis, &dim))
            return refuse(b, "its dims are no numbers", err);
        dims[i] = ds_lower__int(b->l, dim);
    }
    ds_build_attr_exprs(&b->l->b, b->op, name, dims, n);
    return DS_OK;
}

/* Does an attribute of the op depend on the turn? */
static bool varies(const batch *b, const char *name) {
    const char *turn = b->rec->op->dims[b->rec->chunks.turn].name;
    const ds_attr *attr = ds_attr_find(b->from->attrs, b->from->n_attrs, name);
    return b->frame == b->rec->frame && attr &&
           ds_attrs_mention(&b->l->source->unit->exprs, attr, 1, turn);
}

/* ---- elementwise ---- */

/* A right operand of lower rank stands for the last dims, and repeats along an axis before those. */
static ds_status write_elementwise(batch *b, ds_error *err) {
    uint32_t rank = rank_of(b, 0), axis = b->has[0] ? b->axis[0] : UINT32_MAX;
    for (uint32_t i = 1; i < b->from->n_in && axis == UINT32_MAX; i++)
        if (b->has[i]) axis = b->axis[i] + rank - rank_of(b, i);
    for (uint32_t i = 1; i < b->from->n_in; i++)
        if (b->has[i] && axis < rank - rank_of(b, i)) axis = rank - rank_of(b, i);
    DS_TRY(move(b, 0, axis, err));
    for (uint32_t i = 1; i < b->from->n_in; i++) {
        uint32_t first = rank - rank_of(b, i);
        if (b->has[i] || axis > first) DS_TRY(move(b, i, axis - first, err));
    }
    return put_at(b, axis, err);
}

/* A range stays one. */
static ds_status write_range(batch *b, ds_error *err) {
    ds_lower_mark mark = *ds_lower__mark_of(b->rec, b->in[0]);
    DS_TRY(put(b, &(const ds_type *){NULL}, err));
    ds_lower__mark(b->rec, *result_of(b, 0), mark);
    return DS_OK;
}

/* Along another dim than the range's, which lies as it lies for a turn. */
static bool keeps_range(const batch *b) {
    const ds_attr *dim = attr_of(b, "dim");
    int64_t at = 0;
    if (dim && !ds_expr_is_int(&b->l->c.unit->exprs, dim->expr, &at)) return false;
    if (at < 0) at += ds_lower__type_of(b->l, b->in[0])->rank;
    return at != (int64_t)ds_lower__mark_of(b->rec, b->in[0])->axis && !varies(b, "lo") &&
           !varies(b, "hi");
}

static ds_status write_bias(batch *b, ds_error *err) {
    if (b->has[1]) return refuse(b, "its vector differs by turn", err);
    DS_TRY(shift_dim(b, "dim", rank_of(b, 0), b->axis[0], -1, err));
    return put_at(b, b->axis[0], err);
}

/* Without masks dropout is its operand. */
static ds_status write_dropout(batch *b, ds_error *err) {
    ds_env env = ds_binding_env(b->l->source, NULL);
    double p;
    DS_TRY(ds_op_attr_real(b->from, &env, "p", &p, err));
    if (p != 0.0) return refuse(b, "each turn has its own mask", err);
    *result_of(b, 0) = b->in[0];
    return DS_OK;
}

/* ---- products ---- */

/* "b s h, h n d -> b s n d": its terms, a text a dim. */
typedef struct term {
    const char *dims[DS_MAX_RANK + 2];
    uint32_t n;
} term;

static const char *read_term(const batch *b, const char *text, term *out) {
    out->n = 0;
    for (;;) {
        while (*text == ' ') text++;
        if (!*text || *text == ',' || (text[0] == '-' && text[1] == '>')) return text;
        const char *end = text;
        if (*text == '(')
            while (*end && *end != ')') end++;
        if (*end == ')') end++;
        while (end == text || (*text != '(' && *end && !strchr(" ,->", *end))) end++;
        if (out->n <= DS_MAX_RANK)
            out->dims[out->n++] =
                ds_arena_printf(ds_lower__arena(b->l), "%.*s", (int)(end - text), text);
        text = end;
    }
}

static void put_term(const term *t, bool has, uint32_t axis, const char *name, ds_buf *out) {
    for (uint32_t d = 0; d <= t->n; d++) {
        if (has && d == axis) ds_buf_printf(out, " %s", name);
        if (d < t->n) ds_buf_printf(out, " %s", t->dims[d]);
    }
}

static ds_status write_einsum(batch *b, ds_error *err) {
    const char *text = ds_op_attr_str(b->from, b->l->source->unit, "rule");
    const char *name = "turn";
    uint32_t axis = UINT32_MAX;
    ds_buf rule = {0};
    term t;
    while (strstr(text, name)) name = ds_arena_printf(ds_lower__arena(b->l), "%s_", name);
    for (uint32_t i = 0; i < b->from->n_in; i++) {
        text = read_term(b, text, &t);
        if (b->has[i] && axis == UINT32_MAX) axis = b->axis[i];
        if (i) ds_buf_putc(&rule, ',');
        put_term(&t, b->has[i], b->axis[i], name, &rule);
        if (*text == ',') text++;
    }
    read_term(b, text + 2, &t);
    if (axis > t.n) axis = t.n;
    ds_buf_put(&rule, " ->");
    put_term(&t, true, axis, name, &rule);
    ds_build_attr_text(&b->l->b, b->op, "rule", rule.text + 1);
    ds_buf_deinit(&rule);
    return put_at(b, axis, err);
}

/* The second operand is a matrix, or both are batched over equal leading dims. */
static ds_status write_matmul(batch *b, ds_error *err) {
    if (!b->has[1] && rank_of(b, 1) == 2 && !ds_op_attr_bool(b->from, "transpose_a")) {
        DS_TRY(before(b, 0, rank_of(b, 0) - 1, err));
        return put_at(b, b->axis[0], err);
    }
    if (rank_of(b, 0) != rank_of(b, 1)) return refuse(b, "its operands differ in rank", err);
    DS_TRY(move(b, 0, 0, err));
    DS_TRY(move(b, 1, 0, err));
    return put_at(b, 0, err);
}

/* ---- along the last dims ---- */

static ds_status write_norm(batch *b, ds_error *err) {
    uint32_t span = b->from->n_in > 1 ? rank_of(b, 1) : 1;
    for (uint32_t i = 1; i < b->from->n_in; i++)
        if (b->has[i]) return refuse(b, "its scale differs by turn", err);
    DS_TRY(before(b, 0, rank_of(b, 0) - span, err));
    return put_at(b, b->axis[0], err);
}

static ds_status write_softmax(batch *b, ds_error *err) {
    DS_TRY(shift_dim(b, "dim", rank_of(b, 0), b->axis[0], -1, err));
    return put_at(b, b->axis[0], err);
}

static ds_status write_topk(batch *b, ds_error *err) {
    DS_TRY(before(b, 0, rank_of(b, 0) - 1, err));
    return put_at(b, b->axis[0], err);
}

static ds_status write_reduce(batch *b, ds_error *err) {
    uint32_t axis = b->axis[0], kept = axis;
    DS_TRY(shift_dims(b, "dims", rank_of(b, 0), axis, err));
    const ds_attr *dims = attr_of(b, "dims");
    for (uint32_t i = 0; i < dims->n_items && !ds_op_attr_bool(b->from, "keep"); i++) {
        int64_t dim;
        if (ds_expr_is_int(&b->l->c.unit->exprs, dims->items[i].expr, &dim) && dim < axis) kept--;
    }
    return put_at(b, kept, err);
}

static ds_status write_embedding(batch *b, ds_error *err) {
    if (b->has[1]) return refuse(b, "its table differs by turn", err);
    return put_at(b, b->axis[0], err);
}

/* ---- layout ---- */

bool ds_lower__rec_size(const ds_lower_rec *rec, ds_expr size, ds_loc loc, int64_t *out) {
    ds_binding binding;
    if (ds_expr_is_int(&rec->l->c.unit->exprs, size, out)) return true;
    if (ds_bind(rec->l->c.unit, NULL, 0, &binding, NULL) != DS_OK) return false;
    ds_env env = ds_binding_env(&binding, NULL);
    return ds_expr_eval_int(&env, size, loc, out, NULL) == DS_OK;
}

static bool size_of(const batch *b, const ds_type *type, uint32_t d, int64_t *out) {
    return ds_lower__rec_size(b->rec, type->dims[d].size, b->from->loc, out);
}

/* Elements of the dims before `n`, without the axis; 0: not known. */
static int64_t elements(const batch *b, const ds_type *type, uint32_t n) {
    int64_t all = 1, size;
    for (uint32_t d = 0; d < n; d++)
        if (!size_of(b, type, d, &size) || __builtin_mul_overflow(all, size, &all)) return 0;
    return all;
}

/* The axis stays between the elements that it lies between. */
static ds_status write_reshape(batch *b, ds_error *err) {
    const ds_value_info *info = ds_value_at(b->frame->func, b->from->out[0]);
    const ds_type *point = ds_lower__type(b->l, b->frame, info->type);
    int64_t ahead = elements(b, ds_lower__type_of(b->l, b->in[0]), b->axis[0]);
    uint32_t axis = 0;
    while (axis < point->rank && (ahead == 0 || elements(b, point, axis) != ahead)) axis++;
    if (ahead == 0 || elements(b, point, axis) != ahead) {
        DS_TRY(move(b, 0, 0, err));
        axis = 0;
    }
    b->op->n_attrs = 0;
    const ds_type *type = ds_lower__chunk_type(b->rec, point, axis);
    DS_TRY(put(b, &type, err));
    ds_lower__mark(b->rec, *result_of(b, 0), (ds_lower_mark){.axis = axis});
    return DS_OK;
}

static ds_status write_transpose(batch *b, ds_error *err) {
    uint32_t rank = rank_of(b, 0), axis = b->axis[0], from = 0;
    const ds_attr *attr = attr_of(b, "perm");
    ds_expr *perm = DS_NEW_N(ds_lower__arena(b->l), ds_expr, rank + 1);
    for (uint32_t d = 0; d <= rank; d++) {
        int64_t dim = axis;
        uint32_t swapped = from + 2 == rank ? rank - 1 : from + 1 == rank ? rank - 2 : from;
        if (d != axis) {
            if (!shifted(b, attr ? attr->items[from].expr : ds_lower__int(b->l, swapped), rank,
                         axis, &dim))
                return refuse(b, "its dims are no numbers", err);
            from++;
        }
        perm[d] = ds_lower__int(b->l, dim);
    }
    ds_build_attr_exprs(&b->l->b, b->op, "perm", perm, rank + 1);
    return put_at(b, axis, err);
}

/* Operands with the axis at one place, and the dim that is cut or joined behind or before it. */
static ds_status write_parts(batch *b, ds_error *err) {
    uint32_t axis = 0;
    for (uint32_t i = b->from->n_in; i-- > 0;)
        if (b->has[i]) axis = b->axis[i];
    for (uint32_t i = 0; i < b->from->n_in; i++) DS_TRY(move(b, i, axis, err));
    DS_TRY(shift_dim(b, "dim", rank_of(b, 0), axis, 0, err));
    return put_at(b, axis, err);
}

/* slice(%w) {lo = t, hi = t + 1}: a place a turn. */
static ds_status write_places(batch *b, ds_error *err) {
    const ds_attr *lo = ds_attr_find(b->from->attrs, b->from->n_attrs, "lo");
    const ds_attr *hi = ds_attr_find(b->from->attrs, b->from->n_attrs, "hi");
    const ds_value_info *info = ds_value_at(b->frame->func, b->from->out[0]);
    const ds_attr *dim = attr_of(b, "dim");
    ds_exprs *exprs = &b->l->c.unit->exprs;
    const ds_type *point = ds_lower__type(b->l, b->frame, info->type);
    int64_t at = 0, one;
    if (b->has[0] || !lo || !ds_lower__chunk_moves(b->rec, lo->expr) ||
        !ds_lower__chunk_moves(b->rec, hi->expr) || (dim && !ds_expr_is_int(exprs, dim->expr, &at)))
        return refuse(b, "its places depend on the turn in another way than one by one", err);
    if (at < 0) at += point->rank;
    if (!size_of(b, point, (uint32_t)at, &one) || one != 1)
        return refuse(b, "each turn reads several places", err);
    ds_build_attr_expr(&b->l->b, b->op, "hi",
                       ds_expr_fold(exprs, DS_EXPR_ADD, attr_of(b, "lo")->expr,
                                    ds_lower__int(b->l, b->rec->chunks.size)));
    DS_TRY(put(b, &(const ds_type *){NULL}, err));
    DS_TRY(view(b, result_of(b, 0), ds_lower__chunk_type(b->rec, point, (uint32_t)at), err));
    ds_lower__mark(b->rec, *result_of(b, 0), (ds_lower_mark){.axis = (uint32_t)at});
    return DS_OK;
}

static ds_status write_slice(batch *b, ds_error *err) {
    return varies(b, "lo") || varies(b, "hi") ? write_places(b, err) : write_parts(b, err);
}

static ds_status write_expand(batch *b, ds_error *err) {
    const ds_attr *dims = attr_of(b, "dims");
    uint32_t axis = b->axis[0], n = dims ? dims->n_items : 0;
    ds_expr *moved = DS_NEW_N(ds_lower__arena(b->l), ds_expr, n + 1);
    int64_t dim;
    /* Behind as many of the operand's dims as before: new dims before those push the axis on. */
    for (bool again = true; again;) {
        uint32_t before_axis = b->axis[0];
        for (uint32_t i = 0; i < n; i++)
            if (ds_expr_is_int(&b->l->c.unit->exprs, dims->items[i].expr, &dim) && dim < axis)
                before_axis++;
        again = before_axis != axis;
        axis = before_axis;
    }
    uint32_t rank = rank_of(b, 0) + n;
    for (uint32_t i = 0; i < n; i++) {
        if (!shifted(b, dims->items[i].expr, rank, axis, &dim))
            return refuse(b, "its dims are no numbers", err);
        moved[i] = ds_lower__int(b->l, dim);
    }
    ds_build_attr_exprs(&b->l->b, b->op, "dims", moved, n);
    return put_at(b, axis, err);
}

static ds_status write_stack(batch *b, ds_error *err) {
    const ds_lower_mark *mark = ds_lower__mark_of(b->rec, b->in[0]);
    const ds_attr *attr = attr_of(b, "dim");
    int64_t dim = 0;
    if (!mark->range || (attr && !ds_expr_is_int(&b->l->c.unit->exprs, attr->expr, &dim)))
        return refuse(b, "", err);
    *result_of(b, 0) = b->in[0];
    return ds_lower__chunk_move(b->rec, result_of(b, 0), (uint32_t)dim, err);
}

/* ---- sequences ---- */

/* The dims `dim` and `dim + 1` as one. */
static const ds_type *joined(const batch *b, const ds_type *type, uint32_t dim) {
    ds_type *made = ds_type_copy(ds_lower__arena(b->l), type);
    made->dims[dim].size = ds_expr_fold(&b->l->c.unit->exprs, DS_EXPR_MUL, type->dims[dim].size,
                                        type->dims[dim + 1].size);
    made->rank--;
    for (uint32_t d = dim + 1; d < made->rank; d++) made->dims[d] = type->dims[d + 1];
    return made;
}

static ds_status join(batch *b, uint32_t i, uint32_t dim, ds_error *err) {
    return view(b, &b->in[i], joined(b, ds_lower__type_of(b->l, b->in[i]), dim), err);
}

/* Writes the op over operands in which the axis and dim `dim` are one, and parts them again. */
static ds_status put_joined(batch *b, uint32_t axis, ds_error *err) {
    const ds_type **types = DS_NEW_N(ds_lower__arena(b->l), const ds_type *, b->from->n_out + 1);
    DS_TRY(put(b, types, err));
    for (uint32_t k = 0; k < b->from->n_out; k++) {
        const ds_value_info *info = ds_value_at(b->frame->func, b->from->out[k]);
        ds_type *point = ds_lower__type(b->l, b->frame, info->type);
        point->dtype = ds_lower__type_of(b->l, *result_of(b, k))->dtype;
        DS_TRY(view(b, result_of(b, k), ds_lower__chunk_type(b->rec, point, axis), err));
        ds_lower__mark(b->rec, *result_of(b, k), (ds_lower_mark){.axis = axis});
    }
    return DS_OK;
}

/* Turns as more samples: [b, turns, s, …] as [b turns, s, …]. */
static ds_status put_as_samples(batch *b, ds_error *err) {
    for (uint32_t i = 0; i < b->from->n_in; i++) {
        DS_TRY(move(b, i, 1, err));
        DS_TRY(join(b, i, 0, err));
    }
    return put_joined(b, 1, err);
}

static bool is_one(const batch *b, uint32_t i, uint32_t point_dim) {
    int64_t size;
    uint32_t d = point_dim + (b->has[i] && b->axis[i] <= point_dim);
    return size_of(b, ds_lower__type_of(b->l, b->in[i]), d, &size) && size == 1;
}

/* The place of each turn follows the one before; `start` is the chunk's first already. */
static ds_status write_rotary(batch *b, ds_error *err) {
    if (!varies(b, "start")) return put_as_samples(b, err);
    const ds_attr *start = ds_attr_find(b->from->attrs, b->from->n_attrs, "start");
    if (!ds_lower__chunk_moves(b->rec, start->expr) || !is_one(b, 0, 1))
        return refuse(b, "its places depend on the turn in another way than one by one", err);
    DS_TRY(move(b, 0, 1, err));
    DS_TRY(join(b, 0, 1, err));
    return put_joined(b, 1, err);
}

/* Keys and values that are ranges: the queries of the turns are one sequence, which ends with the
 * last key. */
static ds_status attend_ranges(batch *b, ds_error *err) {
    ds_env env = ds_binding_env(b->l->source, NULL);
    int64_t window = INT64_MAX;
    for (uint32_t i = 1; i < 3; i++) {
        const ds_lower_mark *mark = ds_lower__mark_of(b->rec, b->in[i]);
        if (!mark || !mark->range) return refuse(b, "its keys and values differ in kind", err);
        if (mark->window != ds_lower__mark_of(b->rec, b->in[1])->window)
            return refuse(b, "its keys and values are of two ranges", err);
        DS_TRY(ds_lower__chunk_move(b->rec, &b->in[i], 1, err));
        if (mark->window < window) window = mark->window;
    }
    if (attr_of(b, "q_start") || attr_of(b, "k_start") || attr_of(b, "document"))
        return refuse(b, "it is a part of an attention already", err);
    if (!is_one(b, 0, 1)) return refuse(b, "a turn has several queries", err);
    if (attr_of(b, "window")) {
        int64_t own;
        DS_TRY(ds_op_attr_int(b->from, &env, "window", &own, err));
        if (own < window) window = own;
    }
    ds_build_attr_bool(&b->l->b, b->op, "causal", true);
    if (window != INT64_MAX) ds_build_attr_int(&b->l->b, b->op, "window", window);
    DS_TRY(move(b, 0, 1, err));
    DS_TRY(join(b, 0, 1, err));
    return put_joined(b, 1, err);
}

static ds_status write_attention(batch *b, ds_error *err) {
    if (b->ranges) return attend_ranges(b, err);
    if (b->has[1] || b->has[2] || ds_op_attr_bool(b->from, "causal")) return put_as_samples(b, err);
    DS_TRY(move(b, 0, 1, err)); /* the same keys for all turns */
    DS_TRY(join(b, 0, 1, err));
    return put_joined(b, 1, err);
}

/* Leading dims are groups: each turn has groups of its own. */
static ds_status write_groups(batch *b, ds_error *err) {
    uint32_t groups = rank_of(b, 1) - 2, axis = UINT32_MAX;
    for (uint32_t i = b->from->n_in; i-- > 0;)
        if (b->has[i]) axis = b->axis[i];
    if (axis > groups) axis = groups < 1 ? groups : 1;
    for (uint32_t i = 0; i < b->from->n_in; i++) DS_TRY(move(b, i, axis, err));
    return put_at(b, axis, err);
}

/* ---- the table ---- */

typedef ds_status writer(batch *b, ds_error *err);

/* `at_turn`: an attribute that may depend on the turn. */
static const struct {
    writer *write;
    const char *at_turn[2];
} rules[] = {
    [DS_OP_ADD] = {.write = write_elementwise},
    [DS_OP_SUB] = {.write = write_elementwise},
    [DS_OP_MUL] = {.write = write_elementwise},
    [DS_OP_DIV] = {.write = write_elementwise},
    [DS_OP_SCALE] = {.write = write_elementwise},
    [DS_OP_RELU] = {.write = write_elementwise},
    [DS_OP_GELU] = {.write = write_elementwise},
    [DS_OP_SILU] = {.write = write_elementwise},
    [DS_OP_SQUARED_RELU] = {.write = write_elementwise},
    [DS_OP_TANH] = {.write = write_elementwise},
    [DS_OP_SIGMOID] = {.write = write_elementwise},
    [DS_OP_EXP] = {.write = write_elementwise},
    [DS_OP_LOG] = {.write = write_elementwise},
    [DS_OP_SQRT] = {.write = write_elementwise},
    [DS_OP_NEG] = {.write = write_elementwise},
    [DS_OP_CAST] = {.write = write_elementwise},
    [DS_OP_ACCUMULATE] = {.write = write_elementwise},
    [DS_OP_TOTAL] = {.write = write_elementwise},
    [DS_OP_BIAS] = {.write = write_bias},
    [DS_OP_DROPOUT] = {.write = write_dropout},
    [DS_OP_MATMUL] = {.write = write_matmul},
    [DS_OP_EINSUM] = {.write = write_einsum},
    [DS_OP_SOFTMAX] = {.write = write_softmax},
    [DS_OP_LAYER_NORM] = {.write = write_norm},
    [DS_OP_RMS_NORM] = {.write = write_norm},
    [DS_OP_EMBEDDING] = {.write = write_embedding},
    [DS_OP_TOPK] = {.write = write_topk},
    [DS_OP_REDUCE_SUM] = {.write = write_reduce},
    [DS_OP_REDUCE_MEAN] = {.write = write_reduce},
    [DS_OP_REDUCE_MAX] = {.write = write_reduce},
    [DS_OP_ATTENTION] = {.write = write_attention},
    [DS_OP_ROTARY] = {.write = write_rotary, .at_turn = {"start"}},
    [DS_OP_DISPATCH] = {.write = write_groups},
    [DS_OP_COMBINE] = {.write = write_groups},
    [DS_OP_RESHAPE] = {.write = write_reshape},
    [DS_OP_TRANSPOSE] = {.write = write_transpose},
    [DS_OP_STACK] = {.write = write_stack},
    [DS_OP_SLICE] = {.write = write_slice, .at_turn = {"lo", "hi"}},
    [DS_OP_PAD] = {.write = write_parts},
    [DS_OP_SPLIT] = {.write = write_parts},
    [DS_OP_CONCAT] = {.write = write_parts},
    [DS_OP_EXPAND] = {.write = write_expand},
};

/* Attributes on which the op's own turn shows. */
static ds_status check_turn(const batch *b, bool *any, ds_error *err) {
    const char *const *may = rules[b->from->code].at_turn;
    *any = false;
    for (uint32_t i = 0; i < b->from->n_attrs; i++) {
        const char *name = b->from->attrs[i].name;
        if (!varies(b, name)) continue;
        bool fine = false;
        for (int k = 0; k < 2; k++) fine = fine || (may[k] && strcmp(may[k], name) == 0);
        if (!fine)
            return refuse(
                b, ds_arena_printf(ds_lower__arena(b->l), "'%s' depends on the turn", name), err);
        *any = true;
    }
    return DS_OK;
}

static ds_status plain(batch *b, ds_error *err) {
    const ds_type **types = DS_NEW_N(ds_lower__arena(b->l), const ds_type *, b->from->n_out + 1);
    for (uint32_t k = 0; k < b->from->n_out; k++)
        types[k] = ds_lower__written(b->l, b->frame, b->from, k);
    return put(b, types, err);
}

ds_status ds_lower__batch(ds_lowering *l, ds_lower_frame *frame, const ds_op *from, ds_error *err) {
    uint32_t n = from->n_in;
    batch b = {.l = l, .rec = l->rec, .frame = frame, .from = from};
    b.in = DS_NEW_N(ds_lower__arena(l), ds_use, n + 1);
    b.has = DS_NEW_N(ds_lower__arena(l), bool, n + 1);
    b.axis = DS_NEW_N(ds_lower__arena(l), uint32_t, n + 1);
    bool any = false, at_turn;
    for (uint32_t i = 0; i < n; i++) {
        DS_TRY(ds_lower__use(l, frame, &from->in[i], &b.in[i], err));
        look(&b, i);
        any = any || b.has[i];
    }
    bool known = from->code < sizeof rules / sizeof *rules && rules[from->code].write;
    if (known) DS_TRY(check_turn(&b, &at_turn, err));
    b.op = ds_build_op(&l->b, from->code);
    b.op->loc = ds_clone_loc(&l->c, from->loc);
    ds_lower__attrs(l, frame, from->attrs, from->n_attrs, "name", &b.op->attrs, &b.op->n_attrs);
    if (!any && !(known && at_turn)) return plain(&b, err);
    if (!known) return refuse(&b, "", err);
    writer *write = rules[from->code].write;
    if (b.ranges && from->code != DS_OP_STACK && from->code != DS_OP_ATTENTION) {
        bool keeps = from->code == DS_OP_SLICE ? keeps_range(&b) : write == write_elementwise;
        return keeps && n == 1 ? write_range(&b, err)
                               : refuse(&b, "it reads a range of turns", err);
    }
    return write(&b, err);
}
