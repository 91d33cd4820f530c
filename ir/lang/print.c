/* The printer's core: layout, comments, attributes; and the items of a file. */
#include "ir/lang/print_internal.h"

#include "ir/lang/lang.h"

#include <inttypes.h>
#include <string.h>

/* ---- layout ---- */

void ds_printer_put(ds_printer *p, const char *text) {
    ds_buf_put(p->out, text);
}

void ds_printer_indent(ds_printer *p) {
    for (uint32_t k = 0; k < p->depth; k++) ds_buf_put(p->out, "  ");
}

void ds_printer_expr(ds_printer *p, ds_expr e) {
    ds_expr_print(p->exprs, e, p->out);
}

void ds_printer_range(ds_printer *p, ds_expr lo, ds_expr hi) {
    ds_printer_expr(p, lo);
    ds_printer_put(p, "..");
    ds_printer_expr(p, hi);
}

void ds_printer_string(ds_printer *p, const char *text) {
    ds_buf_put_quoted(p->out, text);
}

void ds_printer_comma(ds_printer *p, uint32_t k) {
    if (k > 0) ds_printer_put(p, ", ");
}

/* ---- comments ---- */

static void print_comment(ds_printer *p, const char *text) {
    ds_printer_put(p, "//");
    if (strcmp(text, " ") != 0) ds_printer_put(p, text);
}

static void print_leading(ds_printer *p, const ds_trivia *trivia) {
    if (p->plain) return;
    if (trivia->blank_before) ds_printer_put(p, "\n");
    for (uint32_t k = 0; k < trivia->n_comments; k++) {
        if (*trivia->comments[k]) {
            ds_printer_indent(p);
            print_comment(p, trivia->comments[k]);
        }
        ds_printer_put(p, "\n");
    }
}

static void end_line(ds_printer *p, const char *comment) {
    if (comment && !p->plain) {
        ds_printer_put(p, "  ");
        print_comment(p, comment);
    }
    ds_printer_put(p, "\n");
}

void ds_printer_begin(ds_printer *p, const ds_trivia *trivia) {
    print_leading(p, trivia);
    ds_printer_indent(p);
}

void ds_printer_end(ds_printer *p, const ds_trivia *trivia) {
    end_line(p, trivia->trailing);
}

void ds_printer_open(ds_printer *p, const ds_trivia *trivia) {
    ds_printer_put(p, " {");
    end_line(p, trivia->opening);
    p->depth++;
}

void ds_printer_close(ds_printer *p, const ds_trivia *dangling) {
    print_leading(p, dangling);
    p->depth--;
    ds_printer_indent(p);
    ds_printer_put(p, "}");
}

/* ---- attributes ---- */

static void print_items(ds_printer *p, const ds_attr *attrs, uint32_t n) {
    for (uint32_t k = 0; k < n; k++) {
        ds_printer_comma(p, k);
        ds_printer_attr(p, &attrs[k]);
    }
}

static void print_list(ds_printer *p, const ds_attr *attr) {
    ds_printer_put(p, "[");
    for (uint32_t k = 0; k < attr->n_items; k++) {
        ds_printer_comma(p, k);
        ds_printer_value(p, &attr->items[k]);
    }
    ds_printer_put(p, "]");
}

static void print_block(ds_printer *p, const ds_attr *attr) {
    if (!attr->multiline) {
        ds_printer_put(p, attr->n_items ? "{ " : "{");
        print_items(p, attr->items, attr->n_items);
        ds_printer_put(p, attr->n_items ? " }" : "}");
        return;
    }
    ds_printer_put(p, "{");
    end_line(p, attr->trivia.opening);
    p->depth++;
    ds_printer_entries(p, attr->items, attr->n_items);
    ds_printer_close(p, &attr->dangling);
}

static void print_call(ds_printer *p, const ds_attr *attr) {
    ds_printer_put(p, attr->word);
    ds_printer_put(p, "(");
    print_items(p, attr->items, attr->n_items);
    ds_printer_put(p, ")");
}

