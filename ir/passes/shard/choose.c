/* Which factor of an op takes which mesh axis.
 *
 * An op's rule says which dims belong to one factor; an axis may split one factor, in every dim of
 * that factor. So for each axis one factor, or none, takes the axis. The choice is made in this
 * order:
 *
 *   1. a weight does not move: the factor that the weight's own annotation splits;
 *   2. a result lies as its hint says, if the model has a hint: the factor that the hint splits;
 *   3. else the factor that moves the fewest bytes: of operands to the layouts that the factor
 *      wants, and of partial sums, of operands or results, to whole values.
 *
 * In an op that must not be split over a dim (softmax) no factor takes the dim's axes: the operands
 * are gathered. */
#include "ir/ops/memo.h"
#include "ir/passes/shard/internal.h"

#include <string.h>

typedef struct chooser {
    ds_sharder *s;
    const ds_op *op;
    const ds_use *in; /* NULL: an override decides */
    uint8_t mesh;     /* the mesh of the op */
    uint32_t n_in;
    const ds_type *type[DS_MAX_OPERANDS];
    ds_layout now[DS_MAX_OPERANDS];
    const ds_type *out_type[DS_MAX_OPERANDS]; /* of the old results, with hints */
    ds_layout hint[DS_MAX_OPERANDS];
    uint32_t n_out;
    bool lazy;
    ds_rule rule;
    int64_t size[DS_MAX_FACTORS]; /* 0: unknown */
    /* The answer: axes of each factor, major → minor. */
    uint8_t axes[DS_MAX_FACTORS][DS_SHARD_AXES], n_axes[DS_MAX_FACTORS];
    uint32_t in_shares;          /* bits: factors of the batch, which a lie wants in shares */
    bool shares[DS_MAX_FACTORS]; /* its axis splits the factor by the shares of the mesh */
} chooser;

bool ds_shard__is_lazy(ds_opcode code) {
    const ds_op_desc *desc = ds_op_desc_of(code);
    return desc && (desc->flags & DS_OPF_LAZY);
}

static const ds_rule_term *term_in(const chooser *c, uint32_t i) {
    return &c->rule.in[i < c->rule.n_in ? i : c->rule.n_in - 1];
}

static const ds_rule_term *term_out(const chooser *c, uint32_t i) {
    return &c->rule.out[i < c->rule.n_out ? i : c->rule.n_out - 1];
}

/* The factor that may split a dim; DS_MAX_FACTORS: none. */
static uint32_t outermost(const ds_rule_dim *dim) {
    return dim->any || dim->n == 0 ? DS_MAX_FACTORS : dim->factors[0];
}

/* The dim of a term that a factor splits; -1: none. */
static int dim_of(const ds_rule_term *term, uint32_t f) {
    for (uint32_t d = 0; d < term->n; d++)
        if (outermost(&term->dims[d]) == f) return (int)d;
    return -1;
}

static bool is_inner(const ds_rule_term *term, uint32_t f) {
    for (uint32_t d = 0; d < term->n; d++)
        for (uint32_t k = 1; k < term->dims[d].n; k++)
            if (term->dims[d].factors[k] == f) return true;
    return false;
}

/* ---- sizes of factors ---- */

static void size_of_term(chooser *c, const ds_rule_term *term, const ds_type *type, bool products) {
    for (uint32_t d = 0; d < term->n && d < type->rank; d++) {
        const ds_rule_dim *dim = &term->dims[d];
        int64_t size = ds_shard__size(c->s, type->dims[d].size);
        uint32_t open = DS_MAX_FACTORS, n_open = 0;
        if (dim->any || dim->n == 0 || (dim->n > 1) != products) continue;
        for (uint32_t k = 0; k < dim->n; k++) {
            uint32_t f = dim->factors[k];
            if (!c->size[f]) {
                open = f;
                n_open++;
            } else if (size % c->size[f] == 0) {
                size /= c->size[f];
            }
        }
        if (n_open == 1) c->size[open] = size;
    }
}

/* The groups of batch_norm are a factor without a dim, so the attribute gives the size. */
static void size_of_groups(chooser *c) {
    const ds_attr *groups = ds_attr_find(c->op->attrs, c->op->n_attrs, "groups");
    for (uint32_t f = 0; f < c->rule.n_factors; f++)
        if (strcmp(c->rule.names[f], "u") == 0)
            c->size[f] = groups ? ds_shard__size(c->s, groups->expr) : 1;
}

