/* rec_attention = tiles: attention to a range of turns in blocks of B points. Blocks have a shape that
 * no turn changes, the last one is padded, and attention_merge joins their results:
 *
 *     %core = attention(%q, %keys, %values)     with %keys = stack(%k{0:t + 1}) {dim = 1}
 *
 *     %core, %lse = for block in 0..ceildiv(t + 1, B) carry (%o = zeros, %l = fill {value = -1e30}) {
 *       %k.block = slice(%k.store) {dim = 1, lo = block * B, hi = block * B + B}
 *       %part, %part_lse = attention(%q, %k.block, %v.block) {causal, q_start = t, k_start = block * B}
 *       %o2, %l2 = attention_merge(%o, %l, %part, %part_lse)
 *       yield %o2, %l2
 *     }
 *
 * Positions count the points of the dim from its first. The query has the position of the range's
 * last point, so that the mask hides what is padded; a window hides the points before the range. A
 * store that is read so has whole blocks, and its ring is one of blocks: a block lies in one piece,
 * and each point is written once. A chunk of a prompt has a query a turn, and reads the same blocks. */
#include "ir/passes/lower/rec_internal.h"

#include <string.h>

#define MOST_OPS 8 /* from a stack to the attention */
/* attention_merge takes this for the logarithm of 0. */
static const double log_zero = -1e30;

/* What makes the keys, or the values: a stack, then slices along other dims. */
typedef struct path {
    const ds_op *ops[MOST_OPS];
    uint32_t n;
    const ds_use *range; /* what is stacked */
    uint32_t dim;        /* of the rec: ranges of this dim */
} path;

/* One attention. */
typedef struct tiled {
    ds_lower_rec *rec;
    const ds_op *op;
    path of[2];        /* keys, values */
    ds_use q;          /* [b, queries, heads, d] */
    ds_expr from, end; /* of the first query: its range, from the dim's first point */
    ds_expr last;      /* … and the end of the last query's */
    ds_expr window;    /* points that a query reads at most; none: all so far */
    bool whole;        /* ranges begin with the dim */
    ds_expr block;     /* the loop's index */
} tiled;

static ds_status refuse(const ds_op *op, const char *why, ds_error *err) {
    return ds_error_set(err, DS_ERR_UNSUPPORTED, op->loc, "rec_attention = tiles: %s", why);
}

/* ---- which ops ---- */

static int64_t dim_of(const ds_lower_rec *rec, const ds_op *op) {
    const ds_attr *dim = ds_attr_find(op->attrs, op->n_attrs, "dim");
    int64_t at = 0;
    if (dim && !ds_expr_is_int(&rec->l->source->unit->exprs, dim->expr, &at)) return -1;
    return at;
}

/* Is the value read at the reader's own point? */
static bool is_bare(const ds_lower_rec *rec, const ds_use *use) {
    const ds_value_info *info = ds_value_at(rec->frame->func, use->value);
    for (uint32_t i = 0; i < use->n_index; i++) {
        const ds_expr_node *node = ds_expr_at(&rec->l->source->unit->exprs, use->index[i]);
        if (ds_use_is_range(use, i) || node->kind != DS_EXPR_INDEX ||
            node->name != info->binders[i].name)
            return false;
    }
    return true;
}

/* False: the use is no such path. */
static bool find_path(const ds_lower_rec *rec, const ds_use *use, path *out) {
    uint32_t n_ranges = 0;
    *out = (path){.n = 0};
    do {
        uint32_t s = rec->statement_of[use->value.i];
        if (s == UINT32_MAX || !is_bare(rec, use) || out->n == MOST_OPS) return false;
        const ds_op *op = rec->op_of[s];
        memmove(out->ops + 1, out->ops, out->n * sizeof *out->ops);
        out->ops[0] = op;
        out->n++;
        bool begins = op->code == DS_OP_STACK && dim_of(rec, op) == 1;
        if (!begins && (op->code != DS_OP_SLICE || dim_of(rec, op) < 2)) return false;
        use = &op->in[0];
    } while (out->ops[0]->code != DS_OP_STACK);
    if (rec->statement_of[use->value.i] == UINT32_MAX) return false;
    out->range = use;
    for (uint32_t d = 0; d < rec->op->n_dims; d++) {
        uint32_t i = ds_lower__rec_place(rec, use, d);
        if (i >= use->n_index || !ds_use_is_range(use, i)) continue;
        out->dim = d;
        n_ranges++;
    }
    return n_ranges == 1;
}