/* Bare where it reads back as a word: a text that was parsed has no param of that name above it,
 * but a module that passes made may. */
static void print_word(ds_printer *p, const char *word) {
    for (uint32_t k = 0; k < p->n_params; k++)
        if (strcmp(p->params[k].name, word) == 0) {
            ds_printer_string(p, word);
            return;
        }
    ds_printer_put(p, word);
}

/* x or [x, y]: always words. */
static void print_axes(ds_printer *p, const ds_attr *factor) {
    if (factor->kind == DS_ATTR_WORD) {
        ds_printer_put(p, factor->word);
        return;
    }
    ds_printer_put(p, "[");
    for (uint32_t k = 0; k < factor->n_items; k++) {
        ds_printer_comma(p, k);
        ds_printer_put(p, factor->items[k].word);
    }
    ds_printer_put(p, "]");
}

static void print_override(ds_printer *p, const ds_attr *attr) {
    ds_printer_put(p, "on ");
    ds_place_print(p->exprs, &attr->place, p->out);
    if (!attr->n_items) return;
    ds_printer_put(p, " [");
    for (uint32_t k = 0; k < attr->n_items; k++) {
        ds_printer_comma(p, k);
        ds_printer_put(p, attr->items[k].name);
        ds_printer_put(p, ": ");
        print_axes(p, &attr->items[k]);
    }
    ds_printer_put(p, "]");
}

void ds_printer_value(ds_printer *p, const ds_attr *attr) {
    switch (attr->kind) {
    case DS_ATTR_EXPR:
        ds_printer_expr(p, attr->expr);
        break;
    case DS_ATTR_BOOL:
        ds_printer_put(p, attr->flag ? "true" : "false");
        break;
    case DS_ATTR_WORD:
        print_word(p, attr->word);
        break;
    case DS_ATTR_QUANTITY:
        ds_printer_expr(p, attr->expr);
        ds_printer_put(p, " ");
        ds_printer_put(p, ds_unit_text(attr->unit));
        break;
    case DS_ATTR_PLACE:
        if (attr->is_override)
            print_override(p, attr);
        else
            ds_place_print(p->exprs, &attr->place, p->out);
        break;
    case DS_ATTR_LIST:
        print_list(p, attr);
        break;
    case DS_ATTR_BLOCK:
        if (attr->word && !attr->labelled)
            print_call(p, attr);
        else
            print_block(p, attr);
        break;
    }
}

void ds_printer_attr(ds_printer *p, const ds_attr *attr) {
    if (attr->labelled) {
        ds_printer_put(p, attr->word);
        ds_printer_put(p, " ");
    }
    if (attr->quoted_name)
        ds_printer_string(p, attr->name);
    else
        ds_printer_put(p, attr->name);
    bool block = attr->kind == DS_ATTR_BLOCK && (attr->labelled || !attr->word);
    ds_printer_put(p, block ? " " : " = ");
    ds_printer_value(p, attr);
}

void ds_printer_attrs(ds_printer *p, const ds_attr *attrs, uint32_t n) {
    if (!n) return;
    ds_printer_put(p, " {");
    print_items(p, attrs, n);
    ds_printer_put(p, "}");
}

void ds_printer_entries(ds_printer *p, const ds_attr *attrs, uint32_t n) {
    for (uint32_t k = 0; k < n; k++) {
        ds_printer_begin(p, &attrs[k].trivia);
        ds_printer_attr(p, &attrs[k]);
        ds_printer_end(p, &attrs[k].trivia);
    }
}

void ds_printer_steps(ds_printer *p, const ds_step *steps, uint32_t n) {
    for (uint32_t k = 0; k < n; k++) {
        if (k > 0) ds_printer_put(p, ".");
        ds_printer_put(p, steps[k].name);
        if (!DS_HAS_EXPR(steps[k].index)) continue;
        ds_printer_put(p, "[");
        ds_printer_expr(p, steps[k].index);
        ds_printer_put(p, "]");
    }
}

