/* distsim profile ACTION …: the cost database and the folders of CSV files that it is made of.
 *
 * list, show, diff and export read a database (--database), import and fit work on the folder of
 * one profile, build makes a database of a tree of such folders (cost_profiles/README.md). */
#include "ir/base/file.h"
#include "ir/base/output.h"
#include "sim/cost/build.h"
#include "sim/cost/db_text.h"
#include "tools/cli/profile.h"
#include "tools/fit/fit.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct arguments {
    cli_options common; /* --database and --overwrite */
    const char *action;
    cli_texts rest;
    const char *out, *topology, *profile, *as, *on, *split;
    bool write, check, json;
    profile_import_options import;
} arguments;

static void read_word(void *arguments_, char *word, struct argp_state *state) {
    arguments *args = arguments_;
    (void)state;
    if (!args->action)
        args->action = word;
    else
        DS_HPUSH(&args->rest, word);
}

#define AT(member) offsetof(arguments, member)
static const cli_option option_rows[] = {
    {CLI_TEXT, AT(common.profiles), "database", 0, "FILE",
     .help =
         "Cost database to use (list, show, diff, export, check); of import, whose catalogue knows "
         "the device"},
    {CLI_TEXT, AT(out), "output", 'o', "PATH",
     .help = "Folder of import, export and calibrate, database of build"},
    {CLI_FLAG, AT(common.overwrite), "overwrite", 0, NULL,
     .help =
         "export, build: replace existing files; without --overwrite an existing file is refused"},
    {CLI_FLAG, AT(write), "write", 0, NULL,
     .help = "fit: put the constants into the folder's files", .group = 1},
    {CLI_FLAG, AT(check), "check", 0, NULL,
     .help = "fit: fail if the files have other constants than the fit", .group = 1},
    {CLI_TEXT, AT(topology), "topology", 0, "FILE.dir",
     .help =
         "fit: collective_protocols.csv instead, to the measured collectives of TABLE.csv on these "
         "links",
     .group = 1},
    {CLI_TEXT, AT(profile), "profile", 0, "NAME",
     .help = "check: this profile; default: the generic profile of each row's device", .group = 3},
    {CLI_TEXT, AT(as), "as", 0, "DEVICE",
     .help =
         "check: the fits of this device's generic profile, scaled by peaks and bandwidth, as a "
         "device without measurements borrows them",
     .group = 3},
    {CLI_TEXT, AT(on), "on", 0, "TOPOLOGY.dir",
     .help = "check: collectives and dispatch on the file's last topology; default: the machine of "
             "the library with the device",
     .group = 3},
    {CLI_FLAG, AT(json), "json", 0, NULL,
     .help = "check: an array of {device, dtype, family, n, refused, median, p90, bias}, in per "
             "cent; calibrate: one object",
     .group = 3},
    {CLI_TEXT, AT(split), "split", 0, "NAME",
     .help = "calibrate: only rows of this split; default: all rows", .group = 4},
    {CLI_TEXT, AT(import.format), "format", 0, "csv|nccl|kineto|nsys",
     .help = "import: the kind of FILE; default: by its name, .json, .csv, else a log", .group = 2},
    {CLI_TEXT, AT(import.name), "name", 0, "NAME",
     .help = "import, calibrate: of a new profile; default: the folder's name", .group = 2},
    {CLI_TEXT, AT(import.device), "device", 0, "DEVICE",
     .help = "import: of a new profile, a name of the catalogue; calibrate: only rows of this "
             "device",
     .group = 2},
    {CLI_TEXT, AT(import.software), "software", 0, "TEXT", .help = "import: the software that ran",
     .group = 2},
    {CLI_TEXT, AT(import.collective), "collective", 0, "NAME",
     .help = "import: the collective of an nccl-tests log", .group = 2},
    {CLI_TEXT, AT(import.group), "group", 0, "N",
     .help = "import: over how many devices, if the log does not say", .group = 2},
    {CLI_TEXT, AT(import.shapes), "shapes", 0, "MAP.csv",
     .help =
         "import: the operation of each kernel of an nsys table: kernel (a pattern with * and ?), "
         "class, op, dtype and keys as in ops.csv",
     .group = 2},
    {CLI_TEXT, AT(import.source), "source", 0, "KEY",
     .help = "import: key of the rows' source; default: of FILE's name", .group = 2},
    {CLI_TEXT, AT(import.title), "title", 0, "TEXT", .help = "import: the title of the source",
     .group = 2},
    {CLI_TEXT, AT(import.place), "place", 0, "TEXT",
     .help = "import: where it is; default: FILE's name", .group = 2},
    {CLI_TEXT, AT(import.licence), "licence", 0, "NAME",
     .help = "import: its licence; default: facts", .group = 2},
    {0}};

