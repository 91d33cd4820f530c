/* XML as a tree of elements, with the place of each: what the importers of topologies read.
 *
 * A thin layer over expat. Nothing outside the text is ever read: no DTD, no external entity, and a
 * document that declares or uses entities of its own is refused. Bounded: depth, elements,
 * attributes of one element. */
#ifndef DS_IMPORT_XML_INTERNAL_H
#define DS_IMPORT_XML_INTERNAL_H

#include "ir/base/arena.h"
#include "ir/base/error.h"

typedef struct ds_xml_attr {
    const char *name, *value;
} ds_xml_attr;

typedef struct ds_xml {
    const char *name; /* without a namespace's prefix */
    const char *text; /* of an element without children: its text, trimmed; never NULL */
    ds_xml_attr *attrs;
    uint32_t n_attrs;
    uint32_t line, col; /* where its tag starts, from 1 */
    struct ds_xml *parent, *first, *last, *next;
} ds_xml;

#define DS_XML_MAX_DEPTH    64
#define DS_XML_MAX_ELEMENTS (UINT32_C(1) << 21)
#define DS_XML_MAX_ATTRS    64

/* Parses a whole document into the arena. Errors carry line and column: DS_ERR_DATA (not
 * well-formed, entities), DS_ERR_LIMIT. O(n). */
ds_status ds_xml__parse(ds_arena *arena, const char *text, size_t n, const ds_xml **root,
                        ds_error *err);

/* The value of an attribute; NULL if there is none. */
const char *ds_xml__attr(const ds_xml *element, const char *name);
/* The first child of that name; NULL if there is none. */
const ds_xml *ds_xml__child(const ds_xml *element, const char *name);
/* An attribute as an integer of lo..hi; `absent` where it is missing. DS_ERR_DATA. */
ds_status ds_xml__int(const ds_xml *element, const char *name, int64_t absent, int64_t lo,
                      int64_t hi, int64_t *out, ds_error *err);
/* The same of any text, which the message calls `what`. */
ds_status ds_xml__int_of(const ds_xml *element, const char *what, const char *text, int64_t lo,
                         int64_t hi, int64_t *out, ds_error *err);

/* Sets the error at the element's place. */
ds_status ds_xml__error(const ds_xml *element, ds_status code, ds_error *err, const char *format,
                        ...) DS_PRINTF(4, 5);

#endif
