#include "tests/support/temporal.h"

#include "ir/base/rng.h"

#include <criterion/criterion.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- text ---- */

typedef struct reader {
    ds_arena *arena;
    const char *at, *text;
    ds_temporal_program program;
    char names[64][32];
} reader;

static const ds_temporal_expr *any(reader *r);

static void skip(reader *r) {
    while (*r->at == ' ') r->at++;
}

static bool take(reader *r, const char *word) {
    skip(r);
    size_t n = strlen(word);
    if (strncmp(r->at, word, n) != 0) return false;
    if (isalpha((unsigned char)word[0]) && isalnum((unsigned char)r->at[n])) return false;
    r->at += n;
    return true;
}

static void expect(reader *r, const char *word) {
    cr_assert(take(r, word), "expected %s at: %.40s", word, r->at);
}

static int64_t integer(reader *r) {
    skip(r);
    char *end;
    int64_t value = strtoll(r->at, &end, 10);
    cr_assert(end != r->at, "expected a number at: %.40s", r->at);
    r->at = end;
    return value;
}

static void name(reader *r, char out[32]) {
    skip(r);
    int n = 0;
    while (isalnum((unsigned char)*r->at) || *r->at == '_') out[n++] = *r->at++;
    out[n] = '\0';
    cr_assert(n > 0, "expected a name at: %.40s", r->at);
}

static uint32_t dim(reader *r, const char *text) {
    for (uint32_t d = 0; d < r->program.n_dims; d++)
        if (strcmp(r->program.dims[d].name, text) == 0) return d;
    cr_assert(false, "no dim %s", text);
    return 0;
}

static const ds_temporal_expr *atom(reader *r) {
    static const struct {
        const char *text;
        ds_temporal_kind kind;
    } calls[] = {{"min", DS_TEMPORAL_MIN}, {"max", DS_TEMPORAL_MAX}};
    skip(r);
    if (isdigit((unsigned char)*r->at) || *r->at == '-')
        return ds_temporal_const(r->arena, integer(r));
    if (take(r, "(")) {
        const ds_temporal_expr *e = any(r);
        expect(r, ")");
        return e;
    }
    if (take(r, "!")) return ds_temporal_op(r->arena, DS_TEMPORAL_NOT, atom(r), NULL);
    for (int i = 0; i < 2; i++)
        if (take(r, calls[i].text)) {
            expect(r, "(");
            const ds_temporal_expr *a = any(r);
            expect(r, ",");
            const ds_temporal_expr *b = any(r);
            expect(r, ")");
            return ds_temporal_op(r->arena, calls[i].kind, a, b);
        }
    char text[32];
    name(r, text);
    return ds_temporal_dim(r->arena, dim(r, text));
}

static const ds_temporal_expr *binary(reader *r, int level) {
    static const struct {
        int level;
        const char *text;
        ds_temporal_kind kind;
    } ops[] = {{0, "or", DS_TEMPORAL_OR}, {1, "and", DS_TEMPORAL_AND}, {2, "<=", DS_TEMPORAL_LE},
               {2, "<", DS_TEMPORAL_LT},  {2, "==", DS_TEMPORAL_EQ},   {2, "!=", DS_TEMPORAL_NE},
               {3, "+", DS_TEMPORAL_ADD}, {3, "-", DS_TEMPORAL_SUB},   {4, "*", DS_TEMPORAL_MUL},
               {4, "/", DS_TEMPORAL_DIV}, {4, "%", DS_TEMPORAL_MOD}};
    if (level == 5) return atom(r);
    const ds_temporal_expr *e = binary(r, level + 1);
    for (bool again = true; again;) {
        again = false;
        for (size_t i = 0; i < sizeof ops / sizeof *ops && !again; i++)
            if (ops[i].level == level && take(r, ops[i].text)) {
                e = ds_temporal_op(r->arena, ops[i].kind, e, binary(r, level + 1));
                again = true;
            }
    }
    return e;
}

