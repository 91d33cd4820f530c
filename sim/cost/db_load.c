/* profiles.db → memory. Every table is read once, front to back, into arrays of the arena (db_merge.c
 * sorts the arrays). Row ids of devices and profiles become indices; a source becomes one line of
 * text. */
#include "sim/cost/profiles_internal.h"

#include "ir/base/file.h"
#include "ir/base/map.h"
#include "sim/cost/sqlite_internal.h"

#include <inttypes.h>
#include <math.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

typedef struct loader {
    sqlite3 *db;
    const char *path;
    const char *table; /* that is being read */
    ds_profiles *p;
    ds_arena *arena;
    /* rowid → index or text; row ids are 1 … n because the builder wrote them */
    DS_VEC(const char *) sources;
    uint32_t n_kinds, n_profiles;
    ds_error *err;
} loader;

static ds_status fail(loader *l, const char *what) {
    return ds_error_set(l->err, DS_ERR_DATA, DS_NOWHERE, "%s: %s", l->path, what);
}

static const char *text_at(loader *l, sqlite3_stmt *row, int column) {
    const char *text = ds_sqlite__text(row, column);
    return ds_arena_strdup(l->arena, text ? text : "");
}

/* Every cell of every row that is loaded, in order: what ds_profiles_hash tells. */
static void hash_row(loader *l, sqlite3_stmt *row) {
    uint64_t hash = l->p->content;
    for (int i = 0; i < sqlite3_column_count(row); i++) {
        int type = sqlite3_column_type(row, i);
        hash = ds_hash_mix(hash, (uint64_t)type);
        if (type == SQLITE_INTEGER) {
            hash = ds_hash_mix(hash, (uint64_t)sqlite3_column_int64(row, i));
        } else if (type == SQLITE_FLOAT) {
            double real = sqlite3_column_double(row, i);
            hash = ds_hash_mix(hash, ds_hash_bytes(&real, sizeof real));
        } else if (type == SQLITE_TEXT) {
            const char *text = ds_sqlite__text(row, i);
            hash = ds_hash_mix(hash, ds_hash_bytes(text, strlen(text)));
        }
    }
    l->p->content = hash;
}

/* A number of the n-th row is of its type and in its range. */
static ds_status check_number(loader *l, sqlite3_stmt *row, int column, const ds_cost_range *range,
                              uint32_t n) {
    int type = sqlite3_column_type(row, column);
    bool number = type == SQLITE_INTEGER || (type == SQLITE_FLOAT && !range->whole);
    if (type == SQLITE_NULL && range->optional) return DS_OK;
    if (number && ds_cost__is_in(range, sqlite3_column_double(row, column))) return DS_OK;
    const char *value = (const char *)sqlite3_column_text(row, column);
    return ds_error_set(l->err, DS_ERR_DATA, DS_NOWHERE,
                        "%s: table %s, row %u: %s is %s: it must be %s from %g to %g", l->path,
                        l->table, n, sqlite3_column_name(row, column), value ? value : "NULL",
                        range->whole ? "an integer" : "a number", range->least, range->most);
}

#define MOST_COLUMNS 32

/* Calls take(l, row) for each row of the query, once its numbers are known to be in their ranges.
 */
static ds_status each(loader *l, const char *table, const char *sql,
                      ds_status (*take)(loader *, sqlite3_stmt *)) {
    sqlite3_stmt *stmt = NULL;
    if (sqlite3_prepare_v2(l->db, sql, -1, &stmt, NULL) != SQLITE_OK)
        return fail(l, ds_sqlite__why(l->db));
    const ds_cost_range *ranges[MOST_COLUMNS];
    int n_columns = sqlite3_column_count(stmt), rc = SQLITE_DONE;
    for (int i = 0; i < n_columns; i++)
        ranges[i] = ds_cost__range(table, sqlite3_column_name(stmt, i));
    ds_status status = DS_OK;
    l->table = table;
    for (uint32_t n = 1; status == DS_OK && (rc = sqlite3_step(stmt)) == SQLITE_ROW; n++) {
        hash_row(l, stmt);
        for (int i = 0; i < n_columns && status == DS_OK; i++)
            if (ranges[i]) status = check_number(l, stmt, i, ranges[i], n);
        if (status == DS_OK) status = take(l, stmt);
    }
    if (status == DS_OK && rc != SQLITE_DONE) status = fail(l, ds_sqlite__why(l->db));
    sqlite3_finalize(stmt);
    return status;
}

