/* lower: the step it makes executes to the model's numbers, and its text says what was asked for.
 *
 * The oracle is exec on the model as it is written; texts are compared with what is written here by
 * hand. */
#include "ir/base/str.h"
#include "ir/exec/exec.h"
#include "ir/lang/lang.h"
#include "ir/passes/build/path.h"
#include "ir/passes/passes.h"
#include "ir/verify/verify.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

typedef struct lowered {
    ds_unit *unit;
    ds_binding binding;
    ds_model_step *step;
    ds_status status;
    ds_error err;
    ds_buf text; /* of the step */
} lowered;

static void load(const char *text, ds_unit **unit, ds_binding *binding) {
    ds_error err;
    ds_diags diags;
    ds_diags_init(&diags);
    cr_assert_eq(ds_load_text("test.dir", text, strlen(text), NULL, unit, &err), DS_OK, "%s\n%s",
                 err.message, text);
    ds_status status = ds_verify(*unit, &diags);
    cr_assert_eq(status, DS_OK, "%s\n%s", diags.all.n ? diags.all.at[0].message : "", text);
    cr_assert_eq(ds_bind(*unit, NULL, 0, binding, &err), DS_OK, "%s", err.message);
    status = ds_verify_bound(*unit, binding, &diags);
    cr_assert_eq(status, DS_OK, "%s\n%s", diags.all.n ? diags.all.at[0].message : "", text);
    ds_diags_deinit(&diags);
}

static void lower(lowered *l, const char *text) {
    *l = (lowered){0};
    load(text, &l->unit, &l->binding);
    l->status = ds_model_step_new(&l->binding, &l->step, &l->err);
    if (l->status == DS_OK) ds_print_module(l->step->unit->modules.at[0], &l->text);
}

static void drop(lowered *l) {
    ds_buf_deinit(&l->text);
    ds_model_step_free(l->step);
    ds_unit_free(l->unit);
}

static ds_exec_result *execute(const ds_binding *binding) {
    ds_exec_result *result;
    ds_error err;
    ds_exec_options options = {.seed = 5, .keep_inputs = true};
    cr_assert_eq(ds_exec_run(binding, &options, &result, &err), DS_OK, "%s", err.message);
    return result;
}

/* The same numbers bit by bit: the same ops in the same order. */
static void expect_same(const ds_exec_result *a, const ds_exec_result *b) {
    ds_exec_comparison c;
    ds_exec_compare(a, b, 0, &c);
    cr_expect(c.equal && c.same_inputs);
    for (uint32_t i = 0; i < c.outputs.n; i++)
        cr_expect(c.outputs.at[i].equal, "result %u differs by %g", i,
                  c.outputs.at[i].max_difference);
    ds_exec_comparison_deinit(&c);
}

static void expect_model(const char *text) {
    lowered l;
    lower(&l, text);
    cr_assert_eq(l.status, DS_OK, "%s", l.err.message);
    ds_exec_result *model = execute(&l.binding), *step = execute(&l.step->binding);
    expect_same(model, step);
    /* The text means the same: it parses, and gives the step's numbers and itself again. */
    lowered again;
    lower(&again, l.text.text);
    cr_assert_eq(again.status, DS_OK, "%s", again.err.message);
    cr_expect_str_eq(again.text.text, l.text.text);
    ds_exec_result *printed = execute(&again.binding);
    expect_same(model, printed);
    ds_exec_result_free(model);
    ds_exec_result_free(step);
    ds_exec_result_free(printed);
    drop(&again);
    drop(&l);
}

