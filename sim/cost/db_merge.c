/* The rows of a database as look-ups want them: sorted, duplicates as their median, and a fit of each
 * collective that has rows alone. */
#include "sim/cost/profiles_internal.h"

#include "ir/base/units.h"

#include <stdlib.h>
#include <string.h>

int ds_op_key_compare_fixed(const ds_op_key *a, const ds_op_key *b) {
    if (a->profile != b->profile) return a->profile < b->profile ? -1 : 1;
    int c = strcmp(a->op, b->op);
    if (c) return c;
    if (a->dtype != b->dtype) return a->dtype < b->dtype ? -1 : 1;
    for (int i = 0; i < DS_OP_KEY_FIXED; i++)
        if (a->fixed[i] != b->fixed[i]) return a->fixed[i] < b->fixed[i] ? -1 : 1;
    return 0;
}

int ds_op_key_compare(const ds_op_key *a, const ds_op_key *b) {
    int c = ds_op_key_compare_fixed(a, b);
    return c ? c : (a->x > b->x) - (a->x < b->x);
}

static int by_op_key(const void *va, const void *vb) {
    const ds_op_row *a = va, *b = vb;
    int c = ds_op_key_compare(&a->key, &b->key);
    if (c) return c;
    if (a->ps != b->ps) return a->ps < b->ps ? -1 : 1;
    return strcmp(a->source, b->source);
}

static int compare_coll(const ds_coll_row *a, const ds_coll_row *b) {
    if (a->profile != b->profile) return a->profile < b->profile ? -1 : 1;
    int c = strcmp(a->collective, b->collective);
    if (c) return c;
    if (a->group != b->group) return a->group < b->group ? -1 : 1;
    return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static int by_coll_key(const void *va, const void *vb) {
    const ds_coll_row *a = va, *b = vb;
    int c = compare_coll(a, b);
    if (c) return c;
    if (a->ps != b->ps) return a->ps < b->ps ? -1 : 1;
    return strcmp(a->source, b->source);
}

static int by_coll_fit(const void *va, const void *vb) {
    const ds_coll_fit *a = va, *b = vb;
    if (a->profile != b->profile) return a->profile < b->profile ? -1 : 1;
    int c = strcmp(a->collective, b->collective);
    return c ? c : (a->group > b->group) - (a->group < b->group);
}

static int by_protocol(const void *va, const void *vb) {
    const ds_protocol *a = va, *b = vb;
    if (a->profile != b->profile) return a->profile < b->profile ? -1 : 1;
    int c = strcmp(a->collective, b->collective);
    if (c) return c;
    if (a->link_bytes_per_s != b->link_bytes_per_s)
        return a->link_bytes_per_s < b->link_bytes_per_s ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* Of a sorted run of n times: the middle one, or the mean of the middle two rounded up to a ps. */
#define MEDIAN_PS(run, n)                                                                          \
    ((n) % 2 ? (run)[(n) / 2].ps                                                                   \
             : (run)[(n) / 2 - 1].ps + ((run)[(n) / 2].ps - (run)[(n) / 2 - 1].ps + 1) / 2)

static void merge_ops(ds_profiles *p) {
    ds_op_row *at = p->ops.at;
    uint32_t kept = 0;
    if (p->ops.n) qsort(at, p->ops.n, sizeof *at, by_op_key);
    for (uint32_t i = 0, n; i < p->ops.n; i += n) {
        for (n = 1; i + n < p->ops.n && ds_op_key_compare(&at[i].key, &at[i + n].key) == 0; n++) {
        }
        ds_op_row row = at[i + (n - 1) / 2];
        row.ps = MEDIAN_PS(&at[i], n);
        row.n = n;
        at[kept++] = row;
    }
    p->ops.n = kept;
}

static bool has_coll_fit(const ds_profiles *p, uint32_t n_fits, const ds_coll_row *row) {
    for (uint32_t i = 0; i < n_fits; i++) {
        const ds_coll_fit *f = &p->coll_fits.at[i];
        if (f->profile == row->profile && f->group == row->group &&
            strcmp(f->collective, row->collective) == 0)
            return true;
    }
    return false;
}

/* Of all rows of the profile without a fit, the highest rate on the wire: their links have at least
 * that. */
static int64_t highest_rate(const ds_profiles *p, uint32_t n_fits, uint32_t profile) {
    double highest = 1;
    for (uint32_t i = 0; i < p->coll_rows.n; i++) {
        const ds_coll_row *row = &p->coll_rows.at[i];
        if (row->profile != profile || has_coll_fit(p, n_fits, row)) continue;
        double wire =
            ds_cost__wire_factor(row->collective, (double)row->group) * (double)row->bytes;
        double rate = wire / (double)row->ps * (double)DS_PS_PER_S;
        if (rate > highest) highest = rate;
    }
    return highest < (double)INT64_MAX / 4 ? (int64_t)highest : INT64_MAX / 4;
}

/* Every collective and group with rows gets a fit, so that they count. */
static void add_missing_fits(ds_profiles *p) {
    uint32_t n_fits = p->coll_fits.n;
    for (uint32_t i = 0; i < p->coll_rows.n; i++) {
        const ds_coll_row *row = &p->coll_rows.at[i];
        if (has_coll_fit(p, p->coll_fits.n, row)) continue;
        ds_coll_fit f = {.profile = row->profile,
                         .collective = row->collective,
                         .group = row->group,
                         .capacity_bytes_per_s = highest_rate(p, n_fits, row->profile),
                         .e_max = 1,
                         .no_link = true,
                         .basis = "rows of collectives.csv, taken as measured on the links in use",
                         .source = row->source};
        DS_PUSH(&p->arena, &p->coll_fits, f);
    }
}

static void merge_collectives(ds_profiles *p) {
    ds_coll_row *at = p->coll_rows.at;
    uint32_t kept = 0;
    if (p->coll_rows.n) qsort(at, p->coll_rows.n, sizeof *at, by_coll_key);
    for (uint32_t i = 0, n; i < p->coll_rows.n; i += n) {
        for (n = 1; i + n < p->coll_rows.n && compare_coll(&at[i], &at[i + n]) == 0; n++) {
        }
        ds_coll_row row = at[i + (n - 1) / 2];
        row.ps = MEDIAN_PS(&at[i], n);
        row.n = n;
        at[kept++] = row;
    }
    p->coll_rows.n = kept;
    add_missing_fits(p);
    if (p->coll_fits.n)
        qsort(p->coll_fits.at, p->coll_fits.n, sizeof *p->coll_fits.at, by_coll_fit);
    if (p->protocols.n)
        qsort(p->protocols.at, p->protocols.n, sizeof *p->protocols.at, by_protocol);
}

void ds_cost__merge(ds_profiles *p) {
    merge_ops(p);
    merge_collectives(p);
}
