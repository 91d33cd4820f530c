/* A prompt at once. The strategy's `prefill = vector` takes the turns of the tokens' dim that a
 * prompt has, lo … end - 1, in chunks: a statement of which turns of the prompt are needed becomes
 * two, one over chunks (dim `dim`) in place of the prompt's turns, and itself for all turns later.
 *
 * A read of turns becomes reads of chunks and of turns:
 *
 *     in chunk c   %q{t}                    chunk c
 *                  %q{lo:t + 1}             chunks 0 … c: causal attention
 *                  %q{max(lo, t - b):t + 1} as many chunks as b turns may reach, and c: a window
 *                  %q{t - 1}                refused: a turn of the prompt waits for the turn before
 *     in turn t    %q{t - 1}                chunk (t - 1 - lo) / size, if t - 1 < end, or turn t - 1
 *                  %q{lo:t + 1}             all chunks, and turns end … t
 *
 * Conditions on the turn must hold in the whole prompt or nowhere in it. A statement that the prompt
 * needs at its last turn alone (the logits of the first token) stays a turn. */
#include "ir/passes/lower/rec_internal.h"
#include "ir/strategy/scenario.h"
#include "ir/strategy/tokens.h"

#include <string.h>

#define MOST_POINTS 4096 /* at which a condition is tried */

typedef struct parter {
    ds_lower_rec *rec;
    ds_arena *arena;
    uint32_t s;                     /* the statement at hand, of the whole program */
    bool by_chunk;                  /* … over chunks */
    const ds_use *use;              /* of the read at hand */
    DS_VEC(ds_temporal_read) reads; /* of the statement at hand */
    DS_VEC(const ds_use *) uses;    /* … and their uses */
    DS_VEC(const ds_temporal_expr *) cuts;
} parter;

/* ---- statements ---- */

bool ds_lower__rec_is_chunk(const ds_lower_rec *rec, uint32_t statement) {
    return statement >= rec->n_whole;
}

uint32_t ds_lower__rec_origin(const ds_lower_rec *rec, uint32_t statement) {
    return statement < rec->n_whole ? statement : rec->chunks.of[statement - rec->n_whole];
}

uint32_t ds_lower__store_source(const ds_lower_rec *rec, const ds_lower_store *store) {
    uint32_t i = (uint32_t)(store - rec->stores), of = rec->statement_of[i % rec->n_values];
    return i < rec->n_values || of == UINT32_MAX ? of : rec->chunks.of_statement[of];
}

ds_lower_store *ds_lower__rec_store(const ds_lower_rec *rec, uint32_t statement, ds_value value) {
    bool apart = ds_lower__rec_is_chunk(rec, statement) &&
                 !rec->chunks.joint[ds_lower__rec_origin(rec, statement)];
    return &rec->stores[value.i + (apart ? rec->n_values : 0)];
}

ds_use *ds_lower__rec_local(const ds_lower_rec *rec, uint32_t statement, ds_value value) {
    return &rec->local[value.i + (ds_lower__rec_is_chunk(rec, statement) ? rec->n_values : 0)];
}

ds_value ds_lower__rec_result(const ds_lower_rec *rec, uint32_t statement) {
    return rec->op->out[ds_lower__rec_origin(rec, statement) - (rec->n_whole - rec->op->n_out)];
}

/* ---- expressions ---- */

static bool mentions(const ds_temporal_expr *e, uint32_t dim) {
    if (e->kind == DS_TEMPORAL_CONST) return false;
    if (e->kind == DS_TEMPORAL_DIM) return e->value == (int64_t)dim;
    return mentions(e->a, dim) || (e->b && mentions(e->b, dim));
}

static bool is_const(const ds_temporal_expr *e, int64_t *value) {
    int64_t a, b;
    ds_temporal_expr one = *e;
    if (e->kind == DS_TEMPORAL_DIM) return false;
    if (e->kind != DS_TEMPORAL_CONST) {
        if (!is_const(e->a, &a) || (e->b && !is_const(e->b, &b))) return false;
    }
    *value = ds_temporal_eval(&one, (int64_t[DS_TEMPORAL_DIMS]){0});
    return true;
}

