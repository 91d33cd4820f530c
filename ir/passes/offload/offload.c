/* The offload pass: values wait in the host's memory while the device does not need them.
 *
 *   activations  values that forward loops keep for the backward pass: offloaded in the turn that
 *                makes them, reloaded in the turn that reads them
 *   optimizer    states and master copies: arguments and results on the host, reloaded for the
 *                update, offloaded after it
 *   weights      like states; also reloaded in every turn of a loop, forward and backward
 *
 * The pass works in place on the program that shard has made. There every kept value, every part of
 * a state and all communication is written out, so each device offloads its own part, and a value
 * that shard has moved is offloaded in the layout that is read. `overlap` decides when values are
 * reloaded, and which ops wait for offloads to end.
 *
 * Sources: PyTorch's saved-tensor hooks (torch.autograd.graph.save_on_cpu) and Transformer Engine's
 * cpu_offload for activations; FSDP's CPUOffload and DeepSpeed's ZeRO-Infinity (arXiv:2104.07857)
 * for weights and states. In DeepSpeed the CPU may also update the weights (ZeRO-Offload,
 * arXiv:2101.06840); here hosts compute nothing, so states travel to the device and back. */
#include "ir/passes/build/copy.h"
#include "ir/passes/build/edit.h"
#include "ir/passes/passes.h"

#include <stdlib.h>
#include <string.h>

/* When an op runs. A reload serves the readers of one block and phase. */
typedef enum phase { FORWARD, BACKWARD, UPDATE } phase;

typedef struct offloader {
    ds_model_step *step;
    ds_edit edit;
    ds_map forward; /* ops that the model's results depend on */
    ds_map updates; /* values that updates read */
    ds_map copies;  /* value → 1 + its copy on the host */
    bool *stays;    /* by value: the family has to be on the device */
    bool *read;     /* by value: the backward pass reads an element of the family */
    ds_value *into; /* by value: the family of an outer loop that keeps the value */
    uint32_t n_sent, n_received;
} offloader;

static const ds_value_info *info_of(const offloader *o, ds_value value) {
    return ds_value_at(o->edit.func, value);
}

static bool is_host(const offloader *o, ds_value value) {
    return info_of(o, value)->type->host;
}

static void set_host(offloader *o, ds_value value) {
    ds_value_info *info = ds_value_at(o->edit.func, value);
    info->type = ds_type_copy(&o->edit.unit->arena, info->type);
    info->type->host = true;
}

/* Does the use name a whole family? */
static bool is_whole(const offloader *o, const ds_use *use) {
    return info_of(o, use->value)->n_binders && !use->n_index;
}

static const char *name_of(offloader *o, ds_value value, const char *suffix) {
    return ds_arena_join(&o->edit.unit->arena, info_of(o, value)->name, suffix);
}

/* ---- forward, backward, update ---- */

static void need_all(const ds_op *op, bool *needed) {
    for (uint32_t i = 0; i < op->n_in; i++) needed[op->in[i].value.i] = true;
    for (uint32_t i = 0; op->body && i < op->body->n_ops; i++) need_all(op->body->ops[i], needed);
}

static void set_forward(offloader *o, const ds_op *op) {
    ds_map_put(&o->forward, DS_KEY(op), 1);
    for (uint32_t i = 0; op->body && i < op->body->n_ops; i++) set_forward(o, op->body->ops[i]);
}

static void find_forward(offloader *o) {
    const ds_func *func = o->edit.func;
    const ds_op *end = ds_block_end(&func->body);
    bool *needed = ds_xcalloc(func->values.n + 1, sizeof *needed);
    for (uint32_t i = 0; i < o->step->n_model_results && i < end->n_in; i++)
        needed[end->in[i].value.i] = true;
    for (uint32_t i = func->body.n_ops - 1; i-- > 0;) {
        const ds_op *op = func->body.ops[i];
        bool is = false;
        for (uint32_t k = 0; k < op->n_out; k++) is = is || needed[op->out[k].i];
        if (!is) continue;
        set_forward(o, op);
        need_all(op, needed);
    }
    free(needed);
}

static bool is_forward(const offloader *o, const ds_op *op) {
    return ds_map_find(&o->forward, DS_KEY(op)) != NULL;
}

static phase phase_of(const offloader *o, const ds_op *op) {
    if (is_forward(o, op)) return FORWARD;
    bool update = ds_is_update(op) || (op->n_out && ds_map_find(&o->updates, op->out[0].i));
    return update ? UPDATE : BACKWARD;
}

/* ---- copies on the host ---- */