static const ds_temporal_expr *any(reader *r) {
    return binary(r, 0);
}

static uint32_t statement(reader *r, const char *text) {
    for (uint32_t s = 0; s < r->program.n; s++)
        if (strcmp(r->names[s], text) == 0) return s;
    cr_assert(false, "no statement %s", text);
    return 0;
}

static void read_dims(reader *r) {
    char text[32];
    while (skip(r), isalpha((unsigned char)*r->at)) {
        name(r, text);
        expect(r, "=");
        int64_t lo = 0, hi = integer(r);
        if (take(r, "..")) lo = hi, hi = integer(r);
        r->program.dims[r->program.n_dims++] =
            (ds_temporal_range){ds_arena_strdup(r->arena, text), lo, hi};
    }
}

static ds_temporal_read read_read(reader *r, ds_temporal_statement *all) {
    char text[32];
    ds_temporal_read read = {0};
    name(r, text);
    read.source = statement(r, text);
    uint32_t dims = all[read.source].dims;
    bool first = true;
    for (uint32_t d = 0; d < r->program.n_dims; d++) {
        if (!(dims >> d & 1)) continue;
        expect(r, first ? "{" : ",");
        first = false;
        read.index[d].at = any(r);
        if (take(r, ":")) read.index[d].end = any(r);
    }
    if (!first) expect(r, "}");
    if (take(r, "if")) read.when = any(r);
    return read;
}

/* The statement's line, up to its reads. */
static void read_head(reader *r, ds_temporal_statement *out) {
    char text[32];
    name(r, text);
    while (!take(r, "-") && isalpha((unsigned char)*(skip(r), r->at))) {
        name(r, text);
        out->dims |= 1u << dim(r, text);
        take(r, ",");
    }
    out->bytes = integer(r);
    out->kept = take(r, "kept");
    expect(r, ":");
}

ds_temporal_program temporal_parse(ds_arena *arena, const char *text) {
    reader r = {.arena = arena, .at = text, .text = text};
    ds_temporal_statement *all = DS_NEW_N(arena, ds_temporal_statement, 64);
    const char *lines[64];
    expect(&r, "dims");
    read_dims(&r);
    for (; *r.at == '\n' && r.at[1] != '\0'; r.program.n++) {
        lines[r.program.n] = ++r.at;
        name(&r, r.names[r.program.n]);
        all[r.program.n].name = ds_arena_strdup(arena, r.names[r.program.n]);
        while (*r.at != '\n' && *r.at != '\0') r.at++;
    }
    for (uint32_t s = 0; s < r.program.n; s++) {
        r.at = lines[s];
        read_head(&r, &all[s]);
    }
    for (uint32_t s = 0; s < r.program.n; s++) {
        r.at = strchr(lines[s], ':') + 1;
        ds_temporal_read *reads = DS_NEW_N(arena, ds_temporal_read, 16);
        while (skip(&r), *r.at != '\n' && *r.at != '\0') {
            reads[all[s].n_reads++] = read_read(&r, all);
            take(&r, ";");
        }
        all[s].reads = reads;
    }
    r.program.statements = all;
    return r.program;
}

/* ---- points ---- */

static int64_t number_of(const temporal_world *w, uint32_t s, const int64_t *p) {
    int64_t k = 0;
    for (uint32_t d = 0; d < w->program->n_dims; d++) {
        const ds_temporal_range *range = &w->program->dims[d];
        if (w->program->statements[s].dims & 1u << d)
            k = k * (range->hi - range->lo) + p[d] - range->lo;
    }
    return w->base[s] + k;
}

static uint32_t place_of(const temporal_world *w, int64_t number, int64_t *p) {
    uint32_t s = w->program->n - 1;
    while (number < w->base[s]) s--;
    int64_t rest = number - w->base[s];
    for (uint32_t d = w->program->n_dims; d-- > 0;) {
        const ds_temporal_range *range = &w->program->dims[d];
        p[d] = 0;
        if (!(w->program->statements[s].dims & 1u << d)) continue;
        p[d] = range->lo + rest % (range->hi - range->lo);
        rest /= range->hi - range->lo;
    }
    return s;
}

