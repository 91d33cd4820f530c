/* What each collective does to types, in its four forms (OPS.generated.md, Communication). */
#include "tests/support/op_text.h"

#include <criterion/criterion.h>
#include <string.h>

#define OK(args, line, want)        op_text_expect(args, line, want)
#define BAD(args, line, code, part) op_text_expect_error(args, line, DS_ERR_##code, part)

Test(ops_collectives, all_reduce) {
    OK("%x: f32[8] partial(dp) on @m", "%y = all_reduce(%x) over dp", "f32[8] on @m");
    OK("%x: f32[8] partial(dp, tp) on @m", "%y = all_reduce(%x) over dp",
       "f32[8] partial(tp) on @m");
    OK("%x: f32[8] partial(dp, tp) on @m", "%y = all_reduce(%x) over (dp, tp)", "f32[8] on @m");
    OK("%x: f32[8] partial(dp, max) on @m", "%y = all_reduce(%x) over dp", "f32[8] on @m");
    OK("%a: f32[8] partial(dp) on @m, %b: bf16[4, 8@tp] partial(dp) on @m",
       "%x, %y = all_reduce(%a, %b) over dp {algorithm = \"ring\"}",
       "f32[8] on @m; bf16[4, 8@tp] on @m");
    BAD("%x: f32[8] on @m", "%y = all_reduce(%x) over dp", SHARDING, "nothing to sum");
    BAD("%x: f32[8@dp] on @m", "%y = all_reduce(%x) over dp", SHARDING, "use all_gather over dp");
    BAD("%x: f32[8] partial(dp) on @m", "%y = all_reduce(%x) over dp {op = max}", SHARDING,
        "a term of a sum, not of a max");
    BAD("%x: f32[8] partial(dp) on @m", "%y = all_reduce(%x) over dp {op = min}", VALUE,
        "op \"min\" is none of sum, max");
    BAD("%x: f32[8] partial(dp) on @m", "%y = all_reduce(%x)", TYPE, "needs one of 'over AXIS'");
    BAD("%x: f32[8] partial(dp) on @m", "%y = all_reduce(%x) over dp across", TYPE, "not several");
    BAD("%x: f32[8] partial(dp) on @m", "%y = all_reduce(%x) over (dp, dp)", SHARDING, "twice");
    BAD("%x: f32[8] partial(dp) on @m", "%y = all_reduce(%x) over dp dim 0", TYPE,
        "takes no clause");
    BAD("%x: f32[8] partial(dp) on @m", "%y, %z = all_reduce(%x) over dp", TYPE, "as many results");
    BAD("%x: f32[8] partial(dp) on @m", "%y = all_reduce(%x) over dp {algoritm = \"ring\"}", NAME,
        "did you mean 'algorithm'?");
}

Test(ops_collectives, all_gather) {
    OK("%x: f32[64, 32@tp] on @m", "%y = all_gather(%x) over tp dim 1", "f32[64, 32] on @m");
    OK("%x: f32[64@(dp, tp)] on @m", "%y = all_gather(%x) over tp dim 0", "f32[64@dp] on @m");
    OK("%x: f32[64@(dp, tp)] on @m", "%y = all_gather(%x) over (dp, tp) dim 0", "f32[64] on @m");
    OK("%x: f32[16@dp[6, 6, 2, 2]] on @m", "%y = all_gather(%x) over dp dim 0", "f32[16] on @m");
    BAD("%x: f32[64@(dp, tp)] on @m", "%y = all_gather(%x) over dp dim 0", SHARDING,
        "not as the minor-most axes in this order; use reshard");
    BAD("%x: f32[64@(dp, tp)] on @m", "%y = all_gather(%x) over (tp, dp) dim 0", SHARDING,
        "reshard");
    BAD("%x: f32[64, 32] on @m", "%y = all_gather(%x) over tp dim 1", SHARDING,
        "is not split over it");
    BAD("%x: f32[64, 32@tp] on @m", "%y = all_gather(%x) over tp dim 2", VALUE, "no dim 2");
    BAD("%x: f32[64, 32@tp] on @m", "%y = all_gather(%x) over tp", TYPE, "such as 'dim 1'");
}

