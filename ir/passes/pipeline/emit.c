/* The new step: arguments on their stages, and the schedule's items as calls, in an order that
 * keeps every rank's order. */
#include "ir/passes/pipeline/emit.h"
#include "ir/ops/ops.h"
#include "ir/passes/build/copy.h"

#include <stdlib.h>
#include <string.h>

static ds_arena *arena_of(const ds_pipe *p) {
    return &p->unit->arena;
}

static ds_type *place(ds_pipe *p, const ds_type *type, uint32_t stage) {
    ds_pipe_copy c = {
        .b = &p->b, .pipe = p, .place = ds_pipe__on(p, stage), .types = &p->types[stage]};
    return ds_pipe__place(&c, type);
}

/* ---- arguments ---- */

/* Adds {input = "w"} to the argument's attributes. */
static void set_input(ds_pipe *p, ds_value value, const char *input) {
    ds_value_info *info = ds_value_at(p->b.func, value);
    if (ds_attr_find(info->attrs, info->n_attrs, "input")) return;
    ds_op fake = {.attrs = info->attrs, .n_attrs = info->n_attrs};
    ds_build_attr_text(&p->b, &fake, "input", input);
    info->attrs = fake.attrs;
    info->n_attrs = fake.n_attrs;
}

/* The type of an input on a stage: on a stage of another width the type that a reshard gave the
 * input there; else the type in the step. */
static const ds_type *type_on(const ds_pipe *p, uint32_t number, uint32_t stage) {
    const ds_type *type = ds_value_at(p->old, p->old->args[number])->type;
    for (uint32_t v = 0; v < DS_PIPE_VARIANTS && p->step->stage_mesh; v++) {
        const ds_pipe_part *part = &p->cut[v];
        for (uint32_t i = 0; part->func && i < part->n_ops; i++) {
            if (!part->ops[i].crosses) continue;
            ds_value out = part->func->body.ops[i]->out[0];
            uint32_t arg = part->arg[out.i];
            const ds_type *there = ds_value_at(part->func, out)->type;
            if (arg != DS_PIPE_NONE && part->args[arg].kind == DS_PIPE_INPUT &&
                part->args[arg].index == number && ds_pipe__fits(p->step, there, stage))
                return there;
        }
    }
    return type;
}

static ds_value add_arg(ds_pipe *p, uint32_t number, uint32_t stage, const char *name) {
    const ds_value_info *info = ds_value_at(p->old, p->old->args[number]);
    bool input = p->arg_weight[number] == DS_PIPE_NONE;
    const ds_type *type = input ? type_on(p, number, stage) : info->type;
    ds_value value = ds_build_arg(&p->b, name, place(p, type, stage), info->binders,
                                  info->n_binders, info->attrs, info->n_attrs);
    if (name != info->name) set_input(p, value, info->name);
    return value;
}

/* Marks the stages of an op's chunk; for an op without a chunk, the stages of its readers. */
static void mark_stages(const ds_pipe *p, const ds_pipe_part *part, uint32_t i, bool *on) {
    const ds_op *op = part->func->body.ops[i];
    uint32_t chunk = part->ops[i].chunk;
    for (uint32_t c = 0; c < p->n_copies && chunk != DS_PIPE_NONE; c++)
        on[ds_pipe__stage(p, chunk, c)] = true;
    for (uint32_t j = i + 1; j < part->n_ops && chunk == DS_PIPE_NONE; j++)
        for (uint32_t k = 0; k < part->ops[j].n_reads; k++)
            for (uint32_t r = 0; r < op->n_out; r++)
                if (part->ops[j].reads[k] == op->out[r].i) mark_stages(p, part, j, on);
}

/* Marks the stages that read an input; returns their number. */
static uint32_t stages_of_input(const ds_pipe *p, uint32_t number, bool *reads) {
    uint32_t n = 0;
    memset(reads, 0, p->n_stages * sizeof *reads);
    for (uint32_t v = 0; v < DS_PIPE_VARIANTS; v++) {
        const ds_pipe_part *part = &p->cut[v];
        for (uint32_t i = 0; part->func && i < part->n_ops; i++)
            for (uint32_t k = 0; k < part->ops[i].n_reads; k++) {
                uint32_t arg = part->arg[part->ops[i].reads[k]];
                if (arg == DS_PIPE_NONE || part->args[arg].kind != DS_PIPE_INPUT ||
                    part->args[arg].index != number)
                    continue;
                mark_stages(p, part, i, reads);
            }
    }
    for (uint32_t s = 0; s < p->n_stages; s++) n += reads[s];
    return n;
}

