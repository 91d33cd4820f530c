/* Communication records: which devices meet, how many bytes, how long alone. */
#include "sim/plan/internal.h"

#include "ir/base/units.h"
#include "sim/coll/coll.h"

#include <stdlib.h>
#include <string.h>

static uint64_t devices_key(const uint32_t *devices, uint32_t n, bool ordered) {
    uint64_t key = n;
    if (ordered) return ds_hash_bytes(devices, n * sizeof *devices) | 1;
    for (uint32_t i = 0; i < n; i++) key += ds_hash_mix(0, devices[i]); /* any order */
    return ds_hash_mix(key, n) | 1;
}

/* A group may mix device kinds: the slowest launch, step and efficiency of its profiles count. */
static ds_status profile_terms(ds_builder *b, ds_opcode op, const ds_group *g, ds_coll_cost *terms,
                               ds_error *err) {
    *terms = (ds_coll_cost){.efficiency_q32 = (uint64_t)1 << 32};
    uint32_t last = DS_NONE;
    ds_coll_links links = {.slowest_bytes_per_s = -1};
    for (uint32_t i = 0; i < g->n_devices; i++) {
        uint32_t profile = b->plan->profile_of[g->devices[i]];
        if (profile == last || profile == 0) continue;
        last = profile;
        if (links.slowest_bytes_per_s < 0)
            DS_TRY(ds_coll_links_of(b->plan->topo, g->request, &links, err));
        ds_coll_cost one;
        DS_TRY(ds_cost_collective(b->profiles, profile, ds_op_name(op), g->n_devices, g->bytes,
                                  links, &one, NULL, err));
        if (one.launch_ps > terms->launch_ps) terms->launch_ps = one.launch_ps;
        if (one.step_ps > terms->step_ps) terms->step_ps = one.step_ps;
        if (one.efficiency_q32 < terms->efficiency_q32) terms->efficiency_q32 = one.efficiency_q32;
        terms->from_profile = terms->from_profile || one.from_profile;
        terms->extrapolated = terms->extrapolated || one.extrapolated;
        terms->holds_compute = terms->holds_compute || one.holds_compute;
    }
    return DS_OK;
}

/* {shift = 1, route = "single", algorithm = "ring"}: how the group does it. */
static ds_status read_options(ds_builder *b, const ds_op *op, const ds_env *env,
                              ds_coll_request *request, ds_error *err) {
    request->shift = 1;
    DS_TRY(ds_op_attr_int(op, env, "chunks", &request->chunks, err));
    if (op->code == DS_OP_PERMUTE) DS_TRY(ds_op_attr_int(op, env, "shift", &request->shift, err));
    request->algorithm =
        ds_attr_text(&b->unit->exprs, ds_attr_find(op->attrs, op->n_attrs, "algorithm"));
    const char *route =
        ds_attr_text(&b->unit->exprs, ds_attr_find(op->attrs, op->n_attrs, "route"));
    request->single_route = route && strcmp(route, "single") == 0;
    if (route && !request->single_route)
        return ds_error_set(err, DS_ERR_VALUE, op->loc,
                            "route = \"%s\": the only choice is \"single\"; without it all equally "
                            "good paths share the bytes",
                            route);
    return DS_OK;
}

