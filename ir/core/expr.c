/* The expression table: hash-consing, folding, substitution.
 *
 * Nodes sit in one growing array, found by a hash of their fields; equal hashes chain through
 * `next`. Nothing here recurses, since inputs can make expressions of any depth (see
 * expr_walk.h). Evaluation, equality and printing have files of their own. */
#include "ir/core/expr.h"

#include "ir/base/arena.h"
#include "ir/base/units.h"
#include "ir/core/expr_walk.h"

#include <stdlib.h>
#include <string.h>

/* ---- the table ---- */

void ds_exprs_init(ds_exprs *exprs) {
    *exprs = (ds_exprs){0};
    ds_map_init(&exprs->index);
    DS_HPUSH(&exprs->nodes, ((ds_expr_node){0}));
    DS_HPUSH(&exprs->next, 0);
}

void ds_exprs_deinit(ds_exprs *exprs) {
    free(exprs->nodes.at);
    free(exprs->next.at);
    ds_map_deinit(&exprs->index);
    *exprs = (ds_exprs){0};
}

static uint64_t bits_of(double r) {
    uint64_t bits;
    memcpy(&bits, &r, sizeof bits);
    return bits;
}

static uint64_t hash_node(const ds_expr_node *node) {
    uint64_t h = ds_hash_mix(node->kind, (uint64_t)node->a.i << 32 | node->b.i);
    h = ds_hash_mix(h, DS_KEY(node->name));
    h = ds_hash_mix(h, (uint64_t)node->i);
    return ds_hash_mix(h, bits_of(node->r));
}

static bool same_node(const ds_expr_node *x, const ds_expr_node *y) {
    return x->kind == y->kind && x->a.i == y->a.i && x->b.i == y->b.i && x->name == y->name &&
           x->i == y->i && bits_of(x->r) == bits_of(y->r);
}

static uint32_t tree_size(const ds_exprs *exprs, const ds_expr_node *node) {
    uint64_t size =
        UINT64_C(1) + ds_expr_at(exprs, node->a)->size + ds_expr_at(exprs, node->b)->size;
    return size < UINT32_MAX ? (uint32_t)size : UINT32_MAX;
}

/* Only the fields that the kind has, so that what a caller leaves in the others makes no
 * difference. */
static ds_expr_node only_own_fields(const ds_expr_node *node) {
    ds_expr_node own = {.kind = node->kind};
    switch (node->kind) {
    case DS_EXPR_NONE:
        break;
    case DS_EXPR_INT:
    case DS_EXPR_BOOL:
        own.i = node->i;
        break;
    case DS_EXPR_REAL:
        own.r = node->r;
        own.name = node->name;
        break;
    case DS_EXPR_PARAM:
        own.i = node->i;
        own.name = node->name;
        break;
    case DS_EXPR_STR:
    case DS_EXPR_INDEX:
    case DS_EXPR_AXIS_INDEX:
        own.name = node->name;
        break;
    default:
        own.a = node->a;
        own.b = node->b;
    }
    return own;
}

/* NULL: any index or axis_index. */
static bool is_index(const ds_expr_node *node, const char *name) {
    if (!name) return node->kind == DS_EXPR_INDEX || node->kind == DS_EXPR_AXIS_INDEX;
    return node->kind == DS_EXPR_INDEX && node->name == name;
}

ds_expr ds_expr_make(ds_exprs *exprs, ds_expr_node node) {
    int64_t literal;
    if (node.kind == DS_EXPR_NEG && ds_expr_is_int(exprs, node.a, &literal) && literal != INT64_MIN)
        return ds_expr_int(exprs, -literal);
    node = only_own_fields(&node);
    node.size = tree_size(exprs, &node);
    node.varies = is_index(&node, NULL) || ds_expr_at(exprs, node.a)->varies ||
                  ds_expr_at(exprs, node.b)->varies;
    uint64_t hash = hash_node(&node);
    uint64_t *first = ds_map_find(&exprs->index, hash);
    for (uint32_t i = first ? (uint32_t)*first : 0; i; i = exprs->next.at[i])
        if (same_node(&exprs->nodes.at[i], &node)) return (ds_expr){i};
    uint32_t id = exprs->nodes.n;
    DS_HPUSH(&exprs->next, first ? (uint32_t)*first : 0);
    DS_HPUSH(&exprs->nodes, node);
    ds_map_put(&exprs->index, hash, id);
    return (ds_expr){id};
}

