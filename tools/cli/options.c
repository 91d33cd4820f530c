#include "tools/cli/options.h"

#include "ir/base/output.h"
#include "ir/strategy/knobs.h"
#include "sim/cost/cost.h"
#include "tools/cli/colour.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *cli_setting(const cli_options *options, const char *path) {
    for (uint32_t i = options->settings.n; i-- > 0;)
        if (strcmp(options->settings.at[i].path, path) == 0) return options->settings.at[i].text;
    return NULL;
}

/* `--profile NAME` states the scenario's key, as `--set scenario.profile=NAME` does. */
static void read_profile(void *place, char *value, struct argp_state *state) {
    cli_options *options = place;
    const char *name = value ? value : "ideal"; /* --ideal has no value */
    const char *before = cli_setting(options, CLI_PROFILE_KEY);
    if (!*name) argp_error(state, "--profile needs the name of a profile: distsim profile list");
    if (before)
        argp_error(state, "the profile is %s already; one profile at a time: '%s' is too many",
                   before, name);
    DS_HPUSH(&options->settings, ((ds_setting){CLI_PROFILE_KEY, name}));
}

#define AT(member) offsetof(cli_options, member)
static const cli_option shared_options[] = {
    {CLI_SETTING, 0, "set", 's', "PARAM=VALUE",
     .help = "Bind a param (of an import: ALIAS.PARAM=VALUE), or state a key of the scenario "
             "(scenario.KEY=VALUE, strategy.KEY=VALUE, train.KEY=VALUE, of one job "
             "jobs.NAME.strategy.KEY=VALUE); repeatable",
     .group = 1, .of = CLI_SETS},
    {CLI_TEXTS, AT(include_dirs), "include", 'I', "FOLDER",
     .help = "Look for imports there too; repeatable", .group = 1, .of = CLI_IMPORTS},
    {CLI_INPUT, AT(profiles), "database", 0, "FILE", .help = "Cost database to use", .group = 1,
     .of = CLI_DATABASE},
    {CLI_TEXT, AT(job), "job", 0, "NAME",
     .help = "Of a scenario's jobs this one alone, for one step from 0 on", .group = 1,
     .of = CLI_JOBS},
    {CLI_READ, 0, "profile", 0, "NAME",
     .help = "Cost profile of the scenario, in place of the profile of the file; "
             "`distsim profile list` shows all profiles, generic takes that of each device kind",
     .group = 1, .of = CLI_COSTS, .read = read_profile},
    {CLI_READ, 0, "ideal", 0, NULL,
     .help = "Costs of the data sheet's peaks, without a profile: --profile ideal", .group = 1,
     .of = CLI_COSTS, .read = read_profile},
    {CLI_FLAG, AT(overwrite), "overwrite", 0, NULL,
     .help = "Replace existing files; without --overwrite an existing file is refused", .group = 1,
     .of = CLI_WRITES},
    {0}};

void cli_options_deinit(cli_options *options) {
    free(options->settings.at);
    free(options->include_dirs.at);
    free(options->degrades.at);
    free(options->inputs.at);
    free(options->outputs.at);
    if (options->loaded) ds_profiles_free(*options->loaded);
    free(options->loaded);
    ds_arena_deinit(&options->arena);
    *options = (cli_options){0};
}

/* ---- values ---- */

enum { FIRST_KEY = 0x100, MOST_ROWS = 40 };

/* The rows of a verb, the key of row i being its letter or FIRST_KEY + i. */
typedef struct parsing {
    const cli_verb *verb;
    void *arguments;
    const cli_option *rows[MOST_ROWS];
    struct argp_option table[MOST_ROWS];
    uint32_t n;
} parsing;

static void *place_of(const parsing *p, size_t at) {
    return (char *)p->arguments + at;
}

static void refuse(const cli_option *row, const char *says, const char *value,
                   struct argp_state *state) {
    argp_error(state, "--%s %s '%s'", row->name, says, value);
}