Test(ops_collectives, reduce_scatter_and_all_to_all) {
    OK("%x: f32[64, 32] partial(tp) on @m", "%y = reduce_scatter(%x) over tp dim 0",
       "f32[64@tp, 32] on @m");
    OK("%x: f32[64@dp, 32] partial(tp) on @m", "%y = reduce_scatter(%x) over tp dim 0",
       "f32[64@(dp,tp), 32] on @m");
    OK("%x: f32[16] partial(dp) on @m",
       "%y = reduce_scatter(%x) over dp dim 0 : f32[16@dp[6, 6, 2, 2]] on @m",
       "f32[16@dp[6,6,2,2]] on @m");
    BAD("%x: f32[60, 32] partial(tp) on @m", "%y = reduce_scatter(%x) over tp dim 0", SHAPE,
        "dim 0 of size 60 does not divide into 8 (tp) parts");
    BAD("%x: f32[64, 32] on @m", "%y = reduce_scatter(%x) over tp dim 0", SHARDING, "not partial");
    OK("%x: f32[64, 32@tp] on @m", "%y = all_to_all(%x) over tp dim 1 -> 0",
       "f32[64@tp, 32] on @m");
    OK("%x: f32[64@dp, 32@tp] on @m", "%y = all_to_all(%x) over tp dim 1 -> 0",
       "f32[64@(dp,tp), 32] on @m");
    BAD("%x: f32[64, 32@tp] on @m", "%y = all_to_all(%x) over tp dim 1 -> 1", VALUE, "twice");
    BAD("%x: f32[64, 32@tp] on @m", "%y = all_to_all(%x) over tp dim 1", TYPE, "dim 1 -> 0");
    BAD("%x: f32[60, 32@tp] on @m", "%y = all_to_all(%x) over tp dim 1 -> 0", SHAPE,
        "into 8 (tp) parts");
}

Test(ops_collectives, rooted) {
    OK("%x: f32[64] on @m{dp=2}", "%y = broadcast(%x) over dp", "f32[64] on @m");
    OK("%x: f32[64] on @m{pp=1, dp=2}", "%y = broadcast(%x) over dp", "f32[64] on @m{pp=1}");
    BAD("%x: f32[64] on @m", "%y = broadcast(%x) over dp", SHARDING, "must live at one coordinate");
    BAD("%x: f32[64] on @m{dp=2}", "%y = broadcast(%x) over dp {root = 2}", VALUE,
        "leave 'root' out");
    OK("%x: f32[64, 8@tp] on @m{dp=0}", "%y = scatter(%x) over dp dim 0", "f32[64@dp, 8@tp] on @m");
    BAD("%x: f32[63] on @m{dp=0}", "%y = scatter(%x) over dp dim 0", SHAPE, "does not divide");
    OK("%x: f32[64@dp] on @m", "%y = gather(%x) over dp dim 0 {root = 2}", "f32[64] on @m{dp=2}");
    OK("%x: f32[64@dp] on @m{pp=1}", "%y = gather(%x) over dp dim 0", "f32[64] on @m{pp=1, dp=0}");
    BAD("%x: f32[64@dp] on @m", "%y = gather(%x) over dp dim 0 {root = 4}", VALUE,
        "root 4 is no coordinate of axis dp");
    BAD("%x: f32[64@dp]", "%y = gather(%x) over dp dim 0", SHARDING, "must name its mesh");
    OK("%x: f32[64] partial(dp) on @m", "%y = reduce(%x) over dp {root = 1}",
       "f32[64] on @m{dp=1}");
    OK("%x: f32[64] partial(dp, tp) on @m", "%y = reduce(%x) over (dp, tp) {root = [1, 3]}",
       "f32[64] on @m{dp=1, tp=3}");
    BAD("%x: f32[64] on @m", "%y = reduce(%x) over dp", SHARDING, "not partial");
}

