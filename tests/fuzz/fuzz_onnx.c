/* ONNX models made by the bytes: dims, nodes and initializers, whose data are in the model, in
 * another file (external data: location, offset, length), cut short, or nowhere. What is imported
 * is checked as fuzz_import does it. */
#include "ir/import/import.h"
#include "tests/fuzz/support.h"
#include "tests/support/generate/onnx_model.h"

#include <onnx.pb-c.h>

/* A dim: small mostly, else one that overflows, or a name. */
static void put_dim(fuzz_bytes *bytes, ds_buf *out) {
    static const char *const dims[] = {"1",
                                       "2",
                                       "4",
                                       "8",
                                       "batch",
                                       "?",
                                       "3",
                                       "16",
                                       "0",
                                       "-1",
                                       "2147483648",
                                       "4611686018427387904",
                                       "9223372036854775807",
                                       "4294967296",
                                       "seq",
                                       "1000000"};
    uint8_t how = fuzz_byte(bytes);
    ds_buf_printf(out, "%s ", dims[how < 192 ? how % 4 : how % FUZZ_COUNT(dims)]);
}

static void put_dims(fuzz_bytes *bytes, uint32_t least, ds_buf *out) {
    ds_buf_put(out, "");
    for (uint32_t n = least + fuzz_below(bytes, 3); n; n--) put_dim(bytes, out);
}

/* Where an initializer's data are, as the format says it, and as it does not. */
static void put_elsewhere(fuzz_bytes *bytes, onnx_model *m, Onnx__TensorProto *t) {
    static const char *const keys[] = {"location", "offset", "length", "checksum"};
    uint32_t n = fuzz_below(bytes, 6);
    t->external_data = DS_NEW_N(&m->arena, Onnx__StringStringEntryProto *, n + 1);
    for (uint32_t i = 0; i < n; i++) {
        Onnx__StringStringEntryProto *entry = DS_NEW(&m->arena, Onnx__StringStringEntryProto);
        ds_buf value = {0};
        onnx__string_string_entry_proto__init(entry);
        entry->key = (char *)keys[i % FUZZ_COUNT(keys)];
        if (i == 0 && fuzz_byte(bytes) < 128) ds_buf_put(&value, "weights.bin");
        if (!value.n) fuzz_value(bytes, &value);
        entry->value = ds_arena_strdup(&m->arena, value.text ? value.text : "");
        ds_buf_deinit(&value);
        t->external_data[t->n_external_data++] = entry;
    }
    t->has_data_location = fuzz_byte(bytes) < 240;
    t->data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
}

static void put_raw(fuzz_bytes *bytes, onnx_model *m, Onnx__TensorProto *t) {
    uint32_t n = fuzz_below(bytes, 40);
    uint8_t *raw = DS_NEW_N(&m->arena, uint8_t, n + 1);
    for (uint32_t i = 0; i < n; i++) raw[i] = fuzz_byte(bytes);
    t->has_raw_data = true;
    t->raw_data = (ProtobufCBinaryData){n, raw};
}

static void put_initializer(fuzz_bytes *bytes, onnx_model *m, const char *name) {
    ds_buf dims = {0};
    uint8_t how = fuzz_byte(bytes);
    put_dims(bytes, 0, &dims);
    if (how % 4 == 0)
        onnx_tensor(m, name, dims.text);
    else if (how % 4 == 1)
        onnx_real(m, name, (float)fuzz_byte(bytes) / 4, dims.text);
    else
        onnx_ints(m, name, how & 32 ? "1 -1" : "0 1 2 4", how & 16 ? "4" : dims.text);
    Onnx__TensorProto *t = m->proto->graph->initializer[m->proto->graph->n_initializer - 1];
    if (how % 8 > 3) put_elsewhere(bytes, m, t);
    if (how & 64) put_raw(bytes, m, t);
    if (how > 240) t->data_type = fuzz_byte(bytes) % 24;
    ds_buf_deinit(&dims);
}

static const struct {
    const char *op, *attributes;
    uint32_t n; /* operands */
} ops[] = {{"MatMul", "", 2},
           {"Add", "", 2},
           {"Relu", "", 1},
           {"Gemm", "transB=1 alpha=1.0", 3},
           {"Gemm", "", 2},
           {"Reshape", "", 2},
           {"Transpose", "perm=1,0", 1},
           {"Concat", "axis=0", 2},
           {"Gather", "axis=0", 2},
           {"Softmax", "axis=-1", 1},
           {"Conv", "pads=1,1,1,1", 2},
           {"Slice", "", 5},
           {"Shape", "", 1},
           {"Unsqueeze", "", 2},
           {"Squeeze", "", 2},
           {"Expand", "", 2},
           {"Mul", "", 2},
           {"Div", "", 2},
           {"Pow", "", 2},
           {"Cast", "to=1", 1},
           {"Flatten", "axis=1", 1},
           {"MaxPool", "kernel_shape=2,2", 1},
           {"GlobalAveragePool", "", 1},
           {"ReduceMean", "axes=-1", 1},
           {"Split", "axis=0", 2},
           {"Constant", "value_int=4611686018427387904", 0},
           {"ConstantOfShape", "", 1},
           {"Range", "", 3},
           {"Where", "", 3},
           {"Identity", "", 1},
           {"LayerNormalization", "axis=-1", 3},
           {"Tile", "", 2}};

static void put_node(fuzz_bytes *bytes, onnx_model *m, uint32_t i, uint32_t inits) {
    ds_buf in = {0}, out = {0};
    uint32_t which = fuzz_below(bytes, FUZZ_COUNT(ops));
    ds_buf_put(&in, "");
    for (uint32_t k = 0; k < ops[which].n; k++) {
        uint8_t from = fuzz_byte(bytes);
        if (k == 0 && from < 160)
            ds_buf_printf(&in, i ? "v%u " : "x ", i - 1);
        else if (from < 240 && inits)
            ds_buf_printf(&in, "w%u ", from % inits);
        else
            ds_buf_printf(&in, from % 2 ? "v%u " : "x ", from % (i + 1));
    }
    ds_buf_printf(&out, "v%u", i);
    onnx_node(m, ops[which].op, in.text, out.text, ops[which].attributes);
    ds_buf_deinit(&in);
    ds_buf_deinit(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const int64_t opsets[] = {13, 7, 9, 11, 12, 17, 18, 21};
    fuzz_bytes bytes = {data, size};
    ds_import_options options = {.source = "fuzz.onnx"};
    ds_buf packed = {0}, text = {0}, dims = {0};
    ds_error err;
    onnx_model m;
    char name[16];
    onnx_begin(&m, opsets[fuzz_below(&bytes, FUZZ_COUNT(opsets))]);
    put_dims(&bytes, 1, &dims);
    onnx_input(&m, "x", dims.text);
    uint32_t inits = fuzz_below(&bytes, 5), nodes = 1 + fuzz_below(&bytes, 6);
    for (uint32_t i = 0; i < inits; i++) {
        snprintf(name, sizeof name, "w%u", i);
        put_initializer(&bytes, &m, name);
    }
    for (uint32_t i = 0; i < nodes; i++) put_node(&bytes, &m, i, inits);
    snprintf(name, sizeof name, "v%u", nodes - 1);
    onnx_output(&m, name);
    onnx_pack(&m, &packed);
    if (ds_import_onnx(packed.text, packed.n, &options, &text, &err) == DS_OK)
        fuzz_check_program(&text, false);
    ds_buf_deinit(&packed);
    ds_buf_deinit(&text);
    ds_buf_deinit(&dims);
    return 0;
}
