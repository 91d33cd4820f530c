/* From a table's rows to splits of a graph's nodes. */
#include "tools/pase/published.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An asterisk matches anything but a dot: "e1.*.conv" matches "e1.a2.conv", and the asterisk of
 * "l[*]" matches an asterisk, too. */
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

/* ---- rows ---- */

typedef struct reader {
    const ds_csv *table;
    uint32_t model, devices, operation, split; /* columns */
} reader;

static ds_status open_table(const ds_csv *table, reader *r, ds_error *err) {
    r->table = table;
    DS_TRY(ds_csv_need(table, "model", &r->model, err));
    DS_TRY(ds_csv_need(table, "devices", &r->devices, err));
    DS_TRY(ds_csv_need(table, "operation", &r->operation, err));
    return ds_csv_need(table, "split", &r->split, err);
}

static bool is_about(const reader *r, const ds_csv_row *row, const char *model, int64_t devices) {
    return strcmp(row->cells[r->model], model) == 0 &&
           strtoll(row->cells[r->devices], NULL, 10) == devices;
}

static bool is_base(const reader *r, const ds_csv_row *row) {
    return strcmp(row->cells[r->operation], "*") == 0;
}

/* "k 8 n 4" for one node. */
static ds_status pin_node(const reader *r, const ds_csv_row *row, const ds_pase_node *node,
                          ds_pase_splits *pins, ds_error *err) {
    for (const char *text = row->cells[r->split]; *text;) {
        char name[16];
        int used = 0, parts = 0;
        if (sscanf(text, " %15s %d%n", name, &parts, &used) != 2 || parts < 1 || parts > 0xffff)
            return ds_csv_error(r->table, row, err, "'%s' is no axis and parts", text);
        text += used;
        uint32_t a = 0;
        while (a < node->n_axes && strcmp(node->axis_name[a], name) != 0) a++;
        if (a == node->n_axes)
            return ds_csv_error(r->table, row, err, "%s has no axis '%s'", node->path, name);
        pins->of[a] = (uint16_t)parts;
    }
    return DS_OK;
}

ds_status ds_pase_pins(const ds_csv *table, const char *model, int64_t devices,
                       const ds_pase_graph *graph, ds_pase_splits *pins, ds_error *err) {
    reader r;
    bool any_row = false;
    DS_TRY(open_table(table, &r, err));
    memset(pins, 0, graph->nodes.n * sizeof *pins);
    for (uint32_t i = 0; i < table->rows.n; i++) {
        const ds_csv_row *row = &table->rows.at[i];
        bool any = false;
        if (!is_about(&r, row, model, devices) || is_base(&r, row)) continue;
        for (uint32_t v = 0; v < graph->nodes.n; v++) {
            const ds_pase_node *node = &graph->nodes.at[v];
            if (!matches(row->cells[r.operation], node->pattern)) continue;
            DS_TRY(pin_node(&r, row, node, &pins[v], err));
            any = any_row = true;
        }
        if (!any)
            return ds_csv_error(table, row, err, "'%s' matches no operation",
                                row->cells[r.operation]);
    }
    if (any_row) return DS_OK;
    return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "%s has no strategy of %s over %lld devices",
                        table->file, model, (long long)devices);
}

/* ---- whole strategies ---- */

static ds_status base(const reader *r, const ds_csv_row *row, const ds_pase_graph *graph,
                      const ds_pase_limits *limits, ds_pase_splits *strategy, ds_error *err) {
    const char *text = row->cells[r->split];
    int tp = 0;
    if (strcmp(text, "dp") == 0) {
        ds_pase_data_parallel(graph, limits, strategy);
        return DS_OK;
    }
    if (sscanf(text, "tp %d", &tp) != 1 || tp < 1 || limits->devices % tp != 0)
        return ds_csv_error(r->table, row, err, "'%s' is neither dp nor tp and a divisor of %lld",
                            text, (long long)limits->devices);
    ds_pase_expert(graph, limits, tp, strategy);
    return DS_OK;
}

static const ds_csv_row *base_row(const reader *r, const char *model, int64_t devices) {
    for (uint32_t i = 0; i < r->table->rows.n; i++) {
        const ds_csv_row *row = &r->table->rows.at[i];
        if (is_about(r, row, model, devices) && is_base(r, row)) return row;
    }
    return NULL;
}

/* Axes without a pin become whole; false: the limits do not allow the split. */
static bool complete(const ds_pase_node *node, const ds_pase_limits *limits, ds_pase_splits *pins) {
    for (uint32_t a = 0; a < DS_PASE_MAX_AXES; a++) {
        if (pins->of[a] <= 1) {
            pins->of[a] = 1;
            continue;
        }
        if ((node->whole >> a) & 1 || node->size[a] % pins->of[a] != 0) return false;
        if (limits->by_rule && node->rule_size[a] % pins->of[a] != 0) return false;
    }
    return true;
}

static bool is_pinned(const ds_pase_splits *pins) {
    for (uint32_t a = 0; a < DS_PASE_MAX_AXES; a++)
        if (pins->of[a]) return true;
    return false;
}

ds_status ds_pase_published(const ds_csv *table, const char *model, const ds_pase_graph *graph,
                            const ds_pase_limits *limits, ds_pase_splits *strategy,
                            uint32_t *n_dropped, ds_error *err) {
    reader r;
    *n_dropped = 0;
    DS_TRY(open_table(table, &r, err));
    const ds_csv_row *row = base_row(&r, model, limits->devices);
    if (!row)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "%s has no row * of %s over %lld devices",
                            table->file, model, (long long)limits->devices);
    DS_TRY(base(&r, row, graph, limits, strategy, err));
    ds_pase_splits *pins = ds_xcalloc((size_t)graph->nodes.n + 1, sizeof *pins);
    ds_status status = ds_pase_pins(table, model, limits->devices, graph, pins, err);
    for (uint32_t v = 0; v < graph->nodes.n && !status; v++) {
        if (!is_pinned(&pins[v])) continue;
        if (complete(&graph->nodes.at[v], limits, &pins[v]))
            strategy[v] = pins[v];
        else
            ++*n_dropped;
    }
    free(pins);
    return status;
}
