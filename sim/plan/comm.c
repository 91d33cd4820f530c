/* Communication records: which devices meet, how many bytes, how long alone. */
#include "sim/plan/comm.h"

#include "ir/base/units.h"
#include "sim/coll/coll.h"

#include <stdlib.h>
#include <string.h>

uint64_t ds_plan__devices_key(const uint32_t *devices, uint32_t n, bool ordered) {
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
        DS_TRY(ds_cost_collective(b->profiles, profile,
                                  &(ds_coll_demand){ds_op_name(op), g->n_devices, g->bytes, links},
                                  &one, NULL, err));
        if (one.launch_ps > terms->launch_ps) terms->launch_ps = one.launch_ps;
        if (one.copy_ps > terms->copy_ps) terms->copy_ps = one.copy_ps;
        if (one.step_ps > terms->step_ps) terms->step_ps = one.step_ps;
        if (one.efficiency_q32 < terms->efficiency_q32) terms->efficiency_q32 = one.efficiency_q32;
        terms->from_profile = terms->from_profile || one.from_profile;
        terms->extrapolated = terms->extrapolated || one.extrapolated;
        if (!(terms->spread.low > 0) ||
            one.spread.high - one.spread.low > terms->spread.high - terms->spread.low)
            terms->spread = one.spread; /* of the profile that is known least well */
        terms->holds_compute = terms->holds_compute || one.holds_compute;
    }
    return DS_OK;
}

/* What the attributes of an all_to_all say of its tokens: {experts = 64, top = 8, …}. */
static ds_status read_exchange(ds_builder *b, const ds_op *op, const ds_env *env,
                               ds_coll_request *request, ds_error *err) {
    int64_t experts = 0, top = 0, tokens = 0, capacity = 0, bytes = 0, nodes = 0;
    DS_TRY(ds_op_attr_int(op, env, "experts", &experts, err));
    DS_TRY(ds_op_attr_int(op, env, "top", &top, err));
    DS_TRY(ds_op_attr_int(op, env, "tokens", &tokens, err));
    DS_TRY(ds_op_attr_int(op, env, "capacity", &capacity, err));
    DS_TRY(ds_op_attr_int(op, env, "token_bytes", &bytes, err));
    DS_TRY(ds_op_attr_int(op, env, "nodes", &nodes, err));
    if (!experts && !top && !tokens && !capacity && !bytes) return DS_OK;
    if (experts < 1 || top < 1 || top > experts || tokens < 1 || capacity < 1 || bytes < 1 ||
        nodes < 0)
        return ds_error_set(err, DS_ERR_VALUE, op->loc,
                            "all_to_all: top = %lld of experts = %lld, tokens = %lld in buffers of "
                            "capacity = %lld, token_bytes = %lld, nodes = %lld: all but nodes are "
                            "1 or more, and top at most experts",
                            (long long)top, (long long)experts, (long long)tokens,
                            (long long)capacity, (long long)bytes, (long long)nodes);
    ds_exchange *x = DS_NEW(&b->plan->arena, ds_exchange);
    *x = (ds_exchange){.experts = experts,
                       .top = top,
                       .limit = nodes,
                       .filled = (double)tokens / ((double)experts * (double)capacity),
                       .bytes = (double)bytes,
                       .back = ds_op_attr_bool(op, "back")};
    request->exchange = x;
    return DS_OK;
}

