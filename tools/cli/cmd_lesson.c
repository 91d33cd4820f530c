/* distsim lesson: a course that grades itself; a lesson is a folder (tools/cli/lesson/lesson.h). */
#include "ir/base/file.h"
#include "tools/cli/lesson/lesson.h"

#include <string.h>

typedef struct arguments {
    cli_options common;
    const char *lesson; /* number or name; NULL: all */
    const char *answer; /* --check */
    const char *start;  /* --start: where it goes */
    bool hint, solution, verify;
} arguments;

static void check_usage(void *arguments_, struct argp_state *state) {
    const arguments *args = arguments_;
    int n =
        (args->answer != NULL) + (args->start != NULL) + args->hint + args->solution + args->verify;
    if (n > 1)
        argp_error(state, "one of --start, --hint, --check, --solution and --verify at a time");
    if (n && !args->lesson && !args->verify)
        argp_error(state, "which lesson? distsim lesson lists all");
}

#define AT(member) offsetof(arguments, member)
static const cli_option option_rows[] = {
    {CLI_OUTPUT, AT(start), "start", 0, "FILE",
     .help = "Write the program to begin with into FILE; - is stdout"},
    {CLI_FLAG, AT(hint), "hint", 0, NULL, .help = "Show the next hint"},
    {CLI_INPUT, AT(answer), "check", 0, "FILE",
     .help = "Grade an answer: execute, simulate, compare with the lesson's bounds"},
    {CLI_FLAG, AT(solution), "solution", 0, NULL, .help = "Print a solution"},
    {CLI_FLAG, AT(verify), "verify", 0, NULL,
     .help =
         "For authors: hold a lesson, or all, to its promises. The start fails as stated, hints "
         "are legal, the solution passes, each wrong answer gets its own explanation"},
    {0}};

const cli_verb cli_verb_lesson = {
    .options = option_rows,
    .takes = CLI_IMPORTS | CLI_DATABASE | CLI_WRITES,
    .file = AT(lesson),
    .one = "lesson",
    .keeps_words = true,
    .may_lack_words = true,
    .check = check_usage,
    .args_doc = "[LESSON]",
    .doc =
        "A course in distributed training that grades itself by physics. Without LESSON all "
        "lessons with your progress are listed; LESSON is a number or a name, and shows the page. "
        "An answer is a program: its numbers, time, memory and bytes decide. Lessons are the "
        "folders of lessons/ in the library, in $DISTSIM_PATH and in -I. Progress is kept in "
        "$XDG_STATE_HOME/distsim/lessons. Exit code 1 if an answer does not pass."};

static int print(ds_buf *text) {
    ds_error err;
    ds_buf_put(text, "");
    ds_status status = cli_print(text->text, text->n, &err);
    ds_buf_deinit(text);
    return status == DS_OK ? 0 : cli_fail(NULL, &err);
}

/* ---- what a learner asks for ---- */

static int put_list(const lesson_folders *folders) {
    ds_buf out = {0};
    int exit_code = 0;
    for (uint32_t i = 0; i < folders->n; i++) {
        lesson l;
        ds_error err;
        if (lesson_read(folders->at[i], &l, &err) == DS_OK) {
            lesson_progress p = lesson_progress_read(l.name);
            ds_buf_printf(&out, "%4u  %-6s  %s", l.number, p.passed ? "passed" : "", l.title);
            if (p.hints) ds_buf_printf(&out, "  (%u hint%s)", p.hints, p.hints == 1 ? "" : "s");
            ds_buf_putc(&out, '\n');
        } else {
            exit_code |= cli_fail(NULL, &err);
        }
        lesson_deinit(&l);
    }
    ds_buf_put(&out, "\ndistsim lesson 1 opens a lesson, and says how to go on.\n");
    return print(&out) | exit_code;
}

static int put_page(const lesson *l) {
    ds_buf out = {0};
    ds_buf_put(&out, l->page);
    ds_buf_printf(&out,
                  "\n  distsim lesson %u --start my.dir   writes the program to begin with\n"
                  "  distsim lesson %u --hint           shows the next hint\n"
                  "  distsim lesson %u --check my.dir   grades\n"
                  "  files of the lesson: %s\n",
                  l->number, l->number, l->number, l->folder);
    return print(&out);
}

static int put_file(const arguments *args, lesson *l, const char *name, const char *to) {
    ds_buf text = {0};
    ds_error err;
    ds_status status =
        ds_file_read(lesson_file(l, name), DS_NOWHERE, DS_LOAD_MAX_BYTES, &text, &err);
    if (status == DS_OK) status = cli_check_outputs(&args->common, &err);
    if (status == DS_OK) status = cli_write(&args->common, to, text.text, text.n, &err);
    ds_buf_deinit(&text);
    return status == DS_OK ? 0 : cli_fail(NULL, &err);
}