/* A reference into a table of n rows, as an index from 0. */
static ds_status reference(loader *l, sqlite3_stmt *row, int column, const char *what, uint32_t n,
                           uint32_t *index) {
    int64_t id = sqlite3_column_int64(row, column);
    if (id < 1 || id > n)
        return ds_error_set(l->err, DS_ERR_DATA, DS_NOWHERE,
                            "%s: a row refers to %s %" PRId64 ", which does not exist", l->path,
                            what, id);
    *index = (uint32_t)(id - 1);
    return DS_OK;
}

static ds_status source_at(loader *l, sqlite3_stmt *row, int column, const char **out) {
    uint32_t index;
    if (sqlite3_column_type(row, column) == SQLITE_NULL) return fail(l, "a row without a source");
    DS_TRY(reference(l, row, column, "source", l->sources.n, &index));
    *out = l->sources.at[index];
    return DS_OK;
}

/* Profile ids keep 0 for "ideal", so here the row id itself is the index. */
static ds_status profile_at(loader *l, sqlite3_stmt *row, int column, uint32_t *profile) {
    DS_TRY(reference(l, row, column, "profile", l->p->profiles.n - 1, profile));
    ++*profile;
    return DS_OK;
}

static ds_status dtype_at(loader *l, sqlite3_stmt *row, int column, ds_dtype *dtype) {
    const char *name = ds_sqlite__text(row, column);
    if (name && ds_dtype_parse(name, dtype)) return DS_OK;
    return ds_error_set(l->err, DS_ERR_DATA, DS_NOWHERE, "%s: unknown dtype '%s'", l->path,
                        name ? name : "");
}

/* ---- tables ---- */

static ds_status take_version(loader *l, sqlite3_stmt *row) {
    const char *version = ds_sqlite__text(row, 0);
    if (version && strcmp(version, DS_PROFILES_VERSION) == 0) return DS_OK;
    return ds_error_set(l->err, DS_ERR_DATA, DS_NOWHERE,
                        "%s: schema version '%s', but this distsim reads version %s; build it "
                        "again from cost_profiles/",
                        l->path, version ? version : "", DS_PROFILES_VERSION);
}

static ds_status take_source(loader *l, sqlite3_stmt *row) {
    if (sqlite3_column_int64(row, 0) != (int64_t)l->sources.n + 1)
        return fail(l, "sources are not numbered 1, 2, 3 …");
    const char *revision = ds_sqlite__text(row, 3);
    const char *line =
        ds_arena_printf(l->arena, "%s: %s%s%s", text_at(l, row, 1), text_at(l, row, 2),
                        revision && *revision ? " @" : "", revision ? revision : "");
    DS_PUSH(l->arena, &l->sources, line);
    return DS_OK;
}

static const char *lower(ds_arena *arena, const char *text) {
    char *copy = ds_arena_strdup(arena, text);
    for (char *c = copy; *c; c++)
        if (*c >= 'A' && *c <= 'Z') *c = (char)(*c - 'A' + 'a');
    return copy;
}

static void add_kind_name(loader *l, const char *name, uint32_t kind) {
    ds_alias alias = {.name = name, .lower = lower(l->arena, name), .index = kind};
    DS_PUSH(l->arena, &l->p->kind_names, alias);
}

