/* Spaces and sweeps of texts and files, for tests. */
#ifndef DS_TEST_SWEEP_H
#define DS_TEST_SWEEP_H

#include "search/driver/sweep.h"

typedef struct sweep_case {
    ds_unit *unit;
    ds_binding binding;
    ds_setting settings[8];
    uint32_t n_settings;
    ds_profiles *profiles;
    const char *path;
    char *text; /* NULL: read from path */
    char copy[256];
    ds_status status; /* of loading, verifying, binding: the first failure */
    ds_error err;
} sweep_case;

/* `settings` is "a=1 b=2" or NULL. Imports are found as from scenarios/. */
void sweep_open_text(sweep_case *c, const char *text, const char *settings);
/* `file` is relative to the repository's root; `path` must outlive the case. */
void sweep_open_file(sweep_case *c, const char *path, const char *settings);
void sweep_close(sweep_case *c);

/* The candidates of the case's space, a line each: "2 4 full"; NULL and the error in c->err if
 * there is one. The caller frees it. */
char *sweep_candidates(sweep_case *c);

/* ds_sweep_run; fails the test on an error unless `expected` says which. */
void sweep_run(sweep_case *c, const ds_sweep_options *options, ds_sweep_result *out,
               ds_status expected);

/* A file's bytes, NUL-terminated; the caller frees them. NULL if there is none. */
char *sweep_read(const char *path, size_t *n);
/* Splits a record, whose last newline may be cut off, into its cells, in place: RFC 4180 a second
 * time. The number of cells, 0 if quotes do not match; no more than `max` are stored. */
uint32_t sweep_split(char *record, char **cells, uint32_t max);
/* The place of the column in a table's first record. */
uint32_t sweep_column(const char *table, const char *name);
/* A new empty folder below $TMPDIR or /tmp, and its removal with all files in it. */
void sweep_folder(char path[64]);
void sweep_remove_folder(const char *path);

#endif