static void expect_text(const char *text, const char *const *lines, size_t n) {
    lowered l;
    lower(&l, text);
    cr_assert_eq(l.status, DS_OK, "%s", l.err.message);
    for (size_t i = 0; i < n; i++)
        cr_expect(strstr(l.text.text, lines[i]), "'%s' is missing in\n%s", lines[i], l.text.text);
    drop(&l);
}
#define EXPECT_TEXT(text, ...)                                                                     \
    expect_text(text, (const char *const[]){__VA_ARGS__},                                          \
                sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

static void expect_refused(const char *text, ds_status status, const char *message) {
    lowered l;
    lower(&l, text);
    cr_expect_eq(l.status, status, "%s instead of %s: %s", ds_status_name(l.status),
                 ds_status_name(status), l.err.message);
    cr_expect(strstr(l.err.message, message), "'%s' is missing in: %s", message, l.err.message);
    cr_expect_null(l.step);
    drop(&l);
}

#define BLOCK                                                                                      \
    "dir 1\n"                                                                                      \
    "param batch = 4, width = 6, layers = 3, twice = 2 * batch\n"                                  \
    "topology @box {\n  device gpu[4] : \"A40\"\n}\n"                                              \
    "mesh @v = [tp = 4] on @box\n"                                                                 \
    "func @block(%x: f32[batch@dp, width]) -> f32[batch@dp, width] {\n"                            \
    "  weight %w : f32[width, width@tp]\n"                                                         \
    "  %z = matmul(%x, %w)\n"                                                                      \
    "  %d = dropout(%z) {p = 0.5}\n"                                                               \
    "  %r = add(%x, %d) {name = \"res\"}\n"                                                        \
    "  return %r\n"                                                                                \
    "}\n"

#define NET                                                                                        \
    BLOCK                                                                                          \
    "func @net(%x: f32[batch@dp, width]) -> f32[batch@dp, width] {\n"                              \
    "  %first = call @block(%x)\n"                                                                 \
    "  %y = for l in 0..layers carry (%h = %first) {\n"                                            \
    "    %a = call @block(%h)\n"                                                                   \
    "    %b = call @block(%a) {name = \"b2\"}\n"                                                   \
    "    yield %b\n"                                                                               \
    "  }\n"                                                                                        \
    "  return %y\n"                                                                                \
    "}\n"

Test(lower, calls_loops_and_masks) {
    expect_model(NET "scenario {\n model = @net\n}\n");
}

/* Inner calls hold loops whose index is that of the caller's loop, and weights in two loops. */
Test(lower, nested_loops_with_equal_indices) {
    expect_model("dir 1\nparam n = 3\n"
                 "func @inner(%x: f32[4, 4]) -> f32[4, 4] {\n"
                 "  %y = for l in 0..2 carry (%h = %x) {\n"
                 "    weight %w : f32[4, 4]\n"
                 "    %a = matmul(%h, %w)\n"
                 "    %b = dropout(%a) {p = 0.25}\n"
                 "    yield %b\n"
                 "  }\n"
                 "  return %y\n"
                 "}\n"
                 "func @outer(%x: f32[4, 4]) -> (f32[4, 4], {l: 0..n} f32[4, 4]) {\n"
                 "  %y, %k = for l in 0..n carry (%h = %x) {\n"
                 "    %z = call @inner(%h)\n"
                 "    %s = scale(%z) {factor = l + 1}\n"
                 "    yield %s keep %z\n"
                 "  }\n"
                 "  %last = add(%k{n - 1}, %y)\n"
                 "  return %last, %k\n"
                 "}\n"
                 "scenario {\n model = @outer\n}\n");
}

/* Sibling loops with weights of one name: exec draws them alike, so the step must too. */
Test(lower, weights_of_one_name) {
    const char *text = "dir 1\n"
                       "func @f(%x: f32[4, 4]) -> f32[4, 4] {\n"
                       "  %y = for l in 0..2 carry (%h = %x) {\n"
                       "    weight %w : f32[4, 4]\n"
                       "    %z = matmul(%h, %w)\n"
                       "    yield %z\n"
                       "  }\n"
                       "  %u = for l in 0..2 carry (%h = %y) {\n"
                       "    weight %w : f32[4, 4]\n"
                       "    %z = matmul(%h, %w)\n"
                       "    yield %z\n"
                       "  }\n"
                       "  return %u\n"
                       "}\n"
                       "scenario {\n model = @f\n}\n";
    expect_model(text);
    EXPECT_TEXT(text, "%w{l: 0..2}: f32[4, 4] {role = weight}",
                "%w_2{l: 0..2}: f32[4, 4] {role = weight, input = \"w\"}",
                "%z_2 = matmul(%h_2, %w_2{l}) {name = \"z\"}");
}

Test(lower, tied_weight_and_paths) {
    EXPECT_TEXT("dir 1\n"
                "func @g(%x: f32[4, 4], %t: f32[4, 4]) -> f32[4, 4] {\n"
                "  %y = matmul(%x, %t) {name = \"fc1\"}\n"
                "  return %y\n"
                "}\n"
                "func @f(%x: f32[4, 4]) -> f32[4, 4] {\n"
                "  weight %t : f32[4, 4@tp]\n"
                "  %y = for l in 0..2 carry (%h = %x) {\n"
                "    %z = call @g(%h, %t) {name = \"blk\"}\n"
                "    yield %z\n"
                "  }\n"
                "  return %y\n"
                "}\n"
                "scenario {\n model = @f\n}\n",
                "%t: f32[4, 4@tp] {role = weight}",
                "%blk.y = matmul(%h, %t) {name = \"blk.fc1\"} : f32[4, 4]", "model = @step");
}

Test(lower, hints_of_a_callee_stay) {
    EXPECT_TEXT(NET "scenario {\n model = @net\n}\n",
                "%first.w: f32[width, width@tp] {role = weight}",
                "%a.w{l: 0..layers}: f32[width, width@tp]", "%b2.w{l: 0..layers}",
                "%b2.r = add(%a.r, %b2.d) {name = \"b2.res\"} : f32[batch@dp, width]",
                "dropout(%b2.z) {p = 0.5, key = \"l.b2.d\", turn = [l]}");
}

/* ---- the loss ---- */

Test(lower, losses) {
    EXPECT_TEXT(BLOCK "scenario {\n model = @block\n train { loss = mse, optimizer = sgd }\n}\n",
                "%target: f32[batch@dp, width]", "%loss = mse(%r, %target) : f32[]",
                "train { loss = none, optimizer = sgd }", "return %loss");
    EXPECT_TEXT(BLOCK "scenario {\n model = @block\n train { loss = cross_entropy }\n}\n",
                "%target: i32[batch@dp]", "%loss = cross_entropy(%r, %target) : f32[]");
    expect_refused(BLOCK "scenario {\n model = @block\n train { optimizer = sgd }\n}\n",
                   DS_ERR_UNSUPPORTED,
                   "training needs a scalar loss: the first result of @block is");
}

/* f32 becomes bf16 but for the loss; a cast that the model asks for stays, and what it meets is
 * widened. */
Test(lower, narrow_dtypes) {
    EXPECT_TEXT("dir 1\n"
                "func @f(%x: f32[4, 4], %i: i32[4]) -> f32[4, 4] {\n"
                "  weight %w : f32[4, 4]\n"
                "  weight %e : f32[9, 4]\n"
                "  %p = embedding(%i, %e) : f32[4, 4]\n"
                "  %y = matmul(%x, %w) : f32[4, 4]\n"
                "  %c = cast(%y) {dtype = f32} : f32[4, 4]\n"
                "  %s = softmax(%c) : f32[4, 4]\n"
                "  %u = add(%s, %p) : f32[4, 4]\n"
                "  return %u\n"
                "}\n"
                "scenario {\n model = @f\n train { loss = mse, dtype = bf16 }\n}\n",
                "%x: bf16[4, 4]", "%i: i32[4]", "%w: bf16[4, 4] {role = weight}",
                "%y = matmul(%x, %w) : bf16[4, 4]", "%s = softmax(%c) : f32[4, 4]",
                "%p.f32 = cast(%p) {dtype = f32} : f32[4, 4]", "%u = add(%s, %p.f32) : f32[4, 4]",
                "%target: f32[4, 4]", "%loss = mse(%u, %target) : f32[]");
    EXPECT_TEXT(BLOCK "scenario {\n model = @block\n train { loss = mse, dtype = f16 }\n}\n",
                "%r.f32 = cast(%r) {dtype = f32} : f32[batch, width]",
                "%target.f32 = cast(%target) {dtype = f32}", "%loss = mse(%r.f32, %target.f32)");
}

/* ---- microbatches ---- */

Test(lower, one_microbatch) {
    EXPECT_TEXT(BLOCK "scenario {\n model = @block\n on = @box\n train { loss = mse }\n"
                      " strategy { microbatches = 2, dp = 2 }\n batch = batch\n}\n",
                "param batch = 4, microbatch = batch / 2, width = 6",
                "%x: f32[microbatch@dp, width]", "@step is one of 2 microbatches",
                "strategy { dp = 2 }", "batch = batch");
}

/* Params that are computed from the batch are those of the microbatch, through imports as well. */
Test(lower, params_follow_the_microbatch) {
    EXPECT_TEXT("dir 1\nparam batch = 8, seq = 3, rows = batch * seq\n"
                "func @f(%x: f32[batch@dp, seq, 2]) -> f32[rows, 2] {\n"
                "  %y = reshape(%x) {shape = [rows, 2]}\n"
                "  return %y\n"
                "}\n"
                "scenario {\n model = @f\n train { loss = mse }\n"
                " strategy { microbatches = 4 }\n batch = rows\n}\n",
                "param batch = 8, microbatch = batch / 4", "rows = microbatch * seq",
                "reshape(%x) {shape = [rows, 2]} : f32[rows, 2]", "batch = 24");
}

/* Without training the model runs on each: the results are families. */
Test(lower, microbatches_without_training) {
    const char *text = BLOCK "scenario {\n model = @block\n train = off\n"
                             " strategy { microbatches = 2 }\n}\n";
    lowered l;
    lower(&l, text);
    cr_assert_eq(l.status, DS_OK, "%s", l.err.message);
    ds_exec_result *r = execute(&l.step->binding);
    cr_assert_eq(r->outputs.n, 2);
    for (uint32_t i = 0; i < 2; i++) {
        cr_expect_eq(r->outputs.at[i].dims[0], 2);
        cr_expect_eq(r->outputs.at[i].dims[1], 6);
    }
    cr_expect(strstr(l.text.text, "%x{m: 0..2}: f32[microbatch@dp, width]"));
    cr_expect(strstr(l.text.text, "turn = [m]"));
    ds_exec_result_free(r);
    drop(&l);
}

Test(lower, microbatches_that_do_not_divide) {
    expect_refused(
        BLOCK "scenario {\n model = @block\n strategy { microbatches = 3 }\n}\n", DS_ERR_VALUE,
        "3 microbatches do not divide the batch: dim 0 of %x is batch = 4; choose 2 or 4 "
        "microbatches");
    expect_refused(
        "dir 1\nparam batch = 4\n"
        "func @f(%x: f32[batch, 2]) -> f32[batch, 2] {\n  %y = relu(%x)\n  return %y\n}\n"
        "scenario {\n model = @f\n strategy { microbatches = 2 }\n}\n",
        DS_ERR_UNSUPPORTED, "no input of @f says where its batch is");
    expect_refused("dir 1\nparam a = 4, b = 2\n"
                   "func @f(%x: f32[a * b@dp]) -> f32[a * b] {\n  %y = relu(%x)\n  return %y\n}\n"
                   "scenario {\n model = @f\n strategy { microbatches = 2 }\n}\n",
                   DS_ERR_UNSUPPORTED, "not proportional in exactly one param");
}

/* ---- overrides ---- */

#define OVERRIDE(pattern)                                                                          \
    NET "scenario {\n model = @net\n on = @box\n"                                                  \
        " strategy { tp = 4, ops { \"" pattern "\" = on @v [n: tp] } }\n}\n"

Test(lower, an_override_of_one_turn_unrolls) {
    expect_model(OVERRIDE("l[1]/b2/z"));
    EXPECT_TEXT(OVERRIDE("l[1]/b2/z"), "%l0.a.z = matmul(%first.r, %a.w0) {name = \"l[0].a.z\"}",
                "%l1.b2.z = matmul(%l1.a.r, %b2.w1) {name = \"l[1].b2.z\"}",
                "dropout(%l2.a.z) {p = 0.5, key = \"l.a.d\", turn = [2], name = \"l[2].a.d\"}",
                "mesh @v = [tp = 4] on @box");
    EXPECT_TEXT(OVERRIDE("net/l[*]/a/z"), "for l in 0..layers",
                "\"step/l[*]/a/z\" = on @v [n: tp]");
}

Test(lower, an_override_of_nothing) {
    expect_refused(OVERRIDE("l[*]/b3/z"), DS_ERR_NAME, "is the path of no operation of @net");
    expect_refused(OVERRIDE("l[3]/b2/z"), DS_ERR_NAME, "is the path of no operation of @net");
}

Test(path, patterns) {
    const ds_path_loop outer = {"l", DS_ANY_TURN, NULL}, inner = {"i", DS_ANY_TURN, &outer};
    const ds_path_loop *at;
    cr_expect(ds_path_match("fc1", "f", &inner, "a.fc1", NULL));
    cr_expect(ds_path_match("a/fc1", "f", &inner, "a.fc1", NULL));
    cr_expect(ds_path_match("f.a.fc1", "f", NULL, "a.fc1", NULL));
    cr_expect(ds_path_match("l[*].i[*].fc*", "f", &inner, "a.fc1", NULL));
    cr_expect(ds_path_match("i[*].f?1", "f", &inner, "fc1", NULL));
    cr_expect(ds_path_match("a/l[*]/fc1", "f", &inner, "a.fc1", NULL));
    cr_expect(ds_path_match("l[3].fc1", "f", NULL, "l[3].a.fc1", NULL));
    cr_expect(ds_path_match("l[*].fc1", "f", NULL, "l[3].a.fc1", NULL));
    cr_expect_not(ds_path_match("l[2].fc1", "f", NULL, "l[3].a.fc1", NULL));
    cr_expect_not(ds_path_match("c1", "f", &inner, "a.fc1", NULL));
    cr_expect_not(ds_path_match("fc1.dx", "f", &inner, "a.fc1", NULL));
    cr_expect_not(ds_path_match("i[*].l[*].fc1", "f", &inner, "a.fc1", NULL));
    cr_expect_not(ds_path_match("l[3].fc1", "f", &inner, "fc1", NULL));
    cr_expect(ds_path_match("l[3].fc1", "f", &inner, "fc1", &at));
    cr_expect_eq(at, &outer);
}

/* ---- devices and refusals ---- */

Test(lower, what_is_no_model) {
    expect_refused("dir 1\nfunc @f(%x: f32[4]) -> f32[4] {\n  %y = relu(%x)\n  return %y\n}\n"
                   "scenario {\n program = @f\n}\n",
                   DS_ERR_UNSUPPORTED, "the scenario runs a program as it stands");
    expect_refused(BLOCK "func @g(%x: f32[batch, width]) -> f32[batch, width] {\n"
                         "  %y = call @block(%x) {cost = 3 us}\n  return %y\n}\n"
                         "scenario {\n model = @g\n}\n",
                   DS_ERR_UNSUPPORTED, "states its cost");
}

/* 2^24 inlined calls are refused, not made. */
Test(lower, calls_that_double) {
    ds_buf text = {0};
    ds_buf_put(&text, "dir 1\nfunc @f0(%x: f32[1]) -> f32[1] {\n  %y = relu(%x)\n  return %y\n}\n");
    for (int i = 1; i <= 24; i++)
        ds_buf_printf(&text,
                      "func @f%d(%%x: f32[1]) -> f32[1] {\n  %%a = call @f%d(%%x)\n"
                      "  %%b = call @f%d(%%a)\n  return %%b\n}\n",
                      i, i - 1, i - 1);
    ds_buf_put(&text, "scenario {\n model = @f24\n}\n");
    expect_refused(text.text, DS_ERR_LIMIT, "more than 1048576 operations");
    ds_buf_deinit(&text);
}
