/* Lowering: an op at a site → a record with placement, local shapes, work and cost. Done once per
 * distinct site; a loop body whose types do not mention the index is one site. */
#include "ir/base/units.h"
#include "ir/verify/degrade.h"
#include "sim/plan/values.h"

#include <stdlib.h>
#include <string.h>

const char *ds_category_name(ds_category category) {
    static const char *const names[] = {
#define DS_X(name, text) text,
        DS_CATEGORY_MAP(DS_X)
#undef DS_X
    };
    return names[category];
}

ds_status ds_plan__category(ds_builder *b, const ds_attr *attrs, uint32_t n, ds_category otherwise,
                            ds_category *out, ds_error *err) {
    const ds_attr *role = ds_attr_find(attrs, n, "role");
    *out = otherwise;
    if (!role) return DS_OK;
    const char *word = ds_attr_text(&b->unit->exprs, role);
    for (uint32_t c = 0; c < DS_CATEGORY_COUNT; c++)
        if (word && strcmp(word, ds_category_name((ds_category)c)) == 0) {
            *out = (ds_category)c;
            return DS_OK;
        }
    return ds_error_set(err, DS_ERR_VALUE, role->loc,
                        "role \"%s\" is none of weight, gradient, optimizer, activation, input, "
                        "buffer",
                        word ? word : "?");
}

/* ---- which sites share a record ---- */

/* What tells records apart: the op (or input value) in its context, and the indices that its types
 * mention, as names and values one after another. */
typedef struct ds_record_site {
    const ds_context *ctx;
    const void *what;
    int64_t *indices;
    uint32_t n_indices;
} ds_record_site;

static uint64_t site_hash(const ds_record_site *site) {
    uint64_t hash = ds_hash_mix(DS_KEY(site->ctx), DS_KEY(site->what));
    return ds_hash_mix(hash, ds_hash_bytes(site->indices, site->n_indices * sizeof(int64_t)));
}

static bool same_site(const ds_record_site *a, const ds_record_site *b) {
    return a->ctx == b->ctx && a->what == b->what && a->n_indices == b->n_indices &&
           (!a->n_indices || memcmp(a->indices, b->indices, a->n_indices * sizeof(int64_t)) == 0);
}

/* The record of a site; if there is none, false and the free hash where it belongs. */
static bool find_record(const ds_builder *b, const ds_record_site *site, uint64_t *hash,
                        uint32_t *out) {
    for (*hash = site_hash(site);; ++*hash) {
        uint64_t *found = ds_map_find(&b->record_index, *hash);
        if (!found) return false;
        if (!same_site(b->plan->records.at[*found]->site, site)) continue;
        *out = (uint32_t)*found;
        return true;
    }
}

static uint32_t add_record(ds_builder *b, ds_record *r, const ds_record_site *site, uint64_t hash) {
    ds_record_site *copy = DS_NEW(&b->plan->arena, ds_record_site);
    *copy = *site;
    copy->indices = DS_NEW_N(&b->plan->arena, int64_t, site->n_indices);
    if (site->n_indices)
        memcpy(copy->indices, site->indices, site->n_indices * sizeof *copy->indices);
    r->site = copy;
    uint32_t id = b->plan->records.n;
    DS_PUSH(&b->plan->arena, &b->plan->records, r);
    ds_map_put(&b->record_index, hash, id);
    return id;
}

bool ds_plan__cached(ds_builder *b, const ds_context *ctx, const ds_op *op, uint32_t *out) {
    uint64_t hash;
    return find_record(b, &(ds_record_site){.ctx = ctx, .what = op}, &hash, out);
}

/* A position in a buffer changes neither bytes nor time: sizes are in types. */
static bool is_position(const ds_op *op, const ds_attr *attr) {
    const char *name = attr->name;
    return (op->code == DS_OP_PUT && strcmp(name, "at") == 0) ||
           (op->code == DS_OP_ROTARY && strcmp(name, "start") == 0) ||
           (op->code == DS_OP_SLICE && (strcmp(name, "lo") == 0 || strcmp(name, "hi") == 0));
}

