/* Printing with the fewest parentheses that parse back to the same tree.
 *
 * Binary operators associate to the left, comparisons not at all. Operands of `not` and `-` are
 * parenthesised unless they are atoms, and `not` inside arithmetic is too, so the text reads the
 * same whether `not` is thought to bind as in C or as in Python. `-(-x)` keeps its parentheses:
 * `--` is a token. A stack of its own replaces recursion. */
#include "ir/core/expr.h"

#include "ir/base/arena.h"
#include "ir/core/expr_walk.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Twice the precedence of DS_EXPR_BINARY_MAP, which leaves room between AND and the comparisons. */
enum { PREC_NOT = 5, PREC_COMPARE = 6, PREC_UNARY = 12, PREC_ATOM = 14 };

/* Still to be printed: text, or an expression that must bind at least as tightly as `min`. */
typedef struct job {
    const char *text;
    ds_expr e;
    int min;
} job;

typedef DS_VEC(job) jobs;

static void later(jobs *todo, const char *text) {
    DS_HPUSH(todo, ((job){.text = text}));
}

static void later_expr(jobs *todo, ds_expr e, int min) {
    DS_HPUSH(todo, ((job){.e = e, .min = min}));
}

static int precedence(const ds_expr_node *node) {
    switch (node->kind) {
#define DS_X(name, text, prec)                                                                     \
    case DS_EXPR_##name:                                                                           \
        return 2 * (prec);
        DS_EXPR_BINARY_MAP(DS_X)
#undef DS_X
    case DS_EXPR_NEG:
        return PREC_UNARY;
    case DS_EXPR_NOT:
        return PREC_NOT;
    case DS_EXPR_INT:
        return node->i < 0 ? PREC_UNARY : PREC_ATOM;
    case DS_EXPR_REAL:
        return !node->name && signbit(node->r) ? PREC_UNARY : PREC_ATOM;
    default:
        return PREC_ATOM;
    }
}

/* The shortest decimal that reads back as r, and always as a real. */
static void print_real(double r, ds_buf *out) {
    char text[40];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, r);
        if (strtod(text, NULL) == r) break;
    }
    ds_buf_put(out, text);
    if (!strpbrk(text, ".en")) ds_buf_put(out, ".0");
}

/* Jobs are pushed last to first. */
static void print_function(jobs *todo, const char *name, const ds_expr_node *node, ds_buf *out) {
    ds_buf_put(out, name);
    later(todo, ")");
    later_expr(todo, node->b, 0);
    later(todo, ", ");
    later_expr(todo, node->a, 0);
    later(todo, "(");
}

static void print_binary(jobs *todo, const ds_expr_node *node) {
    int prec = precedence(node);
    later_expr(todo, node->b, prec + 1);
    later(todo, " ");
    later(todo, ds_expr__operator(node->kind));
    later(todo, " ");
    later_expr(todo, node->a, prec == PREC_COMPARE ? prec + 1 : prec);
}

static void print_node(const ds_exprs *exprs, jobs *todo, const ds_expr_node *node, ds_buf *out) {
    switch (node->kind) {
    case DS_EXPR_NONE:
        return;
    case DS_EXPR_INT:
        ds_buf_printf(out, "%" PRId64, node->i);
        return;
    case DS_EXPR_REAL:
        if (node->name)
            ds_buf_put(out, node->name);
        else
            print_real(node->r, out);
        return;
    case DS_EXPR_STR:
        ds_buf_put_quoted(out, node->name);
        return;
    case DS_EXPR_BOOL:
        ds_buf_put(out, node->i ? "true" : "false");
        return;
    case DS_EXPR_PARAM:
    case DS_EXPR_INDEX:
        ds_buf_put(out, node->name);
        return;
    case DS_EXPR_AXIS_INDEX:
        ds_buf_printf(out, "axis_index(%s)", node->name);
        return;
    case DS_EXPR_NEG:
        ds_buf_putc(out, '-');
        later_expr(todo, node->a, PREC_ATOM);
        return;
    case DS_EXPR_NOT: {
        bool twice = ds_expr_at(exprs, node->a)->kind == DS_EXPR_NOT;
        ds_buf_put(out, "not ");
        later_expr(todo, node->a, twice ? PREC_NOT : PREC_ATOM);
        return;
    }
    case DS_EXPR_MIN:
        print_function(todo, "min", node, out);
        return;
    case DS_EXPR_MAX:
        print_function(todo, "max", node, out);
        return;
    case DS_EXPR_CEILDIV:
        print_function(todo, "ceildiv", node, out);
        return;
    default:
        print_binary(todo, node);
    }
}

void ds_expr_print(const ds_exprs *exprs, ds_expr e, ds_buf *out) {
    if (ds_expr_at(exprs, e)->size > DS_EXPR_MAX_SIZE) {
        ds_buf_put(out, "...");
        return;
    }
    jobs todo = {0};
    later_expr(&todo, e, 0);
    while (todo.n) {
        job next = todo.at[--todo.n];
        if (next.text) {
            ds_buf_put(out, next.text);
            continue;
        }
        const ds_expr_node *node = ds_expr_at(exprs, next.e);
        bool parens = precedence(node) < next.min;
        if (parens) {
            ds_buf_putc(out, '(');
            later(&todo, ")");
        }
        print_node(exprs, &todo, node, out);
    }
    free(todo.at);
}
