/* The communication of ZeRO: units that are gathered together, and the waits between units.
 *
 * `shard` gathers a weight that ZeRO splits (zero = 3) before the op that reads the weight. The
 * gather's operand is ready from the beginning, so without waits all layers would be gathered as
 * soon as links are free, and memory would hold the whole model. Gathers would also queue after the
 * reductions of gradients. This pass joins gathers to units, as FSDP's wrapped modules do (Zhao et
 * al., PyTorch FSDP, arXiv:2304.11277, sections 3.2 and 3.3):
 *
 *   unit     the weights that one turn of a loop reads; outside of loops neighbours, up to a
 *            bucket's bytes. One collective gathers the weights over the same axes and dim.
 *   begin    a unit begins when all carries of its turn are ready; outside of loops, when the
 *            activation of the first op that reads one of its weights is ready. The microbatch
 *            before must have ended, too.
 *   wait     with prefetch = k a unit's gathers start no earlier than the k-th unit before begins,
 *            `after(%w, %begun)`: memory holds at most k + 1 units. k = 0: than the unit itself.
 *   stream   gathers run beside the reductions of gradients: {stream = "gather"}.
 *
 * A beginning is a value %begun, a view of an argument, which owns no bytes and takes no time.
 * Loops carry the last k beginnings, from the forward to the backward pass, and arguments and
 * results of a microbatch's function pass them to the next microbatch.
 *
 * With zero = 1 and 2 new weights are gathered after the optimizer. Gradients are scattered before
 * the optimizer with 1, in each microbatch with 2 and 3. Neighbours among these collectives are
 * joined up to a bucket's bytes.
 *
 * Works in place, on functions of explicit programs. */
#include "ir/base/map.h"
#include "ir/passes/build/edit.h"
#include "ir/passes/overlap/internal.h"
#include "ir/passes/passes.h"
#include "ir/strategy/scenario.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The values that are ready when a unit has ended. */
typedef struct ends {
    const ds_use *at;
    uint32_t n;
} ends;

/* Beginnings of the last k units, the latest first; value UINT32_MAX: none. */
typedef struct queue {
    ds_use *at;
} queue;

/* The beginnings of one stage of a pipeline, saved while another stage is current. */
typedef struct chain {
    bool begun;
    ds_use ready;
    ends end;
    queue queue;
} chain;

typedef struct overlap {
    ds_model_step *step;
    ds_edit edit;
    ds_unit *unit;
    ds_func *func;
    ds_map weights; /* values that are weights, or casts and views of one */
    ds_map updates; /* values that updates read */
    ds_map tokens;  /* carries that are beginnings */
    ds_map held;    /* gathers and reloads that have been handled */
    ds_map terms;   /* values that are added to the gradients of earlier microbatches */
    ds_map *begins; /* functions that take and give beginnings → 1 + the argument that is base */
    ds_use base;    /* the value of which beginnings are views */
    ds_use ready;   /* the microbatch before has ended; value UINT32_MAX: none before */
    ends end;       /* of the last unit so far */
    uint32_t k;     /* prefetch */
    bool stays, root; /* weights stay gathered until the backward pass; those outside of loops do */
    chain *chains;    /* by stage; NULL: one for all that the function holds back */
    uint32_t stage;   /* the current stage */
} overlap;

static bool is_none(const ds_use *use) {
    return use->value.i == UINT32_MAX;
}

/* ---- changing functions in place ---- */

static ds_arena *arena_of(const overlap *o) {
    return &o->unit->arena;
}

/* A copy with room for one more element at the end, because arrays may be shared. */
static void *one_more(ds_arena *arena, void *array, uint32_t n, size_t size) {
    return ds_room_insert(&(ds_room){0}, arena, array, n, n, size);
}

static const ds_type *type_of(const overlap *o, const ds_use *use) {
    return ds_edit_type(&o->edit, use);
}

/* ---- weights ---- */

static bool is_weight(const overlap *o, const ds_use *use) {
    return ds_map_find(&o->weights, use->value.i) != NULL;
}

