/* What the verbs share: programs loaded with diagnostics, errors printed. */
#include "ir/lang/lang.h"
#include "ir/strategy/scenario.h"
#include "ir/verify/verify.h"
#include "search/space/space.h"
#include "sim/report/costs.h"
#include "sim/run/run.h"
#include "tools/cli/cli.h"
#include "tools/cli/colour.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cli_fail(const ds_unit *unit, const ds_error *err) {
    ds_buf text = {0};
    if (unit)
        ds_error_print(unit, err, &text);
    else
        ds_buf_printf(&text, "distsim: error: %s\n", err->message);
    cli_put_diagnostics(text.text, stderr);
    ds_buf_deinit(&text);
    return ds_status_exit_code(err->code);
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
    if (text.n) cli_put_diagnostics(text.text, stderr);
    ds_buf_deinit(&text);
}

const char *cli_verb_of_file(const char *path) {
    static const struct {
        const char *ending, *verb;
    } verbs[] = {{".dir", "run"},
                 {".json", "import hf"},
                 {".onnx", "import onnx"},
                 {".graphml", "import graphml"},
                 {".csv", "validate"}};
    const char *dot = strrchr(path, '.');
    for (size_t i = 0; dot && i < sizeof verbs / sizeof *verbs; i++)
        if (strcmp(dot, verbs[i].ending) == 0) return verbs[i].verb;
    return NULL;
}

/* A file of another kind than programs, which the parser refused at once. */
static ds_status refuse_other_file(const char *path, ds_status status, ds_error *err) {
    const char *verb = cli_verb_of_file(path);
    if (status != DS_ERR_SYNTAX || ds_error_loc(err).line != 1 || !verb || strcmp(verb, "run") == 0)
        return status;
    return ds_error_set(err, DS_ERR_SYNTAX, DS_NOWHERE,
                        "%s is no program of distsim; distsim %s reads such a file", path, verb);
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

ds_load_options cli_load_options(const cli_options *options) {
    return (ds_load_options){.include_dirs = options->include_dirs.at,
                             .n_include_dirs = options->include_dirs.n,
                             .settings = options->settings.at,
                             .n_settings = options->settings.n,
                             .job = options->job};
}

ds_status cli_load_profiles(const cli_options *options, const ds_profiles **out, ds_error *err) {
    if (!*options->loaded) {
        DS_TRY(ds_profiles_load(options->profiles, options->loaded, err));
        ds_profiles_use_defaults(*options->loaded, true);
    }
    *out = *options->loaded;
    return DS_OK;
}

static ds_status load_program(const char *path, const cli_options *options, ds_unit **unit,
                              ds_error *err) {
    ds_load_options load_options = cli_load_options(options);
    if (strcmp(path, "-") != 0)
        return refuse_other_file(path, ds_load_file(path, &load_options, unit, err), err);
    ds_buf text = {0};
    ds_buf_put(&text, "");
    ds_status status = read_stdin(&text, err);
    if (status == DS_OK)
        status = ds_load_text("<stdin>", text.text, text.n, &load_options, unit, err);
    ds_buf_deinit(&text);
    return status;
}

ds_status cli_check_imports(const cli_options *options, const ds_unit *unit, ds_error *err) {
    for (uint32_t i = 1; i < unit->modules.n; i++)
        DS_TRY(cli_check_input(options, unit->modules.at[i]->path, err));
    return DS_OK;
}

static ds_status load_and_verify(const char *path, const cli_options *options, cli_source *source) {
    *source = (cli_source){0};
    ds_diags_init(&source->diags);
    ds_error err;
    ds_status status = cli_check_outputs(options, &err);
    if (status == DS_OK) status = load_program(path, options, &source->unit, &err);
    if (status == DS_OK) status = cli_check_imports(options, source->unit, &err);
    for (uint32_t i = 0; i < options->degrades.n && status == DS_OK; i++)
        status = ds_parse_what_if(source->unit->modules.at[0], options->degrades.at[i], &err);
    if (status != DS_OK) {
        cli_fail(source->unit, &err);
        return status;
    }
    return ds_verify(source->unit, &source->diags);
}

void cli_tell_costs(const cli_source *source, const ds_profiles *profiles, ds_buf *out) {
    ds_buf text = {0};
    ds_buf_put(&text, "");
    ds_report_scenario_costs(&source->binding, profiles, out ? out : &text);
    fputs(text.text, stderr);
    ds_buf_deinit(&text);
}

ds_status cli_open_unbound(const char *path, const cli_options *options, bool warnings,
                           cli_source *source) {
    ds_status status = load_and_verify(path, options, source);
    print_diags(source, warnings);
    return status;
}

ds_status cli_open(const char *path, cli_options *options, cli_source *source) {
    ds_status status = load_and_verify(path, options, source);
    ds_error err;
    if (status == DS_OK && options->job) {
        status = ds_scenario_choose_job(source->unit, options->job, &err);
        if (status != DS_OK) ds_diags_add_error(&source->diags, &err);
    }
    if (status == DS_OK) {
        status = cli_state_framework(options, source->unit, &err);
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
    if (status == DS_OK) ds_knobs_warn(&source->binding, NULL, &source->diags);
    print_diags(source, true);
    return status;
}

ds_status cli_open_sweep(const char *path, cli_options *options, cli_source *source) {
    ds_error err;
    DS_TRY(cli_open_unbound(path, options, true, source));
    ds_status status = DS_OK;
    if (options->job) status = ds_scenario_choose_job(source->unit, options->job, &err);
    if (status == DS_OK) status = cli_state_framework(options, source->unit, &err);
    if (status == DS_OK)
        status = ds_bind(source->unit, options->settings.at, options->settings.n, &source->binding,
                         &err);
    if (status != DS_OK) cli_fail(source->unit, &err);
    return status;
}

void cli_warn_sweep(cli_source *source, const cli_options *options) {
    ds_space *space;
    uint32_t n = source->diags.all.n;
    ds_buf text = {0};
    if (ds_space_new(&source->binding, options->settings.at, options->settings.n, &space, NULL) !=
        DS_OK)
        return; /* whoever sweeps says why */
    ds_knobs_warn(&source->binding, &(ds_knobs_varying){ds_space_varies, space}, &source->diags);
    for (; n < source->diags.all.n; n++)
        ds_diag_print(source->unit, &source->diags.all.at[n], &text);
    if (text.n) fputs(text.text, stderr);
    ds_buf_deinit(&text);
    ds_space_free(space);
}

void cli_close(cli_source *source) {
    ds_diags_deinit(&source->diags);
    if (source->unit) ds_unit_free(source->unit);
    *source = (cli_source){0};
}

ds_status cli_balance(const cli_source *source, const cli_options *options, ds_error *err) {
    const ds_profiles *profiles;
    ds_sim_options how = {0};
    if (!ds_simulate_finds(&source->binding)) return DS_OK;
    DS_TRY(ds_sim_options_read(&source->binding, &how, err));
    DS_TRY(cli_load_profiles(options, &profiles, err));
    return ds_simulate_settings(&source->binding, profiles, &how, err);
}
