/* Comparisons of random runs, as their pages have them: the bars of the waterfall and memory by
 * category add up exactly to what both runs say of themselves, to the picosecond and to the byte. */
#include "tests/support/cases.h"
#include "tests/support/generate/random_program.h"
#include "tests/support/sim.h"

#include "ir/base/rng.h"
#include "sim/report/analysis.h"
#include "tools/report/page.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

/* ---- random runs ---- */

/* A training step of scenarios/models/mlp.dir: its sizes, strategy and optimizer. */
static void training(ds_rng *rng, ds_buf *text) {
    uint32_t pp = 1u << ds_rng_below(rng, 3), zeros = pp > 1 ? 2 : 4;
    uint32_t tp = pp < 4 ? 1u << ds_rng_below(rng, 3) : 1;
    ds_buf_printf(text,
                  "dir 1\nimport \"topologies/dgx-a100.dir\"\n"
                  "import \"models/mlp.dir\" as m with layers = %u, width = %u, batch = %u\n"
                  "scenario {\n  model = @m.mlp\n  on = @dgx_a100\n"
                  "  train { loss = mse, optimizer = %s }\n",
                  4 * (1 + (uint32_t)ds_rng_below(rng, 3)), 128u << ds_rng_below(rng, 4),
                  512u << ds_rng_below(rng, 4), ds_rng_below(rng, 2) ? "adam" : "sgd");
    ds_buf_printf(
        text, "  strategy { dp = %u, pp = %u, tp = %u, microbatches = %u, zero = %u }\n}\n",
        8 / pp / tp, pp, tp, pp << ds_rng_below(rng, 3), (uint32_t)ds_rng_below(rng, zeros));
}

/* A training step, a program, or one on a cluster; sizes that do not divide are drawn again. */
static void run_random(ds_rng *rng, sim_case *c) {
    do {
        ds_buf text = {0};
        uint64_t kind = ds_rng_below(rng, 3), seed = ds_rng_below(rng, 1000000);
        if (kind == 0)
            training(rng, &text);
        else if (kind == 1)
            random_program(seed, &text);
        else
            random_cluster(seed | 1, &text); /* seeds that 16 divides have 512 devices */
        sim_run_text(c, text.text, NULL, false);
        cr_assert(c->status == DS_OK || (kind && c->status == DS_ERR_SHAPE), "%s\n%s",
                  c->err.message, text.text);
        ds_buf_deinit(&text);
        if (c->status) sim_free(c);
    } while (!c->result);
}

/* ---- their page ---- */

/* The data of a page of both; with two or more settings of one knob comparisons have another form. */
static json_t *page_of(const ds_result *const results[2], bool columns) {
    static const char *const names[] = {"a", "b"};
    ds_buf text = {0}, page = {0};
    ds_comparison comparison;
    ds_compare(results[0], results[1], &comparison);
    if (columns)
        ds_report_columns_json(results, names, 2, &text);
    else
        ds_report_comparison_json(&comparison, &text);
    report_compare_page(results, names, 2, text.text, &page);
    const char *begin = strstr(page.text, "id=\"data\">") + strlen("id=\"data\">");
    json_t *data = json_loadb(begin, (size_t)(strstr(begin, "</script>") - begin), 0, NULL);
    cr_assert(data);
    ds_comparison_deinit(&comparison);
    ds_buf_deinit(&text);
    ds_buf_deinit(&page);
    return data;
}

/* Exact in JavaScript, whose numbers hold integers below 2^53. */
static int64_t number(const json_t *value) {
    cr_assert(json_is_integer(value));
    int64_t n = json_integer_value(value);
    cr_assert(n < INT64_C(1) << 53 && n > -(INT64_C(1) << 53));
    return n;
}

/* Of run 0 or 1 in a row of the comparison: {"a_ps", "b_ps", …} or {"ps": [, ]}. */
static int64_t of_row(json_t *row, const char *unit, int run) {
    json_t *all = json_object_get(row, unit);
    char key[32];
    snprintf(key, sizeof key, "%c_%s", 'a' + run, unit);
    return number(all ? json_array_get(all, (size_t)run) : json_object_get(row, key));
}

static int64_t of_run(json_t *data, int run, const char *key) {
    json_t *page = json_array_get(json_object_get(data, "runs"), (size_t)run);
    return number(json_object_get(json_object_get(page, "run"), key));
}

/* From run 0's figure, bar by bar, to run 1's; returns how many bars differ. */
static uint32_t check_bars(json_t *data, const char *list, const char *unit, const char *figure,
                           uint32_t pair) {
    json_t *rows = json_object_get(json_object_get(data, "comparison"), list), *row;
    int64_t at = of_run(data, 0, figure), whole[2] = {0, 0};
    uint32_t bars = 0;
    size_t i;
    json_array_foreach(rows, i, row) {
        char key[32];
        int64_t a = of_row(row, unit, 0), b = of_row(row, unit, 1);
        snprintf(key, sizeof key, "difference_%s", unit);
        json_t *difference = json_object_get(row, key);
        if (difference) cr_assert_eq(number(difference), b - a, "pair %u, %s %zu", pair, list, i);
        cr_assert(a >= 0 && b >= 0, "pair %u, %s %zu", pair, list, i);
        at += b - a;
        whole[0] += a;
        whole[1] += b;
        bars += a != b;
    }
    cr_assert_eq(at, of_run(data, 1, figure), "pair %u: %s off by %lld", pair, list,
                 (long long)(at - of_run(data, 1, figure)));
    for (int run = 0; run < 2; run++)
        cr_assert_eq(whole[run], of_run(data, run, figure), "pair %u: %s of run %d", pair, list,
                     run);
    return bars;
}

Test(waterfall, bars_add_up_for_random_pairs) {
    uint32_t n = FEW_CASES ? 10 : 200, bars = 0, categories = 0;
    ds_rng rng = {24};
    for (uint32_t pair = 0; pair < n; pair++) {
        sim_case a = {0}, b = {0};
        run_random(&rng, &a);
        run_random(&rng, &b);
        json_t *data = page_of((const ds_result *const[]){a.result, b.result}, pair % 2);
        bars += check_bars(data, "time", "ps", "step_time_ps", pair);
        categories += check_bars(data, "memory", "bytes", "peak_memory_bytes", pair);
        json_decref(data);
        sim_free(&a);
        sim_free(&b);
    }
    printf("%u pairs: %u bars, %u categories that differ\n", n, bars, categories);
    cr_expect_geq(bars, 3 * n, "runs that differ");
    cr_expect_geq(categories, n);
}
