/* The buffers alive at a class's peak, as one line for all turns of a loop and all microbatches,
 * and texts about memory. */
#include "ir/base/map.h"
#include "sim/report/internal.h"

#include <stdlib.h>
#include <string.h>

#define MAX_CLASSES 8
#define MAX_GROUPS  6
#define MAX_HOSTS   8
#define MAX_TENSORS 5

/* ---- groups ---- */

static int by_category_and_bytes(const void *a, const void *b) {
    const ds_live_group *x = a, *y = b;
    if (x->category != y->category) return x->category < y->category ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return strcmp(x->path, y->path);
}

static int by_group_bytes(const void *a, const void *b) {
    const ds_live_group *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return by_category_and_bytes(a, b);
}

/* "step/w{3}" without the index of a family's argument. */
static void drop_braces(ds_buf *path) {
    size_t to = 0;
    for (size_t i = 0; i < path->n; i++) {
        if (path->text[i] == '{')
            i += strcspn(path->text + i, "}");
        else
            path->text[to++] = path->text[i];
    }
    path->n = to;
    path->text[to] = '\0';
}

/* "step/loss/layer/fc1"; with the result's name where the op makes several. */
static void put_path(const ds_result *r, uint32_t value, ds_buf *out) {
    const ds_vinst *v = &r->plan->values.at[ds_mem_value(value)];
    ds_report__op_path(r, v->inst, out);
    drop_braces(out);
    if (r->plan->records.at[r->plan->insts.at[v->inst].record]->n_out > 1 && v->name)
        ds_buf_printf(out, " (%%%s)", v->name);
    ds_buf_put(out, ds_mem_part_text(value));
}

void ds_report__live(const ds_result *r, uint32_t cls, ds_live *out) {
    uint32_t n;
    ds_mem_live *live = ds_mem_live_at_peak(&r->mem, cls, &n);
    ds_map index;
    ds_map_init(&index);
    *out = (ds_live){0};
    ds_strtab_init(&out->names);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t category = ds_mem_category(r->plan, live[i].value);
        ds_buf path = {0};
        put_path(r, live[i].value, &path);
        const char *name = ds_intern(&out->names, path.text);
        ds_buf_deinit(&path);
        uint64_t key = ds_hash_mix(DS_KEY(name), category), *found = ds_map_find(&index, key);
        if (!found) {
            ds_map_put(&index, key, out->groups.n);
            DS_HPUSH(&out->groups, ((ds_live_group){.category = (int)category, .path = name}));
        }
        ds_live_group *g = &out->groups.at[found ? *found : out->groups.n - 1];
        g->n++;
        g->bytes += live[i].bytes;
    }
    free(live);
    ds_map_deinit(&index);
    if (out->groups.n)
        qsort(out->groups.at, out->groups.n, sizeof *out->groups.at, by_category_and_bytes);
}

void ds_report__live_deinit(ds_live *live) {
    free(live->groups.at);
    ds_strtab_deinit(&live->names);
}

/* ---- over time ---- */

void ds_report__memory_start(const ds_result *r, uint32_t cls, ds_memory_walk *walk) {
    const ds_mem_class *m = &r->mem.classes[cls];
    *walk = (ds_memory_walk){.result = r, .cls = cls};
    walk->by[DS_MEM_CONTEXT] = m->input_by_category[DS_MEM_CONTEXT];
    walk->by[DS_MEM_COMMUNICATOR] = m->input_by_category[DS_MEM_COMMUNICATOR];
    walk->by[DS_MEM_FRAMEWORK] = m->input_by_category[DS_MEM_FRAMEWORK];
}

bool ds_report__memory_next(ds_memory_walk *walk) {
    const ds_mem_class *m = &walk->result->mem.classes[walk->cls];
    if (walk->event == m->n_events) return false;
    walk->time_ps = m->events[walk->event].time_ps;
    for (; walk->event < m->n_events && m->events[walk->event].time_ps == walk->time_ps;
         walk->event++) {
        const ds_mem_event *e = &m->events[walk->event];
        walk->by[ds_mem_category(walk->result->plan, e->value)] += e->delta_bytes;
        walk->held += e->delta_bytes;
    }
    walk->by[DS_MEM_UNUSED] =
        m->reserved_bytes ? m->reserved_bytes[walk->event - 1] - walk->held : 0;
    walk->bytes = ds_mem_beside(walk->by) + walk->by[DS_MEM_UNUSED] + walk->held;
    return true;
}