static void find_in_block(overlap *o, const ds_block *block) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        bool same = op->code == DS_OP_CAST || op->code == DS_OP_RESHAPE ||
                    op->code == DS_OP_AFTER || op->code == DS_OP_RELOAD;
        if (same && is_weight(o, &op->in[0])) ds_map_put(&o->weights, op->out[0].i, 1);
        if (op->code == DS_OP_ACCUMULATE) ds_map_put(&o->terms, op->in[1].value.i, 1);
        if (op->body) find_in_block(o, op->body);
    }
}

static void find_values(overlap *o) {
    for (uint32_t i = 0; i < o->func->n_args; i++) {
        const ds_value_info *arg = ds_value_at(o->func, o->func->args[i]);
        const ds_attr *role = ds_attr_find(arg->attrs, arg->n_attrs, "role");
        if (role && role->word && strcmp(role->word, "weight") == 0)
            ds_map_put(&o->weights, o->func->args[i].i, 1);
    }
    find_in_block(o, &o->func->body);
}

static bool gathers_weights(const overlap *o, const ds_op *op) {
    if (op->code != DS_OP_ALL_GATHER || !op->n_over) return false;
    for (uint32_t i = 0; i < op->n_in; i++)
        if (!is_weight(o, &op->in[i])) return false;
    return true;
}

/* Is the op a reload for a turn or an op of the model? Reloads for updates wait in host.c. */
static bool reloads(const overlap *o, const ds_op *op) {
    return op->code == DS_OP_RELOAD && !ds_map_find(&o->updates, op->out[0].i);
}

static bool fetches(const overlap *o, const ds_op *op) {
    return reloads(o, op) || gathers_weights(o, op);
}

/* Does the op gather a reloaded weight? Such a gather waits for its reload alone. */
static bool gathers_reloaded(const overlap *o, const ds_op *op) {
    const ds_op *def = gathers_weights(o, op) ? ds_value_at(o->func, op->in[0].value)->def : NULL;
    return def && def->code == DS_OP_RELOAD;
}

/* Does the op call a function that takes and gives beginnings? */
static bool calls_fetches(const overlap *o, const ds_op *op) {
    return op->code == DS_OP_CALL && ds_map_find(o->begins, DS_KEY(op->callee));
}

static bool fetches_inside(const overlap *o, const ds_block *block) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        if (fetches(o, op) || calls_fetches(o, op) ||
            (op->code == DS_OP_FOR && fetches_inside(o, op->body)))
            return true;
    }
    return false;
}

/* ---- joining collectives ---- */

/* Bytes of one device's part; sizes that a loop's index changes count as 1. */
static double local_bytes(const overlap *o, const ds_type *type) {
    ds_env env = ds_binding_env(&o->step->binding, NULL);
    double bytes = (double)ds_dtype_bits(type->dtype) / 8;
    const ds_mesh *mesh = ds_overlap__mesh(o->step, o->func, &type->on);
    for (uint32_t d = 0; d < type->rank; d++) {
        int64_t size;
        if (ds_expr_eval_int(&env, type->dims[d].size, DS_NOWHERE, &size, NULL) == DS_OK)
            bytes *= (double)size;
        for (uint32_t s = 0; mesh && s < type->dims[d].n_splits; s++)
            for (uint32_t a = 0; a < mesh->n_axes; a++)
                if (mesh->axes[a].name == type->dims[d].splits[s].axis &&
                    ds_expr_eval_int(&env, mesh->axes[a].size, DS_NOWHERE, &size, NULL) == DS_OK)
                    bytes /= (double)size;
    }
    return bytes;
}

/* The larger of the bytes of operands and of results. */
static double moved_bytes(const overlap *o, const ds_op *op) {
    double in = 0, out = 0;
    for (uint32_t i = 0; i < op->n_in; i++) in += local_bytes(o, type_of(o, &op->in[i]));
    for (uint32_t i = 0; i < op->n_out; i++)
        out += local_bytes(o, ds_value_at(o->func, op->out[i])->type);
    return fmax(in, out);
}

static bool same_collective(const overlap *o, const ds_op *a, const ds_op *b) {
    if (a->code != b->code || a->n_over != b->n_over) return false;
    for (uint32_t i = 0; i < a->n_over; i++)
        if (a->over[i] != b->over[i]) return false;
    if (DS_HAS_EXPR(a->dim) && ds_expr_equal(&o->unit->exprs, a->dim, b->dim) != DS_YES)
        return false;
    if (ds_op_attr_bool(a, "padded") != ds_op_attr_bool(b, "padded")) return false;
    return ds_place_equal(&o->unit->exprs, &type_of(o, &a->in[0])->on,
                          &type_of(o, &b->in[0])->on) == DS_YES;
}

