/* distsim VERB …: finds the verb and runs it. */
#include "ir/base/str.h"
#include "tools/cli/cli.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct verb {
    const char *name;
    const char *called; /* what stands for argv[0] in the verb's own messages */
    int (*run)(int argc, char **argv);
    const char *text;
} verb;

static const verb verbs[] = {
#define CLI_X(name, text) {#name, "distsim " #name, cmd_##name, text},
    CLI_VERBS(CLI_X)
#undef CLI_X
};
enum { N_VERBS = sizeof verbs / sizeof *verbs };

static void print_usage(FILE *out) {
    fputs("Usage: distsim VERB [OPTION...] [FILE...]\n"
          "How long does a training step take on these devices, how much memory, and why?\n\n",
          out);
    for (int i = 0; i < N_VERBS; i++) fprintf(out, "  %-9s %s\n", verbs[i].name, verbs[i].text);
    fputs("\n`distsim VERB --help` explains a verb, `distsim --version` prints the version.\n"
          "Exit codes: 0 ok, 1 the program is wrong or does not fit, 2 usage, 3 internal,\n"
          "out of memory, or stdout cannot be written to.\n",
          out);
}

static const verb *find_verb(const char *name) {
    for (int i = 0; i < N_VERBS; i++)
        if (strcmp(verbs[i].name, name) == 0) return &verbs[i];
    return NULL;
}

static int unknown_verb(const char *name) {
    const char *names[N_VERBS];
    for (int i = 0; i < N_VERBS; i++) names[i] = verbs[i].name;
    const char *near = ds_suggest(name, names, N_VERBS);
    fprintf(stderr, "distsim: unknown verb '%s'", name);
    if (near) fprintf(stderr, "; did you mean '%s'?", near);
    fputs("\nTry `distsim --help`.\n", stderr);
    return 2;
}

/* Runs at exit, so also after argp's --help, which ends the process. */
static void check_stdout(void) {
    if (fflush(stdout) == 0 && !ferror(stdout)) return;
    fputs("distsim: error: cannot write to stdout\n", stderr);
    _exit(ds_status_exit_code(DS_ERR_STDOUT));
}

/* Opens /dev/null, to read, for each standard stream that the caller has closed; else the first
 * file that distsim opens would get the stream's number. Writing to such a stdout fails. */
static void hold_streams(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) != fd) abort();
}

int main(int argc, char **argv) {
    hold_streams();
    atexit(check_stdout);
    if (argc < 2) {
        print_usage(stderr);
        return 2;
    }
    int exit_code = 0;
    const verb *found = find_verb(argv[1]);
    if (found) {
        argp_err_exit_status = 2; /* what argp exits with on a usage error; EX_USAGE otherwise */
        char called[32];
        snprintf(called, sizeof called, "%s", found->called);
        argv[1] = called;
        exit_code = found->run(argc - 1, argv + 1);
    } else if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_usage(stdout);
    } else if (strcmp(argv[1], "--version") == 0) {
        puts("distsim " DS_VERSION);
    } else {
        return unknown_verb(argv[1]);
    }
    return exit_code;
}
