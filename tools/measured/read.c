/* A table's format, its common columns, and the cells of all. */
#include "tools/measured/internal.h"

#include "ir/base/units.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct format {
    const char *name;
    const char *columns; /* of which a table of the format has all, besides device; by spaces */
    ds_status (*read)(const measured_reader *r, measured_row *row);
} format;

/* The first whose columns are there. */
static const format formats[MEASURED_TABLE_COUNT] = {
    [MEASURED_GEMM] = {"gemm", "dtype m n k time_us kernel", measured_read_gemm},
    [MEASURED_ATTENTION] = {"attention",
                            "dtype kernel direction causal batch heads kv_heads head_dim "
                            "head_dim_v seq_q seq_kv time_us",
                            measured_read_attention},
    [MEASURED_MLA] = {"mla",
                      "dtype op direction batch heads qk_nope qk_rope v_head kv_lora seq_q "
                      "seq_kv time_us",
                      measured_read_mla},
    [MEASURED_MOE] = {"moe",
                      "dtype kernel num_tokens hidden inter experts topk moe_tp moe_ep "
                      "distribution time_us",
                      measured_read_moe},
    [MEASURED_MEMORY] = {"memory_bound", "op direction backend dtype rows cols bytes time_us",
                         measured_read_memory},
    [MEASURED_LAUNCH] = {"launch_overhead", "op event_us kernel_us", measured_read_launch},
    [MEASURED_COLLECTIVES] = {"collectives",
                              "collective dtype group_size nodes size_bytes time_us library",
                              measured_read_collectives},
    [MEASURED_DISPATCH] = {"dispatch",
                           "library op nodes ep tokens_per_rank hidden topk dtype time_us",
                           measured_read_dispatch},
    [MEASURED_DEEPBENCH] = {"deepbench", "precision op m n k extra direction time_us",
                            measured_read_deepbench},
};

const char *measured_table_name(measured_table table) {
    return formats[table].name;
}

/* ---- cells ---- */

const char *measured_cell(const measured_reader *r, const char *column) {
    uint32_t at = ds_csv_find(r->csv, column);
    return at == DS_CSV_NO_COLUMN ? "" : r->record->cells[at];
}

static bool is_number(const char *text, double *out) {
    char *end;
    errno = 0;
    *out = strtod(text, &end);
    return *text && !*end && isfinite(*out) && !(errno == ERANGE && fabs(*out) > 1);
}

ds_status measured_int(const measured_reader *r, const char *column, int64_t least, int64_t *out) {
    const char *cell = measured_cell(r, column);
    double value;
    if (!is_number(cell, &value) || value != floor(value) || value < (double)least ||
        value > 0x1p40)
        return ds_csv_error(r->csv, r->record, r->err,
                            "%s = '%s': it must be an integer from %lld to 2^40", column, cell,
                            (long long)least);
    *out = (int64_t)value;
    return DS_OK;
}

ds_status measured_real(const measured_reader *r, const char *column, double *out) {
    const char *cell = measured_cell(r, column);
    if (is_number(cell, out) && *out > 0 && *out < 1e15) return DS_OK;
    return ds_csv_error(r->csv, r->record, r->err, "%s = '%s': it must be a number above 0", column,
                        cell);
}

ds_status measured_dtype(const measured_reader *r, const char *word, ds_dtype *dtype,
                         const char **scales) {
    static const struct {
        const char *word, *format;
        ds_dtype dtype;
    } words[] = {{"bf16", "", DS_BF16},         {"fp16", "", DS_F16},
                 {"fp32", "", DS_F32},          {"tf32", "", DS_TF32},
                 {"fp8", "tensor", DS_F8E4M3},  {"fp8_block", "block", DS_F8E4M3},
                 {"mxfp8", "mxfp8", DS_F8E4M3}, {"nvfp4", "nvfp4", DS_F4E2M1},
                 {"mxfp4", "mxfp4", DS_F4E2M1}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(word, words[i].word) == 0) {
            *dtype = words[i].dtype;
            *scales = words[i].format;
            return DS_OK;
        }
    return ds_csv_error(r->csv, r->record, r->err,
                        "dtype = '%s': none of bf16, fp16, fp32, tf32, fp8, fp8_block, mxfp8, "
                        "nvfp4, mxfp4",
                        word);
}

/* ---- parts ---- */

int64_t measured_times(const int64_t *factors, size_t n) {
    int64_t product = 1;
    for (size_t i = 0; i < n; i++) {
        ds_i128 next = (ds_i128)product * factors[i];
        product = next > MEASURED_MOST ? MEASURED_MOST : (int64_t)next;
    }
    return product;
}

/* Is the work so large that a product of the table's numbers was cut? */
static bool is_cut(const measured_row *row) {
    for (uint32_t i = 0; i < row->n_parts; i++) {
        const ds_work *w = &row->parts[i].work;
        if (w->flop >= MEASURED_MOST || w->bytes_read >= MEASURED_MOST ||
            w->bytes_written >= MEASURED_MOST || w->bytes_converted >= MEASURED_MOST)
            return true;
    }
    return false;
}