/* {shift = 1, route = "single", algorithm = "ring"}: how the group does it. */
static ds_status read_options(ds_builder *b, const ds_op *op, const ds_env *env,
                              ds_coll_request *request, ds_error *err) {
    request->shift = 1;
    DS_TRY(ds_op_attr_int(op, env, "chunks", &request->chunks, err));
    if (op->code == DS_OP_ALL_TO_ALL) DS_TRY(read_exchange(b, op, env, request, err));
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

/* Equal shards need not be listed: they are what bytes split evenly gives. */
static bool all_equal(const int64_t *shard_bytes, uint32_t n) {
    for (uint32_t i = 1; i < n; i++)
        if (shard_bytes[i] != shard_bytes[0]) return false;
    return true;
}

/* Terms of profiles, algorithm and time alone of a group that has its request. */
static ds_status cost_alone(ds_builder *b, ds_group *g, ds_error *err) {
    DS_TRY(profile_terms(b, g->request->op, g, &g->terms, err));
    ds_coll_choice choice;
    DS_TRY(ds_coll_choose(b->plan->topo, g->request, &g->terms, &b->plan->arena, &choice, err));
    g->ps = choice.ps;
    g->algorithm = choice.algorithm;
    g->times = choice.phases;
    g->n_phases = choice.n_phases;
    bool bytes = ds_profiles_has(b->profiles, DS_TERM_BANDWIDTH);
    if (!bytes) g->ps -= g->terms.copy_ps;
    for (uint32_t p = 0; p < g->n_phases && !bytes; p++) g->ps -= g->times[p].flow_ps;
    return DS_OK;
}

ds_status ds_plan__group_cost(ds_builder *b, const ds_group_work *work, ds_group *g,
                              ds_error *err) {
    const ds_op *op = work->op;
    ds_opcode code = work->code;
    ds_env env = ds_binding_env(b->binding, work->indices);
    const ds_attr *given = ds_attr_find(op->attrs, op->n_attrs, "cost");
    bool one_way = code == DS_OP_SEND || code == DS_OP_RESHARD;
    g->key = ds_plan__devices_key(g->devices, g->n_devices, one_way);
    if (!ds_profiles_has(b->profiles, DS_TERM_TRANSFERS)) {
        g->algorithm = "none";
        return DS_OK;
    }
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
                                 .root = work->root,
                                 .host = host ? b->plan->host_of[g->devices[0]] : DS_NONE,
                                 .bytes = g->bytes,
                                 .reshard = work->reshard,
                                 .loc = op->loc};
    if (work->shard_bytes && !all_equal(work->shard_bytes, g->n_devices)) {
        int64_t *shards = DS_NEW_N(&b->plan->arena, int64_t, g->n_devices);
        memcpy(shards, work->shard_bytes, g->n_devices * sizeof *shards);
        request->shard_bytes = shards;
    }
    DS_TRY(read_options(b, op, &env, request, err));
    g->request = request;
    return ds_plan__cost_once(b, cost_alone, g, err);
}

static void over_axes(ds_builder *b, const ds_site *site, const uint32_t *in_places,
                      const uint32_t *out_places, ds_comm_shape *c) {
    const ds_op *op = site->op;
    c->op = op->code;
    const char *const *axes = op->over;
    uint32_t n_axes = op->n_over;
    uint32_t members = in_places[0];
    if (op->code == DS_OP_BROADCAST || op->code == DS_OP_SCATTER) {
        members = out_places[0];
        c->root_place = in_places[0];
    } else if (op->code == DS_OP_GATHER || op->code == DS_OP_REDUCE) {
        c->root_place = out_places[0];
    }
    ds_plan__groups(b, ds_plan__placement(b, members), axes, n_axes, &c->devices, &c->n_groups,
                    &c->group_size);
    if (c->group_size == 1) c->n_groups = 0;
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
                               const uint32_t *out_places, ds_comm_shape *c, ds_error *err) {
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
                          const uint32_t *out_places, ds_comm_shape *c, ds_error *err) {
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

ds_status ds_plan__member_bytes(ds_builder *b, const ds_site *site, ds_placed values,
                                uint32_t device, int64_t *each, int64_t *total, ds_error *err) {
    *total = 0;
    for (uint32_t i = 0; i < values.n; i++) {
        const ds_placement *p = ds_plan__placement(b, values.places[i]);
        uint32_t pos = ds_plan__position(p, device);
        int64_t bytes = 0;
        ds_plan__enter(site->region, p, pos == DS_NONE ? 0 : pos);
        ds_status status = DS_OK;
        if (pos != DS_NONE)
            status = ds_plan__local_bytes(b, values.types[i], p, pos, site->op->loc, &bytes, err);
        ds_plan__enter(site->region, NULL, 0);
        DS_TRY(status);
        if (each) each[i] = bytes;
        if (!ds_add_i64(*total, bytes, total))
            return ds_error_set(err, DS_ERR_OVERFLOW, site->op->loc, "more than 2^63 bytes");
    }
    return DS_OK;
}

bool ds_plan__shards_in(ds_opcode op) {
    return op == DS_OP_ALL_GATHER || op == DS_OP_GATHER;
}

bool ds_plan__shards_out(ds_opcode op) {
    return op == DS_OP_REDUCE_SCATTER || op == DS_OP_SCATTER;
}

ds_status ds_plan__size_of(ds_opcode op, ds_loc loc, const int64_t *in, const int64_t *out,
                           uint32_t n, int64_t *size, ds_error *err) {
    const int64_t *held = ds_plan__shards_out(op) || op == DS_OP_BROADCAST ? out : in;
    bool sum = ds_plan__shards_in(op) || ds_plan__shards_out(op);
    *size = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (sum && !ds_add_i64(*size, held[i], size))
            return ds_error_set(err, DS_ERR_OVERFLOW, loc, "%s moves more than 2^63 bytes",
                                ds_op_name(op));
        if (!sum && held[i] > *size) *size = held[i];
    }
    return DS_OK;
}

