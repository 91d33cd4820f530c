/* A trace is a list of events. Those of category `kernel` carry "External id", the number of the
 * operator event (category `cpu_op`) that launched them; operators carry "Input Dims" and "Input
 * type". Kernels are summed by that number first, then every sum becomes a row of the operator in
 * the table below that is nearest to its kernels.
 *
 * Numbers in a trace may be anything: what does not make a legal shape is passed over. */
#include "ir/import/kineto.h"

#include "ir/base/arena.h"
#include "ir/base/file.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BYTES ((size_t)1 << 30)
#define MAX_DIM   ((int64_t)1 << 40)
#define LEAST_US  0.0005 /* what is less is printed as no time */

/* ---- kernels by operator ---- */

typedef struct launch {
    int64_t id; /* external id */
    double us;
    const json_t *by; /* the operator that counts for it; NULL: none that is known here */
    double start_us;  /* of that */
} launch;

typedef struct trace {
    DS_VEC(launch) launches; /* heap; after merging sorted by id, each once */
    ds_kineto_counts *counts;
    ds_buf *rows;
} trace;

static int by_id(const void *a, const void *b) {
    const launch *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

static bool is_category(const json_t *event, const char *category) {
    const char *cat = json_string_value(json_object_get(event, "cat"));
    return cat && strcmp(cat, category) == 0;
}

static bool external_id(const json_t *event, int64_t *id) {
    const json_t *args = json_object_get(event, "args");
    const json_t *value = json_object_get(args, "External id");
    if (!value) value = json_object_get(args, "external id");
    if (!json_is_integer(value)) return false;
    *id = json_integer_value(value);
    return true;
}

static void take_kernel(trace *t, const json_t *event) {
    double us = json_number_value(json_object_get(event, "dur"));
    launch l;
    if (!is_category(event, "kernel") || !(us > 0) || !(us < 1e12)) return;
    t->counts->kernels++;
    t->counts->all_us += us;
    if (!external_id(event, &l.id)) return;
    l = (launch){.id = l.id, .us = us};
    DS_HPUSH(&t->launches, l);
}

static void merge_launches(trace *t) {
    uint32_t n = 0;
    if (t->launches.n) qsort(t->launches.at, t->launches.n, sizeof *t->launches.at, by_id);
    for (uint32_t i = 0; i < t->launches.n; i++) {
        launch l = t->launches.at[i];
        if (n && t->launches.at[n - 1].id == l.id)
            t->launches.at[n - 1].us += l.us;
        else
            t->launches.at[n++] = l;
    }
    t->launches.n = n;
}

/* ---- operators ---- */

#define MAX_RANK 6

typedef struct tensor {
    int64_t dim[MAX_RANK];
    size_t rank;
} tensor;

struct known;

typedef struct operator{
    const json_t *dims, *types; /* arrays */
    const json_t *values;       /* array of texts, or NULL */
    double us;
    const struct known *known;
    trace *trace;
}
operator;

/* Input i of the operator; false if it is no tensor of at least `rank` dims. */
static bool input(const operator* o, size_t i, size_t rank, tensor *out) {
    const json_t *dims = json_array_get(o->dims, i);
    *out = (tensor){.rank = json_array_size(dims)};
    if (out->rank < rank || out->rank > MAX_RANK) return false;
    for (size_t d = 0; d < out->rank; d++) {
        const json_t *dim = json_array_get(dims, d);
        out->dim[d] = json_is_integer(dim) ? json_integer_value(dim) : 0;
        if (out->dim[d] < 1 || out->dim[d] > MAX_DIM) return false;
    }
    return true;
}

/* The language's name of the dtype of input i, NULL if it has none. */
static const char *dtype_of(const operator* o, size_t i) {
    static const struct {
        const char *torch, *name;
    } dtypes[] = {
        {"c10::Half", "f16"}, {"c10::BFloat16", "bf16"}, {"float", "f32"}, {"double", "f64"}};
    const char *type = json_string_value(json_array_get(o->types, i));
    for (size_t d = 0; type && d < sizeof dtypes / sizeof *dtypes; d++)
        if (strcmp(type, dtypes[d].torch) == 0) return dtypes[d].name;
    return NULL;
}

static bool put_time(const operator* o) {
    ds_buf_printf(o->trace->rows, "%.3f\n", o->us);
    return true;
}

/* a [.., m, k] . b [.., k, n], operands `first` and the one after it. */
static bool put_product(const operator* o, size_t first) {
    tensor a, b;
    const char *dtype = dtype_of(o, first);
    if (!dtype || !input(o, first, 2, &a) || !input(o, first + 1, 2, &b)) return false;
    int64_t batch = a.rank == 3 ? a.dim[0] : 1;
    if (a.rank > 3 || a.rank != b.rank || a.dim[a.rank - 1] != b.dim[b.rank - 2]) return false;
    ds_buf_printf(o->trace->rows,
                  "gemm,gemm,%s,%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",,,,,,,,,", dtype,
                  batch, a.dim[a.rank - 2], b.dim[b.rank - 1], a.dim[a.rank - 1]);
    return put_time(o);
}

static bool put_mm(const operator* o) {
    return put_product(o, 0);
}

static bool put_addmm(const operator* o) { /* input 0 is what is added */
    return put_product(o, 1);
}

/* An entry of the table below. */
struct known {
    const char *torch;
    bool (*put)(const operator* o);
    const char *op;   /* the mnemonic, of memory-bound ones */
    size_t causal_at; /* of attention: the input that says so */
};

/* Traces have the values of inputs only if they were asked for: else causal if the lengths are
 * equal, the usual case of training. A kind of mask, as _efficient_attention_forward has, is 0 for
 * none. */
static bool is_causal(const operator* o, bool equal) {
    const char *value = json_string_value(json_array_get(o->values, o->known->causal_at));
    if (!value || !*value) return equal;
    return strcmp(value, "False") != 0 && strcmp(value, "0") != 0;
}

/* q and k of four dims, the heads being dim `heads` and positions dim `seq`. */
static bool put_attention(const operator* o, size_t heads, size_t seq) {
    tensor q, k;
    const char *dtype = dtype_of(o, 0);
    if (!dtype || !input(o, 0, 4, &q) || !input(o, 1, 4, &k) || q.rank != 4 || k.rank != 4)
        return false;
    ds_buf_printf(o->trace->rows,
                  "attention,attention,%s,%" PRId64 ",,,,%" PRId64 ",%" PRId64 ",%" PRId64
                  ",%" PRId64 ",%" PRId64 ",%d,,,",
                  dtype, q.dim[0], q.dim[heads], k.dim[heads], q.dim[seq], k.dim[seq], q.dim[3],
                  is_causal(o, q.dim[seq] == k.dim[seq]));
    return put_time(o);
}

static bool put_heads_first(const operator* o) {
    return put_attention(o, 1, 2);
}

static bool put_heads_last(const operator* o) {
    return put_attention(o, 2, 1);
}

static bool put_memory(const operator* o) {
    tensor x;
    const char *dtype = dtype_of(o, 0);
    int64_t tokens = 1;
    if (!dtype || !input(o, 0, 1, &x)) return false;
    for (size_t d = 0; d + 1 < x.rank; d++)
        if (__builtin_mul_overflow(tokens, x.dim[d], &tokens)) return false;
    ds_buf_printf(o->trace->rows, "memory,%s,%s,,,,,,,,,,,%" PRId64 ",%" PRId64 ",", o->known->op,
                  dtype, tokens, x.dim[x.rank - 1]);
    return put_time(o);
}

/* Inputs as in pytorch/aten/src/ATen/native/native_functions.yaml. */
static const struct known operators[] = {
    {"aten::mm", put_mm, NULL, 0},
    {"aten::bmm", put_mm, NULL, 0},
    {"aten::addmm", put_addmm, NULL, 0},
    {"aten::addmm_", put_addmm, NULL, 0},
    {"aten::_addmm_activation", put_addmm, NULL, 0},
    {"aten::baddbmm", put_addmm, NULL, 0},
    {"aten::baddbmm_", put_addmm, NULL, 0},
    {"aten::_scaled_dot_product_flash_attention", put_heads_first, NULL, 4},
    {"aten::_scaled_dot_product_efficient_attention", put_heads_first, NULL, 6},
    {"aten::_scaled_dot_product_cudnn_attention", put_heads_first, NULL, 6},
    {"aten::_cudnn_attention_forward", put_heads_first, NULL, 10},
    {"aten::_flash_attention_forward", put_heads_last, NULL, 8},
    {"aten::_efficient_attention_forward", put_heads_last, NULL, 9},
    {"aten::native_layer_norm", put_memory, "layer_norm", 0},
    {"aten::_fused_rms_norm", put_memory, "rms_norm", 0},
    {"aten::_softmax", put_memory, "softmax", 0},
    {"aten::relu", put_memory, "relu", 0},
    {"aten::relu_", put_memory, "relu", 0},
    {"aten::gelu", put_memory, "gelu", 0},
    {"aten::gelu_", put_memory, "gelu", 0},
    {"aten::silu", put_memory, "silu", 0},
    {"aten::silu_", put_memory, "silu", 0},
    {"aten::add", put_memory, "add", 0},
    {"aten::add_", put_memory, "add", 0},
    {"aten::mul", put_memory, "mul", 0},
    {"aten::mul_", put_memory, "mul", 0},
};

static const struct known *find_known(const json_t *event) {
    const char *name = json_string_value(json_object_get(event, "name"));
    for (size_t i = 0; name && i < sizeof operators / sizeof *operators; i++)
        if (strcmp(name, operators[i].torch) == 0) return &operators[i];
    return NULL;
}

/* Kernels are of the innermost operator that names their id. */
static void take_operator(trace *t, const json_t *event) {
    launch key;
    if (!t->launches.n || !is_category(event, "cpu_op") || !external_id(event, &key.id)) return;
    launch *l = bsearch(&key, t->launches.at, t->launches.n, sizeof key, by_id);
    double start_us = json_number_value(json_object_get(event, "ts"));
    if (!l || !find_known(event) || (l->by && l->start_us >= start_us)) return;
    l->by = event;
    l->start_us = start_us;
}

static void put_launch(trace *t, const launch *l) {
    const json_t *args = json_object_get(l->by, "args");
    operator o = {.dims = json_object_get(args, "Input Dims"),
                  .types = json_object_get(args, "Input type"),
                  .values = json_object_get(args, "Concrete Inputs"),
                  .us = l->us,
                  .known = find_known(l->by),
                  .trace = t};
    if (l->us < LEAST_US || !o.known->put(&o)) return;
    t->counts->taken++;
    t->counts->taken_us += l->us;
}

/* ---- the file ---- */

static ds_status read_events(const char *path, const json_t *events, trace *t, ds_error *err) {
    for (size_t i = 0; i < json_array_size(events); i++) take_kernel(t, json_array_get(events, i));
    if (!t->counts->kernels)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                            "%s: a trace without kernels: was the GPU profiled "
                            "(ProfilerActivity.CUDA)?",
                            path);
    merge_launches(t);
    for (size_t i = 0; i < json_array_size(events); i++)
        take_operator(t, json_array_get(events, i));
    for (uint32_t i = 0; i < t->launches.n; i++)
        if (t->launches.at[i].by) put_launch(t, &t->launches.at[i]);
    return DS_OK;
}