bool ds_plan__op_mentions(const ds_builder *b, const ds_op *op, const ds_func *func,
                          const char *name) {
    const ds_exprs *exprs = &b->unit->exprs;
    for (uint32_t i = 0; i < op->n_out; i++)
        if (ds_type_mentions(exprs, ds_value_at(func, op->out[i])->type, name)) return true;
    for (uint32_t i = 0; i < op->n_attrs; i++)
        if (ds_attrs_mention(exprs, &op->attrs[i], 1, name) && !is_position(op, &op->attrs[i]))
            return true;
    for (uint32_t i = 0; i < op->n_to; i++)
        if (ds_place_mentions(exprs, &op->to[i], name)) return true;
    ds_expr single[] = {op->to_rank, op->from_rank, op->tag};
    for (uint32_t i = 0; i < 3; i++)
        if (DS_HAS_EXPR(single[i]) && ds_expr_mentions(exprs, single[i], name)) return true;
    for (uint32_t i = 0; i < op->n_group; i++)
        if (ds_expr_mentions(exprs, op->group[i], name)) return true;
    return false;
}

/* Do the op's types, places or attributes depend on a loop index? */
static bool varies(ds_builder *b, const ds_site *site) {
    for (uint32_t i = 0; i < site->op->n_in; i++)
        if (ds_plan__type(b, site->in[i].type)->varies) return true;
    return ds_plan__op_mentions(b, site->op, site->ctx->func, NULL);
}

/* The loop indices that the record of an op depends on. The same wherever the op stands in scope of
 * them, so they are looked for once. */
typedef struct ds_op_indices {
    bool all; /* a range makes a type of its own each time */
    DS_VEC(const char *) names;
} ds_op_indices;

static void add_name(ds_builder *b, ds_op_indices *on, const char *name) {
    for (uint32_t i = 0; i < on->names.n; i++)
        if (on->names.at[i] == name) return;
    DS_PUSH(&b->plan->arena, &on->names, name);
}

static const ds_op_indices *indices_of(ds_builder *b, const ds_site *site) {
    const ds_op *op = site->op;
    const uint64_t *found = ds_map_find(&b->indices_of, DS_KEY(op));
    if (found) return (const ds_op_indices *)(uintptr_t)*found;
    ds_op_indices *on = DS_NEW(&b->plan->arena, ds_op_indices);
    *on = (ds_op_indices){0};
    for (uint32_t k = 0; k < op->n_in; k++) on->all = on->all || ds_plan__has_range(&op->in[k]);
    for (const ds_index *i = site->indices; i && !on->all; i = i->up)
        if (ds_plan__op_mentions(b, op, site->ctx->func, i->name)) add_name(b, on, i->name);
    for (uint32_t k = 0; k < op->n_in && !on->all; k++)
        for (const ds_index *i = site->in[k].indices; i; i = i->up)
            if (ds_type_mentions(&b->unit->exprs, site->in[k].type, i->name))
                add_name(b, on, i->name);
    ds_map_put(&b->indices_of, DS_KEY(op), DS_KEY(on));
    return on;
}

typedef DS_VEC(int64_t) index_list;

/* The indices up to `end`; with `on`, what the op depends on alone. */
static void put_indices(index_list *list, const ds_op_indices *on, const ds_index *indices,
                        const ds_index *end) {
    for (const ds_index *i = indices; i != end; i = i->up) {
        bool counts = !on || on->all;
        for (uint32_t k = 0; !counts && k < on->names.n; k++) counts = on->names.at[k] == i->name;
        if (!counts) continue;
        DS_HPUSH(list, (int64_t)(intptr_t)i->name);
        DS_HPUSH(list, i->value);
    }
    DS_HPUSH(list, 0);
}

/* Does the number of elements that a use stacks depend on a loop index? */
static bool count_varies(ds_builder *b, const ds_use *use) {
    ds_exprs *exprs = &b->unit->exprs;
    for (uint32_t i = 0; i < use->n_index; i++)
        if (ds_use_is_range(use, i) &&
            ds_expr_mentions(
                exprs, ds_expr_fold(exprs, DS_EXPR_SUB, use->index_hi[i], use->index[i]), NULL))
            return true;
    return false;
}

static bool stacks_varying(ds_builder *b, const ds_op *op) {
    for (uint32_t i = 0; i < op->n_in; i++)
        if (count_varies(b, &op->in[i])) return true;
    return false;
}

/* ---- making a record ---- */