static void add_input(ds_pipe *p, uint32_t number) {
    const char *name = ds_value_at(p->old, p->old->args[number])->name;
    bool *reads = ds_xcalloc(p->n_stages + 1, sizeof *reads);
    uint32_t n = stages_of_input(p, number, reads);
    for (uint32_t s = 0; s < p->n_stages; s++)
        if (reads[s])
            p->input[number * p->n_stages + s] = add_arg(
                p, number, s, n == 1 ? name : ds_arena_numbered(arena_of(p), name, ".s", s));
    free(reads);
}

static void add_args(ds_pipe *p) {
    uint32_t n = p->old->n_args;
    p->input = DS_NEW_N(arena_of(p), ds_value, n * p->n_stages + 1);
    p->arg = DS_NEW_N(arena_of(p), ds_value *, p->n_copies);
    for (uint32_t k = 0; k < n; k++)
        if (p->arg_weight[k] == DS_PIPE_NONE) add_input(p, k);
    for (uint32_t copy = 0; copy < p->n_copies; copy++) {
        p->arg[copy] = DS_NEW_N(arena_of(p), ds_value, n + 1);
        for (uint32_t k = 0; k < n; k++) {
            uint32_t w = p->arg_weight[k];
            if (w == DS_PIPE_NONE) continue;
            const char *name = ds_value_at(p->old, p->old->args[k])->name;
            uint32_t stage = ds_pipe__stage(p, p->step->weights.at[w].chunk, copy);
            p->arg[copy][k] = add_arg(p, k, stage, copy ? ds_pipe__rename(p, name, copy) : name);
        }
    }
}

/* ---- weights that are gathered once ---- */

typedef struct anchor {
    const ds_pipe *p;
    uint32_t chunk;
} anchor;

static void find_anchor(void *context, const ds_use *use) {
    anchor *a = context;
    uint32_t w = ds_pipe__weight_of(a->p, use->value);
    if (w != DS_PIPE_NONE) a->chunk = a->p->step->weights.at[w].chunk;
}

/* Copies an op before the calls to the stage of the weights that the op gathers. */
static void gather_whole(ds_pipe *p, uint32_t i, uint32_t copy) {
    const ds_op *op = p->old->body.ops[i];
    anchor a = {p, DS_PIPE_NONE};
    ds_pipe_uses(op, find_anchor, &a);
    if (a.chunk == DS_PIPE_NONE) return; /* a constant that no chunk reads from here */
    uint32_t stage = ds_pipe__stage(p, a.chunk, copy);
    ds_pipe_copy c = {.b = &p->b,
                      .old = p->old,
                      .map = p->gathered[copy],
                      .place = ds_pipe__on(p, stage),
                      .types = &p->types[stage],
                      .pipe = p,
                      .copy = copy};
    ds_pipe__copy_op(&c, op);
}

static void gather_weights(ds_pipe *p) {
    uint32_t n = p->old->values.n;
    p->gathered = DS_NEW_N(arena_of(p), ds_value *, p->n_copies);
    for (uint32_t copy = 0; copy < p->n_copies && p->head; copy++) {
        ds_value *map = p->gathered[copy] = DS_NEW_N(arena_of(p), ds_value, n + 1);
        for (uint32_t v = 0; v < n; v++) map[v] = DS_NO_VALUE;
        for (uint32_t k = 0; k < p->old->n_args; k++) map[p->old->args[k].i] = p->arg[copy][k];
        for (uint32_t i = 0; i < p->head; i++) gather_whole(p, i, copy);
    }
}

/* ---- sends ---- */

/* Overlapped: the stream of the two devices. Batched and buffered: one stream for all that a device
 * sends and receives, in the order of the text. Blocking and paired: in line with compute. */
static void set_stream(ds_pipe *p, ds_op *op) {
    static const char *const streams[] = {[DS_P2P_OVERLAPPED] = NULL,
                                          [DS_P2P_BATCHED] = "p2p",
                                          [DS_P2P_BLOCKING] = "compute",
                                          [DS_P2P_PAIRED] = "compute",
                                          [DS_P2P_BUFFERED] = "p2p"};
    const char *stream = streams[p->step->strategy.p2p];
    if (stream) ds_build_attr_text(&p->b, op, "stream", stream);
}