static void put_change(const lesson_change *change, ds_buf *out) {
    if (!change) return;
    for (uint32_t i = 0; i < change->edits.n; i++)
        ds_buf_printf(out, "  write   %s\n  for     %s\n", change->edits.at[i].fresh,
                      change->edits.at[i].old);
    if (change->settings.n) ds_buf_put(out, "  try     distsim run my.dir");
    for (uint32_t i = 0; i < change->settings.n; i++)
        ds_buf_printf(out, " --set %s=%s", change->settings.at[i].path,
                      change->settings.at[i].text);
    if (change->settings.n) ds_buf_putc(out, '\n');
}

/* After the last hint the last one is shown again. */
static int put_hint(const lesson *l) {
    lesson_progress p = lesson_progress_read(l->name);
    ds_buf out = {0};
    uint32_t n = 0, k = 0;
    for (uint32_t i = 0; i < l->entries.n; i++) n += l->entries.at[i].kind == LESSON_HINT;
    p.hints = p.hints < n ? p.hints + 1 : n;
    for (uint32_t i = 0; i < l->entries.n; i++) {
        const lesson_entry *e = &l->entries.at[i];
        if (e->kind != LESSON_HINT || ++k != p.hints) continue;
        ds_buf_printf(&out, "Hint %u of %u: %s\n", k, n, e->text);
        put_change(e->change, &out);
    }
    if (p.hints == n) ds_buf_printf(&out, "That was the last one; --solution shows an answer.\n");
    lesson_progress_write(&p);
    return print(&out);
}

static int grade(const arguments *args, lesson *l) {
    lesson_grade g;
    ds_error err;
    ds_status status =
        lesson_grade_answer(l, &args->common, (lesson_answer){args->answer, NULL}, &g, &err);
    int exit_code = status == DS_OK ? !g.passed : cli_fail(NULL, &err);
    if (status == DS_OK && g.passed) {
        lesson_progress p = lesson_progress_read(l->name);
        p.passed = true;
        lesson_progress_write(&p);
    }
    if (status == DS_OK && print(&g.report)) exit_code = 3;
    lesson_grade_deinit(&g);
    return exit_code;
}

static int verify(const arguments *args, lesson *l) {
    ds_buf out = {0};
    uint32_t n = lesson_verify(l, &args->common, &out);
    ds_buf_printf(&out, "%s: %s\n", l->name, n ? "wrong" : "ok");
    int exit_code = print(&out);
    return exit_code ? exit_code : n > 0;
}

/* ---- the verb ---- */

static int open_lesson(const arguments *args, const char *folder) {
    lesson l;
    ds_error err;
    int exit_code;
    if (lesson_read(folder, &l, &err) != DS_OK)
        exit_code = cli_fail(NULL, &err);
    else if (args->verify)
        exit_code = verify(args, &l);
    else if (args->answer)
        exit_code = grade(args, &l);
    else if (args->start || args->solution)
        exit_code = put_file(args, &l, args->start ? "start.dir" : "solution.dir",
                             args->start ? args->start : "-");
    else
        exit_code = args->hint ? put_hint(&l) : put_page(&l);
    lesson_deinit(&l);
    return exit_code;
}

static int run(const arguments *args, ds_arena *arena) {
    lesson_folders folders = {0};
    ds_error err;
    int exit_code = 0;
    lesson_list(&args->common, arena, &folders);
    if (!args->lesson && !args->verify) return put_list(&folders);
    for (uint32_t i = 0; i < folders.n && !args->lesson; i++)
        exit_code |= open_lesson(args, folders.at[i]);
    if (!args->lesson) return exit_code;
    const char *folder = lesson_find(&folders, args->lesson);
    if (folder) return open_lesson(args, folder);
    ds_error_set(&err, DS_ERR_USAGE, DS_NOWHERE,
                 "there is no lesson '%s'; distsim lesson lists all %u", args->lesson, folders.n);
    return cli_fail(NULL, &err);
}

int cmd_lesson(int argc, char **argv) {
    arguments args = {0};
    ds_arena arena;
    cli_parse(&cli_verb_lesson, argc, argv, &args);
    ds_arena_init(&arena);
    int exit_code = run(&args, &arena);
    ds_arena_deinit(&arena);
    cli_options_deinit(&args.common);
    return exit_code;
}
