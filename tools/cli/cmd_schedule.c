/* distsim schedule NAME: a pipeline schedule as text, or its timeline drawn; --run FILE: a
 * scenario's model under every schedule (schedule_run.c).
 *
 * The text is a whole .dir file that holds the schedule: `distsim check`, "file:PATH" in a strategy
 * and this verb read it again. The drawing has one line a rank and one column a unit of time, the
 * greatest common divisor of all durations. */
#include "ir/lang/lang.h"
#include "ir/schedule/schedule.h"
#include "tools/cli/cli.h"
#include "tools/cli/schedule_run.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CHART_COLUMNS 4000 /* characters of a line: more is of no use to anyone */

typedef struct arguments {
    cli_options common;
    const char *name;
    const char *run, *html; /* FILE */
    ds_schedule_options options;
    ds_schedule_durations times;
    int64_t pair, comm;
    bool chart, json, csv, list;
} arguments;

static int64_t read_integer(const char *text, const char **end, struct argp_state *state) {
    char *stop;
    errno = 0;
    long long value = strtoll(text, &stop, 10);
    if (stop == text || errno == ERANGE || (!end && *stop))
        argp_error(state, "'%s' is not an integer", text);
    if (end) *end = stop;
    return value;
}

static void read_one(void *place, char *text, struct argp_state *state) {
    *(int64_t *)place = read_integer(text, NULL, state);
}

static void read_times(void *place, char *text, struct argp_state *state) {
    ds_schedule_durations *times = place;
    int64_t *all[] = {&times->f, &times->b, &times->w, &times->r};
    times->r = 0;
    int n = 0;
    for (const char *at = text; n < 4; at++) {
        *all[n++] = read_integer(at, &at, state);
        if (*at != ',') {
            if (n >= 3 && !*at) return;
            break;
        }
    }
    argp_error(state, "--times needs F,B,W or F,B,W,R, not '%s'", text);
}

static bool is_file(const char *name) {
    return strncmp(name, "file:", 5) == 0;
}

static void check_complete(void *arguments_, struct argp_state *state) {
    const arguments *args = arguments_;
    if (args->list) return;
    if (args->run && (args->name || args->options.stages || args->options.microbatches ||
                      args->options.virtual_stages || args->chart))
        argp_error(state, "--run takes everything from FILE, --set changes it: NAME, --stages, "
                          "--microbatches, --virtual and --chart are not for it");
    if (args->csv && (!args->run || args->json))
        argp_error(state, "--csv goes with --run, without --json");
    if (args->html && (!args->run || strcmp(args->html, "-") == 0))
        argp_error(state, "--html goes with --run, and writes a file: stdout is for the table");
    if (args->run) return;
    if (cli_setting(&args->common, CLI_PROFILE_KEY))
        argp_error(state, "--profile and --ideal go with --run: a schedule alone has no costs");
    if (!args->name) argp_error(state, "which schedule? --list shows all");
    if (args->name[0] == '@')
        argp_error(state, "'%s' is a name in a file: say file:PATH", args->name);
    if (!is_file(args->name) && (!args->options.stages || !args->options.microbatches))
        argp_error(state, "%s needs --stages and --microbatches", args->name);
}

#define AT(member) offsetof(arguments, member)
static const cli_option option_rows[] = {
    {CLI_READ, AT(options.stages), "stages", 'p', "P", .help = "Ranks of the pipeline",
     .read = read_one},
    {CLI_READ, AT(options.microbatches), "microbatches", 'm', "M", .help = "Microbatches of a step",
     .read = read_one},
    {CLI_READ, AT(options.virtual_stages), "virtual", 0, "V",
     .help = "Chunks of the model on a stage; default: the form's", .read = read_one},
    {CLI_READ, AT(times), "times", 0, "F,B,W[,R]",
     .help = "Durations of a chunk's forward, input gradient, weight gradient, recomputation "
             "(integers, "
             "any "
             "unit; default 1,1,1,0)",
     .read = read_times},
    {CLI_READ, AT(pair), "pair", 0, "T",
     .help = "Duration of F&B issued together (default: one after the other)", .read = read_one},
    {CLI_READ, AT(comm), "comm", 0, "T",
     .help = "Time between items on different ranks (default 0)", .read = read_one},
    {CLI_FLAG, AT(chart), "chart", 0, NULL,
     .help = "Draw the timeline; bubble and chunks in flight of each rank"},
    CLI_JSON(AT(json),
             "Times, bubbles and chunks in flight as one JSON object; with --run: the table"),
    {CLI_INPUT, AT(run), "run", 0, "FILE",
     .help = "Simulate the model of a scenario under every schedule: a table of time, bubble, "
             "memory and "
             "sends of the stages"},
    {CLI_FLAG, AT(csv), "csv", 0, NULL,
     .help = "With --run: the table as records, picoseconds and bytes"},
    {CLI_OUTPUT, AT(html), "html", 0, "FILE",
     .help = "With --run: write a page with the schedules too, to be opened in a browser"},
    {CLI_FLAG, AT(list), "list", 0, NULL,
     .help = "All schedules: bubble, where that holds, memory, source"},
    {0}};

