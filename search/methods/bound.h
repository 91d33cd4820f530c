/* Branch and bound (search/methods/bound.c), and the certificate of what it found. */
#ifndef DS_SEARCH_METHODS_BOUND_H
#define DS_SEARCH_METHODS_BOUND_H

#include "ir/base/str.h"
#include "search/bound/bounds.h"
#include "search/methods/method.h"

/* The best candidate of the space by its only objective, minimize step_time or minimize
 * peak_memory: no other that fits and holds all conditions has less. Of several that are as good it
 * is the one found first. Ends when that is proved. `source` and the space, which must not have
 * been walked yet, must outlive it. Errors: DS_ERR_UNSUPPORTED, with the reason, for a sweep that
 * no bound is known of. */
ds_status ds_bound_new(const ds_eval_source *source, ds_space *space, ds_method **out,
                       ds_error *err);

/* Has it ended because nothing is left that could be better? */
bool ds_bound_is_proved(const ds_method *method);

/* The certificate as text, a line each, cells parted by tabs; in a cell \t, \n and \\ are a tab, a
 * line end and a backslash:
 *
 *     distsim certificate 1
 *     source     PATH              what was explored, and the settings, as in a sweep's rows
 *     settings   a=1 b=2
 *     content    HASH              ds_eval_content
 *     objective  step_time         or peak_memory
 *     incumbent  VALUE  HASH  v …  its value in ps or bytes, its row's hash, its values; or - -
 *     regions    N                 as many lines, in the order of the odometer:
 *     bound      B  v …            no candidate that begins with these values has less than B
 *     lacks_memory  -  v …         none of them fits, by the bound of memory
 *     illegal    -  v …            a pass refuses all of them
 *     run        VALUE  v …        a candidate, simulated
 *     rejected   -1  v …           a candidate, simulated: it does not count
 *     end
 *
 * Each candidate begins with the values of exactly one region. DS_ERR_VALUE if nothing is proved
 * yet. O(regions). */
ds_status ds_bound_certificate(ds_method *method, const char *source, const char *settings,
                               ds_buf *out, ds_error *err);

/* A cell with its escapes, and back, in place. */
void ds_certificate_put_cell(const char *text, ds_buf *out);
void ds_certificate_read_cell(char *cell);

#endif
