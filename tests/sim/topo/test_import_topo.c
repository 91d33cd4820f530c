/* Topologies of NCCL and nvidia-smi against the ready-made ones of the same machines, against the
 * catalogue, and malformed ones. Samples: tests/data/topo/README.md. */
#include "ir/base/csv.h"
#include "ir/import/hardware_internal.h"
#include "tests/support/import_topo.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- against scenarios/topologies ---- */

/* Bandwidth and latency between any two GPUs. `off`: of bandwidths, since the ready-made files
 * round PCIe's to two digits. */
static void same_between_gpus(const topo_text *got, const char *path, double off) {
    topo_text want = topo_text_load(path, NULL, 0);
    uint32_t n = ds_topo_n_devices(want.topo);
    cr_assert_eq(ds_topo_n_devices(got->topo), n);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < n; j++) {
            if (i == j) continue;
            const ds_route *a = device_route(got->topo, i, j), *b = device_route(want.topo, i, j);
            double ratio = route_rate(got->topo, a) / route_rate(want.topo, b);
            cr_expect(fabs(ratio - 1) <= off, "gpu[%u] to gpu[%u]: %g of the bandwidth", i, j,
                      ratio);
            cr_expect_eq(a->latency_ps, b->latency_ps, "gpu[%u] to gpu[%u]", i, j);
        }
    topo_text_free(&want);
}

/* The adapters behind the same switch as a device, as a set of bits; in pairs of a GPU's rank. */
static uint64_t near_adapters(const topo_text *t, uint32_t device) {
    uint64_t near = 0;
    for (uint32_t k = 0; k < 16; k++) {
        char name[16];
        const ds_route *route;
        snprintf(name, sizeof name, "nic[%u]", k);
        uint32_t nic = ds_topo_find_vertex(t->topo, name);
        if (nic == UINT32_MAX) continue;
        cr_assert_eq(ds_topo_route_vertices(t->topo, ds_topo_device_vertex(t->topo, device), nic,
                                            &route, NULL),
                     DS_OK);
        if (route->hops == 2) near |= UINT64_C(1) << k;
    }
    return near;
}

/* As many adapters near each GPU, and shared with the same other GPUs. */
static void same_affinity(const topo_text *got, const char *path) {
    topo_text want = topo_text_load(path, NULL, 0);
    for (uint32_t i = 0; i < ds_topo_n_devices(want.topo); i++) {
        uint64_t a = near_adapters(got, i), b = near_adapters(&want, i);
        cr_expect_eq(__builtin_popcountll(a), __builtin_popcountll(b), "gpu[%u]", i);
        for (uint32_t j = 0; j < i; j++) {
            bool shared = (b & near_adapters(&want, j)) != 0;
            cr_expect_eq((a & near_adapters(got, j)) != 0, shared, "gpu[%u], gpu[%u]", i, j);
        }
    }
    topo_text_free(&want);
}

Test(import_topo, nccl_dgx_a100) {
    topo_text t = import_topo_file(ds_import_nccl_topo, "dgx-a100.xml", NULL, NULL);
    same_between_gpus(&t, "scenarios/topologies/dgx-a100.dir", 0);
    same_affinity(&t, "scenarios/topologies/dgx-a100.dir");
    cr_expect_str_eq(ds_topo_device_type(t.topo, 7), "A100-SXM4-40GB"); /* PCI device 20b0 */
    /* 200 Gb/s behind each adapter: 25 GB/s, less than PCIe 4 x16 */
    const ds_route *route = topo_text_route(&t, "gpu[0]", "port[0]");
    cr_expect_float_eq(route_rate(t.topo, route), 25e9, 1);
    /* two ports of 200 and 100 Gb/s on one adapter */
    cr_expect_float_eq(route_rate(t.topo, topo_text_route(&t, "nic[4]", "port[4]")), 25e9, 1);
    cr_expect_float_eq(route_rate(t.topo, topo_text_route(&t, "nic[4]", "port[5]")), 12.5e9, 1);
    /* Zen 2: 16 GB/s between NUMA nodes (NVIDIA/nccl src/graph/topo.h, AMD_ZEN12_BW) */
    cr_expect_float_eq(route_rate(t.topo, topo_text_route(&t, "nic[0]", "nic[2]")), 16e9, 1);
    topo_text_free(&t);
}

