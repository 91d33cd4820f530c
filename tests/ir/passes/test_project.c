/* Programs as one body per rank: the ranks return the boxes of what the program returns, their text
 * is canonical, and a step takes as long to the picosecond, since every op stands where it stood.
 */
#include "tests/support/project.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BOX(n)                                                                                     \
    "topology @box {\n  device gpu[" #n "] : \"A100-SXM4-80GB\"\n  switch sw\n"                    \
    "  link gpu[i] -- sw : 300 GB/s, 1 us for i in 0.." #n "\n}\n"
#define RUN         "scenario { program = @f\n  mesh = @m }\n"
#define ON(n, axes) "dir 1\naxis x\naxis y\n" BOX(n) "mesh @m = [" axes "] on @box\n"

#define SAME(text)    project_expect_same(text, NULL, true)
#define REFUSED(a, b) project_expect_refused(a, b)

static void expect_lines(const char *text, const char *settings, const char *const *lines) {
    char *printed = project_text(text, settings);
    for (; *lines; lines++) cr_expect(strstr(printed, *lines), "no %s in\n%s", *lines, printed);
    free(printed);
}

/* ---- programs of the repository ---- */

Test(project, data_parallel_mlp) {
    static const char file[] = "scenarios/distir-mlp.dir";
    project_expect_same_file(file, "world=4 layers=3 batch=16 width=8", true);
    project_expect_same_file(file, "world=3 layers=4 batch=12 width=6", true);
    project_expect_same_file(file, "world=1 layers=2 batch=4 width=4", true);
    project_expect_same_file("scenarios/mixed-box-dp.dir", "layers=2 width=8 batch=32", true);
}

Test(project, gpt_layer) {
    static const char file[] = "scenarios/gpt3-layer-tp8.dir";
    project_expect_same_file(file, "batch=2 seq=4 hidden=32 heads=8 tp=8", true);
}

Test(project, pipeline) {
    project_expect_same_file("scenarios/pipeline-2x4.dir", "batch=16 width=8", true);
}

/* ---- models: all that the strategy brings in ---- */

#define STRATEGY(model)                                                                            \
    BOX(16)                                                                                        \
    "scenario {\n  model = @g." model                                                              \
    "\n  on = @box\n  train { optimizer = adam, keep_gradients = true }\n"                         \
    "  strategy { dp = dp, tp = tp, cp = cp, ep = ep, zero = zero, microbatches = m,\n"            \
    "    sp = %s, cp_type = %s }\n}\n"
#define KNOBS "dir 1\nparam dp = 1, tp = 1, cp = 1, ep = 1, zero = 0, m = 1\n"

static void expect_model(const char *model, const char *sp, const char *cp_type,
                         const char *settings) {
    char text[2048];
    snprintf(text, sizeof text, model, sp, cp_type);
    /* A block of causal attention counts all its FLOPs, whole queries and keys count half. */
    project_expect_same(text, settings, strcmp(cp_type, "all_gather") != 0);
}

static const char gpt[] = KNOBS
    "import \"models/gpt.dir\" as g with layers = 2, hidden = 16, heads = 4, seq = 8, vocab = 24, "
    "batch = 8\n" STRATEGY("gpt");
static const char llama[] =
    KNOBS "import \"models/llama.dir\" as g with layers = 2, hidden = 16, heads = 8, kv_heads = 4, "
          "ffn = 24, seq = 8, vocab = 24, batch = 4\n" STRATEGY("llama");
static const char mixtral[] = KNOBS
    "import \"models/mixtral.dir\" as g with layers = 2, hidden = 16, heads = 8, kv_heads = 4, "
    "ffn = 24, experts = 4, chunks = 4, seq = 16, vocab = 24, batch = 4\n" STRATEGY("mixtral");

Test(project, steps_of_gpt) {
    expect_model(gpt, "false", "ring", "dp=2 tp=2");
    expect_model(gpt, "true", "ring", "dp=2 tp=2");
    expect_model(gpt, "false", "ring", "dp=4 zero=3 m=2");
}

Test(project, steps_of_llama) {
    expect_model(llama, "false", "ring", "cp=4");
    expect_model(llama, "true", "ulysses", "cp=2 tp=2");
    expect_model(llama, "false", "all_gather", "cp=2 dp=2 zero=2");
}

