/* Kinds of functions: items whose functions would say the same share one function.
 *
 * The text of an item's function is spelled out as words: ops, types, attributes, names of
 * arguments' inputs, and values by their numbers. Left out are the names of values, the mesh slice,
 * and integers in ranges, reads and attributes. The integers are a list of their own. Functions of
 * one kind have the same words, and lists that differ as a line does: the i-th integer is a[i] k +
 * b[i] for one k of the member. For chunks of a model k is the first layer. The function of the kind
 * has a mesh parameter, and, if any a[i] is not 0, k as its index parameter. */
#include "ir/passes/pipeline/kinds.h"
#include "ir/passes/build/copy.h"

#include <stdlib.h>
#include <string.h>

typedef ds_pipe_walk walk;

/* ---- expressions ---- */

enum { MAX_TREE = 1024 }; /* longer expressions are compared as they are */

static void put(walk *w, uint64_t word) {
    if (w->words) DS_HPUSH(w->words, word);
}

/* The i-th integer in terms of the kind's index. */
static ds_expr integer(const walk *w, int64_t value) {
    const ds_pipe_kind *kind = w->kind;
    int64_t slope = kind->slope ? kind->slope[w->at] : 0, rest = value - slope * kind->base;
    if (!slope) return ds_expr_int(w->exprs, value);
    ds_expr line = w->index;
    if (slope != 1) line = ds_expr_fold(w->exprs, DS_EXPR_MUL, ds_expr_int(w->exprs, slope), line);
    return ds_expr_fold(w->exprs, rest < 0 ? DS_EXPR_SUB : DS_EXPR_ADD, line,
                        ds_expr_int(w->exprs, rest < 0 ? -rest : rest));
}

static ds_expr walk_expr(walk *w, ds_expr e) {
    ds_expr_node node = *ds_expr_at(w->exprs, e);
    if (node.kind == DS_EXPR_INT) {
        put(w, DS_EXPR_INT);
        if (w->integers) DS_HPUSH(w->integers, node.i);
        if (w->kind) e = integer(w, node.i);
        w->at++;
        return e;
    }
    bool leaf = !DS_HAS_EXPR(node.a) || node.size > MAX_TREE;
    put(w, leaf ? (uint64_t)e.i << 8 : node.kind);
    if (leaf) return e;
    ds_expr a = walk_expr(w, node.a), b = DS_HAS_EXPR(node.b) ? walk_expr(w, node.b) : node.b;
    if (a.i == node.a.i && b.i == node.b.i) return e;
    node.a = a;
    node.b = b;
    return ds_expr_make(w->exprs, node);
}

/* The list; a copy of it once an expression changes. */
static ds_expr *walk_list(walk *w, ds_expr *list, uint32_t n) {
    ds_expr *copy = NULL;
    for (uint32_t i = 0; i < n; i++) {
        ds_expr e = walk_expr(w, list[i]);
        if (e.i == list[i].i) continue;
        if (!copy) {
            copy = DS_NEW_N(w->arena, ds_expr, n);
            memcpy(copy, list, n * sizeof *copy);
        }
        copy[i] = e;
    }
    return copy ? copy : list;
}

static ds_binder *walk_binders(walk *w, ds_binder *list, uint32_t n) {
    ds_binder *copy = w->kind ? DS_NEW_N(w->arena, ds_binder, n) : list;
    put(w, n);
    for (uint32_t i = 0; i < n; i++) {
        ds_binder binder = list[i];
        put(w, DS_KEY(binder.name));
        binder.lo = walk_expr(w, binder.lo);
        binder.hi = walk_expr(w, binder.hi);
        if (w->kind) copy[i] = binder;
    }
    return copy;
}

static ds_attr *walk_attrs(walk *w, ds_attr *list, uint32_t n) {
    ds_attr *copy = w->kind && n ? ds_copy_attrs(w->arena, list, n) : list;
    put(w, n);
    for (uint32_t i = 0; i < n; i++) {
        ds_attr attr = list[i];
        put(w, DS_KEY(attr.name));
        put(w, DS_KEY(attr.word));
        put(w, (uint64_t)attr.kind << 32 | (uint64_t)attr.unit << 1 | attr.flag);
        if (attr.kind == DS_ATTR_PLACE) w->unlike = true;
        if (DS_HAS_EXPR(attr.expr)) attr.expr = walk_expr(w, attr.expr);
        attr.items = walk_attrs(w, attr.items, attr.n_items);
        if (w->kind) copy[i] = attr;
    }
    return copy;
}

/* ---- values and ops ---- */

static void put_type(walk *w, const ds_type *type) {
    put(w, type ? (uint64_t)type->dtype << 16 | type->rank << 1 | type->host : UINT64_MAX);
    put(w, type ? DS_KEY(type->on.name) : 0);
    for (uint32_t i = 0; type && i < type->on.n_coords; i++) put(w, type->on.coords[i].at.i);
    for (uint32_t d = 0; type && d < type->rank; d++) {
        const ds_dim *dim = &type->dims[d];
        put(w, (uint64_t)dim->size.i << 32 | dim->n_splits);
        for (uint32_t s = 0; s < dim->n_splits; s++) {
            put(w, DS_KEY(dim->splits[s].axis));
            put(w, dim->splits[s].n_sizes);
            for (uint32_t i = 0; i < dim->splits[s].n_sizes; i++) put(w, dim->splits[s].sizes[i].i);
        }
    }
    for (uint32_t i = 0; type && i < type->n_partials; i++)
        put(w, DS_KEY(type->partials[i].axis) << 1 | type->partials[i].reduction);
}

