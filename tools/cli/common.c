/* What the verbs share: options, loading with diagnostics, writing files. */
#include "ir/base/output.h"
#include "ir/lang/lang.h"
#include "ir/strategy/scenario.h"
#include "ir/verify/verify.h"
#include "sim/run/balance.h"
#include "sim/run/shares.h"
#include "tools/cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPT_PROFILES = 0x100, OPT_JOB, OPT_OVERWRITE };

static const struct argp_option options_table[] = {
    {"set", 's', "PARAM=VALUE", 0, "Bind a param (of an import: ALIAS.PARAM=VALUE); repeatable", 1},
    {"include", 'I', "FOLDER", 0, "Look for imports there too; repeatable", 1},
    {"profiles", OPT_PROFILES, "FILE", 0, "Cost database to use", 1},
    {"job", OPT_JOB, "NAME", 0, "Of a scenario's jobs this one alone, for one step from 0 on", 1},
    {0}};

void cli_add_setting(cli_options *options, const char *name, const char *text,
                     struct argp_state *state) {
    const char *equals = strchr(text, '=');
    if (!equals || equals == text) argp_error(state, "%s needs PARAM=VALUE, got '%s'", name, text);
    size_t n = equals ? (size_t)(equals - text) : 0;
    const char *param = ds_arena_strndup(&options->arena, text, n);
    DS_HPUSH(&options->settings, ((ds_setting){param, text + n + 1}));
}

