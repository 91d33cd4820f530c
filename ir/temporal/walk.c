/* Programs point by point: what is needed, a cycle, and the order without loops. */
#include "ir/temporal/internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

bool ds_temporal__points_init(const ds_temporal_program *program, ds_arena *arena, int64_t most,
                              ds_temporal__points *out) {
    out->program = program;
    out->base = DS_NEW_N(arena, int64_t, program->n + 1);
    for (uint32_t s = 0; s < program->n; s++) {
        ds_temporal__box box = ds_temporal__domain(program, s);
        int64_t points = ds_temporal__box_points(&box);
        if (points > most - out->base[s]) return false;
        out->base[s + 1] = out->base[s] + points;
    }
    return true;
}

int64_t ds_temporal__point_number(const ds_temporal__points *points, uint32_t statement,
                                  const int64_t *point) {
    const ds_temporal_program *program = points->program;
    ds_temporal__box box = ds_temporal__domain(program, statement);
    int64_t number = 0;
    for (uint32_t d = 0; d < program->n_dims; d++)
        if (program->statements[statement].dims >> d & 1)
            number = number * (box.hi[d] - box.lo[d]) + point[d] - box.lo[d];
    return points->base[statement] + number;
}

void ds_temporal__point_at(const ds_temporal__points *points, int64_t number, uint32_t *statement,
                           int64_t *point) {
    const ds_temporal_program *program = points->program;
    uint32_t low = 0, high = program->n;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (points->base[middle] <= number)
            low = middle;
        else
            high = middle;
    }
    while (points->base[low + 1] == points->base[low]) low++; /* a statement without points */
    *statement = low;
    number -= points->base[low];
    memset(point, 0, DS_TEMPORAL_DIMS * sizeof *point);
    ds_temporal__box box = ds_temporal__domain(program, low);
    for (uint32_t d = program->n_dims; d-- > 0;) {
        if (!(program->statements[low].dims >> d & 1)) continue;
        int64_t size = box.hi[d] - box.lo[d];
        point[d] = box.lo[d] + number % size;
        number /= size;
    }
}

bool ds_temporal__read_box(const ds_temporal_program *program, const ds_temporal_read *read,
                           const int64_t *p, ds_temporal__box *out) {
    if (read->when && !ds_temporal_eval(read->when, p)) return false;
    uint32_t dims = program->statements[read->source].dims;
    ds_temporal__box domain = ds_temporal__domain(program, read->source), box = domain;
    for (uint32_t d = 0; d < DS_TEMPORAL_DIMS; d++) {
        if (!(dims >> d & 1)) continue;
        const ds_temporal_index *index = &read->index[d];
        box.lo[d] = ds_temporal_eval(index->at, p);
        box.hi[d] = index->end ? ds_temporal_eval(index->end, p) : box.lo[d] + 1;
    }
    return ds_temporal__box_meet(&box, &domain, out);
}

static void first_of(const ds_temporal__box *box, int64_t *point) {
    memcpy(point, box->lo, sizeof box->lo);
}

uint8_t *ds_temporal__need_points(const ds_temporal__points *points, ds_arena *arena) {
    const ds_temporal_program *program = points->program;
    int64_t n = points->base[program->n], n_stack = 0;
    uint8_t *needed = DS_NEW_N(arena, uint8_t, n + 1);
    int64_t *stack = DS_NEW_N(arena, int64_t, n + 1);
    for (uint32_t s = 0; s < program->n; s++)
        for (int64_t i = points->base[s]; program->statements[s].kept && i < points->base[s + 1];
             i++)
            needed[i] = 1, stack[n_stack++] = i;
    while (n_stack > 0) {
        uint32_t s;
        int64_t p[DS_TEMPORAL_DIMS], q[DS_TEMPORAL_DIMS];
        ds_temporal__point_at(points, stack[--n_stack], &s, p);
        for (uint32_t r = 0; r < program->statements[s].n_reads; r++) {
            const ds_temporal_read *read = &program->statements[s].reads[r];
            ds_temporal__box box;
            if (read->order || !ds_temporal__read_box(program, read, p, &box)) continue;
            first_of(&box, q);
            do {
                int64_t number = ds_temporal__point_number(points, read->source, q);
                if (needed[number]) continue;
                needed[number] = 1;
                stack[n_stack++] = number;
            } while (ds_temporal__box_next(&box, q));
        }
    }
    return needed;
}

