/* Executes blocks: structure here, table ops by eval.c and comm.c.
 *
 * The open blocks are a linked stack on the heap, not C's stack, because the ranks of a per-rank
 * program take turns: a rank stops at an op whose operand has not arrived and goes on later. */
#include "ir/exec/machine_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- where it stands ---- */

ds_exec_site ds_exec__site(const ds_exec_thread *thread, const ds_exec_open *open, ds_loc loc) {
    return (ds_exec_site){.run = thread->run,
                          .scope = &open->frame->scope,
                          .indices = open->indices,
                          .manual = open->manual,
                          .loc = loc};
}

const char *ds_exec__own_name(const ds_exec_thread *thread, const ds_func *func, const ds_op *op) {
    const char *name = ds_op_attr_str(op, thread->run->binding->unit, "name");
    if (name) return name;
    return op->n_out ? ds_value_at(func, op->out[0])->name : ds_op_name(op->code);
}

static void scope_path(const ds_exec_thread *thread, const ds_exec_open *open, bool with_entry,
                       ds_buf *out) {
    if (open->up) scope_path(thread, open->up, with_entry, out);
    if (!open->op) {
        if (!with_entry) return;
        if (thread->rank >= 0)
            ds_buf_printf(out, "rank %lld", (long long)thread->rank);
        else
            ds_buf_put(out, open->frame->scope.func->name);
    } else if (open->op->code == DS_OP_FOR) {
        ds_buf_printf(out, "/%s[%lld]", open->op->index, (long long)open->turn.value);
    } else if (open->op->code == DS_OP_CALL) {
        const char *name = ds_exec__own_name(thread, open->up->frame->scope.func, open->op);
        if (*name) ds_buf_printf(out, "/%s", name);
        ds_exec__point_text(open->up, out);
    }
}

void ds_exec__path(const ds_exec_thread *thread, const ds_exec_open *open, const ds_op *op,
                   bool with_entry, ds_buf *out) {
    scope_path(thread, open, with_entry, out);
    if (!op) return;
    ds_buf_printf(out, "/%s", ds_exec__own_name(thread, open->frame->scope.func, op));
    ds_exec__point_text(open, out);
}

/* Puts "path: " (or "path, device 3 (tp=1): ") before a message. */
static ds_status at_path(const ds_exec_thread *thread, const ds_exec_open *open, const ds_op *op,
                         const ds_exec_place *place, uint32_t position, ds_status status,
                         ds_error *err) {
    if (!err) return status;
    ds_buf text = {0};
    ds_exec__path(thread, open, op, true, &text);
    if (place) {
        ds_buf_put(&text, ", ");
        ds_exec_device_text(place, position, &text);
    }
    ds_buf_printf(&text, ": %s", err->message);
    ds_loc loc = err->loc.line ? ds_error_loc(err) : op->loc;
    ds_error_set(err, status, loc, "%s", text.text);
    ds_buf_deinit(&text);
    return status;
}

ds_status ds_exec__finish(const ds_exec_thread *thread, const ds_exec_open *open, const ds_op *op,
                          ds_exec_value *value, ds_error *err) {
    for (uint32_t p = 0; p < value->place->n_devices && thread->run->options->emulate; p++) {
        ds_tensor *t = &value->parts[p].t; /* shared elements are of one dtype: rounding is done */
        for (int64_t i = 0; i < t->n; i++) t->at[i] = ds_exec__round(value->dtype, t->at[i]);
    }
    ds_exec_site site = ds_exec__site(thread, open, op->loc);
    ds_buf path = {0};
    ds_exec__path(thread, open, op, true, &path);
    ds_status status = ds_exec__check_replicas(&site, value, path.text, err);
    ds_buf_deinit(&path);
    return status;
}

/* ---- opening and closing blocks ---- */

static ds_exec_open *open_block(ds_exec_thread *thread, const ds_op *op, const ds_block *block,
                                ds_exec_frame *frame, uint32_t n_results) {
    ds_exec_open *open = ds_xcalloc(1, sizeof *open), *up = thread->top;
    *open = (ds_exec_open){.up = up, .op = op, .block = block, .frame = frame};
    if (up) {
        open->manual = up->manual;
        open->indices = up->indices;
    }
    open->results = ds_xcalloc(n_results + 1, sizeof *open->results);
    open->n_results = n_results;
    thread->top = open;
    return open;
}

