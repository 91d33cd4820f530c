/* All spans of a run as one tree in which equal bodies are stored once.
 *
 * The tasks of a stream are visited in order of time, and the scopes around a task (calls, turns of
 * loops) are the path to its leaf. A node is the list of its children, each with the gap since the
 * end of the child before, so two turns of a layer that take the same times are the same node, and
 * so are two microbatches. A reader finds the start of a span by adding up on the way down:
 *
 *     nodes    [gap, child, name, gap, child, name, …]   child ≥ 0: a node; else leaf -1 - child
 *     leaves   [op, ps]; of the critical path [op, ps, kind, wait, class]
 *     ops      [mnemonic, path, family or axes, derivation, flop, bytes, origin or algorithm, group]
 *
 * Numbers in place of texts are places in `names`. The same tree holds the critical path, whose
 * segments follow each other without gaps.
 *
 * Beyond the budget a stream goes on with its outermost calls alone. */
#include "ir/base/map.h"
#include "ir/ops/ops.h"
#include "sim/report/internal.h"

#include <stdlib.h>

/* A scope whose end has not come yet. */
typedef struct open_node {
    uint32_t scope;
    int64_t start_ps, end_ps; /* so far */
    ds_buf edges;
} open_node;

typedef struct tree {
    const ds_result *result;
    const ds_plan *plan;
    ds_strtab texts;
    ds_map name_of;  /* interned text → name */
    ds_map known;    /* hash of an op's, a leaf's or a node's JSON → number */
    ds_map op_of;    /* record and class, or group → op */
    uint32_t *scope; /* by scope: name + 1; 0: not asked for yet */
    ds_buf names, ops, leaves, nodes;
    uint32_t n_names, n_ops, n_leaves, n_nodes;
    size_t text_bytes, most_bytes; /* derivations; of everything */
    bool lacks_texts;
    DS_VEC(open_node) open;
} tree;

static size_t size_of(const tree *t) {
    return t->names.n + t->ops.n + t->leaves.n + t->nodes.n;
}

/* ---- tables: each text, op, leaf and node once ---- */

static uint32_t name(tree *t, const char *text) {
    const char *interned = ds_intern(&t->texts, text);
    uint64_t *found = ds_map_find(&t->name_of, DS_KEY(interned));
    if (found) return (uint32_t)*found;
    ds_json json;
    if (t->n_names) ds_buf_putc(&t->names, ',');
    ds_json_init(&json, &t->names, 0);
    ds_json_string(&json, text);
    ds_map_put(&t->name_of, DS_KEY(interned), t->n_names);
    return t->n_names++;
}

/* The number of the row `text` in a table; `salt` tells tables apart. Frees `text`. */
static uint32_t row(tree *t, uint64_t salt, ds_buf *text, ds_buf *table, uint32_t *n) {
    uint64_t key = ds_hash_mix(ds_hash_bytes(text->text, text->n), salt);
    uint64_t *found = ds_map_find(&t->known, key);
    uint32_t number = found ? (uint32_t)*found : *n;
    if (!found) {
        ds_map_put(&t->known, key, number);
        ds_buf_printf(table, "%s[", *n ? "," : "");
        ds_buf_put_n(table, text->text, text->n);
        ds_buf_putc(table, ']');
        ++*n;
    }
    ds_buf_deinit(text);
    return number;
}

static uint32_t scope_name(tree *t, uint32_t scope) {
    if (t->scope[scope]) return t->scope[scope] - 1;
    ds_buf text = {0};
    ds_item_call item;
    const ds_scope *s = &t->plan->scopes.at[scope];
    bool outermost = s->up == DS_NONE || t->plan->scopes.at[s->up].op == NULL;
    if (outermost && ds_item_call_of(t->result, scope, &item))
        ds_report__put_item(&item, &text);
    else
        ds_plan_scope_name(t->plan, scope, &text);
    uint32_t number = name(t, text.text);
    ds_buf_deinit(&text);
    t->scope[scope] = number + 1;
    return number;
}

/* The derivation of a cost, while there is room for it. */
static uint32_t derivation(tree *t, uint32_t task) {
    ds_buf text = {0};
    if (t->text_bytes < t->most_bytes / 3) {
        uint32_t before = t->n_names;
        ds_report__explain_task(t->plan, task, &text);
        uint32_t number = name(t, text.n ? text.text : "");
        if (t->n_names > before) t->text_bytes += text.n;
        ds_buf_deinit(&text);
        return number;
    }
    t->lacks_texts = true;
    return name(t, "");
}

