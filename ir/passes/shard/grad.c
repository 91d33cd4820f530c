/* Gradients of weights: the ops that make gradients, the time of the sum over replicas, and how
 * ZeRO splits gradients, states and weights.
 *
 *   zero = 0  all_reduce, in buckets, as soon as a bucket of final gradients is full; with
 *             late_reduce, when the optimizer reads a gradient, after the whole backward pass
 *   zero = 1  states are split: the same, with a reduce_scatter in place of the all_reduce, and the
 *             new weight is gathered. late_reduce leaves a gradient that the step returns alone
 *   zero = 2  the reduce_scatter follows the op that makes the gradient, for every microbatch
 *   zero = 3  weights are split too, and gathered before each read, or once (whole.c)
 *
 * In a group with by = ps a gradient is summed on a server, device w mod n for the step's weight w, as
 * soon as it is made. The server updates the weight, and its states are there; or the sum is broadcast.
 *
 * With no_sync, ZeRO 2 and 3 scatter as ZeRO 1 does, in the last microbatch.
 *
 * (Rajbhandari et al., ZeRO, arXiv:1910.02054, figure 1 and section 7.) States are split on a dim
 * of the weight, so that a weight keeps its shape: the first dim whose parts the replicas divide
 * (dim 0 for most weights, as in PyTorch's fully_shard), so that one collective can gather a whole
 * layer. A weight without such a dim keeps its states whole. */
#include "ir/passes/shard/internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- weights and their states ---- */

static void find_in_step(ds_sharder *s) {
    for (uint32_t w = 0; w < s->step->weights.n; w++) {
        const ds_step_weight *weight = &s->step->weights.at[w];
        ds_map_put(&s->f.weights, weight->arg.i, w);
        for (uint32_t k = 0; k < weight->n_states; k++)
            ds_map_put(&s->f.states, weight->state[k].i, w);
        if (weight->master.i != UINT32_MAX) ds_map_put(&s->f.states, weight->master.i, w);
    }
}

bool ds_shard__is_weight(const ds_sharder *s, const char *name) {
    for (uint32_t w = 0; w < s->step->weights.n; w++)
        if (s->step->weights.at[w].name == name) return true;
    return false;
}

/* In a microbatch's function weights have their names of the step. */
static void find_in_part(ds_sharder *s) {
    ds_map names;
    ds_map_init(&names);
    for (uint32_t w = 0; w < s->step->weights.n; w++)
        ds_map_put(&names, DS_KEY(s->step->weights.at[w].name), w);
    for (uint32_t i = 0; i < s->f.from->n_args; i++) {
        ds_value arg = s->f.from->args[i];
        const uint64_t *w = ds_map_find(&names, DS_KEY(ds_value_at(s->f.from, arg)->name));
        if (w) ds_map_put(&s->f.weights, arg.i, *w);
    }
    ds_map_deinit(&names);
}

void ds_shard__find_weights(ds_sharder *s) {
    if (s->f.from == s->step->func)
        find_in_step(s);
    else
        find_in_part(s);
}

/* ---- where gradients are made ---- */

/* Follows a value through the loops that kept it to the result of a table op; false: the value is a
 * sum over turns, an argument, or the result of a call. */
static bool made_by_op(const ds_func *func, ds_value *value) {
    for (;;) {
        const ds_value_info *info = ds_value_at(func, *value);
        const ds_op *op = info->def;
        if (info->is_arg || !op) return false;
        if (op->code >= DS_OP_FIRST_TABLE_OP) return true;
        if (op->code != DS_OP_FOR) return false;
        uint32_t i = 0;
        while (i < op->n_out && op->out[i].i != value->i) i++;
        const ds_op *yield = ds_block_end(op->body);
        if (i < op->n_args || !yield || i >= yield->n_in) return false;
        *value = yield->in[i].value;
    }
}

/* Notes the terms of a gradient, which stay unsummed too. */
static void note_terms(ds_sharder *s, ds_value sum) {
    const ds_op *op = ds_value_at(s->f.from, sum)->def;
    if (op->code != DS_OP_ADD && op->code != DS_OP_ACCUMULATE && op->code != DS_OP_CAST) return;
    for (uint32_t i = 0; i < op->n_in; i++) {
        ds_value term = op->in[i].value;
        if (!made_by_op(s->f.from, &term) || ds_map_find(&s->f.gradients, term.i)) continue;
        ds_map_put(&s->f.gradients, term.i, DS_SHARD_TERM);
        note_terms(s, term);
    }
}

