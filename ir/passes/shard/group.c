/* Groups of operations (ir/strategy/group.h) as lies of operations.
 *
 * A way makes the lies of a group: one for all of its operations, or one for each device of the
 * group. Backward ops follow their forward ops, as with overrides, unless a pattern names
 * the backward op itself; gradients of weights are sums over the group's devices wherever the batch is
 * split over them.
 *
 * The batch. Operations of a group use different letters for the batch, so the factor `batch` of a
 * rule is found: every factor that a dim of an operand or a result has which the model's hints split
 * over dp, or which comes of such a dim by the rules of the ops in between. */
#include "ir/passes/shard/internal.h"

#include "ir/base/units.h"
#include "ir/core/devices.h"

#include <assert.h>
#include <string.h>

/* ---- the batch ---- */

/* The dims that a hint splits over dp. */
static uint8_t hinted(const ds_func *func, ds_value value) {
    const ds_type *type = ds_value_at(func, value)->type;
    uint8_t dims = 0;
    for (uint32_t d = 0; type && d < type->rank; d++)
        for (uint32_t i = 0; i < type->dims[d].n_splits; i++)
            if (strcmp(type->dims[d].splits[i].axis, "dp") == 0) dims |= (uint8_t)(1u << d);
    return dims;
}

/* Factors of the batch among those of the term's dims; the outermost of a product of factors. */
static uint32_t factors_of(const ds_rule_term *term, uint8_t dims) {
    uint32_t factors = 0;
    for (uint32_t d = 0; d < term->n; d++)
        if (dims >> d & 1 && !term->dims[d].any && term->dims[d].n)
            factors |= UINT32_C(1) << term->dims[d].factors[0];
    return factors;
}

static uint8_t dims_of(const ds_rule_term *term, uint32_t factors) {
    uint8_t dims = 0;
    for (uint32_t d = 0; d < term->n; d++)
        if (!term->dims[d].any && term->dims[d].n && factors >> term->dims[d].factors[0] & 1)
            dims |= (uint8_t)(1u << d);
    return dims;
}

uint32_t ds_shard__batch_factors(const ds_shard_places *p, const ds_op *op, const ds_rule *rule) {
    uint32_t factors = 0;
    for (uint32_t i = 0; i < op->n_in && rule->n_in; i++)
        factors |= factors_of(&rule->in[i < rule->n_in ? i : rule->n_in - 1u],
                              p->batch[op->in[i].value.i]);
    for (uint32_t i = 0; i < op->n_out && rule->n_out; i++)
        factors |= factors_of(&rule->out[i < rule->n_out ? i : rule->n_out - 1u],
                              hinted(p->func, op->out[i]));
    return factors;
}

typedef struct spreader {
    ds_sharder *s;
    ds_shard_places *p;
    bool changed;
} spreader;

static void mark(spreader *b, ds_value value, uint8_t dims) {
    b->changed = b->changed || (dims & ~b->p->batch[value.i]);
    b->p->batch[value.i] |= dims;
}

static ds_status spread_block(spreader *b, const ds_block *block, ds_error *err);

static ds_status spread_loop(spreader *b, const ds_op *loop, ds_error *err) {
    const ds_op *yield = ds_block_end(loop->body);
    for (uint32_t i = 0; i < loop->n_args; i++)
        mark(b, loop->args[i], b->p->batch[loop->in[i].value.i]);
    DS_TRY(spread_block(b, loop->body, err));
    for (uint32_t i = 0; yield && i < yield->n_in; i++) {
        uint8_t dims = b->p->batch[yield->in[i].value.i];
        if (i < loop->n_args) mark(b, loop->args[i], dims);
        mark(b, loop->out[i], dims);
    }
    return DS_OK;
}

