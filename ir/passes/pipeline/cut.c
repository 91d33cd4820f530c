/* Cutting a part: a chunk and a phase for every op of the function's own level.
 *
 * The anchor of an op is the chunk of the weights, or sums of gradients, that the op reads. A
 * forward op belongs to the latest of its anchor and its operands' chunks. An op of the backward
 * pass belongs to its anchor. Without an anchor, an op on which only gradients of weights depend
 * belongs to their chunk; any other op belongs to the earliest chunk among the gradients that the
 * op reads and the latest forward value. So values flow to later chunks in F, and to earlier chunks
 * in B. */
#include "ir/ops/ops.h"
#include "ir/passes/build/copy.h"
#include "ir/passes/pipeline/internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct cutter {
    const ds_pipe_context *c;
    ds_pipe_part *part;
    const ds_func *func;
    uint32_t backward; /* first op of the backward pass */
    bool split;
    bool *wgrad_op; /* by op: only gradients of weights depend on it */
    bool *wgrad;    /* by value */
    uint32_t *goal; /* by value: chunk of the gradients that depend on it, or NONE */
    ds_map seconds; /* loops that `split` made for W */
    uint32_t *like; /* by value made of weights alone: chunk of these weights */
} cutter;

static ds_arena *arena_of(const cutter *x) {
    return &x->c->unit->arena;
}

static uint32_t *none(ds_arena *arena, uint32_t n) {
    uint32_t *array = DS_NEW_N(arena, uint32_t, n + 1);
    memset(array, 0xff, (n + 1) * sizeof *array);
    return array;
}

static uint32_t later(uint32_t a, uint32_t b) {
    if (a == DS_PIPE_NONE || b == DS_PIPE_NONE) return a == DS_PIPE_NONE ? b : a;
    return a > b ? a : b;
}

static uint32_t earlier(uint32_t a, uint32_t b) {
    return a < b ? a : b; /* NONE is larger than all */
}

/* ---- reads ---- */

typedef struct reads {
    const ds_pipe_part *part;
    uint32_t *at;
    uint32_t n;
} reads;

static void add_read(void *context, const ds_use *use) {
    reads *r = context;
    uint32_t v = use->value.i;
    if (r->part->def[v] == DS_PIPE_NONE && r->part->arg[v] == DS_PIPE_NONE) return;
    if (r->at) r->at[r->n] = v;
    r->n++;
}

static void find_reads(cutter *x) {
    ds_pipe_part *p = x->part;
    for (uint32_t i = 0; i < p->n_ops; i++) {
        reads r = {.part = p};
        ds_pipe_uses(x->func->body.ops[i], add_read, &r);
        r.at = p->ops[i].reads = DS_NEW_N(arena_of(x), uint32_t, r.n + 1);
        r.n = 0;
        ds_pipe_uses(x->func->body.ops[i], add_read, &r);
        p->ops[i].n_reads = r.n;
    }
}

/* ---- reshards between stages ---- */

uint32_t ds_pipe__first_on(const ds_model_step *step, const ds_type *type) {
    for (uint32_t s = 0; step->stage_mesh && s < step->strategy.pp; s++)
        if (step->stage_mesh[s] == type->on.name) return s;
    return DS_PIPE_NONE;
}

bool ds_pipe__fits(const ds_model_step *step, const ds_type *type, uint32_t stage) {
    uint32_t on = ds_pipe__first_on(step, type);
    return on == DS_PIPE_NONE || ds_strategy_same_width(&step->strategy, on, stage);
}

bool ds_pipe__crosses(const ds_model_step *step, const ds_func *func, const ds_op *op) {
    if (op->code != DS_OP_RESHARD) return false;
    uint32_t from = ds_pipe__first_on(step, ds_value_at(func, op->in[0].value)->type);
    uint32_t to = ds_pipe__first_on(step, ds_value_at(func, op->out[0])->type);
    return from != to && from != DS_PIPE_NONE && to != DS_PIPE_NONE;
}

/* Finds the reshards to stages of another width. Such a reshard of an input becomes the input
 * itself, since each stage gets inputs in its own layout. Any other reshard marks its operand as
 * sent. */
