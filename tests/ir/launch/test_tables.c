/* The tables of arguments against the frameworks' own lists (tests/data/launch, with sources): no
 * argument without a line, no line without an argument. */
#include "ir/base/csv.h"
#include "ir/launch/internal.h"

#include <criterion/criterion.h>
#include <ctype.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#define DATA DS_TEST_DIR "/data/launch/"

static const char *cell(const ds_csv *csv, const ds_csv_row *row, const char *column) {
    uint32_t i = ds_csv_find(csv, column);
    cr_assert_neq(i, DS_CSV_NO_COLUMN, "%s", column);
    return row->cells[i];
}

static void read(const char *file, ds_csv *csv) {
    ds_error err = {0};
    cr_assert_eq(ds_csv_read(file, csv, &err), DS_OK, "%s", err.message);
}

/* The first class whose pattern fits the name; n_classes: none. */
static uint32_t class_of(const ds_arg_table *table, const char *name) {
    uint32_t i = 0;
    while (i < table->n_classes && fnmatch(table->classes[i].pattern, name, 0) != 0) i++;
    return i;
}

Test(launch_tables, megatron_knows_all_arguments) {
    ds_csv csv;
    read(DATA "megatron_args.csv", &csv);
    cr_assert_gt(csv.rows.n, 700);
    for (uint32_t i = 0; i < csv.rows.n; i++) {
        const char *name = cell(&csv, &csv.rows.at[i], "argument");
        cr_expect(ds_launch__knows(&ds_megatron__table, name), "%s", name);
    }
    ds_csv_deinit(&csv);
}

/* A log has the name of the variable, which an argument that takes something away turns around. */
Test(launch_tables, megatron_knows_all_names_of_logs) {
    ds_csv csv;
    read(DATA "megatron_args.csv", &csv);
    for (uint32_t i = 0; i < csv.rows.n; i++) {
        const char *argument = cell(&csv, &csv.rows.at[i], "argument"),
                   *dest = cell(&csv, &csv.rows.at[i], "dest");
        char name[120];
        bool is_key = false;
        snprintf(name, sizeof name, *dest ? "--%s" : "%s", *dest ? dest : argument);
        for (char *c = name; *c; c++)
            if (*c == '_') *c = '-';
        for (uint32_t k = 0; k < ds_megatron__table.n_args; k++) {
            const char *key = ds_megatron__table.args[k].key;
            is_key = is_key || (key && strcmp(key, dest) == 0);
        }
        cr_expect(is_key || ds_launch__knows(&ds_megatron__table, name), "%s", name);
    }
    ds_csv_deinit(&csv);
}

/* Arguments that are written are those of both versions; one that 2026 lacks is read alone. */
Test(launch_tables, megatron_has_the_arguments_of_the_table) {
    ds_csv csv;
    read(DATA "megatron_args.csv", &csv);
    for (uint32_t k = 0; k < ds_megatron__table.n_args; k++) {
        const char *name = ds_megatron__table.args[k].name;
        const ds_csv_row *row = NULL;
        for (uint32_t i = 0; i < csv.rows.n; i++)
            if (strcmp(cell(&csv, &csv.rows.at[i], "argument"), name) == 0) row = &csv.rows.at[i];
        cr_assert(row, "%s", name);
        cr_expect_str_eq(cell(&csv, row, "in_2025_09"), "yes", "%s", name);
        if (strcmp(name, "--no-scatter-gather-tensors-in-pipeline") != 0)
            cr_expect_str_eq(cell(&csv, row, "in_2026_08"), "yes", "%s", name);
        const char *initial = ds_megatron__table.args[k].initial,
                   *theirs = cell(&csv, row, "default");
        if (initial && strcmp(name, "--cp-comm-type") != 0 &&
            strcmp(name, "--recompute-modules") != 0)
            cr_expect(strstr(theirs, initial) == theirs || strstr(theirs, initial) == theirs + 1,
                      "%s: %s and %s", name, initial, theirs);
    }
    ds_csv_deinit(&csv);
}

/* No pattern stands behind patterns that take all its names. */
Test(launch_tables, megatron_has_no_idle_pattern) {
    ds_csv csv;
    bool used[512] = {false}, past = false;
    read(DATA "megatron_args.csv", &csv);
    cr_assert_lt(ds_megatron__table.n_classes, 512);
    for (uint32_t i = 0; i < csv.rows.n; i++)
        used[class_of(&ds_megatron__table, cell(&csv, &csv.rows.at[i], "argument"))] = true;
    for (uint32_t k = 0; k < ds_megatron__table.n_classes; k++) {
        const char *pattern = ds_megatron__table.classes[k].pattern;
        bool of_logs = strcmp(pattern, "--align-*") == 0; /* the first that logs alone have … */
        past = past || strcmp(pattern, "--activation-func-clamp-value") == 0; /* … and after them */
        if (of_logs)
            while (strcmp(ds_megatron__table.classes[k + 1].pattern,
                          "--activation-func-clamp-value") != 0)
                k++;
        else
            cr_expect(used[k], "%s", pattern);
    }
    cr_assert(past);
    ds_csv_deinit(&csv);
}

