/* Pieces of chunks: neighbouring units whose turns are alike in what they do.
 *
 * `recompute_layers` and `offload_layers` count the turns of each chunk, over all its loops. A piece
 * ends before the first turn that differs. Ops outside of loops belong to the piece before, at the
 * start of a chunk to the first piece.
 *
 * `offload_fraction` f: of the P parameters of a chunk, single weights come first, in the order of
 * the arguments, as long as they fit into f P. Turns from the first fill the rest, to the nearest
 * turn. A turn has its share of the chunk's families. */
#include "ir/passes/stage/internal.h"

#include <math.h>

/* ---- states at the host ---- */

/* Elements of a part of a weight. */
static ds_status count_part(const ds_model_step *step, uint32_t weight, const ds_stage_weight *w,
                            const ds_stage_part *part, double *out, ds_error *err) {
    const ds_value_info *info = ds_value_at(step->func, step->weights.at[weight].arg);
    ds_env env = ds_binding_env(&step->binding, NULL);
    int64_t size, end;
    *out = w->is_family ? (double)(part->hi - part->lo) : 1;
    for (uint32_t b = 1; b < info->n_binders; b++) {
        DS_TRY(ds_expr_eval_int(&env, info->binders[b].lo, info->loc, &size, err));
        DS_TRY(ds_expr_eval_int(&env, info->binders[b].hi, info->loc, &end, err));
        *out *= (double)(end - size);
    }
    for (uint32_t d = 0; d < info->type->rank; d++) {
        DS_TRY(ds_expr_eval_int(&env, info->type->dims[d].size, info->loc, &size, err));
        *out *= (double)size;
    }
    return DS_OK;
}

static ds_stage_part *part_of(ds_stage_weight *w, uint32_t chunk) {
    for (uint32_t p = 0; p < w->n_parts; p++)
        if (w->parts[p].chunk == chunk) return &w->parts[p];
    return NULL;
}

/* The turns of a chunk whose states wait at the host; marks single weights. */
static ds_status send_states(const ds_model_step *step, ds_stage_weight *weights, uint32_t chunk,
                             int64_t turns, int64_t *out, ds_error *err) {
    double f = step->strategy.offload_fraction, singles = 0, layers = 0, sent = 0;
    double *n = DS_NEW_N(&step->unit->arena, double, step->weights.n + 1);
    for (uint32_t i = 0; i < step->weights.n; i++) {
        const ds_stage_part *part = part_of(&weights[i], chunk);
        if (!part) continue;
        DS_TRY(count_part(step, i, &weights[i], part, &n[i], err));
        *(weights[i].is_family ? &layers : &singles) += n[i];
    }
    for (uint32_t i = 0; i < step->weights.n; i++) {
        ds_stage_part *part = part_of(&weights[i], chunk);
        if (!part || weights[i].is_family || sent + n[i] > f * (singles + layers)) continue;
        part->sent = true;
        sent += n[i];
    }
    double share = layers > 0 ? (f * (singles + layers) - sent) / layers : 0;
    *out = llround(fmin(fmax(share, 0), 1) * (double)turns);
    return DS_OK;
}

/* ---- pieces ---- */

static void begin_piece(const ds_model_step *step, ds_stage_cut *cut, ds_stage_piece piece) {
    if (!cut->pieces)
        cut->pieces = DS_NEW_N(&step->unit->arena, ds_stage_piece,
                               cut->n_units + cut->n_chunks + 1); /* one a unit at most */
    cut->pieces[cut->n_pieces++] = piece;
}

void ds_stage__whole(const ds_model_step *step, ds_stage_cut *cut) {
    cut->n_pieces = 0;
    for (uint32_t c = 0; c < cut->n_chunks; c++)
        begin_piece(step, cut, (ds_stage_piece){.first = cut->begin[c], .chunk = c, .marks = 255});
}

static uint8_t marks_of(const ds_model_step *step, int64_t turn, int64_t states_sent) {
    const ds_strategy *s = &step->strategy;
    uint32_t differ = ds_step_tells_apart(step), out = 255;
    if (differ & DS_LAYERS_AGAIN && !ds_strategy_runs_again(s, turn))
        out &= ~(uint32_t)DS_LAYERS_AGAIN;
    if (differ & DS_LAYERS_SENT && turn >= s->offload_layers) out &= ~(uint32_t)DS_LAYERS_SENT;
    if (differ & DS_LAYERS_STATES_SENT && turn >= states_sent)
        out &= ~(uint32_t)DS_LAYERS_STATES_SENT;
    return (uint8_t)out;
}

