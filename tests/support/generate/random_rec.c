/* The generator and the recursion. */
#include "tests/support/generate/random_rec.h"

#include "ir/base/arena.h"
#include "ir/base/rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_EQUATIONS 8
#define MAX_DIMS      3
#define MAX_POINTS    216
#define OUTER         MAX_EQUATIONS /* the family %b{i: 0..6} that comes from outside */

/* An index: a constant c, d + c, max(d + c, 0), min(d + c, n - 1), n the dim's bound. */
typedef enum form { CONSTANT, SHIFTED, AT_LEAST, AT_MOST } form;
typedef struct index_of {
    form form;
    int dim, c;
} index_of;

/* [lo, hi): 0:d, 0:d+1, 0:n, d:n, d+1:n, max(d-1,0):d+1, d:min(d+2,n) */
enum { N_RANGES = 7 };

typedef struct reading {
    int from; /* equation, or OUTER */
    index_of at[MAX_DIMS];
    struct span {
        int index, kind, of_dim; /* which index it is; the kind of range; the dim in its bounds */
    } range[2];                  /* of reduce_sum, by index */
    int n_ranges;
    bool bare;
} reading;

/* HELD: a range, halved, as one tensor, which a SUM alone reads; its value here is its sum. */
typedef enum kind { TANH, ADD, SCALE, SUM, CASE, N_KINDS, HELD = N_KINDS } kind;
typedef struct equation {
    kind kind;
    unsigned dims; /* a set */
    bool stated;
    reading a, b;
    int scale_dim; /* of SCALE: the factor is (d - 1) / 4; -1: one half */
    int cond_dim, cond_at;
    bool cond_less; /* CASE: d < at, else d == at */
} equation;

struct random_rec {
    int n_dims, bound[MAX_DIMS], n;
    equation eq[MAX_EQUATIONS];
    double b[RANDOM_REC_INPUTS];
    char names[RANDOM_REC_INPUTS][16];
    ds_exec_tensor inputs[RANDOM_REC_INPUTS];
    double value[MAX_EQUATIONS][MAX_POINTS];
    char state[MAX_EQUATIONS][MAX_POINTS]; /* 0 new, 1 open, 2 known */
    bool cycle, outside;
    ds_buf text;
};
typedef random_rec program;

static const char *const NAMES[MAX_DIMS] = {"i", "t", "l"};

/* ---- making one ---- */

static int below(ds_rng *rng, int n) {
    return (int)ds_rng_below(rng, (uint64_t)n);
}

static int count(unsigned set) {
    return __builtin_popcount(set);
}

static int dim_at(unsigned set, int k) {
    for (int d = 0; d < MAX_DIMS; d++)
        if ((set >> d & 1) && k-- == 0) return d;
    return -1;
}

static index_of random_index(ds_rng *rng, const program *p, unsigned dims, int own) {
    index_of at = {.form = CONSTANT};
    int limit = own < 0 ? 6 : p->bound[own];
    if (!dims || below(rng, 8) == 0) {
        at.c = below(rng, limit + (below(rng, 40) == 0));
        return at;
    }
    at.dim = own >= 0 && (dims >> own & 1) && below(rng, 4) ? own
                                                            : dim_at(dims, below(rng, count(dims)));
    at.form = (form)(SHIFTED + below(rng, 3));
    at.c = at.form == AT_LEAST ? -below(rng, 3) : at.form == AT_MOST ? below(rng, 2) : 0;
    if (at.form == SHIFTED && below(rng, 12) == 0) at.c = below(rng, 3) - 1;
    return at;
}

static bool is_held(const program *p, int e) {
    return e < p->n && p->eq[e].kind == HELD;
}

/* Mostly of an equation before this one, so that most programs have no cycle. */
static reading random_reading(ds_rng *rng, const program *p, int self, unsigned dims, bool sums) {
    int n = below(rng, 12) ? self : p->n;
    reading r = {.from = below(rng, n + 1)};
    if (r.from == n || (is_held(p, r.from) && !sums)) r.from = OUTER;
    unsigned of = r.from == OUTER ? 0 : p->eq[r.from].dims;
    if (r.from == OUTER) {
        r.at[0] = random_index(rng, p, dims, -1);
        return r;
    }
    r.bare = (of & ~dims) == 0 && below(rng, 3) == 0;
    for (int k = 0; k < count(of); k++) r.at[k] = random_index(rng, p, dims, dim_at(of, k));
    return r;
}

