/* Formats of measurements that `distsim profile import` reads; profile_import.c puts the rows into the
 * folder.
 *
 *   csv     a table with the columns of ops.csv or of collectives.csv; the time in time_us,
 *           time_ms, time_ns or time_s; columns that a profile does not have are passed over
 *   nccl    the output of nccl-tests (all_reduce_perf and so on)
 *   kineto  a trace of PyTorch's profiler (ir/import/kineto.h)
 *   nsys    `nsys stats --report cuda_gpu_kern_sum --format csv`, with a table that says what the
 *           kernels compute, since a kernel's name does not hold its shape */
#include "ir/base/file.h"
#include "ir/import/kineto.h"
#include "tools/cli/profile.h"

#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) ((uint32_t)(sizeof(array) / sizeof *(array)))

const char *const profile_op_columns[PROFILE_OP_COLUMNS] = {
    "class",    "op",    "dtype",  "batch",    "m",      "n",      "k",     "heads",
    "kv_heads", "seq_q", "seq_kv", "head_dim", "causal", "tokens", "width", "time_us"};
const char *const profile_collective_columns[PROFILE_COLLECTIVE_COLUMNS] = {
    "collective", "group_size", "size_bytes", "time_us"};

typedef profile_importer importer;

static ds_status bad(importer *im, const char *message) {
    return ds_error_set(im->err, DS_ERR_DATA, DS_NOWHERE, "%s: %s", im->options->file, message);
}

/* ---- times ---- */

static const struct {
    const char *column;
    double us;
} time_columns[] = {{"time_us", 1}, {"time_ms", 1e3}, {"time_ns", 1e-3}, {"time_s", 1e6}};

/* Microseconds with six digits, a picosecond, as profiles have them. */
static bool put_us(ds_buf *out, const char *text, double factor) {
    char *end;
    double us = strtod(text, &end) * factor;
    if (!*text || *end || !(us >= 5e-7) || !(us < 1e12)) return false;
    ds_buf_printf(out, "%.6f", us);
    return true;
}

/* Digits alone, below 2^63. */
bool profile_whole_number(const char *text, int64_t *out) {
    errno = 0;
    *out = strtoll(text, NULL, 10);
    return *text && !text[strspn(text, "0123456789")] && !errno;
}

/* ---- csv ---- */

static ds_status take_rows(importer *im, const ds_csv *csv, const char *const *columns, uint32_t n,
                           ds_buf *out, uint32_t *n_rows) {
    uint32_t time = 0;
    while (time < COUNT(time_columns) &&
           ds_csv_find(csv, time_columns[time].column) == DS_CSV_NO_COLUMN)
        time++;
    if (time == COUNT(time_columns))
        return bad(im, "no column time_us, time_ms, time_ns or time_s");
    uint32_t time_at = ds_csv_find(csv, time_columns[time].column);
    for (uint32_t r = 0; r < csv->rows.n; r++) {
        for (uint32_t c = 0; c + 1 < n; c++) {
            uint32_t at = ds_csv_find(csv, columns[c]);
            const char *cell = at == DS_CSV_NO_COLUMN ? "" : csv->rows.at[r].cells[at];
            if (strpbrk(cell, ",\"\n"))
                return ds_csv_error(csv, &csv->rows.at[r], im->err, "%s = '%s'", columns[c], cell);
            ds_buf_printf(out, "%s,", cell);
        }
        if (!put_us(out, csv->rows.at[r].cells[time_at], time_columns[time].us))
            return ds_csv_error(csv, &csv->rows.at[r], im->err, "%s = '%s': not a time",
                                time_columns[time].column, csv->rows.at[r].cells[time_at]);
        ds_buf_putc(out, '\n');
        (*n_rows)++;
    }
    return DS_OK;
}

static ds_status take_csv(importer *im) {
    ds_csv csv;
    DS_TRY(ds_csv_read(im->options->file, &csv, im->err));
    ds_status status;
    if (ds_csv_find(&csv, "collective") != DS_CSV_NO_COLUMN)
        status = take_rows(im, &csv, profile_collective_columns, PROFILE_COLLECTIVE_COLUMNS,
                           &im->collectives, &im->n_collectives);
    else if (ds_csv_find(&csv, "class") != DS_CSV_NO_COLUMN)
        status = take_rows(im, &csv, profile_op_columns, PROFILE_OP_COLUMNS, &im->ops, &im->n_ops);
    else if (ds_csv_find(&csv, "Med (ns)") != DS_CSV_NO_COLUMN)
        status = bad(im, "a kernel table of nsys: --shapes MAP.csv says what its kernels compute");
    else
        status = bad(im, "neither a column `class` (measured ops) nor `collective`");
    ds_csv_deinit(&csv);
    return status;
}

