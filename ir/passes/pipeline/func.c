/* The function of an item: the ops of a chunk and a phase, on their stage.
 *
 * Items whose functions have the same text share one function; all forward functions are copied
 * from one text. */
#include "ir/passes/build/copy.h"
#include "ir/passes/pipeline/emit.h"

#include <stdlib.h>
#include <string.h>

static ds_arena *arena_of(const ds_pipe *p) {
    return &p->unit->arena;
}

ds_place ds_pipe__on(const ds_pipe *p, uint32_t stage) {
    if (p->step->stage_mesh)
        return (ds_place){.kind = DS_PLACE_MESH, .name = p->step->stage_mesh[stage]};
    ds_coord *coord = DS_NEW(&p->unit->arena, ds_coord);
    *coord = (ds_coord){ds_intern(&p->unit->strings, "pp"), ds_expr_int(&p->unit->exprs, stage)};
    return (ds_place){.kind = DS_PLACE_MESH, .name = p->mesh, .coords = coord, .n_coords = 1};
}

bool ds_pipe__as_wide(const ds_pipe *p, const ds_type *type, uint32_t stage) {
    uint32_t on = 0;
    while (on < p->n_stages && p->step->stage_mesh[on] != type->on.name) on++;
    return on < p->n_stages && ds_strategy_same_width(&p->step->strategy, on, stage);
}

/* ---- which ops ---- */

static bool is_of(const ds_pipe_op *op, char kind, uint32_t chunk) {
    if (op->chunk != chunk || op->crosses) return false;
    if (kind == 'A') return op->phase != DS_PIPE_F;
    return op->phase == (kind == 'F' ? DS_PIPE_F : kind == 'B' ? DS_PIPE_B : DS_PIPE_W);
}

/* Marks the ops of a slice, and the constants that the slice reads; false if the slice is empty. */
static bool choose_ops(const ds_pipe_part *part, char kind, uint32_t chunk, bool *in) {
    bool any = false;
    for (uint32_t i = part->n_ops; i-- > 0;) {
        const ds_pipe_op *op = &part->ops[i];
        bool own = is_of(op, kind, chunk);
        any = any || own;
        in[i] = in[i] || own;
        for (uint32_t k = 0; k < op->n_reads && in[i]; k++) {
            uint32_t def = part->def[op->reads[k]];
            if (def != DS_PIPE_NONE && part->ops[def].chunk == DS_PIPE_NONE) in[def] = true;
        }
    }
    return any;
}

/* ---- operands and results ---- */

static void find_in(const ds_pipe *p, const bool *in, ds_pipe_func *f) {
    const ds_pipe_part *part = f->part;
    bool *seen = ds_xcalloc(part->func->values.n + 1, sizeof *seen);
    DS_VEC(uint32_t) found = {0};
    for (uint32_t i = 0; i < part->n_ops; i++)
        for (uint32_t k = 0; in[i] && k < part->ops[i].n_reads; k++) {
            uint32_t v = part->ops[i].reads[k], def = part->def[v];
            if (seen[v] || (def != DS_PIPE_NONE && in[def])) continue;
            seen[v] = true;
            DS_PUSH(arena_of(p), &found, v);
        }
    f->in = found.at;
    f->n_in = found.n;
    free(seen);
}

static void find_out(const ds_pipe *p, const bool *in, uint32_t chunk, ds_pipe_func *f) {
    const ds_pipe_part *part = f->part;
    DS_VEC(uint32_t) found = {0};
    for (uint32_t i = 0; i < part->n_ops; i++) {
        const ds_op *op = part->func->body.ops[i];
        for (uint32_t k = 0; in[i] && part->ops[i].chunk == chunk && k < op->n_out; k++) {
            uint32_t v = op->out[k].i;
            if (part->exported[v] != DS_PIPE_NONE || part->result[v] != DS_PIPE_NONE ||
                part->gradient[v] != DS_PIPE_NONE)
                DS_PUSH(arena_of(p), &found, v);
        }
    }
    f->out = found.at;
    f->n_out = found.n;
}

/* ---- its text ---- */

static void add_arg(ds_pipe_copy *c, uint32_t old) {
    ds_func *func = c->b->func;
    ds_value value =
        ds_pipe__value(c, (ds_value){old}, ds_value_at(c->old, (ds_value){old})->name, NULL);
    ds_value_info *info = ds_value_at(func, value);
    info->is_arg = info->type_written = true;
    func->args[func->n_args++] = value;
}

