/* The data of a page about a run, as JSON: the object of --json, and all that pictures need beside
 * it: spans, memory over time, ops against the roofline, traffic, the program after each pass.
 * tools/report draws them. */
#include "ir/base/map.h"
#include "ir/core/type.h"
#include "ir/lang/lang.h"
#include "sim/report/internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- memory over time ---- */

enum {
    MOST_POINTS = 1000, /* of a class; of longer curves the fullest point of each slice stays */
    MOST_CURVES = 16
};

static void put_point(ds_json *json, const ds_memory_walk *walk) {
    int n = ds_mem_n_categories(walk->result->mem.mode);
    ds_json_begin_array(json);
    ds_json_int(json, walk->time_ps);
    for (int k = 0; k < n; k++) ds_json_int(json, walk->by[k]);
    ds_json_end_array(json);
}

static uint32_t count_points(const ds_result *r, uint32_t cls) {
    ds_memory_walk walk;
    uint32_t n = 0;
    ds_report__memory_start(r, cls, &walk);
    while (ds_report__memory_next(&walk)) n++;
    return n;
}

/* [[time_ps, bytes of each category, ...], ...] */
static void put_points(const ds_result *r, uint32_t cls, uint32_t n, ds_json *json) {
    uint32_t slice = (n + MOST_POINTS - 1) / MOST_POINTS, i = 0;
    ds_memory_walk walk, most = {.bytes = -1};
    ds_report__memory_start(r, cls, &walk);
    while (ds_report__memory_next(&walk)) {
        if (walk.bytes > most.bytes) most = walk;
        if (++i % slice && i < n) continue;
        put_point(json, &most);
        most.bytes = -1;
    }
}

static void put_curve(const ds_result *r, uint32_t cls, ds_json *json, ds_buf *dropped) {
    uint32_t n = count_points(r, cls);
    ds_json_begin_object(json);
    ds_json_key_int(json, "cls", cls);
    ds_json_key_string(json, "device", ds_report__device(r->plan, cls));
    ds_json_key_int(json, "capacity", ds_class_capacity(r->plan, cls));
    ds_json_key_int(json, "peak", r->mem.classes[cls].peak_bytes);
    ds_json_key(json, "points");
    ds_json_begin_array(json);
    if (n) put_points(r, cls, n, json);
    ds_json_end_array(json);
    ds_json_end_object(json);
    if (n > MOST_POINTS)
        ds_buf_printf(dropped,
                      "Memory of %s: %u changes are drawn as the fullest moments of %d "
                      "slices.\n",
                      ds_report__device(r->plan, cls), n, MOST_POINTS);
}

/* The fullest class first. */
static void put_memory(const ds_result *r, ds_json *json, ds_buf *dropped) {
    uint32_t n = r->plan->n_classes < MOST_CURVES ? r->plan->n_classes : MOST_CURVES;
    ds_json_key(json, "categories");
    ds_json_begin_array(json);
    for (int k = 0; k < ds_mem_n_categories(r->mem.mode); k++)
        ds_json_string(json, ds_mem_category_name(k));
    ds_json_end_array(json);
    ds_json_key(json, "memory");
    ds_json_begin_array(json);
    for (uint32_t i = 0; i < n; i++)
        put_curve(r, i == 0 ? r->fullest : i <= r->fullest ? i - 1 : i, json, dropped);
    ds_json_end_array(json);
    if (n < r->plan->n_classes)
        ds_buf_printf(dropped, "Memory curves of %u of %u device classes are left out.\n",
                      r->plan->n_classes - n, r->plan->n_classes);
}

/* ---- the roofline ---- */

enum { MOST_OPS = 3000 };

static void put_roof(const ds_device_kind *kind, ds_json *json) {
    ds_json_key(json, "roof");
    ds_json_begin_object(json);
    ds_json_key_string(json, "kind", kind->name);
    ds_json_key_int(json, "bytes_per_s", kind->memory_bytes_per_s);
    ds_json_key(json, "flop_per_s");
    ds_json_begin_object(json);
    for (int d = 0; d < DS_DTYPE_COUNT; d++)
        if (kind->peak_flop_per_s[d] > 0)
            ds_json_key_double(json, ds_dtype_name((ds_dtype)d), kind->peak_flop_per_s[d]);
    ds_json_end_object(json);
    ds_json_end_object(json);
}

/* Compute ops of the critical class: [mnemonic, path, count, ps, flop, bytes, dtype, origin]. */
static void put_intensities(const ds_result *r, ds_json *json, ds_buf *dropped) {
    uint32_t n, shown = 0;
    ds_op_total *ops = ds_report__ops(r, r->critical, &n);
    put_roof(ds_profiles_kind(r->plan->profiles, r->plan->classes[r->critical].kind), json);
    ds_json_key(json, "intensity");
    ds_json_begin_array(json);
    for (uint32_t i = 0; i < n && shown < MOST_OPS; i++) {
        if (ops[i].group || ops[i].ps == 0) continue;
        ds_buf path = {0};
        uint32_t pos = ds_record_class_pos(ops[i].record, r->critical);
        const ds_variant *v = &ops[i].record->variants[ops[i].record->class_variant[pos]];
        ds_report__op_path(r, ops[i].inst, &path);
        ds_json_begin_array(json);
        ds_json_string(json, ops[i].record->label);
        ds_json_string(json, path.text);
        ds_json_int(json, ops[i].n);
        ds_json_int(json, ops[i].ps);
        ds_json_double(json, ops[i].flop);
        ds_json_double(json, ops[i].memory_bytes);
        ds_json_string(json, ds_dtype_name(v->work.dtype));
        ds_json_string(json, ds_cost_origin_name(v->cost.origin));
        ds_json_end_array(json);
        ds_buf_deinit(&path);
        shown++;
    }
    ds_json_end_array(json);
    if (shown == MOST_OPS)
        ds_buf_printf(dropped, "The roofline has the %d longest operations.\n", MOST_OPS);
    free(ops);
}

