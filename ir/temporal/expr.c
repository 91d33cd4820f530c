/* Expressions over a point: values, affine forms, and bounds over a box. */
#include "ir/base/units.h"
#include "ir/temporal/internal.h"

const ds_temporal_expr *ds_temporal_const(ds_arena *arena, int64_t value) {
    ds_temporal_expr *e = DS_NEW(arena, ds_temporal_expr);
    *e = (ds_temporal_expr){.kind = DS_TEMPORAL_CONST, .value = value};
    return e;
}

const ds_temporal_expr *ds_temporal_dim(ds_arena *arena, uint32_t dim) {
    ds_temporal_expr *e = DS_NEW(arena, ds_temporal_expr);
    *e = (ds_temporal_expr){.kind = DS_TEMPORAL_DIM, .value = dim};
    return e;
}

const ds_temporal_expr *ds_temporal_op(ds_arena *arena, ds_temporal_kind kind,
                                       const ds_temporal_expr *a, const ds_temporal_expr *b) {
    ds_temporal_expr *e = DS_NEW(arena, ds_temporal_expr);
    *e = (ds_temporal_expr){.kind = kind, .a = a, .b = b};
    return e;
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static int64_t most(int64_t a, int64_t b) {
    return a > b ? a : b;
}

int64_t ds_temporal_eval(const ds_temporal_expr *e, const int64_t *point) {
    if (e->kind == DS_TEMPORAL_CONST) return e->value;
    if (e->kind == DS_TEMPORAL_DIM) return point[e->value];
    int64_t a = ds_temporal_eval(e->a, point);
    int64_t b = e->b ? ds_temporal_eval(e->b, point) : 0;
    switch (e->kind) {
    case DS_TEMPORAL_ADD:
        return a + b;
    case DS_TEMPORAL_SUB:
        return a - b;
    case DS_TEMPORAL_MUL:
        return a * b;
    case DS_TEMPORAL_DIV:
        return b ? ds_floordiv(a, b) : 0;
    case DS_TEMPORAL_MOD:
        return b ? ds_floormod(a, b) : a;
    case DS_TEMPORAL_MIN:
        return least(a, b);
    case DS_TEMPORAL_MAX:
        return most(a, b);
    case DS_TEMPORAL_LT:
        return a < b;
    case DS_TEMPORAL_LE:
        return a <= b;
    case DS_TEMPORAL_EQ:
        return a == b;
    case DS_TEMPORAL_NE:
        return a != b;
    case DS_TEMPORAL_AND:
        return a && b;
    case DS_TEMPORAL_OR:
        return a || b;
    default:
        return !a;
    }
}

uint32_t ds_temporal__mentions(const ds_temporal_expr *e) {
    if (!e || e->kind == DS_TEMPORAL_CONST) return 0;
    if (e->kind == DS_TEMPORAL_DIM) return 1u << e->value;
    return ds_temporal__mentions(e->a) | ds_temporal__mentions(e->b);
}

/* ---- affine forms ---- */

static void add_times(ds_temporal__form *to, const ds_temporal__form *by, int64_t times) {
    to->c += times * by->c;
    for (uint32_t d = 0; d < DS_TEMPORAL_DIMS; d++) to->k[d] += times * by->k[d];
}

static bool is_constant(const ds_temporal__form *form) {
    for (uint32_t d = 0; d < DS_TEMPORAL_DIMS; d++)
        if (form->k[d] != 0) return false;
    return true;
}

bool ds_temporal__form_of(const ds_temporal_expr *e, ds_temporal__form *out) {
    *out = (ds_temporal__form){0};
    if (e->kind == DS_TEMPORAL_CONST) {
        out->c = e->value;
        return true;
    }
    if (e->kind == DS_TEMPORAL_DIM) {
        out->k[e->value] = 1;
        return true;
    }
    ds_temporal__form a, b = {0};
    if (!ds_temporal__form_of(e->a, &a)) return false;
    if (e->b && !ds_temporal__form_of(e->b, &b)) return false;
    if (is_constant(&a) && is_constant(&b)) {
        static const int64_t nowhere[DS_TEMPORAL_DIMS];
        out->c = ds_temporal_eval(e, nowhere);
        return true;
    }
    if (e->kind == DS_TEMPORAL_ADD || e->kind == DS_TEMPORAL_SUB) {
        *out = a;
        add_times(out, &b, e->kind == DS_TEMPORAL_ADD ? 1 : -1);
        return true;
    }
    if (e->kind == DS_TEMPORAL_MUL && (is_constant(&a) || is_constant(&b))) {
        add_times(out, is_constant(&a) ? &b : &a, is_constant(&a) ? a.c : b.c);
        return true;
    }
    return false;
}

/* ---- bounds over a box ---- */

static ds_temporal__span span_of_form(const ds_temporal__form *form, const ds_temporal__box *box) {
    ds_temporal__span span = {form->c, form->c};
    for (uint32_t d = 0; d < DS_TEMPORAL_DIMS; d++) {
        int64_t low = form->k[d] * box->lo[d], high = form->k[d] * (box->hi[d] - 1);
        span.lo += least(low, high);
        span.hi += most(low, high);
    }
    return span;
}

static ds_temporal__span plus(ds_temporal__span a, ds_temporal__span b) {
    return (ds_temporal__span){a.lo + b.lo, a.hi + b.hi};
}

static ds_temporal__span negative(ds_temporal__span a) {
    return (ds_temporal__span){-a.hi, -a.lo};
}

/* a + sign*b + form: an affine operand joins the form, so that a dim in both cancels. */
static ds_temporal__span span_of_sum(const ds_temporal_expr *e, ds_temporal__form form,
                                     const ds_temporal__box *box) {
    int64_t sign = e->kind == DS_TEMPORAL_ADD ? 1 : -1;
    ds_temporal__form operand;
    if (ds_temporal__form_of(e->b, &operand)) {
        add_times(&form, &operand, sign);
        return ds_temporal__span_of(e->a, &form, box);
    }
    if (ds_temporal__form_of(e->a, &operand)) {
        add_times(&form, &operand, 1);
        if (sign > 0) return ds_temporal__span_of(e->b, &form, box);
        ds_temporal__form flipped = {0};
        add_times(&flipped, &form, -1);
        return negative(ds_temporal__span_of(e->b, &flipped, box));
    }
    ds_temporal__form zero = {0};
    ds_temporal__span b = ds_temporal__span_of(e->b, &zero, box);
    return plus(ds_temporal__span_of(e->a, &form, box), sign > 0 ? b : negative(b));
}

static bool same(const ds_temporal_expr *a, const ds_temporal_expr *b) {
    if (a == b) return true;
    if (!a || !b || a->kind != b->kind) return false;
    if (a->kind <= DS_TEMPORAL_DIM) return a->value == b->value;
    return same(a->a, b->a) && same(a->b, b->b);
}

/* k * (x / k) is x less a remainder. */
static bool is_block(const ds_temporal_expr *e, const ds_temporal_expr **x, int64_t *k) {
    if (e->kind != DS_TEMPORAL_MUL) return false;
    const ds_temporal_expr *quotient = e->a->kind == DS_TEMPORAL_DIV ? e->a : e->b;
    const ds_temporal_expr *factor = quotient == e->a ? e->b : e->a;
    if (quotient->kind != DS_TEMPORAL_DIV || !same(quotient->b, factor)) return false;
    *x = quotient->a;
    *k = factor->value;
    return factor->kind == DS_TEMPORAL_CONST && *k > 0;
}

static ds_temporal__span meet(ds_temporal__span a, ds_temporal__span b) {
    return (ds_temporal__span){most(a.lo, b.lo), least(a.hi, b.hi)};
}

static ds_temporal__span span_of_quotient(const ds_temporal_expr *e, int64_t k,
                                          const ds_temporal__form *form,
                                          const ds_temporal__box *box) {
    ds_temporal__form zero = {0}, scaled = {0};
    ds_temporal__span x = ds_temporal__span_of(e->a, &zero, box);
    ds_temporal__span apart = {ds_floordiv(x.lo, k), ds_floordiv(x.hi, k)};
    /* x - (k-1) <= k * (x/k) <= x */
    add_times(&scaled, form, k);
    ds_temporal__span y = ds_temporal__span_of(e->a, &scaled, box);
    ds_temporal__span joint = {-ds_floordiv(-(y.lo - (k - 1)), k), ds_floordiv(y.hi, k)};
    return meet(plus(apart, span_of_form(form, box)), joint);
}

static ds_temporal__span span_of_product(const ds_temporal_expr *e, const ds_temporal__form *form,
                                         const ds_temporal__box *box) {
    const ds_temporal_expr *x;
    int64_t k;
    ds_temporal__form zero = {0};
    ds_temporal__span a = ds_temporal__span_of(e->a, &zero, box);
    ds_temporal__span b = ds_temporal__span_of(e->b, &zero, box);
    int64_t corner[4] = {a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi};
    ds_temporal__span span = {corner[0], corner[0]};
    for (int i = 1; i < 4; i++) {
        span.lo = least(span.lo, corner[i]);
        span.hi = most(span.hi, corner[i]);
    }
    span = plus(span, span_of_form(form, box));
    if (!is_block(e, &x, &k)) return span;
    ds_temporal__span block = ds_temporal__span_of(x, form, box);
    block.lo -= k - 1;
    return meet(span, block);
}

static ds_temporal__span span_of_rest(const ds_temporal_expr *e, const ds_temporal__form *form,
                                      const ds_temporal__box *box) {
    ds_temporal__span outside = span_of_form(form, box);
    if (e->kind != DS_TEMPORAL_DIV && e->kind != DS_TEMPORAL_MOD)
        return plus((ds_temporal__span){0, 1}, outside);
    ds_temporal__form divisor, zero = {0};
    if (ds_temporal__form_of(e->b, &divisor) && is_constant(&divisor) && divisor.c > 0) {
        if (e->kind == DS_TEMPORAL_DIV) return span_of_quotient(e, divisor.c, form, box);
        ds_temporal__span x = ds_temporal__span_of(e->a, &zero, box);
        if (x.lo >= 0 && x.hi < divisor.c) return ds_temporal__span_of(e->a, form, box);
        return plus((ds_temporal__span){0, divisor.c - 1}, outside);
    }
    ds_temporal__span x =
        ds_temporal__span_of(e->kind == DS_TEMPORAL_DIV ? e->a : e->b, &zero, box);
    int64_t size = most(most(x.hi, -x.lo), 0);
    return plus((ds_temporal__span){-size, size}, outside);
}

ds_temporal__span ds_temporal__span_of(const ds_temporal_expr *e, const ds_temporal__form *form,
                                       const ds_temporal__box *box) {
    ds_temporal__form whole;
    if (ds_temporal__form_of(e, &whole)) {
        add_times(&whole, form, 1);
        return span_of_form(&whole, box);
    }
    if (e->kind == DS_TEMPORAL_ADD || e->kind == DS_TEMPORAL_SUB) return span_of_sum(e, *form, box);
    if (e->kind == DS_TEMPORAL_MIN || e->kind == DS_TEMPORAL_MAX) {
        ds_temporal__span a = ds_temporal__span_of(e->a, form, box);
        ds_temporal__span b = ds_temporal__span_of(e->b, form, box);
        if (e->kind == DS_TEMPORAL_MIN)
            return (ds_temporal__span){least(a.lo, b.lo), least(a.hi, b.hi)};
        return (ds_temporal__span){most(a.lo, b.lo), most(a.hi, b.hi)};
    }
    if (e->kind == DS_TEMPORAL_MUL) return span_of_product(e, form, box);
    return span_of_rest(e, form, box);
}