static int by_device(const void *a, const void *b) {
    const uint32_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

uint32_t ds_plan__member(const ds_record *record, uint32_t device) {
    uint32_t guess = record->n_devices ? device - record->devices[0] : 0;
    if (guess < record->n_devices && record->devices[guess] == device) return guess;
    const uint32_t *at =
        bsearch(&device, record->devices, record->n_devices, sizeof device, by_device);
    return at ? (uint32_t)(at - record->devices) : DS_NONE;
}

void ds_plan__set_devices(ds_builder *b, ds_record *record, const uint32_t *devices, uint32_t n) {
    uint32_t *sorted = DS_NEW_N(&b->plan->arena, uint32_t, n);
    memcpy(sorted, devices, n * sizeof *sorted);
    bool in_order = true;
    for (uint32_t i = 1; i < n; i++) in_order &= sorted[i - 1] <= sorted[i];
    if (!in_order) qsort(sorted, n, sizeof *sorted, by_device);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++)
        if (!kept || sorted[kept - 1] != sorted[i]) sorted[kept++] = sorted[i];
    record->devices = sorted;
    record->n_devices = kept;
    record->variant_of = DS_NEW_N(&b->plan->arena, uint32_t, kept);
}

static bool any_uneven(const ds_site *site) {
    for (uint32_t i = 0; i < site->op->n_in; i++)
        if (ds_plan__is_uneven(site->in[i].type)) return true;
    for (uint32_t i = 0; i < site->op->n_out; i++)
        if (ds_plan__is_uneven(site->out[i].type)) return true;
    return false;
}

bool ds_plan__is_even(const ds_site *site) {
    return !site->region && !any_uneven(site);
}

/* What tells the shards of devices apart. */
static uint64_t part_key(const ds_site *site, const ds_placement *p, uint32_t pos) {
    uint64_t key = 0;
    for (uint32_t i = 0; i < site->op->n_in; i++)
        key = ds_hash_mix(key, ds_plan__part_key(site->in[i].type, p, pos));
    for (uint32_t i = 0; i < site->op->n_out; i++)
        key = ds_hash_mix(key, ds_plan__part_key(site->out[i].type, p, pos));
    return key;
}

static bool stacks(const ds_op *op) {
    for (uint32_t i = 0; i < op->n_in; i++)
        if (ds_plan__has_range(&op->in[i])) return true;
    return false;
}

/* Stacking a range makes a copy, also for an op that else is a view: bytes read and written. */
static ds_status work_of(const ds_op *op, const ds_env *env, const ds_shape *in,
                         const ds_shape *out, ds_work *work, ds_error *err) {
    DS_TRY(ds_op_work(op, env, in, out, work, err));
    if (work->kind != DS_WORK_NONE || !stacks(op)) return DS_OK;
    int64_t bytes;
    *work = (ds_work){.kind = DS_WORK_MEMORY, .dtype = in[0].dtype, .tokens = 1, .width = 1};
    for (uint32_t i = 0; i < op->n_in + op->n_out; i++) {
        int64_t *sum = i < op->n_in ? &work->bytes_read : &work->bytes_written;
        DS_TRY(ds_shape_bytes(i < op->n_in ? &in[i] : &out[i - op->n_in], &bytes, err));
        if (!ds_add_i64(*sum, bytes, sum))
            return ds_error_set(err, DS_ERR_OVERFLOW, op->loc, "more than 2^63 bytes");
    }
    return DS_OK;
}

bool ds_plan__is_work(const ds_op *op) {
    return op->code == DS_OP_AFTER && ds_attr_find(op->attrs, op->n_attrs, "cost") &&
           !ds_plan__has_range(&op->in[0]);
}

static int64_t clock_of(const ds_builder *b, uint32_t device) {
    return b->plan->topo ? ds_topo_device_clock(b->plan->topo, device)
                         : b->options->schematic->clock_ppb;
}

static int64_t power_of(const ds_builder *b, uint32_t device) {
    return b->plan->topo ? ds_topo_device_power_mw(b->plan->topo, device)
                         : b->options->schematic->power_mw;
}

/* On a degraded device everything takes longer; what the program says of a duration, as compute
 * does. */
static ds_status degrade_variant(const ds_builder *b, const ds_cost_query *query, uint32_t device,
                                 ds_variant *v, ds_error *err) {
    int64_t compute_ppb, memory_ppb;
    double compute_s = -1, memory_s = -1;
    if (!b->plan->topo) return DS_OK; /* schematic */
    ds_topo_device_shares(b->plan->topo, device, &compute_ppb, &memory_ppb);
    if (compute_ppb == DS_DEGRADE_WHOLE && memory_ppb == DS_DEGRADE_WHOLE) return DS_OK;
    if (v->cost.origin != DS_COST_GIVEN) ds_cost_sides(query, &compute_s, &memory_s);
    if (v->cost.clock_ppb && compute_s > 0)
        compute_s *= (double)DS_TOPO_WHOLE / (double)v->cost.clock_ppb;
    return ds_cost_degrade(compute_s, memory_s, compute_ppb, memory_ppb, &v->ps, err);
}

