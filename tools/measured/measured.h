/* Published tables of single operations (tests/data/ops), read as work that the cost model prices.
 *
 * The format of a table follows from its columns, so that tables of others under any name are read.
 * A row becomes one or more parts, each a mnemonic with its ds_work, whose times add up; or an
 * exchange between devices (links.c); or a reason why nothing here predicts the row. A cell that
 * cannot be read is an error with line and value, and no reason. */
#ifndef DS_MEASURED_MEASURED_H
#define DS_MEASURED_MEASURED_H

#include "ir/base/csv.h"
#include "sim/cost/cost.h"
#include "sim/topo/topo.h"

typedef enum measured_table {
    MEASURED_GEMM,
    MEASURED_ATTENTION,
    MEASURED_MLA,
    MEASURED_MOE,
    MEASURED_MEMORY,
    MEASURED_LAUNCH,
    MEASURED_COLLECTIVES,
    MEASURED_DISPATCH,
    MEASURED_DEEPBENCH,
    MEASURED_TABLE_COUNT
} measured_table;

/* "gemm", "attention", …: the first word of a family. */
const char *measured_table_name(measured_table table);

typedef struct measured_part {
    const char *op; /* the mnemonic; of fused ops a name that no op of the language has */
    ds_work work;
    ds_kernel_stack kernels; /* whose kernel ran */
} measured_part;

/* An exchange over links, of collectives and dispatch. */
typedef struct measured_exchange {
    const char *op; /* all_reduce …; dispatch, combine */
    int64_t group, nodes;
    int64_t bytes;                         /* of a collective, as nccl-tests counts */
    int64_t tokens, hidden, topk, experts; /* of a dispatch: tokens of a rank */
    int64_t bits;                          /* of an element that is sent */
    int64_t blocks;                        /* multiprocessors that send; 0: not said */
} measured_exchange;

enum { MEASURED_MOST_PARTS = 10 };

/* Texts live as long as the rows' arena. */
typedef struct measured_row {
    uint32_t line;
    measured_table table;
    uint32_t kind;      /* of the catalogue */
    const char *device; /* as the table calls it */
    const char *dtype;  /* as the table has it; "" where the table has none */
    const char *op;     /* as the table has it, "" where the table has none */
    const char *direction;
    const char *kernel; /* kernel, backend or library: the software that ran */
    const char *format; /* scales of narrow operands: "" none, "tensor", "block", "nvfp4", "mxfp4",
                             "mxfp8" */
    const char *operands; /* what the matrices held; "" not said */
    const char *split;    /* "" not said */
    double us;
    const char *refused; /* NULL: the row is predicted */
    uint32_t n_parts;    /* 0: an exchange, or the gap of a launch */
    measured_part parts[MEASURED_MOST_PARTS];
    measured_exchange exchange;
} measured_row;

typedef DS_VEC(measured_row) measured_rows;

/* Appends the rows of a table to `rows`, in `arena`. Errors: DS_ERR_DATA with file and line for a
 * table of no known format, a cell that is no number or out of range, a device that the catalogue
 * lacks. O(rows). */
ds_status measured_read(const ds_csv *csv, const ds_profiles *profiles, ds_arena *arena,
                        measured_rows *rows, ds_error *err);

/* Prints the family: table, op and direction, as far as the table has the three. */
void measured_put_family(const measured_row *row, ds_buf *out);

/* Microseconds of a row of parts, or of a launch's gap, by the profile; *exact: a measured row of
 * the profile gave the time of a part. If the profile has no constant for a part, the function sets
 * row->refused. */
ds_status measured_price(const ds_profiles *profiles, uint32_t profile, ds_cost_mode mode,
                         measured_row *row, double *us, bool *exact, ds_error *err);

/* Microseconds of a row that is an exchange, on the topology; NULL: on a machine of the device's
 * own generation, as README.md says. Devices of one kind each keep the topologies that were made. */
typedef struct measured_machines measured_machines;
measured_machines *measured_machines_new(const ds_profiles *profiles);
void measured_machines_free(measured_machines *machines);
ds_status measured_exchange_price(measured_machines *machines, uint32_t profile, ds_topo *on,
                                  measured_row *row, double *us, ds_error *err);

/* A dispatch or combine (sim/cost/exchange.h) over so many nodes; without the links' rates. */
void measured_sending_of(const measured_row *row, int64_t n_nodes, ds_sending *out);
/* The word for a kernel in efficiency.csv, after "send_": "deepep"; NULL: no known kernel. */
const char *measured_sending_kernel(const measured_row *row);
/* False: the profile has no fit of the kernel. */
bool measured_sending_fit_of(const ds_profiles *profiles, uint32_t profile, const measured_row *row,
                             bool between_nodes, ds_sending_fit *out);
/* With the rates of the row's machine, or of a topology; may set row->refused. */
ds_status measured_sending_on(measured_machines *machines, ds_topo *on, measured_row *row,
                              ds_sending *out, ds_error *err);

/* Of errors predicted/measured - 1: median and 90th percentile (linear between ranks) of their
 * sizes, and their mean. All 0 for none. */
typedef struct measured_errors {
    double median, p90, bias;
} measured_errors;
measured_errors measured_errors_of(const double *errors, uint32_t n);

#endif
