/* Lower bounds are below what any completion comes to. */
#include "search/bounds.h"
#include "tests/support/spaces.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct tally {
    int pairs, leaves, refused;
    double time, memory; /* sums of bound over value, of whole candidates */
} tally;

static void compare(const ds_bound_region *region, const ds_outcome *o, const char *name,
                    uint32_t depth, bool whole, tally *t) {
    int64_t step = ds_bound_step_ps(region), peak = ds_bound_peak_bytes(region);
    cr_expect_leq(step, o->step_ps, "%s, depth %u: %lld, not %lld ps", name, depth,
                  (long long)o->step_ps, (long long)step);
    cr_expect_leq(peak, o->peak_bytes, "%s, depth %u: %lld, not %lld bytes", name, depth,
                  (long long)o->peak_bytes, (long long)peak);
    t->pairs++;
    if (!whole) return;
    t->leaves++;
    t->time += (double)step / (double)o->step_ps;
    t->memory += (double)peak / (double)o->peak_bytes;
}

static void describe(const ds_space *space, const ds_candidate *candidate, ds_buf *out) {
    for (uint32_t i = 0; i < ds_space_n_dims(space); i++) {
        ds_buf_printf(out, " %s=", ds_space_dim_name(space, i));
        ds_space_put_value(space, candidate, i, out);
    }
}

/* Random candidates, and all regions that they are in. */
static void check_space(sweep_case *c, const char *name, uint64_t n, tally *t) {
    ds_space *space, *other;
    ds_bounds *bounds;
    ds_eval *eval;
    const char *why;
    cr_assert_eq(ds_space_new(&c->binding, c->settings, c->n_settings, &space, &c->err), DS_OK);
    cr_assert_eq(ds_space_new(&c->binding, c->settings, c->n_settings, &other, &c->err), DS_OK);
    ds_eval_source source = {.path = c->path,
                             .text = c->text,
                             .text_n = c->text ? strlen(c->text) : 0,
                             .space = space,
                             .profiles = c->profiles,
                             .content = ds_eval_content(c->unit, c->profiles)};
    cr_assert_eq(ds_bounds_new(&source, other, &bounds, &why, &c->err), DS_OK);
    cr_assert_null(why);
    cr_assert_eq(ds_eval_new_simulation(&source, &eval, &c->err), DS_OK, "%s", c->err.message);
    ds_arena arena;
    ds_arena_init(&arena);
    ds_candidate candidate = ds_candidate_new(space, &arena);
    ds_outcome outcome = {0};
    for (uint64_t i = 0; i < n; i++) {
        bool found;
        ds_buf text = {0};
        cr_assert_eq(ds_space_draw(space, 7, i, &candidate, &found, &c->err), DS_OK);
        if (!found) break;
        eval->run(eval, &candidate, &outcome);
        ds_buf_put(&text, name);
        describe(space, &candidate, &text);
        uint32_t n_dims = ds_space_n_dims(space);
        for (uint32_t d = 0; d <= n_dims; d++) {
            ds_bound_region region;
            cr_assert_eq(ds_bounds_region(bounds, candidate.at, d, &region, &c->err), DS_OK);
            if (ds_bound_is_illegal(&region)) {
                cr_expect_eq(outcome.verdict, DS_VERDICT_ILLEGAL, "%s, depth %u", text.text, d);
                t->refused++;
            } else if (ds_outcome_is_simulated(&outcome)) {
                compare(&region, &outcome, text.text, d, d == n_dims, t);
            }
        }
        ds_buf_deinit(&text);
    }
    ds_outcome_deinit(&outcome);
    ds_arena_deinit(&arena);
    eval->free(eval);
    ds_bounds_free(bounds);
    ds_space_free(other);
    ds_space_free(space);
}

Test(bounds, hold_in_random_spaces) {
    tally t = {0};
    const char *many = getenv("DISTSIM_TEST_SPACES");
    int n = many ? atoi(many) : 40;
    for (int i = 0; i < n; i++) {
        sweep_case c;
        char name[32];
        random_space((uint64_t)i, 20, 5000, &c);
        snprintf(name, sizeof name, "space %d", i);
        check_space(&c, name, 12, &t);
        sweep_close(&c);
    }
    printf("%d regions with a candidate each, %d of which are illegal; of %d candidates the bounds "
           "are %.2f of the time, %.2f of the memory\n",
           t.pairs + t.refused, t.refused, t.leaves, t.time / t.leaves, t.memory / t.leaves);
    cr_expect_gt(t.refused, n);
    cr_expect_gt(t.pairs, n * 30);
    /* bounds that say nothing would hold, too */
    cr_expect_gt(t.time / t.leaves, 0.4);
    cr_expect_gt(t.memory / t.leaves, 0.3);
}

Test(bounds, hold_in_distirs_grid) {
    tally t = {0};
    sweep_case c;
    sweep_open_file(&c, DS_SOURCE_DIR "/scenarios/distir-grid.dir", NULL);
    check_space(&c, "grid", 60, &t);
    sweep_close(&c);
    cr_expect_gt(t.time / t.leaves, 0.5);
}
