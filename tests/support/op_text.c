#include "tests/support/op_text.h"

#include "ir/lang/lang.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static bool axis_size(void *context, const ds_place *on, const char *axis, int64_t *size) {
    (void)context;
    static const struct {
        const char *axis;
        int64_t size;
    } sizes[] = {{"dp", 4}, {"tp", 8}, {"cp", 2}, {"pp", 4}, {"ep", 4}, {"x", 3}, {"one", 1}};
    if (on->kind == DS_PLACE_DEVICE) return false;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (strcmp(sizes[i].axis, axis) == 0) {
            *size = sizes[i].size;
            return true;
        }
    return false;
}

static ds_status infer_op(op_text *t, ds_op *op, unsigned mode) {
    const ds_type **in = ds_xcalloc(op->n_in + 1, sizeof *in);
    ds_type **out = ds_xcalloc(op->n_out + 1, sizeof *out);
    const char *cp = ds_intern(&t->unit->strings, "cp");
    for (uint32_t i = 0; i < op->n_in; i++) in[i] = ds_value_at(t->func, op->in[i].value)->type;
    for (uint32_t i = 0; i < op->n_out; i++) out[i] = ds_value_at(t->func, op->out[i])->type;
    ds_infer ctx = {.unit = t->unit,
                    .func = t->func,
                    .op = op,
                    .in = in,
                    .out = out,
                    .env = mode & OP_TEXT_BOUND ? &t->env : NULL,
                    .axis_size = mode & OP_TEXT_BOUND ? axis_size : NULL,
                    .manual_axes = &cp,
                    .n_manual = mode & OP_TEXT_MANUAL_CP ? 1 : 0};
    ds_status status = ds_op_infer(&ctx, &t->err);
    for (uint32_t i = 0; i < op->n_out; i++) ds_value_at(t->func, op->out[i])->type = out[i];
    free(in);
    free(out);
    return status;
}

static ds_status infer_all(op_text *t, unsigned mode) {
    ds_module *module = t->unit->modules.at[0];
    t->func = module->funcs.at[0];
    DS_TRY(ds_bind(t->unit, NULL, 0, &t->binding, &t->err));
    t->env = ds_binding_env(&t->binding, NULL);
    for (uint32_t i = 0; i < t->func->body.n_ops; i++)
        DS_TRY(infer_op(t, t->func->body.ops[i], mode));
    const ds_op *last = op_text_last(t);
    for (uint32_t i = 0; i < last->n_out; i++) {
        if (i) ds_buf_put(&t->result, "; ");
        ds_type_print(&t->unit->exprs, ds_value_at(t->func, last->out[i])->type, &t->result);
    }
    return DS_OK;
}

void op_text_init(op_text *t, const char *params, const char *args, const char *lines,
                  unsigned mode) {
    *t = (op_text){0};
    ds_buf text = {0};
    ds_buf_put(&text, "dir 1\n");
    if (params) ds_buf_printf(&text, "param %s\n", params);
    ds_buf_printf(&text,
                  "mesh @m = [pp = 4, dp = 4, tp = 8] on @box\n"
                  "mesh @n = [pp = 4, dp = 4, tp = 4] on @box\n"
                  "func @f(%s) {\n%s\n}\n",
                  args, lines);
    if (ds_load_text("ops.dir", text.text, text.n, NULL, &t->unit, &t->err) == DS_OK)
        infer_all(t, mode);
    ds_buf_deinit(&text);
}

void op_text_deinit(op_text *t) {
    ds_buf_deinit(&t->result);
    ds_unit_free(t->unit);
}

ds_op *op_text_last(const op_text *t) {
    return t->func->body.ops[t->func->body.n_ops - 1];
}

static ds_shape local_shape(op_text *t, const ds_type *type) {
    ds_shape shape = {.dtype = type->dtype, .rank = type->rank};
    for (uint32_t d = 0; d < type->rank; d++) {
        ds_status status =
            ds_expr_eval_int(&t->env, type->dims[d].size, DS_NOWHERE, &shape.dims[d], &t->err);
        cr_assert_eq(status, DS_OK, "%s", t->err.message);
        for (uint32_t s = 0; s < type->dims[d].n_splits; s++) {
            int64_t size = 1;
            axis_size(NULL, &type->on, type->dims[d].splits[s].axis, &size);
            shape.dims[d] /= size;
        }
    }
    return shape;
}

/* Operands' shapes, then results'. */
static ds_shape *local_shapes(op_text *t, const ds_op *op) {
    ds_shape *shapes = ds_xcalloc(op->n_in + op->n_out + 1, sizeof *shapes);
    for (uint32_t i = 0; i < op->n_in; i++)
        shapes[i] = local_shape(t, ds_value_at(t->func, op->in[i].value)->type);
    for (uint32_t i = 0; i < op->n_out; i++)
        shapes[op->n_in + i] = local_shape(t, ds_value_at(t->func, op->out[i])->type);
    return shapes;
}

ds_work op_text_work(op_text *t) {
    const ds_op *op = op_text_last(t);
    ds_shape *shapes = local_shapes(t, op);
    ds_work work = {0};
    ds_op_work(op, &t->env, shapes, shapes + op->n_in, &work, &t->err);
    free(shapes);
    return work;
}

int64_t op_text_scratch(op_text *t) {
    const ds_op *op = op_text_last(t);
    const ds_type *types[DS_MAX_OPERANDS];
    cr_assert_leq(op->n_in, DS_MAX_OPERANDS);
    for (uint32_t i = 0; i < op->n_in; i++) types[i] = ds_value_at(t->func, op->in[i].value)->type;
    ds_shape *shapes = local_shapes(t, op);
    int64_t bytes = -1;
    ds_op_scratch(op, types, shapes, shapes + op->n_in, &bytes, &t->err);
    free(shapes);
    return bytes;
}

static void expect(const char *args, const char *lines, const char *want, unsigned mode) {
    op_text t;
    op_text_init(&t, NULL, args, lines, mode);
    const char *got = t.err.code == DS_OK ? t.result.text : t.err.message;
    cr_expect(t.err.code == DS_OK && strcmp(got ? got : "", want) == 0,
              "%s\n  over %s\n  want %s\n  got  %s%s", lines, args, want,
              mode ? "(bound) " : "(symbolic) ", got ? got : "");
    op_text_deinit(&t);
}

void op_text_expect(const char *args, const char *lines, const char *want) {
    expect(args, lines, want, OP_TEXT_SYMBOLIC);
    expect(args, lines, want, OP_TEXT_BOUND);
}

void op_text_expect_error(const char *args, const char *lines, ds_status code, const char *part) {
    op_text t;
    op_text_init(&t, NULL, args, lines, OP_TEXT_BOUND);
    cr_expect(t.err.code == code && strstr(t.err.message, part),
              "%s\n  over %s\n  want %s with \"%s\"\n  got  %s: %s%s", lines, args,
              ds_status_name(code), part, ds_status_name(t.err.code), t.err.message,
              t.err.code == DS_OK && t.result.text ? t.result.text : "");
    op_text_deinit(&t);
}

ds_work op_text_work_of(const char *args, const char *lines) {
    op_text t;
    op_text_init(&t, NULL, args, lines, OP_TEXT_BOUND);
    cr_expect_eq(t.err.code, DS_OK, "%s: %s", lines, t.err.message);
    ds_work work = {0};
    if (t.err.code == DS_OK) work = op_text_work(&t);
    cr_expect_eq(t.err.code, DS_OK, "%s: %s", lines, t.err.message);
    op_text_deinit(&t);
    return work;
}