static ds_status spread_block(spreader *b, const ds_block *block, ds_error *err) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        ds_rule rule;
        if (op->code == DS_OP_FOR) DS_TRY(spread_loop(b, op, err));
        for (uint32_t k = 0; k < op->n_out; k++)
            mark(b, op->out[k], hinted(b->p->func, op->out[k]));
        if (op->code < DS_OP_FIRST_TABLE_OP || !op->n_in) continue;
        DS_TRY(ds_shard__rule(b->s, op, &rule, err));
        uint32_t factors = ds_shard__batch_factors(b->p, op, &rule);
        for (uint32_t k = 0; k < op->n_out && rule.n_out; k++)
            mark(b, op->out[k], dims_of(&rule.out[k < rule.n_out ? k : rule.n_out - 1u], factors));
    }
    return DS_OK;
}

ds_status ds_shard__find_batch(ds_sharder *s, ds_shard_places *p, ds_error *err) {
    spreader b = {.s = s, .p = p};
    const ds_func *func = s->f.from, *of = p->func;
    ds_status status = DS_OK;
    p->batch = DS_NEW_N(&s->unit->arena, uint8_t, of->values.n + 1);
    for (uint32_t i = 0; i < of->n_args; i++)
        if (!ds_shard__is_weight(s, ds_value_at(of, of->args[i])->name))
            mark(&b, of->args[i], hinted(of, of->args[i]));
    s->f.from = of; /* whose rules are asked for */
    do {            /* a turn of a loop may add to what the next one reads: at most once a dim */
        b.changed = false;
        status = spread_block(&b, &of->body, err);
    } while (b.changed && status == DS_OK);
    s->f.from = func;
    return status;
}

/* ---- the devices of a group ---- */

static bool has_shares(const ds_shard_mesh *mesh, const int64_t *shares, uint32_t n) {
    bool same = !mesh->shares == !shares;
    return same && (!shares || memcmp(mesh->shares, shares, n * sizeof *shares) == 0);
}

/* Makes the group's mesh a view of its devices with one axis and these shares (NULL: equal parts), the
 * same for all groups that have the devices and the shares. */
static ds_status flatten(ds_sharder *s, ds_shard_group *g, const int64_t *shares, int64_t sum,
                         ds_error *err) {
    const char *base = s->meshes.at[g->mesh].name;
    uint32_t n = ds_shard__n_devices(s, g->mesh);
    for (uint32_t i = 0; i < s->n_groups; i++) {
        const ds_shard_group *other = &s->groups[i];
        bool same = other->base == base && has_shares(&s->meshes.at[other->mesh], shares, n);
        if (same) g->mesh = other->mesh;
        if (same) return DS_OK;
    }
    if (s->meshes.n == UINT8_MAX)
        return ds_error_set(err, DS_ERR_LIMIT, g->said.loc, "more than %d meshes", UINT8_MAX);
    ds_shard_mesh mesh = {.axes = {{ds_intern(&s->unit->strings, "dp"), n}},
                          .n_axes = 1,
                          .shares = shares,
                          .shares_sum = sum,
                          .apart = s->meshes.at[g->mesh].apart};
    const char *end = shares ? "_shares" : "_servers";
    ds_mesh *made =
        ds_shard__new_mesh(s, ds_arena_join(&s->unit->arena, base, end), DS_MESH_VIEW, base);
    ds_shard__declare_axes(s, mesh.axes, 1);
    ds_shard__set_axes(s, made, mesh.axes, 1);
    mesh.name = made->name;
    g->base = base;
    g->mesh = (uint8_t)s->meshes.n;
    DS_PUSH(&s->unit->arena, &s->meshes, mesh);
    return DS_OK;
}

/* ---- the ways ---- */

static ds_shard_lie *add_lie(ds_shard_group *g, uint8_t mesh) {
    ds_shard_lie *lie = &g->lies[g->n_lies++];
    *lie = (ds_shard_lie){.who = g->said.name, .loc = g->said.loc, .mesh = mesh, .group = &g->said};
    return lie;
}

