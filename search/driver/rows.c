/* Rows as text and back. */
#include "search/driver/rows.h"

#include "ir/base/csv.h"
#include "ir/base/map.h"
#include "ir/base/units.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- columns ---- */

static const struct {
    const char *name;
    bool is_text;
} first_columns[] = {{"model_size", true},        {"world_size", false}, {"batch_size", false},
                     {"dp_degree", false},        {"hp_degree", false},  {"pp_degree", false},
                     {"num_microbatches", false}, {"latency", false},    {"throughput", false},
                     {"peak_memory", false}},
  result_columns[] = {{"step_time_ps", false},
                      {"mfu", false},
                      {"bubble", false},
                      {"exposed_comm_ps", false},
                      {"fits", false}},
  price_columns[] = {{"cost_per_hour", false}, {"cost", false}},
  last_columns[] = {{"status", true}, {"reason", true}, {"hash", true},    {"candidate", false},
                    {"sweep", true},  {"source", true}, {"settings", true}};
#define N_OF(list) ((uint32_t)(sizeof(list) / sizeof *(list)))

static uint32_t add_column(ds_rows *r, const char *name, bool is_text) {
    DS_PUSH(&r->arena, &r->columns, name);
    DS_PUSH(&r->arena, &r->is_text, is_text);
    return r->columns.n - 1;
}

static bool is_taken(const char *name) {
#define DS_LOOK(list)                                                                              \
    for (uint32_t i = 0; i < N_OF(list); i++)                                                      \
        if (strcmp(list[i].name, name) == 0) return true
    DS_LOOK(first_columns);
    DS_LOOK(result_columns);
    DS_LOOK(price_columns);
    DS_LOOK(last_columns);
#undef DS_LOOK
    return false;
}

static void add_columns(ds_rows *r) {
    for (uint32_t i = 0; i < N_OF(first_columns); i++)
        add_column(r, first_columns[i].name, first_columns[i].is_text);
    r->first_dim = r->columns.n;
    for (uint32_t i = 0; i < ds_space_n_dims(r->space); i++) {
        const char *name = ds_space_dim_name(r->space, i);
        add_column(r, is_taken(name) ? ds_arena_printf(&r->arena, "sweep.%s", name) : name,
                   ds_space_dim_is_text(r->space, i));
    }
    r->first_result = r->columns.n;
    for (uint32_t i = 0; i < N_OF(result_columns); i++)
        add_column(r, result_columns[i].name, result_columns[i].is_text);
    r->first_price = r->columns.n;
    for (uint32_t i = 0; i < N_OF(price_columns) && r->has_price; i++)
        add_column(r, price_columns[i].name, price_columns[i].is_text);
    r->status = r->columns.n;
    for (uint32_t i = 0; i < N_OF(last_columns); i++)
        add_column(r, last_columns[i].name, last_columns[i].is_text);
    r->hash = r->status + 2;
    r->candidate = r->status + 3;
    r->sweep = r->status + 4;
    r->source = r->status + 5;
    r->settings = r->status + 6;
    if (r->spreadsheet) add_column(r, DS_ROWS_SPREADSHEET, true);
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
    ds_csv_put_row(out, r->columns.at, r->columns.n);
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

/* Blank for what is not known. */
static void put_known(writer *w, int64_t value) {
    comma(w);
    if (value) ds_buf_put_int(w->out, value);
}

static void put_real(writer *w, double value) {
    char text[40];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        double back = strtod(text, NULL);
        if (!(back < value) && !(back > value)) break;
    }
    put_number(w, text);
}

/* Seconds, exactly, without trailing zeros. */
static void put_seconds(writer *w, int64_t ps) {
    char text[40];
    int n =
        snprintf(text, sizeof text, "%" PRId64 ".%012" PRId64, ps / DS_PS_PER_S, ps % DS_PS_PER_S);
    while (text[n - 1] == '0') n--;
    if (text[n - 1] == '.') n--;
    comma(w);
    ds_buf_put_n(w->out, text, (size_t)n);
}

static void put_first(const ds_rows *r, const ds_outcome *o, writer *w) {
    put_text(w, r->model);
    put_known(w, o->world);
    put_known(w, o->batch);
    put_known(w, o->dp);
    put_known(w, o->tp);
    put_known(w, o->pp);
    put_known(w, o->microbatches);
    if (ds_outcome_is_simulated(o)) {
        put_seconds(w, o->step_ps);
        put_real(w, o->throughput_per_s);
        put_int(w, o->peak_bytes);
    } else {
        for (int i = 0; i < 3; i++) put_int(w, -1);
    }
}