/* ---- the program after each pass ---- */

enum { MOST_PROGRAM_BYTES = 800000 };

typedef struct programs {
    ds_strtab texts;
    ds_map line_of;
    ds_buf lines, passes; /* JSON of distinct lines; of the passes, lists of their lines */
    uint32_t n_lines;
    uint32_t n_left_out;
} programs;

static uint32_t line(programs *p, const char *text, size_t n) {
    const char *interned = ds_intern_n(&p->texts, text, n);
    uint64_t *found = ds_map_find(&p->line_of, DS_KEY(interned));
    if (found) return (uint32_t)*found;
    ds_json json;
    if (p->n_lines) ds_buf_putc(&p->lines, ',');
    ds_json_init(&json, &p->lines, 0);
    ds_json_string(&json, interned);
    ds_map_put(&p->line_of, DS_KEY(interned), p->n_lines);
    return p->n_lines++;
}

/* Bytes that the text adds to the page: lines that are there already cost their number alone. */
static size_t added_bytes(programs *p, const char *text) {
    size_t bytes = 0;
    while (*text) {
        size_t n = strcspn(text, "\n");
        const char *interned = ds_intern_n(&p->texts, text, n);
        bytes += ds_map_find(&p->line_of, DS_KEY(interned)) ? 6 : n + 9;
        text += n + (text[n] == '\n');
    }
    return bytes;
}

static void add_program(programs *p, const char *name, const ds_module *module) {
    ds_buf text = {0};
    ds_print_module(module, &text);
    if (p->lines.n + p->passes.n + added_bytes(p, text.text) > MOST_PROGRAM_BYTES) {
        p->n_left_out++;
        ds_buf_deinit(&text);
        return;
    }
    ds_buf_printf(&p->passes, "%s[\"%s\",[", p->passes.n ? "," : "", name);
    for (const char *at = text.text; at && *at;) {
        size_t n = strcspn(at, "\n");
        ds_buf_printf(&p->passes, "%s%u", at == text.text ? "" : ",", line(p, at, n));
        at += n + (at[n] == '\n');
    }
    ds_buf_put(&p->passes, "]]");
    ds_buf_deinit(&text);
}

static ds_status observe(void *context, const ds_model_step *step, ds_pass_id pass, ds_error *err) {
    (void)err;
    add_program(context, ds_pass_name(pass), step->unit->modules.at[0]);
    return DS_OK;
}

static void put_array(ds_json *json, const char *key, const ds_buf *items) {
    ds_buf text = {0};
    ds_buf_printf(&text, "[%s]", items->n ? items->text : "");
    ds_json_key(json, key);
    ds_json_raw(json, text.text);
    ds_buf_deinit(&text);
}

/* "programs": {"lines": [text, ...], "passes": [[name, [line, ...]], ...]}. The passes run once
 * more; they have run before, so they do not fail. */
static void put_programs(const ds_result *r, ds_json *json, ds_buf *dropped) {
    programs p = {.n_lines = 0};
    ds_model_step *step = NULL;
    ds_strtab_init(&p.texts);
    ds_map_init(&p.line_of);
    add_program(&p, "source", r->source->unit->modules.at[0]);
    if (r->step && ds_model_step_new(r->source, &step, NULL) == DS_OK &&
        ds_model_step_run_to(step, DS_PASS_OVERLAP, observe, &p, NULL) != DS_OK)
        p.n_left_out++;
    ds_model_step_free(step);
    ds_json_key(json, "programs");
    ds_json_begin_object(json);
    put_array(json, "lines", &p.lines);
    put_array(json, "passes", &p.passes);
    ds_json_end_object(json);
    if (p.n_left_out)
        ds_buf_printf(dropped,
                      "The programs after %u passes are left out: distsim opt prints "
                      "them.\n",
                      p.n_left_out);
    ds_buf_deinit(&p.lines);
    ds_buf_deinit(&p.passes);
    ds_map_deinit(&p.line_of);
    ds_strtab_deinit(&p.texts);
}

/* ---- all ---- */

static void put_dropped(ds_json *json, const ds_buf *dropped) {
    ds_json_key(json, "dropped");
    ds_json_begin_array(json);
    for (const char *at = dropped->text; at && *at;) {
        size_t n = strcspn(at, "\n");
        char *line_text = ds_xmalloc(n + 1);
        memcpy(line_text, at, n);
        line_text[n] = '\0';
        ds_json_string(json, line_text);
        free(line_text);
        at += n + (at[n] == '\n');
    }
    ds_json_end_array(json);
}

void ds_report_page(const ds_result *r, const char *name, uint32_t most_bytes, ds_json *json) {
    ds_buf dropped = {0};
    ds_json_begin_object(json);
    ds_json_key_string(json, "name", name);
    ds_json_key(json, "run");
    ds_report__put_run(r, false, json);
    put_memory(r, json, &dropped);
    put_intensities(r, json, &dropped);
    ds_report__put_links(r, json, &dropped);
    put_programs(r, json, &dropped);
    ds_report__put_spans(r, most_bytes / 2, json, &dropped);
    put_dropped(json, &dropped);
    ds_json_end_object(json);
    ds_buf_deinit(&dropped);
}