static void find_crossing(cutter *x) {
    ds_pipe_part *p = x->part;
    p->source = DS_NEW_N(arena_of(x), uint32_t, x->func->values.n + 1);
    for (uint32_t v = 0; v < x->func->values.n; v++) p->source[v] = v;
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const ds_op *op = x->func->body.ops[i];
        if (!ds_pipe__crosses(x->c->step, x->func, op)) continue;
        uint32_t in = op->in[0].value.i, out = op->out[0].i;
        p->ops[i].crosses = true;
        if (p->arg[in] == DS_PIPE_NONE) {
            p->source[out] = in;
        } else {
            p->arg[out] = p->arg[in];
            p->def[out] = DS_PIPE_NONE;
        }
    }
}

/* ---- the function ---- */

static ds_status find_values(cutter *x, ds_error *err) {
    ds_pipe_part *p = x->part;
    ds_arena *arena = arena_of(x);
    const ds_func *func = x->func;
    const ds_op *ret = ds_block_end(&func->body);
    uint32_t n = func->values.n, n_model = x->c->step->n_model_results;
    p->func = func;
    p->n_ops = func->body.n_ops - 1;
    p->ops = DS_NEW_N(arena, ds_pipe_op, p->n_ops + 1);
    p->args = DS_NEW_N(arena, ds_pipe_arg, func->n_args + 1);
    p->arg = none(arena, n);
    p->def = none(arena, n);
    p->result = none(arena, n);
    p->gradient = none(arena, n);
    for (uint32_t k = 0; k < func->n_args; k++) {
        bool own = k < x->c->n_args;
        p->args[k] = own ? x->c->args[k] : (ds_pipe_arg){DS_PIPE_SUM, k - x->c->n_args};
        p->arg[func->args[k].i] = k;
    }
    for (uint32_t i = 0; i < p->n_ops; i++)
        for (uint32_t k = 0; k < func->body.ops[i]->n_out; k++)
            p->def[func->body.ops[i]->out[k].i] = i;
    for (uint32_t k = 0; k < ret->n_in; k++) {
        uint32_t v = ret->in[k].value.i;
        if (ret->in[k].n_index || p->def[v] == DS_PIPE_NONE)
            return ds_error_set(err, DS_ERR_UNSUPPORTED, ret->loc,
                                "pipeline: result %u of @%s is %s", k, func->name,
                                ret->in[k].n_index ? "an element of a family" : "an argument");
        if (k < n_model)
            p->result[v] = k;
        else
            p->gradient[v] = k - n_model;
    }
    for (uint32_t i = 0; i < p->n_ops; i++)
        for (uint32_t k = 0; k < func->body.ops[i]->n_out; k++)
            if (p->result[func->body.ops[i]->out[k].i] != DS_PIPE_NONE) x->backward = i + 1;
    find_crossing(x);
    return DS_OK;
}

/* ---- chunks of weights ---- */

/* The chunk of the weight or sum that a value is, or is made of; NONE for other values. */
static uint32_t weight_chunk(const cutter *x, uint32_t v) {
    uint32_t arg = x->part->arg[v];
    if (arg == DS_PIPE_NONE) return x->like[v];
    if (x->part->args[arg].kind == DS_PIPE_INPUT) return DS_PIPE_NONE;
    return x->c->step->weights.at[x->part->args[arg].index].chunk;
}

static uint32_t anchor_of(const cutter *x, const ds_pipe_op *op) {
    uint32_t anchor = DS_PIPE_NONE;
    for (uint32_t k = 0; k < op->n_reads; k++)
        anchor = later(anchor, weight_chunk(x, op->reads[k]));
    return anchor;
}

/* Notes the chunk of results made of weights alone, such as gathered or cast weights. */
static void note_like(cutter *x, uint32_t i) {
    const ds_op *op = x->func->body.ops[i];
    uint32_t chunk = anchor_of(x, &x->part->ops[i]);
    for (uint32_t k = 0; k < x->part->ops[i].n_reads; k++)
        if (weight_chunk(x, x->part->ops[i].reads[k]) == DS_PIPE_NONE) chunk = DS_PIPE_NONE;
    for (uint32_t k = 0; k < op->n_out; k++) x->like[op->out[k].i] = chunk;
}

