/* The parser's core: tokens, errors, comments; and the items of a file.
 *
 * Comments wait in the lexer's queue until an item claims them. An item claims what stands before
 * its first token, then, once read, what turned up inside it and a comment on its last line. */
#include "ir/lang/parse.h"

#include "ir/lang/lang.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- errors ---- */

void ds_parser_fail(ds_parser *p, ds_status code, ds_loc loc, const char *format, ...) {
    if (p->status) return;
    va_list ap;
    va_start(ap, format);
    p->status = ds_error_vset(p->err, code, loc, format, ap);
    va_end(ap);
    p->tok.kind = DS_TOK_EOF;
    p->n_ahead = 0;
}

/* The current token as it may stand in a message: quoted, cut, without control bytes. */
static void describe(const ds_parser *p, char *out, size_t n) {
    const ds_token *token = &p->tok;
    if (token->kind == DS_TOK_EOF) {
        snprintf(out, n, "the end of the file");
        return;
    }
    char text[48];
    size_t length = 0;
    for (uint32_t k = 0; k < token->loc.len && length < sizeof text - 4; k++) {
        unsigned char c = (unsigned char)token->text[k];
        text[length++] = (char)(c < ' ' || c >= 0x7f ? '?' : c);
    }
    if (length < token->loc.len) {
        memcpy(text + length, "...", 3);
        length += 3;
    }
    const char *quote = token->kind == DS_TOK_STRING ? "" : "'";
    snprintf(out, n, "%s%.*s%s", quote, (int)length, text, quote);
}

void ds_parser_expected(ds_parser *p, const char *what) {
    char found[64], habit[96];
    if (ds_parser_unclosed(p, &p->tok)) return;
    describe(p, found, sizeof found);
    ds_parser_habit(p, what, habit, sizeof habit);
    ds_parser_fail(p, DS_ERR_SYNTAX, p->tok.loc, "expected %s, found %s%s", what, found, habit);
}

/* ---- tokens ---- */

void ds_parser_advance(ds_parser *p) {
    if (p->status) return;
    ds_parser_note_brace(p);
    if (p->n_ahead) {
        p->tok = p->ahead[0];
        p->ahead[0] = p->ahead[1];
        p->n_ahead--;
    } else {
        p->tok = ds_lexer_next(&p->lexer);
    }
    if (p->tok.kind == DS_TOK_ERROR)
        ds_parser_fail(p, p->lexer.code, p->tok.loc, "%s", p->lexer.message);
}

const ds_token *ds_parser_peek(ds_parser *p, uint32_t ahead) {
    if (p->status) return &p->tok;
    while (p->n_ahead < ahead) p->ahead[p->n_ahead++] = ds_lexer_next(&p->lexer);
    return &p->ahead[ahead - 1];
}

bool ds_parser_at(const ds_parser *p, ds_token_kind kind) {
    return p->tok.kind == kind;
}

bool ds_parser_at_word(const ds_parser *p, const char *word) {
    return p->tok.kind == DS_TOK_NAME && strcmp(p->tok.name, word) == 0;
}

bool ds_parser_accept(ds_parser *p, ds_token_kind kind) {
    if (p->tok.kind != kind || p->status) return false;
    ds_parser_advance(p);
    return true;
}

bool ds_parser_accept_word(ds_parser *p, const char *word) {
    if (!ds_parser_at_word(p, word)) return false;
    ds_parser_advance(p);
    return true;
}

static void expected_for(ds_parser *p, const char *what, const char *purpose) {
    char text[160];
    snprintf(text, sizeof text, "%s%s%s", what, *purpose ? " " : "", purpose);
    ds_parser_expected(p, text);
}

/* A token that stands for one that was missing: callers may use its name. */
static ds_token nothing(ds_parser *p) {
    return (ds_token){.kind = DS_TOK_EOF,
                      .loc = p->tok.loc,
                      .text = "",
                      .name = ds_intern(&p->unit->strings, "")};
}

ds_token ds_parser_expect(ds_parser *p, ds_token_kind kind, const char *purpose) {
    if (p->tok.kind != kind || p->status) {
        expected_for(p, ds_token_kind_text(kind), purpose);
        return nothing(p);
    }
    ds_token token = p->tok;
    ds_parser_advance(p);
    return token;
}

