/* Exchanges between devices, on a machine of the library or on a topology of the user's. */
#include "ir/lang/lang.h"
#include "ir/lang/library.h"
#include "sim/coll/coll.h"
#include "tools/measured/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* The machine of scenarios/machines whose topology @cluster stands for a device kind. */
typedef struct usual {
    const char *kind, *machine;
    uint32_t gpus; /* a node, all on its fast links */
} usual;

static const usual usuals[] = {
    {"A100-SXM4-80GB", "dgx-a100", 8},
    {"A100-SXM4-40GB", "ndv4", 8},
    {"H100-SXM5-80GB", "dgx-h100", 8},
    {"H800-SXM-80GB", "h800", 8},
    {"H200-SXM-141GB", "dgx-h200", 8},
    {"B200-SXM-180GB", "dgx-b200", 8},
    {"B300-SXM-288GB", "dgx-b300", 8},
    {"GB200-SXM-186GB", "gb200-nvl72", 72},
    {"GB300-SXM", "gb300-nvl72", 72},
    {"MI300X-192GB", "mi300x", 8},
    {"V100-SXM2-16GB", "dgx1-v100", 8},
    {"V100-SXM2-32GB", "p3dn", 8},
    {"V100-SXM3-32GB", "dgx2", 16},
    {"L40S-48GB", "l40s", 8},
    {"RTX-PRO-6000-SE-96GB", "rtx-pro-6000", 8},
};
enum { N_USUALS = sizeof usuals / sizeof *usuals };

typedef struct machine {
    const usual *usual;
    int64_t nodes;
    ds_unit *unit;
    ds_topo *topo;
} machine;

struct measured_machines {
    const ds_profiles *profiles;
    DS_VEC(machine) made;
};

measured_machines *measured_machines_new(const ds_profiles *profiles) {
    measured_machines *m = ds_xcalloc(1, sizeof *m);
    m->profiles = profiles;
    return m;
}

void measured_machines_free(measured_machines *m) {
    if (!m) return;
    for (uint32_t i = 0; i < m->made.n; i++) {
        ds_topo_free(m->made.at[i].topo);
        ds_unit_free(m->made.at[i].unit);
    }
    free(m->made.at);
    free(m);
}

static const usual *usual_of(const measured_machines *m, uint32_t kind) {
    const char *name = ds_profiles_kind(m->profiles, kind)->name;
    for (int i = 0; i < N_USUALS; i++)
        if (strcasecmp(usuals[i].kind, name) == 0) return &usuals[i];
    return NULL;
}

static ds_status build(machine *made, ds_error *err) {
    char wanted[64], nodes[24];
    snprintf(wanted, sizeof wanted, "machines/%s.dir", made->usual->machine);
    snprintf(nodes, sizeof nodes, "%lld", (long long)made->nodes);
    char *path = ds_library_path(wanted, NULL);
    if (!path)
        return ds_error_set(err, DS_ERR_IO, DS_NOWHERE,
                            "the library has no %s: name a topology with --on", wanted);
    ds_binding binding;
    ds_status status = ds_load_file(path, NULL, &made->unit, err);
    free(path);
    if (status == DS_OK)
        status = ds_bind(made->unit, &(ds_setting){"nodes", nodes}, 1, &binding, err);
    if (status == DS_OK) {
        const ds_module *module = made->unit->modules.at[0];
        status = ds_topo_build(&binding, module->topologies.at[module->topologies.n - 1],
                               &made->topo, err);
    }
    if (status != DS_OK && made->unit) ds_unit_free(made->unit);
    return status;
}

static ds_status machine_of(measured_machines *m, const usual *u, int64_t nodes, ds_topo **topo,
                            ds_error *err) {
    for (uint32_t i = 0; i < m->made.n; i++)
        if (m->made.at[i].usual == u && m->made.at[i].nodes == nodes) {
            *topo = m->made.at[i].topo;
            return DS_OK;
        }
    machine made = {.usual = u, .nodes = nodes};
    DS_TRY(build(&made, err));
    DS_HPUSH(&m->made, made);
    *topo = made.topo;
    return DS_OK;
}

enum { MOST_DEVICES = 4096 };

/* The topology and the members of an exchange. On a topology of the user's these are the first
 * devices; on a machine, as many nodes as the row says, each with the same number of devices. A
 * node of the library is all that fast links join, 72 GPUs of a rack, whatever the row calls one. */
