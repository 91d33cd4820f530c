/* Matrix products and einsum.
 *
 * Every operand dim is a row-major product of factors, so an element's address is a sum of index
 * times stride over factors (a factor that occurs twice in an operand has the sum of both strides:
 * its diagonal). Two operands are packed as [batch, m, k] and [batch, k, n] and given to CBLAS; any
 * other number of operands is summed point by point. */
#include "ir/exec/internal.h"

#include <gsl/gsl_cblas.h>

#include <limits.h>

typedef struct space {
    ds_rule rule;
    int64_t size[DS_MAX_FACTORS];                                     /* on this device */
    int64_t in[DS_MAX_OPERANDS][DS_MAX_FACTORS], out[DS_MAX_FACTORS]; /* strides; 0: absent */
    bool has[DS_MAX_OPERANDS + 1][DS_MAX_FACTORS];                    /* the result last */
} space;

static ds_status rule_of(const ds_eval *e, ds_rule *rule, ds_error *err) {
    ds_type types[DS_MAX_OPERANDS] = {0};
    ds_dim dims[DS_MAX_RANK] = {0}; /* the rules of these ops ask for ranks only */
    const ds_type *in[DS_MAX_OPERANDS];
    for (uint32_t i = 0; i < e->op->n_in; i++) {
        types[i] = (ds_type){.dtype = e->in_dtype[i], .rank = e->in[i]->t.rank, .dims = dims};
        in[i] = &types[i];
    }
    ds_infer infer = {
        .unit = e->run->binding->unit, .func = e->func, .op = e->op, .in = in, .env = e->env};
    return ds_op_rule(&infer, rule, err);
}

/* Sizes of factors from the dims that hold them: alone first, then the one left open in a product.
 */
static bool find_sizes(space *s, const ds_eval *e) {
    for (uint32_t f = 0; f < s->rule.n_factors; f++) s->size[f] = -1;
    for (uint32_t round = 0; round <= s->rule.n_factors; round++)
        for (uint32_t i = 0; i < e->op->n_in; i++)
            for (uint32_t d = 0; d < s->rule.in[i].n; d++) {
                const ds_rule_dim *dim = &s->rule.in[i].dims[d];
                int64_t known = 1;
                uint32_t open = DS_MAX_FACTORS, n_open = 0;
                for (uint32_t k = 0; k < dim->n; k++) {
                    uint32_t f = dim->factors[k];
                    if (s->size[f] >= 0)
                        known *= s->size[f];
                    else
                        open = f, n_open++;
                }
                if (n_open == 1 && known) s->size[open] = e->in[i]->t.dims[d] / known;
            }
    for (uint32_t f = 0; f < s->rule.n_factors; f++)
        if (s->size[f] < 0) return false;
    return true;
}

/* Strides of a tensor's factors; false if its dims are not the products of their factors. */
static bool find_strides(const space *s, const ds_rule_term *term, const ds_tensor *t,
                         int64_t *stride, bool *has) {
    int64_t step = 1;
    if (term->n != t->rank) return false;
    for (uint32_t d = term->n; d-- > 0;) {
        const ds_rule_dim *dim = &term->dims[d];
        int64_t size = 1;
        for (uint32_t k = dim->n; k-- > 0;) {
            uint32_t f = dim->factors[k];
            stride[f] += step * size;
            has[f] = true;
            size *= s->size[f];
        }
        if (size != t->dims[d]) return false;
        step *= size;
    }
    return true;
}

static ds_status space_of(const ds_eval *e, space *s, ds_error *err) {
    uint32_t n_in = e->op->n_in;
    DS_TRY(rule_of(e, &s->rule, err));
    bool ok = find_sizes(s, e);
    for (uint32_t i = 0; i < n_in && ok; i++)
        ok = find_strides(s, &s->rule.in[i], &e->in[i]->t, s->in[i], s->has[i]);
    ok = ok && find_strides(s, &s->rule.out[0], &e->out[0]->t, s->out, s->has[DS_MAX_OPERANDS]);
    if (ok) return DS_OK;
    ds_buf text = {0};
    ds_rule_print(&s->rule, &text);
    ds_eval_fail(e, err, DS_ERR_SHAPE, "the shards' shapes do not fit the rule \"%s\"", text.text);
    ds_buf_deinit(&text);
    return DS_ERR_SHAPE;
}

/* Copies a strided tensor over the listed factors, the last one fastest, into packed order, or adds
 * packed elements to strided ones. */
static void copy_strided(const space *s, const uint32_t *factors, uint32_t n, const int64_t *stride,
                         double *strided, double *packed, bool pack) {
    int64_t at[DS_MAX_FACTORS] = {0}, offset = 0;
    for (uint32_t i = 0; i < n; i++)
        if (s->size[factors[i]] == 0) return;
    for (int64_t p = 0;; p++) {
        if (pack)
            packed[p] = strided[offset];
        else
            strided[offset] += packed[p];
        uint32_t i = n;
        while (i > 0) {
            uint32_t f = factors[i - 1];
            offset += stride[f];
            if (++at[i - 1] < s->size[f]) break;
            offset -= stride[f] * s->size[f];
            at[--i] = 0;
        }
        if (i == 0) return;
    }
}

