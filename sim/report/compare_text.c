/* A comparison as tables for a terminal, and as JSON. */
#include "sim/report/internal.h"

#include <string.h>

ds_text ds_report__signed(int64_t difference, ds_text (*print)(int64_t)) {
    ds_text text = print(difference < 0 ? -difference : difference), signed_text = text;
    if (!difference) return text;
    signed_text.s[0] = difference < 0 ? '-' : '+';
    memcpy(signed_text.s + 1, text.s, sizeof text.s - 1);
    signed_text.s[sizeof signed_text.s - 1] = '\0';
    return signed_text;
}

static void put_source(const char *name, const ds_result *r, ds_buf *out) {
    ds_buf_printf(out, "  %s  %s", name, r->source->unit->modules.at[0]->path);
    if (r->step) {
        ds_buf_put(out, ": ");
        ds_report__strategy(r->step, out);
    }
    if (!r->metrics.fits)
        ds_buf_printf(out, "; DOES NOT FIT, %s are missing on %s",
                      ds_report__bytes(r->metrics.peak_bytes - r->metrics.capacity_bytes).s,
                      ds_report__device(r->plan, r->fullest));
    ds_buf_putc(out, '\n');
}

static void put_knobs(const ds_comparison *c, ds_buf *out) {
    ds_buf_put(out, c->knobs.n ? "\nWhat is set differently\n" : "\nNothing is set differently\n");
    for (uint32_t i = 0; i < c->knobs.n; i++) {
        const ds_knob_difference *k = &c->knobs.at[i];
        ds_buf_printf(out, "  %-28s %s -> %s\n", k->name, k->a ? k->a : "(not set)",
                      k->b ? k->b : "(not set)");
    }
}

static void put_line(const char *what, int64_t a, int64_t b, ds_text (*print)(int64_t),
                     ds_buf *out) {
    ds_buf_printf(out, "  %11s %11s %12s  %s\n", print(a).s, print(b).s,
                  ds_report__signed(b - a, print).s, what);
}

static void put_table(const ds_difference *lines, uint32_t n, bool time, ds_text (*print)(int64_t),
                      ds_buf *out) {
    ds_buf_printf(out, "  %11s %11s %12s\n", "A", "B", "difference");
    int64_t a = 0, b = 0;
    for (uint32_t i = 0; i < n; i++) {
        ds_buf what = {0};
        if (time)
            ds_report__cause(lines[i].kind, lines[i].what, &what);
        else
            ds_buf_put(&what, lines[i].what);
        put_line(what.text, lines[i].a, lines[i].b, print, out);
        ds_buf_deinit(&what);
        a += lines[i].a;
        b += lines[i].b;
    }
    put_line("in all", a, b, print, out);
}

/* "Step time by cause, on gpu[0]", or on two devices where they differ. */
static void put_title(const char *what, const ds_comparison *c, uint32_t a, uint32_t b,
                      ds_buf *out) {
    const char *in_a = ds_report__device(c->a->plan, a), *in_b = ds_report__device(c->b->plan, b);
    ds_buf_printf(out, "\n%s, on %s", what, in_a);
    if (strcmp(in_a, in_b) != 0) ds_buf_printf(out, " in A, %s in B", in_b);
    ds_buf_putc(out, '\n');
}

void ds_report_comparison(const ds_comparison *c, ds_buf *out) {
    put_source("A", c->a, out);
    put_source("B", c->b, out);
    put_knobs(c, out);
    put_title(c->a->n_jobs || c->b->n_jobs ? "Time by cause" : "Step time by cause", c,
              c->a->critical, c->b->critical, out);
    put_table(c->time.at, c->time.n, true, ds_report__ps, out);
    put_title("Peak memory by category", c, c->a->fullest, c->b->fullest, out);
    put_table(c->memory.at, c->memory.n, false, ds_report__bytes, out);
}

/* ---- JSON ---- */

static void json_run(ds_json *json, const char *key, const ds_result *r) {
    ds_json_key(json, key);
    ds_json_begin_object(json);
    ds_json_key_string(json, "file", r->source->unit->modules.at[0]->path);
    for (int i = 0; i < DS_METRIC_COUNT; i++)
        if (ds_metric_at((ds_metric_id)i)->compared &&
            ds_metric_is_known(&r->metrics, (ds_metric_id)i))
            ds_metric_put_json(&r->metrics, (ds_metric_id)i, json);
    ds_json_key_string(json, "critical_device", ds_report__device(r->plan, r->critical));
    ds_json_key_string(json, "fullest_device", ds_report__device(r->plan, r->fullest));
    ds_json_end_object(json);
}

static void json_text(ds_json *json, const char *key, const char *text) {
    ds_json_key(json, key);
    if (text)
        ds_json_string(json, text);
    else
        ds_json_null(json); /* not set */
}

static void json_knobs(ds_json *json, const ds_comparison *c) {
    ds_json_key(json, "knobs");
    ds_json_begin_array(json);
    for (uint32_t i = 0; i < c->knobs.n; i++) {
        ds_json_begin_object(json);
        ds_json_key_string(json, "name", c->knobs.at[i].name);
        json_text(json, "a", c->knobs.at[i].a);
        json_text(json, "b", c->knobs.at[i].b);
        ds_json_end_object(json);
    }
    ds_json_end_array(json);
}

static void json_values(ds_json *json, const ds_difference *d, const char *const keys[3]) {
    ds_json_key_int(json, keys[0], d->a);
    ds_json_key_int(json, keys[1], d->b);
    ds_json_key_int(json, keys[2], d->b - d->a);
}

void ds_report_comparison_json(const ds_comparison *c, ds_buf *out) {
    static const char *const ps[] = {"a_ps", "b_ps", "difference_ps"};
    static const char *const bytes[] = {"a_bytes", "b_bytes", "difference_bytes"};
    ds_json json;
    ds_json_init(&json, out, 2);
    ds_json_begin_object(&json);
    ds_json_key_string(&json, "version", DS_VERSION);
    json_run(&json, "a", c->a);
    json_run(&json, "b", c->b);
    for (int i = 0; i < DS_METRIC_COUNT; i++)
        if (ds_metric_at((ds_metric_id)i)->compared &&
            ds_metric_is_known(&c->a->metrics, (ds_metric_id)i) &&
            ds_metric_is_known(&c->b->metrics, (ds_metric_id)i))
            ds_metric_put_difference(&c->a->metrics, &c->b->metrics, (ds_metric_id)i, &json);
    json_knobs(&json, c);
    ds_json_key(&json, "time");
    ds_json_begin_array(&json);
    for (uint32_t i = 0; i < c->time.n; i++) {
        ds_json_begin_object(&json);
        ds_json_key_string(&json, "kind", ds_time_kind_name(c->time.at[i].kind));
        ds_json_key_string(&json, "what", c->time.at[i].what);
        json_values(&json, &c->time.at[i], ps);
        ds_json_end_object(&json);
    }
    ds_json_end_array(&json);
    ds_json_key(&json, "memory");
    ds_json_begin_array(&json);
    for (uint32_t i = 0; i < c->memory.n; i++) {
        ds_json_begin_object(&json);
        ds_json_key_string(&json, "category", c->memory.at[i].what);
        json_values(&json, &c->memory.at[i], bytes);
        ds_json_end_object(&json);
    }
    ds_json_end_array(&json);
    ds_json_end_object(&json);
    ds_buf_putc(out, '\n');
}
