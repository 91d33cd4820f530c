/* Making functions, op by op.
 *
 * Blocks under construction grow on the heap and are copied into the arena when they end. Names are
 * unique in a function, also between sibling regions, so that printed text reads without scopes. */
#include "ir/passes/build/build.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ds_build_block {
    ds_build_block *up;
    ds_op *region; /* NULL: the function's body */
    DS_VEC(ds_op *) ops;
};

static ds_arena *arena_of(ds_builder *b) {
    return &b->unit->arena;
}

static const char *intern(ds_builder *b, const char *text) {
    return ds_intern(&b->unit->strings, text);
}

/* ---- arrays ---- */

void *ds_room_insert(ds_room *room, ds_arena *arena, void *array, uint32_t n, uint32_t at,
                     size_t size) {
    char *old = array, *grown = array;
    if (!array || array != room->array || n == room->n) {
        room->n = n ? 2 * n : 1;
        room->array = grown = ds_arena_calloc(arena, room->n, size);
        if (at) memcpy(grown, old, at * size);
    }
    if (n > at) memmove(grown + (at + 1) * size, old + at * size, (n - at) * size);
    return grown;
}

/* ---- functions and blocks ---- */

static void open_block(ds_builder *b, ds_op *region) {
    ds_build_block *block = ds_xcalloc(1, sizeof *block);
    block->up = b->open;
    block->region = region;
    b->open = block;
}

static void close_block(ds_builder *b, ds_block *out) {
    ds_build_block *block = b->open;
    out->ops = DS_NEW_N(arena_of(b), ds_op *, block->ops.n + 1);
    out->n_ops = block->ops.n;
    if (block->ops.n) memcpy(out->ops, block->ops.at, block->ops.n * sizeof *out->ops);
    b->open = block->up;
    free(block->ops.at);
    free(block);
}

static void append(ds_builder *b, ds_op *op) {
    DS_HPUSH(&b->open->ops, op);
}

void ds_build_func(ds_builder *b, ds_module *module, const char *name, bool hints) {
    *b = (ds_builder){.unit = module->unit, .hints = hints};
    ds_map_init(&b->names);
    b->func = DS_NEW(arena_of(b), ds_func);
    b->func->name = intern(b, name);
    b->func->module = module;
    b->func->rank = -1;
    open_block(b, NULL);
}

void ds_build_reserve(ds_builder *b, uint32_t n) {
    ds_func *func = b->func;
    ds_map_reserve(&b->names, n);
    if (n <= func->values.cap) return;
    ds_value_info *at = DS_NEW_N(arena_of(b), ds_value_info, n);
    if (func->values.n) memcpy(at, func->values.at, func->values.n * sizeof *at);
    func->values.at = at;
    func->values.cap = n;
}

ds_func *ds_build_end(ds_builder *b) {
    ds_block unfinished;
    while (b->open) close_block(b, b->open->up || b->resumed ? &unfinished : &b->func->body);
    ds_map_deinit(&b->names);
    ds_map_deinit(&b->plain);
    free(b->taken.at);
    free(b->manual);
    b->manual = NULL;
    return b->func;
}

/* False: a value has the name. */
static bool take_name(ds_builder *b, const char *name) {
    uint64_t *n = ds_map_slot(&b->names, DS_KEY(name));
    if (*n) return false;
    *n = 1;
    DS_HPUSH(&b->taken, name);
    return true;
}

void ds_build_resume(ds_builder *b, ds_func *func) {
    *b = (ds_builder){.unit = func->module->unit, .func = func, .resumed = true};
    ds_map_init(&b->names);
    ds_map_reserve(&b->names, func->values.n + func->values.n / 8);
    for (uint32_t i = 0; i < func->values.n; i++)
        ds_map_put(&b->names, DS_KEY(func->values.at[i].name), 1);
    open_block(b, NULL);
}

