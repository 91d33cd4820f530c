/* Platforms written by `distsim topo --simgrid`, loaded by SimGrid itself: its hosts are our
 * devices, and between any two of them it finds the latency and the bandwidth that we have. Built
 * only where libsimgrid is installed; one platform a process, so each test is one. */
#include "tests/support/import_topo.h"

#include <criterion/criterion.h>
#include <math.h>
#include <simgrid/engine.h>
#include <simgrid/host.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void load(ds_topo *topo) {
    int argc = 5;
    char *argv[] = {"test_export",
                    "--cfg=network/model:CM02",
                    "--cfg=network/TCP-gamma:0",
                    "--cfg=network/crosstraffic:0",
                    "--log=root.thres:error",
                    NULL};
    ds_buf text = {0};
    ds_error err = {0};
    char folder[] = "/tmp/distsim-simgrid-XXXXXX", path[64];
    cr_assert_eq(ds_topo_print_simgrid(topo, &text, &err), DS_OK, "%s", err.message);
    cr_assert(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/platform.xml", folder);
    FILE *file = fopen(path, "w");
    cr_assert(file);
    cr_assert_eq(fwrite(text.text, 1, text.n, file), text.n);
    fclose(file);
    simgrid_init(&argc, argv);
    simgrid_load_platform(path);
    unlink(path);
    rmdir(folder);
    ds_buf_deinit(&text);
}

static void compare(const char *path) {
    topo_text t = topo_text_load(path, NULL, 0);
    uint32_t n = ds_topo_n_devices(t.topo);
    load(t.topo);
    cr_assert_eq(sg_host_count(), n);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < n; j++) {
            if (i == j) continue;
            const ds_route *ours;
            cr_assert_eq(ds_topo_route_single(t.topo, i, j, &ours, NULL), DS_OK);
            sg_host_t from = sg_host_by_name(ds_topo_device_path(t.topo, i)),
                      to = sg_host_by_name(ds_topo_device_path(t.topo, j));
            double latency = sg_host_get_route_latency(from, to) * 1e12,
                   rate = sg_host_get_route_bandwidth(from, to);
            cr_expect(fabs(latency - (double)ours->latency_ps) < 1, "%u to %u: %g ps", i, j,
                      latency);
            cr_expect(fabs(rate / route_rate(t.topo, ours) - 1) < 1e-12, "%u to %u: %g B/s", i, j,
                      rate);
        }
    topo_text_free(&t);
}

Test(simgrid_export, dgx_a100) {
    compare("scenarios/topologies/dgx-a100.dir");
}

Test(simgrid_export, dgx1) { /* direct links and PCIe */
    compare("scenarios/topologies/dgx1-v100.dir");
}

Test(simgrid_export, mixed_box) { /* nested instances of three kinds */
    compare("scenarios/topologies/mixed-box.dir");
}

Test(simgrid_export, fat_tree) { /* several equally good paths, of which it has one */
    compare("scenarios/topologies/fat-tree.dir");
}