const cli_verb cli_verb_profile = {
    .options = option_rows,
    .word = read_word,
    .args_doc = "list\nshow NAME\ndiff NAME NAME\nexport NAME -o FOLDER\nbuild FOLDER -o FILE.db\n"
                "import FILE -o FOLDER\nfit FOLDER [TABLE.csv]\ncheck TABLE.csv...\n"
                "calibrate ROWS.csv [-o FOLDER]",
    .doc =
        "The cost database: its contents, own measurements, and the errors of its curves."
        "\vA profile is a folder of CSV files (cost_profiles/README.md): `import` fills one from "
        "a table, an nccl-tests log, a trace of PyTorch's profiler or a kernel table of nsys; "
        "`fit` finds the constants of its efficiency.csv and gemm_fits.csv and says how well "
        "they predict rows that they did not see; `build` makes a database of a tree of such "
        "folders, which every verb takes as --database. `check` compares the curves with "
        "published tables of operations (tests/data/ops). `calibrate` says how few measured steps "
        "of a cluster bring the error of its predictions down, and writes their factors."};

/* ---- reading ---- */

ds_status profile_table(const char *db_path, const char *profile, const char *file, ds_csv *out,
                        bool *any, ds_error *err) {
    ds_buf text = {0};
    ds_status status = ds_profile_text(db_path, profile, file, &text, err);
    *any = status == DS_OK && text.n;
    if (*any) status = ds_csv_parse(file, text.text, text.n, out, err);
    if (status != DS_OK) *any = false;
    ds_buf_deinit(&text);
    return status;
}

static const char *cell(const ds_csv *csv, uint32_t row, const char *column) {
    uint32_t at = ds_csv_find(csv, column);
    return at == DS_CSV_NO_COLUMN ? "" : csv->rows.at[row].cells[at];
}

/* "whole steps", "operations, links", "links": the measurements behind the constants. */
static const char *kind_of(const ds_csv *csv, uint32_t i) {
    bool ops =
        atol(cell(csv, i, "ops")) + atol(cell(csv, i, "curves")) + atol(cell(csv, i, "gemm_fits")) >
        0;
    bool links = atol(cell(csv, i, "collectives")) + atol(cell(csv, i, "fits")) +
                     atol(cell(csv, i, "protocols")) >
                 0;
    if (atol(cell(csv, i, "steps"))) return "whole steps";
    return ops && links ? "operations, links" : ops ? "operations" : links ? "links" : "";
}

static bool is_marked(const ds_csv *csv, uint32_t i, const char *column) {
    return strcmp(cell(csv, i, column), "1") == 0;
}

/* Does a run take the profile if the scenario names none? A kind of which no profile is marked takes
 * its generic one. */
static bool is_default(const ds_csv *csv, uint32_t i) {
    bool generic = is_marked(csv, i, "generic");
    for (uint32_t k = 0; k < csv->rows.n && generic; k++)
        generic = strcmp(cell(csv, k, "device"), cell(csv, i, "device")) != 0 ||
                  !is_marked(csv, k, "default");
    return generic || is_marked(csv, i, "default");
}

static void put_line(const ds_csv *csv, uint32_t i) {
    char error[64] = "";
    if (atol(cell(csv, i, "steps")))
        snprintf(error, sizeof error, "%.1f %% of %s%s",
                 100 * strtod(cell(csv, i, "step_error"), NULL), cell(csv, i, "steps"),
                 strcmp(cell(csv, i, "steps_split"), "val") == 0 ? "" : ", fitted");
    printf("%-20s %s %-25s %-18s  %-17s  %-20s  %s\n", cell(csv, i, "device"),
           is_default(csv, i) ? "*" : " ", cell(csv, i, "profile"), cell(csv, i, "framework"),
           kind_of(csv, i), error, cell(csv, i, "software"));
}