/* With other rates of compute and memory: the launch stays, and the rest of the time goes by the
 * quotient of the roofline's sides (sim/cost/degrade.c). */
static ds_status change_rates(ds_builder *b, const ds_cost_query *query, uint32_t device,
                              ds_variant *v, ds_error *err) {
    int64_t compute_ppb = ds_profiles_rate_ppb(b->profiles, DS_RESOURCE_COMPUTE);
    int64_t memory_ppb = ds_profiles_rate_ppb(b->profiles, DS_RESOURCE_MEMORY);
    if (compute_ppb == DS_WHAT_IF_WHOLE && memory_ppb == DS_WHAT_IF_WHOLE) return DS_OK;
    double compute_s, memory_s;
    ds_cost bare;
    ds_cost_query own = *query;
    own.profiles = ds_profiles_without(b->profiles, DS_TERM_LAUNCH, &b->plan->arena);
    DS_TRY(ds_cost_op(&own, b->options->cost_mode, &bare, NULL, err));
    DS_TRY(ds_cost_clock(&own, clock_of(b, device), power_of(b, device), &bare, NULL, err));
    int64_t launch_ps = v->ps - bare.ps;
    ds_cost_sides(&own, &compute_s, &memory_s);
    DS_TRY(ds_cost_degrade(compute_s, memory_s, compute_ppb, memory_ppb, &bare.ps, err));
    v->ps = ds_ps_sum(bare.ps, launch_ps > 0 ? launch_ps : 0);
    return DS_OK;
}

/* What tells devices apart on which equal shards take unequal time. */
static uint64_t device_key(const ds_plan *plan, uint32_t device) {
    int64_t compute_ppb, memory_ppb;
    uint64_t key = (uint64_t)plan->kind_of[device] << 32 | plan->profile_of[device];
    if (!plan->topo) return key; /* schematic */
    int64_t clock_ppb = ds_topo_device_clock(plan->topo, device);
    if (clock_ppb != DS_TOPO_WHOLE) key = ds_hash_mix(key, (uint64_t)clock_ppb);
    int64_t power_mw = ds_topo_device_power_mw(plan->topo, device);
    if (power_mw) key = ds_hash_mix(key, (uint64_t)power_mw ^ 1);
    ds_topo_device_shares(plan->topo, device, &compute_ppb, &memory_ppb);
    if (compute_ppb == DS_DEGRADE_WHOLE && memory_ppb == DS_DEGRADE_WHOLE) return key;
    return ds_hash_mix(ds_hash_mix(key, (uint64_t)compute_ppb), (uint64_t)memory_ppb);
}

static bool is_smaller(const ds_shape *a, const ds_shape *b) {
    int64_t n = 0, most = 0;
    return ds_shape_elements(a, &n, NULL) == DS_OK && ds_shape_elements(b, &most, NULL) == DS_OK &&
           n < most;
}

