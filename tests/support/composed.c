#include "tests/support/composed.h"

#include <criterion/criterion.h>

void composed_compare(const sim_case *c, const ds_composed *x, const char *what) {
    const ds_result *r = c->result;
    cr_assert_eq(x->step_ps, r->run.step_ps, "%s: step %lld, not %lld", what, (long long)x->step_ps,
                 (long long)r->run.step_ps);
    cr_assert_eq(x->peak_bytes, r->peak_bytes, "%s: peak %lld, not %lld", what,
                 (long long)x->peak_bytes, (long long)r->peak_bytes);
    cr_assert_eq(x->n_classes, r->plan->n_classes, "%s", what);
    cr_assert_eq(x->critical, r->critical, "%s", what);
    cr_assert_eq(x->fullest, r->fullest, "%s", what);
    cr_assert_eq(x->fits, r->fits, "%s", what);
    cr_assert_eq(x->samples, r->plan->samples, "%s", what);
    cr_assert_float_eq(x->mfu, r->mfu, 1e-12 * r->mfu, "%s", what);
    cr_assert_float_eq(x->bubble_fraction, r->bubble_fraction, 1e-12, "%s", what);
    cr_assert_float_eq(x->throughput_per_s, r->throughput_per_s, 1e-9 * r->throughput_per_s);
    for (uint32_t k = 0; k < x->n_classes; k++) {
        const ds_composed_class *a = &x->classes[k];
        const ds_account *b = &r->accounts[k];
        cr_assert_eq(a->peak_bytes, r->mem.classes[k].peak_bytes, "%s: class %u", what, k);
        cr_assert_eq(a->end_ps, b->end_ps, "%s: class %u", what, k);
        cr_assert_eq(a->compute_ps, b->compute_ps, "%s: class %u", what, k);
        cr_assert_eq(a->exposed_comm_ps, b->exposed_comm_ps, "%s: class %u", what, k);
        cr_assert_eq(a->idle_ps, b->idle_ps, "%s: class %u", what, k);
    }
}