Test(ops_collectives, send_recv_permute_reshard) {
    OK("%x: f32[64@dp] on @m{pp=0}", "%y = send(%x) to @m{pp=1}", "f32[64@dp] on @m{pp=1}");
    OK("%x: f32[64] on @box.gpu[0]", "%y = send(%x) to @box.gpu[1]", "f32[64] on @box.gpu[1]");
    BAD("%x: f32[64@dp] on @m{pp=0}", "%y = send(%x) to @n{pp=1}", SHARDING,
        "axis tp is not the same");
    BAD("%x: f32[64@dp] on @m{pp=0}", "%y = send(%x) to @m{dp=1}", SHARDING, "use reshard");
    BAD("%x: f32[64@dp] on @m{pp=0}", "%y = send(%x) to @box.gpu[0]", SHARDING, "axis dp");
    BAD("%x: f32[64] on @box.gpu[0]", "%y = send(%x)", TYPE, "send is written");
    BAD("%x: f32[64] on @box.gpu[0]", "%y = send(%x) to (@box.gpu[1], @box.gpu[2])", TYPE,
        "send is written");
    BAD("%x: f32[64] on @box.gpu[0]", "%y = send(%x) to @box.gpu[1] tag 3", TYPE,
        "send is written");
    OK("%x: f32[64]", "send(%x) to 1 tag 7", "");
    BAD("%x: f32[64]", "%y = send(%x) to 1 tag 7", TYPE, "has no result");
    OK("%x: f32[64]", "%y = recv tag 7 from 0 : f32[8, 8]", "f32[8, 8]");
    BAD("%x: f32[64]", "%y = recv tag 7 from 0", TYPE, "recv is written");
    OK("%x: f32[64@dp] on @m", "%y = permute(%x) over dp {shift = 1}", "f32[64@dp] on @m");
    OK("%x: f32[64@dp] on @m", "%y = reshard(%x) : f32[64@tp] on @n{pp=1}",
       "f32[64@tp] on @n{pp=1}");
    OK("%x: f32[64] partial(dp) on @m", "%y = reshard(%x) : f32[64@tp] on @m", "f32[64@tp] on @m");
    BAD("%x: f32[64] on @m", "%y = reshard(%x) : f32[64] partial(dp) on @m", SHARDING,
        "is partial over dp, but the operand");
    BAD("%x: f32[64] on @m", "%y = reshard(%x) : f32[32] on @m", SHAPE, "differ in dtype or shape");
    BAD("%x: f32[64] on @m", "%y = reshard(%x) : bf16[64] on @m", SHAPE,
        "differ in dtype or shape");
    BAD("%x: f32[64] on @m", "%y = reshard(%x) : f32[64@(tp, tp)] on @m", SHARDING, "twice");
    BAD("%x: f32[64] on @m", "%y = reshard(%x)", TYPE, "the result type says the new sharding");
}

/* One operand a device: any number of devices. */
Test(ops_collectives, across) {
    const char *three = "%a: f32[6, 4] on @box.gpu[0], %b: f32[6, 4] on @box.gpu[1], "
                        "%c: f32[6, 4] on @box.gpu[2]";
    OK(three, "%x, %y, %z = all_reduce(%a, %b, %c) across",
       "f32[6, 4] on @box.gpu[0]; f32[6, 4] on @box.gpu[1]; f32[6, 4] on @box.gpu[2]");
    OK(three, "%x, %y, %z = all_gather(%a, %b, %c) across dim 1",
       "f32[6, 12] on @box.gpu[0]; f32[6, 12] on @box.gpu[1]; f32[6, 12] on @box.gpu[2]");
    OK(three, "%x, %y, %z = reduce_scatter(%a, %b, %c) across dim 0",
       "f32[2, 4] on @box.gpu[0]; f32[2, 4] on @box.gpu[1]; f32[2, 4] on @box.gpu[2]");
    BAD(three, "%x, %y, %z = reduce_scatter(%a, %b, %c) across dim 1", SHAPE,
        "3 devices do not divide");
    OK(three, "%x, %y, %z = all_to_all(%a, %b, %c) across dim 1 -> 0",
       "f32[2, 12] on @box.gpu[0]; f32[2, 12] on @box.gpu[1]; f32[2, 12] on @box.gpu[2]");
    OK(three, "%x, %y, %z = permute(%a, %b, %c) across",
       "f32[6, 4] on @box.gpu[0]; f32[6, 4] on @box.gpu[1]; f32[6, 4] on @box.gpu[2]");
    OK(three, "%x, %y = broadcast(%a) across to (@box.gpu[3], @box.gpu[4])",
       "f32[6, 4] on @box.gpu[3]; f32[6, 4] on @box.gpu[4]");
    OK(three, "%x, %y = scatter(%a) across dim 0 to (@box.gpu[3], @box.gpu[4])",
       "f32[3, 4] on @box.gpu[3]; f32[3, 4] on @box.gpu[4]");
    OK(three, "%x = gather(%a, %b, %c) across dim 0 to @box.gpu[3]", "f32[18, 4] on @box.gpu[3]");
    OK(three, "%x = reduce(%a, %b, %c) across to @box.gpu[0]", "f32[6, 4] on @box.gpu[0]");
    BAD(three, "%x, %y, %z = all_reduce(%a, %b, %a) across", SHARDING, "are on one device");
    BAD(three, "%x = gather(%a, %b, %c) across dim 0", TYPE, "such as 'to @box.gpu[0]'");
    BAD(three, "%x = broadcast(%a) across to (@box.gpu[3], @box.gpu[4])", TYPE, "2 results belong");
    BAD("%a: f32[6] on @box.gpu[0], %b: f32[8] on @box.gpu[1]",
        "%x, %y = all_reduce(%a, %b) across", SHAPE, "differ in dtype or shape");
    OK("%a: f32[6] on @box.gpu[0], %b: f32[8] on @box.gpu[1]",
       "%x, %y = all_gather(%a, %b) across dim 0",
       "f32[14] on @box.gpu[0]; f32[14] on @box.gpu[1]");
}