ds_status ds_plan__group_cost(ds_builder *b, const ds_op *op, ds_opcode code,
                              const ds_index *indices, uint32_t root, const int64_t *shard_bytes,
                              ds_group *g, ds_error *err) {
    ds_env env = ds_binding_env(b->binding, indices);
    const ds_attr *given = ds_attr_find(op->attrs, op->n_attrs, "cost");
    g->key = devices_key(g->devices, g->n_devices, code == DS_OP_SEND);
    if (given) {
        g->algorithm = "given";
        return ds_quantity_eval(&env, (ds_quantity){given->expr, given->unit}, 'T', 1e12,
                                given->loc, &g->ps, err);
    }
    bool host = code == DS_OP_OFFLOAD || code == DS_OP_RELOAD;
    if (g->n_devices < 2 && !host) return DS_OK;
    ds_coll_request *request = DS_NEW(&b->plan->arena, ds_coll_request);
    *request = (ds_coll_request){.op = code,
                                 .devices = g->devices,
                                 .n = g->n_devices,
                                 .root = root,
                                 .host = host ? b->plan->host_of[g->devices[0]] : DS_NONE,
                                 .bytes = g->bytes,
                                 .loc = op->loc};
    if (shard_bytes) {
        int64_t *shards = DS_NEW_N(&b->plan->arena, int64_t, g->n_devices);
        memcpy(shards, shard_bytes, g->n_devices * sizeof *shards);
        request->shard_bytes = shards;
    }
    DS_TRY(read_options(b, op, &env, request, err));
    g->request = request;
    DS_TRY(profile_terms(b, code, g, &g->terms, err));
    ds_coll_choice choice;
    DS_TRY(ds_coll_choose(b->plan->topo, request, &g->terms, &b->plan->arena, &choice, err));
    g->ps = choice.ps;
    g->algorithm = choice.algorithm;
    g->times = choice.phases;
    g->n_phases = choice.n_phases;
    return DS_OK;
}

/* What a communication does, whatever its spelling: the collective, its groups one after another,
 * and in which placements its values lie. */
typedef struct shape_of_comm {
    ds_opcode op;
    uint32_t *devices; /* n_groups × group_size */
    uint32_t n_groups, group_size;
    uint32_t root_place; /* placement that holds the roots; DS_NONE: none */
} shape_of_comm;

static bool same_split(const ds_split *a, const ds_split *b) {
    if (a->axis != b->axis || a->n_sizes != b->n_sizes) return false;
    for (uint32_t i = 0; i < a->n_sizes; i++)
        if (a->sizes[i].i != b->sizes[i].i) return false;
    return true;
}

static bool splits_equal(const ds_dim *a, const ds_dim *b, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (!same_split(&a->splits[i], &b->splits[i])) return false;
    return true;
}

/* Reshard inside one placement, where it is one collective: a partial is summed, one dim is
 * gathered or cut, or a split moves between dims. Sets *op to DS_OP_INVALID where no data moves. */
static ds_status classify_reshard(const ds_op *op, const ds_type *from, const ds_type *to,
                                  ds_opcode *code, const char ***axes, uint32_t *n_axes,
                                  ds_arena *arena, ds_error *err) {
    uint32_t gathered = 0, cut = 0, n_cut = 0;
    bool same_axes =
        true; /* those cut are those gathered, in order: a split moves to another dim */
    *axes = DS_NEW_N(arena, const char *, DS_MAX_RANK * 4 + from->n_partials);
    *n_axes = 0;
    for (uint32_t d = 0; d < from->rank; d++) {
        const ds_dim *a = &from->dims[d], *z = &to->dims[d];
        uint32_t common = a->n_splits < z->n_splits ? a->n_splits : z->n_splits;
        if (!splits_equal(a, z, common)) goto refuse;
        for (uint32_t s = common; s < a->n_splits; s++) {
            if (*n_axes == DS_MAX_RANK * 4) goto refuse;
            (*axes)[(*n_axes)++] = a->splits[s].axis;
        }
        gathered += a->n_splits > common;
        cut += z->n_splits > common;
    }
    for (uint32_t d = 0; d < from->rank; d++)
        for (uint32_t s = from->dims[d].n_splits; s < to->dims[d].n_splits; s++, n_cut++)
            same_axes =
                same_axes && n_cut < *n_axes && to->dims[d].splits[s].axis == (*axes)[n_cut];
    bool sums = from->n_partials > to->n_partials;
    if (sums && !gathered && !cut && to->n_partials == 0) {
        for (uint32_t i = 0; i < from->n_partials; i++)
            (*axes)[(*n_axes)++] = from->partials[i].axis;
        *code = DS_OP_ALL_REDUCE;
        return DS_OK;
    }
    if (sums) goto refuse;
    if (gathered == 0) { /* nothing changes, or each device keeps a part of what it has */
        *code = DS_OP_INVALID;
        return DS_OK;
    }
    if (gathered == 1 && (cut == 0 || (cut == 1 && same_axes && n_cut == *n_axes))) {
        *code = cut ? DS_OP_ALL_TO_ALL : DS_OP_ALL_GATHER;
        return DS_OK;
    }
refuse:
    return ds_error_set(err, DS_ERR_UNSUPPORTED, op->loc,
                        "this reshard is more than one collective: write it as all_reduce, "
                        "all_gather, all_to_all or slice steps");
}

