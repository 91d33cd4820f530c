/* Stages of a step without a backward pass: loops are not cut, since `lower` has made loops for each
 * part of a rec's layers. A family of weights is shared out by its elements; a single weight has a
 * copy on each stage that reads it. */
#include "ir/passes/stage/internal.h"

#include "ir/strategy/strategy.h"

typedef struct sharer {
    const ds_model_step *step;
    const ds_stage_names *names;
    const ds_stage_cut *cut;
    uint32_t family; /* the first family of weights; step->weights.n: none */
    int64_t lo, hi;  /* its elements */
    int64_t *turns;  /* of each chunk */
    int64_t *begin;  /* [n_chunks + 1] */
    const uint32_t *stage;
    bool *reads; /* [weight][chunk]: of single weights */
} sharer;

static const ds_value_info *info_of(const sharer *s, uint32_t weight) {
    return ds_value_at(s->step->func, s->step->weights.at[weight].arg);
}

/* ---- elements ---- */

static ds_status find_family(sharer *s, ds_error *err) {
    ds_env env = ds_binding_env(&s->step->binding, NULL);
    s->family = s->step->weights.n;
    for (uint32_t i = 0; i < s->step->weights.n; i++) {
        const ds_value_info *info = info_of(s, i);
        int64_t lo, hi;
        if (!info->n_binders) continue;
        DS_TRY(ds_expr_eval_int(&env, info->binders[0].lo, info->loc, &lo, err));
        DS_TRY(ds_expr_eval_int(&env, info->binders[0].hi, info->loc, &hi, err));
        if (s->family == s->step->weights.n) {
            s->family = i;
            s->lo = lo;
            s->hi = hi;
        }
        if (lo != s->lo || hi != s->hi)
            return ds_error_set(err, DS_ERR_UNSUPPORTED, info->loc,
                                "without training a pipeline cuts the layers of one rec: the "
                                "families of weights %%%s and %%%s have other elements",
                                info_of(s, s->family)->name, info->name);
    }
    if (s->family < s->step->weights.n) return DS_OK;
    return ds_error_set(err, DS_ERR_UNSUPPORTED, ds_step__knob(s->step, "pp"),
                        "without training a pipeline cuts the dim that the weights of a rec state, "
                        "and the model has no weight with a dim");
}

static ds_status find_begins(sharer *s, ds_error *err) {
    uint32_t n = s->cut->n_chunks;
    s->turns = DS_NEW_N(&s->step->unit->arena, int64_t, n + 1);
    DS_TRY(ds_strategy_share_turns(s->step->unit, &s->step->strategy, s->hi - s->lo, n, s->turns,
                                   err));
    s->begin = DS_NEW_N(&s->step->unit->arena, int64_t, n + 1);
    s->begin[0] = s->lo;
    for (uint32_t c = 0; c < n; c++) s->begin[c + 1] = s->begin[c] + s->turns[c];
    return DS_OK;
}

static uint32_t chunk_at(const sharer *s, int64_t element) {
    uint32_t c = 0;
    while (c + 1 < s->cut->n_chunks && element >= s->begin[c + 1]) c++;
    return c;
}

/* ---- reads ---- */

/* An index in the first or the last turn of all loops around it. */
static ds_status eval_at(const sharer *s, ds_expr e, const ds_flow_loop *loops, bool last,
                         ds_loc loc, int64_t *out, ds_error *err) {
    ds_env env = ds_binding_env(&s->step->binding, NULL);
    enum { DEPTH = 4 * DS_MAX_RANK };
    ds_index at[DEPTH];
    const ds_flow_loop *open[DEPTH];
    uint32_t n = 0;
    for (; loops && n < DEPTH; loops = loops->up) open[n++] = loops;
    for (uint32_t i = n; i-- > 0;) {
        const ds_op *loop = open[i]->op;
        int64_t turn;
        DS_TRY(ds_expr_eval_int(&env, last ? loop->hi : loop->lo, loop->loc, &turn, err));
        at[i] = (ds_index){loop->index, turn - last, env.indices};
        env.indices = &at[i];
    }
    return ds_expr_eval_int(&env, e, loc, out, err);
}