static void put_results(const ds_rows *r, const ds_outcome *o, const ds_measures *m, writer *w) {
    bool simulated = ds_outcome_is_simulated(o);
    if (simulated) {
        put_int(w, o->step_ps);
        put_real(w, o->mfu);
        put_real(w, o->bubble);
        put_int(w, o->exposed_comm_ps);
        put_int(w, o->fits);
    }
    if (simulated && r->has_price) {
        put_real(w, m->at[DS_DERIVED_cost_per_hour]);
        put_real(w, m->at[DS_DERIVED_cost]);
    }
    for (uint32_t i = w->n; i < r->status; i++) comma(w);
}

void ds_rows_put(const ds_rows *r, const ds_candidate *c, const ds_outcome *o, const ds_measures *m,
                 ds_buf *out) {
    writer w = {out, 0, r->spreadsheet};
    char hash[20];
    ds_buf value = {0};
    put_first(r, o, &w);
    for (uint32_t i = 0; i < ds_space_n_dims(r->space); i++) {
        value.n = 0;
        ds_buf_put(&value, "");
        ds_space_put_value(r->space, c, i, &value);
        if (ds_space_is_text(r->space, c, i))
            put_text(&w, value.text);
        else
            put_number(&w, value.text);
    }
    put_results(r, o, m, &w);
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
    ds_buf_deinit(&value);
}

void ds_outcome_measures(const ds_outcome *o, ds_measures *out) {
    *out = (ds_measures){{0}};
    out->at[DS_DERIVED_step_time] = (double)o->step_ps * 1e-12;
    out->at[DS_DERIVED_throughput] = o->throughput_per_s;
    out->at[DS_DERIVED_peak_memory] = (double)o->peak_bytes;
    out->at[DS_DERIVED_fits] = o->fits;
    out->at[DS_DERIVED_mfu] = o->mfu;
    out->at[DS_DERIVED_bubble] = o->bubble;
}

/* ---- reading ---- */

static bool read_int(const char *text, int64_t *out) {
    char *end;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return end != text && !*end && !errno;
}

/* Of a figure: none is negative, none infinite. */
static bool read_amount(const char *text, int64_t *out) {
    return read_int(text, out) && *out >= 0;
}

static bool read_real(const char *text, double *out) {
    char *end;
    *out = strtod(text, &end);
    return end != text && !*end && isfinite(*out) && *out >= 0;
}

static bool read_verdict(const char *text, ds_verdict *out) {
    for (int i = 0; i < DS_VERDICT_COUNT; i++) {
        if (strcmp(ds_verdict_text((ds_verdict)i), text) != 0) continue;
        *out = (ds_verdict)i;
        return true;
    }
    return false;
}

static bool is_latency(const char *text, int64_t ps) {
    ds_buf seconds = {0};
    writer w = {&seconds, 0, false};
    put_seconds(&w, ps);
    bool same = strcmp(seconds.text, text) == 0;
    ds_buf_deinit(&seconds);
    return same;
}

/* Blank for what is not known. */
static bool read_known(const char *text, int64_t *out) {
    *out = 0;
    return !*text || read_amount(text, out);
}

static bool read_first(const char *const *cells, ds_outcome *o) {
    return read_known(cells[1], &o->world) && read_known(cells[2], &o->batch) &&
           read_known(cells[3], &o->dp) && read_known(cells[4], &o->tp) &&
           read_known(cells[5], &o->pp) && read_known(cells[6], &o->microbatches);
}

bool ds_rows_read(const ds_rows *r, const char *const *cells, ds_outcome *o, uint64_t *number) {
    int64_t candidate, fits;
    char *end;
    bool ok = read_verdict(cells[r->status], &o->verdict) && read_first(cells, o) &&
              read_int(cells[r->candidate], &candidate) && candidate >= 0;
    if (!ok) return false;
    *number = (uint64_t)candidate;
    ds_buf_put(&o->reason,
               r->spreadsheet ? ds_rows_plain(cells[r->status + 1]) : cells[r->status + 1]);
    o->hash = strtoull(cells[r->hash], &end, 16);
    if (*end) return false;
    const char *const *result = cells + r->first_result;
    o->unsimulated = o->verdict == DS_VERDICT_DOES_NOT_FIT && !*result[0];
    if (!ds_outcome_is_simulated(o)) return true;
    ok = read_amount(result[0], &o->step_ps) && read_real(result[1], &o->mfu) &&
         read_real(result[2], &o->bubble) && read_amount(result[3], &o->exposed_comm_ps) &&
         read_int(result[4], &fits) && read_real(cells[8], &o->throughput_per_s) &&
         read_amount(cells[9], &o->peak_bytes);
    o->fits = ok && fits;
    if (o->fits != (o->verdict != DS_VERDICT_DOES_NOT_FIT)) return false;
    if (o->verdict == DS_VERDICT_OK && *o->reason.text) return false;
    return ok && is_latency(cells[7], o->step_ps);
}
