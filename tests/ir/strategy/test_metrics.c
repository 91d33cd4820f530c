/* The table of results: names that lead to one result each, and the texts of every kind, written and
 * read back. */
#define _GNU_SOURCE
#include "ir/strategy/metrics.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *text_of(const ds_metric *metric, int which) {
    const char *const texts[] = {metric->json, metric->column, metric->sweep};
    return texts[which];
}

Test(metrics, a_name_is_one_result) {
    for (int i = 0; i < DS_METRIC_COUNT; i++) {
        const ds_metric *a = ds_metric_at((ds_metric_id)i);
        cr_expect(a->json || a->column || a->sweep, "result %d is shown nowhere", i);
        cr_expect(a->doc && *a->doc, "result %d has no sentence", i);
        cr_expect(!a->title || a->column, "%s has a heading and no column", a->title);
        for (int k = 0; k < i; k++)
            for (int which = 0; which < 3; which++) {
                const char *x = text_of(a, which),
                           *y = text_of(ds_metric_at((ds_metric_id)k), which);
                cr_expect(!x || !y || strcmp(x, y) != 0, "%s is two results", x);
            }
    }
    cr_expect_eq(ds_metric_by_name("step_time"), DS_METRIC_step_time);
    cr_expect_eq(ds_metric_by_column("latency"), DS_METRIC_step_time);
    cr_expect_eq(ds_metric_by_column("step_time"), DS_METRIC_COUNT);
    cr_expect_str_eq(ds_metric_column(DS_METRIC_memory), "peak_memory");
    cr_expect(!ds_metric_is_objective(DS_METRIC_fits) && !ds_metric_is_objective(DS_METRIC_COUNT));
}

/* A cell, what expressions see, and what people read, of one result of each kind. */
static void expect(ds_metrics m, ds_metric_id id, const char *cell, double measure,
                   const char *people) {
    ds_buf text = {0}, read = {0}, unused = {0};
    ds_metrics back = {0};
    ds_buf_put(&text, "");
    ds_metric_put_cell(&m, id, &text);
    cr_expect_str_eq(text.text, cell);
    cr_expect_float_eq(ds_metric_measure(&m, id), measure, 1e-12 * measure, "%s", cell);
    ds_metric_print(&m, id, &read);
    cr_expect_str_eq(read.text, people);
    cr_expect(ds_metric_agrees(text.text, &m, id, &unused), "%s", cell);
    cr_expect(ds_metric_at(id)->of != id || (ds_metric_read_cell(cell, id, &back) &&
                                             ds_metric_agrees(cell, &back, id, &unused)),
              "%s", cell);
    ds_buf_deinit(&text);
    ds_buf_deinit(&read);
    ds_buf_deinit(&unused);
}

Test(metrics, kinds) {
    expect((ds_metrics){.dp = 8}, DS_METRIC_dp, "8", 8, "8");
    expect((ds_metrics){.dp = 0}, DS_METRIC_dp, "", 0, "0");
    expect((ds_metrics){.step_ps = 1500000000}, DS_METRIC_step_ps, "1500000000", 1.5e-3, "1.5 ms");
    expect((ds_metrics){.step_ps = 1500000000}, DS_METRIC_step_time, "0.0015", 1.5e-3, "1.5 ms");
    expect((ds_metrics){.step_ps = INT64_C(9007199254740993)}, DS_METRIC_step_time,
           "9007.199254740993", 9007.199254740993, "9007 s");
    expect((ds_metrics){.peak_bytes = 3 << 29}, DS_METRIC_peak_bytes, "1610612736", 1610612736,
           "1.5 GiB");
    expect((ds_metrics){.throughput_per_s = 107.25}, DS_METRIC_throughput_per_s, "107.25", 107.25,
           "107.2 /s");
    expect((ds_metrics){.mfu = 0.1}, DS_METRIC_mfu, "0.1", 0.1, "10.0 %");
    expect((ds_metrics){.cost = 1.0 / 3}, DS_METRIC_cost, "0.3333333333333333", 1.0 / 3,
           "0.333333");
    expect((ds_metrics){.fits = true}, DS_METRIC_fits, "1", 1, "1");
}

/* Integers to the last digit, reals to 1e-9 of their size. */
Test(metrics, agreement) {
    ds_metrics m = {.step_ps = 1000000000000, .mfu = 0.5, .fits = true};
    static const struct {
        ds_metric_id id;
        const char *cell;
        bool agrees;
    } cells[] = {{DS_METRIC_step_ps, "1000000000000", true},
                 {DS_METRIC_step_ps, "1000000000001", false},
                 {DS_METRIC_step_ps, "", false},
                 {DS_METRIC_step_time, "1.0000000009", true},
                 {DS_METRIC_step_time, "1.0000000011", false},
                 {DS_METRIC_mfu, "0.5000000004", true},
                 {DS_METRIC_mfu, "0.4999999994", false},
                 {DS_METRIC_mfu, "nan", false},
                 {DS_METRIC_fits, "0", false},
                 {DS_METRIC_dp, "", true},
                 {DS_METRIC_dp, "none", false}};
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        ds_buf now = {0};
        cr_expect_eq(ds_metric_agrees(cells[i].cell, &m, cells[i].id, &now), cells[i].agrees,
                     "'%s'", cells[i].cell);
        cr_expect_eq(now.n > 0, !cells[i].agrees);
        ds_buf_deinit(&now);
    }
}