/* Shapes, work and cost on the device at `pos` of the placement. */
static ds_status make_variant(ds_builder *b, const ds_site *site, const ds_placement *p,
                              uint32_t pos, const ds_attr *given, ds_variant *v, ds_error *err) {
    const ds_op *op = site->op;
    ds_shape *in = DS_NEW_N(&b->plan->arena, ds_shape, op->n_in);
    ds_shape *out = DS_NEW_N(&b->plan->arena, ds_shape, op->n_out);
    const ds_type **types = DS_NEW_N(&b->plan->arena, const ds_type *, op->n_in);
    v->out_bytes = DS_NEW_N(&b->plan->arena, int64_t, op->n_out);
    for (uint32_t i = 0; i < op->n_in; i++) {
        types[i] = site->in[i].type;
        DS_TRY(ds_plan__local_shape(b, site->in[i], p, pos, op->in[i].loc, &in[i], err));
        if (i && i < 32 && is_smaller(&in[i], &in[0])) v->parts |= UINT32_C(1) << i;
    }
    for (uint32_t i = 0; i < op->n_out; i++) {
        DS_TRY(ds_plan__local_shape(b, site->out[i], p, pos, op->loc, &out[i], err));
        ds_status status = ds_shape_bytes(&out[i], &v->out_bytes[i], err);
        if (status != DS_OK) ds_error_move(err, op->loc);
        DS_TRY(status);
    }
    if (ds_plan__is_work(op)) v->out_bytes[0] = 0;
    const ds_kernel *kernel = given ? NULL : ds_plan__kernel_on(b, site, p->devices[pos]);
    if (kernel) v->extra_launches = kernel->extra_launches;
    if (!given && ds_profile_is_generic(b->profiles, b->plan->profile_of[p->devices[pos]]))
        v->calls = ds_kernel_calls(b->plan->kernels, ds_op_name(op->code));
    v->passes = kernel && kernel->line;
    v->n_used = b->n_used;
    ds_env env = ds_binding_env(b->binding, site->indices);
    if (op->code >= DS_OP_FIRST_TABLE_OP) {
        ds_status status = work_of(op, &env, in, out, &v->work, err);
        if (status == DS_OK && kernel) status = ds_kernel_work(kernel, op, in, out, &v->work, err);
        if (status == DS_OK) status = ds_op_scratch(op, types, in, out, &v->scratch_bytes, err);
        if (status != DS_OK) {
            if (err && !err->loc.line) ds_error_move(err, op->loc);
            return status;
        }
    }
    uint32_t device = p->devices[pos];
    const ds_cost_query query = {.profiles = b->profiles,
                                 .kind = b->plan->kind_of[device],
                                 .profile = b->plan->profile_of[device],
                                 .op = ds_op_name(op->code),
                                 .work = &v->work,
                                 .loc = op->loc,
                                 .kernels = ds_plan_kernels_of(b->plan, op),
                                 .extra_launches = v->extra_launches,
                                 .passes = v->passes,
                                 .n_devices = b->n_used,
                                 .kernel = b->plan->attention_kernel};
    if (given) {
        v->cost = (ds_cost){.origin = DS_COST_GIVEN};
        DS_TRY(ds_quantity_eval(&env, (ds_quantity){given->expr, given->unit}, 'T', 1e12,
                                given->loc, &v->ps, err));
    } else {
        DS_TRY(ds_cost_op(&query, b->options->cost_mode, &v->cost, NULL, err));
        DS_TRY(
            ds_cost_clock(&query, clock_of(b, device), power_of(b, device), &v->cost, NULL, err));
        v->ps = v->cost.ps;
        DS_TRY(change_rates(b, &query, device, v, err));
    }
    return degrade_variant(b, &query, device, v, err);
}

/* Looked at once a placement. */
static bool are_alike(const ds_plan *plan, ds_placement *p) {
    if (p->alike == DS_ALIKE_UNKNOWN) {
        uint64_t key = device_key(plan, p->devices[0]);
        p->alike = DS_ALIKE;
        for (uint32_t i = 1; i < p->n_devices && p->alike == DS_ALIKE; i++)
            if (device_key(plan, p->devices[i]) != key) p->alike = DS_NOT_ALIKE;
    }
    return p->alike == DS_ALIKE;
}

/* All devices of the placement, in one variant: records share these lists. */
static void set_whole(ds_builder *b, const ds_placement *p, ds_record *r) {
    if (!b->zeros) b->zeros = DS_NEW_N(&b->plan->arena, uint32_t, b->plan->n_devices);
    r->devices = p->ascending;
    r->n_devices = p->n_devices;
    r->variant_of = b->zeros;
    r->n_variants = 1;
    r->variants = DS_NEW(&b->plan->arena, ds_variant);
}

