/* Memory first: what is told without simulation is what simulation tells. */
#include "search/driver/reject.h"
#include "tests/support/cases.h"
#include "tests/support/sweep.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A GPT whose layers, states or activations are too much for most of its strategies; dp = 5 divides
 * no batch. %s: options of the sweep. */
static const char space[] =
    "dir 1\n"
    "param dp = 1, tp = 1, pp = 1, mb = 1, layers = 8\n"
    "import \"models/gpt.dir\" as gpt with layers = layers, hidden = 4096, heads = 32, seq = 2048, "
    "batch = 48\n"
    "topology @box { device gpu[8] : \"A100-SXM4-80GB\"\n"
    "  switch s\n  link gpu[i] -- s : 300 GB/s, 1 us for i in 0..8 }\n"
    "scenario { model = @gpt.gpt, on = @box, train { optimizer = adam, dtype = bf16 }\n"
    "  strategy { dp = dp, tp = tp, pp = pp, microbatches = mb } }\n"
    "sweep { layers in [8, 48], tp in [1, 4], pp in [1, 2], dp in [1, 5] where dp * tp * pp <= "
    "world\n"
    "  mb in [1, 16], recompute in [none, full], zero in [0, 1] where dp > 1 or zero == 0\n"
    "  %s minimize step_time subject to fits }\n";

typedef struct table {
    char *text;
    DS_VEC(char *) lines; /* without the header */
} table;

static table explore(const char *options, const char *method, uint32_t workers, bool resume) {
    char text[2000], folder[64], path[100];
    sweep_case c;
    ds_sweep_result result;
    table t = {0};
    snprintf(text, sizeof text, space, options);
    sweep_open_text(&c, text, NULL);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    sweep_folder(folder);
    snprintf(path, sizeof path, "%s/rows.csv", folder);
    ds_sweep_options how = {.path = path, .method = method, .n_workers = workers, .max_rows = 60};
    if (resume) { /* of a file with eleven rows */
        how.max_rows = 11;
        sweep_run(&c, &how, &result, DS_OK);
        ds_sweep_result_deinit(&result);
        how.max_rows = 60;
        how.resume = true;
    }
    sweep_run(&c, &how, &result, DS_OK);
    t.text = sweep_read(path, NULL);
    for (char *at = strchr(t.text, '\n') + 1; *at; at = strchr(at, '\0') + 1) {
        char *end = strchr(at, '\n');
        if (end) *end = '\0';
        DS_HPUSH(&t.lines, at);
    }
    ds_sweep_result_deinit(&result);
    sweep_remove_folder(folder);
    sweep_close(&c);
    return t;
}

static void free_table(table *t) {
    free(t->text);
    free(t->lines.at);
}

enum { MAX_CELLS = 64, PEAK = 9, FIRST_RESULT = 17 };

/* Of a copy, since texts lose their quotes. */
static uint32_t cells_of(const char *line, char *copy, char **cells) {
    strcpy(copy, line);
    return sweep_split(copy, cells, MAX_CELLS);
}

/* The last columns: status, reason, hash, … */
enum { STATUS = 7, REASON = 6, HASH = 5, SWEEP = 3 };

/* Rows that were simulated are the same; of the others the bound is no more than the peak. */
static void compare(const char *method) {
    table all = explore("", method, 2, false);
    table first = explore("memory_first = on\n ", method, 2, false);
    int told = 0;
    cr_assert_eq(all.lines.n, first.lines.n);
    for (uint32_t i = 0; i < all.lines.n; i++) {
        char a[2000], b[2000], *x[MAX_CELLS], *y[MAX_CELLS];
        uint32_t n = cells_of(all.lines.at[i], a, x);
        cr_assert_eq(cells_of(first.lines.at[i], b, y), n);
        const char *status = y[n - STATUS], *before = x[n - STATUS], *reason = y[n - REASON];
        long long needs, has;
        for (uint32_t k = 10; k < FIRST_RESULT; k++) cr_expect_str_eq(x[k], y[k]);
        cr_expect_str_eq(x[n - HASH], y[n - HASH], "row %u", i);
        if (sscanf(reason, "needs at least %lld bytes, device has %lld", &needs, &has) != 2) {
            for (uint32_t k = 0; k < n - SWEEP; k++) cr_expect_str_eq(x[k], y[k], "row %u", i);
            continue;
        }
        told++;
        cr_expect_str_eq(status, "does_not_fit");
        cr_expect_str_eq(y[PEAK], "-1");
        cr_expect_str_empty(y[FIRST_RESULT]);
        cr_expect_eq(has, INT64_C(80) << 30);
        cr_expect_gt(needs, has);
        bool illegal = strcmp(before, "illegal") == 0;
        cr_expect(illegal || strcmp(before, "does_not_fit") == 0, "row %u fits", i);
        if (!illegal) cr_expect_leq(needs, atoll(x[PEAK]));
    }
    cr_expect_geq(told, 8, "%d of %u", told, all.lines.n);
    free_table(&all);
    free_table(&first);
}

Test(reject, grid_tells_the_truth) {
    compare("grid");
}

Test(reject, random_tells_the_truth) {
    if (FEW_CASES) cr_skip_test("as grid");
    compare("random");
}

Test(reject, rows_do_not_depend_on_workers_or_resuming) {
    if (FEW_CASES) cr_skip_test("the same grid three times more");
    table one = explore("memory_first = on\n ", "grid", 1, false);
    table two = explore("memory_first = on\n ", "grid", 2, false);
    table resumed = explore("memory_first = on\n ", "grid", 2, true);
    cr_assert_eq(one.lines.n, two.lines.n);
    cr_assert_eq(one.lines.n, resumed.lines.n);
    for (uint32_t i = 0; i < one.lines.n; i++) {
        cr_expect_str_eq(one.lines.at[i], two.lines.at[i]);
        cr_expect_str_eq(one.lines.at[i], resumed.lines.at[i]);
    }
    free_table(&one);
    free_table(&two);
    free_table(&resumed);
}

static void refuse(const char *options, const char *message) {
    char text[2000];
    sweep_case c;
    snprintf(text, sizeof text, space, options);
    sweep_open_text(&c, text, NULL);
    cr_expect_neq(c.status, DS_OK);
    cr_expect_not_null(strstr(c.err.message, message), "%s", c.err.message);
    sweep_close(&c);
}

Test(reject, options_are_known_ones) {
    refuse("memory_last = on\n ", "a sweep has no option 'memory_last'; there is memory_first");
    refuse("memory_first = maybe\n ", "off");
    refuse("memory_first = on, memory_first = off\n ", "'memory_first' is said already");
}