/* Calls f for every point that statement s reads at p. */
typedef bool visitor(temporal_world *w, int64_t number, void *data);
static bool each_read(temporal_world *w, uint32_t s, const int64_t *p, visitor *f, void *data) {
    for (uint32_t r = 0; r < w->program->statements[s].n_reads; r++) {
        const ds_temporal_read *read = &w->program->statements[s].reads[r];
        if (read->when && !ds_temporal_eval(read->when, p)) continue;
        uint32_t dims = w->program->statements[read->source].dims, nd = w->program->n_dims;
        int64_t lo[DS_TEMPORAL_DIMS] = {0}, size[DS_TEMPORAL_DIMS], total = 1;
        for (uint32_t d = 0; d < nd; d++) {
            size[d] = 1;
            if (!(dims & 1u << d)) continue;
            lo[d] = ds_temporal_eval(read->index[d].at, p);
            if (read->index[d].end) size[d] = ds_temporal_eval(read->index[d].end, p) - lo[d];
            total *= size[d] < 0 ? 0 : size[d];
        }
        for (int64_t i = 0; i < total; i++) {
            int64_t q[DS_TEMPORAL_DIMS] = {0}, k = i;
            for (uint32_t d = nd; d-- > 0;) q[d] = lo[d] + k % size[d], k /= size[d];
            if (!f(w, number_of(w, read->source, q), data)) return false;
        }
    }
    return true;
}

typedef struct visit {
    int64_t *waits, *stack, n_stack;
    bool reading; /* counts reads; else takes them away */
    const char *offence;
} visit;

static bool see_need(temporal_world *w, int64_t number, void *data) {
    visit *v = data;
    if (!w->needed[number]) v->stack[v->n_stack++] = number;
    w->needed[number] = 1;
    return true;
}

/* Kahn from the readers: a point goes once all its readers have gone. */
static bool see_wait(temporal_world *w, int64_t number, void *data) {
    visit *v = data;
    (void)w;
    if (v->reading)
        v->waits[number]++;
    else if (--v->waits[number] == 0)
        v->stack[v->n_stack++] = number;
    return true;
}

void temporal_world_init(const ds_temporal_program *program, temporal_world *out) {
    *out = (temporal_world){.program = program};
    for (uint32_t s = 0; s < program->n; s++) {
        out->base[s] = out->n;
        int64_t size = 1;
        for (uint32_t d = 0; d < program->n_dims; d++)
            if (program->statements[s].dims & 1u << d)
                size *= program->dims[d].hi - program->dims[d].lo;
        out->n += size;
    }
    size_t n = (size_t)out->n + 1;
    out->needed = calloc(n, 1);
    out->ran = calloc(n, 1);
    out->freed = calloc(n, 1);
    visit v = {
        .waits = calloc(n, sizeof(int64_t)), .stack = calloc(n, sizeof(int64_t)), .reading = true};
    int64_t p[DS_TEMPORAL_DIMS] = {0}, gone = 0;
    for (int64_t i = 0; i < out->n; i++) {
        uint32_t s = place_of(out, i, p);
        each_read(out, s, p, see_wait, &v);
    }
    v.reading = false;
    for (int64_t i = 0; i < out->n; i++)
        if (v.waits[i] == 0) v.stack[v.n_stack++] = i;
    while (v.n_stack > 0) {
        gone++;
        uint32_t s = place_of(out, v.stack[--v.n_stack], p);
        each_read(out, s, p, see_wait, &v);
    }
    out->cyclic = gone < out->n;
    for (int64_t i = 0; i < out->n; i++)
        if (program->statements[place_of(out, i, p)].kept)
            out->needed[i] = 1, v.stack[v.n_stack++] = i;
    while (v.n_stack > 0) {
        uint32_t s = place_of(out, v.stack[--v.n_stack], p);
        each_read(out, s, p, see_need, &v);
    }
    free(v.waits);
    free(v.stack);
}

