#include "ir/base/json.h"

#include "ir/base/rng.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static void write_sample(ds_json *json) {
    ds_json_begin_object(json);
    ds_json_key_string(json, "name", "mlp \"dp\" \\ \n\t\x01");
    ds_json_key_int(json, "step_time_ps", INT64_MIN);
    ds_json_key_double(json, "mfu", 0.1);
    ds_json_key_double(json, "nan", NAN);
    ds_json_key_bool(json, "fits", true);
    ds_json_key(json, "devices");
    ds_json_begin_array(json);
    ds_json_int(json, 1);
    ds_json_begin_object(json);
    ds_json_end_object(json);
    ds_json_begin_array(json);
    ds_json_end_array(json);
    ds_json_null(json);
    ds_json_end_array(json);
    ds_json_end_object(json);
}

Test(json, compact_text) {
    ds_buf buf = {0};
    ds_json json;
    ds_json_init(&json, &buf, 0);
    write_sample(&json);
    cr_assert_str_eq(buf.text, "{\"name\":\"mlp \\\"dp\\\" \\\\ \\n\\t\\u0001\","
                               "\"step_time_ps\":-9223372036854775808,\"mfu\":0.1,\"nan\":null,"
                               "\"fits\":true,\"devices\":[1,{},[],null]}");
    ds_buf_deinit(&buf);
}

Test(json, decimals_are_exact) {
    static const struct {
        int64_t value;
        uint32_t digits;
        const char *text;
    } cases[] = {{0, 6, "0"},
                 {1, 6, "0.000001"},
                 {1500000, 6, "1.5"},
                 {-1500000, 6, "-1.5"},
                 {-1, 6, "-0.000001"},
                 {42, 0, "42"},
                 {INT64_MAX, 6, "9223372036854.775807"},
                 {INT64_MIN, 18, "-9.223372036854775808"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ds_buf buf = {0};
        ds_json json;
        ds_json_init(&json, &buf, 0);
        ds_json_decimal(&json, cases[i].value, cases[i].digits);
        cr_expect_str_eq(buf.text, cases[i].text);
        ds_buf_deinit(&buf);
    }
}

Test(json, indented_text_is_the_same_document) {
    for (uint32_t indent = 0; indent <= 4; indent += 2) {
        ds_buf buf = {0};
        ds_json json;
        ds_json_init(&json, &buf, indent);
        write_sample(&json);
        json_error_t error;
        json_t *read = json_loads(buf.text, 0, &error);
        cr_assert_not_null(read, "%s", error.text);
        cr_assert_str_eq(json_string_value(json_object_get(read, "name")),
                         "mlp \"dp\" \\ \n\t\x01");
        cr_assert_eq(json_integer_value(json_object_get(read, "step_time_ps")), INT64_MIN);
        cr_assert_eq(json_array_size(json_object_get(read, "devices")), 4);
        json_decref(read);
        ds_buf_deinit(&buf);
    }
}

/* Another reader gets back the same bits, for doubles of all magnitudes. */
Test(json, doubles_round_trip) {
    ds_rng rng = {11};
    for (int i = 0; i < 20000; i++) {
        uint64_t bits = ds_rng_next(&rng);
        double x;
        memcpy(&x, &bits, sizeof x);
        if (!isfinite(x)) continue;
        ds_buf buf = {0};
        ds_json json;
        ds_json_init(&json, &buf, 0);
        ds_json_double(&json, x);
        double back = strtod(buf.text, NULL);
        cr_assert_eq(memcmp(&x, &back, sizeof x), 0, "%s", buf.text);
        ds_buf_deinit(&buf);
    }
}

Test(json, doubles_are_short) {
    const double values[] = {0, 1, -2.5, 0.1, 1e300, 1e-7, 312e12};
    const char *const texts[] = {"0", "1", "-2.5", "0.1", "1e+300", "1e-07", "312000000000000"};
    for (int i = 0; i < 7; i++) {
        ds_buf buf = {0};
        ds_json json;
        ds_json_init(&json, &buf, 0);
        ds_json_double(&json, values[i]);
        cr_assert_str_eq(buf.text, texts[i]);
        ds_buf_deinit(&buf);
    }
}

/* Whatever bytes a name holds, the document is valid UTF-8 (jansson refuses anything else). */
Test(json, any_bytes_give_a_valid_document) {
    ds_rng rng = {5};
    for (int i = 0; i < 20000; i++) {
        char text[12] = {0};
        uint64_t n = ds_rng_below(&rng, sizeof text - 1);
        for (uint64_t k = 0; k < n; k++) {
            uint64_t wide = ds_rng_below(&rng, 3); /* favour bytes of multi-byte sequences */
            text[k] = (char)(wide ? 0x80 + ds_rng_below(&rng, 0x80) : 1 + ds_rng_below(&rng, 0xff));
        }
        ds_buf buf = {0};
        ds_json json;
        ds_json_init(&json, &buf, 0);
        ds_json_begin_array(&json);
        ds_json_string(&json, text);
        ds_json_end_array(&json);
        json_error_t error;
        json_t *read = json_loads(buf.text, 0, &error);
        cr_assert_not_null(read, "%s in %s", error.text, buf.text);
        json_decref(read);
        ds_buf_deinit(&buf);
    }
}

Test(json, utf8_passes_and_broken_utf8_is_replaced) {
    ds_buf buf = {0};
    ds_json json;
    ds_json_init(&json, &buf, 0);
    ds_json_begin_array(&json);
    ds_json_string(&json, "é→😀");
    ds_json_string(&json, "a\xff\xe2\x82");
    ds_json_end_array(&json);
    cr_assert_str_eq(buf.text, "[\"é→😀\",\"a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"]");
    ds_buf_deinit(&buf);
}

Test(json, a_value_without_a_key_asserts, .signal = SIGABRT) {
    ds_buf buf = {0};
    ds_json json;
    ds_json_init(&json, &buf, 0);
    ds_json_begin_object(&json);
    ds_json_int(&json, 1);
}

Test(json, nesting_too_deep_asserts, .signal = SIGABRT) {
    ds_buf buf = {0};
    ds_json json;
    ds_json_init(&json, &buf, 0);
    for (int i = 0; i <= DS_JSON_MAX_DEPTH; i++) ds_json_begin_array(&json);
}
