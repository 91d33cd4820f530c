/* The walk of the partitioner: op after op, loops included, in program order.
 *
 * For each op the partitioner chooses layouts of operands (choose.c) and moves the operands
 * (move.c); the op table infers the results.
 *
 * A carry has one layout at every turn: the layout that the body gives it, else the layout of its
 * initial value. So a body may be walked several times, and only the last walk stays. Zeros cost
 * nothing in any layout, so zeros are made when an op's choice has settled their layout. */
#include "ir/passes/shard/internal.h"

/* ---- facts about values ---- */

const ds_type *ds_shard__type_of(const ds_sharder *s, const ds_use *use) {
    return ds_use_type(s->unit, s->f.b.func, use);
}

ds_shard_value *ds_shard__value(ds_sharder *s, ds_value value) {
    while (s->f.info.n <= value.i) DS_HPUSH(&s->f.info, ((ds_shard_value){0}));
    return &s->f.info.at[value.i];
}

ds_status ds_shard__put(ds_sharder *s, ds_op *op, const ds_shard_value *like, ds_error *err) {
    for (uint32_t i = 0; i < op->n_out; i++) {
        ds_shard_value *value = ds_shard__value(s, op->out[i]);
        *value = *like;
        value->twin = 0;
    }
    return ds_build_put(&s->f.b, op, err);
}

static ds_layout layout_of(ds_sharder *s, ds_use use) {
    return ds_shard__layout(s, ds_shard__type_of(s, &use));
}

void ds_shard__define(ds_sharder *s, ds_value old, ds_value made) {
    s->f.to[old.i] = ds_use_of(made);
    s->f.state[old.i] = DS_SHARD_MADE;
}

/* ---- reading ---- */

static bool is_pending(const ds_sharder *s, ds_value old) {
    for (uint32_t i = 0; i < s->f.pending.n; i++)
        if (s->f.pending.at[i].old.i == old.i) return true;
    return false;
}

static ds_status make_zeros(ds_sharder *s, ds_value old, const ds_layout *layout, ds_use *out,
                            ds_error *err) {
    const ds_value_info *info = ds_value_at(s->f.from, old);
    ds_op *op = ds_build_op(&s->f.b, DS_OP_ZEROS);
    if (info->def && info->def->code == DS_OP_ZEROS) {
        op->attrs = info->def->attrs;
        op->n_attrs = info->def->n_attrs;
    }
    ds_build_out(&s->f.b, op, info->name, ds_shard__type(s, info->type, layout));
    *out = ds_use_of(op->out[0]);
    return ds_shard__put(s, op, &(ds_shard_value){0}, err);
}

/* The new use of an old use; zeros are made whole. */
ds_status ds_shard__read(ds_sharder *s, const ds_use *old, ds_use *out, ds_error *err) {
    if (is_pending(s, old->value)) DS_TRY(ds_shard__flush(s, err));
    if (s->f.state[old->value.i] == DS_SHARD_ZEROS) {
        ds_layout whole = ds_shard__whole(s, ds_value_at(s->f.from, old->value)->type->rank);
        return make_zeros(s, old->value, &whole, out, err);
    }
    *out = *old;
    out->value = s->f.to[old->value.i].value;
    return DS_OK;
}

/* ---- going back ---- */

typedef struct saved {
    ds_build_mark mark;
    uint32_t n_moved, n_pending;
    bool backward;
} saved;

static saved save(const ds_sharder *s) {
    return (saved){ds_build_here(&s->f.b), s->f.moved.n, s->f.pending.n, s->f.backward};
}

/* The number of moves to keep of the n known before: none if the backward pass has begun since,
 * because it forgets earlier moves and overwrites their entries. */
static uint32_t moves_of(const ds_sharder *s, uint32_t n, bool backward) {
    return s->f.backward == backward ? n : 0;
}

static void go_back(ds_sharder *s, const saved *at) {
    ds_build_back(&s->f.b, at->mark);
    if (s->f.info.n > at->mark.n_values) s->f.info.n = at->mark.n_values;
    s->f.moved.n = moves_of(s, at->n_moved, at->backward);
    s->f.pending.n = at->n_pending;
    s->f.backward = at->backward;
}

