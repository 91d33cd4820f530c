/* Internal to ir/lang: what the files of the parser share.
 *
 * Recursive descent over a stream of tokens, without backtracking. The first error ends everything:
 * it is kept, and from then on the current token is the end of the file, so that every loop stops
 * and no caller has to test. Functions return well-formed objects even then. */
#ifndef DS_LANG_PARSE_H
#define DS_LANG_PARSE_H

#include "ir/base/map.h"
#include "ir/core/rec.h"
#include "ir/lang/lexer.h"

#define DS_MAX_NESTING       200u
#define DS_MAX_MESH_AXES     64
#define DS_MAX_AXIS_NAMES    1024 /* that a module declares by `axis` */
#define DS_MAX_SWEEP_ENTRIES 200  /* assumed: nobody reads a table of more columns */
#define DS_LANG_VERSION      1

/* What a name stood for before an inner scope gave it another meaning. */
typedef struct ds_scope_undo {
    const char *name;
    uint64_t value;
} ds_scope_undo;

/* A name in a link's paths, which come before the `for` that declares the indices. */
typedef struct ds_open_name {
    const char *name;
    ds_loc loc;
    bool is_param;
} ds_open_name;

typedef struct ds_open_brace {
    ds_loc loc;
    uint32_t indent; /* of its line */
} ds_open_brace;

typedef struct ds_parser {
    ds_unit *unit;
    ds_module *module;
    ds_arena *arena; /* the unit's */
    ds_exprs *exprs; /* the unit's */
    ds_lexer lexer;
    ds_token tok;      /* the current token, not yet consumed */
    ds_token ahead[2]; /* those after it that have been looked at */
    uint32_t n_ahead;
    ds_error *err;
    ds_status status;
    void *result; /* of ds_parse_setting */
    uint32_t depth;

    DS_VEC(ds_open_brace) open; /* each '{' that was read and not closed */
    ds_open_brace astray;       /* habits.c */

    ds_map params;                /* interned name → index */
    ds_map opcodes;               /* interned mnemonic → code */
    DS_VEC(const char *) indices; /* in scope, innermost last */
    bool in_link;                 /* unknown names are open until the `for` */
    DS_VEC(ds_open_name) open_names;

    ds_func *func;
    ds_map values; /* interned name → index into func->values + 1; 0: none */
    DS_VEC(ds_scope_undo) undo;
    uint32_t visible_from;     /* values before this one cannot be named (local regions) */
    uint32_t blocks;           /* open */
    struct ds_open_rec *rec;   /* parse_rec.c; NULL: outside a rec */
    struct ds_open_loop *loop; /* parse_op.c; NULL: outside loops */
} ds_parser;

/* The names on the left of '=': they come into scope only after the op, regions included. */
typedef struct ds_targets {
    DS_VEC(ds_token) names;
    ds_binder *dims; /* %k{l} = …, in a rec: the stated dims */
    uint32_t n_dims;
} ds_targets;

/* ---- parse.c: tokens, errors, trivia ---- */