static ds_status over_axes(ds_builder *b, const ds_site *site, const uint32_t *in_places,
                           const uint32_t *out_places, shape_of_comm *c, ds_error *err) {
    const ds_op *op = site->op;
    c->op = op->code;
    const char *const *axes = op->over;
    uint32_t n_axes = op->n_over;
    uint32_t members = in_places[0];
    if (op->code == DS_OP_RESHARD) {
        if (in_places[0] != out_places[0])
            return ds_error_set(
                err, DS_ERR_UNSUPPORTED, op->loc,
                "%%%s: a reshard from one mesh to another is not simulated in this version "
                "(exec runs it): give overrides axes of the strategy's own mesh, or write sends "
                "between slices of equal size",
                ds_value_at(site->ctx->func, op->out[0])->name);
        const char **named;
        DS_TRY(classify_reshard(op, site->in[0].type, site->out[0].type, &c->op, &named, &n_axes,
                                &b->plan->arena, err));
        axes = named;
        if (c->op == DS_OP_INVALID) return DS_OK; /* no groups: an alias */
    }
    if (op->code == DS_OP_BROADCAST || op->code == DS_OP_SCATTER) {
        members = out_places[0];
        c->root_place = in_places[0];
    } else if (op->code == DS_OP_GATHER || op->code == DS_OP_REDUCE) {
        c->root_place = out_places[0];
    }
    ds_plan__groups(b, ds_plan__placement(b, members), axes, n_axes, &c->devices, &c->n_groups,
                    &c->group_size);
    if (c->group_size == 1) c->n_groups = 0;
    return DS_OK;
}

/* The next axis from *at on that is larger than 1; n_axes: none. */
static uint32_t next_axis(const ds_placement *p, uint32_t *at) {
    while (*at < p->n_axes && p->sizes[*at] == 1) ++*at;
    return *at < p->n_axes ? (*at)++ : p->n_axes;
}

static bool same_axes(const ds_placement *a, const ds_placement *b) {
    for (uint32_t i = 0, k = 0;;) {
        uint32_t x = next_axis(a, &i), y = next_axis(b, &k);
        if (x == a->n_axes || y == b->n_axes) return x == a->n_axes && y == b->n_axes;
        if (a->axes[x] != b->axes[y] || a->sizes[x] != b->sizes[y]) return false;
    }
}

static void put_shape(const ds_placement *p, ds_buf *out) {
    const char *gap = "[";
    for (uint32_t at = 0, a; (a = next_axis(p, &at)) < p->n_axes; gap = ", ")
        ds_buf_printf(out, "%s%s = %lld", gap, p->axes[a], (long long)p->sizes[a]);
    ds_buf_put(out, *gap == '[' ? "[]" : "]");
}

static ds_status other_shape(const ds_op *op, const ds_placement *x, const ds_placement *y,
                             ds_error *err) {
    ds_buf text = {0};
    put_shape(x, &text);
    ds_buf_put(&text, " and ");
    put_shape(y, &text);
    ds_status status =
        ds_error_set(err, DS_ERR_SHARDING, op->loc,
                     "%s across: slices %s have different shapes; their i-th devices form a group",
                     ds_op_name(op->code), text.text);
    ds_buf_deinit(&text);
    return status;
}

/* Two places of one `across`: of one shape, without a device in both. A root may be one of those
 * that it sends to or gathers from, then at the same positions. */
