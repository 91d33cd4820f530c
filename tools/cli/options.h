/* Options of the verbs: a row an option says its name, how its value is read, where the value goes,
 * and its help. One parser reads the rows of every verb, and every verb refuses a wrong value
 * alike.
 *
 * The `arguments` of a verb begin with a cli_options, which the options of all verbs fill:
 *
 *     typedef struct arguments { cli_options common; const char *file; bool quiet; } arguments;
 *     #define AT(member) offsetof(arguments, member)
 *     static const cli_option rows[] = {CLI_QUIET(AT(quiet), "No summary"), {0}};
 *     static const cli_verb verb = {.options = rows, .takes = CLI_PROGRAM, .file = AT(file), …};
 *     cli_parse(&verb, argc, argv, &args);
 *
 * Files that a verb reads and files that it writes are noted as their options are read; before any
 * work cli_check_outputs refuses to write over a file that the verb reads. */
#ifndef DS_CLI_OPTIONS_H
#define DS_CLI_OPTIONS_H

#include "ir/base/arena.h"
#include "ir/base/error.h"
#include "ir/core/ir.h"

#include <argp.h>
#include <stddef.h>

struct ds_result; /* sim/run/run.h */

typedef DS_VEC(const char *) cli_texts; /* heap */

/* A file that is written. */
typedef struct cli_output_file {
    const char *path;
    bool has_own_check; /* the verb asks elsewhere whether the file may be replaced */
} cli_output_file;

/* Options shared by the verbs: --set, -I, --database, --job, --profile, --degrade, --overwrite. */
typedef struct cli_options {
    DS_VEC(ds_setting) settings; /* heap */
    cli_texts include_dirs, degrades;
    const char *profiles; /* NULL: the default (sim/cost/cost.h) */
    void (*change)(void *context,
                   ds_unit *unit); /* by cli_open, before params are bound; or NULL */
    void *change_context;
    /* by cli_run, of what was simulated, unless an option made it another run; or NULL */
    ds_status (*examine)(void *context, const struct ds_result *result, ds_error *err);
    void *examine_context;
    const char *job; /* the scenario becomes that of this job; NULL: as it is */
    bool overwrite;
    bool simulates;                  /* the verb has --profile */
    struct ds_profiles **loaded;     /* heap: by cli_load_profiles; NULL: not yet */
    cli_texts inputs;                /* files that the verb reads, as far as they are known */
    DS_VEC(cli_output_file) outputs; /* heap */
    ds_arena arena;
} cli_options;

void cli_options_deinit(cli_options *options);
#define CLI_PROFILE_KEY "scenario.profile" /* the setting that --profile makes */
/* The last value that --set, or an option in its place, gives to `path`; NULL: none does. */
const char *cli_setting(const cli_options *options, const char *path);

/* ---- rows ---- */

/* How a value is read, and what it becomes. */
typedef enum cli_kind {
    CLI_FLAG,    /* bool; the option has no value */
    CLI_TEXT,    /* const char * */
    CLI_NAME,    /* const char *, without the @ that it may begin with */
    CLI_WORD,    /* const char *, one of `words` */
    CLI_INPUT,   /* const char *, a file that is read */
    CLI_OUTPUT,  /* const char *, a file that is written */
    CLI_OWN,     /* the same of a file with a check of its own */
    CLI_TEXTS,   /* cli_texts; repeatable */
    CLI_SETTING, /* PARAM=VALUE: one more setting of a cli_options */
    CLI_LINE,    /* a setting too, of the option's name: a line of the sweep (ir/lang/setting.c) */
    CLI_U32,     /* a number from `least` to `most` */
    CLI_U64,     /* a number from `least` to `most`; most 0: the largest there is */
    CLI_I64,     /* a number from `least` to `most`, not negative; most 0 likewise */
    CLI_REAL,    /* double, above 0 and at most 1e9 */
    CLI_READ     /* what `read` makes of it */
} cli_kind;

typedef struct cli_option {
    cli_kind kind;
    size_t at;         /* where the value goes: offset in the verb's arguments */
    const char *name;  /* "output" */
    int letter;        /* 'o'; 0: none */
    const char *value; /* "FILE", what the help calls the value; NULL: there is none */
    const char *help;
    uint64_t least, most;
    const char *words; /* of CLI_WORD: "fluid|stepwise"; NULL: `value` lists the words */
    const char *says;  /* why a value is refused: "--name SAYS 'value'"; NULL: the kind's words */
    size_t given;      /* offset of a bool that becomes true; 0: none */
    bool may_lack;     /* the value may be left out */
    int group;         /* of the help */
    unsigned of;       /* cli_takes, of an option that several verbs have with one help text */
    /* `place` is what `at` leads to. */
    void (*read)(void *place, char *value, struct argp_state *state);
} cli_option;