static ds_value send_use(ds_pipe *p, ds_use use, const ds_type *type, uint32_t to,
                         const char *name) {
    ds_op *op = ds_build_op(&p->b, DS_OP_SEND);
    op->to = DS_NEW(arena_of(p), ds_place);
    op->to[0] = ds_pipe__on(p, to);
    op->n_to = 1;
    ds_build_in(&p->b, op, use);
    ds_value out = ds_build_out(&p->b, op, name, place(p, type, to));
    ds_value_at(p->b.func, out)->type_written = false;
    set_stream(p, op);
    ds_build_append(&p->b, op);
    return out;
}

/* The dim to split over tp, the last dim that tp divides; rank: none, or the value is split
 * already. */
static uint32_t dim_to_scatter(const ds_pipe *p, const ds_type *type) {
    int64_t tp = p->step->strategy.tp;
    ds_env env = ds_binding_env(&p->step->binding, NULL);
    const char *axis = ds_intern(&p->unit->strings, "tp");
    for (uint32_t d = 0; d < type->rank; d++)
        if (ds_type_is_over(type, d, axis)) return type->rank;
    for (uint32_t i = 0; i < type->n_partials; i++)
        if (type->partials[i].axis == axis) return type->rank;
    for (uint32_t d = type->rank; d-- > 0;) {
        int64_t size;
        if (type->dims[d].n_splits) continue;
        if (ds_expr_eval_int(&env, type->dims[d].size, DS_NOWHERE, &size, NULL) == DS_OK &&
            size % tp == 0)
            return d;
    }
    return type->rank;
}

static ds_type *split_over_tp(ds_pipe *p, const ds_type *type, uint32_t dim) {
    ds_type *split = ds_type_copy(arena_of(p), type);
    split->dims[dim].splits = DS_NEW(arena_of(p), ds_split);
    split->dims[dim].splits[0].axis = ds_intern(&p->unit->strings, "tp");
    split->dims[dim].n_splits = 1;
    return split;
}

/* A value that is the same on all devices of tp is sent in parts, one part from each device, and
 * gathered on the stage that reads the value (Narayanan et al., arXiv:2104.04473, section 4.1). */
static ds_value send_parts(ds_pipe *p, ds_value value, uint32_t to, uint32_t dim, const char *name,
                           ds_pipe_parts *parts) {
    const ds_value_info info = *ds_value_at(p->b.func, value);
    ds_type *split = split_over_tp(p, info.type, dim);
    ds_op *part = ds_build_op(&p->b, DS_OP_RESHARD);
    ds_build_in(&p->b, part, ds_use_of(value));
    const char *part_name = ds_arena_join(arena_of(p), info.name, ".part");
    ds_value cut = ds_build_out(&p->b, part, part_name, split);
    ds_build_append(&p->b, part);
    *parts = (ds_pipe_parts){info.type, dim, name};
    return send_use(p, ds_use_of(cut), split, to, ds_arena_join(arena_of(p), name, ".part"));
}

static ds_value gather_parts(ds_pipe *p, ds_value there, uint32_t stage,
                             const ds_pipe_parts *parts) {
    ds_op *gather = ds_build_op(&p->b, DS_OP_ALL_GATHER);
    gather->over = DS_NEW(arena_of(p), const char *);
    gather->over[0] = ds_intern(&p->unit->strings, "tp");
    gather->n_over = 1;
    gather->dim = ds_expr_int(&p->unit->exprs, parts->dim);
    ds_build_in(&p->b, gather, ds_use_of(there));
    ds_value out = ds_build_out(&p->b, gather, parts->name, place(p, parts->whole, stage));
    ds_value_at(p->b.func, out)->type_written = false;
    ds_build_append(&p->b, gather);
    return out;
}

/* The dim in which a value is sent in parts; its rank: the value is sent whole. */
static uint32_t dim_of_parts(const ds_pipe *p, const ds_value_info *info) {
    bool scatter = p->step->strategy.scatter_gather && p->step->strategy.tp > 1;
    return scatter && !info->n_binders ? dim_to_scatter(p, info->type) : info->type->rank;
}

