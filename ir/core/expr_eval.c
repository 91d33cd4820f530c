/* Evaluation, bottom-up over the distinct nodes of an expression.
 *
 * A node that has no value (division by zero, an unbound name …) is remembered as `bad` and only
 * becomes an error if the root depends on it: `n != 0 and k / n > 2` is fine with n = 0. The
 * message is made at the end, by evaluating the guilty node once more. */
#include "ir/core/expr.h"

#include "ir/base/arena.h"
#include "ir/base/units.h"
#include "ir/core/expr_walk.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MAX 200 /* bytes of an expression quoted in a message */

typedef struct cell {
    ds_num value;
    uint32_t bad; /* the node to blame, 0 if none */
} cell;

static ds_num int_num(int64_t i) {
    return (ds_num){.kind = DS_NUM_INT, .i = i};
}
static ds_num real_num(double r) {
    return (ds_num){.kind = DS_NUM_REAL, .r = r};
}
bool ds_num_parse_bool(const char *text, bool *out) {
    *out = strcmp(text, "true") == 0 || strcmp(text, "on") == 0;
    return *out || strcmp(text, "false") == 0 || strcmp(text, "off") == 0;
}
static double as_real(const ds_num *x) {
    return x->kind == DS_NUM_INT ? (double)x->i : x->r;
}

/* ---- messages ---- */

static void cut_text(const ds_buf *text, char out[TEXT_MAX + 4]) {
    size_t n = text->n <= TEXT_MAX ? text->n : TEXT_MAX;
    if (n) memcpy(out, text->text, n);
    strcpy(out + n, text->n <= TEXT_MAX ? "" : "...");
}

static void expr_text(const ds_exprs *exprs, ds_expr e, char out[TEXT_MAX + 4]) {
    ds_buf text = {0};
    ds_expr_print(exprs, e, &text);
    cut_text(&text, out);
    ds_buf_deinit(&text);
}

static void num_text(const ds_num *x, char out[TEXT_MAX + 4]) {
    switch (x->kind) {
    case DS_NUM_INT:
        if (x->is_bool)
            strcpy(out, x->i ? "true" : "false");
        else
            snprintf(out, TEXT_MAX, "%" PRId64, x->i);
        return;
    case DS_NUM_REAL:
        snprintf(out, TEXT_MAX, "%.17g", x->r);
        return;
    case DS_NUM_STR:
        snprintf(out, TEXT_MAX, "\"%s\"", x->s);
        return;
    }
}

/* What one node is evaluated with. */
typedef struct step {
    const ds_env *env;
    ds_expr e;
    const ds_expr_node *node;
    ds_loc loc;
    ds_error *err; /* NULL: only the status counts */
} step;

static ds_status fail(const step *s, ds_status code, const char *what, const ds_num *a,
                      const ds_num *b) {
    if (!s->err) return code;
    char text[TEXT_MAX + 4], left[TEXT_MAX + 4] = "", right[TEXT_MAX + 4] = "";
    expr_text(s->env->exprs, s->e, text);
    if (a) num_text(a, left);
    if (b) num_text(b, right);
    if (a && b)
        return ds_error_set(s->err, code, s->loc, "%s in `%s` (the sides are %s and %s)", what,
                            text, left, right);
    if (a) return ds_error_set(s->err, code, s->loc, "%s in `%s` (of %s)", what, text, left);
    return ds_error_set(s->err, code, s->loc, "%s in `%s`", what, text);
}

/* ---- one node ---- */

static ds_status eval_index(const step *s, ds_num *out) {
    for (const ds_index *index = s->env->indices; index; index = index->up) {
        if (index->name != s->node->name) continue;
        *out = int_num(index->value);
        return DS_OK;
    }
    for (uint32_t k = 0; k < s->env->n_named; k++) {
        if (s->env->named[k].name != s->node->name) continue;
        *out = s->env->named[k].value;
        return DS_OK;
    }
    if (s->node->kind == DS_EXPR_AXIS_INDEX)
        return ds_error_set(s->err, DS_ERR_NAME, s->loc,
                            "axis_index(%s) has no value here: it is known only inside a local "
                            "region over '%s'",
                            s->node->name, s->node->name);
    return ds_error_set(s->err, DS_ERR_NAME, s->loc,
                        "unknown name '%s': neither a param nor an index "
                        "in scope here",
                        s->node->name);
}

