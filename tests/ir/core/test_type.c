#include "ir/core/type.h"

#include <criterion/criterion.h>
#include <string.h>

typedef struct world {
    ds_strtab strings;
    ds_exprs exprs;
    ds_arena arena;
} world;

static void world_init(world *w) {
    ds_strtab_init(&w->strings);
    ds_exprs_init(&w->exprs);
    ds_arena_init(&w->arena);
}

static void world_deinit(world *w) {
    ds_arena_deinit(&w->arena);
    ds_exprs_deinit(&w->exprs);
    ds_strtab_deinit(&w->strings);
}

static const char *name(world *w, const char *text) {
    return ds_intern(&w->strings, text);
}
static ds_expr number(world *w, int64_t value) {
    return ds_expr_int(&w->exprs, value);
}
static ds_expr index_of(world *w, const char *text) {
    return ds_expr_index(&w->exprs, name(w, text));
}

static ds_expr plus(world *w, ds_expr a, int64_t b) {
    return ds_expr_binary(&w->exprs, DS_EXPR_ADD, a, number(w, b));
}

/* f32[batch@dp, k@(a,b), n@a[6,6,l + 1,2]] partial(tp, ep) partial(cp, max) on @gpus{pp=1, dp=l} */
static ds_type *rich_type(world *w) {
    ds_type *type = DS_NEW(&w->arena, ds_type);
    ds_expr *sizes = DS_NEW_N(&w->arena, ds_expr, 4);
    for (int i = 0; i < 4; i++) sizes[i] = number(w, i < 2 ? 6 : 2);
    sizes[2] = plus(w, index_of(w, "l"), 1);
    ds_split *splits = DS_NEW_N(&w->arena, ds_split, 4);
    splits[0].axis = name(w, "dp");
    splits[1].axis = name(w, "a");
    splits[2].axis = name(w, "b");
    splits[3] = (ds_split){name(w, "a"), sizes, 4};
    type->dtype = DS_F32;
    type->rank = 3;
    type->dims = DS_NEW_N(&w->arena, ds_dim, 3);
    type->dims[0] = (ds_dim){index_of(w, "batch"), &splits[0], 1};
    type->dims[1] = (ds_dim){index_of(w, "k"), &splits[1], 2};
    type->dims[2] = (ds_dim){index_of(w, "n"), &splits[3], 1};
    type->n_partials = 3;
    type->partials = DS_NEW_N(&w->arena, ds_partial, 3);
    type->partials[0] = (ds_partial){name(w, "tp"), DS_RED_SUM};
    type->partials[1] = (ds_partial){name(w, "cp"), DS_RED_MAX};
    type->partials[2] = (ds_partial){name(w, "ep"), DS_RED_SUM};
    type->on.kind = DS_PLACE_MESH;
    type->on.name = name(w, "gpus");
    type->on.n_coords = 2;
    type->on.coords = DS_NEW_N(&w->arena, ds_coord, 2);
    type->on.coords[0] = (ds_coord){name(w, "pp"), number(w, 1)};
    type->on.coords[1] = (ds_coord){name(w, "dp"), index_of(w, "l")};
    return type;
}

static ds_place device(world *w) {
    ds_place place = {.kind = DS_PLACE_DEVICE, .name = name(w, "pod"), .n_steps = 3};
    place.steps = DS_NEW_N(&w->arena, ds_step, 3);
    place.steps[0] = (ds_step){name(w, "n"), index_of(w, "i")};
    place.steps[1] = (ds_step){name(w, "gpu"), number(w, 2)};
    place.steps[2] = (ds_step){name(w, "port"), DS_NO_EXPR};
    return place;
}

static void check_print(const world *w, const ds_type *type, const char *expected) {
    ds_buf text = {0};
    ds_type_print(&w->exprs, type, &text);
    cr_expect_str_eq(text.text, expected);
    ds_buf_deinit(&text);
}

