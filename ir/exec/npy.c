/* .npy: magic, version, length of a header that is a Python dictionary, then the elements. */
#include "ir/exec/npy.h"

#include "ir/base/file.h"
#include "ir/exec/tensor.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC      "\x93NUMPY"
#define MAGIC_N    6
#define MAX_HEADER 65535 /* what version 1.0 can say */

typedef struct header {
    char descr[16];
    bool fortran;
    uint32_t rank;
    int64_t dims[DS_MAX_RANK];
} header;

static ds_status bad(const char *path, const char *what, const char *found, ds_error *err) {
    return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "%s: %s%s%.200s%s", path, what,
                        *found ? ": '" : "", found, *found ? "'" : "");
}

/* The text after "'key':", or NULL. */
static const char *value_of(const char *text, const char *key) {
    char quoted[32];
    snprintf(quoted, sizeof quoted, "'%s'", key);
    const char *at = strstr(text, quoted);
    if (!at) return NULL;
    at += strlen(quoted);
    at += strspn(at, " ");
    if (*at++ != ':') return NULL;
    return at + strspn(at, " ");
}

static ds_status read_shape(const char *path, const char *at, header *h, ds_error *err) {
    if (!at || *at != '(') return bad(path, "the header has no shape", at ? at : "", err);
    for (at++; *(at += strspn(at, " ,")) != ')';) {
        char *end;
        errno = 0;
        long long size = strtoll(at, &end, 10);
        if (end == at || errno || size < 0 || !isdigit((unsigned char)*at))
            return bad(path, "the header's shape is not a list of sizes", at, err);
        if (h->rank == DS_MAX_RANK)
            return ds_error_set(err, DS_ERR_LIMIT, DS_NOWHERE, "%s: more than %d dims", path,
                                DS_MAX_RANK);
        h->dims[h->rank++] = size;
        at = *end == 'L' ? end + 1 : end; /* Python 2 wrote longs so */
    }
    return DS_OK;
}

static ds_status parse_header(const char *path, const char *text, header *h, ds_error *err) {
    const char *descr = value_of(text, "descr"), *order = value_of(text, "fortran_order");
    if (!descr) return bad(path, "the header has no descr", text, err);
    size_t n = *descr == '\'' ? strcspn(descr + 1, "'") : sizeof h->descr;
    if (n >= sizeof h->descr)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                            "%s: dtype %.40s; only f4, f8, i1, i4 and i8 are read", path, descr);
    memcpy(h->descr, descr + 1, n);
    h->descr[n] = '\0';
    if (!order) return bad(path, "the header has no fortran_order", text, err);
    if (strncmp(order, "False", 5) != 0)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                            "%s is in Fortran order; save it with numpy.ascontiguousarray", path);
    return read_shape(path, value_of(text, "shape"), h, err);
}

static ds_status find_dtype(const char *path, const header *h, ds_dtype *dtype, ds_error *err) {
    static const struct {
        const char *descr;
        ds_dtype dtype;
    } known[] = {
        {"<f8", DS_F64}, {"<f4", DS_F32}, {"<i8", DS_I64}, {"<i4", DS_I32}, {"|i1", DS_I8}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(h->descr, known[i].descr) == 0) {
            *dtype = known[i].dtype;
            return DS_OK;
        }
    return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                        "%s: dtype '%s'; only <f4, <f8, |i1, <i4 and <i8 are read", path, h->descr);
}

static double element(ds_dtype dtype, const unsigned char *bytes) {
    uint64_t bits = 0;
    for (uint32_t i = 0; i < ds_dtype_bits(dtype) / 8; i++) bits |= (uint64_t)bytes[i] << 8 * i;
    double d;
    float f;
    uint32_t low = (uint32_t)bits;
    switch (dtype) {
    case DS_F64:
        memcpy(&d, &bits, sizeof d);
        return d;
    case DS_F32:
        memcpy(&f, &low, sizeof f);
        return f;
    case DS_I64:
        return (double)(int64_t)bits;
    case DS_I32:
        return (int32_t)low;
    default:
        return (int8_t)(uint8_t)low;
    }
}

