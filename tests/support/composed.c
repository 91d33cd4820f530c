#include "tests/support/composed.h"

#include <criterion/criterion.h>

void composed_compare_metrics(const ds_metrics *x, const ds_metrics *r, const char *what) {
    for (int i = 0; i < DS_METRIC_COUNT; i++) {
        const ds_metric *metric = ds_metric_at((ds_metric_id)i);
        if (!metric->column && !metric->sweep) continue;
        double is = ds_metric_measure(x, (ds_metric_id)i),
               of = ds_metric_measure(r, (ds_metric_id)i);
        cr_assert(is == of, "%s: %s is %.17g, not %.17g", what,
                  metric->column ? metric->column : metric->sweep, is, of);
    }
}

void composed_compare(const sim_case *c, const ds_composed *x, const char *what) {
    const ds_result *r = c->result;
    composed_compare_metrics(&x->metrics, &r->metrics, what);
    cr_assert_eq(x->n_classes, r->plan->n_classes, "%s", what);
    cr_assert_eq(x->critical, r->critical, "%s", what);
    cr_assert_eq(x->fullest, r->fullest, "%s", what);
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
