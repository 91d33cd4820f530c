/* The one error type of distsim.
 *
 * A function that can fail returns a ds_status and takes a `ds_error *err` as its last parameter.
 * The error is set once, at the lowest level, by ds_error_set, with the offending values in its
 * message; callers pass it on unchanged. `err` may be NULL. There is no global error state. */
#ifndef DS_BASE_ERROR_H
#define DS_BASE_ERROR_H

#include <stdarg.h>
#include <stdint.h>

/* X(name, exit code of the command line, what it means) */
#define DS_ERROR_MAP(X)                                                                            \
    X(SYNTAX, 1, "the text does not follow the grammar")                                           \
    X(NAME, 1, "an unknown, duplicate or misplaced name")                                          \
    X(TYPE, 1, "wrong arity, dtype or kind of value")                                              \
    X(SHAPE, 1, "shapes that do not fit together or do not divide")                                \
    X(SHARDING, 1, "shardings or placements that do not fit together")                             \
    X(VALUE, 1, "a value out of its range")                                                        \
    X(UNSUPPORTED, 1, "a legal combination that this version refuses")                             \
    X(UNREACHABLE, 1, "two devices that no route connects")                                        \
    X(COST, 1, "no cost is known for an operation")                                                \
    X(MEMORY, 1, "the program does not fit in device memory")                                      \
    X(DEADLOCK, 1, "no runnable task is left")                                                     \
    X(OVERFLOW, 1, "a number left its range")                                                      \
    X(LIMIT, 1, "an input beyond a stated limit")                                                  \
    X(STOPPED, 1, "the time limit has passed")                                                     \
    X(DATA, 1, "a data file that breaks its format")                                               \
    X(IO, 1, "a file that cannot be read or written")                                              \
    X(USAGE, 2, "wrong command line")                                                              \
    X(STDOUT, 3, "standard output that cannot be written to")                                      \
    X(INTERNAL, 3, "a defect of distsim")

typedef enum ds_status {
    DS_OK,
#define DS_X(name, exit_code, text) DS_ERR_##name,
    DS_ERROR_MAP(DS_X)
#undef DS_X
} ds_status;

/* A place in a source text. `file` is NULL where there is none; of what a unit (see ir/core/ir.h)
 * holds, it points into the unit and lives as long as that. Lines and columns count from 1; columns
 * are bytes. */
typedef struct ds_loc {
    const char *file;
    uint32_t line;
    uint32_t col;
    uint32_t len; /* bytes to underline, at least 1 */
} ds_loc;

#define DS_ERROR_MESSAGE_MAX 2048
#define DS_ERROR_FILE_MAX    1024

/* All of an error's text is its own: an error may be copied, and outlives the unit, the step and
 * every arena that it is about. */
typedef struct ds_error {
    ds_status code;
    struct {
        char file[DS_ERROR_FILE_MAX]; /* "": none; a longer path is "..." and its end */
        uint32_t line, col, len;      /* as in ds_loc */
    } loc;
    char message[DS_ERROR_MESSAGE_MAX];
} ds_error;

#if defined(__GNUC__)
#define DS_PRINTF(fmt_index, arg_index) __attribute__((format(printf, fmt_index, arg_index)))
#else
#define DS_PRINTF(fmt_index, arg_index)
#endif

/* Fills *err (if err is not NULL) and returns `code`, so that `return ds_error_set(...)` reads
 * well. A message longer than the buffer is cut. DS_ERR_IO with errno ENOMEM is no matter of the
 * file: memory has run out, and the process ends (ds_out_of_memory). */
ds_status ds_error_set(ds_error *err, ds_status code, ds_loc loc, const char *format, ...)
    DS_PRINTF(4, 5);
ds_status ds_error_vset(ds_error *err, ds_status code, ds_loc loc, const char *format, va_list ap)
    DS_PRINTF(4, 0);

/* Moves an error (err may be NULL) to another place, and its place as a ds_loc, which points into
 * the error. O(length of the file's name). */
void ds_error_move(ds_error *err, ds_loc loc);
ds_loc ds_error_loc(const ds_error *err);

/* "SYNTAX", "NAME", ... and the sentence of DS_ERROR_MAP. Static strings. */
const char *ds_status_name(ds_status code);
const char *ds_status_text(ds_status code);
/* 0, 1, 2 or 3: the process exit code that belongs to a status. */
int ds_status_exit_code(ds_status code);

/* A location that points nowhere. */
#define DS_NOWHERE ((ds_loc){0})

/* Passes an error on: DS_TRY(f(..., err)); */
#define DS_TRY(call)                                                                               \
    do {                                                                                           \
        ds_status ds_try_status_ = (call);                                                         \
        if (ds_try_status_ != DS_OK) return ds_try_status_;                                        \
    } while (0)

#endif