/* ---- nccl-tests ---- */

/* The table of a log: which words of a line are what. */
typedef struct nccl_log {
    char collective[32];
    int64_t group;
    uint32_t time_at;  /* index of the first `time` among the words of a line */
    uint32_t wrong_at; /* of the `#wrong` after it; 0: none */
    char host[64];     /* of the first rank */
    bool hosts_differ;
} nccl_log;

/* "all_reduce_perf" and "AllReduce" are all_reduce; what no collective has that name is empty. */
static void set_collective(nccl_log *log, const char *text, size_t n) {
    static const char *const names[] = {"all_reduce", "all_gather", "reduce_scatter",
                                        "all_to_all", "broadcast",  "reduce",
                                        "send",       "scatter",    "gather"};
    static const char *const as[] = {"all_reduce", "all_gather", "reduce_scatter",
                                     "alltoall",   "broadcast",  "reduce",
                                     "sendrecv",   "scatter",    "gather"};
    for (uint32_t i = 0; i < COUNT(names); i++) {
        const char *forms[] = {names[i], as[i]};
        for (int f = 0; f < 2; f++) {
            size_t length = strlen(forms[f]);
            if (n < length || strncmp(text, forms[f], length) != 0) continue;
            if (n == length || strncmp(text + length, "_perf", 5) == 0)
                snprintf(log->collective, sizeof log->collective, "%s", names[i]);
        }
    }
}

bool profile_is_collective(const char *name) {
    nccl_log known = {0};
    set_collective(&known, name, strlen(name));
    return *known.collective || strcmp(name, "permute") == 0 || strcmp(name, "recv") == 0;
}

/* `#  Rank  0 Group  0 Pid   1000 on  node01 device  0 [0x07] NVIDIA A100-SXM4-80GB` */
static void take_rank(importer *im, nccl_log *log, const char *line) {
    const char *on = strstr(line, " on "), *name = strstr(line, "] ");
    char host[64];
    if (on && sscanf(on, " on %63s", host) == 1) {
        log->hosts_differ = log->hosts_differ || (*log->host && strcmp(log->host, host) != 0);
        memcpy(log->host, host, sizeof host);
    }
    if (!name || *im->device) return;
    name += 2 + strspn(name + 2, " ");
    snprintf(im->device, sizeof im->device, "%.*s", (int)strcspn(name, "\r\n"), name);
}

/* `# Collective test starting: all_reduce_perf`, `#  Rank  0 Group …`, `#  size count … time …`. */
static void take_comment(importer *im, nccl_log *log, const char *line) {
    const char *starting = strstr(line, "test starting: ");
    if (starting) {
        starting += strlen("test starting: ");
        set_collective(log, starting, strcspn(starting, " \n"));
    }
    int rank;
    if (sscanf(line, "# Rank %d", &rank) == 1 && rank + 1 > log->group) log->group = rank + 1;
    if (sscanf(line, "# Rank %d", &rank) == 1) take_rank(im, log, line);
    char word[32];
    uint32_t at = 0;
    int used;
    bool is_header = false;
    for (const char *p = line + 1; sscanf(p, "%31s%n", word, &used) == 1; p += used, at++) {
        if (at == 0) is_header = strcmp(word, "size") == 0;
        if (!is_header) return;
        if (strcmp(word, "time") == 0 && !log->time_at) log->time_at = at;
        if (strcmp(word, "#wrong") != 0 || !log->time_at) continue;
        log->wrong_at = at;
        return;
    }
}

