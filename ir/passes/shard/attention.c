/* Attention over a sequence that is split over devices: context parallelism.
 *
 * A query needs no other query, but needs all keys. The strategy says how keys reach queries
 * (cp_type):
 *
 *   all_gather  keys and values are gathered, their gradients scattered
 *   ring        blocks of keys and values go round the devices; each device computes on its
 *               present block, and softmaxes' denominators join the results of blocks (Liu,
 *               Zaharia, Abbeel 2023, "Ring Attention with Blockwise Transformers",
 *               arXiv:2310.01889). The next block is sent during the present block's computation.
 *   ulysses     all_to_alls turn the split of the sequence into one of the heads and back (Jacobs
 *               et al. 2023, "DeepSpeed Ulysses", arXiv:2309.14509, section 3)
 *
 * On the ring, device r has the block of device r − t at turn t. A device's own block comes first;
 * only this block may be known to lie on the diagonal. The gradients of keys and values follow
 * their block one turn later, and return home after n turns. */
#include "ir/passes/shard/internal.h"

#include <string.h>

#define MAX_STATE 3u /* results: o and lse, or dq, dk and dv */

/* The roles of operands and results of the two ops. */
typedef struct roles {
    uint32_t q, k, v, n_in;
    bool backward;
} roles;

static roles roles_of(const ds_op *op) {
    if (op->code == DS_OP_ATTENTION) return (roles){0, 1, 2, 3, false};
    return (roles){1, 2, 3, 6, true};
}

enum { SEQUENCE = 1, HEADS = 2 }; /* dims of all operands and results */

static bool is_keys(const roles *r, uint32_t operand) {
    return operand == r->k || operand == r->v;
}

/* The axes that split all sequences, and the layouts of operands and results so split. */
typedef struct split {
    uint8_t axis[DS_SHARD_AXES], n;
    ds_layout in[DS_MAX_OPERANDS], out[MAX_STATE];
} split;

/* ---- is the sequence split? ---- */

static bool is_over(const ds_layout *layout, uint32_t d, const split *over) {
    return layout->n[d] == over->n && memcmp(layout->axis[d], over->axis, over->n) == 0;
}

static ds_layout layout_now(const ds_sharder *s, const ds_use *use) {
    return ds_shard__layout(s, ds_shard__type_of(s, use));
}

/* The axes of the first operand's sequence (queries, or their gradients); false if an axis is not
 * one of cp's. */
static bool find_axes(const ds_sharder *s, const ds_use *in, split *out) {
    const ds_logical_axis *cp = &s->logical[DS_L_CP];
    ds_layout first = layout_now(s, &in[0]);
    out->n = first.n[SEQUENCE];
    memcpy(out->axis, first.axis[SEQUENCE], out->n);
    for (uint32_t i = 0; i < out->n; i++) {
        uint32_t a = 0;
        while (a < cp->n && cp->axis[a] != out->axis[i]) a++;
        if (a == cp->n) return false;
    }
    return out->n && !first.mesh;
}

/* Are keys split like queries, or kept split by heads from the forward pass? */
static bool keys_are_split(const ds_sharder *s, const roles *r, const ds_use *in,
                           const split *over) {
    for (uint32_t i = r->k; i <= r->v; i++) {
        ds_layout now = layout_now(s, &in[i]);
        bool by_heads = r->backward && s->step->strategy.cp_type == DS_CP_ULYSSES &&
                        ds_shard__dim_of(&now, over->axis[0]) == HEADS;
        if (now.mesh || !(is_over(&now, SEQUENCE, over) || by_heads)) return false;
    }
    return true;
}

static void remove_axis(ds_layout *layout, uint8_t axis) {
    for (uint32_t d = 0; d < layout->rank; d++) {
        uint8_t n = 0;
        for (uint32_t i = 0; i < layout->n[d]; i++)
            if (layout->axis[d][i] != axis) layout->axis[d][n++] = layout->axis[d][i];
        layout->n[d] = n;
    }
    layout->sum &= (uint8_t) ~(1u << axis);
}