void temporal_world_deinit(temporal_world *world) {
    free(world->needed);
    free(world->ran);
    free(world->freed);
}

/* ---- carrying out ---- */

static char offence_text[256];

static const char *offend(const temporal_world *w, int64_t number, const char *what) {
    int64_t p[DS_TEMPORAL_DIMS] = {0};
    uint32_t s = place_of(w, number, p);
    snprintf(offence_text, sizeof offence_text, "%s{%" PRId64 ", %" PRId64 ", %" PRId64 "} %s",
             w->program->statements[s].name, p[0], p[1], p[2], what);
    return offence_text;
}

static bool see_read(temporal_world *w, int64_t number, void *data) {
    visit *v = data;
    if (!w->ran[number]) v->offence = offend(w, number, "is read before it runs");
    if (w->freed[number]) v->offence = offend(w, number, "is read after its free");
    return !v->offence;
}

static const char *run_point(temporal_world *w, const ds_temporal_node *node, const int64_t *p) {
    int64_t number = number_of(w, node->statement, p);
    const ds_temporal_statement *s = &w->program->statements[node->statement];
    visit v = {0};
    if (!w->needed[number]) return offend(w, number, "runs and nothing needs it");
    if (w->ran[number]) return offend(w, number, "runs twice");
    for (uint32_t r = 0; r < s->n_reads; r++)
        if (node->active[r] != (!s->reads[r].when || ds_temporal_eval(s->reads[r].when, p)))
            return offend(w, number, "runs with the wrong reads");
    each_read(w, node->statement, p, see_read, &v);
    w->ran[number] = 1;
    return v.offence;
}

static const char *free_point(temporal_world *w, uint32_t s, const int64_t *p) {
    int64_t number = number_of(w, s, p);
    if (!w->ran[number]) return offend(w, number, "is freed before it runs");
    if (w->freed[number]) return offend(w, number, "is freed twice");
    if (w->program->statements[s].kept) return offend(w, number, "is freed and kept");
    w->freed[number] = 1;
    return NULL;
}

static const char *leaf(temporal_world *w, const ds_temporal_node *node, const int64_t *loops) {
    int64_t p[DS_TEMPORAL_DIMS] = {0}, total = 1, lo[DS_TEMPORAL_DIMS];
    for (uint32_t d = 0; d < DS_TEMPORAL_DIMS; d++) {
        const ds_temporal_place *place = &node->place[d];
        lo[d] = place->offset + (place->loop == DS_TEMPORAL_NO_LOOP ? 0 : loops[place->loop]);
        total *= place->count;
    }
    const char *offence = NULL;
    for (int64_t i = 0; i < total && !offence; i++) {
        int64_t k = i;
        for (uint32_t d = 0; d < DS_TEMPORAL_DIMS; d++)
            p[d] = lo[d] + k % node->place[d].count, k /= node->place[d].count;
        for (uint32_t d = 0; d < w->program->n_dims; d++)
            if ((w->program->statements[node->statement].dims & 1u << d) &&
                (p[d] < w->program->dims[d].lo || p[d] >= w->program->dims[d].hi))
                return "a point outside of its domain";
        offence = node->kind == DS_TEMPORAL_RUN ? run_point(w, node, p)
                                                : free_point(w, node->statement, p);
    }
    return offence;
}

