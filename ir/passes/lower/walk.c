/* The model's body in the step: calls inlined, loops kept or unrolled, ops copied.
 *
 * A frame is a function that is being inlined: the copies of its values in the step, and the names
 * of the calls that lead to the function. Inlining keeps every name in the path of an op, in the
 * name of a weight and in the key of a dropout mask: where an SSA name has to change, the old name
 * stays as the attribute `name`. */
#include "ir/passes/lower/internal.h"

#include <stdlib.h>
#include <string.h>

static ds_status walk_block(ds_lowering *l, ds_lower_frame *frame, const ds_block *block,
                            const ds_op **end, ds_error *err);

/* ---- expressions and types ---- */

/* Substitutes from the inside out, so that no index is substituted twice: a loop's new name may be
 * the old name of an inner loop, never of an outer loop. */
ds_expr ds_lower__expr(ds_lowering *l, const ds_lower_frame *frame, ds_expr e) {
    ds_expr copy = ds_clone_expr_replaced(&l->c, e);
    for (const ds_lower_loop *at = frame->loops; at && DS_HAS_EXPR(copy); at = at->frame_up)
        if (at->unrolled || at->name != at->old)
            copy = ds_expr_subst(&l->c.unit->exprs, copy, at->old, at->by);
    return copy;
}

typedef struct scope {
    ds_lowering *l;
    const ds_lower_frame *frame;
} scope;

static ds_expr in_scope(void *context, ds_expr e) {
    const scope *s = context;
    return ds_lower__expr(s->l, s->frame, e);
}

ds_type *ds_lower__type_as_is(ds_lowering *l, const ds_lower_frame *frame, const ds_type *type) {
    return ds_clone_type(&l->c, type, in_scope, &(scope){l, frame});
}

ds_type *ds_lower__type(ds_lowering *l, const ds_lower_frame *frame, const ds_type *type) {
    ds_type *copy = ds_lower__type_as_is(l, frame, type);
    if (l->narrow && copy->dtype == DS_F32) copy->dtype = l->step->train.dtype;
    return copy;
}

static bool has_hints(const ds_type *type) {
    for (uint32_t d = 0; d < type->rank; d++)
        if (type->dims[d].n_splits) return true;
    return false;
}

void ds_lower__hint(ds_lowering *l, const ds_lower_frame *frame, const ds_use *use,
                    const ds_type *type) {
    ds_value_info *info = ds_value_at(l->b.func, use->value);
    if (!type || !has_hints(type) || use->n_index || info->n_binders) return;
    if (!info->type || info->type->rank != type->rank) return;
    if (info->type_written && has_hints(info->type)) return;
    ds_type *hinted = ds_lower__type_as_is(l, frame, type);
    hinted->dtype = info->type->dtype;
    ds_lower__pad_type(l, use, hinted);
    info->type = hinted;
    info->type_written = true;
}

void ds_lower__attrs(ds_lowering *l, const ds_lower_frame *frame, const ds_attr *attrs, uint32_t n,
                     const char *without, ds_attr **out, uint32_t *n_out) {
    ds_attr *copy = DS_NEW_N(ds_lower__arena(l), ds_attr, n + 1);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (attrs[i].name && strcmp(attrs[i].name, without) == 0) continue;
        ds_clone_attr(&l->c, frame->func->module, &attrs[i], in_scope, &(scope){l, frame},
                      &copy[kept++]);
    }
    *out = copy;
    *n_out = kept;
}

/* ---- values ---- */

static ds_lower_value *value_of(const ds_lower_frame *frame, ds_value value) {
    return &frame->values[value.i];
}

/* Reads %kept{3} of an unrolled loop. */
static ds_status read_turn(ds_lowering *l, const ds_lower_frame *frame, const ds_lower_value *kept,
                           const ds_use *use, ds_use *out, ds_error *err) {
    const char *name = ds_value_at(frame->func, use->value)->name;
    int64_t turn;
    bool range = ds_use_is_range(use, 0);
    if (!use->n_index || range ||
        !ds_expr_is_int(&l->c.unit->exprs, ds_lower__expr(l, frame, use->index[0]), &turn))
        return ds_error_set(err, DS_ERR_UNSUPPORTED, use->loc,
                            "%%%s is kept by a loop of which the strategy names a single turn: the "
                            "loop is written out, so %%%s{...} can be read with a number only",
                            name, name);
    if (turn < kept->lo || turn >= kept->lo + kept->n_turns)
        return ds_error_set(err, DS_ERR_VALUE, use->loc, "%%%s{%lld} is outside %lld..%lld", name,
                            (long long)turn, (long long)kept->lo,
                            (long long)(kept->lo + kept->n_turns));
    *out = kept->turns[turn - kept->lo];
    if (use->n_index == 1) return DS_OK;
    out->n_index = use->n_index - 1;
    out->index = DS_NEW_N(ds_lower__arena(l), ds_expr, out->n_index);
    for (uint32_t i = 0; i < out->n_index; i++)
        out->index[i] = ds_lower__expr(l, frame, use->index[i + 1]);
    return DS_OK;
}

