/* What stands in braces behind nodes and links.
 *
 *   forward = true            a node: may traffic pass through (node's default by its kind)
 *   reduce = true             a switch: adds up and multiplies what passes (NVLS, SHARP)
 *   sustained_clock = 0.93    a device: which part of its boost clock it keeps under load
 *   power_cap = 500           a device: its power limit, in W
 *   efficiency = 0.92         a link: which part of its bandwidth transfers get
 *   cap = 12 GB/s             a link: most that one message gets of it, whatever else is free */
#include "ir/base/units.h"
#include "sim/topo/tree.h"

#include <math.h>
#include <string.h>

/* The part of the boost clock, in 10^-9. */
static ds_status sustained_clock(const ds_env *env, const ds_attr *attr, ds_topo_node *node,
                                 ds_error *err) {
    double part;
    if (attr->kind != DS_ATTR_EXPR)
        return ds_error_set(err, DS_ERR_TYPE, attr->loc,
                            "`sustained_clock` of `%s` must be a number, such as 0.93",
                            node->decl->name);
    DS_TRY(ds_expr_eval_real(env, attr->expr, attr->loc, &part, err));
    if (!(part >= 1e-6 && part <= 1))
        return ds_error_set(err, DS_ERR_VALUE, attr->loc,
                            "`sustained_clock` of `%s` is %g: it is the part of the boost clock "
                            "that is kept under load, from 0.000001 to 1",
                            node->decl->name, part);
    node->clock_ppb = (int64_t)(part * (double)DS_TOPO_WHOLE + 0.5);
    return DS_OK;
}

/* Watts, in mW. */
static ds_status power_cap(const ds_env *env, const ds_attr *attr, ds_topo_node *node,
                           ds_error *err) {
    double watts;
    if (attr->kind != DS_ATTR_EXPR)
        return ds_error_set(err, DS_ERR_TYPE, attr->loc,
                            "`power_cap` of `%s` must be a number of watts, such as 500",
                            node->decl->name);
    DS_TRY(ds_expr_eval_real(env, attr->expr, attr->loc, &watts, err));
    if (!(watts >= 1 && watts <= 1e6))
        return ds_error_set(err, DS_ERR_VALUE, attr->loc,
                            "`power_cap` of `%s` is %g: it is the power limit in watts, from 1 to "
                            "1,000,000",
                            node->decl->name, watts);
    node->power_mw = (int64_t)(watts * 1000 + 0.5);
    return DS_OK;
}

static const char *known_attrs(ds_node_kind kind) {
    if (kind == DS_NODE_SWITCH) return "; there are `forward` and `reduce`";
    if (kind == DS_NODE_DEVICE) return "; there are `forward`, `sustained_clock` and `power_cap`";
    return kind == DS_NODE_INSTANCE ? "" : "; there is `forward`";
}

ds_status ds_topo_node_attrs(const ds_env *env, ds_topo_node *node, ds_error *err) {
    const ds_node_decl *decl = node->decl;
    bool instance = decl->kind == DS_NODE_INSTANCE;
    node->forwards = decl->kind != DS_NODE_DEVICE;
    node->clock_ppb = DS_TOPO_WHOLE;
    for (uint32_t i = 0; i < decl->n_attrs; i++) {
        const ds_attr *attr = &decl->attrs[i];
        bool forward = strcmp(attr->name, "forward") == 0 && !instance;
        bool reduce = strcmp(attr->name, "reduce") == 0 && decl->kind == DS_NODE_SWITCH;
        if (strcmp(attr->name, "sustained_clock") == 0 && decl->kind == DS_NODE_DEVICE) {
            DS_TRY(sustained_clock(env, attr, node, err));
            continue;
        }
        if (strcmp(attr->name, "power_cap") == 0 && decl->kind == DS_NODE_DEVICE) {
            DS_TRY(power_cap(env, attr, node, err));
            continue;
        }
        if (!forward && !reduce)
            return ds_error_set(
                err, DS_ERR_NAME, attr->loc, "`%s` is not an attribute of %s `%s`%s", attr->name,
                instance ? "the instance" : "the node", decl->name, known_attrs(decl->kind));
        if (attr->kind != DS_ATTR_BOOL)
            return ds_error_set(err, DS_ERR_TYPE, attr->loc, "`%s` of `%s` must be true or false",
                                attr->name, decl->name);
        *(forward ? &node->forwards : &node->reduces) = attr->flag;
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
    double rate = (double)link->bytes_per_s * part;
    if (rate < 1)
        return ds_error_set(err, DS_ERR_VALUE, attr->loc,
                            "a link's `efficiency` of %g leaves %g B/s of its %lld B/s: it must "
                            "leave at least 1 B/s",
                            part, rate, (long long)link->bytes_per_s);
    /* The product has 53 bits; a bandwidth near 2^63 must not round to beyond. */
    if (part < 1) link->bytes_per_s = (int64_t)floor(rate + 0.5);
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
