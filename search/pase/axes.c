/* From an op to a node: which iteration space it has, and how its tensors lie in it.
 *
 * All follows from the op table's factor rule: an axis is a dim of the first result (of a loss or a
 * mean: of the operand), named by the dim's outermost factor, or a factor that is summed. A dim of
 * another tensor lies along the axis of its own outermost factor. */
#include "search/pase/internal.h"

#include <string.h>

#define NO_FACTOR DS_MAX_FACTORS

const char *ds_pase_kind_text(ds_pase_kind kind) {
    static const char *const texts[] = {
#define DS_X(name, text) text,
        DS_PASE_KIND_MAP(DS_X)
#undef DS_X
    };
    return texts[kind];
}

static uint32_t outermost(const ds_rule_dim *dim) {
    return dim->any || dim->n == 0 ? NO_FACTOR : dim->factors[0];
}

static const ds_rule_term *term_of(const ds_rule_term *terms, uint32_t n, uint32_t i) {
    return &terms[i < n ? i : n - 1];
}

static bool term_has(const ds_rule_term *term, uint32_t f) {
    for (uint32_t d = 0; d < term->n; d++)
        for (uint32_t k = 0; k < term->dims[d].n; k++)
            if (term->dims[d].factors[k] == f) return true;
    return false;
}

/* While a node is made: the factor of each axis. */
typedef struct maker {
    const ds_pase_instance *at;
    ds_rule rule;
    ds_pase_node *node;
    uint32_t factor[DS_PASE_MAX_AXES];
} maker;

static ds_status too_many(const maker *m, ds_error *err) {
    return ds_error_set(err, DS_ERR_UNSUPPORTED, m->at->op->loc,
                        "'%s' has more than the %u axes that this search takes",
                        ds_op_name(m->at->op->code), DS_PASE_MAX_AXES);
}

static ds_status add_axis(maker *m, uint32_t f, int64_t size, ds_error *err) {
    ds_pase_node *node = m->node;
    if (node->n_axes == DS_PASE_MAX_AXES) return too_many(m, err);
    uint32_t a = node->n_axes++;
    m->factor[a] = f;
    node->size[a] = size;
    node->axis_name[a] = f == NO_FACTOR ? "-" : ds_intern(&m->at->unit->strings, m->rule.names[f]);
    return DS_OK;
}

static int8_t axis_of(const maker *m, uint32_t f) {
    for (uint32_t a = 0; f != NO_FACTOR && a < m->node->n_axes; a++)
        if (m->factor[a] == f) return (int8_t)a;
    return DS_PASE_NO_AXIS;
}

/* The size of a factor that some dim is made of alone; 0: not known. */
static int64_t size_of(const maker *m, uint32_t f) {
    const ds_op *op = m->at->op;
    for (uint32_t i = 0; i < op->n_in + op->n_out; i++) {
        bool is_in = i < op->n_in;
        const ds_rule_term *term = is_in ? term_of(m->rule.in, m->rule.n_in, i)
                                         : term_of(m->rule.out, m->rule.n_out, i - op->n_in);
        const ds_shape *shape = is_in ? &m->at->in[i] : &m->at->out[i - op->n_in];
        for (uint32_t d = 0; d < term->n && d < shape->rank; d++)
            if (term->dims[d].n == 1 && outermost(&term->dims[d]) == f) return shape->dims[d];
    }
    return 0;
}

/* The outermost factor of a dim of several: what the others, where they are known, leave of it. */
static int64_t outer_size(const maker *m, const ds_rule_dim *dim, int64_t size) {
    int64_t known = size_of(m, outermost(dim)), rest = 1;
    if (known) return known;
    if (m->at->op->code == DS_OP_BATCH_NORM) {
        int64_t groups = 1;
        ds_op_attr_int(m->at->op, &m->at->env, "groups", &groups, NULL);
        return groups;
    }
    for (uint32_t k = 1; k < dim->n; k++) {
        int64_t inner = size_of(m, dim->factors[k]);
        if (!inner) return 1;
        rest *= inner;
    }
    return rest > 0 && size % rest == 0 ? size / rest : 1;
}

