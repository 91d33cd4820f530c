/* Temporal programs: equations over dims, their order of work, and the lives of their values.
 *
 * **Program.** Dim d has the range lo_d <= p_d < hi_d. A statement s has some of the dims; its
 * domain is the box of their ranges, or of ranges of its own. At each point p, s makes one value and reads points of other
 * values: a read names a source q, gives for each dim of q a point e(p) or a range e(p):f(p), and
 * may hold only under a condition on p. Statements stand in any order.
 *
 * **Need.** A point runs if a kept statement (a yield) has the point, or if a point that runs reads
 * the point. On a program without cycles, N = kept + reads(N) has one solution. So need.c guesses N
 * by boxes, widens a box that grows along a dim, takes away what nothing needs, and accepts N if
 * one more application changes nothing. What boxes cannot say is counted point by point if the
 * program is small, and otherwise left as a superset (`inexact`).
 *
 * **Time.** A loop over dim d in direction D (+1 or -1) runs statement s at the turn D*p_d + c_s, a
 * statement without the dim at the turn c_s. A read of q by s is in time if
 *
 *     c_s - c_q >= W,   W = max over p where the read holds of  D*e_d(p) - D*p_d
 *
 * where e_d is the last point of q that the read meets in the direction D, and a term is absent
 * where q or s lacks the dim. Domains are boxes, so W is the bound of an affine form over a box: no
 * point is counted. A read with c_s - c_q > W is carried by the loop and asks nothing of loops
 * inside.
 *
 * **Order** (Allen and Kennedy 1987, "Automatic translation of FORTRAN programs to vector form",
 * with directions and shifts). Of the statements at hand and the reads that no outer loop carries:
 *
 *  1. strongly connected components, in topological order, by place in the text;
 *  2. a component with a cycle needs a loop: the first dim and direction, by the header's order
 *  (dims
 *     of program.outer before the others), whose difference constraints have no positive cycle
 *     (Bellman and Ford). Taking a legal dim outermost never hurts the dims inside;
 *  3. a component joins the loop of the components before it if all constraints stay solvable and
 *  no
 *     read joins the two whose W is the whole length of the dim or nearly so (a range that ends
 *     with the dim, a whole range): such a read splits loops;
 *  4. freeing value s at p is a statement too: it reads s and each reader of s by the inverse
 *  index,
 *     of which only the bound is needed: W of the inverse in direction D is W of the read in
 *     direction -D. A free that cannot join the loop of its readers comes after the loop;
 *  5. shifts: of all c that meet the constraints, the c with least live bytes,
 *
 *         minimise  sum over s of bytes_s * (c_free(s) - c_s),
 *
 *     the dual of a flow of bytes from statements to frees at greatest length (Leiserson and Saxe
 *     1991, "Retiming synchronous circuitry"); longest augmenting paths solve the flow exactly;
 *  6. the same inside of the loop, with the reads that are left.
 *
 * Cost: D dims, n statements, m reads: O(D (n + m) n) for components and directions, O(n^2 m) at
 * worst for shifts, and nothing that grows with the length of a dim.
 *
 * **Without a nest.** First statements are cut into parts where their conditions change, and reads
 * into reads of parts, up to three times (split.c): a component may fall apart so. Then the program
 * is ordered point by point, by search through all points, which also names the cycle if there is
 * one.
 *
 * **Loops.** A statement's points are disjoint boxes (needed, cut where a condition changes). A
 * loop is cut at the turns where the set of running boxes changes, so prologues and epilogues are
 * loops of their own, no condition is left in a body, and bounds are constants.
 *
 * Everything made lives in the arena that the caller gives. */
#ifndef DS_TEMPORAL_TEMPORAL_H
#define DS_TEMPORAL_TEMPORAL_H

#include "ir/base/arena.h"
#include "ir/base/error.h"
#include "ir/base/str.h"

#include <stdbool.h>
#include <stdint.h>

#define DS_TEMPORAL_DIMS 8u /* dims of a program at most */

