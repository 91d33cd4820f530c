/* One model under every schedule: what the stages send against closed forms, orders of peaks that
 * the schedules promise, refusals, and the scenario as it was. What reports say of a pipeline: its
 * bubble against closed forms, its items in the trace against the schedule. */
#include "tests/support/pipe_time.h"
#include "tests/support/sim.h"

#include "ir/base/csv.h"
#include "ir/lang/lang.h"
#include "ir/schedule/schedule.h"
#include "sim/report/schedules.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define LAYERS 16
#define WIDTH  INT64_C(64)
#define SAMPLE (4 * WIDTH)         /* bytes of one in f32 */
#define WEIGHT (4 * WIDTH * WIDTH) /* of a layer */
#define BATCH  INT64_C(48)

/* An MLP on p stages; `more` is of the strategy, `items` of the module. */
static void write_mlp(int64_t p, int64_t m, const char *more, const char *items, ds_buf *out) {
    ds_buf_printf(out,
                  "dir 1\nimport \"models/mlp.dir\" as g with layers = %d, width = %" PRId64
                  ", batch = %" PRId64 "\n"
                  "topology @box {\n  device gpu[8] : \"A100-SXM4-80GB\"\n  switch sw\n"
                  "  link gpu[i] -- sw : 300 GB/s, 1 us for i in 0..8\n}\n%s"
                  "scenario {\n  model = @g.mlp\n  on = @box\n"
                  "  train { loss = mse, optimizer = sgd }\n"
                  "  strategy { pp = %" PRId64 ", microbatches = %" PRId64 "%s }\n}\n",
                  LAYERS, WIDTH, BATCH, items, p, m, more);
}

static void open_mlp(sim_case *c, int64_t p, int64_t m, const char *more, const char *items) {
    ds_buf text = {0};
    write_mlp(p, m, more, items, &text);
    sim_run_text(c, text.text, NULL, false);
    ds_buf_deinit(&text);
}

static void compare(const sim_case *c, ds_schedule_table *table) {
    ds_sim_options options = {0};
    ds_error err = {0};
    ds_status status = ds_schedules_compare(&c->binding, c->profiles, &options, table, &err);
    cr_assert_eq(status, DS_OK, "%s", err.message);
}

static const ds_schedule_row *row_of(const ds_schedule_table *table, const char *name) {
    for (uint32_t i = 0; i < table->rows.n; i++)
        if (strcmp(table->rows.at[i].name, name) == 0) return &table->rows.at[i];
    cr_assert_fail("there is no row %s", name);
    return NULL;
}

/* ---- what is sent ---- */

typedef struct place {
    const char *name;
    int64_t chunks, at_home; /* neighbours of chunks, and how many of them are on one stage */
    int64_t copies;
} place;

/* v = 2 for those that take any. Back and forth, a stage's two chunks meet at the turn. */
static const place places[] = {
    {"gpipe", 4, 0, 1},       {"1f1b", 4, 0, 1},          {"eager-1f1b", 4, 0, 1},
    {"interleaved", 8, 0, 1}, {"breadth-first", 8, 0, 1}, {"zb-h1", 4, 0, 1},
    {"zb-h2", 4, 0, 1},       {"zb-v", 8, 1, 1},          {"v-half", 8, 1, 1},
    {"v-min", 8, 1, 1},       {"dualpipe", 4, 0, 2},      {"dualpipev", 8, 1, 1},
    {"chimera", 4, 0, 2},     {"hanayo", 8, 1, 1}};

/* Every microbatch crosses every border forwards and backwards; two copies give each other the
 * gradients of all weights, and half of the microbatches their loss to the first copy. */