ds_block ds_build_take(ds_builder *b) {
    ds_block taken = {0};
    assert(b->resumed && !b->open->up);
    close_block(b, &taken);
    open_block(b, NULL);
    return taken;
}

const char *ds_build_name(ds_builder *b, const char *wanted) {
    const char *name = intern(b, wanted);
    if (take_name(b, name)) return name;
    for (uint64_t i = *ds_map_find(&b->names, DS_KEY(name)) + 1;; i++) {
        const char *numbered = intern(b, ds_arena_numbered(arena_of(b), wanted, "_", i));
        if (!take_name(b, numbered)) continue;
        ds_map_put(&b->names, DS_KEY(name), i); /* the next search starts from here */
        return numbered;
    }
}

ds_build_mark ds_build_here(const ds_builder *b) {
    return (ds_build_mark){.n_values = b->func->values.n,
                           .n_taken = b->taken.n,
                           .n_ops = b->open->ops.n,
                           .n_manual = b->n_manual,
                           .open = b->open};
}

void ds_build_back(ds_builder *b, ds_build_mark mark) {
    ds_block forgotten;
    while (b->open != mark.open) close_block(b, &forgotten);
    b->open->ops.n = mark.n_ops;
    b->func->values.n = mark.n_values;
    b->n_manual = mark.n_manual;
    while (b->taken.n > mark.n_taken) ds_map_put(&b->names, DS_KEY(b->taken.at[--b->taken.n]), 0);
}

static ds_value define(ds_builder *b, const char *name, const ds_type *type, ds_op *def) {
    ds_value value = {b->func->values.n};
    ds_value_info info = {.name = ds_build_name(b, name), .type = (ds_type *)type, .def = def};
    DS_PUSH(arena_of(b), &b->func->values, info);
    return value;
}

static void push_value(ds_builder *b, ds_room *room, ds_value **values, uint32_t *n,
                       ds_value value) {
    *values = ds_room_insert(room, arena_of(b), *values, *n, *n, sizeof value);
    (*values)[(*n)++] = value;
}

ds_value ds_build_arg(ds_builder *b, const char *name, const ds_type *type,
                      const ds_binder *binders, uint32_t n_binders, const ds_attr *attrs,
                      uint32_t n_attrs) {
    ds_func *func = b->func;
    ds_value value = define(b, name, type, NULL);
    ds_value_info *info = ds_value_at(func, value);
    info->type_written = info->is_arg = true;
    info->binders = (ds_binder *)binders;
    info->n_binders = n_binders;
    info->attrs = (ds_attr *)attrs;
    info->n_attrs = n_attrs;
    push_value(b, &b->room_args, &func->args, &func->n_args, value);
    return value;
}

/* ---- uses ---- */

ds_use ds_use_of(ds_value value) {
    return (ds_use){.value = value};
}

ds_use ds_use_at(ds_arena *arena, ds_value value, const ds_expr *index, uint32_t n) {
    ds_use use = {.value = value, .n_index = n};
    use.index = DS_NEW_N(arena, ds_expr, n + 1);
    memcpy(use.index, index, n * sizeof *index);
    return use;
}

/* The type of %k{0:t+1}: one more leading dim for every range. */
static const ds_type *stack(ds_unit *unit, const ds_type *type, const ds_use *use) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < use->n_index; i++) n += ds_use_is_range(use, i);
    if (!n || type->rank + n > DS_MAX_RANK) return type;
    ds_type *stacked = DS_NEW(&unit->arena, ds_type);
    *stacked = *type;
    stacked->rank = type->rank + n;
    stacked->dims = DS_NEW_N(&unit->arena, ds_dim, stacked->rank);
    for (uint32_t i = 0, d = 0; i < use->n_index; i++)
        if (ds_use_is_range(use, i))
            stacked->dims[d++].size =
                ds_expr_fold(&unit->exprs, DS_EXPR_SUB, use->index_hi[i], use->index[i]);
    if (type->rank) memcpy(stacked->dims + n, type->dims, type->rank * sizeof *type->dims);
    return stacked;
}

