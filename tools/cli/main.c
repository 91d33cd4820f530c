/* distsim VERB …: finds the verb and runs it. */
#include "tools/cli/cli.h"

#include <fcntl.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* Simulations take and give back large arrays, one simulation after another. glibc returns such
 * arrays to the kernel, which clears every page again: a fifth of the time of a sweep. So freed
 * memory stays with the process, in one heap, since the heaps of threads end at 64 MB. Many workers
 * would wait for one heap (assumed: from 9 on; two workers take the heap's lock for 1 % of their
 * time). */
static void keep_freed_memory(void) {
#ifdef __GLIBC__
    mallopt(M_TRIM_THRESHOLD, -1);
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    if (sysconf(_SC_NPROCESSORS_ONLN) <= 8) mallopt(M_ARENA_MAX, 1);
#endif
}

int main(int argc, char **argv) {
    keep_freed_memory();
    hold_streams();
    atexit(check_stdout);
    if (argc < 2) {
        cli_put_usage(stderr);
        return 2;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        cli_put_usage(stdout);
    } else if (strcmp(argv[1], "--version") == 0) {
        puts("distsim " DS_VERSION);
    } else {
        const cli_verb_line *line = cli_find_verb(argv[1]);
        return line ? cli_run_verb(line, argc - 1, argv + 1) : 2;
    }
    return 0;
}
