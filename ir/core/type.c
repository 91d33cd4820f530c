/* Types and places: the dtype table, comparison, copies, substitution, printing. */
#include "ir/core/type.h"

#include "ir/base/arena.h"

#include <string.h>

/* ---- dtypes ---- */

typedef struct dtype_row {
    const char *name;
    uint32_t bits;
} dtype_row;

static const dtype_row DTYPES[DS_DTYPE_COUNT] = {
#define DS_X(name, text, bits) {text, bits},
    DS_DTYPE_MAP(DS_X)
#undef DS_X
};

const char *ds_dtype_name(ds_dtype dtype) {
    return DTYPES[dtype].name;
}
uint32_t ds_dtype_bits(ds_dtype dtype) {
    return DTYPES[dtype].bits;
}

bool ds_dtype_is_float(ds_dtype dtype) {
    return dtype < DS_I64;
}
_Static_assert(DS_F4E2M1 + 1 == DS_I64, "the float dtypes come first");

bool ds_dtype_parse(const char *text, ds_dtype *out) {
    for (uint32_t i = 0; i < DS_DTYPE_COUNT; i++) {
        if (strcmp(text, DTYPES[i].name) != 0) continue;
        *out = (ds_dtype)i;
        return true;
    }
    return false;
}

/* ---- comparison ---- */

static ds_tri weakest(ds_tri a, ds_tri b) {
    if (a == DS_NO || b == DS_NO) return DS_NO;
    return a == DS_UNKNOWN || b == DS_UNKNOWN ? DS_UNKNOWN : DS_YES;
}

static ds_tri split_equal(const ds_exprs *exprs, const ds_split *a, const ds_split *b) {
    if (a->axis != b->axis || a->n_sizes != b->n_sizes) return DS_NO;
    ds_tri result = DS_YES;
    for (uint32_t i = 0; i < a->n_sizes; i++)
        result = weakest(result, ds_expr_equal(exprs, a->sizes[i], b->sizes[i]));
    return result;
}

static ds_tri dim_equal(const ds_exprs *exprs, const ds_dim *a, const ds_dim *b) {
    if (a->n_splits != b->n_splits) return DS_NO;
    ds_tri result = ds_expr_equal(exprs, a->size, b->size);
    for (uint32_t i = 0; i < a->n_splits; i++)
        result = weakest(result, split_equal(exprs, &a->splits[i], &b->splits[i]));
    return result;
}

/* Partials and coordinates are sets: their written order says nothing. */
static bool partials_equal(const ds_type *a, const ds_type *b) {
    if (a->n_partials != b->n_partials) return false;
    for (uint32_t i = 0; i < a->n_partials; i++) {
        uint32_t j = 0;
        while (j < b->n_partials && (a->partials[i].axis != b->partials[j].axis ||
                                     a->partials[i].reduction != b->partials[j].reduction))
            j++;
        if (j == b->n_partials) return false;
    }
    return true;
}

static ds_tri coords_equal(const ds_exprs *exprs, const ds_place *a, const ds_place *b) {
    if (a->n_coords != b->n_coords) return DS_NO;
    ds_tri result = DS_YES;
    for (uint32_t i = 0; i < a->n_coords; i++) {
        uint32_t j = 0;
        while (j < b->n_coords && a->coords[i].axis != b->coords[j].axis) j++;
        if (j == b->n_coords) return DS_NO;
        result = weakest(result, ds_expr_equal(exprs, a->coords[i].at, b->coords[j].at));
    }
    return result;
}

static ds_tri steps_equal(const ds_exprs *exprs, const ds_place *a, const ds_place *b) {
    if (a->n_steps != b->n_steps) return DS_NO;
    ds_tri result = DS_YES;
    for (uint32_t i = 0; i < a->n_steps; i++) {
        if (a->steps[i].name != b->steps[i].name) return DS_NO;
        result = weakest(result, ds_expr_equal(exprs, a->steps[i].index, b->steps[i].index));
    }
    return result;
}

ds_tri ds_place_equal(const ds_exprs *exprs, const ds_place *a, const ds_place *b) {
    if (a->kind != b->kind || a->name != b->name) return DS_NO;
    return weakest(coords_equal(exprs, a, b), steps_equal(exprs, a, b));
}

ds_tri ds_type_equal(const ds_exprs *exprs, const ds_type *a, const ds_type *b) {
    if (a->dtype != b->dtype || a->rank != b->rank || a->host != b->host) return DS_NO;
    if (!partials_equal(a, b)) return DS_NO;
    ds_tri result = ds_place_equal(exprs, &a->on, &b->on);
    for (uint32_t i = 0; i < a->rank && result != DS_NO; i++)
        result = weakest(result, dim_equal(exprs, &a->dims[i], &b->dims[i]));
    return result;
}

/* ---- copies ---- */

static void *copy_array(ds_arena *arena, const void *from, uint32_t n, size_t size) {
    if (!n) return NULL;
    void *to = ds_arena_calloc(arena, n, size);
    memcpy(to, from, n * size);
    return to;
}

#define COPY(arena, from, n) copy_array((arena), (from), (n), sizeof *(from))