/* Notes a gradient; if it is an `after` of one operand, which marks a final gradient for the norm
 * (optimizer/clip.c), notes the operand too. */
static void note(ds_sharder *s, ds_value grad, uint32_t weight) {
    if (!made_by_op(s->f.from, &grad)) return;
    ds_map_put(&s->f.gradients, grad.i, weight + 1u);
    note_terms(s, grad);
    const ds_op *op = ds_value_at(s->f.from, grad)->def;
    if (op->code == DS_OP_AFTER && op->n_in == 1) note(s, op->in[0].value, weight);
}

/* The gradient before scaling by a clip_factor; without scaling the value itself. */
static ds_value unclipped(const ds_func *func, ds_value grad) {
    const ds_op *op = ds_value_at(func, grad)->def;
    if (!op || op->code != DS_OP_MUL) return grad;
    const ds_op *by = ds_value_at(func, op->in[1].value)->def;
    if (by && by->code == DS_OP_CAST) by = ds_value_at(func, by->in[0].value)->def;
    return by && by->code == DS_OP_CLIP_FACTOR ? op->in[0].value : grad;
}

static void find_in_block(ds_sharder *s, const ds_block *block) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        if (op->body) find_in_block(s, op->body);
        const ds_op_desc *desc = ds_op_desc_of(op->code);
        if (!desc || !(desc->flags & DS_OPF_OPTIMIZER)) continue;
        const uint64_t *weight = ds_map_find(&s->f.weights, op->in[0].value.i);
        if (weight) note(s, unclipped(s->f.from, op->in[1].value), (uint32_t)*weight);
    }
}

void ds_shard__find_gradients(ds_sharder *s) {
    const ds_model_step *step = s->step;
    find_in_block(s, &s->f.from->body);
    const ds_op *ret = ds_block_end(&s->f.from->body);
    if (!ret || ret->code != DS_OP_RETURN) return;
    for (uint32_t w = 0, n = ds_step_n_trained(step); w < n; w++) {
        /* A microbatch's function returns the model's results, then all gradients. */
        uint32_t r =
            s->f.from == step->func ? step->weights.at[w].grad_result : step->n_model_results + w;
        if (r < ret->n_in) note(s, ret->in[r].value, w);
    }
}

bool ds_shard__done_layout(const ds_sharder *s, const ds_op *op, ds_layout *out) {
    if (op->code != DS_OP_AFTER || op->n_in != 1 || s->f.from != s->step->func) return false;
    const uint64_t *found = ds_map_find(&s->f.gradients, op->out[0].i);
    if (!found || *found == DS_SHARD_TERM) return false;
    const ds_step_weight *w = &s->step->weights.at[*found - 1];
    ds_value state = w->master.i != DS_NO_VALUE.i ? w->master
                     : w->n_states                ? w->state[w->n_states - 1]
                                                  : w->arg;
    *out = ds_shard__layout(s, ds_value_at(s->f.b.func, s->f.to[state.i].value)->type);
    return true;
}

/* ---- ZeRO ---- */

/* Puts the first n of `axes` on the first dim that the parts divide. */
static bool split_equally(const ds_sharder *s, const ds_type *type, const uint8_t *axes, uint32_t n,
                          ds_layout *out) {
    int64_t parts = 1;
    for (uint32_t i = 0; i < n; i++) parts *= ds_shard__axis_size(s, out->mesh, axes[i]);
    for (uint32_t d = 0; d < out->rank && n; d++) {
        int64_t size = ds_shard__size(s, type->dims[d].size);
        if (size == 0 || size % (ds_shard__parts(s, out, d) * parts)) continue;
        for (uint32_t i = 0; i < n; i++) out->axis[d][out->n[d]++] = axes[i];
        return true;
    }
    return false;
}

/* Unequal parts cannot be split further: one axis, on a dim without axes. Of FSDP (zero = 3) the
 * longest dim, whose parts differ least; else the first. */
static void split_unequally(const ds_sharder *s, const ds_type *type, uint8_t axis,
                            ds_layout *out) {
    int64_t parts = ds_shard__axis_size(s, out->mesh, axis), longest = parts;
    uint32_t best = out->rank;
    for (uint32_t d = 0; d < out->rank; d++) {
        int64_t size = ds_shard__size(s, type->dims[d].size);
        if (out->n[d] || size <= longest) continue;
        best = d;
        longest = s->step->strategy.zero == 3 ? size : INT64_MAX;
    }
    if (best < out->rank) out->axis[best][out->n[best]++] = axis;
}

