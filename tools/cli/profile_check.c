/* distsim profile check TABLE.csv…: published times of single operations beside what a profile says
 * of them, an error a family. */
#include "ir/base/json.h"
#include "tools/cli/profile.h"
#include "tools/measured/measured.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Rows of one device and dtype that a table calls by the same op and direction. */
typedef struct family {
    const char *device, *dtype, *name;
    uint32_t refused;
    DS_VEC(double) errors; /* predicted/measured - 1 */
} family;

typedef struct checking {
    const profile_check_options *options;
    ds_profiles *profiles;
    ds_topo *on; /* NULL: machines of the library */
    measured_machines *machines;
    uint32_t lender;           /* a kind; UINT32_MAX: each kind has its own fits */
    DS_VEC(uint32_t) borrowed; /* by kind: 1 + the profile with the lender's fits; 0: not made */
    ds_arena arena;
    measured_rows rows;
    DS_VEC(family) families;
    DS_VEC(const char *) reasons; /* of refusals, each once */
    DS_VEC(uint32_t) counts;
} checking;

static family *family_of(checking *c, const measured_row *row) {
    ds_buf name = {0};
    measured_put_family(row, &name);
    for (uint32_t i = 0; i < c->families.n; i++) {
        family *f = &c->families.at[i];
        if (strcmp(f->device, row->device) == 0 && strcmp(f->dtype, row->dtype) == 0 &&
            strcmp(f->name, name.text) == 0) {
            ds_buf_deinit(&name);
            return f;
        }
    }
    family made = {
        .device = row->device, .dtype = row->dtype, .name = ds_arena_strdup(&c->arena, name.text)};
    ds_buf_deinit(&name);
    DS_PUSH(&c->arena, &c->families, made);
    return &c->families.at[c->families.n - 1];
}

static void count_reason(checking *c, const char *reason) {
    for (uint32_t i = 0; i < c->reasons.n; i++)
        if (strcmp(c->reasons.at[i], reason) == 0) {
            c->counts.at[i]++;
            return;
        }
    DS_PUSH(&c->arena, &c->reasons, reason);
    DS_PUSH(&c->arena, &c->counts, 1u);
}

static uint32_t borrowed_by(checking *c, uint32_t kind) {
    while (c->borrowed.n <= kind) DS_PUSH(&c->arena, &c->borrowed, 0u);
    uint32_t *made = &c->borrowed.at[kind];
    if (!*made) *made = 1 + ds_profiles_lend(c->profiles, kind, c->lender);
    return *made - 1;
}

/* The profile that prices a row; 0 with row->refused where there is none. */
static ds_status profile_of(checking *c, measured_row *row, uint32_t *profile, ds_error *err) {
    const char *name = c->options->profile;
    *profile = 0;
    if (c->lender != UINT32_MAX) {
        *profile = borrowed_by(c, row->kind);
        if (!*profile) row->refused = "the device of --as has no generic profile, or is the row's";
        return DS_OK;
    }
    if (!name || ds_profiles_means_generic(name)) {
        *profile = ds_profiles_generic(c->profiles, row->kind);
        if (!*profile) row->refused = "the device kind has no generic profile";
        return DS_OK;
    }
    DS_TRY(ds_profiles_find_profile(c->profiles, name, DS_NOWHERE, profile, err));
    if (*profile && ds_profile_kind(c->profiles, *profile) != row->kind)
        row->refused = "the profile is of another device kind";
    return DS_OK;
}

/* A row that the profile holds is no prediction: then curves alone count, which stand for all rows
 * of the shape's family. */
static ds_status price(const checking *c, uint32_t profile, measured_row *row, double *us,
                       ds_error *err) {
    bool exact;
    if (row->table == MEASURED_COLLECTIVES || row->table == MEASURED_DISPATCH)
        return measured_exchange_price(c->machines, profile, c->on, row, us, err);
    DS_TRY(measured_price(c->profiles, profile, DS_COST_MEASURED, row, us, &exact, err));
    if (!exact) return DS_OK;
    return measured_price(c->profiles, profile, DS_COST_FITTED, row, us, &exact, err);
}

static ds_status check_row(checking *c, measured_row *row, ds_error *err) {
    uint32_t profile;
    double us = 0;
    if (!row->refused) DS_TRY(profile_of(c, row, &profile, err));
    if (!row->refused) DS_TRY(price(c, profile, row, &us, err));
    family *f = family_of(c, row);
    if (row->refused) {
        count_reason(c, row->refused);
        f->refused++;
        return DS_OK;
    }
    double error = us / row->us - 1;
    DS_PUSH(&c->arena, &f->errors, error);
    return DS_OK;
}

static ds_status check_table(checking *c, const char *path, ds_error *err) {
    ds_csv csv;
    DS_TRY(ds_csv_read(path, &csv, err));
    uint32_t first = c->rows.n;
    ds_status status = measured_read(&csv, c->profiles, &c->arena, &c->rows, err);
    for (uint32_t i = first; status == DS_OK && i < c->rows.n; i++) {
        status = check_row(c, &c->rows.at[i], err);
        if (status == DS_OK) continue;
        ds_error why = *err;
        ds_error_set(err, status, DS_NOWHERE, "%s:%u: %s", path, c->rows.at[i].line, why.message);
    }
    ds_csv_deinit(&csv);
    return status;
}

