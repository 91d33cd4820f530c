/* ONNX models built in memory and packed to bytes, for tests of the importer. Written as one reads
 * them: lists are separated by blanks.
 *
 *     onnx_model m;
 *     onnx_begin(&m, 13);
 *     onnx_input(&m, "x", "batch 4");
 *     onnx_tensor(&m, "w", "4 8");
 *     onnx_node(&m, "MatMul", "x w", "y", "");
 *     onnx_output(&m, "y");
 *     onnx_pack(&m, &bytes);          // and gives the model's memory back */
#ifndef DS_TESTS_ONNX_MODEL_H
#define DS_TESTS_ONNX_MODEL_H

#include "ir/base/str.h"

typedef struct onnx_model {
    ds_arena arena;
    struct Onnx__ModelProto *proto;
} onnx_model;

void onnx_begin(onnx_model *m, int64_t opset);
/* A float input; dims are numbers, names, or `?` for one without either. */
void onnx_input(onnx_model *m, const char *name, const char *dims);
void onnx_input_of(onnx_model *m, const char *name, int32_t data_type, const char *dims);
/* A float initializer without data. */
void onnx_tensor(onnx_model *m, const char *name, const char *dims);
/* One float of these dims ("" is a scalar). */
void onnx_real(onnx_model *m, const char *name, float value, const char *dims);
/* Integers (i64) as a tensor of these dims; values separated by blanks. */
void onnx_ints(onnx_model *m, const char *name, const char *values, const char *dims);
/* A node; `-` is an input or output left out. Attributes: axis=1 (int), perm=0,2,1 or pads=1,
 * (ints), alpha=0.5 (float: has a point), mode:linear (string). */
void onnx_node(onnx_model *m, const char *op_type, const char *inputs, const char *outputs,
               const char *attributes);
void onnx_output(onnx_model *m, const char *name);
void onnx_pack(onnx_model *m, ds_buf *bytes);

#endif