Test(schedules, send_what_their_chunks_say) {
    const int64_t m = 8;
    sim_case c;
    ds_schedule_table table;
    open_mlp(&c, 4, m, ", virtual_stages = 2, schedule = \"interleaved\"", "");
    compare(&c, &table);
    cr_assert_eq(table.rows.n, sizeof places / sizeof *places);
    for (uint32_t i = 0; i < table.rows.n; i++) {
        const ds_schedule_row *row = &table.rows.at[i];
        const place *p = &places[i];
        cr_assert_str_eq(row->name, p->name);
        cr_assert_null(row->refused, "%s: %s", row->name, row->refused);
        int64_t borders = p->chunks - 1 - p->at_home;
        int64_t activations = 2 * borders * m * SAMPLE * BATCH / m;
        int64_t gradients = p->copies == 2 ? 2 * LAYERS * WEIGHT : 0;
        int64_t losses = p->copies == 2 ? 4 * m / 2 : 0;
        cr_expect_eq(row->virtual_stages, p->chunks / 4, "%s", row->name);
        cr_expect_eq(row->copies, p->copies, "%s", row->name);
        cr_expect_eq(row->sent_grad_bytes, gradients, "%s", row->name);
        cr_expect_eq(row->sent_bytes, activations + gradients + losses, "%s: %" PRId64, row->name,
                     row->sent_bytes);
        cr_expect(row->fits);
        cr_expect_eq(row->own, strcmp(row->name, "interleaved") == 0);
    }
    /* a stage in the middle sends to both sides */
    cr_expect_eq(row_of(&table, "1f1b")->sent_most_bytes, 2 * SAMPLE * BATCH);
    cr_expect(ds_schedule_table_any(&table));
    ds_schedule_table_deinit(&table);
    sim_free(&c);
}

/* Two devices a stage: 32 bytes from each to its neighbour on stage 1, twice; from d[2] to d[3]
 * they stay on their stage. */
Test(schedules, only_sends_between_stages_count) {
    static const char text[] =
        "dir 1\ntopology @t {\n  device d[4] : \"V100-PCIE-16GB\"\n  switch s\n"
        "  link d[i] -- s : 10 GB/s, 1 us for i in 0..4\n}\n"
        "mesh @m = [pp = 2, dp = 2] on @t\n"
        "func @f(%x: f32[8] on @m{pp=0}, %g: f32[8] on @m{pp=0} {role = gradient}) {\n"
        "  %a = relu(%x)\n  %s = send(%a) to @m{pp=1}\n  %b = relu(%s)\n"
        "  %h = send(%g) to @m{pp=1}\n"
        "  %z = zeros() : f32[4] on @t.d[2]\n"
        "  %here = send(%z) to @t.d[3] : f32[4] on @t.d[3]\n  return\n}\n"
        "scenario { program = @f }\n";
    sim_case c;
    ds_stages stages;
    sim_run_text(&c, text, NULL, false);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    ds_stages_find(c.result, &stages);
    cr_assert_eq(stages.n, 2);
    cr_expect_eq(stages.at[0].sent_bytes, 128);
    cr_expect_eq(stages.at[0].sent_grad_bytes, 64);
    cr_expect_eq(stages.at[0].sent_most_bytes, 64);
    cr_expect_eq(stages.at[1].sent_bytes, 0);
    cr_expect_eq(stages.of_device[3], 1);
    ds_stages_deinit(&stages);
    sim_free(&c);
}

/* ---- memory and time ---- */

/* All microbatches at once, 2 (p − r) − 1 of them, p − r; two chains of warm-up in place of one. */
Test(schedules, peaks_and_times_are_in_the_order_that_they_promise) {
    sim_case c;
    ds_schedule_table table;
    open_mlp(&c, 4, 16, "", "");
    compare(&c, &table);
    int64_t gpipe = row_of(&table, "gpipe")->peak_bytes;
    int64_t eager = row_of(&table, "eager-1f1b")->peak_bytes;
    int64_t one = row_of(&table, "1f1b")->peak_bytes;
    cr_expect_gt(gpipe, eager);
    cr_expect_gt(eager, one);
    cr_expect_gt(row_of(&table, "zb-h2")->peak_bytes, row_of(&table, "zb-h1")->peak_bytes);
    cr_expect_gt(row_of(&table, "zb-v")->peak_bytes, row_of(&table, "v-half")->peak_bytes);
    cr_expect_gt(row_of(&table, "v-half")->peak_bytes, row_of(&table, "v-min")->peak_bytes);
    cr_expect_lt(row_of(&table, "zb-h1")->step_ps, row_of(&table, "1f1b")->step_ps);
    cr_expect_eq(row_of(&table, "interleaved")->virtual_stages, 2, "the form's own");
    ds_schedule_table_deinit(&table);
    sim_free(&c);
}