/* ---- ops on which only gradients of weights depend ---- */

/* A loop whose carries do more than add up passes gradients on to earlier ops. */
static bool is_chain(const cutter *x, const ds_op *op) {
    if (op->code != DS_OP_FOR || ds_map_find(&x->seconds, DS_KEY(op))) return false;
    for (uint32_t k = 0; k < op->n_args; k++)
        if (!x->wgrad[op->out[k].i] || !ds_pipe__carry_adds(op, k)) return true;
    return false;
}

/* Walks in reverse: all readers of an op come after the op. An operand leads to what its readers lead
 * to, by way of the chunks of the weights that they read. */
static void find_wgrads(cutter *x) {
    const ds_pipe_part *p = x->part;
    const ds_step_weight *weights = x->c->step->weights.at;
    uint32_t n = x->func->values.n;
    bool *read = ds_xcalloc(n + 1, sizeof *read), *other = ds_xcalloc(n + 1, sizeof *other);
    for (uint32_t v = 0; v < n; v++)
        if (p->gradient[v] != DS_PIPE_NONE) {
            x->goal[v] = weights[p->gradient[v]].chunk;
            read[v] = true;
        }
    for (uint32_t i = p->n_ops; i-- > x->backward;) {
        const ds_op *op = x->func->body.ops[i];
        uint32_t goal = DS_PIPE_NONE;
        bool is = false;
        for (uint32_t k = 0; k < op->n_out; k++) {
            uint32_t v = op->out[k].i;
            x->wgrad[v] = read[v] && !other[v];
            goal = later(goal, x->goal[v]);
        }
        for (uint32_t k = 0; k < op->n_out; k++) is = is || x->wgrad[op->out[k].i];
        for (uint32_t k = 0; k < op->n_out; k++)
            is = is && (x->wgrad[op->out[k].i] || !read[op->out[k].i]);
        x->wgrad_op[i] = is = is && !is_chain(x, op);
        goal = later(goal, anchor_of(x, &p->ops[i]));
        for (uint32_t k = 0; k < p->ops[i].n_reads; k++) {
            uint32_t v = p->ops[i].reads[k];
            read[v] = true;
            other[v] = other[v] || !is;
            if (is) x->goal[v] = later(x->goal[v], goal);
        }
    }
    free(read);
    free(other);
}

/* ---- chunks ---- */

static uint32_t chunk_of_def(const cutter *x, uint32_t v) {
    uint32_t def = x->part->def[v];
    return def == DS_PIPE_NONE ? DS_PIPE_NONE : x->part->ops[def].chunk;
}

static uint32_t forward_chunk(const cutter *x, const ds_pipe_op *op) {
    uint32_t chunk = anchor_of(x, op);
    for (uint32_t k = 0; k < op->n_reads; k++) chunk = later(chunk, chunk_of_def(x, op->reads[k]));
    return chunk;
}

static uint32_t backward_chunk(const cutter *x, uint32_t i) {
    const ds_pipe_op *op = &x->part->ops[i];
    const ds_op *def = x->func->body.ops[i];
    uint32_t chunk = anchor_of(x, op), forward = DS_PIPE_NONE;
    if (chunk != DS_PIPE_NONE) return chunk;
    for (uint32_t k = 0; k < def->n_out; k++)
        if (x->wgrad[def->out[k].i]) chunk = later(chunk, x->goal[def->out[k].i]);
    if (chunk != DS_PIPE_NONE) return chunk;
    for (uint32_t k = 0; k < op->n_reads; k++) {
        uint32_t from = x->part->def[x->part->source[op->reads[k]]],
                 at = chunk_of_def(x, op->reads[k]);
        if (from == DS_PIPE_NONE || at == DS_PIPE_NONE) continue;
        if (from < x->backward)
            forward = later(forward, at);
        else
            chunk = earlier(chunk, at);
    }
    return earlier(chunk, forward);
}

