/* What people type by habit of other languages, and the fix that an error names.
 *
 * Nothing here decides whether a text is legal: the parser found an error already, and the functions
 * look at the token where the error is. */
#include "ir/lang/parse.h"

#include "ir/strategy/scenario.h"

#include <stdio.h>
#include <string.h>

/* ---- expected one token, found another ---- */

/* The first line whose `expected` begins the expectation and whose `found` is the token's text; an
 * empty text stands for any, "9" for a number. */
static const struct {
    const char *expected, *found, *fix;
} habits[] = {
    {"", ";", "a line has no ';': leave ';' out"},
    {"import, param", "}", "this '}' closes no block: leave '}' out"},
    {"the language version", "", "write `dir 1` as the first line"},
    {"an integer as the language version", "", "write `dir 1`"},
    {"a name for the param", "9", "a number has no ',': write 8192, not 8,192"},
    {"'='", "==", "'==' compares, '=' gives a value"},
    {"'='", ":", "write '='"},
    {"'='", "{", "write '=' and a value"},
    {"'='", ".", "write the key inside the block: strategy { dp = 2 }"},
    {"',' or a new line", "=", "'==' compares"},
    {"',' or a new line", "-", "a name has '_' in the place of '-'"},
    {"'..' of the domain", "", "a domain is [1, 2, 4], 1..9, divisors(n) or powers_of_two(1, 8)"},
    {"'..'", "", "a range is written 0..8"},
    {"'[' before the dims", "", "a type is written f32[batch, width]"},
    {"'{' before the body", "(", "a loop's values are written carry (%h: TYPE = %x)"},
    {"a name of an op", "", "an op is written %y = matmul(%a, %b)"},
    {"'in' between", "=", "a dimension is written dp in [1, 2, 4]"},
    {"'in' between", "", "the objectives are minimize and maximize"},
    {"device, switch", "", "devices are written device gpu[8] : \"A100-SXM4-80GB\""},
    {"'in' after the loop", "", "a loop is written for l in 0..8"},
};

static bool has_text(const ds_token *token, const char *text) {
    if (!*text || strcmp(text, "9") == 0) return !*text || token->kind == DS_TOK_INT;
    return strlen(text) == token->loc.len && memcmp(text, token->text, token->loc.len) == 0;
}

/* Names without '@' or '%', and with a needless one. */
static bool put_sigil(const ds_token *token, const char *expected, char *out, size_t n) {
    static const struct {
        const char *expected, *sigil;
        ds_token_kind found;
    } sigils[] = {{"a name like @main", "@", DS_TOK_NAME},
                  {"a value like %x", "%", DS_TOK_NAME},
                  {"a name", "", DS_TOK_SYMBOL},
                  {"a name", "", DS_TOK_VALUE}};
    for (size_t i = 0; i < sizeof sigils / sizeof *sigils; i++) {
        if (token->kind != sigils[i].found) continue;
        if (strncmp(expected, sigils[i].expected, strlen(sigils[i].expected)) != 0) continue;
        if (strncmp(expected, "a name of an op", strlen("a name of an op")) == 0) continue;
        snprintf(out, n, "; write %s%.60s", sigils[i].sigil, token->name);
        return true;
    }
    return false;
}

/* The bytes from the token up to a blank or one of `ends`. */
static int word_length(const ds_parser *p, const ds_token *token, const char *ends) {
    const char *end = p->lexer.end, *at = token->text;
    while (at < end && (unsigned char)*at > ' ' && !strchr(ends, *at)) at++;
    return (int)(at - token->text < 60 ? at - token->text : 60);
}

void ds_parser_habit(ds_parser *p, const char *expected, char *out, size_t n) {
    const ds_token *token = &p->tok;
    *out = '\0';
    if (token->kind == DS_TOK_EOF || put_sigil(token, expected, out, n)) return;
    if (strncmp(expected, "a string", strlen("a string")) == 0 && token->kind == DS_TOK_NAME) {
        snprintf(out, n, "; write \"%.*s\"", word_length(p, token, ",;\"'"), token->text);
        return;
    }
    for (size_t i = 0; i < sizeof habits / sizeof *habits; i++) {
        if (strncmp(expected, habits[i].expected, strlen(habits[i].expected)) != 0) continue;
        if (!has_text(token, habits[i].found)) continue;
        snprintf(out, n, "; %s", habits[i].fix);
        return;
    }
}