/* Is the unit a turn? `item` is the number of an item before, or of the unit's. */
static bool is_turn(const ds_stage_cut *cut, uint32_t *item, int64_t unit) {
    while (*item + 1 < cut->n_items && cut->items[*item].first + cut->items[*item].n <= unit)
        ++*item;
    return cut->items[*item].op->code == DS_OP_FOR;
}

static ds_status cut_chunk(const ds_model_step *step, ds_stage_weight *weights, ds_stage_cut *cut,
                           uint32_t chunk, ds_error *err) {
    int64_t turn = 0, turns = 0, states_sent = 0, from = cut->begin[chunk],
            to = cut->begin[chunk + 1];
    uint32_t item = 0;
    for (int64_t unit = from; unit < to; unit++) turns += is_turn(cut, &item, unit);
    if (ds_step_tells_apart(step) & DS_LAYERS_STATES_SENT)
        DS_TRY(send_states(step, weights, chunk, turns, &states_sent, err));
    begin_piece(step, cut, (ds_stage_piece){from, chunk, 0, marks_of(step, 0, states_sent)});
    item = 0;
    for (int64_t unit = from; unit < to; unit++) {
        if (!is_turn(cut, &item, unit)) continue;
        uint8_t marks = marks_of(step, turn++, states_sent);
        const ds_stage_piece *last = &cut->pieces[cut->n_pieces - 1];
        if (last->marks != marks)
            begin_piece(step, cut, (ds_stage_piece){unit, chunk, last->at + 1, marks});
    }
    return DS_OK;
}

ds_status ds_stage__pieces(const ds_model_step *step, ds_stage_weight *weights, ds_stage_cut *cut,
                           ds_error *err) {
    uint32_t differ = ds_step_tells_apart(step);
    if (differ & DS_LAYERS_AGAIN && step->strategy.recompute == DS_RECOMPUTE_EVERY)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, ds_step__knob(step, "recompute_layers"),
                            "recompute = \"every:K\" runs blocks of K layers again, and "
                            "recompute_layers picks single layers: say recompute = full");
    if (differ & (DS_LAYERS_AGAIN | DS_LAYERS_SENT) && !cut->n_turns)
        return ds_error_set(
            err, DS_ERR_UNSUPPORTED,
            ds_step__knob(step, differ & DS_LAYERS_AGAIN ? "recompute_layers" : "offload_layers"),
            "a layer is a turn of a loop, and the model has no loops%s",
            differ & DS_LAYERS_AGAIN ? "; a list of paths says what is to run again" : "");
    cut->n_pieces = 0;
    for (uint32_t c = 0; c < cut->n_chunks; c++) DS_TRY(cut_chunk(step, weights, cut, c, err));
    return DS_OK;
}

uint32_t ds_stage__piece(const ds_stage_cut *cut, int64_t unit) {
    uint32_t lo = 0, hi = cut->n_pieces; /* the last piece that begins at or before the unit */
    while (hi - lo > 1) {
        uint32_t middle = lo + (hi - lo) / 2;
        if (cut->pieces[middle].first <= unit)
            lo = middle;
        else
            hi = middle;
    }
    return lo;
}

int64_t ds_stage__end(const ds_stage_cut *cut, uint32_t piece) {
    return piece + 1 < cut->n_pieces ? cut->pieces[piece + 1].first : cut->n_units;
}

bool ds_stage__is_cut(const ds_stage_cut *cut, const ds_stage_item *item) {
    return item->n > 1 &&
           ds_stage__piece(cut, item->first) != ds_stage__piece(cut, item->first + item->n - 1);
}

const char *ds_stage__suffix(const ds_model_step *step, const ds_stage_cut *cut, uint32_t piece) {
    ds_arena *arena = &step->unit->arena;
    const ds_stage_piece *p = &cut->pieces[piece];
    bool alone = !p->at && (piece + 1 == cut->n_pieces || cut->pieces[piece + 1].chunk != p->chunk);
    const char *chunk = step->strategy.pp > 1 ? ds_arena_numbered(arena, "", ".c", p->chunk) : "";
    return alone ? chunk : ds_arena_numbered(arena, chunk, ".p", p->at);
}