/* A name for binder i that no source text can contain. Loops nest at most 200 deep. */
static const char *hidden_name(ds_unit *unit, uint32_t i) {
    const char text[] = {'\1', (char)('0' + i % 64), (char)('0' + i / 64), '\0'};
    return ds_intern(&unit->strings, text);
}

/* Substitutes all indices at once, since an index may mention another binder's name. */
static const ds_type *put_indices(ds_unit *unit, const ds_type *type, const ds_value_info *info,
                                  const ds_use *use) {
    if (use->n_index == 1)
        return ds_type_subst(&unit->exprs, &unit->arena, type, info->binders[0].name,
                             use->index[0]);
    for (uint32_t i = 0; i < use->n_index; i++)
        type = ds_type_subst(&unit->exprs, &unit->arena, type, info->binders[i].name,
                             ds_expr_index(&unit->exprs, hidden_name(unit, i)));
    for (uint32_t i = 0; i < use->n_index; i++)
        type = ds_type_subst(&unit->exprs, &unit->arena, type, hidden_name(unit, i), use->index[i]);
    return type;
}

const ds_type *ds_use_type(ds_unit *unit, const ds_func *func, const ds_use *use) {
    const ds_value_info *info = ds_value_at(func, use->value);
    const ds_type *type = info->type;
    if (!type || !use->n_index) return type;
    if (ds_type_mentions(&unit->exprs, type, NULL)) type = put_indices(unit, type, info, use);
    return stack(unit, type, use);
}

/* ---- attributes ---- */

void ds_build_attr(ds_builder *b, ds_op *op, ds_attr attr) {
    uint32_t at = 0;
    while (at < op->n_attrs && op->attrs[at].name != attr.name) at++;
    ds_attr *attrs = DS_NEW_N(arena_of(b), ds_attr, op->n_attrs + 1);
    if (op->n_attrs) memcpy(attrs, op->attrs, op->n_attrs * sizeof *attrs);
    attrs[at] = attr;
    op->attrs = attrs; /* ops may share the old array */
    op->n_attrs += at == op->n_attrs;
}

void ds_build_attr_expr(ds_builder *b, ds_op *op, const char *name, ds_expr value) {
    ds_build_attr(b, op, (ds_attr){.name = intern(b, name), .kind = DS_ATTR_EXPR, .expr = value});
}

void ds_build_attr_int(ds_builder *b, ds_op *op, const char *name, int64_t value) {
    ds_build_attr_expr(b, op, name, ds_expr_int(&b->unit->exprs, value));
}

void ds_build_attr_real(ds_builder *b, ds_op *op, const char *name, double value) {
    char text[40];
    int digits = 1; /* the shortest text that reads back as the same number */
    do snprintf(text, sizeof text, "%.*g", digits, value);
    while (strtod(text, NULL) != value && ++digits <= 17);
    if (!strpbrk(text, ".einf")) strcat(text, ".0");
    const char *name_of = intern(b, text[0] == '-' ? text + 1 : text);
    ds_expr_node node = {.kind = DS_EXPR_REAL, .r = value < 0 ? -value : value, .name = name_of};
    ds_expr e = ds_expr_make(&b->unit->exprs, node);
    if (value < 0) e = ds_expr_make(&b->unit->exprs, (ds_expr_node){.kind = DS_EXPR_NEG, .a = e});
    ds_build_attr_expr(b, op, name, e);
}

void ds_build_attr_bool(ds_builder *b, ds_op *op, const char *name, bool value) {
    ds_build_attr(b, op, (ds_attr){.name = intern(b, name), .kind = DS_ATTR_BOOL, .flag = value});
}

ds_attr ds_attr_of_word(ds_unit *unit, const char *name, const char *word) {
    return (ds_attr){.name = ds_intern(&unit->strings, name),
                     .kind = DS_ATTR_WORD,
                     .word = ds_intern(&unit->strings, word)};
}