/* The names are numbered one after the other, whatever the order in which arguments are evaluated. */
static void put_op(tree *t, uint32_t task, ds_buf *out) {
    const ds_plan *plan = t->plan;
    uint32_t inst = plan->task_inst[task];
    const ds_record *record = ds_plan_task_record(plan, task);
    const ds_group *group = ds_report__group(plan, task);
    const ds_op_desc *desc = ds_op_desc_of(record->op->code);
    const ds_variant *v = group ? NULL : ds_plan_task_variant(plan, task);
    ds_buf path = {0}, what = {0};
    ds_report__op_path(t->result, inst, &path);
    if (group)
        ds_report__over(plan, task, &what);
    else
        ds_buf_put(&what, desc ? desc->family : record->label);
    uint32_t label = name(t, record->label), where = name(t, path.text);
    uint32_t family = name(t, what.text), why = derivation(t, task);
    uint32_t by =
        name(t, group ? ds_report__algorithm(group) : ds_cost_origin_name(v->cost.origin));
    long long bytes = group ? group->bytes : v->work.bytes_read + v->work.bytes_written;
    ds_buf_printf(out, "%u,%u,%u,%u,%lld,%lld,%u,%u", label, where, family, why,
                  group ? 0 : (long long)v->work.flop, bytes, by, group ? group->n_devices : 0);
    ds_buf_deinit(&path);
    ds_buf_deinit(&what);
}

static uint32_t op_of(tree *t, uint32_t task) {
    const ds_plan *plan = t->plan;
    const ds_group *group = ds_report__group(plan, task);
    uint64_t key = ds_hash_mix(DS_KEY(ds_plan_task_record(plan, task)),
                               group ? DS_KEY(group) : plan->task_class[task]);
    uint64_t *found = ds_map_find(&t->op_of, key);
    if (found) return (uint32_t)*found;
    ds_buf text = {0};
    put_op(t, task, &text);
    uint32_t number = row(t, 1, &text, &t->ops, &t->n_ops);
    ds_map_put(&t->op_of, key, number);
    return number;
}

static uint32_t leaf(tree *t, ds_buf *text) {
    return row(t, 2, text, &t->leaves, &t->n_leaves);
}

/* ---- the nodes that are open ---- */

static void add_edge(open_node *to, int64_t start_ps, int64_t end_ps, int64_t child,
                     uint32_t label) {
    if (to->edges.n) ds_buf_putc(&to->edges, ',');
    ds_buf_put_int(&to->edges, start_ps - to->end_ps);
    ds_buf_putc(&to->edges, ',');
    ds_buf_put_int(&to->edges, child);
    ds_buf_putc(&to->edges, ',');
    ds_buf_put_int(&to->edges, label);
    to->end_ps = end_ps;
}

static void open_at(tree *t, uint32_t scope, int64_t start_ps) {
    DS_HPUSH(&t->open, ((open_node){.scope = scope, .start_ps = start_ps, .end_ps = start_ps}));
}

/* The number of the last open node, which is an edge of the one around it from now on. */
static uint32_t close_last(tree *t) {
    open_node *last = &t->open.at[--t->open.n];
    if (!last->edges.n) ds_buf_put(&last->edges, "");
    int64_t start = last->start_ps, end = last->end_ps;
    uint32_t scope = last->scope, number = row(t, 3, &last->edges, &t->nodes, &t->n_nodes);
    if (t->open.n) add_edge(&t->open.at[t->open.n - 1], start, end, number, scope_name(t, scope));
    return number;
}

/* Closes and opens until the open nodes are the first `most` scopes around `scope`. */
static void enter(tree *t, uint32_t scope, uint32_t most, int64_t start_ps) {
    uint32_t chain[256], n = 0, same = 1;
    for (uint32_t s = scope; s != DS_NONE && n < 256; s = t->plan->scopes.at[s].up) chain[n++] = s;
    uint32_t first = n > most ? n - most : 0;
    while (same < t->open.n && same - 1 < n - first && t->open.at[same].scope == chain[n - same])
        same++;
    while (t->open.n > same) close_last(t);
    for (uint32_t i = t->open.n - 1; i < n - first; i++) open_at(t, chain[n - 1 - i], start_ps);
}

