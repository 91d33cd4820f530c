/* Internal to ir/lang: text to tokens.
 *
 * The lexer works on demand. Comments are no tokens: they go to a queue, each with the number of
 * the token that it precedes, from which the parser hands them to the item they belong to. A `%`
 * glued to what stands before it is the remainder operator (`i%n`); otherwise, glued to what
 * follows, it begins a value name (`%x`). */
#ifndef DS_LANG_LEXER_H
#define DS_LANG_LEXER_H

#include "ir/core/ir.h"

/* X(name, text); two-byte texts before their one-byte prefixes: the first match wins. */
#define DS_PUNCT_MAP(X)                                                                            \
    X(ARROW, "->")                                                                                 \
    X(DASHDASH, "--")                                                                              \
    X(EQ, "==")                                                                                    \
    X(NE, "!=")                                                                                    \
    X(LE, "<=")                                                                                    \
    X(GE, ">=")                                                                                    \
    X(DOTDOT, "..")                                                                                \
    X(LPAREN, "(")                                                                                 \
    X(RPAREN, ")")                                                                                 \
    X(LBRACKET, "[")                                                                               \
    X(RBRACKET, "]")                                                                               \
    X(LBRACE, "{")                                                                                 \
    X(RBRACE, "}")                                                                                 \
    X(COMMA, ",")                                                                                  \
    X(COLON, ":")                                                                                  \
    X(SEMI, ";")                                                                                   \
    X(ASSIGN, "=")                                                                                 \
    X(DOT, ".")                                                                                    \
    X(AT, "@")                                                                                     \
    X(AMP, "&")                                                                                    \
    X(LT, "<")                                                                                     \
    X(GT, ">")                                                                                     \
    X(PLUS, "+")                                                                                   \
    X(MINUS, "-")                                                                                  \
    X(STAR, "*")                                                                                   \
    X(SLASH, "/")                                                                                  \
    X(PERCENT, "%")

typedef enum ds_token_kind {
    DS_TOK_EOF,
    DS_TOK_ERROR,  /* the lexer's message says why; nothing follows */
    DS_TOK_NAME,   /* layers */
    DS_TOK_VALUE,  /* %x; name without the sigil */
    DS_TOK_SYMBOL, /* @main; name without the sigil */
    DS_TOK_INT,    /* i */
    DS_TOK_REAL,   /* r; name is the text */
    DS_TOK_STRING, /* name is the text between the quotes, escapes resolved */
#define DS_X(name, text) DS_TOK_##name,
    DS_PUNCT_MAP(DS_X)
#undef DS_X
} ds_token_kind;

typedef struct ds_token {
    ds_token_kind kind;
    ds_loc loc;
    const char *text; /* loc.len bytes in the source */
    const char *name; /* interned */
    int64_t i;
    double r;
    uint64_t seq;      /* counts tokens from 1 */
    bool glued;        /* nothing between it and the token before */
    bool starts_line;  /* a newline between it and the token before */
    bool blank_before; /* an empty line between it and the comment or token before */
} ds_token;

typedef struct ds_comment {
    const char *text; /* after "//", without trailing blanks; " " if there is none */
    uint64_t seq;     /* of the token that follows */
    bool blank_before;
    bool same_line; /* as the token before */
} ds_comment;

typedef struct ds_lexer {
    ds_unit *unit;
    const char *file;
    const char *at, *end, *line_start;
    uint32_t line;
    uint64_t seq;
    ds_buf scratch;
    DS_VEC(ds_comment) comments; /* a queue on the heap: [first_comment, n) wait */
    uint32_t first_comment;
    char message[160]; /* of the ERROR token */
    ds_status code;
} ds_lexer;

/* The text must stay alive until ds_lexer_deinit. */
void ds_lexer_init(ds_lexer *lexer, ds_unit *unit, const char *file, const char *text, size_t n);
void ds_lexer_deinit(ds_lexer *lexer);
ds_token ds_lexer_next(ds_lexer *lexer);

/* "'->'", "a name", … for messages. Static string. */
const char *ds_token_kind_text(ds_token_kind kind);

#endif
