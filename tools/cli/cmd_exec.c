/* distsim exec FILE: runs the program of a file on real numbers, and compares two programs. */
#include "ir/base/map.h"
#include "ir/base/units.h"
#include "ir/exec/exec.h"
#include "ir/exec/npy.h"
#include "ir/passes/passes.h"
#include "ir/strategy/scenario.h"
#include "tools/cli/cli.h"
#include "tools/cli/exec_verify.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct arguments {
    cli_options common;
    const char *file, *against, *output, *entry, *pass;
    cli_texts inputs; /* name=file.npy */
    int64_t seed, step, max_bytes;
    bool emulate, quiet, seed_given, verify, train;
} arguments;

static void read_bytes(void *place, char *text, struct argp_state *state) {
    char *end;
    double value = strtod(text, &end);
    ds_unit_id unit = DS_UNIT_BYTE;
    end += strspn(end, " ");
    bool known = !*end || ds_unit_parse(end, strlen(end), &unit);
    if (!known || ds_unit_dimension(unit) != 'B' || !(value > 0) ||
        value * ds_unit_scale(unit) >= 0x1p62)
        argp_error(state, "--max-bytes needs a size such as 500MB or 8GiB, got '%s'", text);
    *(int64_t *)place = (int64_t)(value * ds_unit_scale(unit));
}

static void read_input(void *place, char *text, struct argp_state *state) {
    arguments *args = place;
    const char *equals = strchr(text, '=');
    if (!equals) argp_error(state, "--input needs NAME=FILE.npy, got '%s'", text);
    if (equals) cli_input(&args->common, equals + 1);
    DS_HPUSH(&args->inputs, text);
}

static void read_verify(void *place, char *pass, struct argp_state *state) {
    arguments *args = place;
    args->verify = true;
    args->pass = pass;
    if (pass && ds_pass_by_name(pass) == DS_PASS_COUNT)
        argp_error(state, "--verify=%s: there is no such pass", pass);
}

static void check_usage(void *arguments_, struct argp_state *state) {
    const arguments *args = arguments_;
    if (args->verify && (args->train || args->against || args->inputs.n || args->output ||
                         args->entry || args->emulate || args->step))
        argp_error(state, "--verify goes with --seed, --max-bytes and --quiet only");
    if (args->train && args->entry)
        argp_error(state, "--train-step and --entry exclude each other");
}

#define AT(member) offsetof(arguments, member)
static const cli_option option_rows[] = {
    {CLI_I64, AT(seed), "seed", 0, "N",
     .help = "Seed of generated inputs and dropout; default: the scenario's, or 0",
     .says = "needs a number of 0 or more, got", .given = AT(seed_given)},
    {CLI_I64, AT(step), "step", 0, "N",
     .help = "Number of the training step, for dropout; default 0",
     .says = "needs a number of 0 or more, got"},
    {CLI_READ, 0, "input", 0, "NAME=FILE.npy",
     .help = "Read an input instead of generating it; repeatable", .read = read_input},
    {CLI_TEXT, AT(output), "output", 0, "FOLDER", .help = "Write every result as FOLDER/NAME.npy"},
    {CLI_INPUT, AT(against), "against", 0, "OTHER.dir",
     .help = "Run OTHER.dir on the same inputs too and compare the results; exit code 1 if they "
             "differ"},
    {CLI_READ, 0, "verify", 0, "PASS",
     .help = "Run the passes on the scenario's model and compare the executed programs before and "
             "after each pass (of PASS alone: lower, stage, grad, optimizer, recompute, shard, "
             "offload, "
             "pipeline, overlap, project): loss, gradients, updated weights; a pipeline's with "
             "the same step without a pipeline; exit code 1 if they differ",
     .may_lack = true, .read = read_verify},
    {CLI_FLAG, AT(train), "train-step", 0, NULL,
     .help =
         "Run the sharded training step that the passes make of the model, not its forward pass"},
    CLI_ENTRY(AT(entry), "Run this function, not the scenario's program"),
    {CLI_FLAG, AT(emulate), "emulate", 0, NULL,
     .help = "Round every result to its dtype (f16, bf16, ...)"},
    {CLI_READ, AT(max_bytes), "max-bytes", 0, "N[GiB]", .help = "Refuse to hold more; default 4GiB",
     .read = read_bytes},
    CLI_QUIET(AT(quiet), "No table of results"),
    {0}};

