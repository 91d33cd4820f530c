/* The table of results, and what each kind of them looks like. */
#include "ir/strategy/metrics.h"

#include "ir/base/units.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const ds_metric table[] = {
#define METRIC(id_, kind_, ...)                                                                    \
    [DS_METRIC_##id_] = {.kind = DS_METRIC_IS_##kind_,                                             \
                         .of = DS_METRIC_##id_,                                                    \
                         .at = offsetof(ds_metrics, id_),                                          \
                         __VA_ARGS__},
#define VIEW(id_, of_, kind_, ...)                                                                 \
    [DS_METRIC_##id_] = {.kind = DS_METRIC_IS_##kind_,                                             \
                         .of = DS_METRIC_##of_,                                                    \
                         .at = offsetof(ds_metrics, of_),                                          \
                         __VA_ARGS__},
#include "ir/strategy/metrics.def"
#undef METRIC
#undef VIEW
};

const ds_metric *ds_metric_at(ds_metric_id id) {
    return &table[id];
}

ds_metric_id ds_metric_by_name(const char *sweep) {
    int i = 0;
    while (i < DS_METRIC_COUNT && (!table[i].sweep || strcmp(table[i].sweep, sweep) != 0)) i++;
    return (ds_metric_id)i;
}

ds_metric_id ds_metric_by_column(const char *column) {
    int i = 0;
    while (i < DS_METRIC_COUNT && (!table[i].column || strcmp(table[i].column, column) != 0)) i++;
    return (ds_metric_id)i;
}

bool ds_metric_is_objective(ds_metric_id id) {
    return id < DS_METRIC_COUNT && table[id].sweep && table[id].kind != DS_METRIC_IS_COUNT &&
           table[id].kind != DS_METRIC_IS_FLAG;
}

const char *ds_metric_column(ds_metric_id id) {
    return table[id].column ? table[id].column : table[table[id].of].column;
}

/* ---- values ---- */

static bool is_real(const ds_metric *metric) {
    return metric->kind == DS_METRIC_IS_RATE || metric->kind == DS_METRIC_IS_SHARE ||
           metric->kind == DS_METRIC_IS_PRICE;
}

static double real_of(const ds_metrics *m, const ds_metric *metric) {
    return *(const double *)(const void *)((const char *)m + metric->at);
}

/* Of all others. */
static int64_t integer_of(const ds_metrics *m, const ds_metric *metric) {
    const void *at = (const char *)m + metric->at;
    return metric->kind == DS_METRIC_IS_FLAG ? *(const bool *)at : *(const int64_t *)at;
}

/* In the unit of rows. */
static double number_of(const ds_metrics *m, const ds_metric *metric) {
    if (is_real(metric)) return real_of(m, metric);
    double value = (double)integer_of(m, metric);
    return metric->kind == DS_METRIC_IS_SECONDS ? value * 1e-12 : value;
}

double ds_metric_measure(const ds_metrics *m, ds_metric_id id) {
    double value = number_of(m, &table[id]);
    return table[id].kind == DS_METRIC_IS_PS ? value * 1e-12 : value;
}

bool ds_metric_is_known(const ds_metrics *m, ds_metric_id id) {
    return table[id].place != DS_AMONG_TOKENS || m->first_token_ps > 0;
}

/* ---- as text ---- */

static bool is_blank(const ds_metrics *m, const ds_metric *metric) {
    return metric->blank && !integer_of(m, metric);
}

static void put_value(const ds_metrics *m, const ds_metric *metric, ds_json *json) {
    enum { DIGITS_OF_PS = 12 };
    if (is_real(metric))
        ds_json_double(json, real_of(m, metric));
    else if (metric->kind == DS_METRIC_IS_SECONDS)
        ds_json_decimal(json, integer_of(m, metric), DIGITS_OF_PS);
    else
        ds_json_int(json, integer_of(m, metric));
}

