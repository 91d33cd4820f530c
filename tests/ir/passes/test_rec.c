/* A rec as loops equals the rec by its definition: 2,000 random programs, each executed both ways,
 * and refused both ways if a value depends on itself; the four programs of the language's page; and
 * the order and stores that each of them gets. */
#include "ir/base/rng.h"
#include "ir/lang/lang.h"
#include "ir/passes/passes.h"
#include "tests/support/exec.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- random programs ---- */

typedef struct maker {
    ds_rng rng;
    ds_buf *out;
    int n_dims, n, bound[3];
    unsigned dims[6];
} maker;

static const char *const dim_names[] = {"i", "t", "l"};

static int below(maker *m, int n) {
    return (int)ds_rng_below(&m->rng, (uint64_t)n);
}

/* One index of a source's dim, always within its range; `first`: the condition of the branch lets
 * t - 1 stand. */
static void put_index(maker *m, unsigned reader, int d, int first) {
    const char *t = dim_names[d];
    int n = m->bound[d], c = 1 + below(m, 2);
    if (!(reader >> d & 1)) {
        ds_buf_printf(m->out, "%d", below(m, n));
        return;
    }
    if (first == d) {
        ds_buf_printf(m->out, "%s - 1", t);
        return;
    }
    switch (below(m, 9)) {
    case 0:
        ds_buf_printf(m->out, "max(%s - %d, 0)", t, c);
        break;
    case 1:
        ds_buf_printf(m->out, "min(%s + %d, %d)", t, c, n - 1);
        break;
    case 2:
        ds_buf_printf(m->out, "%d", below(m, n));
        break;
    default:
        ds_buf_put(m->out, t);
    }
}

static void put_range(maker *m, unsigned reader, int d) {
    const char *t = dim_names[d];
    int n = m->bound[d], c = 1 + below(m, 2), kind = below(m, 6);
    if (!(reader >> d & 1)) kind = 5;
    if (kind == 0) ds_buf_printf(m->out, "0:%s + 1", t);
    if (kind == 1) ds_buf_printf(m->out, "%s:%d", t, n);
    if (kind == 2) ds_buf_printf(m->out, "max(%s - %d, 0):%s + 1", t, c, t);
    if (kind == 3) ds_buf_printf(m->out, "%s:min(%s + %d, %d)", t, t, c + 1, n);
    if (kind == 4) ds_buf_printf(m->out, "max(%s - %d, 0):min(%s + %d, %d)", t, c, t, c + 1, n);
    if (kind == 5) ds_buf_printf(m->out, "0:%d", n);
}

/* %e3{t, l - 1}; `ranged`: one of the source's dims, or -1. */
static void put_use(maker *m, unsigned reader, int source, int ranged, int first) {
    ds_buf_printf(m->out, "%%e%d", source);
    const char *between = "{";
    for (int d = 0; d < m->n_dims; d++) {
        if (!(m->dims[source] >> d & 1)) continue;
        ds_buf_put(m->out, between);
        between = ", ";
        if (d == ranged)
            put_range(m, reader, d);
        else
            put_index(m, reader, d, first);
    }
    if (m->dims[source]) ds_buf_putc(m->out, '}');
}

static int some_dim(maker *m, unsigned set) {
    int d = below(m, 3);
    while (!(set >> d & 1)) d = (d + 1) % 3;
    return d;
}

/* An equation reads mostly what comes before, so that most programs have no cycle. */
static int some_source(maker *m, int self) {
    return self > 0 && below(m, 12) ? below(m, self) : below(m, m->n);
}

