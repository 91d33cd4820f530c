/* Expressions against an evaluator that shares nothing with the library: a recursive-descent reader
 * of the printed text, which evaluates on the way and rebuilds the tree. */
#include "ir/core/expr.h"

#include "ir/base/rng.h"

#include <criterion/criterion.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_PARAMS = 3, N_INDICES = 2 };

static const char *const PARAMS[N_PARAMS] = {"batch", "dp", "width"};
static const char *const INDICES[N_INDICES] = {"l", "t"};

typedef struct world {
    ds_strtab strings;
    ds_exprs exprs;
    const char *params[N_PARAMS];
    const char *indices[N_INDICES];
    int64_t values[N_PARAMS + N_INDICES];
} world;

static void world_init(world *w) {
    ds_strtab_init(&w->strings);
    ds_exprs_init(&w->exprs);
    for (int i = 0; i < N_PARAMS; i++) w->params[i] = ds_intern(&w->strings, PARAMS[i]);
    for (int i = 0; i < N_INDICES; i++) w->indices[i] = ds_intern(&w->strings, INDICES[i]);
}

static void world_deinit(world *w) {
    ds_exprs_deinit(&w->exprs);
    ds_strtab_deinit(&w->strings);
}

static ds_expr name_expr(world *w, int i) {
    if (i >= N_PARAMS) return ds_expr_index(&w->exprs, w->indices[i - N_PARAMS]);
    return ds_expr_make(&w->exprs,
                        (ds_expr_node){.kind = DS_EXPR_PARAM, .name = w->params[i], .i = i});
}

static ds_status evaluate(const world *w, ds_expr e, ds_num *out, ds_error *err) {
    ds_num params[N_PARAMS];
    for (int i = 0; i < N_PARAMS; i++) params[i] = (ds_num){.kind = DS_NUM_INT, .i = w->values[i]};
    const ds_num *modules[] = {params};
    ds_index outer = {w->indices[0], w->values[N_PARAMS], NULL};
    ds_index inner = {w->indices[1], w->values[N_PARAMS + 1], &outer};
    ds_env env = {.exprs = &w->exprs, .params = modules, .indices = &inner};
    return ds_expr_eval(&env, e, DS_NOWHERE, out, err);
}

/* ---- the independent reader ---- */

__extension__ typedef __int128 wide;

typedef struct reading {
    ds_expr e;
    bool ok; /* has a value */
    wide v;
} reading;

typedef struct reader {
    world *w;
    const char *at;
    bool not_is_tight; /* `not` binds like unary minus (C) instead of below comparisons (Python) */
} reader;

static reading read_or(reader *r);

static bool eat(reader *r, const char *token) {
    size_t n = strlen(token);
    while (*r->at == ' ') r->at++;
    if (strncmp(r->at, token, n) != 0) return false;
    if (isalpha((unsigned char)*token) && (isalnum((unsigned char)r->at[n]) || r->at[n] == '_'))
        return false;
    r->at += n;
    return true;
}

static wide floor_div(wide a, wide b) {
    wide q = a / b;
    return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
}

static reading combine(reader *r, ds_expr_kind kind, reading a, reading b) {
    reading out = {.e = ds_expr_binary(&r->w->exprs, kind, a.e, b.e), .ok = a.ok && b.ok};
    if (kind == DS_EXPR_AND || kind == DS_EXPR_OR) {
        bool stop = a.ok && (kind == DS_EXPR_AND ? a.v == 0 : a.v != 0);
        out.ok = a.ok && (stop || b.ok);
        out.v = stop ? kind == DS_EXPR_OR : b.v != 0;
        return out;
    }
    if ((kind == DS_EXPR_DIV || kind == DS_EXPR_MOD || kind == DS_EXPR_CEILDIV) && b.v == 0)
        out.ok = false;
    if (!out.ok) return out;
    switch (kind) {
    case DS_EXPR_ADD:
        out.v = a.v + b.v;
        break;
    case DS_EXPR_SUB:
        out.v = a.v - b.v;
        break;
    case DS_EXPR_MUL:
        out.v = a.v * b.v;
        break;
    case DS_EXPR_DIV:
        out.v = floor_div(a.v, b.v);
        break;
    case DS_EXPR_MOD:
        out.v = a.v - b.v * floor_div(a.v, b.v);
        break;
    case DS_EXPR_CEILDIV:
        out.v = -floor_div(-a.v, b.v);
        break;
    case DS_EXPR_MIN:
        out.v = a.v < b.v ? a.v : b.v;
        break;
    case DS_EXPR_MAX:
        out.v = a.v < b.v ? b.v : a.v;
        break;
    case DS_EXPR_EQ:
        out.v = a.v == b.v;
        break;
    case DS_EXPR_NE:
        out.v = a.v != b.v;
        break;
    case DS_EXPR_LT:
        out.v = a.v < b.v;
        break;
    case DS_EXPR_LE:
        out.v = a.v <= b.v;
        break;
    case DS_EXPR_GT:
        out.v = a.v > b.v;
        break;
    case DS_EXPR_GE:
        out.v = a.v >= b.v;
        break;
    default:
        cr_assert_fail("kind %d", (int)kind);
    }
    if (out.v > INT64_MAX || out.v < INT64_MIN) out.ok = false;
    return out;
}