const cli_verb cli_verb_exec = {
    .options = option_rows,
    .takes = CLI_PROGRAM | CLI_COSTS | CLI_WRITES,
    .file = AT(file),
    .check = check_usage,
    .args_doc = "FILE",
    .doc =
        "Run the program of a scenario on real numbers, device by device, and print its results. "
        "Inputs are generated from their names, so that a sharded program and its unsharded "
        "model get the same ones: --against proves them equal. FILE - is stdin. Exit code 1 if "
        "the program is wrong or the results differ."};

/* ---- running ---- */

static ds_status read_inputs(const arguments *args, ds_exec_options *options, ds_arena *arena,
                             ds_error *err) {
    int64_t limit = options->max_bytes ? options->max_bytes : DS_EXEC_DEFAULT_MAX_BYTES;
    ds_exec_tensor *tensors = DS_NEW_N(arena, ds_exec_tensor, args->inputs.n + 1);
    options->inputs = tensors;
    for (uint32_t i = 0; i < args->inputs.n; i++) {
        const char *equals = strchr(args->inputs.at[i], '=');
        DS_TRY(ds_npy_read(equals + 1, limit, &tensors[i], err));
        tensors[i].name =
            ds_arena_strndup(arena, args->inputs.at[i], (size_t)(equals - args->inputs.at[i]));
        options->n_inputs = i + 1;
    }
    return DS_OK;
}

static ds_status read_seed(const arguments *args, const cli_source *source, int64_t *out,
                           ds_error *err) {
    *out = args->seed;
    if (args->seed_given || !ds_unit_scenario(source->unit)) return DS_OK;
    return ds_scenario_int(&source->binding, "", "seed", out, err);
}

static ds_status execute(const arguments *args, const cli_source *source, const char *entry,
                         ds_exec_options options, ds_exec_result **out, ds_error *err) {
    if (entry) {
        options.entry = ds_find_func(source->unit->modules.at[0], entry);
        if (!options.entry)
            return ds_error_set(err, DS_ERR_NAME, DS_NOWHERE, "there is no function @%s", entry);
    }
    int64_t seed;
    DS_TRY(read_seed(args, source, &seed, err));
    options.seed = (uint64_t)seed;
    return ds_exec_run(&source->binding, &options, out, err);
}

/* ---- tables ---- */

static void print_shape(const ds_exec_tensor *t, ds_buf *out) {
    ds_buf_printf(out, "%s[", ds_dtype_name(t->dtype));
    for (uint32_t d = 0; d < t->rank; d++)
        ds_buf_printf(out, "%s%lld", d ? ", " : "", (long long)t->dims[d]);
    ds_buf_putc(out, ']');
}

/* Of the doubles' bits; -0 counts as 0. Stable over machines. */
static uint64_t checksum(const ds_exec_tensor *t) {
    uint64_t hash = (uint64_t)t->n;
    for (int64_t i = 0; i < t->n; i++) {
        double x = t->at[i] == 0 ? 0 : t->at[i];
        uint64_t bits;
        memcpy(&bits, &x, sizeof bits);
        hash = ds_hash_mix(hash, bits);
    }
    return hash;
}

/* Widths of the name and type columns. */
typedef struct widths {
    int name, other, type;
} widths;

static int wider(int width, const char *text) {
    return (int)strlen(text) > width ? (int)strlen(text) : width;
}

static int type_width(int width, const ds_exec_tensor *t) {
    ds_buf shape = {0};
    print_shape(t, &shape);
    width = wider(width, shape.text);
    ds_buf_deinit(&shape);
    return width;
}

static void print_type(const ds_exec_tensor *t, int width, ds_buf *out) {
    ds_buf shape = {0};
    print_shape(t, &shape);
    ds_buf_printf(out, "%-*s", width, shape.text);
    ds_buf_deinit(&shape);
}