static uint64_t read_number(const cli_option *row, const char *value, struct argp_state *state) {
    char *end;
    uint64_t most = row->most ? row->most : row->kind == CLI_I64 ? INT64_MAX : UINT64_MAX;
    errno = 0;
    unsigned long long n = strtoull(value, &end, 10);
    if (*value >= '0' && *value <= '9' && !*end && !errno && n >= row->least && n <= most) return n;
    if (row->says) refuse(row, row->says, value, state);
    argp_error(state, "--%s takes a number from %" PRIu64 " to %" PRIu64 ", not '%s'", row->name,
               row->least, most, value);
    return 0;
}

static double read_real(const cli_option *row, const char *value, struct argp_state *state) {
    char *end;
    double x = strtod(value, &end);
    if (end == value || *end || !(x > 0) || x > 1e9)
        refuse(row, row->says ? row->says : "takes a number above 0 and up to 1e9, not", value,
               state);
    return x;
}

static bool next_word(const char **words, const char **word, size_t *n) {
    *word = *words + strspn(*words, " |");
    *n = strcspn(*word, " |");
    *words = *word + *n;
    return *n > 0;
}

static bool is_word(const char *value, const char *words) {
    const char *word;
    size_t n;
    while (next_word(&words, &word, &n))
        if (strlen(value) == n && strncmp(value, word, n) == 0) return true;
    return false;
}

const char *cli_word(const char *name, const char *value, const char *words,
                     struct argp_state *state) {
    if (is_word(value, words)) return value;
    ds_arena arena;
    DS_VEC(const char *) choices = {0};
    const char *word;
    size_t n;
    ds_arena_init(&arena);
    while (next_word(&words, &word, &n))
        DS_PUSH(&arena, &choices, ds_arena_strndup(&arena, word, n));
    const char *near = ds_suggest(value, choices.at, choices.n);
    if (near) argp_error(state, "--%s does not take '%s'; did you mean '%s'?", name, value, near);
    ds_buf all = {0};
    for (uint32_t i = 0; i < choices.n; i++)
        ds_buf_printf(&all, "%s%s", i ? ", " : "", choices.at[i]);
    argp_error(state, "--%s does not take '%s'; it takes %s", name, value, all.text);
    ds_buf_deinit(&all);
    ds_arena_deinit(&arena);
    return value;
}

static const char *read_word(const cli_option *row, const char *value, struct argp_state *state) {
    const char *words = row->words ? row->words : row->value;
    if (!row->says) return cli_word(row->name, value, words, state);
    if (!is_word(value, words)) refuse(row, row->says, value, state);
    return value;
}

/* `text` is PARAM=VALUE. */
static void add_setting(const cli_option *row, cli_options *options, const char *text,
                        struct argp_state *state) {
    const char *equals = strchr(text, '=');
    if (!equals || equals == text)
        argp_error(state, "--%s needs PARAM=VALUE, got '%s'", row->name, text);
    size_t n = equals ? (size_t)(equals - text) : 0;
    const char *param = ds_arena_strndup(&options->arena, text, n);
    DS_HPUSH(&options->settings, ((ds_setting){param, text + n + 1}));
}

/* "--vary" needs NAME=VALUES. */
static void add_line(const cli_option *row, cli_options *options, const char *text,
                     struct argp_state *state) {
    const char *equals = strchr(text, '=');
    bool names = strcmp(row->name, "vary") == 0;
    if (!*text || (names && (!equals || equals == text || !equals[1])))
        argp_error(state, "--%s needs %s, got '%s'", row->name, row->value, text);
    const char *path = ds_arena_printf(&options->arena, "--%s", row->name);
    DS_HPUSH(&options->settings, ((ds_setting){path, text}));
}

static void note_output(cli_options *options, const char *path, bool has_own_check) {
    DS_HPUSH(&options->outputs, ((cli_output_file){path, has_own_check}));
}

