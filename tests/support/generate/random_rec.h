/* Random recs, as text and as a naive recursion over their own description.
 *
 * A program is a few equations over one to three dims with bounds up to 6, written in random order.
 * The recursion value(equation, point) calls itself for whatever the equation reads; so it shares
 * nothing with the definition in ir/exec or the schedule. It also says which programs are wrong: an
 * index that leaves its range or a value that waits for itself, at any point, needed or not. Dims are
 * stated on the left only where the rule for dims would not find them by itself. */
#ifndef DS_TEST_RANDOM_REC_H
#define DS_TEST_RANDOM_REC_H

#include "ir/base/str.h"
#include "ir/exec/exec.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct random_rec random_rec;

random_rec *random_rec_new(uint64_t seed);
void random_rec_free(random_rec *p);
/* A function @f of the family %b{i: 0..6}: f64[1]; it returns %r0, %r1, …, one for each
 * equation that is no range kept as one tensor. */
const char *random_rec_text(const random_rec *p);
/* The name of a dim of any program, from 0 to 2, and the dim's bound; 0: the program lacks the dim. */
const char *random_rec_dim(int dim);
int random_rec_bound(const random_rec *p, int dim);
#define RANDOM_REC_INPUTS 6u
/* %b as inputs of exec: "b{0}" … "b{5}", valid as long as the program. */
const ds_exec_tensor *random_rec_inputs(random_rec *p);
/* Evaluates every point of every equation; false: one is wrong. */
bool random_rec_evaluate(random_rec *p);
/* Is a wrong program wrong by a cycle? Else by an index. */
bool random_rec_has_cycle(const random_rec *p);
/* The value of the result "r3{1,0}". */
double random_rec_value(const random_rec *p, const char *name);

#endif