static const char *run_nodes(temporal_world *w, const ds_temporal_node *nodes, uint32_t n,
                             int64_t *loops, uint32_t depth) {
    const char *offence = NULL;
    for (uint32_t i = 0; i < n && !offence; i++) {
        if (nodes[i].kind != DS_TEMPORAL_LOOP) {
            offence = leaf(w, &nodes[i], loops);
            continue;
        }
        int64_t turns = nodes[i].hi - nodes[i].lo;
        for (int64_t t = 0; t < turns && !offence; t++) {
            loops[depth] = nodes[i].reverse ? nodes[i].hi - 1 - t : nodes[i].lo + t;
            offence = run_nodes(w, nodes[i].body, nodes[i].n_body, loops, depth + 1);
        }
    }
    return offence;
}

const char *temporal_world_run(temporal_world *world, const ds_temporal_schedule *schedule) {
    int64_t loops[2 * DS_TEMPORAL_DIMS] = {0}, p[DS_TEMPORAL_DIMS] = {0};
    const char *offence = run_nodes(world, schedule->nodes, schedule->n_nodes, loops, 0);
    for (int64_t i = 0; i < world->n && !offence; i++) {
        if (world->needed[i] && !world->ran[i])
            offence = offend(world, i, "is needed and never runs");
        bool kept = world->program->statements[place_of(world, i, p)].kept;
        if (world->ran[i] && !kept && !world->freed[i])
            offence = offend(world, i, "is never freed");
    }
    return offence;
}

/* ---- random programs ---- */

typedef struct maker {
    ds_rng rng;
    ds_buf *out;
    uint32_t n_dims, n, dims[8];
    int64_t size[3];
} maker;

static const char *const dim_names[] = {"i", "t", "l"};

static int64_t pick(maker *m, int64_t n) {
    return (int64_t)ds_rng_below(&m->rng, (uint64_t)n);
}

/* One index of a source's dim d, as text: within bounds at every point where `when` holds, which is
 * empty or a condition. */
static void put_index(maker *m, uint32_t reader_dims, uint32_t d, char *when, size_t room) {
    const char *t = dim_names[d];
    int64_t N = m->size[d], k = 1 + pick(m, 2);
    bool has = (reader_dims >> d & 1) != 0;
    int64_t kind = pick(m, has ? 22 : 4);
    if (!has || kind >= 20) {
        if (pick(m, 3) == 0)
            ds_buf_printf(m->out, "0:%" PRId64, N);
        else
            ds_buf_printf(m->out, "%" PRId64, pick(m, N));
        return;
    }
    size_t used = strlen(when);
    const char *and = used ? " and " : "";
    switch (kind) {
    case 0:
    case 1:
    case 2:
        ds_buf_printf(m->out, "%s-%" PRId64, t, k);
        snprintf(when + used, room - used, "%s%" PRId64 "<=%s", and, k, t);
        return;
    case 3:
        ds_buf_printf(m->out, "%s+%" PRId64, t, k);
        snprintf(when + used, room - used, "%s%s<%" PRId64, and, t, N - k);
        return;
    case 4:
        ds_buf_printf(m->out, "max(0,%s-%" PRId64 ")", t, k);
        return;
    case 5:
        ds_buf_printf(m->out, "min(%s+%" PRId64 ",%" PRId64 ")", t, k, N - 1);
        return;
    case 6:
        ds_buf_printf(m->out, "0:%s+1", t);
        return;
    case 7:
        ds_buf_printf(m->out, "0:%s", t);
        return;
    case 8:
        ds_buf_printf(m->out, "%s:%" PRId64, t, N);
        return;
    case 9:
        ds_buf_printf(m->out, "max(0,%s-%" PRId64 "):%s+1", t, k, t);
        return;
    case 10:
        ds_buf_printf(m->out, "%s:min(%s+%" PRId64 ",%" PRId64 ")", t, t, k + 1, N);
        return;
    case 11:
        ds_buf_printf(m->out, "max(0,%s-%" PRId64 "):min(%s+%" PRId64 ",%" PRId64 ")", t, k, t, k,
                      N);
        return;
    case 12:
        if (pick(m, 4) == 0)
            ds_buf_printf(m->out, "%" PRId64 "-%s", N - 1, t);
        else
            ds_buf_put(m->out, t);
        return;
    case 13:
        if (pick(m, 4) == 0)
            ds_buf_printf(m->out, "%s/2*2:min(%s/2*2+2,%" PRId64 ")", t, t, N);
        else
            ds_buf_put(m->out, t);
        return;
    default:
        ds_buf_put(m->out, t);
        return;
    }
}