static void print_tensor(const ds_exec_tensor *t, const widths *w, ds_buf *out) {
    double least = INFINITY, most = -INFINITY, sum = 0, square = 0;
    bool number = true;
    for (int64_t i = 0; i < t->n; i++) {
        number = number && !isnan(t->at[i]);
        least = fmin(least, t->at[i]);
        most = fmax(most, t->at[i]);
        sum += t->at[i];
        square += t->at[i] * t->at[i];
    }
    ds_buf_printf(out, "%-*s  ", w->name, t->name);
    print_type(t, w->type, out);
    ds_buf_printf(out, " %11.5g %11.5g %11.5g %11.5g  %016llx ", number ? least : NAN,
                  number ? most : NAN, sum / (double)t->n, sqrt(square),
                  (unsigned long long)checksum(t));
    for (int64_t i = 0; i < t->n && i < 3; i++) ds_buf_printf(out, " %.6g", t->at[i]);
    ds_buf_put(out, t->n > 3 ? " ...\n" : "\n");
}

static void print_results(const ds_exec_result *result, ds_buf *out) {
    widths w = {.name = 6, .type = 4};
    for (uint32_t i = 0; i < result->outputs.n; i++) {
        w.name = wider(w.name, result->outputs.at[i].name);
        w.type = type_width(w.type, &result->outputs.at[i]);
    }
    ds_buf_printf(out, "%-*s  %-*s %11s %11s %11s %11s  %-16s  %s\n", w.name, "result", w.type,
                  "type", "min", "max", "mean", "L2 norm", "checksum", "first values");
    for (uint32_t i = 0; i < result->outputs.n; i++) print_tensor(&result->outputs.at[i], &w, out);
    ds_buf_printf(out, "%u input%s, %u device%s, at most ", result->inputs.n,
                  result->inputs.n == 1 ? "" : "s", result->n_devices,
                  result->n_devices == 1 ? "" : "s");
    ds_print_bytes(result->peak_bytes, out);
    ds_buf_put(out, " of tensors\n");
    if (result->margin < 1e-6)
        ds_buf_printf(out,
                      "a choice was decided by %.2g of the largest number: rounding may turn it; "
                      "take another seed to compare\n",
                      result->margin);
}

static const char *verdict(const ds_exec_pair *pair) {
    if (!pair->a) return "only in the other";
    if (!pair->b) return "missing in the other";
    if (!pair->same_shape) return "another shape";
    return pair->equal ? "equal" : "DIFFERENT";
}

static void print_pair(const ds_exec_pair *pair, const widths *w, ds_buf *out) {
    ds_buf_printf(out, "%-*s  %-*s  ", w->name, pair->a ? pair->a->name : "-", w->other,
                  pair->b ? pair->b->name : "-");
    print_type(pair->a ? pair->a : pair->b, w->type, out);
    if (pair->same_shape)
        ds_buf_printf(out, " %11.5g %11.3g %11.3g  ", pair->max_a, pair->max_difference,
                      DS_EXEC_BOUND * pair->max_a);
    else
        ds_buf_printf(out, " %11s %11s %11s  ", "", "", "");
    ds_buf_put(out, verdict(pair));
    if (pair->same_shape && !pair->equal)
        ds_buf_printf(out, " at element %lld: %.17g and %.17g", (long long)pair->at,
                      pair->a->at[pair->at], pair->b->at[pair->at]);
    ds_buf_putc(out, '\n');
}

static void print_inputs(const ds_exec_comparison *c, ds_buf *out) {
    for (uint32_t i = 0; i < c->inputs.n; i++) {
        const ds_exec_pair *pair = &c->inputs.at[i];
        if (pair->same_shape) continue;
        const ds_exec_tensor *t = pair->a ? pair->a : pair->b;
        ds_buf_printf(out, "input %s, ", t->name);
        print_shape(t, out);
        if (pair->a && pair->b) {
            ds_buf_put(out, ", is ");
            print_shape(pair->b, out);
            ds_buf_put(out, " in the other: their numbers differ\n");
        } else {
            ds_buf_printf(out, ", is in %s only\n", pair->a ? "this program" : "the other");
        }
    }
}