static void find_sizes(chooser *c) {
    if (c->op->code == DS_OP_BATCH_NORM || c->op->code == DS_OP_BATCH_NORM_GRAD) size_of_groups(c);
    for (int products = 0; products < 2; products++) {
        for (uint32_t i = 0; i < c->n_in; i++) size_of_term(c, term_in(c, i), c->type[i], products);
        for (uint32_t i = 0; i < c->n_out; i++)
            if (c->out_type[i]) size_of_term(c, term_out(c, i), c->out_type[i], products);
    }
}

/* ---- legal splits ---- */

static bool splittable(ds_factor_kind kind) {
    return kind == DS_FACTOR_PAR || kind == DS_FACTOR_SUM || kind == DS_FACTOR_MAX ||
           kind == DS_FACTOR_LOOKUP;
}

/* Does an operand, or a result's hint, say that the axis splits the factor by shares? */
static bool by_shares(const chooser *c, uint32_t f, uint32_t axis) {
    if (!ds_shard__has_shares(c->s, c->mesh, axis)) return false;
    if (c->in_shares >> f & 1) return true;
    for (uint32_t i = 0; c->in && i < c->n_in; i++) {
        int d = dim_of(term_in(c, i), f);
        if (d >= 0 && c->now[i].mesh == c->mesh && c->now[i].n[d] && c->now[i].shares >> d & 1)
            return true;
    }
    for (uint32_t i = 0; i < c->n_out; i++) {
        int d = c->out_type[i] ? dim_of(term_out(c, i), f) : -1;
        if (d >= 0 && c->hint[i].mesh == c->mesh && c->hint[i].n[d] && c->hint[i].shares >> d & 1)
            return true;
    }
    return false;
}

/* Does the axis alone split the factor, a whole dim of an operand? Unequal parts, which ZeRO makes,
 * stay. */
static bool in_parts(const chooser *c, uint32_t f, uint32_t axis) {
    for (uint32_t i = 0; i < c->n_in && c->s->step->strategy.zero_uneven; i++) {
        int d = dim_of(term_in(c, i), f);
        if (d >= 0 && term_in(c, i)->dims[d].n == 1 && c->now[i].n[d] == 1 &&
            c->now[i].axis[d][0] == axis)
            return true;
    }
    return false;
}

static bool is_legal(const chooser *c, uint32_t f, uint32_t axis) {
    if (f >= c->rule.n_factors || !splittable(c->rule.kinds[f]) || c->size[f] == 0) return false;
    for (uint32_t i = 0; i < c->n_in; i++)
        if (is_inner(term_in(c, i), f)) return false;
    for (uint32_t i = 0; i < c->n_out; i++)
        if (is_inner(term_out(c, i), f)) return false;
    if (c->shares[f]) return false; /* shares exclude further axes */
    if (by_shares(c, f, axis))
        return !c->n_axes[f] && c->size[f] % c->s->meshes.at[c->mesh].shares_sum == 0;
    int64_t parts = ds_shard__axis_size(c->s, c->mesh, axis);
    for (uint32_t k = 0; k < c->n_axes[f]; k++)
        parts *= ds_shard__axis_size(c->s, c->mesh, c->axes[f][k]);
    return c->size[f] % parts == 0 || (!c->n_axes[f] && in_parts(c, f, axis));
}

/* ---- prices ---- */

/* Are all operands terms of sums over the axis? (Zeros may have any layout.) */
static bool all_partial(const chooser *c, uint32_t axis) {
    for (uint32_t i = 0; i < c->n_in; i++)
        if (c->s->f.state[c->op->in[i].value.i] != DS_SHARD_ZEROS &&
            !(c->now[i].sum & (1u << axis)))
            return false;
    return true;
}

/* The dim of operand i that factor f splits; −1: none. */
static int wanted_dim(const chooser *c, uint32_t i, uint32_t f) {
    return f == DS_MAX_FACTORS ? -1 : dim_of(term_in(c, i), f);
}

