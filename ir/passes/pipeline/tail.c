/* The ops after the microbatches, on the stages.
 *
 * An op belongs to the chunk whose weights or states the op reads; else to the chunk of the
 * gradient that it leads to, or of its readers; else to the latest chunk of its operands. The op is
 * copied to that chunk's stage, or to both stages with two copies of the weights, and operands from
 * other stages are sent. An op on the model's results alone (the mean of the losses) is copied
 * once. Gradients of which several stages have terms come first, as one all_reduce (sum.c). */
#include "ir/ops/ops.h"
#include "ir/passes/build/copy.h"
#include "ir/passes/pipeline/emit.h"

#include <stdlib.h>
#include <string.h>

typedef struct tail {
    ds_pipe *p;
    uint32_t n;           /* values of the old step */
    uint32_t *home;       /* value → chunk */
    uint32_t *goal;       /* value → chunk of the op that reads the value */
    bool *once;           /* value: made of results of the model alone */
    ds_value **made;      /* [copy][value]: on its home's stage */
    ds_value *map;        /* for one op's copy */
    ds_pipe_places *sent; /* [copy]: key: value */
    ds_pipe_tied *tied;   /* by value */
    ds_pipe_term *norm;   /* sums of squares, by operand of a clip_factor; NULL: not made yet */
    const ds_op *op;
    ds_error *err;
    ds_status status;
} tail;

static ds_arena *arena_of(const tail *t) {
    return &t->p->unit->arena;
}

static bool is_outer(const tail *t, uint32_t v) {
    return t->home[v] != DS_PIPE_NONE;
}

const char *ds_pipe__rename(const ds_pipe *p, const char *name, uint32_t copy) {
    const ds_model_step *step = p->step;
    size_t longest = 0;
    for (uint32_t w = 0; copy && w < step->weights.n; w++) {
        size_t n = strlen(step->weights.at[w].name);
        bool begins = strncmp(name, step->weights.at[w].name, n) == 0;
        if (begins && (name[n] == '.' || !name[n]) && n > longest) longest = n;
    }
    if (!longest) return name;
    return ds_arena_printf(&p->unit->arena, "%.*s.copy%u%s", (int)longest, name, copy,
                           name + longest);
}

/* ---- chunks of ops ---- */

typedef struct reads {
    const tail *t;
    uint32_t anchor, goal, operands;
    bool once, any;
} reads;

static uint32_t later(uint32_t a, uint32_t b) {
    if (a == DS_PIPE_NONE || b == DS_PIPE_NONE) return a == DS_PIPE_NONE ? b : a;
    return a > b ? a : b;
}

static void read_value(void *context, const ds_use *use) {
    reads *r = context;
    const ds_pipe *p = r->t->p;
    uint32_t v = use->value.i, arg = p->arg_number[v];
    if (arg != DS_PIPE_NONE && p->arg_weight[arg] != DS_PIPE_NONE)
        r->anchor = later(r->anchor, p->step->weights.at[p->arg_weight[arg]].chunk);
    if (!is_outer(r->t, v)) return;
    r->any = true;
    r->once = r->once && r->t->once[v];
    r->operands = later(r->operands, r->t->home[v]);
}

static void set_goal(void *context, const ds_use *use) {
    reads *r = context;
    uint32_t *goal = &r->t->goal[use->value.i];
    if (*goal == DS_PIPE_NONE) *goal = r->goal;
}

/* Finds, from the end, the chunk of the weights to which each value leads. */
static void find_goals(tail *t) {
    const ds_pipe *p = t->p;
    const ds_block *body = &p->old->body;
    const ds_op *ret = ds_block_end(body);
    for (uint32_t w = 0; w < p->step->weights.n; w++) {
        const ds_step_weight *weight = &p->step->weights.at[w];
        if (weight->grad_result < ret->n_in)
            t->goal[ret->in[weight->grad_result].value.i] = weight->chunk;
    }
    for (uint32_t i = body->n_ops - 1; i-- > p->tail;) {
        reads r = {.t = t, .anchor = DS_PIPE_NONE, .operands = DS_PIPE_NONE, .once = true};
        ds_pipe_uses(body->ops[i], read_value, &r);
        if (body->ops[i]->code == DS_OP_CLIP_FACTOR) continue; /* squares stay at home */
        r.goal = r.anchor;
        for (uint32_t k = 0; k < body->ops[i]->n_out && r.anchor == DS_PIPE_NONE; k++)
            r.goal = later(r.goal, t->goal[body->ops[i]->out[k].i]);
        ds_pipe_uses(body->ops[i], set_goal, &r);
    }
}