static reading read_atom(reader *r) {
    static const struct {
        const char *name;
        ds_expr_kind kind;
    } FUNCTIONS[] = {{"min", DS_EXPR_MIN}, {"max", DS_EXPR_MAX}, {"ceildiv", DS_EXPR_CEILDIV}};
    for (size_t i = 0; i < sizeof FUNCTIONS / sizeof *FUNCTIONS; i++) {
        if (!eat(r, FUNCTIONS[i].name)) continue;
        cr_assert(eat(r, "("));
        reading a = read_or(r);
        cr_assert(eat(r, ","));
        reading b = read_or(r);
        cr_assert(eat(r, ")"));
        return combine(r, FUNCTIONS[i].kind, a, b);
    }
    for (int i = 0; i < N_PARAMS + N_INDICES; i++)
        if (eat(r, i < N_PARAMS ? PARAMS[i] : INDICES[i - N_PARAMS]))
            return (reading){name_expr(r->w, i), true, r->w->values[i]};
    if (eat(r, "(")) {
        reading inside = read_or(r);
        cr_assert(eat(r, ")"), "at %s", r->at);
        return inside;
    }
    char *end;
    int64_t v = strtoll(r->at, &end, 10);
    cr_assert(end > r->at && *r->at != '-', "at %s", r->at);
    r->at = end;
    return (reading){ds_expr_int(&r->w->exprs, v), true, v};
}

static reading negate(reader *r, reading a) {
    a.e = ds_expr_make(&r->w->exprs, (ds_expr_node){.kind = DS_EXPR_NEG, .a = a.e});
    a.v = -a.v;
    return a;
}

static reading invert(reader *r, reading a) {
    a.e = ds_expr_make(&r->w->exprs, (ds_expr_node){.kind = DS_EXPR_NOT, .a = a.e});
    a.v = !a.v;
    return a;
}

static reading read_unary(reader *r) {
    if (eat(r, "-")) {
        cr_assert_neq(*r->at, '-', "`--` is another token");
        return negate(r, read_unary(r));
    }
    if (r->not_is_tight && eat(r, "not")) return invert(r, read_unary(r));
    return read_atom(r);
}

static reading read_mul(reader *r) {
    reading a = read_unary(r);
    for (;;) {
        if (eat(r, "*"))
            a = combine(r, DS_EXPR_MUL, a, read_unary(r));
        else if (eat(r, "/"))
            a = combine(r, DS_EXPR_DIV, a, read_unary(r));
        else if (eat(r, "%"))
            a = combine(r, DS_EXPR_MOD, a, read_unary(r));
        else
            return a;
    }
}

static reading read_add(reader *r) {
    reading a = read_mul(r);
    for (;;) {
        if (eat(r, "+"))
            a = combine(r, DS_EXPR_ADD, a, read_mul(r));
        else if (eat(r, "-"))
            a = combine(r, DS_EXPR_SUB, a, read_mul(r));
        else
            return a;
    }
}

static reading read_comparison(reader *r) {
    static const struct {
        const char *text;
        ds_expr_kind kind;
    } OPERATORS[] = {{"==", DS_EXPR_EQ}, {"!=", DS_EXPR_NE}, {"<=", DS_EXPR_LE},
                     {">=", DS_EXPR_GE}, {"<", DS_EXPR_LT},  {">", DS_EXPR_GT}};
    reading a = read_add(r);
    for (size_t i = 0; i < sizeof OPERATORS / sizeof *OPERATORS; i++)
        if (eat(r, OPERATORS[i].text)) return combine(r, OPERATORS[i].kind, a, read_add(r));
    return a;
}

static reading read_not(reader *r) {
    if (!r->not_is_tight && eat(r, "not")) return invert(r, read_not(r));
    return read_comparison(r);
}

static reading read_and(reader *r) {
    reading a = read_not(r);
    while (eat(r, "and")) a = combine(r, DS_EXPR_AND, a, read_not(r));
    return a;
}

static reading read_or(reader *r) {
    reading a = read_and(r);
    while (eat(r, "or")) a = combine(r, DS_EXPR_OR, a, read_and(r));
    return a;
}

static reading read_text(world *w, const char *text, bool not_is_tight) {
    reader r = {w, text, not_is_tight};
    reading out = read_or(&r);
    cr_assert_eq(*r.at, '\0', "unread: '%s' of '%s'", r.at, text);
    return out;
}

static ds_expr read_expr(world *w, const char *text) {
    return read_text(w, text, false).e;
}

/* ---- random expressions ---- */

static ds_expr random_leaf(world *w, ds_rng *rng) {
    uint64_t pick = ds_rng_below(rng, 10);
    if (pick < N_PARAMS + N_INDICES) return name_expr(w, (int)pick);
    return ds_expr_int(&w->exprs, (int64_t)ds_rng_below(rng, 8) - 2);
}