static bool is_of(const ds_logical_axis *of, uint8_t axis) {
    for (uint32_t i = 0; i < of->n; i++)
        if (of->axis[i] == axis) return true;
    return false;
}

/* Over dp · cp with zero_cp, and over dp alone where dp · cp divide no dim. */
ds_layout ds_shard__zero_layout(const ds_sharder *s, const ds_type *type, const ds_layout *home) {
    ds_layout out = *home;
    if (ds_shard__is_view(s, home->mesh)) return out; /* an override decides the layout */
    uint8_t axes[DS_SHARD_AXES] = {0};
    uint32_t n = 0, of_dp = 0;
    for (uint32_t i = 0; i < s->zero.n; i++) {
        if (ds_shard__dim_of(home, s->zero.axis[i]) >= 0) continue; /* the axis splits experts */
        axes[n++] = s->zero.axis[i];
        of_dp += !is_of(&s->logical[DS_L_CP], s->zero.axis[i]);
    }
    if (split_equally(s, type, axes, n, &out)) return out;
    if (of_dp < n && split_equally(s, type, axes, of_dp, &out)) return out;
    if (of_dp == 1 && s->step->strategy.zero_uneven) split_unequally(s, type, axes[0], &out);
    return out;
}

/* ---- buckets ---- */

/* Does the step return the gradient? */
static bool is_result(const ds_sharder *s, ds_value gradient) {
    const uint64_t *weight = ds_map_find(&s->f.gradients, gradient.i);
    return weight && s->step->weights.at[*weight - 1].grad_result != DS_NO_RESULT;
}

/* The chunk of the gradient's weight. */
static uint32_t chunk_of(const ds_sharder *s, ds_value gradient) {
    const uint64_t *weight = ds_map_find(&s->f.gradients, gradient.i);
    bool is = weight && *weight && *weight <= s->step->weights.n;
    return is ? s->step->weights.at[*weight - 1].chunk : UINT32_MAX;
}

/* Has the optimizer nothing to split, as SGD in 32 bits? A gradient that the step returns counts as
 * a state. */
static bool is_stateless(const ds_sharder *s, ds_value gradient) {
    const uint64_t *weight = ds_map_find(&s->f.gradients, gradient.i);
    if (!weight || !*weight || *weight > s->step->weights.n) return false;
    const ds_step_weight *w = &s->step->weights.at[*weight - 1];
    return !w->n_states && w->master.i == DS_NO_VALUE.i && w->grad_result == DS_NO_RESULT;
}

/* Is the gradient's chunk another chunk than the bucket's? Each chunk has its own buckets. */
static bool is_other_chunk(const ds_sharder *s, ds_value gradient) {
    uint32_t n = s->f.pending.n;
    return n && chunk_of(s, s->f.pending.at[n - 1].old) != chunk_of(s, gradient);
}

/* A gradient has the unequal parts of its states or stays whole: unequal parts cannot move to
 * another dim. The layouts differ where sequence parallelism has split the gradient of a whole
 * weight. */
static ds_status follow_states(ds_sharder *s, ds_value old, const ds_layout *whole, ds_layout *to,
                               ds_error *err) {
    const uint64_t *weight = ds_map_find(&s->f.gradients, old.i);
    ds_layout home;
    uint8_t seq;
    bool found;
    if (!s->step->strategy.zero_uneven || !weight || !*weight || *weight > s->step->weights.n)
        return DS_OK;
    const ds_step_weight *w = &s->step->weights.at[*weight - 1];
    const ds_value_info *info = ds_value_at(s->step->func, w->arg);
    DS_TRY(ds_shard__hint(s, info->type, w->name, info->loc, &home, &seq, err));
    DS_TRY(ds_shard__home(s, w->name, true, &home, &found, err));
    home.mesh = to->mesh;
    home = ds_shard__zero_layout(s, info->type, &home);
    for (uint32_t i = 0; i < s->zero.n; i++)
        if (ds_shard__dim_of(to, s->zero.axis[i]) != ds_shard__dim_of(&home, s->zero.axis[i]))
            *to = *whole;
    return DS_OK;
}

/* ---- parameter servers ---- */

/* The lie of the first reader of the weight, if a server sums its gradient. */
static const ds_shard_lie *served(const ds_sharder *s, uint32_t weight) {
    const char *name = s->step->weights.at[weight].name;
    const uint64_t *found =
        s->has_servers && s->f.places ? ds_map_find(&s->f.places->readers, DS_KEY(name)) : NULL;
    const ds_shard_lie *lie = found ? ((const ds_shard_reader *)(uintptr_t)*found)->lie : NULL;
    return lie && lie->by_server ? lie : NULL;
}