static void print_comparison(const ds_exec_comparison *c, const char *other, ds_buf *out) {
    widths w = {6, 5, 4};
    for (uint32_t i = 0; i < c->outputs.n; i++) {
        const ds_exec_pair *pair = &c->outputs.at[i];
        if (pair->a) w.name = wider(w.name, pair->a->name);
        if (pair->b) w.other = wider(w.other, pair->b->name);
        w.type = type_width(w.type, pair->a ? pair->a : pair->b);
    }
    ds_buf_printf(out, "against %s\n", other);
    print_inputs(c, out);
    ds_buf_printf(out, "%-*s  %-*s  %-*s %11s %11s %11s\n", w.name, "result", w.other, "other",
                  w.type, "type", "max|a|", "max|a-b|", "bound");
    for (uint32_t i = 0; i < c->outputs.n; i++) print_pair(&c->outputs.at[i], &w, out);
    ds_buf_put(out, c->equal ? "equal\n" : "different\n");
}

/* ---- files ---- */

/* The names are known once the program has run: all are checked before any is written. */
static ds_status write_results(const arguments *args, const ds_exec_result *result, ds_error *err) {
    const char *folder = args->output;
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return ds_error_set(err, DS_ERR_IO, DS_NOWHERE, "cannot make the folder %s: %s", folder,
                            strerror(errno));
    cli_options files = {.overwrite = args->common.overwrite};
    ds_arena_init(&files.arena);
    for (uint32_t i = 0; i < args->common.inputs.n; i++)
        cli_input(&files, args->common.inputs.at[i]);
    for (uint32_t i = 0; i < result->outputs.n; i++)
        cli_output(&files,
                   ds_arena_printf(&files.arena, "%s/%s.npy", folder, result->outputs.at[i].name));
    ds_status status = cli_check_outputs(&files, err);
    for (uint32_t i = 0; i < result->outputs.n && status == DS_OK; i++) {
        ds_buf data = {0};
        ds_npy_print(&result->outputs.at[i], &data);
        status = cli_write(&files, files.outputs.at[i].path, data.text, data.n, err);
        ds_buf_deinit(&data);
    }
    cli_options_deinit(&files);
    return status;
}

/* ---- the verb ---- */

/* The other program has params of its own: what --set names and it lacks is not meant for it. */
static ds_status settings_for(const arguments *args, cli_options *out) {
    cli_source probe;
    out->include_dirs.at = args->common.include_dirs.at;
    out->include_dirs.n = args->common.include_dirs.n;
    ds_status status = cli_open_unbound(args->against, out, false, &probe);
    for (uint32_t i = 0; i < args->common.settings.n && status == DS_OK; i++) {
        ds_setting one = args->common.settings.at[i];
        ds_binding ignored;
        ds_error err;
        if (ds_bind(probe.unit, &one, 1, &ignored, &err) != DS_ERR_NAME)
            DS_HPUSH(&out->settings, one);
    }
    cli_close(&probe);
    return status;
}

static ds_status run_other(const arguments *args, const ds_exec_options *options, cli_source *other,
                           ds_exec_result **out, ds_error *err) {
    cli_options common = {0};
    ds_status status = settings_for(args, &common);
    if (status == DS_OK) status = cli_open(args->against, &common, other);
    free(common.settings.at);
    if (status != DS_OK)
        return ds_error_set(err, status, DS_NOWHERE, "%s is not a correct program", args->against);
    status = execute(args, other, NULL, *options, out, err);
    if (status == DS_OK) return DS_OK;
    cli_fail(other->unit, err);
    return ds_error_set(err, status, DS_NOWHERE, "%s cannot be executed", args->against);
}