static ds_status compute_record(ds_builder *b, const ds_site *site, uint32_t place,
                                const ds_attr *given, ds_record *r, ds_error *err) {
    const ds_placement *p = ds_plan__placement(b, place);
    r->kind = DS_REC_COMPUTE;
    bool uneven = any_uneven(site),
         each = site->region && (varies(b, site) || stacks_varying(b, site->op));
    if (!each && !uneven && are_alike(b->plan, b->plan->placements.at[place])) {
        set_whole(b, p, r);
        ds_plan__enter(site->region, p, 0);
        ds_status status = make_variant(b, site, p, 0, given, r->variants, err);
        ds_plan__enter(site->region, NULL, 0);
        return status;
    }
    ds_plan__set_devices(b, r, p->devices, p->n_devices);
    /* One variant a (hardware kind, profile, shares left), and sizes of uneven shards; of what may
     * depend on the coordinates in a local region: one a device. */
    ds_map known;
    ds_map_init(&known);
    DS_VEC(ds_variant) variants = {0};
    ds_status status = DS_OK;
    for (uint32_t pos = 0; pos < p->n_devices && status == DS_OK; pos++) {
        uint32_t device = p->devices[pos];
        uint64_t key = each ? pos : device_key(b->plan, device);
        if (uneven && !each) key = ds_hash_mix(key, part_key(site, p, pos));
        uint64_t *found = ds_map_find(&known, key);
        uint32_t v = found ? (uint32_t)*found : variants.n;
        if (!found) {
            ds_variant fresh = {0};
            ds_plan__enter(site->region, p, pos);
            status = make_variant(b, site, p, pos, given, &fresh, err);
            ds_plan__enter(site->region, NULL, 0);
            DS_PUSH(&b->plan->arena, &variants, fresh);
            ds_map_put(&known, key, v);
        }
        r->variant_of[ds_plan__member(r, device)] = v;
    }
    ds_map_deinit(&known);
    r->variants = variants.at;
    r->n_variants = variants.n;
    return status;
}

/* {stream = "x"}: the key of a stream of that name; 0 without the attribute. */
static uint64_t stream_of(ds_builder *b, const ds_op *op) {
    const char *name =
        ds_attr_text(&b->unit->exprs, ds_attr_find(op->attrs, op->n_attrs, "stream"));
    if (name && strcmp(name, "compute") == 0) return DS_STREAM_COMPUTE;
    return name ? ds_hash_bytes(name, strlen(name)) | 1 : 0;
}

static ds_status places_of(ds_builder *b, const ds_site *site, const ds_typed *types, uint32_t n,
                           uint32_t **out, ds_error *err) {
    *out = DS_NEW_N(&b->plan->arena, uint32_t, n);
    for (uint32_t i = 0; i < n; i++)
        DS_TRY(ds_plan__place(b, site->ctx, &types[i].type->on, types[i].indices, &(*out)[i], err));
    return DS_OK;
}

/* A dropout and its backward op have one mask; its name is the key and the turns of the loops. */
static ds_status mask_of(ds_builder *b, const ds_site *site, uint64_t *out, ds_error *err) {
    const ds_op *op = site->op;
    if (op->code != DS_OP_DROPOUT) return DS_OK;
    const char *key = ds_attr_text(&b->unit->exprs, ds_attr_find(op->attrs, op->n_attrs, "key"));
    if (!key) return DS_OK;
    *out = ds_hash_bytes(key, strlen(key));
    const ds_attr *turn = ds_attr_find(op->attrs, op->n_attrs, "turn");
    ds_env env = ds_binding_env(b->binding, site->indices);
    for (uint32_t i = 0; turn && i < turn->n_items; i++) {
        int64_t at;
        DS_TRY(ds_expr_eval_int(&env, turn->items[i].expr, op->loc, &at, err));
        *out = ds_hash_mix(*out, (uint64_t)at);
    }
    *out |= 1;
    return DS_OK;
}

