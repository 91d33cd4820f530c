/* Which chunk reads which weight, and which piece which elements of a family: found by walking all
 * turns, since an index may be any expression. Each element goes to the piece that reads it. An
 * element without a reader goes with the element before, a weight without a reader to chunk 0. */
#include "ir/passes/stage/internal.h"

#include "ir/passes/build/count.h"

#include <stdlib.h>
#include <string.h>

#define NO_PIECE UINT32_MAX

/* Of a family: by element of the first binder, the piece that reads the element. Of a single
 * weight: by chunk, whether the chunk reads the weight. */
typedef struct readers {
    int64_t lo, n; /* of a family */
    uint32_t *piece;
    uint32_t empty; /* of a family without elements: the piece that names it */
    bool *reads;
} readers;

typedef struct walker {
    const ds_model_step *step;
    const ds_stage_names *names;
    const ds_stage_cut *cut;
    readers *weights;
    uint32_t piece;
    int64_t steps;
} walker;

static const ds_value_info *info_of(const walker *w, uint32_t weight) {
    return ds_value_at(w->step->func, w->step->weights.at[weight].arg);
}

/* ---- reading ---- */

static uint32_t chunk_of(const walker *w, uint32_t piece) {
    return w->cut->pieces[piece].chunk;
}

static ds_status refuse_element(const walker *w, uint32_t other, const char *name, int64_t at,
                                ds_loc loc, ds_error *err) {
    uint32_t chunk = chunk_of(w, w->piece);
    if (chunk_of(w, other) == chunk)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, loc,
                            "layers that strategy tells apart (recompute_layers, offload_layers, "
                            "offload_fraction) both read %%%s{%lld}",
                            name, (long long)at);
    return ds_error_set(err, DS_ERR_UNSUPPORTED, loc,
                        "chunks %u and %u of the pipeline both read %%%s{%lld}: elements of a "
                        "family of weights belong to one chunk each; cut the model where %%%s "
                        "stays whole (stage_layers = [...])",
                        chunk_of(w, other), chunk, name, (long long)at, name);
}

static ds_status read_element(const walker *w, uint32_t weight, int64_t at, ds_loc loc,
                              ds_error *err) {
    readers *r = &w->weights[weight];
    if (at < r->lo || at - r->lo >= r->n) return DS_OK; /* the verifier reports */
    uint32_t *piece = &r->piece[at - r->lo];
    if (*piece == NO_PIECE) *piece = w->piece;
    if (*piece == w->piece) return DS_OK;
    return refuse_element(w, *piece, info_of(w, weight)->name, at, loc, err);
}

static ds_status read_use(const walker *w, const ds_use *use, const ds_index *indices, ds_loc loc,
                          ds_error *err) {
    uint32_t weight = ds_stage__weight(w->names, use->value);
    if (weight == w->step->weights.n) return DS_OK;
    readers *r = &w->weights[weight];
    if (r->reads) {
        r->reads[chunk_of(w, w->piece)] = true;
        return DS_OK;
    }
    if (!r->n) r->empty = w->piece;
    ds_env env = ds_binding_env(&w->step->binding, indices);
    int64_t lo = r->lo, hi = r->lo + r->n;
    if (use->n_index) {
        DS_TRY(ds_expr_eval_int(&env, use->index[0], loc, &lo, err));
        hi = lo + 1;
        if (ds_use_is_range(use, 0))
            DS_TRY(ds_expr_eval_int(&env, use->index_hi[0], loc, &hi, err));
    }
    for (int64_t at = lo; at < hi && at - r->lo < r->n; at++)
        DS_TRY(read_element(w, weight, at, loc, err));
    return DS_OK;
}

static ds_status read_uses(const walker *w, const ds_op *op, const ds_index *indices,
                           ds_error *err) {
    for (uint32_t i = 0; i < op->n_in; i++) DS_TRY(read_use(w, &op->in[i], indices, op->loc, err));
    return DS_OK;
}

static ds_status step_once(walker *w, const ds_op *op, ds_error *err) {
    if (++w->steps <= DS_COUNT_MAX_STEPS) return DS_OK;
    return ds_error_set(err, DS_ERR_LIMIT, op->loc,
                        "a step of more than %lld operations and turns is not cut into stages",
                        (long long)DS_COUNT_MAX_STEPS);
}

static ds_status walk_loop(walker *w, const ds_op *loop, const ds_index *indices, ds_error *err);