/* A row is what a run of that scenario alone says. */
Test(schedules, rows_are_runs) {
    sim_case c, alone;
    ds_schedule_table table;
    open_mlp(&c, 4, 8, "", "");
    open_mlp(&alone, 4, 8, ", schedule = \"zb-v\"", "");
    compare(&c, &table);
    const ds_schedule_row *row = row_of(&table, "zb-v");
    ds_stages stages;
    ds_stages_find(alone.result, &stages);
    cr_expect_eq(row->step_ps, alone.result->run.step_ps);
    cr_expect_eq(row->peak_bytes, alone.result->metrics.peak_bytes);
    cr_expect_eq(row->span_bubble_ps, stages.span_bubble_ps);
    cr_expect_float_eq(row->bubble_fraction, alone.result->metrics.bubble_fraction, 1e-15);
    cr_assert_eq(stages.n, 4);
    int64_t sent = 0, most = 0;
    for (uint32_t s = 0; s < 4; s++) {
        uint32_t cls = alone.result->plan->class_of[stages.at[s].device];
        cr_expect_eq(stages.at[s].peak_bytes, alone.result->mem.classes[cls].peak_bytes);
        sent += stages.at[s].sent_bytes;
        if (stages.at[s].sent_bytes > most) most = stages.at[s].sent_bytes;
    }
    cr_expect_eq(row->sent_bytes, sent);
    cr_expect_eq(row->sent_most_bytes, most, "a device a stage");
    cr_expect_eq(stages.at[row->peak_stage].peak_bytes, row->peak_bytes);
    ds_stages_deinit(&stages);
    ds_schedule_table_deinit(&table);
    sim_free(&alone);
    sim_free(&c);
}

/* ---- refusals ---- */

static void print_unit(const ds_unit *unit, ds_buf *out) {
    ds_print_module(unit->modules.at[0], out);
}

Test(schedules, refused_ones_are_rows_and_the_scenario_stays) {
    sim_case c;
    ds_schedule_table table;
    ds_buf before = {0}, after = {0}, text = {0};
    open_mlp(&c, 4, 6, "", "");
    print_unit(c.unit, &before);
    compare(&c, &table);
    print_unit(c.unit, &after);
    cr_expect_str_eq(before.text, after.text);
    const struct {
        const char *name, *why;
    } refused[] = {{"interleaved", "groups of one microbatch a stage"},
                   {"dualpipe", "at least twice the stages (2 * 4 = 8), not 6"}};
    for (int i = 0; i < 2; i++) {
        const ds_schedule_row *row = row_of(&table, refused[i].name);
        cr_assert_not_null(row->refused, "%s", row->name);
        cr_expect(strstr(row->refused, refused[i].why), "%s: %s", row->name, row->refused);
    }
    cr_expect_null(row_of(&table, "1f1b")->refused);
    ds_report_schedules(&table, &text);
    cr_expect(strstr(text.text, "dualpipe       1  refused: DualPipe needs"), "%s", text.text);
    ds_buf_deinit(&before);
    ds_buf_deinit(&after);
    ds_buf_deinit(&text);
    ds_schedule_table_deinit(&table);
    sim_free(&c);
}

Test(schedules, a_written_one_has_a_row_of_its_own) {
    sim_case c;
    ds_schedule_table table;
    open_mlp(&c, 2, 2, ", schedule = @mine",
             "schedule @mine {\n  chunks 2\n  place 0->0 1->1\n"
             "  rank 0: F0.0 F0.1 B0.1 B0.0\n  rank 1: F1.0 F1.1 B1.1 B1.0\n}\n");
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    compare(&c, &table);
    const ds_schedule_row *last = &table.rows.at[table.rows.n - 1];
    cr_expect_str_eq(last->name, "@mine");
    cr_expect(last->own);
    cr_expect_null(last->refused, "%s", last->refused);
    cr_expect_eq(last->step_ps, c.result->run.step_ps);
    ds_schedule_table_deinit(&table);
    sim_free(&c);
}

Test(schedules, need_a_pipeline) {
    sim_case c;
    ds_schedule_table table;
    ds_sim_options options = {0};
    ds_error err = {0};
    open_mlp(&c, 1, 4, "", "");
    cr_expect_eq(ds_schedules_compare(&c.binding, c.profiles, &options, &table, &err),
                 DS_ERR_VALUE);
    cr_expect(strstr(err.message, "say pp = 2 or more"), "%s", err.message);
    ds_schedule_table_deinit(&table);
    sim_free(&c);
    sim_run_file(&c, "scenarios/pipeline-2x4.dir", NULL, false);
    cr_expect_eq(ds_schedules_compare(&c.binding, c.profiles, &options, &table, &err),
                 DS_ERR_VALUE);
    cr_expect(strstr(err.message, "order that it was written in"), "%s", err.message);
    ds_schedule_table_deinit(&table);
    sim_free(&c);
}

/* ---- records and JSON ---- */