static ds_status list(const arguments *args, ds_error *err) {
    ds_buf text = {0};
    ds_csv csv;
    ds_status status = ds_profile_list_text(args->common.profiles, &text, err);
    if (status == DS_OK && text.n) status = ds_csv_parse("profiles", text.text, text.n, &csv, err);
    bool any = status == DS_OK && text.n;
    ds_buf_deinit(&text);
    if (!any) return status;
    printf("%-20s   %-25s %-18s  %-17s  %-20s  %s\n", "device", "profile", "framework", "measured",
           "error on steps", "software");
    for (uint32_t i = 0; i < csv.rows.n; i++) put_line(&csv, i);
    puts("\n* the default of the device. --profile NAME takes another: choose your framework "
         "first, then "
         "whole steps\nbefore operations and links, and errors on steps that no fit saw before "
         "fitted ones. `profile show NAME` lists\nthe rows of a profile, --ideal takes the data "
         "sheet's peaks.\nNAME-generic has fits to published tables, of no testbed: --profile "
         "generic takes the generic profile of each device.");
    ds_csv_deinit(&csv);
    return DS_OK;
}

/* Rows by op and dtype: how many, and from what to what. */
static void show_ops(const ds_csv *csv) {
    puts("\nmeasured ops                 rows  shortest us   longest us");
    for (uint32_t i = 0; i < csv->rows.n;) {
        uint32_t first = i;
        double least = strtod(cell(csv, i, "time_us"), NULL), most = least;
        for (; i < csv->rows.n && strcmp(cell(csv, i, "op"), cell(csv, first, "op")) == 0 &&
               strcmp(cell(csv, i, "dtype"), cell(csv, first, "dtype")) == 0;
             i++) {
            double us = strtod(cell(csv, i, "time_us"), NULL);
            if (us < least) least = us;
            if (us > most) most = us;
        }
        printf("%-20s %-6s %6u  %11.6g  %11.6g\n", cell(csv, first, "op"),
               cell(csv, first, "dtype"), i - first, least, most);
    }
}

static double percent(const char *text) {
    return 100 * strtod(text, NULL);
}

static void put_error(const char *text) {
    if (*text)
        printf("  %6.1f", percent(text));
    else
        printf("  %6s", "");
}

static void show_curves(const ds_csv *csv) {
    puts("\ncurves                       rows  median %   p90 %   5 % .. 95 % of "
         "measured/predicted");
    for (uint32_t i = 0; i < csv->rows.n; i++) {
        printf("%-14s %-5s %-5s %6s    ", cell(csv, i, "op"), cell(csv, i, "dtype"),
               cell(csv, i, "resource"), cell(csv, i, "n"));
        put_error(cell(csv, i, "median_error"));
        put_error(cell(csv, i, "p90_error"));
        if (*cell(csv, i, "ratio_p05"))
            printf("   %s .. %s", cell(csv, i, "ratio_p05"), cell(csv, i, "ratio_p95"));
        if (*cell(csv, i, "kernels")) printf("   %s kernels", cell(csv, i, "kernels"));
        if (strcmp(cell(csv, i, "n"), "0") == 0) printf("   %s", cell(csv, i, "basis"));
        puts("");
    }
}

static void show_gemms(const ds_csv *csv) {
    puts(
        "\nproducts by tiles and waves  rows      seen         shapes out   families out  sizes out"
        "    median, p90 in %");
    for (uint32_t i = 0; i < csv->rows.n; i++) {
        static const char *const columns[] = {
            "median_error",        "p90_error",        "shape_median_error", "shape_p90_error",
            "family_median_error", "family_p90_error", "size_median_error",  "size_p90_error"};
        printf("%-26s %6s", cell(csv, i, "dtype"), cell(csv, i, "n"));
        for (size_t c = 0; c < sizeof columns / sizeof *columns; c++)
            printf("%s%5.1f", c % 2 ? " " : "   ", percent(cell(csv, i, columns[c])));
        puts("");
    }
}

static void show_collectives(const ds_csv *csv, const char *title) {
    printf("\n%s\n", title);
    for (uint32_t i = 0; i < csv->rows.n;) {
        uint32_t first = i;
        while (i < csv->rows.n &&
               strcmp(cell(csv, i, "collective"), cell(csv, first, "collective")) == 0)
            i++;
        printf("%-20s        %6u\n", cell(csv, first, "collective"), i - first);
    }
}