/* ---- expressions over a point ---- */

typedef enum ds_temporal_kind {
    DS_TEMPORAL_CONST, /* value */
    DS_TEMPORAL_DIM,   /* value: the dim's number */
    DS_TEMPORAL_ADD,
    DS_TEMPORAL_SUB,
    DS_TEMPORAL_MUL,
    DS_TEMPORAL_DIV, /* rounds toward minus infinity */
    DS_TEMPORAL_MOD,
    DS_TEMPORAL_MIN,
    DS_TEMPORAL_MAX,
    DS_TEMPORAL_LT,
    DS_TEMPORAL_LE,
    DS_TEMPORAL_EQ,
    DS_TEMPORAL_NE,
    DS_TEMPORAL_AND,
    DS_TEMPORAL_OR,
    DS_TEMPORAL_NOT, /* a */
} ds_temporal_kind;

typedef struct ds_temporal_expr {
    ds_temporal_kind kind;
    int64_t value;
    const struct ds_temporal_expr *a, *b;
} ds_temporal_expr;

const ds_temporal_expr *ds_temporal_const(ds_arena *arena, int64_t value);
const ds_temporal_expr *ds_temporal_dim(ds_arena *arena, uint32_t dim);
const ds_temporal_expr *ds_temporal_op(ds_arena *arena, ds_temporal_kind kind,
                                       const ds_temporal_expr *a, const ds_temporal_expr *b);
/* The value at a point [DS_TEMPORAL_DIMS]; division by zero gives 0. O(size of e). */
int64_t ds_temporal_eval(const ds_temporal_expr *e, const int64_t *point);

/* ---- a program ---- */

typedef struct ds_temporal_range {
    const char *name;
    int64_t lo, hi;
} ds_temporal_range;

typedef struct ds_temporal_index {
    const ds_temporal_expr *at;  /* the point, or the first of a range */
    const ds_temporal_expr *end; /* the end of a range; NULL: a point */
} ds_temporal_index;

typedef struct ds_temporal_read {
    uint32_t source;
    const ds_temporal_expr *when; /* NULL: always. Conditions of a `case` exclude each other */
    ds_temporal_index index[DS_TEMPORAL_DIMS]; /* of the source's dims */
    int joined; /* not 0: no loop is cut where `when` begins or ends to hold; the read is then among
                   the active reads of a run if this is 1 */
    bool order; /* waits for the points, and needs none of them */
} ds_temporal_read;

typedef struct ds_temporal_statement {
    const char *name;
    uint32_t dims; /* a bit a dim */
    const ds_temporal_range
        *ranges;   /* [n_dims]: the statement has these points alone, and what reads
                                        others reads none; NULL: all of its dims' ranges */
    int64_t bytes; /* of the value at one point: what shifts weigh */
    bool kept;     /* a yield: every point is needed, and none is freed */
    bool unstored; /* a store would pad the value: readers stand in its loops if they can */
    const ds_temporal_read *reads;
    uint32_t n_reads;
    /* Loops are cut where one of these begins or ends to hold, though nothing of the program is
     * read there: branches of a `case` that read values from outside. */
    const ds_temporal_expr *const *cuts;
    uint32_t n_cuts;
} ds_temporal_statement;

typedef struct ds_temporal_program {
    ds_temporal_range dims[DS_TEMPORAL_DIMS];
    uint32_t n_dims;
    const ds_temporal_statement *statements;
    uint32_t n;
    uint32_t outer; /* a bit a dim: tried before the others for an outer loop */
    uint32_t turns; /* a bit a dim: of two turns without a loop one after the other, the second is a
                     * loop, so that loops around tell which turn stands between */
    bool
        apart; /* no loops are fused: each component has its own, with readers of unstored values */
    bool unfreed; /* loops have no frees, and are not cut where frees begin or end */
} ds_temporal_program;

/* ---- a schedule ---- */