static void put_leaf(tree *t, uint32_t task, int64_t start_ps, int64_t end_ps, uint32_t number) {
    uint32_t inst = t->plan->task_inst[task];
    enter(t, t->plan->insts.at[inst].scope, UINT32_MAX, start_ps);
    add_edge(&t->open.at[t->open.n - 1], start_ps, end_ps, -1 - (int64_t)number,
             name(t, ds_plan_inst_name(t->plan, inst)));
}

static uint32_t close_all(tree *t) {
    uint32_t number = 0;
    while (t->open.n) number = close_last(t);
    return number;
}

/* ---- streams ---- */

/* One leaf for the tasks of an outermost call that follow each other, without an op. */
typedef struct coarse {
    uint32_t scope;
    int64_t start_ps, end_ps;
    bool any;
} coarse;

static void put_coarse(tree *t, coarse *c) {
    if (!c->any) return;
    ds_buf text = {0};
    ds_buf_printf(&text, "-1,%lld", (long long)(c->end_ps - c->start_ps));
    uint32_t number = leaf(t, &text);
    enter(t, c->scope, 1, c->start_ps);
    add_edge(&t->open.at[t->open.n - 1], c->start_ps, c->end_ps, -1 - (int64_t)number,
             scope_name(t, c->scope));
    c->any = false;
}

/* The scope below the outermost around the task: a call or turn of the step. */
static uint32_t outer_scope(const ds_plan *plan, uint32_t task) {
    uint32_t s = plan->insts.at[plan->task_inst[task]].scope, below = s;
    for (; plan->scopes.at[s].up != DS_NONE; s = plan->scopes.at[s].up) below = s;
    return below;
}

static void add_coarse(tree *t, coarse *c, uint32_t task, int64_t start_ps, int64_t end_ps) {
    uint32_t scope = outer_scope(t->plan, task);
    if (c->any && c->scope != scope) put_coarse(t, c);
    if (!c->any) *c = (coarse){scope, start_ps, end_ps, true};
    c->end_ps = end_ps;
}

/* The root of the stream's tree; *whole: all its tasks are in it. */
static uint32_t put_stream(tree *t, const ds_stream *stream, bool *whole) {
    coarse c = {.any = false};
    open_at(t, DS_NONE, 0);
    for (uint32_t i = 0; i < stream->n; i++) {
        uint32_t task = t->plan->stream_tasks[stream->first + i];
        int64_t start = t->result->run.start_ps[task], end = t->result->run.end_ps[task];
        if (start == end) continue; /* nothing to see */
        if (size_of(t) > t->most_bytes) {
            *whole = false;
            add_coarse(t, &c, task, start, end);
            continue;
        }
        ds_buf text = {0};
        ds_buf_printf(&text, "%u,%lld", op_of(t, task), (long long)(end - start));
        put_leaf(t, task, start, end, leaf(t, &text));
    }
    put_coarse(t, &c);
    return close_all(t);
}

static void put_class(tree *t, uint32_t cls, uint32_t stage, char *const *stream_names,
                      ds_json *json, ds_buf *dropped) {
    const ds_plan *plan = t->plan;
    bool whole = true;
    ds_json_begin_object(json);
    ds_json_key_int(json, "cls", cls);
    ds_json_key_string(json, "device", ds_report__device(plan, cls));
    ds_json_key_int(json, "n", plan->classes[cls].n_devices);
    ds_json_key_string(json, "kind", ds_report__kind(plan, cls));
    if (stage != DS_NONE) ds_json_key_int(json, "stage", stage);
    ds_json_key(json, "streams");
    ds_json_begin_array(json);
    for (uint32_t s = 0; s < plan->n_streams; s++) {
        if (plan->streams[s].cls != cls) continue;
        ds_json_begin_object(json);
        ds_json_key_string(json, "name", stream_names[s]);
        ds_json_key_int(json, "root", put_stream(t, &plan->streams[s], &whole));
        ds_json_end_object(json);
    }
    ds_json_end_array(json);
    ds_json_key_bool(json, "whole", whole);
    ds_json_end_object(json);
    if (!whole)
        ds_buf_printf(dropped,
                      "Single operations of %s are left out in part: only its calls are "
                      "drawn.\n",
                      ds_report__device(plan, cls));
}

/* ---- the critical path ---- */

