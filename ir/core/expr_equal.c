/* Equality by normal form.
 *
 * An expression becomes a polynomial with integer coefficients over atoms: params, indices, and
 * what polynomials cannot express, namely floor quotients, minima, maxima, comparisons and logic
 * over polynomials. Everything else is rewritten:
 *
 *   a % b         = a - b * (a / b)
 *   ceildiv(a, b) = -((-a) / b)
 *   (d*q + r) / d = q + r / d               for a divisor of one term
 *   a < b         = less(a - b), and so on   less(x): x < 0
 *
 * Two expressions are equal if the difference of their polynomials is 0 and different if it is
 * another constant. The work is bounded: too many terms, atoms, factors or a coefficient beyond
 * 64 bits give UNKNOWN. Reals and strings are not treated: their arithmetic is not a ring's. */
#include "ir/core/expr.h"

#include "ir/base/arena.h"
#include "ir/base/units.h"
#include "ir/core/expr_walk.h"

#include <string.h>

enum {
    MAX_DEGREE = 12, /* factors of a term */
    MAX_TERMS = 64,  /* terms of a polynomial */
    MAX_ATOMS = 512,
    MAX_WORK = 1 << 18 /* terms made in one comparison: 8 MiB */
};

/* coefficient * product of atoms; atom numbers fall, 0 fills the rest. */
typedef struct term {
    int64_t coef;
    uint16_t atoms[MAX_DEGREE];
} term;

/* Terms by falling monomial, no zero coefficients; so the constant term comes last. */
typedef struct poly {
    const term *at;
    uint32_t n;
} poly;

typedef enum atom_kind {
    ATOM_NAME,  /* name, key: a param, index or axis index */
    ATOM_FLOOR, /* a / b */
    ATOM_MIN,
    ATOM_MAX,
    ATOM_ZERO, /* a == 0; from here on 0 or 1 */
    ATOM_LESS, /* a < 0 */
    ATOM_AND,
    ATOM_OR
} atom_kind;

typedef struct atom {
    atom_kind kind;
    const char *name;
    int64_t key;
    poly a, b;
} atom;

typedef struct algebra {
    ds_arena arena;
    DS_VEC(atom) atoms; /* atom number = position + 1 */
    int64_t work_left;
    bool failed; /* sticky; results are meaningless from then on */
} algebra;

static const poly ZERO = {0};

static poly give_up(algebra *al) {
    al->failed = true;
    return ZERO;
}

/* ---- sums ---- */

static int compare_monomials(const term *x, const term *y) {
    for (int i = 0; i < MAX_DEGREE; i++)
        if (x->atoms[i] != y->atoms[i]) return x->atoms[i] < y->atoms[i] ? -1 : 1;
    return 0;
}

static term *new_terms(algebra *al, uint32_t n) {
    al->work_left -= n;
    if (al->work_left < 0) al->failed = true;
    return DS_NEW_N(&al->arena, term, al->failed ? 1 : n);
}

static poly single(algebra *al, term t) {
    if (t.coef == 0) return ZERO;
    term *at = new_terms(al, 1);
    *at = t;
    return (poly){at, 1};
}

static poly constant(algebra *al, int64_t value) {
    return single(al, (term){.coef = value});
}

static bool is_constant(poly p, int64_t *value) {
    if (p.n > 1 || (p.n == 1 && p.at[0].atoms[0])) return false;
    *value = p.n ? p.at[0].coef : 0;
    return true;
}

static poly scale(algebra *al, poly p, int64_t factor) {
    if (al->failed || factor == 1) return p;
    if (factor == 0 || p.n == 0) return ZERO;
    term *at = new_terms(al, p.n);
    for (uint32_t i = 0; i < p.n && !al->failed; i++) {
        at[i] = p.at[i];
        if (__builtin_mul_overflow(p.at[i].coef, factor, &at[i].coef)) al->failed = true;
    }
    return al->failed ? ZERO : (poly){at, p.n};
}

static poly poly_add(algebra *al, poly p, poly q) {
    if (al->failed || q.n == 0) return p;
    if (p.n == 0) return q;
    term *at = new_terms(al, p.n + q.n);
    uint32_t n = 0, i = 0, j = 0;
    while (!al->failed && (i < p.n || j < q.n)) {
        int order = i == p.n ? -1 : j == q.n ? 1 : compare_monomials(&p.at[i], &q.at[j]);
        term t = order < 0 ? q.at[j] : p.at[i];
        if (order == 0 && __builtin_add_overflow(t.coef, q.at[j].coef, &t.coef)) al->failed = true;
        i += order >= 0;
        j += order <= 0;
        if (t.coef) at[n++] = t;
    }
    return n > MAX_TERMS ? give_up(al) : (poly){at, n};
}

