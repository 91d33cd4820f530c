/* Exact templates with more virtual stages than they have been read with; not a public header.
 *
 * Breadth-first, chunk c of virtual stage v = c / pp does what chunk c - pp does, one virtual stage
 * later: it waits for its own items, and for those of chunks near by (what the rank has done before
 * is what reloads and offloads wait for). In place of the virtual stages that are left out stands
 * one of them, before and behind those in the middle, whose chunks may have a turn more:
 *
 *   template   0 … a … first … last … b … n - 1
 *   step       0 … a a a a … first … last … b b b … n - 1
 *
 * Which ones, a and b, depends on where a part looks: F at chunks before its own, B and the tail's
 * updates at those behind it. So F has a right before the middle and b before the last virtual
 * stage, and B and the tail have a behind the first one and b right behind the middle: a virtual
 * stage is never told by one that looks at the middle or at the ends.
 *
 * What is near is told by the distance, what is far by its place: from the beginning, in the
 * middle, from the end. That this is right is looked at: parts of a and b must be the same, seen
 * from their own chunk, and what a part looks at must look the same where it goes. */
#ifndef DS_COMPOSE_FEWER_H
#define DS_COMPOSE_FEWER_H

#include "search/compose/template.h"

/* fewer.c: which virtual stages are left out. `kind` is that of the part that looks: F, B, W; the
 * tail looks where B does. */

enum { DS_TAIL_KIND = 1 };

/* The virtual stages that come more often: a and b. */
uint32_t ds_fewer__first(const ds_fewer *by, uint32_t kind);
uint32_t ds_fewer__second(const ds_fewer *by, uint32_t kind);
/* How often more a chunk of the template comes. */
uint32_t ds_fewer__more(const ds_fewer *by, uint32_t kind, uint32_t chunk);
/* The chunk of the template that stands for one of the step. */
uint32_t ds_fewer__chunk(const ds_fewer *by, uint32_t kind, uint32_t chunk);
/* The first chunk of the step that a chunk of the template is. */
uint32_t ds_fewer__first_of(const ds_fewer *by, uint32_t kind, uint32_t chunk);
/* The chunk of the step that one of the template is, seen from afar: of those that come more often
 * the first is near the beginning, the last near the end. */
uint32_t ds_fewer__from_afar(const ds_fewer *by, uint32_t chunk);
bool ds_fewer__is_near(const ds_fewer *by, uint32_t a, uint32_t b);

/* Units of the tail that belong to a chunk, or to none, and follow each other. */
typedef struct ds_piece {
    uint32_t first, n;
    uint32_t chunk; /* of the template; of a copy: the step's; DS_NONE */
    uint32_t nth;   /* how many of the chunk are before it */
    uint64_t shape;
} ds_piece;

/* The parts of one sort of replicas: those that there are. */
typedef struct ds_lengthener {
    ds_template *t;
    const ds_fewer *by;
    ds_sibling *s;
    ds_outline *shapes;
    uint64_t *shape;         /* per item and send: what its units are */
    DS_VEC(ds_piece) pieces; /* of the tail */
    uint32_t *piece_of;      /* per unit of the tail */
    uint32_t *nth_piece;     /* per chunk of the template, and which of its pieces; DS_NONE */
    uint32_t most;           /* pieces of a chunk at most */
    uint32_t *at;            /* per piece: where it goes, if it is of no chunk */
    uint32_t *chunk_at;      /* per chunk of the step, and which of its pieces: where it goes */
    DS_VEC(ds_piece) order;  /* copies of pieces, one after another */
    uint32_t *free_at;       /* per free of the tail: where its first copy goes … */
    uint32_t *free_step;     /* … and how far it is to the next one */
    ds_part *tail;           /* the new one */
    ds_outline *tail_shape;
} ds_lengthener;

/* … and those that come of them. */
typedef struct ds_longer {
    ds_sibling s;
    ds_outline *shapes;
} ds_longer;

#define DS_COPY_VEC(to, from)                                                                      \
    do {                                                                                           \
        for (uint32_t i_ = 0; i_ < (from)->n; i_++) DS_HPUSH(to, (from)->at[i_]);                  \
    } while (0)

/* lengthen.c */
bool ds_lengthen__differ(ds_lengthener *x); /* false, for the caller to return */
uint64_t ds_lengthen__hash_units(const ds_lengthener *x, uint32_t part, uint32_t first, uint32_t n);
uint32_t ds_lengthen__source_word(const ds_source *s);
uint64_t ds_lengthen__hash_source(const ds_source *s, uint32_t unit);
/* A part with the body of another one; many may have the same. */
void ds_lengthen__copy_part(const ds_part *from, uint32_t group, ds_part *out);
/* lengthen_tail.c: the last part. */
bool ds_lengthen__tail(ds_lengthener *x, ds_longer *out);

#endif