static uint32_t put_path(tree *t, ds_buf *dropped) {
    ds_critical_path path;
    ds_critical_path_find(t->result, &path);
    int64_t at_ps = 0;
    bool whole = true;
    coarse c = {.any = false};
    open_at(t, DS_NONE, 0);
    for (uint32_t i = 0; i < path.n; i++) {
        const ds_segment *s = &path.at[i];
        int64_t start = at_ps;
        at_ps += ds_segment_ps(s);
        if (size_of(t) > t->most_bytes) {
            whole = false;
            add_coarse(t, &c, s->task, start, at_ps);
            continue;
        }
        ds_buf text = {0};
        ds_buf_printf(&text, "%u,%lld,%d,%d,%u", op_of(t, s->task), (long long)(at_ps - start),
                      (int)s->kind, (int)s->waited_for, t->plan->task_class[s->task]);
        put_leaf(t, s->task, start, at_ps, leaf(t, &text));
    }
    put_coarse(t, &c);
    ds_critical_path_deinit(&path);
    if (!whole) ds_buf_put(dropped, "The end of the critical path is drawn by calls alone.\n");
    return close_all(t);
}

/* ---- all ---- */

enum { MOST_CLASSES = 64 };

static void put_words(ds_json *json) {
    ds_json_key(json, "kinds");
    ds_json_begin_array(json);
    for (int k = 0; k < DS_TIME_KIND_COUNT; k++)
        ds_json_string(json, ds_time_kind_name((ds_time_kind)k));
    ds_json_end_array(json);
    ds_json_key(json, "waits");
    ds_json_begin_array(json);
    for (int k = 0; k < DS_WAIT_COUNT; k++) ds_json_string(json, ds_wait_name((ds_wait)k));
    ds_json_end_array(json);
}

static void put_table(ds_json *json, const char *key, ds_buf *table) {
    ds_buf text = {0};
    ds_buf_putc(&text, '[');
    if (table->n) ds_buf_put_n(&text, table->text, table->n);
    ds_buf_putc(&text, ']');
    ds_json_key(json, key);
    ds_json_raw(json, text.text);
    ds_buf_deinit(&text);
    ds_buf_deinit(table);
}

/* The critical class and the path come first, so that they are whole if anything is. */
static void put_timeline(tree *t, ds_json *json, ds_buf *dropped) {
    const ds_plan *plan = t->plan;
    ds_stages stages;
    ds_stages_find(t->result, &stages);
    char **names = ds_report__stream_names(plan);
    uint32_t n = plan->n_classes < MOST_CLASSES ? plan->n_classes : MOST_CLASSES, path = 0;
    ds_json_key(json, "timeline");
    ds_json_begin_array(json);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t cls = i == 0 ? t->result->critical : i <= t->result->critical ? i - 1 : i;
        uint32_t stage = stages.by_class ? DS_NONE : stages.of_device[plan->classes[cls].device];
        put_class(t, cls, stage, names, json, dropped);
        if (!i) path = put_path(t, dropped);
    }
    ds_json_end_array(json);
    ds_json_key_int(json, "path", path);
    if (n < plan->n_classes)
        ds_buf_printf(dropped, "%u of %u device classes are not drawn.\n", plan->n_classes - n,
                      plan->n_classes);
    ds_report__free_names(names, plan->n_streams);
    ds_stages_deinit(&stages);
}

void ds_report__put_spans(const ds_result *r, uint32_t most_bytes, ds_json *json, ds_buf *dropped) {
    tree t = {.result = r, .plan = r->plan, .most_bytes = most_bytes};
    ds_strtab_init(&t.texts);
    ds_map_init(&t.name_of);
    ds_map_init(&t.known);
    ds_map_init(&t.op_of);
    t.scope = ds_xcalloc(r->plan->scopes.n, sizeof *t.scope);
    put_timeline(&t, json, dropped);
    if (t.lacks_texts) ds_buf_put(dropped, "Derivations of some costs are left out.\n");
    ds_json_key(json, "tree");
    ds_json_begin_object(json);
    put_words(json);
    put_table(json, "names", &t.names);
    put_table(json, "ops", &t.ops);
    put_table(json, "leaves", &t.leaves);
    put_table(json, "nodes", &t.nodes);
    ds_json_end_object(json);
    free(t.open.at);
    free(t.scope);
    ds_map_deinit(&t.op_of);
    ds_map_deinit(&t.known);
    ds_map_deinit(&t.name_of);
    ds_strtab_deinit(&t.texts);
}
