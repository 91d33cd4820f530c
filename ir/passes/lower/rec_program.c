/* A rec as a temporal program: equations become statements, uses become reads, with numbers for
 * params. */
#include "ir/passes/lower/rec_internal.h"

#include <string.h>

typedef struct maker {
    ds_lower_rec *rec;
    const ds_exprs *exprs;
    ds_env env;
    ds_arena *arena;
    DS_VEC(ds_temporal_read) reads;        /* of the statement at hand */
    DS_VEC(const ds_use *) uses;           /* … and their uses */
    DS_VEC(const ds_temporal_expr *) cuts; /* … and conditions of branches from outside */
} maker;

/* ---- expressions ---- */

static ds_status convert(const maker *m, ds_expr e, ds_loc loc, const ds_temporal_expr **out,
                         ds_error *err);

static ds_status convert_index(const maker *m, const ds_expr_node *node, ds_loc loc,
                               const ds_temporal_expr **out, ds_error *err) {
    const ds_op *rec = m->rec->op;
    for (uint32_t d = 0; d < rec->n_dims; d++)
        if (rec->dims[d].name == node->name) {
            *out = ds_temporal_dim(m->arena, d);
            return DS_OK;
        }
    return ds_error_set(err, DS_ERR_UNSUPPORTED, loc,
                        "an index, bound or condition depends on '%s', which is no dim of the rec",
                        node->name);
}

static const ds_temporal_expr *op_of(const maker *m, ds_temporal_kind kind,
                                     const ds_temporal_expr *a, const ds_temporal_expr *b) {
    return ds_temporal_op(m->arena, kind, a, b);
}

/* The temporal kind of an expression's; `swapped`: with the operands exchanged. */
static const struct {
    ds_temporal_kind kind;
    bool swapped;
} kinds[] = {[DS_EXPR_MIN] = {DS_TEMPORAL_MIN, false}, [DS_EXPR_MAX] = {DS_TEMPORAL_MAX, false},
             [DS_EXPR_OR] = {DS_TEMPORAL_OR, false},   [DS_EXPR_AND] = {DS_TEMPORAL_AND, false},
             [DS_EXPR_EQ] = {DS_TEMPORAL_EQ, false},   [DS_EXPR_NE] = {DS_TEMPORAL_NE, false},
             [DS_EXPR_LT] = {DS_TEMPORAL_LT, false},   [DS_EXPR_LE] = {DS_TEMPORAL_LE, false},
             [DS_EXPR_GT] = {DS_TEMPORAL_LT, true},    [DS_EXPR_GE] = {DS_TEMPORAL_LE, true},
             [DS_EXPR_ADD] = {DS_TEMPORAL_ADD, false}, [DS_EXPR_SUB] = {DS_TEMPORAL_SUB, false},
             [DS_EXPR_MUL] = {DS_TEMPORAL_MUL, false}, [DS_EXPR_DIV] = {DS_TEMPORAL_DIV, false},
             [DS_EXPR_MOD] = {DS_TEMPORAL_MOD, false}};

static ds_status convert_binary(const maker *m, const ds_expr_node *node, ds_loc loc,
                                const ds_temporal_expr **out, ds_error *err) {
    const ds_temporal_expr *a, *b;
    DS_TRY(convert(m, node->a, loc, &a, err));
    DS_TRY(convert(m, node->b, loc, &b, err));
    if (node->kind == DS_EXPR_CEILDIV) {
        const ds_temporal_expr *less = op_of(m, DS_TEMPORAL_SUB, b, ds_temporal_const(m->arena, 1));
        *out = op_of(m, DS_TEMPORAL_DIV, op_of(m, DS_TEMPORAL_ADD, a, less), b);
        return DS_OK;
    }
    bool swapped = kinds[node->kind].swapped;
    *out = op_of(m, kinds[node->kind].kind, swapped ? b : a, swapped ? a : b);
    return DS_OK;
}

