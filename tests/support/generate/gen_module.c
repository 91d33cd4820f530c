/* The text is written token by token; between tokens stands `gap`, which is mostly a blank and
 * sometimes a new line or a comment: that must not change what is read. */
#include "tests/support/generate/gen_module.h"

#include "ir/base/rng.h"

#include <string.h>

enum { MAX_VISIBLE = 64, MAX_INDICES = 4, MAX_DEPTH = 3 };

typedef struct value {
    uint32_t number;
    bool is_family; /* over 0..layers */
} value;

typedef struct gen {
    ds_rng rng;
    ds_buf *out;
    uint32_t next_value, n_funcs, n_args[8]; /* of the functions so far */
    value visible[MAX_VISIBLE];
    uint32_t n_visible, visible_from;
    bool in_rec;
    uint32_t next_index, indices[MAX_INDICES], n_indices;
    uint32_t depth;
} gen;

static const char BASE_TYPE[] = "f32[batch, width]";

/* ---- chance and layout ---- */

static bool one_in(gen *g, uint64_t n) {
    return ds_rng_below(&g->rng, n) == 0;
}
static uint64_t below(gen *g, uint64_t n) {
    return ds_rng_below(&g->rng, n);
}

#define PICK(g, array) ((array)[below((g), sizeof(array) / sizeof((array)[0]))])

static void put(gen *g, const char *text) {
    ds_buf_put(g->out, text);
}

static void comment(gen *g) {
    static const char *const texts[] = {
        "//",          "// word",          "//tight",  "//   spaced  ",
        "// f32[a@b]", "// caf\xc3\xa9 {", "// // \"", "//\t%x = y\t"};
    put(g, PICK(g, texts));
    put(g, "\n");
}

/* Between two tokens. */
static void gap(gen *g) {
    switch (below(g, 40)) {
    case 0:
        put(g, "\n    ");
        break;
    case 1:
        put(g, " ");
        comment(g);
        break;
    case 2:
        put(g, "\t");
        break;
    case 3:
        put(g, "\n\n\n");
        break;
    case 4:
        put(g, "   ");
        break;
    case 5:
        put(g, "\r\n");
        break;
    default:
        put(g, " ");
    }
}

/* Where no blank is needed. */
static void maybe_gap(gen *g) {
    if (one_in(g, 8)) gap(g);
}

static void token(gen *g, const char *text) {
    put(g, text);
    gap(g);
}

/* Between two statements: at least one line end. */
static void line(gen *g) {
    if (one_in(g, 6)) {
        put(g, "  ");
        comment(g);
    } else {
        put(g, "\n");
    }
    while (one_in(g, 5)) put(g, "\n");
    while (one_in(g, 6)) {
        comment(g);
        if (one_in(g, 3)) put(g, "\n");
    }
}

static void comma(gen *g, uint32_t k) {
    if (k == 0) return;
    maybe_gap(g);
    token(g, ",");
}

/* ---- expressions ---- */

static void put_expr(gen *g, uint32_t depth);

static void put_atom(gen *g) {
    static const char *const atoms[] = {"layers", "width", "batch", "dp", "1", "2", "7", "4096"};
    if (g->n_indices && one_in(g, 3))
        ds_buf_printf(g->out, "i%u", g->indices[below(g, g->n_indices)]);
    else
        put(g, PICK(g, atoms));
}

static void put_function(gen *g, uint32_t depth) {
    static const char *const names[] = {"min(", "max(", "ceildiv("};
    put(g, PICK(g, names));
    put_expr(g, depth);
    put(g, ", ");
    put_expr(g, depth);
    put(g, ")");
}

static void put_expr(gen *g, uint32_t depth) {
    static const char *const operators[] = {" + ", " - ", " * ", " / ", " % ", "*", "+", "%"};
    uint64_t kind = depth ? below(g, 6) : 0;
    if (kind < 2) {
        put_atom(g);
    } else if (kind == 2) {
        put(g, "-");
        put(g, "(");
        put_expr(g, depth - 1);
        put(g, ")");
    } else if (kind == 3) {
        put_function(g, depth - 1);
    } else {
        bool parens = one_in(g, 2);
        if (parens) put(g, "(");
        put_expr(g, depth - 1);
        put(g, PICK(g, operators));
        put_expr(g, depth - 1);
        if (parens) put(g, ")");
    }
}