static ds_status take_device(loader *l, sqlite3_stmt *row) {
    ds_device_kind kind = {.name = text_at(l, row, 1),
                           .memory_bytes = sqlite3_column_int64(row, 2),
                           .memory_bytes_per_s = sqlite3_column_int64(row, 3)};
    if (sqlite3_column_int64(row, 0) != (int64_t)l->p->kinds.n + 1)
        return fail(l, "devices are not numbered 1, 2, 3 …");
    DS_TRY(source_at(l, row, 4, &kind.source));
    add_kind_name(l, kind.name, l->p->kinds.n);
    DS_PUSH(l->arena, &l->p->kinds, kind);
    return DS_OK;
}

static ds_status take_alias(loader *l, sqlite3_stmt *row) {
    uint32_t kind;
    DS_TRY(reference(l, row, 1, "device", l->p->kinds.n, &kind));
    add_kind_name(l, text_at(l, row, 0), kind);
    return DS_OK;
}

static ds_status take_peak(loader *l, sqlite3_stmt *row) {
    uint32_t kind;
    ds_dtype dtype;
    DS_TRY(reference(l, row, 0, "device", l->p->kinds.n, &kind));
    DS_TRY(dtype_at(l, row, 1, &dtype));
    l->p->kinds.at[kind].peak_flop_per_s[dtype] = (double)sqlite3_column_int64(row, 2);
    return DS_OK;
}

static ds_status take_memory(loader *l, sqlite3_stmt *row) {
    uint32_t kind;
    DS_TRY(reference(l, row, 0, "device", l->p->kinds.n, &kind));
    ds_reserved_memory *m = &l->p->kinds.at[kind].reserved;
    const struct {
        const char *what;
        int64_t *bytes;
    } places[] = {{"driver", &m->driver_bytes},  {"context", &m->context_bytes},
                  {"pair", &m->pair_bytes},      {"group", &m->group_bytes},
                  {"blas", &m->blas_bytes},      {"blaslt", &m->blaslt_bytes},
                  {"modules", &m->modules_bytes}};
    const char *what = text_at(l, row, 1);
    int64_t bytes = sqlite3_column_int64(row, 2);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (strcmp(what, places[i].what) == 0) *places[i].bytes = bytes;
    return DS_OK;
}

static ds_status take_clock(loader *l, sqlite3_stmt *row) {
    uint32_t kind;
    DS_TRY(reference(l, row, 0, "device", l->p->kinds.n, &kind));
    l->p->kinds.at[kind].clock = (ds_device_clock){.power_mw = sqlite3_column_int64(row, 1),
                                                   .sustained = sqlite3_column_double(row, 2),
                                                   .busy = sqlite3_column_double(row, 3)};
    return DS_OK;
}

static ds_status take_relative(loader *l, sqlite3_stmt *row) {
    uint32_t kind, relative;
    DS_TRY(reference(l, row, 0, "device", l->p->kinds.n, &kind));
    DS_TRY(reference(l, row, 1, "device", l->p->kinds.n, &relative));
    if (kind == relative) return fail(l, "a device that is its own relative");
    l->p->kinds.at[kind].lender = relative + 1;
    return DS_OK;
}

static ds_status take_part(loader *l, sqlite3_stmt *row) {
    const char *name = ds_sqlite__text(row, 0);
    for (int k = 0; name && k < DS_PART_COUNT; k++)
        if (strcmp(name, ds_step_part_name((ds_step_part)k)) == 0)
            l->p->parts[k] =
                (ds_part_error){sqlite3_column_double(row, 1), sqlite3_column_double(row, 2)};
    l->p->knows_parts = true;
    return DS_OK;
}

static double factor_at(sqlite3_stmt *row, int column) {
    bool stated = sqlite3_column_type(row, column) != SQLITE_NULL;
    return stated ? sqlite3_column_double(row, column) : 1;
}