static bool fits_stage(const cutter *x, const ds_op *op, uint32_t chunk) {
    const ds_model_step *step = x->c->step;
    return ds_pipe__fits(step, ds_value_at(x->func, op->out[0])->type, step->schedule.stage[chunk]);
}

static bool is_on_stage(const cutter *x, ds_value v) {
    return ds_pipe__first_on(x->c->step, ds_value_at(x->func, v)->type) != DS_PIPE_NONE;
}

/* The chunk of an op that only changes a value's layout, where stages differ in width: the wanted
 * chunk if its stage is as wide as the op's mesh, else the chunk of the value. If the value came
 * from another stage or from a group's devices, the op's readers decide later: NONE. A value goes to a
 * group's devices from its own stage. */
static uint32_t move_chunk(const cutter *x, uint32_t i, uint32_t wanted) {
    const ds_pipe_part *p = x->part;
    const ds_op *op = x->func->body.ops[i];
    uint32_t chunk = DS_PIPE_NONE;
    bool move = op->n_over || op->code == DS_OP_RESHARD;
    if (!x->c->step->stage_mesh || !move || anchor_of(x, &p->ops[i]) != DS_PIPE_NONE) return wanted;
    for (uint32_t k = 0; k < p->ops[i].n_reads; k++) {
        uint32_t def = p->def[p->ops[i].reads[k]];
        if (def == DS_PIPE_NONE) continue;
        if (p->ops[def].crosses || (p->ops[def].chunk == DS_PIPE_NONE && p->ops[def].n_reads))
            return DS_PIPE_NONE;
        chunk = later(chunk, p->ops[def].chunk);
    }
    if (chunk == DS_PIPE_NONE) return wanted;
    bool from = is_on_stage(x, op->in[0].value), to = is_on_stage(x, op->out[0]);
    if (from && !to) return chunk;
    if (wanted != DS_PIPE_NONE && fits_stage(x, op, wanted)) return wanted;
    return from ? chunk : DS_PIPE_NONE;
}

static void find_chunks(cutter *x) {
    for (uint32_t i = 0; i < x->part->n_ops; i++) {
        ds_pipe_op *op = &x->part->ops[i];
        bool forward = i < x->backward;
        if (op->crosses) {
            op->chunk = chunk_of_def(x, x->func->body.ops[i]->in[0].value.i);
            continue;
        }
        op->phase = forward ? DS_PIPE_F : x->split && x->wgrad_op[i] ? DS_PIPE_W : DS_PIPE_B;
        op->chunk = move_chunk(x, i, forward ? forward_chunk(x, op) : backward_chunk(x, i));
    }
}

/* Refuses sums to which a B adds: a W makes their first term, so terms would be out of order. */
static ds_status check_sums(const cutter *x, ds_error *err) {
    const ds_pipe_part *p = x->part;
    for (uint32_t i = 0; i < p->n_ops && x->split; i++)
        for (uint32_t k = 0; k < p->ops[i].n_reads; k++) {
            uint32_t arg = p->arg[p->ops[i].reads[k]];
            if (arg == DS_PIPE_NONE || p->args[arg].kind != DS_PIPE_SUM ||
                p->ops[i].phase == DS_PIPE_W)
                continue;
            return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                                "schedule: it takes the gradients of weights apart (W), but those "
                                "of %%%s are made in a loop inside of a loop, which stays whole: "
                                "recompute = \"every:K\" makes such loops; choose another way to "
                                "recompute, or a schedule without W",
                                x->c->step->weights.at[p->args[arg].index].name);
        }
    return DS_OK;
}

/* The chunk of an op without a chunk, by two chunks that read the op. */
static uint32_t chunk_of_readers(const cutter *x, uint32_t i, uint32_t a, uint32_t b,
                                 uint32_t several) {
    if (a == b || a == DS_PIPE_NONE) return b;
    if (!x->c->step->strategy.stage_dp) return several;
    return (i < x->backward) == (a < b) ? a : b; /* the chunk from which the value flows to the
                                                    other */
}

/* In the backward pass an op without an anchor, such as the gather of a forward value, goes to the latest
 * chunk that reads the op. Walks in reverse. */