/* ---- results of the microbatches ---- */

static uint32_t chunk_of_result(const ds_pipe *p, uint32_t k) {
    const ds_pipe_part *part = &p->cut[p->forward];
    uint32_t v = ds_block_end(&part->func->body)->in[k].value.i;
    return part->ops[part->def[v]].chunk;
}

/* A result of the model on the stage of copy 0. */
static ds_status bring_result(tail *t, uint32_t mb, uint32_t k, ds_value *out) {
    ds_pipe *p = t->p;
    uint32_t chunk = chunk_of_result(p, k), copy = p->index->copy[mb];
    uint32_t to = ds_pipe__stage(p, chunk, 0);
    *out = p->results[mb * p->step->n_model_results + k];
    if (ds_pipe__stage(p, chunk, copy) == to) return DS_OK;
    const char *name = ds_value_at(p->b.func, *out)->name;
    return ds_pipe__send(p, *out, to, ds_arena_numbered(arena_of(t), name, ".s", to), out, t->err);
}

static ds_status take_results(tail *t) {
    ds_pipe *p = t->p;
    uint32_t n = p->step->n_model_results;
    for (uint32_t mb = 0; mb < p->m; mb++)
        for (uint32_t k = 0; k < n; k++) {
            uint32_t v = p->parts[mb]->out[k].i;
            t->home[v] = chunk_of_result(p, k);
            t->once[v] = true;
            DS_TRY(bring_result(t, mb, k, &t->made[0][v]));
        }
    return DS_OK;
}

/* ---- gradients ---- */

static uint32_t gradient_of(const tail *t, uint32_t w) {
    const ds_pipe *p = t->p;
    return p->parts[p->m - 1]->out[p->step->n_model_results + w].i;
}

static bool is_in_group(const tail *t, uint32_t w, uint32_t first) {
    return w == first || t->tied[gradient_of(t, w)].group == first;
}

/* The name of a weight's summed gradient: the name of the first sum for the weight's chunk. */
static const char *sum_name(const tail *t, uint32_t w) {
    const ds_pipe *p = t->p;
    uint32_t v = gradient_of(t, w), chunk = p->step->weights.at[w].chunk;
    for (uint32_t i = 0; i < t->n && t->tied[v].group != DS_PIPE_NONE; i++)
        if (t->tied[i].is_total && t->tied[i].group == t->tied[v].group && t->goal[i] == chunk)
            return ds_value_at(p->old, (ds_value){i})->name;
    return ds_value_at(p->old, (ds_value){v})->name;
}

/* Sums the gradients of a weight over all weights tied to it and all copies of the weights. */
static ds_status sum_gradients(tail *t, uint32_t first) {
    ds_pipe *p = t->p;
    bool alone = t->tied[gradient_of(t, first)].group == DS_PIPE_NONE;
    uint32_t n = alone ? first + 1 : ds_step_n_trained(p->step), n_terms = 0;
    ds_pipe_term *terms = DS_NEW_N(arena_of(t), ds_pipe_term, (size_t)(n - first) * p->n_copies);
    for (uint32_t copy = 0; copy < p->n_copies; copy++)
        for (uint32_t w = first; w < n; w++)
            if (is_in_group(t, w, first))
                terms[n_terms++] = (ds_pipe_term){
                    p->sums[copy][w].value, ds_pipe__stage(p, p->step->weights.at[w].chunk, copy),
                    ds_pipe__rename(p, sum_name(t, w), copy)};
    DS_TRY(ds_pipe__sum(p, terms, n_terms, t->err));
    const ds_pipe_term *term = terms;
    for (uint32_t copy = 0; copy < p->n_copies; copy++)
        for (uint32_t w = first; w < n; w++)
            if (is_in_group(t, w, first)) t->made[copy][gradient_of(t, w)] = term++->value;
    return DS_OK;
}