static ds_status take_profile(loader *l, sqlite3_stmt *row) {
    ds_profile profile = {.name = text_at(l, row, 1),
                          .issue_ps = sqlite3_column_int64(row, 3),
                          .software = text_at(l, row, 4)};
    double more = sqlite3_column_double(row, 6); /* 0 for NULL */
    profile.slow_q32 = (uint64_t)llround((1 + more) * 0x1p32);
    profile.spread = (ds_cost_spread){sqlite3_column_double(row, 7), sqlite3_column_double(row, 8)};
    profile.is_default = sqlite3_column_int(row, 9) != 0;
    profile.is_generic = sqlite3_column_int(row, 14) != 0;
    profile.base_name = text_at(l, row, 15);
    profile.factors = (ds_cost_factors){factor_at(row, 16), factor_at(row, 17), factor_at(row, 18)};
    profile.framework = text_at(l, row, 10);
    profile.steps = (ds_profile_steps){.n = sqlite3_column_int64(row, 11),
                                       .error = sqlite3_column_double(row, 12),
                                       .fitted = strcmp(text_at(l, row, 13), "val") != 0};
    if (sqlite3_column_int64(row, 0) != (int64_t)l->p->profiles.n)
        return fail(l, "profiles are not numbered 1, 2, 3 …");
    if (strcasecmp(profile.name, "ideal") == 0)
        return fail(l, "a profile is named ideal, which stands for no profile");
    if (ds_profiles_means_generic(profile.name))
        return fail(l, "a profile is named generic, which stands for one of each device");
    profile.lower = lower(l->arena, profile.name);
    DS_TRY(reference(l, row, 2, "device", l->p->kinds.n, &profile.kind));
    DS_TRY(source_at(l, row, 5, &profile.source));
    for (uint32_t i = 1; i < l->p->profiles.n && profile.is_default; i++)
        if (l->p->profiles.at[i].is_default && l->p->profiles.at[i].kind == profile.kind)
            return fail(l, "a device has two default profiles");
    for (uint32_t i = 1; i < l->p->profiles.n && profile.is_generic; i++)
        if (l->p->profiles.at[i].is_generic && l->p->profiles.at[i].kind == profile.kind)
            return fail(l, "a device has two generic profiles");
    DS_PUSH(l->arena, &l->p->profiles, profile);
    return DS_OK;
}

static ds_status take_op(loader *l, sqlite3_stmt *row) {
    ds_op_row r = {.n = 1};
    DS_TRY(profile_at(l, row, 0, &r.key.profile));
    const char *class = ds_sqlite__text(row, 1);
    r.key.op = text_at(l, row, 2);
    DS_TRY(dtype_at(l, row, 3, &r.key.dtype));
    /* The columns of the query in the order of the schema; which of them are keys is the class's.
     */
    static const int attention[] = {8, 9, 10, 11, 12, 13}, memory[] = {15}, matrix[] = {4, 6, 7};
    const int *fixed = matrix;
    int n_fixed = 3, x = 5;
    if (class && strcmp(class, "attention") == 0)
        fixed = attention, n_fixed = 6, x = 4;
    else if (class && strcmp(class, "memory") == 0)
        fixed = memory, n_fixed = 1, x = 14;
    for (int i = 0; i < n_fixed; i++) r.key.fixed[i] = sqlite3_column_int64(row, fixed[i]);
    r.key.x = sqlite3_column_int64(row, x);
    r.ps = sqlite3_column_int64(row, 16);
    if (r.key.x <= 0) return fail(l, "an op row without a size");
    DS_TRY(source_at(l, row, 17, &r.source));
    DS_PUSH(l->arena, &l->p->ops, r);
    return DS_OK;
}

/* Of the 90th percentile of |predicted/measured - 1|: as far to both sides. */
static ds_cost_spread spread_of_error(sqlite3_stmt *row, int column) {
    double error = sqlite3_column_double(row, column);
    if (sqlite3_column_type(row, column) == SQLITE_NULL) return (ds_cost_spread){0};
    return (ds_cost_spread){1 / (1 + error), error < 0.9 ? 1 / (1 - error) : 10};
}

/* Of the 5th and 95th percentile of measured/predicted, in the column and the next; where these are
 * missing, of the 90th percentile of |error| in the third column. */
static ds_cost_spread spread_at(sqlite3_stmt *row, int column) {
    double low = sqlite3_column_double(row, column), high = sqlite3_column_double(row, column + 1);
    if (low > 0 && high >= low) return (ds_cost_spread){low, high};
    return spread_of_error(row, column + 2);
}