/* Is e the dim plus a number? */
static bool is_shift(const ds_temporal_expr *e, uint32_t dim, int64_t *by) {
    int64_t c;
    *by = 0;
    if (e->kind == DS_TEMPORAL_DIM) return e->value == (int64_t)dim;
    if (e->kind == DS_TEMPORAL_ADD && is_const(e->a, &c) && is_shift(e->b, dim, by)) {
        *by += c;
        return true;
    }
    if ((e->kind != DS_TEMPORAL_ADD && e->kind != DS_TEMPORAL_SUB) || !is_const(e->b, &c) ||
        !is_shift(e->a, dim, by))
        return false;
    *by += e->kind == DS_TEMPORAL_ADD ? c : -c;
    return true;
}

static const ds_temporal_expr *number(const parter *p, int64_t value) {
    return ds_temporal_const(p->arena, value);
}

static const ds_temporal_expr *make(const parter *p, ds_temporal_kind kind,
                                    const ds_temporal_expr *a, const ds_temporal_expr *b) {
    ds_temporal_expr made = {.kind = kind, .a = a, .b = b};
    int64_t value;
    if (is_const(&made, &value)) return number(p, value);
    return ds_temporal_op(p->arena, kind, a, b);
}

static const ds_temporal_expr *both(const parter *p, const ds_temporal_expr *a,
                                    const ds_temporal_expr *b) {
    if (!a || !b) return a ? a : b;
    return make(p, DS_TEMPORAL_AND, a, b);
}

static const char *name_of(const parter *p, uint32_t s) {
    return p->rec->whole.statements[s].name;
}

static ds_status refuse(const parter *p, ds_error *err, const char *why) {
    const ds_loc loc = p->use ? p->use->loc : p->rec->op->loc;
    return ds_error_set(err, DS_ERR_UNSUPPORTED, loc,
                        "prefill = vector: inside the prompt of %lld turns %%%s %s",
                        (long long)(p->rec->chunks.end - p->rec->chunks.lo), name_of(p, p->s), why);
}

/* A condition in a chunk, where it may not depend on the turn. */
static ds_status within(const parter *p, const ds_temporal_expr *e, const ds_temporal_expr **out,
                        ds_error *err) {
    const ds_lower_chunks *chunks = &p->rec->chunks;
    const ds_temporal_expr *a, *b = NULL;
    int64_t value;
    *out = e;
    if (!mentions(e, chunks->turn)) return DS_OK;
    if (e->kind == DS_TEMPORAL_AND || e->kind == DS_TEMPORAL_OR || e->kind == DS_TEMPORAL_NOT) {
        DS_TRY(within(p, e->a, &a, err));
        if (e->b) DS_TRY(within(p, e->b, &b, err));
        bool is_or = e->kind == DS_TEMPORAL_OR, is_not = e->kind == DS_TEMPORAL_NOT;
        *out = make(p, e->kind, a, b);
        if (is_not) return DS_OK;
        if (is_const(a, &value)) *out = (value != 0) == is_or ? number(p, is_or) : b;
        if (is_const(b, &value)) *out = (value != 0) == is_or ? number(p, is_or) : a;
        return DS_OK;
    }
    for (uint32_t d = 0; d < p->rec->whole.n_dims; d++)
        if (d != chunks->turn && mentions(e, d))
            return refuse(p, err, "has a condition on the turn and another dim");
    int64_t point[DS_TEMPORAL_DIMS] = {0};
    point[chunks->turn] = chunks->lo;
    bool first = ds_temporal_eval(e, point) != 0;
    for (int64_t t = chunks->lo + 1; t < chunks->end; t++) {
        point[chunks->turn] = t;
        if ((ds_temporal_eval(e, point) != 0) != first)
            return refuse(p, err, "takes different branches, so its turns cannot run at once");
    }
    *out = number(p, first);
    return DS_OK;
}

/* ---- reads ---- */

static uint32_t chunks_of(const parter *p, uint32_t s) {
    return p->rec->chunks.of_statement[s];
}

static bool has_turn(const parter *p, uint32_t s) {
    return p->rec->whole.statements[s].dims >> p->rec->chunks.turn & 1;
}

