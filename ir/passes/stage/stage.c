/* stage: the lowered step, cut for a pipeline.
 *
 * The strategy's schedule (step->schedule, made here) gives the number of chunks. The cut (cut.c)
 * gives each chunk a run of neighbouring units. A loop that is cut becomes one loop a chunk, with
 * the same index and the same turns, so that masks and paths stay:
 *
 *     %last = for layer in 0..6 carry (%h = %emb) { … %w{layer} … }
 *
 *     %last.c0 = for layer in 0..3 carry (%h = %emb) { … %w.c0{layer} … }
 *     %last = for layer in 3..6 carry (%h.c1 = %last.c0) { … %w.c1{layer} … }
 *
 * Where layers differ in what they do (ds_step_tells_apart), chunks are cut further, into pieces of
 * layers that are alike (%last.c0.p1; without a pipeline %last.p1).
 *
 * Every weight becomes an argument for each chunk that reads it, %w.c1 {input = "w"}: a family is
 * shared out, `%w.c0{layer: 0..3}`; a single weight that several chunks read is tied. Nothing else
 * changes: the step computes the same results, on one device. */
#include "ir/passes/stage/internal.h"

#include "ir/passes/build/copy.h"
#include "ir/passes/build/path.h"
#include "ir/strategy/scenario.h"

#include <stdlib.h>
#include <string.h>

typedef struct stager {
    ds_model_step *step;
    const ds_func *old;
    ds_func view; /* `old`, with the names of values in the part that is being made */
    ds_stage_names names;
    ds_stage_cut cut;
    ds_stage_weight *weights;
    bool *used; /* by old value: some op reads the value */
    ds_builder b;
    ds_copy copy;
    const uint32_t *stage; /* by value, without training; NULL: pieces are made in their order */
    uint32_t piece;        /* being made */
    bool cutting;          /* the loop being made is a part of a cut loop */
    DS_VEC(uint8_t) marks; /* by outermost loop made; in the unit's arena */
} stager;

static ds_arena *arena_of(const stager *s) {
    return &s->step->unit->arena;
}

/* ---- schedule ---- */

/* `recompute` places recomputation, right before the backward pass reads the values, so a schedule
 * may list no R items. */
static ds_status refuse_recomputation(const ds_model_step *step, ds_error *err) {
    const ds_schedule *schedule = step->schedule.schedule;
    for (uint32_t r = 0; r < schedule->n_ranks; r++)
        for (uint32_t i = 0; i < schedule->ranks[r].n_items; i++) {
            const ds_schedule_item *item = &schedule->ranks[r].items[i];
            if (item->kind != 'R') continue;
            return ds_error_set(err, DS_ERR_UNSUPPORTED, schedule->ranks[r].loc,
                                "@%s lists R%lld.%lld: a run recomputes in B, as the knob "
                                "`recompute` says; leave the R items out",
                                schedule->name, (long long)item->chunk,
                                (long long)item->microbatch);
        }
    return DS_OK;
}

/* A schedule that stops half-way is an error that names the cycle. */
static ds_status check_ends(ds_model_step *step, ds_error *err) {
    const ds_schedule_durations one = {1, 1, 1, 1};
    const ds_schedule_costs costs = {.chunks = &one, .n_chunks = 1};
    ds_schedule_timing timing;
    ds_arena arena;
    ds_arena_init(&arena);
    ds_status status = ds_schedule_time(&step->schedule, &costs, &arena, &timing, err);
    ds_arena_deinit(&arena);
    return status;
}

/* Without virtual_stages a schedule form has its usual number of chunks. An error of the schedule
 * gets the place of the strategy's knob. */