/* ---- table ops ---- */

ds_status ds_shard__resolve(ds_sharder *s, ds_use use, ds_use *out, ds_error *err) {
    *out = ds_shard__resolved(s, use);
    ds_layout now = layout_of(s, *out);
    if (!now.sum && !now.max) return DS_OK;
    ds_layout to = ds_shard__resolve_layout(s, &now, ds_shard__value(s, use.value)->seq,
                                            ds_shard__type_of(s, out));
    return ds_shard__move(s, *out, &to, out, err);
}

static bool is_optimizer(const ds_op *op) {
    return ds_op_desc_of(op->code)->flags & DS_OPF_OPTIMIZER;
}

/* Gathers a weight that ZeRO splits to the layout of its hint. */
static ds_status gather_weight(ds_sharder *s, ds_use *use, ds_error *err) {
    *use = ds_shard__whole_weight(s, *use);
    const ds_shard_value *info = ds_shard__value(s, use->value);
    if (!info->weight) return DS_OK;
    ds_layout home = info->home;
    return ds_shard__move(s, *use, &home, use, err);
}

static ds_use as_remembered(ds_sharder *s, ds_use use) {
    const ds_shard_value *value = ds_shard__value(s, use.value);
    if (value->twin && !value->keep_both) use.value.i = value->twin - 1;
    return use;
}

static bool is_zeros(const ds_sharder *s, const ds_use *old) {
    return s->f.state[old->value.i] == DS_SHARD_ZEROS;
}

/* Reads the operands in their present layouts; makes zeros only if `zeros`, as stand-ins. */
static ds_status operands(ds_sharder *s, const ds_op *op, bool zeros, ds_use *in, ds_error *err) {
    for (uint32_t i = 0; i < op->n_in; i++) {
        if (!zeros && is_zeros(s, &op->in[i])) continue;
        DS_TRY(ds_shard__read(s, &op->in[i], &in[i], err));
        if (s->f.backward) in[i] = as_remembered(s, in[i]);
        if (!is_optimizer(op)) DS_TRY(gather_weight(s, &in[i], err));
        in[i] = ds_shard__is_lazy(op->code) ? in[i] : ds_shard__resolved(s, in[i]);
    }
    return DS_OK;
}

static ds_status move_operands(ds_sharder *s, const ds_op *op, const ds_shard_choice *choice,
                               ds_use *in, ds_error *err) {
    for (uint32_t i = 0; i < op->n_in; i++) {
        const ds_layout *to = &choice->in[i < DS_MAX_OPERANDS ? i : DS_MAX_OPERANDS - 1];
        if (is_zeros(s, &op->in[i]))
            DS_TRY(make_zeros(s, op->in[i].value, to, &in[i], err));
        else
            DS_TRY(ds_shard__move(s, in[i], to, &in[i], err));
    }
    return DS_OK;
}

/* Does inference take the op's result type from the text? The wanted type is then written. */
static bool takes_written_type(const ds_op *op) {
    return op->code == DS_OP_CAST || op->code == DS_OP_EXPAND || op->code == DS_OP_FILL ||
           op->code == DS_OP_EMBEDDING_GRAD;
}

static void copy_shape(ds_sharder *s, const ds_op *old, ds_op *op) {
    if (old->code != DS_OP_RESHAPE || ds_attr_find(old->attrs, old->n_attrs, "shape")) return;
    const ds_type *type = ds_value_at(s->f.from, old->out[0])->type;
    ds_expr dims[DS_MAX_RANK];
    for (uint32_t d = 0; d < type->rank; d++) dims[d] = type->dims[d].size;
    ds_build_attr_exprs(&s->f.b, op, "shape", dims, type->rank);
}

