/* The rows of one device in a table of collectives of many devices: columns device, library, nodes
 * beside those of a table of one machine. */
#include "sim/topo/topo.h"
#include "tools/fit/collectives_internal.h"

#include <stdlib.h>
#include <string.h>

static const char *cell(const ds_csv *csv, uint32_t row, const char *column) {
    return csv->rows.at[row].cells[ds_csv_find(csv, column)];
}

/* Devices of the island of device 0, which are the first ones. */
static uint32_t island_size(ds_topo *topo) {
    uint32_t n = 0, island = ds_topo_island(topo, 0);
    while (n < ds_topo_n_devices(topo) && ds_topo_island(topo, n) == island) n++;
    return n;
}

/* Kernels of inference servers stand in such tables beside NCCL and RCCL. */
static bool is_wanted(const fit_coll *f, const ds_profiles *profiles, const ds_csv *csv,
                      uint32_t row, uint32_t kind) {
    uint32_t of;
    ds_error unsaid;
    if (ds_profiles_find_kind(profiles, cell(csv, row, "device"), DS_NOWHERE, &of, &unsaid) !=
            DS_OK ||
        of != kind)
        return false;
    return strstr(cell(csv, row, "library"), "CCL") &&
           strtoul(cell(csv, row, "group_size"), NULL, 10) <= island_size(f->topo);
}

static void put_row(const ds_csv *csv, uint32_t row, ds_buf *out) {
    const char *name = cell(csv, row, "collective"), *split = cell(csv, row, "split");
    const char *cells[] = {strcmp(name, "alltoall") == 0 ? "all_to_all" : name,
                           cell(csv, row, "group_size"), cell(csv, row, "size_bytes"),
                           cell(csv, row, "time_us"), strcmp(split, "calib") == 0 ? "fit" : "held"};
    ds_csv_put_row(out, cells, sizeof cells / sizeof *cells);
}

ds_status fit__of_device(const fit_coll *f, const char *folder, ds_csv *csv, ds_error *err) {
    static const char *const needed[] = {"device",     "library", "collective", "group_size",
                                         "size_bytes", "time_us", "split"};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (ds_csv_find(csv, needed[i]) == DS_CSV_NO_COLUMN) return DS_OK;
    ds_profiles *profiles;
    fit_profile of;
    ds_buf text = {0};
    ds_csv rows;
    DS_TRY(ds_profiles_load(NULL, &profiles, err));
    ds_status status = fit_profile_read(profiles, folder, &of, err);
    ds_buf_put(&text, "collective,group_size,size_bytes,time_us,split\n");
    for (uint32_t i = 0; status == DS_OK && i < csv->rows.n; i++)
        if (is_wanted(f, profiles, csv, i, of.kind)) put_row(csv, i, &text);
    if (status == DS_OK) status = ds_csv_parse(csv->file, text.text, text.n, &rows, err);
    ds_buf_deinit(&text);
    ds_profiles_free(profiles);
    if (status != DS_OK) return status;
    ds_csv_deinit(csv);
    *csv = rows;
    return DS_OK;
}
