/* The verifier: names, SSA, arity, types, shapes, shardings, collectives, recursion.
 *
 * The verifier reports all errors and goes on. A value whose type could not be found has no type
 * and causes no further reports. */
#ifndef DS_VERIFY_VERIFY_H
#define DS_VERIFY_VERIFY_H

#include "ir/base/diag.h"
#include "ir/core/ir.h"

/* Resolves names and infers every value's type, symbolically; makes every check that needs no
 * numbers. Returns DS_OK iff no error was added, else the first error's status. Idempotent.
 * O(size of the unit). */
ds_status ds_verify(ds_unit *unit, ds_diags *diags);

/* Makes the checks that need the params' values: divisibility, ranges, shapes that symbols left
 * open.
 * Loops whose body depends on the index are checked at every index, up to DS_VERIFY_MAX_TURNS turns
 * a nest; beyond that, at the first and last few of each loop, or at the first and the last inside
 * of many turns. An op that does not depend on the index is checked in the first turn. Call after
 * ds_verify succeeded. */
ds_status ds_verify_bound(ds_unit *unit, const ds_binding *binding, ds_diags *diags);
/* With another limit than DS_VERIFY_MAX_TURNS. */
ds_status ds_verify_bound_within(ds_unit *unit, const ds_binding *binding, uint64_t max_turns,
                                 ds_diags *diags);

#define DS_VERIFY_MAX_TURNS 4096

#endif
