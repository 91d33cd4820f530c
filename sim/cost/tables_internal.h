/* How the CSV files of cost_profiles and the tables of the database belong together: read one way
 * by db_build.c, the other way by db_text.c. */
#ifndef DS_COST_TABLES_INTERNAL_H
#define DS_COST_TABLES_INTERNAL_H

#include "ir/base/csv.h"

typedef struct builder builder;

typedef enum cell_kind {
    CELL_TEXT,
    CELL_KEY,    /* text that may not be empty */
    CELL_DTYPE,  /* a dtype of the language */
    CELL_DTYPES, /* the same, or '*' */
    CELL_INT,    /* integer ≥ 0; empty: 0 */
    CELL_SCALED, /* decimal × scale; must come out as an integer; empty: 0, or NULL if optional */
    CELL_REAL,   /* finite; empty: NULL if optional */
    CELL_BOOL,   /* 0 or 1; empty: 0 */
    CELL_SOURCE, /* a key of a sources.csv */
    CELL_DEVICE  /* a device or alias of the catalogue */
} cell_kind;

typedef struct column {
    const char *csv;   /* in the file */
    const char *table; /* in the database */
    cell_kind kind;
    bool optional; /* the file may lack it, the cell may be empty */
    int64_t scale; /* SCALED */
} column;

typedef struct table {
    const char *file;
    const char *name;
    bool of_profile; /* has a column `profile` that every row sets to the folder's */
    const column *columns;
    uint32_t n_columns;
    /* Called for each row after it is in; may be NULL. */
    ds_status (*after)(builder *b, const ds_csv *csv, const ds_csv_row *row, int64_t id);
} table;

/* Of one profile, profile.csv first. */
#define DS_COST_PROFILE_TABLES 8
extern const table *const ds_cost__profile_tables[DS_COST_PROFILE_TABLES];
extern const table *const ds_cost__sources;
extern const table ds_cost__attention_fits;
extern const table ds_cost__collectives, ds_cost__collective_fits, ds_cost__protocols;

#endif