/* One lie for all: each device computes all, or its part of the batch. */
static ds_status make_one(ds_sharder *s, ds_shard_group *g, ds_error *err) {
    (void)err;
    g->lies = DS_NEW(&s->unit->arena, ds_shard_lie);
    add_lie(g, g->mesh)->by_batch = g->said.by != DS_GROUP_DUPLICATE;
    s->wants_batch |= g->lies->by_batch;
    return DS_OK;
}

/* Replicas whose gradients meet on a server, one device of the one axis. Of a strategy with ZeRO the
 * group is a view: its states are on servers, and ZeRO has the others. */
static ds_status make_served(ds_sharder *s, ds_shard_group *g, ds_error *err) {
    bool own = !ds_shard__is_view(s, g->mesh);
    if (own && s->step->strategy.pp > 1)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, g->said.loc,
                            "group \"%s\": by = ps beside a pipeline: stages have devices of their "
                            "own, so say which devices are the servers: `on`",
                            g->said.name);
    if (s->meshes.at[g->mesh].n_axes > 1 || (own && s->step->strategy.zero))
        DS_TRY(flatten(s, g, NULL, 0, err));
    DS_TRY(make_one(s, g, err));
    g->lies->by_server = ds_shard__n_devices(s, g->mesh) > 1;
    s->has_servers |= g->lies->by_server;
    return DS_OK;
}

/* A lie for each device: a mesh of one device. */
static ds_status make_owners(ds_sharder *s, ds_shard_group *g, ds_error *err) {
    const ds_shard_axis one = {ds_intern(&s->unit->strings, "dp"), 1};
    bool own = !ds_shard__is_view(s, g->mesh);
    const char *base = own ? s->program_mesh : s->meshes.at[g->mesh].name;
    uint32_t n = own ? s->n_devices : ds_shard__n_devices(s, g->mesh);
    if (s->meshes.n + n > UINT8_MAX)
        return ds_error_set(err, DS_ERR_LIMIT, g->said.loc,
                            "group \"%s\": by = split makes a mesh of each of %u devices; all "
                            "meshes of a strategy are at most %d",
                            g->said.name, n, UINT8_MAX);
    g->lies = DS_NEW_N(&s->unit->arena, ds_shard_lie, n);
    ds_shard__declare_axes(s, &one, 1);
    for (uint32_t i = 0; i < n; i++) {
        const char *name = ds_arena_printf(&s->unit->arena, "%s_%u", base, i);
        ds_mesh *made = ds_shard__new_mesh(s, name, DS_MESH_PICK, base);
        ds_shard__set_axes(s, made, &one, 1);
        made->pick_lo = ds_expr_int(&s->unit->exprs, i);
        made->pick_hi = ds_expr_int(&s->unit->exprs, i + 1);
        ds_shard_mesh mesh = {.name = made->name, .axes = {one}, .n_axes = 1, .apart = true};
        add_lie(g, (uint8_t)s->meshes.n);
        DS_PUSH(&s->unit->arena, &s->meshes, mesh);
    }
    return DS_OK;
}

/* One line a way: the function that makes the lies of a group, or why there is none. */
static const struct {
    ds_status (*make)(ds_sharder *s, ds_shard_group *group, ds_error *err);
    const char *refused;
    bool owned;  /* each operation has a lie of its own: its owner's */
    bool shared; /* devices have parts of the batch */
} ways[DS_N_GROUP_WAYS] = {
    [DS_GROUP_ALL_REDUCE] = {.make = make_one, .shared = true},
    [DS_GROUP_DUPLICATE] = {.make = make_one},
    [DS_GROUP_SPLIT] = {.make = make_owners, .owned = true},
    [DS_GROUP_PS] = {.make = make_served, .shared = true},
    [DS_GROUP_SFB] = {.refused =
                          "the operations that are whole are chosen by simulation, and a pass "
                          "does not simulate: they must be found before the passes run"},
};

/* ---- the groups of a strategy ---- */