/* ---- a search in depth, with its own stack ---- */

typedef struct frame {
    int64_t number;
    uint32_t read; /* the read being followed */
    bool inside;   /* box and q are set */
    ds_temporal__box box;
    int64_t q[DS_TEMPORAL_DIMS];
} frame;

typedef struct search {
    ds_temporal__points points;
    ds_arena *arena;
    uint8_t *state; /* 0: not seen, 1: on the stack, 2: done */
    int64_t *order; /* done points, first to last */
    int64_t n_order;
    DS_VEC(frame) stack;
} search;

static void put_point(const search *s, int64_t number, ds_buf *out) {
    const ds_temporal_program *program = s->points.program;
    uint32_t statement;
    int64_t p[DS_TEMPORAL_DIMS];
    ds_temporal__point_at(&s->points, number, &statement, p);
    ds_buf_printf(out, "%%%s", program->statements[statement].name);
    bool first = true;
    for (uint32_t d = 0; d < program->n_dims; d++) {
        if (!(program->statements[statement].dims >> d & 1)) continue;
        ds_buf_printf(out, "%s%" PRId64, first ? "{" : ", ", p[d]);
        first = false;
    }
    if (!first) ds_buf_putc(out, '}');
}

/* The stack from the point `number` to its top reads that point again. */
static ds_status refuse_cycle(const search *s, int64_t number, ds_error *err) {
    ds_buf text = {0};
    uint32_t from = s->stack.n;
    while (s->stack.at[from - 1].number != number) from--;
    put_point(s, number, &text);
    for (uint32_t i = from; i < s->stack.n && i < from + 6; i++) {
        ds_buf_put(&text, i == from ? " reads " : ", which reads ");
        put_point(s, s->stack.at[i].number, &text);
    }
    if (s->stack.n > from + 6) ds_buf_printf(&text, ", … %u more …", s->stack.n - from - 6);
    ds_buf_put(&text, s->stack.n == from ? " reads " : ", which reads ");
    put_point(s, number, &text);
    ds_status status = ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                                    "a value depends on the value itself: %s", text.text);
    ds_buf_deinit(&text);
    return status;
}

static void enter(search *s, int64_t number) {
    frame f = {.number = number};
    s->state[number] = 1;
    DS_HPUSH(&s->stack, f);
}

/* Moves to the next point that the frame reads; false after the last. */
static bool next_read(const search *s, frame *f, int64_t *number) {
    const ds_temporal_program *program = s->points.program;
    uint32_t statement;
    int64_t p[DS_TEMPORAL_DIMS];
    ds_temporal__point_at(&s->points, f->number, &statement, p);
    const ds_temporal_statement *reader = &program->statements[statement];
    while (f->read < reader->n_reads) {
        const ds_temporal_read *read = &reader->reads[f->read];
        bool more;
        if (!f->inside) {
            more = ds_temporal__read_box(program, read, p, &f->box);
            if (more) first_of(&f->box, f->q);
        } else {
            more = ds_temporal__box_next(&f->box, f->q);
        }
        f->inside = more;
        if (more) {
            *number = ds_temporal__point_number(&s->points, read->source, f->q);
            return true;
        }
        f->read++;
    }
    return false;
}

static ds_status visit(search *s, int64_t root, ds_error *err) {
    enter(s, root);
    while (s->stack.n > 0) {
        int64_t number;
        frame *top = &s->stack.at[s->stack.n - 1];
        if (next_read(s, top, &number)) {
            if (s->state[number] == 1) return refuse_cycle(s, number, err);
            if (s->state[number] == 0) enter(s, number);
        } else {
            s->state[top->number] = 2;
            s->order[s->n_order++] = top->number;
            s->stack.n--;
        }
    }
    return DS_OK;
}

