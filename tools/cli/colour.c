#include "tools/cli/colour.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ECMA-48, "select graphic rendition". */
#define BOLD   "\033[1m"
#define RED    "\033[1;31m"
#define YELLOW "\033[1;33m"
#define BLUE   "\033[1;34m"
#define PLAIN  "\033[0m"

bool cli_has_colour(FILE *stream) {
    const char *no_colour = getenv("NO_COLOR"), *terminal = getenv("TERM");
    if (no_colour && *no_colour) return false;
    return isatty(fileno(stream)) && terminal && strcmp(terminal, "dumb") != 0;
}

static void put_coloured(const char *text, size_t n, const char *colour, FILE *stream) {
    fprintf(stream, "%s%.*s" PLAIN, colour, (int)n, text);
}

/* ---- diagnostics ---- */

static const char *const severities[][2] = {
    {"error: ", RED}, {"warning: ", YELLOW}, {"note: ", BLUE}};

/* The first of the words in the line, or NULL. */
static const char *find_severity(const char *line, size_t n, size_t *which) {
    const char *first = NULL;
    for (size_t i = 0; i < sizeof severities / sizeof *severities; i++) {
        const char *at = strstr(line, severities[i][0]);
        if (!at || at >= line + n || (first && at > first)) continue;
        first = at;
        *which = i;
    }
    return first;
}

static bool has_carets(const char *line, size_t n) {
    return memchr(line, '^', n) && strspn(line, " |^~\t") == n;
}

static void put_diagnostic(const char *line, size_t n, FILE *stream) {
    size_t which;
    const char *word = find_severity(line, n, &which);
    if (word) {
        size_t before = (size_t)(word - line), length = strlen(severities[which][0]) - 1;
        fprintf(stream, "%.*s", (int)before, line);
        put_coloured(word, length, severities[which][1], stream);
        fprintf(stream, "%.*s", (int)(n - before - length), word + length);
    } else if (has_carets(line, n)) {
        put_coloured(line, n, RED, stream);
    } else {
        fprintf(stream, "%.*s", (int)n, line);
    }
}

void cli_put_diagnostics(const char *text, FILE *stream) {
    if (!cli_has_colour(stream)) {
        fputs(text, stream);
        return;
    }
    while (*text) {
        size_t n = strcspn(text, "\n");
        put_diagnostic(text, n, stream);
        text += n;
        if (*text) putc(*text++, stream);
    }
}

/* ---- reports ---- */

void cli_put_report(const char *text, FILE *stream) {
    static const char verdict[] = "DOES NOT FIT";
    if (!cli_has_colour(stream)) {
        fputs(text, stream);
        return;
    }
    while (*text) {
        size_t n = strcspn(text, "\n");
        if (strncmp(text, verdict, sizeof verdict - 1) == 0)
            put_coloured(text, n, RED, stream);
        else if (n && *text != ' ' && strncmp(text + n, "\n ", 2) == 0)
            put_coloured(text, n, BOLD, stream);
        else
            fprintf(stream, "%.*s", (int)n, text);
        text += n;
        if (*text) putc(*text++, stream);
    }
}