/* Replaces the sum that `grad` wrote by the sum on its reader's stage. */
static void take_total(tail *t, uint32_t v) {
    const ds_pipe *p = t->p;
    uint32_t w = t->tied[v].group, first = w, n = ds_step_n_trained(p->step);
    while (w < n && (!is_in_group(t, w, first) || p->step->weights.at[w].chunk != t->goal[v])) w++;
    if (w == n) w = first;
    t->home[v] = p->step->weights.at[w].chunk;
    for (uint32_t copy = 0; copy < p->n_copies; copy++)
        t->made[copy][v] = t->made[copy][gradient_of(t, w)];
}

static ds_status take_gradients(tail *t) {
    const ds_pipe *p = t->p;
    ds_pipe__find_tied(p, t->tied);
    for (uint32_t w = 0, n = ds_step_n_trained(p->step); w < n; w++) {
        uint32_t v = gradient_of(t, w), group = t->tied[v].group;
        t->home[v] = p->step->weights.at[w].chunk;
        if (group == DS_PIPE_NONE || group == w) DS_TRY(sum_gradients(t, w));
    }
    for (uint32_t v = 0; v < t->n; v++)
        if (t->tied[v].is_total) take_total(t, v);
    return DS_OK;
}

/* ---- copies of ops ---- */

static ds_value read_at(tail *t, uint32_t v, uint32_t chunk, uint32_t copy) {
    ds_pipe *p = t->p;
    uint32_t from = t->once[v] ? 0 : copy, to = ds_pipe__stage(p, chunk, copy);
    ds_value made = t->made[from][v];
    if (ds_pipe__stage(p, t->home[v], from) == to) return made;
    ds_pipe_places *places = &t->sent[copy];
    for (uint32_t i = 0; i < places->n; i++)
        if (places->at[i].key == v && places->at[i].stage == to) return places->at[i].value;
    const char *name = ds_value_at(p->b.func, made)->name;
    t->status =
        ds_pipe__send(p, made, to, ds_arena_numbered(arena_of(t), name, ".s", to), &made, t->err);
    DS_PUSH(arena_of(t), places, ((ds_pipe_place){v, to, made, NULL}));
    return made;
}

typedef struct bring {
    tail *t;
    uint32_t chunk, copy;
} bring;

static void bring_use(void *context, const ds_use *use) {
    bring *x = context;
    tail *t = x->t;
    uint32_t v = use->value.i, arg = t->p->arg_number[v];
    if (t->status != DS_OK) return;
    if (arg != DS_PIPE_NONE)
        t->map[v] = t->p->arg[x->copy][arg];
    else if (is_outer(t, v))
        t->map[v] = read_at(t, v, x->chunk, x->copy);
}

static ds_status copy_op(tail *t, const ds_op *op, uint32_t chunk, uint32_t copy) {
    ds_pipe *p = t->p;
    uint32_t stage = ds_pipe__stage(p, chunk, copy);
    ds_pipe_copy c = {.b = &p->b,
                      .old = p->old,
                      .map = t->map,
                      .place = ds_pipe__on(p, stage),
                      .types = &p->types[stage],
                      .pipe = p,
                      .copy = copy};
    bring x = {t, chunk, copy};
    ds_pipe_uses(op, bring_use, &x);
    if (t->status != DS_OK) return t->status;
    ds_pipe__copy_op(&c, op);
    for (uint32_t k = 0; k < op->n_out; k++) t->made[copy][op->out[k].i] = t->map[op->out[k].i];
    return DS_OK;
}

/* Copies a reshard between stages of several widths, as a move from its operand's stage to its
 * reader's. */
static ds_status copy_crossing(tail *t, const ds_op *op, uint32_t chunk, uint32_t copy) {
    ds_pipe *p = t->p;
    uint32_t v = op->in[0].value.i, out = op->out[0].i;
    ds_value made = t->made[t->once[v] ? 0 : copy][v];
    const char *name = ds_value_at(p->b.func, made)->name;
    uint32_t to = ds_pipe__stage(p, chunk, copy);
    return ds_pipe__bring(p, made, to, ds_value_at(p->old, op->out[0])->type,
                          ds_arena_numbered(arena_of(t), name, ".s", to), &t->made[copy][out],
                          t->err);
}

/* Is the op's mesh as wide as the chunk's stage? A value is summed on its own stage before it is
 * sent to a stage of another width. */