static void put_equation(maker *m, int e) {
    unsigned own = m->dims[e];
    int a = some_source(m, e), b = some_source(m, e), kind = below(m, 5);
    if (e == 0) kind = below(m, 2) ? 4 : 0; /* begins with what comes from outside */
    if (e == 0 && !own) kind = 5;
    ds_buf_printf(m->out, "    %%e%d", e);
    const char *between = "{";
    for (int d = 0; d < m->n_dims; d++)
        if (own >> d & 1) {
            ds_buf_printf(m->out, "%s%s", between, dim_names[d]);
            between = ", ";
        }
    ds_buf_put(m->out, own ? "} = " : " = ");
    if (kind == 3 && m->dims[a]) {
        ds_buf_put(m->out, "reduce_sum(");
        put_use(m, own, a, some_dim(m, m->dims[a]), -1);
        ds_buf_put(m->out, ") {dims = [0]}");
    } else if (kind == 4 && own) {
        int d = some_dim(m, own), recursion = below(m, 4) > 0;
        if (recursion && below(m, 2)) b = below(m, m->n);
        ds_buf_printf(m->out, "case %s %s: ", dim_names[d], recursion ? "== 0" : "< 2");
        if (below(m, 3))
            put_use(m, own, a, -1, -1);
        else
            ds_buf_printf(m->out, "%%b{%d}", below(m, 6));
        ds_buf_put(m->out, ", else: ");
        put_use(m, own, b, -1, recursion ? d : -1);
    } else if (kind == 5) {
        ds_buf_put(m->out, "tanh(%b{2})");
    } else if (kind == 0 && own) {
        ds_buf_printf(m->out, "scale(%%b{%s}) {factor = 0.25 * %s}", dim_names[some_dim(m, own)],
                      dim_names[some_dim(m, own)]);
    } else {
        ds_buf_put(m->out, kind == 1 ? "tanh(" : "add(");
        put_use(m, own, a, -1, -1);
        if (kind != 1) ds_buf_put(m->out, ", ");
        if (kind != 1) put_use(m, own, b, -1, -1);
        ds_buf_putc(m->out, ')');
    }
    ds_buf_put(m->out, " : f64[2]\n");
}

static void put_family(maker *m, int e) {
    const char *between = "{";
    for (int d = 0; d < m->n_dims; d++)
        if (m->dims[e] >> d & 1) {
            ds_buf_printf(m->out, "%s%s: 0..%d", between, dim_names[d], m->bound[d]);
            between = ", ";
        }
    ds_buf_put(m->out, m->dims[e] ? "} f64[2]" : "f64[2]");
}

static void put_program(maker *m) {
    m->n_dims = 1 + below(m, 3);
    m->n = 2 + below(m, 5);
    for (int d = 0; d < 3; d++) m->bound[d] = 1 + below(m, 6);
    for (int e = 0; e < m->n; e++)
        m->dims[e] = below(m, 3) ? (1u << m->n_dims) - 1 : (unsigned)below(m, 1 << m->n_dims);
    int first = below(m, m->n), last = m->n - 1;
    ds_buf_put(m->out, "dir 1\nfunc @f(%b{k: 0..6}: f64[2]) -> (");
    put_family(m, first);
    ds_buf_put(m->out, ", ");
    put_family(m, last);
    ds_buf_put(m->out, ") {\n  %x, %y = rec (");
    for (int d = 0; d < m->n_dims; d++)
        ds_buf_printf(m->out, "%s%s in 0..%d", d ? ", " : "", dim_names[d], m->bound[d]);
    ds_buf_put(m->out, ") {\n");
    for (int e = m->n; e-- > 0;) put_equation(m, e);
    ds_buf_printf(m->out, "    yield %%e%d, %%e%d\n  }\n  return %%x, %%y\n}\n", first, last);
    ds_buf_put(m->out, "scenario { model = @f }\n");
}

/* ---- both ways ---- */

/* Executes the step that `lower` makes; outputs are the model's. */
static ds_status run_step(const exec_case *model, const char *text, exec_case *out) {
    ds_model_step *step;
    memset(out, 0, sizeof *out);
    ds_status status = ds_model_step_new(&model->binding, &step, &out->err);
    if (status != DS_OK) return status;
    ds_buf printed = {0};
    ds_print_module(step->unit->modules.at[0], &printed);
    ds_exec_options options = {.seed = 1, .keep_inputs = true};
    exec_text(out, printed.text, NULL, &options);
    cr_assert_eq(out->status, DS_OK, "%s\n%s\n%s", out->err.message, text, printed.text);
    ds_buf_deinit(&printed);
    ds_model_step_free(step);
    return DS_OK;
}