void ds_build_attr_word(ds_builder *b, ds_op *op, const char *name, const char *word) {
    ds_build_attr(b, op, ds_attr_of_word(b->unit, name, word));
}

void ds_build_attr_text(ds_builder *b, ds_op *op, const char *name, const char *text) {
    ds_expr_node node = {.kind = DS_EXPR_STR, .name = intern(b, text)};
    ds_build_attr_expr(b, op, name, ds_expr_make(&b->unit->exprs, node));
}

void ds_build_attr_exprs(ds_builder *b, ds_op *op, const char *name, const ds_expr *items,
                         uint32_t n) {
    ds_attr list = {.name = intern(b, name), .kind = DS_ATTR_LIST, .n_items = n};
    list.items = DS_NEW_N(arena_of(b), ds_attr, n + 1);
    for (uint32_t i = 0; i < n; i++)
        list.items[i] = (ds_attr){.kind = DS_ATTR_EXPR, .expr = items[i]};
    ds_build_attr(b, op, list);
}

/* ---- ops ---- */

ds_op *ds_build_op(ds_builder *b, ds_opcode code) {
    ds_op *op = DS_NEW(arena_of(b), ds_op);
    op->code = code;
    return op;
}

void ds_build_in(ds_builder *b, ds_op *op, ds_use use) {
    op->in = ds_room_insert(&b->room_in, arena_of(b), op->in, op->n_in, op->n_in, sizeof use);
    op->in[op->n_in++] = use;
}

ds_value ds_build_out(ds_builder *b, ds_op *op, const char *name, const ds_type *type) {
    ds_value value = define(b, name, type, op);
    ds_value_at(b->func, value)->type_written = type != NULL;
    push_value(b, &b->room_out, &op->out, &op->n_out, value);
    return value;
}

static ds_type *plain(ds_builder *b, const ds_type *type) {
    if (ds_type_is_plain(type)) return (ds_type *)type;
    uint64_t *known = ds_map_slot(&b->plain, DS_KEY(type));
    if (!*known) *known = DS_KEY(ds_type_plain(arena_of(b), type));
    return (ds_type *)(uintptr_t)*known;
}

static ds_status infer(ds_builder *b, ds_op *op, ds_error *err) {
    ds_arena *arena = arena_of(b);
    const ds_type **in = DS_NEW_N(arena, const ds_type *, op->n_in + 1);
    ds_type **out = DS_NEW_N(arena, ds_type *, op->n_out + 1);
    for (uint32_t i = 0; i < op->n_in; i++) {
        in[i] = ds_use_type(b->unit, b->func, &op->in[i]);
        if (!in[i])
            return ds_error_set(err, DS_ERR_INTERNAL, op->loc, "%s reads %%%s, which has no type",
                                ds_op_name(op->code), ds_value_at(b->func, op->in[i].value)->name);
        if (b->hints) in[i] = plain(b, in[i]);
    }
    for (uint32_t i = 0; i < op->n_out; i++) {
        const ds_value_info *info = ds_value_at(b->func, op->out[i]);
        if (!info->type) continue;
        out[i] = b->hints ? plain(b, info->type) : info->type;
    }
    ds_infer ctx = {.unit = b->unit,
                    .func = b->func,
                    .op = op,
                    .in = in,
                    .out = out,
                    .axis_size = b->axis_size,
                    .context = b->context,
                    .manual_axes = b->manual,
                    .n_manual = b->n_manual};
    DS_TRY(ds_op_infer(&ctx, err));
    for (uint32_t i = 0; i < op->n_out; i++) {
        ds_value_info *info = ds_value_at(b->func, op->out[i]);
        if (!b->hints || !info->type) info->type = out[i];
    }
    return DS_OK;
}