void ds_parser_expect_word(ds_parser *p, const char *word, const char *purpose) {
    if (ds_parser_accept_word(p, word)) return;
    char quoted[48];
    snprintf(quoted, sizeof quoted, "'%s'", word);
    expected_for(p, quoted, purpose);
}

/* Words that mean something wherever an expression may stand. */
static const char *const reserved[] = {"and",     "or",         "not",  "min",  "max",
                                       "ceildiv", "axis_index", "true", "false"};

ds_token ds_parser_expect_new_name(ds_parser *p, const char *purpose) {
    ds_token token = ds_parser_expect(p, DS_TOK_NAME, purpose);
    for (size_t k = 0; k < sizeof reserved / sizeof reserved[0]; k++)
        if (strcmp(token.name, reserved[k]) == 0)
            ds_parser_fail(p, DS_ERR_NAME, token.loc,
                           "'%s' is a word of the language and cannot be declared", token.name);
    return token;
}

int64_t ds_parser_expect_int(ds_parser *p, const char *purpose) {
    return ds_parser_expect(p, DS_TOK_INT, purpose).i;
}

const char *ds_parser_suggest(const char *name, const char *const *candidates, uint32_t n) {
    return name[0] && name[1] ? ds_suggest(name, candidates, n) : NULL;
}

bool ds_parser_more(ds_parser *p, ds_token_kind end) {
    return !ds_parser_at(p, end) && !ds_parser_at(p, DS_TOK_EOF);
}

bool ds_parser_enter(ds_parser *p) {
    if (p->depth == DS_MAX_NESTING) {
        ds_parser_fail(p, DS_ERR_LIMIT, p->tok.loc, "nested deeper than %u levels", DS_MAX_NESTING);
        return false;
    }
    p->depth++;
    return true;
}

void ds_parser_leave(ds_parser *p) {
    p->depth--;
}

/* ---- comments ---- */

/* Capacity is the next power of two, so that it needs no field. */
static void push_comment(ds_parser *p, ds_trivia *trivia, const char *text) {
    uint32_t n = trivia->n_comments;
    if ((n & (n - 1)) == 0) {
        const char **grown = DS_NEW_N(p->arena, const char *, n ? 2 * (size_t)n : 1);
        if (n) memcpy(grown, trivia->comments, n * sizeof *grown);
        trivia->comments = grown;
    }
    trivia->comments[trivia->n_comments++] = text;
}

/* The first waiting comment that stands before token `seq` + 1, or NULL. */
static const ds_comment *first_comment(const ds_parser *p, uint64_t seq) {
    const ds_lexer *lexer = &p->lexer;
    if (lexer->first_comment == lexer->comments.n) return NULL;
    const ds_comment *comment = &lexer->comments.at[lexer->first_comment];
    return comment->seq <= seq ? comment : NULL;
}

static void drop_comment(ds_parser *p) {
    ds_lexer *lexer = &p->lexer;
    if (++lexer->first_comment == lexer->comments.n) lexer->first_comment = lexer->comments.n = 0;
}

static void take_leading(ds_parser *p, ds_trivia *trivia, bool first) {
    bool any = false;
    for (const ds_comment *c; (c = first_comment(p, p->tok.seq)); drop_comment(p)) {
        if (!any) trivia->blank_before = c->blank_before && !first;
        if (any && c->blank_before) push_comment(p, trivia, "");
        push_comment(p, trivia, c->text);
        any = true;
    }
    if (!any) trivia->blank_before = p->tok.blank_before && !first;
}

void ds_parser_begin(ds_parser *p, ds_trivia *trivia, bool first) {
    *trivia = (ds_trivia){0};
    take_leading(p, trivia, first);
    if (trivia->n_comments && p->tok.blank_before) push_comment(p, trivia, "");
}

static const char *take_inside(ds_parser *p, ds_trivia *trivia) {
    for (const ds_comment *c; (c = first_comment(p, p->tok.seq - 1)); drop_comment(p))
        push_comment(p, trivia, c->text);
    const ds_comment *c = first_comment(p, p->tok.seq);
    if (!c || !c->same_line) return NULL;
    const char *text = c->text;
    drop_comment(p);
    return text;
}

void ds_parser_end(ds_parser *p, ds_trivia *trivia) {
    if (p->status) return;
    trivia->trailing = take_inside(p, trivia);
}

