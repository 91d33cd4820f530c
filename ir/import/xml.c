/* XML by expat: a parser without state outside itself that gives line and column, reads nothing but
 * the text it is handed, and bounds what entities may blow up to. Entities are refused all the
 * same: no format that we read has any. */
#include "ir/base/str.h"
#include "ir/import/internal.h"
#include "ir/import/xml_internal.h"

#include <errno.h>
#include <expat.h>
#include <stdlib.h>
#include <string.h>

typedef struct reader {
    XML_Parser parser;
    ds_arena *arena;
    ds_xml *root, *open;
    uint32_t depth, n;
    ds_buf text; /* of the open element, while it has no children */
    ds_status status;
    ds_error *err;
} reader;

static ds_loc here(const reader *r) {
    return (ds_loc){.line = (uint32_t)XML_GetCurrentLineNumber(r->parser),
                    .col = (uint32_t)XML_GetCurrentColumnNumber(r->parser) + 1,
                    .len = 1};
}

static void stop(reader *r, ds_status code, const char *message) {
    if (r->status != DS_OK) return;
    r->status = ds_error_set(r->err, code, here(r), "%s", message);
    XML_StopParser(r->parser, XML_FALSE);
}

static const char *local_name(const char *name) {
    const char *colon = strrchr(name, ':');
    return colon ? colon + 1 : name;
}

static void take_attrs(reader *r, ds_xml *element, const XML_Char **attrs) {
    while (attrs[2 * (size_t)element->n_attrs] && element->n_attrs <= DS_XML_MAX_ATTRS)
        element->n_attrs++;
    if (element->n_attrs > DS_XML_MAX_ATTRS) {
        stop(r, DS_ERR_LIMIT, "an element has more than 64 attributes");
        element->n_attrs = 0;
    }
    element->attrs = DS_NEW_N(r->arena, ds_xml_attr, element->n_attrs);
    for (size_t i = 0; i < element->n_attrs; i++)
        element->attrs[i] = (ds_xml_attr){ds_arena_strdup(r->arena, local_name(attrs[2 * i])),
                                          ds_arena_strdup(r->arena, attrs[2 * i + 1])};
}

static void XMLCALL on_start(void *data, const XML_Char *name, const XML_Char **attrs) {
    reader *r = data;
    if (r->status != DS_OK) return;
    if (++r->depth > DS_XML_MAX_DEPTH) {
        stop(r, DS_ERR_LIMIT, "elements are nested deeper than 64 levels");
        return;
    }
    if (++r->n > DS_XML_MAX_ELEMENTS) {
        stop(r, DS_ERR_LIMIT, "there are more than 2097152 elements");
        return;
    }
    ds_loc loc = here(r);
    ds_xml *element = DS_NEW(r->arena, ds_xml);
    *element = (ds_xml){.name = ds_arena_strdup(r->arena, local_name(name)),
                        .text = "",
                        .line = loc.line,
                        .col = loc.col,
                        .parent = r->open};
    take_attrs(r, element, attrs);
    if (!r->open)
        r->root = element;
    else if (r->open->last)
        r->open->last->next = element;
    else
        r->open->first = element;
    if (r->open) r->open->last = element;
    r->open = element;
    r->text.n = 0;
}

static void XMLCALL on_text(void *data, const XML_Char *text, int n) {
    reader *r = data;
    if (r->status == DS_OK && r->open && !r->open->first) ds_buf_put_n(&r->text, text, (size_t)n);
}

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void XMLCALL on_end(void *data, const XML_Char *name) {
    reader *r = data;
    (void)name;
    if (r->status != DS_OK) return;
    if (!r->open->first && r->text.n) {
        const char *from = r->text.text;
        size_t n = r->text.n;
        while (n && is_blank(from[n - 1])) n--;
        for (; n && is_blank(*from); n--) from++;
        r->open->text = ds_arena_strndup(r->arena, from, n);
    }
    r->text.n = 0;
    r->open = r->open->parent;
    r->depth--;
}