static void expect_same(const exec_case *a, const exec_case *b, const char *text) {
    ds_exec_comparison c;
    ds_exec_compare(a->result, b->result, DS_EXEC_BOUND, &c);
    cr_assert(c.equal, "the loops differ from the definition in\n%s", text);
    ds_exec_comparison_deinit(&c);
}

#define PROGRAMS 2000

Test(rec, random_programs_equal_their_definition) {
    int fine = 0, cycles = 0, limits = 0;
    for (uint64_t seed = 0; seed < PROGRAMS; seed++) {
        ds_buf text = {0};
        maker m = {.rng = {seed}, .out = &text};
        put_program(&m);
        exec_case model, loops;
        exec_text(&model, text.text, NULL, NULL);
        if (model.status == DS_OK) {
            ds_status status = run_step(&model, text.text, &loops);
            limits += status == DS_ERR_UNSUPPORTED;
            cr_assert(status == DS_OK || status == DS_ERR_UNSUPPORTED, "seed %" PRIu64 ": %s\n%s",
                      seed, loops.err.message, text.text);
            if (status == DS_OK) {
                expect_same(&model, &loops, text.text);
                exec_free(&loops);
            }
            fine++;
        } else {
            cr_assert(strstr(model.err.message, "depends on itself"), "seed %" PRIu64 ": %s\n%s",
                      seed, model.err.message, text.text);
            cycles++;
        }
        exec_free(&model);
        ds_buf_deinit(&text);
    }
    printf("%d equal, %d of them not stored yet, %d with a cycle\n", fine, limits, cycles);
    cr_expect_gt(fine, PROGRAMS / 2);
    cr_expect_lt(limits, PROGRAMS / 20);
}

/* ---- the four programs, and one with weights in a callee ---- */

static void compare_file(const char *name, const char *settings) {
    exec_case model, loops;
    exec_file(&model, name, settings);
    cr_assert_eq(model.status, DS_OK, "%s", model.err.message);
    cr_assert_eq(run_step(&model, name, &loops), DS_OK, "%s", loops.err.message);
    expect_same(&model, &loops, name);
    exec_free(&loops);
    exec_free(&model);
}

Test(rec, the_four_programs_equal_their_definition) {
    compare_file("tests/data/rec/decode.dir", "T=24");
    compare_file("tests/data/rec/decode.dir", "T=12 layers=5");
    compare_file("tests/data/rec/window.dir", "T=24 w=5");
    compare_file("tests/data/rec/window.dir", "T=24 w=1 layers=3");
    compare_file("tests/data/rec/rnn.dir", NULL);
}

/* n-step is a program; as a model it is the same function. */
Test(rec, n_step_equals_its_definition) {
    ds_buf text = {0};
    char line[256];
    FILE *file = fopen(DS_TEST_DIR "/data/rec/n-step.dir", "r");
    cr_assert(file);
    while (fgets(line, sizeof line, file)) ds_buf_put(&text, line);
    fclose(file);
    char *program = strstr(text.text, "program = @rl");
    cr_assert(program);
    memcpy(program, "model   = @rl", 13);
    exec_case model, loops;
    exec_text(&model, text.text, NULL, NULL);
    cr_assert_eq(model.status, DS_OK, "%s", model.err.message);
    cr_assert_eq(run_step(&model, text.text, &loops), DS_OK, "%s", loops.err.message);
    expect_same(&model, &loops, "n-step");
    exec_free(&loops);
    exec_free(&model);
    ds_buf_deinit(&text);
}