ds_type *ds_type_copy(ds_arena *arena, const ds_type *type) {
    ds_type *copy = DS_NEW(arena, ds_type);
    *copy = *type;
    copy->dims = COPY(arena, type->dims, type->rank);
    for (uint32_t i = 0; i < type->rank; i++) {
        ds_dim *dim = &copy->dims[i];
        dim->splits = COPY(arena, dim->splits, dim->n_splits);
        for (uint32_t j = 0; j < dim->n_splits; j++)
            dim->splits[j].sizes = COPY(arena, dim->splits[j].sizes, dim->splits[j].n_sizes);
    }
    copy->partials = COPY(arena, type->partials, type->n_partials);
    copy->on.coords = COPY(arena, type->on.coords, type->on.n_coords);
    copy->on.steps = COPY(arena, type->on.steps, type->on.n_steps);
    return copy;
}

bool ds_type_is_plain(const ds_type *type) {
    for (uint32_t i = 0; i < type->rank; i++)
        if (type->dims[i].n_splits) return false;
    return !type->n_partials && type->on.kind == DS_PLACE_NONE;
}

bool ds_type_is_over(const ds_type *type, uint32_t dim, const char *axis) {
    for (uint32_t s = 0; dim < type->rank && s < type->dims[dim].n_splits; s++)
        if (strcmp(type->dims[dim].splits[s].axis, axis) == 0) return true;
    return false;
}

ds_type *ds_type_plain(ds_arena *arena, const ds_type *type) {
    if (ds_type_is_plain(type)) return (ds_type *)type;
    ds_type *plain = DS_NEW(arena, ds_type);
    *plain = (ds_type){.dtype = type->dtype, .rank = type->rank, .host = type->host};
    plain->dims = DS_NEW_N(arena, ds_dim, type->rank);
    for (uint32_t i = 0; i < type->rank; i++) plain->dims[i].size = type->dims[i].size;
    return plain;
}

/* ---- every expression of a type ---- */

static bool run_goes_on(const ds_split *split, uint32_t k, uint32_t n) {
    return n < split->n_sizes - k &&
           memcmp(&split->sizes[k], &split->sizes[k + 1], n * sizeof *split->sizes) == 0;
}

/* As many sizes that follow `k` and equal it as can be told in large steps. */
static uint32_t count_equal(const ds_split *split, uint32_t k) {
    enum { LEAST = 32 };
    uint32_t n = 0, step = LEAST;
    for (; run_goes_on(split, k + n, step); step *= 2) n += step;
    while ((step /= 2) >= LEAST)
        if (run_goes_on(split, k + n, step)) n += step;
    return n;
}

/* Sizes are a few runs of equal ones: each is visited once. */
static bool visit_sizes(ds_split *split, bool (*visit)(void *context, ds_expr *e), void *context) {
    ds_expr before = {0}, after = {0};
    for (uint32_t k = 0; k < split->n_sizes; k++) {
        ds_expr *e = &split->sizes[k];
        if (k && e->i == before.i) {
            if (after.i != before.i) *e = after;
            continue;
        }
        before = *e;
        uint32_t equal = count_equal(split, k);
        if (visit(context, e)) return true;
        after = *e;
        if (after.i == before.i) k += equal;
    }
    return false;
}

/* Calls visit on each; stops and returns true when it does. */
static bool visit_exprs(ds_type *type, bool (*visit)(void *context, ds_expr *e), void *context) {
    for (uint32_t i = 0; i < type->rank; i++) {
        ds_dim *dim = &type->dims[i];
        if (visit(context, &dim->size)) return true;
        for (uint32_t j = 0; j < dim->n_splits; j++)
            if (visit_sizes(&dim->splits[j], visit, context)) return true;
    }
    for (uint32_t i = 0; i < type->on.n_coords; i++)
        if (visit(context, &type->on.coords[i].at)) return true;
    for (uint32_t i = 0; i < type->on.n_steps; i++)
        if (visit(context, &type->on.steps[i].index)) return true;
    return false;
}

typedef struct substitution {
    ds_exprs *exprs;
    const char *name;
    ds_expr by;
} substitution;

static bool visit_subst(void *context, ds_expr *e) {
    const substitution *s = context;
    *e = ds_expr_subst(s->exprs, *e, s->name, s->by);
    return false;
}

typedef struct mention {
    const ds_exprs *exprs;
    const char *name;
} mention;

static bool visit_mentions(void *context, ds_expr *e) {
    const mention *m = context;
    return ds_expr_mentions(m->exprs, *e, m->name);
}

static bool dim_varies(const ds_exprs *exprs, ds_dim *dim) {
    mention any = {exprs, NULL};
    if (ds_expr_at(exprs, dim->size)->varies) return true;
    for (uint32_t s = 0; s < dim->n_splits; s++)
        if (visit_sizes(&dim->splits[s], visit_mentions, &any)) return true;
    return false;
}

