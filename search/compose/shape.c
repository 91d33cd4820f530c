/* What a template's parts consist of: turns of the loop over layers and what stands around them,
 * kinds of communication, inputs of a turn. */
#include "search/compose/template.h"

#include <stdlib.h>
#include <string.h>

bool ds_template__unknown(ds_template *t, const char *why) {
    if (!t->why) t->why = why;
    return false;
}

uint32_t ds_template__source_part(const ds_sibling *s, const ds_part *from,
                                  const ds_source *source) {
    uint32_t chunk = (uint32_t)source->chunk, turn = source->turn;
    if (source->is_relative) chunk += from->group % s->n_chunks;
    uint32_t group = source->kind * s->n_chunks + chunk;
    if (source->when == DS_PREV) turn = (uint32_t)from->turn - source->turn;
    if (source->when == DS_SAME)
        for (turn = 0; turn < s->n_turns; turn++)
            if (s->parts[group * DS_SIBLING + turn].mb == from->mb) break;
    uint32_t item = group * DS_SIBLING + turn;
    return source->post < 0 ? item : s->first_post[item] + (uint32_t)source->post;
}

/* ---- loops ---- */

const ds_scope *ds_template__loop_of(ds_template *t, uint32_t inst) {
    const ds_scope *found = NULL;
    uint32_t at = t->plan->insts.at[inst].scope;
    for (; at != DS_NONE; at = t->plan->scopes.at[at].up) {
        const ds_scope *scope = &t->plan->scopes.at[at];
        if (!scope->op || scope->op->code != DS_OP_FOR || strcmp(scope->op->index, t->loop) != 0)
            continue;
        if (found) ds_template__unknown(t, "a loop over layers within another");
        found = scope;
    }
    return found;
}

static uint32_t chunk_of_class(const ds_template *t, uint32_t cls) {
    return t->label_of[cls];
}

static uint32_t chunk_of_unit(const ds_template *t, const ds_part *part, uint32_t unit) {
    const ds_unit_task *u = &part->body->units.at[unit];
    return chunk_of_class(t, part->classes.at[u->cls]);
}

static bool place_units(ds_template *t, uint32_t p) {
    const ds_part *part = &t->s.parts[p];
    ds_outline *shape = &t->shapes[p];
    const ds_scope *last = NULL;
    shape->at = ds_xcalloc(part->body->units.n, sizeof *shape->at);
    for (uint32_t u = 0; u < part->body->units.n; u++) {
        const ds_scope *scope = ds_template__loop_of(t, part->body->units.at[u].inst);
        shape->at[u] = (ds_where){.loop = DS_NONE};
        if (!scope) {
            last = NULL;
            continue;
        }
        if (scope != last && (!last || last->op != scope->op || last->up != scope->up))
            DS_HPUSH(&shape->loops, ((ds_loop){.first = u, .chunk = chunk_of_unit(t, part, u)}));
        ds_loop *loop = &shape->loops.at[shape->loops.n - 1];
        if (scope != last && loop->n_turns++ == DS_FEW)
            return ds_template__unknown(t, "a loop of more turns than layers");
        if (chunk_of_unit(t, part, u) != loop->chunk)
            return ds_template__unknown(t, "a loop over layers of several chunks");
        shape->at[u] =
            (ds_where){shape->loops.n - 1, loop->n_turns - 1, loop->len[loop->n_turns - 1]++};
        last = scope;
    }
    for (uint32_t l = 0; l < shape->loops.n; l++)
        if (shape->loops.at[l].n_turns != t->turns[shape->loops.at[l].chunk])
            return ds_template__unknown(t, "a loop of fewer turns than layers");
    return true;
}

/* ---- belongings ---- */

typedef uint32_t unit_of(const ds_body *body, uint32_t i);

static uint32_t unit_of_alloc(const ds_body *body, uint32_t i) {
    return body->allocs.at[i].unit;
}

static uint32_t unit_of_free(const ds_body *body, uint32_t i) {
    const ds_free *f = &body->frees.at[i];
    uint32_t last = 0;
    for (uint32_t k = f->first; k < f->first + f->n; k++)
        if (body->users.at[k] > last) last = body->users.at[k];
    return last;
}