Test(import_topo, nvidia_smi_dgx_a100) {
    topo_text t = import_topo_file(ds_import_nvidia_smi, "dgx-a100.txt", NULL, NULL);
    same_between_gpus(&t, "scenarios/topologies/dgx-a100.dir", 0);
    same_affinity(&t, "scenarios/topologies/dgx-a100.dir");
    cr_expect_float_eq(route_rate(t.topo, topo_text_route(&t, "gpu[0]", "nic[0]")), 31e9, 1);
    topo_text_free(&t);
}

Test(import_topo, nvidia_smi_h100) {
    topo_text t = import_topo_file(ds_import_nvidia_smi, "h100.txt", NULL, NULL);
    same_between_gpus(&t, "scenarios/topologies/dgx-h100.dir", 0);
    same_affinity(&t, "scenarios/topologies/dgx-h100.dir");
    /* the table's NIC1 and NIC2 are two ports on one switch, and no GPU's */
    cr_expect_eq(topo_text_route(&t, "nic[1]", "nic[2]")->hops, 2);
    cr_expect_eq(topo_text_route(&t, "nic[1]", "nic[3]")->hops, 4);
    /* PIX 1 us; PXB a bridge more on either side; NODE over the CPU */
    cr_expect_eq(topo_text_route(&t, "nic[1]", "nic[2]")->latency_ps, 1000000);
    cr_expect_eq(topo_text_route(&t, "gpu[0]", "nic[0]")->latency_ps, 2000000);
    cr_expect_eq(topo_text_route(&t, "nic[1]", "nic[3]")->latency_ps, 2500000);
    topo_text_free(&t);
}

/* Hybrid cube mesh: one and two links of 25 GB/s, PCIe where there is none. */
Test(import_topo, nccl_dgx1_v100) {
    topo_text t = import_topo_file(ds_import_nccl_topo, "dgx1-v100.xml", NULL, NULL);
    same_between_gpus(&t, "scenarios/topologies/dgx1-v100.dir", 1e-3);
    cr_expect_float_eq(route_rate(t.topo, device_route(t.topo, 0, 3)), 50e9, 1);
    topo_text_free(&t);
}

/* A virtual machine's file: no GPUs' names, no NVLinks. */
Test(import_topo, nccl_virtual_machine) {
    ds_import_options a100 = {.device = "A100-SXM4-80GB", .topology = "ndv4", .source = "ndv4.xml"};
    ds_buf text = {0};
    topo_text t = import_topo_file(ds_import_nccl_topo, "ndv4.xml", &a100, &text);
    same_affinity(&t, "scenarios/topologies/dgx-a100.dir");
    /* PCIe 4 x16: 16 GT/s * 16 * 128/130 / 8 bits = 31.508 GB/s */
    double rate = route_rate(t.topo, device_route(t.topo, 0, 1));
    cr_expect(fabs(rate / (16e9 * 16 * 128 / 130 / 8) - 1) < 1e-4, "%g", rate);
    cr_expect(strstr(text.text, "// Imported from ndv4.xml (NCCL topology).\n"));
    cr_expect(strstr(text.text, "// The file has no NVLinks"));
    cr_expect(strstr(text.text, "topology @ndv4 {"));
    cr_expect_eq(strstr(text.text, "nvswitch"), NULL);
    ds_buf_deinit(&text);
    topo_text_free(&t);
}

/* ---- the table of hardware ---- */

static double catalogue_rate(const ds_csv *csv, const char *name) {
    for (uint32_t i = 0; i < csv->rows.n; i++)
        if (strcmp(csv->rows.at[i].cells[ds_csv_find(csv, "name")], name) == 0)
            return atof(csv->rows.at[i].cells[ds_csv_find(csv, "gb_per_s")]) * 1e9;
    cr_assert_fail("the catalogue has no %s", name);
    return 0;
}