/* Does the i-th member of every group hold what the i-th of the first does, if shards are even? */
static bool hold_alike(const ds_site *site, const uint32_t *in_places, const uint32_t *out_places,
                       const ds_comm_shape *c) {
    if (c->root_place != DS_NONE) return false;
    if (c->op == DS_OP_SEND || site->op->across) return true;
    for (uint32_t i = 0; i < site->op->n_in; i++)
        if (in_places[i] != in_places[0]) return false;
    for (uint32_t i = 0; i < site->op->n_out; i++)
        if (out_places[i] != in_places[0]) return false;
    return true;
}

/* All parts have the size of the largest. */
static ds_status pad(const ds_op *op, uint32_t n, const int64_t **shards, int64_t *bytes,
                     ds_error *err) {
    int64_t most = 0;
    for (uint32_t i = 0; i < n; i++)
        if ((*shards)[i] > most) most = (*shards)[i];
    *shards = NULL;
    if (ds_mul_i64(most, n, bytes)) return DS_OK;
    return ds_error_set(err, DS_ERR_OVERFLOW, op->loc, "%s moves more than 2^63 bytes",
                        ds_op_name(op->code));
}

static ds_status cost_groups(ds_builder *b, const ds_site *site, const uint32_t *in_places,
                             const uint32_t *out_places, const ds_comm_shape *c, ds_record *r,
                             ds_error *err) {
    const ds_op *op = site->op;
    uint32_t n = c->group_size;
    int64_t *in = DS_NEW_N(&b->plan->arena, int64_t, n),
            *out = DS_NEW_N(&b->plan->arena, int64_t, n);
    const ds_placement *roots =
        c->root_place == DS_NONE ? NULL : ds_plan__placement(b, c->root_place);
    bool once = ds_plan__is_even(site) && hold_alike(site, in_places, out_places, c);
    bool padded = ds_op_attr_bool(op, "padded");
    const ds_placed operands = {site->in, op->n_in, in_places},
                    results = {site->out, op->n_out, out_places};
    for (uint32_t g = 0; g < c->n_groups; g++) {
        ds_group *group = &r->groups[g];
        *group = (ds_group){.devices = c->devices + (size_t)g * n,
                            .n_devices = n,
                            .n_images = c->n_images,
                            .period = c->period};
        uint32_t root = 0;
        for (uint32_t i = 0; i < n && !(once && g); i++) {
            uint32_t device = group->devices[i];
            if (once && i && c->op != DS_OP_SEND && !op->across) { /* all hold as much */
                in[i] = in[0];
                out[i] = out[0];
                continue;
            }
            DS_TRY(ds_plan__member_bytes(b, site, operands, device, NULL, &in[i], err));
            DS_TRY(ds_plan__member_bytes(b, site, results, device, NULL, &out[i], err));
            if (roots && ds_plan__position(roots, device) != DS_NONE) root = i;
        }
        DS_TRY(ds_plan__size_of(c->op, op->loc, in, out, n, &group->bytes, err));
        const int64_t *shards = ds_plan__shards_in(c->op)    ? in
                                : ds_plan__shards_out(c->op) ? out
                                                             : NULL;
        if (padded) DS_TRY(pad(op, n, &shards, &group->bytes, err));
        const ds_group_work work = {op, c->op, site->indices, root, shards, NULL};
        DS_TRY(ds_plan__group_cost(b, &work, group, err));
    }
    return DS_OK;
}