void ds_pipe__walk_value(ds_pipe_walk *w, ds_value value) {
    ds_value_info *info = ds_value_at(w->func, value);
    if (w->words) {
        w->number[value.i] = w->n_values++;
        put_type(w, info->type);
    }
    info->binders = walk_binders(w, info->binders, info->n_binders);
    info->attrs = walk_attrs(w, info->attrs, info->n_attrs);
}

static void walk_use(walk *w, ds_use *use) {
    if (w->words) put(w, (uint64_t)w->number[use->value.i] << 32 | use->n_index);
    use->index = walk_list(w, use->index, use->n_index);
    put(w, use->index_hi != NULL);
    if (!use->index_hi) return;
    use->index_hi = walk_list(w, use->index_hi, use->n_index);
}

/* The parts of an op whose integers stay. The types inside a local region depend on the sizes of the
 * mesh's axes, which a function with a mesh parameter does not know. */
static void put_fixed(walk *w, const ds_op *op) {
    const ds_expr fixed[] = {op->dim, op->dim_to, op->to_rank, op->from_rank, op->tag};
    put(w, (uint64_t)op->code << 32 | (uint64_t)op->across << 1 | op->has_group);
    put(w, (uint64_t)op->n_in << 32 | op->n_out);
    put(w, (uint64_t)op->n_args << 32 | op->n_keep);
    put(w, DS_KEY(op->index));
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) put(w, fixed[i].i);
    put(w, op->n_over);
    for (uint32_t i = 0; i < op->n_over; i++) put(w, DS_KEY(op->over[i]));
    put(w, op->n_group);
    for (uint32_t i = 0; i < op->n_group; i++) put(w, op->group[i].i);
    for (uint32_t i = 0; op->result_types && i < op->n_out; i++) put_type(w, op->result_types[i]);
    if (op->n_to || op->code == DS_OP_CALL || op->code == DS_OP_LOCAL) w->unlike = true;
}

void ds_pipe__walk_op(ds_pipe_walk *w, ds_op *op) {
    if (w->words) put_fixed(w, op);
    if (DS_HAS_EXPR(op->lo)) op->lo = walk_expr(w, op->lo);
    if (DS_HAS_EXPR(op->hi)) op->hi = walk_expr(w, op->hi);
    op->attrs = walk_attrs(w, op->attrs, op->n_attrs);
    for (uint32_t i = 0; i < op->n_in; i++) walk_use(w, &op->in[i]);
    for (uint32_t i = 0; i < op->n_args; i++) ds_pipe__walk_value(w, op->args[i]);
    put(w, op->body ? op->body->n_ops : 0);
    for (uint32_t i = 0; op->body && i < op->body->n_ops; i++)
        ds_pipe__walk_op(w, op->body->ops[i]);
    for (uint32_t i = 0; i < op->n_out; i++) ds_pipe__walk_value(w, op->out[i]);
}

/* ---- kinds ---- */

static int64_t minus(int64_t a, int64_t b) {
    return (int64_t)((uint64_t)a - (uint64_t)b);
}

/* The integer that differs least from its twin: all differences are multiples of the least one.
 * NONE: all integers are the same. */
static uint32_t least_difference(const ds_pipe_kind *kind, const ds_pipe_integers *integers) {
    uint32_t least = DS_PIPE_NONE;
    int64_t difference = INT64_MAX;
    for (uint32_t i = 0; i < integers->n; i++) {
        int64_t d = minus(integers->at[i], kind->integers.at[i]);
        if (!d || d == INT64_MIN || llabs(d) >= difference) continue;
        least = i;
        difference = llabs(d);
    }
    return least;
}

/* Makes the kind one with slopes, for a second member with other integers. */
static bool find_slopes(ds_pipe_kind *kind, uint32_t at, const ds_pipe_integers *integers) {
    int64_t d = minus(integers->at[at], kind->integers.at[at]);
    int64_t *slope = ds_xcalloc(integers->n, sizeof *slope);
    bool fits = true;
    for (uint32_t i = 0; i < integers->n; i++) {
        int64_t own = minus(integers->at[i], kind->integers.at[i]);
        slope[i] = own / d;
        fits = fits && own % d == 0;
    }
    if (!fits) {
        free(slope);
        return false;
    }
    kind->slope = slope;
    kind->at = at;
    kind->base = kind->integers.at[at];
    return true;
}

static bool follows(const ds_pipe_kind *kind, const ds_pipe_integers *integers) {
    int64_t d = minus(integers->at[kind->at], kind->base);
    for (uint32_t i = 0; i < integers->n; i++)
        if ((uint64_t)minus(integers->at[i], kind->integers.at[i]) !=
            (uint64_t)kind->slope[i] * (uint64_t)d)
            return false;
    return true;
}

bool ds_pipe__is_of_kind(ds_pipe_kind *kind, const ds_pipe_words *words,
                         const ds_pipe_integers *integers, int64_t *shift) {
    if (words->n != kind->words.n || integers->n != kind->integers.n ||
        memcmp(words->at, kind->words.at, words->n * sizeof *words->at) != 0)
        return false;
    *shift = 0;
    if (!kind->slope) {
        uint32_t at = least_difference(kind, integers);
        if (at == DS_PIPE_NONE) return true;
        if (!find_slopes(kind, at, integers)) return false;
    } else if (!follows(kind, integers)) {
        return false;
    }
    *shift = minus(integers->at[kind->at], kind->base);
    return true;
}

void ds_pipe__kind_deinit(ds_pipe_kind *kind) {
    free(kind->words.at);
    free(kind->integers.at);
    free(kind->slope);
}