/* Is an operand of the op made by the block's ops from `from` on? */
static bool reads_from(const ds_block *block, uint32_t from, uint32_t to, const ds_op *op) {
    for (uint32_t i = from; i < to; i++)
        for (uint32_t k = 0; k < block->ops[i]->n_out; k++)
            for (uint32_t j = 0; j < op->n_in; j++)
                if (op->in[j].value.i == block->ops[i]->out[k].i) return true;
    return false;
}

static bool reads(const ds_op *op, const ds_op *made) {
    for (uint32_t i = 0; i < op->n_in; i++)
        for (uint32_t k = 0; k < made->n_out; k++)
            if (op->in[i].value.i == made->out[k].i) return true;
    for (uint32_t i = 0; op->body && i < op->body->n_ops; i++)
        if (reads(op->body->ops[i], made)) return true;
    return false;
}

static bool read_between(const ds_block *block, uint32_t a, uint32_t b) {
    for (uint32_t i = a + 1; i < b; i++)
        if (reads(block->ops[i], block->ops[a])) return true;
    return false;
}

static void append_operands(overlap *o, ds_op *to, const ds_op *op) {
    for (uint32_t i = 0; i < op->n_in; i++)
        ds_edit_insert_use(&o->edit, &to->in, &to->n_in, to->n_in, op->in[i]);
    for (uint32_t i = 0; i < op->n_out; i++) {
        ds_edit_insert_value(&o->edit, &to->out, &to->n_out, to->n_out, op->out[i]);
        ds_value_at(o->func, op->out[i])->def = to;
    }
}

/* Can op i wait until op j? The readers in between must be sums that no op before j reads. */
static bool can_wait(const ds_block *block, uint32_t i, uint32_t j) {
    for (uint32_t k = i + 1; k < j; k++) {
        if (!reads(block->ops[k], block->ops[i])) continue;
        if (block->ops[k]->code != DS_OP_ACCUMULATE || read_between(block, k, j)) return false;
    }
    return true;
}

/* Moves op i to position j, with the ops that read op i after it. */
static void sink(overlap *o, ds_block *block, uint32_t i, uint32_t j) {
    uint32_t n = 0, at = i;
    ds_op *op = block->ops[i], **readers = DS_NEW_N(arena_of(o), ds_op *, j - i + 1);
    for (uint32_t k = i + 1; k <= j; k++) {
        if (reads(block->ops[k], op))
            readers[n++] = block->ops[k];
        else
            block->ops[at++] = block->ops[k];
    }
    block->ops[at++] = op;
    if (n) memcpy(&block->ops[at], readers, n * sizeof *readers);
}

/* Joins op j of the block to op i < j: at i if j's operands are ready there, else at j if no op
 * before j needs i's results. */
static bool join_ops(overlap *o, ds_block *block, uint32_t i, uint32_t j) {
    ds_op *a = block->ops[i], *b = block->ops[j];
    bool early = !reads_from(block, i, j, b);
    if (!early && !can_wait(block, i, j)) return false;
    append_operands(o, a, b);
    ds_edit_remove_op(block, j);
    if (!early) sink(o, block, i, j - 1);
    return true;
}

typedef bool (*wanted_fn)(const overlap *o, const ds_op *op);

/* Do both ops move one value? The backward pass gathers a weight again. */
static bool shares_operand(const ds_op *a, const ds_op *b) {
    for (uint32_t i = 0; i < a->n_in; i++)
        for (uint32_t j = 0; j < b->n_in; j++)
            if (a->in[i].value.i == b->in[j].value.i) return true;
    return false;
}

/* Joins neighbours among the wanted ops, up to `limit` bytes. Ops on two sides of a loop are no
 * neighbours. */