/* One operand a slice: types stay as they are, each on its own place. */
Test(ops_collectives, across_slices) {
    const char *two = "%a: f32[16@dp, 4] partial(tp) on @m{pp=0}, "
                      "%b: f32[16@dp, 4] partial(tp) on @m{pp=3}";
    OK(two, "%x, %y = all_reduce(%a, %b) across",
       "f32[16@dp, 4] partial(tp) on @m{pp=0}; f32[16@dp, 4] partial(tp) on @m{pp=3}");
    OK(two, "%x, %y = all_gather(%a, %b) across dim 1",
       "f32[16@dp, 8] partial(tp) on @m{pp=0}; f32[16@dp, 8] partial(tp) on @m{pp=3}");
    OK(two, "%x, %y = reduce_scatter(%a, %b) across dim 1",
       "f32[16@dp, 2] partial(tp) on @m{pp=0}; f32[16@dp, 2] partial(tp) on @m{pp=3}");
    OK(two, "%x, %y = permute(%a, %b) across",
       "f32[16@dp, 4] partial(tp) on @m{pp=0}; f32[16@dp, 4] partial(tp) on @m{pp=3}");
    OK(two, "%x = reduce(%a, %b) across to @m{pp=0}", "f32[16@dp, 4] partial(tp) on @m{pp=0}");
    OK(two, "%x, %y = broadcast(%a) across to (@m{pp=1}, @m{pp=2})",
       "f32[16@dp, 4] partial(tp) on @m{pp=1}; f32[16@dp, 4] partial(tp) on @m{pp=2}");
    OK("%a: f32[16@dp[4, 4, 4, 4]] on @m{pp=0, tp=1}, %b: f32[16@dp[4, 4, 4, 4]] on @n{pp=1, tp=2}",
       "%x, %y = all_reduce(%a, %b) across",
       "f32[16@dp[4,4,4,4]] on @m{pp=0, tp=1}; f32[16@dp[4,4,4,4]] on @n{pp=1, tp=2}");
    BAD(two, "%x, %y = all_gather(%a, %b) across dim 0", SHARDING, "dim 0 of operand 0");
    BAD(two, "%x, %y = reduce_scatter(%a, %b) across dim 0", SHARDING, "is split over dp");
    BAD(two, "%x, %y = all_reduce(%a, %b) across {op = max}", SHARDING,
        "is a term of a sum, not of a max");
    BAD("%a: f32[8] partial(dp, max) on @m{pp=0}, %b: f32[8] partial(dp, max) on @m{pp=1}",
        "%x, %y = all_reduce(%a, %b) across", SHARDING, "is a term of a max, not of a sum");
    BAD("%a: f32[8@dp] on @m{pp=0}, %b: f32[8@tp] on @m{pp=1}",
        "%x, %y = all_reduce(%a, %b) across", SHARDING,
        "operands 0 (f32[8@dp] on @m{pp=0}) and 1 (f32[8@tp] on @m{pp=1}) must be split");
    BAD("%a: f32[8] partial(dp) on @m{pp=0}, %b: f32[8] on @m{pp=1}",
        "%x, %y = all_reduce(%a, %b) across", SHARDING, "and partial, alike");
    BAD("%a: f32[8] on @m{pp=0}, %b: f32[9] on @m{pp=1}", "%x, %y = all_reduce(%a, %b) across",
        SHAPE, "differ in dtype or shape");
    BAD("%a: f32[8] on @m{pp=0}, %b: bf16[8] on @m{pp=1}", "%x, %y = all_reduce(%a, %b) across",
        SHAPE, "differ in dtype or shape");
    BAD("%a: f32[8] on @m{pp=0}, %b: f32[8] on @m{pp=0}", "%x, %y = all_reduce(%a, %b) across",
        SHARDING, "are on one device or slice");
}

