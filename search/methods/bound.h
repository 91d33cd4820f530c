/* Branch and bound (search/methods/bound.c), and the certificate of its result. */
#ifndef DS_SEARCH_METHODS_BOUND_H
#define DS_SEARCH_METHODS_BOUND_H

#include "ir/base/str.h"
#include "search/bound/bounds.h"
#include "search/methods/method.h"

/* The best candidate of the space by its only objective, minimize step_time or minimize
 * peak_memory: no other candidate that fits and holds all conditions has less. Of equals the
 * candidate found first counts. Ends when this is proved. `source` and the space, which must not
 * have been walked yet, must outlive the method. Errors: DS_ERR_UNSUPPORTED, with the reason, for a
 * sweep without bounds. */
ds_status ds_bound_new(const ds_eval_source *source, ds_space *space, ds_method **out,
                       ds_error *err);

/* Has the method ended because no candidate that is left could be better? */
bool ds_bound_is_proved(const ds_method *method);

/* The certificate as text, a line each, cells parted by tabs; in a cell \t, \n and \\ are a tab, a
 * line end and a backslash:
 *
 *     distsim certificate 1
 *     source     PATH              the file that was explored, and the settings, as in rows
 *     settings   a=1 b=2
 *     content    HASH              ds_eval_content
 *     objective  step_time         or peak_memory
 *     incumbent  VALUE  HASH  v …  the best: ps or bytes, hash of the row, values; or - -
 *     regions    N                 as many lines, in the order of the odometer:
 *     bound      B  v …            no candidate that begins with these values has less than B
 *     lacks_memory  -  v …         no such candidate fits, by the bound of memory
 *     illegal    -  v …            a pass refuses all such candidates
 *     run        VALUE  v …        a candidate, simulated
 *     rejected   -1  v …           a candidate, simulated, that does not count
 *     end
 *
 * Each candidate begins with the values of exactly one region. DS_ERR_VALUE if nothing is proved
 * yet. O(regions). */
ds_status ds_bound_certificate(ds_method *method, const char *source, const char *settings,
                               ds_buf *out, ds_error *err);

/* Writes a cell with its escapes; reads a cell back, in place. */
void ds_certificate_put_cell(const char *text, ds_buf *out);
void ds_certificate_read_cell(char *cell);

#endif