/* A hash that had no node before keeps its place, with none. */
void ds_exprs_cut(ds_exprs *exprs, uint32_t n) {
    while (exprs->nodes.n > n) {
        uint32_t last = --exprs->nodes.n;
        ds_map_put(&exprs->index, hash_node(&exprs->nodes.at[last]), exprs->next.at[last]);
    }
    exprs->next.n = n;
}

ds_expr ds_expr_int(ds_exprs *exprs, int64_t value) {
    return ds_expr_make(exprs, (ds_expr_node){.kind = DS_EXPR_INT, .i = value});
}

ds_expr ds_expr_str(ds_exprs *exprs, const char *interned_text) {
    return ds_expr_make(exprs, (ds_expr_node){.kind = DS_EXPR_STR, .name = interned_text});
}

ds_expr ds_expr_index(ds_exprs *exprs, const char *interned_name) {
    return ds_expr_make(exprs, (ds_expr_node){.kind = DS_EXPR_INDEX, .name = interned_name});
}

ds_expr ds_expr_binary(ds_exprs *exprs, ds_expr_kind kind, ds_expr a, ds_expr b) {
    return ds_expr_make(exprs, (ds_expr_node){.kind = kind, .a = a, .b = b});
}

const ds_expr_node *ds_expr_at(const ds_exprs *exprs, ds_expr e) {
    return &exprs->nodes.at[e.i];
}

bool ds_expr_is_int(const ds_exprs *exprs, ds_expr e, int64_t *value) {
    const ds_expr_node *node = ds_expr_at(exprs, e);
    if (node->kind != DS_EXPR_INT) return false;
    *value = node->i;
    return true;
}

const char *ds_expr__operator(ds_expr_kind kind) {
    switch (kind) {
#define DS_X(name, text, prec)                                                                     \
    case DS_EXPR_##name:                                                                           \
        return text;
        DS_EXPR_BINARY_MAP(DS_X)
#undef DS_X
    default:
        return NULL;
    }
}

/* ---- walks ---- */

/* Puts id into ids[from..n), which falls, unless it is there. False: the local array is full. */
static bool insert_falling(ds_expr_walk *walk, uint32_t from, uint32_t id) {
    if (!id) return true;
    uint32_t at = walk->n;
    while (at > from && walk->ids[at - 1] < id) at--;
    if (at > from && walk->ids[at - 1] == id) return true;
    if (walk->n == DS_WALK_LOCAL) return false;
    memmove(walk->ids + at + 1, walk->ids + at, (walk->n - at) * sizeof *walk->ids);
    walk->ids[at] = id;
    walk->n++;
    return true;
}

static bool walk_small(ds_expr_walk *walk, const ds_exprs *exprs, ds_expr root) {
    walk->ids = walk->local;
    walk->ids[0] = root.i;
    walk->n = 1;
    for (uint32_t at = 0; at < walk->n; at++) {
        const ds_expr_node *node = &exprs->nodes.at[walk->ids[at]];
        if (!insert_falling(walk, at + 1, node->a.i) || !insert_falling(walk, at + 1, node->b.i))
            return false;
    }
    return true;
}

/* A bit for every id up to the root's, visited from the top. */
static void walk_large(ds_expr_walk *walk, const ds_exprs *exprs, ds_expr root) {
    uint32_t n_words = root.i / 64 + 1, n = 0;
    uint64_t *marks = ds_xcalloc(n_words, sizeof *marks);
    marks[root.i / 64] |= UINT64_C(1) << root.i % 64;
    for (uint32_t word = n_words; word-- > 0;) {
        for (uint32_t bit = 64; marks[word] && bit-- > 0;) {
            if (!(marks[word] >> bit & 1)) continue;
            const ds_expr_node *node = &exprs->nodes.at[word * 64 + bit];
            marks[node->a.i / 64] |= UINT64_C(1) << node->a.i % 64;
            marks[node->b.i / 64] |= UINT64_C(1) << node->b.i % 64;
            n++;
        }
    }
    marks[0] &= ~UINT64_C(1); /* the "none" node */
    walk->ids = ds_xcalloc(n, sizeof *walk->ids);
    walk->n = 0;
    for (uint32_t word = n_words; word-- > 0;)
        for (uint32_t bit = 64; marks[word] && bit-- > 0;)
            if (marks[word] >> bit & 1) walk->ids[walk->n++] = word * 64 + bit;
    free(marks);
}

void ds_expr__walk_init(ds_expr_walk *walk, const ds_exprs *exprs, ds_expr root) {
    if (!walk_small(walk, exprs, root)) walk_large(walk, exprs, root);
}