static void put_condition(gen *g) {
    static const char *const compare[] = {" < ", " <= ", " == ", " != ", " > ", " >= "};
    if (one_in(g, 3)) put(g, "not ");
    put_expr(g, 1);
    put(g, PICK(g, compare));
    put_expr(g, 1);
    if (!one_in(g, 3)) return;
    put(g, one_in(g, 2) ? " and " : " or ");
    put_condition(g);
}

/* ---- types and attributes ---- */

static void put_place(gen *g) {
    static const char *const places[] = {
        "@m",      "@m{pp=1}", "@m{pp=0, dp=dp - 1}", "@box.gpu[0]", "@pod.n[layers].gpu[1 + 2]",
        "@box.cpu"};
    put(g, PICK(g, places));
}

static void put_type(gen *g) {
    static const char *const dtypes[] = {"f32", "bf16", "f16", "i32", "f8e4m3", "bool"};
    static const char *const splits[] = {"", "", "@dp", "@(dp,tp)", "@tp[6, 6, 2, 2]"};
    static const char *const partials[] = {" partial(dp)", " partial(dp, tp)", " partial(tp, max)"};
    if (!one_in(g, 4)) {
        put(g, BASE_TYPE);
        return;
    }
    put(g, PICK(g, dtypes));
    put(g, "[");
    for (uint32_t k = 0, n = (uint32_t)below(g, 4); k < n; k++) {
        comma(g, k);
        put_expr(g, 2);
        put(g, PICK(g, splits));
    }
    put(g, "]");
    bool on_first = one_in(g, 2);
    if (on_first) put(g, " on "), put_place(g);
    if (one_in(g, 2)) put(g, PICK(g, partials));
    if (!on_first && one_in(g, 2)) put(g, " on "), put_place(g);
}

static void put_attr_value(gen *g, uint32_t depth) {
    static const char *const simple[] = {
        "3 us", "300 GB/s", "1.5 GiB",       "true",  "false", "relu", "\"ring\"",
        "1e-5", "-1",       "\"q\\\"\\\\\"", "@main", "0.25",  "\"\"", "width GB/s"};
    if (depth && one_in(g, 5)) {
        put(g, "[");
        for (uint32_t k = 0, n = (uint32_t)below(g, 4); k < n; k++) {
            comma(g, k);
            put_attr_value(g, depth - 1);
        }
        put(g, "]");
    } else if (one_in(g, 4)) {
        put_expr(g, 2);
    } else {
        put(g, PICK(g, simple));
    }
}

static void put_attrs(gen *g) {
    static const char *const names[] = {"name", "cost", "stream", "over", "dim", "\"a.*\""};
    uint64_t first = below(g, 6), n = below(g, 4);
    put(g, " {");
    for (uint32_t k = 0; k < n; k++) {
        comma(g, k);
        put(g, names[(first + k) % 6]);
        maybe_gap(g);
        token(g, "=");
        put_attr_value(g, 1);
    }
    put(g, "}");
}

/* ---- values ---- */

static uint32_t new_value(gen *g) {
    return g->next_value++;
}

static void show(gen *g, uint32_t number, bool is_family) {
    if (g->n_visible < MAX_VISIBLE) g->visible[g->n_visible++] = (value){number, is_family};
}

static void put_use(gen *g) {
    uint64_t at = g->visible_from + below(g, g->n_visible - g->visible_from);
    value v = g->visible[at];
    ds_buf_printf(g->out, "%%v%u", v.number);
    if (!v.is_family) return;
    put(g, "{");
    put_expr(g, 1);
    if (one_in(g, 4)) {
        put(g, ":");
        put_expr(g, 1);
    }
    put(g, "}");
}

static void put_uses(gen *g, uint32_t n) {
    for (uint32_t k = 0; k < n; k++) {
        comma(g, k);
        put_use(g);
    }
}

static void put_result(gen *g, uint32_t number) {
    ds_buf_printf(g->out, "%%v%u", number);
}

/* ---- ops ---- */

static void put_body(gen *g, uint32_t n);

