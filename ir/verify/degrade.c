/* `degrade`: names and numbers. Paths are checked if the run's topology is known by name. Ranges of
 * indices and the existence of links are checked when the topology is built
 * (sim/topo/degrade.c). */
#include "ir/verify/degrade.h"

#include "ir/verify/internal.h"

#include <string.h>

const ds_topology *ds_degraded_topology(const ds_unit *unit) {
    const ds_module *root = unit->modules.at[0];
    const ds_topology *topology = ds_scenario_topology(unit);
    const ds_mesh *mesh = ds_scenario_mesh(unit);
    /* Views of views are few; names.c reports a cycle of views. */
    for (uint32_t depth = 0; !topology && mesh && depth < 64; depth++) {
        topology = mesh->kind == DS_MESH_ON ? ds_find_topology(mesh->module, mesh->base) : NULL;
        mesh = mesh->kind == DS_MESH_ON ? NULL : ds_find_mesh(mesh->module, mesh->base);
    }
    if (!topology && root->topologies.n == 1) topology = root->topologies.at[0];
    return topology;
}

/* ---- names ---- */

static const char *const factors[] = {"compute", "memory", "bandwidth", "latency"};
enum { COMPUTE, MEMORY, BANDWIDTH, LATENCY, N_FACTORS };

static uint32_t factor_of(const char *name) {
    for (uint32_t k = 0; k < N_FACTORS; k++)
        if (strcmp(factors[k], name) == 0) return k;
    return N_FACTORS;
}

static void check_factor(ds_checker *ck, const ds_degrade *degrade, const ds_node_decl *node,
                         const ds_attr *factor) {
    uint32_t which = factor_of(factor->name);
    bool of_device = which == COMPUTE || which == MEMORY;
    if (which == N_FACTORS)
        ds_verify__error(ck, DS_ERR_NAME, factor->loc,
                         ds_verify__hint(ck, "", factor->name, factors, N_FACTORS),
                         "nothing has a '%s' to degrade: devices have compute and memory, links "
                         "have bandwidth and latency",
                         factor->name);
    else if (of_device && degrade->n_b)
        ds_verify__error(ck, DS_ERR_NAME, factor->loc, NULL,
                         "a link has no %s; it takes bandwidth and latency", factor->name);
    else if (of_device && node && node->kind != DS_NODE_DEVICE && node->kind != DS_NODE_INSTANCE)
        ds_verify__error(ck, DS_ERR_NAME, factor->loc, NULL,
                         "'%s' is no device, so it has no %s; its links have bandwidth and latency",
                         node->name, factor->name);
}

static void check_degrade(ds_checker *ck, const ds_module *module, const ds_topology *topology,
                          const ds_degrade *degrade) {
    for (uint32_t i = 0; i < degrade->n_loops; i++)
        ds_verify__index_name(ck, module, degrade->loops[i].name, degrade->loops[i].loc);
    const ds_node_decl *node = NULL;
    if (topology) {
        node = ds_verify__path(ck, topology, degrade->a, degrade->n_a, degrade->loc);
        if (degrade->n_b) ds_verify__path(ck, topology, degrade->b, degrade->n_b, degrade->loc);
    }
    for (uint32_t i = 0; i < degrade->n_factors; i++)
        check_factor(ck, degrade, node, &degrade->factors[i]);
}

void ds_verify__degrades(ds_checker *ck, const ds_module *module) {
    const ds_topology *topology =
        module == ck->unit->modules.at[0] ? ds_degraded_topology(ck->unit) : NULL;
    for (uint32_t i = 0; i < module->degrades.n; i++)
        check_degrade(ck, module, topology, &module->degrades.at[i]);
}

/* ---- numbers ---- */

ds_status ds_degrade_factor(const ds_env *env, const ds_attr *factor, int64_t *ppb, ds_error *err) {
    double value;
    DS_TRY(ds_expr_eval_real(env, factor->expr, factor->loc, &value, err));
    uint32_t which = factor_of(factor->name);
    if (which == LATENCY && !(value >= 1 && value <= 1e6))
        return ds_error_set(err, DS_ERR_VALUE, factor->loc,
                            "latency = %.12g: a degraded link has 1 to 1000000 times its latency",
                            value);
    bool missing = which == BANDWIDTH && value == 0;
    double least = which == BANDWIDTH ? 1e-9 : 1e-6; /* 1e-9 is the unit of factors */
    if (which != LATENCY && !missing && !(value >= least && value <= 1))
        return ds_error_set(err, DS_ERR_VALUE, factor->loc,
                            "%s = %.12g: the share that is left is %sfrom %s to 1", factor->name,
                            value, which == BANDWIDTH ? "0 (missing) or " : "",
                            which == BANDWIDTH ? "0.000000001" : "0.000001");
    *ppb = (int64_t)(value * (double)DS_DEGRADE_WHOLE + 0.5);
    return DS_OK;
}

void ds_verify__degrade_numbers(ds_checker *ck) {
    const ds_module *root = ck->unit->modules.at[0];
    ds_env env = ds_binding_env(ck->binding, NULL);
    for (uint32_t i = 0; i < root->degrades.n; i++) {
        const ds_degrade *degrade = &root->degrades.at[i];
        for (uint32_t k = 0; k < degrade->n_factors && !degrade->n_loops; k++) {
            ds_error err = {0};
            int64_t ppb;
            if (ds_degrade_factor(&env, &degrade->factors[k], &ppb, &err) != DS_OK)
                ds_verify__pass_on(ck, &err);
        }
    }
}
