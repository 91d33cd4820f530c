/* Measured machines: bus bandwidth against size, of rows that no fit saw. */
#include "ir/base/csv.h"
#include "ir/lang/lang.h"
#include "ir/verify/verify.h"
#include "sim/coll/measured.h"
#include "tests/support/generate/cost_tree.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define FOLDER DS_SOURCE_DIR "/tests/data/collectives/"

static ds_profiles *profiles;
static ds_unit *unit;
static ds_topo *topo;
static ds_arena arena;

static void set_up(void) {
    profiles = cost_tree_load_committed();
    ds_arena_init(&arena);
}
static void tear_down(void) {
    ds_profiles_free(profiles);
    ds_arena_deinit(&arena);
}
TestSuite(collectives, .init = set_up, .fini = tear_down);

static void open_topology(const char *file) {
    ds_binding binding;
    ds_diags diags;
    ds_error err = {0};
    ds_diags_init(&diags);
    cr_assert_eq(ds_load_file(ds_arena_printf(&arena, FOLDER "%s", file), NULL, &unit, &err), DS_OK,
                 "%s", err.message);
    cr_assert_eq(ds_verify(unit, &diags), DS_OK);
    cr_assert_eq(ds_bind(unit, NULL, 0, &binding, &err), DS_OK, "%s", err.message);
    const ds_module *module = unit->modules.at[0];
    const ds_topology *last = module->topologies.at[module->topologies.n - 1];
    cr_assert_eq(ds_topo_build(&binding, last, &topo, &err), DS_OK, "%s", err.message);
    ds_diags_deinit(&diags);
}
static void close_topology(void) {
    ds_topo_free(topo);
    ds_unit_free(unit);
}

static double predicted_us(const ds_coll_request *q, const char *profile) {
    uint32_t id;
    ds_error err = {0};
    ds_coll_links links;
    ds_coll_cost terms;
    ds_coll_choice choice;
    cr_assert_eq(ds_profiles_find_profile(profiles, profile, DS_NOWHERE, &id, &err), DS_OK, "%s",
                 err.message);
    cr_assert_eq(ds_coll_links_of(topo, q, &links, &err), DS_OK, "%s", err.message);
    cr_assert_eq(ds_cost_collective(profiles, id,
                                    &(ds_coll_demand){ds_op_name(q->op), q->n, q->bytes, links},
                                    &terms, NULL, &err),
                 DS_OK, "%s", err.message);
    cr_assert_eq(ds_coll_choose(topo, q, &terms, &arena, &choice, &err), DS_OK, "%s", err.message);
    return (double)choice.ps / 1e6;
}

/* Mean |predicted/measured - 1| of bus bandwidth over the rows held back, of one group size or of
 * all (0). */
static double mean_error(const char *table, const char *profile, uint32_t group, uint32_t *n) {
    ds_csv csv;
    ds_measured *rows;
    ds_error err = {0};
    double sum = 0;
    cr_assert_eq(ds_csv_read(ds_arena_printf(&arena, FOLDER "%s", table), &csv, &err), DS_OK, "%s",
                 err.message);
    cr_assert_eq(ds_measured_read(&csv, ds_topo_n_devices(topo), &arena, &rows, &err), DS_OK, "%s",
                 err.message);
    *n = 0;
    for (uint32_t i = 0; i < csv.rows.n; i++) {
        if (!rows[i].held || (group && rows[i].request.n != group)) continue;
        sum += fabs(rows[i].us / predicted_us(&rows[i].request, profile) - 1);
        (*n)++;
    }
    ds_csv_deinit(&csv);
    return *n ? sum / *n : INFINITY;
}

Test(collectives, every_machine_is_within_a_tenth) {
    ds_csv list;
    ds_error err = {0};
    cr_assert_eq(ds_csv_read(FOLDER "machines.csv", &list, &err), DS_OK, "%s", err.message);
    for (uint32_t i = 0; i < list.rows.n; i++) {
        const char **cells = list.rows.at[i].cells; /* machine, topology, table, profile */
        uint32_t n;
        open_topology(cells[1]);
        double error = mean_error(cells[2], cells[3], 0, &n);
        cr_expect_leq(error, 0.10, "%s: %.1f %% over %u rows", cells[0], error * 100, n);
        cr_expect_geq(n, 10, "%s: %u rows", cells[0], n);
        close_topology();
    }
    cr_expect_geq(list.rows.n, 12);
    ds_csv_deinit(&list);
}