/* Puts the op; the op keeps the array `in`. */
static ds_status emit(ds_sharder *s, const ds_op *old, ds_use *in, const ds_shard_choice *choice,
                      ds_op **out, ds_error *err) {
    ds_builder *b = &s->f.b;
    ds_op *op = ds_build_op(b, old->code);
    op->loc = old->loc;
    op->attrs = old->attrs;
    op->n_attrs = old->n_attrs;
    op->in = in;
    op->n_in = old->n_in;
    for (uint32_t i = 0; i < old->n_out; i++) {
        const ds_value_info *info = ds_value_at(s->f.from, old->out[i]);
        ds_layout layout = choice->out[0];
        if (old->code == DS_OP_CAST) layout.sum = choice->in[0].sum, layout.max = choice->in[0].max;
        const ds_type *written =
            takes_written_type(old) ? ds_shard__type(s, info->type, &layout) : NULL;
        ds_build_out(b, op, info->name, written);
    }
    copy_shape(s, old, op);
    *out = op;
    return ds_shard__put(s, op, &(ds_shard_value){0}, err);
}

/* Carries facts about operands over to the results. */
static ds_status know_results(ds_sharder *s, const ds_op *old, const ds_use *in,
                              const ds_value *made, const ds_shard_choice *choice, ds_error *err) {
    for (uint32_t i = 0; i < old->n_out; i++) {
        const ds_value_info *info = ds_value_at(s->f.from, old->out[i]);
        ds_shard_value *value = ds_shard__value(s, made[i]);
        ds_layout hint;
        DS_TRY(ds_shard__hint(s, info->type, info->name, info->loc, &hint, &value->seq, err));
        if (i < DS_MAX_OPERANDS) value->seq |= choice->seq[i];
        if (old->code != DS_OP_CAST) continue;
        const ds_shard_value *from = ds_shard__value(s, in[0].value);
        uint32_t weight = from->weight;
        ds_layout home = from->home;
        value = ds_shard__value(s, made[i]);
        value->weight = weight;
        value->home = home;
    }
    return DS_OK;
}

/* Moves an updated weight to the weight's layout. */
static ds_status settle_update(ds_sharder *s, const ds_op *old, ds_value made,
                               const ds_layout *weight, ds_error *err) {
    ds_use moved;
    DS_TRY(ds_shard__move(s, ds_use_of(made), weight, &moved, err));
    s->f.to[old->out[0].i] = moved;
    return DS_OK;
}

static ds_status choose_layouts(ds_sharder *s, const ds_op *old, const ds_use *in,
                                ds_shard_choice *choice, ds_error *err) {
    bool exact;
    if (!old->n_in) {
        choice->out[0] = ds_shard__whole(s, ds_value_at(s->f.from, old->out[0])->type->rank);
        return DS_OK;
    }
    if (is_optimizer(old)) { /* states are not moved */
        ds_layout states = layout_of(s, in[old->n_in > 2 ? old->n_in - 1 : 0]);
        const uint64_t *weight = ds_map_find(&s->f.weights, old->in[0].value.i);
        if (weight) ds_shard__update_at(s, (uint32_t)*weight, &states);
        for (uint32_t i = 0; i < DS_MAX_OPERANDS; i++) choice->in[i] = choice->out[i] = states;
        return DS_OK;
    }
    ds_layout done;
    if (ds_shard__done_layout(s, old, &done)) {
        choice->in[0] = choice->out[0] = done;
        return DS_OK;
    }
    if (old->code == DS_OP_TOTAL) return DS_OK; /* total.c */
    const ds_shard_lie *lie = ds_shard__lie(s, old, &exact);
    bool means = exact;
    if (lie && !exact) DS_TRY(ds_shard__means(s, old, lie, &means, err));
    if (lie && means) return ds_shard__forced(s, old, lie, exact, choice, err);
    return ds_shard__choose(s, old, in, choice, err);
}

/* Ops that become several ops; *made stays NULL if the op stays one op. */
static ds_status rewrite(ds_sharder *s, const ds_op *old, ds_use *in, const ds_shard_choice *choice,
                         const ds_value **made, ds_error *err) {
    switch (old->code) {
    case DS_OP_ATTENTION:
    case DS_OP_ATTENTION_GRAD:
        return ds_shard__attention(s, old, in, choice, made, err);
    case DS_OP_CROSS_ENTROPY:
        return ds_shard__loss(s, old, in, choice, made, err);
    case DS_OP_TOTAL:
        return ds_shard__total(s, old, in, made, err);
    default:
        return DS_OK;
    }
}

static bool is_gradient(const ds_sharder *s, ds_value old) {
    const uint64_t *found = ds_map_find(&s->f.gradients, old.i);
    return found && *found != DS_SHARD_TERM;
}

