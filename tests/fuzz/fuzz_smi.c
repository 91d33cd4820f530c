/* Tables as `nvidia-smi topo -m` prints them, made by the bytes: the first two say how many GPUs
 * and NICs, the next ones the distance of each pair, so that the table is symmetric and often a
 * tree; what is left edits the text. What is taken is checked as fuzz_topo does it. */
#include "ir/import/import.h"
#include "tests/fuzz/support.h"

enum { MOST_GPUS = 9, MOST_NICS = 4, MOST = MOST_GPUS + MOST_NICS };

static void put_name(uint32_t i, uint32_t gpus, ds_buf *out) {
    ds_buf_printf(out, "%s%u", i < gpus ? "GPU" : "NIC", i < gpus ? i : i - gpus);
}

/* One distance for the pairs of a rank of the tree: mostly the same for all of them. */
static const char *distance(fuzz_bytes *bytes, bool gpus, uint32_t a, uint32_t b) {
    static const char *const words[] = {"PIX", "PXB",  "PHB",  "NODE", "SYS",
                                        "NV1", "NV12", "NV18", "NV4",  "SOC"};
    static const char *const tree[] = {"PIX", "PXB", "NODE", "SYS"};
    uint8_t how = fuzz_byte(bytes);
    if (how < 128) {
        uint32_t up = 0;
        for (; a / 2 != b / 2 && up < 3; up++) a /= 2, b /= 2;
        return gpus && how >= 64 ? "NV12" : tree[up];
    }
    return words[how % FUZZ_COUNT(words)];
}

static void put_table(fuzz_bytes *bytes, ds_buf *out) {
    const char *words[MOST][MOST];
    uint32_t gpus = 1 + fuzz_below(bytes, MOST_GPUS), nics = fuzz_below(bytes, MOST_NICS + 1);
    uint8_t how = fuzz_byte(bytes);
    uint32_t n = gpus + nics;
    for (uint32_t a = 0; a < n; a++)
        for (uint32_t b = 0; b <= a; b++)
            words[a][b] = words[b][a] = a == b ? " X " : distance(bytes, a < gpus, a, b);
    for (uint32_t i = 0; i < n; i++) {
        ds_buf_putc(out, '\t');
        put_name(i, gpus, out);
    }
    ds_buf_put(out, how & 1 ? "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n" : "\n");
    for (uint32_t a = 0; a < n; a++) {
        put_name(a, gpus, out);
        for (uint32_t b = 0; b < n; b++) ds_buf_printf(out, "\t%s", words[a][b]);
        if (how & 1 && a < gpus) ds_buf_printf(out, "\t0-55,112-167\t%u\tN/A", how & 2 ? a / 4 : 0);
        ds_buf_putc(out, '\n');
    }
    if (how & 4) ds_buf_put(out, "\nLegend:\n\n  X    = Self\n\nNIC Legend:\n\n  NIC0: mlx5_0\n");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_bytes bytes = {data, size};
    ds_buf text = {0}, out = {0};
    ds_error err = {0};
    uint8_t how = fuzz_byte(&bytes);
    ds_import_options options = {.source = "fuzz",
                                 .device = how & 1 ? NULL : "A100-SXM4-80GB",
                                 .topology = how & 2 ? "other" : NULL};
    put_table(&bytes, &text);
    fuzz_edit(&bytes, "\t", &text);
    if (ds_import_nvidia_smi(text.text, text.n, &options, &out, &err) == DS_OK)
        fuzz_check_topology(&out);
    ds_buf_deinit(&text);
    ds_buf_deinit(&out);
    return 0;
}
