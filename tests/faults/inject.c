/* A library for LD_PRELOAD by which the n-th allocation or the n-th write of a program fails.
 *
 *     INJECT=malloc:7  the 7th call of malloc, calloc or realloc from main on returns NULL
 *     INJECT=malloc:7+ the 7th and all after it
 *     INJECT=write:3   the 3rd call that writes fails with ENOSPC; write:3+ likewise
 *     INJECT=count     none fails; two lines on stderr at the end say how many there are
 *
 * With INJECT_NO_MALLOC defined the allocator is left alone, for sanitizers that bring their own.
 *
 * A call that writes is one of write, pwrite, fsync, ftruncate, rename, fwrite, fflush, fclose;
 * what goes to stderr does not count. Calls from inside libc (stdio's own writes) are not seen.
 * Calls before main, by the dynamic linker and constructors, are not distsim's to survive. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

/* glibc's allocator by its other names: dlsym allocates itself. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);

typedef enum kind { MALLOC, WRITE, N_KINDS } kind;

static atomic_bool active;
static atomic_ulong calls[N_KINDS];
static unsigned long from[N_KINDS], to[N_KINDS]; /* calls that fail: from <= n <= to */

static bool fails(kind k) {
    if (!atomic_load(&active)) return false;
    unsigned long n = atomic_fetch_add(&calls[k], 1) + 1;
    return n >= from[k] && n <= to[k];
}

#ifndef INJECT_NO_MALLOC
void *malloc(size_t size) {
    if (!fails(MALLOC)) return __libc_malloc(size);
    errno = ENOMEM;
    return NULL;
}

void *calloc(size_t count, size_t size) {
    if (!fails(MALLOC)) return __libc_calloc(count, size);
    errno = ENOMEM;
    return NULL;
}

void *realloc(void *old, size_t size) {
    if (!fails(MALLOC)) return __libc_realloc(old, size);
    errno = ENOMEM;
    return NULL;
}

#endif

static bool full(void) {
    if (!fails(WRITE)) return false;
    errno = ENOSPC;
    return true;
}

/* The function that this library stands before; the casts are POSIX's own way around ISO C. */
#define NEXT(name, result, ...)                                                                    \
    result (*next)(__VA_ARGS__);                                                                   \
    *(void **)&next = dlsym(RTLD_NEXT, name)

ssize_t write(int fd, const void *bytes, size_t n) {
    NEXT("write", ssize_t, int, const void *, size_t);
    return fd != STDERR_FILENO && full() ? -1 : next(fd, bytes, n);
}

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at) {
    NEXT("pwrite", ssize_t, int, const void *, size_t, off_t);
    return full() ? -1 : next(fd, bytes, n, at);
}

ssize_t pwrite64(int fd, const void *bytes, size_t n, off64_t at) {
    NEXT("pwrite64", ssize_t, int, const void *, size_t, off64_t);
    return full() ? -1 : next(fd, bytes, n, at);
}

int fsync(int fd) {
    NEXT("fsync", int, int);
    return full() ? -1 : next(fd);
}

int ftruncate(int fd, off_t n) {
    NEXT("ftruncate", int, int, off_t);
    return full() ? -1 : next(fd, n);
}

int rename(const char *old, const char *new) {
    NEXT("rename", int, const char *, const char *);
    return full() ? -1 : next(old, new);
}

size_t fwrite(const void *bytes, size_t size, size_t n, FILE *file) {
    NEXT("fwrite", size_t, const void *, size_t, size_t, FILE *);
    return file != stderr && full() ? 0 : next(bytes, size, n, file);
}

int fflush(FILE *file) {
    NEXT("fflush", int, FILE *);
    return file && file != stderr && full() ? EOF : next(file);
}

int fclose(FILE *file) { /* of a file that was read, too: nothing may depend on that */
    NEXT("fclose", int, FILE *);
    int code = next(file);
    return full() ? EOF : code;
}

/* ---- from main on ---- */

typedef int main_function(int argc, char **argv, char **environment);

static main_function *program;
static bool counting;

static void read_order(const char *order) {
    static const char *const names[N_KINDS] = {"malloc:", "write:"};
    counting = strcmp(order, "count") == 0;
    for (int k = 0; k < N_KINDS; k++) {
        size_t n = strlen(names[k]);
        if (strncmp(order, names[k], n) != 0) continue;
        char *end;
        from[k] = to[k] = strtoul(order + n, &end, 10);
        if (*end == '+') to[k] = (unsigned long)-1;
    }
}

static int from_main_on(int argc, char **argv, char **environment) {
    const char *order = getenv("INJECT");
    for (int k = 0; k < N_KINDS; k++) from[k] = (unsigned long)-1;
    if (order) read_order(order);
    atomic_store(&active, true);
    int code = program(argc, argv, environment);
    atomic_store(&active, false);
    if (counting)
        fprintf(stderr, "malloc %lu\nwrite %lu\n", atomic_load(&calls[MALLOC]),
                atomic_load(&calls[WRITE]));
    return code;
}

int __libc_start_main(main_function *main, int argc, char **argv, void (*init)(void),
                      void (*fini)(void), void (*rtld_fini)(void), void *stack_end) {
    NEXT("__libc_start_main", int, main_function *, int, char **, void (*)(void), void (*)(void),
         void (*)(void), void *);
    program = main;
    return next(from_main_on, argc, argv, init, fini, rtld_fini, stack_end);
}