static uint32_t count_values(const ds_op *op) {
    uint32_t n = op->n_out + op->n_args;
    for (uint32_t i = 0; op->body && i < op->body->n_ops; i++) n += count_values(op->body->ops[i]);
    return n;
}

static ds_status write_func(ds_pipe *p, const char *name, ds_pipe_copy *c, const bool *in,
                            ds_pipe_func *f, ds_error *err) {
    const ds_func *old = f->part->func;
    ds_builder b;
    ds_build_func(&b, p->unit->modules.at[0], name, false);
    b.func->loc = old->loc;
    b.func->args = DS_NEW_N(arena_of(p), ds_value, f->n_in + 1);
    c->b = &b;
    uint32_t n = f->n_in;
    for (uint32_t i = 0; i < f->part->n_ops; i++)
        if (in[i]) n += count_values(old->body.ops[i]);
    ds_build_reserve(&b, n);
    for (uint32_t k = 0; k < f->n_in; k++) add_arg(c, f->in[k]);
    for (uint32_t i = 0; i < f->part->n_ops; i++)
        if (in[i]) ds_pipe__copy_op(c, old->body.ops[i]);
    ds_use *results = DS_NEW_N(arena_of(p), ds_use, f->n_out + 1);
    for (uint32_t k = 0; k < f->n_out; k++) results[k] = ds_use_of(c->map[f->out[k]]);
    ds_status status = ds_build_return(&b, results, f->n_out, err);
    f->func = ds_build_end(&b);
    f->func->trivia.blank_before = true;
    DS_PUSH(arena_of(p), &p->unit->modules.at[0]->funcs, f->func);
    return status;
}

/* F3, B3_first, BW3_last_1, … */
static const char *name_of(const ds_pipe *p, char kind, uint32_t chunk, uint32_t mb,
                           uint32_t copy) {
    static const char *const roles[] = {"_first", "_next", "_last"};
    ds_buf text = {0};
    const char *whole = p->splits ? "BW" : "B";
    ds_buf_printf(&text, "%s%u", kind == 'A' ? whole : (const char[]){kind, '\0'}, chunk);
    if (kind != 'F' && p->m > 1) ds_buf_put(&text, roles[p->role[mb * p->n_chunks + chunk] / 2]);
    if (p->n_copies > 1) ds_buf_printf(&text, "_copy%u", copy);
    const char *name = ds_intern(&p->unit->strings, text.text);
    ds_buf_deinit(&text);
    return name;
}

static ds_status make(ds_pipe *p, char kind, uint32_t chunk, uint32_t mb, ds_pipe_func *f,
                      ds_error *err) {
    uint32_t copy = p->index->copy[mb], stage = ds_pipe__stage(p, chunk, copy);
    const ds_func *old = f->part->func;
    bool *in = ds_xcalloc(f->part->n_ops + 1, sizeof *in);
    ds_status status = DS_OK;
    if (choose_ops(f->part, kind, chunk, in)) {
        ds_pipe_copy c = {.old = old, .place = ds_pipe__on(p, stage), .types = &p->types[stage]};
        c.map = ds_xmalloc((old->values.n + 1) * sizeof *c.map); /* every value that is read will be
                                                                    set */
        find_in(p, in, f);
        find_out(p, in, chunk, f);
        status = write_func(p, name_of(p, kind, chunk, mb, copy), &c, in, f, err);
        free(c.map);
    }
    free(in);
    return status;
}

ds_status ds_pipe__func(ds_pipe *p, char kind, uint32_t chunk, uint32_t mb,
                        const ds_pipe_func **out, ds_error *err) {
    uint32_t variant = kind == 'F' ? p->forward : p->role[mb * p->n_chunks + chunk];
    uint64_t key =
        ((uint64_t)chunk * p->n_copies + p->index->copy[mb]) * DS_PIPE_VARIANTS + variant;
    key = key * 4 + (kind == 'F' ? 0 : kind == 'B' ? 1 : kind == 'W' ? 2 : 3);
    const uint64_t *found = ds_map_find(&p->funcs, key);
    if (found) {
        *out = (const ds_pipe_func *)(uintptr_t)*found;
        return DS_OK;
    }
    ds_pipe_func *f = DS_NEW(arena_of(p), ds_pipe_func);
    f->part = &p->cut[variant];
    ds_map_put(&p->funcs, key, DS_KEY(f));
    *out = f;
    return make(p, kind, chunk, mb, f, err);
}