static ds_status walk_block(walker *w, const ds_block *block, const ds_index *indices,
                            ds_error *err) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        DS_TRY(step_once(w, op, err));
        DS_TRY(read_uses(w, op, indices, err));
        if (op->code == DS_OP_FOR) DS_TRY(walk_loop(w, op, indices, err));
    }
    return DS_OK;
}

/* A loop without turns is walked once too: weights that its text names must be in its chunk. */
static ds_status walk_loop(walker *w, const ds_op *loop, const ds_index *indices, ds_error *err) {
    ds_env env = ds_binding_env(&w->step->binding, indices);
    int64_t lo, hi;
    DS_TRY(ds_expr_eval_int(&env, loop->lo, loop->loc, &lo, err));
    DS_TRY(ds_expr_eval_int(&env, loop->hi, loop->loc, &hi, err));
    for (int64_t at = lo; at < hi || at == lo; at++) {
        DS_TRY(step_once(w, loop, err));
        ds_index turn = {loop->index, at, indices};
        DS_TRY(walk_block(w, loop->body, &turn, err));
    }
    return DS_OK;
}

/* Walks an op outside of loops, or a loop turn by turn, each turn in its piece. The first turn's
 * piece reads the initial values of carries. */
static ds_status walk_item(walker *w, const ds_stage_item *item, ds_error *err) {
    w->piece = ds_stage__piece(w->cut, item->first);
    DS_TRY(step_once(w, item->op, err));
    DS_TRY(read_uses(w, item->op, NULL, err));
    for (int64_t k = 0; item->op->code == DS_OP_FOR && (k < item->n || k == 0); k++) {
        w->piece = ds_stage__piece(w->cut, item->first + k);
        DS_TRY(step_once(w, item->op, err));
        ds_index turn = {item->op->index, item->lo + k, NULL};
        DS_TRY(walk_block(w, item->op->body, &turn, err));
    }
    return DS_OK;
}

/* ---- sharing out ---- */

static void add_part(const walker *w, ds_stage_weight *out, ds_stage_part part) {
    if (!out->parts) out->parts = DS_NEW_N(&w->step->unit->arena, ds_stage_part, w->cut->n_pieces);
    uint32_t at = out->n_parts++;
    for (; at && out->parts[at - 1].piece > part.piece; at--) out->parts[at] = out->parts[at - 1];
    out->parts[at] = part;
}

/* A single weight is in the first piece of each chunk that reads it. */
static void share_single(const walker *w, const readers *r, ds_stage_weight *out) {
    const ds_stage_piece *pieces = w->cut->pieces;
    for (uint32_t p = 0; p < w->cut->n_pieces; p++)
        if (!pieces[p].at && r->reads[pieces[p].chunk])
            add_part(w, out, (ds_stage_part){.chunk = pieces[p].chunk, .piece = p});
    if (!out->n_parts) add_part(w, out, (ds_stage_part){.chunk = 0});
}

/* An element without a reader goes to the piece of the element before; at the start, to the piece
 * of the first element with a reader. */
static void fill_gaps(const readers *r) {
    uint32_t last = 0;
    for (int64_t k = r->n; k-- > 0;)
        if (r->piece[k] != NO_PIECE) last = r->piece[k];
    for (int64_t k = 0; k < r->n; k++) {
        if (r->piece[k] == NO_PIECE) r->piece[k] = last;
        last = r->piece[k];
    }
}

/* Another part of the same piece: the elements between belong to other pieces. */
static ds_status refuse_gap(const walker *w, uint32_t piece, const ds_value_info *info,
                            ds_error *err) {
    if (ds_step_tells_apart(w->step))
        return ds_error_set(err, DS_ERR_UNSUPPORTED, info->loc,
                            "layers that strategy tells apart (recompute_layers, offload_layers, "
                            "offload_fraction) read elements of the family of weights %%%s that "
                            "are no neighbours",
                            info->name);
    return ds_error_set(err, DS_ERR_UNSUPPORTED, info->loc,
                        "chunk %u of the pipeline reads elements of the family of weights %%%s "
                        "that are no neighbours: other chunks read what is between them",
                        chunk_of(w, piece), info->name);
}