static ds_status eval_leaf(const step *s, ds_num *out) {
    const ds_expr_node *node = s->node;
    switch (node->kind) {
    case DS_EXPR_INT:
        *out = int_num(node->i);
        return DS_OK;
    case DS_EXPR_REAL:
        *out = real_num(node->r);
        return DS_OK;
    case DS_EXPR_STR:
        *out = (ds_num){.kind = DS_NUM_STR, .s = node->name};
        return DS_OK;
    case DS_EXPR_BOOL:
        *out = ds_num_bool(node->i != 0);
        return DS_OK;
    case DS_EXPR_PARAM: {
        const ds_num *module = s->env->params ? s->env->params[node->i >> 32] : NULL;
        if (!module)
            return ds_error_set(s->err, DS_ERR_NAME, s->loc, "param '%s' has no value yet here",
                                node->name);
        *out = module[node->i & 0xffffffff];
        return DS_OK;
    }
    default:
        return eval_index(s, out);
    }
}

static ds_status eval_int_pair(const step *s, const ds_num *x, const ds_num *y, ds_num *out) {
    int64_t a = x->i, b = y->i, r = 0;
    bool overflow = false;
    ds_expr_kind kind = s->node->kind;
    if (kind == DS_EXPR_DIV || kind == DS_EXPR_MOD || kind == DS_EXPR_CEILDIV) {
        if (b == 0) return fail(s, DS_ERR_VALUE, "division by zero", x, y);
        overflow = a == INT64_MIN && b == -1 && kind != DS_EXPR_MOD;
        if (b == -1 && kind == DS_EXPR_MOD) a = 0; /* INT64_MIN % -1 would trap */
    }
    if (!overflow) switch (kind) {
        case DS_EXPR_ADD:
            overflow = __builtin_add_overflow(a, b, &r);
            break;
        case DS_EXPR_SUB:
            overflow = __builtin_sub_overflow(a, b, &r);
            break;
        case DS_EXPR_MUL:
            overflow = __builtin_mul_overflow(a, b, &r);
            break;
        case DS_EXPR_DIV:
            r = ds_floordiv(a, b);
            break;
        case DS_EXPR_MOD:
            r = ds_floormod(a, b);
            break;
        case DS_EXPR_CEILDIV:
            r = ds_floordiv(a, b) + (ds_floormod(a, b) != 0);
            break;
        case DS_EXPR_MIN:
            r = a < b ? a : b;
            break;
        case DS_EXPR_MAX:
            r = a > b ? a : b;
            break;
        default:
            break;
        }
    if (overflow) return fail(s, DS_ERR_OVERFLOW, "the value leaves 64 bits", x, y);
    *out = int_num(r);
    return DS_OK;
}

static ds_status eval_real_pair(const step *s, const ds_num *x, const ds_num *y, ds_num *out) {
    double a = as_real(x), b = as_real(y), r = 0;
    ds_expr_kind kind = s->node->kind;
    if (kind == DS_EXPR_CEILDIV) return fail(s, DS_ERR_TYPE, "ceildiv takes integers", x, y);
    if ((kind == DS_EXPR_DIV || kind == DS_EXPR_MOD) && b == 0)
        return fail(s, DS_ERR_VALUE, "division by zero", x, y);
    switch (kind) {
    case DS_EXPR_ADD:
        r = a + b;
        break;
    case DS_EXPR_SUB:
        r = a - b;
        break;
    case DS_EXPR_MUL:
        r = a * b;
        break;
    case DS_EXPR_DIV:
        r = a / b;
        break;
    case DS_EXPR_MOD:
        r = a - b * floor(a / b);
        break;
    case DS_EXPR_MIN:
        r = a < b ? a : b;
        break;
    case DS_EXPR_MAX:
        r = a > b ? a : b;
        break;
    default:
        break;
    }
    if (!isfinite(r)) return fail(s, DS_ERR_OVERFLOW, "the value is not finite", x, y);
    *out = real_num(r);
    return DS_OK;
}

static int compare_numbers(const ds_num *x, const ds_num *y) {
    if (x->kind == DS_NUM_INT && y->kind == DS_NUM_INT) return (x->i > y->i) - (x->i < y->i);
    if (x->kind == DS_NUM_STR) return strcmp(x->s, y->s);
    double a = as_real(x), b = as_real(y);
    return (a > b) - (a < b);
}