bool ds_place_mentions(const ds_exprs *exprs, const ds_place *place, const char *index_name) {
    for (uint32_t i = 0; i < place->n_coords; i++)
        if (ds_expr_mentions(exprs, place->coords[i].at, index_name)) return true;
    for (uint32_t i = 0; i < place->n_steps; i++)
        if (DS_HAS_EXPR(place->steps[i].index) &&
            ds_expr_mentions(exprs, place->steps[i].index, index_name))
            return true;
    return false;
}

/* Is there any index in it? Most types have none, and are asked more often than all else. */
static bool varies(const ds_exprs *exprs, const ds_type *type) {
    for (uint32_t i = 0; i < type->rank; i++)
        if (dim_varies(exprs, &type->dims[i])) return true;
    return ds_place_mentions(exprs, &type->on, NULL);
}

bool ds_type_mentions(const ds_exprs *exprs, const ds_type *type, const char *index_name) {
    if (!varies(exprs, type)) return false;
    if (!index_name) return true;
    mention m = {exprs, index_name};
    return visit_exprs((ds_type *)type, visit_mentions, &m); /* this visitor changes nothing */
}

typedef struct owner {
    const ds_exprs *exprs;
    uint32_t module;
} owner;

static bool visit_others(void *context, ds_expr *e) {
    const owner *o = context;
    return !ds_expr_is_of(o->exprs, *e, o->module);
}

bool ds_type_is_of(const ds_exprs *exprs, const ds_type *type, uint32_t module) {
    owner o = {exprs, module};
    return !visit_exprs((ds_type *)type, visit_others, &o); /* this visitor changes nothing */
}

ds_type *ds_type_subst(ds_exprs *exprs, ds_arena *arena, const ds_type *type, const char *name,
                       ds_expr by) {
    if (!ds_type_mentions(exprs, type, name)) return (ds_type *)type;
    ds_type *copy = ds_type_copy(arena, type);
    substitution s = {exprs, name, by};
    visit_exprs(copy, visit_subst, &s);
    return copy;
}

/* ---- printing ---- */

static void print_split(const ds_exprs *exprs, const ds_split *split, ds_buf *out) {
    ds_buf_put(out, split->axis);
    for (uint32_t i = 0; i < split->n_sizes; i++) {
        ds_buf_putc(out, i ? ',' : '[');
        ds_expr_print(exprs, split->sizes[i], out);
    }
    if (split->n_sizes) ds_buf_putc(out, ']');
}

/* batch, batch@dp, k@(a,b), n@a[6,6,2,2] */
static void print_dim(const ds_exprs *exprs, const ds_dim *dim, ds_buf *out) {
    ds_expr_print(exprs, dim->size, out);
    if (!dim->n_splits) return;
    ds_buf_put(out, dim->n_splits > 1 ? "@(" : "@");
    for (uint32_t i = 0; i < dim->n_splits; i++) {
        if (i) ds_buf_putc(out, ',');
        print_split(exprs, &dim->splits[i], out);
    }
    if (dim->n_splits > 1) ds_buf_putc(out, ')');
}

/* All sums in one `partial(a, b)`, all maxima in one `partial(c, d, max)`. */
static void print_partials(const ds_type *type, ds_reduction reduction, ds_buf *out) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < type->n_partials; i++) {
        if (type->partials[i].reduction != reduction) continue;
        ds_buf_put(out, n++ ? ", " : " partial(");
        ds_buf_put(out, type->partials[i].axis);
    }
    if (n) ds_buf_put(out, reduction == DS_RED_MAX ? ", max)" : ")");
}

void ds_type_print(const ds_exprs *exprs, const ds_type *type, ds_buf *out) {
    ds_buf_put(out, ds_dtype_name(type->dtype));
    ds_buf_putc(out, '[');
    for (uint32_t i = 0; i < type->rank; i++) {
        if (i) ds_buf_put(out, ", ");
        print_dim(exprs, &type->dims[i], out);
    }
    ds_buf_putc(out, ']');
    print_partials(type, DS_RED_SUM, out);
    print_partials(type, DS_RED_MAX, out);
    if (type->on.kind != DS_PLACE_NONE) {
        ds_buf_put(out, " on ");
        ds_place_print(exprs, &type->on, out);
    }
    if (type->host) ds_buf_put(out, " host");
}

void ds_place_print(const ds_exprs *exprs, const ds_place *place, ds_buf *out) {
    if (place->kind == DS_PLACE_NONE) return;
    ds_buf_putc(out, '@');
    ds_buf_put(out, place->name);
    for (uint32_t i = 0; i < place->n_coords; i++) {
        ds_buf_put(out, i ? ", " : "{");
        ds_buf_put(out, place->coords[i].axis);
        ds_buf_putc(out, '=');
        ds_expr_print(exprs, place->coords[i].at, out);
    }
    if (place->n_coords) ds_buf_putc(out, '}');
    for (uint32_t i = 0; i < place->n_steps; i++) {
        ds_buf_putc(out, '.');
        ds_buf_put(out, place->steps[i].name);
        if (!DS_HAS_EXPR(place->steps[i].index)) continue;
        ds_buf_putc(out, '[');
        ds_expr_print(exprs, place->steps[i].index, out);
        ds_buf_putc(out, ']');
    }
}