/* Offloads a value of the block right after its op. */
static ds_use send(offloader *o, ds_block *block, ds_value value) {
    const uint64_t *known = ds_map_find(&o->copies, value.i);
    if (known) return ds_use_of((ds_value){(uint32_t)*known - 1});
    uint32_t at = ds_block_find(o->edit.func, block, value);
    ds_use use = ds_use_of(value);
    ds_op *op = ds_edit_unary(&o->edit, DS_OP_OFFLOAD, name_of(o, value, ".host"), use,
                              info_of(o, value)->type);
    set_host(o, op->out[0]);
    ds_edit_insert_op(&o->edit, block, at == block->n_ops ? 0 : at + 1, op);
    ds_map_put(&o->copies, value.i, op->out[0].i + 1u);
    o->n_sent++;
    return ds_use_of(op->out[0]);
}

static uint32_t result_of(const ds_op *op, ds_value value) {
    uint32_t i = 0;
    while (i < op->n_out && op->out[i].i != value.i) i++;
    return i;
}

/* Makes the loop keep result i on the host. */
static void keep_on_host(offloader *o, ds_op *loop, uint32_t i) {
    ds_op *yield = loop->body->ops[loop->body->n_ops - 1];
    ds_use *use = &yield->in[i];
    if (is_host(o, loop->out[i])) return;
    if (is_whole(o, use)) {
        ds_op *inner = info_of(o, use->value)->def;
        keep_on_host(o, inner, result_of(inner, use->value));
    } else {
        *use = send(o, loop->body, use->value);
    }
    set_host(o, loop->out[i]);
}

/* ---- activations ---- */

static void note_read(offloader *o, const ds_op *op, const ds_use *use, const ds_op *loop,
                      uint32_t i) {
    uint32_t v = use->value.i;
    bool keeps = op->code == DS_OP_YIELD && loop->code == DS_OP_FOR && i >= loop->n_args;
    if (is_forward(o, op) && keeps && is_whole(o, use)) {
        o->stays[v] = o->stays[v] || o->into[v].i != UINT32_MAX;
        o->into[v] = loop->out[i];
        return;
    }
    bool leaves = op->code == DS_OP_RETURN || op->code == DS_OP_CALL;
    if (is_forward(o, op) || leaves || use->index_hi || is_whole(o, use)) o->stays[v] = true;
    o->read[v] = true;
}

static void note_reads(offloader *o, const ds_block *block, const ds_op *around) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        for (uint32_t k = 0; k < op->n_in; k++) note_read(o, op, &op->in[k], around, k);
        if (op->body) note_reads(o, op->body, op);
    }
}

/* Does only the backward pass read result i of a forward loop? */
static bool is_saved(const offloader *o, const ds_op *loop, uint32_t i) {
    ds_value family = loop->out[i];
    for (; !o->stays[family.i]; family = o->into[family.i]) {
        if (o->read[family.i] && o->into[family.i].i == UINT32_MAX) break;
        if (o->into[family.i].i == UINT32_MAX) return false;
    }
    if (o->stays[family.i]) return false;
    const ds_use *use = &ds_block_end(loop->body)->in[i];
    const ds_value_info *info = info_of(o, use->value);
    if (use->n_index) return false; /* an element of a family kept elsewhere */
    if (info->n_binders)
        return !info->is_arg && info->def->code == DS_OP_FOR &&
               ds_block_find(o->edit.func, loop->body, use->value) < loop->body->n_ops &&
               is_saved(o, info->def, result_of(info->def, use->value));
    return ds_block_find(o->edit.func, loop->body, use->value) < loop->body->n_ops ||
           (info->is_arg && info->def == loop);
}

static void send_activations(offloader *o, const ds_block *block) {
    const ds_block *outermost = &o->edit.func->body;
    for (uint32_t i = 0, loop = 0; i < block->n_ops; i++) {
        ds_op *op = block->ops[i];
        if (op->code != DS_OP_FOR) continue;
        if (block == outermost && !ds_step_layers_do(o->step, loop++, DS_LAYERS_SENT)) continue;
        if (!is_forward(o, op)) continue;
        for (uint32_t k = op->n_args; k < op->n_out; k++)
            if (is_saved(o, op, k)) keep_on_host(o, op, k);
        send_activations(o, op->body);
    }
}

static void offload_activations(offloader *o) {
    uint32_t n = o->edit.func->values.n + 1;
    o->stays = ds_xcalloc(n, sizeof *o->stays);
    o->read = ds_xcalloc(n, sizeof *o->read);
    o->into = ds_xmalloc(n * sizeof *o->into);
    memset(o->into, 0xff, n * sizeof *o->into);
    note_reads(o, &o->edit.func->body, NULL);
    send_activations(o, &o->edit.func->body);
    free(o->stays);
    free(o->read);
    free(o->into);
}

