/* The function of an item: the ops of a chunk and a phase, on their stage.
 *
 * Items whose functions have the same text share one function, and so do chunks whose texts are of
 * one kind (kinds.c); all forward functions are copied from one text. */
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

bool ds_pipe__is_apart(const ds_pipe *p, const ds_type *type) {
    const char *on = type->on.kind == DS_PLACE_MESH ? type->on.name : p->mesh;
    return on != p->mesh && ds_pipe__first_on(p->step, type) == DS_PIPE_NONE;
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

/* A name that neither a param nor an index of the text has, nor a mesh. */
static const char *free_name(const ds_pipe *p, const ds_pipe_kind *kind, const char *wanted) {
    const ds_module *module = p->unit->modules.at[0];
    const char *name = ds_intern(&p->unit->strings, wanted);
    for (uint32_t n = 2;; n++) {
        bool taken = ds_find_mesh(module, name) != NULL;
        for (uint32_t i = 0; i < module->params.n; i++)
            taken = taken || module->params.at[i].name == name;
        for (uint32_t i = 0; i < kind->words.n; i++)
            taken = taken || kind->words.at[i] == DS_KEY(name);
        if (!taken) return name;
        name = ds_arena_numbered(arena_of(p), wanted, "_", n);
        name = ds_intern(&p->unit->strings, name);
    }
}

/* Gives the function of a kind with several members its parameters. */
static void open_func(const ds_pipe *p, const ds_pipe_kind *kind, ds_func *func) {
    const char *like = "s"; /* inference looks up answers by the mesh's name */
    if (p->step->stage_mesh)
        like = ds_arena_printf(arena_of(p), "like_%s", p->step->stage_mesh[kind->first->stage]);
    func->mesh_params = DS_NEW(arena_of(p), const char *);
    func->mesh_params[0] = free_name(p, kind, like);
    func->n_mesh_params = 1;
    if (kind->slope) func->index_param = free_name(p, kind, "first");
}

/* Writes arguments and ops, in terms of the kind's index if `w` is not NULL. */
static void write_text(ds_pipe_copy *c, const bool *in, const ds_pipe_func *f, ds_pipe_walk *w) {
    for (uint32_t k = 0; k < f->n_in; k++) {
        add_arg(c, f->in[k]);
        if (w) ds_pipe__walk_value(w, c->b->func->args[k]);
    }
    for (uint32_t i = 0; i < f->part->n_ops; i++) {
        if (!in[i]) continue;
        ds_op *op = ds_pipe__copy_op(c, f->part->func->body.ops[i]);
        if (w) ds_pipe__walk_op(w, op);
    }
}

static ds_status write_func(ds_pipe *p, const char *name, ds_pipe_copy *c, const bool *in,
                            const ds_pipe_func *f, ds_error *err) {
    const ds_func *old = f->part->func;
    ds_pipe_kind *kind = f->kind;
    ds_builder b;
    ds_build_func(&b, p->unit->modules.at[0], name, false);
    b.func->loc = old->loc;
    b.func->args = DS_NEW_N(arena_of(p), ds_value, f->n_in + 1);
    c->b = &b;
    uint32_t n = f->n_in;
    for (uint32_t i = 0; i < f->part->n_ops; i++)
        if (in[i]) n += count_values(old->body.ops[i]);
    ds_build_reserve(&b, n);
    if (ds_pipe__is_shared(kind)) open_func(p, kind, b.func);
    ds_pipe_walk w = {.exprs = &p->unit->exprs, .arena = arena_of(p), .func = b.func, .kind = kind};
    if (ds_pipe__is_shared(kind))
        c->place = (ds_place){.kind = DS_PLACE_MESH, .name = b.func->mesh_params[0]};
    if (kind->slope) w.index = ds_expr_index(&p->unit->exprs, b.func->index_param);
    write_text(c, in, f, kind->slope ? &w : NULL);
    ds_use *results = DS_NEW_N(arena_of(p), ds_use, f->n_out + 1);
    for (uint32_t k = 0; k < f->n_out; k++) results[k] = ds_use_of(c->map[f->out[k]]);
    ds_status status = ds_build_return(&b, results, f->n_out, err);
    kind->func = ds_build_end(&b);
    kind->func->trivia.blank_before = true;
    DS_PUSH(arena_of(p), &p->unit->modules.at[0]->funcs, kind->func);
    return status;
}

static bool has_func(const ds_pipe *p, const char *name) {
    return ds_find_func(p->unit->modules.at[0], name) != NULL;
}

/* F3, B3_first, BW3_last_copy1, …; F, B_next, F_2, … of several chunks */
static const char *name_of(const ds_pipe *p, const ds_pipe_kind *kind, uint32_t copy) {
    static const char *const roles[] = {"_first", "_next", "_last"};
    ds_buf text = {0};
    const char *whole = p->splits ? "BW" : "B";
    ds_buf_put(&text, kind->letter == 'A' ? whole : (const char[]){kind->letter, '\0'});
    if (kind->chunk != DS_PIPE_NONE) ds_buf_printf(&text, "%u", kind->chunk);
    if (kind->letter != 'F' && p->m > 1) ds_buf_put(&text, roles[kind->variant / 2]);
    if (p->n_copies > 1 && !ds_pipe__is_shared(kind)) ds_buf_printf(&text, "_copy%u", copy);
    size_t bare = text.n;
    for (uint32_t n = 2; has_func(p, ds_intern(&p->unit->strings, text.text)); n++) {
        text.n = bare;
        ds_buf_printf(&text, "_%u", n);
    }
    const char *name = ds_intern(&p->unit->strings, text.text);
    ds_buf_deinit(&text);
    return name;
}

static ds_status write_kind(ds_pipe *p, const ds_pipe_func *f, ds_error *err) {
    const ds_func *old = f->part->func;
    uint32_t stage = f->stage;
    bool shared = ds_pipe__is_shared(f->kind);
    bool *in = ds_xcalloc(f->part->n_ops + 1, sizeof *in);
    ds_map types;
    ds_map_init(&types);
    choose_ops(f->part, f->kind->letter, f->chunk, in);
    ds_pipe_copy c = {.old = old,
                      .pipe = p,
                      .place = ds_pipe__on(p, stage),
                      .types = shared ? &types : &p->types[stage],
                      .n_chunks = f->kind->chunk == DS_PIPE_NONE ? p->n_chunks : 0};
    c.map = ds_xmalloc((old->values.n + 1) * sizeof *c.map); /* every value that is read will be
                                                                set */
    ds_status status = write_func(p, name_of(p, f->kind, f->copy), &c, in, f, err);
    free(c.map);
    free(in);
    ds_map_deinit(&types);
    return status;
}

/* ---- kinds ---- */

/* Spells out the text of the chosen ops. False if it is like no other: chunks of tensor parallelism
 * come later (overlap/tp.c), and are local regions, which functions with mesh parameters cannot have. */
static bool spell(const ds_pipe *p, const bool *in, const ds_pipe_func *f, ds_pipe_kind *kind) {
    const ds_func *old = f->part->func;
    ds_pipe_walk w = {.exprs = &p->unit->exprs,
                      .arena = arena_of(p),
                      .func = old,
                      .words = &kind->words,
                      .integers = &kind->integers};
    w.number = ds_xmalloc((old->values.n + 1) * sizeof *w.number);
    for (uint32_t k = 0; k < f->n_in; k++) ds_pipe__walk_value(&w, (ds_value){f->in[k]});
    for (uint32_t i = 0; i < f->part->n_ops; i++)
        if (in[i]) ds_pipe__walk_op(&w, old->body.ops[i]);
    for (uint32_t k = 0; k < f->n_out; k++) DS_HPUSH(&kind->words, w.number[f->out[k]]);
    free(w.number);
    return !w.unlike && p->step->strategy.tp_overlap <= DS_TP_OVERLAP_BULK;
}

/* Makes the item a member of a kind, of a new one if there is none for the item. */
static void join(ds_pipe *p, const bool *in, ds_pipe_func *f, char letter, uint32_t variant) {
    ds_pipe_kind own = {
        .letter = letter, .variant = variant, .chunk = f->chunk, .n_members = 1, .first = f};
    bool known = spell(p, in, f, &own);
    for (uint32_t i = 0; i < p->kinds.n && known; i++) {
        ds_pipe_kind *kind = p->kinds.at[i];
        if (kind->letter != letter || kind->variant != variant ||
            !ds_strategy_same_width(&p->step->strategy, kind->first->stage, f->stage) ||
            !ds_pipe__is_of_kind(kind, &own.words, &own.integers, &f->shift))
            continue;
        ds_pipe__kind_deinit(&own);
        kind->n_members++;
        if (kind->chunk != f->chunk) kind->chunk = DS_PIPE_NONE;
        f->kind = kind;
        return;
    }
    f->kind = DS_NEW(arena_of(p), ds_pipe_kind);
    *f->kind = own;
    DS_PUSH(arena_of(p), &p->kinds, f->kind);
}

static uint32_t variant_of(const ds_pipe *p, char letter, uint32_t chunk, uint32_t mb) {
    return letter == 'F' ? p->forward : p->role[mb * p->n_chunks + chunk];
}

static uint64_t key_of(const ds_pipe *p, char letter, uint32_t chunk, uint32_t mb) {
    uint64_t key = (uint64_t)chunk * p->n_copies + p->index->copy[mb];
    key = key * DS_PIPE_VARIANTS + variant_of(p, letter, chunk, mb);
    return key * 4 + (letter == 'F' ? 0 : letter == 'B' ? 1 : letter == 'W' ? 2 : 3);
}

static void find_func(ds_pipe *p, char letter, uint32_t chunk, uint32_t mb) {
    uint64_t key = key_of(p, letter, chunk, mb);
    if (ds_map_find(&p->funcs, key)) return;
    uint32_t variant = variant_of(p, letter, chunk, mb), copy = p->index->copy[mb];
    ds_pipe_func *f = DS_NEW(arena_of(p), ds_pipe_func);
    *f = (ds_pipe_func){.part = &p->cut[variant],
                        .chunk = chunk,
                        .copy = copy,
                        .stage = ds_pipe__stage(p, chunk, copy)};
    bool *in = ds_xcalloc(f->part->n_ops + 1, sizeof *in);
    if (choose_ops(f->part, letter, chunk, in)) {
        find_in(p, in, f);
        find_out(p, in, chunk, f);
        join(p, in, f, letter, variant);
    }
    free(in);
    ds_map_put(&p->funcs, key, DS_KEY(f));
}

char ds_pipe__letter(const ds_pipe *p, const ds_schedule_item *item) {
    uint32_t slot = (uint32_t)item->microbatch * p->n_chunks + (uint32_t)item->chunk;
    return item->kind == 'B' && p->role[slot] % 2 == 0 ? 'A' : item->kind;
}

void ds_pipe__find_funcs(ds_pipe *p) {
    for (uint32_t number = 0; number < p->index->n_items; number++) {
        uint32_t rank;
        const ds_schedule_item *item = ds_schedule_item_at(p->index, number, &rank);
        find_func(p, ds_pipe__letter(p, item), (uint32_t)item->chunk, (uint32_t)item->microbatch);
    }
}

ds_status ds_pipe__func(ds_pipe *p, char letter, uint32_t chunk, uint32_t mb,
                        const ds_pipe_func **out, ds_error *err) {
    const uint64_t *found = ds_map_find(&p->funcs, key_of(p, letter, chunk, mb));
    const ds_pipe_func *f = *out = (const ds_pipe_func *)(uintptr_t)*found;
    return f->kind && !f->kind->func ? write_kind(p, f->kind->first, err) : DS_OK;
}
