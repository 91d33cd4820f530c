/* Parts of a small step from which those of larger ones are made; not a public header.
 *
 * A template has at most four chunks with at most four turns each of the model's loop, four
 * microbatches, and no devices: a schematic plan. What a larger step has more of is alike. */
#ifndef DS_COMPOSE_TEMPLATE_H
#define DS_COMPOSE_TEMPLATE_H

#include "ir/passes/passes.h"
#include "search/compose/internal.h"

/* Chunks and turns of a template: the first, two in the middle (which say how neighbours refer to
 * each other), the last. In place of more chunks in the middle stands the first of the two, or, if
 * they are of two sorts (of one layer and of two), one of either. */
enum { DS_FEW = 4, DS_SECOND = 1, DS_THIRD = 2 };

/* A loop over layers within a part: its units follow each other, turn by turn. */
typedef struct ds_loop {
    uint32_t first, n_turns;
    uint32_t chunk;       /* of the template */
    uint32_t len[DS_FEW]; /* units of a turn */
} ds_loop;

/* Where a unit stands: in which turn of which loop of its part, and which unit of it. */
typedef struct ds_where {
    uint32_t loop; /* DS_NONE: in none */
    uint32_t turn, at;
} ds_where;

/* What belongs to a unit: allocs, frees and checks of the part's body, by the unit at which they
 * are; a free is at the last of its users. */
typedef struct ds_belongings {
    uint32_t *first; /* n_units + 1 */
    uint32_t *list;
} ds_belongings;

typedef struct ds_outline {
    ds_where *at; /* per unit */
    DS_VEC(ds_loop) loops;
    ds_belongings allocs, frees, checks;
    uint32_t *kind_of; /* per transfer of the part: which kind of the template … */
    uint32_t *own_of;  /* … and which of the part's kinds: */
    DS_VEC(uint32_t) kinds;
} ds_outline;

/* A kind of communication of a chunk. */
typedef struct ds_kind {
    const ds_op *op;
    int64_t bytes;
    uint64_t stream;
    uint32_t from, to; /* chunks of the template */
} ds_kind;

/* An exact template that has been read with fewer virtual stages than the step has (fewer.h). */
typedef struct ds_fewer {
    uint32_t pp, n, full;   /* stages; chunks that it has been read with; the step's */
    uint32_t first, last;   /* virtual stages in the middle, some of whose chunks may be longer */
    uint32_t before, after; /* how many are left out before and behind these */
    uint32_t reach;         /* how many virtual stages away a part may look */
    int64_t *turns;         /* per chunk that it has been read with */
    int64_t more_turns;     /* of the chunks of a stage that are left out */
    uint32_t *tail_chunk;   /* per unit of the tail: whose it is; DS_NONE: nobody's */
} ds_fewer;

typedef struct ds_template {
    ds_model_step *step; /* until its parts are known, as the plan is */
    ds_plan *plan;
    ds_unit *words; /* afterwards: of the ops that kinds are of, and the scenario for their costs */
    ds_binding binding;
    uint32_t *label_of; /* per class of the plan: the chunk */
    ds_sibling s;
    ds_outline *shapes; /* per part */
    DS_VEC(ds_kind) kinds;
    ds_map kind_index;
    uint32_t n_chunks; /* at most DS_FEW */
    int64_t turns[DS_FEW];
    bool few_replicas; /* it has two, whatever the step has: they do the same, and share nothing out
                        */
    /* An exact one is the step itself, but for its devices; a label is a stage. Where replicas have
     * unequal parts it has parts of as many sorts: of the same units, with times and bytes of their
     * own. The first sort, with the largest parts, is `s`. */
    bool exact;
    DS_VEC(int64_t) replicas; /* per sort: the first coordinate on dp */
    ds_sibling *others;       /* per sort from the second on */
    ds_outline **other_shapes;
    const char *loop; /* the index of the model's loop over layers */
    ds_fewer *fewer;  /* of an exact one; NULL: it has been read as it is */
    /* per chunk: inputs that are there once, for each turn, for each middle microbatch */
    int64_t once_bytes[DS_FEW], turn_bytes[DS_FEW], each_bytes[DS_FEW];
    ds_map bodies; /* hash of part, turns and durations of transfers → ds_body, one of s.bodies */
    const char *why; /* NULL, or why it is none */
} ds_template;

