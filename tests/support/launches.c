#include "tests/support/launches.h"

#include "ir/ops/ops.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

typedef struct walk {
    const step_case *c;
    const char *over;
    launches sum;
} walk;

static bool is_over(const ds_op *op, const char *over) {
    char text[128] = "";
    if (!over) return true;
    for (uint32_t i = 0; i < op->n_over; i++) {
        size_t n = strlen(text);
        snprintf(text + n, sizeof text - n, "%s%s", i ? "," : "", op->over[i]);
    }
    return strcmp(text, over) == 0;
}

static void add(walk *w, const ds_op *op, int64_t times) {
    int64_t *count = &w->sum.other;
    switch (op->code) {
    case DS_OP_ALL_REDUCE:
        count = &w->sum.all_reduce;
        break;
    case DS_OP_ALL_GATHER:
        count = &w->sum.all_gather;
        break;
    case DS_OP_REDUCE_SCATTER:
        count = &w->sum.reduce_scatter;
        break;
    case DS_OP_ALL_TO_ALL:
        count = &w->sum.all_to_all;
        break;
    case DS_OP_PERMUTE:
        count = &w->sum.permute;
        break;
    case DS_OP_RESHARD: /* shard cuts parts out of what every device holds, and no more */
        return;
    default:
        if (!(ds_op_desc_of(op->code)->flags & DS_OPF_COLLECTIVE)) return;
    }
    if (is_over(op, w->over)) *count += times;
}

static int64_t turns_of(const walk *w, const ds_op *loop) {
    ds_env env = ds_binding_env(&w->c->step->binding, NULL);
    int64_t lo = 0, hi = 0;
    cr_assert_eq(ds_expr_eval_int(&env, loop->lo, loop->loc, &lo, NULL), DS_OK);
    cr_assert_eq(ds_expr_eval_int(&env, loop->hi, loop->loc, &hi, NULL), DS_OK);
    return hi - lo;
}

static void count(walk *w, const ds_block *block, int64_t times) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        if (op->code == DS_OP_FOR)
            count(w, op->body, times * turns_of(w, op));
        else if (op->body)
            count(w, op->body, times);
        else if (op->code == DS_OP_CALL)
            count(w, &op->callee->body, times);
        else if (op->code >= DS_OP_FIRST_TABLE_OP)
            add(w, op, times);
    }
}

launches launches_of(const step_case *c, const char *over) {
    walk w = {.c = c, .over = over};
    cr_assert_eq(c->status, DS_OK, "%s", c->err.message);
    count(&w, &c->step->func->body, 1);
    return w.sum;
}

launches launches_in(const char *text, const char *settings, const char *over) {
    step_case c;
    step_make(&c, text, settings, DS_PASS_SHARD);
    cr_assert_eq(c.status, DS_OK, "%s: %s", settings, c.err.message);
    launches sum = launches_of(&c, over);
    step_free(&c);
    return sum;
}

launches launches_a_layer(const char *text, const char *settings, const char *over) {
    char more[256], less[256];
    snprintf(more, sizeof more, "layers=3 %s", settings);
    snprintf(less, sizeof less, "layers=2 %s", settings);
    return launches_minus(launches_in(text, more, over), launches_in(text, less, over));
}

launches launches_minus(launches a, launches b) {
    return (launches){a.all_reduce - b.all_reduce,
                      a.all_gather - b.all_gather,
                      a.reduce_scatter - b.reduce_scatter,
                      a.all_to_all - b.all_to_all,
                      a.permute - b.permute,
                      a.other - b.other};
}
