/* A table's rows onto a graph's nodes. */
#include "search/pase/published.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct reader {
    const ds_csv *table;
    const ds_pase_graph *graph;
    const ds_pase_limits *limits;
    ds_pase_splits *strategy;
    uint32_t *n_dropped;
    ds_error *err;
} reader;

/* An asterisk stands for anything but a dot: "e1.*.conv" matches "e1.a2.conv"; that of "l[*]" is
 * matched by itself. */
static bool matches(const char *pattern, const char *name) {
    for (; *pattern; pattern++, name++) {
        if (*pattern == '*') {
            do {
                if (matches(pattern + 1, name)) return true;
            } while (*name && *name++ != '.');
            return false;
        }
        if (*pattern != *name) return false;
    }
    return *name == 0;
}

static bool is_splittable(const reader *r, const ds_pase_node *node, uint32_t a, int64_t parts) {
    if ((node->whole >> a) & 1 || node->size[a] % parts != 0) return false;
    return !r->limits->by_rule || node->rule_size[a] % parts == 0;
}

/* "k 8 n 4" for one node. */
static ds_status split_node(reader *r, const ds_csv_row *row, const char *text, uint32_t v) {
    const ds_pase_node *node = &r->graph->nodes.at[v];
    ds_pase_splits splits;
    bool legal = true;
    for (uint32_t a = 0; a < DS_PASE_MAX_AXES; a++) splits.of[a] = 1;
    while (*text) {
        char name[16];
        int used = 0, parts = 0;
        if (sscanf(text, " %15s %d%n", name, &parts, &used) != 2 || parts < 1 || parts > 0xffff)
            return ds_csv_error(r->table, row, r->err, "'%s' is no axis and parts", text);
        text += used;
        uint32_t a = 0;
        while (a < node->n_axes && strcmp(node->axis_name[a], name) != 0) a++;
        if (a == node->n_axes)
            return ds_csv_error(r->table, row, r->err, "%s has no axis '%s'", node->path, name);
        legal = legal && is_splittable(r, node, a, parts);
        splits.of[a] = (uint16_t)parts;
    }
    if (legal) r->strategy[v] = splits;
    *r->n_dropped += !legal;
    return DS_OK;
}

static ds_status base(reader *r, const ds_csv_row *row, const char *text) {
    int tp = 0;
    if (strcmp(text, "dp") == 0) {
        ds_pase_data_parallel(r->graph, r->limits, r->strategy);
        return DS_OK;
    }
    if (sscanf(text, "tp %d", &tp) != 1 || tp < 1 || r->limits->devices % tp != 0)
        return ds_csv_error(r->table, row, r->err, "'%s' is neither dp nor tp and a divisor of %d",
                            text, (int)r->limits->devices);
    ds_pase_expert(r->graph, r->limits, tp, r->strategy);
    return DS_OK;
}

static ds_status apply_row(reader *r, const ds_csv_row *row, const char *operation,
                           const char *text) {
    bool any = false;
    if (strcmp(operation, "*") == 0) return base(r, row, text);
    for (uint32_t v = 0; v < r->graph->nodes.n; v++) {
        if (!matches(operation, r->graph->nodes.at[v].pattern)) continue;
        DS_TRY(split_node(r, row, text, v));
        any = true;
    }
    if (any) return DS_OK;
    return ds_csv_error(r->table, row, r->err, "'%s' matches no operation", operation);
}

ds_status ds_pase_published(const ds_csv *table, const char *model, const ds_pase_graph *graph,
                            const ds_pase_limits *limits, ds_pase_splits *strategy,
                            uint32_t *n_dropped, ds_error *err) {
    static const char *const names[] = {"model", "devices", "operation", "split"};
    uint32_t at[4];
    reader r = {table, graph, limits, strategy, n_dropped, err};
    bool any = false;
    *n_dropped = 0;
    for (int i = 0; i < 4; i++) DS_TRY(ds_csv_need(table, names[i], &at[i], err));
    for (uint32_t i = 0; i < table->rows.n; i++) {
        const ds_csv_row *row = &table->rows.at[i];
        if (strcmp(row->cells[at[0]], model) != 0 ||
            strtoll(row->cells[at[1]], NULL, 10) != limits->devices)
            continue;
        DS_TRY(apply_row(&r, row, row->cells[at[2]], row->cells[at[3]]));
        any = true;
    }
    if (any) return DS_OK;
    return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "%s has no strategy of %s over %d devices",
                        table->file, model, (int)limits->devices);
}
