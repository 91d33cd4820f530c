/* distsim certify CERTIFICATE: is it true that no candidate of the sweep is better? */
#include "ir/base/file.h"
#include "search/driver/certify.h"
#include "search/driver/rows.h"
#include "search/methods/bound.h"
#include "sim/cost/cost.h"
#include "tools/cli/search/tag.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MAX_BYTES = 1 << 30 };

typedef struct arguments {
    cli_options common;
    const char *certificate, *file;
} arguments;

#define AT(member) offsetof(arguments, member)
static const cli_option option_rows[] = {
    CLI_SWEEP_FILE(AT(file),
                   "The sweep's file, if the file has moved since the certificate was written"),
    {0}};

const cli_verb cli_verb_certify = {
    .options = option_rows,
    .takes = CLI_PROGRAM,
    .file = AT(certificate),
    .one = "certificate",
    .args_doc = "CERTIFICATE",
    .doc =
        "Check a certificate of `distsim sweep --method bound --certificate`: its regions are the "
        "whole space, each once; the bound of each region that was not simulated is right, and no "
        "better than the best candidate; all other candidates, simulated again, have the stated "
        "results. Of a certificate of `distsim search --method tag` no deployment takes less than "
        "the stated lower bound. Exit code 1 otherwise."};

static void print(const ds_certified *c, const char *name) {
    printf("%s is right: %" PRIu64 " candidates in %" PRIu64 " regions, %" PRIu64
           " simulated again, the others excluded by their bounds\n",
           name, c->candidates, c->regions, c->simulated);
}

static int check_certificate(arguments *args, const char *text, const char *path,
                             const ds_profiles *profiles) {
    cli_source source;
    ds_certified certified;
    ds_error err;
    int exit_code = ds_status_exit_code(cli_open_sweep(path, &args->common, &source));
    ds_eval_source what = {.path = path,
                           .load = cli_load_options(&args->common),
                           .job = args->common.job,
                           .profiles = profiles};
    if (!exit_code) {
        ds_status status = ds_certify(text, &source.binding, args->common.settings.at,
                                      args->common.settings.n, &what, &certified, &err);
        if (status == DS_OK) print(&certified, args->certificate);
        if (status != DS_OK) exit_code = cli_fail(source.unit, &err);
    }
    cli_close(&source);
    return exit_code;
}

/* What follows the field's name on its line; "" if there is none. In the arena. */
static const char *field(arguments *args, const char *text, const char *name) {
    const char *at = strstr(text, name);
    if (!at) return "";
    at += strlen(name);
    char *cell = ds_arena_strndup(&args->common.arena, at, strcspn(at, "\n"));
    ds_certificate_read_cell(cell);
    return cell;
}

static ds_status check_version(const arguments *args, const char *text, ds_error *err) {
    static const char first[] = "distsim certificate ";
    size_t n = strcspn(text, "\n");
    if (strncmp(text, first, strlen(first)) != 0)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "%s is no certificate",
                            args->certificate);
    if (text[n - 1] == '\r')
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                            "%s has lines that end with CR and LF: a certificate's end with LF",
                            args->certificate);
    if (n == strlen(first) + 1 && text[n - 1] == '1') return DS_OK;
    return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                        "%s begins with '%.*s': certificates of version 1 can be checked",
                        args->certificate, n < 60 ? (int)n : 60, text);
}

static int check_deployments(arguments *args, const char *text, const char *path) {
    ds_tag_branched found;
    ds_error err;
    if (cli_search_tag_certify(&args->common, path, text, &found, &err) != DS_OK)
        return cli_fail(NULL, &err);
    printf("%s is right: ", args->certificate);
    if (found.lower_us == INT64_MAX)
        printf("no deployment fits; ");
    else if (found.us == INT64_MAX)
        printf("no deployment that fits was found, and none takes less than %" PRId64 " us; ",
               found.lower_us);
    else
        printf("no deployment takes less than %" PRId64 " us; ", found.lower_us);
    printf("%" PRIu64 " simulated again, %" PRIu64 " regions excluded by their bounds\n",
           found.n_simulations, found.n_bounds);
    return 0;
}

static int certify(arguments *args, const char *text) {
    const char *path = field(args, text, "\nsource\t");
    const ds_profiles *profiles;
    ds_error err;
    if (check_version(args, text, &err) != DS_OK) return cli_fail(NULL, &err);
    if (!*path) {
        ds_error_set(&err, DS_ERR_DATA, DS_NOWHERE, "%s is no certificate", args->certificate);
        return cli_fail(NULL, &err);
    }
    ds_settings settings = {0};
    if (ds_rows_read_settings(field(args, text, "\nsettings\t"), &args->common.arena, &settings,
                              &err) != DS_OK)
        return cli_fail(NULL, &err);
    for (uint32_t i = 0; i < settings.n; i++) DS_HPUSH(&args->common.settings, settings.at[i]);
    if (args->file) path = args->file;
    if (strcmp(field(args, text, "\nobjective\t"), CLI_TAG_OBJECTIVE) == 0)
        return check_deployments(args, text, path);
    if (cli_load_profiles(&args->common, &profiles, &err) != DS_OK) return cli_fail(NULL, &err);
    return check_certificate(args, text, path, profiles);
}

int cmd_certify(int argc, char **argv) {
    arguments args = {0};
    ds_error err;
    ds_buf text = {0};
    cli_parse(&cli_verb_certify, argc, argv, &args);
    ds_buf_put(&text, "");
    int exit_code = ds_file_read(args.certificate, DS_NOWHERE, MAX_BYTES, &text, &err) == DS_OK
                        ? certify(&args, text.text)
                        : cli_fail(NULL, &err);
    ds_buf_deinit(&text);
    cli_options_deinit(&args.common);
    return exit_code;
}