Test(import_topo, figures_are_the_catalogue_s) {
    ds_csv csv;
    ds_error err = {0};
    const char *source;
    cr_assert_eq(ds_csv_read(DS_SOURCE_DIR "/cost_profiles/catalogue/links.csv", &csv, &err), DS_OK,
                 "%s", err.message);
    for (uint32_t generation = 1; generation <= 5; generation++) {
        const ds_hw_nvlink *kind = ds_hw__nvlink(0, generation);
        double want = catalogue_rate(&csv, kind->name);
        cr_expect_float_eq((double)kind->total_bytes_per_s, want, 1, "%s", kind->name);
        cr_expect_float_eq((double)(kind->bytes_per_s * kind->links), want, 1, "%s", kind->name);
    }
    cr_expect_float_eq((double)ds_hw__pcie_x16(4, &source), catalogue_rate(&csv, "PCIe4-x16"), 1);
    cr_expect_float_eq((double)ds_hw__pcie_x16(5, &source), catalogue_rate(&csv, "PCIe5-x16"), 1);
    cr_expect_float_eq((double)ds_hw__pcie_x16(6, &source), catalogue_rate(&csv, "PCIe6-x16"), 1);
    cr_expect_float_eq((double)ds_hw__port(25000000000)->bytes_per_s,
                       catalogue_rate(&csv, ds_hw__port(25000000000)->name), 1);
    cr_expect_float_eq((double)ds_hw__port(12500000000)->bytes_per_s,
                       catalogue_rate(&csv, ds_hw__port(12500000000)->name), 1);
    ds_csv_deinit(&csv);
}

Test(import_topo, gpus_are_in_the_catalogue) {
    static const uint32_t sms[] = {60, 61, 70, 75, 80, 86, 90, 100, 103};
    ds_csv csv;
    cr_assert_eq(ds_csv_read(DS_SOURCE_DIR "/cost_profiles/catalogue/devices.csv", &csv, NULL),
                 DS_OK);
    for (size_t k = 0; k < sizeof sms / sizeof *sms; k++) {
        const ds_hw_gpu *gpu = ds_hw__gpu_of_sm(sms[k]);
        bool found = false;
        for (uint32_t i = 0; i < csv.rows.n; i++)
            found |= strcmp(csv.rows.at[i].cells[ds_csv_find(&csv, "name")], gpu->name) == 0;
        cr_expect(found, "%s", gpu->name);
    }
    ds_csv_deinit(&csv);
}

/* The standard's own figures: 2.5 GT/s of 8b/10b are 250 MB/s a lane, 8 GT/s 984.6. */
Test(import_topo, pcie_rates) {
    cr_expect_eq(ds_hw__pcie(2500, 1), 250000000);
    cr_expect_eq(ds_hw__pcie(5000, 16), 8000000000);
    cr_expect_eq(ds_hw__pcie(8000, 1), 984000000);
    cr_expect_eq(ds_hw__pcie(8000, 16), 15753000000);
    cr_expect_eq(ds_hw__pcie(32000, 16), 63015000000);
    cr_expect_eq(ds_hw__pcie(64000, 16), 121000000000);
}

/* NVIDIA/nccl src/graph/topo.cc, ncclTopoAddCpu and ncclTopoGetInterCpuBw, in GB/s. */
Test(import_topo, between_cpus) {
    static const struct {
        const char *arch, *vendor;
        int family, model, giga;
    } cases[] = {
        {"x86_64", "GenuineIntel", 6, 0x4f, 6},
        {"x86_64", "GenuineIntel", 6, 0x55, 10},
        {"x86_64", "GenuineIntel", 6, 0x6a, 10},
        {"x86_64", "GenuineIntel", 6, 0x8f, 22},
        {"x86_64", "GenuineIntel", 6, 0xcf, 40},
        {"x86_64", "GenuineIntel", 6, 0xad, 40},
        {"x86_64", "AuthenticAMD", 23, 49, 16},
        {"x86_64", "AuthenticAMD", 143, 49, 16},
        {"x86_64", "AuthenticAMD", 25, 1, 24},
        {"x86_64", "AuthenticAMD", 0xaf, 1, 24},
        {"x86_64", "AuthenticAMD", 26, 2, 32},
        {"arm64", NULL, -1, -1, 6},
        {"ppc64", NULL, -1, -1, 32},
        {"x86_64", "CentaurHauls", 7, 0x5b, 9},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const ds_hw_cpu *cpu =
            ds_hw__cpu(cases[i].arch, cases[i].vendor, cases[i].family, cases[i].model);
        cr_assert(cpu, "%zu", i);
        cr_expect_eq(cpu->bytes_per_s, cases[i].giga * INT64_C(1000000000), "%s", cpu->name);
    }
    cr_expect_eq(ds_hw__cpu(NULL, NULL, -1, -1), NULL);
    cr_expect_eq(ds_hw__cpu("riscv", NULL, -1, -1), NULL);
}