static void show_sources(const ds_csv *csv) {
    puts("\nsources");
    for (uint32_t i = 0; i < csv->rows.n; i++)
        printf("  %s: %s; %s%s%s (%s)\n", cell(csv, i, "key"), cell(csv, i, "title"),
               cell(csv, i, "place"), *cell(csv, i, "revision") ? " @" : "",
               cell(csv, i, "revision"), cell(csv, i, "licence"));
}

static void show_profile(const ds_csv *csv) {
    printf("%s on %s: %s\nissue of a task %s us", cell(csv, 0, "name"), cell(csv, 0, "device"),
           cell(csv, 0, "software"), cell(csv, 0, "issue_us"));
    if (*cell(csv, 0, "interference"))
        printf(", compute %s longer beside transfers", cell(csv, 0, "interference"));
    puts("");
}

static void show_file(const char *file, const ds_csv *csv) {
    if (strcmp(file, "profile.csv") == 0) show_profile(csv);
    if (strcmp(file, "ops.csv") == 0) show_ops(csv);
    if (strcmp(file, "efficiency.csv") == 0) show_curves(csv);
    if (strcmp(file, "gemm_fits.csv") == 0) show_gemms(csv);
    if (strcmp(file, "collectives.csv") == 0)
        show_collectives(csv, "measured collectives         rows");
    if (strcmp(file, "collective_fits.csv") == 0)
        show_collectives(csv, "collectives, terms and curves");
    if (strcmp(file, "collective_protocols.csv") == 0)
        show_collectives(csv, "collectives, protocols");
    if (strcmp(file, "sources.csv") == 0) show_sources(csv);
}

static ds_status show_one(const arguments *args, const char *file, ds_error *err) {
    ds_csv csv;
    bool any;
    DS_TRY(profile_table(args->common.profiles, args->rest.at[0], file, &csv, &any, err));
    if (!any) return DS_OK;
    show_file(file, &csv);
    ds_csv_deinit(&csv);
    return DS_OK;
}

static ds_status show(const arguments *args, ds_error *err) {
    for (const char *const *file = ds_profile_files; *file; file++)
        DS_TRY(show_one(args, *file, err));
    return show_one(args, "sources.csv", err);
}

/* ---- writing ---- */

static unsigned output_flags(const arguments *args) {
    return args->common.overwrite ? DS_OUTPUT_OVERWRITE : DS_OUTPUT_NEW;
}

static ds_status export_file(const arguments *args, const char *file, bool only_check,
                             ds_error *err) {
    ds_buf text = {0}, path = {0};
    ds_status status = ds_profile_text(args->common.profiles, args->rest.at[0], file, &text, err);
    ds_buf_printf(&path, "%s/%s", args->out, file);
    if (status == DS_OK && text.n)
        status = only_check
                     ? ds_output_check(path.text, output_flags(args), err)
                     : ds_output_write(path.text, output_flags(args), text.text, text.n, err);
    ds_buf_deinit(&path);
    ds_buf_deinit(&text);
    return status;
}

static ds_status export(const arguments *args, ds_error *err) {
    if (mkdir(args->out, 0777) != 0 && errno != EEXIST)
        return ds_error_set(err, DS_ERR_IO, DS_NOWHERE, "cannot make %s: %s", args->out,
                            strerror(errno));
    for (int write = 0; write < 2; write++) { /* all of them, or none */
        for (const char *const *file = ds_profile_files; *file; file++)
            DS_TRY(export_file(args, *file, !write, err));
        DS_TRY(export_file(args, "sources.csv", !write, err));
    }
    return DS_OK;
}

/* Is the output one of the tables in `folder`, or its schema? */
static bool is_table_of(const char *folder, const char *output) {
    const char *dot = strrchr(output, '.');
    if (!dot || (strcmp(dot, ".csv") != 0 && strcmp(dot, ".sql") != 0)) return false;
    char *tree = ds_file_real_path(folder), *file = ds_file_real_path(output);
    size_t n = tree ? strlen(tree) : 0;
    bool inside = n && file && strncmp(file, tree, n) == 0 && file[n] == '/';
    free(tree);
    free(file);
    return inside;
}