static void add(parter *p, const ds_temporal_read *read) {
    DS_PUSH(p->arena, &p->reads, *read);
    DS_PUSH(p->arena, &p->uses, p->use);
}

/* Adds the read with chunks in place of turns. */
static void add_chunks(parter *p, const ds_temporal_read *read, ds_temporal_index index) {
    ds_temporal_read made = *read;
    made.source = chunks_of(p, read->source);
    made.index[p->rec->chunks.turn] = (ds_temporal_index){0};
    made.index[p->rec->chunks.dim] = index;
    add(p, &made);
}

static const ds_temporal_expr *chunk_at(const parter *p, const ds_temporal_expr *turn) {
    const ds_lower_chunks *chunks = &p->rec->chunks;
    return make(p, DS_TEMPORAL_DIV, make(p, DS_TEMPORAL_SUB, turn, number(p, chunks->lo)),
                number(p, chunks->size));
}

/* Of a range in a chunk: how many points before its own a turn reads at most; INT64_MAX: all. */
static bool points_back(const parter *p, const ds_temporal_index *index, int64_t *back) {
    const ds_lower_chunks *chunks = &p->rec->chunks;
    const ds_temporal_expr *at = index->at, *floor = NULL;
    int64_t by, value;
    if (!is_shift(index->end, chunks->turn, &by) || by != 1) return false;
    *back = INT64_MAX;
    if (is_const(at, &value)) return value == chunks->lo;
    if (at->kind != DS_TEMPORAL_MAX) return false;
    floor = is_const(at->a, &value) ? at->b : at->a;
    if (!is_const(floor == at->b ? at->a : at->b, &value) || value != chunks->lo ||
        !is_shift(floor, chunks->turn, &by) || by > 0)
        return false;
    *back = -by;
    return true;
}

static ds_status chunk_range(parter *p, const ds_temporal_read *read, ds_error *err) {
    ds_lower_chunks *chunks = &p->rec->chunks;
    const ds_temporal_index *index = &read->index[chunks->turn];
    const ds_temporal_expr *own = ds_temporal_dim(p->arena, chunks->dim);
    int64_t lo, end, back;
    if (is_const(index->at, &lo) && is_const(index->end, &end)) {
        if (lo < chunks->lo || end > chunks->end)
            return refuse(p, err, "reads a range of turns beyond the prompt");
        end = end > lo ? (end - chunks->lo + chunks->size - 1) / chunks->size : 0;
        add_chunks(p, read,
                   (ds_temporal_index){number(p, end ? (lo - chunks->lo) / chunks->size : 0),
                                       number(p, end)});
        chunks->back[read->source] = INT64_MAX;
        return DS_OK;
    }
    if (!points_back(p, index, &back))
        return refuse(p, err,
                      "reads a range of turns that is neither all so far nor a window that ends "
                      "with the turn");
    if (back > chunks->back[read->source]) chunks->back[read->source] = back;
    ds_map_put(&chunks->back_of, DS_KEY(p->use), (uint64_t)back);
    int64_t reach = back == INT64_MAX ? chunks->n : (back + chunks->size - 1) / chunks->size;
    const ds_temporal_expr *from = number(p, 0);
    if (reach < chunks->n)
        from = make(p, DS_TEMPORAL_MAX, from, make(p, DS_TEMPORAL_SUB, own, number(p, reach)));
    add_chunks(p, read, (ds_temporal_index){from, make(p, DS_TEMPORAL_ADD, own, number(p, 1))});
    return DS_OK;
}

