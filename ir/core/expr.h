/* Integer, real, Boolean and string expressions over params and loop indices.
 *
 * Dims, slice bounds, counts and indices are never stored as plain ints: they are nodes of one
 * hash-consed table, kept as written (so that they print as written) and evaluated when the params
 * are bound. Two structurally equal expressions have the same id.
 *
 * Integer arithmetic is exact in int64; overflow is an error. `/` and `%` round toward minus
 * infinity between integers (floordiv, mod); if either side is real, `/` divides reals. */
#ifndef DS_CORE_EXPR_H
#define DS_CORE_EXPR_H

#include "ir/base/error.h"
#include "ir/base/map.h"
#include "ir/base/str.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct ds_expr {
    uint32_t i; /* 0: no expression */
} ds_expr;

#define DS_NO_EXPR     ((ds_expr){0})
#define DS_HAS_EXPR(e) ((e).i != 0)

/* X(kind, text, precedence): binary operators print as `a text b`; higher binds tighter. */
#define DS_EXPR_BINARY_MAP(X)                                                                      \
    X(OR, "or", 1)                                                                                 \
    X(AND, "and", 2)                                                                               \
    X(EQ, "==", 3)                                                                                 \
    X(NE, "!=", 3)                                                                                 \
    X(LT, "<", 3)                                                                                  \
    X(LE, "<=", 3)                                                                                 \
    X(GT, ">", 3)                                                                                  \
    X(GE, ">=", 3)                                                                                 \
    X(ADD, "+", 4)                                                                                 \
    X(SUB, "-", 4)                                                                                 \
    X(MUL, "*", 5)                                                                                 \
    X(DIV, "/", 5)                                                                                 \
    X(MOD, "%", 5)

typedef enum ds_expr_kind {
    DS_EXPR_NONE,
    DS_EXPR_INT,        /* i */
    DS_EXPR_REAL,       /* r; `name` is the literal's text, so 0.1 prints as 0.1 */
    DS_EXPR_STR,        /* name */
    DS_EXPR_BOOL,       /* i: true or false; 1 or 0 where a number is needed */
    DS_EXPR_PARAM,      /* name; i = module id << 32 | index into that module's params */
    DS_EXPR_INDEX,      /* name: a loop index, family binder or topology index, looked up by name */
    DS_EXPR_AXIS_INDEX, /* name: axis_index(cp), the rank's coordinate in a local region */
    DS_EXPR_NEG,        /* a */
    DS_EXPR_NOT,        /* a */
    DS_EXPR_MIN,        /* a, b: min(a, b) */
    DS_EXPR_MAX,        /* a, b */
    DS_EXPR_CEILDIV,    /* a, b: ceildiv(a, b), integers */
#define DS_X(kind, text, prec) DS_EXPR_##kind,
    DS_EXPR_BINARY_MAP(DS_X)
#undef DS_X
} ds_expr_kind;

typedef struct ds_expr_node {
    ds_expr_kind kind;
    ds_expr a, b;
    const char *name; /* interned */
    int64_t i;
    double r;
    uint32_t size; /* nodes when written out as a tree, saturating; set by ds_expr_make */
    bool varies;   /* with an index or an axis_index; likewise */
} ds_expr_node;

/* Sharing lets a few nodes stand for an exponentially long text. What is longer than this prints as
 * "..."; whoever reads or infers expressions refuses them with DS_ERR_LIMIT. */
#define DS_EXPR_MAX_SIZE 65536u

typedef struct ds_exprs {
    DS_VEC(ds_expr_node) nodes; /* heap; nodes.at[0] is the "none" node */
    ds_map index;               /* structural hash → first id; collisions chain through `next` */
    DS_VEC(uint32_t) next;
} ds_exprs;

void ds_exprs_init(ds_exprs *exprs);
void ds_exprs_deinit(ds_exprs *exprs);

/* The id of a node, made if it is new. Minus an integer literal is the negative literal, so that
 * `-1` has one form. Expected O(1). */