/* The shares of a group without their common divisor; NULL: equal parts. */
static ds_status read_shares(ds_sharder *s, const ds_shard_group *g, const int64_t **out,
                             int64_t *sum, ds_error *err) {
    const ds_op_group *said = &g->said;
    uint32_t n = said->n_shares, devices = ds_shard__n_devices(s, g->mesh);
    if (n != devices)
        return ds_error_set(err, DS_ERR_VALUE, said->shares_loc,
                            "group \"%s\": shares has %u numbers for the %u devices of @%s",
                            said->name, n, devices, s->meshes.at[g->mesh].name);
    int64_t *shares = DS_NEW_N(&s->unit->arena, int64_t, n), divisor = 0;
    for (uint32_t i = 0; i < n; i++) divisor = ds_common_divisor(said->shares[i], divisor);
    for (uint32_t i = 0; i < n; i++) *sum += shares[i] = said->shares[i] / divisor;
    *out = *sum == n ? NULL : shares;
    return DS_OK;
}

static ds_status give_shares(ds_sharder *s, ds_shard_group *g, ds_error *err) {
    const ds_op_group *said = &g->said;
    const int64_t *shares = NULL;
    int64_t sum = 0;
    if (said->shares_by_time)
        return ds_error_set(
            err, DS_ERR_UNSUPPORTED, said->shares_loc,
            "group \"%s\": shares = time takes the parts that simulate fastest, and "
            "a pass does not simulate: they must be found before the passes run, "
            "and are then numbers",
            said->name);
    if (said->shares) DS_TRY(read_shares(s, g, &shares, &sum, err));
    if (!shares) return DS_OK;
    if (!ways[said->by].shared)
        return ds_error_set(
            err, DS_ERR_UNSUPPORTED, said->shares_loc,
            "group \"%s\": shares are parts of a batch, and by = %s gives no device "
            "a part",
            said->name, ds_group_way_word(said->by));
    if (s->step->strategy.zero_uneven)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, said->shares_loc,
                            "group \"%s\": unequal parts of a batch (shares) and of states "
                            "(zero_uneven) cannot be told apart: leave one of them out",
                            said->name);
    return flatten(s, g, shares, sum, err);
}

static ds_status read_group(ds_sharder *s, const ds_attr *block, ds_shard_group *g, ds_error *err) {
    DS_TRY(ds_group_read(&s->step->binding, block, &g->said, err));
    const ds_op_group *said = &g->said;
    g->names_gradient = DS_NEW_N(&s->unit->arena, bool, said->n_ops + 1);
    for (uint32_t i = 0; i < said->n_ops; i++)
        g->names_gradient[i] = ds_path_names_gradient(said->ops[i]);
    if (!ways[said->by].make)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, said->loc, "group \"%s\": by = %s: %s",
                            said->name, ds_group_way_word(said->by), ways[said->by].refused);
    ds_place place = {.kind = DS_PLACE_MESH, .name = said->on};
    if (said->on) DS_TRY(ds_shard__view(s, &place, said->on_loc, &g->mesh, err));
    DS_TRY(give_shares(s, g, err));
    return ways[said->by].make(s, g, err);
}

ds_status ds_shard__groups(ds_sharder *s, ds_error *err) {
    const ds_attr *groups = s->step->strategy.groups;
    if (!groups) return DS_OK;
    s->groups = DS_NEW_N(&s->unit->arena, ds_shard_group, groups->n_items);
    for (; s->n_groups < groups->n_items; s->n_groups++)
        DS_TRY(read_group(s, &groups->items[s->n_groups], &s->groups[s->n_groups], err));
    return DS_OK;
}

/* ---- operations of groups ---- */

static bool is_in(const ds_shard_group *g, const char *func, const ds_path_loop *loops,
                  const char *name, bool backward) {
    for (uint32_t i = 0; i < g->said.n_ops; i++)
        if (g->names_gradient[i] == backward &&
            ds_path_match(g->said.ops[i], func, loops, name, NULL))
            return true;
    return false;
}

