/* Types, places, family binders and attributes.
 *
 * A `{` opens the coordinates of a mesh or the indices of a family only if it is glued to the name:
 * `on @m{pp=1}` is a slice, `on @m {` begins a body or attributes. */
#include "ir/lang/parse.h"

#include <stdio.h>
#include <string.h>

/* ---- places ---- */

static bool at_glued(const ds_parser *p, ds_token_kind kind) {
    return p->tok.kind == kind && p->tok.glued;
}

/* alias.member, interned; the '.' is already read. */
static const char *qualify(ds_parser *p, const char *alias) {
    ds_token member = ds_parser_expect(p, DS_TOK_NAME, "after the '.'");
    ds_buf text = {0};
    ds_buf_printf(&text, "%s.%s", alias, member.name);
    const char *qualified = ds_intern(&p->unit->strings, text.text);
    ds_buf_deinit(&text);
    return qualified;
}

const char *ds_parse_qualified(ds_parser *p, const char *purpose) {
    ds_token name = ds_parser_expect(p, DS_TOK_SYMBOL, purpose);
    return ds_parser_accept(p, DS_TOK_DOT) ? qualify(p, name.name) : name.name;
}

static bool is_alias(const ds_parser *p, const char *name) {
    for (uint32_t k = 0; k < p->module->imports.n; k++)
        if (p->module->imports.at[k].alias == name) return true;
    return false;
}

void ds_parse_steps(ds_parser *p, ds_step **steps, uint32_t *n) {
    DS_VEC(ds_step) list = {0};
    do {
        ds_step step = {.name = ds_parser_expect(p, DS_TOK_NAME, "of a device or node").name};
        if (ds_parser_accept(p, DS_TOK_LBRACKET)) {
            step.index = ds_parse_expr(p);
            ds_parser_expect(p, DS_TOK_RBRACKET, "after the index");
        }
        DS_PUSH(p->arena, &list, step);
    } while (ds_parser_accept(p, DS_TOK_DOT));
    *steps = list.at;
    *n = list.n;
}

static void parse_coords(ds_parser *p, ds_place *place) {
    DS_VEC(ds_coord) coords = {0};
    ds_parser_advance(p);
    do {
        ds_coord coord = {.axis = ds_parser_expect(p, DS_TOK_NAME, "of a mesh axis").name};
        ds_parser_expect(p, DS_TOK_ASSIGN, "before the coordinate");
        coord.at = ds_parse_expr(p);
        DS_PUSH(p->arena, &coords, coord);
    } while (ds_parser_accept(p, DS_TOK_COMMA));
    ds_parser_expect(p, DS_TOK_RBRACE, "after the coordinates");
    place->coords = coords.at;
    place->n_coords = coords.n;
}

/* @m, @m{pp=1}, @box.gpu[0]; after an import's alias, which must stand above, @g.m and
 * @g.box.gpu[0]. */
ds_place ds_parse_place(ds_parser *p) {
    ds_token name = ds_parser_expect(p, DS_TOK_SYMBOL, "for a mesh or device");
    ds_place place = {.kind = DS_PLACE_MESH, .name = name.name, .loc = name.loc};
    bool dot = ds_parser_accept(p, DS_TOK_DOT);
    if (dot && is_alias(p, name.name)) {
        place.name = qualify(p, name.name);
        dot = ds_parser_accept(p, DS_TOK_DOT);
    }
    if (dot) {
        place.kind = DS_PLACE_DEVICE;
        ds_parse_steps(p, &place.steps, &place.n_steps);
    } else if (at_glued(p, DS_TOK_LBRACE)) {
        parse_coords(p, &place);
    }
    return place;
}

/* ---- families ---- */

void ds_parse_binders(ds_parser *p, ds_binder **binders, uint32_t *n) {
    DS_VEC(ds_binder) list = {0};
    ds_parser_expect(p, DS_TOK_LBRACE, "before the family's index");
    do {
        ds_token name = ds_parser_expect_new_name(p, "for the family's index");
        ds_binder binder = {.name = name.name, .loc = name.loc};
        ds_parser_expect(p, DS_TOK_COLON, "before the index's range");
        ds_parse_range(p, &binder.lo, &binder.hi);
        ds_parser_push_index(p, name.name, name.loc);
        DS_PUSH(p->arena, &list, binder);
    } while (ds_parser_accept(p, DS_TOK_COMMA));
    ds_parser_expect(p, DS_TOK_RBRACE, "after the family's index");
    *binders = list.at;
    *n = list.n;
}