static uint32_t unit_of_check(const ds_body *body, uint32_t i) {
    uint32_t until = body->checks.at[i].until;
    return until < body->units.n ? until : unit_of_free(body, until - body->units.n);
}

static void collect_belongings(const ds_body *body, uint32_t n, unit_of *of, ds_belongings *out) {
    out->first = ds_xcalloc((size_t)body->units.n + 2, sizeof *out->first);
    out->list = ds_xcalloc(n, sizeof *out->list);
    for (uint32_t i = 0; i < n; i++) out->first[of(body, i) + 2]++;
    for (uint32_t u = 2; u < body->units.n + 2; u++) out->first[u] += out->first[u - 1];
    for (uint32_t i = 0; i < n; i++) out->list[out->first[of(body, i) + 1]++] = i;
}

/* ---- communication ---- */

static uint64_t text_word(const ds_unit *unit, const ds_op *op, const char *name) {
    const char *text = ds_attr_text(&unit->exprs, ds_attr_find(op->attrs, op->n_attrs, name));
    return text ? ds_hash_bytes(text, strlen(text)) | 1 : 0;
}

static uint64_t kind_hash(const ds_template *t, const ds_kind *kind) {
    const ds_op *op = kind->op;
    uint64_t hash = ds_hash_mix(op->code, (uint64_t)kind->bytes), axes = 0;
    for (uint32_t i = 0; i < op->n_over; i++) axes += ds_hash_mix(1, DS_KEY(op->over[i]));
    hash = ds_hash_mix(ds_hash_mix(hash, axes), kind->stream);
    hash = ds_hash_mix(hash, text_word(t->step->unit, op, "algorithm"));
    hash = ds_hash_mix(hash, text_word(t->step->unit, op, "route"));
    return ds_hash_mix(hash, (uint64_t)kind->from << 32 | kind->to);
}

static bool is_over_replicas(const ds_op *op) {
    for (uint32_t i = 0; i < op->n_over; i++)
        if (strcmp(op->over[i], "dp") == 0) return true;
    return false;
}

static bool find_kinds(ds_template *t, uint32_t p, const ds_outline *first, ds_outline *shape) {
    const ds_part *part = &t->s.parts[p];
    shape->kind_of = ds_xcalloc(part->transfers.n, sizeof *shape->kind_of);
    shape->own_of = ds_xcalloc(part->transfers.n, sizeof *shape->own_of);
    for (uint32_t u = 0; u < part->body->units.n; u++) {
        const ds_unit_task *unit = &part->body->units.at[u];
        if (unit->transfer == DS_NONE) continue;
        const ds_activity *a = ds_compose__activity(&t->s, part, unit);
        const ds_record *r = t->plan->records.at[t->plan->insts.at[unit->inst].record];
        const ds_group *g = a->group;
        ds_kind kind = {.op = r->op,
                        .bytes = g->bytes,
                        .stream = r->stream,
                        .from = g->devices[0],
                        .to = g->devices[g->n_devices - 1]};
        if (ds_attr_find(r->op->attrs, r->op->n_attrs, "chunks"))
            return ds_template__unknown(t, "transfers in chunks");
        if (t->few_replicas && r->op->code != DS_OP_ALL_REDUCE && is_over_replicas(r->op))
            return ds_template__unknown(t, "replicas that share something out");
        if (first && is_over_replicas(r->op)) {
            shape->kind_of[unit->transfer] = first[p].kind_of[unit->transfer];
            continue;
        }
        uint64_t hash = kind_hash(t, &kind), *found = ds_map_find(&t->kind_index, hash);
        uint32_t k = found ? (uint32_t)*found : t->kinds.n;
        if (!found) {
            ds_map_put(&t->kind_index, hash, k);
            DS_HPUSH(&t->kinds, kind);
        }
        uint32_t own = 0;
        while (own < shape->kinds.n && shape->kinds.at[own] != k) own++;
        if (own == shape->kinds.n) DS_HPUSH(&shape->kinds, k);
        shape->kind_of[unit->transfer] = k;
        shape->own_of[unit->transfer] = own;
    }
    return true;
}

/* ---- inputs ---- */

static bool is_of_loop(const ds_template *t, const ds_value_info *info) {
    for (uint32_t i = 0; i < info->n_binders; i++)
        if (strcmp(info->binders[i].name, t->loop) == 0) return true;
    return false;
}