Test(schedules, records_and_json_say_the_same) {
    sim_case c;
    ds_schedule_table table;
    ds_buf text = {0};
    ds_csv csv;
    open_mlp(&c, 4, 6, "", "");
    compare(&c, &table);
    ds_report_schedules_csv(&table, &text);
    cr_assert_eq(ds_csv_parse("table", text.text, text.n, &csv, NULL), DS_OK);
    text.n = 0;
    ds_report_schedules_json(&table, &text);
    json_error_t err;
    json_t *json = json_loadb(text.text, text.n, JSON_REJECT_DUPLICATES, &err);
    cr_assert(json, "line %d: %s", err.line, err.text);
    json_t *rows = json_object_get(json, "schedules");
    cr_assert_eq(json_array_size(rows), csv.rows.n);
    for (uint32_t i = 0; i < csv.rows.n; i++)
        for (uint32_t k = 0; k < csv.n_columns; k++) {
            const char *cell = csv.rows.at[i].cells[k];
            json_t *value = json_object_get(json_array_get(rows, i), csv.columns[k]);
            if (!*cell)
                cr_expect_null(value);
            else if (json_is_string(value))
                cr_expect_str_eq(json_string_value(value), cell);
            else if (json_is_integer(value))
                cr_expect_eq(json_integer_value(value), strtoll(cell, NULL, 10));
            else
                cr_expect_float_eq(json_real_value(value), strtod(cell, NULL), 1e-6);
        }
    json_decref(json);
    ds_csv_deinit(&csv);
    ds_buf_deinit(&text);
    ds_schedule_table_deinit(&table);
    sim_free(&c);
}

/* ---- bubbles ---- */

/* Balanced stages, free sends, no optimizer: (p − 1) / v of m + (p − 1) / v turns are idle on every
 * device; with v = 1 (p − 1) / (m + p − 1). */