/* ---- types ---- */

/* The sizes of d@a[6, 6, 2, 2], if they are there. */
static void parse_sizes(ds_parser *p, ds_split *split) {
    if (!ds_parser_accept(p, DS_TOK_LBRACKET)) return;
    DS_VEC(ds_expr) sizes = {0};
    do DS_PUSH(p->arena, &sizes, ds_parse_expr(p));
    while (ds_parser_accept(p, DS_TOK_COMMA));
    ds_parser_expect(p, DS_TOK_RBRACKET, "after the shard sizes");
    split->sizes = sizes.at;
    split->n_sizes = sizes.n;
}

static void parse_splits(ds_parser *p, ds_dim *dim) {
    DS_VEC(ds_split) splits = {0};
    if (ds_parser_at(p, DS_TOK_SYMBOL)) {
        ds_split split = {.axis = p->tok.name};
        ds_parser_advance(p);
        parse_sizes(p, &split);
        DS_PUSH(p->arena, &splits, split);
    } else if (ds_parser_accept(p, DS_TOK_AT)) {
        ds_parser_expect(p, DS_TOK_LPAREN, "or an axis after '@'");
        do {
            ds_split split = {.axis = ds_parser_expect(p, DS_TOK_NAME, "of a mesh axis").name};
            parse_sizes(p, &split);
            DS_PUSH(p->arena, &splits, split);
        } while (ds_parser_accept(p, DS_TOK_COMMA));
        ds_parser_expect(p, DS_TOK_RPAREN, "after the axes");
    }
    dim->splits = splits.at;
    dim->n_splits = splits.n;
}

static void parse_dims(ds_parser *p, ds_type *type) {
    DS_VEC(ds_dim) dims = {0};
    ds_parser_expect(p, DS_TOK_LBRACKET, "before the dims of the type");
    while (ds_parser_more(p, DS_TOK_RBRACKET)) {
        if (dims.n == DS_MAX_RANK)
            ds_parser_fail(p, DS_ERR_LIMIT, p->tok.loc, "a type has at most %d dims", DS_MAX_RANK);
        ds_dim dim = {.size = ds_parse_expr(p)};
        parse_splits(p, &dim);
        DS_PUSH(p->arena, &dims, dim);
        if (!ds_parser_accept(p, DS_TOK_COMMA)) break;
    }
    ds_parser_expect(p, DS_TOK_RBRACKET, "after the dims of the type");
    type->dims = dims.at;
    type->rank = dims.n;
}

static ds_dtype parse_dtype(ds_parser *p) {
    static const char *const names[] = {
#define DS_X(name, text, bits) text,
        DS_DTYPE_MAP(DS_X)
#undef DS_X
    };
    if (!ds_parser_at(p, DS_TOK_NAME)) {
        ds_parser_expected(p, "a type like f32[batch, width]");
        return DS_F32;
    }
    ds_dtype dtype = DS_F32;
    if (!ds_dtype_parse(p->tok.name, &dtype)) {
        const char *near = ds_parser_suggest(p->tok.name, names, DS_DTYPE_COUNT);
        ds_parser_fail(p, DS_ERR_NAME, p->tok.loc, "unknown element type '%.40s'; %s%s%s",
                       p->tok.name,
                       near ? "did you mean '"
                            : "known are f64 f32 tf32 bf16 f16 f8e4m3 f8e5m2 "
                              "f4e2m1 i64 i32 i16 i8 u8 bool",
                       near ? near : "", near ? "'?" : "");
    }
    ds_parser_advance(p);
    return dtype;
}

/* partial(a, b) sums; partial(a, b, max) takes the maximum. */
static void parse_partial(ds_parser *p, ds_type *type) {
    DS_VEC(ds_partial) partials = {type->partials, type->n_partials, type->n_partials};
    uint32_t first = partials.n;
    ds_reduction reduction = DS_RED_SUM;
    ds_parser_expect(p, DS_TOK_LPAREN, "after 'partial'");
    do {
        bool ends = ds_parser_peek(p, 1)->kind == DS_TOK_RPAREN && partials.n > first;
        if (ends && ds_parser_accept_word(p, "sum")) break;
        if (ends && ds_parser_accept_word(p, "max")) {
            reduction = DS_RED_MAX;
            break;
        }
        if (ds_parser_at_word(p, "sum") || ds_parser_at_word(p, "max"))
            ds_parser_expected(p, "a mesh axis (the kind of reduction comes last)");
        ds_partial partial = {.axis = ds_parser_expect(p, DS_TOK_NAME, "of a mesh axis").name};
        DS_PUSH(p->arena, &partials, partial);
    } while (ds_parser_accept(p, DS_TOK_COMMA));
    ds_parser_expect(p, DS_TOK_RPAREN, "after the axes");
    for (uint32_t k = first; k < partials.n; k++) partials.at[k].reduction = reduction;
    type->partials = partials.at;
    type->n_partials = partials.n;
}