static void place_before_readers(cutter *x) {
    const ds_pipe_part *p = x->part;
    uint32_t *latest = none(arena_of(x), x->func->values.n);
    for (uint32_t i = p->n_ops; i-- > x->backward;) {
        ds_pipe_op *op = &p->ops[i];
        const ds_op *def = x->func->body.ops[i];
        uint32_t chunk = op->chunk;
        if (op->crosses || chunk >= x->c->n_chunks) continue;
        for (uint32_t k = 0; k < def->n_out && anchor_of(x, op) == DS_PIPE_NONE; k++)
            chunk = later(chunk, latest[def->out[k].i]);
        if (!x->c->step->stage_mesh || fits_stage(x, def, chunk)) op->chunk = chunk;
        for (uint32_t k = 0; k < op->n_reads; k++)
            latest[op->reads[k]] = later(latest[op->reads[k]], op->chunk);
    }
}

/* An op that reads inputs alone belongs to its readers' chunk. With readers in several chunks the
 * op has no chunk and is made in each. Where stages differ in width, the op would differ from stage
 * to stage: one chunk makes the value and sends it. A value without readers is a result, of chunk
 * 0. */
static void place_free(cutter *x) {
    const uint32_t several = DS_PIPE_NONE - 1;
    const ds_pipe_part *p = x->part;
    uint32_t *reader = none(arena_of(x), x->func->values.n);
    for (uint32_t i = p->n_ops; i-- > 0;) {
        ds_pipe_op *op = &p->ops[i];
        const ds_op *def = x->func->body.ops[i];
        uint32_t chunk = DS_PIPE_NONE;
        for (uint32_t k = 0; k < def->n_out; k++) {
            uint32_t its = reader[def->out[k].i];
            if (p->result[def->out[k].i] != DS_PIPE_NONE && its == DS_PIPE_NONE) its = 0;
            if (its == DS_PIPE_NONE) continue;
            chunk = chunk_of_readers(x, i, chunk, its, several);
        }
        if (op->crosses) continue;
        if (op->chunk == DS_PIPE_NONE && op->n_reads && chunk < several) op->chunk = chunk;
        for (uint32_t k = 0; k < op->n_reads; k++) {
            uint32_t *at = &reader[op->reads[k]];
            uint32_t mine = op->chunk == DS_PIPE_NONE ? several : op->chunk;
            *at = chunk_of_readers(x, i, *at, mine, several);
        }
    }
    place_before_readers(x);
}

/* Moves ops from W to B if B or another chunk reads them. Walks in reverse, as readers come after
 * the op. */
static void pull_into_b(cutter *x) {
    const ds_pipe_part *p = x->part;
    bool *wanted = ds_xcalloc(x->func->values.n + 1, sizeof *wanted);
    for (uint32_t i = p->n_ops; i-- > 0;) {
        ds_pipe_op *op = &p->ops[i];
        const ds_op *def = x->func->body.ops[i];
        for (uint32_t k = 0; k < def->n_out && op->phase == DS_PIPE_W; k++)
            if (wanted[def->out[k].i]) op->phase = DS_PIPE_B;
        for (uint32_t k = 0; k < op->n_reads; k++)
            if (op->phase == DS_PIPE_B || op->crosses || chunk_of_def(x, op->reads[k]) != op->chunk)
                wanted[op->reads[k]] = true;
    }
    free(wanted);
}

/* Places each reshard in the chunk and phase of the op that makes its operand. */
static void place_crossing(cutter *x) {
    const ds_pipe_part *p = x->part;
    for (uint32_t i = 0; i < p->n_ops; i++) {
        ds_pipe_op *op = &p->ops[i];
        uint32_t def = op->crosses ? p->def[x->func->body.ops[i]->in[0].value.i] : DS_PIPE_NONE;
        if (def == DS_PIPE_NONE) continue;
        op->chunk = p->ops[def].chunk;
        op->phase = p->ops[def].phase;
    }
}

