/* The choice of sufficient factors as a minimum cut.
 *
 * An operation is a vertex, whole if behind the cut. The arc from the source costs what a whole
 * operation costs, the arc to the sink what the reduction costs that stays, and the arc from the maker
 * of a tensor to a reader what the gathering costs. With one gathering for all readers the tensor is a
 * vertex between both. */
#include "sim/run/sfb.h"

#include "sim/topo/min_cut.h"

#include <inttypes.h>

enum { NS_PER_US = 1000 };

/* ---- checks ---- */

static ds_status check_op(const ds_sfb_problem *p, uint32_t i, ds_error *err) {
    const ds_sfb_op *op = &p->op[i];
    if (op->time_ns < 0 || op->time_ns > DS_SFB_MAX_NS || op->gradient_bytes < 0 ||
        op->gradient_bytes > DS_SFB_MAX_BYTES)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "operation %u takes %" PRId64 " ns and has a gradient of %" PRId64
                            " bytes: 0 … 10^15 and 0 … 2^42 are possible",
                            i, op->time_ns, op->gradient_bytes);
    return DS_OK;
}

static ds_status check_tensor(const ds_sfb_problem *p, uint32_t i, ds_error *err) {
    const ds_sfb_tensor *tensor = &p->tensor[i];
    if (tensor->maker >= p->n_ops || tensor->bytes < 0 || tensor->bytes > DS_SFB_MAX_BYTES)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "tensor %u of operation %u has %" PRId64
                            " bytes: 0 … 2^42 are possible, of %u operations",
                            i, tensor->maker, tensor->bytes, p->n_ops);
    for (uint32_t k = 0; k < tensor->n_readers; k++) {
        uint32_t reader = tensor->reader[k];
        if (reader >= p->n_ops || reader == tensor->maker)
            return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                                "operation %u reads tensor %u of operation %u: another one of %u "
                                "operations is needed",
                                reader, i, tensor->maker, p->n_ops);
        for (uint32_t j = 0; j < k; j++)
            if (tensor->reader[j] == reader)
                return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                                    "operation %u reads tensor %u twice", reader, i);
    }
    return DS_OK;
}

static ds_status check(const ds_sfb_problem *p, ds_error *err) {
    if (p->n_replicas == 0 || p->n_replicas > DS_SFB_MAX_M || p->mb_per_s <= 0 ||
        p->mb_per_s > DS_SFB_MAX_SPEED)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "%u replicas at %" PRId64 " MB/s: 1 … %u and 1 … 2^32 are possible",
                            p->n_replicas, p->mb_per_s, DS_SFB_MAX_M);
    for (uint32_t i = 0; i < p->n_ops; i++) DS_TRY(check_op(p, i, err));
    for (uint32_t i = 0; i < p->n_tensors; i++) DS_TRY(check_tensor(p, i, err));
    return DS_OK;
}

/* ---- costs, in ns / (M · B) ---- */

/* Bytes over the network, by all replicas. */
static int64_t gathered_bytes(const ds_sfb_problem *p, const ds_sfb_tensor *tensor) {
    int64_t m = p->n_replicas;
    return m * (m - 1) * tensor->bytes;
}

static int64_t spared_bytes(const ds_sfb_problem *p, const ds_sfb_op *op) {
    return 2 * ((int64_t)p->n_replicas - 1) * op->gradient_bytes;
}

static ds_i128 compute_cost(const ds_sfb_problem *p, const ds_sfb_op *op) {
    int64_t m = p->n_replicas;
    return ((ds_i128)(m - 1) * op->time_ns + NS_PER_US) * m * p->mb_per_s;
}

static ds_i128 gather_cost(const ds_sfb_problem *p, const ds_sfb_tensor *tensor) {
    ds_i128 cost = (ds_i128)gathered_bytes(p, tensor) * NS_PER_US;
    return p->gather == DS_SFB_SERIAL ? cost * p->n_replicas : cost;
}

static ds_i128 reduce_cost(const ds_sfb_problem *p, const ds_sfb_op *op) {
    return (ds_i128)spared_bytes(p, op) * NS_PER_US;
}

/* ---- the cut ---- */

typedef struct network {
    ds_arena *arena;
    DS_VEC(ds_min_cut_arc) arcs;
    uint32_t n_vertices;
} network;