static void close_frame(ds_exec_frame *frame) {
    for (uint32_t i = 0; i < frame->scope.func->values.n; i++) ds_exec__slot_drop(&frame->slots[i]);
    free(frame->slots);
    free(frame->scope.mesh_args);
    free(frame);
}

static void close_block(ds_exec_thread *thread) {
    ds_exec_open *open = thread->top;
    thread->top = open->up;
    ds_exec__close_rec(open);
    for (uint32_t i = 0; i < open->n_results; i++) ds_exec__slot_drop(&open->results[i]);
    for (uint32_t i = 0; open->kept && i < open->op->n_out - open->op->n_args; i++)
        ds_exec__slot_drop(&(ds_exec_slot){.family = open->kept[i]});
    if (!open->op || open->op->code == DS_OP_CALL) close_frame(open->frame);
    if (open->op && open->op->code == DS_OP_LOCAL) free((void *)open->manual.axes);
    free(open->kept);
    free(open->results);
    free(open);
}

static ds_exec_frame *new_frame(const ds_func *func, const ds_exec_place *here) {
    ds_exec_frame *frame = ds_xcalloc(1, sizeof *frame);
    frame->scope = (ds_exec_scope){.func = func, .here = here};
    frame->scope.mesh_args = ds_xcalloc(func->n_mesh_params + 1, sizeof *frame->scope.mesh_args);
    frame->slots = ds_xcalloc(func->values.n + 1, sizeof *frame->slots);
    return frame;
}

/* ---- loops ---- */

/* Carries of the next turn, or, after the last one, the results. */
static ds_status next_turn(ds_exec_thread *thread, ds_exec_open *open, ds_error *err) {
    const ds_op *op = open->op;
    open->next = 0;
    if (open->turn.value < open->hi) {
        for (uint32_t i = 0; i < op->n_args; i++)
            ds_exec__slot_set(&open->frame->slots[op->args[i].i],
                              ds_exec__slot_share(open->results[i]));
        return DS_OK;
    }
    for (uint32_t i = 0; i < op->n_out; i++) {
        ds_exec_slot result = i < op->n_args ? open->results[i]
                                             : (ds_exec_slot){.family = open->kept[i - op->n_args]};
        DS_TRY(ds_exec__define(thread, open->up, op->out[i], ds_exec__slot_share(result), err));
    }
    close_block(thread);
    return DS_OK;
}

static ds_status too_many_steps(ds_loc loc, ds_error *err) {
    return ds_error_set(err, DS_ERR_LIMIT, loc,
                        "the program executes more than %lld operations and turns of loops; exec "
                        "is for small programs",
                        (long long)DS_EXEC_MAX_STEPS);
}

/* A loop that alone goes beyond the limit is refused before its first turn. */
static ds_status check_turns(const ds_exec_thread *thread, const ds_op *op, int64_t lo, int64_t hi,
                             ds_error *err) {
    int64_t left = DS_EXEC_MAX_STEPS - thread->run->steps, turns, steps;
    if (hi <= lo) return DS_OK;
    if (__builtin_sub_overflow(hi, lo, &turns) ||
        __builtin_mul_overflow(turns, (int64_t)op->body->n_ops, &steps) || steps > left)
        return too_many_steps(op->loc, err);
    return DS_OK;
}

static ds_status open_loop(ds_exec_thread *thread, const ds_op *op, const ds_exec_value **waits,
                           ds_error *err) {
    ds_exec_open *up = thread->top;
    ds_env env = ds_binding_env(thread->run->binding, up->indices);
    int64_t lo, hi;
    DS_TRY(ds_expr_eval_int(&env, op->lo, op->loc, &lo, err));
    DS_TRY(ds_expr_eval_int(&env, op->hi, op->loc, &hi, err));
    DS_TRY(check_turns(thread, op, lo, hi, err));
    ds_exec_open *open = open_block(thread, op, op->body, up->frame, op->n_out);
    open->turn = (ds_index){op->index, lo, up->indices};
    open->indices = &open->turn;
    open->hi = hi;
    open->kept = ds_xcalloc(op->n_out - op->n_args + 1, sizeof *open->kept);
    for (uint32_t i = op->n_args; i < op->n_out; i++) {
        DS_TRY(ds_exec__family_new(lo, hi - lo, op->loc, &open->kept[i - op->n_args], err));
        ds_exec_slot so_far = {.family = open->kept[i - op->n_args]}; /* the body may read it */
        ds_exec__slot_set(&open->frame->slots[op->out[i].i], ds_exec__slot_share(so_far));
    }
    for (uint32_t i = 0; i < op->n_args && !*waits; i++)
        DS_TRY(ds_exec__read(thread, up, &op->in[i], &open->results[i], waits, err));
    if (!*waits) return next_turn(thread, open, err);
    close_block(thread);
    return DS_OK;
}