ds_type *ds_parse_type(ds_parser *p) {
    ds_type *type = DS_NEW(p->arena, ds_type);
    type->dtype = parse_dtype(p);
    parse_dims(p, type);
    for (;;) {
        if (ds_parser_at_word(p, "partial") && ds_parser_peek(p, 1)->kind == DS_TOK_LPAREN) {
            ds_parser_advance(p);
            parse_partial(p, type);
        } else if (ds_parser_at_word(p, "on") && ds_parser_peek(p, 1)->kind == DS_TOK_SYMBOL) {
            if (type->on.kind != DS_PLACE_NONE)
                ds_parser_fail(p, DS_ERR_SYNTAX, p->tok.loc, "a type has one `on`");
            ds_parser_advance(p);
            type->on = ds_parse_place(p);
        } else if (ds_parser_at_word(p, "host")) {
            if (type->host) ds_parser_fail(p, DS_ERR_SYNTAX, p->tok.loc, "a type has one `host`");
            ds_parser_advance(p);
            type->host = true;
        } else {
            return type;
        }
    }
}

/* ---- attributes ---- */

static void parse_value(ds_parser *p, ds_attr *attr, bool keep_comments);

/* Is the current name a word of its own, as in `optimizer = sgd`: neither in scope nor part of an
 * expression? */
static bool at_plain_word(ds_parser *p) {
    ds_expr_kind kind;
    uint32_t precedence;
    if (!ds_parser_at(p, DS_TOK_NAME) || ds_parser_at_word(p, "not")) return false;
    if (ds_parser_has_index(p, p->tok.name)) return false;
    if (ds_map_find(&p->params, DS_KEY(p->tok.name))) return false;
    const ds_token *next = ds_parser_peek(p, 1);
    return next->kind != DS_TOK_LPAREN && !ds_expr_operator_of(next, &kind, &precedence);
}

static void parse_word(ds_parser *p, ds_attr *attr) {
    bool yes = ds_parser_at_word(p, "true");
    attr->kind = yes || ds_parser_at_word(p, "false") ? DS_ATTR_BOOL : DS_ATTR_WORD;
    attr->flag = yes;
    if (attr->kind == DS_ATTR_WORD) attr->word = p->tok.name;
    ds_parser_advance(p);
}

void ds_parse_list(ds_parser *p, ds_attr *attr) {
    DS_VEC(ds_attr) list = {0};
    attr->kind = DS_ATTR_LIST;
    ds_parser_advance(p);
    while (ds_parser_more(p, DS_TOK_RBRACKET)) {
        ds_attr item = {.loc = p->tok.loc};
        parse_value(p, &item, false);
        DS_PUSH(p->arena, &list, item);
        if (!ds_parser_accept(p, DS_TOK_COMMA)) break;
    }
    ds_parser_expect(p, DS_TOK_RBRACKET, "after the list");
    attr->items = list.at;
    attr->n_items = list.n;
}

/* Comments or blank lines inside a block make it print one entry a line. */
static bool has_trivia(const ds_attr *block) {
    if (block->trivia.opening || block->dangling.n_comments) return true;
    for (uint32_t k = 0; k < block->n_items; k++) {
        const ds_trivia *trivia = &block->items[k].trivia;
        if (trivia->n_comments || trivia->trailing || trivia->blank_before) return true;
        if (block->items[k].multiline) return true;
    }
    return false;
}

static void parse_block(ds_parser *p, ds_attr *attr, bool keep_comments) {
    attr->kind = DS_ATTR_BLOCK;
    if (keep_comments) {
        ds_parser_advance(p);
        bool starts_line = p->tok.starts_line;
        ds_parser_opening(p, &attr->trivia);
        ds_parse_entries(p, &attr->items, &attr->n_items, &attr->dangling);
        attr->multiline = (starts_line && attr->n_items > 0) || has_trivia(attr);
    } else {
        ds_parse_attrs(p, &attr->items, &attr->n_items);
    }
}