ds_expr ds_expr_make(ds_exprs *exprs, ds_expr_node node);
/* Forgets the nodes that were made since there were n of them. O(nodes forgotten). */
void ds_exprs_cut(ds_exprs *exprs, uint32_t n);
ds_expr ds_expr_int(ds_exprs *exprs, int64_t value);
ds_expr ds_expr_str(ds_exprs *exprs, const char *interned_text);
ds_expr ds_expr_index(ds_exprs *exprs, const char *interned_name);
ds_expr ds_expr_binary(ds_exprs *exprs, ds_expr_kind kind, ds_expr a, ds_expr b);
const ds_expr_node *ds_expr_at(const ds_exprs *exprs, ds_expr e);

/* a op b with integer constants folded and what cancels removed (x*1, x+0, x/1, x+x = 2*x, x+1-1,
 * x*y/y, x-(x-y) …): what inference uses to build dims, so that inferred types print shortly. Takes
 * unary kinds too (b = DS_NO_EXPR). Divisors are taken to be nonzero, as dims are. O(1). */
ds_expr ds_expr_fold(ds_exprs *exprs, ds_expr_kind kind, ds_expr a, ds_expr b);

/* Replaces the index `name` by `by` everywhere in e, folding constants. O(size of e). */
ds_expr ds_expr_subst(ds_exprs *exprs, ds_expr e, const char *name, ds_expr by);
/* Does the index `name` (any index or axis_index if name is NULL) occur in e? */
bool ds_expr_mentions(const ds_exprs *exprs, ds_expr e, const char *name);
/* Are all params in e those of the module with this id? O(size of e). */
bool ds_expr_is_of(const ds_exprs *exprs, ds_expr e, uint32_t module);
/* Is e a literal integer? Then *value is set. */
bool ds_expr_is_int(const ds_exprs *exprs, ds_expr e, int64_t *value);

/* Symbolic comparison by polynomial normal form over params, indices and opaque quotients, minima,
 * maxima and comparisons. YES: equal wherever both have an integer value; NO: equal nowhere;
 * UNKNOWN: decided when the params are bound, or beyond the size that this function cares for. */
typedef enum ds_tri { DS_NO, DS_YES, DS_UNKNOWN } ds_tri;
ds_tri ds_expr_equal(const ds_exprs *exprs, ds_expr a, ds_expr b);

/* A bound value. true and false are the integers 1 and 0 to operators, and no integers where one is
 * asked for. */
typedef enum ds_num_kind { DS_NUM_INT, DS_NUM_REAL, DS_NUM_STR } ds_num_kind;
typedef struct ds_num {
    ds_num_kind kind;
    bool is_bool; /* of kind INT: true or false */
    int64_t i;
    double r;
    const char *s; /* interned */
} ds_num;

static inline ds_num ds_num_bool(bool value) {
    return (ds_num){.kind = DS_NUM_INT, .is_bool = true, .i = value};
}
/* The Boolean of a text: true, false, on or off. */
bool ds_num_parse_bool(const char *text, bool *out);

/* The indices in scope, innermost first. */
typedef struct ds_index {
    const char *name; /* interned */
    int64_t value;
    const struct ds_index *up;
} ds_index;

/* A name with a value of any kind: those of a sweep. */
typedef struct ds_named {
    const char *name; /* interned */
    ds_num value;
} ds_named;

/* What evaluation looks at: the params' values by module id, the indices in scope, and names that
 * are looked up as indices are where no index has the name. An unbound param or index is
 * DS_ERR_NAME. `loc` is where errors point. */
typedef struct ds_env {
    const ds_exprs *exprs;
    const ds_num *const *params; /* params[module id][param index] */
    const ds_index *indices;
    const ds_named *named;
    uint32_t n_named;
} ds_env;

/* `and`, `or` look at the right side only where the left one leaves it open. O(distinct nodes). */
ds_status ds_expr_eval(const ds_env *env, ds_expr e, ds_loc loc, ds_num *out, ds_error *err);
/* The same, and the value must be an integer (a real is an error, never rounded). */
ds_status ds_expr_eval_int(const ds_env *env, ds_expr e, ds_loc loc, int64_t *out, ds_error *err);
/* An integer or a real, as a double. */
ds_status ds_expr_eval_real(const ds_env *env, ds_expr e, ds_loc loc, double *out, ds_error *err);

/* Prints with the fewest parentheses that parse back to the same tree. */
void ds_expr_print(const ds_exprs *exprs, ds_expr e, ds_buf *out);

#endif