Test(project, steps_with_experts) {
    expect_model(mixtral, "false", "ring", "dp=4 ep=2");
    expect_model(mixtral, "false", "ring", "dp=2 cp=2 ep=4 tp=2");
}

/* Structure stays: a deeper model has as long a text. */
Test(project, text_does_not_grow_with_layers) {
    char text[2048];
    snprintf(text, sizeof text,
             KNOBS "param layers = 2\nimport \"models/gpt.dir\" as g with "
                   "layers = layers, hidden = 16, heads = 4, seq = 8, vocab = "
                   "24, batch = 8\n" STRATEGY("gpt"),
             "false", "ring");
    char *few = project_text(text, "dp=2 tp=2 layers=2");
    char *many = project_text(text, "dp=2 tp=2 layers=96");
    cr_expect_lt(strlen(many), strlen(few) + strlen(few) / 20);
    free(few), free(many);
}

/* ---- where a shard lies ---- */

Test(project, means_over_split_dims) {
    SAME(ON(4, "dp = 4") "func @f(%x: f32[8@dp, 6] on @m, %y: f32[8@dp, 6] on @m) -> (f32[] "
                         "partial(dp), f32[6] partial(dp), f32[8@dp], f32[8@dp, 6], f32[]) {\n"
                         "%l = mse(%x, %y)\n%c = reduce_mean(%x) {dims = [0]}\n"
                         "%r = reduce_mean(%x) {dims = [1]}\n%d = mse_grad(%x, %y)\n"
                         "%s = all_reduce(%l) over dp\nreturn %l, %c, %r, %d, %s\n}\n" RUN);
    expect_lines(ON(4, "dp = 4") "func @f(%x: f32[8@dp, 6] on @m, %y: f32[8@dp, 6] on @m) -> f32[] "
                                 "partial(dp) {\n%l = mse(%x, %y)\nreturn %l\n}\n" RUN,
                 NULL,
                 (const char *const[]){"{input = \"x\", of = [8, 6], at = [6, 0]}",
                                       "%l = mse(%x, %y) {count = 48} : f32[]", NULL});
}

/* Rows of a table and of logits: labels are drawn from the whole, terms are summed. */
Test(project, split_vocabulary) {
    SAME(ON(4, "dp = 2, tp = 2") "func @f(%i: i32[4@dp, 3] on @m, %t: f32[10@tp, 6] on @m) -> "
                                 "(f32[4@dp, 3, 6], f32[10@tp, 6] partial(dp), f32[4@dp, 3]) {\n"
                                 "%p = embedding(%i, %t)\n%e = all_reduce(%p) over tp\n"
                                 "%g = embedding_grad(%e, %i) {rows = 10} : f32[10@tp, 6] "
                                 "partial(dp) on @m\n"
                                 "%x = einsum(%e, %t) {rule = \"b s d, v d -> b s v\"}\n"
                                 "%q = pick(%x, %i)\n%k = all_reduce(%q) over tp\n"
                                 "return %e, %g, %k\n}\n" RUN);
    SAME(ON(4, "dp = 2, tp = 2") "func @f(%x: f32[4@dp, 3, 10@tp] on @m, %l: i32[4@dp, 3] on @m, "
                                 "%s: f32[4@dp, 3] on @m) -> f32[4@dp, 3, 10@tp] {\n"
                                 "%d = cross_entropy_grad(%x, %l, %s)\nreturn %d\n}\n" RUN);
    SAME(ON(4, "dp = 4") "func @f(%x: f32[8@dp, 5] on @m, %l: i32[8@dp] on @m) -> (f32[], "
                         "f32[8@dp, 5]) {\n%p, %s = cross_entropy(%x, %l)\n"
                         "%y = all_reduce(%p) over dp\n%d = cross_entropy_grad(%x, %l, %s)\n"
                         "return %y, %d\n}\n" RUN);
}