static void put_compute(gen *g) {
    static const char *const unary[] = {"relu", "gelu", "silu", "tanh", "exp"};
    static const char *const binary[] = {"add", "mul", "sub"};
    uint32_t result = new_value(g);
    put_result(g, result);
    maybe_gap(g);
    token(g, "=");
    bool two = one_in(g, 2);
    put(g, two ? PICK(g, binary) : PICK(g, unary));
    put(g, "(");
    put_uses(g, two ? 2 : 1);
    put(g, ")");
    if (one_in(g, 5)) put_attrs(g);
    if (one_in(g, 5)) {
        gap(g);
        token(g, ":");
        put_type(g);
    }
    show(g, result, false);
}

static void put_matmul(gen *g) {
    uint32_t weight = new_value(g), result = new_value(g);
    token(g, "weight");
    put_result(g, weight);
    put(g, " : f32[width, width]");
    if (one_in(g, 3)) put_attrs(g);
    line(g);
    put_result(g, result);
    put(g, " = matmul(");
    put_use(g);
    ds_buf_printf(g->out, ", %%v%u)", weight);
    show(g, result, false);
}

static void put_collective(gen *g) {
    static const char *const ops[] = {"all_reduce(", "all_gather(", "reduce_scatter(",
                                      "all_to_all(", "broadcast(",  "permute(",
                                      "reshard(",    "send("};
    static const char *const clauses[] = {" over dp",         " over (dp, tp)",
                                          " over tp dim 1",   " dim 0 -> 1 over tp",
                                          " across",          " group (0, 1, layers)",
                                          " to @m{pp=1}",     " to (@box.gpu[0], @box.gpu[1])",
                                          " tag 7 to 1 + dp", " dim -1 over ep"};
    uint32_t n = one_in(g, 4) ? 2 : 1, first = new_value(g), second = new_value(g);
    put_result(g, first);
    if (n == 2) {
        comma(g, 1);
        put_result(g, second);
    }
    put(g, " = ");
    put(g, PICK(g, ops));
    put_uses(g, n);
    put(g, ")");
    put(g, PICK(g, clauses));
    if (one_in(g, 3)) put_attrs(g);
    show(g, first, false);
    if (n == 2) show(g, second, false);
}

static void put_for(gen *g) {
    uint32_t mark = g->n_visible, index = g->next_index++, carried = new_value(g);
    bool carries = !one_in(g, 4), keeps = !carries || one_in(g, 2);
    uint32_t last = new_value(g), kept = new_value(g);
    if (carries) put_result(g, last);
    if (carries && keeps) comma(g, 1);
    if (keeps) put_result(g, kept);
    ds_buf_printf(g->out, " = for i%u in ", index);
    put(g, one_in(g, 3) ? "1..dp + 2" : "0..layers");
    g->indices[g->n_indices++] = index;
    if (carries) {
        put(g, " carry (");
        put_result(g, carried);
        if (one_in(g, 3)) ds_buf_printf(g->out, ": %s", BASE_TYPE);
        put(g, " = ");
        put_use(g);
        put(g, ")");
        show(g, carried, false);
    }
    put(g, " {");
    line(g);
    put_body(g, (uint32_t)below(g, 4));
    put(g, "yield ");
    if (carries) put_use(g);
    if (keeps) {
        put(g, " keep ");
        put_use(g);
    }
    line(g);
    put(g, "}");
    if (one_in(g, 5)) put_attrs(g);
    g->n_indices--;
    g->n_visible = mark;
    if (carries) show(g, last, false);
    if (keeps) show(g, kept, true);
}

