/* Waits for offloads, so that device memory holds as many turns as `prefetch` allows.
 *
 *   sent    a turn of the forward pass begins after the offloads of the (k + 1)-th turn before have
 *           ended: the device holds values of at most k + 1 turns, however slow the link.
 *           Transformer Engine's double buffering is k = 1 (cpu_offload.py,
 *           AsyncDoubleBufferGroupOffloadHandler).
 *   done    the states of an update, or of a loop's turn of updates, are reloaded after the states
 *           of the (k + 1)-th update before have gone back. The first updates wait for the end of
 *           the backward pass, which is the op before them in the text.
 *
 * Both are tokens: views of an argument that wait, and that loops carry. */
#include "ir/passes/overlap/internal.h"

#include <stdlib.h>
#include <string.h>

static bool updates_inside(const ds_block *block) {
    for (uint32_t i = 0; i < block->n_ops; i++)
        if (ds_is_update(block->ops[i]) ||
            (block->ops[i]->body && updates_inside(block->ops[i]->body)))
            return true;
    return false;
}

/* ---- turns of the forward pass ---- */

/* Makes all readers of the carry but its offload read `held`. */
static void redirect(ds_block *block, ds_value carry, ds_value held) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        ds_op *op = block->ops[i];
        if (op->code == DS_OP_OFFLOAD || (op->n_out && op->out[0].i == held.i)) continue;
        for (uint32_t k = 0; k < op->n_in; k++)
            if (op->in[k].value.i == carry.i) op->in[k] = ds_use_of(held);
        if (op->body) redirect(op->body, carry, held);
    }
}

static bool sends(const ds_block *body) {
    for (uint32_t i = 0; i < body->n_ops; i++)
        if (body->ops[i]->code == DS_OP_OFFLOAD) return true;
    return false;
}

/* Makes the turn's carries wait for `token`. */
static void hold_turn(ds_edit *e, ds_op *loop, uint32_t n, ds_use token, const ds_map *tokens) {
    for (uint32_t i = 0, at = 0; i < n; i++) {
        ds_value carry = loop->args[i];
        if (ds_map_find(tokens, carry.i)) continue;
        const char *name = ds_value_at(e->func, carry)->name;
        ds_op *held =
            ds_edit_after(e, ds_arena_printf(&e->unit->arena, "%s.held", name), ds_use_of(carry));
        ds_edit_wait(e, held, token);
        ds_edit_insert_op(e, loop->body, at++, held);
        redirect(loop->body, carry, held->out[0]);
    }
}

static void hold_loop(ds_edit *e, ds_op *loop, ds_use base, uint32_t k, const ds_map *tokens) {
    ds_block *body = loop->body;
    uint32_t n = loop->n_args;
    ds_use *q = DS_NEW_N(&e->unit->arena, ds_use, k + 1);
    ds_op *sent = ds_edit_after(e, "sent", base);
    for (uint32_t i = 0; i < body->n_ops; i++)
        if (body->ops[i]->code == DS_OP_OFFLOAD)
            ds_edit_wait(e, sent, ds_use_of(body->ops[i]->out[0]));
    for (uint32_t i = 0; i <= k; i++) q[i] = ds_edit_carry(e, loop, n + i, "sent", base);
    hold_turn(e, loop, n, q[k], tokens);
    ds_edit_insert_op(e, body, body->n_ops - 1, sent);
    for (uint32_t i = 0; i <= k; i++)
        ds_edit_yield(e, loop, n + i, "sent", i ? q[i - 1] : ds_use_of(sent->out[0]));
}

static void hold_sends(ds_edit *e, ds_block *block, ds_use base, uint32_t k, const ds_map *tokens) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        ds_op *op = block->ops[i];
        if (op->code != DS_OP_FOR || updates_inside(op->body)) continue;
        hold_sends(e, op->body, base, k, tokens);
        if (sends(op->body)) hold_loop(e, op, base, k, tokens);
    }
}

/* ---- updates ---- */

/* The updates of one stage. */
typedef struct line {
    ds_use base;
    ds_use *q; /* k + 1 tokens, the latest first */
    bool begun;
    DS_VEC(ds_use) sent; /* offloads since the last token; heap */
} line;

typedef struct updates {
    const ds_model_step *step;
    ds_edit *edit;
    const ds_map *read; /* values that updates read */
    uint32_t k;
    line *lines; /* by stage */
    uint32_t n_lines, stage;
    line *now; /* the line of the current op */
} updates;

static bool is_reload(const updates *u, const ds_op *op) {
    return op->code == DS_OP_RELOAD && ds_map_find(u->read, op->out[0].i);
}

static bool reloads_inside(const updates *u, const ds_block *block) {
    for (uint32_t i = 0; i < block->n_ops; i++)
        if (is_reload(u, block->ops[i]) ||
            (block->ops[i]->body && reloads_inside(u, block->ops[i]->body)))
            return true;
    return false;
}