Test(pipelines, bubble_fraction_is_the_closed_form) {
    static const struct {
        const char *name;
        int64_t v;
    } forms[] = {{"gpipe", 1}, {"1f1b", 1}, {"interleaved", 2}, {"interleaved", 3}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        for (int64_t p = 2; p <= 8; p *= 2)
            for (int64_t m = p; m <= 4 * p; m *= 2) {
                pipe_program q;
                ds_buf text = {0};
                pipe_open(&q, forms[i].name, p, m, forms[i].v);
                pipe_simulate(&q, (ds_schedule_durations){.f = 100, .b = 90, .w = 70});
                ds_report_json(q.result, &text);
                json_t *json = json_loadb(text.text, text.n, 0, NULL);
                double got = json_real_value(json_object_get(json, "bubble_fraction"));
                double idle = (double)(p - 1) / (double)forms[i].v;
                cr_expect_float_eq(got, idle / ((double)m + idle), 1e-12,
                                   "%s p=%" PRId64 " m=%" PRId64 ": %.9f", forms[i].name, p, m,
                                   got);
                json_decref(json);
                ds_buf_deinit(&text);
                pipe_close(&q);
            }
}

/* ---- the trace ---- */

static bool is(json_t *event, const char *key, const char *text) {
    const char *value = json_string_value(json_object_get(event, key));
    return value && strcmp(value, text) == 0;
}

/* The number of the thread "schedule" of a process, or −1. */
static int64_t schedule_thread(json_t *events, int64_t pid) {
    size_t i;
    json_t *event;
    json_array_foreach(events, i, event) {
        if (!is(event, "name", "thread_name") ||
            json_integer_value(json_object_get(event, "pid")) != pid ||
            !is(json_object_get(event, "args"), "name", "schedule"))
            continue;
        return json_integer_value(json_object_get(event, "tid"));
    }
    return -1;
}

static void collect_items(json_t *events, int64_t pid, ds_buf *out) {
    int64_t tid = schedule_thread(events, pid);
    size_t i;
    json_t *event;
    json_array_foreach(events, i,
                       event) if (is(event, "ph", "X") &&
                                  json_integer_value(json_object_get(event, "pid")) == pid &&
                                  json_integer_value(json_object_get(event, "tid")) == tid)
        ds_buf_printf(out, "%s ", json_string_value(json_object_get(event, "name")));
}

/* Every stage shows the items of its rank in their order, named KIND chunk.microbatch. */
Test(pipelines, trace_shows_the_schedule) {
    static const char *const names[] = {"1f1b", "interleaved", "zb-h1", "chimera", "dualpipe"};
    for (int n = 0; n < 5; n++) {
        ds_buf more = {0}, text = {0};
        sim_case c;
        ds_buf_printf(&more, ", schedule = \"%s\"", names[n]);
        open_mlp(&c, 4, 8, more.text, "");
        cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
        ds_report_trace(c.result, &text);
        json_t *json = json_loadb(text.text, text.n, 0, NULL);
        json_t *events = json_object_get(json, "traceEvents");
        const ds_schedule_index *index = &c.result->step->schedule;
        for (uint32_t r = 0; r < index->n_ranks; r++) {
            ds_buf wanted = {0}, got = {0};
            for (uint32_t i = index->first[r]; i < index->first[r + 1]; i++) {
                const ds_schedule_item *x = ds_schedule_item_at(index, i, NULL);
                ds_buf_printf(&wanted, "%c%" PRId64 ".%" PRId64 " ", x->kind, x->chunk,
                              x->microbatch);
            }
            collect_items(events, 1 + c.result->plan->class_of[r], &got);
            cr_expect_str_eq(got.text, wanted.text, "%s, stage %u", names[n], r);
            ds_buf_deinit(&wanted);
            ds_buf_deinit(&got);
        }
        json_decref(json);
        ds_buf_deinit(&more);
        ds_buf_deinit(&text);
        sim_free(&c);
    }
}

/* ---- the summary ---- */

/* How often the ops of a path run on the critical device. */
static int64_t count_of(json_t *json, const char *path) {
    size_t i;
    json_t *op;
    json_array_foreach(
        json_object_get(json, "ops"), i,
        op) if (is(op, "path", path)) return json_integer_value(json_object_get(op, "count"));
    return 0;
}

Test(pipelines, summary_and_json_name_the_schedule) {
    sim_case c;
    ds_buf text = {0};
    open_mlp(&c, 4, 8, ", schedule = \"interleaved\", virtual_stages = 4, recompute = full", "");
    ds_report_summary(c.result, &text);
    cr_expect(strstr(text.text, "strategy     pp 4, recompute full, 8 microbatches, schedule "
                                "interleaved with 4 chunks a stage\n"),
              "%s", text.text);
    text.n = 0;
    ds_report_json(c.result, &text);
    json_t *json = json_loadb(text.text, text.n, JSON_REJECT_DUPLICATES, NULL);
    cr_expect_eq(count_of(json, "step/F/l/z"), 4 * 8, "chunks, microbatches");
    cr_expect_eq(count_of(json, "step/B/l/z.dw"), 4 * 8);
    json_t *strategy = json_object_get(json, "strategy");
    cr_expect_eq(json_integer_value(json_object_get(strategy, "pp")), 4);
    cr_expect_eq(json_integer_value(json_object_get(strategy, "virtual_stages")), 4);
    cr_expect_eq(json_integer_value(json_object_get(strategy, "weight_copies")), 1);
    cr_expect(is(strategy, "schedule", "interleaved"));
    cr_expect(is(strategy, "recompute", "full"));
    cr_expect_eq(json_array_size(json_object_get(strategy, "offload")), 0);
    json_t *stage = json_array_get(json_object_get(json, "per_stage"), 0);
    cr_expect_gt(json_integer_value(json_object_get(stage, "peak_memory_bytes")), 0);
    /* four chunks forwards, three backwards: nothing goes back from chunk 0 */
    cr_expect_eq(json_integer_value(json_object_get(stage, "sent_bytes")), 7 * SAMPLE * BATCH);
    json_decref(json);
    ds_buf_deinit(&text);
    sim_free(&c);
}

/* The op that differs is time waited: what the comparison attributes adds up. */
Test(pipelines, two_schedules_compared_add_up) {
    sim_case a, b;
    ds_comparison cmp;
    open_mlp(&a, 4, 8, ", schedule = \"1f1b\"", "");
    open_mlp(&b, 4, 8, ", schedule = \"zb-v\"", "");
    ds_compare(a.result, b.result, &cmp);
    int64_t ps = 0, bytes = 0;
    for (uint32_t i = 0; i < cmp.time.n; i++) ps += cmp.time.at[i].b - cmp.time.at[i].a;
    for (uint32_t i = 0; i < cmp.memory.n; i++) bytes += cmp.memory.at[i].b - cmp.memory.at[i].a;
    cr_expect_eq(ps, b.result->run.step_ps - a.result->run.step_ps);
    cr_expect_eq(bytes, b.result->metrics.peak_bytes - a.result->metrics.peak_bytes);
    cr_expect_neq(ps, 0);
    ds_comparison_deinit(&cmp);
    sim_free(&a);
    sim_free(&b);
}