static error_t parse_option(int key, char *arg, struct argp_state *state) {
    cli_options *options = state->input;
    switch (key) {
    case 's':
        cli_add_setting(options, "--set", arg, state);
        return 0;
    case 'I':
        DS_HPUSH(&options->include_dirs, arg);
        return 0;
    case OPT_PROFILES:
        options->profiles = arg;
        return 0;
    case OPT_JOB:
        options->job = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp cli_argp = {.options = options_table, .parser = parse_option};

static const struct argp_option writer_table[] = {
    {"overwrite", OPT_OVERWRITE, NULL, 0,
     "Replace existing files; without --overwrite an existing file is refused", 1},
    {0}};

static error_t parse_overwrite(int key, char *arg, struct argp_state *state) {
    cli_options *options = state->input;
    (void)arg;
    if (key == ARGP_KEY_INIT) state->child_inputs[0] = options;
    if (key == OPT_OVERWRITE) options->overwrite = true;
    return key == ARGP_KEY_INIT || key == OPT_OVERWRITE ? 0 : ARGP_ERR_UNKNOWN;
}

static const struct argp_child writer_children[] = {{&cli_argp, 0, NULL, 0}, {0}};
const struct argp cli_writer_argp = {
    .options = writer_table, .parser = parse_overwrite, .children = writer_children};

void cli_options_deinit(cli_options *options) {
    free(options->settings.at);
    free(options->include_dirs.at);
    free(options->degrades.at);
    free(options->outputs.at);
    ds_arena_deinit(&options->arena);
    *options = (cli_options){0};
}

int cli_fail(const ds_unit *unit, const ds_error *err) {
    ds_buf text = {0};
    if (unit)
        ds_error_print(unit, err, &text);
    else
        ds_buf_printf(&text, "distsim: error: %s\n", err->message);
    fputs(text.text, stderr);
    ds_buf_deinit(&text);
    return ds_status_exit_code(err->code);
}

void cli_parse(const struct argp *parser, int argc, char **argv, void *arguments) {
    error_t code = argp_parse(parser, argc, argv, 0, NULL, arguments);
    if (code)
        ds_out_of_memory(0); /* after any other error argp prints a message and ends the process */
}

/* Assumed: nobody reads more. Each diagnostic looks for its source line from the beginning of the
 * file. */
#define MOST_SHOWN 1000u

static void print_diags(const cli_source *source, bool warnings) {
    ds_buf text = {0};
    uint32_t n[2] = {0, 0}; /* warnings, errors */
    for (uint32_t i = 0; i < source->diags.all.n; i++) {
        const ds_diag *diag = &source->diags.all.at[i];
        bool error = diag->severity == DS_SEV_ERROR;
        if ((error || warnings) && n[error]++ < MOST_SHOWN)
            ds_diag_print(source->unit, diag, &text);
    }
    for (int k = 0; k < 2; k++)
        if (n[k] > MOST_SHOWN)
            ds_buf_printf(&text, "%u more %s are not shown\n", n[k] - MOST_SHOWN,
                          k ? "errors" : "warnings");
    if (text.n) fputs(text.text, stderr);
    ds_buf_deinit(&text);
}

static ds_status read_stdin(ds_buf *text, ds_error *err) {
    char chunk[1 << 14];
    size_t n;
    while ((n = fread(chunk, 1, sizeof chunk, stdin)) > 0) {
        ds_buf_put_n(text, chunk, n);
        if (text->n > DS_LOAD_MAX_BYTES)
            return ds_error_set(err, DS_ERR_LIMIT, DS_NOWHERE, "stdin has more than %zu MiB",
                                DS_LOAD_MAX_BYTES >> 20);
    }
    if (ferror(stdin)) return ds_error_set(err, DS_ERR_IO, DS_NOWHERE, "cannot read stdin");
    return DS_OK;
}

static ds_status load(const char *path, const cli_options *options, ds_unit **unit, ds_error *err) {
    ds_load_options load_options = {options->include_dirs.at, options->include_dirs.n};
    if (strcmp(path, "-") != 0) return ds_load_file(path, &load_options, unit, err);
    ds_buf text = {0};
    ds_buf_put(&text, "");
    ds_status status = read_stdin(&text, err);
    if (status == DS_OK)
        status = ds_load_text("<stdin>", text.text, text.n, &load_options, unit, err);
    ds_buf_deinit(&text);
    return status;
}

static ds_status load_and_verify(const char *path, const cli_options *options, cli_source *source) {
    *source = (cli_source){0};
    ds_diags_init(&source->diags);
    ds_error err;
    ds_status status = cli_check_outputs(options, &err);
    if (status == DS_OK) status = load(path, options, &source->unit, &err);
    for (uint32_t i = 0; i < options->degrades.n && status == DS_OK; i++)
        status = ds_parse_what_if(source->unit->modules.at[0], options->degrades.at[i], &err);
    if (status != DS_OK) {
        cli_fail(source->unit, &err);
        return status;
    }
    return ds_verify(source->unit, &source->diags);
}

ds_status cli_open_unbound(const char *path, const cli_options *options, bool warnings,
                           cli_source *source) {
    ds_status status = load_and_verify(path, options, source);
    print_diags(source, warnings);
    return status;
}

ds_status cli_open(const char *path, const cli_options *options, cli_source *source) {
    ds_status status = load_and_verify(path, options, source);
    ds_error err;
    if (status == DS_OK && options->job) {
        status = ds_scenario_choose_job(source->unit, options->job, &err);
        if (status != DS_OK) ds_diags_add_error(&source->diags, &err);
    }
    if (status == DS_OK && options->change) options->change(options->change_context, source->unit);
    if (status == DS_OK) {
        status = ds_bind(source->unit, options->settings.at, options->settings.n, &source->binding,
                         &err);
        if (status == DS_OK)
            status = ds_verify_bound(source->unit, &source->binding, &source->diags);
        else
            ds_diags_add_error(&source->diags, &err);
    }
    print_diags(source, true);
    return status;
}

ds_status cli_open_sweep(const char *path, const cli_options *options, cli_source *source) {
    ds_error err;
    DS_TRY(cli_open_unbound(path, options, true, source));
    ds_status status = DS_OK;
    if (options->job) status = ds_scenario_choose_job(source->unit, options->job, &err);
    if (status == DS_OK)
        status = ds_bind(source->unit, options->settings.at, options->settings.n, &source->binding,
                         &err);
    if (status != DS_OK) cli_fail(source->unit, &err);
    return status;
}

void cli_close(cli_source *source) {
    ds_diags_deinit(&source->diags);
    if (source->unit) ds_unit_free(source->unit);
    *source = (cli_source){0};
}

ds_status cli_balance(const cli_source *source, const cli_options *options, ds_error *err) {
    ds_profiles *profiles;
    ds_sim_options how = {0};
    if (!ds_balance_wanted(&source->binding) && !ds_shares_wanted(&source->binding)) return DS_OK;
    DS_TRY(ds_sim_options_read(&source->binding, &how, err));
    DS_TRY(ds_profiles_load(options->profiles, &profiles, err));
    ds_status status = ds_shares_find(&source->binding, profiles, &how, err);
    if (status == DS_OK) status = ds_balance_find(&source->binding, profiles, &how, err);
    ds_profiles_free(profiles);
    return status;
}

/* ---- files that are written ---- */

static unsigned output_flags(const cli_options *options) {
    return options->overwrite ? DS_OUTPUT_OVERWRITE : DS_OUTPUT_NEW;
}

const char *cli_output(cli_options *options, const char *path) {
    DS_HPUSH(&options->outputs, path);
    return path;
}

ds_status cli_check_outputs(const cli_options *options, ds_error *err) {
    for (uint32_t i = 0; i < options->outputs.n; i++) {
        const char *path = options->outputs.at[i];
        DS_TRY(ds_output_check(path, output_flags(options), err));
        for (uint32_t k = 0; k < i; k++)
            if (ds_output_same(path, options->outputs.at[k]))
                return ds_error_set(err, DS_ERR_USAGE, DS_NOWHERE,
                                    "%s and %s are the same file: name another file",
                                    options->outputs.at[k], path);
    }
    return DS_OK;
}

ds_status cli_write(const cli_options *options, const char *path, const char *text, size_t n,
                    ds_error *err) {
    return ds_output_write(path, output_flags(options), text, n, err);
}

ds_status cli_print(const char *text, size_t n, ds_error *err) {
    return ds_output_write("-", DS_OUTPUT_NEW, text, n, err);
}
