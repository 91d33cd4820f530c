/* The differences of two scenarios: entries of their scenario blocks, and params, evaluated.
 *
 * An entry of a block has the block's name first: "strategy.tp". An entry that only one scenario
 * has is a difference, too: the other scenario runs with the knob's default. A param that only one
 * scenario has is no difference, nor is a param whose difference an entry of that name tells. */
#include "ir/strategy/scenario.h"
#include "sim/report/internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct knob {
    const char *name, *value;
} knob;

typedef DS_VEC(knob) knobs;

typedef struct reader {
    const ds_binding *binding;
    ds_strtab *names;
    knobs *out;
} reader;

static void put_num(const ds_num *num, ds_buf *out) {
    if (num->is_bool)
        ds_buf_put(out, num->i ? "true" : "false");
    else if (num->kind == DS_NUM_INT)
        ds_buf_printf(out, "%lld", (long long)num->i);
    if (num->kind == DS_NUM_REAL) ds_buf_printf(out, "%.15g", num->r);
    if (num->kind == DS_NUM_STR) ds_buf_put(out, num->s);
}

static void put_expr(const reader *r, const ds_attr *attr, ds_buf *out) {
    ds_env env = ds_binding_env(r->binding, NULL);
    ds_num num;
    ds_error err;
    if (ds_expr_eval(&env, attr->expr, attr->loc, &num, &err) == DS_OK)
        put_num(&num, out);
    else
        ds_expr_print(&r->binding->unit->exprs, attr->expr, out);
}

static void put_value(const reader *r, const ds_attr *attr, ds_buf *out) {
    switch (attr->kind) {
    case DS_ATTR_EXPR:
        put_expr(r, attr, out);
        break;
    case DS_ATTR_BOOL:
        ds_buf_put(out, attr->flag ? "true" : "false");
        break;
    case DS_ATTR_WORD:
        ds_buf_put(out, attr->word);
        break;
    case DS_ATTR_QUANTITY:
        put_expr(r, attr, out);
        ds_buf_printf(out, " %s", ds_unit_text(attr->unit));
        break;
    case DS_ATTR_PLACE:
        ds_place_print(&r->binding->unit->exprs, &attr->place, out);
        break;
    case DS_ATTR_LIST:
    case DS_ATTR_BLOCK: /* blocks are read entry by entry, and no list contains a block */
        break;
    }
    bool bracket = attr->kind == DS_ATTR_LIST || (attr->kind == DS_ATTR_PLACE && attr->n_items);
    if (!bracket) return;
    ds_buf_put(out, attr->kind == DS_ATTR_LIST ? "[" : " [");
    for (uint32_t i = 0; i < attr->n_items; i++) {
        const ds_attr *item = &attr->items[i];
        ds_buf_printf(out, "%s%s%s", i ? ", " : "", item->name ? item->name : "",
                      item->name ? ": " : "");
        put_value(r, item, out);
    }
    ds_buf_putc(out, ']');
}

static void add(reader *r, const char *name, const ds_buf *value) {
    knob k = {ds_intern(r->names, name), ds_intern(r->names, value->text ? value->text : "")};
    DS_HPUSH(r->out, k);
}

static void read_entries(reader *r, const char *section, const ds_attr *entries, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        const ds_attr *attr = &entries[i];
        ds_buf name = {0}, value = {0};
        ds_buf_printf(&name, "%s%s%s", section, *section ? "." : "", attr->name);
        if (attr->kind == DS_ATTR_BLOCK) {
            read_entries(r, name.text, attr->items, attr->n_items);
        } else {
            put_value(r, attr, &value);
            add(r, name.text, &value);
        }
        ds_buf_deinit(&name);
        ds_buf_deinit(&value);
    }
}

/* The params of a module; in an imported module the file's path comes first. */
static void read_params(reader *r, const ds_module *module) {
    for (uint32_t i = 0; i < module->params.n; i++) {
        ds_buf name = {0}, value = {0};
        if (module->id) ds_buf_printf(&name, "%s: ", module->path);
        ds_buf_put(&name, module->params.at[i].name);
        put_num(&r->binding->params[module->id][i], &value);
        add(r, name.text, &value);
        ds_buf_deinit(&name);
        ds_buf_deinit(&value);
    }
}

static void read_scenario(const ds_binding *binding, ds_strtab *names, knobs *out) {
    reader r = {binding, names, out};
    const ds_scenario *scenario = ds_unit_scenario(binding->unit);
    if (scenario) read_entries(&r, "", scenario->entries, scenario->n_entries);
}

/* The degraded devices and links of the run's topology. */
static void read_degraded(const ds_topo *topo, ds_strtab *names, knobs *out) {
    uint32_t n;
    const ds_topo_degraded *all = ds_topo_degraded_all(topo, &n);
    for (uint32_t i = 0; i < n; i++) {
        ds_buf text = {0};
        ds_topo_print_degraded(topo, &all[i], &text);
        /* "n[0].gpu[1] -> sw bandwidth 0.5": names hold no blanks but around the arrow */
        char *blank = strchr(text.text, ' ');
        if (all[i].is_link) blank = strchr(blank + 4, ' ');
        *blank = '\0';
        knob k = {ds_intern(names, text.text), ds_intern(names, blank + 1)};
        DS_HPUSH(out, k);
        ds_buf_deinit(&text);
    }
}

static void read_all_params(const ds_binding *binding, ds_strtab *names, knobs *out) {
    reader r = {binding, names, out};
    for (uint32_t i = 0; i < binding->unit->modules.n; i++)
        read_params(&r, binding->unit->modules.at[i]);
}

static const char *find(const knobs *all, const char *name) {
    for (uint32_t i = 0; i < all->n; i++)
        if (all->at[i].name == name) return all->at[i].value;
    return NULL;
}

/* Does an entry named "….NAME" have the same difference already? */
static bool is_said(const ds_comparison *c, uint32_t n_entries, const ds_knob_difference *d) {
    for (uint32_t i = 0; i < n_entries; i++) {
        const ds_knob_difference *other = &c->knobs.at[i];
        const char *dot = strrchr(other->name, '.');
        if (strcmp(dot ? dot + 1 : other->name, d->name) == 0 && other->a == d->a &&
            other->b == d->b)
            return true;
    }
    return false;
}

/* The union of both, in A's order, then B's; values are interned. */
static void add_differences(ds_comparison *c, const knobs *a, const knobs *b, bool params) {
    uint32_t n_entries = params ? c->knobs.n : 0;
    for (uint32_t i = 0; i < a->n + b->n; i++) {
        const char *name = i < a->n ? a->at[i].name : b->at[i - a->n].name;
        if (i >= a->n && find(a, name)) continue; /* seen */
        ds_knob_difference d = {name, find(a, name), find(b, name)};
        if (d.a == d.b || strcmp(name, "title") == 0) continue;
        if (params && (!d.a || !d.b || is_said(c, n_entries, &d))) continue;
        DS_HPUSH(&c->knobs, d);
    }
}

void ds_report__compare_knobs(ds_comparison *c) {
    void (*const readers[])(const ds_binding *, ds_strtab *, knobs *) = {read_scenario,
                                                                         read_all_params};
    for (int params = 0; params < 2; params++) {
        knobs a = {0}, b = {0};
        readers[params](c->a->source, &c->names, &a);
        readers[params](c->b->source, &c->names, &b);
        if (!params) {
            read_degraded(c->a->plan->topo, &c->names, &a);
            read_degraded(c->b->plan->topo, &c->names, &b);
        }
        add_differences(c, &a, &b, params);
        free(a.at);
        free(b.at);
    }
}