static ds_status end_turn(ds_exec_thread *thread, ds_exec_open *open, ds_error *err) {
    const ds_op *op = open->op;
    for (uint32_t i = op->n_args; i < op->n_out; i++) {
        ds_exec_family *kept = open->kept[i - op->n_args];
        ds_exec__slot_set(&kept->items[open->turn.value - kept->lo], open->results[i]);
        open->results[i] = (ds_exec_slot){0};
    }
    open->turn.value++;
    return next_turn(thread, open, err);
}

/* ---- local regions ---- */

/* The same elements seen as another type: into a region as a shard's, out of it as the whole's. */
static ds_status seen_as(const ds_exec_site *site, const ds_type *type, const ds_exec_value *from,
                         ds_exec_value **out, ds_error *err) {
    DS_TRY(ds_exec__value_new(site, type, from->place, out, err));
    for (uint32_t p = 0; p < from->place->n_devices; p++) {
        ds_exec_part *part = &(*out)->parts[p];
        if (ds_tensor_same_shape(&part->t, &from->parts[p].t)) {
            part->t = ds_tensor_share(&from->parts[p].t);
            continue;
        }
        char a[DS_DIMS_TEXT], b[DS_DIMS_TEXT];
        ds_dims_text(part->t.rank, part->t.dims, a);
        ds_dims_text(from->parts[p].t.rank, from->parts[p].t.dims, b);
        ds_buf device = {0};
        ds_exec_device_text(from->place, p, &device);
        ds_error_set(err, DS_ERR_SHAPE, site->loc, "%s holds %s, but the type says %s", device.text,
                     b, a);
        ds_buf_deinit(&device);
        return DS_ERR_SHAPE;
    }
    return DS_OK;
}

static ds_status open_region(ds_exec_thread *thread, const ds_op *op, ds_error *err) {
    ds_exec_open *up = thread->top;
    ds_exec_open *open = open_block(thread, op, op->body, up->frame, op->n_out);
    const char **axes = ds_xcalloc(up->manual.n + op->n_over + 1, sizeof *axes);
    uint32_t n = 0;
    for (uint32_t i = 0; i < up->manual.n; i++) axes[n++] = up->manual.axes[i];
    for (uint32_t i = 0; i < op->n_over; i++) axes[n++] = op->over[i];
    open->manual = (ds_exec_manual){axes, n};
    ds_exec_site site = ds_exec__site(thread, open, op->loc);
    for (uint32_t i = 0; i < op->n_args; i++) {
        ds_exec_slot outside, inside = {0};
        const ds_exec_value *waits = NULL;
        DS_TRY(ds_exec__read(thread, up, &op->in[i], &outside, &waits, err));
        const ds_type *type = ds_value_at(open->frame->scope.func, op->args[i])->type;
        ds_status status = seen_as(&site, type, outside.value, &inside.value, err);
        ds_exec__slot_drop(&outside);
        ds_exec__slot_set(&open->frame->slots[op->args[i].i], inside);
        DS_TRY(status);
    }
    return DS_OK;
}

static ds_status end_region(ds_exec_thread *thread, ds_exec_open *open, ds_error *err) {
    const ds_op *op = open->op;
    ds_exec_open *up = open->up;
    ds_exec_site site = ds_exec__site(thread, up, op->loc);
    for (uint32_t i = 0; i < op->n_out; i++) {
        ds_exec_slot whole = {0};
        ds_status status =
            seen_as(&site, op->result_types[i], open->results[i].value, &whole.value, err);
        if (status == DS_OK) status = ds_exec__finish(thread, up, op, whole.value, err);
        if (status != DS_OK) ds_exec__slot_drop(&whole);
        DS_TRY(status);
        DS_TRY(ds_exec__define(thread, up, op->out[i], whole, err));
    }
    close_block(thread);
    return DS_OK;
}

/* ---- calls ---- */