/* The same masks, however deep in loops and calls, on any box. */
Test(project, dropout) {
    SAME(ON(4, "dp = 2, tp = 2") "func @g(%x: f32[8@dp, 6@tp] on @m) -> f32[8@dp, 6@tp] on @m {\n"
                                 "%d = dropout(%x) {p = 0.5}\nreturn %d\n}\n"
                                 "func @f(%x: f32[8@dp, 6@tp] on @m) -> (f32[8@dp, 6@tp], {l: "
                                 "0..2} f32[8@dp, 6@tp]) {\n"
                                 "%d = dropout(%x) {p = 0.3}\n%y, %k = for l in 0..2 carry (%c = "
                                 "%d) {\n%a = call @g(%c)\n%b = call @g(%a)\n"
                                 "%e = dropout(%b) {p = 0.2, seed = 4}\nyield %b keep %e\n}\n"
                                 "return %y, %k\n}\n" RUN);
    REFUSED(ON(2, "tp = 2") "func @f(%x: f32[8@tp] on @m) -> f32[8@tp] {\n"
                            "%y = local over (tp) (%x) -> (f32[8@tp] on @m) {\n"
                            "%d = dropout(%x)\nyield %d\n}\nreturn %y\n}\n" RUN,
            "say `full` and `start`");
}

Test(project, attention_and_rotary) {
    SAME(ON(
        4,
        "cp = 2, tp = 2") "func @f(%q: f32[2, 8@cp, 4@tp, 4] on @m, %k: f32[2, 12@cp, 2@tp, 4] on "
                          "@m, "
                          "%d: f32[2, 8@cp, 4@tp, 4] on @m) -> (f32[2, 8@cp, 4@tp, 4], f32[2, "
                          "8@cp, 4@tp, 4], "
                          "f32[2, 12, 2@tp, 4]) {\n%r = rotary(%q)\n%s = rotary(%k) {start = 3}\n"
                          "%w = all_gather(%s) over cp dim 1\n%o, %e = attention(%r, %w, %w) "
                          "{causal = true}\n"
                          "%dq, %dk, %dv = attention_grad(%d, %r, %w, %w, %o, %e) {causal = true}\n"
                          "%g = all_reduce(%dk) over cp\nreturn %o, %dq, %g\n}\n" RUN);
}

Test(project, convolution_by_groups) {
    SAME(ON(4, "dp = 2, tp = 2") "func @f(%x: f32[4@dp, 8@tp, 5, 5] on @m, %w: f32[8@tp, 2, 3, 3] "
                                 "on @m, %s: f32[8@tp] on "
                                 "@m) -> (f32[4@dp, 8@tp, 5, 5], f32[4@dp, 8@tp, 5, 5], f32[8@tp, "
                                 "2, 3, 3]) {\n"
                                 "%c = conv2d(%x, %w) {groups = 4, pad = 1}\n%n = batch_norm(%c, "
                                 "%s) {groups = 2}\n"
                                 "%dx = conv2d_grad_x(%n, %w) {size = 5, groups = 4, pad = 1}\n"
                                 "%dw = conv2d_grad_w(%x, %n) {window = 3, groups = 4, pad = 1}\n"
                                 "%g = all_reduce(%dw) over dp\nreturn %n, %dx, %g\n}\n" RUN);
}

Test(project, shapes_and_expansions) {
    SAME(ON(
        4,
        "dp = 2, tp = 2") "func @f(%x: f32[4@dp, 12@tp] on @m) -> (f32[4@dp, 4@tp, 3], f32[4@dp, "
                          "6@tp, 12]) {\n"
                          "%r = reshape(%x) {shape = [4, 4, 3]}\n%g = all_gather(%x) over tp dim "
                          "1\n"
                          "%e = expand(%g) {dims = [1], sizes = [6]} : f32[4@dp, 6@tp, 12] on @m\n"
                          "return %r, %e\n}\n" RUN);
}

/* ---- shards of unequal size ---- */

Test(project, uneven_shards) {
    SAME(ON(3, "dp = 3") "func @f(%x: f32[7@dp[3, 2, 2], 4] on @m, %w: f32[4, 5] on @m) -> "
                         "(f32[7@dp[3, 2, 2], 5], f32[4, 5], f32[]) {\n%z = matmul(%x, %w)\n"
                         "%p = einsum(%x, %z) {rule = \"b k, b n -> k n\"}\n"
                         "%g = all_reduce(%p) over dp\n%m = reduce_mean(%z)\n"
                         "%l = all_reduce(%m) over dp\nreturn %z, %g, %l\n}\n" RUN);
    REFUSED(ON(3, "dp = 3") "func @f(%x: f32[7@dp[3, 2, 2]] on @m) -> f32[7] {\n"
                            "%y = all_gather(%x) over dp dim 0\nreturn %y\n}\n" RUN,
            "all_gather of unequal shards");
}