static ds_layout with_sequence(ds_layout layout, const split *over) {
    for (uint32_t i = 0; i < over->n; i++) remove_axis(&layout, over->axis[i]);
    layout.n[SEQUENCE] = over->n;
    memcpy(layout.axis[SEQUENCE], over->axis, over->n);
    return layout;
}

/* False: the op takes the generic choice. */
static bool find_split(const ds_sharder *s, const ds_op *old, const roles *r, const ds_use *in,
                       const ds_shard_choice *choice, split *out) {
    if (choice->in[r->q].mesh || !find_axes(s, in, out) || !keys_are_split(s, r, in, out))
        return false;
    if (choice->forced && !is_over(&choice->in[r->q], SEQUENCE, out)) return false;
    for (uint32_t i = 0; i < r->n_in; i++) out->in[i] = with_sequence(choice->in[i], out);
    for (uint32_t i = 0; i < old->n_out; i++) out->out[i] = with_sequence(choice->out[i], out);
    return true;
}

/* ---- all_gather, ulysses ---- */

/* The op on operands that lie as `to` says. */
static ds_status on_whole_sequences(ds_sharder *s, const ds_op *old, ds_use *in,
                                    const ds_layout *to, ds_op **out, ds_error *err) {
    ds_op *op = ds_build_op(&s->f.b, old->code);
    op->loc = old->loc;
    op->attrs = old->attrs;
    op->n_attrs = old->n_attrs;
    for (uint32_t i = 0; i < old->n_in; i++) {
        DS_TRY(ds_shard__move(s, in[i], &to[i], &in[i], err));
        ds_build_in(&s->f.b, op, in[i]);
    }
    for (uint32_t i = 0; i < old->n_out; i++)
        ds_build_out(&s->f.b, op, ds_value_at(s->f.from, old->out[i])->name, NULL);
    *out = op;
    return ds_shard__put(s, op, &(ds_shard_value){0}, err);
}

/* The op's results, moved to where sequences are split. */
static ds_status split_again(ds_sharder *s, const ds_op *old, const ds_op *op, const split *over,
                             ds_value *made, ds_error *err) {
    for (uint32_t i = 0; i < old->n_out; i++) {
        ds_use moved = ds_use_of(op->out[i]);
        bool lse = i == 1 && old->code == DS_OP_ATTENTION; /* only the backward op reads lse */
        if (!lse) DS_TRY(ds_shard__move(s, moved, &over->out[i], &moved, err));
        made[i] = moved.value;
    }
    return DS_OK;
}

/* Keys and values are gathered; their gradients are terms of sums, scattered. */
static ds_status gathered(ds_sharder *s, const ds_op *old, const roles *r, ds_use *in,
                          const split *over, ds_value *made, ds_error *err) {
    ds_layout to[DS_MAX_OPERANDS];
    ds_op *op;
    for (uint32_t i = 0; i < r->n_in; i++) {
        to[i] = over->in[i];
        if (is_keys(r, i)) to[i].n[SEQUENCE] = 0;
    }
    DS_TRY(on_whole_sequences(s, old, in, to, &op, err));
    return split_again(s, old, op, over, made, err);
}

/* The axes of the sequence become the minor-most axes of the heads, the last axis first. */
static ds_layout by_heads(ds_layout layout, const split *over) {
    layout.n[SEQUENCE] = 0;
    for (uint32_t i = over->n; i-- > 0;) layout.axis[HEADS][layout.n[HEADS]++] = over->axis[i];
    return layout;
}

static ds_status check_heads(const ds_sharder *s, const ds_op *old, const roles *r,
                             const ds_use *in, const split *over, ds_error *err) {
    ds_layout to = by_heads(over->in[r->q], over);
    int64_t heads = ds_shard__size(s, ds_shard__type_of(s, &in[r->q])->dims[HEADS].size);
    int64_t keys = ds_shard__size(s, ds_shard__type_of(s, &in[r->k])->dims[HEADS].size);
    int64_t all = ds_shard__parts(s, &to, HEADS);
    int64_t tp = ds_shard__parts(s, &over->in[r->q], HEADS);
    if (keys > 0 && heads % all == 0 && keys % all == 0) return DS_OK;
    return ds_error_set(
        err, DS_ERR_VALUE, old->loc,
        "%%%s: cp_type = ulysses splits heads over tp · cp = %lld · %lld = %lld devices, but "
        "there are %lld query and %lld key heads: choose ring or all_gather, or a smaller cp",
        ds_value_at(s->f.from, old->out[0])->name, (long long)tp, (long long)(all / tp),
        (long long)all, (long long)heads, (long long)keys);
}