static ds_expr random_expr(world *w, ds_rng *rng, int depth, bool arithmetic, bool fold) {
    if (depth == 0 || ds_rng_below(rng, 5) == 0) return random_leaf(w, rng);
    uint64_t n_kinds = arithmetic ? 10 : 19;
    static const ds_expr_kind KINDS[] = {DS_EXPR_ADD,     DS_EXPR_SUB, DS_EXPR_MUL, DS_EXPR_DIV,
                                         DS_EXPR_MOD,     DS_EXPR_MIN, DS_EXPR_MAX, DS_EXPR_NEG,
                                         DS_EXPR_CEILDIV, DS_EXPR_ADD, DS_EXPR_EQ,  DS_EXPR_NE,
                                         DS_EXPR_LT,      DS_EXPR_LE,  DS_EXPR_GT,  DS_EXPR_GE,
                                         DS_EXPR_AND,     DS_EXPR_OR,  DS_EXPR_NOT};
    ds_expr_kind kind = KINDS[ds_rng_below(rng, n_kinds)];
    bool unary = kind == DS_EXPR_NEG || kind == DS_EXPR_NOT;
    ds_expr a = random_expr(w, rng, depth - 1, arithmetic, fold);
    ds_expr b = unary ? DS_NO_EXPR : random_expr(w, rng, depth - 1, arithmetic, fold);
    return fold ? ds_expr_fold(&w->exprs, kind, a, b) : ds_expr_binary(&w->exprs, kind, a, b);
}

static void random_values(world *w, ds_rng *rng) {
    int64_t range = ds_rng_below(rng, 8) == 0 ? INT64_C(4000000000) : 9;
    for (int i = 0; i < N_PARAMS + N_INDICES; i++)
        w->values[i] = (int64_t)ds_rng_below(rng, (uint64_t)(2 * range + 1)) - range;
}

static void check_one(world *w, ds_expr e, uint64_t *n_values) {
    ds_buf text = {0};
    ds_expr_print(&w->exprs, e, &text);
    for (int tight = 0; tight < 2; tight++) {
        reading told = read_text(w, text.text, tight);
        cr_assert_eq(told.e.i, e.i, "'%s' parses to another tree", text.text);
        ds_num value;
        ds_error err = {0};
        ds_status status = evaluate(w, e, &value, &err);
        cr_assert_eq(status == DS_OK, told.ok, "%s: %s", text.text, err.message);
        if (status != DS_OK) {
            cr_assert(status == DS_ERR_OVERFLOW || status == DS_ERR_VALUE);
            continue;
        }
        cr_assert_eq(value.kind, DS_NUM_INT);
        cr_assert(value.i == told.v, "%s is %" PRId64 ", not %" PRId64, text.text, value.i,
                  (int64_t)told.v);
        ++*n_values;
    }
    ds_buf_deinit(&text);
}

Test(expr, printed_text_has_the_same_tree_and_the_same_value) {
    world w;
    world_init(&w);
    ds_rng rng = {1};
    uint64_t n_values = 0;
    for (int i = 0; i < 20000; i++) {
        random_values(&w, &rng);
        check_one(&w, random_expr(&w, &rng, 1 + (int)ds_rng_below(&rng, 5), false, false),
                  &n_values);
    }
    cr_assert_gt(n_values, 15000); /* most have one */
    world_deinit(&w);
}

/* ---- equality ---- */

/* On many bindings, what the library says must hold wherever both sides have a value. */
static ds_tri check_claim(world *w, ds_rng *rng, ds_expr a, ds_expr b) {
    ds_tri claim = ds_expr_equal(&w->exprs, a, b);
    cr_assert_eq(claim, ds_expr_equal(&w->exprs, b, a));
    for (int k = 0; k < 30; k++) {
        ds_num x, y;
        random_values(w, rng);
        if (evaluate(w, a, &x, NULL) != DS_OK || evaluate(w, b, &y, NULL) != DS_OK) continue;
        if ((claim == DS_YES && x.i == y.i) || (claim == DS_NO && x.i != y.i) ||
            claim == DS_UNKNOWN)
            continue;
        ds_buf text = {0};
        ds_expr_print(&w->exprs, a, &text);
        ds_buf_put(&text, "   and   ");
        ds_expr_print(&w->exprs, b, &text);
        cr_assert_fail("%s: said %s, but %" PRId64 " and %" PRId64, text.text,
                       claim == DS_YES ? "equal" : "different", x.i, y.i);
    }
    return claim;
}

/* The same value, written otherwise. */
static ds_expr rewrite(world *w, ds_rng *rng, ds_expr e, int depth) {
    ds_exprs *x = &w->exprs;
    ds_expr_node n = *ds_expr_at(x, e);
    if (depth == 0 || !DS_HAS_EXPR(n.a)) return e;
    ds_expr a = rewrite(w, rng, n.a, depth - 1);
    ds_expr b = DS_HAS_EXPR(n.b) ? rewrite(w, rng, n.b, depth - 1) : n.b;
    ds_expr k = random_leaf(w, rng);
    switch (n.kind) {
    case DS_EXPR_ADD:
    case DS_EXPR_MUL:
    case DS_EXPR_MIN:
    case DS_EXPR_MAX:
    case DS_EXPR_EQ:
        return ds_expr_binary(x, n.kind, b, a);
    case DS_EXPR_SUB:
        return ds_expr_binary(x, DS_EXPR_SUB, ds_expr_binary(x, DS_EXPR_ADD, a, k),
                              ds_expr_binary(x, DS_EXPR_ADD, k, b));
    case DS_EXPR_DIV:
        return ds_expr_binary(x, DS_EXPR_DIV, ds_expr_binary(x, DS_EXPR_MUL, a, ds_expr_int(x, -6)),
                              ds_expr_binary(x, DS_EXPR_MUL, ds_expr_int(x, -6), b));
    case DS_EXPR_MOD:
        return ds_expr_binary(
            x, DS_EXPR_SUB, a,
            ds_expr_binary(x, DS_EXPR_MUL, ds_expr_binary(x, DS_EXPR_DIV, a, b), b));
    case DS_EXPR_LT:
        return ds_expr_binary(x, DS_EXPR_GT, b, a);
    case DS_EXPR_GE:
        return ds_expr_binary(x, DS_EXPR_LE, b, a);
    default:
        return ds_expr_binary(x, n.kind, a, b);
    }
}