static ds_status build(const arguments *args, ds_error *err) {
    if (is_table_of(args->rest.at[0], args->out))
        return ds_error_set(err, DS_ERR_USAGE, DS_NOWHERE,
                            "%s is an input, and an input is never replaced: name another file",
                            args->out);
    DS_TRY(ds_output_check(args->out, output_flags(args) | DS_OUTPUT_REGULAR, err));
    return ds_profiles_build(args->rest.at[0], args->out, err);
}

static ds_status fit(const arguments *args, ds_error *err) {
    fit_mode mode = args->write ? FIT_WRITE : args->check ? FIT_CHECK : FIT_PRINT;
    const char *folder = args->rest.at[0];
    if (args->topology) return fit_collectives(args->topology, folder, args->rest.at[1], mode, err);
    DS_TRY(fit_ops(folder, mode, err));
    return fit_gemms(folder, mode, err);
}

static ds_status import(const arguments *args, ds_error *err) {
    profile_import_options options = args->import;
    options.file = args->rest.at[0];
    options.folder = args->out;
    options.profiles = args->common.profiles;
    return profile_import(&options, err);
}

static ds_status calibrate(const arguments *args, ds_error *err) {
    profile_calibrate_options options = {.table = args->rest.at[0],
                                         .device = args->import.device,
                                         .split = args->split,
                                         .folder = args->out,
                                         .name = args->import.name,
                                         .json = args->json};
    cli_options common = args->common;
    return profile_calibrate(&options, &common, err);
}

static ds_status diff(const arguments *args, ds_error *err) {
    return profile_diff(args->common.profiles, args->rest.at[0], args->rest.at[1], err);
}

typedef struct action {
    const char *name;
    uint32_t least, most; /* arguments after it */
    bool out;             /* needs -o */
    int options;          /* the group of `option_rows` that is its own; 0: none */
    const char *others;   /* options of other groups that it takes, too; NULL: none */
    const char *usage, *about;
    ds_status (*run)(const arguments *args, ds_error *err); /* NULL: profile_check */
} action;

static const action actions[] = {
    {"list", 0, 0, false, 0, NULL, "list", "The profiles of the database, a line each.", list},
    {"show", 1, 1, false, 0, NULL, "show NAME",
     "The contents of a profile: measured rows by operation, curves with their errors, sources.",
     show},
    {"diff", 2, 2, false, 0, NULL, "diff NAME NAME",
     "How the second profile differs from the first: rows that both have, constants, collectives.",
     diff},
    {"export", 1, 1, true, 0, NULL, "export NAME -o FOLDER",
     "Writes the CSV files of a profile from the database.", export},
    {"build", 1, 1, true, 0, NULL, "build FOLDER -o FILE.db",
     "Makes a database of a tree: schema.sql, catalogue/ and a folder for each profile.", build},
    {"import", 1, 1, true, 2, NULL, "import FILE -o FOLDER",
     "Appends measurements to the folder of a profile, and makes it where it is missing: a table "
     "in the columns of ops.csv or collectives.csv, a log of nccl-tests, a trace of PyTorch's "
     "profiler, or a kernel table of nsys. Rows are checked before anything is written.",
     import},
    {"fit", 1, 2, false, 1, NULL, "fit FOLDER [TABLE.csv --topology FILE.dir]",
     "Finds the constants of efficiency.csv and gemm_fits.csv, or of collective_protocols.csv, and "
     "says how well they predict rows that they did not see. Tables that are missing are started.",
     fit},
    {"check", 1, UINT32_MAX, false, 3, NULL, "check TABLE.csv...",
     "Prices the rows of published tables of operations with the generic profile of each row's "
     "device, and prints how far the times are from the measured ones: of each device, dtype and "
     "family (table, operation, direction) the number of rows, rows refused, the median and the "
     "90th percentile of |predicted/measured - 1|, and the mean of predicted/measured - 1. The "
     "columns of a table say what it is (tools/measured/README.md). A row's source plays no part.",
     NULL},
    {"calibrate", 1, 1, false, 4, "--json, --name, --device", "calibrate ROWS.csv [-o FOLDER]",
     "Predicts measured training steps of one cluster, a row each in the columns of `distsim "
     "validate`, with the generic profile of their device. Prints the errors of the rows that gave "
     "no factor when 0, 1, 3 and 10 rows give three factors: of compute, communication and the "
     "host. All choices of so many rows count, or 200 from a fixed seed. -o writes the factors of "
     "all rows as a profile on the generic one (cost_profiles/FORMATS.md), which `profile build` "
     "takes.",
     calibrate}};
