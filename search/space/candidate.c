/* The dimensions of a space, and a candidate as others see it: text, settings of params, keys of a
 * scenario. */
#include "search/space/frame.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool ds_space_has_price(const ds_space *s) {
    return s->price != UINT32_MAX;
}

bool ds_space_has_tokens(const ds_space *s) {
    return ds_scenario_find(s->unit, "", "tokens") != NULL;
}

const ds_sweep *ds_space_sweep(const ds_space *s) {
    return s->sweep;
}

uint32_t ds_space_n_dims(const ds_space *s) {
    return s->dims.n;
}

const char *ds_space_dim_name(const ds_space *s, uint32_t dim) {
    return s->dims.at[dim].entry->name;
}

const ds_unit *ds_space_unit(const ds_space *s) {
    return s->unit;
}

const ds_knob *ds_space_dim_knob(const ds_space *s, uint32_t dim) {
    return s->dims.at[dim].target.knob;
}

bool ds_space_dim_is_text(const ds_space *s, uint32_t dim) {
    const ds_sweep_target *target = &s->dims.at[dim].target;
    return target->module && s->base->params[target->module->id][target->param].kind == DS_NUM_STR;
}

const ds_objective *ds_space_objectives(const ds_space *s, uint32_t *n) {
    *n = s->objectives.n;
    return s->objectives.at;
}

ds_candidate ds_candidate_new(const ds_space *s, ds_arena *arena) {
    return (ds_candidate){.at = DS_NEW_N(arena, ds_choice, s->dims.n)};
}

bool ds_choice_same(const ds_space *s, uint32_t dim, const ds_choice *a, const ds_choice *b) {
    return s->dims.at[dim].entry->domain == DS_DOMAIN_LIST ? a->item == b->item
                                                           : a->value.i == b->value.i;
}

uint64_t ds_candidate_hash(const ds_space *s, const ds_candidate *candidate) {
    uint64_t hash = 0;
    for (uint32_t i = 0; i < s->dims.n; i++) {
        bool list = s->dims.at[i].entry->domain == DS_DOMAIN_LIST;
        const ds_choice *at = &candidate->at[i];
        hash = ds_hash_mix(hash, list ? at->item : (uint64_t)at->value.i);
    }
    return hash;
}

/* ---- values ---- */

static const ds_attr *list_item(const ds_space *s, const ds_candidate *c, uint32_t dim) {
    const ds_sweep_entry *entry = s->dims.at[dim].entry;
    return entry->domain == DS_DOMAIN_LIST ? &entry->list.items[c->at[dim].item] : NULL;
}

static void put_num(const ds_num *num, ds_buf *out) {
    char text[40];
    if (num->is_bool)
        ds_buf_put(out, num->i ? "true" : "false");
    else if (num->kind == DS_NUM_INT)
        ds_buf_put_int(out, num->i);
    if (num->kind == DS_NUM_STR) ds_buf_put(out, num->s);
    if (num->kind != DS_NUM_REAL) return;
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, num->r);
        double back = strtod(text, NULL);
        if (!(back < num->r) && !(back > num->r)) break;
    }
    ds_buf_put(out, text);
}

static void put_item(const ds_space *s, const ds_attr *item, ds_buf *out) {
    ds_env env = ds_space_env(s, &s->judge);
    ds_num value;
    switch (item->kind) {
    case DS_ATTR_EXPR:
    case DS_ATTR_QUANTITY:
        if (ds_expr_eval(&env, item->expr, item->loc, &value, NULL) == DS_OK) put_num(&value, out);
        if (item->kind == DS_ATTR_QUANTITY) ds_buf_printf(out, " %s", ds_unit_text(item->unit));
        break;
    case DS_ATTR_BOOL:
        ds_buf_put(out, item->flag ? "true" : "false");
        break;
    case DS_ATTR_WORD:
        ds_buf_put(out, item->word);
        break;
    case DS_ATTR_PLACE:
        ds_place_print(&s->unit->exprs, &item->place, out);
        break;
    case DS_ATTR_LIST:
    case DS_ATTR_BLOCK:
        ds_buf_putc(out, '[');
        for (uint32_t i = 0; i < item->n_items; i++) {
            if (i) ds_buf_putc(out, ' ');
            put_item(s, &item->items[i], out);
        }
        ds_buf_putc(out, ']');
        break;
    }
}

void ds_space_put_value(const ds_space *s, const ds_candidate *c, uint32_t dim, ds_buf *out) {
    const ds_attr *item = list_item(s, c, dim);
    if (item && item->kind != DS_ATTR_EXPR)
        put_item(s, item, out);
    else
        put_num(&c->at[dim].value, out);
}

bool ds_space_is_text(const ds_space *s, const ds_candidate *c, uint32_t dim) {
    const ds_attr *item = list_item(s, c, dim);
    return (item && item->kind != DS_ATTR_EXPR) || c->at[dim].value.kind == DS_NUM_STR;
}

void ds_space_settings(const ds_space *s, const ds_candidate *c, ds_arena *arena, ds_setting **out,
                       uint32_t *n) {
    *out = DS_NEW_N(arena, ds_setting, s->n_settings + s->dims.n);
    *n = s->n_settings;
    if (*n) memcpy(*out, s->settings, *n * sizeof **out);
    for (uint32_t i = 0; i < s->dims.n; i++) {
        const ds_num *value = &c->at[i].value;
        if (!s->dims.at[i].target.module) continue;
        ds_buf text = {0};
        bool quoted = value->kind == DS_NUM_STR;
        if (quoted) ds_buf_putc(&text, '"');
        put_num(value, &text);
        if (quoted) ds_buf_putc(&text, '"');
        (*out)[(*n)++] = (ds_setting){s->dims.at[i].entry->name, ds_arena_strdup(arena, text.text)};
        ds_buf_deinit(&text);
    }
}

static ds_attr literal(ds_unit *unit, const ds_num *value) {
    ds_expr_node node = {.kind = value->is_bool               ? DS_EXPR_BOOL
                                 : value->kind == DS_NUM_INT  ? DS_EXPR_INT
                                 : value->kind == DS_NUM_REAL ? DS_EXPR_REAL
                                                              : DS_EXPR_STR,
                         .i = value->i,
                         .r = value->r};
    if (value->kind != DS_NUM_INT) {
        ds_buf text = {0};
        put_num(value, &text);
        node.name = ds_intern(&unit->strings, text.text ? text.text : "");
        ds_buf_deinit(&text);
    }
    if (value->kind == DS_NUM_STR) node.i = 0;
    return (ds_attr){.kind = DS_ATTR_EXPR, .expr = ds_expr_make(&unit->exprs, node)};
}

void ds_space_set_knobs(const ds_space *s, const ds_candidate *c, ds_unit *unit) {
    const ds_sweep_entry *entries = ds_unit_sweep(unit)->entries;
    for (uint32_t i = 0; i < s->dims.n; i++) {
        const ds_knob *knob = s->dims.at[i].target.knob;
        if (!knob) continue;
        const ds_sweep_entry *entry = &entries[s->dims.at[i].entry - s->sweep->entries];
        const ds_attr *item =
            entry->domain == DS_DOMAIN_LIST ? &entry->list.items[c->at[i].item] : NULL;
        ds_scenario_set(unit, knob->section, knob->name,
                        item && item->kind != DS_ATTR_EXPR ? *item
                                                           : literal(unit, &c->at[i].value));
    }
}