/* "grouped", and the scales after it. */
static void take_format(const char *text, ds_gemm_fit *f) {
    static const char word[] = "grouped";
    size_t n = sizeof word - 1;
    f->grouped = strncmp(text, word, n) == 0 && (!text[n] || text[n] == ' ');
    f->format = !f->grouped ? text : text[n] ? text + n + 1 : text + n;
}

static ds_status take_gemm(loader *l, sqlite3_stmt *row) {
    ds_gemm_fit f = {0};
    DS_TRY(profile_at(l, row, 0, &f.profile));
    DS_TRY(dtype_at(l, row, 1, &f.dtype));
    f.model = (ds_gemm_model){.processors = sqlite3_column_int64(row, 2),
                              .flop_per_s = sqlite3_column_double(row, 3),
                              .bytes_per_s = sqlite3_column_double(row, 4),
                              .e_max = sqlite3_column_double(row, 5),
                              .tail = sqlite3_column_double(row, 6),
                              .prologue = sqlite3_column_double(row, 7),
                              .port = sqlite3_column_double(row, 8),
                              .e_memory = sqlite3_column_double(row, 9),
                              .overlap = sqlite3_column_double(row, 10),
                              .launch_s = sqlite3_column_double(row, 11) * 1e-6,
                              .resident = sqlite3_column_int64(row, 19),
                              .lone = sqlite3_column_double(row, 20),
                              .cut_s = sqlite3_column_double(row, 21) * 1e-6,
                              .sag = sqlite3_column_double(row, 22),
                              .sag_s = sqlite3_column_double(row, 23) * 1e-6};
    take_format(text_at(l, row, 24), &f);
    f.convert_s = sqlite3_column_double(row, 25) * 1e-6;
    f.convert_bytes_per_s = sqlite3_column_double(row, 26) * 1e9;
    f.w_min = sqlite3_column_double(row, 12);
    f.w_max = sqlite3_column_double(row, 13);
    f.basis = text_at(l, row, 14);
    DS_TRY(source_at(l, row, 15, &f.source));
    f.spread = spread_at(row, 16);
    if (f.w_max < f.w_min) return fail(l, "a gemm fit that ends before it begins");
    DS_PUSH(l->arena, &l->p->gemms, f);
    return DS_OK;
}

static ds_status take_attention(loader *l, sqlite3_stmt *row) {
    ds_attention_fit f = {.kernel = text_at(l, row, 1),
                          .dim_least = sqlite3_column_int64(row, 4),
                          .dim_most = sqlite3_column_int64(row, 5),
                          .is_default = sqlite3_column_int64(row, 6) != 0};
    DS_TRY(profile_at(l, row, 0, &f.profile));
    f.backward = strcmp(text_at(l, row, 2), "bwd") == 0;
    DS_TRY(dtype_at(l, row, 3, &f.dtype));
    f.model = (ds_attention_model){.processors = sqlite3_column_int64(row, 7),
                                   .flop_per_s = sqlite3_column_double(row, 8),
                                   .bytes_per_s = sqlite3_column_double(row, 9),
                                   .block_rows = sqlite3_column_int64(row, 10),
                                   .head_step = sqlite3_column_int64(row, 11),
                                   .skips_window = sqlite3_column_int64(row, 12) != 0,
                                   .e_max = sqlite3_column_double(row, 13),
                                   .score = sqlite3_column_double(row, 14),
                                   .prologue = sqlite3_column_double(row, 15),
                                   .tail = sqlite3_column_double(row, 16),
                                   .e_memory = sqlite3_column_double(row, 17),
                                   .overlap = sqlite3_column_double(row, 18),
                                   .launch_s = sqlite3_column_double(row, 19) * 1e-6,
                                   .token_s = sqlite3_column_double(row, 20) * 1e-9};
    f.w_min = sqlite3_column_double(row, 21);
    f.w_max = sqlite3_column_double(row, 22);
    f.basis = text_at(l, row, 23);
    DS_TRY(source_at(l, row, 24, &f.source));
    f.spread = spread_at(row, 25);
    if (f.w_max < f.w_min) return fail(l, "an attention fit that ends before it begins");
    DS_PUSH(l->arena, &l->p->attentions, f);
    return DS_OK;
}