/* ---- the summary's section ---- */

typedef struct fill {
    double share;
    int64_t peak;
    uint32_t cls;
} fill;

static int fullest_first(const void *a, const void *b) {
    const fill *x = a, *y = b;
    if (x->share < y->share || x->share > y->share) return x->share > y->share ? -1 : 1;
    if (x->peak != y->peak) return x->peak > y->peak ? -1 : 1;
    return x->cls < y->cls ? -1 : x->cls > y->cls;
}

static fill *sorted_classes(const ds_result *r) {
    uint32_t n = r->plan->n_classes;
    fill *fills = ds_xcalloc(n, sizeof *fills);
    for (uint32_t c = 0; c < n; c++) {
        int64_t peak = r->mem.classes[c].peak_bytes;
        double share = ds_ratio((double)peak, (double)ds_class_capacity(r->plan, c));
        fills[c] = (fill){share, peak, c};
    }
    if (n) qsort(fills, n, sizeof *fills, fullest_first);
    return fills;
}

static void put_class(const ds_result *r, const fill *f, ds_buf *out) {
    int64_t capacity = ds_class_capacity(r->plan, f->cls);
    ds_buf_printf(out, "  %s", ds_report__device(r->plan, f->cls));
    ds_report__alike(r->plan, f->cls, out);
    ds_buf_printf(out, ": %s", ds_report__bytes(f->peak).s);
    if (capacity)
        ds_buf_printf(out, ", %s of %s", ds_report__percent(f->share).s,
                      ds_report__bytes(capacity).s);
    else
        ds_buf_put(out, ", capacity not known");
    const ds_mem_class *mem = &r->mem.classes[f->cls];
    for (int c = 0, n = 0; c < DS_MEM_CATEGORY_COUNT; c++) {
        if (!mem->peak_by_category[c]) continue;
        ds_buf_printf(out, "%s%s %s", n++ ? ", " : "\n      ", ds_mem_category_name(c),
                      ds_report__bytes(mem->peak_by_category[c]).s);
    }
    ds_buf_putc(out, '\n');
}

static void put_groups(const ds_result *r, uint32_t cls, ds_buf *out) {
    ds_live live;
    ds_report__live(r, cls, &live);
    uint32_t n = live.groups.n;
    if (n) {
        qsort(live.groups.at, n, sizeof *live.groups.at, by_group_bytes);
        ds_buf_printf(out, "  Largest then on %s\n", ds_report__device(r->plan, cls));
    }
    for (uint32_t i = 0; i < n && i < MAX_GROUPS; i++) {
        const ds_live_group *g = &live.groups.at[i];
        ds_buf_printf(out, "  %12s  %-10s %5u x  %s\n", ds_report__bytes(g->bytes).s,
                      ds_mem_category_name(g->category), g->n, g->path);
    }
    if (n > MAX_GROUPS) {
        int64_t rest = 0;
        for (uint32_t i = MAX_GROUPS; i < n; i++) rest += live.groups.at[i].bytes;
        ds_buf_printf(out, "  %12s  in %u more\n", ds_report__bytes(rest).s, n - MAX_GROUPS);
    }
    ds_report__live_deinit(&live);
}

static void put_hosts(const ds_result *r, ds_buf *out) {
    for (uint32_t h = 0; h < r->n_hosts && h < MAX_HOSTS; h++) {
        const ds_mem_host *host = &r->hosts[h];
        ds_buf_printf(out, "  %s keeps %s for %u device%s\n",
                      ds_topo_vertex_path(r->plan->topo, host->vertex),
                      ds_report__bytes(host->peak_bytes).s, host->n_devices,
                      host->n_devices == 1 ? "" : "s");
    }
    if (r->n_hosts > MAX_HOSTS) ds_buf_printf(out, "  and %u more hosts\n", r->n_hosts - MAX_HOSTS);
}

