/* Who waits for whom, and by how many turns of a loop. */
#include "ir/temporal/internal.h"

static const ds_temporal_expr zero = {.kind = DS_TEMPORAL_CONST};

uint32_t ds_temporal__dims_of(const ds_temporal_program *program, uint32_t node) {
    return program->statements[node < program->n ? node : node - program->n].dims;
}

/* The reader of an edge: to whose point the read's conditions and indices refer. */
static uint32_t reader_of(const ds_temporal_program *program, const ds_temporal__edge *edge) {
    return edge->to < program->n ? edge->to : edge->from;
}

void ds_temporal__graph_init(const ds_temporal_program *program, const ds_temporal__parts *parts,
                             ds_arena *arena, ds_temporal__graph *out) {
    *out = (ds_temporal__graph){.program = program, .arena = arena, .parts = parts};
    for (uint32_t s = 0; s < program->n; s++) {
        const ds_temporal_statement *reader = &program->statements[s];
        ds_temporal__box domain = parts ? parts->domain[s] : ds_temporal__domain(program, s);
        for (uint32_t r = 0; r < reader->n_reads; r++) {
            ds_temporal__edge edge = {
                .from = reader->reads[r].source, .to = s, .read = &reader->reads[r]};
            ds_temporal__where(reader->reads[r].when, &domain, arena, &edge.where);
            if (edge.where.n > 0) DS_PUSH(arena, &out->edges, edge);
        }
    }
    for (uint32_t i = 0, n = out->edges.n; i < n; i++) {
        ds_temporal__edge edge = out->edges.at[i];
        uint32_t source = edge.from;
        if (program->statements[source].kept) continue;
        edge.from = edge.to;
        edge.to = program->n + source;
        DS_PUSH(arena, &out->edges, edge);
    }
    for (uint32_t s = 0; s < program->n; s++) {
        if (program->statements[s].kept) continue;
        ds_temporal__edge edge = {.from = s, .to = program->n + s};
        DS_PUSH(arena, &out->edges, edge);
    }
}

/* The expression that decides a read's lag in a direction, less the reader's own point: the read's
 * last point in the direction is the greatest of sign*(expression + form) + less. */
typedef struct ending {
    const ds_temporal_expr *e;
    ds_temporal__form form;
    int64_t sign;
} ending;

static ending ending_of(const ds_temporal_program *program, const ds_temporal__edge *edge,
                        uint32_t dim, int direction) {
    uint32_t source = edge->to < program->n ? edge->from : edge->to - program->n;
    uint32_t reader = reader_of(program, edge);
    /* A free waits for a read as a read waits for a value, in the other direction. */
    int sense = edge->to < program->n ? direction : -direction;
    ending end = {.e = &zero, .sign = sense};
    if (program->statements[reader].dims >> dim & 1) end.form.k[dim] = -1;
    if (!(program->statements[source].dims >> dim & 1)) return end;
    const ds_temporal_index *index = &edge->read->index[dim];
    end.e = index->at;
    if (index->end && sense > 0) {
        end.e = index->end;
        end.form.c = -1;
    }
    return end;
}

int64_t ds_temporal__lag(const ds_temporal_program *program, const ds_temporal__edge *edge,
                         uint32_t dim, int direction) {
    if (!edge->read) return 0;
    ending end = ending_of(program, edge, dim, direction);
    int64_t lag = INT64_MIN;
    for (uint32_t i = 0; i < edge->where.n; i++) {
        ds_temporal__span span = ds_temporal__span_of(end.e, &end.form, &edge->where.at[i]);
        int64_t most = end.sign > 0 ? span.hi : -span.lo;
        if (most > lag) lag = most;
    }
    return lag;
}

void ds_temporal__narrow(const ds_temporal__graph *graph, ds_temporal__edge *edge, uint32_t dim,
                         int direction, int64_t lag) {
    if (!edge->read || edge->to >= graph->program->n) return;
    ending end = ending_of(graph->program, edge, dim, direction);
    ds_temporal__form form;
    if (!ds_temporal__form_of(end.e, &form)) return;
    ds_temporal__boxes kept = {0};
    for (uint32_t i = 0; i < edge->where.n; i++) {
        ds_temporal__box box = edge->where.at[i];
        ds_temporal__span span = ds_temporal__span_of(end.e, &end.form, &box);
        if ((end.sign > 0 ? span.hi : -span.lo) < lag) continue;
        for (uint32_t d = 0; d < DS_TEMPORAL_DIMS; d++) {
            int64_t k = end.sign * (form.k[d] + end.form.k[d]);
            if (k > 0) box.lo[d] = box.hi[d] - 1;
            if (k < 0) box.hi[d] = box.lo[d] + 1;
        }
        DS_PUSH(graph->arena, &kept, box);
    }
    edge->where = kept;
}

int64_t ds_temporal_reach(const ds_temporal_program *program, uint32_t reader,
                          const ds_temporal_read *read, uint32_t dim, int direction,
                          ds_arena *arena) {
    ds_temporal__edge edge = {.from = reader, .to = program->n + read->source, .read = read};
    ds_temporal__box domain = ds_temporal__domain(program, reader);
    ds_temporal__where(read->when, &domain, arena, &edge.where);
    return ds_temporal__lag(program, &edge, dim, direction);
}