static void join_all(overlap *o, ds_block *block, wanted_fn wanted, double limit) {
    for (uint32_t i = 0; i < block->n_ops;) {
        ds_op *first = block->ops[i];
        double bytes = wanted(o, first) ? moved_bytes(o, first) : INFINITY;
        uint32_t j = i + 1;
        while (bytes < limit && j < block->n_ops && !block->ops[j]->body) {
            const ds_op *op = block->ops[j];
            bool joins = wanted(o, op) && same_collective(o, first, op);
            if (joins && shares_operand(first, op)) break;
            double more = joins ? moved_bytes(o, op) : 0;
            if (joins && bytes + more <= limit && join_ops(o, block, i, j))
                bytes += more;
            else
                j++;
            if (block->ops[i] != first) break; /* `first` has moved down, and is met again */
        }
        if (block->ops[i] == first) i++;
    }
}

/* Does the op scatter one microbatch's gradient, which is added to gradients before? */
static bool scatters_term(const overlap *o, const ds_op *op) {
    if (op->code != DS_OP_REDUCE_SCATTER || !op->n_over) return false;
    for (uint32_t i = 0; i < op->n_out; i++)
        if (!ds_map_find(&o->terms, op->out[i].i)) return false;
    return true;
}

static bool is_zero_collective(const overlap *o, const ds_op *op) {
    (void)o;
    return (op->code == DS_OP_ALL_GATHER || op->code == DS_OP_REDUCE_SCATTER ||
            op->code == DS_OP_ALL_REDUCE) &&
           op->n_over;
}

static bool updates(const ds_block *block) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op_desc *desc = ds_op_desc_of(block->ops[i]->code);
        if (desc && desc->flags & DS_OPF_OPTIMIZER) return true;
    }
    return false;
}

static void make_buckets(overlap *o, ds_block *block, bool turn) {
    double bucket = (double)o->step->strategy.bucket_bytes;
    join_all(o, block, gathers_weights, turn ? INFINITY : bucket);
    join_all(o, block, scatters_term, bucket);
    if (updates(block)) join_all(o, block, is_zero_collective, bucket);
    for (uint32_t i = 0; i < block->n_ops; i++)
        if (block->ops[i]->code == DS_OP_FOR) make_buckets(o, block->ops[i]->body, true);
}

/* ---- waits ---- */

static void set_stream(overlap *o, ds_op *gather) {
    ds_attr stream = {.name = ds_intern(&o->unit->strings, "stream"), .kind = DS_ATTR_EXPR};
    stream.expr = ds_expr_make(
        &o->unit->exprs,
        (ds_expr_node){.kind = DS_EXPR_STR, .name = ds_intern(&o->unit->strings, "gather")});
    gather->attrs = one_more(arena_of(o), gather->attrs, gather->n_attrs, sizeof stream);
    gather->attrs[gather->n_attrs++] = stream;
}

/* Makes the fetch at `at` wait for `uses`; a gather gets its own stream. Returns the number of ops
 * put before the fetch. */
static uint32_t hold(overlap *o, ds_block *block, uint32_t at, const ds_use *uses, uint32_t n) {
    ds_op *fetch = block->ops[at];
    ds_map_put(&o->held, DS_KEY(fetch), 1);
    if (fetch->code == DS_OP_ALL_GATHER) set_stream(o, fetch);
    if (n == 0 || is_none(&uses[0]) || gathers_reloaded(o, fetch)) return 0;
    const char *name = ds_value_at(o->func, fetch->in[0].value)->name;
    ds_op *after =
        ds_edit_after(&o->edit, ds_arena_printf(arena_of(o), "%s.held", name), fetch->in[0]);
    for (uint32_t i = 0; i < n; i++) ds_edit_wait(&o->edit, after, uses[i]);
    if (is_weight(o, &fetch->in[0])) ds_map_put(&o->weights, after->out[0].i, 1);
    fetch->in[0] = ds_use_of(after->out[0]);
    ds_edit_insert_op(&o->edit, block, at, after);
    return 1;
}

/* Adds a beginning: a unit has begun when `uses` are ready. */
static void push(overlap *o, ds_block *block, uint32_t at, const ds_use *uses, uint32_t n,
                 queue *q) {
    ds_op *begun = ds_edit_after(&o->edit, "begun", o->base);
    for (uint32_t i = 0; i < n; i++) ds_edit_wait(&o->edit, begun, uses[i]);
    ds_edit_insert_op(&o->edit, block, at, begun);
    memmove(q->at + 1, q->at, (o->k - 1) * sizeof *q->at);
    q->at[0] = ds_use_of(begun->out[0]);
}