void ds_report__memory(const ds_result *r, ds_buf *out) {
    uint32_t n = r->plan->n_classes;
    fill *fills = sorted_classes(r);
    ds_buf_put(out, "\nMemory at its peak");
    if (r->mem.mode != DS_MEM_EXACT)
        ds_buf_printf(out, " (memory = %s)", ds_mem_mode_name(r->mem.mode));
    ds_buf_putc(out, '\n');
    for (uint32_t i = 0; i < n && i < MAX_CLASSES; i++) put_class(r, &fills[i], out);
    if (n > MAX_CLASSES) ds_buf_printf(out, "  and %u more classes, less full\n", n - MAX_CLASSES);
    if (n) put_groups(r, r->fullest, out);
    put_hosts(r, out);
    free(fills);
}

/* ---- the verdict ---- */

static void put_tensor(const ds_result *r, uint32_t value, int64_t bytes, ds_buf *out) {
    ds_buf_printf(out, "  %12s  %-11s ", ds_report__bytes(bytes).s,
                  ds_mem_category_name((int)ds_mem_category(r->plan, value)));
    ds_report__value_path(r->plan, value, out);
    ds_buf_putc(out, '\n');
}

/* The first allocation that passes the capacity, often long before the peak. */
static void put_first(const ds_result *r, ds_buf *out) {
    const ds_mem_class *mem = &r->mem.classes[r->fullest];
    if (mem->over_event == DS_NONE) {
        ds_buf_put(out, "  What is held beside tensors is too much by itself.\n");
        return;
    }
    const ds_mem_event *e = &mem->events[mem->over_event];
    ds_buf_printf(out, "  The first that found no room, at %s:\n", ds_report__ps(e->time_ps).s);
    put_tensor(r, e->value, e->delta_bytes, out);
}

void ds_report__verdict(const ds_result *r, ds_buf *out) {
    uint32_t n_over = 0, n_live;
    for (uint32_t c = 0; c < r->plan->n_classes; c++) {
        int64_t capacity = ds_class_capacity(r->plan, c);
        if (capacity && r->mem.classes[c].peak_bytes > capacity)
            n_over += r->plan->classes[c].n_devices;
    }
    int64_t missing = r->metrics.peak_bytes - r->metrics.capacity_bytes;
    ds_buf_printf(out,
                  "\nDOES NOT FIT: %s needs %s and has %s;\n  %lld bytes (%s) are missing, at %s. "
                  "%u device%s too small.\n",
                  ds_report__device(r->plan, r->fullest), ds_report__bytes(r->metrics.peak_bytes).s,
                  ds_report__bytes(r->metrics.capacity_bytes).s, (long long)missing,
                  ds_report__bytes(missing).s, ds_report__ps(r->mem.classes[r->fullest].peak_ps).s,
                  n_over, n_over == 1 ? " is" : "s are");
    put_first(r, out);
    ds_buf_put(out, "  The largest tensors at the peak:\n");
    ds_mem_live *live = ds_mem_live_at_peak(&r->mem, r->fullest, &n_live);
    for (uint32_t i = 0; i < n_live && i < MAX_TENSORS; i++)
        put_tensor(r, live[i].value, live[i].bytes, out);
    if (n_live > MAX_TENSORS) ds_buf_printf(out, "  and %u smaller ones\n", n_live - MAX_TENSORS);
    free(live);
}

/* ---- JSON ---- */

void ds_report__put_live(ds_json *json, const ds_result *r, uint32_t cls) {
    ds_live live;
    ds_report__live(r, cls, &live);
    ds_json_key(json, "live_at_peak");
    ds_json_begin_object(json);
    for (uint32_t i = 0; i < live.groups.n; i++) {
        const ds_live_group *g = &live.groups.at[i];
        if (i == 0 || g->category != g[-1].category) {
            ds_json_key(json, ds_mem_category_name(g->category));
            ds_json_begin_array(json);
        }
        ds_json_begin_object(json);
        ds_json_key_string(json, "path", g->path);
        ds_json_key_int(json, "count", g->n);
        ds_json_key_int(json, "bytes", g->bytes);
        ds_json_end_object(json);
        if (i + 1 == live.groups.n || g->category != g[1].category) ds_json_end_array(json);
    }
    ds_json_end_object(json);
    ds_report__live_deinit(&live);
}
