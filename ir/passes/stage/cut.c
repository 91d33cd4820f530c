/* The cut of the step: units, and the chunk of each unit.
 *
 * By layers, a turn counts 1 and an op outside of loops 0: ops before the first turn belong to
 * chunk 0, ops after the last turn to the last chunk, ops between two loops to the later loop. n
 * turns over C chunks are n / C each. A rest of r turns goes to the r middle chunks (of two ways,
 * to the earlier chunks), since the first and the last chunk also have embedding and head. Where
 * embedding and head count as turns themselves: ds_strategy_chunk_turns.
 *
 * By FLOPs, a chunk begins with a unit that reads a weight: a unit without weights follows the unit
 * that makes its operands, wherever the cut is. So units are joined to groups, whose first unit
 * reads a weight (the first group also has all units before). The groups are divided into C runs
 * such that the largest sum is least: by binary search over that sum, since C runs can keep a bound
 * iff runs filled up to the bound are at most C. Of several such cuts the earliest is taken. */
#include "ir/passes/stage/internal.h"

#include "ir/passes/build/count.h"
#include "ir/strategy/scenario.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_CHUNKS = 1 << 14 }; /* of a pipeline: readers need chunks · weights entries */

/* ---- names ---- */

void ds_stage__names_init(ds_stage_names *names, const ds_model_step *step) {
    names->step = step;
    ds_map_init(&names->weights);
    for (uint32_t i = 0; i < step->weights.n; i++)
        ds_map_put(&names->weights, step->weights.at[i].arg.i, i);
}

void ds_stage__names_deinit(ds_stage_names *names) {
    ds_map_deinit(&names->weights);
}

uint32_t ds_stage__weight(const ds_stage_names *names, ds_value value) {
    const uint64_t *found = ds_map_find(&names->weights, value.i);
    return found ? (uint32_t)*found : names->step->weights.n;
}

/* ---- units ---- */

static bool reads_weight(const ds_stage_names *names, const ds_op *op) {
    for (uint32_t i = 0; i < op->n_in; i++)
        if (ds_stage__weight(names, op->in[i].value) < names->step->weights.n) return true;
    for (uint32_t i = 0; op->body && i < op->body->n_ops; i++)
        if (reads_weight(names, op->body->ops[i])) return true;
    return false;
}

static ds_status add_item(const ds_model_step *step, const ds_stage_names *names, const ds_op *op,
                          ds_stage_cut *cut, ds_error *err) {
    ds_stage_item item = {
        .op = op, .first = cut->n_units, .n = 1, .reads = reads_weight(names, op)};
    if (op->code == DS_OP_FOR) {
        ds_env env = ds_binding_env(&step->binding, NULL);
        int64_t hi;
        DS_TRY(ds_expr_eval_int(&env, op->lo, op->loc, &item.lo, err));
        DS_TRY(ds_expr_eval_int(&env, op->hi, op->loc, &hi, err));
        if (hi < item.lo) hi = item.lo;
        if (__builtin_sub_overflow(hi, item.lo, &item.n) || item.n > DS_COUNT_MAX_STEPS)
            return ds_error_set(err, DS_ERR_LIMIT, op->loc,
                                "a loop of more than %lld turns is not cut into stages",
                                (long long)DS_COUNT_MAX_STEPS);
        cut->n_turns += item.n;
    }
    cut->n_units += item.n;
    cut->items[cut->n_items++] = item;
    return DS_OK;
}

static ds_status find_units(const ds_model_step *step, const ds_stage_names *names,
                            ds_stage_cut *cut, ds_error *err) {
    const ds_block *body = &step->func->body;
    cut->items = DS_NEW_N(&step->unit->arena, ds_stage_item, body->n_ops + 1);
    for (uint32_t i = 0; i < body->n_ops; i++)
        if (body->ops[i]->code != DS_OP_RETURN)
            DS_TRY(add_item(step, names, body->ops[i], cut, err));
    return DS_OK;
}

/* ---- by layers ---- */

/* The unit of a turn, counted over all loops. */
static int64_t unit_of_turn(const ds_stage_cut *cut, int64_t turn) {
    for (uint32_t i = 0; i < cut->n_items; i++) {
        const ds_stage_item *item = &cut->items[i];
        if (item->op->code != DS_OP_FOR) continue;
        if (turn < item->n) return item->first + turn;
        turn -= item->n;
    }
    return cut->n_units;
}

