/* Pages about results: one HTML file each, with the data as JSON and everything that draws them. */
#ifndef DS_TOOLS_REPORT_PAGE_H
#define DS_TOOLS_REPORT_PAGE_H

#include "ir/base/error.h"
#include "ir/base/json.h"
#include "sim/report/analysis.h"

#include <stddef.h>

/* A page holds about so many bytes of data; the rest is left out, and the page says so. */
#define REPORT_MOST_BYTES 3000000u

/* The page around the data: head, JSON, tail; made by shell.cmake. */
extern const unsigned char report__head[], report__tail[];
extern const size_t report__head_size, report__tail_size;

/* The page of a JSON object with the members `kind` and `version` (page.c of sim/report has the rest).
 * `<` and what is not ASCII become escapes, so no text of the data can end the script. O(n). */
void report_page(const ds_buf *json, ds_buf *out);

/* Begins the object of a page of that kind; ends it, writes its page and frees the text. */
void report_begin(ds_json *json, ds_buf *text, const char *kind);
void report_end(ds_json *json, ds_buf *text, ds_buf *out);

/* Members rows, exact and columns of the table that a sweep has written; `json` is in an object
 * (table.c). Errors: as of reading the table. O(cells), all of them in memory. */
ds_status report_put_table(const char *path, ds_json *json, ds_error *err);
/* The page of that table; `file` is the sweep's. */
ds_status report_sweep_page(const char *path, const char *file, ds_buf *out, ds_error *err);

/* The page of a model under every schedule: the JSON object of `schedule --run`. */
void report_schedules_page(const char *schedules, ds_buf *out);
/* The page of plans on several kinds of machines: the JSON object of `plan`. */
void report_kinds_page(const char *plans, ds_buf *out);
/* The page of a search over a file's model: the JSON object of `search`, without how long it took. */
void report_search_page(const char *search, const char *file, ds_buf *out);

/* The page of a plan: its JSON object, and the table of its candidates, which stays if `keeps`. */
ds_status report_plan_page(const char *plan, const char *path, bool keeps, ds_buf *out,
                           ds_error *err);

/* Pages of a run; of several runs side by side, `comparison` being their JSON object. */
void report_run_page(const ds_result *result, const char *name, ds_buf *out);
void report_compare_page(const ds_result *const *results, const char *const *names, uint32_t n,
                         const char *comparison, ds_buf *out);

#endif