static bool take_numbers(importer *im, const nccl_log *log, const char *line, bool *wrong) {
    char word[64], time[64] = "";
    int64_t size = -1;
    uint32_t at = 0;
    int used;
    for (const char *p = line; sscanf(p, "%63s%n", word, &used) == 1; p += used, at++) {
        char *end;
        if (at == 0) {
            errno = 0;
            size = strtoll(word, &end, 10);
            if (*end || errno || size < 0) return true; /* no line of the table */
        }
        if (at == log->time_at) snprintf(time, sizeof time, "%s", word);
        if (log->wrong_at && at == log->wrong_at) *wrong = strtod(word, NULL) > 0; /* or N/A */
    }
    if (size <= 0 || !*time) return true; /* a size of 0 measures nothing that has a key */
    ds_buf_printf(&im->collectives, "%s,%lld,%lld,", log->collective, (long long)log->group,
                  (long long)size);
    if (!put_us(&im->collectives, time, 1)) return false;
    ds_buf_putc(&im->collectives, '\n');
    im->n_collectives++;
    return true;
}

static ds_status need(importer *im, const nccl_log *log) {
    if (!*log->collective)
        return bad(im, "the log does not say which collective it measured: --collective NAME");
    if (log->group < 2) return bad(im, "the log does not name at least two ranks: --group N");
    if (log->hosts_differ)
        return bad(im, "its ranks are on several hosts: measured collectives are those inside one "
                       "node (protocols on other links: cost_profiles/README.md)");
    return log->time_at ? DS_OK : bad(im, "no line `# size … time …` before the numbers");
}

static ds_status take_nccl_line(importer *im, nccl_log *log, const char *line, uint32_t number) {
    while (*line == ' ') line++;
    bool wrong = false;
    if (*line == '#') take_comment(im, log, line);
    if (!isdigit((unsigned char)*line)) return DS_OK;
    DS_TRY(need(im, log));
    bool timed = take_numbers(im, log, line, &wrong);
    if (wrong)
        return ds_error_set(im->err, DS_ERR_DATA, DS_NOWHERE,
                            "%s:%u: #wrong is not 0: a run with wrong results measures nothing",
                            im->options->file, number);
    if (timed) return DS_OK;
    return ds_error_set(im->err, DS_ERR_DATA, DS_NOWHERE, "%s:%u: word %u is not a time in us",
                        im->options->file, number, log->time_at + 1);
}

static ds_status take_nccl(importer *im) {
    nccl_log log = {0};
    ds_buf text = {0};
    const profile_import_options *o = im->options;
    int64_t group = 0;
    if (o->group && (!profile_whole_number(o->group, &group) || group < 2 || group > 1 << 24))
        return ds_error_set(im->err, DS_ERR_VALUE, DS_NOWHERE,
                            "--group %s: not a number of devices, 2 or more", o->group);
    if (o->collective) set_collective(&log, o->collective, strlen(o->collective));
    if (o->collective && !*log.collective)
        return ds_error_set(im->err, DS_ERR_NAME, DS_NOWHERE, "--collective %s: not known",
                            o->collective);
    ds_status status = ds_file_read(o->file, DS_NOWHERE, PROFILE_MOST_BYTES, &text, im->err);
    uint32_t number = 0;
    for (char *line = text.text; status == DS_OK && line && *line;) {
        char *end = strchr(line, '\n');
        if (end) *end = 0;
        if (o->group) log.group = group;
        status = take_nccl_line(im, &log, line, ++number);
        line = end ? end + 1 : NULL;
    }
    if (status == DS_OK && !im->n_collectives) status = bad(im, "no line of measured sizes");
    ds_buf_deinit(&text);
    return status;
}

/* ---- kineto ---- */

static ds_status take_kineto(importer *im) {
    ds_kineto_counts counts;
    DS_TRY(ds_import_kineto(im->options->file, &im->ops, &counts, im->err));
    im->n_ops = counts.taken;
    memcpy(im->device, counts.device, sizeof im->device);
    printf("%u kernels, %.3g us; %u operators with known shapes take %.3g us of them (%.0f %%)\n",
           counts.kernels, counts.all_us, counts.taken, counts.taken_us,
           100 * counts.taken_us / counts.all_us);
    return counts.taken ? DS_OK
                        : bad(im, "no operator with its shapes: was it recorded with "
                                  "record_shapes=True?");
}

/* ---- nsys ---- */

/* The row of the map whose pattern the kernel's name matches, UINT32_MAX: none. */
static uint32_t find_kernel(const ds_csv *map, uint32_t pattern_at, const char *name) {
    for (uint32_t i = 0; i < map->rows.n; i++)
        if (fnmatch(map->rows.at[i].cells[pattern_at], name, 0) == 0) return i;
    return UINT32_MAX;
}