typedef enum ds_temporal_node_kind {
    DS_TEMPORAL_LOOP,
    DS_TEMPORAL_RUN,
    DS_TEMPORAL_FREE,
} ds_temporal_node_kind;

/* Where a statement runs, in one dim: at v + offset with v the variable of the enclosing loop
 * number `loop` (0: the outermost), or at the constant `offset` if loop is DS_TEMPORAL_NO_LOOP. A
 * free covers `count` points from there. */
#define DS_TEMPORAL_NO_LOOP UINT32_MAX
typedef struct ds_temporal_place {
    uint32_t loop;
    int64_t offset, count;
} ds_temporal_place;

typedef struct ds_temporal_node {
    ds_temporal_node_kind kind;
    uint32_t dim; /* of a loop: the variable is v of lo <= v < hi, from above if `reverse` */
    bool reverse;
    int64_t lo, hi;
    struct ds_temporal_node *body; /* of a loop */
    uint32_t n_body;
    uint32_t statement; /* of a run or free */
    const bool *active; /* of a run: [n_reads], reads that hold at all points of this run */
    ds_temporal_place place[DS_TEMPORAL_DIMS]; /* of a run or free: of the statement's dims */
} ds_temporal_node;

/* The nest before it is cut: what is fused with what, in which direction and with which lag. */
typedef struct ds_temporal_nest {
    bool loop, free;    /* a loop; else a statement, or its free */
    uint32_t statement; /* of a leaf */
    uint32_t dim;
    int direction;
    struct ds_temporal_nest *body;
    uint32_t n_body;
    const int64_t *shift; /* of a loop: c of statement s at [s], of its free at [n + s] */
} ds_temporal_nest;

typedef struct ds_temporal_schedule {
    ds_temporal_nest *nest; /* NULL: unrolled */
    uint32_t n_nest;
    const ds_temporal_program *nest_program; /* whose statements the nest names */
    ds_temporal_node *nodes;
    uint32_t n_nodes;
    bool unrolled; /* point by point: no nest of loops was found */
    bool parted; /* the nest's statements are parts of the program's, cut where conditions change */
    bool inexact; /* points run that nothing needs: their set is no small union of boxes */
    int64_t runs; /* points that run */
} ds_temporal_schedule;

/* Schedules a program. Every needed point runs once, after all that the point reads; a value is
 * freed once, after its last reader; kept values are not freed.
 * Errors: DS_ERR_VALUE for a cycle, "%o{3} reads %h{3}, which reads %o{3}"; DS_ERR_LIMIT for a
 * program without a nest and with more points than can be searched (2^20). */
ds_status ds_temporal_schedule_make(const ds_temporal_program *program, ds_arena *arena,
                                    ds_temporal_schedule *out, ds_error *err);

/* How many turns of a loop over `dim` in the direction may pass, without shifts, from a point of
 * the read's source to the statement that reads the point: with the shifts c of both, the point is
 * last read c_reader - c_source + the result turns after the point was made. The statement or its
 * source may lack the dim (temporal.h's W in the other direction). O(size of the index). */
int64_t ds_temporal_reach(const ds_temporal_program *program, uint32_t reader,
                          const ds_temporal_read *read, uint32_t dim, int direction,
                          ds_arena *arena);

/* The nest as text, a line a loop, two blanks a level, lags in brackets where they are not 0:
 * "for t\n  act\n  learn [3]\n  free r [3]\nsum\n"; a reversed loop is "for t reversed". */
void ds_temporal_nest_print(const ds_temporal_program *program,
                            const ds_temporal_schedule *schedule, ds_buf *out);
/* The same in few lines, without frees: "for t\n  act, learn [3]\nsum\n". */
void ds_temporal_nest_brief(const ds_temporal_program *program,
                            const ds_temporal_schedule *schedule, ds_buf *out);
/* The loops, bounds and index of every run and free. */
void ds_temporal_print(const ds_temporal_program *program, const ds_temporal_schedule *schedule,
                       ds_buf *out);

#endif