static ds_status make_record(ds_builder *b, const ds_site *site, ds_record *r, ds_error *err) {
    const ds_op *op = site->op;
    const ds_op_desc *desc = ds_op_desc_of(op->code);
    r->op = op;
    r->func = site->ctx->func;
    r->label = ds_op_name(op->code);
    r->n_out = op->n_out;
    r->stream = stream_of(b, op);
    r->beside = ds_op_attr_bool(op, "beside");
    DS_TRY(mask_of(b, site, &r->mask, err));
    bool collective = desc && (desc->flags & DS_OPF_COLLECTIVE) != 0;
    bool moves = collective || site->at_host || (desc && desc->flags & DS_OPF_HOST);
    if (moves && !ds_profiles_has(b->profiles, DS_TERM_OVERLAP)) r->stream = DS_STREAM_COMPUTE;
    DS_TRY(ds_plan__category(b, op->attrs, op->n_attrs, DS_CAT_ACTIVATION, &r->category, err));
    if (collective && site->rank_device != DS_NONE) return ds_plan__half_record(b, site, r, err);
    uint32_t *in_places, *out_places;
    DS_TRY(places_of(b, site, site->in, op->n_in, &in_places, err));
    DS_TRY(places_of(b, site, site->out, op->n_out, &out_places, err));
    if (desc && desc->flags & DS_OPF_HOST && b->options->schematic)
        return ds_plan__comm_record(b, site, in_places, out_places, r, err);
    if ((desc && desc->flags & DS_OPF_HOST) || (site->at_host && !b->options->schematic))
        return ds_plan__host_record(b, site, in_places[0], r, err);
    const ds_attr *given = ds_attr_find(op->attrs, op->n_attrs, "cost");
    if (collective) {
        DS_TRY(ds_plan__comm_record(b, site, in_places, out_places, r, err));
        if (r->n_groups || !given) return DS_OK;
        /* A collective over one device moves nothing, but its stated cost is still a task. */
    }
    if (!op->n_in && !op->n_out)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, op->loc,
                            "an op without operands and results runs nowhere");
    uint32_t place = op->n_out ? out_places[0] : in_places[0];
    for (uint32_t i = 0; i < op->n_in + op->n_out; i++) {
        uint32_t other = i < op->n_in ? in_places[i] : out_places[i - op->n_in];
        if (other != place)
            return ds_error_set(
                err, DS_ERR_SHARDING, op->loc,
                "%s has operands and results in different places; an op never moves "
                "data: use send or reshard",
                r->label);
    }
    return compute_record(b, site, place, given, r, err);
}

/* A variant a size. */
static ds_status uneven_input(ds_builder *b, ds_typed t, const ds_placement *p, ds_loc loc,
                              ds_record *r, ds_error *err) {
    ds_map known;
    DS_VEC(ds_variant) variants = {0};
    ds_status status = DS_OK;
    ds_map_init(&known);
    ds_plan__set_devices(b, r, p->devices, p->n_devices);
    for (uint32_t i = 0; i < r->n_devices && status == DS_OK; i++) {
        uint32_t pos = ds_plan__position(p, r->devices[i]);
        uint64_t key = ds_plan__part_key(t.type, p, pos), *found = ds_map_find(&known, key);
        r->variant_of[i] = found ? (uint32_t)*found : variants.n;
        if (found) continue;
        ds_variant fresh = {.out_bytes = DS_NEW(&b->plan->arena, int64_t)};
        status = ds_plan__local_bytes(b, t, p, pos, loc, fresh.out_bytes, err);
        ds_map_put(&known, key, variants.n);
        DS_PUSH(&b->plan->arena, &variants, fresh);
    }
    ds_map_deinit(&known);
    r->variants = variants.at;
    r->n_variants = variants.n;
    return status;
}

static ds_status input_record(ds_builder *b, const ds_context *ctx, const ds_value_info *value,
                              const ds_index *indices, ds_category category, ds_record *r,
                              ds_error *err) {
    uint32_t place;
    DS_TRY(ds_plan__place(b, ctx, &value->type->on, indices, &place, err));
    const ds_placement *p = ds_plan__placement(b, place);
    r->kind = DS_REC_INPUT;
    r->func = ctx->func;
    r->label = "input";
    r->n_out = 1;
    r->category = category;
    if (ds_plan__is_uneven(value->type))
        return uneven_input(b, (ds_typed){value->type, indices}, p, value->loc, r, err);
    set_whole(b, p, r);
    r->variants->out_bytes = DS_NEW(&b->plan->arena, int64_t);
    return ds_plan__local_bytes(b, (ds_typed){value->type, indices}, p, 0, value->loc,
                                r->variants->out_bytes, err);
}

/* ---- other replicas of a schematic plan ---- */

/* An op's site, or an input's. */
typedef struct subject {
    const ds_site *site; /* NULL: an input */
    const ds_context *ctx;
    const ds_value_info *value;
    const ds_index *indices;
    ds_category category;
} subject;

static ds_status make_of(ds_builder *b, const subject *of, ds_record *r, ds_error *err) {
    if (of->site) return make_record(b, of->site, r, err);
    return input_record(b, of->ctx, of->value, of->indices, of->category, r, err);
}

static void set_replica(ds_builder *b, int64_t replica) {
    for (uint32_t i = 0; i < b->plan->placements.n; i++)
        b->plan->placements.at[i]->replica = replica;
}