/* ---- pipelines: loops whose turns are for other ranks ---- */

#define STAGE                                                                                      \
    "func @stage<mesh @s>(%x: f32[4@dp, 6] on @s, %w: f32[6, 6] on @s) -> f32[4@dp, 6] on @s {\n"  \
    "%h = matmul(%x, %w)\n%a = relu(%h)\n%y = dropout(%a)\nreturn %y\n}\n"

Test(project, a_loop_over_stages_is_unrolled) {
    static const char text[] = ON(6, "pp = 3, dp = 2") STAGE
        "func @f(%x: f32[4@dp, 6] on @m{pp=0}, %w{l: 0..3}: f32[6, 6] on @m{pp=l}) -> "
        "(f32[4@dp, 6] on @m{pp=2}, {l: 0..3} f32[4@dp, 6] on @m{pp=l}) {\n"
        "%y0 = call @stage<@m{pp=0}>(%x, %w{0})\n"
        "%k = for l in 0..3 {\n%z = scale(%w{l}) {factor = 2.0} : f32[6, 6] on @m{pp=l}\n"
        "%i = zeros() : f32[4@dp, 6] on @m{pp=l}\n%o = call @stage<@m{pp=l}>(%i, %z)\n"
        "yield keep %o\n}\n"
        "%s1 = send(%y0) to @m{pp=1}\n%y1 = call @stage<@m{pp=1}>(%s1, %w{1})\n"
        "%s2 = send(%y1) to @m{pp=2}\n%y2 = call @stage<@m{pp=2}>(%s2, %w{2})\n"
        "return %y2, %k\n}\n" RUN;
    SAME(text);
    expect_lines(text, NULL,
                 (const char *const[]){"%w_0: f32[6, 6] {input = \"w{0}\"}", "send(%y) to 2 tag 0",
                                       "recv from 0 tag 0 : f32[2, 6]", NULL});
}

/* A stage that takes its first layer as an index: ranges, masks and factors follow the call. */
Test(project, calls_with_an_index) {
    static const char text[] = ON(
        4, "pp = 2, dp = 2") "func @stage<mesh @s, index first>(%x: f32[4@dp, 6] on @s, "
                             "%w{l: first..first + 2}: f32[6, 6] on @s) -> f32[4@dp, 6] on @s {\n"
                             "%y = for l in first..first + 2 carry (%h = %x) {\n%z = matmul(%h, "
                             "%w{l})\n"
                             "%d = dropout(%z) {p = 0.5, key = \"d\", turn = [l]}\n"
                             "%q = scale(%d) {factor = first + 2}\nyield %q\n}\nreturn %y\n}\n"
                             "func @f(%x: f32[4@dp, 6] on @m{pp=0}, %a{l: 0..2}: f32[6, 6] on "
                             "@m{pp=0}, "
                             "%b{l: 2..4}: f32[6, 6] on @m{pp=1}) -> f32[4@dp, 6] on @m{pp=1} {\n"
                             "%y = call @stage<@m{pp=0}, 0>(%x, %a)\n%s = send(%y) to @m{pp=1}\n"
                             "%z = call @stage<@m{pp=1}, 2>(%s, %b)\nreturn %z\n}\n" RUN;
    SAME(text);
    expect_lines(text, NULL,
                 (const char *const[]){"for l in 2..4", "{factor = 2}", "{factor = 4}", NULL});
}

/* The index may say where values are. */
Test(project, calls_with_an_index_in_places) {
    SAME(ON(4, "pp = 2, dp = 2") "func @stage<mesh @s, index a>(%x: f32[4@dp, 6] on @s{pp=a}) -> "
                                 "f32[4@dp, 6] on @s{pp=a} {\n%y = relu(%x)\nreturn %y\n}\n"
                                 "func @move<index a>(%x: f32[4@dp, 6] on @m{pp=a}) -> "
                                 "f32[4@dp, 6] on @m{pp=1 - a} {\n"
                                 "%y = call @stage<@m, a>(%x)\n%s = send(%y) to @m{pp=1 - a}\n"
                                 "%z = call @stage<@m, 1 - a>(%s)\nreturn %z\n}\n"
                                 "func @f(%x: f32[4@dp, 6] on @m{pp=0}) -> f32[4@dp, 6] on "
                                 "@m{pp=0} {\n%y = call @move<0>(%x)\n%z = call @move<1>(%y)\n"
                                 "return %z\n}\n" RUN);
}