void ds_parser_opening(ds_parser *p, ds_trivia *trivia) {
    if (p->status) return;
    trivia->opening = take_inside(p, trivia);
}

void ds_parser_dangling(ds_parser *p, ds_trivia *dangling, bool empty) {
    *dangling = (ds_trivia){0};
    if (p->status) return;
    take_leading(p, dangling, empty);
    if (!dangling->n_comments) dangling->blank_before = false;
}

/* ---- items of a file ---- */

static void add_item(ds_parser *p, ds_item_kind kind, uint32_t index) {
    DS_PUSH(p->arena, &p->module->items, ((ds_item){kind, index}));
}

static void parse_import(ds_parser *p) {
    ds_import import = {0};
    ds_parser_begin(p, &import.trivia, false);
    ds_parser_advance(p);
    ds_token path = ds_parser_expect(p, DS_TOK_STRING, "with the path of the import");
    import.path = path.name;
    import.loc = path.loc;
    if (ds_parser_accept_word(p, "as"))
        import.alias = ds_parser_expect_new_name(p, "for the import").name;
    if (ds_parser_accept_word(p, "with")) {
        DS_VEC(ds_attr) with = {0};
        do DS_PUSH(p->arena, &with, ds_parse_attr(p, false));
        while (ds_parser_accept(p, DS_TOK_COMMA));
        import.with = with.at;
        import.n_with = with.n;
    }
    ds_parser_end(p, &import.trivia);
    DS_PUSH(p->arena, &p->module->imports, import);
    add_item(p, DS_ITEM_IMPORT, p->module->imports.n - 1);
}

/* `20x48`, `256 MB`: a name right behind a param's value, where only the next item may begin. */
static void refuse_after_value(ds_parser *p, const ds_param *param) {
    if (!ds_parser_at(p, DS_TOK_NAME) || p->tok.starts_line) return;
    const char *name = p->tok.name, *habit = ds_parser_number_habit(name);
    if (ds_parser_is_item(name)) return;
    ds_unit_id unit;
    bool product = p->tok.glued && name[0] == 'x' && name[1];
    if (p->tok.glued && habit)
        ds_parser_fail(p, DS_ERR_SYNTAX, p->tok.loc, "'%.40s' after the value of param '%s'; %s",
                       name, param->name, habit);
    else if (product)
        ds_parser_fail(p, DS_ERR_SYNTAX, p->tok.loc,
                       "'%.40s' after the value of param '%s': a product is written a * b", name,
                       param->name);
    else if (ds_unit_parse(name, strlen(name), &unit))
        ds_parser_fail(p, DS_ERR_SYNTAX, p->tok.loc,
                       "a param is a number without a unit; write the unit where the param is "
                       "used, as in '%s %s'",
                       param->name, name);
    else
        ds_parser_fail(p, DS_ERR_SYNTAX, p->tok.loc,
                       "expected an operator, ',' or the next declaration after the value of "
                       "param '%s', found '%.40s'",
                       param->name, name);
}

static void parse_param(ds_parser *p, ds_param *param) {
    ds_token name = ds_parser_expect_new_name(p, "for the param");
    const uint64_t *old = ds_map_find(&p->params, DS_KEY(name.name));
    if (old)
        ds_parser_fail(p, DS_ERR_NAME, name.loc, "param '%s' is already declared on line %u",
                       name.name, p->module->params.at[*old].loc.line);
    ds_parser_expect(p, DS_TOK_ASSIGN, "before the param's value");
    param->name = name.name;
    param->loc = name.loc;
    param->init = ds_parse_expr(p);
    refuse_after_value(p, param);
}

static void parse_params(ds_parser *p) {
    ds_module *module = p->module;
    uint32_t first = module->params.n;
    ds_trivia trivia;
    ds_parser_begin(p, &trivia, false);
    ds_parser_advance(p);
    do {
        ds_param param = {.group = module->items.n};
        parse_param(p, &param);
        if (p->status) return;
        ds_map_put(&p->params, DS_KEY(param.name), module->params.n);
        DS_PUSH(p->arena, &module->params, param);
    } while (ds_parser_accept(p, DS_TOK_COMMA));
    ds_parser_end(p, &trivia);
    module->params.at[first].trivia = trivia;
    add_item(p, DS_ITEM_PARAMS, first);
}