/* The section of a class: Parallelism and ParallelismConfig are parallelism. */
static void section_of(const char *class, char out[60]) {
    static const char *const odd[][2] = {{"LRScheduler", "lr_scheduler"},
                                         {"Float8Linear", "quantize.linear.float8"},
                                         {"Float8GroupedMM", "quantize.grouped_mm.float8"},
                                         {"MXLinear", "quantize.linear.mx"},
                                         {"MXGroupedMM", "quantize.grouped_mm.mx"},
                                         {"QuantizedLinear", "quantize.linear"},
                                         {"QuantizedGroupedMM", "quantize.grouped_mm"}};
    size_t n = 0;
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        if (strcmp(odd[i][0], class) == 0) {
            snprintf(out, 60, "%s", odd[i][1]);
            return;
        }
    for (const char *c = class; *c && strcmp(c, "Config") != 0; c++) {
        if (isupper((unsigned char)*c) && c > class) out[n++] = '_';
        out[n++] = (char)tolower((unsigned char)*c);
    }
    out[n] = 0;
}

Test(launch_tables, torchtitan_knows_all_fields) {
    ds_csv csv;
    read(DATA "torchtitan_config.csv", &csv);
    cr_assert_gt(csv.rows.n, 200);
    for (uint32_t i = 0; i < csv.rows.n; i++) {
        const char *class = cell(&csv, &csv.rows.at[i], "class");
        char section[60], name[160];
        if (strcmp(class, "JobConfig") == 0) continue;
        section_of(class, section);
        snprintf(name, sizeof name, "%s.%s", section, cell(&csv, &csv.rows.at[i], "field"));
        cr_expect(ds_launch__knows(&ds_torchtitan__table, name), "%s", name);
    }
    ds_csv_deinit(&csv);
}

/* Fields of no list: 2026 names the model by --module and --config; training.batch_size is older. */
Test(launch_tables, torchtitan_has_the_fields_of_the_table) {
    ds_csv csv;
    read(DATA "torchtitan_config.csv", &csv);
    for (uint32_t k = 0; k < ds_torchtitan__table.n_args; k++) {
        const char *wanted = ds_torchtitan__table.args[k].name;
        bool found = !strchr(wanted, '.') || strcmp(wanted, "training.batch_size") == 0;
        for (uint32_t i = 0; i < csv.rows.n; i++) {
            char section[60], name[160];
            section_of(cell(&csv, &csv.rows.at[i], "class"), section);
            snprintf(name, sizeof name, "%s.%s", section, cell(&csv, &csv.rows.at[i], "field"));
            found = found || strcmp(name, wanted) == 0;
        }
        cr_expect(found, "%s", wanted);
    }
    ds_csv_deinit(&csv);
}

/* The manual's sections are headings, not objects of the file: a key is known by itself or in one of
 * these objects. */
Test(launch_tables, deepspeed_knows_all_keys) {
    static const char *const objects[][2] = {
        {"ZeRO Optimizations for FP16 Training", "zero_optimization"},
        {"Autotuning", "autotuning"},
        {"Flops Profiler", "flops_profiler"},
        {"Activation Checkpointing", "activation_checkpointing"},
        {"Data Efficiency", "data_efficiency"},
        {"Curriculum Learning", "curriculum_learning"},
        {"Checkpoint options", "checkpoint"},
        {"Data Type options", "data_types"},
        {"Layer Reduction", "compression_training.layer_reduction"},
        {"Weight Quantization", "compression_training.weight_quantization"},
        {"Activation Quantization", "compression_training.activation_quantization"},
        {"Sparse Pruning", "compression_training.sparse_pruning"},
        {"Row Pruning", "compression_training.row_pruning"},
        {"Head Pruning", "compression_training.head_pruning"},
        {"Channel Pruning", "compression_training.channel_pruning"}};
    ds_csv csv;
    read(DATA "deepspeed_config.csv", &csv);
    for (uint32_t i = 0; i < csv.rows.n; i++) {
        const char *section = cell(&csv, &csv.rows.at[i], "section"),
                   *key = cell(&csv, &csv.rows.at[i], "key"),
                   *type = cell(&csv, &csv.rows.at[i], "type"), *object = NULL;
        char name[160];
        for (size_t k = 0; k < sizeof objects / sizeof *objects; k++)
            if (strcmp(objects[k][0], section) == 0) object = objects[k][1];
        snprintf(name, sizeof name, "%s%s%s%s", object ? object : "", object ? "." : "", key,
                 strcmp(type, "[dictionary]") == 0 ? ".enabled" : "");
        for (char *c = name; *c; c++)
            if (*c == ':') *c = '.';
        bool is_heading = object && strstr(name, ".enabled") && strstr(name, object) == name &&
                          strcmp(key, "zero_optimization") == 0;
        cr_expect(is_heading || ds_launch__knows(&ds_deepspeed__table, name), "%s", name);
    }
    ds_csv_deinit(&csv);
}