/* A loop that is the same for all of a stage stays, and is no part of the other stage. */
Test(project, loops_stay_where_they_can) {
    static const char text[] =
        ON(4, "pp = 2, tp = 2") "func @f(%x: f32[4, 8@tp] on @m{pp=0}, %w{l: 0..5}: f32[8, 8@tp] "
                                "on @m{pp=0}, "
                                "%v{l: 0..5}: f32[l + 1, 8@tp] on @m{pp=1}) -> f32[4, 8@tp] on "
                                "@m{pp=1} {\n"
                                "%y, %k = for l in 0..5 carry (%c = %x) {\n%g = all_gather(%c) "
                                "over tp dim 1\n"
                                "%h = matmul(%g, %w{4 - l})\nyield %h keep %h\n}\n%s = send(%k{3}) "
                                "to @m{pp=1}\n"
                                "%z = for l in 0..5 carry (%c = %s) {\n%r = reduce_sum(%v{l}) "
                                "{dims = [0]}\n"
                                "%n = bias(%c, %r)\nyield %n\n}\nreturn %z\n}\n" RUN;
    SAME(text);
    expect_lines(text, NULL,
                 (const char *const[]){"%w{l: 0..5}: f32[8, 4] {input = \"w\", of = [8, 8], "
                                       "at = [0, 4]}",
                                       "for l in 0..5 carry", "%v{l: 0..5}: f32[l + 1, 4]", NULL});
}

/* ---- communication ---- */

Test(project, groups) {
    static const char text[] =
        ON(6, "x = 2, y = 3") "func @f(%a: f32[4@x, 6@y] on @m, %b: f32[12@(y, x), 2] on @m) -> "
                              "(f32[4@x, 6], f32[6@y], "
                              "f32[12, 2], f32[4@x, 6@y], f32[4, 6@(y, x)], f32[6@y]) {\n"
                              "%g = all_gather(%a) over y dim 1\n%p = reduce_sum(%a) {dims = [0]}\n"
                              "%s = all_reduce(%p) over x\n%w = all_gather(%b) over (y, x) dim 0\n"
                              "%r = permute(%a) over y {shift = 2}\n%t = all_to_all(%a) over x dim "
                              "0 -> 1\n"
                              "%q = reduce_max(%a) {dims = [0]}\n%n = all_reduce(%q) over x\n"
                              "return %g, %s, %w, %r, %t, %n\n}\n" RUN;
    SAME(text);
    expect_lines(text, NULL,
                 (const char *const[]){"group (1, 4)", "group (3, 4, 5) dim 1",
                                       "group (0, 3, 1, 4, 2, 5) dim 0",
                                       "permute(%a) group (0, 1, 2) {shift = 2}",
                                       "all_reduce(%q) group (2, 5) {op = max}", NULL});
}

Test(project, axes_of_one_device_move_nothing) {
    SAME(ON(2, "dp = 2, tp = 1") "func @f(%x: f32[4@dp, 6@tp] on @m, %w: f32[6@tp, 3] on @m) -> "
                                 "(f32[4@dp, 3], f32[4@dp, 6]) {\n%p = matmul(%x, %w)\n"
                                 "%y = all_reduce(%p) over tp\n%g = all_gather(%x) over tp dim 1\n"
                                 "return %y, %g\n}\n" RUN);
}

/* Members without an operand bring zeros, which take their time: no claim about picoseconds. */
Test(project, roots) {
    project_expect_same(
        ON(4, "x = 4") "func @f(%a: f32[4] on @m{x=1}, %t: f32[8@x] on @m) -> (f32[4], f32[4@x], "
                       "f32[8] on @m{x=3}, f32[] on @m{x=2}) {\n%b = broadcast(%a) over x\n"
                       "%s = scatter(%a) over x dim 0\n%g = gather(%t) over x dim 0 {root = 3}\n"
                       "%p = reduce_sum(%t)\n%r = reduce(%p) over x {root = 2}\n"
                       "return %b, %s, %g, %r\n}\n" RUN,
        NULL, false);
}