/* ---- parts of NCCL's format ---- */

#define GPU(bus, sm, links)                                                                        \
    "<pci busid='0000:" bus ":00.0' class='0x030200' link_speed='32.0 GT/s PCIe' link_width='16'>" \
    "<gpu dev='-1' sm='" sm "'>" links "</gpu></pci>"
#define CPU(inside) "<system version='1'><cpu numaid='0'>" inside "</cpu></system>"

/* An H100's 18 NVLinks to four chips, 4 + 5 + 5 + 4 (aliyun/SimAI issue 128): 450 GB/s. */
Test(import_topo, nvlinks_add_up) {
    topo_text t = import_topo(
        ds_import_nccl_topo,
        CPU(GPU("b8", "90",
                "<nvlink target='0000:08:00.0' count='4' tclass='0x068000'/>"
                "<nvlink target='0000:06:00.0' count='5' tclass='0x068000'/>"
                "<nvlink target='0000:07:00.0' count='5' tclass='0x068000'/>"
                "<nvlink target='0000:05:00.0' count='4' tclass='0x068000'/>")
                GPU("d9", "90", "<nvlink target='fffffff:ffff:ff' count='9' tclass='0x068000'/>")),
        NULL, NULL);
    cr_expect_float_eq(route_rate(t.topo, topo_text_route(&t, "gpu[0]", "nvswitch")), 450e9, 1);
    cr_expect_float_eq(route_rate(t.topo, device_route(t.topo, 0, 1)), 225e9, 1);
    topo_text_free(&t);
}

/* Each side names its own links; a link that only one names leads one way. */
Test(import_topo, nvlinks_have_a_direction) {
    topo_text t = import_topo(
        ds_import_nccl_topo,
        CPU(GPU("01", "60", "<nvlink target='0000:02:00.0' count='2' tclass='0x030200'/>")
                GPU("02", "60", "<nvlink target='0000:01:00.0' count='1' tclass='0x030200'/>")
                    GPU("03", "60", "<nvlink target='0000:01:00.0' count='1'/>")),
        NULL, NULL);
    cr_expect_float_eq(route_rate(t.topo, device_route(t.topo, 0, 1)), 40e9, 1); /* 20 GB/s each */
    cr_expect_float_eq(route_rate(t.topo, device_route(t.topo, 1, 0)), 20e9, 1);
    cr_expect_float_eq(route_rate(t.topo, device_route(t.topo, 2, 0)), 20e9, 1);
    cr_expect_eq(device_route(t.topo, 0, 2)->hops, 2); /* over PCIe */
    topo_text_free(&t);
}

/* Grace: 8 C2C links of 43,125 MB/s; an adapter with no bus id; a port whose speed is not known. */
Test(import_topo, grace) {
    ds_buf text = {0};
    topo_text t = import_topo(
        ds_import_nccl_topo,
        "<system version='1'><cpu numaid='0' arch='arm64'>" GPU(
            "01", "90", "<c2c bw='43125' count='8'/>") "<nic><net name='a' dev='0' "
                                                       "speed='-1'/><net name='b' dev='1' "
                                                       "speed='400000' latency='2.5'/><net "
                                                       "name='c' net='0'/></nic>"
                                                       "</cpu></system>",
        NULL, &text);
    cr_expect_float_eq(route_rate(t.topo, topo_text_route(&t, "gpu[0]", "cpu[0]")), 345e9, 1);
    cr_expect_float_eq(route_rate(t.topo, topo_text_route(&t, "nic[0]", "port[0]")), 1.25e9, 1);
    const ds_route *port = topo_text_route(&t, "nic[0]", "port[1]");
    cr_expect_float_eq(route_rate(t.topo, port), 50e9, 1);
    cr_expect_eq(port->latency_ps, 2500000);
    cr_expect_eq(ds_topo_find_vertex(t.topo, "port[2]"), UINT32_MAX);
    cr_expect(strstr(text.text, "// assumed: 10 Gb/s for 1 ports without a speed"));
    ds_buf_deinit(&text);
    topo_text_free(&t);
}

