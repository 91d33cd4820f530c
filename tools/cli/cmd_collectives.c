/* distsim collectives TOPOLOGY TABLE.csv --profile NAME, or distsim collectives --machines
 * LIST.csv: measured collectives beside predicted ones.
 *
 * The table is that of sim/coll/measured.h: collective, group_size, size_bytes (as nccl-tests
 * counts it), time_us, and perhaps split and devices. Bus bandwidth is printed for each row, and
 * the error of the predicted one for each collective, group and split. LIST.csv has the columns
 * machine, topology, table and profile, paths from its own folder; after all machines comes one
 * line each. */
#include "ir/base/csv.h"
#include "ir/base/units.h"
#include "sim/coll/measured.h"
#include "tools/cli/cli.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct arguments {
    cli_options common;
    const char *topology, *table, *profile, *machines;
    bool brief;
} arguments;

static void read_word(void *arguments_, char *word, struct argp_state *state) {
    arguments *args = arguments_;
    if (args->table || args->machines) argp_error(state, "Too many arguments");
    *(args->topology ? &args->table : &args->topology) = word;
}

static void check_usage(void *arguments_, struct argp_state *state) {
    const arguments *args = arguments_;
    if (!args->table == !args->machines) argp_usage(state);
    if (args->machines && args->profile)
        argp_error(state, "--profile %s: every machine of --machines names its own", args->profile);
}

#define AT(member) offsetof(arguments, member)
static const cli_option option_rows[] = {
    {CLI_TEXT, AT(profile), "profile", 0, "NAME",
     .help = "Launch, step and efficiency of this profile; default: latency and bandwidth alone"},
    {CLI_INPUT, AT(machines), "machines", 0, "LIST.csv",
     .help = "Every machine of a list with the columns machine, topology, table and profile"},
    {CLI_FLAG, AT(brief), "brief", 0, NULL,
     .help = "Only the errors of each collective, group and split"},
    {0}};

const cli_verb cli_verb_collectives = {
    .options = option_rows,
    .takes = CLI_IMPORTS | CLI_SETS | CLI_DATABASE,
    .word = read_word,
    .may_lack_words = true,
    .check = check_usage,
    .args_doc = "TOPOLOGY.dir TABLE.csv\n--machines LIST.csv",
    .doc = "Predict measured collectives and print bus bandwidth against size."
           "\vThe file's last topology counts. TABLE.csv has the columns collective, group_size, "
           "size_bytes and time_us, and may have split (fit: the profile's constants saw the row; "
           "held: they did not; aux: not counted) and devices (0-3 8-11; without them a group is "
           "the first devices). LIST.csv has paths from its own folder. A prediction for a kind of "
           "link, a number of nodes, a group or a size beyond the rows that the profile was fitted "
           "to is marked extrapolated, with the times between which nine in ten lie."};

/* A row, and what is predicted for it. */
typedef struct line {
    ds_measured measured;
    double predicted_us;
    bool extrapolated;
    double low_us, high_us; /* of an extrapolated one: nine in ten lie between */
    const char *algorithm;
} line;

static ds_status predict_line(ds_topo *topo, const ds_profiles *profiles, uint32_t profile, line *l,
                              ds_error *err) {
    const ds_coll_request *q = &l->measured.request;
    ds_arena arena;
    ds_arena_init(&arena);
    ds_coll_cost terms;
    ds_coll_choice choice = {0};
    ds_coll_links links;
    ds_status status = ds_coll_links_of(topo, q, &links, err);
    if (status == DS_OK)
        status = ds_cost_collective(profiles, profile,
                                    &(ds_coll_demand){ds_op_name(q->op), q->n, q->bytes, links},
                                    &terms, NULL, err);
    if (status == DS_OK) status = ds_coll_choose(topo, q, &terms, &arena, &choice, err);
    l->predicted_us = (double)choice.ps / 1e6;
    l->algorithm = choice.algorithm;
    l->extrapolated = terms.extrapolated;
    l->low_us = l->predicted_us * terms.spread.low;
    l->high_us = l->predicted_us * terms.spread.high;
    ds_arena_deinit(&arena);
    return status;
}

