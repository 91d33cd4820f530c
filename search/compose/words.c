/* What is left of a template's step when its parts have been read: a unit with the ops that its
 * kinds of communication are of, and the scenario's entries that costs depend on. A skeleton asks
 * for no more (ds_plan_meet), and a program is a hundred times as large. */
#include "search/compose/template.h"

#include "ir/passes/build/clone.h"
#include "ir/strategy/scenario.h"

#include <string.h>

static ds_expr plain(void *context, ds_expr e) {
    return ds_clone_expr(context, e);
}

static void keep_attrs(ds_cloner *c, const ds_attr *attrs, uint32_t n, ds_attr *out) {
    const ds_module *module = c->source->unit->modules.at[0];
    for (uint32_t i = 0; i < n; i++) ds_clone_attr(c, module, &attrs[i], plain, c, &out[i]);
}

static const ds_op *keep_op(ds_cloner *c, const ds_op *from) {
    ds_op *op = DS_NEW(&c->unit->arena, ds_op);
    *op = (ds_op){.code = from->code,
                  .loc = ds_clone_loc(c, from->loc),
                  .n_over = from->n_over,
                  .across = from->across,
                  .n_attrs = from->n_attrs};
    op->over = DS_NEW_N(&c->unit->arena, const char *, from->n_over + 1);
    for (uint32_t i = 0; i < from->n_over; i++) op->over[i] = ds_clone_text(c, from->over[i]);
    op->attrs = DS_NEW_N(&c->unit->arena, ds_attr, from->n_attrs + 1);
    keep_attrs(c, from->attrs, from->n_attrs, op->attrs);
    return op;
}

/* Not what is run where: functions and meshes stay behind. */
static void keep_scenario(ds_cloner *c) {
    const ds_scenario *from = ds_unit_scenario(c->source->unit);
    ds_scenario kept = {.loc = ds_clone_loc(c, from->loc)};
    kept.entries = DS_NEW_N(&c->unit->arena, ds_attr, from->n_entries + 1);
    for (uint32_t i = 0; i < from->n_entries; i++)
        if (from->entries[i].kind != DS_ATTR_PLACE)
            keep_attrs(c, &from->entries[i], 1, &kept.entries[kept.n_entries++]);
    DS_PUSH(&c->unit->arena, &c->module->scenarios, kept);
}

ds_status ds_template__keep_words(ds_template *t, ds_error *err) {
    ds_cloner c;
    ds_clone_init(&c, &t->step->binding);
    t->words = c.unit;
    for (uint32_t k = 0; k < t->kinds.n; k++) t->kinds.at[k].op = keep_op(&c, t->kinds.at[k].op);
    keep_scenario(&c);
    ds_clone_deinit(&c);
    return ds_bind(t->words, NULL, 0, &t->binding, err);
}

static size_t bytes_of_body(const ds_body *b) {
    return sizeof *b + b->units.cap * sizeof *b->units.at + b->slots.cap * sizeof *b->slots.at +
           b->preds.cap * sizeof *b->preds.at + b->exts.cap * sizeof *b->exts.at +
           b->allocs.cap * sizeof *b->allocs.at + b->frees.cap * sizeof *b->frees.at +
           b->users.cap * sizeof *b->users.at + b->checks.cap * sizeof *b->checks.at;
}

static size_t bytes_of_sibling(const ds_sibling *s) {
    size_t bytes = s->cap_parts * sizeof *s->parts, units = 0;
    for (uint32_t i = 0; i < s->bodies.n; i++) {
        bytes += bytes_of_body(s->bodies.at[i]);
        units += s->bodies.at[i]->units.n;
    }
    return bytes + units * (sizeof(ds_where) + 3 * sizeof(uint32_t)); /* outlines */
}

size_t ds_template__bytes(const ds_template *t) {
    size_t bytes = bytes_of_sibling(&t->s) + (t->words ? t->words->arena.bytes : 0);
    for (uint32_t i = 0; t->others && i + 1 < t->replicas.n; i++)
        bytes += bytes_of_sibling(&t->others[i]);
    return bytes;
}