static ds_status take_fit(loader *l, sqlite3_stmt *row) {
    ds_fit f = {.op = text_at(l, row, 1), .dtype = DS_ANY_DTYPE};
    DS_TRY(profile_at(l, row, 0, &f.profile));
    const char *dtype_name = ds_sqlite__text(row, 2);
    if (!dtype_name || strcmp(dtype_name, "*") != 0) {
        ds_dtype dtype;
        DS_TRY(dtype_at(l, row, 2, &dtype));
        f.dtype = (int32_t)dtype;
    }
    const char *resource = ds_sqlite__text(row, 3);
    f.flop = resource && strcmp(resource, "flop") == 0;
    f.reference_per_s = (double)sqlite3_column_int64(row, 4);
    f.e_max = sqlite3_column_double(row, 5);
    f.w_half = sqlite3_column_double(row, 6);
    f.w_min = sqlite3_column_double(row, 7);
    f.w_max = sqlite3_column_double(row, 8);
    f.floor_ps = sqlite3_column_int64(row, 11); /* 0 for NULL */
    f.row_ps = sqlite3_column_int64(row, 15);
    const char *kernels = ds_sqlite__text(row, 16);
    if (kernels && *kernels && !ds_kernel_stack_parse(kernels, &f.kernels))
        return fail(l, "an efficiency fit of unknown kernels");
    f.spread = spread_at(row, 12);
    if (f.w_max < f.w_min) return fail(l, "an efficiency fit that ends before it begins");
    f.basis = text_at(l, row, 9);
    DS_TRY(source_at(l, row, 10, &f.source));
    ds_profile *of = &l->p->profiles.at[f.profile];
    if (!of->end_fit) of->first_fit = l->p->fits.n;
    DS_PUSH(l->arena, &l->p->fits, f);
    of->end_fit = l->p->fits.n;
    return DS_OK;
}

static ds_status take_coll_row(loader *l, sqlite3_stmt *row) {
    ds_coll_row r = {.collective = text_at(l, row, 1),
                     .group = (uint32_t)sqlite3_column_int64(row, 2),
                     .bytes = sqlite3_column_int64(row, 3),
                     .ps = sqlite3_column_int64(row, 4),
                     .n = 1};
    DS_TRY(profile_at(l, row, 0, &r.profile));
    DS_TRY(source_at(l, row, 5, &r.source));
    DS_PUSH(l->arena, &l->p->coll_rows, r);
    return DS_OK;
}

static ds_status take_coll_fit(loader *l, sqlite3_stmt *row) {
    ds_coll_fit f = {.collective = text_at(l, row, 1),
                     .group = (uint32_t)sqlite3_column_int64(row, 2),
                     .capacity_bytes_per_s = sqlite3_column_int64(row, 3),
                     .alpha_ps = sqlite3_column_int64(row, 4),
                     .launch_ps = sqlite3_column_int64(row, 5),
                     .step_ps = sqlite3_column_int64(row, 6),
                     .e_max = sqlite3_column_double(row, 7),
                     .s_half = sqlite3_column_double(row, 8),
                     .holds_compute = sqlite3_column_int(row, 9) != 0,
                     .basis = text_at(l, row, 10)};
    DS_TRY(profile_at(l, row, 0, &f.profile));
    DS_TRY(source_at(l, row, 11, &f.source));
    f.spread = spread_of_error(row, 12);
    f.n = sqlite3_column_int64(row, 13);
    DS_PUSH(l->arena, &l->p->coll_fits, f);
    return DS_OK;
}