/* ---- states and weights ---- */

static bool has_role(const ds_value_info *info, const char *role) {
    const ds_attr *attr = ds_attr_find(info->attrs, info->n_attrs, "role");
    return attr && attr->word && strcmp(attr->word, role) == 0;
}

/* Does the value belong to a weight whose states stay on the device? */
static bool stays(const ds_model_step *step, ds_value value) {
    for (uint32_t w = 0; w < step->weights.n; w++) {
        const ds_step_weight *weight = &step->weights.at[w];
        bool is = weight->master.i == value.i;
        for (uint32_t k = 0; k < weight->n_states; k++) is = is || weight->state[k].i == value.i;
        if (is) return weight->stays;
    }
    return false;
}

static void receive_args(offloader *o, const char *role) {
    bool some = o->edit.func == o->step->func && strcmp(role, "optimizer") == 0;
    for (uint32_t i = 0; i < o->edit.func->n_args; i++) {
        if (!has_role(info_of(o, o->edit.func->args[i]), role)) continue;
        if (some && stays(o->step, o->edit.func->args[i])) continue;
        set_host(o, o->edit.func->args[i]);
        o->n_received++;
    }
}

/* Makes the step return result i on the host. */
static void return_on_host(offloader *o, uint32_t i) {
    ds_func *func = o->edit.func;
    ds_use *use = &func->body.ops[func->body.n_ops - 1]->in[i];
    if (is_host(o, use->value)) return;
    if (is_whole(o, use)) {
        ds_op *loop = info_of(o, use->value)->def;
        keep_on_host(o, loop, result_of(loop, use->value));
    } else {
        *use = send(o, &func->body, use->value);
    }
    func->results[i] = ds_type_copy(&o->edit.unit->arena, func->results[i]);
    func->results[i]->host = true;
}

static uint32_t n_states(const ds_step_weight *weight) {
    return weight->n_states + (weight->master.i != DS_NO_VALUE.i);
}

/* Finds states by their order: the optimizer pass returns the model's results, gradients if they
 * are kept, then weights, then states and masters. */
static void return_state(offloader *o, uint32_t what) {
    const ds_model_step *step = o->step;
    uint32_t n = ds_step_n_trained(step);
    uint32_t first = step->n_model_results + (step->train.keep_gradients ? n : 0);
    if (!(step->done >> DS_PASS_OPTIMIZER & 1) || o->edit.func != step->func) return;
    if (what & DS_OFFLOAD_WEIGHTS)
        for (uint32_t i = first; i < first + n; i++) return_on_host(o, i);
    uint32_t i = first + n; /* first moments, then second moments, then master copies */
    for (uint32_t part = 0; what & DS_OFFLOAD_OPTIMIZER && part < 4; part++)
        for (uint32_t w = 0; w < n && i < o->edit.func->n_results; w++)
            if (part < n_states(&step->weights.at[w]) && !step->weights.at[w].stays)
                return_on_host(o, i++);
            else
                i += part < n_states(&step->weights.at[w]);
}

/* ---- reading ---- */

/* A value that has been reloaded in a block. */
typedef struct reloaded {
    ds_use from;
    phase phase;
    ds_value here;
} reloaded;

typedef DS_VEC(reloaded) reloads;

static bool same_element(const ds_use *a, const ds_use *b) {
    if (a->value.i != b->value.i || a->n_index != b->n_index) return false;
    for (uint32_t i = 0; i < a->n_index; i++)
        if (a->index[i].i != b->index[i].i) return false;
    return true;
}

static ds_value reload(offloader *o, ds_block *block, uint32_t at, const ds_use *use) {
    const ds_type *from = ds_edit_type(&o->edit, use);
    ds_type *type = ds_type_copy(&o->edit.unit->arena, from);
    type->host = false;
    ds_op *op = ds_edit_unary(&o->edit, DS_OP_RELOAD, name_of(o, use->value, ".here"), *use, type);
    ds_edit_insert_op(&o->edit, block, at, op);
    return op->out[0];
}

/* Does the op pass operand k on, on the host? */
static bool passes_on(const offloader *o, const ds_op *op, uint32_t k, const ds_op *around) {
    if (op->code == DS_OP_YIELD) return is_host(o, around->out[k]);
    return op->code == DS_OP_RELOAD || op->code == DS_OP_RETURN || op->code == DS_OP_CALL ||
           is_whole(o, &op->in[k]);
}

/* Reloads op i's operands. Reloads in a turn are put at the turn's beginning, in the order of their
 * readers; outside of loops, and for values that the turn makes, right before the first reader.
 * Returns the number of ops put before op i. */