const cli_verb cli_verb_schedule = {
    .options = option_rows,
    .takes = CLI_PROGRAM | CLI_COSTS | CLI_WRITES,
    .file = AT(name),
    .one = "schedule",
    .may_lack_words = true,
    .check = check_complete,
    .args_doc = "NAME\n--run FILE",
    .doc =
        "Print a pipeline schedule as text: for each rank the order of its forwards, backwards "
        "and weight gradients; or draw its timeline. NAME is one of --list, or file:PATH for one "
        "that is written out. With --run simulate a scenario's model under every schedule and "
        "print a table; exit code 1 if none runs and fits."};

/* ---- list ---- */

static int print_list(void) {
    puts(
        "p stages, m microbatches, v chunks on a stage; F, B (input gradient), W of a whole stage; "
        "F&B of a pair\nissued together. Bubble: longest idle time of a rank between its first "
        "start and last end, with free\ncommunication. In flight: microbatches whose activations a "
        "rank holds, in whole stages.\n");
    const ds_schedule_form *form;
    for (uint32_t i = 0; (form = ds_schedule_form_at(i)); i++) {
        printf("%-14s bubble     %s", form->name,
               strcmp(form->bubble, "-") ? form->bubble
                                         : "no "
                                           "closed form");
        if (strcmp(form->range, "-") != 0) printf("   (%s)", form->range);
        printf("\n%-14s in flight  %s\n%-14s order      %s; %s\n", "", form->memory, "", form->kind,
               form->source);
    }
    return 0;
}

/* ---- text ---- */

static void print_text(ds_unit *unit, const arguments *args, const ds_schedule *schedule) {
    ds_module *out = ds_unit_add_module(unit, "<schedule>", "", 0);
    out->version = 1;
    ds_schedule *copy = DS_NEW(&unit->arena, ds_schedule);
    *copy = *schedule;
    if (!is_file(args->name)) {
        const char **comment = DS_NEW(&unit->arena, const char *);
        *comment =
            ds_arena_printf(&unit->arena, " %s: %" PRId64 " stages, %" PRId64 " microbatches",
                            args->name, args->options.stages, args->options.microbatches);
        copy->trivia.comments = comment;
        copy->trivia.n_comments = 1;
    }
    DS_PUSH(&unit->arena, &out->schedules, copy);
    DS_PUSH(&unit->arena, &out->items, ((ds_item){DS_ITEM_SCHEDULE, 0}));
    ds_buf text = {0};
    ds_print_module(out, &text);
    fwrite(text.text, 1, text.n, stdout);
    ds_buf_deinit(&text);
}

/* ---- chart ---- */

