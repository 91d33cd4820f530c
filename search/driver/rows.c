/* Rows as text and back. */
#include "search/driver/rows.h"

#include "ir/base/csv.h"
#include "ir/base/map.h"
#include "search/driver/sweep.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- columns ---- */

#define FIRST_COLUMN "model_size"
static const struct {
    const char *name;
    bool is_text;
} last_columns[] = {{"status", true}, {"reason", true}, {"hash", true},    {"candidate", false},
                    {"sweep", true},  {"source", true}, {"settings", true}};
#define N_LAST ((uint32_t)(sizeof last_columns / sizeof *last_columns))

static void add_column(ds_rows *r, const char *name, bool is_text, ds_metric_id metric) {
    DS_PUSH(&r->arena, &r->columns, ((ds_rows_column){name, is_text, metric}));
}

static void add_metrics(ds_rows *r, ds_metric_place place) {
    for (int i = 0; i < DS_METRIC_COUNT; i++) {
        const ds_metric *metric = ds_metric_at((ds_metric_id)i);
        if (metric->column && metric->place == place)
            add_column(r, metric->column, false, (ds_metric_id)i);
    }
}

static bool is_taken(const char *name) {
    bool taken = strcmp(name, FIRST_COLUMN) == 0 || ds_metric_by_column(name) < DS_METRIC_COUNT;
    for (uint32_t i = 0; i < N_LAST; i++) taken = taken || strcmp(last_columns[i].name, name) == 0;
    return taken;
}

static void add_columns(ds_rows *r) {
    add_column(r, FIRST_COLUMN, true, DS_METRIC_COUNT);
    add_metrics(r, DS_AMONG_SIZES);
    add_metrics(r, DS_AMONG_FIRST);
    r->first_dim = r->columns.n;
    for (uint32_t i = 0; i < ds_space_n_dims(r->space); i++) {
        const char *name = ds_space_dim_name(r->space, i);
        add_column(r, is_taken(name) ? ds_arena_printf(&r->arena, "sweep.%s", name) : name,
                   ds_space_dim_is_text(r->space, i), DS_METRIC_COUNT);
    }
    r->first_result = r->columns.n;
    add_metrics(r, DS_AMONG_RESULTS);
    if (ds_space_has_tokens(r->space)) add_metrics(r, DS_AMONG_TOKENS);
    add_metrics(r, DS_AMONG_VERDICTS);
    if (r->has_price) add_metrics(r, DS_AMONG_PRICES);
    r->status = r->columns.n;
    for (uint32_t i = 0; i < N_LAST; i++)
        add_column(r, last_columns[i].name, last_columns[i].is_text, DS_METRIC_COUNT);
    r->hash = r->status + 2;
    r->candidate = r->status + 3;
    r->sweep = r->status + 4;
    r->source = r->status + 5;
    r->settings = r->status + 6;
    if (r->spreadsheet) add_column(r, DS_ROWS_SPREADSHEET, true, DS_METRIC_COUNT);
}

static void put_escaped(const char *text, ds_buf *out) {
    for (; *text; text++) {
        if (*text == ';' || *text == '\\') ds_buf_putc(out, '\\');
        ds_buf_putc(out, *text);
    }
}

void ds_rows_put_settings(const ds_setting *settings, uint32_t n, ds_buf *out) {
    ds_buf_put(out, "");
    for (uint32_t i = 0; i < n; i++) {
        ds_buf_printf(out, "%s%s=", i ? ";" : "", settings[i].path);
        put_escaped(settings[i].text, out);
    }
}

/* The setting up to its ';', without its escapes; the text after it. */
static const char *take_setting(const char *at, ds_buf *out) {
    for (out->n = 0; *at && *at != ';'; at++) {
        if (*at == '\\' && at[1]) at++;
        ds_buf_putc(out, *at);
    }
    return *at ? at + 1 : at;
}

ds_status ds_rows_read_settings(const char *text, ds_arena *arena, ds_settings *out,
                                ds_error *err) {
    ds_buf one = {0};
    ds_status status = DS_OK;
    while (*text && status == DS_OK) {
        ds_buf_put(&one, "");
        text = take_setting(text, &one);
        char *path = ds_arena_strndup(arena, one.n ? one.text : "", one.n), *equals;
        equals = strchr(path, '=');
        if (!equals) {
            status = ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                                  "the rows' settings are no PARAM=VALUE: '%s'", path);
            break;
        }
        *equals = '\0';
        DS_PUSH(arena, out, ((ds_setting){path, equals + 1}));
    }
    ds_buf_deinit(&one);
    return status;
}

/* The scenario's name, else what it runs. */
static const char *model_name(const ds_binding *binding) {
    const char *name = NULL;
    if (ds_scenario_text(binding, "", "name", &name, NULL) == DS_OK && name) return name;
    const ds_attr *entry = ds_scenario_find(binding->unit, "", "model");
    if (!entry) entry = ds_scenario_find(binding->unit, "", "program");
    return entry && entry->kind == DS_ATTR_PLACE ? entry->place.name : "";
}

