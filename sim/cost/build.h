/* profiles.db from the CSV files of cost_profiles/. Used by the build and by tests, never by a run.
 */
#ifndef DS_COST_BUILD_H
#define DS_COST_BUILD_H

#include "ir/base/error.h"

/* Reads DIR/schema.sql, DIR/catalogue/ and every other folder of DIR that holds a profile.csv, in
 * byte order of their names, checks every cell and writes a fresh database to `db_path`, in
 * the place of one that exists (ir/base/output.h). The same CSVs give the same content. The formats
 * are in cost_profiles/FORMATS.md.
 * Errors: DS_ERR_IO; DS_ERR_DATA as "file:line: …", a row without a known source among them.
 * Cost: O(rows). */
ds_status ds_profiles_build(const char *dir, const char *db_path, ds_error *err);

#endif