/* A read of a statement over chunks. */
static ds_status chunk_read(parter *p, const ds_temporal_read *from, ds_error *err) {
    const ds_lower_chunks *chunks = &p->rec->chunks;
    ds_temporal_read read = *from;
    int64_t value;
    if (read.when) DS_TRY(within(p, read.when, &read.when, err));
    if (read.when && is_const(read.when, &value)) {
        if (!value) return DS_OK;
        read.when = NULL;
    }
    for (uint32_t d = 0; d < p->rec->whole.n_dims; d++)
        if (d != chunks->turn && read.index[d].at &&
            (mentions(read.index[d].at, chunks->turn) ||
             (read.index[d].end && mentions(read.index[d].end, chunks->turn))))
            return refuse(p, err, "reads a point of another dim that depends on the turn");
    if (!has_turn(p, read.source)) {
        add(p, &read);
        return DS_OK;
    }
    const ds_temporal_index *index = &read.index[chunks->turn];
    if (chunks_of(p, read.source) == UINT32_MAX) return DS_OK; /* never: choose */
    if (index->end) return chunk_range(p, &read, err);
    if (is_const(index->at, &value) && value < chunks->end) {
        add_chunks(p, &read, (ds_temporal_index){chunk_at(p, index->at), NULL});
        return DS_OK;
    }
    if (is_shift(index->at, chunks->turn, &value) && value == 0) {
        add_chunks(p, &read, (ds_temporal_index){ds_temporal_dim(p->arena, chunks->dim), NULL});
        return DS_OK;
    }
    const char *why =
        ds_arena_printf(p->arena, "needs %%%s of another turn, so its turns cannot run at once",
                        name_of(p, read.source));
    return refuse(p, err, why);
}

static ds_status turn_range(parter *p, const ds_temporal_read *read) {
    const ds_lower_chunks *chunks = &p->rec->chunks;
    ds_temporal_read later = *read;
    ds_temporal_index *index = &later.index[chunks->turn];
    int64_t lo, end, by;
    bool from_known = is_const(index->at, &lo), known = is_const(index->end, &end);
    if (!from_known || lo < chunks->end)
        add_chunks(p, read, (ds_temporal_index){number(p, 0), number(p, chunks->n)});
    if (known && end <= chunks->end) return DS_OK;
    const ds_temporal_expr *first = number(p, chunks->end);
    index->at = make(p, DS_TEMPORAL_MAX, index->at, first);
    if (!known && !(is_shift(index->end, chunks->turn, &by) && by >= 1))
        index->end = make(p, DS_TEMPORAL_MAX, index->end, first);
    add(p, &later);
    return DS_OK;
}

/* A read of a statement over turns, of which the first is end - 1, or end if chunks make that. */
static ds_status turn_read(parter *p, const ds_temporal_read *read) {
    const ds_lower_chunks *chunks = &p->rec->chunks;
    if (!has_turn(p, read->source) || chunks_of(p, read->source) == UINT32_MAX) {
        add(p, read);
        return DS_OK;
    }
    const ds_temporal_index *index = &read->index[chunks->turn];
    if (index->end) return turn_range(p, read);
    int64_t first = chunks->end - (chunks_of(p, p->s) == UINT32_MAX), by, value;
    const ds_temporal_expr *chunk = chunk_at(p, index->at);
    bool shifts = is_shift(index->at, chunks->turn, &by);
    if (is_const(index->at, &value) ? value >= chunks->end
                                    : has_turn(p, p->s) && shifts && first + by >= chunks->end) {
        add(p, read);
        return DS_OK;
    }
    if (is_const(index->at, &value)) {
        add_chunks(p, read, (ds_temporal_index){chunk, NULL});
        return DS_OK;
    }
    if (shifts && (first + by - chunks->lo) / chunks->size == chunks->n - 1)
        chunk = number(p, chunks->n - 1);
    const ds_temporal_expr *early = make(p, DS_TEMPORAL_LT, index->at, number(p, chunks->end));
    ds_temporal_read part = *read;
    part.when = both(p, read->when, early);
    add_chunks(p, &part, (ds_temporal_index){chunk, NULL});
    part.when = both(p, read->when, make(p, DS_TEMPORAL_NOT, early, NULL));
    add(p, &part);
    return DS_OK;
}

static void end_statement(parter *p, ds_temporal_statement *made) {
    made->reads = p->reads.at;
    made->n_reads = p->reads.n;
    for (uint32_t r = 0; r < p->reads.n; r++)
        if (p->uses.at[r])
            ds_lower__rec_put_read(
                p->rec, p->uses.at[r],
                (bool[]){p->by_chunk, ds_lower__rec_is_chunk(p->rec, made->reads[r].source)},
                &made->reads[r]);
    p->reads.at = NULL;
    p->uses.at = NULL;
    p->reads.n = p->reads.cap = p->uses.n = p->uses.cap = 0;
}