static uint32_t reload_operands(offloader *o, ds_block *block, uint32_t i, const ds_op *around,
                                uint32_t *start, reloads *known) {
    ds_op *op = block->ops[i];
    uint32_t before = 0;
    for (uint32_t k = 0; k < op->n_in; k++) {
        ds_use *use = &op->in[k];
        if (!is_host(o, use->value) || passes_on(o, op, k, around)) continue;
        uint32_t r = 0;
        while (r < known->n &&
               !(same_element(&known->at[r].from, use) && known->at[r].phase == phase_of(o, op)))
            r++;
        if (r == known->n) {
            bool own = ds_block_find(o->edit.func, block, use->value) < block->n_ops;
            uint32_t at = around && !own ? (*start)++ : i + before;
            reloaded fresh = {*use, phase_of(o, op), reload(o, block, at, use)};
            DS_HPUSH(known, fresh);
            before++;
        }
        *use = ds_use_of(known->at[r].here);
    }
    return before;
}

static void reload_reads(offloader *o, ds_block *block, const ds_op *around) {
    reloads known = {0};
    uint32_t start = 0;
    for (uint32_t i = 0; i < block->n_ops; i++) {
        i += reload_operands(o, block, i, around, &start, &known);
        if (block->ops[i]->body) reload_reads(o, block->ops[i]->body, block->ops[i]);
    }
    free(known.at);
}

/* ---- the pass ---- */

/* Refuses a strategy that asks for values which the step does not have. */
static ds_status nothing_to_offload(const ds_model_step *step, uint32_t activations,
                                    uint32_t states, ds_error *err) {
    uint32_t what = step->strategy.offload;
    if (what & DS_OFFLOAD_ACTIVATIONS && !activations)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                            "offload = activations: no loop of the model keeps anything for the "
                            "backward pass; what is made outside of loops stays on the device");
    if (what & DS_OFFLOAD_OPTIMIZER && !states)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                            "offload = optimizer: this optimizer has neither states nor master "
                            "copies%s",
                            step->strategy.offload_fraction < 1
                                ? ", or offload_fraction is less than half a layer's"
                                : "");
    return DS_OK;
}

static ds_status check_ranges(const offloader *o, const ds_block *block, ds_error *err) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        for (uint32_t k = 0; k < op->n_in; k++)
            if (op->in[k].index_hi && is_host(o, op->in[k].value))
                return ds_error_set(err, DS_ERR_UNSUPPORTED, op->loc,
                                    "offload: a range of %%%s is read as one, which cannot be "
                                    "reloaded element by element",
                                    info_of(o, op->in[k].value)->name);
        if (op->body) DS_TRY(check_ranges(o, op->body, err));
    }
    return DS_OK;
}

static ds_status offload_func(offloader *o, ds_func *func, uint32_t *activations, uint32_t *states,
                              ds_error *err) {
    uint32_t what = o->step->strategy.offload;
    find_forward(o);
    ds_mark_updates(&func->body, &o->updates);
    if (what & DS_OFFLOAD_OPTIMIZER) receive_args(o, "optimizer");
    *states += o->n_received;
    if (what & DS_OFFLOAD_WEIGHTS) receive_args(o, "weight");
    if (what & DS_OFFLOAD_ACTIVATIONS) offload_activations(o);
    *activations += o->n_sent;
    return_state(o, what);
    DS_TRY(check_ranges(o, &func->body, err));
    reload_reads(o, &func->body, NULL);
    return DS_OK;
}

ds_status ds_pass_offload(ds_model_step *step, ds_error *err) {
    const ds_module *module = step->unit->modules.at[0];
    uint32_t activations = 0, states = 0;
    ds_status status = DS_OK;
    if (!(step->done & 1u << DS_PASS_SHARD))
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "offload: nothing is sharded: shard runs first");
    for (uint32_t i = 0; i < module->funcs.n && status == DS_OK; i++) {
        offloader o = {.step = step};
        ds_map *maps[] = {&o.forward, &o.updates, &o.copies};
        ds_edit_init(&o.edit, step->unit, module->funcs.at[i]);
        for (uint32_t k = 0; k < sizeof maps / sizeof *maps; k++) ds_map_init(maps[k]);
        status = offload_func(&o, module->funcs.at[i], &activations, &states, err);
        for (uint32_t k = 0; k < sizeof maps / sizeof *maps; k++) ds_map_deinit(maps[k]);
        ds_edit_deinit(&o.edit);
    }
    return status == DS_OK ? nothing_to_offload(step, activations, states, err) : status;
}