/* Equations that read each other in any order; what is read first is defined last. */
static void put_rec(gen *g) {
    if (g->in_rec) {
        put_compute(g);
        return;
    }
    uint32_t result = new_value(g), index = g->next_index++, n = 2 + (uint32_t)below(g, 4);
    uint32_t first = g->next_value;
    g->in_rec = true;
    put_result(g, result);
    ds_buf_printf(g->out, " = rec (t%u in 0..layers, l%u in 1..dp + 2)%s {", index, index,
                  one_in(g, 3) ? " {name = \"rec\"}" : "");
    line(g);
    for (uint32_t k = 0; k < n; k++) new_value(g);
    for (uint32_t k = n; k-- > 0;) {
        uint32_t other = first + (uint32_t)below(g, n);
        bool weight = one_in(g, 4);
        if (weight) token(g, "weight");
        put_result(g, first + k);
        if (one_in(g, 3)) ds_buf_printf(g->out, "{t%u, l%u}", index, index);
        if (weight)
            put(g, " : f32[width, width]");
        else if (one_in(g, 2))
            ds_buf_printf(g->out, " = case t%u < 1: %%v%u, else: %%v%u{t%u - 1, 0:l%u + 1}", index,
                          other, other, index, index);
        else
            ds_buf_printf(g->out, " = add(%%v%u, %%v%u{min(t%u, 2), l%u}) {alpha = t%u}", other,
                          other, index, index, index);
        line(g);
    }
    put(g, "yield ");
    ds_buf_printf(g->out, "%%v%u", first + (uint32_t)below(g, n));
    line(g);
    put(g, "}");
    g->in_rec = false;
    show(g, result, true);
}

static void put_local(gen *g) {
    uint32_t mark = g->n_visible, from = g->visible_from, result = new_value(g);
    value operand = g->visible[g->visible_from + below(g, g->n_visible - g->visible_from)];
    if (operand.is_family) {
        put_compute(g);
        return;
    }
    put_result(g, result);
    ds_buf_printf(g->out, " = local over (cp%s) (%%v%u) -> %s%s%s {", one_in(g, 2) ? ", tp" : "",
                  operand.number, "(", BASE_TYPE, ")");
    line(g);
    if (mark < MAX_VISIBLE) {
        g->visible_from = g->n_visible;
        show(g, operand.number, false);
        put_body(g, (uint32_t)below(g, 3));
    }
    put(g, "yield ");
    put_result(g, operand.number);
    line(g);
    put(g, "}");
    g->visible_from = from;
    g->n_visible = mark;
    show(g, result, false);
}

static void put_call(gen *g) {
    uint32_t result = new_value(g);
    if (!g->n_funcs) {
        put_compute(g);
        return;
    }
    uint64_t callee = below(g, g->n_funcs);
    put_result(g, result);
    ds_buf_printf(g->out, " = call @f%u", (unsigned)callee);
    if (one_in(g, 3))
        put(g, "<@m{pp=1}, @m>");
    else if (one_in(g, 3))
        put(g, "<@m{pp=1}, layers - 1>");
    else if (one_in(g, 3))
        put(g, "<(layers > 1)>");
    put(g, "(");
    put_uses(g, g->n_args[callee]);
    put(g, ")");
    if (one_in(g, 3)) put_attrs(g);
    show(g, result, false);
}

static void put_statement(gen *g) {
    bool deep = g->depth >= MAX_DEPTH || g->n_indices == MAX_INDICES;
    g->depth++;
    switch (below(g, deep ? 8 : 11)) {
    case 0:
        put_matmul(g);
        break;
    case 1:
    case 2:
        put_collective(g);
        break;
    case 3:
        put_call(g);
        break;
    case 8:
        put_for(g);
        break;
    case 9:
        put_local(g);
        break;
    case 10:
        put_rec(g);
        break;
    default:
        put_compute(g);
    }
    g->depth--;
}

static void put_body(gen *g, uint32_t n) {
    for (uint32_t k = 0; k < n; k++) {
        put_statement(g);
        line(g);
    }
}

/* ---- functions and programs ---- */

static void put_args(gen *g, uint32_t n) {
    put(g, "(");
    for (uint32_t k = 0; k < n; k++) {
        uint32_t arg = new_value(g);
        bool is_family = k > 0 && one_in(g, 4);
        comma(g, k);
        put_result(g, arg);
        if (is_family) ds_buf_printf(g->out, "{i%u: 0..layers}", g->next_index++);
        maybe_gap(g);
        token(g, ":");
        put_type(g);
        if (one_in(g, 5)) put_attrs(g);
        show(g, arg, is_family);
    }
    put(g, ")");
}

