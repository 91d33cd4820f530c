/* The pipeline pass: a sharded step becomes a program of stages.
 *
 * Before the pass, @step calls a function for every microbatch, which runs the whole forward and
 * backward pass on every rank of pp. The pass cuts these functions (cut.c) into functions of a
 * chunk and a phase, on the mesh slice of a stage. @step then calls these functions in an order
 * that keeps each rank's order of the schedule (ir/schedule/schedule.h). A value that another stage
 * reads is sent right after the call that made the value.
 *
 *     call @F0(%ids{0}, weights)            → %h, saved values          on @m{pp = 0}
 *     send %h to @m{pp = 1}
 *     call @F1(%h, %labels{0}, weights)     → %loss, saved values       on @m{pp = 1}
 *     call @B1_first(saved, weights)        → %h.grad, gradients
 *     send %h.grad to @m{pp = 0} …
 *
 * Gradients are added up on their stage from one microbatch to the next: a chunk's first backward
 * item takes the text of @first, its last item the text of @last, which also reduces over dp, all
 * other items the text of @next. The ops after the microbatches (means, sums of tied weights, the
 * optimizer) are copied to the stages whose weights they read.
 *
 * A schedule with two copies of the weights has every chunk on two stages. Both stages all_reduce
 * their gradients after the last microbatch, and then make the same update. */
#include "ir/ops/ops.h"
#include "ir/passes/build/copy.h"
#include "ir/passes/internal.h"
#include "ir/passes/pipeline/emit.h"
#include "ir/strategy/scenario.h"

#include <stdlib.h>
#include <string.h>

static ds_arena *arena_of(const ds_pipe *p) {
    return &p->unit->arena;
}

/* ---- the step before the pass ---- */

uint32_t ds_pipe__weight_of(const ds_pipe *p, ds_value v) {
    for (;;) {
        uint32_t number = p->arg_number[v.i], i = 0;
        const ds_op *op = ds_value_at(p->old, v)->def;
        if (number != DS_PIPE_NONE) return p->arg_weight[number];
        if (!op || (op->code != DS_OP_FOR && op->n_in != 1)) return DS_PIPE_NONE;
        if (op->code == DS_OP_FOR) {
            while (op->out[i].i != v.i) i++;
            op = ds_block_end(op->body);
        }
        v = op->in[i].value;
    }
}

/* Finds the microbatches' calls, and the inputs and weights of the step among their operands. */
static ds_status find_calls(ds_pipe *p, ds_error *err) {
    const ds_block *body = &p->old->body;
    uint32_t at = 0;
    p->parts = DS_NEW_N(arena_of(p), const ds_op *, p->m + 1);
    for (uint32_t i = 0; i < p->m; i++) {
        while (at < body->n_ops && body->ops[at]->code != DS_OP_CALL) {
            if (i)
                return ds_error_set(err, DS_ERR_UNSUPPORTED, body->ops[at]->loc,
                                    "pipeline: %s between the microbatches",
                                    ds_op_name(body->ops[at]->code));
            at++;
        }
        if (at == body->n_ops)
            return ds_error_set(err, DS_ERR_INTERNAL, p->old->loc, "%u calls of %u microbatches", i,
                                p->m);
        if (i == 0) p->head = at;
        p->parts[i] = body->ops[at++];
    }
    p->tail = at;
    return DS_OK;
}

static ds_status find_args(ds_pipe *p, ds_error *err) {
    const ds_op *call = p->parts[0];
    ds_model_step *step = p->step;
    uint32_t n = p->old->n_args;
    p->n_args = call->n_in;
    p->args = DS_NEW_N(arena_of(p), ds_pipe_arg, n + 1);
    p->arg_number = DS_NEW_N(arena_of(p), uint32_t, p->old->values.n + 1);
    p->arg_weight = DS_NEW_N(arena_of(p), uint32_t, n + 1);
    memset(p->arg_number, 0xff, p->old->values.n * sizeof *p->arg_number);
    memset(p->arg_weight, 0xff, n * sizeof *p->arg_weight);
    for (uint32_t k = 0; k < n; k++) p->arg_number[p->old->args[k].i] = k;
    for (uint32_t w = 0; w < step->weights.n; w++) {
        const ds_step_weight *weight = &step->weights.at[w];
        p->arg_weight[p->arg_number[weight->arg.i]] = w;
        for (uint32_t s = 0; s < weight->n_states; s++)
            p->arg_weight[p->arg_number[weight->state[s].i]] = w;
        if (weight->master.i != DS_NO_VALUE.i) p->arg_weight[p->arg_number[weight->master.i]] = w;
    }
    p->whole = DS_NEW_N(arena_of(p), ds_value, step->weights.n + 1);
    for (uint32_t w = 0; w < step->weights.n; w++) p->whole[w] = DS_NO_VALUE;
    for (uint32_t k = 0; k < call->n_in; k++) {
        uint32_t number = p->arg_number[call->in[k].value.i];
        uint32_t gathered = ds_pipe__weight_of(p, call->in[k].value);
        if (number == DS_PIPE_NONE && gathered != DS_PIPE_NONE) {
            p->args[k] = (ds_pipe_arg){DS_PIPE_WEIGHT, gathered};
            p->whole[gathered] = call->in[k].value;
            continue;
        }
        if (number == DS_PIPE_NONE)
            return ds_error_set(err, DS_ERR_UNSUPPORTED, call->loc,
                                "pipeline: @%s takes what is no argument of the step",
                                call->callee_name);
        bool weight = p->arg_weight[number] != DS_PIPE_NONE;
        p->args[k] = weight ? (ds_pipe_arg){DS_PIPE_WEIGHT, p->arg_weight[number]}
                            : (ds_pipe_arg){DS_PIPE_INPUT, number};
    }
    return DS_OK;
}