/* Refuses an op whose mesh is not as wide as its chunk's stage. */
static ds_status check_meshes(const cutter *x, ds_error *err) {
    const ds_pipe_part *p = x->part;
    for (uint32_t i = 0; i < p->n_ops && x->c->step->stage_mesh; i++) {
        const ds_op *op = x->func->body.ops[i];
        uint32_t chunk = p->ops[i].chunk;
        if (p->ops[i].crosses || chunk == DS_PIPE_NONE || !op->n_out || fits_stage(x, op, chunk))
            continue;
        const ds_value_info *info = ds_value_at(x->func, op->out[0]);
        return ds_error_set(err, DS_ERR_UNSUPPORTED, op->loc,
                            "pipeline: %%%s was split for @%s, and belongs to chunk %u on stage "
                            "%u, which is not as wide",
                            info->name, info->type->on.name, chunk,
                            x->c->step->schedule.stage[chunk]);
    }
    return DS_OK;
}

static const char *name_of(const cutter *x, uint32_t v) {
    return x->func->values.at[v].name;
}

/* Refuses values that flow back: F flows to later chunks, B and W flow to earlier chunks. */
static ds_status check_flow(const cutter *x, ds_error *err) {
    const ds_pipe_part *p = x->part;
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const ds_pipe_op *op = &p->ops[i];
        for (uint32_t k = 0; k < op->n_reads && !op->crosses; k++) {
            uint32_t v = op->reads[k], def = p->def[v];
            if (def == DS_PIPE_NONE || p->ops[def].chunk == DS_PIPE_NONE) continue;
            const ds_pipe_op *from = &p->ops[def];
            bool back = op->phase == DS_PIPE_F     ? from->chunk > op->chunk
                        : from->phase == DS_PIPE_F ? false
                                                   : from->chunk < op->chunk;
            if (!back && from->phase <= op->phase) continue;
            return ds_error_set(
                err, DS_ERR_UNSUPPORTED, x->func->body.ops[i]->loc,
                "pipeline: %%%s of chunk %u reads %%%s of chunk %u: against the "
                "direction of the %s pass%s",
                x->func->body.ops[i]->n_out ? name_of(x, x->func->body.ops[i]->out[0].i) : "?",
                op->chunk, name_of(x, v), from->chunk,
                op->phase == DS_PIPE_F ? "forward" : "backward",
                strstr(name_of(x, v), ".again")
                    ? ": what is computed again lies on two stages: cut elsewhere (stage_layers), "
                      "or recompute less"
                    : "");
        }
    }
    return DS_OK;
}

/* ---- exports ---- */

static void mark_exports(const cutter *x, bool *saved, bool *sent) {
    const ds_pipe_part *p = x->part;
    for (uint32_t i = 0; i < p->n_ops; i++)
        for (uint32_t k = 0; k < p->ops[i].n_reads; k++) {
            uint32_t v = p->ops[i].reads[k], def = p->def[v];
            if (def == DS_PIPE_NONE || p->ops[def].chunk == DS_PIPE_NONE ||
                p->ops[i].chunk == DS_PIPE_NONE || p->ops[i].crosses)
                continue;
            bool same = p->ops[def].chunk == p->ops[i].chunk;
            sent[v] = sent[v] || !same || p->ops[def].crosses;
            v = p->source[v];
            saved[v] = saved[v] || !same || p->ops[def].phase != p->ops[i].phase;
        }
}