static double error_of(const line *l) { /* of the bus bandwidth, so of 1 / time */
    return l->measured.us / l->predicted_us - 1;
}

static const char *split_of(const ds_measured *m) {
    return m->aux ? "aux" : m->held ? "held" : "fit";
}

/* The group as the table names it: its size, and where it is not simply the first devices, those
 * of each run of indices. */
static void put_group(const ds_measured *m, ds_buf *out) {
    const ds_coll_request *q = &m->request;
    ds_buf_printf(out, "%u", q->n);
    for (uint32_t i = 0, n; m->has_groups && i < q->n; i += n) {
        for (n = 1; i + n < q->n && q->devices[i + n] == q->devices[i] + n; n++) {
        }
        ds_buf_printf(out, "%s%u", i ? " " : " (", q->devices[i]);
        if (n > 1) ds_buf_printf(out, "-%u", q->devices[i + n - 1]);
    }
    if (m->has_groups) ds_buf_putc(out, ')');
}

static void put_lines(const line *lines, uint32_t n, bool split, ds_buf *out) {
    ds_buf_printf(out,
                  "| collective | over | bytes | measured, us | predicted, us | measured, GB/s | "
                  "predicted, GB/s | error | by |%s\n|---|---|---|---|---|---|---|---|---|%s\n",
                  split ? " split |" : "", split ? "---|" : "");
    for (uint32_t i = 0; i < n; i++) {
        const line *l = &lines[i];
        const ds_measured *m = &l->measured;
        ds_buf_printf(out, "| %s | ", ds_op_name(m->request.op));
        put_group(m, out);
        ds_buf_printf(out, " | %" PRId64 " | %.2f | %.2f | %.2f | %.2f | %+.1f %% | %s",
                      m->request.bytes, m->us, l->predicted_us, ds_measured_bus_gb_per_s(m, m->us),
                      ds_measured_bus_gb_per_s(m, l->predicted_us), error_of(l) * 100,
                      l->algorithm);
        if (l->extrapolated)
            ds_buf_printf(out, ", extrapolated: %.2f to %.2f us", l->low_us, l->high_us);
        ds_buf_put(out, " |");
        if (split) ds_buf_printf(out, " %s |", split_of(m));
        ds_buf_putc(out, '\n');
    }
    ds_buf_putc(out, '\n');
}

/* ---- errors ---- */

typedef struct errors {
    uint32_t n;
    uint32_t n_extrapolated, n_within; /* their intervals */
    double sum, bias, most;
} errors;

static bool same_group(const ds_measured *a, const ds_measured *b) {
    const ds_coll_request *p = &a->request, *q = &b->request;
    return p->op == q->op && p->n == q->n &&
           memcmp(p->devices, q->devices, p->n * sizeof *p->devices) == 0;
}

/* Of the rows of one group (NULL: all) that are held, fitted, aux, or fitted or held (`split`
 * NULL). */
static errors errors_of(const line *lines, uint32_t n, const ds_measured *group,
                        const char *split) {
    errors e = {0};
    for (uint32_t i = 0; i < n; i++) {
        const ds_measured *m = &lines[i].measured;
        if (group && !same_group(group, m)) continue;
        if (split ? strcmp(split, split_of(m)) != 0 : m->aux) continue;
        double error = error_of(&lines[i]);
        e.n++;
        e.sum += fabs(error);
        e.bias += error;
        e.n_extrapolated += lines[i].extrapolated;
        e.n_within +=
            lines[i].extrapolated && m->us >= lines[i].low_us && m->us <= lines[i].high_us;
        if (fabs(error) > e.most) e.most = fabs(error);
    }
    return e;
}