static double operand_cost(const chooser *c, uint32_t i, uint32_t f, uint32_t axis) {
    const ds_layout *now = &c->now[i];
    double n = (double)ds_shard__axis_size(c->s, c->mesh, axis);
    double local = ds_shard__local_bytes(c->s, c->type[i], now);
    int want = wanted_dim(c, i, f);
    if (now->mesh != c->mesh) return local;
    if ((now->sum | now->max) & (1u << axis)) {
        if (c->lazy && want < 0 && all_partial(c, axis)) return 0; /* the sum passes the op */
        return (want >= 0 ? 1 : 2) * (n - 1) / n * local;
    }
    int have = ds_shard__dim_of(now, axis);
    if (have == want) return 0;
    if (have < 0) return 0; /* every device cuts out its part */
    return want < 0 ? (n - 1) * local : (n - 1) / n * local;
}

static double result_cost(const chooser *c, uint32_t i, uint32_t f, uint32_t axis) {
    if (f == DS_MAX_FACTORS || !c->out_type[i] || dim_of(term_out(c, i), f) >= 0) return 0;
    if (ds_map_find(&c->s->f.gradients, c->op->out[i].i)) return 0; /* summed once in any case */
    double n = (double)ds_shard__axis_size(c->s, c->mesh, axis), bytes;
    bytes = ds_shard__bytes(c->s, c->out_type[i]);
    const ds_rule_term *term = term_out(c, i);
    for (uint32_t d = 0; d < term->n; d++) {
        uint32_t g = outermost(&term->dims[d]);
        for (uint32_t k = 0; g < DS_MAX_FACTORS && k < c->n_axes[g]; k++)
            bytes /= (double)ds_shard__axis_size(c->s, c->mesh, c->axes[g][k]);
    }
    return 2 * (n - 1) / n * bytes;
}

static double cost_of(const chooser *c, uint32_t f, uint32_t axis) {
    double cost = 0;
    for (uint32_t i = 0; i < c->n_in; i++) cost += operand_cost(c, i, f, axis);
    for (uint32_t i = 0; i < c->n_out; i++) cost += result_cost(c, i, f, axis);
    return cost;
}

/* ---- the choice for one axis ---- */

/* The factor that a weight among the operands, or a result's hint, splits over this axis. */
static uint32_t stationary(const chooser *c, uint32_t axis) {
    for (uint32_t i = 0; i < c->n_in; i++) {
        const ds_shard_value *info = ds_shard__value(c->s, c->in[i].value);
        bool here = info->weight && info->home.mesh == c->mesh;
        int d = here ? ds_shard__dim_of(&info->home, axis) : -1;
        uint32_t f = d < 0 ? DS_MAX_FACTORS : outermost(&term_in(c, i)->dims[d]);
        if (is_legal(c, f, axis)) return f;
    }
    for (uint32_t i = 0; i < c->n_out; i++) {
        bool here = c->out_type[i] && c->mesh == c->s->here; /* hints are for mesh `here` */
        int d = here ? ds_shard__dim_of(&c->hint[i], axis) : -1;
        uint32_t f = d < 0 ? DS_MAX_FACTORS : outermost(&term_out(c, i)->dims[d]);
        if (is_legal(c, f, axis)) return f;
    }
    return DS_MAX_FACTORS;
}

/* A sequence-parallel sum may be scattered over the sequence. */
static bool may_scatter(const chooser *c, uint32_t i, uint32_t d, uint32_t axis) {
    const ds_logical_axis *tp = &c->s->logical[DS_L_TP];
    return c->mesh == c->s->here && c->s->step->strategy.sp && tp->n == 1 && tp->axis[0] == axis &&
           (c->now[i].sum & (1u << axis)) &&
           (ds_shard__value(c->s, c->in[i].value)->seq & (1u << d));
}

static void consider(const chooser *c, uint32_t f, uint32_t axis, uint32_t *best, double *least) {
    if (!is_legal(c, f, axis)) return;
    double cost = cost_of(c, f, axis);
    if (cost >= *least) return;
    *least = cost;
    *best = f;
}

