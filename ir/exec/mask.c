/* What names a dropout mask (a function of seed, op path, step and global index).
 *
 * The key of an op is the names of the blocks around it from the outside in, a loop's being its
 * index and a rec's the op's dims, and its own name, joined by dots; the turns of those loops and
 * the point are numbers beside it. So
 * `%d = dropout(%x)` in `for l` in a call named block has the key "block.l.d" and the turn [l], and
 * {key = "block.l.d", turn = [l]} says the same from anywhere. The entry's name is no part of it.
 * To a key that is given so, the microbatches of the calls around it are added as further turns.
 *
 * A seed of the op's own takes the place of its path. A shard whose place in the whole is not known
 * has a mask of its own: its device's coordinates count. */
#include "ir/exec/machine_internal.h"

#include <string.h>

static void block_names(const ds_exec_thread *thread, const ds_exec_open *open, ds_buf *out) {
    if (open->up) block_names(thread, open->up, out);
    if (!open->op) return;
    uint32_t n_point;
    const ds_index *point = ds_exec__point(open, &n_point);
    for (uint32_t i = 0; i < n_point; i++) ds_buf_printf(out, "%s.", point[i].name);
    const char *name = NULL;
    if (open->op->code == DS_OP_FOR) name = open->op->index;
    if (open->op->code == DS_OP_CALL)
        name = ds_exec__own_name(thread, open->up->frame->scope.func, open->op);
    if (name && *name) ds_buf_printf(out, "%s.", name);
}

static uint64_t with_turns(const ds_exec_open *open, uint64_t key) {
    if (open->up) key = with_turns(open->up, key);
    bool loop = open->op && open->op->code == DS_OP_FOR;
    uint32_t n_point;
    const ds_index *point = ds_exec__point(open, &n_point);
    for (uint32_t i = 0; i < n_point; i++) key = ds_hash_mix(key, (uint64_t)point[i].value);
    return loop ? ds_hash_mix(key, (uint64_t)open->turn.value) : key;
}

static uint64_t path_key(const ds_exec_thread *thread, const ds_exec_open *open, const ds_op *op) {
    ds_buf names = {0};
    block_names(thread, open, &names);
    ds_buf_put(&names, ds_exec__own_name(thread, open->frame->scope.func, op));
    uint64_t key = ds_hash_bytes(names.text, names.n);
    ds_buf_deinit(&names);
    return with_turns(open, key);
}

/* call @f(…) {microbatch = 3}, outermost first. */
static ds_status with_microbatches(const ds_exec_open *open, const ds_env *env, uint64_t *key,
                                   ds_error *err) {
    if (open->up) DS_TRY(with_microbatches(open->up, env, key, err));
    bool call = open->op && open->op->code == DS_OP_CALL;
    const ds_attr *attr =
        call ? ds_attr_find(open->op->attrs, open->op->n_attrs, "microbatch") : NULL;
    int64_t number;
    if (!attr) return DS_OK;
    DS_TRY(ds_expr_eval_int(env, attr->expr, attr->loc, &number, err));
    *key = ds_hash_mix(*key, (uint64_t)number);
    return DS_OK;
}

/* {key = "block.l.d", turn = [l]}, or a single number. */
static ds_status given_key(const ds_op *op, const char *name, const ds_env *env, uint64_t *key,
                           ds_error *err) {
    const ds_attr *turn = ds_attr_find(op->attrs, op->n_attrs, "turn");
    *key = ds_hash_bytes(name, strlen(name));
    uint32_t n = !turn ? 0 : turn->kind == DS_ATTR_LIST ? turn->n_items : 1;
    for (uint32_t i = 0; i < n; i++) {
        int64_t at = 0;
        ds_expr e = turn->kind == DS_ATTR_LIST ? turn->items[i].expr : turn->expr;
        DS_TRY(ds_expr_eval_int(env, e, turn->loc, &at, err));
        *key = ds_hash_mix(*key, (uint64_t)at);
    }
    return DS_OK;
}

ds_status ds_exec__mask_key(const ds_exec_thread *thread, const ds_exec_open *open,
                            const ds_exec_place *place, uint32_t position, ds_eval *e,
                            ds_error *err) {
    const ds_op *op = e->op;
    uint64_t *key = &e->mask_key;
    const char *name = ds_op_attr_str(op, thread->run->binding->unit, "key");
    *key = 1;
    if (name) DS_TRY(given_key(op, name, e->env, key, err));
    if (name)
        DS_TRY(with_microbatches(open, e->env, key, err));
    else if (!ds_attr_find(op->attrs, op->n_attrs, "seed"))
        *key = path_key(thread, open, op);
    if (ds_attr_find(op->attrs, op->n_attrs, "full")) return DS_OK;
    for (uint32_t i = 0; i < open->manual.n; i++) {
        uint32_t axis = ds_exec_axis(place, open->manual.axes[i]);
        *key = ds_hash_mix(*key, (uint64_t)ds_exec_coordinate(place, axis, position));
    }
    if (thread->rank >= 0) *key = ds_hash_mix(*key, (uint64_t)thread->rank);
    return DS_OK;
}