static ds_status read_elements(const char *path, FILE *file, ds_exec_tensor *t, ds_error *err) {
    size_t size = ds_dtype_bits(t->dtype) / 8;
    unsigned char bytes[8];
    for (int64_t i = 0; i < t->n; i++) {
        if (fread(bytes, 1, size, file) != size)
            return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "%s ends after %lld of %lld elements",
                                path, (long long)i, (long long)t->n);
        t->at[i] = element(t->dtype, bytes);
    }
    if (fgetc(file) != EOF) return bad(path, "bytes follow the last element", "", err);
    return DS_OK;
}

static ds_status read_header(const char *path, FILE *file, header *h, ds_error *err) {
    unsigned char start[MAGIC_N + 4];
    if (fread(start, 1, sizeof start, file) != sizeof start || memcmp(start, MAGIC, MAGIC_N) != 0)
        return bad(path, "not an .npy file", "", err);
    if (start[MAGIC_N] != 1)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                            "%s: .npy version %d.%d; only version 1.0 is read", path,
                            start[MAGIC_N], start[MAGIC_N + 1]);
    size_t n = (size_t)start[MAGIC_N + 2] | (size_t)start[MAGIC_N + 3] << 8;
    char *text = ds_xcalloc(n + 1, 1);
    ds_status status = fread(text, 1, n, file) == n ? parse_header(path, text, h, err)
                                                    : bad(path, "the header is cut off", "", err);
    free(text);
    return status;
}

ds_status ds_npy_read(const char *path, int64_t max_bytes, ds_exec_tensor *out, ds_error *err) {
    *out = (ds_exec_tensor){0};
    header h = {0};
    FILE *file;
    DS_TRY(ds_file_open(path, DS_NOWHERE, &file, err));
    ds_status status = read_header(path, file, &h, err);
    if (status == DS_OK) status = find_dtype(path, &h, &out->dtype, err);
    out->rank = h.rank;
    memcpy(out->dims, h.dims, sizeof h.dims);
    if (status == DS_OK) status = ds_tensor_count(h.rank, h.dims, DS_NOWHERE, &out->n, err);
    if (status == DS_OK && out->n > max_bytes / (int64_t)sizeof(double))
        status = ds_error_set(err, DS_ERR_LIMIT, DS_NOWHERE,
                              "%s has %lld elements, more than %lld bytes hold (--max-bytes)", path,
                              (long long)out->n, (long long)max_bytes);
    if (status == DS_OK) {
        out->at = ds_xcalloc((size_t)out->n + 1, sizeof *out->at);
        status = read_elements(path, file, out, err);
    }
    fclose(file);
    if (status == DS_OK) return DS_OK;
    free(out->at);
    *out = (ds_exec_tensor){0};
    return status;
}

void ds_npy_print(const ds_exec_tensor *t, ds_buf *out) {
    bool is_float = ds_dtype_is_float(t->dtype);
    ds_buf text = {0};
    ds_buf_printf(&text, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                  is_float ? "<f8" : "<i8");
    for (uint32_t d = 0; d < t->rank; d++)
        ds_buf_printf(&text, "%s%lld%s", d ? " " : "", (long long)t->dims[d],
                      d + 1 < t->rank || t->rank == 1 ? "," : "");
    ds_buf_put(&text, "), }");
    while ((MAGIC_N + 4 + text.n + 1) % 64) ds_buf_putc(&text, ' '); /* the data is aligned */
    ds_buf_putc(&text, '\n');
    ds_buf_put_n(out, MAGIC, MAGIC_N);
    char version[4] = {1, 0, (char)(text.n & 0xff), (char)(text.n >> 8)};
    ds_buf_put_n(out, version, sizeof version);
    ds_buf_put_n(out, text.text, text.n);
    ds_buf_deinit(&text);
    for (int64_t i = 0; i < t->n; i++) {
        uint64_t bits;
        int64_t integer = is_float ? 0 : (int64_t)t->at[i];
        if (is_float)
            memcpy(&bits, &t->at[i], sizeof bits);
        else
            bits = (uint64_t)integer;
        char bytes[8];
        for (int k = 0; k < 8; k++) bytes[k] = (char)(bits >> 8 * k & 0xff);
        ds_buf_put_n(out, bytes, sizeof bytes);
    }
}