/* Sends a family element by element. */
static ds_status send_family(ds_pipe *p, ds_value value, uint32_t to, const char *name,
                             ds_value *out, ds_error *err) {
    const ds_value_info info = *ds_value_at(p->b.func, value);
    const ds_binder *binder = info.binders;
    ds_build_for(&p->b, binder->name, binder->lo, binder->hi);
    ds_expr index = ds_expr_index(&p->unit->exprs, binder->name);
    ds_use use = ds_use_at(arena_of(p), value, &index, 1);
    ds_use kept =
        ds_use_of(send_use(p, use, info.type, to, ds_arena_join(arena_of(p), name, ".turn")));
    DS_TRY(ds_build_yield(&p->b, NULL, 0, &kept, 1, &name, err));
    *out = ds_build_last(&p->b)->out[0];
    return DS_OK;
}

ds_status ds_pipe__send(ds_pipe *p, ds_value value, uint32_t to, const char *name, ds_value *out,
                        ds_error *err) {
    const ds_value_info *info = ds_value_at(p->b.func, value);
    *out = value;
    if (ds_pipe__is_apart(p, info->type)) return DS_OK;
    if (info->n_binders > 1)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                            "pipeline: %%%s is a family over %u indices and would be sent to "
                            "stage %u",
                            info->name, info->n_binders, to);
    if (info->n_binders) return send_family(p, value, to, name, out, err);
    uint32_t dim = dim_of_parts(p, info);
    if (dim < info->type->rank) {
        ds_pipe_parts parts;
        ds_value there = send_parts(p, value, to, dim, name, &parts);
        *out = gather_parts(p, there, to, &parts);
        return DS_OK;
    }
    *out = send_use(p, ds_use_of(value), info->type, to, name);
    return DS_OK;
}

ds_status ds_pipe__bring(ds_pipe *p, ds_value value, uint32_t to, const ds_type *as,
                         const char *name, ds_value *out, ds_error *err) {
    if (!as) return ds_pipe__send(p, value, to, name, out, err);
    ds_op *op = ds_build_op(&p->b, DS_OP_RESHARD);
    ds_build_in(&p->b, op, ds_use_of(value));
    *out = ds_build_out(&p->b, op, name, place(p, as, to));
    set_stream(p, op);
    ds_build_append(&p->b, op);
    return DS_OK;
}

/* ---- items ---- */

typedef struct item {
    char kind; /* F B W, A: B and W in one */
    uint32_t chunk, mb, copy, stage, slot;
} item;

static ds_pipe_place *find_place(const ds_pipe_places *places, uint32_t key, uint32_t stage) {
    for (uint32_t i = 0; i < places->n; i++)
        if (places->at[i].key == key && places->at[i].stage == stage) return &places->at[i];
    return NULL;
}

/* The whole value on a stage; gathers parts at the first read. */
static ds_use read_place(ds_pipe *p, ds_pipe_place *there) {
    if (!there) return ds_use_of(DS_NO_VALUE);
    if (there->parts) there->value = gather_parts(p, there->value, there->stage, there->parts);
    there->parts = NULL;
    return ds_use_of(there->value);
}

static ds_use read_value(ds_pipe *p, const ds_pipe_part *part, const item *x, uint32_t v) {
    uint32_t arg = part->arg[v];
    if (arg == DS_PIPE_NONE) {
        uint32_t chunk = part->ops[part->def[v]].chunk;
        if (chunk == x->chunk) return ds_use_of(p->made[x->slot][part->exported[v]]);
        const ds_pipe_places *places = &p->sent[x->mb * p->n_chunks + chunk];
        return read_place(p, find_place(places, part->sent[v], x->stage));
    }
    const ds_pipe_arg *a = &part->args[arg];
    if (a->kind == DS_PIPE_SUM) return p->sums[x->copy][a->index];
    if (a->kind == DS_PIPE_WEIGHT && p->whole[a->index].i != DS_NO_VALUE.i)
        return ds_use_of(p->gathered[x->copy][p->whole[a->index].i]);
    if (a->kind == DS_PIPE_WEIGHT) {
        uint32_t number = p->arg_number[p->step->weights.at[a->index].arg.i];
        return ds_use_of(p->arg[x->copy][number]);
    }
    ds_value input = p->input[a->index * p->n_stages + x->stage];
    if (p->m == 1) return ds_use_of(input);
    ds_expr at = ds_expr_int(&p->unit->exprs, x->mb);
    return ds_use_at(arena_of(p), input, &at, 1);
}