static ds_status share_family(const walker *w, uint32_t weight, ds_stage_weight *out,
                              ds_error *err) {
    const readers *r = &w->weights[weight];
    const ds_value_info *info = info_of(w, weight);
    out->is_family = true;
    if (!r->n) add_part(w, out, (ds_stage_part){.chunk = chunk_of(w, r->empty), .piece = r->empty});
    fill_gaps(r);
    for (int64_t k = 0, from = 0; k < r->n; k++) {
        uint32_t piece = r->piece[k];
        if (k + 1 < r->n && r->piece[k + 1] == piece) continue;
        for (uint32_t p = 0; p < out->n_parts; p++)
            if (out->parts[p].piece == piece) return refuse_gap(w, piece, info, err);
        add_part(w, out,
                 (ds_stage_part){.chunk = chunk_of(w, piece),
                                 .piece = piece,
                                 .lo = r->lo + from,
                                 .hi = r->lo + k + 1});
        from = k + 1;
    }
    out->shared_out = out->n_parts > 1;
    return DS_OK;
}

static ds_status check_chunks(const walker *w, const ds_stage_weight *weights, ds_error *err) {
    bool *has = ds_xcalloc(w->cut->n_chunks + 1u, sizeof *has);
    for (uint32_t i = 0; i < w->step->weights.n; i++)
        for (uint32_t p = 0; p < weights[i].n_parts; p++) {
            const ds_stage_part *part = &weights[i].parts[p];
            if (w->weights[i].reads || part->hi > part->lo) has[part->chunk] = true;
        }
    uint32_t c = 0;
    while (c < w->cut->n_chunks && has[c]) c++;
    free(has);
    if (c == w->cut->n_chunks || !w->step->schedule.schedule) return DS_OK;
    const char *knob = w->step->strategy.n_stage_layers ? "stage_layers" : "balance";
    return ds_error_set(err, DS_ERR_VALUE, ds_step__knob(w->step, knob),
                        "chunk %u of the pipeline's %u would have no weight, so nothing to do: "
                        "give it turns by stage_layers = [...], cut by balance = flops, or use "
                        "fewer stages",
                        c, w->cut->n_chunks);
}

/* ---- all weights ---- */

static ds_status find_range(const ds_model_step *step, uint32_t n_chunks, uint32_t weight,
                            readers *out, ds_error *err) {
    const ds_value_info *info = ds_value_at(step->func, step->weights.at[weight].arg);
    ds_env env = ds_binding_env(&step->binding, NULL);
    int64_t hi;
    if (!info->n_binders) {
        out->reads = ds_xcalloc(n_chunks, sizeof *out->reads);
        return DS_OK;
    }
    DS_TRY(ds_expr_eval_int(&env, info->binders[0].lo, info->loc, &out->lo, err));
    DS_TRY(ds_expr_eval_int(&env, info->binders[0].hi, info->loc, &hi, err));
    if (hi < out->lo) hi = out->lo;
    if (__builtin_sub_overflow(hi, out->lo, &out->n) || out->n > DS_COUNT_MAX_STEPS)
        return ds_error_set(err, DS_ERR_LIMIT, info->loc,
                            "%%%s has more than %lld elements: it is not cut into stages",
                            info->name, (long long)DS_COUNT_MAX_STEPS);
    out->piece = ds_xmalloc((size_t)(out->n + 1) * sizeof *out->piece);
    memset(out->piece, 0xff, (size_t)(out->n + 1) * sizeof *out->piece);
    return DS_OK;
}

static ds_status share_out(walker *w, ds_stage_weight *out, ds_error *err) {
    uint32_t n = w->step->weights.n;
    for (uint32_t i = 0; i < n; i++)
        DS_TRY(find_range(w->step, w->cut->n_chunks, i, &w->weights[i], err));
    for (uint32_t i = 0; i < w->cut->n_items; i++) DS_TRY(walk_item(w, &w->cut->items[i], err));
    for (uint32_t i = 0; i < n; i++) {
        if (w->weights[i].reads)
            share_single(w, &w->weights[i], &out[i]);
        else
            DS_TRY(share_family(w, i, &out[i], err));
    }
    return check_chunks(w, out, err);
}

ds_status ds_stage__weights(const ds_model_step *step, const ds_stage_names *names,
                            const ds_stage_cut *cut, ds_stage_weight **out, ds_error *err) {
    walker w = {.step = step, .names = names, .cut = cut};
    uint32_t n = step->weights.n;
    w.weights = ds_xcalloc(n + 1u, sizeof *w.weights);
    *out = DS_NEW_N(&step->unit->arena, ds_stage_weight, n + 1);
    ds_status status = share_out(&w, *out, err);
    for (uint32_t i = 0; i < n; i++) {
        free(w.weights[i].piece);
        free(w.weights[i].reads);
    }
    free(w.weights);
    return status;
}