/* The backward op reads q, k and v by heads, as kept after their all_to_alls (ds_shard__move). o is
 * kept by heads too, and by sequence for the gradient of the next product. */
static ds_status ulysses(ds_sharder *s, const ds_op *old, const roles *r, ds_use *in,
                         const split *over, ds_value *made, ds_error *err) {
    ds_layout to[DS_MAX_OPERANDS];
    ds_op *op;
    DS_TRY(check_heads(s, old, r, in, over, err));
    for (uint32_t i = 0; i < r->n_in; i++) {
        uint32_t twin = r->backward ? ds_shard__value(s, in[i].value)->twin : 0;
        if (twin) in[i].value.i = twin - 1;
        to[i] = by_heads(over->in[i], over);
    }
    DS_TRY(on_whole_sequences(s, old, in, to, &op, err));
    DS_TRY(split_again(s, old, op, over, made, err));
    if (!r->backward && old->n_out > 1) ds_shard__remember(s, ds_use_of(made[0]), op->out[0], true);
    return DS_OK;
}

/* ---- the ring ---- */

typedef struct ring {
    ds_sharder *s;
    const ds_op *old;
    roles roles;
    ds_value in[DS_MAX_OPERANDS]; /* inside the region */
    const char *axes[DS_SHARD_AXES];
    uint32_t n_axes;
    int64_t n;                  /* blocks */
    ds_expr rank;               /* of a device on the ring */
    ds_expr q_first, k_first;   /* positions of the whole sequence's first query and key */
    ds_expr q_length, k_length; /* of a block */
    bool causal, diagonal;      /* diagonal: a device's own block is masked like a whole sequence */
    uint32_t n_state;
} ring;

static ds_exprs *exprs_of(const ring *r) {
    return &r->s->unit->exprs;
}

static ds_expr fold(const ring *r, ds_expr_kind kind, ds_expr a, ds_expr b) {
    return ds_expr_fold(exprs_of(r), kind, a, b);
}

/* The coordinate along the axes, major first. */
static ds_expr rank_of(const ring *r, const split *over) {
    ds_expr rank = ds_expr_int(exprs_of(r), 0);
    for (uint32_t i = 0; i < r->n_axes; i++) {
        ds_expr_node node = {.kind = DS_EXPR_AXIS_INDEX, .name = r->axes[i]};
        int64_t size = ds_shard__axis_size(r->s, 0, over->axis[i]);
        rank = fold(r, DS_EXPR_MUL, rank, ds_expr_int(exprs_of(r), size));
        rank = fold(r, DS_EXPR_ADD, rank, ds_expr_make(exprs_of(r), node));
    }
    return rank;
}

static ds_expr attr_or(const ds_op *op, const char *name, ds_expr value) {
    const ds_attr *attr = ds_attr_find(op->attrs, op->n_attrs, name);
    return attr ? attr->expr : value;
}

/* Sets positions; without q_start and k_start the last query sees all keys. */
static void find_positions(ring *r, const ds_type *q, const ds_type *k) {
    const ds_op *op = r->old;
    ds_expr zero = ds_expr_int(exprs_of(r), 0);
    bool placed = ds_attr_find(op->attrs, op->n_attrs, "q_start") ||
                  ds_attr_find(op->attrs, op->n_attrs, "k_start");
    ds_expr longer = fold(r, DS_EXPR_SUB, k->dims[SEQUENCE].size, q->dims[SEQUENCE].size);
    r->q_first = attr_or(op, "q_start", placed ? zero : longer);
    r->k_first = attr_or(op, "k_start", zero);
    r->causal = ds_op_attr_bool(op, "causal");
    r->diagonal = !placed && ds_expr_equal(exprs_of(r), longer, zero) == DS_YES;
}