static ds_status meet(const ds_builder *b, const ds_op *op, const ds_placement *x,
                      const ds_placement *y, bool rooted, bool *same, ds_error *err) {
    *same = false;
    if (!same_axes(x, y)) return other_shape(op, x, y, err);
    *same = rooted && memcmp(x->devices, y->devices, x->n_devices * sizeof *x->devices) == 0;
    for (uint32_t p = 0; p < x->n_devices && !*same; p++)
        if (ds_plan__position(y, x->devices[p]) != DS_NONE)
            return ds_error_set(err, DS_ERR_SHARDING, op->loc,
                                "%s across: %s is in two of the slices", ds_op_name(op->code),
                                ds_topo_device_path(b->plan->topo, x->devices[p]));
    return DS_OK;
}

/* One value a device, as in DistIR, or a mesh slice: the i-th devices of all operands' places, and
 * of those after `to`, are a group. */
static ds_status across_places(ds_builder *b, const ds_site *site, const uint32_t *in_places,
                               const uint32_t *out_places, shape_of_comm *c, ds_error *err) {
    const ds_op *op = site->op;
    uint32_t n_all = op->n_in + (op->n_to ? op->n_out : 0);
    const ds_placement **members = DS_NEW_N(&b->plan->arena, const ds_placement *, n_all);
    c->op = op->code;
    for (uint32_t i = 0; i < n_all; i++) {
        bool to = i >= op->n_in, known = false, same;
        const ds_placement *p = ds_plan__placement(b, to ? out_places[i - op->n_in] : in_places[i]);
        for (uint32_t k = 0; k < c->group_size; k++) {
            DS_TRY(meet(b, op, members[k], p, to && k < op->n_in, &same, err));
            known = known || same;
        }
        if (!known) members[c->group_size++] = p;
    }
    c->n_groups = c->group_size == 1 ? 0 : members[0]->n_devices;
    c->devices = DS_NEW_N(&b->plan->arena, uint32_t, c->n_groups * c->group_size);
    for (uint32_t g = 0; g < c->n_groups; g++)
        for (uint32_t k = 0; k < c->group_size; k++)
            c->devices[g * c->group_size + k] = members[k]->devices[g];
    if (op->code == DS_OP_BROADCAST || op->code == DS_OP_SCATTER) c->root_place = in_places[0];
    if (op->code == DS_OP_GATHER || op->code == DS_OP_REDUCE) c->root_place = out_places[0];
    return DS_OK;
}

static ds_status pairwise(ds_builder *b, const ds_site *site, const uint32_t *in_places,
                          const uint32_t *out_places, shape_of_comm *c, ds_error *err) {
    const ds_placement *from = ds_plan__placement(b, in_places[0]);
    const ds_placement *to = ds_plan__placement(b, out_places[0]);
    if (from->n_devices != to->n_devices)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, site->op->loc,
                            "send from %u devices to %u: slices must be of equal size",
                            from->n_devices, to->n_devices);
    c->op = DS_OP_SEND;
    c->group_size = 2;
    c->devices = DS_NEW_N(&b->plan->arena, uint32_t, 2 * from->n_devices);
    for (uint32_t i = 0; i < from->n_devices; i++) {
        if (from->devices[i] == to->devices[i]) continue;
        c->devices[2 * c->n_groups] = from->devices[i];
        c->devices[2 * c->n_groups++ + 1] = to->devices[i];
    }
    bool shared = c->n_groups && c->n_groups != from->n_devices;
    for (uint32_t i = 0; c->n_groups && i < from->n_devices; i++)
        shared |= ds_plan__position(to, from->devices[i]) != DS_NONE;
    if (shared)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, site->op->loc,
                            "send between slices that share some of their devices: a device would "
                            "send and receive in one op; send part by part, or use permute");
    return DS_OK;
}