/* lognormal(sigma = 0.05): a name that is no function of expressions, and its brace. */
static bool at_call(ds_parser *p) {
    static const char *const functions[] = {"min", "max", "ceildiv", "axis_index", "not"};
    if (!ds_parser_at(p, DS_TOK_NAME) || ds_parser_peek(p, 1)->kind != DS_TOK_LPAREN) return false;
    for (size_t k = 0; k < sizeof functions / sizeof *functions; k++)
        if (ds_parser_at_word(p, functions[k])) return false;
    return true;
}

static void refuse_duplicate(ds_parser *p, ds_map *seen, const ds_attr *attr);

static void parse_call(ds_parser *p, ds_attr *attr) {
    DS_VEC(ds_attr) list = {0};
    ds_map seen = {0};
    attr->kind = DS_ATTR_BLOCK;
    attr->word = p->tok.name;
    ds_parser_advance(p);
    ds_parser_expect(p, DS_TOK_LPAREN, "before the parameters");
    while (ds_parser_more(p, DS_TOK_RPAREN)) {
        ds_attr item = ds_parse_attr(p, false);
        refuse_duplicate(p, &seen, &item);
        DS_PUSH(p->arena, &list, item);
        if (!ds_parser_accept(p, DS_TOK_COMMA)) break;
    }
    ds_parser_expect(p, DS_TOK_RPAREN, "after the parameters");
    ds_map_deinit(&seen);
    attr->items = list.at;
    attr->n_items = list.n;
}

/* x or [y, z]: words even where a param has the name. */
static void parse_factor_axes(ds_parser *p, ds_attr *item) {
    const char *purpose = "of a mesh axis";
    if (!ds_parser_accept(p, DS_TOK_LBRACKET)) {
        item->word = ds_parser_expect(p, DS_TOK_NAME, purpose).name;
        return;
    }
    DS_VEC(ds_attr) list = {0};
    item->kind = DS_ATTR_LIST;
    while (ds_parser_more(p, DS_TOK_RBRACKET)) {
        ds_token axis = ds_parser_expect(p, DS_TOK_NAME, purpose);
        ds_attr word = {.kind = DS_ATTR_WORD, .word = axis.name, .loc = axis.loc};
        DS_PUSH(p->arena, &list, word);
        if (!ds_parser_accept(p, DS_TOK_COMMA)) break;
    }
    ds_parser_expect(p, DS_TOK_RBRACKET, "after the axes");
    item->items = list.at;
    item->n_items = list.n;
}

/* on @v [n: x, k: [y, z]] */
static void parse_override(ds_parser *p, ds_attr *attr) {
    DS_VEC(ds_attr) list = {0};
    ds_parser_advance(p);
    attr->kind = DS_ATTR_PLACE;
    attr->is_override = true;
    attr->place = ds_parse_place(p);
    if (!ds_parser_accept(p, DS_TOK_LBRACKET)) return;
    while (ds_parser_more(p, DS_TOK_RBRACKET)) {
        ds_token factor = ds_parser_expect(p, DS_TOK_NAME, "of a factor");
        ds_attr item = {.name = factor.name, .loc = factor.loc, .kind = DS_ATTR_WORD};
        ds_parser_expect(p, DS_TOK_COLON, "after the factor");
        parse_factor_axes(p, &item);
        DS_PUSH(p->arena, &list, item);
        if (!ds_parser_accept(p, DS_TOK_COMMA)) break;
    }
    ds_parser_expect(p, DS_TOK_RBRACKET, "after the factors");
    attr->items = list.at;
    attr->n_items = list.n;
}

static void parse_number(ds_parser *p, ds_attr *attr) {
    attr->kind = DS_ATTR_EXPR;
    attr->expr = ds_parse_expr(p);
    attr->unit = ds_parse_unit(p);
    if (attr->unit != DS_UNIT_NONE) attr->kind = DS_ATTR_QUANTITY;
}

