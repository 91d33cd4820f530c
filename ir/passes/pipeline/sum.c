/* Gradients of one weight, added up over the stages that hold terms.
 *
 * A weight that several chunks read (a tied table) is an argument of each chunk, and a schedule
 * with two copies of the weights has every weight twice. Each stage adds up its own terms of such a
 * gradient; then the stages all_reduce their sums in place, as in Megatron and DeepSpeed. No stage
 * holds another stage's terms.
 *
 * `grad` writes the sum of a tied weight once for each of its arguments, as a chain of adds after
 * the microbatches. This file finds the chains by their operands, and the all_reduce replaces them.
 * A chain that is not found (shardings differ between chunks), and a chain on other devices than the
 * stages' (a group's), is copied and sent like other ops. */
#include "ir/ops/ops.h"
#include "ir/passes/pipeline/emit.h"

#include <stdlib.h>
#include <string.h>

/* ---- the sum ---- */

/* out… = code(in…), each result as its operand. */
typedef struct sum_op {
    ds_opcode code;
    const ds_value *in;
    uint32_t n_in, n_out;
    const char *const *names; /* of the results */
    ds_value *out;
} sum_op;

static void put_op(ds_pipe *p, const sum_op *s, const ds_use *in, const char *const *names) {
    ds_op *op = ds_build_op(&p->b, s->code);
    op->across = s->code == DS_OP_ALL_REDUCE;
    if (!op->across) ds_build_attr_word(&p->b, op, "role", "gradient");
    for (uint32_t i = 0; i < s->n_in; i++) ds_build_in(&p->b, op, in[i]);
    for (uint32_t i = 0; i < s->n_out; i++) {
        s->out[i] = ds_build_out(&p->b, op, names[i], ds_value_at(p->b.func, in[i].value)->type);
        ds_value_at(p->b.func, s->out[i])->type_written = false;
    }
    ds_build_append(&p->b, op);
}

/* The same for each element of families. */
static ds_status put_loop(ds_pipe *p, const sum_op *s, ds_error *err) {
    ds_arena *arena = &p->unit->arena;
    const ds_binder *binder = ds_value_at(p->b.func, s->in[0])->binders;
    ds_use *uses = DS_NEW_N(arena, ds_use, s->n_in + s->n_out);
    const char **turns = DS_NEW_N(arena, const char *, s->n_out);
    ds_build_for(&p->b, binder->name, binder->lo, binder->hi);
    ds_expr index = ds_expr_index(&p->unit->exprs, binder->name);
    for (uint32_t i = 0; i < s->n_in; i++) uses[i] = ds_use_at(arena, s->in[i], &index, 1);
    for (uint32_t i = 0; i < s->n_out; i++)
        turns[i] = ds_arena_printf(arena, "%s.turn", s->names[i]);
    put_op(p, s, uses, turns);
    ds_use *kept = uses + s->n_in;
    for (uint32_t i = 0; i < s->n_out; i++) kept[i] = ds_use_of(s->out[i]);
    DS_TRY(ds_build_yield(&p->b, NULL, 0, kept, s->n_out, s->names, err));
    for (uint32_t i = 0; i < s->n_out; i++) s->out[i] = ds_build_last(&p->b)->out[i];
    return DS_OK;
}

static ds_status put_sum(ds_pipe *p, const sum_op *s, ds_error *err) {
    const ds_value_info *info = ds_value_at(p->b.func, s->in[0]);
    if (info->n_binders > 1)
        return ds_error_set(
            err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
            "pipeline: %%%s is a family over %u indices, and the gradient of a "
            "weight that is held twice: use a schedule with one copy of the weights",
            info->name, info->n_binders);
    if (info->n_binders) return put_loop(p, s, err);
    ds_use *uses = DS_NEW_N(&p->unit->arena, ds_use, s->n_in);
    for (uint32_t i = 0; i < s->n_in; i++) uses[i] = ds_use_of(s->in[i]);
    put_op(p, s, uses, s->names);
    return DS_OK;
}

static ds_value cast(ds_pipe *p, ds_value from, ds_dtype dtype, const char *name) {
    ds_op *op = ds_build_op(&p->b, DS_OP_CAST);
    ds_build_attr_word(&p->b, op, "role", "gradient");
    ds_build_attr_word(&p->b, op, "dtype", ds_dtype_name(dtype));
    ds_build_in(&p->b, op, ds_use_of(from));
    ds_type *type = ds_type_copy(&p->unit->arena, ds_value_at(p->b.func, from)->type);
    type->dtype = dtype;
    ds_value out = ds_build_out(&p->b, op, name, type);
    ds_value_at(p->b.func, out)->type_written = false;
    ds_build_append(&p->b, op);
    return out;
}

/* The all_reduce over the stages, in strategy.tied_dtype. Families keep the dtype of gradients. */
static ds_status reduce(ds_pipe *p, ds_value *parts, uint32_t n, const char **names, ds_value *sums,
                        ds_error *err) {
    const ds_value_info *info = ds_value_at(p->b.func, parts[0]);
    ds_dtype own = info->type->dtype, wanted = p->step->strategy.tied_dtype;
    sum_op over = {DS_OP_ALL_REDUCE, parts, n, n, names, sums};
    if (wanted == DS_DTYPE_COUNT || wanted == own || info->n_binders) return put_sum(p, &over, err);
    const char **narrow = DS_NEW_N(&p->unit->arena, const char *, n);
    for (uint32_t i = 0; i < n; i++) {
        narrow[i] = ds_arena_join(&p->unit->arena, names[i], ".tied");
        parts[i] = cast(p, parts[i], wanted, ds_arena_join(&p->unit->arena, names[i], ".own"));
    }
    over.names = narrow;
    DS_TRY(put_sum(p, &over, err));
    for (uint32_t i = 0; i < n; i++) sums[i] = cast(p, sums[i], own, names[i]);
    return DS_OK;
}