static ds_status open_call(ds_exec_thread *thread, const ds_op *op, const ds_exec_value **waits,
                           ds_error *err) {
    ds_exec_open *up = thread->top;
    const ds_func *func = op->callee;
    ds_exec_frame *frame = new_frame(func, up->frame->scope.here);
    ds_exec_open *open = open_block(thread, op, &func->body, frame, op->n_out);
    open->indices = func->index_param ? &frame->index : NULL;
    if (func->index_param) {
        ds_env env = ds_binding_env(thread->run->binding, up->indices);
        frame->index.name = func->index_param;
        DS_TRY(ds_expr_eval_int(&env, op->index_arg, op->loc, &frame->index.value, err));
    }
    for (uint32_t i = 0; i < op->n_mesh_args && i < func->n_mesh_params; i++)
        DS_TRY(ds_exec_place_of(&thread->run->places, &up->frame->scope, &op->mesh_args[i],
                                up->indices, &frame->scope.mesh_args[i], err));
    if (func->n_mesh_params == 1) frame->scope.here = frame->scope.mesh_args[0];
    for (uint32_t i = 0; i < op->n_in && !*waits; i++)
        DS_TRY(ds_exec__read(thread, up, &op->in[i], &frame->slots[func->args[i].i], waits, err));
    if (*waits) close_block(thread);
    return DS_OK;
}

/* Of a call or a rec. */
static ds_status give_results(ds_exec_thread *thread, ds_exec_open *open, ds_error *err) {
    for (uint32_t i = 0; i < open->op->n_out; i++) {
        ds_exec_slot result = open->results[i];
        open->results[i] = (ds_exec_slot){0};
        DS_TRY(ds_exec__define(thread, open->up, open->op->out[i], result, err));
    }
    close_block(thread);
    return DS_OK;
}

/* ---- table ops ---- */

/* Whether two placements are the same devices in the same order; axes of size 1 may differ. */
static bool same_devices(const ds_exec_place *a, const ds_exec_place *b) {
    return a == b || (a->n_devices == b->n_devices &&
                      memcmp(a->devices, b->devices, a->n_devices * sizeof *a->devices) == 0);
}

/* Where an op computes, on what. */
typedef struct operands {
    const ds_exec_place *place;
    ds_exec_value *const *in, *const *out;
    ds_index *room; /* for the indices of a device */
} operands;

static ds_status compute_on(ds_exec_thread *thread, ds_exec_open *open, const operands *of,
                            uint32_t position, ds_eval *e, ds_error *err) {
    const ds_op *op = e->op;
    ds_exec_site site = ds_exec__site(thread, open, op->loc);
    const ds_exec_part **from = (const ds_exec_part **)e->in;
    ds_env env = ds_exec__env(&site, of->place, position, of->room);
    e->env = &env;
    for (uint32_t i = 0; i < op->n_in; i++) from[i] = &of->in[i]->parts[position];
    for (uint32_t i = 0; i < op->n_out; i++) {
        e->out[i] = &of->out[i]->parts[position];
        DS_TRY(ds_exec__part_new(&site, e->out[i], err));
    }
    if (op->code == DS_OP_DROPOUT)
        DS_TRY(ds_exec__mask_key(thread, open, of->place, position, e, err));
    return ds_exec__evaluator(op->code)(e, err);
}

static ds_status compute(ds_exec_thread *thread, ds_exec_open *open, const ds_op *op,
                         ds_exec_value *const *in, ds_exec_value *const *out, ds_error *err) {
    const ds_exec_place *place = op->n_out ? out[0]->place : in[0]->place;
    for (uint32_t i = 0; i < op->n_in + op->n_out; i++)
        if (!same_devices((i < op->n_in ? in[i] : out[i - op->n_in])->place, place))
            return ds_error_set(err, DS_ERR_SHARDING, op->loc,
                                "%s has operands and results in different places; an op never "
                                "moves data: use send or reshard",
                                ds_op_name(op->code));
    ds_dtype *dtypes = ds_xcalloc(op->n_in + op->n_out + 1, sizeof *dtypes);
    for (uint32_t i = 0; i < op->n_in; i++) dtypes[i] = in[i]->dtype;
    for (uint32_t i = 0; i < op->n_out; i++) dtypes[op->n_in + i] = out[i]->dtype;
    ds_index *room = ds_xcalloc(open->manual.n + 1, sizeof *room);
    const operands of = {place, in, out, room};
    ds_eval e = {.run = thread->run,
                 .func = open->frame->scope.func,
                 .op = op,
                 .in = ds_xcalloc(op->n_in + 1, sizeof *e.in),
                 .in_dtype = dtypes,
                 .out = ds_xcalloc(op->n_out + 1, sizeof *e.out),
                 .out_dtype = dtypes + op->n_in,
                 .shard_view = open->manual.n || thread->rank >= 0};
    ds_status status = DS_OK;
    for (uint32_t p = 0; p < place->n_devices && status == DS_OK; p++) {
        status = compute_on(thread, open, &of, p, &e, err);
        if (status != DS_OK) at_path(thread, open, op, place, p, status, err);
    }
    free((void *)e.in);
    free(e.out);
    free(dtypes);
    free(room);
    return status;
}