static bool find_paths(const ds_lower_rec *rec, const ds_op *op, path of[2]) {
    return op->code == DS_OP_ATTENTION && find_path(rec, &op->in[1], &of[0]) &&
           find_path(rec, &op->in[2], &of[1]);
}

/* Are keys or values kept for another loop than that of their stack? Then the store is of these. */
static bool is_kept(const ds_lower_rec *rec, const path of[2]) {
    for (int k = 0; k < 2; k++)
        for (uint32_t p = 0; p < of[k].n; p++) {
            const ds_lower_store *stores = &rec->stores[of[k].ops[p]->out[0].i];
            if (stores[0].wanted || stores[rec->n_values].wanted) return true;
        }
    return false;
}

static bool same(const ds_lower_rec *rec, ds_expr a, ds_expr b) {
    return ds_expr_equal(&rec->l->source->unit->exprs, a, b) == DS_YES;
}

static ds_status check(const ds_lower_rec *rec, const ds_op *op, const path of[2], ds_error *err) {
    static const char *const parts[] = {"q_start", "k_start", "document", "window"};
    const ds_use *k = of[0].range, *v = of[1].range;
    uint32_t i = ds_lower__rec_place(rec, k, of[0].dim), j = ds_lower__rec_place(rec, v, of[0].dim);
    if (of[0].dim != of[1].dim || !same(rec, k->index[i], v->index[j]) ||
        !same(rec, k->index_hi[i], v->index_hi[j]))
        return refuse(op, "keys and values are of two ranges", err);
    for (int n = 0; n < 4; n++)
        if (ds_attr_find(op->attrs, op->n_attrs, parts[n]))
            return refuse(op, "the attention has positions of its own", err);
    return DS_OK;
}

/* Does the shape of the keys or values depend on a dim of the rec? */
static bool grows(const ds_lower_rec *rec, const ds_op *op) {
    const ds_exprs *exprs = &rec->l->source->unit->exprs;
    for (uint32_t i = 1; op->code == DS_OP_ATTENTION && i < 3; i++)
        for (uint32_t d = 0; d < rec->op->n_dims; d++)
            if (ds_type_mentions(exprs, ds_value_at(rec->frame->func, op->in[i].value)->type,
                                 rec->op->dims[d].name))
                return true;
    return false;
}

/* Does another statement than those in tiles read what the statement makes? */
static bool has_others(const ds_lower_rec *rec, uint32_t source) {
    for (uint32_t s = 0; s < rec->n_whole; s++)
        for (uint32_t r = 0; r < rec->whole.statements[s].n_reads; r++)
            if (rec->whole.statements[s].reads[r].source == source && !rec->tiles.in[s])
                return true;
    return false;
}

/* Do the ranges end one point later in each turn of a chunk? Others stay whole where chunks read. */
static bool moves(const ds_lower_rec *rec, const path of[2]) {
    const ds_use *range = of[0].range;
    return of[0].dim == rec->chunks.turn &&
           ds_lower__chunk_moves(rec, range->index_hi[ds_lower__rec_place(rec, range, of[0].dim)]);
}

static void mark(ds_lower_rec *rec, uint32_t attention, const path of[2]) {
    rec->tiles.in[attention] = of[0].dim + 1;
    for (int k = 0; k < 2; k++)
        for (uint32_t p = 0; p < of[k].n; p++)
            rec->tiles.in[rec->statement_of[of[k].ops[p]->out[0].i]] = of[0].dim + 1;
}

