/* The parts of `distsim profile`. */
#ifndef DS_CLI_PROFILE_H
#define DS_CLI_PROFILE_H

#include "ir/base/csv.h"
#include "ir/base/str.h"
#include "tools/cli/cli.h"

/* One file of a profile (sim/cost/db_text.h), read as a table; *any is false, and nothing is there
 * to free, if the profile has no rows of it. */
ds_status profile_table(const char *db_path, const char *profile, const char *file, ds_csv *out,
                        bool *any, ds_error *err);

/* Prints how profile `b` differs from `a`: measured rows that both have, by op; constants of fits;
 * collectives. */
ds_status profile_diff(const char *db_path, const char *a, const char *b, ds_error *err);

typedef struct profile_check_options {
    const char *const *tables;
    uint32_t n_tables;
    const char *profile; /* NULL: the generic profile of each row's device */
    const char *as;      /* a device whose fits the others borrow; NULL: each has its own */
    const char *on; /* a topology for collectives and dispatch; NULL: machines of the library */
    bool json;
} profile_check_options;

/* Prints how far predictions are from the rows of published tables. Returns the exit code. */
int profile_check(const profile_check_options *options, cli_options *common);

typedef struct profile_calibrate_options {
    const char *table;         /* of measured steps, as `validate` reads it */
    const char *device;        /* rows of this device alone; NULL: all, which are of one */
    const char *split;         /* rows of this split alone; NULL: all */
    const char *folder, *name; /* of the profile that is written; NULL: none, the folder's name */
    bool json;
} profile_calibrate_options;

/* Prints how the errors of the rows fall with the number of rows that the factors of the cluster come
 * from, and writes the factors of all rows as a profile. */
ds_status profile_calibrate(const profile_calibrate_options *options, cli_options *common,
                            ds_error *err);

typedef struct profile_import_options {
    const char *format; /* csv, nccl, kineto, nsys */
    const char *file;
    const char *folder;                   /* where the rows go */
    const char *name, *device, *software; /* of the profile, if the folder has none */
    const char *collective;               /* of an nccl-tests log that does not say; or NULL */
    const char *group;                    /* its devices, as text; or NULL */
    const char *shapes;                   /* of nsys: what each kernel computes */
    const char *source, *title, *place, *licence; /* of the rows; source is the key */
    const char *profiles; /* database with the catalogue; NULL: the default one */
} profile_import_options;

/* Measurements into ops.csv or collectives.csv of the folder, after the rows that are there; makes
 * profile.csv and sources.csv where they are missing, and says what was read and left out. */
ds_status profile_import(const profile_import_options *options, ds_error *err);

/* Measurements between the reader of a format (profile_import_read.c) and the folder. */
typedef struct profile_importer {
    const profile_import_options *options;
    char source[128];        /* key of the rows' source */
    char device[64];         /* the device that the file names; or empty */
    ds_buf ops, collectives; /* rows in the columns below */
    uint32_t n_ops, n_collectives;
    ds_error *err;
} profile_importer;

/* Columns of the two files that rows are for, without `source`. */
#define PROFILE_OP_COLUMNS         16
#define PROFILE_COLLECTIVE_COLUMNS 4
extern const char *const profile_op_columns[PROFILE_OP_COLUMNS];
extern const char *const profile_collective_columns[PROFILE_COLLECTIVE_COLUMNS];
#define PROFILE_MOST_BYTES ((size_t)1 << 28) /* of a file */

/* Reads the file by --format, or by the file's name. */
ds_status profile_import_read(profile_importer *importer);
bool profile_is_collective(const char *name);
/* Digits alone, below 2^63. */
bool profile_whole_number(const char *text, int64_t *out);

#endif