static ds_status execute(ds_exec_thread *thread, ds_exec_open *open, const ds_op *op,
                         ds_exec_value *const *in, ds_exec_value **out, ds_error *err) {
    ds_exec_site site = ds_exec__site(thread, open, op->loc);
    bool collective = ds_op_desc_of(op->code)->flags & DS_OPF_COLLECTIVE;
    for (uint32_t i = 0; i < op->n_out; i++) {
        const ds_type *type = ds_value_at(open->frame->scope.func, op->out[i])->type;
        DS_TRY(ds_exec__value_new(&site, type, NULL, &out[i], err));
    }
    if (collective && thread->rank >= 0) return ds_exec__meet(thread, op, in, out, err);
    if (collective) {
        ds_status status = ds_exec__comm(&site, op, in, out, err);
        if (status != DS_OK) return at_path(thread, open, op, NULL, 0, status, err);
    } else {
        DS_TRY(compute(thread, open, op, in, out, err));
    }
    for (uint32_t i = 0; i < op->n_out; i++) DS_TRY(ds_exec__finish(thread, open, op, out[i], err));
    return DS_OK;
}

static ds_status table_op(ds_exec_thread *thread, const ds_op *op, const ds_exec_value **waits,
                          ds_error *err) {
    ds_exec_open *open = thread->top;
    ds_exec_slot *slots = ds_xcalloc(op->n_in + 1, sizeof *slots);
    ds_exec_value **in = ds_xcalloc(op->n_in + 1, sizeof *in);
    ds_exec_value **out = ds_xcalloc(op->n_out + 1, sizeof *out);
    ds_status status = DS_OK;
    for (uint32_t i = 0; i < op->n_in && status == DS_OK && !*waits; i++) {
        status = ds_exec__read(thread, open, &op->in[i], &slots[i], waits, err);
        in[i] = slots[i].value;
        if (status == DS_OK && !*waits && !in[i])
            status = ds_error_set(err, DS_ERR_TYPE, op->in[i].loc,
                                  "a family is read as a whole: say which element");
        if (status == DS_OK && !*waits && in[i]->pending) *waits = in[i];
    }
    if (status == DS_OK && !*waits) {
        status = execute(thread, open, op, in, out, err);
        for (uint32_t i = 0; i < op->n_out; i++) {
            ds_exec_slot result = {.value = out[i]};
            if (status == DS_OK)
                status = ds_exec__define(thread, open, op->out[i], result, err);
            else
                ds_exec__slot_drop(&result);
        }
    }
    for (uint32_t i = 0; i < op->n_in; i++) ds_exec__slot_drop(&slots[i]);
    free(slots);
    free(in);
    free(out);
    return status;
}

/* ---- inputs ---- */

/* Calls before the name, indices after it: "block.w{3,0}". */
static const char *weight_name(ds_exec_thread *thread, const ds_exec_open *open, const char *name) {
    ds_buf text = {0};
    const ds_exec_open *chain[64];
    uint32_t n = 0;
    for (const ds_exec_open *at = open; at && n < 64; at = at->up) chain[n++] = at;
    for (uint32_t i = n; i-- > 0;) {
        if (!chain[i]->op || chain[i]->op->code != DS_OP_CALL) continue;
        const char *call = ds_exec__own_name(thread, chain[i]->up->frame->scope.func, chain[i]->op);
        if (*call) ds_buf_printf(&text, "%s.", call);
    }
    ds_buf_put(&text, name);
    bool indexed = false;
    for (uint32_t i = n; i-- > 0;) {
        if (chain[i]->rec)
            ds_exec__weight_indices(thread, chain[i], i ? chain[i - 1]->op : NULL, &indexed, &text);
        if (!chain[i]->op || chain[i]->op->code != DS_OP_FOR) continue;
        ds_buf_printf(&text, "%c%lld", indexed ? ',' : '{', (long long)chain[i]->turn.value);
        indexed = true;
    }
    if (indexed) ds_buf_putc(&text, '}');
    const char *kept = ds_arena_strdup(&thread->run->arena, text.text);
    ds_buf_deinit(&text);
    return kept;
}

