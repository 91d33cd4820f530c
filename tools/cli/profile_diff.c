/* distsim profile diff A B: what B says otherwise than A.
 *
 * Measured rows and collectives that both have are compared by their times, an op or collective a
 * line: how many, and the quantiles of b/a. Of fits, each constant that differs is printed. What
 * only one of them has is counted. */
#include "ir/base/arena.h"
#include "ir/base/map.h"
#include "tools/cli/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct pair {
    const char *file;
    ds_csv a, b;
    bool has_a, has_b;
} pair;

static const char *cell(const ds_csv *csv, uint32_t row, const char *column) {
    uint32_t at = ds_csv_find(csv, column);
    return at == DS_CSV_NO_COLUMN ? "" : csv->rows.at[row].cells[at];
}

/* What names a row of each file, up to NULL; and the column whose value is compared, NULL: all. */
typedef struct keys {
    const char *file, *value;
    const char *columns[16];
} keys;

static const keys all_keys[] = {
    {"profile.csv", NULL, {NULL}},
    {"ops.csv",
     "time_us",
     {"op", "dtype", "class", "batch", "m", "n", "k", "heads", "kv_heads", "seq_q", "seq_kv",
      "head_dim", "causal", "tokens", "width", NULL}},
    {"efficiency.csv", NULL, {"op", "dtype", "resource", NULL}},
    {"gemm_fits.csv", NULL, {"dtype", NULL}},
    {"collectives.csv", "time_us", {"collective", "group_size", "size_bytes", NULL}},
    {"collective_fits.csv", NULL, {"collective", "group_size", NULL}},
    {"collective_protocols.csv", NULL, {"collective", "link_gb_per_s", "protocol", NULL}},
};

static void put_key(const ds_csv *csv, uint32_t row, const keys *k, ds_buf *out) {
    out->n = 0;
    ds_buf_put(out, "");
    for (const char *const *c = k->columns; *c; c++) ds_buf_printf(out, "%s ", cell(csv, row, *c));
}

/* Rows of a table by their keys; of repeated measurements the first. */
typedef struct rows_by_key {
    const ds_csv *csv;
    ds_map map; /* hash of the key -> row */
} rows_by_key;

static rows_by_key index_of(const ds_csv *csv, const keys *k) {
    rows_by_key index = {.csv = csv};
    ds_buf key = {0};
    ds_map_init(&index.map);
    for (uint32_t i = 0; i < csv->rows.n; i++) {
        put_key(csv, i, k, &key);
        uint64_t hash = ds_hash_bytes(key.text, key.n);
        if (!ds_map_find(&index.map, hash)) ds_map_put(&index.map, hash, i);
    }
    ds_buf_deinit(&key);
    return index;
}

/* UINT32_MAX: none. */
static uint32_t find_row(const rows_by_key *index, const ds_buf *key) {
    const uint64_t *row = ds_map_find(&index->map, ds_hash_bytes(key->text, key->n));
    return row ? (uint32_t)*row : UINT32_MAX;
}

