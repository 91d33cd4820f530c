/* The schedule of a program, and schedules as text. */
#include "ir/temporal/internal.h"

#include <inttypes.h>

#define SPLITS 3u /* assumed: what three cuts do not order needs an order point by point */

static ds_status check(const ds_temporal_program *program, ds_error *err) {
    if (program->n_dims > DS_TEMPORAL_DIMS)
        return ds_error_set(err, DS_ERR_LIMIT, DS_NOWHERE,
                            "%u dims: a temporal program has %u at most", program->n_dims,
                            DS_TEMPORAL_DIMS);
    return DS_OK;
}

static bool make_nest(const ds_temporal_program *program, const ds_temporal__parts *parts,
                      ds_arena *arena, bool *both_ways, ds_temporal_schedule *out) {
    ds_temporal__graph graph;
    ds_temporal__graph_init(program, parts, arena, &graph);
    graph.both_ways = both_ways;
    out->nest_program = program;
    return ds_temporal__nest_make(&graph, out);
}

/* The loops of parts: each needs what its statement needs, within its own box. */
static void make_parted(const ds_temporal_program *program, const ds_temporal__parts *parts,
                        ds_arena *arena, ds_temporal_schedule *out) {
    bool exact;
    const ds_temporal__boxes *whole = ds_temporal__need(program, arena, &exact);
    ds_temporal__boxes *need = DS_NEW_N(arena, ds_temporal__boxes, parts->program.n + 1);
    for (uint32_t k = 0; k < parts->program.n; k++) {
        const ds_temporal__boxes *of = &whole[parts->origin[k]];
        ds_temporal__box common;
        for (uint32_t i = 0; i < of->n; i++)
            if (ds_temporal__box_meet(&of->at[i], &parts->domain[k], &common))
                DS_PUSH(arena, &need[k], common);
    }
    out->inexact = !exact;
    out->parted = true;
    ds_temporal__loops_make(&parts->program, need, arena, out);
    ds_temporal__unite(parts, out->nodes, out->n_nodes);
}

ds_status ds_temporal_schedule_make(const ds_temporal_program *program, ds_arena *arena,
                                    ds_temporal_schedule *out, ds_error *err) {
    *out = (ds_temporal_schedule){0};
    DS_TRY(check(program, err));
    bool both_ways = false;
    if (make_nest(program, NULL, arena, &both_ways, out)) {
        bool exact;
        const ds_temporal__boxes *need = ds_temporal__need(program, arena, &exact);
        out->inexact = !exact;
        ds_temporal__loops_make(program, need, arena, out);
        return DS_OK;
    }
    if (program->apart) { /* readers of an unstored value have no loop of their own */
        ds_temporal_program fused = *program;
        fused.apart = false;
        return ds_temporal_schedule_make(&fused, arena, out, err);
    }
    const ds_temporal__parts *before = NULL;
    for (uint32_t round = 0; round < SPLITS && !both_ways; round++) {
        ds_temporal__parts *parts = DS_NEW(arena, ds_temporal__parts);
        if (!ds_temporal__split(before ? &before->program : program, before, arena, parts)) break;
        if (make_nest(&parts->program, parts, arena, &both_ways, out)) {
            make_parted(program, parts, arena, out);
            return DS_OK;
        }
        before = parts;
    }
    return ds_temporal__unroll(program, arena, out, err);
}

/* ---- text ---- */

static void indent(uint32_t depth, ds_buf *out) {
    for (uint32_t i = 0; i < depth; i++) ds_buf_put(out, "  ");
}

typedef struct nest_text {
    const ds_temporal_program *program;
    bool brief;
    ds_buf *out;
} nest_text;

static bool has_statement(const ds_temporal_nest *nest) {
    if (!nest->loop) return !nest->free;
    for (uint32_t i = 0; i < nest->n_body; i++)
        if (has_statement(&nest->body[i])) return true;
    return false;
}