void ds_template__weigh_families(const ds_template *t, int64_t *out) {
    const ds_plan *plan = t->plan;
    ds_map families;
    ds_map_init(&families);
    const ds_func *func = t->step->func;
    for (uint32_t i = 0; i < func->n_args; i++) {
        const ds_value_info *info = ds_value_at(func, func->args[i]);
        if (is_of_loop(t, info))
            ds_map_put(&families, ds_hash_bytes(info->name, strlen(info->name)), 1);
    }
    for (uint32_t i = 0; i < plan->insts.n; i++) {
        const ds_inst *inst = &plan->insts.at[i];
        const ds_record *r = plan->records.at[inst->record];
        const ds_vinst *value = &plan->values.at[inst->first_value]; /* w{3}: of the family w */
        if (r->kind != DS_REC_INPUT || value->is_host) continue;
        if (!ds_map_find(&families, ds_hash_bytes(value->name, strcspn(value->name, "{"))))
            continue;
        out[r->classes[0]] += r->variants[r->class_variant[0]].out_bytes[0];
    }
    ds_map_deinit(&families);
}

/* Families over the loop have as many members as the chunk has turns; a chunk is a class. */
static bool share_out_inputs(ds_template *t) {
    const ds_plan *plan = t->plan;
    int64_t all[DS_FEW] = {0};
    ds_template__weigh_families(t, all);
    for (uint32_t c = 0; c < plan->n_classes; c++) {
        uint32_t chunk = chunk_of_class(t, c);
        if (chunk >= t->n_chunks) return ds_template__unknown(t, "devices of no chunk");
        if (t->turns[chunk] > 0 && all[c] % t->turns[chunk])
            return ds_template__unknown(t, "layers whose weights differ");
        t->turn_bytes[chunk] = t->turns[chunk] > 0 ? all[c] / t->turns[chunk] : 0;
        t->once_bytes[chunk] = t->s.input_bytes[c] - all[c];
        t->each_bytes[chunk] = t->s.each_bytes[c];
    }
    return true;
}

void ds_template__belongings(const ds_body *body, ds_outline *out) {
    collect_belongings(body, body->allocs.n, unit_of_alloc, &out->allocs);
    collect_belongings(body, body->frees.n, unit_of_free, &out->frees);
    collect_belongings(body, body->checks.n, unit_of_check, &out->checks);
}

bool ds_template__shape(ds_template *t) {
    t->shapes = ds_xcalloc(t->s.n_parts, sizeof *t->shapes);
    t->label_of = ds_xcalloc(t->plan->n_classes, sizeof *t->label_of);
    for (uint32_t c = 0; c < t->plan->n_classes; c++) t->label_of[c] = t->plan->classes[c].device;
    ds_map_init(&t->kind_index);
    for (uint32_t p = 0; p < t->s.n_parts; p++) {
        const ds_body *body = t->s.parts[p].body;
        if ((!t->exact && !place_units(t, p)) || !find_kinds(t, p, NULL, &t->shapes[p]))
            return false;
        if (!t->exact) ds_template__belongings(body, &t->shapes[p]);
    }
    return !t->why && (t->exact || share_out_inputs(t));
}

bool ds_template__other_kinds(ds_template *t, const ds_outline *first, ds_outline **out) {
    *out = ds_xcalloc(t->s.n_parts, sizeof **out);
    for (uint32_t p = 0; p < t->s.n_parts; p++)
        if (!find_kinds(t, p, first, &(*out)[p])) return false;
    return true;
}

void ds_template__outlines_free(ds_outline *shapes, uint32_t n) {
    for (uint32_t p = 0; shapes && p < n; p++) {
        ds_outline *shape = &shapes[p];
        free(shape->at);
        free(shape->loops.at);
        free(shape->allocs.first);
        free(shape->allocs.list);
        free(shape->frees.first);
        free(shape->frees.list);
        free(shape->checks.first);
        free(shape->checks.list);
        free(shape->kind_of);
        free(shape->own_of);
        free(shape->kinds.at);
    }
    free(shapes);
}

void ds_template__shape_deinit(ds_template *t) {
    ds_template__outlines_free(t->shapes, t->s.n_parts);
    free(t->label_of);
    free(t->kinds.at);
    ds_map_deinit(&t->kind_index);
}