static int by_value(const void *a, const void *b) {
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static void print_ratios(const char *what, double *ratios, uint32_t n) {
    if (!n) return;
    qsort(ratios, n, sizeof *ratios, by_value);
    printf("  %-24s %5u in both, second/first: least %.3g, median %.3g, most %.3g\n", what, n,
           ratios[0], ratios[n / 2], ratios[n - 1]);
}

/* A measured shape: the median of the rows with its key. */
typedef struct shape {
    uint64_t hash;
    double time;
    uint32_t row; /* the first of them */
} shape;

static int by_hash(const void *a, const void *b) {
    const shape *x = a, *y = b;
    if (x->hash != y->hash) return x->hash < y->hash ? -1 : 1;
    return (x->time > y->time) - (x->time < y->time);
}

static int by_row(const void *a, const void *b) {
    const shape *x = a, *y = b;
    return (x->row > y->row) - (x->row < y->row);
}

/* Sorted by hash, each once; heap. */
static shape *shapes_of(const ds_csv *csv, const keys *k, uint32_t *n) {
    shape *all = ds_xcalloc(csv->rows.n + 1, sizeof *all);
    ds_buf key = {0};
    for (uint32_t i = 0; i < csv->rows.n; i++) {
        put_key(csv, i, k, &key);
        all[i] = (shape){ds_hash_bytes(key.text, key.n), strtod(cell(csv, i, k->value), NULL), i};
    }
    ds_buf_deinit(&key);
    qsort(all, csv->rows.n, sizeof *all, by_hash);
    *n = 0;
    for (uint32_t i = 0, next; i < csv->rows.n; i = next) {
        shape s = all[i];
        for (next = i; next < csv->rows.n && all[next].hash == s.hash; next++)
            if (all[next].row < s.row) s.row = all[next].row;
        s.time = (all[(i + next - 1) / 2].time + all[(i + next) / 2].time) / 2;
        all[(*n)++] = s;
    }
    return all;
}

/* Times of shapes that both have, by the first key. */
static void compare_times(const pair *p, const keys *k) {
    uint32_t n_a, n_b, n = 0, shared = 0;
    shape *a = shapes_of(&p->a, k, &n_a), *b = shapes_of(&p->b, k, &n_b);
    double *ratios = ds_xcalloc((size_t)n_a + 1, sizeof *ratios);
    for (uint32_t i = 0, j = 0; i < n_a; i++) {
        while (j < n_b && b[j].hash < a[i].hash) j++;
        a[i].time = j < n_b && b[j].hash == a[i].hash ? b[j].time / a[i].time : 0;
    }
    qsort(a, n_a, sizeof *a, by_row); /* from here on `time` is the ratio, 0 without a partner */
    for (uint32_t i = 0; i < n_a; i++) {
        const char *what = cell(&p->a, a[i].row, k->columns[0]);
        if (a[i].time > 0) ratios[n++] = a[i].time;
        bool last = i + 1 == n_a || strcmp(what, cell(&p->a, a[i + 1].row, k->columns[0])) != 0;
        if (!last) continue;
        print_ratios(what, ratios, n);
        shared += n;
        n = 0;
    }
    printf("  %u shapes in the first alone, %u in the second\n", n_a - shared, n_b - shared);
    free(ratios);
    free(b);
    free(a);
}

static void compare_cells(const pair *p, uint32_t a, uint32_t b, const char *key) {
    for (uint32_t c = 0; c < p->a.n_columns; c++) {
        const char *column = p->a.columns[c], *first = p->a.rows.at[a].cells[c];
        const char *second = cell(&p->b, b, column);
        if (strcmp(first, second) == 0) continue;
        printf("  %s%s: %s -> %s\n", key, column, *first ? first : "(none)",
               *second ? second : "(none)");
    }
}

static void compare_constants(const pair *p, const keys *k) {
    ds_buf key = {0};
    rows_by_key firsts = index_of(&p->a, k), others = index_of(&p->b, k);
    for (uint32_t i = 0; i < p->a.rows.n; i++) {
        put_key(&p->a, i, k, &key);
        uint32_t other = find_row(&others, &key);
        if (other == UINT32_MAX)
            printf("  %sonly in the first\n", key.text);
        else
            compare_cells(p, i, other, key.text);
    }
    for (uint32_t i = 0; i < p->b.rows.n; i++) {
        put_key(&p->b, i, k, &key);
        if (find_row(&firsts, &key) == UINT32_MAX) printf("  %sonly in the second\n", key.text);
    }
    ds_map_deinit(&firsts.map);
    ds_map_deinit(&others.map);
    ds_buf_deinit(&key);
}

static void compare_tables(const pair *p, const keys *k) {
    if (!p->has_a && !p->has_b) return;
    printf("%s\n", k->file);
    if (!p->has_b)
        printf("  all %u rows in the first alone\n", p->a.rows.n);
    else if (!p->has_a)
        printf("  all %u rows in the second alone\n", p->b.rows.n);
    else if (k->value)
        compare_times(p, k);
    else
        compare_constants(p, k);
}

ds_status profile_diff(const char *db_path, const char *a, const char *b, ds_error *err) {
    for (size_t i = 0; i < sizeof all_keys / sizeof *all_keys; i++) {
        pair p = {.file = all_keys[i].file};
        DS_TRY(profile_table(db_path, a, p.file, &p.a, &p.has_a, err));
        ds_status status = profile_table(db_path, b, p.file, &p.b, &p.has_b, err);
        if (status == DS_OK) compare_tables(&p, &all_keys[i]);
        if (p.has_a) ds_csv_deinit(&p.a);
        if (p.has_b) ds_csv_deinit(&p.b);
        DS_TRY(status);
    }
    return DS_OK;
}