static poly sub(algebra *al, poly p, poly q) {
    return poly_add(al, p, scale(al, q, -1));
}

/* ---- products ---- */

static bool multiply_terms(const term *x, const term *y, term *out) {
    *out = (term){0};
    int i = 0, j = 0, n = 0;
    for (;;) {
        uint16_t a = i < MAX_DEGREE ? x->atoms[i] : 0, b = j < MAX_DEGREE ? y->atoms[j] : 0;
        if (!a && !b) break;
        if (n == MAX_DEGREE) return false;
        out->atoms[n++] = a >= b ? a : b;
        if (a >= b)
            i++;
        else
            j++;
    }
    return !__builtin_mul_overflow(x->coef, y->coef, &out->coef);
}

/* One row of the product; multiplying by a monomial keeps the order of the terms. */
static poly multiply_by_term(algebra *al, poly p, const term *t) {
    term *at = new_terms(al, p.n);
    for (uint32_t i = 0; i < p.n && !al->failed; i++)
        if (!multiply_terms(&p.at[i], t, &at[i])) al->failed = true;
    return al->failed ? ZERO : (poly){at, p.n};
}

static poly multiply(algebra *al, poly p, poly q) {
    poly sum = ZERO;
    for (uint32_t j = 0; j < q.n && !al->failed; j++)
        sum = poly_add(al, sum, multiply_by_term(al, p, &q.at[j]));
    return sum;
}

/* ---- atoms ---- */

static int compare_polys(poly p, poly q) {
    if (p.n != q.n) return p.n < q.n ? -1 : 1;
    for (uint32_t i = 0; i < p.n; i++) {
        int order = compare_monomials(&p.at[i], &q.at[i]);
        if (order) return order;
        if (p.at[i].coef != q.at[i].coef) return p.at[i].coef < q.at[i].coef ? -1 : 1;
    }
    return 0;
}

static bool same_atom(const atom *x, const atom *y) {
    return x->kind == y->kind && x->name == y->name && x->key == y->key &&
           compare_polys(x->a, y->a) == 0 && compare_polys(x->b, y->b) == 0;
}

static poly atom_poly(algebra *al, atom a) {
    if (al->failed) return ZERO;
    uint32_t at = 0;
    while (at < al->atoms.n && !same_atom(&al->atoms.at[at], &a)) at++;
    if (at == MAX_ATOMS) return give_up(al);
    if (at == al->atoms.n) DS_PUSH(&al->arena, &al->atoms, a);
    return single(al, (term){.coef = 1, .atoms = {(uint16_t)(at + 1)}});
}

static poly symmetric_atom(algebra *al, atom_kind kind, poly a, poly b) {
    bool swap = compare_polys(a, b) > 0;
    return atom_poly(al, (atom){.kind = kind, .a = swap ? b : a, .b = swap ? a : b});
}

/* ---- floor quotients ---- */

/* t = quotient * d + rest, where quotient is 0 if d's monomial is no part of t's. */
static void divide_term(const term *t, const term *d, term *quotient, term *rest) {
    *quotient = (term){0};
    *rest = *t;
    uint16_t left[MAX_DEGREE] = {0};
    int n = 0, j = 0;
    for (int i = 0; i < MAX_DEGREE; i++) {
        if (j < MAX_DEGREE && d->atoms[j] && t->atoms[i] == d->atoms[j])
            j++;
        else if (t->atoms[i])
            left[n++] = t->atoms[i];
    }
    if (j < MAX_DEGREE && d->atoms[j]) return;
    if (t->coef == INT64_MIN && d->coef == -1) return;
    memcpy(quotient->atoms, left, sizeof left);
    quotient->coef = ds_floordiv(t->coef, d->coef);
    rest->coef = ds_floormod(t->coef, d->coef);
}

static uint64_t magnitude(int64_t x) {
    return x < 0 ? -(uint64_t)x : (uint64_t)x;
}