Test(type, dtypes) {
    static const struct {
        ds_dtype dtype;
        const char *text;
        uint32_t bits;
        bool is_float;
    } ROWS[] = {{DS_F64, "f64", 64, true},      {DS_F32, "f32", 32, true},
                {DS_TF32, "tf32", 32, true},    {DS_BF16, "bf16", 16, true},
                {DS_F16, "f16", 16, true},      {DS_F8E4M3, "f8e4m3", 8, true},
                {DS_F8E5M2, "f8e5m2", 8, true}, {DS_F4E2M1, "f4e2m1", 4, true},
                {DS_I64, "i64", 64, false},     {DS_I32, "i32", 32, false},
                {DS_I16, "i16", 16, false},     {DS_I8, "i8", 8, false},
                {DS_U8, "u8", 8, false},        {DS_BOOL, "bool", 8, false}};
    cr_assert_eq(sizeof ROWS / sizeof *ROWS, DS_DTYPE_COUNT);
    for (size_t i = 0; i < DS_DTYPE_COUNT; i++) {
        ds_dtype parsed;
        cr_assert(ds_dtype_parse(ROWS[i].text, &parsed));
        cr_assert_eq(parsed, ROWS[i].dtype);
        cr_assert_str_eq(ds_dtype_name(parsed), ROWS[i].text);
        cr_assert_eq(ds_dtype_bits(parsed), ROWS[i].bits);
        cr_assert_eq(ds_dtype_is_float(parsed), ROWS[i].is_float);
    }
    ds_dtype parsed;
    cr_assert_not(ds_dtype_parse("f3", &parsed));
    cr_assert_not(ds_dtype_parse("f320", &parsed));
    cr_assert_not(ds_dtype_parse("", &parsed));
}

Test(type, prints_canonically) {
    world w;
    world_init(&w);
    ds_type *type = rich_type(&w);
    check_print(&w, type,
                "f32[batch@dp, k@(a,b), n@a[6,6,l + 1,2]] partial(tp, ep) partial(cp, max) "
                "on @gpus{pp=1, dp=l}");
    type->on = device(&w);
    type->n_partials = 0;
    type->rank = 1;
    type->dims[0].n_splits = 0;
    check_print(&w, type, "f32[batch] on @pod.n[i].gpu[2].port");
    ds_type scalar = {.dtype = DS_BF16};
    check_print(&w, &scalar, "bf16[]");
    ds_partial max[2] = {{name(&w, "dp"), DS_RED_MAX}, {name(&w, "tp"), DS_RED_MAX}};
    scalar.partials = max;
    scalar.n_partials = 2;
    check_print(&w, &scalar, "bf16[] partial(dp, tp, max)");
    world_deinit(&w);
}

Test(type, a_copy_shares_no_array) {
    world w;
    world_init(&w);
    ds_type *type = rich_type(&w), *copy = ds_type_copy(&w.arena, type);
    cr_assert_eq(ds_type_equal(&w.exprs, type, copy), DS_YES);
    copy->dims[0].size = number(&w, 1);
    copy->dims[0].splits[0].axis = name(&w, "tp");
    copy->dims[2].splits[0].sizes[2] = number(&w, 3);
    copy->partials[0].axis = name(&w, "dp");
    copy->on.coords[0].at = number(&w, 3);
    check_print(&w, type,
                "f32[batch@dp, k@(a,b), n@a[6,6,l + 1,2]] partial(tp, ep) partial(cp, max) "
                "on @gpus{pp=1, dp=l}");
    world_deinit(&w);
}

Test(type, substitutes_in_dims_sizes_and_places) {
    world w;
    world_init(&w);
    ds_type *type = rich_type(&w);
    cr_assert(ds_type_mentions(&w.exprs, type, name(&w, "l")));
    cr_assert(ds_type_mentions(&w.exprs, type, NULL));
    cr_assert_not(ds_type_mentions(&w.exprs, type, name(&w, "t")));
    check_print(&w, ds_type_subst(&w.exprs, &w.arena, type, name(&w, "l"), number(&w, 3)),
                "f32[batch@dp, k@(a,b), n@a[6,6,4,2]] partial(tp, ep) partial(cp, max) "
                "on @gpus{pp=1, dp=3}");
    cr_assert_eq(ds_type_subst(&w.exprs, &w.arena, type, name(&w, "t"), number(&w, 3)), type,
                 "shared where nothing changes");
    type->on = device(&w);
    ds_type *moved = ds_type_subst(&w.exprs, &w.arena, type, name(&w, "i"), index_of(&w, "j"));
    cr_assert_eq(moved->on.steps[0].index.i, index_of(&w, "j").i);
    cr_assert_eq(type->on.steps[0].index.i, index_of(&w, "i").i);
    world_deinit(&w);
}