static void put_server(const ds_sharder *s, const ds_shard_lie *lie, uint32_t weight,
                       ds_layout *layout) {
    layout->server = (uint16_t)(1 + weight % ds_shard__n_devices(s, lie->mesh));
}

void ds_shard__update_at(const ds_sharder *s, uint32_t weight, ds_layout *layout) {
    const ds_shard_lie *lie = served(s, weight);
    bool split = ds_shard__dim_of(layout, 0) >= 0; /* the device of a part has its states */
    if (lie && !lie->group->sends_sums && lie->mesh == layout->mesh && !split)
        put_server(s, lie, weight, layout);
}

/* Pushes a gradient to its server; pulls the sum if all replicas update. */
static ds_status push(ds_sharder *s, const ds_shard_lie *lie, ds_value old, ds_use grad,
                      ds_error *err) {
    const uint64_t *weight = ds_map_find(&s->f.gradients, old.i);
    ds_layout sum = ds_shard__layout(s, ds_shard__type_of(s, &grad));
    sum.sum = sum.max = 0;
    ds_layout whole = sum;
    put_server(s, lie, (uint32_t)*weight - 1, &sum);
    DS_TRY(ds_shard__move(s, grad, &sum, &grad, err));
    if (lie->group->sends_sums) DS_TRY(ds_shard__move(s, grad, &whole, &grad, err));
    s->f.to[old.i] = grad;
    return DS_OK;
}

/* The lie by which a gradient goes to a server; NULL: it does not. */
static const ds_shard_lie *server_of(const ds_sharder *s, ds_value old, const ds_layout *now) {
    const uint64_t *weight = ds_map_find(&s->f.gradients, old.i);
    bool whole = weight && *weight && *weight <= s->step->weights.n;
    const ds_shard_lie *lie = whole ? served(s, (uint32_t)*weight - 1) : NULL;
    return lie && lie->mesh == now->mesh && now->sum & 1 ? lie : NULL;
}

ds_status ds_shard__gradient(ds_sharder *s, ds_value old, ds_value grad, ds_error *err) {
    int64_t zero = s->step->strategy.zero;
    const ds_type *type = ds_value_at(s->f.b.func, grad)->type;
    ds_layout now = ds_shard__layout(s, type), to = now;
    to.sum = to.max = 0;
    bool late = zero <= 1 && s->step->strategy.late_reduce && !is_result(s, old);
    bool once = zero <= 1 || s->step->strategy.no_sync;
    if (!now.sum || late || (once && !s->f.final)) return DS_OK;
    const ds_shard_lie *lie = server_of(s, old, &now);
    if (lie) return push(s, lie, old, ds_use_of(grad), err);
    ds_layout whole = to;
    if (zero >= 1 + is_stateless(s, old)) to = ds_shard__zero_layout(s, type, &to);
    DS_TRY(follow_states(s, old, &whole, &to, err));
    if (is_other_chunk(s, old)) DS_TRY(ds_shard__flush(s, err));
    double bytes = ds_shard__local_bytes(s, type, &now), waiting = bytes;
    for (uint32_t i = 0; i < s->f.pending.n; i++) waiting += s->f.pending.at[i].bytes;
    DS_HPUSH(&s->f.pending, ((ds_shard_pending){old, grad, to, bytes, false}));
    return waiting >= (double)s->step->strategy.bucket_bytes ? ds_shard__flush(s, err) : DS_OK;
}

/* The first collective of a gradient: a reduce_scatter over `over` on `dim`, or an all_reduce. */
typedef struct first_step {
    ds_opcode code; /* DS_OP_INVALID: nothing remains */
    uint8_t mesh;
    uint8_t over; /* bits */
    bool again;   /* a reduce_scatter came before */
    uint32_t dim;
} first_step;

static first_step next_step(const ds_layout *now, const ds_layout *to) {
    first_step step = {
        .code = now->sum ? DS_OP_ALL_REDUCE : DS_OP_INVALID, .mesh = now->mesh, .over = now->sum};
    for (uint32_t d = 0; d < now->rank; d++) {
        uint8_t over = 0;
        for (uint32_t i = now->n[d]; i < to->n[d]; i++) over |= (uint8_t)(1u << to->axis[d][i]);
        if (!(over & now->sum)) continue;
        return (first_step){
            .code = DS_OP_REDUCE_SCATTER, .mesh = now->mesh, .over = over & now->sum, .dim = d};
    }
    return step;
}