static uint64_t gcd_of(poly p, uint64_t g) {
    for (uint32_t i = 0; i < p.n; i++)
        for (uint64_t x = magnitude(p.at[i].coef); x;) {
            uint64_t rest = g % x;
            g = x;
            x = rest;
        }
    return g;
}

static poly divide_exactly(algebra *al, poly p, int64_t by) {
    term *at = new_terms(al, p.n);
    for (uint32_t i = 0; i < p.n && !al->failed; i++) {
        at[i] = p.at[i];
        at[i].coef /= by;
    }
    return al->failed ? ZERO : (poly){at, p.n};
}

/* a / b with no common factor and a positive leading coefficient below. */
static poly floor_atom(algebra *al, poly a, poly b) {
    uint64_t g = gcd_of(b, gcd_of(a, 0));
    if (al->failed || g > INT64_MAX) return give_up(al);
    int64_t by = b.at[0].coef < 0 ? -(int64_t)g : (int64_t)g;
    if (by != 1) {
        a = divide_exactly(al, a, by);
        b = divide_exactly(al, b, by);
    }
    return atom_poly(al, (atom){.kind = ATOM_FLOOR, .a = a, .b = b});
}

static poly quotient(algebra *al, poly a, poly b) {
    if (al->failed || b.n == 0) return give_up(al);
    if (compare_polys(a, b) == 0) return constant(al, 1);
    poly whole = ZERO, rest = ZERO;
    if (b.n > 1) rest = a;
    for (uint32_t i = 0; b.n == 1 && i < a.n && !al->failed; i++) {
        term q, r;
        divide_term(&a.at[i], &b.at[0], &q, &r);
        whole = poly_add(al, whole, single(al, q));
        rest = poly_add(al, rest, single(al, r));
    }
    int64_t above, below;
    if (is_constant(rest, &above) && is_constant(b, &below))
        return above == INT64_MIN ? give_up(al)
                                  : poly_add(al, whole, constant(al, ds_floordiv(above, below)));
    return rest.n ? poly_add(al, whole, floor_atom(al, rest, b)) : whole;
}

/* ---- minima, comparisons, logic ---- */

static poly extremum(algebra *al, atom_kind kind, poly a, poly b) {
    int64_t difference;
    if (is_constant(sub(al, a, b), &difference))
        return (difference < 0) == (kind == ATOM_MIN) ? a : b;
    return symmetric_atom(al, kind, a, b);
}

static poly negation(algebra *al, poly p) {
    return sub(al, constant(al, 1), p);
}

/* Is p an atom that is 0 or 1, or 1 minus one? */
static bool is_truth(const algebra *al, poly p) {
    bool negated = p.n == 2 && p.at[0].coef == -1 && !p.at[1].atoms[0] && p.at[1].coef == 1;
    if (!negated && !(p.n == 1 && p.at[0].coef == 1)) return false;
    return p.at[0].atoms[0] && !p.at[0].atoms[1] &&
           al->atoms.at[p.at[0].atoms[0] - 1].kind >= ATOM_ZERO;
}

/* 1 if p == 0 else 0. */
static poly is_zero(algebra *al, poly p) {
    int64_t value;
    if (is_constant(p, &value)) return constant(al, value == 0);
    if (is_truth(al, p)) return negation(al, p);
    if (p.at[0].coef < 0) p = scale(al, p, -1);
    return atom_poly(al, (atom){.kind = ATOM_ZERO, .a = p});
}

/* 1 if a < b else 0. */
static poly is_less(algebra *al, poly a, poly b) {
    int64_t value;
    poly difference = sub(al, a, b);
    if (is_constant(difference, &value)) return constant(al, value < 0);
    return atom_poly(al, (atom){.kind = ATOM_LESS, .a = difference});
}

static poly logic(algebra *al, atom_kind kind, poly a, poly b) {
    /* `and` and `or` of integers look at "is it nonzero" only */
    a = negation(al, is_zero(al, a));
    b = negation(al, is_zero(al, b));
    int64_t value;
    if (is_constant(a, &value)) return (value != 0) == (kind == ATOM_AND) ? b : a;
    if (is_constant(b, &value)) return (value != 0) == (kind == ATOM_AND) ? a : b;
    return compare_polys(a, b) == 0 ? a : symmetric_atom(al, kind, a, b);
}

/* ---- expressions ---- */

