/* distsim profile import: measurements of others into the folder of a profile.
 *
 *   csv     a table with the columns of ops.csv or of collectives.csv; the time in time_us,
 *           time_ms, time_ns or time_s; columns that a profile does not have are passed over
 *   nccl    the output of nccl-tests (all_reduce_perf and so on)
 *   kineto  a trace of PyTorch's profiler (ir/import/kineto.h)
 *   nsys    `nsys stats --report cuda_gpu_kern_sum --format csv`, with a table that says what the
 *           kernels compute, since a kernel's name does not hold its shape
 *
 * Whatever the format, rows come out in the columns of the profile's file and are appended to what
 * the folder has. */
#include "ir/base/file.h"
#include "ir/base/output.h"
#include "ir/import/kineto.h"
#include "sim/cost/cost.h"
#include "tools/cli/profile.h"

#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_BYTES ((size_t)1 << 28)

/* Columns of the two files that rows are for; `source` comes last. */
static const char *const op_columns[] = {
    "class",    "op",    "dtype",  "batch",    "m",      "n",      "k",     "heads",
    "kv_heads", "seq_q", "seq_kv", "head_dim", "causal", "tokens", "width", "time_us"};
static const char *const collective_columns[] = {"collective", "group_size", "size_bytes",
                                                 "time_us"};
#define COUNT(array) ((uint32_t)(sizeof(array) / sizeof *(array)))

