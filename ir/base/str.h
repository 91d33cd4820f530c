/* Interned strings and growing text. */
#ifndef DS_BASE_STR_H
#define DS_BASE_STR_H

#include "ir/base/arena.h"

#include <stdbool.h>
#include <stdint.h>

/* One copy of each distinct string: interned strings are equal iff their pointers are equal.
 * They live as long as the table. */
typedef struct ds_strtab {
    ds_arena arena;
    const char **slots;
    uint32_t *hashes; /* per slot: half of the string's hash, so that others are seldom looked at */
    uint32_t n, cap;  /* cap is a power of two */
} ds_strtab;

void ds_strtab_init(ds_strtab *tab);
void ds_strtab_deinit(ds_strtab *tab);
/* The interned copy of `text` (its first n bytes). Expected O(n). */
const char *ds_intern(ds_strtab *tab, const char *text);
const char *ds_intern_n(ds_strtab *tab, const char *text, size_t n);

/* A growing, always NUL-terminated text on the heap. A zeroed one is empty (text == NULL then). */
typedef struct ds_buf {
    char *text;
    size_t n, cap;
} ds_buf;

void ds_buf_deinit(ds_buf *buf);
void ds_buf_put(ds_buf *buf, const char *text);
void ds_buf_put_n(ds_buf *buf, const char *text, size_t n);
void ds_buf_putc(ds_buf *buf, char c);
void ds_buf_printf(ds_buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* As "%lld", many times faster: paths of millions of tasks are made of these. */
void ds_buf_put_int(ds_buf *buf, int64_t value);

/* A string literal of the language: quotes around it, `\" \\ \n \t` escaped. */
void ds_buf_put_quoted(ds_buf *buf, const char *text);

/* Edit distance (Damerau-Levenshtein, adjacent transpositions) of two strings, for suggestions.
 * Strings over 63 bytes count as infinitely far. O(|a||b|). */
uint32_t ds_edit_distance(const char *a, const char *b);
/* The candidate that `name` may mean: by a line of words.def, by the letters without regard to case,
 * else the nearest within max(1, |name|/3) edits. NULL: no candidate is near. */
const char *ds_suggest(const char *name, const char *const *candidates, uint32_t n);
/* How to write a thing that no single name replaces ("fsdp"), by words.def; NULL: no line. */
const char *ds_word_fix(const char *name);

#endif