/* Gives a block the op's attributes, and the block's positions if its mask depends on them. */
static void set_attrs(const ring *r, ds_op *op, bool own, ds_expr turn) {
    ds_builder *b = &r->s->f.b;
    for (uint32_t i = 0; i < r->old->n_attrs; i++) {
        const ds_attr *attr = &r->old->attrs[i];
        if (strcmp(attr->name, "name") != 0 && strcmp(attr->name, "q_start") != 0 &&
            strcmp(attr->name, "k_start") != 0)
            ds_build_attr(b, op, *attr);
    }
    if (!r->causal || (own && r->diagonal)) return;
    ds_expr q = fold(r, DS_EXPR_MUL, r->rank, r->q_length);
    ds_expr owner =
        fold(r, DS_EXPR_MOD, fold(r, DS_EXPR_SUB, r->rank, turn), ds_expr_int(exprs_of(r), r->n));
    ds_expr k = fold(r, DS_EXPR_MUL, own ? r->rank : owner, r->k_length);
    ds_build_attr_expr(b, op, "q_start", fold(r, DS_EXPR_ADD, q, r->q_first));
    ds_build_attr_expr(b, op, "k_start", fold(r, DS_EXPR_ADD, k, r->k_first));
}

/* Names inside the region: a block's results, results joined so far, values that travel. */
static const char *const block_names[2][MAX_STATE] = {{"block", "block_lse"},
                                                      {"block_dq", "block_dk", "block_dv"}};
static const char *const state_names[2][MAX_STATE] = {{"so_far", "so_far_lse"},
                                                      {"sum_dq", "sum_dk", "sum_dv"}};
static const char *const next_names[2] = {"next_k", "next_v"};
static const char *const here_names[2] = {"here_k", "here_v"};
static const char *const back_names[2] = {"back_dk", "back_dv"};

/* Sends two values to the next device; from[i] may be to[i]. */
static ds_status pass_on(const ring *r, const ds_value from[2], const char *const names[2],
                         ds_value to[2], ds_error *err) {
    ds_builder *b = &r->s->f.b;
    ds_op *op = ds_build_op(b, DS_OP_PERMUTE);
    op->over = DS_NEW_N(&r->s->unit->arena, const char *, r->n_axes);
    memcpy(op->over, r->axes, r->n_axes * sizeof *r->axes);
    op->n_over = r->n_axes;
    for (uint32_t i = 0; i < 2; i++) ds_build_in(b, op, ds_use_of(from[i]));
    for (uint32_t i = 0; i < 2; i++) ds_build_out(b, op, names[i], NULL);
    DS_TRY(ds_build_put(b, op, err));
    memcpy(to, op->out, 2 * sizeof *to);
    return DS_OK;
}

/* The op on one block of keys and values. */
static ds_status one_block(const ring *r, const ds_value kv[2], bool own, ds_expr turn,
                           ds_value *out, ds_error *err) {
    ds_builder *b = &r->s->f.b;
    ds_op *op = ds_build_op(b, r->old->code);
    op->loc = r->old->loc;
    for (uint32_t i = 0; i < r->roles.n_in; i++)
        ds_build_in(b, op, ds_use_of(is_keys(&r->roles, i) ? kv[i == r->roles.v] : r->in[i]));
    for (uint32_t i = 0; i < r->n_state; i++)
        ds_build_out(b, op, block_names[r->roles.backward][i], NULL);
    set_attrs(r, op, own, turn);
    DS_TRY(ds_build_put(b, op, err));
    memcpy(out, op->out, r->n_state * sizeof *out);
    return DS_OK;
}

static ds_status merge_blocks(const ring *r, const ds_value a[2], const ds_value c[2],
                              ds_value out[2], ds_error *err) {
    ds_builder *b = &r->s->f.b;
    ds_op *op = ds_build_op(b, DS_OP_ATTENTION_MERGE);
    const ds_value in[4] = {a[0], a[1], c[0], c[1]};
    for (uint32_t i = 0; i < 4; i++) ds_build_in(b, op, ds_use_of(in[i]));
    for (uint32_t i = 0; i < 2; i++) ds_build_out(b, op, state_names[0][i], NULL);
    DS_TRY(ds_build_put(b, op, err));
    memcpy(out, op->out, 2 * sizeof *out);
    return DS_OK;
}

