/* Stores in the hosts' memory: `zeros {host = depth}`, filled by `put`, which is then a transfer to
 * the host, and read by `slice`, which is then one back.
 *
 * At most `depth` points are on the device on their way out: what is computed after the n-th put
 * waits for the end of put n - depth + 1. At most `depth` are on their way in or in use: slice n
 * waits for what was computed before slice n - depth + 1. The waits are operands of the instances
 * that are only waited for. A slice of one point waits for the put of the point alone, and a put
 * for the last slice of the point. */
#include "sim/plan/values.h"

struct ds_plan_store {
    int64_t depth, n_puts, n_slices;
    uint32_t *puts, *marks; /* [depth]: the last ones, as values */
    uint32_t points;        /* its points in b->host_points */
    int64_t place;          /* of the op at hand; -1: several points */
};

enum { PLACE_BITS = 40 };

static struct ds_plan_store *store_of(const ds_builder *b, uint32_t value) {
    if (value == DS_NONE) return NULL;
    const uint64_t *found = ds_map_find(&b->store_of, ds_plan__instance(b, value) + UINT64_C(1));
    return found ? (struct ds_plan_store *)(uintptr_t)*found : NULL;
}

bool ds_plan__at_host(const ds_builder *b, const ds_op *op) {
    return (op->code == DS_OP_PUT || op->code == DS_OP_SLICE) && b->store_of.n && b->reads.n &&
           store_of(b, b->reads.at[0]);
}

ds_status ds_plan__store_at_host(ds_builder *b, const ds_op *op, uint32_t value, ds_error *err) {
    ds_env env = ds_binding_env(b->binding, NULL);
    int64_t depth = 1;
    DS_TRY(ds_op_attr_int(op, &env, "host", &depth, err));
    if (depth > ds_plan__limit(b)) return ds_plan__too_large(b, op->loc, err);
    struct ds_plan_store *store = DS_NEW(&b->plan->arena, struct ds_plan_store);
    *store = (struct ds_plan_store){.depth = depth, .points = ++b->n_host_points};
    store->puts = DS_NEW_N(&b->plan->arena, uint32_t, depth);
    store->marks = DS_NEW_N(&b->plan->arena, uint32_t, depth);
    ds_map_put(&b->store_of, value + UINT64_C(1), DS_KEY(store));
    b->plan->values.at[value].is_host = true;
    return DS_OK;
}

/* ---- points ---- */

static uint64_t key_of(const struct ds_plan_store *store) {
    return (uint64_t)store->points << PLACE_BITS | (uint64_t)store->place;
}

/* The last put (low half) and the last slice since of the point at hand, each 1 + a value. */
static uint64_t moves_of(const ds_builder *b, const struct ds_plan_store *store) {
    const uint64_t *found = store->place < 0 ? NULL : ds_map_find(&b->host_points, key_of(store));
    return found ? *found : 0;
}

/* Another op would read the hosts' memory. */
static ds_status check_reads(const ds_builder *b, const ds_op *op, ds_error *err) {
    for (uint32_t i = ds_plan__at_host(b, op); i < b->reads.n; i++)
        if (b->reads.at[i] != DS_NONE && store_of(b, b->reads.at[i]))
            return ds_error_set(err, DS_ERR_UNSUPPORTED, op->loc,
                                "%s of a store in the memory of the hosts: `put` and `slice` move "
                                "parts of the store, and no other op reads the store",
                                ds_op_name(op->code));
    return DS_OK;
}

ds_status ds_plan__point_at_host(ds_builder *b, const ds_func *func, const ds_op *op,
                                 const ds_index *indices, ds_error *err) {
    if (!b->store_of.n || b->on_symbols) return DS_OK;
    DS_TRY(check_reads(b, op, err));
    if (!ds_plan__at_host(b, op)) return DS_OK;
    struct ds_plan_store *store = store_of(b, b->reads.at[0]);
    ds_env env = ds_binding_env(b->binding, indices);
    int64_t dim = 0, at = 0, n;
    bool puts = op->code == DS_OP_PUT;
    const char *place = puts ? "at" : "lo";
    if (ds_attr_find(op->attrs, op->n_attrs, "dim"))
        DS_TRY(ds_op_attr_int(op, &env, "dim", &dim, err));
    if (ds_attr_find(op->attrs, op->n_attrs, place))
        DS_TRY(ds_op_attr_int(op, &env, place, &at, err));
    if (puts) {
        const ds_type *part = ds_value_at(func, op->in[1].value)->type;
        DS_TRY(ds_expr_eval_int(&env, part->dims[dim].size, op->loc, &n, err));
    } else {
        DS_TRY(ds_op_attr_int(op, &env, "hi", &n, err));
        n -= at;
    }
    store->place = n == 1 && at >= 0 && at < INT64_C(1) << PLACE_BITS ? at : -1;
    uint32_t put = (uint32_t)moves_of(b, store);
    if (!puts && put) b->reads.at[0] = put - 1;
    return DS_OK;
}

void ds_plan__wait_at_host(ds_builder *b, const ds_op *op, const ds_record *r, uint32_t value) {
    if (!b->store_of.n || b->on_symbols) return;
    if (!ds_plan__at_host(b, op)) {
        if (r->kind != DS_REC_COMPUTE || !r->n_out) return;
        for (uint32_t i = 0; i < b->holds.n; i++) DS_HPUSH(&b->plan->operands, b->holds.at[i]);
        b->holds.n = 0;
        b->computed = value;
        return;
    }
    struct ds_plan_store *store = store_of(b, b->reads.at[0]);
    uint64_t moves = moves_of(b, store);
    uint32_t slice = (uint32_t)(moves >> 32);
    if (op->code == DS_OP_SLICE) {
        int64_t n = store->n_slices++, before = n - store->depth + 1;
        store->marks[n % store->depth] = b->computed;
        uint32_t mark = store->marks[(before > 0 ? before : 0) % store->depth];
        if (mark != DS_NONE) DS_HPUSH(&b->plan->operands, mark);
        moves = (uint32_t)moves | (value + UINT64_C(1)) << 32;
        if (store->place >= 0) ds_map_put(&b->host_points, key_of(store), moves);
        return;
    }
    int64_t n = store->n_puts++, before = n - store->depth + 1;
    store->puts[n % store->depth] = value;
    if (before >= 0) DS_HPUSH(&b->holds, store->puts[before % store->depth]);
    if (slice) DS_HPUSH(&b->plan->operands, slice - 1);
    if (store->place >= 0)
        ds_map_put(&b->host_points, key_of(store), value + UINT64_C(1));
    else
        store->points = ++b->n_host_points; /* of no point is the last put known */
    ds_map_put(&b->store_of, value + UINT64_C(1), DS_KEY(store));
    b->plan->values.at[value].is_host = true;
}