static void put_errors(const errors *e, const char *split, ds_buf *out) {
    if (!e->n) return;
    ds_buf_printf(out, "%s%s: n = %u, mean |error| %.1f %%, mean error %+.1f %%, largest %.1f %%",
                  split ? ", " : "", split ? split : "", e->n, e->sum / e->n * 100,
                  e->bias / e->n * 100, e->most * 100);
    if (e->n_extrapolated)
        ds_buf_printf(out, "; extrapolated %u, of which %u within their intervals",
                      e->n_extrapolated, e->n_within);
    ds_buf_putc(out, '\n');
}

static void put_errors_of(const line *lines, uint32_t n, const ds_measured *group, bool split,
                          ds_buf *out) {
    static const char *const splits[] = {"fit", "held", "aux"};
    for (int i = 0; i < (split ? 3 : 1); i++) {
        const char *which = split ? splits[i] : NULL;
        errors e = errors_of(lines, n, group, which);
        if (!e.n) continue;
        if (group) {
            ds_buf_printf(out, "%s over ", ds_op_name(group->request.op));
            put_group(group, out);
        } else
            ds_buf_put(out, "all");
        put_errors(&e, which, out);
    }
}

/* ---- one machine ---- */

typedef struct machine {
    const char *name, *topology, *table, *profile; /* name NULL: the one of the command line */
    cli_options *common;
    bool brief;
    errors fit, held, aux;
} machine;

static bool is_first_of_group(const line *lines, uint32_t i) {
    for (uint32_t k = 0; k < i; k++)
        if (same_group(&lines[k].measured, &lines[i].measured)) return false;
    return true;
}

static void put_machine(machine *m, const line *lines, uint32_t n, bool split, ds_buf *out) {
    if (m->name) ds_buf_printf(out, "## %s: %s\n\n", m->name, m->profile);
    if (!m->brief) put_lines(lines, n, split, out);
    for (uint32_t i = 0; i < n; i++)
        if (is_first_of_group(lines, i)) put_errors_of(lines, n, &lines[i].measured, split, out);
    put_errors_of(lines, n, NULL, split, out);
    if (m->name) ds_buf_putc(out, '\n');
    m->fit = errors_of(lines, n, NULL, "fit");
    m->held = errors_of(lines, n, NULL, "held");
    m->aux = errors_of(lines, n, NULL, "aux");
}

static ds_status fill(machine *m, ds_topo *topo, const ds_csv *csv, ds_buf *out, ds_error *err) {
    uint32_t profile = 0, n = csv->rows.n;
    ds_profiles *profiles = NULL;
    ds_measured *measured = NULL;
    ds_arena arena;
    ds_arena_init(&arena);
    line *lines = ds_xcalloc(n, sizeof *lines);
    ds_status status = ds_measured_read(csv, ds_topo_n_devices(topo), &arena, &measured, err);
    if (status == DS_OK) status = ds_profiles_load(m->common->profiles, &profiles, err);
    if (status == DS_OK && m->profile)
        status = ds_profiles_find_profile(profiles, m->profile, DS_NOWHERE, &profile, err);
    for (uint32_t i = 0; i < n && status == DS_OK; i++) {
        lines[i].measured = measured[i];
        status = predict_line(topo, profiles, profile, &lines[i], err);
        if (status == DS_OK) continue;
        ds_error why = *err;
        status = ds_csv_error(csv, &csv->rows.at[i], err, "%s", why.message);
    }
    bool split = ds_csv_find(csv, "split") != DS_CSV_NO_COLUMN;
    if (status == DS_OK) put_machine(m, lines, n, split, out);
    ds_profiles_free(profiles);
    free(lines);
    ds_arena_deinit(&arena);
    return status;
}

static ds_status show(machine *m, const cli_source *source, ds_buf *out, ds_error *err) {
    const ds_module *module = source->unit->modules.at[0];
    if (!module->topologies.n)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE, "%s has no topology", m->topology);
    ds_topo *topo = NULL;
    ds_csv csv = {0};
    DS_TRY(ds_csv_read(m->table, &csv, err));
    ds_status status = ds_topo_build(&source->binding,
                                     module->topologies.at[module->topologies.n - 1], &topo, err);
    if (status == DS_OK) status = fill(m, topo, &csv, out, err);
    ds_topo_free(topo);
    ds_csv_deinit(&csv);
    return status;
}

