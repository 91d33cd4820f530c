#include "tests/support/generate/onnx_model.h"

#include <onnx.pb-c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Appends a pointer to a repeated field. */
#define APPEND(m, list, n, item)                                                                   \
    do {                                                                                           \
        void *grown_ = ds_arena_calloc(&(m)->arena, (n) + 1, sizeof *(list));                      \
        if (n) memcpy(grown_, (list), (n) * sizeof *(list));                                       \
        (list) = grown_;                                                                           \
        (list)[(n)++] = (item);                                                                    \
    } while (0)

#define MAX_WORDS 64

static size_t words(onnx_model *m, const char *text, char **out, const char *separators) {
    char *copy = ds_arena_strdup(&m->arena, text), *rest = NULL;
    size_t n = 0;
    for (char *word = strtok_r(copy, separators, &rest); word && n < MAX_WORDS;
         word = strtok_r(NULL, separators, &rest))
        out[n++] = word;
    return n;
}

static int64_t *numbers(onnx_model *m, const char *text, const char *separators, size_t *n) {
    char *list[MAX_WORDS];
    *n = words(m, text, list, separators);
    int64_t *out = DS_NEW_N(&m->arena, int64_t, *n + 1);
    for (size_t i = 0; i < *n; i++) out[i] = strtoll(list[i], NULL, 10);
    return out;
}

void onnx_begin(onnx_model *m, int64_t opset) {
    ds_arena_init(&m->arena);
    m->proto = DS_NEW(&m->arena, Onnx__ModelProto);
    onnx__model_proto__init(m->proto);
    m->proto->graph = DS_NEW(&m->arena, Onnx__GraphProto);
    onnx__graph_proto__init(m->proto->graph);
    m->proto->graph->name = "net";
    m->proto->producer_name = "tests";
    m->proto->has_ir_version = true;
    m->proto->ir_version = 8;
    Onnx__OperatorSetIdProto *set = DS_NEW(&m->arena, Onnx__OperatorSetIdProto);
    onnx__operator_set_id_proto__init(set);
    set->has_version = true;
    set->version = opset;
    APPEND(m, m->proto->opset_import, m->proto->n_opset_import, set);
}

static Onnx__TensorShapeProto *shape_of(onnx_model *m, const char *dims) {
    char *list[MAX_WORDS];
    size_t n = words(m, dims, list, " ");
    Onnx__TensorShapeProto *shape = DS_NEW(&m->arena, Onnx__TensorShapeProto);
    onnx__tensor_shape_proto__init(shape);
    for (size_t i = 0; i < n; i++) {
        Onnx__TensorShapeProto__Dimension *dim =
            DS_NEW(&m->arena, Onnx__TensorShapeProto__Dimension);
        onnx__tensor_shape_proto__dimension__init(dim);
        if (list[i][0] == '-' || (list[i][0] >= '0' && list[i][0] <= '9')) {
            dim->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
            dim->dim_value = strtoll(list[i], NULL, 10);
        } else if (list[i][0] != '?') {
            dim->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
            dim->dim_param = list[i];
        }
        APPEND(m, shape->dim, shape->n_dim, dim);
    }
    return shape;
}

static Onnx__ValueInfoProto *value(onnx_model *m, const char *name) {
    Onnx__ValueInfoProto *info = DS_NEW(&m->arena, Onnx__ValueInfoProto);
    onnx__value_info_proto__init(info);
    info->name = ds_arena_strdup(&m->arena, name);
    return info;
}

void onnx_input_of(onnx_model *m, const char *name, int32_t data_type, const char *dims) {
    Onnx__ValueInfoProto *info = value(m, name);
    info->type = DS_NEW(&m->arena, Onnx__TypeProto);
    onnx__type_proto__init(info->type);
    info->type->value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    info->type->tensor_type = DS_NEW(&m->arena, Onnx__TypeProto__Tensor);
    onnx__type_proto__tensor__init(info->type->tensor_type);
    info->type->tensor_type->has_elem_type = true;
    info->type->tensor_type->elem_type = data_type;
    info->type->tensor_type->shape = shape_of(m, dims);
    APPEND(m, m->proto->graph->input, m->proto->graph->n_input, info);
}