/* What was moved is moved again in the backward pass, but for values on other devices, and weights
 * outside of loops with reshard_after_forward = layers. */
static void forget_moved(ds_sharder *s) {
    const ds_strategy *st = &s->step->strategy;
    uint32_t n = 0;
    bool keeps = st->zero == 3 && st->reshard_after == DS_RESHARD_LAYERS && !s->f.loops;
    for (uint32_t i = 0; i < s->f.moved.n; i++) {
        const ds_shard_moved moved = s->f.moved.at[i];
        uint8_t from = layout_of(s, moved.from).mesh, to = moved.layout.mesh;
        bool crossed = from != to && (s->meshes.at[from].apart || s->meshes.at[to].apart);
        if (crossed || (keeps && ds_shard__value(s, moved.from.value)->weight))
            s->f.moved.at[n++] = moved;
    }
    s->f.moved.n = n;
}

static ds_status table_op(ds_sharder *s, const ds_op *old, ds_error *err) {
    ds_use *in = DS_NEW_N(&s->unit->arena, ds_use, old->n_in + 1);
    ds_shard_choice choice = {0};
    const ds_value *made = NULL;
    if (!s->f.backward && (ds_op_desc_of(old->code)->flags & DS_OPF_BACKWARD)) {
        s->f.backward = true;
        forget_moved(s);
    }
    if (old->code == DS_OP_ZEROS) {
        s->f.state[old->out[0].i] = DS_SHARD_ZEROS;
        return DS_OK;
    }
    bool zeros = false;
    for (uint32_t i = 0; i < old->n_in; i++) {
        zeros = zeros || is_zeros(s, &old->in[i]);
        if (is_pending(s, old->in[i].value)) DS_TRY(ds_shard__flush(s, err));
    }
    saved before = save(s);
    DS_TRY(operands(s, old, true, in, err));
    ds_layout first = old->n_in ? layout_of(s, in[0]) : ds_shard__whole(s, 0);
    DS_TRY(choose_layouts(s, old, in, &choice, err));
    if (zeros) { /* zeros were stand-ins for the choice */
        go_back(s, &before);
        DS_TRY(operands(s, old, false, in, err));
    }
    if (!zeros) DS_TRY(rewrite(s, old, in, &choice, &made, err));
    if (!made) {
        ds_op *op;
        DS_TRY(move_operands(s, old, &choice, in, err));
        DS_TRY(emit(s, old, in, &choice, &op, err));
        made = op->out;
    }
    DS_TRY(know_results(s, old, in, made, &choice, err));
    for (uint32_t i = 0; i < old->n_out; i++) {
        ds_shard__define(s, old->out[i], made[i]);
        if (is_gradient(s, old->out[i])) DS_TRY(ds_shard__gradient(s, old->out[i], made[i], err));
    }
    return is_optimizer(old) ? settle_update(s, old, made[0], &first, err) : DS_OK;
}

/* ---- loops ---- */

typedef struct carried {
    ds_layout layout;
    bool known; /* false: zeros, until the body gives a layout */
    bool zeros; /* the initial value is zeros, which may have any layout, partial too */
    uint8_t seq;
} carried;

static ds_status first_layouts(ds_sharder *s, const ds_op *loop, carried *carry, ds_error *err) {
    for (uint32_t i = 0; i < loop->n_in; i++) {
        ds_use init;
        ds_layout hint;
        const ds_value_info *arg = ds_value_at(s->f.from, loop->args[i]);
        DS_TRY(ds_shard__hint(s, arg->type, arg->name, arg->loc, &hint, &carry[i].seq, err));
        carry[i].zeros = is_zeros(s, &loop->in[i]);
        if (carry[i].zeros) continue;
        DS_TRY(ds_shard__read(s, &loop->in[i], &init, err));
        DS_TRY(ds_shard__resolve(s, init, &init, err));
        carry[i].layout = layout_of(s, init);
        carry[i].seq |= ds_shard__value(s, init.value)->seq;
        carry[i].known = true;
        for (uint32_t d = 0; d < hint.rank; d++)
            if (hint.n[d] && ds_shard__dim_of(&carry[i].layout, hint.axis[d][0]) < 0 &&
                !ds_shard__follows(s))
                carry[i].layout = hint;
    }
    return DS_OK;
}