static ds_status eval_comparison(const step *s, const ds_num *x, const ds_num *y, ds_num *out) {
    ds_expr_kind kind = s->node->kind;
    bool strings = x->kind == DS_NUM_STR, ordered = kind != DS_EXPR_EQ && kind != DS_EXPR_NE;
    if (strings != (y->kind == DS_NUM_STR))
        return fail(s, DS_ERR_TYPE, "a number is compared with a string", x, y);
    if (strings && ordered) return fail(s, DS_ERR_TYPE, "strings have no order", x, y);
    int c = compare_numbers(x, y);
    bool holds = false;
    switch (kind) {
    case DS_EXPR_EQ:
        holds = c == 0;
        break;
    case DS_EXPR_NE:
        holds = c != 0;
        break;
    case DS_EXPR_LT:
        holds = c < 0;
        break;
    case DS_EXPR_LE:
        holds = c <= 0;
        break;
    case DS_EXPR_GT:
        holds = c > 0;
        break;
    default:
        holds = c >= 0;
        break;
    }
    *out = int_num(holds);
    return DS_OK;
}

static ds_status eval_unary(const step *s, const ds_num *x, ds_num *out) {
    if (s->node->kind == DS_EXPR_NOT) {
        if (x->kind != DS_NUM_INT) return fail(s, DS_ERR_TYPE, "`not` takes an integer", x, NULL);
        *out = int_num(!x->i);
        return DS_OK;
    }
    if (x->kind == DS_NUM_STR) return fail(s, DS_ERR_TYPE, "a string is used as a number", x, NULL);
    if (x->kind == DS_NUM_INT && x->i == INT64_MIN)
        return fail(s, DS_ERR_OVERFLOW, "the value leaves 64 bits", x, NULL);
    *out = x->kind == DS_NUM_INT ? int_num(-x->i) : real_num(-x->r);
    return DS_OK;
}

static ds_status eval_logic(const step *s, const ds_num *x, const ds_num *y, ds_num *out) {
    if (x->kind != DS_NUM_INT || y->kind != DS_NUM_INT)
        return fail(s, DS_ERR_TYPE, "`and` and `or` take integers", x, y);
    *out = int_num(s->node->kind == DS_EXPR_AND ? x->i && y->i : x->i || y->i);
    return DS_OK;
}

static ds_status eval_node(const step *s, const ds_num *x, const ds_num *y, ds_num *out) {
    switch (s->node->kind) {
    case DS_EXPR_NEG:
    case DS_EXPR_NOT:
        return eval_unary(s, x, out);
    case DS_EXPR_AND:
    case DS_EXPR_OR:
        return eval_logic(s, x, y, out);
    case DS_EXPR_EQ:
    case DS_EXPR_NE:
    case DS_EXPR_LT:
    case DS_EXPR_LE:
    case DS_EXPR_GT:
    case DS_EXPR_GE:
        return eval_comparison(s, x, y, out);
    default:
        break;
    }
    if (!x) return eval_leaf(s, out);
    if (x->kind == DS_NUM_STR || y->kind == DS_NUM_STR)
        return fail(s, DS_ERR_TYPE, "a string is used as a number", x, y);
    if (x->kind == DS_NUM_INT && y->kind == DS_NUM_INT) return eval_int_pair(s, x, y, out);
    return eval_real_pair(s, x, y, out);
}

/* ---- all nodes ---- */

/* Does the left side alone decide an `and` or `or`? */
static bool decided(ds_expr_kind kind, const ds_num *left) {
    if (left->kind != DS_NUM_INT) return false;
    return (kind == DS_EXPR_AND && !left->i) || (kind == DS_EXPR_OR && left->i);
}

static ds_status eval_cell(const ds_expr_walk *walk, cell *cells, uint32_t k, step *s) {
    s->e = (ds_expr){walk->ids[k]};
    s->node = ds_expr_at(s->env->exprs, s->e);
    const cell *a = DS_HAS_EXPR(s->node->a) ? &cells[ds_expr__walk_find(walk, s->node->a)] : NULL;
    const cell *b = DS_HAS_EXPR(s->node->b) ? &cells[ds_expr__walk_find(walk, s->node->b)] : NULL;
    cells[k].bad = 0;
    if (a && !a->bad && decided(s->node->kind, &a->value)) {
        cells[k].value = int_num(s->node->kind == DS_EXPR_OR);
        return DS_OK;
    }
    if (a && a->bad)
        cells[k].bad = a->bad;
    else if (b && b->bad)
        cells[k].bad = b->bad;
    if (cells[k].bad) return DS_OK;
    ds_status status = eval_node(s, a ? &a->value : NULL, b ? &b->value : NULL, &cells[k].value);
    if (status != DS_OK) cells[k].bad = walk->ids[k];
    return status;
}