static void XMLCALL on_entity(void *data, const XML_Char *name, int is_parameter,
                              const XML_Char *value, int length, const XML_Char *base,
                              const XML_Char *system, const XML_Char *public,
                              const XML_Char *notation) {
    (void)name, (void)is_parameter, (void)value, (void)length;
    (void)base, (void)system, (void)public, (void)notation;
    stop(data, DS_ERR_DATA, "entity declarations are not read");
}

static void XMLCALL on_skipped(void *data, const XML_Char *name, int is_parameter) {
    (void)name, (void)is_parameter;
    stop(data, DS_ERR_DATA, "an entity that only a DTD could declare; DTDs are not read");
}

ds_status ds_xml__parse(ds_arena *arena, const char *text, size_t n, const ds_xml **root,
                        ds_error *err) {
    const XML_Memory_Handling_Suite memory = {ds_xmalloc, ds_xrealloc, free};
    reader r = {.arena = arena, .err = err, .parser = XML_ParserCreate_MM(NULL, &memory, NULL)};
    if (!r.parser) ds_out_of_memory(0);
    XML_SetUserData(r.parser, &r);
    XML_SetElementHandler(r.parser, on_start, on_end);
    XML_SetCharacterDataHandler(r.parser, on_text);
    XML_SetEntityDeclHandler(r.parser, on_entity);
    XML_SetSkippedEntityHandler(r.parser, on_skipped);
    enum XML_Status ok = XML_STATUS_OK;
    const size_t chunk = (size_t)1 << 20; /* XML_Parse counts in int */
    do {
        size_t now = n < chunk ? n : chunk;
        n -= now;
        ok = XML_Parse(r.parser, text, (int)now, n == 0);
        text += now;
    } while (ok == XML_STATUS_OK && n);
    if (r.status == DS_OK && ok != XML_STATUS_OK)
        r.status = ds_error_set(err, DS_ERR_DATA, here(&r), "not well-formed XML: %s",
                                XML_ErrorString(XML_GetErrorCode(r.parser)));
    XML_ParserFree(r.parser);
    ds_buf_deinit(&r.text);
    *root = r.root;
    return r.status;
}

/* ---- reading ---- */

const char *ds_xml__attr(const ds_xml *element, const char *name) {
    for (uint32_t i = 0; i < element->n_attrs; i++)
        if (strcmp(element->attrs[i].name, name) == 0) return element->attrs[i].value;
    return NULL;
}

const ds_xml *ds_xml__child(const ds_xml *element, const char *name) {
    for (const ds_xml *child = element->first; child; child = child->next)
        if (strcmp(child->name, name) == 0) return child;
    return NULL;
}

ds_status ds_xml__error(const ds_xml *element, ds_status code, ds_error *err, const char *format,
                        ...) {
    va_list args;
    va_start(args, format);
    ds_error_vset(err, code, (ds_loc){.line = element->line, .col = element->col, .len = 1}, format,
                  args);
    va_end(args);
    return code;
}

ds_status ds_xml__int_of(const ds_xml *element, const char *what, const char *text, int64_t lo,
                         int64_t hi, int64_t *out, ds_error *err) {
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno || end == text || *end || value < lo || value > hi) {
        ds_arena scratch;
        ds_arena_init(&scratch);
        ds_xml__error(element, DS_ERR_DATA, err,
                      "%s of <%.40s> is \"%s\"; an integer from %lld to %lld is needed", what,
                      element->name, ds_import__plain(&scratch, text), (long long)lo,
                      (long long)hi);
        ds_arena_deinit(&scratch);
        return DS_ERR_DATA;
    }
    *out = value;
    return DS_OK;
}

ds_status ds_xml__int(const ds_xml *element, const char *name, int64_t absent, int64_t lo,
                      int64_t hi, int64_t *out, ds_error *err) {
    const char *text = ds_xml__attr(element, name);
    *out = absent;
    return text ? ds_xml__int_of(element, name, text, lo, hi, out, err) : DS_OK;
}