/* The turns of a statement come after its chunks. */
static void after_chunks(parter *p, uint32_t s) {
    const ds_lower_chunks *chunks = &p->rec->chunks;
    ds_temporal_read read = {.source = s, .order = true};
    for (uint32_t d = 0; d < p->rec->whole.n_dims; d++)
        if (p->rec->whole.statements[s].dims >> d & 1)
            read.index[d].at = ds_temporal_dim(p->arena, d);
    add_chunks(p, &read, (ds_temporal_index){number(p, 0), number(p, chunks->n)});
}

static ds_status part_statement(parter *p, uint32_t s, bool by_chunk, ds_temporal_statement *made,
                                ds_error *err) {
    const ds_temporal_statement *whole = &p->rec->whole.statements[s];
    p->s = s;
    p->by_chunk = by_chunk;
    for (uint32_t r = 0; r < whole->n_reads; r++) {
        p->use = p->rec->uses[s][r];
        if (by_chunk)
            DS_TRY(chunk_read(p, &whole->reads[r], err));
        else
            DS_TRY(turn_read(p, &whole->reads[r]));
    }
    p->use = NULL;
    if (!by_chunk && has_turn(p, s) && chunks_of(p, s) != UINT32_MAX) after_chunks(p, s);
    for (uint32_t i = 0; i < whole->n_cuts && by_chunk; i++) {
        const ds_temporal_expr *cut;
        int64_t value;
        DS_TRY(within(p, whole->cuts[i], &cut, err));
        if (!is_const(cut, &value)) DS_PUSH(p->arena, &p->cuts, cut);
    }
    if (by_chunk) {
        made->cuts = p->cuts.at;
        made->n_cuts = p->cuts.n;
        p->cuts.at = NULL;
        p->cuts.n = p->cuts.cap = 0;
    }
    end_statement(p, made);
    return DS_OK;
}

/* ---- which statements ---- */

/* The first turn of each statement that runs. */
static void first_turns(const ds_lower_rec *rec, const ds_temporal_node *nodes, uint32_t n,
                        int64_t *lo, uint32_t depth, int64_t *first) {
    for (uint32_t i = 0; i < n; i++) {
        if (nodes[i].kind == DS_TEMPORAL_LOOP) {
            lo[depth] = nodes[i].lo;
            first_turns(rec, nodes[i].body, nodes[i].n_body, lo, depth + 1, first);
        }
        if (nodes[i].kind != DS_TEMPORAL_RUN) continue;
        const ds_temporal_place *place = &nodes[i].place[rec->chunks.turn];
        int64_t turn = place->offset;
        if (place->loop != DS_TEMPORAL_NO_LOOP) turn += lo[place->loop];
        if (turn < first[nodes[i].statement]) first[nodes[i].statement] = turn;
    }
}

/* Of statements over turns, the turns that are left. */
static void set_ranges(const parter *p, uint32_t s, ds_temporal_statement *made) {
    const ds_lower_chunks *chunks = &p->rec->chunks;
    bool chunk = ds_lower__rec_is_chunk(p->rec, s);
    bool turns = !chunk && chunks->of_statement[s] != UINT32_MAX;
    if (!made->ranges && !turns) return;
    ds_temporal_range *ranges = DS_NEW_N(p->arena, ds_temporal_range, DS_TEMPORAL_DIMS);
    memcpy(ranges, p->rec->program.dims, DS_TEMPORAL_DIMS * sizeof *ranges);
    for (uint32_t d = 0; made->ranges && d < p->rec->whole.n_dims; d++)
        if (d != chunks->turn) ranges[d] = made->ranges[d];
    if (turns) ranges[chunks->turn].lo = chunks->end;
    made->ranges = ranges;
}

static bool is_range(const ds_temporal_index *index) {
    return index->end != NULL;
}