static void put_ranges(ds_rng *rng, unsigned dims, unsigned of, equation *e) {
    e->a.bare = false;
    e->a.n_ranges = e->kind == SUM && count(of) > 1 && below(rng, 2) ? 2 : 1;
    for (int i = 0; i < e->a.n_ranges; i++) {
        int index = e->a.n_ranges == 1 ? below(rng, count(of))
                    : i == 0           ? below(rng, count(of) - 1)
                                       : count(of) - 1;
        int how = below(rng, N_RANGES), own = dim_at(of, index);
        int of_dim = dim_at(dims, below(rng, count(dims)));
        if (e->a.from != OUTER && (dims >> own & 1)) of_dim = own;
        e->a.range[i] = (struct span){index, how, of_dim};
    }
}

static equation random_equation(ds_rng *rng, const program *p, int self) {
    unsigned dims = p->eq[self].dims;
    equation e = {.kind = (kind)below(rng, N_KINDS), .dims = dims, .stated = true};
    if (is_held(p, self)) e.kind = HELD;
    e.a = random_reading(rng, p, self, dims, e.kind == SUM);
    e.b = random_reading(rng, p, self, dims, false);
    e.scale_dim = dims && below(rng, 2) ? dim_at(dims, below(rng, count(dims))) : -1;
    if (e.kind == CASE && !dims) e.kind = TANH;
    if (e.kind == CASE) {
        e.cond_dim = dim_at(dims, below(rng, count(dims)));
        e.cond_at = below(rng, 3);
        e.cond_less = below(rng, 2);
        if (below(rng, 2)) { /* what recursion looks like: 0 is the start, else the turn before */
            do e.b.from = below(rng, p->n);
            while (is_held(p, e.b.from));
            unsigned of = p->eq[e.b.from].dims;
            e.cond_at = 0, e.cond_less = false, e.b.bare = false;
            for (int k = 0; k < count(of); k++) {
                int own = dim_at(of, k);
                bool moves = own == e.cond_dim;
                e.b.at[k] = (dims >> own & 1) ? (index_of){SHIFTED, own, moves ? -1 : 0}
                                              : (index_of){CONSTANT, 0, 0};
            }
        }
    }
    unsigned of = e.a.from == OUTER ? 1u : p->eq[e.a.from].dims;
    bool held = is_held(p, e.a.from);
    if (e.kind == SUM && !held && (!dims || !of)) e.kind = ADD;
    if (e.kind == HELD && !of) {
        e.a.from = OUTER;
        e.a.at[0] = (index_of){0};
        of = 1;
    }
    if (held) e.a.bare = e.a.bare && below(rng, 2);
    if ((e.kind == SUM && !held) || e.kind == HELD) put_ranges(rng, dims, of, &e);
    return e;
}

/* ---- dims, by brute force ---- */

/* The range that an index is; NULL: a point. */
static const struct span *range_of(const reading *r, int index) {
    for (int i = 0; i < r->n_ranges; i++)
        if (r->range[i].index == index) return &r->range[i];
    return NULL;
}

static unsigned mentioned(const program *p, const unsigned *dims, const reading *r) {
    unsigned set = 0;
    if (r->bare) return dims[r->from];
    int n = r->from == OUTER ? 1 : count(p->eq[r->from].dims);
    for (int k = 0; k < n; k++) {
        const struct span *range = range_of(r, k);
        if (range) {
            if (range->kind != 2) set |= 1u << range->of_dim;
        } else if (r->at[k].form != CONSTANT) {
            set |= 1u << r->at[k].dim;
        }
    }
    return set;
}

static bool finds_dims(const program *p) {
    unsigned dims[MAX_EQUATIONS] = {0};
    for (int round = 0; round <= MAX_EQUATIONS * MAX_DIMS; round++)
        for (int e = 0; e < p->n; e++) {
            const equation *q = &p->eq[e];
            if (q->stated) dims[e] |= q->dims;
            dims[e] |= mentioned(p, dims, &q->a);
            if (q->kind == ADD || q->kind == CASE) dims[e] |= mentioned(p, dims, &q->b);
            if (q->kind == SCALE && q->scale_dim >= 0) dims[e] |= 1u << q->scale_dim;
            if (q->kind == CASE) dims[e] |= 1u << q->cond_dim;
        }
    for (int e = 0; e < p->n; e++)
        if (dims[e] != p->eq[e].dims) return false;
    return true;
}