static ds_status dims_as_axes(maker *m, const ds_rule_term *term, const ds_shape *shape,
                              ds_error *err) {
    for (uint32_t d = 0; d < term->n; d++) {
        uint32_t f = outermost(&term->dims[d]);
        DS_TRY(add_axis(m, f, f == NO_FACTOR ? 1 : shape->dims[d], err));
        uint32_t a = m->node->n_axes - 1;
        bool whole = f == NO_FACTOR || m->rule.kinds[f] == DS_FACTOR_WHOLE ||
                     m->rule.kinds[f] == DS_FACTOR_WINDOW || m->rule.kinds[f] == DS_FACTOR_SCAN;
        m->node->rule_size[a] = whole ? 1 : outer_size(m, &term->dims[d], shape->dims[d]);
        if (f == NO_FACTOR) m->node->whole |= 1u << a;
    }
    return DS_OK;
}

/* Factors that operands have and the axes so far do not; windows are those of the result. */
static ds_status summed_as_axes(maker *m, ds_error *err) {
    for (uint32_t f = 0; f < m->rule.n_factors; f++) {
        ds_factor_kind kind = m->rule.kinds[f];
        bool inner = false;
        for (uint32_t i = 0; i < m->rule.n_out; i++) inner |= term_has(&m->rule.out[i], f);
        if (inner || axis_of(m, f) >= 0 || kind == DS_FACTOR_WINDOW) continue;
        int64_t size = size_of(m, f);
        if (size == 0) continue;
        DS_TRY(add_axis(m, f, size, err));
        m->node->rule_size[m->node->n_axes - 1] = kind == DS_FACTOR_WHOLE ? 1 : size;
    }
    return DS_OK;
}

static void map_dims(const maker *m, const ds_rule_term *term, uint32_t rank, int8_t *map) {
    for (uint32_t d = 0; d < DS_MAX_RANK; d++)
        map[d] = d < rank && d < term->n ? axis_of(m, outermost(&term->dims[d])) : DS_PASE_NO_AXIS;
}

/* ---- kinds ---- */

static bool all_single(const ds_rule *rule) {
    for (uint32_t i = 0; i < rule->n_in + rule->n_out; i++) {
        const ds_rule_term *term = i < rule->n_in ? &rule->in[i] : &rule->out[i - rule->n_in];
        for (uint32_t d = 0; d < term->n; d++)
            if (term->dims[d].n > 1) return false;
    }
    return true;
}

static ds_pase_kind kind_of(const maker *m) {
    const ds_op *op = m->at->op;
    switch (op->code) {
    case DS_OP_MATMUL:
    case DS_OP_EINSUM:
    case DS_OP_CONV2D:
    case DS_OP_EMBEDDING:
        return op->n_in == 2 && all_single(&m->rule) ? DS_PASE_GEMM : DS_PASE_OTHER;
    case DS_OP_MAX_POOL:
    case DS_OP_AVG_POOL:
        return DS_PASE_POOL;
    case DS_OP_BATCH_NORM:
    case DS_OP_LAYER_NORM:
    case DS_OP_RMS_NORM:
        return DS_PASE_NORM;
    case DS_OP_SOFTMAX:
        return DS_PASE_SOFTMAX;
    case DS_OP_CROSS_ENTROPY:
        return DS_PASE_LOSS;
    case DS_OP_REDUCE_MEAN:
        return DS_PASE_MEAN;
    case DS_OP_LSTM:
        return DS_PASE_LSTM;
    case DS_OP_CONCAT:
    case DS_OP_SPLIT:
    case DS_OP_SLICE:
    case DS_OP_TRANSPOSE:
        return DS_PASE_LAYOUT;
    default:
        break;
    }
    const ds_op_desc *desc = ds_op_desc_of(op->code);
    bool elementwise = strcmp(desc->family, "elementwise") == 0 && op->n_in > 0;
    return elementwise ? DS_PASE_ELEMENTWISE : DS_PASE_OTHER;
}