void ds_parser_fail(ds_parser *p, ds_status code, ds_loc loc, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* "expected WHAT, found <current token>" at the current token. */
void ds_parser_expected(ds_parser *p, const char *what);
void ds_parser_advance(ds_parser *p);
const ds_token *ds_parser_peek(ds_parser *p, uint32_t ahead); /* ahead 1 or 2 */

bool ds_parser_at(const ds_parser *p, ds_token_kind kind);
bool ds_parser_at_word(const ds_parser *p, const char *word);
bool ds_parser_accept(ds_parser *p, ds_token_kind kind);
bool ds_parser_accept_word(ds_parser *p, const char *word);
/* Consumes the token or fails: "expected ')' to end the operands, found …". `purpose` may be "". */
ds_token ds_parser_expect(ds_parser *p, ds_token_kind kind, const char *purpose);
void ds_parser_expect_word(ds_parser *p, const char *word, const char *purpose);
/* A plain name; the words of DS_RESERVED are refused. */
ds_token ds_parser_expect_new_name(ds_parser *p, const char *purpose);
int64_t ds_parser_expect_int(ds_parser *p, const char *purpose);

/* The candidate nearest to a mistyped name, or NULL; never for names so short that all are near. */
const char *ds_parser_suggest(const char *name, const char *const *candidates, uint32_t n);

/* Between a `{`, `(` or `[` and its end: true while another element follows. */
bool ds_parser_more(ds_parser *p, ds_token_kind end);

/* Nesting: false (and an error) beyond the limit; each true wants a leave. */
bool ds_parser_enter(ds_parser *p);
void ds_parser_leave(ds_parser *p);

/* Comments. begin: at an item's first token. end: after its last; what was inside goes before it,
 * what follows on its line is its trailing comment. opening: after the brace that opens its block.
 * dangling: at the closing brace, which is the current token. */
void ds_parser_begin(ds_parser *p, ds_trivia *trivia, bool first);
void ds_parser_end(ds_parser *p, ds_trivia *trivia);
void ds_parser_opening(ds_parser *p, ds_trivia *trivia);
void ds_parser_dangling(ds_parser *p, ds_trivia *dangling, bool empty);

/* Is the word the first of a declaration, as `func` is? */
bool ds_parser_is_item(const char *word);

/* ---- habits.c: what people type by habit, and the fix ---- */

/* "; write @mlp" for the current token where something else was expected; else "". */
void ds_parser_habit(ds_parser *p, const char *expected, char *out, size_t n);
/* The current token, before it is consumed: braces are counted. */
void ds_parser_note_brace(ds_parser *p);
/* Fails at the '{' that lacks a '}', if `found` is the end of the file or begins a declaration
 * inside a block. False: it does not. */
bool ds_parser_unclosed(ds_parser *p, const ds_token *found);
/* Fails at a text without quotes that would be read as arithmetic: 1f1b, zb-h1. `key` is the entry
 * that has the value, or NULL. */
void ds_parser_refuse_bare(ds_parser *p, const char *key);
/* How a number with this suffix (8k, 8_192) is written; NULL: the suffix is no habit. */
const char *ds_parser_number_habit(const char *suffix);

/* ---- parse_expr.c ---- */

/* The unit that a name may mean, or NULL. */
const char *ds_unit_suggest(const ds_token *name);

ds_expr ds_parse_expr(ds_parser *p);
/* An expression without comparisons outside of parentheses: `>` ends it. */
ds_expr ds_parse_sum(ds_parser *p);
/* `lo..hi` */
void ds_parse_range(ds_parser *p, ds_expr *lo, ds_expr *hi);
/* A unit word glued to nothing but an expression on the same line; NONE if there is none. */
ds_unit_id ds_parse_unit(ds_parser *p);
bool ds_expr_operator_of(const ds_token *token, ds_expr_kind *kind, uint32_t *precedence);

/* Index scopes: push returns the mark to pop back to. */
uint32_t ds_parser_push_index(ds_parser *p, const char *name, ds_loc loc);
void ds_parser_pop_indices(ds_parser *p, uint32_t mark);
bool ds_parser_has_index(const ds_parser *p, const char *name);

/* ---- parse_type.c: types, places, attributes ---- */

ds_type *ds_parse_type(ds_parser *p);
ds_place ds_parse_place(ds_parser *p);
/* gpu[0].port, for places and links. */
void ds_parse_steps(ds_parser *p, ds_step **steps, uint32_t *n);
/* @name or @alias.name, interned without the sigil. */
const char *ds_parse_qualified(ds_parser *p, const char *purpose);
/* `{l: 0..layers, …}` after a family's name; the indices stay in scope. */
void ds_parse_binders(ds_parser *p, ds_binder **binders, uint32_t *n);
/* `{key = value, …}` on one line: comments inside go to the item around. */
void ds_parse_attrs(ds_parser *p, ds_attr **attrs, uint32_t *n);
/* key = value pairs, one a line, up to the closing brace, each with its comments. */
void ds_parse_entries(ds_parser *p, ds_attr **attrs, uint32_t *n, ds_trivia *dangling);
ds_attr ds_parse_attr(ds_parser *p, bool keep_comments);
/* [value, …], at its bracket. */
void ds_parse_list(ds_parser *p, ds_attr *attr);

/* ---- parse_func.c, parse_op.c ---- */

void ds_parse_func(ds_parser *p);
void ds_parse_program(ds_parser *p);
ds_op *ds_parse_op(ds_parser *p);
void ds_parse_block(ds_parser *p, ds_block *block, ds_trivia *opening);
ds_value ds_parser_define(ds_parser *p, const char *name, ds_loc loc);
/* %x, %s{l}, %k{0:t+1} */
ds_use ds_parse_use(ds_parser *p);
void ds_parser_define_results(ds_parser *p, ds_op *op, const ds_targets *left);
/* `: T1, T2`, one type a result; the indices that types may mention are in scope. */
void ds_parse_result_types(ds_parser *p, ds_op *op);
ds_block *ds_parse_region(ds_parser *p, ds_op *op);
/* The visible value with a name near this one, or NULL. */
const char *ds_parser_suggest_value(const ds_parser *p, const char *name);
/* Lets the value's name stand for it. */
void ds_parser_bind(ds_parser *p, ds_value value);
/* Leaves a scope: names mean what they meant at the mark (p->undo.n on entry). */
void ds_parser_close_scope(ds_parser *p, uint32_t mark);

/* ---- parse_rec.c ---- */

void ds_parse_rec(ds_parser *p, ds_op *op, const ds_targets *left);
void ds_parse_case(ds_parser *p, ds_op *op, const ds_targets *left);
/* The dims that braces on the left of '=' state, at the brace. */
void ds_parse_stated_dims(ds_parser *p, ds_targets *left);
/* The value that a name stands for whose equation comes below in the open rec; false: no rec is
 * open where the name is used. */
bool ds_parser_ahead(ds_parser *p, const ds_token *name, ds_value *out);
/* Defines a result of an op: in a rec's body the value that was used before its equation. */
ds_value ds_parser_define_result(ds_parser *p, const char *name, ds_loc loc);

/* ---- parse_decl.c ---- */

void ds_parse_topology(ds_parser *p);
void ds_parse_mesh(ds_parser *p);
void ds_parse_schedule(ds_parser *p);
void ds_parse_scenario(ds_parser *p);
void ds_parse_degrade(ds_parser *p);
/* Without the word before it. */
ds_degrade ds_parse_degradation(ds_parser *p);

/* ---- parse_sweep.c ---- */

void ds_parse_sweep(ds_parser *p);
/* Puts a line of a sweep into the root module's sweep, which is made if there is none: a dimension
 * takes the place of the dimension of the same param or knob, an objective that of the file's
 * objectives. `source` names the text in messages. */
ds_status ds_parse_sweep_line(ds_module *module, const char *source, const char *text,
                              ds_error *err);

/* ---- parse.c: texts of the command line ---- */

/* `parse` reads the text; names of the module's params are known. */
ds_status ds_parse_words(ds_module *module, const char *source, const char *text,
                         void (*parse)(ds_parser *), void *result, ds_error *err);

/* ---- setting.c ---- */

struct ds_load_options;

/* Does what a setting says of the scenario or the sweep; a param's setting is passed over. */
ds_status ds_lang__say(ds_unit *unit, const ds_setting *setting,
                       const struct ds_load_options *options, ds_error *err);

#endif