/* The operand of an op that is no weight, fetched or not. */
static const ds_use *activation(const overlap *o, const ds_op *op) {
    for (uint32_t i = 0; i < op->n_in; i++) {
        const ds_op *def = ds_value_at(o->func, op->in[i].value)->def;
        bool fetched = def && fetches(o, def);
        if (!fetched && !is_weight(o, &op->in[i])) return &op->in[i];
    }
    return NULL;
}

/* Does op i read the value fetched at `at`, directly or gathered in between? */
static bool reads_fetched(const overlap *o, const ds_block *block, uint32_t at, uint32_t i) {
    const ds_op *op = block->ops[i], *fetch = block->ops[at];
    if (op->code < DS_OP_FIRST_TABLE_OP) return false;
    bool does = reads(op, fetch);
    for (uint32_t g = at + 1; g < i && !does; g++)
        does = gathers_weights(o, block->ops[g]) && reads(block->ops[g], fetch) &&
               reads(op, block->ops[g]);
    return does;
}

/* The first op after `at` that reads the value fetched there and an activation. */
static uint32_t first_reader(const overlap *o, const ds_block *block, uint32_t at) {
    uint32_t i = at + 1;
    while (i < block->n_ops && !(reads_fetched(o, block, at, i) && activation(o, block->ops[i])))
        i++;
    return i;
}

static void hold_loop(overlap *o, ds_op *loop, queue *q);

static ds_use or_base(const overlap *o, ds_use use) {
    return is_none(&use) ? o->base : use;
}

/* Passes a beginning through the call at `*at`, as one more operand and one more result of base's
 * type. A beginning of another type becomes a view of `base` by an op before the call. */
static ds_use pass_through(overlap *o, ds_block *block, uint32_t *at, ds_use base, ds_use use) {
    ds_op *call = block->ops[*at];
    const ds_type *type = type_of(o, &base);
    use = is_none(&use) ? base : use;
    if (ds_type_equal(&o->unit->exprs, type_of(o, &use), type) != DS_YES) {
        ds_op *view = ds_edit_after(&o->edit, "begun", base);
        ds_edit_wait(&o->edit, view, use);
        ds_edit_insert_op(&o->edit, block, (*at)++, view);
        use = ds_use_of(view->out[0]);
    }
    ds_edit_insert_use(&o->edit, &call->in, &call->n_in, call->n_in, use);
    ds_value out = ds_edit_value(&o->edit, "begun", type, call, false);
    ds_edit_insert_value(&o->edit, &call->out, &call->n_out, call->n_out, out);
    return ds_use_of(out);
}

/* Passes the beginnings of the microbatch before to a microbatch's call. */
static void hold_call(overlap *o, ds_block *block, uint32_t *at, queue *q) {
    const ds_op *call = block->ops[*at];
    ds_use base = call->in[*ds_map_find(o->begins, DS_KEY(call->callee)) - 1];
    for (uint32_t i = 0; i < o->k; i++) q->at[i] = pass_through(o, block, at, base, q->at[i]);
    o->ready = pass_through(o, block, at, base, o->ready);
}

/* Adds the waits inside the op at `*at`. */
static void hold_region(overlap *o, ds_block *block, uint32_t *at, queue *q) {
    ds_op *op = block->ops[*at];
    if (calls_fetches(o, op)) hold_call(o, block, at, q);
    if (op->code == DS_OP_FOR && fetches_inside(o, op->body)) hold_loop(o, op, q);
}

/* ---- stages ---- */

/* Makes the op's stage current: each stage has its own beginnings. */
static void enter_stage(overlap *o, const ds_block *block, uint32_t at, queue *q) {
    const ds_op *op = block->ops[at];
    uint32_t stage = o->chains ? ds_overlap__stage(o->step, o->func, op, o->stage) : o->stage;
    if (stage == o->stage) return;
    if (o->stage != UINT32_MAX) o->chains[o->stage] = (chain){true, o->ready, o->end, *q};
    o->stage = stage;
    chain *next = &o->chains[stage];
    if (!next->begun) {
        *next = (chain){.queue = {DS_NEW_N(arena_of(o), ds_use, o->k + 1)}};
        next->ready.value.i = UINT32_MAX;
        for (uint32_t i = 0; i < o->k; i++) next->queue.at[i].value.i = UINT32_MAX;
    }
    o->base = ds_overlap__base(o->step, o->func, stage, at);
    o->ready = next->ready;
    o->end = next->end;
    *q = next->queue;
}