ds_status ds_build_put(ds_builder *b, ds_op *op, ds_error *err) {
    if (op->code >= DS_OP_FIRST_TABLE_OP) DS_TRY(infer(b, op, err));
    for (uint32_t i = 0; i < op->n_out; i++) {
        ds_loc *loc = &ds_value_at(b->func, op->out[i])->loc;
        if (!loc->line) *loc = op->loc;
    }
    append(b, op);
    return DS_OK;
}

void ds_build_append(ds_builder *b, ds_op *op) {
    append(b, op);
}

ds_status ds_build_unary(ds_builder *b, ds_opcode code, const char *name, ds_use x, ds_value *out,
                         ds_error *err) {
    ds_op *op = ds_build_op(b, code);
    ds_build_in(b, op, x);
    *out = ds_build_out(b, op, name, NULL);
    return ds_build_put(b, op, err);
}

ds_status ds_build_binary(ds_builder *b, ds_opcode code, const char *name, ds_use x, ds_use y,
                          ds_value *out, ds_error *err) {
    ds_op *op = ds_build_op(b, code);
    ds_build_in(b, op, x);
    ds_build_in(b, op, y);
    *out = ds_build_out(b, op, name, NULL);
    return ds_build_put(b, op, err);
}

/* ---- loops ---- */

static ds_value add_region_arg(ds_builder *b, ds_op *op, const char *name, const ds_type *type) {
    ds_value value = define(b, name, type, op);
    ds_value_at(b->func, value)->is_arg = true;
    push_value(b, &b->room_args, &op->args, &op->n_args, value);
    return value;
}

ds_op *ds_build_for(ds_builder *b, const char *index, ds_expr lo, ds_expr hi) {
    ds_op *op = ds_build_op(b, DS_OP_FOR);
    op->index = intern(b, index);
    op->lo = lo;
    op->hi = hi;
    op->body = DS_NEW(arena_of(b), ds_block);
    append(b, op);
    open_block(b, op);
    return op;
}

ds_value ds_build_carry(ds_builder *b, ds_op *loop, const char *name, const ds_type *type,
                        ds_use init) {
    ds_build_in(b, loop, init);
    bool written = type != NULL;
    if (!type) type = ds_use_type(b->unit, b->func, &init);
    ds_value value = add_region_arg(b, loop, name, type);
    ds_value_at(b->func, value)->type_written = written;
    return value;
}

static void end_block(ds_builder *b, ds_opcode code, const ds_use *a, uint32_t n_a, const ds_use *c,
                      uint32_t n_c) {
    ds_op *end = ds_build_op(b, code);
    end->in = DS_NEW_N(arena_of(b), ds_use, n_a + n_c + 1);
    if (n_a) memcpy(end->in, a, n_a * sizeof *a);
    if (n_c) memcpy(end->in + n_a, c, n_c * sizeof *c);
    end->n_in = n_a + n_c;
    end->n_keep = n_c;
    append(b, end);
}

ds_op *ds_build_last(const ds_builder *b) {
    return b->open->ops.n ? b->open->ops.at[b->open->ops.n - 1] : NULL;
}

bool ds_build_is_inner(const ds_builder *b, ds_value value) {
    const ds_op *def = ds_value_at(b->func, value)->def;
    for (uint32_t i = b->open->ops.n; i-- > 0;)
        if (b->open->ops.at[i] == def) return true;
    return false;
}

/* A kept value becomes a family over the loop's range; a family that is kept gains a binder. */
static void set_kept(ds_builder *b, const ds_op *loop, const ds_use *use, ds_value result) {
    const ds_value_info *kept = ds_value_at(b->func, use->value);
    ds_value_info *info = ds_value_at(b->func, result);
    uint32_t inner = use->n_index ? 0 : kept->n_binders;
    info->binders = DS_NEW_N(arena_of(b), ds_binder, inner + 1);
    info->binders[0] = (ds_binder){loop->index, loop->lo, loop->hi, loop->loc};
    if (inner) memcpy(info->binders + 1, kept->binders, inner * sizeof *kept->binders);
    info->n_binders = inner + 1;
}