static bool fits_stage(const tail *t, const ds_op *op, uint32_t chunk) {
    const ds_pipe *p = t->p;
    if (!p->step->stage_mesh || !op->n_out) return true;
    const ds_type *type = ds_value_at(p->old, op->out[0])->type;
    return ds_pipe__fits(p->step, type, ds_pipe__stage(p, chunk, 0));
}

/* Is the op on other devices than the stages', a group's? */
static bool is_apart(const tail *t, const ds_op *op) {
    return ds_pipe__is_apart(t->p, ds_value_at(t->p->old, op->out[0])->type);
}

/* Copies the factor by which a chunk's gradients are scaled: one all_reduce across stages adds up
 * their sums of squares. */
static ds_status copy_factor(tail *t, const ds_op *op, uint32_t chunk) {
    ds_pipe *p = t->p;
    uint32_t stage = ds_pipe__stage(p, chunk, 0), own = 0;
    if (!t->norm) {
        t->norm = DS_NEW_N(arena_of(t), ds_pipe_term, op->n_in);
        for (uint32_t i = 0; i < op->n_in; i++) {
            uint32_t v = op->in[i].value.i;
            t->norm[i] = (ds_pipe_term){t->made[0][v], ds_pipe__stage(p, t->home[v], 0), "squares"};
        }
        DS_TRY(ds_pipe__sum(p, t->norm, op->n_in, t->err));
    }
    while (own + 1 < op->n_in && t->norm[own].stage != stage) own++;
    ds_op one = *op;
    one.in = &op->in[own];
    one.n_in = 1;
    t->made[0][one.in->value.i] = t->norm[own].value;
    return copy_op(t, &one, chunk, 0);
}

/* Returns the op's chunk, which becomes the home of its results. *once: the op runs on one copy
 * alone. */
static uint32_t settle(tail *t, const ds_op *op, bool *once) {
    reads r = {.t = t, .anchor = DS_PIPE_NONE, .operands = DS_PIPE_NONE, .once = true};
    ds_pipe_uses(op, read_value, &r);
    uint32_t chunk = r.anchor;
    for (uint32_t k = 0; k < op->n_out && r.anchor == DS_PIPE_NONE; k++)
        chunk = later(chunk, t->goal[op->out[k].i]);
    if (chunk == DS_PIPE_NONE || !fits_stage(t, op, chunk)) chunk = r.operands;
    if (chunk == DS_PIPE_NONE) chunk = 0;
    *once = r.any && r.once && r.anchor == DS_PIPE_NONE;
    for (uint32_t k = 0; k < op->n_out; k++) {
        t->home[op->out[k].i] = chunk;
        t->once[op->out[k].i] = *once;
    }
    return chunk;
}

static ds_status copy_ops(tail *t) {
    const ds_pipe *p = t->p;
    const ds_block *body = &p->old->body;
    for (uint32_t i = p->tail; i + 1 < body->n_ops; i++) {
        const ds_op *op = body->ops[i];
        bool once, crosses = ds_pipe__crosses(p->step, p->old, op);
        if (op->n_out && t->tied[op->out[0].i].group != DS_PIPE_NONE) continue; /* summed */
        uint32_t chunk = settle(t, op, &once);
        if (op->code == DS_OP_CLIP_FACTOR && op->n_in > 1 && !is_apart(t, op)) {
            DS_TRY(copy_factor(t, op, chunk));
            continue;
        }
        for (uint32_t copy = 0; copy < (once ? 1 : p->n_copies); copy++)
            DS_TRY(crosses ? copy_crossing(t, op, chunk, copy) : copy_op(t, op, chunk, copy));
    }
    return DS_OK;
}

/* ---- results ---- */

/* Results of the second copy of the weights come last. */
static ds_status put_results(tail *t) {
    ds_pipe *p = t->p;
    const ds_op *ret = ds_block_end(&p->old->body);
    ds_use *results = DS_NEW_N(arena_of(t), ds_use, ret->n_in * p->n_copies + 1);
    uint32_t n = 0;
    for (uint32_t copy = 0; copy < p->n_copies; copy++)
        for (uint32_t k = copy ? p->step->n_model_results : 0; k < ret->n_in; k++) {
            ds_use use = ret->in[k];
            uint32_t v = use.value.i, arg = p->arg_number[v];
            use.value = arg == DS_PIPE_NONE ? t->made[copy][v] : p->arg[copy][arg];
            results[n++] = use;
        }
    return ds_build_return(&p->b, results, n, t->err);
}

