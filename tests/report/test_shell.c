/* Data in a page: no text of them can end the script or leave ASCII, and they are the same JSON. */
#include "tools/report/page.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <string.h>

/* The data of a page, between the script's tags. */
static json_t *data_of(const ds_buf *page) {
    const char *begin = strstr(page->text, "id=\"data\">") + strlen("id=\"data\">");
    const char *end = strstr(begin, "</script>");
    json_error_t err;
    json_t *json = json_loadb(begin, (size_t)(end - begin), 0, &err);
    cr_assert(json, "%s", err.text);
    for (const char *p = begin; p < end; p++)
        cr_assert((unsigned char)*p < 0x80 && *p != '<', "byte %d", *p);
    return json;
}

static const char *const texts[] = {
    "</script><script>alert(1)</script>",
    "<!-- <script",
    "\xc3\xbc\xc3\x97\xe2\x86\x92\xe2\x80\xa8\xef\xbf\xbd", /* ü × → U+2028 U+FFFD */
    "\xf0\x9f\x8e\x93 \xf4\x8f\xbf\xbf",                    /* U+1F393 U+10FFFF */
    "\xc2\x80\xdf\xbf\xe0\xa0\x80",                         /* ends of the shorter forms */
    "quotes \" and \\ and \x01",
    "",
};

Test(shell, texts_stay_what_they_are) {
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        ds_json json;
        ds_buf text = {0}, page = {0};
        ds_json_init(&json, &text, 0);
        ds_json_begin_object(&json);
        ds_json_key_string(&json, "kind", texts[i]);
        ds_json_end_object(&json);
        report_page(&text, &page);
        json_t *data = data_of(&page);
        cr_assert_str_eq(json_string_value(json_object_get(data, "kind")), texts[i]);
        json_decref(data);
        ds_buf_deinit(&text);
        ds_buf_deinit(&page);
    }
}

/* One file: nothing in the page asks for another. */
Test(shell, asks_for_nothing) {
    ds_buf text = {0}, page = {0};
    ds_buf_put(&text, "{}");
    report_page(&text, &page);
    static const char *const asks[] = {" src=",  "<link",          "@import", "url(",
                                       "fetch(", "XMLHttpRequest", "import("};
    for (size_t i = 0; i < sizeof asks / sizeof *asks; i++)
        cr_assert_null(strstr(page.text, asks[i]), "%s", asks[i]);
    cr_assert(strncmp(page.text, "<!doctype html>", 15) == 0);
    cr_assert_str_eq(page.text + page.n - 8, "</html>\n");
    ds_buf_deinit(&text);
    ds_buf_deinit(&page);
}