/* Bytes of one member's operands or results; 0 where they do not live on the device. */
static ds_status member_bytes(ds_builder *b, const ds_site *site, const ds_typed *types, uint32_t n,
                              const uint32_t *places, uint32_t device, int64_t *each,
                              int64_t *total, ds_error *err) {
    *total = 0;
    for (uint32_t i = 0; i < n; i++) {
        const ds_placement *p = ds_plan__placement(b, places[i]);
        uint32_t pos = ds_plan__position(p, device);
        int64_t bytes = 0;
        ds_plan__enter(site->region, p, pos == DS_NONE ? 0 : pos);
        ds_status status = DS_OK;
        if (pos != DS_NONE)
            status = ds_plan__local_bytes(b, types[i], p, pos, site->op->loc, &bytes, err);
        ds_plan__enter(site->region, NULL, 0);
        DS_TRY(status);
        if (each) each[i] = bytes;
        if (!ds_add_i64(*total, bytes, total))
            return ds_error_set(err, DS_ERR_OVERFLOW, site->op->loc, "more than 2^63 bytes");
    }
    return DS_OK;
}

static bool shards_in(ds_opcode op) {
    return op == DS_OP_ALL_GATHER || op == DS_OP_GATHER;
}

static bool shards_out(ds_opcode op) {
    return op == DS_OP_REDUCE_SCATTER || op == DS_OP_SCATTER;
}

/* The nccl-tests size of a group from what each member holds before and after: the sum of the
 * shards, or the largest buffer. */
static ds_status size_of(ds_opcode op, ds_loc loc, const int64_t *in, const int64_t *out,
                         uint32_t n, int64_t *size, ds_error *err) {
    const int64_t *held = shards_out(op) || op == DS_OP_BROADCAST ? out : in;
    bool sum = shards_in(op) || shards_out(op);
    *size = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (sum && !ds_add_i64(*size, held[i], size))
            return ds_error_set(err, DS_ERR_OVERFLOW, loc, "%s moves more than 2^63 bytes",
                                ds_op_name(op));
        if (!sum && held[i] > *size) *size = held[i];
    }
    return DS_OK;
}

static ds_status cost_groups(ds_builder *b, const ds_site *site, const uint32_t *in_places,
                             const uint32_t *out_places, const shape_of_comm *c, ds_record *r,
                             ds_error *err) {
    const ds_op *op = site->op;
    uint32_t n = c->group_size;
    int64_t *in = DS_NEW_N(&b->plan->arena, int64_t, n),
            *out = DS_NEW_N(&b->plan->arena, int64_t, n);
    const ds_placement *roots =
        c->root_place == DS_NONE ? NULL : ds_plan__placement(b, c->root_place);
    for (uint32_t g = 0; g < c->n_groups; g++) {
        ds_group *group = &r->groups[g];
        *group = (ds_group){.devices = c->devices + (size_t)g * n, .n_devices = n};
        uint32_t root = 0;
        for (uint32_t i = 0; i < n; i++) {
            uint32_t device = group->devices[i];
            DS_TRY(member_bytes(b, site, site->in, op->n_in, in_places, device, NULL, &in[i], err));
            DS_TRY(member_bytes(b, site, site->out, op->n_out, out_places, device, NULL, &out[i],
                                err));
            if (roots && ds_plan__position(roots, device) != DS_NONE) root = i;
        }
        DS_TRY(size_of(c->op, op->loc, in, out, n, &group->bytes, err));
        const int64_t *shards = shards_in(c->op) ? in : shards_out(c->op) ? out : NULL;
        DS_TRY(ds_plan__group_cost(b, op, c->op, site->indices, root, shards, group, err));
    }
    return DS_OK;
}

