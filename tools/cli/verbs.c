/* The table of verbs, and the page that lists the verbs. */
#include "ir/base/str.h"
#include "tools/cli/cli.h"

#include <string.h>

static const cli_verb_line lines[] = {
#define CLI_GROUP(title)  {.group = (title)},
#define CLI_X(name, text) {NULL, #name, "distsim " #name, cmd_##name, &cli_verb_##name, text},
    CLI_VERBS(CLI_GROUP, CLI_X)
#undef CLI_X
#undef CLI_GROUP
};
enum { N_LINES = sizeof lines / sizeof *lines };

const cli_verb_line *cli_verb_lines(uint32_t *n) {
    *n = N_LINES;
    return lines;
}

const cli_verb_line *cli_find_verb(const char *name) {
    const char *names[N_LINES];
    uint32_t n = 0;
    for (int i = 0; i < N_LINES; i++) {
        if (lines[i].group) continue;
        if (strcmp(lines[i].name, name) == 0) return &lines[i];
        names[n++] = lines[i].name;
    }
    const char *near = ds_suggest(name, names, n);
    const char *verb = cli_verb_of_file(name);
    if (verb)
        fprintf(stderr, "distsim: '%s' is a file, and a verb comes first; write distsim %s %s",
                name, verb, name);
    else
        fprintf(stderr, "distsim: unknown verb '%s'", name);
    if (near && !verb) fprintf(stderr, "; did you mean '%s'?", near);
    fputs("\nTry `distsim --help`.\n", stderr);
    return NULL;
}

void cli_put_usage(FILE *out) {
    fputs("Usage: distsim VERB [OPTION...] [FILE...]\n"
          "How long does a training step take on these devices, how much memory, and why?\n",
          out);
    for (int i = 0; i < N_LINES; i++)
        if (lines[i].group)
            fprintf(out, "\n%s:\n", lines[i].group);
        else
            fprintf(out, "  %-11s %s\n", lines[i].name, lines[i].text);
    fputs("\n`distsim help VERB` explains a verb, `distsim --version` prints the version.\n"
          "Exit codes: 0 ok, 1 the program is wrong or does not fit, 2 usage, 3 internal,\n"
          "out of memory, or stdout cannot be written to.\n",
          out);
}

int cli_run_verb(const cli_verb_line *line, int argc, char **argv) {
    char called[32];
    argp_err_exit_status = 2; /* of a usage error; argp's own is EX_USAGE */
    snprintf(called, sizeof called, "%s", line->called);
    argv[0] = called;
    return line->run(argc, argv);
}
