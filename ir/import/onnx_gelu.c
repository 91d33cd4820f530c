/* gelu as exporters write it before opset 20: x/2 (1 + erf(x/√2)), five nodes with constants.
 *
 * distsim has no erf, but gelu. So the nodes from Erf on leave no op behind: their names stand for
 * a piece of the formula, until the whole of it is there. x/√2 is an op like any other at first;
 * when nobody else reads it, it is dropped with all that is unused. */
#include "ir/import/onnx_internal.h"

#include <math.h>

static bool near(double a, double b) {
    return fabs(a - b) <= 1e-3 * fabs(b);
}

ds_status ds_onnx__refuse_erf(ds_error *err) {
    return ds_onnx__refuse(err, "distsim has erf in gelu only: x/2 (1 + erf(x/sqrt(2)))");
}

ds_status ds_onnx__erf(ds_onnx *g, ds_error *err) {
    const ds_onnx_name *in = ds_onnx__in(g, 0);
    if (!in->is_scaled || !near(in->factor, sqrt(0.5))) return ds_onnx__refuse_erf(err);
    ds_onnx_name erf = {.gelu = DS_GELU_ERF, .of = in->of, .factor = 1};
    ds_onnx__out_same(g, 0, &erf);
    return DS_OK;
}

/* Output 0 is this piece; with the factor 1/2 it is whole. */
static ds_status set_piece(ds_onnx *g, ds_onnx_name piece, ds_error *err) {
    if (piece.gelu != DS_GELU_PRODUCT || !near(piece.factor, 0.5)) {
        ds_onnx__out_same(g, 0, &piece);
        return DS_OK;
    }
    ds_use x = ds_use_of(piece.of);
    g->note = "the exact gelu of the graph; distsim's is the tanh form";
    return ds_onnx__finish(g, ds_onnx__op(g, DS_OP_GELU, &x, 1), err);
}

/* piece · other, where other is x or x times a constant. */
static bool is_x(const ds_onnx_name *piece, const ds_onnx_name *other, double *factor) {
    *factor = 1;
    if (other->has_value && other->value.i == piece->of.i) return true;
    *factor = other->factor;
    return other->is_scaled && other->of.i == piece->of.i;
}

ds_status ds_onnx__gelu_piece(ds_onnx *g, bool is_product, bool *done, ds_error *err) {
    const ds_onnx_name *a = ds_onnx__in(g, 0), *b = ds_onnx__in(g, 1);
    *done = a->gelu || b->gelu;
    if (!*done) return DS_OK;
    const ds_onnx_name *piece = a->gelu ? a : b, *other = a->gelu ? b : a;
    ds_onnx_name next = *piece;
    double factor;
    if (!is_product && piece->gelu == DS_GELU_ERF && other->has_real && other->real == 1) {
        next.gelu = DS_GELU_ONE_PLUS;
    } else if (is_product && piece->gelu != DS_GELU_ERF && other->has_real) {
        next.factor *= other->real;
    } else if (is_product && piece->gelu == DS_GELU_ONE_PLUS && is_x(piece, other, &factor)) {
        next.gelu = DS_GELU_PRODUCT;
        next.factor *= factor;
    } else {
        return ds_onnx__refuse_erf(err);
    }
    return set_piece(g, next, err);
}