ds_status ds_plan__comm_record(ds_builder *b, const ds_site *site, const uint32_t *in_places,
                               const uint32_t *out_places, ds_record *r, ds_error *err) {
    const ds_op *op = site->op;
    shape_of_comm c = {.root_place = DS_NONE};
    r->kind = DS_REC_COMM;
    if (op->across)
        DS_TRY(across_places(b, site, in_places, out_places, &c, err));
    else if (op->code == DS_OP_SEND)
        DS_TRY(pairwise(b, site, in_places, out_places, &c, err));
    else if (op->n_to)
        DS_TRY(across_places(b, site, in_places, out_places, &c, err));
    else
        DS_TRY(over_axes(b, site, in_places, out_places, &c, err));
    r->n_groups = c.n_groups;
    if (!c.n_groups) return DS_OK;
    if ((c.op == DS_OP_ALL_TO_ALL || c.op == DS_OP_PERMUTE) &&
        (ds_plan__is_uneven(site->in[0].type) || ds_plan__is_uneven(site->out[0].type)))
        return ds_error_set(
            err, DS_ERR_UNSUPPORTED, op->loc,
            "%s of uneven shards is not simulated in this version; gathers, scatters "
            "and reduce_scatter are",
            ds_op_name(c.op));
    r->groups = DS_NEW_N(&b->plan->arena, ds_group, c.n_groups);
    ds_plan__set_devices(b, r, c.devices, c.n_groups * c.group_size);
    r->group_of = DS_NEW_N(&b->plan->arena, uint32_t, r->n_devices);
    for (uint32_t i = 0; i < c.n_groups * c.group_size; i++)
        r->group_of[ds_plan__member(r, c.devices[i])] = i / c.group_size;
    /* Members differ in what they receive: at most one variant per distinct list of result bytes.
     */
    DS_VEC(ds_variant) variants = {0};
    for (uint32_t i = 0; i < r->n_devices; i++) {
        int64_t *bytes = DS_NEW_N(&b->plan->arena, int64_t, op->n_out), total;
        DS_TRY(member_bytes(b, site, site->out, op->n_out, out_places, r->devices[i], bytes, &total,
                            err));
        uint32_t v = 0;
        while (v < variants.n &&
               memcmp(variants.at[v].out_bytes, bytes, op->n_out * sizeof *bytes) != 0)
            v++;
        if (v == variants.n)
            DS_PUSH(&b->plan->arena, &variants, ((ds_variant){.out_bytes = bytes}));
        r->variant_of[i] = v;
    }
    r->variants = variants.at;
    r->n_variants = variants.n;
    return cost_groups(b, site, in_places, out_places, &c, r, err);
}

/* ---- host memory ---- */

/* Found when the first op asks. A device may have none as long as nothing of it is offloaded. */
static void find_hosts(ds_builder *b) {
    ds_plan *plan = b->plan;
    if (plan->host_of) return;
    plan->host_of = DS_NEW_N(&plan->arena, uint32_t, plan->n_devices);
    ds_topo_nearest_hosts(plan->topo, plan->host_of);
}

static ds_status no_host(const ds_builder *b, const ds_site *site, uint32_t device, ds_error *err) {
    return ds_error_set(err, DS_ERR_UNREACHABLE, site->op->loc,
                        "%s: no host can be reached from %s of topology @%s: it needs a `host`, "
                        "and links to it",
                        ds_op_name(site->op->code), ds_topo_device_path(b->plan->topo, device),
                        b->topology->name);
}

/* The transfer of the device at `pos`. Each way between a device and its host is a stream. */
static ds_status host_group(ds_builder *b, const ds_site *site, const ds_placement *p, uint32_t pos,
                            ds_group *group, int64_t *out_bytes, ds_error *err) {
    ds_opcode code = site->op->code;
    *group = (ds_group){.devices = &p->devices[pos], .n_devices = 1};
    if (b->plan->host_of[p->devices[pos]] == DS_NONE) return no_host(b, site, p->devices[pos], err);
    ds_plan__enter(site->region, p, pos);
    ds_status status =
        ds_plan__local_bytes(b, site->in[0], p, pos, site->op->loc, &group->bytes, err);
    if (status == DS_OK)
        status = ds_plan__group_cost(b, site->op, code, site->indices, 0, NULL, group, err);
    ds_plan__enter(site->region, NULL, 0);
    group->key = ds_hash_mix(group->key, code) | 1;
    *out_bytes = group->bytes;
    return status;
}