Test(expr, equality_is_never_wrong_and_sees_rewritings) {
    world w;
    world_init(&w);
    ds_rng rng = {2};
    uint32_t rewritten = 0, seen = 0, different = 0;
    for (int i = 0; i < 6000; i++) {
        ds_expr e = random_expr(&w, &rng, 3, i % 2, false), f = rewrite(&w, &rng, e, 3);
        ds_tri claim = check_claim(&w, &rng, e, f);
        cr_assert_neq(claim, DS_NO);
        if (e.i != f.i) {
            rewritten++;
            seen += claim == DS_YES;
        }
        different += check_claim(&w, &rng, e, random_expr(&w, &rng, 2, i % 2, false)) == DS_NO;
    }
    cr_assert_gt(rewritten, 3000);
    cr_assert_gt(seen * 100, rewritten * 90, "%u of %u", seen, rewritten);
    cr_assert_gt(different, 100);
    world_deinit(&w);
}

Test(expr, equality_of_what_shapes_are_made_of) {
    static const struct {
        const char *a, *b;
        ds_tri equal;
    } CASES[] = {
        {"batch * width / dp * dp", "batch * width", DS_UNKNOWN}, /* only if dp divides */
        {"batch * dp / dp", "batch", DS_YES},
        {"(batch + width) * dp / dp", "width + batch", DS_YES},
        {"2 * width / 2", "width", DS_YES},
        {"(4 * width + 3) / 2", "2 * width + 1", DS_YES},
        {"(4 * width + 3) % 2", "1", DS_YES},
        {"5 * width / 2", "2 * width + width / 2", DS_YES},
        {"width / 2 * 2 + width % 2", "width", DS_YES},
        {"ceildiv(batch, dp)", "(batch + dp - 1) / dp", DS_UNKNOWN}, /* true for dp > 0 only */
        {"ceildiv(4 * batch, 4)", "batch", DS_YES},
        {"width", "width + 1", DS_NO},
        {"2 * width", "2 * width - 3", DS_NO},
        {"width", "batch", DS_UNKNOWN},
        {"2 * width", "width", DS_UNKNOWN}, /* both are 0 if width is */
        {"min(width, width + 1)", "width", DS_YES},
        {"max(width, batch)", "max(batch, width)", DS_YES},
        {"(l + t) * (l - t)", "l * l - t * t", DS_YES},
        {"l < l + 1", "1", DS_YES},
        {"not (l < t)", "l >= t", DS_YES},
        {"l == t", "l - t == 0", DS_YES},
        {"1 / 0", "2 / 0", DS_UNKNOWN},
        {"9223372036854775807 * width + 9223372036854775807 * width", "0", DS_UNKNOWN},
    };
    world w;
    world_init(&w);
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        ds_expr a = read_expr(&w, CASES[i].a), b = read_expr(&w, CASES[i].b);
        cr_expect_eq(ds_expr_equal(&w.exprs, a, b), CASES[i].equal, "%s and %s", CASES[i].a,
                     CASES[i].b);
    }
    world_deinit(&w);
}

Test(expr, equality_of_literals_and_missing_ones) {
    world w;
    world_init(&w);
    ds_expr_node half = {.kind = DS_EXPR_REAL, .r = 0.5, .name = ds_intern(&w.strings, "0.5")};
    ds_expr a = ds_expr_make(&w.exprs, half);
    half.name = ds_intern(&w.strings, "5e-1");
    ds_expr b = ds_expr_make(&w.exprs, half);
    cr_assert_neq(a.i, b.i); /* they print differently */
    cr_assert_eq(ds_expr_equal(&w.exprs, a, b), DS_YES);
    cr_assert_eq(ds_expr_equal(&w.exprs, a, ds_expr_int(&w.exprs, 1)), DS_UNKNOWN);
    cr_assert_eq(ds_expr_equal(&w.exprs, ds_expr_int(&w.exprs, 2), ds_expr_int(&w.exprs, 3)),
                 DS_NO);
    cr_assert_eq(ds_expr_equal(&w.exprs, DS_NO_EXPR, DS_NO_EXPR), DS_YES);
    cr_assert_eq(ds_expr_equal(&w.exprs, DS_NO_EXPR, a), DS_NO);
    world_deinit(&w);
}

/* ---- folding and substitution ---- */

Test(expr, folding_keeps_values) {
    world w;
    world_init(&w);
    uint32_t n_values = 0;
    for (uint64_t seed = 0; seed < 6000; seed++) {
        ds_rng plain = {seed}, folded = {seed}, values = {~seed};
        ds_expr e = random_expr(&w, &plain, 4, seed % 2, false);
        ds_expr f = random_expr(&w, &folded, 4, seed % 2, true);
        for (int k = 0; k < 10; k++) {
            ds_num x, y;
            random_values(&w, &values);
            if (evaluate(&w, e, &x, NULL) != DS_OK || evaluate(&w, f, &y, NULL) != DS_OK) continue;
            cr_assert_eq(x.i, y.i, "seed %" PRIu64, seed);
            n_values++;
        }
    }
    cr_assert_gt(n_values, 20000);
    world_deinit(&w);
}