ds_status ds_plan__comm_variants(ds_builder *b, const ds_site *site, const uint32_t *out_places,
                                 ds_record *r, ds_error *err) {
    uint32_t n_out = site->op->n_out, last[2] = {DS_NONE, DS_NONE};
    bool even = n_out == 1 && ds_plan__is_even(site);
    DS_VEC(ds_variant) variants = {0};
    for (uint32_t i = 0; i < r->n_devices; i++) {
        /* An even result is on a device or not; that tells all. */
        uint32_t *known = NULL;
        if (even) {
            const ds_placement *p = ds_plan__placement(b, out_places[0]);
            known = &last[ds_plan__position(p, r->devices[i]) != DS_NONE];
            r->variant_of[i] = *known;
            if (*known != DS_NONE) continue;
        }
        int64_t *bytes = DS_NEW_N(&b->plan->arena, int64_t, n_out), total;
        const ds_placed results = {site->out, n_out, out_places};
        DS_TRY(ds_plan__member_bytes(b, site, results, r->devices[i], bytes, &total, err));
        uint32_t v = 0;
        while (v < variants.n &&
               memcmp(variants.at[v].out_bytes, bytes, n_out * sizeof *bytes) != 0)
            v++;
        if (v == variants.n)
            DS_PUSH(&b->plan->arena, &variants, ((ds_variant){.out_bytes = bytes}));
        r->variant_of[i] = v;
        if (known) *known = v;
    }
    r->variants = variants.at;
    r->n_variants = variants.n;
    return DS_OK;
}

/* The devices of the groups, and which group each is in; of a turn's circle the first alone. */
static void set_members(ds_builder *b, const ds_comm_shape *c, ds_record *r) {
    uint32_t n = c->n_groups * c->group_size, kept = 0;
    uint32_t *devices = ds_xcalloc(n, sizeof *devices);
    for (uint32_t i = 0; i < n; i++)
        if (ds_plan__is_first(b, c->devices[i])) devices[kept++] = c->devices[i];
    ds_plan__set_devices(b, r, devices, kept);
    free(devices);
    r->group_of = DS_NEW_N(&b->plan->arena, uint32_t, r->n_devices);
    for (uint32_t i = 0; i < n; i++)
        if (ds_plan__is_first(b, c->devices[i]))
            r->group_of[ds_plan__member(r, c->devices[i])] = i / c->group_size;
}

static bool any_uneven(const ds_site *site) {
    return ds_plan__is_uneven(site->in[0].type) || ds_plan__is_uneven(site->out[0].type);
}

/* An all_to_all of unequal shards, by no algorithm of its own: every pair exchanges something else,
 * as in a reshard. */
static bool is_uneven_exchange(const ds_site *site) {
    const ds_op *op = site->op;
    return op->code == DS_OP_ALL_TO_ALL && op->n_in == 1 && !op->across &&
           !ds_attr_find(op->attrs, op->n_attrs, "algorithm") && any_uneven(site);
}