/* Batch: in both operands and the result; n: of the second operand alone; k: summed. */
static void set_roles(maker *m) {
    ds_pase_node *node = m->node;
    for (uint32_t a = 0; a < node->n_axes; a++) {
        uint32_t f = m->factor[a];
        bool first = term_has(&m->rule.in[0], f), second = term_has(&m->rule.in[1], f);
        if (!term_has(&m->rule.out[0], f))
            node->k |= 1u << a;
        else if (first && second)
            node->batch |= 1u << a;
        else if (second)
            node->n |= 1u << a;
        else
            node->m |= 1u << a;
        bool pixels = m->at->op->code == DS_OP_CONV2D && (a == 2 || a == 3);
        if (pixels) { /* a split would need the neighbours' borders */
            node->whole |= 1u << a;
            node->rule_size[a] = 1;
        }
    }
}

static ds_status int_list(const ds_pase_instance *at, const char *name, int64_t *out,
                          ds_error *err) {
    const ds_attr *attr = ds_attr_find(at->op->attrs, at->op->n_attrs, name);
    for (uint32_t i = 0; attr && i < 2; i++) {
        bool list = attr->kind == DS_ATTR_LIST;
        const ds_attr *item = list ? &attr->items[i < attr->n_items ? i : attr->n_items - 1] : attr;
        DS_TRY(ds_expr_eval_int(&at->env, item->expr, at->op->loc, &out[i], err));
    }
    return DS_OK;
}

static ds_status set_pool(maker *m, int8_t *map, ds_error *err) {
    const ds_shape *in = &m->at->in[0];
    for (uint32_t d = 0; d < in->rank; d++) {
        map[d] = (int8_t)d;
        m->node->in_size[d] = in->dims[d];
        if (d >= 2) m->node->rule_size[d] = 1;
    }
    return int_list(m->at, "window", m->node->window, err);
}

static void set_mean(maker *m) {
    for (uint32_t a = 0; a < m->node->n_axes; a++)
        if (!term_has(&m->rule.out[0], m->factor[a])) m->node->along |= 1u << a;
}

static ds_status set_softmax(maker *m, ds_error *err) {
    int64_t dim = -1;
    DS_TRY(ds_op_attr_int(m->at->op, &m->at->env, "dim", &dim, err));
    m->node->along = 1u << (dim < 0 ? dim + m->node->n_axes : dim);
    return DS_OK;
}

/* Along the dim at which tensors are joined or cut nothing is split. */
static ds_status set_layout(maker *m, ds_error *err) {
    if (m->at->op->code == DS_OP_TRANSPOSE) return DS_OK;
    int64_t dim = 0;
    DS_TRY(ds_op_attr_int(m->at->op, &m->at->env, "dim", &dim, err));
    if (dim < 0) dim += m->node->n_axes;
    m->node->size[dim] = m->node->rule_size[dim] = 1;
    m->node->whole |= 1u << dim;
    return DS_OK;
}

/* Attention is split by batch and heads alone: a part of the queries would need its place under the
 * mask, and the gradient takes values whole. */
static void keep_whole(maker *m) {
    for (uint32_t a = 0; a < m->node->n_axes; a++) {
        const char *name = m->node->axis_name[a];
        if (strcmp(name, "b") != 0 && strcmp(name, "g") != 0) m->node->rule_size[a] = 1;
    }
}

static ds_status set_kind(maker *m, int8_t (*maps)[DS_MAX_RANK], ds_error *err) {
    ds_pase_node *node = m->node;
    switch (node->kind) {
    case DS_PASE_GEMM:
        set_roles(m);
        return DS_OK;
    case DS_PASE_POOL:
        return set_pool(m, maps[0], err);
    case DS_PASE_MEAN:
        set_mean(m);
        return DS_OK;
    case DS_PASE_SOFTMAX:
        return set_softmax(m, err);
    case DS_PASE_LAYOUT:
        return set_layout(m, err);
    case DS_PASE_NORM:
        node->along = m->at->op->code == DS_OP_BATCH_NORM ? 1u : 1u << (node->n_axes - 1);
        return DS_OK;
    case DS_PASE_LOSS: /* words are split by `shard`, whatever the op's own rule says */
        node->along = 1u << (node->n_axes - 1);
        node->rule_size[node->n_axes - 1] = node->size[node->n_axes - 1];
        return DS_OK;
    case DS_PASE_OTHER:
        if (m->at->op->code == DS_OP_ATTENTION) keep_whole(m);
        for (uint32_t a = 0; a < node->n_axes; a++)
            if (node->rule_size[a] == 1) node->whole |= 1u << a;
        return DS_OK;
    default:
        return DS_OK;
    }
}