/* ---- blocks that nobody closes ---- */

static uint32_t indent_of(const ds_token *token) {
    const char *line = token->text - (token->loc.col - 1);
    uint32_t n = 0;
    while (line[n] == ' ' || line[n] == '\t') n++;
    return n;
}

/* A '}' at the start of a line that is indented otherwise than the line of its '{' was meant for
 * another '{': the first such '{' is the likeliest to lack a '}'. */
void ds_parser_note_brace(ds_parser *p) {
    const ds_token *token = &p->tok;
    if (token->kind == DS_TOK_LBRACE) {
        DS_HPUSH(&p->open, ((ds_open_brace){token->loc, indent_of(token)}));
    } else if (token->kind == DS_TOK_RBRACE && p->open.n) {
        ds_open_brace open = p->open.at[--p->open.n];
        bool astray = token->starts_line && indent_of(token) != open.indent;
        if (astray && !p->astray.loc.line) p->astray = open;
    }
}

bool ds_parser_unclosed(ds_parser *p, const ds_token *found) {
    bool item = found->kind == DS_TOK_NAME && found->loc.col == 1 && ds_parser_is_item(found->name);
    if (!p->open.n || p->status || (found->kind != DS_TOK_EOF && !item)) return false;
    const ds_open_brace *open = p->astray.loc.line ? &p->astray : &p->open.at[p->open.n - 1];
    if (item)
        ds_parser_fail(p, DS_ERR_SYNTAX, open->loc,
                       "this '{' has no '}' before '%s' on line %u: add '}'", found->name,
                       found->loc.line);
    else
        ds_parser_fail(p, DS_ERR_SYNTAX, open->loc,
                       "this '{' has no '}' before the end of the file: add '}'");
    return true;
}

/* ---- values ---- */

static bool is_name_of_one(const char *key) {
    static const ds_knob_kind kinds[] = {DS_KNOB_ENTRY, DS_KNOB_MESH, DS_KNOB_PLACE};
    const ds_knob *knob = ds_scenario_knob("", key);
    for (size_t i = 0; knob && i < sizeof kinds / sizeof *kinds; i++)
        if (knob->kind == kinds[i]) return true;
    return false;
}

void ds_parser_refuse_bare(ds_parser *p, const char *key) {
    ds_token token = p->tok;
    const ds_token *next = ds_parser_peek(p, 1);
    bool number = token.kind == DS_TOK_INT || token.kind == DS_TOK_REAL;
    bool name = token.kind == DS_TOK_NAME && !ds_parser_has_index(p, token.name) &&
                !ds_map_find(&p->params, DS_KEY(token.name));
    if (!next->glued || !(name ? next->kind == DS_TOK_MINUS : next->kind == DS_TOK_NAME)) return;
    ds_unit_id unit;
    size_t n = next->loc.len;
    if (number && (n < 2 || ds_unit_parse(next->text, n, &unit) || ds_unit_suggest(next))) return;
    if (!number && !name) return;
    int length = word_length(p, &token, ",;{}[]()");
    token.loc.len = (uint32_t)length;
    if (key && is_name_of_one(key)) {
        char fixed[64];
        snprintf(fixed, sizeof fixed, "%.*s", length, token.text);
        for (char *at = fixed; *at; at++)
            if (*at == '-') *at = '_';
        ds_parser_fail(p, DS_ERR_SYNTAX, token.loc, "'%s' is the name of a declaration; write @%s",
                       key, fixed);
        return;
    }
    ds_parser_fail(p, DS_ERR_SYNTAX, token.loc, "a text %s needs quotes; write \"%.*s\"",
                   number ? "that begins with a digit" : "with '-'", length, token.text);
}

/* 8k, 1M, 8_192: how the number is written out; NULL for another word. */
const char *ds_parser_number_habit(const char *suffix) {
    static const struct {
        const char *suffix, *fix;
    } habit[] = {{"k", "write * 1000, or * 1024"},
                 {"m", "write * 1000000"},
                 {"g", "write * 1000000000"},
                 {"b", "write * 1000000000"}};
    if (suffix[0] == '_') return "a number has no '_': write the digits alone";
    for (size_t i = 0; i < sizeof habit / sizeof *habit; i++)
        if ((suffix[0] | 0x20) == habit[i].suffix[0] && !suffix[1]) return habit[i].fix;
    return NULL;
}