void onnx_input(onnx_model *m, const char *name, const char *dims) {
    onnx_input_of(m, name, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, dims);
}

static Onnx__TensorProto *tensor(onnx_model *m, const char *name, int32_t data_type,
                                 const char *dims) {
    Onnx__TensorProto *t = DS_NEW(&m->arena, Onnx__TensorProto);
    onnx__tensor_proto__init(t);
    t->name = ds_arena_strdup(&m->arena, name);
    t->has_data_type = true;
    t->data_type = data_type;
    t->dims = numbers(m, dims, " ", &t->n_dims);
    APPEND(m, m->proto->graph->initializer, m->proto->graph->n_initializer, t);
    return t;
}

void onnx_tensor(onnx_model *m, const char *name, const char *dims) {
    tensor(m, name, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, dims);
}

void onnx_real(onnx_model *m, const char *name, float number, const char *dims) {
    Onnx__TensorProto *t = tensor(m, name, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, dims);
    t->n_float_data = 1;
    t->float_data = DS_NEW(&m->arena, float);
    *t->float_data = number;
}

void onnx_ints(onnx_model *m, const char *name, const char *values, const char *dims) {
    Onnx__TensorProto *t = tensor(m, name, ONNX__TENSOR_PROTO__DATA_TYPE__INT64, dims);
    t->int64_data = numbers(m, values, " ", &t->n_int64_data);
}

static void attribute(onnx_model *m, Onnx__NodeProto *node, char *text) {
    Onnx__AttributeProto *attr = DS_NEW(&m->arena, Onnx__AttributeProto);
    onnx__attribute_proto__init(attr);
    attr->has_type = true;
    attr->name = text;
    char *at = strpbrk(text, "=:");
    bool is_text = *at == ':';
    *at++ = '\0';
    if (is_text) {
        attr->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING;
        attr->has_s = true;
        attr->s = (ProtobufCBinaryData){strlen(at), (uint8_t *)at};
    } else if (strchr(at, ',')) {
        attr->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS;
        attr->ints = numbers(m, at, ",", &attr->n_ints);
    } else if (strchr(at, '.')) {
        attr->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT;
        attr->has_f = true;
        attr->f = strtof(at, NULL);
    } else {
        attr->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT;
        attr->has_i = true;
        attr->i = strtoll(at, NULL, 10);
    }
    APPEND(m, node->attribute, node->n_attribute, attr);
}

void onnx_node(onnx_model *m, const char *op_type, const char *inputs, const char *outputs,
               const char *attributes) {
    char *list[MAX_WORDS];
    Onnx__NodeProto *node = DS_NEW(&m->arena, Onnx__NodeProto);
    onnx__node_proto__init(node);
    node->op_type = ds_arena_strdup(&m->arena, op_type);
    size_t n = words(m, inputs, list, " ");
    for (size_t i = 0; i < n; i++)
        APPEND(m, node->input, node->n_input, *list[i] == '-' ? "" : list[i]);
    n = words(m, outputs, list, " ");
    for (size_t i = 0; i < n; i++)
        APPEND(m, node->output, node->n_output, *list[i] == '-' ? "" : list[i]);
    n = words(m, attributes, list, " ");
    for (size_t i = 0; i < n; i++) attribute(m, node, list[i]);
    APPEND(m, m->proto->graph->node, m->proto->graph->n_node, node);
}

void onnx_output(onnx_model *m, const char *name) {
    Onnx__ValueInfoProto *info = value(m, name);
    APPEND(m, m->proto->graph->output, m->proto->graph->n_output, info);
}

void onnx_pack(onnx_model *m, ds_buf *bytes) {
    size_t n = onnx__model_proto__get_packed_size(m->proto);
    uint8_t *packed = ds_xmalloc(n + 1);
    onnx__model_proto__pack(m->proto, packed);
    ds_buf_put_n(bytes, (const char *)packed, n);
    free(packed);
    ds_arena_deinit(&m->arena);
}