static uint32_t cheapest(const chooser *c, uint32_t axis) {
    uint32_t best = DS_MAX_FACTORS;
    double least = 0;
    bool first = true;
    for (uint32_t i = 0; i < c->n_in; i++)
        for (uint32_t d = 0; d < c->now[i].rank; d++) {
            bool here = c->now[i].mesh == c->mesh && ds_shard__dim_of(&c->now[i], axis) == (int)d;
            if (!here && !may_scatter(c, i, d, axis)) continue;
            if (first) { /* at equal cost, prefer a factor: the work is then split */
                least = cost_of(c, DS_MAX_FACTORS, axis) * (1 + 1e-9) + 1e-9;
                first = false;
            }
            consider(c, outermost(&term_in(c, i)->dims[d]), axis, &best, &least);
        }
    return best;
}

/* ---- order of the axes of a factor ---- */

/* Axes keep the order of the operand with most of the factor's axes; the remaining axes follow. */
static void put_in_order(chooser *c, uint32_t f) {
    uint8_t bits = 0, best[DS_SHARD_AXES], n_best = 0;
    for (uint32_t k = 0; k < c->n_axes[f]; k++) bits |= (uint8_t)(1u << c->axes[f][k]);
    for (uint32_t i = 0; i < c->n_in; i++) {
        int d = dim_of(term_in(c, i), f);
        uint8_t order[DS_SHARD_AXES], n = 0;
        for (uint32_t k = 0; d >= 0 && c->now[i].mesh == c->mesh && k < c->now[i].n[d]; k++)
            if (bits & (1u << c->now[i].axis[d][k])) order[n++] = c->now[i].axis[d][k];
        if (n <= n_best) continue;
        memcpy(best, order, n);
        n_best = n;
    }
    for (uint32_t k = 0; k < n_best; k++) bits &= (uint8_t) ~(1u << best[k]);
    for (uint32_t a = 0; a < DS_SHARD_AXES; a++)
        if (bits & (1u << a)) best[n_best++] = (uint8_t)a;
    memcpy(c->axes[f], best, n_best);
}

/* ---- the answer ---- */

/* Partial sums pass a lazy op unsummed only if all operands are partial over the same axes: to make
 * operands agree first is no gain. */
static uint8_t passing(const chooser *c, bool max) {
    if (!c->lazy || c->n_in == 0) return 0;
    uint8_t bits = UINT8_MAX;
    for (uint32_t i = 0; i < c->n_in; i++) {
        if (c->s->f.state[c->op->in[i].value.i] == DS_SHARD_ZEROS) continue;
        if (c->now[i].mesh != c->mesh) return 0;
        bits &= max ? c->now[i].max : c->now[i].sum;
    }
    if (max && c->op->code != DS_OP_RESHAPE && c->op->code != DS_OP_TRANSPOSE) return 0;
    for (uint32_t f = 0; f < c->rule.n_factors; f++) /* an axis that splits a factor is not
                                                        partial */
        for (uint32_t k = 0; k < c->n_axes[f]; k++) bits &= (uint8_t) ~(1u << c->axes[f][k]);
    return bits == UINT8_MAX ? 0 : bits;
}

static ds_layout term_layout(const chooser *c, const ds_rule_term *term) {
    ds_layout layout = ds_shard__whole(c->s, term->n);
    layout.mesh = c->mesh;
    for (uint32_t d = 0; d < term->n; d++) {
        uint32_t f = outermost(&term->dims[d]);
        if (f == DS_MAX_FACTORS) continue;
        memcpy(layout.axis[d], c->axes[f], c->n_axes[f]);
        layout.n[d] = c->n_axes[f];
        if (c->shares[f]) layout.shares |= (uint8_t)(1u << d);
    }
    return layout;
}

/* A result's dim is a sequence dim if an operand's sequence dim has the same factor. */
static uint8_t result_seq(const chooser *c, const ds_rule_term *term) {
    uint8_t seq = 0;
    for (uint32_t d = 0; d < term->n; d++) {
        uint32_t f = outermost(&term->dims[d]);
        for (uint32_t i = 0; c->in && f < DS_MAX_FACTORS && i < c->n_in; i++) {
            int at = dim_of(term_in(c, i), f);
            if (at >= 0 && (ds_shard__value(c->s, c->in[i].value)->seq & (1u << at)))
                seq |= (uint8_t)(1u << d);
        }
    }
    return seq;
}