/* The name of a result; final gradients keep their names. */
static const char *result_name(const ds_pipe *p, const ds_pipe_part *part, const item *x,
                               uint32_t v) {
    const char *name = part->func->values.at[v].name;
    uint32_t w = part->gradient[v];
    bool last = p->role[x->slot] / 2 == DS_PIPE_LAST;
    if (w == DS_PIPE_NONE || !last)
        return p->m > 1 ? ds_arena_numbered(arena_of(p), name, ".", x->mb) : name;
    const ds_op *call = p->parts[p->m - 1];
    name = ds_value_at(p->old, call->out[p->step->n_model_results + w])->name;
    if (p->n_copies > 1)
        name = ds_arena_printf(arena_of(p), "%s.own", ds_pipe__rename(p, name, x->copy));
    return name;
}

static void take_result(ds_pipe *p, const ds_pipe_part *part, const item *x, uint32_t v,
                        ds_value out) {
    if (part->exported[v] != DS_PIPE_NONE) p->made[x->slot][part->exported[v]] = out;
    if (part->gradient[v] != DS_PIPE_NONE) p->sums[x->copy][part->gradient[v]] = ds_use_of(out);
    if (part->result[v] != DS_PIPE_NONE)
        p->results[x->mb * p->step->n_model_results + part->result[v]] = out;
}

/* The parameters in angle brackets: where the chunk is, and its index. */
static void give_params(ds_pipe *p, const ds_pipe_func *f, ds_op *call) {
    if (!ds_pipe__is_shared(f->kind)) return;
    call->mesh_args = DS_NEW(arena_of(p), ds_place);
    call->mesh_args[0] = ds_pipe__on(p, f->stage);
    call->n_mesh_args = 1;
    if (f->kind->slope) call->index_arg = ds_expr_int(&p->unit->exprs, f->kind->base + f->shift);
}

static ds_status call_item(ds_pipe *p, const item *x, const ds_pipe_func *f, ds_error *err) {
    ds_op *call = ds_build_op(&p->b, DS_OP_CALL);
    call->callee = f->kind->func;
    call->callee_name = f->kind->func->name;
    give_params(p, f, call);
    const char kind[] = {x->kind == 'A' ? 'B' : x->kind, '\0'};
    ds_build_attr_text(&p->b, call, "name", ds_arena_numbered(arena_of(p), kind, "", x->chunk));
    if (p->m > 1) ds_build_attr_int(&p->b, call, "microbatch", x->mb);
    call->in = DS_NEW_N(arena_of(p), ds_use, f->n_in + 1);
    for (uint32_t k = 0; k < f->n_in; k++) {
        call->in[call->n_in++] = read_value(p, f->part, x, f->in[k]);
        if (call->in[k].value.i == DS_NO_VALUE.i)
            return ds_error_set(err, DS_ERR_INTERNAL, p->old->loc,
                                "pipeline: %%%s is missing for @%s",
                                f->part->func->values.at[f->in[k]].name, call->callee_name);
    }
    for (uint32_t k = 0; k < f->n_out; k++) {
        const ds_value_info *made = &f->part->func->values.at[f->out[k]];
        ds_value out = ds_build_out(&p->b, call, result_name(p, f->part, x, f->out[k]),
                                    place(p, made->type, x->stage));
        ds_value_info *info = ds_value_at(p->b.func, out);
        info->type_written = false;
        info->binders = made->binders;
        info->n_binders = made->n_binders;
        take_result(p, f->part, x, f->out[k], out);
    }
    return ds_build_put(&p->b, call, err);
}

/* Sends a value, in parts if the strategy asks for parts: the first item that reads the value
 * gathers its parts. */
static ds_status send_to(ds_pipe *p, ds_value made, const ds_type *as, ds_pipe_place *there,
                         ds_error *err) {
    const ds_value_info *info = ds_value_at(p->b.func, made);
    const char *name = ds_arena_numbered(arena_of(p), info->name, ".s", there->stage);
    uint32_t dim = dim_of_parts(p, info);
    if (as || dim == info->type->rank || ds_pipe__is_apart(p, info->type))
        return ds_pipe__bring(p, made, there->stage, as, name, &there->value, err);
    ds_pipe_parts *parts = DS_NEW(arena_of(p), ds_pipe_parts);
    there->value = send_parts(p, made, there->stage, dim, name, parts);
    there->parts = parts;
    return DS_OK;
}