static void parse_axis(ds_parser *p) {
    ds_axis_decl axis = {0};
    ds_parser_begin(p, &axis.trivia, false);
    ds_parser_advance(p);
    ds_token name = ds_parser_expect_new_name(p, "for the mesh axis");
    if (p->module->axes.n == DS_MAX_AXIS_NAMES)
        ds_parser_fail(p, DS_ERR_LIMIT, name.loc, "a module declares at most %d axes",
                       DS_MAX_AXIS_NAMES);
    axis.name = name.name;
    axis.loc = name.loc;
    ds_parser_end(p, &axis.trivia);
    DS_PUSH(p->arena, &p->module->axes, axis);
    add_item(p, DS_ITEM_AXIS, p->module->axes.n - 1);
}

static const struct {
    const char *word;
    void (*parse)(ds_parser *p);
} items[] = {{"import", parse_import},
             {"param", parse_params},
             {"axis", parse_axis},
             {"topology", ds_parse_topology},
             {"mesh", ds_parse_mesh},
             {"func", ds_parse_func},
             {"program", ds_parse_program},
             {"schedule", ds_parse_schedule},
             {"scenario", ds_parse_scenario},
             {"degrade", ds_parse_degrade},
             {"sweep", ds_parse_sweep}};

enum { N_ITEMS = sizeof items / sizeof items[0] };

static void unknown_item(ds_parser *p) {
    const char *words[N_ITEMS];
    for (uint32_t k = 0; k < N_ITEMS; k++) words[k] = items[k].word;
    const char *near =
        p->tok.kind == DS_TOK_NAME ? ds_parser_suggest(p->tok.name, words, N_ITEMS) : NULL;
    const char *advice = p->tok.kind == DS_TOK_NAME && !near ? ds_word_fix(p->tok.name) : NULL;
    if (near)
        ds_parser_fail(p, DS_ERR_SYNTAX, p->tok.loc, "unknown declaration '%s'; did you mean '%s'?",
                       p->tok.name, near);
    if (advice)
        ds_parser_fail(p, DS_ERR_SYNTAX, p->tok.loc, "unknown declaration '%s'; %s", p->tok.name,
                       advice);
    if (ds_parser_at(p, DS_TOK_NAME) && ds_parser_peek(p, 1)->kind == DS_TOK_ASSIGN)
        ds_parser_fail(p, DS_ERR_SYNTAX, p->tok.loc,
                       "unknown declaration '%s'; a value is declared as a param: write param %s "
                       "= ...",
                       p->tok.name, p->tok.name);
    ds_parser_expected(p, "import, param, axis, topology, mesh, func, program, schedule, scenario, "
                          "degrade or sweep");
}

bool ds_parser_is_item(const char *word) {
    for (uint32_t k = 0; k < N_ITEMS; k++)
        if (strcmp(word, items[k].word) == 0) return true;
    return false;
}

static void parse_item(ds_parser *p) {
    for (uint32_t k = 0; k < N_ITEMS; k++)
        if (ds_parser_at_word(p, items[k].word)) {
            items[k].parse(p);
            return;
        }
    unknown_item(p);
}

static void parse_version(ds_parser *p) {
    ds_module *module = p->module;
    ds_parser_begin(p, &module->trivia, true);
    if (!ds_parser_accept_word(p, "dir")) {
        ds_parser_expected(p, "the language version, `dir 1`, at the start of the file");
        return;
    }
    ds_token version = ds_parser_expect(p, DS_TOK_INT, "as the language version");
    module->version = version.i;
    if (!p->status && version.i != DS_LANG_VERSION)
        ds_parser_fail(p, DS_ERR_UNSUPPORTED, version.loc,
                       "language version %lld is unknown; this distsim reads version %d",
                       (long long)version.i, DS_LANG_VERSION);
    ds_parser_end(p, &module->trivia);
}

/* NUL bytes would cut strings short wherever they are handed on. */
static void refuse_nul(ds_parser *p) {
    const char *text = p->module->text;
    const char *nul = p->module->text_n ? memchr(text, '\0', p->module->text_n) : NULL;
    if (!nul) return;
    ds_loc loc = {.file = p->module->path, .line = 1, .len = 1};
    const char *line = text;
    for (const char *at = text; at < nul; at++)
        if (*at == '\n') {
            loc.line++;
            line = at + 1;
        }
    loc.col = (uint32_t)(nul - line) + 1;
    ds_parser_fail(p, DS_ERR_SYNTAX, loc, "a NUL byte: this is not a text file");
}