ds_status ds_lower__use(ds_lowering *l, const ds_lower_frame *frame, const ds_use *use, ds_use *out,
                        ds_error *err) {
    const ds_lower_value *value = value_of(frame, use->value);
    if (ds_lower__rec_makes(l->rec, frame, use->value))
        return ds_lower__rec_use(l->rec, use, out, err);
    if (value->turns) return read_turn(l, frame, value, use, out, err);
    *out = value->use;
    out->loc = ds_clone_loc(&l->c, use->loc);
    if (!use->n_index) return DS_OK;
    bool chunk = ds_lower__chunk_reads(l->rec, frame, use);
    uint32_t before = value->use.n_index; /* indices of loops around a rec, of the rec's weight */
    out->n_index = before + use->n_index;
    out->index = DS_NEW_N(ds_lower__arena(l), ds_expr, out->n_index);
    for (uint32_t i = 0; i < before; i++) out->index[i] = value->use.index[i];
    for (uint32_t i = 0; i < use->n_index; i++)
        out->index[before + i] = ds_lower__expr(l, frame, use->index[i]);
    if (chunk) return ds_lower__chunk_family(l->rec, use, out, err);
    if (!use->index_hi) return DS_OK;
    out->index_hi = DS_NEW_N(ds_lower__arena(l), ds_expr, out->n_index);
    for (uint32_t i = 0; i < use->n_index; i++)
        out->index_hi[before + i] = ds_lower__expr(l, frame, use->index_hi[i]);
    return DS_OK;
}

/* The copy of a use; a family of an unrolled loop is passed on whole. */
static ds_status resolve(ds_lowering *l, const ds_lower_frame *frame, const ds_use *use,
                         ds_lower_value *out, ds_error *err) {
    *out = *value_of(frame, use->value);
    if (out->turns && !use->n_index) return DS_OK;
    *out = (ds_lower_value){0};
    return ds_lower__use(l, frame, use, &out->use, err);
}

/* The name that a value asks for. Names of weights are reserved for weights. */
static const char *value_name(ds_lowering *l, const ds_lower_frame *frame, ds_value value) {
    const char *name =
        ds_clone_text(&l->c, ds_arena_printf(ds_lower__arena(l), "%s%s", frame->where.values,
                                             ds_value_at(frame->func, value)->name));
    while (ds_map_find(&l->weight_names, DS_KEY(name)))
        name = ds_clone_text(&l->c, ds_arena_printf(ds_lower__arena(l), "%s_", name));
    return name;
}

static ds_value add_out(ds_lowering *l, ds_lower_frame *frame, ds_op *op, ds_value value,
                        const ds_type *type) {
    ds_value out = ds_build_out(&l->b, op, value_name(l, frame, value), type);
    ds_value_at(l->b.func, out)->loc = ds_clone_loc(&l->c, ds_value_at(frame->func, value)->loc);
    value_of(frame, value)->use = ds_use_of(out);
    return out;
}

/* ---- dtypes ---- */

static const ds_type *type_of(ds_lowering *l, const ds_use *use) {
    return ds_use_type(l->c.unit, l->b.func, use);
}

ds_status ds_lower__cast(ds_lowering *l, ds_use *use, ds_dtype dtype, ds_error *err) {
    const ds_type *type = type_of(l, use);
    if (!type || type->dtype == dtype) return DS_OK;
    ds_op *op = ds_build_op(&l->b, DS_OP_CAST);
    op->loc = use->loc;
    ds_build_in(&l->b, op, *use);
    const char *name =
        ds_arena_printf(ds_lower__arena(l), "%s.%s", ds_value_at(l->b.func, use->value)->name,
                        ds_dtype_name(dtype));
    ds_value out = ds_build_out(&l->b, op, name, NULL);
    ds_build_attr_word(&l->b, op, "dtype", ds_dtype_name(dtype));
    DS_TRY(ds_build_put(&l->b, op, err));
    *use = ds_use_of(out);
    return DS_OK;
}