static void check_fold(world *w, ds_expr_kind kind, const char *a, const char *b,
                       const char *expected) {
    ds_buf text = {0};
    ds_expr_print(&w->exprs, ds_expr_fold(&w->exprs, kind, read_expr(w, a), read_expr(w, b)),
                  &text);
    cr_expect_str_eq(text.text, expected);
    ds_buf_deinit(&text);
}

Test(expr, folding_prints_shortly) {
    world w;
    world_init(&w);
    check_fold(&w, DS_EXPR_MUL, "width", "1", "width");
    check_fold(&w, DS_EXPR_MUL, "width", "0", "0");
    check_fold(&w, DS_EXPR_ADD, "0", "width", "width");
    check_fold(&w, DS_EXPR_ADD, "width", "width", "2 * width");
    check_fold(&w, DS_EXPR_ADD, "2 * width", "width * 2", "4 * width");
    check_fold(&w, DS_EXPR_ADD, "l - 1", "1", "l");
    check_fold(&w, DS_EXPR_ADD, "l + 1", "1", "l + 2");
    check_fold(&w, DS_EXPR_SUB, "l", "-1", "l + 1");
    check_fold(&w, DS_EXPR_SUB, "batch", "batch - l", "l");
    check_fold(&w, DS_EXPR_SUB, "l + batch", "l", "batch");
    check_fold(&w, DS_EXPR_SUB, "width", "width", "0");
    check_fold(&w, DS_EXPR_DIV, "4 * width", "2", "2 * width");
    check_fold(&w, DS_EXPR_DIV, "width", "2", "width / 2");
    check_fold(&w, DS_EXPR_DIV, "batch * width", "width", "batch");
    check_fold(&w, DS_EXPR_MOD, "batch * width", "batch", "0");
    check_fold(&w, DS_EXPR_DIV, "-7", "2", "-4");
    check_fold(&w, DS_EXPR_DIV, "7", "0", "7 / 0"); /* left for evaluation to refuse */
    check_fold(&w, DS_EXPR_MUL, "9223372036854775807", "2", "9223372036854775807 * 2");
    check_fold(&w, DS_EXPR_CEILDIV, "7", "2", "4");
    world_deinit(&w);
}

Test(expr, substitution_is_evaluation_at_the_substitute) {
    world w;
    world_init(&w);
    ds_rng rng = {5};
    uint32_t n_values = 0;
    for (int i = 0; i < 4000; i++) {
        ds_expr e = random_expr(&w, &rng, 4, i % 2, false);
        ds_expr by = random_expr(&w, &rng, 2, true, false);
        ds_expr s = ds_expr_subst(&w.exprs, e, w.indices[0], by);
        if (!ds_expr_mentions(&w.exprs, e, w.indices[0])) cr_assert_eq(s.i, e.i);
        if (!ds_expr_mentions(&w.exprs, by, w.indices[0]))
            cr_assert_not(ds_expr_mentions(&w.exprs, s, w.indices[0]));
        random_values(&w, &rng);
        ds_num x, y, z;
        if (evaluate(&w, s, &x, NULL) != DS_OK || evaluate(&w, by, &y, NULL) != DS_OK) continue;
        w.values[N_PARAMS] = y.i;
        if (evaluate(&w, e, &z, NULL) != DS_OK) continue;
        cr_assert_eq(x.i, z.i);
        n_values++;
    }
    cr_assert_gt(n_values, 2000);
    world_deinit(&w);
}

Test(expr, only_what_changes_is_built_anew) {
    world w;
    world_init(&w);
    ds_expr e = read_expr(&w, "(1 + 2) * batch + l");
    ds_buf text = {0};
    ds_expr_print(&w.exprs, ds_expr_subst(&w.exprs, e, w.indices[0], ds_expr_int(&w.exprs, 5)),
                  &text);
    cr_assert_str_eq(text.text, "(1 + 2) * batch + 5");
    ds_buf_deinit(&text);
    cr_assert(ds_expr_mentions(&w.exprs, e, NULL));
    cr_assert(ds_expr_mentions(&w.exprs, e, w.indices[0]));
    cr_assert_not(ds_expr_mentions(&w.exprs, e, w.indices[1]));
    cr_assert_not(ds_expr_mentions(&w.exprs, read_expr(&w, "batch"), NULL));
    world_deinit(&w);
}

/* ---- evaluation ---- */