ds_work *measured_part_add(measured_row *row, const char *op, ds_work_kind kind, ds_dtype dtype) {
    measured_part *part = &row->parts[row->n_parts++];
    *part = (measured_part){.op = op, .work = {.kind = kind, .dtype = dtype}};
    return &part->work;
}

void measured_part_product(measured_row *row, ds_dtype dtype, const int64_t bmnk[4]) {
    ds_work *w = measured_part_add(row, "matmul", DS_WORK_GEMM, dtype);
    int64_t bits = (int64_t)ds_dtype_bits(dtype), out = bits < 16 ? 16 : bits;
    w->batch = bmnk[0];
    w->m = bmnk[1];
    w->n = bmnk[2];
    w->k = bmnk[3];
    w->flop = TIMES(2, w->batch, w->m, w->n, w->k);
    w->bytes_read = TIMES(w->batch, w->m + w->n, w->k, bits) / 8;
    w->bytes_written = TIMES(w->batch, w->m, w->n, out / 8);
    w->format = row->format;
}

void measured_part_converts(measured_row *row) {
    ds_work *w = &row->parts[row->n_parts - 1].work;
    int64_t bits = (int64_t)ds_dtype_bits(w->dtype);
    /* As ds_work has it: read in 16 bits, written and read again in the narrow dtype. */
    if (bits < 16) w->bytes_converted = TIMES(w->batch, w->m, w->k, 16 + 2 * bits) / 8;
}

void measured_part_bytes(measured_row *row, const char *op, ds_dtype dtype, const int64_t bytes[2],
                         const int64_t tokens_width[2]) {
    ds_work *w = measured_part_add(row, op, DS_WORK_MEMORY, dtype);
    w->bytes_read = bytes[0];
    w->bytes_written = bytes[1];
    w->tokens = tokens_width[0];
    w->width = tokens_width[1];
}

/* ---- tables ---- */

static bool has_columns(const ds_csv *csv, const char *columns) {
    char name[32];
    for (const char *at = columns; *at; at += *at == ' ') {
        size_t n = strcspn(at, " ");
        memcpy(name, at, n);
        name[n] = '\0';
        if (ds_csv_find(csv, name) == DS_CSV_NO_COLUMN) return false;
        at += n;
    }
    return true;
}

static const format *format_of(const ds_csv *csv) {
    if (ds_csv_find(csv, "device") == DS_CSV_NO_COLUMN) return NULL;
    for (uint32_t i = 0; i < MEASURED_TABLE_COUNT; i++)
        if (has_columns(csv, formats[i].columns)) return &formats[i];
    return NULL;
}

static ds_status read_device(const measured_reader *r, const ds_profiles *profiles,
                             measured_row *row) {
    ds_error why;
    if (ds_profiles_find_kind(profiles, row->device, DS_NOWHERE, &row->kind, &why) == DS_OK)
        return DS_OK;
    return ds_csv_error(r->csv, r->record, r->err, "device = '%s': %s", row->device, why.message);
}

static ds_status read_row(const measured_reader *r, const format *f, const ds_profiles *profiles,
                          measured_row *row) {
    const char *kernel = measured_cell(r, "kernel");
    if (!*kernel) kernel = measured_cell(r, "backend");
    if (!*kernel) kernel = measured_cell(r, "library");
    *row = (measured_row){.line = r->record->line,
                          .table = (measured_table)(f - formats),
                          .device = ds_arena_strdup(r->arena, measured_cell(r, "device")),
                          .dtype = ds_arena_strdup(r->arena, measured_cell(r, "dtype")),
                          .op = ds_arena_strdup(r->arena, measured_cell(r, "op")),
                          .direction = ds_arena_strdup(r->arena, measured_cell(r, "direction")),
                          .kernel = ds_arena_strdup(r->arena, kernel),
                          .format = "",
                          .operands = ds_arena_strdup(r->arena, measured_cell(r, "operands")),
                          .split = ds_arena_strdup(r->arena, measured_cell(r, "split"))};
    DS_TRY(read_device(r, profiles, row));
    DS_TRY(f->read(r, row));
    if (!is_cut(row)) return DS_OK;
    return ds_csv_error(r->csv, r->record, r->err, "an operation of more than 2^59 FLOP or bytes");
}

ds_status measured_read(const ds_csv *csv, const ds_profiles *profiles, ds_arena *arena,
                        measured_rows *rows, ds_error *err) {
    const format *f = format_of(csv);
    if (!f)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                            "%s:%u: these are the columns of no table of operations; "
                            "tools/measured/README.md has them",
                            csv->file, csv->header_line);
    for (uint32_t i = 0; i < csv->rows.n; i++) {
        measured_reader r = {.csv = csv, .record = &csv->rows.at[i], .arena = arena, .err = err};
        measured_row row;
        DS_TRY(read_row(&r, f, profiles, &row));
        DS_PUSH(arena, rows, row);
    }
    return DS_OK;
}

void measured_put_family(const measured_row *row, ds_buf *out) {
    ds_buf_put(out, measured_table_name(row->table));
    if (*row->op) ds_buf_printf(out, " %s", row->op);
    if (*row->direction) ds_buf_printf(out, " %s", row->direction);
}
