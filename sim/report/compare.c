/* Two runs: the difference of their steps and of their peaks, by cause. */
#include "sim/report/internal.h"

#include <stdlib.h>
#include <string.h>

static int64_t size_of(const ds_difference *d) {
    return d->a < d->b ? d->b - d->a : d->a - d->b;
}

static int largest_first(const void *a, const void *b) {
    const ds_difference *x = a, *y = b;
    int64_t dx = size_of(x), dy = size_of(y);
    if (dx != dy) return dx > dy ? -1 : 1;
    if (x->a != y->a) return x->a > y->a ? -1 : 1;
    if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
    return strcmp(x->what, y->what);
}

/* The line of a cause; a new one if there is none. */
static ds_difference *line_of(ds_comparison *c, const ds_cause *cause) {
    for (uint32_t i = 0; i < c->time.n; i++)
        if (c->time.at[i].kind == cause->kind && strcmp(c->time.at[i].what, cause->what) == 0)
            return &c->time.at[i];
    const char *what = ds_intern(&c->names, cause->what);
    DS_HPUSH(&c->time, ((ds_difference){.kind = cause->kind, .what = what}));
    return &c->time.at[c->time.n - 1];
}

static void compare_time(ds_comparison *c) {
    ds_causes a, b;
    ds_causes_of_class(c->a, c->a->critical, &a);
    ds_causes_of_class(c->b, c->b->critical, &b);
    for (uint32_t i = 0; i < a.rows.n; i++) line_of(c, &a.rows.at[i])->a = a.rows.at[i].ps;
    for (uint32_t i = 0; i < b.rows.n; i++) line_of(c, &b.rows.at[i])->b = b.rows.at[i].ps;
    ds_causes_deinit(&a);
    ds_causes_deinit(&b);
    if (c->time.n) qsort(c->time.at, c->time.n, sizeof *c->time.at, largest_first);
}

static void compare_memory(ds_comparison *c) {
    const int64_t *a = c->a->mem.classes[c->a->fullest].peak_by_category;
    const int64_t *b = c->b->mem.classes[c->b->fullest].peak_by_category;
    for (int k = 0; k < DS_MEM_CATEGORY_COUNT; k++) {
        ds_difference d = {.what = ds_mem_category_name(k), .a = a[k], .b = b[k]};
        if (d.a || d.b) DS_HPUSH(&c->memory, d);
    }
    if (c->memory.n) qsort(c->memory.at, c->memory.n, sizeof *c->memory.at, largest_first);
}

void ds_compare(const ds_result *a, const ds_result *b, ds_comparison *out) {
    *out = (ds_comparison){.a = a, .b = b};
    ds_strtab_init(&out->names);
    compare_time(out);
    compare_memory(out);
    ds_report__compare_knobs(out);
}

void ds_comparison_deinit(ds_comparison *c) {
    free(c->time.at);
    free(c->memory.at);
    free(c->knobs.at);
    ds_strtab_deinit(&c->names);
    *c = (ds_comparison){0};
}