static ds_status take_protocol(loader *l, sqlite3_stmt *row) {
    ds_protocol f = {.collective = text_at(l, row, 1),
                     .link_bytes_per_s = sqlite3_column_int64(row, 2),
                     .name = text_at(l, row, 3),
                     .launch_ps = sqlite3_column_int64(row, 4),
                     .step_ps = sqlite3_column_int64(row, 5),
                     .copy_bytes_per_s = sqlite3_column_int64(row, 6),
                     .e = sqlite3_column_double(row, 7),
                     .least_bytes = sqlite3_column_int64(row, 8),
                     .most_bytes = sqlite3_column_int64(row, 9),
                     .basis = text_at(l, row, 10)};
    DS_TRY(profile_at(l, row, 0, &f.profile));
    DS_TRY(source_at(l, row, 11, &f.source));
    f.spread = spread_of_error(row, 12);
    for (int k = 0; k < DS_SEEN_COUNT; k++)
        f.seen[k] =
            (ds_seen){sqlite3_column_int64(row, 13 + 2 * k), sqlite3_column_int64(row, 14 + 2 * k)};
    f.least_group = sqlite3_column_int64(row, 21);
    f.most_group = sqlite3_column_int64(row, 22);
    DS_PUSH(l->arena, &l->p->protocols, f);
    return DS_OK;
}

/* ---- opening ---- */

static ds_status load_tables(loader *l) {
    DS_TRY(each(l, "meta",
                "SELECT coalesce((SELECT value FROM meta WHERE key = 'schema_version'), '')",
                take_version));
    DS_TRY(
        each(l, "source", "SELECT id, key, place, revision FROM source ORDER BY id", take_source));
    DS_TRY(each(l, "device",
                "SELECT id, name, memory_bytes, memory_bytes_per_s, source FROM device ORDER BY id",
                take_device));
    DS_TRY(each(l, "device_alias", "SELECT alias, device FROM device_alias ORDER BY alias",
                take_alias));
    DS_TRY(each(l, "device_peak", "SELECT device, dtype, flop_per_s FROM device_peak", take_peak));
    DS_TRY(each(l, "device_memory", "SELECT device, what, bytes FROM device_memory", take_memory));
    DS_TRY(each(l, "device_clock", "SELECT device, power_mw, sustained, busy FROM device_clock",
                take_clock));
    DS_TRY(
        each(l, "device_relative", "SELECT device, relative FROM device_relative", take_relative));
    DS_TRY(each(l, "part_error", "SELECT part, bias, error FROM part_error", take_part));
    DS_TRY(each(l, "profile",
                "SELECT id, name, device, issue_ps, software, source, interference, ratio_p05,"
                " ratio_p95, is_default, framework, steps, step_error, steps_split, is_generic,"
                " base, compute_factor, communication_factor, host_factor"
                " FROM profile ORDER BY id",
                take_profile));
    DS_TRY(each(l, "op_profile",
                "SELECT profile, class, op, dtype, batch, m, n, k, heads, kv_heads, seq_q, seq_kv,"
                " head_dim, causal, tokens, width, time_ps, source FROM op_profile",
                take_op));
    DS_TRY(each(l, "efficiency_fit",
                "SELECT profile, op, dtype, resource, reference_per_s, e_max, w_half, w_min, w_max,"
                " basis, source, floor_ps, ratio_p05, ratio_p95, p90_error, row_ps, kernels"
                " FROM efficiency_fit",
                take_fit));
    DS_TRY(each(l, "gemm_fit",
                "SELECT profile, dtype, processors, flop_per_s, bytes_per_s, e_max, tail, prologue,"
                " port, e_memory, overlap, launch_us, w_min, w_max, basis, source, ratio_p05,"
                " ratio_p95, p90_error, resident, lone, cut_us, sag, sag_us, format, convert_us,"
                " convert_gb_per_s FROM gemm_fit ORDER BY rowid",
                take_gemm));
    DS_TRY(each(l, "attention_fit",
                "SELECT profile, kernel, direction, dtype, dim_least, dim_most, is_default,"
                " processors, flop_per_s, bytes_per_s, block_rows, head_step, skips_window, e_max,"
                " score, prologue, tail, e_memory, overlap, launch_us, token_ns, w_min, w_max,"
                " basis, source, ratio_p05, ratio_p95, p90_error FROM attention_fit",
                take_attention));
    DS_TRY(each(l, "collective_profile",
                "SELECT profile, collective, group_size, size_bytes, time_ps, source"
                " FROM collective_profile",
                take_coll_row));
    DS_TRY(each(l, "collective_fit",
                "SELECT profile, collective, group_size, capacity_bytes_per_s, alpha_ps, launch_ps,"
                " step_ps, e_max, s_half, holds_compute, basis, source, p90_error, n"
                " FROM collective_fit",
                take_coll_fit));
    return each(l, "collective_protocol",
                "SELECT profile, collective, link_bytes_per_s, protocol, launch_ps, step_ps,"
                " copy_bytes_per_s, e, least_bytes, most_bytes, basis, source, p90_error,"
                " link_least_bytes_per_s, link_most_bytes_per_s, nodes_least, nodes_most,"
                " group_least, group_most, size_least, size_most, least_group, most_group"
                " FROM collective_protocol",
                take_protocol);
}