/* The server on which all operands are; NULL: not all are on one. */
static const ds_layout *common_server(const chooser *c) {
    const ds_layout *server = NULL;
    for (uint32_t i = 0; c->in && i < c->n_in; i++) {
        if (c->s->f.state[c->op->in[i].value.i] == DS_SHARD_ZEROS) continue;
        if (!c->now[i].server || c->now[i].mesh != c->mesh) return NULL;
        if (server && server->server != c->now[i].server) return NULL;
        server = &c->now[i];
    }
    return server;
}

static void stay_on(ds_layout *layout, const ds_layout *server) {
    if (server) layout->server = server->server;
}

static void set_choice(const chooser *c, ds_shard_choice *choice) {
    const ds_layout *server = common_server(c);
    for (uint32_t i = 0; i < c->n_in; i++) {
        choice->in[i] = term_layout(c, term_in(c, i));
        stay_on(&choice->in[i], server);
        if (!c->in) continue;
        choice->in[i].sum = passing(c, false);
        choice->in[i].max = passing(c, true);
    }
    for (uint32_t i = 0; i < c->n_out; i++) {
        choice->out[i] = term_layout(c, term_out(c, i));
        stay_on(&choice->out[i], server);
        choice->seq[i] = result_seq(c, term_out(c, i));
    }
}

/* ---- an op ---- */

/* A cast, or an `after` of one operand, has no rule in the table: any dim may be split. */
static void identity_rule(const chooser *c, ds_rule *rule) {
    *rule = (ds_rule){.n_in = 1, .n_out = 1};
    for (uint32_t d = 0; d < c->type[0]->rank; d++) {
        rule->names[rule->n_factors++][0] = (char)('a' + d);
        rule->in[0].dims[d] = (ds_rule_dim){.factors = {(uint8_t)d}, .n = 1};
    }
    rule->in[0].n = (uint8_t)c->type[0]->rank;
    rule->out[0] = rule->in[0];
}

static ds_status get_rule(chooser *c, ds_error *err) {
    ds_sharder *s = c->s;
    if (c->op->code == DS_OP_CAST || (c->op->code == DS_OP_AFTER && c->op->n_in == 1)) {
        identity_rule(c, &c->rule);
        return DS_OK;
    }
    ds_arena *arena = &s->unit->arena;
    const ds_type **in = DS_NEW_N(arena, const ds_type *, c->op->n_in + 1);
    ds_type **out = DS_NEW_N(arena, ds_type *, c->op->n_out + 1);
    for (uint32_t i = 0; i < c->op->n_in; i++)
        in[i] = ds_type_plain(arena, c->in ? ds_shard__type_of(s, &c->in[i])
                                           : ds_use_type(s->unit, s->f.from, &c->op->in[i]));
    for (uint32_t i = 0; i < c->op->n_out; i++) {
        const ds_type *old = ds_value_at(s->f.from, c->op->out[i])->type;
        out[i] = old ? ds_type_plain(arena, old) : NULL;
    }
    ds_infer ctx = {.unit = s->unit, .func = s->f.b.func, .op = c->op, .in = in, .out = out};
    return ds_op_rule(&ctx, &c->rule, err);
}

static void chooser_init(chooser *c, ds_sharder *s, const ds_op *op, const ds_use *in) {
    *c = (chooser){.s = s, .op = op, .in = in, .lazy = ds_shard__is_lazy(op->code)};
    c->n_in = op->n_in < DS_MAX_OPERANDS ? op->n_in : DS_MAX_OPERANDS;
    c->n_out = op->n_out < DS_MAX_OPERANDS ? op->n_out : DS_MAX_OPERANDS;
}

static void look_at_operands(chooser *c) {
    ds_sharder *s = c->s;
    for (uint32_t i = 0; i < c->n_in; i++) {
        c->type[i] = c->in ? ds_shard__type_of(s, &c->in[i])
                           : ds_use_type(s->unit, s->f.from, &c->op->in[i]);
        if (c->in) c->now[i] = ds_shard__layout(s, c->type[i]);
    }
}

