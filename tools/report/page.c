/* Data into the page around them. */
#include "tools/report/page.h"

/* ---- the page ---- */

/* The code point of a well-formed UTF-8 sequence, as JSON has no others; *n: its bytes. */
static uint32_t code_point(const unsigned char *p, unsigned *n) {
    *n = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    uint32_t code = p[0] & (0xffu >> (*n + 1));
    for (unsigned i = 1; i < *n; i++) code = code << 6 | (p[i] & 0x3fu);
    return code;
}

static void put_escaped(uint32_t code, ds_buf *out) {
    if (code >= 0x10000) { /* a pair of surrogates, RFC 8259, section 7 */
        ds_buf_printf(out, "\\u%04x", (unsigned)(0xd800 + ((code - 0x10000) >> 10)));
        code = 0xdc00 + ((code - 0x10000) & 0x3ff);
    }
    ds_buf_printf(out, "\\u%04x", (unsigned)code);
}

void report_page(const ds_buf *json, ds_buf *out) {
    ds_buf_put_n(out, (const char *)report__head, report__head_size);
    for (size_t i = 0, plain = 0; i <= json->n; i++) {
        const unsigned char *p = (const unsigned char *)json->text + i;
        if (i < json->n && *p < 0x80 && *p != '<') continue;
        ds_buf_put_n(out, json->text + plain, i - plain);
        if (i == json->n) break;
        unsigned n = 1;
        put_escaped(*p < 0x80 ? *p : code_point(p, &n), out);
        i += n - 1;
        plain = i + 1;
    }
    ds_buf_put_n(out, (const char *)report__tail, report__tail_size);
}

/* ---- runs ---- */

void report_begin(ds_json *json, ds_buf *text, const char *kind) {
    ds_json_init(json, text, 0);
    ds_json_begin_object(json);
    ds_json_key_string(json, "kind", kind);
    ds_json_key_string(json, "version", DS_VERSION);
}

static void put_runs(const ds_result *const *results, const char *const *names, uint32_t n,
                     ds_json *json) {
    ds_json_key(json, "runs");
    ds_json_begin_array(json);
    for (uint32_t i = 0; i < n; i++)
        ds_report_page(results[i], names[i], REPORT_MOST_BYTES / n, json);
    ds_json_end_array(json);
}

void report_end(ds_json *json, ds_buf *text, ds_buf *out) {
    ds_json_end_object(json);
    report_page(text, out);
    ds_buf_deinit(text);
}

void report_run_page(const ds_result *result, const char *name, ds_buf *out) {
    ds_json json;
    ds_buf text = {0};
    report_begin(&json, &text, "run");
    put_runs(&result, &name, 1, &json);
    report_end(&json, &text, out);
}

void report_compare_page(const ds_result *const *results, const char *const *names, uint32_t n,
                         const char *comparison, ds_buf *out) {
    ds_json json;
    ds_buf text = {0};
    report_begin(&json, &text, "compare");
    put_runs(results, names, n, &json);
    ds_json_key(&json, "comparison");
    ds_json_raw(&json, comparison);
    report_end(&json, &text, out);
}

/* A page with one JSON object under its kind. */
static void object_page(const char *kind, const char *object, const char *file, ds_buf *out) {
    ds_json json;
    ds_buf text = {0};
    report_begin(&json, &text, kind);
    if (file) ds_json_key_string(&json, "file", file);
    ds_json_key(&json, kind);
    ds_json_raw(&json, object);
    report_end(&json, &text, out);
}

void report_schedules_page(const char *schedules, ds_buf *out) {
    object_page("schedules", schedules, NULL, out);
}

void report_kinds_page(const char *plans, ds_buf *out) {
    object_page("kinds", plans, NULL, out);
}

void report_search_page(const char *search, const char *file, ds_buf *out) {
    object_page("search", search, file, out);
}