static ds_status parse(const char *path, const ds_buf *text, json_t **root, ds_error *err) {
    json_error_t problem;
    if (text->n > 1 && (unsigned char)text->text[0] == 0x1f && (unsigned char)text->text[1] == 0x8b)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "%s: compressed: gunzip it first", path);
    errno = 0; /* as in hf.c */
    *root = json_loadb(text->n ? text->text : "", text->n, 0, &problem);
    if (*root) return DS_OK;
    if (errno == ENOMEM) ds_out_of_memory(0);
    return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "%s:%d: %s", path, problem.line,
                        problem.text);
}

ds_status ds_import_kineto(const char *path, ds_buf *rows, ds_kineto_counts *counts,
                           ds_error *err) {
    ds_buf text = {0};
    json_t *root = NULL;
    trace t = {.counts = counts, .rows = rows};
    *counts = (ds_kineto_counts){0};
    ds_status status = ds_file_read(path, DS_NOWHERE, MAX_BYTES, &text, err);
    if (status == DS_OK) status = parse(path, &text, &root, err);
    ds_buf_deinit(&text);
    if (status == DS_OK) {
        const json_t *first = json_array_get(json_object_get(root, "deviceProperties"), 0);
        const char *device = json_string_value(json_object_get(first, "name"));
        if (device) snprintf(counts->device, sizeof counts->device, "%s", device);
        const json_t *events = json_is_array(root) ? root : json_object_get(root, "traceEvents");
        status =
            json_is_array(events)
                ? read_events(path, events, &t, err)
                : ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                               "%s: no list traceEvents: not a trace of PyTorch's profiler", path);
    }
    json_decref(root);
    free(t.launches.at);
    return status;
}