static ds_status look_at_results(chooser *c, ds_error *err) {
    ds_sharder *s = c->s;
    for (uint32_t i = 0; i < c->n_out; i++) {
        const ds_value_info *info = ds_value_at(s->f.from, c->op->out[i]);
        uint8_t seq;
        c->out_type[i] = info->type;
        if (info->type)
            DS_TRY(ds_shard__hint(s, info->type, info->name, info->loc, &c->hint[i], &seq, err));
        if (ds_shard__follows(s)) c->hint[i] = ds_shard__whole(s, c->hint[i].rank);
    }
    return DS_OK;
}

/* An op whose operands all live on one mesh stays on that mesh (an override's); zeros are on any
 * mesh, and a scalar comes to a tensor (the factor of the norm to a gradient). */
static uint8_t common_mesh(const chooser *c) {
    int mesh = -1;
    bool scalars = true;
    for (uint32_t i = 0; i < c->n_in; i++) scalars = scalars && c->type[i]->rank == 0;
    for (uint32_t i = 0; i < c->n_in; i++) {
        if (c->s->f.state[c->op->in[i].value.i] == DS_SHARD_ZEROS) continue;
        if (!scalars && c->type[i]->rank == 0) continue;
        if (mesh >= 0 && c->now[i].mesh != mesh) return c->s->here;
        mesh = c->now[i].mesh;
    }
    return mesh >= 0 ? (uint8_t)mesh : c->s->here;
}

static void put_layout(ds_memo_key *key, const ds_layout *layout) {
    uint64_t words[(sizeof *layout + 7) / 8] = {0};
    memcpy(words, layout, sizeof *layout);
    for (uint32_t i = 0; i < sizeof words / sizeof *words; i++) ds_memo_put(key, words[i]);
}

/* Spells a key of everything on which the choice for one op depends. */
static void spell_key(ds_sharder *s, const ds_op *op, const ds_use *in, ds_memo_key *key) {
    ds_memo_begin(key, s->unit, op);
    ds_memo_put(key, (uint64_t)s->here << 1 | ds_shard__follows(s));
    key->other |= op->n_in > DS_MAX_OPERANDS || op->n_out > DS_MAX_OPERANDS;
    for (uint32_t i = 0; i < op->n_in && !key->other; i++) {
        const ds_shard_value *info = ds_shard__value(s, in[i].value);
        bool zeros = s->f.state[op->in[i].value.i] == DS_SHARD_ZEROS;
        ds_memo_put_type(key, ds_shard__type_of(s, &in[i]));
        ds_memo_put(key, (uint64_t)info->seq << 2 | (uint64_t)zeros << 1 | (info->weight != 0));
        if (info->weight) put_layout(key, &info->home);
    }
    for (uint32_t i = 0; i < op->n_out && !key->other; i++) {
        const ds_type *type = ds_value_at(s->f.from, op->out[i])->type;
        ds_memo_put(key, ds_map_find(&s->f.gradients, op->out[i].i) != NULL);
        if (type)
            ds_memo_put_type(key, type);
        else
            ds_memo_put(key, UINT64_MAX);
    }
}

static ds_status choose_factors(chooser *c, ds_shard_choice *choice, ds_error *err) {
    const ds_sharder *s = c->s;
    DS_TRY(look_at_results(c, err));
    DS_TRY(get_rule(c, err));
    find_sizes(c);
    c->mesh = common_mesh(c);
    for (uint32_t axis = 0; axis < s->meshes.at[c->mesh].n_axes; axis++) {
        /* Between stages of several widths an axis of size 1 keeps the split for the next stage. */
        if (ds_shard__axis_size(s, c->mesh, axis) == 1 && s->n_own == 1) continue;
        uint32_t f = stationary(c, axis);
        if (f == DS_MAX_FACTORS) f = cheapest(c, axis);
        if (f == DS_MAX_FACTORS) continue;
        c->shares[f] = by_shares(c, f, axis);
        c->axes[f][c->n_axes[f]++] = (uint8_t)axis;
    }
    for (uint32_t f = 0; f < c->rule.n_factors; f++) put_in_order(c, f);
    set_choice(c, choice);
    return DS_OK;
}

