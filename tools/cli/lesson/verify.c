/* A lesson held to its promises, by grading what the lesson itself brings. */
#include "tools/cli/lesson/lesson.h"

#include <string.h>

enum { LEAST_WRONG = 5, LEAST_HINTS = 2 };

typedef struct verifier {
    lesson *l;
    const cli_options *options;
    ds_buf *out;
    uint32_t n_wrong; /* promises not kept */
} verifier;

static void complain(verifier *v, const char *place, const char *what, const char *report) {
    ds_buf_printf(v->out, "%s: %s\n", place, what);
    for (const char *at = report; at && *at;) {
        size_t n = strcspn(at, "\n");
        ds_buf_printf(v->out, "    | %.*s\n", (int)n, at);
        at += n + (at[n] == '\n');
    }
    v->n_wrong++;
}

/* The answer must be told the text of `expected`, or pass if that is NULL. */
static void expect(verifier *v, lesson_answer answer, const lesson_entry *expected,
                   const char *place) {
    lesson_grade grade;
    ds_error err;
    if (lesson_grade_answer(v->l, v->options, answer, &grade, &err) != DS_OK)
        complain(v, place, err.message, grade.report.text);
    else if (!expected && !grade.passed)
        complain(v, place, "the solution does not pass", grade.report.text);
    else if (!expected && grade.better)
        complain(v, place, "the solution is better than itself", grade.report.text);
    else if (expected && grade.said != expected)
        complain(v, place,
                 grade.said     ? "another entry speaks first"
                 : grade.passed ? "the wrong answer passes"
                                : "the wrong answer is no program of this lesson",
                 grade.report.text);
    lesson_grade_deinit(&grade);
}

static void check_hint(verifier *v, const lesson_entry *hint, const char *start) {
    ds_buf report = {0};
    ds_buf_put(&report, "");
    if (hint->change && !lesson_is_legal(v->options, (lesson_answer){start, hint->change}, &report))
        complain(v, hint->place, "the hint's change is not legal", report.text);
    ds_buf_deinit(&report);
}

uint32_t lesson_verify(lesson *l, const cli_options *options, ds_buf *out) {
    verifier v = {.l = l, .options = options, .out = out};
    const char *start = lesson_file(l, "start.dir"), *solution = lesson_file(l, "solution.dir");
    uint32_t n_start = 0, n_wrong = 0, n_hints = 0;
    expect(&v, (lesson_answer){solution, NULL}, NULL, solution);
    for (uint32_t i = 0; i < l->entries.n; i++) {
        const lesson_entry *e = &l->entries.at[i];
        if (!*e->text && e->kind != LESSON_LAW)
            complain(&v, e->place, "the entry has no text", NULL);
        if (e->is_start) expect(&v, (lesson_answer){start, NULL}, e, start);
        n_start += e->is_start;
        if (e->kind == LESSON_HINT) {
            check_hint(&v, e, start);
            n_hints++;
        } else if (e->change) {
            expect(&v, (lesson_answer){solution, e->change}, e, e->place);
        }
        n_wrong += e->kind != LESSON_HINT && (e->change || e->is_start);
    }
    if (n_start != 1) complain(&v, l->folder, "one entry has `try start`", NULL);
    if (n_wrong < LEAST_WRONG) complain(&v, l->folder, "fewer than five wrong answers", NULL);
    if (n_hints < LEAST_HINTS) complain(&v, l->folder, "fewer than two hints", NULL);
    return v.n_wrong;
}