static void random_program(ds_rng *rng, program *p) {
    p->n_dims = 1 + below(rng, MAX_DIMS);
    for (int d = 0; d < p->n_dims; d++) p->bound[d] = 1 + below(rng, 6);
    p->n = 2 + below(rng, MAX_EQUATIONS - 1);
    for (int e = 0; e < p->n; e++)
        p->eq[e].dims = (unsigned)below(rng, 1 << p->n_dims) | (unsigned)below(rng, 1 << p->n_dims);
    for (int e = 1; e < p->n; e++)
        if (p->eq[e].dims && below(rng, 6) == 0) p->eq[e].kind = HELD;
    for (int e = 0; e < p->n; e++) p->eq[e] = random_equation(rng, p, e);
    for (int e = 0; e < p->n; e++) {
        p->eq[e].stated = false;
        if (!finds_dims(p)) p->eq[e].stated = true;
    }
    for (int i = 0; i < 6; i++) p->b[i] = 2 * ds_rng_uniform(rng) - 1;
}

/* ---- the text ---- */

static void put_index(ds_buf *out, const program *p, const index_of *at) {
    if (at->form == CONSTANT)
        ds_buf_printf(out, "%d", at->c);
    else if (at->form == SHIFTED)
        ds_buf_printf(out, "%s + %d", NAMES[at->dim], at->c);
    else if (at->form == AT_LEAST)
        ds_buf_printf(out, "max(%s + %d, 0)", NAMES[at->dim], at->c);
    else
        ds_buf_printf(out, "min(%s + %d, %d)", NAMES[at->dim], at->c, p->bound[at->dim] - 1);
}

static void put_range(ds_buf *out, const struct span *range, int n) {
    const char *d = NAMES[range->of_dim];
    switch (range->kind) {
    case 0:
        ds_buf_printf(out, "0:%s", d);
        break;
    case 1:
        ds_buf_printf(out, "0:%s + 1", d);
        break;
    case 2:
        ds_buf_printf(out, "0:%d", n);
        break;
    case 3:
        ds_buf_printf(out, "%s:%d", d, n);
        break;
    case 4:
        ds_buf_printf(out, "%s + 1:%d", d, n);
        break;
    case 5:
        ds_buf_printf(out, "max(%s - 1, 0):%s + 1", d, d);
        break;
    default:
        ds_buf_printf(out, "%s:min(%s + 2, %d)", d, d, n);
    }
}

static int bound_of(const program *p, const reading *r, int k) {
    return r->from == OUTER ? 6 : p->bound[dim_at(p->eq[r->from].dims, k)];
}

static void put_reading(ds_buf *out, const program *p, const reading *r) {
    int n = r->from == OUTER ? 1 : count(p->eq[r->from].dims);
    if (r->from == OUTER)
        ds_buf_put(out, "%b");
    else
        ds_buf_printf(out, "%%e%d", r->from);
    for (int k = 0; k < n && !r->bare; k++) {
        ds_buf_put(out, k ? ", " : "{");
        if (range_of(r, k))
            put_range(out, range_of(r, k), bound_of(p, r, k));
        else
            put_index(out, p, &r->at[k]);
    }
    if (n && !r->bare) ds_buf_put(out, "}");
}

static void put_dims(ds_buf *out, unsigned dims) {
    for (int k = 0; k < count(dims); k++)
        ds_buf_printf(out, "%s%s", k ? ", " : "{", NAMES[dim_at(dims, k)]);
    if (dims) ds_buf_put(out, "}");
}

/* A range lo:hi has hi - lo points. */
static void put_held_type(ds_buf *out, const program *p, const reading *r) {
    ds_buf range = {0};
    put_range(&range, &r->range[0], bound_of(p, r, r->range[0].index));
    char *colon = strchr(range.text, ':');
    ds_buf_printf(out, " : f64[%s - (%.*s), 1]\n", colon + 1, (int)(colon - range.text),
                  range.text);
    ds_buf_deinit(&range);
}

