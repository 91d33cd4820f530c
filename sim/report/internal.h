/* Shared by the files of sim/report; not a public header. */
#ifndef DS_REPORT_INTERNAL_H
#define DS_REPORT_INTERNAL_H

#include "ir/base/json.h"
#include "sim/report/analysis.h"

/* A number as people read it, by value: printf("%10s", ds_report__ps(t).s). */
typedef struct ds_text {
    char s[32];
} ds_text;
ds_text ds_report__ps(int64_t ps);
ds_text ds_report__bytes(int64_t bytes);
ds_text ds_report__rate(double per_s, const char *unit);
ds_text ds_report__percent(double share);
/* "+4.21 ms", "-1.5 GiB", "0 ps". */
ds_text ds_report__signed(int64_t difference, ds_text (*print)(int64_t));

/* Paths. `short`: without indices, "main/layers/fc1": one path for all turns of a loop. */
void ds_report__short_path(const ds_plan *plan, uint32_t inst, ds_buf *out);
/* The same, and of a model's step one path for all microbatches: "step/loss/layer/fc1". */
void ds_report__op_path(const ds_result *result, uint32_t inst, ds_buf *out);
/* "matmul step/loss/layer/fc1", shortened in its middle to fit a table. */
void ds_report__op_title(const ds_result *result, uint32_t inst, ds_buf *out);
/* The path of the op that makes a value, or its mask (DS_MEM_MASK); with the value's name where the
 * op makes several. */
void ds_report__value_path(const ds_plan *plan, uint32_t value, ds_buf *out);
/* The mesh axes of a communicating task, "dp,tp"; without any "send", or the op's mnemonic. */
void ds_report__over(const ds_plan *plan, uint32_t task, ds_buf *out);
/* "compute (linear)", "communication (dp)", "host issue", "idle". */
void ds_report__cause(ds_time_kind kind, const char *what, ds_buf *out);
/* When the job of the task starts; 0 without jobs. */
int64_t ds_report__begin_ps(const ds_result *r, uint32_t task);
const char *ds_report__device(const ds_plan *plan, uint32_t cls);
const char *ds_report__kind(const ds_plan *plan, uint32_t cls);
/* "compute", "dp of 4", "gpu[0] to gpu[1]", …: names of all streams, in plan order. Free the names
 * with ds_report__free_names. */
char **ds_report__stream_names(const ds_plan *plan);
void ds_report__free_names(char **names, uint32_t n);

/* " (4 alike)": the number of devices that one line represents; nothing for one device. */
void ds_report__alike(const ds_plan *plan, uint32_t cls, ds_buf *out);

/* ---- memory (memory.c) ---- */

/* The buffers of one op of the text that are alive at a peak: all turns of its loops, of a model's
 * step all microbatches. */
typedef struct ds_live_group {
    int category;     /* ds_category */
    const char *path; /* interned in ds_live.names */
    uint32_t n;
    int64_t bytes;
} ds_live_group;

typedef struct ds_live {
    DS_VEC(ds_live_group) groups; /* by category, largest first */
    ds_strtab names;
} ds_live;

/* The buffers that a class holds at its peak. O(events + live buffers). */
void ds_report__live(const ds_result *result, uint32_t cls, ds_live *out);
void ds_report__live_deinit(ds_live *live);

/* A class's memory from time to time: after each next() all changes up to time_ps are counted. */
typedef struct ds_memory_walk {
    int64_t time_ps, bytes;
    int64_t by[DS_MEM_CATEGORY_COUNT]; /* the sum is `bytes` */
    const ds_result *result;
    int64_t held; /* by buffers */
    uint32_t cls, event;
} ds_memory_walk;
void ds_report__memory_start(const ds_result *result, uint32_t cls, ds_memory_walk *walk);
bool ds_report__memory_next(ds_memory_walk *walk);

/* The sections of the summary, and the member "live_at_peak" of a JSON object. */
void ds_report__memory(const ds_result *result, ds_buf *out);
void ds_report__verdict(const ds_result *result, ds_buf *out);
void ds_report__advice(const ds_result *result, ds_buf *out);
void ds_report__put_advice(ds_json *json, const ds_result *result);
void ds_report__put_live(ds_json *json, const ds_result *result, uint32_t cls);

/* ---- costs (costs.c) ---- */

/* Of each kind of the run's devices; on the heap. */
struct ds_cost_source *ds_report__cost_sources(const ds_result *result, uint32_t *n);

/* ---- strategies (strategy.c) ---- */