Test(expr, division_rounds_down) {
    /* a, b, floor(a / b), a - b * floor(a / b), ceil(a / b) */
    static const int64_t TABLE[][5] = {{7, 2, 3, 1, 4},
                                       {-7, 2, -4, 1, -3},
                                       {7, -2, -4, -1, -3},
                                       {-7, -2, 3, -1, 4},
                                       {6, 3, 2, 0, 2},
                                       {-6, 3, -2, 0, -2},
                                       {0, 5, 0, 0, 0},
                                       {1, 5, 0, 1, 1},
                                       {-1, 5, -1, 4, 0},
                                       {INT64_MAX, 1, INT64_MAX, 0, INT64_MAX},
                                       {INT64_MIN, 2, INT64_MIN / 2, 0, INT64_MIN / 2}};
    world w;
    world_init(&w);
    static const ds_expr_kind KINDS[] = {DS_EXPR_DIV, DS_EXPR_MOD, DS_EXPR_CEILDIV};
    for (size_t i = 0; i < sizeof TABLE / sizeof *TABLE; i++)
        for (int k = 0; k < 3; k++) {
            ds_num value;
            w.values[0] = TABLE[i][0];
            w.values[1] = TABLE[i][1];
            ds_expr e = ds_expr_binary(&w.exprs, KINDS[k], name_expr(&w, 0), name_expr(&w, 1));
            cr_assert_eq(evaluate(&w, e, &value, NULL), DS_OK);
            cr_assert_eq(value.i, TABLE[i][2 + k]);
        }
    world_deinit(&w);
}

static void check_error(world *w, ds_expr e, ds_status code, const char *part) {
    ds_num value;
    ds_error err = {0};
    cr_expect_eq(evaluate(w, e, &value, &err), code);
    cr_expect_eq(err.code, code);
    cr_expect(strstr(err.message, part), "'%s' lacks '%s'", err.message, part);
}

Test(expr, errors_name_the_expression_and_its_values) {
    world w;
    world_init(&w);
    w.values[0] = INT64_C(4000000000);
    w.values[1] = 0;
    w.values[2] = INT64_MIN;
    check_error(&w, read_expr(&w, "1 + batch / dp"), DS_ERR_VALUE, "`batch / dp`");
    check_error(&w, read_expr(&w, "1 + batch % dp"), DS_ERR_VALUE, "4000000000 and 0");
    check_error(&w, read_expr(&w, "ceildiv(batch, dp)"), DS_ERR_VALUE, "division by zero");
    check_error(&w, read_expr(&w, "batch * batch"), DS_ERR_OVERFLOW,
                "`batch * batch` (the sides are 4000000000 and 4000000000)");
    check_error(&w, read_expr(&w, "9223372036854775807 + 1"), DS_ERR_OVERFLOW, "64 bits");
    check_error(&w, read_expr(&w, "width - 1"), DS_ERR_OVERFLOW, "64 bits");
    check_error(&w, read_expr(&w, "width / -1"), DS_ERR_OVERFLOW, "64 bits");
    check_error(&w, read_expr(&w, "-width"), DS_ERR_OVERFLOW, "64 bits");
    check_error(&w, ds_expr_index(&w.exprs, ds_intern(&w.strings, "widht")), DS_ERR_NAME,
                "'widht'");
    check_error(&w, DS_NO_EXPR, DS_ERR_INTERNAL, "missing");
    ds_expr_node axis = {.kind = DS_EXPR_AXIS_INDEX, .name = ds_intern(&w.strings, "cp")};
    check_error(&w, ds_expr_make(&w.exprs, axis), DS_ERR_NAME, "axis_index(cp)");
    ds_num value;
    cr_assert_eq(evaluate(&w, read_expr(&w, "width % -1"), &value, NULL), DS_OK);
    cr_assert_eq(value.i, 0);
    cr_assert_eq(evaluate(&w, read_expr(&w, "dp != 0 and batch / dp > 2"), &value, NULL), DS_OK);
    cr_assert_eq(value.i, 0);
    cr_assert_eq(evaluate(&w, read_expr(&w, "dp == 0 or batch / dp > 2"), &value, NULL), DS_OK);
    cr_assert_eq(value.i, 1);
    world_deinit(&w);
}

static ds_expr real_expr(world *w, const char *text) {
    return ds_expr_make(&w->exprs, (ds_expr_node){.kind = DS_EXPR_REAL,
                                                  .r = strtod(text, NULL),
                                                  .name = ds_intern(&w->strings, text)});
}

static ds_expr string_expr(world *w, const char *text) {
    return ds_expr_make(&w->exprs,
                        (ds_expr_node){.kind = DS_EXPR_STR, .name = ds_intern(&w->strings, text)});
}

static void check_real(world *w, ds_expr_kind kind, ds_expr a, ds_expr b, double expected) {
    ds_num value;
    cr_assert_eq(evaluate(w, ds_expr_binary(&w->exprs, kind, a, b), &value, NULL), DS_OK);
    cr_assert_eq(value.kind, DS_NUM_REAL);
    cr_assert_eq(value.r, expected);
}

Test(expr, a_real_on_either_side_makes_a_real) {
    world w;
    world_init(&w);
    ds_expr half = real_expr(&w, "0.5"), seven = ds_expr_int(&w.exprs, 7);
    check_real(&w, DS_EXPR_MUL, seven, half, 3.5);
    check_real(&w, DS_EXPR_DIV, seven, real_expr(&w, "2.0"), 3.5);
    check_real(&w, DS_EXPR_DIV, half, ds_expr_int(&w.exprs, 4), 0.125);
    check_real(&w, DS_EXPR_MOD, real_expr(&w, "7.5"), ds_expr_int(&w.exprs, 2), 1.5);
    check_real(&w, DS_EXPR_SUB, half, seven, -6.5);
    check_real(&w, DS_EXPR_MAX, half, seven, 7.0);
    ds_num value;
    ds_expr less = ds_expr_binary(&w.exprs, DS_EXPR_LT, half, seven);
    cr_assert_eq(evaluate(&w, less, &value, NULL), DS_OK);
    cr_assert(value.kind == DS_NUM_INT && value.i == 1);
    check_error(&w, ds_expr_binary(&w.exprs, DS_EXPR_DIV, half, real_expr(&w, "0.0")), DS_ERR_VALUE,
                "`0.5 / 0.0`");
    check_error(
        &w, ds_expr_binary(&w.exprs, DS_EXPR_MUL, real_expr(&w, "1e300"), real_expr(&w, "1e300")),
        DS_ERR_OVERFLOW, "`1e300 * 1e300`");
    check_error(&w, ds_expr_binary(&w.exprs, DS_EXPR_AND, half, seven), DS_ERR_TYPE, "integers");
    check_error(&w, ds_expr_binary(&w.exprs, DS_EXPR_CEILDIV, half, seven), DS_ERR_TYPE,
                "integers");
    world_deinit(&w);
}

