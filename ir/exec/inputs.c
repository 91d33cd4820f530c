/* What a program starts with: generated, or given by the user.
 *
 * A generated element is a function of (seed, input name, family index, row-major index in the
 * whole tensor), and its scale one of the whole shape. So programs that name their inputs alike get
 * the same numbers, however they are sharded. Integers need a bound: the attribute {range = n},
 * else what the consuming op indexes, found by following the value through loops, calls and layout
 * ops; else 2. */
#include "ir/exec/internal.h"

#include "ir/base/rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ---- */

const char *ds_exec__plain_name(ds_arena *arena, const char *name) {
    char *plain = ds_arena_strdup(arena, name);
    size_t n = 0;
    for (const char *p = name; *p; p++) {
        if (*p == '{' || *p == '}' || *p == '%') continue;
        plain[n++] = *p == ',' ? '_' : *p;
    }
    plain[n] = '\0';
    return plain;
}

/* ---- numbers ---- */

static uint64_t name_key(const char *name) {
    ds_arena arena;
    ds_arena_init(&arena);
    const char *plain = ds_exec__plain_name(&arena, name);
    uint64_t key = ds_hash_bytes(plain, strlen(plain));
    ds_arena_deinit(&arena);
    return key;
}

double ds_exec_generated(uint64_t seed, const char *name, int64_t element) {
    return 2 * ds_rng_uniform_at(seed, name_key(name), (uint64_t)element, 0) - 1;
}

double ds_exec_generated_scale(uint32_t rank, const int64_t *dims) {
    double fan = 1;
    if (rank < 2) return 1;
    if (rank == 2) fan = (double)dims[0];
    if (rank == 3) fan = (double)dims[1];
    for (uint32_t d = 1; d < rank && rank > 3; d++) fan *= (double)dims[d];
    return sqrt(3 / fan);
}

typedef struct generator {
    uint64_t seed, key;
    double scale;
    bool integer, positive;
    double below;
    bool emulate;
    ds_dtype dtype;
    const ds_exec_tensor *given; /* NULL: generated */
} generator;

static double exact_element(const generator *g, int64_t index) {
    if (g->given) return g->given->at[index];
    double u = ds_rng_uniform_at(g->seed, g->key, (uint64_t)index, 0);
    if (g->integer) return floor(u * g->below);
    return (g->positive ? u : 2 * u - 1) * g->scale;
}

static double element(const generator *g, int64_t index) {
    double x = exact_element(g, index);
    return g->emulate ? ds_exec__round(g->dtype, x) : x;
}

/* ---- bounds of integers ---- */

typedef struct search {
    ds_exec_run_state *run;
    ds_env env;
    ds_map seen; /* (function, value) */
    ds_exec_range *out;
} search;

static void follow(search *s, const ds_func *func, ds_value value);

static void bound_by(search *s, ds_expr size) {
    int64_t n;
    ds_error ignored;
    if (!DS_HAS_EXPR(size) || ds_expr_eval_int(&s->env, size, DS_NOWHERE, &n, &ignored) != DS_OK ||
        n < 1)
        return;
    if (!s->out->below || n < s->out->below) s->out->below = n;
}

static const ds_type *type_of(const ds_func *func, const ds_use *use) {
    return ds_value_at(func, use->value)->type;
}

/* `from_end`: 1 for the last dim. */
static void bound_by_dim(search *s, const ds_func *func, const ds_op *op, uint32_t operand,
                         uint32_t from_end) {
    const ds_type *type = operand < op->n_in ? type_of(func, &op->in[operand]) : NULL;
    if (type && type->rank >= from_end) bound_by(s, type->dims[type->rank - from_end].size);
}

static void bound_by_attr(search *s, const ds_op *op, const char *name) {
    const ds_attr *attr = ds_attr_find(op->attrs, op->n_attrs, name);
    if (attr) bound_by(s, attr->expr);
}

/* Is operand i what the line's `range` bounds? Then notes the bound. */
static bool is_bounded(search *s, const ds_func *func, const ds_op *op, uint32_t i) {
    const char *range = ds_op_desc_of(op->code)->range;
    uint32_t operand, of, from_end;
    char relation[3], what[16];
    if (!range || sscanf(range, "%u %2s %15s", &operand, relation, what) != 3 || operand != i)
        return false;
    bool part = ds_attr_find(op->attrs, op->n_attrs, "start") != NULL; /* of what is indexed */
    if (relation[0] == '>')
        s->out->positive = true;
    else if (!part && sscanf(what, "%u.%u", &of, &from_end) == 2)
        bound_by_dim(s, func, op, of, from_end);
    else if (!part)
        bound_by_attr(s, op, what);
    return true;
}