static ds_status place(measured_machines *m, ds_topo *on, measured_row *row, ds_topo **topo,
                       uint32_t *devices, ds_error *err) {
    const measured_exchange *x = &row->exchange;
    const usual *u = usual_of(m, row->kind);
    int64_t each = x->group / x->nodes;
    if (x->group > MOST_DEVICES) {
        row->refused = "more than 4096 devices";
        return DS_OK;
    }
    if (!on && !u) {
        row->refused = "the library has no machine of the device; --on names a topology";
        return DS_OK;
    }
    for (uint32_t i = 0; i < x->group; i++) devices[i] = i;
    *topo = on;
    if (!on) {
        bool whole = each <= u->gpus && u->gpus <= 16;
        int64_t nodes = whole ? x->nodes : (x->group + u->gpus - 1) / u->gpus;
        DS_TRY(machine_of(m, u, nodes, topo, err));
        for (uint32_t i = 0; i < x->group && whole; i++)
            devices[i] = i / (uint32_t)each * u->gpus + i % (uint32_t)each;
    }
    if (ds_topo_n_devices(*topo) < x->group) row->refused = "the topology has fewer devices";
    return DS_OK;
}

static ds_status price_collective(const ds_profiles *profiles, uint32_t profile, ds_topo *topo,
                                  const ds_coll_request *q, double *us, ds_error *err) {
    ds_coll_links links;
    ds_coll_cost terms;
    ds_coll_choice choice = {0};
    ds_arena arena;
    DS_TRY(ds_coll_links_of(topo, q, &links, err));
    ds_coll_demand demand = {ds_op_name(q->op), q->n, q->bytes, links};
    DS_TRY(ds_cost_collective(profiles, profile, &demand, &terms, NULL, err));
    ds_arena_init(&arena);
    ds_status status = ds_coll_choose(topo, q, &terms, &arena, &choice, err);
    *us = (double)choice.ps / 1e6;
    ds_arena_deinit(&arena);
    return status;
}

static ds_status links_of(ds_topo *topo, const uint32_t *devices, uint32_t n, ds_coll_links *out,
                          ds_error *err) {
    ds_coll_request q = {.op = DS_OP_ALL_TO_ALL, .devices = devices, .n = n, .bytes = 1 << 20};
    return ds_coll_links_of(topo, &q, out, err);
}

ds_status measured_sending_on(measured_machines *machines, ds_topo *on, measured_row *row,
                              ds_sending *out, ds_error *err) {
    uint32_t n = (uint32_t)row->exchange.group;
    uint32_t *devices = ds_xcalloc((size_t)n, sizeof *devices);
    ds_topo *topo = NULL;
    ds_coll_links all = {0}, node = {0};
    ds_status status = place(machines, on, row, &topo, devices, err);
    if (status == DS_OK && !row->refused) status = links_of(topo, devices, n, &all, err);
    bool several = all.n_nodes > 1;
    uint32_t each = several ? n / (uint32_t)all.n_nodes : n;
    if (status == DS_OK && several && each < 2) row->refused = "one device of each node";
    if (status == DS_OK && !row->refused) status = links_of(topo, devices, each, &node, err);
    if (status == DS_OK && !row->refused) {
        measured_sending_of(row, all.n_nodes, out);
        out->link_bytes_per_s = (double)node.slowest_bytes_per_s;
        out->net_bytes_per_s = (double)all.slowest_bytes_per_s;
    }
    free(devices);
    return status;
}

static ds_status price_sending(measured_machines *machines, uint32_t profile, ds_topo *on,
                               measured_row *row, double *us, ds_error *err) {
    ds_sending s;
    ds_sending_fit f;
    DS_TRY(measured_sending_on(machines, on, row, &s, err));
    if (row->refused) return DS_OK;
    if (measured_sending_fit_of(machines->profiles, profile, row, s.n_nodes > 0, &f))
        *us = ds_sending_seconds(&f, &s) * 1e6;
    else
        row->refused = "the profile has no fit of the kernel that sends";
    return DS_OK;
}

ds_status measured_exchange_price(measured_machines *machines, uint32_t profile, ds_topo *on,
                                  measured_row *row, double *us, ds_error *err) {
    const measured_exchange *x = &row->exchange;
    if (row->table == MEASURED_DISPATCH) return price_sending(machines, profile, on, row, us, err);
    uint32_t *devices = ds_xcalloc((size_t)x->group, sizeof *devices);
    ds_topo *topo = NULL;
    ds_status status = place(machines, on, row, &topo, devices, err);
    if (status == DS_OK && !row->refused) {
        ds_coll_request q = {.op = ds_op_by_name(x->op),
                             .devices = devices,
                             .n = (uint32_t)x->group,
                             .bytes = x->bytes};
        status = price_collective(machines->profiles, profile, topo, &q, us, err);
    }
    free(devices);
    return status;
}