void ds_expr__walk_deinit(ds_expr_walk *walk) {
    if (walk->ids != walk->local) free(walk->ids);
}

uint32_t ds_expr__walk_find(const ds_expr_walk *walk, ds_expr e) {
    uint32_t lo = 0, hi = walk->n;
    while (hi - lo > 1) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (walk->ids[mid] >= e.i)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

/* ---- folding ---- */

static bool fold_ints(ds_expr_kind kind, int64_t a, int64_t b, int64_t *out) {
    bool divides = b != 0 && !(a == INT64_MIN && b == -1);
    switch (kind) {
    case DS_EXPR_ADD:
        return !__builtin_add_overflow(a, b, out);
    case DS_EXPR_SUB:
        return !__builtin_sub_overflow(a, b, out);
    case DS_EXPR_MUL:
        return !__builtin_mul_overflow(a, b, out);
    case DS_EXPR_DIV:
        return divides && (*out = ds_floordiv(a, b), true);
    case DS_EXPR_MOD:
        return divides && (*out = ds_floormod(a, b), true);
    case DS_EXPR_CEILDIV:
        if (!divides) return false;
        *out = ds_floordiv(a, b) + (ds_floormod(a, b) != 0);
        return true;
    case DS_EXPR_MIN:
        *out = a < b ? a : b;
        return true;
    case DS_EXPR_MAX:
        *out = a > b ? a : b;
        return true;
    case DS_EXPR_EQ:
        *out = a == b;
        return true;
    case DS_EXPR_NE:
        *out = a != b;
        return true;
    case DS_EXPR_LT:
        *out = a < b;
        return true;
    case DS_EXPR_LE:
        *out = a <= b;
        return true;
    case DS_EXPR_GT:
        *out = a > b;
        return true;
    case DS_EXPR_GE:
        *out = a >= b;
        return true;
    case DS_EXPR_AND:
        *out = a && b;
        return true;
    case DS_EXPR_OR:
        *out = a || b;
        return true;
    case DS_EXPR_NOT:
        *out = !a;
        return true;
    default:
        return false;
    }
}

static bool is_kind(const ds_exprs *exprs, ds_expr e, ds_expr_kind kind) {
    return ds_expr_at(exprs, e)->kind == kind;
}

static bool same(ds_expr a, ds_expr b) {
    return a.i == b.i;
}

/* e = factor * rest with a literal factor; rest is DS_NO_EXPR for a literal. */
typedef struct scaled {
    int64_t factor;
    ds_expr rest;
} scaled;

static scaled as_scaled(const ds_exprs *exprs, ds_expr e) {
    int64_t value;
    if (ds_expr_is_int(exprs, e, &value)) return (scaled){value, DS_NO_EXPR};
    const ds_expr_node *node = ds_expr_at(exprs, e);
    if (node->kind == DS_EXPR_MUL && ds_expr_is_int(exprs, node->a, &value))
        return (scaled){value, node->b};
    if (node->kind == DS_EXPR_MUL && ds_expr_is_int(exprs, node->b, &value))
        return (scaled){value, node->a};
    return (scaled){1, e};
}

static ds_expr make_scaled(ds_exprs *exprs, scaled s) {
    if (s.factor == 1) return s.rest;
    ds_expr factor = ds_expr_int(exprs, s.factor);
    return s.factor == 0 ? factor : ds_expr_binary(exprs, DS_EXPR_MUL, factor, s.rest);
}

/* e = rest + offset with a literal offset on the right. */
static bool as_offset(const ds_exprs *exprs, ds_expr e, ds_expr *rest, int64_t *offset) {
    const ds_expr_node *node = ds_expr_at(exprs, e);
    if ((node->kind != DS_EXPR_ADD && node->kind != DS_EXPR_SUB) ||
        !ds_expr_is_int(exprs, node->b, offset) || *offset == INT64_MIN)
        return false;
    *rest = node->a;
    if (node->kind == DS_EXPR_SUB) *offset = -*offset;
    return true;
}

static ds_expr add_literal(ds_exprs *exprs, ds_expr e, int64_t value) {
    ds_expr rest;
    int64_t offset;
    if (as_offset(exprs, e, &rest, &offset) && !__builtin_add_overflow(offset, value, &offset))
        e = rest;
    else
        offset = value;
    if (offset == 0) return e;
    if (offset > 0) return ds_expr_binary(exprs, DS_EXPR_ADD, e, ds_expr_int(exprs, offset));
    return ds_expr_binary(exprs, DS_EXPR_SUB, e, ds_expr_int(exprs, -offset));
}

static ds_expr fold_add(ds_exprs *exprs, ds_expr a, ds_expr b) {
    int64_t value;
    if (ds_expr_is_int(exprs, b, &value) && value != INT64_MIN) return add_literal(exprs, a, value);
    if (ds_expr_is_int(exprs, a, &value) && value == 0) return b;
    if (is_kind(exprs, a, DS_EXPR_SUB) && same(ds_expr_at(exprs, a)->b, b))
        return ds_expr_at(exprs, a)->a; /* x - b + b */
    scaled x = as_scaled(exprs, a), y = as_scaled(exprs, b);
    int64_t sum;
    if (same(x.rest, y.rest) && !__builtin_add_overflow(x.factor, y.factor, &sum))
        return make_scaled(exprs, (scaled){sum, x.rest});
    return ds_expr_binary(exprs, DS_EXPR_ADD, a, b);
}

static ds_expr fold_sub(ds_exprs *exprs, ds_expr a, ds_expr b) {
    int64_t value;
    if (ds_expr_is_int(exprs, b, &value) && value != INT64_MIN)
        return add_literal(exprs, a, -value);
    const ds_expr_node *left = ds_expr_at(exprs, a), *right = ds_expr_at(exprs, b);
    if (left->kind == DS_EXPR_ADD && same(left->b, b)) return left->a;    /* x + b - b */
    if (left->kind == DS_EXPR_ADD && same(left->a, b)) return left->b;    /* b + x - b */
    if (right->kind == DS_EXPR_SUB && same(right->a, a)) return right->b; /* a - (a - x) */
    scaled x = as_scaled(exprs, a), y = as_scaled(exprs, b);
    int64_t difference;
    if (same(x.rest, y.rest) && !__builtin_sub_overflow(x.factor, y.factor, &difference))
        return make_scaled(exprs, (scaled){difference, x.rest});
    return ds_expr_binary(exprs, DS_EXPR_SUB, a, b);
}

static ds_expr fold_mul(ds_exprs *exprs, ds_expr a, ds_expr b) {
    scaled x = as_scaled(exprs, a), y = as_scaled(exprs, b);
    int64_t product;
    bool literal = !DS_HAS_EXPR(x.rest) || !DS_HAS_EXPR(y.rest);
    if (literal && !__builtin_mul_overflow(x.factor, y.factor, &product))
        return make_scaled(exprs, (scaled){product, DS_HAS_EXPR(x.rest) ? x.rest : y.rest});
    return ds_expr_binary(exprs, DS_EXPR_MUL, a, b);
}

/* a / b or a % b. */
static ds_expr fold_div(ds_exprs *exprs, ds_expr_kind kind, ds_expr a, ds_expr b) {
    ds_expr quotient = DS_NO_EXPR;
    int64_t divisor;
    const ds_expr_node *left = ds_expr_at(exprs, a);
    scaled x = as_scaled(exprs, a);
    if (ds_expr_is_int(exprs, b, &divisor) && divisor > 0 && x.factor % divisor == 0)
        quotient = make_scaled(exprs, (scaled){x.factor / divisor, x.rest});
    else if (ds_expr_is_int(exprs, b, &divisor))
        quotient = DS_NO_EXPR;
    else if (same(a, b))
        quotient = ds_expr_int(exprs, 1);
    else if (left->kind == DS_EXPR_MUL && same(left->b, b))
        quotient = left->a;
    else if (left->kind == DS_EXPR_MUL && same(left->a, b))
        quotient = left->b;
    if (!DS_HAS_EXPR(quotient)) return ds_expr_binary(exprs, kind, a, b);
    return kind == DS_EXPR_DIV ? quotient : ds_expr_int(exprs, 0);
}

ds_expr ds_expr_fold(ds_exprs *exprs, ds_expr_kind kind, ds_expr a, ds_expr b) {
    int64_t x = 0, y = 0, value = 0;
    bool literal =
        ds_expr_is_int(exprs, a, &x) && (!DS_HAS_EXPR(b) || ds_expr_is_int(exprs, b, &y));
    if (literal && fold_ints(kind, x, y, &value) && value != INT64_MIN) /* not writable */
        return ds_expr_int(exprs, value);
    switch (kind) {
    case DS_EXPR_ADD:
        return literal ? ds_expr_binary(exprs, kind, a, b) : fold_add(exprs, a, b);
    case DS_EXPR_SUB:
        return literal ? ds_expr_binary(exprs, kind, a, b) : fold_sub(exprs, a, b);
    case DS_EXPR_MUL:
        return literal ? ds_expr_binary(exprs, kind, a, b) : fold_mul(exprs, a, b);
    case DS_EXPR_DIV:
    case DS_EXPR_MOD:
        return literal ? ds_expr_binary(exprs, kind, a, b) : fold_div(exprs, kind, a, b);
    case DS_EXPR_MIN:
    case DS_EXPR_MAX:
        return same(a, b) ? a : ds_expr_binary(exprs, kind, a, b);
    default:
        return ds_expr_binary(exprs, kind, a, b);
    }
}

/* ---- indices ---- */

bool ds_expr_mentions(const ds_exprs *exprs, ds_expr e, const char *name) {
    const ds_expr_node *root = ds_expr_at(exprs, e);
    if (!root->varies || !name) return root->varies;
    if (!DS_HAS_EXPR(root->a)) return is_index(root, name);
    ds_expr_walk walk;
    ds_expr__walk_init(&walk, exprs, e);
    bool found = false;
    for (uint32_t k = 0; k < walk.n && !found; k++)
        found = is_index(&exprs->nodes.at[walk.ids[k]], name);
    ds_expr__walk_deinit(&walk);
    return found;
}

bool ds_expr_is_of(const ds_exprs *exprs, ds_expr e, uint32_t module) {
    if (!DS_HAS_EXPR(e)) return true;
    ds_expr_walk walk;
    ds_expr__walk_init(&walk, exprs, e);
    bool all = true;
    for (uint32_t k = 0; k < walk.n && all; k++) {
        const ds_expr_node *node = &exprs->nodes.at[walk.ids[k]];
        all = node->kind != DS_EXPR_PARAM || node->i >> 32 == module;
    }
    ds_expr__walk_deinit(&walk);
    return all;
}

/* Bottom-up; only nodes with a changed operand are built anew, so the rest prints as written. */
static ds_expr subst_walk(ds_exprs *exprs, const ds_expr_walk *walk, const char *name, ds_expr by,
                          ds_expr *now) {
    for (uint32_t k = walk->n; k-- > 0;) {
        ds_expr_node node = exprs->nodes.at[walk->ids[k]]; /* a copy: the table may move */
        now[k] = (ds_expr){walk->ids[k]};
        if (is_index(&node, name)) {
            now[k] = by;
            continue;
        }
        ds_expr a = DS_HAS_EXPR(node.a) ? now[ds_expr__walk_find(walk, node.a)] : DS_NO_EXPR;
        ds_expr b = DS_HAS_EXPR(node.b) ? now[ds_expr__walk_find(walk, node.b)] : DS_NO_EXPR;
        if (!same(a, node.a) || !same(b, node.b)) now[k] = ds_expr_fold(exprs, node.kind, a, b);
    }
    return now[0];
}

enum { SMALL = 8 }; /* nodes of a tree that costs less than a walk, most ranges and reads */

static ds_expr subst_small(ds_exprs *exprs, ds_expr e, const char *name, ds_expr by) {
    ds_expr_node node = *ds_expr_at(exprs, e); /* a copy: the table may move */
    if (!node.varies) return e;
    if (!DS_HAS_EXPR(node.a)) return is_index(&node, name) ? by : e;
    ds_expr a = subst_small(exprs, node.a, name, by);
    ds_expr b = DS_HAS_EXPR(node.b) ? subst_small(exprs, node.b, name, by) : DS_NO_EXPR;
    return same(a, node.a) && same(b, node.b) ? e : ds_expr_fold(exprs, node.kind, a, b);
}

ds_expr ds_expr_subst(ds_exprs *exprs, ds_expr e, const char *name, ds_expr by) {
    const ds_expr_node *root = ds_expr_at(exprs, e);
    if (root->size <= SMALL) return subst_small(exprs, e, name, by);
    if (!root->varies) return e;
    ds_expr_walk walk;
    ds_expr__walk_init(&walk, exprs, e);
    ds_expr local[DS_WALK_LOCAL] = {{0}};
    ds_expr *now = walk.n <= DS_WALK_LOCAL ? local : ds_xcalloc(walk.n, sizeof *now);
    ds_expr result = subst_walk(exprs, &walk, name, by, now);
    if (now != local) free(now);
    ds_expr__walk_deinit(&walk);
    return result;
}