typedef struct importer {
    const profile_import_options *options;
    char source[128];        /* key of the rows' source */
    char device[64];         /* what the file says that it was measured on; or empty */
    ds_buf ops, collectives; /* rows in those columns, without source */
    uint32_t n_ops, n_collectives;
    ds_error *err;
} importer;

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
static bool whole_number(const char *text, int64_t *out) {
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
        status = take_rows(im, &csv, collective_columns, COUNT(collective_columns),
                           &im->collectives, &im->n_collectives);
    else if (ds_csv_find(&csv, "class") != DS_CSV_NO_COLUMN)
        status = take_rows(im, &csv, op_columns, COUNT(op_columns), &im->ops, &im->n_ops);
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
    if (o->group && (!whole_number(o->group, &group) || group < 2 || group > 1 << 24))
        return ds_error_set(im->err, DS_ERR_VALUE, DS_NOWHERE,
                            "--group %s: not a number of devices, 2 or more", o->group);
    if (o->collective) set_collective(&log, o->collective, strlen(o->collective));
    if (o->collective && !*log.collective)
        return ds_error_set(im->err, DS_ERR_NAME, DS_NOWHERE, "--collective %s: not known",
                            o->collective);
    ds_status status = ds_file_read(o->file, DS_NOWHERE, MAX_BYTES, &text, im->err);
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
    for (uint32_t c = 0; c + 1 < COUNT(op_columns); c++) {
        uint32_t at = ds_csv_find(map, op_columns[c]);
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
    ds_status status = ds_file_read(file, DS_NOWHERE, MAX_BYTES, &text, im->err);
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

/* ---- checks ---- */

static bool exists(const char *path) {
    return access(path, F_OK) == 0;
}

static const char *at(const ds_csv *csv, uint32_t row, const char *column) {
    uint32_t c = ds_csv_find(csv, column);
    return c == DS_CSV_NO_COLUMN ? "" : csv->rows.at[row].cells[c];
}

static ds_status bad_cell(importer *im, const ds_csv *csv, uint32_t row, const char *column,
                          const char *wanted) {
    return ds_error_set(im->err, DS_ERR_DATA, DS_NOWHERE, "%s: measurement %u: %s = '%s': %s",
                        im->options->file, row + 1, column, at(csv, row, column), wanted);
}

static bool is_one_of(const char *text, const char *const *names) {
    for (; *names; names++)
        if (strcmp(text, *names) == 0) return true;
    return false;
}

/* The keys of its class, whole numbers from 1 on; those of other classes empty or whole numbers. */
static ds_status check_op(importer *im, const ds_csv *csv, uint32_t row) {
    static const char *const products[] = {"batch", "m", "n", "k", NULL};
    static const char *const attention[] = {"batch",  "heads",    "kv_heads", "seq_q",
                                            "seq_kv", "head_dim", NULL};
    static const char *const memory[] = {"tokens", "width", NULL};
    static const char *const classes[] = {"gemm", "conv", "recurrent", "attention", "memory", NULL};
    const char *class = at(csv, row, "class"), *causal = at(csv, row, "causal");
    const char *const *keys = strcmp(class, "memory") == 0      ? memory
                              : strcmp(class, "attention") == 0 ? attention
                                                                : products;
    ds_dtype dtype;
    if (!is_one_of(class, classes))
        return bad_cell(im, csv, row, "class", "gemm, conv, recurrent, attention or memory");
    if (!*at(csv, row, "op")) return bad_cell(im, csv, row, "op", "an operation's name is missing");
    if (!ds_dtype_parse(at(csv, row, "dtype"), &dtype))
        return bad_cell(im, csv, row, "dtype", "not a dtype of the language");
    if (*causal && strcmp(causal, "0") != 0 && strcmp(causal, "1") != 0)
        return bad_cell(im, csv, row, "causal", "0 or 1");
    for (uint32_t c = 3; c + 1 < COUNT(op_columns); c++) {
        const char *cell = at(csv, row, op_columns[c]);
        int64_t n = 0;
        bool key = is_one_of(op_columns[c], keys);
        if ((*cell || key) && (!whole_number(cell, &n) || n < key))
            return bad_cell(im, csv, row, op_columns[c], "not a whole number of at least 1");
    }
    return DS_OK;
}

static ds_status check_collective(importer *im, const ds_csv *csv, uint32_t row) {
    nccl_log known = {0};
    const char *name = at(csv, row, "collective");
    int64_t n;
    set_collective(&known, name, strlen(name));
    if (!*known.collective && strcmp(name, "permute") != 0 && strcmp(name, "recv") != 0)
        return bad_cell(im, csv, row, "collective", "not a collective of the language");
    if (!whole_number(at(csv, row, "group_size"), &n) || n < 2 || n > UINT32_MAX)
        return bad_cell(im, csv, row, "group_size", "not a number of devices, 2 or more");
    if (!whole_number(at(csv, row, "size_bytes"), &n) || n < 1)
        return bad_cell(im, csv, row, "size_bytes", "not a number of bytes");
    return DS_OK;
}

/* Measurements of the same source twice would count as two. */
static ds_status check_new(importer *im, const char *file) {
    ds_buf path = {0};
    ds_csv old;
    ds_buf_printf(&path, "%s/%s", im->options->folder, file);
    ds_status status = DS_OK;
    if (exists(path.text)) {
        status = ds_csv_read(path.text, &old, im->err);
        bool known = false;
        for (uint32_t r = 0; status == DS_OK && r < old.rows.n; r++)
            known = known || strcmp(at(&old, r, "source"), im->source) == 0;
        if (known)
            status = ds_error_set(im->err, DS_ERR_DATA, DS_NOWHERE,
                                  "%s has rows of source '%s': is %s in it? Other measurements "
                                  "need a --source of their own",
                                  path.text, im->source, im->options->file);
        if (status == DS_OK || known) ds_csv_deinit(&old);
    }
    ds_buf_deinit(&path);
    return status;
}

/* The rows of `text` under their columns. */
static ds_status read_taken(importer *im, const char *file, const char *const *columns, uint32_t n,
                            const ds_buf *text, ds_csv *out) {
    ds_buf whole = {0};
    ds_csv_put_row(&whole, columns, n);
    ds_buf_put_n(&whole, text->text, text->n);
    ds_status status = ds_csv_parse(file, whole.text, whole.n, out, im->err);
    ds_buf_deinit(&whole);
    return status;
}

static ds_status check_rows(importer *im, const char *file, const char *const *columns, uint32_t n,
                            const ds_buf *text,
                            ds_status (*check)(importer *im, const ds_csv *csv, uint32_t row)) {
    ds_csv rows;
    if (!text->n) return DS_OK;
    DS_TRY(check_new(im, file));
    DS_TRY(read_taken(im, file, columns, n, text, &rows));
    ds_status status = DS_OK;
    for (uint32_t r = 0; status == DS_OK && r < rows.rows.n; r++) status = check(im, &rows, r);
    ds_csv_deinit(&rows);
    return status;
}

/* The device of the folder's profile, else of --device. */
static ds_status device_of(importer *im, ds_buf *out) {
    ds_buf path = {0};
    ds_csv csv;
    ds_buf_printf(&path, "%s/profile.csv", im->options->folder);
    ds_status status = DS_OK;
    if (exists(path.text)) {
        status = ds_csv_read(path.text, &csv, im->err);
        if (status == DS_OK) {
            if (csv.rows.n) ds_buf_put(out, at(&csv, 0, "device"));
            ds_csv_deinit(&csv);
        }
    } else if (im->options->device) {
        ds_buf_put(out, im->options->device);
    } else {
        status = ds_error_set(im->err, DS_ERR_VALUE, DS_NOWHERE,
                              "%s has no profile.csv: a new profile needs --device",
                              im->options->folder);
    }
    ds_buf_deinit(&path);
    return status;
}

/* Is the device of the file another one than the profile's? Names that the catalogue does not know
 * ("NVIDIA H100 80GB HBM3") are compared by their first word, if that is one it knows. */
static ds_status compare_devices(importer *im, const ds_profiles *profiles, uint32_t kind) {
    static const char *const makers[] = {"NVIDIA ", "Tesla ", "AMD ", "Instinct "};
    const char *name = im->device, *canonical = ds_profiles_kind(profiles, kind)->name;
    char word[64];
    uint32_t other;
    ds_error ignored;
    for (uint32_t i = 0; i < COUNT(makers); i++)
        if (strncmp(name, makers[i], strlen(makers[i])) == 0) name += strlen(makers[i]);
    snprintf(word, sizeof word, "%.*s", (int)strcspn(name, " -"), name);
    bool same = true;
    if (ds_profiles_find_kind(profiles, name, DS_NOWHERE, &other, &ignored) == DS_OK)
        same = other == kind;
    else if (ds_profiles_find_kind(profiles, word, DS_NOWHERE, &other, &ignored) == DS_OK)
        same = strncasecmp(canonical, word, strlen(word)) == 0;
    if (same) return DS_OK;
    return ds_error_set(im->err, DS_ERR_DATA, DS_NOWHERE,
                        "%s was measured on '%s', the profile is of %s: another folder, with "
                        "--device",
                        im->options->file, im->device, canonical);
}

static ds_status check_device(importer *im) {
    ds_profiles *profiles;
    ds_buf device = {0};
    uint32_t kind;
    ds_status status = device_of(im, &device);
    if (status == DS_OK && device.n) {
        status = ds_profiles_load(im->options->profiles, &profiles, im->err);
        if (status == DS_OK) {
            status = ds_profiles_find_kind(profiles, device.text, DS_NOWHERE, &kind, im->err);
            if (status == DS_OK && *im->device) status = compare_devices(im, profiles, kind);
            ds_profiles_free(profiles);
        }
    }
    ds_buf_deinit(&device);
    return status;
}

/* ---- the folder ---- */

/* Makes a file of the folder with this text unless it is there. */
static ds_status make_file(importer *im, const char *name, const char *text) {
    ds_buf path = {0};
    ds_buf_printf(&path, "%s/%s", im->options->folder, name);
    ds_status status = exists(path.text)
                           ? DS_OK
                           : ds_output_write(path.text, DS_OUTPUT_NEW, text, strlen(text), im->err);
    ds_buf_deinit(&path);
    return status;
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

static ds_status make_profile(importer *im) {
    const profile_import_options *o = im->options;
    ds_buf path = {0}, text = {0};
    ds_buf_printf(&path, "%s/profile.csv", o->folder);
    bool there = exists(path.text);
    ds_buf_deinit(&path);
    if (there) return DS_OK;
    const char *cells[] = {o->name ? o->name : base_name(o->folder), o->device, "0",
                           o->software ? o->software : "not stated", im->source};
    ds_buf_put(&text, "name,device,issue_us,software,source\n");
    ds_csv_put_row(&text, cells, COUNT(cells));
    ds_status status = make_file(im, "profile.csv", text.text);
    ds_buf_deinit(&text);
    return status;
}

/* Appends a record to a table of the folder, in the order of that file's columns; `columns` and
 * `cells` name and hold what is known. */
static void put_record(const ds_csv *csv, const char *const *columns, const char *const *cells,
                       uint32_t n, ds_buf *out) {
    const char **record = ds_xcalloc(csv->n_columns, sizeof *record);
    for (uint32_t c = 0; c < csv->n_columns; c++) {
        record[c] = "";
        for (uint32_t i = 0; i < n; i++)
            if (strcmp(columns[i], csv->columns[c]) == 0) record[c] = cells[i];
    }
    ds_csv_put_row(out, record, csv->n_columns);
    free(record);
}

/* A table with all of `columns`: a row's cells would be lost otherwise. */
static ds_status check_columns(importer *im, const ds_csv *csv, const char *const *columns,
                               uint32_t n) {
    uint32_t ignored;
    for (uint32_t i = 0; i < n; i++) DS_TRY(ds_csv_need(csv, columns[i], &ignored, im->err));
    return DS_OK;
}

static ds_status append(const char *path, const ds_buf *records, ds_error *err) {
    ds_buf text = {0};
    ds_status status = ds_file_read(path, DS_NOWHERE, MAX_BYTES, &text, err);
    if (status == DS_OK && text.n && text.text[text.n - 1] != '\n') ds_buf_putc(&text, '\n');
    if (status == DS_OK && records->n) {
        ds_buf_put_n(&text, records->text, records->n);
        status = ds_output_write(path, DS_OUTPUT_OVERWRITE, text.text, text.n, err);
    }
    ds_buf_deinit(&text);
    return status;
}

static ds_status make_source(importer *im) {
    static const char *const columns[] = {"key", "title", "place", "revision", "licence"};
    const profile_import_options *o = im->options;
    const char *cells[] = {im->source, o->title ? o->title : "imported measurements",
                           o->place ? o->place : base_name(o->file), "",
                           o->licence ? o->licence : "facts"};
    DS_TRY(make_file(im, "sources.csv", "key,title,place,revision,licence\n"));
    ds_buf path = {0}, record = {0};
    ds_csv csv;
    ds_buf_printf(&path, "%s/sources.csv", o->folder);
    ds_status status = ds_csv_read(path.text, &csv, im->err);
    if (status == DS_OK) {
        bool known = false;
        uint32_t key = ds_csv_find(&csv, "key");
        for (uint32_t i = 0; key != DS_CSV_NO_COLUMN && i < csv.rows.n; i++)
            known = known || strcmp(csv.rows.at[i].cells[key], im->source) == 0;
        if (!known) put_record(&csv, columns, cells, COUNT(columns), &record);
        ds_csv_deinit(&csv);
        status = append(path.text, &record, im->err);
    }
    ds_buf_deinit(&record);
    ds_buf_deinit(&path);
    return status;
}

/* The rows of `text` (columns without source) into a file of the folder. */
static ds_status put_rows(importer *im, const char *file, const char *const *columns, uint32_t n,
                          const ds_buf *text) {
    ds_buf header = {0}, path = {0}, records = {0};
    const char *names[COUNT(op_columns) + 1], *cells[COUNT(op_columns) + 1];
    for (uint32_t i = 0; i < n; i++) {
        names[i] = columns[i];
        ds_buf_printf(&header, "%s,", columns[i]);
    }
    names[n] = "source";
    ds_buf_put(&header, "source\n");
    ds_buf_printf(&path, "%s/%s", im->options->folder, file);
    ds_csv old, rows;
    ds_status status = make_file(im, file, header.text);
    if (status == DS_OK) status = read_taken(im, file, columns, n, text, &rows);
    if (status == DS_OK) {
        status = ds_csv_read(path.text, &old, im->err);
        if (status == DS_OK) {
            status = check_columns(im, &old, names, n + 1);
            for (uint32_t r = 0; status == DS_OK && r < rows.rows.n; r++) {
                for (uint32_t c = 0; c < n; c++) cells[c] = rows.rows.at[r].cells[c];
                cells[n] = im->source;
                put_record(&old, names, cells, n + 1, &records);
            }
            ds_csv_deinit(&old);
        }
        ds_csv_deinit(&rows);
    }
    if (status == DS_OK) status = append(path.text, &records, im->err);
    ds_buf_deinit(&records);
    ds_buf_deinit(&path);
    ds_buf_deinit(&header);
    return status;
}

/* What build would refuse later is refused now, before anything is written. */
static ds_status check_all(importer *im) {
    DS_TRY(check_device(im));
    DS_TRY(check_rows(im, "ops.csv", op_columns, COUNT(op_columns), &im->ops, check_op));
    return check_rows(im, "collectives.csv", collective_columns, COUNT(collective_columns),
                      &im->collectives, check_collective);
}

static ds_status put_all(importer *im) {
    const char *folder = im->options->folder;
    DS_TRY(check_all(im));
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return ds_error_set(im->err, DS_ERR_IO, DS_NOWHERE, "cannot make %s: %s", folder,
                            strerror(errno));
    DS_TRY(make_profile(im));
    DS_TRY(make_source(im));
    if (im->n_ops) DS_TRY(put_rows(im, "ops.csv", op_columns, COUNT(op_columns), &im->ops));
    if (im->n_collectives)
        DS_TRY(put_rows(im, "collectives.csv", collective_columns, COUNT(collective_columns),
                        &im->collectives));
    printf("%s: %u measured ops, %u collectives into %s\n", im->options->file, im->n_ops,
           im->n_collectives, folder);
    return DS_OK;
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

static ds_status take_format(importer *im) {
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

/* A key of the letters, digits and dashes of the file's name. */
static void name_source(importer *im) {
    const char *text = im->options->source ? im->options->source : base_name(im->options->file);
    size_t n = 0;
    for (; *text && n + 1 < sizeof im->source; text++)
        im->source[n++] = isalnum((unsigned char)*text) ? (char)tolower((unsigned char)*text) : '-';
    im->source[n] = 0;
}

ds_status profile_import(const profile_import_options *options, ds_error *err) {
    importer im = {.options = options, .err = err};
    name_source(&im);
    ds_status status = take_format(&im);
    if (status == DS_OK) status = put_all(&im);
    ds_buf_deinit(&im.ops);
    ds_buf_deinit(&im.collectives);
    return status;
}