static ds_status make_schedule(ds_model_step *step, ds_error *err) {
    const ds_strategy *s = &step->strategy;
    ds_schedule_options options = {.name = s->schedule,
                                   .stages = s->pp,
                                   .microbatches = s->microbatches,
                                   .virtual_stages = s->virtual_stages};
    const ds_schedule *schedule;
    ds_error why = {0};
    ds_status status = ds_schedule_make(step->unit, &options, &schedule, &why);
    if (status == DS_OK)
        status = ds_schedule_check(schedule, &step->unit->arena, &step->schedule, &why);
    if (status == DS_OK && !step->schedule.trains)
        status = ds_error_set(&why, DS_ERR_VALUE, DS_NOWHERE,
                              "the schedule %s has no backward passes, and the scenario trains",
                              s->schedule);
    if (status == DS_OK) status = refuse_recomputation(step, &why);
    if (status == DS_OK) status = check_ends(step, &why);
    if (status == DS_OK) return DS_OK;
    return ds_error_set(err, status, ds_step__knob(step, "schedule"), "%s", why.message);
}

/* ---- reads of kept families ---- */

static void note_uses(stager *s, const ds_block *block) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        for (uint32_t k = 0; k < op->n_in; k++) s->used[op->in[k].value.i] = true;
        if (op->body) note_uses(s, op->body);
    }
}

/* Refuses to cut a loop whose kept family is read: its elements would lie in several chunks. */
static ds_status check_kept(const stager *s, const ds_op *loop, ds_error *err) {
    const ds_op *end = ds_block_end(loop->body);
    for (uint32_t i = loop->n_args; end && i < loop->n_out; i++) {
        if (!s->used[loop->out[i].i]) continue;
        const char *name = ds_value_at(s->old, loop->out[i])->name;
        return ds_error_set(err, DS_ERR_UNSUPPORTED, loop->loc,
                            "the loop over %s is cut by %s, and the model reads %%%s, "
                            "which it keeps of every turn: only a loop that stays in one chunk "
                            "may keep values (stage_layers = [...])",
                            loop->index,
                            ds_step_tells_apart(s->step) ? "layers that differ" : "the pipeline",
                            name);
    }
    return DS_OK;
}

static bool keeps(void *context, const ds_op *loop, uint32_t i) {
    const stager *s = context;
    return !s->cutting || loop->code != DS_OP_FOR || s->used[loop->out[i].i];
}

/* ---- weights ---- */

/* The name of a single weight ends in the suffix of the chunk; the name of a family that one piece
 * reads ends in the suffix of the piece. */
static const char *part_suffix(const stager *s, uint32_t weight, const ds_stage_part *part) {
    if (s->weights[weight].shared_out) return ds_stage__suffix(s->step, &s->cut, part->piece);
    bool staged = s->step->strategy.pp > 1;
    return staged ? ds_arena_numbered(arena_of(s), "", ".c", part->chunk) : "";
}

/* %w.c1 {input = "w"}; an element of a family is that element of %w. */
static ds_value add_weight(stager *s, uint32_t weight, const ds_stage_part *part) {
    ds_unit *unit = s->step->unit;
    const ds_step_weight *from = &s->step->weights.at[weight];
    const ds_value_info *info = ds_value_at(s->old, from->arg);
    ds_attr *attrs = DS_NEW_N(arena_of(s), ds_attr, info->n_attrs + 1);
    uint32_t n = info->n_attrs;
    if (n) memcpy(attrs, info->attrs, n * sizeof *attrs);
    const char *suffix = part_suffix(s, weight, part);
    if (*suffix && !ds_attr_find(attrs, n, "input")) {
        ds_expr_node text = {.kind = DS_EXPR_STR, .name = info->name};
        attrs[n++] = (ds_attr){.name = ds_intern(&unit->strings, "input"),
                               .kind = DS_ATTR_EXPR,
                               .expr = ds_expr_make(&unit->exprs, text)};
    }
    ds_binder *binders = DS_NEW_N(arena_of(s), ds_binder, info->n_binders + 1);
    if (info->n_binders) memcpy(binders, info->binders, info->n_binders * sizeof *binders);
    if (s->weights[weight].shared_out) {
        binders[0].lo = ds_expr_int(&unit->exprs, part->lo);
        binders[0].hi = ds_expr_int(&unit->exprs, part->hi);
    }
    const char *name = *suffix ? ds_arena_join(arena_of(s), info->name, suffix) : info->name;
    ds_value arg = ds_build_arg(&s->b, name, info->type, binders, info->n_binders, attrs, n);
    ds_value_at(s->b.func, arg)->loc = info->loc;
    return arg;
}