/* ---- the text that an item copies ---- */

static bool has_item(const ds_pipe *p, uint32_t kind, uint32_t mb, uint32_t chunk) {
    return p->index->item[kind] && p->index->item[kind][mb * p->n_chunks + chunk] != DS_NO_ITEM;
}

/* Gives items their roles, by the order in which a copy of a chunk makes its gradients. */
static ds_status find_roles(ds_pipe *p, ds_error *err) {
    const ds_schedule_index *index = p->index;
    uint32_t n = p->m * p->n_chunks;
    uint32_t *seen = ds_xcalloc(p->n_chunks * p->n_copies + 1, sizeof *seen);
    uint32_t *of_copy = ds_xcalloc(p->n_copies + 1, sizeof *of_copy);
    ds_status status = DS_OK;
    p->role = DS_NEW_N(arena_of(p), uint8_t, n + 1);
    for (uint32_t i = 0; i < p->m; i++) of_copy[index->copy[i]]++;
    for (uint32_t k = 0; k < p->n_copies && p->m > 1; k++)
        if (of_copy[k] == 1 && status == DS_OK)
            status =
                ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                             "schedule: one of %u microbatches runs on copy %u of the weights; "
                             "each copy needs two",
                             p->m, k);
    for (uint32_t number = 0; number < index->n_items; number++) {
        uint32_t rank;
        const ds_schedule_item *item = ds_schedule_item_at(index, number, &rank);
        uint32_t mb = (uint32_t)item->microbatch, chunk = (uint32_t)item->chunk;
        bool split = has_item(p, 2, mb, chunk);
        p->splits = p->splits || split;
        if (item->kind != (split ? 'W' : 'B')) continue;
        uint32_t copy = index->copy[mb], *at = &seen[copy * p->n_chunks + chunk];
        uint8_t role = *at + 1 == of_copy[copy] ? DS_PIPE_LAST : *at ? DS_PIPE_NEXT : DS_PIPE_FIRST;
        ++*at;
        p->role[mb * p->n_chunks + chunk] = (uint8_t)(2 * role + split);
    }
    free(seen);
    free(of_copy);
    return status;
}

static const ds_func *text_of(const ds_pipe *p, uint32_t role) {
    uint32_t i = role == DS_PIPE_FIRST ? 0 : role == DS_PIPE_LAST ? p->m - 1 : 1;
    return p->parts[i]->callee;
}

/* Checks that all texts of a chunk have the same exports of F, in the same order. */
static ds_status check_texts(const ds_pipe *p, ds_error *err) {
    for (uint32_t v = 0; v < DS_PIPE_VARIANTS; v++)
        for (uint32_t c = 0; p->cut[v].func && c < p->n_chunks; c++) {
            const ds_pipe_part *a = &p->cut[p->forward], *b = &p->cut[v];
            if (a->n_forward[c] == b->n_forward[c] && a->n_sends[c] == b->n_sends[c]) continue;
            return ds_error_set(err, DS_ERR_INTERNAL, p->old->loc,
                                "pipeline: chunk %u of @%s exports %u and %u, of @%s %u and %u", c,
                                a->func->name, a->n_forward[c], a->n_sends[c], b->func->name,
                                b->n_forward[c], b->n_sends[c]);
        }
    return DS_OK;
}

static ds_status cut_texts(ds_pipe *p, ds_error *err) {
    ds_pipe_context c = {p->step, p->unit, p->n_chunks, p->args, p->n_args};
    p->forward = DS_PIPE_NONE;
    for (uint32_t i = 0; i < p->m * p->n_chunks; i++) {
        uint32_t v = p->role[i];
        if (p->cut[v].func) continue;
        DS_TRY(ds_pipe__cut(&c, text_of(p, v / 2), v % 2, &p->cut[v], err));
        if (p->forward == DS_PIPE_NONE) p->forward = v;
    }
    return check_texts(p, err);
}