static ds_status make_sorts(ds_builder *b, const subject *of, ds_record *r, ds_error *err) {
    const ds_plan_options *options = b->options;
    const ds_plan_schematic *s = options->schematic;
    if (!s || !s->n_others) return DS_OK;
    if (of->site ? !any_uneven(of->site) : !ds_plan__is_uneven(of->value->type)) return DS_OK;
    ds_plan_schematic own = *s;
    ds_plan_options apart = *options;
    own.apart = true;
    apart.schematic = &own;
    ds_status status = DS_OK;
    r->sorts = DS_NEW_N(&b->plan->arena, ds_record, s->n_others);
    b->options = &apart;
    for (uint32_t i = 0; i < s->n_others && status == DS_OK; i++) {
        ds_record *other = &r->sorts[i];
        own.replica = s->others[i];
        set_replica(b, own.replica);
        status = make_of(b, of, other, err);
        if (other->n_groups != r->n_groups || other->n_variants != r->n_variants ||
            other->n_devices != r->n_devices)
            b->plan->sorts_differ = true;
    }
    b->options = options;
    set_replica(b, s->replica);
    return status;
}

void ds_plan_take_sort(ds_plan *plan, uint32_t i) {
    for (uint32_t k = 0; k < plan->records.n; k++) {
        ds_record *r = plan->records.at[k];
        if (!r->sorts) continue;
        const ds_record *other = &r->sorts[i];
        for (uint32_t v = 0; v < r->n_variants; v++) r->variants[v] = other->variants[v];
        for (uint32_t g = 0; g < r->n_groups; g++) r->groups[g].bytes = other->groups[g].bytes;
    }
    for (uint32_t k = 0; k < plan->insts.n; k++) {
        const ds_inst *inst = &plan->insts.at[k];
        const ds_record *r = plan->records.at[inst->record];
        for (uint32_t pos = 0; r->sorts && r->kind == DS_REC_COMPUTE && pos < r->n_classes; pos++)
            plan->task_ps[inst->first_task + pos] = r->variants[r->class_variant[pos]].ps;
    }
}

/* `fixed`: whatever the loop indices. */
static ds_status make_or_copy(ds_builder *b, const ds_site *site, bool fixed, ds_record *r,
                              ds_error *err) {
    const ds_record **first = fixed ? ds_plan__alike(b, site) : NULL;
    if (first && *first) {
        *r = **first;
        r->like = *first;
        r->op = site->op;
        r->func = site->ctx->func;
        return DS_OK;
    }
    DS_TRY(make_record(b, site, r, err));
    DS_TRY(make_sorts(b, &(subject){.site = site}, r, err));
    if (first) *first = r;
    return DS_OK;
}

ds_status ds_plan__record(ds_builder *b, const ds_site *site, uint32_t *out, ds_error *err) {
    index_list list = {0};
    const ds_op_indices *on = indices_of(b, site);
    if (on->all ? varies(b, site) || stacks_varying(b, site->op) : on->names.n > 0) {
        put_indices(&list, on, site->indices, NULL);
        for (uint32_t i = 0; i < site->op->n_in; i++)
            put_indices(&list, on, site->in[i].indices, on->all ? NULL : site->indices);
    }
    ds_record_site key = {site->ctx, site->op, list.at, list.n};
    uint64_t hash;
    ds_status status = DS_OK;
    if (!find_record(b, &key, &hash, out)) {
        ds_record *r = DS_NEW(&b->plan->arena, ds_record);
        status = make_or_copy(b, site, !list.n, r, err);
        if (status == DS_OK) *out = add_record(b, r, &key, hash);
    }
    free(list.at);
    return status;
}

ds_status ds_plan__input_record(ds_builder *b, const ds_context *ctx, const ds_value_info *value,
                                const ds_index *indices, ds_category category, uint32_t *out,
                                ds_error *err) {
    index_list list = {0};
    if (ds_plan__type(b, value->type)->varies) put_indices(&list, NULL, indices, NULL);
    ds_record_site key = {ctx, value, list.at, list.n};
    uint64_t hash;
    ds_status status = DS_OK;
    if (!find_record(b, &key, &hash, out)) {
        ds_record *r = DS_NEW(&b->plan->arena, ds_record);
        subject of = {.ctx = ctx, .value = value, .indices = indices, .category = category};
        status = make_of(b, &of, r, err);
        if (status == DS_OK) status = make_sorts(b, &of, r, err);
        if (status == DS_OK) *out = add_record(b, r, &key, hash);
    }
    free(list.at);
    return status;
}