/* What table op `op` needs its operand i to be; follows the value on if it stays itself. */
static void used_by(search *s, const ds_func *func, const ds_op *op, uint32_t i) {
    if (is_bounded(s, func, op, i)) return;
    switch (op->code) {
    case DS_OP_AFTER:
        if (i == 0) follow(s, func, op->out[0]);
        return;
    case DS_OP_ALL_REDUCE: /* sums are something else, and would need another bound */
    case DS_OP_REDUCE:
    case DS_OP_REDUCE_SCATTER:
        return;
    default:
        break;
    }
    const ds_op_desc *desc = ds_op_desc_of(op->code);
    bool moves = desc && ((desc->flags & (DS_OPF_VIEW | DS_OPF_COLLECTIVE)) ||
                          strcmp(desc->family, "layout") == 0 || op->code == DS_OP_CAST);
    bool bucket = desc && (desc->flags & DS_OPF_COLLECTIVE) && op->n_in == op->n_out;
    for (uint32_t k = 0; moves && k < op->n_out; k++)
        if (!bucket || k == i) follow(s, func, op->out[k]);
}

static void in_block(search *s, const ds_func *func, const ds_block *block, ds_value value) {
    for (uint32_t k = 0; k < block->n_ops; k++) {
        const ds_op *op = block->ops[k];
        for (uint32_t i = 0; i < op->n_in; i++) {
            if (op->in[i].value.i != value.i) continue;
            if (op->code == DS_OP_CALL)
                follow(s, op->callee, op->callee->args[i]);
            else if (op->code == DS_OP_FOR || op->code == DS_OP_LOCAL)
                follow(s, func, op->args[i]);
            else if (op->code == DS_OP_CASE)
                follow(s, func, op->out[0]);
            else if (op->code >= DS_OP_FIRST_TABLE_OP)
                used_by(s, func, op, i);
        }
        if (op->body) in_block(s, func, op->body, value);
    }
}

static void follow(search *s, const ds_func *func, ds_value value) {
    uint64_t key = ds_hash_mix(DS_KEY(func), value.i);
    if (ds_map_find(&s->seen, key)) return;
    ds_map_put(&s->seen, key, 1);
    in_block(s, func, &func->body, value);
}

ds_status ds_exec__input_range(ds_exec_run_state *run, const ds_func *func, ds_value value,
                               const ds_attr *range, const ds_index *indices, ds_exec_range *out,
                               ds_error *err) {
    *out = (ds_exec_range){0};
    search s = {.run = run, .env = ds_binding_env(run->binding, indices), .out = out};
    ds_map_init(&s.seen);
    follow(&s, func, value);
    ds_map_deinit(&s.seen);
    if (!range) return DS_OK;
    if (range->kind != DS_ATTR_EXPR)
        return ds_error_set(err, DS_ERR_TYPE, range->loc, "'range' must be an integer");
    DS_TRY(ds_expr_eval_int(&s.env, range->expr, range->loc, &out->below, err));
    if (out->below >= 1) return DS_OK;
    return ds_error_set(err, DS_ERR_VALUE, range->loc, "'range' is %lld; it must be at least 1",
                        (long long)out->below);
}

ds_status ds_exec_input_range(const ds_binding *binding, const ds_func *func, ds_value value,
                              int64_t *below, ds_error *err) {
    const ds_value_info *info = ds_value_at(func, value);
    ds_exec_run_state run = {.binding = binding};
    ds_exec_range range;
    const ds_attr *attr = ds_attr_find(info->attrs, info->n_attrs, "range");
    DS_TRY(ds_exec__input_range(&run, func, value, attr, NULL, &range, err));
    *below = range.below;
    return DS_OK;
}

/* ---- filling ---- */

/* The part of a larger tensor that an input is. */
typedef struct box {
    int64_t lo[DS_MAX_RANK], whole[DS_MAX_RANK];
} box;