/* Returns the exit code. */
static int run_machine(machine *m, ds_buf *out) {
    cli_source source;
    ds_error err = {0};
    ds_status status = cli_open(m->topology, m->common, &source);
    int exit_code = ds_status_exit_code(status);
    if (status == DS_OK && show(m, &source, out, &err) != DS_OK)
        exit_code = cli_fail(source.unit, &err);
    cli_close(&source);
    return exit_code;
}

/* ---- all machines ---- */

static void put_summary(const machine *m, ds_buf *out) {
    ds_buf_printf(out, "| %s | %s |", m->name, m->profile);
    const errors *each[] = {&m->fit, &m->held, &m->aux};
    for (int i = 0; i < 3; i++) {
        const errors *e = each[i];
        if (e->n)
            ds_buf_printf(out, " %u | %.1f %% | %.1f %% |", e->n, e->sum / e->n * 100,
                          e->most * 100);
        else
            ds_buf_put(out, " 0 | | |");
    }
    ds_buf_putc(out, '\n');
}

/* "folder of `list`/path", in `arena`. */
static const char *beside(ds_arena *arena, const char *list, const char *path) {
    const char *slash = strrchr(list, '/');
    int folder = slash ? (int)(slash - list) + 1 : 0;
    return *path == '/' ? path : ds_arena_printf(arena, "%.*s%s", folder, list, path);
}

static int run_list(arguments *args, ds_csv *csv, const uint32_t *column, ds_buf *out) {
    ds_buf summary = {0};
    int exit_code = 0;
    ds_buf_put(&summary,
               "| machine | profile | rows fitted | mean error | largest | rows held back "
               "| mean error | largest | rows not counted | mean error | largest |\n"
               "|---|---|---|---|---|---|---|---|---|---|---|\n");
    for (uint32_t i = 0; i < csv->rows.n && !exit_code; i++) {
        const char **cells = csv->rows.at[i].cells;
        machine m = {.name = cells[column[0]],
                     .topology = beside(&csv->arena, args->machines, cells[column[1]]),
                     .table = beside(&csv->arena, args->machines, cells[column[2]]),
                     .profile = cells[column[3]],
                     .common = &args->common,
                     .brief = args->brief};
        exit_code = run_machine(&m, out);
        if (!exit_code) put_summary(&m, &summary);
    }
    ds_buf_put_n(out, summary.text, summary.n);
    ds_buf_deinit(&summary);
    return exit_code;
}

static int run_machines(arguments *args, ds_buf *out) {
    static const char *const names[] = {"machine", "topology", "table", "profile"};
    ds_csv csv;
    ds_error err = {0};
    uint32_t column[4];
    if (ds_csv_read(args->machines, &csv, &err) != DS_OK) return cli_fail(NULL, &err);
    ds_status status = DS_OK;
    for (int i = 0; i < 4 && status == DS_OK; i++)
        status = ds_csv_need(&csv, names[i], &column[i], &err);
    int exit_code = status == DS_OK ? run_list(args, &csv, column, out) : cli_fail(NULL, &err);
    ds_csv_deinit(&csv);
    return exit_code;
}

int cmd_collectives(int argc, char **argv) {
    arguments args = {0};
    ds_buf out = {0};
    ds_error err = {0};
    cli_parse(&cli_verb_collectives, argc, argv, &args);
    machine m = {.topology = args.topology,
                 .table = args.table,
                 .profile = args.profile,
                 .common = &args.common,
                 .brief = args.brief};
    int exit_code = args.machines ? run_machines(&args, &out) : run_machine(&m, &out);
    if (!exit_code && cli_print(out.text ? out.text : "", out.n, &err) != DS_OK)
        exit_code = cli_fail(NULL, &err);
    ds_buf_deinit(&out);
    cli_options_deinit(&args.common);
    return exit_code;
}