static ds_status move_inits(ds_sharder *s, const ds_op *loop, const carried *carry, ds_use *init,
                            ds_error *err) {
    for (uint32_t i = 0; i < loop->n_in; i++) {
        if (carry[i].zeros) {
            ds_layout whole =
                ds_shard__whole(s, ds_value_at(s->f.from, loop->in[i].value)->type->rank);
            const ds_layout *to = carry[i].known ? &carry[i].layout : &whole;
            DS_TRY(make_zeros(s, loop->in[i].value, to, &init[i], err));
        } else {
            DS_TRY(ds_shard__read(s, &loop->in[i], &init[i], err));
            DS_TRY(ds_shard__resolve(s, init[i], &init[i], err));
            DS_TRY(ds_shard__move(s, init[i], &carry[i].layout, &init[i], err));
        }
    }
    return DS_OK;
}

/* In the first walk a carry that starts from zeros is zeros itself: the body gives the layout. */
static void open_loop(ds_sharder *s, const ds_op *old, const carried *carry, const ds_use *init) {
    ds_op *loop = ds_build_for(&s->f.b, old->index, old->lo, old->hi);
    loop->loc = old->loc;
    loop->attrs = old->attrs;
    loop->n_attrs = old->n_attrs;
    for (uint32_t i = 0; i < old->n_in; i++) {
        const ds_value_info *arg = ds_value_at(s->f.from, old->args[i]);
        s->f.state[old->args[i].i] = DS_SHARD_ZEROS;
        if (!carry[i].known) continue;
        const ds_type *type = ds_shard__type(s, arg->type, &carry[i].layout);
        ds_value value = ds_build_carry(&s->f.b, loop, arg->name, type, init[i]);
        ds_shard__value(s, value)->seq = carry[i].seq;
        ds_shard__define(s, old->args[i], value);
    }
}

/* Does each carry end a turn in the layout in which it began? If not, sets the layout to the body's
 * and *again. */
static ds_status settle(ds_sharder *s, const ds_op *yield, carried *carry, uint32_t n, bool *again,
                        ds_error *err) {
    *again = false;
    for (uint32_t i = 0; i < n; i++) {
        ds_use next;
        bool zeros = is_zeros(s, &yield->in[i]);
        DS_TRY(ds_shard__read(s, &yield->in[i], &next, err));
        next = ds_shard__resolved(s, next);
        const ds_type *type = ds_shard__type_of(s, &next);
        ds_layout now = ds_shard__layout(s, type);
        uint8_t seq = ds_shard__value(s, next.value)->seq | carry[i].seq;
        if (!carry[i].zeros) now = ds_shard__resolve_layout(s, &now, seq, type);
        if (carry[i].known && (zeros || ds_shard__same_layout(&now, &carry[i].layout))) continue;
        carry[i].layout = now;
        carry[i].seq = seq;
        carry[i].known = true;
        *again = true;
    }
    return DS_OK;
}

/* Keeps a value in the layout that the backward pass reads, in place of the value or beside it.
 * Beside it, known->twin is the twin's place among the *n results. */
static void keep_twin(ds_sharder *s, ds_use *use, ds_shard_value *known, ds_use *uses,
                      uint32_t *n) {
    const ds_shard_value *value = ds_shard__value(s, use->value);
    if (!value->twin) return;
    ds_use twin = *use;
    twin.value.i = value->twin - 1;
    known->keep_both = value->keep_both;
    if (!value->keep_both) {
        *use = twin;
        return;
    }
    known->twin = *n;
    uses[(*n)++] = twin;
}

/* Ends the loop. A kept value keeps its layout, even as a term of a sum, unless the sum exists
 * already. */