static ds_status convert(const maker *m, ds_expr e, ds_loc loc, const ds_temporal_expr **out,
                         ds_error *err) {
    const ds_expr_node *node = ds_expr_at(m->exprs, e);
    const ds_temporal_expr *a;
    int64_t value;
    if (node->kind == DS_EXPR_INDEX) return convert_index(m, node, loc, out, err);
    if (!node->varies) {
        DS_TRY(ds_expr_eval_int(&m->env, e, loc, &value, err));
        *out = ds_temporal_const(m->arena, value);
        return DS_OK;
    }
    if (node->kind != DS_EXPR_NEG && node->kind != DS_EXPR_NOT)
        return convert_binary(m, node, loc, out, err);
    DS_TRY(convert(m, node->a, loc, &a, err));
    *out = node->kind == DS_EXPR_NOT ? op_of(m, DS_TEMPORAL_NOT, a, NULL)
                                     : op_of(m, DS_TEMPORAL_SUB, ds_temporal_const(m->arena, 0), a);
    return DS_OK;
}

/* ---- reads ---- */

static uint32_t dim_named(const maker *m, const char *name) {
    uint32_t d = 0;
    while (m->rec->op->dims[d].name != name) d++;
    return d;
}

static ds_status add_read(maker *m, const ds_use *use, const ds_temporal_expr *when,
                          ds_error *err) {
    uint32_t source = m->rec->statement_of[use->value.i];
    if (source == UINT32_MAX) return DS_OK;
    const ds_value_info *info = ds_value_at(m->rec->frame->func, use->value);
    ds_temporal_read read = {.source = source, .when = when};
    for (uint32_t i = 0; i < use->n_index; i++) {
        ds_temporal_index *index = &read.index[dim_named(m, info->binders[i].name)];
        DS_TRY(convert(m, use->index[i], use->loc, &index->at, err));
        if (ds_use_is_range(use, i))
            DS_TRY(convert(m, use->index_hi[i], use->loc, &index->end, err));
    }
    DS_PUSH(m->arena, &m->reads, read);
    DS_PUSH(m->arena, &m->uses, use);
    return DS_OK;
}

static bool is_outside(const maker *m, const ds_use *use) {
    return m->rec->statement_of[use->value.i] == UINT32_MAX;
}

/* A branch is read where its condition holds and none before it. One branch from outside is read
 * where no other is; several are told apart by cuts. */
static ds_status add_branches(maker *m, const ds_op *op, ds_error *err) {
    const ds_temporal_expr *none = NULL; /* no condition before holds; NULL: there is none */
    uint32_t n_outside = 0;
    for (uint32_t i = 0; i < op->n_in; i++) n_outside += is_outside(m, &op->in[i]);
    for (uint32_t i = 0; i < op->n_in; i++) {
        const ds_temporal_expr *when = none;
        if (i < op->n_conds) {
            const ds_temporal_expr *holds;
            DS_TRY(convert(m, op->conds[i], op->in[i].loc, &holds, err));
            when = none ? op_of(m, DS_TEMPORAL_AND, none, holds) : holds;
            const ds_temporal_expr *not = op_of(m, DS_TEMPORAL_NOT, holds, NULL);
            none = none ? op_of(m, DS_TEMPORAL_AND, none, not ) : not ;
        }
        if (n_outside > 1 && when && is_outside(m, &op->in[i])) DS_PUSH(m->arena, &m->cuts, when);
        DS_TRY(add_read(m, &op->in[i], when, err));
    }
    return DS_OK;
}

static ds_status add_reads(maker *m, const ds_op *op, ds_error *err) {
    if (op->code == DS_OP_CASE) return add_branches(m, op, err);
    for (uint32_t i = 0; i < op->n_in; i++) DS_TRY(add_read(m, &op->in[i], NULL, err));
    for (uint32_t i = 0; op->body && i < op->body->n_ops; i++)
        DS_TRY(add_reads(m, op->body->ops[i], err));
    return DS_OK;
}

/* ---- statements ---- */

static uint32_t dims_of(const maker *m, const ds_binder *binders, uint32_t n) {
    uint32_t dims = 0;
    for (uint32_t i = 0; i < n; i++) dims |= 1u << dim_named(m, binders[i].name);
    return dims;
}