void ds_metric_put_json(const ds_metrics *m, ds_metric_id id, ds_json *json) {
    const ds_metric *metric = &table[id];
    ds_json_key(json, metric->json ? metric->json : metric->column);
    if (is_blank(m, metric))
        ds_json_null(json);
    else if (metric->kind == DS_METRIC_IS_FLAG)
        ds_json_bool(json, integer_of(m, metric));
    else
        put_value(m, metric, json);
}

void ds_metric_put_difference(const ds_metrics *a, const ds_metrics *b, ds_metric_id id,
                              ds_json *json) {
    const ds_metric *metric = &table[id];
    if (metric->kind == DS_METRIC_IS_FLAG) return;
    const char *unit = strrchr(metric->json, '_');
    if (!unit) unit = metric->json + strlen(metric->json);
    ds_buf key = {0};
    ds_buf_printf(&key, "%.*s_difference%s", (int)(unit - metric->json), metric->json, unit);
    ds_json_key(json, key.text);
    if (is_real(metric))
        ds_json_double(json, real_of(b, metric) - real_of(a, metric));
    else
        ds_json_int(json, integer_of(b, metric) - integer_of(a, metric));
    ds_buf_deinit(&key);
}

void ds_metric_put_cell(const ds_metrics *m, ds_metric_id id, ds_buf *out) {
    ds_json json;
    if (is_blank(m, &table[id])) return;
    ds_json_init(&json, out, 0);
    put_value(m, &table[id], &json);
}

void ds_metric_print(const ds_metrics *m, ds_metric_id id, ds_buf *out) {
    const ds_metric *metric = &table[id];
    switch (metric->kind) {
    case DS_METRIC_IS_PS:
    case DS_METRIC_IS_SECONDS:
        ds_print_ps(integer_of(m, metric), out);
        break;
    case DS_METRIC_IS_BYTES:
        ds_print_bytes(integer_of(m, metric), out);
        break;
    case DS_METRIC_IS_RATE:
        ds_print_rate(real_of(m, metric), "/s", out);
        break;
    case DS_METRIC_IS_SHARE:
        ds_buf_printf(out, "%.1f %%", 100 * real_of(m, metric));
        break;
    case DS_METRIC_IS_PRICE:
        ds_buf_printf(out, "%.6g", real_of(m, metric));
        break;
    case DS_METRIC_IS_COUNT:
    case DS_METRIC_IS_FLAG:
        ds_buf_put_int(out, integer_of(m, metric));
    }
}

/* ---- back from text ---- */

static bool read_real(const char *cell, double *out) {
    char *end;
    *out = strtod(cell, &end);
    return end != cell && !*end && isfinite(*out) && *out >= 0;
}

static bool read_integer(const char *cell, int64_t *out) {
    char *end;
    errno = 0;
    *out = strtoll(cell, &end, 10);
    return end != cell && !*end && !errno && *out >= 0;
}

bool ds_metric_read_cell(const char *cell, ds_metric_id id, ds_metrics *m) {
    const ds_metric *metric = &table[id];
    void *to = (char *)m + metric->at;
    int64_t value = 0;
    if (is_real(metric)) return read_real(cell, to);
    bool ok = (metric->blank && !*cell) || read_integer(cell, &value);
    if (metric->kind == DS_METRIC_IS_FLAG)
        *(bool *)to = value;
    else
        *(int64_t *)to = value;
    return ok;
}

bool ds_metric_agrees(const char *cell, const ds_metrics *m, ds_metric_id id, ds_buf *now) {
    const ds_metric *metric = &table[id];
    char *end;
    double then = strtod(cell, &end), is = number_of(m, metric);
    double within = is_real(metric) || metric->kind == DS_METRIC_IS_SECONDS ? 1e-9 * fabs(is) : 0;
    bool agrees = *cell ? end != cell && !*end && fabs(then - is) <= within : is_blank(m, metric);
    if (!agrees) ds_buf_printf(now, "%.17g", is);
    return agrees;
}