ds_status ds_build_yield(ds_builder *b, const ds_use *next, uint32_t n_next, const ds_use *kept,
                         uint32_t n_kept, const char *const *names, ds_error *err) {
    ds_op *loop = b->open->region;
    assert(loop && loop->code == DS_OP_FOR);
    if (n_next != loop->n_args)
        return ds_error_set(err, DS_ERR_INTERNAL, loop->loc, "a loop of %u carries yields %u",
                            loop->n_args, n_next);
    end_block(b, DS_OP_YIELD, next, n_next, kept, n_kept);
    close_block(b, loop->body);
    for (uint32_t i = 0; i < n_next + n_kept; i++) {
        const ds_use *use = i < n_next ? &next[i] : &kept[i - n_next];
        ds_value like = i < n_next ? loop->args[i] : use->value;
        const char *name = names && names[i] ? names[i] : ds_value_at(b->func, like)->name;
        const ds_type *type =
            i < n_next ? ds_value_at(b->func, like)->type : ds_use_type(b->unit, b->func, use);
        if (i < n_next && type)
            type = ds_type_subst(&b->unit->exprs, arena_of(b), type, loop->index, loop->hi);
        ds_value out = ds_build_out(b, loop, name, type);
        ds_value_at(b->func, out)->type_written = false;
        if (i >= n_next) set_kept(b, loop, use, out);
    }
    return DS_OK;
}

ds_value ds_build_keep(ds_builder *b, ds_op *loop, ds_value inner, const char *name) {
    ds_op *yield = loop->body->ops[loop->body->n_ops - 1];
    ds_use use = ds_use_of(inner);
    assert(yield->code == DS_OP_YIELD);
    ds_build_in(b, yield, use);
    yield->n_keep++;
    ds_value out = ds_build_out(b, loop, name, ds_value_at(b->func, inner)->type);
    ds_value_at(b->func, out)->type_written = false;
    set_kept(b, loop, &use, out);
    return out;
}

/* ---- local regions ---- */

static bool is_manual(const ds_builder *b, const char *axis) {
    for (uint32_t i = 0; i < b->n_manual; i++)
        if (b->manual[i] == axis) return true;
    return false;
}

/* The type inside the region, where dims are a shard's dims. */
static ds_status shard_type(ds_builder *b, const ds_type *type, ds_type **out, ds_error *err) {
    ds_type *shard = ds_type_copy(arena_of(b), type);
    for (uint32_t d = 0; d < shard->rank; d++) {
        ds_dim *dim = &shard->dims[d];
        uint32_t kept = 0;
        for (uint32_t s = 0; s < dim->n_splits; s++) {
            const ds_split split = dim->splits[s];
            if (!is_manual(b, split.axis)) {
                dim->splits[kept++] = split;
                continue;
            }
            int64_t size;
            if (split.n_sizes || !b->axis_size ||
                !b->axis_size(b->context, &type->on, split.axis, &size))
                return ds_error_set(err, DS_ERR_SHARDING, DS_NOWHERE,
                                    "a local region needs even shards of a known number over %s",
                                    split.axis);
            dim->size = ds_expr_fold(&b->unit->exprs, DS_EXPR_DIV, dim->size,
                                     ds_expr_int(&b->unit->exprs, size));
        }
        dim->n_splits = kept;
    }
    uint32_t kept = 0;
    for (uint32_t p = 0; p < shard->n_partials; p++)
        if (!is_manual(b, shard->partials[p].axis)) shard->partials[kept++] = shard->partials[p];
    shard->n_partials = kept;
    *out = shard;
    return DS_OK;
}

/* The language knows operands inside the region under their outer names, so these names may be
 * taken twice. */