/* Functions of one adapter share its link; a way past the CPU; two machines joined by NVSwitch. */
Test(import_topo, adapters_machines_and_ways_past_the_cpu) {
    topo_text t = import_topo(
        ds_import_nccl_topo,
        "<system version='1'>"
        "<cpu numaid='0' host_hash='0x1'><pci busid='0000:10:00.0' class='0x060400'>"
        "<pcilink target='0000:20:00.0'/>"
        "<pci busid='0000:11:00.0' class='0x020000' link_width='8' link_speed='16 GT/s'/>"
        "<pci busid='0000:11:00.1' class='0x020000' link_width='8' link_speed='16 GT/s'/>" GPU(
            "12", "100",
            "<nvlink count='18' tclass='0x068000'/>") "</pci><pci busid='0000:20:00.0' "
                                                      "class='0x060400'>"
                                                      "<pcilink target='0000:10:00.0'/><pci "
                                                      "busid='0000:21:00.0' "
                                                      "class='0x020000'/></pci></cpu>"
                                                      "<cpu numaid='0' host_hash='0x2'>" GPU(
                                                          "12", "100",
                                                          "<nvlink count='18' "
                                                          "tclass='0x068000'/>") "</cpu></"
                                                                                 "system>",
        NULL, NULL);
    cr_expect_eq(ds_topo_find_vertex(t.topo, "nic[2]"), UINT32_MAX);
    /* 16 GT/s * 8 * 128/130 / 8 bits = 15.75 GB/s; without numbers 8 GT/s on 16 lanes, the same */
    cr_expect_float_eq(route_rate(t.topo, topo_text_route(&t, "nic[0]", "pci[0]")), 15.753e9, 1);
    cr_expect_eq(topo_text_route(&t, "nic[0]", "nic[1]")->hops, 3);
    cr_expect_float_eq(route_rate(t.topo, device_route(t.topo, 0, 1)), 900e9, 1);
    const ds_route *route;
    cr_expect_eq(ds_topo_route_vertices(t.topo, topo_text_vertex(&t, "cpu[0]"),
                                        topo_text_vertex(&t, "cpu[1]"), &route, NULL),
                 DS_ERR_UNREACHABLE); /* CPUs of different machines */
    topo_text_free(&t);
}

/* ---- parts of nvidia-smi's format ---- */

/* As a terminal has it: tabs, underlined header, an old word for SYS, no NUMA column. */
Test(import_topo, table_of_a_terminal) {
    ds_import_options v100 = {.device = "V100-PCIE-16GB"};
    topo_text t = import_topo(ds_import_nvidia_smi,
                              "user@host:~$ nvidia-smi topo -m\n"
                              "\t\033[4mGPU0\tGPU1\tGPU2\tmlx5_0\tCPU Affinity\033[0m\r\n"
                              "GPU0\t X \tPIX\tSOC\tPHB\t0-9\r\n\r\n"
                              "GPU1\tPIX\t X \tSOC\tPHB\t0-9\r\n"
                              "GPU2\tSOC\tSOC\t X \tSOC\t10-19\r\n"
                              "mlx5_0\tPHB\tPHB\tSOC\t X \t\r\n\r\nLegend:\r\n",
                              &v100, NULL);
    cr_expect_eq(device_route(t.topo, 0, 1)->hops, 2);
    cr_expect_eq(device_route(t.topo, 0, 2)->hops, 4);
    cr_expect_eq(topo_text_route(&t, "gpu[0]", "nic[0]")->hops, 3); /* switch, CPU */
    /* PCIe 3 x16, then the way between the CPUs of a DGX-1: 6 GB/s */
    cr_expect_float_eq(route_rate(t.topo, device_route(t.topo, 0, 1)), 15.753e9, 1);
    cr_expect_float_eq(route_rate(t.topo, device_route(t.topo, 0, 2)), 6e9, 1);
    topo_text_free(&t);
}

