/* Op-table tests written as text: operands by their types, one line of program, results as text. */
#ifndef DS_TESTS_OP_TEXT_H
#define DS_TESTS_OP_TEXT_H

#include "ir/core/ir.h"
#include "ir/ops/ops.h"

/* Axis sizes known to bound inference, on every mesh: dp 4, tp 8, cp 2, pp 4, ep 4, x 3, one 1. */
typedef struct op_text {
    ds_unit *unit;
    ds_binding binding;
    ds_env env;
    ds_func *func;
    ds_error err; /* of parsing, binding or inference; code DS_OK if all went well */
    ds_buf result;
} op_text;

enum { OP_TEXT_SYMBOLIC = 0, OP_TEXT_BOUND = 1, OP_TEXT_MANUAL_CP = 2 };

/* Infers every op of `lines` in order over the arguments `args` ("%x: f32[4, 8], %y: …"), with the
 * params `params` ("b = 32, k = 1024", or NULL). result: the types of the last op's results joined
 * by
 * "; ". OP_TEXT_MANUAL_CP: as inside a local region over cp. */
void op_text_init(op_text *t, const char *params, const char *args, const char *lines,
                  unsigned mode);
void op_text_deinit(op_text *t);
/* The last op of the text. */
ds_op *op_text_last(const op_text *t);
/* Work of the last op on one device: dims over the sizes of the axes that split them. */
ds_work op_text_work(op_text *t);

/* Scratch of the last op, likewise. */
int64_t op_text_scratch(op_text *t);

/* Asserts that symbolic and bound inference both give `want`. */
void op_text_expect(const char *args, const char *lines, const char *want);
/* Asserts that bound inference fails with this code and that the message holds `part`. */
void op_text_expect_error(const char *args, const char *lines, ds_status code, const char *part);
/* Work of the last op, after bound inference. */
ds_work op_text_work_of(const char *args, const char *lines);

#endif