static ds_status compare_programs(const arguments *args, const ds_exec_options *options,
                                  const ds_exec_result *result, bool *equal, ds_error *err) {
    cli_source other = {0};
    ds_exec_result *expected = NULL;
    ds_status status = run_other(args, options, &other, &expected, err);
    if (status == DS_OK) {
        ds_exec_comparison c;
        ds_buf text = {0};
        ds_exec_compare(result, expected, DS_EXEC_BOUND, &c);
        print_comparison(&c, args->against, &text);
        *equal = c.equal;
        status = cli_print(text.text, text.n, err);
        ds_exec_comparison_deinit(&c);
        ds_buf_deinit(&text);
    }
    ds_exec_result_free(expected);
    cli_close(&other);
    return status;
}

static ds_status report(const arguments *args, const cli_source *source,
                        const ds_exec_result *result, ds_error *err) {
    if (args->output) DS_TRY(write_results(args, result, err));
    if (args->quiet) return DS_OK;
    ds_buf text = {0};
    if (!args->entry && ds_scenario_model(source->unit) &&
        !ds_scenario_program_func(source->unit) && !ds_scenario_ranks(source->unit))
        ds_buf_put(&text, "the model's forward pass, unsharded\n");
    print_results(result, &text);
    ds_status status = cli_print(text.text, text.n, err);
    ds_buf_deinit(&text);
    return status;
}

static int verify(const arguments *args, const cli_source *source) {
    cli_verify_options options = {
        .pass = args->pass, .max_bytes = args->max_bytes, .quiet = args->quiet};
    ds_error err;
    int64_t seed;
    if (read_seed(args, source, &seed, &err) != DS_OK ||
        cli_balance(source, &args->common, &err) != DS_OK)
        return cli_fail(source->unit, &err);
    options.seed = (uint64_t)seed;
    return cli_verify(source, &options);
}

static int run_program(const arguments *args, const cli_source *source) {
    ds_exec_result *result = NULL;
    ds_error err;
    ds_arena arena;
    ds_arena_init(&arena);
    bool equal = true;
    int exit_code = 0;
    ds_exec_options options = {
        .step = args->step, .emulate = args->emulate, .max_bytes = args->max_bytes};
    ds_status status = read_inputs(args, &options, &arena, &err);
    if (status == DS_OK) status = execute(args, source, args->entry, options, &result, &err);
    if (status == DS_OK) status = report(args, source, result, &err);
    if (status == DS_OK && args->against)
        status = compare_programs(args, &options, result, &equal, &err);
    if (status != DS_OK) exit_code = cli_fail(source->unit, &err);
    for (uint32_t i = 0; i < options.n_inputs; i++) free(options.inputs[i].at);
    ds_exec_result_free(result);
    ds_arena_deinit(&arena);
    return exit_code ? exit_code : !equal;
}

/* The program that the passes leave, in the place of the model. */
static int run_train_step(const arguments *args, const cli_source *source) {
    ds_model_step *step = NULL;
    ds_error err;
    if (cli_balance(source, &args->common, &err) != DS_OK ||
        ds_model_step_new(&source->binding, &step, &err) != DS_OK)
        return cli_fail(source->unit, &err);
    int exit_code;
    if (ds_model_step_run_to(step, DS_PASS_OVERLAP, NULL, NULL, &err) != DS_OK) {
        exit_code = cli_fail(step->unit, &err);
    } else {
        cli_source made = {.unit = step->unit, .binding = step->binding};
        exit_code = run_program(args, &made);
    }
    ds_model_step_free(step);
    return exit_code;
}

static int exec_file(arguments *args) {
    cli_source source;
    int exit_code = ds_status_exit_code(cli_open(args->file, &args->common, &source));
    if (exit_code == 0 && args->verify)
        exit_code = verify(args, &source);
    else if (exit_code == 0 && args->train)
        exit_code = run_train_step(args, &source);
    else if (exit_code == 0)
        exit_code = run_program(args, &source);
    cli_close(&source);
    return exit_code;
}

int cmd_exec(int argc, char **argv) {
    arguments args = {0};
    cli_parse(&cli_verb_exec, argc, argv, &args);
    int exit_code = exec_file(&args);
    free(args.inputs.at);
    cli_options_deinit(&args.common);
    return exit_code;
}
