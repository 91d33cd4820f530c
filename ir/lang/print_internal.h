/* Internal to ir/lang: what the files of the printer share.
 *
 * One statement a line, two blanks a level; what the parser reads back is the same module. */
#ifndef DS_LANG_PRINT_H
#define DS_LANG_PRINT_H

#include "ir/base/str.h"
#include "ir/core/ir.h"

typedef struct ds_printer {
    const ds_exprs *exprs;
    const ds_param *params; /* those printed so far */
    uint32_t n_params;
    const ds_func *func; /* whose values the names are; NULL outside functions */
    ds_buf *out;
    uint32_t depth;
    bool brief; /* op heads for reports: no attributes, no types */
    bool plain; /* content alone: no comments, no blank lines, no paths of imports */
} ds_printer;

/* ---- print.c ---- */

void ds_printer_indent(ds_printer *p);
void ds_printer_put(ds_printer *p, const char *text);
void ds_printer_expr(ds_printer *p, ds_expr e);
void ds_printer_range(ds_printer *p, ds_expr lo, ds_expr hi);
/* "text" with quotes and escapes. */
void ds_printer_string(ds_printer *p, const char *text);
/* ", " before every element but the first. */
void ds_printer_comma(ds_printer *p, uint32_t k);

/* Blank line and comments before an item, at the current depth; then the indentation. */
void ds_printer_begin(ds_printer *p, const ds_trivia *trivia);
/* The comment after an item and the end of its line. */
void ds_printer_end(ds_printer *p, const ds_trivia *trivia);
/* " {", the comment after it, the end of the line; one level deeper. */
void ds_printer_open(ds_printer *p, const ds_trivia *trivia);
/* Comments before the brace; one level up; indentation and "}". */
void ds_printer_close(ds_printer *p, const ds_trivia *dangling);

/* " {a = 1, b = 2}"; nothing if there are none. */
void ds_printer_attrs(ds_printer *p, const ds_attr *attrs, uint32_t n);
/* key = value, without indentation or line end. */
void ds_printer_attr(ds_printer *p, const ds_attr *attr);
void ds_printer_value(ds_printer *p, const ds_attr *attr);
/* The entries of a block, one a line, each with its comments. */
void ds_printer_entries(ds_printer *p, const ds_attr *attrs, uint32_t n);
void ds_printer_steps(ds_printer *p, const ds_step *steps, uint32_t n);

/* ---- print_func.c ---- */

void ds_printer_func(ds_printer *p, const ds_func *func);
void ds_printer_program(ds_printer *p, const ds_program *program);

/* ---- print_decl.c ---- */

void ds_printer_topology(ds_printer *p, const ds_topology *topology);
void ds_printer_mesh(ds_printer *p, const ds_mesh *mesh);
void ds_printer_schedule(ds_printer *p, const ds_schedule *schedule);
void ds_printer_scenario(ds_printer *p, const ds_scenario *scenario);
void ds_printer_degrade(ds_printer *p, const ds_degrade *degrade);

/* ---- print_sweep.c ---- */

void ds_printer_sweep(ds_printer *p, const ds_sweep *sweep);

#endif
