/* The table itself: descriptors, mnemonics, what works in place. Attributes are in attr.c. */
#include "ir/ops/internal.h"

#include <string.h>

#define MANY                  UINT32_MAX
#define ARITY(a, b, c, d)     .min_in = (a), .max_in = (b), .min_out = (c), .max_out = (d)
#define OP(ID, MNEMONIC, ...) {.name = MNEMONIC, __VA_ARGS__},
static const ds_op_desc table[] = {
#include "ir/ops/ops.def"
};
#undef OP

static const char *const structural[DS_OP_FIRST_TABLE_OP] = {
    [DS_OP_INVALID] = "invalid", [DS_OP_FOR] = "for",     [DS_OP_CALL] = "call",
    [DS_OP_LOCAL] = "local",     [DS_OP_YIELD] = "yield", [DS_OP_RETURN] = "return",
    [DS_OP_WEIGHT] = "weight",
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