Test(expr, strings_compare_for_equality_only) {
    world w;
    world_init(&w);
    ds_expr a = string_expr(&w, "1f1b"), b = string_expr(&w, "gpipe");
    ds_num value;
    cr_assert_eq(evaluate(&w, ds_expr_binary(&w.exprs, DS_EXPR_EQ, a, a), &value, NULL), DS_OK);
    cr_assert_eq(value.i, 1);
    cr_assert_eq(evaluate(&w, ds_expr_binary(&w.exprs, DS_EXPR_NE, a, b), &value, NULL), DS_OK);
    cr_assert_eq(value.i, 1);
    check_error(&w, ds_expr_binary(&w.exprs, DS_EXPR_LT, a, b), DS_ERR_TYPE, "no order");
    check_error(&w, ds_expr_binary(&w.exprs, DS_EXPR_ADD, a, b), DS_ERR_TYPE, "\"1f1b\"");
    check_error(&w, ds_expr_binary(&w.exprs, DS_EXPR_EQ, a, ds_expr_int(&w.exprs, 1)), DS_ERR_TYPE,
                "number");
    world_deinit(&w);
}

Test(expr, typed_evaluation) {
    world w;
    world_init(&w);
    ds_env env = {.exprs = &w.exprs};
    ds_error err;
    int64_t i;
    double r;
    ds_expr half = real_expr(&w, "0.5");
    cr_assert_eq(ds_expr_eval_int(&env, half, DS_NOWHERE, &i, &err), DS_ERR_TYPE);
    cr_assert_str_eq(err.message, "an integer is needed here, not 0.5");
    ds_expr product = ds_expr_binary(&w.exprs, DS_EXPR_MUL, half, ds_expr_int(&w.exprs, 3));
    cr_assert_eq(ds_expr_eval_int(&env, product, DS_NOWHERE, &i, &err), DS_ERR_TYPE);
    cr_assert_str_eq(err.message, "an integer is needed here, and `0.5 * 3` is 1.5");
    cr_assert_eq(ds_expr_eval_real(&env, ds_expr_int(&w.exprs, 3), DS_NOWHERE, &r, &err), DS_OK);
    cr_assert_eq(r, 3.0);
    cr_assert_eq(ds_expr_eval_real(&env, string_expr(&w, "x"), DS_NOWHERE, &r, &err), DS_ERR_TYPE);
    /* no params in the environment; the innermost index of a name holds */
    cr_assert_eq(ds_expr_eval_int(&env, name_expr(&w, 0), DS_NOWHERE, &i, &err), DS_ERR_NAME);
    ds_index outer = {w.indices[0], 1, NULL}, inner = {w.indices[0], 2, &outer};
    env.indices = &inner;
    cr_assert_eq(ds_expr_eval_int(&env, name_expr(&w, N_PARAMS), DS_NOWHERE, &i, &err), DS_OK);
    cr_assert_eq(i, 2);
    world_deinit(&w);
}

/* ---- the table and the text ---- */

Test(expr, equal_expressions_have_one_id) {
    world w;
    world_init(&w);
    cr_assert_eq(read_expr(&w, "batch * (l + 1)").i, read_expr(&w, "(batch * (l+1))").i);
    cr_assert_neq(read_expr(&w, "batch + l").i, read_expr(&w, "l + batch").i);
    ds_expr five = ds_expr_int(&w.exprs, 5);
    ds_expr minus = ds_expr_make(&w.exprs, (ds_expr_node){.kind = DS_EXPR_NEG, .a = five});
    cr_assert_eq(minus.i, ds_expr_int(&w.exprs, -5).i);
    ds_expr_node written = {
        .kind = DS_EXPR_INT, .i = 5, .name = ds_intern(&w.strings, "005"), .r = 5};
    cr_assert_eq(ds_expr_make(&w.exprs, written).i, five.i, "other kinds' fields do not count");
    cr_assert_eq(ds_expr_at(&w.exprs, read_expr(&w, "1 + 2 * 3"))->size, 5);
    world_deinit(&w);
}

static void check_print(world *w, ds_expr e, const char *expected) {
    ds_buf text = {0};
    ds_expr_print(&w->exprs, e, &text);
    cr_expect_str_eq(text.text, expected);
    ds_buf_deinit(&text);
}