static void add_args(stager *s) {
    for (uint32_t i = 0; i < s->old->n_args; i++) {
        uint32_t weight = ds_stage__weight(&s->names, s->old->args[i]);
        if (weight == s->step->weights.n) {
            ds_copy_arg(&s->copy, i);
            continue;
        }
        ds_stage_weight *w = &s->weights[weight];
        for (uint32_t p = 0; p < w->n_parts; p++)
            w->parts[p].arg = add_weight(s, weight, &w->parts[p]);
    }
}

/* Do the states stay on the device, since layers differ in this? */
static bool states_stay(const stager *s, const ds_stage_weight *w, const ds_stage_part *part) {
    if (!(ds_step_tells_apart(s->step) & DS_LAYERS_STATES_SENT)) return false;
    if (!w->is_family) return !part->sent;
    return !(s->cut.pieces[part->piece].marks & DS_LAYERS_STATES_SENT);
}

/* Makes step->weights anew, one entry an argument. */
static void set_weights(stager *s) {
    ds_model_step *step = s->step;
    uint32_t n_old = step->weights.n;
    const ds_step_weight *old = step->weights.at;
    step->weights.at = NULL;
    step->weights.n = step->weights.cap = 0;
    for (uint32_t i = 0; i < n_old; i++) {
        const ds_stage_weight *w = &s->weights[i];
        uint32_t first = step->weights.n;
        for (uint32_t p = 0; p < w->n_parts; p++) {
            ds_step_weight part = old[i];
            part.arg = w->parts[p].arg;
            part.name = ds_value_at(s->b.func, part.arg)->name;
            part.chunk = w->parts[p].chunk;
            part.tied = w->shared_out ? step->weights.n : first;
            part.stays = states_stay(s, w, &w->parts[p]);
            DS_PUSH(arena_of(s), &step->weights, part);
        }
    }
}

/* Is the part read in the piece that is being made? */
static bool is_of(const stager *s, const ds_stage_weight *w, const ds_stage_part *part) {
    return w->is_family ? part->piece == s->piece : part->chunk == s->cut.pieces[s->piece].chunk;
}

static ds_status read_use(void *context, const ds_op *reader, const ds_use *use, ds_use *out,
                          ds_error *err) {
    stager *s = context;
    (void)err;
    uint32_t weight = ds_stage__weight(&s->names, use->value);
    if (s->stage) s->piece = ds_stage__of(s->stage, reader);
    if (weight == s->step->weights.n) {
        *out = ds_copy_use(&s->copy, use);
        return DS_OK;
    }
    const ds_stage_weight *w = &s->weights[weight];
    uint32_t p = 0; /* a family in one chunk has one part, which every chunk may name whole */
    while (p + 1 < w->n_parts && !is_of(s, w, &w->parts[p])) p++;
    *out = *use;
    out->value = w->parts[p].arg;
    return DS_OK;
}

/* ---- names ---- */

/* The op keeps its path. */
static ds_status keep_path(void *context, const ds_op *old, ds_op *op, ds_error *err) {
    stager *s = context;
    (void)err;
    const char *path = ds_path_op_name(s->old, old);
    if (strcmp(ds_path_op_name(s->b.func, op), path) != 0)
        ds_build_attr_text(&s->b, op, "name", path);
    return DS_OK;
}

static void name_value(stager *s, ds_value value, const char *suffix) {
    const char *name = ds_value_at(s->old, value)->name;
    if (*suffix) name = ds_arena_join(arena_of(s), name, suffix);
    ds_value_at(&s->view, value)->name = name;
}

static void name_inside(stager *s, const ds_op *loop, const char *suffix) {
    for (uint32_t i = 0; i < loop->n_args; i++) name_value(s, loop->args[i], suffix);
    for (uint32_t k = 0; k < loop->body->n_ops; k++) {
        const ds_op *op = loop->body->ops[k];
        for (uint32_t i = 0; i < op->n_out; i++) name_value(s, op->out[i], suffix);
        if (op->body) name_inside(s, op, suffix);
    }
}

