/* The state of a script that is read: shell.c reads commands, expand.c words. */
#ifndef DS_LAUNCH_SHELL_INTERNAL_H
#define DS_LAUNCH_SHELL_INTERNAL_H

#include "ir/launch/internal.h"

/* A variable; an array has any number of items, a text one. */
typedef struct sh_var {
    const char *name;
    const char **items;
    uint32_t n;
} sh_var;

typedef struct sh_func {
    const char *name;
    size_t at;
    uint32_t line;
} sh_func;

typedef struct sh {
    ds_arena *arena;
    const char *text;
    size_t n, at;
    uint32_t line;
    DS_VEC(sh_var) vars;   /* arena */
    DS_VEC(sh_func) funcs; /* arena */
    ds_script *out;
    uint32_t depth, steps;
    size_t bytes;        /* of all words */
    bool in_test;        /* variables without a value are empty, not unknown */
    bool assigns;        /* a part that was passed over has an assignment or a launch */
    bool shifts;         /* a part that was passed over has a `shift` */
    bool ended;          /* `exit` */
    const char *heredoc; /* the word that ends the text after this line; NULL: none */
    ds_error *err;
} sh;

/* Most steps, words, nested constructs and bytes of words; assumed: no launch script is longer. */
enum { SH_MAX_STEPS = 1 << 20, SH_MAX_DEPTH = 64, SH_MAX_BYTES = 1 << 26 };

typedef DS_VEC(const char *) sh_fields;

ds_status ds_sh__error(const sh *s, ds_status code, const char *format, ...) DS_PRINTF(3, 4);
/* Another text in the same variables, as `eval` has it; `at` and `line` come back. */
ds_status ds_sh__run_text(sh *s, const char *text, uint32_t line);

static inline int ds_sh__peek(const sh *s, size_t ahead) {
    return s->at + ahead < s->n ? (unsigned char)s->text[s->at + ahead] : -1;
}

/* Does a byte end a word? */
bool ds_sh__ends_word(int c);
/* Reads one word and appends its fields; with `run` false the word is passed over. */
ds_status ds_sh__word(sh *s, bool run, sh_fields *fields);
/* A word as one text, unsplit. */
ds_status ds_sh__text(sh *s, bool run, const char **out);
/* The value of `((…))`; the parentheses have been read. */
ds_status ds_sh__arithmetic(sh *s, const char *text, const char **out);

sh_var *ds_sh__find(sh *s, const char *name);
void ds_sh__set(sh *s, const char *name, const char *const *items, uint32_t n, bool append,
                bool is_array);

#endif