/* Notes files, then puts the value into its place. */
static void read_value(const parsing *p, const cli_option *row, char *value,
                       struct argp_state *state) {
    cli_options *common = p->arguments;
    void *place = place_of(p, row->at);
    if (row->kind == CLI_INPUT) cli_input(common, value);
    if (row->kind == CLI_OUTPUT || row->kind == CLI_OWN)
        note_output(common, value, row->kind == CLI_OWN);
    switch (row->kind) {
    case CLI_FLAG:
        *(bool *)place = true;
        return;
    case CLI_TEXT:
    case CLI_INPUT:
    case CLI_OUTPUT:
    case CLI_OWN:
        *(const char **)place = value;
        return;
    case CLI_NAME:
        *(const char **)place = value + (*value == '@');
        return;
    case CLI_WORD:
        *(const char **)place = read_word(row, value, state);
        return;
    case CLI_TEXTS:
        DS_HPUSH((cli_texts *)place, value);
        return;
    case CLI_SETTING:
        add_setting(row, place, value, state);
        return;
    case CLI_LINE:
        add_line(row, place, value, state);
        return;
    case CLI_U32:
        *(uint32_t *)place = (uint32_t)read_number(row, value, state);
        return;
    case CLI_U64:
        *(uint64_t *)place = read_number(row, value, state);
        return;
    case CLI_I64:
        *(int64_t *)place = (int64_t)read_number(row, value, state);
        return;
    case CLI_REAL:
        *(double *)place = read_real(row, value, state);
        return;
    case CLI_READ:
        row->read(place, value, state);
        return;
    }
}

/* ---- the parser ---- */

static void read_argument(const parsing *p, char *word, struct argp_state *state) {
    const cli_verb *verb = p->verb;
    const char **file = place_of(p, verb->file);
    if (verb->word) {
        verb->word(p->arguments, word, state);
        return;
    }
    if (!verb->keeps_words) cli_input(p->arguments, word);
    if (verb->files) {
        DS_HPUSH((cli_texts *)place_of(p, verb->files), word);
        return;
    }
    if (*file)
        argp_error(state, "one %s at a time: '%s' is too many", verb->one ? verb->one : "FILE",
                   word);
    *file = word;
}

static error_t parse_argument(int key, char *value, struct argp_state *state) {
    const parsing *p = state->input;
    if (key == ARGP_KEY_ARG) {
        read_argument(p, value, state);
        return 0;
    }
    if (key == ARGP_KEY_NO_ARGS && !p->verb->may_lack_words) argp_usage(state);
    if (key == ARGP_KEY_END && p->verb->check) p->verb->check(p->arguments, state);
    for (uint32_t i = 0; i < p->n; i++) {
        if (p->table[i].key != key) continue;
        if (p->rows[i]->given) *(bool *)place_of(p, p->rows[i]->given) = true;
        read_value(p, p->rows[i], value, state);
        return 0;
    }
    return ARGP_ERR_UNKNOWN;
}

void cli_each_option(const cli_verb *verb, void (*each)(void *context, const cli_option *row),
                     void *context) {
    for (const cli_option *row = verb->options; row->name; row++) each(context, row);
    for (const cli_option *row = shared_options; row->name; row++)
        if (verb->takes & row->of) each(context, row);
}

static void add_row(void *context, const cli_option *row) {
    parsing *p = context;
    assert(p->n + 1 < MOST_ROWS); /* the table ends with an empty row */
    p->rows[p->n] = row;
    p->table[p->n] = (struct argp_option){
        .name = row->name,
        .key = row->letter ? row->letter : FIRST_KEY + (int)p->n,
        .arg = row->value,
        .flags = row->may_lack ? OPTION_ARG_OPTIONAL : 0,
        .doc = row->help,
        .group = row->group,
    };
    p->n++;
}

/* Refuses a long option that no row has, as argp does, with the nearest name. An abbreviation is a
 * row's. */
