/* What fuzz targets share: choices made by the input's bytes, edits of a text by them, files of the
 * process's own, verbs of the command line called in the process. */
#ifndef DS_FUZZ_SUPPORT_H
#define DS_FUZZ_SUPPORT_H

#include "ir/base/str.h"
#include "tools/cli/cli.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FUZZ_COUNT(array) ((uint32_t)(sizeof(array) / sizeof *(array)))

/* ---- choices: 0 where no bytes are left ---- */

typedef struct fuzz_bytes {
    const uint8_t *at;
    size_t n;
} fuzz_bytes;

uint8_t fuzz_byte(fuzz_bytes *bytes);
uint32_t fuzz_below(fuzz_bytes *bytes, uint32_t n); /* 0 to n - 1; n > 0 */
/* Appends a value that programs take badly: 0, 2^62, 1e308, nan, nothing, quotes, NUL … */
void fuzz_value(fuzz_bytes *bytes, ds_buf *out);

/* Edits a text, once to three times mostly, 19 times at most: cells between `separators` (and line
 * ends) become values, bytes, other cells; lines go, come twice and change places; the text is cut.
 * Without bytes it stays as it is. If ',' is a separator, some values are quoted. */
void fuzz_edit(fuzz_bytes *bytes, const char *separators, ds_buf *text);

/* ---- files, in a folder that is removed at the end ---- */

const char *fuzz_path(const char *name); /* stays valid; 32 names at most */
const char *fuzz_write(const char *name, const char *text, size_t n); /* its path */
void fuzz_read(const char *path, ds_buf *out);                        /* ends the process if not */
/* Lines first to first + n - 1 (from 0 on) of a file of the source tree, after its first `head`. */
void fuzz_read_lines(const char *path, uint32_t head, uint32_t first, uint32_t n, ds_buf *out);
/* A small cost database: the catalogue, and four profiles with few measured rows. */
const char *fuzz_profiles(void);

/* ---- verbs ---- */

/* Runs the verb (cmd_…) with these words (NULL-ended, argv[0] left out), its output thrown away
 * unless the environment has DS_FUZZ_SHOW. Returns the exit code; 3, an internal error, ends the
 * process. At the end it is said how often each verb was called, and how often it returned 0. */
#define fuzz_verb(verb, words) fuzz_call(#verb, verb, words)
int fuzz_call(const char *name, int (*verb)(int argc, char **argv), const char *const *words);

/* ---- what importers write ---- */

/* A program as an importer writes it: it parses, is canonical and verifies (not if it has imports,
 * which are not followed), or the process ends. */
void fuzz_check_program(const ds_buf *text, bool has_imports);
/* A topology: it builds too, and comes back from GraphML with as many vertices and links. */
void fuzz_check_topology(const ds_buf *text);

/* ---- results ---- */

/* Of each device the times of compute, exposed communication and idleness are the step's. */
void fuzz_check_result(const struct ds_result *result);

/* Says what went wrong and ends the process as a crash does. */
void fuzz_fail(const char *what, const char *detail);

#endif