/* ---- the result ---- */

static int by_name(const void *va, const void *vb) {
    const family *a = va, *b = vb;
    int c = strcmp(a->device, b->device);
    if (!c) c = strcmp(a->name, b->name);
    return c ? c : strcmp(a->dtype, b->dtype);
}

/* In per cent, to a hundredth. */
static void put_percent(ds_json *json, const char *key, double share, bool any) {
    ds_json_key(json, key);
    if (any)
        ds_json_decimal(json, (int64_t)llround(share * 1e4), 2);
    else
        ds_json_null(json);
}

static void put_json(const checking *c, ds_buf *out) {
    ds_json json;
    ds_json_init(&json, out, 2);
    ds_json_begin_array(&json);
    for (uint32_t i = 0; i < c->families.n; i++) {
        const family *f = &c->families.at[i];
        measured_errors e = measured_errors_of(f->errors.at, f->errors.n);
        ds_json_begin_object(&json);
        ds_json_key_string(&json, "device", f->device);
        ds_json_key_string(&json, "dtype", f->dtype);
        ds_json_key_string(&json, "family", f->name);
        ds_json_key_int(&json, "n", f->errors.n);
        ds_json_key_int(&json, "refused", f->refused);
        put_percent(&json, "median", e.median, f->errors.n);
        put_percent(&json, "p90", e.p90, f->errors.n);
        put_percent(&json, "bias", e.bias, f->errors.n);
        ds_json_end_object(&json);
    }
    ds_json_end_array(&json);
    ds_buf_putc(out, '\n');
}

static void put_text(const checking *c, ds_buf *out) {
    ds_buf_printf(out, "%-18s %-10s %-32s %7s %8s %9s %8s %8s\n", "device", "dtype", "family",
                  "rows", "refused", "median %", "p90 %", "bias %");
    for (uint32_t i = 0; i < c->families.n; i++) {
        const family *f = &c->families.at[i];
        ds_buf_printf(out, "%-18s %-10s %-32s %7u %8u", f->device, f->dtype, f->name, f->errors.n,
                      f->refused);
        measured_errors e = measured_errors_of(f->errors.at, f->errors.n);
        if (f->errors.n)
            ds_buf_printf(out, " %9.1f %8.1f %+8.1f", 100 * e.median, 100 * e.p90, 100 * e.bias);
        ds_buf_putc(out, '\n');
    }
    for (uint32_t i = 0; i < c->reasons.n; i++)
        ds_buf_printf(out, "%s%u refused: %s\n", i ? "" : "\n", c->counts.at[i], c->reasons.at[i]);
}

/* ---- the action ---- */

static ds_status open_topology(checking *c, cli_source *source, ds_error *err) {
    const ds_module *module = source->unit->modules.at[0];
    if (!module->topologies.n)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE, "%s has no topology", c->options->on);
    return ds_topo_build(&source->binding, module->topologies.at[module->topologies.n - 1], &c->on,
                         err);
}

static ds_status check_all(checking *c, ds_error *err) {
    for (uint32_t i = 0; i < c->options->n_tables; i++)
        DS_TRY(check_table(c, c->options->tables[i], err));
    if (c->families.n) qsort(c->families.at, c->families.n, sizeof *c->families.at, by_name);
    ds_buf out = {0};
    if (c->options->json)
        put_json(c, &out);
    else
        put_text(c, &out);
    ds_status status = cli_print(out.text, out.n, err);
    ds_buf_deinit(&out);
    return status;
}

int profile_check(const profile_check_options *options, cli_options *common) {
    checking c = {.options = options, .lender = UINT32_MAX};
    cli_source source;
    ds_error err = {0};
    ds_status status = DS_OK;
    ds_arena_init(&c.arena);
    if (options->on) {
        status = cli_open(options->on, common, &source);
        int code = ds_status_exit_code(status);
        if (status == DS_OK && (status = open_topology(&c, &source, &err)) != DS_OK)
            code = cli_fail(source.unit, &err);
        cli_close(&source);
        if (code) {
            ds_arena_deinit(&c.arena);
            return code;
        }
    }
    status = ds_profiles_load(common->profiles, &c.profiles, &err);
    if (status == DS_OK && options->as)
        status = ds_profiles_find_kind(c.profiles, options->as, DS_NOWHERE, &c.lender, &err);
    if (status == DS_OK) c.machines = measured_machines_new(c.profiles);
    if (status == DS_OK) status = check_all(&c, &err);
    measured_machines_free(c.machines);
    ds_topo_free(c.on);
    ds_profiles_free(c.profiles);
    ds_arena_deinit(&c.arena);
    return status == DS_OK ? 0 : cli_fail(NULL, &err);
}