ds_status ds_shard__choose(ds_sharder *s, const ds_op *op, const ds_use *in,
                           ds_shard_choice *choice, ds_error *err) {
    ds_memo_key key;
    spell_key(s, op, in, &key);
    const ds_shard_choice *known = ds_memo_find(&s->known->choices, &key);
    if (known) {
        *choice = *known;
        return DS_OK;
    }
    chooser c;
    chooser_init(&c, s, op, in);
    look_at_operands(&c);
    DS_TRY(choose_factors(&c, choice, err));
    ds_shard_choice *kept = DS_NEW(&s->unit->arena, ds_shard_choice);
    *kept = *choice;
    ds_memo_keep(&s->known->choices, &s->unit->arena, &key, kept);
    return DS_OK;
}

/* ---- overrides ---- */

/* May the axis split the factor by the rule? The vocabulary of a loss may be split too: the loss
 * becomes several ops (loss.c). */
static bool may_be_forced(const chooser *c, uint32_t f, uint32_t axis) {
    if (c->op->code != DS_OP_CROSS_ENTROPY || c->rule.kinds[f] != DS_FACTOR_WHOLE)
        return is_legal(c, f, axis);
    return c->n_axes[f] == 0 && c->size[f] % ds_shard__axis_size(c->s, c->mesh, axis) == 0;
}

static ds_status refuse_axis(const chooser *c, const ds_attr *item, uint32_t f, uint8_t axis,
                             ds_error *err) {
    return ds_error_set(err, DS_ERR_SHARDING, item->loc,
                        "%s: factor %s of size %lld cannot be split over %s of size %lld",
                        ds_op_name(c->op->code), c->rule.names[f], (long long)c->size[f],
                        c->s->meshes.at[c->mesh].axes[axis].name,
                        (long long)ds_shard__axis_size(c->s, c->mesh, axis));
}

static void take_axis(chooser *c, uint32_t f, uint8_t axis) {
    c->shares[f] = by_shares(c, f, axis);
    c->axes[f][c->n_axes[f]++] = axis;
}

/* Gives factor f the axes of an item `n: x` or `n: [x, y]`. */
static ds_status force_axes(chooser *c, const ds_attr *item, uint32_t f, bool exact,
                            ds_error *err) {
    uint32_t n = item->kind == DS_ATTR_LIST ? item->n_items : 1;
    for (uint32_t i = 0; i < n; i++) {
        const ds_attr *word = item->kind == DS_ATTR_LIST ? &item->items[i] : item;
        ds_logical_axis axes;
        DS_TRY(ds_shard__axes_named(c->s, c->mesh, word->word, word->loc, &axes, err));
        for (uint32_t k = 0; k < axes.n; k++) {
            bool legal = may_be_forced(c, f, axes.axis[k]);
            if (!legal && !exact) continue; /* a backward op's letter may mean another dim */
            if (!legal) return refuse_axis(c, item, f, axes.axis[k], err);
            take_axis(c, f, axes.axis[k]);
        }
    }
    return DS_OK;
}

/* The axes over which a group's devices share a batch: the axis that has shares, else all but the
 * stages'. */
static void batch_axes(const chooser *c, ds_logical_axis *out) {
    const ds_shard_mesh *mesh = &c->s->meshes.at[c->mesh];
    bool shares = mesh->shares && c->in_shares;
    *out = (ds_logical_axis){0};
    for (uint32_t a = 0; a < mesh->n_axes; a++)
        if (shares ? a == mesh->shared
                   : mesh->axes[a].size > 1 && strcmp(mesh->axes[a].name, "pp") != 0)
            out->axis[out->n++] = (uint8_t)a;
}

static ds_status refuse_batch(const chooser *c, const ds_shard_lie *lie, uint32_t f,
                              ds_error *err) {
    const ds_shard_mesh *mesh = &c->s->meshes.at[c->mesh];
    bool shares = mesh->shares && c->in_shares, unit = strcmp(c->rule.names[f], "u") == 0;
    const char *why = ds_arena_printf(&c->s->unit->arena,
                                      ": the sum of their shares, %lld without common divisors, "
                                      "does not divide it",
                                      (long long)mesh->shares_sum);
    return ds_error_set(
        err, DS_ERR_SHARDING, shares && lie->group->shares ? lie->group->shares_loc : lie->loc,
        "group \"%s\": %s %s: %s of size %lld cannot be split over the %u devices of @%s%s",
        lie->who, ds_op_name(c->op->code), ds_path_op_name(c->s->f.from, c->op),
        unit ? "the factor of groups of statistics," : "a batch", (long long)c->size[f],
        ds_shard__n_devices(c->s, c->mesh), lie->group->on ? lie->group->on : mesh->name,
        shares ? why : "");
}