static void put_func(gen *g) {
    uint32_t n_args = 1 + (uint32_t)below(g, 3);
    g->n_visible = g->visible_from = 0;
    ds_buf_printf(g->out, "func @f%u", g->n_funcs);
    if (one_in(g, 3))
        put(g, "<mesh @s, mesh @t>");
    else if (one_in(g, 3))
        put(g, "<mesh @s, index first>");
    else if (one_in(g, 3))
        put(g, "<index first>");
    put_args(g, n_args);
    gap(g);
    bool family = one_in(g, 8), returns = one_in(g, 10);
    if (family)
        ds_buf_printf(g->out, "-> {i%u: 0..layers} %s", g->next_index++, BASE_TYPE);
    else if (!returns)
        ds_buf_printf(g->out, one_in(g, 2) ? "-> %s" : "-> (%s)", BASE_TYPE);
    put(g, " {");
    line(g);
    put_body(g, (uint32_t)below(g, 9));
    put(g, "return");
    if (!returns || family) put(g, " "), put_use(g);
    line(g);
    put(g, "}");
    g->n_args[g->n_funcs++] = n_args;
}

static void put_program(gen *g) {
    put(g, "program @p {");
    line(g);
    for (uint32_t rank = 0, n = 1 + (uint32_t)below(g, 3); rank < n; rank++) {
        uint32_t arg = new_value(g), got = new_value(g);
        ds_buf_printf(g->out, "rank %u (%%v%u: f32[8]) {", rank, arg);
        line(g);
        ds_buf_printf(g->out, "send(%%v%u) to %u tag 7", arg, rank + 1);
        line(g);
        ds_buf_printf(g->out, "%%v%u = recv%s tag 7 from 0 : f32[8]", got,
                      one_in(g, 2) ? "()" : "");
        line(g);
        if (one_in(g, 2)) ds_buf_printf(g->out, "return %%v%u\n", got);
        put(g, "}");
        line(g);
    }
    put(g, "}");
}

/* ---- declarations ---- */

static void put_topology(gen *g) {
    static const char *const nodes[] = {
        "device gpu[8] : \"A100-SXM4-80GB\"", "switch nvswitch, leaf[16]", "nic nic[layers * 2]",
        "device a[2], b : \"V100\" {forward = true}", "host cpu[2] {issue = 1 us}"};
    put(g, "topology @box {");
    line(g);
    for (uint32_t k = 0; k < 5; k++) {
        put(g, nodes[k]);
        line(g);
    }
    for (uint32_t k = 0, n = (uint32_t)below(g, 4); k < n; k++) {
        uint32_t i = g->next_index++;
        ds_buf_printf(g->out, "link gpu[i%u] %s nic[(i%u + 1) %% 8].port : 300 GB/s, 1.2 us", i,
                      one_in(g, 2) ? "--" : "->", i);
        if (one_in(g, 3)) put_attrs(g);
        gap(g);
        ds_buf_printf(g->out, "for i%u in 0..8", i);
        g->indices[g->n_indices++] = i;
        if (one_in(g, 3)) put(g, " where "), put_condition(g);
        g->n_indices--;
        line(g);
    }
    put(g, "}");
    line(g);
    put(g, "topology @pod {\n  node n[128] : @box\n}");
}

static void put_degrade(gen *g) {
    static const char *const ends[] = {"", " -- nvswitch", " -> nic[0].port"};
    uint32_t i = g->next_index++;
    bool loop = one_in(g, 2);
    put(g, "degrade");
    gap(g);
    if (loop)
        ds_buf_printf(g->out, "gpu[(i%u + 1) %% 8]", i);
    else
        put(g, "gpu[layers - 1]");
    put(g, PICK(g, ends));
    put(g, " compute = 0.8");
    if (one_in(g, 2)) put(g, ", latency = 1 + dp");
    if (loop) {
        ds_buf_printf(g->out, " for i%u in 0..8", i);
        g->indices[g->n_indices++] = i;
        if (one_in(g, 3)) put(g, " where "), put_condition(g);
        g->n_indices--;
    }
    line(g);
}

static void put_meshes(gen *g) {
    put(g, "mesh @m = [pp = 2, dp = dp] on @box");
    if (one_in(g, 2)) put(g, " order (1, 0, 3, 2)");
    line(g);
    if (one_in(g, 2)) put(g, "mesh @v = view @m [x = 4, y = dp]"), line(g);
    if (one_in(g, 2)) put(g, "mesh @w = pick 0..layers - 1 of @m [x = 3]"), line(g);
}

