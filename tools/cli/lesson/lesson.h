/* A course of lessons that grade themselves: `distsim lesson`.
 *
 * A lesson is a folder lessons/NN-NAME/ of the library (ir/lang/library.h) with
 *
 *     lesson.md      the page: a question, a text, a picture; its first line is the title
 *     start.dir      the program with a gap
 *     solution.dir   one answer
 *     check          what an answer must do, what typical wrong answers do instead, hints
 *
 * A folder added is a lesson added. `check` has a line an entry; lines that begin with a blank
 * belong to the entry above:
 *
 *     open strategy.zero           what an answer may change of start.dir: a key of the scenario, a
 *     open param answer            block of keys, a param, a function (`func @step`); then an
 *                                  answer may add functions and params, too
 *     best peak_memory             what a better answer than the solution has less of
 *     require peak_memory <= 8 GiB a condition, with what a learner reads where it does not hold
 *       show the step fits         in the report, in place of the condition and its value
 *       Text.
 *     law sent == 2 * weights      a condition that every answer meets unless the simulator errs: shown
 *                                  only where it does not hold, and needs no text
 *     when zero == 0               a wrong answer, with what it does instead
 *       try strategy.zero=0        an example of one: a change of solution.dir, for --verify
 *       Text with {peak_memory, GiB}.
 *     equal passes layers=2        executed, the step is equal to the model to 1e-9, with params
 *                                  that make both small; or `equal FILE.dir n=8 w.new`: to that
 *                                  program, in the results named (none: in all)
 *     hint                         the next hint; `try` is a change of start.dir
 *       try `dp = 1` => `dp = 4`
 *
 * Expressions are those of a sweep's `where`, over the program's params and the names of
 * lesson_values. An answer passes if all `require`, `law` and `equal` hold and no `when` does; the first
 * entry that speaks against the answer says why. `try start` marks the entry that start.dir meets. */
#ifndef DS_TOOLS_CLI_LESSON_H
#define DS_TOOLS_CLI_LESSON_H

#include "sim/run/run.h"
#include "tools/cli/cli.h"

/* ---- read.c: a lesson ---- */

typedef enum lesson_kind {
    LESSON_REQUIRE,
    LESSON_LAW,
    LESSON_WHEN,
    LESSON_EQUAL,
    LESSON_HINT
} lesson_kind;

typedef struct lesson_edit {
    const char *old, *fresh;
} lesson_edit;

/* A change of a program: settings, and texts in place of others. */
typedef struct lesson_change {
    DS_VEC(ds_setting) settings;
    DS_VEC(lesson_edit) edits;
} lesson_change;

typedef struct lesson_entry {
    lesson_kind kind;
    const char *place; /* "…/check:12" */
    const char *head;  /* the condition, or what `equal` says */
    const char *text;
    const char *show;      /* in the report, in place of the condition; NULL: the condition */
    bool is_start;         /* start.dir meets it */
    lesson_change *change; /* NULL: none */
} lesson_entry;

typedef struct lesson {
    ds_arena arena;
    const char *folder, *name; /* "05-zero" */
    uint32_t number;
    const char *title, *page;
    const char *best;
    DS_VEC(const char *) open;
    DS_VEC(lesson_entry) entries;
} lesson;

/* The folders' paths of all lessons, by name; the texts are in the arena. */
typedef DS_VEC(const char *) lesson_folders;
void lesson_list(const cli_options *options, ds_arena *arena, lesson_folders *out);
/* Number, name or end of the name, as "5" or "zero"; NULL: no lesson is called so. */
const char *lesson_find(const lesson_folders *folders, const char *name);
const char *lesson_name(const char *folder);
/* Reads a lesson. Errors: files, the syntax of `check`. Free it either way. */
ds_status lesson_read(const char *folder, lesson *out, ds_error *err);
void lesson_deinit(lesson *l);
/* The path of a file of the lesson, in its arena. */
const char *lesson_file(lesson *l, const char *name);

/* ---- progress.c: what a learner has done, in $XDG_STATE_HOME/distsim/lessons ---- */

typedef struct lesson_progress {
    char name[64];
    uint32_t hints; /* shown */
    bool passed;
} lesson_progress;

/* Nothing is known of a lesson that the file lacks. */
lesson_progress lesson_progress_read(const char *name);
/* Says on stderr where it cannot be kept. */
void lesson_progress_write(const lesson_progress *progress);

/* ---- values.c: names of conditions ---- */

/* Of a run: knobs of a model's strategy and training; results (metrics.def) by their name in sweeps,
 * else in JSON without `_ps`, times in seconds; bytes of the fullest device at its peak by category,
 * as `weight_memory`; of the device that sends most `bytes_sent`, `all_reduce_bytes` and
 * `all_reduce_count` (so for each collective), and `ring_time` (so for each algorithm); `busy`, the
 * time in which devices compute, summed over all; with jitter `step_mean`, `step_p50`, `step_p95`,
 * `step_p99`. */
typedef struct lesson_values {
    DS_VEC(ds_named) all;
    DS_VEC(const char *) names;
} lesson_values;
void lesson_values_read(const ds_result *result, ds_unit *unit, lesson_values *out);

/* ---- grade.c ---- */

typedef struct lesson_grade {
    bool passed, better;
    const lesson_entry *said; /* that speaks against the answer; NULL: none does */
    ds_buf report;            /* for the learner */
} lesson_grade;

/* A program: a file, and a change of it (NULL: none). */
typedef struct lesson_answer {
    const char *path;
    const lesson_change *change;
} lesson_answer;

/* Grades an answer. Errors: of the lesson itself; what is wrong with an answer is in the report. */
ds_status lesson_grade_answer(lesson *l, const cli_options *options, lesson_answer answer,
                              lesson_grade *out, ds_error *err);
void lesson_grade_deinit(lesson_grade *grade);
/* Does the program load, verify, and run? If not, `report` says why. */
bool lesson_is_legal(const cli_options *options, lesson_answer answer, ds_buf *report);

/* ---- verify.c ---- */

/* Holds a lesson to its promises: start.dir fails at its entry, each hint's change is legal,
 * solution.dir passes, each `try` is told its own entry's text; appends what is wrong. Returns how
 * much is. */
uint32_t lesson_verify(lesson *l, const cli_options *options, ds_buf *out);

#endif