static const char *calls = "dir 1\nparam T = 6, L = 4\n"
                           "func @block(%x: f64[2, 8], %h: f64[2, 8]) -> f64[2, 8] {\n"
                           "  weight %w : f64[8, 8]\n  %y = matmul(%x, %w)\n  %z = add(%y, %h)\n  "
                           "%v = tanh(%z)\n  return %v\n}\n"
                           "func @f(%a{t: 0..T}: f64[2, 8]) -> {t: 0..T} f64[2, 8] {\n"
                           "  %r = rec (t in 0..T, l in 0..L) {\n"
                           "    %x = case l == 0: %a{t}, else: %y{t, l - 1}\n"
                           "    %h = case t == 0: %a{0}, else: %y{t - 1, l}\n"
                           "    %y = call @block(%x, %h) {weights = [l]} : f64[2, 8]\n"
                           "    yield %y{t, L - 1}\n  }\n  return %r\n}\nscenario { model = @f }\n";

Test(rec, weights_of_a_callee_are_one_for_each_dim_stated) {
    exec_case model, loops;
    exec_text(&model, calls, NULL, NULL);
    cr_assert_eq(model.status, DS_OK, "%s", model.err.message);
    cr_assert_eq(run_step(&model, calls, &loops), DS_OK, "%s", loops.err.message);
    expect_same(&model, &loops, calls);
    cr_expect_eq(model.result->inputs.n, 6 + 4); /* a weight a layer */
    cr_expect_eq(loops.result->inputs.n, 6 + 4);
    exec_free(&loops);
    exec_free(&model);
}

static void compare_text(const char *text) {
    exec_case model, loops;
    exec_text(&model, text, NULL, NULL);
    cr_assert_eq(model.status, DS_OK, "%s", model.err.message);
    cr_assert_eq(run_step(&model, text, &loops), DS_OK, "%s", loops.err.message);
    expect_same(&model, &loops, text);
    exec_free(&loops);
    exec_free(&model);
}

/* A rec in a function that a loop calls: its weight is one a turn of that loop. */
Test(rec, a_rec_in_a_loop_has_weights_for_each_turn) {
    compare_text("dir 1\nparam T = 4\n"
                 "func @cell(%x{t: 0..T}: f64[2, 3], %h0: f64[2, 3]) -> f64[2, 3] {\n"
                 "  %h = rec (t in 0..T, l in 0..2) {\n"
                 "    weight %w : f64[3, 3]\n    weight %v{l} : f64[3, 3]\n"
                 "    %s = case t == 0: %h0, else: %u{t - 1, l}\n"
                 "    %q = matmul(%s, %w)\n    %r = matmul(%q, %v)\n"
                 "    %z = add(%r, %x{t})\n    %u = tanh(%z)\n    yield %u\n  }\n"
                 "  %o = scale(%h{T - 1, 1}) {factor = 2.0}\n  return %o\n}\n"
                 "func @f(%x{t: 0..T}: f64[2, 3], %h0: f64[2, 3]) -> f64[2, 3] {\n"
                 "  %y = for k in 0..3 carry (%c = %h0) {\n"
                 "    %n = call @cell(%x, %c)\n    yield %n\n  }\n  return %y\n}\n"
                 "scenario { model = @f }\n");
}

/* A mask is drawn by the op's dims, whatever loop runs it. */
Test(rec, masks_are_those_of_the_definition) {
    compare_text("dir 1\nparam T = 5\n"
                 "func @drop(%x: f64[2, 3]) -> f64[2, 3] {\n"
                 "  weight %w : f64[3, 3]\n  %y = matmul(%x, %w)\n"
                 "  %d = dropout(%y) {p = 0.5}\n  return %d\n}\n"
                 "func @f(%x{t: 0..T}: f64[2, 3]) -> {t: 0..T} f64[2, 3] {\n"
                 "  %h = rec (t in 0..T, l in 0..2) {\n"
                 "    %s = case t == 0: %x{0}, else: %u{t - 1, 1}\n"
                 "    %d = dropout(%s) {p = 0.5}\n"
                 "    %e = call @drop(%d) {weights = [l]} : f64[2, 3]\n"
                 "    %u = add(%e, %x{t})\n    yield %u{t, 1}\n  }\n  return %h\n}\n"
                 "scenario { model = @f }\n");
}