/* Which term of a partial value this device holds, and of how many. */
static void term_of(const ds_exec_value *value, uint32_t position, int64_t *term, int64_t *n) {
    *term = 0;
    *n = 1;
    for (uint32_t a = 0; a < value->place->n_axes; a++) {
        if (!((value->sum | value->max) >> a & 1)) continue;
        *term = *term * value->place->sizes[a] + ds_exec_coordinate(value->place, a, position);
        *n *= value->place->sizes[a];
    }
}

/* A partial input's element i is whole in term i mod n; the others add 0 (or are less by 1). */
static void fill_part(const generator *g, const box *in, const ds_exec_value *value,
                      uint32_t position) {
    ds_exec_part *part = &value->parts[position];
    int64_t at[DS_MAX_RANK] = {0}, term, n_terms;
    term_of(value, position, &term, &n_terms);
    for (int64_t i = 0; i < part->t.n; i++) {
        int64_t index = 0;
        for (uint32_t d = 0; d < part->t.rank; d++)
            index = index * in->whole[d] + in->lo[d] + part->lo[d] + at[d];
        double x = element(g, index);
        bool mine = index % n_terms == term;
        part->t.at[i] = mine ? x : value->max ? x - 1 : 0;
        for (uint32_t d = part->t.rank; d-- > 0;) {
            if (++at[d] < part->t.dims[d]) break;
            at[d] = 0;
        }
    }
}

static ds_status find_given(const ds_exec_site *site, const char *name, uint32_t rank,
                            const int64_t *dims, const ds_exec_tensor **out, ds_error *err) {
    ds_exec_run_state *run = site->run;
    const char *plain = ds_exec__plain_name(&run->arena, name);
    *out = NULL;
    for (uint32_t i = 0; i < run->options->n_inputs; i++) {
        const ds_exec_tensor *t = &run->options->inputs[i];
        if (strcmp(ds_exec__plain_name(&run->arena, t->name), plain) != 0) continue;
        bool same = t->rank == rank;
        for (uint32_t d = 0; d < t->rank && same; d++) same = t->dims[d] == dims[d];
        char a[DS_DIMS_TEXT], b[DS_DIMS_TEXT];
        if (!same)
            return ds_error_set(err, DS_ERR_SHAPE, site->loc,
                                "input %%%s is %s, but %s is given for it", name,
                                ds_dims_text(rank, dims, a), ds_dims_text(t->rank, t->dims, b));
        run->given_used[i] = true;
        *out = t;
    }
    return DS_OK;
}

static ds_status note_input(const ds_exec_site *site, const char *name, const ds_exec_value *value,
                            const int64_t *dims, const generator *g, ds_error *err) {
    ds_exec_run_state *run = site->run;
    ds_exec_tensor t = {.name = ds_arena_strdup(&run->result->arena, name),
                        .dtype = value->dtype,
                        .rank = value->rank};
    for (uint32_t d = 0; d < t.rank; d++) t.dims[d] = dims[d];
    for (uint32_t i = 0; i < run->result->inputs.n; i++) { /* boxes of one input */
        const ds_exec_tensor *other = &run->result->inputs.at[i];
        if (strcmp(other->name, name) != 0) continue;
        char a[DS_DIMS_TEXT], b[DS_DIMS_TEXT];
        if (other->rank == t.rank && memcmp(other->dims, t.dims, sizeof t.dims) == 0) return DS_OK;
        return ds_error_set(
            err, DS_ERR_SHAPE, site->loc, "input '%s' is %s here and %s elsewhere in the program",
            name, ds_dims_text(t.rank, t.dims, a), ds_dims_text(other->rank, other->dims, b));
    }
    DS_TRY(ds_tensor_count(t.rank, t.dims, site->loc, &t.n, err));
    if (run->options->keep_inputs) {
        ds_tensor room; /* only asks whether there is that much */
        DS_TRY(ds_tensor_new(&run->memory, t.rank, t.dims, site->loc, &room, err));
        ds_tensor_drop(&room);
        t.at = ds_xcalloc((size_t)t.n + 1, sizeof *t.at);
        for (int64_t i = 0; i < t.n; i++) t.at[i] = element(g, i);
    }
    DS_HPUSH(&run->result->inputs, t);
    return DS_OK;
}

/* ---- boxes of other inputs ---- */

