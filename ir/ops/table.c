/* The table itself: descriptors, mnemonics, what works in place, what is saved. Attributes are in
 * attr.c. */
#include "ir/ops/algorithms.def"
#include "ir/ops/internal.h"

#include <string.h>

#define MANY                         UINT32_MAX
#define ARITY(a, b, c, d)            .min_in = (a), .max_in = (b), .min_out = (c), .max_out = (d)
#define EVAL(f)                      .eval = #f,
#define VJP(f)                       .vjp = #f,
#define OP(ID, MNEMONIC, ROOMS, ...) {.name = MNEMONIC, ROOMS __VA_ARGS__},
static const ds_op_desc table[] = {
#include "ir/ops/ops.def"
};

static const char *const structural[DS_OP_FIRST_TABLE_OP] = {
    [DS_OP_INVALID] = "invalid", [DS_OP_FOR] = "for",     [DS_OP_CALL] = "call",
    [DS_OP_LOCAL] = "local",     [DS_OP_YIELD] = "yield", [DS_OP_RETURN] = "return",
    [DS_OP_WEIGHT] = "weight",   [DS_OP_REC] = "rec",     [DS_OP_CASE] = "case",
};

const ds_op_desc *ds_op_desc_of(ds_opcode code) {
    if (code < DS_OP_FIRST_TABLE_OP || code >= DS_OP_COUNT) return NULL;
    return &table[code - DS_OP_FIRST_TABLE_OP];
}

/* A linear search: about 70 short strings, and names are looked up once per parsed op. */
ds_opcode ds_op_by_name(const char *name) {
    for (ds_opcode code = DS_OP_FIRST_TABLE_OP; code < DS_OP_COUNT; code++)
        if (strcmp(ds_op_desc_of(code)->name, name) == 0) return code;
    return DS_OP_INVALID;
}

const char *ds_op_name(ds_opcode code) {
    if (code < DS_OP_FIRST_TABLE_OP) return structural[code];
    const ds_op_desc *desc = ds_op_desc_of(code);
    return desc ? desc->name : structural[DS_OP_INVALID];
}

uint32_t ds_op_inplace(const ds_op_desc *desc, uint32_t result) {
    if (!desc || !desc->inplace) return UINT32_MAX;
    const char *item = desc->inplace;
    for (uint32_t i = 0; i < result; i++) {
        const char *next = strstr(item, ", ");
        if (!next) break;
        item = next + 2;
    }
    if (*item == '-') return UINT32_MAX;
    if (*item == 'k') return result + (item[1] == '+' ? (uint32_t)(item[2] - '0') : 0);
    return (uint32_t)(*item - '0');
}

/* ---- what is saved ---- */

typedef struct word {
    const char *at; /* NULL: none */
    size_t n;
} word;

static bool is(word a, const char *text, size_t n) {
    return a.at && a.n == n && strncmp(a.at, text, n) == 0;
}

/* Name i of the form's operands or results. */
static word name_of(const ds_op_desc *desc, bool result, uint32_t i) {
    const char *form = desc->form ? desc->form : "%y = (%x)", *equals = strstr(form, " = ");
    const char *at = result ? form : equals, *end = result ? equals : strpbrk(equals, "){");
    while ((at = strchr(at, '%')) && at < end) {
        word name = {at + 1, strspn(at + 1, "abcdefghijklmnopqrstuvwxyz0123456789")};
        if (i-- == 0) return name;
        at++;
    }
    return (word){0};
}

/* Is it named in the clause "b y for a", which ends with the text or a semicolon? */
static bool names(const char *clause, word value) {
    for (size_t n; (n = strcspn(clause, " ;")); clause += n + (clause[n] == ' ')) {
        if (strncmp(clause, "for ", 4) == 0) return false;
        if (is(value, clause, n)) return true;
    }
    return false;
}

static bool saves(const ds_op_desc *desc, uint32_t of, word value) {
    word operand = name_of(desc, false, of);
    for (const char *clause = desc->saves; clause && *clause;) {
        size_t n = strcspn(clause, ";");
        const char *whose = strstr(clause, " for ");
        if (whose > clause + n) whose = NULL;
        if (!whose || is(operand, whose + 5, n - (size_t)(whose + 5 - clause)))
            return names(clause, value);
        clause += n + strspn(clause + n, "; ");
    }
    return false;
}

bool ds_op_saves_operand(const ds_op_desc *desc, uint32_t of, uint32_t i) {
    if (desc->saves && strcmp(desc->saves, "others") == 0) return i != of;
    return saves(desc, of, name_of(desc, false, i));
}

bool ds_op_saves_result(const ds_op_desc *desc, uint32_t of, uint32_t r) {
    return saves(desc, of, name_of(desc, true, r));
}
