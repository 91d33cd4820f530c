/* What stands in braces behind nodes and links.
 *
 *   forward = true            a node: may traffic pass through (node's default by its kind)
 *   reduce = true             a switch: adds up and multiplies what passes (NVLS, SHARP)
 *   efficiency = 0.92         a link: which part of its bandwidth transfers get
 *   cap = 12 GB/s             a link: most that one message gets of it, whatever else is free */
#include "ir/base/units.h"
#include "sim/topo/tree.h"

#include <math.h>
#include <string.h>

ds_status ds_topo_node_attrs(const ds_node_decl *decl, bool *forwards, bool *reduces,
                             ds_error *err) {
    bool instance = decl->kind == DS_NODE_INSTANCE;
    *forwards = decl->kind != DS_NODE_DEVICE;
    *reduces = false;
    for (uint32_t i = 0; i < decl->n_attrs; i++) {
        const ds_attr *attr = &decl->attrs[i];
        bool forward = strcmp(attr->name, "forward") == 0 && !instance;
        bool reduce = strcmp(attr->name, "reduce") == 0 && decl->kind == DS_NODE_SWITCH;
        if (!forward && !reduce) {
            return ds_error_set(
                err, DS_ERR_NAME, attr->loc, "`%s` is not an attribute of %s `%s`%s", attr->name,
                instance ? "the instance" : "the node", decl->name,
                instance                       ? ""
                : decl->kind == DS_NODE_SWITCH ? "; there are `forward` and `reduce`"
                                               : "; there is `forward`");
        }
        if (attr->kind != DS_ATTR_BOOL) {
            return ds_error_set(err, DS_ERR_TYPE, attr->loc, "`%s` of `%s` must be true or false",
                                attr->name, decl->name);
        }
        *(forward ? forwards : reduces) = attr->flag;
    }
    return DS_OK;
}

static ds_status efficiency(const ds_env *env, const ds_attr *attr, ds_topo_link *link,
                            ds_error *err) {
    double part;
    if (attr->kind != DS_ATTR_EXPR)
        return ds_error_set(err, DS_ERR_TYPE, attr->loc,
                            "a link's `efficiency` must be a number, such as 0.92");
    DS_TRY(ds_expr_eval_real(env, attr->expr, attr->loc, &part, err));
    if (!(part > 0 && part <= 1))
        return ds_error_set(err, DS_ERR_VALUE, attr->loc,
                            "a link's `efficiency` is %g: it must be above 0 and at most 1", part);
    /* The product has 53 bits; a bandwidth near 2^63 must not round to beyond. */
    double rate = floor((double)link->bytes_per_s * part + 0.5);
    if (part < 1) link->bytes_per_s = rate < 1 ? 1 : (int64_t)rate;
    return DS_OK;
}

ds_status ds_topo_link_attrs(const ds_env *env, const ds_link_decl *decl, ds_topo_link *link,
                             ds_error *err) {
    for (uint32_t i = 0; i < decl->n_attrs; i++) {
        const ds_attr *attr = &decl->attrs[i];
        if (strcmp(attr->name, "efficiency") == 0) {
            DS_TRY(efficiency(env, attr, link, err));
        } else if (strcmp(attr->name, "cap") == 0) {
            if (attr->kind != DS_ATTR_QUANTITY)
                return ds_error_set(err, DS_ERR_TYPE, attr->loc,
                                    "a link's `cap` must be a rate, such as 12 GB/s");
            DS_TRY(ds_quantity_eval(env, (ds_quantity){attr->expr, attr->unit}, 'R', 1.0, attr->loc,
                                    &link->cap_bytes_per_s, err));
            if (link->cap_bytes_per_s <= 0)
                return ds_error_set(err, DS_ERR_VALUE, attr->loc,
                                    "a link's `cap` must be at least 1 B/s, not %lld B/s",
                                    (long long)link->cap_bytes_per_s);
        } else {
            return ds_error_set(err, DS_ERR_NAME, attr->loc,
                                "`%s` is not an attribute of a link; there are `efficiency` and "
                                "`cap`",
                                attr->name);
        }
    }
    return DS_OK;
}