/* ---- items of a file ---- */

static void print_import(ds_printer *p, const ds_import *import) {
    ds_printer_begin(p, &import->trivia);
    ds_printer_put(p, "import ");
    if (!p->plain) ds_printer_string(p, import->path);
    if (import->alias) ds_buf_printf(p->out, " as %s", import->alias);
    if (import->n_with) {
        ds_printer_put(p, " with ");
        print_items(p, import->with, import->n_with);
    }
    ds_printer_end(p, &import->trivia);
}

static void print_params(ds_printer *p, const ds_module *module, uint32_t first) {
    const ds_param *params = p->params = module->params.at;
    ds_printer_begin(p, &params[first].trivia);
    ds_printer_put(p, "param ");
    for (uint32_t k = first; k < module->params.n && params[k].group == params[first].group; k++) {
        ds_printer_comma(p, k - first);
        ds_buf_printf(p->out, "%s = ", params[k].name);
        ds_printer_expr(p, params[k].init);
        p->n_params = k + 1;
    }
    ds_printer_end(p, &params[first].trivia);
}

static void print_axis(ds_printer *p, const ds_axis_decl *axis) {
    ds_printer_begin(p, &axis->trivia);
    ds_buf_printf(p->out, "axis %s", axis->name);
    ds_printer_end(p, &axis->trivia);
}

static void print_item(ds_printer *p, const ds_module *module, ds_item item) {
    switch (item.kind) {
    case DS_ITEM_IMPORT:
        print_import(p, &module->imports.at[item.index]);
        break;
    case DS_ITEM_PARAMS:
        print_params(p, module, item.index);
        break;
    case DS_ITEM_AXIS:
        print_axis(p, &module->axes.at[item.index]);
        break;
    case DS_ITEM_TOPOLOGY:
        ds_printer_topology(p, module->topologies.at[item.index]);
        break;
    case DS_ITEM_MESH:
        ds_printer_mesh(p, module->meshes.at[item.index]);
        break;
    case DS_ITEM_FUNC:
        ds_printer_func(p, module->funcs.at[item.index]);
        break;
    case DS_ITEM_PROGRAM:
        ds_printer_program(p, module->programs.at[item.index]);
        break;
    case DS_ITEM_SCHEDULE:
        ds_printer_schedule(p, module->schedules.at[item.index]);
        break;
    case DS_ITEM_SCENARIO:
        ds_printer_scenario(p, &module->scenarios.at[item.index]);
        break;
    case DS_ITEM_SWEEP:
        ds_printer_sweep(p, &module->sweeps.at[item.index]);
        break;
    case DS_ITEM_DEGRADE:
        ds_printer_degrade(p, &module->degrades.at[item.index]);
        break;
    }
}

void ds_print_module(const ds_module *module, ds_buf *out) {
    ds_printer p = {.exprs = &module->unit->exprs, .out = out};
    ds_printer_begin(&p, &module->trivia);
    ds_buf_printf(out, "dir %" PRId64, module->version);
    ds_printer_end(&p, &module->trivia);
    for (uint32_t k = 0; k < module->items.n; k++) print_item(&p, module, module->items.at[k]);
    print_leading(&p, &module->dangling);
}

void ds_print_module_content(const ds_module *module, ds_buf *out) {
    ds_printer p = {.exprs = &module->unit->exprs, .out = out, .plain = true};
    ds_buf_printf(out, "dir %" PRId64 "\n", module->version);
    for (uint32_t k = 0; k < module->items.n; k++) {
        ds_item item = module->items.at[k];
        if (item.kind != DS_ITEM_SCENARIO && item.kind != DS_ITEM_SWEEP)
            print_item(&p, module, item);
    }
}

/* ---- parts ---- */