Test(project, devices_one_by_one) {
    project_expect_same(
        "dir 1\n" BOX(
            4) "func @f(%a: f32[4] on @box.gpu[1], %b: f32[4] on @box.gpu[3]) -> (f32[4] on "
               "@box.gpu[1], f32[8] on @box.gpu[3], f32[2] on @box.gpu[1], f32[4] on @box.gpu[2], "
               "f32[4] on @box.gpu[3]) {\n%x, %y = all_reduce(%a, %b) across\n"
               "%g, %h = all_gather(%a, %b) across dim 0\n%s, %t = reduce_scatter(%a, %b) across "
               "dim "
               "0\n%n = scale(%x) {factor = 3.0}\n%m = send(%n) to @box.gpu[2]\n"
               "%c, %d = broadcast(%n) across to (@box.gpu[0], @box.gpu[3])\n"
               "return %x, %h, %s, %m, %d\n}\nscenario { program = @f }\n",
        NULL, false);
    REFUSED("dir 1\n" BOX(3) "func @f(%a: f32[4] on @box.gpu[0], %b: f32[4] on @box.gpu[1]) -> "
                             "f32[8] on @box.gpu[2] {\n%g = gather(%a, %b) across to @box.gpu[2] "
                             "dim 0\nreturn %g\n}\nscenario { program = @f\n  on = @box }\n",
            "a root that is no member");
}

#define RESHARD(from, to)                                                                          \
    project_expect_same(ON(4, "x = 2, y = 2") "func @f(%a: f32[" from "] on @m) -> f32[" to        \
                                              "] on @m {\n%b = reshard(%a) : f32[" to              \
                                              "] on @m\nreturn %b\n}\n" RUN,                       \
                        NULL, false)

Test(project, reshard_is_the_steps_it_stands_for) {
    static const char *const dims[] = {"4, 8",     "4@x, 8",      "4, 8@x",      "4@x, 8@y",
                                       "4@y, 8@x", "4@(x, y), 8", "4@(y, x), 8", "4, 8@(x, y)"};
    for (int i = 0; i < 8; i++)
        for (int k = 0; k < 8; k++) {
            char text[1024];
            snprintf(
                text, sizeof text,
                ON(4, "x = 2, y = 2") "func @f(%%a: f32[%s] on @m) -> f32[%s] on @m {\n"
                                      "%%b = reshard(%%a) : f32[%s] on @m\nreturn %%b\n}\n" RUN,
                dims[i], dims[k], dims[k]);
            project_expect_same(text, NULL, false);
        }
    expect_lines(ON(4, "x = 2, y = 2") "func @f(%a: f32[4, 8] on @m) -> f32[4@x, 8@y] {\n%b = "
                                       "reshard(%a) : f32[4@x, 8@y] on @m\nreturn %b\n}\n" RUN,
                 NULL, (const char *const[]){"slice(%a) {dim = 0, lo = 2, hi = 4}", NULL});
    RESHARD("4@(x, y), 8", "4@x, 8@y");
}

Test(project, reshard_of_terms) {
    SAME(ON(4, "x = 2, y = 2") "func @f(%a: f32[4@x, 8@y] on @m) -> f32[] {\n%p = reduce_sum(%a)\n"
                               "%b = reshard(%p) : f32[] on @m\nreturn %b\n}\n" RUN);
    project_expect_same(
        ON(4, "x = 2, y = 2") "func @f(%a: f32[4@x, 8@y] on @m) -> (f32[8] partial(x), f32[8@x]) "
                              "{\n%p = reduce_sum(%a) {dims = [0]}\n%q = reshard(%p) : f32[8] "
                              "partial(x) on @m\n%b = reshard(%p) : f32[8@x] on @m\n"
                              "return %q, %b\n}\n" RUN,
        NULL, false);
}

/* How a reshard is done is no word for its steps. */
Test(project, reshard_by_an_algorithm) {
    static const char *const how[] = {"algorithm = broadcast", "algorithm = send_recv_gather",
                                      "balance = none",
                                      "algorithm = broadcast, balance = size, stream = z"};
    for (size_t i = 0; i < sizeof how / sizeof *how; i++) {
        char text[1024];
        snprintf(
            text, sizeof text,
            ON(4, "x = 4") "axis z\nmesh @a = pick 0..2 of @m [x = 2]\n"
                           "mesh @b = pick 2..4 of @m [z = 2]\n"
                           "func @f(%%a: f32[4@x, 8] on @a) -> (f32[4, 8@z] on @b, f32[4, 8] "
                           "on @b) {\n%%y = reshard(%%a) : f32[4, 8@z] on @b\n"
                           "%%w = reshard(%%a) {%s} : f32[4, 8] on @b\nreturn %%y, %%w\n}\n" RUN,
            how[i]);
        project_expect_same(text, NULL, false);
    }
}