static void add_arc(network *n, uint32_t from, uint32_t to, ds_i128 cost) {
    int64_t capacity = cost < DS_MIN_CUT_NEVER ? (int64_t)cost : DS_MIN_CUT_NEVER;
    ds_min_cut_arc arc = {from, to, capacity};
    if (capacity > 0 && from != to && to != DS_MIN_CUT_SOURCE) DS_PUSH(n->arena, &n->arcs, arc);
}

/* Operations that stay are the source. */
static uint32_t vertex_of(const ds_sfb_problem *p, uint32_t op) {
    return p->op[op].stays ? DS_MIN_CUT_SOURCE : DS_MIN_CUT_FIRST_OTHER + op;
}

static void add_op(network *n, const ds_sfb_problem *p, uint32_t i) {
    ds_i128 cost = compute_cost(p, &p->op[i]) - reduce_cost(p, &p->op[i]);
    if (p->op[i].stays) return;
    if (cost > 0) add_arc(n, DS_MIN_CUT_SOURCE, vertex_of(p, i), cost);
    if (cost < 0) add_arc(n, vertex_of(p, i), DS_MIN_CUT_SINK, -cost);
}

static void add_tensor(network *n, const ds_sfb_problem *p, const ds_sfb_tensor *tensor) {
    uint32_t maker = vertex_of(p, tensor->maker);
    ds_i128 cost = gather_cost(p, tensor);
    if (p->gather == DS_SFB_SERIAL) {
        for (uint32_t k = 0; k < tensor->n_readers; k++)
            add_arc(n, maker, vertex_of(p, tensor->reader[k]), cost);
        return;
    }
    uint32_t gathered = n->n_vertices++;
    add_arc(n, maker, gathered, cost);
    for (uint32_t k = 0; k < tensor->n_readers; k++)
        add_arc(n, gathered, vertex_of(p, tensor->reader[k]), cost);
}

/* ---- the result ---- */

static void count_tensor(const ds_sfb_problem *p, const ds_sfb_tensor *tensor, ds_sfb_choice *out) {
    uint32_t n = 0;
    for (uint32_t k = 0; k < tensor->n_readers; k++) n += out->is_whole[tensor->reader[k]];
    if (out->is_whole[tensor->maker]) return;
    if (p->gather == DS_SFB_NICS && n > 1) n = 1;
    out->cost += n * gather_cost(p, tensor);
    for (uint32_t k = 0; k < n; k++)
        out->gathered_bytes = ds_bytes_sum(out->gathered_bytes, gathered_bytes(p, tensor));
}

static void count(const ds_sfb_problem *p, ds_sfb_choice *out) {
    for (uint32_t i = 0; i < p->n_ops; i++) {
        if (!out->is_whole[i]) continue;
        out->n_whole++;
        out->cost += compute_cost(p, &p->op[i]) - reduce_cost(p, &p->op[i]);
        out->spared_bytes = ds_bytes_sum(out->spared_bytes, spared_bytes(p, &p->op[i]));
    }
    for (uint32_t i = 0; i < p->n_tensors; i++) count_tensor(p, &p->tensor[i], out);
    out->cost_us =
        (double)out->cost / ((double)p->n_replicas * (double)p->mb_per_s * (double)NS_PER_US);
}

ds_status ds_sfb_choose(const ds_sfb_problem *problem, ds_arena *arena, ds_sfb_choice *out,
                        ds_error *err) {
    DS_TRY(check(problem, err));
    network n = {.arena = arena, .n_vertices = DS_MIN_CUT_FIRST_OTHER + problem->n_ops};
    for (uint32_t i = 0; i < problem->n_ops; i++) add_op(&n, problem, i);
    for (uint32_t i = 0; i < problem->n_tensors; i++) add_tensor(&n, problem, &problem->tensor[i]);
    bool *is_behind = DS_NEW_N(arena, bool, n.n_vertices);
    DS_TRY(ds_min_cut(n.arcs.at, n.arcs.n, n.n_vertices, is_behind, err));
    *out = (ds_sfb_choice){.is_whole = DS_NEW_N(arena, bool, problem->n_ops + 1)};
    for (uint32_t i = 0; i < problem->n_ops; i++)
        out->is_whole[i] = !problem->op[i].stays && is_behind[DS_MIN_CUT_FIRST_OTHER + i];
    count(problem, out);
    return DS_OK;
}