/* A value of the entry that nothing computes. A weight's attributes are its op's. */
static ds_status input(ds_exec_thread *thread, ds_exec_open *open, ds_value value, const char *name,
                       const ds_index *indices, ds_exec_slot *out, ds_error *err) {
    const ds_func *func = open->frame->scope.func;
    const ds_value_info *info = ds_value_at(func, value);
    const ds_attr *attrs = info->def ? info->def->attrs : info->attrs;
    uint32_t n_attrs = info->def ? info->def->n_attrs : info->n_attrs;
    ds_exec_site site = ds_exec__site(thread, open, info->loc);
    site.indices = indices;
    ds_exec_range range;
    ds_exec_slot fresh = {0};
    const ds_attr *attr = ds_attr_find(attrs, n_attrs, "range");
    DS_TRY(ds_exec__input_range(thread->run, func, value, attr, indices, &range, err));
    ds_status status = ds_exec__value_new(&site, info->type, NULL, &fresh.value, err);
    if (status == DS_OK)
        status = ds_exec__input_fill(&site, name, attrs, n_attrs, range, fresh.value, err);
    ds_exec__slot_set(out, fresh);
    return status;
}

/* An argument, or the elements of a family whose first `level` binders have the values `indices`.
 */
typedef struct element {
    const char *name;
    uint32_t level;
    const ds_index *indices;
} element;

static ds_status argument(ds_exec_thread *thread, ds_exec_open *open, ds_value value, element at,
                          ds_exec_slot *out, ds_error *err) {
    const ds_value_info *info = ds_value_at(open->frame->scope.func, value);
    ds_arena *arena = &thread->run->arena;
    if (at.level == info->n_binders) {
        if (at.level) at.name = ds_arena_printf(arena, "%s}", at.name);
        return input(thread, open, value, at.name, at.indices, out, err);
    }
    const ds_binder *binder = &info->binders[at.level];
    ds_env env = ds_binding_env(thread->run->binding, at.indices);
    int64_t lo, hi;
    ds_exec_family *family = NULL;
    DS_TRY(ds_expr_eval_int(&env, binder->lo, binder->loc, &lo, err));
    DS_TRY(ds_expr_eval_int(&env, binder->hi, binder->loc, &hi, err));
    DS_TRY(ds_exec__family_new(lo, hi - lo, binder->loc, &family, err));
    ds_exec__slot_set(out, (ds_exec_slot){.family = family});
    for (int64_t i = 0; i < family->n; i++) {
        ds_index index = {binder->name, lo + i, at.indices};
        const char *longer =
            ds_arena_printf(arena, "%s%c%lld", at.name, at.level ? ',' : '{', (long long)(lo + i));
        element next = {longer, at.level + 1, &index};
        DS_TRY(argument(thread, open, value, next, &family->items[i], err));
    }
    return DS_OK;
}

ds_status ds_exec__thread_start(ds_exec_thread *thread, const ds_func *func,
                                const ds_exec_place *here, ds_error *err) {
    thread->func = func;
    thread->results = ds_xcalloc(func->n_results + 1, sizeof *thread->results);
    ds_exec_open *open =
        open_block(thread, NULL, &func->body, new_frame(func, here), func->n_results);
    for (uint32_t i = 0; i < func->n_args; i++) {
        const char *name = ds_value_at(func, func->args[i])->name;
        if (thread->rank >= 0)
            name =
                ds_arena_printf(&thread->run->arena, "rank%lld.%s", (long long)thread->rank, name);
        DS_TRY(argument(thread, open, func->args[i], (element){.name = name},
                        &open->frame->slots[func->args[i].i], err));
    }
    return DS_OK;
}

/* ---- the thread ---- */

static void end_entry(ds_exec_thread *thread, ds_exec_open *open) {
    for (uint32_t i = 0; i < open->n_results; i++) {
        thread->results[i] = open->results[i];
        open->results[i] = (ds_exec_slot){0};
    }
    close_block(thread);
}