/* Changes one thing in a copy and compares. */
#define CHECK_CHANGED(w, type, change, expected)                                                   \
    do {                                                                                           \
        ds_type *t = ds_type_copy(&(w)->arena, (type));                                            \
        change;                                                                                    \
        cr_expect_eq(ds_type_equal(&(w)->exprs, (type), t), (expected), #change);                  \
        cr_expect_eq(ds_type_equal(&(w)->exprs, t, (type)), (expected), #change);                  \
    } while (0)

Test(type, mentions_see_coordinates_and_steps) {
    world w;
    world_init(&w);
    const ds_place mesh = rich_type(&w)->on; /* {pp=1, dp=l} */
    ds_place path = device(&w);              /* n[i].gpu[2].port */
    const char *l = name(&w, "l"), *i = name(&w, "i");
    cr_expect(ds_place_mentions(&w.exprs, &mesh, NULL));
    cr_expect(ds_place_mentions(&w.exprs, &mesh, l));
    cr_expect_not(ds_place_mentions(&w.exprs, &mesh, i));
    cr_expect(ds_place_mentions(&w.exprs, &path, NULL));
    cr_expect(ds_place_mentions(&w.exprs, &path, i));
    cr_expect_not(ds_place_mentions(&w.exprs, &path, l));
    path.steps[0].index = number(&w, 3);
    cr_expect_not(ds_place_mentions(&w.exprs, &path, NULL));
    world_deinit(&w);
}

Test(type, equality_sees_every_part) {
    world w;
    world_init(&w);
    ds_type *type = rich_type(&w);
    ds_expr one_plus_l = ds_expr_binary(&w.exprs, DS_EXPR_ADD, number(&w, 1), index_of(&w, "l"));
    CHECK_CHANGED(&w, type, t->dtype = DS_F16, DS_NO);
    CHECK_CHANGED(&w, type, t->rank = 2, DS_NO);
    CHECK_CHANGED(&w, type, t->dims[0].size = index_of(&w, "m"), DS_UNKNOWN);
    CHECK_CHANGED(&w, type, t->dims[0].size = plus(&w, t->dims[0].size, 1), DS_NO);
    CHECK_CHANGED(&w, type, t->dims[0].n_splits = 0, DS_NO);
    CHECK_CHANGED(&w, type, t->dims[0].splits[0].axis = name(&w, "tp"), DS_NO);
    CHECK_CHANGED(&w, type, t->dims[2].splits[0].n_sizes = 0, DS_NO);
    CHECK_CHANGED(&w, type, t->dims[2].splits[0].sizes[0] = number(&w, 7), DS_NO);
    CHECK_CHANGED(&w, type, t->dims[2].splits[0].sizes[2] = one_plus_l, DS_YES);
    CHECK_CHANGED(&w, type, t->n_partials = 2, DS_NO);
    CHECK_CHANGED(&w, type, t->partials[0].reduction = DS_RED_MAX, DS_NO);
    CHECK_CHANGED(&w, type, t->partials[0].axis = name(&w, "dp"), DS_NO);
    CHECK_CHANGED(&w, type, t->on.name = name(&w, "other"), DS_NO);
    CHECK_CHANGED(&w, type, t->on = (ds_place){0}, DS_NO);
    CHECK_CHANGED(&w, type, t->on.n_coords = 1, DS_NO);
    CHECK_CHANGED(&w, type, t->on.coords[0].at = number(&w, 2), DS_NO);
    CHECK_CHANGED(&w, type, t->on.coords[0].at = index_of(&w, "s"), DS_UNKNOWN);
    /* NO outweighs UNKNOWN */
    CHECK_CHANGED(&w, type,
                  (t->dims[0].size = index_of(&w, "m"), t->on.coords[0].at = number(&w, 2)), DS_NO);
    world_deinit(&w);
}

Test(type, partials_and_coordinates_are_sets) {
    world w;
    world_init(&w);
    ds_type *type = rich_type(&w);
    ds_partial swapped[3] = {type->partials[2], type->partials[0], type->partials[1]};
    ds_coord coords[2] = {type->on.coords[1], type->on.coords[0]};
    CHECK_CHANGED(&w, type, t->partials = swapped, DS_YES);
    CHECK_CHANGED(&w, type, t->on.coords = coords, DS_YES);
    world_deinit(&w);
}

Test(type, devices_compare_by_path) {
    world w;
    world_init(&w);
    ds_place a = device(&w), b = device(&w);
    cr_assert_eq(ds_place_equal(&w.exprs, &a, &b), DS_YES);
    b.steps[1].index = number(&w, 3);
    cr_assert_eq(ds_place_equal(&w.exprs, &a, &b), DS_NO);
    b = device(&w);
    b.steps[0].index = index_of(&w, "j");
    cr_assert_eq(ds_place_equal(&w.exprs, &a, &b), DS_UNKNOWN);
    b.steps[0].index = DS_NO_EXPR;
    cr_assert_eq(ds_place_equal(&w.exprs, &a, &b), DS_NO);
    b = device(&w);
    b.n_steps = 2;
    cr_assert_eq(ds_place_equal(&w.exprs, &a, &b), DS_NO);
    world_deinit(&w);
}