ds_status ds_plan__comm_record(ds_builder *b, const ds_site *site, const uint32_t *in_places,
                               const uint32_t *out_places, ds_record *r, ds_error *err) {
    const ds_op *op = site->op;
    ds_comm_shape c = {.root_place = DS_NONE};
    r->kind = DS_REC_COMM;
    if (ds_plan__take_body(b, site, in_places, out_places, r)) return DS_OK;
    if (b->options->schematic)
        return ds_plan__schematic_comm(b, site, in_places, out_places, r, err);
    if (op->code == DS_OP_RESHARD || is_uneven_exchange(site)) {
        DS_TRY(ds_plan__reshard(b, site, in_places, out_places, &c, r, err));
        if (c.op == DS_OP_RESHARD) return b->turn.turn ? ds_plan__refuse_turn(b) : DS_OK;
    } else if (op->across)
        DS_TRY(across_places(b, site, in_places, out_places, &c, err));
    else if (op->code == DS_OP_SEND)
        DS_TRY(pairwise(b, site, in_places, out_places, &c, err));
    else if (op->n_to)
        DS_TRY(across_places(b, site, in_places, out_places, &c, err));
    else
        over_axes(b, site, in_places, out_places, &c);
    r->n_groups = c.n_groups;
    if (!c.n_groups) return DS_OK;
    if ((c.op == DS_OP_ALL_TO_ALL || c.op == DS_OP_PERMUTE) && any_uneven(site))
        return ds_error_set(err, DS_ERR_UNSUPPORTED, op->loc,
                            "%s of uneven shards is not simulated; gathers, scatters, "
                            "reduce_scatter, reshard and an all_to_all of one value without "
                            "`algorithm` are",
                            ds_op_name(c.op));
    if (b->turn.turn && !(ds_plan__is_even(site) && hold_alike(site, in_places, out_places, &c)))
        return ds_plan__refuse_turn(b);
    if (b->turn.turn) DS_TRY(ds_plan__turn_groups(b, &c));
    r->n_groups = c.n_groups;
    r->groups = DS_NEW_N(&b->plan->arena, ds_group, c.n_groups);
    set_members(b, &c, r);
    DS_TRY(ds_plan__comm_variants(b, site, out_places, r, err));
    DS_TRY(cost_groups(b, site, in_places, out_places, &c, r, err));
    ds_plan__keep_body(b, site, in_places, out_places, r);
    return DS_OK;
}

/* ---- host memory ---- */

/* Found when the first op asks. A device may have none as long as nothing of it is offloaded. */
void ds_plan__find_hosts(ds_builder *b) {
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
    bool puts = code == DS_OP_PUT;
    if (site->at_host) code = puts ? DS_OP_OFFLOAD : DS_OP_RELOAD;
    ds_typed moved = puts ? site->in[1] : site->at_host ? site->out[0] : site->in[0];
    *group = (ds_group){.devices = &p->devices[pos], .n_devices = 1};
    if (b->plan->host_of[p->devices[pos]] == DS_NONE) return no_host(b, site, p->devices[pos], err);
    ds_plan__enter(site->region, p, pos);
    ds_status status = ds_plan__local_bytes(b, moved, p, pos, site->op->loc, &group->bytes, err);
    *out_bytes = group->bytes;
    if (status == DS_OK && puts)
        status = ds_plan__local_bytes(b, site->out[0], p, pos, site->op->loc, out_bytes, err);
    const ds_group_work work = {.op = site->op, .code = code, .indices = site->indices};
    if (status == DS_OK) status = ds_plan__group_cost(b, &work, group, err);
    ds_plan__enter(site->region, NULL, 0);
    group->key = ds_hash_mix(group->key, code) | 1;
    return status;
}

ds_status ds_plan__host_record(ds_builder *b, const ds_site *site, uint32_t place, ds_record *r,
                               ds_error *err) {
    const ds_placement *p = ds_plan__placement(b, place);
    if (b->turn.turn) return ds_plan__refuse_turn(b);
    ds_plan__find_hosts(b);
    r->kind = DS_REC_COMM;
    if (!site->at_host && ds_plan__take_body(b, site, &place, &place, r)) return DS_OK;
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
    if (!site->at_host) ds_plan__keep_body(b, site, &place, &place, r);
    return DS_OK;
}