static void cut_at_turns(ds_stage_cut *cut, const int64_t *turns) {
    int64_t before = 0;
    for (uint32_t c = 1; c < cut->n_chunks; c++) {
        before += turns[c - 1];
        cut->begin[c] = before ? unit_of_turn(cut, before - 1) + 1 : unit_of_turn(cut, 0);
    }
}

static ds_status cut_by_layers(const ds_model_step *step, ds_stage_cut *cut, ds_error *err) {
    int64_t *turns = DS_NEW_N(&step->unit->arena, int64_t, cut->n_chunks);
    ds_status status = ds_strategy_share_turns(step->unit, &step->strategy, cut->n_turns,
                                               cut->n_chunks, turns, err);
    if (status != DS_OK && step->turn_pattern && step->strategy.n_stage_layers == cut->n_chunks)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, step->turn_loc,
                            "\"%s\" names a turn of a loop, so the turns are written out, and "
                            "stage_layers counts turns of loops, of which %lld are left: name all "
                            "turns, as in \"l[*]\", or leave stage_layers out",
                            step->turn_pattern, (long long)cut->n_turns);
    if (status == DS_OK) cut_at_turns(cut, turns);
    return status;
}

/* ---- by FLOPs ---- */

typedef struct group {
    int64_t first; /* unit */
    ds_i128 flop;
} group;

/* The FLOPs of an op, or of one turn of a loop, counted as a function that holds nothing else. */
static ds_status count_unit(const ds_model_step *step, const ds_stage_item *item, int64_t turn,
                            ds_i128 *out, ds_error *err) {
    ds_exprs *exprs = &step->unit->exprs;
    ds_op op = *item->op, *ops[] = {&op};
    ds_func one = *step->func;
    ds_model_counts counts;
    if (op.code == DS_OP_FOR) {
        op.lo = ds_expr_int(exprs, turn);
        op.hi = ds_expr_int(exprs, turn + 1);
    }
    one.n_args = 0; /* counting weights would only take time */
    one.body = (ds_block){.ops = ops, .n_ops = 1};
    DS_TRY(ds_model_count(&step->binding, &one, &counts, err));
    *out = counts.flop;
    return DS_OK;
}

typedef struct groups {
    DS_VEC(group) all;
    bool begun; /* the last group has a unit that reads a weight */
} groups;

static ds_status add_unit(groups *g, const ds_stage_item *item, int64_t unit, ds_i128 flop,
                          ds_i128 *total, ds_error *err) {
    if (__builtin_add_overflow(*total, flop, total))
        return ds_error_set(err, DS_ERR_OVERFLOW, item->op->loc,
                            "more than 2^127 FLOPs up to here");
    if (!g->all.n || (item->reads && g->begun)) {
        group fresh = {.first = unit};
        DS_HPUSH(&g->all, fresh);
    }
    g->begun = g->begun || item->reads;
    g->all.at[g->all.n - 1].flop += flop;
    return DS_OK;
}

static ds_status make_groups(const ds_model_step *step, const ds_stage_cut *cut, groups *g,
                             ds_i128 *total, ds_error *err) {
    for (uint32_t i = 0; i < cut->n_items; i++) {
        const ds_stage_item *item = &cut->items[i];
        for (int64_t k = 0; k < item->n; k++) {
            ds_i128 flop;
            DS_TRY(count_unit(step, item, item->lo + k, &flop, err));
            DS_TRY(add_unit(g, item, item->first + k, flop, total, err));
        }
    }
    return DS_OK;
}

/* The number of runs if each run takes groups as long as they fit under the bound. */
static uint32_t runs_under(const groups *g, ds_i128 bound) {
    uint32_t n = 1;
    ds_i128 sum = 0;
    for (uint32_t i = 0; i < g->all.n; i++) {
        if (g->all.at[i].flop > bound - sum) {
            n++;
            sum = 0;
        }
        sum += g->all.at[i].flop;
    }
    return n;
}

static ds_i128 least_bound(const groups *g, uint32_t n_chunks, ds_i128 total) {
    ds_i128 lo = 0, hi = total; /* one run keeps the bound hi */
    for (uint32_t i = 0; i < g->all.n; i++)
        if (g->all.at[i].flop > lo) lo = g->all.at[i].flop;
    while (lo < hi) {
        ds_i128 middle = lo + (hi - lo) / 2;
        if (runs_under(g, middle) <= n_chunks)
            hi = middle;
        else
            lo = middle + 1;
    }
    return lo;
}