static void parse_file(ds_parser *p) {
    if (p->module->text_n > DS_LOAD_MAX_BYTES) {
        ds_parser_fail(
            p, DS_ERR_LIMIT, (ds_loc){.file = p->module->path, .line = 1, .col = 1, .len = 1},
            "the file has %zu bytes; at most %zu are read", p->module->text_n, DS_LOAD_MAX_BYTES);
        return;
    }
    refuse_nul(p);
    ds_parser_advance(p);
    parse_version(p);
    while (!ds_parser_at(p, DS_TOK_EOF)) parse_item(p);
    ds_parser_dangling(p, &p->module->dangling, false);
}

/* A text of the command line: all params of the module are above it. */
static void begin_words(ds_parser *p) {
    for (uint32_t k = 0; k < p->module->params.n; k++)
        ds_map_put(&p->params, DS_KEY(p->module->params.at[k].name), k);
    ds_parser_advance(p);
}

static ds_status parse_text(ds_module *module, const char *path, const char *text, size_t n,
                            void (*parse)(ds_parser *), void *result, ds_error *err) {
    ds_parser p = {.unit = module->unit,
                   .result = result,
                   .module = module,
                   .arena = &module->unit->arena,
                   .exprs = &module->unit->exprs,
                   .err = err};
    ds_lexer_init(&p.lexer, module->unit, path, text, n);
    if (parse != parse_file) begin_words(&p);
    parse(&p);
    ds_lexer_deinit(&p.lexer);
    ds_map_deinit(&p.params);
    ds_map_deinit(&p.opcodes);
    ds_map_deinit(&p.values);
    free(p.open.at);
    free(p.indices.at);
    free(p.open_names.at);
    free(p.undo.at);
    return p.status;
}

ds_status ds_parse(ds_module *module, ds_error *err) {
    return parse_text(module, module->path, module->text, module->text_n, parse_file, NULL, err);
}

ds_status ds_parse_words(ds_module *module, const char *source, const char *text,
                         void (*parse)(ds_parser *), void *result, ds_error *err) {
    size_t n = strlen(text);
    const char *kept = ds_arena_strndup(&module->unit->arena, text, n);
    return parse_text(module, source, kept, n, parse, result, err);
}

static void parse_what_if(ds_parser *p) {
    ds_degrade degrade = ds_parse_degradation(p);
    if (!ds_parser_at(p, DS_TOK_EOF)) ds_parser_expected(p, "',' or `for`, or no more");
    if (p->status) return;
    DS_PUSH(p->arena, &p->module->degrades, degrade);
    DS_PUSH(p->arena, &p->module->items, ((ds_item){DS_ITEM_DEGRADE, p->module->degrades.n - 1}));
}

ds_status ds_parse_what_if(ds_module *module, const char *text, ds_error *err) {
    return ds_parse_words(module, "--degrade", text, parse_what_if, NULL, err);
}

static void parse_setting(ds_parser *p) {
    ds_attr attr = ds_parse_attr(p, false);
    if (!ds_parser_at(p, DS_TOK_EOF)) ds_parser_expected(p, "no more after the value");
    *(ds_attr *)p->result = attr;
}

static ds_attr text_attr(ds_unit *unit, const char *text) {
    ds_expr_node node = {.kind = DS_EXPR_STR, .name = ds_intern(&unit->strings, text)};
    return (ds_attr){.kind = DS_ATTR_EXPR, .expr = ds_expr_make(&unit->exprs, node)};
}

ds_status ds_parse_setting(ds_module *module, const ds_knob *knob, const ds_setting *setting,
                           ds_attr *out, ds_error *err) {
    ds_unit *unit = module->unit;
    const char *source = ds_arena_printf(&unit->arena, "--set %s=%s", setting->path, setting->text);
    const char *text = ds_arena_printf(&unit->arena, "%s = %s", knob->name, setting->text);
    bool bare = *setting->text && !strchr("[\"@", *setting->text);
    if (!ds_knob_is_of_text(knob) || !bare)
        return ds_parse_words(module, source, text, parse_setting, out, err);
    *out = text_attr(unit, setting->text);
    out->loc = (ds_loc){.file = source, .line = 1, .col = 1, .len = 1};
    return DS_OK;
}
