/* The verifier: names, SSA, arity, types, shapes, shardings, collectives, recursion.
 *
 * It reports everything it finds and goes on. Values whose type could not be found are left without
 * one and cause no further reports. */
#ifndef DS_LANG_VERIFY_H
#define DS_LANG_VERIFY_H

#include "ir/base/diag.h"
#include "ir/core/ir.h"

/* Resolves names and infers every value's type, symbolically; checks what does not need numbers.
 * Returns DS_OK iff no error was added. Idempotent. O(size of the unit). */
ds_status ds_verify(ds_unit *unit, ds_diags *diags);

/* Checks what needs the params' values: divisibility, ranges, shapes that were not decidable.
 * Loops whose body depends on the index are checked at every index. Call after ds_verify. */
ds_status ds_verify_bound(ds_unit *unit, const ds_binding *binding, ds_diags *diags);

#endif