static bool is_loss(ds_opcode code) {
    return code == DS_OP_CROSS_ENTROPY || code == DS_OP_MSE;
}

/* A loss reads f32. An op that refuses operands of two widths gets all operands as f32. */
static ds_status widen(ds_lowering *l, ds_op *op, ds_error *err) {
    for (uint32_t i = 0; i < op->n_in; i++) {
        const ds_type *type = type_of(l, &op->in[i]);
        if (type && ds_dtype_is_float(type->dtype) && ds_dtype_bits(type->dtype) < 32)
            DS_TRY(ds_lower__cast(l, &op->in[i], DS_F32, err));
    }
    return DS_OK;
}

static ds_status infer(ds_lowering *l, const ds_op *op, ds_type **out, ds_error *err) {
    ds_arena *arena = ds_lower__arena(l);
    const ds_type **in = DS_NEW_N(arena, const ds_type *, op->n_in + 1);
    for (uint32_t i = 0; i < op->n_in; i++) {
        in[i] = type_of(l, &op->in[i]);
        if (!in[i])
            return ds_error_set(err, DS_ERR_INTERNAL, op->loc, "%s reads a value without a type",
                                ds_op_name(op->code));
        in[i] = ds_type_plain(arena, in[i]);
    }
    for (uint32_t i = 0; i < op->n_out; i++) {
        const ds_type *type = ds_value_at(l->b.func, op->out[i])->type;
        out[i] = type ? ds_type_plain(arena, type) : NULL;
    }
    ds_infer ctx = {.unit = l->c.unit, .func = l->b.func, .op = op, .in = in, .out = out};
    return ds_op_infer(&ctx, err);
}

/* With narrow dtypes a written type has the model's dtype: the type keeps its hints and takes the
 * inferred dtype. */
static ds_status narrow_types(ds_lowering *l, ds_op *op, ds_error *err) {
    ds_type **out = DS_NEW_N(ds_lower__arena(l), ds_type *, op->n_out + 1);
    if (is_loss(op->code)) DS_TRY(widen(l, op, err));
    if (infer(l, op, out, NULL) != DS_OK) {
        DS_TRY(widen(l, op, err));
        DS_TRY(infer(l, op, out, err));
    }
    for (uint32_t i = 0; i < op->n_out; i++) {
        ds_value_info *info = ds_value_at(l->b.func, op->out[i]);
        if (info->type && out[i]) info->type->dtype = out[i]->dtype;
    }
    return DS_OK;
}

/* ---- ops of the table ---- */

/* {key = "block.l.drop", turn = [l]}: keeps the mask that the op draws in the model. */
static void name_mask(ds_lowering *l, const ds_lower_frame *frame, const ds_op *from, ds_op *op) {
    if (ds_attr_find(from->attrs, from->n_attrs, "key") ||
        ds_attr_find(from->attrs, from->n_attrs, "seed"))
        return;
    uint32_t n = 0;
    for (const ds_lower_loop *at = l->loops; at; at = at->up) n++;
    n += l->micro_index != NULL;
    ds_expr *turns = DS_NEW_N(ds_lower__arena(l), ds_expr, n + 1);
    if (l->micro_index) turns[0] = ds_expr_index(&l->c.unit->exprs, l->micro_index);
    uint32_t k = n;
    for (const ds_lower_loop *at = l->loops; at; at = at->up) turns[--k] = at->by;
    ds_build_attr_text(&l->b, op, "key",
                       ds_arena_printf(ds_lower__arena(l), "%s%s", frame->where.key,
                                       ds_path_op_name(frame->func, from)));
    if (n) ds_build_attr_exprs(&l->b, op, "turn", turns, n);
}

/* Keeps the op's path: by the first result's name, or by the attribute `name` if the result is
 * renamed. */
static void name_op(ds_lowering *l, const ds_lower_frame *frame, const ds_op *from, ds_op *op) {
    const char *path = ds_arena_printf(ds_lower__arena(l), "%s%s", frame->where.path,
                                       ds_path_op_name(frame->func, from));
    if (strcmp(ds_path_op_name(l->b.func, op), path) != 0)
        ds_build_attr_text(&l->b, op, "name", path);
}

static bool is_weight(const ds_lowering *l, const ds_use *use) {
    const ds_value_info *info = ds_value_at(l->b.func, use->value);
    const ds_attr *role = ds_attr_find(info->attrs, info->n_attrs, "role");
    return info->is_arg && role && role->kind == DS_ATTR_WORD && strcmp(role->word, "weight") == 0;
}