static ds_status end_loop(ds_sharder *s, const ds_op *old, const ds_op *yield, const carried *carry,
                          ds_error *err) {
    ds_use *uses = DS_NEW_N(&s->unit->arena, ds_use, 2 * yield->n_in + 1);
    const char **names = DS_NEW_N(&s->unit->arena, const char *, 2 * yield->n_in + 1);
    ds_shard_value *known = DS_NEW_N(&s->unit->arena, ds_shard_value, yield->n_in + 1);
    uint32_t n_next = old->n_args, n = yield->n_in;
    for (uint32_t i = 0; i < yield->n_in; i++) {
        DS_TRY(ds_shard__read(s, &yield->in[i], &uses[i], err));
        uses[i] = ds_shard__resolved(s, uses[i]);
        if (i < n_next) DS_TRY(ds_shard__move(s, uses[i], &carry[i].layout, &uses[i], err));
        known[i].seq = i < n_next ? carry[i].seq : ds_shard__value(s, uses[i].value)->seq;
        names[i] = ds_value_at(s->f.from, old->out[i])->name;
        if (i >= n_next) keep_twin(s, &uses[i], &known[i], uses, &n);
    }
    ds_op *loop = NULL;
    DS_TRY(ds_build_yield(&s->f.b, uses, n_next, uses + n_next, n - n_next, names, err));
    loop = ds_build_last(&s->f.b);
    for (uint32_t i = 0; i < yield->n_in; i++) {
        if (known[i].twin) known[i].twin = loop->out[known[i].twin].i + 1;
        *ds_shard__value(s, loop->out[i]) = known[i];
        ds_shard__define(s, old->out[i], loop->out[i]);
    }
    return DS_OK;
}

#define MAX_WALKS 3 /* that may be undone: for zeros, for layouts, for layouts that follow */

static ds_status for_op(ds_sharder *s, const ds_op *old, ds_error *err) {
    carried *carry = DS_NEW_N(&s->unit->arena, carried, old->n_in + 1);
    ds_use *init = DS_NEW_N(&s->unit->arena, ds_use, old->n_in + 1);
    const ds_op *yield = ds_block_end(old->body);
    DS_TRY(ds_shard__flush(s, err));
    DS_TRY(first_layouts(s, old, carry, err));
    saved before = save(s);
    for (uint32_t walk = 0;; walk++) {
        bool again = false;
        DS_TRY(move_inits(s, old, carry, init, err));
        uint32_t n_moved = s->f.moved.n;
        open_loop(s, old, carry, init);
        const ds_path_loop inside = {ds_path_loop_name(s->f.from, old), DS_ANY_TURN, s->f.loops};
        s->f.loops = &inside;
        ds_status status = ds_shard__walk(s, old->body, err);
        s->f.loops = inside.up;
        if (status != DS_OK) return status;
        DS_TRY(ds_shard__flush(s, err));
        if (!yield || yield->code != DS_OP_YIELD)
            return ds_error_set(err, DS_ERR_UNSUPPORTED, old->loc, "a loop without a yield");
        if (walk < MAX_WALKS) DS_TRY(settle(s, yield, carry, old->n_args, &again, err));
        if (again) {
            go_back(s, &before);
            continue;
        }
        DS_TRY(end_loop(s, old, yield, carry, err));
        s->f.moved.n = moves_of(s, n_moved, before.backward); /* not what was moved inside */
        return DS_OK;
    }
}

/* ---- blocks ---- */

static ds_status walk_op(ds_sharder *s, const ds_op *op, ds_error *err) {
    switch (op->code) {
    case DS_OP_FOR:
        return for_op(s, op, err);
    case DS_OP_CALL:
        return ds_shard__call(s, op, err);
    case DS_OP_YIELD:
    case DS_OP_RETURN:
        return DS_OK;
    case DS_OP_WEIGHT:
    case DS_OP_LOCAL:
        return ds_error_set(err, DS_ERR_UNSUPPORTED, op->loc,
                            "'%s' cannot be split: shard works on what `lower` makes",
                            ds_op_name(op->code));
    default:
        return table_op(s, op, err);
    }
}

ds_status ds_shard__walk(ds_sharder *s, const ds_block *block, ds_error *err) {
    bool stages = s->mesh_of_chunk && !s->f.loops; /* loops are not cut: all of one is on a stage */
    for (uint32_t i = 0; i < block->n_ops; i++) {
        if (stages) DS_TRY(ds_shard__enter(s, block->ops[i], err));
        DS_TRY(walk_op(s, block->ops[i], err));
        if (stages) ds_shard__leave(s);
    }
    return DS_OK;
}