/* `after`: a statement stands before in the line. */
static void print_one(const nest_text *t, const ds_temporal_nest *nest,
                      const ds_temporal_nest *around, uint32_t depth, bool after) {
    if (after)
        ds_buf_put(t->out, ", ");
    else
        indent(depth, t->out);
    uint32_t s = nest->statement;
    ds_buf_printf(t->out, "%s%s", nest->free ? "free " : "", t->program->statements[s].name);
    int64_t shift = around ? around->shift[s + (nest->free ? t->program->n : 0)] : 0;
    if (shift != 0) ds_buf_printf(t->out, " [%" PRId64 "]", shift);
    if (!t->brief) ds_buf_putc(t->out, '\n');
}

static void print_nest(const nest_text *t, const ds_temporal_nest *nest, uint32_t n,
                       const ds_temporal_nest *around, uint32_t depth) {
    bool in_line = false;
    for (uint32_t i = 0; i < n; i++) {
        if (t->brief && !has_statement(&nest[i])) continue;
        if (!nest[i].loop) {
            print_one(t, &nest[i], around, depth, in_line);
            in_line = t->brief;
            continue;
        }
        if (in_line) ds_buf_putc(t->out, '\n');
        in_line = false;
        indent(depth, t->out);
        ds_buf_printf(t->out, "for %s%s\n", t->program->dims[nest[i].dim].name,
                      nest[i].direction < 0 ? " reversed" : "");
        print_nest(t, nest[i].body, nest[i].n_body, &nest[i], depth + 1);
    }
    if (in_line) ds_buf_putc(t->out, '\n');
}

static void print_schedule(const ds_temporal_program *program, const ds_temporal_schedule *schedule,
                           bool brief, ds_buf *out) {
    if (schedule->unrolled) ds_buf_put(out, "point by point\n");
    nest_text t = {schedule->parted ? schedule->nest_program : program, brief, out};
    print_nest(&t, schedule->nest, schedule->n_nest, NULL, 0);
}

void ds_temporal_nest_print(const ds_temporal_program *program,
                            const ds_temporal_schedule *schedule, ds_buf *out) {
    print_schedule(program, schedule, false, out);
}

void ds_temporal_nest_brief(const ds_temporal_program *program,
                            const ds_temporal_schedule *schedule, ds_buf *out) {
    print_schedule(program, schedule, true, out);
}

static void print_place(const ds_temporal_place *place, ds_buf *out) {
    if (place->loop == DS_TEMPORAL_NO_LOOP) {
        ds_buf_put_int(out, place->offset);
    } else {
        ds_buf_printf(out, "v%u", place->loop);
        if (place->offset != 0) ds_buf_printf(out, "%+" PRId64, place->offset);
    }
    if (place->count != 1) {
        ds_buf_putc(out, ':');
        ds_buf_put_int(out, place->offset + place->count);
    }
}

static void print_nodes(const ds_temporal_program *program, const ds_temporal_node *nodes,
                        uint32_t n, uint32_t depth, ds_buf *out) {
    for (uint32_t i = 0; i < n; i++) {
        const ds_temporal_node *node = &nodes[i];
        indent(depth, out);
        if (node->kind == DS_TEMPORAL_LOOP) {
            ds_buf_printf(out, "for v%u (%s) in %" PRId64 "..%" PRId64 "%s\n", depth,
                          program->dims[node->dim].name, node->lo, node->hi,
                          node->reverse ? " reversed" : "");
            print_nodes(program, node->body, node->n_body, depth + 1, out);
            continue;
        }
        const ds_temporal_statement *s = &program->statements[node->statement];
        ds_buf_printf(out, "%s%s", node->kind == DS_TEMPORAL_FREE ? "free " : "", s->name);
        bool first = true;
        for (uint32_t d = 0; d < program->n_dims; d++) {
            if (!(s->dims >> d & 1)) continue;
            ds_buf_put(out, first ? "{" : ", ");
            print_place(&node->place[d], out);
            first = false;
        }
        ds_buf_put(out, first ? "\n" : "}\n");
    }
}

void ds_temporal_print(const ds_temporal_program *program, const ds_temporal_schedule *schedule,
                       ds_buf *out) {
    print_nodes(program, schedule->nodes, schedule->n_nodes, 0, out);
}