/* Products of an activation and a weight in a layer, which is a turn of a loop, are computed in
 * train.product_dtype; a model's own `products` stays. A weight is converted once a step, by the
 * optimizer; an activation in every product that reads it. */
static void narrow_product(ds_lowering *l, ds_op *op) {
    ds_dtype dtype = l->step->train.product_dtype;
    bool is_product = op->code == DS_OP_MATMUL || op->code == DS_OP_EINSUM;
    if (dtype == DS_DTYPE_COUNT || !is_product || op->n_in != 2 || !l->loops) return;
    if (ds_attr_find(op->attrs, op->n_attrs, "products")) return;
    bool first = is_weight(l, &op->in[0]);
    if (first == is_weight(l, &op->in[1])) return;
    ds_build_attr_word(&l->b, op, "products", ds_dtype_name(dtype));
    ds_build_attr_int(&l->b, op, "converts", first);
}

const ds_type *ds_lower__written(ds_lowering *l, const ds_lower_frame *frame, const ds_op *from,
                                 uint32_t result) {
    const ds_value_info *info = ds_value_at(frame->func, from->out[result]);
    if (!info->type_written) return NULL;
    /* Of a cast the model writes the dtype. */
    return from->code == DS_OP_CAST ? ds_lower__type_as_is(l, frame, info->type)
                                    : ds_lower__type(l, frame, info->type);
}

ds_status ds_lower__write(ds_lowering *l, ds_lower_frame *frame, const ds_op *from, ds_op *op,
                          const ds_type *const *types, ds_error *err) {
    for (uint32_t i = 0; i < from->n_out; i++) add_out(l, frame, op, from->out[i], types[i]);
    if (op->code == DS_OP_DROPOUT) name_mask(l, frame, from, op);
    DS_TRY(ds_lower__pack(l, op, err));
    narrow_product(l, op);
    name_op(l, frame, from, op);
    if (l->narrow) DS_TRY(narrow_types(l, op, err));
    return ds_build_put(&l->b, op, err);
}

static ds_status copy_op(ds_lowering *l, ds_lower_frame *frame, const ds_op *from, ds_error *err) {
    ds_op *op = ds_build_op(&l->b, from->code);
    const ds_type **types = DS_NEW_N(ds_lower__arena(l), const ds_type *, from->n_out + 1);
    if (ds_lower__in_chunk(l->rec)) return ds_lower__batch(l, frame, from, err);
    op->loc = ds_clone_loc(&l->c, from->loc);
    for (uint32_t i = 0; i < from->n_in; i++) {
        ds_use use;
        DS_TRY(ds_lower__use(l, frame, &from->in[i], &use, err));
        ds_build_in(&l->b, op, use);
    }
    ds_lower__attrs(l, frame, from->attrs, from->n_attrs, "name", &op->attrs, &op->n_attrs);
    for (uint32_t i = 0; i < from->n_out; i++) types[i] = ds_lower__written(l, frame, from, i);
    const ds_lower_pads *pads;
    DS_TRY(ds_lower__pad_op(l, op, types, from->n_out, &pads, err));
    DS_TRY(ds_lower__write(l, frame, from, op, types, err));
    ds_lower__pad_results(l, op, pads);
    if (from->n_out != 1) return DS_OK;
    return ds_lower__adapt(l, frame, from, op, &value_of(frame, from->out[0])->use, err);
}

/* ---- weights ---- */

/* "fc.w", followed by the turns of unrolled loops: exec takes %w{3,i} and %w3_{i} for one name. */
static const char *weight_name(ds_lowering *l, const ds_lower_frame *frame, ds_value value,
                               const ds_lower_loop *const *loops, uint32_t n) {
    ds_buf text = {0};
    ds_buf_printf(&text, "%s%s", frame->where.calls, ds_value_at(frame->func, value)->name);
    uint32_t unrolled = 0;
    while (unrolled < n && loops[unrolled]->unrolled) {
        ds_buf_printf(&text, "%s%lld", unrolled ? "_" : "", (long long)loops[unrolled]->turn);
        unrolled++;
    }
    if (unrolled && unrolled < n) ds_buf_putc(&text, '_');
    const char *name = ds_clone_text(&l->c, text.text);
    ds_buf_deinit(&text);
    return name;
}

void ds_lower__add_weight(ds_lowering *l, ds_value arg) {
    const char *name = ds_value_at(l->b.func, arg)->name;
    ds_step_weight weight = {.name = name,
                             .base = name,
                             .tied = l->step->weights.n,
                             .arg = arg,
                             .grad_result = DS_NO_RESULT,
                             .new_result = DS_NO_RESULT,
                             .master = DS_NO_VALUE};
    for (uint32_t i = 0; i < 3; i++) weight.state[i] = DS_NO_VALUE;
    DS_PUSH(ds_lower__arena(l), &l->step->weights, weight);
}

