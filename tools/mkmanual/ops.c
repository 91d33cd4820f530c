/* The reference of all operations, ir/ops/OPS.generated.md, of the op table and of PROSE
 * (ir/ops/manual.md, ir/ops/manual-data.md): sentences that the table's lines cannot say.
 *
 * A section is the line's sentence, its form, one item after the other, an example. The words of an
 * item are the table's, unless the op's entry in PROSE has the item; `$` there stands for the
 * table's words. */
#include "tools/mkmanual/mkmanual.h"

#include "ir/ops/ops.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INTRODUCTION                                                                               \
    "# Operations, one by one\n\n"                                                                 \
    "The build makes this page of [ops.def](ops.def), [manual.md](manual.md) and "                 \
    "[manual-data.md](manual-data.md), so do not edit "                                            \
    "the page: `cmake --build build --target manual`\nwrites the page again. "                     \
    "[Operations in common](common.md) explains the items of a section.\n"

typedef enum item {
    EFFECT,
    RULE,
    DTYPES,
    ATTRIBUTES,
    FLOPS,
    BYTES,
    SHARDING,
    GRADIENT, /* and whose buffer a result takes; has no title of its own */
    SAVED,
    N_ITEMS
} item;

static const char *const titles[N_ITEMS] = {"Effect",     "Rule",     "Dtypes",
                                            "Attributes", "FLOPs",    "Bytes",
                                            "Sharding",   "Gradient", "Saved for backward"};

/* ---- what the table says ---- */

/* "`a`, `b` and `c`" of the words in n characters; each begins with `sigil`. */
static void put_list(ds_buf *out, const char *words, size_t n, char separator, const char *sigil,
                     const char *last) {
    for (const char *end = words + n, *stop; words < end; words = stop + 1) {
        stop = memchr(words, separator, (size_t)(end - words));
        if (!stop) stop = end;
        ds_buf_printf(out, "`%s%.*s`", sigil, (int)(stop - words), words);
        if (stop == end) return;
        bool more = memchr(stop + 1, separator, (size_t)(end - stop - 1));
        ds_buf_put(out, more ? ", " : last);
    }
}

static const char *type_words(const char *type, size_t n) {
    static const char *const words[][2] = {{"int", "integer"},
                                           {"real", "number"},
                                           {"bool", "true or false"},
                                           {"str", "word or string"},
                                           {"ints", "integer or list of integers"},
                                           {"dtype", "dtype"},
                                           {"time", "time"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i][0]) == n && strncmp(words[i][0], type, n) == 0) return words[i][1];
    return "?";
}

/* "`dim` (integer, default `-1`)" of "dim:int=-1". */
static void put_attr(ds_buf *out, const char *spec, size_t n, bool collective) {
    size_t name = strcspn(spec, ":"), type = strcspn(spec + name + 1, "{=! ");
    const char *at = spec + name + 1, *end = spec + n, *rest = at + type;
    if (rest > end) rest = end;
    ds_buf_printf(out, "`%.*s` (", (int)name, spec);
    if (rest < end && *rest == '{') {
        size_t choices = strcspn(rest + 1, "}");
        put_list(out, rest + 1, choices, ',', "", " or ");
        rest += choices + 2;
    } else {
        ds_buf_put(out, type_words(at, (size_t)(rest - at)));
    }
    if (rest < end && *rest == '!')
        ds_buf_put(out, ", required");
    else if (rest < end && *rest == '=')
        ds_buf_printf(out, ", default `%.*s`", (int)(end - rest - 1), rest + 1);
    else if (!collective)
        ds_buf_put(out, ", optional");
    ds_buf_putc(out, ')');
}

static void put_bytes(ds_buf *out, const ds_op_desc *desc) {
    static const char *const operands[] = {"", "the operand, ", "both operands, "};
    static const char *const results[] = {"", "the result", "both results"};
    if (desc->flags & DS_OPF_VIEW) ds_buf_put(out, "none: a view");
    if (desc->flags & DS_OPF_COLLECTIVE) ds_buf_put(out, "operand and result, on the network");
    if (out->n) return;
    ds_buf_put(out, desc->max_in < 3 ? operands[desc->max_in] : "all operands, ");
    ds_buf_put(out, desc->max_out < 3 ? results[desc->max_out] : "all results");
}

