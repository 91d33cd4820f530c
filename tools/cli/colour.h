/* Colour on a terminal: none into a file or a pipe, none where NO_COLOR is set (no-color.org) or TERM
 * is "dumb". The text without its escape sequences is the text that a file gets. */
#ifndef DS_CLI_COLOUR_H
#define DS_CLI_COLOUR_H

#include <stdbool.h>
#include <stdio.h>

/* Does the stream take colour? */
bool cli_has_colour(FILE *stream);
/* Diagnostics: the words error, warning and note, and the carets under the source line. */
void cli_put_diagnostics(const char *text, FILE *stream);
/* A report: headings (a line without indentation before an indented line) and DOES NOT FIT. */
void cli_put_report(const char *text, FILE *stream);

#endif