static ds_status lower_weight(ds_lowering *l, ds_lower_frame *frame, const ds_op *op) {
    uint32_t n = 0, kept = 0;
    for (const ds_lower_loop *at = l->loops; at; at = at->up) n += !at->shared;
    const ds_lower_loop **loops = DS_NEW_N(ds_lower__arena(l), const ds_lower_loop *, n + 1);
    uint32_t k = n;
    for (const ds_lower_loop *at = l->loops; at; at = at->up)
        if (!at->shared) loops[--k] = at;
    const char *name = weight_name(l, frame, op->out[0], loops, n);
    ds_binder *binders = DS_NEW_N(ds_lower__arena(l), ds_binder, n + 1);
    ds_expr *index = DS_NEW_N(ds_lower__arena(l), ds_expr, n + 1);
    for (uint32_t i = 0; i < n; i++) {
        if (loops[i]->unrolled) continue;
        binders[kept] = (ds_binder){.name = loops[i]->name, .lo = loops[i]->lo, .hi = loops[i]->hi};
        index[kept++] = loops[i]->by;
    }
    ds_attr *attrs;
    uint32_t n_attrs;
    ds_lower__attrs(l, frame, op->attrs, op->n_attrs, "name", &attrs, &n_attrs);
    ds_attr *all = DS_NEW_N(ds_lower__arena(l), ds_attr, n_attrs + 3);
    uint32_t at = 0;
    if (!ds_attr_find(attrs, n_attrs, "role"))
        all[at++] = ds_attr_of_word(l->c.unit, "role", "weight");
    memcpy(all + at, attrs, n_attrs * sizeof *attrs);
    at += n_attrs;
    const ds_value_info *info = ds_value_at(frame->func, op->out[0]);
    const ds_type *type = ds_lower__type(l, frame, info->type);
    const ds_value *known = ds_lower__rec_weight(l->rec, name, NULL);
    if (known) {
        value_of(frame, op->out[0])->use =
            kept ? ds_use_at(ds_lower__arena(l), *known, index, kept) : ds_use_of(*known);
        return DS_OK;
    }
    ds_value arg = ds_build_arg(&l->b, name, type, binders, kept, all, at);
    ds_lower__rec_weight(l->rec, name, &arg);
    ds_value_info *made = ds_value_at(l->b.func, arg);
    made->loc = ds_clone_loc(&l->c, info->loc);
    if (made->name != name && !ds_attr_find(all, at, "input")) {
        /* sibling loops may hold weights of one name, and then exec draws them alike */
        ds_expr_node text = {.kind = DS_EXPR_STR, .name = name};
        all[at++] = (ds_attr){.name = ds_clone_text(&l->c, "input"),
                              .kind = DS_ATTR_EXPR,
                              .expr = ds_expr_make(&l->c.unit->exprs, text)};
        made->n_attrs = at;
    }
    ds_lower__add_weight(l, arg);
    value_of(frame, op->out[0])->use =
        kept ? ds_use_at(ds_lower__arena(l), arg, index, kept) : ds_use_of(arg);
    return DS_OK;
}

/* ---- loops ---- */

static void open_loop(ds_lowering *l, ds_lower_frame *frame, ds_lower_loop *loop) {
    loop->up = l->loops;
    loop->frame_up = frame->loops;
    l->loops = frame->loops = loop;
    frame->where.key =
        ds_arena_printf(ds_lower__arena(l), "%s%s.", frame->where.key, loop->op->index);
}

static void close_loop(ds_lowering *l, ds_lower_frame *frame, const ds_lower_loop *loop,
                       ds_lower_where where) {
    l->loops = loop->up;
    frame->loops = loop->frame_up;
    frame->where = where;
}

static const char *fresh_index(ds_lowering *l, const char *wanted) {
    const char **open = NULL;
    uint32_t n = 0;
    for (const ds_lower_loop *at = l->loops; at; at = at->up) n++;
    const char *const *names;
    uint32_t n_names = ds_lower__rec_loops(l->rec, &names);
    open = DS_NEW_N(ds_lower__arena(l), const char *, n + n_names + 2);
    n = 0;
    for (uint32_t i = 0; i < n_names; i++) open[n++] = names[i];
    if (l->micro_index) open[n++] = l->micro_index;
    for (const ds_lower_loop *at = l->loops; at; at = at->up)
        if (!at->unrolled) open[n++] = at->name;
    return ds_clone_index_name(&l->c, wanted, open, n);
}