static ds_status number_exports(cutter *x, const bool *saved, const bool *sent, ds_error *err) {
    ds_pipe_part *p = x->part;
    ds_arena *arena = arena_of(x);
    uint32_t n_chunks = x->c->n_chunks, n = x->func->values.n, total = 0;
    p->exported = none(arena, n);
    p->sent = none(arena, n);
    p->n_exports = DS_NEW_N(arena, uint32_t, n_chunks + 1);
    p->n_forward = DS_NEW_N(arena, uint32_t, n_chunks + 1);
    p->n_sends = DS_NEW_N(arena, uint32_t, n_chunks + 1);
    p->sends = DS_NEW_N(arena, uint32_t *, n_chunks + 1);
    for (uint32_t v = 0; v < n; v++) total += sent[v];
    for (uint32_t c = 0; c < n_chunks; c++) p->sends[c] = DS_NEW_N(arena, uint32_t, total + 1);
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const ds_op *op = x->func->body.ops[i];
        uint32_t chunk = p->ops[i].chunk;
        for (uint32_t k = 0; k < op->n_out && chunk != DS_PIPE_NONE; k++) {
            uint32_t v = op->out[k].i;
            if (!saved[p->source[v]]) continue;
            if (!p->ops[i].crosses) {
                p->exported[v] = p->n_exports[chunk]++;
                if (i < x->backward) p->n_forward[chunk]++;
            } else {
                p->exported[v] = p->exported[p->source[v]];
            }
            if (!sent[v]) continue;
            if (ds_value_at(x->func, op->out[k])->n_binders)
                return ds_error_set(err, DS_ERR_UNSUPPORTED, op->loc,
                                    "pipeline: the family %%%s is read in another chunk than %u, "
                                    "which makes it",
                                    name_of(x, v), chunk);
            p->sent[v] = p->n_sends[chunk];
            p->sends[chunk][p->n_sends[chunk]++] = v;
        }
    }
    return DS_OK;
}

static ds_status find_exports(cutter *x, ds_error *err) {
    bool *saved = ds_xcalloc(x->func->values.n + 1, sizeof *saved);
    bool *sent = ds_xcalloc(x->func->values.n + 1, sizeof *sent);
    mark_exports(x, saved, sent);
    ds_status status = number_exports(x, saved, sent, err);
    free(saved);
    free(sent);
    return status;
}

/* ---- the whole cut ---- */

static void cutter_deinit(cutter *x) {
    free(x->wgrad_op);
    free(x->wgrad);
    free(x->goal);
    free(x->like);
}

/* A value that another chunk reads must exist after B, so it counts as no gradient of a weight. */
static void keep_in_b(cutter *x) {
    const ds_pipe_part *p = x->part;
    find_chunks(x);
    place_free(x);
    for (uint32_t i = 0; i < p->n_ops; i++)
        for (uint32_t k = 0; k < p->ops[i].n_reads; k++)
            if (p->ops[i].crosses || chunk_of_def(x, p->ops[i].reads[k]) != p->ops[i].chunk)
                x->wgrad[p->ops[i].reads[k]] = false;
}

static ds_status cutter_init(cutter *x, const ds_func *func, ds_error *err) {
    x->func = func;
    x->backward = 0;
    x->wgrad_op = ds_xcalloc(func->body.n_ops + 1, sizeof *x->wgrad_op);
    x->wgrad = ds_xcalloc(func->values.n + 1, sizeof *x->wgrad);
    x->goal = ds_xmalloc((func->values.n + 1) * sizeof *x->goal);
    x->like = ds_xmalloc((func->values.n + 1) * sizeof *x->like);
    memset(x->goal, 0xff, (func->values.n + 1) * sizeof *x->goal);
    memset(x->like, 0xff, (func->values.n + 1) * sizeof *x->like);
    DS_TRY(find_values(x, err));
    find_reads(x);
    for (uint32_t i = 0; i < x->part->n_ops; i++) note_like(x, i);
    find_wgrads(x);
    return DS_OK;
}

ds_status ds_pipe__cut(const ds_pipe_context *c, const ds_func *func, bool split, ds_pipe_part *out,
                       ds_error *err) {
    cutter x = {.c = c, .part = out, .split = split};
    ds_map_init(&x.seconds);
    ds_status status = cutter_init(&x, func, err);
    if (status == DS_OK && split) {
        keep_in_b(&x);
        ds_func *two = ds_pipe__split(c->unit, func, x.backward, x.wgrad, &x.seconds);
        cutter_deinit(&x);
        status = cutter_init(&x, two, err);
    }
    if (status == DS_OK) {
        find_chunks(&x);
        place_free(&x);
        if (split) pull_into_b(&x);
        place_crossing(&x);
        status = check_flow(&x, err);
    }
    if (status == DS_OK) status = check_meshes(&x, err);
    if (status == DS_OK) status = check_sums(&x, err);
    if (status == DS_OK) status = find_exports(&x, err);
    ds_map_deinit(&x.seconds);
    cutter_deinit(&x);
    return status;
}
