/* Every machine of scenarios/machines against its published figures: devices of a node, what a GPU
 * reaches within the node, and what a node reaches outside. */
#include "tests/support/generate/topo_text.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>

typedef struct machine {
    const char *name, *device;
    uint32_t gpus;       /* a node */
    double inner, outer; /* GB/s each way: of a GPU within its node, of a node */
} machine;

/* NVLink 2 to 5: 150, 300, 450 and 900 GB/s; xGMI: 7 x 64 (stas00/ml-engineering network/README.md).
 * Network of a node: datasheets of the DGX (8 x 200, 400 or 800 Gb/s; DGX-1 4 x 100, DGX-2 8 x 100),
 * instance pages of AWS (p3dn 100 Gb/s, p4d 400 Gb/s, p5 and p6 3.2 Tb/s) and Azure (ND A100 v4 1.6
 * Tb/s, ND H100 v5 and ND MI300X v5 3.2 Tb/s; ND GB200 v6 400 Gb/s a GPU; GB300 800 Gb/s a GPU). */
static const machine machines[] = {
    {"dgx1-v100", "V100-SXM2-16GB", 8, 150, 50},
    {"p3dn", "V100-SXM2-32GB", 8, 150, 12.5},
    {"dgx2", "V100-SXM3-32GB", 16, 150, 100},
    {"dgx-a100", "A100-SXM4-80GB", 8, 300, 200},
    {"p4d", "A100-SXM4-40GB", 8, 300, 50},
    {"ndv4", "A100-SXM4-40GB", 8, 300, 200},
    {"dgx-h100", "H100-SXM5-80GB", 8, 450, 400},
    {"p5", "H100-SXM5-80GB", 8, 450, 400},
    {"ndv5", "H100-SXM5-80GB", 8, 450, 400},
    {"dgx-h200", "H200-SXM-141GB", 8, 450, 400},
    {"dgx-b200", "B200-SXM-180GB", 8, 900, 400},
    {"p6-b200", "B200-SXM-180GB", 8, 900, 400},
    {"dgx-b300", "B300-SXM-288GB", 8, 900, 800},
    {"gb200-nvl72", "GB200-SXM-186GB", 72, 900, 3600},
    {"gb300-nvl72", "GB300-SXM", 72, 900, 7200},
    {"mi300x", "MI300X-192GB", 8, 448, 400},
    {"h800", "H800-SXM-80GB", 8, 200, 400},
    {"l40s", "L40S-48GB", 8, 31, 100},
    {"g4dn", "T4", 4, 15.75, 6.25},
    {"rtx-pro-6000", "RTX-PRO-6000-SE-96GB", 8, 63, 200},
};
#define N_MACHINES (sizeof machines / sizeof *machines)

static bool is_network(const ds_topo *topo, uint32_t vertex) {
    return strcmp(ds_topo_vertex_path(topo, vertex), "network") == 0;
}

/* Bytes per second from device 0 into NVLink or xGMI: not the PCIe to a NIC or a host. */
static double inner(const ds_topo *topo) {
    double sum = 0;
    uint32_t from = ds_topo_device_vertex(topo, 0);
    for (uint32_t i = 0; i < ds_topo_n_links(topo); i++) {
        const ds_topo_link *link = ds_topo_link_at(topo, i);
        if (link->from != from) continue;
        ds_node_kind kind = ds_topo_vertex_kind(topo, link->to);
        bool pcie = kind == DS_NODE_NIC || kind == DS_NODE_HOST ||
                    strstr(ds_topo_vertex_path(topo, link->to), "plx");
        if (!pcie) sum += (double)link->bytes_per_s;
    }
    return sum / 1e9;
}

static double outer(const ds_topo *topo, uint32_t nodes) {
    double sum = 0;
    for (uint32_t i = 0; i < ds_topo_n_links(topo); i++)
        if (is_network(topo, ds_topo_link_at(topo, i)->to))
            sum += (double)ds_topo_link_at(topo, i)->bytes_per_s;
    return sum / 1e9 / nodes;
}

static void check(const machine *m, const char *nodes, uint32_t n) {
    char path[96];
    const ds_setting setting = {"nodes", nodes};
    snprintf(path, sizeof path, "scenarios/machines/%s.dir", m->name);
    topo_text t = topo_text_load(path, &setting, 1);
    cr_assert_eq(ds_topo_n_devices(t.topo), n * m->gpus, "%s", m->name);
    for (uint32_t i = 0; i < n * m->gpus; i++)
        cr_assert_str_eq(ds_topo_device_type(t.topo, i), m->device, "%s", m->name);
    cr_assert_float_eq(inner(t.topo), m->inner, 1e-9, "%s: %g", m->name, inner(t.topo));
    cr_assert_float_eq(outer(t.topo, n), m->outer, 1e-9, "%s: %g", m->name, outer(t.topo, n));
    topo_text_free(&t);
}

Test(machines, have_the_published_figures_with_any_number_of_nodes) {
    for (size_t i = 0; i < N_MACHINES; i++) {
        check(&machines[i], "1", 1);
        check(&machines[i], "6", 6);
    }
}

/* A GPU and the GPU of the same number in the next node: the slowest link is the NIC's, or the path
 * to the NIC; fast links of the first GPU reach its whole node and no other. */
Test(machines, nodes_are_islands) {
    for (size_t i = 0; i < N_MACHINES; i++) {
        const machine *m = &machines[i];
        char path[96];
        const ds_setting setting = {"nodes", "2"};
        snprintf(path, sizeof path, "scenarios/machines/%s.dir", m->name);
        topo_text t = topo_text_load(path, &setting, 1);
        for (uint32_t d = 0; d < 2 * m->gpus; d++)
            cr_assert_eq(ds_topo_island(t.topo, d) == ds_topo_island(t.topo, 0), d < m->gpus,
                         "%s: device %u", m->name, d);
        topo_text_free(&t);
    }
}

Test(machines, each_file_is_in_this_table) {
    DIR *folder = opendir("scenarios/machines");
    cr_assert_not_null(folder);
    size_t files = 0;
    for (struct dirent *e; (e = readdir(folder));) {
        size_t n = strlen(e->d_name);
        if (n < 5 || strcmp(e->d_name + n - 4, ".dir") != 0) continue;
        bool known = false;
        for (size_t i = 0; i < N_MACHINES; i++)
            known = known || (strlen(machines[i].name) == n - 4 &&
                              strncmp(machines[i].name, e->d_name, n - 4) == 0);
        cr_assert(known, "%s", e->d_name);
        files++;
    }
    closedir(folder);
    cr_assert_eq(files, N_MACHINES);
}
