/* Attributes of the node that is being translated. One of another type than asked for counts as
 * absent, as in ONNX's own shape inference;
 * so does a number that is not finite. */
#include "ir/import/onnx_internal.h"

#include <math.h>
#include <onnx.pb-c.h>
#include <string.h>

const Onnx__AttributeProto *ds_onnx__attr(const ds_onnx *g, const char *name) {
    for (size_t i = 0; i < g->node->n_attribute; i++)
        if (strcmp(g->node->attribute[i]->name ? g->node->attribute[i]->name : "", name) == 0)
            return g->node->attribute[i];
    return NULL;
}

int64_t ds_onnx__int(const ds_onnx *g, const char *name, int64_t otherwise) {
    const Onnx__AttributeProto *attr = ds_onnx__attr(g, name);
    return attr && attr->has_i ? attr->i : otherwise;
}

double ds_onnx__float(const ds_onnx *g, const char *name, double otherwise) {
    const Onnx__AttributeProto *attr = ds_onnx__attr(g, name);
    return attr && attr->has_f && isfinite(attr->f) ? (double)attr->f : otherwise;
}

bool ds_onnx__is(const ds_onnx *g, const char *name, const char *otherwise, const char *text) {
    const Onnx__AttributeProto *attr = ds_onnx__attr(g, name);
    if (!attr || !attr->has_s) return strcmp(otherwise, text) == 0;
    return attr->s.len == strlen(text) && memcmp(attr->s.data, text, attr->s.len) == 0;
}

bool ds_onnx__attr_ints(const ds_onnx *g, const char *name, const int64_t **items, uint32_t *n) {
    const Onnx__AttributeProto *attr = ds_onnx__attr(g, name);
    if (!attr || attr->n_ints > DS_ONNX_MAX_ITEMS) return false;
    *items = attr->ints;
    *n = (uint32_t)attr->n_ints;
    return true;
}