/* ---- an LSTM ---- */

static void lstm_node(const ds_pase_instance *at, ds_pase_node *node, int8_t (*maps)[DS_MAX_RANK]) {
    static const int8_t x[] = {2, DS_PASE_NO_AXIS, 4}, y[] = {2, DS_PASE_NO_AXIS, 3};
    static const char *const names[] = {"-", "s", "b", "h", "i"};
    const int64_t sizes[] = {1, at->in[0].dims[1], at->in[0].dims[0], at->out[0].dims[2],
                             at->in[0].dims[2]};
    node->n_axes = 5;
    for (uint32_t a = 0; a < 5; a++) {
        node->size[a] = sizes[a];
        node->axis_name[a] = ds_intern(&at->unit->strings, names[a]);
        node->rule_size[a] = a == 2 ? sizes[a] : 1;
    }
    node->whole = 1u << 1; /* one step needs the one before */
    memcpy(maps[0], x, sizeof x);
    memcpy(maps[at->op->n_in], y, sizeof y);
}

void ds_pase__lstm_layers(ds_pase_node *node, int64_t layers) {
    node->size[0] = layers;
    node->flop *= (double)layers;
}

/* ---- a reshape ---- */

bool ds_pase__is_unit_reshape(const ds_shape *in, const ds_shape *out, int8_t *from) {
    uint32_t i = 0;
    for (uint32_t d = 0; d < out->rank; d++) {
        from[d] = -1;
        if (out->dims[d] == 1) continue;
        while (i < in->rank && in->dims[i] == 1) i++;
        if (i == in->rank || in->dims[i] != out->dims[d]) return false;
        from[d] = (int8_t)i++;
    }
    while (i < in->rank && in->dims[i] == 1) i++;
    return i == in->rank;
}

/* The axes are the dims of the longer side. Dims are grouped as far as their products agree: the
 * other side's first dim of a group lies along the group's first axis, its other dims along none.
 */
static ds_status reshape_node(const ds_pase_instance *at, ds_pase_node *node,
                              int8_t (*maps)[DS_MAX_RANK]) {
    bool merges = at->in[0].rank >= at->out[0].rank;
    const ds_shape *many = merges ? &at->in[0] : &at->out[0];
    const ds_shape *few = merges ? &at->out[0] : &at->in[0];
    int8_t *many_map = maps[merges ? 0 : 1], *few_map = maps[merges ? 1 : 0];
    node->n_axes = many->rank;
    uint32_t d = 0, f = 0;
    uint8_t group = 0;
    while (d < many->rank || f < few->rank) {
        int64_t a = 1, b = 1;
        uint32_t first = d, first_few = f;
        do {
            bool take_many = d < many->rank && (a <= b || f == few->rank);
            if (take_many)
                a *= many->dims[d++];
            else
                b *= few->dims[f++];
        } while (a != b && (d < many->rank || f < few->rank));
        for (uint32_t i = first; i < d; i++) {
            node->size[i] = many->dims[i];
            node->group[i] = group;
            bool outer = i == first;
            node->rule_size[i] = outer ? many->dims[i] : 1;
            node->axis_name[i] = ds_intern_n(&at->unit->strings, &"abcdefgh"[i], 1);
            many_map[i] = (int8_t)i;
        }
        if (first_few < f && first < d) few_map[first_few] = (int8_t)first;
        group++;
    }
    return DS_OK;
}

/* ---- all ---- */

/* A reshape's rule asks for the type that it makes. */
static ds_status rule_of(const ds_pase_instance *at, ds_rule *rule, ds_error *err) {
    ds_type *out[DS_MAX_OPERANDS] = {0};
    for (uint32_t i = 0; i < at->op->n_out && i < DS_MAX_OPERANDS; i++)
        out[i] = ds_value_at(at->func, at->op->out[i])->type;
    ds_infer infer = {.unit = at->unit,
                      .func = at->func,
                      .op = at->op,
                      .in = at->in_type,
                      .out = out,
                      .env = &at->env};
    return ds_op_rule(&infer, rule, err);
}

