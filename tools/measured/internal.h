/* Shared by the readers of the tables. */
#ifndef DS_MEASURED_INTERNAL_H
#define DS_MEASURED_INTERNAL_H

#include "tools/measured/measured.h"

/* A record of the table that is being read. */
typedef struct measured_reader {
    const ds_csv *csv;
    const ds_csv_row *record;
    ds_arena *arena;
    ds_error *err;
} measured_reader;

/* The cell of a column; "" where the table lacks the column. */
const char *measured_cell(const measured_reader *r, const char *column);
/* An integer from least to 2^40; a decimal that is whole, as 8.0, counts. */
ds_status measured_int(const measured_reader *r, const char *column, int64_t least, int64_t *out);
/* A positive finite number. */
ds_status measured_real(const measured_reader *r, const char *column, double *out);
/* The element type and scales of a table's word for a dtype: bf16, fp8_block, nvfp4 … */
ds_status measured_dtype(const measured_reader *r, const char *word, ds_dtype *dtype,
                         const char **scales);
/* The product, at most MEASURED_MOST: a table's numbers may be any. */
#define MEASURED_MOST (INT64_C(1) << 59)
#define TIMES(...)                                                                                 \
    measured_times((const int64_t[]){__VA_ARGS__},                                                 \
                   sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t))
int64_t measured_times(const int64_t *factors, size_t n);
/* One more part of the row; its work, all else 0. */
ds_work *measured_part_add(measured_row *row, const char *op, ds_work_kind kind, ds_dtype dtype);
/* One more part: batch x (m x k . k x n), with operands of `dtype` and a result of 16 bits. */
void measured_part_product(measured_row *row, ds_dtype dtype, const int64_t bmnk[4]);
/* The first operand of the last product was converted from 16 bits before it. */
void measured_part_converts(measured_row *row);
/* One more part that reads and writes so many bytes. */
void measured_part_bytes(measured_row *row, const char *op, ds_dtype dtype, const int64_t bytes[2],
                         const int64_t tokens_width[2]);

/* ops.c, experts.c, deepbench.c: the columns of one table, as row->parts or row->exchange. */
ds_status measured_read_gemm(const measured_reader *r, measured_row *row);
ds_status measured_read_attention(const measured_reader *r, measured_row *row);
ds_status measured_read_mla(const measured_reader *r, measured_row *row);
ds_status measured_read_moe(const measured_reader *r, measured_row *row);
ds_status measured_read_memory(const measured_reader *r, measured_row *row);
ds_status measured_read_launch(const measured_reader *r, measured_row *row);
ds_status measured_read_collectives(const measured_reader *r, measured_row *row);
ds_status measured_read_dispatch(const measured_reader *r, measured_row *row);
ds_status measured_read_deepbench(const measured_reader *r, measured_row *row);

#endif
