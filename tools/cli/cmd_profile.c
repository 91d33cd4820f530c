/* distsim profile ACTION …: the cost database and the folders of CSV files that it is made of.
 *
 * list, show, diff and export read a database (--profiles), import and fit work on the folder of
 * one profile, build makes a database of a tree of such folders (cost_profiles/README.md). */
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
    const char *action;
    DS_VEC(const char *) rest;
    const char *profiles, *out, *topology;
    bool write, check, overwrite;
    profile_import_options import;
} arguments;

enum {
    OPT_PROFILES = 0x900,
    OPT_WRITE,
    OPT_CHECK,
    OPT_FORMAT,
    OPT_NAME,
    OPT_DEVICE,
    OPT_SOFTWARE,
    OPT_COLLECTIVE,
    OPT_GROUP,
    OPT_SHAPES,
    OPT_SOURCE,
    OPT_TITLE,
    OPT_PLACE,
    OPT_LICENCE,
    OPT_TOPOLOGY,
    OPT_OVERWRITE
};

static const struct argp_option options_table[] = {
    {"profiles", OPT_PROFILES, "FILE", 0,
     "Cost database to use (list, show, diff, export); of import, whose catalogue knows the device",
     0},
    {"output", 'o', "PATH", 0, "Folder of import and export, database of build", 0},
    {"overwrite", OPT_OVERWRITE, NULL, 0,
     "export, build: replace existing files; without --overwrite an existing file is refused", 0},
    {"write", OPT_WRITE, NULL, 0, "fit: put the constants into the folder's files", 1},
    {"check", OPT_CHECK, NULL, 0, "fit: fail if those in the files are not the ones found", 1},
    {"topology", OPT_TOPOLOGY, "FILE.dir", 0,
     "fit: collective_protocols.csv instead, to the measured collectives of TABLE.csv on these "
     "links",
     1},
    {"format", OPT_FORMAT, "csv|nccl|kineto|nsys", 0,
     "import: what FILE is; default: by its name, .json, .csv, else a log", 2},
    {"name", OPT_NAME, "NAME", 0, "import: of a new profile; default: the folder's name", 2},
    {"device", OPT_DEVICE, "DEVICE", 0, "import: of a new profile, a name of the catalogue", 2},
    {"software", OPT_SOFTWARE, "TEXT", 0, "import: what ran there", 2},
    {"collective", OPT_COLLECTIVE, "NAME", 0, "import: what an nccl-tests log measured", 2},
    {"group", OPT_GROUP, "N", 0, "import: over how many devices, if the log does not say", 2},
    {"shapes", OPT_SHAPES, "MAP.csv", 0,
     "import: the operation of each kernel of an nsys table: kernel (a pattern with * and ?), "
     "class, op, dtype and keys as in ops.csv",
     2},
    {"source", OPT_SOURCE, "KEY", 0, "import: key of the rows' source; default: of FILE's name", 2},
    {"title", OPT_TITLE, "TEXT", 0, "import: what the source is", 2},
    {"place", OPT_PLACE, "TEXT", 0, "import: where it is; default: FILE's name", 2},
    {"licence", OPT_LICENCE, "NAME", 0, "import: its licence; default: facts", 2},
    {0}};

