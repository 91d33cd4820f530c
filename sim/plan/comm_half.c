/* Per-rank programs: one rank's side of a send, recv or collective; who it meets is known later. */
#include "sim/plan/comm.h"

#include <string.h>

static ds_status rank_device(ds_builder *b, const ds_site *site, ds_expr rank, uint32_t *device,
                             ds_error *err) {
    ds_env env = ds_binding_env(b->binding, site->indices);
    int64_t r;
    DS_TRY(ds_expr_eval_int(&env, rank, site->op->loc, &r, err));
    if (r < 0 || r >= b->n_rank_devices)
        return ds_error_set(err, DS_ERR_VALUE, site->op->loc,
                            "rank %lld: the cluster has ranks 0 to %u", (long long)r,
                            b->n_rank_devices - 1);
    *device = b->rank_devices[r];
    return DS_OK;
}

/* What both ends of a rendezvous must agree on, as text: "f32[8]", or
 * "all_reduce f32[8] group (0, 1) algorithm=ring". */
static ds_status half_terms(ds_builder *b, const ds_site *site, const ds_placement *p, ds_record *r,
                            ds_error *err) {
    static const char *const options[] = {"algorithm", "route", "op"};
    const ds_op *op = site->op;
    ds_env env = ds_binding_env(b->binding, site->indices);
    ds_buf text = {0};
    if (op->has_group) ds_buf_printf(&text, "%s ", ds_op_name(op->code));
    const ds_typed *types = op->n_in ? site->in : site->out;
    for (uint32_t i = 0; i < (op->n_in ? op->n_in : op->n_out); i++) {
        ds_shape shape;
        ds_status status = ds_plan__local_shape(b, types[i], p, 0, op->loc, &shape, err);
        if (status != DS_OK) {
            ds_buf_deinit(&text);
            return status;
        }
        ds_buf_printf(&text, "%s%s[", i ? ", " : "", ds_dtype_name(shape.dtype));
        for (uint32_t d = 0; d < shape.rank; d++)
            ds_buf_printf(&text, "%s%lld", d ? ", " : "", (long long)shape.dims[d]);
        ds_buf_put(&text, "]");
    }
    if (op->has_group) {
        int64_t root = 0, shift = 1, dim = -1;
        for (uint32_t i = 0; i < op->n_group; i++) {
            int64_t rank = 0;
            ds_expr_eval_int(&env, op->group[i], op->loc, &rank, NULL); /* evaluated before */
            ds_buf_printf(&text, "%s%lld", i ? ", " : " group (", (long long)rank);
        }
        ds_buf_put(&text, ")");
        if (ds_op_attr_int(op, &env, "root", &root, NULL) == DS_OK && root)
            ds_buf_printf(&text, " root=%lld", (long long)root);
        if (ds_op_attr_int(op, &env, "shift", &shift, NULL) == DS_OK && shift != 1)
            ds_buf_printf(&text, " shift=%lld", (long long)shift);
        if (DS_HAS_EXPR(op->dim) && ds_expr_eval_int(&env, op->dim, op->loc, &dim, NULL) == DS_OK)
            ds_buf_printf(&text, " dim %lld", (long long)dim);
    }
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        const char *word =
            ds_attr_text(&b->unit->exprs, ds_attr_find(op->attrs, op->n_attrs, options[i]));
        if (word) ds_buf_printf(&text, " %s=%s", options[i], word);
    }
    r->terms = ds_arena_strdup(&b->plan->arena, text.text);
    ds_buf_deinit(&text);
    return DS_OK;
}

ds_status ds_plan__half_record(ds_builder *b, const ds_site *site, ds_record *r, ds_error *err) {
    const ds_op *op = site->op;
    r->kind = DS_REC_HALF;
    uint32_t self = site->rank_device;
    ds_group *g = DS_NEW(&b->plan->arena, ds_group);
    uint32_t n = op->has_group ? op->n_group : 2;
    uint32_t *devices = DS_NEW_N(&b->plan->arena, uint32_t, n);
    bool member = false;
    if (op->has_group) {
        for (uint32_t i = 0; i < n; i++) {
            DS_TRY(rank_device(b, site, op->group[i], &devices[i], err));
            member |= devices[i] == self;
        }
    } else if (op->code == DS_OP_SEND || op->code == DS_OP_RECV) {
        r->is_recv = op->code == DS_OP_RECV;
        uint32_t peer;
        DS_TRY(rank_device(b, site, r->is_recv ? op->from_rank : op->to_rank, &peer, err));
        devices[0] = r->is_recv ? peer : self;
        devices[1] = r->is_recv ? self : peer;
        member = peer != self;
    } else {
        return ds_error_set(err, DS_ERR_SHARDING, op->loc,
                            "in a per-rank program %s needs `group (ranks)`", r->label);
    }
    if (!member)
        return ds_error_set(err, DS_ERR_VALUE, op->loc,
                            op->has_group ? "this rank is not in the group of its own %s"
                                          : "this rank's %s is with itself",
                            r->label);
    g->devices = devices;
    g->n_devices = n;
    r->groups = g;
    r->n_groups = 1;
    r->match_key = ds_plan__devices_key(devices, n, !op->has_group);
    if (!op->has_group) {
        int64_t tag = 0;
        ds_env env = ds_binding_env(b->binding, site->indices);
        if (DS_HAS_EXPR(op->tag)) DS_TRY(ds_expr_eval_int(&env, op->tag, op->loc, &tag, err));
        r->match_key = ds_hash_mix(r->match_key, (uint64_t)tag);
    }
    ds_plan__set_devices(b, r, &self, 1);
    const ds_placement *p = ds_plan__placement(b, ds_plan__single(b, self));
    r->n_variants = 1;
    r->variants = DS_NEW(&b->plan->arena, ds_variant);
    r->variants[0].out_bytes = DS_NEW_N(&b->plan->arena, int64_t, op->n_out);
    int64_t in, out;
    uint32_t *here = DS_NEW_N(&b->plan->arena, uint32_t, op->n_in + op->n_out);
    for (uint32_t i = 0; i < op->n_in + op->n_out; i++) here[i] = ds_plan__single(b, self);
    const ds_placed operands = {site->in, op->n_in, here}, results = {site->out, op->n_out, here};
    DS_TRY(ds_plan__member_bytes(b, site, operands, self, NULL, &in, err));
    DS_TRY(ds_plan__member_bytes(b, site, results, self, r->variants[0].out_bytes, &out, err));
    g->bytes = in > out ? in : out;
    int64_t root = 0;
    ds_env env = ds_binding_env(b->binding, site->indices);
    if (op->has_group) DS_TRY(ds_op_attr_int(op, &env, "root", &root, err));
    if (root < 0 || root >= n)
        return ds_error_set(err, DS_ERR_VALUE, op->loc,
                            "root %lld is outside the group of %u ranks", (long long)root, n);
    DS_TRY(half_terms(b, site, p, r, err));
    const ds_group_work work = {.op = op,
                                .code = op->has_group ? op->code : DS_OP_SEND,
                                .indices = site->indices,
                                .root = (uint32_t)root};
    return ds_plan__group_cost(b, &work, g, err);
}
