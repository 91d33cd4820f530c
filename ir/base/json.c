/* The JSON writer: a stack of open containers decides where commas and line breaks go. */
#include "ir/base/json.h"

#include "ir/base/units.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

void ds_json_init(ds_json *json, ds_buf *out, uint32_t indent) {
    *json = (ds_json){.out = out, .indent = indent};
}

static void break_line(ds_json *json) {
    if (!json->indent) return;
    ds_buf_putc(json->out, '\n');
    for (uint32_t i = 0; i < json->depth * json->indent; i++) ds_buf_putc(json->out, ' ');
}

/* What stands before the next key or array element. */
static void separate(ds_json *json) {
    if (!json->depth) return;
    bool *has_items = &json->has_items[json->depth - 1];
    if (*has_items) ds_buf_putc(json->out, ',');
    *has_items = true;
    break_line(json);
}

static void before_value(ds_json *json) {
    assert((json->depth && json->is_object[json->depth - 1]) == json->after_key &&
           "a value in an object needs a key");
    if (json->after_key)
        json->after_key = false;
    else
        separate(json);
}

static void open(ds_json *json, bool is_object) {
    before_value(json);
    assert(json->depth < DS_JSON_MAX_DEPTH && "JSON nested too deep");
    json->is_object[json->depth] = is_object;
    json->has_items[json->depth] = false;
    json->depth++;
    ds_buf_putc(json->out, is_object ? '{' : '[');
}

static void close(ds_json *json, bool is_object) {
    assert(json->depth && json->is_object[json->depth - 1] == is_object && !json->after_key);
    json->depth--;
    if (json->has_items[json->depth]) break_line(json);
    ds_buf_putc(json->out, is_object ? '}' : ']');
}

void ds_json_begin_object(ds_json *json) {
    open(json, true);
}
void ds_json_end_object(ds_json *json) {
    close(json, true);
}
void ds_json_begin_array(ds_json *json) {
    open(json, false);
}
void ds_json_end_array(ds_json *json) {
    close(json, false);
}

/* Length of the well-formed UTF-8 sequence at p, 0 if there is none (RFC 3629, section 4). */
static unsigned utf8_length(const unsigned char *p) {
    if (p[0] < 0x80) return 1;
    if (p[0] < 0xc2 || p[0] > 0xf4) return 0;
    unsigned n = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    for (unsigned i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80) return 0; /* stops at the closing NUL too */
    bool overlong = (p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xf0 && p[1] < 0x90);
    bool surrogate = p[0] == 0xed && p[1] > 0x9f;
    bool beyond = p[0] == 0xf4 && p[1] > 0x8f; /* the last code point is U+10FFFF */
    return overlong || surrogate || beyond ? 0 : n;
}

static void put_quoted(ds_buf *out, const char *text) {
    ds_buf_putc(out, '"');
    for (const unsigned char *p = (const unsigned char *)text; *p;) {
        unsigned n = utf8_length(p);
        if (n == 0)
            ds_buf_put(out, "\xef\xbf\xbd");
        else if (*p == '"' || *p == '\\')
            ds_buf_printf(out, "\\%c", *p);
        else if (*p == '\n')
            ds_buf_put(out, "\\n");
        else if (*p == '\t')
            ds_buf_put(out, "\\t");
        else if (*p < 0x20 || *p == 0x7f)
            ds_buf_printf(out, "\\u%04x", *p);
        else
            ds_buf_put_n(out, (const char *)p, n);
        p += n ? n : 1;
    }
    ds_buf_putc(out, '"');
}

void ds_json_key(ds_json *json, const char *key) {
    assert(json->depth && json->is_object[json->depth - 1] && !json->after_key);
    separate(json);
    put_quoted(json->out, key);
    ds_buf_put(json->out, json->indent ? ": " : ":");
    json->after_key = true;
}

void ds_json_string(ds_json *json, const char *text) {
    before_value(json);
    put_quoted(json->out, text);
}

void ds_json_int(ds_json *json, int64_t value) {
    before_value(json);
    ds_buf_printf(json->out, "%" PRId64, value);
}

void ds_json_decimal(ds_json *json, int64_t value, uint32_t digits) {
    assert(digits <= 18 && "10^19 is beyond 64 bits");
    before_value(json);
    uint64_t magnitude = value < 0 ? 0 - (uint64_t)value : (uint64_t)value, scale = 1;
    for (uint32_t i = 0; i < digits; i++) scale *= 10;
    uint64_t rest = magnitude % scale;
    ds_buf_printf(json->out, "%s%" PRIu64, value < 0 ? "-" : "", magnitude / scale);
    if (!rest) return;
    while (rest % 10 == 0) {
        rest /= 10;
        digits--;
    }
    ds_buf_printf(json->out, ".%0*" PRIu64, (int)digits, rest);
}

void ds_json_double(ds_json *json, double value) {
    if (!isfinite(value)) {
        ds_json_null(json);
        return;
    }
    before_value(json);
    char digits[32];
    for (int precision = 15; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, value);
        double back = strtod(digits, NULL);
        if (!(back < value) && !(back > value)) break;
    }
    for (char *c = digits; *c; c++) /* the host program's locale may have a decimal comma */
        if (*c == ',') *c = '.';
    ds_buf_put(json->out, digits);
}

void ds_json_bool(ds_json *json, bool value) {
    before_value(json);
    ds_buf_put(json->out, value ? "true" : "false");
}

void ds_json_null(ds_json *json) {
    before_value(json);
    ds_buf_put(json->out, "null");
}

void ds_json_raw(ds_json *json, const char *text) {
    before_value(json);
    ds_buf_put(json->out, text);
}

void ds_json_key_string(ds_json *json, const char *key, const char *text) {
    ds_json_key(json, key);
    ds_json_string(json, text);
}

void ds_json_key_int(ds_json *json, const char *key, int64_t value) {
    ds_json_key(json, key);
    ds_json_int(json, value);
}

void ds_json_key_bytes(ds_json *json, const char *key, int64_t bytes) {
    ds_json_key(json, key);
    if (bytes == DS_MANY_BYTES)
        ds_json_null(json);
    else
        ds_json_int(json, bytes);
}

void ds_json_key_decimal(ds_json *json, const char *key, int64_t value, uint32_t digits) {
    ds_json_key(json, key);
    ds_json_decimal(json, value, digits);
}

void ds_json_key_double(ds_json *json, const char *key, double value) {
    ds_json_key(json, key);
    ds_json_double(json, value);
}

void ds_json_key_bool(ds_json *json, const char *key, bool value) {
    ds_json_key(json, key);
    ds_json_bool(json, value);
}