/* One turn after the first: computes on a block and joins its results to the state. The gradients
 * of the block's keys and values come from the device that had the block before. */
static ds_status turn(const ring *r, const ds_value kv[2], ds_expr at, ds_value *state,
                      ds_error *err) {
    ds_value block[MAX_STATE];
    if (r->roles.backward) DS_TRY(pass_on(r, state + 1, back_names, state + 1, err));
    DS_TRY(one_block(r, kv, false, at, block, err));
    if (!r->roles.backward) return merge_blocks(r, state, block, state, err);
    for (uint32_t i = 0; i < r->n_state; i++) {
        DS_TRY(ds_build_binary(&r->s->f.b, DS_OP_ADD, state_names[1][i], ds_use_of(state[i]),
                               ds_use_of(block[i]), &state[i], err));
    }
    return DS_OK;
}

/* Does a loop of the block have this index? */
static bool loops_have(const ds_block *block, const char *name) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        if ((op->code == DS_OP_FOR && op->index == name) ||
            (op->body && loops_have(op->body, name)))
            return true;
    }
    return false;
}

static bool params_have(const ds_module *module, const char *name) {
    for (uint32_t i = 0; i < module->params.n; i++)
        if (module->params.at[i].name == name) return true;
    return false;
}

static const char *free_index(const ds_sharder *s) {
    const char *name = ds_intern(&s->unit->strings, "turn");
    for (uint32_t i = 2; params_have(s->module, name) || loops_have(&s->f.from->body, name); i++)
        name = ds_intern(&s->unit->strings, ds_arena_printf(&s->unit->arena, "turn%u", i));
    return name;
}

/* Turns 1 to n − 2; each sends the next block meanwhile. */
static ds_status middle(const ring *r, ds_value kv[2], ds_value *state, ds_error *err) {
    ds_builder *b = &r->s->f.b;
    ds_exprs *exprs = exprs_of(r);
    const char *index = free_index(r->s);
    ds_op *loop = ds_build_for(b, index, ds_expr_int(exprs, 1), ds_expr_int(exprs, r->n - 1));
    ds_value carry[MAX_STATE], next[2], here[2];
    ds_use yield[MAX_STATE + 2];
    for (uint32_t i = 0; i < r->n_state; i++)
        carry[i] =
            ds_build_carry(b, loop, state_names[r->roles.backward][i], NULL, ds_use_of(state[i]));
    for (uint32_t i = 0; i < 2; i++)
        here[i] = ds_build_carry(b, loop, here_names[i], NULL, ds_use_of(kv[i]));
    DS_TRY(pass_on(r, here, next_names, next, err));
    DS_TRY(turn(r, here, ds_expr_index(exprs, index), carry, err));
    for (uint32_t i = 0; i < r->n_state; i++) yield[i] = ds_use_of(carry[i]);
    for (uint32_t i = 0; i < 2; i++) yield[r->n_state + i] = ds_use_of(next[i]);
    DS_TRY(ds_build_yield(b, yield, r->n_state + 2, NULL, 0, NULL, err));
    memcpy(state, loop->out, r->n_state * sizeof *state);
    memcpy(kv, loop->out + r->n_state, 2 * sizeof *kv);
    return DS_OK;
}

static ds_status go_round(const ring *r, ds_value *state, ds_error *err) {
    const ds_value own[2] = {r->in[r->roles.k], r->in[r->roles.v]};
    ds_value kv[2];
    DS_TRY(pass_on(r, own, next_names, kv, err));
    DS_TRY(one_block(r, own, true, DS_NO_EXPR, state, err));
    if (r->n > 2) DS_TRY(middle(r, kv, state, err));
    DS_TRY(turn(r, kv, ds_expr_int(exprs_of(r), r->n - 1), state, err));
    return r->roles.backward ? pass_on(r, state + 1, back_names, state + 1, err) : DS_OK;
}

/* Opens the region. A region reads plain values under their names, so an element of a family gets a
 * name, and a value that is read twice is listed once. */