enum { N_ACTIONS = sizeof actions / sizeof *actions };

static const action *find_action(const char *name) {
    for (int i = 0; i < N_ACTIONS; i++)
        if (strcmp(actions[i].name, name) == 0) return &actions[i];
    return NULL;
}

static int misused(const arguments *args) {
    const action *a = find_action(args->action);
    if (!a) {
        const char *names[N_ACTIONS];
        for (int i = 0; i < N_ACTIONS; i++) names[i] = actions[i].name;
        const char *near = ds_suggest(args->action, names, N_ACTIONS);
        fprintf(stderr, "distsim profile: no action '%s'%s%s%s", args->action,
                near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    } else if (args->rest.n < a->least || args->rest.n > a->most) {
        fprintf(stderr, "distsim profile %s: %u arguments instead of %u", a->name, args->rest.n,
                a->least);
    } else if (a->out && !args->out) {
        fprintf(stderr, "distsim profile %s: -o PATH is missing", a->name);
    } else if ((args->write || args->check || args->topology) && a->run != fit) {
        fprintf(stderr, "distsim profile %s: --write, --check and --topology belong to fit",
                a->name);
    } else if ((args->profile || args->as || args->on) && a->run) {
        fprintf(stderr, "distsim profile %s: --profile, --as and --on belong to check", a->name);
    } else if (args->profile && args->as) {
        fprintf(stderr, "distsim profile check: --profile or --as, not both");
    } else if (args->json && a->run && a->run != calibrate) {
        fprintf(stderr, "distsim profile %s: --json belongs to check and calibrate", a->name);
    } else if (args->split && a->run != calibrate) {
        fprintf(stderr, "distsim profile %s: --split belongs to calibrate", a->name);
    } else if (a->run == fit && (args->rest.n == 2) != (args->topology != NULL)) {
        fprintf(stderr, "distsim profile fit: --topology and TABLE.csv go together");
    } else if (args->write && args->check) {
        fprintf(stderr, "distsim profile fit: --write or --check, not both");
    } else {
        return 0;
    }
    fputs("\nTry `distsim profile --help'.\n", stderr);
    return 2;
}

static bool takes_too(const action *a, const char *option) {
    char word[64];
    snprintf(word, sizeof word, "--%s", option);
    return a->others && strstr(a->others, word);
}

/* Help about one action: `distsim profile fit --help`. */
static void help_action(int argc, char **argv) {
    enum { N_OPTIONS = sizeof option_rows / sizeof *option_rows };
    const action *a = argc > 2 ? find_action(argv[1]) : NULL;
    cli_option own[N_OPTIONS] = {0};
    bool asked = false;
    uint32_t n = 0;
    for (int i = 2; i < argc; i++)
        asked = asked || strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-?") == 0;
    if (!a || !asked) return;
    for (uint32_t i = 0; i + 1 < N_OPTIONS; i++)
        if (option_rows[i].group == 0 || option_rows[i].group == a->options ||
            takes_too(a, option_rows[i].name))
            own[n++] = option_rows[i];
    cli_verb help = cli_verb_profile;
    help.options = own;
    help.args_doc = a->usage;
    help.doc = a->about;
    cli_parse(&help, argc, argv, &(arguments){0}); /* ends the program */
}

int cmd_profile(int argc, char **argv) {
    arguments args = {0};
    ds_error err;
    help_action(argc, argv);
    cli_parse(&cli_verb_profile, argc, argv, &args);
    int code = misused(&args);
    const action *a = code ? NULL : find_action(args.action);
    if (a && !a->run)
        code = profile_check(&(profile_check_options){.tables = args.rest.at,
                                                      .n_tables = args.rest.n,
                                                      .profile = args.profile,
                                                      .as = args.as,
                                                      .on = args.on,
                                                      .json = args.json},
                             &args.common);
    if (a && a->run) {
        ds_status status = a->run(&args, &err);
        if (status != DS_OK) code = cli_fail(NULL, &err);
    }
    free(args.rest.at);
    cli_options_deinit(&args.common);
    return code;
}