static ds_status eval_walk(const ds_expr_walk *walk, cell *cells, step *s, ds_num *out) {
    ds_error *err = s->err;
    s->err = NULL;
    for (uint32_t k = walk->n; k-- > 0;) (void)eval_cell(walk, cells, k, s);
    if (!cells[0].bad) {
        *out = cells[0].value;
        return DS_OK;
    }
    s->err = err;
    return eval_cell(walk, cells, ds_expr__walk_find(walk, (ds_expr){cells[0].bad}), s);
}

enum { SMALL = 8 }; /* nodes of a tree that costs less than a walk, most ranges and reads */

/* Evaluates sums and products of integers; false for all else, errors too. */
static bool eval_sum(const step *s, ds_expr e, int64_t *out) {
    step leaf = {s->env, e, ds_expr_at(s->env->exprs, e), s->loc, NULL};
    ds_expr_kind kind = leaf.node->kind;
    ds_num value;
    int64_t a, b;
    if (!DS_HAS_EXPR(leaf.node->a)) {
        bool is_int = eval_leaf(&leaf, &value) == DS_OK && value.kind == DS_NUM_INT;
        *out = is_int ? value.i : 0;
        return is_int && !value.is_bool;
    }
    if (kind != DS_EXPR_ADD && kind != DS_EXPR_SUB && kind != DS_EXPR_MUL) return false;
    if (!eval_sum(s, leaf.node->a, &a) || !eval_sum(s, leaf.node->b, &b)) return false;
    if (kind == DS_EXPR_ADD) return !__builtin_add_overflow(a, b, out);
    if (kind == DS_EXPR_SUB) return !__builtin_sub_overflow(a, b, out);
    return !__builtin_mul_overflow(a, b, out);
}

ds_status ds_expr_eval(const ds_env *env, ds_expr e, ds_loc loc, ds_num *out, ds_error *err) {
    step s = {env, e, ds_expr_at(env->exprs, e), loc, err};
    if (!DS_HAS_EXPR(e))
        return ds_error_set(err, DS_ERR_INTERNAL, loc, "a missing expression is evaluated");
    if (!DS_HAS_EXPR(s.node->a)) return eval_leaf(&s, out);
    int64_t sum;
    if (s.node->size <= SMALL && eval_sum(&s, e, &sum)) {
        *out = int_num(sum);
        return DS_OK;
    }
    ds_expr_walk walk;
    ds_expr__walk_init(&walk, env->exprs, e);
    cell local[DS_WALK_LOCAL];
    cell *cells = walk.n <= DS_WALK_LOCAL ? local : ds_xcalloc(walk.n, sizeof *cells);
    ds_status status = eval_walk(&walk, cells, &s, out);
    if (cells != local) free(cells);
    ds_expr__walk_deinit(&walk);
    return status;
}

/* ---- typed results ---- */

static ds_status wrong_kind(const ds_env *env, ds_expr e, ds_loc loc, const ds_num *value,
                            const char *wanted, ds_error *err) {
    if (!err) return DS_ERR_TYPE;
    char text[TEXT_MAX + 4], number[TEXT_MAX + 4];
    expr_text(env->exprs, e, text);
    num_text(value, number);
    if (value->kind == DS_NUM_REAL && fabs(value->r) < 0x1p53 && value->r == floor(value->r))
        return ds_error_set(err, DS_ERR_TYPE, loc,
                            "%s is needed here, and `%s` is a real number; write %lld", wanted,
                            text, (long long)value->r);
    if (strcmp(text, number) == 0)
        return ds_error_set(err, DS_ERR_TYPE, loc, "%s is needed here, not %s", wanted, number);
    return ds_error_set(err, DS_ERR_TYPE, loc, "%s is needed here, and `%s` is %s", wanted, text,
                        number);
}

ds_status ds_expr_eval_int(const ds_env *env, ds_expr e, ds_loc loc, int64_t *out, ds_error *err) {
    if (ds_expr_is_int(env->exprs, e, out)) return DS_OK;
    ds_num value;
    DS_TRY(ds_expr_eval(env, e, loc, &value, err));
    if (value.kind != DS_NUM_INT || value.is_bool)
        return wrong_kind(env, e, loc, &value, "an integer", err);
    *out = value.i;
    return DS_OK;
}

ds_status ds_expr_eval_real(const ds_env *env, ds_expr e, ds_loc loc, double *out, ds_error *err) {
    ds_num value;
    DS_TRY(ds_expr_eval(env, e, loc, &value, err));
    if (value.kind == DS_NUM_STR || value.is_bool)
        return wrong_kind(env, e, loc, &value, "a number", err);
    *out = as_real(&value);
    return DS_OK;
}