static ds_status open_region(ring *r, const ds_use *in, ds_error *err) {
    ds_builder *b = &r->s->f.b;
    ds_use listed[DS_MAX_OPERANDS];
    uint32_t at[DS_MAX_OPERANDS], n = 0;
    for (uint32_t i = 0; i < r->roles.n_in; i++) {
        ds_use use = in[i];
        if (use.n_index) {
            ds_value plain;
            DS_TRY(ds_build_unary(b, DS_OP_AFTER, ds_value_at(b->func, use.value)->name, use,
                                  &plain, err));
            uint8_t seq = ds_shard__value(r->s, use.value)->seq;
            ds_shard__value(r->s, plain)->seq = seq;
            use = ds_use_of(plain);
        }
        for (at[i] = 0; at[i] < n && listed[at[i]].value.i != use.value.i;) at[i]++;
        if (at[i] == n) listed[n++] = use;
    }
    ds_op *region;
    DS_TRY(ds_build_local(b, r->axes, r->n_axes, listed, n, &region, err));
    region->loc = r->old->loc;
    const ds_attr *name = ds_attr_find(r->old->attrs, r->old->n_attrs, "name");
    if (name) ds_build_attr(b, region, *name);
    for (uint32_t i = 0; i < r->roles.n_in; i++) r->in[i] = region->args[at[i]];
    return DS_OK;
}

static ds_status close_region(const ring *r, const ds_value *state, const ds_layout *layouts,
                              ds_value *made, ds_error *err) {
    ds_sharder *s = r->s;
    ds_use results[MAX_STATE];
    const ds_type *types[MAX_STATE];
    const char *names[MAX_STATE];
    for (uint32_t i = 0; i < r->old->n_out; i++) {
        const ds_value_info *info = ds_value_at(s->f.from, r->old->out[i]);
        results[i] = ds_use_of(state[i]);
        types[i] = ds_shard__type(s, info->type, &layouts[i]);
        names[i] = info->name;
    }
    DS_TRY(ds_build_yield_local(&s->f.b, results, types, r->old->n_out, names, err));
    memcpy(made, ds_build_last(&s->f.b)->out, r->old->n_out * sizeof *made);
    return DS_OK;
}

static ds_status ring_attention(ds_sharder *s, const ds_op *old, const roles *role, ds_use *in,
                                const split *over, ds_value *made, ds_error *err) {
    ring r = {.s = s, .old = old, .roles = *role, .n_state = role->backward ? 3 : 2};
    r.n = ds_shard__parts(s, &over->in[role->q], SEQUENCE);
    for (uint32_t i = 0; i < over->n; i++)
        r.axes[r.n_axes++] = s->meshes.at[0].axes[over->axis[i]].name;
    r.rank = rank_of(&r, over);
    find_positions(&r, ds_shard__type_of(s, &in[role->q]), ds_shard__type_of(s, &in[role->k]));
    for (uint32_t i = 0; i < old->n_in; i++)
        DS_TRY(ds_shard__move(s, in[i], &over->in[i], &in[i], err));
    DS_TRY(open_region(&r, in, err));
    r.q_length = ds_value_at(s->f.b.func, r.in[role->q])->type->dims[SEQUENCE].size;
    r.k_length = ds_value_at(s->f.b.func, r.in[role->k])->type->dims[SEQUENCE].size;
    ds_value state[MAX_STATE];
    DS_TRY(go_round(&r, state, err));
    return close_region(&r, state, over->out, made, err);
}

ds_status ds_shard__attention(ds_sharder *s, const ds_op *old, ds_use *in,
                              const ds_shard_choice *choice, const ds_value **made, ds_error *err) {
    const roles r = roles_of(old);
    split over = {0};
    if (!find_split(s, old, &r, in, choice, &over)) return DS_OK;
    ds_value *out = DS_NEW_N(&s->unit->arena, ds_value, old->n_out);
    *made = out;
    switch (s->step->strategy.cp_type) {
    case DS_CP_RING:
        return ring_attention(s, old, &r, in, &over, out, err);
    case DS_CP_ULYSSES:
        return ulysses(s, old, &r, in, &over, out, err);
    default:
        return gathered(s, old, &r, in, &over, out, err);
    }
}