Test(project, reshard_between_meshes) {
    project_expect_same(
        ON(4,
           "x = 2, y = 2") "axis z\nmesh @v = view @m [z = 4]\n"
                           "func @f(%a: f32[8@x, 8@y] on @m) -> (f32[8@z, 8] on @v, f32[8@y, 4] "
                           "on @m{x=1}, f32[8@(x, y), 8] on @m) {\n"
                           "%b = reshard(%a) : f32[8@z, 8] on @v\n"
                           "%s = slice(%b) {dim = 1, lo = 0, hi = 4}\n"
                           "%c = reshard(%s) : f32[8@y, 4] on @m{x=1}\n"
                           "%d = reshard(%b) : f32[8@(x, y), 8] on @m\nreturn %b, %c, %d\n}\n" RUN,
        NULL, false);
    project_expect_same(
        ON(4, "x = 2, y = 2") "func @f(%a: f32[8@y] on @m{x=0}) -> f32[8@y] on @m{x=1} {\n"
                              "%b = reshard(%a) : f32[8@y] on @m{x=1}\nreturn %b\n}\n" RUN,
        NULL, false);
}

/* ---- local regions ---- */

Test(project, a_region_dissolves) {
    static const char text[] =
        ON(4, "dp = 2, cp = 2") "func @f(%q: f32[4@dp, 6@cp] on @m) -> f32[4@dp, 6@cp] {\n"
                                "%o = local over (cp) (%q) -> f32[4@dp, 6@cp] on @m {\n"
                                "%y = for t in 0..2 carry (%c = %q) {\n"
                                "%s = scale(%c) {factor = 1 + (axis_index(cp) - t) % 2}\n%p = "
                                "permute(%s) over cp\n"
                                "yield %p\n}\nyield %y\n}\nreturn %o\n}\n" RUN;
    SAME(text);
    expect_lines(text, NULL,
                 (const char *const[]){"scale(%c) {factor = 1 + (1 - t) % 2}",
                                       "permute(%s) group (2, 3)", NULL});
}

/* ---- inputs ---- */

Test(project, inputs_that_are_boxes_already) {
    SAME(ON(2, "dp = 2") "func @f(%x: f32[4@dp, 6] on @m {input = z, of = [9, 8], at = [3, 1]}, "
                         "%y{l: 0..2}: f32[4@dp] on @m {input = v, of = [4], at = [0]}) -> "
                         "(f32[4@dp, 6], f32[4@dp]) {\n%a = relu(%x)\n%b = relu(%y{1})\n"
                         "return %a, %b\n}\n" RUN);
}

Test(project, results_by_any_name) {
    SAME(
        ON(2, "dp = 2") "func @f(%x: f32[4@dp] on @m, %w{l: 0..3}: f32[4@dp] on @m) -> (f32[4@dp], "
                        "f32[4@dp], f32[4@dp], {l: 0..3} f32[4@dp]) {\n"
                        "return %x, %x, %w{2}, %w\n}\n" RUN);
}

Test(project, what_is_refused) {
    REFUSED(
        ON(2, "dp = 2") "func @f(%x: f32[4] partial(dp) on @m) -> f32[4] {\n%y = all_reduce(%x) "
                        "over dp\nreturn %y\n}\n" RUN,
        "an input that is partial over dp");
    REFUSED(ON(2, "dp = 2") "func @g(%x: f32[4] on @m) -> f32[4] on @m {\n%y = relu(%x)\nreturn "
                            "%y\n}\nfunc @f(%x: f32[4] on @m) -> f32[4] {\n%y = call @g(%x) {cost "
                            "= 3 us}\nreturn %y\n}\n" RUN,
            "a call that states its cost");
    REFUSED("dir 1\nfunc @f(%x: f32[4]) -> f32[4] {\n%y = relu(%x)\nreturn %y\n}\n"
            "scenario { program = @f }\n",
            "names no devices");
}