/* Of all results at the last point; what is not known counts nothing. */
static int64_t bytes_of(const maker *m, const ds_op *op) {
    ds_index at[DS_TEMPORAL_DIMS];
    ds_env env = m->env;
    int64_t sum = 0;
    for (uint32_t d = 0; d < m->rec->op->n_dims; d++) {
        at[d] = (ds_index){m->rec->op->dims[d].name, m->rec->program.dims[d].hi - 1, env.indices};
        env.indices = &at[d];
    }
    for (uint32_t k = 0; k < op->n_out; k++) {
        const ds_type *type = ds_value_at(m->rec->frame->func, op->out[k])->type;
        int64_t bytes = type ? (int64_t)ds_dtype_bits(type->dtype) : 0, size;
        for (uint32_t d = 0; type && d < type->rank; d++)
            if (ds_expr_eval_int(&env, type->dims[d].size, op->loc, &size, NULL) != DS_OK ||
                __builtin_mul_overflow(bytes, size, &bytes))
                bytes = 0;
        sum += bytes > INT64_C(1) << 50 ? INT64_C(1) << 50 : bytes / 8;
    }
    return sum;
}

const ds_temporal_read *ds_lower__rec_read(const ds_lower_rec *rec, const ds_use *use,
                                           bool by_chunk, bool of_chunk) {
    uint64_t *found = ds_map_find(&rec->read_of, DS_KEY(use));
    return found ? ((const ds_lower_reads *)(uintptr_t)*found)->at[by_chunk][of_chunk] : NULL;
}

void ds_lower__rec_put_read(ds_lower_rec *rec, const ds_use *use, const bool chunks[2],
                            const ds_temporal_read *read) {
    uint64_t *found = ds_map_find(&rec->read_of, DS_KEY(use));
    ds_lower_reads *reads = found ? (ds_lower_reads *)(uintptr_t)*found
                                  : DS_NEW(&rec->l->c.unit->arena, ds_lower_reads);
    reads->at[chunks[0]][chunks[1]] = read;
    ds_map_put(&rec->read_of, DS_KEY(use), (uint64_t)(uintptr_t)reads);
}

static void end_statement(maker *m, uint32_t s) {
    ds_temporal_statement *made = (ds_temporal_statement *)&m->rec->program.statements[s];
    made->reads = m->reads.at;
    made->n_reads = m->reads.n;
    made->cuts = m->cuts.at;
    made->n_cuts = m->cuts.n;
    m->rec->uses[s] = m->uses.at;
    for (uint32_t r = 0; r < m->reads.n; r++)
        ds_lower__rec_put_read(m->rec, m->uses.at[r], (bool[]){false, false}, &made->reads[r]);
    m->reads.at = NULL; /* the next statement has arrays of its own */
    m->uses.at = NULL;
    m->cuts.at = NULL;
    m->reads.n = m->reads.cap = m->uses.n = m->uses.cap = m->cuts.n = m->cuts.cap = 0;
}

static ds_status read_header(maker *m, ds_error *err) {
    const ds_op *op = m->rec->op;
    ds_temporal_program *program = &m->rec->program;
    if (op->n_dims > DS_TEMPORAL_DIMS)
        return ds_error_set(err, DS_ERR_LIMIT, op->loc, "a rec of %u dims; at most %u", op->n_dims,
                            DS_TEMPORAL_DIMS);
    program->n_dims = op->n_dims;
    for (uint32_t d = 0; d < op->n_dims; d++) {
        ds_temporal_range *range = &program->dims[d];
        range->name = op->dims[d].name;
        DS_TRY(ds_expr_eval_int(&m->env, op->dims[d].lo, op->dims[d].loc, &range->lo, err));
        DS_TRY(ds_expr_eval_int(&m->env, op->dims[d].hi, op->dims[d].loc, &range->hi, err));
        if (range->hi < range->lo) range->hi = range->lo;
    }
    return DS_OK;
}

/* Of an equation of one stage, that stage's part of the dim; NULL: an equation of all points. */
static const ds_temporal_range *ranges_of(const maker *m, const ds_op *op) {
    const ds_lower_parts *parts = m->rec->parts;
    const uint64_t *part = parts ? ds_map_find(&parts->of, DS_KEY(op)) : NULL;
    if (!part) return NULL;
    ds_temporal_range *ranges = DS_NEW_N(m->arena, ds_temporal_range, DS_TEMPORAL_DIMS);
    memcpy(ranges, m->rec->program.dims, DS_TEMPORAL_DIMS * sizeof *ranges);
    ranges[parts->dim] = parts->ranges[*part - 1];
    return ranges;
}