/* The DGX-1's own table: direct links, as many as a V100 has. */
Test(import_topo, table_with_direct_links) {
    topo_text t = import_topo(
        ds_import_nvidia_smi,
        "     GPU0 GPU1 GPU2 GPU3 GPU4 GPU5 GPU6 GPU7 CPU Affinity\n"
        "GPU0  X  NV1 NV1 NV2 NV2 SYS SYS SYS 0-19\nGPU1 NV1  X  NV2 NV1 SYS NV2 SYS SYS 0-19\n"
        "GPU2 NV1 NV2  X  NV2 SYS SYS NV1 SYS 0-19\nGPU3 NV2 NV1 NV2  X  SYS SYS SYS NV1 0-19\n"
        "GPU4 NV2 SYS SYS SYS  X  NV1 NV1 NV2 20-39\nGPU5 SYS NV2 SYS SYS NV1  X  NV2 NV1 20-39\n"
        "GPU6 SYS SYS NV1 SYS NV1 NV2  X  NV2 20-39\nGPU7 SYS SYS SYS NV1 NV2 NV1 NV2  X  20-39\n",
        NULL, NULL);
    topo_text want = topo_text_load("scenarios/topologies/dgx1-v100.dir", NULL, 0);
    cr_expect_str_eq(ds_topo_device_type(t.topo, 0), "V100-SXM2-16GB");
    for (uint32_t i = 0; i < 8; i++)
        for (uint32_t j = 0; j < 8; j++)
            if (i != j && device_route(want.topo, i, j)->hops == 1)
                cr_expect_float_eq(route_rate(t.topo, device_route(t.topo, i, j)),
                                   route_rate(want.topo, device_route(want.topo, i, j)), 1);
    topo_text_free(&t);
    topo_text_free(&want);
}

/* In virtual machines the driver calls adapters SYS that are on a GPU's own NUMA node
 * (NVIDIA/nccl issue 1264). */
Test(import_topo, table_of_a_virtual_machine) {
    ds_buf text = {0};
    topo_text t = import_topo(ds_import_nvidia_smi,
                              "GPU0 GPU1 NIC0 NIC1 CPU Affinity NUMA Affinity GPU NUMA ID\n"
                              "GPU0 X NV18 PIX SYS 0-55 0 N/A\nGPU1 NV18 X SYS PIX 0-55 0 N/A\n"
                              "NIC0 PIX SYS X SYS\nNIC1 SYS PIX SYS X\n",
                              NULL, &text);
    cr_expect_neq(ds_topo_find_vertex(t.topo, "cpu[0]"), UINT32_MAX);
    cr_expect_eq(ds_topo_find_vertex(t.topo, "cpu[1]"), UINT32_MAX);
    cr_expect_eq(near_adapters(&t, 0), 1);
    cr_expect_eq(near_adapters(&t, 1), 2);
    cr_expect(strstr(text.text, "// 3 pairs that the table calls SYS are on one NUMA node here"),
              "%s", text.text);
    ds_buf_deinit(&text);
    topo_text_free(&t);
}

/* ---- malformed ---- */

typedef struct refusal {
    ds_importer *importer;
    const char *text;
    ds_status status;
    uint32_t line, col;
    const char *message;
} refusal;