/* The i-th devices meet: their slices have the same axes, in one order. */
Test(ops_collectives, across_slices_of_one_shape) {
    BAD("%a: f32[8] on @m{pp=0}, %b: f32[8] on @n{pp=1}", "%x, %y = all_reduce(%a, %b) across",
        SHARDING, "is on a slice [dp = 4, tp = 8], but @n{pp=1} is a slice [dp = 4, tp = 4]");
    BAD("%a: f32[8] on @m{pp=0}, %b: f32[8] on @m{dp=0}", "%x, %y = all_reduce(%a, %b) across",
        SHARDING, "[dp = 4, tp = 8], but @m{dp=0} is a slice [pp = 4, tp = 8]");
    BAD("%a: f32[8] on @m{pp=0, dp=0}, %b: f32[8] on @box.gpu[9]",
        "%x, %y = all_reduce(%a, %b) across", SHARDING, "but @box.gpu[9] is a slice []");
    BAD("%a: f32[8] on @m{pp=0}, %b: f32[8] on @m{pp=1}",
        "%x = reduce(%a, %b) across to @box.gpu[0]", SHARDING, "@box.gpu[0] is a slice []");
    BAD("%a: f32[8] on @m{pp=0}", "%x, %y = broadcast(%a) across to (@m{pp=1}, @n{pp=2})", SHARDING,
        "@n{pp=2} is a slice [dp = 4, tp = 4]");
    OK("%a: f32[8] on @m{pp=0, dp=0, tp=1}, %b: f32[8] on @box.gpu[9]",
       "%x, %y = all_reduce(%a, %b) across",
       "f32[8] on @m{pp=0, dp=0, tp=1}; f32[8] on @box.gpu[9]");
}

/* Per-rank programs: local shapes, the group's size is the number of ranks. */
Test(ops_collectives, group) {
    OK("%x: f32[8, 4]", "%y = all_reduce(%x) group (0, 1, 2, 3)", "f32[8, 4]");
    OK("%x: f32[8, 4]", "%y = all_gather(%x) group (0, 1, 2, 3) dim 1", "f32[8, 16]");
    OK("%x: f32[8, 4]", "%y = reduce_scatter(%x) group (0, 1, 2, 3) dim 0", "f32[2, 4]");
    OK("%x: f32[8, 4]", "%y = all_to_all(%x) group (0, 1, 2, 3) dim 1 -> 0", "f32[2, 16]");
    OK("%x: f32[8, 4]", "%y = broadcast(%x) group (0, 1) {root = 1}", "f32[8, 4]");
    OK("%x: f32[8, 4]", "%y = gather(%x) group (0, 1) dim 0", "f32[16, 4]");
    OK("%x: f32[8, 4]", "%y = scatter(%x) group (0, 1) dim 0", "f32[4, 4]");
    OK("%x: f32[8, 4]", "%y = reduce(%x) group (0, 1)", "f32[8, 4]");
    BAD("%x: f32[6, 4]", "%y = reduce_scatter(%x) group (0, 1, 2, 3) dim 0", SHAPE,
        "do not divide");
    BAD("%x: f32[8, 4]", "%y = broadcast(%x) group (0, 1) {root = 2}", VALUE, "no member");
}

/* Inside a local region over cp (2 devices): shard shapes. */
static void manual(const char *args, const char *line, unsigned mode, const char *want) {
    op_text t;
    op_text_init(&t, NULL, args, line, mode | OP_TEXT_MANUAL_CP);
    const char *got = t.err.code ? t.err.message : t.result.text;
    cr_expect(strstr(got, want), "%s: got %s, want %s", line, got, want);
    op_text_deinit(&t);
}

Test(ops_collectives, manual) {
    manual("%x: f32[8, 4] on @m", "%y = all_reduce(%x) over cp", OP_TEXT_BOUND, "f32[8, 4] on @m");
    manual("%x: f32[8, 4] on @m", "%y = all_gather(%x) over cp dim 0", OP_TEXT_BOUND,
           "f32[16, 4] on @m");
    manual("%x: f32[8, 4] on @m", "%y = reduce_scatter(%x) over cp dim 0", OP_TEXT_BOUND,
           "f32[4, 4] on @m");
    manual("%x: f32[8, 4] on @m", "%y = all_to_all(%x) over cp dim 0 -> 1", OP_TEXT_BOUND,
           "f32[16, 2] on @m");
    manual("%x: f32[8, 4] on @m", "%y = permute(%x) over cp", OP_TEXT_BOUND, "f32[8, 4] on @m");
    manual("%x: f32[8, 4] on @m", "%y = all_gather(%x) over cp dim 0 : f32[16, 4] on @m",
           OP_TEXT_SYMBOLIC, "f32[16, 4] on @m");
    manual("%x: f32[8, 4] on @m", "%y = all_gather(%x) over cp dim 0", OP_TEXT_SYMBOLIC,
           "write the result type");
    manual("%x: f32[8, 4] on @m", "%y = all_reduce(%x) over (cp, dp)", OP_TEXT_BOUND,
           "write two collectives");
    manual("%x: f32[8, 4] partial(dp) on @m", "%y = all_reduce(%x) over dp", OP_TEXT_BOUND,
           "f32[8, 4] on @m");
}
