/* Reports on a finished simulation. */
#ifndef DS_REPORT_REPORT_H
#define DS_REPORT_REPORT_H

#include "ir/base/json.h"
#include "sim/run/run.h"

/* The runs with jitter as CSV, a row a run: number, step time, the device with the most compute. */
void ds_report_runs_csv(const ds_result *result, ds_buf *out);

/* Finds changes that make a model's step fit, by simulation: ZeRO's higher stages, recomputation,
 * offload, sequence parallelism, twice the microbatches, twice the tensor parallelism on as many
 * devices, half the batch, one change at a time; if no change fits, the best changes together. Only
 * changes that the model and the devices can take count. Does nothing where the result fits or is
 * of a program. The result's binding was made with `settings`. The source's scenario changes for
 * each simulation and is restored. At most 15 simulations. */
void ds_advise(ds_result *result, const ds_profiles *profiles, const ds_sim_options *options,
               const ds_setting *settings, uint32_t n_settings);

/* The interval of measurements around the predicted step: nine in ten lie from low to high, if the
 * profile's fits err here as on their own rows (uncertain.c). The fits are those of whole steps
 * where the profile has such fits, else those of ops and collectives. */
typedef struct ds_uncertainty {
    int64_t low_ps, high_ps; /* the step itself where covered_ps is 0: reports print no interval */
    int64_t covered_ps;      /* time on the critical path by fits with known residuals */
    int64_t unknown_ps;      /* time without residuals: peaks of the catalogue, links alone */
    bool by_parts; /* of a generic profile: by its errors on other clusters' steps, part by part */
} ds_uncertainty;

/* step - sqrt(Σ (T (1 - low))²) and step + sqrt(Σ (T (high - 1))²) over the distinct works and
 * collectives on the critical path, T the summed time of equal works. Measured and given times, and
 * times of neither compute nor communication, have no part. The interval does not cover the bias of
 * a whole fit (another software, another clock). O(tasks + dependences). */
ds_uncertainty ds_result_uncertainty(const ds_result *result);

/* ---- reports (summary.c, chart.c, json.c, csv.c, trace.c) ---- */

/* For a terminal: step time, throughput, MFU per device kind, where time goes, memory, top ops. */
void ds_report_summary(const ds_result *result, ds_buf *out);
/* Memory of the fullest device over the step, by category, as a chart of text. */
void ds_report_memory_chart(const ds_result *result, ds_buf *out);
/* One JSON object; sim/report/JSON.md lists the names, on which scripts depend. */
void ds_report_json(const ds_result *result, ds_buf *out);
/* One row per task: device, class size, stream, op, path, start, end, bytes, flop, origin. */
void ds_report_csv(const ds_result *result, ds_buf *out);
/* Chrome/Perfetto trace: a process per class, a thread per stream, memory counters, flow arrows. */
void ds_report_trace(const ds_result *result, ds_buf *out);
/* The data of a page about the run (tools/report), one value of `json`: the object of --json without
 * the segments of the critical path, and what the pictures need beside (page.c). What is left out, so
 * that the page keeps to about most_bytes, is in its list "dropped". O(tasks). */
void ds_report_page(const ds_result *result, const char *name, uint32_t most_bytes, ds_json *json);
/* How the cost of every record whose path or mnemonic matches `pattern` was found; false if none.
 */
bool ds_report_explain(const ds_result *result, const char *pattern, ds_buf *out);

#endif