ds_status ds_build_local(ds_builder *b, const char *const *axes, uint32_t n_axes,
                         const ds_use *operands, uint32_t n, ds_op **out, ds_error *err) {
    ds_op *op = ds_build_op(b, DS_OP_LOCAL);
    op->over = DS_NEW_N(arena_of(b), const char *, n_axes + 1);
    b->manual = ds_xrealloc(b->manual, (b->n_manual + n_axes) * sizeof *b->manual);
    for (uint32_t i = 0; i < n_axes; i++)
        b->manual[b->n_manual++] = op->over[i] = intern(b, axes[i]);
    op->n_over = n_axes;
    op->body = DS_NEW(arena_of(b), ds_block);
    for (uint32_t i = 0; i < n; i++) {
        ds_type *type = NULL;
        ds_build_in(b, op, operands[i]);
        DS_TRY(shard_type(b, ds_use_type(b->unit, b->func, &operands[i]), &type, err));
        ds_value inside =
            add_region_arg(b, op, ds_value_at(b->func, operands[i].value)->name, type);
        ds_value_at(b->func, inside)->name = ds_value_at(b->func, operands[i].value)->name;
    }
    append(b, op);
    open_block(b, op);
    *out = op;
    return DS_OK;
}

/* Ends the open region's body. */
static ds_op *close_local(ds_builder *b, const ds_use *results, uint32_t n) {
    ds_op *op = b->open->region;
    assert(op && op->code == DS_OP_LOCAL);
    end_block(b, DS_OP_YIELD, results, n, NULL, 0);
    close_block(b, op->body);
    b->n_manual -= op->n_over;
    op->result_types = DS_NEW_N(arena_of(b), ds_type *, n + 1);
    return op;
}

void ds_build_end_local(ds_builder *b, const ds_use *results, const ds_value *out, uint32_t n) {
    ds_op *op = close_local(b, results, n);
    for (uint32_t i = 0; i < n; i++) {
        ds_value_info *info = ds_value_at(b->func, out[i]);
        op->result_types[i] = info->type;
        info->def = op;
        push_value(b, &b->room_out, &op->out, &op->n_out, out[i]);
    }
}

ds_status ds_build_yield_local(ds_builder *b, const ds_use *results, const ds_type *const *types,
                               uint32_t n, const char *const *names, ds_error *err) {
    (void)err;
    ds_op *op = close_local(b, results, n);
    for (uint32_t i = 0; i < n; i++) {
        op->result_types[i] = (ds_type *)types[i];
        ds_value out = ds_build_out(b, op, names[i], types[i]);
        ds_value_at(b->func, out)->type_written = false;
    }
    return DS_OK;
}

/* ---- the end ---- */

ds_status ds_build_return(ds_builder *b, const ds_use *results, uint32_t n, ds_error *err) {
    ds_func *func = b->func;
    assert(!b->open->region);
    end_block(b, DS_OP_RETURN, results, n, NULL, 0);
    func->results = DS_NEW_N(arena_of(b), ds_type *, n + 1);
    func->result_binders = DS_NEW_N(arena_of(b), ds_binder *, n + 1);
    func->n_result_binders = DS_NEW_N(arena_of(b), uint32_t, n + 1);
    func->n_results = n;
    for (uint32_t i = 0; i < n; i++) {
        const ds_type *type = ds_use_type(b->unit, func, &results[i]);
        if (!type)
            return ds_error_set(err, DS_ERR_INTERNAL, func->loc, "result %u has no type", i + 1);
        func->results[i] = (ds_type *)type;
        if (results[i].n_index) continue;
        const ds_value_info *info = ds_value_at(func, results[i].value);
        func->result_binders[i] = info->binders;
        func->n_result_binders[i] = info->n_binders;
    }
    return DS_OK;
}

/* ---- types ---- */

ds_type *ds_type_make(ds_arena *arena, ds_dtype dtype, const ds_expr *dims, uint32_t rank) {
    ds_type *type = DS_NEW(arena, ds_type);
    type->dtype = dtype;
    type->rank = rank;
    type->dims = DS_NEW_N(arena, ds_dim, rank + 1);
    for (uint32_t d = 0; d < rank; d++) type->dims[d].size = dims[d];
    return type;
}
