/* isl as an oracle, where isl is installed: programs that isl finds a schedule for have a nest of
 * loops here, all but two of 10,000. isl looks for one multi-dimensional affine schedule a
 * statement (Feautrier, Pluto), skewed ones too. */
#include "tests/support/temporal.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <isl/ctx.h>
#include <isl/options.h>
#include <isl/schedule.h>
#include <isl/union_map.h>
#include <isl/union_set.h>
#include <stdio.h>

#define PROGRAMS 10000

static void put(const ds_temporal_expr *e, ds_buf *out) {
    static const char *const infix[] = {
        [DS_TEMPORAL_ADD] = "+",  [DS_TEMPORAL_SUB] = "-",   [DS_TEMPORAL_MUL] = "*",
        [DS_TEMPORAL_LT] = "<",   [DS_TEMPORAL_LE] = "<=",   [DS_TEMPORAL_EQ] = "=",
        [DS_TEMPORAL_NE] = "!=",  [DS_TEMPORAL_AND] = "and", [DS_TEMPORAL_OR] = "or",
        [DS_TEMPORAL_MOD] = "mod"};
    if (e->kind == DS_TEMPORAL_CONST) {
        ds_buf_printf(out, "%" PRId64, e->value);
    } else if (e->kind == DS_TEMPORAL_DIM) {
        ds_buf_printf(out, "v%" PRId64, e->value);
    } else if (e->kind == DS_TEMPORAL_NOT) {
        ds_buf_put(out, "(not ");
        put(e->a, out);
        ds_buf_put(out, ")");
    } else if (e->kind == DS_TEMPORAL_MIN || e->kind == DS_TEMPORAL_MAX) {
        ds_buf_put(out, e->kind == DS_TEMPORAL_MIN ? "min(" : "max(");
        put(e->a, out);
        ds_buf_put(out, ", ");
        put(e->b, out);
        ds_buf_put(out, ")");
    } else if (e->kind == DS_TEMPORAL_DIV) {
        ds_buf_put(out, "floor((");
        put(e->a, out);
        ds_buf_put(out, ")/");
        put(e->b, out);
        ds_buf_put(out, ")");
    } else {
        ds_buf_put(out, "(");
        put(e->a, out);
        ds_buf_printf(out, " %s ", infix[e->kind]);
        put(e->b, out);
        ds_buf_put(out, ")");
    }
}

/* S3[v0, v1], with `v` or another letter. */
static void put_tuple(const ds_temporal_program *p, uint32_t s, char letter, ds_buf *out) {
    const char *between = "";
    ds_buf_printf(out, "S%u[", s);
    for (uint32_t d = 0; d < p->n_dims; d++) {
        if (!(p->statements[s].dims >> d & 1)) continue;
        ds_buf_printf(out, "%s%c%u", between, letter, d);
        between = ", ";
    }
    ds_buf_put(out, "]");
}

static void put_domain(const ds_temporal_program *p, uint32_t s, char letter, ds_buf *out) {
    ds_buf_put(out, "1 = 1");
    for (uint32_t d = 0; d < p->n_dims; d++)
        if (p->statements[s].dims >> d & 1)
            ds_buf_printf(out, " and %" PRId64 " <= %c%u < %" PRId64, p->dims[d].lo, letter, d,
                          p->dims[d].hi);
}

static void put_read(const ds_temporal_program *p, uint32_t s, const ds_temporal_read *read,
                     ds_buf *out) {
    put_tuple(p, read->source, 'x', out);
    ds_buf_put(out, " -> ");
    put_tuple(p, s, 'v', out);
    ds_buf_put(out, " : ");
    put_domain(p, s, 'v', out);
    ds_buf_put(out, " and ");
    put_domain(p, read->source, 'x', out);
    if (read->when) ds_buf_put(out, " and ");
    if (read->when) put(read->when, out);
    for (uint32_t d = 0; d < p->n_dims; d++) {
        if (!(p->statements[read->source].dims >> d & 1)) continue;
        ds_buf_printf(out, " and x%u %s ", d, read->index[d].end ? ">=" : "=");
        put(read->index[d].at, out);
        if (!read->index[d].end) continue;
        ds_buf_printf(out, " and x%u < ", d);
        put(read->index[d].end, out);
    }
}

static bool isl_finds_one(isl_ctx *ctx, const ds_temporal_program *p) {
    ds_buf domain = {0}, reads = {0};
    ds_buf_put(&domain, "{ ");
    ds_buf_put(&reads, "{ ");
    for (uint32_t s = 0; s < p->n; s++) {
        put_tuple(p, s, 'v', &domain);
        ds_buf_put(&domain, " : ");
        put_domain(p, s, 'v', &domain);
        ds_buf_put(&domain, s + 1 < p->n ? "; " : " }");
        for (uint32_t r = 0; r < p->statements[s].n_reads; r++) {
            put_read(p, s, &p->statements[s].reads[r], &reads);
            ds_buf_put(&reads, "; ");
        }
    }
    ds_buf_put(&reads, "}");
    isl_union_set *points = isl_union_set_read_from_str(ctx, domain.text);
    isl_union_map *order = isl_union_map_read_from_str(ctx, reads.text);
    cr_assert(points && order, "%s\n%s", domain.text, reads.text);
    isl_schedule_constraints *c = isl_schedule_constraints_on_domain(points);
    c = isl_schedule_constraints_set_validity(c, isl_union_map_copy(order));
    c = isl_schedule_constraints_set_proximity(c, order);
    isl_ctx_set_max_operations(ctx, 20000000);
    isl_schedule *schedule = isl_schedule_constraints_compute_schedule(c);
    bool found = schedule != NULL;
    isl_schedule_free(schedule);
    isl_ctx_reset_error(ctx);
    isl_ctx_reset_operations(ctx);
    ds_buf_deinit(&domain);
    ds_buf_deinit(&reads);
    return found;
}

Test(isl, what_isl_schedules_needs_no_unrolling) {
    isl_ctx *ctx = isl_ctx_alloc();
    isl_options_set_on_error(ctx, ISL_ON_ERROR_CONTINUE);
    int unrolled = 0, missed = 0;
    for (uint64_t seed = 0; seed < PROGRAMS; seed++) {
        ds_buf text = {0};
        temporal_random(seed, &text);
        ds_arena arena;
        ds_arena_init(&arena);
        ds_temporal_program p = temporal_parse(&arena, text.text);
        ds_temporal_schedule schedule;
        if (ds_temporal_schedule_make(&p, &arena, &schedule, NULL) == DS_OK && schedule.unrolled) {
            unrolled++;
            if (isl_finds_one(ctx, &p)) {
                missed++;
                printf("isl alone orders program %" PRIu64 ":\n%s", seed, text.text);
            }
        }
        ds_arena_deinit(&arena);
        ds_buf_deinit(&text);
    }
    printf("%d programs without a nest, isl orders %d of them\n", unrolled, missed);
    isl_ctx_free(ctx);
    /* Both have a statement that recurs forward for some points and reversed for others. */
    cr_expect_leq(missed, 2);
}