static uint32_t moved(const ds_pipe *p, uint32_t result, uint32_t copy) {
    uint32_t n = ds_block_end(&p->old->body)->n_in, n_model = p->step->n_model_results;
    return result == DS_NO_RESULT || !copy ? result : result + copy * (n - n_model);
}

static ds_value moved_arg(const ds_pipe *p, ds_value old, uint32_t copy) {
    return old.i == DS_NO_VALUE.i ? old : p->arg[copy][p->arg_number[old.i]];
}

static void update_weights(tail *t) {
    ds_pipe *p = t->p;
    ds_model_step *step = p->step;
    uint32_t n = step->weights.n;
    for (uint32_t copy = 1; copy < p->n_copies; copy++)
        for (uint32_t w = 0; w < n; w++) {
            ds_step_weight weight = step->weights.at[w];
            DS_PUSH(arena_of(t), &step->weights, weight);
        }
    for (uint32_t i = 0; i < step->weights.n; i++) {
        ds_step_weight *weight = &step->weights.at[i];
        uint32_t copy = i / n;
        weight->arg = moved_arg(p, weight->arg, copy);
        for (uint32_t s = 0; s < weight->n_states; s++)
            weight->state[s] = moved_arg(p, weight->state[s], copy);
        weight->master = moved_arg(p, weight->master, copy);
        weight->grad_result = moved(p, weight->grad_result, copy);
        weight->new_result = moved(p, weight->new_result, copy);
        weight->name = ds_value_at(p->b.func, weight->arg)->name;
    }
}

/* ---- the whole tail ---- */

static ds_status write_tail(tail *t) {
    DS_TRY(take_results(t));
    find_goals(t);
    DS_TRY(take_gradients(t));
    DS_TRY(copy_ops(t));
    DS_TRY(put_results(t));
    update_weights(t);
    return DS_OK;
}

static void tail_init(tail *t, ds_pipe *p, ds_error *err) {
    *t = (tail){.p = p, .n = p->old->values.n, .err = err};
    size_t bytes = (t->n + 1) * sizeof(uint32_t);
    t->home = ds_xmalloc(bytes);
    t->goal = ds_xmalloc(bytes);
    t->map = ds_xmalloc(bytes);
    memset(t->home, 0xff, bytes);
    memset(t->goal, 0xff, bytes);
    memset(t->map, 0xff, bytes);
    t->once = ds_xcalloc(t->n + 1, sizeof *t->once);
    t->tied = ds_xcalloc(t->n + 1, sizeof *t->tied);
    t->made = ds_xcalloc(p->n_copies, sizeof *t->made);
    t->sent = ds_xcalloc(p->n_copies, sizeof *t->sent);
    for (uint32_t k = 0; k < p->n_copies; k++) t->made[k] = ds_xcalloc(t->n + 1, sizeof **t->made);
}

static void tail_deinit(tail *t) {
    for (uint32_t k = 0; k < t->p->n_copies; k++) free(t->made[k]);
    free(t->home);
    free(t->goal);
    free(t->map);
    free(t->once);
    free(t->tied);
    free(t->made);
    free(t->sent);
}

ds_status ds_pipe__tail(ds_pipe *p, ds_error *err) {
    tail t;
    tail_init(&t, p, err);
    ds_status status = write_tail(&t);
    tail_deinit(&t);
    return status;
}

/* ---- chunks alone ---- */

void ds_pipe__tail_chunks(ds_pipe *p, ds_map *of) {
    const ds_block *body = &p->old->body;
    tail t;
    tail_init(&t, p, NULL);
    for (uint32_t mb = 0; mb < p->m; mb++)
        for (uint32_t k = 0; k < p->step->n_model_results; k++) {
            uint32_t v = p->parts[mb]->out[k].i;
            t.home[v] = chunk_of_result(p, k);
            t.once[v] = true;
        }
    find_goals(&t);
    for (uint32_t w = 0, n = ds_step_n_trained(p->step); w < n; w++)
        t.home[gradient_of(&t, w)] = p->step->weights.at[w].chunk;
    for (uint32_t i = p->tail; i + 1 < body->n_ops; i++) {
        bool once;
        ds_map_put(of, DS_KEY(body->ops[i]), settle(&t, body->ops[i], &once));
    }
    tail_deinit(&t);
}