static void parse_value(ds_parser *p, ds_attr *attr, bool keep_comments) {
    if (!ds_parser_enter(p)) return;
    if (ds_parser_at(p, DS_TOK_SYMBOL)) {
        attr->kind = DS_ATTR_PLACE;
        attr->place = ds_parse_place(p);
    } else if (ds_parser_at(p, DS_TOK_LBRACKET)) {
        ds_parse_list(p, attr);
    } else if (ds_parser_at(p, DS_TOK_LBRACE)) {
        parse_block(p, attr, keep_comments);
    } else if (ds_parser_at_word(p, "on") && ds_parser_peek(p, 1)->kind == DS_TOK_SYMBOL) {
        parse_override(p, attr);
    } else if (at_call(p)) {
        parse_call(p, attr);
    } else if (at_plain_word(p)) {
        parse_word(p, attr);
    } else {
        ds_parser_refuse_bare(p, attr->name);
        parse_number(p, attr);
    }
    ds_parser_leave(p);
}

ds_attr ds_parse_attr(ds_parser *p, bool keep_comments) {
    ds_attr attr = {.loc = p->tok.loc, .quoted_name = ds_parser_at(p, DS_TOK_STRING)};
    if (keep_comments) ds_parser_begin(p, &attr.trivia, false);
    attr.labelled = keep_comments && ds_parser_at(p, DS_TOK_NAME) &&
                    ds_parser_peek(p, 1)->kind == DS_TOK_STRING;
    if (attr.labelled) {
        attr.word = p->tok.name;
        ds_parser_advance(p);
        attr.quoted_name = true;
    }
    if (attr.quoted_name) {
        attr.name = p->tok.name;
        ds_parser_advance(p);
    } else {
        if (ds_parser_at_word(p, "and") || ds_parser_at_word(p, "or"))
            ds_parser_expected(p, "the name of an entry");
        attr.name = ds_parser_expect(p, DS_TOK_NAME, "or a quoted pattern before '='").name;
    }
    if (attr.labelled && !ds_parser_at(p, DS_TOK_LBRACE))
        ds_parser_expected(p, "'{' after the name");
    if (!ds_parser_at(p, DS_TOK_LBRACE)) ds_parser_expect(p, DS_TOK_ASSIGN, "before the value");
    parse_value(p, &attr, keep_comments);
    return attr;
}

/* A quoted key is another than the same word bare. */
static void refuse_duplicate(ds_parser *p, ds_map *seen, const ds_attr *attr) {
    uint64_t key = ds_hash_mix(attr->quoted_name, DS_KEY(attr->name));
    if (ds_map_find(seen, key))
        ds_parser_fail(p, DS_ERR_NAME, attr->loc, "'%.80s' is given twice", attr->name);
    ds_map_put(seen, key, 1);
}

void ds_parse_attrs(ds_parser *p, ds_attr **attrs, uint32_t *n) {
    DS_VEC(ds_attr) list = {0};
    ds_map seen = {0};
    ds_parser_expect(p, DS_TOK_LBRACE, "before the attributes");
    while (ds_parser_more(p, DS_TOK_RBRACE)) {
        ds_attr attr = ds_parse_attr(p, false);
        refuse_duplicate(p, &seen, &attr);
        DS_PUSH(p->arena, &list, attr);
        if (!ds_parser_accept(p, DS_TOK_COMMA)) break;
    }
    ds_parser_expect(p, DS_TOK_RBRACE, "after the attributes");
    ds_map_deinit(&seen);
    *attrs = list.at;
    *n = list.n;
}

void ds_parse_entries(ds_parser *p, ds_attr **attrs, uint32_t *n, ds_trivia *dangling) {
    DS_VEC(ds_attr) list = {0};
    ds_map seen = {0};
    while (ds_parser_more(p, DS_TOK_RBRACE)) {
        ds_attr attr = ds_parse_attr(p, true);
        if (list.n == 0) attr.trivia.blank_before = false;
        refuse_duplicate(p, &seen, &attr);
        bool comma = ds_parser_accept(p, DS_TOK_COMMA);
        ds_parser_end(p, &attr.trivia);
        DS_PUSH(p->arena, &list, attr);
        if (!comma && ds_parser_more(p, DS_TOK_RBRACE) && !p->tok.starts_line)
            ds_parser_expected(p, "',' or a new line before the next entry");
    }
    ds_parser_dangling(p, dangling, list.n == 0);
    ds_parser_expect(p, DS_TOK_RBRACE, "after the entries");
    ds_map_deinit(&seen);
    *attrs = list.at;
    *n = list.n;
}