static poly node_poly(algebra *al, const ds_expr_node *node, poly a, poly b) {
    switch (node->kind) {
    case DS_EXPR_INT:
        return constant(al, node->i);
    case DS_EXPR_PARAM:
        return atom_poly(al, (atom){.kind = ATOM_NAME, .name = node->name, .key = node->i});
    case DS_EXPR_INDEX: /* keys no param has: module numbers are not negative */
        return atom_poly(al, (atom){.kind = ATOM_NAME, .name = node->name, .key = -1});
    case DS_EXPR_AXIS_INDEX:
        return atom_poly(al, (atom){.kind = ATOM_NAME, .name = node->name, .key = -2});
    case DS_EXPR_NEG:
        return scale(al, a, -1);
    case DS_EXPR_ADD:
        return poly_add(al, a, b);
    case DS_EXPR_SUB:
        return sub(al, a, b);
    case DS_EXPR_MUL:
        return multiply(al, a, b);
    case DS_EXPR_DIV:
        return quotient(al, a, b);
    case DS_EXPR_MOD:
        return sub(al, a, multiply(al, b, quotient(al, a, b)));
    case DS_EXPR_CEILDIV:
        return scale(al, quotient(al, scale(al, a, -1), b), -1);
    case DS_EXPR_MIN:
        return extremum(al, ATOM_MIN, a, b);
    case DS_EXPR_MAX:
        return extremum(al, ATOM_MAX, a, b);
    case DS_EXPR_EQ:
        return is_zero(al, sub(al, a, b));
    case DS_EXPR_NE:
        return negation(al, is_zero(al, sub(al, a, b)));
    case DS_EXPR_LT:
        return is_less(al, a, b);
    case DS_EXPR_LE:
        return negation(al, is_less(al, b, a));
    case DS_EXPR_GT:
        return is_less(al, b, a);
    case DS_EXPR_GE:
        return negation(al, is_less(al, a, b));
    case DS_EXPR_AND:
        return logic(al, ATOM_AND, a, b);
    case DS_EXPR_OR:
        return logic(al, ATOM_OR, a, b);
    case DS_EXPR_NOT:
        return is_zero(al, a);
    default:
        return give_up(al); /* reals, strings */
    }
}

static poly expr_poly(algebra *al, const ds_exprs *exprs, ds_expr e) {
    ds_expr_walk walk;
    ds_expr__walk_init(&walk, exprs, e);
    poly *polys = DS_NEW_N(&al->arena, poly, walk.n);
    for (uint32_t k = walk.n; k-- > 0 && !al->failed;) {
        const ds_expr_node *node = &exprs->nodes.at[walk.ids[k]];
        poly a = DS_HAS_EXPR(node->a) ? polys[ds_expr__walk_find(&walk, node->a)] : ZERO;
        poly b = DS_HAS_EXPR(node->b) ? polys[ds_expr__walk_find(&walk, node->b)] : ZERO;
        polys[k] = node_poly(al, node, a, b);
    }
    poly result = polys[0];
    ds_expr__walk_deinit(&walk);
    return result;
}

/* Literals of any kind compare without algebra. */
static bool both_literal(const ds_expr_node *x, const ds_expr_node *y) {
    return x->kind == y->kind && (x->kind == DS_EXPR_INT || x->kind == DS_EXPR_REAL ||
                                  x->kind == DS_EXPR_STR || x->kind == DS_EXPR_BOOL);
}

ds_tri ds_expr_equal(const ds_exprs *exprs, ds_expr a, ds_expr b) {
    if (a.i == b.i) return DS_YES;
    if (!DS_HAS_EXPR(a) || !DS_HAS_EXPR(b)) return DS_NO;
    const ds_expr_node *x = ds_expr_at(exprs, a), *y = ds_expr_at(exprs, b);
    if (both_literal(x, y))
        return x->kind == DS_EXPR_REAL && !(x->r < y->r) && !(x->r > y->r) ? DS_YES : DS_NO;
    algebra al = {.work_left = MAX_WORK};
    ds_arena_init(&al.arena);
    poly left = expr_poly(&al, exprs, a);
    poly difference = al.failed ? ZERO : sub(&al, left, expr_poly(&al, exprs, b));
    int64_t value;
    ds_tri result = al.failed || !is_constant(difference, &value) ? DS_UNKNOWN
                    : value == 0                                  ? DS_YES
                                                                  : DS_NO;
    ds_arena_deinit(&al.arena);
    return result;
}
