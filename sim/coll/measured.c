/* Tables of measured collectives. */
#include "sim/coll/measured.h"

#include "ir/ops/ops.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { COLLECTIVE, GROUP, SIZE, TIME, SPLIT, DEVICES, N_COLUMNS };
#define N_NEEDED SPLIT

typedef struct reader {
    const ds_csv *csv;
    uint32_t column[N_COLUMNS];
    uint32_t n_devices;
    ds_arena *arena;
    ds_error *err;
} reader;

static const char *cell(const reader *r, const ds_csv_row *row, int column) {
    return r->column[column] == DS_CSV_NO_COLUMN ? "" : row->cells[r->column[column]];
}

/* One range of "0-3 8-11", or a single index; moves *text behind it. */
static bool read_range(const char **text, unsigned long *first, unsigned long *last) {
    char *end;
    *first = *last = strtoul(*text, &end, 10);
    if (end == *text) return false;
    if (*end == '-') {
        *text = end + 1;
        *last = strtoul(*text, &end, 10);
        if (end == *text) return false;
    }
    *text = end + strspn(end, " ");
    return *first <= *last;
}

static ds_status read_devices(const reader *r, const ds_csv_row *row, uint32_t *devices,
                              uint32_t n) {
    const char *text = cell(r, row, DEVICES), *all = text;
    uint32_t found = 0;
    while (*text) {
        unsigned long first, last;
        if (!read_range(&text, &first, &last) || last >= r->n_devices)
            return ds_csv_error(r->csv, row, r->err,
                                "devices '%s': want indices below %u, such as 0-3 8-11", all,
                                r->n_devices);
        for (unsigned long d = first; d <= last; d++) {
            if (found < n) devices[found] = (uint32_t)d;
            for (uint32_t i = 0; i < found && i < n; i++)
                if (devices[i] == d)
                    return ds_csv_error(r->csv, row, r->err, "devices '%s': %lu twice", all, d);
            found++;
        }
    }
    if (found == n) return DS_OK;
    return ds_csv_error(r->csv, row, r->err, "devices '%s' are %u, the group has %u", all, found,
                        n);
}

static ds_opcode opcode_of(const char *name) {
    for (ds_opcode op = DS_OP_ALL_REDUCE; op <= DS_OP_PERMUTE; op++)
        if (strcmp(ds_op_name(op), name) == 0 && op != DS_OP_RECV) return op;
    return DS_OP_INVALID;
}

static ds_status read_split(const reader *r, const ds_csv_row *row, ds_measured *out) {
    const char *split = cell(r, row, SPLIT);
    out->held = strcmp(split, "held") == 0;
    out->aux = strcmp(split, "aux") == 0;
    if (out->held || out->aux || !*split || strcmp(split, "fit") == 0) return DS_OK;
    return ds_csv_error(r->csv, row, r->err, "split '%s': want fit, held or aux", split);
}

static ds_status read_row(const reader *r, const ds_csv_row *row, ds_measured *out) {
    const char *name = cell(r, row, COLLECTIVE);
    char *end[3];
    errno = 0;
    unsigned long n = strtoul(cell(r, row, GROUP), &end[0], 10);
    out->request.op = opcode_of(name);
    out->request.bytes = strtoll(cell(r, row, SIZE), &end[1], 10);
    out->request.shift = 1;
    out->us = strtod(cell(r, row, TIME), &end[2]);
    if (out->request.op == DS_OP_INVALID)
        return ds_csv_error(r->csv, row, r->err, "'%s' is no collective", name);
    if (*end[0] || *end[1] || *end[2] || out->request.bytes <= 0 || !(out->us > 0) ||
        isinf(out->us))
        return ds_csv_error(r->csv, row, r->err, "a size or time that is no number above 0");
    if (errno == ERANGE || out->us > (double)DS_NEVER_PS / 1e6)
        return ds_csv_error(r->csv, row, r->err,
                            "%s bytes over %s in %s us: beyond what is counted", cell(r, row, SIZE),
                            cell(r, row, GROUP), cell(r, row, TIME));
    if (n < 2 || n > r->n_devices)
        return ds_csv_error(r->csv, row, r->err, "a group of %lu: the topology has %u devices", n,
                            r->n_devices);
    uint32_t *devices = DS_NEW_N(r->arena, uint32_t, n);
    for (uint32_t i = 0; i < n; i++) devices[i] = i;
    out->request.devices = devices;
    out->request.n = (uint32_t)n;
    out->has_groups = *cell(r, row, DEVICES) != 0;
    DS_TRY(read_split(r, row, out));
    return out->has_groups ? read_devices(r, row, devices, (uint32_t)n) : DS_OK;
}

ds_status ds_measured_read(const ds_csv *csv, uint32_t n_devices, ds_arena *arena,
                           ds_measured **rows, ds_error *err) {
    static const char *const names[] = {"collective", "group_size", "size_bytes",
                                        "time_us",    "split",      "devices"};
    reader r = {.csv = csv, .n_devices = n_devices, .arena = arena, .err = err};
    for (int i = 0; i < N_COLUMNS; i++) {
        r.column[i] = ds_csv_find(csv, names[i]);
        if (i < N_NEEDED) DS_TRY(ds_csv_need(csv, names[i], &r.column[i], err));
    }
    *rows = DS_NEW_N(arena, ds_measured, csv->rows.n);
    for (uint32_t i = 0; i < csv->rows.n; i++) DS_TRY(read_row(&r, &csv->rows.at[i], &(*rows)[i]));
    return DS_OK;
}

double ds_measured_bus_gb_per_s(const ds_measured *row, double us) {
    double n = row->request.n, factor = 1;
    switch (row->request.op) {
    case DS_OP_ALL_REDUCE:
        factor = 2 * (n - 1) / n;
        break;
    case DS_OP_ALL_GATHER:
    case DS_OP_REDUCE_SCATTER:
    case DS_OP_ALL_TO_ALL:
    case DS_OP_GATHER:
    case DS_OP_SCATTER:
        factor = (n - 1) / n;
        break;
    default:
        break;
    }
    return (double)row->request.bytes * factor / us / 1e3;
}