/* ---- two operands ---- */

enum { BATCH, ROW, COLUMN, SUM, N_ROLES };

typedef struct product {
    uint32_t factors[N_ROLES][DS_MAX_FACTORS], n[N_ROLES];
    int64_t size[N_ROLES];
} product;

/* False where a factor is in one operand only and summed (a plain sum), which is not a product. */
static bool roles_of(const space *s, product *p) {
    *p = (product){.size = {1, 1, 1, 1}};
    for (uint32_t f = 0; f < s->rule.n_factors; f++) {
        bool a = s->has[0][f], b = s->has[1][f], out = s->has[DS_MAX_OPERANDS][f];
        if (!out && !(a && b)) return false;
        int role = !out ? SUM : a && b ? BATCH : a ? ROW : COLUMN;
        p->factors[role][p->n[role]++] = f;
        p->size[role] *= s->size[f];
    }
    return p->size[ROW] <= INT_MAX && p->size[COLUMN] <= INT_MAX && p->size[SUM] <= INT_MAX;
}

static uint32_t joined(const product *p, int x, int y, uint32_t out[DS_MAX_FACTORS]) {
    uint32_t n = 0;
    int roles[3] = {BATCH, x, y};
    for (int r = 0; r < 3; r++)
        for (uint32_t i = 0; i < p->n[roles[r]]; i++) out[n++] = p->factors[roles[r]][i];
    return n;
}

/* A packed copy of operand i: [batch, row, sum] of the first, [batch, sum, column] of the second.
 */
static ds_status packed(const ds_eval *e, const space *s, const product *p, uint32_t i,
                        ds_tensor *out, ds_error *err) {
    uint32_t factors[DS_MAX_FACTORS];
    int x = i ? SUM : ROW, y = i ? COLUMN : SUM;
    int64_t dims[3] = {p->size[BATCH], p->size[x], p->size[y]};
    DS_TRY(ds_tensor_new(&e->run->memory, 3, dims, e->op->loc, out, err));
    copy_strided(s, factors, joined(p, x, y, factors), s->in[i], e->in[i]->t.at, out->at, true);
    return DS_OK;
}

static void multiply(const product *p, const ds_tensor *a, const ds_tensor *b, ds_tensor *c) {
    int64_t m = p->size[ROW], n = p->size[COLUMN], k = p->size[SUM];
    if (!m || !n || !k) return;
    for (int64_t i = 0; i < p->size[BATCH]; i++)
        cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)m, (int)n, (int)k, 1.0,
                    a->at + i * m * k, (int)k, b->at + i * k * n, (int)n, 0.0, c->at + i * m * n,
                    (int)n);
}

static ds_status two_operands(const ds_eval *e, const space *s, const product *p, ds_error *err) {
    ds_tensor a = {0}, b = {0}, c = {0};
    uint32_t factors[DS_MAX_FACTORS];
    int64_t dims[3] = {p->size[BATCH], p->size[ROW], p->size[COLUMN]};
    ds_status status = packed(e, s, p, 0, &a, err);
    if (status == DS_OK) status = packed(e, s, p, 1, &b, err);
    if (status == DS_OK) status = ds_tensor_new(&e->run->memory, 3, dims, e->op->loc, &c, err);
    if (status == DS_OK) {
        multiply(p, &a, &b, &c);
        copy_strided(s, factors, joined(p, ROW, COLUMN, factors), s->out, e->out[0]->t.at, c.at,
                     false);
    }
    ds_tensor_drop(&a);
    ds_tensor_drop(&b);
    ds_tensor_drop(&c);
    return status;
}

/* ---- any number ---- */

static void point_by_point(const ds_eval *e, const space *s) {
    int64_t at[DS_MAX_FACTORS] = {0}, offset[DS_MAX_OPERANDS] = {0}, to = 0;
    uint32_t n = s->rule.n_factors, n_in = e->op->n_in;
    for (uint32_t f = 0; f < n; f++)
        if (s->size[f] == 0) return;
    for (;;) {
        double term = 1;
        for (uint32_t i = 0; i < n_in; i++) term *= e->in[i]->t.at[offset[i]];
        e->out[0]->t.at[to] += term;
        uint32_t f = n;
        while (f > 0) {
            f--;
            for (uint32_t i = 0; i < n_in; i++) offset[i] += s->in[i][f];
            to += s->out[f];
            if (++at[f] < s->size[f]) break;
            for (uint32_t i = 0; i < n_in; i++) offset[i] -= s->in[i][f] * s->size[f];
            to -= s->out[f] * s->size[f];
            at[f] = 0;
            if (f == 0) return;
        }
        if (n == 0) return;
    }
}

ds_status ds_exec__eval_einsum(const ds_eval *e, ds_error *err) {
    space s = {0};
    product p;
    DS_TRY(space_of(e, &s, err));
    if (e->op->n_in == 2 && roles_of(&s, &p)) return two_operands(e, &s, &p, err);
    point_by_point(e, &s);
    return DS_OK;
}