/* The type of a scattered gradient; written out, since inference would make parts equal. */
static ds_type *part_type(const ds_sharder *s, const ds_shard_pending *p, first_step step) {
    const ds_type *type = ds_value_at(s->f.b.func, p->grad)->type;
    ds_layout part = ds_shard__layout(s, type);
    part.sum &= (uint8_t)~step.over;
    part.n[step.dim] = p->to.n[step.dim];
    memcpy(part.axis[step.dim], p->to.axis[step.dim], sizeof part.axis[step.dim]);
    return ds_shard__type(s, type, &part);
}

static bool same_step(const first_step *a, const first_step *b) {
    return a->code == b->code && a->mesh == b->mesh && a->over == b->over && a->dim == b->dim &&
           a->again == b->again;
}

static first_step step_of(const ds_sharder *s, const ds_shard_pending *p) {
    const ds_use use = ds_use_of(p->grad);
    ds_layout now = ds_shard__layout(s, ds_shard__type_of(s, &use));
    first_step step = next_step(&now, &p->to);
    step.again = p->scattered;
    return step;
}

/* Launches one collective for all pending gradients with this step. */
static ds_status launch(ds_sharder *s, first_step step, const ds_shard_pending *first,
                        ds_error *err) {
    ds_builder *b = &s->f.b;
    const ds_shard_mesh *mesh = &s->meshes.at[step.mesh];
    ds_op *op = ds_build_op(b, step.code);
    op->over = DS_NEW_N(&s->unit->arena, const char *, mesh->n_axes);
    int d = step.code == DS_OP_REDUCE_SCATTER ? (int)step.dim : -1;
    for (uint32_t a = 0; d < 0 && a < mesh->n_axes; a++)
        if (step.over & (1u << a)) op->over[op->n_over++] = mesh->axes[a].name;
    for (uint32_t i = 0; d >= 0 && i < first->to.n[d]; i++) /* in the order of the splits */
        if (step.over & (1u << first->to.axis[d][i]))
            op->over[op->n_over++] = mesh->axes[first->to.axis[d][i]].name;
    if (d >= 0) op->dim = ds_expr_int(&s->unit->exprs, d);
    ds_shard_value like = {0};
    DS_VEC(uint32_t) members = {0};
    for (uint32_t i = 0; i < s->f.pending.n; i++) {
        ds_shard_pending *p = &s->f.pending.at[i];
        first_step its = step_of(s, p);
        if (!same_step(&its, &step)) continue;
        ds_build_in(b, op, ds_use_of(p->grad));
        DS_HPUSH(&members, i);
    }
    bool padded = false;
    for (uint32_t k = 0; k < members.n; k++) {
        const char *name = ds_value_at(b->func, s->f.pending.at[members.at[k]].grad)->name;
        const char *text = ds_arena_join(&s->unit->arena, name, d >= 0 ? ".part" : ".sum");
        bool written = d >= 0 && s->step->strategy.zero_uneven;
        ds_type *type = written ? part_type(s, &s->f.pending.at[members.at[k]], step) : NULL;
        padded = padded || (type && ds_shard__is_cut_unequally(type));
        ds_build_out(b, op, text, type);
    }
    if (padded) ds_build_attr_bool(b, op, "padded", true);
    /* The sum of parts over cp or tp waits for the scatter over dp. On the stream of the layers'
     * own collectives over these axes the next layer would wait, too. */
    if (step.again) ds_build_attr_text(b, op, "stream", "gradients");
    ds_status status = ds_shard__put(s, op, &like, err);
    for (uint32_t k = 0; k < members.n; k++) {
        ds_shard_pending *p = &s->f.pending.at[members.at[k]];
        p->grad = op->out[k];
        p->scattered = p->scattered || d >= 0;
        s->f.to[p->old.i] = ds_use_of(p->grad);
    }
    free(members.at);
    return status;
}

ds_status ds_shard__flush(ds_sharder *s, ds_error *err) {
    for (uint32_t i = 0; i < s->f.pending.n;) {
        first_step step = step_of(s, &s->f.pending.at[i]);
        if (step.code == DS_OP_INVALID) {
            i++;
            continue;
        }
        DS_TRY(launch(s, step, &s->f.pending.at[i], err));
    }
    s->f.pending.n = 0;
    return DS_OK;
}