ds_status ds_lower__rec_tiles(ds_lower_rec *rec, ds_error *err) {
    const ds_strategy *s = &rec->l->step->strategy;
    ds_lower_tiles *tiles = &rec->tiles;
    uint32_t n = 0;
    if (s->rec_attention != DS_REC_TILES) return DS_OK;
    if (rec->l->step->train.on) return refuse(rec->op, "only steps that do not train", err);
    tiles->points = s->rec_tile                     ? s->rec_tile
                    : s->rec_stores == DS_REC_PAGED ? DS_REC_PAGE_POINTS
                                                    : DS_REC_BLOCK_POINTS;
    tiles->in = DS_NEW_N(ds_lower__arena(rec->l), uint32_t, rec->n_whole + 1);
    tiles->left_out = DS_NEW_N(ds_lower__arena(rec->l), bool, rec->n_whole + 1);
    tiles->store = DS_NEW_N(ds_lower__arena(rec->l), ds_use, rec->n_whole + 1);
    for (uint32_t i = 0; i < rec->n_whole; i++) {
        const ds_op *op = rec->op_of[i];
        path of[2];
        if (!op || op->code != DS_OP_ATTENTION) continue;
        if (find_paths(rec, op, of)) {
            DS_TRY(check(rec, op, of, err));
            if (is_kept(rec, of) && grows(rec, op))
                return refuse(op, "keys and values are stacked in another loop", err);
            bool chunks = rec->chunks.on && rec->chunks.of_statement[i] != UINT32_MAX;
            if (!is_kept(rec, of) && (!chunks || moves(rec, of))) mark(rec, i, of);
            n++;
        } else if (grows(rec, op)) {
            return refuse(op, "keys and values are no stacks of turns, at dim 1", err);
        }
    }
    if (!n) return refuse(rec->op, "no attention reads a range of turns", err);
    for (uint32_t i = 0; i < rec->n_whole; i++)
        tiles->left_out[i] = tiles->in[i] && rec->op_of[i]->code != DS_OP_ATTENTION;
    for (uint32_t i = 0; i < rec->n_whole; i++)
        tiles->left_out[i] = tiles->left_out[i] && !has_others(rec, i);
    return DS_OK;
}

void ds_lower__tile_store(const ds_lower_rec *rec, uint32_t source, ds_lower_store *store) {
    bool others = false, any = false;
    for (uint32_t s = 0; rec->tiles.in && s < rec->n_whole && store->n_dims; s++)
        for (uint32_t r = 0; r < rec->whole.statements[s].n_reads; r++) {
            const ds_temporal_read *read = &rec->whole.statements[s].reads[r];
            bool range = false;
            for (uint32_t d = 0; d < rec->whole.n_dims; d++) range = range || read->index[d].end;
            if (read->source != source || !range) continue;
            any = any || rec->tiles.in[s] == store->dims[store->n_dims - 1] + 1;
            others = others || !rec->tiles.left_out[s];
        }
    if (!any || store->many) return;
    store->block = rec->tiles.points;
    store->mixed = others || (store->ranges & (store->ranges - 1));
}

/* ---- writing ---- */

static const char *name_of(const tiled *t, const char *end) {
    return ds_arena_printf(ds_lower__arena(t->rec->l), "%s%s%s", t->rec->frame->where.values,
                           ds_value_at(t->rec->frame->func, t->op->out[0])->name, end);
}

static ds_status view(const tiled *t, ds_use *x, const ds_type *type, const char *end,
                      ds_error *err) {
    ds_builder *b = &t->rec->l->b;
    ds_op *op = ds_build_op(b, DS_OP_RESHAPE);
    op->loc = ds_clone_loc(&t->rec->l->c, t->op->loc);
    ds_build_in(b, op, *x);
    *x = ds_use_of(ds_build_out(b, op, name_of(t, end), type));
    return ds_build_put(b, op, err);
}