/* Finds the chunks that read a chunk's n-th sent value, in any text. */
static void find_destinations(ds_pipe *p) {
    p->destinations = DS_NEW_N(arena_of(p), uint8_t **, p->n_chunks + 1);
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        uint32_t n = p->cut[p->forward].n_sends[c];
        p->destinations[c] = DS_NEW_N(arena_of(p), uint8_t *, n + 1);
        for (uint32_t i = 0; i < n; i++)
            p->destinations[c][i] = DS_NEW_N(arena_of(p), uint8_t, p->n_chunks);
    }
    for (uint32_t v = 0; v < DS_PIPE_VARIANTS; v++) {
        const ds_pipe_part *part = &p->cut[v];
        for (uint32_t i = 0; part->func && i < part->n_ops; i++)
            for (uint32_t k = 0; k < part->ops[i].n_reads; k++) {
                uint32_t value = part->ops[i].reads[k], def = part->def[value];
                if (part->sent[value] == DS_PIPE_NONE || part->ops[i].chunk == DS_PIPE_NONE ||
                    part->ops[i].crosses)
                    continue;
                p->destinations[part->ops[def].chunk][part->sent[value]][part->ops[i].chunk] = 1;
            }
    }
}

/* ---- chunks of a step that is not sharded ---- */

static void note_chunks(const ds_pipe_part *part, ds_map *of) {
    for (uint32_t i = 0; i < part->n_ops; i++)
        if (part->ops[i].chunk != DS_PIPE_NONE)
            ds_map_put(of, DS_KEY(part->func->body.ops[i]), part->ops[i].chunk);
}

ds_status ds_pipe_chunks(ds_model_step *step, ds_map *of, ds_error *err) {
    ds_pipe p = {.step = step,
                 .unit = step->unit,
                 .old = step->func,
                 .index = &step->schedule,
                 .m = step->schedule.n_microbatches,
                 .n_chunks = step->schedule.n_chunks,
                 .n_copies = 1,
                 .n_stages = step->schedule.n_ranks};
    DS_TRY(find_calls(&p, err));
    DS_TRY(find_args(&p, err));
    ds_pipe_context c = {p.step, p.unit, p.n_chunks, p.args, p.n_args};
    for (uint32_t i = 0, n = 0; i < p.m; i++) { /* @first, @next, @last */
        const ds_func *func = p.parts[i]->callee;
        if (i && func == p.parts[i - 1]->callee) continue;
        DS_TRY(ds_pipe__cut(&c, func, false, &p.cut[n], err));
        note_chunks(&p.cut[n++], of);
    }
    ds_pipe__tail_chunks(&p, of);
    return DS_OK;
}

/* ---- the pass ---- */

static void forget_parts(ds_pipe *p) {
    ds_module *module = p->unit->modules.at[0];
    uint32_t n = 0;
    for (uint32_t i = 0; i < module->funcs.n; i++) {
        bool part = false;
        for (uint32_t k = 0; k < p->m && !part; k++)
            part = p->parts[k]->callee == module->funcs.at[i];
        if (!part) module->funcs.at[n++] = module->funcs.at[i];
    }
    module->funcs.n = n;
}

static ds_status pipe_init(ds_pipe *p, ds_model_step *step, ds_error *err) {
    const ds_mesh *mesh = ds_scenario_mesh(step->unit);
    *p = (ds_pipe){.step = step,
                   .unit = step->unit,
                   .old = step->func,
                   .index = &step->schedule,
                   .m = step->schedule.n_microbatches,
                   .n_chunks = step->schedule.n_chunks,
                   .n_copies = step->schedule.n_copies,
                   .n_stages = step->schedule.n_ranks};
    if (!(step->done & 1u << DS_PASS_SHARD) || !p->index->schedule)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "pipeline: stages that are sharded are needed: stage and shard run "
                            "before");
    p->mesh = mesh->name;
    DS_TRY(find_calls(p, err));
    DS_TRY(find_args(p, err));
    DS_TRY(find_roles(p, err));
    DS_TRY(cut_texts(p, err));
    find_destinations(p);
    return DS_OK;
}

/* Operations on other meshes than the stages' have one copy of their weights, and a backward pass in
 * one piece. */
static ds_status check_views(const ds_pipe *p, ds_error *err) {
    if (!p->step->has_views || (p->n_copies == 1 && !p->splits)) return DS_OK;
    return ds_error_set(err, DS_ERR_UNSUPPORTED, ds_step__knob(p->step, "schedule"),
                        "the schedule %s %s, and overrides or groups lie on other meshes than the "
                        "stages': choose another schedule, or leave `on` out",
                        p->step->strategy.schedule,
                        p->splits ? "takes the gradients of weights apart (W)"
                                  : "has two copies of the weights");
}

ds_status ds_pass_pipeline(ds_model_step *step, ds_error *err) {
    ds_pipe p;
    if (!step->train.on) return ds_pipe__turns(step, err);
    DS_TRY(pipe_init(&p, step, err));
    DS_TRY(check_views(&p, err));
    forget_parts(&p);
    return ds_pipe__emit(&p, err);
}