/* No row over 4 was fitted, on either machine. */
Test(collectives, groups_that_no_fit_saw) {
    uint32_t n;
    open_topology("../../../scenarios/topologies/dgx1-v100.dir");
    cr_expect_leq(mean_error("v100-dgx1.csv", "V100-SXM2-16GB", 4, &n), 0.10);
    cr_expect_eq(n, 90);
    close_topology();
    open_topology("../../../scenarios/topologies/dgx-a100.dir");
    cr_expect_leq(mean_error("galvatron-a100.csv", "A100-Galvatron", 4, &n), 0.10);
    cr_expect_eq(n, 22);
    close_topology();
}

/* vTrain's V100 server reaches 134.5 GB/s of bus bandwidth over 8 GPUs at 1 GiB (trace/v100/
 * AR_GPU8_1M_1024M_LUT, in no table here). What a topology alone gives: 6 rings of 25 GB/s. */
Test(collectives, eight_v100s_from_fits_of_fewer) {
    static const uint32_t devices[] = {0, 1, 2, 3, 4, 5, 6, 7};
    ds_measured row = {
        .request = {.op = DS_OP_ALL_REDUCE, .devices = devices, .n = 8, .bytes = INT64_C(1) << 30}};
    open_topology("../../../scenarios/topologies/dgx1-v100.dir");
    double us = predicted_us(&row.request, "V100-SXM2-16GB");
    cr_expect_float_eq(ds_measured_bus_gb_per_s(&row, us), 134.5, 0.05 * 134.5, "%g",
                       ds_measured_bus_gb_per_s(&row, us));
    close_topology();
}

/* Five GPUs of a DGX-1 close no ring of NVLinks; a tree along a chain carries S each way over one
 * link of 25 GB/s: 1.6 · 25 = 40 GB/s of bus bandwidth at full rate. Measured: 37.2. */
Test(collectives, five_of_a_dgx1_make_a_chain) {
    static const uint32_t devices[] = {0, 1, 2, 3, 4};
    ds_coll_request q = {
        .op = DS_OP_ALL_REDUCE, .devices = devices, .n = 5, .bytes = INT64_C(1) << 30};
    ds_coll_cost terms = {.efficiency_q32 = UINT64_C(1) << 32};
    ds_coll_choice choice;
    open_topology("../../../scenarios/topologies/dgx1-v100.dir");
    cr_assert_eq(ds_coll_choose(topo, &q, &terms, &arena, &choice, NULL), DS_OK);
    cr_expect_str_eq(choice.algorithm, "tree");
    /* 4 edges up and 4 down at 0.47 us, then S / 25 GB/s */
    cr_expect_float_eq((double)choice.ps, 8 * 470000 + (double)q.bytes * 40, 1e3, "%lld",
                       (long long)choice.ps);
    close_topology();
}

Test(collectives, tables_that_are_wrong_are_refused) {
    static const struct {
        const char *row, *message;
    } wrong[] = {{"all_reduce,2,8,1,fit,0-1-2\n", "devices '0-1-2'"},
                 {"all_reduce,2,8,1,fit,0 0\n", "0 twice"},
                 {"all_reduce,2,8,1,fit,0-2\n", "are 3, the group has 2"},
                 {"all_reduce,2,8,1,fit,0 9\n", "want indices below 8"},
                 {"all_reduce,2,8,1,seen,\n", "want fit, held or aux"},
                 {"all_reduce,9,8,1,fit,\n", "a group of 9: the topology has 8 devices"},
                 {"all_reduce,2,-8,1,fit,\n", "no number above 0"},
                 {"all_reduce,2,99999999999999999999,1,fit,\n", "beyond what is counted"},
                 {"matmul,2,8,1,fit,\n", "'matmul' is no collective"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ds_csv csv;
        ds_measured *rows;
        ds_error err = {0};
        const char *text = ds_arena_printf(
            &arena, "collective,group_size,size_bytes,time_us,split,devices\n%s", wrong[i].row);
        cr_assert_eq(ds_csv_parse("t", text, strlen(text), &csv, &err), DS_OK);
        cr_expect_eq(ds_measured_read(&csv, 8, &arena, &rows, &err), DS_ERR_DATA, "%s",
                     wrong[i].row);
        cr_expect_not_null(strstr(err.message, wrong[i].message), "%s", err.message);
        ds_csv_deinit(&csv);
    }
}