/* shape.c: what stands where; kinds of communication; inputs. Of an exact one the kinds alone. */
bool ds_template__shape(ds_template *t);
/* Of another sort of replicas, which `s` and `plan` are about just now: its kinds. What replicas
 * share is as long for all. */
bool ds_template__other_kinds(ds_template *t, const ds_outline *first, ds_outline **out);
void ds_template__outlines_free(ds_outline *shapes, uint32_t n);
void ds_template__shape_deinit(ds_template *t);
/* Keeps of the step what kinds need. O(kinds, entries of the scenario). */
ds_status ds_template__keep_words(ds_template *t, ds_error *err);
/* About as much memory as it takes, without what is made of it. O(bodies). */
size_t ds_template__bytes(const ds_template *t);
bool ds_template__unknown(ds_template *t, const char *why);
/* The loop over layers that an instance of the plan is in; NULL: in none. */
const ds_scope *ds_template__loop_of(ds_template *t, uint32_t inst);
/* Per class: what it has of inputs that are families over layers. */
void ds_template__weigh_families(const ds_template *t, int64_t *out);
/* The part that a source means, seen from a part of the template. */
uint32_t ds_template__source_part(const ds_sibling *s, const ds_part *from,
                                  const ds_source *source);

/* fewer.c, lengthen.c */

/* Which virtual stages a step of `n_chunks` on pp stages may be read without: if all chunks have as
 * many turns but for some in the middle. NULL: it has hardly more than that takes. Heap. */
ds_fewer *ds_fewer_new(uint32_t pp, uint32_t n_chunks, const int64_t *turns, int64_t microbatches);
void ds_fewer_free(ds_fewer *fewer);
/* What has been read of a step with fewer virtual stages; once for each sort of replicas, the first
 * one first. False if it is not of the known kind (t->why). O(inputs + units of the tail). */
bool ds_template__read_fewer(ds_template *t);
/* Gives it the virtual stages that have been left out. O(units). */
bool ds_template__lengthen(ds_template *t);

/* stretch.c */

/* The body of an item or send for `turns` turns of its chunk; its transfers are the outline's
 * kinds, with no durations yet. False if its turns are not of the known sort (t->why). */
bool ds_template__stretch(ds_template *t, uint32_t part, int64_t turns, ds_body *out);

/* The larger step, as far as the tail depends on it. */
typedef struct ds_stretch {
    ds_sibling *s;        /* of which the tail is to be: n_chunks, m, plan */
    const int64_t *turns; /* per chunk */
    /* The activity of a kind for a chunk of the larger step; the compute stream of a chunk. */
    uint32_t (*activity)(void *context, uint32_t kind, uint32_t chunk);
    uint32_t (*stream)(void *context, uint32_t chunk);
    void *context;
} ds_stretch;
bool ds_template__tail(ds_template *t, const ds_stretch *to, ds_part *out);
/* The tail of parts that are those of the whole step but for the number of microbatches, which is
 * t->s.m: what is there for each of them comes as often. `t` holds nothing but the parts. */
bool ds_template__each(ds_template *t);
void ds_template__belongings(const ds_body *body, ds_outline *out);

/* spread.c: an exact template on its stages' devices. */
typedef struct ds_spread {
    const ds_template *t;
    ds_sibling *s;           /* to be filled in */
    const ds_plan *plan;     /* the skeleton */
    const uint32_t *meet_of; /* per stage and kind: place of the meet; DS_NONE */
    uint32_t n_meets, n;     /* n: stages */
} ds_spread;
/* The parts, each unit once for every class of its stage. False if it cannot be (s->why).
 * O(units, edges · classes). */
bool ds_template__spread(const ds_spread *stages);

/* How many turns of a template stand for those of a chunk. */
static inline int64_t ds_template__few(int64_t turns) {
    return turns < DS_FEW ? turns : DS_FEW;
}

/* Which chunk of a template stands for a chunk of n, which have `turns` each: in the middle the
 * second, or the third where that alone has as many turns. */
static inline uint32_t ds_template__chunk(const ds_template *t, uint32_t chunk, uint32_t n,
                                          const int64_t *turns) {
    if (t->n_chunks < DS_FEW) return chunk;
    if (chunk == 0 || chunk == n - 1) return chunk ? DS_FEW - 1 : 0;
    return ds_template__few(turns[chunk]) == t->turns[DS_SECOND] ? DS_SECOND : DS_THIRD;
}

#endif