static void put_sharding(ds_buf *out, const ds_op_desc *desc) {
    bool elementwise = strcmp(desc->family, "elementwise") == 0;
    if (desc->flags & DS_OPF_OPTIMIZER) ds_buf_put(out, "all alike; never partial");
    if (!elementwise) return;
    if (desc->max_in == 1 && desc->flags & DS_OPF_LINEAR)
        ds_buf_put(out, "any; partial passes");
    else if (desc->max_in == 1)
        ds_buf_put(out, "any; not linear, so never partial");
    else if (desc->flags & DS_OPF_BACKWARD)
        ds_buf_put(out, "splits alike; `%dy` may be partial");
}

/* Whose buffer a result takes, then what the gradient is made by. */
static void put_gradient(ds_buf *out, const ds_op_desc *desc) {
    const char *takes = desc->inplace ? desc->inplace : "";
    if (desc->flags & DS_OPF_OPTIMIZER)
        ds_buf_put(out, "In place: results take the buffers of the weight and the states; a last "
                        "extra operand (and result) is a master copy of the weight");
    else if (desc->flags & DS_OPF_VIEW)
        ds_buf_printf(out, "A view: shares %s operand's bytes, takes no time",
                      desc->max_in == 1 ? "its" : "the first");
    else if (strcmp(takes, "0") == 0)
        ds_buf_put(out, "May reuse the buffer of operand 0 if the operand has no other reader");
    else if (strcmp(takes, "0, -") == 0)
        ds_buf_put(out, "The first result may reuse the buffer of operand 0 if the operand has "
                        "no other reader; every other result has a buffer of its own");
    else if (strcmp(takes, "k") == 0)
        ds_buf_put(out, "Each result may reuse the buffer of its own operand if the operand "
                        "has no other reader");
    if (desc->backward)
        ds_buf_printf(out, "%sradient: `%s`", out->n ? "; g" : "G", ds_op_name(desc->backward));
}

/* "`%y`", or "`%b` for the gradient of `%a`; `%a` for that of `%b`". */
static void put_saved(ds_buf *out, const ds_op_desc *desc) {
    char a[16] = "", b[16] = "", each[80];
    const char *saves = desc->saves;
    if (strcmp(saves, "others") == 0) {
        sscanf(strchr(desc->form, '('), "(%%%15[a-z0-9], %%%15[a-z0-9]", a, b);
        snprintf(each, sizeof each, "%s for %s; %s for %s", b, a, a, b);
        saves = each;
    }
    if (!*saves) ds_buf_put(out, "nothing");
    for (const char *at = saves; *at;) {
        size_t n = strcspn(at, ";");
        const char *of = strstr(at, " for ");
        size_t values = of && of < at + n ? (size_t)(of - at) : n;
        if (at > saves) ds_buf_put(out, "; ");
        put_list(out, at, values, ' ', "%", " and ");
        if (values < n)
            ds_buf_printf(out, " for %s of `%%%.*s`", at > saves ? "that" : "the gradient",
                          (int)(n - values - 5), of + 5);
        at += n + strspn(at + n, "; ");
    }
}

/* The table's words for an item; none: the item is left out, unless PROSE has it. */
static void put_own(ds_buf *out, const ds_op_desc *desc, item which) {
    bool quoted = which == RULE || which == DTYPES;
    const char *text = which == RULE ? desc->rule : which == DTYPES ? desc->dtypes : NULL;
    for (const char *at = text; at && *at; at++) { /* `_` is any dtype */
        if (at == text) ds_buf_putc(out, '`');
        if (which == DTYPES && *at == '_')
            ds_buf_put(out, "any");
        else
            ds_buf_putc(out, *at);
    }
    if (quoted && text) ds_buf_putc(out, '`');
    if (which == FLOPS && desc->flop_per_point)
        ds_buf_printf(out, "%d per element", desc->flop_per_point);
    else if (which == FLOPS)
        ds_buf_put(out, "0");
    if (which == BYTES) put_bytes(out, desc);
    if (which == SHARDING) put_sharding(out, desc);
    if (which == GRADIENT) put_gradient(out, desc);
    if (which == SAVED && desc->saves) put_saved(out, desc);
}