static ds_status add_carries(ds_lowering *l, ds_lower_frame *frame, const ds_op *from, ds_op *op,
                             const ds_use *init) {
    for (uint32_t i = 0; i < from->n_args; i++) {
        const ds_value_info *info = ds_value_at(frame->func, from->args[i]);
        ds_type *type = info->type_written ? ds_lower__type(l, frame, info->type) : NULL;
        const ds_type *first = type_of(l, &init[i]);
        if (type && first) type->dtype = first->dtype;
        ds_value carry =
            ds_build_carry(&l->b, op, value_name(l, frame, from->args[i]), type, init[i]);
        ds_value_at(l->b.func, carry)->loc = ds_clone_loc(&l->c, info->loc);
        value_of(frame, from->args[i])->use = ds_use_of(carry);
    }
    return DS_OK;
}

/* Reads the uses of a yield, cast so that a carry keeps its dtype. */
static ds_status read_yield(ds_lowering *l, const ds_lower_frame *frame, const ds_op *from,
                            const ds_op *end, const ds_op *op, ds_use *out, ds_error *err) {
    for (uint32_t i = 0; end && i < end->n_in; i++) {
        DS_TRY(ds_lower__use(l, frame, &end->in[i], &out[i], err));
        DS_TRY(ds_lower__not_padded(l, out[i], "the yield of a loop", from->loc, err));
        if (i >= from->n_args || !l->narrow) continue;
        const ds_type *carry = ds_value_at(l->b.func, op->args[i])->type;
        if (carry) DS_TRY(ds_lower__cast(l, &out[i], carry->dtype, err));
    }
    return DS_OK;
}

/* Applies the hints that are written for a loop's results. */
static void hint_results(ds_lowering *l, ds_lower_frame *frame, const ds_op *from,
                         const ds_op *op) {
    for (uint32_t i = 0; i < from->n_out; i++) {
        const ds_value_info *info = ds_value_at(frame->func, from->out[i]);
        ds_value_info *made = ds_value_at(l->b.func, op->out[i]);
        value_of(frame, from->out[i])->use = ds_use_of(op->out[i]);
        if (!info->type_written || !has_hints(info->type) || !made->type) continue;
        ds_type *hinted = ds_lower__type_as_is(l, frame, info->type);
        for (uint32_t b = 0; b < info->n_binders && b < made->n_binders; b++)
            hinted = ds_type_subst(&l->c.unit->exprs, ds_lower__arena(l), hinted,
                                   ds_clone_text(&l->c, info->binders[b].name),
                                   ds_expr_index(&l->c.unit->exprs, made->binders[b].name));
        if (hinted->dtype != made->type->dtype) {
            hinted = ds_type_copy(ds_lower__arena(l), hinted);
            hinted->dtype = made->type->dtype;
        }
        made->type = hinted;
        made->type_written = true;
    }
}

static ds_status check_depth(const ds_lowering *l, const ds_op *loop, ds_error *err) {
    uint32_t n = 1;
    for (const ds_lower_loop *at = l->loops; at; at = at->up) n += !at->unrolled;
    if (n <= DS_LOWER_MAX_LOOPS) return DS_OK;
    return ds_error_set(err, DS_ERR_LIMIT, loop->loc,
                        "loops are %u deep here, calls included; a model's are at most %u", n,
                        DS_LOWER_MAX_LOOPS);
}