static void put_equation(ds_buf *out, const program *p, int e) {
    const equation *q = &p->eq[e];
    ds_buf_printf(out, "%%e%d", e);
    if (q->stated) put_dims(out, q->dims);
    ds_buf_put(out, " = ");
    if (q->kind == CASE) {
        ds_buf_printf(out, "case %s %s %d: ", NAMES[q->cond_dim],
                      q->cond_less ? "<" : "==", q->cond_at);
        put_reading(out, p, &q->a);
        ds_buf_put(out, ", else: ");
        put_reading(out, p, &q->b);
    } else {
        static const char *const ops[] = {"tanh", "add", "scale", "reduce_sum"};
        ds_buf_printf(out, "%s(", ops[q->kind == HELD ? SCALE : q->kind]);
        put_reading(out, p, &q->a);
        if (q->kind == ADD) ds_buf_put(out, ", ");
        if (q->kind == ADD) put_reading(out, p, &q->b);
        ds_buf_put(out, ")");
        if (q->kind == SUM)
            ds_buf_put(out, q->a.n_ranges == 2 ? " {dims = [0, 1]}" : " {dims = [0]}");
        if (q->kind == SCALE && q->scale_dim >= 0)
            ds_buf_printf(out, " {factor = (%s - 1) * 0.25}", NAMES[q->scale_dim]);
        else if (q->kind == SCALE || q->kind == HELD)
            ds_buf_put(out, " {factor = 0.5}");
    }
    if (q->kind == HELD)
        put_held_type(out, p, &q->a);
    else
        ds_buf_put(out, " : f64[1]\n"); /* types may follow from themselves alone */
}

/* "%r0, %r2": of what is returned, the first equation with it. */
static void put_list(ds_buf *out, const program *p, const char *name) {
    for (int e = 0; e < p->n; e++)
        if (!is_held(p, e)) ds_buf_printf(out, "%s%%%s%d", e ? ", " : "", name, e);
}

static void put_program(ds_buf *out, const program *p, const int *order) {
    ds_buf_put(out, "dir 1\nfunc @f(%b{i: 0..6}: f64[1]) -> (");
    for (int e = 0; e < p->n; e++) {
        if (is_held(p, e)) continue;
        ds_buf_put(out, e ? ", " : "");
        for (int k = 0; k < count(p->eq[e].dims); k++) {
            int d = dim_at(p->eq[e].dims, k);
            ds_buf_printf(out, "%s%s: 0..%d", k ? ", " : "{", NAMES[d], p->bound[d]);
        }
        ds_buf_put(out, p->eq[e].dims ? "} f64[1]" : "f64[1]");
    }
    ds_buf_put(out, ") {\n");
    put_list(out, p, "r");
    ds_buf_put(out, " = rec (");
    for (int d = 0; d < p->n_dims; d++)
        ds_buf_printf(out, "%s%s in 0..%d", d ? ", " : "", NAMES[d], p->bound[d]);
    ds_buf_put(out, ") {\n");
    for (int e = 0; e < p->n; e++) put_equation(out, p, order[e]);
    ds_buf_put(out, "yield ");
    put_list(out, p, "e");
    ds_buf_put(out, "\n}\nreturn ");
    put_list(out, p, "r");
    ds_buf_put(out, "\n}\n");
}

/* ---- the recursion ---- */

static int index_at(const program *p, const index_of *at, const int *point) {
    int x = at->form == CONSTANT ? at->c : point[at->dim] + at->c;
    if (at->form == AT_LEAST && x < 0) x = 0;
    if (at->form == AT_MOST && x > p->bound[at->dim] - 1) x = p->bound[at->dim] - 1;
    return x;
}

static void range_at(const struct span *range, int n, const int *point, int *lo, int *hi) {
    int d = point[range->of_dim];
    const int los[] = {0, 0, 0, d, d + 1, d > 1 ? d - 1 : 0, d};
    const int his[] = {d, d + 1, n, n, n, d + 1, d + 2 < n ? d + 2 : n};
    *lo = los[range->kind];
    *hi = his[range->kind];
}

static double value(program *p, int e, const int *point);

/* The element at the indices `at`, one for each dim of the equation. */
static double element(program *p, int from, const int *at) {
    if (from == OUTER) {
        if (at[0] < 0 || at[0] > 5) p->outside = true;
        return p->outside ? 0 : p->b[at[0]];
    }
    int point[MAX_DIMS] = {0};
    for (int k = 0; k < count(p->eq[from].dims); k++) {
        int d = dim_at(p->eq[from].dims, k);
        point[d] = at[k];
        if (at[k] < 0 || at[k] >= p->bound[d]) p->outside = true;
    }
    return p->outside ? 0 : value(p, from, point);
}