static int64_t common_divisor(int64_t a, int64_t b) {
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* F0 with a chunk a stage, F2.0 with more; a pair as F0+B1. */
static int label(char *out, size_t size, const ds_schedule_index *index,
                 const ds_schedule_item *item) {
    if (index->n_chunks == index->n_ranks)
        return snprintf(out, size, "%c%" PRId64, item->kind, item->microbatch);
    return snprintf(out, size, "%c%" PRId64 ".%" PRId64, item->kind, item->chunk, item->microbatch);
}

/* The drawing's unit of time and the characters that one has. */
typedef struct scale {
    int64_t unit, width;
} scale;

static scale scale_of(const ds_schedule_index *index, const ds_schedule_timing *timing) {
    scale s = {0, 0};
    for (uint32_t i = 0; i < index->n_items; i++) {
        s.unit = common_divisor(s.unit, timing->start[i]);
        s.unit = common_divisor(s.unit, timing->end[i]);
    }
    if (s.unit == 0) s.unit = 1;
    for (uint32_t i = 0; i < index->n_items; i++) {
        char text[64];
        int64_t units = (timing->end[i] - timing->start[i]) / s.unit;
        int64_t n = label(text, sizeof text, index, ds_schedule_item_at(index, i, NULL)) + 1;
        if (units > 0 && (n + units - 1) / units > s.width) s.width = (n + units - 1) / units;
    }
    return s;
}

/* One line: labels from their start, '-' to their end, '.' where the rank waits. Of two items that
 * are issued together the later label stands in the second half. */
static void draw_rank(const ds_schedule_index *index, const ds_schedule_timing *timing, scale s,
                      uint32_t rank, char *line, size_t columns) {
    memset(line, ' ', columns);
    line[columns] = 0;
    const ds_schedule_rank_time *r = &timing->ranks[rank];
    for (int64_t t = r->start / s.unit; t < r->end / s.unit; t++) line[t * s.width] = '.';
    for (uint32_t i = index->first[rank]; i < index->first[rank + 1]; i++) {
        int64_t start = timing->start[i], end = timing->end[i];
        if (start == end) continue;
        bool second =
            i > index->first[rank] && timing->start[i - 1] == start && timing->end[i - 1] == end;
        char text[64];
        size_t n = (size_t)label(text, sizeof text, index, ds_schedule_item_at(index, i, NULL));
        size_t from = (size_t)(start / s.unit * s.width), to = (size_t)(end / s.unit * s.width);
        if (!second) memset(line + from, '-', to - from - 1);
        if (second) from += (to - from) / 2;
        if (from + n > to) n = to - from;
        memcpy(line + from, text, n);
        line[to - 1] = ' ';
    }
}

static void print_chart(const ds_schedule_index *index, const ds_schedule_timing *timing) {
    scale s = scale_of(index, timing);
    int64_t units = timing->makespan / s.unit;
    int64_t columns = units <= MAX_CHART_COLUMNS ? units * s.width : units;
    if (columns > MAX_CHART_COLUMNS) {
        printf("(%" PRId64 " units of time are too many to draw)\n", units);
    } else {
        char *line = ds_xmalloc((size_t)columns + 1);
        for (uint32_t r = 0; r < index->n_ranks; r++) {
            draw_rank(index, timing, s, r, line, (size_t)columns);
            size_t n = (size_t)columns;
            while (n > 0 && line[n - 1] == ' ') n--;
            printf("%4u  %.*s\n", r, (int)n, line);
        }
        free(line);
    }
    printf("\nrank        busy      bubble        idle   in flight\n");
    for (uint32_t r = 0; r < index->n_ranks; r++) {
        const ds_schedule_rank_time *t = &timing->ranks[r];
        printf("%4u  %10" PRId64 "  %10" PRId64 "  %10" PRId64 "  %10u\n", r, t->busy,
               t->end - t->start - t->busy, timing->makespan - t->busy, t->peak);
    }
    printf("\nmakespan %" PRId64 ", largest bubble %" PRId64 ", at most %u chunk%s in flight (%g "
           "stages' worth)\n",
           timing->makespan, timing->bubble, timing->peak, timing->peak == 1 ? "" : "s",
           (double)timing->peak * index->n_ranks / index->n_chunks);
}

static void print_json(const ds_schedule_index *index, const ds_schedule_timing *timing) {
    printf("{\"schedule\": \"%s\", \"stages\": %u, \"chunks\": %u, \"microbatches\": %u, "
           "\"weight_copies\": %u, \"makespan\": %" PRId64 ", \"bubble\": %" PRId64
           ", \"peak_chunks\": %u, \"ranks\": [",
           index->schedule->name, index->n_ranks, index->n_chunks, index->n_microbatches,
           index->n_copies, timing->makespan, timing->bubble, timing->peak);
    for (uint32_t r = 0; r < index->n_ranks; r++) {
        const ds_schedule_rank_time *t = &timing->ranks[r];
        printf("%s{\"start\": %" PRId64 ", \"end\": %" PRId64 ", \"busy\": %" PRId64
               ", \"bubble\": %" PRId64 ", \"idle\": %" PRId64 ", \"peak_chunks\": %u}",
               r ? ", " : "", t->start, t->end, t->busy, t->end - t->start - t->busy,
               timing->makespan - t->busy, t->peak);
    }
    puts("]}");
}

static ds_status print_timeline(const arguments *args, const ds_schedule *schedule, ds_error *err) {
    ds_arena arena;
    ds_arena_init(&arena);
    ds_schedule_index index;
    ds_schedule_timing timing;
    ds_schedule_costs costs = {&args->times, 1, args->pair, args->comm};
    ds_status status = ds_schedule_check(schedule, &arena, &index, err);
    if (!status) status = ds_schedule_time(&index, &costs, &arena, &timing, err);
    if (!status && args->chart) print_chart(&index, &timing);
    if (!status && args->json) print_json(&index, &timing);
    ds_arena_deinit(&arena);
    return status;
}

static ds_status show(ds_unit *unit, arguments *args, ds_error *err) {
    args->options.name = args->name;
    args->options.f_ps = args->times.f;
    args->options.b_ps = args->times.b;
    args->options.w_ps = args->times.w;
    const ds_schedule *schedule;
    DS_TRY(ds_schedule_make(unit, &args->options, &schedule, err));
    if (args->chart || args->json) return print_timeline(args, schedule, err);
    print_text(unit, args, schedule);
    return DS_OK;
}

static int print_one(arguments *args) {
    ds_unit *unit = ds_unit_new();
    ds_error err = {0};
    int exit_code = show(unit, args, &err) ? cli_fail(unit, &err) : 0;
    ds_unit_free(unit);
    return exit_code;
}

int cmd_schedule(int argc, char **argv) {
    arguments args = {.times = {1, 1, 1, 0}};
    cli_parse(&cli_verb_schedule, argc, argv, &args);
    int exit_code;
    if (args.list)
        exit_code = print_list();
    else if (args.run)
        exit_code = cli_schedule_run(args.run, &args.common,
                                     args.csv    ? ds_report_schedules_csv
                                     : args.json ? ds_report_schedules_json
                                                 : ds_report_schedules,
                                     args.html);
    else
        exit_code = print_one(&args);
    cli_options_deinit(&args.common);
    return exit_code;
}