/* ---- what PROSE says ---- */

/* The text after "\n### name\n" up to the next heading; empty if there is none. */
static char *entry_of(const char *prose, const char *name) {
    char heading[64];
    snprintf(heading, sizeof heading, "\n### %s\n", name);
    const char *at = strstr(prose, heading);
    if (!at) return calloc(1, 1);
    at += strlen(heading);
    const char *end = strstr(at, "\n##");
    return strndup(at, end ? (size_t)(end - at) : strlen(at));
}

/* The next item "* …" at or after `at`, with the lines that continue the item; NULL: none. */
static const char *next_item(const char *at, size_t *n) {
    while (at && strncmp(at, "* ", 2) != 0) {
        at = strchr(at, '\n');
        if (at) at++;
    }
    if (!at) return NULL;
    const char *end = strchr(at, '\n');
    while (end && strncmp(end, "\n  ", 3) == 0) end = strchr(end + 1, '\n');
    *n = end ? (size_t)(end - at) : strlen(at);
    return at;
}

/* Which item of the table it takes the place of; N_ITEMS: none. */
static item item_of(const char *text) {
    for (item i = 0; i < N_ITEMS; i++) {
        size_t n = strlen(titles[i]);
        if (strncmp(text + 2, titles[i], n) == 0 && text[2 + n] == ':') return i;
    }
    return N_ITEMS;
}

/* Is it "* `name`: …"? The name's length, else 0. */
static size_t attribute_of(const char *text) {
    size_t n = strncmp(text, "* `", 3) == 0 ? strcspn(text + 3, "`") : 0;
    return n && text[3 + n + 1] == ':' ? n : 0;
}

/* ": what `* `name`: …` says", without its full stop. */
static void put_note(ds_buf *out, const char *entry, const char *name, size_t length) {
    size_t n;
    for (const char *at = next_item(entry, &n); at; at = next_item(at + n, &n)) {
        if (attribute_of(at) != length || strncmp(at + 3, name, length) != 0) continue;
        const char *text = at + 3 + length + 3;
        size_t rest = n - (size_t)(text - at);
        ds_buf_printf(out, ": %.*s", (int)(text[rest - 1] == '.' ? rest - 1 : rest), text);
    }
}

static void put_attrs(ds_buf *out, const ds_op_desc *desc, const char *entry) {
    bool collective = desc->flags & DS_OPF_COLLECTIVE;
    const char *at = desc->attrs ? desc->attrs : "";
    if (!*at) ds_buf_put(out, "none of its own");
    for (size_t n; *at; at += n + strspn(at + n, " ")) {
        n = strcspn(at, " ");
        if (out->n) ds_buf_put(out, "; ");
        put_attr(out, at, n, collective);
        put_note(out, entry, at, strcspn(at, ":"));
    }
}

/* ---- a section ---- */

/* The table's words for whose buffer a result takes begin with a title of their own. */
static void print_item(item which, const ds_buf *own, const char *given, size_t n) {
    const char *words = own->n ? own->text : "", *end = given + n;
    const char *text = given ? strchr(given, ':') + 2 : words;
    printf(which == GRADIENT && (!given || *text == '$') ? "* " : "* %s: ", titles[which]);
    if (!given) printf("%s", text);
    for (; given && text < end; text++)
        if (*text == '$')
            printf("%s", words);
        else
            putchar(*text);
    putchar('\n');
}

/* What the entry says that is neither an item of the table nor of an attribute, and that follows
 * item `after`. */
static void print_others(const char *entry, item after) {
    item last = ATTRIBUTES;
    size_t n;
    for (const char *at = next_item(entry, &n); at; at = next_item(at + n, &n)) {
        item which = item_of(at);
        if (which == N_ITEMS && !attribute_of(at) && last == after) printf("%.*s\n", (int)n, at);
        if (which != N_ITEMS && which > last) last = which;
    }
}