static double read(program *p, const reading *r, const int *point) {
    int at[MAX_DIMS] = {0}, n = r->from == OUTER ? 1 : count(p->eq[r->from].dims);
    int lo[MAX_DIMS], hi[MAX_DIMS];
    double sum = 0;
    for (int k = 0; k < n; k++) {
        const struct span *range = range_of(r, k);
        lo[k] = r->bare ? point[dim_at(p->eq[r->from].dims, k)] : index_at(p, &r->at[k], point);
        hi[k] = lo[k] + 1;
        int limit = bound_of(p, r, k);
        if (range) range_at(range, limit, point, &lo[k], &hi[k]);
        if (lo[k] < 0 || hi[k] > limit || lo[k] > hi[k]) p->outside = true;
    }
    for (int k = 0; k < n; k++) {
        at[k] = lo[k];
        if (lo[k] == hi[k]) return 0;
    }
    for (int k = 0; k >= 0 && !p->outside;) {
        sum += element(p, r->from, at);
        for (k = n - 1; k >= 0 && ++at[k] == hi[k]; k--) at[k] = lo[k];
        if (n == 0) k = -1;
    }
    return sum;
}

static double compute(program *p, const equation *q, const int *point) {
    switch (q->kind) {
    case TANH:
        return tanh(read(p, &q->a, point));
    case ADD: {
        double a = read(p, &q->a, point);
        return a + read(p, &q->b, point);
    }
    case SCALE:
        return read(p, &q->a, point) * (q->scale_dim < 0 ? 0.5 : (point[q->scale_dim] - 1) * 0.25);
    case SUM:
        return read(p, &q->a, point);
    case HELD:
        return 0.5 * read(p, &q->a, point);
    default: {
        int d = point[q->cond_dim];
        bool first = q->cond_less ? d < q->cond_at : d == q->cond_at;
        return read(p, first ? &q->a : &q->b, point);
    }
    }
}

static double value(program *p, int e, const int *point) {
    const equation *q = &p->eq[e];
    int id = 0, own[MAX_DIMS] = {0};
    for (int d = 0; d < MAX_DIMS; d++) {
        own[d] = (q->dims >> d & 1) ? point[d] : 0;
        id = id * 6 + own[d];
    }
    if (p->state[e][id] == 1) p->cycle = true;
    if (p->cycle || p->outside) return 0;
    if (p->state[e][id] == 2) return p->value[e][id];
    p->state[e][id] = 1;
    double v = compute(p, q, own);
    p->state[e][id] = 2;
    return p->value[e][id] = v;
}

bool random_rec_evaluate(random_rec *p) {
    for (int e = 0; e < p->n; e++)
        for (int id = 0; id < MAX_POINTS; id++) {
            int point[MAX_DIMS] = {id / 36, id / 6 % 6, id % 6};
            bool inside = true;
            for (int d = 0; d < MAX_DIMS; d++)
                inside = inside && ((p->eq[e].dims >> d & 1) ? point[d] < p->bound[d] : !point[d]);
            if (inside) value(p, e, point);
            if (p->cycle || p->outside) return false;
        }
    return true;
}

/* ---- the interface ---- */

static void shuffle(ds_rng *rng, int *order, int n) {
    for (int i = 0; i < n; i++) order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int k = below(rng, i + 1), kept = order[i];
        order[i] = order[k];
        order[k] = kept;
    }
}

random_rec *random_rec_new(uint64_t seed) {
    random_rec *p = ds_xcalloc(1, sizeof *p);
    ds_rng rng = {seed};
    int order[MAX_EQUATIONS];
    random_program(&rng, p);
    shuffle(&rng, order, p->n);
    put_program(&p->text, p, order);
    return p;
}

void random_rec_free(random_rec *p) {
    ds_buf_deinit(&p->text);
    free(p);
}

const char *random_rec_text(const random_rec *p) {
    return p->text.text;
}

const ds_exec_tensor *random_rec_inputs(random_rec *p) {
    for (uint32_t i = 0; i < RANDOM_REC_INPUTS; i++) {
        snprintf(p->names[i], sizeof p->names[i], "b{%u}", i);
        p->inputs[i] = (ds_exec_tensor){
            .name = p->names[i], .dtype = DS_F64, .rank = 1, .dims = {1}, .n = 1, .at = &p->b[i]};
    }
    return p->inputs;
}

const char *random_rec_dim(int dim) {
    return NAMES[dim];
}

int random_rec_bound(const random_rec *p, int dim) {
    return dim < p->n_dims ? p->bound[dim] : 0;
}

bool random_rec_has_cycle(const random_rec *p) {
    return p->cycle;
}

double random_rec_value(const random_rec *p, const char *name) {
    int e = 0, at[MAX_DIMS] = {0}, id = 0, k = 0;
    sscanf(name, "r%d{%d,%d,%d}", &e, &at[0], &at[1], &at[2]);
    for (int d = 0; d < MAX_DIMS; d++) id = id * 6 + ((p->eq[e].dims >> d & 1) ? at[k++] : 0);
    return p->value[e][id];
}