static void put_schedule(gen *g) {
    put(g, "schedule @s { chunks 4; place 0->0 1->1, 2->0\n");
    for (uint32_t rank = 0; rank < 3; rank++) {
        ds_buf_printf(g->out, "rank %u:", rank);
        for (uint32_t k = 0, n = (uint32_t)below(g, 9); k < n; k++)
            ds_buf_printf(g->out, "%s%c%u.%u", k && one_in(g, 4) ? "&" : " ", "FBWR"[below(g, 4)],
                          (unsigned)below(g, 4), k);
        line(g);
    }
    put(g, "}");
}

static void put_entries(gen *g, uint32_t depth) {
    static const char *const names[] = {"model", "on", "strategy", "train", "\"f*\"", "profile"};
    for (uint32_t k = 0, n = (uint32_t)below(g, 6); k < n; k++) {
        put(g, names[k]);
        if (depth && one_in(g, 3)) {
            put(g, one_in(g, 2) ? " {" : " = { ");
            if (one_in(g, 2)) line(g);
            put_entries(g, depth - 1);
            put(g, "}");
        } else if (one_in(g, 8)) {
            put(g, " = gamma(shape = 3,");
            maybe_gap(g);
            put(g, "min = 1 / dp)");
        } else if (one_in(g, 6)) {
            put(g, " = on @v [n: x, k: [y, z]]");
        } else {
            put(g, " = ");
            put_attr_value(g, 2);
        }
        if (one_in(g, 2))
            token(g, ",");
        else
            line(g);
    }
}

static void put_domain(gen *g) {
    switch (below(g, 4)) {
    case 0:
        put(g, "[");
        put_attr_value(g, 2);
        for (uint64_t n = below(g, 3); n; n--) token(g, ","), put_attr_value(g, 1);
        put(g, "]");
        break;
    case 1:
        put(g, "divisors(");
        put_expr(g, 2);
        put(g, ")");
        break;
    case 2:
        put(g, "powers_of_two(");
        put_expr(g, 1);
        token(g, ",");
        put_expr(g, 2);
        put(g, ")");
        break;
    default:
        put_expr(g, 1);
        put(g, "..");
        put_expr(g, 1);
        if (one_in(g, 2)) put(g, " step "), put_expr(g, 1);
        break;
    }
}

static void put_sweep(gen *g) {
    static const char *const names[] = {"dp", "tp", "strategy.zero", "width", "on", "g.x.layers"};
    static const char *const others[] = {"where dp * tp == world",
                                         "where peak_memory <= 30 GiB",
                                         "where step_time < 1.5 ms",
                                         "subject to fits",
                                         "minimize step_time",
                                         "maximize throughput",
                                         "price 2.5",
                                         "memory_first = on",
                                         "where microbatches > pp or zero == 3"};
    put(g, "sweep {");
    line(g);
    for (uint64_t n = below(g, 6); n; n--) {
        if (one_in(g, 2)) {
            put(g, PICK(g, names));
            put(g, " in ");
            put_domain(g);
        } else {
            put(g, PICK(g, others));
        }
        if (one_in(g, 3))
            token(g, ",");
        else
            line(g);
    }
    put(g, "}");
    line(g);
}

void ds_test_gen_module(uint64_t seed, ds_buf *out) {
    gen g = {.rng = {seed}, .out = out};
    while (one_in(&g, 3)) comment(&g);
    put(&g, "dir 1");
    line(&g);
    put(&g, "param layers = 16, width = 2048,");
    gap(&g);
    put(&g, "batch = layers * 4");
    line(&g);
    put(&g, "param dp = 4, eps = 1e-5, name = \"a\\tb\"");
    line(&g);
    if (one_in(&g, 3)) put(&g, "axis x"), line(&g);
    put_topology(&g);
    line(&g);
    put_meshes(&g);
    while (one_in(&g, 3)) put_degrade(&g);
    for (uint32_t k = 0, n = (uint32_t)below(&g, 4); k < n; k++) {
        put_func(&g);
        line(&g);
    }
    if (one_in(&g, 3)) put_program(&g), line(&g);
    if (one_in(&g, 3)) put_schedule(&g), line(&g);
    if (one_in(&g, 3)) put_sweep(&g);
    put(&g, "scenario {");
    line(&g);
    put_entries(&g, 2);
    put(&g, "}");
    if (one_in(&g, 2)) line(&g);
}