ds_status ds_plan__host_record(ds_builder *b, const ds_site *site, uint32_t place, ds_record *r,
                               ds_error *err) {
    const ds_placement *p = ds_plan__placement(b, place);
    find_hosts(b);
    r->kind = DS_REC_COMM;
    r->n_groups = r->n_variants = p->n_devices;
    r->groups = DS_NEW_N(&b->plan->arena, ds_group, p->n_devices);
    r->variants = DS_NEW_N(&b->plan->arena, ds_variant, p->n_devices);
    r->group_of = DS_NEW_N(&b->plan->arena, uint32_t, p->n_devices);
    ds_plan__set_devices(b, r, p->devices, p->n_devices);
    for (uint32_t pos = 0; pos < p->n_devices; pos++) {
        uint32_t member = ds_plan__member(r, p->devices[pos]);
        r->group_of[member] = r->variant_of[member] = pos;
        r->variants[pos].out_bytes = DS_NEW(&b->plan->arena, int64_t);
        DS_TRY(host_group(b, site, p, pos, &r->groups[pos], r->variants[pos].out_bytes, err));
    }
    return DS_OK;
}

/* ---- per-rank programs ---- */

static ds_status rank_device(ds_builder *b, const ds_site *site, ds_expr rank, uint32_t *device,
                             ds_error *err) {
    ds_env env = ds_binding_env(b->binding, site->indices);
    int64_t r;
    DS_TRY(ds_expr_eval_int(&env, rank, site->op->loc, &r, err));
    if (r < 0 || r >= b->n_rank_devices)
        return ds_error_set(err, DS_ERR_VALUE, site->op->loc,
                            "rank %lld: the cluster has ranks 0 to %u", (long long)r,
                            b->n_rank_devices - 1);
    *device = b->rank_devices[r];
    return DS_OK;
}

/* What both ends of a rendezvous must agree on, as text: "f32[8]", or
 * "all_reduce f32[8] group (0, 1) algorithm=ring". */
static ds_status half_terms(ds_builder *b, const ds_site *site, const ds_placement *p, ds_record *r,
                            ds_error *err) {
    static const char *const options[] = {"algorithm", "route", "op"};
    const ds_op *op = site->op;
    ds_env env = ds_binding_env(b->binding, site->indices);
    ds_buf text = {0};
    if (op->has_group) ds_buf_printf(&text, "%s ", ds_op_name(op->code));
    const ds_typed *types = op->n_in ? site->in : site->out;
    for (uint32_t i = 0; i < (op->n_in ? op->n_in : op->n_out); i++) {
        ds_shape shape;
        ds_status status = ds_plan__local_shape(b, types[i], p, 0, op->loc, &shape, err);
        if (status != DS_OK) {
            ds_buf_deinit(&text);
            return status;
        }
        ds_buf_printf(&text, "%s%s[", i ? ", " : "", ds_dtype_name(shape.dtype));
        for (uint32_t d = 0; d < shape.rank; d++)
            ds_buf_printf(&text, "%s%lld", d ? ", " : "", (long long)shape.dims[d]);
        ds_buf_put(&text, "]");
    }
    if (op->has_group) {
        int64_t root = 0, shift = 1, dim = -1;
        for (uint32_t i = 0; i < op->n_group; i++) {
            int64_t rank = 0;
            ds_expr_eval_int(&env, op->group[i], op->loc, &rank, NULL); /* evaluated before */
            ds_buf_printf(&text, "%s%lld", i ? ", " : " group (", (long long)rank);
        }
        ds_buf_put(&text, ")");
        if (ds_op_attr_int(op, &env, "root", &root, NULL) == DS_OK && root)
            ds_buf_printf(&text, " root=%lld", (long long)root);
        if (ds_op_attr_int(op, &env, "shift", &shift, NULL) == DS_OK && shift != 1)
            ds_buf_printf(&text, " shift=%lld", (long long)shift);
        if (DS_HAS_EXPR(op->dim) && ds_expr_eval_int(&env, op->dim, op->loc, &dim, NULL) == DS_OK)
            ds_buf_printf(&text, " dim %lld", (long long)dim);
    }
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        const char *word =
            ds_attr_text(&b->unit->exprs, ds_attr_find(op->attrs, op->n_attrs, options[i]));
        if (word) ds_buf_printf(&text, " %s=%s", options[i], word);
    }
    r->terms = ds_arena_strdup(&b->plan->arena, text.text);
    ds_buf_deinit(&text);
    return DS_OK;
}