ds_status ds_pase__factors(const ds_pase_instance *at, const char **factor, ds_error *err) {
    ds_rule rule;
    if (at->op->code == DS_OP_CAST) { /* to overrides its dims are a, b, … */
        for (uint32_t d = 0; d < at->out[0].rank; d++)
            factor[d] = ds_intern_n(&at->unit->strings, &"abcdefgh"[d], 1);
        return DS_OK;
    }
    DS_TRY(rule_of(at, &rule, err));
    for (uint32_t d = 0; d < rule.out[0].n; d++) {
        uint32_t f = outermost(&rule.out[0].dims[d]);
        factor[d] = ds_intern(&at->unit->strings, f == NO_FACTOR ? "-" : rule.names[f]);
    }
    return DS_OK;
}

static ds_status rule_node(const ds_pase_instance *at, ds_pase_node *node,
                           int8_t (*maps)[DS_MAX_RANK], ds_error *err) {
    maker m = {.at = at, .node = node};
    ds_infer infer = {
        .unit = at->unit, .func = at->func, .op = at->op, .in = at->in_type, .env = &at->env};
    DS_TRY(ds_op_rule(&infer, &m.rule, err));
    node->kind = kind_of(&m);
    if (node->kind == DS_PASE_LSTM) {
        lstm_node(at, node, maps);
        return DS_OK;
    }
    bool from_operand = node->kind == DS_PASE_LOSS || node->kind == DS_PASE_MEAN;
    DS_TRY(dims_as_axes(&m, from_operand ? &m.rule.in[0] : &m.rule.out[0],
                        from_operand ? &at->in[0] : &at->out[0], err));
    if (node->kind == DS_PASE_GEMM || node->kind == DS_PASE_OTHER) DS_TRY(summed_as_axes(&m, err));
    for (uint32_t i = 0; i < at->op->n_in; i++)
        map_dims(&m, term_of(m.rule.in, m.rule.n_in, i), at->in[i].rank, maps[i]);
    for (uint32_t i = 0; i < at->op->n_out; i++)
        map_dims(&m, term_of(m.rule.out, m.rule.n_out, i), at->out[i].rank, maps[at->op->n_in + i]);
    return set_kind(&m, maps, err);
}

static ds_status keep_tensors(const ds_pase_instance *at, ds_pase_node *node,
                              int8_t (*maps)[DS_MAX_RANK], ds_error *err) {
    const ds_op *op = at->op;
    ds_work work;
    DS_TRY(ds_op_work(op, &at->env, at->in, at->out, &work, err));
    node->flop = (double)work.flop;
    node->n_in = op->n_in < DS_MAX_OPERANDS ? op->n_in : DS_MAX_OPERANDS;
    for (uint32_t i = 0; i < node->n_in; i++) {
        node->in[i] = at->in[i];
        memcpy(node->in_axis[i], maps[i], sizeof *maps);
    }
    node->n_out = op->n_out < DS_MAX_OPERANDS ? op->n_out : DS_MAX_OPERANDS;
    for (uint32_t i = 0; i < node->n_out; i++) {
        node->out[i] = at->out[i];
        memcpy(node->out_axis[i], maps[op->n_in + i], sizeof *maps);
    }
    return DS_OK;
}

ds_status ds_pase__node_of(const ds_pase_instance *at, ds_pase_node *node,
                           int8_t (*maps)[DS_MAX_RANK], ds_error *err) {
    const ds_op *op = at->op;
    for (uint32_t i = 0; i < op->n_in + op->n_out; i++)
        memset(maps[i], DS_PASE_NO_AXIS, sizeof *maps);
    node->op = op;
    if (op->n_out == 0)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, op->loc, "'%s' makes nothing that is searched",
                            ds_op_name(op->code));
    if (op->code == DS_OP_RESHAPE) {
        node->kind = DS_PASE_RESHAPE;
        DS_TRY(reshape_node(at, node, maps));
    } else {
        DS_TRY(rule_node(at, node, maps, err));
    }
    return keep_tensors(at, node, maps, err);
}