/* Names the results of a part. A written type that mentions the loop's index holds after the last
 * turn only, so that other parts lose it. */
static void name_results(stager *s, const ds_op *loop, const char *suffix, bool last) {
    for (uint32_t i = 0; i < loop->n_out; i++) {
        name_value(s, loop->out[i], suffix);
        const ds_value_info *info = ds_value_at(s->old, loop->out[i]);
        const ds_type *carry = i < loop->n_args ? ds_value_at(s->old, loop->args[i])->type : NULL;
        bool same = carry && !ds_type_mentions(&s->step->unit->exprs, carry, loop->index);
        ds_value_at(&s->view, loop->out[i])->type_written = info->type_written && (last || same);
    }
}

/* ---- the body ---- */

static ds_status copy_op(stager *s, const ds_op *op, ds_error *err) {
    uint8_t marks = s->cut.pieces[s->piece].marks;
    if (op->code == DS_OP_FOR) DS_PUSH(arena_of(s), &s->marks, marks);
    ds_op *one = (ds_op *)op;
    ds_block block = {.ops = &one, .n_ops = 1};
    return ds_copy_block(&s->copy, &block, err);
}

/* Turns lo … hi − 1 of a loop, in piece s->piece. A part after the first begins with the results of
 * the part before, which the map of values has in place of the loop's results. */
static ds_status copy_part(stager *s, const ds_op *loop, int64_t lo, int64_t hi, bool first,
                           bool last, ds_error *err) {
    ds_exprs *exprs = &s->step->unit->exprs;
    const char *suffix = ds_stage__suffix(s->step, &s->cut, s->piece);
    ds_op *part = DS_NEW(arena_of(s), ds_op);
    *part = *loop;
    part->lo = ds_expr_int(exprs, lo);
    part->hi = ds_expr_int(exprs, hi);
    if (!first) {
        part->in = DS_NEW_N(arena_of(s), ds_use, loop->n_in + 1);
        for (uint32_t i = 0; i < loop->n_in; i++) part->in[i] = ds_use_of(loop->out[i]);
        part->trivia = (ds_trivia){0};
    }
    name_inside(s, loop, first ? "" : suffix);
    name_results(s, loop, last ? "" : suffix, last);
    return copy_op(s, part, err);
}

static ds_status copy_cut_loop(stager *s, const ds_stage_item *item, ds_error *err) {
    DS_TRY(check_kept(s, item->op, err));
    s->cutting = true;
    for (int64_t from = 0, to; from < item->n; from = to) {
        s->piece = ds_stage__piece(&s->cut, item->first + from);
        to = ds_stage__end(&s->cut, s->piece) - item->first;
        if (to > item->n) to = item->n;
        DS_TRY(
            copy_part(s, item->op, item->lo + from, item->lo + to, from == 0, to == item->n, err));
    }
    s->cutting = false;
    return DS_OK;
}

static ds_status copy_body(stager *s, ds_error *err) {
    if (s->stage) return ds_copy_block(&s->copy, &s->old->body, err);
    for (uint32_t i = 0; i < s->cut.n_items; i++) {
        const ds_stage_item *item = &s->cut.items[i];
        s->piece = ds_stage__piece(&s->cut, item->first);
        if (ds_stage__is_cut(&s->cut, item))
            DS_TRY(copy_cut_loop(s, item, err));
        else
            DS_TRY(copy_op(s, item->op, err));
    }
    return DS_OK;
}

static ds_status copy_return(stager *s, ds_error *err) {
    const ds_op *end = ds_block_end(&s->old->body);
    ds_use *results = DS_NEW_N(arena_of(s), ds_use, end->n_in + 1);
    for (uint32_t i = 0; i < end->n_in; i++) {
        uint32_t weight = ds_stage__weight(&s->names, end->in[i].value);
        if (weight < s->step->weights.n && s->weights[weight].shared_out)
            return ds_error_set(err, DS_ERR_UNSUPPORTED, end->loc,
                                "the model returns the weights %%%s, which are shared out over "
                                "the pipeline's chunks",
                                ds_value_at(s->old, end->in[i].value)->name);
        DS_TRY(read_use(s, end, &end->in[i], &results[i], err));
    }
    return ds_build_return(&s->b, results, end->n_in, err);
}

