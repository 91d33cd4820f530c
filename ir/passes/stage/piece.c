/* Pieces of chunks: neighbouring units whose turns are alike in what runs again.
 *
 * `recompute_layers` counts the turns of each chunk, over all its loops. A piece ends before the
 * first turn that differs. Ops outside of loops belong to the piece before, at the start of a chunk
 * to the first piece. */
#include "ir/passes/stage/internal.h"

static void begin_piece(const ds_model_step *step, ds_stage_cut *cut, ds_stage_piece piece) {
    if (!cut->pieces)
        cut->pieces = DS_NEW_N(&step->unit->arena, ds_stage_piece,
                               cut->n_units + cut->n_chunks + 1); /* one a unit at most */
    cut->pieces[cut->n_pieces++] = piece;
}

/* The item of a unit, from item i on; units without an item are no units. */
static uint32_t item_of(const ds_stage_cut *cut, uint32_t i, int64_t unit) {
    while (i + 1 < cut->n_items && cut->items[i].first + cut->items[i].n <= unit) i++;
    return i;
}

static void cut_chunk(const ds_model_step *step, ds_stage_cut *cut, uint32_t chunk) {
    int64_t turn = 0;
    bool begun = false; /* the last piece has a turn */
    uint32_t item = 0;
    begin_piece(step, cut, (ds_stage_piece){cut->begin[chunk], chunk, 0, true});
    if (!ds_step_has_pieces(step)) return;
    for (int64_t unit = cut->begin[chunk]; unit < cut->begin[chunk + 1]; unit++) {
        item = item_of(cut, item, unit);
        if (cut->items[item].op->code != DS_OP_FOR) continue;
        bool again = ds_strategy_runs_again(&step->strategy, turn++);
        ds_stage_piece *last = &cut->pieces[cut->n_pieces - 1];
        if (begun && last->again != again)
            begin_piece(step, cut, (ds_stage_piece){unit, chunk, last->at + 1, again});
        else
            last->again = again;
        begun = true;
    }
}

ds_status ds_stage__pieces(const ds_model_step *step, ds_stage_cut *cut, ds_error *err) {
    bool pieces = ds_step_has_pieces(step);
    ds_loc loc = ds_step__knob(step, "recompute_layers");
    if (pieces && step->strategy.recompute == DS_RECOMPUTE_EVERY)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, loc,
                            "recompute = \"every:K\" runs blocks of K layers again, and "
                            "recompute_layers picks single layers: say recompute = full");
    if (pieces && !cut->n_turns)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, loc,
                            "recompute_layers: a layer is a turn of a loop, and the model has no "
                            "loops; a list of paths says what is to run again");
    for (uint32_t c = 0; c < cut->n_chunks; c++) cut_chunk(step, cut, c);
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
    const char *chunk = step->schedule.schedule ? ds_arena_numbered(arena, "", ".c", p->chunk) : "";
    return alone ? chunk : ds_arena_numbered(arena, chunk, ".p", p->at);
}