#ifndef DS_SHARE_DIR
#define DS_SHARE_DIR "."
#endif

/* Where the database is when nobody names it: beside the program in a build tree, in the share
 * folder of the program's own installation, or in the one that was configured. */
void ds_profiles_default_path(ds_buf *out) {
    static const char *const near[] = {"profiles.db", "../share/distsim/profiles.db"};
    const char *named = getenv("DISTSIM_PROFILES");
    if (named && *named) {
        ds_buf_put(out, named);
        return;
    }
    for (size_t i = 0; i < sizeof near / sizeof *near; i++) {
        if (ds_file_near_program(near[i], out) && access(out->text, R_OK) == 0) return;
        out->n = 0;
    }
    ds_buf_put(out, DS_SHARE_DIR "/profiles.db");
}

static ds_status load_file(loader *l) {
    if (access(l->path, R_OK) != 0)
        return ds_error_set(l->err, DS_ERR_IO, DS_NOWHERE,
                            "cannot read the cost database %s (set DISTSIM_PROFILES to another)",
                            l->path);
    DS_TRY(ds_sqlite__open(l->path, &l->db, l->err));
    ds_status status = load_tables(l);
    sqlite3_close(l->db);
    return status;
}

ds_status ds_profiles_load(const char *path, ds_profiles **out, ds_error *err) {
    ds_profiles *p = ds_xcalloc(1, sizeof *p);
    ds_arena_init(&p->arena);
    *out = NULL;
    ds_buf found = {0};
    if (!path) ds_profiles_default_path(&found);
    loader l = {.path = path ? path : found.text, .p = p, .arena = &p->arena, .err = err};
    ds_profile none = {.name = "ideal",
                       .lower = "ideal",
                       .kind = UINT32_MAX,
                       .slow_q32 = UINT64_C(1) << 32,
                       .software = "",
                       .framework = "",
                       .base_name = "",
                       .factors = {1, 1, 1},
                       .source = ""};
    DS_PUSH(&p->arena, &p->profiles, none);
    ds_status status = load_file(&l);
    ds_buf_deinit(&found);
    if (status != DS_OK) {
        ds_profiles_free(p);
        return status;
    }
    ds_cost__merge(p);
    ds_cost__borrow(p);
    status = ds_cost__find_bases(p, err);
    if (status != DS_OK) {
        ds_profiles_free(p);
        return status;
    }
    *out = p;
    return DS_OK;
}

uint64_t ds_profiles_hash(const ds_profiles *profiles) {
    uint64_t hash =
        ds_hash_mix(profiles->content, profiles->uses_defaults | profiles->without << 1);
    for (int i = 0; i < DS_N_RESOURCES && profiles->rates_ppb; i++)
        hash = ds_hash_mix(hash, (uint64_t)profiles->rates_ppb[i]);
    return hash;
}

void ds_profiles_free(ds_profiles *profiles) {
    if (!profiles) return;
    ds_arena_deinit(&profiles->arena);
    free(profiles);
}