static ds_status end_block(ds_exec_thread *thread, ds_exec_open *open, ds_error *err) {
    if (!open->op)
        end_entry(thread, open);
    else if (open->op->code == DS_OP_FOR)
        return end_turn(thread, open, err);
    else if (open->op->code == DS_OP_CALL || open->op->code == DS_OP_REC)
        return give_results(thread, open, err);
    else
        return end_region(thread, open, err);
    return DS_OK;
}

/* yield and return: the results, then the end of the block. */
static ds_status leave(ds_exec_thread *thread, const ds_op *op, const ds_exec_value **waits,
                       ds_error *err) {
    ds_exec_open *open = thread->top;
    for (uint32_t i = 0; i < op->n_in && i < open->n_results && !*waits; i++) {
        ds_exec_slot slot;
        DS_TRY(ds_exec__read(thread, open, &op->in[i], &slot, waits, err));
        ds_exec__slot_set(&open->results[i], slot);
    }
    if (*waits) return DS_OK;
    if (op->code == DS_OP_RETURN && !open->op) thread->return_op = op;
    return end_block(thread, open, err);
}

static ds_status weight(ds_exec_thread *thread, const ds_op *op, ds_error *err) {
    ds_exec_open *open = thread->top;
    const ds_value_info *info = ds_value_at(open->frame->scope.func, op->out[0]);
    ds_exec_slot slot = {0};
    DS_TRY(input(thread, open, op->out[0], weight_name(thread, open, info->name), open->indices,
                 &slot, err));
    return ds_exec__define(thread, open, op->out[0], slot, err);
}

/* ---- recs ---- */

static ds_status open_rec(ds_exec_thread *thread, const ds_op *op, ds_error *err) {
    ds_exec_frame *frame = thread->top->frame;
    return ds_exec__open_rec(thread, open_block(thread, op, op->body, frame, op->n_out), err);
}

static ds_status step(ds_exec_thread *thread, const ds_op *op, const ds_exec_value **waits,
                      ds_error *err);

/* The next equation of the rec at the top, or the rec's end. */
static ds_status step_rec(ds_exec_thread *thread, ds_error *err) {
    ds_exec_open *open = thread->top;
    const ds_op *op;
    bool ended;
    if (++thread->run->steps > DS_EXEC_MAX_STEPS) return too_many_steps(open->op->loc, err);
    DS_TRY(ds_exec__rec_next(thread, open, &op, &ended, err));
    if (ended) return end_block(thread, open, err);
    return op ? step(thread, op, &thread->waits_for, err) : DS_OK;
}

static ds_status step(ds_exec_thread *thread, const ds_op *op, const ds_exec_value **waits,
                      ds_error *err) {
    switch (op->code) {
    case DS_OP_FOR:
        return open_loop(thread, op, waits, err);
    case DS_OP_CALL:
        return open_call(thread, op, waits, err);
    case DS_OP_LOCAL:
        return open_region(thread, op, err);
    case DS_OP_REC:
        return open_rec(thread, op, err);
    case DS_OP_WEIGHT:
        return weight(thread, op, err);
    case DS_OP_YIELD:
    case DS_OP_RETURN:
        return leave(thread, op, waits, err);
    default:
        return table_op(thread, op, waits, err);
    }
}

ds_status ds_exec__thread_run(ds_exec_thread *thread, bool *progress, ds_error *err) {
    while (thread->top) {
        ds_exec_open *open = thread->top;
        if (open->rec) {
            DS_TRY(step_rec(thread, err));
            *progress = true;
            continue;
        }
        if (open->next == open->block->n_ops) {
            DS_TRY(end_block(thread, open, err));
            continue;
        }
        const ds_op *op = open->block->ops[open->next++];
        if (++thread->run->steps > DS_EXEC_MAX_STEPS) return too_many_steps(op->loc, err);
        thread->waits_for = NULL;
        DS_TRY(step(thread, op, &thread->waits_for, err));
        if (thread->waits_for) { /* the block that was open is open again */
            thread->top->next--;
            thread->waits_at = op;
            return DS_OK;
        }
        *progress = true;
    }
    return DS_OK;
}

void ds_exec__thread_deinit(ds_exec_thread *thread) {
    while (thread->top) close_block(thread);
    for (uint32_t i = 0; thread->func && i < thread->func->n_results; i++)
        ds_exec__slot_drop(&thread->results[i]);
    free(thread->results);
    thread->results = NULL;
}