static ds_status make_func(stager *s, ds_error *err) {
    add_args(s);
    DS_TRY(copy_body(s, err));
    return copy_return(s, err);
}

static ds_status build(stager *s, ds_error *err) {
    ds_build_func(&s->b, s->step->unit->modules.at[0], s->old->name, true);
    ds_copy_init(&s->copy, &s->b, &s->view);
    s->copy.extend = keep_path;
    s->copy.read = read_use;
    s->copy.keeps = keeps;
    s->copy.context = s;
    ds_status status = make_func(s, err);
    ds_copy_deinit(&s->copy);
    ds_func *func = ds_build_end(&s->b);
    func->loc = s->old->loc;
    func->trivia = s->old->trivia;
    if (status != DS_OK) return status;
    set_weights(s);
    ds_model_step_set_func(s->step, func);
    return DS_OK;
}

/* ---- the pass ---- */

/* Without training: stages in the order of the text, and no schedule. */
static ds_status stage_turns(stager *s, ds_error *err) {
    s->cut.n_chunks = (uint32_t)s->step->strategy.pp;
    s->cut.begin = DS_NEW_N(arena_of(s), int64_t, s->cut.n_chunks + 1u);
    ds_stage__whole(s->step, &s->cut);
    DS_TRY(ds_stage__flow(s->step, &s->names, &s->cut, &s->weights, &s->stage, err));
    return build(s, err);
}

/* Shares weights out over pieces; single weights stay as they are. */
static ds_status cut_pieces(stager *s, ds_error *err) {
    ds_stage_weight *whole = s->weights;
    DS_TRY(ds_stage__pieces(s->step, whole, &s->cut, err));
    DS_TRY(ds_stage__weights(s->step, &s->names, &s->cut, &s->weights, err));
    for (uint32_t i = 0; i < s->step->weights.n; i++)
        for (uint32_t p = 0; p < whole[i].n_parts && !whole[i].is_family; p++)
            s->weights[i].parts[p].sent = whole[i].parts[p].sent;
    return DS_OK;
}

static ds_status stage(stager *s, ds_error *err) {
    uint32_t n = s->old->values.n;
    s->view = *s->old;
    s->view.values.at = ds_xmalloc((n + 1) * sizeof *s->view.values.at);
    memcpy(s->view.values.at, s->old->values.at, n * sizeof *s->view.values.at);
    s->used = ds_xcalloc(n + 1, sizeof *s->used);
    note_uses(s, &s->old->body);
    if (!s->step->train.on) return stage_turns(s, err);
    DS_TRY(ds_stage__cut(s->step, &s->names, &s->cut, err));
    if (s->step->schedule.schedule) s->step->cut = ds_stage__turns(s->step, &s->cut);
    DS_TRY(ds_stage__weights(s->step, &s->names, &s->cut, &s->weights, err));
    if (!ds_step_tells_apart(s->step)) return build(s, err);
    DS_TRY(cut_pieces(s, err));
    DS_TRY(build(s, err));
    s->step->cut.marks = s->marks.at;
    s->step->cut.n_marks = s->marks.n;
    return DS_OK;
}

ds_status ds_pass_stage(ds_model_step *step, ds_error *err) {
    if (step->strategy.pp < 2 && !ds_step_tells_apart(step)) return DS_OK;
    if (step->strategy.pp > 1 && step->train.on) DS_TRY(make_schedule(step, err));
    stager s = {.step = step, .old = step->func};
    ds_stage__names_init(&s.names, step);
    ds_status status = stage(&s, err);
    ds_stage__names_deinit(&s.names);
    free(s.view.values.at);
    free(s.used);
    return status;
}