static void check_name(const parsing *p, const char *called, const char *word) {
    static const char *const own[] = {"help", "usage", "version"};
    const char *names[MOST_ROWS + 3];
    uint32_t n = 0, length = (uint32_t)strcspn(word, "=");
    for (uint32_t i = 0; i < p->n; i++) names[n++] = p->rows[i]->name;
    for (uint32_t i = 0; i < 3; i++) names[n++] = own[i];
    for (uint32_t i = 0; i < n; i++)
        if (strncmp(names[i], word, length) == 0) return;
    ds_arena arena;
    ds_arena_init(&arena);
    const char *name = ds_arena_strndup(&arena, word, length), *near = ds_suggest(name, names, n);
    bool sets = p->verb->takes & CLI_SETS;
    const char *section = !sets                                ? NULL
                          : ds_scenario_knob("strategy", name) ? "strategy"
                          : ds_scenario_knob("train", name)    ? "train"
                                                               : NULL;
    fprintf(stderr, "%s: unrecognized option '--%s'", called, name);
    if (section)
        fprintf(stderr, "; write --set %s.%s=VALUE", section, name);
    else if (near)
        fprintf(stderr, "; did you mean '--%s'?", near);
    fprintf(stderr, "\nTry `%s --help'.\n", called);
    ds_arena_deinit(&arena);
    exit(argp_err_exit_status);
}

static void check_names(const parsing *p, int argc, char **argv) {
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strncmp(argv[i], "--", 2) == 0) check_name(p, argv[0], argv[i] + 2);
        for (uint32_t k = 0; k < p->n; k++) /* the value of an option may be any word */
            if (strncmp(argv[i], "--", 2) == 0 && strcmp(argv[i] + 2, p->rows[k]->name) == 0 &&
                p->rows[k]->value && !p->rows[k]->may_lack) {
                i++;
                break;
            }
    }
}

void cli_parse(const cli_verb *verb, int argc, char **argv, void *arguments) {
    cli_options *common = arguments;
    parsing p = {.verb = verb, .arguments = arguments};
    common->simulates = verb->takes & CLI_COSTS;
    common->loaded = ds_xcalloc(1, sizeof(ds_profiles *));
    cli_each_option(verb, add_row, &p);
    check_names(&p, argc, argv);
    const struct argp parser = {
        .options = p.table, .parser = parse_argument, .args_doc = verb->args_doc, .doc = verb->doc};
    if (argp_parse(&parser, argc, argv, 0, NULL, &p))
        ds_out_of_memory(0); /* after any other error argp prints a message and ends the process */
}

/* ---- files ---- */

const char *cli_input(cli_options *options, const char *path) {
    DS_HPUSH(&options->inputs, path);
    return path;
}

const char *cli_output(cli_options *options, const char *path) {
    note_output(options, path, false);
    return path;
}

static unsigned output_flags(const cli_options *options) {
    return options->overwrite ? DS_OUTPUT_OVERWRITE : DS_OUTPUT_NEW;
}

ds_status cli_check_input(const cli_options *options, const char *input, ds_error *err) {
    for (uint32_t i = 0; i < options->outputs.n; i++)
        if (ds_output_same(options->outputs.at[i].path, input))
            return ds_error_set(err, DS_ERR_USAGE, DS_NOWHERE,
                                "%s is an input, and an input is never replaced: name another file",
                                options->outputs.at[i].path);
    return DS_OK;
}

static ds_status check_output(const cli_options *options, uint32_t i, ds_error *err) {
    const cli_output_file *file = &options->outputs.at[i];
    if (file->has_own_check) return DS_OK;
    DS_TRY(ds_output_check(file->path, output_flags(options), err));
    for (uint32_t k = 0; k < i; k++)
        if (ds_output_same(file->path, options->outputs.at[k].path))
            return ds_error_set(err, DS_ERR_USAGE, DS_NOWHERE,
                                "%s and %s are the same file: name another file",
                                options->outputs.at[k].path, file->path);
    return DS_OK;
}

ds_status cli_check_outputs(const cli_options *options, ds_error *err) {
    for (uint32_t i = 0; i < options->inputs.n; i++)
        DS_TRY(cli_check_input(options, options->inputs.at[i], err));
    for (uint32_t i = 0; i < options->outputs.n; i++) DS_TRY(check_output(options, i, err));
    return DS_OK;
}

ds_status cli_write(const cli_options *options, const char *path, const char *text, size_t n,
                    ds_error *err) {
    return ds_output_write(path, output_flags(options), text, n, err);
}

ds_status cli_print(const char *text, size_t n, ds_error *err) {
    if (cli_has_colour(stdout)) {
        cli_put_report(text, stdout);
        return DS_OK;
    }
    return ds_output_write("-", DS_OUTPUT_NEW, text, n, err);
}
