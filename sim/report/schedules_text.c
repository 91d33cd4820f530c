/* Schedules side by side, as a table, as records and as JSON. */
#include "ir/base/csv.h"
#include "ir/base/json.h"
#include "ir/base/units.h"
#include "sim/report/internal.h"
#include "sim/report/schedules.h"

#include <stdio.h>

/* ---- for a terminal ---- */

static void put_head(const ds_schedule_table *t, ds_buf *out) {
    ds_buf_printf(out, "%s: %lld stages, %lld microbatch%s\n\n",
                  t->source->unit->modules.at[0]->path, (long long)t->stages,
                  (long long)t->microbatches, t->microbatches == 1 ? "" : "es");
    ds_buf_printf(out, "   %-13s %2s %10s %10s %7s %12s %5s %11s %11s %11s %6s\n", "schedule", "v",
                  "step", "bubble", "idle", "peak memory", "stage", "sent", "of it dW", "a device",
                  "copies");
}

static void put_row(const ds_schedule_row *row, ds_buf *out) {
    ds_buf_printf(out, "%s %-13s %2lld", row->own ? " *" : "  ", row->name,
                  (long long)row->virtual_stages);
    if (row->refused) {
        ds_buf_printf(out, "  refused: %s\n", row->refused);
        return;
    }
    ds_buf_printf(out, " %10s %10s %7s %12s %5u %11s %11s %11s %6u  ",
                  ds_report__ps(row->step_ps).s, ds_report__ps(row->span_bubble_ps).s,
                  ds_report__percent(row->bubble_fraction).s, ds_report__bytes(row->peak_bytes).s,
                  row->peak_stage, ds_report__bytes(row->sent_bytes).s,
                  ds_report__bytes(row->sent_grad_bytes).s,
                  ds_report__bytes(row->sent_most_bytes).s, row->copies);
    if (row->fits)
        ds_buf_put(out, "ok\n");
    else
        ds_buf_printf(out, "does not fit, %s missing\n", ds_report__bytes(row->missing_bytes).s);
}

void ds_report_schedules(const ds_schedule_table *t, ds_buf *out) {
    put_head(t, out);
    for (uint32_t i = 0; i < t->rows.n; i++) put_row(&t->rows.at[i], out);
    ds_buf_put(out, "\n"
                    "  * the scenario's own. v: chunks on a stage; bubble: the most of a stage's "
                    "last end - first start - compute;\n"
                    "  idle: share of all devices' time; peak memory: of a device, and its stage; "
                    "sent: between stages in a step,\n"
                    "  of it gradients of weights (dW), and by one device at most; copies: of the "
                    "weights.\n");
}

/* ---- records ---- */

static const char *status_of(const ds_schedule_row *row) {
    return row->refused ? "refused" : row->fits ? "ok" : "does not fit";
}

/* The numbers of a row that ran, under the names that CSV and JSON share. */
typedef struct number {
    const char *name;
    int64_t value;
} number;
enum { N_NUMBERS = 9 };

static void numbers_of(const ds_schedule_row *row, number out[N_NUMBERS]) {
    const number all[N_NUMBERS] = {{"step_time_ps", row->step_ps},
                                   {"span_bubble_ps", row->span_bubble_ps},
                                   {"peak_memory_bytes", row->peak_bytes},
                                   {"missing_bytes", row->missing_bytes},
                                   {"peak_stage", row->peak_stage},
                                   {"sent_bytes", row->sent_bytes},
                                   {"sent_gradient_bytes", row->sent_grad_bytes},
                                   {"sent_most_bytes", row->sent_most_bytes},
                                   {"weight_copies", row->copies}};
    for (int i = 0; i < N_NUMBERS; i++) out[i] = all[i];
}

/* schedule virtual_stages status, the numbers, bubble_fraction, reason. */
enum { N_CELLS = 3 + N_NUMBERS + 2 };

static void csv_row(const ds_schedule_row *row, ds_buf *out) {
    char text[N_CELLS][32] = {{0}};
    const char *cells[N_CELLS];
    number numbers[N_NUMBERS];
    numbers_of(row, numbers);
    for (int i = 0; i < N_CELLS; i++) cells[i] = text[i];
    cells[0] = row->name;
    snprintf(text[1], sizeof text[1], "%lld", (long long)row->virtual_stages);
    cells[2] = status_of(row);
    for (int i = 0; i < N_NUMBERS && !row->refused; i++)
        if (numbers[i].value != DS_MANY_BYTES)
            snprintf(text[3 + i], sizeof text[3 + i], "%lld", (long long)numbers[i].value);
    if (!row->refused)
        snprintf(text[N_CELLS - 2], sizeof text[N_CELLS - 2], "%.6f", row->bubble_fraction);
    if (row->refused) cells[N_CELLS - 1] = row->refused;
    ds_csv_put_row(out, cells, N_CELLS);
}

void ds_report_schedules_csv(const ds_schedule_table *t, ds_buf *out) {
    const char *names[N_CELLS] = {"schedule", "virtual_stages", "status"};
    number numbers[N_NUMBERS];
    numbers_of(&(ds_schedule_row){0}, numbers);
    for (int i = 0; i < N_NUMBERS; i++) names[3 + i] = numbers[i].name;
    names[N_CELLS - 2] = "bubble_fraction";
    names[N_CELLS - 1] = "reason";
    ds_csv_put_row(out, names, N_CELLS);
    for (uint32_t i = 0; i < t->rows.n; i++) csv_row(&t->rows.at[i], out);
}

/* ---- JSON ---- */

static void json_row(const ds_schedule_row *row, ds_json *json) {
    number numbers[N_NUMBERS];
    numbers_of(row, numbers);
    ds_json_begin_object(json);
    ds_json_key_string(json, "schedule", row->name);
    ds_json_key_int(json, "virtual_stages", row->virtual_stages);
    ds_json_key_bool(json, "own", row->own);
    ds_json_key_string(json, "status", status_of(row));
    if (row->refused) {
        ds_json_key_string(json, "reason", row->refused);
    } else {
        for (int i = 0; i < N_NUMBERS; i++)
            ds_json_key_bytes(json, numbers[i].name, numbers[i].value);
        ds_json_key_double(json, "bubble_fraction", row->bubble_fraction);
    }
    ds_json_end_object(json);
}

void ds_report_schedules_json(const ds_schedule_table *t, ds_buf *out) {
    ds_json json;
    ds_json_init(&json, out, 2);
    ds_json_begin_object(&json);
    ds_json_key_string(&json, "version", DS_VERSION);
    ds_json_key_string(&json, "file", t->source->unit->modules.at[0]->path);
    ds_json_key_int(&json, "stages", t->stages);
    ds_json_key_int(&json, "microbatches", t->microbatches);
    ds_json_key(&json, "schedules");
    ds_json_begin_array(&json);
    for (uint32_t i = 0; i < t->rows.n; i++) json_row(&t->rows.at[i], &json);
    ds_json_end_array(&json);
    ds_json_end_object(&json);
    ds_buf_putc(out, '\n');
}