/* Does the shape of a result depend on a dim of the rec? */
static bool is_unstored(const maker *m, const ds_op *op) {
    for (uint32_t k = 0; k < op->n_out; k++)
        for (uint32_t d = 0; d < m->rec->op->n_dims; d++) {
            const ds_type *type = ds_value_at(m->rec->frame->func, op->out[k])->type;
            if (type && ds_type_mentions(m->exprs, type, m->rec->op->dims[d].name)) return true;
        }
    return false;
}

/* The equations that are ops of a turn, in the order of the text. */
static void list_statements(maker *m, ds_temporal_statement *made) {
    ds_lower_rec *rec = m->rec;
    const ds_block *body = rec->op->body;
    uint32_t n = 0;
    for (uint32_t i = 0; i < body->n_ops; i++) {
        const ds_op *op = body->ops[i];
        if (op->code == DS_OP_WEIGHT || op->code == DS_OP_YIELD || !op->n_out) continue;
        const ds_value_info *info = ds_value_at(rec->frame->func, op->out[0]);
        for (uint32_t k = 0; k < op->n_out; k++) rec->statement_of[op->out[k].i] = n;
        rec->op_of[n] = op;
        made[n++] = (ds_temporal_statement){.name = info->name,
                                            .dims = dims_of(m, info->binders, info->n_binders),
                                            .ranges = ranges_of(m, op),
                                            .bytes = bytes_of(m, op),
                                            .unstored = is_unstored(m, op)};
    }
    const ds_op *end = body->ops[body->n_ops - 1];
    for (uint32_t k = 0; k < rec->op->n_out; k++) {
        const ds_value_info *info = ds_value_at(rec->frame->func, rec->op->out[k]);
        ((const ds_use **)(uintptr_t)rec->yielded)[n] = &end->in[k];
        made[n++] = (ds_temporal_statement){
            .name = info->name, .dims = dims_of(m, info->binders, info->n_binders), .kept = true};
    }
    rec->program.n = n;
}

ds_status ds_lower__rec_program(ds_lower_rec *rec, ds_error *err) {
    ds_lowering *l = rec->l;
    maker m = {.rec = rec,
               .exprs = &l->source->unit->exprs,
               .env = ds_binding_env(l->source, NULL),
               .arena = &l->c.unit->arena};
    const ds_block *body = rec->op->body;
    uint32_t n = body->n_ops + rec->op->n_out, n_values = rec->frame->func->values.n;
    ds_temporal_statement *made = DS_NEW_N(m.arena, ds_temporal_statement, n + 1);
    rec->op_of = DS_NEW_N(m.arena, const ds_op *, n + 1);
    rec->yielded = DS_NEW_N(m.arena, const ds_use *, n + 1);
    rec->statement_of = DS_NEW_N(m.arena, uint32_t, n_values + 1);
    memset(rec->statement_of, 0xff, (n_values + 1) * sizeof *rec->statement_of);
    rec->uses = DS_NEW_N(m.arena, const ds_use *const *, n + 1);
    rec->n_values = n_values;
    rec->program.statements = made;
    DS_TRY(read_header(&m, err));
    list_statements(&m, made);
    for (uint32_t s = 0; s < rec->program.n; s++) {
        if (rec->op_of[s])
            DS_TRY(add_reads(&m, rec->op_of[s], err));
        else
            DS_TRY(add_read(&m, rec->yielded[s], NULL, err));
        end_statement(&m, s);
    }
    rec->whole = rec->program;
    rec->n_whole = rec->program.n;
    return DS_OK;
}

void ds_lower__rec_note_order(const ds_lower_rec *rec) {
    if (rec->schedule.unrolled)
        ds_lower__note(rec->l,
                       ds_arena_printf(&rec->l->c.unit->arena,
                                       " The rec of line %u is written out point by point: no nest "
                                       "of loops orders it.",
                                       rec->op->loc.line));
    if (rec->schedule.inexact)
        ds_lower__note(rec->l,
                       ds_arena_printf(&rec->l->c.unit->arena,
                                       " Of the rec of line %u more points run than results need.",
                                       rec->op->loc.line));
    ds_buf text = {0};
    const char **orders = &rec->l->step->orders;
    ds_buf_printf(&text, "%s// the rec of line %u\n", *orders ? *orders : "", rec->op->loc.line);
    ds_temporal_nest_brief(&rec->program, &rec->schedule, &text);
    *orders = ds_arena_strdup(&rec->l->c.unit->arena, text.text);
    ds_buf_deinit(&text);
}