typedef struct parts {
    ds_printer p;
    void (*each)(void *context, const char *name, const char *text);
    void *context;
} parts;

static void put_part(parts *x, const char *name, ds_buf *text) {
    x->each(x->context, name, text->text ? text->text : "");
    ds_buf_deinit(text);
}

static void put_entries(parts *x, const char *section, const ds_attr *entries, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        const ds_attr *attr = &entries[i];
        ds_buf name = {0}, text = {0};
        ds_buf_printf(&name, "%s%s%s", section, *section ? "." : "", attr->name);
        x->p.out = &text;
        if (attr->kind == DS_ATTR_BLOCK && !attr->word) {
            put_entries(x, name.text, attr->items, attr->n_items);
        } else {
            ds_printer_value(&x->p, attr);
            put_part(x, name.text, &text);
        }
        ds_buf_deinit(&name);
    }
}

static void put_params(parts *x, const ds_module *module) {
    for (uint32_t i = 0; i < module->params.n; i++) {
        ds_buf name = {0}, text = {0};
        ds_buf_printf(&name, "param %s", module->params.at[i].name);
        ds_expr_print(x->p.exprs, module->params.at[i].init, &text);
        put_part(x, name.text, &text);
        ds_buf_deinit(&name);
    }
}

/* The import itself, and each param that it gives: "gpt.batch". */
static void put_import(parts *x, const ds_import *import) {
    const char *called = import->alias ? import->alias : import->path;
    ds_buf name = {0}, text = {0};
    ds_buf_printf(&name, "import %s", called);
    put_part(x, name.text, &text);
    for (uint32_t i = 0; i < import->n_with; i++) {
        name.n = 0;
        ds_buf_printf(&name, "%s.%s", called, import->with[i].name);
        x->p.out = &text;
        ds_printer_value(&x->p, &import->with[i]);
        put_part(x, name.text, &text);
    }
    ds_buf_deinit(&name);
}

/* "topology @box" of "topology @box {…": to the end of the name. Of a degrade the whole line. */
static void put_item(parts *x, const ds_module *module, ds_item item) {
    ds_buf text = {0};
    x->p.out = &text;
    print_item(&x->p, module, item);
    const char *at = strchr(text.text, '@');
    bool named = at && item.kind != DS_ITEM_DEGRADE;
    size_t n = named ? (size_t)(at - text.text) + strcspn(at, " ({<\n") : strcspn(text.text, "\n");
    ds_buf name = {0};
    ds_buf_put_n(&name, text.text, n);
    put_part(x, name.text, &text);
    ds_buf_deinit(&name);
}

void ds_print_parts(const ds_unit *unit,
                    void (*each)(void *context, const char *name, const char *text),
                    void *context) {
    parts x = {.p = {.exprs = &unit->exprs, .plain = true}, .each = each, .context = context};
    const ds_module *root = unit->modules.at[0];
    put_params(&x, root);
    for (uint32_t i = 0; i < root->items.n; i++) {
        ds_item item = root->items.at[i];
        if (item.kind == DS_ITEM_SCENARIO)
            put_entries(&x, "", root->scenarios.at[item.index].entries,
                        root->scenarios.at[item.index].n_entries);
        else if (item.kind == DS_ITEM_IMPORT)
            put_import(&x, &root->imports.at[item.index]);
        else if (item.kind != DS_ITEM_PARAMS && item.kind != DS_ITEM_SWEEP)
            put_item(&x, root, item);
    }
    for (uint32_t m = 1; m < unit->modules.n; m++) {
        const char *path = unit->modules.at[m]->path, *slash = strrchr(path, '/');
        ds_buf name = {0}, text = {0};
        ds_buf_printf(&name, "file %s", slash ? slash + 1 : path);
        ds_print_module_content(unit->modules.at[m], &text);
        put_part(&x, name.text, &text);
        ds_buf_deinit(&name);
    }
}