#define SMI  ds_import_nvidia_smi
#define NCCL ds_import_nccl_topo
static const refusal refusals[] = {
    {NCCL, "<system>\n  <cpu>\n</system>", DS_ERR_DATA, 3, 3, "mismatched tag"},
    {NCCL, "", DS_ERR_DATA, 1, 1, "no element found"},
    {NCCL, "<topology/>", DS_ERR_DATA, 1, 1, "this is a <topology>"},
    {NCCL, "<system>\n<cpu numaid='0'/></system>", DS_ERR_DATA, 1, 1, "no GPU"},
    {NCCL, "<system>\n <cpu numaid='zero'/></system>", DS_ERR_DATA, 2, 2,
     "numaid of <cpu> is \"zero\""},
    {NCCL, CPU("\n<pci busid='0000:1b:00.0'/>"), DS_ERR_DATA, 2, 1, "NCCL_TOPO_DUMP_FILE"},
    {NCCL, CPU("\n<pci class='0x03'/>"), DS_ERR_DATA, 2, 1, "no busid"},
    {NCCL, CPU("<pci class='0x03' busid='12'/>"), DS_ERR_DATA, 1, 37, "0000:07:00.0"},
    {NCCL, CPU("<pci class='0x03' busid='0000:01:00.0'/>"), DS_ERR_VALUE, 1, 37, "--device"},
    {NCCL, CPU("<pci class='0x03' busid='0000:01:00.0' link_speed='fast'/>"), DS_ERR_DATA, 1, 37,
     "link_speed is \"fast\""},
    {NCCL, CPU("<pci class='0x03' busid='0000:01:00.0' link_width='300'/>"), DS_ERR_DATA, 1, 37,
     "an integer from 0 to 255"},
    {NCCL, CPU(GPU("01", "80", "") "\n" GPU("01", "80", "")), DS_ERR_DATA, 2, 1, "on line 1"},
    {NCCL, CPU(GPU("01", "80", "\n<nvlink target='0000:02:00.0' tclass='0x03'/>")), DS_ERR_DATA, 2,
     1, "no other GPU"},
    {NCCL, CPU(GPU("01", "80", "\n<nvlink target='0000:01:00.0' tclass='0x03'/>")), DS_ERR_DATA, 2,
     1, "no other GPU"},
    {NCCL, CPU(GPU("01", "80", "\n<nvlink count='0' tclass='0x068000'/>")), DS_ERR_DATA, 2, 1,
     "count"},
    {NCCL, CPU(GPU("01", "90", "\n<c2c count='8'/>")), DS_ERR_DATA, 2, 1, "no bw"},
    {NCCL, CPU(GPU("01", "90", "<xgmi/>")), DS_ERR_UNSUPPORTED, 1, 124, "xgmi"},
    {NCCL, "<!DOCTYPE x [<!ENTITY a 'aaaa'>]>\n<system>&a;</system>", DS_ERR_DATA, 1, 25,
     "entity declarations"},
    {NCCL, "<!DOCTYPE x SYSTEM 'http://a/b'>\n<system>&a;</system>", DS_ERR_DATA, 2, 9,
     "DTDs are not read"},
    {NCCL, "<!DOCTYPE x [<!ENTITY a SYSTEM 'file:///etc/passwd'>]><system/>", DS_ERR_DATA, 1, 52,
     "entity declarations"},
    {SMI, "", DS_ERR_DATA, 1, 1, "there is no table"},
    {SMI, "hello\nworld\n", DS_ERR_DATA, 2, 1, "there is no table"},
    {SMI, "GPU0 GPU1\nGPU0 X PIX\n", DS_ERR_DATA, 2, 1, "ends before the row of GPU1"},
    {SMI, "GPU0 GPU1\nGPU0 X\n", DS_ERR_DATA, 2, 1, "1 cells, the header 2 devices"},
    {SMI, "GPU0 GPU1\nGPU1 PIX X\n", DS_ERR_DATA, 2, 1, "the row of GPU0 is expected"},
    {SMI, "GPU0 GPU1\nGPU0 X PIQ\n", DS_ERR_DATA, 2, 8, "'PIQ' is none of"},
    {SMI, "GPU0 GPU1\nGPU0 X NV0\n", DS_ERR_DATA, 2, 8, "'NV0' is none of"},
    {SMI, "GPU0 GPU1\nGPU0 X X\n", DS_ERR_DATA, 2, 8, "X stands for a device itself"},
    {SMI, "GPU0 GPU0\nGPU0 X PIX\nGPU0 PIX X\n", DS_ERR_DATA, 1, 6, "twice"},
    {SMI, "GPU0 GPU1\nGPU0 X PIX\nGPU1 PXB X\n", DS_ERR_DATA, 3, 6, "not what line 2 has"},
    {SMI, "GPU0 NIC0\nGPU0 X NV4\nNIC0 NV4 X\n", DS_ERR_DATA, 3, 6, "NIC0 is none"},
    {SMI, "GPU0 GPU1\nGPU0 X PIX\nGPU1 PIX X\n", DS_ERR_VALUE, 0, 0, "--device"},
    {SMI, "GPU0 CPU Affinity\nGPU0 X 0-3\n", DS_ERR_VALUE, 0, 0, "--device"},
    {SMI, "GPU0 GPU1 GPU2\nGPU0 X PIX SYS\nGPU1 PIX X PIX\nGPU2 SYS PIX X\n", DS_ERR_DATA, 4, 6,
     "no tree of PCIe switches"},
    {SMI, "GPU0 GPU1 GPU2\nGPU0 X NV12 NV12\nGPU1 NV12 X NV2\nGPU2 NV12 NV2 X\n", DS_ERR_DATA, 4,
     11, "are NV12"},
};

