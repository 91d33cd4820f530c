/* A profile of the database as the CSV files that it was made of (cost_profiles/FORMATS.md), for
 * `distsim profile`: what is written here builds the same database again. */
#ifndef DS_COST_DB_TEXT_H
#define DS_COST_DB_TEXT_H

#include "ir/base/error.h"
#include "ir/base/str.h"

/* The files of a profile, as far as they may have rows: "profile.csv", "ops.csv", ... NULL at the
 * end. */
extern const char *const ds_profile_files[];

/* Appends one file of the profile, header included, rows by their first three columns; nothing at
 * all if it has no rows. `file` is one of ds_profile_files or "sources.csv" (the sources that the
 * profile's rows name). db_path NULL: as ds_profiles_load. Errors: DS_ERR_IO, DS_ERR_DATA,
 * DS_ERR_NAME with a suggestion. O(rows). */
ds_status ds_profile_text(const char *db_path, const char *profile, const char *file, ds_buf *out,
                          ds_error *err);

/* Appends a table of all profiles: profile, device, ops, curves, gemm_fits, collectives, fits,
 * protocols (numbers of rows), software, default, framework, steps, step_error, steps_split; by
 * device, of a device the default first. */
ds_status ds_profile_list_text(const char *db_path, ds_buf *out, ds_error *err);

#endif