/* ---- the schedule of an order ---- */

/* last[q]: the place in the order of the last needed reader of q, or of q itself. */
static int64_t *last_readers(const search *s, const uint8_t *needed) {
    const ds_temporal_program *program = s->points.program;
    int64_t *last = DS_NEW_N(s->arena, int64_t, s->points.base[program->n] + 1);
    for (int64_t i = 0; i < s->n_order; i++) {
        uint32_t statement;
        int64_t number;
        frame f = {.number = s->order[i]};
        ds_temporal__point_at(&s->points, f.number, &statement, f.q);
        if (!needed[f.number]) continue;
        last[f.number] = i;
        while (next_read(s, &f, &number)) last[number] = i;
    }
    return last;
}

static ds_temporal_node leaf_of(const search *s, ds_temporal_node_kind kind, int64_t number) {
    ds_temporal_node node = {.kind = kind};
    int64_t p[DS_TEMPORAL_DIMS];
    ds_temporal__point_at(&s->points, number, &node.statement, p);
    for (uint32_t d = 0; d < DS_TEMPORAL_DIMS; d++)
        node.place[d] = (ds_temporal_place){DS_TEMPORAL_NO_LOOP, p[d], 1};
    if (kind == DS_TEMPORAL_RUN) {
        const ds_temporal_statement *run = &s->points.program->statements[node.statement];
        bool *active = DS_NEW_N(s->arena, bool, run->n_reads + 1);
        for (uint32_t r = 0; r < run->n_reads; r++)
            active[r] = !run->reads[r].when || ds_temporal_eval(run->reads[r].when, p);
        node.active = active;
    }
    return node;
}

static void write_order(const search *s, ds_temporal_schedule *out) {
    const ds_temporal_program *program = s->points.program;
    int64_t n = s->points.base[program->n];
    const uint8_t *needed = ds_temporal__need_points(&s->points, s->arena);
    const int64_t *last = last_readers(s, needed);
    /* Frees by the place after which they come, as lists. */
    int64_t *first = DS_NEW_N(s->arena, int64_t, n + 1), *next = DS_NEW_N(s->arena, int64_t, n + 1);
    for (int64_t i = 0; i < n; i++) first[i] = -1;
    for (uint32_t q = 0; q < program->n; q++)
        for (int64_t i = s->points.base[q]; i < s->points.base[q + 1]; i++)
            if (needed[i] && !program->statements[q].kept) {
                next[i] = first[last[i]];
                first[last[i]] = i;
            }
    DS_VEC(ds_temporal_node) nodes = {0};
    for (int64_t i = 0; i < n; i++) {
        if (!needed[s->order[i]]) continue;
        DS_PUSH(s->arena, &nodes, leaf_of(s, DS_TEMPORAL_RUN, s->order[i]));
        out->runs++;
        for (int64_t q = first[i]; q >= 0; q = next[q])
            DS_PUSH(s->arena, &nodes, leaf_of(s, DS_TEMPORAL_FREE, q));
    }
    out->nodes = nodes.at;
    out->n_nodes = nodes.n;
    out->unrolled = true;
}

ds_status ds_temporal__unroll(const ds_temporal_program *program, ds_arena *arena,
                              ds_temporal_schedule *out, ds_error *err) {
    search s = {.arena = arena};
    if (!ds_temporal__points_init(program, arena, DS_TEMPORAL__POINTS, &s.points))
        return ds_error_set(err, DS_ERR_LIMIT, DS_NOWHERE,
                            "no order of loops runs this program, and the program has more than "
                            "%d points: too many to order point by point",
                            DS_TEMPORAL__POINTS);
    int64_t n = s.points.base[program->n];
    s.state = DS_NEW_N(arena, uint8_t, n + 1);
    s.order = DS_NEW_N(arena, int64_t, n + 1);
    ds_status status = DS_OK;
    for (int64_t i = 0; i < n && status == DS_OK; i++)
        if (s.state[i] == 0) status = visit(&s, i, err);
    if (status == DS_OK) write_order(&s, out);
    free(s.stack.at);
    return status;
}