static ds_status weight_stage(void *context, const ds_use *use, const ds_flow_loop *loops,
                              uint32_t *stage, ds_error *err) {
    const sharer *s = context;
    uint32_t weight = ds_stage__weight(s->names, use->value);
    *stage = DS_FLOW_NONE;
    if (weight == s->step->weights.n) return DS_OK;
    *stage = DS_FLOW_ANY;
    if (!info_of(s, weight)->n_binders) return DS_OK;
    int64_t first = s->lo, last = s->hi - 1, again;
    if (use->n_index) {
        bool range = ds_use_is_range(use, 0);
        ds_expr hi = range ? use->index_hi[0] : use->index[0];
        DS_TRY(eval_at(s, use->index[0], loops, false, use->loc, &first, err));
        DS_TRY(eval_at(s, hi, loops, true, use->loc, &last, err));
        DS_TRY(eval_at(s, use->index[0], loops, true, use->loc, &again, err));
        last -= range;
        if (again < first) first = again;
    }
    *stage = chunk_at(s, first);
    if (chunk_at(s, last) == *stage) return DS_OK;
    return ds_error_set(err, DS_ERR_UNSUPPORTED, ds_step__knob(s->step, "pp"),
                        "one operation reads %%%s of stages %u and %u: without training a pipeline "
                        "(pp > 1) cuts the dim that the weights of a rec state; a model of loops "
                        "must train",
                        info_of(s, weight)->name, *stage, chunk_at(s, last));
}

static void note_block(sharer *s, const ds_block *block) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        if (op->code == DS_OP_FOR) {
            note_block(s, op->body);
            continue;
        }
        for (uint32_t k = 0; k < op->n_in; k++) {
            uint32_t weight = ds_stage__weight(s->names, op->in[k].value);
            if (weight < s->step->weights.n)
                s->reads[weight * s->cut->n_chunks + ds_stage__of(s->stage, op)] = true;
        }
    }
}

uint32_t ds_stage__of(const uint32_t *stage, const ds_op *op) {
    uint32_t of = op->n_out ? stage[op->out[0].i] : DS_FLOW_NONE;
    return of == DS_FLOW_NONE ? 0 : of;
}

/* ---- all weights ---- */

static void add_part(const sharer *s, uint32_t chunk, ds_stage_weight *out) {
    if (!out->parts) out->parts = DS_NEW_N(&s->step->unit->arena, ds_stage_part, s->cut->n_chunks);
    ds_stage_part part = {.chunk = chunk, .piece = chunk};
    if (out->is_family) {
        part.lo = s->begin[chunk];
        part.hi = s->begin[chunk + 1];
    }
    out->parts[out->n_parts++] = part;
}

static ds_status share_out(const sharer *s, ds_stage_weight *out, ds_error *err) {
    uint32_t n = s->cut->n_chunks;
    for (uint32_t i = 0; i < s->step->weights.n; i++) {
        out[i].is_family = info_of(s, i)->n_binders > 0;
        for (uint32_t c = 0; c < n; c++)
            if (out[i].is_family ? s->begin[c + 1] > s->begin[c] : s->reads[i * n + c])
                add_part(s, c, &out[i]);
        if (!out[i].n_parts) add_part(s, 0, &out[i]);
        out[i].shared_out = out[i].is_family && out[i].n_parts > 1;
    }
    for (uint32_t c = 0; c < n; c++) {
        uint32_t i = 0;
        while (i < s->step->weights.n && !s->reads[i * n + c] && s->begin[c + 1] == s->begin[c])
            i++;
        if (i == s->step->weights.n)
            return ds_error_set(err, DS_ERR_VALUE, ds_step__knob(s->step, "stage_layers"),
                                "chunk %u of the pipeline's %u would have no weight, so nothing to "
                                "do: give it turns by stage_layers = [...], or use fewer stages",
                                c, n);
    }
    return DS_OK;
}

ds_status ds_stage__flow(ds_model_step *step, const ds_stage_names *names, const ds_stage_cut *cut,
                         ds_stage_weight **out, const uint32_t **stage, ds_error *err) {
    ds_arena *arena = &step->unit->arena;
    sharer s = {.step = step, .names = names, .cut = cut};
    DS_TRY(find_family(&s, err));
    DS_TRY(find_begins(&s, err));
    DS_TRY(ds_flow_find(arena, step->func, weight_stage, &s, stage, err));
    s.stage = *stage;
    s.reads = DS_NEW_N(arena, bool, (size_t)step->weights.n * cut->n_chunks + 1);
    note_block(&s, &step->func->body);
    *out = DS_NEW_N(arena, ds_stage_weight, step->weights.n + 1);
    step->cut.chunk_turns = s.turns;
    return share_out(&s, *out, err);
}
