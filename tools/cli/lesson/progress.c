/* Progress: one line a lesson, "05-zero 2 passed": hints shown, and whether an answer has passed. */
#include "ir/base/file.h"
#include "ir/base/output.h"
#include "tools/cli/lesson/lesson.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_BYTES = 1 << 20 };

/* XDG Base Directory Specification: $XDG_STATE_HOME, else $HOME/.local/state; relative paths do not
 * count. False: there is none. */
static bool state_file(ds_buf *out) {
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    if (state && *state == '/')
        ds_buf_put(out, state);
    else if (home && *home == '/')
        ds_buf_printf(out, "%s/.local/state", home);
    else
        return false;
    ds_buf_put(out, "/distsim/lessons");
    return true;
}

static void make_folders(char *path) {
    for (char *at = strchr(path + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = '\0';
        mkdir(path, 0777); /* what is missing is told by whoever writes */
        *at = '/';
    }
}

static void read_all(ds_buf *out) {
    ds_buf path = {0};
    ds_error none;
    ds_buf_put(out, "");
    if (state_file(&path) && ds_file_read(path.text, DS_NOWHERE, MOST_BYTES, out, &none) != DS_OK)
        out->n = 0;
    out->text[out->n] = '\0';
    ds_buf_deinit(&path);
}

/* The line of a lesson, and its end; NULL: there is none. */
static const char *find_line(const char *all, const char *name, const char **end) {
    size_t n = strlen(name);
    for (const char *at = all; *at; at = *end) {
        *end = at + strcspn(at, "\n");
        *end += **end == '\n';
        if (strncmp(at, name, n) == 0 && at[n] == ' ') return at;
    }
    return NULL;
}

lesson_progress lesson_progress_read(const char *name) {
    lesson_progress p = {.hints = 0};
    ds_buf all = {0};
    const char *end;
    snprintf(p.name, sizeof p.name, "%s", name);
    read_all(&all);
    const char *line = find_line(all.text, name, &end);
    if (line) {
        char *rest;
        p.hints = (uint32_t)strtoul(line + strlen(name) + 1, &rest, 10);
        p.passed = strncmp(rest, " passed", 7) == 0;
    }
    ds_buf_deinit(&all);
    return p;
}

void lesson_progress_write(const lesson_progress *p) {
    ds_buf all = {0}, fresh = {0}, path = {0};
    ds_error err;
    const char *end;
    read_all(&all);
    const char *line = find_line(all.text, p->name, &end);
    ds_buf_put_n(&fresh, all.text, line ? (size_t)(line - all.text) : all.n);
    ds_buf_printf(&fresh, "%s %u%s\n", p->name, p->hints, p->passed ? " passed" : "");
    if (line) ds_buf_put(&fresh, end);
    if (state_file(&path)) {
        make_folders(path.text);
        if (ds_output_write(path.text, DS_OUTPUT_OVERWRITE, fresh.text, fresh.n, &err) != DS_OK)
            fprintf(stderr, "distsim lesson: progress is not kept: %s\n", err.message);
    } else {
        fputs("distsim lesson: progress is not kept: neither XDG_STATE_HOME nor HOME is a folder\n",
              stderr);
    }
    ds_buf_deinit(&all);
    ds_buf_deinit(&fresh);
    ds_buf_deinit(&path);
}