Test(expr, prints_the_fewest_parentheses) {
    static const char *const TEXTS[] = {
        "batch + l * t",      "(batch + l) * t",        "batch - (l - t)",
        "batch - l - t",      "batch / (l * t)",        "batch * l / t",
        "-batch * l",         "-(batch * l)",           "-(-batch)",
        "batch - -l",         "not batch and l",        "not (batch and l)",
        "(batch < l) == t",   "batch < l + 1",          "batch or l and t",
        "(batch or l) and t", "not (batch == l)",       "not not batch",
        "(not batch) + 1",    "min(batch, l + 1)",      "ceildiv(batch, dp)",
        "batch * -1",         "(batch or l) == (not t)"};
    world w;
    world_init(&w);
    for (size_t i = 0; i < sizeof TEXTS / sizeof *TEXTS; i++) {
        check_print(&w, read_text(&w, TEXTS[i], false).e, TEXTS[i]);
        check_print(&w, read_text(&w, TEXTS[i], true).e, TEXTS[i]);
    }
    check_print(&w, real_expr(&w, "1e-5"), "1e-5");
    check_print(&w, ds_expr_make(&w.exprs, (ds_expr_node){.kind = DS_EXPR_REAL, .r = 0.1}), "0.1");
    check_print(&w, ds_expr_make(&w.exprs, (ds_expr_node){.kind = DS_EXPR_REAL, .r = 3}), "3.0");
    check_print(&w, ds_expr_make(&w.exprs, (ds_expr_node){.kind = DS_EXPR_REAL, .r = 1.0 / 3}),
                "0.3333333333333333");
    check_print(&w, string_expr(&w, "a \"b\" \\ \n\t"), "\"a \\\"b\\\" \\\\ \\n\\t\"");
    ds_expr_node axis = {.kind = DS_EXPR_AXIS_INDEX, .name = ds_intern(&w.strings, "cp")};
    check_print(&w, ds_expr_make(&w.exprs, axis), "axis_index(cp)");
    world_deinit(&w);
}

/* ---- size ---- */

Test(expr, long_and_deep_expressions_need_no_stack) {
    world w;
    world_init(&w);
    for (int i = 0; i < N_PARAMS + N_INDICES; i++) w.values[i] = 1;
    enum { N = 50000 };
    for (int leaning = 0; leaning < 2; leaning++) {
        ds_expr e = name_expr(&w, N_PARAMS);
        for (int64_t i = 0; i < N; i++) { /* l + 0 + 1 + … or … + (1 + (0 + l)) */
            ds_expr term = ds_expr_int(&w.exprs, i % 7);
            e = ds_expr_binary(&w.exprs, DS_EXPR_ADD, leaning ? term : e, leaning ? e : term);
        }
        int64_t sum = 1;
        for (int64_t i = 0; i < N; i++) sum += i % 7;
        ds_num value;
        cr_assert_eq(evaluate(&w, e, &value, NULL), DS_OK);
        cr_assert_eq(value.i, sum);
        cr_assert(ds_expr_mentions(&w.exprs, e, w.indices[0]));
        ds_expr s = ds_expr_subst(&w.exprs, e, w.indices[0], name_expr(&w, N_PARAMS + 1));
        cr_assert_eq(evaluate(&w, s, &value, NULL), DS_OK);
        cr_assert_eq(value.i, sum);
        ds_expr flat = ds_expr_binary(&w.exprs, DS_EXPR_ADD, name_expr(&w, N_PARAMS),
                                      ds_expr_int(&w.exprs, sum - 1));
        cr_assert_eq(ds_expr_equal(&w.exprs, e, flat), DS_YES);
        ds_buf text = {0};
        ds_expr_print(&w.exprs, e, &text);
        cr_assert_str_eq(text.text, "..."); /* 100,001 nodes */
        ds_buf_deinit(&text);
    }
    world_deinit(&w);
}

Test(expr, sharing_costs_nothing_and_prints_boundedly) {
    world w;
    world_init(&w);
    /* Fibonacci: 80 nodes that would be 10^16 written out. */
    ds_expr a = name_expr(&w, N_PARAMS), b = name_expr(&w, N_PARAMS + 1);
    int64_t x = 1, y = 1;
    for (int i = 0; i < 80; i++) {
        ds_expr c = ds_expr_binary(&w.exprs, DS_EXPR_ADD, a, b);
        a = b;
        b = c;
        int64_t z = x + y;
        x = y;
        y = z;
    }
    w.values[N_PARAMS] = w.values[N_PARAMS + 1] = 1;
    ds_num value;
    cr_assert_eq(evaluate(&w, b, &value, NULL), DS_OK);
    cr_assert_eq(value.i, y);
    cr_assert_eq(ds_expr_equal(&w.exprs, b, a), DS_UNKNOWN);
    cr_assert_gt(ds_expr_at(&w.exprs, b)->size, DS_EXPR_MAX_SIZE);
    ds_buf text = {0};
    ds_expr_print(&w.exprs, b, &text);
    cr_assert_str_eq(text.text, "...");
    ds_buf_deinit(&text);
    /* (l + t)^40 has too many terms and too high a degree: undecided, quickly */
    ds_expr sum = read_expr(&w, "l + t"), power = sum;
    for (int i = 0; i < 39; i++) power = ds_expr_binary(&w.exprs, DS_EXPR_MUL, power, sum);
    cr_assert_eq(ds_expr_equal(&w.exprs, power, sum), DS_UNKNOWN);
    world_deinit(&w);
}