Test(import_topo, refusals) {
    ds_import_options none = {0};
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const refusal *r = &refusals[i];
        ds_buf out = {0};
        ds_error err = {0};
        ds_status status = r->importer(r->text, strlen(r->text), &none, &out, &err);
        cr_expect_eq(status, r->status, "%s: %s", r->text, err.message);
        cr_expect(strstr(err.message, r->message), "%s: %s", r->text, err.message);
        cr_expect(err.loc.line == r->line && err.loc.col == r->col, "%s: %u:%u", r->text,
                  err.loc.line, err.loc.col);
        cr_expect_eq(out.n, 0);
        ds_buf_deinit(&out);
    }
}

Test(import_topo, more_nvlinks_than_there_are) {
    ds_import_options v100 = {.device = "V100-SXM2-16GB"}, unknown = {.device = "MI300X-192GB"};
    const char *table = "GPU0 GPU1\nGPU0 X NV12\nGPU1 NV12 X\n";
    ds_buf out = {0};
    ds_error err = {0};
    cr_expect_eq(SMI(table, strlen(table), &v100, &out, &err), DS_ERR_DATA);
    cr_expect(strstr(err.message, "a V100-SXM2-16GB has 6 NVLinks"), "%s", err.message);
    cr_expect_eq(SMI(table, strlen(table), &unknown, &out, &err), DS_ERR_VALUE);
    cr_expect(strstr(err.message, "MI300X-192GB"), "%s", err.message);
    ds_setting batch = {"batch", "8"};
    ds_import_options set = {.settings = &batch, .n_settings = 1};
    cr_expect_eq(SMI(table, strlen(table), &set, &out, &err), DS_ERR_NAME);
    ds_buf_deinit(&out);
}

/* Bounds of the XML reader: depth, attributes, devices of a table. */
Test(import_topo, bounds) {
    ds_import_options none = {0};
    ds_buf text = {0}, out = {0};
    ds_error err = {0};
    for (int i = 0; i < 100000; i++) ds_buf_put(&text, "<a>");
    cr_expect_eq(NCCL(text.text, text.n, &none, &out, &err), DS_ERR_LIMIT);
    cr_expect_eq(err.loc.col, 64 * 3 + 1);
    text.n = 0;
    ds_buf_put(&text, "<system");
    for (int i = 0; i < 65; i++) ds_buf_printf(&text, " a%d=''", i);
    ds_buf_put(&text, "/>");
    cr_expect_eq(NCCL(text.text, text.n, &none, &out, &err), DS_ERR_LIMIT);
    text.n = 0;
    for (int i = 0; i < 257; i++) ds_buf_printf(&text, "GPU%d ", i);
    cr_expect_eq(SMI(text.text, text.n, &none, &out, &err), DS_ERR_LIMIT);
    ds_buf_deinit(&text);
    ds_buf_deinit(&out);
}