static void print_items(const ds_op_desc *desc, const char *entry) {
    for (item which = 0; which < N_ITEMS; which++) {
        ds_buf own = {0};
        const char *given = NULL;
        size_t n = 0;
        put_own(&own, desc, which);
        if (which == ATTRIBUTES) put_attrs(&own, desc, entry);
        for (given = next_item(entry, &n); given && item_of(given) != which;)
            given = next_item(given + n, &n);
        if (!given && own.n) ds_buf_putc(&own, '.');
        if (given || own.n) print_item(which, &own, given, given ? n : 0);
        print_others(entry, which);
        ds_buf_deinit(&own);
    }
}

/* PROSE's, or of an elementwise op its form over matrices. */
static void print_example(const ds_op_desc *desc, const char *form, const char *entry) {
    const char *given = strncmp(entry, "Example", 7) == 0 ? entry : strstr(entry, "\nExample");
    if (given) {
        while (*given == '\n') given++;
        size_t n = strlen(given);
        while (n && given[n - 1] == '\n') n--;
        printf("\n%.*s\n", (int)n, given);
        return;
    }
    if (strcmp(desc->family, "elementwise") != 0) return;
    const char *type = desc->max_in == 1 ? "f32[4@dp, 8] on @m" : "f32[4, 8]", *at = form;
    printf("\nExample over `");
    for (const char *sep = ""; (at = strchr(at + 1, '%')); sep = ", ") {
        size_t n = strcspn(at, ",)");
        printf("%s%.*s: %s", sep, (int)n, at, type);
    }
    printf("`:\n\n    %s\n", form);
}

static void print_section(const ds_op_desc *desc, const char *prose) {
    char form[256], *entry = entry_of(prose, desc->name);
    snprintf(form, sizeof form, "%%y = %s(%%x)", desc->name);
    if (desc->form) snprintf(form, sizeof form, "%s", desc->form);
    printf("\n### %s\n\n%s\n\n    %s\n\n", desc->name, desc->doc, form);
    print_items(desc, entry[0] == '\n' ? entry + 1 : entry);
    print_example(desc, form, entry[0] == '\n' ? entry + 1 : entry);
    free(entry);
}

/* ---- the page ---- */

static void print_title(const char *prose, const char *family) {
    char heading[64];
    snprintf(heading, sizeof heading, "\n## %s: ", family);
    const char *at = strstr(prose, heading);
    const char *title = at ? at + strlen(heading) : family;
    printf("%.*s", (int)strcspn(title, "\n"), title);
}

static bool begins_family(ds_opcode code) {
    return code == DS_OP_FIRST_TABLE_OP ||
           strcmp(ds_op_desc_of(code)->family, ds_op_desc_of(code - 1)->family) != 0;
}

static void print_page(const char *prose) {
    printf("%s", INTRODUCTION);
    for (ds_opcode code = DS_OP_FIRST_TABLE_OP; code < DS_OP_COUNT; code++) {
        const ds_op_desc *desc = ds_op_desc_of(code);
        bool begins = begins_family(code);
        if (begins) {
            printf("\n* ");
            print_title(prose, desc->family);
        }
        printf("%s[%s](#%s)", begins ? ": " : ", ", desc->name, desc->name);
    }
    putchar('\n');
    for (ds_opcode code = DS_OP_FIRST_TABLE_OP; code < DS_OP_COUNT; code++) {
        const ds_op_desc *desc = ds_op_desc_of(code);
        if (begins_family(code)) {
            printf("\n## ");
            print_title(prose, desc->family);
            putchar('\n');
        }
        print_section(desc, prose);
    }
}

/* Every entry is of an op. */
static bool entries_are_ops(const char *prose) {
    bool right = true;
    for (const char *at = strstr(prose, "\n### "); at; at = strstr(at + 1, "\n### ")) {
        char name[64] = "";
        sscanf(at, "\n### %63s", name);
        if (ds_op_by_name(name) != DS_OP_INVALID) continue;
        fprintf(stderr, "mkmanual: error: '### %s' is no op\n", name);
        right = false;
    }
    return right;
}

bool mkmanual_ops(const char *prose) {
    bool right = entries_are_ops(prose);
    if (right) print_page(prose);
    return right;
}