ds_status ds_plan__half_record(ds_builder *b, const ds_site *site, ds_record *r, ds_error *err) {
    const ds_op *op = site->op;
    r->kind = DS_REC_HALF;
    uint32_t self = site->rank_device;
    ds_group *g = DS_NEW(&b->plan->arena, ds_group);
    uint32_t n = op->has_group ? op->n_group : 2;
    uint32_t *devices = DS_NEW_N(&b->plan->arena, uint32_t, n);
    bool member = false;
    if (op->has_group) {
        for (uint32_t i = 0; i < n; i++) {
            DS_TRY(rank_device(b, site, op->group[i], &devices[i], err));
            member |= devices[i] == self;
        }
    } else if (op->code == DS_OP_SEND || op->code == DS_OP_RECV) {
        r->is_recv = op->code == DS_OP_RECV;
        uint32_t peer;
        DS_TRY(rank_device(b, site, r->is_recv ? op->from_rank : op->to_rank, &peer, err));
        devices[0] = r->is_recv ? peer : self;
        devices[1] = r->is_recv ? self : peer;
        member = peer != self;
    } else {
        return ds_error_set(err, DS_ERR_SHARDING, op->loc,
                            "in a per-rank program %s needs `group (ranks)`", r->label);
    }
    if (!member)
        return ds_error_set(err, DS_ERR_VALUE, op->loc,
                            op->has_group ? "this rank is not in the group of its own %s"
                                          : "this rank's %s is with itself",
                            r->label);
    g->devices = devices;
    g->n_devices = n;
    r->groups = g;
    r->n_groups = 1;
    r->match_key = devices_key(devices, n, !op->has_group);
    if (!op->has_group) {
        int64_t tag = 0;
        ds_env env = ds_binding_env(b->binding, site->indices);
        if (DS_HAS_EXPR(op->tag)) DS_TRY(ds_expr_eval_int(&env, op->tag, op->loc, &tag, err));
        r->match_key = ds_hash_mix(r->match_key, (uint64_t)tag);
    }
    ds_plan__set_devices(b, r, &self, 1);
    const ds_placement *p = ds_plan__placement(b, ds_plan__single(b, self));
    r->n_variants = 1;
    r->variants = DS_NEW(&b->plan->arena, ds_variant);
    r->variants[0].out_bytes = DS_NEW_N(&b->plan->arena, int64_t, op->n_out);
    int64_t in, out;
    uint32_t *here = DS_NEW_N(&b->plan->arena, uint32_t, op->n_in + op->n_out);
    for (uint32_t i = 0; i < op->n_in + op->n_out; i++) here[i] = ds_plan__single(b, self);
    DS_TRY(member_bytes(b, site, site->in, op->n_in, here, self, NULL, &in, err));
    DS_TRY(member_bytes(b, site, site->out, op->n_out, here, self, r->variants[0].out_bytes, &out,
                        err));
    g->bytes = in > out ? in : out;
    int64_t root = 0;
    ds_env env = ds_binding_env(b->binding, site->indices);
    if (op->has_group) DS_TRY(ds_op_attr_int(op, &env, "root", &root, err));
    if (root < 0 || root >= n)
        return ds_error_set(err, DS_ERR_VALUE, op->loc,
                            "root %lld is outside the group of %u ranks", (long long)root, n);
    DS_TRY(half_terms(b, site, p, r, err));
    return ds_plan__group_cost(b, op, op->has_group ? op->code : DS_OP_SEND, site->indices,
                               (uint32_t)root, NULL, g, err);
}