void ds_rows_init(ds_rows *r, const ds_space *space, const ds_binding *binding,
                  const ds_eval_source *source, const char *settings, const char *method,
                  bool spreadsheet) {
    *r = (ds_rows){.space = space, .spreadsheet = spreadsheet};
    ds_arena_init(&r->arena);
    r->has_price = ds_space_has_price(space);
    add_columns(r);
    r->model = model_name(binding);
    r->source_text = source->path;
    ds_buf text = {0};
    r->settings_text = ds_arena_strdup(&r->arena, settings);
    ds_print_sweep_content(binding->unit->modules.at[0], &text);
    uint64_t id =
        ds_hash_mix(ds_eval_hash(binding, source->content), ds_hash_bytes(text.text, text.n));
    id = ds_hash_mix(id, ds_hash_bytes(method, strlen(method)));
    r->sweep_id = ds_arena_printf(&r->arena, "%016" PRIx64, id);
    ds_buf_deinit(&text);
}

void ds_rows_deinit(ds_rows *r) {
    ds_arena_deinit(&r->arena);
    *r = (ds_rows){0};
}

/* ---- writing ---- */

void ds_rows_put_header(const ds_rows *r, ds_buf *out) {
    for (uint32_t i = 0; i < r->columns.n; i++) {
        if (i) ds_buf_putc(out, ',');
        ds_csv_put_cell(out, r->columns.at[i].name, !i);
    }
    ds_buf_putc(out, '\n');
}

typedef struct writer {
    ds_buf *out;
    uint32_t n;
    bool spreadsheet;
} writer;

static void comma(writer *w) {
    if (w->n++) ds_buf_putc(w->out, ',');
}

/* OWASP, "CSV Injection": = + - @ tab CR LF; and the apostrophe, so that it can be taken away. */
static bool is_evaluated(char first) {
    return first && strchr("=+-@\t\r\n'", first);
}

static void put_text(writer *w, const char *text) {
    bool first = !w->n;
    comma(w);
    if (!w->spreadsheet || !is_evaluated(*text)) {
        ds_csv_put_cell(w->out, text, first);
        return;
    }
    ds_buf cell = {0};
    ds_buf_printf(&cell, "'%s", text);
    ds_csv_put_cell(w->out, cell.text, first);
    ds_buf_deinit(&cell);
}

const char *ds_rows_plain(const char *cell) {
    return *cell == '\'' ? cell + 1 : cell;
}

static void put_number(writer *w, const char *text) {
    comma(w);
    ds_buf_put(w->out, text);
}

static void put_int(writer *w, int64_t value) {
    comma(w);
    ds_buf_put_int(w->out, value);
}

/* Where nothing was simulated there are sizes alone, and DistIR's sign of a failure. */
static void put_figure(const ds_outcome *o, ds_metric_id id, writer *w) {
    ds_metric_place place = ds_metric_at(id)->place;
    comma(w);
    if (place == DS_AMONG_SIZES || ds_outcome_is_simulated(o))
        ds_metric_put_cell(&o->metrics, id, w->out);
    else if (place == DS_AMONG_FIRST)
        ds_buf_put(w->out, "-1");
}

static void put_value(const ds_rows *r, const ds_candidate *c, uint32_t dim, writer *w) {
    ds_buf value = {0};
    ds_buf_put(&value, "");
    ds_space_put_value(r->space, c, dim, &value);
    if (ds_space_is_text(r->space, c, dim))
        put_text(w, value.text);
    else
        put_number(w, value.text);
    ds_buf_deinit(&value);
}

void ds_rows_put(const ds_rows *r, const ds_candidate *c, const ds_outcome *o, ds_buf *out) {
    writer w = {out, 0, r->spreadsheet};
    char hash[20];
    put_text(&w, r->model);
    for (uint32_t i = 1; i < r->status; i++) {
        if (r->columns.at[i].metric < DS_METRIC_COUNT)
            put_figure(o, r->columns.at[i].metric, &w);
        else
            put_value(r, c, i - r->first_dim, &w);
    }
    put_text(&w, ds_verdict_text(o->verdict));
    put_text(&w, o->reason.text ? o->reason.text : "");
    snprintf(hash, sizeof hash, "%016" PRIx64, o->hash);
    put_text(&w, hash);
    put_int(&w, (int64_t)c->number);
    put_text(&w, r->sweep_id);
    put_text(&w, r->source_text);
    put_text(&w, r->settings_text);
    if (r->spreadsheet) put_text(&w, "apostrophes");
    ds_buf_putc(out, '\n');
}

/* ---- reading ---- */