static ds_status list_item(const ds_exec_site *site, const ds_attr *attr, uint32_t d, uint32_t rank,
                           int64_t *out, ds_error *err) {
    ds_env env = ds_binding_env(site->run->binding, site->indices);
    if (attr->kind != DS_ATTR_LIST || attr->n_items != rank || attr->items[d].kind != DS_ATTR_EXPR)
        return ds_error_set(err, DS_ERR_TYPE, attr->loc, "'%s' must be a list of %u integers",
                            attr->name, rank);
    return ds_expr_eval_int(&env, attr->items[d].expr, attr->loc, out, err);
}

/* {of = [64, 8], at = [16, 0]}: the value's box of that larger tensor; without them all of it. */
static ds_status read_box(const ds_exec_site *site, const ds_attr *of, const ds_attr *at,
                          const ds_exec_part *part, box *out, ds_error *err) {
    *out = (box){0};
    for (uint32_t d = 0; d < part->t.rank; d++) {
        out->whole[d] = part->full[d];
        if (of) DS_TRY(list_item(site, of, d, part->t.rank, &out->whole[d], err));
        if (at) DS_TRY(list_item(site, at, d, part->t.rank, &out->lo[d], err));
        if (out->lo[d] < 0 || out->lo[d] > out->whole[d] ||
            part->full[d] > out->whole[d] - out->lo[d])
            return ds_error_set(err, DS_ERR_VALUE, (of ? of : at)->loc,
                                "%lld elements at %lld are no part of dim %u, which has %lld",
                                (long long)part->full[d], (long long)out->lo[d], d,
                                (long long)out->whole[d]);
    }
    return DS_OK;
}

static ds_status fill_parts(const ds_exec_site *site, const generator *g, const box *in,
                            ds_exec_value *value, ds_error *err) {
    uint64_t own = value->split | value->sum | value->max;
    for (uint32_t p = 0; p < value->place->n_devices; p++) {
        uint32_t q = 0; /* devices that hold the same share it */
        while (q < p && !ds_exec__same_on(value->place, own, p, q)) q++;
        if (q < p) {
            value->parts[p].t = ds_tensor_share(&value->parts[q].t);
            continue;
        }
        DS_TRY(ds_exec__part_new(site, &value->parts[p], err));
        fill_part(g, in, value, p);
    }
    return DS_OK;
}

ds_status ds_exec__input_fill(const ds_exec_site *site, const char *name, const ds_attr *attrs,
                              uint32_t n_attrs, ds_exec_range range, ds_exec_value *value,
                              ds_error *err) {
    const ds_attr *input = ds_attr_find(attrs, n_attrs, "input");
    const ds_attr *of = ds_attr_find(attrs, n_attrs, "of"),
                  *at = ds_attr_find(attrs, n_attrs, "at");
    if (input) { /* an element of a family is that element of the other */
        const char *element = strchr(name, '{');
        name = ds_attr_text(&site->run->binding->unit->exprs, input);
        if (!name)
            return ds_error_set(err, DS_ERR_TYPE, input->loc, "'input' must be a name or a string");
        if (element) name = ds_arena_printf(&site->run->arena, "%s%s", name, element);
    }
    box in;
    DS_TRY(read_box(site, of, at, &value->parts[0], &in, err));
    generator g = {.seed = site->run->options->seed,
                   .key = name_key(name),
                   .scale = ds_exec_generated_scale(value->rank, in.whole),
                   .integer = !ds_dtype_is_float(value->dtype),
                   .positive = range.positive,
                   .below = range.below && value->dtype != DS_BOOL ? (double)range.below : 2,
                   .emulate = site->run->options->emulate,
                   .dtype = value->dtype};
    DS_TRY(find_given(site, name, value->rank, in.whole, &g.given, err));
    DS_TRY(note_input(site, name, value, in.whole, &g, err));
    return fill_parts(site, &g, &in, value, err);
}

ds_status ds_exec__inputs_used(const ds_exec_run_state *run, ds_error *err) {
    for (uint32_t i = 0; i < run->options->n_inputs; i++) {
        if (run->given_used[i]) continue;
        const char **names = ds_xcalloc(run->result->inputs.n + 1, sizeof *names);
        for (uint32_t k = 0; k < run->result->inputs.n; k++)
            names[k] = run->result->inputs.at[k].name;
        const char *given = run->options->inputs[i].name;
        const char *near = ds_suggest(given, names, run->result->inputs.n);
        ds_error_set(err, DS_ERR_NAME, DS_NOWHERE, "the program has no input '%s'%s%s%s", given,
                     near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
        free(names);
        return DS_ERR_NAME;
    }
    return DS_OK;
}