/* Does the condition hold at a point of the first turn? The search is short; else yes. */
static bool may_hold(const parter *p, uint32_t s, const ds_temporal_expr *when) {
    const ds_temporal_program *whole = &p->rec->whole;
    const ds_temporal_range *ranges = whole->statements[s].ranges;
    int64_t point[DS_TEMPORAL_DIMS], n = 1;
    uint32_t d = 0;
    if (!when) return true;
    if (!ranges) ranges = whole->dims;
    for (uint32_t i = 0; i < whole->n_dims; i++) {
        bool moves = i != p->rec->chunks.turn && mentions(when, i);
        point[i] = ranges[i].lo;
        if (moves && __builtin_mul_overflow(n, ranges[i].hi - ranges[i].lo, &n)) return true;
    }
    if (n > MOST_POINTS) return true;
    while (d < whole->n_dims) {
        if (ds_temporal_eval(when, point)) return true;
        for (d = 0; d < whole->n_dims; d++) {
            if (d == p->rec->chunks.turn || !mentions(when, d)) continue;
            if (++point[d] < ranges[d].hi) break;
            point[d] = ranges[d].lo;
        }
    }
    return false;
}

/* Which statements chunks make: those of which an earlier turn than the prompt's last is needed, and
 * all that these read. */
static void choose(const parter *p, bool *chosen) {
    const ds_lower_rec *rec = p->rec;
    const ds_temporal_program *whole = &rec->whole;
    int64_t *first = DS_NEW_N(p->arena, int64_t, whole->n + 1), lo[2 * DS_TEMPORAL_DIMS + 1];
    for (uint32_t s = 0; s < whole->n; s++) first[s] = INT64_MAX;
    first_turns(rec, rec->schedule.nodes, rec->schedule.n_nodes, lo, 0, first);
    for (uint32_t s = 0; s < whole->n; s++)
        chosen[s] = has_turn(p, s) && first[s] < rec->chunks.end - 1;
    for (bool again = true; again;) {
        again = false;
        for (uint32_t s = 0; s < whole->n; s++)
            for (uint32_t r = 0; chosen[s] && r < whole->statements[s].n_reads; r++) {
                const ds_temporal_read *read = &whole->statements[s].reads[r];
                if (!has_turn(p, read->source) || chosen[read->source]) continue;
                if (may_hold(p, s, read->when)) again = chosen[read->source] = true;
            }
    }
}

/* Statements over chunks come after the others. */
static void list_chunks(parter *p, ds_temporal_statement *made) {
    ds_lower_rec *rec = p->rec;
    ds_lower_chunks *chunks = &rec->chunks;
    uint32_t n = rec->n_whole, all = 2 * n + 1;
    bool *chosen = DS_NEW_N(p->arena, bool, n + 1);
    const ds_op **op_of = DS_NEW_N(p->arena, const ds_op *, all);
    const ds_use **yielded = DS_NEW_N(p->arena, const ds_use *, all);
    chunks->of_statement = DS_NEW_N(p->arena, uint32_t, n + 1);
    chunks->of = DS_NEW_N(p->arena, uint32_t, n + 1);
    chunks->joint = DS_NEW_N(p->arena, bool, n + 1);
    chunks->back = DS_NEW_N(p->arena, int64_t, n + 1);
    choose(p, chosen);
    memcpy(made, rec->whole.statements, n * sizeof *made);
    memcpy(op_of, rec->op_of, n * sizeof *op_of);
    memcpy(yielded, rec->yielded, n * sizeof *yielded);
    uint32_t total = n;
    for (uint32_t s = 0; s < n; s++) {
        chunks->of_statement[s] = UINT32_MAX;
        if (!chosen[s]) continue;
        chunks->of[total - n] = s;
        chunks->of_statement[s] = total;
        op_of[total] = op_of[s];
        yielded[total] = yielded[s];
        made[total] = made[s];
        made[total].dims ^= 1u << chunks->turn | 1u << chunks->dim;
        if (__builtin_mul_overflow(made[s].bytes, chunks->size, &made[total].bytes) ||
            made[total].bytes > INT64_C(1) << 50)
            made[total].bytes = INT64_C(1) << 50;
        total++;
        chunks->joint[s] = made[s].kept;
    }
    for (uint32_t s = 0; s < total; s++) set_ranges(p, s, &made[s]);
    for (uint32_t s = 0; s < n; s++)
        for (uint32_t r = 0; r < made[s].n_reads; r++)
            if (is_range(&made[s].reads[r].index[chunks->turn]))
                chunks->joint[made[s].reads[r].source] = true;
    rec->op_of = op_of;
    rec->yielded = (const ds_use *const *)yielded;
    rec->program.statements = made;
    rec->program.n = total;
}