static bool read_verdict(const char *text, ds_verdict *out) {
    for (int i = 0; i < DS_VERDICT_COUNT; i++) {
        if (strcmp(ds_verdict_text((ds_verdict)i), text) != 0) continue;
        *out = (ds_verdict)i;
        return true;
    }
    return false;
}

static bool is_same_figure(const ds_metrics *m, ds_metric_id id, const char *cell) {
    ds_buf text = {0};
    ds_buf_put(&text, "");
    ds_metric_put_cell(m, id, &text);
    bool same = strcmp(text.text, cell) == 0;
    ds_buf_deinit(&text);
    return same;
}

/* The sizes, or all else; views are compared with what they show. Prices follow from these. */
static bool read_figures(const ds_rows *r, const char *const *cells, bool sizes, ds_metrics *m) {
    for (int views = 0; views < 2; views++)
        for (uint32_t i = 0; i < r->status; i++) {
            ds_metric_id id = r->columns.at[i].metric;
            if (id == DS_METRIC_COUNT || ds_metric_at(id)->place == DS_AMONG_PRICES ||
                (ds_metric_at(id)->place == DS_AMONG_SIZES) != sizes ||
                (ds_metric_at(id)->of != id) != views)
                continue;
            if (views ? !is_same_figure(m, id, cells[i]) : !ds_metric_read_cell(cells[i], id, m))
                return false;
        }
    return true;
}

bool ds_rows_read(const ds_rows *r, const char *const *cells, ds_outcome *o, uint64_t *number) {
    char *end;
    errno = 0;
    *number = strtoull(cells[r->candidate], &end, 10);
    if (*cells[r->candidate] < '0' || *cells[r->candidate] > '9' || *end || errno) return false;
    if (!read_verdict(cells[r->status], &o->verdict)) return false;
    if (!read_figures(r, cells, true, &o->metrics)) return false;
    ds_buf_put(&o->reason,
               r->spreadsheet ? ds_rows_plain(cells[r->status + 1]) : cells[r->status + 1]);
    o->hash = strtoull(cells[r->hash], &end, 16);
    if (*end) return false;
    o->unsimulated = o->verdict == DS_VERDICT_DOES_NOT_FIT && !*cells[r->first_result];
    if (!ds_outcome_is_simulated(o)) return true;
    if (!read_figures(r, cells, false, &o->metrics)) return false;
    if (o->metrics.fits != (o->verdict != DS_VERDICT_DOES_NOT_FIT)) return false;
    return o->verdict != DS_VERDICT_OK || !*o->reason.text;
}

/* ---- a row against another simulation ---- */

static void put_difference(const char *column, const char *then, const char *now, ds_buf *out) {
    ds_buf_printf(out, "%s%s is %s in the row and %s now", out->n ? "; " : "", column,
                  *then ? then : "blank", now);
}

static void compare_text(const ds_sweep_row *row, const char *column, const char *now,
                         ds_buf *out) {
    const char *then = ds_sweep_cell(row, column);
    if (then && strcmp(then, now) != 0) put_difference(column, then, *now ? now : "blank", out);
}

void ds_rows_compare(const ds_sweep_row *row, const ds_outcome *now, ds_buf *out) {
    for (uint32_t i = 0; i < row->n; i++) {
        ds_metric_id id = ds_metric_by_column(row->columns[i]);
        ds_buf text = {0};
        if (id < DS_METRIC_COUNT && !ds_metric_agrees(row->cells[i], &now->metrics, id, &text))
            put_difference(row->columns[i], row->cells[i], text.text, out);
        ds_buf_deinit(&text);
    }
    compare_text(row, "status", ds_verdict_text(now->verdict), out);
    compare_text(row, "reason", now->reason.text ? now->reason.text : "", out);
}

void ds_outcome_compare(const ds_outcome *row, const ds_outcome *now, ds_buf *out) {
    const char *const reasons[] = {row->reason.text ? row->reason.text : "",
                                   now->reason.text ? now->reason.text : ""};
    if (row->verdict != now->verdict)
        put_difference("status", ds_verdict_text(row->verdict), ds_verdict_text(now->verdict), out);
    if (strcmp(reasons[0], reasons[1]) != 0)
        put_difference("reason", reasons[0], *reasons[1] ? reasons[1] : "blank", out);
    for (int i = 0; i < DS_METRIC_COUNT && row->verdict == now->verdict; i++) {
        ds_metric_id id = (ds_metric_id)i;
        const ds_metric *metric = ds_metric_at(id);
        ds_buf then = {0}, text = {0};
        if (!metric->column || metric->place == DS_AMONG_PRICES) continue; /* judges find prices */
        ds_buf_put(&then, ""); /* what is not known stays blank */
        ds_metric_put_cell(&row->metrics, id, &then);
        if (!ds_metric_agrees(then.text, &now->metrics, id, &text))
            put_difference(metric->column, then.text, text.text, out);
        ds_buf_deinit(&then);
        ds_buf_deinit(&text);
    }
}