/* Moves the gather at i right before its reader. */
static void move_down(ds_block *block, uint32_t i, uint32_t reader) {
    ds_op *gather = block->ops[i];
    memmove(&block->ops[i], &block->ops[i + 1], (reader - 1 - i) * sizeof gather);
    block->ops[reader - 1] = gather;
}

static void set_end(overlap *o, const ds_value *values, uint32_t n) {
    ds_use *end = DS_NEW_N(arena_of(o), ds_use, n + 1);
    for (uint32_t i = 0; i < n; i++) end[i] = ds_use_of(values[i]);
    o->end = (ends){end, n};
}

/* The position of the op that makes the value; n_ops: not in the block. */
static uint32_t made_at(const overlap *o, const ds_block *block, const ds_use *use) {
    const ds_op *def = is_none(use) ? NULL : ds_value_at(o->func, use->value)->def;
    uint32_t i = 0;
    while (i < block->n_ops && block->ops[i] != def) i++;
    return i;
}

/* The first op after `at` that reads a result of that op, gathers too. */
static uint32_t first_use(const ds_block *block, uint32_t at) {
    uint32_t i = at + 1;
    while (i < block->n_ops && !reads(block->ops[i], block->ops[at])) i++;
    return i;
}

/* Adds the waits of a unit outside of loops: one gather or one reload. Returns the next
 * position. */
static uint32_t hold_unit(overlap *o, ds_block *block, uint32_t i, queue *q) {
    if (gathers_reloaded(o, block->ops[i])) return i + 1 + hold(o, block, i, NULL, 0);
    uint32_t reader = first_reader(o, block, i);
    uint32_t begun = o->k ? made_at(o, block, &q->at[o->k - 1]) : block->n_ops;
    if (begun > i && begun < first_use(block, i)) { /* its unit is read later: move after */
        move_down(block, i, begun + 1);
        return i;
    }
    if (begun > i && begun < block->n_ops) { /* the awaited unit begins after this reader */
        hold(o, block, i, NULL, 0);
        return i + 1;
    }
    if (reader == block->n_ops) return i + 1 + (o->k ? hold(o, block, i, &q->at[o->k - 1], 1) : 0);
    const ds_op *op = block->ops[reader];
    const ds_use begin[] = {*activation(o, op), o->ready};
    uint32_t n = is_none(&o->ready) ? 1 : 2;
    set_end(o, op->out, 1);
    if (o->k == 0 && first_use(block, i) < reader) { /* gathered in between: do not move */
        uint32_t made = made_at(o, block, &begin[0]);
        return i + 1 + hold(o, block, i, begin, made < i || made == block->n_ops ? n : 0);
    }
    if (o->k == 0) {
        move_down(block, i, reader);
        hold(o, block, reader - 1, begin, n);
        return i; /* with the op now at i */
    }
    uint32_t before = hold(o, block, i, &q->at[o->k - 1], 1);
    push(o, block, reader + before, begin, n, q);
    return i + before + 1;
}

static void hold_straight(overlap *o, ds_block *block, queue *q) {
    for (uint32_t i = 0; i < block->n_ops;) {
        enter_stage(o, block, i, q);
        hold_region(o, block, &i, q);
        ds_op *op = block->ops[i];
        bool held = ds_map_find(&o->held, DS_KEY(op)) != NULL;
        i = fetches(o, op) && !held ? hold_unit(o, block, i, q) : i + 1;
    }
}

/* Adds the waits of a turn, which is a unit: all its fetches wait for the k-th turn before or, with
 * k = 0, for its own `begin`. */
static void hold_turn(overlap *o, ds_block *body, const ds_use *begin, uint32_t n, queue *q) {
    const ds_use *wait = o->k ? &q->at[o->k - 1] : begin;
    uint32_t n_wait = o->k ? 1 : n;
    bool is_unit = false;
    for (uint32_t i = 0; i < body->n_ops; i++) {
        if (!fetches(o, body->ops[i])) continue;
        i += hold(o, body, i, wait, n_wait);
        is_unit = true;
    }
    if (is_unit && o->k && n) push(o, body, 0, begin, n, q);
    for (uint32_t i = 0; i < body->n_ops; i++) hold_region(o, body, &i, q);
}

