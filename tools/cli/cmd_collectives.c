/* distsim collectives TOPOLOGY TABLE.csv --profile NAME: measured collectives beside predicted
 * ones.
 *
 * The table has the columns collective, group_size, size_bytes (as nccl-tests counts it) and
 * time_us. A group is the topology's first devices. Printed for each row: bus bandwidth, which is
 * the size over the time, times 2(n−1)/n for an all_reduce, (n−1)/n for gathers, scatters and
 * all_to_all, and 1 for the rest (nccl-tests PERFORMANCE.md). */
#include "ir/base/csv.h"
#include "ir/base/units.h"
#include "sim/coll/coll.h"
#include "tools/cli/cli.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct arguments {
    cli_options common;
    const char *topology, *table, *profile;
    bool brief;
} arguments;

enum { OPT_PROFILE = 0x700, OPT_BRIEF };

static const struct argp_option options_table[] = {
    {"profile", OPT_PROFILE, "NAME", 0,
     "Launch, step and efficiency of this profile; default: latency and bandwidth alone", 0},
    {"brief", OPT_BRIEF, NULL, 0, "Only the errors of each collective and group size", 0},
    {0}};

static error_t parse_argument(int key, char *arg, struct argp_state *state) {
    arguments *args = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &args->common;
        return 0;
    case OPT_PROFILE:
        args->profile = arg;
        return 0;
    case OPT_BRIEF:
        args->brief = true;
        return 0;
    case ARGP_KEY_ARG:
        if (args->table) return ARGP_ERR_UNKNOWN;
        *(args->topology ? &args->table : &args->topology) = arg;
        return 0;
    case ARGP_KEY_END:
        if (!args->table) argp_usage(state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = {{&cli_argp, 0, NULL, 0}, {0}};
static const struct argp parser = {
    .options = options_table,
    .parser = parse_argument,
    .args_doc = "TOPOLOGY.dir TABLE.csv",
    .doc = "Predict measured collectives and print bus bandwidth against size."
           "\vThe file's last topology counts; a group is its first devices. TABLE.csv has the "
           "columns collective, group_size, size_bytes and time_us.",
    .children = children};

/* A row as numbers, and what is predicted for it. */
typedef struct line {
    ds_opcode op;
    uint32_t n;
    int64_t bytes;
    double measured_us, predicted_us;
    const char *algorithm;
} line;

static ds_status read_row(const ds_csv *csv, const ds_csv_row *row, const uint32_t *column,
                          uint32_t n_devices, line *out, ds_error *err) {
    const char *name = row->cells[column[0]];
    out->op = DS_OP_INVALID;
    for (ds_opcode op = DS_OP_ALL_REDUCE; op <= DS_OP_PERMUTE; op++)
        if (strcmp(ds_op_name(op), name) == 0 && op != DS_OP_RECV) out->op = op;
    char *end[3];
    unsigned long n = strtoul(row->cells[column[1]], &end[0], 10);
    out->bytes = strtoll(row->cells[column[2]], &end[1], 10);
    out->measured_us = strtod(row->cells[column[3]], &end[2]);
    bool numbers = !*end[0] && !*end[1] && !*end[2];
    if (out->op == DS_OP_INVALID) return ds_csv_error(csv, row, err, "'%s' is no collective", name);
    if (!numbers || out->bytes <= 0 || !(out->measured_us > 0) || isinf(out->measured_us))
        return ds_csv_error(csv, row, err, "a size or time that is no number above 0");
    if (n < 2 || n > n_devices)
        return ds_csv_error(csv, row, err, "a group of %lu: the topology has %u devices", n,
                            n_devices);
    out->n = (uint32_t)n;
    return DS_OK;
}

static ds_status predict(ds_topo *topo, const ds_profiles *profiles, uint32_t profile, line *l,
                         ds_error *err) {
    ds_arena arena;
    ds_arena_init(&arena);
    uint32_t *devices = DS_NEW_N(&arena, uint32_t, l->n);
    for (uint32_t i = 0; i < l->n; i++) devices[i] = i;
    ds_coll_request request = {
        .op = l->op, .devices = devices, .n = l->n, .bytes = l->bytes, .shift = 1};
    ds_coll_cost terms;
    ds_coll_choice choice = {0};
    ds_coll_links links;
    ds_status status = ds_coll_links_of(topo, &request, &links, err);
    if (status == DS_OK)
        status = ds_cost_collective(profiles, profile, ds_op_name(l->op), l->n, l->bytes, links,
                                    &terms, NULL, err);
    if (status == DS_OK) status = ds_coll_choose(topo, &request, &terms, &arena, &choice, err);
    l->predicted_us = (double)choice.ps / 1e6;
    l->algorithm = choice.algorithm;
    ds_arena_deinit(&arena);
    return status;
}

static double bus_gb_per_s(const line *l, double us) {
    double n = l->n, factor = 1;
    if (l->op == DS_OP_ALL_REDUCE) factor = 2 * (n - 1) / n;
    if (l->op == DS_OP_ALL_GATHER || l->op == DS_OP_REDUCE_SCATTER || l->op == DS_OP_ALL_TO_ALL ||
        l->op == DS_OP_GATHER || l->op == DS_OP_SCATTER)
        factor = (n - 1) / n;
    return (double)l->bytes * factor / us / 1e3;
}

static double error_of(const line *l) { /* of the bus bandwidth, so of 1 / time */
    return l->measured_us / l->predicted_us - 1;
}

static void put_lines(const line *lines, uint32_t n, ds_buf *out) {
    ds_buf_put(out,
               "| collective | over | bytes | measured, GB/s | predicted, GB/s | error | by |\n"
               "|---|---|---|---|---|---|---|\n");
    for (uint32_t i = 0; i < n; i++) {
        const line *l = &lines[i];
        ds_buf_printf(out, "| %s | %u | %" PRId64 " | %.2f | %.2f | %+.1f %% | %s |\n",
                      ds_op_name(l->op), l->n, l->bytes, bus_gb_per_s(l, l->measured_us),
                      bus_gb_per_s(l, l->predicted_us), error_of(l) * 100, l->algorithm);
    }
    ds_buf_putc(out, '\n');
}

static void put_errors(const line *lines, uint32_t n, ds_opcode op, uint32_t group, ds_buf *out) {
    double sum = 0, bias = 0, most = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (op != DS_OP_INVALID && (lines[i].op != op || lines[i].n != group)) continue;
        double e = error_of(&lines[i]);
        sum += fabs(e);
        bias += e;
        if (fabs(e) > most) most = fabs(e);
        count++;
    }
    if (!count) return;
    if (op == DS_OP_INVALID)
        ds_buf_put(out, "all");
    else
        ds_buf_printf(out, "%s over %u", ds_op_name(op), group);
    ds_buf_printf(out, ": n = %u, mean |error| %.1f %%, mean error %+.1f %%, largest %.1f %%\n",
                  count, sum / count * 100, bias / count * 100, most * 100);
}

static ds_status fill(const arguments *args, ds_topo *topo, const ds_profiles *profiles,
                      const ds_csv *csv, line *lines, ds_error *err) {
    static const char *const names[] = {"collective", "group_size", "size_bytes", "time_us"};
    uint32_t column[4], profile = 0;
    for (int i = 0; i < 4; i++) DS_TRY(ds_csv_need(csv, names[i], &column[i], err));
    if (args->profile)
        DS_TRY(ds_profiles_find_profile(profiles, args->profile, DS_NOWHERE, &profile, err));
    for (uint32_t i = 0; i < csv->rows.n; i++) {
        DS_TRY(read_row(csv, &csv->rows.at[i], column, ds_topo_n_devices(topo), &lines[i], err));
        DS_TRY(predict(topo, profiles, profile, &lines[i], err));
    }
    return DS_OK;
}

static ds_status show(const arguments *args, const cli_source *source, ds_error *err) {
    const ds_module *module = source->unit->modules.at[0];
    if (!module->topologies.n)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE, "%s has no topology", args->topology);
    ds_topo *topo = NULL;
    ds_profiles *profiles = NULL;
    ds_csv csv = {0};
    DS_TRY(ds_csv_read(args->table, &csv, err));
    line *lines = ds_xcalloc(csv.rows.n, sizeof *lines);
    ds_status status = ds_topo_build(&source->binding,
                                     module->topologies.at[module->topologies.n - 1], &topo, err);
    if (status == DS_OK) status = ds_profiles_load(args->common.profiles, &profiles, err);
    if (status == DS_OK) status = fill(args, topo, profiles, &csv, lines, err);
    if (status == DS_OK) {
        ds_buf text = {0};
        if (!args->brief) put_lines(lines, csv.rows.n, &text);
        for (ds_opcode op = DS_OP_ALL_REDUCE; op <= DS_OP_PERMUTE; op++)
            for (uint32_t n = 2; n <= ds_topo_n_devices(topo); n++)
                put_errors(lines, csv.rows.n, op, n, &text);
        put_errors(lines, csv.rows.n, DS_OP_INVALID, 0, &text);
        status = cli_write("-", text.text ? text.text : "", text.n, err);
        ds_buf_deinit(&text);
    }
    ds_profiles_free(profiles);
    ds_topo_free(topo);
    ds_csv_deinit(&csv);
    free(lines);
    return status;
}

int cmd_collectives(int argc, char **argv) {
    arguments args = {0};
    argp_parse(&parser, argc, argv, 0, NULL, &args);
    cli_source source;
    ds_error err = {0};
    ds_status status = cli_open(args.topology, &args.common, &source);
    int exit_code = ds_status_exit_code(status);
    if (status == DS_OK && show(&args, &source, &err) != DS_OK)
        exit_code = cli_fail(source.unit, &err);
    cli_close(&source);
    cli_options_deinit(&args.common);
    return exit_code;
}