static ds_status keep_loop(ds_lowering *l, ds_lower_frame *frame, const ds_op *from,
                           ds_error *err) {
    if (ds_lower__in_chunk(l->rec))
        return ds_error_set(err, DS_ERR_UNSUPPORTED, from->loc,
                            "prefill = vector: a loop has no form for several turns at once");
    DS_TRY(check_depth(l, from, err));
    ds_use *init = DS_NEW_N(ds_lower__arena(l), ds_use, from->n_in + 1);
    for (uint32_t i = 0; i < from->n_in; i++) {
        DS_TRY(ds_lower__use(l, frame, &from->in[i], &init[i], err));
        DS_TRY(ds_lower__not_padded(l, init[i], "a loop", from->loc, err));
    }
    const char *name = fresh_index(l, from->index);
    ds_lower_loop loop = {.op = from,
                          .old = ds_clone_text(&l->c, from->index),
                          .name = name,
                          .by = ds_expr_index(&l->c.unit->exprs, name),
                          .lo = ds_lower__expr(l, frame, from->lo),
                          .hi = ds_lower__expr(l, frame, from->hi)};
    ds_op *op = ds_build_for(&l->b, name, loop.lo, loop.hi);
    op->loc = ds_clone_loc(&l->c, from->loc);
    if (strcmp(ds_path_loop_name(frame->func, from), name) != 0)
        ds_build_attr_text(&l->b, op, "name", ds_path_loop_name(frame->func, from));
    ds_lower_where where = frame->where;
    open_loop(l, frame, &loop);
    DS_TRY(add_carries(l, frame, from, op, init));
    const ds_op *end = NULL;
    DS_TRY(walk_block(l, frame, from->body, &end, err));
    uint32_t n = end ? end->n_in : 0, n_keep = end ? end->n_keep : 0;
    ds_use *uses = DS_NEW_N(ds_lower__arena(l), ds_use, n + 1);
    const char **names = DS_NEW_N(ds_lower__arena(l), const char *, n + 1);
    DS_TRY(read_yield(l, frame, from, end, op, uses, err));
    close_loop(l, frame, &loop, where);
    for (uint32_t i = 0; i < n && i < from->n_out; i++)
        names[i] = value_name(l, frame, from->out[i]);
    DS_TRY(ds_build_yield(&l->b, uses, n - n_keep, uses + (n - n_keep), n_keep, names, err));
    hint_results(l, frame, from, op);
    return DS_OK;
}

/* ---- loops of which an override names a turn ---- */

static ds_status bound(ds_lowering *l, const ds_lower_frame *frame, const ds_op *loop, ds_expr e,
                       int64_t *out, ds_error *err) {
    ds_expr copy = ds_lower__expr(l, frame, e);
    if (ds_expr_is_int(&l->c.unit->exprs, copy, out)) return DS_OK;
    ds_binding binding;
    DS_TRY(ds_bind(l->c.unit, NULL, 0, &binding, err));
    ds_env env = ds_binding_env(&binding, NULL);
    return ds_expr_eval_int(&env, copy, ds_clone_loc(&l->c, loop->loc), out, err);
}

static ds_status unroll_turn(ds_lowering *l, ds_lower_frame *frame, const ds_op *from, int64_t turn,
                             ds_lower_value *carry, ds_lower_value *kept, ds_error *err) {
    ds_lower_loop loop = {.op = from,
                          .old = ds_clone_text(&l->c, from->index),
                          .by = ds_expr_int(&l->c.unit->exprs, turn),
                          .unrolled = true,
                          .turn = turn};
    ds_lower_where where = frame->where;
    const char *name = ds_path_loop_name(frame->func, from);
    open_loop(l, frame, &loop);
    frame->where.values =
        ds_arena_printf(ds_lower__arena(l), "%s%s%lld.", where.values, name, (long long)turn);
    frame->where.path =
        ds_arena_printf(ds_lower__arena(l), "%s%s[%lld].", where.path, name, (long long)turn);
    for (uint32_t i = 0; i < from->n_args; i++) *value_of(frame, from->args[i]) = carry[i];
    const ds_op *end = NULL;
    DS_TRY(walk_block(l, frame, from->body, &end, err));
    for (uint32_t i = 0; end && i < end->n_in; i++) {
        ds_lower_value value, *keep = i < from->n_args ? NULL : &kept[i - from->n_args];
        DS_TRY(resolve(l, frame, &end->in[i], &value, err));
        if (!keep)
            carry[i] = value;
        else if (value.turns)
            return ds_error_set(err, DS_ERR_UNSUPPORTED, end->in[i].loc,
                                "two loops are written out for an override, and the outer one "
                                "keeps what the inner one keeps");
        else
            ((ds_use *)keep->turns)[turn - keep->lo] = value.use;
    }
    close_loop(l, frame, &loop, where);
    return DS_OK;
}

