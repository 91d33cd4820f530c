/* Communication of a schematic plan: its members stand for slices of a mesh.
 *
 * A collective over axes of a slice has the slice's one device as its only member; its bytes are
 * those of a real group, its stream is told by the axes; of unequal parts it has the first, which
 * is the largest. A copy to or from the host has it too. A send has two, and so has an all_reduce
 * across two slices. Nothing takes time. What goes beyond even (or padded) all_reduce, all_gather,
 * reduce_scatter and send, and reshards that move nothing, is refused. */
#include "sim/plan/comm.h"

static ds_status refuse(const ds_op *op, ds_error *err) {
    return ds_error_set(err, DS_ERR_UNSUPPORTED, op->loc, "%s in a schematic plan",
                        ds_op_name(op->code));
}

/* Between a device and its host. */
static bool is_copy(const ds_op *op) {
    return op->code == DS_OP_OFFLOAD || op->code == DS_OP_RELOAD;
}

static bool is_known(const ds_site *site) {
    const ds_op *op = site->op;
    if (op->has_group || site->region) return false;
    if (ds_attr_find(op->attrs, op->n_attrs, "cost")) return false;
    if (is_copy(op)) return true;
    if (op->code == DS_OP_SEND) return true;
    if (op->across) return op->code == DS_OP_ALL_REDUCE && op->n_in == 2 && !op->n_to;
    if (op->n_to) return false;
    if (op->code == DS_OP_ALL_REDUCE) return true;
    bool even = ds_plan__is_even(site) || ds_op_attr_bool(op, "padded");
    return even && (op->code == DS_OP_ALL_GATHER || op->code == DS_OP_REDUCE_SCATTER);
}

/* Members of a group over the op's axes; *axes tells which these are, in any order. */
static int64_t group_size(const ds_op *op, const ds_placement *p, uint64_t *axes) {
    int64_t size = 1;
    *axes = 0;
    for (uint32_t i = 0; i < op->n_over; i++) {
        int64_t n = ds_plan__axis_size(p, op->over[i]);
        size *= n;
        if (n > 1) *axes += ds_hash_mix(1, DS_KEY(op->over[i]));
    }
    return size;
}

/* The size of a group of equal members, of whom the first is known. */
static ds_status group_bytes(ds_builder *b, const ds_site *site, const uint32_t *in_places,
                             const uint32_t *out_places, int64_t members, ds_group *group,
                             ds_error *err) {
    const ds_op *op = site->op;
    int64_t *bytes = &group->bytes;
    bool shards_out = ds_plan__shards_out(op->code);
    ds_placed values = shards_out ? (ds_placed){site->out, op->n_out, out_places}
                                  : (ds_placed){site->in, op->n_in, in_places};
    DS_TRY(ds_plan__member_bytes(b, site, values, group->devices[0], NULL, bytes, err));
    if (!shards_out && !ds_plan__shards_in(op->code)) return DS_OK;
    if (!__builtin_mul_overflow(*bytes, members, bytes)) return DS_OK;
    return ds_error_set(err, DS_ERR_OVERFLOW, op->loc, "%s moves more than 2^63 bytes",
                        ds_op_name(op->code));
}

/* A reshard within a slice that moves nothing. */
static bool is_cut(ds_builder *b, const ds_site *site, uint32_t from, uint32_t to) {
    ds_relayout layout;
    if (from != to || ds_attr_find(site->op->attrs, site->op->n_attrs, "algorithm")) return false;
    ds_plan__relayout(b, ds_plan__placement(b, from), site->in[0].type, site->out[0].type, &layout);
    return layout.found && layout.n_steps == 0;
}

ds_status ds_plan__schematic_comm(ds_builder *b, const ds_site *site, const uint32_t *in_places,
                                  const uint32_t *out_places, ds_record *r, ds_error *err) {
    const ds_op *op = site->op;
    if (op->code == DS_OP_RESHARD && !site->region && is_cut(b, site, in_places[0], out_places[0]))
        return DS_OK;
    if (!is_known(site)) return refuse(op, err);
    bool sends = op->code == DS_OP_SEND, pair = sends || op->across;
    uint64_t axes = 0;
    const ds_placement *from = ds_plan__placement(b, in_places[0]);
    int64_t members = pair ? 2 : is_copy(op) ? 1 : group_size(op, from, &axes);
    if (members == 1 && !is_copy(op)) return DS_OK; /* moves nothing: no groups */
    uint32_t n = pair ? 2 : 1, *devices = DS_NEW_N(&b->plan->arena, uint32_t, 2);
    devices[0] = from->devices[0];
    devices[1] = ds_plan__placement(b, op->across ? in_places[1] : out_places[0])->devices[0];
    if (pair && devices[0] == devices[1]) return refuse(op, err);
    r->n_groups = 1;
    r->groups = DS_NEW(&b->plan->arena, ds_group);
    *r->groups = (ds_group){.devices = devices, .n_devices = n};
    r->groups->key = ds_hash_mix(ds_plan__devices_key(devices, n, sends), axes) | 1;
    if (is_copy(op)) r->groups->key = ds_hash_mix(r->groups->key, op->code) | 1;
    ds_plan__set_devices(b, r, devices, n);
    r->group_of = DS_NEW_N(&b->plan->arena, uint32_t, n);
    for (uint32_t i = 0; i < n; i++) r->group_of[i] = 0;
    DS_TRY(ds_plan__comm_variants(b, site, out_places, r, err));
    DS_TRY(group_bytes(b, site, in_places, out_places, members, r->groups, err));
    ds_plan__keep_body(b, site, in_places, out_places, r);
    return DS_OK;
}
