/* The parts of `distsim profile`. */
#ifndef DS_CLI_PROFILE_H
#define DS_CLI_PROFILE_H

#include "ir/base/csv.h"
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

#endif