static ds_status take_kernel(importer *im, const ds_csv *map, uint32_t row, const char *ns) {
    for (uint32_t c = 0; c + 1 < PROFILE_OP_COLUMNS; c++) {
        uint32_t at = ds_csv_find(map, profile_op_columns[c]);
        ds_buf_printf(&im->ops, "%s,", at == DS_CSV_NO_COLUMN ? "" : map->rows.at[row].cells[at]);
    }
    if (!put_us(&im->ops, ns, 1e-3)) return bad(im, "a kernel's median is not a time in ns");
    ds_buf_putc(&im->ops, '\n');
    im->n_ops++;
    return DS_OK;
}

static ds_status take_kernels(importer *im, const ds_csv *csv, const ds_csv *map) {
    uint32_t name, median, total, pattern;
    double left_ns = 0, all_ns = 0;
    DS_TRY(ds_csv_need(csv, "Name", &name, im->err));
    DS_TRY(ds_csv_need(csv, "Med (ns)", &median, im->err));
    DS_TRY(ds_csv_need(csv, "Total Time (ns)", &total, im->err));
    DS_TRY(ds_csv_need(map, "kernel", &pattern, im->err));
    for (uint32_t i = 0; i < csv->rows.n; i++) {
        const char **cells = csv->rows.at[i].cells;
        double ns = strtod(cells[total], NULL);
        uint32_t row = find_kernel(map, pattern, cells[name]);
        all_ns += ns;
        if (row != UINT32_MAX) {
            DS_TRY(take_kernel(im, map, row, cells[median]));
            continue;
        }
        left_ns += ns;
        printf("no pattern for %.60s: %.3g us in all\n", cells[name], ns / 1e3);
    }
    if (all_ns > 0)
        printf("%.0f %% of the kernels' time has a pattern\n", 100 * (1 - left_ns / all_ns));
    if (!im->n_ops) return bad(im, "no kernel has a pattern in the table of --shapes");
    return DS_OK;
}

/* nsys writes "Processing [...] with [...]" and a blank line before the table. */
static ds_status read_kernels(importer *im, ds_csv *out) {
    ds_buf text = {0};
    const char *file = im->options->file;
    ds_status status = ds_file_read(file, DS_NOWHERE, PROFILE_MOST_BYTES, &text, im->err);
    const char *start = text.n ? text.text : "", *table = strstr(start, "\nTime (%)");
    if (strncmp(start, "Processing [", strlen("Processing [")) == 0 && table) start = table + 1;
    if (status == DS_OK) status = ds_csv_parse(file, start, strlen(start), out, im->err);
    ds_buf_deinit(&text);
    return status;
}

static ds_status take_nsys(importer *im) {
    ds_csv csv, map;
    if (!im->options->shapes)
        return bad(im, "kernel names hold no shapes: --shapes MAP.csv says what they compute");
    DS_TRY(read_kernels(im, &csv));
    ds_status status = ds_csv_read(im->options->shapes, &map, im->err);
    if (status == DS_OK) {
        status = take_kernels(im, &csv, &map);
        ds_csv_deinit(&map);
    }
    ds_csv_deinit(&csv);
    return status;
}

/* ---- formats ---- */

static const struct {
    const char *name;
    ds_status (*take)(importer *im);
} formats[] = {
    {"csv", take_csv}, {"nccl", take_nccl}, {"kineto", take_kineto}, {"nsys", take_nsys}};

/* By the file's name: .json (or a compressed one) is a trace, .csv a table (nsys's if there is a
 * map), else a log. */
static const char *format_of(const profile_import_options *o) {
    const char *dot = strrchr(o->file, '.');
    if (o->format) return o->format;
    if (dot && (strcmp(dot, ".json") == 0 || strcmp(dot, ".gz") == 0)) return "kineto";
    if (dot && strcmp(dot, ".csv") == 0) return o->shapes ? "nsys" : "csv";
    return "nccl";
}

ds_status profile_import_read(importer *im) {
    const char *name = format_of(im->options), *names[COUNT(formats)];
    for (uint32_t i = 0; i < COUNT(formats); i++) {
        if (strcmp(formats[i].name, name) == 0) return formats[i].take(im);
        names[i] = formats[i].name;
    }
    const char *near = ds_suggest(name, names, COUNT(formats));
    return ds_error_set(im->err, DS_ERR_NAME, DS_NOWHERE,
                        "--format %s: csv, nccl, kineto or nsys%s%s%s", name,
                        near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}