/* Fills chunks from the last to the first, each as far as the bound allows, so that cuts are early.
 * A chunk leaves one group for each chunk before it. */
static void cut_under(const groups *g, ds_i128 bound, ds_stage_cut *cut) {
    uint32_t at = g->all.n;
    for (uint32_t c = cut->n_chunks; c-- > 1;) {
        ds_i128 sum = 0;
        while (at > c && g->all.at[at - 1].flop <= bound - sum) sum += g->all.at[--at].flop;
        cut->begin[c] = g->all.at[at].first;
    }
}

static ds_status cut_groups(const ds_model_step *step, ds_stage_cut *cut, groups *g,
                            ds_error *err) {
    ds_i128 total = 0;
    DS_TRY(make_groups(step, cut, g, &total, err));
    if (g->all.n < cut->n_chunks)
        return ds_error_set(err, DS_ERR_VALUE, ds_step__knob(step, "pp"),
                            "the pipeline has %u chunks, but only %u operations and turns of "
                            "@step read weights: one each at least",
                            cut->n_chunks, g->begun ? g->all.n : 0);
    cut_under(g, least_bound(g, cut->n_chunks, total), cut);
    return DS_OK;
}

/* ---- the cut ---- */

/* The number of turns among units from … to − 1. */
static int64_t turns_between(const ds_stage_cut *cut, int64_t from, int64_t to) {
    int64_t n = 0;
    for (uint32_t i = 0; i < cut->n_items; i++) {
        const ds_stage_item *item = &cut->items[i];
        int64_t lo = from > item->first ? from : item->first;
        int64_t hi = to < item->first + item->n ? to : item->first + item->n;
        if (item->op->code == DS_OP_FOR && hi > lo) n += hi - lo;
    }
    return n;
}

ds_step_cut ds_stage__turns(const ds_model_step *step, const ds_stage_cut *cut) {
    ds_step_cut out = {0};
    int64_t *loops = DS_NEW_N(&step->unit->arena, int64_t, cut->n_items + 1u);
    int64_t *chunks = DS_NEW_N(&step->unit->arena, int64_t, cut->n_chunks + 1u);
    for (uint32_t i = 0; i < cut->n_items; i++)
        if (cut->items[i].op->code == DS_OP_FOR) loops[out.n_loops++] = cut->items[i].n;
    for (uint32_t c = 0; c < cut->n_chunks; c++)
        chunks[c] = turns_between(cut, cut->begin[c], cut->begin[c + 1]);
    out.loop_turns = loops;
    out.chunk_turns = chunks;
    return out;
}

static ds_status cut_chunks(const ds_model_step *step, ds_stage_cut *out, ds_error *err) {
    if (step->strategy.n_stage_layers) return cut_by_layers(step, out, err);
    if (step->strategy.balance == DS_BALANCE_TIME)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, ds_step__knob(step, "balance"),
                            "balance = time takes the cut that simulates fastest, and a pass does "
                            "not simulate: it must be found before the passes run, and is then "
                            "stage_layers");
    if (step->strategy.balance == DS_BALANCE_LAYERS && out->n_turns)
        return cut_by_layers(step, out, err);
    groups g = {0};
    ds_status status = cut_groups(step, out, &g, err);
    free(g.all.at);
    return status;
}

ds_status ds_stage__cut(const ds_model_step *step, const ds_stage_names *names, ds_stage_cut *out,
                        ds_error *err) {
    bool staged = step->schedule.schedule != NULL;
    *out = (ds_stage_cut){.n_chunks = staged ? step->schedule.n_chunks : 1};
    if (out->n_chunks > MAX_CHUNKS)
        return ds_error_set(err, DS_ERR_LIMIT, ds_step__knob(step, "virtual_stages"),
                            "a model is cut into %u chunks, pp times virtual_stages; at most %d",
                            out->n_chunks, MAX_CHUNKS);
    DS_TRY(find_units(step, names, out, err));
    out->begin = DS_NEW_N(&step->unit->arena, int64_t, out->n_chunks + 1u);
    out->begin[out->n_chunks] = out->n_units;
    if (staged) DS_TRY(cut_chunks(step, out, err));
    ds_stage__whole(step, out);
    return DS_OK;
}