/* Sends one value to the stages of all chunks that read the value. */
static ds_status send_result(ds_pipe *p, const item *x, const ds_pipe_part *part, uint32_t number,
                             ds_error *err) {
    uint32_t v = part->sends[x->chunk][number];
    ds_value made = p->made[x->slot][part->exported[v]];
    const ds_type *as = part->source[v] == v ? NULL : ds_value_at(part->func, (ds_value){v})->type;
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        uint32_t to = ds_pipe__stage(p, c, x->copy);
        ds_pipe_place there = {number, to, made, NULL};
        if (!p->destinations[x->chunk][number][c] || find_place(&p->sent[x->slot], number, to))
            continue;
        if (to != x->stage) DS_TRY(send_to(p, made, as, &there, err));
        DS_PUSH(arena_of(p), &p->sent[x->slot], there);
    }
    return DS_OK;
}

/* Sends the results of a call to all stages whose chunks read a result. */
static ds_status send_results(ds_pipe *p, const item *x, const ds_pipe_func *f, ds_error *err) {
    for (uint32_t k = 0; k < f->n_out; k++)
        for (uint32_t number = 0; number < f->part->n_sends[x->chunk]; number++)
            if (f->part->source[f->part->sends[x->chunk][number]] == f->out[k])
                DS_TRY(send_result(p, x, f->part, number, err));
    return DS_OK;
}

static item item_of(const ds_pipe *p, const ds_schedule_item *from) {
    item x = {.kind = ds_pipe__letter(p, from),
              .chunk = (uint32_t)from->chunk,
              .mb = (uint32_t)from->microbatch};
    x.slot = x.mb * p->n_chunks + x.chunk;
    x.copy = p->index->copy[x.mb];
    x.stage = ds_pipe__stage(p, x.chunk, x.copy);
    return x;
}

static ds_status emit_sends(ds_pipe *p, const ds_schedule_item *from, ds_error *err) {
    item x = item_of(p, from);
    const ds_pipe_func *f;
    DS_TRY(ds_pipe__func(p, x.kind, x.chunk, x.mb, &f, err));
    return f->kind ? send_results(p, &x, f, err) : DS_OK;
}

static ds_status emit_item(ds_pipe *p, const ds_schedule_item *from, ds_error *err) {
    item x = item_of(p, from);
    const ds_pipe_func *f;
    if (!p->made[x.slot]) {
        const ds_pipe_part *part = &p->cut[p->role[x.slot]];
        p->made[x.slot] = DS_NEW_N(arena_of(p), ds_value, part->n_exports[x.chunk] + 1);
    }
    DS_TRY(ds_pipe__func(p, x.kind, x.chunk, x.mb, &f, err));
    if (!f->kind) return DS_OK;
    return call_item(p, &x, f, err);
}

/* ---- the order ---- */

typedef struct progress {
    bool *done;      /* by item */
    uint32_t *next;  /* by rank: item */
    uint32_t *fresh; /* items of this round whose results were not sent yet */
    uint32_t n_fresh;
} progress;

static bool is_done(const ds_pipe *p, const progress *at, uint32_t kind, uint32_t slot) {
    uint32_t number = p->index->item[kind][slot];
    return number == DS_NO_ITEM || at->done[number];
}

/* F waits for F of the chunk before, B for B of the chunk after and for its own F, W for its B. */
static bool is_ready(const ds_pipe *p, const progress *at, const ds_schedule_item *x) {
    enum { F, B };
    uint32_t slot = (uint32_t)x->microbatch * p->n_chunks + (uint32_t)x->chunk;
    if (x->kind == 'F') return x->chunk == 0 || is_done(p, at, F, slot - 1);
    if (x->kind == 'W') return is_done(p, at, B, slot);
    return is_done(p, at, F, slot) && (x->chunk + 1 == p->n_chunks || is_done(p, at, B, slot + 1));
}

/* The end of a round in which neighbours exchange what they made: gradients first, as DeepSpeed's
 * PipelineEngine. */
