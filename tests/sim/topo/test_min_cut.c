/* Minimum cuts by hand. */
#include "sim/topo/min_cut.h"

#include <criterion/criterion.h>

enum { S = DS_MIN_CUT_SOURCE, T = DS_MIN_CUT_SINK, A = DS_MIN_CUT_FIRST_OTHER, B, C };

static ds_status cut(const ds_min_cut_arc *arc, uint32_t n_arcs, bool *is_behind) {
    ds_error err;
    return ds_min_cut(arc, n_arcs, 5, is_behind, &err);
}

/* s -3-> a -2-> b -3-> t: the middle arc. */
Test(min_cut, chain_is_cut_at_its_least_arc) {
    const ds_min_cut_arc arc[] = {{S, A, 3}, {A, B, 2}, {B, T, 3}};
    bool behind[5];
    cr_assert_eq(cut(arc, 3, behind), DS_OK);
    cr_expect(!behind[S] && !behind[A] && behind[B] && behind[T] && !behind[C]);
}

/* Three arcs of 2: each alone is a minimum cut, and the sink alone is the least set. */
Test(min_cut, least_set_of_equal_cuts) {
    const ds_min_cut_arc arc[] = {{S, A, 2}, {A, B, 2}, {B, T, 2}};
    bool behind[5];
    cr_assert_eq(cut(arc, 3, behind), DS_OK);
    cr_expect(!behind[S] && !behind[A] && !behind[B] && behind[T]);
}

/* Sums of more than 2^53 units are refused. */
Test(min_cut, exact_or_refused) {
    const int64_t most = INT64_C(1) << 53;
    ds_min_cut_arc arc[] = {{S, A, DS_MIN_CUT_NEVER}, {A, B, DS_MIN_CUT_NEVER}, {B, T, most}};
    bool behind[5];
    cr_assert_eq(cut(arc, 3, behind), DS_OK);
    cr_expect(!behind[A] && !behind[B] && behind[T]);
    arc[0].capacity = most - 1; /* a difference of 1 in 2^53 */
    cr_assert_eq(cut(arc, 3, behind), DS_OK);
    cr_expect(behind[A] && behind[B] && behind[T]);
    arc[2].capacity = most + 1;
    cr_expect_eq(cut(arc, 3, behind), DS_ERR_LIMIT);
    arc[0].capacity = arc[2].capacity - arc[2].capacity % 1024 + 1024; /* in units of 1024 */
    arc[2].capacity = 2 * arc[0].capacity;
    cr_assert_eq(cut(arc, 3, behind), DS_OK);
    cr_expect(behind[A] && behind[B] && behind[T]);
    cr_expect_eq(cut(NULL, 0, behind), DS_OK);
    cr_expect(!behind[S] && !behind[A] && behind[T]);
}