/* "pp 8, tp 8, zero 1, 4 microbatches, schedule 1f1b": all that differs from the defaults. */
void ds_report__strategy(const ds_model_step *step, ds_buf *out);
/* "none", "full", "every:2", "3 ops". */
void ds_report__recompute(const ds_strategy *strategy, ds_buf *out);
/* The offloaded kinds of tensors, in words; returns their number. */
uint32_t ds_report__offloaded(const ds_strategy *strategy, const char *out[3]);
/* Chunks of the model on a stage. */
int64_t ds_report__virtual_stages(const ds_model_step *step);

/* ---- jobs (jobs.c) ---- */

/* The summary's table, and the members "jobs" and "shared_links" of a JSON object; nothing without
 * jobs. */
void ds_report__put_jobs(const ds_result *result, ds_buf *out);
void ds_report__json_jobs(const ds_result *result, ds_json *json);

/* "5, 4, 4, 3": turns of loops by stage, "2+3, 4+1" with two chunks each, "1, 62 x 2, 1" where
 * neighbours are alike. */
void ds_report__layers(const ds_schedule_index *schedule, const int64_t *turns, ds_buf *out);
/* The cut of ds_balance_advise, for the summary and as a member of a JSON object. */
void ds_report__faster_cut(const ds_result *result, ds_buf *out);
void ds_report__put_faster_cut(ds_json *json, const ds_result *result);

/* ---- pipelined steps (items.c) ---- */

/* Gives all chunks of a stage one path. In an instance's path of a pipelined step, from `from` on,
 * the call becomes its item's kind, names lose the numbers of chunks, and names of sends the number
 * of the microbatch: "step/B3/l/fc1.c3.dx" becomes "step/B/l/fc1.dx". */
void ds_report__item_path(const ds_result *result, uint32_t inst, size_t from, ds_buf *path);

/* "F3.5": chunk 3, microbatch 5. */
void ds_report__put_item(const ds_item_call *item, ds_buf *out);

/* ---- analyses (analysis_text.c): tables of the summary, members of the JSON object ---- */

void ds_report__put_critical(const ds_result *result, ds_buf *out);
/* Nothing for a single stage. */
void ds_report__put_stages(const ds_result *result, ds_buf *out);
void ds_report__json_critical(const ds_result *result, bool segments, ds_json *json);
void ds_report__json_stages(const ds_result *result, ds_json *json);

/* ---- the data of a page (page.c) ---- */

/* The object of --json, the segments of the critical path only if asked for (json.c). */
void ds_report__put_run(const ds_result *result, bool segments, ds_json *json);
/* How the cost of one task was found, without its name (explain.c). */
void ds_report__explain_task(const ds_plan *plan, uint32_t task, ds_buf *out);
/* The members "tree" and "timeline" with the spans of all classes and the critical path
 * (page_tree.c). Lines of `dropped` say what was left out. */
void ds_report__put_spans(const ds_result *result, uint32_t most_bytes, ds_json *json,
                          ds_buf *dropped);
/* The members "links" and "matrix" (page_links.c). */
void ds_report__put_links(const ds_result *result, ds_json *json, ds_buf *dropped);

/* The knobs and params in which two runs differ (knobs.c). */
void ds_report__compare_knobs(ds_comparison *comparison);

/* ---- runs with jitter (montecarlo_text.c); nothing without such runs ---- */

void ds_report__put_runs(const ds_result *result, ds_buf *out);
void ds_report__json_runs(const ds_result *result, ds_json *json);

/* ---- sums ---- */

/* Everything about one op of the text, summed over its executions; of a model's step also over the
 * microbatches, which are functions of their own where their dropout differs. */
typedef struct ds_op_total {
    const ds_record *record; /* of the first execution */
    uint32_t inst;           /* the first execution */
    const ds_group *group;   /* of the first execution; NULL: compute */
    int64_t n;
    int64_t ps;
    int64_t bytes;       /* communication: sum of sizes as nccl-tests counts them; DS_MANY_BYTES */
    double bus_bytes;    /* sum of size · bus factor: over time, comparable with link bandwidth */
    double flop;         /* compute */
    double memory_bytes; /* compute: read and written */
} ds_op_total;

/* Ops of the text by time on one class, longest first; on the heap. O(tasks). */
ds_op_total *ds_report__ops(const ds_result *result, uint32_t cls, uint32_t *n);
/* Communicating ops, each execution counted once, on its lowest device. O(instances). */
ds_op_total *ds_report__collectives(const ds_result *result, uint32_t *n);

/* The group of a communicating task; NULL: compute. */
const ds_group *ds_report__group(const ds_plan *plan, uint32_t task);
const char *ds_report__algorithm(const ds_group *group); /* "": no algorithm */

#endif