/* Adds the waits of a loop, which carries the last k beginnings. A turn begins when its carries are
 * ready. */
static void hold_loop(overlap *o, ds_op *loop, queue *q) {
    uint32_t n = loop->n_args, n_begin = n;
    ds_use *begin = DS_NEW_N(arena_of(o), ds_use, n + 1);
    for (uint32_t i = 0; i < n; i++) begin[i] = ds_use_of(loop->args[i]);
    if (n && !is_none(&o->ready)) begin[n_begin++] = o->ready;
    for (uint32_t i = 0; i < o->k; i++) {
        q->at[i] = ds_edit_carry(&o->edit, loop, n + i, "begun", or_base(o, q->at[i]));
        ds_map_put(&o->tokens, q->at[i].value.i, 1);
    }
    const ends before = o->end;
    hold_turn(o, loop->body, begin, n_begin, q);
    o->end = before; /* values inside end with the turn */
    for (uint32_t i = 0; i < o->k; i++)
        q->at[i] = ds_edit_yield(&o->edit, loop, n + i, "begun", q->at[i]);
    if (n) set_end(o, loop->out, n);
}

/* ---- the pass ---- */

/* The first argument that is no family, so that its type is the same in every turn. */
static uint32_t plain_arg(const ds_func *func) {
    uint32_t i = 0;
    while (i < func->n_args && ds_value_at(func, func->args[i])->n_binders) i++;
    return i;
}

/* Chooses the base: a callee's base; else a plain argument, else the first argument's first
 * element. */
static ds_use choose_base(overlap *o) {
    const ds_func *func = o->func;
    for (uint32_t i = 0; i < func->body.n_ops; i++) {
        const ds_op *op = func->body.ops[i];
        const uint64_t *arg =
            calls_fetches(o, op) ? ds_map_find(o->begins, DS_KEY(op->callee)) : NULL;
        if (arg) return op->in[*arg - 1];
    }
    uint32_t plain = plain_arg(func);
    if (plain < func->n_args) return ds_use_of(func->args[plain]);
    const ds_value_info *arg = ds_value_at(func, func->args[0]);
    ds_expr *index = DS_NEW_N(arena_of(o), ds_expr, arg->n_binders);
    for (uint32_t b = 0; b < arg->n_binders; b++) index[b] = arg->binders[b].lo;
    return ds_use_at(arena_of(o), func->args[0], index, arg->n_binders);
}

static ds_use add_arg(overlap *o) {
    ds_value arg = ds_edit_value(&o->edit, "begun", type_of(o, &o->base), NULL, true);
    ds_edit_insert_value(&o->edit, &o->func->args, &o->func->n_args, o->func->n_args, arg);
    return ds_use_of(arg);
}

static void add_result(overlap *o, ds_use use) {
    ds_func *func = o->func;
    ds_arena *arena = arena_of(o);
    ds_op *ret = func->body.ops[func->body.n_ops - 1];
    uint32_t n = func->n_results++;
    ds_edit_insert_use(&o->edit, &ret->in, &ret->n_in, n, use);
    func->results = one_more(arena, func->results, n, sizeof(ds_type *));
    func->results[n] = (ds_type *)type_of(o, &use);
    func->result_binders = one_more(arena, func->result_binders, n, sizeof(ds_binder *));
    func->result_binders[n] = NULL;
    func->n_result_binders = one_more(arena, func->n_result_binders, n, sizeof(uint32_t));
    func->n_result_binders[n] = 0;
}

/* Adds a microbatch's results: its last beginnings, and a view that waits for its end. */
static void add_results(overlap *o, const queue *q) {
    ds_op *ended = ds_edit_after(&o->edit, "begun", o->base);
    for (uint32_t i = 0; i < o->end.n; i++) ds_edit_wait(&o->edit, ended, o->end.at[i]);
    ds_edit_insert_op(&o->edit, &o->func->body, o->func->body.n_ops - 1, ended);
    for (uint32_t i = 0; i < o->k; i++) add_result(o, q->at[i]);
    add_result(o, ds_use_of(ended->out[0]));
}

