/* What names stand for while the program is followed; not a public header. */
#ifndef DS_PLAN_VALUES_H
#define DS_PLAN_VALUES_H

#include "sim/plan/internal.h"

/* One value instance, or a family of slots, or neither (not set). */
typedef struct ds_slot {
    uint32_t value; /* DS_NONE: not set, or a family. With DS_JOIN: what `after` gave */
    const struct ds_family *family;
} ds_slot;

/* A slot per index lo … lo + n; a family of several indices is one of families. */
typedef struct ds_family {
    int64_t lo, n;
    ds_slot *at;
} ds_family;

#define DS_EMPTY_SLOT ((ds_slot){.value = DS_NONE})

/* In a slot this bit says that the number is not a value instance but one of b->joins. */
#define DS_JOIN 0x80000000u

/* The instance that a slot's value is, waited for or not. */
uint32_t ds_plan__instance(const ds_builder *b, uint32_t value);
/* operands[0] once the others are there, and what any of them waits for. */
uint32_t ds_plan__join(ds_builder *b, const uint32_t *operands, uint32_t n);
/* Appends an instance's operands to the plan's, then what they wait for. */
void ds_plan__push_operands(ds_builder *b, const uint32_t *operands, uint32_t n);

/* A family over lo … lo + n of empty slots; one level. Errors: beyond the limit of instances. */
ds_status ds_plan__family(ds_builder *b, int64_t lo, int64_t n, ds_loc loc, ds_family **out,
                          ds_error *err);

/* store.c. Does the op, whose operands are b->reads, write or read a store at the hosts? */
bool ds_plan__at_host(const ds_builder *b, const ds_op *op);
/* `value` of zeros {host = depth} is such a store. */
ds_status ds_plan__store_at_host(ds_builder *b, const ds_op *op, uint32_t value, ds_error *err);
/* Before the instance of an op: a slice of one point reads the put of the point. DS_ERR_UNSUPPORTED:
 * another op reads a store at the hosts. */
ds_status ds_plan__point_at_host(ds_builder *b, const ds_func *func, const ds_op *op,
                                 const ds_index *indices, ds_error *err);
/* Appends what the newest instance only waits for; `value`: its first result. */
void ds_plan__wait_at_host(ds_builder *b, const ds_op *op, const ds_record *r, uint32_t value);

static inline bool ds_plan__has_range(const ds_use *use) {
    for (uint32_t i = 0; i < use->n_index; i++)
        if (ds_use_is_range(use, i)) return true;
    return false;
}

/* What a use reads, from its value's slot: a value, or a whole family; not a range. */
ds_status ds_plan__read_slot(ds_builder *b, const ds_func *func, const ds_slot *slots,
                             const ds_use *use, const ds_index *indices, ds_slot *out,
                             ds_error *err);
/* Appends what an operand reads to b->reads: one value, or those of a range in row-major order. */
ds_status ds_plan__read_operand(ds_builder *b, const ds_func *func, const ds_slot *slots,
                                const ds_use *use, const ds_index *indices, ds_error *err);
/* The operand's type, with the family's indices in scope; a range adds leading dims. `frames` has
 * room for use->n_index indices. */
ds_status ds_plan__operand_type(ds_builder *b, const ds_func *func, const ds_use *use,
                                const ds_index *indices, ds_index *frames, ds_typed *out,
                                ds_error *err);

#endif