static ds_status exchange(ds_pipe *p, progress *at, ds_error *err) {
    uint32_t rank;
    for (int forward = 0; forward < 2; forward++)
        for (uint32_t i = 0; i < at->n_fresh; i++) {
            const ds_schedule_item *x = ds_schedule_item_at(p->index, at->fresh[i], &rank);
            if ((x->kind == 'F') == forward) DS_TRY(emit_sends(p, x, err));
        }
    for (uint32_t i = 0; i < at->n_fresh; i++) at->done[at->fresh[i]] = true;
    at->n_fresh = 0;
    return DS_OK;
}

/* Emits round by round, one item of every rank with a ready item. `stage` has checked that the
 * schedule ends. */
static ds_status emit_items(ds_pipe *p, progress *at, ds_error *err) {
    const ds_schedule_index *index = p->index;
    bool in_rounds = p->step->strategy.p2p >= DS_P2P_PAIRED;
    for (uint32_t left = index->n_items, before = 0; left;) {
        if (left == before)
            return ds_error_set(err, DS_ERR_DEADLOCK, DS_NOWHERE,
                                "the schedule stops with %u items left", left);
        before = left;
        for (uint32_t r = 0; r < index->n_ranks; r++) {
            uint32_t rank, number = at->next[r];
            if (number == index->first[r + 1]) continue;
            const ds_schedule_item *x = ds_schedule_item_at(index, number, &rank);
            if (!is_ready(p, at, x)) continue;
            DS_TRY(emit_item(p, x, err));
            at->fresh[at->n_fresh++] = number;
            if (!in_rounds) DS_TRY(exchange(p, at, err));
            at->next[r]++;
            left--;
        }
        DS_TRY(exchange(p, at, err));
    }
    return DS_OK;
}

static ds_status emit_schedule(ds_pipe *p, ds_error *err) {
    progress at = {ds_xcalloc(p->index->n_items + 1, sizeof *at.done),
                   ds_xcalloc(p->index->n_ranks + 1, sizeof *at.next),
                   ds_xcalloc(p->index->n_ranks + 1, sizeof *at.fresh), 0};
    memcpy(at.next, p->index->first, p->index->n_ranks * sizeof *at.next);
    ds_status status = emit_items(p, &at, err);
    free(at.done);
    free(at.next);
    free(at.fresh);
    return status;
}

/* ---- the new step ---- */

static void emit_init(ds_pipe *p) {
    uint32_t n = p->m * p->n_chunks;
    ds_build_func(&p->b, p->unit->modules.at[0], p->old->name, false);
    p->b.func->loc = p->old->loc;
    ds_map_init(&p->funcs);
    p->types = ds_xcalloc(p->n_stages, sizeof *p->types);
    for (uint32_t s = 0; s < p->n_stages; s++) ds_map_init(&p->types[s]);
    p->made = ds_xcalloc(n + 1, sizeof *p->made);
    p->sent = ds_xcalloc(n + 1, sizeof *p->sent);
    p->sums = DS_NEW_N(arena_of(p), ds_use *, p->n_copies);
    for (uint32_t k = 0; k < p->n_copies; k++) {
        p->sums[k] = DS_NEW_N(arena_of(p), ds_use, p->step->weights.n + 1);
        for (uint32_t w = 0; w < p->step->weights.n; w++) p->sums[k][w].value = DS_NO_VALUE;
    }
    p->results = DS_NEW_N(arena_of(p), ds_value, p->m * p->step->n_model_results + 1);
}

static void emit_deinit(ds_pipe *p) {
    for (uint32_t s = 0; s < p->n_stages; s++) ds_map_deinit(&p->types[s]);
    ds_map_deinit(&p->funcs);
    for (uint32_t i = 0; i < p->kinds.n; i++) ds_pipe__kind_deinit(p->kinds.at[i]);
    free(p->types);
    free(p->made);
    free(p->sent);
}

ds_status ds_pipe__emit(ds_pipe *p, ds_error *err) {
    emit_init(p);
    add_args(p);
    gather_weights(p);
    ds_pipe__find_funcs(p);
    ds_status status = emit_schedule(p, err);
    if (status == DS_OK) status = ds_pipe__tail(p, err);
    ds_func *func = ds_build_end(&p->b);
    emit_deinit(p);
    if (status == DS_OK) ds_model_step_set_func(p->step, func);
    return status;
}