static void put_read(maker *m, uint32_t of, const char *branch) {
    uint32_t source = (uint32_t)pick(m, m->n);
    if (pick(m, 10) > 0 && of > 0) source = (uint32_t)pick(m, of); /* mostly earlier ones */
    char when[160] = "";
    snprintf(when, sizeof when, "%s", branch);
    ds_buf_printf(m->out, " s%u", source);
    bool first = true;
    for (uint32_t d = 0; d < m->n_dims; d++) {
        if (!(m->dims[source] >> d & 1)) continue;
        ds_buf_put(m->out, first ? "{" : ",");
        put_index(m, m->dims[of], d, when, sizeof when);
        first = false;
    }
    if (!first) ds_buf_put(m->out, "}");
    if (when[0]) ds_buf_printf(m->out, " if %s", when);
}

/* A condition on one of the reader's dims; "" if the reader has none. */
static void put_condition(maker *m, uint32_t of, char *out, size_t room) {
    uint32_t d = (uint32_t)pick(m, m->n_dims);
    static const char *const forms[] = {"%s<%d", "%s==%d", "%s<=%d", "%s%%2==%d"};
    out[0] = '\0';
    if (m->dims[of] >> d & 1) {
        int64_t form = pick(m, 16) == 0 ? 3 : pick(m, 3);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(out, room, forms[form], dim_names[d], form == 3 ? 1 : (int)pick(m, m->size[d]));
#pragma GCC diagnostic pop
    }
}

static void put_program(maker *m) {
    m->n_dims = 1 + (uint32_t)pick(m, 3);
    m->n = 1 + (uint32_t)pick(m, 6);
    ds_buf_put(m->out, "dims");
    for (uint32_t d = 0; d < m->n_dims; d++) {
        m->size[d] = 1 + pick(m, 6);
        ds_buf_printf(m->out, " %s=%" PRId64, dim_names[d], m->size[d]);
    }
    for (uint32_t s = 0; s < m->n; s++) m->dims[s] = (uint32_t)pick(m, 1 << m->n_dims);
    for (uint32_t s = 0; s < m->n; s++)
        if (pick(m, 3) > 0) m->dims[s] = (1u << m->n_dims) - 1;
    for (uint32_t s = 0; s < m->n; s++) {
        ds_buf_printf(m->out, "\ns%u ", s);
        if (!m->dims[s]) ds_buf_put(m->out, "-");
        bool first = true;
        for (uint32_t d = 0; d < m->n_dims; d++)
            if (m->dims[s] >> d & 1) {
                ds_buf_printf(m->out, "%s%s", first ? "" : ",", dim_names[d]);
                first = false;
            }
        bool kept = s + 1 == m->n || pick(m, 6) == 0;
        ds_buf_printf(m->out, " %" PRId64 "%s :", 1 + pick(m, 64), kept ? " kept" : "");
        char condition[64], branch[96];
        put_condition(m, s, condition, sizeof condition);
        int64_t reads = pick(m, 4);
        for (int64_t r = 0; r < reads; r++) {
            if (r > 0) ds_buf_put(m->out, " ;");
            branch[0] = '\0';
            if (condition[0] && r < 2)
                snprintf(branch, sizeof branch, r ? "!(%s)" : "(%s)", condition);
            put_read(m, s, branch);
        }
    }
    ds_buf_put(m->out, "\n");
}

void temporal_random(uint64_t seed, ds_buf *out) {
    maker m = {.rng = {seed * 7919 + 1}, .out = out};
    put_program(&m);
}