static error_t parse_argument(int key, char *arg, struct argp_state *state) {
    arguments *args = state->input;
    switch (key) {
    case OPT_PROFILES:
        args->profiles = arg;
        return 0;
    case 'o':
        args->out = arg;
        return 0;
    case OPT_OVERWRITE:
        args->overwrite = true;
        return 0;
    case OPT_WRITE:
        args->write = true;
        return 0;
    case OPT_CHECK:
        args->check = true;
        return 0;
    case OPT_TOPOLOGY:
        args->topology = arg;
        return 0;
    case OPT_FORMAT:
        args->import.format = arg;
        return 0;
    case OPT_NAME:
        args->import.name = arg;
        return 0;
    case OPT_DEVICE:
        args->import.device = arg;
        return 0;
    case OPT_SOFTWARE:
        args->import.software = arg;
        return 0;
    case OPT_COLLECTIVE:
        args->import.collective = arg;
        return 0;
    case OPT_GROUP:
        args->import.group = arg;
        return 0;
    case OPT_SHAPES:
        args->import.shapes = arg;
        return 0;
    case OPT_SOURCE:
        args->import.source = arg;
        return 0;
    case OPT_TITLE:
        args->import.title = arg;
        return 0;
    case OPT_PLACE:
        args->import.place = arg;
        return 0;
    case OPT_LICENCE:
        args->import.licence = arg;
        return 0;
    case ARGP_KEY_ARG:
        if (!args->action)
            args->action = arg;
        else
            DS_HPUSH(&args->rest, arg);
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_usage(state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp parser = {
    .options = options_table,
    .parser = parse_argument,
    .args_doc = "list\nshow NAME\ndiff NAME NAME\nexport NAME -o FOLDER\nbuild FOLDER -o FILE.db\n"
                "import FILE -o FOLDER\nfit FOLDER [TABLE.csv]",
    .doc =
        "The cost database: what is in it, measurements into it, and how well its curves fit."
        "\vA profile is a folder of CSV files (cost_profiles/README.md): `import` fills one from "
        "a table, an nccl-tests log, a trace of PyTorch's profiler or a kernel table of nsys; "
        "`fit` finds the constants of its efficiency.csv and gemm_fits.csv and says how well "
        "they predict rows that they did not see; `build` makes a database of a tree of such "
        "folders, which every verb takes as --profiles."};

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

static ds_status list(const arguments *args, ds_error *err) {
    ds_buf text = {0};
    ds_csv csv;
    ds_status status = ds_profile_list_text(args->profiles, &text, err);
    if (status == DS_OK && text.n) status = ds_csv_parse("profiles", text.text, text.n, &csv, err);
    bool any = status == DS_OK && text.n;
    ds_buf_deinit(&text);
    if (!any) return status;
    printf("%-24s  %-18s  %6s  %6s  %11s  %5s  %s\n", "profile", "device", "ops", "curves",
           "collectives", "fits", "software");
    for (uint32_t i = 0; i < csv.rows.n; i++) {
        const char **c = csv.rows.at[i].cells; /* db_text.h says in which order */
        printf("%-24s  %-18s  %6s  %6ld  %11s  %5ld  %s\n", c[0], c[1], c[2],
               atol(c[3]) + atol(c[4]), c[5], atol(c[6]) + atol(c[7]), c[8]);
    }
    ds_csv_deinit(&csv);
    return DS_OK;
}

static const char *cell(const ds_csv *csv, uint32_t row, const char *column) {
    uint32_t at = ds_csv_find(csv, column);
    return at == DS_CSV_NO_COLUMN ? "" : csv->rows.at[row].cells[at];
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
    DS_TRY(profile_table(args->profiles, args->rest.at[0], file, &csv, &any, err));
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
    return args->overwrite ? DS_OUTPUT_OVERWRITE : DS_OUTPUT_NEW;
}

static ds_status export_file(const arguments *args, const char *file, bool only_check,
                             ds_error *err) {
    ds_buf text = {0}, path = {0};
    ds_status status = ds_profile_text(args->profiles, args->rest.at[0], file, &text, err);
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

static ds_status build(const arguments *args, ds_error *err) {
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
    options.profiles = args->profiles;
    return profile_import(&options, err);
}

static ds_status diff(const arguments *args, ds_error *err) {
    return profile_diff(args->profiles, args->rest.at[0], args->rest.at[1], err);
}

typedef struct action {
    const char *name;
    uint32_t least, most; /* arguments after it */
    bool out;             /* needs -o */
    int options;          /* the group of options_table that is its own; 0: none */
    const char *usage, *about;
    ds_status (*run)(const arguments *args, ds_error *err);
} action;

static const action actions[] = {
    {"list", 0, 0, false, 0, "list", "The profiles of the database, a line each.", list},
    {"show", 1, 1, false, 0, "show NAME",
     "What a profile has: measured rows by operation, curves with their errors, sources.", show},
    {"diff", 2, 2, false, 0, "diff NAME NAME",
     "How the second profile differs from the first: rows that both have, constants, collectives.",
     diff},
    {"export", 1, 1, true, 0, "export NAME -o FOLDER",
     "Writes the CSV files of a profile from the database.", export},
    {"build", 1, 1, true, 0, "build FOLDER -o FILE.db",
     "Makes a database of a tree: schema.sql, catalogue/ and a folder for each profile.", build},
    {"import", 1, 1, true, 2, "import FILE -o FOLDER",
     "Appends measurements to the folder of a profile, and makes it where it is missing: a table "
     "in the columns of ops.csv or collectives.csv, a log of nccl-tests, a trace of PyTorch's "
     "profiler, or a kernel table of nsys. Rows are checked before anything is written.",
     import},
    {"fit", 1, 2, false, 1, "fit FOLDER [TABLE.csv --topology FILE.dir]",
     "Finds the constants of efficiency.csv and gemm_fits.csv, or of collective_protocols.csv, and "
     "says how well they predict rows that they did not see. Tables that are missing are started.",
     fit}};
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

/* Help about one action: `distsim profile fit --help`. */
static void help_action(int argc, char **argv) {
    enum { N_OPTIONS = sizeof options_table / sizeof *options_table };
    const action *a = argc > 2 ? find_action(argv[1]) : NULL;
    struct argp_option own[N_OPTIONS] = {0};
    bool asked = false;
    uint32_t n = 0;
    for (int i = 2; i < argc; i++)
        asked = asked || strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-?") == 0;
    if (!a || !asked) return;
    for (uint32_t i = 0; i + 1 < N_OPTIONS; i++)
        if (options_table[i].group == 0 || options_table[i].group == a->options)
            own[n++] = options_table[i];
    struct argp help = parser;
    help.options = own;
    help.args_doc = a->usage;
    help.doc = a->about;
    cli_parse(&help, argc, argv, &(arguments){0}); /* ends the program */
}

int cmd_profile(int argc, char **argv) {
    arguments args = {0};
    ds_error err;
    help_action(argc, argv);
    cli_parse(&parser, argc, argv, &args);
    int code = misused(&args);
    if (!code) {
        ds_status status = find_action(args.action)->run(&args, &err);
        if (status != DS_OK) code = cli_fail(NULL, &err);
    }
    free(args.rest.at);
    return code;
}