/* The points of the store that are the loop's block. */
static ds_status take_block(const tiled *t, const path *of, ds_use *out, ds_error *err) {
    ds_lower_rec *rec = t->rec;
    ds_builder *b = &rec->l->b;
    const ds_use *use = of->range;
    const ds_lower_store *store = &rec->stores[use->value.i];
    uint32_t source = ds_lower__store_source(rec, store);
    ds_expr at[DS_TEMPORAL_DIMS] = {0}, points = ds_lower__int(rec->l, rec->tiles.points);
    for (uint32_t k = 0; k < store->n_dims; k++) {
        int64_t first = ds_lower__rec_range(rec, source, store->dims[k])->lo;
        ds_expr place = ds_lower__fold(rec->l, DS_EXPR_MUL, t->block, points);
        at[k] =
            store->dims[k] == of->dim
                ? (first ? ds_lower__fold(rec->l, DS_EXPR_ADD, place, ds_lower__int(rec->l, first))
                         : place)
                : ds_lower__expr(rec->l, rec->frame,
                                 use->index[ds_lower__rec_place(rec, use, store->dims[k])]);
    }
    ds_op *slice = ds_build_op(b, DS_OP_SLICE);
    slice->loc = ds_clone_loc(&rec->l->c, of->ops[0]->loc);
    ds_build_in(b, slice, rec->tiles.store[rec->statement_of[of->ops[0]->out[0].i]]);
    ds_expr lo = ds_lower__store_place(rec, store, at);
    ds_type *type = ds_type_copy(ds_lower__arena(rec->l), store->point);
    type->dims = DS_NEW_N(ds_lower__arena(rec->l), ds_dim, type->rank + 1);
    for (uint32_t d = 0; d <= store->point->rank; d++)
        type->dims[d] = d == 1 ? (ds_dim){.size = points} : store->point->dims[d - (d > 1)];
    type->rank++;
    const char *name = ds_value_at(rec->frame->func, use->value)->name;
    *out = ds_use_of(
        ds_build_out(b, slice, ds_arena_printf(ds_lower__arena(rec->l), "%s.block", name), type));
    ds_build_attr_int(b, slice, "dim", 1);
    ds_build_attr_expr(b, slice, "lo", lo);
    ds_build_attr_expr(b, slice, "hi", ds_lower__fold(rec->l, DS_EXPR_ADD, lo, points));
    DS_TRY(ds_build_put(b, slice, err));
    for (uint32_t i = 1; i < of->n; i++) {
        const ds_op *from = of->ops[i];
        ds_op *op = ds_build_op(b, from->code);
        op->loc = ds_clone_loc(&rec->l->c, from->loc);
        ds_build_in(b, op, *out);
        ds_lower__attrs(rec->l, rec->frame, from->attrs, from->n_attrs, "name", &op->attrs,
                        &op->n_attrs);
        name = ds_value_at(rec->frame->func, from->out[0])->name;
        *out = ds_use_of(
            ds_build_out(b, op, ds_arena_printf(ds_lower__arena(rec->l), "%s.block", name), NULL));
        DS_TRY(ds_build_put(b, op, err));
    }
    return ds_lower__cast(rec->l, out, ds_lower__type_of(rec->l, t->q)->dtype, err);
}

/* A kernel that writes the first block's results needs none before: no time. */
static void set_free(const tiled *t, ds_op *op) {
    ds_lowering *l = t->rec->l;
    ds_attr cost = {.name = ds_intern(&l->c.unit->strings, "cost"),
                    .kind = DS_ATTR_QUANTITY,
                    .expr = ds_lower__int(t->rec->l, 0)};
    ds_unit_parse("us", 2, &cost.unit);
    ds_build_attr(&l->b, op, cost);
}

/* What is carried before the first block: 0 and the logarithm of 0. */
static ds_status begin(const tiled *t, ds_use carried[2], ds_error *err) {
    ds_builder *b = &t->rec->l->b;
    const ds_type *q = ds_lower__type_of(t->rec->l, t->q);
    const ds_type *out = ds_value_at(t->rec->frame->func, t->op->out[0])->type;
    ds_type *made = ds_lower__type(t->rec->l, t->rec->frame, out);
    ds_expr dims[4];
    for (int d = 0; d < 3; d++) dims[d] = q->dims[d].size;
    dims[3] = made->dims[3].size;
    for (uint32_t i = 0; i < 2; i++) {
        ds_op *op = ds_build_op(b, i ? DS_OP_FILL : DS_OP_ZEROS);
        op->loc = ds_clone_loc(&t->rec->l->c, t->op->loc);
        if (i) ds_build_attr_real(b, op, "value", log_zero);
        set_free(t, op);
        carried[i] = ds_use_of(ds_build_out(
            b, op, name_of(t, i ? ".none_lse" : ".none"),
            ds_type_make(ds_lower__arena(t->rec->l), i ? DS_F32 : q->dtype, dims, i ? 3 : 4)));
        DS_TRY(ds_build_put(b, op, err));
    }
    return DS_OK;
}