/* Waits for the op's results that are no families; false if the op has none. */
static bool wait_for_results(ds_edit *e, ds_op *after, const ds_op *op) {
    bool any = false;
    for (uint32_t i = 0; i < op->n_out; i++) {
        if (ds_value_at(e->func, op->out[i])->n_binders) continue;
        ds_edit_wait(e, after, ds_use_of(op->out[i]));
        any = true;
    }
    return any;
}

static uint32_t stage_of(const updates *u, const ds_op *op) {
    return u->n_lines > 1 ? ds_overlap__stage(u->step, u->edit->func, op, u->stage) : 0;
}

static void enter(updates *u, const ds_op *op) {
    u->stage = stage_of(u, op);
    u->now = &u->lines[u->stage];
}

/* Makes the first updates wait for the op before. Returns the number of ops put at `at`. */
static uint32_t begin_updates(updates *u, ds_block *block, uint32_t at) {
    if (u->now->begun) return 0;
    if (u->now->base.value.i == UINT32_MAX)
        u->now->base = ds_overlap__base(u->step, u->edit->func, u->stage, at);
    ds_op *ready = ds_edit_after(u->edit, "done", u->now->base);
    for (uint32_t i = at; i-- > 0;)
        if (stage_of(u, block->ops[i]) == u->stage &&
            wait_for_results(u->edit, ready, block->ops[i]))
            break;
    ds_edit_insert_op(u->edit, block, at, ready);
    for (uint32_t i = 0; i <= u->k; i++) u->now->q[i] = ds_use_of(ready->out[0]);
    u->now->begun = true;
    return 1;
}

/* Ends an update or a turn: a token waits for the offloads since the last token. Returns the number
 * of ops put at `at`. */
static uint32_t end_update(updates *u, ds_block *block, uint32_t at) {
    line *now = u->now;
    if (!now->sent.n) return 0;
    ds_op *done = ds_edit_after(u->edit, "done", now->base);
    for (uint32_t i = 0; i < now->sent.n; i++) ds_edit_wait(u->edit, done, now->sent.at[i]);
    ds_edit_insert_op(u->edit, block, at, done);
    memmove(now->q + 1, now->q, u->k * sizeof *now->q);
    now->q[0] = ds_use_of(done->out[0]);
    now->sent.n = 0;
    return 1;
}

static void hold_updates(updates *u, ds_block *block);

static void hold_update_loop(updates *u, ds_op *loop) {
    uint32_t n = loop->n_args;
    ds_use *q = u->now->q;
    for (uint32_t i = 0; i <= u->k; i++) q[i] = ds_edit_carry(u->edit, loop, n + i, "done", q[i]);
    hold_updates(u, loop->body);
    end_update(u, loop->body, loop->body->n_ops - 1);
    for (uint32_t i = 0; i <= u->k; i++) q[i] = ds_edit_yield(u->edit, loop, n + i, "done", q[i]);
}

static void hold_updates(updates *u, ds_block *block) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        ds_op *op = block->ops[i];
        bool loop = op->code == DS_OP_FOR && reloads_inside(u, op->body);
        enter(u, op);
        if (op->code == DS_OP_OFFLOAD) DS_HPUSH(&u->now->sent, ds_use_of(op->out[0]));
        if (!loop && !is_reload(u, op)) continue;
        i += begin_updates(u, block, i);
        i += end_update(u, block, i);
        if (loop) {
            hold_update_loop(u, op);
            continue;
        }
        const char *name = ds_value_at(u->edit->func, op->in[0].value)->name;
        ds_op *held = ds_edit_after(
            u->edit, ds_arena_printf(&u->edit->unit->arena, "%s.held", name), op->in[0]);
        ds_edit_wait(u->edit, held, u->now->q[u->k]);
        op->in[0] = ds_use_of(held->out[0]);
        ds_edit_insert_op(u->edit, block, i++, held);
    }
}

void ds_overlap__hold_host(const ds_model_step *step, ds_edit *edit, ds_use base,
                           const ds_map *read, const ds_map *tokens) {
    uint32_t k = (uint32_t)step->strategy.prefetch;
    updates u = {.step = step, .edit = edit, .read = read, .k = k};
    u.n_lines = ds_overlap__n_stages(step, edit->func);
    u.lines = ds_xcalloc(u.n_lines, sizeof *u.lines);
    u.now = u.lines;
    for (uint32_t s = 0; s < u.n_lines; s++) {
        u.lines[s].base = u.n_lines > 1 ? ds_overlap__base(step, edit->func, s, 0) : base;
        u.lines[s].q = DS_NEW_N(&edit->unit->arena, ds_use, k + 1);
    }
    if (u.n_lines == 1) hold_sends(edit, &edit->func->body, base, k, tokens);
    hold_updates(&u, &edit->func->body);
    for (uint32_t s = 0; s < u.n_lines; s++) free(u.lines[s].sent.at);
    free(u.lines);
}