/* The elements of the weights that the op reads, in whole 100,000. */
static int64_t weight_of(const ds_sharder *s, const ds_shard_places *p, const ds_op *op) {
    double elements = 0;
    for (uint32_t i = 0; i < op->n_in; i++) {
        const ds_value_info *info =
            ds_value_at(p->func, ds_shard__arg_of(p->func, op->in[i].value));
        double turns = 1;
        if (!info->is_arg || !ds_shard__is_weight(s, info->name)) continue;
        for (uint32_t k = 0; k < info->n_binders; k++)
            turns *= (double)(ds_shard__size(s, info->binders[k].hi) -
                              ds_shard__size(s, info->binders[k].lo));
        elements += turns * ds_shard__bytes(s, info->type) * 8 / ds_dtype_bits(info->type->dtype);
    }
    return (int64_t)(elements / 100000);
}

/* The bytes of operands that operations on the device `lie` make. */
static double bytes_on(const ds_sharder *s, const ds_shard_places *p, const ds_op *op,
                       const ds_shard_lie *lie) {
    double bytes = 0;
    for (uint32_t i = 0; i < op->n_in; i++) {
        const ds_value_info *info = ds_value_at(p->func, op->in[i].value);
        const uint64_t *found = info->def ? ds_map_find(&p->laid, DS_KEY(info->def)) : NULL;
        if (found && ((const ds_shard_laid *)(uintptr_t)*found)->lie == lie)
            bytes += ds_shard__bytes(s, info->type);
    }
    return bytes;
}

/* As search/tag cuts a group (ds_tag__partition): operations in order, each to the device that made
 * most of the operands' bytes, weighed by the room left for weights, with a balance of 1.5. Other than
 * there, an operation without weights needs no room: it stays where its operands are. */
void ds_shard__share_out(ds_sharder *s, ds_shard_places *p, ds_shard_group *g, const ds_op **ops,
                         uint32_t n) {
    if (!n) return;
    int64_t total = 0, *room = DS_NEW_N(&s->unit->arena, int64_t, g->n_lies);
    for (uint32_t i = 0; i < n; i++) total += weight_of(s, p, ops[i]);
    bool weightless = total == 0;
    if (weightless) total = n;
    for (uint32_t k = 0; k < g->n_lies; k++)
        room[k] = (3 * total + 2 * g->n_lies - 1) / (2 * g->n_lies);
    for (uint32_t i = 0; i < n; i++) {
        int64_t weight = weightless ? 1 : weight_of(s, p, ops[i]);
        uint32_t best = 0;
        double best_score = -1;
        for (uint32_t k = 0; k < g->n_lies; k++) {
            double score = bytes_on(s, p, ops[i], &g->lies[k]);
            if (weight) score = room[k] >= weight ? score * (double)room[k] : -1;
            if (score < best_score || (score == best_score && room[k] <= room[best])) continue;
            best = k;
            best_score = score;
        }
        room[best] -= weight;
        ds_shard__lay(s, p, ops[i], &g->lies[best], true);
    }
}

ds_status ds_shard__group_of(ds_sharder *s, const ds_path_loop *loops, const char *name,
                             bool backward, ds_shard_group **out, ds_error *err) {
    *out = NULL;
    for (uint32_t i = 0; i < s->n_groups; i++) {
        ds_shard_group *g = &s->groups[i];
        if (!is_in(g, s->step->func->name, loops, name, backward)) continue;
        if (*out)
            return ds_error_set(err, DS_ERR_VALUE, g->said.loc,
                                "the operation %s is in the groups \"%s\" and \"%s\": an operation "
                                "is in one group",
                                name, (*out)->said.name, g->said.name);
        *out = g;
    }
    return DS_OK;
}

bool ds_shard__is_owned(const ds_shard_group *g) {
    return ways[g->said.by].owned;
}