static uint32_t first_on(const ds_pipe_term *terms, uint32_t stage) {
    uint32_t i = 0;
    while (terms[i].stage != stage) i++;
    return i;
}

/* Adds the terms of each stage to the stage's first term, in place. */
static ds_status add_up(ds_pipe *p, ds_pipe_term *terms, uint32_t n, bool one_stage,
                        ds_error *err) {
    for (uint32_t i = 0; i < n; i++) {
        ds_pipe_term *sum = &terms[first_on(terms, terms[i].stage)];
        if (sum == &terms[i]) continue;
        bool last = one_stage;
        for (uint32_t k = i + 1; k < n; k++) last = last && terms[k].stage != sum->stage;
        const char *name =
            last ? sum->name : ds_arena_printf(&p->unit->arena, "%s.part", sum->name);
        const ds_value pair[] = {sum->value, terms[i].value};
        sum_op add = {DS_OP_ACCUMULATE, pair, 2, 1, &name, &sum->value};
        DS_TRY(put_sum(p, &add, err));
    }
    return DS_OK;
}

ds_status ds_pipe__sum(ds_pipe *p, ds_pipe_term *terms, uint32_t n, ds_error *err) {
    ds_arena *arena = &p->unit->arena;
    ds_value *parts = DS_NEW_N(arena, ds_value, n), *sums = DS_NEW_N(arena, ds_value, n);
    const char **names = DS_NEW_N(arena, const char *, n);
    uint32_t n_stages = 0;
    for (uint32_t i = 0; i < n; i++) n_stages += first_on(terms, terms[i].stage) == i;
    DS_TRY(add_up(p, terms, n, n_stages == 1, err));
    if (n_stages > 1) {
        for (uint32_t i = 0, k = 0; i < n; i++) {
            if (first_on(terms, terms[i].stage) != i) continue;
            parts[k] = terms[i].value;
            names[k++] = terms[i].name;
        }
        DS_TRY(reduce(p, parts, n_stages, names, sums, err));
    }
    for (uint32_t i = 0, k = 0; i < n; i++) {
        uint32_t first = first_on(terms, terms[i].stage);
        if (first < i)
            terms[i].value = terms[first].value;
        else if (n_stages > 1)
            terms[i].value = sums[k++];
    }
    return DS_OK;
}

/* ---- chains of adds ---- */

static uint32_t gradient_of(const ds_pipe *p, uint32_t w) {
    return p->parts[p->m - 1]->out[p->step->n_model_results + w].i;
}

typedef struct finder {
    const ds_pipe *p;
    ds_pipe_tied *of; /* by value */
    uint32_t *size;   /* by group: weights in it */
    bool *also;       /* by group: an op outside of the chains reads a term */
} finder;

/* Begins with the gradients: each is a range of one. */
static void note_gradients(finder *f) {
    const ds_step_weight *weights = f->p->step->weights.at;
    for (uint32_t w = 0, n = ds_step_n_trained(f->p->step); w < n; w++) {
        uint32_t group = weights[w].tied;
        f->of[gradient_of(f->p, w)] =
            (ds_pipe_tied){.group = group, .lo = f->size[group], .hi = f->size[group] + 1};
        f->size[group]++;
        const ds_value gradient = {gradient_of(f->p, w)};
        if (ds_pipe__is_apart(f->p, ds_value_at(f->p->old, gradient)->type)) f->also[group] = true;
    }
}

/* Is the op a + b, where the range of b begins at the end of the range of a? */
static bool joins_ranges(finder *f, const ds_op *op) {
    if (op->code != DS_OP_ADD || op->in[0].n_index || op->in[1].n_index) return false;
    ds_pipe_tied a = f->of[op->in[0].value.i], b = f->of[op->in[1].value.i];
    if (a.group == DS_PIPE_NONE || a.group != b.group || a.hi != b.lo) return false;
    f->of[op->out[0].i] = (ds_pipe_tied){.group = a.group, .lo = a.lo, .hi = b.hi};
    return true;
}

static void read_part(void *context, const ds_use *use) {
    finder *f = context;
    const ds_pipe_tied *x = &f->of[use->value.i];
    if (x->group != DS_PIPE_NONE && x->hi - x->lo < f->size[x->group]) f->also[x->group] = true;
}

void ds_pipe__find_tied(const ds_pipe *p, ds_pipe_tied *of) {
    const ds_block *body = &p->old->body;
    uint32_t n = p->step->weights.n;
    finder f = {.p = p, .of = of};
    f.size = ds_xcalloc(n + 1u, sizeof *f.size);
    f.also = ds_xcalloc(n + 1u, sizeof *f.also);
    for (uint32_t v = 0; v < p->old->values.n; v++) of[v].group = DS_PIPE_NONE;
    note_gradients(&f);
    for (uint32_t i = p->tail; i < body->n_ops; i++)
        if (!joins_ranges(&f, body->ops[i])) ds_pipe_uses(body->ops[i], read_part, &f);
    for (uint32_t v = 0; v < p->old->values.n; v++) {
        uint32_t group = of[v].group;
        if (group != DS_PIPE_NONE && (f.size[group] == 1 || f.also[group]))
            of[v].group = DS_PIPE_NONE;
        of[v].is_total = of[v].group != DS_PIPE_NONE && of[v].hi - of[v].lo == f.size[group];
    }
    free(f.size);
    free(f.also);
}