/* ---- the strategy ---- */

static ds_status read_chunks(parter *p, const ds_tokens *tokens, ds_error *err) {
    ds_lower_rec *rec = p->rec;
    ds_lower_chunks *chunks = &rec->chunks;
    int64_t size = rec->l->step->strategy.prefill_chunk, prompt = tokens->prompt - tokens->lo;
    if (rec->program.n_dims == DS_TEMPORAL_DIMS)
        return ds_error_set(err, DS_ERR_LIMIT, rec->op->loc,
                            "prefill = vector: the rec has %u dims, and chunks need one more",
                            rec->program.n_dims);
    if (size == 0) size = prompt;
    if (prompt % size != 0)
        return ds_error_set(err, DS_ERR_VALUE, tokens->loc,
                            "prefill_chunk = %lld does not divide the prompt of %lld turns",
                            (long long)size, (long long)prompt);
    while (strcmp(rec->op->dims[chunks->turn].name, tokens->dim) != 0) chunks->turn++;
    chunks->lo = tokens->lo;
    chunks->end = tokens->prompt;
    chunks->size = size;
    chunks->n = prompt / size;
    chunks->dim = rec->program.n_dims++;
    chunks->on = true;
    rec->program.dims[chunks->dim] = (ds_temporal_range){"chunk", 0, chunks->n};
    rec->program.dims[chunks->turn].lo = chunks->end - 1;
    rec->program.outer |= 1u << chunks->dim;
    return DS_OK;
}

static bool has_dim(const ds_lower_rec *rec, const char *name) {
    for (uint32_t d = 0; d < rec->op->n_dims; d++)
        if (strcmp(rec->op->dims[d].name, name) == 0) return true;
    return false;
}

ds_status ds_lower__rec_prompt(ds_lower_rec *rec, ds_error *err) {
    parter p = {.rec = rec, .arena = &rec->l->c.unit->arena};
    ds_tokens tokens;
    if (rec->l->step->strategy.prefill != DS_PREFILL_VECTOR) return DS_OK;
    DS_TRY(ds_tokens_read(rec->l->source, &tokens, err));
    if (!has_dim(rec, tokens.dim) || tokens.prompt - tokens.lo < 2) return DS_OK;
    if (rec->schedule.unrolled)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, rec->op->loc,
                            "prefill = vector: no nest of loops orders the rec");
    DS_TRY(read_chunks(&p, &tokens, err));
    ds_temporal_statement *made = DS_NEW_N(p.arena, ds_temporal_statement, 2 * rec->n_whole + 1);
    list_chunks(&p, made);
    ds_map_clear(&rec->read_of);
    for (uint32_t s = 0; s < rec->program.n; s++)
        DS_TRY(part_statement(&p, ds_lower__rec_origin(rec, s), ds_lower__rec_is_chunk(rec, s),
                              &made[s], err));
    return ds_temporal_schedule_make(&rec->program, p.arena, &rec->schedule, err);
}

ds_status ds_lower__check_prefill(const ds_lowering *l, ds_error *err) {
    const ds_attr *knob = ds_scenario_find(l->source->unit, "strategy", "prefill");
    ds_loc loc = knob ? knob->loc : (ds_loc){0};
    ds_tokens tokens;
    if (l->step->strategy.prefill != DS_PREFILL_VECTOR) return DS_OK;
    DS_TRY(ds_tokens_read(l->source, &tokens, err));
    if (!tokens.is_given)
        return ds_error_set(err, DS_ERR_VALUE, loc,
                            "prefill = vector needs a prompt: write tokens { dim = t, prompt = P, "
                            "batch = B } into the scenario of a model with a rec");
    if (!l->step->train.on) return DS_OK;
    return ds_error_set(err, DS_ERR_UNSUPPORTED, loc,
                        "prefill = vector is for a step that does not train");
}
