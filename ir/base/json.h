/* A small JSON writer on a text buffer: it keeps commas, nesting and escapes right.
 *
 *     ds_json json;
 *     ds_json_init(&json, &buf, 2);
 *     ds_json_begin_object(&json);
 *     ds_json_key(&json, "step_time_ps");
 *     ds_json_int(&json, 35007000000);
 *     ds_json_end_object(&json);
 *
 * Misuse (a value without a key in an object, an unbalanced end, nesting beyond DS_JSON_MAX_DEPTH)
 * is a bug of the caller and asserts. Output is always valid UTF-8 and valid JSON. */
#ifndef DS_BASE_JSON_H
#define DS_BASE_JSON_H

#include "ir/base/str.h"

#include <stdbool.h>
#include <stdint.h>

#define DS_JSON_MAX_DEPTH 32

typedef struct ds_json {
    ds_buf *out;
    uint32_t indent; /* spaces a level; 0: everything on one line */
    uint32_t depth;
    bool is_object[DS_JSON_MAX_DEPTH];
    bool has_items[DS_JSON_MAX_DEPTH];
    bool after_key;
} ds_json;

/* Writes to `out`, which stays the caller's. indent 0 is compact. */
void ds_json_init(ds_json *json, ds_buf *out, uint32_t indent);

void ds_json_begin_object(ds_json *json);
void ds_json_end_object(ds_json *json);
void ds_json_begin_array(ds_json *json);
void ds_json_end_array(ds_json *json);

/* The key of the next value; only inside an object. */
void ds_json_key(ds_json *json, const char *key);

/* Bytes that are not UTF-8 become U+FFFD. */
void ds_json_string(ds_json *json, const char *text);
void ds_json_int(ds_json *json, int64_t value);
/* value / 10^digits, exactly, without trailing zeros: picoseconds with digits 6 are microseconds.
 */
void ds_json_decimal(ds_json *json, int64_t value, uint32_t digits);
/* The shortest of 15, 16 and 17 significant digits that reads back as the same double; NaN and the
 * infinities, which JSON cannot say, become null. */
void ds_json_double(ds_json *json, double value);
void ds_json_bool(ds_json *json, bool value);
void ds_json_null(ds_json *json);
/* A value that is JSON already. */
void ds_json_raw(ds_json *json, const char *text);

/* key and value at once. */
void ds_json_key_string(ds_json *json, const char *key, const char *text);
void ds_json_key_int(ds_json *json, const char *key, int64_t value);
/* null for DS_MANY_BYTES (units.h). */
void ds_json_key_bytes(ds_json *json, const char *key, int64_t bytes);
void ds_json_key_decimal(ds_json *json, const char *key, int64_t value, uint32_t digits);
void ds_json_key_double(ds_json *json, const char *key, double value);
void ds_json_key_bool(ds_json *json, const char *key, bool value);

#endif