/* Weights that stay gathered wait for the end of the microbatch before, or for nothing. */
static void hold_whole(overlap *o, ds_block *block, queue *q) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        ds_op *op = block->ops[i];
        if (o->stays && calls_fetches(o, op)) hold_call(o, block, &i, q);
        if (gathers_weights(o, op)) i += hold(o, block, i, &o->ready, 1);
        if (op->code == DS_OP_FOR && !o->stays) return;
        if (op->code != DS_OP_FOR) continue;
        if (op->n_args) set_end(o, op->out, op->n_args);
        hold_whole(o, op->body, q);
    }
}

static void hold_back(overlap *o) {
    queue q = {DS_NEW_N(arena_of(o), ds_use, o->k + 1)};
    uint32_t plain = plain_arg(o->func);
    bool called = o->func != o->step->func && plain < o->func->n_args;
    if (!fetches_inside(o, &o->func->body)) return;
    o->ready.value.i = UINT32_MAX;
    for (uint32_t i = 0; i < o->k; i++) q.at[i].value.i = UINT32_MAX;
    for (uint32_t i = 0; called && i < o->k; i++) q.at[i] = add_arg(o);
    if (called) o->ready = add_arg(o);
    uint32_t n_stages = ds_overlap__n_stages(o->step, o->func);
    if (n_stages > 1) {
        o->chains = ds_xcalloc(n_stages, sizeof *o->chains);
        o->stage = UINT32_MAX;
    }
    if (o->stays || o->root) hold_whole(o, &o->func->body, &q);
    if (!o->stays) hold_straight(o, &o->func->body, &q);
    free(o->chains);
    if (!called) return;
    add_results(o, &q);
    ds_map_put(o->begins, DS_KEY(o->func), plain + 1u);
}

static void overlap_func(ds_model_step *step, ds_func *func, ds_map *begins) {
    const ds_strategy *strategy = &step->strategy;
    overlap o = {.step = step, .unit = step->unit, .func = func, .begins = begins};
    ds_map *maps[] = {&o.weights, &o.terms, &o.updates, &o.tokens, &o.held};
    o.stays = strategy->zero == 3 && strategy->reshard_after == DS_RESHARD_NEVER;
    o.root = strategy->zero == 3 && strategy->reshard_after == DS_RESHARD_ROOT;
    o.k = o.stays ? 0 : (uint32_t)strategy->prefetch;
    ds_edit_init(&o.edit, step->unit, func);
    for (uint32_t i = 0; i < sizeof maps / sizeof *maps; i++) ds_map_init(maps[i]);
    find_values(&o);
    ds_mark_updates(&func->body, &o.updates);
    if (strategy->zero) make_buckets(&o, &func->body, false);
    if (strategy->zero == 3 || strategy->offload) {
        o.base = choose_base(&o);
        hold_back(&o);
    }
    if (strategy->offload) ds_overlap__hold_host(step, &o.edit, o.base, &o.updates, &o.tokens);
    for (uint32_t i = 0; i < sizeof maps / sizeof *maps; i++) ds_map_deinit(maps[i]);
    ds_edit_deinit(&o.edit);
}

/* Handles the step last, because its calls depend on the functions' new arguments and results. */
static void overlap_state(ds_model_step *step) {
    const ds_module *module = step->unit->modules.at[0];
    ds_map begins;
    ds_map_init(&begins);
    for (uint32_t i = 0; i < module->funcs.n; i++)
        if (module->funcs.at[i] != step->func) overlap_func(step, module->funcs.at[i], &begins);
    overlap_func(step, step->func, &begins);
    ds_map_deinit(&begins);
}

ds_status ds_pass_overlap(ds_model_step *step, ds_error *err) {
    const ds_module *module = step->unit->modules.at[0];
    const ds_strategy *strategy = &step->strategy;
    if (!(step->done & 1u << DS_PASS_SHARD))
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "overlap: nothing is sharded: shard runs first");
    if (strategy->zero || strategy->offload) overlap_state(step);
    for (uint32_t i = 0; strategy->tp_overlap && i < module->funcs.n; i++)
        DS_TRY(ds_overlap__tp(step, module->funcs.at[i], err));
    for (uint32_t i = 0; i < module->funcs.n; i++)
        if (strategy->ep_overlap || strategy->ep_dispatch)
            ds_overlap__ep(step, module->funcs.at[i]);
    return DS_OK;
}