/* Options that several verbs have, each with a help text of its own. */
#define CLI_QUIET(at, text)                                                                        \
    { CLI_FLAG, at, "quiet", 'q', NULL, .help = text }
#define CLI_JSON(at, text)                                                                         \
    { CLI_FLAG, at, "json", 0, NULL, .help = text }
#define CLI_ENTRY(at, text)                                                                        \
    { CLI_NAME, at, "entry", 0, "FUNCTION", .help = text }
#define CLI_DEGRADE(text)                                                                          \
    { CLI_TEXTS, AT(common.degrades), "degrade", 0, "WHAT", .help = text }
#define CLI_SWEEP_FILE(at, text)                                                                   \
    { CLI_INPUT, at, "file", 0, "FILE", .help = text }
#define CLI_WORKERS(at, text)                                                                      \
    { CLI_U32, at, "threads", 't', "N", .help = text, .least = 1, .most = 1024 }
#define CLI_EVALS(at, text)                                                                        \
    { CLI_U64, at, "evals", 0, "N", .help = text, .least = 1 }
#define CLI_PRINTED(at)                                                                            \
    { CLI_OUTPUT, at, "output", 'o', "FILE", .help = "Write there instead of stdout" }

/* Options that several verbs have with one help text: a bit each. */
typedef enum cli_takes {
    CLI_NOTHING = 0,
    CLI_IMPORTS = 1,  /* -I */
    CLI_SETS = 2,     /* --set */
    CLI_DATABASE = 4, /* --database */
    CLI_JOBS = 8,     /* --job */
    CLI_COSTS = 16,   /* --profile, --ideal: verbs that simulate a scenario */
    CLI_WRITES = 32,  /* --overwrite */
    CLI_PROGRAM = CLI_IMPORTS | CLI_SETS | CLI_DATABASE | CLI_JOBS
} cli_takes;

typedef struct cli_verb {
    const cli_option *options; /* the last one is empty */
    unsigned takes;            /* cli_takes */
    size_t file;               /* offset of a const char *: the one word beside the options … */
    const char *one;           /* … and what a message calls it; NULL: FILE */
    size_t files;              /* or offset of cli_texts: several words, files that are read */
    /* Or what reads a word. */
    void (*word)(void *arguments, char *word, struct argp_state *state);
    bool keeps_words; /* what the verb calls refuses to write over the words, by its own message */
    bool may_lack_words; /* else no word at all is a usage error */
    void (*check)(void *arguments, struct argp_state *state); /* at the end; or NULL */
    const char *args_doc, *doc;                               /* of argp */
} cli_verb;

/* Every row of a verb with the rows of what the verb takes: calls `each` in the order of --help. */
void cli_each_option(const cli_verb *verb, void (*each)(void *context, const cli_option *row),
                     void *context);

/* Fills the `arguments` of a verb: a usage error ends the process with exit code 2, a lack of
 * memory as ds_out_of_memory has it. */
void cli_parse(const cli_verb *verb, int argc, char **argv, void *arguments);

/* The word of `words` that the value is, or a usage error that says a near one. */
const char *cli_word(const char *name, const char *value, const char *words,
                     struct argp_state *state);

/* ---- files ---- */

/* Note the path of a file that the verb will read or write, and return the path. */
const char *cli_input(cli_options *options, const char *path);
const char *cli_output(cli_options *options, const char *path);
/* Before long work: refuses a noted output that may not be written or that is a noted input, and
 * two outputs that are one file. The functions that open a program call it first. */
ds_status cli_check_outputs(const cli_options *options, ds_error *err);
/* Refuses a noted output that is the file `input`. */
ds_status cli_check_input(const cli_options *options, const char *input, ds_error *err);
/* Writes n bytes to `path` by the policy of ir/base/output.h ("-": stdout). */
ds_status cli_write(const cli_options *options, const char *path, const char *text, size_t n,
                    ds_error *err);
ds_status cli_print(const char *text, size_t n, ds_error *err);

#endif