/* Splits the batch of an op in a group over the group's devices. A factor that the rule keeps whole
 * stays whole. */
static ds_status force_batch(chooser *c, const ds_shard_lie *lie, bool exact, ds_error *err) {
    uint32_t batch = ds_shard__batch_factors(c->s->f.places, c->op, &c->rule);
    ds_logical_axis axes;
    batch_axes(c, &axes);
    for (uint32_t f = 0; f < c->rule.n_factors; f++) {
        if (!(batch >> f & 1) || !splittable(c->rule.kinds[f])) continue;
        for (uint32_t k = 0; k < axes.n; k++) {
            bool legal = is_legal(c, f, axes.axis[k]);
            if (legal) take_axis(c, f, axes.axis[k]);
            if (!legal && exact) return refuse_batch(c, lie, f, err);
        }
        return DS_OK; /* an axis splits one factor */
    }
    return DS_OK;
}

ds_status ds_shard__rule(ds_sharder *s, const ds_op *op, ds_rule *rule, ds_error *err) {
    chooser c;
    chooser_init(&c, s, op, NULL);
    look_at_operands(&c);
    DS_TRY(look_at_results(&c, err));
    DS_TRY(get_rule(&c, err));
    *rule = c.rule;
    return DS_OK;
}

/* Does the item name the factor? `batch` names the factors of the batch. */
static bool names_factor(const chooser *c, const ds_attr *item, uint32_t f) {
    if (strcmp(c->rule.names[f], item->name) == 0) return true;
    return strcmp(item->name, DS_SHARD_BATCH) == 0 &&
           ds_shard__batch_factors(c->s->f.places, c->op, &c->rule) >> f & 1;
}

ds_status ds_shard__means(ds_sharder *s, const ds_op *op, const ds_shard_lie *lie, bool *means,
                          ds_error *err) {
    chooser c;
    chooser_init(&c, s, op, NULL);
    DS_TRY(ds_shard__rule(s, op, &c.rule, err));
    DS_TRY(ds_shard__rename(s, op, &c.rule, err));
    *means = !lie->n_factors;
    for (uint32_t i = 0; i < lie->n_factors; i++)
        for (uint32_t f = 0; f < c.rule.n_factors; f++)
            *means |= names_factor(&c, &lie->factors[i], f);
    return DS_OK;
}

static ds_status lacks_factor(const chooser *c, const ds_attr *item, ds_error *err) {
    ds_buf text = {0};
    ds_rule_print(&c->rule, &text);
    ds_status status =
        ds_error_set(err, DS_ERR_NAME, item->loc, "%s has no factor '%s'; its rule is %s",
                     ds_op_name(c->op->code), item->name, text.text);
    ds_buf_deinit(&text);
    return status;
}

ds_status ds_shard__forced(ds_sharder *s, const ds_op *op, const ds_shard_lie *lie, bool exact,
                           ds_shard_choice *choice, ds_error *err) {
    chooser c;
    chooser_init(&c, s, op, NULL);
    c.mesh = ds_shard__is_view(s, lie->mesh) ? lie->mesh : s->here;
    look_at_operands(&c);
    DS_TRY(look_at_results(&c, err));
    DS_TRY(get_rule(&c, err));
    find_sizes(&c);
    if (!exact) DS_TRY(ds_shard__rename(s, op, &c.rule, err));
    bool even = lie->group && lie->group->on && !lie->group->shares;
    if (s->wants_batch && !even) c.in_shares = ds_shard__batch_factors(s->f.places, op, &c.rule);
    for (uint32_t i = 0; i < lie->n_factors; i++) {
        const ds_attr *item = &lie->factors[i];
        uint32_t f = 0;
        while (f < c.rule.n_factors && !names_factor(&c, item, f)) f++;
        if (f < c.rule.n_factors)
            DS_TRY(force_axes(&c, item, f, exact, err));
        else if (exact)
            return lacks_factor(&c, item, err);
    }
    if (lie->by_batch) DS_TRY(force_batch(&c, lie, exact, err));
    set_choice(&c, choice);
    choice->forced = true;
    return DS_OK;
}