/* The attention to the loop's block, joined to what is carried. */
static ds_status join_block(const tiled *t, ds_use carried[2], ds_error *err) {
    ds_lower_rec *rec = t->rec;
    ds_builder *b = &rec->l->b;
    ds_use block[2];
    for (int i = 0; i < 2; i++) DS_TRY(take_block(t, &t->of[i], &block[i], err));
    ds_op *part = ds_build_op(b, DS_OP_ATTENTION);
    part->loc = ds_clone_loc(&rec->l->c, t->op->loc);
    ds_build_in(b, part, t->q);
    for (int i = 0; i < 2; i++) ds_build_in(b, part, block[i]);
    for (int i = 0; i < 2; i++)
        ds_build_out(b, part, name_of(t, i ? ".block_lse" : ".block"), NULL);
    ds_lower__attrs(rec->l, rec->frame, t->op->attrs, t->op->n_attrs, "name", &part->attrs,
                    &part->n_attrs);
    ds_build_attr_bool(b, part, "causal", true);
    ds_build_attr_expr(b, part, "q_start",
                       ds_lower__fold(rec->l, DS_EXPR_SUB, t->end, ds_lower__int(rec->l, 1)));
    ds_build_attr_expr(
        b, part, "k_start",
        ds_lower__fold(rec->l, DS_EXPR_MUL, t->block, ds_lower__int(rec->l, rec->tiles.points)));
    if (DS_HAS_EXPR(t->window)) ds_build_attr_expr(b, part, "window", t->window);
    DS_TRY(ds_build_put(b, part, err));
    ds_op *merge = ds_build_op(b, DS_OP_ATTENTION_MERGE);
    merge->loc = part->loc;
    for (int i = 0; i < 2; i++) ds_build_in(b, merge, carried[i]);
    for (int i = 0; i < 2; i++) ds_build_in(b, merge, ds_use_of(part->out[i]));
    for (int i = 0; i < 2; i++) {
        ds_value out = ds_build_out(b, merge, name_of(t, i ? ".so_far_lse" : ".so_far"), NULL);
        carried[i] = ds_use_of(out);
    }
    return ds_build_put(b, merge, err);
}

static ds_status write_loop(const tiled *at, ds_error *err) {
    tiled t = *at;
    ds_lower_rec *rec = t.rec;
    ds_builder *b = &rec->l->b;
    ds_expr points = ds_lower__int(rec->l, rec->tiles.points);
    ds_expr lo = ds_lower__fold(rec->l, DS_EXPR_DIV, t.from, points), end;
    if (t.whole) lo = ds_lower__int(rec->l, 0);
    end = ds_lower__fold(rec->l, DS_EXPR_CEILDIV, t.last, points);
    if (!t.whole) /* an empty range has no block */
        end = ds_lower__fold(rec->l, DS_EXPR_MIN, end,
                             ds_lower__fold(rec->l, DS_EXPR_ADD, lo,
                                            ds_lower__fold(rec->l, DS_EXPR_SUB, t.last, t.from)));
    ds_use carried[2];
    DS_TRY(begin(&t, carried, err));
    ds_op *loop = ds_build_for(b, ds_lower__rec_index(rec, "block"), lo, end);
    loop->loc = ds_clone_loc(&rec->l->c, t.op->loc);
    for (int i = 0; i < 2; i++)
        carried[i] = ds_use_of(
            ds_build_carry(b, loop, name_of(&t, i ? ".until_lse" : ".until"), NULL, carried[i]));
    t.block = ds_expr_index(&rec->l->c.unit->exprs, loop->index);
    DS_TRY(join_block(&t, carried, err));
    const char *names[2] = {name_of(&t, ""), name_of(&t, ".lse")};
    if (t.op->n_out > 1) names[1] = ds_value_at(rec->frame->func, t.op->out[1])->name;
    for (int i = 0; i < 2; i++) names[i] = ds_clone_text(&rec->l->c, names[i]);
    DS_TRY(ds_build_yield(b, carried, 2, NULL, 0, names, err));
    for (uint32_t i = 0; i < t.op->n_out; i++)
        *ds_lower__rec_local(rec, rec->running->statement, t.op->out[i]) = ds_use_of(loop->out[i]);
    return DS_OK;
}

/* Queries of a chunk's turns are one sequence. */
static ds_status join_turns(tiled *t, ds_error *err) {
    ds_lower_rec *rec = t->rec;
    if (!ds_lower__mark_of(rec, t->q)) DS_TRY(ds_lower__chunk_repeat(rec, &t->q, 1, err));
    DS_TRY(ds_lower__chunk_move(rec, &t->q, 1, err));
    const ds_type *q = ds_lower__type_of(rec->l, t->q);
    const ds_expr dims[4] = {q->dims[0].size, q->dims[1].size, q->dims[3].size, q->dims[4].size};
    return view(t, &t->q, ds_type_make(ds_lower__arena(rec->l), q->dtype, dims, 4), ".queries",
                err);
}