static ds_status unroll_loop(ds_lowering *l, ds_lower_frame *frame, const ds_op *from,
                             ds_error *err) {
    int64_t lo, hi;
    DS_TRY(bound(l, frame, from, from->lo, &lo, err));
    DS_TRY(bound(l, frame, from, from->hi, &hi, err));
    int64_t n = hi > lo ? hi - lo : 0;
    if (n > DS_LOWER_MAX_OPS)
        return ds_error_set(err, DS_ERR_LIMIT, from->loc,
                            "an override names one of %lld turns: too many to write out",
                            (long long)n);
    ds_lower_value *carry = DS_NEW_N(ds_lower__arena(l), ds_lower_value, from->n_args + 1);
    ds_lower_value *kept = DS_NEW_N(ds_lower__arena(l), ds_lower_value, from->n_out + 1);
    for (uint32_t i = 0; i < from->n_in; i++)
        DS_TRY(resolve(l, frame, &from->in[i], &carry[i], err));
    for (uint32_t i = 0; i < from->n_out; i++)
        kept[i] = (ds_lower_value){
            .turns = DS_NEW_N(ds_lower__arena(l), ds_use, n + 1), .lo = lo, .n_turns = n};
    for (int64_t turn = lo; turn < hi; turn++)
        DS_TRY(unroll_turn(l, frame, from, turn, carry, kept, err));
    for (uint32_t i = 0; i < from->n_out; i++)
        *value_of(frame, from->out[i]) = i < from->n_args ? carry[i] : kept[i - from->n_args];
    return DS_OK;
}

/* ---- calls ---- */

/* A call without a name, {name = ""}, has no part in the names. */
static ds_lower_where inside(ds_lowering *l, const ds_lower_where *where, const char *call) {
    ds_arena *arena = ds_lower__arena(l);
    if (!*call) return *where;
    return (ds_lower_where){.calls = ds_arena_printf(arena, "%s%s.", where->calls, call),
                            .values = ds_arena_printf(arena, "%s%s.", where->values, call),
                            .path = ds_arena_printf(arena, "%s%s.", where->path, call),
                            .key = ds_arena_printf(arena, "%s%s.", where->key, call)};
}

static ds_status inline_into(ds_lowering *l, ds_lower_frame *caller, const ds_op *call,
                             ds_lower_frame *frame, ds_error *err) {
    const ds_func *callee = call->callee;
    const ds_op *end = NULL;
    for (uint32_t i = 0; i < call->n_in; i++) {
        ds_lower_value *value = value_of(frame, callee->args[i]);
        DS_TRY(resolve(l, caller, &call->in[i], value, err));
        if (!value->turns)
            ds_lower__hint(l, frame, &value->use, ds_value_at(callee, callee->args[i])->type);
    }
    DS_TRY(walk_block(l, frame, &callee->body, &end, err));
    for (uint32_t i = 0; end && i < end->n_in && i < call->n_out; i++) {
        ds_lower_value *value = value_of(caller, call->out[i]);
        DS_TRY(resolve(l, frame, &end->in[i], value, err));
        if (!value->turns) ds_lower__hint(l, frame, &value->use, callee->results[i]);
    }
    return DS_OK;
}

static ds_status inline_call(ds_lowering *l, ds_lower_frame *caller, const ds_op *call,
                             ds_error *err) {
    ds_lower_frame frame = {.func = call->callee,
                            .where =
                                inside(l, &caller->where, ds_path_op_name(caller->func, call))};
    frame.values = ds_xcalloc(call->callee->values.n + 1, sizeof *frame.values);
    ds_status status = inline_into(l, caller, call, &frame, err);
    free(frame.values);
    return status;
}

/* ---- the walk ---- */

static ds_status walk_op(ds_lowering *l, ds_lower_frame *frame, const ds_op *op, ds_error *err) {
    if (++l->n_ops > DS_LOWER_MAX_OPS)
        return ds_error_set(err, DS_ERR_LIMIT, op->loc,
                            "written out the model has more than %u operations", DS_LOWER_MAX_OPS);
    if (op->code == DS_OP_CALL) return inline_call(l, frame, op, err);
    if (op->code == DS_OP_WEIGHT) return lower_weight(l, frame, op);
    if (op->code == DS_OP_REC) return ds_lower__rec(l, frame, op, err);
    if (op->code != DS_OP_FOR) return copy_op(l, frame, op, err);
    return ds_map_find(&l->unrolled, DS_KEY(op)) ? unroll_loop(l, frame, op, err)
                                                 : keep_loop(l, frame, op, err);
}

ds_status ds_lower__op(ds_lowering *l, ds_lower_frame *frame, const ds_op *op, ds_error *err) {
    return walk_op(l, frame, op, err);
}

static ds_status walk_block(ds_lowering *l, ds_lower_frame *frame, const ds_block *block,
                            const ds_op **end, ds_error *err) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        if (op->code == DS_OP_YIELD || op->code == DS_OP_RETURN) {
            *end = op;
            return DS_OK;
        }
        DS_TRY(walk_op(l, frame, op, err));
    }
    return DS_OK;
}

ds_status ds_lower__body(ds_lowering *l, ds_lower_frame *frame, const ds_op **end, ds_error *err) {
    *end = NULL;
    return walk_block(l, frame, &frame->func->body, end, err);
}