static ds_status part_turns(const tiled *t, ds_error *err) {
    ds_lower_rec *rec = t->rec;
    for (uint32_t i = 0; i < t->op->n_out; i++) {
        ds_use *out = ds_lower__rec_local(rec, rec->running->statement, t->op->out[i]);
        const ds_type *point = ds_value_at(rec->frame->func, t->op->out[i])->type;
        ds_type *type = ds_lower__chunk_type(rec, ds_lower__type(rec->l, rec->frame, point), 1);
        type->dtype = ds_lower__type_of(rec->l, *out)->dtype;
        DS_TRY(view(t, out, type, i ? ".lse" : "", err));
        ds_lower__mark(rec, *out, (ds_lower_mark){.axis = 1});
    }
    return DS_OK;
}

/* Positions count from the dim's first point. */
static ds_expr position(const tiled *t, ds_expr at) {
    uint32_t source = t->rec->statement_of[t->of[0].range->value.i];
    int64_t first = ds_lower__rec_range(t->rec, source, t->of[0].dim)->lo;
    return first ? ds_lower__fold(t->rec->l, DS_EXPR_SUB, at, ds_lower__int(t->rec->l, first)) : at;
}

static ds_status attend(ds_lower_rec *rec, const ds_op *op, bool chunk, ds_error *err) {
    tiled t = {.rec = rec, .op = op, .window = DS_NO_EXPR};
    if (!find_paths(rec, op, t.of)) return ds_error_set(err, DS_ERR_INTERNAL, op->loc, "no range");
    const ds_use *range = t.of[0].range;
    uint32_t i = ds_lower__rec_place(rec, range, t.of[0].dim);
    int64_t n, from;
    for (int k = 0; k < 2; k++) {
        const ds_lower_store *store = &rec->stores[t.of[k].range->value.i];
        if (!store->wanted || !store->block || store->axis != 1 ||
            store->dims[store->n_dims - 1] != t.of[k].dim)
            return refuse(op, "keys and values are read in another way elsewhere", err);
    }
    DS_TRY(ds_lower__use(rec->l, rec->frame, &op->in[0], &t.q, err));
    uint32_t axis = ds_lower__mark_of(rec, t.q) && ds_lower__mark_of(rec, t.q)->axis <= 1;
    if (!ds_lower__rec_size(rec, ds_lower__type_of(rec->l, t.q)->dims[1 + axis].size, op->loc,
                            &n) ||
        n != 1)
        return refuse(op, "a turn has several queries", err);
    t.from = position(&t, ds_lower__expr(rec->l, rec->frame, range->index[i]));
    t.end = t.last = position(&t, ds_lower__expr(rec->l, rec->frame, range->index_hi[i]));
    t.whole = ds_expr_is_int(&rec->l->c.unit->exprs, t.from, &from) && from == 0;
    if (!t.whole) t.window = ds_lower__fold(rec->l, DS_EXPR_SUB, t.end, t.from);
    if (!chunk) return write_loop(&t, err);
    int64_t back = (int64_t)*ds_map_find(&rec->chunks.back_of, DS_KEY(range));
    t.last = position(&t, ds_lower__chunk_last(rec, range->index_hi[i]));
    t.window = back == INT64_MAX ? DS_NO_EXPR : ds_lower__int(rec->l, back + 1);
    DS_TRY(join_turns(&t, err));
    DS_TRY(write_loop(&t, err));
    return part_turns(&t, err);
}

ds_status ds_lower__tile_op(ds_lower_rec *rec, const ds_op *op, bool *done, ds_error *err) {
    uint32_t run = rec->running->statement, s = ds_lower__rec_origin(rec, run);
    bool chunk = ds_lower__rec_is_chunk(rec, run);
    *done = false;
    if (!rec->tiles.in || !rec->tiles.in[s]) return DS_OK;
    if (chunk && rec->chunks.n == 1) return DS_OK;
    if (op->code == DS_OP_STACK) rec->tiles.store[s] = rec->stores[op->in[0].value.i].now;
    *done = rec->tiles.left_out[s] || op->code == DS_OP_ATTENTION;
    return op->code == DS_OP_ATTENTION ? attend(rec, op, chunk, err) : DS_OK;
}
